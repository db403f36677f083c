/* SPDX-License-Identifier: MIT
 *
 * planned: the history that a plan foresees, as a trace that any policy replays. Owns nothing between calls.
 */
#ifndef CLV_PLANNED_H
#define CLV_PLANNED_H

#include "../src/plan/layers.h"
#include "trace.h"

/* The whole load and conversion of one rank: a linked trace of one device and one stream, without a state and without
 * settings. Every request has a stack of one frame, which says what the buffer is. A microsecond lies between events. NULL
 * with `err` if nothing is asked for, there are more than CLV_PLANNED_EVENTS_MAX events, or host memory is out. Free it with clv_trace_free(). */
#define CLV_PLANNED_EVENTS_MAX 20000000 /* a gigabyte in memory, and more; published models have some millions */

struct clv_trace *clv_planned_trace(const struct clv_layers *layers, struct clv_error *err);

#endif
