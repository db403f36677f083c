/* SPDX-License-Identifier: MIT
 *
 * A device that is full: requests fail and the program goes on; what the pool keeps is given up for the driver's other
 * allocations.
 */
#include "gpu.h"

int main(int argc, char **argv)
{
	gpu_open(argc, argv);
	CUstream stream;
	CUdeviceptr blocks[512], plain;
	CUmemoryPool pool;
	cuuint64_t most = UINT64_MAX;
	size_t free, total;
	unsigned n = 0;
	GPU(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	GPU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	GPU(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
	GPU(cu.cuMemGetInfo_v2(&free, &total));
	size_t size = free / 64 / 512 * 512;
	CUresult r;
	while ((r = cu.cuMemAllocAsync(&blocks[n], size, stream)) == CUDA_SUCCESS)
		gpu_fill(blocks[n], 4096, (uint8_t)n, stream), n++;
	printf("%d after at least 60 of 64: %d\n", (int)r, n >= 60);
	GPU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&plain, size, stream));
	for (unsigned i = 0; i < n; i += 2)
		GPU(cu.cuMemFreeAsync(blocks[i], stream));
	for (unsigned i = 1; i < n; i += 2)
		gpu_check(blocks[i], 4096, (uint8_t)i, stream);
	GPU(cu.cuMemAllocAsync(&blocks[0], size, stream));
	for (unsigned i = 1; i < n; i += 2)
		GPU(cu.cuMemFreeAsync(blocks[i], stream));
	GPU(cu.cuMemFreeAsync(blocks[0], stream));

	/* all of it is in the pool; each of these needs most of the device */
	GPU(cu.cuMemAlloc_v2(&plain, total / 10 * 8));
	GPU(cu.cuMemFree_v2(plain));
	GPU(cu.cuMemAllocAsync(&blocks[0], total / 10 * 8, stream));
	GPU(cu.cuMemFreeAsync(blocks[0], stream));
	GPU(cu.cuStreamSynchronize(stream));
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	int vmm = 0;
	GPU(cu.cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	if (vmm && cu.cuMemCreate(&handle, (total / 10 * 8) >> 21 << 21, &prop, 0) != CUDA_SUCCESS) {
		fprintf(stderr, "the pool was not given up\n"); /* the driver alone does not */
		GPU(cu.cuMemPoolTrimTo(pool, 0));
		GPU(cu.cuMemCreate(&handle, (total / 10 * 8) >> 21 << 21, &prop, 0));
	}
	if (vmm)
		GPU(cu.cuMemRelease(handle));
	GPU(cu.cuMemAllocAsync(&blocks[0], total / 10 * 8, stream));
	GPU(cu.cuMemFreeAsync(blocks[0], stream));
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool own;
	GPU(cu.cuMemPoolCreate(&own, &props));
	GPU(cu.cuMemAllocFromPoolAsync(&blocks[0], total / 10 * 8, own, stream));
	GPU(cu.cuMemFreeAsync(blocks[0], stream));
	GPU(cu.cuStreamSynchronize(stream));
	GPU(cu.cuMemPoolDestroy(own));
	printf("done\n");
	return 0;
}
