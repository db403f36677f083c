/* SPDX-License-Identifier: MIT */
#include "address_map_internal.h"

#include "../memory.h"

#include <stdlib.h>
#include <string.h>

/* Areas are told apart by exponent and the upper bits of the mantissa of a float, whose bits grow with the number. */
#define GRADE_SHIFT 18
#define GRADES ((size_t)1 << (32 - GRADE_SHIFT - 1))
#define WANTED_GRADE GRADES

/* `limit` of the best: those of a grade above `above` are taken, and the first `rest` of that grade. */
struct choice {
	size_t above;
	uint64_t rest;
};

static size_t grade_of(const struct clv_address_item *item)
{
	if (item->wanted)
		return WANTED_GRADE;
	float area = (float)item->size * (float)(item->gone - item->born);
	uint32_t bits;
	memcpy(&bits, &area, sizeof(bits));
	return bits >> GRADE_SHIFT;
}

static struct choice choose(const uint64_t *graded, uint64_t limit)
{
	struct choice c = {WANTED_GRADE + 1, limit};
	while (c.above > 0) {
		c.above--;
		if (graded[c.above] > c.rest)
			return c;
		c.rest -= graded[c.above];
	}
	return c;
}

static bool taken(struct choice *c, const struct clv_address_item *item)
{
	size_t grade = grade_of(item);
	if (grade == c->above && c->rest) {
		c->rest--;
		return true;
	}
	return grade > c->above;
}

/* Along one axis a thing covers part of its first cell, all of those between, and part of its last. As steps from cell to cell
 * that is at most four numbers; in the plane, where the parts are multiplied, sixteen, however large it is. */
struct steps {
	uint32_t at[4];
	double by[4];
	unsigned count;
};

static void step(struct steps *s, uint32_t at, double by)
{
	s->at[s->count] = at;
	s->by[s->count++] = by;
}

/* [from, to) in cells, of which there are `cells` */
static struct steps steps_of(double from, double to, uint32_t cells)
{
	struct steps s = {.count = 0};
	uint32_t first = from < cells - 1 ? (uint32_t)from : cells - 1;
	uint32_t last = to < cells - 1 ? (uint32_t)to : cells - 1;
	if (first == last) {
		step(&s, first, to - from);
		step(&s, first + 1, from - to);
		return s;
	}
	double part_first = first + 1 - from, part_last = to - last;
	step(&s, first, part_first);
	step(&s, first + 1, 1 - part_first);
	step(&s, last, part_last - 1);
	step(&s, last + 1, -part_last);
	return s;
}

/* A cell more each way than there are tiles, for the last steps. */
static void cover(const struct clv_address_map *map, double *grid, const struct clv_address_rect *r)
{
	double columns = map->columns / (double)map->width, rows = map->rows / (double)map->height;
	struct steps x = steps_of(r->born * columns, r->gone * columns, map->columns);
	struct steps y = steps_of((double)r->y * rows, (double)(r->y + r->size) * rows, map->rows);
	for (unsigned i = 0; i < x.count; i++)
		for (unsigned k = 0; k < y.count; k++)
			grid[(size_t)x.at[i] * (map->rows + 1) + y.at[k]] += x.by[i] * y.by[k];
}

/* Adds the steps up, in both directions. What covers hardly anything is still shown. */
static void level(const struct clv_address_map *map, double *grid, uint8_t *tiles)
{
	size_t pitch = map->rows + 1;
	for (uint32_t c = 0; c < map->columns; c++) {
		double sum = 0, *column = grid + c * pitch;
		for (uint32_t r = 0; r < map->rows; r++) {
			double *cell = column + r;
			if (c)
				*cell += cell[-(ptrdiff_t)pitch];
			sum += *cell;
			double share = sum * 255 + 0.5;
			tiles[(size_t)c * map->rows + r] = (uint8_t)(share >= 255 ? 255
								     : share >= 1 ? share
								     : sum > 1e-6 ? 1
										  : 0);
		}
	}
}

/* Where the item is in the picture; false: nowhere. */
static bool place(const struct clv_address_map *map, const struct clv_address_item *item, struct clv_address_rect *r)
{
	uint64_t end;
	if (__builtin_add_overflow(item->addr, item->size, &end))
		end = UINT64_MAX;
	uint64_t y = clv_address_place(map, item->addr);
	*r = (struct clv_address_rect){.y = y,
				       .size = clv_address_place(map, end) - y,
				       .born = item->born,
				       .freed = item->freed,
				       .gone = item->gone,
				       .of = item->of};
	return r->size > 0;
}

static int by_born(const void *a, const void *b)
{
	const struct clv_address_rect *x = a, *y = b;
	if (x->born != y->born)
		return x->born < y->born ? -1 : 1;
	return x->y < y->y ? -1 : x->y > y->y;
}

static bool spread(const struct clv_address_map *map, const struct clv_address_source *source, struct choice choice,
		   struct clv_address_layer *layer)
{
	double *grid = NULL;
	struct clv_address_item item;
	struct clv_address_rect rect;
	if (layer->tiles) {
		grid = clv_mem_zalloc((size_t)(map->columns + 1) * (map->rows + 1), sizeof(*grid));
		if (!grid)
			return false;
	}
	for (uint64_t i = 0; i < source->count; i++) {
		if (!source->get(source, i, &item))
			continue;
		bool take = taken(&choice, &item);
		if (!place(map, &item, &rect))
			continue;
		if (take)
			layer->rects[layer->count++] = rect;
		else
			cover(map, grid, &rect);
	}
	if (grid)
		level(map, grid, layer->tiles);
	clv_mem_free(grid);
	if (layer->count)
		qsort(layer->rects, layer->count, sizeof(*layer->rects), by_born);
	return true;
}

bool clv_address_fill_layer(const struct clv_address_map *map, const struct clv_address_source *source, uint32_t limit,
			    struct clv_address_layer *layer)
{
	uint64_t *graded = clv_mem_zalloc(WANTED_GRADE + 1, sizeof(*graded));
	struct clv_address_item item;
	if (!graded)
		return false;
	for (uint64_t i = 0; i < source->count; i++)
		if (source->get(source, i, &item)) {
			graded[grade_of(&item)]++;
			layer->total++;
		}
	struct choice choice = choose(graded, limit);
	clv_mem_free(graded);
	layer->rects = clv_mem_alloc(clv_min_u64(layer->total, limit) * sizeof(*layer->rects));
	if (!layer->rects)
		return false;
	if (layer->total > limit) {
		layer->tiles = clv_mem_zalloc((size_t)map->columns * map->rows, 1);
		if (!layer->tiles)
			return false;
	}
	return spread(map, source, choice, layer);
}
