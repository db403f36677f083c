/* SPDX-License-Identifier: MIT
 *
 * stack_code: what a code object of CPython says of itself: file, function, and the line of an instruction. Owns
 * nothing; reads memory of the interpreter that a frame on the calling thread's stack keeps alive (stack_python.h), and
 * changes none of it.
 */
#ifndef CLV_STACK_CODE_H
#define CLV_STACK_CODE_H

#include "stack_layout.h"

/* Offset of the instruction that a frame is at, in bytes from the first one; below 0: before that. */
int64_t clv_code_offset(const struct clv_python_layout *l, const char *frame, const char *code);

/* The line of the instruction at that offset; 0: none belongs to it. *used: so many bytes from the beginning of the
 * table of lines decided it. */
uint32_t clv_code_line(const struct clv_python_layout *l, const char *code, int64_t offset, size_t *used);

enum clv_code_text { CLV_CODE_FILE, CLV_CODE_FUNCTION };

/* As UTF-8, without the 0 behind it; what does not fit into `room` is left out, by whole characters. A surrogate (a
 * byte of a file name that is no UTF-8) and a 0 become U+FFFD. 0: it is empty, or of a form that CPython does not give
 * to names. */
size_t clv_code_text(const struct clv_python_layout *l, const char *code, enum clv_code_text which, char *out,
		     size_t room);

/* A number that differs, but for chance, if any of these does: the texts, and the first `used` bytes of the table of
 * lines (of many, the first and the last few hundred). 0: the object has a version number, and that has changed as well
 * then. */
uint64_t clv_code_contents(const struct clv_python_layout *l, const char *code, size_t used);

#endif
