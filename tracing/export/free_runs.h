/* SPDX-License-Identifier: MIT
 *
 * free_runs: an address space in which ranges are free, used or not there, and the longest free run of it, kept in
 * O(log n) a change. All places where a range can begin or end are known beforehand: they are cut into elements, over
 * which lies a binary tree. Owned by one exporter.
 */
#ifndef CLV_FREE_RUNS_H
#define CLV_FREE_RUNS_H

#include "../../src/base/base.h"

enum clv_run_state { CLV_RUN_ABSENT, CLV_RUN_FREE, CLV_RUN_USED };

struct clv_free_runs {
	uint64_t *cuts;  /* address * 2, + 1: there can be a wall; sorted once the tree is built */
	uint32_t *place; /* of each cut: the number of the leaf that begins there */
	size_t count, cap;
	struct clv_run_node *nodes;
	size_t leaves; /* a power of 2 */
};

/* First: every address, below 2^63, at which ranges begin or end. At some there will be a wall, which no run goes
 * over: two segments may be neighbours. false: out of host memory. */
bool clv_free_runs_cut(struct clv_free_runs *r, uint64_t addr, bool wall);

/* Then the tree, in which nothing is there, and no wall. false: out of host memory. */
bool clv_free_runs_build(struct clv_free_runs *r);

/* Both ends are cuts. */
void clv_free_runs_set(struct clv_free_runs *r, uint64_t addr, uint64_t end, enum clv_run_state state);

/* Puts up or takes away a wall where there can be one. */
void clv_free_runs_wall(struct clv_free_runs *r, uint64_t addr, bool up);

uint64_t clv_free_runs_longest(const struct clv_free_runs *r);
uint64_t clv_free_runs_used(struct clv_free_runs *r, uint64_t addr,
			    uint64_t end); /* bytes of the range that are used */

void clv_free_runs_free(struct clv_free_runs *r);

#endif
