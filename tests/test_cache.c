/* SPDX-License-Identifier: MIT
 *
 * Small blocks in the caches of threads. What several threads do is checked on real memory behind the blocks: a slot that two
 * threads get at once shows as a wrong word, and as a race under ThreadSanitizer.
 */
#include "../src/driver/sim.h"
#include "../src/heap/cache.h"
#include "check_main.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>

#define SMALL 3000 /* rounded to 3072: its own class */

static struct clv_driver *sim;
static cleave_heap *heap;

static cleave_stream stream(uint64_t id)
{
	return (cleave_stream){id, 0x100 + id};
}

static cleave_heap *open_one(const char *settings)
{
	cleave_heap *h;
	char why[256] = "";
	int answer = cleave_heap_open(&h, sim, settings, why, sizeof(why));
	ck_assert_msg(answer == 0, "%s", why);
	return h;
}

static void open_all(uint64_t capacity, bool backing)
{
	sim = clv_sim_open(&(struct clv_sim_config){.capacity = capacity, .backing = backing, .event_lag_ns = 20000});
	ck_assert_ptr_nonnull(sim);
	heap = open_one(NULL);
}

static void check_heap(cleave_heap *h)
{
	char why[512] = "";
	int answer = cleave_heap_check(h, why, sizeof(why));
	ck_assert_msg(answer == 0, "%s", why);
}

static void close_all(void)
{
	check_heap(heap);
	cleave_heap_close(heap);
	ck_assert_ptr_null(clv_sim_leaks(sim));
	sim->close(sim);
}

static cleave_heap_stats stats_of(cleave_heap *h)
{
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(h, 0, &s), 0);
	return s;
}

static cleave_ptr get(cleave_heap *h, uint64_t id, size_t size)
{
	cleave_ptr p = 0;
	ck_assert_int_eq(cleave_alloc(h, 0, stream(id), size, &p), 0);
	ck_assert_uint_ne(p, 0);
	return p;
}

static void give(cleave_heap *h, cleave_ptr p, uint64_t id)
{
	ck_assert_int_eq(cleave_free(h, p, stream(id)), 0);
}

static void in_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;
	ck_assert_int_eq(pthread_create(&t, NULL, fn, arg), 0);
	pthread_join(t, NULL);
}

START_TEST(freed_blocks_are_kept)
{
	open_all(64 * CLV_MIB, false);
	cleave_ptr p = get(heap, 1, SMALL);
	ck_assert_uint_gt(stats_of(heap).cached_bytes, 0); /* a few come at once */
	give(heap, p, 1);
	cleave_heap_stats s = stats_of(heap);
	ck_assert_uint_ge(s.cached_bytes, 3072);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_eq(get(heap, 1, SMALL), p); /* the last freed comes first */
	ck_assert_uint_eq(stats_of(heap).cached_bytes, s.cached_bytes - 3072);
	give(heap, p, 1);
	/* another stream's are others */
	cleave_ptr q = get(heap, 2, SMALL);
	ck_assert_uint_ne(p, q);
	ck_assert_uint_ne(get(heap, 2, SMALL), p);
	close_all();
}
END_TEST

START_TEST(off_keeps_nothing)
{
	open_all(64 * CLV_MIB, false);
	cleave_heap *h = open_one("cache:off");
	cleave_ptr p[100];
	for (int i = 0; i < 100; i++)
		p[i] = get(h, 1, SMALL);
	for (int i = 0; i < 100; i++)
		give(h, p[i], 1);
	ck_assert_uint_eq(stats_of(h).cached_bytes, 0);
	check_heap(h);
	cleave_heap_close(h);
	close_all();
}
END_TEST

/* Caches are bounded: half of a full one goes back. */
START_TEST(caches_are_bounded)
{
	open_all(64 * CLV_MIB, false);
	static cleave_ptr p[3000];
	for (size_t size = 512; size <= CLV_SMALL_MAX; size *= 4) {
		unsigned n = (unsigned)clv_min_u64(3000, 16 * CLV_MIB / size);
		for (unsigned i = 0; i < n; i++)
			p[i] = get(heap, 1, size);
		for (unsigned i = 0; i < n; i++)
			give(heap, p[i], 1);
		check_heap(heap);
	}
	cleave_heap_stats s = stats_of(heap);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_le(s.cached_bytes, CLV_MIB);
	uint64_t released;
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, &released), 0); /* also what is cached */
	ck_assert_uint_eq(clv_sim_used(sim, 0), 0);
	ck_assert_uint_eq(stats_of(heap).cached_bytes, 0);
	close_all();
}
END_TEST

START_TEST(more_streams_than_places)
{
	open_all(256 * CLV_MIB, false);
	enum { STREAMS = 3 * CLV_CACHE_STREAMS, EACH = 40 };
	static cleave_ptr p[STREAMS][EACH];
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < EACH; i++)
			for (unsigned s = 0; s < STREAMS; s++)
				p[s][i] = get(heap, 1 + s, 100 + 700 * (i % 5));
		for (unsigned i = 0; i < EACH; i++)
			for (unsigned s = 0; s < STREAMS; s++)
				give(heap, p[s][i], 1 + (round % 2 ? s : (s + 1) % STREAMS)); /* also on other streams */
		clv_sim_advance(sim, 1000000);
		check_heap(heap);
	}
	cleave_heap_stats s = stats_of(heap);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_eq(s.live_blocks, 0);
	ck_assert_uint_eq(s.allocs, s.frees);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(clv_sim_used(sim, 0), 0);
	close_all();
}
END_TEST

START_TEST(more_heaps_than_places)
{
	open_all(CLV_GIB, false);
	enum { HEAPS = 11 };
	cleave_heap *heaps[HEAPS];
	cleave_ptr p[HEAPS];
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < HEAPS; i++) {
			heaps[i] = open_one(NULL);
			p[i] = get(heaps[i], 1, SMALL);
		}
		for (unsigned i = 0; i < HEAPS; i++) {
			give(heaps[i], p[i], 1);
			p[i] = get(heaps[i], 1, SMALL);
			ck_assert_uint_eq(stats_of(heaps[i]).live_blocks, 1);
			for (unsigned k = 0; k < HEAPS; k++)
				ck_assert_int_eq(cleave_free(heaps[k], p[i], stream(1)), k == i ? 0 : -EINVAL);
			p[i] = get(heaps[i], 1, SMALL);
		}
		/* closed in another order than opened, some with live blocks and full caches */
		for (unsigned i = 0; i < HEAPS; i++) {
			unsigned k = (i * 7 + round) % HEAPS;
			check_heap(heaps[k]);
			cleave_heap_close(heaps[k]);
		}
	}
	close_all();
}
END_TEST

static void *alloc_and_free(void *arg)
{
	cleave_ptr p[200];
	for (int i = 0; i < 200; i++)
		p[i] = get(heap, *(uint64_t *)arg, 1000);
	for (int i = 0; i < 200; i++)
		give(heap, p[i], *(uint64_t *)arg);
	return NULL;
}

START_TEST(an_ending_thread_gives_back)
{
	open_all(64 * CLV_MIB, false);
	uint64_t id = 1;
	for (int i = 0; i < 20; i++) {
		in_thread(alloc_and_free, &id);
		id++;
		ck_assert_uint_eq(stats_of(heap).cached_bytes, 0);
	}
	cleave_heap_stats s = stats_of(heap);
	ck_assert_uint_eq(s.allocs, 20 * 200); /* counts of threads that are gone are not lost */
	ck_assert_uint_eq(s.frees, 20 * 200);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_ge(s.live_peak_bytes, 200 * 1024);
	close_all();
}
END_TEST

static void *leave_live(void *arg)
{
	*(cleave_ptr *)arg = get(heap, 1, 1000);
	return NULL;
}

/* A block outlives its thread, and is freed by another. */
START_TEST(blocks_of_gone_threads)
{
	open_all(64 * CLV_MIB, false);
	cleave_ptr p[50];
	for (int i = 0; i < 50; i++)
		in_thread(leave_live, &p[i]);
	ck_assert_uint_eq(stats_of(heap).live_bytes, 50 * 1024);
	for (int i = 0; i < 50; i++)
		give(heap, p[i], 1);
	cleave_heap_stats s = stats_of(heap);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_eq(s.rounding_bytes, 0);
	close_all();
}
END_TEST

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int state;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void gate_set(int state)
{
	pthread_mutex_lock(&gate.lock);
	gate.state = state;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.lock);
}

static void gate_wait(int state)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.state < state)
		pthread_cond_wait(&gate.changed, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
}

static void *keep_cache(void *arg)
{
	uint64_t id = 1;
	alloc_and_free(&id);
	gate_set(1);
	gate_wait(2); /* with a cache that is robbed meanwhile */
	alloc_and_free(&id);
	return NULL;
}

/* What threads keep goes to a request that would fail without. */
START_TEST(robbed_under_pressure)
{
	open_all(8 * CLV_MIB, false);
	gate.state = 0;
	pthread_t t;
	ck_assert_int_eq(pthread_create(&t, NULL, keep_cache, NULL), 0);
	gate_wait(1);
	ck_assert_uint_gt(stats_of(heap).cached_bytes, 0);
	cleave_ptr all = get(heap, 2, 8 * CLV_MIB);
	ck_assert_uint_eq(stats_of(heap).cached_bytes, 0);
	give(heap, all, 2);
	gate_set(2);
	pthread_join(t, NULL);
	cleave_heap_stats s = stats_of(heap);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_eq(s.failures, 0);
	close_all();
}
END_TEST

START_TEST(a_destroyed_stream_is_forgotten)
{
	open_all(64 * CLV_MIB, false);
	cleave_ptr p = get(heap, 1, SMALL), live = get(heap, 1, SMALL);
	give(heap, p, 1);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0);
	check_heap(heap);
	ck_assert_uint_eq(stats_of(heap).cached_bytes, 0);
	give(heap, live, 2); /* its block is freed elsewhere */
	ck_assert_uint_ne(get(heap, 1, SMALL), 0); /* a new stream, whatever its id */
	check_heap(heap);
	close_all();
}
END_TEST

/* ---- several threads at once ---- */

#define THREADS 4
#define HANDED 64

static uint64_t steps_each = 3000;

/* Blocks on their way from one thread to another. */
static struct {
	pthread_mutex_t lock;
	struct block {
		cleave_ptr p;
		uint64_t size, word, stream;
	} blocks[HANDED];
	unsigned count;
} hand = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void fill(const struct block *b)
{
	uint8_t *bytes = clv_sim_bytes(sim, b->p, b->size, NULL);
	ck_assert_ptr_nonnull(bytes);
	for (uint64_t at = 0; at + 8 <= b->size; at += 504)
		*(uint64_t *)(void *)(bytes + at) = b->word + at;
}

static void verify(const struct block *b)
{
	const uint8_t *bytes = clv_sim_bytes(sim, b->p, b->size, NULL);
	ck_assert_ptr_nonnull(bytes);
	for (uint64_t at = 0; at + 8 <= b->size; at += 504)
		ck_assert_uint_eq(*(const uint64_t *)(const void *)(bytes + at), b->word + at);
}

static void *work(void *arg)
{
	unsigned me = *(unsigned *)arg;
	struct clv_rng rng = {me};
	struct block mine[100];
	unsigned count = 0;
	for (uint64_t step = 0; step < steps_each; step++) {
		uint64_t dice = clv_rng_below(&rng, 100);
		if (dice < 45 && count < 100) {
			struct block *b = &mine[count];
			uint64_t small = clv_rng_below(&rng, 40);
			b->size = small ? clv_rng_range(&rng, 8, small < 30 ? 2048 : CLV_SMALL_MAX) : clv_rng_range(&rng, 1, 8) * CLV_MIB;
			b->stream = 1 + clv_rng_below(&rng, 6); /* streams are shared, and more than a thread has places for */
			b->word = clv_rng_next(&rng);
			if (cleave_alloc(heap, 0, stream(b->stream), b->size, &b->p) == 0) {
				b->size = b->size < 8 ? 8 : b->size;
				fill(b);
				count++;
			}
		} else if (dice < 85 && count) {
			struct block b = mine[clv_rng_below(&rng, count)];
			for (unsigned i = 0; i < count; i++)
				if (mine[i].p == b.p)
					mine[i] = mine[--count];
			verify(&b);
			give(heap, b.p, dice < 60 ? b.stream : 1 + clv_rng_below(&rng, 6));
		} else if (dice < 97) {
			/* to and from other threads */
			pthread_mutex_lock(&hand.lock);
			if (hand.count < HANDED && count && dice < 91)
				hand.blocks[hand.count++] = mine[--count];
			else if (hand.count && count < 100)
				mine[count++] = hand.blocks[--hand.count];
			pthread_mutex_unlock(&hand.lock);
		} else if (dice == 97) {
			ck_assert_int_eq(cleave_heap_trim(heap, 0, 8 * CLV_MIB, NULL), 0);
		} else if (dice == 98) {
			clv_sim_advance(sim, 30000);
		} else {
			check_heap(heap);
			stats_of(heap);
		}
	}
	while (count) {
		verify(&mine[--count]);
		give(heap, mine[count].p, mine[count].stream);
	}
	return NULL;
}

START_TEST(threads_at_once)
{
	open_all(48 * CLV_MIB, true);
	hand.count = 0;
	pthread_t threads[THREADS];
	unsigned number[THREADS];
	for (unsigned i = 0; i < THREADS; i++) {
		number[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &number[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	while (hand.count) {
		verify(&hand.blocks[--hand.count]);
		give(heap, hand.blocks[hand.count].p, hand.blocks[hand.count].stream);
	}
	cleave_heap_stats s = stats_of(heap);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_eq(s.rounding_bytes, 0);
	ck_assert_uint_eq(s.live_blocks, 0);
	ck_assert_uint_eq(s.allocs, s.frees);
	ck_assert_uint_gt(s.allocs, THREADS * steps_each / 4);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(clv_sim_used(sim, 0), 0);
	close_all();
}
END_TEST

/* Threads come and go while others rob them and heaps are opened and closed. */
static void *come_and_go(void *arg)
{
	unsigned me = *(unsigned *)arg;
	for (unsigned i = 0; i < 30; i++) {
		uint64_t id = 1 + me;
		in_thread(alloc_and_free, &id);
		if (me == 0) {
			cleave_heap *other = open_one(NULL);
			give(other, get(other, 1, SMALL), 1);
			cleave_heap_close(other);
		} else if (me == 1) {
			ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
		} else if (me == 2) {
			ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(100 + i)), 0);
			stats_of(heap);
		}
	}
	return NULL;
}

START_TEST(threads_come_and_go)
{
	open_all(64 * CLV_MIB, false);
	pthread_t threads[THREADS];
	unsigned number[THREADS];
	for (unsigned i = 0; i < THREADS; i++) {
		number[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, come_and_go, &number[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	cleave_heap_stats s = stats_of(heap);
	ck_assert_uint_eq(s.allocs, THREADS * 30 * 200);
	ck_assert_uint_eq(s.frees, s.allocs);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_eq(s.cached_bytes, 0);
	close_all();
}
END_TEST

/* On a large device the chunk of a stream has a quarter of a page, and goes at any moment, while others free what lies beside
 * it. */
static void *chunks_go(void *arg)
{
	for (unsigned i = 0; i < 400; i++) {
		cleave_ptr p = get(heap, 1000, SMALL);
		give(heap, p, 1000);
		ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	}
	*(bool *)arg = true;
	return NULL;
}

static _Atomic bool chunks_have_gone;

static void *beside_chunks(void *arg)
{
	const uint64_t id = 1000; /* whose holes are beside it */
	(void)arg;
	while (!chunks_have_gone) {
		cleave_ptr p[4];
		for (unsigned i = 0; i < CLV_ARRAY_LEN(p); i++)
			p[i] = get(heap, id, 300000 + i * 100000);
		for (unsigned i = 0; i < CLV_ARRAY_LEN(p); i++)
			give(heap, p[i], id);
	}
	return NULL;
}

START_TEST(short_chunks_go)
{
	open_all(40 * CLV_GIB, false);
	chunks_have_gone = false;
	pthread_t threads[3];
	bool gone = false;
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, beside_chunks, NULL), 0);
	ck_assert_int_eq(pthread_create(&threads[2], NULL, chunks_go, &gone), 0);
	pthread_join(threads[2], NULL);
	chunks_have_gone = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert(gone);
	ck_assert_uint_eq(stats_of(heap).live_bytes, 0);
	close_all();
}
END_TEST

CHECK_MAIN("cache", freed_blocks_are_kept, off_keeps_nothing, caches_are_bounded, more_streams_than_places, more_heaps_than_places,
	   an_ending_thread_gives_back, blocks_of_gone_threads, robbed_under_pressure, a_destroyed_stream_is_forgotten, threads_at_once,
	   threads_come_and_go, short_chunks_go)
