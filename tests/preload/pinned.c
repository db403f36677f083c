/* SPDX-License-Identifier: MIT
 *
 * pinned WHAT: a program with page-locked memory, over the library named by CLEAVE_LIBCUDA: the test double of
 * libcuda.so.1, or the real one. Prints the same with and without a cache in between; and on stderr, how often the double
 * was asked for memory.
 *
 * results   what each call answers
 * copies    blocks that are freed while copies still read them, and asked for anew at once
 * threads   the same in threads, each with a stream
 * contexts  blocks that go with their context
 * capture   a block that is freed while a stream captures, which the driver alone does not allow
 */
#define _GNU_SOURCE
#include "../../src/driver/cuda_calls.h"
#include "../libcuda/fakecuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		CUresult r_ = (call);                                                                                  \
		if (r_) {                                                                                              \
			fprintf(stderr, "line %d: %s: error %d\n", __LINE__, #call, (int)r_);                          \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static struct clv_cuda_api cu;
static fakecuda_calls_fn *fake_calls;
static fakecuda_delay_fn *fake_delay;
static fakecuda_leaks_fn *fake_leaks;

static void open_cuda(void)
{
	void *lib = dlopen(getenv("CLEAVE_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define X(name, params) *(void **)&cu.name = dlsym(lib, #name);
#define Y(name, params) X(name, params) X(name##_ptsz, params)
	CLV_CUDA_CALLS(X, Y)
#undef X
#undef Y
	*(void **)&fake_calls = dlsym(lib, "fakecuda_calls");
	*(void **)&fake_delay = dlsym(lib, "fakecuda_delay");
	*(void **)&fake_leaks = dlsym(lib, "fakecuda_leaks");
}

static void slow_work(unsigned us)
{
	if (fake_delay)
		fake_delay(us);
}

static CUcontext start_cuda(void)
{
	CUcontext context;
	open_cuda();
	OK(cu.cuInit(0));
	OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
	OK(cu.cuCtxSetCurrent(context));
	return context;
}

static CUstream new_stream(void)
{
	CUstream s;
	OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

static CUdeviceptr device_block(size_t size)
{
	CUdeviceptr p;
	OK(cu.cuMemAlloc_v2(&p, size));
	return p;
}

static void results(void)
{
	unsigned char *p, *q;
	void *wc, *none;
	OK(cu.cuMemHostAlloc((void **)&p, 100, 0));
	OK(cu.cuMemAllocHost_v2((void **)&q, 3 << 20));
	OK(cu.cuMemHostAlloc(&wc, 4096, 4)); /* write-combined */
	memset(p, 1, 100);
	memset(q, 2, 3 << 20);
	memset(wc, 3, 4096);
	printf("aligned %d %d\n", (int)((uintptr_t)p % 512), (int)((uintptr_t)q % 4096));
	printf("size 0: %d, no result: %d, unknown flag: %d\n", cu.cuMemHostAlloc(&none, 0, 0),
	       cu.cuMemHostAlloc(NULL, 10, 0), cu.cuMemHostAlloc(&none, 10, 8));
	printf("free inside: %d\n", cu.cuMemFreeHost(q + 4096));
	printf("free: %d %d %d, NULL: %d\n", cu.cuMemFreeHost(p), cu.cuMemFreeHost(q), cu.cuMemFreeHost(wc),
	       cu.cuMemFreeHost(NULL));
	printf("again: %d %d\n", cu.cuMemFreeHost(q), cu.cuMemFreeHost(wc));
	printf("not ours: %d\n", cu.cuMemFreeHost(&cu));
}

/* Each block is read by a copy that runs after it was freed and after the next one was filled. */
static int copy_rounds(CUstream s, int rounds, unsigned seed)
{
	enum { SIZE = 20000 };
	CUdeviceptr to[32];
	int wrong = 0;
	static __thread unsigned char back[SIZE];
	for (int i = 0; i < 32; i++)
		to[i] = device_block(SIZE);
	for (int round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < 32; i++) {
			unsigned char *p;
			OK(cu.cuMemHostAlloc((void **)&p, SIZE, i % 3));
			memset(p, (int)(seed + i), SIZE);
			OK(cu.cuMemcpyHtoDAsync_v2(to[i], p, SIZE, s));
			OK(cu.cuMemFreeHost(p));
		}
		OK(cu.cuStreamSynchronize(s));
		for (unsigned i = 0; i < 32; i++) {
			OK(cu.cuMemcpyDtoH_v2(back, to[i], SIZE));
			for (int k = 0; k < SIZE; k++)
				wrong += back[k] != (unsigned char)(seed + i);
		}
		seed += 32;
	}
	for (int i = 0; i < 32; i++)
		OK(cu.cuMemFree_v2(to[i]));
	return wrong;
}

static void copies(void)
{
	slow_work(300);
	printf("wrong bytes: %d\n", copy_rounds(new_stream(), 3, 1));
	printf("on the default stream: %d\n", copy_rounds(NULL, 2, 7));
	if (fake_calls)
		fprintf(stderr, "%ld chunks\n", fake_calls("cuMemHostAlloc") + fake_calls("cuMemAllocHost_v2"));
}

static CUcontext first;

static void *worker(void *arg)
{
	OK(cu.cuCtxSetCurrent(first));
	CUstream s = new_stream();
	int wrong = copy_rounds(s, 2, (unsigned)(size_t)arg);
	OK(cu.cuStreamDestroy_v2(s));
	return (void *)(size_t)wrong;
}

static void threads(void)
{
	enum { THREADS = 4 };
	pthread_t thread[THREADS];
	int wrong = 0;
	slow_work(100);
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, worker, (void *)(50 * i));
	for (size_t i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(thread[i], &result);
		wrong += (int)(size_t)result;
	}
	printf("wrong bytes: %d\n", wrong);
}

static void contexts(void)
{
	CUcontext second, popped;
	void *p[20], *q;
	const char *leak;
	OK(cu.cuMemHostAlloc(&q, 5000, 1));
	memset(q, 7, 5000);
	for (int round = 0; round < 3; round++) {
		OK(cu.cuCtxCreate_v2(&second, 0, 0)); /* and current */
		for (size_t i = 0; i < 20; i++) {
			OK(cu.cuMemHostAlloc(&p[i], 1 + i * i * 997, 1));
			memset(p[i], 1, 1 + i * i * 997);
		}
		for (size_t i = 0; i < 20; i += 2)
			OK(cu.cuMemFreeHost(p[i]));
		OK(cu.cuCtxPopCurrent_v2(&popped));
		OK(cu.cuMemFreeHost(p[1])); /* with the other one current */
		OK(cu.cuCtxDestroy_v2(second));
		printf("after its context: %d\n", cu.cuMemFreeHost(p[3]));
	}
	printf("another context's: %d\n", ((char *)q)[4999]);
	OK(cu.cuMemFreeHost(q));
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	leak = fake_leaks ? fake_leaks() : NULL;
	printf("left: %s\n", leak ? leak : "nothing");
}

static void capture(void)
{
	enum { SIZE = 20000 };
	unsigned char *p, *q, *next, back[SIZE];
	CUstream s = new_stream(), other = new_stream();
	CUdeviceptr to = device_block(SIZE), to_other = device_block(SIZE);
	CUgraph graph;
	OK(cu.cuMemHostAlloc((void **)&p, SIZE, 0));
	OK(cu.cuMemHostAlloc((void **)&q, SIZE, 0));
	memset(q, 5, SIZE);
	slow_work(20000);
	OK(cu.cuMemcpyHtoDAsync_v2(to_other, q, SIZE, other));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemcpyHtoDAsync_v2(to, p, SIZE, s));
	OK(cu.cuMemFreeHost(q));
	OK(cu.cuStreamEndCapture(s, &graph));
	for (int i = 0; i < 10; i++) {
		OK(cu.cuMemHostAlloc((void **)&next, SIZE, 0));
		memset(next, 6, SIZE);
		OK(cu.cuMemFreeHost(next));
	}
	OK(cu.cuMemcpyDtoHAsync_v2(back, to_other, SIZE, other));
	OK(cu.cuStreamSynchronize(other));
	printf("copied %d %d\n", back[0], back[SIZE - 1]);
	OK(cu.cuGraphDestroy(graph));
	OK(cu.cuMemFreeHost(p));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	first = start_cuda();
	if (!strcmp(what, "results"))
		results();
	else if (!strcmp(what, "copies"))
		copies();
	else if (!strcmp(what, "threads"))
		threads();
	else if (!strcmp(what, "contexts"))
		contexts();
	else if (!strcmp(what, "capture"))
		capture();
	else
		return 2;
	return 0;
}
