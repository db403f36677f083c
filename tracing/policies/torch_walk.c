/* SPDX-License-Identifier: MIT */
#include "torch_walk.h"

#include "../memory.h"
#include "torch_force.h"
#include "torch_window.h"

#include <stdio.h>
#include <stdlib.h>

static void forget_block(void *ctx, uint32_t owner)
{
	struct clv_walk *v = ctx;
	if (owner < v->h->block_count)
		v->step.block_of[owner] = CLV_TORCH_NONE;
}

/* ---- the start ---- */

static bool make_pools(struct clv_walk *v)
{
	bool *custom = clv_torch_custom_pools(v->h, v->settings.expandable), ok = custom != NULL;
	for (uint32_t p = 1; ok && p < v->h->pool_count; p++)
		ok = clv_torch_pool_create(v->m, &(struct clv_torch_pool_options){.custom_allocator = custom[p]}) == p;
	clv_mem_free(custom);
	v->step.pool_count = v->h->pool_count ? v->h->pool_count : 1;
	return ok;
}

static int by_base(const void *a, const void *b)
{
	uint64_t x = ((const struct clv_window_reserved *)a)->base, y = ((const struct clv_window_reserved *)b)->base;
	return x < y ? -1 : x > y;
}

static void put_reserved(struct clv_walk *v, struct clv_torch_window *w)
{
	if (w->reserved_count)
		qsort(w->reserved, w->reserved_count, sizeof(*w->reserved), by_base);
	for (uint32_t i = 0; i < w->reserved_count; i++) {
		const struct clv_window_reserved *r = &w->reserved[i];
		uint64_t size = clv_torch_reservation_bytes(&v->settings, v->total, r->small);
		uint64_t page = r->small ? 2 * CLV_MIB : v->settings.large_segment_size;
		if (i + 1 < w->reserved_count)
			size = clv_min_u64(size, w->reserved[i + 1].base - r->base);
		size = size / page * page;
		if (size)
			clv_torch_put_expandable(v->m, &(struct clv_torch_place){r->stream, r->pool, r->small}, r->base,
						 size);
	}
}

/* What the recording itself says was reserved at most. */
static uint64_t recorded_peak(const struct clv_history *h, const struct clv_torch_window *w)
{
	uint64_t held = 0, peak;
	for (uint32_t i = 0; i < w->range_count; i++)
		held += w->ranges[i].size;
	peak = held;
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->action == CLV_ACTION_SEGMENT_ALLOC || e->action == CLV_ACTION_SEGMENT_MAP)
			held += e->size;
		else if (e->action == CLV_ACTION_SEGMENT_FREE || e->action == CLV_ACTION_SEGMENT_UNMAP)
			held -= clv_min_u64(held, e->size);
		peak = clv_max_u64(peak, held);
	}
	return peak;
}

/* Garbage collection releases by age, and how long a segment was free before the window nobody knows. */
static bool note_aged(struct clv_walk *v, const struct clv_torch_window *w)
{
	if (!v->step.limit_known || v->settings.gc_threshold <= 0.0)
		return true;
	for (uint32_t i = 0; i < w->range_count; i++) {
		const struct clv_window_range *r = &w->ranges[i];
		struct clv_torch_block_info b;
		clv_torch_block_get(v->m, clv_torch_find(v->m, r->addr), &b);
		if (r->small || r->expandable || r->pool || b.allocated || b.pending || b.size != r->size)
			continue;
		struct clv_map_slot *slot = clv_map_slot(&v->aged, r->addr);
		if (!slot)
			return false;
		slot->value = 1;
		v->aged_count++;
	}
	return true;
}

/* An event that ends what is not known of such a segment: it is given back, or its front is in use again. */
static void forget_aged(struct clv_walk *v, uint32_t i)
{
	const struct clv_event_record *e = &v->h->events[i];
	if (e->action != CLV_ACTION_ALLOC && e->action != CLV_ACTION_SEGMENT_FREE)
		return;
	if (clv_map_get(&v->aged, e->addr) != 1)
		return;
	clv_map_slot(&v->aged, e->addr)->value = 0;
	if (--v->aged_count == 0)
		v->out->exact_from_event = clv_max_u64(v->out->exact_from_event, (uint64_t)i + 1);
}

static bool start(struct clv_walk *v, struct clv_error *err)
{
	struct clv_torch_window w;
	if (!clv_torch_window_init(&w, v->trace, v->h, &v->settings, v->total, err))
		return false;
	const struct clv_torch_lost lost = {forget_block, v};
	put_reserved(v, &w);
	for (uint32_t i = 0; i < w.range_count; i++) {
		const struct clv_window_range *r = &w.ranges[i];
		struct clv_torch_place place = {r->stream, r->pool, r->small};
		if (r->expandable)
			clv_torch_put_mapped(v->m, &place, r->addr, r->size);
		else if (r->size)
			clv_torch_put_segment(v->m, &place, r->addr, r->size, &lost);
	}
	v->out->inferred[CLV_INFERRED_INITIAL_SEGMENT] = w.range_count;
	for (uint32_t i = 0; i < w.block_count; i++) {
		const struct clv_window_block *b = &w.blocks[i];
		struct clv_torch_request request = {.size = b->requested, .stream = b->stream, .owner = b->block};
		uint32_t block = clv_torch_put_block(v->m, b->addr, b->size, &request);
		if (!block)
			continue;
		if (b->pending)
			clv_torch_free_requested(v->m, block);
		v->step.block_of[b->block] = block;
		v->out->inferred[CLV_INFERRED_INITIAL_BLOCK]++;
	}
	v->out->exact_from_event = clv_min_u64(w.exact_from, v->h->event_count);
	v->cut = w.range_count != 0;
	v->step.peak_reserved = recorded_peak(v->h, &w);
	bool ok = note_aged(v, &w);
	clv_torch_window_free(&w);
	return ok || clv_error_set(err, "out of host memory");
}

/* ---- after a mismatch: the model is put where the recording is ---- */

/* A free whose request was not recorded: it completes where it stands, and is the program's own step. */
static bool frees_alone(const struct clv_walk *v, const struct clv_event_record *e)
{
	struct clv_torch_block_info b;
	if (e->action != CLV_ACTION_FREE_COMPLETED || e->block == CLV_NO_BLOCK)
		return false;
	clv_torch_block_get(v->m, v->step.block_of[e->block], &b);
	return b.allocated;
}

static bool is_request(const struct clv_walk *v, uint32_t i)
{
	return i < v->h->event_count &&
	       (v->h->events[i].action == CLV_ACTION_ALLOC || v->h->events[i].action == CLV_ACTION_OOM);
}

/* What the request at the end of the step asks for tells whether its new segment is of the small pool. */
static bool small_step(const struct clv_walk *v, uint32_t end)
{
	return is_request(v, end) && clv_torch_round(&v->settings, v->h->events[end].size) <= CLV_MIB;
}

static void put_event(struct clv_walk *v, uint32_t i)
{
	const struct clv_event_record *e = &v->h->events[i];
	const struct clv_torch_lost lost = {forget_block, v};
	struct clv_torch_place place = {v->trace->streams[e->stream], e->pool, small_step(v, v->step.end)};
	switch ((enum clv_action)e->action) {
	case CLV_ACTION_FREE_COMPLETED:
		clv_step_complete(&v->step, e->block);
		break;
	case CLV_ACTION_SEGMENT_ALLOC:
		if (e->size)
			clv_torch_put_segment(v->m, &place, e->addr, e->size, &lost);
		break;
	case CLV_ACTION_SEGMENT_FREE:
		clv_torch_drop_segment(v->m, e->addr, &lost);
		break;
	case CLV_ACTION_SEGMENT_MAP:
		if (e->size && !clv_torch_put_mapped(v->m, &place, e->addr, e->size) &&
		    clv_torch_put_expandable(v->m, &place, e->addr,
					     clv_torch_reservation_bytes(&v->settings, v->total, place.small)))
			clv_torch_put_mapped(v->m, &place, e->addr, e->size);
		break;
	case CLV_ACTION_SEGMENT_UNMAP:
		if (e->size)
			clv_torch_put_unmapped(v->m, e->addr, e->size);
		break;
	default:
		break;
	}
}

bool clv_walk_is_segment_event(const struct clv_event_record *e)
{
	return e->action >= CLV_ACTION_SEGMENT_ALLOC && e->action <= CLV_ACTION_SEGMENT_UNMAP;
}

/* The segment_alloc that made the native segment at an address, before the step at hand; CLV_NO_BLOCK: none did. */
static uint32_t made_by(const struct clv_walk *v, uint64_t addr)
{
	for (uint32_t i = v->step.end; addr && i-- > 0;) {
		const struct clv_event_record *e = &v->h->events[i];
		if (e->action == CLV_ACTION_SEGMENT_ALLOC && addr >= e->addr && addr - e->addr < e->size)
			return i;
	}
	return CLV_NO_BLOCK;
}

/* What could explain the first mismatch: the segment that the model took from, or gave back, or that the recording took
 * from, was of a pool that the final state does not show; or equal blocks are told apart by something else. */
static void note_suspects(struct clv_walk *v)
{
	const struct clv_step *s = &v->step;
	const struct clv_event_record *e = s->end < v->h->event_count ? &v->h->events[s->end] : NULL;
	struct clv_torch_block_info ours, theirs;
	bool alloc = e && e->action == CLV_ACTION_ALLOC;
	v->suspects[0] = made_by(v, s->wrong_at);
	v->suspects[1] = alloc ? made_by(v, e->addr) : CLV_NO_BLOCK;
	clv_torch_block_get(v->m, clv_torch_find(v->m, s->wrong_at), &ours);
	clv_torch_block_get(v->m, alloc ? clv_torch_find(v->m, e->addr) : CLV_TORCH_NONE, &theirs);
	v->suspect_tie = s->wrong_addr && ours.size && ours.size == theirs.size && ours.addr != theirs.addr;
}

static void note_mismatch(struct clv_walk *v)
{
	struct clv_verify_result *out = v->out;
	const struct clv_step *s = &v->step;
	uint64_t wrong = 0;
	for (uint32_t i = s->furthest; i < s->end; i++)
		wrong += clv_walk_is_segment_event(&v->h->events[i]);
	wrong = s->wrong_segment && !wrong ? 1 : wrong;
	out->segment_mismatches += wrong;
	out->address_mismatches += s->wrong_addr;
	out->oom_mismatches += s->wrong_oom;
	if (s->furthest >= out->exact_from_event && !v->aged_count)
		out->late_mismatches += wrong + s->wrong_addr + s->wrong_oom;
	if (out->first_mismatch.set)
		return;
	note_suspects(v);
	out->first_mismatch.set = true;
	out->first_mismatch.event = s->furthest;
	snprintf(out->first_mismatch.text, sizeof(out->first_mismatch.text), "%s", s->text);
}

/* The step that begins at s->first was not explained. */
static void resynchronise(struct clv_walk *v, bool request)
{
	struct clv_step *s = &v->step;
	uint32_t first = s->first;
	if (v->cut && request)
		v->out->exact_from_event = clv_max_u64(v->out->exact_from_event, (uint64_t)s->end + 1);
	else
		note_mismatch(v);
	for (uint32_t i = first; i < s->end; i++)
		put_event(v, i);
	s->freed_count = 0;
	const struct clv_event_record *e = request ? &v->h->events[s->end] : NULL;
	if (!e || e->action != CLV_ACTION_ALLOC)
		return;
	struct clv_torch_request asked = clv_step_asked(s, 0);
	uint64_t size = clv_torch_size_at(v->m, e->addr, &asked);
	s->block_of[e->block] = size ? clv_torch_put_block(v->m, e->addr, size, &asked) : CLV_TORCH_NONE;
}

/* ---- the walk ---- */

static uint32_t step_end(const struct clv_walk *v, uint32_t i)
{
	for (; i < v->h->event_count; i++) {
		const struct clv_event_record *e = &v->h->events[i];
		if (clv_step_ignored(e))
			continue;
		if (is_request(v, i) || e->action == CLV_ACTION_FREE_REQUESTED || frees_alone(v, e))
			break;
	}
	return i;
}

static uint32_t walk_free(struct clv_walk *v, uint32_t i)
{
	const struct clv_event_record *e = &v->h->events[i];
	uint32_t block = e->block == CLV_NO_BLOCK ? CLV_TORCH_NONE : v->step.block_of[e->block];
	bool at_once = i + 1 < v->h->event_count && e[1].action == CLV_ACTION_FREE_COMPLETED && e[1].block == e->block;
	struct clv_torch_block_info b;
	clv_torch_block_get(v->m, block, &b);
	if (e->action == CLV_ACTION_FREE_REQUESTED && !at_once) {
		v->out->inferred[CLV_INFERRED_DEFERRED_FREE]++;
		if (b.allocated)
			clv_torch_free_requested(v->m, block);
		return i + 1;
	}
	if (b.allocated)
		clv_torch_free(v->m, block);
	else if (b.pending)
		clv_torch_free_completed(v->m, block);
	if (block)
		v->step.block_of[e->block] = CLV_TORCH_NONE;
	return e->action == CLV_ACTION_FREE_REQUESTED ? i + 2 : i + 1;
}

static uint32_t walk_step(struct clv_walk *v, uint32_t i)
{
	struct clv_step *s = &v->step;
	s->first = i;
	s->end = step_end(v, i);
	for (uint32_t k = i; k < s->end; k++)
		v->out->segment_events += clv_walk_is_segment_event(&v->h->events[k]);
	bool request = is_request(v, s->end);
	if (!(request ? clv_step_request(s) : clv_step_quiet(s)) && !s->broken)
		resynchronise(v, request);
	for (uint32_t k = i; v->aged_count && k <= s->end && k < v->h->event_count; k++)
		forget_aged(v, k);
	if (!request)
		return s->end;
	v->cut = false;
	return s->end + 1;
}

static void walk(struct clv_walk *v)
{
	for (uint32_t i = 0; i < v->h->event_count && !v->step.broken && !clv_torch_broken(v->m);) {
		if (CLV_UNLIKELY(v->trial && v->out->late_mismatches))
			return;
		const struct clv_event_record *e = &v->h->events[i];
		if (e->action == CLV_ACTION_FREE_REQUESTED || frees_alone(v, e)) {
			i = walk_free(v, i);
			continue;
		}
		v->step.first = v->step.end = i;
		if (clv_step_ignored(e)) {
			i++;
		} else if (e->action == CLV_ACTION_ALLOC) {
			struct clv_torch_request request = clv_step_asked(&v->step, clv_step_pool(&v->step));
			uint32_t block = clv_torch_malloc_cached_at(v->m, &request, e->addr);
			v->out->allocs++;
			if (block) {
				v->step.block_of[e->block] = block;
				v->cut = false;
				if (CLV_UNLIKELY(v->aged_count))
					forget_aged(v, i);
				i++;
			} else {
				i = walk_step(v, i);
			}
		} else {
			uint32_t end = step_end(v, i);
			v->out->allocs += end < v->h->event_count && v->h->events[end].action == CLV_ACTION_ALLOC;
			v->out->ooms += end < v->h->event_count && v->h->events[end].action == CLV_ACTION_OOM;
			i = walk_step(v, i);
		}
	}
}

/* ---- the end ---- */

static bool final_state(const struct clv_walk *v)
{
	const struct clv_history *h = v->h;
	uint64_t bytes = 0;
	if (!h->has_state)
		return true;
	for (uint32_t i = 0; i < h->block_record_count; i++) {
		const struct clv_block_record *r = &h->blocks[i];
		struct clv_torch_block_info b;
		uint32_t block = clv_torch_find(v->m, r->addr);
		clv_torch_block_get(v->m, block, &b);
		if (!block || !b.mapped || b.addr != r->addr || b.size != r->size ||
		    b.allocated != (r->state == CLV_BLOCK_ACTIVE) || b.pending != (r->state == CLV_BLOCK_PENDING_FREE))
			return false;
		bytes += r->size;
	}
	return bytes == clv_torch_reserved(v->m);
}

bool clv_walk_run(struct clv_walk *v, struct clv_map *vanished, struct clv_verify_result *out, struct clv_error *err)
{
	struct clv_torch_config config = {
		.settings = v->settings,
		.source = clv_step_source(&v->step),
		.limit = v->limit,
		.device_total = v->total,
		.find = true,
	};
	*out = (struct clv_verify_result){0};
	v->out = out;
	v->suspects[0] = v->suspects[1] = CLV_NO_BLOCK;
	v->suspect_tie = false;
	clv_step_init(&v->step);
	v->step.trace = v->trace;
	v->step.h = v->h;
	v->step.out = out;
	v->step.settings = &v->settings;
	v->step.vanished = vanished;
	v->step.vanishes = v->vanishes;
	v->step.limit_known = v->limit != CLV_TORCH_UNLIMITED;
	v->step.block_of = clv_mem_zalloc((size_t)v->h->block_count + 1, sizeof(*v->step.block_of));
	v->m = v->step.m = clv_torch_open(&config);
	bool ok = v->step.block_of && v->m && make_pools(v) && start(v, err);
	if (ok) {
		walk(v);
		ok = !v->step.broken && !clv_torch_broken(v->m);
	}
	if (ok) {
		struct clv_torch_stats stats;
		clv_torch_get_stats(v->m, &stats);
		out->final_state_matches = final_state(v);
		out->retries = stats.num_alloc_retries;
		out->peak_reserved_bytes = (uint64_t)stats.of[CLV_TORCH_ALL][CLV_TORCH_RESERVED_BYTES].peak;
		out->stranded_peak_bytes = stats.stranded_peak_bytes;
		if (v->aged_count)
			out->exact_from_event = v->h->event_count;
	}
	clv_torch_close(v->m);
	clv_mem_free(v->step.block_of);
	clv_map_free(&v->aged);
	v->aged_count = 0;
	clv_step_done(&v->step);
	if (!ok)
		clv_verify_free(out);
	return ok || clv_error_set(err, "out of host memory");
}
