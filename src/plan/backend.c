/* SPDX-License-Identifier: MIT */
#include "backend.h"
#include "backend_layouts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *clv_backend_pads_name(enum clv_backend_pads pads)
{
	static const char *const names[] = {"nobody", "the backend, before the load", "the backend, after the load"};
	return names[pads];
}

const char *clv_backend_order_name(enum clv_backend_order order, bool gated, bool interleaved)
{
	if (order == CLV_ORDER_NO_RULE)
		return "not known";
	if (!gated)
		return "up";
	switch (order) {
	case CLV_ORDER_UP_GATE:
		return "up; gate";
	case CLV_ORDER_IN_TURN:
		return "up and gate in turn";
	case CLV_ORDER_TURN_64:
		return "64 of up, 64 of gate in turn";
	default:
		return interleaved ? "gate and up in turn" : "gate; up";
	}
}

/* ---- whether model and backend go together ---- */

static enum clv_model_format format_of(const struct clv_model *m, uint32_t set)
{
	return set == CLV_SET_PLAIN ? CLV_FORMAT_PLAIN : m->quant.format;
}

/* compressed-tensors' own method for MXFP4. Kimi-K3 is not loaded by it: vLLM's models/config.py,
 * KimiK3ForConditionalGenerationConfig, turns it into mxfp4. */
static bool own_mxfp4(const struct clv_model *m, uint32_t set)
{
	return format_of(m, set) == CLV_FORMAT_MXFP4 && !strcmp(m->quant.method, "compressed-tensors") &&
	       strncmp(m->type, "kimi_k3", 7);
}

static void format_names(uint32_t formats, char *buf, size_t len)
{
	int at = 0;
	for (unsigned f = 0; f < CLV_FORMATS; f++)
		if (formats >> f & 1 && at < (int)len)
			at += snprintf(buf + at, len - (size_t)at, "%s%s", at ? ", " : "",
				       clv_format_name((enum clv_model_format)f));
}

static bool together(const struct clv_backend *b, const struct clv_model *m, uint32_t set, struct clv_error *err)
{
	enum clv_model_format format = format_of(m, set);
	char formats[128];
	if (set >= CLV_SETS || !(set == CLV_SET_PLAIN ? m->plain_layers : m->moe_layers - m->plain_layers))
		return clv_error_set(err, "%s: no layer has experts that are %s", m->path,
				     set == CLV_SET_PLAIN ? "left out of the quantization" : "quantized");
	if (!(b->formats >> format & 1)) {
		format_names(b->formats, formats, sizeof(formats));
		return clv_error_set(err, "%s: the experts are %s, and %s is for %s", m->path, clv_format_name(format),
				     b->name, formats);
	}
	if (!b->weights)
		return clv_error_set(err,
				     "%s: for %s only the alignments are known (N to %" PRIu32 ", K to %" PRIu32
				     "), no rule for the buffers after the conversion",
				     m->path, b->name, b->align_n[m->gated], b->align_k);
	if (!m->gated && b->gated_only)
		return clv_error_set(err, "%s: %s is for gated experts, and those of %s have no gate", m->path, b->name,
				     m->name);
	if (m->interleaved && !b->interleaved_order)
		return clv_error_set(err,
				     "%s: the checkpoint has gate and up in turn, for which no rule is known with %s",
				     m->path, b->name);
	if (m->bias && !b->bias)
		return clv_error_set(err, "%s: experts with a bias: no rule is known for %s", m->path, b->name);
	if (own_mxfp4(m, set) && strcmp(b->name, "mxfp4-marlin"))
		return clv_error_set(err,
				     "%s: vLLM gives MXFP4 of compressed-tensors only to Marlin (mxfp4-marlin) and to "
				     "CutlassExpertsMxfp4, which is not known here; not to %s",
				     m->path, b->name);
	return true;
}

/* ---- sizes ---- */

static uint32_t or_1(uint32_t v)
{
	return v ? v : 1;
}

static bool must(const struct clv_backend *b, const struct clv_model *m, const char *what, uint64_t size, uint32_t of,
		 const char *why, struct clv_error *err)
{
	return size % of == 0 ||
	       clv_error_set(err, "%s: %s requires %s to be a multiple of %" PRIu32 ", and it is %" PRIu64 ": %s",
			     m->path, b->name, what, of, size, why);
}

bool clv_backend_shards(const struct clv_backend *b, const struct clv_model *m, const struct clv_shard_config *parallel,
			uint32_t set, struct clv_shard *source, struct clv_shard *destination, struct clv_error *err)
{
	if (!together(b, m, set, err))
		return false;
	struct clv_backend_sizes s = {or_1(b->align_n[m->gated]), or_1(b->align_k), or_1(b->must_n[m->gated]),
				      or_1(b->must_k)};
	const char *why = b->must_why;
	if (b->rule && !b->rule(b, m, &s, err))
		return false;
	if (own_mxfp4(m, set)) { /* its method has no maybe_roundup_sizes() */
		s.must_n = s.align_n;
		s.must_k = s.align_k;
		why = "compressed-tensors' method does not pad, and no rule is known for other sizes";
	}
	bool create = b->pads == CLV_PADS_CREATE && !own_mxfp4(m, set);
	/* mxfp4.py allocates with torch.zeros, the others with torch.empty; the model that pads then clears. */
	bool zeros =
		(format_of(m, set) == CLV_FORMAT_MXFP4 && !own_mxfp4(m, set)) || parallel->padding == CLV_PADDING_MODEL;
	struct clv_shard_config c = *parallel;
	c.align_intermediate = create ? s.align_n : 1;
	c.align_hidden = create ? s.align_k : 1;
	c.zeroed = zeros;
	if (!clv_shard_make(source, m, &c, err) ||
	    !must(b, m, "a rank's share of the intermediate size", source->intermediate.padded, s.must_n, why, err) ||
	    !must(b, m, "the hidden size of routed experts", source->hidden.padded, s.must_k, why, err))
		return false;
	c.align_intermediate = s.align_n;
	c.align_hidden = s.align_k;
	/* What the conversion adds is zeros (new_zeros, pad); what it copies is, if the source was. */
	c.zeroed = zeros || (!m->split_by_groups && source->intermediate.padded == source->intermediate.raw &&
			     source->hidden.padded == source->hidden.raw);
	return clv_shard_make(destination, m, &c, err);
}

/* ---- buffers ---- */

static const struct clv_shard_buffer *find(const struct clv_shard_set *set, unsigned role)
{
	for (uint32_t i = 0; i < set->count; i++)
		if (set->buffers[i].role == role)
			return &set->buffers[i];
	return NULL;
}

static struct clv_backend_buffer *next(struct clv_backend_layer *l, bool source, enum clv_backend_kind kind, bool w2,
				       const char *name)
{
	struct clv_backend_buffer *b =
		source ? &l->sources[l->source_count++] : &l->destinations[l->destination_count++];
	*b = (struct clv_backend_buffer){.kind = kind, .w2 = w2, .alignment = CLV_BACKEND_ALIGNMENT};
	snprintf(b->name, sizeof(b->name), "%s_%s", w2 ? "w2" : "w13", name);
	return b;
}

static uint64_t all_rows(const struct clv_shard_buffer *b)
{
	return b->parts * b->rows.padded;
}

static uint64_t shard_bytes(const struct clv_backend_layer *l, const struct clv_shard_buffer *b)
{
	return l->rank.expert_count * b->expert_bytes;
}

static bool is_awq(const struct clv_model *m)
{
	return !strncmp(m->quant.method, "awq", 3);
}

static bool is_compressed(const struct clv_model *m)
{
	return !strcmp(m->quant.method, "compressed-tensors");
}

static const char *weight_name(const struct clv_model *m, enum clv_model_format format)
{
	if (format == CLV_FORMAT_INT)
		return is_compressed(m) ? "weight_packed" : "qweight";
	return format == CLV_FORMAT_NVFP4 && is_compressed(m) ? "weight_packed" : "weight";
}

static const char *scale_name(const struct clv_model *m, enum clv_model_format format)
{
	if (format == CLV_FORMAT_INT && !is_compressed(m))
		return "scales";
	return format == CLV_FORMAT_FP8_BLOCK && !strcmp(m->quant.method, "fp8") ? "weight_scale_inv" : "weight_scale";
}

static const char *index_name(const struct clv_model *m)
{
	return is_compressed(m) ? "weight_g_idx" : "g_idx";
}

/* A conversion puts its results under the names that were loaded (replace_parameter(): fp8.py, auto_gptq.py, awq_marlin.py,
 * compressed_tensors_moe_wna16_marlin.py), but for compressed-tensors' NVFP4, whose weight_packed becomes weight. */
static const char *converted_weight_name(const struct clv_model *m, enum clv_model_format format)
{
	return format == CLV_FORMAT_NVFP4 ? "weight" : weight_name(m, format);
}

static struct clv_backend_matrix matrix_of(const struct clv_backend_layer *l, const struct clv_shard *s,
					   const struct clv_shard_buffer *w, const struct clv_shard_buffer *scale)
{
	struct clv_backend_matrix x = {.model = s->model,
				       .format = format_of(s->model, l->set),
				       .experts = l->rank.expert_count,
				       .rows = all_rows(w),
				       .cols = w->cols.padded,
				       .bits = clv_dtype_bits(w->dtype),
				       .weight_dtype = clv_layout_dtype(w->dtype)};
	if (scale) {
		x.scale_dtype = clv_layout_dtype(scale->dtype);
		x.scale_rows = all_rows(scale);
		x.scale_cols = scale->cols.padded;
	}
	return x;
}

/* Of vLLM's quantization/: modelopt.py, mxfp4.py, fp8.py, gptq_marlin.py, awq_marlin.py and compressed_tensors/, each in
 * create_weights(); unquantized_fused_moe_method.py. */
static void source_matrix(struct clv_backend_layer *l, bool w2)
{
	const struct clv_shard *s = &l->source_shard;
	const struct clv_shard_set *set = &s->sets[l->set];
	const struct clv_model *m = s->model;
	enum clv_model_format format = format_of(m, l->set);
	unsigned role = w2 ? CLV_ROLE_W2 : CLV_ROLE_W13;
	const struct clv_shard_buffer *w = find(set, role), *scale = find(set, role + 1), *zero = find(set, role + 2),
				      *bias = find(set, role + 3);
	struct clv_backend_matrix x = matrix_of(l, s, w, scale);
	uint64_t e = x.experts, in_word = 32 / x.bits;
	bool ints = format == CLV_FORMAT_INT;

	struct clv_backend_buffer *b = next(l, true, CLV_BUFFER_WEIGHT, w2, weight_name(m, format));
	if (!ints)
		clv_layout_rows(&x, b);
	else if (is_awq(m))
		clv_layout_set(b, x.weight_dtype, e, x.cols, x.rows / in_word, 0);
	else
		clv_layout_set(b, x.weight_dtype, e, x.cols / in_word, x.rows, 0);
	b->shard_bytes = shard_bytes(l, w);
	if (scale) {
		b = next(l, true, CLV_BUFFER_SCALE, w2, scale_name(m, format));
		if (ints)
			clv_layout_set(b, x.scale_dtype, e, x.scale_cols, x.scale_rows, 0);
		else
			clv_layout_scale_rows(&x, b);
		b->shard_bytes = shard_bytes(l, scale);
	}
	if (zero) {
		b = next(l, true, CLV_BUFFER_ZERO, w2, "qzeros");
		clv_layout_set(b, x.weight_dtype, e, zero->cols.padded, all_rows(zero) / in_word, 0);
		b->shard_bytes = shard_bytes(l, zero);
	}
	if (bias) {
		b = next(l, true, CLV_BUFFER_BIAS, w2, "bias");
		clv_layout_set(b, clv_layout_dtype(bias->dtype), e, all_rows(bias), 0, 0);
		b->shard_bytes = shard_bytes(l, bias);
	}
}

/* The order of inputs, which is there also if nothing is permuted; and scalars. */
static void source_others(struct clv_backend_layer *l, bool w2)
{
	static const struct clv_backend_dtype f32 = {"float32", 4}, i32 = {"int32", 4};
	const struct clv_shard *s = &l->source_shard;
	const struct clv_model *m = s->model;
	enum clv_model_format format = format_of(m, l->set);
	uint64_t e = l->rank.expert_count, parts = clv_model_w13_parts(m);
	uint64_t inputs = w2 ? s->intermediate.padded : s->hidden.padded, per = w2 ? 0 : parts;
	if (format == CLV_FORMAT_INT && !is_awq(m)) {
		clv_layout_set(next(l, true, CLV_BUFFER_INDEX, w2, index_name(m)), i32, e, inputs, 0, 0);
		clv_layout_set(next(l, true, CLV_BUFFER_INDEX, w2, "g_idx_sort_indices"), i32, e, inputs, 0, 0);
	}
	if (format == CLV_FORMAT_FP8_TENSOR)
		clv_layout_set(next(l, true, CLV_BUFFER_SCALAR, w2, "weight_scale"), f32, e, per, 0, 0);
	if (format == CLV_FORMAT_NVFP4) {
		bool own = is_compressed(m);
		uint64_t g = l->backend->global_scales && !own ? m->experts : e;
		clv_layout_set(next(l, true, CLV_BUFFER_SCALAR, w2, own ? "weight_global_scale" : "weight_scale_2"),
			       f32, e, per, 0, 0);
		clv_layout_set(next(l, true, CLV_BUFFER_SCALAR, w2, own ? "input_global_scale" : "input_scale"), f32, g,
			       per, 0, 0);
	}
}

/* What the checkpoint fills of a destination, given a buffer of the shard that has it element by element, or by rows. */
static void measure(const struct clv_backend_layer *l, struct clv_backend_buffer *b, const struct clv_shard_buffer *of)
{
	const struct clv_shard *s = &l->destination_shard;
	uint64_t valid = clv_shard_valid(of, clv_shard_slice(s, of, l->rank.moe_tp_rank)), all = clv_shard_elements(of);
	b->valid_bytes = (uint64_t)((unsigned __int128)(b->bytes - b->layout_bytes) * valid / all);
}

static void destination_matrix(struct clv_backend_layer *l, bool w2)
{
	const struct clv_backend *k = l->backend;
	const struct clv_shard *s = &l->destination_shard;
	const struct clv_shard_set *set = &s->sets[l->set];
	const struct clv_model *m = s->model;
	unsigned role = w2 ? CLV_ROLE_W2 : CLV_ROLE_W13;
	const struct clv_shard_buffer *w = find(set, role), *scale = find(set, role + 1), *zero = find(set, role + 2),
				      *bias = find(set, role + 3);
	struct clv_backend_matrix x = matrix_of(l, s, w, scale);
	uint64_t e = x.experts;

	struct clv_backend_buffer *b = next(l, false, CLV_BUFFER_WEIGHT, w2, converted_weight_name(m, x.format));
	b->same = k->weights_same;
	k->weights(&x, b);
	b->shard_bytes = shard_bytes(l, w);
	measure(l, b, w);
	if (k->scales) {
		b = next(l, false, CLV_BUFFER_SCALE, w2, scale_name(m, x.format));
		b->same = k->scales_same;
		k->scales(&x, b);
		b->shard_bytes = scale ? shard_bytes(l, scale) : 0;
		struct clv_shard_buffer rows = *w; /* a scale for all of a tensor, given to each row */
		if (!scale) {
			rows.cols = (struct clv_shard_extent){1, 1, 1};
			rows.split = w2 ? CLV_SHARD_WHOLE : CLV_SHARD_ROWS;
		}
		measure(l, b, scale ? scale : &rows);
	}
	if (zero) {
		b = next(l, false, CLV_BUFFER_ZERO, w2, "qzeros");
		clv_layout_set(b, x.weight_dtype, e, zero->cols.padded, all_rows(zero) * x.bits / 32, 0);
		b->shard_bytes = shard_bytes(l, zero);
		measure(l, b, zero);
	}
	if (bias) {
		static const struct clv_backend_dtype f32 = {"float32", 4};
		b = next(l, false, CLV_BUFFER_BIAS, w2, "bias");
		clv_layout_set(b, k->bias == CLV_BIAS_F32 ? f32 : clv_layout_dtype(bias->dtype), e, all_rows(bias), 0,
			       0);
		b->same = k->bias == CLV_BIAS_SAME;
		b->shard_bytes = shard_bytes(l, bias);
		measure(l, b, bias);
	}
	if (m->quant.act_order && format_of(m, l->set) == CLV_FORMAT_INT) {
		uint64_t inputs = w2 ? s->intermediate.padded : s->hidden.padded;
		static const struct clv_backend_dtype i32 = {"int32", 4};
		clv_layout_set(next(l, false, CLV_BUFFER_INDEX, w2, index_name(m)), i32, e, inputs, 0, 0);
		clv_layout_set(next(l, false, CLV_BUFFER_INDEX, w2, "g_idx_sort_indices"), i32, e, inputs, 0, 0);
	}
}

/* Sums; and that shapes, which divide, lost nothing. */
static bool add_up(struct clv_backend_layer *l, struct clv_error *err)
{
	const char *path = l->source_shard.model->path;
	bool zeroed = l->source_shard.config.zeroed, padded = false;
	padded = l->destination_shard.intermediate.padded > l->source_shard.intermediate.padded ||
		 l->destination_shard.hidden.padded > l->source_shard.hidden.padded;
	for (uint32_t i = 0; i < l->source_count; i++) {
		struct clv_backend_buffer *b = &l->sources[i];
		b->zeroed = zeroed && b->shard_bytes;
		l->source_bytes += b->bytes;
		if (b->shard_bytes && b->bytes != b->shard_bytes)
			return clv_error_set(err,
					     "%s: %s: %" PRIu64 " bytes do not fill a shape of %" PRIu64
					     " bytes: a size does not divide",
					     path, b->name, b->shard_bytes, b->bytes);
	}
	for (uint32_t i = 0; i < l->destination_count; i++) {
		struct clv_backend_buffer *b = &l->destinations[i];
		if (b->kind == CLV_BUFFER_WEIGHT && b->bytes < b->shard_bytes)
			return clv_error_set(err,
					     "%s: %s: %" PRIu64 " bytes do not fit %s's shape of %" PRIu64
					     " bytes: a size does not divide",
					     path, b->name, b->shard_bytes, l->backend->name, b->bytes);
		b->zeroed = b->same ? zeroed : b->zeroed || padded;
		l->destination_bytes += b->bytes;
		l->valid_bytes += b->valid_bytes;
		l->padding_bytes += clv_backend_is_measured(b) ? b->bytes - b->valid_bytes : 0;
		l->layout_bytes += b->layout_bytes;
		l->same_bytes += b->same ? b->bytes : 0;
	}
	return true;
}

bool clv_backend_plan(struct clv_backend_layer *l, const struct clv_backend *backend, const struct clv_model *model,
		      const struct clv_shard_config *parallel, uint32_t set, uint32_t rank, struct clv_error *err)
{
	memset(l, 0, sizeof(*l));
	l->backend = backend;
	l->set = set;
	if (!clv_backend_shards(backend, model, parallel, set, &l->source_shard, &l->destination_shard, err))
		return false;
	if (rank >= l->source_shard.world)
		return clv_error_set(err, "rank %" PRIu32 " is not among the %" PRIu32 " ranks", rank,
				     l->source_shard.world);
	clv_shard_rank(&l->source_shard, rank, &l->rank);
	l->share = clv_shard_slice(&l->destination_shard, find(&l->destination_shard.sets[set], CLV_ROLE_W13),
				   l->rank.moe_tp_rank)
			   .count;
	l->order = model->interleaved ? backend->interleaved_order : backend->order;
	for (int w2 = 0; w2 < 2; w2++)
		source_matrix(l, w2);
	for (int w2 = 0; w2 < 2; w2++)
		source_others(l, w2);
	for (int w2 = 0; w2 < 2; w2++)
		destination_matrix(l, w2);
	return add_up(l, err);
}
