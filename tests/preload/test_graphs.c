/* SPDX-License-Identifier: MIT
 *
 * Memory allocated while streams capture, in a program under libcleave-preload.so (LD_PRELOAD is set for this one) and the
 * test double of libcuda.so.1. What does not speak of addresses holds without the library as well: CLEAVE_UNDER says which
 * of the two it is.
 */
#include "graphs_rig.h"

/* ---- one graph ---- */

START_TEST(captures_and_replays)
{
	static const size_t sizes[] = {512, 3000, 40000, 3 * MIB, 9 * MIB};
	CUstream s = start("256MiB");
	for (unsigned i = 0; i < 5; i++) {
		size_t size = sizes[i] & ~(size_t)3;
		CUdeviceptr in = get(s, size);
		begin(s);
		CUdeviceptr x = get(s, size), y = get(s, size);
		copy(s, x, in, size);
		copy(s, y, x, size);
		fill(s, x, size, 99);
		give(s, x);
		CUgraphExec exec = end_to_exec(s);
		ck_assert(apart(x, size, in, size) && apart(y, size, in, size) && apart(x, size, y, size));
		for (unsigned round = 1; round < 4; round++) {
			fill(s, in, size, 100 * i + round);
			launch(exec, s);
			holds(s, y, size, 100 * i + round);
			if (under()) /* without us a graph must not be launched again before its memory is freed */
				continue;
			break;
		}
		give(s, y);
		give(s, in);
		OK(cu.cuStreamSynchronize(s));
		OK(cu.cuGraphExecDestroy(exec));
	}
	finish();
}
END_TEST

START_TEST(reuses_within_one_branch_alone)
{
	CUstream s = start("512MiB"), other = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent fork = new_event(), join = new_event();
	const size_t size = 6 * MIB, small = 5000;
	begin(s);
	CUdeviceptr a = get(s, size), sa = get(s, small);
	give(s, a);
	give(s, sa);
	ck_assert_uint_eq(get(s, size), a);
	ck_assert_uint_eq(get(s, small), sa);
	give(s, a);
	give(s, sa);
	OK(cu.cuEventRecord(fork, s));
	OK(cu.cuStreamWaitEvent(other, fork, 0));
	CUdeviceptr b = get(other, size), sb = get(other, small);
	ck_assert_msg(apart(a, size, b, size), "two branches share memory");
	ck_assert_uint_ne(sa, sb);
	give(other, b);
	give(other, sb);
	ck_assert_uint_eq(get(other, size), b); /* of its own */
	give(other, b);
	CUdeviceptr again = get(s, size);
	ck_assert(apart(again, size, b, size));
	give(s, again);
	OK(cu.cuEventRecord(join, other));
	OK(cu.cuStreamWaitEvent(s, join, 0));
	CUgraphExec first = end_to_exec(s);
	/* graphs do not overlap: the next one has the same memory, at other addresses */
	uint64_t held = fake.used(0);
	begin(s);
	CUdeviceptr c = get(s, size);
	ck_assert(apart(c, size, a, size) && apart(c, size, b, size) && apart(c, size, again, size));
	give(s, c);
	CUgraphExec second = end_to_exec(s);
	ck_assert_uint_eq(fake.used(0), held);
	/* and nobody else */
	CUdeviceptr d = get(s, size), e = get(other, size), sd = get(s, small);
	ck_assert(apart(d, size, a, size) && apart(d, size, b, size) && apart(e, size, a, size) &&
		  apart(e, size, b, size));
	ck_assert_uint_ne(sd, sa);
	ck_assert_uint_ne(sd, sb);
	give(s, d);
	give(s, sd);
	give(other, e);
	OK(cu.cuGraphExecDestroy(first));
	OK(cu.cuGraphExecDestroy(second));
	finish();
}
END_TEST

/* What a graph has freed is given to nobody while it can be launched, and to anybody when it is gone. */
START_TEST(memory_comes_back_with_the_graph)
{
	CUstream s = start("64MiB");
	CUdeviceptr p;
	begin(s);
	CUdeviceptr a = get(s, 40 * MIB);
	fill(s, a, 40 * MIB, 1);
	give(s, a);
	CUgraph g = end(s);
	CUgraphExec x = instance(g);
	launch(x, s);
	OK(cu.cuStreamSynchronize(s));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 40 * MIB, s));
	OK(cu.cuGraphDestroy(g)); /* the executable is still there */
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 40 * MIB, s));
	launch(x, s);
	OK(cu.cuGraphExecDestroy(x)); /* while it runs */
	OK(cu.cuStreamSynchronize(s));
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	for (int i = 0; i < 10000 && r == CUDA_ERROR_OUT_OF_MEMORY; i++) {
		r = cu.cuMemAllocAsync(&p, 40 * MIB, s);
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	OK(r);
	give(s, p);
	finish();
}
END_TEST

/* Freed after the capture, while the graph can be launched: it stays, and comes back with the graph. */
START_TEST(a_block_of_a_graph_waits_for_it)
{
	CUstream s = start("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	const size_t size = 8 * MIB;
	begin(s);
	CUdeviceptr y = get(s, size);
	fill(s, y, size, 7);
	CUgraphExec x = end_to_exec(s);
	launch(x, s);
	holds(s, y, size, 7);
	give(s, y);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(y, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(y, t));
	CUdeviceptr e[8];
	for (int i = 0; i < 8; i++) {
		e[i] = get(i % 2 ? s : t, size);
		ck_assert(apart(e[i], size, y, size));
		fill(i % 2 ? s : t, e[i], size, 50 + (unsigned)i);
	}
	launch(x, s);
	for (int i = 0; i < 8; i++)
		holds(i % 2 ? s : t, e[i], size, 50 + (unsigned)i);
	give(s, y); /* it was allocated anew by the launch */
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(y, s));
	for (int i = 0; i < 8; i++)
		give(i % 2 ? s : t, e[i]);
	OK(cu.cuGraphExecDestroy(x));
	/* and one that is freed only when the graph is gone */
	begin(s);
	y = get(s, size);
	CUdeviceptr z = get(s, 700);
	fill(s, y, size, 8);
	x = end_to_exec(s);
	launch(x, s);
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuGraphExecDestroy(x));
	holds(s, y, size, 8);
	give(t, y);
	give(t, z);
	finish();
}
END_TEST

/* What one graph left and another freed is for graphs alone, as long as any is there that may touch it. */
START_TEST(older_graphs_keep_what_was_theirs)
{
	CUstream s = start("256MiB");
	const size_t size = 8 * MIB;
	begin(s);
	CUdeviceptr a = get(s, size);
	fill(s, a, size, 1);
	CUgraphExec old = end_to_exec(s);
	begin(s);
	give(s, a);
	CUgraphExec middle = end_to_exec(s);
	begin(s);
	CUdeviceptr b = get(s, size); /* guessed to outlive its capture, as the first one did */
	fill(s, b, size, 2);
	CUgraphExec young = end_to_exec(s);
	ck_assert_uint_eq(a, b);
	launch(young, s);
	holds(s, b, size, 2);
	OK(cu.cuGraphExecDestroy(young));
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	give(s, b);
	CUdeviceptr e[4];
	for (int i = 0; i < 4; i++) {
		e[i] = get(s, size);
		ck_assert_msg(apart(e[i], size, a, size), "memory of a graph that is still there was given away");
	}
	launch(old, s);
	for (int i = 0; i < 4; i++)
		give(s, e[i]);
	OK(cu.cuStreamSynchronize(s));
	/* it comes back once the driver has told that its graph is gone */
	CUdeviceptr c = 0;
	for (int i = 0; i < 2000; i++) {
		begin(s);
		c = get(s, size);
		if (c == a)
			break;
		OK(cu.cuGraphExecDestroy(end_to_exec(s)));
		give(s, c);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	ck_assert_uint_eq(c, a);
	fill(s, c, size, 3);
	CUgraphExec third = end_to_exec(s);
	/* the same, freed while its graph is there and while its stream has work to do */
	struct gate gate = {0};
	gate_on(s, &gate);
	give(s, c);
	OK(cu.cuGraphExecDestroy(third));
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	for (int i = 0; i < 4; i++) {
		e[i] = get(s, size);
		ck_assert_msg(apart(e[i], size, a, size), "memory of a graph that is still there was given away");
	}
	gate_open(&gate);
	for (int i = 0; i < 4; i++)
		give(s, e[i]);
	OK(cu.cuGraphExecDestroy(old));
	OK(cu.cuGraphExecDestroy(middle));
	finish();
}
END_TEST

/* ---- many graphs ---- */

#ifdef __SANITIZE_THREAD__ /* which is slow where much memory is written, and this has one thread */
#define GRAPHS 12
#else
#define GRAPHS 60
#endif

START_TEST(many_graphs_share)
{
	CUstream s = start("1GiB");
	CUgraphExec x[GRAPHS];
	CUdeviceptr out[GRAPHS], in = get(s, 512);
	size_t outs = 0, base = (size_t)fake.used(0);
	for (unsigned g = 0; g < GRAPHS; g++) { /* the largest last */
		size_t size = (g + 1) * (MIB / 4);
		size_t some = g % 10 ? 4096 : size; /* what is written of it: of every tenth, all */
		begin(s);
		CUdeviceptr hidden = get(s, size);
		fill(s, hidden, some, g);
		for (int layer = 0; layer < 8; layer++) {
			CUdeviceptr next = get(s, size), scratch = get(s, 2 * size);
			fill(s, scratch, some, 77);
			fill(s, scratch + 2 * size - some, some, 77);
			copy(s, next, hidden, some);
			give(s, scratch);
			give(s, hidden);
			hidden = next;
		}
		out[g] = get(s, 4096);
		copy(s, out[g], hidden, 4096);
		give(s, hidden);
		x[g] = end_to_exec(s);
		outs += 4096;
	}
	/* two blocks and the scratch of the largest; holes do not fit exactly */
	size_t most = base + GRAPHS * (MIB / 4) * 4 * 10 / 9 + outs + 4 * MIB;
	ck_assert_uint_le(fake.used(0), most);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned g = 0; g < GRAPHS; g++) {
			launch(x[g], s);
			holds(s, out[g], 4096, g);
		}
	ck_assert_uint_le(fake.used(0), most);
	for (unsigned g = 0; g < GRAPHS; g++) {
		give(s, out[g]);
		OK(cu.cuGraphExecDestroy(x[g]));
	}
	give(s, in);
	finish();
}
END_TEST

/* A graph whose work takes the same temporary memory as that of others, with what it must leave in `out`. */
START_TEST(launches_on_two_streams_take_turns)
{
	CUstream s = start("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	struct job a = make_job(s, 1), b = make_job(s, 2);
	/* one stream: no call of the driver; the default stream: that of which context */
	for (int of_context = 0; of_context < 2; of_context++) {
		CUstream one = of_context ? NULL : s;
		for (int i = 0; i < 100; i++)
			launch(a.exec, one);
		long records = fake.calls("cuEventRecord"), waits = fake.calls("cuStreamWaitEvent"),
		     ids = fake.calls("cuStreamGetId"), contexts = fake.calls("cuCtxGetCurrent");
		for (int i = 0; i < 10; i++) {
			launch(a.exec, one);
			launch(b.exec, one);
		}
		ck_assert_int_eq(fake.calls("cuEventRecord"), records);
		ck_assert_int_eq(fake.calls("cuStreamWaitEvent"), waits);
		ck_assert_int_eq(fake.calls("cuStreamGetId"), ids);
		ck_assert_int_eq(fake.calls("cuCtxGetCurrent"), contexts + (under() ? 20 * of_context : 0));
	}
	OK(cu.cuStreamSynchronize(NULL));
	fake.delay(300);
	for (int i = 0; i < 20; i++) {
		fill(s, a.out, JOB_BYTES, 0);
		fill(t, b.out, JOB_BYTES, 0);
		launch(a.exec, s);
		launch(b.exec, t);
		holds(s, a.out, JOB_BYTES, 1);
		holds(t, b.out, JOB_BYTES, 2);
	}
	fake.delay(0);
	give(s, a.out);
	give(s, b.out);
	OK(cu.cuGraphExecDestroy(a.exec));
	OK(cu.cuGraphExecDestroy(b.exec));
	finish();
}
END_TEST

/* All are called NULL. */
START_TEST(default_streams_of_two_contexts_take_turns)
{
	CUstream s = start("256MiB");
	CUcontext context[2];
	struct job j[2] = {make_job(s, 1), make_job(s, 2)};
	OK(cu.cuCtxGetCurrent(&context[0]));
	for (int round = 0; round < 3; round++) {
		OK(cu.cuCtxCreate_v2(&context[1], 0, 0));
		OK(cu.cuCtxSetCurrent(context[0]));
		for (int i = 0; i < 100; i++) /* by now it is expected again */
			launch(j[0].exec, NULL);
		OK(cu.cuCtxSynchronize());
		for (int i = 0; i < 2; i++)
			fill(s, j[i].out, JOB_BYTES, 0);
		OK(cu.cuStreamSynchronize(s));
		fake.delay(3000);
		for (int i = 0; i < 4; i++) {
			OK(cu.cuCtxSetCurrent(context[i % 2]));
			launch(j[i % 2].exec, NULL);
		}
		for (int i = 1; i >= 0; i--) {
			OK(cu.cuCtxSetCurrent(context[i]));
			OK(cu.cuCtxSynchronize());
		}
		fake.delay(0);
		for (int i = 0; i < 2; i++)
			holds(s, j[i].out, JOB_BYTES, j[i].value);
		OK(cu.cuCtxDestroy_v2(context[1]));
		OK(cu.cuCtxSetCurrent(context[0]));
	}
	for (int i = 0; i < 2; i++) {
		give(s, j[i].out);
		OK(cu.cuGraphExecDestroy(j[i].exec));
	}
	finish();
}
END_TEST

/* The driver destroys no executable beside a capture: it can be launched from then on as before. */
START_TEST(what_is_not_destroyed_takes_turns)
{
	CUstream s = start("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	struct job a = make_job(s, 1), b = make_job(s, 2);
	CUgraph g;
	begin(t);
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuGraphExecDestroy(a.exec));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuGraphExecDestroy(b.exec));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(t, &g));
	fake.delay(300);
	for (int i = 0; i < 10; i++) {
		launch(a.exec, s);
		launch(b.exec, t);
		holds(s, a.out, JOB_BYTES, 1);
		holds(t, b.out, JOB_BYTES, 2);
	}
	fake.delay(0);
	give(s, a.out);
	give(s, b.out);
	OK(cu.cuGraphExecDestroy(a.exec));
	OK(cu.cuGraphExecDestroy(b.exec));
	finish();
}
END_TEST

/* The stream of the last launch cannot be asked any more: it has ended, it captures, or both. */
static void launch_after(bool captures, bool ends)
{
	CUstream s = start("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING), u = new_stream(CU_STREAM_NON_BLOCKING);
	struct job a = make_job(s, 1), b = make_job(s, 2);
	CUgraph g = NULL;
	OK(cu.cuStreamSynchronize(s));
	fake.delay(3000);
	launch(a.exec, u);
	if (captures)
		OK(cu.cuStreamBeginCapture_v2(u, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (captures && ends)
		g = end(u);
	if (ends)
		OK(cu.cuStreamDestroy_v2(u));
	launch(b.exec, t);
	OK(cu.cuStreamSynchronize(t));
	fake.delay(0);
	if (captures && !ends)
		g = end(u);
	holds(t, b.out, JOB_BYTES, 2);
	holds(t, a.out, JOB_BYTES, 1);
	if (g)
		OK(cu.cuGraphDestroy(g));
	give(s, a.out);
	give(s, b.out);
	OK(cu.cuGraphExecDestroy(a.exec));
	OK(cu.cuGraphExecDestroy(b.exec));
	finish();
}

START_TEST(the_last_stream_ends)
{
	launch_after(false, true);
}
END_TEST

START_TEST(the_last_stream_captures)
{
	launch_after(true, false);
}
END_TEST

START_TEST(the_last_stream_captures_and_ends)
{
	launch_after(true, true);
}
END_TEST

/* Nobody tells that it does. */
START_TEST(the_last_stream_joins_a_capture)
{
	CUstream s = start("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING), u = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent fork = new_event(), join = new_event();
	struct job a = make_job(s, 1), b = make_job(s, 2);
	OK(cu.cuStreamSynchronize(s));
	for (int before = 0; before < 2; before++) {
		fill(s, a.out, JOB_BYTES, 0);
		fill(s, b.out, JOB_BYTES, 0);
		OK(cu.cuStreamSynchronize(s));
		fake.delay(3000);
		if (before)
			launch(a.exec, u);
		OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		if (!before)
			launch(a.exec, u);
		OK(cu.cuEventRecord(fork, s));
		OK(cu.cuStreamWaitEvent(u, fork, 0));
		launch(b.exec, t);
		OK(cu.cuStreamSynchronize(t));
		fake.delay(0);
		OK(cu.cuEventRecord(join, u));
		OK(cu.cuStreamWaitEvent(s, join, 0));
		OK(cu.cuGraphDestroy(end(s)));
		holds(t, b.out, JOB_BYTES, 2);
		holds(u, a.out, JOB_BYTES, 1);
	}
	give(s, a.out);
	give(s, b.out);
	OK(cu.cuGraphExecDestroy(a.exec));
	OK(cu.cuGraphExecDestroy(b.exec));
	finish();
}
END_TEST

struct launcher {
	pthread_t thread;
	CUcontext context;
	struct job job;
	bool own_default; /* stream of the thread */
};

static void *launch_many(void *arg)
{
	struct launcher *l = arg;
	OK(cu.cuCtxSetCurrent(l->context));
	CUstream s = l->own_default ? CU_STREAM_PER_THREAD : new_stream(CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 30; i++) {
		fill(s, l->job.out, JOB_BYTES, 0);
		if (l->own_default)
			OK(cu.cuGraphLaunch_ptsz(l->job.exec, NULL));
		else
			launch(l->job.exec, s);
		holds(s, l->job.out, JOB_BYTES, l->job.value);
	}
	if (!l->own_default)
		OK(cu.cuStreamDestroy_v2(s));
	return NULL;
}

START_TEST(threads_launch_at_once)
{
	CUstream s = start("256MiB");
	struct launcher l[4];
	for (unsigned i = 0; i < 4; i++) {
		l[i] = (struct launcher){.job = make_job(s, 10 + i), .own_default = i % 2};
		OK(cu.cuCtxGetCurrent(&l[i].context));
	}
	OK(cu.cuStreamSynchronize(s));
	fake.delay(100);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&l[i].thread, NULL, launch_many, &l[i]), 0);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(l[i].thread, NULL);
		give(s, l[i].job.out);
		OK(cu.cuGraphExecDestroy(l[i].job.exec));
	}
	finish();
}
END_TEST

/* ---- captures that go wrong, and what goes on beside them ---- */

START_TEST(an_invalid_capture_leaves_nothing)
{
	CUstream s = start("256MiB");
	for (int i = 0; i < 3; i++) {
		CUdeviceptr p, q;
		CUgraph g = (CUgraph)1;
		begin(s);
		p = get(s, 5 * MIB);
		q = get(s, 900);
		give(s, p);
		FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(s));
		FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuMemAllocAsync(&p, 512, s));
		CUresult r = cu.cuMemFreeAsync(q, s); /* or when it is over */
		FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(s, &g));
		ck_assert_ptr_null(g);
		if (r != CUDA_SUCCESS)
			give(s, q);
		p = get(s, 5 * MIB);
		fill(s, p, 5 * MIB, 3);
		holds(s, p, 5 * MIB, 3);
		give(s, p);
	}
	/* one that ends with its stream */
	CUstream t = new_stream(CU_STREAM_NON_BLOCKING);
	begin(t);
	CUdeviceptr p = get(t, 5 * MIB);
	give(t, p);
	OK(cu.cuStreamDestroy_v2(t));
	finish();
}
END_TEST

static CUcontext context_of_test;

static void *end_in_thread(void *stream)
{
	CUgraph g;
	OK(cu.cuCtxSetCurrent(context_of_test));
	FAILS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cu.cuStreamEndCapture(stream, &g));
	return NULL;
}

/* Which is an error, and the end. */
START_TEST(an_end_in_the_wrong_thread)
{
	CUstream s = start("64MiB");
	OK(cu.cuCtxGetCurrent(&context_of_test));
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		CUgraph g;
		OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		CUdeviceptr p = get(s, 20 * MIB), q = get(s, 900);
		give(s, p);
		ck_assert_int_eq(pthread_create(&thread, NULL, end_in_thread, s), 0);
		pthread_join(thread, NULL);
		FAILS(401, cu.cuStreamEndCapture(s, &g));
		give(s, q);
		p = get(s, 40 * MIB);
		fill(s, p, 4096, 3);
		holds(s, p, 4096, 3);
		give(s, p);
	}
	finish();
}
END_TEST

static _Atomic bool stop;

/* Ordinary work on other streams, with more memory than is free, so that events are asked. */
static void *work_beside(void *arg)
{
	OK(cu.cuCtxSetCurrent(arg));
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING), t = new_stream(CU_STREAM_NON_BLOCKING);
	for (unsigned i = 1; !stop; i++) {
		CUdeviceptr p = get(s, 20 * MIB), q = get(t, 3000);
		fill(s, p, 4096, i);
		fill(t, q, 3000 & ~3u, i);
		unsigned word = 0;
		OK(cu.cuMemcpyDtoHAsync_v2(&word, p, 4, s));
		give(s, p);
		give(t, q);
		p = get(t, 30 * MIB);
		give(t, p);
	}
	OK(cu.cuStreamDestroy_v2(s));
	OK(cu.cuStreamDestroy_v2(t));
	return NULL;
}

START_TEST(others_go_on_meanwhile)
{
	CUstream s = start("128MiB");
	CUcontext context;
	pthread_t thread;
	OK(cu.cuCtxGetCurrent(&context));
	ck_assert_int_eq(pthread_create(&thread, NULL, work_beside, context), 0);
	for (unsigned i = 0; i < 40; i++) {
		/* of the thread, relaxed, and (which the driver alone does not allow) global */
		OK(cu.cuStreamBeginCapture_v2(s, (i + 1) % (under() ? 3 : 2) + !under()));
		CUdeviceptr a = get(s, 10 * MIB), b = get(s, 2000), c = get(s, 4 * MIB);
		fill(s, a, 4096, i);
		copy(s, c, a, 4096);
		give(s, a);
		give(s, b);
		CUgraphExec x = end_to_exec(s);
		launch(x, s);
		holds(s, c, 4096, i);
		give(s, c);
		OK(cu.cuGraphExecDestroy(x));
	}
	stop = true;
	pthread_join(thread, NULL);
	finish();
}
END_TEST

START_TEST(out_of_memory_in_a_capture)
{
	CUstream s = start("64MiB");
	CUdeviceptr p, q = get(s, 20 * MIB);
	begin(s);
	CUdeviceptr a = get(s, 10 * MIB);
	fill(s, a, 10 * MIB, 4);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 60 * MIB, s));
	give(s, a);
	CUdeviceptr b = get(s, 10 * MIB);
	fill(s, b, 10 * MIB, 5);
	CUgraphExec x = end_to_exec(s);
	launch(x, s);
	holds(s, b, 10 * MIB, 5);
	give(s, b);
	give(s, q);
	OK(cu.cuGraphExecDestroy(x));
	finish();
}
END_TEST

/* What was freed on a stream before it captures can be used by the capture, and by others meanwhile. */
START_TEST(frees_from_before_the_capture)
{
	CUstream s = start("64MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p = get(s, 50 * MIB);
	give(s, p);
	begin(s);
	CUdeviceptr a = get(s, 30 * MIB);
	give(s, a);
	CUgraphExec x = end_to_exec(s);
	OK(cu.cuGraphExecDestroy(x));
	ck_assert(comes_down_to(0));
	p = get(s, 50 * MIB);
	give(s, p);
	begin(s);
	CUdeviceptr b = get(t, 50 * MIB);
	CUgraph g = end(s);
	OK(cu.cuGraphDestroy(g));
	give(t, b);
	ck_assert(comes_down_to(0));
	/* also when it was so little that no event was worth it */
	b = get(t, 58 * MIB);
	p = get(s, 3 * MIB);
	give(s, p);
	begin(s);
	a = get(s, 3 * MIB);
	give(s, a);
	OK(cu.cuGraphDestroy(end(s)));
	give(t, b);
	finish();
}
END_TEST

/* A capture takes what it needs of free memory, and no more. */
START_TEST(free_memory_stays_free_beside_graphs)
{
	CUstream s = start("128MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p = get(s, 120 * MIB);
	give(s, p);
	OK(cu.cuStreamSynchronize(s));
	CUgraphExec x[8];
	CUdeviceptr kept[8];
	for (int i = 0; i < 8; i++) {
		begin(s);
		CUdeviceptr a = get(s, 20 * MIB), b = get(s, 10 * MIB);
		kept[i] = get(s, 512 * 3);
		give(s, a);
		give(s, b);
		x[i] = end_to_exec(s);
	}
	p = get(t, 80 * MIB); /* beside 30, and 2 for what is kept */
	give(t, p);
	for (int i = 0; i < 8; i++) {
		give(s, kept[i]);
		OK(cu.cuGraphExecDestroy(x[i]));
	}
	finish();
}
END_TEST

START_TEST(what_no_capture_allocated_is_not_freed_in_one)
{
	CUstream s = start("64MiB");
	CUdeviceptr p = get(s, 3 * MIB), q = get(s, 600);
	begin(s);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(p, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(q, s));
	CUdeviceptr a = get(s, 3 * MIB);
	give(s, a);
	OK(cu.cuGraphDestroy(end(s)));
	give(s, p);
	give(s, q);
	finish();
}
END_TEST

/* ---- graphs in graphs, copies, updates ---- */

/* With graphs:off all of this is the driver's. */
START_TEST(left_to_the_driver)
{
	setenv("CLEAVE_CONF", "graphs:off", 1);
	CUstream s = start("128MiB");
	CUdeviceptr in = get(s, 4096);
	long nodes = fake.calls("cuMemAllocAsync");
	begin(s);
	CUdeviceptr x = get(s, 4 * MIB), y = get(s, 4096);
	ck_assert_int_eq(fake.calls("cuMemAllocAsync"), nodes + 2);
	copy(s, x, in, 4096);
	copy(s, y, x, 4096);
	give(s, x);
	CUgraphExec exec = end_to_exec(s);
	fill(s, in, 4096, 31);
	launch(exec, s);
	holds(s, y, 4096, 31);
	give(s, y);
	give(s, in);
	OK(cu.cuGraphExecDestroy(exec));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(fake.faults(), 0);
}
END_TEST

/* The first three hold without the library as well. */
int main(void)
{
	const TTest *const tests[] = {captures_and_replays,
				      others_go_on_meanwhile,
				      left_to_the_driver,
				      an_invalid_capture_leaves_nothing,
				      reuses_within_one_branch_alone,
				      memory_comes_back_with_the_graph,
				      a_block_of_a_graph_waits_for_it,
				      older_graphs_keep_what_was_theirs,
				      an_end_in_the_wrong_thread,
				      many_graphs_share,
				      launches_on_two_streams_take_turns,
				      default_streams_of_two_contexts_take_turns,
				      what_is_not_destroyed_takes_turns,
				      the_last_stream_ends,
				      the_last_stream_captures,
				      the_last_stream_captures_and_ends,
				      the_last_stream_joins_a_capture,
				      threads_launch_at_once,
				      out_of_memory_in_a_capture,
				      frees_from_before_the_capture,
				      free_memory_stays_free_beside_graphs,
				      what_no_capture_allocated_is_not_freed_in_one};
	return check_main_run("graphs", tests, under() ? sizeof(tests) / sizeof(tests[0]) : 3);
}
