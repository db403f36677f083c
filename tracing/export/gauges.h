/* SPDX-License-Identifier: MIT
 *
 * gauges: what a device's memory looks like at each moment of a history, in a few numbers, with the words of report.h. The walk is
 * the report's (state.h); the longest free range is kept here. Owned by one exporter.
 */
#ifndef CLV_GAUGES_H
#define CLV_GAUGES_H

#include "../report/state.h"

struct clv_gauges {
	struct clv_state state;
	bool has_frames;       /* the history says what was held; if not, only `allocated` is known */
	uint64_t allocated;    /* live blocks, and those whose free is not completed, each rounded up to 512 B */
	uint64_t reserved;     /* held by frames: each counts once, wherever and as often as it is mapped */
	uint64_t largest_free; /* the longest free range within frames that lie side by side */
	uint64_t stranded;     /* hard: free, in occupied frames */

	/* private */
	struct clv_plane_watch watch;
	struct clv_gauge_hole {
		uint64_t size;
		uint32_t begin; /* rank */
	} * holes; /* a heap, the longest first. Free ranges that are no more stay until they come to the top */
	size_t hole_count, hole_cap, hole_most;
	bool *live; /* of each block */
};

/* As it was before the first step. What was there before follows from the final state and the events; in a history without a state
 * there is what an event or a note makes. False with an error: out of host memory. */
bool clv_gauges_begin(struct clv_gauges *g, const struct clv_trace *trace, const struct clv_history *h,
		      struct clv_error *err);

/* After one step more: an event or a note. False: that was all, or host memory is out (state.plane.broken). */
bool clv_gauges_step(struct clv_gauges *g);

void clv_gauges_end(struct clv_gauges *g); /* also after a begin that failed */

#endif
