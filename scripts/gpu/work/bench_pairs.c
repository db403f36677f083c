/* SPDX-License-Identifier: MIT
 *
 * bench_pairs: nanoseconds of a cuMemAllocAsync and its cuMemFreeAsync on one stream, for some sizes. For each line `go` on
 * stdin it measures once and prints a line; the conductor compares processes with and without Cleave side by side.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

#include "program.h"

#define PAIRS 20000

static const size_t sizes[] = {512, 65536, 3u << 20, 64u << 20};

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double measure(size_t size, CUstream stream, int pairs)
{
	double begin = now_ns();

	for (int n = 0; n < pairs; n++) {
		CUdeviceptr address;

		CALL(cuMemAllocAsync, &address, size, stream);
		CALL(cuMemFreeAsync, address, stream);
	}
	return (now_ns() - begin) / pairs;
}

/* Processors are not equally fast: the last one, as for the process that this is compared with. */
static void one_processor(void)
{
	cpu_set_t allowed, one;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	for (int n = CPU_SETSIZE - 1; n >= 0; n--)
		if (CPU_ISSET(n, &allowed)) {
			CPU_ZERO(&one);
			CPU_SET(n, &one);
			sched_setaffinity(0, sizeof(one), &one);
			return;
		}
}

int main(void)
{
	const cuuint64_t keep = UINT64_MAX;
	CUmemoryPool pool;
	CUcontext context;
	CUdevice device;
	CUstream stream;
	char line[64];

	one_processor();
	load_cuda();
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &device, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, device);
	CALL(cuCtxSetCurrent, context);
	CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	/* As PyTorch does, so that the driver's pool keeps what it has. */
	CALL(cuDeviceGetDefaultMemPool, &pool, device);
	CALL(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (void *)&keep);
	for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++)
		measure(sizes[n], stream, 1000);
	puts("READY");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "go\n") == 0) {
		fputs("ROUND {", stdout);
		for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++)
			printf("%s\"%zu\": %.1f", n ? ", " : "", sizes[n], measure(sizes[n], stream, PAIRS));
		puts("}");
		fflush(stdout);
	}
	CALL(cuStreamSynchronize, stream);
	printf("RESULT {\"preloaded\": %s}\n", preloaded() ? "true" : "false");
	return 0;
}
