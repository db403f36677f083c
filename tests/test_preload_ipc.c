/* SPDX-License-Identifier: MIT
 *
 * Memory between processes that are served by libcleave-preload.so, on the double of the driver: tests/preload/ipc_pair.c,
 * as it runs without.
 */
#include "cli_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cli_result run(bool preload, const char *conf, const char *mode)
{
	char line[8192];
	snprintf(
		line, sizeof(line),
		"LD_LIBRARY_PATH=\"$CLEAVE_FAKE_CUDA\" FAKE_CUDA_MEMORY=256MiB FAKE_CUDA_DEVICES=2 CLEAVE_CONF=%s ASAN_OPTIONS=detect_leaks=0 "
		"LD_PRELOAD=\"%s\" exec \"$CLEAVE_PROGRAMS\"/ipc_pair %s",
		conf, preload ? "$CLEAVE_PRELOAD" : "", mode);
	return cli_shell(line);
}

static void ck_pair(bool preload, const char *conf, const char *mode, const char *out)
{
	struct cli_result r = run(preload, conf, mode);
	ck_assert_msg(r.status == 0, "%s %s: status %d\n%s", conf, mode, r.status, r.err);
	ck_assert_str_eq(r.out, out);
}

/* The program is right where Cleave is not. */
START_TEST(without)
{
	ck_pair(false, "", "plain", "no frames, 40 blocks\n");
	ck_pair(true, "off", "plain", "no frames, 40 blocks\n");
	ck_pair(true, "serve:pool", "plain", "no frames, 40 blocks\n"); /* the driver's own handles */
}
END_TEST

START_TEST(plain)
{
	ck_pair(true, "serve:all", "plain", "frames of 40 blocks\n");
}
END_TEST

START_TEST(stream_ordered)
{
	struct cli_result r = run(false, "", "async");
	ck_assert_int_ne(r.status, 0); /* what a driver cannot do */
	ck_pair(true, "", "async", "frames of 40 blocks\n");
}
END_TEST

START_TEST(another_device)
{
	ck_pair(false, "", "plain 1", "no frames, 40 blocks\n");
	ck_pair(true, "serve:all", "plain 1", "frames of 40 blocks\n");
}
END_TEST

START_TEST(many_frames)
{
	ck_pair(true, "growth:tight", "frames", "frames of 1 blocks\n");
}
END_TEST

START_TEST(switched_off)
{
	struct cli_result r = run(true, "ipc:off", "refused");
	ck_assert_msg(r.status == 0, "%s", r.err);
	ck_assert_str_eq(r.err, "cleave: memory cannot be shared with other processes: CLEAVE_CONF says ipc:off\n");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {without, plain, stream_ordered, another_device, many_frames, switched_off};
	return cli_suite("preload_ipc", tests, CLV_ARRAY_LEN(tests));
}
