/* SPDX-License-Identifier: MIT
 *
 * The lists of modules in configurations, beside a plain reading of them: each entry with each name of each layer.
 */
#include "../src/plan/model.h"
#include "check_main.h"
#include "models.h"

#include <fnmatch.h>
#include <jansson.h>
#include <regex.h>

#define LAYERS 112 /* numbers of one, two and three digits */

static json_t *config(json_t *quantization)
{
	return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:o}", "model_type", "qwen3_moe", "hidden_size", 64,
			 "moe_intermediate_size", 32, "num_experts", 8, "num_experts_per_tok", 2, "num_hidden_layers",
			 LAYERS, "hidden_act", "silu", "torch_dtype", "bfloat16", "quantization_config", quantization);
}

static json_t *with_ignore(bool regular, json_t *list)
{
	if (!regular)
		return config(json_pack("{s:s, s:s, s:o}", "quant_method", "modelopt", "quant_algo", "NVFP4", "ignore",
					list));
	return config(json_pack("{s:s, s:s, s:{s:{s:[s], s:{s:i, s:s, s:s}}}, s:o}", "quant_method",
				"compressed-tensors", "format", "mxfp4-pack-quantized", "config_groups", "g", "targets",
				"Linear", "weights", "num_bits", 4, "type", "float", "strategy", "group", "ignore",
				list));
}

/* Takes the configuration. */
static bool read_config(struct clv_model *m, json_t *config, struct clv_error *err)
{
	char *text = json_dumps(config, JSON_COMPACT);
	memset(err, 0, sizeof(*err));
	bool ok = clv_model_parse(m, "c.json", text, strlen(text), NULL, NULL, 0, err);
	free(text);
	json_decref(config);
	return ok;
}

static void refused(json_t *config, const char *why)
{
	struct clv_model m;
	struct clv_error err;
	ck_assert(!read_config(&m, config, &err));
	ck_assert_msg(strstr(err.text, why) != NULL, "%s\ninstead of: %s", err.text, why);
}

/* The layers that a list leaves out. */
static void plain_layers_are(json_t *config, uint32_t count, uint32_t first)
{
	struct clv_model m;
	struct clv_error err;
	ck_assert_msg(read_config(&m, config, &err), "%s", err.text);
	ck_assert_uint_eq(m.plain_layers, count);
	ck_assert(!count || m.layer[first] & CLV_LAYER_PLAIN);
	clv_model_free(&m);
}

/* ---- what Python's re knows ---- */

static void one_is(const char *entry, uint32_t count, uint32_t first)
{
	plain_layers_are(with_ignore(true, json_pack("[s]", entry)), count, first);
}

START_TEST(reads_regular_expressions_as_python_does)
{
	one_is("re:(?!model).*", LAYERS, 0); /* language_model.model. */
	one_is("re:(?!model)(?!language_model).*", 0, 0);
	one_is("re:model\\.layers\\.(\\d)\\1\\.mlp\\.experts$", 9, 11); /* 11, 22, ... 99 */
	one_is("re:model\\.layers\\.(?P<n>\\d)(?P=n)\\.mlp\\.experts\\Z", 9, 11);
	one_is("re:.*layers\\.\\x33\\..*experts", 1, 3);
	one_is("re:(?i).*LAYERS\\.7\\.MLP\\.EXPERTS", 1, 7);
	one_is("re:.*\\.[^0-9]*\\.1[0-9]{2}\\..*experts.*", 12, 100);
	one_is("re:.*\\.layers\\.(?:[1-9]|[1-4]\\d)\\..*experts", 49, 1);
	one_is("re:.*\\.layers\\.([^5])\\..*experts", 9, 0);
	one_is("re:.*\xc3\xa9*layers\\.4\\..*experts", 1, 4); /* an e with an accent, none of which is there */
	one_is("re:", LAYERS, 0);
	refused(with_ignore(true, json_pack("[s]", "re:(a")),
		"c.json: quantization_config.ignore has \"re:(a\", and whether that means experts cannot be told: it is no "
		"regular expression, by its character 2: missing closing parenthesis");
}
END_TEST

START_TEST(gives_up_on_what_takes_too_long_or_too_much)
{
	static const char *const hostile[] = {"re:(((((.*)+)+)+)+)+x$", "re:(.*)*(.*)*(.*)*x", "re:(.?){99}x",
					      "re:(((.*)+)+)+e"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(hostile); i++) {
		refused(with_ignore(true, json_pack("[s]", hostile[i])), "cannot be told: it takes too ");
		refused(with_ignore(true, json_pack("[s]", hostile[i])), hostile[i]);
	}
	/* each is bearable, all are not */
	json_t *list = json_array();
	for (int i = 0; i < 20000; i++) {
		char text[64];
		snprintf(text, sizeof(text), "re:(a|.)*(b|.)*!%d", i);
		json_array_append_new(list, json_string(text));
	}
	refused(with_ignore(true, list), "all entries together take too long to match");
	/* such as an engine that goes from choice to choice would take for ever with */
	json_t *deep = json_array();
	char text[512] = "re:";
	for (int i = 0; i < 60; i++)
		strcat(text, "(|a)*");
	strcat(text, "z");
	json_array_append_new(deep, json_string(text));
	plain_layers_are(with_ignore(true, deep), 0, 0);
	memset(text + 3, '(', 300);
	text[303] = 0;
	refused(with_ignore(true, json_pack("[s]", text)), "parentheses are too deeply nested");
	char *longest = malloc(20001);
	memset(longest, 'x', 20000);
	longest[20000] = 0;
	longest[0] = '*';
	refused(with_ignore(false, json_pack("[s]", longest)), "it is too long");
	free(longest);
}
END_TEST

/* ---- long lists ---- */

#define MANY 2000

static json_t *many(const char *format)
{
	json_t *list = json_array();
	for (int i = 0; i < MANY; i++) {
		char text[128];
		snprintf(text, sizeof(text), format, i, i);
		json_array_append_new(list, json_string(text));
	}
	return list;
}

/* Each of these takes a fraction of a second; an entry with every name of every layer took minutes. */
START_TEST(is_quick_with_long_lists)
{
	plain_layers_are(with_ignore(true, many("re:.*layers\\.(%d|%d)\\.(self_attn|mlp\\.shared).*")), 0, 0);
	plain_layers_are(with_ignore(true, many("re:.*layers\\.%d\\.mlp\\.experts\\..*")), LAYERS, 0);
	plain_layers_are(with_ignore(true, many("re:.*layers\\.(%d|x)\\.(?!mlp|block).*")), 0, 0);
	plain_layers_are(with_ignore(true, many("re:.*layers\\.11\\.mlp\\.experts\\.%d.*")), 1, 11);
	plain_layers_are(with_ignore(true, many("model.layers.%d.mlp.experts")), LAYERS, 0);
	plain_layers_are(with_ignore(false, many("*layers.%d.self_attn*")), 0, 0);
	plain_layers_are(with_ignore(false, many("model.layers.%d.mlp*")), LAYERS, 0);
	plain_layers_are(with_ignore(false, many("layers.%d.mlp.shared")), 0, 0);
}
END_TEST

/* MIXED_PRECISION, each matrix of each expert by its name. */
START_TEST(is_quick_with_every_expert_by_name)
{
	json_t *layers = json_object();
	for (int l = 1; l < LAYERS; l++)
		for (int e = 0; e < 128; e++)
			for (int k = 0; k < 3; k++) {
				static const char *const matrices[] = {"gate", "up", "down"};
				char key[96];
				snprintf(key, sizeof(key), "model.layers.%d.mlp.experts.%d.%s_proj", l, e, matrices[k]);
				json_object_set_new(layers, key, json_pack("{s:s}", "quant_algo", "NVFP4"));
			}
	plain_layers_are(config(json_pack("{s:s, s:s, s:o}", "quant_method", "modelopt", "quant_algo",
					  "MIXED_PRECISION", "quantized_layers", layers)),
			 1, 0);
	/* a name counts more than a wildcard, wherever it stands */
	layers = json_pack("{s:{s:s}, s:{s:s}, s:{s:s}}", "model.layers.*", "quant_algo", "NVFP4",
			   "model.layers.1?.mlp.experts*", "quant_algo", "NVFP4", "model.layers.3.mlp.experts",
			   "quant_algo", "FP8");
	refused(config(json_pack("{s:s, s:s, s:o}", "quant_method", "modelopt", "quant_algo", "MIXED_PRECISION",
				 "quantized_layers", layers)),
		"the experts of layers 0 and 3 are quantized in different ways");
}
END_TEST

/* ---- beside a plain reading ---- */

/* The name of experts as a whole, or of a matrix. */
static void print_name(char *out, size_t len, uint32_t i, uint32_t layer, uint32_t matrix)
{
	static const char *const prefixes[] = {"model", "language_model.model", "model.language_model"};
	static const char *const matrices[2][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
	int n = snprintf(out, len, "%s.layers.%u.%s.experts", prefixes[i % 3], layer,
			 i / 3 ? "block_sparse_moe" : "mlp");
	if (matrix)
		snprintf(out + n, len - (size_t)n, ".0.%s", matrices[i / 3][matrix - 1]);
}

static bool means(const char *entry, const regex_t *re, const char *name, bool whole)
{
	if (re)
		return !regexec(re, name, 0, NULL, 0);
	return !strcmp(entry, name) || (whole && strstr(name, entry)) || !fnmatch(entry, name, FNM_NOESCAPE);
}

/* 'E', 'p', or '?' where some matrices are left out and not others. */
static char verdict(char **entries, const regex_t *re, size_t count, bool regular, uint32_t layer)
{
	bool some = false;
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t hits = 0;
		for (uint32_t matrix = 0; matrix < 4; matrix++) {
			char name[128];
			bool hit = false;
			print_name(name, sizeof(name), i, layer, matrix);
			for (size_t k = 0; k < count; k++)
				hit |= means(entries[k], regular ? &re[k] : NULL, name, !matrix);
			if (hit && !matrix)
				return 'p';
			hits += hit;
		}
		if (hits == 3)
			return 'p';
		some |= hits;
	}
	return some ? '?' : 'E';
}

static void make_entry(char *out, bool regular, struct clv_rng *rng)
{
	static const char *const re[] = {"[0-9]+", "[0-9]", "1",     "0", "[1-3]", "(1|20)", "[^4]", "2*",
					 "1?",     ".",     "[0-4]", "7", "(.)",   "[2-9]?", "9",    "0+"};
	static const char *const glob[] = {"*", "?", "1", "[1-3]", "[!4]", "[0-9]", "0", "??", "*1", "2*"};
	static const char *const ends[] = {"mlp.experts", "mlp.experts.0.up_proj", "mlp.*", ".*", "*", ".*w1",
					   "*experts*"};
	static const char *const starts[] = {"model.layers.", ".*layers.", ".*", "*layers.", "*", "language_model.*"};
	strcpy(out, starts[clv_rng_below(rng, CLV_ARRAY_LEN(starts))]);
	if (regular && out[0] == '*')
		strcpy(out, ".*layers.");
	for (uint64_t n = clv_rng_range(rng, 1, 3); n; n--)
		strcat(out, regular ? re[clv_rng_below(rng, CLV_ARRAY_LEN(re))]
				    : glob[clv_rng_below(rng, CLV_ARRAY_LEN(glob))]);
	strcat(out, ".");
	const char *end = ends[clv_rng_below(rng, CLV_ARRAY_LEN(ends))];
	strcat(out, regular && end[0] == '*' ? ".*" : end);
}

static void beside_plain_reading(bool regular, uint64_t seed)
{
	struct clv_rng rng = {seed};
	char texts[3][128], *entries[3];
	regex_t re[3];
	size_t count = clv_rng_range(&rng, 1, 3);
	json_t *list = json_array();
	char expected[LAYERS];
	bool some = false;
	for (size_t k = 0; k < count; k++) {
		char text[160];
		entries[k] = texts[k];
		make_entry(texts[k], regular, &rng);
		snprintf(text, sizeof(text), "^(%s)", texts[k]);
		ck_assert(!regular || !regcomp(&re[k], text, REG_EXTENDED | REG_NOSUB));
		snprintf(text, sizeof(text), "%s%s", regular ? "re:" : "", texts[k]);
		json_array_append_new(list, json_string(text));
	}
	for (uint32_t l = 0; l < LAYERS; l++) {
		expected[l] = verdict(entries, re, count, regular, l);
		some |= expected[l] == '?';
	}
	struct clv_model m;
	struct clv_error err;
	bool ok = read_config(&m, with_ignore(regular, list), &err);
	ck_assert_msg(ok != some, "seed %llu: %s", (unsigned long long)seed, err.text);
	for (uint32_t l = 0; ok && l < LAYERS; l++)
		ck_assert_msg((expected[l] == 'p') == !!(m.layer[l] & CLV_LAYER_PLAIN), "seed %llu, layer %u: %s",
			      (unsigned long long)seed, l, entries[0]);
	if (ok)
		clv_model_free(&m);
	for (size_t k = 0; k < count && regular; k++)
		regfree(&re[k]);
}

START_TEST(agrees_with_a_plain_reading)
{
	for (uint64_t seed = 1; seed <= 50; seed++) {
		beside_plain_reading(true, seed);
		beside_plain_reading(false, seed);
	}
}
END_TEST

CHECK_MAIN("model_names", reads_regular_expressions_as_python_does, gives_up_on_what_takes_too_long_or_too_much,
	   is_quick_with_long_lists, is_quick_with_every_expert_by_name, agrees_with_a_plain_reading)
