/* SPDX-License-Identifier: MIT
 *
 * Snapshots written by Python's own picklers, the one in C and the one in Python, in every protocol, against the one
 * that is assembled here. Skipped without python3.
 */
#include "../tracing/import/import.h"
#include "check_main.h"
#include "pickle_json.h"
#include "snapshot_full.h"
#include "trace_check.h"

#include <stdio.h>

static struct clv_error err;

START_TEST(every_protocol)
{
	char dir[] = "/tmp/cleave-import-XXXXXX", path[64], command[256];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	struct pickle_writer w = pickle_of(snapshot_full, PICKLE_CPP);
	const struct clv_input in = {.name = "s", .data = w.data, .size = w.size};
	struct clv_trace *expected = clv_import_memory(&in, &err);
	free(w.data);
	ck_assert_ptr_nonnull(expected);
	snprintf(path, sizeof(path), "%s/s.py", dir);
	FILE *f = fopen(path, "w");
	fprintf(f,
		"import json, pickle, sys\n"
		"def hook(d):\n"
		"    global frames\n"
		"    if '$tuple' in d: return tuple(d['$tuple'])\n"
		"    if '$ref' in d: return 'REF'\n"
		"    return d\n"
		"d = json.loads(\"\"\"%s\"\"\".replace(\"'\", '\"'), object_hook=hook)\n"
		"t = d['device_traces'][0]\n"
		"t[2]['frames'] = t[1]['frames']\n"
		"protocol = int(sys.argv[1])\n"
		"dump = pickle._dump if sys.argv[2] == 'slow' else pickle.dump\n"
		"with open(sys.argv[3], 'wb') as f: dump(d, f, protocol)\n",
		snapshot_full);
	fclose(f);
	for (int protocol = 0; protocol <= 5; protocol++)
		for (int slow = 0; slow < 2; slow++) {
			snprintf(path, sizeof(path), "%s/s.pkl", dir);
			snprintf(command, sizeof(command), "python3 %s/s.py %d %s %s", dir, protocol,
				 slow ? "slow" : "fast", path);
			ck_assert_int_eq(system(command), 0);
			err.text[0] = '\0';
			struct clv_trace *t = clv_trace_import(path, &err);
			if (protocol < 2) {
				ck_assert_ptr_null(t);
				ck_assert_msg(strstr(err.text, "protocol 0 or 1") != NULL, "%d: %s", protocol,
					      err.text);
				continue;
			}
			ck_assert_msg(t != NULL, "protocol %d: %s", protocol, err.text);
			const char *difference = trace_difference(expected, t);
			ck_assert_msg(!difference, "protocol %d: %s", protocol, difference);
			clv_trace_free(t);
		}
	clv_trace_free(expected);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void)
{
	static const TTest *tests[1];
	if (system("python3 -c '' 2>/dev/null") != 0) {
		printf("skipped: there is no python3\n");
		return 77;
	}
	tests[0] = every_protocol;
	return check_main_run("pickle_python", tests, 1);
}
