/* SPDX-License-Identifier: MIT */
#include "replay_json.h"

#include "../json_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double clv_replay_over_live(const struct clv_history *history, uint64_t bytes)
{
	return history->peak_live_bytes ? (double)bytes / (double)history->peak_live_bytes : 0;
}

bool clv_verify_matches(const struct clv_verify_result *v)
{
	return !v->address_mismatches && !v->segment_mismatches && !v->oom_mismatches && v->final_state_matches &&
	       !v->first_mismatch.set;
}

static json_t *real_or_null(double v, bool there)
{
	return there && isfinite(v) ? json_real(v) : json_null();
}

static json_t *driver_calls(const struct clv_call_counts *counts)
{
	json_t *calls = json_object();
	for (int c = 0; c < CLV_CALL_COUNT; c++)
		if (counts->calls[c] &&
		    json_object_set_new(calls, clv_call_name((enum clv_call)c), clv_json_number(counts->calls[c]))) {
			json_decref(calls);
			return NULL;
		}
	return calls;
}

static json_t *trace_json(const struct clv_trace *trace, const struct clv_history *h)
{
	/* A value that could not be made fails the whole: json_pack drops what it took and answers NULL. */
	return json_pack("{s:o,s:s,s:i,s:I,s:I,s:I,s:I,s:o,s:o,s:I}", "file", clv_json_text(trace->file), "format",
			 clv_trace_format_name(trace->format), "device", h->device, "devices",
			 (json_int_t)trace->history_count, "events", (json_int_t)h->event_count, "allocs",
			 (json_int_t)h->alloc_count, "streams", (json_int_t)h->stream_count, "duration_s",
			 real_or_null(h->duration_s, true), "peak_live_bytes", clv_json_number(h->peak_live_bytes),
			 "recorded_ooms", (json_int_t)h->oom_count);
}

static json_t *row_json(const struct clv_replay_row *row, const struct clv_history *h)
{
	const struct clv_replay_result *r = &row->result;
	const struct clv_policy_stats *s = &r->stats;
	bool live = h->peak_live_bytes > 0, fit = row->fitted && row->fit.found;
	/* `proved` is there only where something is: s:o* leaves out what is NULL. */
	return json_pack("{s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o*}", "policy",
			 clv_json_text(row->policy), "completed", (int)r->completed, "failed_at_event",
			 r->completed ? json_null() : clv_json_number(r->failed_at_event), "peak_reserved_bytes",
			 clv_json_number(s->peak_reserved_bytes), "reserved_over_live",
			 real_or_null(clv_replay_over_live(h, s->peak_reserved_bytes), live), "stranded_peak_bytes",
			 clv_json_number(s->stranded_peak_bytes), "oom_retries", clv_json_number(s->oom_retries),
			 "skipped_ooms", clv_json_number(r->skipped_ooms), "waits", clv_json_number(s->waits),
			 "driver_calls", driver_calls(&s->driver), "modelled_driver_s",
			 real_or_null((double)s->driver.ns * 1e-9, true), "wall_s", real_or_null(r->wall_s, true),
			 "events_per_s", real_or_null((double)r->events / r->wall_s, r->wall_s > 0), "fit_bytes",
			 fit ? clv_json_number(row->fit.fit_bytes) : json_null(), "fit_over_live",
			 real_or_null(clv_replay_over_live(h, row->fit.fit_bytes), fit && live), "fit_monotone",
			 fit ? json_boolean(row->fit.monotone) : json_null(), "proved",
			 s->searched ? json_boolean(s->proved) : NULL);
}

static json_t *mismatch_json(const struct clv_verify_result *v)
{
	char line[sizeof(v->first_mismatch.text) + 64];
	if (v->first_mismatch.set)
		snprintf(line, sizeof(line), "event %" PRIu64 ": %s", v->first_mismatch.event, v->first_mismatch.text);
	else if (v->oom_mismatches)
		snprintf(line, sizeof(line), "%" PRIu64 " recorded ooms differ", v->oom_mismatches);
	else if (!v->final_state_matches)
		snprintf(line, sizeof(line), "the blocks at the end differ from the recorded state");
	else
		return json_null();
	return clv_json_text(line);
}

static json_t *verify_json(const struct clv_verify_result *v)
{
	json_t *inferred = json_object();
	for (int i = 0; inferred && i < CLV_INFERRED_COUNT; i++)
		if (json_object_set_new(inferred, clv_inferred_name((enum clv_inferred)i),
					clv_json_number(v->inferred[i]))) {
			json_decref(inferred);
			inferred = NULL;
		}
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "allocs", clv_json_number(v->allocs), "address_mismatches",
			 clv_json_number(v->address_mismatches), "segment_events", clv_json_number(v->segment_events),
			 "segment_mismatches", clv_json_number(v->segment_mismatches), "first_mismatch",
			 mismatch_json(v), "inferred", inferred);
}

static json_t *report_json(const struct clv_replay_report *report)
{
	json_t *policies = json_array();
	for (size_t i = 0; policies && i < report->row_count; i++)
		if (json_array_append_new(policies, row_json(&report->rows[i], report->history))) {
			json_decref(policies);
			policies = NULL;
		}
	return json_pack("{s:o,s:o,s:o}", "trace", trace_json(report->trace, report->history), "policies", policies,
			 "verify", report->verify ? verify_json(report->verify) : json_null());
}

bool clv_replay_json_write(const struct clv_replay_report *report, FILE *out, struct clv_error *err)
{
	json_t *doc = report_json(report);
	if (!doc)
		return clv_error_set(err, "out of host memory for the JSON document");
	/* 12 digits: what is measured has fewer, and 1.03 stays 1.03 */
	bool ok = json_dumpf(doc, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) == 0 && fputc('\n', out) != EOF;
	json_decref(doc);
	return ok || clv_error_set(err, "the JSON document could not be written");
}
