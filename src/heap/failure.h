/* SPDX-License-Identifier: MIT
 *
 * failure: what an arena says of itself: statistics, and the report of a request that failed. Guarded by the arena's lock.
 */
#ifndef CLV_FAILURE_H
#define CLV_FAILURE_H

#include "arena.h"

void clv_stats_fill(struct clv_arena *a, cleave_heap_stats *out);

/* A request has failed: keeps the state at this moment for cleave_heap_last_failure(). */
void clv_failure_note(struct clv_arena *a, uint64_t size, cleave_stream stream);

/* An invariant did not hold after an operation (builds that check them): kept for cleave_heap_check(). */
void clv_failure_broken(struct clv_arena *a, const char *sentence);

/* Stranded bytes of a device now, without a lock and without a walk: for a replay that asks after each event. Exact for a
 * heap that one thread uses; small blocks of other threads may be missing. */
uint64_t clv_heap_stranded(struct cleave_heap *heap, int device);

#endif
