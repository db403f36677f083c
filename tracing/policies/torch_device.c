/* SPDX-License-Identifier: MIT */
#include "torch_device.h"

#include "../../src/driver/cost.h"

#define HIGHEST ((uint64_t)1 << 60)
#define GRANULARITY (2 * CLV_MIB)

static void count(struct clv_call_counts *counts, enum clv_call call, uint64_t bytes, uint64_t handles, uint64_t times)
{
	counts->calls[call] += times;
	counts->ns += clv_cost_ns(call, bytes, handles) * times;
}

static void charge(struct clv_torch_device *d, enum clv_call call, uint64_t bytes, uint64_t handles, uint64_t times)
{
	count(&d->counts, call, bytes, handles, times);
}

void clv_torch_count_alloc(struct clv_call_counts *counts, uint64_t size)
{
	count(counts, CLV_CALL_mem_alloc, size, 1, 1);
}

void clv_torch_count_free(struct clv_call_counts *counts, uint64_t size)
{
	count(counts, CLV_CALL_mem_free, size, 1, 1);
}

void clv_torch_count_map(struct clv_call_counts *counts, uint64_t size, uint64_t page)
{
	uint64_t pages = size / page;
	count(counts, CLV_CALL_create, page, 1, pages);
	count(counts, CLV_CALL_map, page, 1, pages);
	count(counts, CLV_CALL_set_access, size, pages, 1);
}

void clv_torch_count_unmap(struct clv_call_counts *counts, uint64_t size, uint64_t page)
{
	uint64_t pages = size / page;
	count(counts, CLV_CALL_stream_synchronize, 0, 1, 1);
	count(counts, CLV_CALL_unmap, page, 1, pages);
	count(counts, CLV_CALL_release, page, 1, pages);
}

static bool fits(const struct clv_torch_device *d, uint64_t size)
{
	return !d->capacity || (d->used <= d->capacity && size <= d->capacity - d->used);
}

/* The driver mostly hands out addresses downwards, and PyTorch breaks ties by address: the order matters, and an address is
 * not given twice. */
static uint64_t addresses(struct clv_torch_device *d, uint64_t size)
{
	if (size > d->lowest - GRANULARITY)
		return 0;
	d->lowest = clv_align_down(d->lowest - size, GRANULARITY);
	return d->lowest;
}

static uint64_t device_alloc(void *ctx, uint64_t size)
{
	struct clv_torch_device *d = ctx;
	uint64_t bytes = clv_align_up(size, GRANULARITY);
	if (!fits(d, bytes)) {
		charge(d, CLV_CALL_mem_alloc, GRANULARITY, 1, 1); /* a refusal builds nothing: as cheap as the least */
		return 0;
	}
	clv_torch_count_alloc(&d->counts, size);
	uint64_t addr = addresses(d, bytes);
	if (addr)
		d->used += bytes;
	return addr;
}

static void device_free(void *ctx, uint64_t addr, uint64_t size)
{
	struct clv_torch_device *d = ctx;
	clv_torch_count_free(&d->counts, size);
	d->used -= clv_align_up(size, GRANULARITY);
}

static uint64_t reserve(void *ctx, uint64_t size, uint64_t page, uint64_t stream)
{
	struct clv_torch_device *d = ctx;
	charge(d, CLV_CALL_address_reserve, size, 1, 1);
	return addresses(d, clv_align_up(size, GRANULARITY));
}

static void unreserve(void *ctx, uint64_t addr, uint64_t size)
{
	charge(ctx, CLV_CALL_address_free, size, 1, 1);
}

/* PyTorch creates a handle a page, one after the other, before it maps any; if one is refused it releases the others. */
static bool map(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
	struct clv_torch_device *d = ctx;
	uint64_t pages = size / page, bytes = clv_align_up(page, GRANULARITY), n = 0;
	while (n < pages && fits(d, (n + 1) * bytes))
		n++;
	if (n < pages) {
		charge(d, CLV_CALL_create, page, 1, n + 1);
		charge(d, CLV_CALL_release, page, 1, n);
		return false;
	}
	clv_torch_count_map(&d->counts, size, page);
	d->used += pages * bytes;
	return true;
}

static void unmap(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
	struct clv_torch_device *d = ctx;
	clv_torch_count_unmap(&d->counts, size, page);
	d->used -= size / page * clv_align_up(page, GRANULARITY);
}

static void failed(void *ctx)
{
	charge(ctx, CLV_CALL_mem_get_info, 0, 1, 1);
}

void clv_torch_device_init(struct clv_torch_device *device, uint64_t capacity)
{
	*device = (struct clv_torch_device){.capacity = capacity, .lowest = HIGHEST};
}

struct clv_torch_source clv_torch_device_source(struct clv_torch_device *device)
{
	return (struct clv_torch_source){
		.ctx = device,
		.device_alloc = device_alloc,
		.device_free = device_free,
		.reserve = reserve,
		.unreserve = unreserve,
		.map = map,
		.unmap = unmap,
		.failed = failed,
	};
}
