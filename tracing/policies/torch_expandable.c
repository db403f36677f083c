/* SPDX-License-Identifier: MIT
 *
 * Expandable segments of the model: one long range of addresses for a stream and a pool, in which pages are mapped behind
 * blocks as they are needed and given back by a flush. Neighbouring unmapped blocks are always one; free and unmapped blocks
 * meet at page boundaries, so a free block can begin or end inside a page only beside a block in use.
 */
#include "torch_internal.h"

#include "../memory.h"

/* PyTorch reserves 9/8 of the device's memory, in whole pages. Without a known size: more than any device has. */
#define UNKNOWN_DEVICE_TOTAL ((uint64_t)4 << 40)

static uint64_t up_to_page(const struct clv_texpandable *e, uint64_t addr)
{
	return e->base + (addr - e->base + e->page - 1) / e->page * e->page;
}

static uint64_t down_to_page(const struct clv_texpandable *e, uint64_t addr)
{
	return e->base + (addr - e->base) / e->page * e->page;
}

uint64_t clv_tstranded(const struct clv_torch *m, const struct clv_tblock *b)
{
	if (!b->expandable)
		return clv_tblock_split(b) ? b->size : 0;
	const struct clv_texpandable *e = &m->expandables[b->expandable];
	uint64_t from = up_to_page(e, b->addr), to = down_to_page(e, b->addr + b->size);
	return from < to ? b->size - (to - from) : b->size;
}

static uint32_t expandable_new(struct clv_torch *m)
{
	uint32_t e = m->now.free_expandable;
	if (e) {
		clv_tw_expandable(m, e);
		m->now.free_expandable = m->expandables[e].next_free;
		return e;
	}
	if (m->now.expandable_top >= m->expandable_room) {
		uint32_t room = m->expandable_room ? 2 * m->expandable_room : 8;
		struct clv_texpandable *all = clv_mem_realloc(m->expandables, room, sizeof(*all));
		if (!all) {
			m->broken = true;
			return 0;
		}
		for (uint32_t k = m->expandable_room; k < room; k++)
			all[k] = (struct clv_texpandable){.used = false};
		m->expandables = all;
		m->expandable_room = room;
	}
	return m->now.expandable_top++;
}

static uint64_t page_of(const struct clv_torch_settings *s, bool small)
{
	return small ? CLV_TORCH_SMALL_SEGMENT : s->large_segment_size;
}

uint64_t clv_torch_reservation_bytes(const struct clv_torch_settings *s, uint64_t device_total, bool small)
{
	uint64_t page = page_of(s, small), total = device_total ? device_total : UNKNOWN_DEVICE_TOTAL;
	return (total + total / 8 + page - 1) / page * page;
}

/* A range of addresses with one unmapped block over all of it. */
uint32_t clv_texpandable_put(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t base, uint64_t size)
{
	uint32_t e = expandable_new(m);
	if (!e)
		return 0;
	m->expandables[e] = (struct clv_texpandable){
		.base = base,
		.size = size,
		.page = page_of(&m->settings, clv_thalf_small(half)),
		.used = true,
	};
	uint32_t i = clv_tblock_new(m);
	struct clv_tblock *b = clv_tw_block(m, i);
	b->addr = base;
	b->size = size;
	b->stream = stream;
	b->half = half;
	b->expandable = e;
	b->mapped = false;
	b->in_set = true;
	m->now.segments_made++;
	if (m->settings.tie_break == CLV_TORCH_TIE_SEGMENT)
		b->order = m->now.segments_made;
	clv_tset_insert(m, &clv_tw_half(m, half)->unmapped, i);
	clv_tindex_insert(m, i);
	return i;
}

static uint32_t reserve(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t wanted)
{
	bool small = clv_thalf_small(half);
	uint64_t size = clv_torch_reservation_bytes(&m->settings, m->device_total, small);
	if (size < wanted)
		return 0; /* PyTorch would reserve, and the driver refuse to map */
	uint64_t base = m->source.reserve(m->source.ctx, size, page_of(&m->settings, small), stream);
	return base ? clv_texpandable_put(m, half, stream, base, size) : 0;
}

void clv_texpandable_drop(struct clv_torch *m, uint32_t expandable)
{
	struct clv_texpandable *e = clv_tw_expandable(m, expandable);
	e->used = false;
	e->next_free = m->now.free_expandable;
	m->now.free_expandable = expandable;
}

/* The piece [from, from + size) of the addresses of `of`, as a new block behind `after` (0: before `of`). */
static uint32_t piece(struct clv_torch *m, uint32_t of, uint64_t from, uint64_t size, bool behind)
{
	uint32_t i = clv_tblock_new(m);
	struct clv_tblock *b = clv_tw_block(m, i), *o = clv_tw_block(m, of);
	b->addr = from;
	b->size = size;
	b->stream = o->stream;
	b->half = o->half;
	b->expandable = o->expandable;
	if (m->settings.tie_break == CLV_TORCH_TIE_SEGMENT)
		b->order = o->order;
	b->prev = behind ? of : o->prev;
	b->next = behind ? o->next : of;
	if (b->prev)
		clv_tw_block(m, b->prev)->next = i;
	if (b->next)
		clv_tw_block(m, b->next)->prev = i;
	return i;
}

/* Maps pages behind the first `size` bytes of an unmapped block; what becomes of it, merged with its free neighbours, is in
 * the set of free blocks. False: the driver refused. */
static bool map_block(struct clv_torch *m, uint32_t i, uint64_t size)
{
	const struct clv_texpandable *e = &m->expandables[m->blocks[i].expandable];
	uint64_t mapped = (size + e->page - 1) / e->page * e->page;
	if (!clv_tblocks_reserve(m, 2) || !m->source.map(m->source.ctx, m->blocks[i].addr, mapped, e->page))
		return false;
	struct clv_tblock *b = clv_tw_block(m, i);
	clv_tset_erase(m, &clv_tw_half(m, b->half)->unmapped, i);
	b->in_set = false;
	b->mapped = true;
	if (mapped < b->size) {
		/* the block must be shorter before the index sees the rest: both start where no other block does */
		uint64_t rest = b->size - mapped;
		b->size = mapped;
		uint32_t r = piece(m, i, b->addr + mapped, rest, true);
		struct clv_tblock *rb = clv_tw_block(m, r);
		rb->mapped = false;
		rb->in_set = true;
		clv_tset_insert(m, &clv_tw_half(m, rb->half)->unmapped, r);
		clv_tindex_insert(m, r);
	}
	clv_tmerge(m, i, b->prev);
	clv_tmerge(m, i, b->next);
	clv_tfree_insert(m, i);
	m->now.reserved += mapped;
	clv_tstat_add(m, b->half, CLV_TORCH_RESERVED_BYTES, (int64_t)mapped);
	m->now.stats.num_device_alloc++;
	return true;
}

static bool allocatable(const struct clv_torch *m, uint32_t i)
{
	return i && !m->blocks[i].allocated && !m->blocks[i].pending;
}

static bool has_room(const struct clv_torch *m, uint32_t i, uint64_t size)
{
	uint64_t bytes = 0;
	for (; bytes < size && allocatable(m, i); i = m->blocks[i].next)
		bytes += m->blocks[i].size;
	return bytes >= size;
}

/* The lowest unmapped block of the stream that, with the free block before it and what follows, has room. */
static uint32_t find_room(const struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t size)
{
	const struct clv_tset *set = &m->halves[half].unmapped;
	uint32_t i = clv_tset_at_least(m, set, stream, 0);
	for (; i && m->blocks[i].stream == stream; i = clv_tset_next(m, set, i)) {
		uint32_t from = allocatable(m, m->blocks[i].prev) ? m->blocks[i].prev : i;
		if (has_room(m, from, size))
			return from;
	}
	return 0;
}

uint32_t clv_texpandable_alloc(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t size)
{
	if (!clv_tblocks_reserve(m, 4))
		return 0;
	uint32_t i = find_room(m, half, stream, size);
	if (!i)
		i = reserve(m, half, stream, size);
	if (!i)
		return 0;
	if (!m->blocks[i].mapped && !map_block(m, i, clv_min_u64(m->blocks[i].size, size)))
		return 0;
	while (m->blocks[i].size < size) {
		uint32_t next = m->blocks[i].next;
		if (!map_block(m, next, clv_min_u64(size - m->blocks[i].size, m->blocks[next].size)))
			return 0;
		i = next; /* has taken the free block before it in */
	}
	clv_tfree_erase(m, i);
	return i;
}

void clv_texpandable_unmap(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	const struct clv_texpandable *e = &m->expandables[b->expandable];
	uint64_t from = up_to_page(e, b->addr), to = down_to_page(e, b->addr + b->size);
	if (from >= to || !clv_tblocks_reserve(m, 3))
		return;
	b = clv_tw_block(m, i);
	uint32_t half = b->half;
	uint64_t before = from - b->addr, after = b->addr + b->size - to;
	m->source.unmap(m->source.ctx, from, to - from, e->page);
	clv_tfree_erase(m, i);
	uint64_t start = b->addr;
	b->addr = from;
	b->size = to - from;
	if (before) {
		uint32_t head = piece(m, i, start, before, false);
		clv_tindex_insert(m, head);
		clv_tfree_insert(m, head);
	}
	if (after) {
		uint32_t tail = piece(m, i, to, after, true);
		clv_tindex_insert(m, tail);
		clv_tfree_insert(m, tail);
	}
	b->mapped = false;
	clv_tmerge(m, i, b->prev);
	clv_tmerge(m, i, b->next);
	b->in_set = true;
	clv_tset_insert(m, &clv_tw_half(m, half)->unmapped, i);
	m->now.reserved -= to - from;
	clv_tstat_add(m, half, CLV_TORCH_RESERVED_BYTES, -(int64_t)(to - from));
	struct clv_tpool *pool = clv_tw_pool(m, half / 2);
	if (pool->segments)
		pool->segments--;
	m->now.stats.num_device_free++;
	if (b->prev || b->next)
		return;
	/* nothing of the segment is mapped any more */
	clv_tset_erase(m, &clv_tw_half(m, half)->unmapped, i);
	if (m->find)
		clv_tset_erase(m, &m->now.index, i);
	uint32_t x = b->expandable;
	m->source.unreserve(m->source.ctx, e->base, e->size);
	clv_texpandable_drop(m, x);
	clv_tblock_drop(m, i);
}
