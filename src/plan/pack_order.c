/* SPDX-License-Identifier: MIT */
#include "pack_order.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 60 }; /* of changes to an order, before another is taken */

struct valued {
	int64_t value;
	uint32_t item;
};

static int by_value(const void *va, const void *vb)
{
	const struct valued *a = va, *b = vb;
	if (a->value != b->value)
		return a->value > b->value ? -1 : 1;
	return a->item < b->item ? -1 : a->item > b->item;
}

static bool sort(const struct clv_pack_problem *p, const int64_t *value, uint32_t *order)
{
	struct valued *valued = malloc(((size_t)p->count + 1) * sizeof(*valued));
	if (!valued)
		return false;
	for (uint32_t i = 0; i < p->count; i++)
		valued[i] = (struct valued){value[i], i};
	qsort(valued, p->count, sizeof(*valued), by_value);
	for (uint32_t i = 0; i < p->count; i++)
		order[i] = valued[i].item;
	free(valued);
	return true;
}

bool clv_pack_order_by(const struct clv_pack_problem *p, enum clv_pack_by by, uint32_t *order)
{
	int64_t *value = malloc(((size_t)p->count + 1) * sizeof(*value));
	if (!value)
		return false;
	for (uint32_t i = 0; i < p->count; i++) {
		const struct clv_pack_item *item = &p->items[i];
		struct clv_pack_traits traits = clv_pack_traits_of(p, item);
		value[i] = by == CLV_PACK_BY_SIZE   ? (int64_t)item->size
			   : by == CLV_PACK_BY_AREA ? traits.size + traits.life
			   : by == CLV_PACK_BY_LIFE ? traits.life
						    : (int64_t)traits.load * 65536 + traits.size;
	}
	bool ok = sort(p, value, order);
	free(value);
	return ok;
}

bool clv_pack_orders_make(struct clv_pack_orders *o, const struct clv_pack_problem *p, struct clv_pack_fit *fit,
			  uint64_t seed)
{
	size_t room = (size_t)p->count + 1;
	*o = (struct clv_pack_orders){.problem = p, .fit = fit, .rng.state = seed, .tries = TRIES};
	o->traits = malloc(room * sizeof(*o->traits));
	o->value = malloc(room * sizeof(*o->value));
	o->order = malloc(room * sizeof(*o->order));
	o->best = malloc(room * sizeof(*o->best));
	if (!o->traits || !o->value || !o->order || !o->best) {
		clv_pack_orders_free(o);
		return false;
	}
	for (uint32_t i = 0; i < p->count; i++)
		o->traits[i] = clv_pack_traits_of(p, &p->items[i]);
	return true;
}

void clv_pack_orders_free(struct clv_pack_orders *o)
{
	free(o->traits);
	free(o->value);
	free(o->order);
	free(o->best);
	*o = (struct clv_pack_orders){0};
}

static void move_up(uint32_t *order, uint32_t from, uint32_t to)
{
	uint32_t item = order[from];
	memmove(order + to + 1, order + to, (from - to) * sizeof(*order));
	order[to] = item;
}

/* The turn of one of the items that end highest. */
static uint32_t find_top(struct clv_pack_orders *o, const uint64_t *offset)
{
	const struct clv_pack_item *items = o->problem->items;
	uint64_t most = 0;
	uint32_t top = 0, ties = 0;
	for (uint32_t k = 0; k < o->problem->count; k++) {
		uint64_t end = offset[o->order[k]] + items[o->order[k]].size;
		if (end < most)
			continue;
		ties = end > most ? 1 : ties + 1;
		most = end;
		if (clv_rng_below(&o->rng, ties) == 0)
			top = k;
	}
	return top;
}

/* Moves the item that ended highest to an earlier turn, and now and then another one. */
static void change(struct clv_pack_orders *o)
{
	uint32_t n = o->problem->count;
	if (o->top)
		move_up(o->order, o->top, (uint32_t)clv_rng_below(&o->rng, o->top));
	while (n > 1 && clv_rng_below(&o->rng, 2)) {
		uint32_t from = (uint32_t)clv_rng_range(&o->rng, 1, n - 1);
		move_up(o->order, from, (uint32_t)clv_rng_below(&o->rng, from));
	}
}

uint64_t clv_pack_orders_run(struct clv_pack_orders *o, struct clv_pack_clock *clock, uint64_t *offset)
{
	uint32_t n = o->problem->count;
	bool anew = o->tries >= TRIES;
	if (anew) {
		struct clv_pack_taste taste = clv_pack_taste_for(o->attempt++, &o->rng);
		for (uint32_t i = 0; i < n; i++)
			o->value[i] = clv_pack_taste_value(&taste, &o->traits[i], &o->rng);
		if (!sort(o->problem, o->value, o->order))
			return UINT64_MAX;
		o->tries = 0;
	} else {
		change(o);
	}
	clv_pack_fit_begin(o->fit, offset);
	uint64_t height = clv_pack_fit_run(o->fit, o->order, n, offset, clock);
	if (height == UINT64_MAX)
		return height;
	o->tries = anew || height < o->best_height ? 0 : o->tries + 1;
	if (anew || height <= o->best_height) {
		o->best_height = height;
		o->top = find_top(o, offset);
		memcpy(o->best, o->order, n * sizeof(*o->best));
	} else {
		memcpy(o->order, o->best, n * sizeof(*o->best));
	}
	return height;
}
