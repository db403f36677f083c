/* SPDX-License-Identifier: MIT
 *
 * answers: what the driver says of our memory. Without us it would describe frames and address ranges, which programs
 * know nothing of; they mean the block. Owns no state.
 */
#include "ipc.h"

struct block {
	cleave_ptr start;
	size_t size;
	bool ipc_capable; /* can be exported; what another process exported cannot */
};

static bool block_of(CUdeviceptr ptr, struct block *b)
{
	const struct clv_process *p = ptr ? clv_process_if_open() : NULL;
	CUdeviceptr start;
	if (!p)
		return false;
	if (!cleave_block_info(p->heap, ptr, &b->start, &b->size, NULL)) {
		b->ipc_capable = p->settings.ipc;
		return true;
	}
	if (!clv_ipc_opened(ptr, &start, &b->size))
		return false;
	b->start = start;
	b->ipc_capable = false;
	return true;
}

/* total - free = what others have + what we hold, as the driver counts. A program that knows cuMemAlloc alone expects what
 * it has freed to be free. */
EXPORTED CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUresult r = CLV_PASS(cuMemGetInfo_v2, free, total);
	const struct clv_process *p = r == CUDA_SUCCESS && free && clv_plain_alone() ? clv_process_if_open() : NULL;
	CUdevice device;
	if (!p || CLV_PASS(cuCtxGetDevice, &device) != CUDA_SUCCESS || !clv_device_usable(p, device))
		return r;
	struct clv_heap_usage usage;
	clv_heap_usage(p->heap, device, &usage);
	*free += usage.held - clv_min_u64(usage.held, usage.live);
	if (total && *free > *total)
		*free = *total;
	return r;
}

EXPORTED CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	struct block b;
	if (!block_of(ptr, &b))
		return CLV_PASS(cuMemGetAddressRange_v2, base, size, ptr);
	if (base)
		*base = b.start;
	if (size)
		*size = b.size;
	return CUDA_SUCCESS;
}

/* True if the attribute of a block is ours to answer. */
static bool attribute_of(const struct block *b, CUpointer_attribute attribute, void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = b->start;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = b->size;
		return true;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)data = b->ipc_capable;
		return true;
	default:
		return false;
	}
}

EXPORTED CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	CUresult r = CLV_PASS(cuPointerGetAttribute, data, attribute, ptr);
	struct block b;
	if (data && block_of(ptr, &b) && attribute_of(&b, attribute, data))
		return CUDA_SUCCESS;
	return r;
}

EXPORTED CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
					 CUdeviceptr ptr)
{
	CUresult r = CLV_PASS(cuPointerGetAttributes, count, attributes, data, ptr);
	struct block b;
	if (r != CUDA_SUCCESS || !block_of(ptr, &b))
		return r;
	for (unsigned int i = 0; i < count; i++)
		if (data[i])
			attribute_of(&b, attributes[i], data[i]);
	return r;
}

struct sole {
	clv_handle handle;
	uint64_t addr, bytes;
	unsigned frames;
};

static void count_frame(void *arg, clv_handle handle, uint64_t addr, uint64_t bytes)
{
	struct sole *s = arg;
	*s = (struct sole){handle, addr, bytes, s->frames + 1};
}

/* The handle of a block is that of its frame, if it has one to itself. Else it has none, as memory from cuMemAlloc or a
 * pool has none with the driver: callers then take another way. Nor has a block of another
 * process. */
EXPORTED CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	const struct clv_process *p = clv_process_if_open();
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)addr;
	cleave_ptr start;
	size_t size;
	struct sole sole = {0};
	if (p && clv_ipc_opened(ptr, NULL, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	if (p && !clv_heap_frames(p->heap, ptr, &start, &size, count_frame, &sole) &&
	    (sole.frames != 1 || sole.addr != start || sole.bytes - size >= CLV_GRAIN))
		return CUDA_ERROR_INVALID_VALUE;
	return CLV_PASS(cuMemRetainAllocationHandle, handle, addr);
}
