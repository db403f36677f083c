/* SPDX-License-Identifier: MIT */
#include "html_internal.h"

#include <math.h>

static json_t *causes_json(void)
{
	json_t *list = json_array();
	for (int i = 0; i < CLV_CAUSE_COUNT; i++)
		json_array_append_new(list, json_string(clv_cause_name(i)));
	return list;
}

json_t *clv_html_seconds(double s)
{
	return isfinite(s) ? json_real(s) : json_null();
}

json_t *clv_html_sum(const struct clv_report_sum *s)
{
	json_t *list = json_array();
	json_array_append_new(list, clv_json_number(s->held));
	for (int i = 0; i < CLV_CAUSE_COUNT; i++)
		json_array_append_new(list, clv_json_number(s->of[i]));
	return list;
}

static json_t *streams_json(const struct clv_trace *t)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < t->stream_count; i++)
		json_array_append_new(list, clv_json_hex(t->streams[i]));
	return list;
}

/* Takes `value`. */
static void put(json_t **object, const char *key, json_t *value)
{
	if (*object && json_object_set_new(*object, key, value) == 0)
		return;
	if (!*object)
		json_decref(value);
	json_decref(*object);
	*object = NULL;
}

static json_t *device_json(const struct clv_html_device *p, struct clv_error *err)
{
	const struct clv_report_device *d = p->d;
	const struct clv_history *h = d->history;
	json_t *j = json_object();
	put(&j, "file", clv_html_text(d->trace->file));
	put(&j, "device", json_integer(h->device));
	put(&j, "has_history", json_boolean(d->has_history));
	put(&j, "summary", clv_json_text(d->summary ? d->summary : ""));
	put(&j, "limit", clv_json_number(d->limit));
	put(&j, "device_bytes", clv_json_number(d->device_bytes));
	put(&j, "events", clv_json_number(h->event_count));
	put(&j, "allocs", clv_json_number(h->alloc_count));
	put(&j, "duration_s", clv_html_seconds(h->duration_s));
	put(&j, "peak", clv_html_sum(&d->peak));
	put(&j, "peak_live_holds", clv_json_number(d->peak_live_holds));
	put(&j, "failures", clv_json_number(d->failures));
	put(&j, "worst", json_integer(d->worst));
	put(&j, "untried", json_integer(d->untried));
	put(&j, "streams", streams_json(d->trace));
	put(&j, "info", clv_html_info(p));
	put(&j, "times", clv_html_times(p));
	put(&j, "timeline", clv_html_timeline(p));
	put(&j, "phases", clv_html_phases(p));
	put(&j, "marks", clv_html_marks(p));
	put(&j, "reservations", clv_html_reservations(p));
	put(&j, "trials", clv_html_trials(p));
	put(&j, "moments", clv_html_moments(p)); /* before the map: its stacks are told whole */
	put(&j, "map", clv_html_map(p, err));
	return j;
}

/* The first event or note on whatever device: both are by time. */
static uint64_t begin_of(const struct clv_trace *t)
{
	uint64_t begin = UINT64_MAX;
	for (uint32_t i = 0; i < t->history_count; i++) {
		const struct clv_history *h = &t->histories[i];
		begin = h->event_count ? clv_min_u64(begin, h->events[0].time_us) : begin;
		begin = h->note_count ? clv_min_u64(begin, h->notes[0].time_us) : begin;
	}
	return begin == UINT64_MAX ? 0 : begin;
}

static uint32_t trace_index(const struct clv_report *report, const struct clv_trace *trace)
{
	uint32_t i = 0;
	while (i + 1 < report->trace_count && report->traces[i] != trace)
		i++;
	return i;
}

json_t *clv_html_data(const struct clv_report *report, struct clv_error *err)
{
	struct clv_html_texts texts;
	json_t *devices = json_array(), *j = NULL;
	bool ok = clv_html_texts_init(&texts) && devices;
	for (uint32_t i = 0; ok && i < report->device_count; i++) {
		const struct clv_html_device p = {.d = &report->devices[i],
						  .trace_index = trace_index(report, report->devices[i].trace),
						  .share = report->device_count,
						  .begin_us = begin_of(report->devices[i].trace),
						  .texts = &texts};
		ok = json_array_append_new(devices, device_json(&p, err)) == 0;
	}
	if (ok)
		j = json_pack("{s:o, s:O, s:o}", "causes", causes_json(), "devices", devices, "stacks",
			      clv_html_texts_json(&texts));
	json_decref(devices);
	clv_html_texts_free(&texts);
	if (!j)
		clv_error_set(err, "out of host memory");
	return j;
}
