/* SPDX-License-Identifier: MIT
 *
 * One walk over everything an arena has, against its books and the invariants at the top of each module.
 */
#include "arena.h"
#include "cache.h"
#include "frames.h"
#include "recent.h"
#include "reserve.h"
#include "slab.h"
#include "space.h"
#include "streams.h"

#include <inttypes.h>

struct sums {
	uint64_t used, live, kept, holes, gaps, lingers, chunks, reserved;
	uint64_t hole_bytes;
};

static bool check_hole(const struct clv_arena *a, const struct clv_extent *e, struct clv_error *err)
{
	if (e->slot >= a->slot_count || !a->slots[e->slot]->holes)
		return clv_error_set(err, "space: the hole at %#" PRIx64 " is of no slot", e->addr);
	const struct clv_frame *first = clv_frame_at(a, e->addr), *last = clv_frame_at(a, clv_extent_end(e) - 1);
	if (!first || !last)
		return clv_error_set(err, "space: the hole at %#" PRIx64 " has no frame under it", e->addr);
	bool covers_first = first->addr >= e->addr && clv_frame_end(first) <= clv_extent_end(e);
	bool covers_last = last->addr >= e->addr && clv_frame_end(last) <= clv_extent_end(e);
	uint64_t left = covers_first ? 0 : clv_min_u64(clv_frame_end(first), clv_extent_end(e)) - e->addr;
	uint64_t right = covers_last || last == first ? 0 : clv_extent_end(e) - last->addr;
	if (!clv_bin_indexed(&e->hole.total) || e->hole.total.size != e->size || e->hole.total.owner != e)
		return clv_error_set(err, "space: the hole at %#" PRIx64 " is not indexed with its size", e->addr);
	if (clv_bin_indexed(&e->hole.left) != (left != 0) || (left && e->hole.left.size != left))
		return clv_error_set(err, "space: the left part of the hole at %#" PRIx64 " is not indexed", e->addr);
	if (clv_bin_indexed(&e->hole.right) != (right != 0) || (right && e->hole.right.size != right))
		return clv_error_set(err, "space: the right part of the hole at %#" PRIx64 " is not indexed", e->addr);
	return true;
}

static bool check_extent(const struct clv_arena *a, const struct clv_extent *e, struct sums *s, struct clv_error *err)
{
	bool pages = e->addr % CLV_PAGE == 0 && e->size % CLV_PAGE == 0;
	if (!e->size || e->addr % CLV_GRAIN || e->size % CLV_GRAIN)
		return clv_error_set(err, "space: the extent at %#" PRIx64 " is not of whole grains", e->addr);
	if (e->prev && (clv_extent_end(e->prev) != e->addr || e->prev->next != e))
		return clv_error_set(err, "space: the extent at %#" PRIx64 " does not follow the one before it", e->addr);
	if (e->prev && e->prev->kind == e->kind &&
	    (e->kind == CLV_GAP || (e->kind == CLV_HOLE && e->slot == e->prev->slot)))
		return clv_error_set(err, "space: the extents that meet at %#" PRIx64 " should be one", e->addr);
	switch (e->kind) {
	case CLV_GAP:
		if (!pages || !clv_bin_indexed(&e->gap.node) || e->gap.node.size != e->size)
			return clv_error_set(err, "space: the gap at %#" PRIx64 " is not of pages or not indexed", e->addr);
		s->gaps++;
		break;
	case CLV_LINGER:
		if (!pages)
			return clv_error_set(err, "space: what lingers at %#" PRIx64 " is not of pages", e->addr);
		s->lingers++;
		break;
	case CLV_HOLE:
		s->holes++;
		s->hole_bytes += e->size;
		if (!check_hole(a, e, err))
			return false;
		break;
	case CLV_LIVE:
		s->used += e->kept ? 0 : e->size;
		s->kept += e->kept ? e->size : 0;
		s->live++;
		s->chunks += e->chunk;
		s->reserved += clv_extent_is_reserved(e);
		if (!e->live.requested != (e->chunk || clv_extent_is_reserved(e)))
			return clv_error_set(err, "space: the block at %#" PRIx64 " is of nobody, or held back in use", e->addr);
		if (clv_space_lookup(a, e->addr) != e || clv_space_containing(a, clv_extent_end(e) - 1) != e)
			return clv_error_set(err, "space: the block at %#" PRIx64 " cannot be found", e->addr);
		break;
	default:
		return clv_error_set(err, "space: an extent of no known kind at %#" PRIx64, e->addr);
	}
	bool mapped = e->kind == CLV_LIVE || e->kind == CLV_HOLE;
	for (uint64_t at = e->addr; at < clv_extent_end(e);) {
		const struct clv_frame *f = clv_frame_at(a, at);
		if (mapped != (f != NULL))
			return clv_error_set(err, "space: the page at %#" PRIx64 " is %s", at, f ? "mapped under nothing" : "not mapped");
		if (f) {
			at = clv_frame_end(f);
			continue;
		}
		/* of what is not mapped, the pages near both ends and a sample of the rest */
		bool near = at - e->addr < 64 * CLV_PAGE || clv_extent_end(e) - at <= 64 * CLV_PAGE;
		uint64_t skip = near ? CLV_PAGE : clv_max_u64(e->size / 256, CLV_PAGE);
		at = clv_align_down(clv_min_u64(at + skip, clv_max_u64(at + CLV_PAGE, clv_extent_end(e) - 64 * CLV_PAGE)), CLV_PAGE);
	}
	return true;
}

static bool check_frames(const struct clv_arena *a, struct clv_error *err)
{
	uint64_t held = 0, pinned = 0, whole = 0, count = 0, coarse = 0;
	for (const struct clv_frame *f = a->loose; f; f = f->next)
		held += f->size;
	if (held != a->loose_bytes)
		return clv_error_set(err, "frames: %" PRIu64 " bytes are loose, not %" PRIu64, held, a->loose_bytes);
	for (const struct clv_frame *f = a->frames; f; f = f->next) {
		count++;
		held += f->size;
		coarse += f->coarse ? f->size : 0;
		if (clv_frame_at(a, f->addr) != f || clv_frame_at(a, clv_frame_end(f) - 1) != f)
			return clv_error_set(err, "frames: the pagemap does not know the frame at %#" PRIx64, f->addr);
		if (f->live)
			pinned += f->size;
		bool is_whole = f->whole_slot != CLV_SLOT_NONE;
		if (is_whole != clv_bin_indexed(&f->whole) || (is_whole && f->live))
			return clv_error_set(err, "frames: the frame at %#" PRIx64 " is whole and pinned, or not indexed", f->addr);
		if (is_whole) {
			const struct clv_extent *h = f->hole;
			whole += f->size;
			if (h->kind != CLV_HOLE || h->slot != f->whole_slot || h->addr > f->addr || clv_extent_end(h) < clv_frame_end(f))
				return clv_error_set(err, "frames: the hole of the frame at %#" PRIx64 " does not cover it", f->addr);
		}
		if (f->busy_slot >= a->slot_count)
			return clv_error_set(err, "frames: the frame at %#" PRIx64 " waits for no slot", f->addr);
	}
	if (coarse != a->coarse)
		return clv_error_set(err, "frames: %" PRIu64 " bytes of coarse frames, not %" PRIu64, coarse, a->coarse);
	uint64_t indexed = 0;
	for (uint32_t i = 0; i < a->slot_count; i++)
		indexed += a->slots[i]->whole ? a->slots[i]->whole->bytes : 0;
	if (held != a->held || pinned != a->pinned || whole != indexed || count != a->frame_count)
		return clv_error_set(err,
				     "frames: held %" PRIu64 ", pinned %" PRIu64 ", whole %" PRIu64 ", %" PRIu64
				     " frames in the books; found %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64,
				     a->held, a->pinned, indexed, a->frame_count, held, pinned, whole, count);
	return true;
}

/* Bytes of each frame that are live; whole exactly if one hole covers it. */
static bool check_cover(const struct clv_arena *a, struct clv_error *err)
{
	for (const struct clv_range *r = a->ranges; r; r = r->next) {
		const struct clv_extent *e = r->first;
		const struct clv_frame *cur = NULL;
		uint64_t live = 0;
		for (; e; e = e->next) {
			if (e->kind != CLV_LIVE && e->kind != CLV_HOLE)
				continue;
			for (uint64_t at = e->addr; at < clv_extent_end(e);) {
				const struct clv_frame *f = clv_frame_at(a, at);
				if (f != cur) {
					if (cur && live != cur->live)
						return clv_error_set(err, "frames: the frame at %#" PRIx64 " has %" PRIu64
								     " live bytes, not %" PRIu64, cur->addr, live, cur->live);
					cur = f;
					live = 0;
				}
				uint64_t end = clv_min_u64(clv_frame_end(f), clv_extent_end(e));
				if (e->kind == CLV_LIVE)
					live += end - at;
				bool covered = e->kind == CLV_HOLE && e->addr <= f->addr && clv_extent_end(e) >= clv_frame_end(f);
				if (covered != (f->whole_slot != CLV_SLOT_NONE) && (covered || f->hole == e))
					return clv_error_set(err, "frames: the frame at %#" PRIx64 " is covered but not whole", f->addr);
				at = end;
			}
		}
		if (cur && live != cur->live)
			return clv_error_set(err, "frames: the last frame has %" PRIu64 " live bytes, not %" PRIu64, live, cur->live);
	}
	return true;
}

static bool check_slots(const struct clv_arena *a, const struct sums *s, struct clv_error *err)
{
	uint64_t holes = 0, lingers = 0;
	uint32_t ended = 0;
	for (uint32_t i = 0; i < a->slot_count; i++) {
		const struct clv_slot *slot = a->slots[i];
		const struct clv_binmap *maps[] = {slot->holes, slot->parts, slot->whole};
		for (size_t k = 0; slot->holes && k < CLV_ARRAY_LEN(maps); k++) {
			const char *broken = clv_binmap_check(maps[k]);
			if (broken)
				return clv_error_set(err, "%s (slot %u)", broken, i);
		}
		holes += slot->holes ? slot->holes->count : 0;
		if (slot->completed > slot->recorded_seq || slot->recorded_seq > slot->seq)
			return clv_error_set(err, "streams: slot %u has completed what it has not recorded", i);
		if (slot->ended && (!slot->used || slot->recorded_seq != slot->seq))
			return clv_error_set(err, "streams: slot %u has ended, and no event covers what was freed on it", i);
		ended += slot->ended;
		uint64_t seq = slot->completed;
		for (unsigned k = 0; k < slot->count; k++) {
			uint64_t next = slot->events[(slot->first + k) % CLV_SLOT_EVENTS].seq;
			if (next < seq || (next == seq && k) || next > slot->recorded_seq)
				return clv_error_set(err, "streams: the events of slot %u do not rise", i);
			seq = next;
		}
		for (const struct clv_extent *e = slot->lingers; e; e = e->linger.next) {
			lingers++;
			if (e->kind != CLV_LINGER || e->slot != i || !e->linger.frame->lingers)
				return clv_error_set(err, "streams: slot %u ends what does not linger", i);
		}
	}
	if (ended != a->slots_ended)
		return clv_error_set(err, "streams: %u slots have ended, not %u", ended, a->slots_ended);
	if (holes != s->holes || lingers != s->lingers)
		return clv_error_set(err, "streams: %" PRIu64 " holes and %" PRIu64 " lingering in the slots, %" PRIu64 " and %" PRIu64
				     " in the ranges", holes, lingers, s->holes, s->lingers);
	return true;
}

bool clv_arena_check(struct clv_arena *a, struct clv_error *err)
{
	struct sums s = {0};
	for (const struct clv_range *r = a->ranges; r; r = r->next) {
		uint64_t at = r->addr;
		for (const struct clv_extent *e = r->first; e; e = e->next) {
			if (e->addr != at)
				return clv_error_set(err, "space: the extents do not tile the range at %#" PRIx64, r->addr);
			at = clv_extent_end(e);
			if (!check_extent(a, e, &s, err))
				return false;
		}
		if (at != r->addr + r->size)
			return clv_error_set(err, "space: the extents end before the range at %#" PRIx64, r->addr);
	}
	if (s.used != a->used || s.live != a->live_count || s.holes != a->hole_count || s.gaps != a->gaps.count ||
	    s.chunks != a->chunk_count || s.live != a->block_count)
		return clv_error_set(err, "space: used %" PRIu64 ", %" PRIu64 " blocks, %" PRIu64 " holes in the books; found %" PRIu64
				     ", %" PRIu64 ", %" PRIu64, a->used, a->live_count, a->hole_count, s.used, s.live, s.holes);
	const char *broken = clv_binmap_check(&a->gaps);
	if (broken)
		return clv_error_set(err, "%s (gaps)", broken);
	if (!check_frames(a, err) || !check_cover(a, err) || !check_slots(a, &s, err))
		return false;
	if (a->used + s.kept + s.hole_bytes + a->loose_bytes != a->held)
		return clv_error_set(err, "held %" PRIu64 " is not used %" PRIu64 " + kept %" PRIu64 " + holes %" PRIu64 " + loose %" PRIu64,
				     a->held, a->used, s.kept, s.hole_bytes, a->loose_bytes);
	broken = clv_recent_check(a);
	if (broken)
		return clv_error_set(err, "%s", broken);
	if (s.kept != a->recent.bytes)
		return clv_error_set(err, "recent: %" PRIu64 " bytes are kept, not %" PRIu64, s.kept, a->recent.bytes);
	broken = clv_reserve_check(a);
	if (broken)
		return clv_error_set(err, "%s", broken);
	if (s.reserved != a->reserve_slots)
		return clv_error_set(err, "reserve: %" PRIu64 " slots are held back, not %" PRIu64, s.reserved, a->reserve_slots);
	uint64_t taken;
	broken = clv_slabs_check(a, &taken);
	if (broken)
		return clv_error_set(err, "%s", broken);
	if (taken != a->slabs_taken)
		return clv_error_set(err, "slab: %" PRIu64 " bytes of slots are out, not %" PRIu64, taken, a->slabs_taken);
	return true;
}
