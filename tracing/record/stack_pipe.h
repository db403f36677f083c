/* SPDX-License-Identifier: MIT
 *
 * stack_pipe: libunwind without its pipe. Where code has no unwind tables, libunwind asks whether an address can be read by
 * writing from there into a pipe of its own, whose ends are two descriptors of the process for ever. A program that closes all
 * that it does not know, and opens files of its own under these numbers, has them read, written and closed by libunwind.
 *
 * So the table through which libunwind calls the C library is changed before it makes the pipe: there is none then, and the
 * kernel is asked in a way that needs no descriptor. Owns nothing.
 */
#ifndef CLV_STACK_PIPE_H
#define CLV_STACK_PIPE_H

#include <stdbool.h>

/* `lib` is of dlopen(), is never closed, and no function of it has been called yet by us. False: it makes a pipe as ever. If the
 * program has used the same library before, its pipe stays open, and neither the program nor we read or write there any more. */
bool clv_stack_without_pipe(void *lib);

#endif
