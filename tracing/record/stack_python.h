/* SPDX-License-Identifier: MIT
 *
 * stack_python: the Python frames of the calling thread, read from CPython's own structures. Owns what is known of the
 * interpreter in this process, and the tables of frames and strings.
 *
 * The global interpreter lock is never taken, nor is any function called that needs it, nor a reference counted: a
 * caller may hold a lock of its own for which a thread with the interpreter's lock waits, as PyTorch's cudaMallocAsync
 * backend does. Two functions of CPython are called, which read a few words: PyGILState_GetThisThreadState() (a
 * thread-local value), and once Py_GetVersion().
 *
 * Why what is read is there, and stays:
 *   - The frames of a thread change only by what that thread does, and it is here. Letting go of the interpreter's lock
 *     leaves them as they are. The innermost is the one that called C code; each holds a reference to its code object,
 *     and that to its name, its file and its lines, none of which change while the code can run.
 *   - A thread without a state, before its first call into Python or after its state was deleted, has none to be read:
 *     the thread-local value is cleared before the state is freed. While a state is torn down by its own thread
 *     (destructors that free tensors), it is still whole and its chain of frames empty.
 *   - Code in a generator or a coroutine that runs is linked into the chain; one that is suspended is not.
 *   - Of frames that stand for a step from C to Python (3.12 and later) or have no code, nothing is read but what they
 *     are.
 *   - A frame that is being made is linked in only when its code and its first instruction are set.
 *   - In a subinterpreter: 3.12 and later have the state that runs now; up to 3.11 the thread-local value is that of
 *     the first interpreter which used the thread, whose frames, lower in the same stack, are then shown.
 * What is not safe, and what is done about it:
 *   - When an interpreter ends, it deletes the states of other threads, daemons that are in C code without its lock. It
 *     sets a mark before (_PyRuntime's `finalizing`), which is looked at before each frame; then nothing more is read.
 *     What is left is a daemon thread that is interrupted between this look and the load that follows, for as long as
 *     the interpreter needs to get from the mark to the deletion; in a process that is ending.
 *   - Builds without the interpreter's lock (3.13t, 3.14t) have other rules for what lives how long: not read.
 *   - A code object may be freed, and another one lie at its address later. So what is known of an address is used only
 *     if the object still has the same version number, where there is one (from 3.12 on), or else the same texts and
 *     lines.
 *   - Alpha and beta versions, and structures whose types are not as large as they should be: not read.
 *
 * Thread-safety: all from any thread, without locks, but clv_python_look(), which the caller has one thread do at a
 * time.
 */
#ifndef CLV_STACK_PYTHON_H
#define CLV_STACK_PYTHON_H

#include "stack.h"
#include "stack_intern.h"

typedef void clv_stack_say(void *arg, const char *text);

/* Makes the tables; false: no host memory. */
bool clv_python_open(void);

/* Looks for CPython in the process, unless it has been found. What is found and cannot be read is said, once. */
void clv_python_look(clv_stack_say *say, void *arg);

/* 0: no frames can be read. */
unsigned clv_python_minor(void);

/* Ids of frames, innermost first. */
size_t clv_python_frames(uint32_t *out, unsigned max);

uint64_t clv_python_lost(void);

extern struct clv_intern clv_python_frame_table;  /* of struct clv_stack_frame */
extern struct clv_intern clv_python_string_table; /* of UTF-8 */

#endif
