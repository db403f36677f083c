/* SPDX-License-Identifier: MIT
 *
 * Page-locked memory through the preload library, over the test double of libcuda.so.1: tests/preload/pinned.c run
 * without the library, with it, and with pinned:on.
 */
#include "cli_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cli_result run(const char *what, const char *preload, const char *conf)
{
	char line[8192];
	snprintf(line, sizeof(line), "LD_PRELOAD='%s' CLEAVE_CONF='%s' ASAN_OPTIONS=detect_leaks=0 exec '%s/pinned' %s",
		 preload, conf, getenv("CLEAVE_PROGRAMS"), what);
	struct cli_result r = cli_shell(line);
	ck_assert_msg(r.status == 0, "%s with '%s': status %d: %s%s", what, conf, r.status, r.out, r.err);
	return r;
}

/* The same with each; returns what the one with pinned:on says on stderr. */
static const char *same(const char *what, const char *conf)
{
	const char *preload = getenv("CLEAVE_PRELOAD");
	struct cli_result plain = run(what, "", ""), off = run(what, preload, ""), on = run(what, preload, conf);
	ck_assert_str_ne(plain.out, "");
	ck_assert_str_eq(off.out, plain.out);
	ck_assert_str_eq(off.err, plain.err);
	ck_assert_str_eq(on.out, plain.out);
	return on.err;
}

START_TEST(results)
{
	ck_assert_str_eq(same("results", "pinned:on"), "");
	same("results", "pinned:on,pinned_limit:0");
}
END_TEST

/* A block waits for the copies that read it; the driver is asked for a few chunks instead of 160 blocks. */
START_TEST(copies)
{
	int chunks = atoi(same("copies", "pinned:on"));
	ck_assert_int_ge(chunks, 1);
	ck_assert_int_le(chunks, 10);
}
END_TEST

/* The driver has no event for the work of a context, and the free waits. */
START_TEST(copies_under_an_old_driver)
{
	setenv("FAKE_CUDA_FAIL", "cuCtxRecordEvent:1+:801", 1);
	ck_assert_int_le(atoi(same("copies", "pinned:on")), 3);
	ck_assert_int_le(atoi(same("copies", "pinned:on,pinned_limit:0")), 170);
}
END_TEST

START_TEST(threads)
{
	same("threads", "pinned:on");
	same("threads", "pinned:on,pinned_limit:64KiB");
}
END_TEST

START_TEST(contexts)
{
	same("contexts", "pinned:on");
}
END_TEST

/* No capture is broken by a free, whose block waits for the work of before all the same. */
START_TEST(free_in_a_capture)
{
	ck_assert_str_eq(run("capture", getenv("CLEAVE_PRELOAD"), "pinned:on").out, "copied 5 5\n");
}
END_TEST

/* A chunk larger than the request is refused, then one comes that is as large as it must be. */
START_TEST(refused_chunks)
{
	struct cli_result plain = run("results", "", "");
	setenv("FAKE_CUDA_FAIL", "cuMemHostAlloc:1", 1);
	ck_assert_str_eq(run("results", getenv("CLEAVE_PRELOAD"), "pinned:on").out, plain.out);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {results,           copies,        copies_under_an_old_driver, threads, contexts,
				      free_in_a_capture, refused_chunks};
	return cli_suite("preload_pinned", tests, CLV_ARRAY_LEN(tests));
}
