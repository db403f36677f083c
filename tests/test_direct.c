/* SPDX-License-Identifier: MIT */
#include "../src/driver/cost.h"
#include "../tracing/replay/fit.h"
#include "../tracing/replay/replay.h"
#include "check_main.h"

#include <stdlib.h>
#include <string.h>

#define FRAME (2 * CLV_MIB)

static uint64_t streams[] = {0};
static struct clv_pool_id pools[1];
static struct clv_trace trace = {.file = (char *)"made by a test", .streams = streams, .stream_count = 1};

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
	const struct clv_replay_options o = {.policy = "direct", .capacity = capacity};
	ck_assert_msg(clv_replay(&trace, h, &o, &r, &err), "%s", err.text);
	return r;
}

/* 1 B, 2 MiB and 2 MiB + 1 B: four frames at most; then three, two, three. */
static struct clv_event_record few[] = {
	{.action = CLV_ACTION_ALLOC, .block = 0, .size = 1},
	{.action = CLV_ACTION_ALLOC, .block = 1, .size = FRAME},
	{.action = CLV_ACTION_ALLOC, .block = 2, .size = FRAME + 1},
	{.action = CLV_ACTION_FREE_REQUESTED, .block = 0},
	{.action = CLV_ACTION_FREE_COMPLETED, .block = 0},
	{.action = CLV_ACTION_FREE_COMPLETED, .block = 1},
	{.action = CLV_ACTION_ALLOC, .block = 3, .size = 5},
};

START_TEST(each_request_is_a_frame)
{
	struct clv_history h = history_of(few, CLV_ARRAY_LEN(few), 4);
	struct clv_replay_result r = replay(&h, 0);
	ck_assert(r.completed);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes, 4 * FRAME);
	ck_assert_uint_eq(r.stats.held_bytes, 3 * FRAME);
	ck_assert_uint_eq(r.stats.stranded_peak_bytes, 0);
	ck_assert_uint_eq(r.stats.oom_retries, 0);
	ck_assert_uint_eq(r.stats.waits, 0);
	const uint64_t *calls = r.stats.driver.calls;
	ck_assert_uint_eq(calls[CLV_CALL_create], 4);
	ck_assert_uint_eq(calls[CLV_CALL_map], 4);
	ck_assert_uint_eq(calls[CLV_CALL_set_access], 4);
	ck_assert_uint_eq(calls[CLV_CALL_unmap], 2); /* what is live at the end is torn down uncounted */
	ck_assert_uint_eq(calls[CLV_CALL_release], 2);
	ck_assert_uint_eq(calls[CLV_CALL_address_reserve], 1);

	uint64_t ns = clv_cost_ns(CLV_CALL_address_reserve, CLV_GIB * 1024, 1);
	static const enum clv_call built[] = {CLV_CALL_create, CLV_CALL_map, CLV_CALL_set_access};
	static const enum clv_call undone[] = {CLV_CALL_unmap, CLV_CALL_release};
	for (size_t i = 0; i < CLV_ARRAY_LEN(built); i++)
		ns += 3 * clv_cost_ns(built[i], FRAME, 1) + clv_cost_ns(built[i], 2 * FRAME, 1);
	for (size_t i = 0; i < CLV_ARRAY_LEN(undone); i++)
		ns += 2 * clv_cost_ns(undone[i], FRAME, 1);
	ck_assert_uint_eq(r.stats.driver.ns, ns);
}
END_TEST

START_TEST(capacity_counts_whole_frames)
{
	struct clv_history h = history_of(few, CLV_ARRAY_LEN(few), 4);
	ck_assert(replay(&h, 4 * FRAME).completed);
	struct clv_replay_result r = replay(&h, 4 * FRAME - 1);
	ck_assert(!r.completed);
	ck_assert_uint_eq(r.failed_at_event, 2);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes, 2 * FRAME);
	ck_assert_ptr_nonnull(strstr(r.failure, "4.0 MiB"));
	ck_assert_ptr_nonnull(strstr(r.failure, "cuMemCreate"));
	r = replay(&h, 1);
	ck_assert(!r.completed);
	ck_assert_uint_eq(r.failed_at_event, 0);
}
END_TEST

START_TEST(fit_is_the_peak_of_frames)
{
	struct clv_history h = history_of(few, CLV_ARRAY_LEN(few), 4);
	h.peak_live_bytes = 512 + FRAME + FRAME + 512;
	struct clv_fit_result fit;
	struct clv_error err = {{0}};
	ck_assert(clv_fit(&trace, &h, &(struct clv_replay_options){.policy = "direct"}, NULL, &fit, &err));
	ck_assert(fit.found);
	ck_assert(fit.monotone);
	ck_assert_uint_eq(fit.fit_bytes, 4 * FRAME);
}
END_TEST

/* Addresses come back: 100 rounds of 64 GiB, 3 and 5 MiB fit into the one range of 1 TiB that is reserved. */
START_TEST(addresses_are_used_again)
{
	struct clv_event_record events[600];
	uint32_t n = 0;
	for (uint32_t i = 0; i < 100; i++) {
		events[n++] = alloc_of(3 * i, 64 * CLV_GIB);
		events[n++] = alloc_of(3 * i + 1, 3 * CLV_MIB);
		events[n++] = alloc_of(3 * i + 2, 5 * CLV_MIB);
		events[n++] = free_of(3 * i + 1);
		events[n++] = free_of(3 * i);
		events[n++] = free_of(3 * i + 2);
	}
	struct clv_history h = history_of(events, n, 300);
	struct clv_replay_result r = replay(&h, 0);
	ck_assert_msg(r.completed, "%s", r.failure);
	ck_assert_uint_eq(r.stats.driver.calls[CLV_CALL_address_reserve], 1);
	ck_assert_uint_eq(r.stats.held_bytes, 0);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes, 64 * CLV_GIB + 10 * CLV_MIB);
}
END_TEST

/* Random work against a count of frames. */
START_TEST(random_work)
{
	enum { ROUNDS = 4000, LIVE = 64 };
	struct clv_event_record *events = calloc(2 * ROUNDS, sizeof(*events));
	ck_assert_ptr_nonnull(events);
	struct clv_rng rng = {.state = 42};
	uint32_t live[LIVE], n = 0;
	uint64_t sizes[ROUNDS], held = 0, peak = 0, frees = 0;
	memset(live, 0xff, sizeof(live));
	for (uint32_t block = 0; block < ROUNDS; block++) {
		uint32_t at = (uint32_t)clv_rng_below(&rng, LIVE);
		if (live[at] != UINT32_MAX) {
			events[n++] = free_of(live[at]);
			held -= clv_align_up(sizes[live[at]], FRAME);
			frees++;
		}
		sizes[block] = clv_rng_range(&rng, 1, (uint64_t)1 << clv_rng_range(&rng, 0, 34));
		events[n++] = alloc_of(block, sizes[block]);
		held += clv_align_up(sizes[block], FRAME);
		peak = clv_max_u64(peak, held);
		live[at] = block;
	}
	struct clv_history h = history_of(events, n, ROUNDS);
	struct clv_replay_result r = replay(&h, 0);
	ck_assert_msg(r.completed, "%s", r.failure);
	ck_assert_uint_eq(r.stats.held_bytes, held);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes, peak);
	ck_assert_uint_eq(r.stats.driver.calls[CLV_CALL_release], frees);
	ck_assert(replay(&h, peak).completed);
	ck_assert(!replay(&h, peak - 1).completed);
	free(events);
}
END_TEST

START_TEST(sizes_that_no_device_has)
{
	static const uint64_t sizes[] = {UINT64_MAX, (uint64_t)1 << 63, ((uint64_t)1 << 62) + 1};
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++) {
		struct clv_event_record e = alloc_of(0, sizes[i]);
		struct clv_history h = history_of(&e, 1, 1);
		struct clv_replay_result r = replay(&h, 0);
		ck_assert(!r.completed);
		ck_assert_str_ne(r.failure, "");
		ck_assert(!replay(&h, CLV_GIB).completed);
	}
}
END_TEST

START_TEST(has_no_settings)
{
	struct clv_error err = {{0}};
	struct clv_history h = history_of(NULL, 0, 0);
	struct clv_policy_config config = {.trace = &trace, .history = &h};
	ck_assert_ptr_null(clv_policy_open(&config, "direct:growth:tight", &err));
	ck_assert_ptr_nonnull(strstr(err.text, "growth:tight"));
}
END_TEST

CHECK_MAIN("direct", each_request_is_a_frame, capacity_counts_whole_frames, fit_is_the_peak_of_frames,
	   addresses_are_used_again, random_work, sizes_that_no_device_has, has_no_settings)
