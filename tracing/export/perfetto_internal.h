/* SPDX-License-Identifier: MIT
 *
 * perfetto_internal: what the parts of the Perfetto writer share. Owned by perfetto_write.c.
 */
#ifndef CLV_PERFETTO_INTERNAL_H
#define CLV_PERFETTO_INTERNAL_H

#include "../trace.h"
#include "sink.h"

struct clv_perfetto_sample {
	uint64_t time_us, allocated, reserved, largest_free, stranded;
};

struct clv_perfetto {
	struct clv_sink sink;
	const struct clv_trace *trace;
	const struct clv_history *h;
	int pid;
	bool any;                           /* an event was written */
	uint64_t time_us;                   /* of the last event of the pass */
	struct clv_perfetto_sample written; /* the last sample */
	bool sampled;
	uint32_t stride;
	uint64_t blocks, blocks_left_out, instants_left_out;
	uint32_t fail_note; /* notes up to here belong to failures that are written */
};

bool clv_perfetto_no_memory(struct clv_perfetto *w); /* false */

/* A string of JSON. */
void clv_perfetto_text(struct clv_perfetto *w, const char *text);

/* Begins an event: its kind, process, time; what follows up to the closing brace is the caller's. */
void clv_perfetto_begin(struct clv_perfetto *w, char kind, uint64_t time_us);

/* More of `args`, with a comma before; nothing if there is none. */
void clv_perfetto_stack(struct clv_perfetto *w, uint32_t stack);
void clv_perfetto_thread(struct clv_perfetto *w, uint32_t thread);

/* Phases, marks and whatever else was noted that a person would look for, of w->h. */
void clv_perfetto_notes(struct clv_perfetto *w);

#endif
