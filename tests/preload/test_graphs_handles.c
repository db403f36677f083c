/* SPDX-License-Identifier: MIT
 *
 * Graphs and executables that come of one another, and their ends, under libcleave-preload.so as in test_graphs.c.
 */
#include "graphs_rig.h"

START_TEST(a_graph_in_a_graph_keeps_its_memory)
{
	CUstream s = start("64MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	for (int way = 0; way < 4; way++) {
		CUdeviceptr p, out = get(s, 4096);
		begin(s);
		CUdeviceptr a = get(s, 30 * MIB);
		fill(s, a, 4096, 6);
		copy(s, out, a, 4096);
		give(s, a);
		CUgraph inner = end(s), outer = NULL;
		CUgraphExec x = NULL;
		CUgraphNode node;
		switch (way) {
		case 0: /* a launch that is captured */
			x = instance(inner);
			begin(t);
			launch(x, t);
			outer = end(t);
			OK(cu.cuGraphExecDestroy(x));
			break;
		case 1:
			OK(cu.cuGraphCreate(&outer, 0));
			OK(cu.cuGraphAddChildGraphNode(&node, outer, NULL, 0, inner));
			break;
		case 2: {
			struct {
				int type, reserved[3];
				CUgraph graph;
				long long rest[29];
			} params = {.type = 4, .graph = inner};
			OK(cu.cuGraphCreate(&outer, 0));
			OK(cu.cuGraphAddNode(&node, outer, NULL, 0, (CUgraphNodeParams *)(void *)&params));
			break;
		}
		default:
			OK(cu.cuGraphClone(&outer, inner));
			break;
		}
		OK(cu.cuGraphDestroy(inner));
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 40 * MIB, s));
		x = instance(outer);
		OK(cu.cuGraphDestroy(outer));
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 40 * MIB, s));
		/* and takes turns with others */
		struct job j = make_job(s, 9);
		launch(j.exec, s);
		long waits = fake.calls("cuStreamWaitEvent");
		launch(x, t);
		ck_assert_int_eq(fake.calls("cuStreamWaitEvent"), waits + 1);
		holds(t, out, 4096, 6);
		holds(s, j.out, JOB_BYTES, 9);
		OK(cu.cuGraphExecDestroy(j.exec));
		OK(cu.cuGraphExecDestroy(x));
		give(s, out);
		give(s, j.out);
		ck_assert(comes_down_to(0));
	}
	finish();
}
END_TEST

START_TEST(an_updated_executable_has_other_memory)
{
	CUstream s = start("128MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr out = get(s, 4096), p;
	CUgraph g[2];
	CUdeviceptr a[2];
	for (unsigned i = 0; i < 2; i++) {
		begin(s);
		a[i] = get(s, 40 * MIB);
		fill(s, a[i], 4096, 20 + i);
		copy(s, out, a[i], 4096);
		g[i] = end(s);
	}
	CUgraphExec x = instance(g[0]);
	CUgraphExecUpdateResult result;
	CUgraphNode bad;
	OK(cu.cuGraphDestroy(g[0]));
	launch(x, s);
	OK(cu.cuGraphExecUpdate(x, g[1], &bad, &result));
	OK(cu.cuGraphDestroy(g[1]));
	give(s, a[0]);
	give(s, a[1]);
	/* the first one's memory comes back, the second one's not */
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	for (int i = 0; i < 10000 && r == CUDA_ERROR_OUT_OF_MEMORY; i++) {
		r = cu.cuMemAllocAsync(&p, 60 * MIB, s);
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	OK(r);
	ck_assert(apart(p, 60 * MIB, a[1], 40 * MIB));
	fill(s, p, 60 * MIB, 5);
	launch(x, t);
	holds(t, out, 4096, 21);
	holds(s, p, 60 * MIB, 5);
	give(s, p);
	give(s, out);
	OK(cu.cuGraphExecDestroy(x));
	finish();
}
END_TEST

/* Launches on one device do not wait for those on another, but for a graph that has memory of both. */
START_TEST(devices_take_turns_apart)
{
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	CUstream s[2] = {start("128MiB")};
	CUcontext context[2];
	struct job j[2];
	CUmemoryPool pools[2] = {pool};
	OK(cu.cuCtxGetCurrent(&context[0]));
	OK(cu.cuDevicePrimaryCtxRetain(&context[1], 1));
	OK(cu.cuDeviceGetDefaultMemPool(&pools[1], 1));
	OK(cu.cuCtxSetCurrent(context[1]));
	s[1] = new_stream(CU_STREAM_NON_BLOCKING);
	for (unsigned d = 0; d < 2; d++) {
		OK(cu.cuCtxSetCurrent(context[d]));
		j[d] = make_job(s[d], 70 + d);
	}
	long waits = fake.calls("cuStreamWaitEvent");
	for (unsigned i = 0; i < 6; i++) {
		OK(cu.cuCtxSetCurrent(context[i % 2]));
		launch(j[i % 2].exec, s[i % 2]);
	}
	ck_assert_int_eq(fake.calls("cuStreamWaitEvent"), waits);
	/* fork to the other device */
	OK(cu.cuCtxSetCurrent(context[0]));
	CUevent fork = new_event();
	begin(s[0]);
	OK(cu.cuEventRecord(fork, s[0]));
	CUdeviceptr a = get(s[0], JOB_BYTES);
	OK(cu.cuCtxSetCurrent(context[1]));
	CUevent join = new_event();
	OK(cu.cuStreamWaitEvent(s[1], fork, 0));
	CUdeviceptr b = get(s[1], JOB_BYTES);
	give(s[1], b); /* the double would run work on it as that of device 0 */
	OK(cu.cuEventRecord(join, s[1]));
	OK(cu.cuCtxSetCurrent(context[0]));
	OK(cu.cuStreamWaitEvent(s[0], join, 0));
	fill(s[0], a, JOB_BYTES, 6);
	give(s[0], a);
	CUgraphExec x = end_to_exec(s[0]);
	waits = fake.calls("cuStreamWaitEvent");
	launch(x, s[0]); /* device 1 was used last on s[1] */
	ck_assert_int_eq(fake.calls("cuStreamWaitEvent"), waits + 1);
	for (unsigned d = 0; d < 2; d++) {
		OK(cu.cuCtxSetCurrent(context[d]));
		holds(s[d], j[d].out, JOB_BYTES, 70 + d);
		give(s[d], j[d].out);
		OK(cu.cuGraphExecDestroy(j[d].exec));
	}
	OK(cu.cuGraphExecDestroy(x));
	for (int i = 0; i < 10000 && fake.used(1); i++) {
		OK(cu.cuMemPoolTrimTo(pools[1], 0));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	ck_assert_uint_eq(fake.used(1), 0);
	OK(cu.cuCtxSetCurrent(context[0]));
	finish();
}
END_TEST

/* An executable may be destroyed while it runs. Whoever then gets its memory must not disturb it. */
START_TEST(a_running_executable_keeps_its_memory)
{
	CUstream s = start("64MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	for (int updated = 0; updated < 2; updated++) {
		CUdeviceptr out = get(s, 4096), other;
		begin(s);
		CUdeviceptr a = get(s, 30 * MIB);
		fill(s, a, 4096, 6);
		fill(s, a + 4096, 4096, 7);
		copy(s, out, a, 4096);
		give(s, a);
		CUgraphExec x = end_to_exec(s), y = NULL;
		if (updated) {
			begin(s);
			CUdeviceptr b = get(s, 20 * MIB);
			fill(s, b, 4096, 6);
			fill(s, b + 4096, 4096, 7);
			copy(s, out, b, 4096);
			give(s, b);
			CUgraph g = end(s);
			y = instance(g);
			fake.delay(20000);
			launch(y, s);
			OK(cu.cuGraphExecDestroy(y));
			OK(cu.cuGraphDestroy(g));
			OK(cu.cuGraphExecDestroy(x));
		} else {
			fake.delay(20000);
			launch(x, s);
			OK(cu.cuGraphExecDestroy(x));
		}
		other = get(t, 40 * MIB); /* waits, or is memory that the graph has not */
		fill(t, other, 40 * MIB, 9);
		fake.delay(0);
		holds(t, other, 40 * MIB, 9);
		holds(s, out, 4096, 6);
		give(t, other);
		give(s, out);
		OK(cu.cuCtxSynchronize());
		ck_assert(comes_down_to(0));
	}
	finish();
}
END_TEST

static void *get_much(void *context)
{
	CUdeviceptr p = 0;
	OK(cu.cuCtxSetCurrent(context));
	OK(cu.cuMemAllocAsync(&p, 50 * MIB, CU_STREAM_LEGACY));
	OK(cu.cuMemFreeAsync(p, CU_STREAM_LEGACY));
	return NULL;
}

/* A request that is short of memory waits for work on a block of a graph. Other threads, on whom that work may depend, do not. */
START_TEST(others_go_on_while_a_request_waits)
{
	CUstream s = start("64MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUcontext context;
	pthread_t thread;
	struct gate gate = {0};
	OK(cu.cuCtxGetCurrent(&context));
	begin(s);
	CUdeviceptr a, y = get(s, 30 * MIB);
	fill(s, y, 4096, 7);
	CUgraphExec x = end_to_exec(s);
	launch(x, s);
	OK(cu.cuStreamSynchronize(s));
	gate_on(t, &gate);
	fill(t, y, 4096, 8);
	give(t, y); /* before its graph is gone: else the block is as any other */
	OK(cu.cuStreamDestroy_v2(t));
	OK(cu.cuGraphExecDestroy(x));
	ck_assert_int_eq(pthread_create(&thread, NULL, get_much, context), 0);
	nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(y, s)); /* it has been freed */
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	a = get(s, 4096);
	fill(s, a, 4096, 1);
	give(s, a);
	x = end_to_exec(s);
	gate_open(&gate);
	pthread_join(thread, NULL);
	OK(cu.cuGraphExecDestroy(x));
	finish();
}
END_TEST

struct launcher {
	CUcontext context;
	CUgraphExec exec;
	CUstream stream;
};

static void *launch_many(void *arg)
{
	struct launcher *l = arg;
	OK(cu.cuCtxSetCurrent(l->context));
	for (int i = 0; i < 20; i++)
		launch(l->exec, l->stream);
	return NULL;
}

/* A launch waits in the driver while the stream's queue is full. A request that would like to know about launches does not. */
START_TEST(a_request_goes_on_while_a_launch_waits)
{
	setenv("FAKE_CUDA_QUEUE", "8", 1);
	CUstream s = start("64MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	struct job j = make_job(s, 3), k = make_job(s, 4);
	struct launcher l = {.exec = j.exec, .stream = s};
	pthread_t thread;
	struct gate gate = {0};
	OK(cu.cuCtxGetCurrent(&l.context));
	launch(k.exec, s);
	OK(cu.cuStreamSynchronize(s));
	gate_on(s, &gate);
	launch(j.exec, s);
	ck_assert_int_eq(pthread_create(&thread, NULL, launch_many, &l), 0);
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	OK(cu.cuGraphExecDestroy(k.exec));
	give(t, get(t, 4096));
	gate_open(&gate);
	pthread_join(thread, NULL);
	holds(s, j.out, JOB_BYTES, 3);
	holds(s, k.out, JOB_BYTES, 4);
	OK(cu.cuGraphExecDestroy(j.exec));
	give(s, j.out);
	give(s, k.out);
	finish();
}
END_TEST

static CUgraph add_condition(CUgraph g)
{
	struct {
		int type, reserved[3];
		unsigned long long handle;
		int kind;
		unsigned size;
		CUgraph *bodies;
		long long rest[26];
	} params = {.type = 13, .size = 1};
	CUgraphNode node;
	OK(cu.cuGraphAddNode(&node, g, NULL, 0, (CUgraphNodeParams *)(void *)&params));
	return params.bodies[0];
}

/* What is captured into the body of a conditional node is memory of the graph that the node is in. */
START_TEST(the_body_of_a_condition_has_memory)
{
	CUstream s = start("64MiB");
	CUdeviceptr out = get(s, 4096), p;
	CUgraph g, same;
	OK(cu.cuGraphCreate(&g, 0));
	CUgraph body = add_condition(g);
	OK(cu.cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CUdeviceptr a = get(s, 30 * MIB);
	fill(s, a, 4096, 6);
	copy(s, out, a, 4096);
	give(s, a);
	OK(cu.cuStreamEndCapture(s, &same));
	CUgraphExec x = instance(g);
	OK(cu.cuGraphDestroy(g));
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 40 * MIB, s));
	launch(x, s);
	holds(s, out, 4096, 6);
	OK(cu.cuGraphExecDestroy(x));
	give(s, out);
	finish();
}
END_TEST

/* Nobody tells of its end, and another graph gets its handle, which is no part of whatever has that of the first graph. */
START_TEST(a_graph_has_the_handle_of_a_body)
{
	CUstream s = start("64MiB");
	for (int made = 0; made < 2; made++) {
		CUdeviceptr out = get(s, 4096), p;
		CUgraph g, other, again;
		OK(cu.cuGraphCreate(&g, 0));
		CUgraph body = add_condition(g);
		OK(cu.cuGraphDestroy(g));
		OK(cu.cuGraphCreate(&other, 0));
		ck_assert_ptr_eq(other, g);
		if (made) {
			OK(cu.cuGraphCreate(&again, 0));
			ck_assert_ptr_eq(again, body);
			OK(cu.cuStreamBeginCaptureToGraph(s, again, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
		} else {
			begin(s);
		}
		CUdeviceptr a = get(s, 30 * MIB);
		fill(s, a, 4096, 6);
		copy(s, out, a, 4096);
		give(s, a);
		again = end(s);
		ck_assert_ptr_eq(again, body);
		OK(cu.cuGraphDestroy(other));
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 40 * MIB, s));
		CUgraphExec x = instance(again);
		launch(x, s);
		holds(s, out, 4096, 6);
		OK(cu.cuGraphExecDestroy(x));
		OK(cu.cuGraphDestroy(again));
		give(s, out);
		ck_assert(comes_down_to(0));
	}
	finish();
}
END_TEST

/* The driver does not take the object back that tells of the graph's end: its memory then stays for good. */
START_TEST(a_graph_whose_end_is_not_told_keeps_its_memory)
{
	CUstream s = start("64MiB");
	CUdeviceptr out = get(s, 4096), p;
	begin(s);
	CUdeviceptr a = get(s, 30 * MIB);
	fill(s, a, 4096, 6);
	copy(s, out, a, 4096);
	give(s, a);
	CUgraph g = end(s);
	fake.set_failures("cuGraphRetainUserObject:1");
	OK(cu.cuGraphExecDestroy(instance(g)));
	fake.set_failures("");
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	CUgraphExec x = instance(g);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 40 * MIB, s));
	launch(x, s);
	holds(s, out, 4096, 6);
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuGraphDestroy(g));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 40 * MIB, s));
	give(s, out);
	OK(cu.cuCtxSynchronize());
	ck_assert_int_eq(fake.faults(), 0);
}
END_TEST

CHECK_MAIN("graphs_handles", a_graph_whose_end_is_not_told_keeps_its_memory, devices_take_turns_apart, a_graph_in_a_graph_keeps_its_memory,
	   a_request_goes_on_while_a_launch_waits, others_go_on_while_a_request_waits, the_body_of_a_condition_has_memory, a_graph_has_the_handle_of_a_body, an_updated_executable_has_other_memory,
	   a_running_executable_keeps_its_memory)
