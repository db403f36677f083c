/* SPDX-License-Identifier: MIT */
#include "report.h"

#include "../memory.h"

#include "explain.h"
#include "moments.h"
#include "reservations.h"
#include "timeline.h"
#include "whatif.h"

#include <stdlib.h>

#define TOP_DEFAULT 10
#define FAILURES_DEFAULT 8
#define MARKS_DEFAULT 16
/* More of these would not be read by a person, and each costs a look at the whole memory. */
#define TOP_MAX 1000

/* Notes that change what is held; marks and settings alone are no history of a device. */
static bool tells_of_memory(const struct clv_history *h)
{
	for (uint32_t i = 0; i < h->note_count; i++)
		if (h->notes[i].kind >= CLV_EVENT_FRAME_CREATE && h->notes[i].kind <= CLV_EVENT_DRIVER_FAIL)
			return true;
	return false;
}

static bool is_worth_a_look(const struct clv_history *h)
{
	return h->event_count || h->segment_count || h->has_state || tells_of_memory(h);
}

/* What the file says of the device and of limits. */
static void read_limits(struct clv_report_device *d)
{
	const struct clv_torch_recorded *r = &d->trace->torch;
	struct clv_torch_settings settings;
	if (r->present) {
		uint64_t limit = clv_torch_recorded_limit(r);
		if (clv_torch_settings_recorded(&settings, r, NULL) && settings.memory_fraction < 1 && r->total_bytes)
			limit = clv_min_u64(limit, clv_torch_fraction_limit(settings.memory_fraction, r->total_bytes));
		d->limit = limit == CLV_TORCH_UNLIMITED ? 0 : limit;
		d->device_bytes = r->total_bytes;
	}
	for (uint32_t i = 0; i < d->history->note_count; i++) {
		const struct clv_note *n = &d->history->notes[i];
		if (n->kind != CLV_EVENT_DEVICE)
			continue;
		d->device_bytes = n->size;
		d->limit = n->a;
	}
}

static bool look_at_device(struct clv_report_device *d, const struct clv_report_options *o, struct clv_error *err)
{
	struct clv_state s;
	struct clv_timeline t = {0};
	d->has_history = d->history->event_count || tells_of_memory(d->history);
	read_limits(d);
	bool ok = clv_state_open(&s, d->trace, d->history, err);
	if (ok) {
		d->basis = s.basis;
		d->given_known = s.given_known;
		d->uncertain_until = clv_min_u64(s.window.exact_from, d->history->event_count);
		ok = clv_timeline_run(&t, &s, d, o, err);
	}
	if (ok) { /* the second pass lists frames anew, and not all of them */
		d->frames = s.plane.records;
		d->frame_count = (uint32_t)s.plane.frame_count;
		s.plane.records = NULL;
		s.plane.record_cap = 0;
		ok = clv_moments_look(d, &s, &t, o, err);
	}
	d->blocks = s.blocks;
	s.blocks = NULL;
	clv_state_close(&s);
	clv_mem_free(t.stops);
	if (!ok)
		return false;
	for (uint32_t i = 0; i < d->moment_count; i++) {
		const struct clv_report_moment *m = &d->moments[i], *w = &d->moments[d->worst];
		bool failure = m->kind == CLV_MOMENT_FAILURE;
		if (w->kind != CLV_MOMENT_FAILURE && (failure || m->sum.of[CLV_CAUSE_HARD] > w->sum.of[CLV_CAUSE_HARD]))
			d->worst = i;
	}
	return clv_reservations_list(d, err) && clv_whatif_try(d, o, err) && clv_explain_device(d, err);
}

static int worst_first(const void *a, const void *b)
{
	const struct clv_report_device *x = a, *y = b;
	if (!x->failures != !y->failures)
		return x->failures ? -1 : 1;
	if (x->peak_stranded != y->peak_stranded)
		return x->peak_stranded > y->peak_stranded ? -1 : 1;
	if (x->peak.held != y->peak.held)
		return x->peak.held > y->peak.held ? -1 : 1;
	return x->number < y->number ? -1 : 1;
}

static bool chosen_is_somewhere(const struct clv_report *r, const struct clv_report_options *o, struct clv_error *err)
{
	if (!o->at_event_set && !o->at_time_set)
		return true;
	for (uint32_t i = 0; i < r->device_count; i++)
		for (uint32_t m = 0; m < r->devices[i].moment_count; m++)
			if (r->devices[i].moments[m].kind == CLV_MOMENT_CHOSEN)
				return true;
	uint64_t events = 0;
	double seconds = 0;
	for (uint32_t i = 0; i < r->device_count; i++) {
		events = clv_max_u64(events, r->devices[i].history->event_count);
		seconds = r->devices[i].history->duration_s > seconds ? r->devices[i].history->duration_s : seconds;
	}
	return clv_error_set(err, "the chosen moment is in none of the traces: the longest has %llu events in %.6g s",
			     (unsigned long long)events, seconds);
}

struct clv_report *clv_report_make(const struct clv_trace *const *traces, uint32_t count,
				   const struct clv_report_options *options, struct clv_error *err)
{
	struct clv_report_options o = *options;
	o.top = o.top ? (uint32_t)clv_min_u64(o.top, TOP_MAX) : TOP_DEFAULT;
	o.failures = o.failures ? o.failures : FAILURES_DEFAULT;
	o.marks = o.marks ? o.marks : MARKS_DEFAULT;
	size_t devices = 0;
	for (uint32_t i = 0; i < count; i++)
		devices += traces[i]->history_count;
	struct clv_report *r = clv_mem_zalloc(1, sizeof(*r));
	if (r)
		r->devices = clv_mem_zalloc(devices + 1, sizeof(*r->devices));
	if (!r || !r->devices) {
		clv_report_free(r);
		clv_error_set(err, "out of host memory");
		return NULL;
	}
	r->traces = traces;
	r->trace_count = count;
	bool ok = true;
	for (uint32_t i = 0; ok && i < count; i++)
		for (uint32_t k = 0; ok && k < traces[i]->history_count; k++) {
			const struct clv_history *h = &traces[i]->histories[k];
			if (!is_worth_a_look(h))
				continue;
			struct clv_report_device *d = &r->devices[r->device_count++];
			d->trace = traces[i];
			d->history = h;
			d->number = r->device_count - 1;
			ok = look_at_device(d, &o, err);
		}
	if (ok && !r->device_count)
		ok = clv_error_set(err, "%s: holds neither a history nor a state; nothing was recorded",
				   count ? traces[0]->file : "no trace");
	if (!ok || !chosen_is_somewhere(r, &o, err)) {
		clv_report_free(r);
		return NULL;
	}
	qsort(r->devices, r->device_count, sizeof(*r->devices), worst_first);
	return r;
}

void clv_report_free(struct clv_report *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; r->devices && i < r->device_count; i++) {
		struct clv_report_device *d = &r->devices[i];
		for (uint32_t m = 0; m < d->moment_count; m++) {
			clv_mem_free(d->moments[m].holes);
			clv_mem_free(d->moments[m].groups);
			clv_mem_free(d->moments[m].failure.text);
		}
		for (uint32_t t = 0; t < d->trial_count; t++) {
			clv_mem_free(d->trials[t].policy);
			clv_mem_free(d->trials[t].what);
		}
		clv_mem_free(d->buckets);
		clv_mem_free(d->moments);
		clv_mem_free(d->blocks);
		clv_mem_free(d->frames);
		clv_mem_free(d->reservations);
		clv_mem_free(d->trials);
		clv_mem_free(d->summary);
	}
	clv_mem_free(r->devices);
	clv_mem_free(r);
}
