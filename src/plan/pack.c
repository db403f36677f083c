/* SPDX-License-Identifier: MIT
 *
 * cleave_pack(): what is tried, in which order, and for how long.
 *
 * A problem falls into parts that share no section; each is packed by itself. Stacks are the first answer. Then the part that
 * is highest has a turn, as it alone decides the height, until it is as low as another one must be, or as the capacity. First
 * it is packed one by one, by size. Then small parts are searched (pack_search), at their bound and below what was found, and
 * large ones packed by grades (pack_grade) and orders (pack_order), with ever more steps. What a search shows to be impossible
 * raises the bound. Parts that are not plain are solved if they are small (pack_small), and otherwise packed by orders.
 */
#include <cleave/plan.h>

#include "pack_clock.h"
#include "pack_fit.h"
#include "pack_grade.h"
#include "pack_order.h"
#include "pack_search.h"
#include "pack_small.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EFFORT_DEFAULT 1000000000
#define MANY 1000 /* items of a part from which on a search alone is not enough */

/* Steps of a part's first turn, for each item, and at most. */
#define TURN_FIRST 20000
#define TURN_FIRST_MAX 4000000

/* Steps for each item of a search at a height that may do: several attempts. */
#define TRY 2000

/* Items that are packed by themselves. Offsets are in units of its problem, heights in its grains. */
struct part {
	const struct clv_pack_problem *problem; /* the whole or `own` */
	struct clv_pack_problem own;            /* whose items have their index in the whole as `buffer` */
	uint64_t grain;                         /* in grains of the whole */
	uint64_t *offset; /* of the best packing, which has `height` */
	uint64_t height;
	uint64_t bound;   /* no packing is lower */
	uint64_t stride;  /* below `height`, to where a lower one is searched for next */
	uint64_t steps;   /* of its next turn */
	double stack_seconds; /* that a stack took, as other things do that pass once over all items */
	uint32_t turns;
	/* what goes on from turn to turn */
	bool searched;
	struct clv_pack_fit fit;
	struct clv_pack_search *search; /* if `searched` */
	struct clv_pack_grade upper;    /* if it is plain: grades that are packed, */
	struct clv_pack_grade lower;    /* and that are shown to need as much as there is */
	struct clv_pack_orders orders;
};

struct pack {
	const struct clv_pack_problem *whole;
	struct clv_pack_clock clock;
	struct part *parts;
	uint32_t part_count;
	uint64_t low;    /* lower than this the whole cannot be or need not be, in its grains */
	uint64_t seed;
	uint64_t *trial; /* offsets of a packing that may become a part's best */
	uint32_t *order;
};

/* Parts. */

/* Heights of parts beside each other. */
static uint64_t in_whole(const struct part *part, uint64_t height)
{
	return height * part->grain;
}

static bool is_low(const struct pack *k, const struct part *part)
{
	return part->height <= part->bound || in_whole(part, part->height) <= k->low;
}

static void keep_trial(struct pack *k, struct part *part)
{
	const struct clv_pack_problem *p = part->problem;
	uint64_t height = 0;
	for (uint32_t i = 0; i < p->count; i++)
		height = clv_max_u64(height, clv_pack_end(p, &p->items[i], k->trial[i]));
	if (height >= part->height)
		return;
	part->height = height;
	memcpy(part->offset, k->trial, p->count * sizeof(*part->offset));
}

static void raise_bound(struct pack *k, struct part *part, uint64_t bound)
{
	part->bound = clv_max_u64(part->bound, bound);
	k->low = clv_max_u64(k->low, in_whole(part, part->bound));
}

/* `count` items of the whole from `first` on, which share no section with others. */
static bool make_part(struct pack *k, struct part *part, uint32_t first, uint32_t count)
{
	*part = (struct part){.problem = k->whole, .grain = 1, .height = UINT64_MAX};
	if (count < k->whole->count) {
		for (uint32_t i = 0; i < count; i++)
			k->order[i] = first + i;
		if (!clv_pack_problem_subset(&part->own, k->whole, k->order, count))
			return false;
		part->problem = &part->own;
		part->grain = part->own.grain;
	}
	raise_bound(k, part, part->problem->bound);
	part->steps = clv_min_u64((uint64_t)TURN_FIRST * count, TURN_FIRST_MAX);
	part->offset = calloc((size_t)count + 1, sizeof(*part->offset));
	return part->offset != NULL;
}

/* The item behind the part that begins with `first`: the next that shares no section with those before it. */
static uint32_t part_end(const struct clv_pack_problem *p, uint32_t first)
{
	uint32_t item = first, hi = p->items[first].hi;
	for (; item < p->count && p->items[item].lo < hi; item++)
		hi = p->items[item].hi > hi ? p->items[item].hi : hi;
	return item;
}

static bool make_parts(struct pack *k)
{
	const struct clv_pack_problem *p = k->whole;
	size_t parts = 0;
	for (uint32_t first = 0; first < p->count; first = part_end(p, first))
		parts++;
	k->parts = calloc(parts + 1, sizeof(*k->parts));
	if (!k->parts)
		return false;
	for (uint32_t first = 0, next; first < p->count; first = next) {
		next = part_end(p, first);
		if (!make_part(k, &k->parts[k->part_count++], first, next - first))
			return false;
	}
	return true;
}

static uint64_t seed_of(const struct pack *k, const struct part *part)
{
	return clv_mix64(k->seed ^ clv_mix64((uint64_t)(part - k->parts) + 1));
}

/* What the first turn needs, and what the later ones need. */
static bool make_tools(struct pack *k, struct part *part)
{
	part->searched = clv_pack_search_suits(part->problem, part->problem->count);
	if (part->searched)
		part->search = clv_pack_search_new(part->problem, seed_of(k, part));
	return clv_pack_fit_make(&part->fit, part->problem) && (!part->searched || part->search);
}

static bool make_more_tools(struct pack *k, struct part *part)
{
	const struct clv_pack_problem *p = part->problem;
	uint64_t seed = seed_of(k, part);
	if (!part->fit.problem && !make_tools(k, part)) /* the first turn had no time for it */
		return false;
	return clv_pack_orders_make(&part->orders, p, &part->fit, seed) &&
	       (!p->plain || (clv_pack_grade_make(&part->upper, p, seed) && clv_pack_grade_make(&part->lower, p, seed)));
}

static void free_tools(struct part *part)
{
	clv_pack_search_free(part->search);
	part->search = NULL;
	clv_pack_grade_free(&part->upper);
	clv_pack_grade_free(&part->lower);
	clv_pack_orders_free(&part->orders);
	clv_pack_fit_free(&part->fit);
}

static void free_pack(struct pack *k)
{
	for (uint32_t i = 0; i < k->part_count; i++) {
		free_tools(&k->parts[i]);
		clv_pack_problem_free(&k->parts[i].own);
		free(k->parts[i].offset);
	}
	free(k->parts);
	free(k->trial);
	free(k->order);
}

/* Packings. Functions return false when host memory is out. */

static bool stack(struct pack *k, struct part *part, enum clv_pack_by by)
{
	double begin = clv_pack_now();
	if (!clv_pack_order_by(part->problem, by, k->order) ||
	    clv_pack_stack(part->problem, k->order, k->trial) == UINT64_MAX)
		return false;
	keep_trial(k, part);
	k->clock.steps += 10 * (uint64_t)part->problem->count;
	clv_pack_clock_look(&k->clock);
	part->stack_seconds = clv_pack_now() - begin;
	return true;
}

static enum clv_pack_answer search_at(struct pack *k, struct part *part, uint64_t target, uint64_t steps)
{
	enum clv_pack_answer answer = clv_pack_search_run(part->search, target, steps, &k->clock, k->trial);
	if (answer == CLV_PACK_FOUND)
		keep_trial(k, part);
	if (answer == CLV_PACK_NONE)
		raise_bound(k, part, target + 1);
	return answer;
}

/* Other stacks, where there is no time for more. */
static bool more_stacks(struct pack *k, struct part *part)
{
	for (enum clv_pack_by by = CLV_PACK_BY_SIZE + 1; by < CLV_PACK_ORDERS && part->height > part->bound; by++) {
		if (clv_pack_clock_short(&k->clock, part->stack_seconds))
			break;
		if (!stack(k, part, by))
			return false;
	}
	return true;
}

static bool first_turn(struct pack *k, struct part *part)
{
	if (clv_pack_clock_short(&k->clock, 3 * part->stack_seconds))
		return more_stacks(k, part);
	if (!make_tools(k, part) || !clv_pack_order_by(part->problem, CLV_PACK_BY_SIZE, k->order))
		return false;
	/* what there is no time for is stacked on top, which takes its own time */
	double end = k->clock.end;
	k->clock.end = end > 0 ? end - part->stack_seconds : 0;
	clv_pack_fit_begin(&part->fit, k->trial);
	bool ok = clv_pack_fit_run(&part->fit, k->order, part->problem->count, k->trial, &k->clock) != UINT64_MAX;
	k->clock.end = end;
	if (!ok)
		return false;
	keep_trial(k, part);
	if (part->searched && !is_low(k, part) && !clv_pack_clock_look(&k->clock))
		search_at(k, part, part->height - 1, 0); /* what an attempt finds where nothing is in its way */
	part->stride = (part->height - part->bound) / 8;
	return true;
}

static uint64_t lowest_target(const struct pack *k, const struct part *part)
{
	return clv_max_u64(part->bound, k->low / part->grain);
}

/* Half of the steps at the lowest height that would do. The others below the height there is, by a stride that grows when it
 * is made and shrinks when it is not. */
static void search_turn(struct pack *k, struct part *part, uint64_t steps)
{
	uint64_t end = clv_pack_clock_in(&k->clock, steps);
	uint64_t share = clv_max_u64(steps / 32, (uint64_t)TRY * part->problem->count);
	search_at(k, part, lowest_target(k, part), steps / 2);
	while (!is_low(k, part) && k->clock.steps < end && !clv_pack_clock_over(&k->clock)) {
		uint64_t room = part->height - lowest_target(k, part); /* > 0 */
		part->stride = clv_min_u64(clv_max_u64(part->stride, 1), room);
		switch (search_at(k, part, part->height - part->stride, share)) {
		case CLV_PACK_FOUND:
			part->stride *= 2;
			break;
		case CLV_PACK_NONE:
			part->stride = (part->height - part->bound) / 2;
			break;
		case CLV_PACK_UNDECIDED:
			part->stride /= 2;
			break;
		}
	}
}

static bool grade_turn(struct pack *k, struct part *part, uint64_t steps)
{
	bool packed;
	if (!clv_pack_grade_fit(&part->upper, &part->fit, steps, &k->clock, k->trial, &packed))
		return false;
	if (packed)
		keep_trial(k, part);
	return true;
}

/* In turn: that nothing is lower than what was found, and that nothing is in the lower half of what is open. */
static bool disprove_turn(struct pack *k, struct part *part, uint64_t steps)
{
	uint64_t target = part->turns % 2 ? part->height - 1 : part->bound + (part->height - part->bound) / 2;
	bool none;
	if (part->problem->grains > 1 || is_low(k, part))
		return true;
	if (!clv_pack_grade_disprove(&part->lower, target, steps, &k->clock, &none))
		return false;
	if (none)
		raise_bound(k, part, target + 1);
	return true;
}

static void small_turn(struct pack *k, struct part *part, uint64_t steps)
{
	uint64_t found;
	bool all = clv_pack_small_run(part->problem, part->height, steps, &k->clock, k->trial, &found);
	if (found < part->height)
		keep_trial(k, part);
	if (all)
		raise_bound(k, part, part->height);
}

static bool orders_turn(struct pack *k, struct part *part, uint64_t steps)
{
	uint64_t end = clv_pack_clock_in(&k->clock, steps);
	while (!is_low(k, part) && k->clock.steps < end && !clv_pack_clock_over(&k->clock)) {
		if (clv_pack_orders_run(&part->orders, &k->clock, k->trial) == UINT64_MAX)
			return false;
		keep_trial(k, part);
	}
	return true;
}

static bool later_turn(struct pack *k, struct part *part, uint64_t steps)
{
	if (!part->problem->plain) {
		if (part->problem->count <= CLV_PACK_SMALL)
			small_turn(k, part, steps);
		return orders_turn(k, part, steps / 2);
	}
	bool many = !part->searched || part->problem->count >= MANY;
	if (part->searched)
		search_turn(k, part, steps);
	return (!many || is_low(k, part) || grade_turn(k, part, steps / 2)) && disprove_turn(k, part, steps / 4) &&
	       orders_turn(k, part, many ? steps / 2 : steps / 8);
}

static bool take_turn(struct pack *k, struct part *part)
{
	if (!part->turns++)
		return first_turn(k, part);
	if (part->turns == 2 && !make_more_tools(k, part))
		return false;
	uint64_t steps = part->steps;
	part->steps += steps / 2;
	return later_turn(k, part, steps);
}

static struct part *highest_part(const struct pack *k)
{
	struct part *highest = NULL;
	for (uint32_t i = 0; i < k->part_count; i++)
		if (!highest || in_whole(&k->parts[i], k->parts[i].height) > in_whole(highest, highest->height))
			highest = &k->parts[i];
	return highest;
}

static bool pack_all(struct pack *k)
{
	for (uint32_t i = 0; i < k->part_count; i++)
		if (!stack(k, &k->parts[i], CLV_PACK_BY_SIZE))
			return false;
	/* At first heights are those of stacks, which say little: what is to be seen is what a fit makes of them. */
	while (!clv_pack_clock_over(&k->clock)) {
		struct part *part = highest_part(k);
		if (!part || (part->turns ? is_low(k, part) : part->height <= part->bound))
			break;
		if (part->turns && clv_pack_clock_short(&k->clock, 2 * part->stack_seconds)) {
			k->clock.timed_out = true; /* not even to prepare a turn is there time */
			break;
		}
		if (!take_turn(k, part))
			return false;
		if (is_low(k, part))
			free_tools(part);
	}
	return true;
}

/* The caller's side. */

static void put_offsets(const struct pack *k, const cleave_pack_buffer *buffers, size_t count, uint64_t *offsets)
{
	for (size_t i = 0; i < count; i++)
		offsets[i] = buffers[i].offset == CLEAVE_PACK_ANYWHERE ? 0 : buffers[i].offset;
	for (uint32_t i = 0; i < k->part_count; i++) {
		const struct part *part = &k->parts[i];
		for (uint32_t j = 0; j < part->problem->count; j++) {
			uint32_t at = part->problem->items[j].buffer;
			uint32_t buffer = part->problem == k->whole ? at : k->whole->items[at].buffer;
			offsets[buffer] = part->offset[j] * part->problem->unit * (part->problem == k->whole ? 1 : k->whole->unit);
		}
	}
}

static void put_result(const struct pack *k, const cleave_pack_buffer *buffers, const uint64_t *offsets, uint64_t capacity,
		       cleave_pack_result *result)
{
	const struct clv_pack_problem *p = k->whole;
	*result = (cleave_pack_result){.lower_bound = p->bound * p->grain, .steps = k->clock.steps};
	for (uint32_t i = 0; i < p->count; i++) {
		uint32_t b = p->items[i].buffer;
		result->height = clv_max_u64(result->height, offsets[b] + buffers[b].size);
	}
	for (uint32_t i = 0; i < k->part_count; i++)
		result->lower_bound = clv_max_u64(result->lower_bound,
						  in_whole(&k->parts[i], k->parts[i].bound) * p->grain);
	result->optimal = result->height == result->lower_bound;
	result->fits = !capacity || result->height <= capacity;
	result->timed_out = k->clock.timed_out;
	result->seconds = clv_pack_now() - k->clock.begin;
}

/* What follows the search takes some time for each buffer, at most a quarter of the limit. */
static double time_to_finish(size_t count, double limit)
{
	double most = 1e-6 * (double)count;
	return most < limit / 4 ? most : limit / 4;
}

static void start_clock(struct clv_pack_clock *clock, const cleave_pack_settings *settings, size_t count)
{
	*clock = (struct clv_pack_clock){.begin = clv_pack_now(), .steps_end = EFFORT_DEFAULT};
	if (settings && settings->effort)
		clock->steps_end = settings->effort;
	if (settings && settings->time_limit_s > 0)
		clock->end = clock->begin + settings->time_limit_s - time_to_finish(count, settings->time_limit_s);
}

int cleave_pack(const cleave_pack_buffer *buffers, size_t count, const cleave_pack_settings *settings, uint64_t *offsets,
		cleave_pack_result *result, char *why, size_t why_len)
{
	struct clv_pack_problem whole;
	struct clv_error err = {0};
	struct pack k = {.whole = &whole, .seed = settings ? settings->seed : 0};
	uint64_t capacity = settings ? settings->capacity : 0;
	start_clock(&k.clock, settings, count);
	if (!clv_pack_problem_make(&whole, buffers, count, &err)) {
		if (!err.text[0])
			return -ENOSPC;
		if (why && why_len)
			snprintf(why, why_len, "%s", err.text);
		return -EINVAL;
	}
	k.low = clv_max_u64(capacity / whole.grain, whole.bound);
	k.trial = malloc(((size_t)whole.count + 1) * sizeof(*k.trial));
	k.order = malloc(((size_t)whole.count + 1) * sizeof(*k.order));
	bool ok = k.trial && k.order && make_parts(&k) && pack_all(&k);
	if (ok) {
		put_offsets(&k, buffers, count, offsets);
		put_result(&k, buffers, offsets, capacity, result);
	}
	free_pack(&k);
	clv_pack_problem_free(&whole);
	return ok ? 0 : -ENOSPC;
}
