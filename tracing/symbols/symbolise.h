/* SPDX-License-Identifier: MIT
 *
 * symbolise: gives the native frames of a trace the functions, files and lines that their addresses stand for. Owned by the
 * thread that has the trace.
 */
#ifndef CLV_SYMBOLISE_H
#define CLV_SYMBOLISE_H

#include "../trace.h"

/* Each native frame that has no function yet becomes one frame or, with the functions that were inlined there, several, innermost
 * first; module and address stay. What nothing is known of is named by its offset in the file ("+0x1a2b"). `debug_folders` is as
 * in symbols.h. False with `err`: out of host memory; the trace is as before. */
bool clv_trace_symbolise(struct clv_trace *trace, const char *debug_folders, struct clv_error *err);

#endif
