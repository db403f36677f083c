/* SPDX-License-Identifier: MIT */
#include "pool.h"
#include "ipc.h"
#include "seen.h"

#include <errno.h>
#include <stdatomic.h>

#define DEVICES_MAX 64

static struct {
	_Atomic(CUmemoryPool) initial, current; /* NULL: not asked yet */
} pools[DEVICES_MAX];
static _Atomic unsigned changes; /* of which pool is current */

/* ---- which pool is which ---- */

static CUmemoryPool default_of(int device)
{
	CUmemoryPool pool = atomic_load_explicit(&pools[device].initial, memory_order_acquire);
	if (CLV_LIKELY(pool != NULL))
		return pool;
	if (CLV_PASS(cuDeviceGetDefaultMemPool, &pool, device) != CUDA_SUCCESS)
		return NULL;
	atomic_store_explicit(&pools[device].initial, pool, memory_order_release);
	return pool;
}

static CUmemoryPool current_of(int device)
{
	CUmemoryPool pool = atomic_load_explicit(&pools[device].current, memory_order_acquire);
	if (CLV_LIKELY(pool != NULL))
		return pool;
	unsigned before = atomic_load(&changes);
	if (CLV_PASS(cuDeviceGetMemPool, &pool, device) != CUDA_SUCCESS)
		return NULL;
	atomic_store(&pools[device].current, pool);
	if (atomic_load(&changes) != before) /* the answer may be from before the change */
		atomic_store(&pools[device].current, NULL);
	return pool;
}

bool clv_pool_is_current(int device)
{
	CUmemoryPool pool = device >= 0 && device < DEVICES_MAX ? default_of(device) : NULL;
	return pool && pool == current_of(device);
}

int clv_pool_device(const struct clv_process *p, CUmemoryPool pool)
{
	for (int d = 0; pool && d < p->driver->devices && d < DEVICES_MAX; d++)
		if (default_of(d) == pool)
			return d;
	return -1;
}

/* The driver's answer decides at the next request. */
static void ask_again(void)
{
	atomic_fetch_add(&changes, 1);
	for (int d = 0; d < DEVICES_MAX; d++)
		atomic_store(&pools[d].current, NULL);
}

EXPORTED CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	clv_saw_more_than_plain();
	return CLV_PASS(cuDeviceGetDefaultMemPool, pool, device);
}

EXPORTED CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	clv_saw_more_than_plain();
	return CLV_PASS(cuMemGetDefaultMemPool, pool, location, type);
}

EXPORTED CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	clv_saw_more_than_plain();
	CUresult r = CLV_PASS(cuMemPoolCreate, pool, props);
	for (int step = 0; r == CUDA_ERROR_OUT_OF_MEMORY && clv_trim_for_retry(&step);)
		r = CLV_PASS(cuMemPoolCreate, pool, props);
	return r;
}

EXPORTED CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	CUresult r = CLV_PASS(cuDeviceSetMemPool, device, pool);
	ask_again();
	return r;
}

EXPORTED CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult r = CLV_PASS(cuMemSetMemPool, location, type, pool);
	ask_again();
	return r;
}

EXPORTED CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult r = CLV_PASS(cuMemPoolDestroy, pool);
	ask_again(); /* if it was current, the default one is again */
	return r;
}

/* ---- requests ---- */

/* The answer to a request that the heap failed; false: the driver shall try. */
static bool failed(const struct clv_process *p, int device, int why, CUresult *result)
{
	if (why == -ENODEV)
		clv_device_refused(p, device, why);
	if (why != -ENOMEM && why != -ENOSPC)
		return false;
	clv_report_failure(p, device);
	*result = CUDA_ERROR_OUT_OF_MEMORY;
	return true;
}

static bool serve(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream, bool ptsz, CUresult *result)
{
	const struct clv_process *p = clv_process();
	struct clv_cuda_stream s;
	clv_saw_more_than_plain();
	if (!p || !out || !size || clv_stream(p, stream, ptsz, &s) != CUDA_SUCCESS || !clv_device_usable(p, s.device))
		return false;
	if (pool ? pool != default_of(s.device) : !clv_pool_is_current(s.device))
		return false;
	enum clv_graphs_take take = clv_graphs_alloc(p, &s, size, out, result);
	if (CLV_UNLIKELY(take != CLV_GRAPHS_NOT))
		return take == CLV_GRAPHS_SERVED;
	cleave_ptr ptr;
	clv_threads_settle(p);
	int why = cleave_alloc(p->heap, s.device, s.stream, size, &ptr);
	if (CLV_UNLIKELY(why == -ENOMEM) && clv_reclaim(p, s.device))
		why = cleave_alloc(p->heap, s.device, s.stream, size, &ptr);
	if (CLV_UNLIKELY(why))
		return failed(p, s.device, why, result);
	*out = ptr;
	*result = CUDA_SUCCESS;
	return true;
}

static CUresult alloc_async(CUdeviceptr *out, size_t size, CUstream stream, bool ptsz)
{
	CUresult r;
	if (serve(out, size, NULL, stream, ptsz, &r))
		return r;
	r = CLV_PASS_TWIN(ptsz, cuMemAllocAsync, out, size, stream);
	for (int step = 0; CLV_UNLIKELY(r == CUDA_ERROR_OUT_OF_MEMORY) && clv_trim_for_retry(&step);)
		r = CLV_PASS_TWIN(ptsz, cuMemAllocAsync, out, size, stream);
	CLV_SEEN_GOT(r, .name = "cuMemAllocAsync", .kind = CLV_SEEN_POOL, .key = r == CUDA_SUCCESS ? *out : 0, .size = size,
		     .stream = stream, .ptsz = ptsz, .on_stream = true);
	return r;
}

static CUresult alloc_from_pool(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream, bool ptsz)
{
	CUresult r;
	if (pool && serve(out, size, pool, stream, ptsz, &r))
		return r;
	r = CLV_PASS_TWIN(ptsz, cuMemAllocFromPoolAsync, out, size, pool, stream);
	for (int step = 0; CLV_UNLIKELY(r == CUDA_ERROR_OUT_OF_MEMORY) && clv_trim_for_retry(&step);)
		r = CLV_PASS_TWIN(ptsz, cuMemAllocFromPoolAsync, out, size, pool, stream);
	CLV_SEEN_GOT(r, .name = "cuMemAllocFromPoolAsync", .kind = CLV_SEEN_POOL, .key = r == CUDA_SUCCESS ? *out : 0,
		     .size = size, .stream = stream, .ptsz = ptsz, .on_stream = true);
	return r;
}

bool clv_pool_free(const struct clv_process *p, CUdeviceptr ptr, const struct clv_cuda_stream *s, CUresult *result)
{
	clv_ipc_block_freed(ptr);
	if (clv_graphs_free(p, s, ptr, result))
		return true;
	if (!clv_plain_forget(ptr)) { /* of cuMemAlloc, which can be freed on a stream, too */
		*result = CUDA_ERROR_INVALID_VALUE;
		return true;
	}
	int why = cleave_free(p->heap, ptr, s ? s->stream : CLEAVE_STREAM_ANY);
	if (why == -EINVAL)
		return false; /* not ours, or not the start of a live block, which the driver refuses as well */
	*result = why ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
	return true;
}

static CUresult free_async(CUdeviceptr ptr, CUstream stream, bool ptsz)
{
	const struct clv_process *p = ptr ? clv_process_if_open() : NULL;
	struct clv_cuda_stream s;
	CUresult r;
	if (p && clv_stream(p, stream, ptsz, &s) == CUDA_SUCCESS && clv_pool_free(p, ptr, &s, &r))
		return r;
	struct clv_seen_item item = CLV_SEEN_FREES(.name = "cuMemFreeAsync", .kind = CLV_SEEN_POOL, .key = ptr, .stream = stream,
						   .ptsz = ptsz, .on_stream = true);
	return clv_seen_freed(&item, CLV_PASS_TWIN(ptsz, cuMemFreeAsync, ptr, stream));
}

TWINS(cuMemAllocAsync, (CUdeviceptr * out, size_t size, CUstream stream), alloc_async, out, size, stream)
TWINS(cuMemAllocFromPoolAsync, (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream stream), alloc_from_pool, out, size,
      pool, stream)
TWINS(cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream), free_async, ptr, stream)

/* ---- the pool's books ---- */

EXPORTED CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	const struct clv_process *p = clv_process_if_open();
	int device = p ? clv_pool_device(p, pool) : -1;
	if (device >= 0) {
		clv_graphs_settle(p);
		clv_heap_trim(p->heap, device, keep, false, NULL); /* as the driver's, it waits for nothing */
	}
	return CLV_PASS(cuMemPoolTrimTo, pool, keep);
}

EXPORTED CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	CUresult r = CLV_PASS(cuMemPoolGetAttribute, pool, attribute, value);
	const struct clv_process *p = r == CUDA_SUCCESS ? clv_process_if_open() : NULL;
	int device = p && attribute >= CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? clv_pool_device(p, pool) : -1;
	if (device < 0)
		return r;
	struct clv_heap_usage usage;
	clv_heap_usage(p->heap, device, &usage);
	cuuint64_t *sum = value;
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *sum += usage.held; break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *sum += usage.held_peak; break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *sum += usage.live; break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *sum += usage.live_peak; break;
	default: break;
	}
	return r;
}

EXPORTED CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	CUresult r = CLV_PASS(cuMemPoolSetAttribute, pool, attribute, value);
	const struct clv_process *p = r == CUDA_SUCCESS ? clv_process_if_open() : NULL;
	int device = p ? clv_pool_device(p, pool) : -1;
	if (device >= 0) /* the driver took it, so it was a reset to 0 */
		clv_heap_reset_peaks(p->heap, device, attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
				     attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
	return r;
}

EXPORTED CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUresult r = CLV_PASS(cuMemPoolSetAccess, pool, map, count);
	const struct clv_process *p = r == CUDA_SUCCESS ? clv_process() : NULL;
	int device = p ? clv_pool_device(p, pool) : -1;
	bool more = false;
	for (size_t i = 0; device >= 0 && i < count; i++)
		if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			more |= clv_cuda_peer(p->driver, device, map[i].location.id);
	if (more && clv_heap_access(p->heap, device))
		return CUDA_ERROR_UNKNOWN;
	return r;
}
