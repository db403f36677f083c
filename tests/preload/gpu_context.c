/* SPDX-License-Identifier: MIT
 *
 * Calls without a current context, with one that is gone, and memory of cuMemAlloc that is freed on a stream: the driver's
 * answer to each is printed.
 */
#include "gpu.h"

#define MIB ((size_t)1 << 20)
#define SAY(what, call) printf("%s: %d\n", what, (int)(call))

static CUstream stream;
static CUmemoryPool pool;

static void none_current(CUcontext context)
{
	CUdeviceptr a, b = 0, c = 0, plain;
	void *host, *more = NULL;
	size_t size, total;
	unsigned type = 0;
	cuuint64_t used;
	CUevent event;
	GPU(cu.cuMemAllocAsync(&a, 3 * MIB, stream));
	gpu_fill(a, 3 * MIB, 1, stream);
	GPU(cu.cuMemAlloc_v2(&plain, MIB));
	GPU(cu.cuMemHostAlloc(&host, 4096, 0));
	GPU(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	GPU(cu.cuCtxSetCurrent(NULL));
	SAY("allocate on a stream", cu.cuMemAllocAsync(&b, MIB, stream));
	gpu_fill(b, MIB, 2, stream);
	gpu_check(a, 3 * MIB, 1, stream);
	gpu_check(b, MIB, 2, stream);
	SAY("on a default stream", cu.cuMemAllocAsync(&c, MIB, NULL));
	SAY("from a pool", cu.cuMemAllocFromPoolAsync(&c, MIB, pool, stream));
	SAY("free", cu.cuMemFreeAsync(c, stream));
	SAY("free on a default stream", cu.cuMemFreeAsync(b, NULL));
	SAY("free", cu.cuMemFreeAsync(b, stream));
	SAY("record", cu.cuEventRecord(event, stream));
	SAY("wait", cu.cuStreamWaitEvent(stream, event, 0));
	SAY("synchronize", cu.cuStreamSynchronize(stream));
	SAY("query", cu.cuStreamQuery(stream));
	SAY("cuMemAlloc", cu.cuMemAlloc_v2(&c, MIB));
	SAY("type", cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain));
	SAY("cuMemFree", cu.cuMemFree_v2(plain));
	SAY("cuMemFree of a pool's", cu.cuMemFree_v2(a));
	SAY("cuMemGetInfo", cu.cuMemGetInfo_v2(&size, &total));
	SAY("cuMemHostAlloc", cu.cuMemHostAlloc(&more, 4096, 0));
	SAY("used", cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	SAY("trim", cu.cuMemPoolTrimTo(pool, 0));
	SAY("destroy an event", cu.cuEventDestroy_v2(event));
	GPU(cu.cuCtxSetCurrent(context));
	SAY("free host", cu.cuMemFreeHost(host));
}

#define THEIRS 8
#define NEXT 24 /* with the above more than the device has: addresses are used again */
#define BLOCK (8 * MIB)

/* What a context owned and has given back is not taken from its next owner when the context goes. */
static void freed_on_a_stream(CUcontext context)
{
	CUdeviceptr plain[THEIRS], next[NEXT], more;
	CUcontext other;
	CUstream theirs;
	GPU(cu.cuCtxCreate_v2(&other, 0, 0));
	GPU(cu.cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < THEIRS; i++)
		GPU(cu.cuMemAlloc_v2(&plain[i], BLOCK));
	for (int i = 0; i < THEIRS; i++)
		SAY("free on a stream", cu.cuMemFreeAsync(plain[i], theirs));
	SAY("again", cu.cuMemFreeAsync(plain[0], theirs));
	GPU(cu.cuStreamSynchronize(theirs));
	GPU(cu.cuCtxSetCurrent(context));
	for (int i = 0; i < NEXT; i++) {
		GPU(cu.cuMemAllocAsync(&next[i], BLOCK, stream));
		gpu_fill(next[i], 4096, (uint8_t)(i + 1), stream);
	}
	GPU(cu.cuStreamSynchronize(stream));
	GPU(cu.cuCtxDestroy_v2(other));
	for (int i = 0; i < 4; i++) {
		GPU(cu.cuMemAllocAsync(&more, BLOCK, stream));
		gpu_fill(more, 4096, 99, stream);
		GPU(cu.cuStreamSynchronize(stream));
	}
	for (int i = 0; i < NEXT; i++) {
		gpu_check(next[i], 4096, (uint8_t)(i + 1), stream);
		SAY("free the next owner's", cu.cuMemFreeAsync(next[i], stream));
	}
}

static void gone(CUcontext context)
{
	CUdeviceptr p = 0;
	CUdevice device = -1;
	CUcontext again;
	void *host = NULL;
	GPU(cu.cuStreamDestroy_v2(stream));
	SAY("release", cu.cuDevicePrimaryCtxRelease_v2(0));
	SAY("device", cu.cuCtxGetDevice(&device));
	SAY("cuMemAlloc", cu.cuMemAlloc_v2(&p, MIB));
	SAY("cuMemAllocAsync", cu.cuMemAllocAsync(&p, MIB, NULL));
	SAY("cuMemHostAlloc", cu.cuMemHostAlloc(&host, 4096, 0));
	GPU(cu.cuDevicePrimaryCtxRetain(&again, 0));
	printf("the same context: %d\n", again == context);
	SAY("cuMemAlloc", cu.cuMemAlloc_v2(&p, MIB));
	SAY("cuMemFree", cu.cuMemFree_v2(p));
	SAY("cuMemAllocAsync", cu.cuMemAllocAsync(&p, MIB, NULL));
	gpu_fill(p, MIB, 5, NULL);
	gpu_check(p, MIB, 5, NULL);
	SAY("cuMemFreeAsync", cu.cuMemFreeAsync(p, NULL));
}

int main(int argc, char **argv)
{
	CUcontext context;
	gpu_open(argc, argv);
	GPU(cu.cuCtxGetCurrent(&context));
	GPU(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	GPU(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	none_current(context);
	freed_on_a_stream(context);
	gone(context);
	return 0;
}
