/* SPDX-License-Identifier: MIT
 *
 * conversion: a rank's experts of one layer are turned from what was loaded into what the kernels want. Which buffers live
 * when, under each strategy, and where they lie if it is to need the least: the schedule is packed (cleave_pack), and the
 * result is what is to be reserved. A plan owns its arrays; one thread.
 *
 * Times are steps of the schedule. Sources stay until the whole layer is converted, under every strategy but in-place, where
 * they become the destinations (vLLM, model_executor/utils.py, replace_parameter()). The order of an expert's tensors, and
 * that scales are gathered before they are interleaved, are vLLM's (NVFP4 for TRT-LLM, before and after vllm#55407, and in
 * place as in vllm#54699).
 *
 * A layer in steps:
 * 1. Sources are there. Under ping-pong destinations are, too.
 * 2. Padding copies all tensors, perhaps twice; the last copy is what is converted, and goes with the sources.
 * 3. Rows change places in chunks. A chunk's scratch goes when the next one is there (a variable that is bound again).
 * 4. Preallocated: destinations are made.
 * 5. Expert by expert, each tensor in turn; but a tensor that needs something whole (an upcast of all experts, ...) has a
 *    loop of its own, after the others. What serves all experts is made before a loop and goes after it: copies that are
 *    reused, but for lists, and in place the one expert's scratch of a tensor that needs no copies. Pieces of lists are
 *    stacked when their loop is over, each tensor in turn: its destination is made, then its pieces go.
 * 6. The sources go, or last as the results or the next layer's spare. Destinations live on.
 */
#ifndef CLV_CONVERSION_H
#define CLV_CONVERSION_H

#include <cleave/plan.h>

#include "../base/error.h"

#define CLV_CONVERSION_TENSORS 16
#define CLV_CONVERSION_PADS 2
#define CLV_CONVERSION_COPIES 2
#define CLV_CONVERSION_WHOLE 3
#define CLV_CONVERSION_WHOLE_COUNT 16
#define CLV_CONVERSION_ALL UINT32_MAX /* in place of an expert's number */

enum clv_strategy {
	CLV_STRATEGY_LISTS,        /* each expert into a tensor of its own, then all of a kind stacked into one */
	CLV_STRATEGY_PREALLOCATED, /* each expert into its place in a destination that is made first */
	CLV_STRATEGY_PING_PONG,    /* the same, into a spare layer; the sources are the next one's spare */
	CLV_STRATEGY_IN_PLACE,     /* each expert into scratch, and back over its source */
	CLV_STRATEGIES
};

const char *clv_strategy_name(enum clv_strategy strategy);
/* False with `err`, which names those there are. */
bool clv_strategy_find(const char *name, enum clv_strategy *strategy, struct clv_error *err);

/* Bytes are of one expert, unless they are said to be of all. The first 0 ends each array. */
struct clv_conversion_tensor {
	const char *name;
	uint64_t source, destination;             /* one of them may be 0: it only goes, or is only made */
	uint64_t padded[CLV_CONVERSION_PADS];     /* copies that padding makes of all experts, each of the one before */
	uint64_t gathered[CLV_CONVERSION_COPIES]; /* copies that an expert's conversion goes through */
	bool reused;                              /* they are made once for all experts, unless lists are made */
	struct {
		uint64_t bytes; /* of all experts */
		uint32_t count;
	} whole[CLV_CONVERSION_WHOLE]; /* there while the tensor's experts are converted */
};

/* Rows of w13 change places, a chunk of them in all experts at a time: first its weights, then its scales. */
struct clv_conversion_reorder {
	uint32_t chunks;    /* 0: they stay where they are */
	uint32_t tensor[2]; /* the weights, the scales */
	uint64_t bytes[2];  /* of a chunk */
	uint64_t last[2];   /* of the last one */
};

struct clv_conversion {
	uint32_t experts; /* of the rank; > 0 */
	struct clv_conversion_tensor tensors[CLV_CONVERSION_TENSORS];
	uint32_t tensor_count;
	struct clv_conversion_reorder reorder;
	uint64_t alignment; /* of addresses; sizes are rounded up to it */
};

enum clv_conversion_role {
	CLV_ROLE_SOURCE,
	CLV_ROLE_DESTINATION,
	CLV_ROLE_PADDED,    /* a copy of all experts, padded */
	CLV_ROLE_REORDERED, /* a chunk of rows */
	CLV_ROLE_WHOLE,     /* of all experts, on the way */
	CLV_ROLE_GATHERED,  /* an expert's copy on the way */
	CLV_ROLE_CONVERTED, /* an expert's result, before it is where it will stay */
	CLV_CONVERSION_ROLES
};

const char *clv_conversion_role_name(enum clv_conversion_role role);

struct clv_conversion_buffer {
	enum clv_conversion_role role;
	uint32_t tensor;
	uint32_t expert; /* of gathered and converted ones, or CLV_CONVERSION_ALL */
	uint64_t bytes;  /* as asked for: not rounded up */
};

/* Sources are the first buffers and fill [0, sources): first those that last, as results (in-place) or as the next layer's
 * spare (ping-pong), then those that go when the layer is done. The rest is above them, destinations at the upper end, the
 * one that is made first highest: so that layer after layer can be packed alike (layers.h). Each time is that of one birth or
 * one end; the first is 0, and none is left out. */
struct clv_conversion_plan {
	struct clv_conversion_buffer *buffers; /* what each is */
	cleave_pack_buffer *lives;
	uint64_t *offsets;
	size_t count;
	uint64_t sources;          /* bytes that the sources have, which are there in any case */
	uint64_t lasting;          /* of these, of those that last */
	uint64_t destinations;     /* bytes that these have; 0 in place */
	cleave_pack_result packed; /* height: what must be reserved, with the sources */
};

/* Whether a source lasts. */
bool clv_conversion_lasts(const struct clv_conversion_tensor *tensor, enum clv_strategy strategy);

/* Whether a strategy can be had. In place an expert's result must be as large as its source; under ping-pong it must fit into
 * it. False with `err`. */
bool clv_conversion_legal(const struct clv_conversion *conversion, enum clv_strategy strategy, struct clv_error *err);

/* False with `err` if the conversion makes no sense (sizes, counts, a strategy that is not legal), or without a text if host
 * memory is out. Answers in less than 20 ms for 1,000 experts with four tensors. */
bool clv_conversion_plan(const struct clv_conversion *conversion, enum clv_strategy strategy,
			 struct clv_conversion_plan *plan, struct clv_error *err);
void clv_conversion_plan_free(struct clv_conversion_plan *plan);

/* The 2 x count steps of the schedule in their order: 2 x buffer, and 1 more for a birth. To be freed; NULL: host memory is
 * out. */
size_t *clv_conversion_steps(const struct clv_conversion_plan *plan);

#endif
