/* SPDX-License-Identifier: MIT
 *
 * Where every held byte is: beside the books, which are kept in another way, and beside the witness, which knows which
 * frames hold live blocks.
 */
#include "../src/heap/breakdown.h"
#include "check_main.h"
#include "heap_rig.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

static struct clv_heap_state state_of(cleave_heap *heap)
{
	struct clv_heap_state s;
	ck_assert(clv_heap_state(heap, 0, &s, NULL, 0));
	const struct clv_breakdown *b = &s.sorted;
	ck_assert_uint_eq(b->live + b->internal + b->reserved + b->stream + b->hard + b->soft, b->held);
	ck_assert_uint_eq(b->held, s.stats.held_bytes);
	return s;
}

/* With one thread the books and the walk see the same. */
static struct clv_heap_state compared(cleave_heap *heap)
{
	struct clv_heap_state s = state_of(heap);
	ck_assert_uint_eq(s.sorted.live, s.stats.live_bytes);
	ck_assert_uint_eq(s.sorted.internal, s.stats.rounding_bytes);
	ck_assert_uint_eq(s.sorted.reserved, s.stats.reservation_bytes);
	ck_assert_uint_le(s.sorted.stream, s.stats.pending_bytes + s.stats.free_bytes);
	return s;
}

/* When nothing is pending, what a trim leaves is what live blocks pin; what it gives back was soft. */
static void compare_trimmed(struct rig *r)
{
	for (unsigned i = 1; i <= r->config.streams; i++)
		rig_complete(r, i);
	struct clv_heap_state before = compared(r->heap);
	uint64_t released = 0;
	ck_assert_int_eq(cleave_heap_trim(r->heap, 0, 0, &released), 0);
	struct clv_heap_state after = compared(r->heap);
	ck_assert_uint_eq(after.sorted.soft, 0);
	ck_assert_uint_eq(after.sorted.stream, 0);
	ck_assert_uint_eq(after.sorted.held, rig_pinned(r));
	ck_assert_uint_eq(after.sorted.live, before.sorted.live);
	ck_assert_uint_ge(released, before.sorted.soft);
	ck_assert_uint_le(released, before.sorted.soft + before.sorted.stream);
	/* what was hard is hard still, with what was pending beside it */
	ck_assert_uint_ge(after.sorted.hard, before.sorted.hard);
	ck_assert_uint_le(after.sorted.hard, before.sorted.hard + before.sorted.stream);
}

static void random_work_of(const struct rig_config *config, int steps)
{
	struct rig r;
	struct clv_breakdown seen = {0};
	rig_open(&r, config);
	for (int i = 0; i < steps; i++) {
		rig_step(&r, config->capacity / 3);
		if (i % 23)
			continue;
		struct clv_heap_state s = compared(r.heap);
		seen.internal |= s.sorted.internal;
		seen.reserved |= s.sorted.reserved;
		seen.stream |= s.sorted.stream;
		seen.hard |= s.sorted.hard;
		seen.soft |= s.sorted.soft;
		if (i % (23 * 40) == 0 && !config->settings)
			compare_trimmed(&r);
	}
	/* else the test would show nothing of the kind */
	ck_assert(seen.internal && seen.stream && seen.hard && seen.soft);
	ck_assert_int_eq(seen.reserved != 0, config->settings && strstr(config->settings, "reserve"));
	rig_free_all(&r);
	ck_assert_uint_eq(compared(r.heap).sorted.live, 0);
	rig_close(&r);
}

START_TEST(random_work)
{
	random_work_of(&(struct rig_config){.seed = 3, .capacity = 256 * CLV_MIB, .streams = 4}, 6000);
	random_work_of(&(struct rig_config){.seed = 4, .capacity = 128 * CLV_MIB, .streams = 3, .manual = true}, 6000);
}
END_TEST

START_TEST(random_work_beside_reservations)
{
	random_work_of(&(struct rig_config){.seed = 5,
					    .capacity = 256 * CLV_MIB,
					    .streams = 3,
					    .settings = "reserve:3MiB*4,reserve:96KiB*9+class"},
		       4000);
}
END_TEST

/* ---- each kind, by hand ---- */

static struct rig_config by_hand(const char *settings)
{
	return (struct rig_config){
		.seed = 1, .capacity = 64 * CLV_MIB, .streams = 2, .manual = true, .settings = settings};
}

#define EXPECT(s, ...)                                                                                                 \
	do {                                                                                                           \
		struct clv_breakdown want_ = {__VA_ARGS__}, is_ = (s).sorted;                                          \
		want_.held = is_.held;                                                                                 \
		ck_assert_msg(!memcmp(&want_, &is_, sizeof(want_)),                                                    \
			      "held %zu: live %zu, internal %zu, reserved %zu, stream %zu, hard %zu, soft %zu",        \
			      (size_t)is_.held, (size_t)is_.live, (size_t)is_.internal, (size_t)is_.reserved,          \
			      (size_t)is_.stream, (size_t)is_.hard, (size_t)is_.soft);                                 \
	} while (0)

START_TEST(large_blocks)
{
	struct rig r;
	struct rig_config config = by_hand("growth:tight,frame:2MiB");
	rig_open(&r, &config);
	ck_assert_int_eq(rig_alloc(&r, 1, 500 * 1000), 0);
	const uint64_t live = clv_align_up(500 * 1000, CLV_GRAIN);
	EXPECT(compared(r.heap), .live = live, .hard = 2 * CLV_MIB - live);
	ck_assert_int_eq(rig_alloc(&r, 1, CLV_MIB), 0);
	EXPECT(compared(r.heap), .live = live + CLV_MIB, .hard = CLV_MIB - live);
	rig_free(&r, 1, 1); /* not complete, beside a live block */
	EXPECT(compared(r.heap), .live = live, .stream = 2 * CLV_MIB - live);
	rig_complete(&r, 1);
	rig_trim(&r, CLV_MIB); /* asks after events, and finds nothing to give back */
	EXPECT(compared(r.heap), .live = live, .hard = 2 * CLV_MIB - live);
	rig_free(&r, 0, 1);
	EXPECT(compared(r.heap), .stream = 500224, .hard = 0, .soft = 2 * CLV_MIB - 500224);
	rig_complete(&r, 1);
	rig_trim(&r, 0);
	EXPECT(compared(r.heap), .soft = 0);
	ck_assert_int_eq(rig_alloc(&r, 0, CLV_MIB), 0);
	rig_free(&r, 0, 0); /* complete at once, as the caller says */
	EXPECT(compared(r.heap), .soft = 2 * CLV_MIB);
	rig_close(&r);
}
END_TEST

START_TEST(small_blocks)
{
	struct rig r;
	struct rig_config config = by_hand("growth:tight,frame:2MiB");
	rig_open(&r, &config);
	ck_assert_int_eq(rig_alloc(&r, 1, 4200), 0); /* 4608 in a slot of 5120 */
	EXPECT(compared(r.heap), .live = 4608, .internal = 512, .hard = 2 * CLV_MIB - 5120);
	rig_free(&r, 0, 1);
	EXPECT(compared(r.heap), .soft = 2 * CLV_MIB); /* in the thread's cache: any request of the stream gets it */
	ck_assert_int_eq(rig_alloc(&r, 1, 4200), 0);
	ck_assert_int_eq(rig_alloc(&r, 1, 512), 0);
	rig_free(&r, 0, 2); /* by another stream, whose work is not done: slots beside a live one, then alone */
	EXPECT(compared(r.heap), .live = 512, .stream = 5120, .hard = 2 * CLV_MIB - 512 - 5120);
	rig_free(&r, 0, 2);
	EXPECT(compared(r.heap), .stream = 512 + 5120, .soft = 2 * CLV_MIB - 512 - 5120);
	rig_complete(&r, 2);
	rig_trim(&r, 0);
	EXPECT(compared(r.heap), .soft = 0);
	rig_close(&r);
}
END_TEST

START_TEST(held_back)
{
	struct rig r;
	struct rig_config config = by_hand("growth:tight,frame:2MiB,reserve:3MiB*2+name=pair,reserve:5MiB+hard");
	rig_open(&r, &config);
	ck_assert_int_eq(rig_alloc(&r, 1, 3 * CLV_MIB), 0);
	struct clv_heap_state s = compared(r.heap);
	ck_assert_uint_eq(s.sorted.live, 3 * CLV_MIB);
	ck_assert_uint_eq(s.sorted.reserved, 8 * CLV_MIB);
	ck_assert_uint_eq(s.sorted.soft, 0); /* 11 MiB take 12, the rest of which lies beside them */
	ck_assert_uint_eq(s.reservations, 2);
	cleave_reservation_stats rows[2] = {{.id = 77}, {.id = 77}};
	ck_assert(clv_heap_state(r.heap, 0, &s, rows, 1)); /* no more than there is room for */
	ck_assert_uint_eq(s.reservations, 2);
	ck_assert_uint_eq(rows[1].id, 77);
	ck_assert(clv_heap_state(r.heap, 0, &s, rows, 2));
	const cleave_reservation_stats *pair = &rows[rows[0].bytes != 3 * CLV_MIB];
	ck_assert_str_eq(pair->name, "pair");
	ck_assert_uint_eq(pair->held, 1);
	ck_assert_uint_eq(pair->served, 1);
	ck_assert_uint_eq(rows[rows[0].bytes == 3 * CLV_MIB].held, 1);
	rig_close(&r);
}
END_TEST

START_TEST(what_else_there_is)
{
	struct rig r;
	struct rig_config config = by_hand(NULL);
	struct clv_heap_state s;
	rig_open(&r, &config);
	memset(&s, 1, sizeof(s));
	ck_assert(!clv_heap_state(r.heap, 1, &s, NULL, 0)); /* there is no such device */
	ck_assert(!clv_heap_state(r.heap, -1, &s, NULL, 0));
	ck_assert_uint_eq(s.sorted.held, 0);
	ck_assert_int_eq(rig_alloc(&r, 1, 600), 0);
	ck_assert_int_eq(rig_alloc(&r, 2, CLV_MIB), 0);
	s = compared(r.heap);
	ck_assert_uint_eq(s.device_total, 64 * CLV_MIB);
	ck_assert_uint_eq(s.mapped, s.stats.held_bytes);
	ck_assert_uint_eq(s.streams, 2);
	ck_assert_uint_eq(s.threads, 1);
	ck_assert_uint_eq(s.stats.allocs, 2);
	ck_assert_uint_eq(s.small_allocs, 1);
	ck_assert_uint_eq(s.failure.number, 0);
	ck_assert_int_eq(rig_alloc(&r, 1, 65 * CLV_MIB), -ENOMEM);
	s = compared(r.heap);
	ck_assert_uint_eq(s.failure.number, 1);
	ck_assert_uint_eq(s.failure.request_bytes, 65 * CLV_MIB);
	ck_assert_uint_eq(s.failures_refused, 0);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	ck_assert(s.failed_ns <= ns && ns - s.failed_ns < 60000000000);
	rig_close(&r);
}
END_TEST

/* ---- while other threads work ---- */

#define THREADS 3

struct worker {
	cleave_heap *heap;
	uint64_t seed;
	_Atomic bool *stop;
};

static void *work(void *arg)
{
	const struct worker *w = arg;
	struct clv_rng rng = {w->seed};
	cleave_ptr blocks[64] = {0};
	const cleave_stream stream = {w->seed, w->seed};
	while (!*w->stop) {
		unsigned k = (unsigned)clv_rng_below(&rng, 64);
		if (blocks[k]) {
			ck_assert_int_eq(cleave_free(w->heap, blocks[k], stream), 0);
			blocks[k] = 0;
		} else {
			ck_assert_int_eq(cleave_alloc(w->heap, 0, stream, clv_rng_range(&rng, 1, 80000), &blocks[k]),
					 0);
		}
	}
	for (unsigned k = 0; k < 64; k++)
		ck_assert_int_eq(cleave_free(w->heap, blocks[k], stream), 0);
	return NULL;
}

START_TEST(beside_threads)
{
	struct clv_driver *sim = clv_sim_open(&(struct clv_sim_config){.capacity = 256 * CLV_MIB});
	cleave_heap *heap;
	pthread_t threads[THREADS];
	struct worker workers[THREADS];
	_Atomic bool stop = false;
	ck_assert_int_eq(cleave_heap_open(&heap, sim, NULL, NULL, 0), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){heap, i + 1, &stop};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	struct clv_heap_state s;
	for (int i = 0; i < 300;) {
		i += clv_heap_state(heap, 0, &s, NULL, 0); /* false until the first of them has come */
		ck_assert_uint_eq(s.sorted.live + s.sorted.internal + s.sorted.reserved + s.sorted.stream +
					  s.sorted.hard + s.sorted.soft,
				  s.sorted.held);
		ck_assert_uint_le(s.sorted.live, THREADS * 64 * clv_align_up(80000, CLV_GRAIN));
	}
	stop = true;
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(compared(heap).sorted.live, 0);
	cleave_heap_close(heap);
	sim->close(sim);
}
END_TEST

CHECK_MAIN("breakdown", random_work, random_work_beside_reservations, large_blocks, small_blocks, held_back,
	   what_else_there_is, beside_threads)
