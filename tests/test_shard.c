/* SPDX-License-Identifier: MIT */
#include "../src/plan/shard.h"
#include "check_main.h"
#include "models.h"

/* Kimi-K3's sizes (moe-layouts 4). */
static void read_k3(struct clv_model *m, const char *quantization)
{
	char text[2048];
	struct clv_error err = {0};
	snprintf(
		text, sizeof(text),
		"{\"model_type\": \"kimi_k3\", \"text_config\": {\"hidden_size\": 7168, \"routed_expert_hidden_size\": 3584, "
		"\"moe_intermediate_size\": 3072, \"num_experts\": 896, \"num_experts_per_token\": 16, "
		"\"num_shared_experts\": 2, \"num_hidden_layers\": 93, \"first_k_dense_replace\": 1}, "
		"\"quantization_config\": {%s}}",
		quantization);
	ck_assert_msg(clv_model_parse(m, "k3", text, strlen(text), NULL, NULL, 0, &err), "%s", err.text);
}

#define MXFP4 "\"quant_method\": \"mxfp4\""
#define NVFP4 "\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\""

static struct clv_shard_config config_of(uint32_t tp, uint32_t align_intermediate, uint32_t align_hidden)
{
	struct clv_shard_config c;
	clv_shard_config_init(&c);
	c.tp = tp;
	c.align_intermediate = align_intermediate;
	c.align_hidden = align_hidden;
	return c;
}

static void make(struct clv_shard *s, const struct clv_model *m, const struct clv_shard_config *c)
{
	struct clv_error err = {0};
	ck_assert_msg(clv_shard_make(s, m, c, &err), "%s", err.text);
}

static void refused(const struct clv_model *m, const struct clv_shard_config *c, const char *why)
{
	struct clv_shard s;
	struct clv_error err = {0};
	ck_assert_msg(!clv_shard_make(&s, m, c, &err), "accepted, instead of: %s", why);
	ck_assert_msg(strstr(err.text, why) != NULL, "%s\ninstead of: %s", err.text, why);
}

/* moe-layouts 3.3: what the model pads and what the backend (Marlin, 128) does */
START_TEST(pads_kimi_k3_as_known)
{
	static const struct {
		uint32_t tp;
		uint64_t raw, backend, model, passed, backend_bytes, model_bytes;
	} cases[] = {{8, 384, 384, 384, 3072, 180807008256, 180807008256},
		     {16, 192, 256, 256, 4096, 120538005504, 120538005504},
		     {32, 96, 128, 256, 8192, 60269002752, 120538005504}};
	struct clv_model m;
	read_k3(&m, MXFP4);
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_shard_config c = config_of(cases[i].tp, 128, 256);
		struct clv_shard s;
		struct clv_shard_rank r;
		make(&s, &m, &c);
		clv_shard_rank(&s, 3, &r);
		ck_assert_uint_eq(s.intermediate.logical, 3072);
		ck_assert_uint_eq(s.intermediate.raw, cases[i].raw);
		ck_assert_uint_eq(s.intermediate.padded, cases[i].backend);
		ck_assert_uint_eq(s.passed_intermediate, 3072);
		ck_assert_uint_eq(r.bytes, cases[i].backend_bytes);
		ck_assert_uint_eq(r.padding_bytes, r.bytes / cases[i].backend * (cases[i].backend - cases[i].raw));
		c.padding = CLV_PADDING_MODEL;
		make(&s, &m, &c);
		clv_shard_rank(&s, 3, &r);
		ck_assert_uint_eq(s.intermediate.raw, cases[i].raw);
		ck_assert_uint_eq(s.intermediate.padded, cases[i].model);
		ck_assert_uint_eq(s.passed_intermediate, cases[i].passed);
		ck_assert_uint_eq(r.bytes, cases[i].model_bytes);
	}
	clv_model_free(&m);
}
END_TEST

START_TEST(counts_shards_over_all_dimensions)
{
	struct clv_model m;
	read_k3(&m, MXFP4);
	struct clv_shard_config c = config_of(8, 128, 256);
	struct clv_shard s;
	c.dp = 2;
	c.pcp = 2; /* vllm#50928: what counts is dp x pcp x tp */
	c.padding = CLV_PADDING_MODEL;
	make(&s, &m, &c);
	ck_assert_uint_eq(s.world, 32);
	ck_assert_uint_eq(s.moe_tp, 32);
	ck_assert_uint_eq(s.intermediate.raw, 96);
	ck_assert_uint_eq(s.passed_intermediate, 8192);
	struct clv_shard_rank r;
	clv_shard_rank(&s, 29, &r);
	ck_assert(r.dp_rank == 1 && r.pcp_rank == 1 && r.tp_rank == 5 && r.moe_tp_rank == 29 && r.moe_ep_rank == 0);
	struct clv_shard_span slice = clv_shard_slice(&s, &s.sets[0].buffers[0], r.moe_tp_rank);
	ck_assert_uint_eq(slice.first, 29 * 96);
	ck_assert_uint_eq(slice.count, 96);
	c.expert_parallel = true; /* vllm#51131: not under expert parallelism */
	make(&s, &m, &c);
	ck_assert(s.moe_tp == 1 && s.moe_ep == 32);
	ck_assert_uint_eq(s.passed_intermediate, 3072);
	ck_assert_uint_eq(s.intermediate.padded, 3072);
	clv_shard_rank(&s, 29, &r);
	ck_assert(r.moe_tp_rank == 0 && r.moe_ep_rank == 29 && r.expert_first == 29 * 28 && r.expert_count == 28);
	clv_model_free(&m);
}
END_TEST

/* moe-layouts 4.1: bytes of an expert in the four buffers of NVFP4 */
START_TEST(knows_the_sizes_of_kimi_k3_in_nvfp4)
{
	static const struct {
		bool ep;
		uint64_t w13, s13, w2, s2;
		uint32_t experts;
	} cases[] = {{false, 1376256, 172032, 688128, 86016, 896}, {true, 11010048, 1376256, 5505024, 688128, 112}};
	struct clv_model m;
	read_k3(&m, NVFP4);
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_shard_config c = config_of(8, 64, 256);
		struct clv_shard s;
		struct clv_shard_rank r;
		c.expert_parallel = cases[i].ep;
		make(&s, &m, &c);
		const struct clv_shard_set *set = &s.sets[CLV_SET_QUANT];
		ck_assert_uint_eq(set->count, 4);
		static const char *const names[] = {"w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale"};
		const uint64_t bytes[] = {cases[i].w13, cases[i].w2, cases[i].s13, cases[i].s2};
		for (uint32_t k = 0; k < 4; k++) {
			ck_assert_str_eq(set->buffers[k].name, names[k]);
			ck_assert_uint_eq(set->buffers[k].expert_bytes, bytes[k]);
		}
		clv_shard_rank(&s, 7, &r);
		ck_assert_uint_eq(r.expert_count, cases[i].experts);
		ck_assert_uint_eq(r.moe_layers[CLV_SET_QUANT], 92);
		ck_assert_uint_eq(r.expert_count * set->expert_bytes, 19845 * CLV_MIB / 10); /* 1984.5 MiB a layer */
		ck_assert_uint_eq(r.padding_bytes, 0);
	}
	clv_model_free(&m);
}
END_TEST

START_TEST(lays_parts_behind_padded_parts)
{
	struct clv_model m;
	read_k3(&m, NVFP4);
	struct clv_shard_config c = config_of(32, 128, 256);
	struct clv_shard s;
	make(&s, &m, &c);
	const struct clv_shard_buffer *b = s.sets[0].buffers;
	ck_assert_uint_eq(b[0].parts, 2);
	ck_assert(b[0].split == CLV_SHARD_ROWS && b[0].rows.logical == 3072 && b[0].rows.raw == 96 &&
		  b[0].rows.padded == 128);
	ck_assert(b[0].cols.logical == 3584 && b[0].cols.padded == 3584);
	ck_assert(b[1].split == CLV_SHARD_COLS && b[1].rows.padded == 3584 && b[1].cols.raw == 96 &&
		  b[1].cols.padded == 128);
	ck_assert(b[2].rows.padded == 128 && b[2].cols.padded == 3584 / 16);
	ck_assert(b[3].cols.logical == 192 && b[3].cols.raw == 6 && b[3].cols.padded == 8);
	clv_model_free(&m);
}
END_TEST

START_TEST(divides_layers_as_the_pipeline_does)
{
	static const struct {
		uint32_t pp, ends[8];
	} cases[] = {{1, {5}}, {2, {3, 5}}, {3, {2, 4, 5}}, {4, {1, 2, 4, 5}}, {5, {1, 2, 3, 4, 5}}};
	struct clv_model m;
	read_named(&m, "first_dense"); /* --E-E */
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_shard_config c = config_of(2, 1, 1);
		struct clv_shard s;
		c.pp = cases[i].pp;
		c.dp = 2;
		make(&s, &m, &c);
		ck_assert_uint_eq(s.world, 4 * c.pp);
		ck_assert_uint_eq(s.moe_tp, 4);
		for (uint32_t rank = 0; rank < s.world; rank++) {
			struct clv_shard_rank r;
			clv_shard_rank(&s, rank, &r);
			ck_assert_uint_eq(((r.dp_rank * c.pp + r.pp_rank) * 1 + r.pcp_rank) * c.tp + r.tp_rank, rank);
			ck_assert_uint_eq(r.moe_tp_rank, r.dp_rank * 2 + r.tp_rank);
			ck_assert_uint_eq(r.layer_end, cases[i].ends[r.pp_rank]);
			ck_assert_uint_eq(r.layer_first, r.pp_rank ? cases[i].ends[r.pp_rank - 1] : 0);
			ck_assert_uint_eq(r.moe_layers[0], (r.layer_first <= 2 && r.layer_end > 2) +
								   (r.layer_first <= 4 && r.layer_end > 4));
		}
	}
	clv_model_free(&m);
}
END_TEST

START_TEST(divides_experts_in_runs_or_in_turn)
{
	struct clv_model m;
	read_named(&m, "first_dense"); /* 6 experts in 2 groups */
	struct clv_shard_config c = config_of(4, 1, 1);
	struct clv_shard s;
	struct clv_shard_rank r;
	static const uint32_t firsts[] = {0, 2, 4, 5}, counts[] = {2, 2, 1, 1};
	c.expert_parallel = true;
	make(&s, &m, &c);
	for (uint32_t rank = 0; rank < 4; rank++) {
		clv_shard_rank(&s, rank, &r);
		ck_assert(r.expert_first == firsts[rank] && r.expert_count == counts[rank] && r.expert_step == 1);
	}
	c.placement = CLV_PLACEMENT_ROUND_ROBIN;
	make(&s, &m, &c);
	for (uint32_t rank = 0; rank < 4; rank++) {
		clv_shard_rank(&s, rank, &r);
		ck_assert(r.expert_first == rank && r.expert_count == counts[rank] && r.expert_step == 4);
	}
	clv_model_free(&m);
}
END_TEST

/* vllm gpt_oss.py: whole groups of 32 a rank, so the last ranks have less */
START_TEST(divides_gpt_oss_by_groups)
{
	struct clv_model m;
	read_named(&m, "by_groups"); /* 160 = 5 groups */
	struct clv_shard_config c = config_of(4, 64, 128);
	struct clv_shard s;
	make(&s, &m, &c);
	ck_assert(s.intermediate.raw == 40 && s.intermediate.padded == 64 && s.hidden.padded == 128);
	static const uint64_t counts[] = {64, 64, 32, 0};
	for (uint32_t rank = 0; rank < 4; rank++) {
		struct clv_shard_rank r;
		clv_shard_rank(&s, rank, &r);
		const struct clv_shard_buffer *b = s.sets[0].buffers;
		ck_assert_uint_eq(s.sets[0].count, 6);
		ck_assert_uint_eq(clv_shard_slice(&s, &b[0], rank).count, counts[rank]);
		ck_assert_uint_eq(clv_shard_slice(&s, &b[3], rank).count, counts[rank] / 32); /* w2's scales */
		ck_assert_str_eq(b[4].name, "w13_bias");
		ck_assert_uint_eq(clv_shard_slice(&s, &b[4], rank).count, counts[rank]);
		ck_assert_str_eq(b[5].name, "w2_bias");
		ck_assert_uint_eq(b[5].copies, 4);
		/* 96 columns, in 128: a value and 1/32 of a scale; and biases */
		uint64_t weights = counts[rank] * 96 * 3;
		ck_assert_uint_eq(r.valid_bytes, 3 * 4 * (weights / 2 + weights / 32 + 2 * 2 * counts[rank] + 2 * 96));
		ck_assert_uint_eq(r.bytes, 3 * 4 * (64 * 128 * 3 / 2 + 64 * 128 * 3 / 32 + 2 * 2 * 64 + 2 * 128));
	}
	c.align_intermediate = 1;
	refused(&m, &c, "w13_weight: a rank reads 64 of 160, more than the 40 that its buffer has");
	clv_model_free(&m);
}
END_TEST

START_TEST(knows_the_buffers_of_each_format)
{
	struct clv_shard s;
	struct clv_model m;
	struct clv_shard_config c = config_of(2, 1, 1);
	read_named(&m, "first_dense"); /* FP8 in blocks of 128 */
	make(&s, &m, &c);
	const struct clv_shard_buffer *b = s.sets[0].buffers;
	ck_assert_uint_eq(s.sets[0].count, 4);
	ck_assert(b[2].rows.logical == 4 && b[2].rows.raw == 2 && b[2].cols.logical == 2 &&
		  b[2].dtype == CLV_DTYPE_F32);
	ck_assert(b[3].rows.logical == 2 && b[3].cols.raw == 2 && b[3].copies == 1);
	clv_model_free(&m);
	read_named(&m, "interleaved"); /* FP8 by channel, and a layer that is not quantized */
	make(&s, &m, &c);
	b = s.sets[CLV_SET_QUANT].buffers;
	ck_assert(s.sets[CLV_SET_QUANT].count == 4 && s.sets[CLV_SET_PLAIN].count == 2);
	ck_assert(s.sets[CLV_SET_QUANT].layers == 2 && s.sets[CLV_SET_PLAIN].layers == 1);
	ck_assert(b[2].rows.raw == 48 && b[2].cols.padded == 1 && b[2].copies == 1);
	ck_assert(b[3].rows.raw == 48 && b[3].split == CLV_SHARD_WHOLE && b[3].copies == 2);
	ck_assert_uint_eq(s.sets[CLV_SET_PLAIN].expert_bytes, 3 * 48 * 48 * 2);
	clv_model_free(&m);
	read_named(&m, "int4_groups"); /* zero points */
	make(&s, &m, &c);
	b = s.sets[0].buffers;
	ck_assert_uint_eq(s.sets[0].count, 6);
	ck_assert(b[4].role == CLV_ROLE_W13_ZERO && b[4].rows.raw == 128 && b[4].cols.raw == 2 &&
		  b[4].expert_bytes == 256);
	m.quant.act_order = true;
	refused(&m, &c, "order of activations");
	clv_model_free(&m);
	read_named(&m, "not_gated");
	make(&s, &m, &c);
	ck_assert_uint_eq(s.sets[CLV_SET_QUANT].buffers[0].parts, 1);
	clv_model_free(&m);
	read_named(&m, "sparse_step");
	make(&s, &m, &c);
	ck_assert_uint_eq(s.sets[0].count, 2);
	ck_assert_uint_eq(s.sets[0].expert_bytes, 3 * 24 * 40 * 2);
	clv_model_free(&m);
}
END_TEST

START_TEST(refuses_what_cannot_be_divided)
{
	struct clv_model m;
	read_k3(&m, MXFP4);
	struct clv_shard_config c = config_of(5, 128, 256);
	refused(&m, &c,
		"k3: the intermediate size of an expert, 3072, does not divide by 5 ranks (tp 5); it does by 4 and 6");
	c = config_of(100, 128, 256); /* by more than 96 a group of 32 would be cut */
	refused(&m, &c, "does not divide by 100 ranks (tp 100); it does by 96");
	c = config_of(1, 128, 256);
	c.dp = 7;
	refused(&m, &c, "(tp 1 x dp 7)");
	c = config_of(64, 128, 256);
	refused(&m, &c, "a rank's share of the intermediate size is 48 with tp 64, which would cut a group of 32");
	c = config_of(0, 128, 256);
	refused(&m, &c, "tp is 0, which is not within 1 to 65536");
	c = config_of(1, 0, 256);
	refused(&m, &c, "the alignment of the intermediate size is 0");
	c = config_of(1, 1, 4097);
	refused(&m, &c, "the alignment of the hidden size is 4097");
	c = config_of(65536, 1, 1);
	c.dp = c.pcp = c.pp = 65536;
	refused(&m, &c, "more than 65536 ranks");
	c = config_of(1, 1, 1);
	c.pp = 94;
	refused(&m, &c, "pp is 94, but there are 93 layers");
	c = config_of(1024, 1, 1);
	c.expert_parallel = true;
	refused(&m, &c, "896 experts cannot be divided among 1024 ranks (tp 1024): some would have none");
	c = config_of(8, 1, 1);
	c.placement = CLV_PLACEMENT_ROUND_ROBIN;
	refused(&m, &c, "in turn");
	clv_model_free(&m);
	read_named(&m, "first_dense");
	c = config_of(8, 1, 1);
	refused(&m, &c, "64 with tp 8, which would cut a block of 128");
	c = config_of(2, 1, 1);
	c.padding = CLV_PADDING_MODEL;
	refused(&m, &c, "pads nothing itself");
	clv_model_free(&m);
	read_named(&m, "by_groups");
	c = config_of(3, 64, 1);
	c.expert_parallel = true;
	refused(&m, &c, "4 experts do not divide by 3 ranks");
	clv_model_free(&m);
}
END_TEST

CHECK_MAIN("shard", pads_kimi_k3_as_known, counts_shards_over_all_dimensions, knows_the_sizes_of_kimi_k3_in_nvfp4,
	   lays_parts_behind_padded_parts, divides_layers_as_the_pipeline_does, divides_experts_in_runs_or_in_turn,
	   divides_gpt_oss_by_groups, knows_the_buffers_of_each_format, refuses_what_cannot_be_divided)
