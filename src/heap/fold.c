/* SPDX-License-Identifier: MIT
 *
 * fold: one frame at many addresses, for memory whose contents nobody needs between two uses of it (heap_more.h). Guarded
 * by the arena's lock.
 *
 * A frame that is folded onto has a home: an address in a hole of the slot `shared`, which nobody allocates from. Where it
 * is mapped beside that, extents linger in the slot of the folded memory.
 */
#include "heap_more.h"

#include "arena.h"
#include "cache.h"
#include "frames.h"
#include "slab.h"
#include "space.h"
#include "streams.h"

/* The frame goes to a home of its own; its old address lingers. */
static bool settle_home(struct clv_arena *a, struct clv_frame *f, struct clv_slot *shared)
{
	struct clv_bin_node *n = clv_bin_floor(&a->gaps, UINT64_MAX);
	if (!n || n->size < f->size) {
		if (!clv_space_grow(a, f->size))
			return false;
		n = clv_bin_floor(&a->gaps, UINT64_MAX);
	}
	struct clv_extent *gap = n->owner;
	if (clv_frame_move(a, f, NULL, clv_extent_end(gap) - f->size, shared->index) != CLV_OK)
		return false;
	/* not complete before all work on it is */
	f->hole->hole.seq = f->busy_seq = ++shared->seq;
	f->busy_slot = shared->index;
	return true;
}

/* A frame of `shared` of that size, which is out of the index from here on. */
static struct clv_frame *take_shared(struct clv_slot *shared, uint64_t size)
{
	struct clv_bin_node *n = clv_bin_ceil(shared->whole, size);
	for (int i = 0; n && n->size != size && i < 64; i++)
		n = clv_bin_up(shared->whole, n, size);
	if (!n || n->size != size)
		return NULL;
	struct clv_frame *f = n->owner;
	clv_bin_remove(shared->whole, &f->whole);
	return f;
}

static void fold_slot(struct clv_arena *a, struct clv_slot *slot, struct clv_slot *shared)
{
	struct clv_frame *next;
	slot->seq++; /* of what lingers from here on */
	for (struct clv_frame *f = a->frames; f; f = next) {
		next = f->next;
		if (f->whole_slot != slot->index)
			continue;
		struct clv_frame *onto = take_shared(shared, f->size);
		if (onto)
			clv_frame_fold(a, f, onto);
		else if (settle_home(a, f, shared))
			clv_bin_remove(shared->whole, &f->whole); /* once for one call */
	}
	for (struct clv_frame *f = a->frames; f; f = f->next)
		if (f->whole_slot == shared->index && !clv_bin_indexed(&f->whole))
			clv_bin_insert(shared->whole, &f->whole, f->size, f);
}

void clv_heap_fold(cleave_heap *heap, int device, const cleave_stream *streams, unsigned count, cleave_stream shared)
{
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	clv_caches_flush(a);
	struct clv_slot *first = NULL, *to = clv_slot_get(a, shared);
	for (unsigned i = 0; i < count && to; i++) {
		struct clv_slot *slot = clv_slot_find(a, streams[i].id);
		if (slot && first)
			clv_slot_merge(a, slot, first);
		else if (slot)
			first = slot;
	}
	if (first)
		fold_slot(a, first, to);
	for (unsigned i = 0; i < count && to; i++)
		clv_slot_trim(clv_slot_find(a, streams[i].id)); /* there may be very many */
	pthread_mutex_unlock(&a->lock);
}

void clv_heap_unfold(cleave_heap *heap, int device, cleave_stream shared)
{
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	struct clv_slot *slot = clv_slot_find(a, shared.id);
	clv_frames_reap(a);
	for (struct clv_frame *f = a->frames; f && slot; f = f->next) {
		if (f->whole_slot != slot->index || f->lingers || !clv_pool_reserve(&a->extents, 2))
			continue;
		f->busy_slot = CLV_SLOT_ANY;
		f->busy_seq = 0;
		clv_space_retag_part(a, f->hole, f->addr, clv_frame_end(f), CLV_SLOT_ANY);
	}
	pthread_mutex_unlock(&a->lock);
}
