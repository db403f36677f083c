/* SPDX-License-Identifier: MIT */
#include "../src/heap/settings.h"
#include "check_main.h"

#include <string.h>

static struct clv_settings parsed(const char *text)
{
	struct clv_settings s;
	struct clv_error err = {""};
	ck_assert_msg(clv_settings_parse(&s, text, &err), "'%s': %s", text, err.text);
	return s;
}

static void same(struct clv_settings a, struct clv_settings b)
{
	ck_assert_int_eq(a.tight, b.tight);
	ck_assert_uint_eq(a.limit, b.limit);
	ck_assert_uint_eq(a.headroom, b.headroom);
	ck_assert_uint_eq(a.frame_bytes, b.frame_bytes);
	ck_assert_int_eq(a.cache, b.cache);
}

START_TEST(defaults)
{
	struct clv_settings s = parsed(NULL);
	ck_assert(!s.tight);
	ck_assert_uint_eq(s.limit, 0);
	ck_assert_uint_eq(s.headroom, 0);
	ck_assert(clv_is_pow2(s.frame_bytes));
	ck_assert(s.cache);
	same(s, parsed(""));
	same(s, parsed(","));
	same(s, parsed(" , ,"));
	/* the table's defaults are the defaults */
	char all[512] = "";
	size_t count;
	const struct clv_setting *table = clv_settings_table(&count);
	for (size_t i = 0; i < count; i++) {
		strcat(all, i ? "," : "");
		strcat(strcat(strcat(all, table[i].key), ":"), table[i].initial);
	}
	same(s, parsed(all));
}
END_TEST

START_TEST(each_key)
{
	struct clv_settings s = parsed("growth:tight,limit:1.5GiB,headroom:300MiB,frame:4MiB,cache:off");
	ck_assert(s.tight);
	ck_assert_uint_eq(s.limit, 3 * CLV_GIB / 2);
	ck_assert_uint_eq(s.headroom, 300 * CLV_MIB);
	ck_assert_uint_eq(s.frame_bytes, 4 * CLV_MIB);
	ck_assert(!s.cache);
	ck_assert(!parsed("growth:tight,growth:normal").tight); /* the last counts */
	ck_assert_uint_eq(parsed("limit:0").limit, 0);
	same(s, parsed(" growth:tight , limit:1.5GiB ,headroom:300MiB\t,\tframe:4MiB,cache:off,"));
	same(s, parsed("growth : tight, limit: 1.5GiB, headroom :300MiB, frame: 4MiB, cache : off "));
}
END_TEST

START_TEST(refusals)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"groth:tight", "groth"},
		{"growth", "key:value"},
		{"growth:", "growth:"},
		{"growth:loose", "loose"},
		{"growth:tightly", "tightly"},
		{"growth:tight fit", "tight fit"},
		{":tight", "''"},
		{"limit:", "limit:"},
		{"limit:much", "much"},
		{"limit:-1", "-1"},
		{"limit:1.5", "1.5"},
		{"limit:1GiB 2", "1GiB 2"},
		{"limit:99999999999999999999", "99999999999999999999"},
		{"frame:3MiB", "power of two"},
		{"frame:1MiB", "2MiB"},
		{"frame:0", "2MiB"},
		{"cache:yes", "on or off"},
		{"cache:on,frame:5", "frame:5"},
		{"GROWTH:tight", "GROWTH"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_settings s;
		struct clv_error err = {""};
		ck_assert_msg(!clv_settings_parse(&s, cases[i].text, &err), "'%s' is accepted", cases[i].text);
		ck_assert_msg(strstr(err.text, cases[i].says), "'%s': %s", cases[i].text, err.text);
		ck_assert(!clv_settings_parse(&s, cases[i].text, NULL));
	}
	char longer[5000];
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	struct clv_settings s;
	struct clv_error err = {""};
	ck_assert(!clv_settings_parse(&s, longer, &err));
	ck_assert_str_ne(err.text, "");
}
END_TEST

START_TEST(table_is_complete)
{
	size_t count;
	const struct clv_setting *table = clv_settings_table(&count);
	ck_assert_uint_gt(count, 0);
	for (size_t i = 0; i < count; i++) {
		ck_assert(!strcmp(table[i].kind, "CHOICE") || !strcmp(table[i].kind, "SIZE") || !strcmp(table[i].kind, "BOOL"));
		ck_assert_uint_gt(strlen(table[i].help), 10);
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(table[i].key, table[k].key);
	}
}
END_TEST

/* Whatever the bytes: accepted or refused with a reason, nothing else. */
START_TEST(random_text)
{
	static const char *const parts[] = {"growth", "limit", "frame", "cache", ":", ",", " ", "tight", "16MiB", "on", "4", "\xff", "\t"};
	struct clv_rng rng = {3};
	unsigned accepted = 0;
	for (unsigned i = 0; i < 20000; i++) {
		char text[256] = "";
		for (uint64_t n = clv_rng_below(&rng, 8); n; n--)
			strcat(text, parts[clv_rng_below(&rng, CLV_ARRAY_LEN(parts))]);
		struct clv_settings s;
		struct clv_error err = {""};
		bool good = clv_settings_parse(&s, text, &err);
		accepted += good;
		ck_assert_msg(good == !err.text[0], "'%s': %s", text, err.text);
		if (good)
			ck_assert(clv_is_pow2(s.frame_bytes) && s.frame_bytes >= 2 * CLV_MIB);
	}
	ck_assert_uint_gt(accepted, 100);
	ck_assert_uint_lt(accepted, 15000);
}
END_TEST

CHECK_MAIN("settings", defaults, each_key, refusals, table_is_complete, random_text)
