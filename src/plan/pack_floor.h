/* SPDX-License-Identifier: MIT
 *
 * pack_floor: the height up to which each section is taken, when nothing is put below anything. Owns its arrays (24 bytes a
 * section at most); one thread. A tree of maxima with assignments that wait at its nodes.
 */
#ifndef CLV_PACK_FLOOR_H
#define CLV_PACK_FLOOR_H

#include "pack_problem.h"

struct clv_pack_floor {
	uint32_t leaves; /* a power of two >= the number of sections */
	uint64_t *max;   /* [1] is the root */
	uint64_t *given; /* to all below a node and not yet passed on; UINT64_MAX: nothing */
};

bool clv_pack_floor_make(struct clv_pack_floor *f, uint32_t sections);
void clv_pack_floor_free(struct clv_pack_floor *f);
uint64_t clv_pack_floor_max(const struct clv_pack_floor *f, uint32_t lo, uint32_t hi);
void clv_pack_floor_assign(struct clv_pack_floor *f, uint32_t lo, uint32_t hi, uint64_t height);

#endif
