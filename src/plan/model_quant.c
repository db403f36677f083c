/* SPDX-License-Identifier: MIT */
#include "model_quant.h"
#include "model_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one description says. */
struct said {
	struct clv_model_quant quant;
	json_t *excluded; /* a list, or NULL */
	char excluded_name[96];
	enum clv_names_language language;
	uint8_t *plain; /* [layers], or NULL: by module, which layers' experts are not quantized */
};

struct reader {
	struct clv_model *m;
	struct clv_fields f; /* the description */
	struct said *said;
};

static const struct clv_field group_size = {
	"the group size of the quantization", {"group_size", "q_group_size"}, 1, 8192};
static const struct clv_field bit_count = {"the bits of a quantized weight", {"num_bits", "bits", "w_bit"}, 1, 16};

static void shape(struct said *s, enum clv_model_format format, enum clv_model_dtype weight, enum clv_model_dtype scale,
		  uint32_t group)
{
	s->quant.format = format;
	s->quant.weight_dtype = weight;
	s->quant.scale_dtype = scale;
	s->quant.group = group;
}

static bool exclude(struct reader *r, const char *name, enum clv_names_language language)
{
	json_t *list = json_object_get(r->f.object, name);
	if (!list || json_is_null(list))
		return true;
	if (r->said->excluded)
		return json_equal(list, r->said->excluded) ||
		       clv_error_set(r->f.err, "%s: %s%s and %s say different things", r->f.file, r->f.where, name,
				     r->said->excluded_name);
	r->said->excluded = list;
	r->said->language = language;
	snprintf(r->said->excluded_name, sizeof(r->said->excluded_name), "%s%s", r->f.where, name);
	return true;
}

/* The group size of a format that has only one. */
static bool fixed_group(struct reader *r, const struct clv_fields *f, const char *format, uint32_t must)
{
	uint32_t group = must;
	bool there;
	if (!clv_field_optional(f, &group_size, &group, &there, NULL))
		return false;
	if (group != must)
		return clv_error_set(f->err, "%s: %sgroup_size is %" PRIu32 ", but %s has groups of %" PRIu32, f->file,
				     f->where, group, format, must);
	return there ||
	       clv_model_note(r->m, f->err, "%s: no group_size; %s has groups of %" PRIu32, f->file, format, must);
}

/* weight_block_size, or block_structure: [outputs, inputs] */
static bool block(struct reader *r, const struct clv_fields *f, const char *name, json_t *v)
{
	uint32_t sides[2];
	if (!json_is_array(v) || json_array_size(v) != 2)
		return clv_error_set(f->err, "%s: %s%s is not a list of two numbers", f->file, f->where, name);
	for (size_t i = 0; i < 2; i++) {
		json_t *side = json_array_get(v, i);
		if (!json_is_integer(side) || json_integer_value(side) < 1 || json_integer_value(side) > 8192)
			return clv_error_set(f->err, "%s: %s%s has a side that is no whole number within 1 to 8192",
					     f->file, f->where, name);
		sides[i] = (uint32_t)json_integer_value(side);
	}
	shape(r->said, CLV_FORMAT_FP8_BLOCK, CLV_DTYPE_F8_E4M3, CLV_DTYPE_F32, 0);
	r->said->quant.block_rows = sides[0];
	r->said->quant.block_cols = sides[1];
	return true;
}

static bool integers(struct reader *r, const struct clv_fields *f, uint32_t bits, uint32_t group)
{
	if (bits != 4 && bits != 8)
		return clv_error_set(f->err, "%s: %s%s with %" PRIu32 " bits is not known, only with 4 and 8", f->file,
				     f->where, r->said->quant.method, bits);
	shape(r->said, CLV_FORMAT_INT, bits == 4 ? CLV_DTYPE_INT4 : CLV_DTYPE_INT8, r->m->dtype, group);
	return true;
}

/* A group size of which -1 means the whole row: *group is 0 then. */
static bool group_or_row(const struct clv_fields *f, uint32_t *group)
{
	static const char *const names[] = {"group_size", "q_group_size"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++) {
		json_t *v = json_object_get(f->object, names[i]);
		if (json_is_integer(v) && json_integer_value(v) == -1) {
			*group = 0;
			return true;
		}
	}
	return clv_field_required(f, &group_size, group, NULL);
}

/* ---- modelopt (NVIDIA Model Optimizer): config.json's quantization_config, or hf_quant_config.json's quantization ---- */

static const struct modelopt_algo {
	const char *name;
	enum clv_model_format format;
} modelopt_algos[] = {
	{"NVFP4", CLV_FORMAT_NVFP4},         {"W4A16_NVFP4", CLV_FORMAT_NVFP4},
	{"FP8", CLV_FORMAT_FP8_TENSOR},      {"FP8_PER_CHANNEL_PER_TOKEN", CLV_FORMAT_FP8_CHANNEL},
	{"FP8_PB_WO", CLV_FORMAT_FP8_BLOCK},
};

static bool modelopt_algo(struct reader *r, const struct clv_fields *f, const char *algo)
{
	struct said *s = r->said;
	size_t i = 0;
	while (i < CLV_ARRAY_LEN(modelopt_algos) && strcmp(modelopt_algos[i].name, algo))
		i++;
	if (i == CLV_ARRAY_LEN(modelopt_algos))
		return clv_error_set(
			f->err,
			"%s: %squant_algo is \"%s\", which is not known here; known are NVFP4, W4A16_NVFP4, "
			"FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO and MIXED_PRECISION",
			f->file, f->where, algo);
	snprintf(s->quant.kind, sizeof(s->quant.kind), "%s", algo);
	switch (modelopt_algos[i].format) {
	case CLV_FORMAT_NVFP4:
		shape(s, CLV_FORMAT_NVFP4, CLV_DTYPE_F4_E2M1, CLV_DTYPE_F8_E4M3, 16);
		return fixed_group(r, f, "NVFP4", 16);
	case CLV_FORMAT_FP8_BLOCK:
		shape(s, CLV_FORMAT_FP8_BLOCK, CLV_DTYPE_F8_E4M3, CLV_DTYPE_F32, 0);
		s->quant.block_rows = s->quant.block_cols = 128;
		return clv_model_note(r->m, f->err, "%s: FP8_PB_WO has blocks of 128 x 128", f->file);
	default:
		shape(s, modelopt_algos[i].format, CLV_DTYPE_F8_E4M3, CLV_DTYPE_F32, 0);
		return true;
	}
}

static bool modelopt_mixed(struct reader *r)
{
	const struct clv_model *m = r->m;
	json_t *layers = json_object_get(r->f.object, "quantized_layers"), *first = NULL;
	uint32_t first_layer = 0, plain = 0;
	char list[96];
	if (!json_is_object(layers))
		return clv_error_set(r->f.err,
				     "%s: %squant_algo is MIXED_PRECISION, but there is no object %squantized_layers",
				     r->f.file, r->f.where, r->f.where);
	snprintf(list, sizeof(list), "%squantized_layers", r->f.where);
	struct clv_names *names = clv_names_make(m, layers, list, CLV_NAMES_KEYS, r->f.err);
	if (!names)
		return false;
	bool good = true;
	r->said->plain = calloc(m->layers, 1);
	if (!r->said->plain)
		good = clv_error_set(r->f.err, "%s: host memory is out", r->f.file);
	for (uint32_t l = 0; good && l < m->layers; l++) {
		if (!(m->layer[l] & CLV_LAYER_EXPERTS))
			continue;
		const char *key = clv_names_key(names, l);
		json_t *v = key ? json_object_get(layers, key) : NULL;
		if (!v) {
			r->said->plain[l] = 1;
			plain++;
		} else if (!first) {
			first = v;
			first_layer = l;
		} else if (!json_equal(first, v))
			good = clv_error_set(r->f.err,
					     "%s: the experts of layers %" PRIu32 " and %" PRIu32
					     " are quantized in different ways, which no plan here can have",
					     r->f.file, first_layer, l);
	}
	clv_names_free(names);
	if (!good)
		return false;
	char where[128], algo[48];
	snprintf(where, sizeof(where), "%squantized_layers[experts of layer %" PRIu32 "].", r->f.where, first_layer);
	struct clv_fields f = {r->f.file, where, first, r->f.err};
	if (!first)
		return clv_error_set(r->f.err,
				     "%s: %squantized_layers has no experts: looked for model.layers.N.mlp.experts and "
				     "the like",
				     r->f.file, r->f.where);
	if (!json_is_object(first))
		return clv_error_set(r->f.err, "%s: %s is %s, not an object", r->f.file, where, clv_json_kind(first));
	if (plain && !clv_model_note(r->m, r->f.err,
				     "%s: the experts of %" PRIu32 " layers are not in quantized_layers, so they "
				     "are not quantized",
				     r->f.file, plain))
		return false;
	if (!clv_field_text(&f, "quant_algo", algo, sizeof(algo)))
		return false;
	return modelopt_algo(r, &f, algo);
}

/* config.json of newer versions has the group size only in config_groups; it is fixed, so what lies there is only checked. */
static bool modelopt(struct reader *r)
{
	char algo[48];
	if (!clv_field_text(&r->f, "quant_algo", algo, sizeof(algo)) ||
	    !exclude(r, "exclude_modules", CLV_NAMES_WILDCARD) || !exclude(r, "ignore", CLV_NAMES_WILDCARD))
		return false;
	if (!algo[0])
		return clv_error_set(r->f.err,
				     "%s: the algorithm of the quantization is missing: looked for %squant_algo",
				     r->f.file, r->f.where);
	if (!strcmp(algo, "MIXED_PRECISION"))
		return modelopt_mixed(r);
	return modelopt_algo(r, &r->f, algo);
}

/* ---- compressed-tensors ---- */

/* Whether a group's targets mean experts: 2 by name, 1 by class, 0 no, -1 error. */
static int targets_experts(struct reader *r, json_t *group, const char *where)
{
	json_t *targets = json_object_get(group, "targets"), *v;
	const char *which;
	size_t i;
	int found = 0;
	struct clv_names *names =
		clv_names_make(r->m, targets ? targets : json_null(), where, CLV_NAMES_EQUAL_OR_RE, r->f.err);
	if (!names)
		return -1;
	json_array_foreach(targets, i, v) if (!strcmp(json_string_value(v), "Linear")) found = 1;
	for (uint32_t l = 0; l < r->m->layers; l++) {
		if (!(r->m->layer[l] & CLV_LAYER_EXPERTS))
			continue;
		if (clv_names_experts(names, l, &which) != CLV_NAMES_NONE)
			found = 2;
		break;
	}
	clv_names_free(names);
	return found;
}

static bool act_order(const struct clv_fields *f, bool *order)
{
	json_t *v = json_object_get(f->object, "actorder");
	*order = false;
	if (!v || json_is_null(v) || json_is_false(v))
		return true;
	const char *text = json_string_value(v);
	if (json_is_true(v) || (text && (!strcmp(text, "group") || !strcmp(text, "dynamic")))) {
		*order = true;
		return true;
	}
	return (text && (!strcmp(text, "static") || !strcmp(text, "weight"))) ||
	       clv_error_set(f->err, "%s: %sactorder is none of null, false, true, group, dynamic, weight and static",
			     f->file, f->where);
}

static bool compressed_float(struct reader *r, const struct clv_fields *w, const char *strategy)
{
	struct said *s = r->said;
	json_t *structure = json_object_get(w->object, "block_structure");
	if (!strcmp(strategy, "block"))
		return block(r, w, "block_structure", structure ? structure : json_null());
	shape(s, CLV_FORMAT_FP8_CHANNEL, CLV_DTYPE_F8_E4M3, CLV_DTYPE_F32, 0);
	if (!strcmp(strategy, "channel"))
		return true;
	if (!strcmp(strategy, "tensor")) {
		s->quant.format = CLV_FORMAT_FP8_TENSOR;
		return true;
	}
	json_t *size = json_object_get(w->object, "group_size");
	if (!strcmp(strategy, "group") && (!size || json_is_null(size)))
		return clv_model_note(r->m, w->err,
				      "%s: %sstrategy is group, but there is no group_size; taken as channel, "
				      "one scale for a row, which is what FP8 checkpoints of this format have",
				      w->file, w->where);
	return clv_error_set(w->err,
			     "%s: %sstrategy \"%s\" is not known for 8-bit floats; known are block, channel and tensor",
			     w->file, w->where, strategy);
}

static bool compressed_weights(struct reader *r, const struct clv_fields *w, const char *format)
{
	struct said *s = r->said;
	char type[16], strategy[32];
	uint32_t bits, group;
	bool symmetric;
	if (!clv_field_required(w, &bit_count, &bits, NULL) || !clv_field_text(w, "type", type, sizeof(type)) ||
	    !clv_field_text(w, "strategy", strategy, sizeof(strategy)))
		return false;
	snprintf(s->quant.kind, sizeof(s->quant.kind), "%s", format);
	bool fp4 = !strcmp(type, "float") && bits == 4, fp8 = !strcmp(type, "float") && bits == 8,
	     ints = !strcmp(type, "int");
	if (!strcmp(format, "nvfp4-pack-quantized") && fp4) {
		shape(s, CLV_FORMAT_NVFP4, CLV_DTYPE_F4_E2M1, CLV_DTYPE_F8_E4M3, 16);
		return fixed_group(r, w, format, 16);
	}
	if (!strcmp(format, "mxfp4-pack-quantized") && fp4) {
		shape(s, CLV_FORMAT_MXFP4, CLV_DTYPE_F4_E2M1, CLV_DTYPE_F8_E8M0, 32);
		return fixed_group(r, w, format, 32);
	}
	if (!strcmp(format, "float-quantized") && fp8)
		return compressed_float(r, w, strategy);
	if (strcmp(format, "pack-quantized") || !ints)
		return clv_error_set(
			w->err,
			"%s: compressed-tensors with format \"%s\", type \"%s\" and %" PRIu32 " bits is not known "
			"here; known formats are nvfp4-pack-quantized and mxfp4-pack-quantized (float, 4), "
			"float-quantized (float, 8), pack-quantized (int, 4 or 8)",
			w->file, format, type, bits);
	if (!strcmp(strategy, "channel"))
		group = 0;
	else if (strcmp(strategy, "group"))
		return clv_error_set(w->err,
				     "%s: %sstrategy \"%s\" is not known for integers; known are group and channel",
				     w->file, w->where, strategy);
	else if (!group_or_row(w, &group))
		return false;
	if (!integers(r, w, bits, group) || !act_order(w, &s->quant.act_order) ||
	    !clv_field_flag(w, "symmetric", true, &symmetric))
		return false;
	s->quant.zero_points = !symmetric;
	return json_object_get(w->object, "symmetric") ||
	       clv_model_note(r->m, w->err, "%s: %ssymmetric is not there; it is true by default, so no zero points",
			      w->file, w->where);
}

static bool compressed(struct reader *r)
{
	json_t *groups = json_object_get(r->f.object, "config_groups"), *v, *chosen = NULL;
	const char *key;
	char format[48], where[192] = "";
	int best = 0;
	if (!json_is_object(groups))
		return clv_error_set(
			r->f.err, "%s: how the weights are quantized is missing: looked for an object %sconfig_groups",
			r->f.file, r->f.where);
	if (!exclude(r, "ignore", CLV_NAMES_EQUAL_OR_RE))
		return false;
	json_object_foreach(groups, key, v)
	{
		char at[192];
		snprintf(at, sizeof(at), "%sconfig_groups.%.64s.targets", r->f.where, key);
		if (!json_is_object(v))
			return clv_error_set(r->f.err, "%s: %sconfig_groups.%.64s is %s, not an object", r->f.file,
					     r->f.where, key, clv_json_kind(v));
		int how = targets_experts(r, v, at);
		if (how < 0)
			return false;
		if (how > best) {
			best = how;
			chosen = v;
			snprintf(where, sizeof(where), "%sconfig_groups.%.64s.", r->f.where, key);
		}
	}
	if (!chosen) {
		shape(r->said, CLV_FORMAT_PLAIN, r->m->dtype, r->m->dtype, 0);
		return clv_model_note(r->m, r->f.err,
				      "%s: no group of %sconfig_groups targets experts, so they are not quantized",
				      r->f.file, r->f.where);
	}
	struct clv_fields g = {r->f.file, where, chosen, r->f.err};
	if (!clv_field_text(&g, "format", format, sizeof(format)) ||
	    (!format[0] && !clv_field_text(&r->f, "format", format, sizeof(format))))
		return false;
	if (!format[0])
		return clv_error_set(r->f.err, "%s: the format is missing: looked for %sformat and %sformat", r->f.file,
				     where, r->f.where);
	json_t *weights = json_object_get(chosen, "weights");
	if (!json_is_object(weights))
		return clv_error_set(r->f.err,
				     "%s: how the weights are quantized is missing: looked for an object %sweights",
				     r->f.file, where);
	char deeper[224];
	snprintf(deeper, sizeof(deeper), "%sweights.", where);
	struct clv_fields w = {r->f.file, deeper, weights, r->f.err};
	return compressed_weights(r, &w, format);
}

/* ---- the others ---- */

static bool fp8(struct reader *r, json_t *config)
{
	struct said *s = r->said;
	char fmt[16], scale_fmt[16], experts[16];
	json_t *size = json_object_get(r->f.object, "weight_block_size");
	if (!exclude(r, "modules_to_not_convert", CLV_NAMES_EXPERTS) ||
	    !exclude(r, "ignored_layers", CLV_NAMES_EXPERTS) || !clv_field_text(&r->f, "fmt", fmt, sizeof(fmt)) ||
	    !clv_field_text(&r->f, "scale_fmt", scale_fmt, sizeof(scale_fmt)) ||
	    !clv_field_text(&r->f, "expert_dtype", experts, sizeof(experts)))
		return false;
	if (fmt[0] && strcmp(fmt, "e4m3"))
		return clv_error_set(r->f.err, "%s: %sfmt is \"%s\", and only e4m3 is known", r->f.file, r->f.where,
				     fmt);
	if (scale_fmt[0] && strcmp(scale_fmt, "ue8m0") && strcmp(scale_fmt, "float"))
		return clv_error_set(r->f.err, "%s: %sscale_fmt is \"%s\"; known are ue8m0 and float", r->f.file,
				     r->f.where, scale_fmt);
	/* DeepSeek-V4: FP8 all over, but the experts in FP4 */
	struct clv_fields root = {r->f.file, "", config, r->f.err};
	if (!experts[0] && !clv_field_text(&root, "expert_dtype", experts, sizeof(experts)))
		return false;
	if (!experts[0] && !strncmp(r->m->type, "deepseek_v4", 11))
		return clv_error_set(
			r->f.err,
			"%s: the dtype of the experts is missing: looked for expert_dtype (fp4 or fp8) in the "
			"file and in %.*s",
			r->f.file, (int)strlen(r->f.where) - 1, r->f.where);
	if (!strcmp(experts, "fp4")) {
		shape(s, CLV_FORMAT_MXFP4, CLV_DTYPE_F4_E2M1, CLV_DTYPE_F8_E8M0, 32);
		return clv_model_note(r->m, r->f.err, "%s: expert_dtype is fp4: e2m1 in groups of 32 with e8m0 scales",
				      r->f.file);
	}
	if (experts[0] && strcmp(experts, "fp8"))
		return clv_error_set(r->f.err, "%s: expert_dtype is \"%s\"; known are fp4 and fp8", r->f.file, experts);
	if (size && !json_is_null(size)) {
		if (!block(r, &r->f, "weight_block_size", size))
			return false;
		s->quant.scale_ue8m0 = !strcmp(scale_fmt, "ue8m0");
		return true;
	}
	shape(s, CLV_FORMAT_FP8_TENSOR, CLV_DTYPE_F8_E4M3, CLV_DTYPE_F32, 0);
	return clv_model_note(r->m, r->f.err, "%s: no %sweight_block_size, so one scale for a matrix", r->f.file,
			      r->f.where);
}

static bool mxfp4(struct reader *r)
{
	shape(r->said, CLV_FORMAT_MXFP4, CLV_DTYPE_F4_E2M1, CLV_DTYPE_F8_E8M0, 32);
	return exclude(r, "modules_to_not_convert", CLV_NAMES_EXPERTS) && fixed_group(r, &r->f, "MXFP4", 32);
}

static bool gptq(struct reader *r)
{
	uint32_t bits, group;
	bool symmetric;
	json_t *rules = json_object_get(r->f.object, "dynamic");
	if (rules && !json_is_null(rules) && !(json_is_object(rules) && !json_object_size(rules)))
		return clv_error_set(r->f.err, "%s: %sdynamic has rules by module, which are not known here", r->f.file,
				     r->f.where);
	if (!clv_field_required(&r->f, &bit_count, &bits, NULL) || !group_or_row(&r->f, &group) ||
	    !integers(r, &r->f, bits, group) || !clv_field_flag(&r->f, "desc_act", false, &r->said->quant.act_order) ||
	    !clv_field_flag(&r->f, "sym", true, &symmetric))
		return false;
	if (!json_object_get(r->f.object, "desc_act") || !json_object_get(r->f.object, "sym"))
		return clv_error_set(r->f.err, "%s: %s is missing: looked for %s%s", r->f.file,
				     json_object_get(r->f.object, "sym") ? "the order of activations"
									 : "whether it is symmetric",
				     r->f.where, json_object_get(r->f.object, "sym") ? "desc_act" : "sym");
	r->said->quant.zero_points = !symmetric;
	return true;
}

static bool awq(struct reader *r)
{
	uint32_t bits, group;
	if (!json_object_get(r->f.object, "zero_point"))
		return clv_error_set(r->f.err, "%s: whether there are zero points is missing: looked for %szero_point",
				     r->f.file, r->f.where);
	return exclude(r, "modules_to_not_convert", CLV_NAMES_PART) &&
	       clv_field_required(&r->f, &bit_count, &bits, NULL) && group_or_row(&r->f, &group) &&
	       integers(r, &r->f, bits, group) &&
	       clv_field_flag(&r->f, "zero_point", true, &r->said->quant.zero_points);
}

static bool by_method(struct reader *r, json_t *config)
{
	char *method = r->said->quant.method;
	if (!clv_field_text(&r->f, "quant_method", method, sizeof(r->said->quant.method)))
		return false;
	if (!method[0])
		return clv_error_set(r->f.err,
				     "%s: the method of the quantization is missing: looked for %squant_method",
				     r->f.file, r->f.where);
	if (!strcmp(method, "modelopt") || !strcmp(method, "modelopt_fp4") || !strcmp(method, "modelopt_mixed"))
		return modelopt(r);
	if (!strcmp(method, "compressed-tensors"))
		return compressed(r);
	if (!strcmp(method, "fp8"))
		return fp8(r, config);
	if (!strcmp(method, "mxfp4") || !strcmp(method, "gpt_oss_mxfp4"))
		return mxfp4(r);
	if (!strcmp(method, "gptq") || !strcmp(method, "gptq_marlin"))
		return gptq(r);
	if (!strcmp(method, "awq") || !strcmp(method, "awq_marlin"))
		return awq(r);
	return clv_error_set(r->f.err,
			     "%s: %squant_method is \"%s\", which is not known here; known are modelopt, "
			     "compressed-tensors, fp8, mxfp4, gptq and awq",
			     r->f.file, r->f.where, method);
}

/* ---- which description counts ---- */

static bool same(const struct clv_model_quant *a, const struct clv_model_quant *b)
{
	return a->format == b->format && a->weight_dtype == b->weight_dtype && a->group == b->group &&
	       a->block_rows == b->block_rows && a->block_cols == b->block_cols && a->zero_points == b->zero_points;
}

static bool mark_plain(struct clv_model *m, const struct said *s, struct clv_error *err)
{
	struct clv_names *names = NULL;
	if (s->excluded) {
		names = clv_names_make(m, s->excluded, s->excluded_name, s->language, err);
		if (!names)
			return false;
	}
	bool good = true;
	for (uint32_t l = 0; good && l < m->layers; l++) {
		const char *which = NULL;
		if (!(m->layer[l] & CLV_LAYER_EXPERTS))
			continue;
		enum clv_names_verdict v = names ? clv_names_experts(names, l, &which) : CLV_NAMES_NONE;
		if (v == CLV_NAMES_SOME)
			good = clv_error_set(
				err,
				"%s: %s has \"%.200s\", which leaves out some matrices of the experts of layer %" PRIu32
				" and not others",
				m->path, s->excluded_name, which, l);
		if (v == CLV_NAMES_ALL || (s->plain && s->plain[l])) {
			m->layer[l] |= CLV_LAYER_PLAIN;
			m->plain_layers++;
		}
	}
	clv_names_free(names);
	if (good && m->plain_layers && s->excluded)
		good = clv_model_note(m, err,
				      "%s: the experts of %" PRIu32 " of %" PRIu32 " layers are not quantized (%s)",
				      m->path, m->plain_layers, m->moe_layers, s->excluded_name);
	return good;
}

static json_t *member(json_t *object, const char *name)
{
	json_t *v = json_object_get(object, name);
	return v && !json_is_null(v) ? v : NULL;
}

static bool read_one(struct clv_model *m, json_t *config, json_t *description, const char *file, const char *where,
		     struct said *s, struct clv_error *err)
{
	struct reader r = {.m = m, .f = {file, where, description, err}, .said = s};
	if (!json_is_object(description))
		return clv_error_set(err, "%s: %.*s is %s, not an object", file, (int)strlen(where) - 1, where,
				     clv_json_kind(description));
	if (strcmp(where, "quantization."))
		return by_method(&r, config);
	snprintf(s->quant.method, sizeof(s->quant.method), "modelopt"); /* whose file it is */
	return modelopt(&r);
}

bool clv_model_read_quant(struct clv_model *m, json_t *config, json_t *hf, const char *hf_path, struct clv_error *err)
{
	json_t *text = json_object_get(config, "text_config");
	json_t *inner = hf ? member(hf, "quantization") : NULL;
	const struct {
		json_t *v;
		const char *file, *where;
	} places[] = {{member(config, "quantization_config"), m->path, "quantization_config."},
		      {member(text, "quantization_config"), m->path, "text_config.quantization_config."},
		      {member(config, "compression_config"), m->path, "compression_config."},
		      {inner, hf_path, "quantization."}};
	struct said first = {0};
	size_t from = 0;
	bool good = true, found = false;
	if (hf && !inner)
		return clv_error_set(err, "%s: no object \"quantization\"", hf_path);
	for (size_t i = 0; good && i < CLV_ARRAY_LEN(places); i++) {
		struct said s = {0};
		if (!places[i].v)
			continue;
		good = read_one(m, config, places[i].v, places[i].file, places[i].where, &s, err);
		if (good && found && !same(&s.quant, &first.quant))
			good = clv_error_set(err, "%s: %.*s says %s, but in %s %.*s says %s", places[i].file,
					     (int)strlen(places[i].where) - 1, places[i].where,
					     clv_format_name(s.quant.format), places[from].file,
					     (int)strlen(places[from].where) - 1, places[from].where,
					     clv_format_name(first.quant.format));
		if (good && !found) {
			first = s;
			from = i;
			found = true;
			continue;
		}
		free(s.plain);
	}
	if (good && !found)
		shape(&first, CLV_FORMAT_PLAIN, m->dtype, m->dtype, 0);
	if (good) {
		m->quant = first.quant;
		if (first.quant.format != CLV_FORMAT_PLAIN)
			good = mark_plain(m, &first, err);
	}
	free(first.plain);
	return good;
}
