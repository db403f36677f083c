/* SPDX-License-Identifier: MIT
 *
 * space: the addresses of an arena. Guarded by the arena's lock.
 *
 * Invariants: (1) the extents of a range tile it, in order; (2) neighbours of the same kind do not stand side by side if
 * they could be one: gaps never, holes of one slot never; (3) a GAP and a LINGER begin and end at pages (2 MiB); (4) pages
 * under LIVE and HOLE extents have a frame, pages under GAPs none; (5) a hole is in its slot's indexes with its size and
 * its parts, a gap in arena->gaps; (6) a frame is in the index of whole frames of a slot exactly while one hole of that
 * slot covers it; (7) frame->live is the number of its bytes in live extents, and used and pinned are sums;
 * (8) all frees in a hole are complete once its slot has passed its seq, and those in a whole frame once busy_slot has passed
 * busy_seq.
 */
#ifndef CLV_SPACE_H
#define CLV_SPACE_H

#include "arena.h"

/* Reserves addresses from the driver, at least `size` bytes; false if the driver or host memory refuses. */
bool clv_space_grow(struct clv_arena *a, uint64_t size);

/* Turns [addr, addr + size), which lies in one hole of `slot` or of ANY, into a live extent of `slot`. Needs 2 spare extents. */
struct clv_extent *clv_space_carve(struct clv_arena *a, struct clv_extent *hole, uint64_t addr, uint64_t size, uint32_t slot);

/* Turns a live extent into a hole that is free in the order of `slot` from `seq` on, and joins it with its neighbours.
 * Returns the hole. */
struct clv_extent *clv_space_free(struct clv_arena *a, struct clv_extent *live, uint32_t slot, uint64_t seq);

/* A frame was mapped at its address, inside one gap: the pages become a hole of `slot`. Needs 2 spare extents. */
struct clv_extent *clv_space_add_frame(struct clv_arena *a, struct clv_extent *gap, struct clv_frame *f, uint32_t slot);

/* Part of a gap is not usable for now: the pages become LINGER. Needs 2 spare extents. */
struct clv_extent *clv_space_close_gap(struct clv_arena *a, struct clv_extent *gap, uint64_t addr, uint64_t size);

/* A whole frame is about to leave its address: its pages become `kind` (GAP or LINGER). Needs 2 spare extents. Returns the
 * extent of the pages (for GAP joined with its neighbours). */
struct clv_extent *clv_space_remove_frame(struct clv_arena *a, struct clv_frame *f, enum clv_extent_kind kind);

/* A lingering extent's mapping is gone: a gap, joined with its neighbours. */
void clv_space_end_linger(struct clv_arena *a, struct clv_extent *linger);

/* The hole is now free in the order of another slot, since `seq` there (0: it is complete): joins with neighbours of that
 * slot. Returns the joined hole. */
struct clv_extent *clv_space_retag(struct clv_arena *a, struct clv_extent *hole, uint32_t slot, uint64_t seq);

/* The same for [lo, hi), a part of the hole, which becomes complete memory of `slot`; what is left on both sides stays as it
 * was. Needs 2 spare extents. */
struct clv_extent *clv_space_retag_part(struct clv_arena *a, struct clv_extent *hole, uint64_t lo, uint64_t hi, uint32_t slot);

/* The extent that contains addr, which lies in a reserved range. `anchor` is a live extent of that range at or below addr,
 * or NULL: only live extents are sure to outlast the joining and cutting of what is free. */
struct clv_extent *clv_space_locate(const struct clv_arena *a, struct clv_extent *anchor, uint64_t addr);

/* Live extents by address. */
struct clv_extent *clv_space_lookup(const struct clv_arena *a, uint64_t addr);
bool clv_space_reserve_block(struct clv_arena *a); /* room for one more; false: host memory is out */
struct clv_extent *clv_space_containing(const struct clv_arena *a, uint64_t addr); /* the live extent around addr */

static inline struct clv_frame *clv_frame_at(const struct clv_arena *a, uint64_t addr)
{
	return clv_pagemap_frame(&a->pages, addr);
}

static inline uint64_t clv_extent_end(const struct clv_extent *e)
{
	return e->addr + e->size;
}

static inline uint64_t clv_frame_end(const struct clv_frame *f)
{
	return f->addr + f->size;
}

#endif
