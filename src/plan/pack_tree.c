/* SPDX-License-Identifier: MIT */
#include "pack_tree.h"

#include <stdlib.h>
#include <string.h>

bool clv_pack_tree_make(struct clv_pack_tree *t, const struct clv_pack_item *items, uint32_t count)
{
	t->items = items;
	t->count = count;
	t->leaves = 1;
	while (t->leaves < count)
		t->leaves *= 2;
	t->max_hi = calloc((size_t)t->leaves * 2, sizeof(*t->max_hi));
	return t->max_hi != NULL;
}

void clv_pack_tree_free(struct clv_pack_tree *t)
{
	free(t->max_hi);
	t->max_hi = NULL;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

void clv_pack_tree_fill(struct clv_pack_tree *t, bool all)
{
	if (!all) {
		memset(t->max_hi, 0, (size_t)t->leaves * 2 * sizeof(*t->max_hi));
		return;
	}
	for (uint32_t i = 0; i < t->count; i++)
		t->max_hi[t->leaves + i] = t->items[i].hi;
	for (uint32_t i = t->leaves; --i;)
		t->max_hi[i] = larger(t->max_hi[2 * i], t->max_hi[2 * i + 1]);
}

void clv_pack_tree_set(struct clv_pack_tree *t, uint32_t item, bool in)
{
	uint32_t i = t->leaves + item;
	t->max_hi[i] = in ? t->items[item].hi : 0;
	while (i /= 2) {
		uint32_t max = larger(t->max_hi[2 * i], t->max_hi[2 * i + 1]);
		if (t->max_hi[i] == max)
			break;
		t->max_hi[i] = max;
	}
}

uint32_t clv_pack_tree_overlaps(const struct clv_pack_tree *t, uint32_t lo, uint32_t hi, uint32_t *out)
{
	uint32_t found = 0;
	/* At most one node waits at each of at most 32 levels. */
	uint32_t wait[34], waiting = 0;
	wait[waiting++] = 1;
	while (waiting) {
		uint32_t node = wait[--waiting];
		if (t->max_hi[node] <= lo)
			continue;
		if (node >= t->leaves) {
			uint32_t item = node - t->leaves;
			if (t->items[item].lo >= hi)
				return found; /* and all that follow begin no earlier */
			out[found++] = item;
			continue;
		}
		wait[waiting++] = 2 * node + 1;
		wait[waiting++] = 2 * node;
	}
	return found;
}
