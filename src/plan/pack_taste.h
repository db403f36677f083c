/* SPDX-License-Identifier: MIT
 *
 * pack_taste: which item is tried first, and where. Values of items are weighted sums of logarithms of their traits, with
 * noise; the weights change from attempt to attempt. In whole numbers, so that every machine prefers the same.
 */
#ifndef CLV_PACK_TASTE_H
#define CLV_PACK_TASTE_H

#include "pack_problem.h"

/* Which pit is filled next; each rule is the best for some problems. */
enum clv_pack_pits {
	CLV_PACK_PIT_NEAR,   /* the nearest to the last one */
	CLV_PACK_PIT_LOADED, /* the one that waits for most */
	CLV_PACK_PIT_LOWEST,
	CLV_PACK_PIT_TIGHT,  /* the one with the least to spare */
};

/* log2 in 1/256 */
struct clv_pack_traits {
	int32_t life, size, load; /* load: the largest of its sections */
};

struct clv_pack_taste {
	int32_t life, size, load; /* weights, in 1/1024 */
	int32_t flush;            /* for each wall of its pit that an item touches; in units of values */
	int32_t noise;            /* in 1/256: values are off by up to half of it */
	enum clv_pack_pits pits;
	bool from_end;            /* of time, among equals; otherwise from its begin */
};

struct clv_pack_traits clv_pack_traits_of(const struct clv_pack_problem *p, const struct clv_pack_item *item);

/* attempt: 0, 1, 2, ... */
struct clv_pack_taste clv_pack_taste_for(uint32_t attempt, struct clv_rng *rng);
int64_t clv_pack_taste_value(const struct clv_pack_taste *taste, const struct clv_pack_traits *traits, struct clv_rng *rng);

/* 1, 1, 2, 1, 1, 2, 4, 1, ...: element n, from 1 (Luby, Sinclair and Zuckerman, "Optimal speedup of Las Vegas algorithms",
 * 1993). */
uint64_t clv_pack_luby(uint32_t n);

#endif
