/* SPDX-License-Identifier: MIT
 *
 * place: which addresses a request gets. Guarded by the arena's lock; changes nothing.
 *
 * A window is a run of free addresses, mapped or not, that the request could have. What it costs is counted in bytes:
 *
 *   pins      whole frames that it would pin: memory that could have gone elsewhere
 *   bought    what would be bought for the pages that are missing under it, and a weight for the calls (purchase.h)
 *   left over 1/96 of what it leaves of the hole it is cut from, so that the best fit wins among equals
 *
 * Stranded memory (the parts of holes in pinned frames) costs nothing and is used first; a free frame much larger than
 * the request is not cut if less can be pinned.
 *
 * On a large device that is nearly full (clv_purchase_is_low) hardly a frame can be moved without stranding the ends of
 * what lay in it. So large holes are kept in one piece there: large blocks lie side by side from the beginning, share no
 * more than the pages in which they end (clv_purchase_cutting), and fill holes from the left; small ones stay out of the
 * holes between them. What a large block leaves is then to the byte the room for another one. And as long as use grows and
 * there is room, what may be there to stay is put into no hole that it does not fill: a loader's buffer leaves one between
 * the weights, and what belongs together would lie in two places.
 *
 * All candidates come from indexes by size, a bounded number from each, so the choice costs constant time however many
 * holes there are.
 */
#ifndef CLV_PLACE_H
#define CLV_PLACE_H

#include "arena.h"

#define CLV_WINDOW_MAX 40u

struct clv_request {
	uint64_t size;  /* a multiple of 512 */
	uint64_t align; /* a power of two, at least 512 */
	struct clv_slot *slot;
	bool exact;   /* buy no more than is missing */
	bool no_wait; /* fail rather than let the host wait */
	bool reserves; /* fail rather than make a hard reservation yield: it is for one */
};

/* Which whole frames a window cuts: they are given back, and bought anew in pieces (66 us + 0.67 us/MiB, and 48 us a piece). */
struct clv_cutting {
	uint64_t most; /* bytes of one that a window may leave over, and of one that is never cut; UINT64_MAX: none is */
	bool own_ends; /* none may be left over but in the pages in which the window begins and ends */
	bool low;      /* a large device is nearly full, and waste counts */
};

struct clv_window {
	uint64_t addr;
	uint64_t missing;
	uint64_t cost;
	struct clv_extent *anchor; /* the nearest live extent below in the same range, or NULL */
	struct clv_extent *hole; /* the one hole that holds all of it, if nothing is missing; until the arena changes */
	uint64_t unfinished; /* it shares a frame that would be cut, had the request's slot passed this point; 0: none */
};

/* Up to CLV_WINDOW_MAX windows, cheapest first. */
unsigned clv_place(struct clv_arena *a, const struct clv_request *rq, struct clv_window *windows);

/* The common case alone: true if the cheapest window is mapped, lies in one hole and is free in the order of the request's
 * slot. *window is then what clv_place would give first, but for the anchor. Much less work, since what costs more than the
 * best so far need not be looked at to its end; for that, now and then one that is complete for all and cheaper is
 * overlooked. False with window->unfinished set: see there. */
bool clv_place_hit(struct clv_arena *a, const struct clv_request *rq, struct clv_window *window);

/* True if the window [addr, end), which it touches, cuts the frame: as soon as that is complete. */
bool clv_place_cuts(const struct clv_frame *f, uint64_t addr, uint64_t end, struct clv_cutting how);

/* May `slot` use the hole? */
static inline bool clv_hole_usable(const struct clv_extent *hole, const struct clv_slot *slot)
{
	return hole->slot == slot->index || (hole->slot == CLV_SLOT_ANY && !slot->apart);
}

#endif
