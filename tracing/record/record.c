/* SPDX-License-Identifier: MIT */
#include "record.h"

#include "../../src/base/clock.h"
#include "../../src/base/file_name.h"
#include "../../src/base/thread.h"
#include "../../src/base/ticks.h"
#include "../../src/host/meta.h"
#include "record_writer.h"
#include "stack.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (2 * CLV_MIB)
#define BUFFER_MIN ((uint64_t)64 * sizeof(union clv_slot) * 2) /* the longest text fits */
#define BUFFER_MAX CLV_GIB
#define FLUSH_MS 250u
#define STACK_DEPTH 16u
#define LIMIT_MIN ((uint64_t)64 << 10)
#define CLOSE_MS 1000u
#define THREAD_STACK ((size_t)512 << 10)
#define MS ((uint64_t)1000000)
#define TICKS_BACK_MOST ((uint64_t)1 << 32) /* more: the counter was set back, as when a machine is restored elsewhere */

#define SESSION_FOLLOW UINT32_MAX /* a child of fork() in which the first event opens */

enum state { CLOSED, OPENING, OPEN, CLOSING };

/* `state` and what is not atomic change under the lock of the buffers' list (clv_rings_lock()), which also a fork takes; what
 * belongs to a session is set before `session` and stays until the writer has ended. */
static struct {
	/* what each event looks at */
	_Alignas(64) _Atomic uint32_t session; /* 0: nothing is recorded */
	_Atomic uint32_t stack_every;
	_Atomic uint64_t stack_above;

	_Alignas(64) _Atomic uint64_t slot_count;
	enum state state;
	uint32_t last_session;
	bool has_handlers; /* of fork() */
	bool fork_follow;
	struct clv_writer *writer;
	pthread_t thread;
	_Atomic uint32_t writer_lives; /* futex */
	struct clv_record_shared shared;
	struct clv_record_forks *forks;  /* shared with children */
	struct clv_record_config follow; /* what the child of a fork opens with; its texts are the recorder's own */
	char follow_path[CLV_RECORD_PATH_MAX];
} recorder;

/* ---- events ---- */

bool clv_record_is_open(void)
{
	return atomic_load_explicit(&recorder.session, memory_order_relaxed) != 0;
}

static void open_in_child(void);

/* The slow way to the calling thread's buffer. */
static __attribute__((noinline)) struct clv_ring *attach(uint32_t session)
{
	if (session == SESSION_FOLLOW) {
		open_in_child();
		session = atomic_load(&recorder.session);
		if (!session || session == SESSION_FOLLOW)
			return NULL;
	}
	struct clv_ring *ring = clv_ring_attach(session, atomic_load(&recorder.slot_count));
	atomic_fetch_add_explicit(ring ? &recorder.shared.threads : &recorder.shared.homeless, 1, memory_order_relaxed);
	return ring;
}

/* Whether it is full to the half, for which the writer is woken; looked at now and then only. */
static __attribute__((noinline)) void look_how_full(struct clv_ring *ring, uint64_t head)
{
	ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
	ring->look_at = head + ring->slot_count / 8;
	if (head - ring->tail_seen >= ring->slot_count / 2)
		clv_writer_wake(&recorder.shared);
}

static bool wants_stack(struct clv_ring *ring, const struct clv_record_event *e)
{
	uint32_t every = atomic_load_explicit(&recorder.stack_every, memory_order_relaxed);
	if (!every)
		return false;
	switch (e->event) {
	case CLV_EVENT_ALLOC:
	case CLV_EVENT_DRIVER_ALLOC:
		return e->size >= atomic_load_explicit(&recorder.stack_above, memory_order_relaxed) &&
		       ring->requests++ % every == 0;
	case CLV_EVENT_FAIL:
	case CLV_EVENT_DRIVER_FAIL:
		return true;
	default:
		return false;
	}
}

static __attribute__((noinline)) uint32_t stack_of_caller(void)
{
	struct clv_stack stack;
	return clv_stack_capture(&stack, 1) ? clv_stack_id(&stack) : 0;
}

/* The writer has read what was in this slot the last time around: it takes a while to get it back from another processor. */
static void fetch_for_writing(const union clv_slot *slot)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*slot)); /* nothing at all on processors without it */
#else
	__builtin_prefetch(slot, 1);
#endif
}

void clv_record_event(const struct clv_record_event *e)
{
	uint32_t session = atomic_load_explicit(&recorder.session, memory_order_acquire);
	if (CLV_LIKELY(!session))
		return;
	struct clv_ring *ring = clv_ring_mine;
	if (CLV_UNLIKELY(!ring || ring->session != session)) {
		ring = attach(session);
		if (!ring)
			return;
	}
	uint32_t len = CLV_UNLIKELY(e->text != NULL) ? (uint32_t)clv_record_text_len(e->text, CLV_RAW_TEXT_MAX) : 0;
	uint64_t slots = 1 + (len + 63) / 64, mask = ring->slot_count - 1;
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	if (CLV_UNLIKELY(head >= ring->look_at))
		look_how_full(ring, head);
	if (CLV_UNLIKELY(head + slots - ring->tail_seen > ring->slot_count))
		ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
	if (CLV_UNLIKELY(ring->busy || head + slots - ring->tail_seen > ring->slot_count)) {
		atomic_store_explicit(&ring->dropped, atomic_load_explicit(&ring->dropped, memory_order_relaxed) + 1,
				      memory_order_relaxed);
		return;
	}
	ring->busy = true;
	atomic_signal_fence(memory_order_seq_cst);
	uint32_t stack = wants_stack(ring, e) ? stack_of_caller() : 0;
	uint64_t time = clv_ticks_now();
	if (CLV_UNLIKELY(time <= ring->last_time) && ring->last_time - time < TICKS_BACK_MOST)
		time = ring->last_time + 1; /* a coarse clock: the order of one thread's events is kept */
	ring->last_time = time;
	ring->slots[head & mask].raw = (struct clv_raw){.time = time,
							.addr = e->addr,
							.size = e->size,
							.a = e->a,
							.b = e->b,
							.stream = e->stream,
							.stack = stack,
							.text_len = len,
							.event = (uint16_t)e->event,
							.device = e->device};
	for (uint32_t i = 0; CLV_UNLIKELY(i < len); i += 64)
		memcpy(ring->slots[(head + 1 + i / 64) & mask].text, e->text + i, clv_min_u64(len - i, 64));
	atomic_store_explicit(&ring->head, head + slots, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	ring->busy = false;
	fetch_for_writing(&ring->slots[(head + slots + 1) & mask]);
}

/* ---- opening ---- */

/* `writer_lives` comes last: then a recorder can be opened again. */
static void *run(void *arg)
{
	struct clv_writer *w = arg;
	struct clv_error err = {{0}};
	prctl(PR_SET_NAME, "cleave-record");
	if (!w->begins_late || clv_writer_begin(w, &err)) {
		clv_writer_run(w);
	} else {
		if (w->config.say)
			w->config.say(err.text);
		pthread_detach(pthread_self()); /* nobody waits for it */
	}
	clv_rings_lock();
	recorder.writer = NULL; /* a child of fork() must not look at it any more */
	if (recorder.state == OPEN) {
		recorder.state = CLOSED;
		atomic_store(&recorder.session, 0);
	}
	clv_rings_unlock();
	clv_writer_free(w);
	clv_rings_session(0, false);
	atomic_store(&recorder.writer_lives, 0);
	syscall(SYS_futex, &recorder.writer_lives, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
	return NULL;
}

/* One by one: a thread that is late may still count an event of the recording before. */
static void reset_shared(void)
{
	struct clv_record_shared *s = &recorder.shared;
	_Atomic uint64_t *const counts[] = {&s->stop_by, &s->homeless, &s->events, &s->dropped,
					    &s->bytes,   &s->files,    &s->stacks, &s->threads};
	_Atomic uint32_t *const words[] = {&s->sleeping, &s->stop, &s->flush_asked, &s->flush_done};
	for (size_t i = 0; i < CLV_ARRAY_LEN(counts); i++)
		atomic_store(counts[i], 0);
	for (size_t i = 0; i < CLV_ARRAY_LEN(words); i++)
		atomic_store(words[i], 0);
	atomic_store(&s->disk_errno, 0);
}

static void before_fork(void)
{
	clv_rings_lock();
	if (recorder.forks && recorder.state == OPEN) {
		uint64_t n = atomic_load_explicit(&recorder.forks->begun, memory_order_relaxed);
		atomic_store_explicit(&recorder.forks->places[n % CLV_FORKS].pid, 0, memory_order_relaxed);
		atomic_store_explicit(&recorder.forks->places[n % CLV_FORKS].time, clv_clock_ns(),
				      memory_order_relaxed);
		atomic_store_explicit(&recorder.forks->begun, n + 1, memory_order_release);
	}
}

static void after_fork_in_parent(void)
{
	clv_rings_unlock();
}

/* Nobody else is there. The writer's memory is left alone: it was at work on it. */
static void after_fork_in_child(void)
{
	bool was_open = recorder.state == OPEN;
	if (recorder.forks && was_open) {
		uint64_t n = atomic_load_explicit(&recorder.forks->begun, memory_order_relaxed) - 1;
		atomic_store_explicit(&recorder.forks->places[n % CLV_FORKS].pid, (uint32_t)getpid(),
				      memory_order_release);
	}
	if (recorder.forks)
		munmap(recorder.forks, sizeof(*recorder.forks));
	recorder.forks = NULL;
	if (recorder.writer)
		clv_record_file_close(&recorder.writer->file);
	recorder.writer = NULL;
	clv_rings_forget();
	clv_pack_forked();
	reset_shared();
	atomic_store(&recorder.writer_lives, 0);
	recorder.state = CLOSED;
	atomic_store(&recorder.session, was_open && recorder.fork_follow ? SESSION_FOLLOW : 0);
	clv_rings_unlock();
}

static char *copy_text(const char *text)
{
	size_t len = text ? strlen(text) + 1 : 0;
	char *copy = len ? clv_meta_alloc(len) : NULL;
	return copy ? memcpy(copy, text, len) : NULL;
}

/* Takes the state from CLOSED to OPENING. */
static bool begin_opening(const char *path, struct clv_error *err)
{
	clv_rings_lock();
	bool closed = recorder.state == CLOSED, lives = atomic_load(&recorder.writer_lives) != 0;
	if (closed && !lives)
		recorder.state = OPENING;
	bool handlers = recorder.has_handlers;
	recorder.has_handlers |= closed && !lives;
	clv_rings_unlock();
	if (!closed)
		return clv_error_set(err, "%s: this process is recorded already", path);
	if (lives)
		return clv_error_set(err, "%s: the recording before is still being written", path);
	if (!handlers)
		(void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	return true;
}

static uint64_t slots_for(uint64_t bytes)
{
	bytes = bytes ? clv_max_u64(clv_min_u64(bytes, BUFFER_MAX), BUFFER_MIN) : BUFFER_BYTES;
	return (uint64_t)1 << clv_log2(bytes / sizeof(union clv_slot));
}

/* A recorder that will write into `path`, which has room in CLV_RECORD_PATH_MAX. */
static struct clv_writer *make_writer(const struct clv_record_config *config, const char *path)
{
	struct clv_writer *w = clv_meta_zalloc(sizeof(*w));
	if (!w)
		return NULL;
	w->config = *config;
	if (!w->config.flush_ms)
		w->config.flush_ms = FLUSH_MS;
	w->config.path = NULL; /* it is the file's */
	w->config.settings = copy_text(config->settings);
	w->shared = &recorder.shared;
	w->forks = recorder.forks;
	clv_ticks_init();
	w->scale.to = clv_ticks_read();
	w->begun = w->polled = w->scale.to.ns;
	atomic_init(&w->file.fd, -1);
	/* later files are where the first is, wherever the program has gone meanwhile */
	clv_file_name_absolute(path, w->file.path, sizeof(w->file.path));
	return w;
}

/* What follows in the children of forks. A name that would be the same there gets the process's id behind it. */
static void remember_for_children(const struct clv_record_config *config)
{
	char *settings = copy_text(config->settings);
	clv_meta_free((void *)(uintptr_t)recorder.follow.settings);
	recorder.follow = *config;
	recorder.follow.settings = settings;
	bool has_pid = false;
	for (const char *c = strchr(config->path, '%'); c; c = strchr(c + 2, '%'))
		has_pid |= c[1] == 'p';
	snprintf(recorder.follow_path, sizeof(recorder.follow_path), "%s%s", config->path, has_pid ? "" : ".%p");
	recorder.follow.path = recorder.follow_path;
}

static void say_of_stacks(void *arg, const char *text)
{
	void (*say)(const char *) = (void (*)(const char *))(uintptr_t)arg;
	if (say)
		say(text);
}

static bool open_stacks(const struct clv_record_config *c)
{
	if (!c->stack_every)
		return true;
	const struct clv_stack_config stacks = {.native_max = c->python_only   ? 0
							      : c->stack_depth ? c->stack_depth
									       : STACK_DEPTH,
						.python_max = c->python ? CLV_STACK_PYTHON_DEFAULT : 0,
						.skip_own = true,
						.say = say_of_stacks,
						.say_arg = (void *)(uintptr_t)c->say};
	return clv_stack_open(&stacks);
}

/* Starts the writer, whose file is there unless it `begins_late`. */
static bool start_writer(struct clv_writer *w, const struct clv_record_config *config, struct clv_error *err)
{
	atomic_store(&recorder.slot_count, slots_for(config->buffer_bytes));
	atomic_store(&recorder.stack_every, open_stacks(config) ? config->stack_every : 0);
	atomic_store(&recorder.stack_above, config->stack_above);
	recorder.last_session = recorder.last_session % (SESSION_FOLLOW - 1) + 1;
	w->session = recorder.last_session;
	clv_rings_session(w->session, true);
	atomic_store(&recorder.writer_lives, 1);
	if (clv_thread_start(&recorder.thread, THREAD_STACK, run, w) == 0)
		return true;
	atomic_store(&recorder.writer_lives, 0);
	clv_rings_session(0, false);
	clv_record_file_close(&w->file);
	return clv_error_set(err, "%s: no thread can be started to write it", w->file.path);
}

/* From OPENING to OPEN, or back to CLOSED. */
static bool open_file(const struct clv_record_config *config, const char *path, bool late, struct clv_error *err)
{
	reset_shared();
	if (!recorder.forks) {
		void *forks =
			mmap(NULL, sizeof(*recorder.forks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		recorder.forks = forks == MAP_FAILED ? NULL : forks;
	}
	struct clv_writer *w = make_writer(config, path);
	if (w)
		w->begins_late = late;
	bool ok = w ? late || clv_writer_begin(w, err) : clv_error_set(err, "%s: out of host memory", path);
	clv_rings_lock();
	recorder.writer = w; /* before its thread can end */
	clv_rings_unlock();
	ok = ok && start_writer(w, config, err);
	clv_rings_lock();
	if (!ok)
		recorder.writer = NULL;
	bool open = recorder.writer != NULL; /* a writer that begins late may have failed and ended */
	recorder.state = open ? OPEN : CLOSED;
	atomic_store(&recorder.session, open ? recorder.last_session : 0);
	clv_rings_unlock();
	if (w && !ok)
		clv_writer_free(w);
	return ok;
}

bool clv_record_open(const struct clv_record_config *config, struct clv_error *err)
{
	char path[CLV_RECORD_PATH_MAX];
	if (!clv_file_name_expand(config->path, path, sizeof(path), err))
		return false;
	if (config->limit_bytes && config->limit_bytes < LIMIT_MIN)
		return clv_error_set(err, "%s: a limit of %llu bytes; expected 0 or at least %llu", path,
				     (unsigned long long)config->limit_bytes, (unsigned long long)LIMIT_MIN);
	if (!begin_opening(path, err))
		return false;
	remember_for_children(config);
	recorder.fork_follow = config->fork_follow;
	return open_file(config, path, false, err);
}

/* The first event in a child of fork(). The file is made by the writer: whoever asks for memory does not wait for a disk. */
static void open_in_child(void)
{
	char path[CLV_RECORD_PATH_MAX];
	struct clv_error err = {{0}};
	clv_rings_lock();
	bool mine = atomic_load(&recorder.session) == SESSION_FOLLOW && recorder.state == CLOSED;
	if (mine)
		recorder.state = OPENING;
	clv_rings_unlock();
	if (!mine)
		return;
	if (clv_file_name_expand(recorder.follow.path, path, sizeof(path), &err)) {
		open_file(&recorder.follow, path, true, &err);
	} else {
		clv_rings_lock();
		recorder.state = CLOSED;
		atomic_store(&recorder.session, 0);
		clv_rings_unlock();
	}
	if (err.text[0] && recorder.follow.say)
		recorder.follow.say(err.text);
}

/* ---- waiting for the writer ---- */

/* Until the word is not `value`, or it is late. */
static void wait_while(_Atomic uint32_t *word, uint32_t value, uint64_t deadline)
{
	uint64_t now = clv_clock_ns();
	if (now >= deadline)
		return;
	uint64_t left = deadline - now;
	struct timespec t = clv_clock_timespec(left);
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &t, NULL, 0);
}

bool clv_record_flush(uint32_t timeout_ms)
{
	uint64_t deadline = clv_clock_ns() + timeout_ms * MS;
	if (!clv_record_is_open() || atomic_load(&recorder.session) == SESSION_FOLLOW)
		return true;
	uint32_t asked = atomic_fetch_add(&recorder.shared.flush_asked, 1) + 1;
	clv_writer_wake(&recorder.shared);
	for (;;) {
		uint32_t done = atomic_load(&recorder.shared.flush_done);
		if ((int32_t)(done - asked) >= 0)
			return true;
		if (clv_clock_ns() >= deadline || !atomic_load(&recorder.writer_lives))
			return false;
		/* looked at now and then, since the writer can end meanwhile */
		wait_while(&recorder.shared.flush_done, done, clv_min_u64(deadline, clv_clock_ns() + 100 * MS));
	}
}

void clv_record_close(void)
{
	clv_rings_lock();
	bool open = recorder.state == OPEN;
	if (open)
		recorder.state = CLOSING;
	if (recorder.state != OPENING)
		atomic_store(&recorder.session, 0);
	clv_rings_unlock();
	if (!open)
		return;
	clv_rings_session(0, true);
	uint64_t deadline = clv_clock_ns() + CLOSE_MS * MS;
	atomic_store(&recorder.shared.stop_by, deadline);
	atomic_store(&recorder.shared.stop, 1);
	clv_writer_wake(&recorder.shared);
	while (atomic_load(&recorder.writer_lives) && clv_clock_ns() < deadline + CLOSE_MS / 4 * MS)
		wait_while(&recorder.writer_lives, 1, deadline + CLOSE_MS / 4 * MS);
	if (atomic_load(&recorder.writer_lives)) /* it hangs in a call of the system, and ends when that does */
		pthread_detach(recorder.thread);
	else
		pthread_join(recorder.thread, NULL);
	clv_rings_lock();
	recorder.state = CLOSED;
	clv_rings_unlock();
}

static __attribute__((destructor)) void at_exit(void)
{
	clv_record_close();
}

void clv_record_get_stats(struct clv_record_stats *out)
{
	const struct clv_record_shared *s = &recorder.shared;
	*out = (struct clv_record_stats){.events = atomic_load_explicit(&s->events, memory_order_relaxed),
					 .dropped = atomic_load_explicit(&s->dropped, memory_order_relaxed),
					 .bytes_written = atomic_load_explicit(&s->bytes, memory_order_relaxed),
					 .files = atomic_load_explicit(&s->files, memory_order_relaxed),
					 .stacks = atomic_load_explicit(&s->stacks, memory_order_relaxed),
					 .threads = atomic_load_explicit(&s->threads, memory_order_relaxed),
					 .disk_errno = atomic_load_explicit(&s->disk_errno, memory_order_relaxed)};
}
