/* SPDX-License-Identifier: MIT
 *
 * `cleave stress` as a program: usage, text, JSON and exit statuses. That it finds what is wrong is in test_stress.c.
 */
#include "cli_run.h"
#include "json_expect.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *document(struct cli_result r, int status)
{
	ck_assert_msg(r.status == status, "status %d: %s%s", r.status, r.out, r.err);
	ck_assert_str_eq(r.err, "");
	json_error_t error;
	json_t *doc = json_loads(r.out, JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(doc != NULL, "%s: %s", error.text, r.out);
	return doc;
}

/* The object has these members, each of its type (s, i, f, b, o, n for null, or several), and no other. */
static void assert_shape(const json_t *object, const char *const shape[][2], size_t count)
{
	ck_assert_uint_eq(json_object_size(object), count);
	for (size_t i = 0; i < count; i++) {
		const json_t *v = json_object_get(object, shape[i][0]);
		ck_assert_msg(v != NULL, "%s is missing", shape[i][0]);
		char type = json_is_string(v)    ? 's'
			    : json_is_integer(v) ? 'i'
			    : json_is_real(v)    ? 'f'
			    : json_is_boolean(v) ? 'b'
			    : json_is_null(v)    ? 'n'
						 : 'o';
		ck_assert_msg(strchr(shape[i][1], type) != NULL, "%s is %c", shape[i][0], type);
	}
}

START_TEST(usage)
{
	static const struct {
		const char *line, *part;
	} cases[] = {
		{"--ops 0", "out of range"},
		{"--ops x", "whole number"},
		{"--threads 0", "out of range"},
		{"--threads 65", "out of range"},
		{"--streams 0", "out of range"},
		{"--streams 1025", "out of range"},
		{"--capacity 15MiB", "16MiB"},
		{"--check most", "'most'"},
		{"--driver cuda --profile all", "--driver sim only"},
		{"--driver foo", "'foo'"},
		{"--settings nosuch:1 --ops 10", "nosuch"},
		{"--policy torch", "--profile"},
		{"--profile nosuch", "'nosuch'"},
		{"--profile pair --ops 5", "--profile goes with"},
		{"--profile pair --threads 1", "--profile goes with"},
		{"--profile pair --streams 8", "--profile goes with"},
		{"--profile pair --faults", "--profile goes with"},
		{"--profile pair --check full", "--profile goes with"},
		{"--profile pair --settings cache:off", "--profile goes with"},
		{"--profile pair --capacity 23GiB", "24GiB"},
		{"--profile pair --capacity 17TiB", "16TiB"},
		{"--profile pair --policy foo", "foo"},
		{"--profile pair --policy cleave --policy torch:nosuch:1", "nosuch"},
		{"x", "'x'"},
		{"--nosuch", "--nosuch"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char line[256];
		snprintf(line, sizeof(line), "\"$CLEAVE\" stress %s", cases[i].line);
		cli_assert_refused(cli_shell(line), cases[i].part);
		snprintf(line, sizeof(line), "\"$CLEAVE\" stress --json %s", cases[i].line);
		cli_assert_refused(cli_shell(line), cases[i].part);
	}
}
END_TEST

START_TEST(help)
{
	static const char *const parts[] = {"--ops",     "--seed",   "--threads", "--streams", "--capacity", "--faults",
					    "--check",   "--driver", "--json",    "--profile", "--settings", "--policy",
					    "\n  churn", "\n  pair", "\n  kv",    "\n  phases"};
	struct cli_result r = cli_run("help", "stress", NULL);
	ck_assert_int_eq(r.status, 0);
	for (size_t i = 0; i < CLV_ARRAY_LEN(parts); i++)
		ck_assert_msg(strstr(r.out, parts[i]) != NULL, "%s", parts[i]);
}
END_TEST

START_TEST(run_as_text)
{
	struct cli_result r = cli_run("stress", "--ops", "2000", "--capacity", "32MiB", "--seed", "7", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_str_eq(r.err, "");
	ck_assert_ptr_nonnull(strstr(r.out, "2000 operations in 1 round, seed 7, 1 thread, 8 streams: nothing wrong"));
	ck_assert_ptr_nonnull(strstr(r.out, "every byte"));
	ck_assert_ptr_null(strstr(r.out, "calls of the driver failed"));
	r = cli_run("stress", "--ops", "2000", "--capacity", "32MiB", "--threads", "2", "--faults", "--check",
		    "samples", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "2 threads"));
	ck_assert_ptr_nonnull(strstr(r.out, "at samples"));
	ck_assert_ptr_nonnull(strstr(r.out, "calls of the driver failed"));
}
END_TEST

START_TEST(run_as_json)
{
	static const char *const shape[][2] = {
		{"passed", "b"},
		{"ops", "i"},
		{"seed", "i"},
		{"threads", "i"},
		{"streams", "i"},
		{"capacity_bytes", "i"},
		{"every_byte", "b"},
		{"faults", "b"},
		{"settings", "sn"},
		{"rounds", "i"},
		{"faults_injected", "i"},
		{"peak_live_bytes", "i"},
		{"peak_held_bytes", "i"},
		{"bytes_written", "i"},
		{"bytes_checked", "i"},
		{"counts", "o"},
		{"digest", "sn"},
		{"wall_s", "f"},
		{"wrong", "on"},
	};
	struct cli_result r = cli_run("stress", "--ops", "2000", "--capacity", "32MiB", "--seed", "7", "--json", NULL);
	json_t *a = document(r, 0);
	assert_shape(a, shape, CLV_ARRAY_LEN(shape));
	ck_assert(json_is_true(json_object_get(a, "passed")));
	ck_assert(json_is_null(json_object_get(a, "wrong")));
	ck_assert(json_is_null(json_object_get(a, "settings")));
	ck_assert_int_eq(whole(a, "ops"), 2000);
	ck_assert_int_eq(whole(a, "seed"), 7);
	ck_assert_int_eq(whole(a, "capacity_bytes"), 32 << 20);
	ck_assert_int_gt(whole(json_object_get(a, "counts"), "allocs"), 0);
	ck_assert_int_gt(whole(json_object_get(a, "counts"), "books"), 0);
	/* the same again in another process */
	json_t *b =
		document(cli_run("stress", "--ops", "2000", "--capacity", "32MiB", "--seed", "7", "--json", NULL), 0);
	ck_assert_str_eq(json_string_value(json_object_get(a, "digest")),
			 json_string_value(json_object_get(b, "digest")));
	ck_assert(json_equal(json_object_get(a, "counts"), json_object_get(b, "counts")));
	json_decref(a);
	json_decref(b);
	/* with several threads no two runs are the same */
	a = document(cli_run("stress", "--ops", "500", "--capacity", "32MiB", "--threads", "2", "--json", NULL), 0);
	ck_assert(json_is_null(json_object_get(a, "digest")));
	json_decref(a);
}
END_TEST

START_TEST(profile_as_json)
{
	static const char *const shape[][2] = {
		{"name", "s"},           {"about", "s"},      {"seed", "i"},
		{"capacity_bytes", "i"}, {"events", "i"},     {"allocs", "i"},
		{"streams", "i"},        {"duration_s", "f"}, {"peak_live_bytes", "i"},
		{"end_live_bytes", "i"}, {"policies", "o"},
	};
	static const char *const row[][2] = {
		{"policy", "s"},
		{"completed", "b"},
		{"failed_at_event", "in"},
		{"peak_held_bytes", "i"},
		{"held_over_live", "f"},
		{"end_held_bytes", "in"},
		{"end_held_over_live", "fn"},
		{"stranded_peak_bytes", "i"},
		{"oom_retries", "i"},
		{"waits", "i"},
		{"driver_calls", "o"},
		{"modelled_driver_s", "f"},
		{"modelled_driver_us_per_request", "f"},
		{"wall_s", "f"},
	};
	json_t *doc = document(cli_run("stress", "--profile", "experts", "--capacity", "24GiB", "--json", NULL), 0);
	ck_assert_uint_eq(json_object_size(doc), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(doc, "profiles")), 1);
	const json_t *p = json_array_get(json_object_get(doc, "profiles"), 0);
	assert_shape(p, shape, CLV_ARRAY_LEN(shape));
	static const char *const policies[] = {"cleave", "torch", "torch:expandable_segments:True"};
	ck_assert_uint_eq(json_array_size(json_object_get(p, "policies")), CLV_ARRAY_LEN(policies));
	for (size_t i = 0; i < CLV_ARRAY_LEN(policies); i++) {
		const json_t *r = json_array_get(json_object_get(p, "policies"), i);
		assert_shape(r, row, CLV_ARRAY_LEN(row));
		ck_assert_str_eq(json_string_value(json_object_get(r, "policy")), policies[i]);
		bool completed = json_is_true(json_object_get(r, "completed"));
		ck_assert(completed == json_is_null(json_object_get(r, "failed_at_event")));
		ck_assert(completed == json_is_integer(json_object_get(r, "end_held_bytes")));
		ck_assert(i || completed);
		double live = (double)whole(p, "peak_live_bytes"),
		       over = json_real_value(json_object_get(r, "held_over_live"));
		ck_assert_double_eq_tol(over, (double)whole(r, "peak_held_bytes") / live, 1e-9);
		ck_assert(json_object_size(json_object_get(r, "driver_calls")) > 0);
	}
	json_decref(doc);
}
END_TEST

START_TEST(profile_as_text)
{
	struct cli_result r = cli_run("stress", "--profile", "pair", "--capacity", "24GiB", "-p", "cleave", "-p",
				      "direct", "--seed", "3", NULL);
	ck_assert_msg(r.status == 0, "%s%s", r.out, r.err);
	ck_assert_str_eq(r.err, "");
	ck_assert_ptr_eq(strstr(r.out, "pair: two sizes"), r.out);
	ck_assert_ptr_nonnull(strstr(r.out, "\n  cleave "));
	ck_assert_ptr_nonnull(strstr(r.out, "\n  direct "));
	ck_assert_ptr_null(strstr(r.out, "torch"));
}
END_TEST

/* 1 is of Cleave alone; what another policy cannot do is a result. */
START_TEST(profile_that_does_not_complete)
{
	struct cli_result r = cli_run("stress", "--profile", "experts", "-p", "torch", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "torch fails at request or free"));
	/* a limit of its own that the workload exceeds */
	r = cli_run("stress", "--profile", "experts", "-p", "cleave:limit:100GiB", NULL);
	ck_assert_int_eq(r.status, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "cleave:limit:100GiB fails at request or free"));
	json_t *doc =
		document(cli_run("stress", "--profile", "experts", "-p", "cleave:limit:100GiB", "--json", NULL), 1);
	json_decref(doc);
}
END_TEST

/* Memory that is unmapped while a thread works on it ends the process, but not without saying which seed it was. */
START_TEST(last_words)
{
#ifdef __SANITIZE_ADDRESS__
	return; /* the sanitizer has the signal */
#endif
	struct cli_result r =
		cli_shell("\"$CLEAVE\" stress --ops 100000000 --seed 77 --capacity 32MiB --check samples & sleep 0.5; "
			  "kill -SEGV $!; wait $!");
	ck_assert_int_eq(r.status, 1);
	unsigned seed;
	ck_assert_msg(sscanf(r.out, "WRONG: seed %u: memory vanished", &seed) == 1, "%s", r.out);
	ck_assert_uint_ge(seed, 77);
}
END_TEST

/* A machine with a GPU is made one without. */
START_TEST(without_a_gpu)
{
	cli_assert_refused(cli_shell("CUDA_VISIBLE_DEVICES=-1 \"$CLEAVE\" stress --driver cuda --ops 10"),
			   "--driver cuda: ");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {usage,
				      help,
				      run_as_text,
				      run_as_json,
				      profile_as_json,
				      profile_as_text,
				      profile_that_does_not_complete,
				      last_words,
				      without_a_gpu};
	return cli_suite("cli_stress", tests, CLV_ARRAY_LEN(tests));
}
