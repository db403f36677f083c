/* SPDX-License-Identifier: MIT
 *
 * Host memory inside a preloaded library: what the library shows and needs, and that a program under it keeps its own
 * allocator. CLEAVE_PRELOAD_HOST and CLEAVE_PRELOAD_PROGRAM say where the library and the program are,
 * CLEAVE_EXPECT_JEMALLOC whether it has jemalloc.
 */
#include "check_main.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* whose runtime is needed, and has the allocator */
#else
#define SANITIZED 0
#endif

static const char *need_env(const char *name)
{
	const char *value = getenv(name);
	ck_assert_msg(value, "%s is not set", name);
	return value;
}

/* What a command prints; its status goes to *status. */
static const char *output(const char *command, int *status)
{
	static char text[1 << 16];
	FILE *f = popen(command, "r");
	ck_assert_ptr_nonnull(f);
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	ck_assert_uint_lt(n, sizeof(text) - 1);
	*status = pclose(f);
	return text;
}

static const char *tool(const char *format)
{
	char command[4200];
	int status;
	snprintf(command, sizeof(command), "%s '%s'", format, need_env("CLEAVE_PRELOAD_HOST"));
	const char *text = output(command, &status);
	ck_assert_msg(status == 0, "%s: status %#x", command, (unsigned)status);
	ck_assert_str_ne(text, "");
	return text;
}

/* Runs the program, preloaded or not, with settings for somebody else's jemalloc. Its stderr is in the text. */
static const char *run(const char *what, bool preloaded)
{
	char command[8400];
	int status;
	snprintf(command, sizeof(command),
		 "MALLOC_CONF=stats_print:true,confirm_conf:true,abort_conf:true,narenas:7,no_such:1 "
		 "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD='%s' '%s' %s 2>&1",
		 preloaded ? need_env("CLEAVE_PRELOAD_HOST") : "", need_env("CLEAVE_PRELOAD_PROGRAM"), what);
	const char *text = output(command, &status);
	ck_assert_msg(status == 0, "%s: status %#x: %.2000s", what, (unsigned)status, text);
	return text;
}

START_TEST(exports_are_on_purpose)
{
	char *line, *text = strdup(tool("nm -D --defined-only")), *rest = text;
	int count = 0;
	while ((line = strsep(&rest, "\n")))
		if (*line && !strstr(line, "__odr_asan") && !strstr(line, "__asan")) {
			ck_assert_msg(strstr(line, " T preload_host_"), "%s", line);
			count++;
		}
	ck_assert_int_eq(count, 6);
	free(text);
}
END_TEST

START_TEST(needs_libc_alone)
{
	char *line, *text = strdup(tool("readelf -dW")), *rest = text, *found;
	int count = 0;
	while ((line = strsep(&rest, "\n")))
		if ((found = strstr(line, "(NEEDED)"))) {
			ck_assert_msg(strstr(found, "[libc.so.6]") || strstr(found, "[ld-linux"), "%s", line);
			count++;
		}
	ck_assert_int_gt(count, 0);
	free(text);
}
END_TEST

/* The oldest glibc it is to be loaded with is 2.35. */
START_TEST(needs_no_newer_glibc)
{
	int status;
	output("command -v objdump", &status);
	if (status) {
		printf("objdump is not installed\n");
		return;
	}
	const char *at = tool("objdump -T");
	int seen = 0;
	while ((at = strstr(at, "GLIBC_2."))) {
		int minor = atoi(at += strlen("GLIBC_2."));
		ck_assert_msg(minor <= 35, "needs glibc 2.%d: %.60s", minor, at);
		seen++;
	}
	ck_assert_int_gt(seen, 0);
}
END_TEST

START_TEST(allocator_stays_the_programs)
{
	char *without = strdup(run("allocator", false));
	const char *with = run("allocator", true);
	ck_assert_str_eq(with, without);
	ck_assert_ptr_nonnull(strstr(with, "malloc "));
	if (!SANITIZED)
		ck_assert_msg(strstr(with, "/libc.so.6\ncalloc "), "%s", with);
	free(without);
}
END_TEST

START_TEST(memory_of_the_library)
{
	ck_assert_str_eq(run("memory", true), getenv("CLEAVE_EXPECT_JEMALLOC") ? "jemalloc 1\n" : "jemalloc 0\n");
}
END_TEST

START_TEST(forks_in_a_storm)
{
	ck_assert_msg(!*run("fork", true), "it printed something");
}
END_TEST

int main(void)
{
	static const TTest *tests[6];
	size_t count = 0;
	tests[count++] = exports_are_on_purpose;
	if (!SANITIZED) {
		tests[count++] = needs_libc_alone;
		tests[count++] = needs_no_newer_glibc;
	}
	tests[count++] = allocator_stays_the_programs;
	tests[count++] = memory_of_the_library;
	tests[count++] = forks_in_a_storm;
	return check_main_run("preload_host", tests, count);
}
