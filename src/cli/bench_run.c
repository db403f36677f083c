/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "bench.h"

#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *clv_bench_unit_name(enum clv_bench_unit unit)
{
	return unit == CLV_BENCH_NS_PER_OP ? "ns/op" : "events/s";
}

static double now_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double clv_bench_cpu_ns(void)
{
	return now_ns(CLOCK_THREAD_CPUTIME_ID);
}

double clv_bench_wall_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

/* Keeps the thread, and what it starts, on the processor it is on; *before is how it was. False: it stays as it was. */
static bool pin(cpu_set_t *before)
{
	int cpu = sched_getcpu();
	cpu_set_t set;
	if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(*before), before) != 0)
		return false;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0;
}

void clv_bench_set_name(char *name, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(name, CLV_BENCH_NAME, fmt, ap);
	va_end(ap);
}

bool clv_bench_fail(struct clv_bench *b, const char *fmt, ...)
{
	char text[sizeof(b->error.text)];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return clv_error_set(&b->error, "%s", text);
}

void clv_bench_clear(struct clv_bench *b)
{
	free(b->results);
	b->results = NULL;
	b->result_count = b->result_cap = 0;
}

/* `name` is what was asked for, or lies below it. */
static bool below(const char *name, const char *asked)
{
	size_t n = strlen(asked);
	return strncmp(name, asked, n) == 0 && (name[n] == '\0' || name[n] == '/' || (n && asked[n - 1] == '/'));
}

static struct clv_bench_result *add_result(struct clv_bench *b, const char *name)
{
	if (b->result_count == b->result_cap) {
		size_t cap = b->result_cap ? b->result_cap * 2 : 32;
		struct clv_bench_result *grown = realloc(b->results, cap * sizeof(*grown));
		if (!grown) {
			clv_bench_fail(b, "out of host memory");
			return NULL;
		}
		b->results = grown;
		b->result_cap = cap;
	}
	struct clv_bench_result *r = &b->results[b->result_count++];
	memset(r, 0, sizeof(*r));
	clv_bench_set_name(r->name, "%s", name);
	return r;
}

bool clv_bench_wants(struct clv_bench *b, const char *name)
{
	bool wanted = b->name_count == 0;
	for (size_t i = 0; i < b->name_count && !wanted; i++)
		wanted = below(name, b->names[i]);
	if (wanted && b->list)
		add_result(b, name);
	return wanted && !b->list;
}

static int by_time(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;
	return a < b ? -1 : a > b;
}

static bool take_samples(struct clv_bench *b, struct clv_bench_case *const *cases, size_t count)
{
	for (unsigned turn = 0; turn <= b->repeat; turn++)
		for (size_t i = 0; i < count; i++) {
			struct clv_bench_case *c = cases[i];
			if (b->progress)
				fprintf(b->progress, "\r\033[K%s: %u of %u", c->name, turn, b->repeat);
			double ns = c->run(c->arg);
			if (ns < 0)
				return clv_bench_fail(b, "%s: a request failed", c->name);
			if (turn) /* the first is the warm-up */
				c->samples[turn - 1] = ns > 0 ? ns : 1;
		}
	return true;
}

bool clv_bench_measure(struct clv_bench *b, struct clv_bench_case *const *cases, size_t count)
{
	cpu_set_t before;
	bool one_thread = true;
	for (size_t i = 0; i < count; i++)
		one_thread &= strcmp(cases[i]->clock, "cpu") == 0;
	bool pinned = one_thread && pin(&before);
	bool ok = take_samples(b, cases, count);
	if (pinned)
		(void)sched_setaffinity(0, sizeof(before), &before);
	for (size_t i = 0; i < count && ok; i++)
		qsort(cases[i]->samples, b->repeat, sizeof(cases[i]->samples[0]), by_time);
	if (b->progress)
		fprintf(b->progress, "\r\033[K");
	return ok;
}

static double median_ns(const struct clv_bench *b, const struct clv_bench_case *c)
{
	return (c->samples[(b->repeat - 1) / 2] + c->samples[b->repeat / 2]) / 2;
}

static double in_unit(const struct clv_bench_case *c, double ns)
{
	return c->unit == CLV_BENCH_NS_PER_OP ? ns / (double)c->ops : (double)c->ops * 1e9 / ns;
}

bool clv_bench_report(struct clv_bench *b, const struct clv_bench_case *c, const struct clv_bench_case *beside,
		      const struct clv_bench_case *beside_too)
{
	const struct clv_bench_case *others[] = {beside, beside_too};
	struct clv_bench_result *r = add_result(b, c->name);
	if (!r)
		return false;
	r->unit = c->unit;
	r->clock = c->clock;
	r->ops = c->ops;
	r->samples = b->repeat;
	r->median = in_unit(c, median_ns(b, c));
	r->best = in_unit(c, c->samples[0]);
	r->worst = in_unit(c, c->samples[b->repeat - 1]);
	for (size_t i = 0; i < CLV_ARRAY_LEN(others); i++) {
		const struct clv_bench_case *o = others[i];
		if (!o || o == c)
			continue;
		struct clv_bench_beside *s = &r->beside[r->beside_count++];
		clv_bench_set_name(s->name, "%s", o->name);
		s->value = in_unit(o, median_ns(b, o));
		s->times = (median_ns(b, c) / (double)c->ops) / (median_ns(b, o) / (double)o->ops);
	}
	return true;
}
