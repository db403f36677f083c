/* SPDX-License-Identifier: MIT */
#include "state.h"

#include "../memory.h"
#include "../policies/torch_allocator.h"

#include "../../src/base/torch_sizes.h"

#include <inttypes.h>
#include <stdio.h>

#define EXTENT (2 * CLV_MIB)
/* More pages than that, in one range or altogether, are not told apart: no device has them. */
#define RANGE_PAGES_MAX 65536u
#define PAGES_MAX (1u << 22)

/* Where a block lies: ranks in the plane. */
struct clv_state_place {
	uint32_t begin, end;
};

/* A frame of Cleave by its number. */
struct clv_physical {
	uint64_t addr, size; /* addr 0: mapped nowhere */
	bool there;
};

/* Recorded sizes may be anything; nothing goes beyond the last address. */
static uint64_t end_of(uint64_t addr, uint64_t size)
{
	return size > UINT64_MAX - addr ? UINT64_MAX : addr + size;
}

static uint64_t round_up(uint64_t v, uint64_t grain)
{
	return v > UINT64_MAX - grain ? UINT64_MAX : clv_align_up(v, grain);
}

/* ---- ranges of pages ---- */

static bool is_one_frame(const struct clv_state *s, uint64_t size, uint64_t page)
{
	return s->whole_ranges || size / page > RANGE_PAGES_MAX;
}

static uint64_t page_end(uint64_t at, uint64_t end, uint64_t page)
{
	return end - at <= page ? end : at + page;
}

static bool range_keys(struct clv_state *s, uint64_t begin, uint64_t end, uint64_t page)
{
	bool ok = clv_plane_key(&s->plane, begin) && clv_plane_key(&s->plane, end);
	if (!ok || is_one_frame(s, end - begin, page))
		return ok;
	uint32_t before = s->plane.key_count;
	for (uint64_t at = begin; ok && at < end; at = page_end(at, end, page))
		ok = clv_plane_key(&s->plane, at);
	s->pages += s->plane.key_count - before;
	s->whole_ranges = s->pages > PAGES_MAX;
	return ok;
}

static void map_range(struct clv_state *s, struct clv_report_frame like, uint64_t begin, uint64_t end, uint64_t page)
{
	if (is_one_frame(s, end - begin, page))
		page = end - begin;
	like.expandable = true;
	for (uint64_t at = begin; at < end; at = like.addr + like.size) {
		like.addr = at;
		like.size = page_end(at, end, page) - at;
		clv_plane_map(&s->plane, &like);
	}
}

/* EXTENTS: the stretches that a block lies in. */
static void extent_of(const struct clv_report_block *b, uint64_t *begin, uint64_t *end)
{
	*begin = clv_align_down(b->addr, EXTENT);
	*end = round_up(end_of(b->addr, b->given), EXTENT);
}

static void cover(struct clv_state *s, uint64_t begin, uint64_t end, uint32_t when)
{
	struct clv_plane *p = &s->plane;
	const struct clv_report_frame like = {.born = when, .stream = CLV_NO_STREAM};
	uint32_t at = clv_plane_rank(p, begin), stop = clv_plane_rank(p, end);
	while (at < stop) {
		if (clv_plane_frame_of(p, at) != CLV_RANK_NONE) {
			at = clv_rankset_next(&p->run_ends, at + 1);
			continue;
		}
		uint32_t next = clv_rankset_next(&p->frame_starts, at);
		next = next < stop ? next : stop;
		map_range(s, like, p->keys[at], p->keys[next], EXTENT);
		at = next;
	}
}

/* The page of an expandable segment: a small pool maps one of 2 MiB at a time, a large one any number of large ones. */
static uint64_t pool_page(const struct clv_state *s, bool small)
{
	return small ? CLV_TORCH_SMALL_SEGMENT : s->settings.large_segment_size;
}

static uint64_t torch_page(const struct clv_state *s, uint64_t size)
{
	return pool_page(s, size % s->settings.large_segment_size != 0);
}

/* ---- blocks: what is known of them beforehand ---- */

static void list_blocks(struct clv_state *s)
{
	const struct clv_history *h = s->h;
	for (uint32_t i = 0; i < h->initial_count; i++) {
		const struct clv_initial_block *k = &h->initial[i];
		s->blocks[k->block] = (struct clv_report_block){.addr = k->addr,
								.size = k->size,
								.born = CLV_REPORT_BEFORE,
								.freed = CLV_REPORT_NEVER,
								.gone = CLV_REPORT_NEVER,
								.stream = k->stream,
								.pool = k->pool};
	}
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->block >= h->block_count)
			continue;
		struct clv_report_block *b = &s->blocks[e->block];
		if (e->action == CLV_ACTION_ALLOC) {
			*b = (struct clv_report_block){.addr = e->addr,
						       .size = e->size,
						       .given = h->slack ? end_of(e->size, h->slack[i]) : 0,
						       .born = i,
						       .freed = CLV_REPORT_NEVER,
						       .gone = CLV_REPORT_NEVER,
						       .stack = e->stack,
						       .stream = e->stream,
						       .pool = e->pool};
			continue;
		}
		if (b->freed == CLV_REPORT_NEVER)
			b->freed = i;
		if (e->action == CLV_ACTION_FREE_COMPLETED)
			b->gone = b->freed + 1 == i ? b->freed : i;
	}
	for (uint32_t i = 0; i < h->block_record_count; i++) { /* stacks of blocks that no event allocated */
		const struct clv_block_record *r = &h->blocks[i];
		const struct clv_initial_block *k = clv_history_initial_from(h, r->addr);
		if (!k || k->addr != r->addr)
			continue;
		struct clv_report_block *b = &s->blocks[k->block];
		if (b->freed == CLV_REPORT_NEVER && r->state != CLV_BLOCK_INACTIVE)
			b->stack = r->stack;
	}
}

/* The sizes given that are known without looking at the memory around; the others are at least so large. */
static void give_sizes(struct clv_state *s)
{
	for (uint32_t i = 0; i < s->h->block_count; i++) {
		struct clv_report_block *b = &s->blocks[i];
		if (b->given)
			continue;
		b->given = s->basis == CLV_BASIS_SEGMENTS && b->size < CLV_GIB * CLV_GIB
				   ? clv_torch_round(&s->settings, b->size)
				   : round_up(b->size, CLV_GRAIN);
	}
	for (uint32_t i = 0; i < s->window.block_count; i++) {
		const struct clv_window_block *k = &s->window.blocks[i];
		struct clv_report_block *b = &s->blocks[k->block];
		b->given = k->size;
		if (k->pending)
			b->freed = CLV_REPORT_BEFORE;
	}
}

/* ---- keys ---- */

static bool event_keys(struct clv_state *s)
{
	struct clv_plane *p = &s->plane;
	const struct clv_history *h = s->h;
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		uint64_t end = end_of(e->addr, e->size);
		bool ok = true;
		if (s->basis != CLV_BASIS_SEGMENTS)
			break;
		if (e->action == CLV_ACTION_SEGMENT_MAP)
			ok = range_keys(s, e->addr, end, torch_page(s, e->size));
		else if (e->action == CLV_ACTION_SEGMENT_ALLOC)
			ok = clv_plane_key(p, e->addr) && clv_plane_key(p, end);
		if (!ok)
			return false;
	}
	for (uint32_t i = 0; i < s->window.range_count; i++) {
		const struct clv_window_range *r = &s->window.ranges[i];
		uint64_t end = end_of(r->addr, r->size);
		if (!(r->expandable ? range_keys(s, r->addr, end, pool_page(s, r->small))
				    : clv_plane_key(p, r->addr) && clv_plane_key(p, end)))
			return false;
	}
	return true;
}

static bool note_keys(struct clv_state *s)
{
	for (uint32_t i = 0; i < s->h->note_count; i++) {
		const struct clv_note *n = &s->h->notes[i];
		bool place = n->kind == CLV_EVENT_FRAME_CREATE || n->kind == CLV_EVENT_FRAME_RELEASE ||
			     n->kind == CLV_EVENT_FRAME_MAP || n->kind == CLV_EVENT_FRAME_UNMAP ||
			     n->kind == CLV_EVENT_READY || n->kind == CLV_EVENT_MERGE || n->kind == CLV_EVENT_CUT ||
			     n->kind == CLV_EVENT_RESERVE_HOLD || n->kind == CLV_EVENT_RESERVE_YIELD ||
			     n->kind == CLV_EVENT_DRIVER_ALLOC;
		if (place && !(clv_plane_key(&s->plane, n->addr) && clv_plane_key(&s->plane, end_of(n->addr, n->size))))
			return false;
		if (n->kind == CLV_EVENT_FRAME_MAP && n->b && /* where it was: an initial frame, perhaps */
		    !(clv_plane_key(&s->plane, n->b) && clv_plane_key(&s->plane, end_of(n->b, n->size))))
			return false;
	}
	return true;
}

static bool block_keys(struct clv_state *s)
{
	for (uint32_t i = 0; i < s->h->block_count; i++) {
		const struct clv_report_block *b = &s->blocks[i];
		if (!clv_plane_key(&s->plane, b->addr) || !clv_plane_key(&s->plane, end_of(b->addr, b->given)))
			return false;
		if (s->basis != CLV_BASIS_EXTENTS)
			continue;
		uint64_t begin, end;
		extent_of(b, &begin, &end);
		if (!range_keys(s, begin, end, EXTENT))
			return false;
	}
	return true;
}

/* ---- what the memory around says of a block ---- */

/* PyTorch gives the front of a free block, and leaves as one what it does not split. */
static uint64_t torch_given(const struct clv_state *s, const struct clv_report_frame *f, uint64_t rounded,
			    uint64_t room)
{
	if (room <= rounded)
		return room;
	uint64_t left = room - rounded;
	if (f->small || (f->expandable && s->settings.expandable))
		return left >= CLV_TORCH_MIN_BLOCK ? rounded : room;
	return rounded < s->settings.max_split_size && left > CLV_TORCH_SMALL_SIZE ? rounded : room;
}

/* A live block ends where the next one begins, if recorded sizes do not agree. */
static uint32_t clip(const struct clv_plane *p, uint32_t begin, uint32_t end)
{
	for (uint32_t at = clv_rankset_next(&p->starts, begin + 1); at < end; at = clv_rankset_next(&p->starts, at + 1))
		if (p->pieces[at].kind == CLV_PLANE_LIVE)
			return at;
	return end;
}

/* The room that a note told of for a block at this address; once. */
static const struct clv_note *take_served(struct clv_state *s, uint64_t addr)
{
	uint32_t i = clv_map_get(&s->served, addr);
	if (i == CLV_MAP_NONE || i >= s->h->note_count)
		return NULL;
	clv_map_slot(&s->served, addr)->value = CLV_MAP_NONE - 1; /* is there, so no memory is needed */
	return &s->h->notes[i];
}

static void remember_served(struct clv_state *s)
{
	const struct clv_note *n = &s->h->notes[s->note];
	struct clv_map_slot *slot = clv_map_slot(&s->served, n->addr);
	if (slot)
		slot->value = s->note;
	else
		s->plane.broken = true;
}

/* A small block in a pending hole: if that is as large as a chunk, it has become one, and its other slots wait for nobody. That it
 * was not cut is why the heap has not told. */
static void complete_chunk(struct clv_state *s, uint32_t rank)
{
	struct clv_plane *p = &s->plane;
	uint32_t at = clv_plane_first(p, rank);
	if (at > rank || p->pieces[at].kind != CLV_PLANE_PENDING)
		return;
	uint32_t end = p->pieces[at].end;
	if (p->keys[end] - p->keys[at] == CLV_STATE_CHUNK)
		clv_plane_take(p, at, end, CLV_PLANE(CLV_PLANE_PENDING), CLV_NO_BLOCK);
}

static void add_block(struct clv_state *s, uint32_t id, bool at_start)
{
	struct clv_plane *p = &s->plane;
	struct clv_report_block *b = &s->blocks[id];
	uint32_t begin = clv_plane_rank(p, b->addr), end = clv_plane_rank(p, end_of(b->addr, b->given)), from, to;
	if (s->basis == CLV_BASIS_EXTENTS) {
		uint64_t first, last;
		extent_of(b, &first, &last);
		cover(s, first, last, at_start ? CLV_REPORT_BEFORE : b->born);
	} else if (clv_plane_hole(p, begin, &from, &to)) {
		b->cut_from = p->keys[to] - p->keys[from];
		if (s->basis == CLV_BASIS_SEGMENTS && !at_start) {
			const struct clv_report_frame *f = &p->records[clv_plane_frame_of(p, begin)];
			uint64_t room = p->keys[to] - b->addr;
			uint64_t given = torch_given(s, f, b->given, room);
			end = given == room ? to : end;
		}
	}
	const struct clv_note *served = s->basis == CLV_BASIS_FRAMES && !at_start ? take_served(s, b->addr) : NULL;
	if (served && served->size == b->given)
		b->cut_from = served->b;
	end = clip(p, begin, end);
	if (s->has_ready && b->given <= CLV_STATE_SMALL_MAX)
		complete_chunk(s, begin);
	bool pending = at_start && b->freed == CLV_REPORT_BEFORE;
	clv_plane_put(p, begin, end, pending ? CLV_PLANE_PENDING : CLV_PLANE_LIVE, id,
		      end_of(b->addr, round_up(b->size, CLV_GRAIN)));
	b->given = p->keys[end] - b->addr;
	s->places[id] = (struct clv_state_place){begin, end};
	s->live_blocks += !pending;
}

static void free_block(struct clv_state *s, uint32_t id, bool pends)
{
	struct clv_plane *p = &s->plane;
	struct clv_report_block *b = &s->blocks[id];
	uint32_t begin = s->places[id].begin, end = s->places[id].end;
	/* where something else has taken a part meanwhile, that is not pending */
	bool whole = clv_rankset_has(&p->starts, begin) && p->pieces[begin].owner == id && p->pieces[begin].end == end;
	s->live_blocks -= b->freed == s->event;
	clv_plane_take(p, begin, end, CLV_PLANE(CLV_PLANE_LIVE) | CLV_PLANE(CLV_PLANE_PENDING), id);
	if (pends && whole)
		clv_plane_put(p, begin, end, CLV_PLANE_PENDING, id, 0);
}

/* ---- steps ---- */

static bool completed_next(const struct clv_history *h, uint32_t i)
{
	const struct clv_event_record *e = &h->events[i];
	return i + 1 < h->event_count && e[1].action == CLV_ACTION_FREE_COMPLETED && e[1].block == e->block;
}

/* Completed for its own stream; the heap will tell when it is for all. What is freed on no stream (that is recorded as the
 * largest handle) is complete for all. */
static bool waits_for_ready(const struct clv_state *s, uint32_t block)
{
	const struct clv_event_record *e = &s->h->events[s->event];
	return s->basis == CLV_BASIS_FRAMES && s->has_ready && s->blocks[block].given > CLV_STATE_SMALL_MAX &&
	       s->trace->streams[e->stream] != UINT64_MAX;
}

/* Its request has freed it already. */
static bool was_complete(const struct clv_state *s, uint32_t block)
{
	return s->blocks[block].gone == s->blocks[block].freed && s->blocks[block].freed != s->event;
}

static void apply_event(struct clv_state *s)
{
	const struct clv_event_record *e = &s->h->events[s->event];
	bool segments = s->basis == CLV_BASIS_SEGMENTS, block = e->block < s->h->block_count;
	struct clv_report_frame f = {
		.addr = e->addr, .size = e->size, .born = s->event, .stream = e->stream, .pool = e->pool};
	uint64_t end = end_of(e->addr, e->size);
	switch (e->action) {
	case CLV_ACTION_ALLOC:
		if (block)
			add_block(s, e->block, false);
		break;
	case CLV_ACTION_FREE_REQUESTED:
		if (block)
			free_block(s, e->block, !completed_next(s->h, s->event) || waits_for_ready(s, e->block));
		break;
	case CLV_ACTION_FREE_COMPLETED:
		if (block && !was_complete(s, e->block))
			free_block(s, e->block, waits_for_ready(s, e->block));
		break;
	case CLV_ACTION_SEGMENT_ALLOC:
		f.size = end - f.addr;
		f.small = e->size == CLV_TORCH_SMALL_SEGMENT;
		if (segments)
			clv_plane_map(&s->plane, &f);
		break;
	case CLV_ACTION_SEGMENT_MAP:
		f.small = torch_page(s, e->size) == CLV_TORCH_SMALL_SEGMENT;
		if (segments)
			map_range(s, f, e->addr, end, torch_page(s, e->size));
		break;
	case CLV_ACTION_SEGMENT_FREE:
	case CLV_ACTION_SEGMENT_UNMAP:
		if (segments)
			clv_plane_unmap(&s->plane, clv_plane_rank_from(&s->plane, e->addr),
					clv_plane_rank_from(&s->plane, end), s->event);
		break;
	default:
		break;
	}
}

/* Where a frame of Cleave is now; a new number is nowhere and not there. NULL: out of host memory. */
static struct clv_physical *physical(struct clv_state *s, uint64_t number)
{
	struct clv_map_slot *slot = clv_map_slot(&s->numbers, number);
	if (slot && slot->value != CLV_MAP_NONE)
		return &s->physical[slot->value];
	if (!slot || s->physical_count >= CLV_MAP_NONE ||
	    !clv_mem_reserve(&s->physical, &s->physical_cap, s->physical_count + 1, sizeof(*s->physical))) {
		s->plane.broken = true;
		return NULL;
	}
	slot->value = (uint32_t)s->physical_count++;
	s->physical[slot->value] = (struct clv_physical){0};
	return &s->physical[slot->value];
}

/* A note's moment, as an event after which it was. */
static uint32_t note_event(const struct clv_state *s)
{
	return s->event ? s->event - 1 : CLV_REPORT_BEFORE;
}

/* Takes a frame from where it is. What was pending in it is over. */
static void unplace(struct clv_state *s, struct clv_physical *f)
{
	struct clv_plane *p = &s->plane;
	if (f->there && !f->addr)
		clv_plane_unmapped(p, 0, f->size);
	if (f->there && f->addr) {
		uint32_t begin = clv_plane_rank(p, f->addr), end = clv_plane_rank(p, end_of(f->addr, f->size));
		clv_plane_take(p, begin, end, CLV_PLANE(CLV_PLANE_PENDING), CLV_NO_BLOCK);
		clv_plane_unmap(p, begin, begin + 1, note_event(s));
	}
	f->there = false;
}

static void place(struct clv_state *s, struct clv_physical *f, uint64_t addr, uint64_t size)
{
	unplace(s, f);
	*f = (struct clv_physical){addr, end_of(addr, size) - addr, true};
	const struct clv_report_frame record = {
		.addr = addr, .size = f->size, .born = note_event(s), .stream = CLV_NO_STREAM, .expandable = true};
	if (addr)
		clv_plane_map(&s->plane, &record);
	else
		clv_plane_unmapped(&s->plane, f->size, 0);
}

static void apply_frame_note(struct clv_state *s, const struct clv_note *n)
{
	struct clv_physical *f = physical(s, n->a);
	if (!f)
		return;
	if (n->kind == CLV_EVENT_FRAME_MAP && !n->b)
		return; /* once more, beside where it is used */
	if (n->kind == CLV_EVENT_FRAME_CREATE || n->kind == CLV_EVENT_FRAME_MAP)
		place(s, f, n->addr, n->size);
	else if (n->kind == CLV_EVENT_FRAME_RELEASE)
		unplace(s, f);
	else if (f->there && f->addr == n->addr)
		place(s, f, 0, f->size); /* else a mapping that the frame has left before */
}

/* A hole is complete when all of it is. */
static void merge(struct clv_state *s, uint32_t begin, uint32_t end)
{
	struct clv_plane *p = &s->plane;
	bool pends = false;
	for (uint32_t at = clv_plane_first(p, begin); at < end; at = clv_rankset_next(&p->starts, at + 1)) {
		if (p->pieces[at].kind != CLV_PLANE_PENDING)
			return; /* no hole, in a recording that lost events */
		pends = true;
	}
	if (pends)
		clv_plane_put(p, begin, end, CLV_PLANE_PENDING, CLV_NO_BLOCK, 0);
}

static void apply_driver_note(struct clv_state *s, const struct clv_note *n)
{
	struct clv_plane *p = &s->plane;
	uint32_t begin = clv_plane_rank_from(p, n->addr);
	uint32_t end = clv_plane_rank_from(p, end_of(n->addr, n->size));
	if (n->kind == CLV_EVENT_DRIVER_ALLOC) {
		const struct clv_report_frame f = {.addr = n->addr,
						   .size = end_of(n->addr, n->size) - n->addr,
						   .born = note_event(s),
						   .stream = CLV_NO_STREAM};
		clv_plane_map(p, &f);
		if (s->driver_is_live)
			clv_plane_put(p, begin, end, CLV_PLANE_LIVE, CLV_NO_BLOCK, UINT64_MAX);
		return;
	}
	uint32_t frame =
		begin < p->key_count && p->keys[begin] == n->addr ? clv_plane_frame_of(p, begin) : CLV_RANK_NONE;
	if (frame == CLV_RANK_NONE)
		return; /* from before the recording */
	if (s->driver_is_live)
		clv_plane_take(p, begin, p->frames[frame].end, CLV_PLANE_ANY, CLV_NO_BLOCK);
	clv_plane_unmap(p, begin, begin + 1, note_event(s));
}

static void apply_note(struct clv_state *s)
{
	const struct clv_note *n = &s->h->notes[s->note];
	struct clv_plane *p = &s->plane;
	if (s->basis == CLV_BASIS_DRIVER && (n->kind == CLV_EVENT_DRIVER_ALLOC || n->kind == CLV_EVENT_DRIVER_FREE))
		apply_driver_note(s, n);
	if (s->basis != CLV_BASIS_FRAMES)
		return;
	uint64_t end = end_of(n->addr, n->size);
	switch (n->kind) {
	case CLV_EVENT_FRAME_CREATE:
	case CLV_EVENT_FRAME_RELEASE:
	case CLV_EVENT_FRAME_MAP:
	case CLV_EVENT_FRAME_UNMAP:
		apply_frame_note(s, n);
		break;
	case CLV_EVENT_CUT: /* for a request, for slabs, or to serve another stream: it waits for nobody any more */
		remember_served(s);
		clv_plane_take(p, clv_plane_rank(p, n->addr), clv_plane_rank(p, end), CLV_PLANE(CLV_PLANE_PENDING),
			       CLV_NO_BLOCK);
		break;
	case CLV_EVENT_MERGE:
		merge(s, clv_plane_rank(p, n->addr), clv_plane_rank(p, end));
		break;
	case CLV_EVENT_READY:
		clv_plane_take(p, clv_plane_rank(p, n->addr), clv_plane_rank(p, end), CLV_PLANE(CLV_PLANE_PENDING),
			       CLV_NO_BLOCK);
		break;
	case CLV_EVENT_RESERVE_HOLD:
		clv_plane_put(p, clv_plane_rank(p, n->addr), clv_plane_rank(p, end), CLV_PLANE_HELD, CLV_NO_BLOCK, 0);
		break;
	case CLV_EVENT_RESERVE_YIELD:
		clv_plane_take(p, clv_plane_rank(p, n->addr), clv_plane_rank(p, end), CLV_PLANE(CLV_PLANE_HELD),
			       CLV_NO_BLOCK);
		break;
	default: /* what a reservation serves stays held back until the request has it, the next event there */
		break;
	}
}

static bool note_is_next(const struct clv_state *s)
{
	return s->note < s->h->note_count && (s->h->notes[s->note].event <= s->event || s->event >= s->h->event_count);
}

static void check_now(struct clv_state *s)
{
#ifdef CLV_CHECK_INVARIANTS
	const struct clv_report_sum *sum = &s->plane.sum;
	uint64_t all = 0;
	for (int c = 0; c < CLV_CAUSE_COUNT; c++)
		all += sum->of[c];
	if (all == sum->held)
		return;
	fprintf(stderr,
		"cleave: the report's books do not balance after event %" PRIu32 ": %" PRIu64 " of %" PRIu64 " bytes\n",
		s->event, all, sum->held);
	s->plane.broken = true;
#else
	(void)s;
#endif
}

bool clv_state_step(struct clv_state *s)
{
	if (note_is_next(s)) {
		apply_note(s);
		s->note++;
	} else if (s->event < s->h->event_count) {
		apply_event(s);
		s->event++;
	} else {
		return false;
	}
	check_now(s);
	return !s->plane.broken;
}

bool clv_state_next_time(const struct clv_state *s, uint64_t *time_us)
{
	if (note_is_next(s))
		*time_us = s->h->notes[s->note].time_us;
	else if (s->event < s->h->event_count)
		*time_us = s->h->events[s->event].time_us;
	else
		return false;
	return true;
}

/* ---- the start ---- */

static uint32_t stream_index(const struct clv_trace *trace, uint64_t handle)
{
	for (uint32_t i = 0; i < trace->stream_count; i++)
		if (trace->streams[i] == handle)
			return i;
	return CLV_NO_STREAM;
}

static void start_segments(struct clv_state *s)
{
	struct clv_report_frame f = {.born = CLV_REPORT_BEFORE};
	uint64_t known = 0;
	bool any = false;
	for (uint32_t i = 0; i < s->window.range_count; i++) {
		const struct clv_window_range *r = &s->window.ranges[i];
		if (!any || known != r->stream) /* streams are few, but ranges may be many */
			f.stream = stream_index(s->trace, r->stream);
		any = true;
		known = r->stream;
		f.addr = r->addr;
		f.size = end_of(r->addr, r->size) - r->addr;
		f.pool = r->pool;
		f.small = r->small;
		if (r->expandable)
			map_range(s, f, f.addr, f.addr + f.size, pool_page(s, r->small));
		else
			clv_plane_map(&s->plane, &f);
	}
}

/* Frames that were there before the recording began: they are moved or released, and nothing made them. */
static void start_frames(struct clv_state *s)
{
	for (uint32_t i = 0; i < s->h->note_count; i++) {
		const struct clv_note *n = &s->h->notes[i];
		bool frame = n->kind == CLV_EVENT_FRAME_CREATE || n->kind == CLV_EVENT_FRAME_RELEASE ||
			     n->kind == CLV_EVENT_FRAME_MAP || n->kind == CLV_EVENT_FRAME_UNMAP;
		if (!frame || clv_map_get(&s->numbers, n->a) != CLV_MAP_NONE ||
		    (n->kind == CLV_EVENT_FRAME_MAP && !n->b))
			continue;
		struct clv_physical *f = physical(s, n->a);
		if (!f)
			return;
		if (n->kind != CLV_EVENT_FRAME_CREATE)
			place(s, f, n->kind == CLV_EVENT_FRAME_MAP ? n->b : n->addr, n->size);
	}
}

static void start(struct clv_state *s)
{
	s->event = s->note = 0;
	s->live_blocks = 0;
	if (s->basis == CLV_BASIS_SEGMENTS)
		start_segments(s);
	if (s->basis == CLV_BASIS_FRAMES)
		start_frames(s);
	for (uint32_t i = 0; i < s->h->initial_count; i++)
		add_block(s, s->h->initial[i].block, true);
}

void clv_state_rewind(struct clv_state *s)
{
	clv_plane_reset(&s->plane);
	clv_map_clear(&s->served);
	clv_map_clear(&s->numbers);
	s->physical_count = 0;
	start(s);
}

static bool has_note(const struct clv_history *h, enum clv_event first, enum clv_event last)
{
	for (uint32_t i = 0; i < h->note_count; i++)
		if (h->notes[i].kind >= first && h->notes[i].kind <= last)
			return true;
	return false;
}

enum clv_report_basis clv_state_basis(const struct clv_history *h)
{
	if (has_note(h, CLV_EVENT_FRAME_CREATE, CLV_EVENT_FRAME_UNMAP))
		return CLV_BASIS_FRAMES;
	if (h->segment_count)
		return CLV_BASIS_SEGMENTS;
	for (uint32_t i = 0; i < h->event_count; i++)
		if (h->events[i].action == CLV_ACTION_SEGMENT_ALLOC || h->events[i].action == CLV_ACTION_SEGMENT_MAP)
			return CLV_BASIS_SEGMENTS;
	return has_note(h, CLV_EVENT_DRIVER_ALLOC, CLV_EVENT_DRIVER_ALLOC) ? CLV_BASIS_DRIVER : CLV_BASIS_EXTENTS;
}

bool clv_state_open(struct clv_state *s, const struct clv_trace *trace, const struct clv_history *history,
		    struct clv_error *err)
{
	*s = (struct clv_state){.trace = trace, .h = history};
	s->basis = clv_state_basis(history);
	s->has_ready = has_note(history, CLV_EVENT_READY, CLV_EVENT_READY);
	s->driver_is_live = s->basis == CLV_BASIS_DRIVER && !history->alloc_count;
	s->given_known = s->basis == CLV_BASIS_SEGMENTS
				 ? trace->torch.present || !history->event_count
				 : s->basis == CLV_BASIS_FRAMES ||
					   history->slack != NULL; /* a recorder leaves out what is 0 for all */
	/* settings that this version refuses are another version's; the defaults are nearest then */
	if (!trace->torch.present || !clv_torch_settings_recorded(&s->settings, &trace->torch, NULL))
		clv_torch_settings_default(&s->settings);
	if (s->basis == CLV_BASIS_SEGMENTS &&
	    !clv_torch_window_init(&s->window, trace, history, &s->settings, trace->torch.total_bytes, err))
		return false;
	s->blocks = clv_mem_zalloc((size_t)history->block_count + 1, sizeof(*s->blocks));
	s->places = clv_mem_zalloc((size_t)history->block_count + 1, sizeof(*s->places));
	if (!s->blocks || !s->places)
		return clv_error_set(err, "out of host memory");
	list_blocks(s);
	give_sizes(s);
	if (!event_keys(s) || !note_keys(s) || !block_keys(s) || !clv_plane_ready(&s->plane))
		return clv_error_set(err, "out of host memory");
	start(s);
	return !s->plane.broken || clv_error_set(err, "out of host memory");
}

void clv_state_close(struct clv_state *s)
{
	clv_torch_window_free(&s->window);
	clv_plane_free(&s->plane);
	clv_map_free(&s->served);
	clv_map_free(&s->numbers);
	clv_mem_free(s->physical);
	clv_mem_free(s->places);
	clv_mem_free(s->blocks);
	*s = (struct clv_state){NULL};
}
