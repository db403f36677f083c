/* SPDX-License-Identifier: MIT
 *
 * backend: how an engine's kernels want the weights of routed experts, and the buffers of a layer before and after its
 * conversion. Owns one constant table, a row a backend; a plan points to the model and the row; no lock.
 *
 * Words are shard.h's: E experts of a rank, N of a rank (padded), K, S = 2 matrices in w13 if gated, else 1. Sources are
 * what the loader fills, from create_weights(); destinations what the kernels read. `source` of a row says which file a
 * rule is from, in vLLM where no other project is named.
 *
 * Left out: destination scalars and the input scales of FP8, a few bytes an expert; zero points that GPTQ has even if
 * symmetric; kernels' workspaces and index tables; the larger hidden sizes that DeepEP and NIXL ask for.
 */
#ifndef CLV_BACKEND_H
#define CLV_BACKEND_H

#include "shard.h"

/* PyTorch's allocator rounds to this (c10/cuda/CUDACachingAllocator, kMinBlockSize), so kernels never saw less. */
#define CLV_BACKEND_ALIGNMENT 512
#define CLV_BACKEND_BUFFERS 16

/* Who makes N and K multiples of the alignments. */
enum clv_backend_pads {
	CLV_PADS_NOBODY,
	CLV_PADS_CREATE,   /* the backend's quantization method, before the sources are allocated */
	CLV_PADS_POST_LOAD /* the conversion: sources have the raw size */
};

/* Rows of w13. */
enum clv_backend_order {
	CLV_ORDER_NO_RULE,
	CLV_ORDER_LOADED,  /* as the loader wrote them: [gate; up], or in turn where the checkpoint has them so */
	CLV_ORDER_UP_GATE, /* [up; gate] */
	CLV_ORDER_IN_TURN, /* up 0, gate 0, up 1, gate 1, ... */
	CLV_ORDER_TURN_64  /* 64 rows of up, 64 of gate, ... */
};

enum clv_backend_bias {
	CLV_BIAS_NO_RULE,
	CLV_BIAS_SAME, /* stays where it is */
	CLV_BIAS_NEW,  /* of the same dtype, in another order */
	CLV_BIAS_F32
};

struct clv_backend_dtype {
	const char *name; /* as PyTorch has it */
	uint32_t bytes;
};

enum clv_backend_kind {
	CLV_BUFFER_WEIGHT,
	CLV_BUFFER_SCALE,
	CLV_BUFFER_ZERO, /* zero points */
	CLV_BUFFER_BIAS,
	CLV_BUFFER_INDEX, /* the order of inputs (g_idx) */
	CLV_BUFFER_SCALAR, /* one or two values an expert */
	CLV_BUFFER_KINDS
};

struct clv_backend_buffer {
	char name[40];
	enum clv_backend_kind kind;
	bool w2; /* else w13 */
	struct clv_backend_dtype dtype;
	uint32_t dims;
	uint64_t shape[4], stride[4]; /* in elements */
	uint64_t bytes;
	uint64_t shard_bytes; /* of these elements in shard.h's account, which knows no layout; 0: not in it */
	/* Destinations with a part of shard.h's account, weights, scales, zero points and biases: bytes = valid_bytes + what
	 * is padding of the shard + layout_bytes. */
	uint64_t valid_bytes;  /* of what the checkpoint fills on this rank */
	uint64_t layout_bytes; /* that the layout adds where it rounds up; zeros */
	uint32_t alignment;   /* of its address */
	bool zeroed;          /* must be zeros before it is filled: parts of it are padding that nothing writes */
	bool same;            /* destinations: the source's own memory */
};

/* A matrix as a layout gets it: padded, of all experts of the rank. */
struct clv_backend_matrix {
	const struct clv_model *model;
	enum clv_model_format format;
	uint64_t experts, rows, cols; /* w13: S x N, K; w2: K, N */
	uint32_t bits;                /* of a weight */
	struct clv_backend_dtype weight_dtype, scale_dtype; /* of the source */
	uint64_t scale_rows, scale_cols;                    /* 0: it has no scales, or only a scalar */
};

/* What a rule may change for a model. */
struct clv_backend_sizes {
	uint32_t align_n, align_k; /* rounded up to these */
	uint32_t must_n, must_k;   /* not padded: refused unless a multiple of these */
};

struct clv_backend;

/* Sets dtype, shape and bytes, `zeroed` and `layout_bytes` if it rounds up; dims 0: no such buffer. */
typedef void clv_backend_layout(const struct clv_backend_matrix *matrix, struct clv_backend_buffer *out);
/* What a row cannot say: refuses a model, or corrects its sizes. */
typedef bool clv_backend_rule(const struct clv_backend *backend, const struct clv_model *model,
			      struct clv_backend_sizes *sizes, struct clv_error *err);

struct clv_backend_steps;
/* What a conversion goes through on the way (backend_steps.h). False: no figures are known for this layer. */
typedef bool clv_backend_way(struct clv_backend_steps *steps);

struct clv_backend {
	const char *name;        /* for the command */
	const char *engine;      /* in the engine's own words */
	const char *source;      /* where its rules are from */
	uint32_t formats;        /* of checkpoints: 1 << enum clv_model_format */
	uint32_t align_n[2];     /* of not gated, and of gated experts; 0: none */
	uint32_t align_k;        /* 0: none */
	uint32_t must_n[2];      /* what a size must be a multiple of, since it is not padded; 0: any */
	uint32_t must_k;         /* the same */
	const char *must_why;    /* the reason of these */
	enum clv_backend_pads pads;
	enum clv_backend_order order, interleaved_order; /* the second: if the checkpoint has gate and up in turn */
	uint32_t group;          /* weights of a row that share a scale; 0: none, or as the checkpoint has it */
	const char *scale_dtype; /* of the destination, for lists; "-": none */
	clv_backend_layout *weights, *scales; /* `weights` NULL: no rule is known, only the sizes */
	clv_backend_way *way;    /* NULL: no figures are known */
	clv_backend_rule *rule;  /* or NULL */
	const char *rule_text;   /* what it says, for lists */
	enum clv_backend_bias bias;
	bool weights_same, scales_same; /* they stay where they are */
	bool gated_only;
	bool global_scales;      /* the scalars of the inputs are of all experts, not only of the rank's */
};

/* Whether a destination has valid bytes and padding: scalars and the order of inputs have not. */
static inline bool clv_backend_is_measured(const struct clv_backend_buffer *b)
{
	return b->kind <= CLV_BUFFER_BIAS;
}

struct clv_backend_layer {
	const struct clv_backend *backend;
	uint32_t set; /* CLV_SET_QUANT or CLV_SET_PLAIN */
	struct clv_shard source_shard, destination_shard;
	struct clv_shard_rank rank;
	enum clv_backend_order order;
	struct clv_backend_buffer sources[CLV_BACKEND_BUFFERS], destinations[CLV_BACKEND_BUFFERS];
	uint32_t source_count, destination_count;
	uint64_t source_bytes, destination_bytes;
	uint64_t same_bytes; /* in both sums, but there only once */
	uint64_t share;      /* of the intermediate size that this rank reads; raw of the shard is the mean of all */
	/* Of one layer's destinations: what the checkpoint fills, and what is padding; of that, the layouts'. */
	uint64_t valid_bytes, padding_bytes, layout_bytes;
};

/* The i-th backend, in the order of lists; NULL: there are no more. */
const struct clv_backend *clv_backend_at(size_t i);
/* False with `err`, which names those there are. */
const struct clv_backend *clv_backend_find(const char *name, struct clv_error *err);

const char *clv_backend_pads_name(enum clv_backend_pads pads);
const char *clv_backend_order_name(enum clv_backend_order order, bool gated, bool interleaved);

/* How the layers of a kind are divided for a backend: the sources, and the destinations. Of `parallel` the alignments and
 * `zeroed` are not read. False with `err` if model and backend do not go together or no rule is known. */
bool clv_backend_shards(const struct clv_backend *backend, const struct clv_model *model,
			const struct clv_shard_config *parallel, uint32_t set, struct clv_shard *source,
			struct clv_shard *destination, struct clv_error *err);

/* The buffers of one layer on a rank (of the world; outside of it is an error). */
bool clv_backend_plan(struct clv_backend_layer *layer, const struct clv_backend *backend, const struct clv_model *model,
		      const struct clv_shard_config *parallel, uint32_t set, uint32_t rank, struct clv_error *err);

#endif
