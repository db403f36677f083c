/* SPDX-License-Identifier: MIT
 *
 * cache: slots of slabs that a thread keeps for itself, so that most small requests take no lock. Each thread has one
 * cache a heap, with its own counts, a few streams and a short stack of slots a size class in it. Only the owner pushes and pops; any
 * thread that holds the arena's lock may take slots out (a request is about to fail elsewhere), so each slot's cell is
 * exchanged atomically and an empty cell is skipped.
 *
 * Which streams a thread has is changed under the arena's lock; the list of caches is guarded by the heap's lock.
 */
#ifndef CLV_CACHE_H
#define CLV_CACHE_H

#include "slab.h"

#define CLV_CACHE_STREAMS 4u
#define CLV_CACHE_SLOTS 16u /* of a class; fewer of large classes */

struct clv_cache_bin {
	uint32_t count, room;
	_Atomic uint64_t cells[CLV_CACHE_SLOTS]; /* addresses */
	struct clv_slab *slabs[CLV_CACHE_SLOTS]; /* that they are of, and their numbers there: the owner's alone */
	uint8_t numbers[CLV_CACHE_SLOTS];
};

struct clv_cache_stream {
	struct clv_counts *counts; /* the thread's own */
	bool used;
	uint64_t stream_id, epoch, last_use;
	uint32_t slot;
	struct clv_cache_bin bins[CLV_CLASS_COUNT];
};

/* The calling thread's entry for a stream, or NULL if there is none yet, or it is out of date. No lock. */
struct clv_cache_stream *clv_cache_find(struct clv_arena *a, uint64_t stream_id);

/* The calling thread's own counts of an arena; NULL if it has no cache there. No lock. */
struct clv_counts *clv_cache_counts(const struct clv_arena *a);

/* Gives the calling thread a cache, if there can be one. Before any lock is taken. */
void clv_cache_prepare(struct cleave_heap *heap);

/* Makes the entry, with the arena's lock held. NULL: the thread has no cache, or host memory is out; go without. */
struct clv_cache_stream *clv_cache_make(struct clv_arena *a, const struct clv_slot *slot);

static inline struct clv_cache_stream *clv_cache_make_if_new(struct clv_arena *a, const struct clv_slot *slot)
{
	struct clv_cache_stream *s = clv_cache_find(a, slot->stream.id);
	return s ? s : clv_cache_make(a, slot);
}

/* false: empty */
static inline bool clv_cache_pop(struct clv_cache_bin *bin, struct clv_piece *out)
{
	while (bin->count) {
		uint32_t i = --bin->count;
		out->addr = atomic_exchange_explicit(&bin->cells[i], 0, memory_order_acquire);
		if (CLV_LIKELY(out->addr)) {
			out->slab = bin->slabs[i];
			out->number = bin->numbers[i];
			return true;
		}
	}
	return false;
}

/* false: full */
static inline bool clv_cache_push(struct clv_cache_bin *bin, const struct clv_piece *piece)
{
	uint32_t i = bin->count;
	if (i == bin->room)
		return false;
	bin->slabs[i] = piece->slab;
	bin->numbers[i] = (uint8_t)piece->number;
	atomic_store_explicit(&bin->cells[i], piece->addr, memory_order_release);
	bin->count = i + 1;
	return true;
}

/* With the arena's lock held: all slots of all threads go back into the slabs; empty chunks, and blocks that are kept (recent.h),
 * become holes. True if anything was gained. */
bool clv_caches_flush(struct clv_arena *a);

uint64_t clv_caches_bytes(struct clv_arena *a); /* the same lock */

/* The arena's counts and those of all threads together, with the arena's lock held; exact while no thread counts. */
struct clv_counts_sum {
	uint64_t live, rounding, small_allocs, small_frees;
	uint64_t threads; /* that have counts of their own */
};
struct clv_counts_sum clv_caches_sum(struct clv_arena *a);

/* A heap can have caches between these. Closing frees the caches of all threads. */
void clv_caches_open(struct cleave_heap *heap);
void clv_caches_close(struct cleave_heap *heap);

#endif
