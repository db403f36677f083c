/* SPDX-License-Identifier: MIT */
#include "../tracing/memory.h"
#include "../tracing/replay/fit.h"
#include "../tracing/replay/replay.h"
#include "check_main.h"

#include <string.h>

static struct clv_pool_id pools[1];
static uint64_t streams[2] = {0, 7};
static struct clv_trace trace = {.file = (char *)"made by a test", .streams = streams, .stream_count = 2};

static struct clv_event_record alloc_of(uint32_t block, uint64_t size)
{
	return (struct clv_event_record){.action = CLV_ACTION_ALLOC, .block = block, .size = size};
}

static struct clv_event_record free_of(uint32_t block)
{
	return (struct clv_event_record){.action = CLV_ACTION_FREE_COMPLETED, .block = block};
}

static struct clv_history history_of(struct clv_event_record *events, uint32_t count, uint32_t blocks)
{
	return (struct clv_history){
		.events = events, .event_count = count, .block_count = blocks, .pools = pools, .pool_count = 1};
}

static struct clv_replay_result replay(const struct clv_history *h, uint64_t capacity)
{
	struct clv_replay_result r;
	struct clv_error err = {{0}};
	const struct clv_replay_options o = {.policy = "packed", .capacity = capacity};
	ck_assert_msg(clv_replay(&trace, h, &o, &r, &err), "%s", err.text);
	return r;
}

/* Rounded to 512 B, and one above the other only while both are live: 1.5 KiB at the third event, then 2 KiB. An
 * allocator that puts block 1 right above block 0 needs 3 KiB. */
static struct clv_event_record few[] = {
	{.action = CLV_ACTION_ALLOC, .block = 0, .size = 513},
	{.action = CLV_ACTION_ALLOC, .block = 1, .size = 1},
	{.action = CLV_ACTION_FREE_REQUESTED, .block = 0},
	{.action = CLV_ACTION_OOM, .block = CLV_NO_BLOCK, .size = 1 << 30},
	{.action = CLV_ACTION_FREE_COMPLETED, .block = 0},
	{.action = CLV_ACTION_ALLOC, .block = 2, .size = 1536, .stream = 1},
};

START_TEST(knows_what_comes)
{
	struct clv_history h = history_of(few, CLV_ARRAY_LEN(few), 3);
	struct clv_replay_result r = replay(&h, 0);
	ck_assert_msg(r.completed, "%s", r.failure);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes, 2048);
	ck_assert_uint_eq(r.skipped_ooms, 1);
	ck_assert_uint_eq(r.events, h.event_count);
	ck_assert_uint_eq(r.requests, 4);
	ck_assert_uint_eq(r.stats.waits, 0);
	for (int c = 0; c < CLV_CALL_COUNT; c++)
		ck_assert_uint_eq(r.stats.driver.calls[c], 0);
}
END_TEST

/* The free counts when it is complete, not when it is asked for. */
START_TEST(blocks_live_until_the_free_is_complete)
{
	struct clv_event_record events[] = {alloc_of(0, 512),
					    {.action = CLV_ACTION_FREE_REQUESTED, .block = 0},
					    alloc_of(1, 512),
					    free_of(0),
					    alloc_of(2, 512)};
	struct clv_history h = history_of(events, 5, 3);
	ck_assert_uint_eq(replay(&h, 0).stats.peak_reserved_bytes, 1024);
	events[2] = free_of(0);
	events[3] = alloc_of(1, 512);
	ck_assert_uint_eq(replay(&h, 0).stats.peak_reserved_bytes, 1024);
	events[4] = alloc_of(CLV_NO_BLOCK, 512);
	ck_assert_uint_eq(replay(&h, 0).stats.peak_reserved_bytes, 512);
}
END_TEST

START_TEST(initial_blocks_are_there_from_the_start)
{
	struct clv_initial_block initial[] = {{.size = 1000, .block = 0}, {.size = 512, .block = 1}};
	struct clv_event_record events[] = {alloc_of(2, 512), free_of(0), alloc_of(3, 1024)};
	struct clv_history h = history_of(events, 3, 4);
	h.initial = initial;
	h.initial_count = 2;
	ck_assert_uint_eq(replay(&h, 0).stats.peak_reserved_bytes, 2048);
	h.event_count = 0;
	ck_assert_uint_eq(replay(&h, 0).stats.peak_reserved_bytes, 1536);
	struct clv_replay_result r = replay(&h, 1024);
	ck_assert(!r.completed);
	ck_assert_uint_eq(r.failed_at_event, 0);
}
END_TEST

START_TEST(capacity)
{
	struct clv_history h = history_of(few, CLV_ARRAY_LEN(few), 3);
	ck_assert(replay(&h, 2048).completed);
	struct clv_replay_result r = replay(&h, 2047);
	ck_assert(!r.completed);
	ck_assert_uint_le(r.stats.peak_reserved_bytes, 2047);
	ck_assert_msg(strstr(r.failure, "best packing") != NULL, "%s", r.failure);
}
END_TEST

START_TEST(fit)
{
	struct clv_event_record events[] = {alloc_of(0, CLV_MIB),     alloc_of(1, CLV_MIB), free_of(0),
					    alloc_of(2, 8 * CLV_MIB), free_of(1),           free_of(2)};
	struct clv_history h = history_of(events, 6, 3);
	h.peak_live_bytes = 9 * CLV_MIB;
	struct clv_fit_result f;
	struct clv_error err = {{0}};
	ck_assert(clv_fit(&trace, &h, &(struct clv_replay_options){.policy = "packed"}, NULL, &f, &err));
	ck_assert(f.found);
	ck_assert(f.monotone);
	ck_assert_uint_eq(f.fit_bytes, 10 * CLV_MIB);
}
END_TEST

/* What was found is told apart from what is proved. */
START_TEST(proofs)
{
	struct clv_history h = history_of(few, CLV_ARRAY_LEN(few), 3);
	struct clv_policy_stats s = replay(&h, 0).stats;
	ck_assert(s.searched);
	ck_assert(s.proved);
	ck_assert_uint_eq(s.least_bytes, 2048);
	s = replay(&h, 2047).stats; /* it does not complete, and nothing else would */
	ck_assert(s.proved);
	ck_assert_uint_eq(s.least_bytes, 2048);
	/* with room for anything, the search ends with what it finds first, which may be more than is needed */
	enum { BLOCKS = 12, LIVE = 6, TRIES = 200 };
	struct clv_rng rng = {.state = 7};
	int unproved = 0;
	for (int try = 0; try < TRIES; try++) {
		struct clv_event_record events[2 * BLOCKS];
		uint32_t live[LIVE], n = 0, held = 0;
		for (uint32_t block = 0; block < BLOCKS; block++) {
			uint32_t at = held < LIVE ? held++ : (uint32_t)clv_rng_below(&rng, LIVE);
			if (block >= LIVE)
				events[n++] = free_of(live[at]);
			live[at] = block;
			events[n++] = alloc_of(block, 512 * clv_rng_range(&rng, 1, 9));
		}
		h = history_of(events, n, BLOCKS);
		struct clv_policy_stats best = replay(&h, 0).stats;
		s = replay(&h, CLV_GIB).stats;
		ck_assert(s.searched && best.searched);
		ck_assert_int_eq(s.proved, s.least_bytes == s.peak_reserved_bytes);
		ck_assert_int_eq(best.proved, best.least_bytes == best.peak_reserved_bytes);
		ck_assert_uint_le(s.least_bytes, best.peak_reserved_bytes);
		ck_assert_uint_le(best.least_bytes, s.peak_reserved_bytes);
		unproved += !s.proved;
	}
	ck_assert_int_gt(unproved, 0);
	/* nothing was asked for */
	h = history_of(NULL, 0, 0);
	ck_assert(!replay(&h, 0).stats.searched);
}
END_TEST

/* Between what is live and what direct stacking would need; the same twice. */
START_TEST(random_work)
{
	enum { ROUNDS = 2000, LIVE = 24 };
	static struct clv_event_record events[2 * ROUNDS];
	struct clv_rng rng = {.state = 42};
	uint32_t live[LIVE], n = 0;
	uint64_t sizes[ROUNDS], held = 0, peak = 0;
	memset(live, 0xff, sizeof(live));
	for (uint32_t block = 0; block < ROUNDS; block++) {
		uint32_t at = (uint32_t)clv_rng_below(&rng, LIVE);
		if (live[at] != UINT32_MAX) {
			events[n++] = free_of(live[at]);
			held -= clv_align_up(sizes[live[at]], CLV_GRAIN);
		}
		sizes[block] = clv_rng_range(&rng, 1, (uint64_t)1 << clv_rng_range(&rng, 0, 24));
		events[n++] = alloc_of(block, sizes[block]);
		held += clv_align_up(sizes[block], CLV_GRAIN);
		peak = clv_max_u64(peak, held);
		live[at] = block;
	}
	struct clv_history h = history_of(events, n, ROUNDS);
	struct clv_replay_result r = replay(&h, 0), same = replay(&h, 0);
	ck_assert_msg(r.completed, "%s", r.failure);
	ck_assert_uint_ge(r.stats.peak_reserved_bytes, peak);
	ck_assert_uint_le(r.stats.peak_reserved_bytes, peak + peak / 2);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes % CLV_GRAIN, 0);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes, same.stats.peak_reserved_bytes);
	ck_assert(!replay(&h, peak - 1).completed);
}
END_TEST

START_TEST(sizes_that_no_device_has)
{
	static const uint64_t sizes[] = {UINT64_MAX, (uint64_t)1 << 63, ((uint64_t)1 << 46) + 1};
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++) {
		struct clv_event_record events[] = {alloc_of(0, 512), alloc_of(1, sizes[i])};
		struct clv_history h = history_of(events, 2, 2);
		struct clv_replay_result r = replay(&h, 0);
		ck_assert(!r.completed);
		ck_assert_uint_eq(r.failed_at_event, 1);
		ck_assert_uint_eq(r.stats.peak_reserved_bytes, 512);
		ck_assert_str_ne(r.failure, "");
	}
}
END_TEST

START_TEST(nothing_to_do)
{
	struct clv_history h = history_of(NULL, 0, 0);
	struct clv_replay_result r = replay(&h, 0);
	ck_assert(r.completed);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes, 0);
	struct clv_event_record empty = alloc_of(0, 0);
	h = history_of(&empty, 1, 1);
	ck_assert_uint_eq(replay(&h, 0).stats.peak_reserved_bytes, 0);
}
END_TEST

START_TEST(host_memory_runs_out)
{
	struct clv_history h = history_of(few, CLV_ARRAY_LEN(few), 3);
	struct clv_replay_result r;
	const struct clv_replay_options o = {.policy = "packed"};
	for (uint64_t n = 1; n <= 3; n++) {
		struct clv_error err = {{0}};
		clv_mem_fail_after(n);
		bool ok = clv_replay(&trace, &h, &o, &r, &err);
		clv_mem_fail_after(0);
		ck_assert(ok == (n > 1));
		ck_assert_ptr_nonnull(strstr(ok ? r.failure : err.text, "out of host memory"));
		ck_assert(!ok || !r.completed);
	}
}
END_TEST

START_TEST(has_no_settings)
{
	struct clv_error err = {{0}};
	struct clv_history h = history_of(NULL, 0, 0);
	struct clv_policy_config config = {.trace = &trace, .history = &h};
	ck_assert_ptr_null(clv_policy_open(&config, "packed:effort:1", &err));
	ck_assert_ptr_nonnull(strstr(err.text, "effort:1"));
}
END_TEST

CHECK_MAIN("packed", knows_what_comes, blocks_live_until_the_free_is_complete, initial_blocks_are_there_from_the_start,
	   capacity, fit, proofs, random_work, sizes_that_no_device_has, nothing_to_do, host_memory_runs_out,
	   has_no_settings)
