/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "cli.h"
#include "replay_text.h"

#include "../driver/cuda_program.h"

#include "../../tracing/import/import.h"
#include "../../tracing/policies/torch_verify.h"
#include "../../tracing/replay/recorded.h"
#include "../../tracing/replay/fit.h"
#include "../../tracing/replay/replay.h"
#include "../../tracing/replay/replay_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "replay"

static const char about[] =
	"Puts the requests of a recorded history to allocators, on a simulated device or (Cleave) on a GPU, and reports\n"
	"what each of them reserves, calls the driver for, and whether it completes. TRACE is a PyTorch memory snapshot,\n"
	"a .clv file or an RMM CSV log.\n\n"
	"Policies:\n"
	"  cleave[:SETTINGS]  Cleave's heap; `cleave help settings` lists the settings\n"
	"  torch[:CONF]       PyTorch's native allocator under this PYTORCH_CUDA_ALLOC_CONF text; also\n"
	"                     tie_break:address, counter or segment, as PyTorch's versions differ\n"
	"  torch:recorded     the same with the settings in the snapshot\n"
	"  direct             each request is a frame of its own\n"
	"  packed             what could be reached by an allocator that knows all requests beforehand, and is never kept\n"
	"                     waiting by a stream: each block has a fixed place, found by a search\n\n"
	"Exit status: 0 done; 1 a policy does not complete, or --verify finds a mismatch; 2 usage or unreadable input.";

struct options {
	struct clv_arg_texts policies;
	uint64_t capacity, device, event_lag_us;
	const char *driver;
	bool fit, verify, json, device_given, lag_given;
};

/* What one run of the command owns. */
struct replay_command {
	struct options o;
	struct clv_trace *trace;
	const struct clv_history *history;
	struct clv_verify_result verify;
	bool verified;   /* `verify` is filled in */
	double verify_s; /* and took so long */
	struct clv_cuda_program cuda;
	cleave_stream *streams; /* with a GPU: one for each of the trace's */
	uint32_t stream_count;
	struct clv_policy_device device;
	struct clv_replay_row *rows;
	struct clv_replay_meter meter;
};

static int parse(struct options *o, int argc, char **argv, int *first)
{
	const struct clv_arg options[] = {
		{.name = "policy",
		 .letter = 'p',
		 .kind = CLV_ARG_TEXTS,
		 .into = &o->policies,
		 .value = "POLICY",
		 .help = "may be given several times; default: torch:recorded,\nif the file has settings, and cleave"},
		{.name = "capacity",
		 .kind = CLV_ARG_SIZE,
		 .into = &o->capacity,
		 .value = "SIZE",
		 .help = "what the device can give; default: no limit"},
		{.name = "fit",
		 .kind = CLV_ARG_FLAG,
		 .into = &o->fit,
		 .help = "find the smallest capacity with which each policy\ncompletes, on a grid of 2 MiB"},
		{.name = "verify",
		 .kind = CLV_ARG_FLAG,
		 .into = &o->verify,
		 .help = "compare the model of PyTorch's allocator with every\nrecorded address and segment"},
		{.name = "device-index",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->device,
		 .value = "N",
		 .max = INT32_MAX,
		 .given = &o->device_given,
		 .help = "default: the first device that has a history"},
		{.name = "event-lag",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->event_lag_us,
		 .value = "US",
		 .max = UINT64_MAX / 1000000,
		 .given = &o->lag_given,
		 .help = "recorded time after which a block freed on one stream\nis complete for others; default: 1000"},
		{.name = "driver",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->driver,
		 .value = "sim|cuda",
		 .help = "the device that cleave runs on; cuda: the first GPU,\n"
			 "where times are measured and no work is done in the\n"
			 "memory. The other policies are models. Default: sim"},
		{.name = "json", .kind = CLV_ARG_FLAG, .into = &o->json, .help = "print one JSON document"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "TRACE",
				      .about = about,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options),
				      .operands_min = 1,
				      .operands_max = 1};
	return clv_args_parse(&args, argc, argv, first);
}

/* What can be refused before the file is read. -1: nothing. */
static int check_options(const struct options *o)
{
	struct clv_error err = {{0}};
	if (strcmp(o->driver, "cuda") == 0) {
		if (o->fit || o->lag_given)
			return clv_cli_refuse(NAME, "--fit and --event-lag go with --driver sim only");
	} else if (strcmp(o->driver, "sim") != 0)
		return clv_cli_refuse(NAME, "unknown driver '%s': there are sim and cuda", o->driver);
	for (size_t i = 0; i < o->policies.count; i++)
		if (!clv_policy_known(o->policies.items[i], &err))
			return clv_cli_refuse(NAME, "%s", err.text);
	return -1;
}

static struct clv_replay_options replay_options(struct replay_command *c, const char *policy)
{
	return (struct clv_replay_options){
		.policy = policy,
		.capacity = c->o.capacity,
		.event_lag_us = c->o.event_lag_us,
		.empty_caches = c->verify.empty_caches,
		.empty_cache_count = c->verify.empty_cache_count,
		.device = c->device.driver ? &c->device : NULL,
		.progress = clv_replay_meter_show,
		.progress_arg = &c->meter,
	};
}

/* The policies are opened once before any of them runs, so that a refused setting does not come after minutes of
 * work. */
static bool try_policies(struct replay_command *c, struct clv_error *err)
{
	const struct clv_policy_config config = {.trace = c->trace,
						 .history = c->history,
						 .capacity = c->o.capacity,
						 .event_lag_us = c->o.event_lag_us,
						 .device = c->device.driver ? &c->device : NULL};
	for (size_t i = 0; i < c->o.policies.count; i++) {
		struct clv_policy *policy = clv_policy_open(&config, c->o.policies.items[i], err);
		if (!policy)
			return false;
		policy->ops->close(policy);
	}
	return true;
}

/* Runs in step with the file where that was asked for, and where a torch policy needs what the file leaves out. */
static bool verify(struct replay_command *c, struct clv_error *err)
{
	bool torch = false;
	for (size_t i = 0; i < c->o.policies.count; i++)
		torch |= clv_policy_is_torch(c->o.policies.items[i]);
	if (!c->trace->torch.present) {
		if (!c->o.verify)
			return true;
		return clv_error_set(err, "%s: --verify needs the allocator's settings, and the file has none",
				     c->trace->file);
	}
	if (!torch && !c->o.verify)
		return true;
	clv_replay_meter_say(&c->meter, "replaying in step with", c->trace->file);
	double begin = clv_replay_seconds();
	bool ok = clv_torch_verify(c->trace, c->history, &c->verify, err);
	c->verify_s = clv_replay_seconds() - begin;
	c->verified = ok;
	clv_replay_meter_clear(&c->meter);
	if (ok || c->o.verify)
		return ok;
	fprintf(stderr, "cleave " NAME ": where the program emptied its cache is not known: %s\n", err->text);
	err->text[0] = '\0';
	return true;
}

/* What was recorded needs no simulation, unless it is asked for on another device. */
static bool take_recorded(const struct replay_command *c, const char *policy, struct clv_replay_result *out)
{
	return !c->o.capacity && c->verified && strcmp(policy, "torch:recorded") == 0 &&
	       clv_replay_recorded(c->trace, c->history, &c->verify, c->verify_s, out);
}

static bool replay_all(struct replay_command *c, struct clv_error *err)
{
	for (size_t i = 0; i < c->o.policies.count; i++) {
		struct clv_replay_row *row = &c->rows[i];
		struct clv_replay_options options = replay_options(c, c->o.policies.items[i]);
		row->policy = options.policy;
		if (!take_recorded(c, options.policy, &row->result) &&
		    !clv_replay(c->trace, c->history, &options, &row->result, err))
			return false;
		row->fitted = c->o.fit;
		if (c->o.fit &&
		    !clv_fit(c->trace, c->history, &options, c->o.capacity ? NULL : &row->result, &row->fit, err))
			return false;
	}
	return true;
}

/* The command is the program here: it has the context and the streams. */
static bool open_gpu(struct replay_command *c, struct clv_error *err)
{
	struct clv_error why = {{0}};
	if (!clv_cuda_program_open(&c->cuda, NULL, 1, &why))
		return clv_error_set(err, "--driver cuda: %s", why.text);
	c->streams = calloc(clv_max_u64(c->trace->stream_count, 1), sizeof(*c->streams));
	if (!c->streams)
		return clv_error_set(err, "out of host memory");
	for (; c->stream_count < c->trace->stream_count; c->stream_count++)
		if (!clv_cuda_program_stream(&c->cuda, 0, &c->streams[c->stream_count], &why))
			return clv_error_set(err, "--driver cuda: %s", why.text);
	c->device = (struct clv_policy_device){c->cuda.driver, c->streams};
	return true;
}

static void close_gpu(struct replay_command *c)
{
	while (c->stream_count)
		clv_cuda_program_stream_end(&c->cuda, c->streams[--c->stream_count]);
	free(c->streams);
	clv_cuda_program_close(&c->cuda);
}

static int report(struct replay_command *c, struct clv_error *err)
{
	const struct clv_replay_report r = {.trace = c->trace,
					    .history = c->history,
					    .rows = c->rows,
					    .row_count = c->o.policies.count,
					    .verify = c->o.verify ? &c->verify : NULL};
	clv_replay_meter_clear(&c->meter);
	if (!c->o.json)
		clv_replay_text_write(&r, c->o.capacity, stdout);
	else if (!clv_replay_json_write(&r, stdout, err) && !ferror(stdout))
		return clv_cli_refuse(NAME, "%s", err->text);
	bool good = !r.verify || clv_verify_matches(r.verify);
	for (size_t i = 0; i < r.row_count; i++)
		good &= r.rows[i].result.completed;
	return good ? CLV_EXIT_DONE : CLV_EXIT_FAILED;
}

static int run(struct replay_command *c, const char *path)
{
	struct clv_error err = {{0}};
	clv_replay_meter_say(&c->meter, "reading", path);
	c->trace = clv_trace_import(path, &err);
	clv_replay_meter_clear(&c->meter);
	if (!c->trace)
		return clv_cli_refuse(NAME, "%s", err.text);
	if (c->trace->note)
		fprintf(stderr, "cleave " NAME ": %s: %s\n", path, c->trace->note);
	c->history = clv_trace_select(c->trace, c->o.device_given ? (int)c->o.device : -1, &err);
	if (!c->history)
		return clv_cli_refuse(NAME, "%s", err.text);
	if (c->o.policies.count == 0) {
		if (c->trace->torch.present)
			c->o.policies.items[c->o.policies.count++] = "torch:recorded";
		c->o.policies.items[c->o.policies.count++] = "cleave";
	}
	c->rows = calloc(c->o.policies.count, sizeof(*c->rows));
	if (!c->rows)
		return clv_cli_refuse(NAME, "out of host memory");
	if (strcmp(c->o.driver, "cuda") == 0 && !open_gpu(c, &err))
		return clv_cli_refuse(NAME, "%s", err.text);
	bool ok = try_policies(c, &err) && verify(c, &err) && replay_all(c, &err);
	clv_replay_meter_clear(&c->meter);
	return ok ? report(c, &err) : clv_cli_refuse(NAME, "%s", err.text);
}

int clv_cmd_replay(int argc, char **argv)
{
	struct replay_command c = {.o = {.event_lag_us = 1000, .driver = "sim"}};
	int first;
	int status = parse(&c.o, argc, argv, &first);
	if (status < 0)
		status = check_options(&c.o);
	if (status >= 0)
		return status;
	clv_replay_meter_init(&c.meter, stderr);
	status = run(&c, argv[first]);
	close_gpu(&c);
	free(c.rows);
	clv_verify_free(&c.verify);
	clv_trace_free(c.trace);
	return status;
}
