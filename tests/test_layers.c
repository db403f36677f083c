/* SPDX-License-Identifier: MIT
 *
 * All layers from one: what layers.h promises of peaks and places is compared with the whole history, walked through
 * layer by layer, and what is live in it with the schedule of conversion.h, gone through here in a second way.
 */
#include "../src/plan/layers.h"
#include "check_main.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LAYERS_MAX 7
#define BLOCKS_MAX 4096
#define SEEDS 200

static uint64_t sample_seed; /* for messages */

#define MUST(what) ck_assert_msg(what, "sample %" PRIu64 ": %s", sample_seed, #what)
#define MUST_BE(a, relation, b)                                                                                        \
	ck_assert_msg((a)relation(b), "sample %" PRIu64 ": %s is %" PRIu64 ", %s is %" PRIu64, sample_seed, #a,        \
		      (uint64_t)(a), #b, (uint64_t)(b))

/* ---- random kinds of layers ---- */

struct sample {
	struct clv_rng rng;
	struct clv_layers layers;
	uint8_t kind[LAYERS_MAX];
	struct clv_conversion conversion[CLV_LAYERS_KINDS];
	struct clv_conversion_plan plan[CLV_LAYERS_KINDS];
	struct clv_layers_load loads[CLV_LAYERS_KINDS][8];
	bool tight; /* no packing leaves anything */
};

static bool one_in(struct clv_rng *r, uint64_t n)
{
	return clv_rng_below(r, n) == 0;
}

static uint64_t some_bytes(struct clv_rng *r)
{
	return clv_rng_range(r, 1, one_in(r, 2) ? 2000 : 20000);
}

static void random_tensor(struct clv_rng *r, struct clv_conversion_tensor *t, uint64_t shape)
{
	*t = (struct clv_conversion_tensor){.name = "tensor", .source = some_bytes(r)};
	t->destination = t->source;
	if (shape == 1) /* padded by the conversion */
		t->destination += some_bytes(r);
	if (shape == 2) /* packed more densely */
		t->destination = clv_rng_range(r, 1, t->source);
	if (shape == 1 && one_in(r, 3)) {
		t->padded[0] = clv_rng_range(r, t->source, t->destination);
		t->padded[1] = one_in(r, 2) ? t->destination : 0;
	}
	if (one_in(r, 2))
		t->gathered[0] = one_in(r, 8) ? some_bytes(r) : t->destination;
	if (t->gathered[0] && one_in(r, 4))
		t->gathered[1] = t->destination;
	t->reused = one_in(r, 2);
	if (one_in(r, 5)) {
		t->whole[0].bytes = some_bytes(r);
		t->whole[0].count = (uint32_t)clv_rng_range(r, 1, 3);
	}
	if (one_in(r, 8))
		t->destination = 0;
	else if (one_in(r, 10))
		t->source = 0;
}

static void random_conversion(struct clv_rng *r, struct clv_conversion *c)
{
	uint64_t shape = clv_rng_below(r, 4);
	*c = (struct clv_conversion){.experts = (uint32_t)clv_rng_range(r, 1, 5),
				     .tensor_count = (uint32_t)clv_rng_range(r, 1, 4),
				     .alignment = CLV_LAYERS_ALIGNMENT};
	for (uint32_t k = 0; k < c->tensor_count; k++)
		random_tensor(r, &c->tensors[k], shape);
	if (one_in(r, 2)) {
		c->reorder.chunks = (uint32_t)clv_rng_range(r, 1, 4);
		for (int i = 0; i < 2; i++) {
			c->reorder.tensor[i] = (uint32_t)clv_rng_below(r, c->tensor_count);
			c->reorder.bytes[i] = some_bytes(r);
			c->reorder.last[i] = clv_rng_range(r, 1, c->reorder.bytes[i]);
		}
	}
}

/* What stays lies anywhere among the sources. */
static void random_loads(struct sample *s, unsigned kind, bool converted)
{
	struct clv_layers_kind *k = &s->layers.kinds[kind];
	k->loads = s->loads[kind];
	for (uint32_t i = 0; i < s->conversion[kind].tensor_count; i++) {
		const struct clv_conversion *c = &s->conversion[kind];
		if (one_in(&s->rng, 3))
			s->loads[kind][k->load_count++] = (struct clv_layers_load){"kept", some_bytes(&s->rng), true};
		if (converted && c->tensors[i].source)
			s->loads[kind][k->load_count++] =
				(struct clv_layers_load){"tensor", c->experts * c->tensors[i].source, false};
	}
}

/* False: the strategy is not legal for it. */
static bool make_sample(struct sample *s, uint64_t seed, enum clv_strategy strategy)
{
	memset(s, 0, sizeof(*s));
	s->rng.state = sample_seed = seed;
	s->tight = true;
	s->layers.strategy = strategy;
	s->layers.kind = s->kind;
	s->layers.count = (uint32_t)clv_rng_range(&s->rng, 0, LAYERS_MAX);
	s->layers.other_weights = one_in(&s->rng, 2) ? some_bytes(&s->rng) : 0;
	s->layers.kv_cache = one_in(&s->rng, 2) ? some_bytes(&s->rng) * clv_rng_range(&s->rng, 1, 100) : 0;
	s->layers.workspace = one_in(&s->rng, 2) ? some_bytes(&s->rng) : 0;
	for (uint32_t i = 0; i < s->layers.count; i++)
		s->kind[i] = clv_rng_below(&s->rng, 4) == 0;
	unsigned converted = (unsigned)clv_rng_below(&s->rng, 4); /* a bit a kind */
	if (strategy == CLV_STRATEGY_PING_PONG)
		converted &= 1;
	for (unsigned k = 0; k < CLV_LAYERS_KINDS; k++) {
		random_conversion(&s->rng, &s->conversion[k]);
		random_loads(s, k, converted >> k & 1);
		if (!(converted >> k & 1))
			continue;
		if (!clv_conversion_legal(&s->conversion[k], strategy, NULL))
			return false;
		struct clv_error err = {""};
		ck_assert_msg(clv_conversion_plan(&s->conversion[k], strategy, &s->plan[k], &err), "%s", err.text);
		s->tight &= s->plan[k].packed.optimal;
		s->layers.kinds[k].conversion = &s->conversion[k];
		s->layers.kinds[k].plan = &s->plan[k];
	}
	return true;
}

static void free_sample(struct sample *s)
{
	for (unsigned k = 0; k < CLV_LAYERS_KINDS; k++)
		clv_conversion_plan_free(&s->plan[k]);
}

/* ---- what is live, from the text of conversion.h and layers.h ---- */

struct account {
	uint64_t live, peak;
};

static uint64_t whole(uint64_t bytes)
{
	return (bytes + 511) / 512 * 512;
}

static void up(struct account *a, uint64_t bytes)
{
	a->live += whole(bytes);
	a->peak = clv_max_u64(a->peak, a->live);
}

static void down(struct account *a, uint64_t bytes)
{
	MUST_BE(whole(bytes), <=, a->live);
	a->live -= whole(bytes);
}

/* Copies that serve all experts, and the scratch of one. */
static uint64_t serving(enum clv_strategy strategy, const struct clv_conversion_tensor *t)
{
	if (strategy == CLV_STRATEGY_LISTS || !t->destination)
		return 0;
	if (!t->gathered[0])
		return strategy == CLV_STRATEGY_IN_PLACE ? whole(t->destination) : 0;
	return t->reused ? whole(t->gathered[0]) + whole(t->gathered[1]) : 0;
}

static void count_expert(struct account *a, enum clv_strategy strategy, const struct clv_conversion_tensor *t)
{
	uint64_t copies = whole(t->gathered[0]) + whole(t->gathered[1]);
	if (!t->destination || (strategy != CLV_STRATEGY_LISTS && !copies))
		return;
	if (strategy != CLV_STRATEGY_LISTS && t->reused)
		copies = 0;
	up(a, copies);
	up(a, t->destination);
	down(a, copies);
	if (strategy != CLV_STRATEGY_LISTS)
		down(a, t->destination);
}

static void count_stack(struct account *a, const struct clv_conversion *c, const struct clv_conversion_tensor *t)
{
	up(a, c->experts * t->destination);
	for (uint32_t e = 0; e < c->experts; e++)
		down(a, t->destination);
}

static void count_layer(struct account *a, enum clv_strategy strategy, const struct clv_conversion *c, bool first,
			bool last)
{
	const struct clv_conversion_tensor *t = c->tensors, *end = t + c->tensor_count;
	bool lists = strategy == CLV_STRATEGY_LISTS;
	uint64_t copies[2] = {0}, scratch = 0;
	for (t = c->tensors; t < end && first && strategy == CLV_STRATEGY_PING_PONG; t++)
		up(a, c->experts * t->destination);
	for (int pad = 0; pad < 2; pad++) {
		for (t = c->tensors; t < end; t++) {
			up(a, c->experts * t->padded[pad]);
			copies[pad] += whole(c->experts * t->padded[pad]);
		}
		if (pad && copies[1]) {
			down(a, copies[0]);
			copies[0] = 0;
		}
	}
	for (uint32_t n = 0; n < 2 * c->reorder.chunks; n++) {
		uint64_t bytes = n / 2 + 1 < c->reorder.chunks ? c->reorder.bytes[n % 2] : c->reorder.last[n % 2];
		up(a, bytes);
		down(a, scratch);
		scratch = bytes;
	}
	down(a, scratch);
	for (t = c->tensors; t < end && strategy == CLV_STRATEGY_PREALLOCATED; t++)
		up(a, c->experts * t->destination);
	uint64_t all = 0;
	for (t = c->tensors; t < end; t++)
		all += t->whole[0].bytes ? 0 : serving(strategy, t);
	up(a, all);
	for (uint32_t e = 0; e < c->experts; e++)
		for (t = c->tensors; t < end; t++)
			if (!t->whole[0].bytes)
				count_expert(a, strategy, t);
	down(a, all);
	for (t = c->tensors; t < end && lists; t++)
		if (!t->whole[0].bytes)
			count_stack(a, c, t);
	for (t = c->tensors; t < end; t++) {
		for (uint32_t n = 0; n < t->whole[0].count; n++)
			up(a, t->whole[0].bytes);
		all = t->whole[0].bytes ? serving(strategy, t) : 0;
		up(a, all);
		for (uint32_t e = 0; e < c->experts && t->whole[0].bytes; e++)
			count_expert(a, strategy, t);
		if (lists && t->whole[0].bytes)
			count_stack(a, c, t);
		for (uint32_t n = 0; n < t->whole[0].count; n++)
			down(a, t->whole[0].bytes);
		down(a, all);
	}
	down(a, copies[0] + copies[1]);
	for (t = c->tensors; t < end; t++)
		if (!t->destination || lists || strategy == CLV_STRATEGY_PREALLOCATED ||
		    (strategy == CLV_STRATEGY_PING_PONG && last))
			down(a, c->experts * t->source);
}

static void count_all(struct account *a, const struct clv_layers *l)
{
	uint32_t first = UINT32_MAX, last = 0;
	up(a, l->other_weights);
	for (uint32_t i = 0; i < l->count; i++) {
		const struct clv_layers_kind *k = &l->kinds[l->kind[i]];
		for (uint32_t n = 0; n < k->load_count; n++)
			up(a, k->loads[n].bytes);
		if (k->conversion) {
			first = first == UINT32_MAX ? i : first;
			last = i;
		}
	}
	for (uint32_t i = 0; i < l->count; i++)
		if (l->kinds[l->kind[i]].conversion)
			count_layer(a, l->strategy, l->kinds[l->kind[i]].conversion, i == first, i == last);
	up(a, l->kv_cache);
	up(a, l->workspace);
}

/* ---- the walk ---- */

struct seen {
	struct block {
		uint64_t offset, bytes;
		bool live;
	} blocks[BLOCKS_MAX];
	uint64_t count, highest;
	struct account account;
	enum clv_phase phase;
	uint64_t stop_after; /* events; 0: none */
	uint64_t events;
};

static bool see(void *arg, const struct clv_layers_event *e)
{
	struct seen *s = arg;
	MUST(e->phase >= s->phase);
	s->phase = e->phase;
	s->events++;
	MUST(*e->name && e->bytes && e->offset % 512 == 0);
	if (e->birth) {
		MUST_BE(e->block, ==, s->count);
		MUST(s->count < BLOCKS_MAX);
		for (uint64_t i = 0; i < s->count; i++) {
			const struct block *b = &s->blocks[i];
			ck_assert_msg(!b->live || b->offset + whole(b->bytes) <= e->offset ||
					      e->offset + whole(e->bytes) <= b->offset,
				      "sample %" PRIu64 ": %s %s of layer %" PRIu32 " lies where block %" PRIu64 " is",
				      sample_seed, e->name, e->role, e->layer, i);
		}
		s->blocks[s->count++] = (struct block){e->offset, e->bytes, true};
		s->highest = clv_max_u64(s->highest, e->offset + whole(e->bytes));
		up(&s->account, e->bytes);
	} else {
		MUST(e->block < s->count);
		struct block *b = &s->blocks[e->block];
		MUST(b->live && b->bytes == e->bytes && b->offset == e->offset);
		b->live = false;
		down(&s->account, e->bytes);
	}
	return s->events != s->stop_after;
}

static void check_sample(struct sample *s, unsigned *exact)
{
	const struct clv_layers *l = &s->layers;
	struct clv_layers_peak p;
	struct account want = {0};
	static struct seen seen;
	memset(&seen, 0, sizeof(seen));
	clv_layers_peak(l, &p);
	count_all(&want, l);
	MUST(clv_layers_walk(l, see, &seen));
	MUST_BE(seen.account.peak, ==, want.peak);
	MUST_BE(seen.account.live, ==, want.live);
	MUST_BE(p.final_bytes + whole(l->kv_cache) + whole(l->workspace), ==, want.live);
	MUST_BE(seen.highest, <=, p.peak_bytes);
	MUST_BE(want.peak, <=, p.least_bytes);
	MUST_BE(p.least_bytes, <=, p.peak_bytes);
	if (s->tight)
		MUST_BE(p.peak_bytes, ==, p.least_bytes);
	*exact += p.peak_bytes == want.peak;
	seen.stop_after = clv_rng_range(&s->rng, 1, seen.events + 1);
	bool ends = seen.stop_after <= seen.events;
	seen.events = seen.count = 0;
	seen.phase = CLV_PHASE_LOAD;
	memset(seen.blocks, 0, sizeof(seen.blocks));
	seen.account = (struct account){0};
	MUST(clv_layers_walk(l, see, &seen) == !ends);
}

START_TEST(one_layer_tells_of_all)
{
	for (enum clv_strategy strategy = 0; strategy < CLV_STRATEGIES; strategy++) {
		unsigned samples = 0, exact = 0;
		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			static struct sample s;
			if (make_sample(&s, seed * CLV_STRATEGIES + strategy, strategy)) {
				check_sample(&s, &exact);
				samples++;
			}
			free_sample(&s);
		}
		printf("%s: %u samples, %u need just what is live\n", clv_strategy_name(strategy), samples, exact);
		ck_assert_uint_gt(samples, SEEDS / 8);
		ck_assert_uint_gt(exact, samples * 9 / 10);
	}
}
END_TEST

START_TEST(larger_destinations_grow)
{
	struct clv_conversion c = {.experts = 2,
				   .tensors = {{.name = "w", .source = 1024, .destination = 1536, .gathered = {512}}},
				   .tensor_count = 1,
				   .alignment = 512};
	const struct clv_layers_load load = {"w", 2048, false};
	const uint8_t kind[3] = {0};
	struct clv_conversion_plan plan;
	struct clv_layers_peak p;
	ck_assert(clv_conversion_plan(&c, CLV_STRATEGY_PREALLOCATED, &plan, NULL));
	struct clv_layers l = {.strategy = CLV_STRATEGY_PREALLOCATED,
			       .kind = kind,
			       .count = 3,
			       .kinds = {{&load, 1, &c, &plan}},
			       .other_weights = 100};
	clv_layers_peak(&l, &p);
	ck_assert_uint_eq(p.base_bytes, 512);
	ck_assert_uint_eq(p.final_bytes, 512 + 3 * 3072);
	/* in the last layer: its sources, all destinations, an expert's copy and result */
	ck_assert_uint_eq(p.peak_bytes, 512 + 2048 + 3 * 3072 + 512 + 1536);
	ck_assert_uint_eq(p.least_bytes, p.peak_bytes);
	ck_assert_int_eq(p.phase, CLV_PHASE_CONVERT);
	ck_assert_uint_eq(p.layer, 2);
	l.kv_cache = 2048 + 512 + 1536 + 1;
	clv_layers_peak(&l, &p);
	ck_assert_int_eq(p.phase, CLV_PHASE_SERVE);
	ck_assert_uint_eq(p.peak_bytes, 512 + 3 * 3072 + l.kv_cache + 511);
	clv_conversion_plan_free(&plan);
}
END_TEST

CHECK_MAIN("layers", one_layer_tells_of_all, larger_destinations_grow)
