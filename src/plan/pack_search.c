/* SPDX-License-Identifier: MIT */
#include "pack_search.h"
#include "pack_taste.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX
#define NOWHERE UINT32_MAX

enum {
	FAILED_STATES_MAX = 1 << 16,
	ITEMS_A_FAILURE = 8, /* in the shortest attempts */
	CELLS_ANYWAY = 1 << 18,
	CELLS_A_BUFFER = 128,
	PITS_LOOKED_AT = 64, /* for the nearest one */
};

/* A component: the items not yet placed in sections lo <= t < hi, which no other has. */
struct goal {
	uint32_t lo, hi;
	uint32_t count;
	uint64_t mark; /* the sum of its items' */
};

/* A node with branches. */
struct choice {
	struct goal goal;
	uint32_t pit;
	uint32_t candidates_begin, candidate, candidates_end; /* in search->candidates; `candidate` is the next */
	uint32_t goals;  /* that wait besides this one and what comes of it */
	bool wasted;     /* the last branch is taken */
	size_t trail;    /* its length before any branch */
	uint64_t height; /* of the pit */
	uint64_t hash;
};

/* What an undo puts back. */
struct change {
	enum { FLOOR, BASE, PLACED } what;
	uint32_t at;
	uint64_t before;
};

struct piece {
	uint32_t lo, hi; /* sections */
	uint64_t size;
	uint64_t floor;  /* m */
	size_t cells;    /* its first in search->where */
	bool placed;
};

struct section {
	size_t cells;     /* its first in search->waiting */
	uint32_t count;   /* items that wait */
	uint32_t crossed; /* by waiting items that are also in the section before it */
	uint32_t first;   /* item that begins here or later */
	bool dirty;
};

struct clv_pack_search {
	uint32_t count, width; /* items and sections */
	uint64_t limit; /* the height */

	struct piece *items; /* by lo */
	uint64_t *mark;      /* random, of an item */
	int64_t *taste;      /* the larger, the sooner */
	struct clv_pack_traits *traits;
	uint64_t *at;        /* offset of those that are placed */

	struct section *sections;
	uint64_t *base;    /* by section: e */
	uint64_t *rem;     /* by section */
	uint32_t *waiting; /* by section: the items that wait, then those that do not any more */
	uint32_t *where;   /* by item and section: its index among those of the section */

	struct goal *goals;
	uint32_t goal_count;
	struct choice *choices;
	uint32_t choice_count, choice_max;
	uint32_t *candidates;
	uint32_t candidate_count, candidate_max;
	struct change *trail;
	size_t trail_count, trail_room, trail_max;
	uint32_t *dirty;
	uint32_t dirty_count;

	uint32_t failed_count; /* a power of two */
	uint64_t *failed;      /* hashes of states that have no solution at `failed_limit` or below */
	uint64_t failed_limit; /* in this and former attempts */

	enum clv_pack_pits pits;
	bool from_end; /* of time: which of equals is taken */
	uint32_t last_pit;
	uint32_t attempt;
	uint64_t failures, failures_end; /* choices without a solution in this attempt */
	uint64_t work;                   /* since the clock was told */
	uint64_t looks;                  /* at sections that might be pits */
	bool out;                        /* of failures, of time or of room */
	struct clv_rng rng;
	struct clv_pack_clock *clock;
};

static uint64_t count_cells(const struct clv_pack_problem *p)
{
	uint64_t cells = 0;
	for (uint32_t i = 0; i < p->count; i++)
		cells += p->items[i].hi - p->items[i].lo;
	return cells;
}

bool clv_pack_search_suits(const struct clv_pack_problem *p, uint64_t buffers)
{
	return p->plain && count_cells(p) <= CELLS_ANYWAY + CELLS_A_BUFFER * buffers;
}

#define ARRAY(field, n) ((s->field = calloc((size_t)(n) + 1, sizeof(*s->field))) != NULL)

static bool make_arrays(struct clv_pack_search *s, size_t cells)
{
	size_t n = s->count, w = s->width;
	s->failed_count = 1024;
	while (s->failed_count < FAILED_STATES_MAX && s->failed_count < 256 * n)
		s->failed_count *= 2;
	s->choice_max = 4 * s->count + 64;
	s->candidate_max = 32 * s->count + 4096;
	s->trail_room = 4 * (n + w);
	s->trail_max = 256 * (n + w) + ((size_t)1 << 18);
	return ARRAY(items, n) && ARRAY(mark, n) && ARRAY(taste, n) && ARRAY(traits, n) && ARRAY(at, n) &&
	       ARRAY(sections, w) && ARRAY(base, w) && ARRAY(rem, w) && ARRAY(waiting, cells) && ARRAY(where, cells) && ARRAY(goals, n + 1) &&
	       ARRAY(choices, s->choice_max) && ARRAY(candidates, s->candidate_max) && ARRAY(trail, s->trail_room) &&
	       ARRAY(dirty, w) && ARRAY(failed, s->failed_count);
}

/* The cells of items and sections, all waiting. */
static void fill_cells(struct clv_pack_search *s)
{
	size_t cells = 0;
	for (uint32_t i = 0; i < s->count; i++) {
		struct piece *b = &s->items[i];
		b->cells = cells;
		cells += b->hi - b->lo;
		for (uint32_t t = b->lo; t < b->hi; t++)
			s->sections[t].count++;
		for (uint32_t t = b->lo + 1; t < b->hi; t++)
			s->sections[t].crossed++;
	}
	uint32_t item = 0;
	cells = 0;
	for (uint32_t t = 0; t <= s->width; t++) {
		s->sections[t].cells = cells;
		cells += s->sections[t].count;
		s->sections[t].count = 0;
		while (item < s->count && s->items[item].lo < t)
			item++;
		s->sections[t].first = item;
	}
	for (uint32_t i = 0; i < s->count; i++) {
		const struct piece *b = &s->items[i];
		for (uint32_t t = b->lo; t < b->hi; t++) {
			struct section *at = &s->sections[t];
			s->where[b->cells + (t - b->lo)] = at->count;
			s->waiting[at->cells + at->count++] = i;
			s->rem[t] += b->size;
		}
	}
}

struct clv_pack_search *clv_pack_search_new(const struct clv_pack_problem *p, uint64_t seed)
{
	struct clv_pack_search *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->count = p->count;
	s->width = p->sections;
	s->rng.state = seed;
	if (!make_arrays(s, (size_t)count_cells(p))) {
		clv_pack_search_free(s);
		return NULL;
	}
	for (uint32_t i = 0; i < s->count; i++) {
		const struct clv_pack_item *from = &p->items[i];
		s->items[i] = (struct piece){.lo = from->lo, .hi = from->hi, .size = from->size};
		s->mark[i] = clv_rng_next(&s->rng);
		s->traits[i] = clv_pack_traits_of(p, from);
	}
	fill_cells(s);
	return s;
}

void clv_pack_search_free(struct clv_pack_search *s)
{
	if (!s)
		return;
	free(s->items);
	free(s->mark);
	free(s->taste);
	free(s->traits);
	free(s->at);
	free(s->sections);
	free(s->base);
	free(s->rem);
	free(s->waiting);
	free(s->where);
	free(s->goals);
	free(s->choices);
	free(s->candidates);
	free(s->trail);
	free(s->dirty);
	free(s->failed);
	free(s);
}

/* Changes and their undoing. */

static void note(struct clv_pack_search *s, int what, uint32_t at, uint64_t before)
{
	s->trail[s->trail_count++] = (struct change){what, at, before};
}

/* Room for all changes that one branch can make. */
static bool trail_reserve(struct clv_pack_search *s)
{
	size_t need = s->trail_count + s->count + s->width + 1;
	if (need <= s->trail_room)
		return true;
	if (need > s->trail_max)
		return false;
	size_t room = need + need / 2;
	struct change *grown = realloc(s->trail, room * sizeof(*grown));
	if (!grown)
		return false;
	s->trail = grown;
	s->trail_room = room;
	return true;
}

static void take_out(struct clv_pack_search *s, uint32_t item)
{
	struct piece *b = &s->items[item];
	b->placed = true;
	for (uint32_t t = b->lo; t < b->hi; t++) {
		struct section *at = &s->sections[t];
		uint32_t *waiting = s->waiting + at->cells, *where = s->where + b->cells + (t - b->lo);
		uint32_t last = waiting[--at->count];
		waiting[*where] = last;
		s->where[s->items[last].cells + (t - s->items[last].lo)] = *where;
		waiting[at->count] = item;
		*where = at->count;
		s->rem[t] -= b->size;
		at->crossed -= t != b->lo;
	}
}

/* The last that was taken out and is not back yet: it is the first behind those that wait. */
static void put_back(struct clv_pack_search *s, uint32_t item)
{
	struct piece *b = &s->items[item];
	b->placed = false;
	for (uint32_t t = b->lo; t < b->hi; t++) {
		struct section *at = &s->sections[t];
		at->count++;
		s->rem[t] += b->size;
		at->crossed += t != b->lo;
	}
}

static void undo(struct clv_pack_search *s, size_t to)
{
	while (s->trail_count > to) {
		const struct change *c = &s->trail[--s->trail_count];
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

/* Floors. */

static void make_dirty(struct clv_pack_search *s, uint32_t t)
{
	if (s->sections[t].dirty)
		return;
	s->sections[t].dirty = true;
	s->dirty[s->dirty_count++] = t;
}

static void raise_floor(struct clv_pack_search *s, uint32_t item, uint64_t height)
{
	struct piece *b = &s->items[item];
	if (b->placed || b->floor >= height)
		return;
	note(s, FLOOR, item, b->floor);
	for (uint32_t t = b->lo; t < b->hi; t++)
		if (s->base[t] == b->floor)
			make_dirty(s, t);
	b->floor = height;
	s->work += b->hi - b->lo;
}

/* Raises the floors of all items that wait in any of lo <= t < hi. */
static void raise_floors(struct clv_pack_search *s, uint32_t lo, uint32_t hi, uint64_t height)
{
	const struct section *first = &s->sections[lo];
	for (uint32_t i = 0; i < first->count; i++)
		raise_floor(s, s->waiting[first->cells + i], height);
	for (uint32_t i = s->sections[lo + 1].first; i < s->sections[hi].first; i++)
		raise_floor(s, i, height);
	s->work += first->count + s->sections[hi].first - s->sections[lo + 1].first;
}

static uint64_t least_floor(struct clv_pack_search *s, const struct section *at, uint64_t base)
{
	const uint32_t *waiting = s->waiting + at->cells;
	uint64_t least = NEVER;
	uint32_t i = 0;
	for (; i < at->count && least > base; i++)
		least = clv_min_u64(least, s->items[waiting[i]].floor);
	s->work += i;
	return least;
}

/* Brings e(s) up to what the floors say. False: there is no packing. */
static bool settle(struct clv_pack_search *s)
{
	bool possible = true;
	for (uint32_t i = 0; i < s->dirty_count; i++) {
		uint32_t t = s->dirty[i];
		struct section *at = &s->sections[t];
		at->dirty = false;
		if (!possible || !at->count)
			continue;
		uint64_t least = least_floor(s, at, s->base[t]);
		if (least == s->base[t])
			continue;
		note(s, BASE, t, s->base[t]);
		s->base[t] = least;
		possible = least + s->rem[t] <= s->limit;
	}
	s->dirty_count = 0;
	return possible;
}

/* Nodes. */

static bool out_of_bounds(struct clv_pack_search *s)
{
	s->out = clv_pack_clock_step(s->clock, 10 + s->work / 8) || s->failures > s->failures_end ||
		 s->choice_count == s->choice_max || s->candidate_count + s->count > s->candidate_max ||
		 !trail_reserve(s);
	s->work = 0;
	return s->out;
}

static uint64_t state_hash(struct clv_pack_search *s, const struct goal *g)
{
	uint64_t floors = g->lo;
	for (uint32_t t = g->lo; t < g->hi; t++)
		floors = (floors ^ (floors >> 32) ^ (s->rem[t] ? s->base[t] : NEVER)) * 0x9e3779b97f4a7c15ull;
	s->work += g->hi - g->lo;
	uint64_t hash = clv_mix64(g->mark ^ clv_mix64(floors));
	return hash ? hash : 1;
}

/* Two states share a place: the one that failed last, and the one before it. */
static uint64_t *failed_place(struct clv_pack_search *s, uint64_t hash)
{
	return &s->failed[hash & (s->failed_count - 2)];
}

static bool has_failed(struct clv_pack_search *s, uint64_t hash)
{
	const uint64_t *place = failed_place(s, hash);
	return place[0] == hash || place[1] == hash;
}

static void remember_failed(struct clv_pack_search *s, uint64_t hash)
{
	uint64_t *place = failed_place(s, hash);
	if (place[0] == hash)
		return;
	place[1] = place[0];
	place[0] = hash;
}

/* The sections of all items that wait in `t`. */
static void find_hull(struct clv_pack_search *s, uint32_t t, uint32_t *lo, uint32_t *hi)
{
	const struct section *at = &s->sections[t];
	*lo = t;
	*hi = t + 1;
	for (uint32_t i = 0; i < at->count; i++) {
		const struct piece *b = &s->items[s->waiting[at->cells + i]];
		*lo = b->lo < *lo ? b->lo : *lo;
		*hi = b->hi > *hi ? b->hi : *hi;
	}
	s->work += at->count;
}

/* The lowest section of the hull of t: t itself if it is a pit. */
static uint32_t lowest_in_hull(struct clv_pack_search *s, uint32_t t)
{
	uint32_t lo, hi, lowest = t;
	find_hull(s, t, &lo, &hi);
	for (uint32_t i = 0; i < hi - lo; i++) {
		uint32_t u = s->from_end ? hi - 1 - i : lo + i;
		if (s->base[u] < s->base[lowest])
			lowest = u;
	}
	s->work += (hi - lo) / 4;
	return lowest;
}

/* Whether sections t - 1 and t have an item in common, and the one of them is lower than the other. */
static bool falls_to(const struct clv_pack_search *s, uint32_t from, uint32_t to)
{
	return s->sections[from > to ? from : to].crossed && s->base[to] < s->base[from];
}

static bool is_pit(struct clv_pack_search *s, uint32_t t)
{
	uint32_t lo, hi;
	s->work++;
	if (!s->sections[t].count || falls_to(s, t, t + 1) || (t && falls_to(s, t, t - 1)))
		return false;
	uint64_t base = s->base[t];
	s->looks++;
	find_hull(s, t, &lo, &hi);
	s->work += (hi - lo) / 4;
	for (uint32_t u = t; u-- > lo;)
		if (s->base[u] < base)
			return false;
	for (uint32_t u = t + 1; u < hi; u++)
		if (s->base[u] < base)
			return false;
	return true;
}

static uint32_t drain(struct clv_pack_search *s, uint32_t t)
{
	for (uint32_t lower = lowest_in_hull(s, t); lower != t; lower = lowest_in_hull(s, t))
		t = lower;
	return t;
}

static uint32_t nearest_pit(struct clv_pack_search *s, const struct goal *g)
{
	uint32_t from = s->last_pit < g->lo ? g->lo : s->last_pit >= g->hi ? g->hi - 1 : s->last_pit;
	uint64_t looks = s->looks;
	for (uint32_t d = 0; s->looks - looks <= PITS_LOOKED_AT; d++) {
		uint32_t before = from >= g->lo + d ? from - d : NOWHERE, behind = from + d < g->hi ? from + d : NOWHERE;
		uint32_t first = s->from_end ? behind : before, second = s->from_end ? before : behind;
		if (first != NOWHERE && is_pit(s, first))
			return first;
		if (d && second != NOWHERE && is_pit(s, second))
			return second;
	}
	return drain(s, s->sections[from].count ? from : g->lo);
}

static uint64_t section_cost(const struct clv_pack_search *s, uint32_t t)
{
	switch (s->pits) {
	case CLV_PACK_PIT_LOADED:
		return s->limit - s->rem[t];
	case CLV_PACK_PIT_TIGHT:
		return s->limit - s->rem[t] - s->base[t];
	default:
		return s->base[t];
	}
}

/* The pit to which the section with the least cost drains. */
static uint32_t choose_pit(struct clv_pack_search *s, const struct goal *g)
{
	uint64_t least = NEVER;
	uint32_t best = g->lo;
	if (s->pits == CLV_PACK_PIT_NEAR)
		return nearest_pit(s, g);
	for (uint32_t i = 0; i < g->hi - g->lo; i++) {
		uint32_t t = s->from_end ? g->hi - 1 - i : g->lo + i;
		uint64_t cost = s->rem[t] ? section_cost(s, t) : NEVER;
		if (cost < least) {
			least = cost;
			best = t;
		}
	}
	s->work += (g->hi - g->lo) / 2;
	return drain(s, best);
}

static bool same(const struct piece *a, const struct piece *b)
{
	return a->lo == b->lo && a->hi == b->hi && a->size == b->size;
}

/* The items that can lie on the ground of the pit, by taste, one of each kind. */
static void add_candidates(struct clv_pack_search *s, struct choice *c)
{
	const struct section *pit = &s->sections[c->pit];
	uint32_t *out = s->candidates + s->candidate_count, found = 0;
	for (uint32_t i = 0; i < pit->count; i++) {
		uint32_t item = s->waiting[pit->cells + i], k;
		const struct piece *b = &s->items[item];
		if (b->floor != c->height)
			continue;
		for (k = 0; k < found && !same(b, &s->items[out[k]]); k++)
			;
		if (k < found)
			continue;
		for (k = found++; k && (s->taste[out[k - 1]] < s->taste[item] ||
					(s->taste[out[k - 1]] == s->taste[item] && out[k - 1] > item));
		     k--)
			out[k] = out[k - 1];
		out[k] = item;
		s->work += found;
	}
	c->candidates_begin = c->candidate = s->candidate_count;
	s->candidate_count += found;
	c->candidates_end = s->candidate_count;
	s->work += pit->count;
}

/* Makes a choice of a goal. False: it has no solution, or the search is at its end. */
static bool open_goal(struct clv_pack_search *s, const struct goal *g)
{
	if (out_of_bounds(s))
		return false;
	uint64_t hash = state_hash(s, g);
	if (has_failed(s, hash))
		return false;
	struct choice *c = &s->choices[s->choice_count++];
	*c = (struct choice){.goal = *g, .goals = s->goal_count, .trail = s->trail_count, .hash = hash};
	c->pit = s->last_pit = choose_pit(s, g);
	c->height = s->base[c->pit];
	add_candidates(s, c);
	return true;
}

/* Branches. */

static int by_count(const void *va, const void *vb)
{
	const struct goal *a = va, *b = vb;
	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	return a->lo < b->lo ? -1 : 1;
}

static void add_part(struct clv_pack_search *s, uint32_t lo, uint32_t hi)
{
	struct goal part = {.lo = lo, .hi = hi};
	for (uint32_t i = s->sections[lo].first; i < s->sections[hi].first; i++) {
		part.count += !s->items[i].placed;
		part.mark += s->items[i].placed ? 0 : s->mark[i];
	}
	s->work += s->sections[hi].first - s->sections[lo].first;
	if (part.count)
		s->goals[s->goal_count++] = part;
}

/* Adds what is left of a goal after `b` was taken out, which may fall apart there; the smallest last, to be solved first. */
static void add_rest(struct clv_pack_search *s, struct goal g, const struct piece *b, uint64_t mark)
{
	uint32_t begin = g.lo, before = s->goal_count;
	for (uint32_t t = b->lo + 1; t < b->hi; t++) {
		if (s->sections[t].crossed)
			continue;
		add_part(s, begin, t);
		begin = t;
	}
	if (begin != g.lo) {
		add_part(s, begin, g.hi);
		qsort(s->goals + before, s->goal_count - before, sizeof(*s->goals), by_count);
	} else if (g.count > 1) {
		g.count--;
		g.mark -= mark;
		s->goals[s->goal_count++] = g;
	}
}

static bool place(struct clv_pack_search *s, struct choice *c, uint32_t item)
{
	const struct piece *b = &s->items[item];
	uint64_t top = c->height + b->size;
	s->work += b->hi - b->lo;
	for (uint32_t t = b->lo; t < b->hi; t++)
		if (c->height + s->rem[t] > s->limit)
			return false;
	note(s, PLACED, item, 0);
	take_out(s, item);
	s->at[item] = c->height;
	for (uint32_t t = b->lo; t < b->hi; t++)
		if (s->base[t] == c->height)
			make_dirty(s, t);
	raise_floors(s, b->lo, b->hi, top);
	if (!settle(s))
		return false;
	add_rest(s, c->goal, b, s->mark[item]);
	return true;
}

/* What a pit can next begin at, when nothing lies on its ground. NEVER: nothing ever. */
static uint64_t next_height(struct clv_pack_search *s, const struct choice *c)
{
	const struct section *pit = &s->sections[c->pit];
	uint64_t next = NEVER;
	uint32_t lo, hi;
	find_hull(s, c->pit, &lo, &hi);
	for (uint32_t i = 0; i < pit->count; i++) {
		const struct piece *b = &s->items[s->waiting[pit->cells + i]];
		if (b->floor > c->height)
			next = clv_min_u64(next, b->floor);
	}
	const struct section *first = &s->sections[lo];
	for (uint32_t i = 0; i < first->count; i++) {
		const struct piece *b = &s->items[s->waiting[first->cells + i]];
		if (b->hi <= c->pit)
			next = clv_min_u64(next, b->floor + b->size);
	}
	for (uint32_t i = s->sections[lo + 1].first; i < s->sections[hi].first; i++) {
		const struct piece *b = &s->items[i];
		if (!b->placed && (b->lo > c->pit || b->hi <= c->pit))
			next = clv_min_u64(next, b->floor + b->size);
	}
	s->work += pit->count + first->count + s->sections[hi].first - s->sections[lo + 1].first;
	return next;
}

static bool waste(struct clv_pack_search *s, struct choice *c)
{
	uint64_t next = next_height(s, c);
	c->wasted = true;
	if (next == NEVER || next + s->rem[c->pit] > s->limit)
		return false;
	raise_floors(s, c->pit, c->pit + 1, next);
	if (!settle(s))
		return false;
	s->goals[s->goal_count++] = c->goal;
	return true;
}

/* The next branch of the last choice that has one, after what was tried is undone. False: none is left. */
static bool next_branch(struct clv_pack_search *s)
{
	while (s->choice_count) {
		struct choice *c = &s->choices[s->choice_count - 1];
		undo(s, c->trail);
		s->goal_count = c->goals;
		s->candidate_count = c->candidates_end;
		if (c->candidate < c->candidates_end) {
			if (place(s, c, s->candidates[c->candidate++]))
				return true;
			continue;
		}
		if (!c->wasted) {
			if (waste(s, c))
				return true;
			continue;
		}
		remember_failed(s, c->hash);
		s->failures++;
		s->candidate_count = c->candidates_begin;
		s->choice_count--;
	}
	return false;
}

/* Choices all of whose goals are reached stay as they are. */
static void close_choices(struct clv_pack_search *s)
{
	while (s->choice_count && s->choices[s->choice_count - 1].goals >= s->goal_count) {
		s->candidate_count = s->choices[s->choice_count - 1].candidates_begin;
		s->choice_count--;
	}
}

/* From the ground, with the preferences that are set. */
static enum clv_pack_answer attempt(struct clv_pack_search *s)
{
	undo(s, 0);
	s->goal_count = s->choice_count = s->candidate_count = 0;
	s->last_pit = s->from_end ? s->width - 1 : 0;
	s->failures = 0;
	s->out = false;
	for (uint32_t t = 0; t < s->width; t++)
		if (s->rem[t] > s->limit)
			return CLV_PACK_NONE;
	add_part(s, 0, s->width);
	for (;;) {
		close_choices(s);
		if (!s->goal_count)
			return CLV_PACK_FOUND;
		s->goal_count--;
		if (!open_goal(s, &s->goals[s->goal_count]) && s->out)
			return CLV_PACK_UNDECIDED;
		if (!next_branch(s))
			return CLV_PACK_NONE;
	}
}

static void set_preferences(struct clv_pack_search *s)
{
	struct clv_pack_taste taste = clv_pack_taste_for(s->attempt, &s->rng);
	s->pits = taste.pits;
	s->from_end = taste.from_end;
	for (uint32_t i = 0; i < s->count; i++)
		s->taste[i] = clv_pack_taste_value(&taste, &s->traits[i], &s->rng);
}

enum clv_pack_answer clv_pack_search_run(struct clv_pack_search *s, uint64_t height, uint64_t steps,
					 struct clv_pack_clock *clock, uint64_t *offset)
{
	enum clv_pack_answer answer = CLV_PACK_UNDECIDED;
	uint64_t end = clv_pack_clock_in(clock, steps);
	s->limit = height;
	s->clock = clock;
	/* What has no solution at one height has none at a lower one. */
	if (height > s->failed_limit)
		memset(s->failed, 0, s->failed_count * sizeof(*s->failed));
	s->failed_limit = height;
	while (answer == CLV_PACK_UNDECIDED && clock->steps < end && !clv_pack_clock_over(clock)) {
		set_preferences(s);
		s->failures_end = clv_pack_luby(++s->attempt) * (1 + s->count / ITEMS_A_FAILURE);
		answer = attempt(s);
	}
	if (answer == CLV_PACK_FOUND)
		memcpy(offset, s->at, s->count * sizeof(*offset));
	return answer;
}
