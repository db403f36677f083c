/* SPDX-License-Identifier: MIT
 *
 * jemalloc's hooks only move pages that are held: a lack of room makes its call fail, the chunk is bought outside, and the
 * call is repeated. So the source, which takes 0.64 ms/MiB, and our books are never called from inside jemalloc, where
 * locks are held that a fork() waits for. All pages jemalloc has no use for come back at once (its decay is 0), and runs
 * much larger than a request can need are refused: it would keep what is left of them to itself.
 */
#include "pinned.h"

#include "je.h"
#include "meta.h"
#include "pinned_chunks.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>

#define EXTENT_MAX ((size_t)1024 * 1024) /* no slab of blocks below a page is larger, with any size of pages */
#define ALIGN_MIN ((size_t)64)
#define TRIES 16   /* to get a chunk in which others have not taken the room */
#define PENDING 16 /* tickets looked at in vain, in a call that has other things to do */

_Static_assert(EXTENT_MAX < 2 * CLV_MIB, "jemalloc asks for 2 MiB at least if it asks for more than it needs");

struct block {
	struct block *next; /* in its bucket, then in the queue */
	uintptr_t address;
	size_t bytes;
	uint64_t ticket;
	bool pages; /* whole pages of a chunk, not jemalloc's */
};

struct queue {
	struct block *first, **last;
};

struct clv_pinned {
	extent_hooks_t hooks;
	struct clv_pinned_ops ops;
	uint64_t limit;
	const struct clv_je *je;
	unsigned arena;
	int flags;
	struct clv_chunks *chunks;

	pthread_mutex_t collecting; /* held by who asks about tickets; taken before `lock` */
	pthread_mutex_t lock;
	/* under the lock: live blocks by address, and those that wait */
	struct block **buckets;
	size_t bucket_count; /* a power of two */
	struct queue waiting;
	struct clv_pinned_stats stats; /* live and waiting only */
};

/* What the last call into jemalloc of this thread lacked. */
static __thread struct {
	size_t size, align;
} lacking;

/* jemalloc's hooks. They answer true for failure. */

static struct clv_pinned *of(extent_hooks_t *hooks)
{
	return CLV_CONTAINER_OF(hooks, struct clv_pinned, hooks);
}

static void *extent_alloc(extent_hooks_t *hooks, void *at, size_t size, size_t align, bool *zero, bool *commit,
			  unsigned arena)
{
	if (at || size > EXTENT_MAX)
		return NULL;
	if (align < CLV_PINNED_PAGE)
		align = CLV_PINNED_PAGE;
	void *run = clv_chunks_take(of(hooks)->chunks, size, align);
	if (!run) {
		lacking.size = size;
		lacking.align = align;
		return NULL;
	}
	*zero = false;
	*commit = true;
	return run;
}

static bool extent_dalloc(extent_hooks_t *hooks, void *extent, size_t size, bool committed, unsigned arena)
{
	clv_chunks_put(of(hooks)->chunks, extent, size);
	return false;
}

static void extent_destroy(extent_hooks_t *hooks, void *extent, size_t size, bool committed, unsigned arena)
{
	clv_chunks_put(of(hooks)->chunks, extent, size);
}

/* Commit, decommit and purge: pinned pages are there, and stay. */
static bool extent_keep(extent_hooks_t *hooks, void *extent, size_t size, size_t offset, size_t length, unsigned arena)
{
	return true;
}

static bool extent_split(extent_hooks_t *hooks, void *extent, size_t size, size_t a, size_t b, bool committed,
			 unsigned arena)
{
	return false; /* a part lies in the same chunk, and comes back as well as the whole */
}

/* Nothing lies here long enough to be merged, and what does not lie in one chunk must not be. */
static bool extent_merge(extent_hooks_t *hooks, void *a, size_t a_size, void *b, size_t b_size, bool committed,
			 unsigned arena)
{
	return true;
}

/* Live blocks by address; the lock is held. */

static struct block **bucket(struct clv_pinned *p, uintptr_t address)
{
	return &p->buckets[clv_mix64(address) & (p->bucket_count - 1)];
}

static struct block *block_remove(struct clv_pinned *p, uintptr_t address)
{
	for (struct block **at = bucket(p, address); *at; at = &(*at)->next) {
		struct block *b = *at;
		if (b->address == address) {
			*at = b->next;
			return b;
		}
	}
	return NULL;
}

static void block_insert(struct clv_pinned *p, struct block *b)
{
	struct block **at = bucket(p, b->address);
	b->next = *at;
	*at = b;
}

static void rehash(struct clv_pinned *p, struct block **buckets, size_t count)
{
	struct block **old = p->buckets;
	size_t old_count = p->bucket_count;
	p->buckets = buckets;
	p->bucket_count = count;
	for (size_t i = 0; i < old_count; i++)
		for (struct block *b = old[i], *next; b; b = next) {
			next = b->next;
			block_insert(p, b);
		}
}

static void block_book(struct clv_pinned *p, struct block *b)
{
	pthread_mutex_lock(&p->lock);
	block_insert(p, b);
	p->stats.live += b->bytes;
	size_t count = p->bucket_count;
	bool crowded = ++p->stats.live_blocks > count;
	pthread_mutex_unlock(&p->lock);
	if (!crowded)
		return;
	/* without memory for it, the buckets get longer */
	struct block **buckets = clv_meta_zalloc(2 * count * sizeof(*buckets)), **old = buckets;
	if (!buckets)
		return;
	pthread_mutex_lock(&p->lock);
	if (p->bucket_count == count) {
		old = p->buckets;
		rehash(p, buckets, 2 * count);
	}
	pthread_mutex_unlock(&p->lock);
	clv_meta_free(old);
}

/* Blocks that wait. */

static void queue_init(struct queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}

static void queue_add(struct queue *q, struct block *b)
{
	b->next = NULL;
	*q->last = b;
	q->last = &b->next;
}

/* All of `from`, which is empty then, to the end of `to`. */
static void queue_move(struct queue *to, struct queue *from)
{
	if (!from->first)
		return;
	*to->last = from->first;
	to->last = from->last;
	queue_init(from);
}

/* Its memory may be given to others from now on. */
static void block_end(struct clv_pinned *p, struct block *b)
{
	if (b->pages)
		clv_chunks_put(p->chunks, (void *)b->address, b->bytes);
	else
		p->je->dallocx((void *)b->address, p->flags);
	clv_meta_free(b);
}

/* Ends the blocks whose tickets have passed, the oldest first; `patience`: how many others are asked about. */
static void collect(struct clv_pinned *p, size_t patience)
{
	struct queue asked, rest;
	queue_init(&asked);
	queue_init(&rest);
	pthread_mutex_lock(&p->collecting);
	pthread_mutex_lock(&p->lock);
	queue_move(&asked, &p->waiting);
	pthread_mutex_unlock(&p->lock);

	uint64_t bytes = 0, blocks = 0;
	while (asked.first && patience) {
		struct block *b = asked.first;
		asked.first = b->next;
		if (!asked.first)
			asked.last = &asked.first;
		if (p->ops.passed(p->ops.ctx, b->ticket)) {
			bytes += b->bytes;
			blocks++;
			block_end(p, b);
		} else {
			queue_add(&rest, b);
			patience--;
		}
	}
	queue_move(&rest, &asked);

	pthread_mutex_lock(&p->lock);
	queue_move(&rest, &p->waiting); /* what came meanwhile is younger */
	queue_move(&p->waiting, &rest);
	p->stats.waiting -= bytes;
	p->stats.waiting_blocks -= blocks;
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&p->collecting);
}

/* Requests. */

static void *small_alloc(struct clv_pinned *p, struct block *b, size_t size, size_t align)
{
	lacking.size = 0;
	void *block = p->je->mallocx(size, p->flags | MALLOCX_ALIGN(align));
	if (block)
		b->bytes = p->je->sallocx(block, 0);
	return block;
}

static void *pages_alloc(struct clv_pinned *p, struct block *b, size_t size, size_t align)
{
	size = clv_align_up(size, CLV_PINNED_PAGE);
	b->bytes = size;
	b->pages = true;
	lacking.size = size;
	lacking.align = align;
	return clv_chunks_take(p->chunks, size, align);
}

/* Out of what is held, or of a new chunk. */
static void *place(struct clv_pinned *p, struct block *b, size_t size, size_t align)
{
	/* what is aligned to a page takes whole pages in any case */
	bool small = size < CLV_PINNED_PAGE && align < CLV_PINNED_PAGE;
	for (int i = 0; i < TRIES; i++) {
		struct clv_chunk *bought = NULL;
		void *block = small ? small_alloc(p, b, size, align) : pages_alloc(p, b, size, align);
		if (!block && lacking.size) {
			bought = clv_chunks_grow(p->chunks, lacking.size, lacking.align, p->limit);
			if (bought)
				block = small ? small_alloc(p, b, size, align) : pages_alloc(p, b, size, align);
		}
		if (bought)
			clv_chunks_settle(p->chunks, bought);
		if (block || !bought)
			return block;
	}
	return NULL;
}

void *clv_pinned_alloc(struct clv_pinned *p, size_t size, size_t align)
{
	if (!size || size > SIZE_MAX / 4 || !clv_is_pow2(align) || align > SIZE_MAX / 4)
		return NULL;
	align = clv_max_u64(align, size < CLV_PINNED_PAGE ? ALIGN_MIN : CLV_PINNED_PAGE);
	struct block *b = clv_meta_zalloc(sizeof(*b));
	if (!b)
		return NULL;
	collect(p, PENDING);
	void *block = place(p, b, size, align);
	/* what is cached may be what the source is short of */
	if (!block && clv_pinned_trim(p))
		block = place(p, b, size, align);
	if (!block) {
		clv_meta_free(b);
	} else {
		b->address = (uintptr_t)block;
		block_book(p, b);
	}
	clv_chunks_release(p->chunks, p->limit);
	return block;
}

bool clv_pinned_free(struct clv_pinned *p, void *block, uint64_t ticket)
{
	pthread_mutex_lock(&p->lock);
	struct block *b = block_remove(p, (uintptr_t)block);
	if (b) {
		p->stats.live -= b->bytes;
		p->stats.live_blocks--;
	}
	if (b && ticket) {
		b->ticket = ticket;
		queue_add(&p->waiting, b);
		p->stats.waiting += b->bytes;
		p->stats.waiting_blocks++;
	}
	pthread_mutex_unlock(&p->lock);
	if (b && !ticket)
		block_end(p, b);
	collect(p, PENDING);
	clv_chunks_release(p->chunks, p->limit);
	return b != NULL;
}

bool clv_pinned_owns(struct clv_pinned *p, const void *ptr)
{
	return clv_chunks_own(p->chunks, ptr);
}

uint64_t clv_pinned_trim(struct clv_pinned *p)
{
	collect(p, SIZE_MAX);
	return clv_chunks_release(p->chunks, 0);
}

void clv_pinned_get_stats(struct clv_pinned *p, struct clv_pinned_stats *out)
{
	struct clv_chunks_stats chunks;
	pthread_mutex_lock(&p->lock);
	*out = p->stats;
	pthread_mutex_unlock(&p->lock);
	clv_chunks_get_stats(p->chunks, &chunks);
	out->held = chunks.held;
	out->free = chunks.free;
	out->chunks = chunks.chunks;
	out->bought = chunks.bought;
	out->refused = chunks.refused;
	out->given_back = chunks.given_back;
}

/* Opening and closing. */

static bool arena_control(struct clv_pinned *p, const char *what, void *value, size_t size)
{
	char name[64];
	snprintf(name, sizeof(name), "arena.%u.%s", p->arena, what);
	return p->je->mallctl(name, NULL, NULL, value, size) == 0;
}

/* The hooks come after the arena, so that jemalloc's own books stay out of pinned memory. */
static bool arena_open(struct clv_pinned *p)
{
	p->hooks = (extent_hooks_t){
		.alloc = extent_alloc,
		.dalloc = extent_dalloc,
		.destroy = extent_destroy,
		.commit = extent_keep,
		.decommit = extent_keep,
		.purge_lazy = extent_keep,
		.purge_forced = extent_keep,
		.split = extent_split,
		.merge = extent_merge,
	};
	extent_hooks_t *hooks = &p->hooks;
	ssize_t at_once = 0;
	if (!clv_je_arena(p->je, &p->arena, &p->flags))
		return false;
	if (arena_control(p, "dirty_decay_ms", &at_once, sizeof(at_once)) &&
	    arena_control(p, "muzzy_decay_ms", &at_once, sizeof(at_once)) &&
	    arena_control(p, "extent_hooks", &hooks, sizeof(hooks)))
		return true;
	arena_control(p, "destroy", NULL, 0);
	return false;
}

struct clv_pinned *clv_pinned_open(const struct clv_pinned_ops *ops, uint64_t limit, struct clv_error *err)
{
	const struct clv_je *je = clv_je();
	if (!je) {
		clv_error_set(err, "pinned memory needs jemalloc, which cannot be used in this process");
		return NULL;
	}
	struct clv_chunk_source source = {ops->alloc, ops->free, ops->ctx};
	struct clv_pinned *p = clv_meta_zalloc(sizeof(*p));
	if (p) {
		*p = (struct clv_pinned){.ops = *ops, .limit = limit, .je = je, .bucket_count = 256};
		p->buckets = clv_meta_zalloc(p->bucket_count * sizeof(*p->buckets));
		p->chunks = clv_chunks_open(&source);
		queue_init(&p->waiting);
		if (p->buckets && p->chunks && arena_open(p)) {
			pthread_mutex_init(&p->collecting, NULL);
			pthread_mutex_init(&p->lock, NULL);
			return p;
		}
		if (p->chunks)
			clv_chunks_close(p->chunks);
		clv_meta_free(p->buckets);
		clv_meta_free(p);
	}
	clv_error_set(err, "no host memory for the books of pinned memory");
	return NULL;
}

void clv_pinned_close(struct clv_pinned *p)
{
	for (size_t i = 0; i < p->bucket_count; i++)
		for (struct block *b = p->buckets[i], *next; b; b = next) {
			next = b->next;
			block_end(p, b);
		}
	for (struct block *b = p->waiting.first, *next; b; b = next) {
		next = b->next;
		block_end(p, b);
	}
	bool ended = arena_control(p, "destroy", NULL, 0);
	clv_chunks_close(p->chunks);
	clv_meta_free(p->buckets);
	pthread_mutex_destroy(&p->collecting);
	pthread_mutex_destroy(&p->lock);
	if (ended) /* else jemalloc still knows the hooks */
		clv_meta_free(p);
}
