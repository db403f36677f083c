/* SPDX-License-Identifier: MIT
 *
 * The recorder when things go wrong or many do it at once: threads, full buffers, disks that are full or slow, size limits,
 * forks, and processes that are killed.
 */
#include "../src/host/meta.h"
#include "../tracing/memory.h"
#include "../tracing/record/record_file.h"
#include "record_model.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t seed(void)
{
	const char *text = getenv("CLEAVE_SEED");
	return text ? strtoull(text, NULL, 10) : 1;
}

/* ---- many threads ---- */

static void check_order(const struct clv_history *h, bool lost)
{
	for (uint32_t i = 1; i < h->event_count; i++)
		ck_assert_uint_ge(h->events[i].time_us, h->events[i - 1].time_us);
	for (uint32_t i = 1; i < h->note_count; i++)
		ck_assert_uint_ge(h->notes[i].time_us, h->notes[i - 1].time_us);
	for (uint32_t i = 0; i < h->event_count && !lost; i++) {
		ck_assert_uint_ne(h->events[i].block, CLV_NO_BLOCK);
		ck_assert_uint_eq(h->events[i].flags, 0);
	}
	if (!lost) {
		ck_assert_uint_eq(h->initial_count, 0);
		ck_assert_uint_eq(h->unmatched_frees, 0);
		ck_assert_uint_eq(h->alloc_count * 2u, h->event_count);
	}
}

/* The trace has all that was put; with drops, the right number of it. */
static void check_model(const struct clv_trace *t, uint64_t marks_and_events)
{
	uint64_t dropped, events = 0, sum = 0;
	bool lost = rig_notes(t, CLV_EVENT_DROPPED, &dropped) > 0;
	for (uint32_t d = 0; d < t->history_count; d++) {
		const struct clv_history *h = &t->histories[d];
		check_order(h, lost);
		for (uint32_t i = 0; i < h->event_count; i++) {
			const struct clv_event_record *e = &h->events[i];
			if (e->flags & CLV_EVENT_LOST)
				continue;
			events++;
			sum += model_digest(e->action, e->addr, e->size, t->streams[e->stream], h->device);
		}
	}
	if (!lost) {
		ck_assert_uint_eq(events, model.events);
		ck_assert_uint_eq(sum, model.checksum);
	}
	ck_assert_uint_eq(events + rig_notes(t, CLV_EVENT_MARK, NULL) + dropped, marks_and_events);
}

START_TEST(threads_at_once)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 3, .buffer_bytes = 4 << 20});
	run_workers(8, 4000, seed());
	struct clv_record_stats stats;
	clv_record_close();
	clv_record_get_stats(&stats);
	ck_assert_uint_eq(stats.threads, 8);
	ck_assert_uint_eq(stats.dropped, 0);
	struct clv_trace *t = rig_read(rig_path);
	check_model(t, stats.events);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* Buffers that are too small: what is missing is counted to the event, and the rest makes sense. */
START_TEST(full_buffers)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 100, .buffer_bytes = 1});
	run_workers(4, 20000, seed());
	clv_record_close();
	struct clv_record_stats stats;
	clv_record_get_stats(&stats);
	ck_assert_uint_gt(stats.dropped, 0);
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_uint_gt(rig_notes(t, CLV_EVENT_DROPPED, NULL), 0);
	check_model(t, stats.events + stats.dropped);
	clv_trace_free(t);
	rig_end();
}
END_TEST

static void *one_event(void *arg)
{
	uint64_t n = (uint64_t)(uintptr_t)arg;
	rig_event(CLV_EVENT_ALLOC, 0, 1, n * 4096, n);
	return NULL;
}

/* Threads that end leave their buffers with what is in them, to be used again. */
START_TEST(threads_that_come_and_go)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 1});
	for (uint64_t n = 1; n <= 300; n += 3) {
		pthread_t threads[3];
		for (uint64_t k = 0; k < 3; k++)
			ck_assert_int_eq(pthread_create(&threads[k], NULL, one_event, (void *)(uintptr_t)(n + k)), 0);
		for (uint64_t k = 0; k < 3; k++)
			pthread_join(threads[k], NULL);
	}
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path);
	bool seen[301] = {false};
	ck_assert_uint_eq(rig_events(t), 300);
	for (uint32_t i = 0; i < 300; i++)
		seen[t->histories[0].events[i].size] = true;
	for (unsigned n = 1; n <= 300; n++)
		ck_assert(seen[n]);
	clv_trace_free(t);
	rig_end();
}
END_TEST

static _Atomic bool enough;

static void *put_on_and_on(void *arg)
{
	for (uint64_t n = 1; !atomic_load(&enough); n++)
		rig_event(CLV_EVENT_ALLOC, 1, 1, n % 1000000 * 4096, 512),
			rig_event(CLV_EVENT_FREE, 1, 1, n % 1000000 * 4096, 512);
	return arg;
}

/* Opened, flushed and closed while others put events. */
START_TEST(open_and_close_under_load)
{
	pthread_t threads[3];
	rig_begin();
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, put_on_and_on, NULL), 0);
	for (unsigned k = 0; k < 15; k++) {
		rig_open(&(struct clv_record_config){.flush_ms = 1, .buffer_bytes = k % 2 ? 1 << 15 : 1 << 18});
		usleep(3000);
		clv_record_flush(1000);
		clv_record_close();
		clv_trace_free(rig_read(rig_path));
	}
	atomic_store(&enough, true);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	rig_end();
}
END_TEST

/* ---- the disk ---- */

static _Atomic int disk_state; /* 0: good, an errno: that, -1: a call takes until it is good */
static _Atomic uint64_t disk_room;
static char said[4][512];
static _Atomic unsigned said_count;

static void say(const char *sentence)
{
	unsigned n = atomic_fetch_add(&said_count, 1);
	if (n < 4)
		snprintf(said[n], sizeof(said[n]), "%s", sentence);
}

/* How often one sentence of what was said has these words. */
static unsigned said_so(const char *words)
{
	unsigned n = 0;
	for (unsigned i = 0; i < 4 && i < said_count; i++)
		n += strstr(said[i], words) != NULL;
	return n;
}

static long odd_disk(int fd, const void *data, size_t len, uint64_t offset)
{
	while (atomic_load(&disk_state) == -1)
		usleep(1000);
	int state = atomic_load(&disk_state);
	if (!state)
		return pwrite(fd, data, len, (off_t)offset);
	/* a part fits, as on a real one */
	uint64_t room = atomic_exchange(&disk_room, 0);
	if (room)
		return pwrite(fd, data, clv_min_u64(room, len), (off_t)offset);
	errno = state;
	return -1;
}

static void trouble(int state, uint64_t room, const char *words)
{
	rig_begin();
	clv_record_file_use(odd_disk);
	rig_open(&(struct clv_record_config){.flush_ms = 5, .buffer_bytes = 1 << 15, .say = say});
	rig_event(CLV_EVENT_ALLOC, 0, 1, 512, 512);
	ck_assert(clv_record_flush(10000));
	struct stat before, during;
	ck_assert_int_eq(stat(rig_path, &before), 0);
	atomic_store(&disk_room, room);
	atomic_store(&disk_state, state);
	uint64_t begun = now_ms();
	for (uint64_t n = 2; n < 20000; n++) {
		rig_event(CLV_EVENT_ALLOC, 0, 1, n * 512, 512);
		if (n % 100 == 0)
			usleep(100); /* longer than the writer needs on a good disk */
	}
	ck_assert_uint_lt(now_ms() - begun, 20000); /* nobody waited for the disk */
	usleep(100000);                             /* it is no short hiccup */
	ck_assert(!clv_record_flush(50));
	if (state > 0) {
		ck_assert_int_eq(stat(rig_path, &during), 0);
		ck_assert_int_eq(before.st_size, during.st_size); /* nothing stays of what did not fit */
	}
	clv_trace_free(rig_read(rig_path));
	atomic_store(&disk_state, 0);
	ck_assert(clv_record_flush(10000));
	rig_event(CLV_EVENT_ALLOC, 0, 1, 5, 77); /* it goes on */
	clv_record_close();
	struct clv_record_stats stats;
	clv_record_get_stats(&stats);
	ck_assert_uint_gt(stats.dropped, 0);
	ck_assert_int_eq(stats.disk_errno, state > 0 ? state : 0);
	struct clv_trace *t = rig_read(rig_path);
	uint64_t dropped;
	const struct clv_history *h = &t->histories[0];
	ck_assert_ptr_null(t->note);
	ck_assert_uint_eq(h->events[h->event_count - 1].size, 77);
	rig_notes(t, CLV_EVENT_DROPPED, &dropped);
	ck_assert_uint_eq(dropped + h->event_count, 20000);
	bool blamed = false;
	for (uint32_t i = 0; i < h->note_count; i++)
		blamed |= h->notes[i].kind == CLV_EVENT_DROPPED && h->notes[i].a == 1;
	ck_assert(blamed);
	if (words)
		ck_assert_uint_eq(said_so(words), 1);
	clv_trace_free(t);
	rig_end();
}

START_TEST(a_full_disk)
{
	trouble(ENOSPC, 0, "No space left");
}
END_TEST

START_TEST(a_disk_that_takes_a_part)
{
	trouble(ENOSPC, 50, "No space left");
}
END_TEST

START_TEST(a_disk_that_hangs)
{
	trouble(-1, 0, NULL);
}
END_TEST

/* A limit of the system, which comes with a signal: the program must not get it. */
START_TEST(a_limit_of_the_system)
{
	struct rlimit limit = {.rlim_cur = 20000, .rlim_max = RLIM_INFINITY};
	rig_begin();
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	rig_open(&(struct clv_record_config){.flush_ms = 1, .say = say});
	struct clv_rng rng = {.state = seed()};
	for (unsigned n = 0; n < 20000; n++) {
		rig_event(CLV_EVENT_ALLOC, 0, 1, clv_rng_next(&rng) >> 20, clv_rng_below(&rng, 1 << 30));
		if (n % 1000 == 0)
			clv_record_flush(20);
	}
	clv_record_close();
	ck_assert_uint_eq(said_so("too large"), 1);
	struct clv_record_stats stats;
	clv_record_get_stats(&stats);
	ck_assert_int_eq(stats.disk_errno, EFBIG);
	ck_assert_uint_eq(stats.events + stats.dropped, 20000);
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_ptr_nonnull(t->note);
	ck_assert_uint_gt(rig_events(t), 0);
	ck_assert_uint_eq(rig_events(t), stats.events);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* A disk that hangs does not hold up the end of a program for long. */
START_TEST(closing_on_a_disk_that_hangs)
{
	rig_begin();
	clv_record_file_use(odd_disk);
	rig_open(&(struct clv_record_config){.flush_ms = 5});
	atomic_store(&disk_state, -1);
	rig_event(CLV_EVENT_ALLOC, 0, 1, 512, 512);
	usleep(50000);
	uint64_t begun = now_ms();
	clv_record_close();
	ck_assert_uint_lt(now_ms() - begun, 5000);
	struct clv_error err = {{0}};
	ck_assert(!clv_record_open(&(struct clv_record_config){.path = rig_path}, &err));
	ck_assert_msg(strstr(err.text, "still being written") != NULL, "%s", err.text);
	atomic_store(&disk_state, 0);
	for (unsigned tries = 0;
	     !clv_record_open(&(struct clv_record_config){.path = rig_path}, &(struct clv_error){{0}}); tries++) {
		ck_assert_uint_lt(tries, 1000);
		usleep(10000);
	}
	clv_record_close();
	clv_trace_free(rig_read(rig_path));
	rig_end();
}
END_TEST

/* Host memory runs out in the writer, at any of its allocations, and comes back: what is lost is counted. */
START_TEST(no_host_memory)
{
	char text[32];
	rig_begin();
	for (uint64_t k = 1; k < 60; k++) {
		struct clv_rng rng = {.state = seed() + k};
		uint64_t put = 0, dropped, limit = k % 2 ? 0 : 1 << 16;
		rig_open(&(struct clv_record_config){.flush_ms = 2, .limit_bytes = limit, .keep = 1000});
		clv_meta_fail_after(k);
		for (unsigned n = 0; n < 3000; n++, put += 2) {
			rig_event(CLV_EVENT_ALLOC, n % 7 ? 0 : (int)clv_rng_below(&rng, 20), n % 40, 0x1000 * (n + 1),
				  n + 1);
			snprintf(text, sizeof(text), "mark %u", n);
			rig_mark(text);
			if (n % 1000 == 999)
				clv_record_flush(20);
		}
		clv_meta_fail_after(0);
		clv_record_close();
		struct clv_record_stats stats;
		clv_record_get_stats(&stats);
		ck_assert_uint_eq(stats.events + stats.dropped, put);
		uint64_t seen = 0;
		for (uint64_t f = 0; f < stats.files; f++) {
			char name[160];
			snprintf(name, sizeof(name), f ? "%s.%llu" : "%s", rig_path, (unsigned long long)f);
			struct clv_trace *t = rig_read(name);
			rig_notes(t, CLV_EVENT_DROPPED, &dropped);
			seen += dropped + rig_notes(t, CLV_EVENT_MARK, NULL);
			seen += limit ? 0 : rig_events(t);
			clv_trace_free(t);
			unlink(name);
		}
		if (!limit) /* else files begin with what there is */
			ck_assert_uint_eq(seen, put);
	}
	rig_end();
}
END_TEST

/* ---- limits ---- */

/* Each allocates and frees a block. */
static void put_random(struct clv_rng *rng, uint64_t count)
{
	for (uint64_t n = 0; n < count; n++) {
		uint64_t addr = clv_rng_next(rng) >> 20, size = clv_rng_below(rng, 1 << 30),
			 stream = clv_rng_below(rng, 9);
		rig_event(CLV_EVENT_ALLOC, 0, stream, addr, size);
		rig_event(CLV_EVENT_FREE, 0, stream, addr, size);
		if (n % 500 == 499)
			ck_assert(clv_record_flush(10000));
	}
}

#define STAY 50u /* blocks that are there all the time, in frames that move */

static void put_lasting(void)
{
	clv_record_event(&(struct clv_record_event){
		.event = CLV_EVENT_DEVICE, .device = 0, .stream = UINT64_MAX, .size = 1 << 30, .text = "a device"});
	for (uint64_t i = 0; i < STAY; i++) {
		struct clv_record_event frame = {
			.event = CLV_EVENT_FRAME_CREATE, .stream = UINT64_MAX, .size = 2 << 20, .a = i};
		frame.addr = (i + 1) << 50;
		clv_record_event(&frame);
		frame.event = CLV_EVENT_FRAME_MAP;
		frame.b = frame.addr;
		frame.addr += 4096;
		clv_record_event(&frame);
		frame.event = CLV_EVENT_FRAME_UNMAP;
		frame.addr = frame.b;
		clv_record_event(&frame);
		frame.event = CLV_EVENT_FRAME_RELEASE;
		if (i % 2)
			clv_record_event(&frame);
		rig_event(CLV_EVENT_ALLOC, 0, 3, (i + 1) << 50, 777 + i);
	}
}

static void check_lasting(const struct clv_trace *t)
{
	const struct clv_history *h = &t->histories[0];
	bool blocks[STAY] = {false}, frames[STAY] = {false};
	ck_assert_uint_eq(h->initial_count, 0); /* nothing is freed whose beginning is not seen */
	ck_assert_uint_eq(h->unmatched_frees, 0);
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		ck_assert_uint_eq(e->flags, 0);
		if (e->action == CLV_ACTION_ALLOC && e->size >= 777 && e->size < 777 + STAY && e->addr >> 50) {
			ck_assert_uint_eq(e->addr, (e->size - 777 + 1) << 50);
			ck_assert_uint_eq(t->streams[e->stream], 3);
			blocks[e->size - 777] = true;
		}
	}
	for (uint32_t i = 0; i < h->note_count; i++)
		if (h->notes[i].kind == CLV_EVENT_FRAME_CREATE) {
			ck_assert_uint_eq(h->notes[i].addr, ((h->notes[i].a + 1) << 50) + 4096);
			frames[h->notes[i].a] = true;
		}
	for (unsigned i = 0; i < STAY; i++) {
		ck_assert(blocks[i]);
		ck_assert(frames[i] == (i % 2 == 0));
	}
}

START_TEST(rotation)
{
	struct clv_rng rng = {.state = seed()};
	char name[160];
	rig_begin();
	rig_open(&(struct clv_record_config){.limit_bytes = 1 << 16, .keep = 3});
	put_lasting();
	put_random(&rng, 60000);
	clv_record_close();
	struct clv_record_stats stats;
	clv_record_get_stats(&stats);
	ck_assert_uint_gt(stats.files, 6);
	ck_assert_uint_eq(stats.dropped, 0);
	ck_assert_uint_eq(rig_files("r.clv"), 4);
	ck_assert_int_ne(access(rig_path, F_OK), 0);
	for (uint64_t n = stats.files - 4; n < stats.files; n++) {
		struct stat st;
		snprintf(name, sizeof(name), "%s.%llu", rig_path, (unsigned long long)n);
		ck_assert_int_eq(stat(name, &st), 0);
		ck_assert_uint_le((uint64_t)st.st_size, 1 << 16);
		struct clv_trace *t = rig_read(name);
		ck_assert_ptr_null(t->note); /* each has its end */
		ck_assert_uint_eq(rig_notes(t, CLV_EVENT_PROCESS, NULL), 1);
		ck_assert_uint_eq(rig_notes(t, CLV_EVENT_DEVICE, NULL), 1);
		ck_assert_uint_gt(rig_events(t), n + 1 < stats.files ? 1000 : 0);
		check_lasting(t);
		clv_trace_free(t);
	}
	rig_end();
}
END_TEST

/* Threads that hand blocks to each other, over many files: none of them sees a block end before it begins. */
START_TEST(rotation_under_load)
{
	char name[160];
	rig_begin();
	rig_open(&(struct clv_record_config){
		.limit_bytes = 1 << 16, .keep = 1000, .flush_ms = 1, .buffer_bytes = 8 << 20});
	run_workers(6, 6000, seed());
	clv_record_close();
	struct clv_record_stats stats;
	clv_record_get_stats(&stats);
	ck_assert_uint_gt(stats.files, 3);
	ck_assert_uint_eq(stats.dropped, 0);
	for (uint64_t n = 0; n < stats.files; n++) {
		snprintf(name, sizeof(name), n ? "%s.%llu" : "%s", rig_path, (unsigned long long)n);
		struct clv_trace *t = rig_read(name);
		for (uint32_t d = 0; d < t->history_count; d++) {
			const struct clv_history *h = &t->histories[d];
			ck_assert_uint_eq(h->initial_count, 0);
			ck_assert_uint_eq(h->unmatched_frees, 0);
			for (uint32_t i = 0; i < h->event_count; i++)
				ck_assert_uint_eq(h->events[i].flags, 0);
		}
		clv_trace_free(t);
	}
	rig_end();
}
END_TEST

START_TEST(a_limit_without_another_file)
{
	struct clv_rng rng = {.state = seed()};
	rig_begin();
	rig_open(&(struct clv_record_config){.limit_bytes = 1 << 16, .say = say});
	put_random(&rng, 15000);
	clv_record_close();
	struct stat st;
	ck_assert_int_eq(stat(rig_path, &st), 0);
	ck_assert_uint_le((uint64_t)st.st_size, 1 << 16);
	ck_assert_uint_eq(rig_files("r.clv"), 1);
	ck_assert_uint_eq(said_so("limit of 65536"), 1);
	struct clv_trace *t = rig_read(rig_path);
	uint64_t dropped;
	ck_assert_ptr_null(t->note);
	ck_assert_uint_eq(rig_notes(t, CLV_EVENT_DROPPED, &dropped), 1);
	ck_assert_uint_eq(dropped + rig_events(t), 30000);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* ---- processes ---- */

static int wait_for(pid_t child)
{
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status;
}

START_TEST(fork_without_follow)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 1});
	pid_t children[5];
	for (unsigned i = 0; i < 5; i++) {
		rig_event(CLV_EVENT_ALLOC, 0, 1, (i + 1) * 512, 512);
		children[i] = fork();
		if (children[i] == 0) {
			bool open = clv_record_is_open();
			rig_event(CLV_EVENT_ALLOC, 0, 1, 1 << 20, 512);
			clv_record_flush(100);
			clv_record_close();
			_exit(open);
		}
		ck_assert_int_eq(wait_for(children[i]), 0);
	}
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_uint_eq(rig_events(t), 5);
	ck_assert_uint_eq(rig_notes(t, CLV_EVENT_FORK, NULL), 5);
	const struct clv_history *h = &t->histories[0];
	unsigned found = 0;
	for (uint32_t i = 0; i < h->note_count; i++)
		if (h->notes[i].kind == CLV_EVENT_FORK) {
			ck_assert_uint_eq(h->notes[i].addr, (uint64_t)children[found++]);
			ck_assert_uint_eq(h->notes[i].event, found);
		}
	clv_trace_free(t);
	ck_assert_uint_eq(rig_files(""), 1);
	rig_end();
}
END_TEST

/* Neither can start a thread in the child of a process that had some: a lock of theirs may have been held. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FOLLOW
#else
#define FOLLOW fork_with_follow,

/* Also while other threads put events and the writer writes. */
START_TEST(fork_with_follow)
{
	pthread_t threads[2];
	char name[160];
	if (getenv("MESON_EXE_WRAPPER"))
		return; /* nor can an emulator of user programs: its own threads are lost in the child */
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 1, .fork_follow = true, .settings = "x:y"});
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, put_on_and_on, NULL), 0);
	for (unsigned i = 0; i < 20; i++) {
		pid_t child = fork();
		if (child == 0) {
			if (i % 4 == 3)
				_exit(0); /* no event, no file */
			rig_event(CLV_EVENT_ALLOC, 0, 1, 4096, 100 + i);
			if (i % 4 == 2 && fork() == 0) {
				rig_event(CLV_EVENT_ALLOC, 0, 1, 4096, 1000 + i);
				clv_record_close();
				_exit(0);
			}
			clv_record_close();
			while (wait(NULL) > 0)
				;
			_exit(0);
		}
		ck_assert_int_eq(wait_for(child), 0);
		snprintf(name, sizeof(name), "%s.%ld", rig_path, (long)child);
		if (i % 4 == 3) {
			ck_assert_int_ne(access(name, F_OK), 0);
			continue;
		}
		struct clv_trace *t = rig_read(name);
		ck_assert_ptr_null(t->note);
		ck_assert_uint_eq(rig_events(t), 1);
		ck_assert_uint_eq(t->histories[0].events[0].size, 100 + i);
		ck_assert_uint_eq(t->histories[0].notes[0].addr, (uint64_t)child);
		ck_assert_uint_eq(t->histories[0].notes[0].size, (uint64_t)getpid());
		ck_assert_uint_eq(rig_notes(t, CLV_EVENT_SETTINGS, NULL), 1);
		clv_trace_free(t);
	}
	atomic_store(&enough, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_uint_eq(rig_notes(t, CLV_EVENT_FORK, NULL), 20);
	clv_trace_free(t);
	ck_assert_uint_eq(rig_files(""), 1 + 15 + 5);
	rig_end();
}
END_TEST
#endif

/* Killed at any moment, a process leaves whole chunks, and not much is missing. */
START_TEST(killed)
{
	struct clv_rng rng = {.state = seed()};
	for (unsigned i = 0; i < 25; i++) {
		rig_begin();
		int ready[2];
		ck_assert_int_eq(pipe(ready), 0);
		pid_t child = fork();
		if (child == 0) {
			rig_open(&(struct clv_record_config){.flush_ms = 1});
			if (write(ready[1], "", 1) != 1)
				_exit(1);
			put_on_and_on(NULL);
		}
		char byte;
		ck_assert_int_eq(read(ready[0], &byte, 1), 1);
		usleep((useconds_t)clv_rng_below(&rng, 20000));
		kill(child, SIGKILL);
		ck_assert_int_eq(WTERMSIG(wait_for(child)), SIGKILL);
		close(ready[0]);
		close(ready[1]);
		struct clv_trace *t = rig_read(rig_path);
		ck_assert_ptr_nonnull(t->note);
		ck_assert_uint_eq(rig_notes(t, CLV_EVENT_PROCESS, NULL), 1);
		clv_trace_free(t);
		rig_end();
	}
}
END_TEST

/* Two processes and one name: the second is told, and the first not disturbed. */
START_TEST(one_file_for_two)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 1});
	rig_event(CLV_EVENT_ALLOC, 0, 1, 512, 512);
	ck_assert(clv_record_flush(10000));
	pid_t child = fork();
	if (child == 0) {
		struct clv_error err = {{0}};
		bool refused = !clv_record_open(&(struct clv_record_config){.path = rig_path}, &err);
		_exit(refused && strstr(err.text, "another process records into it (%p") ? 0 : 1);
	}
	ck_assert_int_eq(wait_for(child), 0);
	clv_record_close();
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_uint_eq(rig_events(t), 1);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* A program that ends, and does not close. */
START_TEST(exit_writes_the_end)
{
	rig_begin();
	pid_t child = fork();
	if (child == 0) {
		rig_open(&(struct clv_record_config){.flush_ms = 60000});
		rig_event(CLV_EVENT_ALLOC, 0, 1, 512, 512);
		exit(0);
	}
	ck_assert_int_eq(wait_for(child), 0);
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_ptr_null(t->note);
	ck_assert_uint_eq(rig_events(t), 1);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* Cut at every byte: an error, or what came before the last whole chunk. */
START_TEST(cut_at_every_byte)
{
	rig_begin();
	rig_open(&(struct clv_record_config){.flush_ms = 60000, .stack_every = 1, .stack_depth = 4});
	for (uint64_t n = 1; n <= 12; n++) {
		rig_event(CLV_EVENT_ALLOC, (int)(n % 2), n, n * 512, n);
		rig_mark("one");
		ck_assert(clv_record_flush(10000));
	}
	clv_record_close();
	static uint8_t data[1 << 16];
	FILE *f = fopen(rig_path, "rb");
	ck_assert_ptr_nonnull(f);
	size_t size = fread(data, 1, sizeof(data), f);
	fclose(f);
	ck_assert_uint_lt(size, sizeof(data));
	uint64_t before = 0, steps = 0;
	for (size_t cut = 0; cut <= size; cut++) {
		uint8_t *copy = malloc(cut ? cut : 1);
		memcpy(copy, data, cut);
		const struct clv_input in = {.name = "cut", .data = copy, .size = cut};
		struct clv_error err = {{0}};
		struct clv_trace *t = clv_import_memory(&in, &err);
		free(copy);
		if (!t) {
			ck_assert_uint_eq(before, 0);
			ck_assert_msg(strncmp(err.text, "cut", 3) == 0, "%s", err.text);
			continue;
		}
		const char *wrong = trace_wrong(t);
		ck_assert_msg(!wrong, "%s", wrong);
		ck_assert((t->note == NULL) == (cut == size));
		uint64_t events = rig_events(t);
		ck_assert(events == before || events == before + 1);
		ck_assert_uint_eq(rig_notes(t, CLV_EVENT_MARK, NULL), events);
		steps += events != before;
		before = events;
		clv_trace_free(t);
	}
	ck_assert_uint_eq(steps, 12);
	rig_end();
}
END_TEST

CHECK_MAIN("record_trouble", threads_at_once, full_buffers, threads_that_come_and_go, open_and_close_under_load,
	   a_full_disk, a_disk_that_takes_a_part, a_disk_that_hangs, a_limit_of_the_system,
	   closing_on_a_disk_that_hangs, no_host_memory, rotation, rotation_under_load, a_limit_without_another_file,
	   fork_without_follow, FOLLOW killed, one_file_for_two, exit_writes_the_end, cut_at_every_byte)
