/* SPDX-License-Identifier: MIT
 *
 * `cleave run --plan` with the preload library under a program, on the test double of libcuda.so.1: what is reserved, when,
 * and what is said of it.
 */
#include "cli_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *need(const char *name)
{
	const char *value = getenv(name);
	ck_assert_msg(value != NULL, "%s is not set", name);
	return value;
}

/* A plan with these reservations becomes plan.json. */
static void plan(const char *reservations)
{
	char text[1024];
	snprintf(
		text, sizeof(text),
		"{\"moe_layers\": 12, \"experts_local\": 4, \"buffers\": [{\"name\": \"w13_weight\", \"shape\": [4, 1048576], "
		"\"dtype\": \"uint8\", \"bytes\": 4194304}], \"reservations\": [%s]}\n",
		reservations);
	cli_text("plan.json", text);
}

#define ONE(count, after, hard)                                                                                        \
	"{\"name\": \"w13_weight\", \"bytes\": 4194304, \"count\": " #count ", \"after_n\": " #after                   \
	", \"hard\": " #hard "}"

/* A program on the double, by `cleave run` with these options. It must end well. */
static struct cli_result run(const char *environment, const char *options, const char *program)
{
	char line[4096];
	snprintf(
		line, sizeof(line),
		"LD_LIBRARY_PATH='%s' ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD='%s' CLEAVE_PRELOAD='%s' FAKE_CUDA_MEMORY=64MiB %s "
		"\"$CLEAVE\" run %s -- '%s'/%s",
		need("CLEAVE_FAKE_CUDA"), need("CLEAVE_PRELOAD_FIRST"), need("CLEAVE_PRELOAD_LIBRARY"), environment,
		options, need("CLEAVE_PROGRAMS"), program);
	struct cli_result r = cli_shell(line);
	ck_assert_msg(r.status == 0, "%s: status %d\n%s%s", line, r.status, r.out, r.err);
	return r;
}

static void says(struct cli_result r, const char *out, const char *err)
{
	ck_assert_msg(strstr(r.out, out) != NULL, "stdout has no '%s': %s\nstderr: %s", out, r.out, r.err);
	ck_assert_msg(strstr(r.err, err) != NULL, "stderr has no '%s': %s", err, r.err);
}

static void says_not(struct cli_result r, const char *text)
{
	ck_assert_msg(!strstr(r.err, text), "stderr has '%s': %s", text, r.err);
}

#define HELD "a layer more is held: 1\n"

START_TEST(as_planned)
{
	plan(ONE(1, 12, true));
	struct cli_result r = run("", "--plan plan.json --stats", "gpu-reserve proc");
	says(r, HELD, "; 1 reservation of plan.json, 4.0 MiB in all, on each device that a process works on\n");
	says(r, "", " CLEAVE_CONF=stats:on,reserve:4194304*1+after=12+hard+name=w13_weight ");
	says(r, "",
	     "device 0: reservation 1 'w13_weight', hard: 1 of 4.0 MiB after 12 requests; 12 requests served, 1 held now\n");
	says_not(r, "not as planned");
	/* the plan's own count ends the phase, and what was held is free */
	plan("{\"name\": \"w13_weight\", \"bytes\": 4194304, \"count\": 1, \"after_n\": 12, \"uses\": 12, \"hard\": true}");
	r = run("", "--plan plan.json --stats", "gpu-reserve proc");
	says(r, HELD, "+after=12+uses=12+hard+name=w13_weight ");
	says(r, "", "12 requests served, 0 held now");
	says_not(r, "not as planned");
	/* without a plan it runs as well, where there is room */
	r = run("", "--stats", "gpu-reserve proc");
	says(r, "a layer more is held: 0\n", " 25 allocations");
	says_not(r, "reservation");
}
END_TEST

START_TEST(with_other_settings)
{
	plan(ONE(1, 12, false));
	/* of what is there nothing goes; the sizes of slabs need no room */
	struct cli_result r =
		run("CLEAVE_CONF=growth:tight,reserve:6MiB", "--conf cache:off --plan=plan.json", "gpu-reserve proc");
	says(r, HELD, " CLEAVE_CONF=growth:tight,reserve:6MiB,cache:off,reserve:4194304*1+after=12+name=w13_weight ");
	plan(ONE(1, 12, false) ", {\"name\": \"scales\", \"bytes\": 4096, \"count\": 9, \"after_n\": 0}");
	r = run("", "--plan plan.json --stats", "gpu-reserve proc");
	says(r, HELD, "(1 of sizes up to 32 KiB, which need none, left out)");
	says(r, "", "reservation 1 'w13_weight', soft");
	says_not(r, "scales");
	plan("");
	r = run("", "--plan plan.json --stats", "gpu-reserve proc");
	says(r, "held: 0", "; plan.json reserves nothing\n");
	/* by the setting alone */
	r = run("CLEAVE_CONF=reserve:4MiB+after=12", "--stats", "gpu-reserve proc");
	says(r, HELD, "reservation 1, soft: 1 of 4.0 MiB after 12 requests; 12 requests served");
}
END_TEST

START_TEST(where_no_work_is_done)
{
	plan(ONE(1, 12, true));
	struct cli_result r = run("", "--plan plan.json --stats", "gpu-reserve proc little");
	says(r, "less than a layer is held: 1\n", " 1 allocations");
	says_not(r, "reservation 1");
	/* and a process without CUDA says nothing */
	r = run("", "--plan plan.json --stats", "../../cleave version");
	says(r, "cleave ", "");
	says_not(r, "\ncleave: ");
}
END_TEST

/* The program runs all the same, and the report says how it was. */
START_TEST(not_as_planned)
{
	plan(ONE(1, 30, true));
	struct cli_result r = run("", "--plan plan.json --stats", "gpu-reserve proc");
	says(r, HELD, "not as planned: only 24 of the requests before it came; 1 was never used\n");
	plan(ONE(1, 0, false));
	r = run("", "--plan plan.json --stats", "gpu-reserve proc");
	says(r, "a layer more is held: 0\n", "not as planned: ");
	says(r, "", " requests found none left\n");
	/* more than there is */
	plan(ONE(40, 12, true));
	r = run("", "--plan plan.json --stats", "gpu-reserve proc");
	says(r, HELD, "cleave: device 0: the hard reservation 'w13_weight' of 4.0 MiB got ");
	says(r, "",
	     "cleave: device 0: the hard reservation 'w13_weight' of 4.0 MiB gives slots up, since a request of 4.0 MiB would");
	says(r, "", " could be had at first");
	says(r, "", " given up for other requests\n");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {as_planned, with_other_settings, where_no_work_is_done, not_as_planned};
	return cli_suite("preload_plan", tests, CLV_ARRAY_LEN(tests));
}
