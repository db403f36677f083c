/* SPDX-License-Identifier: MIT
 *
 * What is mapped, block by block, for people who look at memory.
 */
#include "heap_more.h"

#include "arena.h"
#include "slab.h"
#include "space.h"
#include "streams.h"

#include <errno.h>

struct list {
	cleave_block *out;
	size_t room, count;
	cleave_block last; /* not written yet: the next may be one with it; bytes 0: none */
};

static void write_last(struct list *l)
{
	if (!l->last.bytes)
		return;
	if (l->count < l->room)
		l->out[l->count] = l->last;
	l->count++;
	l->last.bytes = 0;
}

/* Free memory that is side by side, and alike, is one block. */
static void add(struct list *l, const cleave_block *b)
{
	cleave_block *last = &l->last;
	if (last->bytes && b->state != CLEAVE_BLOCK_LIVE && last->state == b->state &&
	    last->stream_id == b->stream_id && last->address + last->bytes == b->address) {
		last->bytes += b->bytes;
		return;
	}
	write_last(l);
	*last = *b;
}

static void add_slab(struct list *l, const struct clv_slab *s, uint64_t stream)
{
	for (unsigned i = 0; i < s->slots; i++) {
		uint64_t requested = atomic_load_explicit(&s->requested[i], memory_order_relaxed);
		add(l, &(cleave_block){.address = s->addr + (uint64_t)i * s->slot_size,
				       .bytes = s->slot_size,
				       .requested = requested,
				       .stream_id = stream,
				       .state = requested ? CLEAVE_BLOCK_LIVE : CLEAVE_BLOCK_FREE});
	}
	uint64_t end = s->addr + (uint64_t)s->slots * s->slot_size;
	uint64_t rest = s->addr + ((uint64_t)s->units << CLV_UNIT_SHIFT) - end;
	if (rest)
		add(l, &(cleave_block){.address = end, .bytes = rest, .stream_id = stream, .state = CLEAVE_BLOCK_FREE});
}

static void add_chunk(struct list *l, const struct clv_arena *a, const struct clv_extent *e)
{
	const struct clv_chunk *c = clv_pagemap_chunk(&a->pages, e->addr);
	uint64_t stream = a->slots[c->slot]->stream.id;
	for (unsigned u = 0; u < CLV_UNITS; u++) {
		const struct clv_slab *s = c->units[u];
		if (!s && c->no_units >> u & 1)
			continue;
		if (!s)
			add(l, &(cleave_block){.address = clv_chunk_page(c) + ((uint64_t)u << CLV_UNIT_SHIFT),
					       .bytes = (uint64_t)1 << CLV_UNIT_SHIFT,
					       .stream_id = stream,
					       .state = CLEAVE_BLOCK_FREE});
		else if (s->first_unit == u)
			add_slab(l, s, stream);
	}
}

static void add_extent(struct list *l, const struct clv_arena *a, const struct clv_extent *e)
{
	if (e->kind != CLV_LIVE && e->kind != CLV_HOLE)
		return;
	if (e->kind == CLV_LIVE && e->chunk) {
		add_chunk(l, a, e);
		return;
	}
	/* what is kept, or held back, is live to space and frames alone */
	bool live = e->kind == CLV_LIVE && !e->kept && e->live.requested;
	uint64_t seq = e->kind == CLV_LIVE ? e->live.seq : e->hole.seq;
	add(l, &(cleave_block){.address = e->addr,
			       .bytes = e->size,
			       .requested = live ? e->live.requested : 0,
			       .stream_id = a->slots[e->slot]->stream.id,
			       .state = live                               ? CLEAVE_BLOCK_LIVE
					: clv_slot_passed(a, e->slot, seq) ? CLEAVE_BLOCK_FREE
									   : CLEAVE_BLOCK_PENDING});
}

/* Ranges are in no order; there are few. */
static const struct clv_range *next_range(const struct clv_arena *a, const struct clv_range *after)
{
	const struct clv_range *next = NULL;
	for (const struct clv_range *r = a->ranges; r; r = r->next)
		if ((!after || r->addr > after->addr) && (!next || r->addr < next->addr))
			next = r;
	return next;
}

/* The frames under what is mapped of a range, which come by address. */
static void add_frames(struct clv_heap_picture *p, const struct clv_arena *a, const struct clv_range *r)
{
	const struct clv_frame *last = NULL;
	for (const struct clv_extent *e = r->first; e; e = e->next) {
		if (e->kind != CLV_LIVE && e->kind != CLV_HOLE)
			continue;
		for (uint64_t at = e->addr; at < clv_extent_end(e);) {
			const struct clv_frame *f = clv_frame_at(a, at);
			if (f != last && p->frame_count < p->frame_room)
				p->frames[p->frame_count] = (struct clv_heap_frame){f->addr, f->size};
			p->frame_count += f != last;
			last = f;
			at = clv_frame_end(f);
		}
	}
}

int clv_heap_picture(cleave_heap *heap, int device, struct clv_heap_picture *out)
{
	if (device < 0 || device >= heap->devices)
		return -EINVAL;
	out->block_count = out->frame_count = 0;
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	if (!a) /* never used */
		return 0;
	struct list l = {.out = out->blocks, .room = out->block_room};
	pthread_mutex_lock(&a->lock);
	for (const struct clv_range *r = next_range(a, NULL); r; r = next_range(a, r)) {
		for (const struct clv_extent *e = r->first; e; e = e->next)
			add_extent(&l, a, e);
		if (out->frame_room)
			add_frames(out, a, r);
	}
	if (!out->frame_room)
		out->frame_count = a->frame_count;
	pthread_mutex_unlock(&a->lock);
	write_last(&l);
	out->block_count = l.count;
	return 0;
}

int cleave_heap_blocks(cleave_heap *heap, int device, cleave_block *out, size_t room, size_t *count)
{
	if (!heap || !count || (room && !out))
		return -EINVAL;
	struct clv_heap_picture p = {.blocks = out, .block_room = room};
	int answer = clv_heap_picture(heap, device, &p);
	if (!answer)
		*count = p.block_count;
	return answer;
}
