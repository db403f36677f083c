/* SPDX-License-Identifier: MIT */
#include "frames.h"

#include "../host/meta.h"
#include "space.h"
#include "streams.h"
#include "tell.h"

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
	if (f->coarse)
		a->coarse -= f->size;
}

/* Held, and in no list of frames. */
static void keep_loose(struct clv_arena *a, struct clv_frame *f)
{
	f->next = a->loose;
	a->loose = f;
	a->loose_bytes += f->size;
}

/* The driver cannot unmap the piece's pages yet. */
static void linger(struct clv_arena *a, struct clv_frame *f, struct clv_extent *piece, uint32_t slot, uint64_t seq)
{
	piece->linger.frame = f;
	f->lingers++;
	clv_slot_linger(a->slots[slot], piece, seq);
}

/* The frame is mapped at `addr` from now on: moved there from `from`, or (0) beside where it is. */
static void tell_mapped(struct clv_arena *a, const struct clv_frame *f, uint64_t addr, uint64_t from)
{
	CLV_TELL(a, FRAME_MAP, CLEAVE_STREAM_ANY, .addr = addr, .size = f->size, .a = f->number, .b = from);
}

static void tell_unmapped(struct clv_arena *a, const struct clv_frame *f, uint64_t addr)
{
	CLV_TELL(a, FRAME_UNMAP, CLEAVE_STREAM_ANY, .addr = addr, .size = f->size, .a = f->number);
}

static void tell_released(struct clv_arena *a, const struct clv_frame *f)
{
	CLV_TELL(a, FRAME_RELEASE, CLEAVE_STREAM_ANY, .addr = f->addr, .size = f->size, .a = f->number);
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
static enum clv_result map_with_access(struct clv_arena *a, struct clv_extent *anchor, uint64_t addr, struct clv_frame *f)
{
	struct clv_driver *d = a->driver;
	enum clv_result r = d->map(d, addr, f->size, 0, f->handle);
	if (r != CLV_OK)
		return r;
	r = d->set_access(d, addr, f->size, a->device);
	if (r != CLV_OK && d->unmap(d, addr, f->size) != CLV_OK)
		linger(a, f, clv_space_close_gap(a, clv_space_locate(a, anchor, addr), addr, f->size), CLV_SLOT_ANY, 0);
	return r;
}

bool clv_frame_complete(const struct clv_arena *a, const struct clv_frame *f)
{
	return !f->lingers && clv_slot_passed(a, f->busy_slot, f->busy_seq);
}

/* Back to the driver; what it does not take, or what is still mapped, is kept. */
static enum clv_result give_back(struct clv_arena *a, struct clv_frame *f)
{
	enum clv_result r = f->lingers ? CLV_NOT_READY : a->driver->release(a->driver, f->handle);
	if (r != CLV_OK) {
		keep_loose(a, f);
		return r;
	}
	tell_released(a, f);
	drop_held(a, f->size);
	clv_pool_give(&a->frame_pool, f);
	return CLV_OK;
}

enum clv_result clv_frame_buy(struct clv_arena *a, struct clv_extent *anchor, uint64_t addr, uint64_t size, uint32_t slot)
{
	struct clv_driver *d = a->driver;
	if (!clv_pool_reserve(&a->extents, 2) || !clv_pool_reserve(&a->frame_pool, 1) ||
	    !clv_pagemap_reserve(&a->pages, addr, size) || !clv_slot_ready(a->slots[slot])) {
		a->host_out = true;
		return CLV_FAILED;
	}
	clv_handle handle;
	enum clv_result r = d->create(d, &handle, size, a->device);
	if (r != CLV_OK)
		return r;
	struct clv_frame *f = clv_pool_take(&a->frame_pool);
	f->size = size;
	f->number = ++a->last_frame;
	f->handle = handle;
	f->whole_slot = CLV_SLOT_NONE;
	f->busy_slot = CLV_SLOT_ANY;
	add_held(a, size);
	r = map_with_access(a, anchor, addr, f);
	f->addr = r == CLV_OK ? addr : 0;
	CLV_TELL(a, FRAME_CREATE, CLEAVE_STREAM_ANY, .addr = f->addr, .size = size, .a = f->number);
	if (r != CLV_OK) {
		if (f->lingers)
			tell_mapped(a, f, addr, 0);
		give_back(a, f);
		return r;
	}
	a->created++;
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
	uint32_t before = f->lingers;
	if (!clv_pool_reserve(&a->extents, 4) || !clv_pagemap_reserve(&a->pages, addr, f->size) || !clv_slot_ready(a->slots[slot])) {
		a->host_out = true;
		return CLV_FAILED;
	}
	enum clv_result r = map_with_access(a, anchor, addr, f);
	if (r != CLV_OK) {
		if (f->lingers != before)
			tell_mapped(a, f, addr, 0);
		return r;
	}
	a->moved++;
	tell_mapped(a, f, addr, old);
	/* A mapping that the driver will not take away now is as good as one that must stay a while. */
	bool lingers = !clv_slot_passed(a, f->busy_slot, f->busy_seq) || d->unmap(d, old, f->size) != CLV_OK;
	clv_pagemap_set_frame(&a->pages, old, f->size, NULL);
	struct clv_extent *piece = clv_space_remove_frame(a, f, lingers ? CLV_LINGER : CLV_GAP);
	if (lingers)
		linger(a, f, piece, f->busy_slot, f->busy_seq);
	else
		tell_unmapped(a, f, old);
	f->addr = addr;
	clv_pagemap_set_frame(&a->pages, addr, f->size, f);
	clv_space_add_frame(a, clv_space_locate(a, anchor, addr), f, slot);
	return CLV_OK;
}

enum clv_result clv_frame_fold(struct clv_arena *a, struct clv_frame *f, struct clv_frame *onto)
{
	struct clv_driver *d = a->driver;
	struct clv_slot *slot = a->slots[f->whole_slot];
	uint64_t addr = f->addr;
	if (!clv_pool_reserve(&a->extents, 2)) {
		a->host_out = true;
		return CLV_FAILED;
	}
	enum clv_result r = d->unmap(d, addr, f->size);
	if (r != CLV_OK)
		return r;
	r = d->map(d, addr, f->size, 0, onto->handle);
	if (r == CLV_OK) {
		r = d->set_access(d, addr, f->size, a->device);
		if (r != CLV_OK && d->unmap(d, addr, f->size) != CLV_OK)
			return r; /* neither the one nor the other: the addresses stay as they are, out of reach */
	}
	if (r != CLV_OK) {
		if (d->map(d, addr, f->size, 0, f->handle) == CLV_OK)
			d->set_access(d, addr, f->size, a->device);
		return r;
	}
	clv_pagemap_set_frame(&a->pages, addr, f->size, NULL);
	tell_unmapped(a, f, addr);
	tell_mapped(a, onto, addr, 0);
	linger(a, onto, clv_space_remove_frame(a, f, CLV_LINGER), slot->index, slot->seq);
	unlink_frame(a, f);
	a->released += give_back(a, f) == CLV_OK;
	return CLV_OK;
}

enum clv_result clv_frame_release(struct clv_arena *a, struct clv_frame *f)
{
	struct clv_driver *d = a->driver;
	if (!clv_pool_reserve(&a->extents, 2)) {
		a->host_out = true;
		return CLV_FAILED;
	}
	enum clv_result r = d->unmap(d, f->addr, f->size);
	if (r != CLV_OK)
		return r;
	clv_pagemap_set_frame(&a->pages, f->addr, f->size, NULL);
	tell_unmapped(a, f, f->addr);
	clv_space_remove_frame(a, f, CLV_GAP);
	unlink_frame(a, f);
	r = give_back(a, f);
	a->released += r == CLV_OK;
	return r;
}

uint64_t clv_frames_reap(struct clv_arena *a)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < a->slot_count; i++) {
		struct clv_extent **link = &a->slots[i]->lingers, *e;
		if (a->slots[i]->apart)
			continue;
		while ((e = *link)) {
			if (!clv_slot_passed(a, i, e->linger.seq) || a->driver->unmap(a->driver, e->addr, e->size) != CLV_OK) {
				link = &e->linger.next;
				continue;
			}
			clv_slot_unlinger(a->slots[i], link);
			e->linger.frame->lingers--;
			tell_unmapped(a, e->linger.frame, e->addr);
			bytes += e->size;
			clv_space_end_linger(a, e);
		}
	}
	struct clv_frame *loose = a->loose;
	a->loose = NULL;
	a->loose_bytes = 0;
	while (loose) {
		struct clv_frame *f = loose;
		loose = f->next;
		give_back(a, f);
	}
	return bytes;
}

void clv_frames_close(struct clv_arena *a)
{
	struct clv_driver *d = a->driver;
	for (uint32_t i = 0; i < a->slot_count; i++)
		for (struct clv_extent *e = a->slots[i]->lingers; e; e = e->linger.next) {
			d->unmap(d, e->addr, e->size);
			tell_unmapped(a, e->linger.frame, e->addr);
		}
	for (struct clv_frame *f = a->frames; f; f = f->next) {
		d->unmap(d, f->addr, f->size);
		tell_unmapped(a, f, f->addr);
		d->release(d, f->handle);
		tell_released(a, f);
	}
	a->frames = NULL;
	for (struct clv_frame *f = a->loose; f; f = f->next) {
		d->release(d, f->handle);
		tell_released(a, f);
	}
	a->loose = NULL;
	while (a->ranges) {
		struct clv_range *r = a->ranges;
		a->ranges = r->next;
		d->address_free(d, r->addr, r->size);
		clv_meta_free(r);
	}
}
