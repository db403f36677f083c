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
	struct clv_conversion_tensor tensors[4];
	struct clv_conversion conversion;
	uint64_t all;
};

static void layer_of(struct layer *l, size_t rank)
{
	static const char *const names[] = {"w13", "w13_scale", "w2", "w2_scale"};
	l->all = 0;
	for (size_t k = 0; k < 4; k++) {
		uint64_t size = ranks[rank].size[k];
		l->tensors[k] = (struct clv_conversion_tensor){names[k], size, size, k % 2 ? size : 0};
		l->all += ranks[rank].experts * size;
	}
	l->conversion = (struct clv_conversion){
		.experts = ranks[rank].experts, .tensors = l->tensors, .tensor_count = 4, .scratch = SCRATCH, .alignment = 512};
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
		/* sources, destinations, and a scale that was gathered beside what it is interleaved into; or, before there
		 * are destinations, the scratch */
		ck_assert_uint_eq(planned(&l, CLV_STRATEGY_PREALLOCATED), 2 * l.all + 2 * size[1]);
		/* the spare is there beside the scratch */
		ck_assert_uint_eq(planned(&l, CLV_STRATEGY_PING_PONG), 2 * l.all + larger(SCRATCH, 2 * size[1]));
		/* one expert's largest tensor, or the scratch before */
		ck_assert_uint_eq(planned(&l, CLV_STRATEGY_IN_PLACE), l.all + larger(SCRATCH, size[0]));
	}
}
END_TEST

START_TEST(every_buffer_is_there)
{
	struct layer l;
	struct clv_conversion_plan plan;
	layer_of(&l, 0);
	for (enum clv_strategy s = 0; s < CLV_STRATEGIES; s++) {
		size_t roles[5] = {0}, converted = s == CLV_STRATEGY_LISTS || s == CLV_STRATEGY_IN_PLACE ? 4 : 2;
		ck_assert(clv_conversion_plan(&l.conversion, s, &plan, NULL));
		for (size_t i = 0; i < plan.count; i++) {
			roles[plan.buffers[i].role]++;
			ck_assert_int_gt(plan.lives[i].upper, plan.lives[i].lower);
			ck_assert_uint_lt(plan.buffers[i].tensor, 4);
			ck_assert_uint_lt(plan.buffers[i].expert, 112);
		}
		ck_assert_uint_eq(roles[CLV_ROLE_SOURCE], 4);
		ck_assert_uint_eq(roles[CLV_ROLE_DESTINATION], s == CLV_STRATEGY_IN_PLACE ? 0 : 4);
		ck_assert_uint_eq(roles[CLV_ROLE_SCRATCH], 1);
		ck_assert_uint_eq(roles[CLV_ROLE_GATHERED], 2 * 112);
		ck_assert_uint_eq(roles[CLV_ROLE_CONVERTED], converted * 112);
		clv_conversion_plan_free(&plan);
	}
}
END_TEST

/* Destinations that are padded: more than the sources have, and no multiple of the alignment. */
START_TEST(padded_destinations)
{
	const struct clv_conversion_tensor w2 = {"w2", 1000, 1500, 0};
	struct clv_conversion c = {.experts = 3, .tensors = &w2, .tensor_count = 1, .alignment = 512};
	struct clv_conversion_plan plan;
	struct clv_error err = {""};
	ck_assert(clv_conversion_plan(&c, CLV_STRATEGY_PREALLOCATED, &plan, &err));
	ck_assert_uint_eq(plan.packed.height, 3072 + 4608); /* 3000 and 4500, to whole 512 */
	clv_conversion_plan_free(&plan);
	ck_assert(!clv_conversion_plan(&c, CLV_STRATEGY_IN_PLACE, &plan, &err));
	ck_assert_str_eq(err.text, "w2: in place an expert's 1500 bytes do not fit over its source of 1000");
	ck_assert_ptr_null(plan.lives);
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
	c.tensor_count = 9;
	must_refuse(c, "9 tensors");
	c = l.conversion;
	c.alignment = 0;
	must_refuse(c, "alignment of 0");
	c.alignment = 768;
	must_refuse(c, "alignment of 768");
	c = l.conversion;
	c.scratch = UINT64_MAX;
	must_refuse(c, "scratch");
	l.tensors[2].source = 0;
	must_refuse(l.conversion, "w2: an expert has 1 to");
	l.tensors[2].source = 1;
	l.tensors[2].gathered = UINT64_MAX;
	must_refuse(l.conversion, "w2: an expert has 1 to");
}
END_TEST

CHECK_MAIN("conversion", needs_of_each_strategy, every_buffer_is_there, padded_destinations, refuses_nonsense)
