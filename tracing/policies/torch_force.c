/* SPDX-License-Identifier: MIT */
#include "torch_force.h"

#include "torch_internal.h"

static bool is_free(const struct clv_tblock *b)
{
	return !b->allocated && !b->pending;
}

/* Adds (1) or takes away (-1) what a free native block is to the statistics of splits. */
static void count_split(struct clv_torch *m, uint32_t i, int sign)
{
	const struct clv_tblock *b = &m->blocks[i];
	if (b->expandable || !b->mapped || !clv_tblock_split(b))
		return;
	clv_tstat_add(m, b->half, CLV_TORCH_INACTIVE_SPLIT, sign);
	clv_tstat_add(m, b->half, CLV_TORCH_INACTIVE_SPLIT_BYTES, sign * (int64_t)b->size);
}

static void enter_set(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	if (b->mapped) {
		clv_tfree_insert(m, i);
	} else {
		b->in_set = true;
		clv_tset_insert(m, &clv_tw_half(m, b->half)->unmapped, i);
	}
	count_split(m, i, 1);
}

static void leave_set(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	count_split(m, i, -1);
	if (b->mapped) {
		clv_tfree_erase(m, i);
	} else {
		clv_tset_erase(m, &clv_tw_half(m, b->half)->unmapped, i);
		b->in_set = false;
	}
}

/* Cuts a block that is in no set: it keeps what lies below `at`; the rest becomes a block of the same kind, in no set. */
static uint32_t cut(struct clv_torch *m, uint32_t i, uint64_t at)
{
	uint32_t rest = clv_tblock_new(m);
	struct clv_tblock *b = clv_tw_block(m, i), *r = clv_tw_block(m, rest);
	r->addr = at;
	r->size = b->addr + b->size - at;
	r->stream = b->stream;
	r->half = b->half;
	r->expandable = b->expandable;
	r->mapped = b->mapped;
	if (m->settings.tie_break == CLV_TORCH_TIE_SEGMENT)
		r->order = b->order;
	r->prev = i;
	r->next = b->next;
	if (r->next)
		clv_tw_block(m, r->next)->prev = rest;
	b->next = rest;
	b->size = at - b->addr;
	clv_tindex_insert(m, rest);
	return rest;
}

/* The free block i, which contains the range, without what lies outside of it; in no set. */
static uint32_t isolate(struct clv_torch *m, uint32_t i, uint64_t addr, uint64_t size)
{
	uint32_t front = 0, back = 0;
	leave_set(m, i);
	if (m->blocks[i].addr < addr) {
		front = i;
		i = cut(m, i, addr);
	}
	if (m->blocks[i].size > size)
		back = cut(m, i, addr + size);
	if (front)
		enter_set(m, front);
	if (back)
		enter_set(m, back);
	return i;
}

static bool contains(const struct clv_tblock *b, uint64_t addr, uint64_t size)
{
	return addr >= b->addr && addr - b->addr <= b->size && size <= b->size - (addr - b->addr);
}

static void merge_around(struct clv_torch *m, uint32_t i)
{
	uint32_t neighbours[2] = {m->blocks[i].prev, m->blocks[i].next};
	for (int k = 0; k < 2; k++) {
		uint32_t n = neighbours[k];
		if (!n || !is_free(&m->blocks[n]) || m->blocks[n].mapped != m->blocks[i].mapped)
			continue;
		count_split(m, n, -1);
		clv_tmerge(m, i, n);
	}
}

bool clv_torch_put_segment(struct clv_torch *m, const struct clv_torch_place *place, uint64_t addr, uint64_t size,
			   const struct clv_torch_lost *lost)
{
	uint32_t i, old;
	while ((old = clv_tset_at_or_below(m, &m->now.index, addr + size - 1)) &&
	       m->blocks[old].addr + m->blocks[old].size > addr)
		if (!clv_torch_drop_segment(m, m->blocks[old].addr, lost))
			return false;
	if (!clv_tblocks_reserve(m, 1))
		return false;
	clv_tnative_new(m, 2 * place->pool + place->small, place->stream, addr, size, &i);
	clv_tfree_insert(m, i);
	return true;
}

bool clv_torch_put_expandable(struct clv_torch *m, const struct clv_torch_place *place, uint64_t base, uint64_t size)
{
	uint32_t old = clv_torch_find(m, base);
	if ((old && m->blocks[old].mapped) || !clv_tblocks_reserve(m, 1))
		return false;
	return clv_texpandable_put(m, 2 * place->pool + place->small, place->stream, base, size) != 0;
}

bool clv_torch_put_mapped(struct clv_torch *m, const struct clv_torch_place *place, uint64_t addr, uint64_t size)
{
	uint32_t i = clv_torch_find(m, addr);
	const struct clv_tblock *at = &m->blocks[i];
	/* reservations that we take to be larger than they are can overlap */
	if (!i || at->mapped || at->stream != place->stream || at->half != 2 * place->pool + place->small ||
	    !contains(&m->blocks[i], addr, size) || !clv_tblocks_reserve(m, 3))
		return false;
	i = isolate(m, i, addr, size);
	struct clv_tblock *b = clv_tw_block(m, i);
	b->mapped = true;
	merge_around(m, i);
	enter_set(m, i);
	m->now.reserved += size;
	clv_tstat_add(m, b->half, CLV_TORCH_RESERVED_BYTES, (int64_t)size);
	clv_tw_pool(m, b->half / 2)->segments++;
	m->now.stats.num_device_alloc++;
	return true;
}

bool clv_torch_put_unmapped(struct clv_torch *m, uint64_t addr, uint64_t size)
{
	uint32_t i = clv_torch_find(m, addr);
	if (!i || !m->blocks[i].mapped || !m->blocks[i].expandable || !is_free(&m->blocks[i]) ||
	    !contains(&m->blocks[i], addr, size) || !clv_tblocks_reserve(m, 3))
		return false;
	i = isolate(m, i, addr, size);
	struct clv_tblock *b = clv_tw_block(m, i);
	b->mapped = false;
	merge_around(m, i);
	enter_set(m, i);
	m->now.reserved -= size;
	clv_tstat_add(m, b->half, CLV_TORCH_RESERVED_BYTES, -(int64_t)size);
	m->now.stats.num_device_free++;
	return true;
}

/* The tail of a block in use, from `at` on, becomes free. */
static void shorten(struct clv_torch *m, uint32_t i, uint64_t at)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	uint64_t gone = b->addr + b->size - at;
	if (b->allocated)
		clv_tstat_add(m, b->half, CLV_TORCH_ALLOCATED_BYTES, -(int64_t)gone);
	clv_tstat_add(m, b->half, CLV_TORCH_ACTIVE_BYTES, -(int64_t)gone);
	uint32_t tail = cut(m, i, at);
	merge_around(m, tail);
	enter_set(m, tail);
}

uint32_t clv_torch_put_block(struct clv_torch *m, uint64_t addr, uint64_t size, const struct clv_torch_request *request)
{
	uint32_t i = clv_torch_find(m, addr);
	if (!i || !clv_tblocks_reserve(m, 4))
		return CLV_TORCH_NONE;
	if (!is_free(&m->blocks[i]) && m->blocks[i].addr < addr) {
		shorten(m, i, addr);
		i = clv_torch_find(m, addr);
	}
	if (!is_free(&m->blocks[i]) || !m->blocks[i].mapped || !contains(&m->blocks[i], addr, size))
		return CLV_TORCH_NONE;
	i = isolate(m, i, addr, size);
	clv_tblock_allocated(m, i, request);
	return i;
}

uint64_t clv_torch_size_at(const struct clv_torch *m, uint64_t addr, const struct clv_torch_request *request)
{
	uint32_t i = clv_torch_find(m, addr);
	const struct clv_tblock *b = &m->blocks[i];
	uint64_t size = clv_torch_round(&m->settings, request->size);
	if (!i || !b->mapped)
		return 0;
	if (!is_free(b))
		return size; /* a tail that is longer than we thought */
	uint64_t room = b->addr + b->size - addr, rest = room - size;
	if (room < size)
		return room;
	bool split = m->pools[b->half / 2].options.no_split ? false
		     : clv_thalf_small(b->half) || b->expandable
			     ? rest >= CLV_TORCH_MIN_BLOCK
			     : size < m->settings.max_split_size && rest > CLV_TORCH_SMALL_SIZE;
	return split ? size : room;
}

static void drop_block(struct clv_torch *m, uint32_t i, const struct clv_torch_lost *lost)
{
	uint32_t owner = m->blocks[i].owner;
	if (m->blocks[i].allocated)
		clv_torch_free_requested(m, i);
	clv_torch_free_completed(m, i); /* merges with what is free around it */
	lost->fn(lost->ctx, owner);
}

bool clv_torch_drop_segment(struct clv_torch *m, uint64_t addr, const struct clv_torch_lost *lost)
{
	uint32_t i = clv_torch_find(m, addr), next;
	if (!i)
		return false;
	while (m->blocks[i].prev)
		i = m->blocks[i].prev;
	uint64_t start = m->blocks[i].addr;
	/* frees merge: look the chain up again after each */
	for (;;) {
		i = clv_torch_find(m, start);
		while (i && is_free(&m->blocks[i]))
			i = m->blocks[i].next;
		if (!i)
			break;
		drop_block(m, i, lost);
	}
	for (i = clv_torch_find(m, start); i; i = next) {
		struct clv_tblock *b = clv_tw_block(m, i);
		uint32_t half = b->half, x = b->expandable;
		uint64_t size = b->mapped ? b->size : 0;
		next = b->next;
		leave_set(m, i);
		clv_tset_erase(m, &m->now.index, i);
		m->now.reserved -= size;
		clv_tstat_add(m, half, CLV_TORCH_RESERVED_BYTES, -(int64_t)size);
		if (!x)
			clv_tnative_gone(m, half, size);
		else if (!next)
			clv_texpandable_drop(m, x);
		clv_tblock_drop(m, i);
	}
	return true;
}
