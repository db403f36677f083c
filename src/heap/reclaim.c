/* SPDX-License-Identifier: MIT */
#include "reclaim.h"

#include "cache.h"
#include "frames.h"
#include "purchase.h"
#include "recent.h"
#include "reserve.h"
#include "slab.h"
#include "space.h"
#include "streams.h"
#include "tell.h"

#include <errno.h>

/* What the device can still give is asked anew when so many parts of it, or so much, has been bought. */
#define ROOM_PARTS 16u
#define ROOM_PART_MIN (256 * CLV_MIB)
/* Beside a block of up to FINE_PIECE that cuts a frame on a full device, so much is bought in pieces of its size. */
#define FINE_PIECE (8 * CLV_MIB)
#define FINE_BYTES (32 * CLV_MIB)
#define MISSING_MAX 64u /* separate runs of unmapped pages under one window */
/* An event on an idle stream completes within microseconds, but not at once. A trim that does not wait for work asks so
 * often after those that it has recorded, the later times with a pause before each: 2 ms at most. */
#define TRIM_POLLS 72
#define TRIM_POLLS_AT_ONCE 32
#define POLL_WASTE (64 * CLV_MIB)
/* A large block on a device that is nearly full waits so long for a frame that it can cut. Not longer: a program may well have
 * to go on for its stream to get there. All of them together so long, of which so many thousandths of the time are made good. */
#define FINISH_NS (100 * 1000 * 1000)
#define FINISH_ALL_NS (2 * 1000 * 1000 * 1000ull)
#define FINISH_PERMILLE 20
#define PICK_TRIES 1024 /* frames that are looked at for a complete one: each costs less than a thousandth of a call */

/* ---- how much may be held ---- */

uint64_t clv_reclaim_cap(const struct clv_arena *a)
{
	uint64_t room = a->room > a->headroom ? clv_align_down(a->room - a->headroom, a->granularity) : 0;
	uint64_t cap = a->held + room;
	return a->limit ? clv_min_u64(cap, a->limit) : cap;
}

void clv_reclaim_refresh(struct clv_arena *a)
{
	uint64_t free, total;
	if (a->driver->mem_get_info(a->driver, a->device, &free, &total) == CLV_OK)
		a->room = free;
	a->room_asked_at = a->held;
}

/* Others take memory, too, the program itself among them, and say nothing: how full the device is must be known before it is.
 * Asked anew when a share of the room has been used up: a hundred times until a device is full. */
static void refresh_now_and_then(struct clv_arena *a)
{
	uint64_t bought = a->held - clv_min_u64(a->held, a->room_asked_at);
	if (bought > clv_max_u64((a->room + bought) / ROOM_PARTS, ROOM_PART_MIN))
		clv_reclaim_refresh(a);
}

/* ---- filling a window ---- */

struct fill {
	struct clv_arena *a;
	const struct clv_request *rq;
	struct clv_extent *anchor;
	uint64_t lo, hi; /* the window, in pages */
	uint64_t start, end;
	struct run {
		uint64_t lo, hi;
	} missing[MISSING_MAX];
	unsigned count;
	uint64_t need;           /* bytes of `missing` */
	uint64_t held_before;    /* when the request came */
	bool was_anys;           /* what is missing was cut from a hole of everybody's, and becomes one with it again */
	enum clv_result refused; /* what the driver answered last, if not CLV_OK */
};

/* False if part of the window is no longer free for the request. */
static bool survey(struct fill *f, const struct clv_window *w)
{
	uint64_t end = w->addr + f->rq->size;
	f->lo = clv_align_down(w->addr, CLV_PAGE);
	f->hi = clv_align_up(end, CLV_PAGE);
	f->start = w->addr;
	f->end = end;
	f->anchor = w->anchor;
	f->count = 0;
	f->need = 0;
	struct clv_extent *e = clv_space_locate(f->a, w->anchor, w->addr);
	for (; e && e->addr < end; e = e->next) {
		uint64_t lo = clv_max_u64(f->lo, e->addr), hi = clv_min_u64(f->hi, clv_extent_end(e));
		if (e->kind == CLV_GAP) {
			if (f->count == MISSING_MAX)
				return false;
			f->missing[f->count++] = (struct run){lo, hi};
			f->need += hi - lo;
		} else if (e->kind != CLV_HOLE || !clv_hole_usable(e, f->rq->slot)) {
			return false;
		}
	}
	return e || !f->count || f->missing[f->count - 1].hi == f->hi;
}

/* [lo, hi) of a frame that was cut, which is no part of the window; that ends where it begins, or begins where it ends
 * (`before`). A full device takes 5 to 8 ms to hand out again what a large frame gave back. So beside a small block, where others
 * like it will come, frames are bought that need not be cut. */
static enum clv_result buy_back(const struct fill *f, uint64_t lo, uint64_t hi, bool before, uint32_t slot)
{
	struct clv_arena *a = f->a;
	uint64_t piece = clv_align_up(f->rq->size, a->granularity), fine = 0;
	enum clv_result r = CLV_OK;
	if (piece <= FINE_PIECE && clv_purchase_is_low(a, f->rq))
		fine = clv_min_u64(FINE_BYTES, hi - lo) / piece * piece;
	for (uint64_t at = 0; r == CLV_OK && at < fine; at += piece)
		r = clv_frame_buy(a, f->anchor, before ? hi - at - piece : lo + at, piece, slot);
	if (r == CLV_OK && hi - lo > fine)
		r = clv_frame_buy(a, f->anchor, before ? lo : lo + fine, hi - lo - fine, slot);
	return r;
}

/* Frames that the window would cut where too much is left over are given back first; false if the driver refuses. */
static bool cut_ends(struct fill *f, const struct clv_window *w, uint64_t cap, bool reclaim)
{
	struct clv_arena *a = f->a;
	struct clv_cutting how = clv_purchase_cutting(a, f->rq);
	uint64_t need = f->need, held = a->held;
	struct clv_frame *ends[2] = {clv_frame_at(a, f->start), clv_frame_at(a, f->end - 1)};
	if (ends[0] == ends[1])
		ends[1] = NULL;
	for (int i = 0; i < 2; i++) {
		struct clv_frame *e = ends[i];
		if (!e || !clv_place_cuts(e, f->start, f->end, how) || !clv_frame_complete(a, e)) {
			ends[i] = NULL;
			continue;
		}
		held -= e->size;
		need += clv_min_u64(clv_frame_end(e), f->hi) - clv_max_u64(e->addr, f->lo);
	}
	if (!ends[0] && !ends[1])
		return true;
	if (held + need > cap && !reclaim)
		return false;
	for (int i = 0; i < 2; i++) {
		if (!ends[i])
			continue;
		uint64_t lo = ends[i]->addr, hi = clv_frame_end(ends[i]);
		uint32_t slot = ends[i]->whole_slot;
		f->was_anys |= slot == CLV_SLOT_ANY;
		f->refused = clv_frame_release(a, ends[i]);
		if (f->refused != CLV_OK)
			return false;
		if (lo < f->lo && f->lo < hi)
			f->refused = buy_back(f, lo, f->lo, true, slot);
		if (f->refused == CLV_OK && hi > f->hi && lo < f->hi)
			f->refused = buy_back(f, f->hi, hi, false, slot);
		if (f->refused != CLV_OK)
			return false;
	}
	return survey(f, w);
}

/* Whole frames under the window are no help elsewhere: they are out of the indexes while others are picked. */
static void hide_window(const struct fill *f, bool hide)
{
	struct clv_arena *a = f->a;
	for (uint64_t at = f->lo; at < f->hi;) {
		struct clv_frame *fr = clv_frame_at(a, at);
		if (fr && fr->whole_slot != CLV_SLOT_NONE) {
			if (hide)
				clv_bin_remove(a->slots[fr->whole_slot]->whole, &fr->whole);
			else if (!clv_bin_indexed(&fr->whole))
				clv_bin_insert(a->slots[fr->whole_slot]->whole, &fr->whole, fr->size, fr);
		}
		at = fr ? clv_frame_end(fr) : at + CLV_PAGE;
	}
}

enum pick { PICK_LARGEST_UP_TO, PICK_SMALLEST_FROM };

/* A whole frame from one index. `complete`: only one that no work may still use. */
static struct clv_frame *pick_in(const struct fill *f, const struct clv_binmap *whole, enum pick how, uint64_t size,
				 bool complete)
{
	bool down = how == PICK_LARGEST_UP_TO;
	struct clv_bin_node *n = down ? clv_bin_floor(whole, size) : clv_bin_ceil(whole, size);
	for (int tries = 0; n && tries < PICK_TRIES; tries++) {
		struct clv_frame *fr = n->owner;
		if (!complete || clv_frame_complete(f->a, fr))
			return fr;
		n = down ? clv_bin_down(whole, n, size) : clv_bin_up(whole, n, size);
	}
	return NULL;
}

static struct clv_frame *pick(const struct fill *f, enum pick how, uint64_t size, bool complete)
{
	struct clv_slot *any = f->a->slots[CLV_SLOT_ANY];
	struct clv_frame *x = pick_in(f, any->whole, how, size, complete);
	if (f->rq->slot == any)
		return x;
	struct clv_frame *y = pick_in(f, f->rq->slot->whole, how, size, complete);
	if (!x || !y)
		return x ? x : y;
	return (how == PICK_LARGEST_UP_TO) == (x->size >= y->size) ? x : y;
}

static bool move_here(struct fill *f, struct clv_frame *fr, uint64_t addr)
{
	bool exactly = f->rq->slot->lasting && !f->rq->slot->apart;
	uint32_t slot = exactly ? fr->whole_slot : f->rq->slot->index;
	f->refused = clv_frame_move(f->a, fr, f->anchor, addr, slot);
	if (f->refused != CLV_OK)
		return false;
	clv_bin_remove(f->a->slots[fr->whole_slot]->whole, &fr->whole); /* as the others under the window */
	return true;
}

/* Frames that fit into what is missing are mapped there: a move costs less than a release and a purchase, and needs no
 * wait. Many small frames for a large run are not worth their calls. */
static bool move_fitting(struct fill *f, uint64_t cap)
{
	struct clv_arena *a = f->a;
	bool low = clv_purchase_is_low(a, f->rq);
	for (unsigned i = 0; i < f->count && a->held + f->need > cap; i++) {
		struct run *r = &f->missing[i];
		while (r->lo < r->hi) {
			uint64_t rest = r->hi - r->lo;
			struct clv_frame *fr = pick(f, PICK_LARGEST_UP_TO, rest, false);
			if (!fr || (fr->size != rest && fr->size < rest / 8 && !low))
				break;
			uint64_t size = fr->size;
			if (!move_here(f, fr, r->lo))
				return false;
			r->lo += size;
			f->need -= size;
		}
	}
	return true;
}

/* Gives complete frames back until what is missing can be bought; false if there are not enough of them. */
static bool release_for(struct fill *f, uint64_t cap)
{
	struct clv_arena *a = f->a;
	while (a->held + f->need > cap) {
		struct clv_frame *fr = pick(f, PICK_SMALLEST_FROM, a->held + f->need - cap, true);
		if (!fr)
			fr = pick(f, PICK_LARGEST_UP_TO, UINT64_MAX, true);
		if (!fr)
			return false;
		f->refused = clv_frame_release(a, fr);
		if (f->refused != CLV_OK)
			return false;
	}
	return true;
}

/* The last resort that needs no wait: frames whose frees are pending in our own order are mapped at what is missing, also
 * when they reach past it into unused addresses. */
static bool move_beyond(struct fill *f, uint64_t cap)
{
	struct clv_arena *a = f->a;
	for (unsigned i = 0; i < f->count && a->held + f->need > cap; i++) {
		struct run *r = &f->missing[i];
		while (r->lo < r->hi && a->held + f->need > cap) {
			uint64_t rest = r->hi - r->lo;
			struct clv_frame *fr = pick(f, PICK_LARGEST_UP_TO, rest, false);
			if (!fr)
				fr = pick(f, PICK_SMALLEST_FROM, rest, false);
			if (!fr)
				return false;
			struct clv_extent *gap = clv_space_locate(a, f->anchor, r->lo);
			uint64_t size = fr->size;
			if (r->lo + size > clv_extent_end(gap))
				return false;
			if (!move_here(f, fr, r->lo))
				return false;
			uint64_t gained = clv_min_u64(size, rest);
			r->lo += gained;
			f->need -= gained;
		}
	}
	return a->held + f->need <= cap;
}

/* `own`: pages in which the window begins or ends are frames of their own. */
static uint64_t next_piece(const struct fill *f, const struct run *r, bool own)
{
	uint64_t rest = r->hi - r->lo;
	own &= rest > CLV_PAGE;
	if (own && r->lo == f->lo && f->start % CLV_PAGE)
		return CLV_PAGE;
	if (own && r->hi == f->hi && f->end % CLV_PAGE)
		rest -= CLV_PAGE;
	return clv_purchase_piece(f->a, f->rq, rest);
}

static bool buy_missing(struct fill *f, uint64_t cap)
{
	struct clv_arena *a = f->a;
	if (a->headroom) { /* others may have taken of it since we asked */
		clv_reclaim_refresh(a);
		/* what has just been released for this is no growth */
		if (a->held + f->need > clv_max_u64(clv_reclaim_cap(a), f->held_before))
			return false;
	}
	uint64_t least = clv_purchase_least(a, f->rq), most = UINT64_MAX;
	bool own = clv_purchase_own_ends(a, f->rq);
	for (unsigned i = 0; i < f->count; i++) {
		struct run *r = &f->missing[i];
		while (r->lo < r->hi) {
			uint64_t size = next_piece(f, r, own);
			if (r->lo + size == r->hi && size < least) {
				/* the last piece: as much as is usual, where addresses and the cap allow */
				struct clv_extent *gap = clv_space_locate(a, f->anchor, r->lo);
				uint64_t room =
					clv_min_u64(clv_extent_end(gap) - r->lo, cap > a->held ? cap - a->held : 0);
				size = clv_max_u64(size, clv_min_u64(least, clv_align_down(room, a->granularity)));
			}
			size = clv_min_u64(size, most);
			bool coarse = clv_purchase_is_coarse(a, f->rq, size);
			bool exactly = f->was_anys || (f->rq->slot->lasting && !f->rq->slot->apart);
			f->refused = clv_frame_buy(a, f->anchor, r->lo, size, exactly ? CLV_SLOT_ANY : f->rq->slot->index);
			if (f->refused == CLV_OUT_OF_MEMORY) {
				a->room = 0; /* less than we thought; asked anew before the next attempt */
				/* what was released in small frames, the driver may keep for small ones */
				most = clv_align_down(size / 2, a->granularity);
				if (most)
					continue;
			}
			if (f->refused != CLV_OK)
				return false;
			if (coarse) {
				clv_frame_at(a, r->lo)->coarse = true;
				a->coarse += size;
			}
			r->lo = clv_min_u64(r->hi, r->lo + size);
		}
	}
	return true;
}

/* So much that what is missing can be bought under the cap, or is there already. */
static bool make_room(struct fill *f, uint64_t cap)
{
	struct clv_arena *a = f->a;
	struct clv_slot *any = a->slots[CLV_SLOT_ANY];
	uint64_t usable = any->whole->bytes + (f->rq->slot != any ? f->rq->slot->whole->bytes : 0);
	if (a->held + f->need > cap + usable)
		return false;
	if (f->rq->slot->apart) /* frames of other sizes than it buys would find none like them */
		return release_for(f, cap);
	return move_fitting(f, cap) && (release_for(f, cap) || move_beyond(f, cap));
}

/* Maps all of the window, holding at most `cap`. A failure may have moved or released free frames, no more. */
static bool fill_window(struct fill *f, const struct clv_window *w, uint64_t cap, bool reclaim)
{
	struct clv_arena *a = f->a;
	if (!survey(f, w) || !cut_ends(f, w, cap, reclaim))
		return false;
	if (!f->need)
		return true;
	if (a->held + f->need > cap) {
		if (!reclaim)
			return false;
		if (clv_slot_poll(a, f->rq->slot))
			clv_frames_reap(a);
		hide_window(f, true);
		bool made = make_room(f, cap);
		hide_window(f, false);
		if (!made)
			return false;
	}
	return buy_missing(f, cap);
}

/* The same for a slot that is lasting: not a byte more than the block falls into its order. */
static struct clv_extent *take_exactly(struct clv_arena *a, const struct clv_request *rq, const struct clv_window *w)
{
	uint64_t end = w->addr + rq->size;
	struct clv_extent *e = clv_space_locate(a, w->anchor, w->addr);
	if (clv_extent_end(e) >= end)
		return clv_space_carve(a, e, w->addr, rq->size, rq->slot->index);
	for (struct clv_extent *cur = e; cur->addr < end;) {
		uint64_t lo = clv_max_u64(cur->addr, w->addr), hi = clv_min_u64(clv_extent_end(cur), end);
		if (cur->slot != rq->slot->index)
			cur = clv_space_retag_part(a, cur, lo, hi, rq->slot->index);
		if (clv_extent_end(cur) >= end)
			break;
		cur = cur->next;
	}
	e = clv_space_locate(a, w->anchor, w->addr);
	return clv_space_carve(a, e, w->addr, rq->size, rq->slot->index);
}

/* The window is mapped: its holes become one of the request's slot, and the block is cut from it. */
static struct clv_extent *take_window(struct clv_arena *a, const struct clv_request *rq, const struct clv_window *w)
{
	if (rq->slot->lasting && !rq->slot->apart)
		return take_exactly(a, rq, w);
	struct clv_extent *e = clv_space_locate(a, w->anchor, w->addr);
	for (struct clv_extent *cur = e; cur->addr < w->addr + rq->size;) {
		if (cur->slot != rq->slot->index) {
			cur = clv_space_retag(a, cur, rq->slot->index, 0);
			continue;
		}
		if (clv_extent_end(cur) >= w->addr + rq->size)
			break;
		cur = cur->next;
	}
	e = clv_space_locate(a, w->anchor, w->addr);
	return clv_space_carve(a, e, w->addr, rq->size, rq->slot->index);
}

/* ---- the ladder ---- */

struct ladder {
	struct clv_arena *a;
	const struct clv_request *rq;
	enum clv_result refused; /* by the driver, other than for want of memory */
	bool short_of;           /* it was for want of memory */
	bool waited;             /* for work of its own stream */
	uint64_t held;           /* at the start */
};

/* Frames that the best window would cut: mostly the device has done with them and nobody has asked. If not, a block that strands
 * a large frame costs more than a short wait where memory is short. True if anything is complete that was not. */
static bool finish(struct ladder *l, uint64_t seq)
{
	struct clv_arena *a = l->a;
	uint64_t left = 0;
	if (!l->waited && !l->rq->no_wait && clv_purchase_is_low(a, l->rq)) {
		uint64_t now = a->driver->now_ns(a->driver), good = (now - a->waited_at) / 1000 * FINISH_PERMILLE;
		a->waited_ns -= clv_min_u64(a->waited_ns, good);
		a->waited_at = now;
		left = clv_min_u64(FINISH_NS, FINISH_ALL_NS - clv_min_u64(FINISH_ALL_NS, a->waited_ns));
		l->waited = true;
	}
	return clv_slot_finish(a, l->rq->slot, seq, left);
}

/* A hole that fits as it is. */
static bool find_hit(struct ladder *l, struct clv_window *hit)
{
	bool found = clv_place_hit(l->a, l->rq, hit);
	return hit->unfinished && finish(l, hit->unfinished) ? clv_place_hit(l->a, l->rq, hit) : found;
}

static struct clv_extent *attempt(struct ladder *l, uint64_t cap, bool reclaim)
{
	struct clv_window windows[CLV_WINDOW_MAX], hit;
	if (find_hit(l, &hit))
		return clv_space_carve(l->a, hit.hole, hit.addr, l->rq->size, l->rq->slot->index);
	unsigned n = clv_place(l->a, l->rq, windows);
	for (unsigned i = 0; i < n; i++) {
		struct fill f = {.a = l->a, .rq = l->rq, .held_before = l->held};
		if (fill_window(&f, &windows[i], cap, reclaim)) {
			if (clv_pool_reserve(&l->a->extents, 4)) /* moves may have used up what was there */
				return take_window(l->a, l->rq, &windows[i]);
			l->a->host_out = true;
		}
		if (f.refused == CLV_OUT_OF_MEMORY)
			l->short_of = true;
		else if (f.refused != CLV_OK)
			l->refused = f.refused;
	}
	return NULL;
}

void clv_reclaim_slot(struct clv_arena *a, struct clv_slot *slot)
{
	clv_recent_flush(a); /* a block may have been freed on it since its end was told */
	clv_slabs_orphan(a, slot);
	clv_slot_drop(a, slot);
	clv_slabs_reap(a);
	clv_frames_reap(a);
}

void clv_reclaim_ended(struct clv_arena *a)
{
	for (uint32_t i = 1; a->slots_ended && i < a->slot_count; i++) {
		struct clv_slot *slot = a->slots[i];
		if (!slot->ended)
			continue;
		clv_slot_poll(a, slot);
		if (slot->completed == slot->seq)
			clv_reclaim_slot(a, slot);
	}
}

/* Whatever is known to be complete comes back: slots of slabs that were late or in caches, empty chunks, old addresses. All
 * that is free is then free for everybody, our own as well: the parts of a frame that are of two orders could never make
 * it whole. */
static void settle(struct clv_arena *a)
{
	clv_streams_poll(a, NULL);
	clv_reclaim_ended(a);
	clv_slabs_reap(a);
	clv_caches_flush(a);
	clv_frames_reap(a);
}

/* The host waits; a second time for chunks that became empty by the first. */
static void settle_all(struct clv_arena *a)
{
	settle(a);
	for (int round = 0; round < 2 && clv_streams_wait(a, NULL); round++)
		settle(a);
}

/* A hole that fits, however long the search: the indexes answer quickly, and may miss it among many of nearly its size. */
static struct clv_extent *search_all(struct ladder *l)
{
	struct clv_arena *a = l->a;
	struct clv_slot *any = a->slots[CLV_SLOT_ANY], *slot = l->rq->slot;
	uint64_t fitting = l->rq->size + l->rq->align - CLV_GRAIN;
	struct clv_bin_node *n = clv_bin_search(slot->holes, fitting);
	if (!n && !slot->apart)
		n = clv_bin_search(any->holes, fitting);
	if (!n || !clv_pool_reserve(&a->extents, 2))
		return NULL;
	struct clv_extent *hole = n->owner;
	uint64_t addr = clv_align_up(hole->addr, l->rq->align);
	if (hole->slot != slot->index && !slot->lasting)
		hole = clv_space_retag(a, hole, slot->index, 0);
	return clv_space_carve(a, hole, addr, l->rq->size, slot->index);
}

/* The driver's own verdict: somebody else may have freed since we asked. */
static struct clv_extent *ask_at_last(struct ladder *l)
{
	struct clv_arena *a = l->a;
	struct clv_extent *e;
	clv_reclaim_refresh(a);
	if ((e = attempt(l, clv_reclaim_cap(a), true)) || (e = search_all(l)))
		return e;
	/* it gives less than it says: then what we hold must do */
	if (!l->short_of)
		return NULL;
	a->room = 0;
	return attempt(l, clv_reclaim_cap(a), true);
}

bool clv_reclaim_may_fit(const struct clv_arena *a, uint64_t size)
{
	return size + (a->used - a->reserve_bytes) <= clv_reclaim_cap(a);
}

/* Each step gains something or costs little; after each the search is made again. */
static struct clv_extent *climb(struct ladder *l)
{
	struct clv_arena *a = l->a;
	struct clv_slot *slot = l->rq->slot;
	struct clv_extent *e;
	uint64_t size = l->rq->size;
	/* only complete frames can be cut: each event is asked after once, which says enough */
	if (slot->count && slot->asked_seq != slot->recorded_seq && clv_purchase_cutting(a, l->rq).most < POLL_WASTE) {
		slot->asked_seq = slot->recorded_seq;
		clv_slot_poll(a, slot);
	}
	/* by far the most requests, which pay for no look at the clock and the driver's share of it */
	struct clv_window hit;
	if (find_hit(l, &hit))
		return clv_space_carve(a, hit.hole, hit.addr, size, slot->index);
	clv_reserve_expire(a);
	refresh_now_and_then(a);
	clv_recent_flush(a); /* what is kept may be the hole that fits, or memory that need not be bought */
	if ((e = attempt(l, clv_purchase_soft_cap(a, size, clv_reclaim_cap(a)), true)))
		return e;
	/* events that have completed */
	clv_reclaim_refresh(a);
	bool gained = clv_streams_poll(a, slot);
	clv_reclaim_ended(a);
	gained |= clv_frames_reap(a) > 0;
	gained |= clv_slabs_reap(a);
	if (gained && (e = attempt(l, clv_purchase_soft_cap(a, size, clv_reclaim_cap(a)), true)))
		return e;
	/* more of the device, as long as it gives */
	if ((e = attempt(l, clv_reclaim_cap(a), false)))
		return e;
	clv_reclaim_refresh(a);
	if ((e = attempt(l, clv_reclaim_cap(a), true)))
		return e;
	/* what other streams have freed, by a wait on the device */
	if (clv_streams_adopt(a, slot) && (e = attempt(l, clv_reclaim_cap(a), true)))
		return e;
	/* what threads keep for themselves, and empty slabs */
	if (clv_caches_flush(a) && (e = attempt(l, clv_reclaim_cap(a), true)))
		return e;
	if (l->rq->no_wait)
		return NULL;
	/* what is held back for others, as long as it is not to be had at any price */
	while (clv_reclaim_may_fit(a, size) && clv_reserve_yield(a, size, false)) {
		clv_streams_adopt(a, slot); /* it may be free in another stream's order */
		if ((e = attempt(l, clv_reclaim_cap(a), true)))
			return e;
	}
	settle_all(a);
	clv_streams_adopt(a, slot); /* what could not be waited for */
	e = ask_at_last(l);
	/* and what is */
	while (!e && !l->rq->reserves && clv_reclaim_may_fit(a, size) && clv_reserve_yield(a, size, true)) {
		clv_streams_adopt(a, slot);
		e = ask_at_last(l);
	}
	return e;
}

struct clv_extent *clv_reclaim_alloc(struct clv_arena *a, const struct clv_request *rq, int *why)
{
	if (!clv_pool_reserve(&a->extents, 8) || !clv_space_reserve_block(a)) {
		*why = -ENOSPC;
		return NULL;
	}
	struct ladder l = {.a = a, .rq = rq, .held = a->held};
	a->host_out = false;
	struct clv_extent *e = climb(&l);
	if (!e)
		*why = a->host_out ? -ENOSPC : l.refused != CLV_OK ? -EIO : -ENOMEM;
	return e;
}

static void release_down_to(struct clv_arena *a, uint64_t keep)
{
	for (struct clv_frame *f = a->frames, *next; f && a->held > keep; f = next) {
		next = f->next;
		if (f->whole_slot != CLV_SLOT_NONE && clv_frame_complete(a, f))
			clv_frame_release(a, f);
	}
}

uint64_t clv_reclaim_trim(struct clv_arena *a, uint64_t keep, bool wait)
{
	uint64_t before = a->held;
	settle(a);
	release_down_to(a, keep);
	if (a->held > keep) /* most frees have no event of their own yet, and chunks that have just become empty none */
		clv_streams_record(a);
	for (int i = 0; i < TRIM_POLLS && a->held > keep && clv_streams_pending(a); i++) {
		if (i >= TRIM_POLLS_AT_ONCE)
			a->driver->pause(a->driver, CLV_POLL_PAUSE_NS);
		if (clv_streams_poll(a, NULL)) {
			settle(a);
			release_down_to(a, keep);
		}
	}
	if (wait && a->held > keep) {
		settle_all(a);
		release_down_to(a, keep);
	}
	if (a->held > keep) {
		clv_reserve_trim(a);
		release_down_to(a, keep);
	}
	CLV_TELL(a, TRIM, CLEAVE_STREAM_ANY, .size = before - a->held, .a = keep);
	return before - a->held;
}
