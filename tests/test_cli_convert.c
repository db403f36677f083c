/* SPDX-License-Identifier: MIT
 *
 * `cleave convert` as users call it.
 */
#include "../tracing/import/import.h"
#include "cli_run.h"
#include "pickle_maker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char log_text[] = "Thread,Time,Action,Pointer,Size,Stream\n"
			       "1,10:00:00.000001,allocate,0x1000,1000,0x0\n"
			       "1,10:00:00.000002,free,0x1000,1000,0x0\n";

static const char *snapshot(void)
{
	static struct pickle p;
	pickle_begin(&p);
	pickle_text(&p, "device_traces");
	list_begin(&p);
	list_begin(&p);
	pickle_event(&p, "alloc", 0x200000, 1000, 1);
	pickle_event(&p, "free_requested", 0x200000, 1000, 2);
	pickle_event(&p, "free_completed", 0x200000, 1000, 2);
	list_end(&p);
	list_end(&p);
	pickle_text(&p, "segments");
	list_begin(&p);
	pickle_segment(&p, 0, 0x200000, 0x200000, "small");
	list_end(&p);
	pickle_settings(&p, "max_split_size_mb:20", 20971520);
	pickle_end(&p);
	return cli_file("s.pkl", p.data, p.size);
}

static void assert_done(struct cli_result r)
{
	ck_assert_msg(r.status == 0, "%s", r.err);
	ck_assert_str_eq(r.out, "");
	ck_assert_str_eq(r.err, "");
}

START_TEST(converts)
{
	assert_done(cli_run("convert", snapshot(), "--to", "clv", "-o", "s.clv", NULL));
	assert_done(cli_run("convert", cli_text("l.csv", log_text), "--to=clv", "--output=l.clv", NULL));
	/* a .clv file written again is the same file, also in its own place */
	assert_done(cli_run("convert", "s.clv", "--to", "clv", "-o", "again.clv", NULL));
	assert_done(cli_run("convert", "again.clv", "--to", "clv", "-o", "again.clv", NULL));
	ck_assert_int_eq(cli_shell("cmp s.clv again.clv").status, 0);
	/* what replays, replays in the same way */
	assert_done(cli_shell(
		"\"$CLEAVE\" replay s.pkl -p direct --json | sed -e 's/s[.]pkl//' -e 's/torch//' -e 's/\"wall_s.*//' "
		"-e 's/\"events_per_s.*//' >a && \"$CLEAVE\" replay s.clv -p direct --json | sed -e 's/s[.]clv//' "
		"-e 's/clv//' -e 's/\"wall_s.*//' -e 's/\"events_per_s.*//' >b && cmp a b"));
}
END_TEST

/* A recording keeps what it has, and its native frames get names: where the files are not here, of their offsets. */
START_TEST(recordings)
{
	struct clv_error err = {{0}};
	char from[4096];
	const char *data = getenv("CLEAVE_TEST_DATA");
	ck_assert_ptr_nonnull(data);
	snprintf(from, sizeof(from), "%s/recorder/v1.clv", data);
	assert_done(cli_run("convert", from, "--to", "clv", "-o", "r.clv", NULL));
	assert_done(cli_run("convert", "r.clv", "--to", "clv", "-o", "again.clv", NULL));
	ck_assert_int_eq(cli_shell("cmp r.clv again.clv").status, 0);
	struct clv_trace *before = clv_trace_import(from, &err), *t = clv_trace_import(cli_path("r.clv"), &err);
	ck_assert_msg(before && t, "%s", err.text);
	ck_assert_uint_eq(t->history_count, 2);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(t->histories[i].event_count, before->histories[i].event_count);
		ck_assert_uint_eq(t->histories[i].note_count, before->histories[i].note_count);
	}
	unsigned native = 0;
	for (uint32_t i = 0; i < t->stack_frame_count; i++) {
		native += t->stack_frames[i].address != 0;
		ck_assert_str_ne(t->strings[t->stack_frames[i].function], "");
	}
	ck_assert_uint_gt(native, 0);
	clv_trace_free(before);
	clv_trace_free(t);
}
END_TEST

START_TEST(refuses)
{
	const char *f = cli_text("l.csv", log_text);
	cli_assert_refused(cli_run("convert", NULL), "TRACE is missing");
	cli_assert_refused(cli_run("convert", f, NULL), "--to is missing");
	cli_assert_refused(cli_run("convert", f, "--to", "clv", NULL), "-o FILE is missing");
	static const char *const others[] = {"pytorch", "json", "CLV", "clv,rmm"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(others); i++) {
		struct cli_result r = cli_run("convert", f, "--to", others[i], "-o", "x", NULL);
		cli_assert_refused(r, others[i]);
		cli_assert_refused(r, "it writes: clv, torch, perfetto, rmm");
	}
	cli_assert_refused(cli_run("convert", f, f, "--to", "clv", "-o", "x", NULL), "one argument too many");
	cli_assert_refused(cli_run("convert", "missing", "--to", "clv", "-o", "x", NULL), "missing: No such file");
	cli_assert_refused(cli_run("convert", f, "--to", "clv", "-o", "no/folder", NULL),
			   "no/folder: cannot be created");
	cli_assert_refused(cli_run("convert", f, "--to", "clv", "-o", ".", NULL), "not a regular file");
	cli_assert_refused(cli_run("convert", f, "--to", "clv", "-o", "/dev/null", NULL), "not a regular file");
	cli_assert_refused(cli_run("convert",
				   cli_text("bad", "\x80\x02"
						   "cos\nsystem\n."),
				   "--to", "clv", "-o", "x", NULL),
			   "bad: offset 2: the opcode GLOBAL");
	ck_assert_int_ne(access("x", F_OK), 0);
}
END_TEST

/* A limit on the size of files is an error like a full disk, not a signal that leaves half a file. */
START_TEST(files_that_may_not_grow)
{
	static char rows[400000];
	size_t n = (size_t)snprintf(rows, sizeof(rows), "Thread,Time,Action,Pointer,Size,Stream\n");
	uint64_t rng = 1;
	for (int i = 0; i < 5000; i++)
		n += (size_t)snprintf(rows + n, sizeof(rows) - n, "1,10:00:00,allocate,0x%llx,%llu,0\n",
				      (unsigned long long)(i + 1) << 21,
				      (unsigned long long)(rng = clv_mix64(rng)) >> 44);
	cli_text("rows.csv", rows);
	cli_assert_refused(cli_shell("ulimit -f 4; $CLEAVE convert rows.csv --to clv -o rows.clv"), "File too large");
	ck_assert_int_eq(cli_shell("ls rows.clv*").status, 2);
}
END_TEST

/* The reason stands behind a name of any length. */
START_TEST(long_names)
{
	char name[3001];
	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = i % 100 == 99 ? '/' : 'n';
	name[sizeof(name) - 1] = '\0';
	cli_assert_refused(cli_run("convert", name, "--to", "clv", "-o", "x", NULL), "No such file");
	cli_assert_refused(cli_shell("d=$(printf '%0200d' 0) && mkdir -p $d/$d/$d && printf x >$d/$d/$d/bad && "
				     "exec $CLEAVE replay $d/$d/$d/bad"),
			   "bad: offset 0: not a known trace");
}
END_TEST

START_TEST(cut_short)
{
	cli_text("l.csv",
		 "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x1000,1000,0x0\n1,10:00");
	struct cli_result r = cli_run("convert", "l.csv", "--to", "clv", "-o", "l.clv", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_str_eq(r.out, "");
	ck_assert_str_eq(r.err, "cleave convert: l.csv: the last line, 3, is not complete and was left out\n");
	r = cli_run("replay", "l.csv", "-p", "direct", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_str_eq(r.err, "cleave replay: l.csv: the last line, 3, is not complete and was left out\n");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {converts, recordings, refuses, files_that_may_not_grow, long_names, cut_short};
	return cli_suite("cli_convert", tests, CLV_ARRAY_LEN(tests));
}
