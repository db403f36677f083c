/* SPDX-License-Identifier: MIT
 *
 * pack_fit: items put one by one, in an order that the caller chooses, each as low as it fits. The only packer that knows
 * alignments, fixed offsets and gaps. Owns its arrays, in proportion to the items; one thread.
 */
#ifndef CLV_PACK_FIT_H
#define CLV_PACK_FIT_H

#include "pack_clock.h"
#include "pack_shelf.h"

struct clv_pack_fit {
	const struct clv_pack_problem *problem;
	struct clv_pack_shelf placed;
	bool *done;      /* by item */
	uint64_t height; /* of what is placed */
};

bool clv_pack_fit_make(struct clv_pack_fit *f, const struct clv_pack_problem *problem);
void clv_pack_fit_free(struct clv_pack_fit *f);

/* Takes everything away; then puts what is fixed. */
void clv_pack_fit_begin(struct clv_pack_fit *f, uint64_t *offset);
void clv_pack_fit_put(struct clv_pack_fit *f, uint32_t item, uint64_t at, uint64_t *offset);

/* Puts those of `order` that are not placed yet, to offset[item], in its order. When the clock runs out, the others go on top
 * of all that is there. Returns the height; UINT64_MAX: host memory is out. */
uint64_t clv_pack_fit_run(struct clv_pack_fit *f, const uint32_t *order, uint32_t count, uint64_t *offset,
			  struct clv_pack_clock *clock);

/* All of `order`, a permutation of all items, each above all that is there when its turn comes, in O(n log n). UINT64_MAX: host
 * memory is out. */
uint64_t clv_pack_stack(const struct clv_pack_problem *problem, const uint32_t *order, uint64_t *offset);

#endif
