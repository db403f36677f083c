/* SPDX-License-Identifier: MIT */
#include "torch_recorder.h"

#include "../tracing/memory.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t handles[RECORDER_STREAMS] = {0,         0x7f00200, 0x55d0000300, 0xfffff0000000ull,
						   0x1234500, 0x7f00100, 0x55d0000500, 0x55d0000100};

uint64_t recorder_stream(uint32_t stream)
{
	return handles[stream];
}

static void record(struct recorder *r, enum clv_action action, uint64_t addr, uint64_t size, uint64_t handle)
{
	uint32_t stream = 0;
	while (stream < RECORDER_STREAMS && handles[stream] != handle)
		stream++;
	ck_assert_uint_lt(stream, RECORDER_STREAMS);
	if (r->count == r->room) {
		r->room = r->room ? 2 * r->room : 1024;
		r->events = realloc(r->events, r->room * sizeof(*r->events));
		ck_assert_ptr_nonnull(r->events);
	}
	r->events[r->count] = (struct clv_event_record){.time_us = r->count,
							.addr = addr,
							.size = size,
							.stream = stream,
							.block = CLV_NO_BLOCK,
							.action = action};
	r->count++;
}

static uint64_t on_alloc(void *ctx, uint64_t size)
{
	struct recorder *r = ctx;
	uint64_t addr = r->inner.device_alloc(r->inner.ctx, size);
	if (addr)
		record(r, CLV_ACTION_SEGMENT_ALLOC, addr, size, handles[r->stream]);
	return addr;
}

static void on_free(void *ctx, uint64_t addr, uint64_t size)
{
	struct recorder *r = ctx;
	uint32_t i = r->count;
	r->inner.device_free(r->inner.ctx, addr, size);
	while (i-- > 0 && (r->events[i].addr != addr || r->events[i].action != CLV_ACTION_SEGMENT_ALLOC))
		;
	record(r, CLV_ACTION_SEGMENT_FREE, addr, size, handles[r->events[i].stream]);
}

static uint64_t on_reserve(void *ctx, uint64_t size, uint64_t page, uint64_t stream)
{
	struct recorder *r = ctx;
	return r->inner.reserve(r->inner.ctx, size, page, stream);
}

static void on_unreserve(void *ctx, uint64_t addr, uint64_t size)
{
}

static uint64_t stream_at(const struct recorder *r, uint64_t addr)
{
	struct clv_torch_block_info b;
	clv_torch_block_get(r->m, clv_torch_find(r->m, addr), &b);
	return b.stream;
}

static bool on_map(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
	struct recorder *r = ctx;
	if (!r->inner.map(r->inner.ctx, addr, size, page))
		return false;
	record(r, CLV_ACTION_SEGMENT_MAP, addr, size, stream_at(r, addr));
	return true;
}

static void on_unmap(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
	struct recorder *r = ctx;
	r->inner.unmap(r->inner.ctx, addr, size, page);
	record(r, CLV_ACTION_SEGMENT_UNMAP, addr, size, stream_at(r, addr));
}

static void complete_oldest(struct recorder *r)
{
	struct clv_torch_block_info b;
	uint32_t block = clv_torch_first_pending(r->m);
	clv_torch_block_get(r->m, block, &b);
	record(r, CLV_ACTION_FREE_COMPLETED, b.addr, b.requested, b.stream);
	clv_torch_free_completed(r->m, block);
}

static void on_sync(void *ctx)
{
	struct recorder *r = ctx;
	while (clv_torch_pending(r->m))
		complete_oldest(r);
}

void recorder_open(struct recorder *r, const struct clv_torch_settings *settings, uint64_t limit, uint64_t capacity)
{
	*r = (struct recorder){.settings = *settings};
	clv_torch_device_init(&r->device, capacity);
	r->inner = clv_torch_device_source(&r->device);
	struct clv_torch_config config = {
		.settings = *settings,
		.limit = limit,
		.device_total = capacity,
		.find = true,
		.source = {.ctx = r,
			   .device_alloc = on_alloc,
			   .device_free = on_free,
			   .reserve = on_reserve,
			   .unreserve = on_unreserve,
			   .map = on_map,
			   .unmap = on_unmap,
			   .sync = on_sync,
			   .sync_ctx = r},
	};
	r->m = clv_torch_open(&config);
	ck_assert_ptr_nonnull(r->m);
}

void recorder_close(struct recorder *r)
{
	clv_torch_close(r->m);
	free(r->events);
}

uint32_t recorder_pool(struct recorder *r, const struct clv_torch_pool_options *options)
{
	uint32_t pool = clv_torch_pool_create(r->m, options);
	ck_assert_uint_ne(pool, 0);
	return pool;
}

uint32_t recorder_malloc(struct recorder *r, uint64_t size, uint32_t stream, uint32_t pool, uint32_t ready)
{
	struct clv_torch_request request = {
		.size = size, .stream = handles[stream], .pool = pool, .capturing = pool != 0};
	struct clv_torch_stats stats;
	uint32_t block;
	r->stream = stream;
	for (; !pool && ready && clv_torch_pending(r->m); ready--)
		complete_oldest(r);
	enum clv_torch_status status = clv_torch_malloc(r->m, &request, &block);
	ck_assert_int_ne(status, CLV_TORCH_NO_HOST_MEMORY);
	clv_torch_get_stats(r->m, &stats);
	r->retries = (uint32_t)stats.num_alloc_retries;
	if (status == CLV_TORCH_OOM) {
		r->ooms++;
		record(r, CLV_ACTION_OOM, 0, clv_torch_round(&r->settings, size), handles[stream]);
		return CLV_TORCH_NONE;
	}
	record(r, CLV_ACTION_ALLOC, clv_torch_block_addr(r->m, block), size, handles[stream]);
	return block;
}

void recorder_free(struct recorder *r, uint32_t block)
{
	struct clv_torch_block_info b;
	clv_torch_block_get(r->m, block, &b);
	record(r, CLV_ACTION_FREE_REQUESTED, b.addr, b.requested, b.stream);
	if (clv_torch_free(r->m, block))
		record(r, CLV_ACTION_FREE_COMPLETED, b.addr, b.requested, b.stream);
	else
		r->deferred++;
}

void recorder_empty_cache(struct recorder *r)
{
	uint32_t before = r->count;
	clv_torch_empty_cache(r->m);
	for (uint32_t i = before; i < r->count; i++)
		if (r->events[i].action != CLV_ACTION_FREE_COMPLETED) {
			r->emptied++;
			break;
		}
}

void recorder_empty_pool(struct recorder *r, uint32_t pool)
{
	clv_torch_empty_pool(r->m, pool);
}

/* ---- the trace ---- */

/* A segment for each native one and each run of mapped pages, as PyTorch's snapshot has them. */
static void add_state(const struct recorder *r, struct clv_history *h)
{
	uint32_t rooms = 0;
	struct clv_segment_record *open = NULL;
	for (uint32_t i = clv_torch_find_next(r->m, 0); i; rooms++, i = clv_torch_find_next(r->m, i))
		;
	h->segments = clv_mem_zalloc(rooms, sizeof(*h->segments));
	h->blocks = clv_mem_zalloc(rooms, sizeof(*h->blocks));
	ck_assert(h->segments && h->blocks);
	for (uint32_t i = clv_torch_find_next(r->m, 0); i; i = clv_torch_find_next(r->m, i)) {
		struct clv_torch_block_info b;
		clv_torch_block_get(r->m, i, &b);
		if (!b.mapped || !clv_torch_prev(r->m, i))
			open = NULL;
		if (!b.mapped)
			continue;
		if (!open) {
			open = &h->segments[h->segment_count++];
			*open = (struct clv_segment_record){.addr = b.addr,
							    .small = b.small,
							    .expandable = b.expandable,
							    .pool = (uint16_t)b.pool,
							    .first_block = h->block_record_count};
			while (handles[open->stream] != b.stream)
				open->stream++;
			h->pool_count = b.pool >= h->pool_count ? b.pool + 1 : h->pool_count;
		}
		open->size += b.size;
		open->blocks++;
		h->blocks[h->block_record_count++] =
			(struct clv_block_record){.addr = b.addr,
						  .size = b.size,
						  .requested = b.requested,
						  .state = b.allocated ? CLV_BLOCK_ACTIVE
							   : b.pending ? CLV_BLOCK_PENDING_FREE
								       : CLV_BLOCK_INACTIVE};
	}
	h->has_state = true;
}

/* Pools are numbered by what the final state shows, as an importer does. */
static void number_pools(struct clv_history *h)
{
	uint16_t number[256] = {0}, count = 1;
	ck_assert_uint_le(h->pool_count, CLV_ARRAY_LEN(number));
	h->pools = clv_mem_zalloc(h->pool_count + 1u, sizeof(*h->pools));
	ck_assert_ptr_nonnull(h->pools);
	for (uint32_t i = 0; i < h->segment_count; i++) {
		uint16_t pool = h->segments[i].pool;
		if (pool && !number[pool]) {
			number[pool] = count;
			h->pools[count++].b = pool;
		}
		h->segments[i].pool = number[pool];
	}
	h->pool_count = count;
}

struct clv_trace *recorder_trace(const struct recorder *r, uint32_t from, const char *conf, uint64_t cap_mib,
				 uint64_t total)
{
	struct clv_trace *t = clv_mem_zalloc(1, sizeof(*t));
	struct clv_error err = {""};
	ck_assert_ptr_nonnull(t);
	t->file = clv_mem_strndup("recorded", 8);
	t->torch = (struct clv_torch_recorded){.present = true,
					       .conf = clv_mem_strndup(conf, strlen(conf)),
					       .max_split_size = (int64_t)r->settings.max_split_size,
					       .gc_threshold = r->settings.gc_threshold,
					       .expandable = r->settings.expandable,
					       .has_probe = total != 0,
					       .cap_mib = cap_mib,
					       .total_bytes = total};
	for (int k = 0; k < CLV_TORCH_ROUNDUP_CLASSES; k++)
		t->torch.roundup[k] = (uint32_t)r->settings.roundup[k];
	for (uint32_t s = 0; s < RECORDER_STREAMS; s++)
		ck_assert_uint_eq(clv_trace_stream(t, handles[s]), s);
	t->histories = clv_mem_zalloc(1, sizeof(*t->histories));
	ck_assert_ptr_nonnull(t->histories);
	t->history_count = 1;
	struct clv_history *h = t->histories;
	h->event_count = r->count - from;
	h->events = clv_mem_zalloc(h->event_count, sizeof(*h->events));
	ck_assert_ptr_nonnull(h->events);
	memcpy(h->events, r->events + from, h->event_count * sizeof(*h->events));
	add_state(r, h);
	number_pools(h);
	ck_assert_msg(clv_history_link(t, h, &err), "%s", err.text);
	return t;
}
