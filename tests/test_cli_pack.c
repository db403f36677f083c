/* SPDX-License-Identifier: MIT
 *
 * `cleave pack` as users call it. The tables have one packing that is as low as can be, so that what is written is known
 * to the byte.
 */
#include "../src/cli/pack_time.h"
#include "cli_run.h"
#include "json_expect.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The third is told to lie at 4, so the first and the second, which both meet it and not each other, go below: at 0. */
static const char table[] = "id,lower,upper,size,offset\n"
			    "a,0,3,4,\n"
			    "b,3,9,4,\n"
			    "c,0,9,6,4\n";

#define HEAD "id,lower,upper,size\n"
#define MORE "id,lower,upper,size,alignment,offset,gaps\n"

static char *content(const char *name)
{
	static char buf[65536];
	FILE *f = fopen(cli_path(name), "rb");
	ck_assert_msg(f != NULL, "no %s", name);
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = '\0';
	fclose(f);
	return buf;
}

static json_t *document(struct cli_result r, int status)
{
	ck_assert_msg(r.status == status, "status %d: %s%s", r.status, r.err, r.out);
	json_error_t error;
	json_t *doc = json_loads(r.out, JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(doc != NULL, "%s: %s", error.text, r.out);
	return doc;
}

/* What is written for a table. */
static void writes(const char *in, const char *out)
{
	cli_text("in.csv", in);
	struct cli_result r = cli_run("pack", "in.csv", "-o", "out.csv", NULL);
	ck_assert_msg(r.status == 0, "%s: %s", in, r.err);
	ck_assert_str_eq(r.err, "");
	ck_assert_str_eq(content("out.csv"), out);
	ck_assert_str_eq(content("in.csv"), in);
}

START_TEST(json)
{
	static const char *const keys[] = {"buffers", "lower_bound", "height", "optimal", "fits", "seconds"};
	cli_text("t.csv", table);
	json_t *doc = document(cli_run("pack", "t.csv", "--json", NULL), 0), *v;
	const char *key;
	size_t i = 0;
	json_object_foreach(doc, key, v)
	{
		ck_assert_uint_lt(i, CLV_ARRAY_LEN(keys));
		ck_assert_str_eq(key, keys[i++]);
	}
	ck_assert_uint_eq(i, CLV_ARRAY_LEN(keys));
	ck_assert_int_eq(whole(doc, "buffers"), 3);
	ck_assert_int_eq(whole(doc, "lower_bound"), 10);
	ck_assert_int_eq(whole(doc, "height"), 10);
	ck_assert(json_is_true(json_object_get(doc, "optimal")));
	ck_assert(json_is_true(json_object_get(doc, "fits")));
	ck_assert_double_ge(real(doc, "seconds"), 0);
	json_decref(doc);
	doc = document(cli_run("pack", "--json", "--capacity=9", "t.csv", NULL), 1);
	ck_assert(json_is_false(json_object_get(doc, "fits")));
	ck_assert_int_eq(whole(doc, "height"), 10);
	json_decref(doc);
	doc = document(cli_run("pack", "t.csv", "--json", "--capacity", "10", "--time-limit", "5", "--seed", "3",
			       "--effort", "1000000", NULL),
		       0);
	ck_assert(json_is_true(json_object_get(doc, "fits")));
	json_decref(doc);
}
END_TEST

START_TEST(text)
{
	cli_text("t.csv", table);
	struct cli_result r = cli_run("pack", "t.csv", "--capacity", "1KiB", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_str_eq(r.err, "");
	static const char *const lines[] = {"buffers      3\n",
					    "lower bound  10\n",
					    "height       10\n",
					    "gap          0 (0.000 %",
					    "optimal      yes, proved",
					    "fits         yes, the capacity is 1024\n",
					    "time         "};
	for (size_t i = 0; i < CLV_ARRAY_LEN(lines); i++)
		ck_assert_msg(strstr(r.out, lines[i]) != NULL, "no '%s' in %s", lines[i], r.out);
	/* without a capacity everything fits, which is not worth a line */
	r = cli_run("pack", "t.csv", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_null(strstr(r.out, "fits"));
	r = cli_run("pack", "t.csv", "--capacity", "9", "-o", "out.csv", NULL);
	ck_assert_int_eq(r.status, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "fits         no, the capacity is 9\n"));
	ck_assert_ptr_nonnull(strstr(content("out.csv"), "a,0,3,4,0\n")); /* the best there is */
}
END_TEST

START_TEST(every_byte_is_kept)
{
	writes(table, "id,lower,upper,size,offset\na,0,3,4,0\nb,3,9,4,0\nc,0,9,6,4\n");
	/* no such column: a new last one */
	writes("id,lower,upper,size\na,0,3,4\nb,3,9,4\n", "id,lower,upper,size,offset\na,0,3,4,0\nb,3,9,4,0\n");
	/* without a last newline, with CRLF, and both mixed */
	writes("id,lower,upper,size\na,0,3,4", "id,lower,upper,size,offset\na,0,3,4,0");
	writes("id,lower,upper,size\r\na,0,3,4\r\nb,3,9,4\r\n",
	       "id,lower,upper,size,offset\r\na,0,3,4,0\r\nb,3,9,4,0\r\n");
	writes("id,lower,upper,size\r\na,0,3,4\nb,3,9,4\r\n", "id,lower,upper,size,offset\r\na,0,3,4,0\nb,3,9,4,0\r\n");
	/* a byte order mark; any order; other columns, with their quotes, commas, newlines and what is not ASCII */
	writes("\xef\xbb\xbfsize,what,upper,id,lower\n4,\"x, \"\"y\"\"\n,z\",3,\"a\",0\n4,\xc3\xa9 ,9,b,3\n",
	       "\xef\xbb\xbfsize,what,upper,id,lower,offset\n4,\"x, \"\"y\"\"\n,z\",3,\"a\",0,0\n4,\xc3\xa9 ,9,b,3,0\n");
	/* quoted numbers and names; an offset that was given stays as it was written */
	writes("\"offset\",id,\"lower\",upper,size\n\"\",a,\"0\",3,\"4\"\n\"04\",c,0,9,006\n,b,3,9,4\n",
	       "\"offset\",id,\"lower\",upper,size\n0,a,\"0\",3,\"4\"\n\"04\",c,0,9,006\n0,b,3,9,4\n");
	/* names that are nearly those of a column are others; so is one without a name, and one that is there twice */
	writes("id,lower,upper,size,Offset,,note,note\na,0,3,4,,7,,\n",
	       "id,lower,upper,size,Offset,,note,note,offset\na,0,3,4,,7,,,0\n");
	/* no buffers at all */
	writes("id,lower,upper,size", "id,lower,upper,size,offset");
	writes("id,lower,upper,size\n", "id,lower,upper,size,offset\n");
	writes("id,lower,upper,size,offset\n", "id,lower,upper,size,offset\n");
}
END_TEST

START_TEST(what_columns_mean)
{
	/* half open: the second begins when the first ends; negative times; lives and sizes of nothing */
	writes("id,lower,upper,size\na,-9,-3,4\nb,-3,-1,4\nc,-5,-5,9\nk,-9,-1,0\n",
	       "id,lower,upper,size,offset\na,-9,-3,4,0\nb,-3,-1,4,0\nc,-5,-5,9,0\nk,-9,-1,0,0\n");
	/* the extremes of time */
	writes("id,lower,upper,size\na,-9223372036854775808,9223372036854775807,4\n",
	       "id,lower,upper,size,offset\na,-9223372036854775808,9223372036854775807,4,0\n");
	/* in the gaps of the first there is room for others: 0 to 4 throughout */
	writes("id,lower,upper,size,gaps\na,-9,9,4,-8--6 -1-1  4-5\nb,-8,-6,4,\nc,0,1,4,\"\"\nk,4,5,4,4-5\n",
	       "id,lower,upper,size,gaps,offset\na,-9,9,4,-8--6 -1-1  4-5,0\nb,-8,-6,4,,0\nc,0,1,4,\"\",0\nk,4,5,4,4-5,0\n");
	/* above one that is fixed at 0, at a multiple of 7 */
	writes("id,lower,upper,size,alignment,offset\na,0,9,3,7,\nb,0,9,5,,0\n",
	       "id,lower,upper,size,alignment,offset\na,0,9,3,7,7\nb,0,9,5,,0\n");
	writes("id,lower,upper,size,alignment,offset\na,0,9,3,0,\nb,0,9,5,,0\n",
	       "id,lower,upper,size,alignment,offset\na,0,9,3,0,5\nb,0,9,5,,0\n");
	/* zero with a sign is zero, and the largest of all that can be said */
	writes("id,lower,upper,size,alignment,offset\na,-0,-00,-0,-0,-0\n",
	       "id,lower,upper,size,alignment,offset\na,-0,-00,-0,-0,-0\n");
	writes(HEAD "a,0,9,4611686018427387903\n", "id,lower,upper,size,offset\na,0,9,4611686018427387903,0\n");
	writes("id,lower,upper,size,offset\na,0,9,1,4611686018427387903\n",
	       "id,lower,upper,size,offset\na,0,9,1,4611686018427387903\n");
	/* ids are texts: these are different */
	cli_text("t.csv",
		 "id,lower,upper,size\n1,0,9,1\n01,0,9,1\n 1,0,9,1\n\"1,\",0,9,1\n\"1\"\"\",0,9,1\n\"1\n\",0,9,1\n");
	json_t *doc = document(cli_run("pack", "t.csv", "--json", NULL), 0);
	ck_assert_int_eq(whole(doc, "buffers"), 6);
	ck_assert_int_eq(whole(doc, "height"), 6);
	json_decref(doc);
}
END_TEST

START_TEST(refuses_tables)
{
	static const struct {
		const char *text, *part;
		size_t size; /* 0: of the text */
	} cases[] = {
		{"", "t.csv:1: the file is empty", 0},
		{"\xef\xbb\xbf", "t.csv:1: the file is empty", 0},
		{"\n", "t.csv:1: there is no column 'id'", 0},
		{"id,lower,upper\n", "t.csv:1: there is no column 'size'", 0},
		{"id;lower;upper;size\n",
		 "no column 'id' in 'id;lower;upper;size'; expected names in lower case and commas", 0},
		{"ID,lower,upper,size\n", "t.csv:1: there is no column 'id' in 'ID,lower,upper,size'; expected", 0},
		{"\xef\xbb\xbfID,lower\n", "t.csv:1: there is no column 'id' in 'ID,lower'; expected", 0},
		{"id, lower,upper,size\n", "t.csv:1: there is no column 'lower'", 0},
		{"lower,upper,size,x\n", "t.csv:1: there is no column 'id'", 0},
		{"id,lower,upper,size,size\n", "t.csv:1: the column 'size' is there twice", 0},
		{"id,lower,gaps,upper,size,\"gaps\"\n", "t.csv:1: the column 'gaps' is there twice", 0},
		{HEAD "a,0,3,4\nb,0,3\n", "t.csv:3: 3 fields; expected 4", 0},
		{HEAD "a,0,3,4\nb,0,3,4,\n", "t.csv:3: 5 fields; expected 4", 0},
		{HEAD "a\n", "t.csv:2: 1 field; expected 4", 0},
		{HEAD "a,0,3,4\n\nb,0,3,4\n", "t.csv:3: an empty line", 0},
		{HEAD "a,0,3,4\n\n", "t.csv:3: an empty line", 0},
		{HEAD ",0,3,4\n", "t.csv:2: id: is empty", 0},
		{HEAD "a,,3,4\n", "t.csv:2: lower: '' is no whole number; expected -9223372036854775808 to", 0},
		{HEAD "a,0,3,\n", "t.csv:2: size: '' is no whole number; expected 0 to", 0},
		{HEAD "a,x,3,4\n", "t.csv:2: lower: 'x' is no whole number", 0},
		{HEAD "a,0,3 ,4\n", "t.csv:2: upper: '3 ' is no whole number", 0},
		{HEAD "a,0,3.0,4\n", "t.csv:2: upper: '3.0' is no whole number", 0},
		{HEAD "a,0,3,1e3\n", "t.csv:2: size: '1e3' is no whole number", 0},
		{HEAD "a,0,3,0x4\n", "t.csv:2: size: '0x4' is no whole number", 0},
		{HEAD "a,0,3,+4\n", "t.csv:2: size: '+4' is no whole number", 0},
		{HEAD "a,0,3,-\n", "t.csv:2: size: '-' is no whole number", 0},
		{HEAD "a,0,3,4KiB\n", "t.csv:2: size: '4KiB' is no whole number", 0},
		{HEAD "a,0,3,-4\n", "t.csv:2: size: '-4' is negative; expected 0", 0},
		{HEAD "a,0,3,18446744073709551616\n", "t.csv:2: size: '18446744073709551616' is too large", 0},
		{HEAD "a,0,3,99999999999999999999999999999999999999999999999999999\n", "999...' is too large", 0},
		{HEAD "a,9223372036854775808,3,4\n", "t.csv:2: lower: '9223372036854775808' is too large", 0},
		{HEAD "a,-9223372036854775809,3,4\n", "t.csv:2: lower: '-9223372036854775809' is too small", 0},
		{HEAD "a,-99999999999999999999,3,4\n", "t.csv:2: lower: '-99999999999999999999' is too small", 0},
		{HEAD "a,0,3,-99999999999999999999\n", "t.csv:2: size: '-99999999999999999999' is negative", 0},
		{HEAD "a,0,3,4611686018427387904\n", "is too large; expected 0 to 4611686018427387903", 0},
		{HEAD "a,0,3,4611686018427387903\nb,5,6,4611686018427387903\n", "t.csv:3: 'b'", 0},
		{HEAD "x,0,3,4\na,4,3,4\n", "t.csv:3: 'a' dies at 3, before its birth at 4", 0},
		{HEAD "a,0,3,4\nb,0,3,4\na,0,3,4\n", "t.csv:4: id: 'a' is that of line 2 already", 0},
		{HEAD "a,0,3,4\n\"a\",5,6,4\n", "t.csv:3: id: 'a' is that of line 2 already", 0},
		{HEAD "\"a\nb\",0,3,4\nx,0,3,4\n\"a\nb\",5,6,4\n", "t.csv:5: id: 'a?b' is that of line 2 already", 0},
		{MORE "a,0,3,4,-1,,\n", "t.csv:2: alignment: '-1' is negative", 0},
		{MORE "a,0,3,4,x,,\n", "t.csv:2: alignment: 'x' is no whole number", 0},
		{MORE "a,0,3,4,4611686018427387904,,\n", "is too large; expected 0 to 4611686018427387903", 0},
		{MORE "a,0,3,4,4611686018427387903,,\n", "t.csv:2: 'a'", 0},
		{MORE "a,0,3,4,,-1,\n", "t.csv:2: offset: '-1' is negative", 0},
		{MORE "a,0,3,4,, ,\n", "t.csv:2: offset: ' ' is no whole number", 0},
		{MORE "a,0,3,4,,18446744073709551615,\n", "t.csv:2: offset: '18446744073709551615' is too large", 0},
		{MORE "a,0,3,4,,4611686018427387904,\n", "is too large; expected 0 to 4611686018427387903", 0},
		{MORE "a,0,9,4,,,3\n", "t.csv:2: gaps: '3' is no list of spans", 0},
		{MORE "a,0,9,4,,,3-\n", "t.csv:2: gaps: '3-' is no list of spans", 0},
		{MORE "a,0,9,4,,,3-x\n", "t.csv:2: gaps: '3-x' is no list of spans", 0},
		{MORE "a,0,9,4,,,3 - 4\n", "t.csv:2: gaps: '3 - 4' is no list of spans", 0},
		{MORE "a,0,9,4,,,3-4;5-6\n", "t.csv:2: gaps: '3-4;5-6' is no list of spans", 0},
		{MORE "a,0,9,4,,,3-4@1:2\n", "t.csv:2: gaps: '3-4@1:2' is no list of spans", 0},
		{MORE "a,0,9,4,,,3-99999999999999999999\n", "has a time that is too large", 0},
		{MORE "a,0,9,4,,,-99999999999999999999-3\n", "has a time that is too small", 0},
		{MORE "a,0,9,4,,,-9223372036854775809-9223372036854775808\n", "has a time that is too small", 0},
		{MORE "a,0,9,4,,,-1-2\n", "t.csv:2: 'a'", 0},
		{MORE "a,0,9,4,,,8-10\n", "t.csv:2: 'a'", 0},
		{MORE "a,0,9,4,,,4-3\n", "t.csv:2: 'a'", 0},
		{MORE "a,0,9,4,,,3-3\n", "t.csv:2: 'a'", 0},
		{MORE "a,0,9,4,,,3-5 4-6\n", "t.csv:2: 'a'", 0},
		{MORE "a,0,9,4,,,5-6 1-2\n", "t.csv:2: 'a'", 0},
		{MORE "a,0,9,4,,2,\nb,0,9,4,,,\nc,8,9,4,,5,\n", "t.csv:4: 'a' (line 2) and 'c' are live at one time",
		 0},
		{HEAD "a,0,3,4\n\"b,0,3,4\nc,0,3,4\n", "t.csv:3: a quote opens here and is never closed", 0},
		{HEAD "\"a\"x,0,3,4\n", "t.csv:2: text after a closing quote", 0},
		{HEAD "\"a\" ,0,3,4\n", "t.csv:2: text after a closing quote", 0},
		{HEAD "a\"b\",0,3,4\n", "t.csv:2: a quote in a field that does not begin with one", 0},
		{HEAD "a,0,3,4\rb,0,3,4\r", "t.csv:2: a carriage return without a line feed", 0},
		{HEAD "a,0,3,4\r", "t.csv:2: a carriage return without a line feed", 0},
		{"id,lower,upper,size\na,0,3,4\nb\0,0,3,4\n", "t.csv:3: a NUL byte", 38},
		{"id,lower,upper,size\na,0,3,4\n\"b\0\",0,3,4\n", "t.csv:3: a NUL byte", 40},
		{"i\0d\0", "t.csv:1: a NUL byte", 4},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		size_t size = cases[i].size ? cases[i].size : strlen(cases[i].text);
		cli_file("t.csv", cases[i].text, size);
		struct cli_result r = cli_run("pack", "t.csv", "-o", "out.csv", NULL);
		cli_assert_refused(r, cases[i].part);
		cli_assert_refused(r, "cleave pack: t.csv:");
		ck_assert_int_ne(access(cli_path("out.csv"), F_OK), 0);
	}
}
END_TEST

START_TEST(refuses_usage)
{
	static const struct {
		const char *option, *value, *part;
	} cases[] = {
		{"--time-limit", NULL, "--time-limit needs a value: S"},
		{"--time-limit", "", "no number of seconds"},
		{"--time-limit", ".", "no number of seconds"},
		{"--time-limit", "x", "'x' is no number of seconds"},
		{"--time-limit", "-1", "no number of seconds"},
		{"--time-limit", "1s", "no number of seconds"},
		{"--time-limit", "1e3", "no number of seconds"},
		{"--time-limit", "0x1", "no number of seconds"},
		{"--time-limit", "inf", "no number of seconds"},
		{"--time-limit", "nan", "no number of seconds"},
		{"--time-limit", " 1", "no number of seconds"},
		{"--time-limit", "1.2.3", "no number of seconds"},
		{"--time-limit", "0", "out of range"},
		{"--time-limit", "0.000", "out of range"},
		{"--time-limit", "1000000001", "out of range"},
		{"--seed", "-1", "whole number"},
		{"--seed", "x", "whole number"},
		{"--seed", "18446744073709551616", "is too large: 0 to 18446744073709551615 are allowed"},
		{"--seed", "18446744073709551616x", "whole number"},
		{"--effort", "0", "out of range"},
		{"--effort", "1.5", "whole number"},
		{"--effort", "9223372036854775808", "out of range"},
		{"--effort", "99999999999999999999", "is too large: 1 to 9223372036854775807 are allowed"},
		{"--capacity", "0", "size of 0"},
		{"--capacity", "-1", "no size"},
		{"--capacity", "ten", "no size"},
		{"--capacity", "18446744073709551616", "is too large: sizes go to 18446744073709551615"},
		{"--capacity", "16777216TiB", "is too large"},
		{"--capacity", "18446744073709551616.5", "no size"},
		{"--capacity", "18446744073709551616GiBs", "no size"},
		{"-o", "", "not empty"},
		{"--json=1", NULL, "takes no value"},
		{"--what", NULL, "--what"},
	};
	cli_text("t.csv", table);
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++)
		cli_assert_refused(cli_run("pack", "t.csv", cases[i].option, cases[i].value, NULL), cases[i].part);
	cli_assert_refused(cli_run("pack", NULL), "FILE.csv is missing");
	cli_assert_refused(cli_run("pack", "t.csv", "t.csv", NULL), "one argument too many");
	cli_assert_refused(cli_run("pack", "missing.csv", NULL), "missing.csv: No such file");
	cli_assert_refused(cli_run("pack", ".", NULL), "a directory");
	cli_assert_refused(cli_run("pack", "/dev/null", NULL), "not a regular file");
	static const char *const limits[] = {"0.5", ".5", "5.", "5", "1000000000", "0.0000001"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(limits); i++)
		ck_assert_int_eq(cli_run("pack", "t.csv", "--time-limit", limits[i], NULL).status, 0);
}
END_TEST

/* What is there stays as it is until all of the new file is. */
START_TEST(files_appear_when_complete)
{
	cli_text("t.csv", table);
	cli_assert_refused(cli_run("pack", "t.csv", "-o", "no/folder", NULL), "no/folder: cannot be created");
	cli_assert_refused(cli_run("pack", "t.csv", "-o", ".", NULL), "not a regular file");
	cli_assert_refused(cli_run("pack", "t.csv", "-o", "/dev/null", NULL), "not a regular file");
	/* a place that cannot be written is told before the input is even looked at */
	cli_assert_refused(cli_run("pack", "missing.csv", "-o", "no/folder", NULL), "no/folder");
	cli_text("old.csv", "old");
	cli_text("bad.csv", "id\n");
	cli_assert_refused(cli_run("pack", "bad.csv", "-o", "old.csv", NULL), "bad.csv:1");
	ck_assert_str_eq(content("old.csv"), "old");

	static char rows[200000];
	size_t n = (size_t)snprintf(rows, sizeof(rows), HEAD);
	for (int i = 0; i < 8000; i++)
		n += (size_t)snprintf(rows + n, sizeof(rows) - n, "%d,%d,%d,1\n", i, i, i + 1);
	cli_text("rows.csv", rows);
	cli_assert_refused(cli_shell("ulimit -f 8; $CLEAVE pack rows.csv -o old.csv"), "File too large");
	ck_assert_str_eq(content("old.csv"), "old");
	ck_assert_int_eq(cli_shell("ls *.part*").status, 2);
	ck_assert_int_eq(cli_run("pack", "rows.csv", "-o", "old.csv", NULL).status, 0);
	ck_assert_int_eq(cli_shell("sed 's/$/,0/; 1s/0$/offset/' rows.csv | cmp - old.csv").status, 0);
	/* in its own place */
	ck_assert_int_eq(cli_run("pack", "t.csv", "-o", "t.csv", NULL).status, 0);
	ck_assert_str_eq(content("t.csv"), "id,lower,upper,size,offset\na,0,3,4,0\nb,3,9,4,0\nc,0,9,6,4\n");
	/* and again, where all are fixed */
	ck_assert_int_eq(cli_run("pack", "t.csv", "-o", "t.csv", NULL).status, 0);
	ck_assert_str_eq(content("t.csv"), "id,lower,upper,size,offset\na,0,3,4,0\nb,3,9,4,0\nc,0,9,6,4\n");
	if (access("/dev/full", W_OK) == 0)
		cli_assert_refused(cli_shell("\"$CLEAVE\" pack t.csv --json >/dev/full"), "standard output: No space");
}
END_TEST

/* The limit is one on the whole command: what comes after the search has its share, and so has the search. */
START_TEST(time_is_shared_out)
{
	for (int read = 0; read <= 40; read++)
		for (int writes = 0; writes < 2; writes++) {
			double reading = read / 16., left = clv_pack_time_left(2, reading, writes);
			ck_assert_double_ge(left, 0.5);
			ck_assert_double_le(left, 2);
			if (left > 0.5)
				ck_assert_double_le(reading + left + (writes ? reading / 2 : reading / 16), 2);
			if (reading <= 0.75)
				ck_assert_double_ge(left, 2 - 2 * reading);
		}
	/* a table that takes most of the limit to be read is packed all the same */
	static char row[1 << 20];
	FILE *f = fopen(cli_path("wide.csv"), "w");
	ck_assert_ptr_nonnull(f);
	fputs("id,lower,upper,size,note\n", f);
	memset(row, 'x', sizeof(row) - 1);
	for (int i = 0; i < 20; i++)
		fprintf(f, "%d,0,9,1,%s\n", i, row);
	ck_assert_int_eq(fclose(f), 0);
	json_t *doc = document(cli_run("pack", "wide.csv", "--time-limit", "0.01", "--json", "-o", "out.csv", NULL), 0);
	ck_assert_int_eq(whole(doc, "height"), 20);
	json_decref(doc);
}
END_TEST

/* Random lives, twice: the same file. */
START_TEST(the_same_again)
{
	static char rows[20000];
	struct clv_rng rng = {.state = 11};
	size_t n = (size_t)snprintf(rows, sizeof(rows), HEAD);
	for (int i = 0; i < 300; i++) {
		int lower = (int)clv_rng_below(&rng, 1000), life = (int)clv_rng_range(&rng, 1, 300);
		n += (size_t)snprintf(rows + n, sizeof(rows) - n, "%d,%d,%d,%d\n", i, lower, lower + life,
				      (int)clv_rng_range(&rng, 1, 100));
	}
	cli_text("t.csv", rows);
	for (int i = 0; i < 2; i++) {
		const char *out = i ? "b.csv" : "a.csv";
		ck_assert_int_eq(cli_run("pack", "t.csv", "--seed", "5", "--effort", "3000000", "-o", out, NULL).status,
				 0);
	}
	ck_assert_int_eq(cli_shell("cmp a.csv b.csv").status, 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {json,           text,          every_byte_is_kept,         what_columns_mean,
				      refuses_tables, refuses_usage, files_appear_when_complete, time_is_shared_out,
				      the_same_again};
	return cli_suite("cli_pack", tests, CLV_ARRAY_LEN(tests));
}
