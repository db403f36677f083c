/* SPDX-License-Identifier: MIT
 *
 * A libcuda.so.1 that is not NVIDIA's: it says it is new enough and has few functions. And (LACKING_PROGRAM) a program that
 * opens it, by the path that is its argument, and gets on with it.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#ifndef LACKING_PROGRAM

int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuMemAllocAsync(uint64_t *ptr, size_t size, void *stream);
int cuMemFreeAsync(uint64_t ptr, void *stream);
int cuMemAlloc_v2(uint64_t *ptr, size_t size);
int cuMemFree_v2(uint64_t ptr);
int cuCtxDestroy_v2(void *context);

int cuInit(unsigned int flags)
{
	return (int)flags;
}

int cuDriverGetVersion(int *version)
{
	*version = 12040;
	return 0;
}

int cuDeviceGetCount(int *count)
{
	*count = 1;
	return 0;
}

int cuMemAllocAsync(uint64_t *ptr, size_t size, void *stream)
{
	*ptr = 0x5000 + size;
	return stream ? 400 : 0;
}

int cuMemFreeAsync(uint64_t ptr, void *stream)
{
	return ptr == 0x500a && !stream ? 0 : 1;
}

int cuMemAlloc_v2(uint64_t *ptr, size_t size)
{
	*ptr = 0x4000 + size;
	return 0;
}

int cuMemFree_v2(uint64_t ptr)
{
	return ptr == 0x400a ? 0 : 1;
}

int cuCtxDestroy_v2(void *context)
{
	return context ? 0 : 201;
}

#else

int main(int argc, char **argv)
{
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!lib) {
		printf("%s\n", argc > 1 ? dlerror() : "which library?");
		return 1;
	}
	int (*init)(unsigned int), (*alloc)(uint64_t *, size_t), (*give)(uint64_t), (*destroy)(void *);
	int (*alloc_on)(uint64_t *, size_t, void *), (*give_on)(uint64_t, void *);
	*(void **)&init = dlsym(lib, "cuInit");
	*(void **)&alloc = dlsym(lib, "cuMemAlloc_v2");
	*(void **)&give = dlsym(lib, "cuMemFree_v2");
	*(void **)&alloc_on = dlsym(lib, "cuMemAllocAsync");
	*(void **)&give_on = dlsym(lib, "cuMemFreeAsync");
	*(void **)&destroy = dlsym(lib, "cuCtxDestroy_v2");
	if (!init || !alloc || !give || !alloc_on || !give_on || !destroy) {
		printf("a function is not found\n");
		return 1;
	}
	uint64_t ptr = 0;
	printf("init %d\n", init(0));
	printf("allocate %d", alloc(&ptr, 10));
	printf(" %#llx, free %d\n", (unsigned long long)ptr, give(ptr));
	printf("allocate on a stream %d", alloc_on(&ptr, 10, NULL));
	printf(" %#llx, free %d\n", (unsigned long long)ptr, give_on(ptr, NULL));
	printf("destroy %d\n", destroy(&ptr));
	/* what the library lacks, and what no library that everybody sees has */
	printf("absent: %d %d\n", !dlsym(lib, "cuMemCreate"), !dlsym(RTLD_DEFAULT, "cuMemCreate"));
	printf("not for everybody: %d\n", !dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	return 0;
}

#endif
