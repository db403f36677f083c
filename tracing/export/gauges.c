/* SPDX-License-Identifier: MIT */
#include "gauges.h"

#include "../memory.h"

#define HOLES_MIN 4096u

/* ---- the longest free range ---- */

static void sink_down(struct clv_gauges *g, size_t i)
{
	struct clv_gauge_hole hole = g->holes[i];
	for (size_t child; (child = 2 * i + 1) < g->hole_count; i = child) {
		if (child + 1 < g->hole_count && g->holes[child + 1].size > g->holes[child].size)
			child++;
		if (g->holes[child].size <= hole.size)
			break;
		g->holes[i] = g->holes[child];
	}
	g->holes[i] = hole;
}

static void add_hole(struct clv_gauges *g, struct clv_gauge_hole hole)
{
	if (!clv_mem_reserve(&g->holes, &g->hole_cap, g->hole_count + 1, sizeof(*g->holes))) {
		g->state.plane.broken = true;
		return;
	}
	size_t i = g->hole_count++;
	for (; i && g->holes[(i - 1) / 2].size < hole.size; i = (i - 1) / 2)
		g->holes[i] = g->holes[(i - 1) / 2];
	g->holes[i] = hole;
}

/* Adds the free ranges that lie in [begin, end) or reach into it. */
static void add_holes(struct clv_gauges *g, uint32_t begin, uint32_t end)
{
	const struct clv_plane *p = &g->state.plane;
	for (uint32_t at = begin, from, to; at < end;) {
		uint32_t piece = clv_plane_first(p, at), frame;
		if (clv_plane_hole(p, at, &from, &to)) {
			add_hole(g, (struct clv_gauge_hole){p->keys[to] - p->keys[from], from});
			at = to;
		} else if (piece <= at) {
			at = p->pieces[piece].end;
		} else { /* in no frame */
			frame = clv_rankset_next(&p->frame_starts, at + 1);
			at = piece < frame ? piece : frame;
		}
	}
}

/* Once there are more that are no more than that are, all that are is listed anew. */
static void tidy_holes(struct clv_gauges *g)
{
	if (g->hole_count <= g->hole_most)
		return;
	g->hole_count = 0;
	add_holes(g, 0, g->state.plane.key_count);
	g->hole_most = 2 * g->hole_count + HOLES_MIN;
}

static void changed(struct clv_plane_watch *watch, uint32_t begin, uint32_t end)
{
	struct clv_gauges *g = CLV_CONTAINER_OF(watch, struct clv_gauges, watch);
	add_holes(g, begin ? begin - 1 : 0, end < g->state.plane.key_count ? end + 1 : end);
}

static uint64_t longest(struct clv_gauges *g)
{
	const struct clv_plane *p = &g->state.plane;
	uint32_t from, to;
	while (g->hole_count) {
		const struct clv_gauge_hole *top = &g->holes[0];
		if (clv_plane_hole(p, top->begin, &from, &to) && from == top->begin &&
		    p->keys[to] - p->keys[from] == top->size)
			return top->size;
		g->holes[0] = g->holes[--g->hole_count];
		if (g->hole_count)
			sink_down(g, 0);
	}
	return 0;
}

/* ---- the others ---- */

static void set_live(struct clv_gauges *g, uint32_t block, bool live)
{
	uint64_t size = clv_align_up(clv_min_u64(g->state.blocks[block].size, INT64_MAX), CLV_GRAIN);
	if (g->live[block] == live)
		return;
	g->live[block] = live;
	g->allocated += live ? size : -size;
}

static void read_off(struct clv_gauges *g)
{
	const struct clv_report_sum *sum = &g->state.plane.sum;
	if (!g->has_frames)
		return;
	tidy_holes(g);
	g->reserved = sum->held;
	g->stranded = sum->of[CLV_CAUSE_HARD];
	g->largest_free = longest(g);
}

bool clv_gauges_begin(struct clv_gauges *g, const struct clv_trace *trace, const struct clv_history *h,
		      struct clv_error *err)
{
	*g = (struct clv_gauges){.watch.changed = changed, .hole_most = HOLES_MIN};
	if (!clv_state_open(&g->state, trace, h, err))
		return false;
	g->live = clv_mem_zalloc((size_t)h->block_count + 1, sizeof(*g->live));
	if (!g->live)
		return clv_error_set(err, "out of host memory");
	g->has_frames = g->state.basis != CLV_BASIS_EXTENTS;
	if (g->has_frames) {
		add_holes(g, 0, g->state.plane.key_count);
		g->state.plane.watch = &g->watch;
	}
	for (uint32_t i = 0; i < h->initial_count; i++)
		set_live(g, h->initial[i].block, true);
	read_off(g);
	return !g->state.plane.broken || clv_error_set(err, "out of host memory");
}

bool clv_gauges_step(struct clv_gauges *g)
{
	uint32_t event = g->state.event;
	if (!clv_state_step(&g->state))
		return false;
	if (g->state.event > event) {
		const struct clv_event_record *e = &g->state.h->events[event];
		if (e->block < g->state.h->block_count &&
		    (e->action == CLV_ACTION_ALLOC || e->action == CLV_ACTION_FREE_COMPLETED))
			set_live(g, e->block, e->action == CLV_ACTION_ALLOC);
	}
	read_off(g);
	return !g->state.plane.broken;
}

void clv_gauges_end(struct clv_gauges *g)
{
	clv_state_close(&g->state);
	clv_mem_free(g->holes);
	clv_mem_free(g->live);
	*g = (struct clv_gauges){.allocated = 0};
}
