/* SPDX-License-Identifier: MIT */
#include "torch_state.h"

#include "../../src/base/torch_sizes.h"
#include "../map.h"
#include "../report/state.h"
#include "segments.h"

#include <stdlib.h>

/* A block that is or was there. */
struct piece {
	uint64_t addr, end; /* rounded up */
	uint64_t requested;
	uint32_t stream, stack;
	uint8_t state; /* enum clv_block_state */
};

struct maker {
	const struct clv_history *h;
	struct clv_segments segments;
	struct clv_map outside_index; /* address to number in `outside` */
	struct piece *outside;        /* the largest block at each address outside of the segments */
	size_t outside_count, outside_cap;
	uint32_t *made_by; /* of each block: its ALLOC event; of the initial ones: unused */
	uint8_t *states;   /* of each block, as far as the events were read */
	bool *own;         /* of each block: it has a segment of its own */
	bool driver;       /* blocks outside get one */
	struct piece *live;
	size_t live_count, live_cap;
};

static uint64_t end_of(uint64_t addr, uint64_t size)
{
	return clv_min_u64(addr + clv_align_up(size, CLV_GRAIN), INT64_MAX); /* importers see to addr + size */
}

static bool note_outside(struct maker *m, struct piece p)
{
	const struct clv_segment_range *known = clv_segments_find(&m->segments, p.addr);
	if (known && known->end >= p.end)
		return true;
	struct clv_map_slot *slot = clv_map_slot(&m->outside_index, p.addr);
	if (!slot)
		return false;
	if (slot->value != CLV_MAP_NONE) {
		struct piece *o = &m->outside[slot->value];
		o->end = clv_max_u64(o->end, p.end);
		return true;
	}
	slot->value = (uint32_t)m->outside_count; /* fewer than events */
	if (!clv_mem_reserve(&m->outside, &m->outside_cap, m->outside_count + 1, sizeof(*m->outside)))
		return false;
	m->outside[m->outside_count++] = p;
	return true;
}

static struct piece initial_piece(const struct clv_initial_block *b)
{
	return (struct piece){
		.addr = b->addr, .end = end_of(b->addr, b->size), .requested = b->size, .stream = b->stream};
}

static struct piece event_piece(const struct clv_history *h, uint32_t event)
{
	const struct clv_event_record *e = &h->events[event];
	uint64_t slack = h->slack ? h->slack[event] : 0;
	return (struct piece){
		.addr = e->addr,
		.end = end_of(e->addr, e->size + clv_min_u64(slack, INT64_MAX - clv_min_u64(e->size, INT64_MAX))),
		.requested = e->size,
		.stream = e->stream,
		.stack = e->stack};
}

/* ---- frames ---- */

struct walk {
	struct clv_plane_watch watch;
	struct clv_state state;
	struct clv_torch_state *to;
	bool no_memory;
};

/* No device has addresses beyond, and snapshots cannot hold them. */
static bool is_bounded(const struct clv_report_frame *f)
{
	return f->addr <= INT64_MAX && f->size <= INT64_MAX - f->addr;
}

static void mapped(struct clv_plane_watch *watch, const struct clv_report_frame *f, bool there)
{
	struct walk *k = CLV_CONTAINER_OF(watch, struct walk, watch);
	struct clv_torch_state *s = k->to;
	if (!is_bounded(f))
		return;
	if (!clv_mem_reserve(&s->mappings, &s->mapping_cap, s->mapping_count + 1, sizeof(*s->mappings))) {
		k->no_memory = true;
		return;
	}
	const struct clv_note *n = &k->state.h->notes[k->state.note];
	s->mappings[s->mapping_count++] = (struct clv_torch_mapping){.addr = f->addr,
								     .size = f->size,
								     .time_us = n->time_us,
								     .before = n->event,
								     .stream = CLV_NO_STREAM,
								     .stack = n->stack,
								     .there = there,
								     .expandable = f->expandable};
}

/* Frames that were there before the first note are segments from the beginning on; the others are mappings. */
static bool find_frames(struct maker *m, struct clv_torch_state *s, const struct clv_trace *trace)
{
	struct walk k = {.watch.mapped = mapped, .to = s};
	struct clv_plane *p = &k.state.plane;
	enum clv_report_basis basis = clv_state_basis(m->h);
	if (basis != CLV_BASIS_FRAMES && basis != CLV_BASIS_DRIVER)
		return true;
	m->driver = basis == CLV_BASIS_DRIVER;
	bool ok = clv_state_open(&k.state, trace, m->h, NULL);
	for (uint32_t f = CLV_RANK_NONE; ok && (f = clv_plane_frame_next(p, f)) != CLV_RANK_NONE;) {
		const struct clv_report_frame *r = &p->records[f];
		struct clv_segment_range range = {r->addr, r->addr + r->size, CLV_NO_STREAM, r->expandable};
		ok = !is_bounded(r) || clv_segments_add(&m->segments, range);
	}
	p->watch = &k.watch;
	while (ok && clv_state_step(&k.state))
		;
	ok = ok && !p->broken && !k.no_memory;
	clv_state_close(&k.state);
	return ok;
}

static bool apply_mapping(struct maker *m, const struct clv_torch_mapping *k)
{
	struct clv_segment_range range = {k->addr, k->addr + k->size, k->stream, k->expandable};
	return k->there ? clv_segments_add(&m->segments, range) : clv_segments_cut(&m->segments, range.addr, range.end);
}

static bool add_mapping(struct clv_torch_state *s, struct clv_torch_mapping k)
{
	if (!clv_mem_reserve(&s->mappings, &s->mapping_cap, s->mapping_count + 1, sizeof(*s->mappings)))
		return false;
	s->mappings[s->mapping_count++] = k;
	return true;
}

/* The segment of a block's own comes or goes at an event. */
static bool set_own(struct maker *m, struct clv_torch_state *s, uint32_t block, uint32_t event, bool there)
{
	const struct clv_event_record *e = &m->h->events[event];
	struct piece p = event_piece(m->h, m->made_by[block]);
	struct clv_torch_mapping k = {.addr = p.addr,
				      .size = p.end - p.addr,
				      .time_us = e->time_us,
				      .before = there ? event : event + 1,
				      .stream = p.stream,
				      .stack = there ? e->stack : CLV_NO_STACK,
				      .there = there};
	m->own[block] = there;
	return apply_mapping(m, &k) && add_mapping(s, k);
}

static bool touches_segment(const struct maker *m, struct piece p)
{
	return clv_segments_find(&m->segments, p.addr) || clv_segments_find(&m->segments, p.end - 1);
}

static bool begin_block(struct maker *m, struct clv_torch_state *s, uint32_t event)
{
	struct piece p = event_piece(m->h, event);
	uint32_t block = m->h->events[event].block;
	m->made_by[block] = event;
	m->states[block] = CLV_BLOCK_ACTIVE;
	if (m->driver && p.end > p.addr && !touches_segment(m, p))
		return set_own(m, s, block, event, true);
	return note_outside(m, p);
}

static bool end_block(struct maker *m, struct clv_torch_state *s, uint32_t event)
{
	const struct clv_event_record *e = &m->h->events[event];
	m->states[e->block] = e->action == CLV_ACTION_FREE_REQUESTED ? CLV_BLOCK_PENDING_FREE : CLV_BLOCK_INACTIVE;
	return e->action != CLV_ACTION_FREE_COMPLETED || !m->own[e->block] || set_own(m, s, e->block, event, false);
}

/* Puts what the notes told in one list with what follows from the events. */
static bool follow(struct maker *m, struct clv_torch_state *s, const struct clv_torch_mapping *noted, size_t count)
{
	const struct clv_history *h = m->h;
	size_t next = 0;
	for (uint32_t i = 0; i < h->initial_count; i++) {
		m->states[i] = CLV_BLOCK_ACTIVE;
		if (!note_outside(m, initial_piece(&h->initial[i])))
			return false;
	}
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		for (; next < count && noted[next].before <= i; next++)
			if (!apply_mapping(m, &noted[next]) || !add_mapping(s, noted[next]))
				return false;
		if (!clv_segments_step(&m->segments, e))
			return false;
		if (e->block == CLV_NO_BLOCK)
			continue;
		if (!(e->action == CLV_ACTION_ALLOC ? begin_block(m, s, i) : end_block(m, s, i)))
			return false;
	}
	for (; next < count; next++)
		if (!apply_mapping(m, &noted[next]) || !add_mapping(s, noted[next]))
			return false;
	return true;
}

static int by_address(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void sort(struct piece *pieces, size_t count)
{
	if (count > 1)
		qsort(pieces, count, sizeof(*pieces), by_address);
}

/* Segments of the ranges that lie outside, as far as no known one is there at the end. */
static bool add_outside(struct maker *m)
{
	sort(m->outside, m->outside_count);
	for (size_t i = 0, next; i < m->outside_count; i = next) {
		struct clv_segment_range r = {m->outside[i].addr, m->outside[i].end, m->outside[i].stream, false};
		for (next = i + 1; next < m->outside_count && m->outside[next].addr <= r.end; next++)
			r.end = clv_max_u64(r.end, m->outside[next].end);
		if (!clv_segments_add(&m->segments, r))
			return false;
	}
	return true;
}

static bool collect_live(struct maker *m)
{
	for (uint32_t b = 0; b < m->h->block_count; b++) {
		if (m->states[b] == CLV_BLOCK_INACTIVE)
			continue;
		struct piece p =
			b < m->h->initial_count ? initial_piece(&m->h->initial[b]) : event_piece(m->h, m->made_by[b]);
		p.state = m->states[b];
		if (!clv_mem_reserve(&m->live, &m->live_cap, m->live_count + 1, sizeof(*m->live)))
			return false;
		m->live[m->live_count++] = p;
	}
	sort(m->live, m->live_count);
	return true;
}

static void add_block(struct clv_torch_state *s, struct clv_block_record b)
{
	if (!b.size)
		return;
	s->blocks[s->block_count++] = b;
	s->segments[s->segment_count].blocks++;
}

static bool fill(struct maker *m, struct clv_torch_state *s)
{
	size_t next = 0;
	s->segments = clv_mem_realloc(NULL, m->segments.count + 1, sizeof(*s->segments));
	s->blocks = clv_mem_realloc(NULL, m->segments.count + 2 * m->live_count + 1, sizeof(*s->blocks));
	if (!s->segments || !s->blocks)
		return false;
	for (size_t i = 0; i < m->segments.count; i++) {
		const struct clv_segment_range *r = &m->segments.at[i];
		uint64_t at = r->addr;
		s->segments[s->segment_count] = (struct clv_segment_record){
			.addr = r->addr,
			.size = r->end - r->addr,
			.stream = r->stream,
			.small = r->end - r->addr <= CLV_TORCH_SMALL_SEGMENT,
			.expandable = r->expandable,
			.first_block = s->block_count,
		};
		while (next < m->live_count && m->live[next].addr < r->addr)
			next++; /* in no segment */
		for (; next < m->live_count && m->live[next].addr < r->end; next++) {
			const struct piece *p = &m->live[next];
			uint64_t end = clv_min_u64(p->end, r->end);
			if (next + 1 < m->live_count)
				end = clv_min_u64(end, m->live[next + 1].addr);
			add_block(s, (struct clv_block_record){
					     .addr = at, .size = p->addr - at, .state = CLV_BLOCK_INACTIVE});
			add_block(s, (struct clv_block_record){.addr = p->addr,
							       .size = end - p->addr,
							       .requested = clv_min_u64(p->requested, end - p->addr),
							       .stack = p->stack,
							       .state = p->state});
			at = end;
		}
		add_block(s, (struct clv_block_record){.addr = at, .size = r->end - at, .state = CLV_BLOCK_INACTIVE});
		s->segment_count++;
	}
	return true;
}

bool clv_torch_state_make(struct clv_torch_state *s, const struct clv_trace *trace, const struct clv_history *h)
{
	struct maker m = {.h = h};
	*s = (struct clv_torch_state){0};
	m.made_by = clv_mem_realloc(NULL, h->block_count + 1u, sizeof(*m.made_by));
	m.states = clv_mem_zalloc(h->block_count + 1u, sizeof(*m.states));
	m.own = clv_mem_zalloc(h->block_count + 1u, sizeof(*m.own));
	bool ok = m.made_by && m.states && m.own && find_frames(&m, s, trace);
	struct clv_torch_mapping *noted = s->mappings;
	size_t count = s->mapping_count;
	s->mappings = NULL;
	s->mapping_count = s->mapping_cap = 0;
	ok = ok && follow(&m, s, noted, count) && add_outside(&m) && collect_live(&m) && fill(&m, s);
	clv_mem_free(noted);
	clv_mem_free(m.own);
	clv_segments_free(&m.segments);
	clv_map_free(&m.outside_index);
	clv_mem_free(m.outside);
	clv_mem_free(m.made_by);
	clv_mem_free(m.states);
	clv_mem_free(m.live);
	if (!ok)
		clv_torch_state_free(s);
	return ok;
}

void clv_torch_state_free(struct clv_torch_state *s)
{
	clv_mem_free(s->segments);
	clv_mem_free(s->blocks);
	clv_mem_free(s->mappings);
	*s = (struct clv_torch_state){0};
}
