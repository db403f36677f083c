/* SPDX-License-Identifier: MIT
 *
 * Random operations on the heap and on a model of it. CLEAVE_TEST_STEPS says how many operations a case has.
 */
#include "check_main.h"
#include "heap_rig.h"

/* Returns how many requests failed. */
static uint64_t random_work(struct rig_config config, uint64_t steps)
{
	static struct rig r;
	const char *other = getenv("CLEAVE_TEST_STEPS");
	steps = other ? strtoull(other, NULL, 0) : steps;
	rig_open(&r, &config);
	uint64_t target = config.capacity / 2;
	while (r.step < steps) {
		if (r.step % 200 == 0) /* from nearly empty to more than there is */
			target = clv_rng_range(&r.rng, config.capacity / 8, config.capacity + config.capacity / 8);
		rig_step(&r, target);
	}
	rig_free_all(&r);
	rig_set_foreign(&r, 0);
	rig_trim(&r, 0);
	ck_assert_uint_eq(clv_sim_used(r.sim, 0), 0);
	uint64_t failures = r.failures;
	rig_close(&r);
	return failures;
}

START_TEST(normal_growth)
{
	static const uint64_t capacities[] = {64 * CLV_MIB, 100 * CLV_MIB, 256 * CLV_MIB, 700 * CLV_MIB, 2 * CLV_GIB};
	uint64_t failures = 0;
	for (unsigned i = 0; i < 10; i++)
		failures += random_work((struct rig_config){.seed = i, .capacity = capacities[i % 5], .streams = 1 + i % 5, .manual = i % 3 != 2,
						.check_every = 7}, 2500);
	ck_assert_uint_gt(failures, 0); /* the edge was reached */
}
END_TEST

START_TEST(tight_growth)
{
	static const uint64_t capacities[] = {64 * CLV_MIB, 130 * CLV_MIB, 512 * CLV_MIB, CLV_GIB};
	uint64_t failures = 0;
	for (unsigned i = 0; i < 8; i++)
		failures += random_work((struct rig_config){.seed = 100 + i, .settings = "growth:tight", .capacity = capacities[i % 4],
						.streams = 1 + i % 5, .manual = i % 3 != 2, .check_every = 7}, 2000);
	ck_assert_uint_gt(failures, 0); /* the edge was reached */
}
END_TEST

START_TEST(without_caches)
{
	uint64_t failures = 0;
	for (unsigned i = 0; i < 4; i++)
		failures += random_work((struct rig_config){.seed = 150 + i, .settings = "cache:off,frame:4MiB", .capacity = 96 * CLV_MIB,
						.streams = 2 + i, .manual = i % 2, .check_every = 7}, 2000);
	ck_assert_uint_gt(failures, 0); /* the edge was reached */
}
END_TEST

/* Each block is written and read by asynchronous work. */
START_TEST(bytes_survive)
{
	uint64_t failures = 0;
	for (unsigned i = 0; i < 6; i++)
		failures += random_work((struct rig_config){.seed = 200 + i, .settings = i % 2 ? "growth:tight" : NULL, .capacity = 64 * CLV_MIB,
						.streams = 1 + i % 5, .backing = true, .manual = i % 3 == 2, .check_every = 25}, 700);
	ck_assert_uint_gt(failures, 0); /* the edge was reached */
}
END_TEST

CHECK_MAIN("heap_model", normal_growth, tight_growth, without_caches, bytes_survive)
