/* SPDX-License-Identifier: MIT */
#include "pack_small.h"

#include <string.h>

struct small {
	const struct clv_pack_problem *p;
	uint32_t together[CLV_PACK_SMALL]; /* a bit for each item that is live with it */
	uint32_t put;                      /* a bit for each */
	uint64_t at[CLV_PACK_SMALL];
	uint64_t best, enough;
	uint64_t steps_end;
	struct clv_pack_clock *clock;
	uint64_t *offset;
};

static uint64_t end_of(const struct small *s, uint32_t i)
{
	return s->at[i] + s->p->items[i].size;
}

static uint64_t lowest_place(const struct small *s, uint32_t i)
{
	const struct clv_pack_item *item = &s->p->items[i];
	uint32_t others = s->put & s->together[i];
	uint64_t at = 0;
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t rest = others; rest; rest &= rest - 1) {
			uint32_t k = (uint32_t)__builtin_ctz(rest);
			if (s->at[k] >= at + item->size || end_of(s, k) <= at)
				continue;
			at = clv_pack_align(item, end_of(s, k));
			moved = true;
		}
	}
	return at;
}

static bool same(const struct clv_pack_problem *p, uint32_t a, uint32_t b)
{
	const struct clv_pack_item *x = &p->items[a], *y = &p->items[b];
	return x->lo == y->lo && x->hi == y->hi && x->size == y->size && x->align == y->align && x->range_count == 1 &&
	       y->range_count == 1;
}

/* A former item of the same kind that is not put: it goes first. */
static bool has_twin_before(const struct small *s, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (!(s->put >> k & 1) && same(s->p, k, i))
			return true;
	return false;
}

/* At most CLV_PACK_SMALL deep. False: out of steps. */
static bool put_rest(struct small *s, uint64_t lowest, uint64_t height)
{
	if (clv_pack_clock_step(s->clock, 5 + s->p->count) || s->clock->steps >= s->steps_end)
		return false;
	if (s->put == (uint32_t)(((uint64_t)1 << s->p->count) - 1)) {
		s->best = height;
		memcpy(s->offset, s->at, s->p->count * sizeof(*s->at));
		return true;
	}
	uint64_t place[CLV_PACK_SMALL];
	for (uint32_t i = 0; i < s->p->count; i++) {
		place[i] = s->put >> i & 1 ? 0 : lowest_place(s, i);
		if (!(s->put >> i & 1) && place[i] + s->p->items[i].size >= s->best)
			return true; /* places only rise */
	}
	for (uint32_t i = 0; i < s->p->count && s->best > s->enough; i++) {
		uint64_t end = place[i] + s->p->items[i].size;
		if (s->put >> i & 1 || place[i] < lowest || end >= s->best || has_twin_before(s, i))
			continue;
		s->at[i] = place[i];
		s->put |= (uint32_t)1 << i;
		bool done = put_rest(s, place[i], clv_max_u64(height, end));
		s->put &= ~((uint32_t)1 << i);
		if (!done)
			return false;
	}
	return true;
}

bool clv_pack_small_run(const struct clv_pack_problem *p, uint64_t height, uint64_t steps, struct clv_pack_clock *clock,
			uint64_t *offset, uint64_t *found)
{
	struct small s = {.p = p,
			  .best = height,
			  .enough = p->bound,
			  .clock = clock,
			  .steps_end = clv_pack_clock_in(clock, steps),
			  .offset = offset};
	uint64_t from = 0;
	for (uint32_t i = 0; i < p->count; i++) {
		for (uint32_t k = 0; k < p->count; k++)
			if (k != i && clv_pack_items_share_section(p, &p->items[i], &p->items[k]))
				s.together[i] |= (uint32_t)1 << k;
		if (p->items[i].fixed == CLEAVE_PACK_ANYWHERE)
			continue;
		s.at[i] = p->items[i].fixed;
		s.put |= (uint32_t)1 << i;
		from = clv_max_u64(from, end_of(&s, i));
	}
	bool done = from >= height || put_rest(&s, 0, from);
	*found = s.best;
	return done;
}
