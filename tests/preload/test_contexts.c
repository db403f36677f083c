/* SPDX-License-Identifier: MIT
 *
 * Contexts that are destroyed while streams of others capture, under libcleave-preload.so with serve:all and the test
 * double: what the work of a context touches is nobody else's before that work is done. The last one works at random, in
 * several threads; CLEAVE_SEED and CLEAVE_ROUNDS say how.
 */
#include "graphs_rig.h"

#include "../../src/base/base.h"

static CUcontext primary;

static CUstream begin_all(const char *memory)
{
	setenv("CLEAVE_CONF", "serve:all", 1);
	CUstream s = start(memory);
	OK(cu.cuCtxGetCurrent(&primary));
	return s;
}

/* A free waits for the device, and what waited before it comes back. */
static void settle(void)
{
	CUdeviceptr p;
	OK(cu.cuMemAlloc_v2(&p, 512));
	OK(cu.cuMemFree_v2(p));
}

/* ---- one context goes ---- */

static void *destroy(void *context)
{
	OK(cu.cuCtxSetCurrent(primary));
	OK(cu.cuCtxDestroy_v2(context));
	return NULL;
}

static void *open_later(void *gate)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
	gate_open(gate);
	return NULL;
}

enum way { FREED_ON_A_STREAM, FREED_WITH_THE_CONTEXT, FREED_BY_CALL };

/* The context's work waits at a gate, and writes a block that has been freed, or goes with the context. Nobody gets the block
 * before that is done, also when the capture is over meanwhile. */
static void goes_beside_a_capture(enum way way, bool capture_ends)
{
	CUstream s = begin_all("128MiB");
	CUcontext other;
	CUgraph g = NULL;
	pthread_t thread, opener;
	struct gate gate = {0};
	CUdeviceptr p = 0, more[6];
	OK(cu.cuCtxCreate_v2(&other, 0, 0));
	CUstream t = new_stream(CU_STREAM_NON_BLOCKING);
	gate_on(t, &gate);
	if (way == FREED_ON_A_STREAM)
		p = get(t, 16 * MIB);
	else
		OK(cu.cuMemAlloc_v2(&p, 16 * MIB));
	fill(t, p, 16 * MIB, 1);
	if (way == FREED_ON_A_STREAM)
		give(t, p);
	OK(cu.cuCtxSetCurrent(primary));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (way == FREED_BY_CALL) {
		CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
		OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
		OK(cu.cuMemFree_v2(p));
		OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, destroy, other), 0);
	ck_assert_int_eq(pthread_create(&opener, NULL, open_later, &gate), 0);
	nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
	if (capture_ends)
		g = end(s);
	CUstream u = new_stream(CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 6; i++) {
		more[i] = get(u, 16 * MIB);
		fill(u, more[i], 16 * MIB, 10 + (unsigned)i);
	}
	OK(cu.cuMemPoolTrimTo(pool, 0)); /* nor is it taken away */
	pthread_join(opener, NULL);
	pthread_join(thread, NULL);
	if (!capture_ends)
		g = end(s);
	for (int i = 0; i < 6; i++) {
		holds(u, more[i], 16 * MIB, 10 + (unsigned)i);
		give(u, more[i]);
	}
	OK(cu.cuGraphDestroy(g));
	settle();
	finish();
}

START_TEST(a_block_that_was_freed_on_a_stream)
{
	goes_beside_a_capture(FREED_ON_A_STREAM, false);
}
END_TEST

START_TEST(a_block_that_was_freed_on_a_stream_and_the_capture_ends)
{
	goes_beside_a_capture(FREED_ON_A_STREAM, true);
}
END_TEST

START_TEST(a_plain_block_goes_with_its_context)
{
	goes_beside_a_capture(FREED_WITH_THE_CONTEXT, false);
}
END_TEST

START_TEST(a_plain_block_goes_with_its_context_and_the_capture_ends)
{
	goes_beside_a_capture(FREED_WITH_THE_CONTEXT, true);
}
END_TEST

START_TEST(a_plain_block_that_was_freed)
{
	goes_beside_a_capture(FREED_BY_CALL, false);
}
END_TEST

START_TEST(a_plain_block_that_was_freed_and_the_capture_ends)
{
	goes_beside_a_capture(FREED_BY_CALL, true);
}
END_TEST

/* ---- waits ---- */

static void *free_plain(void *block)
{
	OK(cu.cuCtxSetCurrent(primary));
	OK(cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)block));
	return NULL;
}

/* What a thread waits for may come of what another one does only after it has captured. */
START_TEST(a_capture_begins_while_a_thread_waits)
{
	CUstream s = begin_all("128MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p;
	pthread_t thread;
	struct gate gate = {0};
	OK(cu.cuMemAlloc_v2(&p, 16 * MIB));
	gate_on(t, &gate);
	fill(t, p, 16 * MIB, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, free_plain, (void *)(uintptr_t)p), 0);
	nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cu.cuGraphDestroy(end(s)));
	gate_open(&gate);
	pthread_join(thread, NULL);
	finish();
}
END_TEST

/* What was freed beside a capture is no reason for a request to wait for the device, on which work may need what the thread does
 * next. Where memory is short it comes back. */
START_TEST(a_request_does_not_wait_for_a_plain_block)
{
	CUstream s = begin_all("128MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p, q;
	struct gate gate = {0};
	OK(cu.cuMemAlloc_v2(&p, 64 * MIB));
	gate_on(t, &gate);
	fill(t, p, 64 * MIB, 1);
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
	OK(cu.cuMemFree_v2(p));
	OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
	OK(cu.cuGraphDestroy(end(s)));
	give(s, get(s, 4096));
	OK(cu.cuMemAlloc_v2(&q, 4096)); /* nor does that of another kind */
	gate_open(&gate);
	p = get(s, 100 * MIB);
	give(s, p);
	OK(cu.cuMemFree_v2(q));
	finish();
}
END_TEST

/* Libraries retain the primary context for a while. It goes with the last of them, which waits for its work; no other one does. */
START_TEST(a_release_does_not_wait_unless_it_is_the_last)
{
	CUstream s = begin_all("128MiB");
	CUdeviceptr p = get(s, 4096);
	CUcontext again;
	pthread_t opener;
	struct gate gate = {0};
	OK(cu.cuDevicePrimaryCtxRetain(&again, 0));
	gate_on(s, &gate);
	fill(s, p, 4096, 3);
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	ck_assert_int_eq(__atomic_load_n(&gate.open, __ATOMIC_ACQUIRE), 0);
	give(s, p);
	ck_assert_int_eq(pthread_create(&opener, NULL, open_later, &gate), 0);
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	ck_assert_int_eq(__atomic_load_n(&gate.open, __ATOMIC_ACQUIRE), 1);
	pthread_join(opener, NULL);
	ck_assert_int_eq(fake.faults(), 0);
}
END_TEST

/* ---- at random ---- */

#define THREADS 4
#define BLOCKS 24

struct block {
	CUdeviceptr p;
	size_t size;
	unsigned value;
	bool plain;
	CUstream stream; /* of the context of the round */
};

struct worker {
	pthread_t thread;
	struct clv_rng rng;
	CUstream stream[3];
	struct block block[BLOCKS];
	unsigned count, value, rounds;
	CUdeviceptr handed; /* of a context that is gone */
};

static unsigned below(struct worker *w, unsigned n)
{
	return (unsigned)clv_rng_below(&w->rng, n);
}

static size_t some_size(struct worker *w)
{
	size_t size = below(w, 3) ? (size_t)512 << below(w, 6) : MIB / 2 * (1 + below(w, 10));
	return size;
}

/* The first and last words. */
static void look(CUstream s, const struct block *b)
{
	unsigned first = 0, last = 0;
	OK(cu.cuMemcpyDtoHAsync_v2(&first, b->p, 4, s));
	OK(cu.cuMemcpyDtoHAsync_v2(&last, b->p + b->size - 4, 4, s));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_msg(first == b->value && last == b->value, "%#llx of %zu holds %u and %u, not %u", b->p, b->size,
		      first, last, b->value);
}

static void write_block(struct block *b)
{
	fill(b->stream, b->p, 512, b->value);
	fill(b->stream, b->p + b->size - 512, 512, b->value);
}

static void allocate(struct worker *w)
{
	if (w->count == BLOCKS)
		return;
	struct block b = {
		.size = some_size(w), .plain = !below(w, 3), .stream = w->stream[below(w, 3)], .value = ++w->value};
	CUresult r = b.plain ? cu.cuMemAlloc_v2(&b.p, b.size) : cu.cuMemAllocAsync(&b.p, b.size, b.stream);
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		return;
	OK(r);
	write_block(&b);
	w->block[w->count++] = b;
}

static void let_go(struct worker *w, bool checked)
{
	if (!w->count)
		return;
	unsigned at = below(w, w->count);
	struct block b = w->block[at];
	w->block[at] = w->block[--w->count];
	if (checked)
		look(b.stream, &b);
	else
		write_block(&b); /* under way when it is freed */
	if (b.plain && below(w, 2))
		OK(cu.cuMemFree_v2(b.p));
	else
		give(b.stream, b.p);
}

#define OUT 768 /* as no other block */

static void capture(struct worker *w)
{
	CUstream s = w->stream[below(w, 3)];
	size_t size = 2 * OUT + some_size(w);
	CUdeviceptr out, a;
	OK(cu.cuMemAlloc_v2(&out, OUT));
	OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUresult r = cu.cuMemAllocAsync(&a, size, s);
	if (r == CUDA_SUCCESS) {
		fill(s, a, OUT, ++w->value);
		copy(s, out, a, OUT);
		give(s, a);
	}
	if (!below(w, 3))
		nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
	CUgraphExec x = end_to_exec(s);
	if (r == CUDA_SUCCESS) {
		launch(x, s);
		look(s, &(struct block){.p = out, .size = OUT, .value = w->value});
	}
	OK(cu.cuGraphExecDestroy(x));
	OK(cu.cuMemFree_v2(out));
}

/* One context from its beginning to its end, with work under way. */
static void live_and_die(struct worker *w)
{
	CUcontext context;
	struct block kept = {0};
	CUstream kept_stream;
	OK(cu.cuCtxCreate_v2(&context, 0, 0));
	for (int i = 0; i < 3; i++)
		w->stream[i] = new_stream(i ? CU_STREAM_NON_BLOCKING : 0);
	for (unsigned i = 0, n = 5 + below(w, 25); i < n; i++) {
		unsigned what = below(w, 20);
		if (what < 9)
			allocate(w);
		else if (what < 16)
			let_go(w, what < 12);
		else if (what < 18)
			capture(w);
		else if (what < 19)
			OK(cu.cuMemPoolTrimTo(pool, 0));
		else {
			unsigned at = below(w, 3);
			if (!w->count)
				OK(cu.cuStreamDestroy_v2(w->stream[at]));
			if (!w->count)
				w->stream[at] = new_stream(CU_STREAM_NON_BLOCKING);
		}
	}
	/* stream-ordered blocks outlive the context, plain ones go with it */
	for (unsigned i = 0; i < w->count; i++) {
		struct block *b = &w->block[i];
		write_block(b);
		if (!b->plain && !kept.p && below(w, 2))
			kept = *b;
		else if (!b->plain)
			give(b->stream, b->p);
	}
	w->count = 0;
	if (!below(w, 6)) { /* a capture that nobody ends, and a stream that has joined it */
		CUdeviceptr a;
		CUevent fork = new_event();
		OK(cu.cuStreamBeginCapture_v2(w->stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cu.cuEventRecord(fork, w->stream[1]));
		OK(cu.cuStreamWaitEvent(w->stream[2], fork, 0));
		if (cu.cuMemAllocAsync(&a, 4096, w->stream[2]) == CUDA_SUCCESS)
			give(w->stream[2], a);
	}
	OK(cu.cuCtxDestroy_v2(context));
	OK(cu.cuCtxSetCurrent(primary));
	if (!kept.p)
		return;
	kept_stream = new_stream(CU_STREAM_NON_BLOCKING);
	look(kept_stream, &kept);
	give(kept_stream, kept.p);
	OK(cu.cuStreamDestroy_v2(kept_stream));
}

static void *work(void *arg)
{
	struct worker *w = arg;
	OK(cu.cuCtxSetCurrent(primary));
	for (unsigned i = 0; i < w->rounds; i++)
		live_and_die(w);
	return NULL;
}

static unsigned from_env(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);
	return text ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

START_TEST(contexts_come_and_go_at_random)
{
	unsigned seed = from_env("CLEAVE_SEED", 1), rounds = from_env("CLEAVE_ROUNDS", 12);
	CUstream s = begin_all("96MiB");
	struct worker w[THREADS] = {0};
	fake.delay(from_env("CLEAVE_DELAY", 60));
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.rng = {seed * 100 + i}, .value = (i + 1) * 1000000, .rounds = rounds};
		ck_assert_int_eq(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	fake.delay(0);
	ck_assert_msg(!fake.faults(), "seed %u: %ld faults", seed, fake.faults());
	OK(cu.cuStreamDestroy_v2(s));
	settle();
	finish();
}
END_TEST

CHECK_MAIN("contexts", a_block_that_was_freed_on_a_stream, a_block_that_was_freed_on_a_stream_and_the_capture_ends,
	   a_plain_block_goes_with_its_context, a_plain_block_goes_with_its_context_and_the_capture_ends,
	   a_plain_block_that_was_freed, a_plain_block_that_was_freed_and_the_capture_ends,
	   a_capture_begins_while_a_thread_waits, a_request_does_not_wait_for_a_plain_block,
	   a_release_does_not_wait_unless_it_is_the_last, contexts_come_and_go_at_random)
