/* SPDX-License-Identifier: MIT
 *
 * pack_grade: problems too large to be searched. The larger items are searched for a packing that is no higher than they
 * must be, without the others; those are then put where they fit, by size. Sizes in programs come in grades with thousandfold
 * steps between them, and where the large ones leave nothing unused the small ones seldom miss it. Owns its arrays, in
 * proportion to the items; one thread.
 */
#ifndef CLV_PACK_GRADE_H
#define CLV_PACK_GRADE_H

#include "pack_fit.h"

struct clv_pack_grade {
	const struct clv_pack_problem *problem;
	struct clv_pack_fit *fit; /* the caller's, for the same problem */
	uint32_t *by_size;        /* all items, the largest first */
	uint64_t *inner;          /* offsets of the larger ones, in the order of their problem */
	uint64_t share;           /* of the items, in 1/256, that are searched next */
	uint32_t last;            /* how many were */
	uint32_t round;
	uint64_t seed;
};

bool clv_pack_grade_make(struct clv_pack_grade *g, const struct clv_pack_problem *problem, struct clv_pack_fit *fit,
			 uint64_t seed);
void clv_pack_grade_free(struct clv_pack_grade *g);

/* Packs once: each time with a larger share of the items, then from the smallest again with other preferences. Returns the
 * height with the offsets in offset[item]; UINT64_MAX with *error false if the larger ones were not packed within about
 * `steps`, with *error true if host memory is out. */
uint64_t clv_pack_grade_run(struct clv_pack_grade *g, uint64_t steps, struct clv_pack_clock *clock, uint64_t *offset,
			    bool *error);

#endif
