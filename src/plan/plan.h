/* SPDX-License-Identifier: MIT
 *
 * plan: what `cleave plan` answers: the ranks that differ, and of each its buffers, its timeline and what padding costs it.
 * Owns what it is made of, but for the model and the backend, which must outlive it; immutable once made, no lock.
 *
 * The backend is for the layers that are quantized, or if there are none for all; those that a quantization leaves out stay as
 * they were loaded.
 */
#ifndef CLV_PLAN_H
#define CLV_PLAN_H

#include "coverage.h"
#include "timeline.h"

#define CLV_PLAN_ALL_RANKS UINT32_MAX

struct clv_plan_config {
	struct clv_timeline_config timeline; /* its `rank` may be CLV_PLAN_ALL_RANKS */
	bool strategy_given; /* else the plan is for the one with the least peak, and `timeline.strategy` is not read */
	bool coverage;       /* the proof of coverage.h is wanted */
};

enum clv_plan_owner { CLV_OWNER_NOBODY, CLV_OWNER_BACKEND, CLV_OWNER_MODEL };

/* Of the layers that the backend is for, after the conversion: what backend.h measures of one, times their number. */
struct clv_plan_padding {
	enum clv_plan_owner owner; /* of N; NOBODY: neither has a rule that pads */
	uint64_t passed;           /* N of all ranks, as the model passes it to the backend */
	uint64_t valid_bytes, padding_bytes;
	uint64_t layout_bytes; /* of the padding: where the backend's layouts round up, whoever pads N */
	/* If the other of model and backend owned it; 0: it cannot. */
	uint64_t other_padded, other_weights_bytes;
};

/* A rank, and all that hold the same. */
struct clv_plan_rank {
	uint32_t rank, count;           /* the first of them, and how many */
	struct clv_backend_layer layer; /* of the kind that the backend is for */
	struct clv_timeline timeline;
	struct clv_plan_padding padding;
	/* Of one layer after its conversion. */
	uint64_t layer_bytes;      /* weights and the scales of their groups or blocks */
	uint64_t scalar_bytes;     /* one or two values an expert */
	uint64_t other_bytes;      /* biases, zero points, the order of inputs */
	uint64_t kept_layer_bytes; /* of a layer that the backend is not for */
	uint64_t weights_bytes;    /* weights and scales of all the rank's layers with experts */
};

/* A buffer of the plan in all layers of all ranks: bytes = valid_bytes + tail_bytes + layout_bytes. */
struct clv_plan_sum {
	uint64_t bytes;
	uint64_t valid_bytes; /* what the checkpoint fills */
	uint64_t tail_bytes;  /* what the shard pads */
	uint64_t layout_bytes; /* what the layout adds where it rounds up */
};

/* A kind of layers, as loaded and as converted. Of the latter also what layouts add to the shard: these bytes are in the plan's
 * own buffers, and it is proved that they are zeroed, and that what the shard fills is in them; where a layout puts an element
 * is not. */
struct clv_plan_proof {
	uint32_t set;
	bool converted;
	struct clv_coverage coverage; /* of it, the buffers of `set` */
	struct clv_plan_sum sums[CLV_SETS * CLV_ROLES]; /* if converted, by buffer of the coverage */
};

struct clv_plan {
	struct clv_plan_config config;
	uint32_t set;   /* what the backend is for */
	uint32_t world; /* ranks */
	struct clv_plan_rank *ranks;
	uint32_t rank_count;
	uint32_t worst; /* of them, the one that needs the most */
	uint32_t *like; /* [world], with all ranks: which of `ranks` each is like; else NULL */
	bool fits;      /* each of them */
	struct clv_plan_proof proofs[2 * CLV_SETS];
	uint32_t proof_count;
	struct clv_error disproved; /* the proof failed, and this is where; else empty */
};

/* False with `err` as clv_timeline_make(). */
bool clv_plan_make(struct clv_plan *plan, const struct clv_plan_config *config, struct clv_error *err);
void clv_plan_free(struct clv_plan *plan);

static inline const struct clv_plan_rank *clv_plan_worst(const struct clv_plan *plan)
{
	return &plan->ranks[plan->worst];
}

/* Layers of a rank that stay as they were loaded. */
static inline uint32_t clv_plan_kept_layers(const struct clv_plan *plan, const struct clv_plan_rank *rank)
{
	return plan->set == CLV_SET_QUANT ? rank->layer.rank.moe_layers[CLV_SET_PLAIN] : 0;
}

const char *clv_plan_owner_name(enum clv_plan_owner owner);

#endif
