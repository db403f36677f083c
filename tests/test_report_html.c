/* SPDX-License-Identifier: MIT
 *
 * The page as a file: it is whole or not there. What it shows is tested in a browser (test_report_page.py).
 */
#include "../tracing/report/html.h"
#include "check_main.h"
#include "report_made.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

static char path[] = "/tmp/cleave-page-XXXXXX";
static struct clv_trace *trace;
static struct clv_report *report;

/* false: this build has no d3. */
static bool setup(uint32_t events)
{
	struct clv_error err = {{0}};
	const struct clv_report_options options = {0};
	trace = made_trace(events);
	ck_assert_ptr_nonnull(trace);
	const struct clv_trace *const traces[] = {trace};
	report = clv_report_make(traces, 1, &options, &err);
	ck_assert_msg(report != NULL, "%s", err.text);
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	unlink(path);
	if (clv_report_html_ready(path, &err))
		return true;
	ck_assert(!clv_report_html(report, path, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "d3"));
	return false;
}

static void teardown(void)
{
	unlink(path);
	clv_report_free(report);
	clv_trace_free(trace);
}

static char *read_page(size_t *len)
{
	FILE *f = fopen(path, "rb");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
	*len = (size_t)ftell(f);
	char *text = malloc(*len + 1);
	ck_assert_ptr_nonnull(text);
	rewind(f);
	ck_assert_uint_eq(fread(text, 1, *len, f), *len);
	text[*len] = '\0';
	fclose(f);
	return text;
}

START_TEST(the_data_are_json)
{
	struct clv_error err = {{0}};
	if (setup(2000)) {
		ck_assert_msg(clv_report_html(report, path, &err), "%s", err.text);
		size_t len;
		char *page = read_page(&len), *from = strstr(page, "id=\"data\">");
		ck_assert_ptr_nonnull(from);
		from += strlen("id=\"data\">");
		char *end = strchr(from, '<');
		ck_assert_ptr_nonnull(end);
		json_error_t why;
		json_t *j = json_loadb(from, (size_t)(end - from), 0, &why);
		ck_assert_msg(j != NULL, "%s", why.text);
		const json_t *device = json_array_get(json_object_get(j, "devices"), 0);
		ck_assert_int_eq(json_integer_value(json_object_get(device, "events")), 2000);
		ck_assert_str_eq(json_string_value(json_object_get(device, "summary")), report->devices[0].summary);
		ck_assert_uint_eq(json_array_size(json_object_get(device, "moments")), report->devices[0].moment_count);
		ck_assert_uint_eq(json_array_size(json_object_get(device, "phases")), 2);
		json_decref(j);
		free(page);
	}
	teardown();
}
END_TEST

/* Every allocation fails once, jansson's too: there is an error and no file, or the page is as it should be. */
START_TEST(every_allocation_can_fail)
{
	struct clv_error err = {{0}};
	if (setup(80)) {
		json_set_alloc_funcs(clv_mem_alloc, clv_mem_free);
		ck_assert_msg(clv_report_html(report, path, &err), "%s", err.text);
		size_t len;
		char *expected = read_page(&len);
		unlink(path);
		uint64_t n = 0;
		bool made = false;
		while (!made) {
			struct clv_error why = {{0}};
			clv_mem_fail_after(++n);
			made = clv_report_html(report, path, &why);
			clv_mem_fail_after(0);
			ck_assert_msg(made == (why.text[0] == '\0'), "allocation %lu: %s", (unsigned long)n, why.text);
			ck_assert_msg(made == (access(path, F_OK) == 0), "allocation %lu leaves a file",
				      (unsigned long)n);
		}
		ck_assert_uint_gt(n, 500);
		size_t again;
		char *page = read_page(&again);
		ck_assert_uint_eq(again, len);
		ck_assert_int_eq(memcmp(page, expected, len), 0);
		free(page);
		free(expected);
	}
	teardown();
}
END_TEST

START_TEST(a_place_that_cannot_be_written)
{
	struct clv_error err = {{0}};
	if (setup(80)) {
		ck_assert(!clv_report_html(report, "/nonexistent/page.html", &err));
		ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/page.html"));
	}
	teardown();
}
END_TEST

CHECK_MAIN("report_html", the_data_are_json, every_allocation_can_fail, a_place_that_cannot_be_written)
