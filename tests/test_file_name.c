/* SPDX-License-Identifier: MIT */
#include "../src/base/file_name.h"
#include "check_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const variables[] = {"RANK",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
					"PMI_RANK", "MV2_COMM_WORLD_RANK",  "SLURM_PROCID"};

static void no_rank(void)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(variables); i++)
		unsetenv(variables[i]);
}

static const char *expanded(const char *pattern)
{
	static char name[256];
	struct clv_error err = {""};
	ck_assert_msg(clv_file_name_expand(pattern, name, sizeof(name), &err), "%s: %s", pattern, err.text);
	return name;
}

START_TEST(names)
{
	char expect[256];
	no_rank();
	ck_assert_str_eq(expanded("/tmp/plain.prom"), "/tmp/plain.prom");
	ck_assert_str_eq(expanded("100%%"), "100%");
	ck_assert_str_eq(expanded("%%p%%r"), "%p%r");
	snprintf(expect, sizeof(expect), "r/%ld-%ld.x", (long)getpid(), (long)getpid());
	ck_assert_str_eq(expanded("r/%p-%p.x"), expect);
	setenv("RANK", "12", 1);
	snprintf(expect, sizeof(expect), "a.12.%ld%%", (long)getpid());
	ck_assert_str_eq(expanded("a.%r.%p%%"), expect);
}
END_TEST

START_TEST(ranks)
{
	bool known = true;
	no_rank();
	ck_assert_uint_eq(clv_process_rank(&known), 0);
	ck_assert(!known);
	ck_assert_str_eq(expanded("%r"), "0");
	/* from the last to the first: each comes before those after it */
	for (size_t i = CLV_ARRAY_LEN(variables); i-- > 0;) {
		char value[8];
		snprintf(value, sizeof(value), "%zu", 100 + i);
		setenv(variables[i], value, 1);
		ck_assert_uint_eq(clv_process_rank(&known), 100 + i);
		ck_assert(known);
	}
	/* what is no number is passed over: it would end up in a path */
	static const char *const odd[] = {"", "-1", "../x", "1/2", "3 ", "0x1", "1234567890"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(odd); i++) {
		setenv("RANK", odd[i], 1);
		ck_assert_uint_eq(clv_process_rank(NULL), 101);
	}
	setenv("RANK", "007", 1);
	ck_assert_str_eq(expanded("%r"), "7");
}
END_TEST

START_TEST(refused)
{
	static const char *const bad[] = {"", "%", "a%", "%q", "%p%", "%%%", "%P", "% "};
	for (size_t i = 0; i < CLV_ARRAY_LEN(bad); i++) {
		char name[64] = "before";
		struct clv_error err = {""};
		ck_assert_msg(!clv_file_name_expand(bad[i], name, sizeof(name), &err), "'%s' was taken", bad[i]);
		ck_assert_str_eq(name, "");
		ck_assert(err.text[0]);
		ck_assert(!clv_file_name_check(bad[i], NULL));
	}
}
END_TEST

START_TEST(room)
{
	char name[8];
	struct clv_error err = {""};
	ck_assert(clv_file_name_expand("1234567", name, sizeof(name), NULL));
	ck_assert_str_eq(name, "1234567");
	ck_assert(!clv_file_name_expand("12345678", name, sizeof(name), &err));
	ck_assert_str_eq(name, "");
	ck_assert_ptr_nonnull(strstr(err.text, "longer than 7"));
	memset(name, 'x', sizeof(name));
	no_rank();
	setenv("RANK", "123456", 1);
	ck_assert(!clv_file_name_expand("ab%r", name, 8, NULL));
	ck_assert(clv_file_name_expand("a%r", name, 8, NULL));
	ck_assert(!clv_file_name_expand("a", name, 0, NULL));
}
END_TEST

/* The name of a further process has its id, and keeps the end by which a trace is known. */
START_TEST(further)
{
	static const char *const cases[][3] = {{"a.clv", "a.%p.clv", "a.%p-2.clv"},
					       {"a", "a.%p.clv", "a.%p-2.clv"},
					       {"/x.clv/b.trace", "/x.clv/b.trace.%p.clv", "/x.clv/b.trace.%p-2.clv"},
					       {"%r%%.clv", "%r%%.%p.clv", "%r%%.%p-2.clv"},
					       {".clv", ".clv.%p.clv", ".clv.%p-2.clv"}};
	char name[64];
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++)
		for (unsigned n = 1; n <= 2; n++) {
			ck_assert(clv_file_name_further(cases[i][0], n, name, sizeof(name)));
			ck_assert_str_eq(name, cases[i][n]);
			ck_assert(clv_file_name_check(name, NULL));
		}
	ck_assert(clv_file_name_further("a", 1, name, 9));
	ck_assert(!clv_file_name_further("a", 1, name, 8));
}
END_TEST

START_TEST(later)
{
	static const struct {
		const char *first, *name;
		bool is;
	} cases[] = {{"a.clv", "a.clv.1", true},   {"a.clv", "a.clv.120", true}, {"a.clv", "a.clv", false},
		     {"a.clv", "a.clv.", false},   {"a.clv", "a.clv.1x", false}, {"a.clv", "a.clv.x", false},
		     {"a.clv", "b.clv.1", false},  {"a.clv", "a.7.clv", false},  {"a.clv", "a.clv1", false},
		     {"a.clv", "aa.clv.1", false}, {"a.clv", "a.clv.1.2", false}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++)
		ck_assert_msg(clv_file_name_is_later(cases[i].first, cases[i].name) == cases[i].is, "%s",
			      cases[i].name);
}
END_TEST

START_TEST(made_of)
{
	static const struct {
		const char *pattern, *name;
		bool is;
	} cases[] = {{"a.clv", "a.clv", true},
		     {"a.clv", "a.77.clv", true},
		     {"a.clv", "a.77-3.clv", true},
		     {"a.clv", "a.clv.4", true},
		     {"a.clv", "a.77.clv.4", true},
		     {"a.clv", "a.77-3.clv.4", true},
		     {"a.clv", "a.x.clv", false},
		     {"a.clv", "a.clv.x", false},
		     {"a.clv", "a.77-.clv", false},
		     {"a.clv", "b.clv", false},
		     {"a.clv", "a.clv4", false},
		     {"%p-%r.clv", "7-8.clv", true},
		     {"%p-%r.clv", "7-.clv", false},
		     {"%p-%r.clv", "7-8.clv.9", true},
		     {"%%p", "%p", true},
		     {"%%p", "7", false}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++)
		ck_assert_msg(clv_file_name_is_of(cases[i].pattern, cases[i].name) == cases[i].is, "%s: %s",
			      cases[i].pattern, cases[i].name);
}
END_TEST

START_TEST(absolute)
{
	char name[64], small[12];
	ck_assert_int_eq(chdir("/usr/lib"), 0);
	clv_file_name_absolute("a/b", name, sizeof(name));
	ck_assert_str_eq(name, "/usr/lib/a/b");
	clv_file_name_absolute("/a/b", name, sizeof(name));
	ck_assert_str_eq(name, "/a/b");
	clv_file_name_absolute("a/b", small, sizeof(small));
	ck_assert_str_eq(small, "a/b");
	ck_assert_int_eq(chdir("/"), 0);
	clv_file_name_absolute("a/b", name, sizeof(name));
	ck_assert_str_eq(name, "/a/b");
}
END_TEST

START_TEST(escaped)
{
	char pattern[64], name[64];
	ck_assert(clv_file_name_escape("/t%p/100%.clv", pattern, sizeof(pattern)));
	ck_assert_str_eq(pattern, "/t%%p/100%%.clv");
	ck_assert(clv_file_name_expand(pattern, name, sizeof(name), NULL));
	ck_assert_str_eq(name, "/t%p/100%.clv");
	ck_assert(!clv_file_name_escape("%%%", pattern, 6));
	ck_assert_str_eq(pattern, "%%%%"); /* whole pairs alone */
	ck_assert(!clv_file_name_escape("a", pattern, 0));
}
END_TEST

CHECK_MAIN("file_name", escaped, names, ranks, refused, room, further, later, made_of, absolute)
