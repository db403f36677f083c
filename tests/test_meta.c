/* SPDX-License-Identifier: MIT
 *
 * Host memory for our own books, in each flavour: CLV_JE_FLAVOUR says which one this program is built with.
 */
#include "../src/host/meta.h"
#include "../src/host/meta_pages.h"
#include "check_main.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(which_flavour)
{
	bool jemalloc = clv_meta_uses_jemalloc();
#if CLV_JE_FLAVOUR == 0
	ck_assert(!jemalloc);
#elif CLV_JE_FLAVOUR == 2
	ck_assert(jemalloc);
#else
	/* whether it can be opened here is the machine's affair; either way the tests below must hold */
	printf("jemalloc at run time: %s\n", jemalloc ? "found" : "not usable, pages instead");
	if (getenv("CLEAVE_EXPECT_JEMALLOC"))
		ck_assert(jemalloc);
#endif
	void *p = clv_meta_alloc(100);
	ck_assert_ptr_nonnull(p);
	/* the pages are used if and only if jemalloc is not */
	ck_assert_int_eq(clv_pages_mapped() == 0, jemalloc);
	clv_meta_free(p);
}
END_TEST

/* Every size up to 70,000 bytes and some large ones: aligned, writable to the last byte, apart from its neighbours. */
START_TEST(sizes)
{
	ck_assert_uint_eq(clv_meta_bytes(), 0);
	for (size_t size = 0; size < 70000; size += size < 2100 ? 1 : 509) {
		uint8_t *p = clv_meta_alloc(size), *q = clv_meta_zalloc(size);
		ck_assert_ptr_nonnull(p);
		ck_assert_ptr_nonnull(q);
		ck_assert_ptr_ne(p, q);
		ck_assert_uint_eq((uintptr_t)p % 16, 0);
		ck_assert_uint_eq((uintptr_t)q % 16, 0);
		ck_assert_uint_ge(clv_meta_bytes(), 2 * size);
		memset(p, 0xff, size);
		size_t dirty = 0;
		for (size_t i = 0; i < size; i++)
			dirty += q[i] != 0;
		ck_assert_uint_eq(dirty, 0);
		memset(q, 0xff, size); /* so that a slot which comes again is dirty */
		clv_meta_free(p);
		clv_meta_free(q);
		ck_assert_uint_eq(clv_meta_bytes(), 0);
	}
	for (size_t size = 1 << 17; size <= (size_t)64 << 20; size *= 2)
		for (int off = -1; off <= 1; off++) {
			uint8_t *p = clv_meta_zalloc(size + (size_t)off);
			ck_assert_ptr_nonnull(p);
			ck_assert_uint_eq((uintptr_t)p % 16, 0);
			ck_assert_uint_eq(p[0] | p[size / 2] | p[size + (size_t)off - 1], 0);
			p[0] = p[size + (size_t)off - 1] = 1;
			clv_meta_free(p);
		}
	ck_assert_uint_eq(clv_meta_bytes(), 0);
	clv_meta_free(NULL);
}
END_TEST

START_TEST(absurd_sizes_fail)
{
	static const size_t absurd[] = {SIZE_MAX,     SIZE_MAX - 15,    SIZE_MAX - 4096,
					SIZE_MAX / 2, SIZE_MAX / 2 + 1, (size_t)1 << 62};
	char *p = clv_meta_alloc(100000), *q = clv_meta_alloc(10);
	p[99999] = q[9] = 5;
	uint64_t before = clv_meta_bytes();
	for (size_t i = 0; i < CLV_ARRAY_LEN(absurd); i++) {
		volatile size_t size = absurd[i]; /* or the compiler warns that this is absurd */
		ck_assert_ptr_null(clv_meta_alloc(size));
		ck_assert_ptr_null(clv_meta_zalloc(size));
		ck_assert_ptr_null(clv_meta_realloc(p, size));
		ck_assert_ptr_null(clv_meta_realloc(q, size));
	}
	ck_assert_int_eq(p[99999], 5);
	ck_assert_int_eq(q[9], 5);
	ck_assert_uint_eq(clv_meta_bytes(), before);
	clv_meta_free(p);
	clv_meta_free(q);
}
END_TEST

START_TEST(realloc_keeps_contents)
{
	uint32_t *p = NULL;
	size_t count = 0;
	for (size_t next = 1; next < 6000000; next += next / 7 + 1) {
		p = clv_meta_realloc(p, next * sizeof(*p));
		ck_assert_ptr_nonnull(p);
		for (; count < next; count++)
			p[count] = (uint32_t)clv_mix64(count);
		ck_assert_uint_ge(clv_meta_bytes(), next * sizeof(*p));
	}
	size_t wrong = 0;
	for (size_t i = 0; i < count; i++)
		wrong += p[i] != (uint32_t)clv_mix64(i);
	/* and back, until nothing is left */
	while (count) {
		count /= 3;
		p = clv_meta_realloc(p, count * sizeof(*p));
		ck_assert_ptr_nonnull(p);
		for (size_t i = 0; i < count; i++)
			wrong += p[i] != (uint32_t)clv_mix64(i);
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_lt(clv_meta_bytes(), 100);
	clv_meta_free(p);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}
END_TEST

START_TEST(failure_injection)
{
	clv_meta_fail_after(3);
	void *a = clv_meta_alloc(10), *b = clv_meta_zalloc(10);
	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_nonnull(b);
	uint64_t bytes = clv_meta_bytes();
	ck_assert_ptr_null(clv_meta_alloc(10));
	ck_assert_ptr_null(clv_meta_zalloc(10));
	ck_assert_ptr_null(clv_meta_realloc(a, 1000));
	ck_assert_ptr_null(clv_meta_realloc(NULL, 10));
	ck_assert_uint_eq(clv_meta_bytes(), bytes);
	clv_meta_fail_after(0);
	a = clv_meta_realloc(a, 1000);
	ck_assert_ptr_nonnull(a);
	clv_meta_fail_after(1);
	ck_assert_ptr_null(clv_meta_alloc(1));
	clv_meta_free(a);
	clv_meta_free(b);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
	clv_meta_fail_after(0);
}
END_TEST

/* Random allocations, each full of its own pattern; in several threads, which free each other's. */
struct owned {
	uint8_t *p;
	size_t size;
	uint8_t fill;
};

static struct owned exchange[64];
static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t check_and_free(struct owned *o)
{
	uint64_t wrong = 0;
	for (size_t i = 0; i < o->size; i++)
		wrong += o->p[i] != o->fill;
	clv_meta_free(o->p);
	o->p = NULL;
	return wrong;
}

static size_t random_size(struct clv_rng *rng)
{
	return clv_rng_below(rng, (uint64_t)1 << clv_rng_range(rng, 4, 17));
}

static void *churn(void *arg)
{
	enum { OWN = 200 };
	struct clv_rng rng = {(uint64_t)(uintptr_t)arg};
	struct owned own[OWN] = {0};
	uint64_t wrong = 0;
	for (int step = 0; step < 20000; step++) {
		struct owned *o = &own[clv_rng_below(&rng, OWN)];
		if (!o->p) {
			o->size = random_size(&rng);
			o->fill = (uint8_t)clv_rng_next(&rng);
			o->p = clv_meta_alloc(o->size);
			wrong += !o->p;
			memset(o->p, o->fill, o->size);
		} else if (clv_rng_below(&rng, 3) == 0) {
			size_t size = random_size(&rng);
			uint8_t *p = clv_meta_realloc(o->p, size);
			wrong += !p;
			o->p = p;
			if (size > o->size)
				memset(p + o->size, o->fill, size - o->size);
			o->size = size;
		} else if (clv_rng_below(&rng, 3) == 0) {
			uint64_t slot = clv_rng_below(&rng, CLV_ARRAY_LEN(exchange));
			pthread_mutex_lock(&exchange_lock);
			struct owned theirs = exchange[slot];
			exchange[slot] = *o;
			pthread_mutex_unlock(&exchange_lock);
			*o = theirs;
		} else {
			wrong += check_and_free(o);
		}
	}
	for (int i = 0; i < OWN; i++)
		if (own[i].p)
			wrong += check_and_free(&own[i]);
	return (void *)(uintptr_t)wrong;
}

START_TEST(threads)
{
	pthread_t thread[4];
	for (uintptr_t i = 0; i < CLV_ARRAY_LEN(thread); i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, churn, (void *)(i + 1)), 0);
	uint64_t wrong = 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(thread); i++) {
		void *result;
		pthread_join(thread[i], &result);
		wrong += (uintptr_t)result;
	}
	for (size_t i = 0; i < CLV_ARRAY_LEN(exchange); i++)
		if (exchange[i].p)
			wrong += check_and_free(&exchange[i]);
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
	/* what was emptied went back to the system, but for a few chunks kept for the next, and one a class */
	ck_assert_uint_le(clv_pages_mapped(), (16 + 40) * 256 * CLV_KIB);
}
END_TEST

static bool stop; /* atomic */

static void *churn_on(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		clv_meta_free(clv_meta_alloc(64));
	return NULL;
}

/* A child of fork can allocate whatever another thread was doing at that moment. */
START_TEST(fork_is_survived)
{
	clv_meta_free(clv_meta_alloc(1)); /* the first call must not race a fork */
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, churn_on, NULL), 0);
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();
		ck_assert_int_ge(child, 0);
		if (!child) {
			alarm(20); /* instead of hanging */
			void *p = clv_meta_alloc(64), *q = clv_meta_alloc(1 << 20);
			bool good = p && q;
			clv_meta_free(p);
			clv_meta_free(q);
			_exit(good ? 0 : 1);
		}
		int status;
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFEXITED(status));
		ck_assert_int_eq(WEXITSTATUS(status), 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}
END_TEST

/* The fallback's own books, in every flavour. */
START_TEST(pages_give_memory_back)
{
	enum { COUNT = 20000 };
	static void *p[COUNT];
	for (int round = 0; round < 3; round++) {
		uint64_t usable = 0;
		for (int i = 0; i < COUNT; i++) {
			p[i] = clv_pages_alloc(1 + (size_t)i % 5000);
			ck_assert_ptr_nonnull(p[i]);
			usable += clv_pages_usable(p[i]);
			ck_assert_uint_ge(clv_pages_usable(p[i]), 1 + (size_t)i % 5000);
		}
		ck_assert_uint_ge(clv_pages_mapped(), usable);
		/* little is lost to headers, rounding and chunks begun */
		ck_assert_uint_le(clv_pages_mapped(), usable + usable / 20 + 40 * 256 * CLV_KIB);
		for (int i = 0; i < COUNT; i++)
			clv_pages_free(p[(i * 7919) % COUNT]);
		ck_assert_uint_le(clv_pages_mapped(), (16 + 40) * 256 * CLV_KIB);
	}
	uint64_t before = clv_pages_mapped();
	void *large = clv_pages_alloc(10 * CLV_MIB);
	ck_assert_uint_ge(clv_pages_mapped() - before, 10 * CLV_MIB);
	large = clv_pages_realloc(large, 40 * CLV_MIB);
	ck_assert_uint_ge(clv_pages_usable(large), 40 * CLV_MIB);
	ck_assert_uint_lt(clv_pages_mapped() - before, 41 * CLV_MIB);
	large = clv_pages_realloc(large, CLV_MIB);
	ck_assert_uint_lt(clv_pages_mapped() - before, 2 * CLV_MIB);
	large = clv_pages_realloc(large, 100);
	clv_pages_free(large);
	ck_assert_uint_le(clv_pages_mapped(), before + 256 * CLV_KIB);
	/* rounding never exceeds a quarter (beyond the first 16 bytes) */
	size_t wrong = 0;
	for (size_t size = 1; size <= 32768; size++) {
		void *q = clv_pages_alloc(size);
		size_t usable = clv_pages_usable(q);
		wrong += usable < size || usable > size + size / 4 + 15;
		clv_pages_free(q);
	}
	ck_assert_uint_eq(wrong, 0);
}
END_TEST

CHECK_MAIN("meta", which_flavour, sizes, absurd_sizes_fail, realloc_keeps_contents, failure_injection, threads,
	   fork_is_survived, pages_give_memory_back)
