/* SPDX-License-Identifier: MIT
 *
 * A program that says what it asks of the driver and gets, so that a record of it can be compared: one line a call, "+ NAME KEY
 * SIZE" for what it got, "- NAME KEY" for what it gave back, "! NAME SIZE" for what it was refused. NAME is that of the record.
 *
 *   work     memory of each kind
 *   kill     some, a while after which it ends itself by SIGKILL
 *   many     more than a small file holds
 *   again N  becomes itself N times
 */
#define _GNU_SOURCE
#include "gpu.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void got(const char *name, uint64_t key, uint64_t size)
{
	printf("+ %s %" PRIx64 " %" PRIu64 "\n", name, key, size);
}

static void gave(const char *name, uint64_t key)
{
	printf("- %s %" PRIx64 "\n", name, key);
}

static CUdeviceptr async(size_t size, CUstream s)
{
	CUdeviceptr p;
	GPU(cu.cuMemAllocAsync(&p, size, s));
	got("cuMemAllocAsync", p, size);
	return p;
}

static void free_async(CUdeviceptr p, CUstream s)
{
	gave("cuMemFreeAsync", p); /* before anybody else can have it */
	GPU(cu.cuMemFreeAsync(p, s));
}

static void pools(CUstream s[2])
{
	CUdeviceptr p[20];
	for (unsigned i = 0; i < 20; i++)
		p[i] = async((size_t)(i + 1) * 70001, s[i % 2]);
	for (unsigned i = 0; i < 20; i += 2)
		free_async(p[i], s[0]);
	CUdeviceptr again = async(3000000, s[0]);
	for (unsigned i = 1; i < 20; i += 2)
		free_async(p[i], s[1]);
	free_async(again, s[1]);
	CUdeviceptr none = 0;
	GPU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&none, (size_t)1 << 40, s[0]));
	printf("! cuMemAllocAsync %zu\n", (size_t)1 << 40);
	GPU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(0x123456789000, s[0]));
}

static void other_pool(CUstream s)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool;
	CUdeviceptr p;
	GPU(cu.cuMemPoolCreate(&pool, &props));
	GPU(cu.cuMemAllocFromPoolAsync(&p, 123456, pool, s));
	got("cuMemAllocFromPoolAsync", p, 123456);
	free_async(p, s);
	GPU(cu.cuStreamSynchronize(s));
	GPU(cu.cuMemPoolDestroy(pool));
}

static void plain(void)
{
	CUdeviceptr p, q, m;
	size_t pitch;
	GPU(cu.cuMemAlloc_v2(&p, 5000000));
	got("cuMemAlloc", p, 5000000);
	GPU(cu.cuMemAllocPitch_v2(&q, &pitch, 1000, 100, 4));
	got("cuMemAllocPitch", q, pitch * 100);
	GPU(cu.cuMemAllocManaged(&m, 80000, 1));
	got("cuMemAllocManaged", m, 80000);
	CUcontext primary;
	GPU(cu.cuCtxGetCurrent(&primary));
	GPU_TRUE(cu.cuCtxDestroy_v2(primary) != CUDA_SUCCESS); /* which takes nothing with it */
	gave("cuMemFree", q);
	GPU(cu.cuMemFree_v2(q));
	gave("cuMemFree", p);
	GPU(cu.cuMemFree_v2(p));
	gave("cuMemFree", m);
	GPU(cu.cuMemFree_v2(m));
}

static void host(void)
{
	void *a, *b, *c = malloc(1 << 16);
	GPU(cu.cuMemHostAlloc(&a, 12345, 0));
	got("cuMemHostAlloc", (uintptr_t)a, 12345);
	GPU(cu.cuMemAllocHost_v2(&b, 54321));
	got("cuMemAllocHost", (uintptr_t)b, 54321);
	GPU(cu.cuMemHostRegister_v2(c, 1 << 16, 0));
	got("cuMemHostRegister", (uintptr_t)c, 1 << 16);
	gave("cuMemHostUnregister", (uintptr_t)c);
	GPU(cu.cuMemHostUnregister(c));
	gave("cuMemFreeHost", (uintptr_t)a);
	GPU(cu.cuMemFreeHost(a));
	gave("cuMemFreeHost", (uintptr_t)b);
	GPU(cu.cuMemFreeHost(b));
	free(c);
}

static void frames(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	size_t size = 4 << 20;
	GPU(cu.cuMemAddressReserve(&at, size, 0, 0, 0));
	got("cuMemAddressReserve", at, size);
	GPU(cu.cuMemCreate(&h, size, &prop, 0));
	got("cuMemCreate", h, size);
	GPU(cu.cuMemMap(at, size, 0, h, 0));
	got("cuMemMap", at, size);
	GPU(cu.cuMemUnmap(at, size));
	gave("cuMemUnmap", at);
	gave("cuMemRelease", h);
	GPU(cu.cuMemRelease(h));
	GPU(cu.cuMemAddressFree(at, size));
	gave("cuMemAddressFree", at);
}

/* Captured memory is the graph's; what is freed with a context is freed. */
static void graphs_and_contexts(CUstream s)
{
	CUgraph graph;
	CUcontext context, before;
	CUdeviceptr p, left;
	GPU(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	GPU(cu.cuMemAllocAsync(&p, 2000000, s));
	GPU(cu.cuMemFreeAsync(p, s));
	GPU(cu.cuStreamEndCapture(s, &graph));
	GPU(cu.cuGraphDestroy(graph));
	GPU(cu.cuCtxGetCurrent(&before));
	GPU(cu.cuCtxCreate_v2(&context, 0, 0));
	GPU(cu.cuMemAlloc_v2(&left, 7000000));
	got("cuMemAlloc", left, 7000000);
	gave("cuCtxDestroy", left);
	GPU(cu.cuCtxDestroy_v2(context));
	GPU(cu.cuCtxSetCurrent(before));
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "work";
	CUstream s[2];
	gpu_open(argc, argv);
	for (int i = 0; i < 2; i++)
		GPU(cu.cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
	if (!strcmp(what, "many")) {
		for (int i = 0; i < 200000; i++) {
			CUdeviceptr p;
			GPU(cu.cuMemAllocAsync(&p, (size_t)(1 + i % 977) * 1234, s[0]));
			GPU(cu.cuMemFreeAsync(p, s[0]));
		}
		puts("many");
		return 0;
	}
	if (!strcmp(what, "again")) {
		char left[16];
		int n = atoi(argv[3]);
		snprintf(left, sizeof(left), "%d", n - 1);
		char *next[] = {argv[0], argv[1], argv[2], left, NULL};
		free_async(async(1000, s[0]), s[0]);
		return n && execv(argv[0], next);
	}
	pools(s);
	if (!strcmp(what, "kill")) {
		CUdeviceptr left = async(1000000, s[0]);
		printf("left %" PRIx64 "\n", (uint64_t)left);
		fflush(stdout);
		nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
		raise(SIGKILL);
	}
	other_pool(s[0]);
	plain();
	host();
	frames();
	graphs_and_contexts(s[1]);
	for (int i = 0; i < 2; i++)
		GPU(cu.cuStreamDestroy_v2(s[i]));
	return 0;
}
