/* SPDX-License-Identifier: MIT */
#include "../src/plan/backend_layouts.h"
#include "../src/plan/coverage.h"
#include "check_main.h"
#include "models.h"

#define MXFP4 "\"quant_method\": \"mxfp4\""
#define OWN_MXFP4                                                                                                      \
	"\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", \"config_groups\": "          \
	"{\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4, \"group_size\": 32, \"type\": "      \
	"\"float\", \"strategy\": \"group\"}}}, \"ignore\": []"
#define NVFP4 "\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\""
#define OWN_NVFP4                                                                                                      \
	"\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", \"config_groups\": "          \
	"{\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4, \"group_size\": 16, \"type\": "      \
	"\"float\", \"strategy\": \"group\"}}}, \"ignore\": []"
#define FP8_BLOCK(size) "\"quant_method\": \"fp8\", \"weight_block_size\": " size
#define FP8_TENSOR "\"quant_method\": \"fp8\""
#define FP8_CHANNEL "\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8_PER_CHANNEL_PER_TOKEN\""
#define GPTQ(bits, group, order)                                                                                       \
	"\"quant_method\": \"gptq\", \"bits\": " bits ", \"group_size\": " group ", \"desc_act\": " order              \
	", \"sym\": true"
#define AWQ "\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128, \"zero_point\": true"

/* A model of which only the experts' sizes count. */
static void make_model(struct clv_model *m, const char *type, uint32_t hidden, uint32_t intermediate, uint32_t experts,
		       const char *quantization)
{
	char text[2048], quant[1024] = "";
	struct clv_error err = {0};
	bool oss = !strcmp(type, "gpt_oss");
	if (quantization)
		snprintf(quant, sizeof(quant), ", \"quantization_config\": {%s}", quantization);
	snprintf(text, sizeof(text),
		 "{\"model_type\": \"%s\", \"hidden_size\": %u, \"%s\": %u, \"%s\": %u, \"num_experts_per_tok\": 1, "
		 "\"num_hidden_layers\": 2, \"torch_dtype\": \"bfloat16\"%s%s}",
		 type, hidden, oss ? "intermediate_size" : "moe_intermediate_size", intermediate,
		 oss ? "num_local_experts" : "num_experts", experts,
		 oss ? "" : ", \"decoder_sparse_step\": 1, \"mlp_only_layers\": []", quant);
	ck_assert_msg(clv_model_parse(m, "m", text, strlen(text), NULL, NULL, 0, &err), "%s", err.text);
}

static struct clv_shard_config parallel(uint32_t tp, bool ep)
{
	struct clv_shard_config c;
	clv_shard_config_init(&c);
	c.tp = tp;
	c.expert_parallel = ep;
	return c;
}

static const struct clv_backend *named(const char *name)
{
	struct clv_error err = {0};
	const struct clv_backend *b = clv_backend_find(name, &err);
	ck_assert_msg(b != NULL, "%s", err.text);
	return b;
}

static void plan(struct clv_backend_layer *l, const char *backend, const struct clv_model *m, uint32_t tp, bool ep)
{
	struct clv_shard_config c = parallel(tp, ep);
	struct clv_error err = {0};
	ck_assert_msg(clv_backend_plan(l, named(backend), m, &c,
				       CLV_SET_QUANT + (m->quant.format == CLV_FORMAT_PLAIN && m->plain_layers), 0,
				       &err),
		      "%s: %s", backend, err.text);
}

static const struct clv_backend_buffer *get(const struct clv_backend_layer *l, bool source, const char *name)
{
	const struct clv_backend_buffer *b = source ? l->sources : l->destinations;
	uint32_t n = source ? l->source_count : l->destination_count;
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(b[i].name, name))
			return &b[i];
	ck_abort_msg("%s has no %s %s", l->backend->name, source ? "source" : "destination", name);
	return NULL;
}

static void is(const struct clv_backend_layer *l, bool source, const char *name, const char *dtype, uint64_t a,
	       uint64_t b, uint64_t c, uint64_t d, uint64_t bytes)
{
	const struct clv_backend_buffer *x = get(l, source, name);
	const uint64_t shape[4] = {a, b, c, d};
	ck_assert_msg(!strcmp(x->dtype.name, dtype) && !memcmp(x->shape, shape, sizeof(shape)) && x->bytes == bytes,
		      "%s: %s: %s (%llu, %llu, %llu, %llu), %llu bytes", l->backend->name, name, x->dtype.name,
		      (unsigned long long)x->shape[0], (unsigned long long)x->shape[1], (unsigned long long)x->shape[2],
		      (unsigned long long)x->shape[3], (unsigned long long)x->bytes);
}

static void refused(const char *backend, const struct clv_model *m, uint32_t tp, const char *why)
{
	struct clv_backend_layer l;
	struct clv_shard_config c = parallel(tp, false);
	struct clv_error err = {0};
	ck_assert_msg(!clv_backend_plan(&l, named(backend), m, &c, CLV_SET_QUANT, 0, &err), "accepted, instead of: %s",
		      why);
	ck_assert_msg(strstr(err.text, why) != NULL, "%s\ninstead of: %s", err.text, why);
}

#define SOURCE true
#define DEST false

/* moe-layouts 4.1: a layer's destinations in tenths of a MiB; the hidden size to 256, N to 64. Where the table pads after
 * a cut through a group of 16 (gpt-oss at TP8: 360), the share that it pads to is given instead: 384 x 8. */
static const struct {
	const char *name;
	uint32_t hidden, intermediate, experts, tp8, ep8;
} trtllm[] = {{"Kimi-K3", 3584, 3072, 896, 19845, 19845},
	      {"Kimi-K2", 7168, 2048, 384, 11340, 11340},
	      {"DeepSeek-V3", 7168, 2048, 256, 7560, 7560},
	      {"DeepSeek-V4-Pro", 7168, 3072, 384, 17010, 17010},
	      {"Qwen3-235B", 4096, 1536, 128, 1620, 1620},
	      {"Qwen3-Coder", 6144, 2560, 160, 5063, 5063},
	      {"GLM-4.5", 5120, 1536, 160, 2531, 2531},
	      {"gpt-oss-120b", 2880, 2880, 128, 0, 2278},
	      {"gpt-oss-120b at TP8", 2880, 3072, 128, 2430, 2430},
	      {"gpt-oss-20b", 2880, 2880, 32, 0, 570},
	      {"gpt-oss-20b at TP8", 2880, 3072, 32, 608, 608},
	      {"Mixtral-8x7B", 4096, 14336, 8, 945, 945},
	      {"Mixtral-8x22B", 6144, 16384, 8, 1620, 1620},
	      {"Maverick", 5120, 8192, 128, 10800, 10800},
	      {"Scout", 5120, 8192, 16, 1350, 1350},
	      {"MiniMax-M2", 3072, 1536, 256, 2430, 2430}};

START_TEST(knows_nvfp4_of_trtllm_for_all_models)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(trtllm); i++) {
		struct clv_model m;
		struct clv_backend_layer l;
		make_model(&m, "qwen3_moe", trtllm[i].hidden, trtllm[i].intermediate, trtllm[i].experts, NVFP4);
		for (int ep = 0; ep < 2; ep++) {
			uint32_t want = ep ? trtllm[i].ep8 : trtllm[i].tp8;
			if (!want) {
				refused("nvfp4-trtllm", &m, 8, "360 with tp 8, which would cut a group of 16");
				continue;
			}
			plan(&l, "nvfp4-trtllm", &m, 8, ep);
			ck_assert_msg((l.destination_bytes * 10 + CLV_MIB / 2) / CLV_MIB == want, "%s: %llu",
				      trtllm[i].name, (unsigned long long)l.destination_bytes);
			ck_assert_uint_eq(l.order, CLV_ORDER_IN_TURN);
			ck_assert_uint_eq(l.same_bytes, 0);
		}
		clv_model_free(&m);
	}
}
END_TEST

/* moe-layouts 1.5: bytes of an expert */
START_TEST(knows_the_sizes_of_kimi_k3)
{
	struct clv_model m;
	struct clv_backend_layer l;
	make_model(&m, "qwen3_moe", 3584, 3072, 896, NVFP4);
	plan(&l, "nvfp4-trtllm", &m, 8, true);
	is(&l, DEST, "w13_weight", "uint8", 112, 6144, 1792, 0, 112 * 11010048ull);
	is(&l, DEST, "w13_weight_scale", "float8_e4m3fn", 112, 6144, 224, 0, 112 * 1376256ull);
	is(&l, DEST, "w2_weight", "uint8", 112, 3584, 1536, 0, 112 * 5505024ull);
	is(&l, DEST, "w2_weight_scale", "float8_e4m3fn", 112, 3584, 192, 0, 112 * 688128ull);
	is(&l, SOURCE, "w13_weight", "uint8", 112, 6144, 1792, 0, 112 * 11010048ull);
	is(&l, SOURCE, "w13_weight_scale_2", "float32", 112, 2, 0, 0, 112 * 2 * 4);
	is(&l, SOURCE, "w2_weight_scale_2", "float32", 112, 0, 0, 0, 112 * 4);
	is(&l, SOURCE, "w13_input_scale", "float32", 896, 2, 0, 0, 896 * 2 * 4); /* of all experts */
	is(&l, SOURCE, "w2_input_scale", "float32", 896, 0, 0, 0, 896 * 4);
	ck_assert_uint_eq(l.source_bytes, l.destination_bytes + 112 * 3 * 4 + 896 * 3 * 4);
	ck_assert_uint_eq(l.destination_count, 4);
	ck_assert(!get(&l, SOURCE, "w13_weight")->zeroed && !get(&l, DEST, "w13_weight")->zeroed);
	plan(&l, "nvfp4-trtllm", &m, 8, false);
	is(&l, DEST, "w13_weight", "uint8", 896, 768, 1792, 0, 896 * 1376256ull);
	is(&l, DEST, "w13_weight_scale", "float8_e4m3fn", 896, 768, 224, 0, 896 * 172032ull);
	is(&l, DEST, "w2_weight", "uint8", 896, 3584, 192, 0, 896 * 688128ull);
	is(&l, DEST, "w2_weight_scale", "float8_e4m3fn", 896, 3584, 24, 0, 896 * 86016ull);
	/* 96 at TP32: sources of 96, destinations of 128, zeroed */
	plan(&l, "nvfp4-trtllm", &m, 32, false);
	is(&l, SOURCE, "w2_weight", "uint8", 896, 3584, 48, 0, 896 * 3584ull * 48);
	is(&l, DEST, "w2_weight", "uint8", 896, 3584, 64, 0, 896 * 3584ull * 64);
	ck_assert(!get(&l, SOURCE, "w2_weight")->zeroed && get(&l, DEST, "w2_weight")->zeroed);
	plan(&l, "nvfp4-vllm-cutlass", &m, 8, true); /* not of FlashInfer: only the rank's */
	is(&l, SOURCE, "w13_input_scale", "float32", 112, 2, 0, 0, 112 * 2 * 4);
	ck_assert_uint_eq(l.order, CLV_ORDER_LOADED);
	clv_model_free(&m);
	/* compressed-tensors: other names, never of all experts */
	make_model(&m, "qwen3_moe", 3584, 3072, 896, OWN_NVFP4);
	plan(&l, "nvfp4-trtllm", &m, 8, true);
	is(&l, SOURCE, "w13_weight_packed", "uint8", 112, 6144, 1792, 0, 112 * 11010048ull);
	is(&l, SOURCE, "w13_weight_global_scale", "float32", 112, 2, 0, 0, 112 * 2 * 4);
	is(&l, SOURCE, "w13_input_global_scale", "float32", 112, 2, 0, 0, 112 * 2 * 4);
	clv_model_free(&m);
}
END_TEST

START_TEST(knows_the_other_rows_of_nvfp4)
{
	static const struct {
		const char *name;
		enum clv_backend_order order;
	} cutlass[] = {{"nvfp4-cutlass", CLV_ORDER_UP_GATE},
		       {"nvfp4-vllm-cutlass", CLV_ORDER_LOADED},
		       {"nvfp4-cutedsl-batched", CLV_ORDER_LOADED},
		       {"nvfp4-b12x", CLV_ORDER_UP_GATE},
		       {"nvfp4-cutedsl", CLV_ORDER_TURN_64}};
	struct clv_model m;
	struct clv_backend_layer l;
	/* K = 2880: 180 groups, w2 has 2880 rows, which are 22.5 x 128: 2944; N = 192: 12 groups */
	make_model(&m, "qwen3_moe", 2880, 192, 4, NVFP4);
	for (size_t i = 0; i < CLV_ARRAY_LEN(cutlass); i++) {
		plan(&l, cutlass[i].name, &m, 1, false);
		ck_assert_uint_eq(l.order, cutlass[i].order);
		is(&l, DEST, "w13_weight", "uint8", 4, 384, 1440, 0, 4 * 384 * 1440);
		is(&l, DEST, "w13_weight_scale", "float8_e4m3fn", 4, 384, 180, 0, 4 * 384 * 180);
		is(&l, DEST, "w2_weight_scale", "float8_e4m3fn", 4, 2944, 12, 0, 4 * 2944 * 12);
		is(&l, SOURCE, "w2_weight_scale", "float8_e4m3fn", 4, 2880, 12, 0, 4 * 2880 * 12);
		ck_assert(get(&l, DEST, "w2_weight_scale")->zeroed && !get(&l, DEST, "w13_weight_scale")->zeroed);
		refused(cutlass[i].name, &m, 2, "to be a multiple of 64, and it is 96");
	}
	plan(&l, "nvfp4-marlin", &m, 2, false); /* K % 128 is 64: N to 128; 96 -> 128 */
	is(&l, DEST, "w13_weight", "int32", 4, 180, 256 * 2, 0, 4 * 256 * 1440);
	is(&l, DEST, "w2_weight", "int32", 4, 8, 2880 * 2, 0, 4 * 2880 * 64);
	is(&l, DEST, "w13_weight_scale", "float8_e4m3fn", 4, 180, 256, 0, 4 * 180 * 256);
	is(&l, DEST, "w2_weight_scale", "float8_e4m3fn", 4, 8, 2880, 0, 4 * 8 * 2880);
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 2048, 384, 4, NVFP4);
	plan(&l, "nvfp4-marlin", &m, 2, false); /* K % 128 is 0: N to 64; 192 */
	is(&l, DEST, "w2_weight", "int32", 4, 12, 2048 * 2, 0, 4 * 2048 * 96);
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 2080, 384, 4, NVFP4);
	refused("nvfp4-marlin", &m, 1, "requires the hidden size of routed experts to be a multiple of 64");
	clv_model_free(&m);
	/* without a gate: N to 128, after the load */
	make_model(&m, "qwen3_moe", 2048, 192, 4, NVFP4);
	m.gated = false;
	plan(&l, "nvfp4-cutlass", &m, 1, false);
	is(&l, SOURCE, "w13_weight", "uint8", 4, 192, 1024, 0, 4 * 192 * 1024);
	is(&l, SOURCE, "w13_weight_scale_2", "float32", 4, 1, 0, 0, 16);
	is(&l, DEST, "w13_weight", "uint8", 4, 256, 1024, 0, 4 * 256 * 1024);
	plan(&l, "nvfp4-trtllm", &m, 1, false);
	is(&l, DEST, "w2_weight", "uint8", 4, 2048, 128, 0, 4 * 2048 * 128);
	refused("nvfp4-cutedsl", &m, 1, "have no gate");
	clv_model_free(&m);
}
END_TEST

/* moe-layouts 5, nos. 2, 5, 12 */
START_TEST(knows_the_sizes_of_gpt_oss)
{
	static const char *const both[] = {"mxfp4-triton", "mxfp4-triton-unfused"};
	struct clv_model m;
	struct clv_backend_layer l;
	make_model(&m, "gpt_oss", 2880, 2880, 128, MXFP4);
	for (size_t i = 0; i < CLV_ARRAY_LEN(both); i++) {
		plan(&l, both[i], &m, 2, false);
		is(&l, SOURCE, "w13_weight", "uint8", 128, 2944, 1440, 0, 542638080);
		is(&l, SOURCE, "w2_weight", "uint8", 128, 2880, 736, 0, 271319040);
		is(&l, SOURCE, "w13_bias", "bfloat16", 128, 2944, 0, 0, 128 * 2944 * 2);
		is(&l, DEST, "w13_weight", "uint8", 128, 1472, 2944, 0, 554696704);
		is(&l, DEST, "w2_weight", "uint8", 128, 768, 2880, 0, 283115520);
		is(&l, DEST, "w13_bias", "float32", 128, 2944, 0, 0, 128 * 2944 * 4);
		/* 90 groups -> 92, 2944 rows -> 3072; 46 -> 48, 2880 -> 3072 */
		is(&l, DEST, "w13_weight_scale", "uint8", 128, 92 * 32, 96, 0, 128 * 92 * 3072);
		is(&l, DEST, "w2_weight_scale", "uint8", 128, 48 * 32, 96, 0, 128 * 48 * 3072);
		ck_assert(get(&l, SOURCE, "w13_weight")->zeroed && get(&l, DEST, "w13_weight")->zeroed);
		plan(&l, both[i], &m, 1, false);
		is(&l, DEST, "w13_weight", "uint8", 128, 1472, 5760, 0, 128ull * 1472 * 5760);
	}
	plan(&l, "mxfp4-marlin", &m, 8, false); /* 360 -> 384, 2880 -> 3072 */
	is(&l, DEST, "w13_weight", "int32", 128, 192, 1536, 0, 128ull * 768 * 1536);
	is(&l, DEST, "w13_bias", "bfloat16", 128, 768, 0, 0, 128 * 768 * 2);
	is(&l, SOURCE, "w2_bias", "bfloat16", 128, 3072, 0, 0, 128 * 3072 * 2);
	plan(&l, "mxfp4-trtllm", &m, 1, false);
	is(&l, DEST, "w13_bias", "float32", 128, 5888, 0, 0, 128 * 5888 * 4);
	ck_assert_uint_eq(l.order, CLV_ORDER_IN_TURN);
	refused("mxfp4-deepgemm", &m, 1, "gate and up in turn, for which no rule is known");
	clv_model_free(&m);
	make_model(&m, "gpt_oss", 2880, 2944, 128, MXFP4); /* as TensorRT-LLM pads it */
	plan(&l, "mxfp4-triton", &m, 1, false);
	is(&l, DEST, "w13_weight", "uint8", 128, 1472, 5888, 0, 1109393408); /* 1.0332 GiB */
	clv_model_free(&m);
}
END_TEST

START_TEST(knows_the_other_rows_of_mxfp4)
{
	struct clv_model m;
	struct clv_backend_layer l;
	/* N = 160 -> 256 or 192 or 160; K = 1120 -> 1280 or 1152 or 1120 */
	make_model(&m, "qwen3_moe", 1120, 160, 4, MXFP4);
	static const char *const marlin[] = {"mxfp4-marlin", "mxfp4-batched-marlin"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(marlin); i++) {
		plan(&l, marlin[i], &m, 1, false);
		is(&l, SOURCE, "w13_weight", "uint8", 4, 512, 640, 0, 4 * 512 * 640);
		is(&l, SOURCE, "w13_weight_scale", "uint8", 4, 512, 40, 0, 4 * 512 * 40);
		is(&l, DEST, "w13_weight", "int32", 4, 80, 1024, 0, 4 * 512 * 640);
		is(&l, DEST, "w2_weight", "int32", 4, 16, 2560, 0, 4 * 1280 * 128);
		is(&l, DEST, "w13_weight_scale", "float8_e8m0fnu", 4, 40, 512, 0, 4 * 512 * 40);
		is(&l, DEST, "w2_weight_scale", "float8_e8m0fnu", 4, 8, 1280, 0, 4 * 1280 * 8);
	}
	static const char *const gen[] = {"mxfp4-trtllm", "mxfp4-trtllm-mxfp8"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(gen); i++) {
		plan(&l, gen[i], &m, 1, false);
		is(&l, DEST, "w13_weight", "uint8", 4, 512, 640, 0, 4 * 512 * 640);
		is(&l, DEST, "w2_weight_scale", "float8_e4m3fn", 4, 1280, 8, 0, 4 * 1280 * 8);
	}
	plan(&l, "mxfp4-cutlass-mxfp8", &m, 1, false);
	is(&l, DEST, "w13_weight", "uint8", 4, 512, 576, 0, 4 * 512 * 576);
	is(&l, DEST, "w13_weight_scale", "uint8", 4, 512, 36, 0, 4 * 512 * 36);
	is(&l, DEST, "w2_weight_scale", "uint8", 4, 1152, 8, 0, 4 * 1152 * 8);
	ck_assert_uint_eq(l.order, CLV_ORDER_UP_GATE);
	plan(&l, "mxfp4-cutlass", &m, 1, false);
	is(&l, DEST, "w13_weight_scale", "uint8", 4, 9, 2048, 0, 4 * 512 * 36);
	is(&l, DEST, "w2_weight_scale", "uint8", 4, 2, 4608, 0, 4 * 1152 * 8);
	plan(&l, "mxfp4-deepgemm", &m, 1, false);
	is(&l, DEST, "w13_weight_scale", "int32", 4, 512, 9, 0, 4 * 512 * 36);
	const struct clv_backend_buffer *packed = get(&l, DEST, "w13_weight_scale");
	ck_assert(packed->stride[0] == 512 * 9 && packed->stride[1] == 1 && packed->stride[2] == 512);
	ck_assert(get(&l, DEST, "w13_weight")->same && get(&l, DEST, "w13_weight")->zeroed && !packed->same);
	ck_assert_uint_eq(l.same_bytes, 4 * (512 * 576 + 1152 * 128));
	static const char *const none[] = {"mxfp4-emulation", "mxfp4-cpu"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(none); i++) {
		plan(&l, none[i], &m, 1, false);
		is(&l, DEST, "w13_weight", "uint8", 4, 320, 560, 0, 4 * 320 * 560);
		is(&l, DEST, "w2_weight_scale", "uint8", 4, 1120, 5, 0, 4 * 1120 * 5);
		ck_assert_uint_eq(l.same_bytes, l.destination_bytes);
		ck_assert_uint_eq(l.same_bytes, l.source_bytes);
	}
	refused("mxfp4-rocm", &m, 1, "only the alignments are known (N to 256, K to 256)");
	refused("mxfp4-triton", &m, 1, "gpt-oss");
	clv_model_free(&m);
	/* compressed-tensors' own method does not pad and does not clear; Kimi-K3 is not loaded by it */
	make_model(&m, "qwen3_moe", 1280, 256, 4, OWN_MXFP4);
	plan(&l, "mxfp4-marlin", &m, 2, false);
	ck_assert(!get(&l, SOURCE, "w13_weight")->zeroed);
	refused("mxfp4-marlin", &m, 4,
		"to be a multiple of 128, and it is 64: compressed-tensors' method does not pad");
	refused("mxfp4-batched-marlin", &m, 2, "only to Marlin (mxfp4-marlin) and to CutlassExpertsMxfp4");
	snprintf(m.type, sizeof(m.type), "kimi_k3");
	plan(&l, "mxfp4-batched-marlin", &m, 4, false);
	is(&l, DEST, "w2_weight", "int32", 4, 8, 2560, 0, 4 * 1280 * 64);
	clv_model_free(&m);
}
END_TEST

START_TEST(knows_the_rows_of_fp8)
{
	struct clv_model m;
	struct clv_backend_layer l;
	make_model(&m, "qwen3_moe", 1280, 256, 4, FP8_BLOCK("[128, 128]"));
	plan(&l, "fp8-deepgemm", &m, 1, false);
	is(&l, SOURCE, "w13_weight", "float8_e4m3fn", 4, 512, 1280, 0, 4 * 512 * 1280);
	is(&l, SOURCE, "w13_weight_scale_inv", "float32", 4, 4, 10, 0, 4 * 4 * 10 * 4);
	is(&l, SOURCE, "w2_weight_scale_inv", "float32", 4, 10, 2, 0, 4 * 10 * 2 * 4);
	ck_assert(get(&l, DEST, "w13_weight_scale_inv")->same); /* it stays, and so does its name */
	ck_assert_uint_eq(l.same_bytes, l.destination_bytes);
	ck_assert_uint_eq(l.destination_bytes, l.source_bytes);
	plan(&l, "fp8-deepgemm-sm100", &m, 1, false);
	is(&l, DEST, "w13_weight_scale_inv", "int32", 4, 512, 3, 0, 4 * 512 * 3 * 4);
	is(&l, DEST, "w2_weight_scale_inv", "int32", 4, 1280, 1, 0, 4 * 1280 * 1 * 4);
	ck_assert(get(&l, DEST, "w2_weight")->same && get(&l, DEST, "w2_weight_scale_inv")->zeroed);
	plan(&l, "fp8-flashinfer", &m, 1, false);
	is(&l, DEST, "w13_weight", "uint8", 4, 10, 512, 128, 4 * 512 * 1280);
	is(&l, DEST, "w2_weight", "uint8", 4, 2, 1280, 128, 4 * 1280 * 256);
	is(&l, DEST, "w13_weight_scale_inv", "float32", 4, 4, 10, 0, 640);
	plan(&l, "fp8-marlin", &m, 1, false);
	is(&l, DEST, "w13_weight", "int32", 4, 80, 2048, 0, 4 * 512 * 1280);
	is(&l, DEST, "w2_weight", "int32", 4, 16, 5120, 0, 4 * 1280 * 256);
	is(&l, DEST, "w13_weight_scale_inv", "bfloat16", 4, 10, 512, 0, 4 * 10 * 512 * 2);
	is(&l, DEST, "w2_weight_scale_inv", "bfloat16", 4, 2, 1280, 0, 4 * 2 * 1280 * 2);
	refused("fp8-flashinfer-tensor", &m, 1, "is for");
	refused("fp8-deepgemm", &m, 4, "would cut a block of 128");
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 1280, 256, 4, FP8_BLOCK("[64, 64]"));
	static const char *const blocks[] = {"fp8-deepgemm", "fp8-deepgemm-sm100", "fp8-flashinfer", "fp8-marlin"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(blocks); i++)
		refused(blocks[i], &m, 1, "blocks of 64 x 64: for fp8-");
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 1280, 200, 4, FP8_TENSOR); /* 200 -> 208, or 256 */
	plan(&l, "fp8-flashinfer-tensor", &m, 1, false);
	is(&l, SOURCE, "w13_weight", "float8_e4m3fn", 4, 400, 1280, 0, 4 * 400 * 1280);
	is(&l, SOURCE, "w13_weight_scale", "float32", 4, 2, 0, 0, 32);
	is(&l, SOURCE, "w2_weight_scale", "float32", 4, 0, 0, 0, 16);
	is(&l, DEST, "w13_weight", "float8_e4m3fn", 4, 416, 1280, 0, 4 * 416 * 1280);
	is(&l, DEST, "w2_weight", "float8_e4m3fn", 4, 1280, 208, 0, 4 * 1280 * 208);
	ck_assert_uint_eq(l.destination_count, 2);
	plan(&l, "fp8-marlin", &m, 1, false);
	is(&l, DEST, "w13_weight_scale", "bfloat16", 4, 1, 512, 0, 4 * 512 * 2);
	m.gated = false;
	plan(&l, "fp8-flashinfer-tensor", &m, 1, false);
	is(&l, DEST, "w13_weight", "float8_e4m3fn", 4, 256, 1280, 0, 4 * 256 * 1280);
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 4096, 1408, 128, FP8_CHANNEL); /* GLM-4.5-Air at TP8: 176 -> 256 */
	plan(&l, "fp8-marlin", &m, 8, false);
	is(&l, SOURCE, "w13_weight_scale", "float32", 128, 352, 1, 0, 128 * 352 * 4);
	is(&l, DEST, "w13_weight", "int32", 128, 256, 2048, 0, 128 * 512 * 4096);
	is(&l, DEST, "w2_weight_scale", "bfloat16", 128, 1, 4096, 0, 128 * 4096 * 2);
	clv_model_free(&m);
}
END_TEST

/* moe-layouts 5, no. 3: Qwen3-235B at TP4, 6 and 3 MiB an expert */
START_TEST(knows_the_rows_of_bf16)
{
	struct clv_model m;
	struct clv_backend_layer l;
	make_model(&m, "qwen3_moe", 4096, 1536, 128, NULL);
	plan(&l, "bf16-trtllm", &m, 4, false);
	is(&l, SOURCE, "w13_weight", "bfloat16", 128, 768, 4096, 0, 128 * 6 * CLV_MIB);
	is(&l, DEST, "w13_weight", "uint8", 128, 64, 768, 128, 128 * 6 * CLV_MIB);
	is(&l, DEST, "w2_weight", "uint8", 128, 6, 4096, 128, 128 * 3 * CLV_MIB);
	ck_assert_uint_eq(l.same_bytes, 0);
	plan(&l, "bf16-cutlass", &m, 4, false);
	is(&l, DEST, "w13_weight", "bfloat16", 128, 768, 4096, 0, 128 * 6 * CLV_MIB);
	ck_assert_uint_eq(l.same_bytes, 128 * 3 * CLV_MIB); /* only w13 is flipped */
	plan(&l, "bf16-triton", &m, 4, false);
	ck_assert_uint_eq(l.same_bytes, l.destination_bytes);
	refused("nvfp4-marlin", &m, 1, "is for");
	refused("bf16-trtllm", &m, 16, "to be a multiple of 64, and it is 96: its layout is of blocks");
	m.gated = false; /* 96 -> 128 */
	plan(&l, "bf16-trtllm", &m, 16, false);
	is(&l, DEST, "w13_weight", "uint8", 128, 64, 128, 128, 128 * CLV_MIB);
	m.dtype = CLV_DTYPE_F32;
	refused("bf16-triton", &m, 1, "bfloat16 or float16");
	m.dtype = CLV_DTYPE_F16;
	refused("bf16-trtllm", &m, 1, "is for bfloat16");
	clv_model_free(&m);
}
END_TEST

START_TEST(knows_the_rows_of_integers)
{
	struct clv_model m;
	struct clv_backend_layer l;
	make_model(&m, "qwen3_moe", 1280, 192, 4, GPTQ("4", "32", "false")); /* 96 -> 128 */
	plan(&l, "gptq-marlin", &m, 2, false);
	is(&l, SOURCE, "w13_qweight", "int32", 4, 160, 192, 0, 4 * 192 * 640);
	is(&l, SOURCE, "w13_scales", "bfloat16", 4, 40, 192, 0, 4 * 40 * 192 * 2);
	is(&l, SOURCE, "w13_g_idx", "int32", 4, 1280, 0, 0, 4 * 1280 * 4);
	is(&l, SOURCE, "w2_g_idx_sort_indices", "int32", 4, 96, 0, 0, 4 * 96 * 4);
	is(&l, DEST, "w13_qweight", "int32", 4, 80, 512, 0, 4 * 256 * 640);
	is(&l, DEST, "w2_qweight", "int32", 4, 8, 2560, 0, 4 * 1280 * 64);
	is(&l, DEST, "w13_scales", "bfloat16", 4, 40, 256, 0, 4 * 40 * 256 * 2);
	is(&l, DEST, "w2_scales", "bfloat16", 4, 4, 1280, 0, 4 * 4 * 1280 * 2);
	ck_assert_uint_eq(l.destination_count, 4);
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 1280, 192, 4, GPTQ("8", "-1", "false")); /* whole rows: 96 -> 128 */
	plan(&l, "gptq-marlin", &m, 2, false);
	is(&l, DEST, "w13_qweight", "int32", 4, 80, 1024, 0, 4 * 256 * 1280);
	is(&l, DEST, "w13_scales", "bfloat16", 4, 1, 256, 0, 4 * 256 * 2);
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 1280, 192, 4, GPTQ("4", "64", "true"));
	plan(&l, "gptq-marlin", &m, 1, false);
	is(&l, DEST, "w2_g_idx", "int32", 4, 192, 0, 0, 4 * 192 * 4);
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 1280, 96, 4, GPTQ("4", "32", "true"));
	refused("gptq-marlin", &m, 1, "to be a multiple of 64, and it is 96");
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 1280, 256, 4, GPTQ("4", "256", "false"));
	refused("gptq-marlin", &m, 1, "groups of 256");
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 1344, 192, 4, GPTQ("4", "64", "false"));
	refused("gptq-marlin", &m, 1, "the hidden size of routed experts to be a multiple of 128, and it is 1344");
	clv_model_free(&m);
	make_model(&m, "qwen3_moe", 1280, 256, 4, AWQ);
	refused("gptq-marlin", &m, 1, "quant_method is awq, for which there is awq-marlin");
	plan(&l, "awq-marlin", &m, 1, false);
	is(&l, SOURCE, "w13_qweight", "int32", 4, 1280, 64, 0, 4 * 512 * 640);
	is(&l, SOURCE, "w13_qzeros", "int32", 4, 10, 64, 0, 4 * 10 * 64 * 4);
	is(&l, DEST, "w2_qzeros", "int32", 4, 2, 160, 0, 4 * 2 * 160 * 4);
	snprintf(m.quant.method, sizeof(m.quant.method), "gptq");
	refused("gptq-marlin", &m, 1, "zero points in gptq");
	refused("awq-marlin", &m, 1, "quant_method is gptq, for which there is gptq-marlin");
	clv_model_free(&m);
}
END_TEST

/* Bytes of a destination that a layout has beyond the padded matrix, by its rule in moe-layouts 2.2. */
static uint64_t beyond(const struct clv_backend *b, const struct clv_shard_set *set, const struct clv_backend_buffer *d,
		       uint64_t experts)
{
	bool scale = d->kind == CLV_BUFFER_SCALE;
	const struct clv_shard_buffer *x = NULL;
	for (uint32_t i = 0; i < set->count; i++)
		if (set->buffers[i].role == (unsigned)(d->w2 ? CLV_ROLE_W2 : CLV_ROLE_W13) + scale)
			x = &set->buffers[i];
	uint64_t rows = x->parts * x->rows.padded, cols = x->cols.padded;
	if (d->kind == CLV_BUFFER_BIAS)
		return b->bias == CLV_BIAS_F32 ? d->bytes / 2 : 0;
	if (scale && b->scales == clv_layout_swizzled_128x4)
		return experts * ((rows + 127) / 128 * 128 * ((cols + 3) / 4 * 4) - rows * cols);
	if (scale && b->scales == clv_layout_hopper_scales)
		return experts * ((rows + 255) / 256 * 256 * ((cols + 3) / 4 * 4) - rows * cols);
	if (scale && b->scales == clv_layout_rows_128x4) /* nothing is rounded up: so it must not be needed */
		ck_assert(rows % 128 == 0 && cols % 4 == 0);
	if (d->kind == CLV_BUFFER_WEIGHT && b->weights == clv_layout_hopper)
		return experts * rows * ((cols / 2 + 63) / 64 * 64 - cols / 2);
	return 0;
}

/* All ranks together: what coverage proves of the destinations, and what the layout adds. */
static void sums(const struct clv_backend *b, const struct clv_model *m, uint32_t tp, bool ep, unsigned *done)
{
	struct clv_shard_config c = parallel(tp, ep);
	struct clv_shard source, destination;
	struct clv_coverage from, to;
	struct clv_error err = {0};
	uint64_t sources = 0, destinations = 0, more = 0, proved = 0;
	/* scales that are of another number or size: only the weights are compared */
	bool other = b->scales == clv_layout_ue8m0_of_blocks || b->scales == clv_layout_marlin_fp8_scales;
	if (!clv_backend_shards(b, m, &c, CLV_SET_QUANT, &source, &destination, &err)) {
		ck_assert(err.text[0]);
		return;
	}
	ck_assert_msg(clv_coverage_prove(&source, &from, &err), "%s: %s", b->name, err.text);
	ck_assert_msg(clv_coverage_prove(&destination, &to, &err), "%s: %s", b->name, err.text);
	for (uint32_t i = 0; i < to.count; i++)
		if (!other || !strcmp(to.buffers[i].name, "w13_weight") || !strcmp(to.buffers[i].name, "w2_weight"))
			proved += to.buffers[i].bytes * to.buffers[i].copies + to.buffers[i].tail_bytes;
	for (uint32_t rank = 0; rank < source.world; rank++) {
		struct clv_backend_layer l;
		uint64_t own[2] = {0}, measured[3] = {0};
		uint32_t count = 0, as_held = 0; /* an element in as many bytes as in the shard */
		struct clv_shard_rank r;
		ck_assert_msg(clv_backend_plan(&l, b, m, &c, CLV_SET_QUANT, rank, &err), "%s: %s", b->name, err.text);
		for (uint32_t i = 0; i < l.source_count; i++) {
			own[0] += l.sources[i].bytes;
			if (l.sources[i].kind != CLV_BUFFER_SCALAR && l.sources[i].kind != CLV_BUFFER_INDEX)
				sources += l.sources[i].bytes;
		}
		for (uint32_t i = 0; i < l.destination_count; i++) {
			const struct clv_backend_buffer *d = &l.destinations[i];
			own[1] += d->bytes;
			ck_assert_uint_eq(d->alignment, 512);
			if (clv_backend_is_measured(d)) {
				uint64_t rounded =
					d->kind == CLV_BUFFER_BIAS || (other && d->kind != CLV_BUFFER_WEIGHT)
						? d->layout_bytes
						: beyond(b, &destination.sets[CLV_SET_QUANT], d, l.rank.expert_count);
				ck_assert_uint_eq(d->layout_bytes, rounded);
				ck_assert(d->layout_bytes <= d->bytes && (!d->layout_bytes || d->zeroed));
				ck_assert_uint_le(d->valid_bytes, d->bytes - d->layout_bytes);
				measured[0] += d->valid_bytes;
				measured[1] += d->bytes;
				measured[2] += d->layout_bytes;
				as_held += d->bytes - d->layout_bytes == d->shard_bytes;
				count++;
			}
			if (other && d->kind != CLV_BUFFER_WEIGHT)
				continue;
			destinations += d->bytes;
			more += beyond(b, &destination.sets[CLV_SET_QUANT], d, l.rank.expert_count);
		}
		ck_assert(own[0] == l.source_bytes && own[1] == l.destination_bytes);
		ck_assert(l.valid_bytes == measured[0] && l.layout_bytes == measured[2] &&
			  l.valid_bytes + l.padding_bytes == measured[1]);
		clv_shard_rank(&destination, rank, &r);
		if (as_held == count)
			ck_assert_uint_eq(2 * l.valid_bytes, r.set_valid_bytes[CLV_SET_QUANT]);
	}
	/* the model's two layers are alike */
	ck_assert_msg(2 * sources == from.sum.buffer_bytes && 2 * destinations == proved + 2 * more,
		      "%s: %llu, %llu; %llu, %llu + %llu", b->name, (unsigned long long)sources,
		      (unsigned long long)from.sum.buffer_bytes, (unsigned long long)destinations,
		      (unsigned long long)proved, (unsigned long long)more);
	ck_assert_uint_eq(to.sum.bytes, from.sum.bytes);
	++*done;
}

START_TEST(sums_to_what_coverage_proves)
{
	static const char *const quants[] = {MXFP4,
					     OWN_MXFP4,
					     NVFP4,
					     OWN_NVFP4,
					     FP8_TENSOR,
					     FP8_CHANNEL,
					     AWQ,
					     NULL,
					     FP8_BLOCK("[128, 128]"),
					     GPTQ("4", "32", "false"),
					     GPTQ("8", "-1", "false")};
	static const uint32_t sizes[][2] = {{1280, 768}, {2880, 2880}, {1536, 1024}};
	unsigned done[64] = {0}, total = 0;
	for (size_t q = 0; q <= CLV_ARRAY_LEN(quants); q++) {
		for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++) {
			struct clv_model m;
			bool oss = q == CLV_ARRAY_LEN(quants);
			make_model(&m, oss ? "gpt_oss" : "qwen3_moe", sizes[i][0], sizes[i][1], 8,
				   oss ? MXFP4 : quants[q]);
			for (uint32_t tp = 1; tp <= 8; tp *= 2)
				for (size_t k = 0; clv_backend_at(k); k++) {
					sums(clv_backend_at(k), &m, tp, false, &done[k]);
					sums(clv_backend_at(k), &m, tp, true, &done[k]);
				}
			clv_model_free(&m);
		}
	}
	for (size_t k = 0; clv_backend_at(k); k++) {
		ck_assert_msg(done[k] || !clv_backend_at(k)->weights, "%s: never", clv_backend_at(k)->name);
		total += done[k];
	}
	ck_assert_uint_ge(total, 300);
}
END_TEST

/* Any sizes: refused with a reason, or it adds up. */
START_TEST(adds_up_or_refuses_any_sizes)
{
	static const char *const quants[] = {
		MXFP4, OWN_MXFP4, NVFP4, FP8_TENSOR, AWQ, NULL, FP8_BLOCK("[128, 128]"), GPTQ("4", "32", "false")};
	struct clv_model m = {0};
	unsigned done = 0;
	for (uint64_t seed = 1; seed <= 4000; seed++) {
		struct clv_rng rng = {seed};
		if (seed % 100 == 1) {
			const char *quant = quants[seed / 100 % CLV_ARRAY_LEN(quants)];
			bool oss = seed % 1000 == 1;
			clv_model_free(&m);
			make_model(&m, oss ? "gpt_oss" : "qwen3_moe", 128, 128, 8, oss ? MXFP4 : quant);
		}
		uint32_t unit = 1u << clv_rng_below(&rng, 8);
		m.intermediate = unit * (uint32_t)clv_rng_range(&rng, 1, CLV_MODEL_INTERMEDIATE_MAX / unit);
		m.routed_hidden = unit * (uint32_t)clv_rng_range(&rng, 1, CLV_MODEL_HIDDEN_MAX / unit);
		m.experts = (uint32_t)clv_rng_range(&rng, 1, CLV_MODEL_EXPERTS_MAX);
		m.gated = m.interleaved || clv_rng_below(&rng, 4);
		uint32_t tp = (uint32_t)clv_rng_range(&rng, 1, 4);
		bool ep = clv_rng_below(&rng, 2);
		for (size_t k = 0; clv_backend_at(k); k++)
			sums(clv_backend_at(k), &m, tp, ep, &done);
	}
	clv_model_free(&m);
	ck_assert_uint_gt(done, 500);
}
END_TEST

START_TEST(lists_them)
{
	struct clv_error err = {0};
	size_t n = 0;
	for (const struct clv_backend *b; (b = clv_backend_at(n)); n++) {
		ck_assert_ptr_eq(clv_backend_find(b->name, &err), b);
		ck_assert(b->engine && b->source && b->formats && b->scale_dtype && (b->order || !b->weights));
		ck_assert(!(b->must_n[0] || b->must_n[1] || b->must_k) || b->must_why);
		ck_assert(strlen(clv_backend_pads_name(b->pads)) > 0);
		ck_assert(!b->rule == !b->rule_text);
		ck_assert(!b->weights == !strcmp(clv_layout_name(b->weights), "-"));
		ck_assert(!b->scales == !strcmp(clv_layout_name(b->scales), "-"));
		ck_assert((b->pads == CLV_PADS_NOBODY) ==
			  !(b->align_n[0] || b->align_n[1] || b->align_k || b->formats >> CLV_FORMAT_INT & 1));
	}
	ck_assert_uint_eq(n, 29);
	ck_assert(!clv_backend_find("nvfp4", &err));
	ck_assert_msg(strstr(err.text, "backend \"nvfp4\" is not known; known are nvfp4-trtllm, ") &&
			      strstr(err.text, ", awq-marlin"),
		      "%s", err.text);
	ck_assert_str_eq(clv_backend_order_name(CLV_ORDER_UP_GATE, true, false), "up; gate");
	ck_assert_str_eq(clv_backend_order_name(CLV_ORDER_LOADED, true, true), "gate and up in turn");
	ck_assert_str_eq(clv_backend_order_name(CLV_ORDER_UP_GATE, false, false), "up");
}
END_TEST

START_TEST(refuses_what_is_not_there)
{
	struct clv_model m;
	struct clv_backend_layer l;
	struct clv_shard_config c = parallel(2, false);
	struct clv_error err = {0};
	make_model(&m, "qwen3_moe", 1280, 256, 4, NVFP4);
	ck_assert(!clv_backend_plan(&l, named("nvfp4-marlin"), &m, &c, CLV_SET_QUANT, 2, &err));
	ck_assert_msg(strstr(err.text, "rank 2 is not among the 2 ranks"), "%s", err.text);
	err = (struct clv_error){0};
	ck_assert(!clv_backend_plan(&l, named("bf16-triton"), &m, &c, CLV_SET_PLAIN, 0, &err));
	ck_assert_msg(strstr(err.text, "no layer has experts that are left out"), "%s", err.text);
	m.bias = true;
	refused("nvfp4-marlin", &m, 1, "experts with a bias: no rule is known for nvfp4-marlin");
	clv_model_free(&m);
	/* a layer that compressed-tensors' MXFP4 leaves out is no MXFP4 */
	make_model(&m, "qwen3_moe", 1280, 192, 4, OWN_MXFP4);
	m.plain_layers = 1;
	m.layer[1] |= CLV_LAYER_PLAIN;
	err = (struct clv_error){0};
	ck_assert_msg(clv_backend_plan(&l, named("bf16-triton"), &m, &c, CLV_SET_PLAIN, 0, &err), "%s", err.text);
	is(&l, SOURCE, "w13_weight", "bfloat16", 4, 192, 1280, 0, 4 * 192 * 1280 * 2);
	clv_model_free(&m);
	read_named(&m, "interleaved"); /* FP8; one layer is left out */
	err = (struct clv_error){0};
	ck_assert_msg(clv_backend_plan(&l, named("bf16-triton"), &m, &c, CLV_SET_PLAIN, 0, &err), "%s", err.text);
	is(&l, SOURCE, "w13_weight", "bfloat16", 4, 96, 48, 0, 4 * 96 * 48 * 2);
	clv_model_free(&m);
}
END_TEST

/* The old rule of Kimi-K3: the model pads to 256 a rank, and clears. */
START_TEST(lets_the_model_pad)
{
	struct clv_model m;
	struct clv_backend_layer l;
	struct clv_shard_config c = parallel(32, false);
	struct clv_coverage cover;
	struct clv_error err = {0};
	make_model(&m, "qwen3_moe", 3584, 3072, 896, NVFP4);
	m.intermediate_floor = 256;
	c.padding = CLV_PADDING_MODEL;
	ck_assert_msg(clv_backend_plan(&l, named("nvfp4-trtllm"), &m, &c, CLV_SET_QUANT, 0, &err), "%s", err.text);
	is(&l, SOURCE, "w2_weight", "uint8", 896, 3584, 128, 0, 896 * 3584ull * 128);
	is(&l, DEST, "w2_weight", "uint8", 896, 3584, 128, 0, 896 * 3584ull * 128);
	ck_assert(get(&l, SOURCE, "w2_weight")->zeroed && !get(&l, DEST, "w2_weight")->zeroed);
	ck_assert_msg(clv_coverage_prove(&l.destination_shard, &cover, &err), "%s", err.text);
	clv_model_free(&m);
}
END_TEST

/* gpt-oss over 16 ranks on Hopper: 90 groups of 32, six a rank, so that each has 192 of w2's columns, in 96 bytes, of which the
 * layout makes 128; and of K, 1,440 bytes, 1,472. */
START_TEST(measures_what_layouts_add)
{
	struct clv_model m;
	struct clv_backend_layer l;
	make_model(&m, "gpt_oss", 2880, 2880, 128, MXFP4);
	plan(&l, "mxfp4-triton", &m, 16, false);
	const struct clv_backend_buffer *w13 = get(&l, DEST, "w13_weight"), *w2 = get(&l, DEST, "w2_weight"),
					*scale = get(&l, DEST, "w2_weight_scale");
	ck_assert_uint_eq(w2->valid_bytes, 128 * 2880 * 96);
	ck_assert_uint_eq(w2->layout_bytes, 128 * 2880 * 32);
	ck_assert_uint_eq(w13->valid_bytes, 128 * 384 * 1440);
	ck_assert_uint_eq(w13->layout_bytes, 128 * 384 * 32);
	ck_assert_uint_eq(scale->valid_bytes, 128 * 2880 * 6);
	ck_assert_uint_eq(scale->layout_bytes, 128 * (3072 * 8 - 2880 * 6));
	ck_assert_uint_eq(l.share, 192);
	plan(&l, "mxfp4-triton", &m, 8, false); /* twelve groups a rank, and six for the last */
	ck_assert_uint_eq(l.share, 384);
	struct clv_shard_config c = parallel(8, false);
	struct clv_error err = {0};
	ck_assert_msg(clv_backend_plan(&l, named("mxfp4-triton"), &m, &c, CLV_SET_QUANT, 7, &err), "%s", err.text);
	ck_assert_uint_eq(l.share, 192);
	ck_assert_uint_eq(get(&l, DEST, "w2_weight")->valid_bytes, 128 * 2880 * 96);
	ck_assert_uint_eq(get(&l, DEST, "w2_weight")->layout_bytes, 0);
	clv_model_free(&m);
}
END_TEST

CHECK_MAIN("backend", knows_nvfp4_of_trtllm_for_all_models, knows_the_sizes_of_kimi_k3, knows_the_other_rows_of_nvfp4,
	   knows_the_sizes_of_gpt_oss, knows_the_other_rows_of_mxfp4, knows_the_rows_of_fp8, knows_the_rows_of_bf16,
	   knows_the_rows_of_integers, adds_up_or_refuses_any_sizes, sums_to_what_coverage_proves, lists_them,
	   refuses_what_is_not_there, lets_the_model_pad, measures_what_layouts_add)
