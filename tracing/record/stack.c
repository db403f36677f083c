/* SPDX-License-Identifier: MIT */
#include "stack.h"

#include "stack_intern.h"
#include "stack_modules.h"
#include "stack_pipe.h"
#include "stack_python.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define XXH_INLINE_ALL /* no symbol of it is exported or needed */
#include <xxhash.h>

#define STACKS_DEFAULT (1u << 18)
#define OWN_MAX 32u /* frames of ours that are left out, at most */

/* libunwind names what works on the process itself by architecture. */
#if defined(__x86_64__)
#define LOCAL(name) "_ULx86_64_" name
#elif defined(__aarch64__)
#define LOCAL(name) "_ULaarch64_" name
#else
#error "libunwind's names are not known for this architecture"
#endif
#define CACHE_PER_THREAD 2 /* UNW_CACHE_PER_THREAD */

/* As a stack lies in the table: this, the native frames, the Python frames. */
struct packed {
	uint16_t native_count, python_count;
	uint32_t unused;
	char frames[];
};

#define PACKED_MAX                                                                                                     \
	(sizeof(struct packed) + CLV_STACK_NATIVE_MAX * sizeof(uint64_t) + CLV_STACK_PYTHON_MAX * sizeof(uint32_t))

static struct clv_stack_config config;              /* written before `opened`, as the next ones are */
static int (*backtrace_of)(void **frames, int max); /* NULL: no native frames */
static uint64_t own_begin, own_end;
static struct clv_intern stacks;
static _Atomic bool opened;
static _Atomic bool unwound;                                /* libunwind has been at work in this process */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* also while looking for modules */
static bool tried;                                          /* under it */
static _Atomic uint64_t lost;
static _Atomic bool lost_said;

static void say(const char *text)
{
	if (config.say)
		config.say(config.say_arg, text);
}

/* ---- opening ---- */

static void open_libunwind(void)
{
	/* RTLD_LOCAL: its _Unwind_ functions must not answer for the program's exceptions. It stays. */
	void *lib = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void *space = lib ? dlsym(lib, LOCAL("local_addr_space")) : NULL;
	int (*set_caching)(void *, int);
	*(void **)&set_caching = lib ? dlsym(lib, LOCAL("set_caching_policy")) : NULL;
	*(void **)&backtrace_of = lib ? dlsym(lib, "unw_backtrace") : NULL;
	if (!space || !set_caching || !backtrace_of) {
		backtrace_of = NULL;
		say(lib ? "stacks have no native frames: libunwind.so.8 lacks functions"
			: "stacks have no native frames: libunwind.so.8 cannot be loaded (Debian, Ubuntu: libunwind8)");
		return;
	}
	(void)clv_stack_without_pipe(lib); /* before it is called at all */
	set_caching(*(void **)space, CACHE_PER_THREAD);
}

static void find_own_code(void)
{
	struct clv_stack_module m;
	for (uint32_t id = 1; clv_module_get(id, &m); id++)
		if ((uintptr_t)find_own_code >= m.begin && (uintptr_t)find_own_code < m.end) {
			own_begin = m.begin;
			own_end = m.end;
		}
}

/* A thread that is not in the child may have held libunwind's locks. A process that has used its GPU, so that there
 * were stacks, is of no use to CUDA after a fork; one that has not, as those that start workers, has not been in
 * libunwind either. */
static void after_fork(void)
{
	pthread_mutex_init(&opening, NULL);
	if (atomic_load_explicit(&unwound, memory_order_relaxed))
		backtrace_of = NULL;
}

static bool open_all(const struct clv_stack_config *wanted)
{
	config = *wanted;
	config.native_max = (unsigned)clv_min_u64(config.native_max, CLV_STACK_NATIVE_MAX);
	config.python_max = (unsigned)clv_min_u64(config.python_max, CLV_STACK_PYTHON_MAX);
	if (!clv_intern_open(&stacks, config.stacks_max ? config.stacks_max : STACKS_DEFAULT) || !clv_modules_open() ||
	    !clv_python_open()) {
		say("no stacks are recorded: out of host memory");
		return false;
	}
	if (config.native_max)
		open_libunwind();
	clv_modules_look();
	if (config.skip_own)
		find_own_code();
	if (config.python_max)
		clv_python_look(config.say, config.say_arg);
	if (pthread_atfork(NULL, NULL, after_fork))
		say("stacks may hang in a child of fork(): out of host memory");
	return true;
}

static bool is_open(void)
{
	return atomic_load_explicit(&opened, memory_order_acquire);
}

bool clv_stack_open(const struct clv_stack_config *wanted)
{
	if (is_open())
		return true;
	pthread_mutex_lock(&opening);
	if (!tried) {
		tried = true;
		atomic_store_explicit(&opened, open_all(wanted), memory_order_release);
	}
	pthread_mutex_unlock(&opening);
	return is_open();
}

void clv_stack_poll(void)
{
	if (!is_open() || pthread_mutex_trylock(&opening))
		return;
	if (clv_modules_look() && config.python_max)
		clv_python_look(config.say, config.say_arg);
	pthread_mutex_unlock(&opening);
}

/* ---- capturing ---- */

static bool is_own(const void *address)
{
	return (uintptr_t)address - 1 >= own_begin && (uintptr_t)address - 1 < own_end;
}

__attribute__((noinline)) size_t clv_stack_capture(struct clv_stack *out, unsigned skip)
{
	void *frames[CLV_STACK_NATIVE_MAX + OWN_MAX];
	out->native_count = out->python_count = 0;
	if (!is_open())
		return 0;
	if (backtrace_of) {
		if (CLV_UNLIKELY(!atomic_load_explicit(&unwound, memory_order_relaxed)))
			atomic_store_explicit(&unwound, true, memory_order_relaxed);
		/* the first is in this function */
		unsigned want = 1 + (unsigned)clv_min_u64(skip, OWN_MAX - 1) + config.native_max;
		if (own_end)
			want = config.native_max + OWN_MAX;
		int count = backtrace_of(frames, (int)want), first = 1 + (int)clv_min_u64(skip, OWN_MAX - 1);
		while (own_end && first < count && is_own(frames[first]))
			first++;
		for (; first < count && out->native_count < config.native_max; first++)
			out->native[out->native_count++] = (uintptr_t)frames[first];
	}
	if (config.python_max)
		out->python_count = (uint16_t)clv_python_frames(out->python, config.python_max);
	return (size_t)out->native_count + out->python_count;
}

uint32_t clv_stack_id(const struct clv_stack *stack)
{
	_Alignas(8) char bytes[PACKED_MAX];
	struct packed head = {stack->native_count, stack->python_count, 0};
	size_t native = stack->native_count * sizeof(uint64_t), python = stack->python_count * sizeof(uint32_t);
	if (!is_open() || native + python == 0)
		return 0;
	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), stack->native, native);
	memcpy(bytes + sizeof(head) + native, stack->python, python);
	size_t len = sizeof(head) + native + python;
	uint32_t id = clv_intern(&stacks, XXH3_64bits(bytes, len), bytes, len);
	if (CLV_UNLIKELY(id == 0)) {
		atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
		if (!atomic_exchange_explicit(&lost_said, true, memory_order_relaxed))
			say("the table of stacks is full: events with other stacks are recorded without one");
	}
	return id;
}

/* ---- what ids stand for ---- */

uint32_t clv_stack_count(void)
{
	return clv_intern_count(&stacks);
}

bool clv_stack_get(uint32_t id, struct clv_stack *out)
{
	const char *p = clv_intern_get(&stacks, id, NULL);
	struct packed head;
	if (!p)
		return false;
	memcpy(&head, p, sizeof(head));
	out->native_count = head.native_count;
	out->python_count = head.python_count;
	p += sizeof(head);
	memcpy(out->native, p, head.native_count * sizeof(uint64_t));
	memcpy(out->python, p + head.native_count * sizeof(uint64_t), head.python_count * sizeof(uint32_t));
	return true;
}

uint32_t clv_stack_frame_count(void)
{
	return clv_intern_count(&clv_python_frame_table);
}

bool clv_stack_frame(uint32_t id, struct clv_stack_frame *out)
{
	const struct clv_stack_frame *f = clv_intern_get(&clv_python_frame_table, id, NULL);
	if (f)
		*out = *f;
	return f != NULL;
}

uint32_t clv_stack_string_count(void)
{
	return clv_intern_count(&clv_python_string_table);
}

const char *clv_stack_string(uint32_t id, size_t *len)
{
	return clv_intern_get(&clv_python_string_table, id, len);
}

uint32_t clv_stack_module_count(void)
{
	return clv_module_count();
}

bool clv_stack_module(uint32_t id, struct clv_stack_module *out)
{
	return clv_module_get(id, out);
}

void clv_stack_stats(struct clv_stack_stats *out)
{
	*out = (struct clv_stack_stats){.lost = atomic_load_explicit(&lost, memory_order_relaxed),
					.lost_frames = clv_python_lost(),
					.python_minor = clv_python_minor(),
					.native = is_open() && backtrace_of};
}
