/* SPDX-License-Identifier: MIT
 *
 * binmap: an index by size with constant-time operations: lists of nodes of nearly equal size, and a bitmap of the lists
 * that are not empty. Guarded by the lock of its arena.
 *
 * Sizes are counted in grains of 512 B. Up to 64 grains each size has a bin of its own; above, each doubling is cut into
 * 32 bins, so the sizes in one bin differ by at most 1/32. After Masmano et al., "TLSF: a new dynamic memory allocator for
 * real-time systems", ECRTS 2004.
 *
 * Invariants: (1) a node is in the bin of its size; (2) the bit of a bin is set exactly if its list is not empty;
 * (3) count is the number of nodes, bytes the sum of their sizes.
 */
#ifndef CLV_BINMAP_H
#define CLV_BINMAP_H

#include "../base/base.h"

#define CLV_BIN_LINEAR 64u
#define CLV_BIN_SPLIT 32u
#define CLV_BIN_MAX_LOG2 42u /* in grains: 2^51 bytes, more than an address space */
#define CLV_BIN_COUNT (CLV_BIN_LINEAR + (CLV_BIN_MAX_LOG2 - 6u + 1u) * CLV_BIN_SPLIT)
#define CLV_BIN_WORDS ((CLV_BIN_COUNT + 63u) / 64u)

struct clv_bin_node {
	struct clv_bin_node *next, **link; /* link: what points at this node; NULL: in no index */
	uint64_t size;                     /* bytes */
	void *owner;                       /* what the node stands for */
};

struct clv_binmap {
	uint32_t summary; /* bit w: words[w] is not 0 */
	uint64_t words[CLV_BIN_WORDS];
	struct clv_bin_node *heads[CLV_BIN_COUNT];
	uint64_t count, bytes;
};

_Static_assert(CLV_BIN_WORDS <= 32, "summary has a bit a word");

static inline bool clv_bin_indexed(const struct clv_bin_node *n)
{
	return n->link != NULL;
}

/* size > 0, and the node is in no index */
void clv_bin_insert(struct clv_binmap *m, struct clv_bin_node *n, uint64_t size, void *owner);
void clv_bin_remove(struct clv_binmap *m, struct clv_bin_node *n); /* a node in no index is left alone */

/* The walk upwards from `size`: nodes of at least that size, smaller bins first. In the bin of `size` itself at most eight
 * nodes are looked at, so an answer costs constant time; what it misses is at most 1/32 larger than `size`. */
struct clv_bin_node *clv_bin_ceil(const struct clv_binmap *m, uint64_t size);
struct clv_bin_node *clv_bin_up(const struct clv_binmap *m, const struct clv_bin_node *n, uint64_t size);

/* Any node of at least `size`, also one that clv_bin_ceil misses; walks all of the bin of `size`. */
struct clv_bin_node *clv_bin_search(const struct clv_binmap *m, uint64_t size);

/* The walk downwards: nodes smaller than or equal to `size`, larger bins first. */
struct clv_bin_node *clv_bin_floor(const struct clv_binmap *m, uint64_t size);
struct clv_bin_node *clv_bin_down(const struct clv_binmap *m, const struct clv_bin_node *n, uint64_t size);

/* NULL if the invariants hold, else which does not. */
const char *clv_binmap_check(const struct clv_binmap *m);

#endif
