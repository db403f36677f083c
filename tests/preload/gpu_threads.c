/* SPDX-License-Identifier: MIT
 *
 * Threads that allocate and free at once, each on streams of its own and on default streams, and one that hands blocks to
 * the others.
 */
#include "gpu.h"

#include <pthread.h>

#define THREADS 4
#define HANDED 100

static CUcontext context;

static void *worker(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg;
	CUstream streams[3] = {NULL, NULL, CU_STREAM_PER_THREAD};
	GPU(cu.cuCtxSetCurrent(context));
	GPU(cu.cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 3; i++) {
		gpu_work(seed + (uint64_t)i, 100, 16, 1 << 20, streams, 3);
		size_t free, total;
		GPU(cu.cuMemGetInfo_v2(&free, &total));
		GPU_TRUE(free <= total);
		GPU(cu.cuStreamDestroy_v2(streams[1]));
		GPU(cu.cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
	}
	GPU(cu.cuStreamSynchronize(streams[1]));
	GPU(cu.cuStreamDestroy_v2(streams[1]));
	return NULL;
}

static CUdeviceptr handed[HANDED];
static _Atomic unsigned given;

static void *giver(void *arg)
{
	CUstream stream;
	GPU(cu.cuCtxSetCurrent(context));
	GPU(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < HANDED; i++) {
		GPU(cu.cuMemAllocAsync(&handed[i], 1000 + 700 * i, stream));
		gpu_fill(handed[i], 1000 + 700 * i, (uint8_t)i, stream);
		GPU(cu.cuStreamSynchronize(stream));
		given = i + 1;
	}
	GPU(cu.cuStreamDestroy_v2(stream));
	return arg;
}

int main(int argc, char **argv)
{
	gpu_open(argc, argv);
	CUmemoryPool pool;
	cuuint64_t used;
	pthread_t threads[THREADS + 1];
	GPU(cu.cuCtxGetCurrent(&context));
	GPU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	for (uintptr_t i = 0; i < THREADS; i++)
		GPU_TRUE(!pthread_create(&threads[i], NULL, worker, (void *)(i * 1000 + 1)));
	GPU_TRUE(!pthread_create(&threads[THREADS], NULL, giver, NULL));
	for (unsigned i = 0; i < HANDED; i++) {
		while (given <= i)
			sched_yield();
		gpu_check(handed[i], 1000 + 700 * i, (uint8_t)i, NULL);
		GPU(cu.cuMemFreeAsync(handed[i], NULL));
	}
	for (int i = 0; i <= THREADS; i++)
		pthread_join(threads[i], NULL);
	GPU(cu.cuCtxSynchronize());
	GPU(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	printf("used %llu\n", (unsigned long long)used);
	GPU(cu.cuMemPoolTrimTo(pool, 0));
	GPU(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &used));
	printf("reserved %llu\n", (unsigned long long)used);
	return 0;
}
