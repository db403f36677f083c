/* SPDX-License-Identifier: MIT */
#include "meta.h"

#include "je.h"
#include "meta_pages.h"

#include <pthread.h>
#include <string.h>

/* Written once, before `once` is done. */
static const struct clv_je *je; /* NULL: the books live in pages */
static int arena_flags;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t bytes_in_use, fail_in; /* atomic */

static void start(void)
{
	const struct clv_je *j = clv_je();
	unsigned arena;
	if (j && clv_je_arena(j, &arena, &arena_flags))
		je = j;
}

static bool ready(void)
{
	pthread_once(&once, start);
	return je != NULL;
}

static bool may_fail(void)
{
	uint64_t n = __atomic_load_n(&fail_in, __ATOMIC_RELAXED);
	while (CLV_UNLIKELY(n)) {
		if (n == 1)
			return true;
		if (__atomic_compare_exchange_n(&fail_in, &n, n - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return false;
	}
	return false;
}

static size_t usable(void *p)
{
	return je ? je->sallocx(p, 0) : clv_pages_usable(p);
}

/* jemalloc's smallest class is 8 bytes, which are aligned to 8 only. */
static size_t at_least(size_t size)
{
	return size < 16 ? 16 : size;
}

static void *count(void *p)
{
	if (p)
		__atomic_fetch_add(&bytes_in_use, usable(p), __ATOMIC_RELAXED);
	return p;
}

void *clv_meta_alloc(size_t size)
{
	if (may_fail())
		return NULL;
	size = at_least(size);
	return count(ready() ? je->mallocx(size, arena_flags) : clv_pages_alloc(size));
}

void *clv_meta_zalloc(size_t size)
{
	if (may_fail())
		return NULL;
	size = at_least(size);
	return count(ready() ? je->mallocx(size, arena_flags | MALLOCX_ZERO) : clv_pages_zalloc(size));
}

void *clv_meta_realloc(void *p, size_t size)
{
	if (!p)
		return clv_meta_alloc(size);
	if (may_fail())
		return NULL;
	size = at_least(size);
	size_t before = usable(p);
	void *q = je ? je->rallocx(p, size, arena_flags) : clv_pages_realloc(p, size);
	if (q)
		__atomic_fetch_sub(&bytes_in_use, before, __ATOMIC_RELAXED);
	return count(q);
}

void clv_meta_free(void *p)
{
	if (!p)
		return;
	__atomic_fetch_sub(&bytes_in_use, usable(p), __ATOMIC_RELAXED);
	if (je)
		je->dallocx(p, arena_flags);
	else
		clv_pages_free(p);
}

uint64_t clv_meta_bytes(void)
{
	return __atomic_load_n(&bytes_in_use, __ATOMIC_RELAXED);
}

bool clv_meta_uses_jemalloc(void)
{
	return ready();
}

void clv_meta_fail_after(uint64_t n)
{
	__atomic_store_n(&fail_in, n, __ATOMIC_RELAXED);
}
