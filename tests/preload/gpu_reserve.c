/* SPDX-License-Identifier: MIT
 *
 * Equal layers that are loaded, and then each converted into a new block of the same size. Says whether more was held than was
 * live when all were loaded. With the second argument `little` it has but a little on the device.
 */
#include "gpu.h"

#include <string.h>

#define LAYERS 12
#define LAYER (4 << 20)

int main(int argc, char **argv)
{
	gpu_open(argc, argv);
	CUstream stream;
	CUmemoryPool pool;
	CUdeviceptr layers[LAYERS], made, small;
	cuuint64_t most = UINT64_MAX, held = 0;
	GPU(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	GPU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	GPU(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
	GPU(cu.cuMemAllocAsync(&small, 64 << 10, stream));
	for (int i = 0; i < LAYERS && !(argc > 2 && !strcmp(argv[2], "little")); i++) {
		GPU(cu.cuMemAllocAsync(&layers[i], LAYER, stream));
		gpu_fill(layers[i], LAYER, (uint8_t)i, stream);
		if (i < LAYERS - 1)
			continue;
		GPU(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held));
		printf("a layer more is held: %d\n", held >= (LAYERS + 1) * (cuuint64_t)LAYER);
		for (int k = 0; k < LAYERS; k++) {
			GPU(cu.cuMemAllocAsync(&made, LAYER, stream));
			gpu_check(layers[k], LAYER, (uint8_t)k, stream);
			gpu_fill(made, LAYER, (uint8_t)(k + 100), stream);
			GPU(cu.cuMemFreeAsync(layers[k], stream));
			layers[k] = made;
		}
		for (int k = 0; k < LAYERS; k++)
			gpu_check(layers[k], LAYER, (uint8_t)(k + 100), stream);
	}
	GPU(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held));
	printf("at the end less than a layer is held: %d\n", held < LAYER);
	return 0;
}
