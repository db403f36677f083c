/* SPDX-License-Identifier: MIT
 *
 * One layer's conversion under each strategy: the schedule has the buffers that it should, needs what was worked out by hand,
 * and is packed into no more than is live at once.
 */
#include "../src/plan/conversion.h"
#include "check_main.h"
#include "pack_check.h"

#include <inttypes.h>

/* Kimi-K3 in NVFP4 for TRT-LLM on 8 ranks: bytes of an expert's w13, its scale, w2 and its scale. */
static const struct {
	uint32_t experts;
	uint64_t size[4];
} ranks[] = {{112, {11010048, 1376256, 5505024, 688128}}, {896, {1376256, 172032, 688128, 86016}}};

#define SCRATCH (64 * CLV_MIB)

struct layer {
	struct clv_conversion conversion;
	uint64_t all;
};

static void layer_of(struct layer *l, size_t rank)
{
	static const char *const names[] = {"w13", "w13_scale", "w2", "w2_scale"};
	struct clv_conversion *c = &l->conversion;
	*c = (struct clv_conversion){.experts = ranks[rank].experts,
				     .tensor_count = 4,
				     .reorder = {3, {0, 1}, {SCRATCH - 8 * CLV_MIB, 8 * CLV_MIB}, {CLV_MIB, 512}},
				     .alignment = 512};
	l->all = 0;
	for (size_t k = 0; k < 4; k++) {
		uint64_t size = ranks[rank].size[k];
		c->tensors[k] = (struct clv_conversion_tensor){.name = names[k],
							       .source = size,
							       .destination = size,
							       .gathered = {k % 2 ? size : 0},
							       .reused = k % 2};
		l->all += ranks[rank].experts * size;
	}
}

static uint64_t planned(const struct layer *l, enum clv_strategy strategy)
{
	struct clv_conversion_plan plan;
	struct clv_error err = {""};
	ck_assert_msg(clv_conversion_plan(&l->conversion, strategy, &plan, &err), "%s", err.text);
	const char *wrong = pack_wrong(plan.lives, plan.count, 0, plan.offsets, &plan.packed);
	ck_assert_msg(!wrong, "%s: %s", clv_strategy_name(strategy), wrong);
	ck_assert_msg(plan.packed.optimal, "%s: height %" PRIu64 ", bound %" PRIu64, clv_strategy_name(strategy),
		      plan.packed.height, plan.packed.lower_bound);
	ck_assert_uint_eq(plan.sources, l->all);
	uint64_t height = plan.packed.height;
	clv_conversion_plan_free(&plan);
	return height;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

START_TEST(needs_of_each_strategy)
{
	for (size_t r = 0; r < CLV_ARRAY_LEN(ranks); r++) {
		struct layer l;
		layer_of(&l, r);
		const uint64_t *size = ranks[r].size;
		/* sources, all pieces, and the first stack beside them */
		ck_assert_uint_eq(planned(&l, CLV_STRATEGY_LISTS), 2 * l.all + ranks[r].experts * size[0]);
		/* sources, destinations, what scales are gathered into, and the larger one interleaved; or, before there are
		 * destinations, the scratch */
		uint64_t scales = 2 * size[1] + size[3];
		ck_assert_uint_eq(planned(&l, CLV_STRATEGY_PREALLOCATED), 2 * l.all + scales);
		/* the spare is there beside the scratch */
		ck_assert_uint_eq(planned(&l, CLV_STRATEGY_PING_PONG), 2 * l.all + larger(SCRATCH, scales));
		/* the same for scales, and an expert's weights */
		ck_assert_uint_eq(planned(&l, CLV_STRATEGY_IN_PLACE),
				  l.all + larger(SCRATCH, scales + size[0] + size[2]));
		l.conversion.reorder.chunks = 0;
		ck_assert_uint_eq(planned(&l, CLV_STRATEGY_IN_PLACE), l.all + scales + size[0] + size[2]);
	}
}
END_TEST

START_TEST(every_buffer_is_there)
{
	struct layer l;
	struct clv_conversion_plan plan;
	layer_of(&l, 0);
	for (enum clv_strategy s = 0; s < CLV_STRATEGIES; s++) {
		size_t roles[CLV_CONVERSION_ROLES] = {0}, for_all = 0;
		ck_assert(clv_conversion_plan(&l.conversion, s, &plan, NULL));
		for (size_t i = 0; i < plan.count; i++) {
			roles[plan.buffers[i].role]++;
			ck_assert_int_gt(plan.lives[i].upper, plan.lives[i].lower);
			ck_assert_uint_lt(plan.buffers[i].tensor, 4);
			for_all += plan.buffers[i].expert == CLV_CONVERSION_ALL;
			ck_assert(plan.buffers[i].expert < 112 || plan.buffers[i].expert == CLV_CONVERSION_ALL);
		}
		/* scales' results are made one by one; weights' in lists, too, and in place there is one for all */
		bool lists = s == CLV_STRATEGY_LISTS, in_place = s == CLV_STRATEGY_IN_PLACE;
		ck_assert_uint_eq(roles[CLV_ROLE_SOURCE], 4);
		ck_assert_uint_eq(roles[CLV_ROLE_DESTINATION], in_place ? 0 : 4);
		ck_assert_uint_eq(roles[CLV_ROLE_REORDERED], 6);
		ck_assert_uint_eq(roles[CLV_ROLE_GATHERED], lists ? 2 * 112 : 2);
		ck_assert_uint_eq(roles[CLV_ROLE_CONVERTED], lists ? 4 * 112 : in_place ? 2 * 112 + 2 : 2 * 112);
		ck_assert_uint_eq(for_all, lists ? 0 : in_place ? 4 : 2);
		clv_conversion_plan_free(&plan);
	}
}
END_TEST

/* Destinations that are padded: more than the sources have, and no multiple of the alignment. */
START_TEST(padded_destinations)
{
	struct clv_conversion c = {.experts = 3,
				   .tensors = {{.name = "w2", .source = 1000, .destination = 1500}},
				   .tensor_count = 1,
				   .alignment = 512};
	struct clv_conversion_plan plan;
	struct clv_error err = {""};
	ck_assert(clv_conversion_plan(&c, CLV_STRATEGY_PREALLOCATED, &plan, &err));
	ck_assert_uint_eq(plan.packed.height, 3072 + 4608); /* 3000 and 4500, to whole 512 */
	clv_conversion_plan_free(&plan);
	ck_assert(!clv_conversion_plan(&c, CLV_STRATEGY_IN_PLACE, &plan, &err));
	ck_assert_str_eq(err.text, "w2: in place an expert's result, 1500 bytes, must be as large as its source, 1000");
	ck_assert_ptr_null(plan.lives);
	err.text[0] = 0;
	ck_assert(!clv_conversion_plan(&c, CLV_STRATEGY_PING_PONG, &plan, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "does not fit into the source of the layer before, 1000"));
	/* copies for K, and of those for N; the second is there to the end, the first only until then */
	c.tensors[0].padded[0] = 1200;
	c.tensors[0].padded[1] = 1500;
	ck_assert(clv_conversion_plan(&c, CLV_STRATEGY_PREALLOCATED, &plan, &err));
	ck_assert_uint_eq(plan.packed.height, 3072 + 4608 + 4608);
	clv_conversion_plan_free(&plan);
	ck_assert(clv_conversion_plan(&c, CLV_STRATEGY_LISTS, &plan, &err));
	ck_assert_uint_eq(plan.packed.height, 3072 + 4608 + 3 * 1536 + 4608);
	clv_conversion_plan_free(&plan);
}
END_TEST

/* What a tensor needs whole is there for its own experts only. */
START_TEST(whole_copies)
{
	struct clv_conversion c = {
		.experts = 4,
		.tensors = {{.name = "w13_scale", .source = 512, .destination = 512, .whole = {{8192, 2}, {512, 1}}},
			    {.name = "w2", .source = 1024, .destination = 1024, .gathered = {1024, 2048}},
			    {.name = "w2_scale", .source = 512, .destination = 512, .whole = {{9216, 1}}},
			    {.name = "g_idx", .source = 512}},
		.tensor_count = 4,
		.alignment = 512};
	struct clv_conversion_plan plan;
	struct clv_error err = {""};
	uint64_t sources = 4 * (512 + 1024 + 512 + 512), destinations = 4 * (512 + 1024 + 512);
	ck_assert(clv_conversion_plan(&c, CLV_STRATEGY_PREALLOCATED, &plan, &err));
	ck_assert_uint_eq(plan.sources, sources);
	ck_assert_uint_eq(plan.destinations, destinations);
	ck_assert_uint_eq(plan.packed.height, sources + destinations + 2 * 8192 + 512);
	clv_conversion_plan_free(&plan);
	/* an expert's three copies of w2 are more than nothing, and less than what is whole */
	c.tensors[0].whole[0].bytes = c.tensors[0].whole[1].bytes = c.tensors[2].whole[0].bytes = 0;
	ck_assert(clv_conversion_plan(&c, CLV_STRATEGY_PREALLOCATED, &plan, &err));
	ck_assert_uint_eq(plan.packed.height, sources + destinations + 1024 + 1024 + 2048);
	clv_conversion_plan_free(&plan);
}
END_TEST

/* Sources fill the lower end, destinations the upper one, under every strategy: what timeline.h builds on. */
START_TEST(ends_are_filled)
{
	struct layer l;
	struct clv_conversion_plan plan;
	layer_of(&l, 1);
	for (enum clv_strategy s = 0; s < CLV_STRATEGIES; s++) {
		ck_assert(clv_conversion_plan(&l.conversion, s, &plan, NULL));
		uint64_t above = plan.packed.height - plan.destinations;
		ck_assert_uint_eq(plan.destinations, s == CLV_STRATEGY_IN_PLACE ? 0 : l.all);
		for (size_t i = 0; i < plan.count; i++) {
			enum clv_conversion_role role = plan.buffers[i].role;
			ck_assert(role != CLV_ROLE_SOURCE || plan.offsets[i] + plan.lives[i].size <= plan.sources);
			ck_assert(role != CLV_ROLE_DESTINATION || plan.offsets[i] >= above);
			ck_assert(role == CLV_ROLE_SOURCE || plan.offsets[i] >= plan.sources);
		}
		clv_conversion_plan_free(&plan);
	}
}
END_TEST

static void must_refuse(struct clv_conversion c, const char *part)
{
	struct clv_conversion_plan plan;
	struct clv_error err = {""};
	ck_assert(!clv_conversion_plan(&c, CLV_STRATEGY_LISTS, &plan, &err));
	ck_assert_msg(strstr(err.text, part), "'%s' has no '%s'", err.text, part);
}

START_TEST(refuses_nonsense)
{
	struct layer l;
	layer_of(&l, 0);
	struct clv_conversion c = l.conversion;
	c.experts = 0;
	must_refuse(c, "0 experts");
	c.experts = 1000000;
	must_refuse(c, "1000000 experts");
	c = l.conversion;
	c.tensor_count = 0;
	must_refuse(c, "0 tensors");
	c.tensor_count = 17;
	must_refuse(c, "17 tensors");
	c = l.conversion;
	c.alignment = 0;
	must_refuse(c, "alignment of 0");
	c.alignment = 768;
	must_refuse(c, "alignment of 768");
	c = l.conversion;
	c.reorder.bytes[1] = UINT64_MAX;
	must_refuse(c, "3 chunks of 18446744073709551615 bytes");
	c = l.conversion;
	c.reorder.last[0] = c.reorder.bytes[0] + 1;
	must_refuse(c, "3 chunks of");
	c = l.conversion;
	c.reorder.tensor[1] = 4;
	must_refuse(c, "3 chunks of");
	c = l.conversion;
	c.tensors[2].source = c.tensors[2].destination = 0;
	must_refuse(c, "w2: an expert has 1 to");
	c = l.conversion;
	c.tensors[2].gathered[1] = UINT64_MAX;
	must_refuse(c, "w2: an expert has 1 to");
	c = l.conversion;
	c.tensors[2].whole[0].count = 17;
	must_refuse(c, "w2: an expert has 1 to");
}
END_TEST

START_TEST(strategies_have_names)
{
	enum clv_strategy found;
	struct clv_error err = {""};
	for (enum clv_strategy s = 0; s < CLV_STRATEGIES; s++) {
		ck_assert(clv_strategy_find(clv_strategy_name(s), &found, NULL));
		ck_assert_int_eq(found, s);
	}
	ck_assert(!clv_strategy_find("list", &found, &err));
	ck_assert_str_eq(err.text,
			 "strategy \"list\" is not known; known are lists, preallocated, ping-pong, in-place");
}
END_TEST

CHECK_MAIN("conversion", needs_of_each_strategy, every_buffer_is_there, padded_destinations, whole_copies,
	   ends_are_filled, refuses_nonsense, strategies_have_names)
