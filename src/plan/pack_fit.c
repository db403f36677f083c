/* SPDX-License-Identifier: MIT */
#include "pack_fit.h"
#include "pack_floor.h"

#include <stdlib.h>
#include <string.h>

bool clv_pack_fit_make(struct clv_pack_fit *f, const struct clv_pack_problem *problem)
{
	*f = (struct clv_pack_fit){.problem = problem};
	f->done = malloc((size_t)problem->count + 1);
	if (f->done && clv_pack_shelf_make(&f->placed, problem))
		return true;
	clv_pack_fit_free(f);
	return false;
}

void clv_pack_fit_free(struct clv_pack_fit *f)
{
	free(f->done);
	clv_pack_shelf_free(&f->placed);
	*f = (struct clv_pack_fit){0};
}

void clv_pack_fit_put(struct clv_pack_fit *f, uint32_t i, uint64_t at, uint64_t *offset)
{
	offset[i] = at;
	f->done[i] = true;
	f->height = clv_max_u64(f->height, at + f->problem->items[i].size);
	clv_pack_shelf_add(&f->placed, i, at);
}

void clv_pack_fit_begin(struct clv_pack_fit *f, uint64_t *offset)
{
	const struct clv_pack_problem *p = f->problem;
	clv_pack_shelf_clear(&f->placed);
	memset(f->done, 0, p->count);
	f->height = 0;
	for (uint32_t k = 0; k < p->fixed_count; k++)
		clv_pack_fit_put(f, p->fixed_items[k], p->items[p->fixed_items[k]].fixed, offset);
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

static uint64_t floor_below(const struct clv_pack_floor *floor, const struct clv_pack_problem *p, uint32_t i)
{
	const struct clv_pack_item *item = &p->items[i];
	const struct clv_pack_range *r = clv_pack_ranges(p, item);
	uint64_t at = 0;
	for (uint32_t k = 0; k < item->range_count; k++)
		at = clv_max_u64(at, clv_pack_floor_max(floor, r[k].lo, r[k].hi));
	return clv_pack_align(item, at);
}

struct end {
	uint64_t at;
	uint32_t item;
};

static int by_end(const void *va, const void *vb)
{
	const struct end *a = va, *b = vb;
	return a->at < b->at ? -1 : a->at > b->at;
}

/* Those not done yet, above all that is. */
static uint64_t stack_rest(struct clv_pack_fit *f, const uint32_t *order, uint32_t count, uint64_t *offset)
{
	const struct clv_pack_problem *p = f->problem;
	struct clv_pack_floor floor;
	struct end *ends = malloc(((size_t)p->count + 1) * sizeof(*ends));
	uint32_t done = 0;
	if (!ends || !clv_pack_floor_make(&floor, p->sections)) {
		free(ends);
		return UINT64_MAX;
	}
	for (uint32_t i = 0; i < p->count; i++)
		if (f->done[i])
			ends[done++] = (struct end){offset[i] + p->items[i].size, i};
	qsort(ends, done, sizeof(*ends), by_end);
	for (uint32_t k = 0; k < done; k++)
		stack_on(&floor, p, ends[k].item, offset[ends[k].item], offset, &f->height);
	for (uint32_t k = 0; k < count; k++)
		if (!f->done[order[k]])
			stack_on(&floor, p, order[k], floor_below(&floor, p, order[k]), offset, &f->height);
	clv_pack_floor_free(&floor);
	free(ends);
	return f->height;
}

uint64_t clv_pack_fit_run(struct clv_pack_fit *f, const uint32_t *order, uint32_t count, uint64_t *offset,
			  struct clv_pack_clock *clock)
{
	for (uint32_t k = 0; k < count; k++) {
		uint64_t work = 0;
		if (f->done[order[k]])
			continue;
		if (clv_pack_clock_over(clock))
			return stack_rest(f, order + k, count - k, offset);
		clv_pack_fit_put(f, order[k], clv_pack_shelf_lowest(&f->placed, order[k], &work), offset);
		clv_pack_clock_step(clock, 20 + work / 4);
	}
	return f->height;
}

uint64_t clv_pack_stack(const struct clv_pack_problem *p, const uint32_t *order, uint64_t *offset)
{
	struct clv_pack_floor floor;
	uint64_t height = 0;
	if (!clv_pack_floor_make(&floor, p->sections))
		return UINT64_MAX;
	for (uint32_t i = 0; i < p->fixed_count; i++)
		stack_on(&floor, p, p->fixed_items[i], p->items[p->fixed_items[i]].fixed, offset, &height);
	for (uint32_t k = 0; k < p->count; k++)
		if (p->items[order[k]].fixed == CLEAVE_PACK_ANYWHERE)
			stack_on(&floor, p, order[k], floor_below(&floor, p, order[k]), offset, &height);
	clv_pack_floor_free(&floor);
	return height;
}
