/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* asprintf */
#include "args.h"
#include "cli.h"
#include "plan_json.h"
#include "plan_list.h"
#include "plan_text.h"

#include "../plan/plan.h"

#include "../../tracing/format/clv.h"
#include "../../tracing/output.h"
#include "../../tracing/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "plan"

static const char about[] =
	"Says from a model's configuration, before any of its weights are there, which buffers each rank of a\n"
	"mixture-of-experts model will hold when its experts are loaded and when they are converted for a backend, what\n"
	"the conversion needs on top under each strategy, and whether it fits.\n\n"
	"Strategies:\n"
	"  lists         each expert into a tensor of its own, then all of a kind stacked into one\n"
	"  preallocated  each expert into its place in a destination that is made first\n"
	"  ping-pong     the same, but into a spare layer: what was loaded is the spare of the next\n"
	"  in-place      each expert into scratch, and back over what was loaded\n\n"
	"Exit status: 0 done; 1 the plan does not fit, or the proof of --coverage fails; 2 usage, a model that cannot be\n"
	"read or makes no sense, or for which no rule of the backend is known.";

struct options {
	const char *model, *backend, *rank, *padding, *strategy, *emit, *out;
	uint64_t tp, dp, pcp, pp, gpu_memory, other_weights, kv_cache, workspace;
	bool tp_given, dp_given, pcp_given, pp_given, other_given, cache_given, workspace_given;
	bool ep, coverage, list, json;
};

/* What one run of the command owns. */
struct plan_command {
	struct options o;
	struct clv_model model;
	struct clv_shard_config parallel;
	struct clv_plan plan;
	char *text; /* the JSON document, if it is printed or written */
};

static int parse(struct options *o, int argc, char **argv)
{
	const struct clv_arg options[] = {
		{.name = "model",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->model,
		 .value = "DIR_OR_CONFIG",
		 .help = "a config.json or the folder that it is in; a\nhf_quant_config.json beside it is read as well"},
		{.name = "backend",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->backend,
		 .value = "B",
		 .help = "what the experts are converted for; --list shows them"},
		{.name = "list",
		 .kind = CLV_ARG_FLAG,
		 .into = &o->list,
		 .help = "show the backends: which experts each is for, its\nalignments, layouts and order of rows"},
		{.name = "tp",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->tp,
		 .value = "N",
		 .min = 1,
		 .max = CLV_SHARD_WORLD_MAX,
		 .given = &o->tp_given,
		 .help = "tensor parallel ranks; default: 1, as of the next three"},
		{.name = "dp",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->dp,
		 .value = "N",
		 .min = 1,
		 .max = CLV_SHARD_WORLD_MAX,
		 .given = &o->dp_given,
		 .help = "data parallel ranks"},
		{.name = "pcp",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->pcp,
		 .value = "N",
		 .min = 1,
		 .max = CLV_SHARD_WORLD_MAX,
		 .given = &o->pcp_given,
		 .help = "prefill context parallel ranks"},
		{.name = "pp",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->pp,
		 .value = "N",
		 .min = 1,
		 .max = CLV_SHARD_WORLD_MAX,
		 .given = &o->pp_given,
		 .help = "pipeline stages"},
		{.name = "ep",
		 .kind = CLV_ARG_FLAG,
		 .into = &o->ep,
		 .help = "experts are divided over the tp x dp x pcp ranks, and\nnot their intermediate size"},
		{.name = "rank",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->rank,
		 .value = "R|all",
		 .help = "which one; all: each that differs, and the plan is that\nof the one that needs the most; default: 0"},
		{.name = "padding",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->padding,
		 .value = "backend|model",
		 .help = "who pads a rank's share of the intermediate size. model:\n"
			 "first the model, to a floor of its own a rank (the old\n"
			 "rule of Kimi-K3); default: backend"},
		{.name = "gpu-memory",
		 .kind = CLV_ARG_SIZE,
		 .into = &o->gpu_memory,
		 .value = "SIZE",
		 .help = "what a rank can have; default: not known, and\neverything fits"},
		{.name = "other-weights",
		 .kind = CLV_ARG_SIZE,
		 .into = &o->other_weights,
		 .value = "SIZE",
		 .zero = true,
		 .given = &o->other_given,
		 .help = "a rank's weights that are no routed experts"},
		{.name = "kv-cache",
		 .kind = CLV_ARG_SIZE,
		 .into = &o->kv_cache,
		 .value = "SIZE",
		 .zero = true,
		 .given = &o->cache_given,
		 .help = "that comes when all is converted"},
		{.name = "workspace",
		 .kind = CLV_ARG_SIZE,
		 .into = &o->workspace,
		 .value = "SIZE",
		 .zero = true,
		 .given = &o->workspace_given,
		 .help = "of kernels, at the same time"},
		{.name = "strategy",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->strategy,
		 .value = "NAME",
		 .help = "what the plan is for; default: the one with the least\npeak"},
		{.name = "coverage",
		 .kind = CLV_ARG_FLAG,
		 .into = &o->coverage,
		 .help = "prove for all ranks that each element of the checkpoint\n"
			 "is held as often as it has copies, that nothing else is\n"
			 "written, and that what is padded is zeros"},
		{.name = "emit-trace",
		 .kind = CLV_ARG_TEXT,
		 .into = &o->emit,
		 .value = "FILE",
		 .help = "write the requests of the whole load and conversion\nas a .clv history, for `cleave replay`"},
		{.name = "output",
		 .letter = 'o',
		 .kind = CLV_ARG_TEXT,
		 .into = &o->out,
		 .value = "PLAN",
		 .help = "write the JSON document to a file, for\n`cleave run --plan`; it appears when it is complete"},
		{.name = "json", .kind = CLV_ARG_FLAG, .into = &o->json, .help = "print one JSON document"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "",
				      .about = about,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options)};
	int first;
	return clv_args_parse(&args, argc, argv, &first);
}

/* ---- what the options mean ---- */

static bool check_list(const struct options *o, struct clv_error *err)
{
	if (o->model || o->backend || o->rank || o->padding || o->strategy || o->emit || o->out || o->gpu_memory ||
	    o->other_given || o->cache_given || o->workspace_given || o->tp_given || o->dp_given || o->pcp_given ||
	    o->pp_given || o->ep || o->coverage)
		return clv_error_set(err, "--list goes with --json only");
	return true;
}

static bool rank_of(const char *text, uint32_t *out, struct clv_error *err)
{
	*out = 0;
	if (!text)
		return true;
	if (!strcmp(text, "all")) {
		*out = CLV_PLAN_ALL_RANKS;
		return true;
	}
	size_t digits = strspn(text, "0123456789");
	unsigned long rank = strtoul(text, NULL, 10);
	if (!digits || text[digits] || rank >= CLV_SHARD_WORLD_MAX)
		return clv_error_set(err, "option --rank: '%s' is neither a rank (0 to %d) nor `all`", text,
				     CLV_SHARD_WORLD_MAX - 1);
	*out = (uint32_t)rank;
	return true;
}

static bool padding_of(const char *text, enum clv_shard_padding *out, struct clv_error *err)
{
	*out = text && !strcmp(text, "model") ? CLV_PADDING_MODEL : CLV_PADDING_BACKEND;
	return !text || *out == CLV_PADDING_MODEL || !strcmp(text, "backend") ||
	       clv_error_set(err, "option --padding: '%s' is not known: there are backend and model", text);
}

static bool configure(struct plan_command *c, struct clv_plan_config *config, struct clv_error *err)
{
	const struct options *o = &c->o;
	struct clv_timeline_config *t = &config->timeline;
	*config = (struct clv_plan_config){.strategy_given = o->strategy != NULL, .coverage = o->coverage};
	clv_timeline_config_init(t);
	if (!o->model)
		return clv_error_set(err, "--model is missing: a config.json or the folder that it is in");
	if (!o->backend)
		return clv_error_set(err, "--backend is missing; `cleave plan --list` shows them");
	clv_shard_config_init(&c->parallel);
	c->parallel.tp = (uint32_t)o->tp;
	c->parallel.dp = (uint32_t)o->dp;
	c->parallel.pcp = (uint32_t)o->pcp;
	c->parallel.pp = (uint32_t)o->pp;
	c->parallel.expert_parallel = o->ep;
	if (!(t->backend = clv_backend_find(o->backend, err)) || !rank_of(o->rank, &t->rank, err) ||
	    !padding_of(o->padding, &c->parallel.padding, err) ||
	    (o->strategy && !clv_strategy_find(o->strategy, &t->strategy, err)))
		return false;
	if (o->emit && t->rank == CLV_PLAN_ALL_RANKS)
		return clv_error_set(err, "--emit-trace is the history of one rank: name it with --rank");
	t->parallel = &c->parallel;
	t->model = &c->model;
	t->gpu_memory = o->gpu_memory;
	t->other_weights = o->other_weights;
	t->other_weights_known = o->other_given;
	t->kv_cache = o->kv_cache;
	t->workspace = o->workspace;
	return true;
}

/* Nothing is written over what the plan is made from, nor over what was just written. */
static bool check_places(const struct plan_command *c, struct clv_error *err)
{
	const char *outputs[] = {c->o.out, c->o.emit};
	const char *slash = strrchr(c->model.path, '/');
	char *beside = NULL;
	bool ok = true;
	if (asprintf(&beside, "%.*shf_quant_config.json", slash ? (int)(slash + 1 - c->model.path) : 0, c->model.path) <
	    0)
		return clv_error_set(err, "out of host memory");
	for (size_t i = 0; i < CLV_ARRAY_LEN(outputs) && ok; i++)
		if (outputs[i] && (clv_output_same(outputs[i], c->model.path) || clv_output_same(outputs[i], beside)))
			ok = clv_error_set(err, "%s: this is a file of the model's, and is not written over",
					   outputs[i]);
	if (ok && c->o.out && c->o.emit && clv_output_same(c->o.out, c->o.emit))
		ok = clv_error_set(err, "%s: this is named for the plan and for the history", c->o.out);
	free(beside);
	return ok;
}

/* ---- what is answered ---- */

static bool render(struct plan_command *c, json_t *doc, struct clv_error *err)
{
	char *text = doc ? json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) : NULL;
	if (!text || asprintf(&c->text, "%s\n", text) < 0)
		c->text = NULL;
	free(text);
	json_decref(doc);
	return c->text || clv_error_set(err, "out of host memory for the JSON document");
}

static bool emit(const struct plan_command *c, struct clv_error *err)
{
	const struct clv_timeline *t = &clv_plan_worst(&c->plan)->timeline;
	const struct clv_layers layers = clv_timeline_layers(t, t->config.strategy);
	struct clv_trace *trace = clv_planned_trace(&layers, err);
	bool ok = trace && clv_trace_write(trace, c->o.emit, err);
	clv_trace_free(trace);
	return ok || clv_error_set(err, "out of host memory");
}

static bool plan(struct plan_command *c, struct clv_error *err)
{
	struct clv_plan_config config;
	if (!configure(c, &config, err) || !clv_output_try(c->o.out, err) || !clv_output_try(c->o.emit, err) ||
	    !clv_model_read(&c->model, c->o.model, err) || !check_places(c, err))
		return false;
	if (!clv_plan_make(&c->plan, &config, err))
		return clv_error_set(err, "%s: out of host memory", c->o.model);
	if ((c->o.json || c->o.out) && !render(c, clv_plan_json(&c->plan), err))
		return false;
	return (!c->o.out || clv_output_file(c->o.out, c->text, strlen(c->text), err)) && (!c->o.emit || emit(c, err));
}

static bool list(struct plan_command *c, struct clv_error *err)
{
	if (!check_list(&c->o, err) || (c->o.json && !render(c, clv_plan_list_json(), err)))
		return false;
	if (!c->o.json)
		clv_plan_list_text(stdout);
	return true;
}

static int answer(struct plan_command *c)
{
	struct clv_error err = {{0}};
	if (c->o.list ? !list(c, &err) : !plan(c, &err))
		return clv_cli_refuse(NAME, "%s", err.text);
	/* Whether it could be written is main()'s question. */
	if (c->o.json)
		fputs(c->text, stdout);
	else if (!c->o.list)
		clv_plan_text(&c->plan, c->o.out, stdout);
	return c->o.list || (c->plan.fits && !c->plan.disproved.text[0]) ? CLV_EXIT_DONE : CLV_EXIT_FAILED;
}

int clv_cmd_plan(int argc, char **argv)
{
	struct plan_command c = {.o = {.tp = 1, .dp = 1, .pcp = 1, .pp = 1}};
	int status = parse(&c.o, argc, argv);
	if (status < 0)
		status = answer(&c);
	clv_plan_free(&c.plan);
	clv_model_free(&c.model);
	free(c.text);
	return status;
}
