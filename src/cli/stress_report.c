/* SPDX-License-Identifier: MIT */
#include "stress_report.h"

#include "../../tracing/json_text.h"
#include "../base/size_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* ---- a run ---- */

/* Everything follows from the seed. */
static bool repeatable(const struct clv_stress_config *c)
{
	return c->threads == 1 && !c->cuda;
}

/* The command that repeats the round in which something was wrong. */
static void print_again(const struct clv_stress_config *c, const struct clv_stress_result *r, char *buf, size_t len)
{
	int n = snprintf(buf, len,
			 "cleave stress --seed %" PRIu64 " --ops %" PRIu64
			 " --threads %u --streams %u --capacity %" PRIu64 " --check %s%s%s",
			 r->seed, r->round_ops, c->threads, c->streams, c->capacity, c->full ? "full" : "samples",
			 c->faults ? " --faults" : "", c->cuda ? " --driver cuda" : "");
	if (c->settings && n > 0 && (size_t)n < len)
		snprintf(buf + n, len - (size_t)n, " --settings '%s'", c->settings);
}

static void print_wrong(const struct clv_stress_config *c, const struct clv_stress_result *r, FILE *out)
{
	char again[1024];
	print_again(c, r, again, sizeof(again));
	fprintf(out, "WRONG: seed %" PRIu64 ", ", r->seed);
	if (r->operation)
		fprintf(out, "operation %" PRIu64, r->operation);
	else
		fprintf(out, "between operations");
	if (c->threads > 1)
		fprintf(out, " of thread %u", r->thread);
	fprintf(out, ": %s\n%s with: %s\n", r->wrong,
		repeatable(c) ? "The same"
		: c->cuda     ? "Perhaps the same (the GPU works at its own pace)"
			      : "Perhaps the same (threads come in another order)",
		again);
}

void clv_stress_text(const struct clv_stress_config *c, const struct clv_stress_result *r, FILE *out)
{
	char live[32], held[32], bytes[32];
	if (!r->passed) {
		print_wrong(c, r, out);
		return;
	}
	fprintf(out, "%" PRIu64 " operations in %" PRIu64 " round%s, seed%s %" PRIu64, r->ops, r->rounds,
		r->rounds == 1 ? "" : "s", r->rounds == 1 ? "" : "s from", c->seed);
	fprintf(out, ", %u thread%s, %u stream%s: nothing wrong. %.1f s, %.0f operations/s.\n", c->threads,
		c->threads == 1 ? "" : "s", c->streams, c->streams == 1 ? "" : "s", r->wall_s,
		r->wall_s > 0 ? (double)r->ops / r->wall_s : 0.0);
	fprintf(out, "Peak live %s, peak held %s. Contents of %s checked (%s).\n",
		clv_size_print(r->live_peak, live, sizeof(live)), clv_size_print(r->held_peak, held, sizeof(held)),
		clv_size_print(r->bytes_checked, bytes, sizeof(bytes)), c->full ? "every byte" : "at samples");
#define X(field, text) fprintf(out, "%12" PRIu64 "  %s\n", r->counts.field, text);
	CLV_STRESS_COUNTS(X)
#undef X
	if (c->faults)
		fprintf(out, "%12" PRIu64 "  calls of the driver failed\n", r->faults);
	if (repeatable(c))
		fprintf(out, "Digest %016" PRIx64 ".\n", r->digest);
}

static bool write_document(json_t *doc, FILE *out)
{
	bool ok = doc && json_dumpf(doc, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) == 0 && fputc('\n', out) != EOF;
	json_decref(doc);
	return ok;
}

static json_t *counts_json(const struct clv_stress_counts *counts)
{
	json_t *object = json_object();
	bool ok = object != NULL;
#define X(field, text) ok = ok && json_object_set_new(object, #field, clv_json_number(counts->field)) == 0;
	CLV_STRESS_COUNTS(X)
#undef X
	if (ok)
		return object;
	json_decref(object);
	return NULL;
}

static json_t *wrong_json(const struct clv_stress_config *c, const struct clv_stress_result *r)
{
	char again[1024];
	if (r->passed)
		return json_null();
	print_again(c, r, again, sizeof(again));
	return json_pack("{s:o,s:o,s:I,s:s,s:s}", "seed", clv_json_number(r->seed), "operation",
			 clv_json_number(r->operation), "thread", (json_int_t)r->thread, "text", r->wrong, "again",
			 again);
}

bool clv_stress_json(const struct clv_stress_config *c, const struct clv_stress_result *r, FILE *out)
{
	char digest[17];
	snprintf(digest, sizeof(digest), "%016" PRIx64, r->digest);
	return write_document(
		json_pack("{s:b,s:o,s:o,s:I,s:I,s:o,s:b,s:b,s:s?,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s?,s:f,s:o}", "passed",
			  (int)r->passed, "ops", clv_json_number(r->ops), "seed", clv_json_number(c->seed), "threads",
			  (json_int_t)c->threads, "streams", (json_int_t)c->streams, "capacity_bytes",
			  clv_json_number(c->capacity), "every_byte", (int)c->full, "faults", (int)c->faults,
			  "settings", c->settings, "rounds", clv_json_number(r->rounds), "faults_injected",
			  clv_json_number(r->faults), "peak_live_bytes", clv_json_number(r->live_peak),
			  "peak_held_bytes", clv_json_number(r->held_peak), "bytes_written",
			  clv_json_number(r->bytes_written), "bytes_checked", clv_json_number(r->bytes_checked),
			  "counts", counts_json(&r->counts), "digest", repeatable(c) ? digest : NULL, "wall_s",
			  r->wall_s, "wrong", wrong_json(c, r)),
		out);
}

/* ---- profiles ---- */

static double over(uint64_t bytes, uint64_t live)
{
	return live ? (double)bytes / (double)live : 0;
}

static uint64_t calls_of(const struct clv_replay_result *r)
{
	uint64_t calls = 0;
	for (int c = 0; c < CLV_CALL_COUNT; c++)
		calls += r->stats.driver.calls[c];
	return calls;
}

static double us_per_request(const struct clv_replay_result *r)
{
	return r->requests ? (double)r->stats.driver.ns * 1e-3 / (double)r->requests : 0;
}

void clv_profile_text(const struct clv_profile_report *p, FILE *out)
{
	const struct clv_history *h = &p->trace->histories[0];
	char live[32], end[32];
	size_t width = strlen("policy");
	for (size_t i = 0; i < p->row_count; i++)
		width = clv_max_u64(width, strlen(p->rows[i].policy));
	fprintf(out, "%s: %s\n%" PRIu32 " requests and frees, peak live %s, live at the end %s\n",
		clv_profile_name(p->profile), clv_profile_about(p->profile), h->event_count,
		clv_size_print(h->peak_live_bytes, live, sizeof(live)),
		clv_size_print(p->live_at_end, end, sizeof(end)));
	fprintf(out,
		"  %-*s  completes  peak held  / live  at the end  stranded  retries  driver calls  driver time  "
		"us/request\n",
		(int)width, "policy");
	for (size_t i = 0; i < p->row_count; i++) {
		const struct clv_replay_result *r = &p->rows[i].result;
		char held[32], stranded[32], at_end[32] = "-";
		if (r->completed)
			snprintf(at_end, sizeof(at_end), "%.3f", over(r->stats.held_bytes, p->live_at_end));
		fprintf(out, "  %-*s  %9s  %9s  %6.3f  %10s  %8s  %7" PRIu64 "  %12" PRIu64 "  %9.1fms  %10.2f\n",
			(int)width, p->rows[i].policy, r->completed ? "yes" : "no",
			clv_size_print(r->stats.peak_reserved_bytes, held, sizeof(held)),
			over(r->stats.peak_reserved_bytes, h->peak_live_bytes), at_end,
			clv_size_print(r->stats.stranded_peak_bytes, stranded, sizeof(stranded)), r->stats.oom_retries,
			calls_of(r), (double)r->stats.driver.ns * 1e-6, us_per_request(r));
	}
	for (size_t i = 0; i < p->row_count; i++) {
		const struct clv_replay_result *r = &p->rows[i].result;
		if (!r->completed)
			fprintf(out, "  %s fails at request or free %" PRIu64 ": %s\n", p->rows[i].policy,
				r->failed_at_event + 1, r->failure);
	}
	fputc('\n', out);
}

static json_t *call_counts(const struct clv_call_counts *counts)
{
	json_t *calls = json_object();
	for (int c = 0; calls && c < CLV_CALL_COUNT; c++)
		if (counts->calls[c] &&
		    json_object_set_new(calls, clv_call_name((enum clv_call)c), clv_json_number(counts->calls[c]))) {
			json_decref(calls);
			return NULL;
		}
	return calls;
}

static json_t *row_json(const struct clv_profile_row *row, const struct clv_profile_report *p)
{
	const struct clv_replay_result *r = &row->result;
	const struct clv_policy_stats *s = &r->stats;
	uint64_t peak = p->trace->histories[0].peak_live_bytes;
	return json_pack(
		"{s:s,s:b,s:o,s:o,s:f,s:o,s:o,s:o,s:o,s:o,s:o,s:f,s:f,s:f}", "policy", row->policy, "completed",
		(int)r->completed, "failed_at_event", r->completed ? json_null() : clv_json_number(r->failed_at_event),
		"peak_held_bytes", clv_json_number(s->peak_reserved_bytes), "held_over_live",
		over(s->peak_reserved_bytes, peak), "end_held_bytes",
		r->completed ? clv_json_number(s->held_bytes) : json_null(), "end_held_over_live",
		r->completed ? json_real(over(s->held_bytes, p->live_at_end)) : json_null(), "stranded_peak_bytes",
		clv_json_number(s->stranded_peak_bytes), "oom_retries", clv_json_number(s->oom_retries), "waits",
		clv_json_number(s->waits), "driver_calls", call_counts(&s->driver), "modelled_driver_s",
		(double)s->driver.ns * 1e-9, "modelled_driver_us_per_request", us_per_request(r), "wall_s", r->wall_s);
}

static json_t *profile_json(const struct clv_profile_report *p, uint64_t seed, uint64_t capacity)
{
	const struct clv_history *h = &p->trace->histories[0];
	json_t *policies = json_array();
	for (size_t i = 0; policies && i < p->row_count; i++)
		if (json_array_append_new(policies, row_json(&p->rows[i], p))) {
			json_decref(policies);
			policies = NULL;
		}
	return json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:f,s:o,s:o,s:o}", "name", clv_profile_name(p->profile), "about",
			 clv_profile_about(p->profile), "seed", clv_json_number(seed), "capacity_bytes",
			 clv_json_number(capacity), "events", clv_json_number(h->event_count), "allocs",
			 clv_json_number(h->alloc_count), "streams", clv_json_number(h->stream_count), "duration_s",
			 h->duration_s, "peak_live_bytes", clv_json_number(h->peak_live_bytes), "end_live_bytes",
			 clv_json_number(p->live_at_end), "policies", policies);
}

bool clv_profile_json(const struct clv_profile_report *reports, size_t count, uint64_t seed, uint64_t capacity,
		      FILE *out)
{
	json_t *list = json_array();
	for (size_t i = 0; list && i < count; i++)
		if (json_array_append_new(list, profile_json(&reports[i], seed, capacity))) {
			json_decref(list);
			list = NULL;
		}
	return write_document(json_pack("{s:o}", "profiles", list), out);
}
