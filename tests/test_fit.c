/* SPDX-License-Identifier: MIT */
#include "../tracing/replay/fit.h"
#include "check_main.h"
#include "fake_policy.h"

#define GRID CLV_FIT_GRID

/* What the fake device needs: from `from` on, except below `hole_end` where `hole` begins. */
static uint64_t from, hole, hole_end;
static bool fails_with_any; /* completes only without limit */

static bool serves(uint64_t capacity)
{
	if (capacity == 0)
		return true;
	if (fails_with_any)
		return false;
	return capacity >= from && (capacity < hole || capacity >= hole_end);
}

static bool never(uint64_t capacity)
{
	return false;
}

static struct clv_event_record events[] = {
	{.action = CLV_ACTION_ALLOC, .block = 0, .size = 4096},
	{.action = CLV_ACTION_FREE_COMPLETED, .block = 0, .size = 4096},
};
static struct clv_trace trace = {.file = (char *)"made by a test"};
static struct clv_history history = {.events = events, .event_count = 2, .block_count = 1};

static void setup(uint64_t live, uint64_t needs, uint64_t reserved)
{
	fake_reset();
	fake.serves = serves;
	fake.fail_block = 0;
	fake.reserved = reserved;
	history.peak_live_bytes = live;
	from = needs;
	hole = hole_end = 0;
	fails_with_any = false;
}

static struct clv_fit_result fit(const struct clv_replay_result *unlimited)
{
	struct clv_fit_result r;
	struct clv_error err = {{0}};
	struct clv_replay_options o = {.policy = "fake", .capacity = 12345, .open = fake_open};
	ck_assert_msg(clv_fit(&trace, &history, &o, unlimited, &r, &err), "%s", err.text);
	ck_assert_int_eq(fake.opened, fake.closed);
	ck_assert_uint_eq(r.runs, (uint64_t)fake.opened);
	/* each capacity once */
	for (int i = 0; i < fake.opened; i++)
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(fake.capacities[i], fake.capacities[j]);
	return r;
}

START_TEST(finds_every_threshold)
{
	/* all thresholds of a small range, also between grid points, below the start and above the end */
	for (uint64_t needs = 0; needs <= 70 * GRID; needs += GRID / 2) {
		setup(10 * GRID - 512, needs, 50 * GRID + 1);
		struct clv_fit_result r = fit(NULL);
		ck_assert(r.found);
		ck_assert_uint_eq(r.fit_bytes, clv_align_up(clv_max_u64(needs, 10 * GRID), GRID));
		ck_assert(r.monotone);
		ck_assert(r.modelled_driver_s == (double)r.fit_bytes * 1e-9); /* of the run at the fit */
		/* without limit, the two ends, upwards, bisection of at most 64 steps, the steps above */
		ck_assert_uint_le(r.runs, 1 + 2 + 6 + 6 + 16);
	}
}
END_TEST

START_TEST(stays_on_the_grid_from_peak_live)
{
	setup(3 * GRID + 1, 0, 5 * GRID);
	struct clv_fit_result r = fit(NULL);
	ck_assert_uint_eq(r.fit_bytes, 4 * GRID);
	ck_assert_uint_eq(fake.capacities[0], 0);
	ck_assert_uint_eq(fake.capacities[1], 4 * GRID);
	ck_assert_int_eq(fake.opened, 1 + 1 + 16);
	ck_assert_uint_eq(fake.capacities[17], 20 * GRID);
}
END_TEST

START_TEST(nothing_live_still_has_a_capacity)
{
	setup(0, 0, 0);
	struct clv_fit_result r = fit(NULL);
	ck_assert(r.found);
	ck_assert_uint_eq(r.fit_bytes, GRID); /* 0 would mean no limit */
}
END_TEST

START_TEST(reserved_below_live_does_no_harm)
{
	setup(20 * GRID, 23 * GRID, 0);
	struct clv_fit_result r = fit(NULL);
	ck_assert_uint_eq(r.fit_bytes, 23 * GRID);
}
END_TEST

START_TEST(tells_a_hole_above_the_fit)
{
	/* completes with 20 and 21, fails with 22..24, completes from 25: bisection between 10 and 50 ends somewhere
	 * true */
	for (uint64_t width = 1; width <= 20; width++) {
		setup(10 * GRID, 20 * GRID, 50 * GRID);
		hole = 22 * GRID;
		hole_end = (22 + width) * GRID;
		struct clv_fit_result r = fit(NULL);
		ck_assert(r.found);
		ck_assert(serves(r.fit_bytes));
		ck_assert(!serves(r.fit_bytes - GRID));
		bool monotone = true;
		for (uint64_t step = 1; step <= CLV_FIT_STEPS_ABOVE; step++)
			monotone &= serves(r.fit_bytes + step * GRID);
		ck_assert(r.monotone == monotone);
	}
	/* the 16th step above counts, the 17th does not */
	setup(10 * GRID, 0, 10 * GRID);
	hole = 26 * GRID;
	hole_end = 27 * GRID;
	ck_assert(!fit(NULL).monotone);
	setup(10 * GRID, 0, 10 * GRID);
	hole = 27 * GRID;
	hole_end = 28 * GRID;
	ck_assert(fit(NULL).monotone);
}
END_TEST

START_TEST(no_fit_where_it_never_completes)
{
	setup(10 * GRID, 0, 50 * GRID);
	fake.serves = never;
	struct clv_fit_result r = fit(NULL);
	ck_assert(!r.found);
	ck_assert_uint_eq(r.runs, 1); /* not even without limit: nothing more to try */

	setup(10 * GRID, 0, 50 * GRID);
	fails_with_any = true;
	r = fit(NULL);
	ck_assert(!r.found);
}
END_TEST

START_TEST(sizes_at_the_end_of_the_range)
{
	setup(UINT64_MAX, 0, 0);
	ck_assert(!fit(NULL).found);
	setup(UINT64_MAX / 4 - 4 * GRID, UINT64_MAX / 4 - 2 * GRID, UINT64_MAX / 4 - GRID);
	struct clv_fit_result r = fit(NULL);
	ck_assert(r.found);
	ck_assert_uint_eq(r.fit_bytes, clv_align_up(UINT64_MAX / 4 - 2 * GRID, GRID));
}
END_TEST

START_TEST(takes_the_result_without_limit)
{
	setup(10 * GRID, 12 * GRID, 999 * GRID);
	struct clv_replay_result unlimited = {.completed = true};
	unlimited.stats.peak_reserved_bytes = 13 * GRID;
	struct clv_fit_result r = fit(&unlimited);
	ck_assert_uint_eq(r.fit_bytes, 12 * GRID);
	for (int i = 0; i < fake.opened; i++)
		ck_assert(fake.capacities[i] != 0 && fake.capacities[i] < 40 * GRID);
	unlimited.completed = false;
	setup(10 * GRID, 12 * GRID, 999 * GRID);
	ck_assert(!fit(&unlimited).found);
	ck_assert_int_eq(fake.opened, 0);
}
END_TEST

START_TEST(an_error_in_any_run_is_an_error)
{
	setup(10 * GRID, 31 * GRID, 50 * GRID);
	int runs = (int)fit(NULL).runs;
	for (int n = 1; n <= runs; n++) {
		setup(10 * GRID, 31 * GRID, 50 * GRID);
		fake.refuse_open_at = n;
		struct clv_fit_result r;
		struct clv_error err = {{0}};
		struct clv_replay_options o = {.policy = "fake", .open = fake_open};
		ck_assert(!clv_fit(&trace, &history, &o, NULL, &r, &err));
		ck_assert_str_eq(err.text, "refused by the test");
		ck_assert_int_eq(fake.opened, n - 1);
		ck_assert_int_eq(fake.closed, n - 1);
	}
}
END_TEST

static uint64_t last_run;

static void see(void *arg, const struct clv_replay_progress *p)
{
	ck_assert_ptr_eq(arg, &last_run);
	ck_assert_uint_ge(p->run, last_run);
	ck_assert_uint_ne(p->capacity, 0);
	ck_assert_str_eq(p->policy, "fake");
	last_run = p->run;
}

START_TEST(tells_progress_by_run)
{
	setup(10 * GRID, 31 * GRID, 50 * GRID);
	struct clv_fit_result r;
	struct clv_error err = {{0}};
	struct clv_replay_options o = {.policy = "fake", .open = fake_open, .progress = see, .progress_arg = &last_run};
	last_run = 0;
	ck_assert(clv_fit(&trace, &history, &o, NULL, &r, &err));
	ck_assert_uint_eq(last_run, r.runs);
}
END_TEST

CHECK_MAIN("fit", finds_every_threshold, stays_on_the_grid_from_peak_live, nothing_live_still_has_a_capacity,
	   reserved_below_live_does_no_harm, tells_a_hole_above_the_fit, no_fit_where_it_never_completes,
	   sizes_at_the_end_of_the_range, takes_the_result_without_limit, an_error_in_any_run_is_an_error,
	   tells_progress_by_run)
