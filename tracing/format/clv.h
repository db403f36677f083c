/* SPDX-License-Identifier: MIT
 *
 * clv: Cleave's own trace file, version 1: compact, append-only, checksummed. The format is described in clv_write.c.
 */
#ifndef CLV_CLV_H
#define CLV_CLV_H

#include "../trace.h"

/* Writes a whole trace. The file appears under its name only when it is complete. */
bool clv_trace_write(const struct clv_trace *trace, const char *path, struct clv_error *err);

#endif
