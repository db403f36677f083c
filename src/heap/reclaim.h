/* SPDX-License-Identifier: MIT
 *
 * reclaim: puts frames under the window that a request gets: bought, moved from where they are free, or bought after
 * others were given back. And the ladder before a request fails. Guarded by the arena's lock.
 *
 * Memory is bought freely up to a soft cap a little above the highest use so far; past it free frames are taken from
 * elsewhere first. The size of what is bought follows the request, what is held and how much is stranded: large frames
 * cost few calls, small ones strand little.
 */
#ifndef CLV_RECLAIM_H
#define CLV_RECLAIM_H

#include "place.h"

/* Serves a request or answers NULL with *why: -ENOMEM, -ENOSPC (host memory), -EIO (the driver). */
struct clv_extent *clv_reclaim_alloc(struct clv_arena *a, const struct clv_request *rq, int *why);

/* Gives whole frames back until at most `keep` bytes are held; waits for pending work if `wait`. Returns bytes released. */
uint64_t clv_reclaim_trim(struct clv_arena *a, uint64_t keep, bool wait);

/* A slot whose stream is gone and whose frees are complete: what it had is everybody's. */
void clv_reclaim_slot(struct clv_arena *a, struct clv_slot *slot);

/* The same of all slots that have ended and are complete by now. */
void clv_reclaim_ended(struct clv_arena *a);

/* Could so many bytes be served at all, if all that is held back were given up for them? */
bool clv_reclaim_may_fit(const struct clv_arena *a, uint64_t size);

/* The most that may be held: the limit, or what the device gives less the headroom. */
uint64_t clv_reclaim_cap(const struct clv_arena *a);

/* Asks the driver what it can still give. */
void clv_reclaim_refresh(struct clv_arena *a);

#endif
