/* SPDX-License-Identifier: MIT */
#include "timeline.h"

#include "../memory.h"

#include <stdlib.h>

/* Progress is told between stretches of so many steps. */
#define STRETCH (1u << 18)

#define DRIVER_OUT_OF_MEMORY 2u /* CUDA_ERROR_OUT_OF_MEMORY */

enum { PEAK_LIVE, PEAK_HELD, PEAK_STRANDED, PEAKS };

struct pass {
	struct clv_timeline *t;
	struct clv_state *s;
	struct clv_report_device *d;
	const struct clv_report_options *o;
	struct clv_stop peaks[PEAKS];
	uint64_t peak_bytes[PEAKS];
	uint64_t now_us;
	const struct clv_history *marks; /* the history that has the marks */
	uint32_t next_mark;              /* where it is not this one: the next note there */
	bool chosen;                     /* the moment that was asked for has been found */
	uint64_t failures_kept, marks_kept;
};

uint64_t clv_timeline_begin(const struct clv_trace *trace)
{
	uint64_t begin = UINT64_MAX;
	for (uint32_t i = 0; i < trace->history_count; i++) {
		const struct clv_history *h = &trace->histories[i];
		if (h->event_count)
			begin = clv_min_u64(begin, h->events[0].time_us);
		if (h->note_count)
			begin = clv_min_u64(begin, h->notes[0].time_us);
	}
	return begin == UINT64_MAX ? 0 : begin;
}

static double seconds(const struct pass *p)
{
	return p->now_us > p->t->begin_us ? (double)(p->now_us - p->t->begin_us) / 1e6 : 0;
}

static struct clv_stop here(const struct pass *p, enum clv_moment_kind kind)
{
	return (struct clv_stop){.kind = kind, .event = p->s->event, .note = p->s->note, .time_s = seconds(p)};
}

static bool add_stop(struct pass *p, struct clv_stop stop)
{
	struct clv_timeline *t = p->t;
	if (!clv_mem_reserve(&t->stops, &t->stop_cap, t->stop_count + 1, sizeof(*t->stops)))
		return false;
	t->stops[t->stop_count++] = stop;
	return true;
}

/* ---- extremes ---- */

static void note_peak(struct pass *p, int which, enum clv_moment_kind kind, uint64_t bytes)
{
	if (bytes <= p->peak_bytes[which])
		return;
	p->peak_bytes[which] = bytes;
	p->peaks[which] = here(p, kind);
	if (which == PEAK_LIVE)
		p->d->peak_live_holds = p->s->plane.sum.held;
}

static void widen(struct clv_report_sum *min, struct clv_report_sum *max, const struct clv_report_sum *sum)
{
	min->held = clv_min_u64(min->held, sum->held);
	max->held = clv_max_u64(max->held, sum->held);
	for (int c = 0; c < CLV_CAUSE_COUNT; c++) {
		min->of[c] = clv_min_u64(min->of[c], sum->of[c]);
		max->of[c] = clv_max_u64(max->of[c], sum->of[c]);
	}
}

static void look(struct pass *p, struct clv_report_bucket *b)
{
	const struct clv_report_sum *sum = &p->s->plane.sum;
	if (b) {
		widen(&b->min, &b->max, sum);
		b->end = *sum;
		b->end_s = seconds(p);
		b->last_event = p->s->event;
	}
	note_peak(p, PEAK_LIVE, CLV_MOMENT_PEAK_LIVE, sum->of[CLV_CAUSE_LIVE]);
	note_peak(p, PEAK_HELD, CLV_MOMENT_PEAK_HELD, sum->held);
	note_peak(p, PEAK_STRANDED, CLV_MOMENT_PEAK_STRANDED, sum->of[CLV_CAUSE_HARD]);
}

static struct clv_report_bucket *begin_bucket(struct pass *p)
{
	struct clv_report_bucket *b = &p->d->buckets[p->d->bucket_count++];
	const struct clv_report_sum *sum = &p->s->plane.sum;
	*b = (struct clv_report_bucket){.first_event = p->s->event, .begin_s = seconds(p), .max = *sum, .min = *sum};
	return b;
}

/* ---- moments ---- */

struct clv_event_record clv_stop_request(const struct clv_stop *stop, const struct clv_history *h)
{
	if (!stop->by_note)
		return h->events[stop->of];
	const struct clv_note *n = &h->notes[stop->of];
	return (struct clv_event_record){
		.time_us = n->time_us,
		.addr = n->addr,
		.size = n->size,
		.stream = n->stream,
		.block = CLV_NO_BLOCK,
		.stack = n->stack,
		.action = CLV_ACTION_OOM,
	};
}

static bool note_failure(struct pass *p, uint32_t of, bool by_note)
{
	struct clv_stop stop = here(p, CLV_MOMENT_FAILURE);
	stop.of = of;
	stop.by_note = by_note;
	const struct clv_event_record e = clv_stop_request(&stop, p->s->h);
	p->d->failures++;
	for (size_t i = 0; i < p->t->stop_count; i++) { /* as many as are told at most */
		struct clv_stop *told = &p->t->stops[i];
		if (told->kind != CLV_MOMENT_FAILURE)
			continue;
		const struct clv_event_record like = clv_stop_request(told, p->s->h);
		if (like.size == e.size && like.stream == e.stream && like.stack == e.stack) {
			told->repeats++;
			p->d->failures_untold++;
			return true;
		}
	}
	if (p->failures_kept >= p->o->failures) {
		p->d->failures_untold++;
		return true;
	}
	p->failures_kept++;
	return add_stop(p, stop);
}

static bool note_mark(struct pass *p, uint32_t note)
{
	if (p->marks_kept >= p->o->marks) {
		p->d->marks_untold++;
		return true;
	}
	p->marks_kept++;
	struct clv_stop stop = here(p, CLV_MOMENT_MARK);
	stop.of = note;
	return add_stop(p, stop);
}

/* What is to be looked at before the next step, which is at `time_us`; UINT64_MAX: there is none. */
static bool before_step(struct pass *p, uint64_t time_us)
{
	const struct clv_history *h = p->s->h;
	const struct clv_report_options *o = p->o;
	for (; p->marks != h && p->next_mark < p->marks->note_count; p->next_mark++) {
		const struct clv_note *n = &p->marks->notes[p->next_mark];
		if (n->time_us >= time_us)
			break;
		if (n->kind == CLV_EVENT_MARK && !note_mark(p, p->next_mark))
			return false;
	}
	bool last = time_us == UINT64_MAX;
	bool event_is_here = o->at_event_set && p->s->event == o->at_event;
	bool time_is_here = o->at_time_set && seconds(p) <= o->at_s &&
			    (last || (time_us >= p->t->begin_us && (double)(time_us - p->t->begin_us) / 1e6 > o->at_s));
	if (!p->chosen && (event_is_here || time_is_here)) {
		p->chosen = true;
		if (!add_stop(p, here(p, CLV_MOMENT_CHOSEN)))
			return false;
	}
	return true;
}

/* After a step. What the driver refuses a heap it tries again in other ways; where there is none, the program got nothing. */
static bool look_for_failure(struct pass *p, uint32_t event, uint32_t note)
{
	const struct clv_state *s = p->s;
	if (s->event != event && s->h->events[event].action == CLV_ACTION_OOM)
		return note_failure(p, event, false);
	bool refused = s->note != note && s->basis == CLV_BASIS_DRIVER &&
		       s->h->notes[note].kind == CLV_EVENT_DRIVER_FAIL && s->h->notes[note].a == DRIVER_OUT_OF_MEMORY;
	return !refused || note_failure(p, note, true);
}

static bool walk(struct pass *p)
{
	struct clv_state *s = p->s;
	uint64_t steps = (uint64_t)s->h->event_count + s->h->note_count, time_us;
	uint64_t buckets = clv_min_u64(steps, CLV_REPORT_BUCKETS), bucket = 0;
	p->d->buckets = clv_mem_zalloc(buckets + 1, sizeof(*p->d->buckets));
	if (!p->d->buckets)
		return false;
	struct clv_report_bucket *b = NULL;
	p->now_us = p->t->begin_us;
	look(p, NULL);
	for (uint64_t step = 0; clv_state_next_time(s, &time_us); step++) {
		uint32_t event = s->event, note = s->note;
		if (!before_step(p, time_us))
			return false;
		p->now_us = clv_max_u64(p->now_us, time_us);
		if (!b || step * buckets / steps != bucket) {
			bucket = step * buckets / steps;
			b = begin_bucket(p);
		}
		if (!clv_state_step(s))
			return false;
		look(p, b);
		if (!look_for_failure(p, event, note))
			return false;
		if (s->note != note && p->marks == s->h && s->h->notes[note].kind == CLV_EVENT_MARK &&
		    !note_mark(p, note))
			return false;
		if (step % STRETCH == 0 && p->o->progress)
			p->o->progress(p->o->progress_arg, "walking through the history", (double)step / (double)steps);
	}
	return before_step(p, UINT64_MAX);
}

static int by_position(const void *a, const void *b)
{
	const struct clv_stop *x = a, *y = b;
	if (x->event != y->event)
		return x->event < y->event ? -1 : 1;
	if (x->note != y->note)
		return x->note < y->note ? -1 : 1;
	return (int)x->kind - (int)y->kind;
}

/* Peaks at one and the same moment are one. */
static bool add_peaks(struct pass *p)
{
	for (int i = 0; i < PEAKS; i++) {
		bool again = !p->peak_bytes[i];
		for (int k = 0; k < i; k++)
			again |= p->peak_bytes[k] && p->peaks[k].event == p->peaks[i].event &&
				 p->peaks[k].note == p->peaks[i].note;
		if (!again && !add_stop(p, p->peaks[i]))
			return false;
	}
	return true;
}

bool clv_timeline_run(struct clv_timeline *t, struct clv_state *s, struct clv_report_device *d,
		      const struct clv_report_options *options, struct clv_error *err)
{
	struct pass p = {.t = t, .s = s, .d = d, .o = options, .marks = &s->trace->histories[0]};
	t->begin_us = clv_timeline_begin(s->trace);
	bool ok = walk(&p);
	if (ok && d->has_history)
		ok = add_peaks(&p);
	else if (ok)
		ok = add_stop(&p, here(&p, CLV_MOMENT_END));
	if (!ok)
		return clv_error_set(err, "out of host memory");
	if (t->stop_count)
		qsort(t->stops, t->stop_count, sizeof(*t->stops), by_position);
	struct clv_report_sum unused = d->peak = d->bucket_count ? d->buckets[0].max : s->plane.sum;
	for (uint32_t i = 1; i < d->bucket_count; i++)
		widen(&unused, &d->peak, &d->buckets[i].max);
	d->peak_stranded = d->peak.of[CLV_CAUSE_HARD];
	return true;
}
