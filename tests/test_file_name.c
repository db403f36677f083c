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

CHECK_MAIN("file_name", names, ranks, refused, room)
