/* SPDX-License-Identifier: MIT
 *
 * Import of RMM logs: columns, numbers, times, and what is refused with line and offset.
 */
#include "../tracing/import/import.h"
#include "../tracing/memory.h"
#include "check_main.h"
#include "trace_check.h"

#include <stdio.h>
#include <string.h>

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

static struct clv_error err;

static struct clv_trace *import_bytes(const char *text, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	memcpy(copy, text, size);
	const struct clv_input in = {.name = "l", .data = copy, .size = size};
	err.text[0] = '\0';
	struct clv_trace *t = clv_import_memory(&in, &err);
	free(copy);
	ck_assert_msg((t != NULL) == (err.text[0] == '\0'), "%s", err.text);
	const char *wrong = t ? trace_wrong(t) : NULL;
	ck_assert_msg(!wrong, "%s", wrong);
	return t;
}

static struct clv_trace *import_ok(const char *text)
{
	struct clv_trace *t = import_bytes(text, strlen(text));
	ck_assert_msg(t != NULL, "%s", err.text);
	ck_assert_int_eq(t->format, CLV_FORMAT_RMM);
	ck_assert(!t->torch.present);
	return t;
}

static const char basic[] = HEADER "1,10:00:00.000001,allocate,0x7f0000000000,1000,0x0\n"
				   "2,10:00:00.500001,allocate,0x7F0000001000,2000,0x2\n"
				   "1,10:00:01.000001,allocate failure,(nil),123456789,0x0\n"
				   "2,10:00:02.000001,free,0x7f0000000000,1000,0x2\n";

START_TEST(rows)
{
	struct clv_trace *t = import_ok(basic);
	ck_assert_uint_eq(t->history_count, 1);
	const struct clv_history *h = &t->histories[0];
	ck_assert_int_eq(h->device, 0);
	ck_assert(!h->has_state);
	ck_assert_uint_eq(h->event_count, 4);
	static const uint8_t actions[] = {CLV_ACTION_ALLOC, CLV_ACTION_ALLOC, CLV_ACTION_OOM,
					  CLV_ACTION_FREE_COMPLETED};
	static const uint64_t addrs[] = {0x7f0000000000, 0x7f0000001000, 0, 0x7f0000000000};
	static const uint64_t sizes[] = {1000, 2000, 123456789, 1000};
	static const uint64_t handles[] = {0, 2, 0, 2};
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(h->events[i].action, actions[i]);
		ck_assert_uint_eq(h->events[i].addr, addrs[i]);
		ck_assert_uint_eq(h->events[i].size, sizes[i]);
		ck_assert_uint_eq(t->streams[h->events[i].stream], handles[i]);
	}
	ck_assert_uint_eq(h->events[0].time_us, 36000000001u);
	ck_assert_uint_eq(h->events[3].block, 0);
	ck_assert_double_eq(h->duration_s, 2.0);
	ck_assert_uint_eq(h->peak_live_bytes, 1024 + 2048);
	ck_assert_uint_eq(h->oom_count, 1);
	ck_assert_uint_eq(h->stream_count, 2);
	clv_trace_free(t);
}
END_TEST

/* The same log in other clothes. */
START_TEST(layouts)
{
	static const char *const same[] = {
		"Size,Stream,Pointer,Thread,Action,Time\n1000,0x0,0x7f0000000000,1,allocate,10:00:00.000001\n"
		"2000,0x2,0x7f0000001000,2,allocate,10:00:00.500001\n123456789,0x0,(nil),1,allocate failure,10:00:01.000001\n"
		"1000,0x2,0x7f0000000000,2,free,10:00:02.000001\n",
		"Thread,Time,Action,Pointer,Size,Stream\r\n1,10:00:00.000001,allocate,0x7f0000000000,1000,0x0\r\n\r\n"
		"2,10:00:00.500001,allocate,0x7f0000001000,2000,0x2\r\n1,10:00:01.000001,allocate failure,,123456789,0x0\r\n"
		"2,10:00:02.000001,free,0x7f0000000000,1000,0x2",
		"\xef\xbb\xbfThread , Time, Action ,Pointer,Size,Stream,Extra\n 1, 10:00:00.000001 ,allocate,0x7f0000000000, 1000,0,x\n"
		"2,10:00:00.500001,Allocate,0x7f0000001000,2000,2,\n"
		"1,10:00:01.000001,ALLOCATE FAILURE,nullptr,123456789,(nil)\n\t\n"
		"2,10:00:02.000001,free,0x7f0000000000,1000,0x2,,,,,\n\n",
		/* logs that were put together */
		HEADER
		"1,10:00:00.000001,allocate,0x7f0000000000,1000,0x0\n"
		"2,10:00:00.500001,allocate,0x7f0000001000,2000,0x2\n" HEADER
		"1,10:00:01.000001,allocate failure,0x0,123456789,0x0\n2,10:00:02.000001,free,0x7f0000000000,1000,0x2\n",
	};
	struct clv_trace *expected = import_ok(basic);
	for (size_t i = 0; i < CLV_ARRAY_LEN(same); i++) {
		struct clv_trace *t = import_ok(same[i]);
		const char *difference = trace_difference(expected, t);
		ck_assert_msg(!difference, "%zu: %s", i, difference);
		ck_assert_ptr_null(t->note);
		clv_trace_free(t);
	}
	clv_trace_free(expected);
	/* without the columns that can be missed */
	struct clv_trace *t = import_ok("Action,Pointer,Size\nallocate,0x1000,8\nfree,0x1000,8\n");
	ck_assert_uint_eq(t->histories[0].block_count, 1);
	ck_assert_uint_eq(t->histories[0].events[1].time_us, 0);
	clv_trace_free(t);
}
END_TEST

START_TEST(times)
{
	static const struct {
		const char *time;
		uint64_t us;
	} cases[] = {
		{"00:00:00", 0},
		{"0:00:01", 1000000},
		{"00:00:01.5", 1500000},
		{"00:00:01.000000", 1000000},
		{"00:00:01.123456789", 1123456},
		{"00:00:01:250000", 1250000},
		{"23:59:60.0", 86400000000},
		{"1970-01-01 00:00:01", 1000000},
		{"1970-01-02T00:00:00.000001", 86400000001},
		{"1970/01/02 00:00:00Z", 86400000000},
		{"2000-02-29 12:00:00", 951825600000000},
		{"2024-12-31 23:59:59.999999", 1735689599999999},
		{"", 0},
	};
	char text[256];
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		snprintf(text, sizeof(text), HEADER "1,%s,allocate,0x1000,8,0x0\n", cases[i].time);
		struct clv_trace *t = import_ok(text);
		ck_assert_msg(t->histories[0].events[0].time_us == cases[i].us, "%s: %llu", cases[i].time,
			      (unsigned long long)t->histories[0].events[0].time_us);
		clv_trace_free(t);
	}
	static const char *const bad[] = {"x",
					  "10",
					  "10:00",
					  "10:00:0",
					  "24:00:00",
					  "10:60:00",
					  "10:00:61",
					  "10:00:00.",
					  "10:00:00.x",
					  "10:00:00.1x",
					  "-1:00:00",
					  "2024-13-01 00:00:00",
					  "2024-00-01 00:00:00",
					  "2024-01-32 00:00:00",
					  "2024-01-01",
					  "2024-01-01 10",
					  "1969-12-31 00:00:00",
					  "99999-01-01 00:00:00",
					  "10:00:00 x"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text), HEADER "1,%s,allocate,0x1000,8,0x0\n", bad[i]);
		ck_assert_msg(!import_bytes(text, strlen(text)), "%s", bad[i]);
		ck_assert_msg(strstr(err.text, "line 2: no time: '") != NULL, "%s: %s", bad[i], err.text);
	}
}
END_TEST

START_TEST(midnight)
{
	struct clv_trace *t =
		import_ok(HEADER "1,23:59:59.900000,allocate,0x1000,8,0x0\n"
				 "2,00:00:00.100000,allocate,0x2000,8,0x0\n"
				 "1,23:59:59.950000,allocate,0x2800,8,0x0\n" /* a thread that was slow to log */
				 "1,12:00:00,allocate,0x3000,8,0x0\n"
				 "1,11:59:59,allocate,0x3800,8,0x0\n" /* slow, no new day */
				 "1,,allocate,0x4000,8,0x0\n"
				 "1,23:00:00,allocate,0x5000,8,0x0\n"
				 "1,01:00:00,allocate,0x6000,8,0x0\n");
	static const uint64_t expected[] = {86399900000,  86400100000,  86399950000,  129600000000,
					    129599000000, 129599000000, 169200000000, 176400000000};
	const struct clv_history *h = &t->histories[0];
	ck_assert_uint_eq(h->event_count, CLV_ARRAY_LEN(expected));
	for (uint32_t i = 0; i < h->event_count; i++)
		ck_assert_msg(h->events[i].time_us == expected[i], "event %u: %llu", i,
			      (unsigned long long)h->events[i].time_us);
	clv_trace_free(t);
}
END_TEST

START_TEST(odd_rows)
{
	/* requests of nothing, frees of nothing, a free that nothing explains, a zero-sized pointer twice */
	struct clv_trace *t = import_ok(HEADER "1,10:00:00,allocate,(nil),0,0x0\n"
					       "1,10:00:00,allocate,0x5000,0,0x0\n"
					       "1,10:00:00,allocate,0x5000,0,0x0\n"
					       "1,10:00:00,free,(nil),0,0x0\n"
					       "1,10:00:00,free,,8,0x0\n"
					       "1,10:00:00,free,0x5000,0,0x0\n"
					       "1,10:00:00,free,0x9000,700,0x0\n"
					       "1,10:00:00,free,0x9000,700,0x0\n"
					       "1,10:00:00,allocate,0x9000,1,0x0\n");
	const struct clv_history *h = &t->histories[0];
	ck_assert_uint_eq(h->event_count, 7);
	ck_assert_uint_eq(h->initial_count, 1);
	ck_assert_uint_eq(h->initial[0].size, 700);
	ck_assert_uint_eq(h->unmatched_frees, 1);
	ck_assert_uint_eq(h->alloc_count, 1);
	clv_trace_free(t);
	t = import_ok(HEADER);
	ck_assert_uint_eq(t->history_count, 0);
	clv_trace_free(t);
}
END_TEST

START_TEST(refusals)
{
	static const struct {
		const char *row, *part;
	} cases[] = {
		{"1,10:00:00,swallow,0x1000,8,0x0", "an unknown action: 'swallow'"},
		{"1,10:00:00,,0x1000,8,0x0", "an unknown action: ''"},
		{"1,10:00:00,allocatefailure,0x1000,8,0x0", "an unknown action"},
		{"1,10:00:00,allocate,0x1000", "too few columns"},
		{"x", "too few columns: 'x'"},
		{"1,10:00:00,allocate,1000,8,0x0", "no pointer: '1000'"},
		{"1,10:00:00,allocate,0x,8,0x0", "no pointer"},
		{"1,10:00:00,allocate,0xg,8,0x0", "no pointer"},
		{"1,10:00:00,allocate,-0x1,8,0x0", "no pointer"},
		{"1,10:00:00,allocate,0x10000000000000000,8,0x0", "no pointer"},
		{"1,10:00:00,allocate,0xffffffffffffffff,8,0x0", "no pointer"},
		{"1,10:00:00,allocate,(nil),8,0x0", "an allocation without a pointer"},
		{"1,10:00:00,allocate,,8,0x0", "an allocation without a pointer"},
		{"1,10:00:00,allocate,0x1000,,0x0", "no size: ''"},
		{"1,10:00:00,allocate,0x1000,x,0x0", "no size: 'x'"},
		{"1,10:00:00,allocate,0x1000,-8,0x0", "no size: '-8'"},
		{"1,10:00:00,allocate,0x1000,8.0,0x0", "no size"},
		{"1,10:00:00,allocate,0x1000,0x8,0x0", "no size"},
		{"1,10:00:00,allocate,0x1000,18446744073709551616,0x0", "no size"},
		{"1,10:00:00,allocate,0x1000,9223372036854775808,0x0", "a size that no device has"},
		{"1,10:00:00,allocate,0x1000,9223372036854775807,0x0", "a size that no device has"},
		{"1,10:00:00,allocate failure,0x0,18446744073709551615,0x0", "a size that no device has"},
		{"1,10:00:00,allocate,0x1000,8,x", "no stream: 'x'"},
		{"1,10:00:00,allocate,0x1000,8,-1", "no stream"},
		{"1,10:00:00,al\x01\xff,0x1000,8,0x0", "an unknown action: 'al?"
						       "?'"},
		{"1,10:00:00,allocate,0x7000,8,0x0", "device 0, event 1: 0x7000 is allocated, but event 0"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char text[256], place[64];
		const char *before = HEADER "1,10:00:00,allocate,0x7000,8,0x0\n\n";
		snprintf(text, sizeof(text), "%s%s\n", before, cases[i].row);
		snprintf(place, sizeof(place), "l: offset %zu: line 4: ", strlen(before));
		ck_assert_msg(!import_bytes(text, strlen(text)), "%s", cases[i].row);
		ck_assert_msg(strncmp(err.text, place, strlen(place)) == 0, "%s, not %s", err.text, place);
		ck_assert_msg(strstr(err.text, cases[i].part) != NULL, "%s, not %s", err.text, cases[i].part);
	}
	static const struct {
		const char *text, *part;
	} headers[] = {
		{"Thread,Time,Action,Pointer,Stream\n", "no such column: 'size'"},
		{"Thread,Time,Pointer,Size,Stream\n", "no such column: 'action'"},
		{"Action,Size\n", "no such column: 'pointer'"},
		{"\n\n\n", "not a known trace"},
		{" ", "not a known trace"},
		{",,,\n", "not a known trace"},
		{"a;b;c\n", "not a known trace"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(headers); i++) {
		ck_assert_ptr_null(import_bytes(headers[i].text, strlen(headers[i].text)));
		ck_assert_msg(strstr(err.text, headers[i].part) != NULL, "%s", err.text);
	}
}
END_TEST

/* What has no line ends is no log, and is not read to its end to see that. */
START_TEST(lines_without_end)
{
	enum { LINE = 1 << 20 };
	static const char head[] = HEADER "1,10:00:00,allocate,0x1000,8,0x0,";
	char *text = malloc(sizeof(head) + LINE + 2);
	size_t line = sizeof(head) - sizeof(HEADER);
	memset(text, 'x', sizeof(head) + LINE + 2);
	memcpy(text, head, sizeof(head) - 1);
	text[sizeof(HEADER) - 1 + LINE] = '\n'; /* a line of just so many bytes */
	struct clv_trace *t = import_bytes(text, sizeof(HEADER) + LINE);
	ck_assert_msg(t != NULL, "%s", err.text);
	ck_assert_uint_eq(t->histories[0].event_count, 1);
	clv_trace_free(t);
	text[sizeof(HEADER) - 1 + LINE] = 'x';
	ck_assert_ptr_null(import_bytes(text, sizeof(head) + LINE));
	ck_assert_msg(strstr(err.text, "line 2: a line of more than 1 MiB") != NULL, "%s", err.text);
	ck_assert_ptr_null(import_bytes(text + sizeof(HEADER) - 1, line + LINE));
	ck_assert_msg(strstr(err.text, "not a known trace") != NULL, "%s", err.text);
	free(text);
}
END_TEST

/* A process that was killed leaves half a line: what is before it counts. */
START_TEST(cut_anywhere)
{
	size_t header = strlen(HEADER), first = header + strcspn(basic + header, "\n");
	for (size_t n = 1; n < sizeof(basic) - 1; n++) {
		struct clv_trace *t = import_bytes(basic, n);
		bool has_columns = n >= strlen("Thread,Time,Action,Pointer,Size");
		ck_assert_msg(!t || has_columns, "%zu bytes", n);
		if (n > first) {
			ck_assert_msg(t != NULL, "%zu bytes: %s", n, err.text);
			uint32_t lines = 0;
			for (size_t i = header; i < n; i++)
				lines += basic[i] == '\n';
			ck_assert_uint_ge(t->histories[0].event_count, lines);
			ck_assert_uint_le(t->histories[0].event_count, lines + 1);
			/* a cut line that is still a row cannot be told from a whole one */
			ck_assert(t->histories[0].event_count > lines || basic[n - 1] == '\n' || t->note);
		}
		clv_trace_free(t);
	}
	struct clv_trace *t = import_bytes(basic, sizeof(basic) - 12);
	ck_assert_str_eq(t->note, "the last line, 5, is not complete and was left out");
	clv_trace_free(t);
}
END_TEST

START_TEST(damaged_anywhere)
{
	struct clv_rng rng = {.state = 3};
	char text[sizeof(basic)];
	static const char replacements[] = ",\n\r \0x0(:.-9\xff";
	for (int round = 0; round < 40000; round++) {
		memcpy(text, basic, sizeof(text));
		for (uint64_t n = clv_rng_range(&rng, 1, 3); n-- > 0;)
			text[clv_rng_below(&rng, sizeof(text) - 1)] =
				clv_rng_below(&rng, 2) ? replacements[clv_rng_below(&rng, sizeof(replacements))]
						       : (char)clv_rng_next(&rng);
		clv_trace_free(import_bytes(text, sizeof(text) - 1));
	}
}
END_TEST

START_TEST(out_of_memory)
{
	/* with a cut last line, which needs memory for its note, and one that contradicts */
	static const char *const texts[] = {HEADER "1,10:00:00,allocate,0x1000,8,0x0\n1,10:0", HEADER
					    "1,10:00:00,allocate,0x1000,8,0x0\n1,10:00:00,allocate,0x1000,8,0x0\n"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(texts); i++) {
		uint64_t n = 1;
		for (;; n++) {
			clv_mem_fail_after(n);
			struct clv_trace *t = import_bytes(texts[i], strlen(texts[i]));
			clv_mem_fail_after(0);
			clv_trace_free(t);
			if (t || !strstr(err.text, "out of host memory"))
				break;
			ck_assert_str_eq(err.text, "l: out of host memory");
		}
		ck_assert_uint_gt(n, 8);
	}
}
END_TEST

CHECK_MAIN("rmm_csv", rows, layouts, times, midnight, odd_rows, refusals, lines_without_end, cut_anywhere,
	   damaged_anywhere, out_of_memory)
