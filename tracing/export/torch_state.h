/* SPDX-License-Identifier: MIT
 *
 * torch_state: the final state of a history that was recorded without one, made up for viewers that draw blocks in
 * segments. Owned by the exporter.
 */
#ifndef CLV_TORCH_STATE_H
#define CLV_TORCH_STATE_H

#include "../trace.h"

struct clv_torch_state {
	struct clv_segment_record *segments; /* as in a history; all of pool 0 */
	uint32_t segment_count;
	struct clv_block_record *blocks;
	uint32_t block_count;
};

/* Replays the history's segment events. Blocks outside of every segment that is known (all of them, in a log of
 * requests alone) lie in segments that were there all the time: the ranges that such blocks ever covered, where they
 * overlap or touch. Blocks in use at the end take what was requested, rounded up to 512 B, but never a part of the
 * next one. false: out of host memory. */
bool clv_torch_state_make(struct clv_torch_state *s, const struct clv_history *h);

void clv_torch_state_free(struct clv_torch_state *s);

#endif
