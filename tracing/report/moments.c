/* SPDX-License-Identifier: MIT */
#include "moments.h"

#include "../memory.h"
#include "../policies/torch_allocator.h"

#include "../../src/base/torch_sizes.h"
#include "culprits.h"
#include "room.h"

#include <string.h>

/* What Cleave asks the driver for is whole frames of at least this. */
#define FRAME_GRAIN (2 * CLV_MIB)

/* ---- holes ---- */

static uint64_t stranded_in(const struct clv_plane *p, uint32_t begin, uint32_t end)
{
	uint64_t bytes = 0;
	uint32_t i = clv_plane_frame_of(p, begin);
	for (; i != CLV_RANK_NONE && p->frames[i].begin < end; i = clv_plane_frame_next(p, i)) {
		const struct clv_plane_frame *f = &p->frames[i];
		if (f->occupied)
			bytes += p->keys[f->end < end ? f->end : end] - p->keys[f->begin > begin ? f->begin : begin];
	}
	return bytes;
}

/* 0: not cut from anything larger, else when, from 1 on */
static uint64_t cut_time(const struct clv_state *s, uint32_t block)
{
	if (block == CLV_NO_BLOCK)
		return 0;
	const struct clv_report_block *b = &s->blocks[block];
	if (b->born == CLV_REPORT_BEFORE || b->cut_from <= b->given)
		return 0;
	return (uint64_t)b->born + 1;
}

static void add_hole(struct clv_report_moment *m, const struct clv_state *s, uint32_t begin, uint32_t end, uint32_t top)
{
	const struct clv_plane *p = &s->plane;
	uint64_t size = p->keys[end] - p->keys[begin];
	m->hole_count++;
	m->largest_hole = clv_max_u64(m->largest_hole, size);
	uint32_t at = m->holes_kept;
	if (at == top && size <= m->holes[top - 1].size)
		return;
	if (at == top)
		at--;
	else
		m->holes_kept++;
	for (; at > 0 && m->holes[at - 1].size < size; at--)
		m->holes[at] = m->holes[at - 1];
	uint32_t before = begin ? clv_rankset_prev(&p->starts, begin - 1) : CLV_RANK_NONE;
	const struct clv_report_frame *f = &p->records[clv_plane_frame_of(p, begin)];
	struct clv_report_hole *h = &m->holes[at];
	*h = (struct clv_report_hole){
		.addr = p->keys[begin],
		.size = size,
		.stranded = stranded_in(p, begin, end),
		.left = before != CLV_RANK_NONE && p->pieces[before].end == begin &&
					!clv_rankset_has(&p->run_begins, begin)
				? p->pieces[before].owner
				: CLV_NO_BLOCK,
		.right = clv_rankset_has(&p->starts, end) && !clv_rankset_has(&p->run_ends, end) ? p->pieces[end].owner
												 : CLV_NO_BLOCK,
		.cutter = CLV_NO_BLOCK,
		.stream = f->stream,
		.pool = f->pool,
	};
	uint64_t left = cut_time(s, h->left), right = cut_time(s, h->right);
	if (left || right)
		h->cutter = left > right ? h->left : h->right;
}

static bool find_holes(struct clv_report_moment *m, const struct clv_state *s, uint32_t top)
{
	const struct clv_plane *p = &s->plane;
	m->holes = clv_mem_zalloc(top + (size_t)1, sizeof(*m->holes));
	if (!m->holes)
		return false;
	for (uint32_t at = clv_rankset_next(&p->run_begins, 0); at != CLV_RANK_NONE;
	     at = clv_rankset_next(&p->run_begins, at + 1)) {
		uint32_t end = clv_rankset_next(&p->run_ends, at + 1);
		for (uint32_t from = at; from < end;) {
			uint32_t piece = clv_plane_first(p, from), to = piece < end ? piece : end;
			if (to > from)
				add_hole(m, s, from, to, top);
			from = piece < end ? p->pieces[piece].end : end;
		}
	}
	return true;
}

static void count_frames(struct clv_report_moment *m, const struct clv_plane *p)
{
	for (uint32_t i = clv_plane_frame_next(p, CLV_RANK_NONE); i != CLV_RANK_NONE; i = clv_plane_frame_next(p, i)) {
		m->frames++;
		m->frames_occupied += p->frames[i].occupied != 0;
	}
}

/* ---- failures ---- */

struct looking {
	const struct clv_report_device *d;
	const struct clv_state *s;
	const struct clv_culprits *c;
	struct clv_report_moment *m;
	struct clv_room_for want;
};

/* What the allocator would have to get from the driver to serve a request without a hole: `grow` where an expandable segment is
 * extended, in whole pages. PyTorch looks at its limit as if it were a segment of its own, though. */
static uint64_t driver_needs(const struct clv_state *s, uint64_t asked, uint64_t grow, bool limited)
{
	if (asked > CLV_GIB * CLV_GIB)
		return asked;
	if (s->basis != CLV_BASIS_SEGMENTS)
		return clv_align_up(asked, FRAME_GRAIN);
	if (!s->settings.expandable || limited)
		return clv_torch_segment_bytes(&s->settings, asked);
	uint64_t page = asked <= CLV_TORCH_SMALL_SIZE ? CLV_TORCH_SMALL_SEGMENT : s->settings.large_segment_size;
	return (grow + page - 1) / page * page;
}

/* 1: there is room when these bytes go back to the driver; 0: there is not; -1: what the driver has is not known. */
static int driver_serves(const struct looking *l, uint64_t returnable)
{
	const struct clv_report_failure *f = &l->m->failure;
	uint64_t held = l->m->sum.held - clv_min_u64(l->m->sum.held, returnable);
	bool limited = f->limit != UINT64_MAX, known = f->device_free != UINT64_MAX;
	if (limited && (held > f->limit || f->needed > f->limit - held))
		return 0;
	if (known && f->device_free < f->needed && returnable < f->needed - f->device_free)
		return 0;
	return limited || known ? 1 : -1;
}

static void look_at_failure(struct looking *l, const struct clv_stop *stop)
{
	const struct clv_state *s = l->s;
	const struct clv_event_record request = clv_stop_request(stop, s->h), *e = &request;
	struct clv_report_failure *f = &l->m->failure;
	bool torch = s->basis == CLV_BASIS_SEGMENTS;
	*f = (struct clv_report_failure){
		.asked = e->size,
		.device_free = e->addr || s->basis != CLV_BASIS_EXTENTS ? e->addr : UINT64_MAX,
		.limit = l->d->limit ? l->d->limit : UINT64_MAX,
		.stream = e->stream,
		.pool = e->pool,
		.stack = e->stack,
		.repeats = stop->repeats,
	};
	l->want = (struct clv_room_for){
		.apart = torch,
		.stream = e->stream,
		.pool = e->pool,
		.small = e->size <= CLV_TORCH_SMALL_SIZE,
		.asked = e->size,
		.hole_max = torch && e->size < s->settings.max_split_size ? s->settings.max_split_size : UINT64_MAX,
	};
	struct clv_room room;
	clv_room_look(&room, s, l->c, CLV_ROOM_ALL, &l->want);
	f->needed = driver_needs(s, e->size, room.grow, l->d->limit);
	f->usable_free = room.usable;
	f->largest_usable = room.largest;
	f->foreign_free = room.foreign;
	for (uint32_t g = 0; g < l->m->groups_kept; g++) {
		clv_room_look(&room, s, l->c, g, &l->want);
		l->m->groups[g].would_serve = room.fits ? 1 : driver_serves(l, room.returnable);
	}
}

/* ---- a moment ---- */

static bool look_at(struct clv_report_device *d, const struct clv_state *s, const struct clv_stop *stop,
		    const struct clv_timeline *t, const struct clv_report_options *o)
{
	struct clv_report_moment *m = &d->moments[d->moment_count++];
	struct clv_culprits c;
	uint64_t now_us = t->begin_us + (uint64_t)(stop->time_s * 1e6 + 0.5);
	*m = (struct clv_report_moment){
		.kind = stop->kind,
		.event = stop->event,
		.note = stop->note,
		.time_s = stop->time_s,
		.label = stop->kind == CLV_MOMENT_MARK ? d->trace->histories[0].notes[stop->of].text : CLV_NO_TEXT,
		.sum = s->plane.sum,
		.live_blocks = s->live_blocks,
	};
	count_frames(m, &s->plane);
	bool ok = clv_culprits_find(&c, s, o->top, t->begin_us, now_us) && find_holes(m, s, o->top);
	if (ok) {
		m->group_count = (uint32_t)c.group_count;
		m->groups_kept = m->group_count < o->top ? m->group_count : o->top;
		m->groups = clv_mem_realloc(NULL, m->groups_kept + (size_t)1, sizeof(*m->groups));
		ok = m->groups != NULL;
	}
	if (ok) {
		m->pinned_by_others = m->sum.of[CLV_CAUSE_HARD];
		if (m->groups_kept)
			memcpy(m->groups, c.groups, m->groups_kept * sizeof(*m->groups));
		for (uint32_t g = 0; g < m->groups_kept; g++)
			m->pinned_by_others -= m->groups[g].marginal_bytes;
		struct looking l = {.d = d, .s = s, .c = &c, .m = m};
		if (stop->kind == CLV_MOMENT_FAILURE)
			look_at_failure(&l, stop);
	}
	clv_culprits_free(&c);
	return ok;
}

bool clv_moments_look(struct clv_report_device *d, struct clv_state *s, const struct clv_timeline *t,
		      const struct clv_report_options *options, struct clv_error *err)
{
	d->moments = clv_mem_zalloc(t->stop_count + 1, sizeof(*d->moments));
	bool ok = d->moments != NULL;
	clv_state_rewind(s);
	for (size_t i = 0; ok && i < t->stop_count; i++) {
		const struct clv_stop *stop = &t->stops[i];
		while (ok && (s->event < stop->event || s->note < stop->note))
			ok = clv_state_step(s);
		ok = ok && look_at(d, s, stop, t, options);
		if (options->progress)
			options->progress(options->progress_arg, "looking at moments",
					  (double)(i + 1) / (double)t->stop_count);
	}
	return ok || clv_error_set(err, "out of host memory");
}
