/* SPDX-License-Identifier: MIT */
#include "place.h"

#include "space.h"

#define LARGER_HOLES 4  /* candidates from each index */
#define SMALLER_HOLES 8
#define WALK_LIMIT 512 /* extents under one window */

struct search {
	struct clv_arena *a;
	const struct clv_request *rq;
	struct clv_window *windows;
	unsigned count;
};

static struct clv_extent *live_below(struct clv_extent *e)
{
	while (e && e->kind != CLV_LIVE)
		e = e->prev;
	return e;
}

/* Keeps the windows sorted; the dearest falls out. */
static void keep(struct search *s, struct clv_window w)
{
	unsigned i = s->count < CLV_WINDOW_MAX ? s->count++ : CLV_WINDOW_MAX;
	for (; i > 0; i--) {
		const struct clv_window *before = &s->windows[i - 1];
		if (before->cost < w.cost || (before->cost == w.cost && before->addr <= w.addr))
			break;
		if (i < CLV_WINDOW_MAX)
			s->windows[i] = *before;
	}
	if (i < CLV_WINDOW_MAX)
		s->windows[i] = w;
}

/* Whole frames under [lo, hi), which is mapped. */
static uint64_t pins(const struct clv_arena *a, uint64_t lo, uint64_t hi)
{
	uint64_t bytes = 0;
	for (struct clv_frame *f; lo < hi; lo = clv_frame_end(f)) {
		f = clv_frame_at(a, lo);
		if (f->whole_slot != CLV_SLOT_NONE)
			bytes += f->size;
	}
	return bytes;
}

/* A window at addr, which lies in the extent e. `hole` is the size of the hole that it would be cut from, 0 if it is more
 * than one extent. */
static void consider(struct search *s, struct clv_extent *e, uint64_t addr, uint64_t hole)
{
	uint64_t end = addr + s->rq->size, missing = 0, pinned = 0;
	struct clv_extent *cur = e;
	for (int walked = 0;; cur = cur->next) {
		if (!cur || ++walked > WALK_LIMIT)
			return;
		uint64_t lo = clv_max_u64(addr, cur->addr), hi = clv_min_u64(end, clv_extent_end(cur));
		if (cur->kind == CLV_GAP)
			missing += clv_align_up(hi, CLV_PAGE) - clv_align_down(lo, CLV_PAGE);
		else if (cur->kind == CLV_HOLE && clv_hole_usable(cur, s->rq->slot))
			pinned += pins(s->a, lo, hi);
		else
			return;
		if (hi == end)
			break;
	}
	uint64_t cost = pinned + missing;
	if (missing)
		cost += s->a->heap->settings.call_bytes;
	else if (hole)
		cost += (hole - s->rq->size) / 128;
	keep(s, (struct clv_window){addr, missing, cost, e, hole && !missing ? e : NULL});
}

static void at_left(struct search *s, struct clv_extent *hole)
{
	consider(s, hole, clv_align_up(hole->addr, s->rq->align), hole->size);
}

static void at_right(struct search *s, struct clv_extent *hole)
{
	uint64_t addr = clv_align_down(clv_extent_end(hole) - s->rq->size, s->rq->align);
	if (addr >= hole->addr && addr + s->rq->size <= clv_extent_end(hole))
		consider(s, hole, addr, hole->size);
}

/* A window that ends where the hole ends and begins in what is free before it. */
static void before_end(struct search *s, struct clv_extent *hole)
{
	if (clv_extent_end(hole) < s->rq->size)
		return;
	uint64_t addr = clv_align_down(clv_extent_end(hole) - s->rq->size, s->rq->align);
	struct clv_extent *e = hole;
	for (int walked = 0; e && addr < e->addr && walked < WALK_LIMIT; walked++) {
		e = e->prev;
		if (!e || (e->kind != CLV_GAP && !(e->kind == CLV_HOLE && clv_hole_usable(e, s->rq->slot))))
			return;
	}
	if (e && addr >= e->addr)
		consider(s, e, addr, 0);
}

/* Stranded memory that fits: pins nothing, buys nothing. */
static bool in_part(struct search *s, struct clv_slot *slot)
{
	uint64_t slack = s->rq->align - CLV_GRAIN;
	struct clv_bin_node *n = clv_bin_ceil(slot->parts, s->rq->size + slack);
	if (!n)
		return false;
	struct clv_extent *hole = n->owner;
	uint64_t addr;
	if (n == &hole->hole.left)
		addr = clv_align_up(hole->addr, s->rq->align);
	else
		addr = clv_align_down(clv_extent_end(hole) - s->rq->size, s->rq->align);
	keep(s, (struct clv_window){addr, 0, (n->size - s->rq->size) / 128, hole, hole});
	return true;
}

static void in_slot(struct search *s, struct clv_slot *slot)
{
	uint64_t size = s->rq->size, fitting = size + s->rq->align - CLV_GRAIN;
	struct clv_bin_node *n = clv_bin_ceil(slot->whole, size);
	if (n) {
		struct clv_frame *f = n->owner;
		consider(s, f->hole, clv_align_up(f->addr, s->rq->align), f->hole->size);
	}
	n = clv_bin_ceil(slot->holes, fitting);
	for (int i = 0; n && i < LARGER_HOLES; i++, n = clv_bin_up(slot->holes, n, fitting)) {
		at_left(s, n->owner);
		at_right(s, n->owner);
	}
	n = clv_bin_floor(slot->holes, size);
	for (int i = 0; n && i < SMALLER_HOLES; i++, n = clv_bin_down(slot->holes, n, size)) {
		struct clv_extent *hole = n->owner;
		consider(s, hole, clv_align_up(hole->addr, s->rq->align), 0);
		before_end(s, hole);
	}
}

/* Untouched addresses, with room on both sides into which neighbours may grow. */
static void in_gap(struct search *s)
{
	uint64_t size = clv_align_up(s->rq->size, CLV_PAGE);
	struct clv_bin_node *n = clv_bin_floor(&s->a->gaps, UINT64_MAX);
	if (!n || n->size < size) {
		if (!clv_space_grow(s->a, size))
			return;
		n = clv_bin_floor(&s->a->gaps, UINT64_MAX);
	}
	struct clv_extent *gap = n->owner;
	uint64_t room = clv_min_u64(s->a->spacing, clv_align_down((gap->size - size) / 2, CLV_PAGE));
	consider(s, gap, gap->addr + room, 0);
}

unsigned clv_place(struct clv_arena *a, const struct clv_request *rq, struct clv_window *windows)
{
	struct search s = {a, rq, windows, 0};
	struct clv_slot *any = a->slots[CLV_SLOT_ANY];
	bool own = rq->slot != any;
	bool found = in_part(&s, rq->slot);
	if (own)
		found |= in_part(&s, any);
	if (!found) {
		in_slot(&s, rq->slot);
		if (own)
			in_slot(&s, any);
		in_gap(&s);
	}
	for (unsigned i = 0; i < s.count; i++)
		windows[i].anchor = live_below(windows[i].anchor);
	return s.count;
}
