/* SPDX-License-Identifier: MIT
 *
 * recent: large blocks that were freed a moment ago, kept as they are for the next request of their size on their stream. A
 * program that repeats a step asks for the same sizes again and again, and is spared the joining and cutting of holes, and
 * the events. Guarded by the arena's lock.
 *
 * A *kept* block is free to programs and in the counts. To space and frames it is live: a LIVE extent with `kept` set, whose
 * frames stay pinned. It is not in `used`, so what is bought goes by what programs have. Before anything but a hole that fits
 * is looked for (by the ladder of reclaim, a trim, at the end of a stream) all kept blocks become holes: none causes growth or
 * a failure.
 *
 * Where blocks lie while a heap grows decides what it will hold. So a block is kept only of a size that has come back many
 * times in a row, each time soon after a free, and only when no frame has been bought or moved for a while.
 *
 * Invariants: (1) a kept block was allocated and freed on one slot, neither ANY nor lasting, and `live.seq` is that of its free;
 * (2) it is in the entry of its slot and size, and in the list by age; (3) `bytes` and `count` are sums over that list, and
 * within the bounds.
 */
#ifndef CLV_RECENT_H
#define CLV_RECENT_H

#include "arena.h"

#define CLV_RECENT_LARGEST (32 * CLV_MIB) /* the work on a larger block takes far longer than the request for it */
#define CLV_RECENT_BYTES (64 * CLV_MIB)
#define CLV_RECENT_COUNT 256u

/* A block is freed on `slot` and counted as such. It is kept, if it may be, and older ones given back for it; false: nothing
 * was done. */
bool clv_recent_keep(struct clv_arena *a, struct clv_extent *e, struct clv_slot *slot);

/* The kept block of that slot and size that was freed last, live again; NULL: none. */
struct clv_extent *clv_recent_take(struct clv_arena *a, const struct clv_slot *slot, uint64_t size);

/* All kept blocks become holes. True if there were any. */
bool clv_recent_flush(struct clv_arena *a);

/* Bytes of kept blocks that work of their streams may still use. */
uint64_t clv_recent_pending(const struct clv_arena *a);

/* NULL, or the invariant that does not hold. */
const char *clv_recent_check(const struct clv_arena *a);

#endif
