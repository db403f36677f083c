/* SPDX-License-Identifier: MIT
 *
 * stack: where in the program a call came from: native return addresses, and the Python frames of the calling thread.
 * Equal stacks get the same small number, so that an event of a trace can name its stack by it.
 *
 * Owns, once for the process: libunwind, opened at run time and to itself (as a dependency it would answer for the
 * exceptions of every C++ program); what is known of CPython in the process; the tables of stacks, frames, strings and
 * modules. All of these only grow, up to a limit; what an id stands for does not change, and pointers that were handed
 * out stay valid until the process ends.
 *
 * Thread-safety: every function may be called from any thread at any time once clv_stack_open() has answered true; no
 * lock is held while a stack is captured, numbered or looked up, but in libunwind, which takes locks of its own and the
 * dynamic linker's for a moment when it meets code that the thread has not met before. Not from signal handlers. A
 * child of fork() goes on with all that its parent knew; if a stack was captured before the fork, without native frames
 * (another thread may have been in libunwind). One must not fork() while another thread opens.
 *
 * Native frames are right as far as the tables of the code say how to go on; code without tables is passed by its frame
 * pointers or ends the stack. What libunwind has learned of an address it keeps while the thread lives: where a library
 * is unloaded and another one comes to lie at its addresses, a stack may go wrong at a call that lies just where one of
 * the old library's did.
 *
 * How a recorder writes what ids stand for: its writer takes the events out of the threads' buffers first and only then
 * reads clv_stack_count(); every id in those events is at most that. Then it writes the stacks that it has not yet
 * written, and before them the frames, strings and modules that are new, by the same rule. A file that is begun anew
 * (rotation) is given everything again from 1 on.
 */
#ifndef CLV_STACK_H
#define CLV_STACK_H

#include "../../src/base/base.h"

#define CLV_STACK_NATIVE_MAX 64u
#define CLV_STACK_NATIVE_DEFAULT 16u
#define CLV_STACK_PYTHON_MAX 64u
#define CLV_STACK_PYTHON_DEFAULT 32u

struct clv_stack_config {
	unsigned native_max; /* frames at most; 0: none */
	unsigned python_max; /* the same; 0: Python is not looked for */
	uint32_t stacks_max; /* different stacks at most; 0: 262,144 */
	bool skip_own;       /* innermost native frames that lie in the library or program of this code are left out */
	/* Told once of each thing that makes stacks less than asked for, by whatever thread; NULL: nobody is. */
	void (*say)(void *arg, const char *text);
	void *say_arg;
};

/* Innermost first. */
struct clv_stack {
	uint16_t native_count, python_count;
	uint64_t native[CLV_STACK_NATIVE_MAX]; /* return addresses: the call is at the address before */
	uint32_t python[CLV_STACK_PYTHON_MAX]; /* ids of frames */
};

/* The first call opens, and its configuration holds; later ones answer the same. False: there is no host memory for the
 * tables, which has been said. Without libunwind or Python it is true: such stacks are shorter. */
bool clv_stack_open(const struct clv_stack_config *config);

/* The stack of the caller; `skip` more of the innermost native frames are left out (0: the first address is in the
 * caller). Answers the number of frames of both kinds; 0 before clv_stack_open(). */
size_t clv_stack_capture(struct clv_stack *out, unsigned skip);

/* The number of a stack, from 1 on without a gap; 0: it has no frames, or the table is full, which has been said. */
uint32_t clv_stack_id(const struct clv_stack *stack);

/* To be called now and then, say each second, from a thread that nobody waits for: looks for modules, and for a Python
 * that was loaded later. Cheap if no module has come or gone. */
void clv_stack_poll(void);

/* Ids are 1 .. count. The getters are false for others. */
uint32_t clv_stack_count(void);
bool clv_stack_get(uint32_t id, struct clv_stack *out);

struct clv_stack_frame {
	uint32_t file, function; /* ids of strings */
	uint32_t line;           /* 0: no line belongs to the instruction */
};

uint32_t clv_stack_frame_count(void);
bool clv_stack_frame(uint32_t id, struct clv_stack_frame *out);

uint32_t clv_stack_string_count(void);
/* UTF-8 without a 0 in it, with one behind it; NULL: no such id. */
const char *clv_stack_string(uint32_t id, size_t *len);

/* An executable range of a file that is or was loaded. Where two overlap, the one with the higher id came later. */
#define CLV_STACK_BUILD_ID_MAX 32u
struct clv_stack_module {
	uint64_t begin, end; /* addresses of its code */
	uint64_t bias;       /* address in memory less that in the file */
	uint32_t build_id_len;
	uint8_t build_id[CLV_STACK_BUILD_ID_MAX];
	const char *path; /* of the program itself as well */
};

uint32_t clv_stack_module_count(void);
bool clv_stack_module(uint32_t id, struct clv_stack_module *out);

/* What is counted since the start. */
struct clv_stack_stats {
	uint64_t lost;         /* stacks without a number, since the table was full */
	uint64_t lost_frames;  /* Python frames left out, since a table was full or what was found made no sense */
	uint32_t python_minor; /* 3.x in the process whose frames are read; 0: none */
	bool native;           /* libunwind is there */
};

void clv_stack_stats(struct clv_stack_stats *out);

#endif
