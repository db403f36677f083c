/* SPDX-License-Identifier: MIT
 *
 * What the hook of cuGraphLaunch adds to a launch, on the test double, whose launches are made to fail at once: nothing else
 * then works in the process, and the hook does what it does for every launch on the stream of the last one. The double's own
 * function and the hook take turns in short slices, of which the best count. The calls that the hook makes of the driver
 * are counted as well, and a part of what is added.
 */
#include "graphs_rig.h"

#define EXECS 60
#define SLICES 400
#define SLICE 1200 /* launches */
#define NATIVE_NS 2500.0 /* a small graph on an H200 */

typedef CUresult launch_fn(CUgraphExec exec, CUstream stream);

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds of a launch. `used`: so many KiB of other memory are touched between two. */
static double slice(launch_fn *fn, CUgraphExec *execs, size_t count, const CUstream *streams, size_t stream_count, size_t used)
{
	static unsigned char other[1 << 20];
	unsigned sum = 0;
	double begin = now_ns();
	for (size_t i = 0, x = 0; i < SLICE; i++, x = x + 1 < count ? x + 1 : 0) {
		fn(execs[x], streams[i % stream_count]);
		for (size_t k = 0; k < used * 1024; k += 64)
			sum += other[k]++;
	}
	double took = (now_ns() - begin) / SLICE;
	other[0] = (unsigned char)sum;
	return took;
}

static long driver_calls(void)
{
	static const char *const names[] = {"cuStreamGetId", "cuCtxGetCurrent", "cuEventRecord", "cuStreamWaitEvent"};
	long sum = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		sum += fake.calls(names[i]);
	return sum;
}

static void compare(const char *what, CUgraphExec *execs, size_t count, const CUstream *streams, size_t stream_count,
		      size_t used)
{
	launch_fn *own = (launch_fn *)(uintptr_t)fake.function("cuGraphLaunch");
	double best[2] = {1e12, 1e12};
	for (int i = 0; i < (used ? SLICES / 8 : SLICES); i++) {
		launch_fn *fn[2] = {own, cu.cuGraphLaunch};
		for (int way = 0; way < 2; way++) {
			double took = slice(fn[way], execs, count, streams, stream_count, used);
			best[way] = took < best[way] ? took : best[way];
		}
	}
	long calls = driver_calls();
	slice(cu.cuGraphLaunch, execs, count, streams, stream_count, 0);
	double each = (double)(driver_calls() - calls) / SLICE;
	printf("%-32s %6.1f ns added (%.1f to %.1f), x%.4f of %.1f us; calls of the driver: %.2f\n", what, best[1] - best[0],
	       best[0], best[1], 1 + (best[1] - best[0]) / NATIVE_NS, NATIVE_NS / 1000, each);
}

/* For streams of both kinds: the default one cannot be known by its name alone. */
static void compare_all(const char *stream_name, CUgraphExec *with, CUgraphExec *without, CUstream s)
{
	printf("cuGraphLaunch on %s\n", stream_name);
	for (int i = 0; i < 200; i++) /* as long as streams seem to take turns there is more to do */
		launch(with[0], s);
	OK(cu.cuCtxSynchronize());
	fake.set_failures("cuGraphLaunch:1+:1");
	compare("  one graph", with, 1, &s, 1, 0);
	compare("  60 graphs", with, EXECS, &s, 1, 0);
	compare("  60 graphs, caches used between", with, EXECS, &s, 1, 128);
	compare("  60 graphs without memory", without, EXECS, &s, 1, 0);
	fake.set_failures("");
}

START_TEST(launches)
{
	CUstream s = start("256MiB"), t = new_stream(CU_STREAM_NON_BLOCKING);
	CUgraphExec with[EXECS], without[EXECS];
	struct job j;
	for (unsigned i = 0; i < EXECS; i++) {
		j = make_job(s, i);
		with[i] = j.exec;
		begin(s);
		fill(s, j.out, JOB_BYTES, i);
		without[i] = end_to_exec(s);
	}
	CUstream both[2] = {s, t};
	compare_all("a stream", with, without, s);
	compare_all("the default stream", with, without, NULL);
	printf("cuGraphLaunch on two streams in turn\n");
	fake.set_failures("cuGraphLaunch:1+:1");
	compare("  60 graphs", with, EXECS, both, 2, 0);
}
END_TEST

CHECK_MAIN("bench_launch", launches)
