/* SPDX-License-Identifier: MIT
 *
 * `cleave replay` as a program: its JSON, its exit statuses and what it says to people, on files that the tests
 * write, and on the recordings in tests/data.
 */
#include "cli_run.h"
#include "pickle_maker.h"
#include "json_expect.h"

#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Peak live: 5 MiB + 1,024 B, after event 4; the policy direct then holds one frame of 2 MiB and one of 6. */
static const char csv[] = "Thread,Time,Action,Pointer,Size,Stream\n"
			  "1,10:00:00.000000,allocate,0x1000000,3145728,0x0\n"
			  "1,10:00:00.100000,allocate,0x2000000,1000,0x77\n"
			  "1,10:00:00.200000,allocate failure,(nil),1073741824,0x0\n"
			  "1,10:00:00.300000,free,0x1000000,3145728,0x0\n"
			  "1,10:00:00.400000,allocate,0x3000000,5242880,0x0\n"
			  "1,10:00:01.500000,free,0x3000000,5242880,0x0\n";
#define LIVE (5 * CLV_MIB + 1024)

/* The document of a run that must end with `status`. */
static json_t *document(struct cli_result r, int status)
{
	ck_assert_msg(r.status == status, "status %d: %s%s", r.status, r.err, r.out);
	json_error_t error;
	json_t *doc = json_loads(r.out, JSON_REJECT_DUPLICATES, &error); /* the whole of stdout is one document */
	ck_assert_msg(doc != NULL, "%s: %s", error.text, r.out);
	return doc;
}

static json_t *at(const json_t *doc, const char *list, size_t i)
{
	json_t *v = json_array_get(json_object_get(doc, list), i);
	ck_assert_msg(v != NULL, "no %s[%zu]", list, i);
	return v;
}

static const char *string(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));
	ck_assert_msg(s != NULL, "%s is no text", key);
	return s;
}

static bool is_null(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);
	ck_assert_msg(v != NULL, "no %s", key);
	return json_is_null(v);
}

static json_t *policy_named(const json_t *doc, const char *name)
{
	size_t i;
	json_t *p;
	json_array_foreach(json_object_get(doc, "policies"), i, p) if (strcmp(string(p, "policy"), name) == 0) return p;
	ck_abort_msg("no policy %s", name);
	return NULL;
}

/* The contract: keys in their order, each with its types ('s' text, 'i' whole, 'f' real, 'b' bool, 'o' object, 'n'
 * null). */
static void assert_shape(const json_t *object, const char *const shape[][2], size_t count)
{
	const char *key;
	json_t *v;
	size_t i = 0;
	ck_assert(json_is_object(object));
	json_object_foreach((json_t *)object, key, v)
	{
		ck_assert_uint_lt(i, count);
		ck_assert_str_eq(key, shape[i][0]);
		char type = json_is_string(v)    ? 's'
			    : json_is_integer(v) ? 'i'
			    : json_is_real(v)    ? 'f'
			    : json_is_boolean(v) ? 'b'
			    : json_is_object(v)  ? 'o'
			    : json_is_null(v)    ? 'n'
						 : '?';
		ck_assert_msg(strchr(shape[i][1], type) != NULL, "%s has type %c", key, type);
		i++;
	}
	ck_assert_uint_eq(i, count);
}

/* Takes out what this policy has beyond the others. */
static bool proved_of(json_t *policy)
{
	const json_t *proved = json_object_get(policy, "proved");
	ck_assert(json_is_boolean(proved));
	bool is = json_is_true(proved);
	json_object_del(policy, "proved");
	return is;
}

static void assert_contract(const json_t *doc, size_t policies)
{
	static const char *const top[][2] = {{"trace", "o"}, {"policies", "?"}, {"verify", "on"}};
	static const char *const trace[][2] = {{"file", "s"},         {"format", "s"},     {"device", "i"},
					       {"devices", "i"},      {"events", "i"},     {"allocs", "i"},
					       {"streams", "i"},      {"duration_s", "f"}, {"peak_live_bytes", "i"},
					       {"recorded_ooms", "i"}};
	static const char *const policy[][2] = {{"policy", "s"},
						{"completed", "b"},
						{"failed_at_event", "in"},
						{"peak_reserved_bytes", "i"},
						{"reserved_over_live", "fn"},
						{"stranded_peak_bytes", "i"},
						{"oom_retries", "i"},
						{"skipped_ooms", "i"},
						{"waits", "i"},
						{"driver_calls", "o"},
						{"modelled_driver_s", "f"},
						{"wall_s", "f"},
						{"events_per_s", "fn"},
						{"fit_bytes", "in"},
						{"fit_over_live", "fn"},
						{"fit_monotone", "bn"}};
	static const char *const verify[][2] = {{"allocs", "i"},          {"address_mismatches", "i"},
						{"segment_events", "i"},  {"segment_mismatches", "i"},
						{"first_mismatch", "sn"}, {"inferred", "o"}};
	assert_shape(doc, top, CLV_ARRAY_LEN(top));
	assert_shape(json_object_get(doc, "trace"), trace, CLV_ARRAY_LEN(trace));
	ck_assert_uint_eq(json_array_size(json_object_get(doc, "policies")), policies);
	size_t i;
	json_t *p, *count;
	const char *name;
	json_array_foreach(json_object_get(doc, "policies"), i, p)
	{
		assert_shape(p, policy, CLV_ARRAY_LEN(policy));
		ck_assert(is_null(p, "failed_at_event") == json_is_true(json_object_get(p, "completed")));
		json_object_foreach(json_object_get(p, "driver_calls"), name, count)
		{
			ck_assert_int_eq(strncmp(name, "cu", 2), 0);
			ck_assert_int_gt(json_integer_value(count), 0);
		}
	}
	if (!is_null(doc, "verify"))
		assert_shape(json_object_get(doc, "verify"), verify, CLV_ARRAY_LEN(verify));
}

START_TEST(direct_to_the_byte)
{
	cli_text("t.csv", csv);
	json_t *doc = document(cli_run("replay", "t.csv", "--policy", "direct", "--json", NULL), 0);
	assert_contract(doc, 1);
	ck_assert(is_null(doc, "verify"));
	const json_t *t = json_object_get(doc, "trace");
	ck_assert_str_eq(string(t, "file"), "t.csv");
	ck_assert_str_eq(string(t, "format"), "rmm");
	ck_assert_int_eq(whole(t, "device"), 0);
	ck_assert_int_eq(whole(t, "devices"), 1);
	ck_assert_int_eq(whole(t, "events"), 6);
	ck_assert_int_eq(whole(t, "allocs"), 3);
	ck_assert_int_eq(whole(t, "streams"), 2);
	ck_assert(real(t, "duration_s") == 1.5);
	ck_assert_int_eq(whole(t, "peak_live_bytes"), LIVE);
	ck_assert_int_eq(whole(t, "recorded_ooms"), 1);
	const json_t *p = at(doc, "policies", 0);
	ck_assert_str_eq(string(p, "policy"), "direct");
	ck_assert(json_is_true(json_object_get(p, "completed")));
	ck_assert_int_eq(whole(p, "peak_reserved_bytes"), 8 * CLV_MIB);
	ck_assert(real(p, "reserved_over_live") > 1.599 && real(p, "reserved_over_live") < 1.6);
	ck_assert_int_eq(whole(p, "stranded_peak_bytes"), 0);
	ck_assert_int_eq(whole(p, "skipped_ooms"), 1);
	const json_t *calls = json_object_get(p, "driver_calls");
	ck_assert_int_eq(whole(calls, "cuMemCreate"), 3);
	ck_assert_int_eq(whole(calls, "cuMemMap"), 3);
	ck_assert_int_eq(whole(calls, "cuMemSetAccess"), 3);
	ck_assert_int_eq(whole(calls, "cuMemUnmap"), 2);
	ck_assert_int_eq(whole(calls, "cuMemRelease"), 2);
	ck_assert_uint_eq(json_object_size(calls), 6); /* and cuMemAddressReserve */
	ck_assert(real(p, "modelled_driver_s") > 0);
	ck_assert(is_null(p, "fit_bytes"));
	json_decref(doc);
}
END_TEST

/* The second block lies above the place of the third, as if it had been known. */
START_TEST(packed_to_the_byte)
{
	cli_text("t.csv", csv);
	json_t *doc = document(cli_run("replay", "t.csv", "--policy", "packed", "--fit", "--json", NULL), 0);
	json_t *p = at(doc, "policies", 0);
	ck_assert(proved_of(p));
	assert_contract(doc, 1);
	ck_assert_str_eq(string(p, "policy"), "packed");
	ck_assert_int_eq(whole(p, "peak_reserved_bytes"), LIVE);
	ck_assert_double_eq(real(p, "reserved_over_live"), 1);
	ck_assert_int_eq(whole(p, "stranded_peak_bytes"), 0);
	ck_assert_int_eq(whole(p, "skipped_ooms"), 1);
	ck_assert_uint_eq(json_object_size(json_object_get(p, "driver_calls")), 0);
	ck_assert_int_eq(whole(p, "fit_bytes"), 6 * CLV_MIB);
	json_decref(doc);
	doc = document(cli_run("replay", "t.csv", "-p", "packed", "--capacity", "5MiB", "--json", NULL), 1);
	ck_assert(proved_of(at(doc, "policies", 0)));
	assert_contract(doc, 1);
	json_decref(doc);
	struct cli_result r = cli_run("replay", "t.csv", "-p", "packed", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "\npacked is proved: there is no packing below 5.0 MiB.\n"));
}
END_TEST

START_TEST(capacity_and_failure)
{
	cli_text("t.csv", csv);
	json_t *doc = document(cli_run("replay", "t.csv", "-p", "direct", "--capacity", "8MiB", "--json", NULL), 0);
	json_decref(doc);
	struct cli_result r = cli_run("replay", "--capacity=8388607", "--json", "-p", "direct", "t.csv", NULL);
	doc = document(r, 1);
	ck_assert_str_eq(r.err, "");
	assert_contract(doc, 1);
	const json_t *p = at(doc, "policies", 0);
	ck_assert(json_is_false(json_object_get(p, "completed")));
	ck_assert_int_eq(whole(p, "failed_at_event"), 4);
	ck_assert_int_eq(whole(p, "peak_reserved_bytes"), 6 * CLV_MIB);
	json_decref(doc);
	/* one policy that fails is enough, wherever it stands: 10 MiB are 20 MiB in frames of their own */
	char many[2048] = "Thread,Time,Action,Pointer,Size,Stream\n";
	for (int i = 0; i < 10; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many),
			 "1,10:00:00.00000%d,allocate,0x%d00000,1048576,0x0\n", i, i + 1);
	cli_text("many.csv", many);
	r = cli_run("replay", "many.csv", "--capacity", "16MiB", "-p", "direct", "-p", "cleave", "--json", NULL);
	doc = document(r, 1);
	ck_assert(json_is_false(json_object_get(at(doc, "policies", 0), "completed")));
	ck_assert_int_eq(whole(at(doc, "policies", 0), "failed_at_event"), 8);
	ck_assert(json_is_true(json_object_get(at(doc, "policies", 1), "completed")));
	json_decref(doc);
}
END_TEST

START_TEST(fit)
{
	cli_text("t.csv", csv);
	json_t *doc = document(cli_run("replay", "t.csv", "-p", "direct", "-p", "cleave", "--fit", "--json", NULL), 0);
	assert_contract(doc, 2);
	const json_t *p = at(doc, "policies", 0);
	ck_assert_int_eq(whole(p, "fit_bytes"), 8 * CLV_MIB);
	ck_assert(real(p, "fit_over_live") > 1.599 && real(p, "fit_over_live") < 1.6);
	ck_assert(json_is_true(json_object_get(p, "fit_monotone")));
	p = at(doc, "policies", 1);
	/* on the grid of 2 MiB nothing is nearer to 5 MiB + 1,024 B than 6 MiB */
	ck_assert_int_ge(whole(p, "fit_bytes"), 6 * CLV_MIB);
	ck_assert_int_le(whole(p, "fit_bytes"), 8 * CLV_MIB);
	ck_assert_int_eq(whole(p, "fit_bytes") % (2 * CLV_MIB), 0);
	json_decref(doc);
	/* a capacity that is too small for the replay does not matter to the fit */
	doc = document(cli_run("replay", "t.csv", "-p", "direct", "--fit", "--capacity", "4MiB", "--json", NULL), 1);
	p = at(doc, "policies", 0);
	ck_assert(json_is_false(json_object_get(p, "completed")));
	ck_assert_int_eq(whole(p, "fit_bytes"), 8 * CLV_MIB);
	json_decref(doc);
}
END_TEST

START_TEST(fit_of_the_smallest_traces)
{
	static const char *const traces[] = {
		"Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000000,allocate,0x1000,1,0x0\n",
		"Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000000,allocate failure,(nil),1000,0x0\n",
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(traces); i++) {
		cli_text("t.csv", traces[i]);
		json_t *doc = document(cli_run("replay", "t.csv", "-p", "direct", "-p", "cleave", "-p", "torch",
					       "--fit", "--json", NULL),
				       0);
		assert_contract(doc, 3);
		ck_assert_int_eq(whole(at(doc, "policies", 0), "fit_bytes"), 2 * CLV_MIB);
		ck_assert_int_eq(whole(at(doc, "policies", 1), "fit_bytes"), 2 * CLV_MIB);
		ck_assert_int_eq(whole(at(doc, "policies", 2), "fit_bytes"), 2 * CLV_MIB);
		ck_assert(is_null(at(doc, "policies", 0), "reserved_over_live") == (i == 1));
		json_decref(doc);
	}
}
END_TEST

START_TEST(policies_in_the_order_asked_for)
{
	cli_text("t.csv", csv);
	json_t *doc = document(cli_run("replay", "t.csv", "--json", "-p", "direct", "-p", "torch:max_split_size_mb:64",
				       "-p", "cleave", "-p", "direct", NULL),
			       0);
	assert_contract(doc, 4);
	ck_assert_str_eq(string(at(doc, "policies", 0), "policy"), "direct");
	ck_assert_str_eq(string(at(doc, "policies", 1), "policy"), "torch:max_split_size_mb:64");
	ck_assert_str_eq(string(at(doc, "policies", 2), "policy"), "cleave");
	ck_assert_str_eq(string(at(doc, "policies", 3), "policy"), "direct");
	/* 20 MiB for 3 and 5 MiB, and 2 MiB for 1,000 B on the other stream */
	ck_assert_int_eq(whole(at(doc, "policies", 1), "peak_reserved_bytes"), 22 * CLV_MIB);
	json_decref(doc);
	doc = document(cli_run("replay", "t.csv", "--json", NULL), 0); /* no settings in the file */
	assert_contract(doc, 1);
	ck_assert_str_eq(string(at(doc, "policies", 0), "policy"), "cleave");
	json_decref(doc);
}
END_TEST

/* What is measured on the host differs from run to run, and nothing else. */
START_TEST(the_same_each_time)
{
	cli_text("t.csv", csv);
	json_t *docs[2];
	for (int i = 0; i < 2; i++) {
		docs[i] = document(cli_run("replay", "t.csv", "-p", "direct", "-p", "cleave", "-p", "torch", "--fit",
					   "--json", NULL),
				   0);
		size_t k;
		json_t *p;
		json_array_foreach(json_object_get(docs[i], "policies"), k, p)
		{
			json_object_del(p, "wall_s");
			json_object_del(p, "events_per_s");
		}
	}
	ck_assert(json_equal(docs[0], docs[1]));
	json_decref(docs[0]);
	json_decref(docs[1]);
}
END_TEST

/* 20 MiB freed on one stream are asked for on another 500 us later, on a device that has no more. */
START_TEST(event_lag)
{
	cli_text("t.csv", "Thread,Time,Action,Pointer,Size,Stream\n"
			  "1,10:00:00.000000,allocate,0x1000000,20971520,0x1\n"
			  "1,10:00:00.000100,free,0x1000000,20971520,0x1\n"
			  "1,10:00:00.000600,allocate,0x3000000,20971520,0x2\n");
	static const struct {
		const char *lag;
		int waits;
	} cases[] = {{NULL, 1}, {"1000", 1}, {"501", 1}, {"500", 0}, {"0", 0}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		json_t *doc = document(cli_run("replay", "t.csv", "-p", "cleave", "--capacity", "20MiB", "--json",
					       cases[i].lag ? "--event-lag" : NULL, cases[i].lag, NULL),
				       0);
		ck_assert_msg(whole(at(doc, "policies", 0), "waits") == cases[i].waits, "lag %s: %d waits",
			      cases[i].lag, (int)whole(at(doc, "policies", 0), "waits"));
		json_decref(doc);
	}
}
END_TEST

START_TEST(text_for_people)
{
	cli_text("t.csv", csv);
	struct cli_result r = cli_run("replay", "t.csv", "-p", "direct", "-p", "cleave", "--fit", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_str_eq(r.err, "");
	static const char *const parts[] = {"t.csv",     "rmm",   "device 0",         "6 events", "3 allocations",
					    "2 streams", "1.5 s", "5.0 MiB",          "direct",   "cleave",
					    "8.0 MiB",   "1.600", "skipped 1 request"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(parts); i++)
		ck_assert_msg(strstr(r.out, parts[i]) != NULL, "'%s' is not in: %s", parts[i], r.out);
	ck_assert_ptr_null(strstr(r.out, "does not complete"));
	/* the lines of the table are equally long */
	const char *head = strstr(r.out, "policy  ");
	ck_assert_ptr_nonnull(head);
	size_t len = strcspn(head, "\n");
	ck_assert_uint_eq(strcspn(head + len + 1, "\n"), len);
	ck_assert_uint_eq(strcspn(head + 2 * (len + 1), "\n"), len);

	r = cli_run("replay", "t.csv", "-p", "direct", "--capacity", "7MiB", NULL);
	ck_assert_int_eq(r.status, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "direct does not complete: event 4: "));
	ck_assert_ptr_nonnull(strstr(r.out, "7.0 MiB"));
}
END_TEST

#define A ((uint64_t)0x7f0000000000)

/* A device's history that PyTorch's allocator gives: 1,000 B at the start of a segment of 2 MiB. */
static void small_history(struct pickle *p, uint64_t segment, uint64_t block)
{
	list_begin(p);
	pickle_event(p, "segment_alloc", segment, 2 * CLV_MIB, 1000);
	pickle_event(p, "alloc", block, 1000, 1001);
	pickle_event(p, "free_requested", block, 1000, 1002);
	pickle_event(p, "free_completed", block, 1000, 1003);
	list_end(p);
}

/* Device 0 has nothing, device 2 a state without history; 1 and 3 have both. Device 3's address is not what PyTorch
 * gives. */
static const char *some_devices(const char *name, bool with_settings)
{
	static struct pickle p;
	pickle_begin(&p);
	pickle_text(&p, "segments");
	list_begin(&p);
	pickle_segment(&p, 1, A, 2 * CLV_MIB, "small");
	pickle_segment(&p, 2, A, 20 * CLV_MIB, "large");
	pickle_segment(&p, 3, A, 2 * CLV_MIB, "small");
	list_end(&p);
	pickle_text(&p, "device_traces");
	list_begin(&p);
	list_begin(&p);
	list_end(&p);
	small_history(&p, A, A);
	list_begin(&p);
	list_end(&p);
	small_history(&p, A, A + 512);
	list_end(&p);
	if (with_settings)
		pickle_settings(&p, "max_split_size_mb:32", 32 * CLV_MIB);
	pickle_end(&p);
	return cli_file(name, p.data, p.size);
}

START_TEST(several_devices)
{
	const char *f = some_devices("some.pkl", true);
	json_t *doc = document(cli_run("replay", f, "--json", NULL), 0);
	assert_contract(doc, 2); /* the file has settings */
	ck_assert_str_eq(string(at(doc, "policies", 0), "policy"), "torch:recorded");
	ck_assert_str_eq(string(at(doc, "policies", 1), "policy"), "cleave");
	const json_t *t = json_object_get(doc, "trace");
	ck_assert_str_eq(string(t, "format"), "torch");
	ck_assert_int_eq(whole(t, "device"), 1);  /* the first that has a history */
	ck_assert_int_eq(whole(t, "devices"), 3); /* those that the file says something of */
	ck_assert_int_eq(whole(t, "events"), 4);
	ck_assert_int_eq(whole(t, "allocs"), 1);
	ck_assert_int_eq(whole(t, "peak_live_bytes"), 1024);
	ck_assert_int_eq(whole(at(doc, "policies", 0), "peak_reserved_bytes"), 2 * CLV_MIB);
	json_decref(doc);

	doc = document(cli_run("replay", f, "--device-index", "3", "--json", NULL), 0);
	ck_assert_int_eq(whole(json_object_get(doc, "trace"), "device"), 3);
	json_decref(doc);
	doc = document(cli_run("replay", some_devices("bare.pkl", false), "--json", NULL), 0);
	assert_contract(doc, 1);
	ck_assert_str_eq(string(at(doc, "policies", 0), "policy"), "cleave");
	json_decref(doc);

	cli_assert_refused(cli_run("replay", f, "--device-index", "0", NULL), "device 0");
	cli_assert_refused(cli_run("replay", f, "--device-index", "2", NULL), "cleave report");
	cli_assert_refused(cli_run("replay", f, "--device-index", "4", NULL), "device 4");
	ck_assert_ptr_nonnull(strstr(cli_run("replay", f, NULL).out, "device 1 of 3"));
}
END_TEST

START_TEST(verify)
{
	const char *f = some_devices("some.pkl", true);
	json_t *doc = document(cli_run("replay", f, "--verify", "-p", "direct", "--json", NULL), 0);
	assert_contract(doc, 1);
	const json_t *v = json_object_get(doc, "verify");
	ck_assert_int_eq(whole(v, "allocs"), 1);
	ck_assert_int_eq(whole(v, "segment_events"), 1);
	ck_assert_int_eq(whole(v, "address_mismatches"), 0);
	ck_assert_int_eq(whole(v, "segment_mismatches"), 0);
	ck_assert(is_null(v, "first_mismatch"));
	json_decref(doc);
	struct cli_result r = cli_run("replay", f, "--verify", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "Verified"));

	/* every policy completes, and still the status says that something does not hold */
	doc = document(cli_run("replay", f, "--verify", "--device-index", "3", "-p", "direct", "--json", NULL), 1);
	assert_contract(doc, 1);
	v = json_object_get(doc, "verify");
	ck_assert_int_eq(whole(v, "address_mismatches"), 1);
	ck_assert_ptr_nonnull(strstr(string(v, "first_mismatch"), "event 1"));
	ck_assert(json_is_true(json_object_get(at(doc, "policies", 0), "completed")));
	json_decref(doc);
	r = cli_run("replay", f, "--verify", "--device-index", "3", "-p", "direct", NULL);
	ck_assert_int_eq(r.status, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "Not verified: 1 of 1 addresses"));

	cli_assert_refused(cli_run("replay", some_devices("bare.pkl", false), "--verify", NULL), "settings");
}
END_TEST

START_TEST(a_state_without_history)
{
	static struct pickle p;
	pickle_begin(&p);
	pickle_text(&p, "segments");
	list_begin(&p);
	pickle_segment(&p, 0, A, 2 * CLV_MIB, "small");
	list_end(&p);
	pickle_text(&p, "device_traces");
	list_begin(&p);
	list_begin(&p);
	list_end(&p);
	list_end(&p);
	pickle_settings(&p, "", -1);
	pickle_end(&p);
	const char *f = cli_file("state.pkl", p.data, p.size);
	cli_assert_refused(cli_run("replay", f, NULL), "cleave report");
	cli_assert_refused(cli_run("replay", f, "--json", "--verify", NULL), "cleave report");
	/* nothing at all in it */
	pickle_begin(&p);
	pickle_text(&p, "segments");
	list_begin(&p);
	list_end(&p);
	pickle_text(&p, "device_traces");
	list_begin(&p);
	list_end(&p);
	pickle_end(&p);
	cli_assert_refused(cli_run("replay", cli_file("nothing.pkl", p.data, p.size), NULL), "nothing.pkl");
}
END_TEST

/* An oom and a release of the cache that the file does not name: the torch policies repeat what they are told. */
START_TEST(torch_repeats_what_was_recorded)
{
	static struct pickle p;
	pickle_begin(&p);
	pickle_text(&p, "segments");
	list_begin(&p);
	list_end(&p);
	pickle_text(&p, "device_traces");
	list_begin(&p);
	list_begin(&p);
	pickle_event(&p, "segment_alloc", A, 64 * CLV_MIB, 1000);
	pickle_event(&p, "alloc", A, 64 * CLV_MIB, 1001);
	pickle_event(&p, "free_requested", A, 64 * CLV_MIB, 1002);
	pickle_event(&p, "free_completed", A, 64 * CLV_MIB, 1003);
	pickle_event(&p, "segment_free", A, 64 * CLV_MIB, 1004);
	list_end(&p);
	list_end(&p);
	pickle_settings(&p, "", -1);
	pickle_end(&p);
	const char *f = cli_file("emptied.pkl", p.data, p.size);
	json_t *doc =
		document(cli_run("replay", f, "--verify", "-p", "torch:recorded", "-p", "torch", "--json", NULL), 0);
	ck_assert_int_eq(whole(json_object_get(json_object_get(doc, "verify"), "inferred"), "empty_cache"), 1);
	for (size_t i = 0; i < 2; i++) {
		const json_t *calls = json_object_get(at(doc, "policies", i), "driver_calls");
		ck_assert_int_eq(whole(calls, "cuMemAlloc"), 1);
		ck_assert_int_eq(whole(calls, "cuMemFree"), 1);
	}
	json_decref(doc);

	pickle_begin(&p);
	pickle_text(&p, "segments");
	list_begin(&p);
	pickle_segment(&p, 0, A, 2 * CLV_MIB, "small");
	list_end(&p);
	pickle_text(&p, "device_traces");
	list_begin(&p);
	list_begin(&p);
	pickle_event(&p, "segment_alloc", A, 2 * CLV_MIB, 1000);
	pickle_event(&p, "alloc", A, 512, 1001);
	pickle_event(&p, "oom", 1 * CLV_MIB, (uint64_t)1 << 50, 1002);
	pickle_event(&p, "free_requested", A, 512, 1003);
	pickle_event(&p, "free_completed", A, 512, 1004);
	list_end(&p);
	list_end(&p);
	pickle_settings(&p, "", -1);
	pickle_end(&p);
	f = cli_file("oom.pkl", p.data, p.size);
	doc = document(cli_run("replay", f, "-p", "torch:recorded", "-p", "torch", "-p", "cleave", "-p", "direct",
			       "--json", NULL),
		       0);
	ck_assert_int_eq(whole(json_object_get(doc, "trace"), "recorded_ooms"), 1);
	ck_assert_int_eq(whole(json_object_get(doc, "trace"), "peak_live_bytes"), 512);
	ck_assert_int_eq(whole(policy_named(doc, "torch:recorded"), "skipped_ooms"), 0);
	ck_assert_int_eq(whole(policy_named(doc, "torch"), "skipped_ooms"), 1);
	ck_assert_int_eq(whole(policy_named(doc, "cleave"), "skipped_ooms"), 1);
	ck_assert_int_eq(whole(policy_named(doc, "direct"), "skipped_ooms"), 1);
	json_decref(doc);
}
END_TEST

START_TEST(names_with_any_bytes)
{
	cli_text("t \"\xff\n.csv", csv);
	json_t *doc = document(cli_run("replay", "t \"\xff\n.csv", "-p", "direct", "--json", NULL), 0);
	ck_assert_str_eq(string(json_object_get(doc, "trace"), "file"), "t \"\xef\xbf\xbd\n.csv");
	json_decref(doc);
}
END_TEST

/* The real recordings that are kept in the tree: the contract, and what must hold of any right answer. */
START_TEST(recordings)
{
	const char *dir = getenv("CLEAVE_TEST_DATA");
	DIR *d = dir ? opendir(dir) : NULL;
	int seen = 0;
	for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
		size_t len = strlen(e->d_name);
		if (len < 5 || strcmp(e->d_name + len - 4, ".clv") != 0)
			continue;
		char path[1024];
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		json_t *doc = document(cli_run("replay", path, "-p", "torch:recorded", "-p", "cleave", "-p", "direct",
					       "--verify", "--json", NULL),
				       0);
		assert_contract(doc, 3);
		json_int_t live = whole(json_object_get(doc, "trace"), "peak_live_bytes");
		size_t i;
		json_t *p;
		json_array_foreach(json_object_get(doc, "policies"), i, p)
			ck_assert_int_ge(whole(p, "peak_reserved_bytes"), live);
		json_decref(doc);
		seen++;
	}
	if (d)
		closedir(d);
	if (seen == 0)
		printf("recordings: skipped, there are none in %s\n", dir ? dir : "(CLEAVE_TEST_DATA is not set)");
}
END_TEST

/* A machine with a GPU is made one without. */
START_TEST(without_a_gpu)
{
	cli_text("t.csv", csv);
	cli_assert_refused(cli_shell("CUDA_VISIBLE_DEVICES=-1 \"$CLEAVE\" replay --driver cuda t.csv"),
			   "--driver cuda: ");
	cli_assert_refused(cli_run("replay", "--driver", "cuda", "--fit", "t.csv", NULL), "--fit");
	cli_assert_refused(cli_run("replay", "--driver", "cuda", "--event-lag", "5", "t.csv", NULL), "--event-lag");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {direct_to_the_byte,
				      packed_to_the_byte,
				      capacity_and_failure,
				      fit,
				      fit_of_the_smallest_traces,
				      policies_in_the_order_asked_for,
				      the_same_each_time,
				      event_lag,
				      text_for_people,
				      several_devices,
				      verify,
				      a_state_without_history,
				      torch_repeats_what_was_recorded,
				      names_with_any_bytes,
				      without_a_gpu,
				      recordings};
	return cli_suite("cli_replay", tests, CLV_ARRAY_LEN(tests));
}
