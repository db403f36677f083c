/* SPDX-License-Identifier: MIT
 *
 * What programs seldom do: contexts that are not destroyed, memory freed by another call or in another context than it was
 * allocated, launches that are out of memory, and nobody who reads what is said on stderr.
 */
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "../libcuda/fakecuda.h"

#define BYTES ((size_t)4 << 20)

static CUdeviceptr filled(uint8_t byte, size_t size)
{
	CUdeviceptr ptr;
	GPU(cu.cuMemAlloc_v2(&ptr, size));
	gpu_fill(ptr, size, byte, NULL);
	return ptr;
}

/* The driver does not destroy a primary context, and what is in it stays. */
static void primary(CUcontext context)
{
	CUdeviceptr ptr = filled(9, BYTES);
	GPU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxDestroy_v2(context));
	CUdeviceptr other = filled(8, BYTES);
	gpu_check(ptr, BYTES, 9, NULL);
	GPU(cu.cuMemFree_v2(ptr));
	GPU(cu.cuMemFree_v2(other));
}

/* A free waits for the work of the block's context, not of the one that is current. */
static void other_context(CUcontext first)
{
	CUcontext second;
	CUstream stream;
	GPU(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUdeviceptr ptr = filled(1, BYTES);
	for (uint8_t i = 0; i < 5; i++)
		gpu_fill(ptr, BYTES, i, stream);
	GPU(cu.cuCtxCreate_v2(&second, 0, 0));
	CUdeviceptr small = filled(2, 512);
	GPU(cu.cuMemFree_v2(ptr));
	ptr = filled(77, BYTES);
	GPU(cu.cuCtxSynchronize());
	GPU(cu.cuCtxSetCurrent(first));
	GPU(cu.cuStreamSynchronize(stream));
	GPU(cu.cuCtxSetCurrent(second));
	gpu_check(ptr, BYTES, 77, NULL);
	GPU(cu.cuMemFree_v2(ptr));
	GPU(cu.cuMemFree_v2(small));
	GPU(cu.cuCtxDestroy_v2(second));
	GPU(cu.cuCtxSetCurrent(first));
	GPU(cu.cuStreamDestroy_v2(stream));
}

/* A block that was freed on a stream does not go once more with its context. */
static void freed_on_a_stream(CUcontext first)
{
	CUcontext second;
	CUdeviceptr ptr;
	GPU(cu.cuCtxCreate_v2(&second, 0, 0));
	GPU(cu.cuMemAlloc_v2(&ptr, BYTES));
	GPU(cu.cuMemFreeAsync(ptr, NULL));
	GPU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(ptr));
	GPU(cu.cuCtxSynchronize());
	GPU(cu.cuCtxSetCurrent(first));
	ptr = filled(5, BYTES);
	GPU(cu.cuCtxDestroy_v2(second));
	GPU(cu.cuCtxSetCurrent(first));
	CUdeviceptr other = filled(6, BYTES);
	gpu_check(ptr, BYTES, 5, NULL);
	GPU(cu.cuMemFree_v2(ptr));
	GPU(cu.cuMemFree_v2(other));
}

static void many(void)
{
	static CUdeviceptr blocks[20000];
	for (size_t i = 0; i < CLV_ARRAY_LEN(blocks); i++)
		GPU(cu.cuMemAlloc_v2(&blocks[i], 512));
	for (size_t i = 0; i < CLV_ARRAY_LEN(blocks); i++)
		GPU(cu.cuMemFree_v2(blocks[i]));
}

static CUgraphExec graph(CUstream stream)
{
	CUgraph made;
	CUgraphExec exec;
	CUdeviceptr ptr;
	GPU(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	GPU(cu.cuMemAllocAsync(&ptr, 1 << 20, stream));
	gpu_fill(ptr, 1 << 20, 1, stream);
	GPU(cu.cuMemFreeAsync(ptr, stream));
	GPU(cu.cuStreamEndCapture(stream, &made));
	GPU(cu.cuGraphInstantiateWithFlags(&exec, made, 0));
	GPU(cu.cuGraphDestroy(made));
	return exec;
}

/* A launch that is out of memory while an executable which is destroyed still runs. */
static void launches(void)
{
	CUstream stream;
	GPU(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUgraphExec first = graph(stream), second = graph(stream);
	GPU(cu.cuGraphLaunch(first, stream));
	GPU(cu.cuGraphLaunch(second, stream));
	GPU(cu.cuGraphExecDestroy(first));
	fakecuda_fail_fn *fail = (fakecuda_fail_fn *)dlsym(RTLD_DEFAULT, "fakecuda_fail");
	if (fail) {
		fail("cuGraphLaunch:1");
		CUresult r = cu.cuGraphLaunch(second, stream); /* is made again if there is anything to give back */
		GPU_TRUE(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
		fail("");
	}
	GPU(cu.cuGraphLaunch(second, stream));
	GPU(cu.cuStreamSynchronize(stream));
	GPU(cu.cuGraphExecDestroy(second));
	GPU(cu.cuStreamDestroy_v2(stream));
}

static CUcontext of_threads;

static void *short_thread(void *arg)
{
	CUdeviceptr ptr;
	GPU(cu.cuCtxSetCurrent(of_threads));
	GPU(cu.cuMemAllocAsync(&ptr, 1 << 16, CU_STREAM_PER_THREAD));
	gpu_fill(ptr, 1 << 16, 1, CU_STREAM_PER_THREAD);
	GPU(cu.cuMemFreeAsync(ptr, CU_STREAM_PER_THREAD));
	GPU(cu.cuStreamSynchronize(CU_STREAM_PER_THREAD));
	return arg;
}

static void run_threads(int count)
{
	for (int i = 0; i < count; i++) {
		pthread_t thread;
		GPU_TRUE(!pthread_create(&thread, NULL, short_thread, NULL) && !pthread_join(thread, NULL));
	}
}

static long resident(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	GPU_TRUE(f && fscanf(f, "%*d %ld", &pages) == 1);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

#ifdef __SANITIZE_ADDRESS__ /* whose runtime keeps what is freed for a while, and something of every thread */
#define SHORT_THREADS 200
#define LEFT_MOST (64l << 20)
#else
#define SHORT_THREADS 1500
#define LEFT_MOST (16l << 20)
#endif

/* Threads that come and go, each with a default stream of its own, leave nothing. */
static void short_threads(CUcontext context)
{
	fakecuda_delay_fn *delay = (fakecuda_delay_fn *)dlsym(RTLD_DEFAULT, "fakecuda_delay");
	if (delay) /* what waits for a slow device is not what is looked for */
		delay(0);
	of_threads = context;
	run_threads(100);
	long before = resident();
	run_threads(SHORT_THREADS);
	long more = resident() - before;
	if (more > LEFT_MOST)
		printf("%d threads left %ld MiB\n", SHORT_THREADS, more >> 20);
}

/* A program that writes nothing there is not ended by what we write. */
static void unread_stderr(void)
{
	int ends[2];
	int kept = dup(STDERR_FILENO);
	CUdeviceptr ptr;
	GPU_TRUE(kept >= 0 && !pipe(ends) && dup2(ends[1], STDERR_FILENO) >= 0);
	close(ends[0]);
	close(ends[1]);
	GPU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&ptr, (size_t)1 << 50, NULL));
	GPU_TRUE(dup2(kept, STDERR_FILENO) >= 0);
	close(kept);
}

int main(int argc, char **argv)
{
	CUcontext context;
	gpu_open(argc, argv);
	alarm(100);
	GPU(cu.cuCtxGetCurrent(&context));
	primary(context);
	other_context(context);
	freed_on_a_stream(context);
	many();
	launches();
	short_threads(context);
	unread_stderr();
	printf("done\n");
	return 0;
}
