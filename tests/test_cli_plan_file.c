/* SPDX-License-Identifier: MIT
 *
 * What `cleave plan -o` writes is what the API reads: for every published model and every backend that goes with it, each
 * kind of ranks.
 */
#include "../src/plan/backend.h"
#include "../src/plan/plan_file.h"
#include "cli_run.h"
#include "json_expect.h"
#include "models.h"

#include <string.h>

static unsigned read_plans, strided, zeroed;

/* The file as read for a rank, beside the members of the document that speak of it. */
static void compare(uint32_t rank, const json_t *doc, const json_t *of)
{
	struct clv_plan_file f;
	struct clv_error err = {""};
	ck_assert_msg(clv_plan_file_read_rank(&f, cli_path("plan.json"), rank, &err), "%s", err.text);
	ck_assert_uint_eq(f.rank, rank == CLV_PLAN_OWN_RANK ? (uint32_t)whole(of, "rank") : rank);
	ck_assert_int_eq(f.moe_layers, whole(doc, "moe_layers"));
	ck_assert_int_eq(f.layers, whole(of, "layers_local"));
	ck_assert_int_eq(f.experts, whole(of, "experts_local"));
	ck_assert_int_eq(f.weights_bytes, whole(of, "weights_bytes"));
	const json_t *buffers = json_object_get(of, "buffers"), *v;
	size_t i;
	ck_assert_uint_eq(f.buffer_count, json_array_size(buffers));
	json_array_foreach(buffers, i, v)
	{
		const struct clv_plan_file_buffer *b = &f.buffers[i];
		ck_assert_str_eq(b->name, json_string_value(json_object_get(v, "name")));
		ck_assert_int_eq(b->bytes, whole(v, "bytes"));
		ck_assert_int_eq(b->zeroed, json_is_true(json_object_get(v, "zeroed")));
		/* each is filled expert by expert */
		ck_assert_msg(b->experts == f.experts, "%s: %s of %s has %u runs, not %u", f.model, b->name, f.backend, b->experts,
			      f.experts);
		strided += b->dims > 1 && b->strides[b->dims - 1] != 1;
		zeroed += b->zeroed;
	}
	ck_assert_uint_eq(f.reservation_count, json_array_size(json_object_get(of, "reservations")));
	clv_plan_file_free(&f);
	read_plans++;
}

static void plan(const char *model, const char *backend, const char *parallel)
{
	char line[8192], path[4096];
	model_path(model, path, sizeof(path));
	snprintf(line, sizeof(line), "\"$CLEAVE\" plan --model '%s' --backend %s %s --rank all -o plan.json", path, backend,
		 parallel);
	if (cli_shell(line).status == 2) /* they do not go together */
		return;
	json_error_t error;
	json_t *doc = json_load_file(cli_path("plan.json"), 0, &error);
	ck_assert_msg(doc != NULL, "%s", error.text);
	compare(CLV_PLAN_OWN_RANK, doc, doc);
	const json_t *ranks = json_object_get(doc, "ranks"), *of;
	size_t i;
	ck_assert_uint_ge(json_array_size(ranks), 1);
	json_array_foreach(ranks, i, of)
	{
		const json_t *span = json_array_get(json_object_get(of, "spans"), 0);
		for (size_t end = 0; end < 2; end++)
			compare((uint32_t)json_integer_value(json_array_get(span, end)), doc, of);
	}
	json_decref(doc);
}

START_TEST(every_model_and_backend)
{
	const struct clv_backend *b;
	for (size_t m = 0; m < CLV_ARRAY_LEN(published_models); m++)
		for (size_t i = 0; (b = clv_backend_at(i)); i++) {
			plan(published_models[m], b->name, "--tp 8");
			plan(published_models[m], b->name, "--tp 8 --ep --pp 2");
		}
	ck_assert_uint_gt(read_plans, 100);
	ck_assert_uint_gt(strided, 0); /* the layouts that are not plain were among them */
	ck_assert_uint_gt(zeroed, 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {every_model_and_backend};
	return cli_suite("cli_plan_file", tests, CLV_ARRAY_LEN(tests));
}
