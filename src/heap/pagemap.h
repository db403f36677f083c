/* SPDX-License-Identifier: MIT
 *
 * pagemap: from a device address to the frame mapped there and to the chunk of slabs there, in two steps. Written under the
 * arena's lock; the chunk is also read without a lock, by frees of small blocks.
 *
 * Invariant: an entry of a page is set exactly while a frame (a chunk) covers that page; leaves stay until close. A short chunk
 * covers a quarter of its page. Which one, the entry says by itself: who frees a large block in another quarter must not look at
 * the chunk, which may go at that moment.
 */
#ifndef CLV_PAGEMAP_H
#define CLV_PAGEMAP_H

#include "../base/base.h"

#include <stdatomic.h>

#define CLV_PAGE_SHIFT 21 /* 2 MiB: the granularity of every GPU measured */
#define CLV_PAGE ((uint64_t)1 << CLV_PAGE_SHIFT)
#define CLV_LEAF_BITS 12
#define CLV_ROOT_BITS 17 /* addresses up to 2^50 */
#define CLV_PAGE_QUARTER (CLV_PAGE / 4)

struct clv_frame;
struct clv_chunk;

struct clv_page_leaf {
	struct clv_frame *frames[1u << CLV_LEAF_BITS];
	_Atomic uintptr_t chunks[1u << CLV_LEAF_BITS]; /* of a short one, plus 1 to 4: its quarter of the page */
};

struct clv_pagemap {
	_Atomic(struct clv_page_leaf *) *root;
};

bool clv_pagemap_init(struct clv_pagemap *m); /* false: host memory is out */
void clv_pagemap_fini(struct clv_pagemap *m);

/* Makes the leaves of a range; false if host memory is out or the address is beyond 2^50. */
bool clv_pagemap_reserve(struct clv_pagemap *m, uint64_t addr, uint64_t size);

/* The leaves must have been reserved. */
void clv_pagemap_set_frame(struct clv_pagemap *m, uint64_t addr, uint64_t size, struct clv_frame *frame);
/* [addr, addr + size) is a page or a quarter of one. NULL: there is none any more. */
void clv_pagemap_set_chunk(struct clv_pagemap *m, uint64_t addr, uint64_t size, struct clv_chunk *chunk);

static inline struct clv_page_leaf *clv_pagemap_leaf(const struct clv_pagemap *m, uint64_t addr)
{
	uint64_t root = addr >> (CLV_PAGE_SHIFT + CLV_LEAF_BITS);
	return root >> CLV_ROOT_BITS ? NULL : atomic_load_explicit(&m->root[root], memory_order_acquire);
}

static inline struct clv_frame *clv_pagemap_frame(const struct clv_pagemap *m, uint64_t addr)
{
	struct clv_page_leaf *leaf = clv_pagemap_leaf(m, addr);
	return leaf ? leaf->frames[addr >> CLV_PAGE_SHIFT & ((1u << CLV_LEAF_BITS) - 1)] : NULL;
}

static inline uintptr_t clv_pagemap_chunk_entry(const struct clv_pagemap *m, uint64_t addr)
{
	struct clv_page_leaf *leaf = clv_pagemap_leaf(m, addr);
	return leaf ? atomic_load_explicit(&leaf->chunks[addr >> CLV_PAGE_SHIFT & ((1u << CLV_LEAF_BITS) - 1)],
					   memory_order_acquire)
		    : 0;
}

/* The chunk in which the address lies; NULL: none. */
static inline struct clv_chunk *clv_pagemap_chunk(const struct clv_pagemap *m, uint64_t addr)
{
	uintptr_t entry = clv_pagemap_chunk_entry(m, addr), quarter = entry & 7;
	if (quarter && (addr & (CLV_PAGE - 1)) / CLV_PAGE_QUARTER + 1 != quarter)
		return NULL;
	return (struct clv_chunk *)(entry - quarter);
}

/* True if the page of the address has a chunk, wherever in it. */
static inline bool clv_pagemap_page_has_chunk(const struct clv_pagemap *m, uint64_t addr)
{
	return clv_pagemap_chunk_entry(m, addr) != 0;
}

#endif
