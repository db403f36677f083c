/* SPDX-License-Identifier: MIT
 *
 * threads/SIZE/T: T threads, each on a stream of its own, allocate and free blocks of one size in one heap. The time is
 * that of the wall, from the moment when all of them begin until the last is done, for each pair of all threads
 * together: threads that do not hinder each other take as many times less as there are processors for them.
 */
#include "bench.h"
#include "bench_memory.h"
#include "bench_team.h"

#define PAIRS 60000u /* of all threads together */
#define DEPTH 8u     /* blocks that a thread holds at once */

struct team {
	const struct clv_memory *memory;
	size_t size;
	unsigned threads;
};

static bool work(void *arg, unsigned number)
{
	const struct team *t = arg;
	struct clv_memory m = *t->memory;
	uint64_t blocks[DEPTH];
	bool ok = true;
	m.stream = (cleave_stream){number + 1, number + 1};
	for (unsigned done = 0; done < PAIRS / t->threads && ok; done += DEPTH) {
		for (unsigned i = 0; i < DEPTH; i++)
			ok &= (blocks[i] = clv_memory_alloc(&m, t->size)) != 0;
		for (unsigned i = 0; i < DEPTH; i++)
			if (blocks[i])
				clv_memory_free(&m, blocks[i]);
	}
	return ok;
}

static double run_team(void *arg)
{
	const struct team *t = arg;
	return clv_bench_team_run(&(struct clv_bench_team){.threads = t->threads, .arg = arg, .work = work});
}

static const unsigned thread_counts[] = {1, 2, 4};

enum { COUNTS = CLV_ARRAY_LEN(thread_counts) };

static bool bench_size(struct clv_bench *b, const char *size_name, size_t size)
{
	struct clv_memory memory[2];
	struct team teams[2][COUNTS];
	struct clv_bench_case cases[2][COUNTS], *run[2 * COUNTS];
	char names[COUNTS][CLV_BENCH_NAME];
	bool wanted[COUNTS], any = false;
	size_t total = 0;
	for (int k = 0; k < COUNTS; k++) {
		clv_bench_set_name(names[k], "threads/%s/%u", size_name, thread_counts[k]);
		wanted[k] = clv_bench_wants(b, names[k]);
		any |= wanted[k];
	}
	if (!any)
		return true;
	wanted[0] = true; /* what the others are compared with */
	if (!clv_memory_heap(&memory[0]))
		return clv_bench_fail(b, "the heap cannot be opened");
	size_t count = 1 + clv_memory_libc(&memory[1]);
	for (size_t i = 0; i < count; i++)
		for (int k = 0; k < COUNTS; k++) {
			struct team *t = &teams[i][k];
			*t = (struct team){.memory = &memory[i], .size = size, .threads = thread_counts[k]};
			cases[i][k] = (struct clv_bench_case){
				.unit = CLV_BENCH_NS_PER_OP, .clock = "wall", .run = run_team, .arg = t, .ops = PAIRS};
			clv_bench_set_name(cases[i][k].name, "%s", i ? memory[i].name : names[k]);
			if (wanted[k])
				run[total++] = &cases[i][k];
		}
	bool ok = clv_bench_measure(b, run, total);
	for (int k = 0; k < COUNTS && ok; k++)
		if (wanted[k])
			ok = clv_bench_report(b, &cases[0][k], count > 1 ? &cases[1][k] : NULL, &cases[0][0]);
	for (size_t i = 0; i < count; i++)
		clv_memory_close(&memory[i]);
	return ok;
}

bool clv_bench_threads(struct clv_bench *b)
{
	return bench_size(b, "1KiB", CLV_KIB) && bench_size(b, "64KiB", 64 * CLV_KIB);
}
