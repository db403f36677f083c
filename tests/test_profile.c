/* SPDX-License-Identifier: MIT
 *
 * The named workloads: that they are what they are called, follow from the seed alone, and what must hold of every
 * policy they are put to.
 */
#include "../src/stress/profile.h"
#include "check_main.h"
#include "trace_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GIB CLV_GIB
#define MIB CLV_MIB

static struct clv_trace *make(const char *name, uint64_t seed, uint64_t capacity, uint64_t *end)
{
	struct clv_error err = {{0}};
	const struct clv_profile *p = clv_profile_find(name);
	ck_assert_ptr_nonnull(p);
	struct clv_trace *t = clv_profile_make(p, seed, capacity, end, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	return t;
}

static struct clv_replay_result replay(const struct clv_trace *t, const char *policy, uint64_t capacity)
{
	struct clv_replay_result r;
	struct clv_error err = {{0}};
	struct clv_replay_options o = {
		.policy = policy, .capacity = capacity, .event_lag_us = CLV_PROFILE_EVENT_LAG_US};
	ck_assert_msg(clv_replay(t, &t->histories[0], &o, &r, &err), "%s", err.text);
	return r;
}

START_TEST(names)
{
	ck_assert_ptr_null(clv_profile_find("nosuch"));
	ck_assert_ptr_null(clv_profile_find(""));
	size_t n = 0;
	for (; clv_profile_at(n); n++) {
		ck_assert_ptr_eq(clv_profile_find(clv_profile_name(clv_profile_at(n))), clv_profile_at(n));
		ck_assert_uint_gt(strlen(clv_profile_about(clv_profile_at(n))), 10);
	}
	ck_assert_uint_ge(n, 6);
}
END_TEST

/* Each is a history like an imported one, fits the device, and nearly fills it. */
START_TEST(histories)
{
	static const uint64_t capacities[] = {CLV_PROFILE_SMALLEST, CLV_PROFILE_CAPACITY, 288 * GIB};
	for (size_t n = 0; clv_profile_at(n); n++) {
		for (size_t c = 0; c < CLV_ARRAY_LEN(capacities); c++) {
			uint64_t end, live = 0, peak = 0;
			const char *name = clv_profile_name(clv_profile_at(n));
			struct clv_trace *t = make(name, 1, capacities[c], &end);
			const struct clv_history *h = &t->histories[0];
			const char *wrong = trace_history_wrong(t, h);
			ck_assert_msg(!wrong, "%s: %s", name, wrong);
			ck_assert_uint_eq(h->initial_count, 0);
			ck_assert_uint_eq(h->unmatched_frees, 0);
			ck_assert_uint_gt(h->event_count, 2000);
			for (uint32_t i = 0; i < h->event_count; i++) {
				uint64_t bytes = clv_align_up(h->events[i].size, CLV_GRAIN);
				live = h->events[i].action == CLV_ACTION_ALLOC ? live + bytes : live - bytes;
				peak = clv_max_u64(peak, live);
			}
			ck_assert_uint_eq(peak, h->peak_live_bytes);
			ck_assert_uint_eq(live, end);
			ck_assert_uint_gt(end, 0);
			ck_assert_uint_le(peak, capacities[c]);
			ck_assert_msg(peak > capacities[c] / 10 * 6, "%s: %" PRIu64 " of %" PRIu64, name, peak,
				      capacities[c]);
			clv_trace_free(t);
		}
	}
}
END_TEST

START_TEST(follow_from_the_seed)
{
	for (size_t n = 0; clv_profile_at(n); n++) {
		const char *name = clv_profile_name(clv_profile_at(n));
		uint64_t end_a, end_b, end_c;
		struct clv_trace *a = make(name, 5, 40 * GIB, &end_a), *b = make(name, 5, 40 * GIB, &end_b);
		struct clv_trace *c = make(name, 6, 40 * GIB, &end_c);
		const struct clv_history *x = &a->histories[0], *y = &b->histories[0], *z = &c->histories[0];
		size_t bytes = x->event_count * sizeof(*x->events);
		ck_assert_uint_eq(x->event_count, y->event_count);
		ck_assert_int_eq(memcmp(x->events, y->events, bytes), 0);
		ck_assert_uint_eq(end_a, end_b);
		ck_assert_msg(x->event_count != z->event_count || memcmp(x->events, z->events, bytes) != 0, "%s", name);
		/* and so does what the heap makes of it */
		struct clv_replay_result r = replay(a, "cleave", 40 * GIB), s = replay(b, "cleave", 40 * GIB);
		ck_assert_mem_eq(&r.stats, &s.stats, sizeof(r.stats));
		clv_trace_free(a);
		clv_trace_free(b);
		clv_trace_free(c);
	}
}
END_TEST

/* What must hold of any allocator. */
START_TEST(policies_hold_what_is_live)
{
	static const char *const policies[] = {"cleave", "torch", "torch:expandable_segments:True"};
	for (size_t n = 0; clv_profile_at(n); n++) {
		uint64_t end;
		struct clv_trace *t = make(clv_profile_name(clv_profile_at(n)), 1, 24 * GIB, &end);
		const struct clv_history *h = &t->histories[0];
		for (size_t p = 0; p < CLV_ARRAY_LEN(policies); p++) {
			struct clv_replay_result r = replay(t, policies[p], 0);
			ck_assert_msg(r.completed, "%s: %s: %s", t->file, policies[p], r.failure);
			ck_assert_uint_ge(r.stats.peak_reserved_bytes, h->peak_live_bytes);
			ck_assert_uint_ge(r.stats.held_bytes, end);
			ck_assert_uint_le(r.stats.held_bytes, r.stats.peak_reserved_bytes);
			ck_assert_uint_gt(r.stats.driver.ns, 0);
			ck_assert_uint_eq(r.requests, h->event_count);
			/* a limit is kept, whether the requests fit or not */
			r = replay(t, policies[p], 24 * GIB);
			ck_assert_uint_le(r.stats.peak_reserved_bytes, 24 * GIB);
			ck_assert(r.completed || r.failure[0]);
		}
		clv_trace_free(t);
	}
}
END_TEST

/* On the usual device the heap serves them all, with its defaults. */
START_TEST(cleave_completes)
{
	for (size_t n = 0; clv_profile_at(n); n++) {
		for (uint64_t seed = 1; seed <= 2; seed++) {
			uint64_t end;
			struct clv_trace *t =
				make(clv_profile_name(clv_profile_at(n)), seed, CLV_PROFILE_CAPACITY, &end);
			struct clv_replay_result r = replay(t, "cleave", CLV_PROFILE_CAPACITY);
			ck_assert_msg(r.completed, "%s, seed %" PRIu64 ": %s", t->file, seed, r.failure);
			clv_trace_free(t);
		}
	}
}
END_TEST

/* What makes each of them hard, in numbers of their requests. */
START_TEST(shapes)
{
	uint64_t end;
	struct clv_trace *t = make("pair", 1, CLV_PROFILE_CAPACITY, &end);
	for (uint32_t i = 0; i < t->histories[0].event_count; i++)
		ck_assert(t->histories[0].events[i].size == 530 * MIB || t->histories[0].events[i].size == 270 * MIB);
	clv_trace_free(t);

	t = make("experts", 1, CLV_PROFILE_CAPACITY, &end);
	ck_assert_uint_gt(t->histories[0].peak_live_bytes, CLV_PROFILE_CAPACITY - 66 * MIB);
	clv_trace_free(t);

	t = make("streams", 1, CLV_PROFILE_CAPACITY, &end);
	ck_assert_uint_eq(t->histories[0].stream_count, 64);
	clv_trace_free(t);

	/* a cache grows by many steps to several times its size: the same number of blocks, ever larger */
	t = make("kv", 1, CLV_PROFILE_CAPACITY, &end);
	uint64_t largest = 0;
	for (uint32_t i = 0; i < t->histories[0].event_count; i++)
		largest = clv_max_u64(largest, t->histories[0].events[i].size);
	ck_assert_uint_gt(largest, 10 * 24 * MIB);
	clv_trace_free(t);

	t = make("phases", 1, CLV_PROFILE_CAPACITY, &end);
	uint64_t smallest = UINT64_MAX;
	largest = 0;
	for (uint32_t i = 0; i < t->histories[0].event_count; i++) {
		smallest = clv_min_u64(smallest, t->histories[0].events[i].size);
		largest = clv_max_u64(largest, t->histories[0].events[i].size);
	}
	ck_assert_uint_lt(smallest, MIB / 4);
	ck_assert_uint_gt(largest, 3 * GIB);
	clv_trace_free(t);
}
END_TEST

CHECK_MAIN("profile", names, histories, follow_from_the_seed, policies_hold_what_is_live, cleave_completes, shapes)
