/* SPDX-License-Identifier: MIT
 *
 * What the recorder adds, without stacks. A sample is as many events as a buffer of the usual size holds with room to spare, and
 * the writer has emptied it before the next, so that none is dropped: a dropped one would be cheaper.
 *
 *   record/event         an event, beside the reading of the clock that is in it
 *   record/SIZE          a block of the heap is allocated and freed, both recorded; beside the same without a recorder
 *   record/event/T       T threads put events at once; for each event of all together, beside one thread
 */
#include "bench.h"
#include "bench_memory.h"
#include "bench_team.h"

#include "../../tracing/record/record.h"
#include "../base/file_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 10000u /* of a sample and a thread; the usual buffer holds 32,768 */
#define FLUSH_MS 10000u

static void put(enum clv_event event, uint64_t addr, uint64_t size)
{
	clv_record_event(&(struct clv_record_event){
		.event = event, .device = 0, .stream = 1, .addr = addr, .size = size, .a = size});
}

static void put_pairs(void)
{
	for (uint64_t i = 0; i < EVENTS / 2; i++) {
		put(CLV_EVENT_ALLOC, 0x7f0000000000 + (i & 255) * 4096, 4096);
		put(CLV_EVENT_FREE, 0x7f0000000000 + (i & 255) * 4096, 4096);
	}
}

static double run_event(void *arg)
{
	(void)arg;
	double begin = clv_bench_cpu_ns();
	put_pairs();
	double ns = clv_bench_cpu_ns() - begin;
	return clv_record_flush(FLUSH_MS) ? ns : -1;
}

static double run_clock(void *arg)
{
	(void)arg;
	struct timespec t;
	double begin = clv_bench_cpu_ns();
	for (unsigned i = 0; i < EVENTS; i++)
		clock_gettime(CLOCK_MONOTONIC, &t);
	return clv_bench_cpu_ns() - begin;
}

/* ---- the heap ---- */

struct pairs {
	struct clv_memory memory;
	size_t size;
	bool recorded;
};

static double run_pairs(void *arg)
{
	const struct pairs *p = arg;
	double begin = clv_bench_cpu_ns();
	for (unsigned i = 0; i < EVENTS / 2; i++) {
		uint64_t block = clv_memory_alloc(&p->memory, p->size);
		if (!block)
			return -1;
		if (p->recorded) {
			put(CLV_EVENT_ALLOC, block, p->size);
			put(CLV_EVENT_FREE, block, p->size);
		}
		clv_memory_free(&p->memory, block);
	}
	double ns = clv_bench_cpu_ns() - begin;
	return clv_record_flush(FLUSH_MS) ? ns : -1;
}

static bool bench_pairs(struct clv_bench *b, const char *name, size_t size)
{
	if (!clv_bench_wants(b, name))
		return true;
	struct pairs pairs[2] = {{.size = size, .recorded = true}, {.size = size}};
	struct clv_bench_case cases[2], *run[2] = {&cases[0], &cases[1]};
	if (!clv_memory_heap(&pairs[0].memory))
		return clv_bench_fail(b, "the heap cannot be opened");
	pairs[1].memory = pairs[0].memory;
	for (int i = 0; i < 2; i++) {
		cases[i] = (struct clv_bench_case){.unit = CLV_BENCH_NS_PER_OP,
						   .clock = "cpu",
						   .run = run_pairs,
						   .arg = &pairs[i],
						   .ops = EVENTS / 2};
		clv_bench_set_name(cases[i].name, "%s", i ? "no recorder" : name);
	}
	bool ok = clv_bench_measure(b, run, 2) && clv_bench_report(b, &cases[0], &cases[1], NULL);
	clv_memory_close(&pairs[0].memory);
	return ok;
}

/* ---- threads ---- */

/* From here on the thread has its buffer. */
static void attach(void *arg)
{
	(void)arg;
	put(CLV_EVENT_FREE, 0, 0);
}

static bool put_own_pairs(void *arg, unsigned number)
{
	(void)arg;
	(void)number;
	put_pairs();
	return true;
}

static double run_team(void *arg)
{
	double ns = clv_bench_team_run(
		&(struct clv_bench_team){.threads = *(const unsigned *)arg, .prepare = attach, .work = put_own_pairs});
	return clv_record_flush(FLUSH_MS) ? ns : -1;
}

static bool bench_threads(struct clv_bench *b)
{
	static const unsigned counts[] = {2, 4};
	struct clv_bench_case cases[1 + CLV_ARRAY_LEN(counts)], *run[1 + CLV_ARRAY_LEN(counts)];
	unsigned teams[1 + CLV_ARRAY_LEN(counts)];
	size_t total = 1;
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char name[CLV_BENCH_NAME] = "one thread";
		unsigned threads = i ? counts[i - 1] : 1;
		if (i)
			clv_bench_set_name(name, "record/event/%u", threads);
		if (i && !clv_bench_wants(b, name))
			continue;
		size_t at = i ? total++ : 0;
		teams[at] = threads;
		cases[at] = (struct clv_bench_case){.unit = CLV_BENCH_NS_PER_OP,
						    .clock = "wall",
						    .run = run_team,
						    .arg = &teams[at],
						    .ops = (uint64_t)threads * EVENTS};
		clv_bench_set_name(cases[at].name, "%s", name);
		run[at] = &cases[at];
	}
	if (total == 1)
		return true;
	bool ok = clv_bench_measure(b, run, total);
	for (size_t i = 1; i < total && ok; i++)
		ok = clv_bench_report(b, &cases[i], &cases[0], NULL);
	return ok;
}

/* ---- */

static bool bench_event(struct clv_bench *b)
{
	if (!clv_bench_wants(b, "record/event"))
		return true;
	struct clv_bench_case cases[2], *run[2] = {&cases[0], &cases[1]};
	for (int i = 0; i < 2; i++) {
		cases[i] = (struct clv_bench_case){
			.unit = CLV_BENCH_NS_PER_OP, .clock = "cpu", .run = i ? run_clock : run_event, .ops = EVENTS};
		clv_bench_set_name(cases[i].name, "%s", i ? "clock" : "record/event");
	}
	return clv_bench_measure(b, run, 2) && clv_bench_report(b, &cases[0], &cases[1], NULL);
}

static bool run_all(struct clv_bench *b)
{
	return bench_event(b) && bench_pairs(b, "record/1KiB", CLV_KIB) &&
	       bench_pairs(b, "record/64KiB", 64 * CLV_KIB) && bench_pairs(b, "record/3MiB", 3 * CLV_MIB) &&
	       bench_threads(b);
}

/* Whether anything here is asked for, without a recorder and without measuring. */
static bool any_wanted(const struct clv_bench *b)
{
	struct clv_bench only = *b;
	only.results = NULL;
	only.result_count = only.result_cap = 0;
	only.list = true;
	bool any = run_all(&only) && only.result_count;
	clv_bench_clear(&only);
	return any;
}

bool clv_bench_record(struct clv_bench *b)
{
	if (b->list)
		return run_all(b);
	if (!any_wanted(b))
		return true;
	const char *folder = getenv("TMPDIR");
	char path[4096];
	struct clv_error err = {{0}};
	snprintf(path, sizeof(path), "%s/cleave-bench-XXXXXX", folder && *folder ? folder : "/tmp");
	int fd = mkstemp(path);
	if (fd < 0)
		return clv_bench_fail(b, "%s: a file for the recorder cannot be made there", path);
	close(fd);
	char pattern[sizeof(path) * 2];
	clv_file_name_escape(path, pattern, sizeof(pattern));
	bool ok = clv_record_open(&(struct clv_record_config){.path = pattern}, &err) ||
		  clv_bench_fail(b, "%s", err.text);
	ok = ok && run_all(b);
	struct clv_record_stats stats;
	clv_record_close();
	clv_record_get_stats(&stats);
	unlink(path);
	if (ok && stats.dropped)
		return clv_bench_fail(
			b, "the recorder dropped %llu of %llu events: the disk under %s is too slow to measure with",
			(unsigned long long)stats.dropped, (unsigned long long)(stats.dropped + stats.events), path);
	return ok;
}
