/* SPDX-License-Identifier: MIT */
#include "cmd_stress.h"

#include "args.h"
#include "cli.h"
#include "replay_text.h"
#include "stress_report.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "stress"

#define LEAST_CAPACITY (16 * CLV_MIB)
#define FULL_UP_TO 100000 /* operations: each byte is checked in shorter runs */

static const char about[] =
	"Random work on Cleave's heap, over a simulated device whose memory is real, or over a GPU. Each block holds a\n"
	"pattern of its own, written and checked by asynchronous work on streams, by several threads, near the limits.\n"
	"What is wrong is told with the seed and the number of the operation; with one thread on the simulated device\n"
	"the same seed does the same again.\n\n"
	"With --profile: puts named workloads that fragment memory to the heap and to PyTorch's allocator, on a\n"
	"simulated device of 140 GiB, and shows what each holds and what its driver calls would cost. Profiles:";

static const char statuses[] =
	"\n\nExit status: 0 nothing is wrong; 1 something is, or a profile does not complete with Cleave; 2 usage.";

struct options {
	struct clv_stress_config run;
	uint64_t threads, streams, capacity;
	const char *check, *driver, *profile;
	struct clv_arg_texts policies;
	bool json;
	bool ops_given, threads_given, streams_given; /* what goes with a run only */
};

struct stress_command {
	struct options o;
	struct clv_replay_meter meter;
	struct clv_profile_report *reports;
	size_t report_count;
};

/* `about`, with the names of the profiles. */
static void describe(char *buf, size_t len)
{
	int n = snprintf(buf, len, "%s", about);
	const struct clv_profile *p;
	for (size_t i = 0; (p = clv_profile_at(i)) && n > 0 && (size_t)n < len; i++)
		n += snprintf(buf + n, len - (size_t)n, "\n  %-9s %s", clv_profile_name(p), clv_profile_about(p));
	if (n > 0 && (size_t)n < len)
		snprintf(buf + n, len - (size_t)n, "%s", statuses);
}

static int parse(struct options *o, int argc, char **argv)
{
	char text[2048];
	describe(text, sizeof(text));
	const struct clv_arg options[] = {
		{.name = "ops",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->run.ops,
		 .value = "N",
		 .min = 1,
		 .given = &o->ops_given,
		 .help = "operations of all threads together; default: 1000000"},
		{.name = "seed", .kind = CLV_ARG_NUMBER, .into = &o->run.seed, .value = "S", .help = "default: 1"},
		{.name = "threads",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->threads,
		 .value = "T",
		 .min = 1,
		 .max = CLV_STRESS_THREADS,
		 .given = &o->threads_given,
		 .help = "default: 1"},
		{.name = "streams",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->streams,
		 .value = "S",
		 .min = 1,
		 .max = CLV_STRESS_STREAMS,
		 .given = &o->streams_given,
		 .help = "that there are at a time; default: 8"},
		{.name = "capacity",
		 .kind = CLV_ARG_SIZE,
		 .into = &o->capacity,
		 .value = "SIZE",
		 .help = "of the device; default: 128MiB, of which what is in\n"
			 "use is real memory here; with --profile 140GiB"},
		{.name = "faults",
		 .kind = CLV_ARG_FLAG,
		 .into = &o->run.faults,
		 .help = "calls of the driver fail by chance"},
		{.name = "check",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->check,
		 .value = "full|samples",
		 .help = "every byte of a block, or some of each part of it;\n"
			 "default: full for up to 100000 operations"},
		{.name = "settings",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->run.settings,
		 .value = "TEXT",
		 .help = "of the heap (`cleave help settings`); default: drawn\nfrom the seed"},
		{.name = "profile",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->profile,
		 .value = "NAME|all",
		 .help = "a workload instead of random work"},
		{.name = "policy",
		 .letter = 'p',
		 .kind = CLV_ARG_TEXTS,
		 .into = &o->policies,
		 .value = "POLICY",
		 .help = "with --profile, as in `cleave help replay`; may be\n"
			 "given several times; default: cleave, torch and\n"
			 "torch:expandable_segments:True"},
		{.name = "driver",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->driver,
		 .value = "sim|cuda",
		 .help = "the device to work on; cuda: --capacity of the first\n"
			 "GPU, or of two, whose memory is written and checked by\n"
			 "copies. Default: sim"},
		{.name = "json", .kind = CLV_ARG_FLAG, .into = &o->json, .help = "print one JSON document"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "",
				      .about = text,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options)};
	int first;
	return clv_args_parse(&args, argc, argv, &first);
}

/* -1: nothing to refuse. */
static int check_options(struct options *o)
{
	bool cuda = strcmp(o->driver, "cuda") == 0;
	if (!cuda && strcmp(o->driver, "sim") != 0)
		return clv_cli_refuse(NAME, "unknown driver '%s': there are sim and cuda", o->driver);
	if (o->profile) {
		if (cuda)
			return clv_cli_refuse(NAME, "--profile goes with --driver sim only");
		if (o->ops_given || o->threads_given || o->streams_given || o->run.faults || o->check ||
		    o->run.settings)
			return clv_cli_refuse(NAME, "--profile goes with --seed, --capacity, --policy and --json only");
		if (strcmp(o->profile, "all") != 0 && !clv_profile_find(o->profile))
			return clv_cli_refuse(NAME, "unknown profile '%s'; `cleave help stress` lists them",
					      o->profile);
		o->capacity = o->capacity ? o->capacity : CLV_PROFILE_CAPACITY;
		if (o->capacity < CLV_PROFILE_SMALLEST || o->capacity > (uint64_t)1 << 44)
			return clv_cli_refuse(NAME, "--capacity: a profile needs a device of 24GiB to 16TiB");
		return -1;
	}
	if (o->policies.count)
		return clv_cli_refuse(NAME, "--policy goes with --profile only");
	if (o->check && strcmp(o->check, "full") != 0 && strcmp(o->check, "samples") != 0)
		return clv_cli_refuse(NAME, "--check: '%s' is neither full nor samples", o->check);
	o->capacity = o->capacity ? o->capacity : 128 * CLV_MIB;
	if (o->capacity < LEAST_CAPACITY)
		return clv_cli_refuse(NAME, "--capacity: at least 16MiB are needed");
	return -1;
}

/* ---- a run ---- */

/* A heap that unmaps a block while another thread's work is on it: the last chance to say which seed it was. */
static char last_words[128];

static void say_last_words(int signal_number)
{
	(void)!write(STDOUT_FILENO, last_words, strlen(last_words));
	_exit(CLV_EXIT_FAILED);
}

/* Not where somebody else handles it, such as a sanitizer. */
static void handle(int signal_number, void (*handler)(int))
{
	struct sigaction old;
	if (sigaction(signal_number, NULL, &old) || (old.sa_handler != SIG_DFL && old.sa_handler != say_last_words))
		return;
	struct sigaction action = {.sa_handler = handler};
	sigaction(signal_number, &action, NULL);
}

static void progress(void *arg, uint64_t seed, uint64_t done, uint64_t total)
{
	struct stress_command *c = arg;
	char what[40];
	snprintf(what, sizeof(what), "seed %" PRIu64, seed);
	snprintf(last_words, sizeof(last_words), "WRONG: seed %" PRIu64 ": memory vanished from under the work on it\n",
		 seed);
	clv_replay_meter_show(&c->meter, &(struct clv_replay_progress){.policy = what, .done = done, .total = total});
}

static int run_stress(struct stress_command *c)
{
	struct clv_stress_config *run = &c->o.run;
	struct clv_stress_result result;
	struct clv_error err = {{0}};
	run->threads = (unsigned)c->o.threads;
	run->streams = (unsigned)c->o.streams;
	run->capacity = c->o.capacity;
	run->full = c->o.check ? strcmp(c->o.check, "full") == 0 : run->ops <= FULL_UP_TO;
	run->progress = progress;
	run->progress_arg = c;
	struct clv_cuda_program cuda = {0};
	if (strcmp(c->o.driver, "cuda") == 0) {
		if (!clv_cuda_program_open(&cuda, NULL, CLV_STRESS_DEVICES, &err))
			return clv_cli_refuse(NAME, "--driver cuda: %s", err.text);
		run->cuda = &cuda;
	}
	handle(SIGSEGV, say_last_words);
	handle(SIGBUS, say_last_words);
	bool ok = clv_stress_run(run, &result, &err);
	handle(SIGSEGV, SIG_DFL);
	handle(SIGBUS, SIG_DFL);
	clv_cuda_program_close(&cuda);
	clv_replay_meter_clear(&c->meter);
	if (!ok)
		return clv_cli_refuse(NAME, "%s", err.text);
	if (!c->o.json)
		clv_stress_text(run, &result, stdout);
	else if (!clv_stress_json(run, &result, stdout) && !ferror(stdout))
		return clv_cli_refuse(NAME, "out of host memory for the JSON document");
	return result.passed ? CLV_EXIT_DONE : CLV_EXIT_FAILED;
}

/* ---- profiles ---- */

static bool is_cleave(const char *policy)
{
	return strncmp(policy, "cleave", 6) == 0;
}

static bool run_profile(struct stress_command *c, struct clv_profile_report *report, struct clv_error *err)
{
	struct options *o = &c->o;
	report->trace = clv_profile_make(report->profile, o->run.seed, o->capacity, &report->live_at_end, err);
	if (!report->trace)
		return false;
	report->rows = calloc(o->policies.count, sizeof(*report->rows));
	if (!report->rows)
		return clv_error_set(err, "out of host memory");
	report->row_count = o->policies.count;
	for (size_t i = 0; i < report->row_count; i++) {
		struct clv_replay_options options = {.policy = o->policies.items[i],
						     .capacity = o->capacity,
						     .event_lag_us = CLV_PROFILE_EVENT_LAG_US};
		report->rows[i].policy = options.policy;
		clv_replay_meter_say(&c->meter, clv_profile_name(report->profile), options.policy);
		if (!clv_replay(report->trace, &report->trace->histories[0], &options, &report->rows[i].result, err))
			return false;
	}
	clv_replay_meter_clear(&c->meter);
	if (!o->json)
		clv_profile_text(report, stdout);
	return true;
}

static bool run_profiles(struct stress_command *c, struct clv_error *err)
{
	struct options *o = &c->o;
	static const char *const policies[] = {"cleave", "torch", "torch:expandable_segments:True"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(policies) && (i || !o->policies.count); i++)
		o->policies.items[o->policies.count++] = policies[i];
	for (size_t i = 0; i < o->policies.count; i++)
		if (!clv_policy_known(o->policies.items[i], err))
			return false;
	bool all = strcmp(o->profile, "all") == 0;
	for (size_t i = 0; clv_profile_at(i); i++)
		c->report_count += all || clv_profile_at(i) == clv_profile_find(o->profile);
	c->reports = calloc(c->report_count, sizeof(*c->reports));
	if (!c->reports)
		return clv_error_set(err, "out of host memory");
	for (size_t i = 0; i < c->report_count; i++) {
		c->reports[i].profile = all ? clv_profile_at(i) : clv_profile_find(o->profile);
		if (!run_profile(c, &c->reports[i], err))
			return false;
	}
	return true;
}

static int report_profiles(struct stress_command *c)
{
	struct clv_error err = {{0}};
	bool good = true, ok = run_profiles(c, &err);
	clv_replay_meter_clear(&c->meter);
	if (!ok)
		return clv_cli_refuse(NAME, "%s", err.text);
	if (c->o.json && !clv_profile_json(c->reports, c->report_count, c->o.run.seed, c->o.capacity, stdout) &&
	    !ferror(stdout))
		return clv_cli_refuse(NAME, "out of host memory for the JSON document");
	for (size_t i = 0; i < c->report_count; i++)
		for (size_t k = 0; k < c->reports[i].row_count; k++)
			good &= c->reports[i].rows[k].result.completed || !is_cleave(c->reports[i].rows[k].policy);
	return good ? CLV_EXIT_DONE : CLV_EXIT_FAILED;
}

int clv_cmd_stress_with(int argc, char **argv, clv_stress_wrap *wrap, void *arg)
{
	struct stress_command c = {.o = {.run = {.ops = 1000000, .seed = 1, .wrap = wrap, .wrap_arg = arg},
					 .threads = 1,
					 .streams = 8,
					 .driver = "sim"}};
	int status = parse(&c.o, argc, argv);
	if (status < 0)
		status = check_options(&c.o);
	if (status >= 0)
		return status;
	clv_replay_meter_init(&c.meter, stderr);
	status = c.o.profile ? report_profiles(&c) : run_stress(&c);
	for (size_t i = 0; i < c.report_count; i++) {
		free(c.reports[i].rows);
		clv_trace_free(c.reports[i].trace);
	}
	free(c.reports);
	return status;
}

int clv_cmd_stress(int argc, char **argv)
{
	return clv_cmd_stress_with(argc, argv, NULL, NULL);
}
