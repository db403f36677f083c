/* SPDX-License-Identifier: MIT
 *
 * The recorder: what threads put is what is read back, in the order of time; what found no room is counted.
 */
#include "../tracing/format/clv.h"
#include "../tracing/memory.h"
#include "../tracing/record/record_file.h"
#include "../tracing/record/record_pack.h"
#include "../tracing/record/ring.h"
#include "../tracing/symbols/symbolise.h"
#include "record_rig.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define DEFAULTS (&(struct clv_record_config){0})

static void expect_refused(const struct clv_record_config *c, const char *part)
{
	struct clv_error err = {{0}};
	ck_assert_msg(!clv_record_open(c, &err), "opened; should say %s", part);
	ck_assert_msg(strstr(err.text, part) != NULL, "%s, not %s", err.text, part);
	ck_assert(!clv_record_is_open());
}

/* Notes of what is no request, in the order of the list, put in and read back. */
START_TEST(every_kind_comes_back)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.settings = "growth:tight"});
	ck_assert(clv_record_is_open());
	for (unsigned k = 0; k < CLV_EVENT_COUNT; k++) {
		char text[32];
		snprintf(text, sizeof(text), "text of %s", clv_event_name(k));
		if (k == CLV_EVENT_PROCESS || k == CLV_EVENT_DROPPED)
			continue; /* the recorder's own */
		clv_record_event(&(struct clv_record_event){.event = k,
							    .device = k % 3 ? 5 : 2,
							    .stream = k % 2 ? 77 : UINT64_MAX,
							    .addr = 0x700000000000 + k * 512,
							    .size = 1000 + k,
							    .a = 1100 + k,
							    .b = UINT64_MAX - k,
							    .text = k % 4 ? text : NULL});
	}
	clv_record_close();
	ck_assert(!clv_record_is_open());
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_ptr_null(t->note);
	ck_assert_uint_eq(t->history_count, 2);
	bool seen[CLV_EVENT_COUNT] = {false};
	for (uint32_t d = 0; d < 2; d++) {
		const struct clv_history *h = &t->histories[d];
		ck_assert_int_eq(h->device, d ? 5 : 2);
		uint64_t before = 0;
		for (uint32_t i = 0; i < h->note_count; i++) {
			const struct clv_note *n = &h->notes[i];
			ck_assert_uint_ge(n->time_us, before);
			before = n->time_us;
			if (n->kind == CLV_EVENT_PROCESS) {
				ck_assert_uint_eq(n->addr, (uint64_t)getpid());
				ck_assert_uint_eq(n->size, (uint64_t)getppid());
				ck_assert_uint_lt((uint64_t)time(NULL) - n->b / 1000000000, 100);
				ck_assert_ptr_nonnull(strstr(t->strings[n->text], "test_record"));
				continue;
			}
			if (n->kind == CLV_EVENT_SETTINGS && n->addr == 0) {
				ck_assert_str_eq(t->strings[n->text], "growth:tight");
				continue;
			}
			char text[32];
			unsigned k = n->kind;
			ck_assert_uint_lt(k, CLV_EVENT_COUNT);
			ck_assert(!seen[k]);
			seen[k] = true;
			ck_assert_int_eq(h->device, k % 3 ? 5 : 2);
			ck_assert_uint_eq(n->addr, 0x700000000000 + k * 512);
			ck_assert_uint_eq(n->size, 1000 + k);
			ck_assert_uint_eq(n->a, 1100 + k);
			ck_assert_uint_eq(n->b, UINT64_MAX - k);
			ck_assert_uint_eq(n->thread, (uint32_t)syscall(SYS_gettid));
			if (k % 2)
				ck_assert_uint_eq(t->streams[n->stream], 77);
			else
				ck_assert_uint_eq(n->stream, CLV_NO_STREAM);
			snprintf(text, sizeof(text), "text of %s", clv_event_name(k));
			if (k % 4)
				ck_assert_str_eq(t->strings[n->text], text);
			else
				ck_assert_uint_eq(n->text, CLV_NO_TEXT);
		}
		for (uint32_t i = 0; i < h->event_count; i++) {
			const struct clv_event_record *e = &h->events[i];
			unsigned k = e->action == CLV_ACTION_ALLOC            ? CLV_EVENT_ALLOC
				     : e->action == CLV_ACTION_FREE_COMPLETED ? CLV_EVENT_FREE
									      : CLV_EVENT_FAIL;
			ck_assert(k == CLV_EVENT_FAIL || !seen[k]);
			seen[k] = true;
			ck_assert_uint_eq(e->addr, 0x700000000000 + k * 512);
			ck_assert_uint_eq(e->size, 1000 + k);
			ck_assert_uint_eq(h->threads[i], (uint32_t)syscall(SYS_gettid));
			if (k == CLV_EVENT_ALLOC)
				ck_assert_uint_eq(h->slack[i], 100);
		}
	}
	for (unsigned k = 0; k < CLV_EVENT_COUNT; k++)
		ck_assert_msg(seen[k] || k == CLV_EVENT_PROCESS || k == CLV_EVENT_DROPPED, "%s", clv_event_name(k));
	ck_assert_uint_eq(rig_notes(t, CLV_EVENT_DROPPED, NULL), 0);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* A recording written as a whole trace, and read again, is the same. */
START_TEST(a_recording_can_be_converted)
{
	char copy[160];
	rig_begin();
	rig_open(&(struct clv_record_config){.stack_every = 1, .stack_depth = 8});
	for (uint64_t i = 0; i < 3000; i++) {
		rig_event(CLV_EVENT_ALLOC, (int)(i % 2), i % 5, 0x10000 + i * 4096, 100 + i);
		if (i % 3)
			rig_event(CLV_EVENT_FREE, (int)(i % 2), i % 5, 0x10000 + i * 4096, 100 + i);
		else
			rig_mark(i % 2 ? "odd" : "even");
	}
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_uint_eq(rig_events(t), 5000);
	ck_assert_uint_eq(rig_notes(t, CLV_EVENT_MARK, NULL), 1000);
	snprintf(copy, sizeof(copy), "%s/copy.clv", rig_folder);
	ck_assert_msg(clv_trace_write(t, copy, &rig_err), "%s", rig_err.text);
	struct clv_trace *back = rig_read(copy);
	const char *difference = trace_difference(t, back);
	ck_assert_msg(!difference, "%s", difference);
	clv_trace_free(back);
	clv_trace_free(t);
	rig_end();
}
END_TEST

START_TEST(names_and_limits_are_checked)
{
	char expected[160], pattern[160];
	rig_begin();
	expect_refused(&(struct clv_record_config){.path = ""}, "name");
	expect_refused(&(struct clv_record_config){.path = "/tmp/%q"}, "%q");
	expect_refused(&(struct clv_record_config){.path = "/nonexistent/r.clv"}, "/nonexistent/r.clv: No such file");
	expect_refused(&(struct clv_record_config){.path = "/dev/null"}, "not a regular file");
	expect_refused(&(struct clv_record_config){.path = rig_path, .limit_bytes = 1000}, "65536");
	ck_assert_int_eq(mkfifo(rig_path, 0600), 0);
	expect_refused(&(struct clv_record_config){.path = rig_path}, rig_path); /* and not waited for */
	unlink(rig_path);
	setenv("RANK", "7", 1);
	snprintf(pattern, sizeof(pattern), "%s/%%p-%%r.clv", rig_folder);
	rig_open(&(struct clv_record_config){.path = pattern});
	struct clv_error err = {{0}};
	ck_assert(!clv_record_open(&(struct clv_record_config){.path = rig_path}, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "recorded already"));
	ck_assert_int_ne(access(rig_path, F_OK), 0);
	clv_record_close();
	clv_record_close(); /* harmless */
	snprintf(expected, sizeof(expected), "%s/%ld-7.clv", rig_folder, (long)getpid());
	struct clv_trace *t = rig_read(expected);
	ck_assert_uint_eq(t->histories[0].notes[0].a, 7);
	clv_trace_free(t);
	rig_end();
}
END_TEST

START_TEST(one_recording_after_another)
{
	rig_begin();
	for (unsigned k = 0; k < 20; k++) {
		rig_event(CLV_EVENT_ALLOC, 0, 1, 4096, 512); /* nobody records */
		rig_open(&(struct clv_record_config){.buffer_bytes = k % 2 ? 1 << 16 : 0});
		for (unsigned i = 0; i < k; i++)
			rig_event(CLV_EVENT_ALLOC, 0, 1, 8192 + i * 512, 512);
		if (k % 3 == 0)
			ck_assert(clv_record_flush(10000));
		clv_record_close();
		struct clv_trace *t = rig_read(rig_path);
		ck_assert_uint_eq(rig_events(t), k);
		clv_trace_free(t);
	}
	rig_end();
}
END_TEST

/* What was put before a flush can be read while it goes on. */
START_TEST(flush_is_a_promise)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 60000});
	for (uint64_t n = 1; n <= 30; n++) {
		rig_event(CLV_EVENT_ALLOC, 3, 9, n * 512, 512);
		ck_assert(clv_record_flush(10000));
		struct clv_trace *t = rig_read(rig_path);
		ck_assert_ptr_nonnull(t->note); /* it has no end yet */
		ck_assert_uint_eq(rig_events(t), n);
		clv_trace_free(t);
	}
	clv_record_close();
	ck_assert(clv_record_flush(0)); /* nothing is recorded */
	rig_end();
}
END_TEST

START_TEST(events_come_to_the_file_by_themselves)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 20});
	rig_event(CLV_EVENT_ALLOC, 0, 9, 512, 512);
	for (unsigned tries = 0;; tries++) {
		struct clv_trace *t = rig_read(rig_path);
		bool there = rig_events(t) == 1;
		clv_trace_free(t);
		if (there)
			break;
		ck_assert_uint_lt(tries, 1000);
		usleep(10000);
	}
	clv_record_close();
	rig_end();
}
END_TEST

/* Without libzstd the frames are made by hand; the reader, and zstd, take them. */
START_TEST(without_libzstd)
{
	rig_begin();
	clv_pack_without_library();
	rig_open(DEFAULTS);
	char text[4100];
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	for (unsigned i = 0; i < 400; i++) {
		snprintf(text, 10, "%09u", i); /* no two are alike, so chunks of several blocks come of it */
		text[9] = 'y';
		rig_mark(text);
		if (i % 100 == 99)
			ck_assert(clv_record_flush(10000));
	}
	clv_record_close();
	struct stat st;
	ck_assert_int_eq(stat(rig_path, &st), 0);
	ck_assert_uint_gt((uint64_t)st.st_size, 400 * 4000);
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_uint_eq(rig_notes(t, CLV_EVENT_MARK, NULL), 400);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* A long text is cut between characters. */
START_TEST(texts)
{
	char text[6000];
	rig_begin();
	rig_open(DEFAULTS);
	rig_mark("");
	rig_mark("\xe2\x82\xac");
	for (unsigned i = 0; i < sizeof(text) - 1; i++)
		text[i] = i == 0 ? 'a' : "\xe2\x82\xac"[(i - 1) % 3];
	text[sizeof(text) - 1] = '\0';
	rig_mark(text);
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path);
	const struct clv_history *h = &t->histories[0];
	ck_assert_uint_eq(h->note_count, 4);
	ck_assert_uint_eq(h->notes[1].text, CLV_NO_TEXT);
	ck_assert_str_eq(t->strings[h->notes[2].text], "\xe2\x82\xac");
	const char *kept = t->strings[h->notes[3].text];
	ck_assert_uint_gt(strlen(kept), 4000);
	ck_assert_uint_eq(strlen(kept) % 3, 1);
	ck_assert(strncmp(kept, text, strlen(kept)) == 0);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* What a reader would refuse does not come into the file, and is counted. */
START_TEST(nonsense_is_left_out)
{
	rig_begin();
	rig_open(DEFAULTS);
	rig_event(CLV_EVENT_ALLOC, 0, 1, UINT64_MAX - 5, 512);
	rig_event(CLV_EVENT_FREE, 0, 1, 512, UINT64_MAX);
	rig_event(CLV_EVENT_FRAME_MAP, 65536, 1, 512, 512);
	rig_event(CLV_EVENT_FAIL, 0, 1, 5, UINT64_MAX); /* this is a request that programs make */
	rig_event(CLV_EVENT_ALLOC, 0, 1, 512, 512);
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path);
	uint64_t dropped;
	ck_assert_uint_eq(rig_events(t), 2);
	ck_assert_uint_eq(t->histories[0].oom_count, 1);
	rig_notes(t, CLV_EVENT_DROPPED, &dropped);
	ck_assert_uint_eq(dropped, 3);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* Stacks of requests: the frames outside of this program, which has the recorder, with the module they are in. */
static __attribute__((noinline)) void deep(unsigned n)
{
	if (n)
		deep(n - 1);
	else
		rig_event(CLV_EVENT_ALLOC, 0, 1, 512, 512);
	__asm__ volatile("" ::: "memory"); /* no jump in place of the call */
}

START_TEST(stacks_of_requests)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.stack_every = 1, .stack_depth = 32, .stack_above = 100});
	deep(6);
	rig_event(CLV_EVENT_FREE, 0, 1, 512, 512);
	rig_event(CLV_EVENT_ALLOC, 0, 1, 512, 99); /* too small */
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path);
	const struct clv_event_record *e = t->histories[0].events;
	ck_assert_uint_eq(e[1].stack, CLV_NO_STACK);
	ck_assert_uint_eq(e[2].stack, CLV_NO_STACK);
	if (e[0].stack == CLV_NO_STACK) /* no libunwind here */
		ck_assert_uint_eq(t->stack_count, 1);
	for (uint32_t i = 0; i < t->stacks[e[0].stack].count; i++) {
		const struct clv_frame_record *f = &t->stack_frames[t->stacks[e[0].stack].first + i];
		ck_assert_uint_ne(f->address, 0);
		ck_assert_uint_ne(f->module, 0);
		ck_assert_str_eq(t->strings[f->file], t->strings[t->modules[f->module - 1].path]);
	}
	for (unsigned twice = 0; twice < 2; twice++) { /* the second time there is nothing to do */
		ck_assert_msg(clv_trace_symbolise(t, NULL, &rig_err), "%s", rig_err.text);
		const char *wrong = trace_wrong(t);
		ck_assert_msg(!wrong, "%s", wrong);
		for (uint32_t i = 0; i < t->stack_frame_count; i++)
			ck_assert_str_ne(t->strings[t->stack_frames[i].function], "");
	}
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* Every allocation of the look-up fails once: the trace is as it was. */
START_TEST(symbols_without_memory)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.stack_every = 1});
	deep(3);
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path), *untouched = rig_read(rig_path);
	for (uint64_t n = 1;; n++) {
		struct clv_error err = {{0}};
		clv_mem_fail_after(n);
		bool ok = clv_trace_symbolise(t, NULL, &err);
		clv_mem_fail_after(0);
		if (ok)
			break;
		ck_assert_ptr_nonnull(strstr(err.text, "out of host memory"));
		const char *difference = trace_difference(t, untouched);
		ck_assert_msg(!difference, "%s", difference);
	}
	clv_trace_free(t);
	clv_trace_free(untouched);
	rig_end();
}
END_TEST

/* A file of the first version of the recorder: a note of each kind (but those of its own and of forks), then 500 blocks on device 1
 * at 50 addresses by turns, of which four are not freed: their address is the same, so three end where the next begins. */
START_TEST(files_of_before_stay_readable)
{
	char path[4096];
	const char *data = getenv("CLEAVE_TEST_DATA");
	ck_assert_ptr_nonnull(data);
	snprintf(path, sizeof(path), "%s/recorder/v1.clv", data);
	struct clv_trace *t = rig_read(path);
	ck_assert_ptr_null(t->note);
	ck_assert_uint_eq(t->history_count, 2);
	const struct clv_history *h = &t->histories[1];
	ck_assert_int_eq(h->device, 1);
	ck_assert_uint_eq(h->event_count, 1 + 500 + 496 + 3); /* 1: a FREE among the kinds */
	ck_assert_uint_eq(h->alloc_count, 500);
	ck_assert_uint_eq(h->initial_count, 1);
	ck_assert_uint_eq(t->histories[0].alloc_count, 1);
	ck_assert_uint_eq(t->histories[0].oom_count, 1);
	uint64_t size = 0, lost = 0;
	for (uint32_t i = 0; i < h->event_count; i++) {
		lost += h->events[i].flags & CLV_EVENT_LOST ? 1 : 0;
		if (h->events[i].action == CLV_ACTION_ALLOC && h->events[i].addr == 0x400000000 + 49 * 65536) {
			size = h->events[i].size;
			ck_assert_uint_eq(h->slack[i], 60416 + 512 - size);
			ck_assert_uint_eq(t->streams[h->events[i].stream], 7);
		}
	}
	ck_assert_uint_eq(lost, 3);
	ck_assert_uint_eq(size, 60499);
	for (unsigned k = 0; k < CLV_EVENT_FORK; k++) {
		bool request = k == CLV_EVENT_ALLOC || k == CLV_EVENT_FREE;
		ck_assert_uint_eq(rig_notes(t, k, NULL), request ? 0 : 1);
		const struct clv_history *of = &t->histories[k % 2];
		for (uint32_t i = 0; i < of->note_count; i++) {
			const struct clv_note *n = &of->notes[i];
			if (n->kind != k || k == CLV_EVENT_PROCESS || k == CLV_EVENT_SETTINGS)
				continue;
			ck_assert_uint_eq(n->addr, 0x302000000 + k * 4096);
			ck_assert_uint_eq(n->size, 1000 + k);
			ck_assert_uint_eq(n->a, 1536);
			ck_assert_uint_eq(n->b, k);
			ck_assert_str_eq(t->strings[n->text], clv_event_name(k));
		}
	}
	ck_assert_uint_eq(t->histories[0].notes[0].kind, CLV_EVENT_PROCESS);
	ck_assert_uint_eq(t->histories[0].notes[0].a, 3); /* its rank */
	clv_trace_free(t);
}
END_TEST

/* A machine that was saved and goes on elsewhere: the counter stands lower than it did. */
START_TEST(a_counter_that_was_set_back)
{
	rig_begin();
	rig_open(DEFAULTS);
	for (int round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < 50; i++)
			clv_record_event(&(struct clv_record_event){
				.event = CLV_EVENT_ALLOC, .stream = 1, .addr = 0x700000000000 + i * 512, .size = 512});
		for (uint64_t i = 0; i < 50; i++)
			clv_record_event(&(struct clv_record_event){
				.event = CLV_EVENT_FREE, .stream = 1, .addr = 0x700000000000 + i * 512, .size = 512});
		clv_ring_mine->last_time += (uint64_t)1 << 45;
		ck_assert(clv_record_flush(10000));
	}
	clv_record_close();
	struct clv_record_stats stats;
	clv_record_get_stats(&stats);
	ck_assert_uint_eq(stats.dropped, 0);
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_uint_eq(t->histories[0].event_count, 300);
	clv_trace_free(t);
}
END_TEST

CHECK_MAIN("record", files_of_before_stay_readable, every_kind_comes_back, a_recording_can_be_converted,
	   names_and_limits_are_checked, one_recording_after_another, flush_is_a_promise,
	   events_come_to_the_file_by_themselves, without_libzstd, texts, nonsense_is_left_out, stacks_of_requests,
	   symbols_without_memory, a_counter_that_was_set_back)
