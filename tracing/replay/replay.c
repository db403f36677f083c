/* SPDX-License-Identifier: MIT */
#include "replay.h"

#include "../../src/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Progress is told between stretches of so many events, so that the loop over events does not ask. */
#define STRETCH (1u << 20)

struct walk {
	struct clv_policy *policy;
	const struct clv_history *history;
	const struct clv_replay_options *options;
	struct clv_replay_result *out;
	uint64_t start_us, now_us;
	uint32_t next_empty; /* index in options->empty_caches */
};

double clv_replay_seconds(void)
{
	return 1e-9 * (double)clv_clock_ns();
}

static void failed(struct walk *w, uint64_t event)
{
	struct clv_replay_result *out = w->out;
	out->completed = false;
	out->failed_at_event = event;
	if (w->policy->ops->explain)
		w->policy->ops->explain(w->policy, out->failure, sizeof(out->failure));
	if (!out->failure[0])
		snprintf(out->failure, sizeof(out->failure), "the request was refused");
}

/* The blocks that were there before the first event. */
static bool walk_initial(struct walk *w)
{
	const struct clv_history *h = w->history;
	for (uint32_t i = 0; i < h->initial_count; i++) {
		const struct clv_initial_block *b = &h->initial[i];
		w->out->requests++;
		if (!w->policy->ops->alloc(w->policy, b->block, b->size, b->stream, b->pool)) {
			failed(w, 0);
			return false;
		}
	}
	return true;
}

static void walk_empty_caches(struct walk *w, uint32_t event)
{
	const struct clv_replay_options *o = w->options;
	for (; w->next_empty < o->empty_cache_count && o->empty_caches[w->next_empty] <= event; w->next_empty++)
		if (w->policy->ops->empty_cache)
			w->policy->ops->empty_cache(w->policy);
}

/* Events from..to-1. What does not change in the loop is in locals, as the policy's calls could change any memory. */
static bool walk_events(struct walk *w, uint32_t from, uint32_t to)
{
	struct clv_policy *policy = w->policy;
	const struct clv_policy_ops ops = *policy->ops;
	const struct clv_event_record *events = w->history->events;
	const uint64_t start_us = w->start_us;
	uint64_t now_us = w->now_us, requests = 0, skipped_ooms = 0;
	uint32_t i = from;
	bool ok = true;

	for (; i < to; i++) {
		const struct clv_event_record *e = &events[i];
		if (e->time_us > now_us) {
			now_us = e->time_us;
			if (ops.set_time)
				ops.set_time(policy, now_us - start_us);
		}
		switch (e->action) {
		case CLV_ACTION_ALLOC:
			if (e->block == CLV_NO_BLOCK)
				break;
			requests++;
			ok = ops.alloc(policy, e->block, e->size, e->stream, e->pool);
			break;
		case CLV_ACTION_FREE_REQUESTED:
			if (e->block != CLV_NO_BLOCK && ops.free_requested)
				ops.free_requested(policy, e->block, e->stream);
			break;
		case CLV_ACTION_FREE_COMPLETED:
			if (e->block == CLV_NO_BLOCK)
				break;
			requests++;
			ops.free_completed(policy, e->block, e->stream);
			break;
		case CLV_ACTION_OOM:
			if (ops.recorded_oom)
				ops.recorded_oom(policy, e);
			else
				skipped_ooms++;
			break;
		default:
			break; /* segments are the recorded allocator's own doing */
		}
		if (CLV_UNLIKELY(!ok))
			break;
	}
	w->now_us = now_us;
	w->out->requests += requests;
	w->out->skipped_ooms += skipped_ooms;
	w->out->events += i - from + (ok ? 0 : 1);
	if (!ok)
		failed(w, i);
	return ok;
}

static void tell(const struct walk *w, uint32_t done)
{
	const struct clv_replay_options *o = w->options;
	if (!o->progress)
		return;
	struct clv_replay_progress p = {
		.policy = o->policy, .done = done, .total = w->history->event_count, .capacity = o->capacity};
	o->progress(o->progress_arg, &p);
}

static void walk_all(struct walk *w)
{
	const struct clv_history *h = w->history;
	const struct clv_replay_options *o = w->options;
	if (!walk_initial(w))
		return;
	for (uint32_t i = 0; i < h->event_count;) {
		/* A stretch ends where a cache is to be emptied, so that the loop over events does not ask for that
		 * either. */
		walk_empty_caches(w, i);
		uint32_t to = h->event_count - i > STRETCH ? i + STRETCH : h->event_count;
		if (w->next_empty < o->empty_cache_count && o->empty_caches[w->next_empty] < to)
			to = o->empty_caches[w->next_empty];
		if (!walk_events(w, i, to))
			return;
		i = to;
		if (i % STRETCH == 0)
			tell(w, i);
	}
	walk_empty_caches(w, h->event_count);
	w->out->completed = true;
}

bool clv_replay(const struct clv_trace *trace, const struct clv_history *history,
		const struct clv_replay_options *options, struct clv_replay_result *out, struct clv_error *err)
{
	memset(out, 0, sizeof(*out));
	struct clv_policy_config config = {.trace = trace,
					   .history = history,
					   .capacity = options->capacity,
					   .event_lag_us = options->event_lag_us,
					   .device = options->device};
	struct clv_policy *policy = (options->open ? options->open : clv_policy_open)(&config, options->policy, err);
	if (!policy)
		return false;
	uint64_t start_us = history->event_count ? history->events[0].time_us : 0;
	struct walk w = {.policy = policy,
			 .history = history,
			 .options = options,
			 .out = out,
			 .start_us = start_us,
			 .now_us = start_us};
	double begin = clv_replay_seconds();
	walk_all(&w);
	out->wall_s = clv_replay_seconds() - begin;
	policy->ops->stats(policy, &out->stats);
	policy->ops->close(policy);
	return true;
}
