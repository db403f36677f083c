/* SPDX-License-Identifier: MIT
 *
 * The public functions of the heap. A small request takes a slot of a slab from the calling thread's cache; everything
 * else takes the lock of the device's arena, and there a block that was kept for it, or a hole.
 */
#include "cache.h"
#include "failure.h"
#include "frames.h"
#include "heap_more.h"
#include "passing.h"
#include "place.h"
#include "recent.h"
#include "reclaim.h"
#include "reserve.h"
#include "slab.h"
#include "space.h"
#include "streams.h"
#include "tell.h"

#include "../host/meta.h"

#include <errno.h>
#include <stdio.h>

#define FRESH_SPACING (8 * CLV_GIB) /* room that a fresh placement leaves for its neighbour to grow */
#define SIZE_LIMIT ((uint64_t)1 << 48)

/* ---- open and close ---- */

static void close_arena(struct clv_arena *a)
{
	for (uint32_t i = 1; i < a->slot_count; i++) /* what was freed may be in use; what is live is the caller's affair */
		if (a->slots[i]->used)
			clv_slot_drain(a, a->slots[i]);
	clv_frames_close(a);
	clv_reserve_close(a);
	clv_slabs_fini(a);
	clv_streams_fini(a);
	clv_pool_fini(&a->extents);
	clv_pool_fini(&a->frame_pool);
	clv_pagemap_fini(&a->pages);
	clv_meta_free(a->blocks);
	pthread_mutex_destroy(&a->lock);
	clv_meta_free(a);
}

static struct clv_arena *open_arena(struct cleave_heap *heap, int device, int *why)
{
	struct clv_device_info info;
	*why = -ENODEV;
	if (heap->driver->device_info(heap->driver, device, &info) != CLV_OK || !info.vmm || !info.granularity ||
	    CLV_PAGE % info.granularity)
		return NULL;
	struct clv_arena *a = clv_meta_zalloc(sizeof(*a));
	*why = -ENOSPC;
	if (!a)
		return NULL;
	pthread_mutex_init(&a->lock, NULL);
	a->heap = heap;
	a->driver = heap->driver;
	a->device = device;
	atomic_init(&a->observer, heap->observer);
	a->granularity = CLV_PAGE;
	a->device_total = info.total;
	a->limit = heap->settings.limit;
	a->headroom = heap->settings.headroom;
	a->spacing = FRESH_SPACING;
	clv_pool_init(&a->extents, sizeof(struct clv_extent));
	clv_pool_init(&a->frame_pool, sizeof(struct clv_frame));
	clv_slabs_init(a);
	if (!clv_pagemap_init(&a->pages) || !clv_streams_init(a) || !clv_space_reserve_block(a)) {
		close_arena(a);
		return NULL;
	}
	a->room = info.total;
	clv_reclaim_refresh(a);
	clv_reserve_open(a);
	clv_observer_tell_all(a);
	return a;
}

/* The arena of a device, made at its first use; NULL with *why. */
static struct clv_arena *arena_of(struct cleave_heap *heap, int device, int *why)
{
	if (CLV_UNLIKELY(device < 0 || device >= heap->devices)) {
		*why = -EINVAL;
		return NULL;
	}
	struct clv_arena *a = atomic_load_explicit(&heap->arenas[device], memory_order_acquire);
	if (CLV_LIKELY(a != NULL))
		return a;
	pthread_mutex_lock(&heap->lock);
	a = atomic_load_explicit(&heap->arenas[device], memory_order_relaxed);
	if (!a) {
		a = open_arena(heap, device, why);
		atomic_store_explicit(&heap->arenas[device], a, memory_order_release);
	}
	pthread_mutex_unlock(&heap->lock);
	return a;
}

struct clv_arena *clv_heap_arena(struct cleave_heap *heap, int device, int *why)
{
	return arena_of(heap, device, why);
}

int clv_heap_open(cleave_heap **out, cleave_driver *driver, const struct clv_settings *settings)
{
	*out = NULL;
	struct cleave_heap *heap = clv_meta_zalloc(sizeof(*heap));
	if (!heap)
		return -ENOSPC;
	heap->arenas = clv_meta_zalloc((size_t)driver->devices * sizeof(heap->arenas[0]));
	if (!heap->arenas) {
		clv_meta_free(heap);
		return -ENOSPC;
	}
	heap->driver = driver;
	heap->settings = *settings;
	heap->devices = driver->devices;
	pthread_mutex_init(&heap->lock, NULL);
	clv_caches_open(heap);
	clv_observer_opened(heap);
	*out = heap;
	return 0;
}

int cleave_heap_open(cleave_heap **out, cleave_driver *driver, const char *settings, char *why, size_t why_len)
{
	if (!out || !driver || driver->devices <= 0)
		return -EINVAL;
	*out = NULL;
	struct clv_settings parsed;
	struct clv_error err = {""};
	if (!clv_settings_parse(&parsed, settings, &err)) {
		if (why)
			snprintf(why, why_len, "%s", err.text);
		return -EINVAL;
	}
	return clv_heap_open(out, driver, &parsed);
}

void cleave_heap_close(cleave_heap *heap)
{
	if (!heap)
		return;
	clv_observer_closes(heap);
	clv_caches_close(heap);
	for (int d = 0; d < heap->devices; d++)
		if (heap->arenas[d])
			close_arena(heap->arenas[d]);
	pthread_mutex_destroy(&heap->lock);
	clv_meta_free(heap->arenas);
	clv_meta_free(heap);
}

/* ---- allocate ---- */

static void note_peak(struct clv_arena *a, int64_t live)
{
	int64_t peak = clv_count(&a->live_peak);
	while (live > peak &&
	       !atomic_compare_exchange_weak_explicit(&a->live_peak, &peak, live, memory_order_relaxed, memory_order_relaxed))
		;
}

/* With the arena's lock held. */
static void count_large(struct clv_arena *a, int64_t bytes)
{
	int64_t live = clv_count_share(&a->counts.live, bytes);
	if (bytes < 0) {
		a->large_frees++;
		return;
	}
	a->large_allocs++;
	if (live + CLV_COUNTS_OWN_MAX <= clv_count(&a->live_peak))
		return; /* no peak, whatever the thread has not handed in */
	const struct clv_counts *own = clv_cache_counts(a);
	note_peak(a, live + (own ? clv_count(&own->live) : 0));
}

/* A block of a slab, in the thread's own counts; if it has none in the arena's, with the lock held. */
static void count_small(struct clv_arena *a, struct clv_counts *own, int64_t bytes, int64_t rounding, int allocs, int frees)
{
	struct clv_counts *c = own ? own : &a->counts;
	int64_t live;
	if (!own) {
		live = clv_count_share(&c->live, bytes);
	} else {
		int64_t mine = clv_count(&c->live) + bytes;
		if (CLV_UNLIKELY(mine > CLV_COUNTS_OWN_MAX || mine < -CLV_COUNTS_OWN_MAX)) {
			clv_count_share(&a->counts.live, mine);
			mine = 0;
		}
		atomic_store_explicit(&c->live, mine, memory_order_relaxed);
		live = clv_count(&a->counts.live) + mine;
	}
	if (rounding)
		clv_count_add(&c->rounding, rounding);
	if (allocs)
		clv_count_add(&c->allocs, allocs);
	if (frees)
		clv_count_add(&c->frees, frees);
	if (bytes > 0)
		note_peak(a, live);
}

/* What a slot of a reserved class has beyond the request. With the arena's lock held. */
static void count_rounding(struct clv_arena *a, int64_t bytes)
{
	if (CLV_UNLIKELY(bytes))
		clv_count_add(&a->counts.rounding, bytes);
}

static void check_now(struct clv_arena *a)
{
#ifdef CLV_CHECK_INVARIANTS
	struct clv_error err = {""};
	if (!clv_arena_check(a, &err))
		clv_failure_broken(a, err.text);
#else
	(void)a;
#endif
}

static int alloc_large(struct clv_arena *a, cleave_stream stream, uint64_t size, uint64_t align, cleave_ptr *out)
{
	int why = -ENOSPC;
	pthread_mutex_lock(&a->lock);
	struct clv_slot *slot = clv_slot_get(a, stream);
	struct clv_request rq = {.size = clv_align_up(size, CLV_GRAIN), .align = align, .slot = slot};
	struct clv_extent *e = NULL;
	a->asked = size;
	if (slot && clv_reserve_concerns(a, rq.size))
		e = clv_reserve_serve(a, &rq);
	if (slot && !e && align == CLV_GRAIN) /* as blocks that are kept are aligned */
		e = clv_recent_take(a, slot, rq.size);
	if (slot && !e)
		e = clv_reclaim_alloc(a, &rq, &why);
	if (e) {
		e->live.requested = size;
		e->live.born = a->large_allocs;
		count_large(a, (int64_t)rq.size);
		count_rounding(a, (int64_t)(e->size - rq.size));
		*out = e->addr;
		why = 0;
		CLV_TELL(a, ALLOC, stream, .addr = e->addr, .size = size, .a = e->size);
	} else {
		clv_failure_note(a, size, stream);
	}
	a->asked = 0;
	check_now(a);
	pthread_mutex_unlock(&a->lock);
	return why;
}

/* A slot that is ours becomes a live block. `own` as in count_small(). */
static cleave_ptr hand_out(struct clv_arena *a, struct clv_counts *own, const struct clv_piece *p, uint64_t size)
{
	uint64_t bytes = clv_align_up(size, CLV_GRAIN);
	clv_slab_set_live(p->slab, p->number, size);
	count_small(a, own, (int64_t)bytes, (int64_t)(p->slab->slot_size - bytes), 1, 0);
	return p->addr;
}

static void tell_small(struct clv_arena *a, const struct clv_piece *p, cleave_stream stream, uint64_t size)
{
	CLV_TELL(a, ALLOC, stream, .addr = p->addr, .size = size, .a = p->slab->slot_size);
}

/* The end of the fast path, where somebody is told: apart, so that it costs the others no registers. */
static CLV_APART int hand_out_told(struct clv_arena *a, struct clv_counts *own, struct clv_piece piece, cleave_stream stream,
				   uint64_t size, cleave_ptr *out)
{
	*out = hand_out(a, own, &piece, size);
	tell_small(a, &piece, stream, size);
	return 0;
}

static bool alloc_small_locked(struct clv_arena *a, cleave_stream stream, uint64_t size, unsigned cls, cleave_ptr *out)
{
	struct clv_piece slots[1 + CLV_CACHE_SLOTS];
	int why = -ENOSPC;
	clv_cache_prepare(a->heap);
	pthread_mutex_lock(&a->lock);
	struct clv_slot *slot = clv_slot_get(a, stream);
	unsigned got = 0;
	a->asked = size;
	if (slot) {
		struct clv_cache_stream *cache = clv_cache_make_if_new(a, slot);
		struct clv_cache_bin *bin = cache ? &cache->bins[cls] : NULL;
		if (!slot->slabs || !slot->slabs->partial[cls])
			clv_slabs_reap(a);
		got = clv_slab_take(a, slot, cls, 1 + (bin ? bin->room / 2 : 0), slots, &why);
		for (unsigned i = 1; i < got; i++)
			clv_cache_push(bin, &slots[i]);
	}
	if (got) {
		*out = hand_out(a, clv_cache_counts(a), &slots[0], size);
		tell_small(a, &slots[0], stream, size);
	}
	a->asked = 0;
	check_now(a);
	pthread_mutex_unlock(&a->lock);
	return got != 0;
}

static int refuse(struct clv_arena *a, cleave_stream stream, size_t size)
{
	pthread_mutex_lock(&a->lock);
	clv_failure_note(a, size, stream);
	pthread_mutex_unlock(&a->lock);
	return -ENOMEM;
}

int clv_heap_alloc(cleave_heap *heap, int device, cleave_stream stream, size_t size, size_t align, cleave_ptr *out)
{
	if (align <= CLV_GRAIN)
		return cleave_alloc(heap, device, stream, size, out);
	*out = 0;
	int why = 0;
	struct clv_arena *a = arena_of(heap, device, &why);
	if (!a || size == 0)
		return a ? 0 : why;
	return size > SIZE_LIMIT ? refuse(a, stream, size) : alloc_large(a, stream, size, align, out);
}

int cleave_alloc(cleave_heap *heap, int device, cleave_stream stream, size_t size, cleave_ptr *out)
{
	if (CLV_UNLIKELY(!heap || !out))
		return -EINVAL;
	*out = 0;
	int why = 0;
	struct clv_arena *a = arena_of(heap, device, &why);
	if (!a || size == 0)
		return a ? 0 : why;
	if (CLV_UNLIKELY(size > SIZE_LIMIT))
		return refuse(a, stream, size);
	if (size > CLV_SMALL_MAX)
		return alloc_large(a, stream, size, CLV_GRAIN, out);
	unsigned cls = clv_class_of(size);
	struct clv_cache_stream *cache = clv_cache_find(a, stream.id);
	struct clv_piece piece;
	if (CLV_UNLIKELY(!cache || !clv_cache_pop(&cache->bins[cls], &piece))) {
		if (alloc_small_locked(a, stream, size, cls, out))
			return 0;
		/* no 2 MiB for a chunk without waiting, but perhaps a hole beside other blocks */
		return alloc_large(a, stream, size, CLV_GRAIN, out);
	}
	if (CLV_UNLIKELY(clv_observer_of(a) != NULL))
		return hand_out_told(a, cache->counts, piece, stream, size, out);
	*out = hand_out(a, cache->counts, &piece, size);
	return 0;
}

/* ---- free ---- */

/* There is no host memory to remember by what must be waited for: wait at once. */
static bool wait_instead(struct clv_arena *a, cleave_stream stream)
{
	a->host_waits++;
	CLV_TELL(a, WAIT, CLEAVE_STREAM_ANY, .a = 1, .other = stream);
	return a->driver->stream_synchronize(a->driver, stream) == CLV_OK;
}

static void tell_freed(struct clv_arena *a, uint64_t addr, uint64_t requested, cleave_stream stream, cleave_stream allocated_on)
{
	CLV_TELL(a, FREE, stream, .addr = addr, .size = requested, .other = allocated_on);
}

static bool give_back_locked(struct clv_arena *a, const struct clv_piece *p, cleave_stream stream, uint64_t requested)
{
	struct clv_slab *slab = p->slab;
	bool given = true;
	clv_cache_prepare(a->heap);
	pthread_mutex_lock(&a->lock);
	struct clv_slot *slot = clv_slot_get(a, stream);
	cleave_stream allocated_on = a->slots[slab->chunk->slot]->stream;
	bool late = !slot || (slot->index != slab->chunk->slot && slot->index != CLV_SLOT_ANY);
	if (late && slot && clv_slab_give_late(a, p->addr, slot)) {
		tell_freed(a, p->addr, requested, stream, allocated_on);
	} else if (late) {
		given = wait_instead(a, stream);
		if (given) {
			tell_freed(a, p->addr, requested, stream, allocated_on);
			clv_slab_give(a, p->addr);
		}
	} else {
		tell_freed(a, p->addr, requested, stream, allocated_on);
		struct clv_cache_stream *cache = slot->index == slab->chunk->slot ? clv_cache_make_if_new(a, slot) : NULL;
		struct clv_cache_bin *bin = cache ? &cache->bins[slab->cls] : NULL;
		/* a full cache gives half of its slots back with this one */
		for (unsigned n = bin && bin->count == bin->room ? bin->room / 2 : 0; n; n--) {
			struct clv_piece old;
			if (clv_cache_pop(bin, &old))
				clv_slab_give(a, old.addr);
		}
		if (!bin || !clv_cache_push(bin, p))
			clv_slab_give(a, p->addr);
	}
	check_now(a);
	pthread_mutex_unlock(&a->lock);
	return given;
}

static void count_freed(struct clv_arena *a, struct clv_counts *own, int64_t bytes, int64_t rounding, int frees)
{
	if (!own)
		pthread_mutex_lock(&a->lock);
	count_small(a, own, -bytes, -rounding, 0, frees);
	if (!own)
		pthread_mutex_unlock(&a->lock);
}

/* As hand_out_told(). Told before the slot is in the cache, from where others may take it. */
static CLV_APART int keep_told(struct clv_arena *a, struct clv_cache_stream *cache, struct clv_piece piece, cleave_stream stream,
			       uint64_t requested)
{
	tell_freed(a, piece.addr, requested, stream, stream);
	clv_cache_push(&cache->bins[piece.slab->cls], &piece);
	return 0;
}

static int free_small(struct clv_arena *a, const struct clv_piece *p, cleave_stream stream)
{
	uint64_t requested = clv_slab_end_live(p->slab, p->number);
	if (!requested)
		return -EINVAL;
	int64_t bytes = (int64_t)clv_align_up(requested, CLV_GRAIN), rounding = (int64_t)p->slab->slot_size - bytes;
	struct clv_cache_stream *cache = clv_cache_find(a, stream.id);
	/* counted before another thread can take the slot */
	count_freed(a, cache ? cache->counts : clv_cache_counts(a), bytes, rounding, 1);
	if (cache && cache->slot == p->slab->chunk->slot && clv_cache_has_room(&cache->bins[p->slab->cls])) {
		if (CLV_UNLIKELY(clv_observer_of(a) != NULL))
			return keep_told(a, cache, *p, stream, requested);
		clv_cache_push(&cache->bins[p->slab->cls], p);
		return 0;
	}
	if (give_back_locked(a, p, stream, requested))
		return 0;
	clv_slab_set_live(p->slab, p->number, requested);
	count_freed(a, clv_cache_counts(a), -bytes, -rounding, -1);
	return -EIO;
}

/* A block that nobody holds back is free in the order of the slot; `earlier`: since the point from which it was used. */
static void let_go(struct clv_arena *a, struct clv_extent *e, struct clv_slot *slot, bool earlier)
{
	if (earlier)
		clv_space_free(a, e, slot->index, e->live.seq);
	else if (!clv_recent_keep(a, e, slot))
		clv_space_free(a, e, slot->index, clv_slot_freed(a, slot, e->size, e->slot != slot->index));
}

static int free_large(struct clv_arena *a, cleave_ptr ptr, cleave_stream stream)
{
	pthread_mutex_lock(&a->lock);
	struct clv_extent *e = clv_space_lookup(a, ptr);
	if (!e || e->chunk || e->kept || clv_extent_is_reserved(e)) {
		pthread_mutex_unlock(&a->lock);
		return -EINVAL;
	}
	struct clv_slot *slot = clv_slot_get(a, stream);
	if (!slot) {
		if (!wait_instead(a, stream)) {
			pthread_mutex_unlock(&a->lock);
			return -EIO;
		}
		slot = a->slots[CLV_SLOT_ANY];
	}
	/* No work uses a block that is freed on ANY, as the caller promises; but what had the memory before it may not be done. */
	struct clv_slot *before = a->slots[e->slot];
	bool pending = !clv_slot_passed(a, e->slot, e->live.seq);
	bool earlier = slot->index == CLV_SLOT_ANY && pending;
	/* And what may be touched by work without end outside of a slot that is apart never gets into its order. */
	if (earlier || (slot->apart && before->lasting && !before->apart && pending))
		slot = before;
	if (!clv_slot_ready(slot)) {
		pthread_mutex_unlock(&a->lock);
		return -EIO;
	}
	uint64_t bytes = clv_align_up(e->live.requested, CLV_GRAIN);
	count_large(a, -(int64_t)bytes);
	count_rounding(a, -(int64_t)(e->size - bytes));
	tell_freed(a, e->addr, e->live.requested, stream, before->stream);
	clv_passing_freed(a, e);
	if (!clv_reserve_concerns(a, e->size) || !clv_reserve_keep(a, e, slot, earlier))
		let_go(a, e, slot, earlier);
	check_now(a);
	pthread_mutex_unlock(&a->lock);
	return 0;
}

int cleave_free(cleave_heap *heap, cleave_ptr ptr, cleave_stream stream)
{
	if (!heap)
		return -EINVAL;
	if (!ptr)
		return 0;
	for (int d = 0; d < heap->devices; d++) {
		struct clv_arena *a = clv_heap_used_arena(heap, d);
		if (!a || !clv_pagemap_leaf(&a->pages, ptr)) /* never had memory near this address */
			continue;
		struct clv_piece p = {.addr = ptr};
		p.slab = clv_slab_find(a, ptr, &p.number);
		if (p.slab)
			return free_small(a, &p, stream);
		int r = free_large(a, ptr, stream);
		if (r != -EINVAL)
			return r;
	}
	return -EINVAL;
}

/* ---- the rest ---- */

int cleave_block_info(cleave_heap *heap, cleave_ptr ptr, cleave_ptr *start, size_t *size, int *device)
{
	if (!heap)
		return -EINVAL;
	for (int d = 0; d < heap->devices; d++) {
		struct clv_arena *a = clv_heap_used_arena(heap, d);
		if (!a)
			continue;
		uint64_t addr = 0, bytes = 0;
		pthread_mutex_lock(&a->lock);
		struct clv_extent *e = clv_space_containing(a, ptr);
		if (e && !e->chunk && !e->kept) {
			addr = e->addr;
			bytes = e->live.requested;
		} else if (e && e->chunk) {
			clv_slab_block_at(a, ptr, &addr, &bytes);
		}
		pthread_mutex_unlock(&a->lock);
		if (!addr || ptr - addr >= clv_align_up(bytes, CLV_GRAIN))
			continue;
		if (start)
			*start = addr;
		if (size)
			*size = bytes;
		if (device)
			*device = d;
		return 0;
	}
	return -EINVAL;
}

int cleave_stream_destroyed(cleave_heap *heap, int device, cleave_stream stream)
{
	int why = 0;
	struct clv_arena *a = heap ? arena_of(heap, device, &why) : NULL;
	if (!a || stream.id == CLEAVE_STREAM_ANY.id)
		return a ? -EINVAL : why ? why : -EINVAL;
	pthread_mutex_lock(&a->lock);
	struct clv_slot *slot = clv_slot_find(a, stream.id);
	bool drained = true;
	if (slot) {
		atomic_fetch_add_explicit(&a->epoch, 1, memory_order_release);
		clv_caches_flush(a); /* may free chunks, which counts */
		if (!clv_slot_end(a, slot)) {
			drained = clv_slot_drain(a, slot);
			if (drained)
				clv_reclaim_slot(a, slot);
		}
	}
	clv_reclaim_ended(a);
	check_now(a);
	pthread_mutex_unlock(&a->lock);
	return drained ? 0 : -EIO;
}

int cleave_heap_set_limit(cleave_heap *heap, int device, uint64_t bytes)
{
	int why = -EINVAL;
	struct clv_arena *a = heap ? arena_of(heap, device, &why) : NULL;
	if (!a)
		return why;
	pthread_mutex_lock(&a->lock);
	a->limit = bytes;
	if (bytes && a->held > bytes) {
		clv_caches_flush(a);
		clv_reclaim_trim(a, bytes, true);
	}
	pthread_mutex_unlock(&a->lock);
	return 0;
}

int cleave_heap_set_headroom(cleave_heap *heap, int device, uint64_t bytes)
{
	int why = -EINVAL;
	struct clv_arena *a = heap ? arena_of(heap, device, &why) : NULL;
	if (!a)
		return why;
	pthread_mutex_lock(&a->lock);
	a->headroom = bytes;
	pthread_mutex_unlock(&a->lock);
	return 0;
}

int cleave_heap_trim(cleave_heap *heap, int device, uint64_t keep, uint64_t *released)
{
	int why = -EINVAL;
	struct clv_arena *a = heap ? arena_of(heap, device, &why) : NULL;
	if (!a)
		return why;
	pthread_mutex_lock(&a->lock);
	clv_caches_flush(a);
	uint64_t bytes = clv_reclaim_trim(a, keep, true);
	check_now(a);
	pthread_mutex_unlock(&a->lock);
	if (released)
		*released = bytes;
	return 0;
}

int cleave_heap_get_stats(cleave_heap *heap, int device, cleave_heap_stats *out)
{
	int why = -EINVAL;
	struct clv_arena *a = heap && out ? arena_of(heap, device, &why) : NULL;
	if (!a)
		return why;
	pthread_mutex_lock(&a->lock);
	clv_stats_fill(a, out);
	pthread_mutex_unlock(&a->lock);
	return 0;
}

int cleave_heap_last_failure(cleave_heap *heap, int device, cleave_failure *out)
{
	int why = -EINVAL;
	struct clv_arena *a = heap && out ? arena_of(heap, device, &why) : NULL;
	if (!a)
		return why;
	pthread_mutex_lock(&a->lock);
	*out = a->failure;
	pthread_mutex_unlock(&a->lock);
	return out->number ? 0 : -ENOENT;
}

int cleave_heap_check(cleave_heap *heap, char *why, size_t why_len)
{
	if (!heap)
		return -EINVAL;
	struct clv_error err = {""};
	for (int d = 0; d < heap->devices; d++) {
		struct clv_arena *a = clv_heap_used_arena(heap, d);
		if (!a)
			continue;
		pthread_mutex_lock(&a->lock);
		bool good = clv_arena_check(a, &err);
		if (good && a->failure_broken[0])
			good = clv_error_set(&err, "%s", a->failure_broken);
		pthread_mutex_unlock(&a->lock);
		if (!good) {
			if (why)
				snprintf(why, why_len, "%s", err.text);
			return -EINVAL;
		}
	}
	return 0;
}
