/* SPDX-License-Identifier: MIT */
#include "passing.h"

#define SOON 64u /* large requests between one that comes and goes and its free, at most */

static uint64_t index_of(const struct clv_arena *a, uint64_t size)
{
	return clv_mix64(size) % CLV_ARRAY_LEN(a->passing.sizes);
}

void clv_passing_note(struct clv_arena *a, const struct clv_extent *block)
{
	uint64_t *entry = &a->passing.sizes[index_of(a, block->size)];
	if (a->large_allocs - block->live.born <= SOON)
		*entry = block->size;
	else if (*entry == block->size)
		*entry = 0;
}

bool clv_passing_has(const struct clv_arena *a, uint64_t size)
{
	return a->passing.sizes[index_of(a, size)] == size;
}
