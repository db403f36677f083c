/* SPDX-License-Identifier: MIT
 *
 * `cleave bench` as users call it: names, refusals, the JSON document. That it measures well cannot be tested without a
 * clock; that it measures what it says is told by the numbers of operations.
 */
#include "cli_run.h"

#include <jansson.h>
#include <string.h>

static json_t *parse(struct cli_result r)
{
	ck_assert_msg(r.status == 0, "%s", r.err);
	json_error_t why;
	json_t *j = json_loads(r.out, 0, &why);
	ck_assert_msg(j != NULL, "%s at line %d", why.text, why.line);
	return j;
}

static const char *text_of(json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));
	ck_assert_msg(s != NULL, "no text '%s'", key);
	return s;
}

static double number_of(json_t *object, const char *key)
{
	json_t *v = json_object_get(object, key);
	ck_assert_msg(json_is_number(v), "no number '%s'", key);
	return json_number_value(v);
}

static void assert_result(json_t *r, const char *unit)
{
	const char *name = text_of(r, "name");
	double median = number_of(r, "median"), best = number_of(r, "best"), worst = number_of(r, "worst");
	bool rate = strcmp(unit, "events/s") == 0;
	ck_assert_str_eq(text_of(r, "unit"), unit);
	ck_assert_msg(median > 0 && best > 0 && worst > 0, "%s", name);
	ck_assert_msg(rate ? best >= median && median >= worst : best <= median && median <= worst, "%s: %g %g %g",
		      name, best, median, worst);
	ck_assert_double_gt(number_of(r, "ops"), 0);
	json_t *beside = json_object_get(r, "beside");
	ck_assert(json_is_array(beside));
	for (size_t i = 0; i < json_array_size(beside); i++) {
		json_t *b = json_array_get(beside, i);
		double value = number_of(b, "value"), times = number_of(b, "times_its_time");
		double expected = rate ? value / median : median / value;
		ck_assert_msg(times > expected * 0.999 && times < expected * 1.001, "%s beside %s", name,
			      text_of(b, "name"));
	}
}

static json_t *find(json_t *results, const char *name)
{
	for (size_t i = 0; i < json_array_size(results); i++)
		if (strcmp(text_of(json_array_get(results, i), "name"), name) == 0)
			return json_array_get(results, i);
	ck_abort_msg("no result '%s'", name);
	return NULL;
}

static const char *beside(json_t *result, size_t i)
{
	return text_of(json_array_get(json_object_get(result, "beside"), i), "name");
}

START_TEST(heap_beside_malloc)
{
	json_t *d = parse(cli_run("bench", "hit/1KiB", "holes/1KiB/16384", "--repeat", "1", "--json", NULL));
	json_t *results = json_object_get(d, "results"), *machine = json_object_get(d, "machine");
	ck_assert_uint_eq(json_array_size(results), 3);
	ck_assert_double_ge(number_of(machine, "processors"), 1);
	for (size_t i = 0; i < json_array_size(results); i++) {
		json_t *r = json_array_get(results, i);
		assert_result(r, "ns/op");
		ck_assert_str_eq(text_of(r, "clock"), "cpu");
		ck_assert_double_eq(number_of(r, "samples"), 1);
		ck_assert_str_eq(beside(r, 0), "malloc");
	}
	find(results, "hit/1KiB");
	/* what many holes are compared with is measured as well */
	find(results, "holes/1KiB/4096");
	ck_assert_str_eq(beside(find(results, "holes/1KiB/16384"), 1), "holes/1KiB/4096");
	json_decref(d);
}
END_TEST

START_TEST(threads_on_the_wall_clock)
{
	json_t *d = parse(cli_run("bench", "threads/1KiB/2", "--repeat", "1", "--json", NULL));
	json_t *results = json_object_get(d, "results");
	ck_assert_uint_eq(json_array_size(results), 2);
	json_t *two = find(results, "threads/1KiB/2");
	assert_result(two, "ns/op");
	ck_assert_str_eq(text_of(two, "clock"), "wall");
	ck_assert_str_eq(beside(two, 1), "threads/1KiB/1");
	json_decref(d);
}
END_TEST

/* Two blocks, one of which is freed. */
static const char log_text[] = "Thread,Time,Action,Pointer,Size,Stream\n"
			       "1,10:00:00.000001,allocate,0x1000,1000,0x0\n"
			       "1,10:00:00.000002,allocate,0x400000,1000000,0x0\n"
			       "1,10:00:00.000003,free,0x1000,1000,0x0\n";

START_TEST(a_trace_of_ones_own)
{
	const char *file = cli_text("some.log.csv", log_text);
	json_t *d = parse(cli_run("bench", "import", "replay", "--trace", file, "--repeat", "2", "--json", NULL));
	json_t *results = json_object_get(d, "results");
	ck_assert_uint_eq(json_array_size(results), 3);
	static const char *const names[] = {"import/some", "replay/some/cleave", "replay/some/torch"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++) {
		json_t *r = find(results, names[i]);
		assert_result(r, "events/s");
		ck_assert_double_eq(number_of(r, "ops"), 3);
		ck_assert_str_eq(beside(r, 0), "read loop");
	}
	json_decref(d);
}
END_TEST

START_TEST(the_synthetic_trace_and_the_bundled_ones)
{
	json_t *d = parse(
		cli_run("bench", "import/synthetic-rmm", "replay/moe_stack/cleave", "--repeat", "1", "--json", NULL));
	json_t *results = json_object_get(d, "results");
	ck_assert_uint_eq(json_array_size(results), 2);
	assert_result(find(results, "import/synthetic-rmm"), "events/s");
	ck_assert_double_eq(number_of(find(results, "replay/moe_stack/cleave"), "ops"), 14167);
	json_decref(d);
}
END_TEST

START_TEST(what_there_is)
{
	struct cli_result all = cli_run("bench", "--list", NULL),
			  some = cli_run("bench", "--list", "holes/64KiB", NULL);
	ck_assert_int_eq(all.status, 0);
	static const char *const names[] = {"import/synthetic\n", "replay/serve/cleave\n", "replay/train/torch\n",
					    "hit/512B\n",         "holes/3MiB/65536\n",    "coalesce/64KiB/joins\n",
					    "mixed/2000\n",       "threads/64KiB/4\n"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++)
		ck_assert_msg(strstr(all.out, names[i]) != NULL, "no %s", names[i]);
	ck_assert_str_eq(some.out, "holes/64KiB/4096\nholes/64KiB/16384\nholes/64KiB/65536\n");
	json_t *d = parse(cli_run("bench", "--list", "--json", "mixed", NULL));
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(d, "names"), 0)), "mixed/2000");
	json_decref(d);
}
END_TEST

START_TEST(for_people)
{
	struct cli_result r = cli_run("bench", "coalesce/64KiB", "mixed", "--repeat", "1", NULL);
	ck_assert_msg(r.status == 0, "%s", r.err);
	ck_assert_str_eq(r.err, "");
	static const char *const parts[] = {
		"coalesce/64KiB/alone", "coalesce/64KiB/joins", "coalesce/64KiB/cut", "mixed/2000", " ns", "malloc"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(parts); i++)
		ck_assert_msg(strstr(r.out, parts[i]) != NULL, "no '%s' in %s", parts[i], r.out);
}
END_TEST

START_TEST(refusals)
{
	cli_assert_refused(cli_run("bench", "hole", NULL), "'hole'");
	cli_assert_refused(cli_run("bench", "hit", "nothing", "--json", NULL), "'nothing'");
	cli_assert_refused(cli_run("bench", "hit", "--repeat", "0", NULL), "--repeat");
	cli_assert_refused(cli_run("bench", "hit", "--repeat", "102", NULL), "--repeat");
	cli_assert_refused(cli_run("bench", "import", "--trace", "missing.clv", NULL), "missing.clv");
	cli_assert_refused(cli_run("bench", "import", "--trace", cli_text("bad.csv", "x\n"), NULL), "bad.csv");
	cli_assert_refused(
		cli_run("bench", "import", "--trace", cli_text("empty.csv", "Time,Action,Pointer,Size\n"), NULL),
		"empty.csv");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {heap_beside_malloc,
				      threads_on_the_wall_clock,
				      a_trace_of_ones_own,
				      the_synthetic_trace_and_the_bundled_ones,
				      what_there_is,
				      for_people,
				      refusals};
	return cli_suite("cli_bench", tests, CLV_ARRAY_LEN(tests));
}
