/* SPDX-License-Identifier: MIT */
#include "../tracing/policies/policy.h"
#include "../tracing/policies/torch_verify.h"
#include "../tracing/replay/replay.h"
#include "check_main.h"
#include "torch_recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB(x) ((uint64_t)(x)*CLV_MIB)
#define TOTAL 150109880320ull

static struct clv_policy *opened(const struct clv_trace *t, const char *settings, uint64_t capacity)
{
	struct clv_policy_config config = {.trace = t, .history = &t->histories[0], .capacity = capacity};
	struct clv_error err = {""};
	struct clv_policy *p = clv_policy_torch(&config, settings, &err);
	ck_assert_msg(p != NULL, "%s", err.text);
	return p;
}

static struct clv_policy_stats stats_of(struct clv_policy *p)
{
	struct clv_policy_stats s;
	p->ops->stats(p, &s);
	return s;
}

/* A trace of nothing but `blocks` block ids. */
static struct clv_trace *empty_trace(struct recorder *r, uint32_t blocks)
{
	struct clv_torch_settings settings;
	clv_torch_settings_default(&settings);
	recorder_open(r, &settings, CLV_TORCH_UNLIMITED, 0);
	for (uint32_t i = 0; i < blocks; i++)
		recorder_free(r, recorder_malloc(r, 512, 0, 0, 0));
	struct clv_trace *t = recorder_trace(r, 0, "", 0, 0);
	recorder_close(r);
	return t;
}

static bool ask(struct clv_policy *p, uint32_t block, uint64_t mib)
{
	return p->ops->alloc(p, block, MIB(mib), 0, 0);
}

static void give(struct clv_policy *p, uint32_t block)
{
	p->ops->free_requested(p, block, 0);
	p->ops->free_completed(p, block, 0);
}

/* ---- what is refused ---- */

START_TEST(refuses_settings_with_a_reason)
{
	static const char *const cases[][2] = {
		{"max_split_size_mb:19",
		 "ValueError: CachingAllocator option max_split_size_mb too small, must be >= 20"},
		{"backend:cudaMallocAsync",
		 "backend:cudaMallocAsync is another allocator (the driver's memory pools); torch:... "
		 "models PyTorch's native one"},
		{"per_process_memory_fraction:0.5",
		 "per_process_memory_fraction is a part of the device's memory, and the file "
		 "does not say how large that was: give --capacity"},
		{"tie_break:none", "tie_break is address, counter or segment, not 'none'"},
	};
	struct recorder r;
	struct clv_trace *t = empty_trace(&r, 1);
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_policy_config config = {.trace = t, .history = &t->histories[0]};
		struct clv_error err = {""};
		ck_assert_ptr_null(clv_policy_torch(&config, cases[i][0], &err));
		ck_assert_str_eq(err.text, cases[i][1]);
	}
	t->torch.present = false;
	struct clv_policy_config config = {.trace = t, .history = &t->histories[0]};
	struct clv_error err = {""};
	ck_assert_ptr_null(clv_policy_torch(&config, "recorded", &err));
	ck_assert_int_ne(err.text[0], 0);
	clv_trace_free(t);
}
END_TEST

START_TEST(takes_a_fraction_of_the_capacity)
{
	struct recorder r;
	struct clv_trace *t = empty_trace(&r, 4);
	struct clv_policy *p = opened(t, "per_process_memory_fraction:0.5", MIB(100));
	ck_assert(ask(p, 0, 50));
	ck_assert(!ask(p, 1, 20));
	ck_assert_uint_eq(stats_of(p).driver.calls[CLV_CALL_mem_alloc], 1); /* the limit is PyTorch's own */
	p->ops->close(p);
	clv_trace_free(t);
}
END_TEST

/* ---- what it does ---- */

START_TEST(completes_pending_frees_in_a_flush)
{
	struct recorder r;
	struct clv_trace *t = empty_trace(&r, 4);
	struct clv_policy *p = opened(t, "", MIB(100));
	ck_assert(ask(p, 0, 40));
	ck_assert(ask(p, 1, 60));
	p->ops->free_requested(p, 1, 0);
	p->ops->free_requested(p, 0, 0);
	ck_assert(ask(p, 2, 80));
	ck_assert_uint_eq(stats_of(p).oom_retries, 1);
	ck_assert_uint_eq(stats_of(p).waits, 1);
	ck_assert_uint_eq(stats_of(p).held_bytes, MIB(80));
	/* when the recording says so, too, it is done already */
	p->ops->free_completed(p, 0, 0);
	p->ops->free_completed(p, 1, 0);
	ck_assert_uint_eq(stats_of(p).held_bytes, MIB(80));
	p->ops->close(p);
	clv_trace_free(t);
}
END_TEST

START_TEST(charges_what_the_driver_does)
{
	struct recorder r;
	struct clv_trace *t = empty_trace(&r, 4);
	struct clv_policy *p = opened(t, "", 0);
	ask(p, 0, 30);
	give(p, 0);
	p->ops->empty_cache(p);
	ck_assert_uint_eq(stats_of(p).driver.calls[CLV_CALL_mem_alloc], 1);
	ck_assert_uint_eq(stats_of(p).driver.calls[CLV_CALL_mem_free], 1);
	ck_assert_uint_gt(stats_of(p).driver.ns, 0);
	p->ops->close(p);

	p = opened(t, "expandable_segments:True", 0);
	ask(p, 0, 30);
	give(p, 0);
	p->ops->empty_cache(p);
	struct clv_call_counts c = stats_of(p).driver;
	ck_assert_uint_eq(c.calls[CLV_CALL_create], 2);
	ck_assert_uint_eq(c.calls[CLV_CALL_map], 2);
	ck_assert_uint_eq(c.calls[CLV_CALL_set_access], 1);
	ck_assert_uint_eq(c.calls[CLV_CALL_unmap], 2);
	ck_assert_uint_eq(c.calls[CLV_CALL_release], 2);
	ck_assert_uint_eq(c.calls[CLV_CALL_address_reserve], 1);
	ck_assert_uint_eq(c.calls[CLV_CALL_address_free], 1);
	ck_assert_uint_eq(c.calls[CLV_CALL_mem_alloc], 0);
	p->ops->close(p);
	clv_trace_free(t);
}
END_TEST

START_TEST(keeps_nothing_of_a_recorded_oom)
{
	struct recorder r;
	struct clv_trace *t = empty_trace(&r, 4);
	struct clv_event_record oom = {.action = CLV_ACTION_OOM, .size = MIB(50), .block = CLV_NO_BLOCK};
	struct clv_policy *p = opened(t, "", MIB(100));
	ck_assert_ptr_null(p->ops->recorded_oom); /* skipped */
	p->ops->close(p);
	p = opened(t, "recorded", MIB(100));
	ask(p, 0, 60);
	p->ops->recorded_oom(p, &oom);
	ck_assert_uint_eq(stats_of(p).oom_retries, 1);
	/* served on a larger device, but the program had no use of it */
	oom.size = MIB(40);
	p->ops->recorded_oom(p, &oom);
	ck_assert_uint_eq(stats_of(p).peak_reserved_bytes, MIB(100));
	ck_assert(ask(p, 1, 40));
	ck_assert_uint_eq(stats_of(p).held_bytes, MIB(100));
	p->ops->close(p);
	clv_trace_free(t);
}
END_TEST

/* ---- a replay under the recorded settings does again what was recorded ---- */

START_TEST(repeats_a_recording)
{
	static const char *const confs[] = {"", "max_split_size_mb:20", "expandable_segments:True",
					    "garbage_collection_threshold:0.5", "roundup_power2_divisions:4"};
	for (size_t k = 0; k < CLV_ARRAY_LEN(confs); k++) {
		struct clv_torch_settings settings;
		struct clv_torch_recorded limit = {.has_probe = true, .cap_mib = 600, .total_bytes = TOTAL};
		struct clv_rng rng = {k};
		struct recorder r;
		uint32_t live[300], count = 0;
		ck_assert(clv_torch_settings_parse(&settings, confs[k], NULL));
		recorder_open(&r, &settings, clv_torch_recorded_limit(&limit), 0);
		for (int i = 0; i < 3000; i++) {
			if (count && (count == CLV_ARRAY_LEN(live) || clv_rng_below(&rng, 100) < 46)) {
				uint32_t at = (uint32_t)clv_rng_below(&rng, count);
				recorder_free(&r, live[at]);
				live[at] = live[--count];
			} else {
				uint64_t size = clv_rng_range(&rng, 1, clv_rng_below(&rng, 2) ? MIB(1) : MIB(30));
				uint32_t block = recorder_malloc(&r, size, (uint32_t)clv_rng_below(&rng, 2), 0, 0);
				if (block)
					live[count++] = block;
				else
					for (int n = 0; n < 10 && count; n++)
						recorder_free(&r, live[--count]);
			}
			if (clv_rng_below(&rng, 500) == 0)
				recorder_empty_cache(&r);
		}
		struct clv_torch_stats stats;
		clv_torch_get_stats(r.m, &stats);
		struct clv_trace *t = recorder_trace(&r, 0, confs[k], 600, TOTAL);
		struct clv_verify_result v;
		struct clv_error err = {""};
		ck_assert_msg(clv_torch_verify(t, &t->histories[0], &v, &err), "%s", err.text);
		struct clv_replay_options options = {.policy = "torch:recorded",
						     .empty_caches = v.empty_caches,
						     .empty_cache_count = v.empty_cache_count};
		struct clv_replay_result replay;
		ck_assert_msg(clv_replay(t, &t->histories[0], &options, &replay, &err), "%s", err.text);
		ck_assert_msg(replay.completed, "%s: %s", confs[k], replay.failure);
		ck_assert_uint_gt(r.retries, 0);
		ck_assert_uint_eq(replay.stats.oom_retries, r.retries);
		ck_assert_uint_eq(replay.stats.peak_reserved_bytes,
				  (uint64_t)stats.of[CLV_TORCH_ALL][CLV_TORCH_RESERVED_BYTES].peak);
		ck_assert_uint_eq(replay.stats.stranded_peak_bytes, stats.stranded_peak_bytes);
		ck_assert_uint_eq(replay.stats.stranded_peak_bytes, v.stranded_peak_bytes);
		for (int c = 0; c < CLV_CALL_COUNT; c++)
			if (c != CLV_CALL_mem_get_info && c != CLV_CALL_address_free)
				ck_assert_msg(replay.stats.driver.calls[c] == r.device.counts.calls[c],
					      "%s: %s %" PRIu64 " %" PRIu64, confs[k], clv_call_name(c),
					      replay.stats.driver.calls[c], r.device.counts.calls[c]);
		ck_assert_uint_eq(replay.stats.driver.calls[CLV_CALL_mem_get_info], r.ooms);
		clv_verify_free(&v);
		clv_trace_free(t);
		recorder_close(&r);
	}
}
END_TEST

/* ---- what it says ---- */

static void expect_text(struct clv_policy *p, const char *wanted)
{
	char text[1024];
	p->ops->explain(p, text, sizeof(text));
	ck_assert_msg(strstr(text, wanted) != NULL, "'%s' is not in '%s'", wanted, text);
}

START_TEST(explains_a_failure)
{
	struct recorder r;
	struct clv_trace *t = empty_trace(&r, 12);
	/* 49 in two holes beside blocks in use */
	struct clv_policy *p = opened(t, "", MIB(100));
	ask(p, 0, 50), give(p, 0), ask(p, 1, 20);
	ask(p, 2, 50), give(p, 2), ask(p, 3, 31);
	ck_assert(!ask(p, 4, 49));
	expect_text(p, "CUDA out of memory. Tried to allocate 50.0 MiB for a request of 49.0 MiB.");
	expect_text(p, "The device gives 100.0 MiB, of which 0 B is free.");
	expect_text(
		p,
		"PyTorch has reserved 100.0 MiB: 51.0 MiB is in use, and 49.0 MiB is reserved but unallocated; 49.0 MiB of "
		"that cannot go back, since blocks in use share its segments.");
	expect_text(p, "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
	ck_assert(!ask(p, 4, 50));
	expect_text(p, "At least 1.0 MiB more is needed than is unused, whatever the settings do with that.");
	char tiny[8];
	p->ops->explain(p, tiny, sizeof(tiny));
	ck_assert_str_eq(tiny, "CUDA ou");
	p->ops->close(p);

	/* no advice that is taken already: 9 of each page are in use */
	p = opened(t, "expandable_segments:True", MIB(100));
	for (uint32_t i = 0; i < 5; i++)
		ask(p, 2 * i, 9), ask(p, 2 * i + 1, 11);
	for (uint32_t i = 0; i < 5; i++)
		give(p, 2 * i + 1);
	ck_assert(!ask(p, 1, 20));
	expect_text(p, "expandable_segments is on already: whole free pages went back, and no setting moves");
	p->ops->close(p);

	p = opened(t, "expandable_segments:True,max_split_size_mb:20", MIB(100));
	ask(p, 0, 90), ask(p, 1, 9), give(p, 0), ask(p, 2, 21);
	ck_assert(!ask(p, 3, 70));
	expect_text(p, "expandable_segments is on, but with max_split_size_mb no request below 20.0 MiB may use");
	p->ops->close(p);

	p = opened(t, "max_split_size_mb:30", MIB(100));
	ask(p, 0, 28), give(p, 0), ask(p, 1, 10);
	ask(p, 2, 66);
	ck_assert(!ask(p, 3, 22));
	expect_text(p, "With max_split_size_mb a free block of 30.0 MiB or more serves no smaller request.");
	p->ops->close(p);

	/* a private pool */
	t->histories[0].pool_count = 2;
	p = opened(t, "", MIB(100));
	ck_assert(p->ops->alloc(p, 0, MIB(60), 0, 1));
	give(p, 0);
	ck_assert(!ask(p, 1, 50));
	expect_text(p, "60.0 MiB of it belongs to private pools, which give nothing back while they exist.");
	ask(p, 2, 30), give(p, 2);
	ck_assert(!p->ops->alloc(p, 3, MIB(70), 0, 1));
	expect_text(p, "for a request of 70.0 MiB to a private pool");
	expect_text(p, "While a request is diverted to a private pool, nothing cached is flushed.");
	p->ops->close(p);
	t->histories[0].pool_count = 1;
	clv_trace_free(t);
}
END_TEST

CHECK_MAIN("torch_policy", refuses_settings_with_a_reason, takes_a_fraction_of_the_capacity,
	   completes_pending_frees_in_a_flush, charges_what_the_driver_does, keeps_nothing_of_a_recorded_oom,
	   repeats_a_recording, explains_a_failure)
