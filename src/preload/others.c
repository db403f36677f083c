/* SPDX-License-Identifier: MIT
 *
 * others: memory of other kinds than Cleave serves: managed, registered, arrays, and frames that the program makes and maps
 * itself. The driver answers, once more after a trim when it is out of memory; what it gives is recorded. Owns no state.
 */
#include "seen.h"

/* Calls the driver again after each trim that gave something back. */
#define RETRY(r, call)                                                                                                 \
	do {                                                                                                           \
		r = call;                                                                                              \
		for (int step_ = 0; CLV_UNLIKELY(r == CUDA_ERROR_OUT_OF_MEMORY) && clv_trim_for_retry(&step_);)        \
			r = call;                                                                                      \
	} while (0)

EXPORTED CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	CUresult r;
	RETRY(r, CLV_PASS(cuMemAllocManaged, out, size, flags));
	CLV_SEEN_GOT(r, .name = "cuMemAllocManaged", .kind = CLV_SEEN_MEMORY, .key = r == CUDA_SUCCESS ? *out : 0,
		     .size = size);
	return r;
}

EXPORTED CUresult cuMemHostRegister_v2(void *ptr, size_t size, unsigned int flags)
{
	CUresult r;
	RETRY(r, CLV_PASS(cuMemHostRegister_v2, ptr, size, flags));
	CLV_SEEN_GOT(r, .name = "cuMemHostRegister", .kind = CLV_SEEN_HOST, .key = (uintptr_t)ptr, .size = size);
	return r;
}

EXPORTED CUresult cuMemHostUnregister(void *ptr)
{
	struct clv_seen_item item =
		CLV_SEEN_FREES(.name = "cuMemHostUnregister", .kind = CLV_SEEN_HOST, .key = (uintptr_t)ptr);
	return clv_seen_freed(&item, CLV_PASS(cuMemHostUnregister, ptr));
}

/* ---- arrays, whose bytes the driver alone knows ---- */

EXPORTED CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUresult r;
	RETRY(r, CLV_PASS(cuArrayCreate_v2, out, d));
	CLV_SEEN_GOT(r, .name = "cuArrayCreate", .kind = CLV_SEEN_ARRAY,
		     .key = r == CUDA_SUCCESS ? (uintptr_t)*out : 0);
	return r;
}

EXPORTED CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	CUresult r;
	RETRY(r, CLV_PASS(cuArray3DCreate_v2, out, d));
	CLV_SEEN_GOT(r, .name = "cuArray3DCreate", .kind = CLV_SEEN_ARRAY,
		     .key = r == CUDA_SUCCESS ? (uintptr_t)*out : 0);
	return r;
}

EXPORTED CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	CUresult r;
	RETRY(r, CLV_PASS(cuMipmappedArrayCreate, out, d, levels));
	CLV_SEEN_GOT(r, .name = "cuMipmappedArrayCreate", .kind = CLV_SEEN_ARRAY,
		     .key = r == CUDA_SUCCESS ? (uintptr_t)*out : 0);
	return r;
}

EXPORTED CUresult cuArrayDestroy(CUarray array)
{
	struct clv_seen_item item =
		CLV_SEEN_FREES(.name = "cuArrayDestroy", .kind = CLV_SEEN_ARRAY, .key = (uintptr_t)array);
	return clv_seen_freed(&item, CLV_PASS(cuArrayDestroy, array));
}

EXPORTED CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct clv_seen_item item =
		CLV_SEEN_FREES(.name = "cuMipmappedArrayDestroy", .kind = CLV_SEEN_ARRAY, .key = (uintptr_t)array);
	return clv_seen_freed(&item, CLV_PASS(cuMipmappedArrayDestroy, array));
}

/* ---- frames ---- */

EXPORTED CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			      unsigned long long flags)
{
	clv_saw_more_than_plain();
	CUresult r = CLV_PASS(cuMemCreate, handle, size, prop, flags);
	bool on_device = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	for (int step = 0; CLV_UNLIKELY(r == CUDA_ERROR_OUT_OF_MEMORY) && on_device && clv_trim_for_retry(&step);)
		r = CLV_PASS(cuMemCreate, handle, size, prop, flags);
	CLV_SEEN_GOT(r, .name = "cuMemCreate", .kind = CLV_SEEN_FRAME, .key = r == CUDA_SUCCESS ? *handle : 0,
		     .size = size, .device = on_device ? prop->location.id : -1);
	return r;
}

/* The first release of several: that is when the program has done with it. */
EXPORTED CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct clv_seen_item item = CLV_SEEN_FREES(.name = "cuMemRelease", .kind = CLV_SEEN_FRAME, .key = handle);
	return clv_seen_freed(&item, CLV_PASS(cuMemRelease, handle));
}

EXPORTED CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			   unsigned long long flags)
{
	CUresult r = CLV_PASS(cuMemMap, ptr, size, offset, handle, flags);
	CLV_SEEN_NOTE(r, CLV_EVENT_DRIVER_MAP, "cuMemMap", ptr, size, handle);
	return r;
}

EXPORTED CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult r = CLV_PASS(cuMemUnmap, ptr, size);
	CLV_SEEN_NOTE(r, CLV_EVENT_DRIVER_UNMAP, "cuMemUnmap", ptr, size, 0);
	return r;
}

EXPORTED CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t align, CUdeviceptr addr,
				      unsigned long long flags)
{
	CUresult r = CLV_PASS(cuMemAddressReserve, ptr, size, align, addr, flags);
	CLV_SEEN_NOTE(r, CLV_EVENT_DRIVER_ADDRESSES, "cuMemAddressReserve", *ptr, size, 0);
	return r;
}

EXPORTED CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	CUresult r = CLV_PASS(cuMemAddressFree, ptr, size);
	CLV_SEEN_NOTE(r, CLV_EVENT_DRIVER_ADDRESSES_FREE, "cuMemAddressFree", ptr, size, 0);
	return r;
}
