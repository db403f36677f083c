/* SPDX-License-Identifier: MIT
 *
 * libcleave-preload.so where it has nothing to do: everything must be as without it.
 */
#include "../src/preload/hooks.h"
#include "cli_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *need(const char *name)
{
	const char *value = getenv(name);
	ck_assert_msg(value != NULL, "%s is not set", name);
	return value;
}

/* Runs a command line with and without the library and compares. */
static struct cli_result same_with(const char *preload, const char *line)
{
	char with[4096];
	/* a sanitizer's library in both: a program may print which library its malloc is of */
	snprintf(with, sizeof(with), "LD_PRELOAD='%s' ASAN_OPTIONS=detect_leaks=0 exec sh -c '%s'",
		 need("CLEAVE_PRELOAD_FIRST"), line);
	struct cli_result plain = cli_shell(with);
	snprintf(with, sizeof(with), "LD_PRELOAD='%s' ASAN_OPTIONS=detect_leaks=0 exec sh -c '%s'", preload, line);
	struct cli_result r = cli_shell(with);
	ck_assert_msg(r.status == plain.status, "%s: status %d, without the library %d\n%s", line, r.status, plain.status, r.err);
	ck_assert_msg(!strcmp(r.out, plain.out), "%s: prints\n%s\nand without the library\n%s", line, r.out, plain.out);
	ck_assert_msg(!strcmp(r.err, plain.err), "%s: complains\n%s\nand without the library\n%s", line, r.err, plain.err);
	return r;
}

static struct cli_result same(const char *line)
{
	return same_with(need("CLEAVE_PRELOAD"), line);
}

static bool have(const char *program)
{
	char line[256];
	snprintf(line, sizeof(line), "command -v %s >/dev/null", program);
	return cli_shell(line).status == 0;
}

START_TEST(programs_of_every_day)
{
	ck_assert_int_eq(same("echo out; echo err >&2; exit 3").status, 3);
	same("kill -TERM $$");
	same("printf \"a\\nb\\n\" | sort -r | head -n 1");
	same("(exit 4); echo $?; true & wait; echo done");
	if (have("git"))
		same("git init -q . && git status --porcelain && git log 2>&1 | head -n 1");
	if (have("python3"))
		same("python3 -c \"import ctypes, subprocess, threading; print(subprocess.call([\\\"sh\\\", \\\"-c\\\", "
		     "\\\"exit 6\\\"])); t = threading.Thread(target=print, args=(1,)); t.start(); t.join(); "
		     "print(ctypes.CDLL(None).abs(-5))\"");
}
END_TEST

START_TEST(a_program_without_cuda)
{
	char line[2048];
	const char *folder = need("CLEAVE_PROGRAMS");
	snprintf(line, sizeof(line), "exec %s/quiet %s/libquiet-chain1.so", folder, folder);
	struct cli_result r = same(line);
	ck_assert_int_eq(r.status, 5);
	ck_assert_msg(strstr(r.out, "chain: 21"), "%s", r.out);
	ck_assert_msg(strstr(r.out, "driver's name: 41"), "%s", r.out);
	ck_assert_ptr_nonnull(strstr(r.out, "default cuMemAlloc_v2: none"));

	/* beside another library that replaces dlsym, before it and after it */
	char both[2][4096];
	const char *sanitizer = need("CLEAVE_PRELOAD_FIRST"); /* must stay first */
	snprintf(both[0], sizeof(both[0]), "%s:%s/libother.so", need("CLEAVE_PRELOAD"), folder);
	snprintf(both[1], sizeof(both[1]), "%s%s%s/libother.so:%s", sanitizer, *sanitizer ? ":" : "", folder,
		 need("CLEAVE_PRELOAD_LIBRARY"));
	for (int i = 0; i < 2; i++) {
		char first[4096];
		snprintf(first, sizeof(first), "OTHER_LOG=counts %s/quiet >/dev/null", folder);
		same_with(both[i], first);
		ck_assert_int_eq(cli_shell("grep -q 'lookups 1' counts").status, 0);
		ck_assert_int_eq(cli_shell("rm counts").status, 0);
	}
}
END_TEST

START_TEST(exceptions_pass)
{
	char line[1024];
	snprintf(line, sizeof(line), "%s/quiet-throw", need("CLEAVE_PROGRAMS"));
	if (access(line, X_OK))
		return; /* no C++ compiler */
	struct cli_result r = same(line);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "cancelled 1, alive 0"));
}
END_TEST

/* What a driver's library has is used, what it lacks is not called, and is not found. */
START_TEST(a_driver_that_lacks_functions)
{
	char line[1024], with[2048];
	const char *folder = need("CLEAVE_PROGRAMS");
	snprintf(line, sizeof(line), "exec %s/quiet-lacking %s/liblacking.so", folder, folder);
	struct cli_result plain = cli_shell(line);
	ck_assert_msg(plain.status == 0 && strstr(plain.out, "absent: 1 1\nnot for everybody: 1\n"), "%s", plain.out);
	static const char *const settings[] = {"", "off", "driver:any", "serve:all"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(settings); i++) {
		snprintf(with, sizeof(with), "LD_PRELOAD='%s' ASAN_OPTIONS=detect_leaks=0 CLEAVE_CONF=%s %s",
			 need("CLEAVE_PRELOAD"), settings[i], line);
		struct cli_result r = cli_shell(with);
		ck_assert_msg(r.status == 0 && !strcmp(r.out, plain.out), "%s: status %d\n%s%s", settings[i], r.status, r.out,
			      r.err);
	}
}
END_TEST

/* List, table and exports are one: every hook is exported, and nothing else but dlsym, what tells of the heap, and what a program
 * says to a record of itself. */
START_TEST(what_is_exported_is_the_list)
{
	static const char *const names[] = {
#define CLV_HOOK_NAME_(name) #name,
		CLV_HOOKS "dlsym", "cleave_preload_table", "cleave_trace_start", "cleave_trace_flush", "cleave_trace_stop",
		"cleave_trace_mark", "cleave_trace_phase_begin", "cleave_trace_phase_end"
#undef CLV_HOOK_NAME_
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++)
		for (size_t k = 0; k < i; k++)
			ck_assert_msg(strcmp(names[i], names[k]), "%s is in the list twice", names[i]);

	/* not by dlopen: with the TLS of its jemalloc the library can only be loaded when a program starts */
	char line[2048];
	snprintf(line, sizeof(line), "%s -D --defined-only %s | grep -v -e __asan -e __ubsan -e __odr_asan | sed \"s/.* //\"",
		 need("CLEAVE_NM"), need("CLEAVE_PRELOAD_LIBRARY"));
	struct cli_result r = cli_shell(line);
	bool exported[CLV_ARRAY_LEN(names)] = {false};
	for (char *name = strtok(r.out, "\n"); name; name = strtok(NULL, "\n")) {
		size_t i = 0;
		while (i < CLV_ARRAY_LEN(names) && strcmp(names[i], name))
			i++;
		ck_assert_msg(i < CLV_ARRAY_LEN(names), "%s is exported and no hook", name);
		exported[i] = true;
	}
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++)
		ck_assert_msg(exported[i], "%s is not exported", names[i]);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {programs_of_every_day, a_program_without_cuda, exceptions_pass,
				      a_driver_that_lacks_functions, what_is_exported_is_the_list};
	return cli_suite("preload", tests, CLV_ARRAY_LEN(tests));
}
