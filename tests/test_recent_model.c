/* SPDX-License-Identifier: MIT
 *
 * Blocks that are kept for the next request of their size, under random work beside a model: a program repeats a step until its
 * blocks are kept, then does at random what may disturb them. CLEAVE_TEST_SEED chooses other work.
 */
#include "../src/heap/arena.h"
#include "check_main.h"
#include "heap_rig.h"

#define ROUNDS 4u
#define STEPS_MOST                                                                                                     \
	1500u /* after fewer, blocks are kept, unless the device is so full that memory is moved all the time */
#define DISTURBED 120u

static const uint64_t sizes[] = {40 * CLV_KIB, 40 * CLV_KIB,   200 * CLV_KIB - 512,
				 3 * CLV_MIB,  1100 * CLV_KIB, 40 * CLV_KIB};

static struct rig r;

static unsigned kept(void)
{
	return ((struct cleave_heap *)r.heap)->arenas[0]->recent.count;
}

/* One of its blocks may stay, or be freed on another stream. */
static void step_of(unsigned stream, bool odd)
{
	unsigned before = r.count;
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++)
		rig_alloc(&r, stream, sizes[i]);
	if (odd && r.count > before) {
		uint64_t what = clv_rng_below(&r.rng, 3);
		if (what == 1)
			rig_free(&r, r.count - 1, (unsigned)clv_rng_below(&r.rng, r.config.streams + 1));
		before += what == 2;
	}
	while (r.count > before)
		rig_free(&r, r.count - 1, stream);
}

static void free_most(void)
{
	while (r.count > 8)
		rig_free(&r, (unsigned)clv_rng_below(&r.rng, r.count), 0);
}

/* Returns in how many rounds blocks were kept. */
static unsigned work(struct rig_config config, const struct clv_fault_config *faults)
{
	unsigned rounds = 0;
	rig_open(&r, &config);
	if (faults)
		clv_fault_set(r.fault, faults);
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned stream = 1 + round % config.streams;
		for (unsigned i = 0; i < DISTURBED; i++)
			rig_step(&r, config.capacity / 2);
		rig_set_limit(&r, 0);
		rig_set_headroom(&r, 0);
		rig_set_foreign(&r, 0);
		free_most();
		unsigned steps = 0;
		while (steps++ < STEPS_MOST && kept() < CLV_ARRAY_LEN(sizes))
			step_of(stream, false);
		rounds += kept() > 0;
		for (unsigned i = 0; i < DISTURBED; i++) {
			for (unsigned k = 0; k < 3; k++)
				step_of(stream, k == 0 && i % 8 == 7);
			if (i % 4 == 3)
				rig_step(&r, config.capacity / 2);
		}
	}
	rig_set_well(&r, true);
	r.config.faults_expected = false;
	rig_free_all(&r);
	rig_set_foreign(&r, 0);
	rig_trim(&r, 0);
	ck_assert_uint_eq(kept(), 0);
	ck_assert_uint_eq(clv_sim_used(r.sim, 0), 0);
	rig_close(&r);
	return rounds;
}

START_TEST(at_random)
{
	unsigned rounds = 0;
	for (unsigned i = 0; i < 6; i++)
		rounds += work((struct rig_config){.seed = 500 + i,
						   .settings = i % 3 == 2 ? "growth:tight" : NULL,
						   .capacity = (64 + 64 * (uint64_t)i) * CLV_MIB,
						   .streams = 1 + i % 3,
						   .manual = i % 2,
						   .check_every = 13},
			       NULL);
	ck_assert_uint_ge(rounds, 6 * ROUNDS / 2);
}
END_TEST

/* Each block is written and read by asynchronous work. */
START_TEST(bytes_survive)
{
	unsigned rounds = 0;
	for (unsigned i = 0; i < 2; i++)
		rounds += work((struct rig_config){.seed = 600 + i,
						   .capacity = 96 * CLV_MIB,
						   .streams = 2,
						   .manual = i == 1,
						   .backing = true,
						   .check_every = 50},
			       NULL);
	ck_assert_uint_ge(rounds, ROUNDS);
}
END_TEST

START_TEST(calls_fail)
{
	unsigned rounds = 0;
	for (unsigned i = 0; i < 4; i++) {
		struct clv_fault_config faults = {.seed = i};
		for (int call = 0; call < CLV_CALL_COUNT; call++)
			faults.chance_per_million[call] = i % 2 ? 300000 : 30000;
		rounds += work((struct rig_config){.seed = 700 + i,
						   .capacity = 128 * CLV_MIB,
						   .streams = 2,
						   .manual = i % 2,
						   .check_every = 13,
						   .faults_expected = true},
			       &faults);
	}
	ck_assert_uint_ge(rounds, ROUNDS);
}
END_TEST

CHECK_MAIN("recent_model", at_random, bytes_survive, calls_fail)
