/* SPDX-License-Identifier: MIT
 *
 * pack_tree: which items of a set share a section with a span of sections. Owns its array (8 bytes an item at most); one
 * thread.
 *
 * Items are sorted by `lo`, so those that begin before the end of the span are a prefix; a tree over them holds the
 * largest `hi` of those that are in the set, and is descended where that is beyond the begin of the span.
 */
#ifndef CLV_PACK_TREE_H
#define CLV_PACK_TREE_H

#include "pack_problem.h"

struct clv_pack_tree {
	const struct clv_pack_item *items;
	uint32_t count;
	uint32_t leaves;  /* a power of two >= count */
	uint32_t *max_hi; /* [1] is the root, [leaves + i] item i; 0: not in the set */
};

bool clv_pack_tree_make(struct clv_pack_tree *t, const struct clv_pack_item *items, uint32_t count);
void clv_pack_tree_free(struct clv_pack_tree *t);

/* All items, or none. */
void clv_pack_tree_fill(struct clv_pack_tree *t, bool all);
void clv_pack_tree_set(struct clv_pack_tree *t, uint32_t item, bool in);

/* Writes the items of the set whose hull overlaps lo <= s < hi to `out` (room for all of them), ascending; returns their
 * number. */
uint32_t clv_pack_tree_overlaps(const struct clv_pack_tree *t, uint32_t lo, uint32_t hi, uint32_t *out);

#endif
