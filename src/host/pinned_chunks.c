/* SPDX-License-Identifier: MIT
 *
 * Each chunk has a bit a page, set while the page is in use. Chunks stand in a table sorted by address, which is also
 * what clv_chunks_own() searches, without the lock: it reads a sequence number before and after, which is odd while the
 * table changes. A table that grows is copied, and the old one kept until the end, since somebody may be reading it.
 */
#include "pinned_chunks.h"

#include "meta.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

/* Between these a chunk is a quarter of what is held. Pinning costs about 0.64 ms/MiB: the largest, 41 ms. */
#define CHUNK_MIN ((size_t)2 * CLV_MIB)
#define CHUNK_MAX ((size_t)64 * CLV_MIB)

struct clv_chunk {
	uintptr_t base;
	size_t pages, free; /* in pages */
	size_t first_free;  /* no page before it is free */
	bool unsettled;
	uint64_t used[]; /* bits */
};

struct entry {
	uintptr_t base, end;
	struct clv_chunk *chunk;
};

struct table {
	struct table *older;
	size_t capacity;
	struct entry entries[];
};

struct clv_chunks {
	struct clv_chunk_source source;
	pthread_mutex_t lock;
	/* written under the lock, read also without it */
	uint64_t sequence;
	struct table *table;
	size_t count;
	/* under the lock */
	struct clv_chunks_stats stats;
};

static struct table *table_new(size_t capacity)
{
	struct table *t = clv_meta_zalloc(sizeof(*t) + capacity * sizeof(t->entries[0]));
	if (t)
		t->capacity = capacity;
	return t;
}

struct clv_chunks *clv_chunks_open(const struct clv_chunk_source *source)
{
	struct clv_chunks *c = clv_meta_zalloc(sizeof(*c));
	struct table *t = table_new(16);
	if (!c || !t) {
		clv_meta_free(t);
		clv_meta_free(c);
		return NULL;
	}
	c->source = *source;
	c->table = t;
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

/* The table. */

/* Of the first entry that ends behind `at`. Reads each field once, since the table may be changing. */
static size_t table_search(const struct table *t, size_t count, uintptr_t at)
{
	size_t lo = 0, hi = count;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (__atomic_load_n(&t->entries[mid].end, __ATOMIC_ACQUIRE) <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Readers must not see a change before the odd number (each store releases what stands before it), nor the even one
 * before the changes. */
static void change_begin(struct clv_chunks *c)
{
	__atomic_store_n(&c->sequence, c->sequence + 1, __ATOMIC_RELAXED);
}

static void change_end(struct clv_chunks *c)
{
	__atomic_store_n(&c->sequence, c->sequence + 1, __ATOMIC_RELEASE);
}

static void entry_set(struct table *t, size_t i, struct entry e)
{
	__atomic_store_n(&t->entries[i].base, e.base, __ATOMIC_RELEASE);
	__atomic_store_n(&t->entries[i].end, e.end, __ATOMIC_RELEASE);
	t->entries[i].chunk = e.chunk; /* read under the lock only */
}

static void table_insert(struct clv_chunks *c, struct clv_chunk *chunk)
{
	struct table *t = c->table;
	struct entry e = {chunk->base, chunk->base + chunk->pages * CLV_PINNED_PAGE, chunk};
	size_t at = table_search(t, c->count, chunk->base);
	change_begin(c);
	for (size_t i = c->count; i > at; i--)
		entry_set(t, i, t->entries[i - 1]);
	entry_set(t, at, e);
	__atomic_store_n(&c->count, c->count + 1, __ATOMIC_RELEASE);
	change_end(c);
}

static void table_remove(struct clv_chunks *c, size_t at)
{
	change_begin(c);
	for (size_t i = at; i + 1 < c->count; i++)
		entry_set(c->table, i, c->table->entries[i + 1]);
	__atomic_store_n(&c->count, c->count - 1, __ATOMIC_RELEASE);
	change_end(c);
}

/* Makes room for one more entry; takes the lock, and returns with it unless there is no memory. */
static bool lock_with_room(struct clv_chunks *c)
{
	pthread_mutex_lock(&c->lock);
	while (c->count == c->table->capacity) {
		size_t capacity = 2 * c->table->capacity;
		pthread_mutex_unlock(&c->lock);
		struct table *t = table_new(capacity);
		if (!t)
			return false;
		pthread_mutex_lock(&c->lock);
		if (c->table->capacity >= capacity) { /* somebody else was here */
			pthread_mutex_unlock(&c->lock);
			clv_meta_free(t);
			pthread_mutex_lock(&c->lock);
			continue;
		}
		memcpy(t->entries, c->table->entries, c->count * sizeof(t->entries[0]));
		t->older = c->table;
		change_begin(c);
		__atomic_store_n(&c->table, t, __ATOMIC_RELEASE);
		change_end(c);
	}
	return true;
}

bool clv_chunks_own(struct clv_chunks *c, const void *p)
{
	uintptr_t at = (uintptr_t)p;
	for (unsigned tries = 1;; tries++) {
		uint64_t before = __atomic_load_n(&c->sequence, __ATOMIC_ACQUIRE);
		if (!(before & 1)) {
			const struct table *t = __atomic_load_n(&c->table, __ATOMIC_ACQUIRE);
			size_t count = __atomic_load_n(&c->count, __ATOMIC_ACQUIRE);
			count = count < t->capacity ? count : t->capacity;
			size_t i = table_search(t, count, at);
			bool own = i < count && __atomic_load_n(&t->entries[i].base, __ATOMIC_ACQUIRE) <= at;
			if (__atomic_load_n(&c->sequence, __ATOMIC_RELAXED) == before)
				return own;
		}
		if (tries % 64 == 0)
			sched_yield(); /* whoever changes it may be waiting for this core */
	}
}

/* The lock is held. NULL: in none. */
static struct clv_chunk *chunk_at(struct clv_chunks *c, const void *p)
{
	size_t i = table_search(c->table, c->count, (uintptr_t)p);
	return i < c->count && c->table->entries[i].base <= (uintptr_t)p ? c->table->entries[i].chunk : NULL;
}

/* Runs of pages. */

/* The first page from `i` on that is `used` or not; chunk->pages if there is none. */
static size_t next_page(const struct clv_chunk *chunk, size_t i, bool used)
{
	while (i < chunk->pages) {
		uint64_t word = chunk->used[i / 64];
		word = (used ? word : ~word) >> (i % 64);
		if (word) {
			i += (size_t)__builtin_ctzll(word);
			break;
		}
		i = (i / 64 + 1) * 64;
	}
	return i < chunk->pages ? i : chunk->pages;
}

static void mark(struct clv_chunk *chunk, size_t first, size_t count, bool used)
{
	for (size_t i = first; i < first + count;) {
		size_t in_word = 64 - i % 64, left = first + count - i;
		size_t n = left < in_word ? left : in_word;
		uint64_t bits = (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1) << (i % 64);
		if (used)
			chunk->used[i / 64] |= bits;
		else
			chunk->used[i / 64] &= ~bits;
		i += n;
	}
}

/* Takes `count` pages of the chunk, at the lowest address. NULL: no room. */
static void *chunk_take(struct clv_chunk *chunk, size_t count, size_t align)
{
	if (chunk->free < count)
		return NULL;
	size_t i = chunk->first_free = next_page(chunk, chunk->first_free, false);
	for (;;) {
		uintptr_t address = clv_align_up(chunk->base + i * CLV_PINNED_PAGE, align);
		i = (address - chunk->base) / CLV_PINNED_PAGE;
		if (i >= chunk->pages || chunk->pages - i < count)
			return NULL;
		size_t end = next_page(chunk, i, true);
		if (end - i >= count) {
			mark(chunk, i, count, true);
			chunk->free -= count;
			return (void *)address;
		}
		i = next_page(chunk, end, false);
	}
}

void *clv_chunks_take(struct clv_chunks *c, size_t size, size_t align)
{
	void *run = NULL;
	pthread_mutex_lock(&c->lock);
	if (c->stats.free >= size)
		for (size_t i = 0; i < c->count && !run; i++)
			run = chunk_take(c->table->entries[i].chunk, size / CLV_PINNED_PAGE, align);
	if (run)
		c->stats.free -= size;
	pthread_mutex_unlock(&c->lock);
	return run;
}

void clv_chunks_put(struct clv_chunks *c, void *run, size_t size)
{
	pthread_mutex_lock(&c->lock);
	struct clv_chunk *chunk = chunk_at(c, run);
	if (chunk) {
		size_t first = ((uintptr_t)run - chunk->base) / CLV_PINNED_PAGE, count = size / CLV_PINNED_PAGE;
		mark(chunk, first, count, false);
		chunk->free += count;
		if (first < chunk->first_free)
			chunk->first_free = first;
		c->stats.free += size;
	}
	pthread_mutex_unlock(&c->lock);
}

/* Chunks. */

static size_t chunk_size(struct clv_chunks *c, size_t need, uint64_t limit)
{
	pthread_mutex_lock(&c->lock);
	uint64_t held = c->stats.held, free = c->stats.free;
	pthread_mutex_unlock(&c->lock);
	uint64_t size = clv_min_u64(clv_max_u64(held / 4, CHUNK_MIN), CHUNK_MAX);
	uint64_t spare = limit > free ? limit - free : 0;
	if (size > need && size - need > spare)
		size = need + spare;
	return clv_max_u64(clv_align_down(size, CLV_PINNED_PAGE), need);
}

static void *buy(struct clv_chunks *c, size_t size)
{
	void *base = c->source.alloc(c->source.ctx, size);
	if (base && (uintptr_t)base % CLV_PINNED_PAGE) { /* of no use here */
		c->source.free(c->source.ctx, base, size);
		base = NULL;
	}
	if (!base) {
		pthread_mutex_lock(&c->lock);
		c->stats.refused++;
		pthread_mutex_unlock(&c->lock);
	}
	return base;
}

struct clv_chunk *clv_chunks_grow(struct clv_chunks *c, size_t size, size_t align, uint64_t limit)
{
	size_t need;
	if (__builtin_add_overflow(size, align - CLV_PINNED_PAGE, &need))
		return NULL;
	size_t bytes = chunk_size(c, need, limit);
	void *base = buy(c, bytes);
	if (!base && bytes > need)
		base = buy(c, bytes = need);
	if (!base)
		return NULL;
	size_t pages = bytes / CLV_PINNED_PAGE;
	struct clv_chunk *chunk = clv_meta_zalloc(sizeof(*chunk) + (pages + 63) / 64 * sizeof(chunk->used[0]));
	if (!chunk || !lock_with_room(c)) {
		clv_meta_free(chunk);
		c->source.free(c->source.ctx, base, bytes);
		return NULL;
	}
	chunk->base = (uintptr_t)base;
	chunk->pages = chunk->free = pages;
	chunk->unsettled = true;
	table_insert(c, chunk);
	c->stats.held += bytes;
	c->stats.free += bytes;
	c->stats.bought++;
	pthread_mutex_unlock(&c->lock);
	return chunk;
}

void clv_chunks_settle(struct clv_chunks *c, struct clv_chunk *chunk)
{
	pthread_mutex_lock(&c->lock);
	chunk->unsettled = false;
	pthread_mutex_unlock(&c->lock);
}

/* Of the chunks that can go the smallest with `excess` pages, else the largest. The lock is held; c->count: none. */
static size_t find_free(struct clv_chunks *c, size_t excess)
{
	size_t best = c->count, best_pages = 0;
	for (size_t i = 0; i < c->count; i++) {
		const struct clv_chunk *chunk = c->table->entries[i].chunk;
		if (chunk->free < chunk->pages || chunk->unsettled)
			continue;
		bool better = best_pages < excess ? chunk->pages > best_pages
						  : chunk->pages >= excess && chunk->pages < best_pages;
		if (best == c->count || better) {
			best = i;
			best_pages = chunk->pages;
		}
	}
	return best;
}

static void give_back(struct clv_chunks *c, struct clv_chunk *chunk)
{
	c->source.free(c->source.ctx, (void *)chunk->base, chunk->pages * CLV_PINNED_PAGE);
	clv_meta_free(chunk);
}

uint64_t clv_chunks_release(struct clv_chunks *c, uint64_t keep)
{
	uint64_t released = 0;
	for (;;) {
		struct clv_chunk *chunk = NULL;
		pthread_mutex_lock(&c->lock);
		if (c->stats.free > keep) {
			size_t excess = (c->stats.free - keep + CLV_PINNED_PAGE - 1) / CLV_PINNED_PAGE;
			size_t i = find_free(c, excess);
			if (i < c->count) {
				chunk = c->table->entries[i].chunk;
				table_remove(c, i);
				c->stats.held -= chunk->pages * CLV_PINNED_PAGE;
				c->stats.free -= chunk->pages * CLV_PINNED_PAGE;
				c->stats.given_back++;
				released += chunk->pages * CLV_PINNED_PAGE;
			}
		}
		pthread_mutex_unlock(&c->lock);
		if (!chunk)
			return released;
		give_back(c, chunk);
	}
}

void clv_chunks_get_stats(struct clv_chunks *c, struct clv_chunks_stats *out)
{
	pthread_mutex_lock(&c->lock);
	*out = c->stats;
	out->chunks = c->count;
	pthread_mutex_unlock(&c->lock);
}

void clv_chunks_close(struct clv_chunks *c)
{
	for (size_t i = 0; i < c->count; i++)
		give_back(c, c->table->entries[i].chunk);
	for (struct table *t = c->table, *older; t; t = older) {
		older = t->older;
		clv_meta_free(t);
	}
	pthread_mutex_destroy(&c->lock);
	clv_meta_free(c);
}
