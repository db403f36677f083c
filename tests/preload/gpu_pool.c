/* SPDX-License-Identifier: MIT
 *
 * Stream-ordered memory and its pools: contents, statistics, trim, other pools, the books of the device.
 */
#include "gpu.h"

static cuuint64_t get(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	cuuint64_t value = 0;
	GPU(cu.cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static void others_than_the_default(CUmemoryPool initial, CUstream stream)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool own, current;
	CUdeviceptr a, b, c;
	GPU(cu.cuMemPoolCreate(&own, &props));
	cuuint64_t before = get(initial, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
	GPU(cu.cuMemAllocFromPoolAsync(&a, 1 << 20, own, stream));
	GPU_TRUE(get(initial, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == before);
	GPU_TRUE(get(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 1 << 20);
	GPU(cu.cuDeviceSetMemPool(0, own));
	GPU(cu.cuDeviceGetMemPool(&current, 0));
	GPU_TRUE(current == own);
	GPU(cu.cuMemAllocAsync(&b, 1 << 20, stream));
	GPU_TRUE(get(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 2 << 20);
	GPU_TRUE(get(initial, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == before);
	GPU(cu.cuDeviceSetMemPool(0, initial));
	GPU(cu.cuMemAllocAsync(&c, 1 << 20, stream));
	GPU_TRUE(get(initial, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= before + (1 << 20));
	gpu_fill(a, 1 << 20, 1, stream);
	gpu_fill(b, 1 << 20, 2, stream);
	gpu_fill(c, 1 << 20, 3, stream);
	gpu_check(a, 1 << 20, 1, stream);
	gpu_check(b, 1 << 20, 2, stream);
	gpu_check(c, 1 << 20, 3, stream);
	GPU(cu.cuMemFreeAsync(a, stream));
	GPU(cu.cuMemFreeAsync(b, stream));
	GPU(cu.cuMemFreeAsync(c, stream));
	GPU(cu.cuStreamSynchronize(stream));
	GPU(cu.cuDeviceSetMemPool(0, own));
	GPU(cu.cuMemPoolDestroy(own)); /* the default one is current again */
	GPU(cu.cuMemAllocAsync(&a, 3 << 20, stream));
	GPU_TRUE(get(initial, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= before + (3 << 20));
	GPU(cu.cuMemFreeAsync(a, stream));
	GPU(cu.cuStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
	gpu_open(argc, argv);
	CUmemoryPool pool;
	CUstream streams[4] = {NULL};
	size_t free0, free1, total;
	int on = 1, value = 0;
	cuuint64_t most = UINT64_MAX, none = 0;
	GPU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	GPU(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
	GPU(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
	GPU(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value));
	GPU_TRUE(value == 1 && get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == most);
	for (int i = 1; i < 4; i++)
		GPU(cu.cuStreamCreate(&streams[i], i == 3 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
	GPU(cu.cuMemGetInfo_v2(&free0, &total));
	printf("used %llu reserved %llu\n", (unsigned long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
	       (unsigned long long)get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));

	CUdeviceptr a, b = 0;
	GPU(cu.cuMemAllocAsync(&a, 10 << 20, streams[1]));
	GPU_TRUE(a % 512 == 0);
	GPU_TRUE(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 10 << 20 &&
		 get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) < 13 << 20);
	GPU(cu.cuMemGetInfo_v2(&free1, &total));
	GPU_TRUE(free0 - free1 == get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	gpu_fill(a, 10 << 20, 7, streams[1]);
	gpu_check(a, 10 << 20, 7, streams[1]);
	GPU(cu.cuMemFreeAsync(a, streams[1]));
	printf("used after the free: %llu\n", (unsigned long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	GPU_TRUE(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 10 << 20);
	GPU(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
	printf("peak after its reset: %llu\n", (unsigned long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
	GPU(cu.cuStreamSynchronize(streams[1]));
	GPU(cu.cuMemPoolTrimTo(pool, 0));
	printf("reserved after the trim: %llu\n", (unsigned long long)get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	GPU(cu.cuMemGetInfo_v2(&free1, &total));
	printf("all is back: %d\n", free0 == free1);

	GPU(cu.cuMemAllocAsync(&b, 0, streams[1])); /* nothing, and no error */
	GPU(cu.cuMemFreeAsync(b, streams[1]));
	GPU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&b, total * 2, streams[1]));
	GPU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync((CUdeviceptr)12345, streams[1]));
	gpu_work(1, 400, 30, 4 << 20, streams, 4);
	GPU(cu.cuCtxSynchronize());
	GPU(cu.cuMemPoolTrimTo(pool, 0));
	printf("used %llu reserved %llu\n", (unsigned long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
	       (unsigned long long)get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	others_than_the_default(pool, streams[2]);

	/* a block outlives the stream that it was made on; a stream of the same handle is another */
	GPU(cu.cuMemAllocAsync(&a, 5 << 20, streams[3]));
	gpu_fill(a, 5 << 20, 9, streams[3]);
	GPU(cu.cuMemAllocAsync(&b, 5 << 20, streams[3]));
	GPU(cu.cuMemFreeAsync(b, streams[3]));
	GPU(cu.cuStreamSynchronize(streams[3]));
	for (int i = 0; i < 20; i++) {
		GPU(cu.cuStreamDestroy_v2(streams[3]));
		GPU(cu.cuStreamCreate(&streams[3], CU_STREAM_NON_BLOCKING));
		GPU(cu.cuMemAllocAsync(&b, 1 << 20, streams[3]));
		gpu_fill(b, 1 << 20, 11, streams[3]);
		GPU(cu.cuMemFreeAsync(b, streams[3]));
	}
	gpu_check(a, 5 << 20, 9, streams[1]);
	GPU(cu.cuStreamSynchronize(streams[3]));
	printf("used without it %llu\n", (unsigned long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) - (5 << 20));
	GPU(cu.cuMemFree_v2(a)); /* allowed, too; the driver goes on counting it as used */
	return 0;
}
