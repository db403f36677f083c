/* SPDX-License-Identifier: MIT
 *
 * Import and replay in events per second, beside a loop that only reads the records: what any replay must do at least.
 * The traces are those of the repository, where they are, and a synthetic one that is written to a temporary folder
 * first, so that it is imported like any other file.
 */
#define _GNU_SOURCE
#include "bench.h"

#include "../../tracing/export/export.h"
#include "../../tracing/format/clv.h"
#include "../../tracing/import/import.h"
#include "../../tracing/policies/torch_verify.h"
#include "../../tracing/replay/replay.h"
#include "../../tracing/synth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYNTH_EVENTS 500000u
#define READ_EVENTS 2000000u /* a sample of the loop reads at least so many */
#define EVENT_LAG_US 1000u

struct subject {
	const char *path;
	struct clv_trace *trace;
	const struct clv_history *history;
	struct clv_verify_result verify;
	unsigned read_passes;
};

struct replayed {
	const struct subject *subject;
	const char *policy;
};

/* ---- what is measured ---- */

/* Looks at what a replay looks at: action, time, size, block and stream of each record. */
static double read_records(void *arg)
{
	const struct subject *s = arg;
	const struct clv_history *h = s->history;
	uint64_t live = 0, late = 0;
	double begin = clv_bench_cpu_ns();
	for (unsigned pass = 0; pass < s->read_passes; pass++) {
		for (uint32_t i = 0; i < h->event_count; i++) {
			const struct clv_event_record *e = &h->events[i];
			late += e->time_us ^ e->stream;
			switch (e->action) {
			case CLV_ACTION_ALLOC:
				live += e->block == CLV_NO_BLOCK ? 0 : e->size;
				break;
			case CLV_ACTION_FREE_COMPLETED:
				live -= e->block == CLV_NO_BLOCK ? 0 : e->size;
				break;
			default:
				break;
			}
		}
		/* the sums are used, and the next pass cannot be merged with this one */
		__asm__ volatile("" : "+r"(live), "+r"(late)::"memory");
	}
	return clv_bench_cpu_ns() - begin;
}

static double import(void *arg)
{
	const struct subject *s = arg;
	struct clv_error err = {{0}};
	double begin = clv_bench_cpu_ns();
	struct clv_trace *t = clv_trace_import(s->path, &err);
	double ns = clv_bench_cpu_ns() - begin;
	if (!t)
		return -1;
	clv_trace_free(t);
	return ns;
}

/* The replay of requests and frees alone, on the thread's clock: from the moment when the policy has been opened until
 * it is asked for its statistics. One thread replays, so these may be static. */
static struct {
	const struct clv_policy_ops *real;
	struct clv_policy_ops ops;
	double begin, end;
} timed;

static void timed_stats(struct clv_policy *self, struct clv_policy_stats *out)
{
	timed.end = clv_bench_cpu_ns();
	timed.real->stats(self, out);
}

static struct clv_policy *timed_open(const struct clv_policy_config *config, const char *name, struct clv_error *err)
{
	struct clv_policy *p = clv_policy_open(config, name, err);
	if (!p)
		return NULL;
	timed.real = p->ops;
	timed.ops = *p->ops;
	timed.ops.stats = timed_stats;
	p->ops = &timed.ops;
	timed.begin = clv_bench_cpu_ns();
	return p;
}

static double replay(void *arg)
{
	const struct replayed *r = arg;
	struct clv_replay_result result;
	struct clv_error err = {{0}};
	const struct clv_replay_options options = {
		.policy = r->policy,
		.event_lag_us = EVENT_LAG_US,
		.empty_caches = r->subject->verify.empty_caches,
		.empty_cache_count = r->subject->verify.empty_cache_count,
		.open = timed_open,
	};
	if (!clv_replay(r->subject->trace, r->subject->history, &options, &result, &err) || !result.completed)
		return -1;
	return timed.end - timed.begin;
}

/* ---- one trace ---- */

/* "serve" of "some/where/serve.clv" */
static void short_name(const char *path, char *out, size_t len)
{
	const char *base = strrchr(path, '/');
	base = base ? base + 1 : path;
	size_t n = strcspn(base, ".");
	snprintf(out, len, "%.*s", (int)clv_min_u64(n, 32), n ? base : "trace");
}

enum { READ, IMPORT, CLEAVE, TORCH, KINDS };
#define ALL_KINDS (1u << IMPORT | 1u << CLEAVE | 1u << TORCH)

static bool load(struct clv_bench *b, struct subject *s)
{
	s->trace = clv_trace_import(s->path, &b->error);
	s->history = s->trace ? clv_trace_select(s->trace, -1, &b->error) : NULL;
	if (!s->history)
		return false;
	s->read_passes = READ_EVENTS / s->history->event_count + 1;
	if (!s->trace->torch.present)
		return true;
	/* where the program emptied its cache; a file that does not tell is replayed without */
	struct clv_error err = {{0}};
	(void)clv_torch_verify(s->trace, s->history, &s->verify, &err);
	return true;
}

static void unload(struct subject *s)
{
	clv_verify_free(&s->verify);
	clv_trace_free(s->trace);
}

static bool measure(struct clv_bench *b, struct subject *s, struct clv_bench_case *cases, const bool *wanted)
{
	if (!load(b, s))
		return false;
	struct replayed by[KINDS] = {
		[CLEAVE] = {s, "cleave"}, [TORCH] = {s, s->trace->torch.present ? "torch:recorded" : "torch"}};
	struct clv_bench_case *run[KINDS];
	size_t count = 0;
	for (int k = 0; k < KINDS; k++) {
		static double (*const runs[KINDS])(void *) = {read_records, import, replay, replay};
		cases[k].unit = CLV_BENCH_PER_SECOND;
		cases[k].clock = "cpu";
		cases[k].run = runs[k];
		cases[k].arg = k == CLEAVE || k == TORCH ? (void *)&by[k] : s;
		cases[k].ops = (uint64_t)s->history->event_count * (k == READ ? s->read_passes : 1);
		if (k == IMPORT) { /* all devices of the file are read */
			cases[k].ops = 0;
			for (uint32_t i = 0; i < s->trace->history_count; i++)
				cases[k].ops += s->trace->histories[i].event_count;
		}
		if (wanted[k])
			run[count++] = &cases[k];
	}
	if (!clv_bench_measure(b, run, count))
		return false;
	bool ok = true;
	for (int k = IMPORT; k < KINDS; k++)
		ok = ok && (!wanted[k] || clv_bench_report(b, &cases[k], &cases[READ], NULL));
	return ok;
}

static bool bench_file(struct clv_bench *b, const char *path, const char *name, unsigned kinds)
{
	struct clv_bench_case cases[KINDS] = {{.name = "read loop"}};
	bool wanted[KINDS] = {false};
	clv_bench_set_name(cases[IMPORT].name, "import/%s", name);
	clv_bench_set_name(cases[CLEAVE].name, "replay/%s/cleave", name);
	clv_bench_set_name(cases[TORCH].name, "replay/%s/torch", name);
	for (int k = IMPORT; k < KINDS; k++) {
		wanted[k] = (kinds & 1u << k) && clv_bench_wants(b, cases[k].name);
		wanted[READ] |= wanted[k];
	}
	if (!wanted[READ])
		return true;
	struct subject s = {.path = path};
	bool ok = measure(b, &s, cases, wanted);
	unload(&s);
	return ok;
}

/* ---- the synthetic trace ---- */

static bool write_synthetic(struct clv_bench *b, const char *clv, const char *csv)
{
	const struct clv_synth synth = {
		.events = SYNTH_EVENTS, .live = 2000, .streams = 3, .addresses = 20000, .seed = 1};
	struct clv_trace *t = clv_synth_trace(&synth, &b->error);
	bool ok = t && clv_trace_write(t, clv, &b->error) && clv_export_rmm(t, t->histories, csv, &b->error);
	clv_trace_free(t);
	return ok;
}

static bool wants_synthetic(struct clv_bench *b)
{
	static const char *const names[] = {"import/synthetic", "replay/synthetic/cleave", "replay/synthetic/torch",
					    "import/synthetic-rmm"};
	bool any = false;
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++)
		any |= clv_bench_wants(b, names[i]);
	return any;
}

static bool bench_synthetic(struct clv_bench *b)
{
	if (!wants_synthetic(b))
		return true;
	const char *base = getenv("TMPDIR");
	char folder[256], clv[300], csv[300];
	snprintf(folder, sizeof(folder), "%.200s/cleave-bench-XXXXXX", base && *base ? base : "/tmp");
	if (!mkdtemp(folder))
		return clv_bench_fail(b, "%s: %s", folder, strerror(errno));
	snprintf(clv, sizeof(clv), "%s/synthetic.clv", folder);
	snprintf(csv, sizeof(csv), "%s/synthetic-rmm.csv", folder);
	bool ok = write_synthetic(b, clv, csv);
	/* what the log holds is the same, so that its replay is of no interest */
	ok = ok && bench_file(b, clv, "synthetic", ALL_KINDS) && bench_file(b, csv, "synthetic-rmm", 1u << IMPORT);
	unlink(clv);
	unlink(csv);
	rmdir(folder);
	return ok;
}

/* Recorded histories that the repository keeps; the command may have been copied away from it. */
static bool bench_bundled(struct clv_bench *b)
{
	static const char *const names[] = {"serve", "train", "moe_stack", "moe_prealloc", "k3_reorder_split20"};
	const char *folder = getenv("CLEAVE_TEST_DATA");
	bool ok = true;
	for (size_t i = 0; i < CLV_ARRAY_LEN(names) && ok; i++) {
		char path[512];
		snprintf(path, sizeof(path), "%s/%s.clv", folder && *folder ? folder : CLV_DATA_DIR, names[i]);
		if (access(path, R_OK) == 0)
			ok = bench_file(b, path, names[i], ALL_KINDS);
	}
	return ok;
}

bool clv_bench_trace(struct clv_bench *b)
{
	bool ok = true;
	for (size_t i = 0; i < b->trace_count && ok; i++) {
		char name[40];
		short_name(b->traces[i], name, sizeof(name));
		ok = bench_file(b, b->traces[i], name, ALL_KINDS);
	}
	if (!b->trace_count)
		ok = bench_bundled(b) && bench_synthetic(b);
	return ok;
}
