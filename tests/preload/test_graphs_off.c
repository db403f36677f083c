/* SPDX-License-Identifier: MIT
 *
 * Captures under CLEAVE_CONF=graphs:off: what a capture allocates is the driver's, as without the library, and what is not
 * captured is ours. Each test holds without the library as well, where CLEAVE_UNDER does not say otherwise.
 */
#include "graphs_rig.h"

#define AUTO_FREE 1

static CUstream begin_off(const char *memory)
{
	setenv("CLEAVE_CONF", "graphs:off", 1);
	return start(memory);
}

static CUgraphExec auto_free(CUgraph g)
{
	CUgraphExec x = NULL;
	OK(cu.cuGraphInstantiateWithFlags(&x, g, AUTO_FREE));
	OK(cu.cuGraphDestroy(g));
	return x;
}

/* Nothing that was called so far has ended the capture. */
static void goes_on(CUstream s)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	OK(cu.cuStreamIsCapturing(s, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

static void quiet_end(void)
{
	OK(cu.cuCtxSynchronize());
	OK(cu.cuMemPoolTrimTo(pool, 0));
	OK(cu.cuDeviceGraphMemTrim(0));
	ck_assert_uint_eq(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_assert_uint_eq(fake.used(0), 0);
	ck_assert_int_eq(fake.faults(), 0);
	if (!under())
		ck_assert_ptr_null(fake.leaks());
}

/* ---- what is captured ---- */

START_TEST(captured_memory_is_the_drivers)
{
	CUstream s = begin_off("256MiB");
	CUdeviceptr in = get(s, 4096), x, y, z = 0;
	long calls = fake.calls("cuMemAllocAsync"), from_pool = fake.calls("cuMemAllocFromPoolAsync"),
	     frees = fake.calls("cuMemFreeAsync");
	begin(s);
	x = get(s, 4 * MIB);
	y = get(s, 4096);
	OK(cu.cuMemAllocFromPoolAsync(&z, 4 * MIB, pool, s));
	copy(s, x, in, 4096);
	copy(s, z, x, 4096);
	copy(s, y, z, 4096);
	give(s, x);
	give(s, z);
	ck_assert_int_eq(fake.calls("cuMemAllocAsync"), calls + 2);
	ck_assert_int_eq(fake.calls("cuMemAllocFromPoolAsync"), from_pool + 1);
	ck_assert_int_eq(fake.calls("cuMemFreeAsync"), frees + 2);
	CUgraphExec exec = auto_free(end(s));
	for (unsigned i = 1; i < 6; i++) {
		fill(s, in, 4096, i);
		launch(exec, s);
		holds(s, y, 4096, i);
	}
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(x, s)); /* the graph frees it itself */
	give(s, y);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(y, s));
	launch(exec, s);
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuMemFree_v2(y));
	launch(exec, s);
	OK(cu.cuGraphExecDestroy(exec));
	holds(s, y, 4096, 5); /* outlives its graph */
	give(s, y);
	give(s, in);
	OK(cu.cuStreamDestroy_v2(s));
	quiet_end();
}
END_TEST

/* Before a launch has allocated it the driver frees nothing, and says so. PyTorch makes of that an exception in a destructor,
 * and ends the process. */
START_TEST(a_result_before_its_launch)
{
	CUstream s = begin_off("256MiB");
	for (int destroyed = 0; destroyed < 2; destroyed++) {
		begin(s);
		CUdeviceptr y = get(s, 4096);
		fill(s, y, 4096, 8);
		CUgraphExec x = auto_free(end(s));
		FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(y, s));
		FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(y));
		if (!destroyed) {
			launch(x, s);
			give(s, y);
		}
		OK(cu.cuGraphExecDestroy(x));
		FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(y, s));
	}
	OK(cu.cuStreamDestroy_v2(s));
	quiet_end();
}
END_TEST

/* ---- what is not ---- */

/* The driver refuses it, and the capture goes on. PyTorch waits with such frees until the capture is over. */
START_TEST(our_memory_in_a_capture)
{
	CUstream s = begin_off("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr small = get(s, 700), large = get(s, 5 * MIB), of_t = get(t, 3000), c;
	CUevent fork = new_event(), join = new_event();
	begin(s);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(small, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(large, s));
	OK(cu.cuEventRecord(fork, s));
	OK(cu.cuStreamWaitEvent(t, fork, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(of_t, t));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(of_t + 512, t));
	c = get(t, MIB);
	fill(t, c, MIB, 3);
	copy(t, large, c, MIB); /* but it can be written */
	give(t, c);
	OK(cu.cuEventRecord(join, t));
	OK(cu.cuStreamWaitEvent(s, join, 0));
	goes_on(s);
	CUgraphExec x = auto_free(end(s));
	launch(x, s);
	holds(s, large, MIB, 3);
	give(s, small);
	give(s, large);
	give(t, of_t);
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuEventDestroy_v2(fork));
	OK(cu.cuEventDestroy_v2(join));
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuStreamDestroy_v2(t));
	quiet_end();
}
END_TEST

/* As PyTorch frees what several streams have used: on a private stream that waits for them, and has never been seen. Its
 * handle is another stream's later. */
START_TEST(a_stream_that_is_met_in_a_capture)
{
	CUstream s = begin_off("256MiB");
	for (unsigned i = 0; i < 6; i++) {
		CUstream hidden = new_stream(CU_STREAM_NON_BLOCKING);
		CUevent fork = new_event(), join = new_event();
		long ids = fake.calls("cuStreamGetId");
		begin(s);
		ids = fake.calls("cuStreamGetId");
		CUdeviceptr a = get(s, 2 * MIB), y = get(s, 4096);
		fill(s, a, 4096, i);
		copy(s, y, a, 4096);
		OK(cu.cuEventRecord(fork, s));
		OK(cu.cuStreamWaitEvent(hidden, fork, 0));
		give(hidden, a);
		CUdeviceptr b = get(hidden, MIB);
		give(hidden, b);
		OK(cu.cuEventRecord(join, hidden));
		OK(cu.cuStreamWaitEvent(s, join, 0));
		goes_on(s);
		goes_on(hidden);
		ck_assert_int_eq(fake.calls("cuStreamGetId"), ids);
		CUgraphExec x = auto_free(end(s));
		/* from here on it is a stream like others */
		CUdeviceptr c = get(hidden, 3 * MIB);
		fill(hidden, c, 4096, 40 + i);
		launch(x, hidden);
		holds(hidden, y, 4096, i);
		holds(hidden, c, 4096, 40 + i);
		give(s, y);
		give(hidden, c);
		OK(cu.cuGraphExecDestroy(x));
		OK(cu.cuEventDestroy_v2(fork));
		OK(cu.cuEventDestroy_v2(join));
		OK(cu.cuStreamDestroy_v2(hidden));
	}
	OK(cu.cuStreamDestroy_v2(s));
	quiet_end();
}
END_TEST

/* What a program asks while its own thread captures: none of it may end the capture that would not without us. */
START_TEST(questions_in_a_capture)
{
	CUstream s = begin_off("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING), legacy = NULL;
	CUdeviceptr p = get(s, 5 * MIB), q = get(t, 700), base;
	size_t size, f, total;
	int type;
	CUmemoryPool found;
	cuuint64_t threshold = UINT64_MAX;
	give(t, q);
	q = get(t, 700);
	begin(s);
	CUdeviceptr a = get(s, MIB);
	long ids = fake.calls("cuStreamGetId");
	OK(cu.cuMemGetInfo_v2(&f, &total));
	OK(cu.cuMemGetAddressRange_v2(&base, &size, p));
	ck_assert(base == p && size == 5 * MIB);
	OK(cu.cuMemGetAddressRange_v2(&base, &size, a));
	ck_assert(base == a && size == MIB);
	OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
	OK(cu.cuDeviceGetMemPool(&found, 0));
	OK(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	give(s, a);
	goes_on(s);
	if (under()) { /* the driver alone would not allow these beside a global capture */
		CUdeviceptr more[8];
		for (int i = 0; i < 8; i++)
			more[i] = get(t, ((size_t)i + 1) * MIB);
		CUdeviceptr d = get(legacy, 600);
		for (int i = 0; i < 8; i++)
			give(t, more[i]);
		give(t, q);
		give(legacy, d);
		goes_on(s);
	} else {
		ck_assert_int_eq(fake.calls("cuStreamGetId"), ids);
	}
	CUgraphExec x = auto_free(end(s));
	launch(x, s);
	if (!under())
		give(t, q);
	give(s, p);
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuStreamDestroy_v2(t));
	quiet_end();
}
END_TEST

/* torch.cuda.empty_cache(): allowed while another thread's capture minds itself alone. */
START_TEST(trims_beside_a_capture)
{
	CUstream s = begin_off("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p = get(t, 50 * MIB);
	fill(t, p, 4096, 1);
	give(t, p);
	OK(cu.cuStreamSynchronize(t));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUdeviceptr a = get(s, MIB);
	OK(cu.cuMemPoolTrimTo(pool, 0));
	p = get(t, 30 * MIB);
	give(t, p);
	OK(cu.cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_le(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	give(s, a);
	goes_on(s);
	CUgraphExec x = auto_free(end(s));
	launch(x, s);
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuStreamDestroy_v2(t));
	quiet_end();
}
END_TEST

/* What is freed on a stream whose capture has become invalid, and on one whose capture ended with it. */
START_TEST(captures_that_fail)
{
	CUstream s = begin_off("256MiB");
	CUgraph g;
	for (int i = 0; i < 4; i++) {
		CUdeviceptr p = get(s, 5 * MIB), q = get(s, 900), c;
		fill(s, p, 4096, 3);
		begin(s);
		CUdeviceptr a = get(s, MIB);
		give(s, a);
		a = get(s, MIB);
		FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(s));
		FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuMemAllocAsync(&c, 512, s));
		CUresult r = cu.cuMemFreeAsync(q, s); /* or when it is over */
		FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(s, &g));
		if (r != CUDA_SUCCESS)
			give(s, q);
		FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(a, s)); /* went with its graph */
		holds(s, p, 4096, 3);
		give(s, p);
		p = get(s, 7 * MIB);
		fill(s, p, 7 * MIB, 4);
		holds(s, p, 7 * MIB, 4);
		give(s, p);
		CUstream t = new_stream(CU_STREAM_NON_BLOCKING);
		p = get(t, 3 * MIB);
		fill(t, p, 4096, 5);
		begin(t);
		a = get(t, MIB);
		OK(cu.cuStreamDestroy_v2(t));
		OK(cu.cuCtxSynchronize());
		holds(s, p, 4096, 5);
		give(s, p);
	}
	OK(cu.cuStreamDestroy_v2(s));
	quiet_end();
}
END_TEST

/* ---- beside other threads ---- */

static CUcontext context;
static _Atomic bool stop;
static _Atomic unsigned rounds;

static void *work_beside(void *arg)
{
	unsigned base = 1000 * (unsigned)(uintptr_t)arg;
	OK(cu.cuCtxSetCurrent(context));
	for (unsigned i = 1; !stop; i++) {
		CUstream s = new_stream(CU_STREAM_NON_BLOCKING), t = new_stream(CU_STREAM_NON_BLOCKING);
		CUdeviceptr p = get(s, 12 * MIB), q = get(t, 3000);
		CUevent e = new_event();
		fill(s, p, 4096, base + i);
		fill(t, q, 2048, base + i);
		OK(cu.cuEventRecord(e, s));
		OK(cu.cuStreamWaitEvent(t, e, 0));
		unsigned word = 0;
		OK(cu.cuMemcpyDtoHAsync_v2(&word, p + 4092, 4, t));
		ck_assert_uint_eq(word, base + i);
		give(t, p); /* on another stream than its own */
		OK(cu.cuMemcpyDtoHAsync_v2(&word, q + 2044, 4, t));
		ck_assert_uint_eq(word, base + i);
		give(t, q);
		OK(cu.cuEventDestroy_v2(e));
		OK(cu.cuStreamDestroy_v2(s));
		OK(cu.cuStreamDestroy_v2(t));
		rounds++;
	}
	return NULL;
}

START_TEST(others_work_beside_captures)
{
	CUstream s = begin_off("128MiB");
	pthread_t thread[2];
	OK(cu.cuCtxGetCurrent(&context));
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, work_beside, (void *)(i + 1)), 0);
	CUgraphExec kept = NULL;
	CUdeviceptr kept_y = 0, kept_given = 0; /* what it reads is its own as long as it is launched */
	for (unsigned i = 0; i < 60 || rounds < 20; i++) {
		CUdeviceptr given = get(s, 4096);
		fill(s, given, 4096, i);
		/* relaxed; and (which the driver alone does not allow beside others' work) of the thread, global */
		OK(cu.cuStreamBeginCapture_v2(s, under() ? i % 3 : 2));
		CUdeviceptr a = get(s, 6 * MIB), b = get(s, 2000), y = get(s, 4096);
		copy(s, a, given, 4096);
		copy(s, y, a, 4096);
		give(s, a);
		give(s, b);
		CUgraph g = end(s);
		OK(cu.cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_RELAXED}));
		CUgraphExec x = auto_free(g);
		OK(cu.cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_GLOBAL}));
		launch(x, s);
		if (kept)
			launch(kept, s);
		holds(s, y, 4096, i);
		if (kept) {
			holds(s, kept_y, 4096, i - 1);
			OK(cu.cuGraphExecDestroy(kept));
			give(s, kept_y);
			give(s, kept_given);
		}
		kept = x;
		kept_y = y;
		kept_given = given;
	}
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	OK(cu.cuGraphExecDestroy(kept));
	give(s, kept_y);
	give(s, kept_given);
	OK(cu.cuStreamDestroy_v2(s));
	quiet_end();
}
END_TEST

/* ---- a full device ---- */

/* The driver allocates the memory of a graph when it is instantiated or launched, beside what we hold but do not use. */
START_TEST(graphs_on_a_full_device)
{
	CUstream s = begin_off("96MiB");
	CUdeviceptr in = get(s, 4096), p = get(s, 40 * MIB), y;
	give(s, p);
	begin(s);
	CUdeviceptr a = get(s, 8 * MIB);
	y = get(s, 4096);
	copy(s, a, in, 4096);
	copy(s, y, a, 4096);
	give(s, a);
	CUgraph g = end(s);
	if (under())
		fake.set_failures("cuGraphInstantiateWithFlags:1,cuGraphLaunch:1");
	CUgraphExec x = auto_free(g);
	p = get(s, 20 * MIB);
	give(s, p);
	fill(s, in, 4096, 6);
	launch(x, s);
	fake.set_failures("");
	holds(s, y, 4096, 6);
	give(s, y);
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuStreamSynchronize(s));
	give(s, in);
	/* and what it keeps for graphs that are gone does not fail us */
	p = get(s, 80 * MIB);
	give(s, p);
	OK(cu.cuStreamDestroy_v2(s));
	quiet_end();
}
END_TEST

/* Nor does it fail the program's own frames. */
START_TEST(frames_on_a_full_device)
{
	CUstream s = begin_off("96MiB");
	CUdeviceptr in = get(s, 4096);
	CUmemAllocationProp prop = frame_of_device(0);
	CUmemGenericAllocationHandle frame;
	begin(s);
	CUdeviceptr a = get(s, 30 * MIB);
	copy(s, a, in, 4096);
	give(s, a);
	CUgraph g = end(s);
	CUgraphExec x = auto_free(g);
	launch(x, s);
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuGraphExecDestroy(x));
	give(s, in);
	OK(cu.cuStreamSynchronize(s));
	if (under()) {
		OK(cu.cuMemPoolTrimTo(pool, 0));
		OK(cu.cuMemCreate(&frame, 80 * MIB, &prop, 0));
		OK(cu.cuMemRelease(frame));
	}
	OK(cu.cuStreamDestroy_v2(s));
	quiet_end();
}
END_TEST

CHECK_MAIN("graphs_off", captured_memory_is_the_drivers, a_result_before_its_launch, our_memory_in_a_capture,
	   a_stream_that_is_met_in_a_capture, questions_in_a_capture, trims_beside_a_capture, captures_that_fail,
	   others_work_beside_captures, graphs_on_a_full_device, frames_on_a_full_device)
