/* SPDX-License-Identifier: MIT */
#include "plane.h"

#include "../memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

bool clv_plane_key(struct clv_plane *p, uint64_t addr)
{
	struct clv_map_slot *slot = clv_map_slot(&p->ranks, addr);
	if (slot && slot->value != CLV_MAP_NONE)
		return true;
	if (!slot || p->key_count >= CLV_RANK_NONE - 2 ||
	    !clv_mem_reserve(&p->keys, &p->key_cap, (size_t)p->key_count + 1, sizeof(*p->keys))) {
		p->broken = true;
		return false;
	}
	slot->value = 0;
	p->keys[p->key_count++] = addr;
	return true;
}

bool clv_plane_ready(struct clv_plane *p)
{
	uint32_t n = p->key_count;
	if (n)
		qsort(p->keys, n, sizeof(*p->keys), by_value);
	for (uint32_t i = 0; i < n; i++)
		clv_map_probe(&p->ranks, p->keys[i])->value = i;
	p->pieces = clv_mem_realloc(NULL, (size_t)n + 1, sizeof(*p->pieces));
	p->frame_at = clv_mem_realloc(NULL, (size_t)n + 1, sizeof(*p->frame_at));
	if (p->broken || !p->pieces || !p->frame_at || !clv_rankset_init(&p->starts, n) ||
	    !clv_rankset_init(&p->frame_starts, n) || !clv_rankset_init(&p->run_begins, n) ||
	    !clv_rankset_init(&p->run_ends, n))
		p->broken = true;
	return !p->broken;
}

void clv_plane_reset(struct clv_plane *p)
{
	clv_rankset_clear(&p->starts);
	clv_rankset_clear(&p->frame_starts);
	clv_rankset_clear(&p->run_begins);
	clv_rankset_clear(&p->run_ends);
	p->frame_count = 0;
	p->unmapped = p->mapped_frames = 0;
	p->sum = (struct clv_report_sum){0};
}

void clv_plane_free(struct clv_plane *p)
{
	clv_mem_free(p->keys);
	clv_map_free(&p->ranks);
	clv_rankset_free(&p->starts);
	clv_rankset_free(&p->frame_starts);
	clv_rankset_free(&p->run_begins);
	clv_rankset_free(&p->run_ends);
	clv_mem_free(p->pieces);
	clv_mem_free(p->frame_at);
	clv_mem_free(p->frames);
	clv_mem_free(p->records);
	*p = (struct clv_plane){NULL};
}

uint32_t clv_plane_rank(const struct clv_plane *p, uint64_t addr)
{
	return clv_map_get(&p->ranks, addr);
}

uint32_t clv_plane_rank_from(const struct clv_plane *p, uint64_t addr)
{
	uint32_t lo = 0, hi = p->key_count;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (p->keys[mid] < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* ---- the sums ---- */

/* What a frame adds to hard or soft, in (+1) or out (-1). Unsigned arithmetic wraps, and comes back. */
static void weigh_frame(struct clv_plane *p, const struct clv_plane_frame *f, bool in)
{
	uint64_t bytes = p->keys[f->end] - p->keys[f->begin] - f->used;
	p->sum.of[f->occupied ? CLV_CAUSE_HARD : CLV_CAUSE_SOFT] += in ? bytes : -bytes;
}

static uint64_t piece_live(const struct clv_plane *p, uint32_t begin, uint32_t end, uint64_t live_end)
{
	uint64_t from = p->keys[begin], to = p->keys[end];
	return live_end <= from ? 0 : clv_min_u64(to, live_end) - from;
}

/* The bytes of [begin, end) of a piece come or go, in every frame that they lie in. */
static void weigh_piece(struct clv_plane *p, uint32_t begin, uint32_t end, const struct clv_plane_piece *piece, bool in)
{
	uint64_t bytes = p->keys[end] - p->keys[begin], outside = bytes;
	uint64_t live = piece->kind == CLV_PLANE_LIVE ? piece_live(p, begin, end, piece->live_end) : 0;
	switch ((enum clv_plane_kind)piece->kind) {
	case CLV_PLANE_LIVE:
		p->sum.of[CLV_CAUSE_LIVE] += in ? live : -live;
		p->sum.of[CLV_CAUSE_INTERNAL] += in ? bytes - live : live - bytes;
		break;
	case CLV_PLANE_PENDING:
		p->sum.of[CLV_CAUSE_STREAM] += in ? bytes : -bytes;
		break;
	case CLV_PLANE_HELD:
		p->sum.of[CLV_CAUSE_RESERVATION] += in ? bytes : -bytes;
		break;
	}
	uint32_t at = clv_plane_frame_of(p, begin);
	uint32_t start = at == CLV_RANK_NONE ? clv_rankset_next(&p->frame_starts, begin) : p->frames[at].begin;
	while (start < end) { /* CLV_RANK_NONE is above any rank */
		struct clv_plane_frame *f = &p->frames[p->frame_at[start]];
		uint64_t part = p->keys[f->end < end ? f->end : end] - p->keys[f->begin > begin ? f->begin : begin];
		weigh_frame(p, f, false);
		f->used += in ? part : -part;
		if (piece->kind != CLV_PLANE_PENDING)
			f->occupied += in ? part : -part;
		weigh_frame(p, f, true);
		outside -= part;
		start = clv_rankset_next(&p->frame_starts, f->end);
	}
	p->sum.held += in ? outside : -outside;
}

/* ---- who is told ---- */

static void tell_changed(const struct clv_plane *p, uint32_t begin, uint32_t end)
{
	if (p->watch && p->watch->changed)
		p->watch->changed(p->watch, begin, end);
}

static void tell_mapped(const struct clv_plane *p, uint32_t frame, bool there)
{
	if (p->watch && p->watch->mapped)
		p->watch->mapped(p->watch, &p->records[frame], there);
	tell_changed(p, p->frames[frame].begin, p->frames[frame].end);
}

/* ---- pieces ---- */

uint32_t clv_plane_first(const struct clv_plane *p, uint32_t rank)
{
	uint32_t before = clv_rankset_prev(&p->starts, rank);
	if (before != CLV_RANK_NONE && p->pieces[before].end > rank)
		return before;
	return clv_rankset_next(&p->starts, rank);
}

void clv_plane_take(struct clv_plane *p, uint32_t begin, uint32_t end, unsigned kinds, uint32_t owner)
{
	for (uint32_t at = clv_plane_first(p, begin), next; at < end; at = next) {
		struct clv_plane_piece piece = p->pieces[at];
		next = clv_rankset_next(&p->starts, piece.end);
		if (!(kinds & CLV_PLANE(piece.kind)) || (owner != CLV_NO_BLOCK && piece.owner != owner))
			continue;
		uint32_t from = at > begin ? at : begin, to = piece.end < end ? piece.end : end;
		weigh_piece(p, from, to, &piece, false);
		if (from > at)
			p->pieces[at].end = from;
		else
			clv_rankset_remove(&p->starts, at);
		if (to < piece.end) {
			p->pieces[to] = piece;
			clv_rankset_add(&p->starts, to);
		}
		tell_changed(p, from, to);
	}
}

void clv_plane_put(struct clv_plane *p, uint32_t begin, uint32_t end, enum clv_plane_kind kind, uint32_t owner,
		   uint64_t live_end)
{
	if (begin >= end)
		return;
	clv_plane_take(p, begin, end, CLV_PLANE_ANY, CLV_NO_BLOCK);
	struct clv_plane_piece piece = {.end = end, .owner = owner, .live_end = live_end, .kind = (uint8_t)kind};
	p->pieces[begin] = piece;
	clv_rankset_add(&p->starts, begin);
	weigh_piece(p, begin, end, &piece, true);
	tell_changed(p, begin, end);
}

bool clv_plane_hole(const struct clv_plane *p, uint32_t rank, uint32_t *begin, uint32_t *end)
{
	uint32_t run = clv_rankset_prev(&p->run_begins, rank), stop = clv_rankset_next(&p->run_ends, rank + 1);
	if (run == CLV_RANK_NONE || clv_plane_frame_of(p, rank) == CLV_RANK_NONE)
		return false;
	uint32_t before = clv_rankset_prev(&p->starts, rank), after = clv_rankset_next(&p->starts, rank);
	if (after == rank || (before != CLV_RANK_NONE && p->pieces[before].end > rank))
		return false;
	*begin = before != CLV_RANK_NONE && p->pieces[before].end > run ? p->pieces[before].end : run;
	*end = after < stop ? after : stop;
	return true;
}

/* ---- frames ---- */

uint32_t clv_plane_frame_of(const struct clv_plane *p, uint32_t rank)
{
	uint32_t start = clv_rankset_prev(&p->frame_starts, rank);
	if (start == CLV_RANK_NONE)
		return CLV_RANK_NONE;
	uint32_t frame = p->frame_at[start];
	return p->frames[frame].end > rank ? frame : CLV_RANK_NONE;
}

uint32_t clv_plane_frame_next(const struct clv_plane *p, uint32_t frame)
{
	uint32_t start = clv_rankset_next(&p->frame_starts, frame == CLV_RANK_NONE ? 0 : p->frames[frame].end);
	return start == CLV_RANK_NONE ? CLV_RANK_NONE : p->frame_at[start];
}

/* Pages that lie side by side are one range to the allocator; segments of their own never are. */
static bool belong_together(const struct clv_report_frame *a, const struct clv_report_frame *b)
{
	return a->expandable && b->expandable && a->stream == b->stream && a->pool == b->pool && a->small == b->small;
}

/* The mapped frame that ends at this rank, or CLV_RANK_NONE. */
static uint32_t frame_before(const struct clv_plane *p, uint32_t rank)
{
	if (!rank)
		return CLV_RANK_NONE;
	uint32_t frame = clv_plane_frame_of(p, rank - 1);
	return frame != CLV_RANK_NONE && p->frames[frame].end == rank ? frame : CLV_RANK_NONE;
}

/* Says whether a run ends and another begins at a rank between frames. */
static void draw_border(struct clv_plane *p, uint32_t rank)
{
	uint32_t left = frame_before(p, rank);
	uint32_t right = clv_rankset_has(&p->frame_starts, rank) ? p->frame_at[rank] : CLV_RANK_NONE;
	bool one = left != CLV_RANK_NONE && right != CLV_RANK_NONE &&
		   belong_together(&p->records[left], &p->records[right]);
	(left != CLV_RANK_NONE && !one ? clv_rankset_add : clv_rankset_remove)(&p->run_ends, rank);
	(right != CLV_RANK_NONE && !one ? clv_rankset_add : clv_rankset_remove)(&p->run_begins, rank);
}

/* What of the pieces lies in a frame: it is added to the frame and is no more outside, or the other way round. */
static void move_pieces(struct clv_plane *p, struct clv_plane_frame *f, bool in)
{
	uint64_t used = 0, occupied = 0;
	for (uint32_t at = clv_plane_first(p, f->begin); at < f->end;) {
		const struct clv_plane_piece *piece = &p->pieces[at];
		uint64_t part =
			p->keys[piece->end < f->end ? piece->end : f->end] - p->keys[at > f->begin ? at : f->begin];
		used += part;
		if (piece->kind != CLV_PLANE_PENDING)
			occupied += part;
		at = clv_rankset_next(&p->starts, piece->end);
	}
	f->used = in ? used : 0;
	f->occupied = in ? occupied : 0;
	p->sum.held += in ? -used : used;
}

static void unmap_frame(struct clv_plane *p, uint32_t frame, uint32_t when)
{
	struct clv_plane_frame *f = &p->frames[frame];
	weigh_frame(p, f, false);
	p->sum.held -= p->keys[f->end] - p->keys[f->begin];
	move_pieces(p, f, false);
	clv_rankset_remove(&p->frame_starts, f->begin);
	p->records[frame].gone = when;
	p->mapped_frames--;
	draw_border(p, f->begin);
	draw_border(p, f->end);
	tell_mapped(p, frame, false);
}

void clv_plane_unmap(struct clv_plane *p, uint32_t begin, uint32_t end, uint32_t when)
{
	for (uint32_t at; (at = clv_rankset_next(&p->frame_starts, begin)) < end;)
		unmap_frame(p, p->frame_at[at], when);
}

void clv_plane_map(struct clv_plane *p, const struct clv_report_frame *record)
{
	uint32_t begin = clv_plane_rank(p, record->addr), end = clv_plane_rank(p, record->addr + record->size);
	if (end == CLV_RANK_NONE || begin >= end)
		return;
	uint32_t over = clv_plane_frame_of(p, begin);
	if (over != CLV_RANK_NONE)
		unmap_frame(p, over, record->born);
	clv_plane_unmap(p, begin, end, record->born);
	if (p->broken || p->frame_count >= CLV_RANK_NONE - 1 ||
	    !clv_mem_reserve(&p->frames, &p->frame_cap, p->frame_count + 1, sizeof(*p->frames)) ||
	    !clv_mem_reserve(&p->records, &p->record_cap, p->frame_count + 1, sizeof(*p->records))) {
		p->broken = true;
		return;
	}
	uint32_t frame = (uint32_t)p->frame_count++;
	struct clv_plane_frame *f = &p->frames[frame];
	*f = (struct clv_plane_frame){.begin = begin, .end = end};
	p->records[frame] = *record;
	p->records[frame].gone = CLV_REPORT_NEVER;
	p->sum.held += record->size;
	move_pieces(p, f, true);
	weigh_frame(p, f, true);
	p->frame_at[begin] = frame;
	clv_rankset_add(&p->frame_starts, begin);
	p->mapped_frames++;
	draw_border(p, begin);
	draw_border(p, end);
	tell_mapped(p, frame, true);
}

void clv_plane_unmapped(struct clv_plane *p, uint64_t add, uint64_t subtract)
{
	p->unmapped += add - subtract;
	p->sum.held += add - subtract;
	p->sum.of[CLV_CAUSE_SOFT] += add - subtract;
}

/* ---- the check ---- */

static uint64_t overlap(const struct clv_plane *p, uint32_t b1, uint32_t e1, uint32_t b2, uint32_t e2)
{
	uint32_t b = b1 > b2 ? b1 : b2, e = e1 < e2 ? e1 : e2;
	return b < e ? p->keys[e] - p->keys[b] : 0;
}

bool clv_plane_check(const struct clv_plane *p, char *why, size_t len)
{
	struct clv_report_sum sum = {.held = p->unmapped};
	uint64_t in_frames = 0, pieces = 0, frames = 0;
	uint32_t end = 0;
	sum.of[CLV_CAUSE_SOFT] = p->unmapped;
	for (uint32_t at = clv_rankset_next(&p->starts, 0); at != CLV_RANK_NONE;
	     at = clv_rankset_next(&p->starts, at + 1)) {
		const struct clv_plane_piece *piece = &p->pieces[at];
		uint64_t bytes = p->keys[piece->end] - p->keys[at];
		if (at < end || piece->end <= at)
			return snprintf(why, len, "pieces overlap at 0x%" PRIx64, p->keys[at]), false;
		end = piece->end;
		pieces += bytes;
		uint64_t live = piece->kind == CLV_PLANE_LIVE ? piece_live(p, at, end, piece->live_end) : 0;
		sum.of[CLV_CAUSE_LIVE] += live;
		sum.of[CLV_CAUSE_INTERNAL] += piece->kind == CLV_PLANE_LIVE ? bytes - live : 0;
		sum.of[CLV_CAUSE_STREAM] += piece->kind == CLV_PLANE_PENDING ? bytes : 0;
		sum.of[CLV_CAUSE_RESERVATION] += piece->kind == CLV_PLANE_HELD ? bytes : 0;
	}
	end = 0;
	for (uint32_t f = clv_plane_frame_next(p, CLV_RANK_NONE); f != CLV_RANK_NONE; f = clv_plane_frame_next(p, f)) {
		const struct clv_plane_frame *frame = &p->frames[f];
		uint64_t used = 0, occupied = 0, size = p->keys[frame->end] - p->keys[frame->begin];
		if (frame->begin < end)
			return snprintf(why, len, "frames overlap at 0x%" PRIx64, p->keys[frame->begin]), false;
		end = frame->end;
		for (uint32_t at = clv_plane_first(p, frame->begin); at < frame->end;
		     at = clv_rankset_next(&p->starts, at + 1)) {
			uint64_t part = overlap(p, at, p->pieces[at].end, frame->begin, frame->end);
			used += part;
			occupied += p->pieces[at].kind == CLV_PLANE_PENDING ? 0 : part;
		}
		if (used != frame->used || occupied != frame->occupied)
			return snprintf(why, len, "the frame at 0x%" PRIx64 " is booked wrongly",
					p->keys[frame->begin]),
			       false;
		in_frames += used;
		sum.held += size;
		sum.of[occupied ? CLV_CAUSE_HARD : CLV_CAUSE_SOFT] += size - used;
		frames++;
	}
	sum.held += pieces - in_frames;
	uint64_t all = 0;
	for (int c = 0; c < CLV_CAUSE_COUNT; c++) {
		all += sum.of[c];
		if (sum.of[c] != p->sum.of[c])
			return snprintf(why, len, "%s is %" PRIu64 ", booked are %" PRIu64,
					clv_cause_name((enum clv_cause)c), sum.of[c], p->sum.of[c]),
			       false;
	}
	if (all != sum.held || sum.held != p->sum.held || frames != p->mapped_frames)
		return snprintf(why, len, "held is %" PRIu64 ", booked are %" PRIu64, sum.held, p->sum.held), false;
	return true;
}
