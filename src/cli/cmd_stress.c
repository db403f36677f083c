/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "cli.h"

#include "../stress/stress.h"

#include <inttypes.h>
#include <stdio.h>

int clv_cmd_stress(int argc, char **argv)
{
	struct clv_stress_config c = {.ops = 100000, .seed = 1, .threads = 1, .streams = 8, .capacity = 256 * CLV_MIB};
	uint64_t threads = 1, streams = 8;
	bool full = false;
	const struct clv_arg options[] = {
		{.name = "ops", .kind = CLV_ARG_NUMBER, .into = &c.ops, .value = "N", .min = 1, .help = ""},
		{.name = "seed", .kind = CLV_ARG_NUMBER, .into = &c.seed, .value = "N", .help = ""},
		{.name = "threads", .kind = CLV_ARG_NUMBER, .into = &threads, .value = "N", .min = 1, .max = 64, .help = ""},
		{.name = "streams", .kind = CLV_ARG_NUMBER, .into = &streams, .value = "N", .min = 1, .max = 1024, .help = ""},
		{.name = "capacity", .kind = CLV_ARG_SIZE, .into = &c.capacity, .value = "SIZE", .help = ""},
		{.name = "faults", .kind = CLV_ARG_FLAG, .into = &c.faults, .help = ""},
		{.name = "full", .kind = CLV_ARG_FLAG, .into = &full, .help = ""},
		{.name = "settings", .kind = CLV_ARG_TEXT, .into = &c.settings, .value = "TEXT", .help = ""},
	};
	const struct clv_args args = {.command = "stress", .operands = "", .about = "", .options = options, .option_count = CLV_ARRAY_LEN(options)};
	int first;
	int status = clv_args_parse(&args, argc, argv, &first);
	if (status >= 0)
		return status;
	c.threads = (unsigned)threads;
	c.streams = (unsigned)streams;
	c.full = full;
	struct clv_stress_result r;
	struct clv_error err = {""};
	if (!clv_stress_run(&c, &r, &err))
		return clv_cli_refuse("stress", "%s", err.text);
	if (!r.passed)
		printf("WRONG seed %" PRIu64 " op %" PRIu64 " thread %u: %s\n", r.seed, r.operation, r.thread, r.wrong);
	printf("%" PRIu64 " ops in %.2f s, %.0f /s, faults %" PRIu64 " digest %016" PRIx64 " live %" PRIu64 " held %" PRIu64 " written %" PRIu64 "\n", r.ops, r.wall_s, (double)r.ops / r.wall_s, r.faults, r.digest, r.live_peak, r.held_peak, r.bytes_written);
#define X(field, text) printf("  %" PRIu64 " %s\n", r.counts.field, text);
	CLV_STRESS_COUNTS(X)
#undef X
	return r.passed ? CLV_EXIT_DONE : CLV_EXIT_FAILED;
}
