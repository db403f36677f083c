/* SPDX-License-Identifier: MIT
 *
 * A program under libcleave-preload.so that captures, launches and destroys graphs at random, beside ordinary work, over the
 * test double. Each graph computes its results from its input through temporary memory of its own; every block and every
 * result is looked at again much later, since nothing but its own graph may write it.
 */
#include "../../src/base/base.h"
#include "../check_main.h"
#include "../fakecuda_open.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define BLOCKS 24
#define GRAPHS 10
#define STREAMS 3
#define RESULTS 4

static struct clv_rng rng;
static CUstream streams[STREAMS], side;
static CUmemoryPool pool;
static uint64_t seed, step;

static struct block {
	CUdeviceptr ptr; /* 0: none */
	size_t size;
	unsigned value, stream;
} blocks[BLOCKS];

static struct made {
	CUgraph graph;    /* NULL: only the executable is left */
	CUgraphExec exec; /* NULL: none */
	CUdeviceptr input;
	CUstream stream; /* of the input's first work */
	struct block results[RESULTS]; /* value: 0 before the first launch */
	unsigned count, launched;      /* the value of its input when it was launched last */
} graphs[GRAPHS];

static unsigned pick(unsigned n)
{
	return (unsigned)clv_rng_below(&rng, n);
}

static CUdeviceptr get(CUstream s, size_t size)
{
	CUdeviceptr p = 0;
	CUresult r = cu.cuMemAllocAsync(&p, size, s);
	ck_assert_msg(!r || r == CUDA_ERROR_OUT_OF_MEMORY, "seed %llu step %llu: %d", (unsigned long long)seed,
		      (unsigned long long)step, r);
	return p;
}

static size_t some_size(void)
{
	size_t size = pick(3) ? 4096 + pick(200000) : 512 + (size_t)pick(5) * MIB + pick(3000);
	return size & ~(size_t)3;
}

/* The first, the last and one word in the middle. */
static void look(CUstream s, const struct block *b, unsigned value, const char *what)
{
	size_t at[3] = {0, (b->size / 8) * 4, b->size - 4};
	for (int i = 0; i < 3; i++) {
		unsigned word = ~value;
		OK(cu.cuMemcpyDtoHAsync_v2(&word, b->ptr + at[i], 4, s));
		OK(cu.cuStreamSynchronize(s));
		ck_assert_msg(word == value, "seed %llu step %llu: %s holds %u, not %u", (unsigned long long)seed,
			      (unsigned long long)step, what, word, value);
	}
}

static void allocate(void)
{
	struct block *b = &blocks[pick(BLOCKS)];
	if (b->ptr) {
		look(streams[b->stream], b, b->value, "a block");
		if (pick(2)) {
			OK(cu.cuMemFreeAsync(b->ptr, streams[b->stream]));
			b->ptr = 0;
		}
		return;
	}
	*b = (struct block){.size = some_size(), .value = 1 + pick(1000000), .stream = pick(STREAMS)};
	b->ptr = get(streams[b->stream], b->size);
	if (b->ptr)
		OK(cu.cuMemsetD32Async(b->ptr, b->value, b->size / 4, streams[b->stream]));
}

/* On one stream, or forked to a second one for a while: temporary blocks that are filled with noise or carry the input on,
 * and results that get the input, in an order that is the same for every graph of one kind. */
static void capture(struct made *m, unsigned kind)
{
	struct clv_rng before = rng;
	CUstream s = streams[pick(STREAMS)];
	CUevent fork = new_event(), join = new_event();
	CUdeviceptr temp[6] = {0};
	size_t size;
	rng.state = kind;
	*m = (struct made){.input = get(s, 4), .stream = s};
	if (!m->input)
		goto out;
	OK(cu.cuMemsetD32Async(m->input, 0, 1, s));
	OK(cu.cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)pick(3)));
	bool forked = pick(2);
	if (forked) {
		OK(cu.cuEventRecord(fork, s));
		OK(cu.cuStreamWaitEvent(side, fork, 0));
	}
	unsigned length = 4 + pick(12);
	for (unsigned i = 0; i < length; i++) {
		CUstream on = forked && pick(3) == 0 ? side : s;
		unsigned t = (on == side ? 3 : 0) + pick(3);
		size_t scale = 1 + clv_rng_below(&before, 3); /* graphs of one kind differ in size */
		CUdeviceptr from = m->input;
		for (unsigned k = on == side ? 3 : 0; k < (on == side ? 6 : 3); k++)
			from = temp[k] ? temp[k] : from;
		if (temp[t] && pick(2)) {
			OK(cu.cuMemFreeAsync(temp[t], on));
			temp[t] = 0;
		} else if (!temp[t] && pick(3) && (temp[t] = get(on, size = scale * some_size()))) {
			OK(cu.cuMemsetD32Async(temp[t], 0xdead0000 + i, size / 4, on));
			OK(cu.cuMemcpyDtoDAsync_v2(temp[t], from, 4, on));
		} else if (m->count < RESULTS) {
			struct block *b = &m->results[m->count];
			*b = (struct block){.size = 4096 * scale + 4 * (size_t)pick(1000)};
			b->ptr = get(on, b->size);
			if (!b->ptr)
				continue;
			m->count++;
			for (size_t at = 0; at < 3; at++) /* the words that are looked at */
				OK(cu.cuMemcpyDtoDAsync_v2(b->ptr + (at == 2 ? b->size - 4 : at * (b->size / 8) * 4),
							   from, 4, on));
		}
	}
	for (unsigned t = 0; t < 6; t++)
		if (temp[t])
			OK(cu.cuMemFreeAsync(temp[t], t < 3 ? s : side));
	if (forked) {
		OK(cu.cuEventRecord(join, side));
		OK(cu.cuStreamWaitEvent(s, join, 0));
	}
	OK(cu.cuStreamEndCapture(s, &m->graph));
	OK(cu.cuGraphInstantiateWithFlags(&m->exec, m->graph, 0));
out:
	OK(cu.cuEventDestroy_v2(fork));
	OK(cu.cuEventDestroy_v2(join));
	rng = before;
}

static void look_at_results(const struct made *m)
{
	for (unsigned i = 0; i < m->count && m->launched; i++)
		if (m->results[i].ptr)
			look(streams[0], &m->results[i], m->launched, "a result");
}

static void launch(struct made *m)
{
	CUstream s = streams[pick(STREAMS)];
	OK(cu.cuStreamSynchronize(s));
	OK(cu.cuStreamSynchronize(m->stream));
	m->launched = 1 + pick(1000000);
	OK(cu.cuMemsetD32Async(m->input, m->launched, 1, s));
	OK(cu.cuGraphLaunch(m->exec, s));
	OK(cu.cuStreamSynchronize(s));
}

static void destroy(struct made *m)
{
	if (m->exec && pick(2))
		look_at_results(m);
	bool first = pick(2);
	for (unsigned i = 0; i < m->count && first; i++)
		OK(cu.cuMemFreeAsync(m->results[i].ptr, streams[pick(STREAMS)]));
	if (m->graph)
		OK(cu.cuGraphDestroy(m->graph));
	if (m->exec)
		OK(cu.cuGraphExecDestroy(m->exec));
	for (unsigned i = 0; i < m->count && !first; i++)
		OK(cu.cuMemFreeAsync(m->results[i].ptr, streams[pick(STREAMS)]));
	if (m->input) {
		OK(cu.cuStreamSynchronize(m->stream));
		OK(cu.cuMemFreeAsync(m->input, streams[0]));
	}
	*m = (struct made){0};
}

static void work(uint64_t steps)
{
	for (step = 0; step < steps; step++) {
		struct made *m = &graphs[pick(GRAPHS)];
		unsigned r = pick(100);
		if (r < 45)
			allocate();
		else if (!m->exec)
			capture(m, 1 + pick(5));
		else if (r < 75)
			launch(m);
		else if (r < 85)
			look_at_results(m);
		else if (r < 90)
			destroy(m);
		else if (r < 95 && m->graph) {
			OK(cu.cuGraphDestroy(m->graph));
			m->graph = NULL;
		} else if (r < 97) {
			OK(cu.cuMemPoolTrimTo(pool, 0));
		}
	}
}

START_TEST(graphs_at_random)
{
	static const char *const memory[] = {"512MiB", "96MiB", "160MiB", "64MiB"};
	const char *more = getenv("CLEAVE_TEST_STEPS");
	seed = (uint64_t)_i;
	rng.state = seed;
	setenv("FAKE_CUDA_MEMORY", memory[_i % 4], 1);
	setenv("CLEAVE_CONF", "report:off", 1);
	start_cuda();
	OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	for (int i = 0; i < STREAMS; i++)
		streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
	side = new_stream(CU_STREAM_NON_BLOCKING);
	work(more ? strtoull(more, NULL, 0) : 250);
	OK(cu.cuCtxSynchronize());
	for (int i = 0; i < GRAPHS; i++) {
		look_at_results(&graphs[i]);
		destroy(&graphs[i]);
	}
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].ptr) {
			look(streams[blocks[i].stream], &blocks[i], blocks[i].value, "a block");
			OK(cu.cuMemFreeAsync(blocks[i].ptr, streams[blocks[i].stream]));
		}
	OK(cu.cuCtxSynchronize());
	for (int i = 0; i < 10000 && fake.used(0); i++) {
		OK(cu.cuMemPoolTrimTo(pool, 0));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	ck_assert_uint_eq(fake.used(0), 0);
	ck_assert_int_eq(fake.faults(), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = check_main_case("graphs_random");
	tcase_add_loop_test(tcase, graphs_at_random, 0, 8);
	return check_main_end("graphs_random", tcase);
}
