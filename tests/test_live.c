/* SPDX-License-Identifier: MIT
 *
 * A process that answers about its heap, and what asks it: here both are one, so that threads can be watched. The command and
 * programs under the preload library are tests of test_preload_stat.c.
 */
#define _GNU_SOURCE
#include "../src/cli/stat_ask.h"
#include "../src/cli/stat_print.h"
#include "../src/cli/stat_snapshot.h"
#include "../src/host/meta.h"
#include "../src/live/service.h"
#include "../src/live/stat_name.h"
#include "check_main.h"
#include "live_rig.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE 20000 /* under emulators and sanitizers everything takes long */

static struct clv_stat_sample answer_to(enum clv_stat_op op)
{
	struct clv_stat_sample s;
	struct clv_error err = {""};
	enum clv_exit status = clv_stat_ask(getpid(), op, PATIENCE, &s, &err);
	ck_assert_msg(status == CLV_EXIT_DONE, "%s", err.text);
	for (unsigned i = 0; i < s.view.used; i++) {
		const struct clv_breakdown *b = &s.view.parts[i].device->state.sorted;
		ck_assert_uint_eq(b->live + b->internal + b->reserved + b->stream + b->hard + b->soft, b->held);
	}
	return s;
}

/* The sentence with which it is refused. */
static const char *refusal(long pid, enum clv_exit status)
{
	static struct clv_error err;
	struct clv_stat_sample s;
	err.text[0] = '\0';
	enum clv_exit is = clv_stat_ask(pid, CLV_STAT_ASK, PATIENCE, &s, &err);
	ck_assert_msg(is == status, "status %d: %s", (int)is, err.text);
	ck_assert_ptr_null(s.data);
	return err.text;
}

START_TEST(what_is_told)
{
	live_open("growth:tight,reserve:3MiB*2+name=pair,limit:64MiB");
	clv_stat_serve(&live);
	struct clv_stat_sample s = answer_to(CLV_STAT_ASK);
	ck_assert_int_eq(s.view.process->pid, getpid());
	ck_assert_str_eq(s.view.process->settings, "growth:tight,limit:64MiB,reserve:3145728*2+name=pair");
	ck_assert_uint_eq(s.view.process->devices, 2);
	ck_assert_uint_eq(s.view.used, 0); /* none has been used */
	ck_assert_str_ne(s.view.process->library, "");
	clv_stat_sample_free(&s);

	cleave_ptr blocks[3] = {live_alloc(3 * CLV_MIB), live_alloc(700), live_alloc(5 * CLV_MIB)}, none;
	live_free(blocks[2]);
	ck_assert_int_eq(cleave_alloc(live.heap, 0, LIVE_STREAM, 65 * CLV_MIB, &none), -ENOMEM);
	struct clv_heap_state state;
	ck_assert(clv_heap_state(live.heap, 0, &state, NULL, 0));
	s = answer_to(CLV_STAT_ASK);
	ck_assert_uint_eq(s.view.used, 1);
	const struct clv_stat_device *d = s.view.parts[0].device;
	ck_assert_int_eq(d->device, 0);
	ck_assert_uint_eq(d->state.sorted.live, 3 * CLV_MIB + 1024);
	ck_assert(!memcmp(&d->state.sorted, &state.sorted, sizeof(state.sorted)));
	ck_assert_uint_eq(d->state.stats.failures, 1);
	ck_assert_uint_eq(d->state.failure.request_bytes, 65 * CLV_MIB);
	ck_assert(d->state.failed_ns > s.view.process->opened_ns && d->state.failed_ns <= s.view.process->now_ns);
	ck_assert_uint_eq(d->reservations, 1);
	ck_assert_str_eq(s.view.parts[0].reservations[0].name, "pair");
	ck_assert_uint_eq(d->blocks + d->frames, 0);
	struct clv_call_counts counts;
	live.driver->counts(live.driver, &counts);
	ck_assert_uint_gt(counts.calls[CLV_CALL_create], 0);
	ck_assert_uint_eq(s.view.process->driver.calls[CLV_CALL_create], counts.calls[CLV_CALL_create]);
	clv_stat_sample_free(&s);
}
END_TEST

START_TEST(trims)
{
	live_open("growth:tight,frame:2MiB");
	clv_stat_serve(&live);
	cleave_ptr kept = live_alloc(CLV_MIB), gone = live_alloc(8 * CLV_MIB);
	live_free(gone);
	struct clv_stat_sample s = answer_to(CLV_STAT_TRIM);
	ck_assert_uint_eq(s.view.process->released, 0); /* work may still use it, and nobody waits */
	uint64_t held = s.view.parts[0].device->state.sorted.held;
	clv_stat_sample_free(&s);
	clv_sim_complete(live.driver, LIVE_STREAM);
	s = answer_to(CLV_STAT_TRIM);
	const struct clv_breakdown *b = &s.view.parts[0].device->state.sorted;
	ck_assert_uint_eq(s.view.process->released, 8 * CLV_MIB);
	ck_assert_uint_eq(b->held, held - 8 * CLV_MIB);
	ck_assert_uint_eq(b->soft, 0);
	ck_assert_uint_eq(b->live, CLV_MIB);
	clv_stat_sample_free(&s);
	live_free(kept);
}
END_TEST

/* ---- snapshots ---- */

/* Free bytes in segments with a live block, and without; and what is live. */
struct found {
	uint64_t mapped, live, hard, soft, pending, blocks;
};

static struct found look_at(const struct clv_history *h)
{
	struct found f = {0};
	uint64_t end = 0;
	for (uint32_t i = 0; i < h->segment_count; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		uint64_t unused = 0, at = s->addr;
		bool occupied = false;
		ck_assert_uint_ge(s->addr, end);
		for (uint32_t k = s->first_block; k < s->first_block + s->blocks; k++) {
			const struct clv_block_record *b = &h->blocks[k];
			ck_assert_uint_eq(b->addr, at);
			at += b->size;
			occupied |= b->state == CLV_BLOCK_ACTIVE;
			f.live += b->state == CLV_BLOCK_ACTIVE ? clv_align_up(b->requested, CLV_GRAIN) : 0;
			f.blocks += b->state == CLV_BLOCK_ACTIVE;
			unused += b->state == CLV_BLOCK_INACTIVE ? b->size : 0;
			f.pending += b->state == CLV_BLOCK_PENDING_FREE ? b->size : 0;
		}
		ck_assert_uint_eq(at, s->addr + s->size);
		*(occupied ? &f.hard : &f.soft) += unused;
		f.mapped += s->size;
		end = at;
	}
	return f;
}

START_TEST(snapshots)
{
	static cleave_ptr blocks[400];
	struct clv_rng rng = {9};
	live_open("frame:4MiB");
	clv_stat_serve(&live);
	for (int round = 0; round < 30; round++) {
		for (int n = 0; n < 200; n++) {
			unsigned i = (unsigned)clv_rng_below(&rng, 400);
			if (blocks[i])
				live_free(blocks[i]);
			blocks[i] = 0;
			if (clv_rng_below(&rng, 2)) /* the device may be full */
				cleave_alloc(live.heap, 0, LIVE_STREAM,
					     clv_rng_range(&rng, 1, n % 50 ? 200000 : 9000000), &blocks[i]);
		}
		if (round % 3 == 0) {
			clv_sim_complete(live.driver, LIVE_STREAM);
			cleave_heap_trim(live.heap, 0, 100 * CLV_MIB, NULL);
		}
		struct clv_stat_sample s = answer_to(CLV_STAT_SNAPSHOT);
		struct clv_error err = {""};
		struct clv_trace *t = clv_stat_trace(&s.view, &err);
		ck_assert_msg(t != NULL, "%s", err.text);
		ck_assert_uint_eq(t->history_count, 1);
		ck_assert(t->histories[0].has_state && !t->histories[0].event_count);
		const struct clv_heap_state *state = &s.view.parts[0].device->state;
		struct found f = look_at(&t->histories[0]);
		ck_assert_uint_eq(f.mapped, state->mapped);
		ck_assert_uint_eq(f.blocks, state->stats.live_blocks);
		ck_assert_uint_eq(f.live, state->sorted.live);
		/* one stream: nothing waits in slabs */
		ck_assert_uint_eq(f.hard, state->sorted.hard);
		ck_assert_uint_eq(f.soft + state->stats.held_bytes - state->mapped, state->sorted.soft);
		ck_assert_uint_eq(f.pending, state->sorted.stream);
		for (uint32_t i = 0; i < t->histories[0].segment_count; i++)
			ck_assert(t->streams[t->histories[0].segments[i].stream] == LIVE_STREAM.id ||
				  t->streams[t->histories[0].segments[i].stream] == CLEAVE_STREAM_ANY.id);
		clv_trace_free(t);
		clv_stat_sample_free(&s);
	}
}
END_TEST

/* Blocks that do not fill their frames, or have no frame, are no state. */
START_TEST(snapshots_that_make_no_sense)
{
	live_open("");
	clv_stat_serve(&live);
	live_alloc(CLV_MIB);
	live_alloc(100);
	struct clv_stat_sample s = answer_to(CLV_STAT_SNAPSHOT);
	struct clv_stat_part *part = &s.view.parts[0];
	cleave_block *blocks = (cleave_block *)(uintptr_t)part->blocks;
	struct clv_stat_device *d = (struct clv_stat_device *)(uintptr_t)part->device;
	struct clv_heap_frame *frames = (struct clv_heap_frame *)(uintptr_t)part->frames;
	ck_assert_uint_ge(d->blocks, 2);
	for (int i = 0; i < 8; i++) {
		cleave_block was = blocks[1];
		struct clv_heap_frame frame = frames[0];
		uint64_t count = d->blocks, frame_count = d->frames;
		if (i == 0)
			blocks[1].state = 4;
		else if (i == 1)
			blocks[1].state = 0;
		else if (i == 2)
			blocks[1].bytes = 0;
		else if (i == 3)
			blocks[1].address += 512;
		else if (i == 4)
			blocks[1].requested = blocks[1].bytes + 1;
		else if (i == 5)
			frames[0].bytes += 2 * CLV_MIB;
		else if (i == 6)
			d->blocks--;
		else
			d->frames--;
		struct clv_error err = {""};
		ck_assert_msg(!clv_stat_trace(&s.view, &err), "%d is taken", i);
		ck_assert_ptr_nonnull(strstr(err.text, "blocks"));
		blocks[1] = was;
		frames[0] = frame;
		d->blocks = count;
		d->frames = frame_count;
	}
	struct clv_trace *t = clv_stat_trace(&s.view, NULL); /* as it was, it is good */
	ck_assert_ptr_nonnull(t);
	clv_trace_free(t);
	clv_stat_sample_free(&s);
}
END_TEST

/* ---- many who ask ---- */

struct worker {
	_Atomic bool stop;
	pthread_t thread;
	uint64_t seed;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct clv_rng rng = {w->seed};
	const cleave_stream stream = {w->seed + 100, w->seed + 100};
	cleave_ptr blocks[32] = {0};
	while (!w->stop) {
		unsigned i = (unsigned)clv_rng_below(&rng, 32);
		if (blocks[i])
			ck_assert_int_eq(cleave_free(live.heap, blocks[i], stream), 0);
		ck_assert_int_eq(cleave_alloc(live.heap, 0, stream, clv_rng_range(&rng, 1, 70000), &blocks[i]), 0);
	}
	return NULL;
}

static void start(struct worker *w, uint64_t seed)
{
	w->stop = false;
	w->seed = seed;
	ck_assert_int_eq(pthread_create(&w->thread, NULL, work, w), 0);
}

static void stop(struct worker *w)
{
	w->stop = true;
	pthread_join(w->thread, NULL);
}

START_TEST(hundreds_of_requests)
{
	struct worker workers[2];
	live_open("");
	clv_stat_serve(&live);
	start(&workers[0], 1);
	start(&workers[1], 2);
	uint64_t allocs = 0;
	for (int i = 0; i < 300; i++) {
		struct clv_stat_sample s = answer_to(i % 7 == 0    ? CLV_STAT_SNAPSHOT
						     : i % 11 == 0 ? CLV_STAT_TRIM
								   : CLV_STAT_ASK);
		if (s.view.used) {
			ck_assert_uint_ge(s.view.parts[0].device->state.stats.allocs, allocs);
			allocs = s.view.parts[0].device->state.stats.allocs;
		}
		clv_stat_sample_free(&s);
	}
	ck_assert_uint_gt(allocs, 0);
	stop(&workers[0]);
	stop(&workers[1]);
}
END_TEST

static void *ask_often(void *arg)
{
	(void)arg;
	for (int i = 0; i < 6; i++) {
		struct clv_stat_sample s = answer_to(CLV_STAT_ASK);
		clv_stat_sample_free(&s);
	}
	return NULL;
}

/* More than there are places for. */
START_TEST(several_at_once)
{
	pthread_t threads[3 * CLV_SERVICE_CONNECTIONS];
	live_open("");
	clv_stat_serve(&live);
	live_alloc(100000);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_often, NULL), 0);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
}
END_TEST

/* ---- who asks badly ---- */

static socklen_t own_address(struct sockaddr_un *out)
{
	char name[CLV_STAT_NAME];
	uint64_t begun;
	ck_assert(clv_stat_start_of("self", &begun));
	clv_stat_name(name, (long)getpid(), begun);
	return clv_service_address(name, out);
}

static int connected(void)
{
	struct sockaddr_un address;
	socklen_t len = own_address(&address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, len), 0);
	return fd;
}

START_TEST(garbage)
{
	struct clv_rng rng = {3};
	live_open("");
	clv_stat_serve(&live);
	live_alloc(5000);
	for (int i = 0; i < 200; i++) {
		struct {
			struct clv_stat_request request;
			char more[200];
		} packet = {.request = {{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_ASK}}};
		struct clv_stat_reply reply = {0};
		size_t len = sizeof(packet.request);
		int kind = i % 4;
		if (kind == 0) { /* anything */
			len = 1 + clv_rng_below(&rng, sizeof(packet));
			for (size_t k = 0; k < len; k++)
				((char *)&packet)[k] = (char)clv_rng_next(&rng);
		} else if (kind == 1) {
			packet.request.head.version += 1 + (uint32_t)clv_rng_below(&rng, 9);
		} else if (kind == 2) {
			packet.request.head.what = CLV_STAT_OPS + (uint32_t)clv_rng_below(&rng, 9);
		} else { /* too short, too long */
			len += i % 8 < 4 ? 1 : (size_t)-1;
		}
		int fd = connected();
		ck_assert_int_eq(send(fd, &packet, len, 0), (ssize_t)len);
		ck_assert_int_eq(recv(fd, &reply, sizeof(reply), 0), sizeof(reply));
		ck_assert_uint_eq(reply.head.magic, CLV_STAT_MAGIC);
		ck_assert_uint_eq(reply.head.version, CLV_STAT_VERSION);
		ck_assert_uint_eq(reply.head.what, CLV_STAT_BAD_REQUEST);
		ck_assert_str_ne(reply.library, "");
		ck_assert_int_eq(recv(fd, &reply, sizeof(reply), 0), 0); /* it has hung up */
		close(fd);
	}
	struct clv_stat_sample s = answer_to(CLV_STAT_ASK);
	clv_stat_sample_free(&s);
}
END_TEST

/* All places are taken by who says nothing: they lose them. */
START_TEST(silence)
{
	int silent[CLV_SERVICE_CONNECTIONS + 2];
	clv_stat_patience_ms = 100;
	live_open("");
	clv_stat_serve(&live);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(silent); i++)
		silent[i] = connected();
	struct clv_stat_sample s = answer_to(CLV_STAT_ASK);
	clv_stat_sample_free(&s);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(silent); i++) {
		struct pollfd p = {.fd = silent[i], .events = POLLIN};
		char byte;
		ck_assert_int_eq(poll(&p, 1, PATIENCE), 1);
		ck_assert_int_eq(recv(silent[i], &byte, 1, 0), 0);
		close(silent[i]);
	}
}
END_TEST

/* Of those who ask and do not read the answer, the process keeps nothing. */
START_TEST(answers_that_nobody_takes)
{
	const struct clv_stat_request request = {{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_SNAPSHOT}};
	live_open("");
	clv_stat_serve(&live);
	live_alloc(5000);
	struct clv_stat_sample s = answer_to(CLV_STAT_ASK);
	clv_stat_sample_free(&s);
	uint64_t before = clv_meta_bytes();
	for (int i = 0; i < 50; i++) {
		int fd = connected();
		ck_assert_int_eq(send(fd, &request, sizeof(request), 0), sizeof(request));
		close(fd);
	}
	s = answer_to(CLV_STAT_ASK);
	clv_stat_sample_free(&s);
	ck_assert_uint_eq(clv_meta_bytes(), before);
}
END_TEST

START_TEST(other_users)
{
	if (geteuid())
		return; /* only root can be somebody else */
	live_open("");
	clv_stat_serve(&live);
	pid_t process = getpid();
	pid_t child = fork();
	if (!child) {
		struct clv_stat_sample s;
		static struct clv_error err;
		if (setgid(65534) || setuid(65534))
			_exit(3);
		enum clv_exit status = clv_stat_ask(process, CLV_STAT_ASK, PATIENCE, &s, &err);
		_exit(status == CLV_EXIT_USAGE && strstr(err.text, "another user") ? 0 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %#x", status);
	struct clv_stat_sample s = answer_to(CLV_STAT_ASK);
	clv_stat_sample_free(&s);
}
END_TEST

/* ---- what the program does not notice ---- */

static _Atomic int signals, elsewhere;
static pid_t main_thread;

static void on_signal(int number)
{
	(void)number;
	signals++;
	elsewhere += syscall(SYS_gettid) != main_thread;
}

START_TEST(signals_are_the_programs)
{
	live_open("");
	clv_stat_serve(&live);
	main_thread = (pid_t)syscall(SYS_gettid);
	signal(SIGUSR1, on_signal);
	sigset_t usr1, before;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	for (int i = 0; i < 20; i++) {
		/* while this thread does not take it, any other that would may have it */
		pthread_sigmask(SIG_BLOCK, &usr1, &before);
		kill(getpid(), SIGUSR1);
		struct clv_stat_sample s = answer_to(CLV_STAT_ASK);
		clv_stat_sample_free(&s);
		ck_assert_int_eq(signals, i);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		ck_assert_int_eq(signals, i + 1);
	}
	ck_assert_int_eq(elsewhere, 0);
}
END_TEST

static bool listens(void)
{
	struct clv_stat_sample s;
	static struct clv_error err;
	err.text[0] = '\0';
	bool good = clv_stat_ask(getpid(), CLV_STAT_ASK, PATIENCE, &s, &err) == CLV_EXIT_DONE;
	clv_stat_sample_free(&s);
	return good;
}

START_TEST(the_child_of_a_fork)
{
	live_open("");
	clv_stat_serve(&live);
	pid_t parent = getpid();
	pid_t child = fork();
	if (!child) {
		struct clv_stat_sample s;
		static struct clv_error err;
		clv_stat_in_child();
		bool parent_answers = clv_stat_ask(parent, CLV_STAT_ASK, PATIENCE, &s, &err) == CLV_EXIT_DONE;
		_exit(parent_answers && !listens() ? 0 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %#x", status);
	ck_assert(listens());
}
END_TEST

START_TEST(switched_off)
{
	live_open("stat:off");
	clv_stat_serve(&live);
	ck_assert_ptr_nonnull(strstr(refusal(getpid(), CLV_EXIT_FAILED), "does not run under Cleave"));
}
END_TEST

START_TEST(who_is_not_there)
{
	pid_t child = fork();
	if (!child)
		_exit(0);
	siginfo_t info;
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	ck_assert_ptr_nonnull(strstr(refusal(child, CLV_EXIT_USAGE), "has ended"));
	ck_assert(clv_stat_has_ended(child));
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_ptr_nonnull(strstr(refusal(child, CLV_EXIT_USAGE), "there is no process"));
	ck_assert(clv_stat_has_ended(child));
	ck_assert(!clv_stat_has_ended(getpid()));
}
END_TEST

/* Somebody else listens under the name. */
START_TEST(an_impostor)
{
	struct sockaddr_un address;
	char name[CLV_STAT_NAME], who[32];
	uint64_t begun;
	int pipes[2];
	ck_assert_int_eq(pipe(pipes), 0);
	pid_t victim = fork();
	if (!victim) {
		char byte;
		close(pipes[1]);
		_exit(read(pipes[0], &byte, 1) != 0);
	}
	snprintf(who, sizeof(who), "%d", (int)victim);
	ck_assert(clv_stat_start_of(who, &begun));
	clv_stat_name(name, victim, begun);
	socklen_t len = clv_service_address(name, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(listen(fd, 4), 0);
	char expect[64];
	snprintf(expect, sizeof(expect), "process %d answers for process %d", (int)getpid(), (int)victim);
	const char *is = refusal(victim, CLV_EXIT_USAGE);
	ck_assert_msg(strstr(is, expect) != NULL, "%s", is);
	close(pipes[1]);
	ck_assert_int_eq(waitpid(victim, NULL, 0), victim);
}
END_TEST

/* ---- answers that are not whole ---- */

/* What a process may reply, and what is said of it. */
static const struct reply_case {
	struct clv_stat_reply reply;
	size_t len;    /* of the packet; 0: it hangs up */
	size_t memory; /* bytes of memory that come with it, all of 0; 0: none does */
	enum clv_exit status;
	const char *says;
} replies[] = {
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION + 1, CLV_STAT_GIVEN}},
	 sizeof(struct clv_stat_reply),
	 0,
	 CLV_EXIT_USAGE,
	 "another version"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION + 1, 77}},
	 sizeof(struct clv_stat_head),
	 0,
	 CLV_EXIT_USAGE,
	 "another version"},
	{{{CLV_STAT_MAGIC + 1, CLV_STAT_VERSION, 0}}, sizeof(struct clv_stat_reply), 0, CLV_EXIT_USAGE, "not Cleave's"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, 0}}, 3, 0, CLV_EXIT_USAGE, "not Cleave's"},
	{{{0}}, 0, 0, CLV_EXIT_FAILED, "has hung up"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_OTHER_USER}},
	 sizeof(struct clv_stat_reply),
	 0,
	 CLV_EXIT_USAGE,
	 "another user"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_BAD_REQUEST}, "9.9"},
	 sizeof(struct clv_stat_reply),
	 0,
	 CLV_EXIT_USAGE,
	 "(Cleave 9.9) does not understand"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_NO_MEMORY}, .why = EMFILE},
	 sizeof(struct clv_stat_reply),
	 0,
	 CLV_EXIT_FAILED,
	 "Too many open files"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_GIVEN}, .bytes = 100},
	 sizeof(struct clv_stat_reply),
	 0,
	 CLV_EXIT_USAGE,
	 "makes no sense"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_GIVEN}, .bytes = 1ull << 62},
	 sizeof(struct clv_stat_reply),
	 8,
	 CLV_EXIT_USAGE,
	 "makes no sense"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_GIVEN}, .bytes = 100},
	 sizeof(struct clv_stat_reply),
	 60,
	 CLV_EXIT_USAGE,
	 "cut off"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_GIVEN}, .bytes = 100},
	 sizeof(struct clv_stat_reply),
	 100,
	 CLV_EXIT_USAGE,
	 "none of Cleave's"},
	{{{CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_GIVEN}, .bytes = 20000},
	 sizeof(struct clv_stat_reply),
	 20000,
	 CLV_EXIT_USAGE,
	 "none of Cleave's"},
};

static void *reply_to_each(void *listening)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(replies); i++) {
		char request[64], control[CMSG_SPACE(sizeof(int))] = "";
		struct clv_stat_reply reply = replies[i].reply;
		struct iovec data = {.iov_base = &reply, .iov_len = replies[i].len};
		struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
		int fd = accept(*(const int *)listening, NULL, NULL), memory = -1;
		ck_assert_int_gt(recv(fd, request, sizeof(request), 0), 0);
		if (replies[i].memory) {
			memory = memfd_create("test", 0);
			ck_assert_int_eq(ftruncate(memory, (off_t)replies[i].memory), 0);
			m.msg_control = control;
			m.msg_controllen = sizeof(control);
			struct cmsghdr *c = CMSG_FIRSTHDR(&m);
			c->cmsg_level = SOL_SOCKET;
			c->cmsg_type = SCM_RIGHTS;
			c->cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(c), &memory, sizeof(int));
		}
		if (replies[i].len)
			ck_assert_int_eq(sendmsg(fd, &m, 0), (ssize_t)replies[i].len);
		close(fd);
		close(memory);
	}
	return NULL;
}

START_TEST(replies_that_are_none)
{
	struct sockaddr_un address;
	pthread_t thread;
	socklen_t len = own_address(&address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(listen(fd, 4), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, reply_to_each, &fd), 0);
	for (size_t i = 0; i < CLV_ARRAY_LEN(replies); i++) {
		const char *is = refusal(getpid(), replies[i].status);
		ck_assert_msg(strstr(is, replies[i].says) != NULL, "%zu: %s", i, is);
	}
	pthread_join(thread, NULL);
	close(fd);
}
END_TEST

START_TEST(answers_cut_off_and_changed)
{
	size_t len;
	struct clv_stat_view view;
	struct clv_rng rng = {17};
	live_open("reserve:3MiB*2+name=pair,reserve:40KiB");
	live_alloc(3 * CLV_MIB);
	live_alloc(10);
	char *answer = clv_gather(&live, CLV_STAT_SNAPSHOT, &len);
	ck_assert_ptr_nonnull(answer);
	ck_assert(clv_stat_view(answer, len, &view, NULL));
	for (size_t cut = 0; cut < len; cut++) {
		struct clv_error err = {""};
		char *copy = malloc(cut + 1); /* so that a sanitizer sees what is read behind it */
		memcpy(copy, answer, cut);
		ck_assert_msg(!clv_stat_view(copy, cut, &view, &err), "%zu of %zu bytes are taken", cut, len);
		ck_assert_str_ne(err.text, "");
		free(copy);
	}
	char *copy = malloc(len + 8);
	memcpy(copy, answer, len);
	memset(copy + len, 0, 8);
	ck_assert(!clv_stat_view(copy, len + 8, &view, NULL));
	for (int i = 0; i < 5000; i++) {
		memcpy(copy, answer, len);
		for (unsigned n = 1 + (unsigned)clv_rng_below(&rng, 4); n; n--)
			copy[clv_rng_below(&rng, len)] = (char)clv_rng_next(&rng);
		if (!clv_stat_view(copy, len, &view, NULL))
			continue;
		struct clv_error err = {""}; /* whatever it says can be said */
		clv_trace_free(clv_stat_trace(&view, &err));
		json_decref(clv_stat_json(&view, NULL));
	}
	free(copy);
	clv_meta_free(answer);
}
END_TEST

/* Without host memory there is no answer, and nothing is lost. */
START_TEST(no_host_memory)
{
	size_t len;
	live_open("reserve:3MiB*2");
	live_alloc(3 * CLV_MIB);
	uint64_t before = clv_meta_bytes();
	void *answer = NULL;
	uint64_t n = 0;
	while (!answer) {
		clv_meta_fail_after(++n);
		answer = clv_gather(&live, CLV_STAT_SNAPSHOT, &len);
		clv_meta_fail_after(0);
		if (!answer)
			ck_assert_uint_eq(clv_meta_bytes(), before);
	}
	ck_assert_uint_gt(n, 3);
	clv_meta_free(answer);
	ck_assert_uint_eq(clv_meta_bytes(), before);
}
END_TEST

/* ---- rates ---- */

START_TEST(rates)
{
	struct clv_stat_process p[2] = {{.opened_ns = 5, .now_ns = 1000000000, .used = 1},
					{.opened_ns = 5, .now_ns = 3000000000, .used = 2}};
	struct clv_stat_device d[3] = {{.device = 1}, {.device = 0}, {.device = 1}};
	struct clv_stat_view before = {.process = &p[0], .used = 1, .parts = {{.device = &d[0]}}};
	struct clv_stat_view after = {.process = &p[1], .used = 2, .parts = {{.device = &d[1]}, {.device = &d[2]}}};
	struct clv_stat_rates r;
	d[0].state.stats.allocs = 100;
	d[0].state.stats.frees = 7;
	d[1].state.stats.allocs = 10; /* used since */
	d[2].state.stats.allocs = 300;
	d[2].state.stats.frees = 8;
	p[0].driver.calls[CLV_CALL_map] = 3;
	p[1].driver.calls[CLV_CALL_map] = 5;
	p[1].driver.calls[CLV_CALL_create] = 4;
	ck_assert(clv_stat_rates(&before, &after, &r));
	ck_assert_double_eq_tol(r.seconds, 2, 1e-9);
	ck_assert_double_eq_tol(r.driver_calls, 3, 1e-9);
	ck_assert_double_eq_tol(r.devices[0].allocs, 5, 1e-9);
	ck_assert_double_eq_tol(r.devices[1].allocs, 100, 1e-9);
	ck_assert_double_eq_tol(r.devices[1].frees, 0.5, 1e-9);
	ck_assert(!clv_stat_rates(&after, &before, &r));
	p[1].opened_ns = 6; /* another heap under the same number */
	ck_assert(!clv_stat_rates(&before, &after, &r));
}
END_TEST

CHECK_MAIN("live", what_is_told, trims, snapshots, snapshots_that_make_no_sense, hundreds_of_requests, several_at_once,
	   garbage, silence, answers_that_nobody_takes, other_users, signals_are_the_programs, the_child_of_a_fork,
	   switched_off, who_is_not_there, an_impostor, replies_that_are_none, answers_cut_off_and_changed,
	   no_host_memory, rates)
