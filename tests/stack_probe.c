/* SPDX-License-Identifier: MIT
 *
 * What tests/test_stack_python.py calls through ctypes: with the interpreter's lock (PyDLL) or without it (CDLL).
 */
#include "../tracing/record/stack.h"
#include "../tracing/record/stack_layout.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static char said[1024];

static void say(void *arg, const char *text)
{
	snprintf(said, sizeof(said), "%s", text);
}

EXPORT int probe_open(unsigned native_max, unsigned python_max);
int probe_open(unsigned native_max, unsigned python_max)
{
	struct clv_stack_config config = {.native_max = native_max, .python_max = python_max, .say = say};
	return clv_stack_open(&config);
}

EXPORT void probe_poll(void);
void probe_poll(void)
{
	clv_stack_poll();
}

EXPORT const char *probe_said(void);
const char *probe_said(void)
{
	return said;
}

EXPORT unsigned probe_minor(void);
unsigned probe_minor(void)
{
	struct clv_stack_stats stats;
	clv_stack_stats(&stats);
	return stats.python_minor;
}

EXPORT uint64_t probe_lost(void);
uint64_t probe_lost(void)
{
	struct clv_stack_stats stats;
	clv_stack_stats(&stats);
	return stats.lost + stats.lost_frames;
}

EXPORT unsigned probe_frames(void);
unsigned probe_frames(void)
{
	return clv_stack_frame_count();
}

/* The Python frames as lines of file, function and line, each ended by a 1; the stack as it is kept under its id. */
EXPORT long probe_capture(char *out, size_t room);
long probe_capture(char *out, size_t room)
{
	struct clv_stack s, kept;
	size_t at = 0;
	out[0] = '\0';
	if (!clv_stack_capture(&s, 0))
		return 0;
	uint32_t id = clv_stack_id(&s);
	if (!clv_stack_get(id, &kept) || memcmp(kept.python, s.python, s.python_count * sizeof(s.python[0])) != 0)
		return -1;
	for (unsigned i = 0; i < kept.python_count; i++) {
		struct clv_stack_frame f;
		if (!clv_stack_frame(kept.python[i], &f))
			return -1;
		at += (size_t)snprintf(out + at, room - at, "%s\1%s\1%u\1", clv_stack_string(f.file, NULL),
				       clv_stack_string(f.function, NULL), f.line);
		if (at >= room)
			return -1;
	}
	return kept.python_count;
}

/* The number of Python frames, from a thread that Python knows nothing of. */
static void *capture_elsewhere(void *arg)
{
	struct clv_stack s;
	clv_stack_capture(&s, 0);
	*(long *)arg = s.python_count;
	return NULL;
}

EXPORT long probe_foreign_thread(void);
long probe_foreign_thread(void)
{
	pthread_t thread;
	long count = -1;
	if (pthread_create(&thread, NULL, capture_elsewhere, &count))
		return -1;
	pthread_join(thread, NULL);
	return count;
}

/* Calls back from such a thread. */
static void *call(void *arg)
{
	(*(void (**)(void))arg)();
	return NULL;
}

EXPORT int probe_call_in_thread(void (*function)(void));
int probe_call_in_thread(void (*function)(void))
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, call, &function))
		return -1;
	pthread_join(thread, NULL);
	return 0;
}

EXPORT double probe_cost(unsigned rounds);
double probe_cost(unsigned rounds)
{
	struct timespec begin, end;
	struct clv_stack s;
	uint32_t sum = 0;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	for (unsigned i = 0; i < rounds; i++) {
		clv_stack_capture(&s, 0);
		sum |= clv_stack_id(&s);
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	return sum ? ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / rounds : -1;
}

/* For as long as the process lives; with pauses, so that all of a loaded machine is not taken. */
EXPORT void probe_capture_forever(void);
void probe_capture_forever(void)
{
	struct clv_stack s;
	for (unsigned i = 0;; i++) {
		clv_stack_capture(&s, 0);
		clv_stack_id(&s);
		if (i % 4096 == 0)
			usleep(1);
	}
}

/* ---- the deadlock: a lock of the program's, and the interpreter's ---- */

static pthread_mutex_t backend = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool inside, waiting;

static void pause_until(_Atomic bool *flag)
{
	while (!atomic_load(flag))
		usleep(100);
}

/* Without the interpreter's lock. With `ensure`, PyGILState_Ensure(), as who asks Python in the ordinary way. */
EXPORT long probe_under_lock(void *ensure, char *out, size_t room);
long probe_under_lock(void *ensure, char *out, size_t room)
{
	pthread_mutex_lock(&backend);
	atomic_store(&inside, true);
	pause_until(&waiting);
	usleep(50000); /* until the other waits for the lock, which it says before */
	if (ensure)
		((int (*)(void))ensure)();
	long count = probe_capture(out, room);
	pthread_mutex_unlock(&backend);
	return count;
}

/* With the interpreter's lock. */
EXPORT void probe_wait_for_lock(void);
void probe_wait_for_lock(void)
{
	pause_until(&inside);
	atomic_store(&waiting, true);
	pthread_mutex_lock(&backend);
	pthread_mutex_unlock(&backend);
}

/* ---- the table of offsets ---- */

EXPORT int probe_layout(const void *runtime, unsigned minor, char *out, size_t room);
int probe_layout(const void *runtime, unsigned minor, char *out, size_t room)
{
	struct clv_python_layout l;
	const char *why;
	size_t at = 0;
	if (!clv_python_layout(minor, runtime, &l, &why))
		return -1;
	at += (size_t)snprintf(out + at, room - at, "%u thread_cframe %d\n%u owners %u\n", minor, l.thread_cframe,
			       minor, l.owners);
#define X(field) at += (size_t)snprintf(out + at, room - at, "%u " #field " %u\n", minor, l.field);
	CLV_PYTHON_LAYOUT_FIELDS(X)
#undef X
	return 0;
}
