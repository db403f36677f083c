/* SPDX-License-Identifier: MIT */
#include "breakdown.h"

#include "arena.h"
#include "cache.h"
#include "failure.h"
#include "reserve.h"
#include "slab.h"
#include "space.h"
#include "streams.h"

#include <string.h>

/* Extents and frames both come by address, so one frame at a time is open. */
struct walk {
	const struct clv_arena *arena;
	struct clv_breakdown *sums;
	struct clv_frame *frame;
	uint64_t free; /* complete free bytes of `frame` so far */
};

static void close_frame(struct walk *w)
{
	if (w->frame && w->frame->occupied)
		w->sums->hard += w->free;
	else
		w->sums->soft += w->free;
	w->frame = NULL;
	w->free = 0;
}

static struct clv_frame *open_frame(struct walk *w, uint64_t addr)
{
	struct clv_frame *f = clv_frame_at(w->arena, addr);
	if (f == w->frame)
		return f;
	close_frame(w);
	w->frame = f;
	f->occupied = false;
	return f;
}

/* Between its first and its last frame an occupied extent leaves nothing free. */
static void occupy(struct walk *w, const struct clv_extent *e)
{
	open_frame(w, e->addr)->occupied = true;
	open_frame(w, clv_extent_end(e) - 1)->occupied = true;
}

static void add_free(struct walk *w, const struct clv_extent *e, uint64_t seq)
{
	bool pending = !clv_slot_passed(w->arena, e->slot, seq);
	for (uint64_t at = e->addr; at < clv_extent_end(e);) {
		uint64_t end = clv_min_u64(clv_frame_end(open_frame(w, at)), clv_extent_end(e));
		*(pending ? &w->sums->stream : &w->free) += end - at;
		at = end;
	}
}

/* A chunk lies within one frame. */
static void add_chunk(struct walk *w, const struct clv_extent *e)
{
	const struct clv_chunk *chunk = clv_pagemap_chunk(&w->arena->pages, e->addr);
	struct clv_frame *f = open_frame(w, e->addr);
	uint64_t live = 0, given = 0;
	for (unsigned u = 0; u < CLV_UNITS; u++) {
		const struct clv_slab *s = chunk->units[u];
		if (!s || s->first_unit != u)
			continue;
		for (unsigned i = 0; i < s->slots; i++) {
			uint64_t requested = atomic_load_explicit(&s->requested[i], memory_order_relaxed);
			live += clv_align_up(requested, CLV_GRAIN);
			given += requested ? s->slot_size : 0;
		}
	}
	w->sums->live += live;
	w->sums->internal += given - live;
	w->free += e->size - given;
	f->occupied |= given != 0;
}

static void add_extent(struct walk *w, const struct clv_extent *e)
{
	if (e->kind == CLV_HOLE) {
		add_free(w, e, e->hole.seq);
	} else if (e->kind != CLV_LIVE) {
		return; /* nothing of ours is mapped, or what is has another address */
	} else if (e->chunk) {
		add_chunk(w, e);
	} else if (e->kept) {
		add_free(w, e, e->live.seq);
	} else if (clv_extent_is_reserved(e)) {
		occupy(w, e);
		w->sums->reserved += e->size;
	} else {
		uint64_t live = clv_align_up(e->live.requested, CLV_GRAIN);
		occupy(w, e);
		w->sums->live += live;
		w->sums->internal += e->size - live;
	}
}

/* Was counted as complete when its chunk was walked. */
static void late_is_pending(void *sums, uint64_t addr, uint64_t bytes, const struct clv_arena *a)
{
	struct clv_breakdown *b = sums;
	*(clv_frame_at(a, addr)->occupied ? &b->hard : &b->soft) -= bytes;
	b->stream += bytes;
}

static void sort_held(const struct clv_arena *a, struct clv_breakdown *out)
{
	struct walk w = {.arena = a, .sums = out};
	for (const struct clv_range *r = a->ranges; r; r = r->next) {
		for (const struct clv_extent *e = r->first; e; e = e->next)
			add_extent(&w, e);
		close_frame(&w);
	}
	clv_slabs_pending(a, late_is_pending, out);
	out->soft += a->loose_bytes;
	out->held = a->held;
}

bool clv_heap_state(cleave_heap *heap, int device, struct clv_heap_state *out, cleave_reservation_stats *rows,
		    size_t room)
{
	memset(out, 0, sizeof(*out));
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	if (!a)
		return false;
	pthread_mutex_lock(&a->lock);
	sort_held(a, &out->sorted);
	clv_stats_fill(a, &out->stats);
	const struct clv_counts_sum sum = clv_caches_sum(a);
	out->device_total = a->device_total;
	out->mapped = a->held - a->loose_bytes;
	for (uint32_t i = 0; i < a->slot_count; i++)
		out->streams += i != CLV_SLOT_ANY && a->slots[i]->used;
	out->threads = sum.threads;
	out->small_allocs = sum.small_allocs;
	out->failures_refused = a->failures_refused;
	out->failure = a->failure;
	out->failed_ns = a->failed_ns;
	for (const struct clv_reservation *r = a->reserves ? a->reserves->first : NULL; r;
	     r = r->next, out->reservations++)
		if (out->reservations < room)
			rows[out->reservations] = r->stats;
	pthread_mutex_unlock(&a->lock);
	return true;
}
