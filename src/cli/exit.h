/* SPDX-License-Identifier: MIT
 *
 * exit: the exit statuses of the `cleave` command; programs rely on them. Owns no state.
 */
#ifndef CLV_EXIT_H
#define CLV_EXIT_H

/* (enumerator, status, what it means; printed by `cleave help`) */
#define CLV_EXITS(X)                                                                                                   \
	X(DONE, 0, "done")                                                                                             \
	X(FAILED, 1,                                                                                                   \
	  "the thing asked for does not hold: a replay does not complete, a packing or a plan does not fit, two "      \
	  "things differ, a process has no heap to show or does not answer")                                           \
	X(USAGE, 2, "wrong usage, input that cannot be read or makes no sense, or output that cannot be written")      \
	X(CANNOT_RUN, 126, "`run`: the command is there, but cannot be executed")                                      \
	X(NOT_FOUND, 127, "`run`: there is no such command; else its status is that of the command")

enum clv_exit {
#define X(name, status, text) CLV_EXIT_##name = status,
	CLV_EXITS(X)
#undef X
};

#endif
