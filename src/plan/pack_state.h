/* SPDX-License-Identifier: MIT
 *
 * pack_state: a packing in the making, from below, which can be undone step by step. Owns its arrays: 8 bytes for each section
 * of each item, and what is in proportion to both; one thread.
 *
 * An item that waits (that is not placed) cannot lie lower than its floor m(b), the highest that is taken in any of its
 * sections. A section can begin to be used again no lower than its base e(s), the least floor of the items that wait in it.
 * With rem(s), the sum of their sizes, always:
 *
 *   m(b) = max e(s) over the sections of b      e(s) = min m(b) over the items that wait in s
 *   e(s) + rem(s) <= limit                      or there is no packing with what is placed
 *
 * (limit + 1 where an item waits that may end above the limit, since it saves what it was rounded up by.)
 *
 * Both only rise, until something is undone. To lift e(s) to min m(b) changes no m(b), so one pass over the sections where a
 * floor was raised settles all.
 */
#ifndef CLV_PACK_STATE_H
#define CLV_PACK_STATE_H

#include "pack_problem.h"

#define CLV_PACK_NEVER UINT64_MAX

struct clv_pack_piece {
	uint32_t lo, hi; /* sections */
	uint64_t size;
	uint64_t floor;  /* m */
	size_t cells;    /* its first in state->where */
	bool placed;
	bool over;       /* it may end at limit + 1 */
};

struct clv_pack_section {
	size_t cells;     /* its first in state->waiting */
	uint32_t count;   /* items that wait */
	uint32_t crossed; /* by items that wait here and in the section before */
	uint32_t first;   /* item that begins here or later */
	uint32_t over;    /* items that wait and may end at limit + 1 */
	bool dirty;       /* its base may have risen */
};

struct clv_pack_change;

struct clv_pack_state {
	uint32_t count, width;         /* items and sections */
	uint64_t limit;                /* of the height, in units */
	uint64_t grains;               /* in a unit */
	uint64_t *padding;             /* by item, in grains; NULL if there is none */
	struct clv_pack_piece *items;  /* by lo */
	uint64_t *at;                  /* by item: offset, if it is placed */
	struct clv_pack_section *sections;
	uint64_t *base, *rem;          /* by section */
	uint32_t *waiting;             /* by section: the items that wait, then the others */
	uint32_t *where;               /* by item and section: its index among those of the section */
	struct clv_pack_change *trail; /* what an undo puts back */
	size_t trail_count, trail_room, trail_max;
	uint32_t *dirty;
	uint32_t dirty_count;
	uint64_t work;                 /* a count of what was done, for the caller's clock */
};

/* Sections of all items of a problem: what `where` and `waiting` have room for. */
uint64_t clv_pack_state_cells(const struct clv_pack_problem *p);

/* Of a plain problem; all items wait. False: host memory is out. */
bool clv_pack_state_make(struct clv_pack_state *s, const struct clv_pack_problem *p);
void clv_pack_state_free(struct clv_pack_state *s);

/* Takes everything away and sets the height, in grains, within which items can be placed. */
void clv_pack_state_begin(struct clv_pack_state *s, uint64_t height);

/* The most that section t may have, placed or waiting. */
static inline uint64_t clv_pack_state_limit(const struct clv_pack_state *s, uint32_t t)
{
	return s->limit + (s->sections[t].over > 0);
}

/* Makes room for the changes of one step. False: there is none; a step must not be taken. */
bool clv_pack_state_reserve(struct clv_pack_state *s);

/* Steps. False: no packing is within the limit; the caller undoes the step. */

/* Places an item that waits at its floor, which must be the base of one of its sections. */
bool clv_pack_state_place(struct clv_pack_state *s, uint32_t item);

/* Nothing that waits in section t begins below `height`. */
bool clv_pack_state_lift(struct clv_pack_state *s, uint32_t t, uint64_t height);

/* Undoes all steps since trail_count was `to`. */
void clv_pack_state_undo(struct clv_pack_state *s, size_t to);

/* The sections of all items that wait in t: *lo <= u < *hi. */
void clv_pack_state_hull(struct clv_pack_state *s, uint32_t t, uint32_t *lo, uint32_t *hi);

/* What section t can next begin at, when nothing begins at its base: the least of the other floors there, and of the ends of
 * items beside. CLV_PACK_NEVER: nothing ever can. */
uint64_t clv_pack_state_next(struct clv_pack_state *s, uint32_t t);

/* Walks over everything; for tests. False with `err` if something does not hold. */
bool clv_pack_state_check(const struct clv_pack_state *s, struct clv_error *err);

#endif
