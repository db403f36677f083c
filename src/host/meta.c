/* SPDX-License-Identifier: MIT */
#include "meta.h"

#include "meta_pages.h"

#include <pthread.h>
#include <string.h>

/* How jemalloc gets here is chosen when this file is compiled. */
#define FLAVOUR_PAGES 0  /* not at all */
#define FLAVOUR_DLOPEN 1 /* looked for at run time; where it cannot be loaded the books live in pages */
#define FLAVOUR_LINKED 2 /* linked */

#ifndef CLV_META_FLAVOUR
#define CLV_META_FLAVOUR FLAVOUR_LINKED
#endif

#if CLV_META_FLAVOUR == FLAVOUR_DLOPEN
#include <dlfcn.h>
#elif CLV_META_FLAVOUR == FLAVOUR_LINKED
#include <jemalloc/jemalloc.h>
#endif

/* Of jemalloc's ABI, which is the same in every version 4 and 5: the bit of MALLOCX_ZERO, and where the tcache and
 * the arena stand in the flags. No thread cache: a cache would have to be ended with each thread of the host
 * program, and books are allocated rarely. */
#define X_ZERO 0x40
#define X_TCACHE_NONE (1 << 8)
#define X_ARENA(a) ((int)((a) + 1) << 20)

/* Written once, before `once` is done. */
static struct {
	bool usable;
	int flags;
	void *(*mallocx)(size_t size, int flags);
	void *(*rallocx)(void *p, size_t size, int flags);
	void (*dallocx)(void *p, int flags);
	size_t (*sallocx)(const void *p, int flags);
	int (*mallctl)(const char *name, void *old, size_t *old_len, void *new, size_t new_len);
} je;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t bytes_in_use, fail_in; /* atomic */

/* Every function or none. */
static bool find_jemalloc(void)
{
#if CLV_META_FLAVOUR == FLAVOUR_LINKED
	_Static_assert(MALLOCX_ZERO == X_ZERO, "jemalloc's flags");
	je.mallocx = mallocx;
	je.rallocx = rallocx;
	je.dallocx = dallocx;
	je.sallocx = sallocx;
	je.mallctl = mallctl;
	return true;
#elif CLV_META_FLAVOUR == FLAVOUR_DLOPEN
	/* Debian's jemalloc wants static TLS, of which a running process may have too little left: then this fails,
	 * and that is all. RTLD_LOCAL, lest it answer for the host program's malloc; NODELETE, since threads may be
	 * inside at exit. */
	void *lib = dlopen("libjemalloc.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return false;
	*(void **)&je.mallocx = dlsym(lib, "mallocx");
	*(void **)&je.rallocx = dlsym(lib, "rallocx");
	*(void **)&je.dallocx = dlsym(lib, "dallocx");
	*(void **)&je.sallocx = dlsym(lib, "sallocx");
	*(void **)&je.mallctl = dlsym(lib, "mallctl");
	return je.mallocx && je.rallocx && je.dallocx && je.sallocx && je.mallctl;
#else
	return false;
#endif
}

static void start(void)
{
	unsigned arena;
	size_t len = sizeof(arena);
	if (!find_jemalloc() || je.mallctl("arenas.create", &arena, &len, NULL, 0))
		return;
	je.flags = X_ARENA(arena) | X_TCACHE_NONE;
	je.usable = true;
}

static bool ready(void)
{
	pthread_once(&once, start);
	return je.usable;
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
	return je.usable ? je.sallocx(p, 0) : clv_pages_usable(p);
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
	return count(ready() ? je.mallocx(size, je.flags) : clv_pages_alloc(size));
}

void *clv_meta_zalloc(size_t size)
{
	if (may_fail())
		return NULL;
	size = at_least(size);
	return count(ready() ? je.mallocx(size, je.flags | X_ZERO) : clv_pages_zalloc(size));
}

void *clv_meta_realloc(void *p, size_t size)
{
	if (!p)
		return clv_meta_alloc(size);
	if (may_fail())
		return NULL;
	size = at_least(size);
	size_t before = usable(p);
	void *q = je.usable ? je.rallocx(p, size, je.flags) : clv_pages_realloc(p, size);
	if (q)
		__atomic_fetch_sub(&bytes_in_use, before, __ATOMIC_RELAXED);
	return count(q);
}

void clv_meta_free(void *p)
{
	if (!p)
		return;
	__atomic_fetch_sub(&bytes_in_use, usable(p), __ATOMIC_RELAXED);
	if (je.usable)
		je.dallocx(p, je.flags);
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
