/* SPDX-License-Identifier: MIT */
#include "report_json.h"

#include "../json_text.h"

#include <jansson.h>

static json_t *number_unless(uint64_t v, uint64_t none)
{
	return v == none ? json_null() : clv_json_number(v);
}

static json_t *event(uint32_t e)
{
	return e == CLV_REPORT_BEFORE || e == CLV_REPORT_NEVER ? json_null() : clv_json_number(e);
}

static json_t *text_of(const struct clv_trace *trace, uint32_t index)
{
	return index < trace->string_count ? clv_json_text(trace->strings[index]) : json_null();
}

static json_t *stream_of(const struct clv_trace *trace, uint32_t stream)
{
	return stream < trace->stream_count ? clv_json_hex(trace->streams[stream]) : json_null();
}

/* What json_pack answers for a list of which a member could not be made. */
static json_t *append(json_t *list, json_t *member)
{
	if (list && !json_array_append_new(list, member))
		return list;
	json_decref(list);
	return NULL;
}

static json_t *stack_of(const struct clv_trace *trace, uint32_t stack)
{
	json_t *list = json_array();
	if (stack == CLV_NO_STACK || stack >= trace->stack_count)
		return list;
	for (uint32_t i = 0; list && i < trace->stacks[stack].count; i++) {
		const struct clv_frame_record *f = &trace->stack_frames[trace->stacks[stack].first + i];
		list = append(list, json_pack("{s:o,s:o,s:o}", "file", text_of(trace, f->file), "line",
					      clv_json_number(f->line), "function", text_of(trace, f->function)));
	}
	return list;
}

/* {"held_bytes":..., "live_bytes":..., ...}. NULL: out of host memory. */
static json_t *sum_json(const struct clv_report_sum *s)
{
	json_t *o = json_pack("{s:o}", "held_bytes", clv_json_number(s->held));
	for (int c = 0; o && c < CLV_CAUSE_COUNT; c++) {
		char key[32];
		snprintf(key, sizeof(key), "%s_bytes", clv_cause_name((enum clv_cause)c));
		if (json_object_set_new(o, key, clv_json_number(s->of[c]))) {
			json_decref(o);
			o = NULL;
		}
	}
	return o;
}

static json_t *block_json(const struct clv_report_device *d, uint32_t id)
{
	if (id >= d->history->block_count)
		return json_null();
	const struct clv_report_block *b = &d->blocks[id];
	char name[512];
	const struct clv_report_group as_group = {.stack = b->stack, .size = b->size, .stream = b->stream};
	clv_report_group_name(d, &as_group, name, sizeof(name));
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "name", clv_json_text(name), "address",
			 clv_json_hex(b->addr), "requested_bytes", clv_json_number(b->size), "given_bytes",
			 clv_json_number(b->given), "cut_from_bytes", number_unless(b->cut_from, 0), "alloc_event",
			 event(b->born), "free_event", event(b->freed), "stream", stream_of(d->trace, b->stream));
}

static json_t *hole_json(const struct clv_report_device *d, const struct clv_report_hole *h)
{
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "address", clv_json_hex(h->addr), "bytes",
			 clv_json_number(h->size), "stranded_bytes", clv_json_number(h->stranded), "left",
			 block_json(d, h->left), "right", block_json(d, h->right), "cut_by", block_json(d, h->cutter));
}

static json_t *span_json(double min, double max)
{
	return min < 0 ? json_null() : json_pack("[f,f]", min, max);
}

static json_t *group_json(const struct clv_report_device *d, const struct clv_report_group *g)
{
	char name[512];
	clv_report_group_name(d, g, name, sizeof(name));
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "name",
			 clv_json_text(name), "blocks", clv_json_number(g->blocks), "bytes", clv_json_number(g->bytes),
			 "requested_bytes", number_unless(g->size, 0), "stream", stream_of(d->trace, g->stream),
			 "stranded_bytes", clv_json_number(g->stranded_bytes), "marginal_bytes",
			 clv_json_number(g->marginal_bytes), "shared_bytes", clv_json_number(g->shared_bytes),
			 "frame_bytes", clv_json_number(g->frame_bytes), "frames", clv_json_number(g->frames),
			 "frames_alone", clv_json_number(g->frames_alone), "age_s",
			 d->has_history ? span_json(g->age_min_s, g->age_max_s) : json_null(), "left_s",
			 span_json(g->left_min_s, g->left_max_s), "never_freed",
			 d->has_history ? clv_json_number(g->never_freed) : json_null(), "would_serve",
			 g->would_serve < 0 ? json_null() : json_boolean(g->would_serve), "sample",
			 block_json(d, g->sample), "stack", stack_of(d->trace, g->stack));
}

static json_t *failure_json(const struct clv_report_device *d, const struct clv_report_moment *m)
{
	const struct clv_report_failure *f = &m->failure;
	if (m->kind != CLV_MOMENT_FAILURE)
		return json_null();
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "requested_bytes", clv_json_number(f->asked),
			 "driver_bytes", clv_json_number(f->needed), "device_free_bytes",
			 number_unless(f->device_free, UINT64_MAX), "limit_bytes", number_unless(f->limit, UINT64_MAX),
			 "usable_free_bytes", clv_json_number(f->usable_free), "largest_usable_bytes",
			 clv_json_number(f->largest_usable), "foreign_free_bytes", clv_json_number(f->foreign_free),
			 "repeats", clv_json_number(f->repeats), "stream", stream_of(d->trace, f->stream), "text",
			 clv_json_text(f->text), "stack", stack_of(d->trace, f->stack));
}

static json_t *moment_json(const struct clv_report_device *d, const struct clv_report_moment *m)
{
	json_t *holes = json_array(), *groups = json_array();
	for (uint32_t i = 0; i < m->holes_kept; i++)
		holes = append(holes, hole_json(d, &m->holes[i]));
	for (uint32_t i = 0; i < m->groups_kept; i++)
		groups = append(groups, group_json(d, &m->groups[i]));
	return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "kind", clv_moment_name(m->kind),
			 "label", text_of(d->trace, m->label), "event", clv_json_number(m->event), "time_s",
			 json_real(m->time_s), "memory", sum_json(&m->sum), "live_blocks",
			 clv_json_number(m->live_blocks), "frames", clv_json_number(m->frames), "frames_occupied",
			 clv_json_number(m->frames_occupied), "largest_hole_bytes", clv_json_number(m->largest_hole),
			 "hole_count", clv_json_number(m->hole_count), "holes", holes, "culprit_groups",
			 clv_json_number(m->group_count), "culprits", groups, "failure", failure_json(d, m));
}

static json_t *trial_json(const struct clv_report_trial *t)
{
	return json_pack("{s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:b,s:I}", "policy", clv_json_text(t->policy), "what",
			 clv_json_text(t->what), "capacity_bytes", number_unless(t->capacity, 0), "completed",
			 (int)t->completed, "failures", clv_json_number(t->failures), "peak_held_bytes",
			 clv_json_number(t->peak_held), "stranded_peak_bytes", clv_json_number(t->peak_stranded),
			 "confirmed", (int)t->confirmed, "saved_bytes", (json_int_t)t->saved_bytes);
}

static json_t *reservation_json(const struct clv_report_device *d, const struct clv_report_reservation *r)
{
	return json_pack("{s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:b}", "name", text_of(d->trace, r->name), "bytes",
			 clv_json_number(r->slot_bytes), "count", clv_json_number(r->slots), "hard", (int)r->hard,
			 "held", clv_json_number(r->held), "served", clv_json_number(r->served), "yielded",
			 clv_json_number(r->yielded), "missed", clv_json_number(r->missed), "held_peak_bytes",
			 clv_json_number(r->held_bytes_peak), "ended", (int)r->ended);
}

/* Columns, a value a bucket. */
static json_t *timeline_json(const struct clv_report_device *d)
{
	json_t *events = json_array(), *times = json_array(), *max = json_array(), *end = json_array();
	for (uint32_t i = 0; i < d->bucket_count; i++) {
		const struct clv_report_bucket *b = &d->buckets[i];
		events = append(events, clv_json_number(b->first_event));
		times = append(times, json_real(b->begin_s));
		max = append(max, sum_json(&b->max));
		end = append(end, sum_json(&b->end));
	}
	return json_pack("{s:o,s:o,s:o,s:o}", "event", events, "time_s", times, "max", max, "end", end);
}

static json_t *device_json(const struct clv_report_device *d, bool timeline)
{
	json_t *moments = json_array(), *trials = json_array(), *reservations = json_array();
	uint64_t live = d->peak.of[CLV_CAUSE_LIVE];
	for (uint32_t i = 0; i < d->moment_count; i++)
		moments = append(moments, moment_json(d, &d->moments[i]));
	for (uint32_t i = 0; i < d->trial_count; i++)
		trials = append(trials, trial_json(&d->trials[i]));
	for (uint32_t i = 0; i < d->reservation_count; i++)
		reservations = append(reservations, reservation_json(d, &d->reservations[i]));
	/* s:o* leaves out what is NULL */
	return json_pack("{s:o,s:i,s:s,s:s,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o*}",
			 "file", clv_json_text(d->trace->file), "device", d->history->device, "format",
			 clv_trace_format_name(d->trace->format), "basis", clv_report_basis_name(d->basis),
			 "has_history", (int)d->has_history, "given_known", (int)d->given_known,
			 "uncertain_until_event", clv_json_number(d->uncertain_until), "events",
			 clv_json_number(d->history->event_count), "duration_s", json_real(d->history->duration_s),
			 "limit_bytes", number_unless(d->limit, 0), "device_bytes", number_unless(d->device_bytes, 0),
			 "peak", sum_json(&d->peak), "held_over_live",
			 live ? json_real((double)d->peak.held / (double)live) : json_null(), "failures",
			 clv_json_number(d->failures), "failures_untold", clv_json_number(d->failures_untold),
			 "marks_untold", clv_json_number(d->marks_untold), "worst_moment",
			 d->moment_count ? clv_json_number(d->worst) : json_null(), "summary",
			 clv_json_text(d->summary), "moments", moments, "reservations", reservations, "trials",
			 json_pack("{s:o,s:o}", "tried", trials, "untried", clv_json_number(d->untried)), "timeline",
			 timeline ? timeline_json(d) : NULL);
}

bool clv_report_json_write(const struct clv_report *report, bool timeline, FILE *out, struct clv_error *err)
{
	json_t *devices = json_array();
	for (uint32_t i = 0; i < report->device_count; i++)
		devices = append(devices, device_json(&report->devices[i], timeline));
	json_t *doc = json_pack("{s:o}", "devices", devices);
	if (!doc)
		return clv_error_set(err, "out of host memory for the JSON document");
	/* 12 digits: what is measured has fewer, and 1.03 stays 1.03 */
	bool ok = json_dumpf(doc, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) == 0 && fputc('\n', out) != EOF;
	json_decref(doc);
	return ok || clv_error_set(err, "the JSON document could not be written");
}
