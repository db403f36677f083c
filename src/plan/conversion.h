/* SPDX-License-Identifier: MIT
 *
 * conversion: a rank's experts of one layer are turned from what was loaded into what the kernels want. Which buffers live
 * when, under each strategy, and where they lie if it is to need the least: the schedule is packed (cleave_pack), and the
 * result is what is to be reserved. A plan owns its arrays; one thread.
 *
 * Times are steps of the schedule. Sources stay until the whole layer is converted, under every strategy but in-place, where
 * they become the destinations (vLLM, model_executor/utils.py, replace_parameter()). The order of an expert's tensors, and
 * that scales are gathered before they are interleaved, are vLLM's (NVFP4 for TRT-LLM, before and after vllm#55407).
 */
#ifndef CLV_CONVERSION_H
#define CLV_CONVERSION_H

#include <cleave/plan.h>

#include "../base/error.h"

#define CLV_CONVERSION_TENSORS 8

enum clv_strategy {
	CLV_STRATEGY_LISTS,        /* each expert into a tensor of its own, then all of a kind stacked into one */
	CLV_STRATEGY_PREALLOCATED, /* each expert into its place in a destination that is made first */
	CLV_STRATEGY_PING_PONG,    /* the same, but the destination is a spare layer: the sources are the next one's spare */
	CLV_STRATEGY_IN_PLACE,     /* each expert into scratch, and back over its source */
	CLV_STRATEGIES
};

const char *clv_strategy_name(enum clv_strategy strategy);

struct clv_conversion_tensor {
	const char *name;
	uint64_t source, destination; /* bytes of one expert; > 0 */
	uint64_t gathered;            /* bytes of a copy that an expert's conversion goes through; 0: none */
};

struct clv_conversion {
	uint32_t experts; /* of the rank; > 0 */
	const struct clv_conversion_tensor *tensors;
	uint32_t tensor_count;
	uint64_t scratch;   /* bytes that the whole layer needs before its experts are converted (rows reordered in place); 0: none */
	uint64_t alignment; /* of addresses; sizes are rounded up to it */
};

enum clv_conversion_role {
	CLV_ROLE_SOURCE,
	CLV_ROLE_DESTINATION,
	CLV_ROLE_SCRATCH,
	CLV_ROLE_GATHERED,  /* an expert's copy on the way */
	CLV_ROLE_CONVERTED, /* an expert's result, before it is where it will stay */
};

struct clv_conversion_buffer {
	enum clv_conversion_role role;
	uint32_t tensor; /* not of scratch */
	uint32_t expert; /* of gathered and converted ones */
};

struct clv_conversion_plan {
	struct clv_conversion_buffer *buffers; /* what each is */
	cleave_pack_buffer *lives;
	uint64_t *offsets;
	size_t count;
	uint64_t sources;          /* bytes that the sources have, which are there in any case */
	cleave_pack_result packed; /* height: what must be reserved, with the sources */
};

/* False with `err` if the conversion makes no sense (sizes, counts, in-place with a destination larger than its source), or
 * without a text if host memory is out. Answers in less than 50 ms for 1,000 experts with four tensors. */
bool clv_conversion_plan(const struct clv_conversion *conversion, enum clv_strategy strategy,
			 struct clv_conversion_plan *plan, struct clv_error *err);
void clv_conversion_plan_free(struct clv_conversion_plan *plan);

#endif
