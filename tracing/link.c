/* SPDX-License-Identifier: MIT
 *
 * link: makes sense of one history after it was read: which free ends which block, what was there before the window,
 * pools and totals. Everything is one pass over the events and a few over what it found.
 */
#include "link.h"

#include "map.h"
#include "memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* While linking, ids of initial blocks are marked, since the number of them is known only at the end. */
#define INITIAL_MARK 0x80000000u

enum place_state {
	PLACE_FREE, /* seen, no block now */
	PLACE_LIVE,
	PLACE_PENDING, /* free requested, not completed */
};

/* What is known of an address that an event named. */
struct place {
	uint32_t block;   /* id, marked if initial */
	uint32_t source;  /* the ALLOC event, or the index in `initial` */
	uint32_t request; /* the FREE_REQUESTED event, while pending */
	uint8_t state;    /* enum place_state */
};

struct linker {
	struct clv_trace *trace;
	struct clv_history *h;
	struct clv_error *err;
	uint32_t bad_event;   /* that contradicts what was before */
	struct clv_map index; /* address to place */
	struct place *places;
	size_t place_count, place_cap;
	size_t initial_cap;
	uint32_t window_blocks; /* blocks allocated in the window so far */
	/* Live bytes, relative to what was there before the window: that is known only at the end. */
	__int128 live, peak;
};

static bool out_of_memory(struct linker *l)
{
	return clv_error_set(l->err, "%s: out of host memory", l->trace->file ? l->trace->file : "trace");
}

/* Wide, so that no sum of recorded sizes can overflow. */
static __int128 live_size(uint64_t size)
{
	return (__int128)((size / CLV_GRAIN + (size % CLV_GRAIN != 0))) * CLV_GRAIN;
}

/* A FREE_REQUESTED whose completion was left out is the completion. */
static void imply_completion(struct clv_event_record *e)
{
	e->action = CLV_ACTION_FREE_COMPLETED;
	e->flags |= CLV_EVENT_IMPLIED;
}

/* The place of an address; a new one is PLACE_FREE with block CLV_NO_BLOCK. NULL: out of host memory. */
static struct place *place_of(struct linker *l, uint64_t addr)
{
	struct clv_map_slot *slot = clv_map_slot(&l->index, addr);
	if (!slot)
		return NULL;
	if (slot->value == CLV_MAP_NONE) {
		if (l->place_count >= CLV_MAP_NONE ||
		    !clv_mem_reserve(&l->places, &l->place_cap, l->place_count + 1, sizeof(*l->places))) {
			slot->value = 0;
			return NULL;
		}
		slot->value = (uint32_t)l->place_count++;
		l->places[slot->value] = (struct place){.block = CLV_NO_BLOCK, .state = PLACE_FREE};
	}
	return &l->places[slot->value];
}

static uint64_t size_of(const struct linker *l, const struct place *p)
{
	return p->block & INITIAL_MARK ? l->h->initial[p->source].size : l->h->events[p->source].size;
}

static bool add_initial(struct linker *l, struct place *p, uint64_t addr, uint64_t size, uint32_t stream)
{
	struct clv_history *h = l->h;
	if (h->initial_count >= INITIAL_MARK - 1)
		return clv_error_set(l->err, "%s: more than %u blocks", l->trace->file, INITIAL_MARK - 1);
	if (!clv_mem_reserve(&h->initial, &l->initial_cap, h->initial_count + 1u, sizeof(*h->initial)))
		return out_of_memory(l);
	p->block = h->initial_count | INITIAL_MARK;
	p->source = h->initial_count;
	h->initial[h->initial_count++] = (struct clv_initial_block){.addr = addr, .size = size, .stream = stream};
	return true;
}

static bool link_alloc(struct linker *l, uint32_t i)
{
	struct clv_event_record *e = &l->h->events[i];
	if (e->size == 0)
		return true;
	struct place *p = place_of(l, e->addr);
	if (!p)
		return out_of_memory(l);
	if (p->state == PLACE_LIVE) {
		l->bad_event = i;
		return clv_error_set(l->err,
				     "device %d, event %u: 0x%" PRIx64
				     " is allocated, but event %u allocated it and nothing freed it since",
				     l->h->device, i, e->addr, p->source);
	}
	if (p->state == PLACE_PENDING) {
		imply_completion(&l->h->events[p->request]);
		l->h->unmatched_frees++;
		l->live -= live_size(size_of(l, p));
	}
	if (l->window_blocks >= INITIAL_MARK - 1)
		return clv_error_set(l->err, "%s: more than %u blocks", l->trace->file, INITIAL_MARK - 1);
	p->state = PLACE_LIVE;
	p->block = e->block = l->window_blocks++;
	p->source = i;
	l->live += live_size(e->size);
	if (l->live > l->peak)
		l->peak = l->live;
	l->h->alloc_count++;
	return true;
}

/* A free of an address that has no block now: of a block from before the window if nothing else is known of the
 * address, else one too many. */
static bool link_unexplained_free(struct linker *l, struct place *p, struct clv_event_record *e)
{
	if (p->block != CLV_NO_BLOCK) {
		l->h->unmatched_frees++;
		return true;
	}
	return e->size == 0 || add_initial(l, p, e->addr, e->size, e->stream);
}

static bool link_free(struct linker *l, uint32_t i)
{
	struct clv_event_record *e = &l->h->events[i];
	struct place *p = place_of(l, e->addr);
	if (!p)
		return out_of_memory(l);
	bool request = e->action == CLV_ACTION_FREE_REQUESTED;
	bool was_free = p->state == PLACE_FREE;
	if (was_free) {
		uint32_t before = p->block;
		if (!link_unexplained_free(l, p, e))
			return false;
		if (p->block == before)
			return true; /* unmatched, or a block of no size */
	} else if (request && p->state == PLACE_PENDING) {
		l->h->unmatched_frees++; /* asked for twice */
		return true;
	}
	e->block = p->block;
	if (request) {
		p->state = PLACE_PENDING;
		p->request = i;
	} else {
		p->state = PLACE_FREE;
		l->live -= live_size(size_of(l, p));
	}
	return true;
}

static bool link_events(struct linker *l)
{
	struct clv_history *h = l->h;
	bool completions = false, requests = false;
	for (uint32_t i = 0; i < h->event_count; i++) {
		struct clv_event_record *e = &h->events[i];
		if (e->flags & CLV_EVENT_IMPLIED && e->action == CLV_ACTION_FREE_COMPLETED)
			e->action = CLV_ACTION_FREE_REQUESTED; /* linked before: as it was recorded */
		e->flags &= (uint8_t)~CLV_EVENT_IMPLIED;
		completions |= e->action == CLV_ACTION_FREE_COMPLETED;
		requests |= e->action == CLV_ACTION_FREE_REQUESTED;
	}
	for (uint32_t i = 0; i < h->event_count; i++) {
		struct clv_event_record *e = &h->events[i];
		e->block = CLV_NO_BLOCK;
		e->pool = 0;
		if (requests && !completions && e->action == CLV_ACTION_FREE_REQUESTED)
			imply_completion(e);
		switch (e->action) {
		case CLV_ACTION_ALLOC:
			if (!link_alloc(l, i))
				return false;
			break;
		case CLV_ACTION_FREE_REQUESTED:
		case CLV_ACTION_FREE_COMPLETED:
			if (!link_free(l, i))
				return false;
			break;
		case CLV_ACTION_OOM:
			h->oom_count++;
			break;
		default:
			break;
		}
	}
	return true;
}

/* Blocks that the final state shows in use and that no event names were there all the time. */
static bool link_final_state(struct linker *l)
{
	struct clv_history *h = l->h;
	for (uint32_t s = 0; s < h->segment_count; s++) {
		const struct clv_segment_record *seg = &h->segments[s];
		for (uint32_t b = seg->first_block; b < seg->first_block + seg->blocks; b++) {
			const struct clv_block_record *block = &h->blocks[b];
			if (block->state == CLV_BLOCK_INACTIVE)
				continue;
			struct place *p = place_of(l, block->addr);
			if (!p)
				return out_of_memory(l);
			if (p->state != PLACE_FREE || p->block != CLV_NO_BLOCK)
				continue; /* explained by the events, or contradicting them: then the events count */
			uint64_t size = block->requested ? block->requested : block->size;
			if (size == 0)
				continue;
			if (!add_initial(l, p, block->addr, size, seg->stream))
				return false;
			p->state = block->state == CLV_BLOCK_ACTIVE ? PLACE_LIVE : PLACE_PENDING;
		}
	}
	return true;
}

static int by_address(const void *a, const void *b)
{
	const struct clv_initial_block *x = a, *y = b;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Gives the initial blocks the first ids, in the order of their addresses, and moves the others up. */
static bool number_blocks(struct linker *l)
{
	struct clv_history *h = l->h;
	uint64_t total = (uint64_t)h->initial_count + l->window_blocks;
	if (total >= CLV_NO_BLOCK)
		return clv_error_set(l->err, "%s: more than %u blocks", l->trace->file, CLV_NO_BLOCK - 1);
	uint32_t *renumbered = clv_mem_realloc(NULL, h->initial_count, sizeof(*renumbered));
	if (!renumbered)
		return out_of_memory(l);
	for (uint32_t i = 0; i < h->initial_count; i++)
		h->initial[i].block = i;
	if (h->initial_count > 1)
		qsort(h->initial, h->initial_count, sizeof(*h->initial), by_address);
	for (uint32_t i = 0; i < h->initial_count; i++) {
		renumbered[h->initial[i].block] = i;
		h->initial[i].block = i;
	}
	for (uint32_t i = 0; i < h->event_count; i++) {
		struct clv_event_record *e = &h->events[i];
		if (e->block == CLV_NO_BLOCK)
			continue;
		if (e->block & INITIAL_MARK)
			e->block = renumbered[e->block & ~INITIAL_MARK];
		else
			e->block += h->initial_count;
	}
	clv_mem_free(renumbered);
	h->block_count = (uint32_t)total;
	return true;
}

/* The segment that contains addr, or NULL. Segments are sorted and do not overlap. */
static const struct clv_segment_record *segment_at(const struct clv_history *h, uint64_t addr)
{
	uint32_t lo = 0, hi = h->segment_count;
	while (lo < hi) { /* the first segment that begins above addr */
		uint32_t mid = lo + (hi - lo) / 2;
		if (h->segments[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0)
		return NULL;
	const struct clv_segment_record *s = &h->segments[lo - 1];
	return addr - s->addr < s->size ? s : NULL;
}

/* Addresses are used again: what lies before the last segment_alloc at the start of a segment is not of its pool. */
static bool assign_pools(struct linker *l)
{
	struct clv_history *h = l->h;
	bool any = false;
	for (uint32_t i = 0; i < h->segment_count; i++)
		any |= h->segments[i].pool != 0;
	if (!any)
		return true;
	bool *begun = clv_mem_zalloc(h->segment_count, sizeof(*begun));
	if (!begun)
		return out_of_memory(l);
	for (uint32_t i = h->event_count; i-- > 0;) {
		struct clv_event_record *e = &h->events[i];
		if (e->action >= CLV_ACTION_OOM) /* oom, snapshot, other: no address */
			continue;
		const struct clv_segment_record *s = segment_at(h, e->addr);
		if (!s || begun[s - h->segments])
			continue;
		e->pool = s->pool;
		begun[s - h->segments] = e->action == CLV_ACTION_SEGMENT_ALLOC && e->addr == s->addr;
	}
	for (uint32_t i = 0; i < h->initial_count; i++) {
		const struct clv_segment_record *s = segment_at(h, h->initial[i].addr);
		h->initial[i].pool = s && !begun[s - h->segments] ? s->pool : 0;
	}
	clv_mem_free(begun);
	return true;
}

static bool count_streams(struct linker *l)
{
	struct clv_history *h = l->h;
	uint8_t *seen = clv_mem_zalloc(l->trace->stream_count, 1);
	if (!seen)
		return out_of_memory(l);
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->action == CLV_ACTION_ALLOC && e->stream < l->trace->stream_count && !seen[e->stream]) {
			seen[e->stream] = 1;
			h->stream_count++;
		}
	}
	clv_mem_free(seen);
	return true;
}

static bool ensure_pools(struct linker *l)
{
	struct clv_history *h = l->h;
	if (h->pools)
		return true;
	h->pools = clv_mem_zalloc(1, sizeof(*h->pools));
	h->pool_count = h->pools ? 1 : 0;
	return h->pools || out_of_memory(l);
}

bool clv_history_link_at(struct clv_trace *trace, struct clv_history *history, uint32_t *event, struct clv_error *err)
{
	struct linker l = {.trace = trace, .h = history, .err = err, .bad_event = CLV_NO_EVENT};
	clv_mem_free(history->initial);
	history->initial = NULL;
	history->initial_count = history->block_count = history->alloc_count = 0;
	history->stream_count = history->oom_count = 0;
	history->peak_live_bytes = history->unmatched_frees = 0;
	history->duration_s = 0;

	bool ok = ensure_pools(&l) && link_events(&l) && link_final_state(&l) && number_blocks(&l) &&
		  count_streams(&l) && assign_pools(&l);
	clv_map_free(&l.index);
	clv_mem_free(l.places);
	*event = l.bad_event;
	if (!ok)
		return false;
	__int128 peak = l.peak;
	for (uint32_t i = 0; i < history->initial_count; i++)
		peak += live_size(history->initial[i].size);
	history->peak_live_bytes = peak > (__int128)UINT64_MAX ? UINT64_MAX : (uint64_t)peak;
	if (history->event_count) {
		uint64_t first = history->events[0].time_us, last = history->events[history->event_count - 1].time_us;
		history->duration_s = last > first ? (double)(last - first) / 1e6 : 0;
	}
	return true;
}

bool clv_history_link(struct clv_trace *trace, struct clv_history *history, struct clv_error *err)
{
	struct clv_error contradiction = {{0}};
	uint32_t event;
	if (clv_history_link_at(trace, history, &event, &contradiction))
		return true;
	if (event == CLV_NO_EVENT)
		return clv_error_set(err, "%s", contradiction.text);
	return clv_error_set(err, "%s: %.400s", trace->file ? trace->file : "trace", contradiction.text);
}
