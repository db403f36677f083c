/* SPDX-License-Identifier: MIT
 *
 * The figures of `cleave plan` for published models.
 *
 * tests/data/plan has what the command answers for each model, each backend that is for its experts, and TP8, EP8 and TP32: a
 * line each. With CLEAVE_PLAN_WRITE set they are written anew into the source instead of compared; then the tests below, which
 * count the same bytes in another way, say whether what was written is right.
 */
#include "../src/plan/plan.h"
#include "cli_run.h"
#include "json_expect.h"
#include "models.h"

#include <string.h>

static json_t *parsed(const char *text)
{
	json_error_t error;
	json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(doc != NULL, "%s: %.1000s", error.text, text);
	return doc;
}

static const json_t *named(const json_t *list, const char *name)
{
	size_t i;
	json_t *v;
	json_array_foreach(list, i, v)
	{
		if (!strcmp(json_string_value(json_object_get(v, "name")), name))
			return v;
	}
	ck_abort_msg("no %s", name);
	return NULL;
}

static uint64_t bytes_of(const json_t *doc, const char *list, const char *name)
{
	return (uint64_t)whole(named(json_object_get(doc, list), name), "bytes");
}

static json_int_t padded(const json_t *doc)
{
	return whole(json_object_get(doc, "intermediate"), "padded");
}

/* A plan that is there. */
static json_t *plan(const char *model, const char *backend, unsigned tp, const char *option, const char *value)
{
	char ranks[16];
	snprintf(ranks, sizeof(ranks), "%u", tp);
	struct cli_result r =
		cli_run("plan", "--model", model, "--backend", backend, "--tp", ranks, "--json", option, value, NULL);
	ck_assert_msg(r.status == 0, "%s: %s at %u: %.1000s", model, backend, tp, r.err);
	return parsed(r.out);
}

static json_t *plan_named(const char *model, const char *backend, unsigned tp, const char *option, const char *value)
{
	char path[4096];
	model_path(model, path, sizeof(path));
	return plan(path, backend, tp, option, value);
}

/* ---- a table of sizes that was not made with this program ---- */

/* moe-layouts 4.1: destinations of NVFP4 for TensorRT-LLM, N padded to 64, K to 256. Per expert in thousandths of a MiB, a
 * layer in tenths, all layers in tenths of a GiB.
 *
 * The table has gpt-oss at TP8 with a share of 360 that is padded to 384; a group of 16 with one scale would be cut there,
 * which the command refuses (`layer` 0), so that the sizes of that share are compared as those of 3,072 over 8 ranks. */
static const struct {
	const char *name;
	uint32_t hidden, intermediate, experts, layers, tp8_n, ep8_n;
	struct {
		uint32_t w13, s13, w2, s2, layer, all;
	} tp8, ep8;
} table[] = {
	{"Kimi-K3",
	 3584,
	 3072,
	 896,
	 92,
	 384,
	 3072,
	 {1312, 164, 656, 82, 19845, 1783},
	 {10500, 1312, 5250, 656, 19845, 1783}},
	{"Kimi-K2/K2.5",
	 7168,
	 2048,
	 384,
	 60,
	 256,
	 2048,
	 {1750, 219, 875, 109, 11340, 664},
	 {14000, 1750, 7000, 875, 11340, 664}},
	{"DeepSeek-V3/R1",
	 7168,
	 2048,
	 256,
	 58,
	 256,
	 2048,
	 {1750, 219, 875, 109, 7560, 428},
	 {14000, 1750, 7000, 875, 7560, 428}},
	{"DeepSeek-V4-Pro",
	 7168,
	 3072,
	 384,
	 61,
	 384,
	 3072,
	 {2625, 328, 1312, 164, 17010, 1013},
	 {21000, 2625, 10500, 1312, 17010, 1013}},
	{"Qwen3-235B-A22B",
	 4096,
	 1536,
	 128,
	 94,
	 192,
	 1536,
	 {750, 94, 375, 47, 1620, 149},
	 {6000, 750, 3000, 375, 1620, 149}},
	{"Qwen3-Coder-480B",
	 6144,
	 2560,
	 160,
	 62,
	 320,
	 2560,
	 {1875, 234, 938, 117, 5062, 307},
	 {15000, 1875, 7500, 938, 5062, 307}},
	{"GLM-4.5/4.6",
	 5120,
	 1536,
	 160,
	 89,
	 192,
	 1536,
	 {938, 117, 469, 59, 2531, 220},
	 {7500, 938, 3750, 469, 2531, 220}},
	{"gpt-oss-120b", 2880, 2880, 128, 36, 0, 2880, {0}, {8438, 1055, 4219, 527, 2278, 80}},
	{"gpt-oss-120b's share at TP8", 2880, 3072, 128, 36, 384, 3072, {1125, 141, 562, 70, 2430, 85}, {0}},
	{"gpt-oss-20b", 2880, 2880, 32, 24, 0, 2880, {0}, {8438, 1055, 4219, 527, 570, 13}},
	{"gpt-oss-20b's share at TP8", 2880, 3072, 32, 24, 384, 3072, {1125, 141, 562, 70, 608, 14}, {0}},
	{"Mixtral-8x7B",
	 4096,
	 14336,
	 8,
	 32,
	 1792,
	 14336,
	 {7000, 875, 3500, 438, 945, 30},
	 {56000, 7000, 28000, 3500, 945, 30}},
	{"Mixtral-8x22B",
	 6144,
	 16384,
	 8,
	 56,
	 2048,
	 16384,
	 {12000, 1500, 6000, 750, 1620, 89},
	 {96000, 12000, 48000, 6000, 1620, 89}},
	{"Llama-4-Maverick",
	 5120,
	 8192,
	 128,
	 24,
	 1024,
	 8192,
	 {5000, 625, 2500, 312, 10800, 253},
	 {40000, 5000, 20000, 2500, 10800, 253}},
	{"Llama-4-Scout",
	 5120,
	 8192,
	 16,
	 48,
	 1024,
	 8192,
	 {5000, 625, 2500, 312, 1350, 63},
	 {40000, 5000, 20000, 2500, 1350, 63}},
	{"MiniMax-M2",
	 3072,
	 1536,
	 256,
	 62,
	 192,
	 1536,
	 {562, 70, 281, 35, 2430, 147},
	 {4500, 562, 2250, 281, 2430, 147}},
};

/* As printed: rounded to the nearest of so many digits, halves to even ones or away from them. */
static void near(const char *name, const char *what, uint64_t bytes, double unit, uint32_t want)
{
	double is = (double)bytes / unit;
	ck_assert_msg(is >= want - 0.5001 && is <= want + 0.5001, "%s: %s: %.4f and not %u", name, what, is, want);
}

static void check_row(size_t i, bool ep)
{
	const char *name = table[i].name;
	const uint32_t *want = ep ? &table[i].ep8.w13 : &table[i].tp8.w13;
	static const char *const buffers[] = {"w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"};
	json_t *doc = plan(".", "nvfp4-trtllm", 8, ep ? "--ep" : NULL, NULL);
	uint64_t experts = (uint64_t)whole(doc, "experts_local");
	ck_assert_uint_eq(experts, ep ? table[i].experts / 8 : table[i].experts);
	ck_assert_int_eq(padded(doc), ep ? table[i].ep8_n : table[i].tp8_n);
	for (size_t b = 0; b < CLV_ARRAY_LEN(buffers); b++) {
		uint64_t bytes = bytes_of(doc, "buffers", buffers[b]);
		ck_assert_uint_eq(bytes % experts, 0);
		near(name, buffers[b], bytes / experts, (double)CLV_MIB / 1000, want[b]);
	}
	near(name, "a layer", (uint64_t)whole(doc, "layer_bytes"), (double)CLV_MIB / 10, want[4]);
	near(name, "all layers", (uint64_t)whole(doc, "weights_bytes"), (double)CLV_GIB / 10, want[5]);
	json_decref(doc);
}

START_TEST(agrees_with_the_table)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(table); i++) {
		char text[1024];
		snprintf(
			text, sizeof(text),
			"{\"model_type\": \"qwen3_moe\", \"hidden_size\": %u, \"moe_intermediate_size\": %u, \"num_experts\": %u, "
			"\"num_experts_per_tok\": 1, \"num_hidden_layers\": %u, \"decoder_sparse_step\": 1, "
			"\"mlp_only_layers\": [], \"quantization_config\": {\"quant_method\": \"modelopt\", "
			"\"quant_algo\": \"NVFP4\", \"group_size\": 16, \"ignore\": []}}",
			table[i].hidden, table[i].intermediate, table[i].experts, table[i].layers);
		cli_text("config.json", text);
		if (table[i].tp8.layer)
			check_row(i, false);
		else
			cli_assert_refused(
				cli_run("plan", "--model", ".", "--backend", "nvfp4-trtllm", "--tp", "8", NULL),
				"360 with tp 8, which would cut a group of 16");
		if (table[i].ep8.layer)
			check_row(i, true);
	}
}
END_TEST

/* Sizes in reports of what went wrong (moe-layouts 1.5, 3.3 and 5). */
START_TEST(agrees_with_reports)
{
	/* vllm#41268: gpt-oss-120b on two H100 */
	json_t *doc = plan_named("gpt-oss-120b-mxfp4", "mxfp4-triton", 2, NULL, NULL);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w13_weight"), 554696704);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w2_weight"), 283115520);
	ck_assert_uint_eq(bytes_of(doc, "sources", "w13_weight"), 542638080);
	ck_assert_uint_eq(bytes_of(doc, "sources", "w2_weight"), 271319040);
	json_decref(doc);
	/* vllm#34877: on one; a request of 1.01 GiB */
	doc = plan_named("gpt-oss-120b-mxfp4", "mxfp4-triton", 1, NULL, NULL);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w13_weight"), 128ull * 1472 * 5760);
	json_decref(doc);
	/* vllm#43951: Qwen3-235B in bf16 on four; 6 and 3 MiB an expert */
	doc = plan_named("qwen3-235b-a22b-bf16", "bf16-trtllm", 4, NULL, NULL);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w13_weight"), 128 * 6 * CLV_MIB);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w2_weight"), 128 * 3 * CLV_MIB);
	ck_assert_int_eq(whole(doc, "layers_local"), 94);
	json_decref(doc);
	/* vllm#55407 and TensorRT-LLM#18059: Kimi-K3 in NVFP4, bytes an expert */
	doc = plan_named("kimi-k3-nvfp4", "nvfp4-trtllm", 8, "--ep", NULL);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w13_weight"), 112ull * 11010048);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w13_weight_scale"), 112ull * 1376256);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w2_weight"), 112ull * 5505024);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w2_weight_scale"), 112ull * 688128);
	/* the scalars of inputs are of all 896: f32 (E, 2) + (E) + (896, 2) + (896) */
	ck_assert_int_eq(whole(doc, "scalar_bytes"), (112 + 896) * 3 * 4);
	json_decref(doc);
	doc = plan_named("kimi-k3-nvfp4", "nvfp4-trtllm", 8, NULL, NULL);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w13_weight"), 896ull * 1376256);
	ck_assert_uint_eq(bytes_of(doc, "buffers", "w2_weight_scale"), 896ull * 86016);
	json_decref(doc);
	/* who pads Kimi-K3 in MXFP4: N of a rank, and its experts in tenths of a GB */
	static const struct {
		unsigned tp, backend, model, backend_gb, model_gb;
	} padding[] = {{8, 384, 384, 1808, 1808}, {16, 256, 256, 1205, 1205}, {32, 128, 256, 603, 1205}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(padding); i++)
		for (int model = 0; model < 2; model++) {
			doc = plan_named("kimi-k3-mxfp4", "mxfp4-marlin", padding[i].tp, "--padding",
					 model ? "model" : "backend");
			ck_assert_int_eq(padded(doc), model ? padding[i].model : padding[i].backend);
			near("Kimi-K3", "experts of a rank", (uint64_t)whole(doc, "weights_bytes"), 1e8,
			     model ? padding[i].model_gb : padding[i].backend_gb);
			json_decref(doc);
		}
}
END_TEST

/* ---- every line again, by the formulas of moe-layouts 2.2 ---- */

static uint64_t up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

enum scales { GROUPS, SWIZZLED, WORDS, HOPPER, BLOCKS, WORDS_OF_BLOCKS, MARLIN_FP8, NO_SCALES };

static const struct {
	const char *name;
	uint32_t n, k, bits;
	enum scales scales;
	uint32_t group, scale_bytes; /* of GROUPS */
} formulas[] = {
	{"nvfp4-trtllm", 64, 256, 4, GROUPS, 16, 1},
	{"nvfp4-cutlass", 1, 1, 4, SWIZZLED, 16, 1},
	{"nvfp4-vllm-cutlass", 1, 1, 4, SWIZZLED, 16, 1},
	{"nvfp4-cutedsl-batched", 1, 1, 4, SWIZZLED, 16, 1},
	{"nvfp4-b12x", 1, 1, 4, SWIZZLED, 16, 1},
	{"nvfp4-cutedsl", 1, 1, 4, SWIZZLED, 16, 1},
	{"nvfp4-marlin", 64, 1, 4, GROUPS, 16, 1}, /* 128 divides K of these models */
	{"mxfp4-marlin", 128, 256, 4, GROUPS, 32, 1},
	{"mxfp4-batched-marlin", 128, 256, 4, GROUPS, 32, 1},
	{"mxfp4-trtllm", 128, 256, 4, GROUPS, 32, 1},
	{"mxfp4-trtllm-mxfp8", 128, 256, 4, GROUPS, 32, 1},
	{"mxfp4-cutlass", 128, 128, 4, GROUPS, 32, 1},
	{"mxfp4-cutlass-mxfp8", 128, 128, 4, GROUPS, 32, 1},
	{"mxfp4-deepgemm", 128, 128, 4, WORDS, 32, 1},
	{"mxfp4-triton", 64, 1, 4, HOPPER, 32, 1},
	{"mxfp4-triton-unfused", 64, 1, 4, HOPPER, 32, 1},
	{"mxfp4-emulation", 32, 32, 4, GROUPS, 32, 1},
	{"mxfp4-cpu", 32, 32, 4, GROUPS, 32, 1},
	{"fp8-deepgemm", 1, 1, 8, BLOCKS, 128, 4},
	{"fp8-deepgemm-sm100", 1, 1, 8, WORDS_OF_BLOCKS, 128, 4},
	{"fp8-flashinfer", 1, 1, 8, BLOCKS, 128, 4},
	{"fp8-marlin", 128, 1, 8, MARLIN_FP8, 128, 2},
	{"bf16-trtllm", 1, 1, 16, NO_SCALES, 0, 0},
	{"bf16-cutlass", 1, 1, 16, NO_SCALES, 0, 0},
	{"bf16-triton", 1, 1, 16, NO_SCALES, 0, 0},
	{"gptq-marlin", 64, 1, 4, GROUPS, 32, 2},
};

/* Of a matrix of r x c of one expert. */
static uint64_t matrix_bytes(size_t f, enum clv_model_format format, uint64_t r, uint64_t c)
{
	uint64_t g = formulas[f].group, weights = r * c * formulas[f].bits / 8, in = g ? (c + g - 1) / g : 0;
	switch (formulas[f].scales) {
	case GROUPS:
		return weights + r * in * formulas[f].scale_bytes;
	case SWIZZLED:
		return weights + up(r, 128) * up(in, 4);
	case WORDS:
		return weights + up(r, 4) * ((in + 3) / 4) * 4;
	case HOPPER:
		return r * up(c / 2, 64) + up(in, 4) * up(r, 256);
	case BLOCKS:
		return weights + up(r, 128) / 128 * in * 4;
	case WORDS_OF_BLOCKS:
		return weights + up(r, 4) * ((in + 3) / 4) * 4;
	case MARLIN_FP8:
		return weights + r * (format == CLV_FORMAT_FP8_BLOCK ? in : 1) * 2;
	default:
		return weights;
	}
}

static uint64_t layer_by_formula(const struct clv_model *m, const char *backend, unsigned tp, bool ep)
{
	for (size_t f = 0; f < CLV_ARRAY_LEN(formulas); f++) {
		if (strcmp(formulas[f].name, backend) != 0)
			continue;
		uint64_t share = ep ? m->intermediate : m->intermediate / tp,
			 experts = ep ? m->experts / tp : m->experts;
		if (!strcmp(m->type, "gpt_oss") && !ep) /* whole groups of 32: of 90, 12 at TP8 and 3 at TP32 */
			share = (m->intermediate / 32 + tp - 1) / tp * 32;
		uint64_t n = up(share, formulas[f].n), k = up(m->routed_hidden, formulas[f].k);
		return experts * (matrix_bytes(f, m->quant.format, 2 * n, k) + matrix_bytes(f, m->quant.format, k, n));
	}
	ck_abort_msg("no formula for %s", backend);
	return 0;
}

/* ---- goldens ---- */

static const struct {
	const char *name;
	unsigned tp;
	bool ep;
} cases[] = {{"TP8", 8, false}, {"EP8", 8, true}, {"TP32", 32, false}};

/* "w13_weight int32[896, 224, 512] 411041792" */
static json_t *short_buffers(const json_t *list)
{
	json_t *out = json_array(), *b;
	size_t i;
	json_array_foreach(list, i, b)
	{
		char *shape = json_dumps(json_object_get(b, "shape"), JSON_COMPACT);
		json_array_append_new(out, json_sprintf("%s %s%s %lld%s", json_string_value(json_object_get(b, "name")),
							json_string_value(json_object_get(b, "dtype")), shape,
							(long long)whole(b, "bytes"),
							json_is_true(json_object_get(b, "same")) ? " same" : ""));
		free(shape);
	}
	return out;
}

static json_t *short_strategies(const json_t *list)
{
	json_t *out = json_object(), *s;
	size_t i;
	json_array_foreach(list, i, s)
	{
		json_object_set(out, json_string_value(json_object_get(s, "name")), json_object_get(s, "peak_bytes"));
	}
	return out;
}

static json_t *short_reservations(const json_t *list)
{
	json_t *out = json_array(), *r;
	size_t i;
	json_array_foreach(list, i, r)
	{
		json_array_append_new(out, json_pack("[O,O,O,O,O,O]", json_object_get(r, "name"),
						     json_object_get(r, "bytes"), json_object_get(r, "count"),
						     json_object_get(r, "after_n"), json_object_get(r, "uses"),
						     json_object_get(r, "hard")));
	}
	return out;
}

static json_t *short_transients(const json_t *list)
{
	json_t *out = json_array(), *t;
	size_t i;
	json_array_foreach(list, i, t)
	{
		json_array_append_new(
			out, json_pack("[O,O,O,O]", json_object_get(t, "name"), json_object_get(t, "bytes"),
				       json_object_get(t, "torch_segment_bytes"), json_object_get(t, "requests")));
	}
	return out;
}

static json_t *short_warnings(const json_t *list)
{
	json_t *out = json_array(), *w;
	size_t i;
	json_array_foreach(list, i, w)
	{
		json_array_append(out, json_object_get(w, "code"));
	}
	return out;
}

/* The figures that matter, on a line. */
static char *line_of(const char *backend, size_t c, struct cli_result r)
{
	static const char *const same[] = {"experts_local", "layers_local", "intermediate",  "layer_bytes",
					   "scalar_bytes",  "other_bytes",  "weights_bytes", "strategy"};
	json_t *line = json_pack("{s:s,s:s}", "backend", backend, "ranks", cases[c].name);
	if (r.status == 2) {
		const char *why = strstr(r.err, "config.json: ");
		ck_assert_msg(why != NULL, "%.1000s", r.err);
		json_object_set_new(line, "refused", json_stringn(why + 13, strcspn(why + 13, "\n")));
	} else {
		ck_assert_msg(r.status == 0, "%.1000s", r.err);
		json_t *doc = parsed(r.out);
		for (size_t i = 0; i < CLV_ARRAY_LEN(same); i++)
			json_object_set(line, same[i], json_object_get(doc, same[i]));
		json_object_set(line, "padding_bytes", json_object_get(json_object_get(doc, "padding"), "bytes"));
		json_object_set_new(line, "sources", short_buffers(json_object_get(doc, "sources")));
		json_object_set_new(line, "buffers", short_buffers(json_object_get(doc, "buffers")));
		json_object_set_new(line, "transients", short_transients(json_object_get(doc, "transients")));
		json_object_set_new(line, "strategies", short_strategies(json_object_get(doc, "strategies")));
		json_object_set_new(line, "reservations", short_reservations(json_object_get(doc, "reservations")));
		json_object_set_new(line, "warnings", short_warnings(json_object_get(doc, "warnings")));
		json_decref(doc);
	}
	char *text = json_dumps(line, JSON_COMPACT);
	json_decref(line);
	return text;
}

static struct cli_result plan_case(const char *path, const char *backend, size_t c)
{
	return cases[c].ep ? cli_run("plan", "--model", path, "--backend", backend, "--tp", "8", "--ep", "--json", NULL)
			   : cli_run("plan", "--model", path, "--backend", backend, "--tp",
				     cases[c].tp == 8 ? "8" : "32", "--json", NULL);
}

/* With destinations made first: when the first layer is converted all sources are there and its destinations; when the last
 * is, its sources and all destinations. What is on the way comes on top, of each kind a few at a time. */
static void check_peak(const char *backend, const json_t *doc)
{
	uint64_t sources = 0, kept = 0, made = 0, on_way = 0, layers = (uint64_t)whole(doc, "layers_local");
	json_t *v;
	size_t i;
	json_array_foreach(json_object_get(doc, "sources"), i, v)
	{
		sources += up((uint64_t)whole(v, "bytes"), 512);
		if (!strcmp(json_string_value(json_object_get(v, "kind")), "scalar"))
			kept += up((uint64_t)whole(v, "bytes"), 512);
	}
	json_array_foreach(json_object_get(doc, "buffers"), i, v)
	{
		*(json_is_true(json_object_get(v, "same")) ? &kept : &made) += up((uint64_t)whole(v, "bytes"), 512);
	}
	json_array_foreach(json_object_get(doc, "transients"), i, v)
	{
		uint64_t requests = clv_min_u64((uint64_t)whole(v, "requests"), 8);
		on_way += up((uint64_t)whole(v, "bytes"), 512) * requests;
	}
	uint64_t first = layers * sources + made, last = layers * (kept + made) + sources - kept;
	uint64_t least = clv_max_u64(first, last),
		 peak = (uint64_t)whole(named(json_object_get(doc, "strategies"), "preallocated"), "peak_bytes");
	ck_assert_msg(peak >= least && peak <= least + on_way, "%s: a peak of %llu, and not %llu to %llu", backend,
		      (unsigned long long)peak, (unsigned long long)least, (unsigned long long)(least + on_way));
}

/* Sums that a document must have in itself, and the bytes by the formulas. */
static void check_document(const struct clv_model *m, const char *backend, size_t c, const json_t *doc)
{
	uint64_t sum = 0;
	json_t *b, *v;
	size_t i, n;
	json_array_foreach(json_object_get(doc, "buffers"), i, b)
	{
		uint64_t elements = 1;
		json_array_foreach(json_object_get(b, "shape"), n, v) elements *= (uint64_t)json_integer_value(v);
		ck_assert_uint_eq((uint64_t)whole(b, "bytes") % elements, 0);
		sum += (uint64_t)whole(b, "bytes");
	}
	ck_assert_int_eq((json_int_t)sum, whole(doc, "layer_bytes") + whole(doc, "other_bytes"));
	ck_assert_int_eq(whole(doc, "weights_bytes"), whole(doc, "layers_local") * whole(doc, "layer_bytes"));
	check_peak(backend, doc);
	uint64_t want = layer_by_formula(m, backend, cases[c].tp, cases[c].ep);
	ck_assert_msg((uint64_t)whole(doc, "layer_bytes") == want, "%s: %s: %s: %lld and not %llu", m->path, backend,
		      cases[c].name, (long long)whole(doc, "layer_bytes"), (unsigned long long)want);
}

static void golden(const char *name, FILE *file, bool write)
{
	char path[4096];
	struct clv_model m;
	const struct clv_backend *b;
	unsigned good = 0;
	model_path(name, path, sizeof(path));
	read_model(&m, path);
	for (size_t i = 0; (b = clv_backend_at(i)); i++)
		for (size_t c = 0; b->formats >> m.quant.format & 1 && c < CLV_ARRAY_LEN(cases); c++) {
			struct cli_result r = plan_case(path, b->name, c);
			char *line = line_of(b->name, c, r), was[8192];
			if (write) {
				fprintf(file, "%s\n", line);
			} else {
				ck_assert_msg(fgets(was, sizeof(was), file) != NULL, "%s: ends before %s", name, line);
				was[strcspn(was, "\n")] = '\0';
				ck_assert_msg(strcmp(was, line) == 0, "%s: expected\n%.3000s\ninstead of\n%.3000s",
					      name, was, line);
			}
			free(line);
			if (r.status == 0) {
				json_t *doc = parsed(r.out);
				check_document(&m, b->name, c, doc);
				json_decref(doc);
				good++;
			}
		}
	ck_assert_msg(good > 0, "%s goes with no backend", name);
	if (!write)
		ck_assert_msg(fgetc(file) == EOF, "%s: there are more lines than plans", name);
	clv_model_free(&m);
}

START_TEST(goldens)
{
	bool write = getenv("CLEAVE_PLAN_WRITE") != NULL;
	for (size_t i = 0; i < CLV_ARRAY_LEN(published_models); i++) {
		char path[4096];
		snprintf(path, sizeof(path), "%s/plan/%s.jsonl", getenv("CLEAVE_TEST_DATA"), published_models[i]);
		FILE *file = fopen(path, write ? "w" : "r");
		ck_assert_msg(file != NULL, "%s", path);
		golden(published_models[i], file, write);
		ck_assert_int_eq(fclose(file), 0);
	}
}
END_TEST

/* A plan takes less than 50 ms because one layer is packed, and at once: so many steps of some 10 ns. */
#define STEPS_MAX 500000

START_TEST(packs_in_few_steps)
{
	uint64_t most = 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(published_models); i++) {
		struct clv_model m;
		const struct clv_backend *b;
		read_named(&m, published_models[i]);
		for (size_t n = 0; (b = clv_backend_at(n)); n++)
			for (size_t c = 0; b->formats >> m.quant.format & 1 && c < CLV_ARRAY_LEN(cases); c++) {
				struct clv_shard_config parallel;
				struct clv_plan_config config = {{0}};
				struct clv_plan p;
				struct clv_error err = {{0}};
				clv_shard_config_init(&parallel);
				parallel.tp = cases[c].tp;
				parallel.expert_parallel = cases[c].ep;
				config.timeline.model = &m;
				config.timeline.backend = b;
				config.timeline.parallel = &parallel;
				if (!clv_plan_make(&p, &config, &err))
					continue;
				uint64_t steps = 0;
				for (unsigned k = 0; k < CLV_SETS; k++)
					for (unsigned s = 0; s < CLV_STRATEGIES; s++)
						steps += p.ranks[0].timeline.kinds[k].plans[s].packed.steps;
				ck_assert_msg(steps <= STEPS_MAX, "%s: %s: %llu steps", m.name, b->name,
					      (unsigned long long)steps);
				most = clv_max_u64(most, steps);
				clv_plan_free(&p);
			}
		clv_model_free(&m);
	}
	ck_assert_uint_gt(most, 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {agrees_with_the_table, agrees_with_reports, goldens, packs_in_few_steps};
	return cli_suite("cli_plan_sizes", tests, CLV_ARRAY_LEN(tests));
}
