/* SPDX-License-Identifier: MIT
 *
 * counts: how much of an arena's memory programs have, counted where it is cheap. A thread counts the small blocks that
 * it allocates and frees in counts of its own, which no other thread writes, so that threads do not pass a cache line
 * to and from; what an arena has is the sum. A part of a sum can be negative: a block may be freed by another thread
 * than the one that allocated it.
 *
 * Own counts are written by their thread alone; those of the arena under its lock, but for `live`, to which threads add
 * what has come together in theirs.
 */
#ifndef CLV_COUNTS_H
#define CLV_COUNTS_H

#include "../base/base.h"

#include <stdatomic.h>

/* A thread's live bytes are handed in when they are more than this: so much a further thread may the peak miss. */
#define CLV_COUNTS_OWN_MAX ((int64_t)64 << 10)

struct clv_counts {
	_Atomic int64_t live;          /* bytes, each request rounded up to 512 B */
	_Atomic int64_t rounding;      /* bytes of slots of slabs beyond that */
	_Atomic int64_t allocs, frees; /* of small blocks */
};

static inline int64_t clv_count(const _Atomic int64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

/* By the one thread that may write it. */
static inline void clv_count_add(_Atomic int64_t *v, int64_t by)
{
	atomic_store_explicit(v, clv_count(v) + by, memory_order_relaxed);
}

/* By any thread; returns the new value. */
static inline int64_t clv_count_share(_Atomic int64_t *v, int64_t by)
{
	return atomic_fetch_add_explicit(v, by, memory_order_relaxed) + by;
}

#endif
