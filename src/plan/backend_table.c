/* SPDX-License-Identifier: MIT */
#include "backend.h"
#include "backend_layouts.h"
#include "backend_steps.h"

#include <inttypes.h>
#include <string.h>

/* The names of `source`, so that the table can be read. Paths are below vllm/model_executor/layers/. */
#define NVFP4_TRTLLM                                                                                                   \
	"quantization/utils/flashinfer_fp4_moe.py: align_fp4_moe_weights_for_fi(), "                                    \
	"align_trtllm_fp4_moe_hidden_dim_for_fi(); FlashInfer: _compute_swizzled_layout_sf_size()"
#define NVFP4_CUTLASS                                                                                                  \
	"quantization/utils/flashinfer_fp4_moe.py: prepare_nvfp4_moe_layer_for_fi_or_cutlass(), "                       \
	"quantization/utils/quant_utils.py: swizzle_blockscale()"
#define NVFP4_MARLIN "quantization/utils/marlin_utils_fp4.py: prepare_nvfp4_moe_layer_for_marlin()"
#define MXFP4_SIZES "fused_moe/oracle/mxfp4.py: mxfp4_round_up_hidden_size_and_intermediate_size()"
#define MXFP4_TRITON                                                                                                   \
	MXFP4_SIZES ", its else branch; Triton: triton_kernels/tensor_details/layout_details/hopper_value.py, "         \
		    "hopper_scale.py; sizes of the first as reported in vllm#34877, vllm#41268, TensorRT-LLM#16125"
#define MXFP4_DEEPGEMM MXFP4_SIZES "; DeepGEMM: the packed UE8M0 layout of scales"
#define FP8_MARLIN "quantization/utils/marlin_utils_fp8.py: prepare_fp8_moe_layer_for_marlin()"
#define FP8_FLASHINFER "fused_moe/oracle/fp8.py, quantization/utils/flashinfer_utils.py"
#define FP8_DEEPGEMM "fused_moe/oracle/fp8.py; DeepGEMM: transform_sf_into_required_layout()"
#define BF16_ORACLE "fused_moe/oracle/unquantized.py, quantization/utils/flashinfer_utils.py"
#define WNA16 "quantization/utils/marlin_utils.py: check_moe_marlin_supports_layer(), gptq_marlin.py, awq_marlin.py"

/* ---- rules that a row cannot say ---- */

/* K decides what N is rounded to. */
static bool nvfp4_marlin(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
			 struct clv_error *err)
{
	(void)b, (void)err;
	s->align_n = m->routed_hidden % 128 ? 128 : 64;
	return true;
}

/* Only gpt-oss goes there: its rows are in turn. */
static bool mxfp4_triton(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
			 struct clv_error *err)
{
	(void)s;
	return m->interleaved ||
	       clv_error_set(err,
			     "%s: %s is for checkpoints with gate and up in turn (gpt-oss), which %s has not; no rule "
			     "is known for others",
			     m->path, b->name, m->name);
}

/* Layouts for blocks of 128 x 128, and no others. */
static bool fp8_blocks(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
		       struct clv_error *err)
{
	const struct clv_model_quant *q = &m->quant;
	(void)s;
	return q->format != CLV_FORMAT_FP8_BLOCK || (q->block_rows == 128 && q->block_cols == 128) ||
	       clv_error_set(err,
			     "%s: blocks of %" PRIu32 " x %" PRIu32
			     ": for %s only a rule for blocks of 128 x 128 is known",
			     m->path, q->block_rows, q->block_cols, b->name);
}

static bool sixteen_bits(const struct clv_backend *b, const struct clv_model *m, struct clv_error *err)
{
	return m->dtype == CLV_DTYPE_BF16 || m->dtype == CLV_DTYPE_F16 ||
	       clv_error_set(err, "%s: %s computes in bfloat16 or float16, and the model's dtype is %s", m->path,
			     b->name, clv_dtype_name(m->dtype));
}

static bool fp8_marlin(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
		       struct clv_error *err)
{
	return sixteen_bits(b, m, err) && fp8_blocks(b, m, s, err);
}

static bool bf16_any(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
		     struct clv_error *err)
{
	(void)s;
	return sixteen_bits(b, m, err);
}

static bool bf16_only(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
		      struct clv_error *err)
{
	(void)s;
	return m->dtype == CLV_DTYPE_BF16 || clv_error_set(err, "%s: %s is for bfloat16, and the model's dtype is %s",
							   m->path, b->name, clv_dtype_name(m->dtype));
}

static uint32_t lcm(uint32_t a, uint32_t b)
{
	uint32_t x = a, y = b;
	while (y) {
		uint32_t rest = x % y;
		x = y;
		y = rest;
	}
	return a / x * b;
}

/* Marlin's for integers; the checkpoints of AWQ are packed in another way and have zero points. */
static bool int_marlin(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
		       struct clv_error *err)
{
	const struct clv_model_quant *q = &m->quant;
	uint32_t g = q->group;
	if (g != 0 && g != 32 && g != 64 && g != 128)
		return clv_error_set(err,
				     "%s: groups of %" PRIu32
				     ": %s takes groups of 32, 64 and 128, and whole rows (-1)",
				     m->path, g, b->name);
	if (q->act_order) /* whose groups are no runs, so that nothing can be put behind them */
		s->must_n = (uint32_t)clv_max_u64(64, g);
	else
		s->align_n = g ? lcm(64, g) : 64;
	return sixteen_bits(b, m, err);
}

static bool gptq_marlin(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
			struct clv_error *err)
{
	const struct clv_model_quant *q = &m->quant;
	if (!strncmp(q->method, "awq", 3))
		return clv_error_set(err, "%s: quant_method is %s, for which there is awq-marlin and not %s", m->path,
				     q->method, b->name);
	if (q->zero_points)
		return clv_error_set(err, "%s: zero points in %s: for %s only a rule without them is known", m->path,
				     q->method, b->name);
	return int_marlin(b, m, s, err);
}

static bool awq_marlin(const struct clv_backend *b, const struct clv_model *m, struct clv_backend_sizes *s,
		       struct clv_error *err)
{
	if (strncmp(m->quant.method, "awq", 3))
		return clv_error_set(err, "%s: quant_method is %s, for which there is gptq-marlin and not %s", m->path,
				     m->quant.method, b->name);
	return int_marlin(b, m, s, err);
}

/* ---- the table ---- */

#define IS(format) (1u << CLV_FORMAT_##format)

/* A name without an ending is the usual one of its kind: with bf16 activations, blocks of scales, on Hopper where
 * generations differ. */
static const struct clv_backend backends[] = {
	{.name = "nvfp4-trtllm",
	 .engine = "NvFp4MoeBackend.FLASHINFER_TRTLLM",
	 .source = NVFP4_TRTLLM,
	 .formats = IS(NVFP4),
	 .align_n = {128, 64}, /* S x N % 128 == 0, for the swizzle */
	 .align_k = 256,
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_IN_TURN, /* and then shuffled in blocks of 32 rows */
	 .group = 16,
	 .scale_dtype = "float8_e4m3fn",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_rows_128x4,
	 .way = clv_steps_nvfp4_trtllm,
	 .global_scales = true},
	{.name = "nvfp4-cutlass",
	 .engine = "NvFp4MoeBackend.FLASHINFER_CUTLASS",
	 .source = NVFP4_CUTLASS,
	 .formats = IS(NVFP4),
	 .align_n = {128, 1},
	 .must_n = {1, 64},
	 .must_why = "vLLM pads only experts without a gate, so that scales have 128 rows (NotImplementedError)",
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_UP_GATE,
	 .group = 16,
	 .scale_dtype = "float8_e4m3fn",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_swizzled_128x4,
	 .way = clv_steps_nvfp4_cutlass,
	 .global_scales = true},
	{.name = "nvfp4-vllm-cutlass",
	 .engine = "NvFp4MoeBackend.VLLM_CUTLASS",
	 .source = NVFP4_CUTLASS,
	 .formats = IS(NVFP4),
	 .align_n = {128, 1},
	 .must_n = {1, 64},
	 .must_why = "vLLM pads only experts without a gate, so that scales have 128 rows (NotImplementedError)",
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_LOADED,
	 .group = 16,
	 .scale_dtype = "float8_e4m3fn",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_swizzled_128x4,
	 .way = clv_steps_nvfp4_cutlass},
	{.name = "nvfp4-cutedsl-batched",
	 .engine = "NvFp4MoeBackend.FLASHINFER_CUTEDSL_BATCHED",
	 .source = NVFP4_CUTLASS,
	 .formats = IS(NVFP4),
	 .align_n = {128, 1},
	 .must_n = {1, 64},
	 .must_why = "vLLM pads only experts without a gate, so that scales have 128 rows (NotImplementedError)",
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_LOADED,
	 .group = 16,
	 .scale_dtype = "float8_e4m3fn",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_swizzled_128x4,
	 .way = clv_steps_nvfp4_cutlass,
	 .global_scales = true},
	{.name = "nvfp4-b12x",
	 .engine = "NvFp4MoeBackend.FLASHINFER_B12X",
	 .source = NVFP4_CUTLASS,
	 .formats = IS(NVFP4),
	 .align_n = {128, 1},
	 .must_n = {1, 64},
	 .must_why = "vLLM pads only experts without a gate, so that scales have 128 rows (NotImplementedError)",
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_UP_GATE,
	 .group = 16,
	 .scale_dtype = "float8_e4m3fn",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_swizzled_128x4,
	 .way = clv_steps_nvfp4_cutlass,
	 .global_scales = true},
	{.name = "nvfp4-cutedsl",
	 .engine = "NvFp4MoeBackend.FLASHINFER_CUTEDSL",
	 .source = NVFP4_CUTLASS,
	 .formats = IS(NVFP4),
	 .must_n = {1, 64},
	 .must_why = "rows of gate and up lie in turn in groups of 64",
	 .order = CLV_ORDER_TURN_64,
	 .group = 16,
	 .scale_dtype = "float8_e4m3fn",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_swizzled_128x4,
	 .gated_only = true,
	 .global_scales = true},
	{.name = "nvfp4-marlin",
	 .engine = "NvFp4MoeBackend.MARLIN",
	 .source = NVFP4_MARLIN,
	 .formats = IS(NVFP4),
	 .align_n = {64, 64}, /* or 128 */
	 .must_k = 64,
	 .must_why = "Marlin's tiles need it, and vLLM does not pad it",
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_LOADED,
	 .group = 16,
	 .scale_dtype = "float8_e4m3fn", /* bits in S0E5M3 */
	 .weights = clv_layout_marlin,
	 .scales = clv_layout_marlin_scales,
	 .way = clv_steps_fp4_marlin,
	 .rule = nvfp4_marlin,
	 .rule_text = "N to 128 if 128 does not divide K"},

	{.name = "mxfp4-marlin", /* on XPU K goes to 128: no row */
	 .engine = "Mxfp4MoeBackend.MARLIN",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {128, 128},
	 .align_k = 256,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_LOADED,
	 .interleaved_order = CLV_ORDER_LOADED,
	 .group = 32,
	 .scale_dtype = "float8_e8m0fnu",
	 .weights = clv_layout_marlin,
	 .scales = clv_layout_marlin_scales,
	 .way = clv_steps_fp4_marlin,
	 .bias = CLV_BIAS_NEW},
	{.name = "mxfp4-batched-marlin",
	 .engine = "Mxfp4MoeBackend.BATCHED_MARLIN",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {128, 128},
	 .align_k = 256,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_LOADED,
	 .interleaved_order = CLV_ORDER_LOADED,
	 .group = 32,
	 .scale_dtype = "float8_e8m0fnu",
	 .weights = clv_layout_marlin,
	 .scales = clv_layout_marlin_scales,
	 .way = clv_steps_fp4_marlin,
	 .bias = CLV_BIAS_NEW},
	{.name = "mxfp4-trtllm",
	 .engine = "Mxfp4MoeBackend.FLASHINFER_TRTLLM_MXFP4_BF16",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {128, 128},
	 .align_k = 256,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_IN_TURN,
	 .interleaved_order = CLV_ORDER_IN_TURN,
	 .group = 32,
	 .scale_dtype = "float8_e4m3fn", /* bits of e8m0, viewed so */
	 .weights = clv_layout_rows,
	 .scales = clv_layout_rows_e4m3,
	 .way = clv_steps_mxfp4_trtllm,
	 .bias = CLV_BIAS_F32,
	 .gated_only = true},
	{.name = "mxfp4-trtllm-mxfp8",
	 .engine = "Mxfp4MoeBackend.FLASHINFER_TRTLLM_MXFP4_MXFP8",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {128, 128},
	 .align_k = 256,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_IN_TURN,
	 .interleaved_order = CLV_ORDER_IN_TURN,
	 .group = 32,
	 .scale_dtype = "float8_e4m3fn",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_rows_e4m3,
	 .way = clv_steps_mxfp4_trtllm,
	 .bias = CLV_BIAS_F32,
	 .gated_only = true},
	{.name = "mxfp4-cutlass",
	 .engine = "Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_BF16",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {128, 128},
	 .align_k = 128,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_UP_GATE,
	 .interleaved_order = CLV_ORDER_UP_GATE,
	 .group = 32,
	 .scale_dtype = "uint8",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_sm90_interleaved,
	 .bias = CLV_BIAS_NEW},
	{.name = "mxfp4-cutlass-mxfp8",
	 .engine = "Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {128, 128},
	 .align_k = 128,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_UP_GATE,
	 .interleaved_order = CLV_ORDER_UP_GATE,
	 .group = 32,
	 .scale_dtype = "uint8",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_rows_128x4,
	 .bias = CLV_BIAS_NEW},
	{.name = "mxfp4-deepgemm",
	 .engine = "Mxfp4MoeBackend.DEEPGEMM_MXFP4",
	 .source = MXFP4_DEEPGEMM,
	 .formats = IS(MXFP4),
	 .align_n = {128, 128},
	 .align_k = 128,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_LOADED,
	 .group = 32,
	 .scale_dtype = "int32", /* four of UE8M0 */
	 .weights = clv_layout_rows,
	 .scales = clv_layout_ue8m0_packed,
	 .weights_same = true},
	{.name = "mxfp4-triton",
	 .engine = "Mxfp4MoeBackend.TRITON on SM90",
	 .source = MXFP4_TRITON,
	 .formats = IS(MXFP4),
	 .align_n = {64, 64},
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_LOADED,
	 .interleaved_order = CLV_ORDER_LOADED,
	 .group = 32,
	 .scale_dtype = "uint8",
	 .weights = clv_layout_hopper,
	 .scales = clv_layout_hopper_scales,
	 .way = clv_steps_mxfp4_hopper,
	 .rule = mxfp4_triton,
	 .rule_text = "gate and up in turn only (gpt-oss)",
	 .bias = CLV_BIAS_F32},
	{.name = "mxfp4-triton-unfused",
	 .engine = "Mxfp4MoeBackend.TRITON_UNFUSED on SM90",
	 .source = MXFP4_TRITON,
	 .formats = IS(MXFP4),
	 .align_n = {64, 64},
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_LOADED,
	 .interleaved_order = CLV_ORDER_LOADED,
	 .group = 32,
	 .scale_dtype = "uint8",
	 .weights = clv_layout_hopper,
	 .scales = clv_layout_hopper_scales,
	 .way = clv_steps_mxfp4_hopper,
	 .rule = mxfp4_triton,
	 .rule_text = "gate and up in turn only (gpt-oss)",
	 .bias = CLV_BIAS_F32},
	{.name = "mxfp4-rocm", /* 128 and 128 for AITER_BF16 with SITU or SILU */
	 .engine = "Mxfp4MoeBackend.AITER_*",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {256, 256},
	 .align_k = 256,
	 .pads = CLV_PADS_CREATE,
	 .group = 32,
	 .scale_dtype = "-"},
	{.name = "mxfp4-emulation",
	 .engine = "Mxfp4MoeBackend.EMULATION",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {32, 32},
	 .align_k = 32,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_LOADED,
	 .interleaved_order = CLV_ORDER_LOADED,
	 .group = 32,
	 .scale_dtype = "uint8",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_scale_rows,
	 .bias = CLV_BIAS_SAME,
	 .weights_same = true,
	 .scales_same = true},
	{.name = "mxfp4-cpu",
	 .engine = "Mxfp4MoeBackend.CPU",
	 .source = MXFP4_SIZES,
	 .formats = IS(MXFP4),
	 .align_n = {32, 32},
	 .align_k = 32,
	 .pads = CLV_PADS_CREATE,
	 .order = CLV_ORDER_LOADED,
	 .interleaved_order = CLV_ORDER_LOADED,
	 .group = 32,
	 .scale_dtype = "uint8",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_scale_rows,
	 .bias = CLV_BIAS_SAME,
	 .weights_same = true,
	 .scales_same = true},

	{.name = "fp8-deepgemm",
	 .engine = "Fp8MoeBackend.DEEPGEMM on SM90",
	 .source = FP8_DEEPGEMM,
	 .formats = IS(FP8_BLOCK),
	 .order = CLV_ORDER_LOADED,
	 .scale_dtype = "float32",
	 .weights = clv_layout_rows,
	 .scales = clv_layout_scale_rows,
	 .rule = fp8_blocks,
	 .rule_text = "blocks of 128 x 128 only",
	 .weights_same = true,
	 .scales_same = true},
	{.name = "fp8-deepgemm-sm100",
	 .engine = "Fp8MoeBackend.DEEPGEMM on SM100",
	 .source = FP8_DEEPGEMM,
	 .formats = IS(FP8_BLOCK),
	 .order = CLV_ORDER_LOADED,
	 .scale_dtype = "int32",
	 .weights = clv_layout_rows, /* requantized where they are */
	 .scales = clv_layout_ue8m0_of_blocks,
	 .way = clv_steps_fp8_requant,
	 .rule = fp8_blocks,
	 .rule_text = "blocks of 128 x 128 only",
	 .weights_same = true},
	{.name = "fp8-flashinfer",
	 .engine = "Fp8MoeBackend.FLASHINFER_TRTLLM, blocks",
	 .source = FP8_FLASHINFER,
	 .formats = IS(FP8_BLOCK),
	 .must_n = {128, 128},
	 .must_k = 128,
	 .must_why = "its layout is of blocks of 128 bytes",
	 .order = CLV_ORDER_UP_GATE,
	 .scale_dtype = "float32", /* at least 1e-10 */
	 .weights = clv_layout_block_major,
	 .scales = clv_layout_scale_rows,
	 .way = clv_steps_fp8_trtllm,
	 .rule = fp8_blocks,
	 .rule_text = "blocks of 128 x 128 only"},
	{.name = "fp8-flashinfer-tensor",
	 .engine = "Fp8MoeBackend.FLASHINFER_*, one scale a tensor",
	 .source = FP8_FLASHINFER,
	 .formats = IS(FP8_TENSOR),
	 .align_n = {128, 16},
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_UP_GATE,
	 .scale_dtype = "-",
	 .weights = clv_layout_rows},
	{.name = "fp8-marlin",
	 .engine = "Fp8MoeBackend.MARLIN",
	 .source = FP8_MARLIN,
	 .formats = IS(FP8_BLOCK) | IS(FP8_CHANNEL) | IS(FP8_TENSOR),
	 .align_n = {128, 128}, /* lcm(64, 128) */
	 .must_k = 16,
	 .must_why = "Marlin's tiles are of 16, and vLLM does not pad it",
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_LOADED,
	 .scale_dtype = "the model's",
	 .weights = clv_layout_marlin,
	 .scales = clv_layout_marlin_fp8_scales,
	 .rule = fp8_marlin,
	 .rule_text = "blocks of 128 x 128, rows or tensors"},

	{.name = "bf16-trtllm",
	 .engine = "UnquantizedMoeBackend.FLASHINFER_TRTLLM",
	 .source = BF16_ORACLE " (vllm#45589)",
	 .formats = IS(PLAIN),
	 .align_n = {128, 1},
	 .must_n = {1, 64},
	 .must_k = 64,
	 .must_why = "its layout is of blocks of 128 bytes",
	 .pads = CLV_PADS_POST_LOAD,
	 .order = CLV_ORDER_UP_GATE,
	 .scale_dtype = "-",
	 .weights = clv_layout_block_major,
	 .way = clv_steps_straight,
	 .rule = bf16_only,
	 .rule_text = "bfloat16 only"},
	{.name = "bf16-cutlass",
	 .engine = "UnquantizedMoeBackend.FLASHINFER_CUTLASS",
	 .source = BF16_ORACLE,
	 .formats = IS(PLAIN),
	 .order = CLV_ORDER_UP_GATE,
	 .scale_dtype = "-",
	 .weights = clv_layout_flipped,
	 .way = clv_steps_straight,
	 .rule = bf16_any,
	 .rule_text = "bfloat16 or float16"},
	{.name = "bf16-triton",
	 .engine = "UnquantizedMoeBackend.TRITON",
	 .source = BF16_ORACLE,
	 .formats = IS(PLAIN),
	 .order = CLV_ORDER_LOADED,
	 .interleaved_order = CLV_ORDER_LOADED,
	 .scale_dtype = "-",
	 .weights = clv_layout_rows,
	 .rule = bf16_any,
	 .rule_text = "bfloat16 or float16",
	 .bias = CLV_BIAS_SAME,
	 .weights_same = true},

	{.name = "gptq-marlin",
	 .engine = "Marlin of GPTQ and of compressed-tensors' WNA16",
	 .source = WNA16,
	 .formats = IS(INT),
	 .must_k = 128,
	 .must_why = "Marlin's tiles need it, and vLLM does not pad it",
	 .pads = CLV_PADS_POST_LOAD, /* to lcm(64, group), unless inputs are permuted */
	 .order = CLV_ORDER_LOADED,
	 .scale_dtype = "the model's",
	 .weights = clv_layout_marlin,
	 .scales = clv_layout_marlin_scales,
	 .rule = gptq_marlin,
	 .rule_text = "N to lcm(64, group); with act-order it must divide"},
	{.name = "awq-marlin",
	 .engine = "Marlin of AWQ",
	 .source = WNA16,
	 .formats = IS(INT),
	 .must_k = 128,
	 .must_why = "Marlin's tiles need it, and vLLM does not pad it",
	 .pads = CLV_PADS_POST_LOAD, /* to lcm(64, group), unless inputs are permuted */
	 .order = CLV_ORDER_LOADED,
	 .scale_dtype = "the model's",
	 .weights = clv_layout_marlin,
	 .scales = clv_layout_marlin_scales,
	 .rule = awq_marlin,
	 .rule_text = "N to lcm(64, group)"},
};

const struct clv_backend *clv_backend_at(size_t i)
{
	return i < CLV_ARRAY_LEN(backends) ? &backends[i] : NULL;
}

const struct clv_backend *clv_backend_find(const char *name, struct clv_error *err)
{
	char names[2048] = "";
	size_t at = 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(backends); i++) {
		size_t len = strlen(backends[i].name);
		if (!strcmp(backends[i].name, name))
			return &backends[i];
		if (at + len + 3 > sizeof(names))
			continue;
		memcpy(names + at, i ? ", " : "", i ? 2 : 0);
		at += i ? 2 : 0;
		memcpy(names + at, backends[i].name, len + 1);
		at += len;
	}
	clv_error_set(err, "backend \"%.100s\" is not known; known are %s", name, names);
	return NULL;
}
