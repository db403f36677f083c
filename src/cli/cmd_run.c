/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* open_memstream */
#include "args.h"
#include "cli.h"
#include "run_command.h"
#include "run_env.h"
#include "run_plan.h"
#include "run_trace.h"

#include "../base/size_text.h"
#include "../heap/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "run"
#define LIBRARY "libcleave-preload.so"

#if defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif

static const char about[] =
	"Runs a program, and what it starts, with Cleave under it. Cleave takes the program's requests for device memory\n"
	"(CUDA Driver API); nothing in the program is changed. `cleave` itself is gone then: signals, exit status and\n"
	"terminal are the program's own. (With --report it waits for the program, hands signals on, and ends as that did.)\n\n"
	"These variables are merged with what is there, and one line on stderr says to what:\n"
	"  LD_PRELOAD               the library of Cleave comes first, before others that hook the driver\n"
	"  CLEAVE_CONF              what --conf, --stats, --trace and --plan say comes last; `cleave help settings` lists the settings\n"
	"  PYTORCH_CUDA_ALLOC_CONF  backend:cudaMallocAsync, so that each tensor is a request of its own; in PYTORCH_ALLOC_CONF\n"
	"                           if that is set. Not with --native, nor if a backend is chosen there already\n\n"
	"With --plan the room that a plan of `cleave plan` reserves is held back on each device that a process works on, from\n"
	"its first request of 1 MiB or more there, or of a size in the plan, until the conversion takes it (the setting\n"
	"`reserve`). If memory is short soft reservations yield to other requests, hard ones before one fails; --stats tells\n"
	"how it differed from the plan.\n\n"
	"With --trace each process that uses the device is recorded: the first into FILE, others into FILE with their process\n"
	"id before its .clv (FILE may have %p, the process id, and %r, the rank, in it). `cleave report` shows what was\n"
	"recorded, also while it goes on or after the process was killed. With --observe nothing is served and no variable of\n"
	"PyTorch is set: what the program does without Cleave is recorded.\n\n"
	"If the program cannot load the library (a static program, another C library, more rights than its caller), one line\n"
	"says why, and it runs with nothing set. So it does with CLEAVE_CONF=off. The library is looked for beside `cleave`\n"
	"and in ../lib from there; CLEAVE_PRELOAD=FILE names another.";

struct request {
	bool native, stats;
	struct clv_arg_texts confs;
	const char *plan_file; /* NULL: none */
	struct clv_run_plan plan;
	struct clv_run_trace trace;
	char **command;
	const char *path; /* of the program */
};

/* Everything said goes out in whole lines of one write each, so that lines of other processes stay apart. */
static CLV_PRINTF(1, 2) void say(const char *fmt, ...)
{
	char *line = NULL;
	size_t len;
	FILE *f = open_memstream(&line, &len);
	if (!f)
		return;
	fputs("cleave " NAME ": ", f);
	va_list ap;
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fputc('\n', f);
	if (!fclose(f))
		(void)!write(STDERR_FILENO, line, len);
	free(line);
}

static int no_memory(void)
{
	return clv_cli_refuse(NAME, "out of host memory");
}

/* Returns only if the command cannot be executed. */
static int execute(const char *path, char **command)
{
	clv_cli_restore_signals();
	int error = clv_run_execute(path, command);
	say("%s: cannot be executed: %s", path, strerror(error));
	return error == ENOENT ? CLV_EXIT_NOT_FOUND : CLV_EXIT_CANNOT_RUN;
}

static void keep_sentence(void *arg, const char *sentence)
{
	clv_error_set(arg, "%s", sentence);
}

/* CLEAVE_CONF for the program, from malloc: what is there, then --conf in order, then --stats, --trace and --plan. NULL after a
 * message. */
static char *merged_conf(const struct request *r)
{
	const char *there = getenv("CLEAVE_CONF");
	char *conf = clv_run_conf_merge(there, NULL);
	for (size_t i = 0; conf && i < r->confs.count + r->stats; i++) {
		const char *text = i < r->confs.count ? r->confs.items[i] : "stats:on";
		struct clv_settings parsed;
		struct clv_error err = {""};
		clv_settings_parse_lenient(&parsed, text, keep_sentence, &err);
		if (err.text[0]) {
			clv_cli_refuse(NAME, "option --conf: %s", err.text);
			free(conf);
			return NULL;
		}
		char *longer = clv_run_conf_merge(conf, text);
		free(conf);
		conf = longer;
	}
	const char *more[] = {r->trace.settings, r->plan_file ? r->plan.settings : NULL};
	for (size_t i = 0; conf && i < CLV_ARRAY_LEN(more); i++) {
		char *longer = clv_run_conf_merge(conf, more[i]);
		free(conf);
		conf = longer;
	}
	if (!conf)
		no_memory();
	return conf;
}

static bool is_off(const char *conf)
{
	struct clv_settings parsed;
	clv_settings_parse_lenient(&parsed, conf, NULL, NULL);
	return parsed.off;
}

/* The absolute path of the preload library. */
static bool find_library(char path[PATH_MAX], struct clv_error *why)
{
	const char *named = getenv("CLEAVE_PRELOAD");
	char dir[PATH_MAX];
	int n;
	if (named && *named) {
		if (*named != '/' && !getcwd(dir, sizeof(dir)))
			return clv_error_set(why, "the working directory has no path: %s", strerror(errno));
		n = snprintf(path, PATH_MAX, "%s%s%s", *named == '/' ? "" : dir, *named == '/' ? "" : "/", named);
		if (n >= PATH_MAX || access(path, F_OK))
			return clv_error_set(why, "the library %s, which CLEAVE_PRELOAD names, is not there", named);
		return true;
	}
	ssize_t len = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	if (len <= 0)
		return clv_error_set(why, "/proc/self/exe: %s", strerror(errno));
	dir[len] = '\0';
	*strrchr(dir, '/') = '\0';
	char *parent_end = strrchr(dir, '/');
	int parent = parent_end ? (int)(parent_end - dir) : 0;
	static const char *const places[] = {"lib", "lib/" MULTIARCH, "lib64"};
	n = snprintf(path, PATH_MAX, "%s/" LIBRARY, dir);
	for (size_t i = 0; n < PATH_MAX; i++) {
		if (!access(path, F_OK))
			return true;
		if (i == CLV_ARRAY_LEN(places))
			break;
		n = snprintf(path, PATH_MAX, "%.*s/%s/" LIBRARY, parent, dir, places[i]);
	}
	return clv_error_set(why, LIBRARY " is neither in %s nor in %.*s/lib", dir, parent, dir);
}

/* The library, and the list for LD_PRELOAD with it (from malloc), if the program can load it so; else NULL with the
 * reason. */
static char *usable_preload(const char *program, struct clv_error *why)
{
	char library[PATH_MAX];
	if (!find_library(library, why))
		return NULL;
	if (strpbrk(library, " :$")) {
		clv_error_set(why, "LD_PRELOAD cannot hold the path %s: blanks, colons and $ mean something there",
			      library);
		return NULL;
	}
	const char *there = getenv("LD_PRELOAD");
	char *list = clv_run_preloaded(there, library) ? strdup(there) : clv_run_preload_merge(there, library);
	if (!list) {
		clv_error_set(why, "out of host memory");
		return NULL;
	}
	if (!clv_run_loads(program, library, list, why)) {
		free(list);
		return NULL;
	}
	return list;
}

/* Sets a variable and adds it to what is said; what is the same already is neither. False: out of memory. */
static bool set(FILE *line, const char *name, const char *value)
{
	const char *there = getenv(name);
	if (there ? !strcmp(there, value) : !*value)
		return true;
	fprintf(line, " %s=%s", name, value);
	return !setenv(name, value, 1);
}

/* A variable in which a backend other than ours is chosen, or NULL. */
static const char *other_backend(char *backend, size_t len)
{
	for (size_t i = 0; i < CLV_RUN_TORCH_VARIABLES; i++)
		if (clv_run_torch_backend(getenv(clv_run_torch_variables[i]), backend, len) &&
		    strcmp(backend, CLV_RUN_TORCH_BACKEND))
			return clv_run_torch_variables[i];
	return NULL;
}

static bool merge_torch(FILE *line, const char *variable)
{
	const char *there = getenv(variable);
	char *merged = clv_run_torch_merge(there), *ignored = clv_run_torch_ignored(there);
	bool ok = merged && ignored && set(line, variable, merged);
	if (ok && *ignored)
		fprintf(line, " (this backend ignores %s)", ignored);
	free(merged);
	free(ignored);
	return ok;
}

/* The backend under which PyTorch asks the driver for each tensor. *chosen: it was us who chose it. */
static bool set_torch(FILE *line, const struct request *r, bool *chosen)
{
	char backend[64];
	bool native = r->native || r->trace.observe;
	const char *other = native ? NULL : other_backend(backend, sizeof(backend));
	bool ok = true, there = false;
	if (native)
		fputs("; PyTorch keeps its own allocator", line);
	if (other)
		fprintf(line, "; PyTorch keeps its backend '%s', which %s chooses", backend, other);
	if (native || other)
		return true;
	for (size_t i = 0; ok && i < CLV_RUN_TORCH_VARIABLES; i++) {
		const char *settings = getenv(clv_run_torch_variables[i]);
		there |= settings != NULL;
		if (!settings || clv_run_torch_backend(settings, backend, sizeof(backend)))
			continue;
		ok = merge_torch(line, clv_run_torch_variables[i]);
		*chosen = true;
	}
	if (!there) {
		ok = merge_torch(line, clv_run_torch_variables[0]);
		*chosen = true;
	}
	return ok;
}

static void tell_plan(FILE *line, const struct request *r)
{
	char size[32];
	if (!r->plan.count) {
		fprintf(line, "; %s reserves nothing", r->plan_file);
		return;
	}
	fprintf(line, "; %u reservation%s of %s, %s in all, on each device that a process works on", r->plan.count,
		r->plan.count == 1 ? "" : "s", r->plan_file, clv_size_print(r->plan.bytes, size, sizeof(size)));
	if (r->plan.small)
		fprintf(line, " (%u of sizes up to 32 KiB, which need none, left out)", r->plan.small);
}

/* False: out of memory. */
static bool set_variables(const struct request *r, const char *preload, const char *conf)
{
	char *text = NULL;
	size_t len;
	bool chosen = false;
	FILE *line = open_memstream(&text, &len);
	if (!line)
		return false;
	bool ok = set(line, "LD_PRELOAD", preload) && set(line, "CLEAVE_CONF", conf) && set_torch(line, r, &chosen);
	if (ok && r->plan_file)
		tell_plan(line, r);
	ok = !fclose(line) && ok;
	if (ok)
		say("set%s", len ? text : " nothing: all is set already");
	free(text);
	if (ok && chosen)
		say("PyTorch with this backend has no memory snapshots or history, no MemPool (sleep mode of vLLM and SGLang), "
		    "no graph trees of torch.compile and no sharing of CUDA tensors between processes; "
		    "a program that needs them runs with --native");
	return ok;
}

static void tell_trace(const struct clv_run_trace *t)
{
	say("%s into %s; `cleave report %s` shows it%s", t->observe ? "what the driver is asked for is recorded" : "recording",
	    t->pattern, t->file && !strchr(t->pattern, '%') ? t->file : t->pattern,
	    strchr(t->pattern, '%') ? "" : " (further processes: with their id before .clv)");
}

static int execute_request(void *arg)
{
	const struct request *r = arg;
	return execute(r->path, r->command);
}

static int run(struct request *r)
{
	char *conf = merged_conf(r);
	if (!conf)
		return CLV_EXIT_USAGE;
	char path[PATH_MAX];
	struct clv_error why = {""};
	int status = clv_run_find(r->command[0], path, &why);
	if (status) {
		say("%s", why.text);
		free(conf);
		return status;
	}
	char *preload = NULL;
	if (is_off(conf))
		say("nothing is set: CLEAVE_CONF=%s says off", conf);
	else if (!(preload = usable_preload(path, &why)))
		say("Cleave is not loaded and nothing is set: %s", why.text);
	if (preload && !clv_run_trace_make_way(&r->trace, &why)) {
		free(preload);
		free(conf);
		return clv_cli_refuse(NAME, "option --%s: %s", r->trace.file ? "trace" : "report", why.text);
	}
	bool ok = !preload || set_variables(r, preload, conf);
	if (ok && preload && r->trace.pattern[0])
		tell_trace(&r->trace);
	bool watch = ok && preload && r->trace.report;
	free(preload);
	free(conf);
	r->path = path;
	if (!ok)
		return no_memory();
	return watch ? clv_run_trace_watch(&r->trace, execute_request, r) : execute_request(r);
}

int clv_cmd_run(int argc, char **argv)
{
	struct request r = {0};
	const struct clv_arg options[] = {
		{.name = "conf",
		 .kind = CLV_ARG_TEXTS,
		 .into = &r.confs,
		 .value = "SETTINGS",
		 .help = "settings of the library, key:value,...; may be given several times"},
		{.name = "native",
		 .kind = CLV_ARG_FLAG,
		 .into = &r.native,
		 .help = "leave PyTorch its own allocator: Cleave serves its segments, not each tensor"},
		{.name = "stats",
		 .kind = CLV_ARG_FLAG,
		 .into = &r.stats,
		 .help = "statistics on stderr when a process ends (stats:on)"},
		{.name = "plan",
		 .kind = CLV_ARG_TEXT,
		 .into = &r.plan_file,
		 .value = "PLAN",
		 .help = "hold the room back that this plan reserves (a file of `cleave plan -o`)"},
		{.name = "trace",
		 .kind = CLV_ARG_TEXT,
		 .into = &r.trace.file,
		 .value = "FILE",
		 .help = "record what happens to memory into this file (.clv)"},
		{.name = "report",
		 .kind = CLV_ARG_TEXT,
		 .into = &r.trace.report,
		 .value = "FILE.html",
		 .help = "the same, into FILE.clv if --trace names no other, and a report of it at the end"},
		{.name = "observe",
		 .kind = CLV_ARG_FLAG,
		 .into = &r.trace.observe,
		 .help = "serve nothing: record what the program asks of the driver without Cleave"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "-- COMMAND [ARGUMENT]...",
				      .about = about,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options),
				      .operands_min = 1,
				      .operands_max = SIZE_MAX,
				      .command_follows = true};
	int first;
	int status = clv_args_parse(&args, argc, argv, &first);
	if (status >= 0)
		return status;
	struct clv_error why = {""};
	if (r.trace.observe && r.plan_file)
		return clv_cli_refuse(NAME, "--plan holds room back, and with --observe nothing is served: expected one of them");
	if (!clv_run_trace_prepare(&r.trace, &why))
		return clv_cli_refuse(NAME, "option --%s: %s", r.trace.file ? "trace" : r.trace.report ? "report" : "observe", why.text);
	if (r.plan_file && !clv_run_plan_read(&r.plan, r.plan_file, &why))
		return clv_cli_refuse(NAME, "option --plan: %s", why.text);
	r.command = argv + first;
	status = run(&r);
	free(r.plan.settings);
	return status;
}
