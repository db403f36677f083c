/* SPDX-License-Identifier: MIT */
#include "conversion.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EXPERTS_MAX 65536
#define CHUNKS_MAX 65536
#define BYTES_MAX ((uint64_t)1 << 40) /* of one expert's tensor */
#define EFFORT 1000000                /* steps of the packing: 10 ms */

static const char *const strategy_names[CLV_STRATEGIES] = {"lists", "preallocated", "ping-pong", "in-place"};

const char *clv_strategy_name(enum clv_strategy strategy)
{
	return strategy_names[strategy];
}

bool clv_strategy_find(const char *name, enum clv_strategy *strategy, struct clv_error *err)
{
	for (unsigned s = 0; s < CLV_STRATEGIES; s++)
		if (!strcmp(strategy_names[s], name)) {
			*strategy = (enum clv_strategy)s;
			return true;
		}
	return clv_error_set(err, "strategy \"%.100s\" is not known; known are %s, %s, %s, %s", name, strategy_names[0],
			     strategy_names[1], strategy_names[2], strategy_names[3]);
}

const char *clv_conversion_role_name(enum clv_conversion_role role)
{
	static const char *const names[CLV_CONVERSION_ROLES] = {"source", "destination", "padded",   "reordered",
								"whole",  "gathered",    "converted"};
	return names[role];
}

/* A schedule in the making. */
struct schedule {
	const struct clv_conversion *conversion;
	struct clv_conversion_plan *plan;
	int64_t now;
	size_t *list; /* pieces by tensor and expert; only for lists */
};

/* ---- what makes sense ---- */

static bool has_whole(const struct clv_conversion_tensor *t)
{
	return t->whole[0].bytes > 0;
}

static bool check_tensor(const struct clv_conversion_tensor *t, struct clv_error *err)
{
	uint64_t most = clv_max_u64(t->source, t->destination);
	bool few = true;
	for (unsigned i = 0; i < CLV_CONVERSION_PADS; i++)
		most = clv_max_u64(most, t->padded[i]);
	for (unsigned i = 0; i < CLV_CONVERSION_COPIES; i++)
		most = clv_max_u64(most, t->gathered[i]);
	for (unsigned i = 0; i < CLV_CONVERSION_WHOLE; i++) {
		few &= t->whole[i].count <= CLV_CONVERSION_WHOLE_COUNT;
		most = clv_max_u64(most, t->whole[i].bytes / EXPERTS_MAX);
	}
	if ((!t->source && !t->destination) || most > BYTES_MAX || !few)
		return clv_error_set(err,
				     "%s: an expert has 1 to %" PRIu64 " bytes, and at most %d copies of all are made",
				     t->name, BYTES_MAX, CLV_CONVERSION_WHOLE_COUNT);
	return true;
}

static bool check(const struct clv_conversion *c, struct clv_error *err)
{
	const struct clv_conversion_reorder *r = &c->reorder;
	if (!c->experts || c->experts > EXPERTS_MAX)
		return clv_error_set(err, "%" PRIu32 " experts: 1 to %d can be planned", c->experts, EXPERTS_MAX);
	if (!c->tensor_count || c->tensor_count > CLV_CONVERSION_TENSORS)
		return clv_error_set(err, "%" PRIu32 " tensors: 1 to %d can be planned", c->tensor_count,
				     CLV_CONVERSION_TENSORS);
	if (!clv_is_pow2(c->alignment) || c->alignment > BYTES_MAX)
		return clv_error_set(err,
				     "an alignment of %" PRIu64 ": a power of two, and at most %" PRIu64 ", is allowed",
				     c->alignment, BYTES_MAX);
	for (unsigned i = 0; i < 2 && r->chunks; i++)
		if (r->chunks > CHUNKS_MAX || r->tensor[i] >= c->tensor_count || !r->bytes[i] ||
		    r->bytes[i] > BYTES_MAX || !r->last[i] || r->last[i] > r->bytes[i])
			return clv_error_set(err,
					     "%" PRIu32 " chunks of %" PRIu64 " bytes, the last of %" PRIu64
					     ": up to %d chunks of up to %" PRIu64 " bytes can be planned",
					     r->chunks, r->bytes[i], r->last[i], CHUNKS_MAX, BYTES_MAX);
	for (uint32_t k = 0; k < c->tensor_count; k++)
		if (!check_tensor(&c->tensors[k], err))
			return false;
	return true;
}

bool clv_conversion_legal(const struct clv_conversion *c, enum clv_strategy strategy, struct clv_error *err)
{
	for (uint32_t k = 0; k < c->tensor_count; k++) {
		const struct clv_conversion_tensor *t = &c->tensors[k];
		if (!t->destination)
			continue;
		if (strategy == CLV_STRATEGY_IN_PLACE && t->destination != t->source)
			return clv_error_set(err,
					     "%s: in place an expert's result, %" PRIu64
					     " bytes, must be as large as its source, %" PRIu64,
					     t->name, t->destination, t->source);
		if (strategy == CLV_STRATEGY_PING_PONG && t->destination > t->source)
			return clv_error_set(err,
					     "%s: an expert's result, %" PRIu64
					     " bytes, does not fit into the source of the layer before, %" PRIu64,
					     t->name, t->destination, t->source);
	}
	return true;
}

bool clv_conversion_lasts(const struct clv_conversion_tensor *t, enum clv_strategy strategy)
{
	return t->destination && (strategy == CLV_STRATEGY_IN_PLACE || strategy == CLV_STRATEGY_PING_PONG);
}

/* ---- the schedule ---- */

static size_t born(struct schedule *s, uint64_t bytes, enum clv_conversion_role role, uint32_t tensor, uint32_t expert)
{
	struct clv_conversion_plan *p = s->plan;
	p->buffers[p->count] = (struct clv_conversion_buffer){role, tensor, expert, bytes};
	p->lives[p->count] = (cleave_pack_buffer){.lower = s->now++,
						  .size = clv_align_up(bytes, s->conversion->alignment),
						  .alignment = s->conversion->alignment,
						  .offset = CLEAVE_PACK_ANYWHERE};
	return p->count++;
}

static void dies(struct schedule *s, size_t buffer)
{
	s->plan->lives[buffer].upper = s->now++;
}

static void all_die(struct schedule *s, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		dies(s, i);
}

/* One of a kind for all experts, of each tensor that has it. */
static void all_born(struct schedule *s, enum clv_conversion_role role, unsigned pad)
{
	const struct clv_conversion *c = s->conversion;
	for (uint32_t k = 0; k < c->tensor_count; k++) {
		const struct clv_conversion_tensor *t = &c->tensors[k];
		uint64_t bytes = role == CLV_ROLE_SOURCE        ? t->source
				 : role == CLV_ROLE_DESTINATION ? t->destination
								: t->padded[pad];
		if (bytes)
			born(s, c->experts * bytes, role, k, 0);
	}
}

/* Returns the first of the copies that stay. */
static size_t pad(struct schedule *s)
{
	size_t before = s->plan->count, copies = before;
	for (unsigned i = 0; i < CLV_CONVERSION_PADS; i++) {
		size_t first = s->plan->count;
		all_born(s, CLV_ROLE_PADDED, i);
		if (s->plan->count > first) {
			all_die(s, copies, first);
			copies = first;
		}
	}
	return copies;
}

static void reorder(struct schedule *s)
{
	const struct clv_conversion_reorder *r = &s->conversion->reorder;
	size_t scratch = SIZE_MAX;
	for (uint32_t chunk = 1; chunk <= r->chunks; chunk++)
		for (unsigned i = 0; i < 2; i++) {
			size_t next = born(s, chunk < r->chunks ? r->bytes[i] : r->last[i], CLV_ROLE_REORDERED,
					   r->tensor[i], 0);
			if (scratch != SIZE_MAX)
				dies(s, scratch);
			scratch = next;
		}
	if (scratch != SIZE_MAX)
		dies(s, scratch);
}

static bool reuses(const struct clv_conversion_tensor *t, enum clv_strategy strategy)
{
	return t->reused && strategy != CLV_STRATEGY_LISTS;
}

static void gather(struct schedule *s, uint32_t k, uint32_t expert)
{
	const struct clv_conversion_tensor *t = &s->conversion->tensors[k];
	for (unsigned i = 0; i < CLV_CONVERSION_COPIES; i++)
		if (t->gathered[i])
			born(s, t->gathered[i], CLV_ROLE_GATHERED, k, expert);
}

/* What serves all experts of a loop. */
static void serve_all(struct schedule *s, enum clv_strategy strategy, uint32_t k)
{
	const struct clv_conversion_tensor *t = &s->conversion->tensors[k];
	if (t->destination && reuses(t, strategy))
		gather(s, k, CLV_CONVERSION_ALL);
	if (t->destination && !t->gathered[0] && strategy == CLV_STRATEGY_IN_PLACE)
		born(s, t->destination, CLV_ROLE_CONVERTED, k, CLV_CONVERSION_ALL);
}

/* Into a buffer of the expert's own if a list is made or it goes through copies; else straight to where it will stay, or to
 * scratch and back. */
static void convert_expert(struct schedule *s, enum clv_strategy strategy, uint32_t k, uint32_t expert)
{
	const struct clv_conversion_tensor *t = &s->conversion->tensors[k];
	size_t first = s->plan->count;
	if (!t->destination || (!t->gathered[0] && strategy != CLV_STRATEGY_LISTS))
		return;
	if (!reuses(t, strategy))
		gather(s, k, expert);
	size_t converted = born(s, t->destination, CLV_ROLE_CONVERTED, k, expert);
	all_die(s, first, converted);
	if (strategy == CLV_STRATEGY_LISTS)
		s->list[(size_t)k * s->conversion->experts + expert] = converted;
	else
		dies(s, converted);
}

static void stack(struct schedule *s, uint32_t k)
{
	const struct clv_conversion *c = s->conversion;
	if (!c->tensors[k].destination)
		return;
	born(s, c->experts * c->tensors[k].destination, CLV_ROLE_DESTINATION, k, 0);
	for (uint32_t e = 0; e < c->experts; e++)
		dies(s, s->list[(size_t)k * c->experts + e]);
}

static void convert_all(struct schedule *s, enum clv_strategy strategy)
{
	const struct clv_conversion *c = s->conversion;
	size_t serving = s->plan->count;
	for (uint32_t k = 0; k < c->tensor_count; k++)
		if (!has_whole(&c->tensors[k]))
			serve_all(s, strategy, k);
	size_t serving_end = s->plan->count;
	for (uint32_t e = 0; e < c->experts; e++)
		for (uint32_t k = 0; k < c->tensor_count; k++)
			if (!has_whole(&c->tensors[k]))
				convert_expert(s, strategy, k, e);
	all_die(s, serving, serving_end);
	for (uint32_t k = 0; k < c->tensor_count && strategy == CLV_STRATEGY_LISTS; k++)
		if (!has_whole(&c->tensors[k]))
			stack(s, k);
	for (uint32_t k = 0; k < c->tensor_count; k++) {
		const struct clv_conversion_tensor *t = &c->tensors[k];
		size_t first = s->plan->count;
		if (!has_whole(t))
			continue;
		for (unsigned i = 0; i < CLV_CONVERSION_WHOLE; i++)
			for (uint32_t n = 0; n < t->whole[i].count && t->whole[i].bytes; n++)
				born(s, t->whole[i].bytes, CLV_ROLE_WHOLE, k, 0);
		serve_all(s, strategy, k);
		size_t end = s->plan->count;
		for (uint32_t e = 0; e < c->experts; e++)
			convert_expert(s, strategy, k, e);
		if (strategy == CLV_STRATEGY_LISTS)
			stack(s, k);
		all_die(s, first, end);
	}
}

static void make_schedule(struct schedule *s, enum clv_strategy strategy)
{
	struct clv_conversion_plan *p = s->plan;
	all_born(s, CLV_ROLE_SOURCE, 0);
	size_t sources = p->count;
	if (strategy == CLV_STRATEGY_PING_PONG)
		all_born(s, CLV_ROLE_DESTINATION, 0);
	size_t copies = pad(s), copies_end = p->count;
	reorder(s);
	if (strategy == CLV_STRATEGY_PREALLOCATED)
		all_born(s, CLV_ROLE_DESTINATION, 0);
	convert_all(s, strategy);
	all_die(s, copies, copies_end);
	all_die(s, 0, sources);
	for (size_t i = 0; i < p->count; i++)
		if (p->buffers[i].role == CLV_ROLE_DESTINATION)
			dies(s, i); /* beyond the schedule */
}

/* Of all buffers, and of pieces. */
static void count_buffers(const struct clv_conversion *c, size_t *buffers, size_t *pieces)
{
	*pieces = (size_t)c->experts * c->tensor_count;
	*buffers =
		(1 + CLV_CONVERSION_COPIES) * *pieces + 2 * (size_t)c->reorder.chunks +
		(size_t)c->tensor_count * (2 + CLV_CONVERSION_PADS + CLV_CONVERSION_WHOLE * CLV_CONVERSION_WHOLE_COUNT);
}

/* ---- the packing ---- */

static uint64_t gathered_of(const struct clv_conversion *c, uint32_t tensor)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < CLV_CONVERSION_COPIES; i++)
		sum += clv_align_up(c->tensors[tensor].gathered[i], c->alignment);
	return sum;
}

/* Where the pieces of lists lie, counted from the upper end down to which destinations are laid out: D(k) is a destination,
 * P(k) the sum of those before it, L(k) the pieces of it. All lists lie one after another from B on. Destination k, which
 * reaches to P(k) + D(k), is made when the lists before it are gone: it does not touch its own if P(k) + D(k) <= B + L(0) +
 * ... + L(k-1). So B is the largest excess, and B + all L is just what is live when that destination is made. A tensor with
 * a loop of its own has only destinations before it, and its list right after its own. What is gathered has the same room
 * before destinations are made, so there is at least room for that. */
static void fix_lists(const struct clv_conversion *c, struct clv_conversion_plan *p)
{
	uint64_t reach[CLV_CONVERSION_TENSORS] = {0}, list[CLV_CONVERSION_TENSORS], first = 0, before = 0;
	for (size_t i = 0; i < p->count; i++)
		if (p->buffers[i].role == CLV_ROLE_DESTINATION)
			reach[p->buffers[i].tensor] = p->lives[i].offset + p->lives[i].size;
	for (uint32_t k = 0; k < c->tensor_count; k++) {
		const struct clv_conversion_tensor *t = &c->tensors[k];
		if (has_whole(t)) {
			uint64_t own = clv_align_up(c->experts * t->destination, c->alignment);
			list[k] = reach[k] - own + clv_max_u64(own, gathered_of(c, k));
			continue;
		}
		list[k] = before;
		first = clv_max_u64(first, clv_max_u64(gathered_of(c, k), reach[k] > before ? reach[k] - before : 0));
		before += c->experts * clv_align_up(t->destination, c->alignment);
	}
	for (size_t i = 0; i < p->count; i++) {
		const struct clv_conversion_buffer *b = &p->buffers[i];
		if (b->role == CLV_ROLE_CONVERTED)
			p->lives[i].offset = list[b->tensor] + b->expert * p->lives[i].size +
					     (has_whole(&c->tensors[b->tensor]) ? 0 : first);
	}
}

static void place_sources(const struct clv_conversion *c, enum clv_strategy strategy, struct clv_conversion_plan *p,
			  size_t count)
{
	for (int lasting = 1; lasting >= 0; lasting--)
		for (size_t i = 0; i < count; i++) {
			if (clv_conversion_lasts(&c->tensors[p->buffers[i].tensor], strategy) != lasting)
				continue;
			p->offsets[i] = p->sources;
			p->sources += p->lives[i].size;
			p->lasting += lasting ? p->lives[i].size : 0;
		}
}

/* All experts go the same way in the same company, one after another, unless lists grow. So the first one's places are
 * everyone's, and nothing else need be packed. */
static bool is_repeated(const struct clv_conversion_buffer *b, enum clv_strategy strategy)
{
	return strategy != CLV_STRATEGY_LISTS && b->expert > 0 && b->expert != CLV_CONVERSION_ALL;
}

/* Where the first expert's buffers are, by tensor: they follow each other in the same order. */
static void repeat_offsets(enum clv_strategy strategy, struct clv_conversion_plan *p)
{
	size_t model[CLV_CONVERSION_TENSORS], run = 0;
	for (size_t i = 0; i < p->count; i++) {
		const struct clv_conversion_buffer *b = &p->buffers[i];
		if (!i || b->tensor != b[-1].tensor || b->expert != b[-1].expert || b->role < CLV_ROLE_GATHERED ||
		    b[-1].role < CLV_ROLE_GATHERED)
			run = i;
		if (is_repeated(b, strategy))
			p->offsets[i] = p->offsets[model[b->tensor] + (i - run)];
		else if (run == i && b->role >= CLV_ROLE_GATHERED && b->expert == 0)
			model[b->tensor] = i;
	}
}

/* Packs what is given in `some` beside the sources. */
static bool pack_some(const struct clv_conversion *c, enum clv_strategy strategy, struct clv_conversion_plan *p,
		      cleave_pack_buffer *some, uint64_t *offsets, struct clv_error *err)
{
	const cleave_pack_settings settings = {.effort = EFFORT};
	size_t sources = 0, count = 0;
	char why[256];
	while (sources < p->count && p->buffers[sources].role == CLV_ROLE_SOURCE)
		sources++;
	place_sources(c, strategy, p, sources);
	for (size_t i = sources; i < p->count; i++)
		if (p->buffers[i].role == CLV_ROLE_DESTINATION) {
			p->lives[i].offset = p->destinations;
			p->destinations += p->lives[i].size;
		}
	if (strategy == CLV_STRATEGY_LISTS)
		fix_lists(c, p);
	for (size_t i = sources; i < p->count; i++)
		if (!is_repeated(&p->buffers[i], strategy))
			some[count++] = p->lives[i];
	int ret = cleave_pack(some, count, &settings, offsets, &p->packed, why, sizeof(why));
	if (ret == -EINVAL)
		clv_error_set(err, "the schedule of a layer: %s", why);
	if (ret)
		return false;
	p->packed.height += p->sources;
	p->packed.lower_bound += p->sources;
	count = 0;
	for (size_t i = sources; i < p->count; i++) {
		p->lives[i].offset = CLEAVE_PACK_ANYWHERE;
		if (!is_repeated(&p->buffers[i], strategy))
			p->offsets[i] = p->packed.height - offsets[count++] - p->lives[i].size;
	}
	repeat_offsets(strategy, p);
	return true;
}

/* What is above the sources is packed from the upper end downwards, where destinations lie. */
static bool pack(const struct clv_conversion *c, enum clv_strategy strategy, struct clv_conversion_plan *p,
		 struct clv_error *err)
{
	cleave_pack_buffer *some = malloc(p->count * sizeof(*some));
	uint64_t *offsets = malloc(p->count * sizeof(*offsets));
	bool ok = some && offsets && pack_some(c, strategy, p, some, offsets, err);
	free(some);
	free(offsets);
	return ok;
}

bool clv_conversion_plan(const struct clv_conversion *c, enum clv_strategy strategy, struct clv_conversion_plan *plan,
			 struct clv_error *err)
{
	size_t buffers, pieces;
	*plan = (struct clv_conversion_plan){0};
	if (!check(c, err) || !clv_conversion_legal(c, strategy, err))
		return false;
	count_buffers(c, &buffers, &pieces);
	struct schedule s = {.conversion = c, .plan = plan, .list = malloc(pieces * sizeof(*s.list))};
	plan->buffers = malloc(buffers * sizeof(*plan->buffers));
	plan->lives = malloc(buffers * sizeof(*plan->lives));
	plan->offsets = malloc(buffers * sizeof(*plan->offsets));
	bool ok = s.list && plan->buffers && plan->lives && plan->offsets;
	if (ok) {
		make_schedule(&s, strategy);
		ok = pack(c, strategy, plan, err);
	}
	free(s.list);
	if (!ok)
		clv_conversion_plan_free(plan);
	return ok;
}

void clv_conversion_plan_free(struct clv_conversion_plan *plan)
{
	free(plan->buffers);
	free(plan->lives);
	free(plan->offsets);
	*plan = (struct clv_conversion_plan){0};
}

size_t *clv_conversion_steps(const struct clv_conversion_plan *plan)
{
	size_t *steps = malloc((2 * plan->count + 1) * sizeof(*steps));
	for (size_t i = 0; i < plan->count && steps; i++) {
		steps[plan->lives[i].lower] = 2 * i + 1;
		steps[plan->lives[i].upper] = 2 * i;
	}
	return steps;
}
