/* SPDX-License-Identifier: MIT
 *
 * chunk_provider: a source of chunks for the tests of pinned memory, which counts, refuses when told to, and knows who
 * owns each page. A mutex guards it.
 */
#ifndef CLV_CHUNK_PROVIDER_H
#define CLV_CHUNK_PROVIDER_H

#include "../src/base/base.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PROVIDER_CHUNKS = 8192, PROVIDER_PAGE = 4096 };

struct provided {
	char *base;
	size_t size, claimed; /* bytes */
	const void **owner;   /* a page */
};

struct provider {
	pthread_mutex_t lock;
	struct provided chunk[PROVIDER_CHUNKS];
	size_t count;
	uint64_t bytes, calls, wrong;
	uint64_t fail_at, fail_from; /* the n-th call from now on, or it and all later ones, is refused; 0: none */
	size_t largest;              /* a larger chunk is refused */
	bool misalign;
};

static inline void provider_init(struct provider *v)
{
	memset(v, 0, sizeof(*v));
	v->largest = SIZE_MAX;
	pthread_mutex_init(&v->lock, NULL);
}

/* All that was given has come back. */
static inline void provider_end(struct provider *v)
{
	ck_assert_uint_eq(v->bytes, 0);
	ck_assert_uint_eq(v->count, 0);
	ck_assert_uint_eq(v->wrong, 0);
	pthread_mutex_destroy(&v->lock);
}

static inline bool provider_refuses(struct provider *v, size_t size)
{
	bool at = v->fail_at && v->fail_at-- == 1;
	if (v->fail_from > 1)
		v->fail_from--;
	else if (v->fail_from)
		return true;
	return at || size > v->largest || v->count == PROVIDER_CHUNKS;
}

static inline void *provider_alloc(void *ctx, size_t size)
{
	struct provider *v = ctx;
	char *base = NULL;
	pthread_mutex_lock(&v->lock);
	v->calls++;
	v->wrong += !size || size % PROVIDER_PAGE;
	if (!provider_refuses(v, size)) {
		/* a page more, so that a wrong address can be given */
		base = mmap(NULL, size + PROVIDER_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (base == MAP_FAILED)
			abort();
		if (v->misalign)
			base += 64;
		else
			munmap(base + size, PROVIDER_PAGE);
		v->chunk[v->count++] =
			(struct provided){base, size, 0, calloc(size / PROVIDER_PAGE + 1, sizeof(void *))};
		v->bytes += size;
	}
	pthread_mutex_unlock(&v->lock);
	return base;
}

static inline void provider_free(void *ctx, void *chunk, size_t size)
{
	struct provider *v = ctx;
	pthread_mutex_lock(&v->lock);
	size_t i = 0;
	while (i < v->count && v->chunk[i].base != chunk)
		i++;
	if (i == v->count || v->chunk[i].size != size) {
		v->wrong++;
	} else {
		v->wrong += v->chunk[i].claimed != 0;
		free(v->chunk[i].owner);
		munmap((void *)((uintptr_t)chunk & ~(uintptr_t)(PROVIDER_PAGE - 1)),
		       size + ((uintptr_t)chunk % PROVIDER_PAGE ? PROVIDER_PAGE : 0));
		v->chunk[i] = v->chunk[--v->count];
		v->bytes -= size;
	}
	pthread_mutex_unlock(&v->lock);
}

/* Pages from `at` on change from the owner `from` to `to`; NULL: nobody. */
static inline void provider_hand(struct provider *v, char *at, size_t size, const void *from, const void *to)
{
	for (size_t i = 0; i < v->count; i++) {
		struct provided *c = &v->chunk[i];
		if (at < c->base || at >= c->base + c->size)
			continue;
		ck_assert_uint_le((size_t)(at - c->base) + size, c->size);
		size_t first = (size_t)(at - c->base) / PROVIDER_PAGE;
		for (size_t k = first; k < first + size / PROVIDER_PAGE; k++) {
			v->wrong += c->owner[k] != from;
			c->owner[k] = to;
		}
		c->claimed += to ? size : 0;
		c->claimed -= from ? size : 0;
		return;
	}
	ck_abort_msg("%p is in no chunk", (void *)at);
}

static inline size_t provider_unclaimed_chunks(const struct provider *v)
{
	size_t n = 0;
	for (size_t i = 0; i < v->count; i++)
		n += !v->chunk[i].claimed;
	return n;
}

#endif
