/* SPDX-License-Identifier: MIT
 *
 * pack_fit: items put one by one, in an order that the caller chooses, each as low as it fits. The only packer that knows
 * alignments, fixed offsets and gaps. Owns its arrays, in proportion to the items; one thread.
 */
#ifndef CLV_PACK_FIT_H
#define CLV_PACK_FIT_H

#include "pack_clock.h"
#include "pack_tree.h"

struct clv_pack_fit {
	const struct clv_pack_problem *problem;
	struct clv_pack_tree placed;
	uint32_t *near;          /* those placed that overlap the one in hand */
	struct clv_pack_taken {
		uint64_t from, to;
	} *taken;                /* the heights that they take */
};

bool clv_pack_fit_make(struct clv_pack_fit *f, const struct clv_pack_problem *problem);
void clv_pack_fit_free(struct clv_pack_fit *f);

/* Puts every item at offset[item], the fixed ones first and the others as `order` (a permutation of all) says. Returns the
 * height, or UINT64_MAX if the clock ran out before all were placed. */
uint64_t clv_pack_fit_run(struct clv_pack_fit *f, const uint32_t *order, uint64_t *offset, struct clv_pack_clock *clock);

/* The same without looking for holes: each goes above all that is there. For a first packing of any size of problem, within
 * O(n log n). UINT64_MAX: host memory is out. */
uint64_t clv_pack_stack(const struct clv_pack_problem *problem, const uint32_t *order, uint64_t *offset);

#endif
