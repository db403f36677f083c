/* SPDX-License-Identifier: MIT
 *
 * rankset: a set of numbers below a fixed bound, with the member next to any number. A bitmap with a bitmap of its words above it,
 * and so on: every call costs a step for each factor of 64 of the bound. Owned by one thread.
 */
#ifndef CLV_REPORT_RANKSET_H
#define CLV_REPORT_RANKSET_H

#include "../../src/base/base.h"

#define CLV_RANK_NONE UINT32_MAX

struct clv_rankset {
	uint64_t *words;    /* all levels, one after the other */
	uint64_t *level[6]; /* level[0] has a bit a number */
	uint64_t count;     /* of words */
	unsigned levels;
};

bool clv_rankset_init(struct clv_rankset *s, uint32_t bound); /* empty; false: out of host memory */
void clv_rankset_clear(struct clv_rankset *s);
void clv_rankset_free(struct clv_rankset *s);

static inline bool clv_rankset_has(const struct clv_rankset *s, uint32_t rank)
{
	return s->level[0][rank / 64] >> rank % 64 & 1;
}

/* Once more changes nothing. */
void clv_rankset_add(struct clv_rankset *s, uint32_t rank);
void clv_rankset_remove(struct clv_rankset *s, uint32_t rank);

/* The smallest member from `rank` on, the largest up to `rank`; CLV_RANK_NONE: there is none. `rank` may be the bound itself. */
uint32_t clv_rankset_next(const struct clv_rankset *s, uint32_t rank);
uint32_t clv_rankset_prev(const struct clv_rankset *s, uint32_t rank);

#endif
