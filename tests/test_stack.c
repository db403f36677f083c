/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "check_main.h"

#include "../tracing/record/stack.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* These are never inlined, cloned or called as tails: each has a frame of its own, whose address it tells. */
#define FRAME __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls")))

static char said[1024];

static void say(void *arg, const char *text)
{
	snprintf(said, sizeof(said), "%s", text);
}

static void open_stacks(unsigned native_max, uint32_t stacks_max)
{
	struct clv_stack_config config = {
		.native_max = native_max, .python_max = 8, .stacks_max = stacks_max, .say = say};
	ck_assert(clv_stack_open(&config));
	struct clv_stack_stats stats;
	clv_stack_stats(&stats);
	ck_assert_msg(stats.native, "%s", said);
}

static _Thread_local volatile unsigned kept; /* changed after each call, which is no tail call then */

typedef void leaf_fn(struct clv_stack *out, unsigned skip);

static FRAME void leaf(struct clv_stack *out, unsigned skip)
{
	clv_stack_capture(out, skip);
	kept++;
}

static FRAME void middle(struct clv_stack *out, unsigned skip)
{
	leaf(out, skip);
	kept++;
}

static FRAME void outer(struct clv_stack *out, unsigned skip)
{
	middle(out, skip);
	kept++;
}

static FRAME void down(unsigned depth, struct clv_stack *out)
{
	if (depth)
		down(depth - 1, out);
	else
		leaf(out, 0);
	kept++;
}

/* They lie in this order or another: an address belongs to the one that begins last before it. */
static const void *const functions[] = {(void *)leaf, (void *)middle, (void *)outer, (void *)down};

static const void *function_at(uint64_t address)
{
	const void *best = NULL;
	for (size_t i = 0; i < CLV_ARRAY_LEN(functions); i++)
		if ((uintptr_t)functions[i] < address && functions[i] > best)
			best = functions[i];
	return best;
}

START_TEST(frames_are_those_of_the_callers)
{
	struct clv_stack s;
	open_stacks(16, 0);
	outer(&s, 0);
	ck_assert_uint_ge(s.native_count, 4);
	ck_assert_uint_eq(s.python_count, 0);
	ck_assert_ptr_eq(function_at(s.native[0]), (void *)leaf);
	ck_assert_ptr_eq(function_at(s.native[1]), (void *)middle);
	ck_assert_ptr_eq(function_at(s.native[2]), (void *)outer);
	outer(&s, 2);
	ck_assert_ptr_eq(function_at(s.native[0]), (void *)outer);
	outer(&s, 1000);
	ck_assert_uint_eq(s.native_count, 0);
}
END_TEST

START_TEST(recursion_is_cut_at_the_limit)
{
	struct clv_stack s;
	open_stacks(10, 0);
	down(500, &s);
	ck_assert_uint_eq(s.native_count, 10);
	ck_assert_ptr_eq(function_at(s.native[0]), (void *)leaf);
	for (unsigned i = 1; i < 10; i++)
		ck_assert_ptr_eq(function_at(s.native[i]), (void *)down);
	down(3, &s); /* to the main function and libc: more than that is there, and no more is needed */
	ck_assert_uint_eq(s.native_count, 10);
}
END_TEST

START_TEST(the_most_that_can_be_asked_for)
{
	static struct clv_stack s; /* its 64th address is the last that there is room for */
	open_stacks(1000, 0);
	down(500, &s);
	ck_assert_uint_eq(s.native_count, CLV_STACK_NATIVE_MAX);
	ck_assert_ptr_eq(function_at(s.native[CLV_STACK_NATIVE_MAX - 1]), (void *)down);
}
END_TEST

#define CALL_RETURNS_TO ((sizeof(unknown_code) + 1) / 2)

/* Code that was made at run time, of which no table says how to go on from it: calls the function, returns. */
static const uint8_t unknown_code[] = {
#if defined(__x86_64__)
	0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3, /* sub rsp, 8; call rdi; add rsp, 8; ret */
#else
	0xfd, 0x7b, 0xbf, 0xa9, 0x00, 0x00, 0x3f, 0xd6, /* stp x29, x30, [sp, -16]!; blr x0 */
	0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6, /* ldp x29, x30, [sp], 16; ret */
#endif
};

static struct clv_stack from_unknown;

static FRAME void call_leaf(void)
{
	leaf(&from_unknown, 0);
	kept++;
}

START_TEST(code_without_tables_ends_a_stack)
{
	open_stacks(16, 0);
	uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(code, MAP_FAILED);
	memcpy(code, unknown_code, sizeof(unknown_code));
	ck_assert_int_eq(mprotect(code, 4096, PROT_READ | PROT_EXEC), 0);
	__builtin___clear_cache((char *)code, (char *)code + sizeof(unknown_code));
	void (*call)(void (*)(void));
	*(void **)&call = code;
	for (int i = 0; i < 2; i++) { /* as met for the first time, and as known */
		call(call_leaf);
		ck_assert_uint_ge(from_unknown.native_count, 3);
		ck_assert_ptr_eq(function_at(from_unknown.native[0]), (void *)leaf);
		ck_assert_uint_lt(from_unknown.native[1] - (uintptr_t)call_leaf, 100);
		/* libunwind for aarch64 says the last byte of the call here */
		ck_assert_uint_le(CALL_RETURNS_TO - 1, from_unknown.native[2] - (uintptr_t)code);
		ck_assert_uint_le(from_unknown.native[2] - (uintptr_t)code, CALL_RETURNS_TO);
	}
	munmap(code, 4096);
}
END_TEST

static int next_descriptor(void)
{
	int fd = dup(STDERR_FILENO);
	close(fd);
	return fd;
}

/* A frame pointer is followed where there are no tables, and may lead anywhere. That is found out without a descriptor: one that
 * stayed would be closed by programs that close all, and its number be a file of theirs. */
START_TEST(no_descriptor_is_taken)
{
	struct clv_stack s;
	int before = next_descriptor();
	open_stacks(16, 0);
	outer(&s, 0);
	ck_assert_uint_ge(s.native_count, 4);
	ck_assert_int_eq(next_descriptor(), before);
#ifdef __x86_64__
	/* push rbp; mov rbp, rdx or rsp; call rcx, the stack and its 0 as they came; put back; ret */
	static const uint8_t with_frame[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3};
	static const uint8_t astray[] = {0x55, 0x48, 0x89, 0xd5, 0xff, 0xd1, 0x5d, 0xc3};
	long page = sysconf(_SC_PAGESIZE);
	uint8_t *code = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0),
		*closed = mmap(NULL, (size_t)page * 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(code != MAP_FAILED && closed != MAP_FAILED);
	memcpy(code, with_frame, sizeof(with_frame));
	memcpy(code + 64, astray, sizeof(astray));
	void (*through)(struct clv_stack *, unsigned, void *, leaf_fn *);
	*(void **)&through = code;
	through(&s, 0, NULL, leaf);
	ck_assert_uint_ge(s.native_count, 2);
	ck_assert_ptr_eq(function_at(s.native[0]), (void *)leaf);
	ck_assert(s.native[1] > (uintptr_t)code && s.native[1] <= (uintptr_t)code + sizeof(with_frame));
	*(void **)&through = code + 64;
	through(&s, 0, closed + page - 4, leaf); /* and nobody reads there */
	ck_assert_uint_ge(s.native_count, 2);
	ck_assert_int_eq(next_descriptor(), before);
	munmap(code, (size_t)page);
	munmap(closed, (size_t)page * 2);
#endif
}
END_TEST

#ifdef __x86_64__
/* The program used libunwind, closed what it did not know, and has a file under the numbers of libunwind's pipe. */
START_TEST(a_pipe_that_was_there_is_left_alone)
{
	struct clv_stack s;
	void *frames[8], *lib = dlopen("libunwind.so.8", RTLD_NOW);
	int (*backtrace_of)(void **, int), fds[2], first = next_descriptor();
	char content[8] = "";
	ck_assert_ptr_nonnull(lib);
	*(void **)&backtrace_of = dlsym(lib, "unw_backtrace");
	ck_assert_ptr_nonnull(backtrace_of);
	backtrace_of(frames, 8);
	if (next_descriptor() == first)
		return; /* this libunwind makes it later, which is ours by then */
	ck_assert_int_eq(close(first) | close(first + 1), 0);
	FILE *file = tmpfile();
	ck_assert_ptr_nonnull(file);
	fds[0] = fileno(file);
	fds[1] = dup(fds[0]);
	ck_assert(fds[0] == first && fds[1] == first + 1);
	ck_assert_int_eq(write(fds[0], "hello", 5), 5);
	ck_assert_int_eq(lseek(fds[0], 0, SEEK_SET), 0);
	open_stacks(16, 0);
	/* push rbp; mov rbp, rsp; call rcx; pop rbp; ret */
	static const uint8_t with_frame[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3};
	uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(code != MAP_FAILED);
	memcpy(code, with_frame, sizeof(with_frame));
	void (*through)(struct clv_stack *, unsigned, void *, leaf_fn *);
	*(void **)&through = code;
	through(&s, 0, NULL, leaf);
	ck_assert_uint_ge(s.native_count, 3);
	ck_assert_int_eq(lseek(fds[1], 0, SEEK_CUR), 0);
	ck_assert_int_eq(pread(fds[0], content, sizeof(content) - 1, 0), 5);
	ck_assert_str_eq(content, "hello");
	fclose(file);
	munmap(code, 4096);
}
END_TEST
#else
START_TEST(a_pipe_that_was_there_is_left_alone)
{
}
END_TEST
#endif

START_TEST(equal_stacks_have_equal_ids)
{
	struct clv_stack s, again;
	uint32_t ids[2], other;
	open_stacks(16, 0);
	for (volatile int i = 0; i < 2; i++) { /* not unrolled: one call, from one place */
		outer(&s, 0);
		ids[i] = clv_stack_id(&s);
	}
	ck_assert_uint_eq(ids[0], 1);
	ck_assert_uint_eq(ids[1], 1);
	ck_assert_uint_eq(clv_stack_count(), 1);
	middle(&s, 0);
	other = clv_stack_id(&s);
	ck_assert_uint_eq(other, 2);
	ck_assert(clv_stack_get(other, &again));
	ck_assert_uint_eq(again.native_count, s.native_count);
	ck_assert_uint_eq(again.python_count, 0);
	ck_assert_mem_eq(again.native, s.native, s.native_count * sizeof(s.native[0]));
	ck_assert(!clv_stack_get(0, &again));
	ck_assert(!clv_stack_get(3, &again));
	s.native_count = 0;
	ck_assert_uint_eq(clv_stack_id(&s), 0); /* there is nothing to name */
}
END_TEST

/* Native and Python frames are told apart, as are one more and one less of them. */
START_TEST(the_kinds_of_frames_are_part_of_a_stack)
{
	struct clv_stack s = {.native_count = 1, .native = {2ull << 32 | 1}}, t = {.python_count = 2, .python = {1, 2}};
	open_stacks(16, 0);
	ck_assert_uint_eq(clv_stack_id(&s), 1);
	ck_assert_uint_eq(clv_stack_id(&t), 2);
	t.python_count = 1;
	ck_assert_uint_eq(clv_stack_id(&t), 3);
}
END_TEST

START_TEST(a_full_table_is_said_once)
{
	struct clv_stack s = {.native_count = 1};
	struct clv_stack_stats stats;
	open_stacks(16, 100);
	said[0] = '\0';
	for (uint64_t i = 1; i <= 100; i++) {
		s.native[0] = i;
		ck_assert_uint_eq(clv_stack_id(&s), i);
	}
	ck_assert_str_eq(said, "");
	s.native[0] = 101;
	ck_assert_uint_eq(clv_stack_id(&s), 0);
	ck_assert_ptr_nonnull(strstr(said, "table of stacks is full"));
	said[0] = '\0';
	s.native[0] = 102;
	ck_assert_uint_eq(clv_stack_id(&s), 0);
	ck_assert_str_eq(said, "");
	clv_stack_stats(&stats);
	ck_assert_uint_eq(stats.lost, 2);
	s.native[0] = 50;
	ck_assert_uint_eq(clv_stack_id(&s), 50); /* what is known stays known */
	ck_assert_uint_eq(clv_stack_count(), 100);
}
END_TEST

/* ---- threads ---- */

/* What libunwind keeps of a thread goes by a lock of its own, later than ThreadSanitizer allows. */
#ifdef __SANITIZE_THREAD__
#define CAPTURE_IN_THREADS false
#else
#define CAPTURE_IN_THREADS true
#endif

enum { THREADS = 4, ROUNDS = 30, KINDS = 200 };

struct worker {
	pthread_t thread;
	uint64_t seed;
	uint32_t ids[KINDS];
	bool wrong;
};

static pthread_barrier_t together;

/* The same stacks in another order in each thread, over and over, and stacks that are captured. */
static void *name_stacks(void *arg)
{
	struct worker *w = arg;
	struct clv_rng rng = {w->seed};
	pthread_barrier_wait(&together);
	for (unsigned i = 0; i < ROUNDS * KINDS; i++) {
		unsigned kind =
			i < KINDS ? (i * 7 + (unsigned)w->seed * 31) % KINDS : (unsigned)clv_rng_below(&rng, KINDS);
		struct clv_stack s = {.native_count = 3, .native = {kind, kind * kind, 1}}, back;
		uint32_t id = clv_stack_id(&s);
		if (id == 0 || (w->ids[kind] && w->ids[kind] != id) || id > clv_stack_count() ||
		    !clv_stack_get(id, &back) || back.native[0] != kind)
			w->wrong = true;
		w->ids[kind] = id;
		if (i % 50 == 0 && CAPTURE_IN_THREADS) {
			outer(&s, 0);
			w->wrong |= s.native_count < 3 || function_at(s.native[2]) != (void *)outer;
		}
	}
	return NULL;
}

START_TEST(threads_agree_on_ids)
{
	static struct worker workers[THREADS];
	bool taken[KINDS + 1] = {false};
	open_stacks(16, 0);
	pthread_barrier_init(&together, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].seed = i;
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, name_stacks, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		ck_assert(!workers[i].wrong);
		ck_assert_mem_eq(workers[i].ids, workers[0].ids, sizeof(workers[0].ids));
	}
	/* each has a number of its own, and none is left out */
	ck_assert_uint_eq(clv_stack_count(), KINDS);
	for (unsigned k = 0; k < KINDS; k++) {
		ck_assert_uint_le(workers[0].ids[k], KINDS);
		ck_assert(!taken[workers[0].ids[k]]);
		taken[workers[0].ids[k]] = true;
	}
	pthread_barrier_destroy(&together);
}
END_TEST

/* ---- fork ---- */

/* 0 as the exit status of a child: it sees as many native frames as it should, and numbers them on. */
static int in_child(bool native)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		struct clv_stack s;
		outer(&s, 0);
		bool right =
			native ? s.native_count >= 3 && function_at(s.native[2]) == (void *)outer : s.native_count == 0;
		s = (struct clv_stack){.native_count = 1, .native = {4711}};
		clv_stack_poll();
		_exit(right && clv_stack_id(&s) == clv_stack_count() ? 0 : 1);
	}
	return waitpid(child, &status, 0) == child ? status : -1;
}

START_TEST(a_child_of_fork_goes_on)
{
	struct clv_stack s;
	open_stacks(16, 0);
	ck_assert_int_eq(in_child(true), 0);
	outer(&s, 0);
	ck_assert_uint_eq(clv_stack_id(&s), 1);
	ck_assert_int_eq(in_child(false), 0);
	outer(&s, 0);
	ck_assert_uint_gt(s.native_count, 3); /* the parent as before */
}
END_TEST

/* ---- modules ---- */

static bool find_module(uint64_t address, struct clv_stack_module *out)
{
	bool found = false;
	struct clv_stack_module m;
	for (uint32_t id = 1; clv_stack_module(id, &m); id++)
		if (address >= m.begin && address < m.end) {
			*out = m;
			found = true;
		}
	return found;
}

START_TEST(modules_are_those_that_are_loaded)
{
	struct clv_stack_module m;
	char self[4096];
	Dl_info info;
	open_stacks(16, 0);
	ck_assert(find_module((uintptr_t)leaf, &m));
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	ck_assert_int_gt(len, 0);
	self[len] = '\0';
	ck_assert_str_eq(m.path, self);
	ck_assert(dladdr((void *)leaf, &info));
	/* the first segment of a program that can lie anywhere is at 0 */
	ck_assert_uint_eq(m.bias, (uintptr_t)info.dli_fbase);
	ck_assert(find_module((uintptr_t)dlsym(RTLD_DEFAULT, "getpid"), &m));
	ck_assert_ptr_nonnull(strstr(m.path, "/libc.so.6"));
	ck_assert_uint_eq(m.build_id_len, 20); /* as Debian's and Ubuntu's are */
}
END_TEST

START_TEST(a_module_that_comes_later_is_seen)
{
	struct clv_stack_module m;
	open_stacks(16, 0);
	uint32_t before = clv_stack_module_count();
	clv_stack_poll();
	ck_assert_uint_eq(clv_stack_module_count(), before);
	void *lib = dlopen("libdl.so.2", RTLD_NOW | RTLD_NOLOAD);
	ck_assert_msg(!lib, "the test needs a library that is not loaded yet");
	lib = dlopen("libdl.so.2", RTLD_NOW);
	ck_assert_ptr_nonnull(lib);
	clv_stack_poll();
	ck_assert_uint_gt(clv_stack_module_count(), before);
	bool seen = false;
	for (uint32_t id = before + 1; clv_stack_module(id, &m); id++)
		seen |= strstr(m.path, "/libdl.so.2") != NULL;
	ck_assert(seen);
	dlclose(lib);
}
END_TEST

START_TEST(nothing_is_answered_before_it_is_open)
{
	struct clv_stack s = {.native_count = 1, .native = {1}};
	struct clv_stack_stats stats;
	ck_assert_uint_eq(clv_stack_id(&s), 0);
	ck_assert_uint_eq(clv_stack_capture(&s, 0), 0);
	ck_assert_uint_eq(clv_stack_count(), 0);
	ck_assert_uint_eq(clv_stack_module_count(), 0);
	ck_assert_ptr_null(clv_stack_string(1, NULL));
	clv_stack_poll();
	clv_stack_stats(&stats);
	ck_assert(!stats.native);
	ck_assert_uint_eq(stats.lost, 0);
}
END_TEST

START_TEST(a_program_without_python_has_no_such_frames)
{
	struct clv_stack s;
	struct clv_stack_stats stats;
	open_stacks(16, 0);
	ck_assert_str_eq(said, ""); /* that is no fault */
	leaf(&s, 0);
	ck_assert_uint_eq(s.python_count, 0);
	ck_assert_uint_eq(clv_stack_frame_count(), 0);
	clv_stack_stats(&stats);
	ck_assert_uint_eq(stats.python_minor, 0);
	ck_assert_uint_eq(stats.lost_frames, 0);
}
END_TEST

CHECK_MAIN("stack", frames_are_those_of_the_callers, recursion_is_cut_at_the_limit, the_most_that_can_be_asked_for,
	   code_without_tables_ends_a_stack, no_descriptor_is_taken, a_pipe_that_was_there_is_left_alone,
	   equal_stacks_have_equal_ids, the_kinds_of_frames_are_part_of_a_stack, a_full_table_is_said_once,
	   threads_agree_on_ids, a_child_of_fork_goes_on, modules_are_those_that_are_loaded,
	   a_module_that_comes_later_is_seen, nothing_is_answered_before_it_is_open,
	   a_program_without_python_has_no_such_frames)
