/* SPDX-License-Identifier: MIT
 *
 * Runs of pages out of chunks, beside a model that has one owner a page.
 */
#include "../src/host/pinned_chunks.h"
#include "chunk_provider.h"
#include "check_main.h"

#include <pthread.h>

static struct clv_chunks *open_chunks(struct provider *v)
{
	struct clv_chunk_source source = {provider_alloc, provider_free, v};
	provider_init(v);
	struct clv_chunks *c = clv_chunks_open(&source);
	ck_assert_ptr_nonnull(c);
	return c;
}

static struct clv_chunks_stats stats_of(struct clv_chunks *c)
{
	struct clv_chunks_stats s;
	clv_chunks_get_stats(c, &s);
	return s;
}

START_TEST(runs_fill_a_chunk)
{
	static struct provider v;
	struct clv_chunks *c = open_chunks(&v);
	ck_assert_ptr_null(clv_chunks_take(c, 4096, 4096)); /* nothing is bought unasked */
	struct clv_chunk *chunk = clv_chunks_grow(c, 4096, 4096, UINT64_MAX);
	ck_assert_ptr_nonnull(chunk);
	clv_chunks_settle(c, chunk);
	size_t pages = stats_of(c).held / 4096;
	ck_assert_uint_eq(pages, 512);
	/* every page can be had, each once */
	char *low = NULL;
	for (size_t i = 0; i < pages; i++) {
		char *run = clv_chunks_take(c, 4096, 4096);
		ck_assert_ptr_nonnull(run);
		low = low ? low : run;
		ck_assert_ptr_eq(run, low + i * 4096);
	}
	ck_assert_ptr_null(clv_chunks_take(c, 4096, 4096));
	ck_assert_uint_eq(stats_of(c).free, 0);
	/* holes of 3, 64 and 129 pages, across words: a run goes into the first in which it fits */
	clv_chunks_put(c, low + 10 * 4096, 3 * 4096);
	clv_chunks_put(c, low + 60 * 4096, 64 * 4096);
	clv_chunks_put(c, low + 200 * 4096, 129 * 4096);
	ck_assert_ptr_null(clv_chunks_take(c, 130 * 4096, 4096));
	ck_assert_ptr_eq(clv_chunks_take(c, 65 * 4096, 4096), low + 200 * 4096);
	ck_assert_ptr_eq(clv_chunks_take(c, 4 * 4096, 4096), low + 60 * 4096);
	ck_assert_ptr_eq(clv_chunks_take(c, 3 * 4096, 4096), low + 10 * 4096);
	ck_assert_ptr_eq(clv_chunks_take(c, 60 * 4096, 4096), low + 64 * 4096);
	ck_assert_ptr_eq(clv_chunks_take(c, 64 * 4096, 4096), low + 265 * 4096);
	ck_assert_uint_eq(stats_of(c).free, 0);
	clv_chunks_close(c);
	provider_end(&v);
}
END_TEST

START_TEST(alignment)
{
	static struct provider v;
	struct clv_chunks *c = open_chunks(&v);
	for (size_t align = 4096; align <= (size_t)8 << 20; align *= 2) {
		struct clv_chunk *chunk = clv_chunks_grow(c, 12288, align, 0);
		ck_assert_ptr_nonnull(chunk);
		void *run = clv_chunks_take(c, 12288, align);
		ck_assert_ptr_nonnull(run);
		ck_assert_uint_eq((uintptr_t)run % align, 0);
		clv_chunks_settle(c, chunk);
	}
	ck_assert_ptr_null(clv_chunks_grow(c, SIZE_MAX - 4095, (size_t)1 << 40, 0)); /* would overflow */
	clv_chunks_close(c);
	provider_end(&v);
}
END_TEST

/* Chunks grow with what is held, never buy more than the limit allows to stay free, and go back when it is exceeded. */
START_TEST(growth_is_bounded)
{
	static struct provider v;
	struct clv_chunks *c = open_chunks(&v);
	static const uint64_t limits[] = {0, 1 << 20, 5 << 20, UINT64_MAX};
	for (size_t i = 0; i < CLV_ARRAY_LEN(limits); i++) {
		uint64_t largest = 0;
		for (int n = 0; n < 40; n++) {
			uint64_t held = stats_of(c).held;
			struct clv_chunk *chunk = clv_chunks_grow(c, 3 << 20, 4096, limits[i]);
			ck_assert_ptr_nonnull(chunk);
			ck_assert_ptr_nonnull(clv_chunks_take(c, 3 << 20, 4096));
			clv_chunks_settle(c, chunk);
			largest = clv_max_u64(largest, stats_of(c).held - held);
			ck_assert_uint_le(stats_of(c).free, limits[i]);
		}
		if (!limits[i])
			ck_assert_uint_eq(stats_of(c).free, 0);
		ck_assert_uint_le(largest, clv_min_u64(64 << 20, (3 << 20) + clv_min_u64(limits[i], 1 << 30)));
		if (limits[i] == UINT64_MAX)
			ck_assert_uint_gt(largest, 16 << 20);
	}
	/* whether the takes left chunks entirely free depends on the order of their addresses */
	uint64_t held = stats_of(c).held, released = clv_chunks_release(c, 0);
	ck_assert_uint_eq(stats_of(c).held, held - released);
	ck_assert_uint_eq(stats_of(c).given_back > 0, released > 0);
	clv_chunks_close(c);
	provider_end(&v);
}
END_TEST

START_TEST(free_chunks_go_back)
{
	static struct provider v;
	struct clv_chunks *c = open_chunks(&v);
	char *run[8];
	for (int i = 0; i < 8; i++) {
		struct clv_chunk *chunk = clv_chunks_grow(c, (size_t)(i + 1) << 20, 4096, 0);
		ck_assert_ptr_nonnull(chunk);
		run[i] = clv_chunks_take(c, (size_t)(i + 1) << 20, 4096);
		/* until it is settled a chunk stays, though it is free */
		clv_chunks_put(c, run[i], (size_t)(i + 1) << 20);
		ck_assert_uint_eq(clv_chunks_release(c, 0), 0);
		ck_assert_ptr_eq(clv_chunks_take(c, (size_t)(i + 1) << 20, 4096), run[i]);
		clv_chunks_settle(c, chunk);
		ck_assert(clv_chunks_own(c, run[i]));
	}
	for (int i = 0; i < 8; i++)
		clv_chunks_put(c, run[i], (size_t)(i + 1) << 20);
	ck_assert_uint_eq(stats_of(c).free, 36 << 20);
	ck_assert_uint_eq(clv_chunks_release(c, 36 << 20), 0);
	/* the smallest that is enough */
	ck_assert_uint_eq(clv_chunks_release(c, (33 << 20) + 1), 3 << 20);
	ck_assert(!clv_chunks_own(c, run[2]));
	ck_assert(clv_chunks_own(c, run[1]));
	/* or, where none is enough, the largest first */
	ck_assert_uint_eq(clv_chunks_release(c, 20 << 20), (8 + 5) << 20);
	ck_assert(!clv_chunks_own(c, run[7]));
	ck_assert(!clv_chunks_own(c, run[4]));
	/* one with a page in use stays */
	ck_assert_ptr_eq(clv_chunks_take(c, 7 << 20, 4096), run[6]);
	clv_chunks_put(c, run[6], (7 << 20) - 4096);
	ck_assert_uint_eq(clv_chunks_release(c, 0), (1 + 2 + 4 + 6) << 20);
	ck_assert_uint_eq(v.bytes, 7 << 20);
	clv_chunks_close(c);
	provider_end(&v);
}
END_TEST

START_TEST(refusals)
{
	static struct provider v;
	struct clv_chunks *c = open_chunks(&v);
	/* the larger chunk is refused, the one that is needed comes */
	v.fail_at = 1;
	struct clv_chunk *chunk = clv_chunks_grow(c, 8192, 4096, UINT64_MAX);
	ck_assert_ptr_nonnull(chunk);
	clv_chunks_settle(c, chunk);
	ck_assert_uint_eq(stats_of(c).held, 8192);
	ck_assert_uint_eq(stats_of(c).refused, 1);
	v.largest = 4096;
	ck_assert_ptr_null(clv_chunks_grow(c, 8192, 4096, UINT64_MAX));
	ck_assert_uint_eq(stats_of(c).refused, 3);
	v.largest = SIZE_MAX;
	/* an address that is no page's is given back */
	v.misalign = true;
	ck_assert_ptr_null(clv_chunks_grow(c, 8192, 4096, UINT64_MAX));
	ck_assert_uint_eq(v.bytes, 8192);
	clv_chunks_close(c);
	provider_end(&v);
}
END_TEST

/* While chunks come and go, a look for an address that is there all the time never misses it. */
static bool stop; /* atomic */

struct looker {
	struct clv_chunks *c;
	char *there, *elsewhere;
	uint64_t looks, wrong;
};

static void *look(void *arg)
{
	struct looker *l = arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		l->wrong += !clv_chunks_own(l->c, l->there) + clv_chunks_own(l->c, l->elsewhere);
		__atomic_fetch_add(&l->looks, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

START_TEST(looks_without_a_lock)
{
	enum { CHUNKS = 100, LOOKERS = 2 };
	static struct provider v;
	struct clv_chunks *c = open_chunks(&v);
	static char elsewhere;
	clv_chunks_settle(c, clv_chunks_grow(c, 4096, 4096, 0));
	char *there = clv_chunks_take(c, 4096, 4096);
	struct looker l[LOOKERS];
	pthread_t thread[LOOKERS];
	for (int i = 0; i < LOOKERS; i++) {
		l[i] = (struct looker){c, there, &elsewhere, 0, 0};
		ck_assert_int_eq(pthread_create(&thread[i], NULL, look, &l[i]), 0);
	}
	for (int round = 0; round < 20 || !__atomic_load_n(&l[0].looks, __ATOMIC_RELAXED) ||
			    !__atomic_load_n(&l[1].looks, __ATOMIC_RELAXED);
	     round++) {
		char *run[CHUNKS];
		for (int i = 0; i < CHUNKS; i++) {
			struct clv_chunk *chunk = clv_chunks_grow(c, 8192, 4096, 0);
			ck_assert_ptr_nonnull(chunk);
			run[i] = clv_chunks_take(c, 8192, 4096);
			ck_assert_ptr_nonnull(run[i]);
			clv_chunks_settle(c, chunk);
			ck_assert(clv_chunks_own(c, run[i] + 8191));
		}
		for (int i = 0; i < CHUNKS; i++)
			clv_chunks_put(c, run[i], 8192);
		ck_assert_uint_eq(clv_chunks_release(c, 0), CHUNKS * 8192);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < LOOKERS; i++) {
		pthread_join(thread[i], NULL);
		ck_assert_uint_eq(l[i].wrong, 0);
	}
	clv_chunks_close(c);
	provider_end(&v);
}
END_TEST

/* Random runs, parts of which come back alone, against the owner of each page. */
struct run {
	char *at;
	size_t size;
};

START_TEST(model)
{
	enum { RUNS = 300 };
	for (uint64_t seed = 1; seed <= 6; seed++) {
		static struct provider v;
		struct clv_chunks *c = open_chunks(&v);
		struct clv_rng rng = {seed};
		struct run run[RUNS] = {0};
		uint64_t taken = 0, limit = seed % 3 << 22;
		for (int step = 0; step < 6000; step++) {
			struct run *r = &run[clv_rng_below(&rng, RUNS)];
			if (!r->at) {
				size_t size = 4096 * clv_rng_range(&rng, 1, clv_rng_below(&rng, 8) ? 20 : 900);
				size_t align = (size_t)4096 << clv_rng_below(&rng, 5);
				r->at = clv_chunks_take(c, size, align);
				if (!r->at) {
					struct clv_chunk *chunk = clv_chunks_grow(c, size, align, limit);
					ck_assert_ptr_nonnull(chunk);
					r->at = clv_chunks_take(c, size, align);
					clv_chunks_settle(c, chunk);
				}
				ck_assert_msg(r->at && (uintptr_t)r->at % align == 0, "seed %d step %d", (int)seed,
					      step);
				r->size = size;
				taken += size;
				provider_hand(&v, r->at, size, NULL, r);
			} else {
				size_t part = r->size;
				if (clv_rng_below(&rng, 3) == 0)
					part = 4096 * clv_rng_range(&rng, 1, r->size / 4096);
				provider_hand(&v, r->at, part, r, NULL);
				clv_chunks_put(c, r->at, part);
				taken -= part;
				r->size -= part;
				r->at = r->size ? r->at + part : NULL;
				clv_chunks_release(c, limit);
			}
			struct clv_chunks_stats s = stats_of(c);
			ck_assert_uint_eq(s.held, v.bytes);
			ck_assert_uint_eq(s.held - s.free, taken);
			ck_assert_uint_eq(s.chunks, v.count);
			if (s.free > limit)
				ck_assert_uint_eq(provider_unclaimed_chunks(&v), 0);
		}
		for (int i = 0; i < RUNS; i++)
			if (run[i].at) {
				provider_hand(&v, run[i].at, run[i].size, &run[i], NULL);
				clv_chunks_put(c, run[i].at, run[i].size);
			}
		uint64_t held = v.bytes;
		ck_assert_uint_eq(clv_chunks_release(c, 0), held);
		ck_assert_uint_eq(v.bytes, 0);
		clv_chunks_close(c);
		provider_end(&v);
	}
}
END_TEST

CHECK_MAIN("pinned_chunks", runs_fill_a_chunk, alignment, growth_is_bounded, free_chunks_go_back, refusals,
	   looks_without_a_lock, model)
