/* SPDX-License-Identifier: MIT
 *
 * Small objects live in chunks of 256 KiB, aligned to their size, each cut into equal slots; a large object has a
 * mapping of its own that begins at the same alignment. So the header of either is found by masking an address.
 */
#define _GNU_SOURCE
#include "meta_pages.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK ((size_t)256 * 1024)
#define SMALL_MAX ((size_t)32 * 1024)
#define HEADER ((size_t)64)
#define KEEP_EMPTY 16u /* chunks kept mapped for the next class that needs one: 4 MiB */

/* 16, 32 ... 128, then four classes a doubling up to SMALL_MAX */
#define LINEAR_CLASSES 8u
#define CLASS_COUNT (LINEAR_CLASSES + 4 * 8)

struct chunk {
	struct chunk *next, *prev; /* among the chunks of the class that have a free slot, or among the empty ones */
	void *free;                /* slots given back: each holds the address of the next */
	size_t size;               /* of a slot; large: usable bytes */
	size_t mapped;             /* large: of the whole mapping; small: 0 */
	uint32_t fresh, slots;     /* slots from `fresh` on were never given */
	uint32_t used, class;
};

_Static_assert(sizeof(struct chunk) <= HEADER, "objects begin behind the header");

static struct {
	pthread_mutex_t lock;
	struct chunk *partial[CLASS_COUNT];
	struct chunk *empty;
	uint32_t empty_count;
	uint64_t mapped;
} pages = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A child of fork() must not find the lock taken by a thread that it does not have. */
static void fork_prepare(void)
{
	pthread_mutex_lock(&pages.lock);
}

static void fork_done(void)
{
	pthread_mutex_unlock(&pages.lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(fork_prepare, fork_done, fork_done);
}

static unsigned class_of(size_t size)
{
	if (size <= 16 * LINEAR_CLASSES)
		return (unsigned)((size + 15) / 16) - 1;
	/* size is in (2^k, 2^(k+1)], k >= 7; the quarters of that interval are classes */
	unsigned k = clv_log2(size - 1);
	return LINEAR_CLASSES + 4 * (k - 7) + (unsigned)((size - 1) >> (k - 2)) - 4;
}

static size_t class_size(unsigned class)
{
	if (class < LINEAR_CLASSES)
		return 16 * ((size_t) class + 1);
	unsigned k = 7 + (class - LINEAR_CLASSES) / 4, quarter = (class - LINEAR_CLASSES) % 4;
	return ((size_t)5 + quarter) << (k - 2);
}

static struct chunk *chunk_of(void *p)
{
	return (struct chunk *)((uintptr_t)p & ~(uintptr_t)(CHUNK - 1));
}

static size_t page_size(void)
{
	static size_t size;
	size_t s = __atomic_load_n(&size, __ATOMIC_RELAXED);
	if (!s) {
		s = (size_t)sysconf(_SC_PAGESIZE);
		__atomic_store_n(&size, s, __ATOMIC_RELAXED);
	}
	return s;
}

/* Maps `size` bytes, a multiple of the page size, that begin at a multiple of CHUNK. */
static void *map_aligned(size_t size, int protection)
{
	size_t page = page_size();
	size_t slack = CHUNK > page ? CHUNK - page : 0;
	if (size > SIZE_MAX / 2)
		return NULL;
	char *p = mmap(NULL, size + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	size_t before = (size_t)(-(uintptr_t)p & (CHUNK - 1));
	if (before)
		munmap(p, before);
	if (slack - before)
		munmap(p + before + size, slack - before);
	return p + before;
}

static void list_add(struct chunk **head, struct chunk *c)
{
	c->prev = NULL;
	c->next = *head;
	if (*head)
		(*head)->prev = c;
	*head = c;
}

static void list_remove(struct chunk **head, struct chunk *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		*head = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

static struct chunk *chunk_new(unsigned class)
{
	struct chunk *c = pages.empty;
	if (c) {
		list_remove(&pages.empty, c);
		pages.empty_count--;
	} else {
		c = map_aligned(CHUNK, PROT_READ | PROT_WRITE);
		if (!c)
			return NULL;
		pages.mapped += CHUNK;
	}
	size_t size = class_size(class);
	*c = (struct chunk){.size = size, .slots = (uint32_t)((CHUNK - HEADER) / size), .class = class};
	list_add(&pages.partial[class], c);
	return c;
}

static void *small_alloc(size_t size)
{
	unsigned class = class_of(size);
	pthread_mutex_lock(&pages.lock);
	struct chunk *c = pages.partial[class];
	if (!c)
		c = chunk_new(class);
	void *p = NULL;
	if (c) {
		p = c->free;
		if (p)
			memcpy(&c->free, p, sizeof(c->free));
		else
			p = (char *)c + HEADER + (size_t)c->fresh++ * c->size;
		if (++c->used == c->slots)
			list_remove(&pages.partial[class], c);
	}
	pthread_mutex_unlock(&pages.lock);
	return p;
}

static void small_free(struct chunk *c, void *p)
{
	struct chunk *gone = NULL;
	pthread_mutex_lock(&pages.lock);
	memcpy(p, &c->free, sizeof(c->free));
	c->free = p;
	if (c->used-- == c->slots)
		list_add(&pages.partial[c->class], c);
	/* the last chunk of a class stays, lest one object that comes and goes maps and unmaps it */
	if (!c->used && (c->prev || c->next)) {
		list_remove(&pages.partial[c->class], c);
		if (pages.empty_count < KEEP_EMPTY) {
			list_add(&pages.empty, c);
			pages.empty_count++;
		} else {
			pages.mapped -= CHUNK;
			gone = c;
		}
	}
	pthread_mutex_unlock(&pages.lock);
	if (gone)
		munmap(gone, CHUNK);
}

static bool large_mapping(size_t size, size_t *mapped)
{
	size_t page = page_size();
	if (size > SIZE_MAX / 2)
		return false;
	*mapped = (size + HEADER + page - 1) & ~(page - 1);
	return true;
}

static void count_mapped(size_t more, size_t less)
{
	pthread_mutex_lock(&pages.lock);
	pages.mapped += more;
	pages.mapped -= less;
	pthread_mutex_unlock(&pages.lock);
}

static void *large_alloc(size_t size)
{
	size_t mapped;
	struct chunk *c = large_mapping(size, &mapped) ? map_aligned(mapped, PROT_READ | PROT_WRITE) : NULL;
	if (!c)
		return NULL;
	*c = (struct chunk){.size = mapped - HEADER, .mapped = mapped};
	count_mapped(mapped, 0);
	return (char *)c + HEADER;
}

void *clv_pages_alloc(size_t size)
{
	return size <= SMALL_MAX ? small_alloc(size) : large_alloc(size);
}

void *clv_pages_zalloc(size_t size)
{
	void *p = clv_pages_alloc(size);
	if (p && size <= SMALL_MAX)
		memset(p, 0, size);
	return p; /* a large object is fresh from the kernel */
}

void clv_pages_free(void *p)
{
	if (!p)
		return;
	struct chunk *c = chunk_of(p);
	if (!c->mapped) {
		small_free(c, p);
		return;
	}
	size_t mapped = c->mapped;
	munmap(c, mapped);
	count_mapped(0, mapped);
}

size_t clv_pages_usable(void *p)
{
	return chunk_of(p)->size;
}

/* A large object that stays large: its pages move instead of their contents. */
static void *large_resize(struct chunk *c, size_t size)
{
	size_t old = c->mapped, mapped;
	if (!large_mapping(size, &mapped))
		return NULL;
	if (mapped == old)
		return (char *)c + HEADER;
	if (mremap(c, old, mapped, 0) == MAP_FAILED) {
		void *to = map_aligned(mapped, PROT_NONE);
		if (!to)
			return NULL;
		if (mremap(c, old, mapped, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
			munmap(to, mapped);
			return NULL;
		}
		c = to;
	}
	c->mapped = mapped;
	c->size = mapped - HEADER;
	count_mapped(mapped, old);
	return (char *)c + HEADER;
}

void *clv_pages_realloc(void *p, size_t size)
{
	if (!p)
		return clv_pages_alloc(size);
	struct chunk *c = chunk_of(p);
	if (c->mapped && size > SMALL_MAX)
		return large_resize(c, size);
	if (!c->mapped && size <= SMALL_MAX && class_of(size) == c->class)
		return p;
	void *q = clv_pages_alloc(size);
	if (!q)
		return NULL;
	memcpy(q, p, size < c->size ? size : c->size);
	clv_pages_free(p);
	return q;
}

uint64_t clv_pages_mapped(void)
{
	pthread_mutex_lock(&pages.lock);
	uint64_t mapped = pages.mapped;
	pthread_mutex_unlock(&pages.lock);
	return mapped;
}
