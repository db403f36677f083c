/* SPDX-License-Identifier: MIT */
#include "torch_step.h"

#include "../memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define MAX_OOM_POOLS 16 /* that a failed request is tried in */

/* What a try supposes beyond the recording. */
struct guess {
	uint32_t pool; /* that the request was put to */
	uint32_t
		completed; /* frees at the start of the step that completed before the request's search, not in its flush */
	uint32_t empty_pool; /* the cache of this pool was emptied first; 0: none */
	bool empty_cache;    /* the cache was emptied first */
	bool refusals;       /* the driver may refuse although the limit is known */
	bool capturing;
	bool on_oom;  /* the request was of the default pool, and the pool that served it is used on OOM */
	bool request; /* false: the step is an emptied cache and no more */
};

bool clv_step_ignored(const struct clv_event_record *e)
{
	bool nothing = e->action == CLV_ACTION_ALLOC && e->block == CLV_NO_BLOCK; /* of size 0 */
	return nothing || e->action == CLV_ACTION_SNAPSHOT || e->action >= CLV_ACTION_OTHER;
}

enum wrong { WRONG_SEGMENT = 1, WRONG_ADDR = 2, WRONG_OOM = 4 };

CLV_PRINTF(4, 5) static void fail(struct clv_step *s, unsigned wrong, uint64_t addr, const char *fmt, ...)
{
	if (s->failed)
		return;
	s->failed = true;
	if (s->furthest_set && s->cursor <= s->furthest)
		return;
	s->furthest = s->cursor;
	s->furthest_set = true;
	s->wrong_segment = wrong & WRONG_SEGMENT;
	s->wrong_addr = wrong & WRONG_ADDR;
	s->wrong_oom = wrong & WRONG_OOM;
	s->wrong_at = addr;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->text, sizeof(s->text), fmt, ap);
	va_end(ap);
}

/* The next event of the step that the model has to explain; NULL: only what is at `end` is left. */
static const struct clv_event_record *next_event(struct clv_step *s)
{
	while (s->cursor < s->end && clv_step_ignored(&s->h->events[s->cursor]))
		s->cursor++;
	return s->cursor < s->end ? &s->h->events[s->cursor] : NULL;
}

static void fail_at(struct clv_step *s, const char *got, uint64_t addr, uint64_t size)
{
	const struct clv_event_record *e = next_event(s);
	unsigned wrong = WRONG_SEGMENT;
	if (!e && s->end < s->h->event_count) {
		e = &s->h->events[s->end];
		wrong |= e->action == CLV_ACTION_ALLOC ? WRONG_ADDR : 0;
	}
	if (e)
		fail(s, wrong, addr,
		     "expected %s of %" PRIu64 " bytes at %#" PRIx64 ", got %s of %" PRIu64 " bytes at %#" PRIx64,
		     clv_action_name(e->action), e->size, e->addr, got, size, addr);
	else
		fail(s, wrong, addr, "expected the end, got %s of %" PRIu64 " bytes at %#" PRIx64, got, size, addr);
}

static bool matches(struct clv_step *s, enum clv_action action, uint64_t addr, uint64_t size)
{
	const struct clv_event_record *e = next_event(s);
	if (s->failed || !e || e->action != action || e->addr != addr || e->size != size)
		return false;
	s->cursor++;
	return true;
}

static bool may_be_refused(struct clv_step *s)
{
	const struct clv_event_record *e = next_event(s);
	bool goes_on = e ? e->action != CLV_ACTION_SEGMENT_ALLOC && e->action != CLV_ACTION_SEGMENT_MAP
			 : s->end < s->h->event_count && s->h->events[s->end].action == CLV_ACTION_OOM;
	return s->may_refuse && goes_on;
}

/* Without a known limit the driver refused where the recording goes on with releases, or ends in an OOM. */
static bool refused(struct clv_step *s)
{
	if (!may_be_refused(s))
		return false;
	s->refusals++;
	return true;
}

static uint64_t device_alloc(void *ctx, uint64_t size)
{
	struct clv_step *s = ctx;
	const struct clv_event_record *e = next_event(s);
	if (s->failed)
		return 0;
	/* a recording that gives the same memory twice contradicts itself; the model's blocks never overlap */
	bool given = e && e->action == CLV_ACTION_SEGMENT_ALLOC && e->size == size;
	bool twice = given && clv_torch_overlaps(s->m, e->addr, size);
	if (given && !twice) {
		s->cursor++;
		return e->addr;
	}
	if (twice || !refused(s))
		fail_at(s, "segment_alloc", 0, size);
	return 0;
}

static void device_free(void *ctx, uint64_t addr, uint64_t size)
{
	if (!matches(ctx, CLV_ACTION_SEGMENT_FREE, addr, size))
		fail_at(ctx, "segment_free", addr, size);
}

/* The first mapping in a new expandable segment is at its base. If the driver refuses that, it comes with a later step: the
 * next one of the stream that is not in a segment which the stream has. */
static uint64_t reserve(void *ctx, uint64_t size, uint64_t page, uint64_t stream)
{
	struct clv_step *s = ctx;
	const struct clv_event_record *e = next_event(s);
	if (s->failed)
		return 0;
	if (e && e->action == CLV_ACTION_SEGMENT_MAP)
		return e->addr;
	for (uint32_t i = s->cursor; may_be_refused(s) && i < s->h->event_count; i++) {
		struct clv_torch_block_info b;
		e = &s->h->events[i];
		if (e->action != CLV_ACTION_SEGMENT_MAP || s->trace->streams[e->stream] != stream)
			continue;
		clv_torch_block_get(s->m, clv_torch_find(s->m, e->addr), &b);
		if (!b.size || b.stream != stream)
			return e->addr;
	}
	fail_at(s, "segment_map", 0, page);
	return 0;
}

static void unreserve(void *ctx, uint64_t addr, uint64_t size)
{
}

static bool map(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
	struct clv_step *s = ctx;
	if (matches(s, CLV_ACTION_SEGMENT_MAP, addr, size))
		return true;
	if (!s->failed && !refused(s))
		fail_at(s, "segment_map", addr, size);
	return false;
}

static void unmap(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
	if (!matches(ctx, CLV_ACTION_SEGMENT_UNMAP, addr, size))
		fail_at(ctx, "segment_unmap", addr, size);
}

void clv_step_complete(struct clv_step *s, uint32_t id)
{
	uint32_t block = id == CLV_NO_BLOCK ? CLV_TORCH_NONE : s->block_of[id];
	if (!block)
		return;
	struct clv_torch_block_info info;
	clv_torch_block_get(s->m, block, &info);
	if (!info.pending)
		clv_torch_free_requested(s->m, block);
	clv_torch_free_completed(s->m, block);
	s->block_of[id] = CLV_TORCH_NONE;
	if (s->freed_count == s->freed_room) {
		uint32_t room = s->freed_room ? 2 * s->freed_room : 64;
		struct clv_step_freed *freed = clv_mem_realloc(s->freed, room, sizeof(*freed));
		if (!freed) {
			s->broken = true;
			return;
		}
		s->freed = freed;
		s->freed_room = room;
	}
	s->freed[s->freed_count++] = (struct clv_step_freed){id, block};
}

/* All events are waited for: the frees that completed are in the recording, in whatever order the streams came up. */
static void complete_recorded(struct clv_step *s, uint32_t most)
{
	const struct clv_event_record *e;
	for (; most && !s->failed && (e = next_event(s)) && e->action == CLV_ACTION_FREE_COMPLETED; most--) {
		s->cursor++;
		clv_step_complete(s, e->block);
	}
}

static void sync_pending(void *ctx)
{
	complete_recorded(ctx, UINT32_MAX);
}

struct clv_torch_source clv_step_source(struct clv_step *s)
{
	return (struct clv_torch_source){
		.ctx = s,
		.device_alloc = device_alloc,
		.device_free = device_free,
		.reserve = reserve,
		.unreserve = unreserve,
		.map = map,
		.unmap = unmap,
		.sync = sync_pending,
		.sync_ctx = s,
	};
}

/* Only memory of a pool that nobody uses any more is given back: where some was, the pool is free from this step on. The
 * order among such pools is that of a hash map, so the recorded one is taken. */
static void release_pools(struct clv_step *s)
{
	if (s->pool_count < 2)
		return;
	for (uint32_t i = s->first; i < s->end; i++) {
		const struct clv_event_record *e = &s->h->events[i];
		if (e->action != CLV_ACTION_SEGMENT_FREE && e->action != CLV_ACTION_SEGMENT_UNMAP)
			continue;
		uint32_t block = clv_torch_find(s->m, e->addr);
		struct clv_torch_block_info info;
		clv_torch_block_get(s->m, block, &info);
		if (block)
			clv_torch_pool_release(s->m, info.pool);
	}
}

/* The event of the step that makes the segment of the request at its end; CLV_NO_BLOCK: none does. */
static uint32_t new_segment(const struct clv_step *s)
{
	const struct clv_event_record *request = &s->h->events[s->end];
	for (uint32_t i = s->end; i-- > s->first;) {
		const struct clv_event_record *e = &s->h->events[i];
		if ((e->action == CLV_ACTION_SEGMENT_ALLOC || e->action == CLV_ACTION_SEGMENT_MAP) &&
		    request->addr >= e->addr && request->addr - e->addr < e->size)
			return i;
	}
	return CLV_NO_BLOCK;
}

uint32_t clv_step_pool(const struct clv_step *s)
{
	if (s->pool_count < 2)
		return 0;
	uint32_t made = new_segment(s);
	if (made != CLV_NO_BLOCK) {
		uint32_t vanished = s->vanished ? clv_map_get(s->vanished, made) : CLV_MAP_NONE;
		return vanished < CLV_STEP_ANY_POOL ? vanished : s->h->events[made].pool;
	}
	struct clv_torch_block_info info;
	clv_torch_block_get(s->m, clv_torch_find(s->m, s->h->events[s->end].addr), &info);
	return info.pool;
}

struct clv_torch_request clv_step_asked(const struct clv_step *s, uint32_t pool)
{
	const struct clv_event_record *e = &s->h->events[s->end];
	return (struct clv_torch_request){
		.size = e->size,
		.stream = s->trace->streams[e->stream],
		.pool = pool,
		.owner = e->block,
		.capturing = pool != 0,
	};
}

static void put_request(struct clv_step *s, const struct guess *g)
{
	const struct clv_event_record *e = &s->h->events[s->end];
	struct clv_torch_request request = clv_step_asked(s, g->pool);
	uint32_t block;
	request.capturing = g->capturing;
	if (g->on_oom) {
		clv_torch_pool_use_on_oom(s->m, g->pool, true);
		request.pool = 0;
	}
	enum clv_torch_status status = clv_torch_malloc(s->m, &request, &block);
	if (g->on_oom)
		clv_torch_pool_use_on_oom(s->m, g->pool, false);
	if (s->failed)
		return;
	const struct clv_event_record *left = next_event(s);
	if (left) {
		fail(s, WRONG_SEGMENT | (e->action == CLV_ACTION_ALLOC ? WRONG_ADDR : WRONG_OOM),
		     clv_torch_block_addr(s->m, block),
		     "expected %s of %" PRIu64 " bytes at %#" PRIx64 ", got %s of %" PRIu64 " bytes at %#" PRIx64,
		     clv_action_name(left->action), left->size, left->addr, status == CLV_TORCH_OK ? "alloc" : "oom",
		     e->size, clv_torch_block_addr(s->m, block));
		return;
	}
	if (status == CLV_TORCH_NO_HOST_MEMORY) {
		s->broken = true;
	} else if (e->action == CLV_ACTION_OOM) {
		if (status == CLV_TORCH_OK)
			fail(s, WRONG_OOM, clv_torch_block_addr(s->m, block),
			     "expected an oom of %" PRIu64 " bytes, got them at %#" PRIx64, e->size,
			     clv_torch_block_addr(s->m, block));
	} else if (status != CLV_TORCH_OK) {
		fail(s, WRONG_OOM, 0, "expected %" PRIu64 " bytes at %#" PRIx64 ", got an oom", e->size, e->addr);
	} else if (clv_torch_block_addr(s->m, block) != e->addr) {
		fail(s, WRONG_ADDR, clv_torch_block_addr(s->m, block),
		     "expected %" PRIu64 " bytes at %#" PRIx64 ", got them at %#" PRIx64, e->size, e->addr,
		     clv_torch_block_addr(s->m, block));
	} else {
		s->block_of[e->block] = block;
	}
}

static bool add_empty_cache(struct clv_step *s)
{
	struct clv_verify_result *out = s->out;
	out->inferred[CLV_INFERRED_EMPTY_CACHE]++;
	if ((out->empty_cache_count & (out->empty_cache_count + 1)) == 0) {
		/* one more than a power of two is stored at most: grow at each */
		uint32_t *all =
			clv_mem_realloc(out->empty_caches, 2 * ((size_t)out->empty_cache_count + 1), sizeof(*all));
		if (!all) {
			s->broken = true;
			return false;
		}
		out->empty_caches = all;
	}
	out->empty_caches[out->empty_cache_count++] = s->end;
	return true;
}

/* One try. If it explains the step (`whole`: all of it, else at least one release), what it did stands. */
static bool try(struct clv_step *s, const struct guess *g, bool whole)
{
	if (s->broken)
		return false;
	clv_torch_begin(s->m);
	s->cursor = s->first;
	s->failed = false;
	s->may_refuse = !s->limit_known || g->refusals;
	s->refusals = 0;
	s->freed_count = 0;
	release_pools(s);
	complete_recorded(s, g->completed);
	if (g->empty_pool)
		clv_torch_empty_pool(s->m, g->empty_pool);
	else if (g->empty_cache)
		clv_torch_empty_cache(s->m);
	if (g->request && !s->failed)
		put_request(s, g);
	if (clv_torch_broken(s->m))
		s->broken = true;
	if (whole && !s->failed && next_event(s))
		fail_at(s, "nothing", 0, 0);
	if (!s->failed && !s->broken && (whole || s->cursor > s->first)) {
		clv_torch_commit(s->m);
		s->out->inferred[CLV_INFERRED_DRIVER_REFUSAL] += s->refusals;
		s->out->inferred[CLV_INFERRED_POOL_ON_OOM] += g->on_oom;
		return !g->empty_cache || add_empty_cache(s);
	}
	clv_torch_rollback(s->m);
	while (s->freed_count) {
		s->freed_count--;
		s->block_of[s->freed[s->freed_count].id] = s->freed[s->freed_count].block;
	}
	return false;
}

struct shape {
	uint32_t completed; /* completed frees before the first segment event */
	bool releases;
	uint32_t pool; /* private pool of the first release, or 0 */
};

static struct shape look(const struct clv_step *s)
{
	struct shape shape = {0};
	bool leading = true;
	for (uint32_t i = s->first; i < s->end; i++) {
		const struct clv_event_record *e = &s->h->events[i];
		if (clv_step_ignored(e))
			continue;
		leading &= e->action == CLV_ACTION_FREE_COMPLETED;
		shape.completed += leading;
		if (shape.releases || (e->action != CLV_ACTION_SEGMENT_FREE && e->action != CLV_ACTION_SEGMENT_UNMAP))
			continue;
		shape.releases = true;
		struct clv_torch_block_info info;
		clv_torch_block_get(s->m, clv_torch_find(s->m, e->addr), &info);
		shape.pool = info.pool;
	}
	return shape;
}

static bool try_own(struct clv_step *s, const struct shape *shape, struct guess g)
{
	if (try(s, &g, true))
		return true;
	/* of the frees that completed first, some may have done so only in the request's own flush */
	bool flush = shape->releases || s->h->events[s->end].action == CLV_ACTION_OOM;
	for (g.completed = 0; flush && g.completed < shape->completed; g.completed++)
		if (try(s, &g, true))
			return true;
	return false;
}

static bool try_emptied(struct clv_step *s, const struct shape *shape, struct guess g)
{
	g.empty_cache = true;
	g.completed = 0;
	return shape->releases && try(s, &g, true);
}

/* The tries of one request, the likeliest first. */
static bool try_request(struct clv_step *s, const struct shape *shape, uint32_t pool)
{
	struct guess g = {.request = true, .pool = pool, .capturing = pool != 0, .completed = shape->completed};
	/* Where no limit is known, a driver that refuses what it gives elsewhere in the same recording is less likely than a
	 * program that emptied the cache. */
	uint64_t size = clv_torch_round(s->settings, s->h->events[s->end].size);
	uint64_t segment = clv_torch_segment_bytes(s->settings, size), page = s->settings->large_segment_size;
	if (s->settings->expandable && size > CLV_MIB)
		segment = (size + page - 1) / page * page; /* at most so much is mapped */
	bool unlikely = !s->limit_known && clv_torch_reserved(s->m) + segment <= s->peak_reserved;
	if (unlikely && try_emptied(s, shape, g))
		return true;
	if (try_own(s, shape, g) || (!unlikely && try_emptied(s, shape, g)))
		return true;
	g.refusals = true;
	if (s->limit_known && (try(s, &g, true) || try_emptied(s, shape, g)))
		return true;
	g.refusals = false;
	if (pool) {
		g.on_oom = true;
		g.capturing = false;
		if (try(s, &g, true))
			return true;
		g.on_oom = false;
	}
	/* from PyTorch 2.13 on a pool in use does not forbid the flush; and a capture may go on beside the default pool */
	g.capturing = !pool;
	return try(s, &g, true);
}

/* A new segment that the default pool did not need, and that vanishes: it was of a private pool, which may have vanished with
 * it. The newest one that needs it, else one more. */
static bool try_vanished(struct clv_step *s, const struct shape *shape, uint32_t made)
{
	for (uint32_t pool = s->pool_count; --pool > 0;)
		if (!clv_torch_pool_released(s->m, pool) && try_request(s, shape, pool)) {
			clv_map_slot(s->vanished, made)->value = pool; /* there is a slot already */
			return true;
		}
	uint32_t pool = clv_torch_pool_create(s->m, NULL);
	if (!pool) {
		s->broken = true;
		return false;
	}
	s->pool_count = pool + 1;
	clv_map_slot(s->vanished, made)->value = pool;
	if (!try_request(s, shape, pool))
		return false;
	s->out->inferred[CLV_INFERRED_VANISHED_POOL]++;
	return true;
}

static bool try_alloc(struct clv_step *s, const struct shape *shape)
{
	uint32_t made = new_segment(s);
	bool known = s->vanished && made != CLV_NO_BLOCK && clv_map_get(s->vanished, made) == CLV_STEP_ANY_POOL;
	if (!known && try_request(s, shape, clv_step_pool(s)))
		return true;
	if (!s->vanished || made == CLV_NO_BLOCK || !(known || s->vanishes[made]))
		return false;
	struct clv_map_slot *slot = clv_map_slot(s->vanished, made);
	if (!slot) {
		s->broken = true;
		return false;
	}
	slot->value = CLV_STEP_ANY_POOL;
	return try_vanished(s, shape, made);
}

bool clv_step_request(struct clv_step *s)
{
	s->furthest_set = false;
	for (;;) {
		struct shape shape = look(s);
		if (s->h->events[s->end].action == CLV_ACTION_ALLOC) {
			if (try_alloc(s, &shape))
				return true;
		} else {
			/* a failed request has no address to tell its pool by */
			for (uint32_t pool = 0; pool < s->pool_count && pool < MAX_OOM_POOLS; pool++)
				if (try_request(s, &shape, pool))
					return true;
		}
		/* a pool's own cache may have been emptied before all that */
		struct guess g = {.empty_pool = shape.pool};
		if (!shape.pool || !try(s, &g, false))
			return false;
		s->first = s->cursor;
	}
}

bool clv_step_quiet(struct clv_step *s)
{
	s->furthest_set = false;
	while (s->first < s->end) {
		struct shape shape = look(s);
		if (!shape.releases) {
			/* whatever made them complete, they did */
			struct guess g = {.completed = UINT32_MAX};
			return try(s, &g, true);
		}
		struct guess all = {.empty_cache = true}, own = {.empty_pool = shape.pool};
		if (!try(s, &all, false) && (!shape.pool || !try(s, &own, false)))
			return false;
		next_event(s);
		s->first = s->cursor;
	}
	return true;
}

void clv_step_init(struct clv_step *s)
{
	*s = (struct clv_step){NULL};
}

void clv_step_done(struct clv_step *s)
{
	clv_mem_free(s->freed);
}
