/* SPDX-License-Identifier: MIT
 *
 * pack_order: orders of items for pack_fit, and a local search among them, for problems of any kind. Owns its arrays, in
 * proportion to the items; one thread.
 */
#ifndef CLV_PACK_ORDER_H
#define CLV_PACK_ORDER_H

#include "pack_fit.h"
#include "pack_taste.h"

enum clv_pack_by { CLV_PACK_BY_SIZE, CLV_PACK_BY_AREA, CLV_PACK_BY_LIFE, CLV_PACK_BY_LOAD, CLV_PACK_ORDERS };

/* All items, the first to be put first; equal ones by index. False: host memory is out. */
bool clv_pack_order_by(const struct clv_pack_problem *p, enum clv_pack_by by, uint32_t *order);

struct clv_pack_orders {
	const struct clv_pack_problem *problem;
	struct clv_pack_fit *fit; /* the caller's, for the same problem */
	struct clv_pack_traits *traits;
	int64_t *value;
	uint32_t *order, *best;   /* in hand, and what it came from */
	uint32_t top;             /* in `best`: the turn of one of the items that end highest */
	uint64_t best_height;     /* of `best` */
	uint32_t tries;           /* since `best` was lower than before */
	uint32_t attempt;
	struct clv_rng rng;
};

bool clv_pack_orders_make(struct clv_pack_orders *o, const struct clv_pack_problem *problem, struct clv_pack_fit *fit,
			  uint64_t seed);
void clv_pack_orders_free(struct clv_pack_orders *o);

/* Tries one more order: what ends highest goes earlier, or all are ordered anew. Returns the height, with the offsets in
 * offset[item]; UINT64_MAX: host memory is out. */
uint64_t clv_pack_orders_run(struct clv_pack_orders *o, struct clv_pack_clock *clock, uint64_t *offset);

#endif
