/* SPDX-License-Identifier: MIT
 *
 * cleave_pack(): what is tried, in which order, and for how long.
 *
 * A problem falls into parts that share no section; each is packed by itself. A packing that is quickly made (stacks,
 * one by one by size) is the first answer. Parts that are higher than need be then take turns with ever more steps: small
 * ones are searched (pack_search), at the bound and below what was found; large ones by grades (pack_grade) and orders
 * (pack_order). What a search shows to be impossible raises the bound. Parts that are not plain are solved if they are small
 * (pack_small), and otherwise packed by orders.
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
#define TURN_FIRST 4000000 /* steps of a part in its first turn */
#define MANY 1000          /* items of a part from which on a search alone is not enough */
#define STEPS_AN_ITEM 2000 /* of a search at a height that may do: several attempts */

/* Items that are packed by themselves. Offsets and heights are in units of its problem. */
struct part {
	const struct clv_pack_problem *problem; /* the whole or `own` */
	struct clv_pack_problem own;            /* whose items have their index in the whole as `buffer` */
	uint64_t unit;                          /* in units of the whole */
	uint64_t *offset; /* of the best packing, which has `height` */
	uint64_t height;
	uint64_t bound;   /* no packing is lower */
	uint64_t stride;  /* below `height`, to where a lower one is searched for next */
	/* what goes on from turn to turn, made when it is needed */
	bool has_tools, searched;
	struct clv_pack_fit fit;
	struct clv_pack_search *search; /* if `searched` */
	struct clv_pack_grade grade;    /* if it is plain */
	struct clv_pack_orders orders;
};

struct pack {
	const struct clv_pack_problem *whole;
	struct clv_pack_clock clock;
	struct part *parts;
	uint32_t part_count;
	uint64_t low;    /* lower than this the whole cannot be or need not be, in its units */
	uint64_t seed;
	uint64_t *trial; /* offsets of a packing that may become a part's best */
	uint32_t *order;
};

/* Parts. */

static bool part_is_low(const struct pack *k, const struct part *part)
{
	return part->height <= part->bound || part->height * part->unit <= k->low;
}

static void keep_trial(struct pack *k, struct part *part, uint64_t height)
{
	if (height >= part->height)
		return;
	part->height = height;
	memcpy(part->offset, k->trial, part->problem->count * sizeof(*part->offset));
}

static void raise_bound(struct pack *k, struct part *part, uint64_t bound)
{
	part->bound = clv_max_u64(part->bound, bound);
	k->low = clv_max_u64(k->low, part->bound * part->unit);
}

/* Items first to last of the whole, which share no section with others. */
static bool make_part(struct pack *k, struct part *part, uint32_t first, uint32_t count)
{
	*part = (struct part){.problem = k->whole, .unit = 1, .height = UINT64_MAX};
	if (count < k->whole->count) {
		for (uint32_t i = 0; i < count; i++)
			k->order[i] = first + i;
		if (!clv_pack_problem_subset(&part->own, k->whole, k->order, count))
			return false;
		part->problem = &part->own;
		part->unit = part->own.unit;
	}
	raise_bound(k, part, part->problem->plain ? part->problem->load_max : part->problem->lower_bound);
	part->offset = calloc((size_t)count + 1, sizeof(*part->offset));
	return part->offset != NULL;
}

static bool make_parts(struct pack *k)
{
	const struct clv_pack_problem *p = k->whole;
	uint32_t parts = 0;
	for (int pass = 0; pass < 2; pass++) {
		uint32_t first = 0, end = 0;
		if (pass) {
			k->parts = calloc((size_t)parts + 1, sizeof(*k->parts));
			if (!k->parts)
				return false;
		}
		parts = 0;
		for (uint32_t i = 0; i < p->count; i++) {
			if (i == first || p->items[i].lo < end) {
				end = p->items[i].hi > end ? p->items[i].hi : end;
				continue;
			}
			if (pass && !make_part(k, &k->parts[k->part_count++], first, i - first))
				return false;
			parts++;
			first = i;
			end = p->items[i].hi;
		}
		if (first < p->count && pass && !make_part(k, &k->parts[k->part_count++], first, p->count - first))
			return false;
		parts += first < p->count;
	}
	return true;
}

static bool make_tools(struct pack *k, struct part *part)
{
	const struct clv_pack_problem *p = part->problem;
	uint64_t seed = clv_mix64(k->seed ^ clv_mix64((uint64_t)(part - k->parts) + 1));
	if (part->has_tools)
		return true;
	part->has_tools = true;
	part->searched = clv_pack_search_suits(p, p->count);
	if (!clv_pack_fit_make(&part->fit, p))
		return false;
	if (part->searched)
		part->search = clv_pack_search_new(p, seed);
	return clv_pack_orders_make(&part->orders, p, &part->fit, seed) && (!part->searched || part->search) &&
	       (!p->plain || clv_pack_grade_make(&part->grade, p, &part->fit, seed));
}

static void free_tools(struct part *part)
{
	clv_pack_search_free(part->search);
	part->search = NULL;
	clv_pack_grade_free(&part->grade);
	clv_pack_orders_free(&part->orders);
	clv_pack_fit_free(&part->fit);
	part->has_tools = false;
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

static uint64_t trial_height(const struct pack *k, const struct part *part)
{
	uint64_t height = 0;
	for (uint32_t i = 0; i < part->problem->count; i++)
		height = clv_max_u64(height, k->trial[i] + part->problem->items[i].size);
	return height;
}

static enum clv_pack_answer search_at(struct pack *k, struct part *part, uint64_t target, uint64_t steps)
{
	enum clv_pack_answer answer = clv_pack_search_run(part->search, target, steps, &k->clock, k->trial);
	if (answer == CLV_PACK_FOUND)
		keep_trial(k, part, trial_height(k, part));
	if (answer == CLV_PACK_NONE)
		raise_bound(k, part, target + 1);
	return answer;
}

static bool first_packings(struct pack *k, struct part *part)
{
	for (enum clv_pack_by by = 0; by < CLV_PACK_ORDERS && part->height > part->bound; by++) {
		if (by && clv_pack_clock_step(&k->clock, 10 * (uint64_t)part->problem->count))
			return true;
		if (!clv_pack_order_by(part->problem, by, k->order))
			return false;
		uint64_t height = clv_pack_stack(part->problem, k->order, k->trial);
		if (height == UINT64_MAX)
			return false;
		keep_trial(k, part, height);
	}
	if (part->height <= part->bound || clv_pack_clock_over(&k->clock))
		return true;
	if (!make_tools(k, part) || !clv_pack_order_by(part->problem, CLV_PACK_BY_SIZE, k->order))
		return false;
	clv_pack_fit_begin(&part->fit, k->trial);
	uint64_t height = clv_pack_fit_run(&part->fit, k->order, part->problem->count, k->trial, &k->clock);
	if (height == UINT64_MAX)
		return false;
	keep_trial(k, part, height);
	if (part->searched && !part_is_low(k, part))
		search_at(k, part, part->height - 1, 0); /* what an attempt finds where nothing is in its way */
	part->stride = (part->height - part->bound) / 8;
	return true;
}

static uint64_t lowest_target(const struct pack *k, const struct part *part)
{
	return clv_max_u64(part->bound, k->low / part->unit);
}

/* Half of the steps at the lowest height that would do. The others below the height there is, by a stride that grows when it
 * is made and shrinks when it is not. */
static void search_turn(struct pack *k, struct part *part, uint64_t steps)
{
	uint64_t end = clv_pack_clock_in(&k->clock, steps);
	uint64_t share = clv_max_u64(steps / 32, (uint64_t)STEPS_AN_ITEM * part->problem->count);
	search_at(k, part, lowest_target(k, part), steps / 2);
	while (!part_is_low(k, part) && k->clock.steps < end && !clv_pack_clock_over(&k->clock)) {
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
	bool no_memory;
	uint64_t height = clv_pack_grade_run(&part->grade, steps, &k->clock, k->trial, &no_memory);
	keep_trial(k, part, height);
	return !no_memory;
}

static void small_turn(struct pack *k, struct part *part, uint64_t steps)
{
	uint64_t height;
	bool all = clv_pack_small_run(part->problem, part->height, steps, &k->clock, k->trial, &height);
	keep_trial(k, part, height);
	if (all)
		raise_bound(k, part, part->height);
}

static bool orders_turn(struct pack *k, struct part *part, uint64_t steps)
{
	uint64_t end = clv_pack_clock_in(&k->clock, steps);
	while (!part_is_low(k, part) && k->clock.steps < end && !clv_pack_clock_over(&k->clock)) {
		uint64_t height = clv_pack_orders_run(&part->orders, &k->clock, k->trial);
		if (height == UINT64_MAX)
			return false;
		keep_trial(k, part, height);
	}
	return true;
}

static bool take_turn(struct pack *k, struct part *part, uint64_t steps)
{
	if (!make_tools(k, part))
		return false;
	if (part->searched)
		search_turn(k, part, steps);
	if (part->searched && part->problem->count < MANY)
		return true;
	if (part->problem->plain && !grade_turn(k, part, steps / 2))
		return false;
	if (!part->problem->plain && part->problem->count <= CLV_PACK_SMALL)
		small_turn(k, part, steps / 2);
	return orders_turn(k, part, steps / 2);
}

static bool all_are_low(const struct pack *k)
{
	for (uint32_t i = 0; i < k->part_count; i++)
		if (!part_is_low(k, &k->parts[i]))
			return false;
	return true;
}

static bool pack_all(struct pack *k)
{
	for (uint32_t i = 0; i < k->part_count; i++)
		if (!first_packings(k, &k->parts[i]))
			return false;
	for (uint64_t steps = TURN_FIRST; !all_are_low(k) && !clv_pack_clock_over(&k->clock); steps += steps / 2)
		for (uint32_t i = 0; i < k->part_count; i++) {
			struct part *part = &k->parts[i];
			if (part_is_low(k, part))
				free_tools(part);
			else if (!take_turn(k, part, steps))
				return false;
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
			offsets[buffer] = part->offset[j] * part->unit * k->whole->unit;
		}
	}
}

static void put_result(const struct pack *k, const cleave_pack_buffer *buffers, const uint64_t *offsets, uint64_t capacity,
		       cleave_pack_result *result)
{
	const struct clv_pack_problem *p = k->whole;
	*result = (cleave_pack_result){.lower_bound = p->lower_bound, .steps = k->clock.steps};
	for (uint32_t i = 0; i < p->count; i++) {
		uint32_t b = p->items[i].buffer;
		result->height = clv_max_u64(result->height, offsets[b] + buffers[b].size);
	}
	for (uint32_t i = 0; i < k->part_count; i++) {
		const struct part *part = &k->parts[i];
		uint64_t bound = part->bound * part->unit * p->unit, padding = p->padding + part->own.padding;
		if (bound > padding) /* the topmost item need not have what it was rounded up by */
			result->lower_bound = clv_max_u64(result->lower_bound, bound - padding);
	}
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
	k.low = capacity / whole.unit;
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
