/* SPDX-License-Identifier: MIT
 *
 * model: what a planner must know of a mixture-of-experts model, read from its config.json. Owns its arrays and strings;
 * immutable once read, no lock.
 *
 * Reading is strict: a field that decides a size is there, whole and plausible, or the file is refused with the names that
 * were looked for. Where every engine fills a gap in the same way, that is done, and said in `notes`. Texts are read as Python's
 * json does: with NaN and Infinity, with a byte order mark, and of a key that is there twice the last one.
 *
 * Sources of the rules: the families of fields are those of vLLM, benchmarks/kernels/benchmark_moe.py, and of Hugging
 * Face's configuration classes; the keys of quantization those of vLLM, model_executor/layers/quantization/modelopt.py,
 * fp8.py, mxfp4.py and compressed_tensors/; gpt-oss's are in vllm/model_executor/models/gpt_oss.py, Kimi-K3's in
 * vllm/models/kimi_k3/nvidia/model.py.
 */
#ifndef CLV_MODEL_H
#define CLV_MODEL_H

#include "../base/base.h"
#include "../base/error.h"

/* Limits. Beyond them a number is a slip or an attack: they are 8 times and more what the largest published models have,
 * and such that the bytes of a model's experts fit in 63 bits (2^10 layers x 2^14 experts x 3 matrices x 2^17 x 2^18 x 4 B). */
#define CLV_MODEL_LAYERS_MAX 1024
#define CLV_MODEL_EXPERTS_MAX 16384
#define CLV_MODEL_HIDDEN_MAX 131072
#define CLV_MODEL_INTERMEDIATE_MAX 262144
#define CLV_MODEL_FILE_MAX (64 * CLV_MIB) /* lists of modules that are not quantized reach some MiB */

enum clv_model_dtype {
	CLV_DTYPE_BF16,
	CLV_DTYPE_F16,
	CLV_DTYPE_F32,
	CLV_DTYPE_F8_E4M3,
	CLV_DTYPE_F8_E8M0,
	CLV_DTYPE_F4_E2M1, /* two in a byte */
	CLV_DTYPE_INT4,    /* eight in an int32 */
	CLV_DTYPE_INT8,    /* four in an int32 */
	CLV_DTYPES
};

/* How the routed experts' weights lie in the checkpoint. Scales: one for so many weights of a row (a row is what one output
 * is computed from), for a block, a row, or a tensor. */
enum clv_model_format {
	CLV_FORMAT_PLAIN,       /* in the model's dtype, no scales */
	CLV_FORMAT_NVFP4,       /* e2m1; groups of 16, e4m3 scales; and scalars of f32 */
	CLV_FORMAT_MXFP4,       /* e2m1; groups of 32, e8m0 scales */
	CLV_FORMAT_FP8_BLOCK,   /* e4m3; blocks, f32 scales */
	CLV_FORMAT_FP8_CHANNEL, /* e4m3; rows, f32 scales */
	CLV_FORMAT_FP8_TENSOR,  /* e4m3; a scalar of f32 for a matrix */
	CLV_FORMAT_INT, /* 4 or 8 bits; groups or rows, scales in the model's dtype (GPTQ, AWQ, pack-quantized) */
	CLV_FORMATS
};

struct clv_model_quant {
	enum clv_model_format format;
	char method[32]; /* quant_method as the file has it; empty: none */
	char kind[48];   /* its algorithm or format as the file has it, such as NVFP4; may be empty */
	enum clv_model_dtype weight_dtype, scale_dtype;
	uint32_t group;                  /* weights of a row that share a scale; 0: no groups */
	uint32_t block_rows, block_cols; /* FP8_BLOCK, in weights: outputs, inputs; else 0 */
	bool zero_points;                /* INT: zero points as well as scales, as many, of the weights' dtype */
	bool act_order;                  /* INT: inputs are permuted, so that groups are no runs of columns */
	bool scale_ue8m0;                /* FP8_BLOCK: f32 scales that are powers of two */
};

/* Of a layer, in `layer`. */
#define CLV_LAYER_EXPERTS 1 /* it has routed experts */
#define CLV_LAYER_PLAIN 2   /* these are left out of the quantization: in the model's dtype */

struct clv_model {
	char *path;    /* of config.json */
	char name[64]; /* the architecture, else model_type */
	char type[64]; /* model_type */
	uint32_t layers;
	uint8_t *layer; /* [layers], flags */
	uint32_t moe_layers;
	uint32_t plain_layers; /* of them, those with CLV_LAYER_PLAIN */
	uint32_t mtp_layers;   /* multi-token prediction: not among `layers`, and only loaded when asked for */
	uint32_t hidden;
	uint32_t routed_hidden; /* what routed experts read and write; less than `hidden` in Kimi-K3 (K of a weight) */
	uint32_t intermediate;  /* of one routed expert (N of a weight, before sharding and padding) */
	uint32_t experts, top_k;
	uint32_t expert_groups; /* that routing chooses among, 1: none */
	uint32_t shared_experts;
	uint32_t shared_intermediate; /* of all shared experts of a layer together; they read and write `hidden` */
	bool gated;                   /* an expert is three matrices (gate, up, down), else two (up, down) */
	bool bias;                    /* each has a bias, in the model's dtype */
	bool interleaved;             /* the checkpoint has gate and up in one tensor, their rows in turn */
	bool split_by_groups;         /* tensor parallelism cuts at whole groups, so ranks differ (clv_shard) */
	uint32_t
		intermediate_floor; /* the model's code raises a rank's share to this; 0: it has no such rule (clv_shard) */
	enum clv_model_dtype dtype;
	struct clv_model_quant quant;
	char **notes; /* sentences: what was assumed, and on what ground */
	size_t note_count;
};

/* Reads a config.json, or the folder that it is in; hf_quant_config.json is read if it lies beside it. False with `err`,
 * which names the file: it cannot be read, is no JSON, has no experts, or lacks or misstates what sizes depend on. */
bool clv_model_read(struct clv_model *m, const char *path, struct clv_error *err);

/* The same from texts; `path` and `quant_path` are for messages, `quant` may be NULL: there is no such file. */
bool clv_model_parse(struct clv_model *m, const char *path, const char *config, size_t config_len,
		     const char *quant_path, const char *quant, size_t quant_len, struct clv_error *err);

/* Also of one that was not read, if it is all zeros. */
void clv_model_free(struct clv_model *m);

unsigned clv_dtype_bits(enum clv_model_dtype dtype);
const char *clv_dtype_name(enum clv_model_dtype dtype);
const char *clv_format_name(enum clv_model_format format);

/* Matrices of which w13 consists: 2 if gated, else 1 (w3 alone is then called w13). */
static inline uint32_t clv_model_w13_parts(const struct clv_model *m)
{
	return m->gated ? 2 : 1;
}

#endif
