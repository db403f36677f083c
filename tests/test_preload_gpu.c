/* SPDX-License-Identifier: MIT
 *
 * Programs that use CUDA, on a test double of libcuda.so.1: with the preload library they must do what they do without it,
 * and their memory must be Cleave's.
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

/* `settings` of the environment, then the program and its arguments. */
static struct cli_result run(bool preloaded, const char *settings, const char *program)
{
	char line[4096];
	snprintf(line, sizeof(line), "LD_LIBRARY_PATH='%s' ASAN_OPTIONS=detect_leaks=0 %s%s%s %s exec '%s'/%s",
		 need("CLEAVE_FAKE_CUDA"), preloaded ? "LD_PRELOAD='" : "", preloaded ? need("CLEAVE_PRELOAD") : "",
		 preloaded ? "'" : "", settings, need("CLEAVE_PROGRAMS"), program);
	return cli_shell(line);
}

/* With the library the program must say what it says without it (`plain`). */
static struct cli_result as_in(const struct cli_result *plain, const char *settings, const char *program)
{
	struct cli_result r = run(true, settings, program);
	ck_assert_msg(r.status == 0, "%s %s: status %d\n%s%s", settings, program, r.status, r.out, r.err);
	ck_assert_msg(!strcmp(r.out, plain->out), "%s %s: prints\n%s\nand without the library\n%s", settings, program,
		      r.out, plain->out);
	return r;
}

static struct cli_result alone(const char *settings, const char *program)
{
	struct cli_result plain = run(false, settings, program);
	ck_assert_msg(plain.status == 0, "%s %s: status %d without the library\n%s%s", settings, program, plain.status,
		      plain.out, plain.err);
	return plain;
}

/* Both. Returns what was said with the library. */
static struct cli_result same(const char *settings, const char *program)
{
	struct cli_result plain = alone(settings, program);
	return as_in(&plain, settings, program);
}

/* The number of the word before it in the statistics: "12 allocations". All lines together. */
static unsigned long count(const char *stats, const char *word)
{
	unsigned long sum = 0;
	for (const char *at = stats; (at = strstr(at, word)); at += strlen(word)) {
		const char *digits = at;
		while (digits > stats && strchr("0123456789 ", digits[-1]))
			digits--;
		sum += strtoul(digits, NULL, 10);
	}
	return sum;
}

/* How a program comes to its functions: each way, and two that between them have what the others have. */
static const char *const ways[] = {"linked", "dlsym", "proc", "linked-ptds", "dlsym-ptds", "proc-ptds", NULL};
static const char *const two_ways[] = {"proc", "linked-ptds", NULL};

static void in_ways(const char *const *how, const char *program, const char *settings, bool served)
{
	struct cli_result plain = alone(settings, program); /* says the same in every way */
	for (; *how; how++) {
		char line[256];
		snprintf(line, sizeof(line), "%s %s", program, *how);
		struct cli_result r = as_in(&plain, settings, line);
		ck_assert_msg((count(r.err, " allocations") > 0) == served, "%s %s: %s\n%s", settings, line,
			      served ? "was not served" : "was served", r.err);
	}
}

START_TEST(pools)
{
	in_ways(ways, "gpu-pool", "CLEAVE_CONF=stats:on", true);
	in_ways(two_ways, "gpu-pool", "FAKE_CUDA_DELAY_US=100 CLEAVE_CONF=stats:on,growth:tight", true);
}
END_TEST

START_TEST(plain)
{
	in_ways(ways, "gpu-plain", "CLEAVE_CONF=stats:on", true);
	in_ways(two_ways, "gpu-plain", "FAKE_CUDA_DELAY_US=100 CLEAVE_CONF=stats:on,serve:all", true);
	in_ways(two_ways, "gpu-plain", "CLEAVE_CONF=stats:on,serve:pool", false);
}
END_TEST

START_TEST(threads)
{
	in_ways(two_ways, "gpu-threads", "CLEAVE_CONF=stats:on", true);
	in_ways(two_ways, "gpu-threads", "FAKE_CUDA_DELAY_US=50 CLEAVE_CONF=stats:on,serve:all", true);
}
END_TEST

START_TEST(full_devices)
{
	in_ways(two_ways, "gpu-full", "CLEAVE_CONF=stats:on", true);
	struct cli_result r = same("CLEAVE_CONF=stats:on", "gpu-full proc");
	ck_assert_msg(strstr(r.err, "cleave: device 0: Cleave could not serve a request of"), "%s", r.err);
	ck_assert_msg(!strstr(r.err, "the pool was not given up"), "%s", r.err);
	r = same("CLEAVE_CONF=stats:on,report:off", "gpu-full proc");
	ck_assert_msg(!strstr(r.err, "could not serve"), "%s", r.err);
}
END_TEST

START_TEST(two_devices)
{
	static const char *const settings[] = {"FAKE_CUDA_DEVICES=2 CLEAVE_CONF=stats:on",
					       "FAKE_CUDA_DEVICES=2 CLEAVE_CONF=stats:on,serve:all"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(settings); i++)
		ck_assert_uint_gt(count(same(settings[i], "gpu-peers proc").err, " allocations"), 0);
}
END_TEST

START_TEST(children)
{
	in_ways(two_ways, "gpu-fork", "CLEAVE_CONF=stats:on", true);
}
END_TEST

START_TEST(odd_programs)
{
	in_ways(two_ways, "gpu-odd", "CLEAVE_CONF=stats:on", true);
	in_ways(two_ways, "gpu-odd", "FAKE_CUDA_DELAY_US=3000 CLEAVE_CONF=stats:on,serve:all", true);
}
END_TEST

START_TEST(contexts)
{
	in_ways(ways, "gpu-context", "CLEAVE_CONF=stats:on,serve:all", true);
	in_ways(two_ways, "gpu-context", "FAKE_CUDA_DELAY_US=100 CLEAVE_CONF=stats:on", true);
}
END_TEST

START_TEST(libraries_that_bind_deep)
{
	char line[1024];
	if (*need("CLEAVE_PRELOAD_FIRST"))
		return; /* AddressSanitizer ends a program that opens one */
	for (size_t i = 0; i < 3; i++) {
		snprintf(line, sizeof(line), "gpu-deep %s '%s/libgpu-deep.so'", ways[i], need("CLEAVE_PROGRAMS"));
		ck_assert_ptr_nonnull(strstr(same("CLEAVE_CONF=stats:on", line).out, "deep 77"));
	}
}
END_TEST

/* Nothing is served, and that is said once, or not at all if it was asked for. */
static void passes_through(const char *settings, const char *because)
{
	static const char *const programs[] = {"gpu-pool", "gpu-plain", "gpu-threads",
					       "gpu-full", "gpu-fork",  "gpu-odd"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(programs); i++) {
		char line[64];
		snprintf(line, sizeof(line), "%s proc", programs[i]);
		struct cli_result r = same(settings, line);
		ck_assert_msg(!count(r.err, " allocations"), "%s %s: was served\n%s", settings, line, r.err);
		const char *said = because ? strstr(r.err, because) : NULL;
		if (because && strcmp(programs[i], "gpu-fork")) /* which has children that say it as well */
			ck_assert_msg(said && !strstr(said + 1, because), "%s %s: said\n%s", settings, line, r.err);
		else if (!because)
			ck_assert_msg(!strstr(r.err, "cleave"), "%s %s: said\n%s", settings, line, r.err);
	}
}

START_TEST(passed_through)
{
	passes_through("CLEAVE_CONF=off", NULL);
	passes_through("CLEAVE_CONF=stats:on FAKE_CUDA_VMM=0", "cannot map memory");
	passes_through("CLEAVE_CONF=stats:on FAKE_CUDA_VERSION=14000", "memory is left to the driver");
	struct cli_result r = same("CLEAVE_CONF=stats:on,driver:any FAKE_CUDA_VERSION=14000", "gpu-pool proc");
	ck_assert_uint_gt(count(r.err, " allocations"), 0);
}
END_TEST

START_TEST(settings_that_make_no_sense)
{
	struct cli_result r = same("CLEAVE_CONF=stats:on,grow:fast,limit:lots", "gpu-pool proc");
	ck_assert_msg(strstr(r.err, "grow") && strstr(r.err, "limit:lots"), "%s", r.err);
	ck_assert_uint_gt(count(r.err, " allocations"), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {pools,
				      plain,
				      threads,
				      full_devices,
				      two_devices,
				      children,
				      contexts,
				      odd_programs,
				      libraries_that_bind_deep,
				      passed_through,
				      settings_that_make_no_sense};
	return cli_suite("preload_gpu", tests, CLV_ARRAY_LEN(tests));
}
