/* SPDX-License-Identifier: MIT
 *
 * What a pair of cuMemAllocAsync and cuMemFreeAsync costs in a program under Cleave, on the test double, and how many calls of
 * the driver it makes: of a size again and again, and in a step as that of a model's layer, which frees some blocks of a size
 * before it asks for them again. What the double itself takes for its part of that is measured beside it.
 */
#include "graphs_rig.h"

#define SLICES 60
#define SLICE 2000 /* pairs */
#define WARM_UP 4  /* slices: by then the heap is at rest */

static const size_t sizes[] = {1024, 64 * 1024, 3 * MIB, 64 * MIB};

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static long driver_calls(void)
{
	static const char *const names[] = {"cuStreamGetId",   "cuCtxGetCurrent",    "cuEventRecord",
					    "cuEventQuery",    "cuStreamWaitEvent",  "cuMemMap",
					    "cuMemAllocAsync", "cuMemFreeAsync",     "cuMemCreate",
					    "cuMemGetInfo_v2", "cuStreamIsCapturing"};
	long sum = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		sum += fake.calls(names[i]);
	return sum;
}

struct work {
	CUstream stream;
	size_t size;
};

/* An assertion of Check's costs more than what is measured: what went wrong is added up. */
static unsigned failed;

static inline CUdeviceptr take(const struct work *w, size_t size)
{
	CUdeviceptr p = 0;
	failed += cu.cuMemAllocAsync(&p, size, w->stream) != CUDA_SUCCESS;
	return p;
}

static inline void put_back(const struct work *w, CUdeviceptr p)
{
	failed += cu.cuMemFreeAsync(p, w->stream) != CUDA_SUCCESS;
}

static void same_size(const struct work *w)
{
	for (int i = 0; i < SLICE; i++)
		put_back(w, take(w, w->size));
}

/* Eight blocks of four sizes from w->size on, two of each, are alive at a time. */
static void step(const struct work *w)
{
	CUdeviceptr p[8];
	for (int i = 0; i < SLICE / 8; i++) {
		for (size_t k = 0; k < 8; k++)
			p[k] = take(w, w->size + k % 4 * 8192);
		for (size_t k = 0; k < 8; k++)
			put_back(w, p[k]);
	}
}

static void ids_only(const struct work *w)
{
	CUresult (*ask)(CUstream, unsigned long long *) = (void *)fake.function("cuStreamGetId");
	unsigned long long id;
	for (int i = 0; i < 2 * SLICE; i++)
		failed += ask(w->stream, &id) != CUDA_SUCCESS;
}

static void measure(const char *what, void (*fn)(const struct work *), CUstream stream, size_t size)
{
	struct work w = {stream, size};
	double best = 1e12;
	failed = 0;
	for (int i = 0; i < WARM_UP; i++)
		fn(&w);
	long before = driver_calls();
	for (int i = 0; i < SLICES; i++) {
		double begin = now_ns();
		fn(&w);
		double took = (now_ns() - begin) / SLICE;
		best = took < best ? took : best;
	}
	ck_assert_uint_eq(failed, 0);
	printf("%-20s %6zu KiB  %7.1f ns a pair, %.2f calls of the driver\n", what, size / 1024, best,
	       (double)(driver_calls() - before) / SLICES / SLICE);
}

START_TEST(pairs)
{
	CUstream s = start("2GiB");
	measure("two ids", ids_only, s, 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		measure("a stream", same_size, s, sizes[i]);
		measure("the default stream", same_size, NULL, sizes[i]);
		measure("a step", step, s, sizes[i]);
	}
}
END_TEST

CHECK_MAIN("bench_alloc", pairs)
