/* SPDX-License-Identifier: MIT
 *
 * coverage: the proof that a shard loses, doubles and invents nothing. Owns nothing, no lock.
 *
 * What is proved, of every buffer, by intervals and not by elements:
 * 1. All ranks together hold each element of the checkpoint's tensors exactly once; of tensors that are not divided (scales
 *    for whole rows of w2, its bias) once in each rank that shares the experts.
 * 2. What a rank writes is the valid region: inside of its buffer, in each part from its beginning, and scales for just the
 *    weights that are written beside them.
 * 3. What is not written are the tails; these and the valid region fill the buffer and do not overlap. So they are zeros if
 *    the buffer was, which `zeroed` of the configuration promises; a tail in a buffer that was not is a failure.
 *
 * Layers for multi-token prediction, and dense ones, hold no experts that are divided here.
 */
#ifndef CLV_COVERAGE_H
#define CLV_COVERAGE_H

#include "shard.h"

/* Elements are of the buffer's dtype, as in the checkpoint; bytes count two values of 4 bits as one. */
struct clv_coverage_figures {
	const char *name;  /* of the buffer; NULL in the sum of all */
	uint32_t set;      /* CLV_SET_QUANT or CLV_SET_PLAIN */
	uint32_t copies;   /* how often each element is held; 0 in the sum */
	uint64_t elements; /* of the checkpoint */
	uint64_t bytes;
	uint64_t written;      /* elements, by all ranks together: elements x copies */
	uint64_t buffer_bytes; /* of all ranks together */
	uint64_t tails;        /* stretches of padding: at the end of a part's rows, at the end of its columns */
	uint64_t tail_bytes;
};

struct clv_coverage {
	uint32_t ranks;
	struct clv_coverage_figures sum;
	struct clv_coverage_figures buffers[CLV_SETS * CLV_ROLES];
	uint32_t count;
};

/* False with `err` if the proof fails, which says where; also when host memory is out. */
bool clv_coverage_prove(const struct clv_shard *shard, struct clv_coverage *out, struct clv_error *err);

/* Layers first <= l < end, of each `expert_count` experts from the first by steps, of each elements first <= e < first +
 * count along the axis that is divided. */
struct clv_coverage_region {
	uint32_t layer_first, layer_end;
	uint32_t expert_first, expert_step, expert_count;
	uint64_t first, count;
};

/* The first of the three, of regions that it sorts; empty ones are allowed. Regions must be nested: ranks with the same
 * layers divide the experts, ranks with the same experts the axis. */
bool clv_coverage_tiles(struct clv_coverage_region *regions, size_t count, uint32_t layers, uint32_t experts,
			uint64_t length, uint32_t copies, const char *name, struct clv_error *err);

#endif
