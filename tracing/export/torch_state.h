/* SPDX-License-Identifier: MIT
 *
 * torch_state: the final state of a history that was recorded without one, made up for viewers that draw blocks in
 * segments. Owned by the exporter.
 */
#ifndef CLV_TORCH_STATE_H
#define CLV_TORCH_STATE_H

#include "../trace.h"

/* A segment that comes or goes without an event of its own. */
struct clv_torch_mapping {
	uint64_t addr, size, time_us;
	uint32_t before; /* so many events come first */
	uint32_t stream, stack;
	bool there;
	bool expandable; /* a frame of Cleave, which with its neighbours makes one segment; else an allocation of the driver's */
};

struct clv_torch_state {
	struct clv_segment_record *segments; /* as in a history; all of pool 0; stream CLV_NO_STREAM: of a frame */
	uint32_t segment_count;
	struct clv_block_record *blocks;
	uint32_t block_count;
	struct clv_torch_mapping *mappings; /* as they follow each other */
	size_t mapping_count, mapping_cap;
};

/* Replays the history's segment events, or where notes tell of frames, those (the report's walk finds where each is). Runs of
 * frames that lie side by side are one segment. Blocks outside of every segment that is known (all of them, in a log of requests
 * alone) lie in segments that were there all the time: the ranges that such blocks ever covered, where they overlap or touch. Where
 * the driver's allocations are known, each such block has a segment of its own as long as it lives, since they take turns.
 * Blocks in use at the end take what was recorded, or what was requested, rounded up to 512 B, but never a part of the next one.
 * What waits for a stream after its free is complete for its own, or is held back for a reservation, is inactive: PyTorch has no
 * word for it. False: out of host memory. */
bool clv_torch_state_make(struct clv_torch_state *s, const struct clv_trace *trace, const struct clv_history *h);

void clv_torch_state_free(struct clv_torch_state *s);

#endif
