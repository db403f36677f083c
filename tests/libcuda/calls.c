/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "fake.h"

#include "../../src/base/size_text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct fake fc = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.memory = PTHREAD_RWLOCK_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
};
__thread struct fc_thread fc_self;

/* A call that is to fail. */
struct failure {
	enum fc_call call;
	long nth;
	bool on; /* and every later one */
	CUresult result;
};

static struct {
	bool configured;
	long calls[FC_CALLS];
	long failing[FC_CALLS]; /* calls since the list of failures was set */
	struct failure failures[32];
	unsigned failure_count;
	int log;
	uint64_t last_thread;
	pthread_key_t thread_key;
} state = {.log = -1};

void *fc_alloc(size_t size)
{
	void *p = calloc(1, size);
	if (!p) {
		(void)!write(STDERR_FILENO, "fakecuda: out of host memory\n", 29);
		abort();
	}
	return p;
}

static void write_line(const char *line, int length)
{
	if (length > 0)
		(void)!write(state.log, line, (size_t)length);
}

void fc_log(const char *what, const char *format, ...)
{
	if (state.log < 0)
		return;
	char line[256];
	va_list args;
	va_start(args, format);
	int n = snprintf(line, sizeof(line), "%d %ld %s ", (int)getpid(), (long)syscall(SYS_gettid), what);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n, format, args);
	va_end(args);
	n = n < (int)sizeof(line) - 1 ? n : (int)sizeof(line) - 2;
	line[n++] = '\n';
	write_line(line, n);
}

void fc_note(const char *format, ...)
{
	if (state.log < 0)
		return;
	va_list args;
	va_start(args, format);
	vsnprintf(fc_self.note, sizeof(fc_self.note), format, args);
	va_end(args);
}

static int call_named(const char *name, size_t length)
{
	for (int i = 0; i < FC_CALLS; i++)
		if (strlen(fc_functions[i].name) == length && !strncmp(fc_functions[i].name, name, length))
			return i;
	return -1;
}

static void wrong(const char *variable, const char *text)
{
	fprintf(stderr, "fakecuda: %s: cannot read '%s'\n", variable, text);
	abort();
}

static void set_failures(const char *list)
{
	state.failure_count = 0;
	memset(state.failing, 0, sizeof(state.failing));
	while (list && *list) {
		size_t length = strcspn(list, ":,");
		int call = call_named(list, length);
		if (call < 0 || list[length] != ':' || state.failure_count == CLV_ARRAY_LEN(state.failures))
			wrong("FAKE_CUDA_FAIL", list);
		struct failure *f = &state.failures[state.failure_count++];
		char *end;
		*f = (struct failure){.call = (enum fc_call)call, .result = CUDA_ERROR_OUT_OF_MEMORY};
		f->nth = strtol(list + length + 1, &end, 10);
		if (*end == '+') {
			f->on = true;
			end++;
		}
		if (*end == ':')
			f->result = (CUresult)strtol(end + 1, &end, 10);
		if ((*end && *end != ',') || f->nth < 1)
			wrong("FAKE_CUDA_FAIL", list);
		list = *end ? end + 1 : end;
	}
}

static long number_of(const char *variable, long otherwise, long most)
{
	const char *text = getenv(variable);
	if (!text || !*text)
		return otherwise;
	char *end;
	long n = strtol(text, &end, 10);
	if (*end || n < 0 || n > most)
		wrong(variable, text);
	return n;
}

static void forked(void)
{
	/* The real driver does not survive a fork either: everything answers "not initialized". Whoever held the lock
	 * is not here. */
	pthread_mutex_init(&fc.lock, NULL);
	fc.forked = fc.initialized;
}

static void configure(void)
{
	state.configured = true;
	fc.capacity = 256 * CLV_MIB;
	const char *memory = getenv("FAKE_CUDA_MEMORY");
	if (memory && *memory && !clv_size_parse(memory, &fc.capacity))
		wrong("FAKE_CUDA_MEMORY", memory);
	fc.devices = (int)number_of("FAKE_CUDA_DEVICES", 1, FC_MAX_DEVICES);
	fc.vmm = number_of("FAKE_CUDA_VMM", 1, 1);
	fc.version = (int)number_of("FAKE_CUDA_VERSION", 13000, 1000000);
	fc.queue_limit = (uint64_t)number_of("FAKE_CUDA_QUEUE", 0, 1000000);
	fc.delay_us = (unsigned)number_of("FAKE_CUDA_DELAY_US", 0, 10000000);
	set_failures(getenv("FAKE_CUDA_FAIL"));
	const char *log = getenv("FAKE_CUDA_LOG");
	if (log && *log) {
		state.log = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (state.log < 0)
			wrong("FAKE_CUDA_LOG", log);
	}
	pthread_atfork(NULL, NULL, forked);
}

/* A thread ends: its default streams go. */
static void thread_ends(void *arg)
{
	uint64_t id = (uint64_t)(uintptr_t)arg;
	pthread_mutex_lock(&fc.lock);
	for (struct fc_context *c = fc.forked ? NULL : fc.contexts; c; c = c->next)
		for (struct fc_queue *q = c->queues, *next; q; q = next) {
			next = q->next;
			if (q->thread == id && !q->closing)
				fc_queue_close(q);
		}
	pthread_mutex_unlock(&fc.lock);
}

static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void key_make(void)
{
	if (pthread_key_create(&state.thread_key, thread_ends))
		abort();
}

/* The primary context that a thread has current is whichever lives: they all are one to the program. */
struct fc_context *fc_current(void)
{
	struct fc_context *c = fc_self.depth ? fc_self.stack[fc_self.depth - 1] : NULL;
	return c && c->primary && fc.device[c->device].primary ? fc.device[c->device].primary : c;
}

static CUresult may_go_on(enum fc_call call, enum fc_needs needs)
{
	if (fc_self.callback)
		return CUDA_ERROR_NOT_PERMITTED;
	if (fc.forked && needs != FC_NOTHING)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (needs != FC_NOTHING && !fc.initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (needs == FC_CONTEXT || needs == FC_STREAM) {
		const struct fc_context *c = fc_current();
		if (!c && needs == FC_CONTEXT)
			return CUDA_ERROR_INVALID_CONTEXT;
		if (c && c->destroyed)
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		if (c && c->fault)
			return c->fault;
	}
	state.failing[call]++;
	for (unsigned i = 0; i < state.failure_count; i++) {
		const struct failure *f = &state.failures[i];
		if (f->call == call && (state.failing[call] == f->nth || (f->on && state.failing[call] > f->nth))) {
			fc_note("as FAKE_CUDA_FAIL says");
			return f->result;
		}
	}
	return CUDA_SUCCESS;
}

CUresult fc_begin(enum fc_call call, enum fc_needs needs)
{
	pthread_once(&key_once, key_make);
	pthread_mutex_lock(&fc.lock);
	if (!state.configured)
		configure();
	if (!fc_self.id) {
		fc_self.id = ++state.last_thread;
		pthread_setspecific(state.thread_key, (void *)(uintptr_t)fc_self.id);
	}
	state.calls[call]++;
	fc_self.note[0] = 0;
	return may_go_on(call, needs);
}

CUresult fc_end(enum fc_call call, CUresult result)
{
	if (state.log >= 0)
		fc_log(fc_functions[call].name, "%d%s%s", result, fc_self.note[0] ? " " : "", fc_self.note);
	pthread_mutex_unlock(&fc.lock);
	return result;
}

CUresult fc_result(enum clv_result r)
{
	switch (r) {
	case CLV_OK:
		return CUDA_SUCCESS;
	case CLV_OUT_OF_MEMORY:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case CLV_INVALID:
		return CUDA_ERROR_INVALID_VALUE;
	case CLV_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

/* Handles. A slot's address is the handle. */

#define SLOTS 65536

struct slot {
	void *object;
	struct slot *next;
};

static struct {
	struct slot slots[SLOTS];
	struct slot *free;
	uint32_t used, live;
} tables[FC_HANDLE_KINDS];

void *fc_handle_new(enum fc_kind kind, void *object)
{
	struct slot *s = tables[kind].free;
	if (s)
		tables[kind].free = s->next;
	else if (tables[kind].used < SLOTS)
		s = &tables[kind].slots[tables[kind].used++];
	else
		abort();
	s->object = object;
	tables[kind].live++;
	return s;
}

static struct slot *slot_of(enum fc_kind kind, const void *handle)
{
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)tables[kind].slots;
	if (offset >= sizeof(tables[kind].slots) || offset % sizeof(struct slot))
		return NULL;
	struct slot *s = &tables[kind].slots[offset / sizeof(struct slot)];
	return s->object ? s : NULL;
}

void *fc_handle_get(enum fc_kind kind, const void *handle)
{
	struct slot *s = slot_of(kind, handle);
	return s ? s->object : NULL;
}

void fc_handle_set(enum fc_kind kind, void *handle, void *object)
{
	struct slot *s = handle;
	tables[kind].live += (object != NULL) - (s->object != NULL);
	s->object = object;
}

void fc_handle_free(enum fc_kind kind, void *handle)
{
	struct slot *s = slot_of(kind, handle);
	if (!s)
		return;
	s->object = NULL;
	s->next = tables[kind].free;
	tables[kind].free = s;
	tables[kind].live--;
}

uint32_t fc_handles_live(enum fc_kind kind)
{
	return tables[kind].live;
}

uint32_t fc_handles_most(enum fc_kind kind)
{
	return tables[kind].used;
}

void *fc_handle_nth(enum fc_kind kind, uint32_t n)
{
	return tables[kind].slots[n].object;
}

/* For tests. */

long fakecuda_calls(const char *name)
{
	pthread_mutex_lock(&fc.lock);
	int call = name ? call_named(name, strlen(name)) : -1;
	long n = call < 0 ? -1 : state.calls[call];
	pthread_mutex_unlock(&fc.lock);
	return n;
}

void *fakecuda_function(const char *name)
{
	int call = name ? call_named(name, strlen(name)) : -1;
	return call < 0 ? NULL : fc_functions[call].address;
}

uint64_t fakecuda_used(int device)
{
	return fc.sim ? clv_sim_used(fc.sim, device) : 0;
}

uint64_t fakecuda_used_peak(int device)
{
	return fc.sim ? clv_sim_used_peak(fc.sim, device) : 0;
}

void fakecuda_foreign(int device, uint64_t bytes)
{
	if (fc.sim)
		clv_sim_set_foreign(fc.sim, device, bytes);
}

long fakecuda_faults(void)
{
	pthread_mutex_lock(&fc.lock);
	long n = fc.faults;
	pthread_mutex_unlock(&fc.lock);
	return n;
}

void fakecuda_delay(unsigned microseconds)
{
	pthread_mutex_lock(&fc.lock);
	__atomic_store_n(&fc.delay_us, microseconds, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&fc.lock);
}

void fakecuda_fail(const char *list)
{
	pthread_mutex_lock(&fc.lock);
	if (!state.configured)
		configure();
	set_failures(list);
	pthread_mutex_unlock(&fc.lock);
}
