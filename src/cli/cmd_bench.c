/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "bench.h"
#include "cli.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "bench"
#define REPEAT 7

static const char about[] =
	"Measures the speed of import, replay and heap: medians of repeated samples, each beside something else that\n"
	"was measured in the same turns. NAME is a benchmark or the beginning of some (hit, holes/64KiB, replay/serve);\n"
	"without one all are run.\n\n"
	"  import/TRACE, replay/TRACE/POLICY   beside a loop that only reads the records\n"
	"  hit, holes, coalesce, mixed         the heap, beside malloc of the C library; many holes also beside few\n"
	"  threads/SIZE/T                      T threads in one heap, beside malloc and beside one thread\n"
	"  record/event, record/event/T        an event for the recorder, beside the clock; T threads beside one\n"
	"  record/SIZE                         the heap with both of its events recorded, beside the heap alone\n\n"
	"The device is simulated: times are those of the host, without the driver's. Each run has the same inputs.";

struct bench_command {
	struct clv_bench bench;
	struct clv_arg_texts traces;
	uint64_t repeat;
	bool json, list;
};

static int parse(struct bench_command *c, int argc, char **argv, int *first)
{
	const struct clv_arg options[] = {
		{.name = "trace",
		 .kind = CLV_ARG_TEXTS,
		 .into = &c->traces,
		 .value = "FILE",
		 .help = "import and replay this, not what is bundled or\nsynthetic; may be given several times"},
		{.name = "repeat",
		 .kind = CLV_ARG_NUMBER,
		 .into = &c->repeat,
		 .value = "N",
		 .min = 1,
		 .max = CLV_BENCH_REPEAT_MAX,
		 .help = "samples of each; default: 7"},
		{.name = "list", .kind = CLV_ARG_FLAG, .into = &c->list, .help = "print the names, measure nothing"},
		{.name = "json", .kind = CLV_ARG_FLAG, .into = &c->json, .help = "print one JSON document"},
	};
	const struct clv_args args = {.command = NAME,
				      .operands = "[NAME]...",
				      .about = about,
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options),
				      .operands_max = SIZE_MAX};
	return clv_args_parse(&args, argc, argv, first);
}

/* What /proc/cpuinfo calls the processor; "" if it does not say. */
static void cpu_name(char *out, size_t len)
{
	char line[256];
	FILE *f = fopen("/proc/cpuinfo", "r");
	out[0] = '\0';
	while (f && !out[0] && fgets(line, sizeof(line), f)) {
		const char *value = strchr(line, ':');
		if (strncmp(line, "model name", strlen("model name")) == 0 && value)
			snprintf(out, len, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
	}
	if (f)
		fclose(f);
}

/* ---- for people ---- */

static void number_cell(char *cell, size_t len, double v, enum clv_bench_unit unit)
{
	if (unit == CLV_BENCH_PER_SECOND)
		snprintf(cell, len, "%.2f M/s", v * 1e-6);
	else
		snprintf(cell, len, "%.1f ns", v);
}

static void print_text(const struct bench_command *c)
{
	char cpu[128], median[32], best[32], worst[32], other[32];
	cpu_name(cpu, sizeof(cpu));
	printf("%s, %ld processors; %u samples each.\n\n", cpu[0] ? cpu : "processor unknown",
	       sysconf(_SC_NPROCESSORS_ONLN), c->bench.repeat);
	printf("%-36s %12s  %12s  %12s  %s\n", "", "median", "best", "worst", "beside (x: so many times its time)");
	for (size_t i = 0; i < c->bench.result_count; i++) {
		const struct clv_bench_result *r = &c->bench.results[i];
		number_cell(median, sizeof(median), r->median, r->unit);
		number_cell(best, sizeof(best), r->best, r->unit);
		number_cell(worst, sizeof(worst), r->worst, r->unit);
		printf("%-36s %12s  %12s  %12s", r->name, median, best, worst);
		for (unsigned k = 0; k < r->beside_count; k++) {
			number_cell(other, sizeof(other), r->beside[k].value, r->unit);
			printf("%s%s %s, x %.2f", k ? "; " : "  ", r->beside[k].name, other, r->beside[k].times);
		}
		putchar('\n');
	}
	printf("\nM/s: millions of events a second. ns: nanoseconds a request or free; in hit, holes, threads and\n"
	       "record/SIZE a pair of both; in record/event an event. Times are those of a processor that does nothing else,\n"
	       "but for threads: they go by the wall clock.\n");
}

/* ---- for programs ---- */

static json_t *result_json(const struct clv_bench_result *r, bool list)
{
	if (list)
		return json_string(r->name);
	json_t *beside = json_array();
	for (unsigned k = 0; k < r->beside_count; k++)
		json_array_append_new(beside, json_pack("{s:s,s:f,s:f}", "name", r->beside[k].name, "value",
							r->beside[k].value, "times_its_time", r->beside[k].times));
	return json_pack("{s:s,s:s,s:s,s:f,s:f,s:f,s:I,s:i,s:o}", "name", r->name, "unit", clv_bench_unit_name(r->unit),
			 "clock", r->clock, "median", r->median, "best", r->best, "worst", r->worst, "ops",
			 (json_int_t)r->ops, "samples", (int)r->samples, "beside", beside);
}

static bool print_json(const struct bench_command *c)
{
	char cpu[128];
	cpu_name(cpu, sizeof(cpu));
	json_t *results = json_array();
	for (size_t i = 0; i < c->bench.result_count; i++)
		if (json_array_append_new(results, result_json(&c->bench.results[i], c->list)) != 0)
			break;
	bool complete = json_array_size(results) == c->bench.result_count;
	json_t *machine = json_pack("{s:s,s:I}", "cpu", cpu, "processors", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN));
	json_t *document = json_pack("{s:s,s:o,s:i,s:o}", "version", CLV_VERSION, "machine", machine, "repeat",
				     (int)c->bench.repeat, c->list ? "names" : "results", results);
	bool ok = document && complete && json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0;
	json_decref(document);
	putchar('\n');
	return ok;
}

static bool run_all(struct clv_bench *b)
{
	return clv_bench_trace(b) && clv_bench_heap(b) && clv_bench_threads(b) && clv_bench_record(b);
}

/* A name that stands for nothing is refused before minutes of work. -1: all are known. */
static int check_names(const struct bench_command *c)
{
	for (size_t i = 0; i < c->bench.name_count; i++) {
		struct clv_bench only = c->bench;
		only.names = &c->bench.names[i];
		only.name_count = 1;
		only.list = true;
		bool known = run_all(&only) && only.result_count;
		clv_bench_clear(&only);
		if (!known)
			return clv_cli_refuse(NAME, "there is no benchmark '%s'; `cleave bench --list` prints all",
					      c->bench.names[i]);
	}
	return -1;
}

static int run(struct bench_command *c)
{
	struct clv_bench *b = &c->bench;
	bool ok = run_all(b);
	if (b->progress)
		fprintf(b->progress, "\r\033[K");
	if (!ok)
		return clv_cli_refuse(NAME, "%s", b->error.text);
	if (c->json)
		return print_json(c) || ferror(stdout) ? CLV_EXIT_DONE : clv_cli_refuse(NAME, "out of host memory");
	if (!c->list)
		print_text(c);
	for (size_t i = 0; c->list && i < b->result_count; i++)
		printf("%s\n", b->results[i].name);
	return CLV_EXIT_DONE;
}

int clv_cmd_bench(int argc, char **argv)
{
	struct bench_command c = {.repeat = REPEAT};
	int first;
	int status = parse(&c, argc, argv, &first);
	if (status >= 0)
		return status;
	c.bench.names = (const char *const *)&argv[first];
	c.bench.name_count = (size_t)(argc - first);
	c.bench.list = c.list;
	c.bench.repeat = (unsigned)c.repeat;
	c.bench.traces = c.traces.items;
	c.bench.trace_count = c.traces.count;
	c.bench.progress = isatty(STDERR_FILENO) && !c.list ? stderr : NULL;
	status = check_names(&c);
	if (status < 0)
		status = run(&c);
	clv_bench_clear(&c.bench);
	return status;
}
