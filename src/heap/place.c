/* SPDX-License-Identifier: MIT */
#include "place.h"

#include "frames.h"
#include "purchase.h"
#include "reclaim.h"
#include "space.h"

#define LARGER_HOLES 32 /* candidates from each index */
#define SMALLER_HOLES 96
#define LEFT_OVER_WEIGHT 96 /* of a byte left over, in a pinned byte */
/* Where waste counts, on a large device that is nearly full, in pinned bytes: */
#define LOW_LEFT_OVER_MOST (8 * CLV_MIB) /* large holes are as good as others */
#define LOW_SPLIT_WEIGHT (4 * CLV_MIB)   /* of a window that makes two holes of one */
#define LOW_RIGHT_WEIGHT (4 * CLV_MIB)   /* of one that leaves the left of its hole over, for a large request */
#define LOW_BETWEEN_WEIGHT (8 * CLV_MIB) /* of a small block in a hole between large ones */
#define LARGE_REQUEST (8 * CLV_MIB)
#define APART_WEIGHT 2 /* of a byte of a block that would lie apart from those before it: more than what is bought for it */
#define PARTS_LOOKED_AT 16
#define BESIDE_OF_CAP 256 /* of a large device, once so much of what it has would be held */
#define WALK_LIMIT 512 /* extents under one window */

struct search {
	struct clv_arena *a;
	const struct clv_request *rq;
	struct clv_window *windows;
	unsigned count;
	bool only_first; /* windows has room for one: the cheapest */
	bool knows_least;
	uint64_t least; /* what a purchase brings at least, once asked for */
	struct clv_cutting cutting;
	uint64_t unfinished; /* of the window that is looked at */
};

/* What a window that costs more than this is worth: nothing. */
static uint64_t most_cost(const struct search *s)
{
	return s->only_first && s->count ? s->windows[0].cost : UINT64_MAX;
}

static struct clv_extent *live_below(struct clv_extent *e)
{
	while (e && e->kind != CLV_LIVE)
		e = e->prev;
	return e;
}

/* Keeps the windows sorted; the dearest falls out. Of two that are equal in cost and address the one that came first stays
 * first. */
static void keep(struct search *s, struct clv_window w)
{
	if (s->only_first) {
		const struct clv_window *first = s->windows;
		if (!s->count || w.cost < first->cost || (w.cost == first->cost && w.addr < first->addr))
			s->windows[0] = w;
		s->count = 1;
		return;
	}
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

static uint64_t indexed_size(const struct clv_bin_node *n)
{
	return clv_bin_indexed(n) ? n->size : 0;
}

bool clv_place_cuts(const struct clv_frame *f, uint64_t addr, uint64_t end, struct clv_cutting how)
{
	if (f->size <= how.most || f->whole_slot == CLV_SLOT_NONE)
		return false;
	if (how.own_ends)
		return f->addr < clv_align_up(addr, CLV_PAGE) || clv_frame_end(f) > clv_align_down(end, CLV_PAGE);
	uint64_t lo = clv_max_u64(clv_align_down(addr, CLV_PAGE), f->addr),
		 hi = clv_min_u64(clv_align_up(end, CLV_PAGE), clv_frame_end(f));
	return f->size - (hi - lo) > how.most;
}

static inline bool cuts_now(struct search *s, const struct clv_frame *f, uint64_t addr, uint64_t end)
{
	if (CLV_LIKELY(!clv_place_cuts(f, addr, end, s->cutting)))
		return false;
	if (clv_frame_complete(s->a, f))
		return true;
	if (s->cutting.own_ends && !f->lingers && f->busy_slot == s->rq->slot->index)
		s->unfinished = clv_max_u64(s->unfinished, f->busy_seq);
	return false;
}

/* Bytes of the whole frames under [lo, hi), a piece of the hole; pages of those that are to be cut count as missing
 * instead. All frames of a hole are whole but those at its ends that it shares, and these end where its parts do: so the
 * whole ones are one run, and need not be walked. */
static uint64_t pins(struct search *s, const struct clv_extent *hole, uint64_t lo, uint64_t hi, uint64_t *missing)
{
	const struct clv_arena *a = s->a;
	uint64_t start = lo, end = hi;
	uint64_t first = hole->addr + indexed_size(&hole->hole.left);
	uint64_t last = clv_extent_end(hole) - indexed_size(&hole->hole.right);
	lo = clv_max_u64(lo, first);
	hi = clv_min_u64(hi, last);
	if (lo >= hi)
		return 0;
	uint64_t from = first, to = last;
	if (lo != first) {
		struct clv_frame *f = clv_frame_at(a, lo);
		from = f->addr;
		if (cuts_now(s, f, start, end)) {
			from = clv_frame_end(f);
			*missing += clv_min_u64(from, clv_align_up(end, CLV_PAGE)) - clv_align_down(lo, CLV_PAGE);
		}
	}
	if (hi != last) {
		struct clv_frame *f = clv_frame_at(a, hi - 1);
		to = clv_frame_end(f);
		if (from < to && cuts_now(s, f, start, end)) {
			to = f->addr;
			*missing += clv_align_up(end, CLV_PAGE) - clv_max_u64(to, clv_align_down(lo, CLV_PAGE));
		}
	}
	return to > from ? to - from : 0;
}

static bool free_for(const struct search *s, const struct clv_extent *e)
{
	return e->kind == CLV_GAP || (e->kind == CLV_HOLE && clv_hole_usable(e, s->rq->slot));
}

/* At least what a window costs of which so much is known; its cost rises with each of its parts. What a purchase brings at
 * least is left out: to find that out takes longer than to look at a window. */
static uint64_t bound_of(const struct search *s, uint64_t pinned, uint64_t missing)
{
	return missing ? pinned + clv_purchase_weight(s->a, missing) : pinned;
}

static uint64_t cost_of(struct search *s, uint64_t pinned, uint64_t missing, uint64_t left_over)
{
	if (!missing)
		return pinned + clv_min_u64(left_over / LEFT_OVER_WEIGHT, s->cutting.low ? LOW_LEFT_OVER_MOST : UINT64_MAX);
	if (!s->knows_least) {
		s->least = clv_purchase_least(s->a, s->rq);
		s->knows_least = true;
	}
	return pinned + clv_purchase_weight(s->a, clv_max_u64(missing, s->least));
}

static bool is_large_block(const struct clv_extent *e)
{
	return e && e->kind == CLV_LIVE && e->size >= LARGE_REQUEST;
}

/* Between large blocks another one was, or will be: the next of its size fits such a hole to the byte, with the frames
 * that it shares at its ends, unless small blocks have been put there. */
static bool is_between_large(const struct search *s, const struct clv_extent *hole)
{
	return s->cutting.low && s->rq->size < LARGE_REQUEST && hole->size >= LARGE_REQUEST && is_large_block(hole->prev) &&
	       is_large_block(hole->next);
}

/* The cost of a window in one hole where waste counts; `left` and `right` are what it leaves over there. A large request
 * takes the pages that it needs, in frames of whatever size: what counts more than few pinned frames is that the rest of
 * the hole stays in one piece with what will be free beside it. Programs go through large blocks in the order in which
 * they made them, which is that of addresses. So holes are filled from the left. */
static uint64_t low_cost(struct search *s, const struct clv_extent *hole, uint64_t pinned, uint64_t missing,
			 uint64_t left, uint64_t right)
{
	uint64_t size = s->rq->size, align = s->rq->align, cost;
	if (size >= LARGE_REQUEST)
		cost = cost_of(s, clv_min_u64(pinned + missing, clv_align_up(size, CLV_PAGE)), 0, left + right) +
		       (left >= align ? LOW_RIGHT_WEIGHT : 0);
	else if (pinned) /* of a hole that small blocks fill up, half of one is left over: little of a large hole */
		cost = cost_of(s, pinned, missing, 0) + pinned * (size / 2) / hole->size;
	else
		cost = cost_of(s, pinned, missing, left + right);
	if (left >= align && right >= align)
		cost += LOW_SPLIT_WEIGHT;
	if (is_between_large(s, hole))
		cost += LOW_BETWEEN_WEIGHT;
	return cost;
}

/* A window at addr that lies in one hole. */
static void consider_in(struct search *s, struct clv_extent *hole, uint64_t addr)
{
	s->unfinished = 0;
	uint64_t missing = 0, pinned = pins(s, hole, addr, addr + s->rq->size, &missing);
	uint64_t left = addr - hole->addr, right = hole->size - s->rq->size - left;
	uint64_t cost = s->cutting.low ? low_cost(s, hole, pinned, missing, left, right)
			       : cost_of(s, pinned, missing, left + right);
	if (!s->cutting.low && s->cutting.own_ends && (s->unfinished || left + right >= CLV_PAGE))
		cost += s->rq->size * APART_WEIGHT;
	if (cost <= most_cost(s))
		keep(s, (struct clv_window){addr, missing, cost, hole, missing ? NULL : hole, s->unfinished});
}

/* A window at addr, which lies in the extent e, over all that it touches. */
static void consider(struct search *s, struct clv_extent *e, uint64_t addr)
{
	uint64_t end = addr + s->rq->size, missing = 0, pinned = 0, most = most_cost(s);
	s->unfinished = 0;
	struct clv_extent *cur = e;
	for (int walked = 0;; cur = cur->next) {
		if (!cur || ++walked > WALK_LIMIT)
			return;
		uint64_t lo = clv_max_u64(addr, cur->addr), hi = clv_min_u64(end, clv_extent_end(cur));
		if (cur->kind == CLV_GAP)
			missing += clv_align_up(hi, CLV_PAGE) - clv_align_down(lo, CLV_PAGE);
		else if (cur->kind == CLV_HOLE && clv_hole_usable(cur, s->rq->slot))
			pinned += pins(s, cur, lo, hi, &missing);
		else
			return;
		if (bound_of(s, pinned, missing) > most)
			return;
		if (hi == end)
			break;
	}
	uint64_t cost = cost_of(s, pinned, missing, 0);
	if (cost <= most)
		keep(s, (struct clv_window){addr, missing, cost, e, NULL, s->unfinished});
}

static void at_left(struct search *s, struct clv_extent *hole)
{
	consider_in(s, hole, clv_align_up(hole->addr, s->rq->align));
}

static void at_right(struct search *s, struct clv_extent *hole)
{
	uint64_t addr = clv_align_down(clv_extent_end(hole) - s->rq->size, s->rq->align);
	if (addr >= hole->addr && addr + s->rq->size <= clv_extent_end(hole))
		consider_in(s, hole, addr);
}

/* A window that ends where the hole ends and begins in what is free before it. */
static void before_end(struct search *s, struct clv_extent *hole)
{
	if (clv_extent_end(hole) < s->rq->size)
		return;
	uint64_t addr = clv_align_down(clv_extent_end(hole) - s->rq->size, s->rq->align);
	struct clv_extent *e = hole;
	uint64_t missing = 0, most = most_cost(s);
	for (int walked = 0; e && addr < e->addr && walked < WALK_LIMIT; walked++) {
		e = e->prev;
		if (!e || !free_for(s, e))
			return;
		if (e->kind == CLV_GAP)
			missing += clv_extent_end(e) - clv_max_u64(e->addr, clv_align_down(addr, CLV_PAGE));
		if (bound_of(s, 0, missing) > most)
			return;
	}
	if (e && addr >= e->addr)
		consider(s, e, addr);
}

/* Stranded memory that fits: pins nothing, buys nothing. */
static bool in_part(struct search *s, struct clv_slot *slot)
{
	uint64_t slack = s->rq->align - CLV_GRAIN;
	struct clv_bin_node *n = clv_bin_ceil(slot->parts, s->rq->size + slack);
	for (int i = 0; n && is_between_large(s, n->owner); n = clv_bin_up(slot->parts, n, s->rq->size + slack))
		if (++i == PARTS_LOOKED_AT)
			return false;
	if (!n)
		return false;
	struct clv_extent *hole = n->owner;
	uint64_t addr;
	if (n == &hole->hole.left)
		addr = clv_align_up(hole->addr, s->rq->align);
	else
		addr = clv_align_down(clv_extent_end(hole) - s->rq->size, s->rq->align);
	keep(s, (struct clv_window){addr, 0, (n->size - s->rq->size) / LEFT_OVER_WEIGHT, hole, hole, 0});
	return true;
}

static void in_slot(struct search *s, struct clv_slot *slot)
{
	uint64_t size = s->rq->size, fitting = size + s->rq->align - CLV_GRAIN;
	if (!slot->holes->count)
		return;
	struct clv_bin_node *n = clv_bin_ceil(slot->whole, size);
	if (n) {
		struct clv_frame *f = n->owner;
		consider_in(s, f->hole, clv_align_up(f->addr, s->rq->align));
	}
	n = clv_bin_ceil(slot->holes, fitting);
	for (int i = 0; n && i < LARGER_HOLES; i++, n = clv_bin_up(slot->holes, n, fitting)) {
		if (cost_of(s, 0, 0, s->cutting.low && size < LARGE_REQUEST ? 0 : n->size - size) > most_cost(s))
			break; /* the next ones leave more over */
		at_left(s, n->owner);
		at_right(s, n->owner);
	}
	n = clv_bin_floor(slot->holes, size);
	for (int i = 0; n && i < SMALLER_HOLES; i++, n = clv_bin_down(slot->holes, n, size)) {
		struct clv_extent *hole = n->owner;
		/* the next ones leave more to be bought, unless they stand beside others */
		if (s->only_first && n->size < size &&
		    cost_of(s, 0, clv_align_down(size - n->size, CLV_PAGE), 0) > most_cost(s))
			break;
		uint64_t addr = clv_align_up(hole->addr, s->rq->align);
		if (s->only_first &&
		    addr + size == clv_extent_end(hole)) { /* it fits: what begins or ends there is the same */
			consider_in(s, hole, addr);
			continue;
		}
		if (hole->size >= size || (hole->next && free_for(s, hole->next)))
			consider(s, hole, addr);
		before_end(s, hole);
	}
}

/* Untouched addresses, with room on both sides into which neighbours may grow. On a large device beside what is there:
 * blocks that come one after the other share the frames in which they end, and once they are freed they are one hole. */
static void in_gap(struct search *s)
{
	uint64_t size = clv_align_up(s->rq->size, CLV_PAGE);
	if (bound_of(s, 0, size) > most_cost(s))
		return;
	struct clv_bin_node *n = clv_bin_floor(&s->a->gaps, UINT64_MAX);
	if (!n || n->size < size) {
		if (!clv_space_grow(s->a, size))
			return;
		n = clv_bin_floor(&s->a->gaps, UINT64_MAX);
	}
	struct clv_extent *gap = n->owner;
	uint64_t room = clv_min_u64(s->a->spacing, clv_align_down((gap->size - size) / 2, CLV_PAGE));
	if (s->cutting.most != UINT64_MAX && gap->prev && s->a->held + size > clv_reclaim_cap(s->a) / BESIDE_OF_CAP)
		room = 0;
	consider(s, gap, gap->addr + room);
}

static void search(struct search *s)
{
	s->cutting = clv_purchase_cutting(s->a, s->rq);
	struct clv_slot *any = s->a->slots[CLV_SLOT_ANY];
	bool own = s->rq->slot != any && !s->rq->slot->apart; /* and everybody's */
	bool found = in_part(s, s->rq->slot);
	if (own)
		found |= in_part(s, any);
	if (found)
		return;
	in_slot(s, s->rq->slot);
	if (own)
		in_slot(s, any);
	in_gap(s);
}

unsigned clv_place(struct clv_arena *a, const struct clv_request *rq, struct clv_window *windows)
{
	struct search s = {.a = a, .rq = rq, .windows = windows};
	search(&s);
	for (unsigned i = 0; i < s.count; i++)
		windows[i].anchor = live_below(windows[i].anchor);
	return s.count;
}

bool clv_place_hit(struct clv_arena *a, const struct clv_request *rq, struct clv_window *window)
{
	struct search s = {.a = a, .rq = rq, .windows = window, .only_first = true};
	window->unfinished = 0;
	search(&s);
	return s.count && window->hole && window->hole->slot == rq->slot->index;
}
