/* SPDX-License-Identifier: MIT
 *
 * The test double of libcuda.so.1: captures, what they forbid, graphs, executables and user objects.
 */
#include "check_main.h"
#include "fakecuda_open.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static CUstreamCaptureStatus status_of(CUstream s)
{
	CUstreamCaptureStatus status;
	OK(cu.cuStreamIsCapturing(s, &status));
	return status;
}

static CUgraph end_capture(CUstream s)
{
	CUgraph g;
	OK(cu.cuStreamEndCapture(s, &g));
	ck_assert_ptr_nonnull(g);
	return g;
}

static CUgraphExec instantiate(CUgraph g)
{
	CUgraphExec x;
	OK(cu.cuGraphInstantiateWithFlags(&x, g, 0));
	return x;
}

static void set_int(void *arg)
{
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

static void add_one(void *arg)
{
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_ACQ_REL);
}

/* Waits until the destructor of a user object has run on its thread. */
static void wait_for(int *flag)
{
	for (int i = 0; i < 50000 && !__atomic_load_n(flag, __ATOMIC_ACQUIRE); i++)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	ck_assert_int_eq(__atomic_load_n(flag, __ATOMIC_ACQUIRE), 1);
}

START_TEST(capture_and_replay)
{
	CUdeviceptr p, q;
	int calls = 0;
	cuuint64_t id = 0;
	CUgraph g, during;
	size_t count;
	const CUgraphNode *nodes;
	CUstreamCaptureStatus status;
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&p, MIB));
	OK(cu.cuMemAlloc_v2(&q, MIB));
	OK(cu.cuMemsetD8_v2(p, 0, MIB));
	OK(cu.cuCtxSynchronize());
	ck_assert_int_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	FAILS(401, cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_assert_int_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cu.cuMemsetD8Async(p, 3, MIB, s));
	OK(cu.cuMemcpyDtoDAsync_v2(q, p, MIB, s));
	OK(cu.cuLaunchHostFunc(s, add_one, &calls));
	OK(cu.cuStreamGetCaptureInfo_v2(s, &status, &id, &during, &nodes, &count));
	ck_assert_uint_ne(id, 0);
	ck_assert_uint_eq(count, 1);
	OK(cu.cuStreamGetCaptureInfo_v3(s, &status, NULL, NULL, NULL, NULL, NULL));
	g = end_capture(s);
	ck_assert_ptr_eq(g, during);
	ck_assert_int_eq(byte_at(p), 0); /* nothing has been done yet */
	CUgraphExec x = instantiate(g);
	OK(cu.cuGraphDestroy(g));
	for (int i = 1; i <= 3; i++) {
		OK(cu.cuMemsetD8Async(q, 0, MIB, s));
		OK(cu.cuGraphLaunch(x, s));
		OK(cu.cuStreamSynchronize(s));
		ck_assert_int_eq(byte_at(q + MIB - 1), 3);
		ck_assert_int_eq(calls, i);
	}
	OK(cu.cuGraphExecDestroy(x));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphLaunch(x, s));
}
END_TEST

static void nothing(void *arg)
{
	(void)arg;
}

/* As an H200 with driver 580 does in the strictest mode. */
START_TEST(what_a_capture_allows)
{
	CUdeviceptr at;
	CUmemGenericAllocationHandle h;
	CUmemoryPool pool;
	CUcontext c, popped;
	CUgraph graph;
	CUuserObject object;
	CUevent fresh;
	CUstreamCaptureStatus status;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	unsigned long long id;
	size_t f, t;
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent e = new_event();
	CUmemAllocationProp prop = frame_of_device(0);
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuStreamGetId(other, &id));
	OK(cu.cuStreamGetId(CU_STREAM_LEGACY, &id));
	OK(cu.cuStreamGetId(CU_STREAM_PER_THREAD, &id));
	OK(cu.cuStreamGetCtx(s, &c));
	OK(cu.cuStreamGetCtx(other, &c));
	OK(cu.cuCtxGetCurrent(&c));
	OK(cu.cuCtxPushCurrent_v2(c));
	OK(cu.cuCtxPopCurrent_v2(&popped));
	OK(cu.cuStreamGetCaptureInfo_v2(s, &status, NULL, &graph, NULL, NULL));
	OK(cu.cuStreamGetCaptureInfo_v3(s, &status, NULL, NULL, NULL, NULL, NULL));
	OK(cu.cuStreamIsCapturing(other, &status));
	OK(cu.cuStreamIsCapturing(NULL, &status));
	OK(cu.cuUserObjectCreate(&object, NULL, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cu.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cu.cuMemGetInfo_v2(&f, &t));
	OK(cu.cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
	OK(cu.cuMemCreate(&h, 2 * MIB, &prop, 0));
	OK(cu.cuMemMap(at, 2 * MIB, 0, h, 0));
	give_access(at, 2 * MIB, 0);
	OK(cu.cuEventCreate(&fresh, CU_EVENT_DISABLE_TIMING));
	OK(cu.cuEventRecord(fresh, NULL));
	OK(cu.cuEventDestroy_v2(fresh));
	OK(cu.cuEventRecord(e, other));
	OK(cu.cuStreamWaitEvent(other, e, 0));
	OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cu.cuDeviceGetMemPool(&pool, 0));
	OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
	OK(cu.cuEventSynchronize(e));
	OK(cu.cuEventQuery(e));
	OK(cu.cuMemUnmap(at, 2 * MIB));
	OK(cu.cuMemRelease(h));
	OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cu.cuGraphDestroy(end_capture(s)));
}
END_TEST

/* Each of these fails with 900, and there is no graph. */
START_TEST(what_a_capture_forbids)
{
	CUdeviceptr p, q;
	void *host;
	CUgraph g;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent e = new_event();
	CUmemoryPool pool;
	cuuint64_t used;
	OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cu.cuEventRecord(e, other));
	OK(cu.cuMemAlloc_v2(&p, 512));
	for (int what = 0; what < 12; what++) {
		for (int relaxed = 0; relaxed < 2; relaxed++) {
			int want = relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
			OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
			if (relaxed)
				OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
			switch (what) {
			case 0:
				FAILS(want, cu.cuEventQuery(e));
				break;
			case 1:
				FAILS(want, cu.cuEventSynchronize(e));
				break;
			case 2:
				FAILS(want, cu.cuStreamSynchronize(other));
				break;
			case 3:
				FAILS(want, cu.cuMemAlloc_v2(&q, 512));
				break;
			case 4:
				FAILS(want, cu.cuMemHostAlloc(&host, 512, 0));
				break;
			case 5:
				FAILS(want, cu.cuMemFree_v2(relaxed ? q : p));
				break;
			case 6:
				FAILS(want, cu.cuStreamQuery(other));
				break;
			case 7:
				FAILS(want, cu.cuMemFreeHost(relaxed ? host : &q));
				break;
			case 8: /* another stream's own business is none */
				FAILS(want, cu.cuMemAllocAsync(&q, MIB, other));
				break;
			case 9:
				FAILS(want, cu.cuMemFreeAsync(q, other));
				break;
			case 10:
				FAILS(want, cu.cuMemPoolTrimTo(pool, 0));
				break;
			default:
				FAILS(want, cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
			}
			if (relaxed) {
				OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
				ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
				OK(cu.cuGraphDestroy(end_capture(s)));
				continue;
			}
			ck_assert_int_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
			FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuMemsetD8Async(p, 0, 1, s));
			FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(s, &g));
			ck_assert_ptr_null(g);
			ck_assert_int_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
		}
	}
	/* The captured stream itself cannot be waited for in any mode; the capture's end in a relaxed one is anyone's. */
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(s));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(s, &g));
}
END_TEST

static CUcontext context;
static void *alloc_in_thread(void *arg)
{
	CUdeviceptr p;
	cu.cuCtxSetCurrent(context);
	return (void *)(uintptr_t)cu.cuMemAlloc_v2(&p, 512);
}

static void *end_in_thread(void *arg)
{
	CUgraph g;
	cu.cuCtxSetCurrent(context);
	return (void *)(uintptr_t)cu.cuStreamEndCapture(arg, &g);
}

static int in_thread(void *(*run)(void *), void *arg)
{
	pthread_t t;
	void *r;
	ck_assert_int_eq(pthread_create(&t, NULL, run, arg), 0);
	pthread_join(t, &r);
	return (int)(uintptr_t)r;
}

START_TEST(captures_and_other_threads)
{
	CUgraph g;
	context = start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	FAILS(CUDA_SUCCESS, in_thread(alloc_in_thread, NULL));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, in_thread(end_in_thread, s));
	FAILS(401, cu.cuStreamEndCapture(s, &g)); /* it was ended all the same */
	OK(cu.cuStreamBeginCapture(s));           /* global */
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, in_thread(alloc_in_thread, NULL));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(s, &g));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	FAILS(CUDA_SUCCESS, in_thread(alloc_in_thread, NULL));
	FAILS(CUDA_SUCCESS, in_thread(end_in_thread, s));
	FAILS(401, cu.cuStreamEndCapture(s, &g));
}
END_TEST

START_TEST(legacy_stream_in_a_capture)
{
	CUdeviceptr p;
	CUgraph g;
	CUstreamCaptureStatus status;
	start_cuda();
	CUstream blocking = new_stream(CU_STREAM_DEFAULT), s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&p, 512));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamBeginCapture(NULL));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cu.cuMemsetD8Async(p, 1, 1, NULL));
	OK(cu.cuGraphDestroy(end_capture(s)));
	OK(cu.cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.cuStreamIsCapturing(NULL, &status));
	ck_assert_int_eq(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.cuMemsetD8Async(p, 1, 1, NULL));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(blocking, &g));
	/* a thread's default stream can be captured */
	OK(cu.cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cu.cuMemsetD8Async_ptsz(p, 1, 1, NULL));
	OK(cu.cuStreamEndCapture_ptsz(NULL, &g));
	OK(cu.cuGraphDestroy(g));
}
END_TEST

START_TEST(streams_join)
{
	CUdeviceptr p;
	CUgraph g;
	start_cuda();
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent fork = new_event(), join = new_event(), outside = new_event();
	OK(cu.cuMemAlloc_v2(&p, 4));
	OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemsetD8Async(p, 1, 1, a));
	OK(cu.cuEventRecord(fork, a));
	OK(cu.cuStreamWaitEvent(b, fork, 0));
	ck_assert_int_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cu.cuMemsetD8Async(p + 1, 2, 1, b));
	OK(cu.cuMemsetD8Async(p + 2, 3, 1, a));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cu.cuStreamEndCapture(a, &g));
	ck_assert_int_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_NONE);

	/* an event of a capture cannot be asked, which ends the capture; after that it is worth nothing */
	OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cu.cuEventRecord(fork, a));
	FAILS(907, cu.cuEventQuery(fork));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuEventSynchronize(fork));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWaitEvent(b, fork, 0));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(a, &g));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuEventQuery(fork));

	OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuEventRecord(fork, a)); /* before any node */
	OK(cu.cuStreamWaitEvent(b, fork, 0));
	OK(cu.cuMemsetD8Async(p + 1, 2, 1, b));
	OK(cu.cuMemsetD8Async(p + 2, 3, 1, a));
	OK(cu.cuEventRecord(join, b));
	OK(cu.cuStreamWaitEvent(a, join, 0));
	g = end_capture(a);
	CUgraphExec x = instantiate(g);
	OK(cu.cuGraphLaunch(x, b));
	OK(cu.cuStreamSynchronize(b));
	ck_assert_int_eq(byte_at(p + 1), 2);
	ck_assert_int_eq(byte_at(p + 2), 3);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWaitEvent(a, join, 0)); /* of a capture that is over */

	OK(cu.cuEventRecord(outside, b));
	OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	FAILS(905, cu.cuStreamWaitEvent(a, outside, 0));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(a, &g));

	OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuEventRecord(fork, a));
	OK(cu.cuStreamWaitEvent(b, fork, 0));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cu.cuStreamEndCapture(b, &g));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(a, &g));

	OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuStreamDestroy_v2(a)); /* and the capture with it */
	OK(cu.cuStreamSynchronize(b));
}
END_TEST

START_TEST(memory_of_a_graph)
{
	CUdeviceptr p, q, plain, later;
	CUgraph g;
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&plain, MIB));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemAllocAsync(&p, MIB, s));
	OK(cu.cuMemAllocAsync(&q, MIB, s));
	OK(cu.cuMemsetD8Async(p, 7, MIB, s));
	OK(cu.cuMemcpyDtoDAsync_v2(q, p, MIB, s));
	OK(cu.cuMemcpyDtoDAsync_v2(plain, q, MIB, s));
	OK(cu.cuMemFreeAsync(p, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s)); /* the capture goes on */
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(plain, s));
	OK(cu.cuMemFreeAsync(q, s));
	OK(cu.cuGraphDestroy(end_capture(s)));

	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemAllocAsync(&p, MIB, s));
	OK(cu.cuMemAllocAsync(&q, MIB, s));
	OK(cu.cuMemsetD8Async(p, 7, MIB, s));
	OK(cu.cuMemcpyDtoDAsync_v2(q, p, MIB, s));
	OK(cu.cuMemFreeAsync(p, s));
	g = end_capture(s);
	CUgraphExec x = instantiate(g);
	OK(cu.cuGraphLaunch(x, s));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(byte_at(q + MIB - 1), 7);
	OK(cu.cuMemAllocAsync(&later, MIB, s));
	ck_assert(later != p && later != q); /* the graph keeps its places */
	OK(cu.cuMemFreeAsync(later, s));
	OK(cu.cuMemFreeAsync(q, s));
	OK(cu.cuGraphDestroy(g));
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuMemFree_v2(plain));
	OK(cu.cuDeviceGraphMemTrim(0));
	ck_assert_uint_eq(fake.used(0), 0);
	OK(cu.cuStreamDestroy_v2(s));
	ck_assert_ptr_null(fake.leaks());
}
END_TEST

/* What a graph allocates and does not free exists from a launch on, until somebody frees it. */
START_TEST(memory_from_a_launch_on)
{
	CUdeviceptr p;
	CUgraph other;
	CUgraphExec x, y;
	CUgraphNode node;
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemAllocAsync(&p, MIB, s));
	OK(cu.cuMemsetD8Async(p, 7, MIB, s));
	CUgraph g = end_capture(s);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(p));
	x = instantiate(g);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cu.cuGraphInstantiateWithFlags(&y, g, 0));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cu.cuGraphClone(&other, g));
	OK(cu.cuGraphCreate(&other, 0));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cu.cuGraphAddChildGraphNode(&node, other, NULL, 0, g));
	OK(cu.cuGraphDestroy(other));
	for (int i = 0; i < 2; i++) {
		OK(cu.cuGraphLaunch(x, s));
		FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphLaunch(x, s)); /* it is still there */
		OK(cu.cuMemFreeAsync(p, s));
		FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s));
	}
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuGraphInstantiateWithFlags(&x, g, 1)); /* free on launch */
	OK(cu.cuGraphLaunch(x, s));
	OK(cu.cuGraphLaunch(x, s));
	/* another graph frees it */
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemFreeAsync(p, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s));
	other = end_capture(s);
	y = instantiate(other);
	OK(cu.cuGraphLaunch(y, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphLaunch(y, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s));
	OK(cu.cuGraphExecDestroy(y));
	OK(cu.cuGraphDestroy(other));
	/* it outlives its graph */
	OK(cu.cuGraphLaunch(x, s));
	OK(cu.cuGraphDestroy(g));
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(byte_at(p + MIB - 1), 7);
	OK(cu.cuMemFreeAsync(p, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s));
	/* and one that was never launched is gone with it */
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemAllocAsync(&p, MIB, s));
	OK(cu.cuGraphDestroy(end_capture(s)));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s));
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuStreamDestroy_v2(s));
	ck_assert_ptr_null(fake.leaks());
}
END_TEST

START_TEST(user_objects)
{
	int gone = 0, direct = 0;
	CUuserObject o;
	CUgraph g, clone;
	struct gate gate = {0};
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuUserObjectCreate(&o, &gone, set_int, 1, 0));
	OK(cu.cuUserObjectCreate(&o, &direct, set_int, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cu.cuUserObjectRelease(o, 1));
	ck_assert_int_eq(__atomic_load_n(&direct, __ATOMIC_ACQUIRE), 0);
	OK(cu.cuUserObjectRelease(o, 1));
	wait_for(&direct);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuUserObjectRelease(o, 1));

	CUstreamCaptureStatus status;
	OK(cu.cuUserObjectCreate(&o, &gone, set_int, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuLaunchHostFunc(s, gate_wait, &gate));
	OK(cu.cuStreamGetCaptureInfo_v2(s, &status, NULL, &g, NULL, NULL));
	OK(cu.cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
	g = end_capture(s);
	OK(cu.cuGraphClone(&clone, g));
	OK(cu.cuGraphDestroy(g));
	CUgraphExec x = instantiate(clone);
	OK(cu.cuGraphDestroy(clone));
	OK(cu.cuGraphLaunch(x, s));
	OK(cu.cuGraphExecDestroy(x)); /* its launch is under way */
	ck_assert_int_eq(__atomic_load_n(&gone, __ATOMIC_ACQUIRE), 0);
	gate_open(&gate);
	wait_for(&gone);

	/* a capture that fails lets go as well */
	gone = 0;
	OK(cu.cuUserObjectCreate(&o, &gone, set_int, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuStreamGetCaptureInfo_v2(s, &status, NULL, &g, NULL, NULL));
	OK(cu.cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(s));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(s, &g));
	wait_for(&gone);
	OK(cu.cuStreamDestroy_v2(s));
	ck_assert_ptr_null(fake.leaks());
}
END_TEST

static CUgraph one_set(CUstream s, CUdeviceptr p, unsigned char value)
{
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemsetD8Async(p, value, 1, s));
	return end_capture(s);
}

START_TEST(update_children_and_captured_launches)
{
	CUdeviceptr p;
	CUgraph parent;
	CUgraphNode node;
	CUgraphExecUpdateResult result;
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&p, 4));
	OK(cu.cuMemsetD8_v2(p, 0, 4));
	OK(cu.cuCtxSynchronize());
	CUgraph one = one_set(s, p, 1), two = one_set(s, p, 2), third = one_set(s, p + 1, 3);
	CUgraphExec x = instantiate(one);
	OK(cu.cuGraphExecUpdate(x, two, &node, &result));
	ck_assert_int_eq(result, 0);
	OK(cu.cuGraphLaunch(x, s));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(byte_at(p), 2);

	OK(cu.cuGraphCreate(&parent, 0));
	OK(cu.cuGraphAddChildGraphNode(&node, parent, NULL, 0, one));
	OK(cu.cuGraphAddChildGraphNode(&node, parent, &node, 1, third));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphAddChildGraphNode(&node, one, &node, 1, third));
	FAILS(910, cu.cuGraphExecUpdate(x, parent, &node, &result));
	ck_assert_int_eq(result, 2);
	CUgraphExec both = instantiate(parent);
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuGraphLaunch(both, s));
	CUgraph outer = end_capture(s);
	OK(cu.cuGraphExecDestroy(both));
	OK(cu.cuGraphDestroy(parent));
	CUgraphExec all = instantiate(outer);
	OK(cu.cuGraphUpload(all, s));
	OK(cu.cuGraphLaunch(all, s));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(byte_at(p), 1);
	ck_assert_int_eq(byte_at(p + 1), 3);
	OK(cu.cuGraphExecDestroy(all));
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuGraphDestroy(outer));
	OK(cu.cuGraphDestroy(one));
	OK(cu.cuGraphDestroy(two));
	OK(cu.cuGraphDestroy(third));
	OK(cu.cuMemFree_v2(p));
	OK(cu.cuStreamDestroy_v2(s));
	ck_assert_ptr_null(fake.leaks());
}
END_TEST

START_TEST(capture_to_a_graph)
{
	CUdeviceptr p;
	CUgraph g, got;
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAlloc_v2(&p, 1));
	OK(cu.cuGraphCreate(&g, 0));
	OK(cu.cuStreamBeginCaptureToGraph(s, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphDestroy(g));
	OK(cu.cuMemsetD8Async(p, 4, 1, s));
	OK(cu.cuStreamEndCapture(s, &got));
	ck_assert_ptr_eq(got, g);
	CUgraphExec x = instantiate(g);
	OK(cu.cuGraphLaunch(x, s));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(byte_at(p), 4);
}
END_TEST

/* Launches of two executables on two streams overlap; those of one do not. */
static int running, most;
static void enter_and_leave(void *arg)
{
	int now = __atomic_add_fetch(&running, 1, __ATOMIC_ACQ_REL), seen = __atomic_load_n(&most, __ATOMIC_ACQUIRE);
	while (now > seen && !__atomic_compare_exchange_n(&most, &seen, now, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	if (arg)
		gate_wait(arg);
	__atomic_sub_fetch(&running, 1, __ATOMIC_ACQ_REL);
}

START_TEST(launches_overlap)
{
	struct gate gate = {0};
	start_cuda();
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUgraphExec x[2];
	for (int i = 0; i < 2; i++) {
		OK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
		OK(cu.cuLaunchHostFunc(a, enter_and_leave, i ? NULL : &gate));
		x[i] = instantiate(end_capture(a));
	}
	OK(cu.cuGraphLaunch(x[0], a));
	OK(cu.cuGraphLaunch(x[1], b)); /* ends while the other is held up */
	OK(cu.cuStreamSynchronize(b));
	OK(cu.cuGraphLaunch(x[0], b));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(b));
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	ck_assert_int_le(__atomic_load_n(&running, __ATOMIC_ACQUIRE), 1);
	gate_open(&gate);
	OK(cu.cuCtxSynchronize());
	ck_assert_int_le(most, 2);
}
END_TEST

START_TEST(context_goes_while_it_captures)
{
	CUdeviceptr p;
	CUcontext other;
	int gone = 0;
	CUuserObject o;
	CUgraph g;
	CUstreamCaptureStatus status;
	start_cuda();
	OK(cu.cuCtxCreate_v2(&other, 0, 0));
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent e = new_event();
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cu.cuMemAllocAsync(&p, MIB, s));
	OK(cu.cuEventRecord(e, s));
	OK(cu.cuStreamWaitEvent(t, e, 0));
	OK(cu.cuStreamGetCaptureInfo_v2(s, &status, NULL, &g, NULL, NULL));
	OK(cu.cuUserObjectCreate(&o, &gone, set_int, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cu.cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cu.cuCtxDestroy_v2(other));
	wait_for(&gone);
	OK(cu.cuMemAlloc_v2(&p, MIB)); /* no capture is left that would mind */
}
END_TEST

/* Threads that capture, each for itself, launch and let go: for the sanitizers, above all. */
static void *capture_and_launch(void *arg)
{
	int gone = 0, calls = 0;
	cu.cuCtxSetCurrent(context);
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 20; i++) {
		CUdeviceptr p;
		CUgraph g;
		CUgraphExec x;
		CUuserObject o;
		CUstreamCaptureStatus status;
		unsigned char got = 0, want = (unsigned char)(i + *(int *)arg);
		gone = 0;
		if (cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ||
		    cu.cuUserObjectCreate(&o, &gone, set_int, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) ||
		    cu.cuStreamGetCaptureInfo_v2(s, &status, NULL, &g, NULL, NULL) ||
		    cu.cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE) || cu.cuMemAllocAsync(&p, 4096, s) ||
		    cu.cuMemsetD8Async(p, want, 4096, s) || cu.cuLaunchHostFunc(s, add_one, &calls) ||
		    cu.cuStreamEndCapture(s, &g) || cu.cuGraphInstantiateWithFlags(&x, g, 0) || cu.cuGraphDestroy(g) ||
		    cu.cuGraphLaunch(x, s) || cu.cuMemcpyDtoHAsync_v2(&got, p + 4095, 1, s) || got != want ||
		    cu.cuMemFreeAsync(p, s) || cu.cuGraphExecDestroy(x))
			return "wrong";
		wait_for(&gone);
	}
	return calls != 20 || cu.cuStreamDestroy_v2(s) ? "wrong" : NULL;
}

START_TEST(threads)
{
	pthread_t t[4];
	int seed[4] = {0, 50, 100, 150};
	void *bad;
	context = start_cuda();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, capture_and_launch, &seed[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &bad);
		ck_assert_ptr_null(bad);
	}
	OK(cu.cuCtxSynchronize());
	ck_assert_ptr_null(fake.leaks());
	OK(cu.cuDeviceGraphMemTrim(0));
	ck_assert_uint_eq(fake.used(0), 0);
}
END_TEST

static bool may_end; /* atomic */

static void wait_until_told(void *arg)
{
	while (!__atomic_load_n(&may_end, __ATOMIC_ACQUIRE))
		usleep(100);
}

/* An event of all work of a context: it passes after the last of it, and no stream may capture. */
START_TEST(context_events)
{
	CUcontext current = start_cuda();
	CUstream s[3] = {new_stream(CU_STREAM_NON_BLOCKING), new_stream(CU_STREAM_NON_BLOCKING), new_stream(0)};
	CUevent e = new_event(), none = new_event();
	CUdeviceptr p;
	CUgraph graph;
	OK(cu.cuMemAlloc_v2(&p, 3 * 4096));
	OK(cu.cuCtxRecordEvent(current, none));
	OK(cu.cuEventQuery(none));
	for (int i = 0; i < 3; i++)
		OK(cu.cuMemsetD8Async(p + i * 4096, 1, 4096, s[i]));
	OK(cu.cuLaunchHostFunc(s[1], wait_until_told, NULL));
	OK(cu.cuCtxRecordEvent(current, e));
	OK(cu.cuStreamSynchronize(s[0]));
	OK(cu.cuStreamSynchronize(s[2]));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuEventQuery(e)); /* the second is not done */
	__atomic_store_n(&may_end, true, __ATOMIC_RELEASE);
	OK(cu.cuEventSynchronize(e));
	for (int i = 0; i < 3; i++)
		OK(cu.cuStreamQuery(s[i]));
	OK(cu.cuStreamBeginCapture_v2(s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxRecordEvent(current, e));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(s[0], &graph));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxRecordEvent((CUcontext)&p, e));
}
END_TEST

CHECK_MAIN("libcuda_graphs", context_events, capture_and_replay, what_a_capture_allows, what_a_capture_forbids,
	   captures_and_other_threads, legacy_stream_in_a_capture, streams_join, memory_of_a_graph,
	   memory_from_a_launch_on, user_objects, update_children_and_captured_launches, capture_to_a_graph,
	   launches_overlap, context_goes_while_it_captures, threads)
