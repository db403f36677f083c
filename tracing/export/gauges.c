/* SPDX-License-Identifier: MIT */
#include "gauges.h"

#include "../memory.h"

struct range {
	uint64_t addr, end;
};

static struct range range_of(uint64_t addr, uint64_t size)
{
	return (struct range){
		addr, clv_min_u64(addr + clv_align_up(size, CLV_GRAIN), INT64_MAX)}; /* importers see to addr + size */
}

static struct range block_range(const struct clv_gauges *g, uint32_t block)
{
	if (block < g->h->initial_count)
		return range_of(g->h->initial[block].addr, g->h->initial[block].size);
	const struct clv_event_record *e = &g->h->events[g->made_by[block]];
	return range_of(e->addr, e->size);
}

static bool cut(struct clv_gauges *g, struct range r, bool wall)
{
	return clv_free_runs_cut(&g->runs, r.addr, wall) && clv_free_runs_cut(&g->runs, r.end, wall);
}

/* Where anything ever begins or ends. */
static bool cut_all(struct clv_gauges *g)
{
	const struct clv_history *h = g->h;
	bool ok = true;
	for (size_t i = 0; ok && i < g->segments.count; i++) {
		const struct clv_segment_range *s = &g->segments.at[i];
		ok = cut(g, (struct range){s->addr, s->end}, true);
	}
	for (uint32_t i = 0; ok && i < h->initial_count; i++)
		ok = cut(g, block_range(g, i), false);
	for (uint32_t i = 0; ok && i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->action == CLV_ACTION_ALLOC)
			ok = cut(g, range_of(e->addr, e->size), false);
		else if (clv_is_segment_action(e->action))
			ok = cut(g, (struct range){e->addr, e->addr + e->size}, true);
	}
	return ok;
}

static bool find_first_segments(struct clv_gauges *g)
{
	const struct clv_history *h = g->h;
	bool ok = clv_segments_of_state(&g->segments, h);
	g->has_segments = h->segment_count > 0;
	for (uint32_t i = h->event_count; ok && i-- > 0;) {
		g->has_segments |= clv_is_segment_action(h->events[i].action);
		if (h->has_state)
			ok = clv_segments_step(&g->segments, &h->events[i], true);
	}
	return ok;
}

/* What the segments that a range touches add to `stranded`. */
static uint64_t stranded_around(struct clv_gauges *g, struct range r)
{
	uint64_t sum = 0;
	for (size_t i = clv_segments_from(&g->segments, r.addr);
	     i < g->segments.count && g->segments.at[i].addr <= r.end; i++) {
		const struct clv_segment_range *s = &g->segments.at[i];
		uint64_t used = clv_free_runs_used(&g->runs, s->addr, s->end);
		sum += used ? s->end - s->addr - used : 0;
	}
	return sum;
}

static void set_block(struct clv_gauges *g, struct range r, enum clv_run_state state)
{
	const struct clv_segment_range *s = clv_segments_find(&g->segments, r.addr);
	if (!s)
		return;
	const struct range all = {s->addr, s->end};
	uint64_t before = clv_free_runs_used(&g->runs, all.addr, all.end);
	clv_free_runs_set(&g->runs, r.addr, clv_min_u64(r.end, all.end), state);
	uint64_t after = clv_free_runs_used(&g->runs, all.addr, all.end), size = all.end - all.addr;
	g->stranded = g->stranded - (before ? size - before : 0) + (after ? size - after : 0);
}

static void set_live(struct clv_gauges *g, uint32_t block, bool live)
{
	struct range r = block_range(g, block);
	if (g->live[block] == live)
		return;
	g->live[block] = live;
	g->allocated = live ? g->allocated + (r.end - r.addr) : g->allocated - (r.end - r.addr);
	if (g->has_segments)
		set_block(g, r, live ? CLV_RUN_USED : CLV_RUN_FREE);
}

/* No free range goes from one segment into its neighbour. */
static void set_wall(struct clv_gauges *g, uint64_t addr)
{
	size_t i = clv_segments_from(&g->segments, addr);
	bool up = i < g->segments.count && (g->segments.at[i].end == addr || g->segments.at[i].addr == addr);
	clv_free_runs_wall(&g->runs, addr, up);
}

static bool step_segments(struct clv_gauges *g, const struct clv_event_record *e)
{
	struct range r = {e->addr, e->addr + e->size};
	bool more = e->action == CLV_ACTION_SEGMENT_ALLOC || e->action == CLV_ACTION_SEGMENT_MAP;
	uint64_t before = stranded_around(g, r);
	if (!clv_segments_step(&g->segments, e, false))
		return false;
	clv_free_runs_set(&g->runs, r.addr, r.end, more ? CLV_RUN_FREE : CLV_RUN_ABSENT);
	set_wall(g, r.addr);
	set_wall(g, r.end);
	g->stranded = g->stranded - before + stranded_around(g, r);
	return true;
}

static void read_off(struct clv_gauges *g)
{
	g->reserved = g->segments.bytes;
	g->largest_free = g->has_segments ? clv_free_runs_longest(&g->runs) : 0;
}

bool clv_gauges_begin(struct clv_gauges *g, const struct clv_history *h)
{
	*g = (struct clv_gauges){.h = h};
	g->made_by = clv_mem_realloc(NULL, h->block_count + 1u, sizeof(*g->made_by));
	g->live = clv_mem_zalloc(h->block_count + 1u, sizeof(*g->live));
	if (!g->made_by || !g->live || !find_first_segments(g))
		return false;
	if (g->has_segments && (!cut_all(g) || !clv_free_runs_build(&g->runs)))
		return false;
	for (size_t i = 0; g->has_segments && i < g->segments.count; i++) {
		clv_free_runs_set(&g->runs, g->segments.at[i].addr, g->segments.at[i].end, CLV_RUN_FREE);
		set_wall(g, g->segments.at[i].addr);
		set_wall(g, g->segments.at[i].end);
	}
	for (uint32_t i = 0; i < h->initial_count; i++)
		set_live(g, i, true);
	read_off(g);
	return true;
}

bool clv_gauges_step(struct clv_gauges *g, uint32_t i)
{
	const struct clv_event_record *e = &g->h->events[i];
	if (clv_is_segment_action(e->action)) {
		if (!step_segments(g, e))
			return false;
	} else if (e->action == CLV_ACTION_ALLOC && e->block != CLV_NO_BLOCK) {
		g->made_by[e->block] = i;
		set_live(g, e->block, true);
	} else if (e->action == CLV_ACTION_FREE_COMPLETED && e->block != CLV_NO_BLOCK) {
		set_live(g, e->block, false);
	}
	read_off(g);
	return true;
}

void clv_gauges_end(struct clv_gauges *g)
{
	clv_segments_free(&g->segments);
	clv_free_runs_free(&g->runs);
	clv_mem_free(g->made_by);
	clv_mem_free(g->live);
	*g = (struct clv_gauges){0};
}
