/* SPDX-License-Identifier: MIT
 *
 * fakecuda_open: the test double of libcuda.so.1 as a table of functions, for Check programs. The library named by
 * CLEAVE_LIBCUDA is opened by open_cuda(), in each test anew (each is a process of its own), after which `cu` and `fake`
 * hold its functions.
 */
#ifndef CLV_FAKECUDA_OPEN_H
#define CLV_FAKECUDA_OPEN_H

#include "../src/driver/cuda_calls.h"
#include "libcuda/fakecuda.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static struct clv_cuda_api cu;
static void *cuda_lib;
static struct {
	fakecuda_calls_fn *calls;
	fakecuda_function_fn *function;
	fakecuda_used_fn *used, *used_peak;
	fakecuda_foreign_fn *foreign;
	fakecuda_faults_fn *faults;
	fakecuda_delay_fn *delay;
	fakecuda_fail_fn *set_failures; /* `fail` is a macro of Check's */
	fakecuda_leaks_fn *leaks;
} fake;

#define OK(call) ck_assert_int_eq((call), CUDA_SUCCESS)
#define FAILS(code, call) ck_assert_int_eq((call), (code))

static void *cuda_symbol(const char *name)
{
	void *p = dlsym(cuda_lib, name);
	ck_assert_msg(p != NULL, "%s: %s", name, dlerror());
	return p;
}

static void open_cuda(void)
{
	const char *path = getenv("CLEAVE_LIBCUDA");
	cuda_lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(cuda_lib != NULL, "%s", dlerror());
#define X(name, params) *(void **)&cu.name = cuda_symbol(#name);
#define Y(name, params) X(name, params) X(name##_ptsz, params)
	CLV_CUDA_CALLS(X, Y)
#undef X
#undef Y
#define X(name) *(void **)&fake.name = cuda_symbol("fakecuda_" #name);
	X(calls) X(function) X(used) X(used_peak) X(foreign) X(faults) X(delay) X(leaks)
#undef X
		* (void **)&fake.set_failures = cuda_symbol("fakecuda_fail");
}

/* Opened, initialized, and the primary context of device 0 current. */
static CUcontext start_cuda(void)
{
	CUcontext ctx;
	open_cuda();
	OK(cu.cuInit(0));
	OK(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cu.cuCtxSetCurrent(ctx));
	return ctx;
}

static inline CUstream new_stream(unsigned flags)
{
	CUstream s;
	OK(cu.cuStreamCreate(&s, flags));
	return s;
}

static inline CUevent new_event(void)
{
	CUevent e;
	OK(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	return e;
}

static inline CUmemAllocationProp frame_of_device(int device)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static inline void give_access(CUdeviceptr at, size_t size, int device)
{
	CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	OK(cu.cuMemSetAccess(at, size, &desc, 1));
}

/* The byte of device memory there. */
static inline int byte_at(CUdeviceptr at)
{
	unsigned char b;
	OK(cu.cuMemcpyDtoH_v2(&b, at, 1));
	return b;
}

/* A host function that holds its stream until it is let go. */
struct gate {
	int open; /* atomic */
};

#include <time.h>
static void gate_wait(void *arg)
{
	struct gate *g = arg;
	while (!__atomic_load_n(&g->open, __ATOMIC_ACQUIRE))
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static inline void gate_open(struct gate *g)
{
	__atomic_store_n(&g->open, 1, __ATOMIC_RELEASE);
}

static inline void gate_on(CUstream s, struct gate *g)
{
	OK(cu.cuLaunchHostFunc(s, gate_wait, g));
}

#endif
