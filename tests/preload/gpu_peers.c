/* SPDX-License-Identifier: MIT
 *
 * Two devices: memory of one that work of the other touches, plain memory after cuCtxEnablePeerAccess and stream-ordered
 * memory after cuMemPoolSetAccess, from before and from after.
 */
#include "gpu.h"

#define SIZE (3u << 20)

int main(int argc, char **argv)
{
	gpu_open(argc, argv);
	CUcontext zero, one;
	CUstream stream0, stream1;
	CUmemoryPool pool;
	CUdeviceptr plain[2], ordered[2];
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	GPU(cu.cuCtxGetCurrent(&zero));
	GPU(cu.cuStreamCreate(&stream0, CU_STREAM_NON_BLOCKING));
	GPU(cu.cuMemAlloc_v2(&plain[0], SIZE));
	GPU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	GPU(cu.cuMemAllocAsync(&ordered[0], SIZE, stream0));
	GPU(cu.cuStreamSynchronize(stream0));

	GPU(cu.cuDevicePrimaryCtxRetain(&one, 1));
	GPU(cu.cuCtxSetCurrent(one));
	GPU(cu.cuStreamCreate(&stream1, CU_STREAM_NON_BLOCKING));
	GPU(cu.cuCtxEnablePeerAccess(zero, 0));
	GPU_IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cu.cuCtxEnablePeerAccess(zero, 0));
	GPU(cu.cuMemPoolSetAccess(pool, &access, 1));
	GPU(cu.cuMemPoolGetAccess(&flags, pool, &access.location));
	printf("access %d\n", (int)flags);

	GPU(cu.cuCtxSetCurrent(zero));
	GPU(cu.cuMemAlloc_v2(&plain[1], SIZE));
	GPU(cu.cuMemAllocAsync(&ordered[1], SIZE, stream0));
	GPU(cu.cuStreamSynchronize(stream0));
	for (int i = 0; i < 2; i++) {
		GPU(cu.cuCtxSetCurrent(one));
		gpu_fill(plain[i], SIZE, (uint8_t)(10 + i), stream1);
		gpu_fill(ordered[i], SIZE, (uint8_t)(20 + i), stream1);
		GPU(cu.cuStreamSynchronize(stream1));
		GPU(cu.cuCtxSetCurrent(zero));
		gpu_check(plain[i], SIZE, (uint8_t)(10 + i), stream0);
		gpu_check(ordered[i], SIZE, (uint8_t)(20 + i), stream0);
		GPU(cu.cuMemFree_v2(plain[i]));
		GPU(cu.cuMemFreeAsync(ordered[i], stream0));
	}
	/* each device has a pool and an order of its own */
	CUdeviceptr there;
	GPU(cu.cuCtxSetCurrent(one));
	GPU(cu.cuMemAllocAsync(&there, SIZE, stream1));
	gpu_fill(there, SIZE, 30, stream1);
	gpu_check(there, SIZE, 30, stream1);
	int ordinal = -1;
	GPU(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
	printf("on device %d\n", ordinal);
	GPU(cu.cuMemFreeAsync(there, stream1));
	GPU(cu.cuStreamSynchronize(stream1));
	return 0;
}
