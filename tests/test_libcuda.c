/* SPDX-License-Identifier: MIT
 *
 * The test double of libcuda.so.1 behaves as the real one was seen to, or is documented: devices, contexts,
 * streams and events, kernels, cuGetProcAddress. (Memory: test_libcuda_memory.c; captures and graphs:
 * test_libcuda_graphs.c; several processes: test_libcuda_ipc.c.)
 */
#include "check_main.h"
#include "fakecuda_open.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

START_TEST(nothing_works_before_init)
{
	CUcontext ctx;
	CUdeviceptr p;
	int n;
	open_cuda();
	OK(cu.cuDriverGetVersion(&n));
	ck_assert_int_eq(n, 13000);
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&n));
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cu.cuCtxGetCurrent(&ctx));
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cu.cuMemAlloc_v2(&p, 512));
	OK(cu.cuInit(0));
	OK(cu.cuDeviceGetCount(&n));
	ck_assert_int_eq(n, 1);
	OK(cu.cuCtxGetCurrent(&ctx));
	ck_assert_ptr_null(ctx);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAlloc_v2(&p, 512));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAllocAsync(&p, 512, NULL));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPopCurrent_v2(&ctx));
	ck_assert_int_eq(fake.calls("cuMemAlloc_v2"), 2);
	ck_assert_int_eq(fake.calls("cuNone"), -1);
}
END_TEST

START_TEST(no_device)
{
	setenv("FAKE_CUDA_DEVICES", "0", 1);
	open_cuda();
	FAILS(CUDA_ERROR_NO_DEVICE, cu.cuInit(0));
}
END_TEST

START_TEST(devices)
{
	int n;
	size_t bytes;
	char name[32];
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	setenv("FAKE_CUDA_MEMORY", "64MiB", 1);
	start_cuda();
	OK(cu.cuDeviceTotalMem_v2(&bytes, 1));
	ck_assert_uint_eq(bytes, 64 * MIB);
	OK(cu.cuDeviceGetName(name, sizeof(name), 1));
	FAILS(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGet(&n, 2));
	OK(cu.cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1));
	ck_assert_int_eq(n, 1);
	OK(cu.cuDeviceCanAccessPeer(&n, 0, 1));
	ck_assert_int_eq(n, 1);
	OK(cu.cuDeviceCanAccessPeer(&n, 1, 1));
	ck_assert_int_eq(n, 0);
	fake.foreign(1, 40 * MIB);
	CUcontext ctx;
	size_t free_bytes;
	OK(cu.cuCtxCreate_v2(&ctx, 0, 1));
	OK(cu.cuMemGetInfo_v2(&free_bytes, &bytes));
	ck_assert_uint_eq(free_bytes, 24 * MIB);
	ck_assert_uint_eq(bytes, 64 * MIB);
}
END_TEST

START_TEST(no_vmm)
{
	int n;
	CUdeviceptr p;
	setenv("FAKE_CUDA_VMM", "0", 1);
	start_cuda();
	OK(cu.cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	ck_assert_int_eq(n, 0);
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	OK(cu.cuMemAlloc_v2(&p, 2 * MIB));
	OK(cu.cuMemFree_v2(p));
}
END_TEST

START_TEST(context_stack)
{
	CUcontext primary = start_cuda(), a, b, got;
	CUdevice d;
	OK(cu.cuCtxCreate_v2(&a, 0, 0)); /* is current at once */
	OK(cu.cuCtxGetCurrent(&got));
	ck_assert_ptr_eq(got, a);
	OK(cu.cuCtxPopCurrent_v2(&got));
	ck_assert_ptr_eq(got, a);
	OK(cu.cuCtxGetCurrent(&got));
	ck_assert_ptr_eq(got, primary);
	OK(cu.cuCtxPushCurrent_v2(a));
	OK(cu.cuCtxCreate_v2(&b, 0, 0));
	OK(cu.cuCtxSetCurrent(primary)); /* replaces the top */
	OK(cu.cuCtxPopCurrent_v2(&got));
	ck_assert_ptr_eq(got, primary);
	OK(cu.cuCtxGetCurrent(&got));
	ck_assert_ptr_eq(got, a);
	OK(cu.cuCtxDestroy_v2(b));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPushCurrent_v2(b));
	OK(cu.cuCtxDestroy_v2(a)); /* current: goes from the stack */
	OK(cu.cuCtxGetCurrent(&got));
	ck_assert_ptr_eq(got, primary);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxDestroy_v2(primary));
	OK(cu.cuCtxSetCurrent(NULL));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxGetDevice(&d));
}
END_TEST

START_TEST(primary_context)
{
	CUcontext ctx = start_cuda(), again;
	CUdeviceptr p;
	unsigned flags;
	int active;
	OK(cu.cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(again, ctx);
	OK(cu.cuMemAlloc_v2(&p, 2 * MIB));
	OK(cu.cuMemsetD8Async(p, 1, 2 * MIB, NULL));
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	ck_assert_uint_eq(fake.used(0), 2 * MIB);
	OK(cu.cuDevicePrimaryCtxReset_v2(0));
	OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	ck_assert_uint_eq(fake.used(0), 0); /* its memory went with it */
	FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuMemAlloc_v2(&p, 512));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
	OK(cu.cuDevicePrimaryCtxRetain(&again, 0));
	OK(cu.cuCtxSetCurrent(again));
	OK(cu.cuMemAlloc_v2(&p, 512));
	OK(cu.cuMemFree_v2(p));
}
END_TEST

START_TEST(streams_run_in_order_and_beside_each_other)
{
	CUdeviceptr p;
	struct gate g = {0};
	start_cuda();
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent e = new_event(), never = new_event();
	OK(cu.cuMemAlloc_v2(&p, 2));
	OK(cu.cuMemsetD8_v2(p, 0, 2));
	OK(cu.cuCtxSynchronize());
	gate_on(a, &g);
	OK(cu.cuMemsetD8Async(p, 1, 1, a));
	OK(cu.cuEventRecord(e, a));
	OK(cu.cuMemsetD8Async(p + 1, 1, 1, b)); /* b is not held up */
	OK(cu.cuStreamSynchronize(b));
	OK(cu.cuEventQuery(never));
	OK(cu.cuEventSynchronize(never));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuEventQuery(e));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(a));
	OK(cu.cuStreamWaitEvent(b, e, 0)); /* now it is */
	OK(cu.cuMemsetD8Async(p, 2, 1, b));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(b));
	gate_open(&g);
	OK(cu.cuStreamSynchronize(b));
	OK(cu.cuEventQuery(e));
	ck_assert_int_eq(byte_at(p), 2);
	ck_assert_int_eq(byte_at(p + 1), 1);
	OK(cu.cuEventDestroy_v2(e));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventQuery(e));
}
END_TEST

START_TEST(legacy_stream_orders_blocking_ones)
{
	CUdeviceptr p;
	struct gate g = {0}, h = {0};
	start_cuda();
	CUstream a = new_stream(CU_STREAM_DEFAULT), n = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&p, 4));
	gate_on(a, &g);
	OK(cu.cuMemsetD8Async(p, 1, 1, NULL)); /* waits for a */
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(NULL));
	OK(cu.cuMemsetD8Async(p + 1, 1, 1, n));
	OK(cu.cuStreamSynchronize(n));
	gate_open(&g);
	OK(cu.cuStreamSynchronize(CU_STREAM_LEGACY));
	gate_on(CU_STREAM_LEGACY, &h);
	OK(cu.cuMemsetD8Async(p, 2, 1, a));                        /* waits for legacy */
	OK(cu.cuMemsetD8Async(p + 1, 3, 1, CU_STREAM_PER_THREAD)); /* so does this one, but not for the other */
	OK(cu.cuMemsetD8Async_ptsz(p + 1, 3, 1, NULL));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(a));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery_ptsz(NULL));
	OK(cu.cuStreamSynchronize(n));
	gate_open(&h);
	OK(cu.cuCtxSynchronize());
	OK(cu.cuStreamQuery(a));
}
END_TEST

static void *stream_id_of_thread(void *arg)
{
	unsigned long long id = 0;
	if (cu.cuCtxSetCurrent(arg) || cu.cuStreamGetId_ptsz(NULL, &id))
		return NULL;
	return (void *)(uintptr_t)id;
}

START_TEST(stream_names)
{
	CUcontext ctx = start_cuda(), got;
	unsigned long long legacy, legacy2, thread, thread2, first, second;
	pthread_t t;
	void *other;
	OK(cu.cuStreamGetId(NULL, &legacy));
	OK(cu.cuStreamGetId(CU_STREAM_LEGACY, &legacy2));
	ck_assert_uint_eq(legacy, legacy2);
	OK(cu.cuStreamGetId_ptsz(NULL, &thread));
	OK(cu.cuStreamGetId(CU_STREAM_PER_THREAD, &thread2));
	ck_assert_uint_eq(thread, thread2);
	ck_assert_uint_ne(thread, legacy);
	ck_assert_int_eq(pthread_create(&t, NULL, stream_id_of_thread, ctx), 0);
	pthread_join(t, &other);
	ck_assert_uint_ne((uintptr_t)other, 0);
	ck_assert_uint_ne((uintptr_t)other, thread);
	OK(cu.cuStreamGetCtx(NULL, &got));
	ck_assert_ptr_eq(got, ctx);
	CUstream a = new_stream(0), b;
	OK(cu.cuStreamGetId(a, &first));
	OK(cu.cuStreamDestroy_v2(a));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamQuery(a));
	b = new_stream(0);
	ck_assert_ptr_eq(a, b); /* the handle comes again, */
	OK(cu.cuStreamGetId(b, &second));
	ck_assert_uint_ne(first, second); /* the id does not */
	OK(cu.cuStreamDestroy_v2(b));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamDestroy_v2(CU_STREAM_LEGACY));
}
END_TEST

START_TEST(destroyed_stream_finishes_its_work)
{
	CUdeviceptr p;
	struct gate g = {0};
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent e = new_event();
	OK(cu.cuMemAlloc_v2(&p, 1));
	gate_on(s, &g);
	OK(cu.cuMemsetD8Async(p, 9, 1, s));
	OK(cu.cuEventRecord(e, s));
	OK(cu.cuStreamDestroy_v2(s));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuEventQuery(e));
	gate_open(&g);
	OK(cu.cuEventSynchronize(e));
	ck_assert_int_eq(byte_at(p), 9);
	OK(cu.cuEventDestroy_v2(e));
	OK(cu.cuMemFree_v2(p));
	ck_assert_ptr_null(fake.leaks());
}
END_TEST

static void call_back(void *arg)
{
	CUdeviceptr p;
	*(int *)arg = cu.cuMemAlloc_v2(&p, 1);
}

START_TEST(callbacks_must_not_call)
{
	int result = -1;
	start_cuda();
	OK(cu.cuLaunchHostFunc(NULL, call_back, &result));
	OK(cu.cuCtxSynchronize());
	ck_assert_int_eq(result, CUDA_ERROR_NOT_PERMITTED);
}
END_TEST

START_TEST(other_contexts_events)
{
	CUcontext a = start_cuda(), b;
	CUevent e = new_event();
	OK(cu.cuCtxCreate_v2(&b, 0, 0));
	CUstream s = new_stream(0);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventRecord(e, s));
	CUevent f = new_event();
	OK(cu.cuEventRecord(f, s));
	OK(cu.cuCtxSetCurrent(a));
	OK(cu.cuStreamWaitEvent(NULL, f, 0));
	OK(cu.cuCtxDestroy_v2(b));
	FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuEventQuery(f));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamQuery(s));
	FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuEventDestroy_v2(f));
}
END_TEST

START_TEST(proc_addresses)
{
	void *p;
	CUdriverProcAddressQueryResult status;
	open_cuda();
	OK(cu.cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, &status));
	ck_assert_ptr_eq(p, (void *)cu.cuMemAlloc_v2);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cu.cuGetProcAddress_v2("cuMemAllocAsync", &p, 11020, 0, NULL));
	ck_assert_ptr_eq(p, (void *)cu.cuMemAllocAsync);
	OK(cu.cuGetProcAddress_v2("cuMemAllocAsync", &p, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	ck_assert_ptr_eq(p, (void *)cu.cuMemAllocAsync_ptsz);
	OK(cu.cuGetProcAddress_v2("cuMemAlloc", &p, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	ck_assert_ptr_eq(p, (void *)cu.cuMemAlloc_v2);
	OK(cu.cuGetProcAddress_v2("cuMemAllocAsync", &p, 11010, 0, &status));
	ck_assert_ptr_null(p);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	OK(cu.cuGetProcAddress_v2("cuNothing", &p, 12000, 0, &status));
	ck_assert_ptr_null(p);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(cu.cuGetProcAddress_v2("cuMemAlloc_v2", &p, 12000, 0, &status)); /* not the base name */
	ck_assert_ptr_null(p);
	OK(cu.cuGetProcAddress("cuGetProcAddress", &p, 11030, 0));
	ck_assert_ptr_eq(p, (void *)cu.cuGetProcAddress);
	OK(cu.cuGetProcAddress("cuGetProcAddress", &p, 12000, 0));
	ck_assert_ptr_eq(p, (void *)cu.cuGetProcAddress_v2);
	OK(cu.cuGetProcAddress("cuStreamGetCaptureInfo", &p, 12020, 2));
	ck_assert_ptr_eq(p, (void *)cu.cuStreamGetCaptureInfo_v2_ptsz);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuGetProcAddress(NULL, &p, 12000, 0));
}
END_TEST

START_TEST(older_driver)
{
	void *p;
	int v;
	setenv("FAKE_CUDA_VERSION", "11040", 1);
	open_cuda();
	OK(cu.cuDriverGetVersion(&v));
	ck_assert_int_eq(v, 11040);
	FAILS(CUDA_ERROR_NOT_FOUND, cu.cuGetProcAddress("cuStreamGetId", &p, 13000, 0));
	ck_assert_ptr_null(p);
	OK(cu.cuGetProcAddress("cuGetProcAddress", &p, 13000, 0));
	ck_assert_ptr_eq(p, (void *)cu.cuGetProcAddress);
}
END_TEST

START_TEST(chosen_failures_and_log)
{
	char path[] = "/tmp/fakecuda-XXXXXX", line[256];
	CUdeviceptr p;
	int fd = mkstemp(path), failed = 0, lines = 0;
	ck_assert_int_ge(fd, 0);
	setenv("FAKE_CUDA_LOG", path, 1);
	setenv("FAKE_CUDA_FAIL", "cuMemAlloc_v2:2,cuEventCreate:1+:999", 1);
	start_cuda();
	CUevent e;
	OK(cu.cuMemAlloc_v2(&p, MIB));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&p, MIB));
	OK(cu.cuMemAlloc_v2(&p, MIB));
	FAILS(CUDA_ERROR_UNKNOWN, cu.cuEventCreate(&e, 0));
	FAILS(CUDA_ERROR_UNKNOWN, cu.cuEventCreate(&e, 0));
	fake.set_failures(NULL);
	OK(cu.cuEventCreate(&e, 0));
	FILE *f = fdopen(fd, "r");
	while (fgets(line, sizeof(line), f)) {
		lines += strstr(line, " cuMemAlloc_v2 ") != NULL;
		failed += strstr(line, " cuMemAlloc_v2 2") != NULL;
	}
	fclose(f);
	unlink(path);
	ck_assert_int_eq(lines, 3);
	ck_assert_int_eq(failed, 1);
}
END_TEST

START_TEST(after_fork)
{
	start_cuda();
	CUdeviceptr p;
	int status;
	pid_t child = fork();
	if (!child) {
		CUdeviceptr q;
		_exit(cu.cuMemAlloc_v2(&q, 1) == CUDA_ERROR_NOT_INITIALIZED &&
				      cu.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
			      ? 0
			      : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
	OK(cu.cuMemAlloc_v2(&p, 1));
}
END_TEST

START_TEST(kernels)
{
	CUmodule m;
	CUfunction fill, differ;
	CUdeviceptr p, count;
	unsigned value = 5, found;
	size_t words = 1024;
	start_cuda();
	OK(cu.cuMemAlloc_v2(&p, 4096));
	OK(cu.cuMemAlloc_v2(&count, 4));
	OK(cu.cuMemsetD8_v2(count, 0, 4));
	OK(cu.cuModuleLoadData(&m, "image"));
	OK(cu.cuModuleGetFunction(&fill, m, "fill32"));
	OK(cu.cuModuleGetFunction(&differ, m, "differ32"));
	FAILS(CUDA_ERROR_NOT_FOUND, cu.cuModuleGetFunction(&fill, m, "none"));
	void *args[] = {&p, &value, &words, &count};
	OK(cu.cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
	OK(cu.cuMemsetD8Async(p + 100, 0, 8, NULL));
	OK(cu.cuLaunchKernel(differ, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
	OK(cu.cuMemcpyDtoH_v2(&found, count, 4));
	ck_assert_uint_eq(found, 2);
}
END_TEST

/* Many threads, streams and events: for the sanitizers, above all. */
static CUcontext shared_context;
static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	cu.cuCtxSetCurrent(shared_context);
	CUstream s[2];
	CUevent e;
	cu.cuEventCreate(&e, 2);
	for (int i = 0; i < 2; i++)
		cu.cuStreamCreate(&s[i], i);
	for (int i = 0; i < 60; i++) {
		CUdeviceptr p;
		unsigned char want = (unsigned char)(seed + (unsigned)i), got = 0;
		size_t size = 1 + (size_t)(seed * 7919u + (unsigned)i * 104729u) % (64 * 1024);
		CUstream a = s[i & 1], b = s[(i >> 1) & 1];
		if (cu.cuMemAllocAsync(&p, size, a) || cu.cuMemsetD8Async(p, want, size, a) || cu.cuEventRecord(e, a) ||
		    cu.cuStreamWaitEvent(b, e, 0) || cu.cuMemcpyDtoHAsync_v2(&got, p + size - 1, 1, b) ||
		    cu.cuMemFreeAsync(p, b) || got != want)
			return "wrong";
	}
	for (int i = 0; i < 2; i++)
		cu.cuStreamDestroy_v2(s[i]);
	cu.cuEventDestroy_v2(e);
	return NULL;
}

START_TEST(threads)
{
	pthread_t t[4];
	void *bad;
	shared_context = start_cuda();
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, churn, (void *)(i * 50)), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &bad);
		ck_assert_ptr_null(bad);
	}
	OK(cu.cuCtxSynchronize());
	ck_assert_ptr_null(fake.leaks());
}
END_TEST

CHECK_MAIN("libcuda", nothing_works_before_init, no_device, devices, no_vmm, context_stack, primary_context,
	   streams_run_in_order_and_beside_each_other, legacy_stream_orders_blocking_ones, stream_names,
	   destroyed_stream_finishes_its_work, callbacks_must_not_call, other_contexts_events, proc_addresses,
	   older_driver, chosen_failures_and_log, after_fork, kernels, threads)
