/* SPDX-License-Identifier: MIT
 *
 * pack_problem: a set of buffers as the packers see it, made from what the caller gave. Owns its arrays; immutable once
 * made, one thread.
 *
 * Times become *sections*: the maximal sets of buffers that are live together, in order of time. Two buffers are live at
 * one time if and only if they share a section, so nothing else about time matters. Buffers without size or life are left
 * out. Sizes and offsets are in units of the sizes' greatest common divisor when nothing but sizes decides where buffers can
 * lie (`plain`): no gaps, no fixed offsets, and alignments that hold by themselves, since they divide the sizes or sizes were
 * rounded up to one that all share.
 *
 * Heights are in *grains*. That is a unit, unless sizes were rounded up: then it is what the caller counts in, as the topmost
 * item need not have what it was rounded up by.
 */
#ifndef CLV_PACK_PROBLEM_H
#define CLV_PACK_PROBLEM_H

#include <cleave/plan.h>

#include "../base/base.h"
#include "../base/error.h"

/* Sections lo <= s < hi. */
struct clv_pack_range {
	uint32_t lo, hi;
};

struct clv_pack_item {
	uint32_t lo, hi;        /* the hull of its ranges; lo < hi */
	uint64_t size;          /* > 0, in units; rounded up to the alignment that all share */
	uint64_t padding;       /* grains that it was rounded up by */
	uint64_t align;         /* >= 1; 1 in a plain problem */
	uint64_t fixed;         /* or CLEAVE_PACK_ANYWHERE */
	uint32_t range;         /* first of its ranges; in a plain problem there is one, lo to hi */
	uint32_t range_count;
	uint32_t buffer;        /* the caller's index */
	uint64_t life;          /* time from birth to death, for heuristics */
};

struct clv_pack_problem {
	struct clv_pack_item *items; /* by lo, then hi, then the caller's index */
	uint32_t count, sections;
	struct clv_pack_range *ranges; /* of all items */
	uint32_t range_total;
	uint64_t *load;       /* by section: the sum of the sizes there; in load_tree */
	uint64_t *load_tree;  /* of maxima; [1] is the root, [load_leaves + s] section s */
	uint32_t load_leaves;
	uint64_t load_max;
	uint64_t unit;        /* in the caller's */
	uint64_t grains;      /* in a unit */
	uint64_t grain;       /* in the caller's units; of a subset, in grains of what it was taken from */
	uint64_t bound;       /* no packing is lower; in grains */
	uint32_t *fixed_items; /* by offset */
	uint32_t fixed_count;
	bool plain;
};

/* False with `err` if the buffers make no sense (a sentence), or with an empty `err` if host memory is out. */
bool clv_pack_problem_make(struct clv_pack_problem *p, const cleave_pack_buffer *buffers, size_t count,
			   struct clv_error *err);

/* The problem of some items of another one, in units of its units; `buffer` of an item is its index in `p`. It may be plain where
 * `p` is not. False: host memory is out. */
bool clv_pack_problem_subset(struct clv_pack_problem *subset, const struct clv_pack_problem *p, const uint32_t *items,
			     uint32_t count);
void clv_pack_problem_free(struct clv_pack_problem *p);

static inline const struct clv_pack_range *clv_pack_ranges(const struct clv_pack_problem *p, const struct clv_pack_item *i)
{
	return p->ranges + i->range;
}

/* The lowest offset from `at` that an item can have; its alignment need be no power of two. */
static inline uint64_t clv_pack_align(const struct clv_pack_item *i, uint64_t at)
{
	return i->align == 1 ? at : (at + i->align - 1) / i->align * i->align;
}

/* What an item at `at` needs of the height. */
static inline uint64_t clv_pack_end(const struct clv_pack_problem *p, const struct clv_pack_item *i, uint64_t at)
{
	return (at + i->size) * p->grains - i->padding;
}

/* The largest load in sections lo <= s < hi. */
uint64_t clv_pack_load_in(const struct clv_pack_problem *p, uint32_t lo, uint32_t hi);

/* Whether two items are live at one time. */
bool clv_pack_items_share_section(const struct clv_pack_problem *p, const struct clv_pack_item *a,
				  const struct clv_pack_item *b);

#endif
