/* SPDX-License-Identifier: MIT
 *
 * error: one sentence that explains why an input or a request was refused. Owned by the caller, usually on its stack.
 */
#ifndef CLV_ERROR_H
#define CLV_ERROR_H

#include "base.h"

struct clv_error {
	char text[4096 + 512]; /* empty: no error yet. Room for the longest path and a reason after it */
};

/* Formats the sentence; keeps the first error if one is set already, since the first is the cause. Returns false, so that
 * a function which answers true for success can `return clv_error_set(...)`. `err` may be NULL. */
bool clv_error_set(struct clv_error *err, const char *fmt, ...) CLV_PRINTF(2, 3);

/* The same for a place in a file: "FILE: offset N: ...". */
bool clv_error_at(struct clv_error *err, const char *file, uint64_t offset, const char *fmt, ...) CLV_PRINTF(4, 5);

/* The same for a line of a text, from 1: "FILE:LINE: ...". */
bool clv_error_at_line(struct clv_error *err, const char *file, uint64_t line, const char *fmt, ...) CLV_PRINTF(4, 5);

#endif
