/* SPDX-License-Identifier: MIT */
#include "pagemap.h"

#include "../host/meta.h"

#define LEAF_SPAN ((uint64_t)1 << (CLV_PAGE_SHIFT + CLV_LEAF_BITS))

bool clv_pagemap_init(struct clv_pagemap *m)
{
	m->root = clv_meta_zalloc(sizeof(*m->root) << CLV_ROOT_BITS);
	return m->root != NULL;
}

void clv_pagemap_fini(struct clv_pagemap *m)
{
	if (!m->root)
		return;
	for (size_t i = 0; i < (size_t)1 << CLV_ROOT_BITS; i++)
		clv_meta_free(atomic_load_explicit(&m->root[i], memory_order_relaxed));
	clv_meta_free(m->root);
	m->root = NULL;
}

bool clv_pagemap_reserve(struct clv_pagemap *m, uint64_t addr, uint64_t size)
{
	if (addr + size < addr || (addr + size - 1) >> (CLV_PAGE_SHIFT + CLV_LEAF_BITS + CLV_ROOT_BITS))
		return false;
	for (uint64_t a = clv_align_down(addr, LEAF_SPAN); a < addr + size; a += LEAF_SPAN) {
		_Atomic(struct clv_page_leaf *) *slot = &m->root[a / LEAF_SPAN];
		if (atomic_load_explicit(slot, memory_order_relaxed))
			continue;
		struct clv_page_leaf *leaf = clv_meta_zalloc(sizeof(*leaf));
		if (!leaf)
			return false;
		atomic_store_explicit(slot, leaf, memory_order_release);
	}
	return true;
}

void clv_pagemap_set_frame(struct clv_pagemap *m, uint64_t addr, uint64_t size, struct clv_frame *frame)
{
	for (uint64_t a = addr; a < addr + size; a += CLV_PAGE)
		clv_pagemap_leaf(m, a)->frames[a >> CLV_PAGE_SHIFT & ((1u << CLV_LEAF_BITS) - 1)] = frame;
}

void clv_pagemap_set_chunk(struct clv_pagemap *m, uint64_t addr, uint64_t size, struct clv_chunk *chunk)
{
	uintptr_t entry = (uintptr_t)chunk; /* from our host memory, so a multiple of 8 */
	if (chunk && size < CLV_PAGE)
		entry += (addr & (CLV_PAGE - 1)) / CLV_PAGE_QUARTER + 1;
	atomic_store_explicit(&clv_pagemap_leaf(m, addr)->chunks[addr >> CLV_PAGE_SHIFT & ((1u << CLV_LEAF_BITS) - 1)], entry,
			      memory_order_release);
}
