/* SPDX-License-Identifier: MIT
 *
 * Recording what happens to device memory, and telling the record what the program is doing.
 *
 * Marks and phases cost a few nanoseconds while nothing is recorded. A program that is not linked with Cleave uses the
 * macros below: they go to libcleave-preload.so or libcleave.so where one of them is in the process, and to nobody else.
 *
 * Thread-safety: every function may be called from any thread.
 */
#ifndef CLEAVE_TRACE_H
#define CLEAVE_TRACE_H

#include <cleave/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts to record into a .clv file, for `cleave report`, `replay` and `convert`; a file of that name is replaced. In `path`, %p
 * is the process's id and %r its rank. `settings` is "key:value,..." of the keys that `cleave help settings` lists under
 * recordings (NULL: defaults). Heaps that are open are recorded with what they hold. Returns 0, or with a sentence in `why` (may
 * be NULL; `why_len` bytes) -EBUSY: this process is recorded already, -EINVAL: a bad setting or name, -EIO: the file cannot be
 * written. */
CLEAVE_API int cleave_trace_start(const char *path, const char *settings, char *why, size_t why_len);

/* What was recorded so far is in the file when this returns 0. -ETIMEDOUT: it is not after ten seconds; -ENOENT: nothing is
 * recorded. */
CLEAVE_API int cleave_trace_flush(void);

/* Ends the recording, also one that a setting began. -ENOENT: there is none. */
CLEAVE_API int cleave_trace_stop(void);

/* A moment, with a name: at most 255 bytes of UTF-8 are kept. */
CLEAVE_API void cleave_trace_mark(const char *name);

/* What the program does from here on, until the end of the same name: "load", "convert layer 7". Phases nest. */
CLEAVE_API void cleave_trace_phase_begin(const char *name);
CLEAVE_API void cleave_trace_phase_end(const char *name);

/* The same for a program that is not linked with Cleave: CLEAVE_TRACE_MARK("loaded"), CLEAVE_TRACE_PHASE_BEGIN("load"),
 * CLEAVE_TRACE_PHASE_END("load"). They need GCC's or Clang's weak references and a dynamically linked program; elsewhere they
 * do nothing. */
#if defined(__GNUC__) && defined(__ELF__)
static void cleave_trace_weak_mark(const char *) __attribute__((weakref("cleave_trace_mark"), unused));
static void cleave_trace_weak_phase_begin(const char *) __attribute__((weakref("cleave_trace_phase_begin"), unused));
static void cleave_trace_weak_phase_end(const char *) __attribute__((weakref("cleave_trace_phase_end"), unused));
#define CLEAVE_TRACE_WEAK_(function, name)                                                                             \
	do {                                                                                                           \
		if (function)                                                                                          \
			function(name);                                                                                \
	} while (0)
#define CLEAVE_TRACE_MARK(name) CLEAVE_TRACE_WEAK_(cleave_trace_weak_mark, name)
#define CLEAVE_TRACE_PHASE_BEGIN(name) CLEAVE_TRACE_WEAK_(cleave_trace_weak_phase_begin, name)
#define CLEAVE_TRACE_PHASE_END(name) CLEAVE_TRACE_WEAK_(cleave_trace_weak_phase_end, name)
#else
#define CLEAVE_TRACE_MARK(name) ((void)(name))
#define CLEAVE_TRACE_PHASE_BEGIN(name) ((void)(name))
#define CLEAVE_TRACE_PHASE_END(name) ((void)(name))
#endif

#ifdef __cplusplus
}
#endif

#endif
