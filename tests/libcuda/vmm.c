/* SPDX-License-Identifier: MIT
 *
 * Frames and address ranges: the simulated driver's, but that a handle can be had more than once, and is dead only when
 * every one of these is released; a mapping keeps the memory, and a new handle for it can be had from the mapping.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct frame {
	clv_handle handle; /* 0: none in this slot */
	unsigned refs;     /* handles that the program has */
	unsigned mappings;
	CUmemAllocationProp prop;
	uint64_t size;
};

static struct frame *frames; /* by the low half of the handle, which counts slots */
static size_t frame_count;

static struct frame *frame_of(clv_handle handle)
{
	size_t i = (uint32_t)handle;
	return handle && i < frame_count && frames[i].handle == handle ? &frames[i] : NULL;
}

/* That the program has a handle of. */
static struct frame *frame_held(clv_handle handle)
{
	struct frame *f = frame_of(handle);
	return f && f->refs ? f : NULL;
}

static void frame_add(clv_handle handle, const CUmemAllocationProp *prop, uint64_t size)
{
	size_t i = (uint32_t)handle;
	if (i >= frame_count) {
		size_t more = clv_max_u64(2 * frame_count, i + 64);
		frames = realloc(frames, more * sizeof(*frames));
		if (!frames)
			abort();
		memset(frames + frame_count, 0, (more - frame_count) * sizeof(*frames));
		frame_count = more;
	}
	frames[i] = (struct frame){.handle = handle, .refs = 1, .prop = *prop, .size = size};
}

static void frame_settle(struct frame *f)
{
	if (f->refs || f->mappings)
		return;
	fc.sim->release(fc.sim, f->handle);
	f->handle = 0;
}

bool fc_frame_rdma(clv_handle handle)
{
	const struct frame *f = frame_of(handle);
	return f && f->prop.allocFlags.gpuDirectRDMACapable;
}

#define NEEDS_VMM                                                                                                      \
	do {                                                                                                           \
		if (!fc.vmm)                                                                                           \
			return CUDA_ERROR_NOT_SUPPORTED;                                                               \
	} while (0)

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return prop->location.type > CU_MEM_LOCATION_TYPE_DEVICE &&
				       prop->location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
			       ? CUDA_ERROR_NOT_SUPPORTED
			       : CUDA_ERROR_INVALID_VALUE;
	if (prop->location.id < 0 || prop->location.id >= fc.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

FC_CALL(cuMemGetAllocationGranularity, FC_INIT,
	(size_t * granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
	(granularity, prop, option))
{
	NEEDS_VMM;
	if (!granularity ||
	    (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = check_prop(prop);
	struct clv_device_info info;
	r = r ? r : fc_result(fc.sim->device_info(fc.sim, prop->location.id, &info));
	if (!r)
		*granularity = info.granularity;
	return r;
}

FC_CALL(cuMemAddressReserve, FC_INIT,
	(CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags),
	(ptr, size, alignment, addr, flags))
{
	NEEDS_VMM;
	if (!ptr || flags)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t at; /* `addr` is a wish, and not heard */
	CUresult r = fc_result(fc.sim->address_reserve(fc.sim, &at, size, alignment));
	if (!r)
		*ptr = at;
	fc_note("%llx %zu", r ? 0 : *ptr, size);
	return r;
}

FC_CALL(cuMemAddressFree, FC_INIT, (CUdeviceptr ptr, size_t size), (ptr, size))
{
	NEEDS_VMM;
	fc_memory_lock();
	CUresult r = fc_result(fc.sim->address_free(fc.sim, ptr, size));
	fc_memory_unlock();
	return r;
}

FC_CALL(cuMemCreate, FC_INIT,
	(CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags),
	(handle, size, prop, flags))
{
	NEEDS_VMM;
	fc_note("%zu", size);
	if (!handle || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = check_prop(prop);
	if (r)
		return r;
	clv_handle h;
	int device = prop->location.id;
	bool exportable = prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	r = fc_result(exportable ? clv_sim_create_exportable(fc.sim, &h, size, device)
				 : fc.sim->create(fc.sim, &h, size, device));
	if (r)
		return r;
	frame_add(h, prop, size);
	*handle = h;
	return CUDA_SUCCESS;
}

FC_CALL(cuMemRelease, FC_INIT, (CUmemGenericAllocationHandle handle), (handle))
{
	NEEDS_VMM;
	struct frame *f = frame_held(handle);
	if (!f)
		return CUDA_ERROR_INVALID_VALUE;
	f->refs--;
	frame_settle(f);
	return CUDA_SUCCESS;
}

FC_CALL(cuMemMap, FC_INIT,
	(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
	(ptr, size, offset, handle, flags))
{
	NEEDS_VMM;
	struct frame *f = frame_held(handle);
	if (!f || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = fc_result(fc.sim->map(fc.sim, ptr, size, offset, handle));
	if (!r)
		f->mappings++;
	fc_note("%llx %zu", ptr, size);
	return r;
}

/* A pool's chunk is no range of the program's. */
static bool is_ours(uint64_t addr)
{
	struct clv_sim_place place;
	return clv_sim_find(fc.sim, addr, &place) && !place.plain && place.size && !frame_of(place.handle);
}

FC_CALL(cuMemUnmap, FC_INIT, (CUdeviceptr ptr, size_t size), (ptr, size))
{
	NEEDS_VMM;
	fc_note("%llx %zu", ptr, size);
	if (is_ours(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	/* which frames lose a mapping, before they do */
	size_t count = 0, room = 0;
	clv_handle *lost = NULL;
	for (uint64_t at = ptr; at - ptr < size;) {
		struct clv_sim_place place;
		if (!clv_sim_find(fc.sim, at, &place) || !place.size)
			break;
		if (count == room) {
			room = room ? 2 * room : 16;
			lost = realloc(lost, room * sizeof(*lost));
			if (!lost)
				abort();
		}
		lost[count++] = place.handle;
		at = place.addr + place.size;
	}
	fc_memory_lock();
	CUresult r = fc_result(fc.sim->unmap(fc.sim, ptr, size));
	fc_memory_unlock();
	for (size_t i = 0; i < count && !r; i++) {
		struct frame *f = frame_of(lost[i]);
		f->mappings--;
		frame_settle(f);
	}
	free(lost);
	return r;
}

FC_CALL(cuMemSetAccess, FC_INIT, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
	(ptr, size, desc, count))
{
	NEEDS_VMM;
	fc_note("%llx %zu %zu", ptr, size, count);
	if (!desc || !count || is_ours(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		if (desc[i].location.id < 0 || desc[i].location.id >= fc.devices)
			return CUDA_ERROR_INVALID_DEVICE;
		if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	CUresult r = CUDA_SUCCESS;
	fc_memory_lock();
	for (size_t i = 0; i < count && !r; i++)
		r = fc_result(desc[i].flags ? fc.sim->set_access(fc.sim, ptr, size, desc[i].location.id)
					    : clv_sim_clear_access(fc.sim, ptr, size, desc[i].location.id));
	fc_memory_unlock();
	return r;
}

FC_CALL(cuMemRetainAllocationHandle, FC_INIT, (CUmemGenericAllocationHandle * handle, void *addr), (handle, addr))
{
	NEEDS_VMM;
	struct clv_sim_place place;
	if (!handle || !clv_sim_find(fc.sim, (uintptr_t)addr, &place) || place.plain || !place.size)
		return CUDA_ERROR_INVALID_VALUE;
	struct frame *f = frame_of(place.handle);
	if (!f) /* a pool's */
		return CUDA_ERROR_INVALID_VALUE;
	f->refs++;
	*handle = f->handle;
	return CUDA_SUCCESS;
}

FC_CALL(cuMemExportToShareableHandle, FC_INIT,
	(void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,
	 unsigned long long flags),
	(shareableHandle, handle, handleType, flags))
{
	NEEDS_VMM;
	const struct frame *f = frame_held(handle);
	if (!f || !shareableHandle || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(f->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_INVALID_VALUE;
	int fd = clv_sim_export(fc.sim, handle);
	if (fd < 0)
		return CUDA_ERROR_UNKNOWN;
	memcpy(shareableHandle, &fd, sizeof(fd));
	return CUDA_SUCCESS;
}

FC_CALL(cuMemImportFromShareableHandle, FC_INIT,
	(CUmemGenericAllocationHandle * handle, void *osHandle, CUmemAllocationHandleType shHandleType),
	(handle, osHandle, shHandleType))
{
	NEEDS_VMM;
	int fd = (int)(intptr_t)osHandle;
	if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	off_t size = lseek(fd, 0, SEEK_END);
	int device = clv_sim_file_device(fd);
	if (size <= 0 || device < 0 || device >= fc.devices)
		return CUDA_ERROR_INVALID_VALUE;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	clv_handle h;
	CUresult r = fc_result(clv_sim_import(fc.sim, &h, fd, 0, (uint64_t)size, device));
	if (r)
		return r;
	frame_add(h, &prop, (uint64_t)size);
	*handle = h;
	return CUDA_SUCCESS;
}

FC_CALL(cuMemGetHandleForAddressRange, FC_INIT,
	(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType, unsigned long long flags),
	(handle, dptr, size, handleType, flags))
{
	if (!handle || !dptr || !size || dptr % 4096 || size % 4096 ||
	    handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
		return CUDA_ERROR_INVALID_VALUE;
	/* The file of a frame stands for the buffer; what has none is not supported. */
	struct clv_sim_place place;
	if (!clv_sim_find(fc.sim, dptr, &place) || !place.size)
		return CUDA_ERROR_INVALID_VALUE;
	if (place.plain || !frame_of(place.handle) || size > place.size - (dptr - place.addr))
		return CUDA_ERROR_NOT_SUPPORTED;
	int fd = clv_sim_export(fc.sim, place.handle);
	if (fd < 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(handle, &fd, sizeof(fd));
	return CUDA_SUCCESS;
}
