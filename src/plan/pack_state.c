/* SPDX-License-Identifier: MIT */
#include "pack_state.h"

#include <inttypes.h>
#include <stdlib.h>

struct clv_pack_change {
	enum { FLOOR, BASE, PLACED } what;
	uint32_t at;
	uint64_t before;
};

uint64_t clv_pack_state_cells(const struct clv_pack_problem *p)
{
	uint64_t cells = 0;
	for (uint32_t i = 0; i < p->count; i++)
		cells += p->items[i].hi - p->items[i].lo;
	return cells;
}

#define ARRAY(field, n) ((s->field = calloc((size_t)(n) + 1, sizeof(*s->field))) != NULL)

static bool make_arrays(struct clv_pack_state *s, size_t cells)
{
	size_t n = s->count, w = s->width;
	s->trail_room = 4 * (n + w);
	s->trail_max = 256 * (n + w) + ((size_t)1 << 18);
	return ARRAY(items, n) && ARRAY(at, n) && ARRAY(sections, w) && ARRAY(base, w) && ARRAY(rem, w) &&
	       ARRAY(waiting, cells) && ARRAY(where, cells) && ARRAY(trail, s->trail_room) && ARRAY(dirty, w) &&
	       (s->grains == 1 || ARRAY(padding, n));
}

static void count_sections(struct clv_pack_state *s)
{
	size_t cells = 0;
	uint32_t item = 0;
	for (uint32_t i = 0; i < s->count; i++) {
		struct clv_pack_piece *b = &s->items[i];
		b->cells = cells;
		cells += b->hi - b->lo;
		for (uint32_t t = b->lo; t < b->hi; t++) {
			s->sections[t].count++;
			s->sections[t].crossed += t != b->lo;
			s->rem[t] += b->size;
		}
	}
	cells = 0;
	for (uint32_t t = 0; t <= s->width; t++) {
		s->sections[t].cells = cells;
		cells += s->sections[t].count;
		while (item < s->count && s->items[item].lo < t)
			item++;
		s->sections[t].first = item;
	}
}

static void fill_cells(struct clv_pack_state *s)
{
	for (uint32_t t = 0; t < s->width; t++)
		s->sections[t].count = 0;
	for (uint32_t i = 0; i < s->count; i++) {
		const struct clv_pack_piece *b = &s->items[i];
		for (uint32_t t = b->lo; t < b->hi; t++) {
			struct clv_pack_section *at = &s->sections[t];
			s->where[b->cells + (t - b->lo)] = at->count;
			s->waiting[at->cells + at->count++] = i;
		}
	}
}

bool clv_pack_state_make(struct clv_pack_state *s, const struct clv_pack_problem *p)
{
	*s = (struct clv_pack_state){.count = p->count, .width = p->sections, .grains = p->grains};
	if (!make_arrays(s, (size_t)clv_pack_state_cells(p))) {
		clv_pack_state_free(s);
		return false;
	}
	for (uint32_t i = 0; i < s->count; i++) {
		const struct clv_pack_item *from = &p->items[i];
		s->items[i] = (struct clv_pack_piece){.lo = from->lo, .hi = from->hi, .size = from->size};
		if (s->padding)
			s->padding[i] = from->padding;
	}
	count_sections(s);
	fill_cells(s);
	return true;
}

void clv_pack_state_free(struct clv_pack_state *s)
{
	free(s->items);
	free(s->at);
	free(s->sections);
	free(s->base);
	free(s->rem);
	free(s->waiting);
	free(s->where);
	free(s->trail);
	free(s->dirty);
	free(s->padding);
	*s = (struct clv_pack_state){0};
}

/* Changes and their undoing. */

bool clv_pack_state_reserve(struct clv_pack_state *s)
{
	size_t need = s->trail_count + s->count + s->width + 1; /* each floor and each base once */
	if (need <= s->trail_room)
		return true;
	if (need > s->trail_max)
		return false;
	size_t room = need + need / 2;
	struct clv_pack_change *grown = realloc(s->trail, room * sizeof(*grown));
	if (!grown)
		return false;
	s->trail = grown;
	s->trail_room = room;
	return true;
}

static void note(struct clv_pack_state *s, int what, uint32_t at, uint64_t before)
{
	s->trail[s->trail_count++] = (struct clv_pack_change){what, at, before};
}

static void take_out(struct clv_pack_state *s, uint32_t item)
{
	struct clv_pack_piece *b = &s->items[item];
	b->placed = true;
	for (uint32_t t = b->lo; t < b->hi; t++) {
		struct clv_pack_section *at = &s->sections[t];
		uint32_t *waiting = s->waiting + at->cells, *where = s->where + b->cells + (t - b->lo);
		uint32_t last = waiting[--at->count];
		waiting[*where] = last;
		s->where[s->items[last].cells + (t - s->items[last].lo)] = *where;
		waiting[at->count] = item;
		*where = at->count;
		at->crossed -= t != b->lo;
		at->over -= b->over;
		s->rem[t] -= b->size;
	}
}

/* The last that was taken out and is not back yet: it is the first behind those that wait. */
static void put_back(struct clv_pack_state *s, uint32_t item)
{
	struct clv_pack_piece *b = &s->items[item];
	b->placed = false;
	for (uint32_t t = b->lo; t < b->hi; t++) {
		s->sections[t].count++;
		s->sections[t].crossed += t != b->lo;
		s->sections[t].over += b->over;
		s->rem[t] += b->size;
	}
}

void clv_pack_state_undo(struct clv_pack_state *s, size_t to)
{
	while (s->trail_count > to) {
		const struct clv_pack_change *c = &s->trail[--s->trail_count];
		switch (c->what) {
		case FLOOR:
			s->items[c->at].floor = c->before;
			break;
		case BASE:
			s->base[c->at] = c->before;
			break;
		case PLACED:
			put_back(s, c->at);
			break;
		}
	}
}

/* An item at limit - size + 1 is within a height that is not a whole unit if its padding makes up for the rest. */
static void find_over(struct clv_pack_state *s, uint64_t missing)
{
	for (uint32_t t = 0; t < s->width; t++)
		s->sections[t].over = 0;
	for (uint32_t i = 0; i < s->count; i++) {
		struct clv_pack_piece *b = &s->items[i];
		b->over = s->padding[i] >= missing;
		for (uint32_t t = b->lo; b->over && t < b->hi; t++)
			s->sections[t].over++;
	}
}

void clv_pack_state_begin(struct clv_pack_state *s, uint64_t height)
{
	clv_pack_state_undo(s, 0);
	s->limit = height / s->grains;
	if (s->padding)
		find_over(s, s->grains - height % s->grains);
}

/* Floors and bases. */

static void make_dirty(struct clv_pack_state *s, uint32_t t)
{
	if (s->sections[t].dirty)
		return;
	s->sections[t].dirty = true;
	s->dirty[s->dirty_count++] = t;
}

static void raise_floor(struct clv_pack_state *s, uint32_t item, uint64_t height)
{
	struct clv_pack_piece *b = &s->items[item];
	if (b->placed || b->floor >= height)
		return;
	note(s, FLOOR, item, b->floor);
	for (uint32_t t = b->lo; t < b->hi; t++)
		if (s->base[t] == b->floor)
			make_dirty(s, t);
	b->floor = height;
	s->work += 1 + (b->hi - b->lo) / 16;
}

/* Of all items that wait in any of lo <= t < hi. */
static void raise_floors(struct clv_pack_state *s, uint32_t lo, uint32_t hi, uint64_t height)
{
	const struct clv_pack_section *first = &s->sections[lo];
	for (uint32_t i = 0; i < first->count; i++)
		raise_floor(s, s->waiting[first->cells + i], height);
	for (uint32_t i = s->sections[lo + 1].first; i < s->sections[hi].first; i++)
		raise_floor(s, i, height);
	s->work += first->count + s->sections[hi].first - s->sections[lo + 1].first;
}

static uint64_t least_floor(struct clv_pack_state *s, uint32_t t)
{
	const struct clv_pack_section *at = &s->sections[t];
	const uint32_t *waiting = s->waiting + at->cells;
	uint64_t least = CLV_PACK_NEVER;
	uint32_t i = 0;
	for (; i < at->count && least > s->base[t]; i++)
		least = clv_min_u64(least, s->items[waiting[i]].floor);
	s->work += i;
	return least;
}

/* Brings bases up to what the floors say. False: one is above what the limit allows. */
static bool settle(struct clv_pack_state *s)
{
	bool possible = true;
	for (uint32_t i = 0; i < s->dirty_count; i++) {
		uint32_t t = s->dirty[i];
		s->sections[t].dirty = false;
		if (!possible || !s->sections[t].count)
			continue;
		uint64_t least = least_floor(s, t);
		if (least == s->base[t])
			continue;
		note(s, BASE, t, s->base[t]);
		s->base[t] = least;
		possible = least + s->rem[t] <= clv_pack_state_limit(s, t);
	}
	s->dirty_count = 0;
	return possible;
}

bool clv_pack_state_place(struct clv_pack_state *s, uint32_t item)
{
	const struct clv_pack_piece *b = &s->items[item];
	uint64_t height = b->floor;
	s->work += (b->hi - b->lo) / 2;
	/* what is quickly seen, first: it leaves too little in its own sections */
	if (height + b->size > s->limit + b->over)
		return false;
	for (uint32_t t = b->lo; t < b->hi; t++)
		if (height + s->rem[t] > clv_pack_state_limit(s, t))
			return false;
	note(s, PLACED, item, 0);
	take_out(s, item);
	s->at[item] = height;
	for (uint32_t t = b->lo; t < b->hi; t++)
		if (s->base[t] == height)
			make_dirty(s, t);
	raise_floors(s, b->lo, b->hi, height + b->size);
	return settle(s);
}

bool clv_pack_state_lift(struct clv_pack_state *s, uint32_t t, uint64_t height)
{
	if (height + s->rem[t] > clv_pack_state_limit(s, t))
		return false;
	raise_floors(s, t, t + 1, height);
	return settle(s);
}

void clv_pack_state_hull(struct clv_pack_state *s, uint32_t t, uint32_t *lo, uint32_t *hi)
{
	const struct clv_pack_section *at = &s->sections[t];
	*lo = t;
	*hi = t + 1;
	for (uint32_t i = 0; i < at->count; i++) {
		const struct clv_pack_piece *b = &s->items[s->waiting[at->cells + i]];
		*lo = b->lo < *lo ? b->lo : *lo;
		*hi = b->hi > *hi ? b->hi : *hi;
	}
	s->work += at->count;
}

/* Where an item that does not wait in t ends at the earliest. */
static uint64_t end_beside(const struct clv_pack_state *s, uint32_t item, uint32_t t)
{
	const struct clv_pack_piece *b = &s->items[item];
	return b->placed || (b->lo <= t && t < b->hi) ? CLV_PACK_NEVER : b->floor + b->size;
}

uint64_t clv_pack_state_next(struct clv_pack_state *s, uint32_t t)
{
	const struct clv_pack_section *at = &s->sections[t];
	uint64_t next = CLV_PACK_NEVER;
	uint32_t lo, hi;
	for (uint32_t i = 0; i < at->count; i++) {
		uint64_t floor = s->items[s->waiting[at->cells + i]].floor;
		if (floor > s->base[t])
			next = clv_min_u64(next, floor);
	}
	clv_pack_state_hull(s, t, &lo, &hi);
	const struct clv_pack_section *first = &s->sections[lo];
	for (uint32_t i = 0; i < first->count; i++)
		next = clv_min_u64(next, end_beside(s, s->waiting[first->cells + i], t));
	for (uint32_t i = s->sections[lo + 1].first; i < s->sections[hi].first; i++)
		next = clv_min_u64(next, end_beside(s, i, t));
	s->work += at->count + first->count + s->sections[hi].first - s->sections[lo + 1].first;
	return next;
}

/* Checks. */

static bool check_section(const struct clv_pack_state *s, uint32_t t, struct clv_error *err)
{
	uint64_t rem = 0, least = CLV_PACK_NEVER;
	uint32_t count = 0, crossed = 0, over = 0;
	for (uint32_t i = 0; i < s->count; i++) {
		const struct clv_pack_piece *b = &s->items[i];
		if (b->placed || t < b->lo || t >= b->hi)
			continue;
		uint32_t where = s->where[b->cells + (t - b->lo)];
		if (where >= s->sections[t].count || s->waiting[s->sections[t].cells + where] != i)
			return clv_error_set(err, "section %" PRIu32 ": item %" PRIu32 " waits, and is not listed", t, i);
		rem += b->size;
		least = clv_min_u64(least, b->floor);
		count++;
		crossed += t > b->lo;
		over += b->over;
	}
	if (rem != s->rem[t] || count != s->sections[t].count || crossed != s->sections[t].crossed ||
	    over != s->sections[t].over)
		return clv_error_set(err, "section %" PRIu32 ": its counts are wrong", t);
	if (count && (s->base[t] != least || least + rem > s->limit + (over > 0)))
		return clv_error_set(err, "section %" PRIu32 ": base %" PRIu64 ", least floor %" PRIu64 ", %" PRIu64
				     " wait, limit %" PRIu64, t, s->base[t], least, rem, s->limit);
	return true;
}

static bool check_item(const struct clv_pack_state *s, uint32_t i, struct clv_error *err)
{
	const struct clv_pack_piece *b = &s->items[i];
	uint64_t most = 0;
	for (uint32_t t = b->lo; t < b->hi; t++)
		most = clv_max_u64(most, s->base[t]);
	if (!b->placed && b->floor != most)
		return clv_error_set(err, "item %" PRIu32 ": floor %" PRIu64 ", highest base %" PRIu64, i, b->floor, most);
	if (b->placed && s->at[i] + b->size > s->limit + b->over)
		return clv_error_set(err, "item %" PRIu32 " ends above the limit", i);
	for (uint32_t k = 0; k < s->count; k++) {
		const struct clv_pack_piece *o = &s->items[k];
		if (k == i || !o->placed || o->hi <= b->lo || b->hi <= o->lo)
			continue;
		if (b->placed ? s->at[i] < s->at[k] + o->size && s->at[k] < s->at[i] + b->size
			      : b->floor < s->at[k] + o->size)
			return clv_error_set(err, "item %" PRIu32 " is in the way of item %" PRIu32, k, i);
	}
	return true;
}

bool clv_pack_state_check(const struct clv_pack_state *s, struct clv_error *err)
{
	if (s->dirty_count)
		return clv_error_set(err, "%" PRIu32 " sections are not settled", s->dirty_count);
	for (uint32_t t = 0; t < s->width; t++)
		if (!check_section(s, t, err))
			return false;
	for (uint32_t i = 0; i < s->count; i++)
		if (!check_item(s, i, err))
			return false;
	return true;
}
