/* SPDX-License-Identifier: MIT
 *
 * graphs_rig: what the tests of memory in captures share: short names for the calls, a stream, graphs with contents that
 * can be checked.
 */
#ifndef CLV_GRAPHS_RIG_H
#define CLV_GRAPHS_RIG_H

#include "../check_main.h"
#include "../fakecuda_open.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define WORDS(bytes) ((bytes) / 4)

static CUmemoryPool pool;

static inline bool under(void)
{
	return getenv("CLEAVE_UNDER") != NULL;
}

static inline CUstream start(const char *memory)
{
	setenv("FAKE_CUDA_MEMORY", memory, 1);
	start_cuda();
	OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	return new_stream(CU_STREAM_NON_BLOCKING);
}

static inline CUdeviceptr get(CUstream s, size_t size)
{
	CUdeviceptr p = 0;
	OK(cu.cuMemAllocAsync(&p, size, s));
	return p;
}

static inline void give(CUstream s, CUdeviceptr p)
{
	OK(cu.cuMemFreeAsync(p, s));
}

static inline void fill(CUstream s, CUdeviceptr p, size_t size, unsigned value)
{
	OK(cu.cuMemsetD32Async(p, value, WORDS(size), s));
}

static inline void copy(CUstream s, CUdeviceptr to, CUdeviceptr from, size_t size)
{
	OK(cu.cuMemcpyDtoDAsync_v2(to, from, size, s));
}

/* All words of a block have the value. */
static inline void holds(CUstream s, CUdeviceptr p, size_t size, unsigned value)
{
	unsigned *words = malloc(size);
	OK(cu.cuMemcpyDtoHAsync_v2(words, p, size, s));
	OK(cu.cuStreamSynchronize(s));
	for (size_t i = 0; i < WORDS(size); i++)
		if (words[i] != value)
			ck_abort_msg("word %zu of %#llx is %u, not %u", i, p, words[i], value);
	free(words);
}

static inline bool apart(CUdeviceptr a, size_t a_size, CUdeviceptr b, size_t b_size)
{
	return a + a_size <= b || b + b_size <= a;
}

static inline void begin(CUstream s)
{
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static inline CUgraph end(CUstream s)
{
	CUgraph g = NULL;
	OK(cu.cuStreamEndCapture(s, &g));
	ck_assert_ptr_nonnull(g);
	return g;
}

static inline CUgraphExec instance(CUgraph g)
{
	CUgraphExec x = NULL;
	OK(cu.cuGraphInstantiateWithFlags(&x, g, 0));
	return x;
}

static inline CUgraphExec end_to_exec(CUstream s)
{
	CUgraph g = end(s);
	CUgraphExec x = instance(g);
	OK(cu.cuGraphDestroy(g));
	return x;
}

static inline void launch(CUgraphExec x, CUstream s)
{
	OK(cu.cuGraphLaunch(x, s));
}

static inline uint64_t attribute(CUmemPool_attribute a)
{
	cuuint64_t v = 0;
	OK(cu.cuMemPoolGetAttribute(pool, a, &v));
	return v;
}

/* Graphs are gone some time after they were destroyed. */
static inline bool comes_down_to(uint64_t bytes)
{
	for (int i = 0; i < 10000; i++) {
		OK(cu.cuMemPoolTrimTo(pool, 0));
		OK(cu.cuDeviceGraphMemTrim(0));
		if (fake.used(0) <= bytes)
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return false;
}

static inline void finish(void)
{
	OK(cu.cuCtxSynchronize());
	ck_assert_msg(comes_down_to(0), "%llu bytes are still held", (unsigned long long)fake.used(0));
	ck_assert_uint_eq(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_assert_int_eq(fake.faults(), 0);
}

struct job {
	CUgraphExec exec;
	CUdeviceptr temp, out;
	unsigned value;
};

#define JOB_BYTES (64 * 1024)

static inline struct job make_job(CUstream s, unsigned value)
{
	struct job j = {.value = value, .out = get(s, JOB_BYTES)};
	begin(s);
	j.temp = get(s, JOB_BYTES);
	fill(s, j.temp, JOB_BYTES, value);
	copy(s, j.out, j.temp, JOB_BYTES / 2);
	copy(s, j.out + JOB_BYTES / 2, j.temp + JOB_BYTES / 2, JOB_BYTES / 2);
	give(s, j.temp);
	j.exec = end_to_exec(s);
	return j;
}

#endif
