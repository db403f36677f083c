/* SPDX-License-Identifier: MIT */
#include "heap_more.h"

#include "arena.h"
#include "cache.h"
#include "frames.h"
#include "reclaim.h"
#include "slab.h"
#include "space.h"
#include "streams.h"

#include <errno.h>
#include <string.h>

void clv_heap_usage(cleave_heap *heap, int device, struct clv_heap_usage *out)
{
	memset(out, 0, sizeof(*out));
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	out->held = a->held;
	out->held_peak = a->held_peak;
	out->live = clv_caches_sum(a).live;
	out->live_peak = clv_max_u64(out->live, (uint64_t)clv_count(&a->live_peak));
	pthread_mutex_unlock(&a->lock);
}

void clv_heap_reset_peaks(cleave_heap *heap, int device, bool held, bool live)
{
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	if (held)
		a->held_peak = a->held;
	if (live)
		atomic_store_explicit(&a->live_peak, (int64_t)clv_caches_sum(a).live, memory_order_relaxed);
	pthread_mutex_unlock(&a->lock);
}

/* With the lock held: the live block around ptr; 0: none. */
static uint64_t block_around(const struct clv_arena *a, uint64_t ptr, uint64_t *size)
{
	struct clv_extent *e = clv_space_containing(a, ptr);
	uint64_t start = 0;
	*size = 0;
	if (e && e->chunk)
		clv_slab_block_at(a, ptr, &start, size);
	else if (e && !e->kept) {
		start = e->addr;
		*size = e->live.requested;
	}
	return start && ptr - start < clv_align_up(*size, CLV_GRAIN) ? start : 0;
}

int clv_heap_frames(cleave_heap *heap, cleave_ptr ptr, cleave_ptr *start, size_t *size,
		    void (*visit)(void *arg, clv_handle handle, uint64_t addr, uint64_t bytes), void *arg)
{
	for (int d = 0; d < heap->devices; d++) {
		struct clv_arena *a = clv_heap_used_arena(heap, d);
		if (!a || !clv_pagemap_leaf(&a->pages, ptr))
			continue;
		uint64_t bytes;
		pthread_mutex_lock(&a->lock);
		uint64_t block = block_around(a, ptr, &bytes);
		for (uint64_t at = block; block && at < block + bytes;) {
			const struct clv_frame *f = clv_frame_at(a, at);
			visit(arg, f->handle, f->addr, f->size);
			at = clv_frame_end(f);
		}
		pthread_mutex_unlock(&a->lock);
		if (!block)
			continue;
		if (start)
			*start = block;
		if (size)
			*size = bytes;
		return 0;
	}
	return -EINVAL;
}

void clv_heap_stream_mark(cleave_heap *heap, int device, cleave_stream stream)
{
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	struct clv_slot *slot = clv_slot_find(a, stream.id);
	if (slot)
		clv_slot_record(a, slot);
	pthread_mutex_unlock(&a->lock);
}

bool clv_heap_stream_left(cleave_heap *heap, int device, cleave_stream stream, bool first)
{
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	bool gone = true;
	if (!a)
		return true;
	pthread_mutex_lock(&a->lock);
	struct clv_slot *slot = clv_slot_find(a, stream.id);
	if (slot && first) {
		atomic_fetch_add_explicit(&a->epoch, 1, memory_order_release);
		clv_caches_flush(a);
		slot->seq++; /* slots of its slabs are freed without being counted */
	}
	if (slot) {
		clv_slot_record(a, slot);
		clv_slot_poll(a, slot);
		gone = slot->completed >= slot->seq;
	}
	if (slot && gone)
		clv_reclaim_slot(a, slot);
	pthread_mutex_unlock(&a->lock);
	return gone;
}

int clv_heap_access(cleave_heap *heap, int device)
{
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	bool good = true;
	if (!a)
		return 0;
	pthread_mutex_lock(&a->lock);
	for (const struct clv_frame *f = a->frames; f; f = f->next)
		good &= a->driver->set_access(a->driver, f->addr, f->size, device) == CLV_OK;
	for (uint32_t i = 0; i < a->slot_count; i++) /* and where they are mapped beside that */
		for (const struct clv_extent *e = a->slots[i]->lingers; e; e = e->linger.next)
			good &= a->driver->set_access(a->driver, e->addr, e->size, device) == CLV_OK;
	pthread_mutex_unlock(&a->lock);
	return good ? 0 : -EIO;
}

int clv_heap_trim(cleave_heap *heap, int device, uint64_t keep, bool wait, uint64_t *released)
{
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	uint64_t bytes = 0;
	if (a) {
		pthread_mutex_lock(&a->lock);
		clv_caches_flush(a);
		bytes = clv_reclaim_trim(a, keep, wait);
		pthread_mutex_unlock(&a->lock);
	}
	if (released)
		*released = bytes;
	return a ? 0 : -EINVAL;
}
