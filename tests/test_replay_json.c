/* SPDX-License-Identifier: MIT
 *
 * The JSON of `cleave replay` is a contract: every key, its type and its place are written down here once more.
 */
#include "../tracing/replay/replay_json.h"
#include "check_main.h"
#include "json_expect.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static struct clv_trace trace = {.file = (char *)"a.pkl", .format = CLV_FORMAT_RMM, .history_count = 4};
static struct clv_history history = {.device = 2,
				     .event_count = 1000,
				     .alloc_count = 400,
				     .stream_count = 3,
				     .oom_count = 5,
				     .peak_live_bytes = 1000 * CLV_MIB,
				     .duration_s = 1.5};

static struct clv_replay_row row(void)
{
	struct clv_replay_row r = {.policy = "torch:recorded", .result = {.completed = true}};
	r.result.stats = (struct clv_policy_stats){
		.peak_reserved_bytes = 1030 * CLV_MIB, .stranded_peak_bytes = 7, .oom_retries = 8, .waits = 9};
	r.result.stats.driver.calls[CLV_CALL_create] = 11;
	r.result.stats.driver.calls[CLV_CALL_set_access] = 12;
	r.result.stats.driver.ns = 2500000000u;
	r.result.skipped_ooms = 4;
	r.result.wall_s = 0.5;
	r.result.events = 900;
	return r;
}

static char *written(const struct clv_replay_row *rows, size_t count, const struct clv_verify_result *verify)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct clv_error err = {{0}};
	const struct clv_replay_report report = {
		.trace = &trace, .history = &history, .rows = rows, .row_count = count, .verify = verify};
	ck_assert_msg(clv_replay_json_write(&report, f, &err), "%s", err.text);
	fclose(f);
	ck_assert_int_eq(text[len - 1], '\n');
	return text;
}

static json_t *parsed(const struct clv_replay_row *rows, size_t count, const struct clv_verify_result *verify)
{
	char *text = written(rows, count, verify);
	json_error_t error;
	json_t *doc = json_loads(text, 0, &error);
	ck_assert_msg(doc != NULL, "%s: %s", error.text, text);
	free(text);
	return doc;
}

/* "key key key" in the order of the document */
static void assert_keys(const json_t *object, const char *expected)
{
	char keys[1024] = "";
	const char *key;
	json_t *value;
	ck_assert(json_is_object(object));
	json_object_foreach((json_t *)object, key, value)
	{
		if (keys[0])
			strcat(keys, " ");
		strcat(keys, key);
	}
	ck_assert_str_eq(keys, expected);
}

static void assert_null(const json_t *object, const char *key)
{
	ck_assert_msg(json_is_null(json_object_get(object, key)), "%s is not null", key);
}

#define TRACE_KEYS "file format device devices events allocs streams duration_s peak_live_bytes recorded_ooms"
#define POLICY_KEYS                                                                                                    \
	"policy completed failed_at_event peak_reserved_bytes reserved_over_live stranded_peak_bytes oom_retries "     \
	"skipped_ooms waits driver_calls modelled_driver_s wall_s events_per_s fit_bytes fit_over_live fit_monotone"
#define VERIFY_KEYS "allocs address_mismatches segment_events segment_mismatches first_mismatch inferred"

START_TEST(every_key_in_its_place)
{
	struct clv_replay_row rows[2] = {row(), row()};
	rows[1].policy = "cleave";
	json_t *doc = parsed(rows, 2, NULL);
	assert_keys(doc, "trace policies verify");
	assert_null(doc, "verify");

	const json_t *t = json_object_get(doc, "trace");
	assert_keys(t, TRACE_KEYS);
	ck_assert_str_eq(json_string_value(json_object_get(t, "file")), "a.pkl");
	ck_assert_str_eq(json_string_value(json_object_get(t, "format")), "rmm");
	ck_assert_int_eq(whole(t, "device"), 2);
	ck_assert_int_eq(whole(t, "devices"), 4);
	ck_assert_int_eq(whole(t, "events"), 1000);
	ck_assert_int_eq(whole(t, "allocs"), 400);
	ck_assert_int_eq(whole(t, "streams"), 3);
	ck_assert(real(t, "duration_s") == 1.5);
	ck_assert_int_eq(whole(t, "peak_live_bytes"), 1000 * CLV_MIB);
	ck_assert_int_eq(whole(t, "recorded_ooms"), 5);

	const json_t *policies = json_object_get(doc, "policies");
	ck_assert_uint_eq(json_array_size(policies), 2);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(policies, 1), "policy")), "cleave");
	const json_t *p = json_array_get(policies, 0);
	assert_keys(p, POLICY_KEYS);
	ck_assert_str_eq(json_string_value(json_object_get(p, "policy")), "torch:recorded");
	ck_assert(json_is_true(json_object_get(p, "completed")));
	assert_null(p, "failed_at_event");
	ck_assert_int_eq(whole(p, "peak_reserved_bytes"), 1030 * CLV_MIB);
	ck_assert(real(p, "reserved_over_live") == 1.03);
	ck_assert_int_eq(whole(p, "stranded_peak_bytes"), 7);
	ck_assert_int_eq(whole(p, "oom_retries"), 8);
	ck_assert_int_eq(whole(p, "skipped_ooms"), 4);
	ck_assert_int_eq(whole(p, "waits"), 9);
	const json_t *calls = json_object_get(p, "driver_calls");
	assert_keys(calls, "cuMemCreate cuMemSetAccess"); /* those that were made, and no others */
	ck_assert_int_eq(whole(calls, "cuMemCreate"), 11);
	ck_assert_int_eq(whole(calls, "cuMemSetAccess"), 12);
	ck_assert(real(p, "modelled_driver_s") == 2.5);
	ck_assert(real(p, "wall_s") == 0.5);
	ck_assert(real(p, "events_per_s") == 1800);
	assert_null(p, "fit_bytes");
	assert_null(p, "fit_over_live");
	assert_null(p, "fit_monotone");
	json_decref(doc);
}
END_TEST

/* Only where a search was made is there something to be proved. */
START_TEST(proofs)
{
	struct clv_replay_row rows[2] = {row(), row()};
	rows[0].result.stats.searched = rows[1].result.stats.searched = true;
	rows[1].result.stats.proved = true;
	json_t *doc = parsed(rows, 2, NULL);
	for (size_t i = 0; i < 2; i++) {
		const json_t *p = json_array_get(json_object_get(doc, "policies"), i);
		assert_keys(p, POLICY_KEYS " proved");
		ck_assert(json_is_boolean(json_object_get(p, "proved")));
		ck_assert_int_eq(json_is_true(json_object_get(p, "proved")), i == 1);
	}
	json_decref(doc);
}
END_TEST

START_TEST(a_replay_that_failed)
{
	struct clv_replay_row r = row();
	r.result.completed = false;
	r.result.failed_at_event = 0;
	json_t *doc = parsed(&r, 1, NULL);
	const json_t *p = json_array_get(json_object_get(doc, "policies"), 0);
	assert_keys(p, POLICY_KEYS);
	ck_assert(json_is_false(json_object_get(p, "completed")));
	ck_assert_int_eq(whole(p, "failed_at_event"), 0);
	json_decref(doc);
}
END_TEST

START_TEST(fits)
{
	struct clv_replay_row rows[3] = {row(), row(), row()};
	rows[0].fitted = rows[1].fitted = rows[2].fitted = true;
	rows[0].fit = (struct clv_fit_result){.found = true, .fit_bytes = 1100 * CLV_MIB, .monotone = true};
	rows[1].fit = (struct clv_fit_result){.found = true, .fit_bytes = 1000 * CLV_MIB, .monotone = false};
	json_t *doc = parsed(rows, 3, NULL);
	const json_t *policies = json_object_get(doc, "policies");
	const json_t *p = json_array_get(policies, 0);
	assert_keys(p, POLICY_KEYS);
	ck_assert_int_eq(whole(p, "fit_bytes"), 1100 * CLV_MIB);
	ck_assert(real(p, "fit_over_live") == 1.1);
	ck_assert(json_is_true(json_object_get(p, "fit_monotone")));
	p = json_array_get(policies, 1);
	ck_assert(real(p, "fit_over_live") == 1.0);
	ck_assert(json_is_false(json_object_get(p, "fit_monotone")));
	p = json_array_get(policies, 2); /* asked for, and there is none */
	assert_null(p, "fit_bytes");
	assert_null(p, "fit_over_live");
	assert_null(p, "fit_monotone");
	json_decref(doc);
}
END_TEST

START_TEST(verifications)
{
	struct clv_verify_result v = {.allocs = 10, .segment_events = 20, .final_state_matches = true};
	v.inferred[CLV_INFERRED_EMPTY_CACHE] = 3;
	struct clv_replay_row r = row();
	json_t *doc = parsed(&r, 1, &v);
	const json_t *j = json_object_get(doc, "verify");
	assert_keys(j, VERIFY_KEYS);
	ck_assert_int_eq(whole(j, "allocs"), 10);
	ck_assert_int_eq(whole(j, "address_mismatches"), 0);
	ck_assert_int_eq(whole(j, "segment_events"), 20);
	ck_assert_int_eq(whole(j, "segment_mismatches"), 0);
	assert_null(j, "first_mismatch");
	const json_t *inferred = json_object_get(j, "inferred");
	char kinds[512] = "";
	for (int i = 0; i < CLV_INFERRED_COUNT; i++) {
		strcat(kinds, i ? " " : "");
		strcat(kinds, clv_inferred_name(i));
	}
	assert_keys(inferred, kinds); /* zeros too */
	ck_assert_int_eq(whole(inferred, "empty_cache"), 3);
	ck_assert_int_eq(whole(inferred, "pool_on_oom"), 0);
	ck_assert(clv_verify_matches(&v));
	json_decref(doc);

	v.address_mismatches = 2;
	v.segment_mismatches = 1;
	v.first_mismatch.set = true;
	v.first_mismatch.event = 77;
	snprintf(v.first_mismatch.text, sizeof(v.first_mismatch.text), "expected 0x200, got 0x400");
	doc = parsed(&r, 1, &v);
	j = json_object_get(doc, "verify");
	ck_assert_int_eq(whole(j, "address_mismatches"), 2);
	ck_assert_int_eq(whole(j, "segment_mismatches"), 1);
	ck_assert_str_eq(json_string_value(json_object_get(j, "first_mismatch")),
			 "event 77: expected 0x200, got 0x400");
	ck_assert(!clv_verify_matches(&v));
	json_decref(doc);
}
END_TEST

START_TEST(any_mismatch_counts_and_is_told)
{
	const struct clv_verify_result good = {.final_state_matches = true};
	struct clv_verify_result bad[5] = {good, good, good, good, good};
	bad[0].address_mismatches = 1;
	bad[1].segment_mismatches = 1;
	bad[2].oom_mismatches = 1;
	bad[3].final_state_matches = false;
	bad[4].first_mismatch.set = true;
	ck_assert(clv_verify_matches(&good));
	struct clv_replay_row r = row();
	for (size_t i = 0; i < CLV_ARRAY_LEN(bad); i++) {
		ck_assert(!clv_verify_matches(&bad[i]));
		json_t *doc = parsed(&r, 1, &bad[i]);
		const json_t *first = json_object_get(json_object_get(doc, "verify"), "first_mismatch");
		if (i >= 2) /* what no counter of the document shows */
			ck_assert(json_is_string(first));
		json_decref(doc);
	}
}
END_TEST

START_TEST(numbers_that_make_no_sense_are_null)
{
	struct clv_replay_row r = row();
	r.fitted = true;
	r.fit = (struct clv_fit_result){.found = true, .fit_bytes = 2 * CLV_MIB, .monotone = true};
	r.result.wall_s = 0;
	uint64_t live = history.peak_live_bytes;
	history.peak_live_bytes = 0;
	json_t *doc = parsed(&r, 1, NULL);
	const json_t *p = json_array_get(json_object_get(doc, "policies"), 0);
	assert_null(p, "reserved_over_live");
	assert_null(p, "fit_over_live");
	assert_null(p, "events_per_s");
	ck_assert_int_eq(whole(p, "fit_bytes"), 2 * CLV_MIB);
	json_decref(doc);
	history.peak_live_bytes = UINT64_MAX; /* more than JSON readers hold */
	doc = parsed(&r, 1, NULL);
	ck_assert(whole(json_object_get(doc, "trace"), "peak_live_bytes") == INT64_MAX);
	json_decref(doc);
	history.peak_live_bytes = live;
}
END_TEST

START_TEST(any_bytes_in_names_give_valid_json)
{
	static const struct {
		const char *bytes, *text;
	} names[] = {
		{"a\"b\\c\n\x01", "a\"b\\c\n\x01"},
		{"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
		 "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
		{"\xff"
		 "a",
		 "\xef\xbf\xbd"
		 "a"},
		{"a\xc3", "a\xef\xbf\xbd"},                                               /* cut off */
		{"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                                 /* too long a form */
		{"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                 /* a surrogate */
		{"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* beyond Unicode */
		{"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
		{"\xf0\x80\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
		{"", ""},
	};
	char *file = trace.file;
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++) {
		struct clv_replay_row r = row();
		trace.file = (char *)names[i].bytes;
		r.policy = names[i].bytes;
		json_t *doc = parsed(&r, 1, NULL);
		ck_assert_str_eq(json_string_value(json_object_get(json_object_get(doc, "trace"), "file")),
				 names[i].text);
		const json_t *p = json_array_get(json_object_get(doc, "policies"), 0);
		ck_assert_str_eq(json_string_value(json_object_get(p, "policy")), names[i].text);
		json_decref(doc);
	}
	trace.file = file;
}
END_TEST

START_TEST(a_stream_that_refuses)
{
	FILE *full = fopen("/dev/full", "w");
	if (!full)
		return; /* no such device here */
	setvbuf(full, NULL, _IONBF, 0);
	struct clv_replay_row r = row();
	struct clv_error err = {{0}};
	const struct clv_replay_report report = {.trace = &trace, .history = &history, .rows = &r, .row_count = 1};
	ck_assert(!clv_replay_json_write(&report, full, &err));
	ck_assert_str_ne(err.text, "");
	fclose(full);
}
END_TEST

static long allocations_left;

static void *failing_malloc(size_t size)
{
	return allocations_left-- > 0 ? malloc(size) : NULL;
}

/* Every allocation fails once: an error, no crash, and (under the address sanitizer) no leak. */
START_TEST(host_memory_runs_out)
{
	struct clv_replay_row rows[2] = {row(), row()};
	struct clv_verify_result v = {.final_state_matches = true};
	const struct clv_replay_report report = {
		.trace = &trace, .history = &history, .rows = rows, .row_count = 2, .verify = &v};
	json_set_alloc_funcs(failing_malloc, free);
	long n = 0;
	for (bool done = false; !done; n++) {
		char *text = NULL;
		size_t len = 0;
		FILE *f = open_memstream(&text, &len);
		struct clv_error err = {{0}};
		allocations_left = n;
		done = clv_replay_json_write(&report, f, &err);
		ck_assert(done || err.text[0]);
		fclose(f);
		free(text);
	}
	json_set_alloc_funcs(malloc, free);
	ck_assert_int_gt(n, 100);
}
END_TEST

CHECK_MAIN("replay_json", every_key_in_its_place, proofs, a_replay_that_failed, fits, verifications,
	   any_mismatch_counts_and_is_told, numbers_that_make_no_sense_are_null, any_bytes_in_names_give_valid_json,
	   a_stream_that_refuses, host_memory_runs_out)
