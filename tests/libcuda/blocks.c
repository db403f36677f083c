/* SPDX-License-Identifier: MIT
 *
 * All allocations that are no mappings of frames, in one array ordered by address; none overlap.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

static struct fc_block **blocks;
static size_t count, capacity;

/* How many begin at or below the address. */
static size_t upto(uint64_t addr)
{
	size_t low = 0, high = count;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (blocks[mid]->addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct fc_block *fc_block_at(uint64_t addr)
{
	size_t i = upto(addr);
	return i && addr - blocks[i - 1]->addr < blocks[i - 1]->size ? blocks[i - 1] : NULL;
}

void fc_block_add(struct fc_block *b)
{
	if (count == capacity) {
		capacity = capacity ? 2 * capacity : 256;
		blocks = realloc(blocks, capacity * sizeof(struct fc_block *));
		if (!blocks)
			abort();
	}
	size_t i = upto(b->addr);
	memmove(blocks + i + 1, blocks + i, (count - i) * sizeof(struct fc_block *));
	blocks[i] = b;
	count++;
	b->id = ++fc.last_id;
}

void fc_block_remove(struct fc_block *b)
{
	size_t i = upto(b->addr);
	if (!i || blocks[i - 1] != b)
		abort();
	count--;
	memmove(blocks + i - 1, blocks + i, (count - (i - 1)) * sizeof(struct fc_block *));
	free(b);
}

struct fc_block *fc_block_each(size_t *i)
{
	return *i < count ? blocks[(*i)++] : NULL;
}

bool fc_is_host(uint64_t addr, uint64_t size)
{
	const struct fc_block *b = fc_block_at(addr);
	return b && (b->kind == FC_HOST || b->kind == FC_REGISTERED || b->kind == FC_MANAGED) &&
	       size <= b->size - (addr - b->addr);
}
