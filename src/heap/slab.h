/* SPDX-License-Identifier: MIT
 *
 * slab: requests of up to 32 KiB. A *chunk* is a live extent of 2 MiB; it is cut into units of 64 KiB, runs of units are
 * slabs, and a slab has equal slots of one size class. Chunks belong to one stream's slot, and so do the slots in them. On a
 * large device a slot's first chunk is short, a quarter of a page: of most streams little more is ever asked, and such a
 * piece is often left beside larger blocks.
 * Guarded by the arena's lock, but for the sizes that say which slots are live: threads write those without it.
 *
 * Invariants: (1) a slot is in one of four states: free in its slab (its free bit is set), live (it has a size), in
 * a thread's cache, or late (freed on another stream whose work is not done); (2) `taken` of a slab counts those that are
 * not free; (3) a slab with free slots is in the partial list of its slot and class; (4) an empty slab has no units; (5) late
 * slots are in the queue of the slot on which they were freed, in that order; (6) a chunk lies in one page, and is the only one
 * in it.
 */
#ifndef CLV_SLAB_H
#define CLV_SLAB_H

#include "arena.h"

#define CLV_SMALL_MAX (32 * CLV_KIB)
#define CLV_CLASS_COUNT 20u
#define CLV_UNIT_SHIFT 16
#define CLV_UNITS 32u       /* in a chunk */
#define CLV_SLAB_SLOTS 128u /* at most: 64 KiB in slots of 512 B */

struct clv_slab {
	struct clv_slab *next, **link; /* in the partial list; link NULL: in none */
	struct clv_chunk *chunk;
	uint64_t addr;
	uint64_t inverse; /* 2^32 by the grains of a slot, rounded up: a multiplication instead of a division */
	uint32_t slot_size;
	uint16_t slots, taken;
	uint8_t cls, first_unit, units;
	uint64_t free_bits[CLV_SLAB_SLOTS / 64];
	_Atomic uint16_t requested[CLV_SLAB_SLOTS]; /* bytes asked for; 0: the slot is not live */
};

/* A slot of a slab that is taken, so that the slab is sure to stay. */
struct clv_piece {
	uint64_t addr;
	struct clv_slab *slab;
	unsigned number;
};

struct clv_chunk {
	struct clv_extent *extent;
	_Atomic uint32_t slot; /* whose order its slots are free in */
	uint32_t used_units;   /* a bit each; those of the page that a short chunk does not have are used */
	uint32_t no_units;     /* and these alone */
	uint64_t serial;       /* chunks were made in this order */
	_Atomic(struct clv_slab *) units[CLV_UNITS];
	struct clv_chunk *prev, *next; /* in the same list of the same slot */
};

/* Where its page begins, from which units are counted. */
static inline uint64_t clv_chunk_page(const struct clv_chunk *c)
{
	return clv_align_down(c->extent->addr, CLV_PAGE);
}

struct clv_slabs {
	struct clv_slab *partial[CLV_CLASS_COUNT];
	struct clv_chunk *chunks; /* that have units left, the newest first */
	struct clv_chunk *full;
};

static inline unsigned clv_class_of(uint64_t size); /* size in 1 .. CLV_SMALL_MAX */
uint32_t clv_class_size(unsigned cls);

/* Takes up to n slots of a class; returns how many, and if 0 *why (see clv_reclaim_alloc). Does not let the host wait for 2 MiB
 * of a chunk, since a small request may well fit beside other blocks. */
unsigned clv_slab_take(struct clv_arena *a, struct clv_slot *slot, unsigned cls, unsigned n, struct clv_piece *out, int *why);

/* A slot that is not live goes back into its slab. */
void clv_slab_give(struct clv_arena *a, uint64_t addr);

/* The same for a slot freed on another stream than its chunk's: when that stream's work is done. False, and nothing is done,
 * if host memory is out. */
bool clv_slab_give_late(struct clv_arena *a, uint64_t addr, struct clv_slot *freed_on);

/* Late slots that are complete go back; true if any did. */
bool clv_slabs_reap(struct clv_arena *a);

/* Each late slot that is not complete, as far as is known. */
void clv_slabs_pending(const struct clv_arena *a,
		       void (*visit)(void *arg, uint64_t addr, uint64_t bytes, const struct clv_arena *a), void *arg);

/* Empty chunks become holes; true if any did. */
bool clv_slabs_shrink(struct clv_arena *a);

/* The slot's stream is gone and drained: its chunks are ANY's from now on. */
void clv_slabs_orphan(struct clv_arena *a, struct clv_slot *slot);

void clv_slabs_init(struct clv_arena *a);
void clv_slabs_fini(struct clv_arena *a);

/* The live block around an address in a chunk; *start 0: none. */
void clv_slab_block_at(const struct clv_arena *a, uint64_t addr, uint64_t *start, uint64_t *requested);

/* NULL, or the invariant that does not hold. `taken` gets the bytes of slots out of the slabs. */
const char *clv_slabs_check(const struct clv_arena *a, uint64_t *taken);

/* Without the lock: the slab of a slot and its number. NULL: the address is not the start of a slot. */
static inline struct clv_slab *clv_slab_find(const struct clv_arena *a, uint64_t addr, unsigned *number)
{
	struct clv_chunk *chunk = clv_pagemap_chunk(&a->pages, addr);
	*number = 0;
	if (!chunk)
		return NULL;
	struct clv_slab *slab = atomic_load_explicit(&chunk->units[addr >> CLV_UNIT_SHIFT & (CLV_UNITS - 1)], memory_order_acquire);
	if (!slab)
		return NULL;
	uint64_t offset = addr - slab->addr;
	/* exact: a slab has fewer than 2^11 grains, a slot at most 2^6 */
	*number = (unsigned)((offset / CLV_GRAIN * slab->inverse) >> 32);
	return offset == (uint64_t)*number * slab->slot_size && *number < slab->slots ? slab : NULL;
}

/* Without the lock: the size that was asked for; 0 if the slot was not live, so that of two frees only one succeeds. */
static inline uint64_t clv_slab_end_live(struct clv_slab *slab, unsigned number)
{
	return atomic_exchange_explicit(&slab->requested[number], 0, memory_order_acq_rel);
}

/* By whoever has the slot. */
static inline void clv_slab_set_live(struct clv_slab *slab, unsigned number, uint64_t requested)
{
	atomic_store_explicit(&slab->requested[number], (uint16_t)requested, memory_order_release);
}

/* Classes: each multiple of 512 B up to 4 KiB, then four in each doubling. */
static inline unsigned clv_class_of(uint64_t size)
{
	unsigned grains = (unsigned)((size + CLV_GRAIN - 1) / CLV_GRAIN);
	if (grains <= 8)
		return grains - 1;
	unsigned log2 = clv_log2(grains - 1);
	return 8 + (log2 - 3) * 4 + ((grains - 1) >> (log2 - 2)) - 4;
}

#endif
