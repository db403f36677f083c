/* SPDX-License-Identifier: MIT
 *
 * purchase: how much memory is held freely, and in what pieces it is bought. Guarded by the arena's lock.
 *
 * The driver charges by the handle (about 48 us to create one, map it and give it access), so large frames are cheap; but a
 * live block pins a whole frame, so large frames strand memory. What is bought therefore follows
 *
 *   the request      a piece of it at most, and never much less than the usual unit
 *   what is held     a unit is a share of what may be held: frames shrink when memory is short
 *   what is stranded as long as little is, a few large pieces do; the more is stranded, the smaller they get
 *   the time         a heap that has spent more of the run in the driver than its share buys larger frames
 *
 * With growth:tight all of this is 2 MiB.
 */
#ifndef CLV_PURCHASE_H
#define CLV_PURCHASE_H

#include "place.h"

/* Held without looking for free frames elsewhere: a little above the highest use so far, `size` included, never more than
 * `cap`. */
uint64_t clv_purchase_soft_cap(const struct clv_arena *a, uint64_t size, uint64_t cap);

/* A purchase for this request brings at least so many bytes, where addresses and the cap allow: 0 if no more than is missing
 * is to be bought. */
uint64_t clv_purchase_least(const struct clv_arena *a, const struct clv_request *rq);

/* The first piece to buy of `rest` missing bytes (a multiple of the granularity). */
uint64_t clv_purchase_piece(const struct clv_arena *a, const struct clv_request *rq, uint64_t rest);

/* True if the request is bought for exactly, and a page in which it begins or ends inside is a frame of its own. */
bool clv_purchase_own_ends(const struct clv_arena *a, const struct clv_request *rq);

bool clv_purchase_is_large(const struct clv_arena *a);

/* Which whole frames the window of a request cuts. */
struct clv_cutting clv_purchase_cutting(const struct clv_arena *a, const struct clv_request *rq);

/* True on a large device that is nearly full. */
bool clv_purchase_is_low(const struct clv_arena *a, const struct clv_request *rq);

/* True if a frame of this size is larger than is usual for the request: its size counts in arena->coarse while it is held. */
bool clv_purchase_is_coarse(const struct clv_arena *a, const struct clv_request *rq, uint64_t size);

/* What the purchase of `bytes` weighs beside pinned bytes when windows are compared. */
uint64_t clv_purchase_weight(const struct clv_arena *a, uint64_t bytes);

#endif
