/* SPDX-License-Identifier: MIT
 *
 * gauges: what a device's memory looks like at each moment of a history, in a few numbers. Owned by one exporter.
 */
#ifndef CLV_GAUGES_H
#define CLV_GAUGES_H

#include "free_runs.h"
#include "segments.h"

struct clv_gauges {
	const struct clv_history *h;
	bool has_segments;     /* the history says where they are; if not, only `allocated` is known */
	uint64_t allocated;    /* live blocks, each rounded up to 512 B */
	uint64_t reserved;     /* all segments */
	uint64_t largest_free; /* the longest free range of a segment */
	uint64_t stranded;     /* free bytes of segments that hold a live block */

	/* private */
	struct clv_segments segments;
	struct clv_free_runs runs;
	uint32_t *made_by; /* of each block: its ALLOC event */
	bool *live;        /* of each block */
};

/* As it was before the first event. Segments of the beginning follow from the final state and the events; in a
 * history without a state there are those alone that an event makes. false: out of host memory. */
bool clv_gauges_begin(struct clv_gauges *g, const struct clv_history *h);

/* After event number i; all events in turn. */
bool clv_gauges_step(struct clv_gauges *g, uint32_t i);

void clv_gauges_end(struct clv_gauges *g); /* also after a begin that failed */

#endif
