/* SPDX-License-Identifier: MIT
 *
 * launch_cost: microseconds of a graph's launch on the default stream as programs call it, and by the driver's own function,
 * in turn in one process: two processes differ by more than what is looked for. The graph has memory that was allocated in
 * its capture. Prints a line RESULT.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

#define NODES 4 /* a launch that is done before the next, so that the queue is never full */
#define LAUNCHES 50 /* fewer than the driver queues */
#define ROUNDS 400

typedef CUresult launch_fn(CUgraphExec exec, CUstream stream);

struct search {
	const char *library, *name;
	void *found;
};

/* The driver's function, which dlsym may not say: as the library's own table has it. */
static int look_into(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	const uint32_t *hash = NULL;

	(void)size;
	if (!strstr(info->dlpi_name, s->library))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type != PT_DYNAMIC)
			continue;
		for (const ElfW(Dyn) *d = (const void *)(info->dlpi_addr + header->p_vaddr); d->d_tag != DT_NULL; d++) {
			if (d->d_tag == DT_SYMTAB)
				symbols = (const void *)d->d_un.d_ptr;
			else if (d->d_tag == DT_STRTAB)
				strings = (const void *)d->d_un.d_ptr;
			else if (d->d_tag == DT_GNU_HASH)
				hash = (const void *)d->d_un.d_ptr;
		}
	}
	if (!symbols || !strings || !hash)
		return 0;
	/* the GNU hash table: counts, a filter, a first symbol for each bucket, and chains whose last entry is odd */
	uint32_t buckets = hash[0], first = hash[1], filters = hash[2], h = 5381;
	const uint32_t *bucket = hash + 4 + filters * (sizeof(ElfW(Addr)) / sizeof(uint32_t)), *chain = bucket + buckets;

	for (const char *c = s->name; *c; c++)
		h = h * 33 + (unsigned char)*c;
	for (uint32_t i = bucket[h % buckets]; i >= first; i++) {
		if ((chain[i - first] | 1) == (h | 1) && !strcmp(strings + symbols[i].st_name, s->name))
			s->found = (void *)(info->dlpi_addr + symbols[i].st_value);
		if (s->found || chain[i - first] & 1)
			break;
	}
	return s->found != NULL;
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double measure(launch_fn *launch, CUgraphExec exec)
{
	CALL(cuCtxSynchronize);
	double begin = now_us();

	for (int n = 0; n < LAUNCHES; n++)
		must_succeed(launch(exec, NULL), "cuGraphLaunch", __FILE__, __LINE__);
	return (now_us() - begin) / LAUNCHES;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), ascending);
	return values[ROUNDS / 2];
}

int main(void)
{
	static double hooked[ROUNDS], own[ROUNDS];
	struct search driver = {.library = "libcuda.so", .name = "cuGraphLaunch"};
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr block;
	cpu_set_t last;

	load_cuda();
	dl_iterate_phdr(look_into, &driver);
	if (!driver.found)
		fail("the driver has no cuGraphLaunch");
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &device, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, device);
	CALL(cuCtxSetCurrent, context);
	CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	CALL(cuMemAllocAsync, &block, 1 << 20, stream);
	for (int n = 0; n < NODES; n++)
		CALL(cuMemsetD8Async, block, (unsigned char)n, 4096, stream);
	CALL(cuMemFreeAsync, block, stream);
	CALL(cuStreamEndCapture, stream, &graph);
	CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
	/* processors are not equally fast */
	CPU_ZERO(&last);
	CPU_SET((int)sysconf(_SC_NPROCESSORS_ONLN) - 1, &last);
	sched_setaffinity(0, sizeof(last), &last);
	launch_fn *both[] = {cuda.cuGraphLaunch, (launch_fn *)driver.found};

	for (int n = 0; n < ROUNDS; n++)
		for (int k = 0; k < 2; k++) {
			bool direct = (n + k) % 2;

			(direct ? own : hooked)[n] = measure(both[direct], exec);
		}
	double hooked_us = median(hooked), own_us = median(own);

	printf("RESULT {\"preloaded\": %s, \"hooked\": %s, \"launch_us\": %.4f, \"driver_us\": %.4f}\n",
	       preloaded() ? "true" : "false", both[0] != both[1] ? "true" : "false", hooked_us, own_us);
	CALL(cuGraphExecDestroy, exec);
	CALL(cuGraphDestroy, graph);
	return 0;
}
