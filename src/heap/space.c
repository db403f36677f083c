/* SPDX-License-Identifier: MIT */
#include "space.h"

#include "tell.h"

#include "../host/meta.h"

#include <string.h>

#define RANGE_SIZE ((uint64_t)4 << 40) /* a reservation costs 20 us whatever its size; addresses are plenty */

/* ---- ranges and gaps ---- */

static void index_gap(struct clv_arena *a, struct clv_extent *gap)
{
	clv_bin_insert(&a->gaps, &gap->gap.node, gap->size, gap);
}

bool clv_space_grow(struct clv_arena *a, uint64_t size)
{
	size = clv_align_up(size, CLV_PAGE);
	struct clv_range *r = clv_meta_zalloc(sizeof(*r));
	if (!r || !clv_pool_reserve(&a->extents, 1)) {
		a->host_out = true;
		clv_meta_free(r);
		return false;
	}
	enum clv_result got = CLV_FAILED;
	for (r->size = clv_max_u64(RANGE_SIZE, size); r->size >= size; r->size = clv_align_down(r->size / 2, CLV_PAGE)) {
		got = a->driver->address_reserve(a->driver, &r->addr, r->size, CLV_PAGE);
		if (got == CLV_OK || r->size == size)
			break;
		if (r->size / 2 < size)
			r->size = size * 2;
	}
	if (got != CLV_OK) {
		clv_meta_free(r);
		return false;
	}
	struct clv_extent *gap = clv_pool_take(&a->extents);
	gap->addr = r->addr;
	gap->size = r->size;
	gap->kind = CLV_GAP;
	index_gap(a, gap);
	r->first = gap;
	r->next = a->ranges;
	a->ranges = r;
	return true;
}

/* ---- the list of extents ---- */

static void link_after(struct clv_extent *e, struct clv_extent *prev)
{
	e->prev = prev;
	e->next = prev->next;
	if (e->next)
		e->next->prev = e;
	prev->next = e;
}

static void fix_first(struct clv_arena *a, struct clv_extent *old, struct clv_extent *now)
{
	for (struct clv_range *r = a->ranges; r; r = r->next)
		if (r->first == old) {
			r->first = now;
			return;
		}
}

static void link_before(struct clv_arena *a, struct clv_extent *e, struct clv_extent *next)
{
	if (next->prev) {
		link_after(e, next->prev);
		return;
	}
	e->prev = NULL;
	e->next = next;
	next->prev = e;
	fix_first(a, next, e);
}

static void unlink_extent(struct clv_arena *a, struct clv_extent *e)
{
	if (e->prev)
		e->prev->next = e->next;
	else
		fix_first(a, e, e->next);
	if (e->next)
		e->next->prev = e->prev;
	clv_pool_give(&a->extents, e);
}

static struct clv_extent *new_extent(struct clv_arena *a, uint64_t addr, uint64_t size, enum clv_extent_kind kind)
{
	struct clv_extent *e = clv_pool_take(&a->extents);
	e->addr = addr;
	e->size = size;
	e->kind = (uint8_t)kind;
	return e;
}

struct clv_extent *clv_space_locate(const struct clv_arena *a, struct clv_extent *anchor, uint64_t addr)
{
	struct clv_extent *e = anchor;
	for (struct clv_range *r = a->ranges; r && !e; r = r->next)
		if (r->addr <= addr && addr - r->addr < r->size)
			e = r->first;
	while (addr >= clv_extent_end(e))
		e = e->next;
	return e;
}

static struct clv_extent *join_gap(struct clv_arena *a, struct clv_extent *gap)
{
	struct clv_extent *prev = gap->prev, *next = gap->next;
	if (prev && prev->kind == CLV_GAP) {
		clv_bin_remove(&a->gaps, &prev->gap.node);
		prev->size += gap->size;
		unlink_extent(a, gap);
		gap = prev;
	}
	if (next && next->kind == CLV_GAP) {
		clv_bin_remove(&a->gaps, &next->gap.node);
		gap->size += next->size;
		unlink_extent(a, next);
	}
	index_gap(a, gap);
	return gap;
}

/* ---- holes ---- */

static struct clv_slot *slot_of(const struct clv_arena *a, const struct clv_extent *hole)
{
	return a->slots[hole->slot];
}

static bool covers(const struct clv_extent *hole, const struct clv_frame *f)
{
	return hole->addr <= f->addr && clv_extent_end(hole) >= clv_frame_end(f);
}

static void index_hole(struct clv_arena *a, struct clv_extent *hole)
{
	struct clv_slot *slot = slot_of(a, hole);
	uint64_t end = clv_extent_end(hole);
	clv_bin_insert(slot->holes, &hole->hole.total, hole->size, hole);
	a->hole_count++;
	slot->complete_hole |= hole->hole.seq <= slot->completed;
	struct clv_frame *first = clv_frame_at(a, hole->addr), *last = clv_frame_at(a, end - 1);
	if (!covers(hole, first))
		clv_bin_insert(slot->parts, &hole->hole.left, clv_min_u64(clv_frame_end(first), end) - hole->addr, hole);
	if (last != first && !covers(hole, last))
		clv_bin_insert(slot->parts, &hole->hole.right, end - last->addr, hole);
}

static void unindex_hole(struct clv_arena *a, struct clv_extent *hole)
{
	struct clv_slot *slot = slot_of(a, hole);
	clv_bin_remove(slot->holes, &hole->hole.total);
	clv_bin_remove(slot->parts, &hole->hole.left);
	clv_bin_remove(slot->parts, &hole->hole.right);
	a->hole_count--;
}

/* Work of the slot may use memory of the frame until `seq`. `covered`: that point comes after all of this other slot, too. */
static void set_busy(const struct clv_arena *a, struct clv_frame *f, uint32_t slot, uint64_t seq, uint32_t covered)
{
	if (f->busy_slot == slot) {
		f->busy_seq = clv_max_u64(f->busy_seq, seq);
		return;
	}
	f->mixed |= f->busy_slot != covered && f->busy_slot != CLV_SLOT_ANY && a->slots[f->busy_slot]->completed < f->busy_seq;
	f->busy_slot = slot;
	f->busy_seq = seq;
}

static void set_whole(struct clv_arena *a, struct clv_frame *f, struct clv_extent *hole)
{
	if (f->mixed) { /* what the hole says is later than need be, but says it for all */
		f->mixed = false;
		f->busy_slot = hole->slot;
		f->busy_seq = hole->hole.seq;
	}
	if (f->whole_slot == CLV_SLOT_NONE) {
		clv_bin_insert(slot_of(a, hole)->whole, &f->whole, f->size, f);
		f->whole_slot = hole->slot;
	}
	f->hole = hole;
}

static void unset_whole(struct clv_arena *a, struct clv_frame *f)
{
	if (f->whole_slot == CLV_SLOT_NONE)
		return;
	clv_bin_remove(a->slots[f->whole_slot]->whole, &f->whole);
	f->whole_slot = CLV_SLOT_NONE;
	f->hole = NULL;
}

/* Frames that touch [lo, hi) and are covered by the hole become whole, or learn that it is this hole. */
static void mark_whole(struct clv_arena *a, struct clv_extent *hole, uint64_t lo, uint64_t hi)
{
	for (struct clv_frame *f; lo < hi; lo = clv_frame_end(f)) {
		f = clv_frame_at(a, lo);
		if (covers(hole, f))
			set_whole(a, f, hole);
	}
}

/* Joins two neighbouring holes of one slot, both out of the indexes; the larger keeps its record, so that few frames must
 * learn a new one. */
static struct clv_extent *join_two(struct clv_arena *a, struct clv_extent *left, struct clv_extent *right)
{
	struct clv_extent *keep = left->size >= right->size ? left : right, *drop = keep == left ? right : left;
	uint64_t lo = drop->addr, hi = clv_extent_end(drop), seam = right->addr;
	keep->addr = left->addr;
	keep->size = left->size + right->size;
	keep->hole.seq = clv_max_u64(left->hole.seq, right->hole.seq);
	unlink_extent(a, drop);
	a->merges++;
	CLV_TELL(a, MERGE, slot_of(a, keep)->stream, .addr = keep->addr, .size = keep->size, .a = seam);
	/* the dropped one's frames, and the frame at the seam */
	mark_whole(a, keep, lo, hi);
	return keep;
}

static bool joinable(const struct clv_extent *e, uint32_t slot)
{
	return e && e->kind == CLV_HOLE && e->slot == slot;
}

/* `hole` is out of the indexes and its own frames are marked: joins it with its neighbours and puts it in. */
static struct clv_extent *join_hole(struct clv_arena *a, struct clv_extent *hole)
{
	if (joinable(hole->prev, hole->slot)) {
		unindex_hole(a, hole->prev);
		hole = join_two(a, hole->prev, hole);
	}
	if (joinable(hole->next, hole->slot)) {
		unindex_hole(a, hole->next);
		hole = join_two(a, hole, hole->next);
	}
	index_hole(a, hole);
	return hole;
}

struct clv_extent *clv_space_carve(struct clv_arena *a, struct clv_extent *hole, uint64_t addr, uint64_t size, uint32_t slot)
{
	uint64_t end = addr + size, left = addr - hole->addr, right = clv_extent_end(hole) - end;
	uint32_t hole_slot = hole->slot;
	uint64_t seq = hole->hole.seq;
	unindex_hole(a, hole);
	for (struct clv_frame *f = NULL; !f || clv_frame_end(f) < end;) {
		f = clv_frame_at(a, f ? clv_frame_end(f) : addr);
		unset_whole(a, f);
		if (!f->live)
			a->pinned += f->size;
		f->live += clv_min_u64(end, clv_frame_end(f)) - clv_max_u64(addr, f->addr);
	}
	struct clv_extent *live = hole;
	if (left || right) {
		a->splits++;
		CLV_TELL(a, CUT, slot_of(a, hole)->stream, .addr = addr, .size = size, .a = hole->addr, .b = hole->size);
		live = new_extent(a, addr, size, CLV_LIVE);
		struct clv_extent *rest = NULL;
		if (right >= left) { /* the record stays with the larger rest */
			uint64_t old = hole->addr;
			hole->addr = end;
			hole->size = right;
			link_before(a, live, hole);
			if (left) {
				rest = new_extent(a, old, left, CLV_HOLE);
				link_before(a, rest, live);
			}
		} else {
			hole->size = left;
			link_after(live, hole);
			if (right) {
				rest = new_extent(a, end, right, CLV_HOLE);
				link_after(rest, live);
			}
		}
		index_hole(a, hole);
		if (rest) {
			rest->slot = hole_slot;
			rest->hole.seq = seq;
			mark_whole(a, rest, rest->addr, clv_extent_end(rest));
			index_hole(a, rest);
		}
	}
	live->kind = CLV_LIVE;
	live->slot = slot;
	memset(&live->live, 0, sizeof(live->live));
	live->live.seq = hole_slot == slot ? seq : 0;
	a->used += size;
	a->used_peak = clv_max_u64(a->used_peak, a->used);
	a->live_count++;

	struct clv_extent **bucket = &a->blocks[clv_mix64(addr) & a->block_mask];
	live->live.hash_next = *bucket;
	*bucket = live;
	a->block_count++;
	struct clv_frame *f = clv_frame_at(a, addr);
	live->live.frame_next = f->starts;
	live->live.frame_link = &f->starts;
	if (f->starts)
		f->starts->live.frame_link = &live->live.frame_next;
	f->starts = live;
	return live;
}

struct clv_extent *clv_space_free(struct clv_arena *a, struct clv_extent *live, uint32_t slot, uint64_t seq)
{
	struct clv_extent **link = &a->blocks[clv_mix64(live->addr) & a->block_mask];
	while (*link != live)
		link = &(*link)->live.hash_next;
	*link = live->live.hash_next;
	a->block_count--;
	*live->live.frame_link = live->live.frame_next;
	if (live->live.frame_next)
		live->live.frame_next->live.frame_link = live->live.frame_link;

	uint64_t addr = live->addr, end = clv_extent_end(live);
	a->used -= live->size;
	a->live_count--;
	live->kind = CLV_HOLE;
	live->chunk = false;
	live->slot = slot;
	memset(&live->hole, 0, sizeof(live->hole));
	live->hole.seq = seq;
	for (struct clv_frame *f = NULL; !f || clv_frame_end(f) < end;) {
		f = clv_frame_at(a, f ? clv_frame_end(f) : addr);
		f->live -= clv_min_u64(end, clv_frame_end(f)) - clv_max_u64(addr, f->addr);
		if (!f->live)
			a->pinned -= f->size;
		if (slot != CLV_SLOT_ANY)
			set_busy(a, f, slot, seq, slot);
	}
	mark_whole(a, live, addr, end);
	return join_hole(a, live);
}

/* ---- frames come and go ---- */

static struct clv_extent *new_rest(struct clv_arena *a, const struct clv_extent *of, uint64_t addr, uint64_t size)
{
	struct clv_extent *rest = new_extent(a, addr, size, (enum clv_extent_kind)of->kind);
	rest->slot = of->slot;
	if (of->kind == CLV_HOLE)
		rest->hole.seq = of->hole.seq;
	return rest;
}

/* Cuts [addr, addr + size) out of a gap or a hole that is out of its index; what is left on both sides keeps the kind, and
 * the larger side the record, which its frames know. The record of the piece is returned, of no kind yet; the rests are not
 * indexed. */
static struct clv_extent *cut_out(struct clv_arena *a, struct clv_extent *e, uint64_t addr, uint64_t size,
				  struct clv_extent *rests[2])
{
	uint64_t start = e->addr, left = addr - start, right = clv_extent_end(e) - (addr + size);
	rests[0] = rests[1] = NULL;
	if (!left && !right)
		return e;
	struct clv_extent *piece = new_extent(a, addr, size, (enum clv_extent_kind)e->kind);
	if (right > left) {
		rests[1] = e;
		e->addr = addr + size;
		e->size = right;
		link_before(a, piece, e);
		if (left) {
			rests[0] = new_rest(a, e, start, left);
			link_before(a, rests[0], piece);
		}
	} else {
		rests[0] = e;
		e->size = left;
		link_after(piece, e);
		if (right) {
			rests[1] = new_rest(a, e, addr + size, right);
			link_after(rests[1], piece);
		}
	}
	return piece;
}

struct clv_extent *clv_space_add_frame(struct clv_arena *a, struct clv_extent *gap, struct clv_frame *f, uint32_t slot)
{
	struct clv_extent *rests[2];
	clv_bin_remove(&a->gaps, &gap->gap.node);
	struct clv_extent *hole = cut_out(a, gap, f->addr, f->size, rests);
	for (int i = 0; i < 2; i++)
		if (rests[i])
			index_gap(a, rests[i]);
	hole->kind = CLV_HOLE;
	hole->slot = slot;
	memset(&hole->hole, 0, sizeof(hole->hole));
	hole->hole.seq = f->busy_slot == slot ? f->busy_seq : 0;
	set_whole(a, f, hole);
	return join_hole(a, hole);
}

struct clv_extent *clv_space_close_gap(struct clv_arena *a, struct clv_extent *gap, uint64_t addr, uint64_t size)
{
	struct clv_extent *rests[2];
	clv_bin_remove(&a->gaps, &gap->gap.node);
	struct clv_extent *piece = cut_out(a, gap, addr, size, rests);
	for (int i = 0; i < 2; i++)
		if (rests[i])
			index_gap(a, rests[i]);
	piece->kind = CLV_LINGER;
	memset(&piece->linger, 0, sizeof(piece->linger));
	return piece;
}

struct clv_extent *clv_space_remove_frame(struct clv_arena *a, struct clv_frame *f, enum clv_extent_kind kind)
{
	struct clv_extent *hole = f->hole, *rests[2];
	uint64_t addr = f->addr, size = f->size;
	unset_whole(a, f);
	unindex_hole(a, hole);
	struct clv_extent *piece = cut_out(a, hole, addr, size, rests);
	for (int i = 0; i < 2; i++)
		if (rests[i]) {
			if (rests[i] != hole)
				mark_whole(a, rests[i], rests[i]->addr, clv_extent_end(rests[i]));
			index_hole(a, rests[i]);
		}
	piece->kind = (uint8_t)kind;
	if (kind == CLV_GAP) {
		memset(&piece->gap, 0, sizeof(piece->gap));
		return join_gap(a, piece);
	}
	memset(&piece->linger, 0, sizeof(piece->linger));
	return piece;
}

void clv_space_end_linger(struct clv_arena *a, struct clv_extent *linger)
{
	linger->kind = CLV_GAP;
	memset(&linger->gap, 0, sizeof(linger->gap));
	join_gap(a, linger);
}

/* Part of a hole is about to become that of another slot. */
static void tell_ready(struct clv_arena *a, const struct clv_extent *hole, uint64_t addr, uint64_t size, uint32_t slot)
{
	if (slot == CLV_SLOT_ANY && hole->slot != slot)
		CLV_TELL(a, READY, CLEAVE_STREAM_ANY, .addr = addr, .size = size, .other = slot_of(a, hole)->stream);
}

struct clv_extent *clv_space_retag(struct clv_arena *a, struct clv_extent *hole, uint32_t slot, uint64_t seq)
{
	uint64_t end = clv_extent_end(hole);
	uint32_t before = hole->slot;
	unindex_hole(a, hole);
	tell_ready(a, hole, hole->addr, hole->size, slot);
	hole->slot = slot;
	hole->hole.seq = seq;
	for (struct clv_frame *f = NULL; !f || clv_frame_end(f) < end;) {
		f = clv_frame_at(a, f ? clv_frame_end(f) : hole->addr);
		if (seq)
			set_busy(a, f, slot, seq, before);
		if (f->whole_slot != CLV_SLOT_NONE) {
			unset_whole(a, f);
			set_whole(a, f, hole);
		}
	}
	return join_hole(a, hole);
}

struct clv_extent *clv_space_retag_part(struct clv_arena *a, struct clv_extent *hole, uint64_t lo, uint64_t hi, uint32_t slot)
{
	struct clv_extent *rests[2];
	if (lo == hole->addr && hi == clv_extent_end(hole))
		return clv_space_retag(a, hole, slot, 0);
	unindex_hole(a, hole);
	for (struct clv_frame *f = NULL; !f || clv_frame_end(f) < hi;) {
		f = clv_frame_at(a, f ? clv_frame_end(f) : lo);
		unset_whole(a, f);
	}
	CLV_TELL(a, CUT, slot_of(a, hole)->stream, .addr = lo, .size = hi - lo, .a = hole->addr, .b = hole->size);
	tell_ready(a, hole, lo, hi - lo, slot);
	struct clv_extent *piece = cut_out(a, hole, lo, hi - lo, rests);
	a->splits++;
	for (int i = 0; i < 2; i++)
		if (rests[i]) {
			if (rests[i] != hole)
				mark_whole(a, rests[i], rests[i]->addr, clv_extent_end(rests[i]));
			index_hole(a, rests[i]);
		}
	piece->slot = slot;
	memset(&piece->hole, 0, sizeof(piece->hole));
	mark_whole(a, piece, lo, hi);
	return join_hole(a, piece);
}

/* ---- live extents by address ---- */

bool clv_space_reserve_block(struct clv_arena *a)
{
	if (a->blocks && a->block_count <= a->block_mask)
		return true;
	uint64_t room = a->blocks ? (a->block_mask + 1) * 2 : 1024;
	struct clv_extent **blocks = clv_meta_zalloc(room * sizeof(struct clv_extent *));
	if (!blocks)
		return a->blocks != NULL; /* longer chains are slower, not wrong */
	for (uint64_t i = 0; a->blocks && i <= a->block_mask; i++)
		for (struct clv_extent *e = a->blocks[i], *next; e; e = next) {
			next = e->live.hash_next;
			struct clv_extent **bucket = &blocks[clv_mix64(e->addr) & (room - 1)];
			e->live.hash_next = *bucket;
			*bucket = e;
		}
	clv_meta_free(a->blocks);
	a->blocks = blocks;
	a->block_mask = room - 1;
	return true;
}

struct clv_extent *clv_space_lookup(const struct clv_arena *a, uint64_t addr)
{
	if (!a->blocks)
		return NULL;
	struct clv_extent *e = a->blocks[clv_mix64(addr) & a->block_mask];
	while (e && e->addr != addr)
		e = e->live.hash_next;
	return e;
}

struct clv_extent *clv_space_containing(const struct clv_arena *a, uint64_t addr)
{
	/* the nearest block that begins at or below addr decides; a block may begin many frames earlier */
	struct clv_frame *f = clv_frame_at(a, addr);
	while (f && f->live) {
		struct clv_extent *nearest = NULL;
		for (struct clv_extent *e = f->starts; e; e = e->live.frame_next)
			if (e->addr <= addr && (!nearest || e->addr > nearest->addr))
				nearest = e;
		if (nearest)
			return addr < clv_extent_end(nearest) ? nearest : NULL;
		f = clv_frame_at(a, f->addr - 1);
	}
	return NULL;
}
