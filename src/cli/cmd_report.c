/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "cli.h"
#include "replay_text.h"
#include "report_text.h"

#include "../base/base.h"

#include "../../tracing/import/import.h"
#include "../../tracing/output.h"
#include "../../tracing/report/html.h"
#include "../../tracing/report/report_json.h"
#include "../../tracing/symbols/symbolise.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "report"

/* Events that are replayed to see what would have helped: some seconds. */
#define TRIAL_EVENTS 12000000u
#define TRACES_MAX 1024

static const char about[] =
	"Shows how much memory of a recorded program is lost and to what, who pins it, why requests failed, and what would\n"
	"have helped, which is replayed before it is told. TRACE is a PyTorch memory snapshot, a .clv file or an RMM CSV log;\n"
	"of several (the ranks of a job) the worst comes first.\n\n"
	"Each byte that is held is of one kind:\n"
	"  live         of a block in use, as requested, in units of 512 B\n"
	"  internal     of a block in use, beyond that: rounding\n"
	"  reservation  held back for requests to come\n"
	"  stream       freed, but work of a stream may still use it\n"
	"  hard         free, in a frame or segment with a block in use: stranded\n"
	"  soft         free and whole: only not given back\n\n"
	"Exit status: 0 done; 2 usage or unreadable input.";

struct options {
	const char *output, *at;
	uint64_t top;
	bool json, timeline, no_trials;
};

static int parse(struct options *o, int argc, char **argv, int *first)
{
	const struct clv_arg options[] = {
		{.name = "output",
		 .letter = 'o',
		 .kind = CLV_ARG_TEXT,
		 .into = &o->output,
		 .value = "FILE.html",
		 .help = "write a page that a browser shows, and no table"},
		{.name = "top",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->top,
		 .value = "N",
		 .min = 1,
		 .max = 1000,
		 .help = "culprits and holes told of at each moment; default: 10"},
		{.name = "at",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->at,
		 .value = "WHEN",
		 .help = "a moment to look at as well: seconds since the trace\nbegan (12.5s), or after how many events (12500)"},
		{.name = "no-trials",
		 .kind = CLV_ARG_FLAG,
		 .into = &o->no_trials,
		 .help = "do not replay what might have helped"},
		{.name = "json", .kind = CLV_ARG_FLAG, .into = &o->json, .help = "print one JSON document"},
		{.name = "timeline",
		 .kind = CLV_ARG_FLAG,
		 .into = &o->timeline,
		 .help = "with --json: the course of each sum as well"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "TRACE...",
				      .about = about,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options),
				      .operands_min = 1,
				      .operands_max = TRACES_MAX};
	return clv_args_parse(&args, argc, argv, first);
}

/* "12.5s" or "12500". */
static bool parse_moment(const char *text, struct clv_report_options *out)
{
	char *end;
	if (text[strspn(text, "0123456789")] == '\0') {
		errno = 0;
		out->at_event = strtoull(text, &end, 10);
		out->at_event_set = true;
		return errno == 0;
	}
	if (!strchr("0123456789.", text[0]))
		return false;
	out->at_s = strtod(text, &end);
	out->at_time_set = true;
	return end > text && strcmp(end, "s") == 0 && isfinite(out->at_s);
}

static void show_progress(void *arg, const char *what, double part)
{
	struct clv_replay_progress p = {.policy = what, .done = (uint64_t)(part * 1000), .total = 1000};
	clv_replay_meter_show(arg, &p);
}

/* A rank whose file is empty is not to be missed among others. */
static void say_what_is_left_out(const struct clv_report *r)
{
	for (uint32_t i = 0; i < r->trace_count; i++) {
		bool found = false;
		for (uint32_t d = 0; d < r->device_count && !found; d++)
			found = r->devices[d].trace == r->traces[i];
		if (!found)
			fprintf(stderr, "cleave " NAME ": %s: holds neither a history nor a state; left out\n",
				r->traces[i]->file);
	}
}

static int answer(const struct options *o, const struct clv_report *r)
{
	struct clv_error err = {{0}};
	if (o->output && !clv_report_html(r, o->output, &err))
		return clv_cli_refuse(NAME, "%s", err.text);
	if (!o->json && !o->output) /* a page that was asked for is the answer */
		clv_report_text_write(r, stdout);
	else if (o->json && !clv_report_json_write(r, o->timeline, stdout, &err) && !ferror(stdout))
		return clv_cli_refuse(NAME, "%s", err.text);
	return CLV_EXIT_DONE;
}

static int run(const struct options *o, struct clv_report_options *ro, char **paths, uint32_t count)
{
	struct clv_error err = {{0}};
	struct clv_replay_meter meter;
	struct clv_trace **traces = calloc(count, sizeof(*traces));
	struct clv_report *report = NULL;
	int status = CLV_EXIT_USAGE;
	clv_replay_meter_init(&meter, stderr);
	ro->progress = show_progress;
	ro->progress_arg = &meter;
	bool ok = traces || clv_error_set(&err, "out of host memory");
	for (uint32_t i = 0; ok && i < count; i++) {
		clv_replay_meter_say(&meter, "reading", paths[i]);
		traces[i] = clv_trace_import(paths[i], &err);
		clv_replay_meter_say(&meter, "looking up symbols of", paths[i]);
		ok = traces[i] && clv_trace_symbolise(traces[i], NULL, &err);
		clv_replay_meter_clear(&meter);
		if (ok && traces[i]->note)
			fprintf(stderr, "cleave " NAME ": %s: %s\n", paths[i], traces[i]->note);
	}
	if (ok)
		report = clv_report_make((const struct clv_trace *const *)traces, count, ro, &err);
	clv_replay_meter_clear(&meter);
	if (report) {
		say_what_is_left_out(report);
		status = answer(o, report);
	} else {
		clv_cli_refuse(NAME, "%s", err.text);
	}
	clv_report_free(report);
	for (uint32_t i = 0; traces && i < count; i++)
		clv_trace_free(traces[i]);
	free(traces);
	return status;
}

int clv_cmd_report(int argc, char **argv)
{
	struct options o = {0};
	struct clv_report_options ro = {0};
	struct clv_error err = {{0}};
	int first, status = parse(&o, argc, argv, &first);
	if (status >= 0)
		return status;
	if (o.at && !parse_moment(o.at, &ro))
		return clv_cli_refuse(NAME, "--at %s: seconds are written like 12.5s, a number of events like 12500",
				      o.at);
	if (o.timeline && !o.json)
		return clv_cli_refuse(NAME, "--timeline goes with --json");
	if (!clv_output_try(o.output, &err) || (o.output && !clv_report_html_ready(o.output, &err))) /* before the work */
		return clv_cli_refuse(NAME, "%s", err.text);
	ro.top = (uint32_t)o.top;
	ro.trial_events = o.no_trials ? 0 : TRIAL_EVENTS;
	return run(&o, &ro, argv + first, (uint32_t)(argc - first));
}
