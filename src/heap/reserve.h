/* SPDX-License-Identifier: MIT
 *
 * reserve: blocks that are held back for requests which a plan knows of (include/cleave/plan.h says how they behave). Owns
 * arena->reserves and what is named reserve... there. Guarded by the arena's lock, but for clv_reserve_concerns().
 *
 * A slot that is held back is a live extent, so that nothing else moves, cuts or releases it: with `held_for` set, and nothing
 * requested. It is free in the order of extent->slot since live.seq, as a hole is since hole.seq. A slot that was taken is a
 * block like any other.
 *
 * Invariants: (1) a reservation whose phase lasts is in the chain of its size and has stats.held extents, at most
 * stats.count, each of its size; one whose phase has ended is in no chain and holds none; (2) reserve_bytes and
 * reserve_slots are the sums of that; (3) a request that concerns a reservation has its bit in reserve_sizes; (4) held = made
 * + kept - served - yielded - trimmed while the phase lasts; (5) no slot waits for a stream that is lasting.
 */
#ifndef CLV_RESERVE_H
#define CLV_RESERVE_H

#include "place.h"

#include <cleave/plan.h>

struct clv_reservation {
	struct clv_reservation *next;      /* in the order of making */
	struct clv_reservation *next_same; /* in its chain */
	cleave_reservation_stats stats;    /* the books, as they are told */
	uint64_t size;                     /* stats.bytes, rounded up to the grain */
	uint64_t matched;                  /* requests after the first after_n */
	uint64_t idle_ns, last_ns;         /* 0: idle time ends nothing; when a request last matched */
	uint64_t given_up, given_up_for;   /* requests for which it yielded, and the last of them: arena->large_allocs then */
	struct clv_extent *slots;          /* held back, the last one freed first */
};

#define CLV_RESERVE_CHAINS 128u

struct clv_reserves {
	struct clv_reservation *first, **tail;
	struct clv_reservation *exact[CLV_RESERVE_CHAINS]; /* by hash of the size, in the order of making */
	struct clv_reservation *classes[64];               /* by log2 of the size, the smallest first */
	uint64_t last_id;
	unsigned making; /* more than 0: some are being made, and none ends by time */
	unsigned lasting, timed, ended; /* numbers of reservations: whose phase lasts, and may end by time; ended */
	/* of all that there were */
	uint64_t yielded_bytes, missed, missed_bytes_most;
};

/* True if a request, or the free of a block, of so many bytes may concern a reservation. No lock: whoever would serve the
 * request without the arena's lock asks this first. */
static inline bool clv_reserve_concerns(const struct clv_arena *a, uint64_t size)
{
	uint64_t sizes = atomic_load_explicit(&a->reserve_sizes, memory_order_relaxed);
	return CLV_UNLIKELY(sizes != 0) && sizes >> clv_log2(clv_align_up(size, CLV_GRAIN)) & 1;
}

/* When the arena is made: notes which reservations of the settings are its own. They are made at the first request that
 * shows that the program works on the device: of 1 MiB or more, or one that matches. */
void clv_reserve_open(struct clv_arena *a);
void clv_reserve_close(struct clv_arena *a);

/* Makes a reservation, whose members make sense. 0; -ENOSPC; or, if it cannot be had `in_full` as asked for: why not. Then
 * the host may wait for it. */
int clv_reserve_make(struct clv_arena *a, const cleave_reservation *asked, bool in_full, uint64_t *id);

/* As cleave_reserve_end(). */
int clv_reserve_end(struct clv_arena *a, uint64_t id);

/* For a request that concerns a reservation: a slot, as a live block of the request's stream, or NULL: it is to be served
 * like any other. O(reservations of that size). */
struct clv_extent *clv_reserve_serve(struct clv_arena *a, const struct clv_request *rq);

/* A block whose size concerns a reservation is freed in the order of a slot, now or (`earlier`) since live.seq. True if it
 * is held back from here on, else nothing was done. */
bool clv_reserve_keep(struct clv_arena *a, struct clv_extent *block, struct clv_slot *slot, bool earlier);

/* Slots of soft (hard) reservations become ordinary free memory: as few as make up `size` bytes, or all there are. False:
 * there are none. */
bool clv_reserve_yield(struct clv_arena *a, uint64_t size, bool hard);

/* All slots of soft reservations become ordinary free memory. */
void clv_reserve_trim(struct clv_arena *a);

/* Ends what has seen no request for too long. */
void clv_reserve_expire(struct clv_arena *a);

/* Bytes in slots that work of a stream may still use. */
uint64_t clv_reserve_pending(const struct clv_arena *a);

/* NULL, or the invariant that does not hold. */
const char *clv_reserve_check(const struct clv_arena *a);

static inline bool clv_extent_is_reserved(const struct clv_extent *live)
{
	return live->live.held_for != NULL;
}

#endif
