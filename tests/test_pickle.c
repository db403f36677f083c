/* SPDX-License-Identifier: MIT
 *
 * The pickle reader alone: what each opcode makes, what is refused and where, and that nothing it is fed makes it
 * crash.
 */
#include "../tracing/import/pickle_internal.h"
#include "../tracing/memory.h"
#include "check_main.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text that grows; what a value looks like. */
struct text {
	char buf[65536];
	size_t len;
};

static void add(struct text *t, const char *fmt, ...) CLV_PRINTF(2, 3);

static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(t->buf + t->len, sizeof(t->buf) - t->len, fmt, ap);
	va_end(ap);
	ck_assert_int_ge(n, 0);
	t->len = clv_min_u64(t->len + (size_t)n, sizeof(t->buf) - 1); /* what is longer is cut */
}

static void show(const struct clv_pickle *p, clv_pk v, struct text *t, int depth)
{
	uint64_t u, run, offset;
	int64_t a, b;
	double d;
	const char *s;
	size_t len, count, at = 0;
	const clv_pk *items;
	clv_pk item;
	if (depth > 12 || t->len > sizeof(t->buf) - 64) { /* a list may contain itself */
		add(t, "...");
		return;
	}
	switch (clv_pk_tag(v)) {
	case CLV_PK_NONE:
		add(t, "None");
		break;
	case CLV_PK_BOOL:
		add(t, "%s", clv_pk_payload(v) ? "True" : "False");
		break;
	case CLV_PK_INT:
	case CLV_PK_BIG:
	case CLV_PK_BIGNEG:
		if (clv_pickle_u64(p, v, &u))
			add(t, "%llu", (unsigned long long)u);
		else if (clv_pickle_i64(p, v, &a))
			add(t, "%lld", (long long)a);
		else
			ck_abort_msg("an integer that is none");
		break;
	case CLV_PK_FLOAT:
		ck_assert(clv_pickle_double(p, v, &d));
		add(t, "%g", d);
		break;
	case CLV_PK_STR:
		ck_assert(clv_pickle_string(p, v, &s, &len));
		add(t, "'%.*s'", (int)len, s);
		break;
	case CLV_PK_PAIR:
		ck_assert(clv_pickle_pair(p, v, &a, &b));
		add(t, "(%lld, %lld)", (long long)a, (long long)b);
		break;
	case CLV_PK_DICT:
		ck_assert(clv_pickle_items(p, v, &items, &count, &offset));
		add(t, "{");
		for (size_t i = 0; i + 1 < count; i += 2) {
			add(t, "%s", i ? ", " : "");
			show(p, items[i], t, depth + 1);
			add(t, ": ");
			show(p, items[i + 1], t, depth + 1);
		}
		add(t, "}");
		break;
	case CLV_PK_LIST:
		ck_assert(clv_pickle_items(p, v, &items, &count, &offset));
		add(t, "[");
		while (clv_pickle_next(items, count, &at, &item, &run)) {
			add(t, "%s", t->buf[t->len - 1] == '[' ? "" : ", ");
			show(p, item, t, depth + 1);
			if (run != 1)
				add(t, "*%llu", (unsigned long long)run);
		}
		add(t, "]");
		break;
	case CLV_PK_OPAQUE:
		add(t, "?");
		break;
	case CLV_PK_EVENT:
		add(t, "e%llu", (unsigned long long)clv_pk_payload(v));
		break;
	case CLV_PK_STACK:
		add(t, "s%llu", (unsigned long long)clv_pk_payload(v));
		break;
	default:
		ck_abort_msg("a record that nobody made");
	}
}

/* The user of these tests: a dict with the key 'e' is an event, numbered in order; a list of strings alone is a stack,
 * whose number is its length. */
struct user {
	uint64_t events;
	uint64_t last_offset;
};

static bool on_dict(void *arg, struct clv_pickle *p, const clv_pk *items, size_t count, uint64_t offset, clv_pk *out)
{
	struct user *u = arg;
	for (size_t i = 0; i + 1 < count; i += 2)
		if (items[i] == clv_pk_make(CLV_PK_STR, 1)) {
			*out = clv_pk_make(CLV_PK_EVENT, u->events++);
			u->last_offset = offset;
			return true;
		}
	for (size_t i = 0; i + 1 < count; i += 2)
		if (items[i] == clv_pk_make(CLV_PK_STR, 0))
			return clv_pickle_error(p, offset, "refused by the user");
	return true;
}

static bool on_list(void *arg, struct clv_pickle *p, const clv_pk *items, size_t count, clv_pk *out)
{
	for (size_t i = 0; i < count; i++)
		if (clv_pk_tag(items[i]) != CLV_PK_STR)
			return true;
	*out = clv_pk_make(CLV_PK_STACK, count);
	return true;
}

static const char *const known[] = {"refuse", "e"};

/* Reads a pickle and shows its root, or the error. */
static const char *read_bytes(const void *data, size_t size)
{
	static struct text t;
	static struct clv_error err;
	struct user u = {0};
	err.text[0] = '\0';
	t.len = 0;
	/* a copy of exactly this size, so that a sanitizer sees each byte read beyond it */
	uint8_t *copy = malloc(size ? size : 1);
	memcpy(copy, data, size);
	const struct clv_input in = {.name = "p", .data = copy, .size = size};
	const struct clv_pickle_user user = {on_dict, on_list, known, CLV_ARRAY_LEN(known), &u};
	struct clv_pickle *p = clv_pickle_open(&in, &user, &err);
	clv_pk root;
	bool ok = p && clv_pickle_run(p, &root);
	if (ok)
		show(p, root, &t, 0);
	ck_assert_msg(ok == (err.text[0] == '\0'), "%s", err.text);
	clv_pickle_close(p);
	free(copy);
	return ok ? t.buf : err.text;
}

#define READ(literal) read_bytes(literal, sizeof(literal) - 1)
#define IS(literal, expected) ck_assert_str_eq(READ("\x80\x02" literal "."), expected)

static bool refused(const char *text)
{
	return strncmp(text, "p: ", 3) == 0;
}

START_TEST(numbers)
{
	IS("K\x00", "0");
	IS("K\xff", "255");
	IS("M\xff\xff", "65535");
	IS("J\xff\xff\xff\x7f", "2147483647");
	IS("J\xff\xff\xff\xff", "-1");
	IS("J\x00\x00\x00\x80", "-2147483648");
	IS("\x8a\x00", "0");
	IS("\x8a\x01\xff", "-1");
	IS("\x8a\x02\xff\x00", "255");
	IS("\x8a\x06\x00\x02\x34\xf2\x19\x7f", "139749414404608");
	IS("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807");
	IS("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80", "-9223372036854775808");
	IS("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x08",
	   "576460752303423488"); /* 2^59: the first that does not fit a value */
	IS("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x07", "576460752303423487");
	IS("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\xf8", "-576460752303423488");
	IS("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xf7", "-576460752303423489");
	IS("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00", "18446744073709551615");
	IS("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01", "?");  /* 2^64 */
	IS("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff", "?");  /* below -2^63 */
	IS("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff", "-1"); /* needlessly long */
	IS("\x8a\x0b\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "5");
	IS("\x8b\x03\x00\x00\x00\x01\x02\x03", "197121");
	IS("\x8b\x00\x00\x00\x00", "0");
	IS("G\x3f\xf8\x00\x00\x00\x00\x00\x00", "1.5");
	IS("G\xbf\xe0\x00\x00\x00\x00\x00\x00", "-0.5");
	IS("\x88", "True");
	IS("\x89", "False");
	IS("N", "None");
	IS("I12\n", "12");
	IS("I-12\n", "-12");
	IS("I00\n", "False");
	IS("I01\n", "True");
	IS("I140652293652480\n", "140652293652480");
	IS("L5L\n", "5");
	IS("L-9223372036854775808L\n", "-9223372036854775808");
	IS("L18446744073709551615L\n", "18446744073709551615");
	IS("L18446744073709551616L\n", "?");
	IS("L-9223372036854775809L\n", "?");
	IS("L999999999999999999999999999999999999999999999999999999999999L\n", "?");
	static const char *const bad[] = {"I\n", "I-\n", "Ix\n", "I1x\n", "I 1\n", "L\n", "LL\n", "L-L\n", "I5L\n"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(bad); i++) {
		char data[32];
		int n = snprintf(data, sizeof(data), "\x80\x02%s.", bad[i]);
		const char *got = read_bytes(data, (size_t)n);
		ck_assert_msg(strstr(got, "is no number") != NULL, "%s: %s", bad[i], got);
	}
}
END_TEST

START_TEST(texts)
{
	IS("X\x03\x00\x00\x00"
	   "abc",
	   "'abc'");
	IS("X\x00\x00\x00\x00", "''");
	IS("\x8c\x02hi", "'hi'");
	IS("\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi", "'hi'");
	IS("U\x02hi", "'hi'");
	IS("T\x02\x00\x00\x00hi", "'hi'");
	/* bytes are passed over */
	IS("C\x02hi", "?");
	IS("B\x02\x00\x00\x00hi", "?");
	IS("\x8e\x02\x00\x00\x00\x00\x00\x00\x00hi", "?");
	IS("\x96\x02\x00\x00\x00\x00\x00\x00\x00hi", "?");
	ck_assert(strstr(READ("\x80\x02T\xff\xff\xff\xffhi."),
			 "offset 2: not a valid pickle: BINSTRING of a negative length"));
	ck_assert(strstr(READ("\x80\x02\x8b\xff\xff\xff\xffhi."), "LONG4 of a negative length"));
	ck_assert(strstr(READ("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), "offset 2: the file ends inside"));
}
END_TEST

START_TEST(containers)
{
	IS("]", "[]");
	IS("}", "{}");
	IS(")", "?");
	IS("]K\x01"
	   "a",
	   "[1]");
	IS("](K\x01K\x02"
	   "e",
	   "[1, 2]");
	IS("](K\x01K\x02"
	   "e(K\x03"
	   "e",
	   "[1, 2, 3]");
	IS("](e", "[]");
	IS("(K\x01K\x02l", "[1, 2]");
	IS("(l", "[]");
	IS("}K\x01K\x02s", "{1: 2}");
	IS("}(K\x01K\x02K\x03Nu", "{1: 2, 3: None}");
	IS("}(u", "{}");
	IS("(K\x01K\x02"
	   "d",
	   "{1: 2}");
	IS("(d", "{}");
	IS("K\x01K\x02\x86", "(1, 2)");
	IS("(K\x01K\x02t", "(1, 2)");
	IS("K\x01\x85", "?");
	IS("K\x01K\x02K\x03\x87", "?");
	IS("(t", "?");
	IS("K\x01N\x86", "?");
	IS("](K\x01K\x02\x86K\x01K\x02\x86K\x03K\x02\x86K\x01K\x02\x86"
	   "e",
	   "[(1, 2), (1, 2), (3, 2), (1, 2)]");
	IS("\x8f(K\x01K\x02\x90", "?");
	IS("(K\x01K\x02\x91", "?");
	/* a dict that nobody knows is passed over in a list, and kept as a value */
	IS("]}K\x01K\x02s"
	   "a",
	   "[?]");
	IS("}K\x01}K\x02K\x03s"
	   "s",
	   "{1: {2: 3}}");
	IS("]]K\x01"
	   "a"
	   "a",
	   "[[1]]");
	IS("K\x01K\x02"
	   "0",
	   "1");
	IS("K\x01(K\x02K\x03"
	   "1",
	   "1");
	IS("K\x01("
	   "0",
	   "1"); /* POP takes a mark that is on top */
	IS("]K\x05"
	   "2"
	   "0"
	   "a",
	   "[5]");
	ck_assert(strstr(READ("\x80\x02}(K\x01u."), "SETITEMS finds too few values"));
	ck_assert(strstr(READ("\x80\x02K\x05K\x01"
			      "a."),
			 "APPEND on something that is no list"));
	ck_assert(strstr(READ("\x80\x02K\x05K\x01K\x01s."), "SETITEM on something that is no dict"));
}
END_TEST

START_TEST(memo)
{
	IS("\x8c\x01xq\x05"
	   "0h\x05",
	   "'x'");
	IS("\x8c\x01x\x94\x8c\x01y\x94"
	   "00h\x01",
	   "'y'");
	IS("K\x07r\x03\x00\x00\x00"
	   "0j\x03\x00\x00\x00",
	   "7");
	IS("K\x07p4\n0g4\n", "7");
	IS("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fq\x00"
	   "0h\x00",
	   "9223372036854775807");
	IS("J\xff\xff\xff\xffq\x00"
	   "0h\x00",
	   "-1");
	IS("\x88q\x00N\x94"
	   "00h\x00",
	   "True");
	IS("G\x3f\xf8\x00\x00\x00\x00\x00\x00q\x00"
	   "0h\x00",
	   "1.5");
	IS("K\x01K\x02\x86q\x00"
	   "0h\x00",
	   "(1, 2)");
	IS(")q\x00"
	   "0h\x00",
	   "?");
	/* one list in two places, filled after it was stored */
	IS("](]q\x00h\x00K\x01"
	   "ae",
	   "[[1], [1]]");
	/* a slot that is used twice: the earlier value goes on */
	IS("](\x8c\x01xq\x00\x8c\x01yq\x00h\x00"
	   "e",
	   "['x', 'y', 'y']");
	IS("](]q\x00]q\x00K\x01"
	   "ah\x00"
	   "e",
	   "[[], [1], [1]]");
	ck_assert(strstr(READ("\x80\x02h\x00."), "offset 2: not a valid pickle: nothing has memo index 0"));
	ck_assert(strstr(READ("\x80\x02K\x01q\x02"
			      "0h\x01."),
			 "nothing has memo index 1"));
	ck_assert(
		strstr(READ("\x80\x02K\x01r\xff\xff\xff\xff."), "offset 4: not a valid pickle: memo index 4294967295"));
	ck_assert(strstr(READ("\x80\x02K\x01p-1\n."), "memo index"));
	ck_assert(strstr(READ("\x80\x02K\x01p99999999999999999999\n."), "memo index"));
	ck_assert(strstr(READ("\x80\x02K\x01pz\n."), "PUT is no number"));
}
END_TEST

/* 'e' is an event, so {'e': n} is one. */
#define E                                                                                                              \
	"}\x8c\x01"                                                                                                    \
	"eK\x05s"
#define WHOLE                                                                                                          \
	"}(\x8c\x01"                                                                                                   \
	"eK\x05u"

START_TEST(records)
{
	IS("](" WHOLE WHOLE WHOLE "e", "[e0*3]");
	IS("](" E E "e", "[e0*2]");          /* SETITEM by SETITEM: known when they are appended */
	IS("]" E "a" E "a" E "a", "[e0*3]"); /* lists that grow one by one make runs as well */
	IS("](" WHOLE "K\x01" WHOLE WHOLE "e", "[e0, 1, e1*2]");
	IS("](](" WHOLE WHOLE "e](" WHOLE "ee", "[[e0*2], [e2]]");
	/* an event that is fetched again is the same event, and breaks the run */
	IS("](" WHOLE "q\x00" WHOLE "h\x00" WHOLE "e", "[e0*2, e0, e2]");
	IS("](" WHOLE "q\x00h\x00"
	   "e",
	   "[e0, e0]");
	IS("](" WHOLE "2e", "[e0, e0]");
	/* one that was shared before it was complete becomes one for each use */
	IS("](}q\x00h\x00(\x8c\x01"
	   "eK\x05ue",
	   "[e0*2]");
	/* a raw length in the list must not be taken for a value: 0x1f looks like the tag of an event */
	IS("](" WHOLE "K\x01" WHOLE "e", "[e0, 1, e1]");
	/* lists of texts as values are stacks, wherever they come from */
	IS("}(K\x01](\x8c\x01x\x8c\x01yeu", "{1: s2}");
	IS("}(K\x01](\x8c\x01x\x8c\x01yeq\x00K\x02h\x00u", "{1: s2, 2: s2}");
	IS("}(K\x01](\x8c\x01x\x8c\x01yeq\x00uK\x03h\x00s", "{1: s2, 3: s2}");
	IS("}(K\x01]q\x00K\x02h\x00u", "{1: [], 2: []}");
	/* a record cannot change any more */
	ck_assert(strstr(READ("\x80\x02" WHOLE "K\x01K\x02s."),
			 "SETITEM on something that is no dict that can still change"));
	ck_assert(strstr(READ("\x80\x02}(K\x01](\x8c\x01xeq\x00u0h\x00\x8c\x01ya."),
			 "APPEND on something that is no list"));
	/* the user's own refusal has the offset of the dict */
	ck_assert_str_eq(READ("\x80\x02NN}(\x8c\x06refuseK\x05u."), "p: offset 4: refused by the user");
	ck_assert_str_eq(READ("\x80\x02N]}\x8c\x06refuseK\x05sa."), "p: offset 4: refused by the user");
}
END_TEST

START_TEST(protocols)
{
	ck_assert_str_eq(READ("\x80\x02K\x01."), "1");
	ck_assert_str_eq(READ("\x80\x03K\x01."), "1");
	ck_assert_str_eq(READ("\x80\x04\x95\x03\0\0\0\0\0\0\0K\x01."), "1");
	ck_assert_str_eq(READ("\x80\x05\x95\x03\0\0\0\0\0\0\0K\x01."), "1");
	ck_assert_str_eq(READ("\x80\x04K\x01.what follows is no matter"), "1");
	static const uint8_t others[] = {0, 1, 6, 255};
	for (size_t i = 0; i < sizeof(others); i++) {
		uint8_t data[] = {0x80, others[i], 'N', '.'};
		char expected[80];
		snprintf(expected, sizeof(expected), "p: offset 0: a pickle of protocol %u; protocols 2 to 5 are read",
			 others[i]);
		ck_assert_str_eq(read_bytes(data, sizeof(data)), expected);
	}
}
END_TEST

START_TEST(refuses_what_builds_objects)
{
	static const struct {
		uint8_t op;
		const char *name;
	} cases[] = {{'c', "GLOBAL"},    {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},          {'b', "BUILD"},
		     {'i', "INST"},      {'o', "OBJ"},           {0x81, "NEWOBJ"},         {0x92, "NEWOBJ_EX"},
		     {0x82, "EXT1"},     {0x83, "EXT2"},         {0x84, "EXT4"},           {'P', "PERSID"},
		     {'Q', "BINPERSID"}, {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		/* on a stack where it would work, and followed by what it would want */
		uint8_t data[] = {0x80, 4, '(', 'N', 'N', 'N', cases[i].op, 'o', 's', '\n', 'x', '\n', '.'};
		char expected[200];
		snprintf(
			expected, sizeof(expected),
			"p: offset 6: the opcode %s builds objects or runs code; a memory snapshot holds only data, so it is "
			"refused",
			cases[i].name);
		ck_assert_str_eq(read_bytes(data, sizeof(data)), expected);
	}
	ck_assert_str_eq(READ("\x80\x02S'x'\n."),
			 "p: offset 2: the opcode STRING belongs to protocol 0; protocols 2 to 5 are read");
	ck_assert(strstr(READ("\x80\x02Vx\n."), "the opcode UNICODE belongs to protocol 0"));
	ck_assert(strstr(READ("\x80\x02"
			      "F1.5\n."),
			 "the opcode FLOAT belongs to protocol 0"));
}
END_TEST

/* Every byte as an opcode, on stacks of every shape that matters, followed by any argument: an error or a value, no
 * crash; and those that are not data never succeed. */
START_TEST(every_opcode_everywhere)
{
	static const char data_ops[] =
		"(.012IJKLMNTUXade}eghjl]pqrst)uBCG\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91"
		"\x94\x95\x96";
	static const char *const before[] = {"",  "N", "NN", "NNN", "(",   "((", "(N",     "N(", "N(N",  "](",
					     "]", "}", "}N", "}(",  "}(N", "]N", "]q\x01", "]2", "}(NNu"};
	static const uint8_t fill[] = {0x00, 0x01, 0xff, 'N', '\n'};
	for (int op = 0; op < 256; op++)
		for (size_t b = 0; b < CLV_ARRAY_LEN(before); b++)
			for (size_t f = 0; f < sizeof(fill); f++)
				for (size_t args = 0; args < 14; args++) {
					uint8_t data[64] = {0x80, 4};
					size_t n = 2, before_len = strlen(before[b]);
					memcpy(data + n, before[b], before_len);
					n += before_len;
					data[n++] = (uint8_t)op;
					memset(data + n, fill[f], args);
					n += args;
					data[n++] = '.';
					const char *got = read_bytes(data, n);
					if (op == 0 || !memchr(data_ops, op, sizeof(data_ops) - 1))
						ck_assert_msg(refused(got), "opcode %02x: %s", op, got);
				}
	ck_assert(strstr(READ("\x80\x02\x01."), "offset 2: not a valid pickle: unknown opcode 0x01"));
	ck_assert(strstr(READ("\x80\x02\xff."), "unknown opcode 0xff"));
}
END_TEST

/* One pickle with every opcode that makes data. */
static const char all_opcodes[] =
	"\x80\x04\x95\x10\0\0\0\0\0\0\0]\x94(K\x01M\x01\x02J\x01\x02\x03\x04\x8a\x02\x01\x02\x8b\x02\0\0\0\x01\x02NN\x88\x89"
	"G\x3f\xf8\0\0\0\0\0\0I7\nL8L\n\x8c\x01xq\x01X\x01\0\0\0yr\x02\0\0\0\x8d\x01\0\0\0\0\0\0\0zp3\nU\x01uT\x01\0\0\0t"
	"C\x01"
	"bB\x01\0\0\0b\x8e\x01\0\0\0\0\0\0\0b\x96\x01\0\0\0\0\0\0\0b)N\x85NN\x86NNN\x87(NNt(\x91\x8f(N\x90"
	"h\x01j\x02\0\0\0g3\n(Nl(NNd}NNs}(NNNNu]Na](NNe(NN1N0N20" WHOLE "e.";

START_TEST(cut_anywhere)
{
	const char *whole = READ(all_opcodes);
	ck_assert_msg(whole[0] == '[', "%s", whole);
	for (size_t n = 0; n < sizeof(all_opcodes) - 1; n++) {
		const char *got = read_bytes(all_opcodes, n);
		ck_assert_msg(refused(got), "%zu bytes: %s", n, got);
		ck_assert_msg(n < 2 || strstr(got, "the file ends") != NULL, "%zu bytes: %s", n, got);
	}
	ck_assert_str_eq(READ(""), "p: offset 0: the file ends before the opcode STOP: it was cut short");
	ck_assert(strstr(READ("\x80\x04\x95\xff\0\0\0\0\0\0\0N."), "offset 2: the file ends inside the opcode FRAME"));
	ck_assert(strstr(READ("\x80\x02."), "offset 2: not a valid pickle: STOP finds too few values"));
	ck_assert(strstr(READ("\x80\x02N(."), "STOP finds too few values"));
}
END_TEST

START_TEST(damaged_anywhere)
{
	char data[sizeof(all_opcodes)];
	for (size_t at = 0; at < sizeof(all_opcodes) - 1; at++)
		for (int v = 0; v < 256; v++) {
			memcpy(data, all_opcodes, sizeof(data));
			data[at] = (char)v;
			read_bytes(data, sizeof(data) - 1);
		}
}
END_TEST

START_TEST(random_opcodes)
{
	static const char ops[] = "(012KMNaed}leqh]s)ut\x85\x86\x87\x88\x8f\x90\x91\x94\x8c";
	struct clv_rng rng = {.state = 1};
	for (int round = 0; round < 60000; round++) {
		uint8_t data[80] = {0x80, 4};
		size_t n = 2;
		while (n < 70) {
			uint8_t op = (uint8_t)ops[clv_rng_below(&rng, sizeof(ops) - 1)];
			data[n++] = op;
			if (op == 'K' || op == 'q' || op == 'h')
				data[n++] = (uint8_t)clv_rng_below(&rng, 4);
			else if (op == 'M')
				n += 2;
			else if (op == 0x8c) {
				data[n++] = 1;
				data[n++] = "ex"[clv_rng_below(&rng, 2)];
			}
		}
		data[n++] = '.';
		const char *got = read_bytes(data, n);
		(void)got;
	}
}
END_TEST

/* Nothing recurses: a million lists in each other, dropped in different ways. */
START_TEST(deep)
{
	enum { DEPTH = 1000000 };
	size_t size = 2 + DEPTH * 2 + 8;
	uint8_t *data = malloc(size);
	data[0] = 0x80;
	data[1] = 4;
	memset(data + 2, ']', DEPTH);
	memset(data + 2 + DEPTH, 'a', DEPTH - 1);
	uint8_t *end = data + 2 + 2 * DEPTH - 1;
	memcpy(end, "0N.", 3);
	ck_assert_str_eq(read_bytes(data, (size_t)(end - data) + 3), "None");
	memcpy(end,
	       "q\0"
	       "0N.",
	       5);
	ck_assert_str_eq(read_bytes(data, (size_t)(end - data) + 5), "None");
	memcpy(end, "\x85.", 2);
	ck_assert_str_eq(read_bytes(data, (size_t)(end - data) + 2), "?");
	memset(data + 2, '(', DEPTH);
	memset(data + 2 + DEPTH, 't', DEPTH);
	data[2 + 2 * DEPTH] = '.';
	ck_assert_str_eq(read_bytes(data, 2 + 2 * DEPTH + 1), "?");
	free(data);
}
END_TEST

START_TEST(out_of_memory)
{
	uint64_t n = 1;
	for (;; n++) {
		clv_mem_fail_after(n);
		const char *got = READ(all_opcodes);
		clv_mem_fail_after(0);
		if (got[0] == '[')
			break;
		ck_assert_str_eq(got, "p: out of host memory");
	}
	ck_assert_uint_gt(n, 8);
}
END_TEST

/* Objects of dicts that were turned into records are used again: the memory of the reader does not grow with them. */
START_TEST(records_leave_nothing)
{
	enum { EVENTS = 200000 };
	static const char event[] = WHOLE "\x94";
	size_t n = 4, one = sizeof(event) - 1;
	uint8_t *data = malloc(EVENTS * one + 16);
	memcpy(data, "\x80\x04](", 4);
	for (int i = 0; i < EVENTS; i++, n += one)
		memcpy(data + n, event, one);
	memcpy(data + n, "e.", 2);
	struct clv_error err = {{0}};
	struct user u = {0};
	const struct clv_input in = {.name = "p", .data = data, .size = n + 2};
	const struct clv_pickle_user user = {on_dict, on_list, known, CLV_ARRAY_LEN(known), &u};
	struct clv_pickle *p = clv_pickle_open(&in, &user, &err);
	clv_pk root;
	ck_assert_msg(clv_pickle_run(p, &root), "%s", err.text);
	ck_assert_uint_eq(u.events, EVENTS);
	ck_assert_uint_eq(p->object_count, 2);
	ck_assert_uint_eq(p->box_count, 0);
	ck_assert_uint_eq(p->string_count, 2);
	clv_pickle_close(p);
	free(data);
}
END_TEST

CHECK_MAIN("pickle", numbers, texts, containers, memo, records, protocols, refuses_what_builds_objects,
	   every_opcode_everywhere, cut_anywhere, damaged_anywhere, random_opcodes, deep, out_of_memory,
	   records_leave_nothing)
