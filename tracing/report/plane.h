/* SPDX-License-Identifier: MIT
 *
 * plane: a device's addresses at one moment: frames that are mapped, the pieces of them that are used, and by cause the sum of all.
 * It knows addresses only; what happens to them is told by its owner (state.h). Owned by one thread.
 *
 * Everything begins and ends at addresses that are given beforehand (its *keys*), and is kept by their rank, so that a neighbour
 * is found in a few steps. Nothing overlaps: a new frame or piece takes the place of what it covers. A used piece outside any
 * frame counts as held, as if it had a frame of its own.
 */
#ifndef CLV_REPORT_PLANE_H
#define CLV_REPORT_PLANE_H

#include "../map.h"
#include "rankset.h"
#include "report.h"

enum clv_plane_kind {
	CLV_PLANE_LIVE,    /* of a block that is not freed */
	CLV_PLANE_PENDING, /* freed, and not complete */
	CLV_PLANE_HELD,    /* back by a reservation */
};

#define CLV_PLANE(kind) (1u << (kind))
#define CLV_PLANE_ANY (CLV_PLANE(CLV_PLANE_LIVE) | CLV_PLANE(CLV_PLANE_PENDING) | CLV_PLANE(CLV_PLANE_HELD))

struct clv_plane_piece {
	uint32_t end;      /* rank */
	uint32_t owner;    /* a block, or CLV_NO_BLOCK */
	uint64_t live_end; /* LIVE: the address up to which it is live, the rest being internal */
	uint8_t kind;
};

struct clv_plane_frame {
	uint32_t begin, end; /* ranks */
	uint64_t used;       /* bytes of pieces in it */
	uint64_t occupied;   /* of these, live, internal or held back */
};

/* Is told of each change once it is made, and changes nothing itself; what is NULL is not told. */
struct clv_plane_watch {
	/* A frame was mapped, or with `there` false is gone. */
	void (*mapped)(struct clv_plane_watch *watch, const struct clv_report_frame *frame, bool there);
	/* What is free between two ranks may have changed, and so may the free ranges on both sides of them. */
	void (*changed)(struct clv_plane_watch *watch, uint32_t begin, uint32_t end);
};

struct clv_plane {
	uint64_t *keys; /* ascending */
	uint32_t key_count;
	size_t key_cap;
	struct clv_map ranks; /* of keys */

	struct clv_rankset starts;      /* ranks where a piece begins */
	struct clv_plane_piece *pieces; /* by that rank */

	struct clv_rankset frame_starts; /* ranks where a mapped frame begins */
	uint32_t *frame_at;              /* by that rank: index in both arrays below */
	struct clv_plane_frame *frames;  /* every frame ever mapped */
	struct clv_report_frame *records;
	size_t frame_count, frame_cap, record_cap;
	/* Where a run of frames that belong together begins and ends: free ranges do not go beyond. */
	struct clv_rankset run_begins, run_ends;

	uint64_t
		unmapped; /* bytes of frames that are mapped nowhere; its owner adds and subtracts by clv_plane_unmapped() */
	uint64_t mapped_frames;
	struct clv_report_sum sum;
	struct clv_plane_watch *watch; /* its owner's, or NULL */
	bool broken;                   /* host memory ran out: it can only be freed */
};

/* First all keys are added to a plane of zeros, then it is made ready; nothing else is called before. */
bool clv_plane_key(struct clv_plane *p, uint64_t addr);
bool clv_plane_ready(struct clv_plane *p);
/* Empties it: nothing is mapped or used, nothing has been. */
void clv_plane_reset(struct clv_plane *p);
void clv_plane_free(struct clv_plane *p);

/* Of an address that is a key. */
uint32_t clv_plane_rank(const struct clv_plane *p, uint64_t addr);
/* The rank of the first key from `addr` on; key_count: there is none. */
uint32_t clv_plane_rank_from(const struct clv_plane *p, uint64_t addr);

/* Maps a frame at record->addr, of record->size bytes; `born` and the rest are kept. Frames that it overlaps are gone at that
 * moment. */
void clv_plane_map(struct clv_plane *p, const struct clv_report_frame *record);
/* Frames that begin in [begin, end) are gone from `when` on. */
void clv_plane_unmap(struct clv_plane *p, uint32_t begin, uint32_t end, uint32_t when);
void clv_plane_unmapped(struct clv_plane *p, uint64_t add, uint64_t subtract);

void clv_plane_put(struct clv_plane *p, uint32_t begin, uint32_t end, enum clv_plane_kind kind, uint32_t owner,
		   uint64_t live_end);
/* Removes what of these kinds lies in the range, of one owner, or with CLV_NO_BLOCK of any. */
void clv_plane_take(struct clv_plane *p, uint32_t begin, uint32_t end, unsigned kinds, uint32_t owner);

/* The rank at which the first piece begins that ends behind `rank`; CLV_RANK_NONE: there is none. */
uint32_t clv_plane_first(const struct clv_plane *p, uint32_t rank);

/* The free range around a rank at which no piece has begun yet: up to the pieces and the ends of the run on both sides. False:
 * it lies in a piece, or in no frame. */
bool clv_plane_hole(const struct clv_plane *p, uint32_t rank, uint32_t *begin, uint32_t *end);

/* The mapped frame that contains the byte at this rank's address; CLV_RANK_NONE: none does. */
uint32_t clv_plane_frame_of(const struct clv_plane *p, uint32_t rank);
/* The mapped frame after another one by address; of CLV_RANK_NONE the first; CLV_RANK_NONE: it was the last. */
uint32_t clv_plane_frame_next(const struct clv_plane *p, uint32_t frame);

/* Counts everything anew and compares it with the books. False with a sentence in `why`. */
bool clv_plane_check(const struct clv_plane *p, char *why, size_t len);

#endif
