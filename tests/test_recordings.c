/* SPDX-License-Identifier: MIT
 *
 * Recorded snapshots against figures computed without Cleave, as pickles and written as .clv. Skipped without them.
 */
#include "../tracing/format/clv.h"
#include "../tracing/import/import.h"
#include "check_main.h"
#include "torch_totals.h"
#include "trace_check.h"

#include <stdio.h>
#include <unistd.h>

static const char *shared; /* the folder that has a folder `traces` */

START_TEST(totals)
{
	char path[4096], copy[64];
	struct clv_error err = {{0}};
	snprintf(copy, sizeof(copy), "/tmp/cleave-recordings-%ld.clv", (long)getpid());
	for (size_t i = 0; i < CLV_ARRAY_LEN(torch_totals); i++) {
		snprintf(path, sizeof(path), "%s/traces/%s.pkl", shared, torch_totals[i].name);
		struct clv_trace *t = clv_trace_import(path, &err);
		ck_assert_msg(t != NULL, "%s", err.text);
		const char *wrong = trace_wrong(t);
		ck_assert_msg(!wrong, "%s: %s", path, wrong);
		torch_assert_totals(t, &torch_totals[i], true);

		ck_assert_msg(clv_trace_write(t, copy, &err), "%s", err.text);
		struct clv_trace *back = clv_trace_import(copy, &err);
		ck_assert_msg(back != NULL, "%s", err.text);
		const char *difference = trace_difference(t, back);
		ck_assert_msg(!difference, "%s: %s", path, difference);
		clv_trace_free(back);
		clv_trace_free(t);
	}
	unlink(copy);
}
END_TEST

int main(void)
{
	static const TTest *tests[1];
	char path[4096];
	shared = getenv("CLEAVE_SHARED");
	snprintf(path, sizeof(path), "%s/traces/%s.pkl", shared ? shared : "", torch_totals[0].name);
	if (!shared || access(path, R_OK) != 0) {
		printf("skipped: no recordings: CLEAVE_SHARED names no folder with traces\n");
		return 77;
	}
	tests[0] = totals;
	return check_main_run("recordings", tests, 1);
}
