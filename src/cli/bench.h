/* SPDX-License-Identifier: MIT
 *
 * bench: what `cleave bench` is made of. A benchmark is a set of cases that belong side by side; their samples are
 * taken in turns, so that whatever else the machine does meets all of them, and the median of each is reported beside
 * the others. One struct clv_bench belongs to the command that runs, and to one thread.
 */
#ifndef CLV_BENCH_H
#define CLV_BENCH_H

#include "../base/base.h"
#include "../base/error.h"

#include <stdio.h>

#define CLV_BENCH_NAME 64
#define CLV_BENCH_REPEAT_MAX 101u
#define CLV_BENCH_CASES 16u /* of one benchmark, at most */

enum clv_bench_unit { CLV_BENCH_NS_PER_OP, CLV_BENCH_PER_SECOND };

const char *clv_bench_unit_name(enum clv_bench_unit unit); /* "ns/op", "events/s" */

/* Something else that was measured in the same turns. */
struct clv_bench_beside {
	char name[CLV_BENCH_NAME];
	double value; /* its median, in the unit of the result */
	double times; /* our time is so many times its time */
};

struct clv_bench_result {
	char name[CLV_BENCH_NAME];
	enum clv_bench_unit unit;
	const char *clock; /* "cpu": time of the thread on a processor; "wall" */
	double median, best, worst;
	uint64_t ops; /* of one sample */
	unsigned samples;
	struct clv_bench_beside beside[2];
	unsigned beside_count;
};

struct clv_bench {
	const char *const *names; /* what to run: whole names, or their beginnings up to a '/'; none: everything */
	size_t name_count;
	bool list; /* run nothing: each name that could be run becomes a result without numbers */
	unsigned repeat;
	const char *const *traces; /* files; none: the bundled ones, where they are */
	size_t trace_count;
	FILE *progress; /* a terminal, or NULL */

	struct clv_bench_result *results;
	size_t result_count, result_cap;
	struct clv_error error; /* the first thing that went wrong: then the benchmark that noticed answers false */
};

/* One case: `run` does `ops` operations on `arg` and answers how many nanoseconds they took; below 0: it failed. */
struct clv_bench_case {
	char name[CLV_BENCH_NAME];
	enum clv_bench_unit unit;
	const char *clock;
	double (*run)(void *arg);
	void *arg;
	uint64_t ops;

	double samples[CLV_BENCH_REPEAT_MAX]; /* ns, sorted; made by clv_bench_measure */
};

/* Writes a name of at most CLV_BENCH_NAME - 1 characters. */
void clv_bench_set_name(char *name, const char *fmt, ...) CLV_PRINTF(2, 3);

/* Whether a case is asked for. Where only a list is wanted the name is noted, and the answer is no. */
bool clv_bench_wants(struct clv_bench *b, const char *name);

/* A warm-up of each case and then b->repeat turns of all; on one processor, unless a case goes by the wall clock. false
 * if one failed. */
bool clv_bench_measure(struct clv_bench *b, struct clv_bench_case *const *cases, size_t count);

/* Adds the result of a case that was measured, beside up to two others (may be NULL). */
bool clv_bench_report(struct clv_bench *b, const struct clv_bench_case *c, const struct clv_bench_case *beside,
		      const struct clv_bench_case *beside_too);

bool clv_bench_fail(struct clv_bench *b, const char *fmt, ...) CLV_PRINTF(2, 3); /* false, for `return` */
void clv_bench_clear(struct clv_bench *b);

/* Nanoseconds; the first counts only while the thread runs, so that a busy machine disturbs it little. */
double clv_bench_cpu_ns(void);
double clv_bench_wall_ns(void);

/* The benchmarks. */
bool clv_bench_trace(struct clv_bench *b); /* import/TRACE, replay/TRACE/POLICY */
bool clv_bench_heap(struct clv_bench *b);  /* hit, holes, coalesce, mixed */
bool clv_bench_threads(struct clv_bench *b);
bool clv_bench_record(struct clv_bench *b); /* record */

#endif
