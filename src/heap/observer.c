/* SPDX-License-Identifier: MIT */
#include "observer.h"

#include "reserve.h"
#include "slab.h"
#include "tell.h"

static void tell_slab(struct clv_arena *a, const struct clv_slab *s, cleave_stream stream)
{
	for (unsigned i = 0; i < s->slots; i++) {
		uint64_t requested = atomic_load_explicit(&s->requested[i], memory_order_relaxed);
		if (requested)
			CLV_TELL(a, ALLOC, stream, .addr = s->addr + (uint64_t)i * s->slot_size, .size = requested,
				 .a = s->slot_size);
	}
}

static void tell_extent(struct clv_arena *a, const struct clv_extent *e)
{
	if (e->kind != CLV_LIVE || e->kept)
		return;
	if (e->chunk) {
		const struct clv_chunk *c = clv_pagemap_chunk(&a->pages, e->addr);
		for (unsigned u = 0; u < CLV_UNITS; u++) {
			const struct clv_slab *s = c->units[u];
			if (s && s->first_unit == u)
				tell_slab(a, s, a->slots[c->slot]->stream);
		}
	} else if (clv_extent_is_reserved(e)) {
		CLV_TELL(a, RESERVE_HOLD, a->slots[e->slot]->stream, .addr = e->addr, .size = e->size, .a = e->size,
			 .text = e->live.held_for->stats.name);
	} else {
		CLV_TELL(a, ALLOC, a->slots[e->slot]->stream, .addr = e->addr, .size = e->live.requested, .a = e->size);
	}
}

void clv_observer_tell_all(struct clv_arena *a)
{
	CLV_TELL(a, DEVICE, CLEAVE_STREAM_ANY, .size = a->device_total, .a = a->limit);
	for (const struct clv_frame *f = a->frames; f; f = f->next)
		CLV_TELL(a, FRAME_CREATE, CLEAVE_STREAM_ANY, .addr = f->addr, .size = f->size, .a = f->number);
	for (const struct clv_frame *f = a->loose; f; f = f->next)
		CLV_TELL(a, FRAME_CREATE, CLEAVE_STREAM_ANY, .size = f->size, .a = f->number);
	for (uint32_t i = 0; i < a->slot_count; i++)
		for (const struct clv_extent *e = a->slots[i]->lingers; e; e = e->linger.next)
			CLV_TELL(a, FRAME_MAP, CLEAVE_STREAM_ANY, .addr = e->addr, .size = e->size,
				 .a = e->linger.frame->number);
	for (const struct clv_reservation *r = a->reserves ? a->reserves->first : NULL; r; r = r->next)
		if (r->stats.ended == CLEAVE_RESERVATION_LASTS)
			CLV_TELL(a, RESERVE, CLEAVE_STREAM_ANY, .size = r->size, .a = r->stats.count,
				 .b = r->stats.hard, .text = r->stats.name);
	for (const struct clv_range *r = a->ranges; r; r = r->next)
		for (const struct clv_extent *e = r->first; e; e = e->next)
			tell_extent(a, e);
}

void clv_heap_observe(struct cleave_heap *heap, struct clv_observer *observer)
{
	pthread_mutex_lock(&heap->lock);
	heap->observer = observer; /* of arenas that are made from here on */
	pthread_mutex_unlock(&heap->lock);
	for (int d = 0; d < heap->devices; d++) {
		struct clv_arena *a = clv_heap_used_arena(heap, d);
		if (!a)
			continue;
		pthread_mutex_lock(&a->lock);
		atomic_store_explicit(&a->observer, observer, memory_order_release);
		if (observer)
			clv_observer_tell_all(a);
		pthread_mutex_unlock(&a->lock);
	}
}

/* ---- all heaps ---- */

static struct {
	pthread_mutex_t lock;
	struct cleave_heap *first;
	struct clv_observer *observer; /* of those that are opened */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

void clv_heaps_observe(struct clv_observer *observer)
{
	pthread_mutex_lock(&all.lock);
	all.observer = observer;
	for (struct cleave_heap *h = all.first; h; h = h->next_open)
		clv_heap_observe(h, observer);
	pthread_mutex_unlock(&all.lock);
}

void clv_observer_opened(struct cleave_heap *heap)
{
	pthread_mutex_lock(&all.lock);
	heap->next_open = all.first;
	all.first = heap;
	heap->observer = all.observer;
	pthread_mutex_unlock(&all.lock);
}

void clv_observer_closes(struct cleave_heap *heap)
{
	pthread_mutex_lock(&all.lock);
	struct cleave_heap **link = &all.first;
	while (*link != heap)
		link = &(*link)->next_open;
	*link = heap->next_open;
	pthread_mutex_unlock(&all.lock);
}
