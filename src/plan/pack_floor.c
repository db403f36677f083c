/* SPDX-License-Identifier: MIT */
#include "pack_floor.h"

#include <stdlib.h>

#define NOTHING UINT64_MAX

bool clv_pack_floor_make(struct clv_pack_floor *f, uint32_t sections)
{
	f->leaves = 1;
	while (f->leaves < sections)
		f->leaves *= 2;
	f->max = calloc((size_t)f->leaves * 2, sizeof(*f->max));
	f->given = malloc((size_t)f->leaves * sizeof(*f->given));
	if (!f->max || !f->given) {
		clv_pack_floor_free(f);
		return false;
	}
	for (uint32_t i = 0; i < f->leaves; i++)
		f->given[i] = NOTHING;
	return true;
}

void clv_pack_floor_free(struct clv_pack_floor *f)
{
	free(f->max);
	free(f->given);
	f->max = f->given = NULL;
}

struct span {
	uint32_t node, lo, hi; /* a node of the tree and the sections below it */
};

static uint64_t max_below(const struct clv_pack_floor *f, struct span at, uint32_t lo, uint32_t hi)
{
	if (hi <= at.lo || at.hi <= lo)
		return 0;
	if (lo <= at.lo && at.hi <= hi)
		return f->max[at.node];
	if (f->given[at.node] != NOTHING)
		return f->given[at.node];
	uint32_t mid = at.lo + (at.hi - at.lo) / 2;
	return clv_max_u64(max_below(f, (struct span){2 * at.node, at.lo, mid}, lo, hi),
			   max_below(f, (struct span){2 * at.node + 1, mid, at.hi}, lo, hi));
}

uint64_t clv_pack_floor_max(const struct clv_pack_floor *f, uint32_t lo, uint32_t hi)
{
	return max_below(f, (struct span){1, 0, f->leaves}, lo, hi);
}

static void give(struct clv_pack_floor *f, uint32_t node, uint64_t height)
{
	f->max[node] = height;
	if (node < f->leaves)
		f->given[node] = height;
}

static void assign_below(struct clv_pack_floor *f, struct span at, uint32_t lo, uint32_t hi, uint64_t height)
{
	if (hi <= at.lo || at.hi <= lo)
		return;
	if (lo <= at.lo && at.hi <= hi) {
		give(f, at.node, height);
		return;
	}
	if (f->given[at.node] != NOTHING) {
		give(f, 2 * at.node, f->given[at.node]);
		give(f, 2 * at.node + 1, f->given[at.node]);
		f->given[at.node] = NOTHING;
	}
	uint32_t mid = at.lo + (at.hi - at.lo) / 2;
	assign_below(f, (struct span){2 * at.node, at.lo, mid}, lo, hi, height);
	assign_below(f, (struct span){2 * at.node + 1, mid, at.hi}, lo, hi, height);
	f->max[at.node] = clv_max_u64(f->max[2 * at.node], f->max[2 * at.node + 1]);
}

void clv_pack_floor_assign(struct clv_pack_floor *f, uint32_t lo, uint32_t hi, uint64_t height)
{
	assign_below(f, (struct span){1, 0, f->leaves}, lo, hi, height);
}
