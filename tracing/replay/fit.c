/* SPDX-License-Identifier: MIT */
#include "fit.h"

#include <string.h>

/* One bisection of 2^64 / 2 MiB takes at most 43 runs, the search upwards as many, and the steps above 16. */
#define RUNS_MAX 128

struct fit {
	const struct clv_trace *trace;
	const struct clv_history *history;
	struct clv_replay_options options;
	const struct clv_replay_options *asked;
	struct clv_error *err;
	uint64_t runs;
	/* Each capacity is tried once: a replay is a function of it. */
	struct run {
		uint64_t capacity;
		bool completed;
		double driver_s;
	} tried[RUNS_MAX];
	uint32_t tried_count;
};

static void told(void *arg, const struct clv_replay_progress *p)
{
	struct fit *f = arg;
	struct clv_replay_progress mine = *p;
	mine.run = f->runs;
	f->asked->progress(f->asked->progress_arg, &mine);
}

/* NULL: an error, or more runs than any search needs. */
static const struct run *run_at(struct fit *f, uint64_t capacity)
{
	for (uint32_t i = 0; i < f->tried_count; i++)
		if (f->tried[i].capacity == capacity)
			return &f->tried[i];
	if (f->tried_count == RUNS_MAX) {
		clv_error_set(f->err, "%s: the search for a fit does not end", f->asked->policy);
		return NULL;
	}
	f->runs++;
	f->options.capacity = capacity;
	struct clv_replay_progress p = {
		.policy = f->asked->policy, .total = f->history->event_count, .capacity = capacity, .run = f->runs};
	if (f->asked->progress)
		f->asked->progress(f->asked->progress_arg, &p);
	struct clv_replay_result r;
	if (!clv_replay(f->trace, f->history, &f->options, &r, f->err))
		return NULL;
	struct run *run = &f->tried[f->tried_count++];
	*run = (struct run){capacity, r.completed, (double)r.stats.driver.ns * 1e-9};
	return run;
}

/* The smallest multiple of the grid from `lo` on that bisection finds; `hi` is where completing is expected. */
static const struct run *search(struct fit *f, uint64_t lo, uint64_t hi)
{
	const struct run *run = run_at(f, lo);
	if (!run || run->completed)
		return run;
	uint64_t bad = lo;
	run = run_at(f, hi);
	/* What was reserved without limit need not be enough with that limit: a policy may act otherwise when it
	 * knows one. */
	for (uint64_t step = CLV_FIT_GRID; run && !run->completed && step < UINT64_MAX / 4; step *= 2) {
		bad = hi;
		hi += step;
		run = run_at(f, hi);
	}
	const struct run *good = run;
	while (good && good->completed && good->capacity - bad > CLV_FIT_GRID) {
		run = run_at(f, clv_align_down(bad + (good->capacity - bad) / 2, CLV_FIT_GRID));
		if (!run)
			return NULL;
		if (run->completed)
			good = run;
		else
			bad = run->capacity;
	}
	return good;
}

bool clv_fit(const struct clv_trace *trace, const struct clv_history *history, const struct clv_replay_options *options,
	     const struct clv_replay_result *unlimited, struct clv_fit_result *out, struct clv_error *err)
{
	memset(out, 0, sizeof(*out));
	struct fit f = {.trace = trace, .history = history, .options = *options, .asked = options, .err = err};
	if (options->progress) {
		f.options.progress = told;
		f.options.progress_arg = &f;
	}
	struct clv_replay_result first;
	if (!unlimited) {
		f.runs++;
		f.options.capacity = 0;
		if (!clv_replay(trace, history, &f.options, &first, err))
			return false;
		unlimited = &first;
	}
	out->runs = f.runs;
	/* Beyond the second no device and no sum of sizes goes; the steps above must not overflow. */
	if (!unlimited->completed ||
	    clv_max_u64(history->peak_live_bytes, unlimited->stats.peak_reserved_bytes) > UINT64_MAX / 4)
		return true;

	/* A capacity of 0 would mean none, so the search starts at one step. */
	uint64_t lo = clv_max_u64(clv_align_up(history->peak_live_bytes, CLV_FIT_GRID), CLV_FIT_GRID);
	uint64_t hi = clv_max_u64(clv_align_up(unlimited->stats.peak_reserved_bytes, CLV_FIT_GRID), lo);
	const struct run *fit = search(&f, lo, hi);
	if (!fit)
		return false;
	out->runs = f.runs;
	if (!fit->completed)
		return true;
	out->found = true;
	out->fit_bytes = fit->capacity;
	out->modelled_driver_s = fit->driver_s;
	out->monotone = true;
	for (uint64_t step = 1; step <= CLV_FIT_STEPS_ABOVE && out->monotone; step++) {
		const struct run *above = run_at(&f, fit->capacity + step * CLV_FIT_GRID);
		if (!above)
			return false;
		out->monotone = above->completed;
	}
	out->runs = f.runs;
	return true;
}
