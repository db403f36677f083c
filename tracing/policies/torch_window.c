/* SPDX-License-Identifier: MIT */
#include "torch_window_internal.h"

#include "../map.h"
#include "../memory.h"
#include "torch_allocator.h"

#include <stdlib.h>

#define TAIL CLV_MIB /* the most that PyTorch leaves at the end of a large block */

bool clv_window_add_range(struct clv_window_builder *b, const struct clv_window_range *r)
{
	struct clv_torch_window *w = b->w;
	if (w->range_count == b->room) {
		uint32_t room = b->room ? 2 * b->room : 64;
		struct clv_window_range *ranges = clv_mem_realloc(w->ranges, room, sizeof(*ranges));
		if (!ranges)
			return false;
		w->ranges = ranges;
		b->room = room;
	}
	w->ranges[w->range_count++] = *r;
	return true;
}

int clv_window_by_addr(const void *a, const void *b)
{
	/* ranges and blocks both begin with their address */
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* ---- native segments: those whose first event is their end, or that have none ---- */

/* False: out of host memory. *fresh: the address was not there yet. */
static bool see(struct clv_map *seen, uint64_t addr, bool *fresh)
{
	struct clv_map_slot *slot = clv_map_slot(seen, addr);
	if (!slot)
		return false;
	*fresh = slot->value == CLV_MAP_NONE;
	slot->value = 1;
	return true;
}

static bool native_ranges(struct clv_window_builder *b)
{
	const struct clv_history *h = b->h;
	struct clv_map seen = {0};
	bool ok = true, fresh;
	for (uint32_t i = 0; ok && i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		bool ends = e->action == CLV_ACTION_SEGMENT_FREE;
		if (!ends && e->action != CLV_ACTION_SEGMENT_ALLOC)
			continue;
		ok = see(&seen, e->addr, &fresh);
		if (ok && fresh && ends)
			ok = clv_window_add_range(
				b, &(struct clv_window_range){
					   .addr = e->addr,
					   .size = e->size,
					   .stream = b->trace->streams[e->stream],
					   .small = e->size == 2 * CLV_MIB, /* no large segment is that small */
				   });
	}
	for (uint32_t i = 0; ok && i < h->segment_count; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		if (s->expandable)
			continue;
		ok = see(&seen, s->addr, &fresh);
		if (ok && fresh)
			ok = clv_window_add_range(b, &(struct clv_window_range){
							     .addr = s->addr,
							     .size = s->size,
							     .stream = b->trace->streams[s->stream],
							     .pool = s->pool,
							     .small = s->small,
						     });
	}
	clv_map_free(&seen);
	return ok;
}

/* ---- blocks ---- */

static const struct clv_block_record *final_block(const struct clv_history *h, uint64_t addr)
{
	uint32_t lo = 0, hi = h->block_record_count;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (h->blocks[mid].addr < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < h->block_record_count && h->blocks[lo].addr == addr ? &h->blocks[lo] : NULL;
}

struct uncertain {
	uint64_t from;  /* the tail ends somewhere in [from, from + TAIL] */
	uint32_t index; /* in w->blocks */
	uint32_t freed_at;
};

/* The first allocation that begins within a possible tail shows where the tail ended. */
static void look_for_tails(struct clv_window_builder *b, struct uncertain *u, uint32_t count, uint32_t until)
{
	struct clv_torch_window *w = b->w;
	for (uint32_t i = 0; i < until; i++) {
		const struct clv_event_record *e = &b->h->events[i];
		if (e->action != CLV_ACTION_ALLOC)
			continue;
		uint32_t lo = 0, hi = count;
		while (lo < hi) {
			uint32_t mid = lo + (hi - lo) / 2;
			if (u[mid].from <= e->addr)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (!lo || u[lo - 1].freed_at <= i || e->addr - u[lo - 1].from > TAIL)
			continue;
		struct uncertain *found = &u[lo - 1];
		w->blocks[found->index].size = e->addr - w->blocks[found->index].addr;
		found->freed_at = 0; /* certain now */
	}
	for (uint32_t k = 0; k < count; k++)
		if (u[k].freed_at)
			w->exact_from = clv_max_u64(w->exact_from, (uint64_t)u[k].freed_at + 1);
}

static bool size_blocks(struct clv_window_builder *b, const uint32_t *freed_at)
{
	struct clv_torch_window *w = b->w;
	struct uncertain *u = clv_mem_realloc(NULL, (w->block_count + 1), sizeof(*u));
	uint32_t count = 0, until = 0, s = 0;
	if (!u)
		return false;
	for (uint32_t i = 0; i < w->block_count; i++) {
		struct clv_window_block *k = &w->blocks[i];
		const struct clv_block_record *last =
			freed_at[k->block] == UINT32_MAX ? final_block(b->h, k->addr) : NULL;
		if (last && last->state != CLV_BLOCK_INACTIVE) {
			k->size = last->size;
			continue;
		}
		uint64_t size = clv_torch_round(b->settings, k->requested);
		while (s + 1 < w->range_count && w->ranges[s + 1].addr <= k->addr)
			s++;
		k->size = size;
		if (s >= w->range_count || w->ranges[s].expandable || w->ranges[s].small)
			continue; /* these leave no tails */
		uint64_t end = w->ranges[s].addr + w->ranges[s].size;
		if (i + 1 < w->block_count && w->blocks[i + 1].addr < end)
			end = w->blocks[i + 1].addr;
		if (end < k->addr + size)
			continue;
		uint64_t gap = end - (k->addr + size);
		/* free blocks of the large pool are larger than a tail, and oversized blocks are never cut */
		if (gap <= TAIL || size >= b->settings->max_split_size) {
			k->size += gap;
			continue;
		}
		uint32_t freed = freed_at[k->block];
		u[count++] = (struct uncertain){k->addr + size, i, freed == UINT32_MAX ? b->h->event_count : freed};
		until = u[count - 1].freed_at > until ? u[count - 1].freed_at : until;
	}
	look_for_tails(b, u, count, until);
	clv_mem_free(u);
	return true;
}

static bool initial_blocks(struct clv_window_builder *b)
{
	const struct clv_history *h = b->h;
	struct clv_torch_window *w = b->w;
	if (!h->initial_count)
		return true;
	uint32_t *freed_at = clv_mem_realloc(NULL, h->initial_count, sizeof(*freed_at));
	w->blocks = clv_mem_zalloc(h->initial_count, sizeof(*w->blocks));
	bool ok = freed_at && w->blocks;
	for (uint32_t i = 0; ok && i < h->initial_count; i++) {
		const struct clv_initial_block *k = &h->initial[i];
		ok = k->block < h->initial_count;
		if (!ok)
			break;
		freed_at[k->block] = UINT32_MAX;
		w->blocks[w->block_count++] = (struct clv_window_block){
			.addr = k->addr,
			.requested = k->size,
			.stream = b->trace->streams[k->stream],
			.block = k->block,
		};
	}
	bool *pending = ok ? clv_mem_zalloc(h->initial_count, sizeof(*pending)) : NULL;
	ok = pending != NULL;
	for (uint32_t i = 0; ok && i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->block >= h->initial_count || freed_at[e->block] != UINT32_MAX)
			continue;
		if (e->action == CLV_ACTION_FREE_REQUESTED || e->action == CLV_ACTION_FREE_COMPLETED)
			freed_at[e->block] = i;
		pending[e->block] = e->action == CLV_ACTION_FREE_COMPLETED;
	}
	for (uint32_t i = 0; ok && i < w->block_count; i++) {
		struct clv_window_block *k = &w->blocks[i];
		const struct clv_block_record *last = freed_at[k->block] == UINT32_MAX ? final_block(h, k->addr) : NULL;
		k->pending = pending[k->block] || (last && last->state == CLV_BLOCK_PENDING_FREE);
	}
	if (ok) {
		qsort(w->blocks, w->block_count, sizeof(*w->blocks), clv_window_by_addr);
		ok = size_blocks(b, freed_at);
	}
	clv_mem_free(pending);
	clv_mem_free(freed_at);
	return ok;
}

bool clv_torch_window_init(struct clv_torch_window *w, const struct clv_trace *trace, const struct clv_history *history,
			   const struct clv_torch_settings *settings, uint64_t device_total, struct clv_error *err)
{
	struct clv_window_builder b = {.w = w,
				       .trace = trace,
				       .h = history,
				       .settings = settings,
				       .reservation = clv_torch_reservation_bytes(settings, device_total, false)};
	*w = (struct clv_torch_window){NULL};
	if (clv_window_expandable(&b) && native_ranges(&b)) {
		if (w->range_count)
			qsort(w->ranges, w->range_count, sizeof(*w->ranges), clv_window_by_addr);
		if (initial_blocks(&b))
			return true;
	}
	clv_torch_window_free(w);
	return clv_error_set(err, "out of host memory");
}

void clv_torch_window_free(struct clv_torch_window *w)
{
	clv_mem_free(w->ranges);
	clv_mem_free(w->blocks);
	clv_mem_free(w->reserved);
	*w = (struct clv_torch_window){NULL};
}

bool *clv_torch_custom_pools(const struct clv_history *history, bool expandable)
{
	bool *custom = clv_mem_zalloc(history->pool_count + (size_t)1, sizeof(*custom));
	for (uint32_t i = 0; custom && expandable && i < history->segment_count; i++) {
		const struct clv_segment_record *s = &history->segments[i];
		if (s->pool && s->pool < history->pool_count && !s->expandable)
			custom[s->pool] = true;
	}
	return custom;
}
