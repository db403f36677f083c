/* SPDX-License-Identifier: MIT
 *
 * stat_snapshot: the state of a running process's heap as a trace that has a state and no events. Owns nothing.
 *
 * What is mapped is cut where frames meet and no live block lies across: a segment is one frame, or a few under one live
 * block. So a segment without a live block is what could be given back, and free blocks beside live ones are stranded, as
 * heap/breakdown.h says. A segment is said to be of the stream that has most of its bytes.
 */
#ifndef CLV_STAT_SNAPSHOT_H
#define CLV_STAT_SNAPSHOT_H

#include "../../tracing/trace.h"
#include "../live/gather.h"

/* Of an answer to CLV_STAT_SNAPSHOT. NULL with the reason: host memory is out, or blocks and frames contradict each other. */
struct clv_trace *clv_stat_trace(const struct clv_stat_view *view, struct clv_error *err);

#endif
