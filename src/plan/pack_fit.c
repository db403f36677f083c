/* SPDX-License-Identifier: MIT */
#include "pack_fit.h"
#include "pack_floor.h"

#include <stdlib.h>

bool clv_pack_fit_make(struct clv_pack_fit *f, const struct clv_pack_problem *problem)
{
	*f = (struct clv_pack_fit){.problem = problem};
	f->near = malloc(((size_t)problem->count + 1) * sizeof(*f->near));
	f->taken = malloc(((size_t)problem->count + 1) * sizeof(*f->taken));
	if (f->near && f->taken && clv_pack_tree_make(&f->placed, problem->items, problem->count))
		return true;
	clv_pack_fit_free(f);
	return false;
}

void clv_pack_fit_free(struct clv_pack_fit *f)
{
	free(f->near);
	free(f->taken);
	clv_pack_tree_free(&f->placed);
	*f = (struct clv_pack_fit){0};
}

static int by_from(const void *va, const void *vb)
{
	const struct clv_pack_taken *a = va, *b = vb;
	return a->from < b->from ? -1 : a->from > b->from;
}

static uint64_t align_up(uint64_t v, uint64_t align)
{
	return (v + align - 1) / align * align; /* any align, not only powers of two */
}

static bool live_together(const struct clv_pack_problem *p, const struct clv_pack_item *a, const struct clv_pack_item *b)
{
	if (a->range_count == 1 && b->range_count == 1)
		return true; /* their hulls overlap */
	return clv_pack_items_share_section(p, a, b);
}

static uint64_t lowest_place(struct clv_pack_fit *f, const struct clv_pack_item *item, const uint64_t *offset,
			     struct clv_pack_clock *clock)
{
	const struct clv_pack_problem *p = f->problem;
	uint32_t near = clv_pack_tree_overlaps(&f->placed, item->lo, item->hi, f->near), taken = 0;
	for (uint32_t i = 0; i < near; i++) {
		const struct clv_pack_item *other = &p->items[f->near[i]];
		if (live_together(p, item, other))
			f->taken[taken++] =
				(struct clv_pack_taken){offset[f->near[i]], offset[f->near[i]] + other->size};
	}
	qsort(f->taken, taken, sizeof(*f->taken), by_from);
	clv_pack_clock_step(clock, 8 * (uint64_t)near + 20);
	uint64_t at = 0;
	for (uint32_t i = 0; i < taken; i++) {
		if (f->taken[i].from >= at + item->size)
			break;
		at = clv_max_u64(at, align_up(f->taken[i].to, item->align));
	}
	return at;
}

static void put(struct clv_pack_fit *f, uint32_t i, uint64_t at, uint64_t *offset, uint64_t *height)
{
	offset[i] = at;
	*height = clv_max_u64(*height, at + f->problem->items[i].size);
	clv_pack_tree_set(&f->placed, i, true);
}

uint64_t clv_pack_fit_run(struct clv_pack_fit *f, const uint32_t *order, uint64_t *offset, struct clv_pack_clock *clock)
{
	const struct clv_pack_problem *p = f->problem;
	uint64_t height = 0;
	clv_pack_tree_fill(&f->placed, false);
	for (uint32_t i = 0; i < p->count; i++)
		if (p->items[i].fixed != CLEAVE_PACK_ANYWHERE)
			put(f, i, p->items[i].fixed, offset, &height);
	for (uint32_t k = 0; k < p->count; k++) {
		const struct clv_pack_item *item = &p->items[order[k]];
		if (item->fixed != CLEAVE_PACK_ANYWHERE)
			continue;
		if (clv_pack_clock_over(clock))
			return UINT64_MAX;
		put(f, order[k], lowest_place(f, item, offset, clock), offset, &height);
	}
	return height;
}

static void stack_on(struct clv_pack_floor *floor, const struct clv_pack_problem *p, uint32_t i, uint64_t at,
		     uint64_t *offset, uint64_t *height)
{
	const struct clv_pack_item *item = &p->items[i];
	const struct clv_pack_range *r = clv_pack_ranges(p, item);
	offset[i] = at;
	*height = clv_max_u64(*height, at + item->size);
	for (uint32_t k = 0; k < item->range_count; k++)
		clv_pack_floor_assign(floor, r[k].lo, r[k].hi, at + item->size);
}

uint64_t clv_pack_stack(const struct clv_pack_problem *p, const uint32_t *order, uint64_t *offset)
{
	struct clv_pack_floor floor;
	uint64_t height = 0;
	if (!clv_pack_floor_make(&floor, p->sections))
		return UINT64_MAX;
	for (uint32_t i = 0; i < p->fixed_count; i++) {
		uint32_t at = p->fixed_items[i];
		stack_on(&floor, p, at, p->items[at].fixed, offset, &height);
	}
	for (uint32_t k = 0; k < p->count; k++) {
		const struct clv_pack_item *item = &p->items[order[k]];
		const struct clv_pack_range *r = clv_pack_ranges(p, item);
		uint64_t at = 0;
		if (item->fixed != CLEAVE_PACK_ANYWHERE)
			continue;
		for (uint32_t q = 0; q < item->range_count; q++)
			at = clv_max_u64(at, clv_pack_floor_max(&floor, r[q].lo, r[q].hi));
		stack_on(&floor, p, order[k], align_up(at, item->align), offset, &height);
	}
	clv_pack_floor_free(&floor);
	return height;
}
