/* SPDX-License-Identifier: MIT
 *
 * cleave_trace_*, as users call them: a program that is linked with libcleave.so, and one that is linked with nothing and has it
 * preloaded or not. CLEAVE_LIBRARY and CLEAVE_TRACE_USER say where the library and that program are.
 */
#include <cleave/trace.h>

#include "../tracing/import/import.h"
#include "../tracing/symbols/symbolise.h"
#include "../tracing/symbols/symbols.h"
#include "check_main.h"
#include "trace_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];

static void make_path(void)
{
	strcpy(path, "/tmp/cleave-trace-XXXXXX");
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static struct clv_trace *read_trace(void)
{
	struct clv_error err = {{0}};
	struct clv_trace *t = clv_trace_import(path, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	const char *wrong = trace_wrong(t);
	ck_assert_msg(!wrong, "%s", wrong);
	return t;
}

/* The n-th note (from 0) of the user's. */
static const struct clv_note *user_note(const struct clv_trace *t, unsigned n)
{
	const struct clv_history *h = &t->histories[0];
	for (uint32_t i = 0; i < h->note_count; i++)
		if (h->notes[i].kind >= CLV_EVENT_MARK && h->notes[i].kind <= CLV_EVENT_PHASE_END && n-- == 0)
			return &h->notes[i];
	return NULL;
}

static void expect_note(const struct clv_trace *t, unsigned n, enum clv_event kind, const char *text)
{
	const struct clv_note *note = user_note(t, n);
	ck_assert_ptr_nonnull(note);
	ck_assert_uint_eq(note->kind, kind);
	ck_assert_str_eq(t->strings[note->text], text);
}

START_TEST(refusals)
{
	char why[512];
	make_path();
	ck_assert_int_eq(cleave_trace_start(NULL, NULL, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(cleave_trace_start("/tmp/%z", NULL, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "/tmp/%z"));
	ck_assert_int_eq(cleave_trace_start(path, "stacks:maybe", why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "stacks"));
	ck_assert_int_eq(cleave_trace_start("/nonexistent/x", NULL, why, sizeof(why)), -EIO);
	ck_assert_ptr_nonnull(strstr(why, "/nonexistent/x: No such file"));
	ck_assert_int_eq(cleave_trace_start("/nonexistent/x", NULL, NULL, 0), -EIO);
	ck_assert_int_eq(cleave_trace_flush(), -ENOENT);
	ck_assert_int_eq(cleave_trace_stop(), -ENOENT);
	cleave_trace_mark("nobody listens");
	ck_assert_int_eq(cleave_trace_start(path, "stacks:off", why, sizeof(why)), 0);
	ck_assert_int_eq(cleave_trace_start(path, NULL, why, sizeof(why)), -EBUSY);
	ck_assert_ptr_nonnull(strstr(why, "recorded already"));
	ck_assert_int_eq(cleave_trace_stop(), 0);
	ck_assert_int_eq(cleave_trace_stop(), -ENOENT);
	clv_trace_free(read_trace());
	unlink(path);
}
END_TEST

/* Of a stack, those whose function has that name. */
static unsigned frames_of(const struct clv_trace *t, uint32_t stack, const char *function)
{
	unsigned n = 0;
	for (uint32_t i = 0; i < t->stacks[stack].count; i++)
		n += strcmp(t->strings[t->stack_frames[t->stacks[stack].first + i].function], function) == 0;
	return n;
}

static __attribute__((noinline)) void allocate_deep(cleave_heap *heap, unsigned n)
{
	cleave_ptr block;
	if (n)
		allocate_deep(heap, n - 1);
	else
		ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 4 << 20, &block), 0);
	__asm__ volatile("" ::: "memory"); /* no jump in place of the call */
}

/* Who asked for memory: the functions of this program, not those of the library. */
START_TEST(stacks)
{
	cleave_driver *driver;
	cleave_heap *heap;
	struct clv_error err = {{0}};
	make_path();
	ck_assert_int_eq(cleave_driver_open(&driver, "sim"), 0);
	ck_assert_int_eq(cleave_heap_open(&heap, driver, NULL, NULL, 0), 0);
	ck_assert_int_eq(cleave_trace_start(path, "stacks:native,stack_depth:32", NULL, 0), 0);
	allocate_deep(heap, 6);
	ck_assert_int_eq(cleave_trace_stop(), 0);
	struct clv_trace *t = read_trace();
	ck_assert_uint_eq(t->histories[0].alloc_count, 1);
	uint32_t stack = t->histories[0].events[0].stack;
	ck_assert_msg(clv_trace_symbolise(t, NULL, &err), "%s", err.text);
	if (stack != CLV_NO_STACK && clv_symbols_have_libdw()) {
		ck_assert_uint_eq(frames_of(t, stack, "allocate_deep"), 7);
		ck_assert_uint_eq(frames_of(t, stack, "cleave_alloc"), 0);
		ck_assert_uint_eq(frames_of(t, stack, "main"), 1);
	}
	clv_trace_free(t);
	cleave_heap_close(heap);
	cleave_driver_close(driver);
	unlink(path);
}
END_TEST

/* A heap that was opened before, with a block that it holds. */
START_TEST(a_heap_is_recorded)
{
	cleave_driver *driver;
	cleave_heap *heap;
	cleave_ptr before, blocks[10];
	char why[512] = "", long_name[400];
	make_path();
	ck_assert_int_eq(cleave_driver_open(&driver, "sim"), 0);
	ck_assert_int_eq(cleave_heap_open(&heap, driver, NULL, why, sizeof(why)), 0);
	ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 3 << 20, &before), 0);
	ck_assert_msg(cleave_trace_start(path, NULL, why, sizeof(why)) == 0, "%s", why);
	cleave_trace_phase_begin("load");
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 1000000 + i, &blocks[i]), 0);
	cleave_trace_mark("loaded");
	ck_assert_int_eq(cleave_trace_flush(), 0);
	struct clv_trace *t = read_trace();
	ck_assert_uint_eq(t->histories[0].alloc_count, 11);
	clv_trace_free(t);
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(cleave_free(heap, blocks[i], CLEAVE_STREAM_ANY), 0);
	ck_assert_int_eq(cleave_free(heap, before, CLEAVE_STREAM_ANY), 0);
	cleave_trace_phase_end("load");
	memset(long_name, 'n', sizeof(long_name));
	long_name[sizeof(long_name) - 1] = '\0';
	cleave_trace_mark(long_name);
	cleave_trace_mark(NULL);
	ck_assert_int_eq(cleave_trace_stop(), 0);
	ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 5 << 20, &before), 0); /* not recorded any more */
	t = read_trace();
	const struct clv_history *h = &t->histories[0];
	ck_assert_ptr_null(t->note);
	ck_assert_uint_eq(h->alloc_count, 11);
	ck_assert_uint_eq(h->event_count, 22);
	ck_assert_uint_eq(h->initial_count, 0);
	ck_assert_uint_eq(h->unmatched_frees, 0);
	for (uint32_t i = 0; i < h->event_count; i++)
		ck_assert_uint_eq(h->events[i].flags, 0);
	expect_note(t, 0, CLV_EVENT_PHASE_BEGIN, "load");
	expect_note(t, 1, CLV_EVENT_MARK, "loaded");
	expect_note(t, 2, CLV_EVENT_PHASE_END, "load");
	ck_assert_uint_eq(user_note(t, 0)->event, 1);
	ck_assert_uint_eq(user_note(t, 1)->event, 11);
	ck_assert_uint_eq(user_note(t, 2)->event, 22);
	long_name[255] = '\0';
	expect_note(t, 3, CLV_EVENT_MARK, long_name);
	ck_assert_ptr_null(user_note(t, 4));
	clv_trace_free(t);
	cleave_heap_close(heap);
	cleave_driver_close(driver);
	unlink(path);
}
END_TEST

/* Its exit status. In a cross build the program runs in the emulator, as this one does. */
static int run_user(const char *preload, const char *file)
{
	const char *program = getenv("CLEAVE_TRACE_USER");
	ck_assert_ptr_nonnull(program);
	pid_t child = fork();
	if (child == 0) {
		char for_emulator[4096];
		snprintf(for_emulator, sizeof(for_emulator), "LD_PRELOAD=%s", preload ? preload : "");
		if (getenv("MESON_EXE_WRAPPER")) {
			if (preload)
				setenv("QEMU_SET_ENV", for_emulator, 1);
			execl("/bin/sh", "sh", "-c", "exec $MESON_EXE_WRAPPER \"$0\" \"$@\"", program, file,
			      (char *)NULL);
			_exit(127);
		}
		if (preload)
			setenv("LD_PRELOAD", preload, 1);
		execl(program, program, file, (char *)NULL);
		_exit(127);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(a_program_without_the_library)
{
	make_path();
	ck_assert_int_eq(run_user(NULL, NULL), 0);
	ck_assert_int_eq(run_user(NULL, path), 3);
	unlink(path);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* whose runtime would be needed, and first */
START_TEST(a_program_with_the_library_preloaded)
{
	make_path();
	ck_assert_int_eq(run_user(getenv("CLEAVE_LIBRARY"), path), 0);
	struct clv_trace *t = read_trace();
	ck_assert_ptr_null(t->note); /* it ended well, without a call for it */
	expect_note(t, 0, CLV_EVENT_PHASE_BEGIN, "work");
	expect_note(t, 1, CLV_EVENT_MARK, "in the middle");
	expect_note(t, 2, CLV_EVENT_PHASE_END, "work");
	clv_trace_free(t);
	unlink(path);
}
END_TEST

CHECK_MAIN("trace_api", refusals, a_heap_is_recorded, stacks, a_program_without_the_library,
	   a_program_with_the_library_preloaded)
#else
CHECK_MAIN("trace_api", refusals, a_heap_is_recorded, stacks, a_program_without_the_library)
#endif
