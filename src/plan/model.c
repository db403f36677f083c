/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* asprintf */
#include "model.h"
#include "model_fields.h"
#include "model_quant.h"
#include "../base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The fields, by family (moe-layouts: DeepSeek/Kimi-K2/GLM/Nemotron; Qwen3; Mixtral/gpt-oss/MiniMax/Llama-4; Kimi-K3). */
static const struct clv_field layer_count = {"the number of layers", {"num_hidden_layers"}, 1, CLV_MODEL_LAYERS_MAX};
static const struct clv_field expert_count = {
	"the number of experts", {"n_routed_experts", "num_experts", "num_local_experts"}, 1, CLV_MODEL_EXPERTS_MAX};
static const struct clv_field per_token = {"the number of experts for a token",
					   {"num_experts_per_tok", "num_experts_per_token", "experts_per_token"},
					   1,
					   CLV_MODEL_EXPERTS_MAX};
static const struct clv_field hidden_size = {"the hidden size", {"hidden_size"}, 1, CLV_MODEL_HIDDEN_MAX};
static const struct clv_field routed_size = {
	"the hidden size of routed experts", {"routed_expert_hidden_size", "moe_latent_size"}, 1, CLV_MODEL_HIDDEN_MAX};
static const struct clv_field moe_size = {
	"the intermediate size of an expert", {"moe_intermediate_size"}, 1, CLV_MODEL_INTERMEDIATE_MAX};
static const struct clv_field plain_size = {
	"the intermediate size of an expert", {"intermediate_size"}, 1, CLV_MODEL_INTERMEDIATE_MAX};
static const struct clv_field shared_count = {
	"the number of shared experts", {"n_shared_experts", "num_shared_experts"}, 0, 64};
static const struct clv_field shared_each = {"the intermediate size of a shared expert",
					     {"moe_shared_expert_intermediate_size"},
					     0,
					     CLV_MODEL_INTERMEDIATE_MAX};
static const struct clv_field shared_all = {"the intermediate size of the shared experts",
					    {"shared_expert_intermediate_size", "shared_intermediate_size"},
					    0,
					    CLV_MODEL_INTERMEDIATE_MAX};
static const struct clv_field group_count = {
	"the number of groups of experts", {"n_group", "num_expert_group"}, 0, CLV_MODEL_EXPERTS_MAX};
static const struct clv_field mtp_count = {
	"the number of layers for multi-token prediction", {"num_nextn_predict_layers"}, 0, 64};
static const struct clv_field floor_size = {
	"the least intermediate size of a rank", {"min_moe_intermediate_per_partition"}, 1, CLV_MODEL_INTERMEDIATE_MAX};

unsigned clv_dtype_bits(enum clv_model_dtype dtype)
{
	static const unsigned char bits[CLV_DTYPES] = {16, 16, 32, 8, 8, 4, 4, 8};
	return bits[dtype];
}

const char *clv_dtype_name(enum clv_model_dtype dtype)
{
	static const char *const names[CLV_DTYPES] = {"bfloat16",       "float16",     "float32", "float8_e4m3fn",
						      "float8_e8m0fnu", "float4_e2m1", "int4",    "int8"};
	return names[dtype];
}

const char *clv_format_name(enum clv_model_format format)
{
	static const char *const names[CLV_FORMATS] = {"unquantized",       "NVFP4",          "MXFP4",
						       "FP8 in blocks",     "FP8 by channel", "FP8 by tensor",
						       "integers in groups"};
	return names[format];
}

static bool is_type(const struct clv_model *m, const char *type)
{
	return !strncmp(m->type, type, strlen(type));
}

/* ---- which layers ---- */

/* A list of indices of layers, marked in `in`. */
static bool index_list(const struct clv_fields *f, const struct clv_model *m, const char *name, json_t *list,
		       uint8_t *in)
{
	size_t i;
	json_t *v;
	if (!json_is_array(list))
		return clv_error_set(f->err, "%s: %s%s is %s, not a list of layers", f->file, f->where, name,
				     clv_json_kind(list));
	json_array_foreach(list, i, v)
	{
		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= (json_int_t)m->layers)
			return clv_error_set(
				f->err, "%s: %s%s has at position %zu what is not the number of a layer, 0 to %" PRIu32,
				f->file, f->where, name, i, m->layers - 1);
		in[json_integer_value(v)] = 1;
	}
	return true;
}

static json_t *present(const struct clv_fields *f, const char *name)
{
	json_t *v = json_object_get(f->object, name);
	return v && !json_is_null(v) ? v : NULL;
}

/* Llama-4: every so many layers (vllm llama4.py), or a list (Hugging Face). True with *there false if it says neither. */
static bool interleaved_layers(const struct clv_fields *f, struct clv_model *m, uint8_t *has, bool *there)
{
	const struct clv_field step_field = {
		"the step between layers with experts", {"interleave_moe_layer_step"}, 0, m->layers};
	uint8_t by_step[CLV_MODEL_LAYERS_MAX] = {0};
	uint32_t step = 0;
	bool stepped;
	json_t *list = present(f, "moe_layers");
	if (!clv_field_optional(f, &step_field, &step, &stepped, NULL))
		return false;
	for (uint32_t l = 0; l < m->layers; l++)
		by_step[l] = step && (l + 1) % step == 0;
	*there = stepped || list;
	if (list && !index_list(f, m, "moe_layers", list, has))
		return false;
	if (!list && stepped)
		memcpy(has, by_step, m->layers);
	return !list || !stepped || !memcmp(has, by_step, m->layers) ||
	       clv_error_set(f->err, "%s: %smoe_layers and %sinterleave_moe_layer_step say different things", f->file,
			     f->where, f->where);
}

/* Nemotron-H: a letter a layer, E for experts (vllm nemotron_h.py). */
static bool lettered_layers(const struct clv_fields *f, struct clv_model *m, json_t *pattern, uint8_t *has)
{
	const char *text = json_string_value(pattern);
	if (!text || json_string_length(pattern) != m->layers || strspn(text, "ME*-") != m->layers)
		return clv_error_set(f->err,
				     "%s: %shybrid_override_pattern is not a text of %" PRIu32
				     " letters of M, E, * and -, "
				     "one a layer",
				     f->file, f->where, m->layers);
	for (uint32_t l = 0; l < m->layers; l++)
		has[l] = text[l] == 'E';
	return true;
}

/* DeepSeek, Kimi, GLM: the first layers are dense; of the others every so many, from layer 0 (vllm deepseek_v2.py), or, as a
 * list, those with 1 (vllm mimo_v2_flash.py). */
static bool dense_first(const struct clv_fields *f, struct clv_model *m, uint8_t *has, bool required)
{
	const struct clv_field first_field = {
		"the number of first layers without experts", {"first_k_dense_replace"}, 0, m->layers};
	const struct clv_field freq_field = {"the step between layers with experts", {"moe_layer_freq"}, 1, m->layers};
	uint32_t first = 0, freq = 1;
	bool there, freq_there = false;
	json_t *list = present(f, "moe_layer_freq"), *v;
	size_t i;
	list = json_is_array(list) ? list : NULL;
	if (!clv_field_optional(f, &first_field, &first, &there, NULL))
		return false;
	if (!there && !list && required)
		return clv_field_required(f, &first_field, &first, NULL);
	if (!list && !clv_field_optional(f, &freq_field, &freq, &freq_there, NULL))
		return false;
	if (!list && there && !freq_there &&
	    !clv_model_note(m, f->err,
			    "%s: no %smoe_layer_freq; 1 is assumed: all layers but the first %" PRIu32 " have experts",
			    f->file, f->where, first))
		return false;
	if (list && json_array_size(list) != m->layers)
		return clv_error_set(f->err, "%s: %smoe_layer_freq is a list of %zu, but there are %" PRIu32 " layers",
				     f->file, f->where, json_array_size(list), m->layers);
	for (uint32_t l = 0; l < m->layers; l++)
		has[l] = has[l] && l >= first && l % freq == 0;
	json_array_foreach(list, i, v)
	{
		if (!json_is_integer(v) || (json_integer_value(v) != 0 && json_integer_value(v) != 1))
			return clv_error_set(f->err, "%s: %smoe_layer_freq has at position %zu what is neither 0 nor 1",
					     f->file, f->where, i);
		has[i] = has[i] && json_integer_value(v);
	}
	return true;
}

/* Qwen: every so many layers, but not those of a list (vllm qwen3_moe.py). */
static bool sparse_steps(const struct clv_fields *f, struct clv_model *m, uint8_t *has)
{
	const struct clv_field step_field = {
		"the step between layers with experts", {"decoder_sparse_step"}, 1, m->layers};
	uint8_t dense[CLV_MODEL_LAYERS_MAX] = {0};
	uint32_t step = 1;
	bool there;
	json_t *list = present(f, "mlp_only_layers");
	if (!clv_field_optional(f, &step_field, &step, &there, NULL) ||
	    (list && !index_list(f, m, "mlp_only_layers", list, dense)))
		return false;
	for (uint32_t l = 0; l < m->layers; l++)
		has[l] = has[l] && (l + 1) % step == 0 && !dense[l];
	return true;
}

static bool read_layers(const struct clv_fields *f, struct clv_model *m, const char *expert_name)
{
	uint8_t has[CLV_MODEL_LAYERS_MAX];
	bool explicit_ones = false;
	json_t *pattern = present(f, "hybrid_override_pattern");
	memset(has, 1, sizeof(has));
	if (pattern) {
		if (!lettered_layers(f, m, pattern, has))
			return false;
	} else {
		uint8_t listed[CLV_MODEL_LAYERS_MAX] = {0};
		if (!interleaved_layers(f, m, listed, &explicit_ones))
			return false;
		if (explicit_ones)
			memcpy(has, listed, sizeof(has));
		/* the classes of n_routed_experts have defaults that differ, but for DeepSeek-V4 without dense layers */
		bool required =
			!strcmp(expert_name, "n_routed_experts") && !is_type(m, "deepseek_v4") && !explicit_ones;
		if (!dense_first(f, m, has, required) || !sparse_steps(f, m, has))
			return false;
	}
	m->layer = calloc(m->layers, 1);
	if (!m->layer)
		return clv_error_set(f->err, "%s: host memory is out", f->file);
	for (uint32_t l = 0; l < m->layers; l++) {
		m->layer[l] = has[l] ? CLV_LAYER_EXPERTS : 0;
		m->moe_layers += has[l];
	}
	if (!m->moe_layers)
		return clv_error_set(
			f->err,
			"%s: no layer (of %" PRIu32 ") has experts, by what first_k_dense_replace, "
			"moe_layer_freq, moe_layers, interleave_moe_layer_step, decoder_sparse_step, mlp_only_layers and "
			"hybrid_override_pattern say",
			f->file, m->layers);
	return m->moe_layers < m->layers ||
	       clv_model_note(m, f->err, "%s: no field takes experts from a layer, so each layer has them (%" PRIu32 ")",
			      f->file, m->layers);
}

/* ---- sizes ---- */

static bool read_intermediate(const struct clv_fields *f, struct clv_model *m, const char *expert_name)
{
	bool there;
	if (!clv_field_optional(f, &moe_size, &m->intermediate, &there, NULL))
		return false;
	if (there)
		return true;
	/* where experts are "local", intermediate_size is an expert's; so it is in gpt-oss, also in files with num_experts */
	if (!strcmp(expert_name, "num_local_experts") || is_type(m, "gpt_oss"))
		return clv_field_required(f, &plain_size, &m->intermediate, NULL);
	return clv_field_required(f, &moe_size, &m->intermediate, NULL);
}

static bool read_shared(const struct clv_fields *f, struct clv_model *m)
{
	uint32_t count = 0, each = 0, all = 0;
	bool has_count, has_each, has_all;
	const char *each_name, *all_name = "";
	if (!clv_field_optional(f, &shared_count, &count, &has_count, NULL) ||
	    !clv_field_optional(f, &shared_each, &each, &has_each, &each_name) ||
	    !clv_field_optional(f, &shared_all, &all, &has_all, &all_name))
		return false;
	if (has_each && has_all)
		return clv_error_set(f->err, "%s: %s%s and %s%s are both there", f->file, f->where, each_name, f->where,
				     all_name);
	if (!has_count && is_type(m, "llama4") && !has_all) {
		m->shared_experts = 1;
		m->shared_intermediate = m->intermediate;
		return clv_model_note(m, f->err, "%s: Llama-4 has one shared expert, of the size of a routed one",
				      f->file);
	}
	if (!has_count && (all || each)) {
		m->shared_experts = 1;
		m->shared_intermediate = all ? all : each;
		return clv_model_note(m, f->err,
				      "%s: no %sn_shared_experts; one is assumed since there is a size for it", f->file,
				      f->where);
	}
	m->shared_experts = count;
	m->shared_intermediate = !count ? 0 : has_all ? all : (has_each ? each : m->intermediate) * count;
	if (count && !m->shared_intermediate)
		return clv_error_set(f->err, "%s: there are %" PRIu32 " shared experts, but their size is 0", f->file,
				     count);
	return !count || has_all || has_each ||
	       clv_model_note(m, f->err, "%s: no size of shared experts; each is as a routed one, %" PRIu32, f->file,
			      m->intermediate);
}

static bool read_activation(const struct clv_fields *f, struct clv_model *m)
{
	static const char *const gated[] = {"silu", "swiglu", "swigluoai",        "swiglu_oai",
					    "situ", "gelu",   "gelu_pytorch_tanh"};
	static const char *const names[] = {"mlp_hidden_act", "hidden_act", "hidden_activation"};
	char act[48] = "";
	const char *name = "";
	bool bias;
	for (size_t i = 0; i < CLV_ARRAY_LEN(names) && !act[0]; i++) {
		name = names[i];
		if (!clv_field_text(f, name, act, sizeof(act)))
			return false;
	}
	if (!clv_field_flag(f, "mlp_bias", false, &bias))
		return false;
	if (bias)
		return clv_error_set(f->err,
				     "%s: %smlp_bias is true, and for experts with biases only gpt-oss's rule is known",
				     f->file, f->where);
	if (is_type(m, "gpt_oss")) {
		m->bias = m->interleaved = true;
		if (!clv_model_note(m, f->err,
				    "%s: gpt-oss's experts have biases, and gate and up in one tensor, row by row",
				    f->file))
			return false;
	}
	m->gated = true;
	for (size_t i = 0; i < CLV_ARRAY_LEN(gated); i++)
		if (!strcmp(act, gated[i]))
			return true;
	if (!strcmp(act, "relu2")) {
		m->gated = false;
		return true;
	}
	if (act[0])
		return clv_error_set(
			f->err, "%s: %s%s is \"%s\", of which it is not known here whether experts with it are gated",
			f->file, f->where, name, act);
	if (is_type(m, "nemotron_h"))
		return clv_error_set(f->err, "%s: the activation is missing: looked for %smlp_hidden_act", f->file,
				     f->where);
	return clv_model_note(m, f->err, "%s: no %shidden_act; gated experts are assumed, of three matrices", f->file,
			      f->where);
}

/* The dtype of what is not quantized. */
static bool read_dtype(const struct clv_fields *text, const struct clv_fields *root, struct clv_model *m,
		       bool quantized)
{
	static const struct {
		const char *name;
		enum clv_model_dtype dtype;
	} known[] = {{"bfloat16", CLV_DTYPE_BF16}, {"float16", CLV_DTYPE_F16}, {"float32", CLV_DTYPE_F32}};
	const struct clv_fields *places[] = {text, root};
	char dtype[48] = "";
	for (size_t i = 0; i < 4 && !dtype[0]; i++)
		if (!clv_field_text(places[i / 2], i % 2 ? "dtype" : "torch_dtype", dtype, sizeof(dtype)))
			return false;
	const char *name = strncmp(dtype, "torch.", 6) ? dtype : dtype + 6;
	for (size_t i = 0; i < CLV_ARRAY_LEN(known); i++) {
		if (!strcmp(name, known[i].name)) {
			m->dtype = known[i].dtype;
			return true;
		}
	}
	if (dtype[0])
		return clv_error_set(root->err, "%s: torch_dtype is \"%s\"; known are bfloat16, float16 and float32",
				     root->file, dtype);
	if (!quantized)
		return clv_error_set(
			root->err,
			"%s: there is no quantization, and the dtype is missing: looked for torch_dtype or dtype",
			root->file);
	m->dtype = CLV_DTYPE_BF16;
	return clv_model_note(m, root->err, "%s: no torch_dtype; bfloat16 is assumed for what is not quantized",
			      root->file);
}

/* Kimi-K3's model code pads (moe-layouts 3.3); others have no such rule. */
static bool read_floor(const struct clv_fields *text, const struct clv_fields *root, struct clv_model *m)
{
	bool there, in_root;
	if (!clv_field_optional(text, &floor_size, &m->intermediate_floor, &there, NULL) ||
	    (!there && !clv_field_optional(root, &floor_size, &m->intermediate_floor, &in_root, NULL)))
		return false;
	if (!m->intermediate_floor && is_type(m, "kimi_k3"))
		m->intermediate_floor = 256;
	return true;
}

static bool read_sizes(const struct clv_fields *f, struct clv_model *m)
{
	const char *expert_name = "";
	uint32_t groups = 0;
	bool there;
	json_t *experts = clv_field_find(f, &expert_count, &expert_name);
	if (!experts || (json_is_integer(experts) && json_integer_value(experts) == 0))
		return clv_error_set(f->err,
				     "%s: this model has no experts: looked for n_routed_experts, num_experts or "
				     "num_local_experts %s",
				     f->file, f->where[0] ? "in its text_config" : "in it; there is no text_config");
	if (!clv_field_required(f, &expert_count, &m->experts, &expert_name) ||
	    !clv_field_required(f, &layer_count, &m->layers, NULL) ||
	    !clv_field_required(f, &hidden_size, &m->hidden, NULL) ||
	    !clv_field_required(f, &per_token, &m->top_k, NULL))
		return false;
	if (m->top_k > m->experts)
		return clv_error_set(f->err, "%s: %" PRIu32 " experts for a token, of %" PRIu32 " experts", f->file,
				     m->top_k, m->experts);
	m->routed_hidden = m->hidden;
	if (!clv_field_optional(f, &routed_size, &m->routed_hidden, &there, NULL) ||
	    !clv_field_optional(f, &group_count, &groups, &there, NULL) ||
	    !clv_field_optional(f, &mtp_count, &m->mtp_layers, &there, NULL))
		return false;
	m->expert_groups = groups ? groups : 1;
	return read_intermediate(f, m, expert_name) && read_layers(f, m, expert_name) && read_shared(f, m) &&
	       read_activation(f, m);
}

static bool read_names(const struct clv_fields *root, struct clv_model *m)
{
	json_t *list = json_object_get(root->object, "architectures"), *v = json_array_get(list, 0);
	if (!clv_field_text(root, "model_type", m->type, sizeof(m->type)))
		return false;
	if (!m->type[0])
		return clv_error_set(root->err, "%s: the model's family is missing: looked for model_type", root->file);
	if (list && !json_is_null(list) && (!json_is_array(list) || (v && !json_is_string(v))))
		return clv_error_set(root->err, "%s: architectures is not a list of texts", root->file);
	snprintf(m->name, sizeof(m->name), "%s", v ? json_string_value(v) : m->type);
	for (char *c = m->name; *c; c++) /* it is printed */
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	return true;
}

static bool read_config(struct clv_model *m, json_t *config, json_t *hf, const char *hf_path, struct clv_error *err)
{
	json_t *text = json_object_get(config, "text_config");
	if (!json_is_object(config))
		return clv_error_set(err, "%s: this is %s, not an object", m->path, clv_json_kind(config));
	text = json_is_null(text) ? NULL : text;
	if (text && !json_is_object(text))
		return clv_error_set(err, "%s: text_config is %s, not an object", m->path, clv_json_kind(text));
	const struct clv_fields root = {m->path, "", config, err};
	const struct clv_fields inner = {m->path, text ? "text_config." : "", text ? text : config, err};
	static const char *const described[] = {"quantization_config", "compression_config"};
	bool quantized = hf != NULL;
	for (size_t i = 0; i < CLV_ARRAY_LEN(described); i++)
		quantized = quantized || present(&root, described[i]) || present(&inner, described[i]);
	if (!read_names(&root, m) || !read_sizes(&inner, m) || !read_dtype(&inner, &root, m, quantized) ||
	    !read_floor(&inner, &root, m) || !clv_model_read_quant(m, config, hf, hf_path, err))
		return false;
	m->split_by_groups = is_type(m, "gpt_oss") && m->quant.format == CLV_FORMAT_MXFP4;
	return true;
}

/* ---- texts and files ---- */

static bool is_between(char c)
{
	return c && strchr(" \t\r\n,:[]{}", c);
}

/* Python's json writes and reads numbers that JSON has not. They become ones of the same length that are not whole either, so
 * that positions in messages stay right, and a field that is used is refused by its name. */
static void replace_not_finite(char *text, size_t len)
{
	static const struct {
		const char *from, *to;
	} words[] = {{"NaN", "0.5"}, {"-Infinity", "-0.500000"}, {"Infinity", "0.500000"}};
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"') /* to the end of the string */
			for (i++; i < len && text[i] != '"'; i++)
				i += text[i] == '\\';
		bool begins = i < len && (text[i] == 'N' || text[i] == 'I' || text[i] == '-');
		for (size_t k = 0; begins && k < CLV_ARRAY_LEN(words); k++) {
			size_t n = strlen(words[k].from);
			if (n <= len - i && !memcmp(text + i, words[k].from, n) && i && is_between(text[i - 1]) &&
			    i + n < len && is_between(text[i + n]))
				memcpy(text + i, words[k].to, n);
		}
	}
}

/* As Python reads it. *twice: a line with a key that an object has already; the last one counts. */
static json_t *load(const char *path, const char *text, size_t len, int *twice, struct clv_error *err)
{
	static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, that some editors write */
	json_error_t where;
	size_t skip = len >= 3 && !memcmp(text, mark, 3) ? 3 : 0;
	char *copy = malloc(len + 1);
	if (!copy) {
		clv_error_set(err, "%s: host memory is out", path);
		return NULL;
	}
	len -= skip;
	memcpy(copy, text + skip, len);
	replace_not_finite(copy, len);
	json_t *v = json_loadb(copy, len, JSON_REJECT_DUPLICATES, &where);
	*twice = !v && json_error_code(&where) == json_error_duplicate_key ? where.line : 0;
	if (*twice)
		v = json_loadb(copy, len, 0, &where);
	free(copy);
	if (!v)
		clv_error_at(err, path, where.position > 0 ? (uint64_t)where.position + skip : 0, "line %d: %s",
			     where.line, where.text);
	return v;
}

static bool note_twice(struct clv_model *m, const char *path, int line, struct clv_error *err)
{
	return !line ||
	       clv_model_note(m, err, "%s: line %d: this key is there for the second time; the last one counts, as in Python",
			      path, line);
}

bool clv_model_parse(struct clv_model *m, const char *path, const char *config, size_t config_len,
		     const char *quant_path, const char *quant, size_t quant_len, struct clv_error *err)
{
	json_t *root = NULL, *hf = NULL;
	int twice[2] = {0};
	bool good = false;
	memset(m, 0, sizeof(*m));
	m->path = strdup(path);
	if (!m->path)
		return clv_error_set(err, "%s: host memory is out", path);
	root = load(path, config, config_len, &twice[0], err);
	if (root && quant)
		hf = load(quant_path, quant, quant_len, &twice[1], err);
	if (hf && !json_is_object(hf))
		clv_error_set(err, "%s: this is %s, not an object", quant_path, clv_json_kind(hf));
	else if (root && (hf || !quant))
		good = note_twice(m, path, twice[0], err) && note_twice(m, quant_path, twice[1], err) &&
		       read_config(m, root, hf, quant_path, err);
	json_decref(root);
	json_decref(hf);
	if (!good)
		clv_model_free(m);
	return good;
}

bool clv_model_read(struct clv_model *m, const char *path, struct clv_error *err)
{
	static const char what[] = "a configuration";
	struct stat st;
	char *config_path = NULL, *quant_path = NULL, *config = NULL, *quant = NULL;
	size_t config_len, quant_len;
	bool good = false;
	memset(m, 0, sizeof(*m));
	if (stat(path, &st))
		return clv_error_set(err, "%s: cannot be opened: %s", path, strerror(errno));
	bool folder = S_ISDIR(st.st_mode);
	size_t len = strlen(path);
	while (folder && len > 1 && path[len - 1] == '/')
		len--;
	const char *slash = strrchr(path, '/');
	int dir = folder ? (int)len : slash ? (int)(slash - path) : 1;
	const char *dir_text = folder || slash ? path : ".";
	if (asprintf(&config_path, "%.*s%s", (int)len, path, folder ? "/config.json" : "") < 0)
		config_path = NULL;
	if (asprintf(&quant_path, "%.*s/hf_quant_config.json", dir, dir_text) < 0)
		quant_path = NULL;
	if (!config_path || !quant_path)
		clv_error_set(err, "%s: host memory is out", path);
	else if (clv_file_read(config_path, true, CLV_MODEL_FILE_MAX, what, &config, &config_len, err) &&
		 clv_file_read(quant_path, false, CLV_MODEL_FILE_MAX, what, &quant, &quant_len, err))
		good = clv_model_parse(m, config_path, config, config_len, quant_path, quant, quant_len, err);
	free(config);
	free(quant);
	free(config_path);
	free(quant_path);
	return good;
}

void clv_model_free(struct clv_model *m)
{
	for (size_t i = 0; i < m->note_count; i++)
		free(m->notes[i]);
	free(m->notes);
	free(m->layer);
	free(m->path);
	memset(m, 0, sizeof(*m));
}
