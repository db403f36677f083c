/* SPDX-License-Identifier: MIT
 *
 * segments: which segments there are at a moment of a history, followed through its events. Owned by one exporter.
 */
#ifndef CLV_SEGMENTS_H
#define CLV_SEGMENTS_H

#include "../trace.h"

struct clv_segment_range {
	uint64_t addr, end;
	uint32_t stream;
	bool expandable; /* mapped piece by piece: neighbours of one stream are one */
};

struct clv_segments {
	struct clv_segment_range *at; /* sorted; they do not overlap */
	size_t count, cap;
};

void clv_segments_free(struct clv_segments *s);

/* The segment that contains the address, or NULL. Valid until the next change. */
struct clv_segment_range *clv_segments_find(const struct clv_segments *s, uint64_t addr);

/* A segment more, where there is none yet. false: out of host memory. */
bool clv_segments_add(struct clv_segments *s, struct clv_segment_range r);

/* What of a range belongs to segments does no more. false: out of host memory. */
bool clv_segments_cut(struct clv_segments *s, uint64_t addr, uint64_t end);

/* What a SEGMENT_* event does; other events do nothing. false: out of host memory. */
bool clv_segments_step(struct clv_segments *s, const struct clv_event_record *e);

#endif
