/* SPDX-License-Identifier: MIT */
#include "torch_verify.h"

#include "../memory.h"
#include "torch_force.h"
#include "torch_step.h"
#include "torch_window.h"

#include <stdio.h>
#include <stdlib.h>

#define SOME_DEVICE ((uint64_t)4 << 40) /* addresses of an expandable segment on a device of unknown size */

struct verify {
	struct clv_step step;
	const struct clv_trace *trace;
	const struct clv_history *h;
	struct clv_torch_settings settings;
	struct clv_torch *m;
	struct clv_verify_result *out;
	uint64_t limit, total;
	uint64_t address_bytes; /* of an expandable segment */
	bool cut;               /* the first request may have lost its first events */
};

const char *clv_inferred_name(enum clv_inferred i)
{
	static const char *const names[] = {
#define X(name, text) [CLV_INFERRED_##name] = text,
		CLV_INFERRED(X)
#undef X
	};
	return (size_t)i < CLV_ARRAY_LEN(names) ? names[i] : "unknown";
}

/* ---- the start ---- */

/* A pool whose segments are not expandable although the setting says so has an allocator of its own. */
static bool make_pools(struct verify *v)
{
	for (uint32_t p = 1; p < v->h->pool_count; p++) {
		struct clv_torch_pool_options options = {false};
		for (uint32_t i = 0; v->settings.expandable && i < v->h->segment_count; i++)
			if (v->h->segments[i].pool == p && !v->h->segments[i].expandable)
				options.custom_allocator = true;
		if (clv_torch_pool_create(v->m, &options) != p)
			return false;
	}
	v->step.pool_count = v->h->pool_count ? v->h->pool_count : 1;
	return true;
}

static int by_base(const void *a, const void *b)
{
	uint64_t x = ((const struct clv_window_reserved *)a)->base, y = ((const struct clv_window_reserved *)b)->base;
	return x < y ? -1 : x > y;
}

static void put_reserved(struct verify *v, struct clv_torch_window *w)
{
	if (w->reserved_count)
		qsort(w->reserved, w->reserved_count, sizeof(*w->reserved), by_base);
	for (uint32_t i = 0; i < w->reserved_count; i++) {
		const struct clv_window_reserved *r = &w->reserved[i];
		uint64_t size = v->address_bytes, page = r->small ? 2 * CLV_MIB : v->settings.large_segment_size;
		if (i + 1 < w->reserved_count)
			size = clv_min_u64(size, w->reserved[i + 1].base - r->base);
		size = size / page * page;
		if (size)
			clv_torch_put_expandable(v->m, &(struct clv_torch_place){r->stream, r->pool, r->small}, r->base, size);
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

static bool start(struct verify *v, struct clv_error *err)
{
	struct clv_torch_window w;
	if (!clv_torch_window_init(&w, v->trace, v->h, &v->settings, v->address_bytes, err))
		return false;
	put_reserved(v, &w);
	for (uint32_t i = 0; i < w.range_count; i++) {
		const struct clv_window_range *r = &w.ranges[i];
		struct clv_torch_place place = {r->stream, r->pool, r->small};
		if (r->expandable)
			clv_torch_put_mapped(v->m, r->addr, r->size);
		else if (r->size)
			clv_torch_put_segment(v->m, &place, r->addr, r->size);
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
	clv_torch_window_free(&w);
	return true;
}

/* ---- after a mismatch: the model is put where the recording is ---- */

static void lost(void *ctx, uint32_t owner)
{
	struct verify *v = ctx;
	if (owner < v->h->block_count)
		v->step.block_of[owner] = CLV_TORCH_NONE;
}

/* What the request at the end of the step asks for tells whether its new segment is of the small pool. */
static bool small_step(const struct verify *v, uint32_t end)
{
	const struct clv_event_record *e = &v->h->events[end];
	return end < v->h->event_count && e->action != CLV_ACTION_FREE_REQUESTED &&
	       clv_torch_round(&v->settings, e->size) <= CLV_MIB;
}

static void put_event(struct verify *v, uint32_t i)
{
	const struct clv_event_record *e = &v->h->events[i];
	struct clv_torch_place place = {v->trace->streams[e->stream], e->pool, small_step(v, v->step.end)};
	switch ((enum clv_action)e->action) {
	case CLV_ACTION_FREE_COMPLETED:
		clv_step_complete(&v->step, e->block);
		break;
	case CLV_ACTION_SEGMENT_ALLOC:
		if (e->size)
			clv_torch_put_segment(v->m, &place, e->addr, e->size);
		break;
	case CLV_ACTION_SEGMENT_FREE:
		clv_torch_drop_segment(v->m, e->addr, lost, v);
		break;
	case CLV_ACTION_SEGMENT_MAP:
		if (e->size && !clv_torch_put_mapped(v->m, e->addr, e->size) &&
		    clv_torch_put_expandable(v->m, &place, e->addr, v->address_bytes))
			clv_torch_put_mapped(v->m, e->addr, e->size);
		break;
	case CLV_ACTION_SEGMENT_UNMAP:
		if (e->size)
			clv_torch_put_unmapped(v->m, e->addr, e->size);
		break;
	default:
		break;
	}
}

static bool is_segment_event(const struct clv_event_record *e)
{
	return e->action >= CLV_ACTION_SEGMENT_ALLOC && e->action <= CLV_ACTION_SEGMENT_UNMAP;
}

static void note_mismatch(struct verify *v)
{
	struct clv_verify_result *out = v->out;
	const struct clv_step *s = &v->step;
	uint64_t wrong = 0;
	for (uint32_t i = s->furthest; i < s->end; i++)
		wrong += is_segment_event(&v->h->events[i]);
	out->segment_mismatches += s->wrong_segment && !wrong ? 1 : wrong;
	out->address_mismatches += s->wrong_addr;
	out->oom_mismatches += s->wrong_oom;
	if (out->first_mismatch.set)
		return;
	out->first_mismatch.set = true;
	out->first_mismatch.event = s->furthest;
	snprintf(out->first_mismatch.text, sizeof(out->first_mismatch.text), "%s", s->text);
}

/* The step that begins at s->first was not explained. */
static void resynchronise(struct verify *v, bool request)
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
	const struct clv_event_record *e = &v->h->events[s->end];
	if (!request || e->action != CLV_ACTION_ALLOC)
		return;
	struct clv_torch_request asked = clv_step_asked(s, 0);
	uint64_t size = clv_torch_size_at(v->m, e->addr, &asked);
	s->block_of[e->block] = size ? clv_torch_put_block(v->m, e->addr, size, &asked) : CLV_TORCH_NONE;
}

/* ---- the walk ---- */

static uint32_t step_end(const struct verify *v, uint32_t i)
{
	for (; i < v->h->event_count; i++) {
		const struct clv_event_record *e = &v->h->events[i];
		if (clv_step_ignored(e))
			continue;
		if (e->action == CLV_ACTION_ALLOC || e->action == CLV_ACTION_OOM || e->action == CLV_ACTION_FREE_REQUESTED)
			break;
	}
	return i;
}

static uint32_t walk_free(struct verify *v, uint32_t i)
{
	const struct clv_event_record *e = &v->h->events[i];
	uint32_t block = e->block == CLV_NO_BLOCK ? CLV_TORCH_NONE : v->step.block_of[e->block];
	bool at_once = i + 1 < v->h->event_count && e[1].action == CLV_ACTION_FREE_COMPLETED && e[1].block == e->block;
	if (!at_once) {
		v->out->inferred[CLV_INFERRED_DEFERRED_FREE]++;
		if (block)
			clv_torch_free_requested(v->m, block);
		return i + 1;
	}
	if (block) {
		clv_torch_free(v->m, block);
		v->step.block_of[e->block] = CLV_TORCH_NONE;
	}
	return i + 2;
}

static uint32_t walk_step(struct verify *v, uint32_t i)
{
	struct clv_step *s = &v->step;
	s->first = i;
	s->end = step_end(v, i);
	for (uint32_t k = i; k < s->end; k++)
		v->out->segment_events += is_segment_event(&v->h->events[k]);
	bool request = s->end < v->h->event_count && v->h->events[s->end].action != CLV_ACTION_FREE_REQUESTED;
	if (!(request ? clv_step_request(s) : clv_step_quiet(s)) && !s->broken)
		resynchronise(v, request);
	if (!request)
		return s->end;
	v->cut = false;
	return s->end + 1;
}

static void walk(struct verify *v)
{
	for (uint32_t i = 0; i < v->h->event_count && !v->step.broken && !clv_torch_broken(v->m);) {
		const struct clv_event_record *e = &v->h->events[i];
		if (e->action == CLV_ACTION_FREE_REQUESTED) {
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

static bool final_state(const struct verify *v)
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

static bool run(struct verify *v, struct clv_error *err)
{
	struct clv_torch_config config = {
		.settings = v->settings,
		.source = clv_step_source(&v->step),
		.limit = v->limit,
		.device_total = v->total,
		.find = true,
	};
	clv_step_init(&v->step);
	v->step.trace = v->trace;
	v->step.h = v->h;
	v->step.out = v->out;
	v->step.settings = &v->settings;
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
		v->out->final_state_matches = final_state(v);
		v->out->retries = stats.num_alloc_retries;
		v->out->peak_reserved_bytes = (uint64_t)stats.of[CLV_TORCH_ALL][CLV_TORCH_RESERVED_BYTES].peak;
		v->out->stranded_peak_bytes = stats.stranded_peak_bytes;
	}
	clv_torch_close(v->m);
	clv_mem_free(v->step.block_of);
	clv_step_done(&v->step);
	return ok || clv_error_set(err, "out of host memory");
}

bool clv_torch_verify(const struct clv_trace *trace, const struct clv_history *history, struct clv_verify_result *out,
		      struct clv_error *err)
{
	struct verify v = {.trace = trace, .h = history, .out = out};
	*out = (struct clv_verify_result){0};
	if (!clv_torch_settings_recorded(&v.settings, &trace->torch, err))
		return false;
	v.limit = clv_torch_recorded_limit(&trace->torch);
	v.total = trace->torch.has_probe ? trace->torch.total_bytes : 0;
	uint64_t total = v.total ? v.total : SOME_DEVICE, page = v.settings.large_segment_size;
	v.address_bytes = (total + total / 8 + page - 1) / page * page;
	if (run(&v, err))
		return true;
	clv_verify_free(out);
	return false;
}

void clv_verify_free(struct clv_verify_result *result)
{
	clv_mem_free(result->empty_caches);
	result->empty_caches = NULL;
	result->empty_cache_count = 0;
}
