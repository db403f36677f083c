/* SPDX-License-Identifier: MIT
 *
 * The exact search and the state under it: what pack_state.h promises holds at every node and after every step and undo, and
 * the answers are those of a search through all orders (pack_small), also where no packing is as low as the load.
 */
#include "../src/plan/pack_search.h"
#include "../src/plan/pack_small.h"
#include "check_main.h"
#include "pack_maker.h"

#include <inttypes.h>

#define STEPS ((uint64_t)1 << 40) /* more than any of these needs */

static struct clv_pack_problem problem_of(const struct pack_made *m)
{
	struct clv_pack_problem p;
	struct clv_error err = {""};
	ck_assert_msg(clv_pack_problem_make(&p, m->buffers, m->count, &err), "%s", err.text);
	ck_assert(p.plain);
	return p;
}

static void must_hold(void *nodes, const struct clv_pack_state *state)
{
	struct clv_error err = {""};
	++*(uint64_t *)nodes;
	ck_assert_msg(clv_pack_state_check(state, &err), "node %" PRIu64 ": %s", *(uint64_t *)nodes, err.text);
}

START_TEST(all_holds_at_each_node)
{
	uint64_t nodes = 0;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct pack_made m = seed % 2 ? pack_make(12 + seed, seed % 4 == 1 ? PACK_PINWHEELS : 0, seed)
					      : pack_make_merging(8 + seed, seed);
		struct clv_pack_problem p = problem_of(&m);
		struct clv_pack_clock clock = {.steps_end = UINT64_MAX};
		struct clv_pack_search *s = clv_pack_search_new(&p, seed);
		uint64_t *offset = pack_room(p.count, sizeof(*offset));
		ck_assert_ptr_nonnull(s);
		clv_pack_search_watch(s, must_hold, &nodes);
		clv_pack_search_run(s, p.load_max, 100000, &clock, offset);
		clv_pack_search_run(s, p.load_max + p.load_max / 10, 10000, &clock, offset);
		clv_pack_search_free(s);
		clv_pack_problem_free(&p);
		free(offset);
		pack_made_free(&m);
	}
	ck_assert_uint_gt(nodes, 5000);
}
END_TEST

struct floors {
	size_t trail;
	uint64_t *floor, *base, *rem;
};

static struct floors floors_of(const struct clv_pack_state *s)
{
	struct floors f = {s->trail_count, pack_room(s->count, sizeof(*f.floor)), pack_room(s->width, sizeof(*f.base)),
			   pack_room(s->width, sizeof(*f.rem))};
	for (uint32_t i = 0; i < s->count; i++)
		f.floor[i] = s->items[i].placed ? UINT64_MAX : s->items[i].floor;
	memcpy(f.base, s->base, s->width * sizeof(*f.base));
	memcpy(f.rem, s->rem, s->width * sizeof(*f.rem));
	return f;
}

static void floors_free(struct floors *f)
{
	free(f->floor);
	free(f->base);
	free(f->rem);
}

/* A step at random: true if the state allows it. */
static bool random_step(struct clv_pack_state *s, struct clv_rng *rng)
{
	uint32_t i = (uint32_t)clv_rng_below(rng, s->count), t = s->items[i].lo;
	if (s->items[i].placed)
		return true;
	if (clv_rng_below(rng, 4))
		return clv_pack_state_place(s, i);
	uint64_t next = clv_pack_state_next(s, t);
	return next == CLV_PACK_NEVER || clv_pack_state_lift(s, t, next);
}

START_TEST(steps_and_undos)
{
	enum { MARKS = 64 };
	struct clv_rng rng = {.state = 3};
	uint64_t undone = 0;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct pack_made m = pack_make(40, PACK_PINWHEELS, seed);
		struct clv_pack_problem p = problem_of(&m);
		struct clv_pack_state s;
		struct floors marks[MARKS];
		size_t count = 0;
		ck_assert(clv_pack_state_make(&s, &p));
		s.limit = p.load_max + p.load_max * clv_rng_below(&rng, 4) / 3;
		for (int step = 0; step < 400; step++) {
			struct clv_error err = {""};
			struct floors before = floors_of(&s);
			ck_assert(clv_pack_state_reserve(&s));
			if (random_step(&s, &rng)) {
				ck_assert_msg(clv_pack_state_check(&s, &err), "seed %" PRIu64 ", step %d: %s", seed, step,
					      err.text);
				if (count < MARKS)
					marks[count++] = before;
				else
					floors_free(&before);
				continue;
			}
			/* back to before this one, and often further */
			marks[count < MARKS ? count++ : (floors_free(&marks[MARKS - 1]), MARKS - 1)] = before;
			size_t to = clv_rng_below(&rng, 2) ? count - 1 : clv_rng_below(&rng, count);
			clv_pack_state_undo(&s, marks[to].trail);
			struct floors now = floors_of(&s);
			ck_assert_mem_eq(now.floor, marks[to].floor, s.count * sizeof(*now.floor));
			ck_assert_mem_eq(now.base, marks[to].base, s.width * sizeof(*now.base));
			ck_assert_mem_eq(now.rem, marks[to].rem, s.width * sizeof(*now.rem));
			ck_assert_msg(clv_pack_state_check(&s, &err), "seed %" PRIu64 ", step %d, undone: %s", seed, step,
				      err.text);
			floors_free(&now);
			while (count > to)
				floors_free(&marks[--count]);
			undone++;
		}
		while (count)
			floors_free(&marks[--count]);
		clv_pack_state_free(&s);
		clv_pack_problem_free(&p);
		pack_made_free(&m);
	}
	ck_assert_uint_gt(undone, 1000);
}
END_TEST

/* Both are exact. */
static bool agree(const struct pack_made *m, uint64_t seed)
{
	struct clv_pack_problem p = problem_of(m);
	struct clv_pack_clock clock = {.steps_end = UINT64_MAX};
	struct clv_pack_search *s = clv_pack_search_new(&p, seed);
	uint64_t offset[CLV_PACK_SMALL], best;
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_le(p.count, CLV_PACK_SMALL);
	ck_assert(clv_pack_small_run(&p, UINT64_MAX / 4, STEPS, &clock, offset, &best));
	ck_assert_msg(clv_pack_search_run(s, best, STEPS, &clock, offset) == CLV_PACK_FOUND, "seed %" PRIu64, seed);
	for (uint32_t i = 0; i < p.count; i++)
		ck_assert_uint_le(offset[i] + p.items[i].size, best);
	ck_assert_msg(clv_pack_search_run(s, best - 1, STEPS, &clock, offset) == CLV_PACK_NONE, "seed %" PRIu64, seed);
	bool above = best > p.load_max;
	clv_pack_search_free(s);
	clv_pack_problem_free(&p);
	return above;
}

START_TEST(beside_all_orders)
{
	unsigned above = 0;
	for (uint64_t seed = 1; seed <= 1500; seed++) {
		struct pack_made m = pack_make_merging(5 + seed % 8, seed);
		above += agree(&m, seed);
		pack_made_free(&m);
	}
	printf("of 1500 sets %u have no packing as low as their load\n", above);
	ck_assert_uint_ge(above, 5); /* or nothing was shown about proofs */
}
END_TEST

/* Enough for its attempts to become long enough for a proof. */
START_TEST(impossible_heights_are_proved)
{
	unsigned above = 0;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct pack_made m = pack_make_merging(24, seed);
		uint64_t *offsets = pack_room(m.count, sizeof(*offsets));
		cleave_pack_result r;
		ck_assert_int_eq(cleave_pack(m.buffers, m.count, NULL, offsets, &r, NULL, 0), 0);
		uint64_t load = 0;
		for (size_t i = 0; i < 4; i++)
			load += m.buffers[i].size;
		ck_assert_msg(r.optimal, "seed %" PRIu64 ": height %" PRIu64 ", bound %" PRIu64, seed, r.height,
			      r.lower_bound);
		above += r.height > load;
		free(offsets);
		pack_made_free(&m);
	}
	printf("of 60 sets of 24 %u have no packing as low as their load\n", above);
	ck_assert_uint_ge(above, 5);
}
END_TEST

CHECK_MAIN("pack_search", all_holds_at_each_node, steps_and_undos, beside_all_orders, impossible_heights_are_proved)
