/* SPDX-License-Identifier: MIT */
#include "frames.h"

#include "../host/meta.h"
#include "space.h"
#include "streams.h"

struct clv_loose {
	clv_handle handle;
	uint64_t size;
	struct clv_loose *next;
};

static void link_frame(struct clv_arena *a, struct clv_frame *f)
{
	f->next = a->frames;
	f->prev = NULL;
	if (f->next)
		f->next->prev = f;
	a->frames = f;
	a->frame_count++;
}

static void unlink_frame(struct clv_arena *a, struct clv_frame *f)
{
	if (f->prev)
		f->prev->next = f->next;
	else
		a->frames = f->next;
	if (f->next)
		f->next->prev = f->prev;
	a->frame_count--;
	clv_pool_give(&a->frame_pool, f);
}

/* Held, mapped nowhere, and the driver did not take it back. If even the record cannot be made the handle is lost, which
 * takes both a refusing driver and no host memory. */
static void keep_loose(struct clv_arena *a, clv_handle handle, uint64_t size)
{
	struct clv_loose *l = clv_meta_alloc(sizeof(*l));
	if (!l)
		return;
	*l = (struct clv_loose){handle, size, a->loose};
	a->loose = l;
	a->loose_bytes += size;
}

static void add_held(struct clv_arena *a, uint64_t size)
{
	a->held += size;
	a->held_peak = clv_max_u64(a->held_peak, a->held);
	a->room -= clv_min_u64(a->room, size);
}

static void drop_held(struct clv_arena *a, uint64_t size)
{
	a->held -= size;
	a->room += size;
}

/* On a refusal nothing is mapped; a mapping that could not be taken back closes its addresses until it can. Needs 2 spare
 * extents. */
static enum clv_result map_with_access(struct clv_arena *a, struct clv_extent *anchor, uint64_t addr, uint64_t size,
				       clv_handle handle)
{
	struct clv_driver *d = a->driver;
	enum clv_result r = d->map(d, addr, size, 0, handle);
	if (r != CLV_OK)
		return r;
	r = d->set_access(d, addr, size, a->device);
	if (r != CLV_OK && d->unmap(d, addr, size) != CLV_OK) {
		struct clv_extent *gap = clv_space_locate(a, anchor, addr);
		clv_slot_linger(a->slots[CLV_SLOT_ANY], clv_space_close_gap(a, gap, addr, size), 0);
	}
	return r;
}

bool clv_frame_complete(const struct clv_arena *a, const struct clv_frame *f)
{
	return clv_slot_passed(a, f->busy_slot, f->busy_seq);
}

enum clv_result clv_frame_buy(struct clv_arena *a, struct clv_extent *anchor, uint64_t addr, uint64_t size, uint32_t slot)
{
	struct clv_driver *d = a->driver;
	if (!clv_pool_reserve(&a->extents, 2) || !clv_pool_reserve(&a->frame_pool, 1) ||
	    !clv_pagemap_reserve(&a->pages, addr, size) || !clv_slot_ready(a->slots[slot]))
		return CLV_FAILED;
	clv_handle handle;
	enum clv_result r = d->create(d, &handle, size, a->device);
	if (r != CLV_OK)
		return r;
	r = map_with_access(a, anchor, addr, size, handle);
	if (r != CLV_OK) {
		if (d->release(d, handle) != CLV_OK) {
			keep_loose(a, handle, size);
			add_held(a, size);
		}
		return r;
	}
	add_held(a, size);
	a->created++;
	struct clv_frame *f = clv_pool_take(&a->frame_pool);
	f->addr = addr;
	f->size = size;
	f->handle = handle;
	f->whole_slot = CLV_SLOT_NONE;
	f->busy_slot = CLV_SLOT_ANY;
	link_frame(a, f);
	clv_pagemap_set_frame(&a->pages, addr, size, f);
	clv_space_add_frame(a, clv_space_locate(a, anchor, addr), f, slot);
	return CLV_OK;
}

enum clv_result clv_frame_move(struct clv_arena *a, struct clv_frame *f, struct clv_extent *anchor, uint64_t addr,
			       uint32_t slot)
{
	struct clv_driver *d = a->driver;
	uint64_t old = f->addr;
	if (!clv_pool_reserve(&a->extents, 4) || !clv_pagemap_reserve(&a->pages, addr, f->size) || !clv_slot_ready(a->slots[slot]))
		return CLV_FAILED;
	enum clv_result r = map_with_access(a, anchor, addr, f->size, f->handle);
	if (r != CLV_OK)
		return r;
	a->moved++;
	/* A mapping that the driver will not take away now is as good as one that must stay a while. */
	bool lingers = !clv_frame_complete(a, f) || d->unmap(d, old, f->size) != CLV_OK;
	clv_pagemap_set_frame(&a->pages, old, f->size, NULL);
	struct clv_extent *piece = clv_space_remove_frame(a, f, lingers ? CLV_LINGER : CLV_GAP);
	if (lingers)
		clv_slot_linger(a->slots[f->busy_slot], piece, f->busy_seq);
	f->addr = addr;
	clv_pagemap_set_frame(&a->pages, addr, f->size, f);
	clv_space_add_frame(a, clv_space_locate(a, anchor, addr), f, slot);
	return CLV_OK;
}

enum clv_result clv_frame_release(struct clv_arena *a, struct clv_frame *f)
{
	struct clv_driver *d = a->driver;
	if (!clv_pool_reserve(&a->extents, 2))
		return CLV_FAILED;
	enum clv_result r = d->unmap(d, f->addr, f->size);
	if (r != CLV_OK)
		return r;
	clv_pagemap_set_frame(&a->pages, f->addr, f->size, NULL);
	clv_space_remove_frame(a, f, CLV_GAP);
	r = d->release(d, f->handle);
	if (r == CLV_OK) {
		drop_held(a, f->size);
		a->released++;
	} else {
		keep_loose(a, f->handle, f->size);
	}
	unlink_frame(a, f);
	return r;
}

static void reap_loose(struct clv_arena *a)
{
	for (struct clv_loose **link = &a->loose, *l; (l = *link);) {
		if (a->driver->release(a->driver, l->handle) != CLV_OK) {
			link = &l->next;
			continue;
		}
		drop_held(a, l->size);
		a->loose_bytes -= l->size;
		*link = l->next;
		clv_meta_free(l);
	}
}

uint64_t clv_frames_reap(struct clv_arena *a)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < a->slot_count; i++) {
		struct clv_slot *slot = a->slots[i];
		for (struct clv_extent *e; (e = slot->lingers) && (i == CLV_SLOT_ANY || e->linger.seq <= slot->completed);) {
			if (a->driver->unmap(a->driver, e->addr, e->size) != CLV_OK)
				break;
			clv_slot_unlinger(slot);
			bytes += e->size;
			clv_space_end_linger(a, e);
		}
	}
	reap_loose(a);
	return bytes;
}

void clv_frames_close(struct clv_arena *a)
{
	struct clv_driver *d = a->driver;
	for (uint32_t i = 0; i < a->slot_count; i++)
		for (struct clv_extent *e = a->slots[i]->lingers; e; e = e->linger.next)
			d->unmap(d, e->addr, e->size);
	for (struct clv_frame *f = a->frames; f; f = f->next) {
		d->unmap(d, f->addr, f->size);
		d->release(d, f->handle);
	}
	a->frames = NULL;
	while (a->loose) {
		struct clv_loose *l = a->loose;
		a->loose = l->next;
		d->release(d, l->handle);
		clv_meta_free(l);
	}
	while (a->ranges) {
		struct clv_range *r = a->ranges;
		a->ranges = r->next;
		d->address_free(d, r->addr, r->size);
		clv_meta_free(r);
	}
}
