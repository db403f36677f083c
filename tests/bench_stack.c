/* SPDX-License-Identifier: MIT
 *
 * What it costs to capture 16 native frames and to find their number: from one place, and from 256 in turn. The limit
 * is the one that the recorder is made for. Python's part is measured by test_stack_python.py.
 */
#include "../tracing/record/stack.h"
#include "check_main.h"

#include <stdio.h>
#include <time.h>

#define SLICES 40
#define SLICE 2000
#define LIMIT_NS 1500.0

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static volatile unsigned kept;
static uint32_t last_id;
static unsigned frames;

static __attribute__((noinline, noclone)) void capture(void)
{
	struct clv_stack s;
	clv_stack_capture(&s, 0);
	last_id = clv_stack_id(&s);
	frames = s.native_count;
	kept++;
}

static __attribute__((noinline, noclone)) void other(unsigned depth, unsigned path);

static __attribute__((noinline, noclone)) void one(unsigned depth, unsigned path)
{
	if (depth == 0)
		capture();
	else if (path & 1)
		one(depth - 1, path >> 1);
	else
		other(depth - 1, path >> 1);
	kept++;
}

static __attribute__((noinline, noclone)) void other(unsigned depth, unsigned path)
{
	if (depth == 0)
		capture();
	else if (path & 1)
		one(depth - 1, path >> 1);
	else
		other(depth - 1, path >> 1);
	kept++;
}

/* The best slice, a capture; `paths` (a power of two) different stacks in turn. */
static double measure(const char *what, unsigned paths)
{
	double best = 1e12;
	for (unsigned slice = 0; slice < SLICES; slice++) {
		double begin = now_ns();
		for (unsigned i = 0; i < SLICE; i++)
			one(12, i & (paths - 1));
		double took = (now_ns() - begin) / SLICE;
		best = took < best ? took : best;
	}
	printf("%-24s %7.1f ns, %u frames, %u stacks known\n", what, best, frames, clv_stack_count());
	ck_assert_uint_gt(last_id, 0);
	return best;
}

START_TEST(sixteen_frames)
{
	struct clv_stack_config config = {.native_max = 16, .python_max = 16};
	ck_assert(clv_stack_open(&config));
	double place = measure("one place", 1), places = measure("256 places", 256);
	ck_assert_uint_eq(frames, 16);
	ck_assert_uint_ge(clv_stack_count(), 256);
	ck_assert_double_le(place, LIMIT_NS);
	ck_assert_double_le(places, LIMIT_NS);
}
END_TEST

CHECK_MAIN("bench_stack", sixteen_frames)
