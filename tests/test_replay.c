/* SPDX-License-Identifier: MIT */
#include "../src/driver/sim.h"
#include "../tracing/replay/replay.h"
#include "check_main.h"
#include "fake_policy.h"

#define EVENT(t, act, b, sz, st)                                                                                       \
	{                                                                                                              \
		.time_us = (t), .action = CLV_ACTION_##act, .block = (b), .size = (sz), .stream = (st)                 \
	}

static uint64_t stream_handles[] = {0, 77};
static struct clv_pool_id pools[] = {{0, 0}, {0, 1}};
static struct clv_trace trace = {.streams = stream_handles, .stream_count = 2, .file = (char *)"made by a test"};

static struct clv_history history_of(struct clv_event_record *events, uint32_t count, struct clv_initial_block *initial,
				     uint32_t initial_count, uint32_t blocks)
{
	return (struct clv_history){.events = events,
				    .event_count = count,
				    .initial = initial,
				    .initial_count = initial_count,
				    .pools = pools,
				    .pool_count = 2,
				    .block_count = blocks,
				    .peak_live_bytes = 1024};
}

static struct clv_replay_result replay(const struct clv_history *h, struct clv_replay_options o)
{
	struct clv_replay_result r;
	struct clv_error err = {{0}};
	if (!o.policy)
		o.policy = "fake";
	o.open = fake_open;
	ck_assert_msg(clv_replay(&trace, h, &o, &r, &err), "%s", err.text);
	ck_assert_int_eq(fake.opened, 1);
	ck_assert_int_eq(fake.closed, 1);
	return r;
}

/* Every kind of event, two streams, a private pool, time that goes back. */
static struct clv_event_record mixed[] = {
	EVENT(100, ALLOC, 2, 600, 0),
	EVENT(100, SEGMENT_ALLOC, CLV_NO_BLOCK, 2097152, 0),
	{.time_us = 150, .action = CLV_ACTION_ALLOC, .block = 3, .size = 700, .stream = 1, .pool = 1},
	EVENT(150, FREE_REQUESTED, 2, 600, 0),
	EVENT(140, FREE_REQUESTED, CLV_NO_BLOCK, 5, 0),
	EVENT(160, FREE_COMPLETED, CLV_NO_BLOCK, 5, 0),
	EVENT(140, FREE_COMPLETED, 2, 600, 0),
	EVENT(170, OOM, CLV_NO_BLOCK, 1 << 30, 0),
	EVENT(170, ALLOC, CLV_NO_BLOCK, 0, 0),
	EVENT(170, FREE_COMPLETED, 0, 512, 1),
	EVENT(180, SNAPSHOT, CLV_NO_BLOCK, 0, 0),
	{.time_us = 190, .action = CLV_ACTION_OTHER, .block = CLV_NO_BLOCK},
	{.time_us = 190, .action = 255, .block = CLV_NO_BLOCK},
};
static struct clv_initial_block mixed_initial[] = {
	{.addr = 4096, .size = 512, .stream = 1, .block = 0},
	{.addr = 8192, .size = 1000, .stream = 0, .block = 1, .pool = 1},
};

static struct clv_history mixed_history(void)
{
	struct clv_history h = history_of(mixed, CLV_ARRAY_LEN(mixed), mixed_initial, 2, 4);
	h.oom_count = 1;
	return h;
}

START_TEST(keeps_the_recorded_order)
{
	fake_reset();
	struct clv_history h = mixed_history();
	struct clv_replay_result r = replay(&h, (struct clv_replay_options){.policy = "fake:x", .event_lag_us = 1234});
	/* initial blocks first; time only when it grows, counted from the first event; the oom and what no block
	 * explains are left out */
	ck_assert_str_eq(fake.log, "a0:512@1/0 a1:1000@0/1 a2:600@0/0 t50 a3:700@1/1 r2@0 t60 f2@0 t70 f0@1 t80 t90 ");
	ck_assert(r.completed);
	ck_assert_str_eq(r.failure, "");
	ck_assert_uint_eq(r.skipped_ooms, 1);
	ck_assert_uint_eq(r.requests, 6);
	ck_assert_uint_eq(r.events, CLV_ARRAY_LEN(mixed));
	ck_assert(r.wall_s >= 0);
	ck_assert_uint_eq(r.stats.oom_retries, 3);
	ck_assert_uint_eq(r.stats.driver.calls[CLV_CALL_create], 7);
	ck_assert_str_eq(fake.name, "fake:x");
	ck_assert_uint_eq(fake.config.event_lag_us, 1234);
	ck_assert_ptr_eq(fake.config.history, &h);
	ck_assert_ptr_eq(fake.config.trace, &trace);
}
END_TEST

START_TEST(torch_gets_ooms_and_empty_caches)
{
	fake_reset();
	fake.torch = true;
	struct clv_history h = mixed_history();
	/* before the first event, twice before one, before the oom, and after the last event */
	const uint32_t empties[] = {0, 3, 3, 7, CLV_ARRAY_LEN(mixed)};
	struct clv_replay_result r = replay(
		&h, (struct clv_replay_options){.empty_caches = empties, .empty_cache_count = CLV_ARRAY_LEN(empties)});
	ck_assert_str_eq(fake.log,
			 "a0:512@1/0 a1:1000@0/1 empty a2:600@0/0 t50 a3:700@1/1 empty empty r2@0 t60 f2@0 empty "
			 "t70 oom:1073741824 f0@1 t80 t90 empty ");
	ck_assert_uint_eq(r.skipped_ooms, 0);
	ck_assert(r.completed);
	ck_assert_uint_eq(r.events, CLV_ARRAY_LEN(mixed));
}
END_TEST

START_TEST(operations_may_be_missing)
{
	fake_reset();
	fake.bare = true;
	struct clv_history h = mixed_history();
	const uint32_t empties[] = {2};
	struct clv_replay_result r =
		replay(&h, (struct clv_replay_options){.empty_caches = empties, .empty_cache_count = 1});
	ck_assert_str_eq(fake.log, "a0:512@1/0 a1:1000@0/1 a2:600@0/0 a3:700@1/1 f2@0 f0@1 ");
	ck_assert(r.completed);
	ck_assert_uint_eq(r.skipped_ooms, 1);
}
END_TEST

static bool never(uint64_t capacity)
{
	return false;
}

START_TEST(a_failing_request_ends_the_replay)
{
	fake_reset();
	fake.serves = never;
	fake.fail_block = 3;
	struct clv_history h = mixed_history();
	struct clv_replay_result r = replay(&h, (struct clv_replay_options){.capacity = 99});
	ck_assert(!r.completed);
	ck_assert_uint_eq(r.failed_at_event, 2);
	ck_assert_str_eq(r.failure, "no room");
	ck_assert_str_eq(fake.log, "a0:512@1/0 a1:1000@0/1 a2:600@0/0 t50 a3:700@1/1 ");
	ck_assert_uint_eq(r.events, 3);
	ck_assert_uint_eq(r.requests, 4);
	ck_assert_uint_eq(r.skipped_ooms, 0);
	ck_assert_uint_eq(fake.config.capacity, 99);
	ck_assert_uint_eq(r.stats.oom_retries, 3); /* statistics up to the failure */
}
END_TEST

START_TEST(a_failing_initial_block_is_event_0)
{
	fake_reset();
	fake.bare = true; /* and it explains nothing */
	fake.serves = never;
	fake.fail_block = 1;
	struct clv_history h = mixed_history();
	struct clv_replay_result r = replay(&h, (struct clv_replay_options){0});
	ck_assert(!r.completed);
	ck_assert_uint_eq(r.failed_at_event, 0);
	ck_assert_str_ne(r.failure, "");
	ck_assert_str_eq(fake.log, "a0:512@1/0 a1:1000@0/1 ");
	ck_assert_uint_eq(r.events, 0);
}
END_TEST

START_TEST(an_empty_history_completes)
{
	fake_reset();
	struct clv_history h = history_of(NULL, 0, NULL, 0, 0);
	struct clv_replay_result r = replay(&h, (struct clv_replay_options){0});
	ck_assert(r.completed);
	ck_assert_str_eq(fake.log, "");
}
END_TEST

START_TEST(a_refused_policy_is_an_error)
{
	fake_reset();
	fake.refuse_open_at = 1;
	struct clv_history h = mixed_history();
	struct clv_replay_result r;
	struct clv_error err = {{0}};
	ck_assert(!clv_replay(&trace, &h, &(struct clv_replay_options){.policy = "fake", .open = fake_open}, &r, &err));
	ck_assert_str_eq(err.text, "refused by the test");
	ck_assert_int_eq(fake.closed, 0);
}
END_TEST

static struct clv_replay_progress seen[16];
static size_t seen_count;

static void see(void *arg, const struct clv_replay_progress *p)
{
	ck_assert_ptr_eq(arg, seen);
	ck_assert_uint_lt(seen_count, CLV_ARRAY_LEN(seen));
	seen[seen_count++] = *p;
}

/* Stretches must neither drop nor repeat an event, wherever a cache is emptied; and progress is told once a stretch. */
START_TEST(long_histories)
{
	const uint32_t count = 3 * (1u << 20) + 10;
	struct clv_event_record *events = calloc(count, sizeof(*events));
	ck_assert_ptr_nonnull(events);
	for (uint32_t i = 0; i < count; i++)
		events[i] = (struct clv_event_record)EVENT(7, OOM, CLV_NO_BLOCK, 1, 0);
	struct clv_history h = history_of(events, count, NULL, 0, 0);
	const uint32_t empties[] = {5, 1u << 20, (2u << 20) + 1, count - 1};
	fake_reset();
	seen_count = 0;
	struct clv_replay_result r = replay(&h, (struct clv_replay_options){.empty_caches = empties,
									    .empty_cache_count = CLV_ARRAY_LEN(empties),
									    .progress = see,
									    .progress_arg = seen});
	ck_assert(r.completed);
	ck_assert_uint_eq(r.events, count);
	ck_assert_uint_eq(r.skipped_ooms, count);
	ck_assert_uint_ge(seen_count, 2);
	for (size_t i = 0; i < seen_count; i++) {
		ck_assert_str_eq(seen[i].policy, "fake");
		ck_assert_uint_eq(seen[i].total, count);
		ck_assert_uint_eq(seen[i].run, 0);
		ck_assert_uint_le(seen[i].done, count);
		ck_assert(i == 0 || seen[i].done > seen[i - 1].done);
	}
	free(events);
}
END_TEST

START_TEST(names_of_policies)
{
	struct clv_error err = {{0}};
	static const char *const known[] = {"cleave", "cleave:",        "cleave:growth:tight",
					    "torch",  "torch:recorded", "torch:max_split_size_mb:20",
					    "direct", "direct:x"};
	static const char *const unknown[] = {"", ":", "Cleave", "cleav", "cleave2", "torchx:1", "recorded", " torch"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(known); i++)
		ck_assert_msg(clv_policy_known(known[i], &err), "%s", known[i]);
	ck_assert_str_eq(err.text, "");
	for (size_t i = 0; i < CLV_ARRAY_LEN(unknown); i++) {
		err.text[0] = '\0';
		ck_assert_msg(!clv_policy_known(unknown[i], &err), "%s", unknown[i]);
		/* the sentence lists what there is */
		ck_assert_ptr_nonnull(strstr(err.text, "cleave[:SETTINGS]"));
		ck_assert_ptr_nonnull(strstr(err.text, "torch:recorded"));
		ck_assert_ptr_nonnull(strstr(err.text, "direct"));
		err.text[0] = '\0';
		ck_assert_ptr_null(clv_policy_open(&(struct clv_policy_config){0}, unknown[i], &err));
		ck_assert_ptr_nonnull(strstr(err.text, "unknown policy"));
	}
	ck_assert(clv_policy_is_torch("torch"));
	ck_assert(clv_policy_is_torch("torch:recorded"));
	ck_assert(!clv_policy_is_torch("cleave"));
	ck_assert(!clv_policy_is_torch("tor"));
}
END_TEST

/* The heap runs on a device that others own: with its streams, its calls counted from here on, as little as it may hold. */
START_TEST(cleave_on_a_given_device)
{
	static struct clv_event_record events[] = {
		EVENT(100, ALLOC, 0, 3 << 20, 0),
		EVENT(200, ALLOC, 1, 5 << 20, 1),
		EVENT(300, FREE_COMPLETED, 0, 3 << 20, 0),
		EVENT(400, ALLOC, 2, 3 << 20, 1),
	};
	const struct clv_history h = history_of(events, CLV_ARRAY_LEN(events), NULL, 0, 3);
	const cleave_stream streams[] = {{501, 1}, {502, 2}};
	struct clv_driver *sim = clv_sim_open(&(struct clv_sim_config){.capacity = CLV_GIB});
	ck_assert_ptr_nonnull(sim);
	const struct clv_policy_device device = {sim, streams};
	struct clv_replay_options o = {.policy = "cleave", .device = &device};
	struct clv_replay_result first, second, small;
	struct clv_error err = {{0}};
	ck_assert_msg(clv_replay(&trace, &h, &o, &first, &err), "%s", err.text);
	ck_assert(first.completed);
	ck_assert_uint_gt(first.stats.driver.calls[CLV_CALL_create], 0);
	ck_assert_uint_eq(first.stats.peak_reserved_bytes, clv_sim_used_peak(sim, 0));
	ck_assert_ptr_null(clv_sim_leaks(sim));
	ck_assert_msg(clv_replay(&trace, &h, &o, &second, &err), "%s", err.text);
	for (int i = 0; i < CLV_CALL_COUNT; i++)
		ck_assert_msg(first.stats.driver.calls[i] == second.stats.driver.calls[i], "%s",
			      clv_call_name((enum clv_call)i));
	o.capacity = 6 << 20;
	ck_assert_msg(clv_replay(&trace, &h, &o, &small, &err), "%s", err.text);
	ck_assert(!small.completed);
	ck_assert_uint_eq(small.failed_at_event, 1);
	ck_assert_ptr_null(clv_sim_leaks(sim));
	sim->close(sim);
}
END_TEST

CHECK_MAIN("replay", keeps_the_recorded_order, torch_gets_ooms_and_empty_caches, operations_may_be_missing,
	   a_failing_request_ends_the_replay, a_failing_initial_block_is_event_0, an_empty_history_completes,
	   a_refused_policy_is_an_error, long_histories, names_of_policies, cleave_on_a_given_device)
