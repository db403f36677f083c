/* SPDX-License-Identifier: MIT
 *
 * pack_grade: the larger items of a plain problem, searched without the others. Sizes in programs come in grades with thousandfold
 * steps between them. Where the large ones can be packed with nothing unused, the small ones seldom miss it, and are put where
 * they fit, by size: so problems are packed that are too large to be searched. And no packing is lower than the best one of the
 * larger items: so it is proved that what was found cannot be lower. Owns its arrays, in proportion to the items; one
 * thread.
 */
#ifndef CLV_PACK_GRADE_H
#define CLV_PACK_GRADE_H

#include "pack_fit.h"

struct clv_pack_grade {
	const struct clv_pack_problem *problem;
	uint32_t *by_size;        /* all items, the largest first */
	uint64_t *inner;          /* offsets of the larger ones, in the order of their problem */
	uint64_t share;           /* of the items, in 1/256, that are searched next */
	uint32_t last;            /* how many were */
	uint32_t round;
	uint64_t seed;
};

bool clv_pack_grade_make(struct clv_pack_grade *g, const struct clv_pack_problem *problem, uint64_t seed);
void clv_pack_grade_free(struct clv_pack_grade *g);

/* Searches a larger share of the items each time, then the smallest share again with other preferences, for about `steps`.
 * False: host memory is out. */

/* Packs all with `fit` if the larger ones were packed at their bound: *packed, and the offsets in offset[item]. */
bool clv_pack_grade_fit(struct clv_pack_grade *g, struct clv_pack_fit *fit, uint64_t steps, struct clv_pack_clock *clock,
			uint64_t *offset, bool *packed);

/* Whether the larger ones can be packed at `height`: *none if they cannot, nor can all. Only where a grain is a unit. */
bool clv_pack_grade_disprove(struct clv_pack_grade *g, uint64_t height, uint64_t steps, struct clv_pack_clock *clock,
			     bool *none);

#endif
