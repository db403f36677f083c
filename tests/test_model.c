/* SPDX-License-Identifier: MIT */
#include "../src/plan/model.h"
#include "check_main.h"
#include "models.h"

#include <jansson.h>

/* A letter a layer: E has experts, p has experts that are not quantized. */
static void layers_are(const struct clv_model *m, const char *letters)
{
	ck_assert_uint_eq(m->layers, strlen(letters));
	uint32_t moe = 0, plain = 0;
	for (uint32_t l = 0; l < m->layers; l++) {
		uint8_t want = letters[l] == 'E'   ? CLV_LAYER_EXPERTS
			       : letters[l] == 'p' ? CLV_LAYER_EXPERTS | CLV_LAYER_PLAIN
						   : 0;
		ck_assert_msg(m->layer[l] == want, "layer %u", l);
		moe += want != 0;
		plain += want == (CLV_LAYER_EXPERTS | CLV_LAYER_PLAIN);
	}
	ck_assert_uint_eq(m->moe_layers, moe);
	ck_assert_uint_eq(m->plain_layers, plain);
}

static bool noted(const struct clv_model *m, const char *part)
{
	for (size_t i = 0; i < m->note_count; i++)
		if (strstr(m->notes[i], part))
			return true;
	return false;
}

START_TEST(reads_first_dense_layers_and_blocks)
{
	struct clv_model m;
	read_named(&m, "first_dense");
	ck_assert_str_eq(m.name, "DeepseekV3ForCausalLM");
	layers_are(&m, "--E-E");
	ck_assert_uint_eq(m.mtp_layers, 1);
	ck_assert_uint_eq(m.hidden, 256);
	ck_assert_uint_eq(m.routed_hidden, 256);
	ck_assert_uint_eq(m.intermediate, 512);
	ck_assert_uint_eq(m.experts, 6);
	ck_assert_uint_eq(m.expert_groups, 2);
	ck_assert_uint_eq(m.top_k, 2);
	ck_assert_uint_eq(m.shared_experts, 1);
	ck_assert_uint_eq(m.shared_intermediate, 512);
	ck_assert(m.gated && !m.bias);
	ck_assert_int_eq(m.quant.format, CLV_FORMAT_FP8_BLOCK);
	ck_assert_uint_eq(m.quant.block_rows, 128);
	ck_assert(m.quant.scale_ue8m0);
	ck_assert_int_eq(m.quant.scale_dtype, CLV_DTYPE_F32);
	clv_model_free(&m);
}
END_TEST

START_TEST(reads_steps_and_lists_of_dense_layers)
{
	struct clv_model m;
	read_named(&m, "sparse_step");
	layers_are(&m, "-E---E-");
	ck_assert_uint_eq(m.intermediate, 48);
	ck_assert_uint_eq(m.shared_experts, 1);
	ck_assert_uint_eq(m.shared_intermediate, 80);
	ck_assert(noted(&m, "no n_shared_experts; one is assumed"));
	ck_assert_int_eq(m.quant.format, CLV_FORMAT_PLAIN);
	ck_assert_int_eq(m.quant.weight_dtype, CLV_DTYPE_BF16);
	clv_model_free(&m);
}
END_TEST

START_TEST(reads_what_is_nested_and_what_is_ignored)
{
	struct clv_model m;
	read_named(&m, "interleaved");
	layers_are(&m, "-p-E-E"); /* the pattern for layers 1 and 2 means neither 11 nor 21, and 2 has no experts */
	ck_assert_uint_eq(m.intermediate, 96);
	ck_assert_uint_eq(m.shared_experts, 1);
	ck_assert_int_eq(m.quant.format, CLV_FORMAT_FP8_CHANNEL);
	ck_assert_str_eq(m.quant.method, "compressed-tensors");
	ck_assert(noted(&m, "of 1 of 3 layers are not quantized"));
	clv_model_free(&m);
}
END_TEST

START_TEST(reads_the_second_file_and_the_latent_size)
{
	struct clv_model m;
	read_named(&m, "latent");
	layers_are(&m, "-EpE");
	ck_assert_uint_eq(m.hidden, 256);
	ck_assert_uint_eq(m.routed_hidden, 128);
	ck_assert_uint_eq(m.shared_intermediate, 2 * 384);
	ck_assert_uint_eq(m.intermediate_floor, 64);
	ck_assert_int_eq(m.quant.format, CLV_FORMAT_NVFP4);
	ck_assert_uint_eq(m.quant.group, 16);
	ck_assert_str_eq(m.quant.kind, "NVFP4");
	clv_model_free(&m);
	read_named(&m, "latent/config.json"); /* and beside a file */
	ck_assert_int_eq(m.quant.format, CLV_FORMAT_NVFP4);
	clv_model_free(&m);
}
END_TEST

START_TEST(reads_biases_letters_and_integers)
{
	struct clv_model m;
	read_named(&m, "by_groups");
	layers_are(&m, "EEE");
	ck_assert(m.bias && m.interleaved && m.split_by_groups && m.gated);
	ck_assert_int_eq(m.quant.format, CLV_FORMAT_MXFP4);
	ck_assert_int_eq(m.quant.scale_dtype, CLV_DTYPE_F8_E8M0);
	ck_assert(noted(&m, "MXFP4 has groups of 32"));
	clv_model_free(&m);
	read_named(&m, "not_gated");
	layers_are(&m, "-E--E-p-");
	ck_assert(!m.gated);
	ck_assert_uint_eq(m.routed_hidden, 64);
	ck_assert_uint_eq(m.shared_intermediate, 160);
	ck_assert_int_eq(m.quant.format, CLV_FORMAT_NVFP4);
	clv_model_free(&m);
	read_named(&m, "int4_groups");
	layers_are(&m, "EE");
	ck_assert_int_eq(m.quant.format, CLV_FORMAT_INT);
	ck_assert_int_eq(m.quant.weight_dtype, CLV_DTYPE_INT4);
	ck_assert_int_eq(m.quant.scale_dtype, CLV_DTYPE_F16);
	ck_assert_uint_eq(m.quant.group, 64);
	ck_assert(m.quant.zero_points && !m.quant.act_order);
	clv_model_free(&m);
}
END_TEST

/* ---- texts made from one that is right ---- */

static const char right[] =
	"{\"model_type\": \"qwen3_moe\", \"hidden_size\": 64, \"moe_intermediate_size\": 32, "
	"\"num_experts\": 8, \"num_experts_per_tok\": 2, \"num_hidden_layers\": 4, \"hidden_act\": \"silu\", "
	"\"torch_dtype\": \"bfloat16\"}";

/* `text` with `from` replaced by `to`; `from` empty: `to` comes before the last brace. */
static char *with(const char *text, const char *from, const char *to)
{
	const char *at = *from ? strstr(text, from) : strrchr(text, '}');
	ck_assert_msg(at != NULL, "%s", from);
	char *out = malloc(strlen(text) + strlen(to) + 1);
	sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	return out;
}

static bool parse(struct clv_model *m, const char *text, struct clv_error *err)
{
	memset(err, 0, sizeof(*err));
	return clv_model_parse(m, "m/config.json", text, strlen(text), NULL, NULL, 0, err);
}

static void refused(const char *from, const char *to, const char *why)
{
	struct clv_model m;
	struct clv_error err;
	char *text = with(right, from, to);
	ck_assert_msg(!parse(&m, text, &err), "accepted: %s", text);
	ck_assert_msg(!strncmp(err.text, "m/config.json: ", 15) && strstr(err.text, why), "%s\ninstead of: %s",
		      err.text, why);
	ck_assert_ptr_null(m.layer);
	free(text);
}

static void accepted(struct clv_model *m, const char *from, const char *to)
{
	struct clv_error err;
	char *text = with(right, from, to);
	ck_assert_msg(parse(m, text, &err), "%s", err.text);
	free(text);
}

START_TEST(refuses_what_is_missing_or_absurd)
{
	refused("\"num_experts\": 8", "\"x\": 8",
		"no experts: looked for n_routed_experts, num_experts or num_local_experts in it; there is no text_config");
	refused("8", "0", "has no experts");
	refused("8", "-8", "num_experts, the number of experts, is -8, which is not within 1 to 16384");
	refused("8", "8.0", "must be a whole number, and is a number that is not whole");
	refused("8", "\"8\"", "must be a whole number, and is a text");
	refused("8", "99999999999999999999", "offset");
	refused("8", "16385", "within 1 to 16384");
	refused("8", "1", "2 experts for a token, of 1 experts");
	refused("\"hidden_size\": 64, ", "", "the hidden size is missing: looked for hidden_size");
	refused("64", "131073", "within");
	refused("moe_intermediate_size", "intermediate_size", "looked for moe_intermediate_size");
	refused("\"num_experts_per_tok\": 2, ", "",
		"looked for num_experts_per_tok, num_experts_per_token or experts_per_token");
	refused("", ", \"num_local_experts\": 7", "is 8 in num_experts and 7 in num_local_experts");
	refused(": 4", ": 0", "the number of layers");
	refused(": 4", ": 1025", "the number of layers");
	refused("qwen3_moe", "", "looked for model_type");
	refused("silu", "wavelet", "hidden_act is \"wavelet\"");
	refused("bfloat16", "int3", "torch_dtype is \"int3\"");
	refused(", \"torch_dtype\": \"bfloat16\"", "", "looked for torch_dtype or dtype");
	refused("", ", \"mlp_bias\": true", "mlp_bias");
	refused("", ", \"text_config\": 3", "text_config is a whole number, not an object");
	refused("", ", \"text_config\": {}", "in its text_config");
	refused("}", "", "offset");
	refused("", ", \"architectures\": [3]", "architectures");
}
END_TEST

START_TEST(refuses_layers_that_make_no_sense)
{
	refused("num_experts\"", "n_routed_experts\"", "looked for first_k_dense_replace");
	refused("", ", \"first_k_dense_replace\": 4", "no layer (of 4) has experts");
	refused("", ", \"first_k_dense_replace\": 5", "within 0 to 4");
	refused("", ", \"moe_layer_freq\": 0", "within 1 to 4");
	refused("", ", \"moe_layer_freq\": [0, 1]", "a list of 2, but there are 4 layers");
	refused("", ", \"moe_layer_freq\": [0, 1, 2, 0]", "at position 2");
	refused("", ", \"mlp_only_layers\": [4]", "mlp_only_layers has at position 0");
	refused("", ", \"mlp_only_layers\": [0, 1, 2, 3]", "no layer (of 4) has experts");
	refused("", ", \"interleave_moe_layer_step\": 0", "no layer (of 4) has experts");
	refused("", ", \"interleave_moe_layer_step\": 2, \"moe_layers\": [0, 2]", "say different things");
	refused("", ", \"hybrid_override_pattern\": \"ME\"", "hybrid_override_pattern");
	struct clv_model m;
	accepted(&m, "", ", \"moe_layer_freq\": [0, 1, 0, 1]");
	layers_are(&m, "-E-E");
	clv_model_free(&m);
	accepted(&m, "", ", \"moe_layers\": [3]");
	layers_are(&m, "---E");
	clv_model_free(&m);
}
END_TEST

#define QUANT(s) ", \"quantization_config\": {" s "}"
#define GROUPS(weights) "\"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": {" weights "}}}"

START_TEST(refuses_quantization_that_is_not_known)
{
	refused("", ", \"quantization_config\": []", "quantization_config is a list, not an object");
	refused("", QUANT(""), "looked for quantization_config.quant_method");
	refused("", QUANT("\"quant_method\": \"rot13\""), "\"rot13\", which is not known here; known are modelopt");
	refused("", QUANT("\"quant_method\": \"modelopt\""), "looked for quantization_config.quant_algo");
	refused("", QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP5\""), "known are NVFP4");
	refused("", QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"group_size\": 32"),
		"groups of 16");
	refused("", QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\""), "quantized_layers");
	refused("",
		QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": {}"),
		"has no experts: looked for");
	refused("",
		QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": "
		      "{\"model.layers.0.mlp.experts\": {\"quant_algo\": \"FP8\"}, \"model.layers.1.mlp.experts\": "
		      "{\"quant_algo\": \"NVFP4\"}}"),
		"layers 0 and 1 are quantized in different ways");
	refused("", QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"ignore\": [7]"), "position 0");
	refused("", QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\""), "config_groups");
	refused("", QUANT("\"quant_method\": \"compressed-tensors\", " GROUPS("\"num_bits\": 4, \"type\": \"int\"")),
		"the format is missing");
	refused("",
		QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", " GROUPS(
			"\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\"")),
		"the group size of the quantization is missing");
	refused("",
		QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", " GROUPS(
			"\"num_bits\": 5, \"type\": \"int\", \"strategy\": \"channel\"")),
		"5 bits");
	refused("",
		QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", " GROUPS(
			"\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16")),
		"has groups of 32");
	refused("",
		QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", " GROUPS(
			"\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"fractal\"")),
		"\"fractal\"");
	refused("", QUANT("\"quant_method\": \"fp8\", \"weight_block_size\": [128]"), "weight_block_size");
	refused("", QUANT("\"quant_method\": \"fp8\", \"fmt\": \"e5m2\""), "only e4m3");
	refused("", QUANT("\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"sym\": true"), "desc_act");
	refused("", QUANT("\"quant_method\": \"gptq\", \"bits\": 4, \"sym\": true, \"desc_act\": false"), "group size");
	refused("", QUANT("\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"dynamic\": {\"-:a\": {}}"),
		"dynamic");
	refused("", QUANT("\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128"), "zero_point");
	refused("", QUANT("\"quant_method\": \"mxfp4\"") ", \"compression_config\": {\"quant_method\": \"fp8\"}",
		"compression_config says FP8 by tensor, but in m/config.json quantization_config says MXFP4");
}
END_TEST

static void plain_with(const char *list, const char *letters)
{
	struct clv_model m;
	char quant[1024];
	snprintf(quant, sizeof(quant),
		 QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", " GROUPS(
			 "\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16") ", \"ignore\": [%s]"),
		 list);
	accepted(&m, "", quant);
	layers_are(&m, letters);
	clv_model_free(&m);
	snprintf(quant, sizeof(quant),
		 QUANT("\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"ignore\": [%s]"),
		 "\"model.layers.2*\", \"lm_head\"");
	accepted(&m, "", quant);
	layers_are(&m, "EEpE");
	clv_model_free(&m);
}

START_TEST(knows_the_languages_of_lists)
{
	plain_with("", "EEEE");
	plain_with("\"lm_head\", \"re:.*mlp\\\\.(gate|up|gate_up|down)_proj.*\"", "EEEE"); /* dense layers only */
	plain_with("\"re:model\\\\.layers\\\\.\\\\d+\\\\.mlp\\\\.experts\\\\..*\"", "pppp");
	plain_with("\"re:.*\\\\.[02]\\\\..*?experts(?:$|\\\\.)\"", "pEpE");
	plain_with("\"re:experts\"", "EEEE"); /* at the beginning only */
	plain_with("\"re:.*self_attn.*\", \"re:.*layers\\\\.1\\\\.self_attn\", \"re:.*shared_experts.*\"", "EEEE");
	plain_with("\"re:.*[self_attn]*expertsq?\", \"re:.*self_attn.*\"", "pppp");
	plain_with("\"model.layers.3.mlp.experts.0.gate_proj\", \"model.layers.3.mlp.experts.0.up_proj\", "
		   "\"model.layers.3.mlp.experts.0.down_proj\"",
		   "EEEp");
#define IGNORE(list)                                                                                                   \
	QUANT("\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", " GROUPS(               \
		"\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16") ", \"ignore\": [" list "]")
	refused("", IGNORE("\"model.layers.3.mlp.experts.0.up_proj\""),
		"leaves out some matrices of the experts of layer 3");
	refused("", IGNORE("3"), "where a module's name belongs");
	struct clv_model m;
	accepted(
		&m, "",
		QUANT("\"quant_method\": \"fp8\", \"modules_to_not_convert\": [\"gate\", \"model.layers.1.mlp.experts\"]"));
	layers_are(&m, "EpEE");
	clv_model_free(&m);
	accepted(&m, "",
		 QUANT("\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": -1, \"zero_point\": true, "
		       "\"modules_to_not_convert\": [\"gate\", \"layers.0.\"]"));
	layers_are(&m, "pEEE");
	ck_assert_uint_eq(m.quant.group, 0);
	ck_assert(m.quant.zero_points);
	clv_model_free(&m);
}
END_TEST

static void refused_text(const char *text, const char *why)
{
	struct clv_model m;
	struct clv_error err;
	ck_assert(!parse(&m, text, &err));
	ck_assert_msg(strstr(err.text, why) != NULL, "%s\ninstead of: %s", err.text, why);
}

/* What Python's json writes, or reads. */
START_TEST(reads_what_python_reads)
{
	struct clv_model m;
	struct clv_error err;
	accepted(&m, "", ", \"rope_scaling\": {\"a\": [Infinity,-Infinity, NaN], \"b\":NaN}");
	layers_are(&m, "EEEE");
	clv_model_free(&m);
	refused("\"hidden_size\": 64", "\"hidden_size\": NaN",
		"hidden_size, the hidden size, must be a whole number, and is a number that is not whole");
	refused("\"hidden_size\": 64", "\"hidden_size\": -Infinity", "hidden_size, the hidden size, must be");
	refused("\"hidden_size\": 64", "\"hidden_size\": 1NaN", "offset");
	refused("\"hidden_size\": 64", "\"hidden_size\": NaN1", "offset");
	refused("\"hidden_size\": 64", "\"hidden_size\": -NaN", "offset");
	refused("\"hidden_size\": 64", "\"hidden_size\": infinity", "offset");
	/* texts are left alone */
	accepted(&m, "\"silu\"", "\"silu\", \"note\": \"a \\\" NaN , \\\\\", \"architectures\": [\" NaN \"]");
	ck_assert_str_eq(m.name, " NaN ");
	clv_model_free(&m);
	/* positions are those of the file, with a mark before it and numbers replaced */
	char *text = with("\xef\xbb\xbf{\"a\": NaN,\n \"b\": Infinity, \"c\": tru }", "", "");
	refused_text(text, "m/config.json: offset 38: line 2: ");
	free(text);
	text = malloc(sizeof(right) + 3);
	sprintf(text, "\xef\xbb\xbf%s", right);
	ck_assert_msg(parse(&m, text, &err), "%s", err.text);
	clv_model_free(&m);
	free(text);
	/* the last one counts */
	accepted(&m, "", ",\n\"hidden_size\": 128");
	ck_assert_uint_eq(m.hidden, 128);
	ck_assert(noted(&m, "line 2: this key is there for the second time"));
	clv_model_free(&m);
	static const char *const broken[] = {"", "\xef\xbb\xbf", "\"", "\"\\", "[NaN", "NaN", "[\"a\\", "{\"NaN"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(broken); i++)
		refused_text(broken[i], "m/config.json: ");
}
END_TEST

START_TEST(refuses_files_that_disagree_or_are_none)
{
	static const char config[] =
		"{\"model_type\": \"qwen3_moe\", \"hidden_size\": 64, \"moe_intermediate_size\": 32, "
		"\"num_experts\": 8, \"num_experts_per_tok\": 2, \"num_hidden_layers\": 4, "
		"\"quantization_config\": {\"quant_method\": \"fp8\"}}";
	static const struct {
		const char *quant, *why;
	} cases[] = {
		{"{}", "q.json: no object \"quantization\""},
		{"[]", "q.json: this is a list"},
		{"{", "q.json: offset"},
		{"{\"quantization\": {\"quant_algo\": \"NVFP4\"}}", "q.json: quantization says NVFP4, but in c.json"}};
	struct clv_model m;
	struct clv_error err;
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		memset(&err, 0, sizeof(err));
		ck_assert(!clv_model_parse(&m, "c.json", config, strlen(config), "q.json", cases[i].quant,
					   strlen(cases[i].quant), &err));
		ck_assert_msg(strstr(err.text, cases[i].why), "%s", err.text);
	}
	static const char *const paths[] = {"/nonexistent", "/dev/null", "/dev", ""};
	for (size_t i = 0; i < CLV_ARRAY_LEN(paths); i++) {
		memset(&err, 0, sizeof(err));
		ck_assert(!clv_model_read(&m, paths[i], &err));
		ck_assert(err.text[0]);
	}
}
END_TEST

/* Whatever is in a file: refused with a sentence, or a model within its limits. */
static void survives(const char *text, size_t len, const char *quant, size_t quant_len, uint64_t seed)
{
	struct clv_model m;
	struct clv_error err = {0};
	if (!clv_model_parse(&m, "c.json", text, len, "q.json", quant, quant_len, &err)) {
		ck_assert_msg(strstr(err.text, ".json: ") && err.text[strlen(err.text) - 1] != ' ', "seed %llu: %s",
			      (unsigned long long)seed, err.text);
		return;
	}
	uint32_t moe = 0, plain = 0;
	for (uint32_t l = 0; l < m.layers; l++) {
		moe += m.layer[l] & CLV_LAYER_EXPERTS ? 1 : 0;
		plain += m.layer[l] & CLV_LAYER_PLAIN ? 1 : 0;
	}
	ck_assert(moe == m.moe_layers && moe > 0 && plain == m.plain_layers && plain <= moe);
	ck_assert(m.layers <= CLV_MODEL_LAYERS_MAX && m.experts >= 1 && m.experts <= CLV_MODEL_EXPERTS_MAX);
	ck_assert(m.top_k >= 1 && m.top_k <= m.experts);
	ck_assert(m.hidden >= 1 && m.routed_hidden >= 1 && m.routed_hidden <= CLV_MODEL_HIDDEN_MAX);
	ck_assert(m.intermediate >= 1 && m.intermediate <= CLV_MODEL_INTERMEDIATE_MAX);
	ck_assert((m.quant.format == CLV_FORMAT_FP8_BLOCK) == (m.quant.block_rows > 0));
	clv_model_free(&m);
}

/* A value in the place of one that is there. */
static json_t *odd_value(struct clv_rng *rng)
{
	static const json_int_t numbers[] = {0,   1,    -1,   2,     3,         7,         16,
					     128, 1000, 1024, 65536, INT32_MAX, INT64_MAX, INT64_MIN};
	switch (clv_rng_below(rng, 9)) {
	case 0:
		return json_null();
	case 1:
		return json_true();
	case 2:
		return json_real(0.5);
	case 3:
		return json_string("NVFP4");
	case 4:
		return json_string("re:.*experts.*");
	case 5:
		return json_pack("[i,i]", 128, 128);
	case 6:
		return json_pack("{s:i}", "num_bits", 4);
	default:
		return json_integer(numbers[clv_rng_below(rng, CLV_ARRAY_LEN(numbers))]);
	}
}

static void mutate(json_t *v, struct clv_rng *rng)
{
	const char *key;
	size_t i;
	void *tmp;
	json_t *child;
	json_object_foreach_safe(v, tmp, key, child)
	{
		uint64_t dice = clv_rng_below(rng, 24);
		if (dice == 0)
			json_object_del(v, key);
		else if (dice == 1)
			json_object_set_new(v, key, odd_value(rng));
		else
			mutate(child, rng);
	}
	json_array_foreach(v, i, child)
	{
		if (clv_rng_below(rng, 12) == 0)
			json_array_set_new(v, i, odd_value(rng));
		else
			mutate(child, rng);
	}
}

START_TEST(survives_mutations)
{
	char path[4096], quant_path[4096];
	size_t len, quant_len;
	model_path("latent/hf_quant_config.json", quant_path, sizeof(quant_path));
	char *quant = file_text(quant_path, &quant_len);
	for (size_t k = 0; k < CLV_ARRAY_LEN(small_models); k++) {
		char name[64];
		snprintf(name, sizeof(name), "%s/config.json", small_models[k]);
		model_path(name, path, sizeof(path));
		char *text = file_text(path, &len);
		for (uint64_t seed = 1; seed <= 600; seed++) {
			struct clv_rng rng = {seed + 1000 * k};
			json_t *v = json_loadb(text, len, 0, NULL);
			mutate(v, &rng);
			char *changed = json_dumps(v, JSON_COMPACT);
			survives(changed, strlen(changed), seed % 3 ? NULL : quant, seed % 3 ? 0 : quant_len,
				 rng.state);
			free(changed);
			json_decref(v);
		}
		for (uint64_t seed = 1; seed <= 600; seed++) { /* bytes */
			struct clv_rng rng = {seed + 7777 * k};
			char *changed = malloc(len);
			memcpy(changed, text, len);
			for (uint64_t n = clv_rng_range(&rng, 1, 3); n; n--)
				changed[clv_rng_below(&rng, len)] = (char)clv_rng_range(&rng, 1, 255);
			survives(changed, clv_rng_below(&rng, 4) ? len : clv_rng_below(&rng, len), NULL, 0, rng.state);
			free(changed);
		}
		for (size_t cut = 0; cut < len; cut += 7)
			survives(text, cut, NULL, 0, cut);
		free(text);
	}
	free(quant);
}
END_TEST

CHECK_MAIN("model", reads_first_dense_layers_and_blocks, reads_steps_and_lists_of_dense_layers,
	   reads_what_is_nested_and_what_is_ignored, reads_the_second_file_and_the_latent_size,
	   reads_biases_letters_and_integers, refuses_what_is_missing_or_absurd, refuses_layers_that_make_no_sense,
	   refuses_quantization_that_is_not_known, knows_the_languages_of_lists,
	   refuses_files_that_disagree_or_are_none, reads_what_python_reads, survives_mutations)
