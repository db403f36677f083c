/* SPDX-License-Identifier: MIT
 *
 * cuMemAlloc and what is said of such memory, by a program that uses nothing else; two contexts, of which one is destroyed
 * with its memory.
 */
#include "gpu.h"

int main(int argc, char **argv)
{
	gpu_open(argc, argv);
	CUdeviceptr blocks[40], base, ptr;
	size_t sizes[40], size, pitch, free0, free1, total;
	struct clv_rng rng = {3};
	GPU(cu.cuMemGetInfo_v2(&free0, &total));
	for (int i = 0; i < 40; i++) {
		sizes[i] = (size_t)clv_rng_range(&rng, 1, (uint64_t)1 << clv_rng_range(&rng, 8, 22));
		GPU(cu.cuMemAlloc_v2(&blocks[i], sizes[i]));
		GPU_TRUE(blocks[i] % 256 == 0);
		GPU(cu.cuMemsetD8_v2(blocks[i], (unsigned char)i, sizes[i]));
	}
	for (int i = 0; i < 40; i++) {
		GPU(cu.cuMemGetAddressRange_v2(&base, &size, blocks[i] + sizes[i] / 2));
		GPU_TRUE(base == blocks[i] && size >= sizes[i] && size < sizes[i] + 512);
		GPU(cu.cuMemGetAddressRange_v2(NULL, &size, blocks[i]));
		GPU(cu.cuMemGetAddressRange_v2(&base, NULL, blocks[i]));
		GPU(cu.cuPointerGetAttribute(&ptr, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, blocks[i] + sizes[i] - 1));
		GPU_TRUE(ptr == blocks[i]);
		GPU(cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, blocks[i]));
		GPU_TRUE(size >= sizes[i] && size < sizes[i] + 512);
		int ordinal = -1;
		unsigned int type = 0;
		CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
						CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
						CU_POINTER_ATTRIBUTE_RANGE_SIZE};
		void *data[] = {&ordinal, &base, &type, &size};
		GPU(cu.cuPointerGetAttributes(4, wanted, data, blocks[i]));
		GPU_TRUE(ordinal == 0 && base == blocks[i] && type == 2 && size >= sizes[i]);
		CUmemGenericAllocationHandle handle;
		CUresult r = cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)blocks[i]);
		GPU_TRUE(r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_NOT_SUPPORTED /* no device has handles */);
		gpu_check(blocks[i], sizes[i], (uint8_t)i, NULL);
	}
	GPU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(blocks[7] + 256));
	for (int i = 0; i < 40; i++)
		GPU(cu.cuMemFree_v2(blocks[i]));
	GPU(cu.cuMemFree_v2(0));
	GPU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(blocks[3]));
	GPU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAlloc_v2(&ptr, 0));
	GPU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&ptr, total + 1));

	GPU(cu.cuMemAllocPitch_v2(&ptr, &pitch, 1000, 300, 4));
	GPU_TRUE(pitch >= 1000 && pitch % 4 == 0);
	GPU(cu.cuMemsetD8_v2(ptr, 5, pitch * 300));
	gpu_check(ptr, pitch * 300, 5, NULL);
	GPU(cu.cuMemFree_v2(ptr));

	/* a free waits for the work that uses the block */
	CUstream stream;
	GPU(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 10; i++) {
		GPU(cu.cuMemAlloc_v2(&ptr, 2 << 20));
		gpu_fill(ptr, 2 << 20, 1, stream);
		GPU(cu.cuMemFree_v2(ptr));
		GPU(cu.cuMemAlloc_v2(&ptr, 2 << 20));
		GPU(cu.cuMemsetD8_v2(ptr, 2, 2 << 20));
		gpu_check(ptr, 2 << 20, 2, NULL);
		GPU(cu.cuMemFree_v2(ptr));
	}

	/* a capture that allows it does not keep a free from being made, nor the memory for good */
	CUgraph graph;
	GPU(cu.cuMemAlloc_v2(&ptr, 40 << 20));
	GPU(cu.cuMemAlloc_v2(&base, 1000));
	GPU(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	GPU(cu.cuMemFree_v2(ptr));
	GPU(cu.cuMemFree_v2(base));
	GPU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(ptr));
	GPU(cu.cuStreamEndCapture(stream, &graph));
	GPU(cu.cuGraphDestroy(graph));
	GPU(cu.cuMemAlloc_v2(&ptr, 1000));
	GPU(cu.cuMemFree_v2(ptr));

	CUcontext first, second;
	GPU(cu.cuCtxGetCurrent(&first));
	GPU(cu.cuMemAlloc_v2(&blocks[0], 1 << 20));
	GPU(cu.cuMemsetD8_v2(blocks[0], 17, 1 << 20));
	GPU(cu.cuCtxCreate_v2(&second, 0, 0));
	for (int i = 1; i < 5; i++)
		GPU(cu.cuMemAlloc_v2(&blocks[i], 8 << 20));
	GPU(cu.cuCtxDestroy_v2(second));
	GPU(cu.cuCtxSetCurrent(first));
	gpu_check(blocks[0], 1 << 20, 17, NULL);
	GPU(cu.cuMemFree_v2(blocks[0]));
	GPU(cu.cuMemGetInfo_v2(&free1, &total));
	printf("what is free is within 4 MiB of what was: %d\n",
	       free1 <= free0 + (4 << 20) && free1 + (4 << 20) >= free0);
	/* all of it can be had again in one piece */
	GPU(cu.cuMemAlloc_v2(&ptr, free1 - (8 << 20)));
	GPU(cu.cuMemFree_v2(ptr));
	printf("done\n");
	return 0;
}
