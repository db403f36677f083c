/* SPDX-License-Identifier: MIT
 *
 * A library that is opened with RTLD_DEEPBIND and so finds libcuda before what is preloaded (made with DEEP_LIBRARY), and
 * the program that opens it and uses CUDA beside it.
 */
#define _GNU_SOURCE
#include "gpu.h"

#include <dlfcn.h>

#ifdef DEEP_LIBRARY

int deep_work(void);
int deep_work(void)
{
	unsigned char byte = 0;
	CUdeviceptr ptr;
	if (cuMemAlloc_v2(&ptr, 1 << 20) != CUDA_SUCCESS || cuMemsetD8_v2(ptr, 77, 1 << 20) != CUDA_SUCCESS ||
	    cuMemcpyDtoH_v2(&byte, ptr + 12345, 1) != CUDA_SUCCESS || cuMemFree_v2(ptr) != CUDA_SUCCESS)
		return -1;
	if (cuMemAllocAsync(&ptr, 1 << 20, NULL) != CUDA_SUCCESS || cuMemFreeAsync(ptr, NULL) != CUDA_SUCCESS)
		return -2;
	return byte;
}

#else

int main(int argc, char **argv)
{
	gpu_open(argc, argv);
	GPU_TRUE(argc > 2);
	void *lib = dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND);
	int (*work)(void) = lib ? (int (*)(void))dlsym(lib, "deep_work") : NULL;
	if (!work) {
		printf("%s\n", dlerror());
		return 1;
	}
	CUstream stream = NULL;
	for (int i = 0; i < 3; i++) {
		gpu_work((uint64_t)i + 9, 50, 10, 1 << 20, &stream, 1);
		printf("deep %d\n", work());
	}
	return 0;
}

#endif
