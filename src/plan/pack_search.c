/* SPDX-License-Identifier: MIT */
#include "pack_search.h"
#include "pack_taste.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX

enum {
	NODES_BY_SECTIONS = 1 << 28, /* of an attempt: each node looks at all sections of its component */
	CELLS_ANYWAY = 1 << 18,
	CELLS_A_BUFFER = 128,
	FAILED_STATES_MAX = 1 << 16,
	ITEMS_A_FAILURE = 8, /* in the shortest attempts */
	FAILURES_FIRST = 64, /* in those, at most */
	PITS_LOOKED_AT = 64, /* for the nearest one */
	KINDS_COMPARED = 64,
};

/* A component: the items that wait in sections lo <= t < hi, which no other has. */
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
	size_t trail;    /* of the state, before any branch */
	uint64_t hash;
};

struct candidate {
	int64_t value;
	uint32_t item;
};

struct clv_pack_search {
	struct clv_pack_state state;
	uint64_t *mark;      /* random, of an item */
	uint32_t *kind;      /* of an item: the first one that is just like it */
	uint64_t *kind_seen; /* by kind: the last node that had a candidate of it */
	uint64_t nodes;

	struct goal *goals;
	uint32_t goal_count;
	struct choice *choices;
	uint32_t choice_count, choice_max;
	uint32_t *candidates;
	uint32_t candidate_count, candidate_max;

	/* hashes of goals that have no solution at `failed_limit` or below, in this attempt and others */
	uint64_t *failed;
	uint32_t failed_count; /* a power of two */
	uint64_t failed_limit;

	/* preferences */
	struct clv_pack_traits *traits;
	int64_t *value;      /* by item; the larger, the sooner */
	struct candidate *sorted; /* those of the pit in hand */
	struct clv_pack_taste taste;
	uint32_t last_pit;

	uint32_t attempt;
	uint64_t failures, failures_end; /* choices without a solution in this attempt */
	uint64_t looks;                  /* at sections that might be pits */
	bool out;                        /* of failures, of time or of room */
	struct clv_rng rng;
	struct clv_pack_clock *clock;

	clv_pack_watch *watch;
	void *watcher;
};

bool clv_pack_search_suits(const struct clv_pack_problem *p, uint64_t buffers)
{
	return p->plain && (uint64_t)p->count * p->sections <= NODES_BY_SECTIONS && clv_pack_state_cells(p) <= CELLS_ANYWAY + CELLS_A_BUFFER * buffers;
}

#define ARRAY(field, n) ((s->field = calloc((size_t)(n) + 1, sizeof(*s->field))) != NULL)

static bool make_arrays(struct clv_pack_search *s, uint32_t n)
{
	s->failed_count = 1024;
	while (s->failed_count < FAILED_STATES_MAX && s->failed_count / 256 < n)
		s->failed_count *= 2;
	s->choice_max = 4 * n + 64;
	s->candidate_max = 128 * n + 65536; /* touched only as they are needed */
	return ARRAY(mark, n) && ARRAY(goals, n + 1) && ARRAY(choices, s->choice_max) &&
	       ARRAY(candidates, s->candidate_max) && ARRAY(failed, s->failed_count) && ARRAY(traits, n) &&
	       ARRAY(value, n) && ARRAY(sorted, n) && ARRAY(kind, n) && ARRAY(kind_seen, n);
}

/* Items that begin together are neighbours, but for their sizes: each is compared with those before it, within reason. */
static void find_kinds(struct clv_pack_search *s, const struct clv_pack_problem *p)
{
	for (uint32_t i = 0; i < p->count; i++) {
		const struct clv_pack_item *a = &p->items[i];
		s->kind[i] = i;
		for (uint32_t k = i; k-- && i - k <= KINDS_COMPARED && p->items[k].lo == a->lo && p->items[k].hi == a->hi;) {
			const struct clv_pack_item *b = &p->items[k];
			if (a->size != b->size || a->padding != b->padding)
				continue;
			s->kind[i] = s->kind[k];
			break;
		}
	}
}

struct clv_pack_search *clv_pack_search_new(const struct clv_pack_problem *p, uint64_t seed)
{
	struct clv_pack_search *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->rng.state = seed;
	if (!make_arrays(s, p->count) || !clv_pack_state_make(&s->state, p)) {
		clv_pack_search_free(s);
		return NULL;
	}
	for (uint32_t i = 0; i < p->count; i++) {
		s->mark[i] = clv_rng_next(&s->rng);
		s->traits[i] = clv_pack_traits_of(p, &p->items[i]);
	}
	find_kinds(s, p);
	return s;
}

void clv_pack_search_free(struct clv_pack_search *s)
{
	if (!s)
		return;
	clv_pack_state_free(&s->state);
	free(s->mark);
	free(s->goals);
	free(s->choices);
	free(s->candidates);
	free(s->failed);
	free(s->traits);
	free(s->value);
	free(s->sorted);
	free(s->kind);
	free(s->kind_seen);
	free(s);
}

void clv_pack_search_watch(struct clv_pack_search *s, clv_pack_watch *watch, void *watcher)
{
	s->watch = watch;
	s->watcher = watcher;
}

/* What has failed. */

static uint64_t goal_hash(struct clv_pack_search *s, const struct goal *g)
{
	const struct clv_pack_state *st = &s->state;
	uint64_t floors = g->lo;
	for (uint32_t t = g->lo; t < g->hi; t++)
		floors = (floors ^ (floors >> 32) ^ (st->rem[t] ? st->base[t] : CLV_PACK_NEVER)) * 0x9e3779b97f4a7c15ull;
	s->state.work += g->hi - g->lo;
	uint64_t hash = clv_mix64(g->mark ^ clv_mix64(floors));
	return hash ? hash : 1;
}

/* Two goals share a place: the one that failed last, and the one before it. */
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

/* Pits. */

/* The lowest section of the hull of t: t itself if it is a pit. */
static uint32_t lowest_in_hull(struct clv_pack_search *s, uint32_t t)
{
	const uint64_t *base = s->state.base;
	uint32_t lo, hi, lowest = t;
	clv_pack_state_hull(&s->state, t, &lo, &hi);
	for (uint32_t i = 0; i < hi - lo; i++) {
		uint32_t u = s->taste.from_end ? hi - 1 - i : lo + i;
		if (base[u] < base[lowest])
			lowest = u;
	}
	s->state.work += (hi - lo) / 4;
	return lowest;
}

static uint32_t drain(struct clv_pack_search *s, uint32_t t)
{
	for (uint32_t lower = lowest_in_hull(s, t); lower != t; lower = lowest_in_hull(s, t))
		t = lower;
	return t;
}

/* Whether an item waits in both of two sections that meet, and the second one is lower. */
static bool falls_to(const struct clv_pack_state *st, uint32_t from, uint32_t to)
{
	return st->sections[from > to ? from : to].crossed && st->base[to] < st->base[from];
}

static bool is_pit(struct clv_pack_search *s, uint32_t t)
{
	struct clv_pack_state *st = &s->state;
	uint32_t lo, hi;
	if (!st->sections[t].count || falls_to(st, t, t + 1) || (t && falls_to(st, t, t - 1)))
		return false;
	s->looks++;
	clv_pack_state_hull(st, t, &lo, &hi);
	st->work += (hi - lo) / 4;
	for (uint32_t u = t; u-- > lo;)
		if (st->base[u] < st->base[t])
			return false;
	for (uint32_t u = t + 1; u < hi; u++)
		if (st->base[u] < st->base[t])
			return false;
	return true;
}

/* The nearest to the last one; if that is hard to find, the one that the place of the last one drains to. */
static uint32_t nearest_pit(struct clv_pack_search *s, const struct goal *g)
{
	uint32_t from = s->last_pit < g->lo ? g->lo : s->last_pit >= g->hi ? g->hi - 1 : s->last_pit;
	uint64_t looks = s->looks;
	for (uint32_t d = 0; s->looks - looks <= PITS_LOOKED_AT; d++) {
		uint32_t before = from >= g->lo + d ? from - d : NOWHERE, behind = from + d < g->hi ? from + d : NOWHERE;
		uint32_t first = s->taste.from_end ? behind : before, second = s->taste.from_end ? before : behind;
		s->state.work += d % 2;
		if (first != NOWHERE && is_pit(s, first))
			return first;
		if (d && second != NOWHERE && is_pit(s, second))
			return second;
	}
	while (!s->state.sections[from].count)
		from = from + 1 < g->hi ? from + 1 : g->lo;
	return drain(s, from);
}

static uint64_t section_cost(const struct clv_pack_search *s, uint32_t t)
{
	const struct clv_pack_state *st = &s->state;
	switch (s->taste.pits) {
	case CLV_PACK_PIT_LOADED:
		return st->limit + 1 - st->rem[t];
	case CLV_PACK_PIT_TIGHT:
		return st->limit + 1 - st->rem[t] - st->base[t];
	default:
		return st->base[t];
	}
}

/* The pit that is preferred, or the one to which the section with the least cost drains. */
static uint32_t choose_pit(struct clv_pack_search *s, const struct goal *g)
{
	uint64_t least = CLV_PACK_NEVER;
	uint32_t best = g->lo;
	if (s->taste.pits == CLV_PACK_PIT_NEAR)
		return nearest_pit(s, g);
	for (uint32_t i = 0; i < g->hi - g->lo; i++) {
		uint32_t t = s->taste.from_end ? g->hi - 1 - i : g->lo + i;
		uint64_t cost = s->state.rem[t] ? section_cost(s, t) : CLV_PACK_NEVER;
		if (cost < least) {
			least = cost;
			best = t;
		}
	}
	s->state.work += (g->hi - g->lo) / 2;
	return drain(s, best);
}

/* Candidates. */

/* Whether section `out`, beside those of an item, cannot be used at this height. */
static bool is_wall(const struct clv_pack_state *st, uint32_t out, uint64_t height)
{
	return out >= st->width || !st->rem[out] || st->base[out] > height;
}

static int64_t value_there(const struct clv_pack_search *s, uint32_t item, uint64_t height)
{
	const struct clv_pack_piece *b = &s->state.items[item];
	int walls = is_wall(&s->state, b->lo - 1, height) + is_wall(&s->state, b->hi, height);
	return s->value[item] + (int64_t)s->taste.flush * walls;
}

static int by_value(const void *va, const void *vb)
{
	const struct candidate *a = va, *b = vb;
	if (a->value != b->value)
		return a->value > b->value ? -1 : 1;
	return a->item < b->item ? -1 : a->item > b->item;
}

static void sort_candidates(struct candidate *list, uint32_t count)
{
	if (count > 32) {
		qsort(list, count, sizeof(*list), by_value);
		return;
	}
	for (uint32_t i = 1; i < count; i++) {
		struct candidate c = list[i];
		uint32_t k = i;
		for (; k && by_value(&c, &list[k - 1]) < 0; k--)
			list[k] = list[k - 1];
		list[k] = c;
	}
}

/* The items that can lie on the ground of the pit, by value, one of each kind. */
static void add_candidates(struct clv_pack_search *s, struct choice *c)
{
	struct clv_pack_state *st = &s->state;
	const struct clv_pack_section *pit = &st->sections[c->pit];
	uint32_t found = 0;
	s->nodes++;
	for (uint32_t i = 0; i < pit->count; i++) {
		uint32_t item = st->waiting[pit->cells + i];
		const struct clv_pack_piece *b = &st->items[item];
		if (b->floor != st->base[c->pit] || s->kind_seen[s->kind[item]] == s->nodes)
			continue;
		s->kind_seen[s->kind[item]] = s->nodes;
		s->sorted[found++] = (struct candidate){value_there(s, item, b->floor), item};
	}
	sort_candidates(s->sorted, found);
	c->candidates_begin = c->candidate = s->candidate_count;
	for (uint32_t i = 0; i < found; i++)
		s->candidates[s->candidate_count++] = s->sorted[i].item;
	c->candidates_end = s->candidate_count;
	st->work += pit->count + 4 * (uint64_t)found;
}

/* Nodes. */

static bool out_of_bounds(struct clv_pack_search *s)
{
	s->out = clv_pack_clock_step(s->clock, 10 + s->state.work / 8) || s->failures > s->failures_end ||
		 s->choice_count == s->choice_max || s->candidate_count + s->state.count > s->candidate_max ||
		 !clv_pack_state_reserve(&s->state);
	s->state.work = 0;
	return s->out;
}

/* Makes a choice of a goal. False: it has no solution, or the search is at its end. */
static bool open_goal(struct clv_pack_search *s, const struct goal *g)
{
	if (s->watch)
		s->watch(s->watcher, &s->state);
	if (out_of_bounds(s))
		return false;
	uint64_t hash = goal_hash(s, g);
	if (has_failed(s, hash))
		return false;
	struct choice *c = &s->choices[s->choice_count++];
	*c = (struct choice){.goal = *g, .goals = s->goal_count, .trail = s->state.trail_count, .hash = hash};
	c->pit = s->last_pit = choose_pit(s, g);
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
	const struct clv_pack_state *st = &s->state;
	struct goal part = {.lo = lo, .hi = hi};
	for (uint32_t i = st->sections[lo].first; i < st->sections[hi].first; i++) {
		part.count += !st->items[i].placed;
		part.mark += st->items[i].placed ? 0 : s->mark[i];
	}
	s->state.work += st->sections[hi].first - st->sections[lo].first;
	if (part.count)
		s->goals[s->goal_count++] = part;
}

/* Adds what is left of a goal after an item was placed, which may fall apart there; the smallest last, to be solved first. */
static void add_rest(struct clv_pack_search *s, struct goal g, uint32_t item)
{
	const struct clv_pack_piece *b = &s->state.items[item];
	uint32_t begin = g.lo, before = s->goal_count;
	for (uint32_t t = b->lo + 1; t < b->hi; t++) {
		if (s->state.sections[t].crossed)
			continue;
		add_part(s, begin, t);
		begin = t;
	}
	if (begin != g.lo) {
		add_part(s, begin, g.hi);
		qsort(s->goals + before, s->goal_count - before, sizeof(*s->goals), by_count);
	} else if (g.count > 1) {
		g.count--;
		g.mark -= s->mark[item];
		s->goals[s->goal_count++] = g;
	}
}

static bool place(struct clv_pack_search *s, const struct choice *c, uint32_t item)
{
	if (!clv_pack_state_place(&s->state, item))
		return false;
	add_rest(s, c->goal, item);
	return true;
}

static bool waste(struct clv_pack_search *s, const struct choice *c)
{
	uint64_t next = clv_pack_state_next(&s->state, c->pit);
	if (next == CLV_PACK_NEVER || !clv_pack_state_lift(&s->state, c->pit, next))
		return false;
	s->goals[s->goal_count++] = c->goal;
	return true;
}

/* The next branch of the last choice that has one, after what was tried is undone. False: none is left. */
static bool next_branch(struct clv_pack_search *s)
{
	while (s->choice_count) {
		struct choice *c = &s->choices[s->choice_count - 1];
		clv_pack_state_undo(&s->state, c->trail);
		s->goal_count = c->goals;
		s->candidate_count = c->candidates_end;
		if (c->candidate < c->candidates_end) {
			if (place(s, c, s->candidates[c->candidate++]))
				return true;
		} else if (!c->wasted) {
			c->wasted = true;
			if (waste(s, c))
				return true;
		} else {
			remember_failed(s, c->hash);
			s->failures++;
			s->candidate_count = c->candidates_begin;
			s->choice_count--;
		}
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

/* Attempts. */

/* Begins at a height at which there may be a packing. False: a section alone waits for more. */
static bool begin(struct clv_pack_search *s, uint64_t height)
{
	clv_pack_state_begin(&s->state, height);
	s->goal_count = s->choice_count = s->candidate_count = 0;
	s->last_pit = s->taste.from_end ? s->state.width - 1 : 0;
	s->failures = 0;
	s->out = false;
	for (uint32_t t = 0; t < s->state.width; t++)
		if (s->state.rem[t] > clv_pack_state_limit(&s->state, t))
			return false;
	add_part(s, 0, s->state.width);
	return true;
}

static enum clv_pack_answer attempt(struct clv_pack_search *s, uint64_t height)
{
	if (!begin(s, height))
		return CLV_PACK_NONE;
	for (;;) {
		close_choices(s);
		if (!s->goal_count)
			return CLV_PACK_FOUND;
		struct goal g = s->goals[--s->goal_count];
		if (!open_goal(s, &g) && s->out)
			return CLV_PACK_UNDECIDED;
		if (!next_branch(s))
			return CLV_PACK_NONE;
	}
}

static void set_preferences(struct clv_pack_search *s)
{
	s->taste = clv_pack_taste_for(s->attempt, &s->rng);
	for (uint32_t i = 0; i < s->state.count; i++)
		s->value[i] = clv_pack_taste_value(&s->taste, &s->traits[i], &s->rng);
}

enum clv_pack_answer clv_pack_search_run(struct clv_pack_search *s, uint64_t height, uint64_t steps,
					 struct clv_pack_clock *clock, uint64_t *offset)
{
	enum clv_pack_answer answer;
	uint64_t end = clv_pack_clock_in(clock, steps);
	s->clock = clock;
	/* What has no solution at one height has none at a lower one. */
	if (height > s->failed_limit)
		memset(s->failed, 0, s->failed_count * sizeof(*s->failed));
	s->failed_limit = height;
	do {
		set_preferences(s);
		s->failures_end = clv_pack_luby(++s->attempt) *
				  clv_min_u64(1 + s->state.count / ITEMS_A_FAILURE, FAILURES_FIRST);
		answer = attempt(s, height);
	} while (answer == CLV_PACK_UNDECIDED && clock->steps < end && !clv_pack_clock_over(clock));
	if (answer == CLV_PACK_FOUND)
		memcpy(offset, s->state.at, s->state.count * sizeof(*offset));
	return answer;
}
