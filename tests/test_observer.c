/* SPDX-License-Identifier: MIT
 *
 * The observer of a heap: from what it is told alone a model keeps the map of frames, live blocks and what is held back, and is
 * compared with the heap after every step of random work.
 */
#include "../src/heap/arena.h"
#include "../src/host/meta.h"
#include "check_main.h"
#include "event_model.h"
#include "heap_rig.h"

#include <cleave/plan.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static struct rig r;
static struct event_model m;

static void open_rig(const struct rig_config *config)
{
	rig_open(&r, config);
	event_model_open(&m);
	clv_heap_observe(r.heap, &m.observer);
}

static void compare(void)
{
	event_model_compare(&m, r.heap, 0);
}

static void close_rig(void)
{
	rig_free_all(&r);
	cleave_reserve_end(r.heap, 0, 0);
	ck_assert_uint_eq(m.live.count + m.held_back.count, 0);
	rig_close(&r);
	event_model_empty(&m);
	event_model_close(&m);
}

static void at_random(uint64_t seed, const char *settings, bool manual)
{
	open_rig(&(struct rig_config){
		.seed = seed, .settings = settings, .capacity = 192 * CLV_MIB, .streams = 4, .manual = manual});
	for (int i = 0; i < 4000; i++) {
		rig_step(&r, 96 * CLV_MIB);
		compare();
	}
	/* else this has shown little */
	ck_assert_uint_gt(m.counts[CLV_EVENT_CUT], 500);
	ck_assert_uint_gt(m.counts[CLV_EVENT_MERGE], 500);
	ck_assert_uint_gt(m.counts[CLV_EVENT_READY], 50);
	ck_assert_uint_gt(m.counts[CLV_EVENT_FRAME_RELEASE], 10);
	ck_assert_uint_gt(m.counts[CLV_EVENT_TRIM], 5);
	ck_assert_uint_gt(m.moved, 10);
	ck_assert_uint_gt(m.counts[CLV_EVENT_FAIL], 0);
	ck_assert_uint_gt(m.device_waits, 0);
	close_rig();
}

START_TEST(random_work)
{
	at_random(1, NULL, false);
	at_random(2, "growth:tight", true);
	at_random(3, "cache:off", false);
}
END_TEST

START_TEST(reservations)
{
	open_rig(&(struct rig_config){
		.seed = 5,
		.settings = "reserve:3MiB*8,reserve:6MiB*4+class+hard,reserve:1MiB*4+after=10+uses=40",
		.capacity = 192 * CLV_MIB,
		.streams = 3,
		.faults_expected = true /* for what is held back */});
	for (int i = 0; i < 4000; i++) {
		if (i % 7 == 0 && r.count < 300)
			rig_alloc(&r, 1 + (unsigned)i % 3, i % 2 ? 3 * CLV_MIB : i % 4 ? 5 * CLV_MIB : CLV_MIB);
		rig_step(&r, 96 * CLV_MIB);
		compare();
	}
	ck_assert_uint_eq(m.counts[CLV_EVENT_RESERVE], 3);
	ck_assert_uint_gt(m.counts[CLV_EVENT_RESERVE_HOLD], 20);
	ck_assert_uint_gt(m.counts[CLV_EVENT_RESERVE_SERVE], 20);
	ck_assert_uint_gt(m.counts[CLV_EVENT_RESERVE_END], 0);
	ck_assert_uint_gt(m.counts[CLV_EVENT_RESERVE_YIELD], 0);
	uint64_t yielded = 0, served = 0;
	cleave_reservation_stats stats[8];
	size_t count;
	ck_assert_int_eq(cleave_reserve_stats(r.heap, 0, stats, CLV_ARRAY_LEN(stats), &count), 0);
	for (size_t i = 0; i < count; i++) {
		yielded += stats[i].yielded;
		served += stats[i].served;
	}
	ck_assert_uint_eq(m.yielded, yielded);
	ck_assert_uint_eq(m.counts[CLV_EVENT_RESERVE_SERVE], served);
	close_rig();
}
END_TEST

/* Calls of the driver fail, each kind and at random: what is told is what came of it all the same. */
START_TEST(calls_fail)
{
	for (uint64_t seed = 10; seed < 13; seed++) {
		open_rig(&(struct rig_config){
			.seed = seed, .capacity = 128 * CLV_MIB, .streams = 3, .faults_expected = true});
		struct clv_fault_config faults = {.seed = seed};
		for (int c = 0; c < CLV_CALL_COUNT; c++)
			faults.chance_per_million[c] = 60000;
		clv_fault_set(r.fault, &faults);
		rig_set_well(&r, false);
		for (int i = 0; i < 3000; i++) {
			rig_step(&r, 64 * CLV_MIB);
			compare();
		}
		ck_assert_uint_gt(clv_fault_injected(r.fault), 300);
		rig_set_well(&r, true);
		close_rig();
	}
}
END_TEST

/* Host memory is refused now and then, so that frees must wait at once. */
START_TEST(host_memory_fails)
{
	open_rig(&(struct rig_config){.seed = 20, .capacity = 128 * CLV_MIB, .streams = 3, .faults_expected = true});
	for (int i = 0; i < 3000; i++) {
		clv_meta_fail_after(i % 5 == 0 ? 1 + i % 3 : 0);
		rig_step(&r, 64 * CLV_MIB);
		clv_meta_fail_after(0);
		compare();
	}
	close_rig();
}
END_TEST

/* Blocks that come and go at once are kept for one another. */
START_TEST(kept_blocks)
{
	open_rig(&(struct rig_config){.seed = 1, .capacity = 64 * CLV_MIB, .streams = 1});
	for (int i = 0; i < 3000; i++) {
		rig_alloc(&r, 1, CLV_MIB);
		rig_free(&r, 0, 1);
		compare();
	}
	cleave_heap_stats stats;
	ck_assert_int_eq(cleave_heap_get_stats(r.heap, 0, &stats), 0);
	ck_assert_uint_eq(stats.cached_bytes, CLV_MIB); /* else this shows nothing */
	rig_trim(&r, 0);
	compare();
	close_rig();
}
END_TEST

/* An observer that comes later is told of all that there is. */
START_TEST(comes_later)
{
	rig_open(&r, &(struct rig_config){.seed = 30, .capacity = 192 * CLV_MIB, .streams = 4});
	for (int i = 0; i < 2000; i++)
		rig_step(&r, 96 * CLV_MIB);
	for (unsigned i = 0; i < 40; i++)
		rig_alloc(&r, 1 + i % 4, i % 3 ? 100 * i + 1 : 50000 * i + 1);
	ck_assert_uint_gt(r.count, 20);
	cleave_heap_stats before, now;
	rig_trim(&r, 0);
	rig_set_limit(&r, 0);
	rig_set_headroom(&r, 0);
	cleave_reservation more = {.name = "more", .bytes = 600 * CLV_KIB, .count = 3};
	ck_assert_int_eq(cleave_reserve(r.heap, 0, &more, NULL), 0);
	cleave_heap_get_stats(r.heap, 0, &before);
	event_model_open(&m);
	clv_heap_observe(r.heap, &m.observer);
	ck_assert_uint_eq(m.live.count, r.count);
	for (unsigned i = 0; i < r.count; i++) {
		bool found = false;
		for (size_t k = 0; k < m.live.count && !found; k++)
			found = m.live.at[k].addr == r.blocks[i].addr && m.live.at[k].what == r.blocks[i].size;
		ck_assert(found);
	}
	ck_assert_uint_eq(m.held, before.held_bytes);
	ck_assert_uint_eq(m.live_bytes, before.live_bytes);
	ck_assert_uint_eq(m.held_back.bytes, before.reservation_bytes);
	ck_assert_uint_gt(m.held_back.count, 0);
	m.last_failure = before.failures;
	for (int i = 0; i < 1000; i++)
		rig_step(&r, 96 * CLV_MIB);
	cleave_heap_get_stats(r.heap, 0, &now);
	ck_assert_uint_eq(m.held, now.held_bytes);
	ck_assert_uint_eq(m.live_bytes, now.live_bytes);
	ck_assert_uint_eq(m.counts[CLV_EVENT_CUT], now.splits - before.splits);
	ck_assert_uint_eq(m.counts[CLV_EVENT_MERGE], now.merges - before.merges);
	/* one that comes in its place is told of all again, and it of nothing more */
	struct event_model other;
	uint64_t told = m.counts[CLV_EVENT_ALLOC];
	event_model_open(&other);
	clv_heaps_observe(&other.observer);
	ck_assert_uint_eq(other.held, m.held);
	ck_assert_uint_eq(other.live.count, m.live.count);
	ck_assert_uint_eq(other.counts[CLV_EVENT_DEVICE], 1);
	ck_assert_int_eq(rig_alloc(&r, 1, 1000), 0);
	ck_assert_uint_eq(m.counts[CLV_EVENT_ALLOC], told);
	clv_heaps_observe(NULL);
	event_model_close(&other);
	ck_assert_int_eq(rig_alloc(&r, 1, 1000), 0);
	rig_free_all(&r);
	rig_close(&r);
	event_model_close(&m);
}
END_TEST

/* Heaps that are opened later are observed as well. */
START_TEST(all_heaps)
{
	cleave_driver *sim;
	cleave_heap *heap;
	cleave_ptr p;
	event_model_open(&m);
	clv_heaps_observe(&m.observer);
	ck_assert_int_eq(cleave_driver_open(&sim, "sim:64MiB"), 0);
	ck_assert_int_eq(cleave_heap_open(&heap, sim, "limit:32MiB", NULL, 0), 0);
	ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 5000000, &p), 0);
	event_model_compare(&m, heap, 0);
	ck_assert_uint_eq(m.counts[CLV_EVENT_DEVICE], 1);
	ck_assert_int_eq(cleave_free(heap, p, CLEAVE_STREAM_ANY), 0);
	cleave_heap_close(heap);
	event_model_empty(&m);
	ck_assert_int_eq(cleave_heap_open(&heap, sim, NULL, NULL, 0), 0);
	clv_heaps_observe(NULL);
	ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 5000000, &p), 0);
	ck_assert_uint_eq(m.counts[CLV_EVENT_ALLOC], 1);
	cleave_heap_close(heap);
	cleave_driver_close(sim);
	event_model_close(&m);
}
END_TEST

/* ---- threads ---- */

#define THREADS 4
#define PAGES 4096u /* more than blocks ever begin in */
#define PAGE (2 * CLV_MIB)
#define ROUNDS 20000

static struct {
	struct clv_observer observer;
	_Atomic uint64_t pages[PAGES];              /* found by hash */
	_Atomic bool live[PAGES][PAGE / CLV_GRAIN]; /* a block begins there */
	_Atomic uint64_t wrong, allocs, frees;
} shared;

static _Atomic bool *place_of(uint64_t addr)
{
	uint64_t page = clv_align_down(addr, PAGE);
	for (unsigned i = 0; i < PAGES; i++) {
		unsigned at = (unsigned)(clv_mix64(page) + i) % PAGES;
		uint64_t there = 0;
		if (atomic_compare_exchange_strong(&shared.pages[at], &there, page) || there == page)
			return &shared.live[at][addr % PAGE / CLV_GRAIN];
	}
	return NULL;
}

static void tell_shared(struct clv_observer *self, const struct clv_observed *w)
{
	if (w->event != CLV_EVENT_ALLOC && w->event != CLV_EVENT_FREE)
		return;
	_Atomic bool *live = place_of(w->addr);
	bool alloc = w->event == CLV_EVENT_ALLOC;
	if (!alloc && w->size <= 4096 && shared.frees % 8 == 0)
		sched_yield(); /* others may try to get it before it is told of */
	/* A place that is allocated was told of as free before, and the other way round, by whatever threads. */
	shared.wrong += !live || atomic_exchange(live, alloc) == alloc;
	if (alloc)
		shared.allocs++;
	else
		shared.frees++;
}

static struct {
	_Atomic(cleave_ptr) at[64];
} exchange; /* blocks that are freed by another thread */

static void *work(void *arg)
{
	cleave_heap *heap = arg;
	static _Atomic uint64_t numbers;
	uint64_t number = ++numbers;
	struct clv_rng g = {.state = number};
	cleave_stream s = {1 + number % 2, 0x100 + number % 2};
	for (int i = 0; i < ROUNDS; i++) {
		cleave_ptr p = 0;
		uint64_t size =
			clv_rng_below(&g, 10) ? clv_rng_range(&g, 1, 4096) : clv_rng_range(&g, 1, 100) * CLV_KIB;
		if (clv_rng_below(&g, 3))
			cleave_alloc(heap, 0, s, size, &p);
		p = atomic_exchange(&exchange.at[clv_rng_below(&g, CLV_ARRAY_LEN(exchange.at))], p);
		cleave_free(heap, p, clv_rng_below(&g, 4) ? s : CLEAVE_STREAM_ANY);
		if (clv_rng_below(&g, 50) == 0)
			cleave_heap_trim(heap, 0, 0, NULL); /* takes slots out of other threads' caches */
	}
	return NULL;
}

/* In the order of telling no place is allocated twice without a free between. */
START_TEST(threads)
{
	cleave_driver *sim;
	cleave_heap *heap;
	cleave_heap_stats stats;
	pthread_t t[THREADS];
	shared.observer.tell = tell_shared;
	ck_assert_int_eq(cleave_driver_open(&sim, "sim:64MiB"), 0);
	ck_assert_int_eq(cleave_heap_open(&heap, sim, NULL, NULL, 0), 0);
	clv_heap_observe(heap, &shared.observer);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, work, heap), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(shared.wrong, 0);
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &stats), 0);
	ck_assert_uint_eq(shared.allocs, stats.allocs);
	ck_assert_uint_eq(shared.frees, stats.frees);
	ck_assert_uint_gt(shared.frees, ROUNDS);
	cleave_heap_close(heap);
	cleave_driver_close(sim);
}
END_TEST

CHECK_MAIN("observer", random_work, reservations, calls_fail, host_memory_fails, kept_blocks, comes_later, all_heaps,
	   threads)
