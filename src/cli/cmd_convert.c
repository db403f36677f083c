/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "cli.h"
#include "replay_text.h"

#include "../../tracing/export/export.h"
#include "../../tracing/format/clv.h"
#include "../../tracing/import/import.h"
#include "../../tracing/output.h"
#include "../../tracing/symbols/symbolise.h"

#include <stdio.h>
#include <string.h>

#define NAME "convert"

#define EVERY_DEVICE -1

static const char about[] =
	"Writes a trace in another format. TRACE is a PyTorch memory snapshot, a .clv file or an RMM CSV log.\n\n"
	"Formats:\n"
	"  clv       Cleave's own: requests, frees, segment events, final state, settings and stacks,\n"
	"            a few bytes an event\n"
	"  torch     a PyTorch memory snapshot, for pytorch.org/memory_viz and torch.cuda._memory_viz.\n"
	"            A final state that the trace lacks is made up of what is live at its end\n"
	"  perfetto  JSON for ui.perfetto.dev and chrome://tracing: counters, lifetimes of blocks,\n"
	"            failures, marks and phases. Of a large trace a sample, and the largest 100,000\n"
	"            blocks of each device\n"
	"  rmm       an RMM CSV log: requests, completed frees and failures of one device, without\n"
	"            settings, segments and stacks\n\n"
	"Native frames of a recording get their functions and lines, from the files that the program had\n"
	"loaded: if they are here and still the same. FILE appears when it is complete; what was there before is replaced.";

/* Each has one of the two: a format that holds all devices, or one. */
static const struct target {
	const char *name;
	bool (*write)(const struct clv_trace *trace, const char *path, struct clv_error *err);
	bool (*write_one)(const struct clv_trace *trace, const struct clv_history *history, const char *path,
			  struct clv_error *err);
} targets[] = {
	{.name = "clv", .write = clv_trace_write},
	{.name = "torch", .write = clv_export_torch},
	{.name = "perfetto", .write = clv_export_perfetto},
	{.name = "rmm", .write_one = clv_export_rmm},
};

static const struct target *find_target(const char *name)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(targets); i++)
		if (strcmp(targets[i].name, name) == 0)
			return &targets[i];
	return NULL;
}

static int refuse_target(const char *name)
{
	char names[64] = "";
	for (size_t i = 0, used = 0; i < CLV_ARRAY_LEN(targets) && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", targets[i].name);
	return clv_cli_refuse(NAME, "--to %s: not a format that this version writes; it writes: %s", name, names);
}

/* The history that a format for one device gets: the only one, or the one asked for. */
static const struct clv_history *choose(const struct clv_trace *trace, const char *format, int device,
					struct clv_error *err)
{
	const struct clv_history *found = clv_trace_select(trace, device, err);
	for (uint32_t i = 0; found && device == EVERY_DEVICE && i < trace->history_count; i++)
		if (trace->histories[i].event_count && &trace->histories[i] != found) {
			clv_error_set(
				err,
				"%s: --to %s holds one device, and devices %d and %d have a history: --device-index N",
				trace->file, format, found->device, trace->histories[i].device);
			return NULL;
		}
	return found;
}

static bool write_trace(const struct target *target, const struct clv_trace *trace, int device, const char *path,
			struct clv_error *err)
{
	if (target->write)
		return target->write(trace, path, err);
	const struct clv_history *history = choose(trace, target->name, device, err);
	return history && target->write_one(trace, history, path, err);
}

static int convert(const struct target *target, const char *from, int device, const char *to)
{
	struct clv_error err = {{0}};
	struct clv_replay_meter meter;
	if (!clv_output_try(to, &err)) /* before the work */
		return clv_cli_refuse(NAME, "%s", err.text);
	clv_replay_meter_init(&meter, stderr);
	clv_replay_meter_say(&meter, "reading", from);
	struct clv_trace *trace = clv_trace_import(from, &err);
	clv_replay_meter_clear(&meter);
	if (!trace)
		return clv_cli_refuse(NAME, "%s", err.text);
	if (trace->note)
		fprintf(stderr, "cleave " NAME ": %s: %s\n", from, trace->note);
	clv_replay_meter_say(&meter, "looking up symbols of", from);
	bool ok = clv_trace_symbolise(trace, NULL, &err);
	clv_replay_meter_say(&meter, "writing", to);
	ok = ok && write_trace(target, trace, device, to, &err);
	clv_replay_meter_clear(&meter);
	clv_trace_free(trace);
	return ok ? CLV_EXIT_DONE : clv_cli_refuse(NAME, "%s", err.text);
}

int clv_cmd_convert(int argc, char **argv)
{
	const char *to = NULL, *out = NULL;
	uint64_t device = 0;
	bool device_given = false;
	const struct clv_arg options[] = {
		{.name = "to",
		 .kind = CLV_ARG_TEXT,
		 .into = &to,
		 .value = "FORMAT",
		 .help = "the format to write: clv, torch, perfetto or rmm"},
		{.name = "output",
		 .letter = 'o',
		 .kind = CLV_ARG_TEXT,
		 .into = &out,
		 .value = "FILE",
		 .help = "where to write it"},
		{.name = "device-index",
		 .kind = CLV_ARG_NUMBER,
		 .into = &device,
		 .value = "N",
		 .max = INT32_MAX,
		 .given = &device_given,
		 .help = "of rmm, where several devices have a history: which one"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "TRACE",
				      .about = about,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options),
				      .operands_min = 1,
				      .operands_max = 1};
	int first;
	int status = clv_args_parse(&args, argc, argv, &first);
	if (status >= 0)
		return status;
	if (!to)
		return clv_cli_refuse(NAME, "--to is missing; `cleave help " NAME "` lists the formats");
	const struct target *target = find_target(to);
	if (!target)
		return refuse_target(to);
	if (!out)
		return clv_cli_refuse(NAME, "-o FILE is missing");
	if (device_given && !target->write_one)
		return clv_cli_refuse(NAME, "--device-index goes with --to rmm; --to %s holds every device", to);
	return convert(target, argv[first], device_given ? (int)device : EVERY_DEVICE, out);
}
