/* SPDX-License-Identifier: MIT
 *
 * breakdown: where every held byte of a device is, and why it serves nobody if it does not. Owns nothing; one walk under the
 * arena's lock.
 *
 * A *block* here is one of the program's. A frame is *occupied* if a byte of a block, or of a reservation's slot that is held
 * back, lies in it; the driver gets back whole frames alone, so nothing of an occupied one. Each held byte is of exactly one
 * kind, the first of these that it is:
 *
 *   live      of a block, up to its requested size rounded up to 512 B
 *   internal  of a block, beyond that: the rest of a slot of a slab, or of a reserved class
 *   reserved  of a slot that is held back for requests to come (plan.h), whether work may still use it or not
 *   stream    free, but work of a stream may still use it: it serves that stream alone until an event has told that the work
 *             is done. (A free small slot counts if it was freed on another stream than its slab's.)
 *   hard      free, in an occupied frame: between what is live, so that it serves only what fits there
 *   soft      free, in a frame that is not occupied: whole and complete, only not given back to the driver (a trim does
 *             that) or not merged yet (slots in threads' caches, blocks kept for the next request); also frames that are held
 *             without an address
 *
 * Hence live + internal + reserved + stream + hard + soft = held, at the moment of the walk, to the byte. Blocks of up to
 * 32 KiB come and go without the lock: of such a one that another thread allocates or frees meanwhile, either state is
 * counted, once. What cleave_heap_stats calls stranded differs: it counts pending bytes in, and frames that only kept blocks
 * and empty slabs occupy.
 *
 * The walk takes a step for each block and each hole (for each frame of a hole that spans several), and reads 2 bytes for each
 * slot of a slab. Meanwhile nobody else gets or returns a large block of the device. Programs have thousands of blocks, of
 * which it takes some 50 ns each: 20 ms where 250,000 blocks of 180 KiB lie between 125,000 holes (on an AMD EPYC). Who
 * walks again and again paces himself (live/gather.h).
 */
#ifndef CLV_BREAKDOWN_H
#define CLV_BREAKDOWN_H

#include "../driver/driver.h"

#include <cleave/plan.h>

struct clv_breakdown {
	uint64_t held;
	uint64_t live, internal, reserved, stream, hard, soft;
};

/* What there is to say of a device, at one moment. */
struct clv_heap_state {
	cleave_heap_stats stats; /* whose live_bytes and rounding_bytes may be a few small blocks off `sorted` */
	struct clv_breakdown sorted;
	uint64_t device_total, mapped; /* bytes of the device; of held, what has an address */
	uint64_t streams, threads;     /* that are known: streams that allocated or freed, threads with a cache */
	uint64_t small_allocs;         /* of stats.allocs, those of slabs */
	uint64_t failures_refused;     /* of stats.failures, those for which there was room, but the driver refused */
	cleave_failure failure;        /* the last; number 0: none */
	uint64_t failed_ns;            /* when, of CLOCK_MONOTONIC */
	uint64_t reservations;         /* that there are */
};

/* False, and all is 0: the device has not been used. The first `room` reservations are written to `rows`, which may be NULL if
 * room is 0. */
bool clv_heap_state(cleave_heap *heap, int device, struct clv_heap_state *out, cleave_reservation_stats *rows,
		    size_t room);

#endif
