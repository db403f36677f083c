/* SPDX-License-Identifier: MIT */
#include "conversion.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define EXPERTS_MAX 65536
#define BYTES_MAX ((uint64_t)1 << 40) /* of one expert's tensor */
#define EFFORT 5000000                /* steps of the packing: 50 ms */

const char *clv_strategy_name(enum clv_strategy strategy)
{
	static const char *const names[CLV_STRATEGIES] = {"lists", "preallocated", "ping-pong", "in-place"};
	return names[strategy];
}

/* A schedule in the making. */
struct schedule {
	const struct clv_conversion *conversion;
	struct clv_conversion_plan *plan;
	int64_t now;
};

static bool check(const struct clv_conversion *c, enum clv_strategy strategy, struct clv_error *err)
{
	if (!c->experts || c->experts > EXPERTS_MAX)
		return clv_error_set(err, "%" PRIu32 " experts: 1 to %d can be planned", c->experts, EXPERTS_MAX);
	if (!c->tensor_count || c->tensor_count > CLV_CONVERSION_TENSORS)
		return clv_error_set(err, "%" PRIu32 " tensors: 1 to %d can be planned", c->tensor_count,
				     CLV_CONVERSION_TENSORS);
	if (!clv_is_pow2(c->alignment) || c->alignment > BYTES_MAX || c->scratch > BYTES_MAX)
		return clv_error_set(err, "an alignment of %" PRIu64 ", a scratch of %" PRIu64
				     " bytes: a power of two, and at most %" PRIu64 " are allowed",
				     c->alignment, c->scratch, BYTES_MAX);
	for (uint32_t k = 0; k < c->tensor_count; k++) {
		const struct clv_conversion_tensor *t = &c->tensors[k];
		if (!t->source || !t->destination || t->source > BYTES_MAX || t->destination > BYTES_MAX ||
		    t->gathered > BYTES_MAX)
			return clv_error_set(err, "%s: an expert has 1 to %" PRIu64 " bytes", t->name, BYTES_MAX);
		if (strategy == CLV_STRATEGY_IN_PLACE && t->destination > t->source)
			return clv_error_set(err, "%s: in place an expert's %" PRIu64
					     " bytes do not fit over its source of %" PRIu64,
					     t->name, t->destination, t->source);
	}
	return true;
}

static size_t born(struct schedule *s, uint64_t bytes, enum clv_conversion_role role, uint32_t tensor, uint32_t expert)
{
	struct clv_conversion_plan *p = s->plan;
	p->buffers[p->count] = (struct clv_conversion_buffer){role, tensor, expert};
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

/* One of a kind for all experts. Returns the first; the others follow it. */
static size_t all_born(struct schedule *s, enum clv_conversion_role role)
{
	const struct clv_conversion *c = s->conversion;
	size_t first = s->plan->count;
	for (uint32_t k = 0; k < c->tensor_count; k++) {
		const struct clv_conversion_tensor *t = &c->tensors[k];
		born(s, c->experts * (role == CLV_ROLE_SOURCE ? t->source : t->destination), role, k, 0);
	}
	return first;
}

static void all_die(struct schedule *s, size_t first)
{
	for (uint32_t k = 0; k < s->conversion->tensor_count; k++)
		dies(s, first + k);
}

/* An expert's tensor, converted into a buffer of its own, which is returned and lives on. */
static size_t convert(struct schedule *s, uint32_t k, uint32_t expert)
{
	const struct clv_conversion_tensor *t = &s->conversion->tensors[k];
	size_t gathered = t->gathered ? born(s, t->gathered, CLV_ROLE_GATHERED, k, expert) : SIZE_MAX;
	size_t converted = born(s, t->destination, CLV_ROLE_CONVERTED, k, expert);
	if (gathered != SIZE_MAX)
		dies(s, gathered);
	return converted;
}

/* All experts, each tensor to be copied to where it will stay before the next is begun. What needs no copy on the way is
 * written there at once, unless it lies over its own source. */
static void convert_each(struct schedule *s, bool in_place)
{
	const struct clv_conversion *c = s->conversion;
	for (uint32_t e = 0; e < c->experts; e++)
		for (uint32_t k = 0; k < c->tensor_count; k++)
			if (in_place || c->tensors[k].gathered)
				dies(s, convert(s, k, e));
}

static void by_lists(struct schedule *s, size_t *list)
{
	const struct clv_conversion *c = s->conversion;
	for (uint32_t e = 0; e < c->experts; e++)
		for (uint32_t k = 0; k < c->tensor_count; k++)
			list[(size_t)k * c->experts + e] = convert(s, k, e);
	for (uint32_t k = 0; k < c->tensor_count; k++) {
		born(s, c->experts * c->tensors[k].destination, CLV_ROLE_DESTINATION, k, 0);
		for (uint32_t e = 0; e < c->experts; e++)
			dies(s, list[(size_t)k * c->experts + e]);
	}
}

/* Destinations live beyond the schedule. */
static void end(struct schedule *s)
{
	for (size_t i = 0; i < s->plan->count; i++)
		if (s->plan->buffers[i].role == CLV_ROLE_DESTINATION)
			dies(s, i);
}

static void make_schedule(struct schedule *s, enum clv_strategy strategy, size_t *list)
{
	size_t sources = all_born(s, CLV_ROLE_SOURCE);
	if (strategy == CLV_STRATEGY_PING_PONG)
		all_born(s, CLV_ROLE_DESTINATION);
	if (s->conversion->scratch)
		dies(s, born(s, s->conversion->scratch, CLV_ROLE_SCRATCH, 0, 0));
	if (strategy == CLV_STRATEGY_PREALLOCATED)
		all_born(s, CLV_ROLE_DESTINATION);
	if (strategy == CLV_STRATEGY_LISTS)
		by_lists(s, list);
	else
		convert_each(s, strategy == CLV_STRATEGY_IN_PLACE);
	all_die(s, sources);
	end(s);
}

bool clv_conversion_plan(const struct clv_conversion *c, enum clv_strategy strategy, struct clv_conversion_plan *plan,
			 struct clv_error *err)
{
	*plan = (struct clv_conversion_plan){0};
	if (!check(c, strategy, err))
		return false;
	size_t pieces = (size_t)c->experts * c->tensor_count, most = 2 * pieces + 2 * (size_t)c->tensor_count + 1;
	size_t *list = malloc(pieces * sizeof(*list));
	plan->buffers = malloc(most * sizeof(*plan->buffers));
	plan->lives = malloc(most * sizeof(*plan->lives));
	plan->offsets = malloc(most * sizeof(*plan->offsets));
	bool ok = list && plan->buffers && plan->lives && plan->offsets;
	if (ok) {
		const cleave_pack_settings settings = {.effort = EFFORT};
		char why[256];
		make_schedule(&(struct schedule){.conversion = c, .plan = plan}, strategy, list);
		for (uint32_t k = 0; k < c->tensor_count; k++)
			plan->sources += plan->lives[k].size;
		int ret = cleave_pack(plan->lives, plan->count, &settings, plan->offsets, &plan->packed, why, sizeof(why));
		ok = ret == 0;
		if (ret == -EINVAL)
			clv_error_set(err, "the schedule of a layer: %s", why);
	}
	free(list);
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
