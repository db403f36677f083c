/* SPDX-License-Identifier: MIT
 *
 * Programs that are recorded, on a test double of libcuda.so.1: they do what they do otherwise, and the record says what they
 * have done, by their own account.
 */
#include "cli_run.h"
#include "event_model.h"

#include "../tracing/import/import.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *need(const char *name)
{
	const char *value = getenv(name);
	ck_assert_msg(value != NULL, "%s is not set", name);
	return value;
}

/* A shell line; $GPU is the folder of the programs, $PRELOAD and $FAKE that of the libraries. */
static struct cli_result sh(const char *fmt, ...) CLV_PRINTF(1, 2);
static struct cli_result sh(const char *fmt, ...)
{
	char line[4096], text[3000];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(line, sizeof(line),
		 "GPU='%s' PRELOAD='%s' FIRST='%s'; export LD_LIBRARY_PATH='%s' ASAN_OPTIONS=detect_leaks=0; %s",
		 need("CLEAVE_PROGRAMS"), need("CLEAVE_PRELOAD"), need("CLEAVE_PRELOAD_FIRST"),
		 need("CLEAVE_FAKE_CUDA"), text);
	return cli_shell(line);
}

/* ---- a trace in one order, as it happened ---- */

struct trace {
	struct clv_trace *t;
	struct clv_history *h; /* of device 0 */
	uint32_t event, note;
};

static struct trace open_trace(const char *name)
{
	struct clv_error err = {""};
	struct trace r = {clv_trace_import(cli_path(name), &err), NULL, 0, 0};
	ck_assert_msg(r.t, "%s", err.text);
	for (uint32_t i = 0; i < r.t->history_count && !r.h; i++)
		r.h = r.t->histories[i].device == 0 ? &r.t->histories[i] : NULL;
	ck_assert_ptr_nonnull(r.h);
	return r;
}

/* The next event or note of device 0 (or of none), as the heap tells it. False: there is none. */
static bool next(struct trace *r, struct clv_observed *w)
{
	struct clv_history *h = r->h;
	*w = (struct clv_observed){.stream = CLEAVE_STREAM_ANY, .other = CLEAVE_STREAM_ANY};
	while (r->event < h->event_count && h->events[r->event].action == CLV_ACTION_OOM)
		r->event++; /* it is a note as well */
	if (r->note < h->note_count && h->notes[r->note].event <= r->event) {
		const struct clv_note *n = &h->notes[r->note++];
		w->event = (enum clv_event)n->kind;
		w->addr = n->addr;
		w->size = n->size;
		w->a = n->a;
		w->b = n->b;
		w->text = n->text == CLV_NO_TEXT ? NULL : r->t->strings[n->text];
		return true;
	}
	if (r->event == h->event_count && r->note == h->note_count)
		return false;
	if (r->event == h->event_count)
		return next(r, w);
	const struct clv_event_record *e = &h->events[r->event];
	w->event = e->action == CLV_ACTION_ALLOC ? CLV_EVENT_ALLOC : CLV_EVENT_FREE;
	w->addr = e->addr;
	w->size = e->size;
	w->a = e->size + (h->slack ? h->slack[r->event] : 0);
	w->stream.id = r->t->streams[e->stream];
	r->event++;
	return true;
}

static unsigned notes_of(const struct clv_history *h, enum clv_event kind)
{
	unsigned n = 0;
	for (uint32_t i = 0; i < h->note_count; i++)
		n += h->notes[i].kind == kind;
	return n;
}

static const struct clv_note *note_of(const struct clv_history *h, enum clv_event kind)
{
	for (uint32_t i = 0; i < h->note_count; i++)
		if (h->notes[i].kind == kind)
			return &h->notes[i];
	ck_abort_msg("the record has no %s", clv_event_name(kind));
	return NULL;
}

static const char *text_of(const struct trace *r, const struct clv_note *n)
{
	return n->text == CLV_NO_TEXT ? "" : r->t->strings[n->text];
}

/* All that a heap told makes sense; `left` blocks are live at the end. */
static struct event_model check_heap(const char *name, size_t left)
{
	struct trace r = open_trace(name);
	struct event_model m;
	struct clv_observed w;
	event_model_open(&m);
	while (next(&r, &w))
		event_model_tell(&m, &w);
	ck_assert_uint_eq(m.live.count, left);
	ck_assert_uint_eq(notes_of(r.h, CLV_EVENT_DROPPED), 0);
	clv_trace_free(r.t);
	return m;
}

/* ---- the program's account ---- */

struct account {
	char sign; /* + - ! */
	char name[40];
	uint64_t key, size;
	bool found;
};

static size_t read_account(const char *out, struct account *all, size_t room)
{
	size_t n = 0;
	for (const char *line = out; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		struct account *a = &all[n];
		*a = (struct account){.sign = *line};
		int fields = *line == '!' ? sscanf(line + 1, "%39s %" SCNu64, a->name, &a->size)
					  : sscanf(line + 1, "%39s %" SCNx64 " %" SCNu64, a->name, &a->key, &a->size);
		if (!strchr("+-!", *line))
			continue;
		ck_assert_msg(fields >= 2 && n < room, "%s", line);
		n++;
	}
	return n;
}

static bool starts(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* What a call is in a record. Served: by the heap, not beside it. */
static enum clv_event kind_of(const struct account *a, bool observed)
{
	bool addresses = starts(a->name, "cuMemAddress");
	bool host = strstr(a->name, "Host"),
	     frame = !strcmp(a->name, "cuMemCreate") || !strcmp(a->name, "cuMemRelease");
	if (addresses)
		return a->sign == '+' ? CLV_EVENT_DRIVER_ADDRESSES : CLV_EVENT_DRIVER_ADDRESSES_FREE;
	if (!strcmp(a->name, "cuMemMap"))
		return CLV_EVENT_DRIVER_MAP;
	if (!strcmp(a->name, "cuMemUnmap"))
		return CLV_EVENT_DRIVER_UNMAP;
	if (observed && !host && !frame)
		return a->sign == '+' ? CLV_EVENT_ALLOC : a->sign == '-' ? CLV_EVENT_FREE : CLV_EVENT_FAIL;
	return a->sign == '+' ? CLV_EVENT_DRIVER_ALLOC : a->sign == '-' ? CLV_EVENT_DRIVER_FREE : CLV_EVENT_DRIVER_FAIL;
}

#define ACCOUNTS 200

/* Every line of the program's is in the record once and in this order, and nothing else is. */
static void same_as_account(struct trace *r, const char *out, bool observed)
{
	struct account all[ACCOUNTS];
	size_t count = read_account(out, all, ACCOUNTS), at = 0;
	struct clv_observed w;
	unsigned captured = 0;
	ck_assert_uint_gt(count, 40);
	while (next(r, &w)) {
		if (w.event == CLV_EVENT_PROCESS || w.event == CLV_EVENT_SETTINGS || w.event == CLV_EVENT_DEVICE)
			continue;
		if ((w.event == CLV_EVENT_DRIVER_ALLOC || w.event == CLV_EVENT_DRIVER_FREE) && w.size == 2000000) {
			captured++;
			continue;
		}
		ck_assert_msg(at < count, "the record has more than the program has done: %s", clv_event_name(w.event));
		struct account *a = &all[at++];
		enum clv_event kind = kind_of(a, observed);
		ck_assert_msg(w.event == kind, "%zu: %c %s is %s, not %s", at, a->sign, a->name,
			      clv_event_name(w.event), clv_event_name(kind));
		if (a->sign != '!')
			ck_assert_msg(w.addr == a->key, "%zu: %c %s: %" PRIx64 ", not %" PRIx64, at, a->sign, a->name,
				      w.addr, a->key);
		if (a->sign != '-')
			ck_assert_msg(w.size == a->size, "%zu: %c %s: %" PRIu64 " bytes, not %" PRIu64, at, a->sign,
				      a->name, w.size, a->size);
		if (a->sign != '!' && kind != CLV_EVENT_ALLOC && kind != CLV_EVENT_FREE)
			ck_assert_str_eq(w.text, a->name);
	}
	ck_assert_uint_eq(at, count);
	ck_assert_uint_eq(captured, 2);
}

/* ---- observed ---- */

/* What other programs are given of a recording is what their readers need; the judge is a program of Python. */
static void readers_take(const char *name)
{
	static const char *const kinds[][2] = {{"torch", "snapshot"}, {"perfetto", "perfetto"}};
	char line[4096];
	bool judged = cli_shell("python3 -c ''").status == 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(kinds); i++) {
		struct cli_result r = cli_run("convert", name, "--to", kinds[i][0], "-o", kinds[i][0], NULL);
		ck_assert_msg(r.status == 0, "%s", r.err);
		snprintf(line, sizeof(line), "exec python3 '%s/../export_check.py' %s %s", need("CLEAVE_TEST_DATA"),
			 kinds[i][1], kinds[i][0]);
		if (judged)
			r = cli_shell(line);
		ck_assert_msg(r.status == 0, "%s: %s", kinds[i][0], r.err);
	}
}

static void observe(const char *how)
{
	struct cli_result r =
		sh("rm -f o.clv; LD_PRELOAD=$PRELOAD CLEAVE_CONF=observe,trace:o.clv exec $GPU/gpu-trace %s work", how);
	ck_assert_msg(r.status == 0, "%s: status %d\n%s%s", how, r.status, r.out, r.err);
	ck_assert_msg(strstr(r.err, "is recorded into o.clv"), "%s", r.err);
	ck_assert_msg(!strstr(r.err, "could not serve"), "%s", r.err);
	struct trace t = open_trace("o.clv");
	same_as_account(&t, r.out, true);
	const struct clv_note *fail = note_of(t.h, CLV_EVENT_FAIL), *device = note_of(t.h, CLV_EVENT_DEVICE);
	ck_assert_uint_eq(fail->size, (uint64_t)1 << 40);
	ck_assert_uint_gt(fail->addr, 0); /* what the device could still give */
	ck_assert_uint_le(fail->addr, device->size);
	ck_assert_str_ne(text_of(&t, device), "");
	ck_assert_ptr_nonnull(strstr(text_of(&t, note_of(t.h, CLV_EVENT_PROCESS)), "gpu-trace"));
	ck_assert_ptr_nonnull(strstr(text_of(&t, note_of(t.h, CLV_EVENT_SETTINGS)), "observe"));
	ck_assert_uint_eq(t.h->unmatched_frees, 0);
	/* of two streams, and of none */
	ck_assert_uint_ge(t.h->stream_count, 3);
	clv_trace_free(t.t);
}

START_TEST(observed)
{
	static const char *const ways[] = {"linked", "dlsym", "proc", "linked-ptds", "proc-ptds"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(ways); i++)
		observe(ways[i]);
	readers_take("o.clv");
}
END_TEST

/* A program sees no difference, down to what it is told of its pools. */
START_TEST(observing_changes_nothing)
{
	static const char *const programs[] = {"pool", "plain", "threads", "full", "fork", "context", "odd", "peers"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(programs); i++)
		for (int k = 0; k < 2; k++) {
			const char *how = k ? "linked-ptds" : "proc";
			struct cli_result none = sh("LD_PRELOAD=$FIRST exec $GPU/gpu-%s %s", programs[i], how);
			struct cli_result with = sh(
				"rm -f *.clv; LD_PRELOAD=$PRELOAD CLEAVE_CONF=observe,trace:o.clv exec $GPU/gpu-%s %s",
				programs[i], how);
			ck_assert_msg(with.status == none.status && !strcmp(with.out, none.out),
				      "%s %s: status %d, not %d, and says\n%s\nnot\n%s\n%s", programs[i], how,
				      with.status, none.status, with.out, none.out, with.err);
			struct trace t = open_trace("o.clv");
			bool ends_at_once =
				!strcmp(programs[i], "fork"); /* by _exit(), the first that uses the device */
			ck_assert_msg(t.h->alloc_count > 0 || ends_at_once, "%s %s: nothing is recorded", programs[i],
				      how);
			clv_trace_free(t.t);
		}
}
END_TEST

/* ---- served ---- */

START_TEST(served)
{
	struct cli_result none = sh("LD_PRELOAD=$PRELOAD CLEAVE_CONF=stats:on exec $GPU/gpu-trace proc work");
	struct cli_result r = sh("LD_PRELOAD=$PRELOAD CLEAVE_CONF=stats:on,trace:s.clv exec $GPU/gpu-trace proc work");
	ck_assert_msg(r.status == 0 && none.status == 0, "%s%s", r.out, r.err);
	struct trace t = open_trace("s.clv");
	struct account all[ACCOUNTS];
	size_t count = read_account(r.out, all, ACCOUNTS);
	uint64_t pools = 0, frees = 0, driver = 0, driver_frees = 0;
	for (size_t i = 0; i < count; i++) {
		bool pool = !strcmp(all[i].name, "cuMemAllocAsync"),
		     from = !strcmp(all[i].name, "cuMemAllocFromPoolAsync");
		pools += all[i].sign == '+' && pool;
		driver += kind_of(&all[i], false) == CLV_EVENT_DRIVER_ALLOC && !pool;
		frees += all[i].sign == '-' && !strcmp(all[i].name, "cuMemFreeAsync");
		driver_frees +=
			kind_of(&all[i], false) == CLV_EVENT_DRIVER_FREE && strcmp(all[i].name, "cuMemFreeAsync");
		frees -= from; /* whose free is the driver's, too */
		driver_frees += from;
	}
	uint64_t heap_allocs = 0, heap_frees = 0;
	for (uint32_t i = 0; i < t.h->event_count; i++) {
		heap_allocs += t.h->events[i].action == CLV_ACTION_ALLOC;
		heap_frees += t.h->events[i].action == CLV_ACTION_FREE_COMPLETED;
	}
	ck_assert_uint_eq(heap_allocs, pools + 1); /* and the captured one */
	ck_assert_uint_eq(heap_frees, frees + 1);
	ck_assert_uint_eq(notes_of(t.h, CLV_EVENT_DRIVER_ALLOC), driver);
	ck_assert_uint_eq(notes_of(t.h, CLV_EVENT_DRIVER_FREE), driver_frees);
	ck_assert_uint_eq(notes_of(t.h, CLV_EVENT_FAIL), 1);
	ck_assert_str_ne(text_of(&t, note_of(t.h, CLV_EVENT_DEVICE)), "");
	ck_assert_ptr_nonnull(strstr(text_of(&t, note_of(t.h, CLV_EVENT_SETTINGS)), "stats:on"));
	clv_trace_free(t.t);
	struct event_model m = check_heap("s.clv", 0);
	ck_assert_uint_gt(m.counts[CLV_EVENT_CUT], 5);
	ck_assert_uint_gt(m.counts[CLV_EVENT_MERGE], 5);
	ck_assert_uint_gt(m.counts[CLV_EVENT_FRAME_CREATE], 0);
	event_model_close(&m);
	readers_take("s.clv");
}
END_TEST

START_TEST(programs_with_threads)
{
	struct cli_result none = sh("LD_PRELOAD=$PRELOAD exec $GPU/gpu-threads proc");
	struct cli_result r =
		sh("LD_PRELOAD=$PRELOAD CLEAVE_CONF=trace:t.clv,stacks:native exec $GPU/gpu-threads proc");
	ck_assert_msg(r.status == 0 && !strcmp(r.out, none.out), "%s%s", r.out, r.err);
	struct event_model m = check_heap("t.clv", 0);
	ck_assert_uint_gt(m.counts[CLV_EVENT_ALLOC], 100);
	event_model_close(&m);
	struct trace t = open_trace("t.clv");
	uint32_t threads = 0, with_stack = 0;
	for (uint32_t i = 0; t.h->threads && i < t.h->event_count; i++) {
		threads += i && t.h->threads[i] != t.h->threads[i - 1];
		with_stack += t.h->events[i].stack != CLV_NO_STACK;
	}
	ck_assert_uint_gt(threads, 2);
	ck_assert_uint_eq(with_stack, t.h->alloc_count);
	clv_trace_free(t.t);
}
END_TEST

/* ---- processes ---- */

static unsigned traces_here(void)
{
	return (unsigned)atoi(sh("ls | grep -c '[.]clv$'").out);
}

START_TEST(processes)
{
	/* a shell, and programs that know nothing of CUDA, make no file */
	struct cli_result r =
		sh("export LD_PRELOAD=$PRELOAD CLEAVE_CONF=trace:p.clv; sh -c 'echo a; (exit 3)'; "
		   "command -v git >/dev/null && git --version >/dev/null; $GPU/quiet; unset LD_PRELOAD; ls");
	ck_assert_msg(!strstr(r.out, ".clv"), "%s", r.out);
	ck_assert_msg(!strstr(r.err, "cleave"), "%s", r.err);
	/* two programs of one shell: a file each */
	r = sh("export LD_PRELOAD=$PRELOAD CLEAVE_CONF=trace:p.clv; $GPU/gpu-pool proc >/dev/null & $GPU/gpu-pool proc >/dev/null; wait");
	ck_assert_msg(r.status == 0, "%s", r.err);
	ck_assert_uint_eq(traces_here(), 2);
	clv_trace_free(open_trace("p.clv").t);
	/* what is there is left alone; each process says where it is recorded */
	struct cli_result sum = sh("cksum p.clv");
	r = sh("LD_PRELOAD=$PRELOAD CLEAVE_CONF=trace:p.clv exec $GPU/gpu-pool proc");
	ck_assert_str_eq(sh("cksum p.clv").out, sum.out);
	const char *said = strstr(r.err, "is recorded into p.");
	ck_assert_msg(said && traces_here() == 3, "%s", r.err);
	char name[64];
	ck_assert_int_eq(sscanf(said, "is recorded into %63s", name), 1);
	ck_assert_str_ne(name, "p.clv");
	clv_trace_free(open_trace(name).t);
	/* a child that uses the device itself, and one that may not any more */
	r = sh("rm *.clv; LD_PRELOAD=$PRELOAD CLEAVE_CONF=trace:f%%p.clv exec $GPU/gpu-fork proc");
	ck_assert_msg(r.status == 0, "%s%s", r.out, r.err);
	ck_assert_uint_ge(traces_here(), 1);
}
END_TEST

START_TEST(killed)
{
	struct cli_result r = sh(
		"LD_PRELOAD=$PRELOAD CLEAVE_CONF=trace:k.clv,trace_flush:0.05 $GPU/gpu-trace proc kill; echo status $?");
	ck_assert_msg(strstr(r.out, "status 137"), "%s%s", r.out, r.err);
	struct event_model m = check_heap("k.clv", 1); /* all of it is there, and what was live */
	const char *left = strstr(r.out, "left ");
	ck_assert_ptr_nonnull(left);
	ck_assert_uint_eq(m.live.at[0].addr, strtoull(left + 5, NULL, 16));
	event_model_close(&m);
}
END_TEST

/* What cannot be written is lost and told of once; the program goes on. */
START_TEST(no_room)
{
	struct cli_result r = sh("export FULL_DISK_BYTES=200000; LD_PRELOAD=$PRELOAD:$GPU/libfull-disk.so "
				 "CLEAVE_CONF=trace:n.clv,stacks:off,trace_flush:0.02 exec $GPU/gpu-trace proc many");
	ck_assert_msg(r.status == 0 && strstr(r.out, "many"), "status %d\n%s%s", r.status, r.out, r.err);
	unsigned said = 0;
	for (const char *at = r.err; (at = strstr(at, "n.clv: No space left")); at++)
		said++;
	ck_assert_msg(said == 1, "%s", r.err);
	struct trace t = open_trace("n.clv"); /* what is there can be read */
	ck_assert_uint_gt(t.h->event_count, 100);
	clv_trace_free(t.t);
	r = sh("LD_PRELOAD=$PRELOAD CLEAVE_CONF=trace:there/is/none.clv exec $GPU/gpu-pool proc");
	ck_assert_msg(r.status == 0, "%s", r.err);
	ck_assert_msg(strstr(r.err, "there/is/none.clv") && strstr(r.err, "nothing is recorded"), "%s", r.err);
	r = sh("LD_PRELOAD=$PRELOAD CLEAVE_CONF=observe exec $GPU/gpu-pool proc");
	ck_assert_msg(r.status == 0 && strstr(r.err, "observe without trace"), "%s", r.err);
}
END_TEST

/* ---- cleave run ---- */

#define RUN "CLEAVE_PRELOAD=$LIB \"$CLEAVE\" run "

START_TEST(by_the_command)
{
	struct cli_result r =
		sh("LIB='%s'; CLEAVE_CONF=stacks:off " RUN "--trace 'a b.clv' -- $GPU/gpu-trace proc work",
		   need("CLEAVE_PRELOAD_LIBRARY"));
	if (*need("CLEAVE_PRELOAD_FIRST"))
		return; /* a sanitizer's library would have to be first */
	ck_assert_msg(r.status == 0, "%s%s", r.out, r.err);
	ck_assert_msg(strstr(r.err, "recording into /") && strstr(r.err, "/a b.clv"), "%s", r.err);
	struct event_model m = check_heap("a b.clv", 0);
	event_model_close(&m);
	/* once more: the trace from before goes, and the file is this one's */
	r = sh("LIB='%s'; mv 'a b.clv' old; cp old 'a b.clv'; cd /; " RUN
	       "--observe --trace \"$OLDPWD/a b.clv\" -- $GPU/gpu-trace proc work",
	       need("CLEAVE_PRELOAD_LIBRARY"));
	ck_assert_msg(r.status == 0, "%s%s", r.out, r.err);
	struct trace t = open_trace("a b.clv");
	same_as_account(&t, r.out, true);
	clv_trace_free(t.t);
	ck_assert_uint_eq(traces_here(), 1);
	/* the status is the program's */
	r = sh("LIB='%s'; " RUN "--trace c.clv -- $GPU/gpu-trace proc kill; echo status $?",
	       need("CLEAVE_PRELOAD_LIBRARY"));
	ck_assert_msg(strstr(r.out, "status 137"), "%s", r.out);
}
END_TEST

/* The report is of all processes, and what ends is what the program ended with. */
START_TEST(reported)
{
	if (*need("CLEAVE_PRELOAD_FIRST"))
		return;
	struct cli_result r = sh("LIB='%s'; echo stale >r.7.clv; touch -d 2020-01-01 r.7.clv; " RUN
				 "--report r.html -- sh -c \"$GPU/gpu-pool proc & $GPU/gpu-pool proc; wait; exit 9\"",
				 need("CLEAVE_PRELOAD_LIBRARY"));
	ck_assert_msg(r.status == 9, "status %d\n%s", r.status, r.err);
	ck_assert_msg(!strstr(r.out, "device 0"), "%s", r.out); /* stdout is the program's */
	ck_assert_uint_eq(traces_here(), 3);
	ck_assert_msg(strstr(r.err, "recording into /") && strstr(r.err, "/r.clv; "), "%s", r.err);
	if (strstr(r.err, "this build cannot write pages")) { /* without d3 */
		ck_assert_msg(strstr(r.err, "there is no report; what was recorded is in /"), "%s", r.err);
		ck_assert_int_ne(access(cli_path("r.html"), F_OK), 0);
		return;
	}
	ck_assert_msg(strstr(r.err, "cleave run: the report is r.html"), "%s", r.err);
	ck_assert_int_eq(access(cli_path("r.html"), R_OK), 0);
	/* both processes are in it, the file that was there before is not */
	ck_assert_int_eq(cli_shell("grep -q '[/\"]r\\.clv' r.html").status, 0);
	ck_assert_int_eq(cli_shell("grep -q '[/\"]r\\.[0-9][0-9]*\\.clv' r.html").status, 0);
	ck_assert_int_eq(cli_shell("grep -q 'r\\.7\\.clv' r.html").status, 1);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {observed,  observing_changes_nothing,
				      served,    programs_with_threads,
				      processes, killed,
				      no_room,   by_the_command,
				      reported};
	return cli_suite("preload_trace", tests, CLV_ARRAY_LEN(tests));
}
