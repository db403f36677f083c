/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "args.h"
#include "cli.h"
#include "stat_ask.h"
#include "stat_print.h"
#include "stat_snapshot.h"

#include "../../tracing/format/clv.h"
#include "../base/size_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAME "stat"
#define RATES_OVER_S 0.2 /* without --watch */

static const char about[] =
	"Shows the heap of a running process that was started with `cleave run`, device by device: what is held, what is live,\n"
	"and where the rest is. hard: free between live blocks, of use for what fits there alone; soft: free and whole, only\n"
	"not given back; stream: free, but work of a stream may still use it; internal: what blocks have beyond the requests;\n"
	"reserved: held back for requests to come. live + internal + reserved + hard + soft + stream = held.\n\n"
	"Only root and the user of the process may ask. The process goes on meanwhile; while its blocks are counted it waits\n"
	"with requests of more than 32 KiB.";

struct wants {
	long pid;
	bool json, trim;
	double watch, timeout;
	const char *snapshot;
};

static void pause_for(double seconds)
{
	struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static enum clv_exit ask(const struct wants *w, enum clv_stat_op op, struct clv_stat_sample *out)
{
	struct clv_error err = {""};
	enum clv_exit status = clv_stat_ask(w->pid, op, (int64_t)(w->timeout * 1000), out, &err);
	if (status != CLV_EXIT_DONE)
		clv_cli_refuse(NAME, "%s", err.text);
	return status;
}

static int print_json(const struct clv_stat_view *view, const struct clv_stat_rates *rates, bool one_line)
{
	json_t *document = clv_stat_json(view, rates);
	if (!document)
		return clv_cli_refuse(NAME, "out of host memory");
	json_dumpf(document, stdout, (one_line ? JSON_COMPACT : JSON_INDENT(2)) | JSON_REAL_PRECISION(12));
	putchar('\n');
	json_decref(document);
	return CLV_EXIT_DONE;
}

static int print(const struct wants *w, const struct clv_stat_view *view, const struct clv_stat_rates *rates)
{
	if (w->json)
		return print_json(view, rates, w->watch > 0);
	if (w->watch > 0 && isatty(STDOUT_FILENO))
		printf("\033[H\033[J"); /* from the top of an empty screen */
	clv_stat_text(view, rates, stdout);
	return CLV_EXIT_DONE;
}

static int write_snapshot(const struct wants *w, const struct clv_stat_view *view)
{
	struct clv_error err = {""};
	struct clv_trace *trace = clv_stat_trace(view, &err);
	bool good = trace && clv_trace_write(trace, w->snapshot, &err);
	clv_trace_free(trace);
	return good ? CLV_EXIT_DONE : clv_cli_refuse(NAME, "%s", err.text);
}

/* One answer to a request for more than numbers. */
static int ask_once(const struct wants *w)
{
	struct clv_stat_sample s;
	char size[32];
	int status = ask(w, w->trim ? CLV_STAT_TRIM : CLV_STAT_SNAPSHOT, &s);
	if (status != CLV_EXIT_DONE)
		return status;
	if (w->snapshot)
		status = write_snapshot(w, &s.view);
	if (status == CLV_EXIT_DONE && w->json)
		status = print_json(&s.view, NULL, false);
	else if (status == CLV_EXIT_DONE && w->trim)
		printf("process %ld gave %s back to the driver\n", w->pid,
		       clv_size_print(s.view.process->released, size, sizeof(size)));
	clv_stat_sample_free(&s);
	return status;
}

/* Two answers, and with --watch further ones for as long as the process lives. */
static int ask_on(const struct wants *w)
{
	struct clv_stat_sample before, now;
	struct clv_stat_rates rates;
	int status = ask(w, CLV_STAT_ASK, &before);
	if (status != CLV_EXIT_DONE)
		return status;
	if (w->watch > 0)
		status = print(w, &before.view, NULL);
	while (status == CLV_EXIT_DONE) {
		if (w->watch > 0 && (fflush(stdout) || ferror(stdout)))
			break; /* nobody reads any more, which main() tells */
		pause_for(w->watch > 0 ? w->watch : RATES_OVER_S);
		if (w->watch > 0 && clv_stat_has_ended(w->pid)) {
			fprintf(stderr, "cleave " NAME ": process %ld has ended\n", w->pid);
			break;
		}
		status = ask(w, CLV_STAT_ASK, &now);
		if (status != CLV_EXIT_DONE)
			break;
		bool known = clv_stat_rates(&before.view, &now.view, &rates);
		if (w->watch > 0 && !w->json && !isatty(STDOUT_FILENO))
			putchar('\n');
		status = print(w, &now.view, known ? &rates : NULL);
		clv_stat_sample_free(&before);
		before = now;
		if (!(w->watch > 0))
			break;
	}
	clv_stat_sample_free(&before);
	return status;
}

static bool parse_pid(const char *text, long *pid)
{
	size_t len = strlen(text);
	*pid = 0;
	if (!len || len > 10 || strspn(text, "0123456789") != len)
		return false;
	for (const char *c = text; *c; c++)
		*pid = *pid * 10 + (*c - '0');
	return *pid > 0 && *pid <= INT32_MAX;
}

int clv_cmd_stat(int argc, char **argv)
{
	struct wants w = {.timeout = 5};
	const struct clv_arg options[] = {
		{.name = "json",
		 .kind = CLV_ARG_FLAG,
		 .into = &w.json,
		 .help = "print one JSON document, with --watch one a line"},
		{.name = "watch",
		 .kind = CLV_ARG_SECONDS,
		 .into = &w.watch,
		 .value = "SECONDS",
		 .help = "again and again, until the process ends"},
		{.name = "trim",
		 .kind = CLV_ARG_FLAG,
		 .into = &w.trim,
		 .help = "let it give back to the driver what is free and whole, without waiting\n"
			 "for work, and say how much that was"},
		{.name = "snapshot",
		 .kind = CLV_ARG_TEXT,
		 .into = &w.snapshot,
		 .value = "FILE",
		 .help = "write all blocks, live and free, to a .clv file"},
		{.name = "timeout",
		 .kind = CLV_ARG_SECONDS,
		 .into = &w.timeout,
		 .value = "SECONDS",
		 .help = "how long an answer is waited for (default: 5)"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "PID",
				      .about = about,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options),
				      .operands_min = 1,
				      .operands_max = 1};
	int first;
	int status = clv_args_parse(&args, argc, argv, &first);
	if (status >= 0)
		return status;
	if (!parse_pid(argv[first], &w.pid))
		return clv_cli_refuse(NAME, "'%s' is no process id", argv[first]);
	if ((w.trim != 0) + (w.snapshot != NULL) + (w.watch > 0) > 1)
		return clv_cli_refuse(NAME, "only one of --watch, --trim and --snapshot at a time");
	return w.trim || w.snapshot ? ask_once(&w) : ask_on(&w);
}
