/* SPDX-License-Identifier: MIT
 *
 * Large blocks that are kept for the next request of their size. What is kept shows in the arena's books, and in what a pair of
 * request and free does not do: no call of the driver, no joining and cutting.
 */
#include "../src/heap/recent.h"
#include "../src/heap/heap_more.h"
#include "arena_rig.h"
#include "check_main.h"
#include "lasting_driver.h"

#include <errno.h>
#include <pthread.h>

#define PAIRS_ENOUGH 2000u /* after so many of one size a block of it is kept, if any is */

static uint64_t all_driver_calls(void)
{
	struct clv_call_counts counts;
	uint64_t sum = 0;
	sim->counts(sim, &counts);
	for (int i = 0; i < CLV_CALL_COUNT; i++)
		sum += counts.calls[i];
	return sum;
}

static void pairs(uint64_t id, size_t size, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		give(get(id, size), id);
}

/* A block of that size and stream is kept, the last of all. */
static void keep(uint64_t id, size_t size)
{
	const struct clv_extent *e = NULL;
	for (unsigned n = 0; n < PAIRS_ENOUGH && !(e && e->size == size && e->slot == slot_of(id)); n++) {
		pairs(id, size, 1);
		e = a->recent.newest;
	}
	ck_assert_ptr_nonnull(e);
	ck_assert_uint_eq(e->size, size);
	rig_valid();
}

static void nothing_kept(void)
{
	ck_assert_uint_eq(a->recent.count, 0);
	ck_assert_uint_eq(a->recent.bytes, 0);
	rig_valid();
}

START_TEST(comes_back)
{
	rig_open_capacity(256 * CLV_MIB);
	keep(1, 3 * CLV_MIB);
	cleave_heap_stats s = stats();
	uint64_t calls = all_driver_calls();
	cleave_ptr p = get(1, 3 * CLV_MIB);
	nothing_kept();
	ck_assert_uint_eq(stats().live_bytes, 3 * CLV_MIB);
	give(p, 1);
	for (int i = 0; i < 1000; i++) {
		ck_assert_uint_eq(get(1, 3 * CLV_MIB), p);
		give(p, 1);
	}
	cleave_heap_stats t = stats();
	ck_assert_uint_eq(all_driver_calls(), calls);
	ck_assert_uint_eq(t.splits, s.splits);
	ck_assert_uint_eq(t.merges, s.merges);
	ck_assert_uint_eq(t.allocs, s.allocs + 1001);
	ck_assert_uint_eq(t.frees, t.allocs);
	/* free to programs, and work of the stream may still use it */
	ck_assert_uint_eq(t.live_bytes, 0);
	ck_assert_uint_eq(t.live_blocks, 0);
	ck_assert_uint_eq(t.live_peak_bytes, 3 * CLV_MIB);
	ck_assert_uint_eq(t.cached_bytes, 3 * CLV_MIB);
	ck_assert_uint_eq(t.free_bytes, t.held_bytes);
	ck_assert_uint_eq(t.pending_bytes, s.pending_bytes);
	rig_shut();
}
END_TEST

/* Several of a size, others between them: the step of a program. */
START_TEST(a_step)
{
	static const size_t sizes[] = {96 * CLV_KIB, 33 * CLV_KIB,  5 * CLV_MIB,
				       96 * CLV_KIB, 700 * CLV_KIB, 96 * CLV_KIB};
	rig_open_capacity(256 * CLV_MIB);
	cleave_ptr p[CLV_ARRAY_LEN(sizes)];
	uint64_t calls = 0, merges = 0;
	for (unsigned step = 0; step < 1000; step++) {
		for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++)
			p[i] = get(1, sizes[i]);
		for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++)
			give(p[i], 1);
		if (step == 500) {
			calls = all_driver_calls();
			merges = stats().merges;
		}
	}
	ck_assert_uint_eq(a->recent.count, CLV_ARRAY_LEN(sizes));
	ck_assert_uint_eq(all_driver_calls(), calls);
	ck_assert_uint_eq(stats().merges, merges);
	rig_shut();
}
END_TEST

/* A size that comes once, one that is not asked for soon, and any as long as the heap grows. */
START_TEST(only_what_comes_back)
{
	rig_open_capacity(8 * CLV_GIB);
	for (unsigned i = 0; i < 3000; i++)
		give(get(1, 40 * CLV_KIB + i * 512), 1);
	nothing_kept();
	for (unsigned round = 0; round < 200; round++) {
		pairs(1, 3 * CLV_MIB, 1);
		for (unsigned i = 0; i < 100; i++)
			give(get(1, 40 * CLV_KIB + (round * 100 + i) * 512), 1);
	}
	nothing_kept();
	for (unsigned i = 0; i < 1000; i++) { /* a block that stays buys a frame now and then */
		get(1, 2 * CLV_MIB);
		pairs(1, 64 * CLV_KIB, 2);
		ck_assert_uint_eq(a->recent.count, 0);
	}
	ck_assert_uint_gt(stats().frames_created, 100);
	rig_valid();
	rig_shut();
}
END_TEST

/* So many blocks of a size at once are no step. */
START_TEST(not_too_many_of_a_size)
{
	rig_open_capacity(256 * CLV_MIB);
	static cleave_ptr p[200];
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 200; i++)
			p[i] = get(1, 64 * CLV_KIB);
		for (unsigned i = 0; i < 200; i++)
			give(p[i], 1);
		ck_assert_uint_le(a->recent.count, 16);
	}
	rig_valid();
	rig_shut();
}
END_TEST

/* Steps of eight blocks of a size each, from `size` on, one size after the other, in memory that is there already. */
static void steps_of_sizes(unsigned sizes, size_t size, size_t more)
{
	static cleave_ptr all[64 * 8];
	cleave_ptr p[8];
	for (unsigned i = 0; i < sizes * 8; i++)
		all[i] = get(1, 2 * size);
	for (unsigned i = 0; i < sizes * 8; i++)
		give(all[i], 1);
	for (unsigned k = 0; k < sizes; k++)
		for (unsigned n = 0; n < 300; n++) {
			for (unsigned i = 0; i < 8; i++)
				p[i] = get(1, size + k * more);
			for (unsigned i = 0; i < 8; i++)
				give(p[i], 1);
			ck_assert_uint_le(a->recent.count, CLV_RECENT_COUNT);
			ck_assert_uint_le(a->recent.bytes, CLV_RECENT_BYTES);
		}
	rig_valid();
}

START_TEST(bounded)
{
	rig_open_capacity(2 * CLV_GIB);
	pairs(1, CLV_RECENT_LARGEST + 512, PAIRS_ENOUGH);
	nothing_kept();
	keep(1, CLV_RECENT_LARGEST);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	nothing_kept();
	ck_assert_uint_eq(clv_sim_used(sim, 0), 0);
	steps_of_sizes(64, 64 * CLV_KIB, 512);
	ck_assert_uint_eq(a->recent.count, CLV_RECENT_COUNT);
	steps_of_sizes(16, 2 * CLV_MIB, 512);
	ck_assert_uint_gt(a->recent.bytes, CLV_RECENT_BYTES - 3 * CLV_MIB);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	nothing_kept();
	ck_assert_uint_eq(clv_sim_used(sim, 0), 0);
	rig_shut();
}
END_TEST

START_TEST(not_live)
{
	rig_open_capacity(256 * CLV_MIB);
	cleave_ptr start, p = get(1, 3 * CLV_MIB);
	size_t size;
	give(p, 1);
	keep(1, 3 * CLV_MIB);
	p = get(1, 3 * CLV_MIB);
	ck_assert_int_eq(cleave_block_info(heap, p + 5, &start, &size, NULL), 0);
	give(p, 1);
	ck_assert_uint_eq(a->recent.count, 1);
	ck_assert_int_eq(cleave_free(heap, p, stream(1)), -EINVAL);
	ck_assert_int_eq(cleave_free(heap, p, stream(2)), -EINVAL);
	ck_assert_int_eq(cleave_free(heap, p, CLEAVE_STREAM_ANY), -EINVAL);
	ck_assert_int_eq(cleave_block_info(heap, p, &start, &size, NULL), -EINVAL);
	ck_assert_int_eq(cleave_block_info(heap, p + 5, &start, &size, NULL), -EINVAL);
	ck_assert_int_eq(clv_heap_frames(heap, p, &start, &size, NULL, NULL), -EINVAL);
	ck_assert_uint_eq(stats().frees, stats().allocs);
	ck_assert_uint_eq(get(1, 3 * CLV_MIB), p);
	ck_assert_int_eq(cleave_block_info(heap, p + 5, &start, &size, NULL), 0);
	ck_assert_uint_eq(start, p);
	ck_assert_uint_eq(size, 3 * CLV_MIB);
	rig_shut();
}
END_TEST

/* The size that was asked for is that of the last request, not of an earlier one that is rounded up to the same. */
START_TEST(requested_size)
{
	rig_open_capacity(256 * CLV_MIB);
	keep(1, 3 * CLV_MIB);
	size_t size;
	cleave_ptr p = get(1, 3 * CLV_MIB - 100);
	nothing_kept();
	ck_assert_int_eq(cleave_block_info(heap, p, NULL, &size, NULL), 0);
	ck_assert_uint_eq(size, 3 * CLV_MIB - 100);
	rig_shut();
}
END_TEST

START_TEST(own_stream_only)
{
	rig_open_capacity(256 * CLV_MIB);
	keep(1, 3 * CLV_MIB);
	cleave_ptr p = get(1, 3 * CLV_MIB);
	give(p, 1);
	cleave_ptr q = get(2, 3 * CLV_MIB);
	ck_assert_uint_ne(p, q);
	ck_assert_uint_eq(stats().device_waits + stats().host_waits, 0);
	p = get(1, 3 * CLV_MIB);
	uint32_t kept = a->recent.count;
	give(p, 2); /* on another stream than its own */
	give(q, 0); /* in no order */
	ck_assert_uint_eq(a->recent.count, kept);
	pairs(0, 5 * CLV_MIB, PAIRS_ENOUGH);
	ck_assert_uint_eq(a->recent.count, kept);
	rig_shut();
}
END_TEST

/* A block that was kept and is freed in no order is complete only with what was freed in it before. */
START_TEST(order_is_kept)
{
	rig_open_capacity(64 * CLV_MIB);
	keep(1, 20 * CLV_MIB);
	cleave_ptr p = get(1, 20 * CLV_MIB);
	give(p, 0);
	nothing_kept();
	ck_assert_uint_ge(stats().pending_bytes, 20 * CLV_MIB);
	keep(1, 20 * CLV_MIB);
	ck_assert_uint_ge(stats().pending_bytes, 20 * CLV_MIB);
	clv_heap_stream_mark(heap, 0, stream(1)); /* an event after the free covers it */
	clv_sim_complete(sim, stream(1));
	clv_slot_poll(a, clv_slot_find(a, 1));
	ck_assert_uint_eq(a->recent.count, 1);
	ck_assert_uint_eq(clv_recent_pending(a), 0);
	cleave_ptr q = get(2, 60 * CLV_MIB); /* all there is, and nothing to wait for */
	ck_assert_uint_eq(stats().device_waits + stats().host_waits, 0);
	give(q, 2);
	rig_shut();
}
END_TEST

/* Before a frame is bought, and before a request fails. */
START_TEST(no_growth)
{
	rig_open_capacity(256 * CLV_MIB);
	keep(1, 20 * CLV_MIB);
	cleave_heap_stats s = stats();
	uint64_t hole = s.held_bytes - 20 * CLV_MIB;
	cleave_ptr p = get(1, hole + 4 * CLV_MIB); /* fits only if what is kept is free */
	nothing_kept();
	ck_assert_uint_eq(stats().frames_created, s.frames_created);
	give(p, 1);
	rig_shut();

	rig_open_capacity(64 * CLV_MIB);
	keep(1, 20 * CLV_MIB);
	p = get(1, 64 * CLV_MIB);
	nothing_kept();
	give(p, 1);
	keep(1, 20 * CLV_MIB);
	p = get(2, 64 * CLV_MIB); /* another stream's */
	nothing_kept();
	ck_assert_uint_eq(stats().failures, 0);
	give(p, 2);
	rig_shut();
}
END_TEST

START_TEST(goes_with_its_stream)
{
	rig_open_capacity(256 * CLV_MIB);
	keep(1, 3 * CLV_MIB);
	keep(2, 3 * CLV_MIB);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0);
	nothing_kept();
	pairs(1, 3 * CLV_MIB, 1); /* another stream now */
	keep(1, 3 * CLV_MIB);
	ck_assert(!clv_heap_stream_left(heap, 0, stream(1), true));
	nothing_kept();
	keep(1, 3 * CLV_MIB); /* its last frees come late */
	for (int i = 0; i < 2; i++) {
		clv_sim_complete(sim, stream(1));
		if (clv_heap_stream_left(heap, 0, stream(1), false))
			break;
	}
	nothing_kept();
	ck_assert_ptr_null(clv_slot_find(a, 1));
	rig_shut();
}
END_TEST

START_TEST(given_back)
{
	rig_open_capacity(256 * CLV_MIB);
	keep(1, 30 * CLV_MIB);
	ck_assert_int_eq(clv_heap_trim(heap, 0, 0, true, NULL), 0);
	nothing_kept();
	ck_assert_uint_eq(clv_sim_used(sim, 0), 0);
	keep(1, 30 * CLV_MIB);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 8 * CLV_MIB), 0);
	nothing_kept();
	ck_assert_uint_le(clv_sim_used(sim, 0), 8 * CLV_MIB);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 0), 0);
	keep(1, 30 * CLV_MIB); /* closed with a block that is kept */
	rig_shut();
}
END_TEST

START_TEST(off)
{
	rig_open_with(&(struct clv_sim_config){.capacity = 256 * CLV_MIB, .manual = true}, "cache:off");
	pairs(1, 3 * CLV_MIB, PAIRS_ENOUGH);
	nothing_kept();
	rig_shut();
}
END_TEST

/* Memory of graphs. */
START_TEST(never_of_lasting_streams)
{
	struct lasting l;
	lasting_open(&l, &(struct clv_sim_config){.capacity = 256 * CLV_MIB, .manual = true});
	ck_assert_int_eq(cleave_heap_open(&heap, &l.base, NULL, NULL, 0), 0);
	pairs(3, 3 * CLV_MIB, 1); /* makes the arena */
	a = heap->arenas[0];
	const cleave_stream lasting[] = {{CLV_STREAM_VIRTUAL | 1, 0}, {CLV_STREAM_VIRTUAL | CLV_STREAM_APART | 1, 0}};
	for (size_t k = 0; k < CLV_ARRAY_LEN(lasting); k++)
		for (unsigned i = 0; i < PAIRS_ENOUGH; i++) {
			cleave_ptr p;
			ck_assert_int_eq(cleave_alloc(heap, 0, lasting[k], 3 * CLV_MIB, &p), 0);
			ck_assert_int_eq(cleave_free(heap, p, lasting[k]), 0);
		}
	nothing_kept();
	cleave_heap_close(heap);
	lasting_close(&l);
}
END_TEST

/* What the walk over the books is for. */
START_TEST(broken_books_are_told)
{
	rig_open_capacity(256 * CLV_MIB);
	keep(1, 3 * CLV_MIB);
	struct clv_extent *e = a->recent.oldest;
	struct clv_error err = {""};
	e->kept = false;
	ck_assert(!clv_arena_check(a, &err));
	e->kept = true;
	rig_valid();
	a->recent.bytes += 512;
	ck_assert_ptr_nonnull(clv_recent_check(a));
	a->recent.bytes -= 512;
	e->slot = CLV_SLOT_ANY;
	ck_assert_ptr_nonnull(clv_recent_check(a));
	e->slot = slot_of(1);
	e->live.seq += 1000000;
	ck_assert_ptr_nonnull(clv_recent_check(a));
	e->live.seq -= 1000000;
	rig_shut();
}
END_TEST

/* ---- threads ---- */

#define THREADS 4
#define SHARED 8 /* blocks that are handed on */

static uint64_t steps_each = 4000;
static _Atomic uint64_t wrong_words;

static struct {
	pthread_mutex_t lock;
	struct shared {
		cleave_ptr p;
		uint64_t word, size, owner;
	} blocks[SHARED];
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t *words_of(cleave_ptr p, uint64_t size)
{
	return (uint64_t *)(void *)clv_sim_bytes(sim, p, size, NULL);
}

/* Its first and last word are the owner's as long as it lives. */
static void sign(cleave_ptr p, uint64_t size, uint64_t word)
{
	uint64_t *w = words_of(p, size);
	w[0] = w[size / 8 - 1] = word;
}

static void look_at(cleave_ptr p, uint64_t size, uint64_t word)
{
	const uint64_t *w = words_of(p, size);
	wrong_words += w[0] != word || w[size / 8 - 1] != word;
}

/* Steps on a stream that all threads use; a block now and then goes to another thread, which frees it. */
static void *steps(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg;
	struct clv_rng rng = {.state = number};
	cleave_stream s = stream(1);
	for (uint64_t i = 0; i < steps_each; i++) {
		cleave_ptr p[4];
		uint64_t word = number << 32 | i;
		for (uint64_t k = 0; k < 4; k++) {
			uint64_t size = (64 + 64 * (k / 2)) * CLV_KIB;
			if (cleave_alloc(heap, 0, s, size, &p[k]))
				return "a request failed";
			sign(p[k], size, word + k);
		}
		pthread_mutex_lock(&shared.lock);
		struct shared *b = &shared.blocks[clv_rng_below(&rng, SHARED)],
			      mine = {p[0], word, 64 * CLV_KIB, number};
		struct shared other = *b;
		*b = mine;
		pthread_mutex_unlock(&shared.lock);
		if (other.p) {
			look_at(other.p, other.size, other.word);
			if (cleave_free(heap, other.p, s))
				return "a block of another thread was refused";
		}
		for (uint64_t k = 1; k < 4; k++) {
			look_at(p[k], (64 + 64 * (k / 2)) * CLV_KIB, word + k);
			if (cleave_free(heap, p[k], s))
				return "a block was refused";
		}
		if (number == 1 && i % 64 == 0)
			cleave_heap_trim(heap, 0, 64 * CLV_MIB, NULL);
		if (number == 2 && i % 64 == 0) {
			char why[256] = "";
			cleave_heap_stats now;
			if (cleave_heap_check(heap, why, sizeof(why)) || cleave_heap_get_stats(heap, 0, &now))
				return "the books are broken";
		}
	}
	return NULL;
}

START_TEST(threads)
{
	rig_open_with(&(struct clv_sim_config){.capacity = 64 * CLV_MIB, .backing = true, .event_lag_ns = 20000}, NULL);
	pthread_t t[THREADS];
	void *wrong[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, steps, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], &wrong[i]);
	for (int i = 0; i < THREADS; i++)
		ck_assert_msg(!wrong[i], "thread %d: %s", i + 1, (const char *)wrong[i]);
	ck_assert_uint_eq(wrong_words, 0);
	for (int i = 0; i < SHARED; i++)
		if (shared.blocks[i].p)
			give(shared.blocks[i].p, 1);
	ck_assert_uint_eq(stats().live_bytes, 0);
	ck_assert_uint_eq(stats().allocs, THREADS * steps_each * 4);
	ck_assert_uint_gt(a->recent.count, 0);
	rig_shut();
}
END_TEST

CHECK_MAIN("recent", comes_back, a_step, only_what_comes_back, not_too_many_of_a_size, bounded, not_live,
	   requested_size, own_stream_only, order_is_kept, no_growth, goes_with_its_stream, given_back, off,
	   never_of_lasting_streams, broken_books_are_told, threads)
