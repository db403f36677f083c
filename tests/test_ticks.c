/* SPDX-License-Identifier: MIT */
#include "../src/base/ticks.h"
#include "check_main.h"

#include <pthread.h>
#include <stdatomic.h>

#define OFF_NS 100000u /* a reading may have been interrupted, but hardly three times */

START_TEST(between_readings)
{
	clv_ticks_init();
	struct clv_ticks_scale scale = {.to = clv_ticks_read()};
	enum { COUNT = 20000 };
	static struct {
		uint64_t before, ticks, after;
	} seen[COUNT];
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < COUNT; i++) {
			seen[i].before = clv_clock_ns();
			seen[i].ticks = clv_ticks_now();
			seen[i].after = clv_clock_ns();
		}
		clv_ticks_extend(&scale);
		uint64_t last = 0;
		for (int i = 0; i < COUNT; i++) {
			uint64_t ns = clv_ticks_ns(&scale, seen[i].ticks);
			ck_assert_uint_ge(ns, last);
			ck_assert_uint_ge(ns + OFF_NS, seen[i].before);
			ck_assert_uint_le(ns, seen[i].after + OFF_NS);
			last = ns;
		}
	}
}
END_TEST

START_TEST(scales_meet)
{
	bool counter = clv_ticks_are_counter;
	clv_ticks_are_counter = true;
	struct clv_ticks_scale scale = {{1000, 500}, {4000, 2000}};
	ck_assert_uint_eq(clv_ticks_ns(&scale, 1000), 500);
	ck_assert_uint_eq(clv_ticks_ns(&scale, 2000), 1000);
	ck_assert_uint_eq(clv_ticks_ns(&scale, 4000), 2000);
	ck_assert_uint_eq(clv_ticks_ns(&scale, 6000), 3000); /* beyond */
	ck_assert_uint_eq(clv_ticks_ns(&scale, 0), 0);       /* and before */
	/* years of ticks */
	scale = (struct clv_ticks_scale){{0, 0}, {(uint64_t)1 << 62, (uint64_t)1 << 61}};
	ck_assert_uint_eq(clv_ticks_ns(&scale, (uint64_t)1 << 60), (uint64_t)1 << 59);
	/* nothing has passed */
	scale = (struct clv_ticks_scale){{7, 9}, {7, 9}};
	ck_assert_uint_eq(clv_ticks_ns(&scale, 100), 9);
	/* as after a machine has been moved: the counter is not where it was */
	scale.to = (struct clv_ticks_reading){UINT64_MAX / 2, UINT64_MAX / 4};
	clv_ticks_extend(&scale);
	ck_assert_uint_eq(clv_ticks_ns(&scale, scale.to.ticks), scale.to.ns);
	ck_assert_uint_eq(scale.from.ticks, scale.to.ticks);
	/* without a counter they are nanoseconds */
	clv_ticks_are_counter = false;
	ck_assert_uint_eq(clv_ticks_ns(&scale, 12345), 12345);
	uint64_t before = clv_clock_ns(), ticks = clv_ticks_now();
	ck_assert(ticks >= before && ticks <= clv_clock_ns());
	clv_ticks_are_counter = counter;
}
END_TEST

static _Atomic uint64_t newest;

/* Whoever sees another's ticks reads no fewer. */
static void *read_on(void *arg)
{
	uint64_t *wrong = arg;
	for (int i = 0; i < 200000; i++) {
		uint64_t seen = atomic_load(&newest), now = clv_ticks_now();
		*wrong += now < seen;
		while (seen < now && !atomic_compare_exchange_weak(&newest, &seen, now))
			;
	}
	return NULL;
}

START_TEST(one_order_for_all_threads)
{
	pthread_t threads[4];
	uint64_t wrong[4] = {0};
	clv_ticks_init();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_on, &wrong[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_eq(wrong[i], 0);
	}
}
END_TEST

CHECK_MAIN("ticks", between_readings, scales_meet, one_order_for_all_threads)
