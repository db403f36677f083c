/* SPDX-License-Identifier: MIT
 *
 * torch_walk: one walk of the model of PyTorch's allocator over a recorded history, step by step, from what was there before
 * its first event to its final state. Where a step cannot be explained, the model is put where the recording is and goes on.
 * Owned by a verification.
 */
#ifndef CLV_TORCH_WALK_H
#define CLV_TORCH_WALK_H

#include "torch_step.h"

struct clv_walk {
	/* set by the owner */
	const struct clv_trace *trace;
	const struct clv_history *h;
	struct clv_torch_settings settings;
	uint64_t limit; /* of memory; CLV_TORCH_UNLIMITED: none is known */
	uint64_t total; /* bytes of the device; 0: not known */
	uint8_t *
		vanishes; /* with pools that vanished: by event, whether the segment that it made is given back later */
	bool trial;       /* the walk ends at the first mismatch: it is to explain everything or nothing */

	/* of the walk */
	struct clv_step step;
	struct clv_torch *m;
	struct clv_verify_result *out;
	bool cut; /* the first request may have lost its first events */

	/* where garbage collection is on: free segments from before the window, whose age is not known, by address */
	struct clv_map aged;
	uint32_t aged_count;

	/* what could explain the first mismatch */
	uint32_t suspects[2]; /* segment_allocs at the first mismatch that may be of vanished pools, or CLV_NO_BLOCK */
	bool suspect_tie;     /* at the first mismatch the recording took a block like that which the model took */
};

/* `vanished` (may be NULL): see struct clv_step. False: out of host memory, and nothing is in *out. */
bool clv_walk_run(struct clv_walk *v, struct clv_map *vanished, struct clv_verify_result *out, struct clv_error *err);

bool clv_walk_is_segment_event(const struct clv_event_record *e);

#endif
