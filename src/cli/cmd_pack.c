/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "cli.h"
#include "pack_csv.h"
#include "pack_time.h"
#include "replay_text.h"

#include "../../tracing/memory.h"
#include "../../tracing/output.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#define NAME "pack"

static const char about[] =
	"Gives each of a set of buffers, whose births and deaths are known, an offset in one region, so that no two which\n"
	"are live at the same time share memory and the region is as small as can be.\n\n"
	"FILE.csv has a line for each buffer, and a first line that names the columns, in any order:\n"
	"  id         any text, each once\n"
	"  lower      its birth; it is live at the times lower <= t < upper\n"
	"  upper      its death\n"
	"  size       in the unit of your choice; offsets, heights and the capacity are in the same\n"
	"  alignment  optional: its offset shall be a multiple of this\n"
	"  offset     optional: where it must lie; empty: anywhere\n"
	"  gaps       optional: spans of its life in which it holds no memory, though it has the same offset before and\n"
	"             after, such as \"3-5 8-9\"\n"
	"Other columns are kept.\n\n"
	"Exit status: 0 done; 1 what was found does not fit in the capacity; 2 usage, or a file that cannot be read or\n"
	"makes no sense.";

struct options {
	uint64_t capacity, seed, effort;
	double time_limit_s;
	const char *out;
	bool json;
};

/* What one run of the command owns. */
struct pack_command {
	struct options o;
	double begin;
	struct clv_input in;
	struct clv_pack_csv table;
	uint64_t *offsets;
	cleave_pack_result result;
	struct clv_replay_meter meter;
};

static int parse(struct options *o, int argc, char **argv, int *first)
{
	const struct clv_arg options[] = {
		{.name = "capacity",
		 .kind = CLV_ARG_SIZE,
		 .into = &o->capacity,
		 .value = "N",
		 .help = "what there is: the search ends when a packing of at\nmost this height is found; default: as low as can be"},
		{.name = "time-limit",
		 .kind = CLV_ARG_SECONDS,
		 .into = &o->time_limit_s,
		 .value = "S",
		 .help = "seconds for all of it: time for writing is set aside,\nand a quarter at least is the search's, which then\n"
			 "ends with the best that was found; default: none"},
		{.name = "effort",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->effort,
		 .value = "N",
		 .min = 1,
		 .max = INT64_MAX,
		 .help = "the same by steps of some 10 ns, so that it does not\n"
			 "depend on the machine; default: 1000000000, or no\n"
			 "limit with --time-limit"},
		{.name = "seed",
		 .kind = CLV_ARG_NUMBER,
		 .into = &o->seed,
		 .value = "N",
		 .help = "the same seed gives the same packing, unless time ends\nthe search; default: 0"},
		{.name = "output",
		 .letter = 'o',
		 .kind = CLV_ARG_TEXT,
		 .into = &o->out,
		 .value = "OUT.csv",
		 .help = "the lines of the file with the offsets in a column\n"
			 "`offset`; appears when it is complete, and holds the\n"
			 "best that was found even if that does not fit"},
		{.name = "json", .kind = CLV_ARG_FLAG, .into = &o->json, .help = "print one JSON document"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "FILE.csv",
				      .about = about,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options),
				      .operands_min = 1,
				      .operands_max = 1};
	return clv_args_parse(&args, argc, argv, first);
}

static bool pack(struct pack_command *c, struct clv_error *err)
{
	char why[1024] = "";
	cleave_pack_settings settings = {.capacity = c->o.capacity, .seed = c->o.seed, .effort = c->o.effort};
	c->offsets = clv_mem_zalloc(c->table.count, sizeof(*c->offsets));
	if (!c->offsets)
		return clv_error_set(err, "%s: out of host memory", c->in.name);
	if (c->o.time_limit_s > 0) {
		double reading = clv_replay_seconds() - c->begin;
		double left = clv_pack_time_left(c->o.time_limit_s, reading, c->o.out != NULL);
		settings.time_limit_s = left > 1e-6 ? left : 1e-6;
		if (!settings.effort)
			settings.effort = INT64_MAX; /* time alone ends it */
	}
	int r = cleave_pack(c->table.buffers, c->table.count, &settings, c->offsets, &c->result, why, sizeof(why));
	if (r == -EINVAL)
		return clv_pack_csv_refuse(&c->table, why, err);
	return r == 0 || clv_error_set(err, "%s: out of host memory", c->in.name);
}

static bool print_json(const struct pack_command *c, struct clv_error *err)
{
	const cleave_pack_result *r = &c->result;
	/* Sizes are below 2^62 in all. */
	json_t *doc = json_pack("{s:I,s:I,s:I,s:b,s:b,s:f}", "buffers", (json_int_t)c->table.count, "lower_bound",
				(json_int_t)r->lower_bound, "height", (json_int_t)r->height, "optimal", r->optimal,
				"fits", r->fits, "seconds", r->seconds);
	if (!doc)
		return clv_error_set(err, "out of host memory for the JSON document");
	/* Whether it could be written is main()'s question. */
	json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
	putchar('\n');
	json_decref(doc);
	return true;
}

static const char *proof(const struct pack_command *c)
{
	const cleave_pack_result *r = &c->result;
	if (r->optimal)
		return "yes, proved: no packing is lower";
	if (r->timed_out)
		return "not proved: the time limit ended the search";
	if (c->o.capacity && r->fits)
		return "not proved: the search ended with what fits";
	return "not proved";
}

static void print_text(const struct pack_command *c)
{
	const cleave_pack_result *r = &c->result;
	uint64_t gap = r->height - r->lower_bound;
	printf("buffers      %zu\n", c->table.count);
	printf("lower bound  %" PRIu64 "\n", r->lower_bound);
	printf("height       %" PRIu64 "\n", r->height);
	printf("gap          %" PRIu64 " (%.3f %% of the lower bound)\n", gap,
	       r->lower_bound ? 100.0 * (double)gap / (double)r->lower_bound : 0.0);
	printf("optimal      %s\n", proof(c));
	if (c->o.capacity)
		printf("fits         %s, the capacity is %" PRIu64 "\n", r->fits ? "yes" : "no", c->o.capacity);
	printf("time         %.3f s\n", r->seconds);
}

static bool run(struct pack_command *c, const char *path, struct clv_error *err)
{
	clv_replay_meter_say(&c->meter, "reading", path);
	if (!clv_output_try(c->o.out, err) || !clv_input_open(&c->in, path, err) ||
	    !clv_pack_csv_read(&c->table, &c->in, err))
		return false;
	clv_replay_meter_say(&c->meter, "packing", path);
	if (!pack(c, err) || (c->o.out && !clv_pack_csv_write(&c->table, c->offsets, c->o.out, err)))
		return false;
	clv_replay_meter_clear(&c->meter);
	if (c->o.json)
		return print_json(c, err);
	print_text(c);
	return true;
}

int clv_cmd_pack(int argc, char **argv)
{
	struct pack_command c = {.begin = clv_replay_seconds()};
	struct clv_error err = {{0}};
	int first;
	int status = parse(&c.o, argc, argv, &first);
	if (status >= 0)
		return status;
	clv_replay_meter_init(&c.meter, stderr);
	bool ok = run(&c, argv[first], &err);
	clv_replay_meter_clear(&c.meter);
	clv_pack_csv_free(&c.table);
	clv_input_close(&c.in);
	clv_mem_free(c.offsets);
	if (!ok)
		return clv_cli_refuse(NAME, "%s", err.text);
	return c.result.fits ? CLV_EXIT_DONE : CLV_EXIT_FAILED;
}
