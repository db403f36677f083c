/* SPDX-License-Identifier: MIT */
#include "backend_steps.h"

#define REORDER_BYTES (64 * CLV_MIB) /* of a chunk's weights, at most */

/* ---- parts of rules ---- */

static bool is_padded(const struct clv_backend_layer *l)
{
	return l->destination_shard.intermediate.padded > l->source_shard.intermediate.padded ||
	       l->destination_shard.hidden.padded > l->source_shard.hidden.padded;
}

/* flashinfer_fp4_moe.py, align_trtllm_fp4_moe_hidden_dim_for_fi() and align_fp4_moe_weights_for_fi(): zeros of the new size
 * are made of all tensors while the old ones live, for K and then for N. */
static void pad_tensors(struct clv_backend_steps *s)
{
	const struct clv_shard *from = &s->layer->source_shard, *to = &s->layer->destination_shard;
	for (unsigned kind = CLV_BUFFER_WEIGHT; kind <= CLV_BUFFER_SCALE; kind++)
		for (int w2 = 0; w2 < 2; w2++) {
			struct clv_conversion_tensor *t = s->tensor[kind][w2];
			if (!t || !t->source)
				continue;
			uint64_t bytes = t->source * to->hidden.padded / from->hidden.padded;
			unsigned n = 0;
			if (to->hidden.padded > from->hidden.padded)
				t->padded[n++] = bytes;
			if (to->intermediate.padded > from->intermediate.padded)
				t->padded[n++] = bytes * to->intermediate.padded / from->intermediate.padded;
		}
}

/* flashinfer_fp4_moe.py, reorder_w1w3_to_w3w1(): so many rows at a time, in all experts, that the larger of the two parts
 * has at most 64 MiB. */
static void reorder_rows(struct clv_backend_steps *s)
{
	const struct clv_shard *to = &s->layer->destination_shard;
	const struct clv_conversion_tensor *t = s->conversion->tensors;
	const struct clv_conversion_tensor *part[2] = {s->tensor[CLV_BUFFER_WEIGHT][0], s->tensor[CLV_BUFFER_SCALE][0]};
	uint64_t n = to->intermediate.padded, row[2], rows;
	if (!to->model->gated || !part[0] || !part[1])
		return;
	for (int i = 0; i < 2; i++)
		row[i] = s->conversion->experts * part[i]->destination / (2 * n);
	rows = clv_max_u64(1, clv_min_u64(n, REORDER_BYTES / clv_max_u64(row[0], row[1])));
	struct clv_conversion_reorder *r = &s->conversion->reorder;
	r->chunks = (uint32_t)((n + rows - 1) / rows);
	for (int i = 0; i < 2; i++) {
		r->tensor[i] = (uint32_t)(part[i] - t);
		r->bytes[i] = rows * row[i];
		r->last[i] = (n - (r->chunks - 1) * rows) * row[i];
	}
}

static void whole(struct clv_conversion_tensor *t, unsigned i, uint64_t bytes, uint32_t count)
{
	if (!t)
		return;
	t->whole[i].bytes = bytes;
	t->whole[i].count = count;
}

/* ---- rules ---- */

/* How a layer that is padded gets there is not known. */
bool clv_steps_straight(struct clv_backend_steps *s)
{
	return s->layer->backend->pads != CLV_PADS_POST_LOAD || !is_padded(s->layer);
}

/* prepare_static_weights_for_trtllm_fp4_moe(): weights are gathered by rows into the result, scales into a copy that
 * FlashInfer's block_scale_interleave() makes the result of, in a tensor of its own. Since vllm#55407, which made
 * destinations first, that copy is one for all experts. */
bool clv_steps_nvfp4_trtllm(struct clv_backend_steps *s)
{
	if (is_padded(s->layer))
		pad_tensors(s);
	reorder_rows(s);
	for (int w2 = 0; w2 < 2; w2++) {
		struct clv_conversion_tensor *t = s->tensor[CLV_BUFFER_SCALE][w2];
		if (!t)
			continue;
		t->gathered[0] = t->destination;
		t->reused = true;
	}
	return true;
}

/* swizzle_blockscale(): all scales into zeros of the padded size, and those, permuted, into the result. */
bool clv_steps_nvfp4_cutlass(struct clv_backend_steps *s)
{
	if (is_padded(s->layer))
		pad_tensors(s);
	if (s->layer->order == CLV_ORDER_UP_GATE)
		reorder_rows(s);
	for (int w2 = 0; w2 < 2; w2++) {
		struct clv_conversion_tensor *t = s->tensor[CLV_BUFFER_SCALE][w2];
		whole(t, 0, t ? s->conversion->experts * t->destination : 0, 1);
	}
	return true;
}

/* marlin_utils_fp4.py, _repack_marlin_experts(): an expert is transposed into a copy and repacked into another. All scales
 * are upcast to 16 bits; those of NVFP4 before that to float32, with a mask (_nvfp4_compute_scale_factor()). How its padding
 * lives is not known. */
bool clv_steps_fp4_marlin(struct clv_backend_steps *s)
{
	bool nvfp4 = s->layer->source_shard.model->quant.format == CLV_FORMAT_NVFP4;
	if (s->layer->backend->pads == CLV_PADS_POST_LOAD && is_padded(s->layer))
		return false;
	for (int w2 = 0; w2 < 2; w2++) {
		struct clv_conversion_tensor *w = s->tensor[CLV_BUFFER_WEIGHT][w2],
					     *scale = s->tensor[CLV_BUFFER_SCALE][w2];
		uint64_t scales = scale ? s->conversion->experts * scale->source : 0;
		if (w)
			w->gathered[0] = w->source;
		whole(scale, 0, 2 * scales, 1);
		whole(scale, 1, nvfp4 ? 4 * scales : 0, 1);
		whole(scale, 2, nvfp4 ? scales : 0, 1);
	}
	return true;
}

/* fused_moe/oracle/mxfp4.py: up and gate are stacked, as a whole, before rows are gathered into the result. For gpt-oss, whose
 * rows are in turn, the code is another, of which no figures are known. */
bool clv_steps_mxfp4_trtllm(struct clv_backend_steps *s)
{
	if (s->layer->source_shard.model->interleaved)
		return false;
	for (unsigned kind = CLV_BUFFER_WEIGHT; kind <= CLV_BUFFER_SCALE; kind++) {
		struct clv_conversion_tensor *t = s->tensor[kind][0];
		whole(t, 0, t ? s->conversion->experts * t->source : 0, 1);
	}
	return true;
}

/* Triton, _pack_bits(): its temporaries as counted in TensorRT-LLM#16125. */
bool clv_steps_mxfp4_hopper(struct clv_backend_steps *s)
{
	for (int w2 = 0; w2 < 2; w2++) {
		struct clv_conversion_tensor *t = s->tensor[CLV_BUFFER_WEIGHT][w2];
		whole(t, 0, t ? s->conversion->experts * t->destination : 0, 8);
	}
	return true;
}

/* DeepGEMM, requant_weight_ue8m0_inplace(): an expert's weights and its scales, one for each weight, in float32; then all
 * scales, one for each row, in float32. Weights stay where they are, so it is the scales that are converted. */
bool clv_steps_fp8_requant(struct clv_backend_steps *s)
{
	const struct clv_backend_layer *l = s->layer;
	for (uint32_t i = 0; i < l->destination_count; i++) {
		const struct clv_backend_buffer *w = &l->destinations[i];
		struct clv_conversion_tensor *t = s->tensor[CLV_BUFFER_SCALE][w->w2];
		if (w->kind != CLV_BUFFER_WEIGHT || !t)
			continue;
		uint64_t blocks = (w->shape[2] + 127) / 128;
		t->gathered[0] = t->gathered[1] = w->shape[1] * w->shape[2] * 4;
		whole(t, 0, w->shape[0] * w->shape[1] * blocks * 4, 1);
	}
	return true;
}

/* flashinfer_utils.py, swap_w13_to_w31(): a flipped copy of all of w13. Then two copies of an expert on the way. */
bool clv_steps_fp8_trtllm(struct clv_backend_steps *s)
{
	struct clv_conversion_tensor *w13 = s->tensor[CLV_BUFFER_WEIGHT][0];
	if (w13 && s->layer->source_shard.model->gated)
		whole(w13, 0, s->conversion->experts * w13->source, 1);
	for (int w2 = 0; w2 < 2; w2++)
		if (s->tensor[CLV_BUFFER_WEIGHT][w2])
			s->tensor[CLV_BUFFER_WEIGHT][w2]->gathered[0] = s->tensor[CLV_BUFFER_WEIGHT][w2]->source;
	return true;
}

/* ---- a layer ---- */

/* The n-th of a kind. */
static const struct clv_backend_buffer *nth(const struct clv_backend_buffer *buffers, uint32_t count,
					    const struct clv_backend_buffer *like, uint32_t n)
{
	for (uint32_t i = 0; i < count; i++)
		if (buffers[i].kind == like->kind && buffers[i].w2 == like->w2 && n-- == 0)
			return &buffers[i];
	return NULL;
}

static uint32_t rank_of(const struct clv_backend_buffer *buffers, uint32_t i)
{
	uint32_t n = 0;
	for (uint32_t j = 0; j < i; j++)
		n += buffers[j].kind == buffers[i].kind && buffers[j].w2 == buffers[i].w2;
	return n;
}

static void add(struct clv_backend_steps *s, const struct clv_backend_buffer *source,
		const struct clv_backend_buffer *destination)
{
	struct clv_conversion *c = s->conversion;
	const struct clv_backend_buffer *named = destination ? destination : source;
	struct clv_conversion_tensor *t = &c->tensors[c->tensor_count++];
	*t = (struct clv_conversion_tensor){.name = named->name,
					    .source = source ? source->bytes / c->experts : 0,
					    .destination = destination ? destination->bytes / c->experts : 0};
	if (!s->tensor[named->kind][named->w2])
		s->tensor[named->kind][named->w2] = t;
}

void clv_backend_convert(const struct clv_backend_layer *l, struct clv_backend_conversion *out)
{
	struct clv_backend_steps s = {.layer = l, .conversion = &out->conversion};
	*out = (struct clv_backend_conversion){
		.conversion = {.experts = l->rank.expert_count, .alignment = CLV_BACKEND_ALIGNMENT}, .known = true};
	if (!l->rank.expert_count)
		return;
	for (uint32_t i = 0; i < l->source_count; i++) {
		const struct clv_backend_buffer *b = &l->sources[i];
		const struct clv_backend_buffer *to =
			nth(l->destinations, l->destination_count, b, rank_of(l->sources, i));
		out->stays[i] = b->kind == CLV_BUFFER_SCALAR || (to && to->same);
		if (!out->stays[i])
			add(&s, b, to);
	}
	for (uint32_t i = 0; i < l->destination_count; i++) {
		const struct clv_backend_buffer *b = &l->destinations[i];
		if (!b->same && !nth(l->sources, l->source_count, b, rank_of(l->destinations, i)))
			add(&s, NULL, b);
	}
	if (out->conversion.tensor_count)
		out->known = l->backend->way && l->backend->way(&s);
}
