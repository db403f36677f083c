/* SPDX-License-Identifier: MIT */
#include "pack_fit.h"
#include "pack_floor.h"

#include <stdlib.h>
#include <string.h>

/* To find a neighbour by the tree and to put it in order costs about this much more than to pass over one item. */
#define TREE_COST 200

/* The sum over items of those before them that overlap their hull. */
static double count_pairs(const struct clv_pack_problem *p, uint32_t *first)
{
	double pairs = 0;
	uint32_t item = 0;
	for (uint32_t s = 0; s <= p->sections; s++) {
		while (item < p->count && p->items[item].lo < s)
			item++;
		first[s] = item;
	}
	for (uint32_t i = 0; i < p->count; i++)
		pairs += first[p->items[i].hi] - i - 1; /* items that begin later, within its hull */
	return pairs;
}

bool clv_pack_fit_make(struct clv_pack_fit *f, const struct clv_pack_problem *problem)
{
	size_t n = problem->count;
	*f = (struct clv_pack_fit){.problem = problem};
	uint32_t *first = malloc(((size_t)problem->sections + 1) * sizeof(*first));
	f->laid = malloc((n + 1) * sizeof(*f->laid));
	f->done = malloc(n + 1);
	bool ok = first && f->laid && f->done;
	if (ok) {
		f->by_tree = TREE_COST * count_pairs(problem, first) < (double)n * (double)n / 2;
		f->near = f->by_tree ? malloc((n + 1) * sizeof(*f->near)) : NULL;
		ok = !f->by_tree || (f->near && clv_pack_tree_make(&f->placed, problem->items, problem->count));
	}
	free(first);
	if (!ok)
		clv_pack_fit_free(f);
	return ok;
}

void clv_pack_fit_free(struct clv_pack_fit *f)
{
	free(f->near);
	free(f->laid);
	free(f->done);
	clv_pack_tree_free(&f->placed);
	*f = (struct clv_pack_fit){0};
}

static uint64_t align_up(uint64_t v, uint64_t align)
{
	return align == 1 ? v : (v + align - 1) / align * align; /* any align, not only powers of two */
}

static int by_from(const void *va, const void *vb)
{
	const struct clv_pack_laid *a = va, *b = vb;
	return a->from < b->from ? -1 : a->from > b->from;
}

static bool live_together(const struct clv_pack_problem *p, const struct clv_pack_item *a, const struct clv_pack_item *b)
{
	if (a->range_count == 1 && b->range_count == 1)
		return true; /* their hulls overlap */
	return clv_pack_items_share_section(p, a, b);
}

/* The lowest place for an item among those laid, which are in order. */
static uint64_t lowest_hole(struct clv_pack_fit *f, const struct clv_pack_item *item, struct clv_pack_clock *clock)
{
	const struct clv_pack_problem *p = f->problem;
	uint64_t at = 0;
	uint32_t i;
	for (i = 0; i < f->laid_count; i++) {
		const struct clv_pack_laid *l = &f->laid[i];
		if (l->hi <= item->lo || item->hi <= l->lo || l->to <= at)
			continue;
		if (!live_together(p, item, &p->items[l->item]))
			continue;
		if (l->from >= at + item->size)
			break;
		at = align_up(l->to, item->align);
	}
	clv_pack_clock_step(clock, 20 + i / 8);
	return at;
}

static void lay_neighbours(struct clv_pack_fit *f, const struct clv_pack_item *item, const uint64_t *offset,
			   struct clv_pack_clock *clock)
{
	f->laid_count = clv_pack_tree_overlaps(&f->placed, item->lo, item->hi, f->near);
	for (uint32_t k = 0; k < f->laid_count; k++) {
		uint32_t i = f->near[k];
		const struct clv_pack_item *other = &f->problem->items[i];
		f->laid[k] = (struct clv_pack_laid){offset[i], offset[i] + other->size, other->lo, other->hi, i};
	}
	qsort(f->laid, f->laid_count, sizeof(*f->laid), by_from);
	clv_pack_clock_step(clock, 5 * (uint64_t)f->laid_count);
}

void clv_pack_fit_put(struct clv_pack_fit *f, uint32_t i, uint64_t at, uint64_t *offset)
{
	const struct clv_pack_item *item = &f->problem->items[i];
	offset[i] = at;
	f->done[i] = true;
	f->height = clv_max_u64(f->height, at + item->size);
	if (f->by_tree) {
		clv_pack_tree_set(&f->placed, i, true);
		return;
	}
	uint32_t begin = 0, end = f->laid_count;
	while (begin < end) {
		uint32_t mid = begin + (end - begin) / 2;
		if (f->laid[mid].from < at)
			begin = mid + 1;
		else
			end = mid;
	}
	memmove(f->laid + begin + 1, f->laid + begin, (f->laid_count - begin) * sizeof(*f->laid));
	f->laid[begin] = (struct clv_pack_laid){at, at + item->size, item->lo, item->hi, i};
	f->laid_count++;
}

void clv_pack_fit_begin(struct clv_pack_fit *f, uint64_t *offset)
{
	const struct clv_pack_problem *p = f->problem;
	if (f->by_tree)
		clv_pack_tree_fill(&f->placed, false);
	memset(f->done, 0, p->count);
	f->laid_count = 0;
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
	return align_up(at, item->align);
}

/* Those not done yet, above all that is. */
static uint64_t stack_rest(struct clv_pack_fit *f, const uint32_t *order, uint32_t count, uint64_t *offset)
{
	const struct clv_pack_problem *p = f->problem;
	struct clv_pack_floor floor;
	uint32_t laid = 0;
	if (!clv_pack_floor_make(&floor, p->sections))
		return UINT64_MAX;
	for (uint32_t i = 0; i < p->count; i++)
		if (f->done[i])
			f->laid[laid++] = (struct clv_pack_laid){offset[i], offset[i] + p->items[i].size, 0, 0, i};
	qsort(f->laid, laid, sizeof(*f->laid), by_from);
	/* What is live together does not overlap, so that the one that begins higher also ends higher. */
	for (uint32_t k = 0; k < laid; k++)
		stack_on(&floor, p, f->laid[k].item, f->laid[k].from, offset, &f->height);
	for (uint32_t k = 0; k < count; k++)
		if (!f->done[order[k]])
			stack_on(&floor, p, order[k], floor_below(&floor, p, order[k]), offset, &f->height);
	clv_pack_floor_free(&floor);
	return f->height;
}

uint64_t clv_pack_fit_run(struct clv_pack_fit *f, const uint32_t *order, uint32_t count, uint64_t *offset,
			  struct clv_pack_clock *clock)
{
	const struct clv_pack_problem *p = f->problem;
	for (uint32_t k = 0; k < count; k++) {
		const struct clv_pack_item *item = &p->items[order[k]];
		if (f->done[order[k]])
			continue;
		if (clv_pack_clock_over(clock))
			return stack_rest(f, order + k, count - k, offset);
		if (f->by_tree)
			lay_neighbours(f, item, offset, clock);
		clv_pack_fit_put(f, order[k], lowest_hole(f, item, clock), offset);
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
