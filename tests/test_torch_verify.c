/* SPDX-License-Identifier: MIT */
#include "../tracing/import/import.h"
#include "../tracing/memory.h"
#include "../tracing/policies/torch_verify.h"
#include "check_main.h"
#include "torch_recorder.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB(x) ((uint64_t)(x)*CLV_MIB)
#define TOTAL 150109880320ull /* of the device that the recordings come from */

static struct clv_verify_result verified(const struct clv_trace *t, const char *name)
{
	struct clv_verify_result r;
	struct clv_error err = {""};
	const struct clv_history *h = clv_trace_select(t, -1, &err);
	ck_assert_msg(h && clv_torch_verify(t, h, &r, &err), "%s: %s", name, err.text);
	return r;
}

static bool clean(const struct clv_verify_result *r)
{
	return !r->address_mismatches && !r->segment_mismatches && !r->oom_mismatches && r->final_state_matches;
}

static void expect_clean(const struct clv_verify_result *r, const char *name)
{
	ck_assert_msg(clean(r),
		      "%s: %" PRIu64 " addresses, %" PRIu64 " segments, %" PRIu64
		      " ooms, final state %d; event %" PRIu64 ": %s",
		      name, r->address_mismatches, r->segment_mismatches, r->oom_mismatches, r->final_state_matches,
		      r->first_mismatch.event, r->first_mismatch.text);
	ck_assert(!r->first_mismatch.set);
	ck_assert_uint_eq(r->late_mismatches, 0);
}

/* ---- real recordings ---- */

/* Calls `fn` for each recording of a folder whose name ends so; answers how many there were. */
static int each_file(const char *folder, const char *ending, void (*fn)(const char *path, const char *name))
{
	DIR *dir = opendir(folder);
	int count = 0;
	for (struct dirent *e; dir && (e = readdir(dir));) {
		char path[1024];
		size_t len = strlen(e->d_name), end = strlen(ending);
		if (len < end || strcmp(e->d_name + len - end, ending) != 0 || strncmp(e->d_name, "toggle", 6) == 0)
			continue; /* toggle: settings change while it runs, and no file records that */
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		fn(path, e->d_name);
		count++;
	}
	if (dir)
		closedir(dir);
	return count;
}

static int each_shared(void (*fn)(const char *path, const char *name))
{
	const char *shared = getenv("CLEAVE_SHARED");
	char folder[1024];
	int count = 0;
	static const char *const folders[] = {"traces", "traces/fuzz"};
	for (size_t i = 0; shared && i < CLV_ARRAY_LEN(folders); i++) {
		snprintf(folder, sizeof(folder), "%s/%s", shared, folders[i]);
		count += each_file(folder, ".pkl", fn);
	}
	if (!count)
		printf("skipped: there are no recordings in %s\n", shared ? shared : "CLEAVE_SHARED, which is not set");
	return count;
}

static struct clv_trace *imported(const char *path)
{
	struct clv_error err = {""};
	struct clv_trace *t = clv_trace_import(path, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	return t;
}

static void expect_exact(const char *path, const char *name)
{
	struct clv_trace *t = imported(path);
	if (!t->torch.present) {
		clv_trace_free(t);
		return;
	}
	struct clv_verify_result r = verified(t, name);
	expect_clean(&r, name);
	ck_assert_uint_eq(r.exact_from_event, 0);
	ck_assert_uint_gt(r.allocs, 0);
	/* what the allocator itself counted */
	if (t->torch.has_probe) {
		ck_assert_msg(r.retries == t->torch.retries, "%s: %" PRIu64 " retries of %" PRIu64, name, r.retries,
			      t->torch.retries);
		ck_assert_uint_eq(r.ooms, t->torch.ooms);
	}
	/* nothing that the recordings are known not to need was made up */
	ck_assert_uint_eq(r.inferred[CLV_INFERRED_VANISHED_POOL] + r.inferred[CLV_INFERRED_TIE_BREAK], 0);
	ck_assert(r.inferred[CLV_INFERRED_DRIVER_REFUSAL] == 0 || strncmp(name, "realoom", 7) == 0);
	for (uint32_t i = 1; i < r.empty_cache_count; i++)
		ck_assert_uint_le(r.empty_caches[i - 1], r.empty_caches[i]);
	ck_assert_uint_eq(r.empty_cache_count, r.inferred[CLV_INFERRED_EMPTY_CACHE]);
	clv_verify_free(&r);
	clv_trace_free(t);
}

START_TEST(recordings_are_exact)
{
	int count = each_shared(expect_exact);
	ck_assert(count == 0 || count >= 39);
}
END_TEST

START_TEST(bundled_recordings_are_exact)
{
	const char *data = getenv("CLEAVE_TEST_DATA");
	if (!data || each_file(data, ".clv", expect_exact) == 0)
		printf("skipped: there are no recordings in the test data\n");
}
END_TEST

/* The first events lost, as from a full ring buffer. What cannot be known may cost mismatches, but only before the event
 * from which the model says that it is exact; and it finds its way to the final state. */
static void expect_exact_late(const char *path, const char *name)
{
	struct clv_rng rng = {strlen(name) + (unsigned char)name[0]};
	for (int k = 0; k < 3; k++) {
		struct clv_trace *t = imported(path);
		struct clv_history *h = &t->histories[0];
		struct clv_error err = {""};
		uint32_t lost = (uint32_t)clv_rng_below(&rng, h->event_count);
		h->event_count -= lost;
		memmove(h->events, h->events + lost, h->event_count * sizeof(*h->events));
		ck_assert_msg(clv_history_link(t, h, &err), "%s", err.text);
		struct clv_verify_result r = verified(t, name);
		ck_assert_msg(r.late_mismatches == 0,
			      "%s without %u events: exact from %" PRIu64 " but event %" PRIu64 ": %s", name, lost,
			      r.exact_from_event, r.first_mismatch.event, r.first_mismatch.text);
		ck_assert_msg(r.final_state_matches, "%s without %u events", name, lost);
		ck_assert_uint_le(r.exact_from_event, h->event_count);
		clv_verify_free(&r);
		clv_trace_free(t);
	}
}

START_TEST(lost_beginnings_are_found_again)
{
	each_shared(expect_exact_late);
}
END_TEST

/* Settings that were not those of the recording cannot explain it. */
static void expect_mismatch(const char *path, const char *name)
{
	static const char *const names[] = {"plain.pkl", "split20.pkl", "expand.pkl", "roundup4.pkl", "serve.pkl"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++) {
		if (strcmp(names[i], name) != 0)
			continue;
		struct clv_trace *t = imported(path);
		if (t->torch.max_split_size == -1)
			t->torch.max_split_size = 100 << 20;
		else
			t->torch.max_split_size = 400 << 20;
		struct clv_verify_result r = verified(t, name);
		ck_assert_msg(!clean(&r), "%s", name);
		ck_assert(r.first_mismatch.set);
		ck_assert_uint_gt(r.late_mismatches, 0);
		ck_assert_uint_lt(r.first_mismatch.event, t->histories[0].event_count);
		ck_assert_int_ne(r.first_mismatch.text[0], 0);
		/* and yet it keeps in step: most is as recorded */
		ck_assert_uint_lt(r.address_mismatches, r.allocs / 2);
		ck_assert_uint_eq(r.inferred[CLV_INFERRED_VANISHED_POOL], 0);
		clv_verify_free(&r);
		clv_trace_free(t);
	}
}

START_TEST(wrong_settings_are_noticed)
{
	each_shared(expect_mismatch);
}
END_TEST

/* ---- made-up recordings: what the model did, without what a recording leaves out ---- */

struct work {
	const char *conf;
	uint64_t capacity_mib, cap_mib; /* 0: none; the capacity is not recorded */
	uint32_t streams, pools;
	bool pools_end; /* they are released half way, and others come */
	bool on_oom;    /* the default pool falls back to them */
};

static uint64_t random_size(struct clv_rng *rng)
{
	switch (clv_rng_below(rng, 6)) {
	case 0:
		return clv_rng_range(rng, 1, 4096);
	case 1:
		return clv_rng_range(rng, 1, MIB(1));
	case 2:
	case 3:
		return clv_rng_range(rng, MIB(1), MIB(10));
	case 4:
		return MIB(clv_rng_range(rng, 1, 40));
	default:
		return clv_rng_range(rng, MIB(10), MIB(64));
	}
}

static void end_pools(struct recorder *r, uint32_t *live, uint32_t *count, uint32_t *pools, uint32_t n)
{
	for (uint32_t i = 0; i < *count;) {
		struct clv_torch_block_info b;
		clv_torch_block_get(r->m, live[i], &b);
		if (!b.pool) {
			i++;
			continue;
		}
		recorder_free(r, live[i]);
		live[i] = live[--*count];
	}
	for (uint32_t p = 0; p < n; p++) {
		clv_torch_pool_release(r->m, pools[p]);
		pools[p] = recorder_pool(r, NULL);
	}
	recorder_empty_cache(r);
}

static void record_work(struct recorder *r, const struct work *w, uint64_t seed)
{
	struct clv_torch_settings settings;
	struct clv_error err = {""};
	struct clv_rng rng = {seed};
	uint32_t live[400], count = 0, pools[8];
	ck_assert_msg(clv_torch_settings_parse(&settings, w->conf, &err), "%s", err.text);
	struct clv_torch_recorded limit = {.has_probe = true, .cap_mib = w->cap_mib, .total_bytes = TOTAL};
	recorder_open(r, &settings, clv_torch_recorded_limit(&limit), MIB(w->capacity_mib));
	for (uint32_t p = 0; p < w->pools; p++)
		pools[p] = recorder_pool(r, &(struct clv_torch_pool_options){.use_on_oom = w->on_oom});
	for (int i = 0; i < 2500; i++) {
		if (count && (count == CLV_ARRAY_LEN(live) || clv_rng_below(&rng, 100) < 45)) {
			uint32_t k = (uint32_t)clv_rng_below(&rng, count);
			if (w->streams > 1 && clv_rng_below(&rng, 4) == 0)
				clv_torch_record_stream(r->m, live[k],
							recorder_stream((uint32_t)clv_rng_below(&rng, w->streams)));
			recorder_free(r, live[k]);
			live[k] = live[--count];
			continue;
		}
		uint32_t pool = w->pools && clv_rng_below(&rng, 3) == 0 ? pools[clv_rng_below(&rng, w->pools)] : 0;
		uint32_t block = recorder_malloc(r, random_size(&rng), (uint32_t)clv_rng_below(&rng, w->streams), pool,
						 (uint32_t)clv_rng_below(&rng, 3));
		if (block)
			live[count++] = block;
		else
			for (int k = 0; k < 20 && count; k++)
				recorder_free(r, live[--count]);
		if (clv_rng_below(&rng, 400) == 0)
			recorder_empty_cache(r);
		if (w->pools_end && i % 800 == 400)
			end_pools(r, live, &count, pools, w->pools);
	}
	if (w->pools_end)
		end_pools(r, live, &count, pools, w->pools);
}

static const struct work works[] = {
	{"", 0, 0, 1, 0, false},
	{"", 0, 700, 1, 0, false},
	{"", 700, 0, 1, 0, false},
	{"max_split_size_mb:20", 0, 700, 2, 0, false},
	{"max_split_size_mb:32,max_non_split_rounding_mb:40", 700, 0, 1, 0, false},
	{"garbage_collection_threshold:0.5", 0, 800, 2, 0, false},
	{"expandable_segments:True", 0, 700, 2, 0, false},
	{"expandable_segments:True", 700, 0, 3, 0, false},
	{"expandable_segments:True,max_split_size_mb:32", 0, 900, 1, 0, false},
	{"roundup_power2_divisions:[2:4,16:2,>:1],large_segment_size_mb:12", 0, 900, 8, 0, false},
	{"", 0, 900, 1, 3, false},
	{"roundup_power2_divisions:4", 0, 900, 2, 2, false},
	{"expandable_segments:True", 0, 900, 2, 2, false},
	{"", 0, 700, 1, 2, false, true},
	{"garbage_collection_threshold:0.6", 0, 900, 2, 1, false, true},
	{"expandable_segments:True", 0, 900, 1, 1, false, true},
};

static struct clv_trace *trace_of(const struct recorder *r, const struct work *w, uint32_t from)
{
	return recorder_trace(r, from, w->conf, w->cap_mib, w->cap_mib ? TOTAL : 0);
}

START_TEST(made_up_recordings_are_exact)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(works); i++)
		for (uint64_t seed = 1; seed <= 3; seed++) {
			const struct work *w = &works[i];
			struct recorder r;
			char name[64];
			snprintf(name, sizeof(name), "work %zu, seed %" PRIu64, i, seed);
			record_work(&r, w, seed);
			struct clv_trace *t = trace_of(&r, w, 0);
			struct clv_verify_result v = verified(t, name);
			expect_clean(&v, name);
			ck_assert_uint_eq(v.ooms, r.ooms);
			ck_assert_uint_eq(v.exact_from_event, 0);
			ck_assert_uint_eq(v.inferred[CLV_INFERRED_VANISHED_POOL], 0);
			/* with one stream and a known limit nothing is ambiguous but a flush whose request then failed */
			if (w->streams == 1 && !w->pools && w->cap_mib) {
				ck_assert_msg(v.retries == r.retries, "%s: %" PRIu64 " retries of %u", name, v.retries,
					      r.retries);
				ck_assert_uint_eq(v.inferred[CLV_INFERRED_EMPTY_CACHE], r.emptied);
			}
			clv_verify_free(&v);
			clv_trace_free(t);
			recorder_close(&r);
		}
}
END_TEST

START_TEST(made_up_beginnings_are_found_again)
{
	struct clv_rng rng = {5};
	for (size_t i = 0; i < CLV_ARRAY_LEN(works); i++) {
		const struct work *w = &works[i];
		struct recorder r;
		char name[64];
		record_work(&r, w, 9);
		for (int k = 0; k < 6; k++) {
			uint32_t lost = (uint32_t)clv_rng_below(&rng, r.count - 1);
			struct clv_trace *t = trace_of(&r, w, lost);
			snprintf(name, sizeof(name), "work %zu without %u events", i, lost);
			struct clv_verify_result v = verified(t, name);
			ck_assert_msg(v.late_mismatches == 0, "%s: exact from %" PRIu64 " but event %" PRIu64 ": %s",
				      name, v.exact_from_event, v.first_mismatch.event, v.first_mismatch.text);
			ck_assert_msg(v.final_state_matches, "%s", name);
			clv_verify_free(&v);
			clv_trace_free(t);
		}
		recorder_close(&r);
	}
}
END_TEST

/* A segment_free is compared, never obeyed; nor is anything else taken on trust. */
/* A recording in which segments lie over one another contradicts itself. That is found, and the walk comes to an end. */
START_TEST(segments_that_overlap_are_noticed)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct recorder r;
		struct clv_rng rng = {seed};
		record_work(&r, &works[seed % CLV_ARRAY_LEN(works)], seed);
		struct clv_trace *t = recorder_trace(&r, 0, works[seed % CLV_ARRAY_LEN(works)].conf, 0, 0);
		struct clv_history *h = &t->histories[0];
		uint64_t before = 0;
		int changed = 0;
		for (uint32_t i = 0; i < h->event_count; i++) {
			struct clv_event_record *e = &h->events[i];
			if (e->action != CLV_ACTION_SEGMENT_ALLOC)
				continue;
			if (before && clv_rng_below(&rng, 4) == 0) {
				e->addr = before + clv_rng_below(&rng, 4 * CLV_MIB);
				changed++;
			}
			before = e->addr;
		}
		struct clv_verify_result v = verified(t, "overlapping");
		ck_assert(!changed || !clean(&v));
		clv_verify_free(&v);
		clv_trace_free(t);
		recorder_close(&r);
	}
}
END_TEST

START_TEST(tampering_is_noticed)
{
	struct clv_rng rng = {11};
	int changed = 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(works); i++) {
		struct recorder r;
		record_work(&r, &works[i], 4);
		for (int k = 0; k < 30; k++) {
			struct clv_trace *t = trace_of(&r, &works[i], 0);
			struct clv_history *h = &t->histories[0];
			uint32_t at = (uint32_t)clv_rng_below(&rng, h->event_count);
			struct clv_event_record *e = &h->events[at];
			bool segment = e->action >= CLV_ACTION_SEGMENT_ALLOC && e->action <= CLV_ACTION_SEGMENT_UNMAP;
			if (e->action == CLV_ACTION_ALLOC) {
				e->addr += 512; /* somewhere else */
			} else if (e->action == CLV_ACTION_SEGMENT_FREE || e->action == CLV_ACTION_SEGMENT_UNMAP) {
				e->action = CLV_ACTION_OTHER; /* never happened */
			} else if (segment) {
				e->size += MIB(2);
			} else {
				clv_trace_free(t);
				continue;
			}
			struct clv_verify_result v = verified(t, "tampered");
			ck_assert_msg(!clean(&v), "work %zu, event %u (%s) was changed and nobody noticed", i, at,
				      clv_action_name(e->action));
			changed++;
			clv_verify_free(&v);
			clv_trace_free(t);
		}
		struct clv_trace *t = trace_of(&r, &works[i], 0);
		t->histories[0].blocks[clv_rng_below(&rng, t->histories[0].block_record_count)].size += 512;
		struct clv_verify_result v = verified(t, "tampered");
		ck_assert(!v.final_state_matches);
		clv_verify_free(&v);
		clv_trace_free(t);
		recorder_close(&r);
	}
	ck_assert_int_gt(changed, 100);
}
END_TEST

/* Each pool dies with all its segments, so the final state names none. */
START_TEST(pools_that_vanished_are_found)
{
	static const struct work ending[] = {{"", 0, 0, 1, 1, true}, {"", 0, 0, 2, 1, true}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(ending); i++)
		for (uint64_t seed = 1; seed < 4; seed++) {
			struct recorder r;
			char name[64];
			snprintf(name, sizeof(name), "ending %zu, seed %" PRIu64, i, seed);
			record_work(&r, &ending[i], seed);
			struct clv_trace *t = trace_of(&r, &ending[i], 0);
			ck_assert_uint_eq(t->histories[0].pool_count, 1);
			struct clv_verify_result v = verified(t, name);
			expect_clean(&v, name);
			ck_assert_uint_gt(v.inferred[CLV_INFERRED_VANISHED_POOL], 0);
			clv_verify_free(&v);
			clv_trace_free(t);
			recorder_close(&r);
		}
}
END_TEST

START_TEST(other_tie_breaks_are_found)
{
	static const char *const confs[] = {"tie_break:segment", "tie_break:counter"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(confs); i++) {
		struct work w = {confs[i], 0, 0, 1, 0, false};
		struct recorder r;
		record_work(&r, &w, 3);
		struct clv_trace *t = recorder_trace(&r, 0, "", 0, 0);
		struct clv_verify_result v = verified(t, confs[i]);
		expect_clean(&v, confs[i]);
		ck_assert_uint_eq(v.inferred[CLV_INFERRED_TIE_BREAK], 1);
		clv_verify_free(&v);
		clv_trace_free(t);
		recorder_close(&r);
	}
}
END_TEST

/* Recorders can leave out that a free was requested, or that it completed. */
START_TEST(half_of_each_free_is_enough)
{
	for (int half = 0; half < 2; half++)
		for (size_t i = 0; i < CLV_ARRAY_LEN(works); i++) {
			if (works[i].streams > 1)
				continue; /* there completions matter */
			struct recorder r;
			record_work(&r, &works[i], 6);
			uint32_t n = 0;
			for (uint32_t k = 0; k < r.count; k++)
				if (r.events[k].action !=
				    (half ? CLV_ACTION_FREE_REQUESTED : CLV_ACTION_FREE_COMPLETED))
					r.events[n++] = r.events[k];
			r.count = n;
			struct clv_trace *t = trace_of(&r, &works[i], 0);
			struct clv_verify_result v = verified(t, "half");
			expect_clean(&v, "half");
			clv_verify_free(&v);
			clv_trace_free(t);
			recorder_close(&r);
		}
}
END_TEST

START_TEST(a_file_without_settings_is_refused)
{
	struct recorder r;
	struct clv_verify_result v;
	struct clv_error err = {""};
	record_work(&r, &works[0], 1);
	struct clv_trace *t = trace_of(&r, &works[0], 0);
	t->torch.present = false;
	ck_assert(!clv_torch_verify(t, &t->histories[0], &v, &err));
	ck_assert_int_ne(err.text[0], 0);
	clv_trace_free(t);
	recorder_close(&r);
}
END_TEST

START_TEST(host_memory_may_run_out)
{
	struct recorder r;
	record_work(&r, &works[12], 1);
	struct clv_trace *t = trace_of(&r, &works[12], r.count / 2);
	int failures = 0;
	for (uint64_t n = 1; n < 200; n++) {
		struct clv_verify_result v;
		struct clv_error err = {""};
		clv_mem_fail_after(n);
		bool ok = clv_torch_verify(t, &t->histories[0], &v, &err);
		clv_mem_fail_after(0);
		ck_assert(ok || err.text[0]);
		failures += !ok;
		if (ok) {
			ck_assert_uint_eq(v.late_mismatches, 0);
			clv_verify_free(&v);
			break;
		}
	}
	ck_assert_int_gt(failures, 5);
	clv_trace_free(t);
	recorder_close(&r);
}
END_TEST

CHECK_MAIN("torch_verify", recordings_are_exact, bundled_recordings_are_exact, lost_beginnings_are_found_again,
	   wrong_settings_are_noticed, made_up_recordings_are_exact, made_up_beginnings_are_found_again,
	   segments_that_overlap_are_noticed, tampering_is_noticed, pools_that_vanished_are_found, other_tie_breaks_are_found, half_of_each_free_is_enough,
	   a_file_without_settings_is_refused, host_memory_may_run_out)
