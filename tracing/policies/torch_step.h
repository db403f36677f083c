/* SPDX-License-Identifier: MIT
 *
 * torch_step: one step of a recorded history, put to the model of PyTorch's allocator. A step is a request with the segment
 * events and completed frees before it, or an emptied cache. What the recording leaves out is tried in turn (was the cache
 * emptied first? did the driver refuse?), each try undone if it does not explain every event of the step, so the model alone
 * decides what is released and which address a request gets. Owned by a verification.
 */
#ifndef CLV_TORCH_STEP_H
#define CLV_TORCH_STEP_H

#include "../map.h"
#include "torch_allocator.h"
#include "torch_verify.h"

struct clv_step_freed {
	uint32_t id, block;
};

struct clv_step {
	const struct clv_trace *trace;
	const struct clv_history *h;
	struct clv_torch *m;
	struct clv_verify_result *out;
	uint32_t *block_of; /* block of the model by dense id; CLV_TORCH_NONE: none */
	uint32_t
		pool_count; /* pools that the model has: those of the history, then those that vanished before its end */
	/* Pools of segments that vanished, by the segment_alloc event that made them; CLV_STEP_ANY_POOL: of some such pool. The
	 * final state does not tell them, but without them the recording makes no sense. */
	struct clv_map *vanished;
	const uint8_t *vanishes; /* with `vanished`: by event, whether the segment that it made is given back later */
	const struct clv_torch_settings *settings;
	uint64_t peak_reserved; /* by the recorded segment events */
	bool limit_known;

	uint32_t first, end; /* the step's events; at `end` is the request, a free_requested, or nothing */

	/* the try underway */
	uint32_t cursor;
	bool failed, may_refuse;
	uint64_t refusals;
	struct clv_step_freed *freed; /* to be undone */
	uint32_t freed_count, freed_room;

	/* the try that came furthest, if none explained the step: which event it could not explain, and why */
	uint32_t furthest;
	bool furthest_set, broken;
	bool wrong_segment, wrong_addr, wrong_oom;
	uint64_t wrong_at; /* the address that the model took or gave back; 0: none */
	char text[256];
};

#define CLV_STEP_ANY_POOL (CLV_MAP_NONE - 1)

void clv_step_init(struct clv_step *s);
void clv_step_done(struct clv_step *s);

/* The functions that the model reaches device memory through while a try is underway. */
struct clv_torch_source clv_step_source(struct clv_step *s);

/* The event at `end` is an ALLOC or an OOM: true if the step is explained and done. */
bool clv_step_request(struct clv_step *s);

/* The events before a free or the end: true if emptied caches explain them all. s->first is moved behind what is done. */
bool clv_step_quiet(struct clv_step *s);

void clv_step_complete(struct clv_step *s, uint32_t id); /* of a FREE_COMPLETED event */
bool clv_step_ignored(const struct clv_event_record *e); /* an event that is nothing to the allocator */
uint32_t clv_step_pool(const struct clv_step *s);        /* of the ALLOC at `end` */
struct clv_torch_request clv_step_asked(const struct clv_step *s, uint32_t pool); /* by the event at `end` */

#endif
