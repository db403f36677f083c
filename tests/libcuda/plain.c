/* SPDX-License-Identifier: MIT
 *
 * Plain device memory, and host memory that the device can reach.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

static CUresult plain_alloc(CUdeviceptr *out, size_t size)
{
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	struct fc_context *c = fc_current();
	uint64_t addr;
	enum clv_result r = fc.sim->mem_alloc(fc.sim, &addr, size, c->device);
	if (r == CLV_OUT_OF_MEMORY) {
		/* The real one gives what pools cache to whoever asks. */
		fc_pool_trim(fc.device[c->device].default_pool, 0);
		fc_pool_trim(fc.device[c->device].graph_pool, 0);
		r = fc.sim->mem_alloc(fc.sim, &addr, size, c->device);
	}
	if (r)
		return fc_result(r);
	struct fc_block *b = fc_alloc(sizeof(*b));
	b->kind = FC_PLAIN;
	b->addr = addr;
	b->size = size;
	b->device = c->device;
	b->context = c;
	fc_block_add(b);
	*out = addr;
	fc_note("%llx %zu", *out, size);
	return CUDA_SUCCESS;
}

void fc_plain_free(struct fc_block *b)
{
	fc_memory_lock();
	fc.sim->mem_free(fc.sim, b->addr);
	fc_memory_unlock();
	fc_block_remove(b);
}

FC_CALL(cuMemAlloc_v2, FC_CONTEXT, (CUdeviceptr * dptr, size_t bytesize), (dptr, bytesize))
{
	fc_note("- %zu", bytesize);
	CUresult r = fc_unsafe();
	return r ? r : plain_alloc(dptr, bytesize);
}

FC_CALL(cuMemAllocPitch_v2, FC_CONTEXT,
	(CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes),
	(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes))
{
	if (!pPitch || !WidthInBytes || WidthInBytes > SIZE_MAX / 2 || !Height ||
	    (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	size_t pitch = clv_align_up(WidthInBytes, 512), bytes;
	if (__builtin_mul_overflow(pitch, Height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = fc_unsafe();
	r = r ? r : plain_alloc(dptr, bytes);
	if (!r)
		*pPitch = pitch;
	return r;
}

static CUresult block_begins(CUdeviceptr dptr, struct fc_block **out)
{
	*out = fc_block_at(dptr);
	return *out && (*out)->addr == dptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_free_waiting(CUdeviceptr ptr)
{
	struct fc_block *b;
	CUresult r = block_begins(ptr, &b);
	if (r)
		return r;
	if (b->kind != FC_PLAIN && b->kind != FC_POOL && b->kind != FC_GRAPH && b->kind != FC_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	if (b->kind == FC_GRAPH && !b->live)
		return CUDA_ERROR_INVALID_VALUE;
	fc_wait_device(b->device);
	/* the wait gives up the lock */
	r = block_begins(ptr, &b);
	if (r || (b->kind == FC_GRAPH && !b->live))
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	if (b->kind == FC_PLAIN) {
		fc_plain_free(b);
	} else if (b->kind == FC_MANAGED) {
		free((void *)(uintptr_t)b->addr);
		fc_block_remove(b);
	} else {
		fc_pool_free(b, NULL);
	}
	return CUDA_SUCCESS;
}

/* Works without a context. */
FC_CALL(cuMemFree_v2, FC_STREAM, (CUdeviceptr dptr), (dptr))
{
	fc_note("%llx", dptr);
	if (!dptr)
		return CUDA_SUCCESS;
	CUresult r = fc_unsafe();
	return r ? r : fc_free_waiting(dptr);
}

FC_CALL(cuMemGetInfo_v2, FC_CONTEXT, (size_t * free, size_t *total), (free, total))
{
	uint64_t f, t;
	CUresult r = fc_result(fc.sim->mem_get_info(fc.sim, fc_current()->device, &f, &t));
	if (r)
		return r;
	if (free)
		*free = f;
	if (total)
		*total = t;
	return CUDA_SUCCESS;
}

/* Host memory. */

static CUresult host_block(void *p, size_t size, enum fc_block_kind kind, unsigned flags)
{
	struct fc_block *b = fc_alloc(sizeof(*b));
	b->kind = kind;
	b->addr = (uintptr_t)p;
	b->size = size;
	b->device = fc_current()->device;
	b->context = fc_current();
	b->flags = flags;
	fc_block_add(b);
	return CUDA_SUCCESS;
}

static CUresult host_alloc(void **pp, size_t size, enum fc_block_kind kind, unsigned flags)
{
	if (!pp || !size)
		return CUDA_ERROR_INVALID_VALUE;
	fc_note("%zu", size);
	void *p = NULL;
	if (size > SIZE_MAX / 2 || posix_memalign(&p, 4096, clv_align_up(size, 4096)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pp = p;
	return host_block(p, size, kind, flags);
}

FC_CALL(cuMemHostAlloc, FC_CONTEXT, (void **pp, size_t bytesize, unsigned int Flags), (pp, bytesize, Flags))
{
	CUresult r = fc_unsafe();
	return r ? r : Flags > 7 ? CUDA_ERROR_INVALID_VALUE : host_alloc(pp, bytesize, FC_HOST, Flags);
}

FC_CALL(cuMemAllocHost_v2, FC_CONTEXT, (void **pp, size_t bytesize), (pp, bytesize))
{
	CUresult r = fc_unsafe();
	return r ? r : host_alloc(pp, bytesize, FC_HOST, 0);
}

FC_CALL(cuMemAllocManaged, FC_CONTEXT, (CUdeviceptr * dptr, size_t bytesize, unsigned int flags),
	(dptr, bytesize, flags))
{
	void *p = NULL;
	CUresult r = fc_unsafe();
	if (!dptr || (flags != 1 && flags != 2))
		return CUDA_ERROR_INVALID_VALUE;
	r = r ? r : host_alloc(&p, bytesize, FC_MANAGED, flags);
	if (!r)
		*dptr = (uintptr_t)p;
	return r;
}

FC_CALL(cuMemFreeHost, FC_CONTEXT, (void *p), (p))
{
	struct fc_block *b;
	if (!p)
		return CUDA_SUCCESS;
	CUresult r = fc_unsafe();
	r = r ? r : block_begins((uintptr_t)p, &b);
	if (r || b->kind != FC_HOST)
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	fc_wait_device(b->device);
	r = block_begins((uintptr_t)p, &b);
	if (r || b->kind != FC_HOST)
		return r ? r : CUDA_ERROR_INVALID_VALUE;
	free(p);
	fc_block_remove(b);
	return CUDA_SUCCESS;
}

FC_CALL(cuMemHostRegister_v2, FC_CONTEXT, (void *p, size_t bytesize, unsigned int Flags), (p, bytesize, Flags))
{
	if (!p || !bytesize || Flags > 15)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = fc_unsafe();
	if (r)
		return r;
	uint64_t first = (uintptr_t)p, end = first + bytesize;
	for (uint64_t at = first; at < end; at += 512)
		if (fc_block_at(at))
			return FC_HOST_MEMORY_ALREADY_REGISTERED;
	if (fc_block_at(end - 1))
		return FC_HOST_MEMORY_ALREADY_REGISTERED;
	return host_block(p, bytesize, FC_REGISTERED, Flags);
}

FC_CALL(cuMemHostUnregister, FC_CONTEXT, (void *p), (p))
{
	struct fc_block *b;
	if (block_begins((uintptr_t)p, &b) || b->kind != FC_REGISTERED)
		return FC_HOST_MEMORY_NOT_REGISTERED;
	CUresult r = fc_unsafe();
	if (r)
		return r;
	fc_wait_device(b->device);
	if (block_begins((uintptr_t)p, &b) || b->kind != FC_REGISTERED)
		return FC_HOST_MEMORY_NOT_REGISTERED;
	fc_block_remove(b);
	return CUDA_SUCCESS;
}

FC_CALL(cuMemHostGetDevicePointer_v2, FC_CONTEXT, (CUdeviceptr * pdptr, void *p, unsigned int Flags), (pdptr, p, Flags))
{
	if (!pdptr || Flags || !fc_is_host((uintptr_t)p, 1))
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = (uintptr_t)p;
	return CUDA_SUCCESS;
}

FC_CALL(cuMemHostGetFlags, FC_CONTEXT, (unsigned int *pFlags, void *p), (pFlags, p))
{
	const struct fc_block *b = fc_block_at((uintptr_t)p);
	if (!pFlags || !b || (b->kind != FC_HOST && b->kind != FC_REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	*pFlags = b->flags | 2; /* as the real one: everything is mapped under unified addressing */
	return CUDA_SUCCESS;
}

/* A context ends: its plain and host memory goes; that of pools and frames is the device's. */
void fc_context_memory(struct fc_context *context)
{
	size_t i = 0;
	for (struct fc_block *b; (b = fc_block_each(&i));) {
		if (b->context != context)
			continue;
		if (b->kind == FC_PLAIN) {
			fc_plain_free(b);
		} else if (b->kind == FC_IPC) {
			fc_ipc_close(b);
		} else {
			if (b->kind != FC_REGISTERED)
				free((void *)(uintptr_t)b->addr);
			fc_block_remove(b);
		}
		i--;
	}
}

/* Arrays take memory like plain allocations do, and have no use here. */
static CUresult no_arrays(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

FC_CALL(cuArrayCreate_v2, FC_CONTEXT, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray),
	(pHandle, pAllocateArray))
{
	return no_arrays();
}

FC_CALL(cuArray3DCreate_v2, FC_CONTEXT, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray),
	(pHandle, pAllocateArray))
{
	return no_arrays();
}

FC_CALL(cuMipmappedArrayCreate, FC_CONTEXT,
	(CUmipmappedArray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc, unsigned int numMipmapLevels),
	(pHandle, pMipmappedArrayDesc, numMipmapLevels))
{
	return no_arrays();
}

FC_CALL(cuArrayDestroy, FC_CONTEXT, (CUarray hArray), (hArray))
{
	return no_arrays();
}

FC_CALL(cuMipmappedArrayDestroy, FC_CONTEXT, (CUmipmappedArray hMipmappedArray), (hMipmappedArray))
{
	return no_arrays();
}
