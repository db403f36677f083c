/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "cli.h"
#include "replay_text.h"

#include "../../tracing/format/clv.h"
#include "../../tracing/import/import.h"

#include <stdio.h>
#include <string.h>

#define NAME "convert"

static const char about[] =
	"Writes a trace in another format. TRACE is a PyTorch memory snapshot, a .clv file or an RMM CSV log.\n\n"
	"Formats:\n"
	"  clv  Cleave's own: requests, frees, segment events, final state, settings and stacks, a few bytes an event\n\n"
	"FILE appears when it is complete; what was there before is replaced.";

static const struct target {
	const char *name;
	bool (*write)(const struct clv_trace *trace, const char *path, struct clv_error *err);
} targets[] = {
	{"clv", clv_trace_write},
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

static int convert(const struct target *target, const char *from, const char *to)
{
	struct clv_error err = {{0}};
	struct clv_replay_meter meter;
	clv_replay_meter_init(&meter, stderr);
	clv_replay_meter_say(&meter, "reading", from);
	struct clv_trace *trace = clv_trace_import(from, &err);
	clv_replay_meter_clear(&meter);
	if (!trace)
		return clv_cli_refuse(NAME, "%s", err.text);
	if (trace->note)
		fprintf(stderr, "cleave " NAME ": %s: %s\n", from, trace->note);
	clv_replay_meter_say(&meter, "writing", to);
	bool ok = target->write(trace, to, &err);
	clv_replay_meter_clear(&meter);
	clv_trace_free(trace);
	return ok ? CLV_EXIT_DONE : clv_cli_refuse(NAME, "%s", err.text);
}

int clv_cmd_convert(int argc, char **argv)
{
	const char *to = NULL, *out = NULL;
	const struct clv_arg options[] = {
		{.name = "to",
		 .kind = CLV_ARG_TEXT,
		 .into = &to,
		 .value = "FORMAT",
		 .help = "the format to write: clv"},
		{.name = "output",
		 .letter = 'o',
		 .kind = CLV_ARG_TEXT,
		 .into = &out,
		 .value = "FILE",
		 .help = "where to write it"},
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
	return convert(target, argv[first], out);
}
