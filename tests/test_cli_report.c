/* SPDX-License-Identifier: MIT
 *
 * `cleave report` as users call it.
 *
 * tests/data/report has what the command answers for the bundled recordings, without replays. With CLEAVE_REPORT_WRITE set they
 * are written anew into the source instead of compared; the diff is to be read.
 */
#include "../src/base/base.h"
#include "cli_run.h"
#include "json_expect.h"
#include "pickle_maker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *bundled(const char *name)
{
	static char path[4096];
	const char *folder = getenv("CLEAVE_TEST_DATA");
	ck_assert(folder != NULL);
	snprintf(path, sizeof(path), "%s/%s.clv", folder, name);
	return path;
}

static json_t *parsed(struct cli_result r)
{
	json_error_t error;
	ck_assert_msg(r.status == 0, "%s", r.err);
	ck_assert_str_eq(r.err, "");
	json_t *doc = json_loads(r.out, JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(doc != NULL, "%s: %.200s", error.text, r.out);
	return doc;
}

static json_t *device(json_t *doc, size_t i)
{
	json_t *d = json_array_get(json_object_get(doc, "devices"), i);
	ck_assert(json_is_object(d));
	return d;
}

static json_t *moment(json_t *d, const char *kind)
{
	size_t i;
	json_t *m;
	json_array_foreach(json_object_get(d, "moments"), i, m)
	{
		if (!strcmp(json_string_value(json_object_get(m, "kind")), kind))
			return m;
	}
	ck_abort_msg("no moment %s", kind);
	return NULL;
}

/* Three blocks of 16 KiB in two stretches; the middle one is freed. */
static const char log_text[] = "Thread,Time,Action,Pointer,Size,Stream\n"
			       "1,10:00:00.000000,allocate,0x200000,16384,0x0\n"
			       "1,10:00:01.000000,allocate,0x204000,16384,0x0\n"
			       "1,10:00:02.000000,allocate,0x400000,16384,0x0\n"
			       "1,10:00:03.000000,free,0x204000,16384,0x0\n";

static const char *const recordings[] = {
	"fuzz_capped",        "fuzz_expandcap", "fuzz_gc60", "fuzz_mempool", "fuzz_pendcap", "fuzz_streams",
	"k3_reorder_split20", "moe_prealloc",   "moe_stack", "pools",        "serve",        "train"};

static void compare_golden(const char *name)
{
	char golden[4096];
	snprintf(golden, sizeof(golden), "%s/report/%s.json", getenv("CLEAVE_TEST_DATA"), name);
	json_t *doc = parsed(cli_run("report", "--json", "--no-trials", "--top", "3", bundled(name), NULL));
	/* the file's name is where the source is */
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(device(doc, 0), "file")), name));
	json_object_set_new(device(doc, 0), "file", json_string(name));
	if (getenv("CLEAVE_REPORT_WRITE")) {
		ck_assert_int_eq(json_dump_file(doc, golden, JSON_INDENT(1) | JSON_REAL_PRECISION(12)), 0);
	} else {
		json_error_t error;
		json_t *expected = json_load_file(golden, 0, &error);
		ck_assert_msg(expected != NULL, "%s: %s", golden, error.text);
		char *is = json_dumps(doc, JSON_INDENT(1) | JSON_REAL_PRECISION(12) | JSON_SORT_KEYS);
		char *was = json_dumps(expected, JSON_INDENT(1) | JSON_REAL_PRECISION(12) | JSON_SORT_KEYS);
		size_t at = 0;
		while (is[at] && is[at] == was[at])
			at++;
		ck_assert_msg(!is[at] && !was[at], "%s: it was ...%.200s, and is ...%.200s", golden,
			      was + (at > 40 ? at - 40 : 0), is + (at > 40 ? at - 40 : 0));
		free(is);
		free(was);
		json_decref(expected);
	}
	json_decref(doc);
}

START_TEST(goldens)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(recordings); i++)
		compare_golden(recordings[i]);
}
END_TEST

START_TEST(a_log)
{
	json_t *doc =
		parsed(cli_run("report", "--json", "--timeline", "--at", "2.5s", cli_text("l.csv", log_text), NULL));
	json_t *d = device(doc, 0), *chosen = moment(d, "chosen"), *memory = json_object_get(chosen, "memory");
	ck_assert_str_eq(json_string_value(json_object_get(d, "basis")), "extents");
	ck_assert_str_eq(json_string_value(json_object_get(d, "file")), "l.csv");
	ck_assert_int_eq(whole(chosen, "event"), 3);
	ck_assert_int_eq(whole(memory, "live_bytes"), 3 * 16384);
	ck_assert_int_eq(whole(memory, "held_bytes"), 4 << 20);
	ck_assert_int_eq(whole(memory, "hard_bytes"), (4 << 20) - 3 * 16384);
	const json_t *timeline = json_object_get(d, "timeline"), *ends = json_object_get(timeline, "end");
	ck_assert_uint_eq(json_array_size(ends), 4);
	ck_assert_uint_eq(json_array_size(json_object_get(timeline, "time_s")), 4);
	ck_assert_int_eq(whole(json_array_get(ends, 3), "live_bytes"), 2 * 16384);
	json_decref(doc);

	doc = parsed(cli_run("report", "l.csv", "--json", "--at", "1", NULL));
	ck_assert(json_object_get(device(doc, 0), "timeline") == NULL);
	ck_assert_int_eq(whole(moment(device(doc, 0), "chosen"), "live_blocks"), 1);
	json_decref(doc);
}
END_TEST

START_TEST(a_table_for_people)
{
	struct cli_result r = cli_run("report", "--no-trials", bundled("moe_stack"), NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_str_eq(r.err, "");
	ck_assert_ptr_nonnull(strstr(r.out, "most of each:"));
	ck_assert_ptr_nonnull(
		strstr(r.out, "At the peak 8.57 GiB were held, 1.41 times the most that was live (6.06 GiB)"));
	ck_assert_ptr_nonnull(strstr(r.out, "who pins it"));
	ck_assert_ptr_nonnull(strstr(r.out, "largest hole"));
	/* the words are those of the texts, explained once below; what never was there has no column */
	ck_assert_ptr_nonnull(strstr(r.out, "\nfree whole   in segments or frames that nobody uses"));
	ck_assert_ptr_nonnull(strstr(r.out, "\nand then     what more"));
	ck_assert_ptr_nonnull(strstr(r.out, "stranded  free whole  largest hole"));
	ck_assert_ptr_null(strstr(r.out, "e-06"));
	size_t longest = 0;
	for (const char *line = r.out; *line; line += strcspn(line, "\n") + 1)
		longest = strcspn(line, "\n") > longest ? strcspn(line, "\n") : longest;
	ck_assert_uint_le(longest, 200);
}
END_TEST

/* What is in names is no command to the terminal, and breaks no line of a table. */
START_TEST(names_with_control_characters)
{
	struct cli_result r = cli_shell(
		"printf 'Thread,Time,Action,Pointer,Size,Stream\\n1,00:00:00:000001,allocate,0x1000,512,0\\n' "
		">\"$(printf 'a\\033[31m\\nb.csv')\"; \"$CLEAVE\" report --no-trials a*.csv");
	ck_assert_msg(r.status == 0, "%s", r.err);
	ck_assert_ptr_null(strchr(r.out, '\033'));
	unsigned found = 0;
	for (const char *at = r.out; (at = strstr(at, "a?[31m?b.csv")); at++)
		found++;
	ck_assert_uint_ge(found, 2);
}
END_TEST

/* What a person is told to do was replayed. */
START_TEST(advice)
{
	struct cli_result r = cli_run("report", bundled("moe_prealloc"), NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "replayed:"));
	json_t *doc = parsed(cli_run("report", "--json", bundled("moe_prealloc"), NULL));
	const json_t *tried = json_object_get(json_object_get(device(doc, 0), "trials"), "tried");
	ck_assert_uint_gt(json_array_size(tried), 3);
	const json_t *base = json_array_get(tried, 0), *best = json_array_get(tried, 1);
	ck_assert_str_eq(json_string_value(json_object_get(base, "policy")), "recorded");
	ck_assert(json_is_true(json_object_get(best, "confirmed")));
	ck_assert_int_eq(whole(base, "peak_held_bytes") - whole(best, "peak_held_bytes"), whole(best, "saved_bytes"));

	/* the same by the command that replays */
	json_t *again =
		parsed(cli_run("replay", "--json", "--policy", json_string_value(json_object_get(best, "policy")),
			       bundled("moe_prealloc"), NULL));
	const json_t *policy = json_array_get(json_object_get(again, "policies"), 0);
	ck_assert_int_eq(whole(policy, "peak_reserved_bytes"), whole(best, "peak_held_bytes"));
	json_decref(again);
	json_decref(doc);
}
END_TEST

START_TEST(ranks_side_by_side)
{
	char first[4096], second[4096];
	snprintf(first, sizeof(first), "%s", bundled("pools"));
	snprintf(second, sizeof(second), "%s", bundled("fuzz_capped"));
	json_t *doc = parsed(cli_run("report", "--json", "--no-trials", first, second, NULL));
	ck_assert_uint_eq(json_array_size(json_object_get(doc, "devices")), 2);
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(device(doc, 0), "file")), "fuzz_capped"));
	ck_assert_int_eq(whole(device(doc, 0), "failures"), 15);
	json_decref(doc);
	struct cli_result r = cli_run("report", "--no-trials", first, second, NULL);
	ck_assert(strstr(r.out, "fuzz_capped") < strstr(r.out, "pools"));
	ck_assert_ptr_nonnull(strstr(r.out, "pools.clv, device 0\n"));
	ck_assert_ptr_null(strstr(r.out, "worst of"));

	/* of many only the worst is told of in full; the table has a line for each */
	r = cli_run("report", "--no-trials", first, second, first, NULL);
	ck_assert_ptr_nonnull(strstr(r.out, "fuzz_capped.clv, device 0\n"));
	ck_assert_ptr_null(strstr(r.out, "pools.clv, device 0\n"));
	ck_assert_ptr_nonnull(strstr(r.out, "This was the worst of 3 devices."));
	const char *line = strstr(r.out, "pools.clv");
	ck_assert(line && strstr(line + 1, "pools.clv"));

	/* a rank that recorded nothing is named */
	static struct pickle p;
	pickle_begin(&p);
	pickle_text(&p, "device_traces");
	list_begin(&p);
	list_end(&p);
	pickle_text(&p, "segments");
	list_begin(&p);
	list_end(&p);
	pickle_settings(&p, "", -1);
	pickle_end(&p);
	r = cli_run("report", "--no-trials", cli_file("nothing.pkl", p.data, p.size), first, NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_msg(strstr(r.err, "nothing.pkl: holds neither a history nor a state; left out"), "%s", r.err);
	ck_assert_ptr_nonnull(strstr(r.out, "pools"));
}
END_TEST

/* A snapshot that was taken without a history: `cleave replay` sends people here. */
START_TEST(a_state_only)
{
	static struct pickle p;
	pickle_begin(&p);
	pickle_text(&p, "device_traces");
	list_begin(&p);
	list_begin(&p);
	list_end(&p);
	list_end(&p);
	pickle_text(&p, "segments");
	list_begin(&p);
	pickle_segment(&p, 0, 0x200000, 0x200000, "small");
	list_end(&p);
	pickle_settings(&p, "", -1);
	pickle_end(&p);
	json_t *doc = parsed(cli_run("report", "--json", cli_file("s.pkl", p.data, p.size), NULL));
	json_t *d = device(doc, 0);
	ck_assert(json_is_false(json_object_get(d, "has_history")));
	ck_assert_int_eq(whole(json_object_get(moment(d, "end"), "memory"), "held_bytes"), 0x200000);
	json_decref(doc);
	struct cli_result r = cli_run("report", "s.pkl", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "holds a state and no"));
}
END_TEST

START_TEST(refusals)
{
	cli_text("l.csv", log_text);
	cli_assert_refused(cli_run("report", NULL), "TRACE");
	cli_assert_refused(cli_run("report", "absent.clv", NULL), "absent.clv");
	cli_assert_refused(cli_run("report", cli_text("x", "no trace\n"), NULL), "x:");
	cli_assert_refused(cli_run("report", "l.csv", "--timeline", NULL), "--json");
	cli_assert_refused(cli_run("report", "l.csv", "--top", "0", NULL), "--top");
	cli_assert_refused(cli_run("report", "l.csv", "--at", "noon", NULL),
			   "--at noon: seconds are written like 12.5s");
	cli_assert_refused(cli_run("report", "l.csv", "--at", "-1s", NULL), "--at");
	cli_assert_refused(cli_run("report", "l.csv", "--at", "1e999s", NULL), "--at");
	cli_assert_refused(cli_run("report", "l.csv", "--at", "99999999999999999999", NULL), "--at");
	cli_assert_refused(cli_run("report", "l.csv", "--at", "5", NULL), "4 events");
	cli_assert_refused(cli_run("report", "l.csv", "-o", "absent/r.html", NULL), "absent/r.html");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		goldens,      a_log,   a_table_for_people, names_with_control_characters, advice, ranks_side_by_side,
		a_state_only, refusals};
	return cli_suite("cli_report", tests, CLV_ARRAY_LEN(tests));
}
