/* SPDX-License-Identifier: MIT
 *
 * shard: which part of a model's routed experts each rank holds, and in buffers of what size. Owns nothing: it points to
 * the model, which must outlive it; immutable once made, no lock.
 *
 * Words. E, N, K: a rank's experts, its intermediate size, the hidden size of routed experts. An expert is up to three
 * matrices, gate (w1) and up (w3) of N x K and down (w2) of K x N; rows are outputs. An engine holds them in two buffers,
 * w13 (E, parts x N, K) and w2 (E, K, N), and their scales beside them. Sizes are logical (of the checkpoint), raw (a
 * rank's share) and padded (of the buffer). What the checkpoint fills is the valid region; the rest are tails. In w13 the
 * second part begins at the padded N, not at the raw one.
 *
 * Where rules are from (vLLM unless named): ranks, distributed/parallel_state.py, initialize_model_parallel(); layers of a
 * pipeline stage, distributed/utils.py, get_pp_indices(); tensor and expert parallelism, model_executor/layers/fused_moe/
 * config.py, FusedMoEParallelConfig.make(); experts of a rank, fused_moe/expert_map_manager.py, determine_expert_map();
 * slices, fused_moe/routed_experts.py, _load_w13() and _load_w2(); gpt-oss's, models/gpt_oss.py, _load_weights_mxfp4();
 * padding in the model, models/kimi_k3/nvidia/model.py with the count of shards of vllm#50928 and not under expert
 * parallelism (vllm#51131). Where vLLM would load something wrong or stop, the shard is refused.
 */
#ifndef CLV_SHARD_H
#define CLV_SHARD_H

#include "model.h"

#define CLV_SHARD_WORLD_MAX 65536 /* more ranks is a slip: no model has experts enough */
#define CLV_SHARD_ALIGN_MAX 4096  /* the largest alignment of a backend is 256 */

enum clv_shard_padding {
	CLV_PADDING_BACKEND, /* the model passes the logical size, the backend pads a rank's share */
	CLV_PADDING_MODEL    /* the model first raises what it passes to its floor x ranks (the old rule of Kimi-K3) */
};

enum clv_shard_placement {
	CLV_PLACEMENT_LINEAR,     /* a run of experts a rank, the first ranks one more if they do not divide */
	CLV_PLACEMENT_ROUND_ROBIN /* every so manieth; only for models with groups of experts */
};

struct clv_shard_config {
	uint32_t tp, dp, pcp, pp; /* tensor, data, prefill-context and pipeline parallel */
	bool expert_parallel;     /* experts are divided, not their intermediate size, over tp x dp x pcp ranks */
	enum clv_shard_padding padding;
	enum clv_shard_placement placement;
	/* The backend's: N and K are rounded up to multiples of these, 1 for none. */
	uint32_t align_intermediate, align_hidden;
	bool zeroed; /* the buffers are zeros before they are filled (torch.zeros, new_zeros, or zero_() by the model) */
};

/* One rank, no padding, zeroed. */
void clv_shard_config_init(struct clv_shard_config *config);

struct clv_shard_extent {
	uint64_t logical, raw, padded;
};

enum clv_shard_axis {
	CLV_SHARD_WHOLE, /* each rank that shares the experts has all of it */
	CLV_SHARD_ROWS,
	CLV_SHARD_COLS
};

enum clv_shard_role {
	CLV_ROLE_W13,
	CLV_ROLE_W13_SCALE,
	CLV_ROLE_W13_ZERO, /* zero points */
	CLV_ROLE_W13_BIAS,
	CLV_ROLE_W2,
	CLV_ROLE_W2_SCALE,
	CLV_ROLE_W2_ZERO,
	CLV_ROLE_W2_BIAS,
	CLV_ROLES
};

/* A buffer of shape (E, parts x rows, cols) as the loader fills it; a backend may have it in another shape or order. The
 * scalars of a quantization (a few bytes an expert) are left out. */
struct clv_shard_buffer {
	enum clv_shard_role role;
	const char *name; /* w13_weight, w13_weight_scale, ... */
	enum clv_model_dtype dtype;
	uint32_t parts;                     /* w13 of gated experts: 2, gate and up; else 1 */
	struct clv_shard_extent rows, cols; /* of one part, in elements; raw: the most of any rank */
	uint32_t row_unit, col_unit; /* rows and columns of the matrix that one element stands for; 0: all of them */
	enum clv_shard_axis split;
	uint32_t copies;       /* ranks that hold the same element: 1, or all that share the experts */
	uint64_t expert_bytes; /* of one expert, padded */
};

/* The buffers of one kind of layer. */
struct clv_shard_set {
	struct clv_shard_buffer buffers[CLV_ROLES];
	uint32_t count;
	uint32_t layers;       /* of the model that are of this kind */
	uint64_t expert_bytes; /* of one expert of one layer, padded */
};

enum { CLV_SET_QUANT, CLV_SET_PLAIN, CLV_SETS }; /* as the quantization says, and left out of it (CLV_LAYER_PLAIN) */

struct clv_shard {
	const struct clv_model *model;
	struct clv_shard_config config;
	uint32_t world; /* ranks */
	uint32_t moe_tp,
		moe_ep; /* ranks that share the intermediate size, and that share the experts: one of them is 1 */
	struct clv_shard_extent intermediate; /* raw = logical / moe_tp, in weights */
	struct clv_shard_extent hidden;       /* of routed experts; not divided */
	uint64_t passed_intermediate; /* what the model passes on, for all ranks; logical unless the model pads */
	struct clv_shard_set sets[CLV_SETS];
};

struct clv_shard_rank {
	uint32_t rank; /* of the world; ((dp x PP + pp) x PCP + pcp) x TP + tp */
	uint32_t dp_rank, pp_rank, pcp_rank, tp_rank;
	uint32_t moe_tp_rank, moe_ep_rank;
	uint32_t layer_first, layer_end; /* first <= layer < end */
	uint32_t moe_layers[CLV_SETS];   /* of these, by kind */
	uint32_t expert_first, expert_step, expert_count;
	uint64_t bytes;         /* of all buffers of all these layers */
	uint64_t set_bytes[CLV_SETS];       /* the same by kind */
	uint64_t set_valid_bytes[CLV_SETS]; /* of those, what the checkpoint fills */
	uint64_t valid_bytes;   /* the sum of these */
	uint64_t padding_bytes; /* the rest */
};

struct clv_shard_span {
	uint64_t first, count;
};

/* False with `err` if the model cannot be divided so: a size that does not divide, a group of weights with one scale that
 * would be cut, more stages than layers, no rule for the padding that is asked for, ... */
bool clv_shard_make(struct clv_shard *shard, const struct clv_model *model, const struct clv_shard_config *config,
		    struct clv_error *err);

/* `rank` < shard->world. */
void clv_shard_rank(const struct clv_shard *shard, uint32_t rank, struct clv_shard_rank *out);

/* The rows or columns of the checkpoint's tensor, in its elements, that a rank reads into a buffer, which begin at row (of
 * each part) or column 0 there; of CLV_SHARD_WHOLE all rows. May be empty (gpt-oss with many ranks). */
struct clv_shard_span clv_shard_slice(const struct clv_shard *shard, const struct clv_shard_buffer *buffer,
				      uint32_t moe_tp_rank);

/* Elements of a buffer of one expert that a slice fills. */
uint64_t clv_shard_valid(const struct clv_shard_buffer *buffer, struct clv_shard_span slice);

/* Elements of a buffer of one expert, padded. */
static inline uint64_t clv_shard_elements(const struct clv_shard_buffer *b)
{
	return b->parts * b->rows.padded * b->cols.padded;
}

#endif
