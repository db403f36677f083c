/* SPDX-License-Identifier: MIT */
#include "../src/base/size_text.h"
#include "check_main.h"

START_TEST(parses_what_people_write)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {{"0", 0},
		     {"123", 123},
		     {"512B", 512},
		     {"20MiB", 20 * CLV_MIB},
		     {"20 MiB", 20 * CLV_MIB},
		     {"1.5GiB", 3 * CLV_GIB / 2},
		     {"2g", 2 * CLV_GIB},
		     {"18446744073709551615", UINT64_MAX},
		     {"16777215TiB", 16777215ull << 40}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		uint64_t got = 1;
		ck_assert_msg(clv_size_parse(cases[i].text, &got), "%s", cases[i].text);
		ck_assert_uint_eq(got, cases[i].bytes);
	}
}
END_TEST

START_TEST(refuses_the_rest)
{
	static const char *const cases[] = {"",
					    "-1",
					    "+1",
					    " 1",
					    "x",
					    "1x",
					    "1.5",
					    "1.",
					    ".5GiB",
					    "1.5B",
					    "1GiBs",
					    "18446744073709551616",
					    "16777216TiB",
					    "1e3",
					    "0x10",
					    "nan"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		uint64_t got = 77;
		ck_assert_msg(!clv_size_parse(cases[i], &got), "'%s' accepted", cases[i]);
		ck_assert_uint_eq(got, 77);
	}
}
END_TEST

/* What is written as a size, but is none that 64 bits hold. */
START_TEST(too_large)
{
	static const struct {
		const char *text;
		bool large;
	} cases[] = {{"18446744073709551616", true},
		     {"99999999999999999999999B", true},
		     {"16777216TiB", true},
		     {"16777215.9TiB", false},
		     {"99999999999999999999.5 GiB", true},
		     {"18446744073709551615", false},
		     {"99999999999999999999x", false},
		     {"99999999999999999999.5", false},
		     {"x", false},
		     {"", false},
		     {"-99999999999999999999", false}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++)
		ck_assert_msg(clv_size_too_large(cases[i].text) == cases[i].large, "'%s'", cases[i].text);
}
END_TEST

START_TEST(prints)
{
	char buf[32];
	ck_assert_str_eq(clv_size_print(512, buf, sizeof(buf)), "512 B");
	ck_assert_str_eq(clv_size_print(1536, buf, sizeof(buf)), "1.5 KiB");
	ck_assert_str_eq(clv_size_print(20 * CLV_MIB, buf, sizeof(buf)), "20.0 MiB");
	ck_assert_str_eq(clv_size_print(3 * CLV_GIB / 2, buf, sizeof(buf)), "1.50 GiB");
}
END_TEST

START_TEST(prints_durations)
{
	static const struct {
		double seconds;
		const char *text;
	} cases[] = {
		{0, "0 s"},          {-1, "0 s"},     {7.1e-5, "71 us"},      {0.0009996, "1 ms"}, {0.00974, "9.74 ms"},
		{0.99949, "999 ms"}, {0.9999, "1 s"}, {3.214, "3.21 s"},      {119.6, "120 s"},    {750, "12.5 min"},
		{7199.9, "120 min"}, {8640, "2.4 h"}, {86400 * 30, "720.0 h"}};
	char buf[32];
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++)
		ck_assert_str_eq(clv_seconds_print(cases[i].seconds, buf, sizeof(buf)), cases[i].text);
}
END_TEST

CHECK_MAIN("size_text", parses_what_people_write, refuses_the_rest, too_large, prints, prints_durations)
