/* SPDX-License-Identifier: MIT */
#include "backend_layouts.h"

static const struct clv_backend_dtype u8 = {"uint8", 1}, i32 = {"int32", 4}, e4m3 = {"float8_e4m3fn", 1};

static uint64_t round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

void clv_layout_set(struct clv_backend_buffer *out, struct clv_backend_dtype dtype, uint64_t a, uint64_t b, uint64_t c,
		    uint64_t d)
{
	const uint64_t shape[4] = {a, b, c, d};
	uint64_t stride = 1;
	out->dtype = dtype;
	for (out->dims = 0; out->dims < 4 && shape[out->dims]; out->dims++)
		out->shape[out->dims] = shape[out->dims];
	for (uint32_t i = out->dims; i-- > 0; stride *= shape[i])
		out->stride[i] = stride;
	out->bytes = stride * dtype.bytes;
}

/* The buffer has more than the values that it would have if nothing were rounded up. */
static void rounded_up(struct clv_backend_buffer *out, uint64_t values)
{
	out->layout_bytes = out->bytes - values * out->dtype.bytes;
	out->zeroed = out->layout_bytes > 0;
}

/* As PyTorch holds it: two values of 4 bits in a byte, integers in int32. */
struct clv_backend_dtype clv_layout_dtype(enum clv_model_dtype dtype)
{
	static const struct clv_backend_dtype dtypes[CLV_DTYPES] = {
		[CLV_DTYPE_BF16] = {"bfloat16", 2}, [CLV_DTYPE_F16] = {"float16", 2},
		[CLV_DTYPE_F32] = {"float32", 4},   [CLV_DTYPE_F8_E4M3] = {"float8_e4m3fn", 1},
		[CLV_DTYPE_F8_E8M0] = {"uint8", 1}, [CLV_DTYPE_F4_E2M1] = {"uint8", 1},
		[CLV_DTYPE_INT4] = {"int32", 4},    [CLV_DTYPE_INT8] = {"int32", 4}};
	return dtypes[dtype];
}

/* ---- weights ---- */

void clv_layout_rows(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_set(out, m->weight_dtype, m->experts, m->rows, m->cols * m->bits / 8 / m->weight_dtype.bytes, 0);
}

void clv_layout_flipped(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_rows(m, out);
	out->same = out->w2 || !m->model->gated;
}

void clv_layout_marlin(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_set(out, i32, m->experts, m->cols / 16, m->rows * m->bits / 2, 0);
}

void clv_layout_block_major(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_set(out, u8, m->experts, m->cols * m->bits / 8 / 128, m->rows, 128);
}

void clv_layout_hopper(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	uint64_t cols = m->cols * m->bits / 8;
	clv_layout_set(out, u8, m->experts, round_up(cols, 64), m->rows, 0);
	rounded_up(out, m->experts * m->rows * cols);
}

/* ---- scales ---- */

void clv_layout_scale_rows(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_set(out, m->scale_dtype, m->experts, m->scale_rows, m->scale_cols, 0);
}

void clv_layout_rows_e4m3(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_set(out, e4m3, m->experts, m->scale_rows, m->scale_cols, 0);
}

void clv_layout_rows_128x4(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_scale_rows(m, out); /* backends that use this have sizes such that it is true */
}

void clv_layout_swizzled_128x4(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_set(out, m->scale_dtype, m->experts, round_up(m->scale_rows, 128), round_up(m->scale_cols, 4), 0);
	rounded_up(out, m->experts * m->scale_rows * m->scale_cols);
}

void clv_layout_sm90_interleaved(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_set(out, m->scale_dtype, m->experts, m->scale_cols / 4, m->scale_rows * 4, 0);
}

void clv_layout_marlin_scales(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	struct clv_backend_dtype dtype = m->scale_dtype;
	if (m->format == CLV_FORMAT_MXFP4)
		dtype = (struct clv_backend_dtype){"float8_e8m0fnu", 1};
	clv_layout_set(out, dtype, m->experts, m->scale_cols, m->scale_rows, 0);
}

void clv_layout_marlin_fp8_scales(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	uint64_t groups = m->format == CLV_FORMAT_FP8_BLOCK ? m->scale_cols : 1;
	clv_layout_set(out, clv_layout_dtype(m->model->dtype), m->experts, groups, m->rows, 0);
}

static void ue8m0(struct clv_backend_buffer *out, uint64_t experts, uint64_t rows, uint64_t cols)
{
	uint64_t words = round_up(cols, 4) / 4, stride = round_up(rows, 4);
	clv_layout_set(out, i32, experts, rows, words, 0);
	out->stride[0] = words * stride;
	out->stride[1] = 1;
	out->stride[2] = stride;
	out->bytes = experts * words * stride * i32.bytes;
	out->layout_bytes = out->bytes - experts * rows * cols; /* four in a word */
	out->zeroed = out->layout_bytes > 0;
}

void clv_layout_ue8m0_packed(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	ue8m0(out, m->experts, m->scale_rows, m->scale_cols);
}

void clv_layout_ue8m0_of_blocks(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	ue8m0(out, m->experts, m->rows, m->scale_cols);
}

/* Groups to 4 as vLLM pads them for SM90, and then Triton's layout for 8 warps. */
void clv_layout_hopper_scales(const struct clv_backend_matrix *m, struct clv_backend_buffer *out)
{
	clv_layout_set(out, u8, m->experts, round_up(m->scale_cols, 4) * 32, round_up(m->scale_rows, 256) / 32, 0);
	rounded_up(out, m->experts * m->scale_rows * m->scale_cols);
}

const char *clv_layout_name(clv_backend_layout *layout)
{
	static const struct {
		clv_backend_layout *layout;
		const char *name;
	} names[] = {{clv_layout_rows, "rows"},
		     {clv_layout_flipped, "rows"},
		     {clv_layout_marlin, "Marlin"},
		     {clv_layout_block_major, "blocks of 128 bytes"},
		     {clv_layout_hopper, "Hopper"},
		     {clv_layout_scale_rows, "as loaded"},
		     {clv_layout_rows_e4m3, "as loaded"},
		     {clv_layout_rows_128x4, "tiles of 128x4"},
		     {clv_layout_swizzled_128x4, "tiles of 128x4, padded"},
		     {clv_layout_sm90_interleaved, "SM90, in turn"},
		     {clv_layout_marlin_scales, "Marlin"},
		     {clv_layout_marlin_fp8_scales, "Marlin"},
		     {clv_layout_ue8m0_packed, "UE8M0, packed"},
		     {clv_layout_ue8m0_of_blocks, "UE8M0, packed"},
		     {clv_layout_hopper_scales, "Hopper"}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++)
		if (names[i].layout == layout)
			return names[i].name;
	return "-";
}
