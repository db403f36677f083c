/* SPDX-License-Identifier: MIT
 *
 * `cleave plan` as users call it: what it refuses, the keys of its document, its exit statuses, its file. What the numbers
 * are is test_cli_plan_sizes' question.
 */
#include "cli_run.h"
#include "json_expect.h"
#include "models.h"

#include <string.h>
#include <unistd.h>

#define K3 "kimi-k3-mxfp4"

static const char *model(const char *name)
{
	static char paths[4][4096];
	static unsigned next;
	char *path = paths[next++ % 4];
	model_path(name, path, sizeof(paths[0]));
	return path;
}

static json_t *parsed(const char *text)
{
	json_error_t error;
	json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(doc != NULL, "%s: %.1000s", error.text, text);
	return doc;
}

static json_t *document(struct cli_result r, int status)
{
	ck_assert_msg(r.status == status, "status %d: %.1000s%.1000s", r.status, r.err, r.out);
	ck_assert_str_eq(r.err, "");
	return parsed(r.out);
}

static char *content(const char *name)
{
	size_t len;
	static char *text;
	free(text);
	text = file_text(cli_path(name), &len);
	return text;
}

static const json_t *named(const json_t *list, const char *name)
{
	size_t i;
	json_t *v;
	json_array_foreach(list, i, v)
	{
		const char *is = json_string_value(json_object_get(v, "name"));
		if (is && !strcmp(is, name))
			return v;
	}
	ck_abort_msg("no %s", name);
	return NULL;
}

static json_int_t inner(const json_t *o, const char *key, const char *of)
{
	return whole(json_object_get(o, key), of);
}

/* All of the contract's keys, and of the right kind. */
static void check_keys(const json_t *doc)
{
	static const char *const wholes[] = {"version",         "moe_layers",  "experts_total", "experts_local",
					     "hidden",          "layer_bytes", "scalar_bytes",  "weights_bytes",
					     "layers_local",    "rank",        "world",         "other_bytes",
					     "kept_layer_bytes"};
	static const char *const texts[] = {"model", "config", "backend", "quantization", "strategy"};
	static const struct {
		const char *key;
		const char *members[8];
	} lists[] = {{"buffers", {"name", "shape", "dtype", "bytes", "strides", "kind", "zeroed", "same"}},
		     {"sources", {"name", "shape", "dtype", "bytes", "strides", "kind", "zeroed", "same"}},
		     {"transients", {"name", "bytes", "torch_segment_bytes", "requests", "strategies"}},
		     {"strategies", {"name", "peak_bytes", "least_bytes", "phase", "layer", "fits", "headroom_bytes"}},
		     {"impossible_strategies", {"name", "why"}},
		     {"reservations", {"name", "bytes", "count", "after_n", "uses", "hard"}},
		     {"warnings", {"code", "text"}}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(wholes); i++)
		whole(doc, wholes[i]);
	for (size_t i = 0; i < CLV_ARRAY_LEN(texts); i++)
		ck_assert_msg(json_is_string(json_object_get(doc, texts[i])), "%s is no text", texts[i]);
	for (size_t i = 0; i < CLV_ARRAY_LEN(lists); i++) {
		const json_t *list = json_object_get(doc, lists[i].key);
		json_t *v;
		size_t n;
		ck_assert_msg(json_is_array(list), "%s is no list", lists[i].key);
		json_array_foreach(list, n, v) for (size_t k = 0; k < 8 && lists[i].members[k]; k++)
			ck_assert_msg(json_object_get(v, lists[i].members[k]) != NULL, "%s have no %s", lists[i].key,
				      lists[i].members[k]);
	}
	ck_assert(json_is_boolean(json_object_get(doc, "fits")));
	ck_assert(json_object_get(doc, "headroom_bytes") != NULL);
	inner(doc, "intermediate", "logical");
	inner(doc, "intermediate", "raw");
	inner(doc, "intermediate", "padded");
}

START_TEST(json)
{
	json_t *doc = document(
		cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32", "--json", NULL), 0);
	check_keys(doc);
	ck_assert_str_eq(json_string_value(json_object_get(doc, "model")), "KimiK3ForConditionalGeneration");
	ck_assert_str_eq(json_string_value(json_object_get(doc, "backend")), "mxfp4-marlin");
	ck_assert_int_eq(whole(doc, "moe_layers"), 92);
	ck_assert_int_eq(whole(doc, "layers_local"), 92);
	ck_assert_int_eq(whole(doc, "experts_total"), 896);
	ck_assert_int_eq(whole(doc, "hidden"), 3584); /* what experts read, and not the model's 7168 */
	ck_assert_int_eq(inner(doc, "intermediate", "logical"), 3072);
	ck_assert_int_eq(inner(doc, "intermediate", "raw"), 96);
	ck_assert_int_eq(inner(doc, "intermediate", "padded"), 128);
	const json_t *padding = json_object_get(doc, "padding");
	ck_assert_str_eq(json_string_value(json_object_get(padding, "owner")), "backend");
	ck_assert_int_eq(whole(padding, "passed"), 3072);
	ck_assert_double_eq_tol(real(padding, "percent"), 100 / 3., 1e-6);
	ck_assert_int_eq(inner(padding, "other", "weights_bytes"), 2 * whole(doc, "weights_bytes"));
	/* everything fits where nothing is known */
	ck_assert(json_is_true(json_object_get(doc, "fits")) && json_is_null(json_object_get(doc, "headroom_bytes")));
	ck_assert(!json_object_get(doc, "coverage") && !json_object_get(doc, "ranks"));
	json_decref(doc);

	doc = document(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32", "--json",
			       "--padding", "model", NULL),
		       0);
	padding = json_object_get(doc, "padding");
	ck_assert_str_eq(json_string_value(json_object_get(padding, "owner")), "model");
	ck_assert_int_eq(whole(padding, "passed"), 8192);
	ck_assert_int_eq(inner(doc, "intermediate", "padded"), 256);
	ck_assert_int_eq(2 * inner(padding, "other", "weights_bytes"), whole(doc, "weights_bytes"));
	json_decref(doc);
}
END_TEST

/* On a GPU of 96 GB the experts of a rank fit if the backend pads, and do not if the model does. */
START_TEST(fits_or_not)
{
	json_t *doc = document(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32",
				       "--json", "--gpu-memory", "96000000000", NULL),
			       0);
	ck_assert(json_is_true(json_object_get(doc, "fits")));
	json_int_t headroom = whole(doc, "headroom_bytes"), peak = 96000000000 - headroom;
	ck_assert_int_eq(
		whole(named(json_object_get(doc, "strategies"), json_string_value(json_object_get(doc, "strategy"))),
		      "peak_bytes"),
		peak);
	json_decref(doc);
	doc = document(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32", "--json",
			       "--gpu-memory", "96000000000", "--padding", "model", NULL),
		       1);
	ck_assert(json_is_false(json_object_get(doc, "fits")));
	ck_assert_int_lt(whole(doc, "headroom_bytes"), 0);
	json_decref(doc);

	/* to the byte; and what else is there counts */
	char size[32];
	snprintf(size, sizeof(size), "%lld", (long long)peak);
	struct cli_result r = cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32",
				      "--gpu-memory", size, NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "\nIt fits with the strategy "));
	snprintf(size, sizeof(size), "%lld", (long long)peak - 1);
	r = cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32", "--gpu-memory", size,
		    NULL);
	ck_assert_int_eq(r.status, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "\nIt does not fit with the strategy "));
	ck_assert_int_eq(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32",
				 "--gpu-memory", "96000000000", "--other-weights", "20GiB", "--kv-cache", "40GiB", NULL)
				 .status,
			 1);
}
END_TEST

START_TEST(text)
{
	static const char *const parts[] = {
		"KimiK3ForConditionalGeneration (MXFP4) for mxfp4-marlin, rank 31 of 32 (tp 32)\n",
		"intermediate 3072, of which the share of a rank is 96, in buffers of 128\n",
		"padding      the backend's, before the load: the model passes the logical size\n",
		" 14.03 GiB on this rank, 33.3 % of what the checkpoint fills\n",
		"by the model (--padding model): buffers of 256, 112.26 GiB (120.5 GB) of experts a rank instead of 56.13 "
		"GiB (60.3 GB)\n",
		"  w2_weight         896 x 8 x 7168   int32           205520896\n",
		"the experts of this rank 56.13 GiB (60.3 GB)",
		"\n  preallocated",
		"note: ",
		"cleave run --plan PLAN -- COMMAND"};
	struct cli_result r =
		cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp=32", "--rank", "31", NULL);
	ck_assert_msg(r.status == 0, "%s", r.err);
	ck_assert_str_eq(r.err, "");
	for (size_t i = 0; i < CLV_ARRAY_LEN(parts); i++)
		ck_assert_msg(strstr(r.out, parts[i]) != NULL, "no '%s' in %.3000s", parts[i], r.out);
	ck_assert_ptr_null(strstr(r.out, " \n"));
	r = cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp=32", "-o", "p.json", "--padding",
		    "model", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "padding      the model's: it passes 8192 instead of 3072 to the backend"));
	ck_assert_ptr_nonnull(strstr(r.out, "\nNext: cleave run --plan p.json -- COMMAND\n"));
	r = cli_run("plan", "--model", model("qwen3-235b-a22b-bf16"), "--backend", "bf16-triton", NULL);
	ck_assert_ptr_nonnull(strstr(r.out, "padding      none: neither the model nor the backend pads\n"));
	ck_assert_ptr_nonnull(strstr(r.out, "stays where it was loaded\n"));
}
END_TEST

static const char *warning(const json_t *doc, const char *code)
{
	size_t i;
	json_t *v;
	json_array_foreach(json_object_get(doc, "warnings"), i, v)
	{
		if (!strcmp(json_string_value(json_object_get(v, "code")), code))
			return json_string_value(json_object_get(v, "text"));
	}
	return NULL;
}

START_TEST(says_what_comes_next)
{
	struct cli_result r =
		cli_run("plan", "--model", model("first_dense"), "--backend", "fp8-marlin", "-o", "a b's.json", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "\nNext: cleave run --plan 'a b'\\''s.json' -- COMMAND\n"));
	r = cli_run("plan", "--model", model("first_dense"), "--backend", "fp8-marlin", "-o", "a b's.json",
		    "--gpu-memory", "1KiB", NULL);
	ck_assert_int_eq(r.status, 1);
	ck_assert_ptr_null(strstr(r.out, "Next: "));
	r = cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp=8", "--padding", "model", NULL);
	ck_assert_ptr_nonnull(strstr(r.out, "the model's, which has nothing to add: it passes 3072 to the backend\n"));
}
END_TEST

/* What other weights need is not known from the configuration, but of shared experts: two of 3072 in 92 layers. */
START_TEST(warns_of_weights_that_are_not_given)
{
	const long long shared = 92ll * 3 * 7168 * 2 * 3072 * 2;
	char part[128];
	json_t *doc = document(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32",
				       "--gpu-memory", "80GiB", "--json", NULL),
			       0);
	snprintf(part, sizeof(part),
		 "; shared experts alone would have %lld bytes in bfloat16, each whole on this rank", shared);
	ck_assert_ptr_nonnull(warning(doc, "other-weights"));
	ck_assert_msg(strstr(warning(doc, "other-weights"), part) != NULL, "%s", warning(doc, "other-weights"));
	json_decref(doc);
	doc = document(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32", "--gpu-memory",
			       "80GiB", "--other-weights", "0", "--kv-cache", "0", "--workspace", "0", "--json", NULL),
		       0);
	ck_assert_ptr_null(warning(doc, "other-weights"));
	json_decref(doc);
	doc = document(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32", "--json", NULL),
		       0);
	ck_assert_ptr_null(warning(doc, "other-weights"));
	json_decref(doc);
}
END_TEST

/* The plan is for the strategy with the least peak, which is not the usual one; who names it knows. */
START_TEST(warns_if_the_usual_strategy_does_not_fit)
{
	char size[32];
	json_t *doc = document(cli_run("plan", "--model", model("kimi-k3-nvfp4"), "--backend", "nvfp4-trtllm", "--tp",
				       "8", "--json", NULL),
			       0);
	json_int_t peak = whole(named(json_object_get(doc, "strategies"), "in-place"), "peak_bytes"),
		   usual = whole(named(json_object_get(doc, "strategies"), "preallocated"), "peak_bytes");
	json_decref(doc);
	for (int i = 0; i < 3; i++) {
		snprintf(size, sizeof(size), "%lld", (long long)(i == 1 ? usual : peak));
		doc = document(cli_run("plan", "--model", model("kimi-k3-nvfp4"), "--backend", "nvfp4-trtllm", "--tp",
				       "8", "--json", "--gpu-memory", size, i == 2 ? "--strategy" : NULL, "in-place",
				       NULL),
			       0);
		const char *said = warning(doc, "other-strategy");
		ck_assert_int_eq(said != NULL, i == 0);
		ck_assert(!said || (strstr(said, "in the way of in-place: preallocated, which is usual, needs ") &&
				    strstr(said, "nor does lists")));
		json_decref(doc);
	}
}
END_TEST

START_TEST(warns_of_all_ranks)
{
	struct cli_result r = cli_run("plan", "--model", model("gpt-oss-120b-mxfp4"), "--backend", "mxfp4-triton",
				      "--tp", "8", "--rank", "all", NULL);
	ck_assert_int_eq(r.status, 0);
	const char *at = strstr(r.out, "warning (padding, rank 7): ");
	ck_assert_ptr_nonnull(at);
	ck_assert_ptr_nonnull(strstr(at, "the rank's share of the intermediate size, 192, is padded to 384"));
	ck_assert_ptr_nonnull(strstr(r.out, "warning (max-split-size): ")); /* once, of all */
	ck_assert_ptr_null(strstr(r.out, "warning (padding)"));
}
END_TEST

START_TEST(leaves_the_models_files_alone)
{
	size_t len;
	char *config = file_text(model("first_dense/config.json"), &len);
	ck_assert_int_eq(cli_shell("mkdir -p m && ln -sf m/config.json link").status, 0);
	cli_text("m/config.json", config);
	static const char *const names[] = {"m/config.json", "./m/../m/config.json", "link", "m/hf_quant_config.json"};
	for (size_t i = 0; i < 2 * CLV_ARRAY_LEN(names); i++)
		cli_assert_refused(cli_run("plan", "--model", i % 3 ? "m" : "m/config.json", "--backend", "fp8-marlin",
					   i % 2 ? "-o" : "--emit-trace", names[i / 2], NULL),
				   "this is a file of the model's");
	ck_assert_str_eq(content("m/config.json"), config);
	ck_assert_int_ne(access(cli_path("m/hf_quant_config.json"), F_OK), 0);
	cli_assert_refused(cli_run("plan", "--model", "m", "--backend", "fp8-marlin", "-o", "new", "--emit-trace",
				   "m/../new", NULL),
			   "new: this is named for the plan and for the history");
	ck_assert_int_ne(access(cli_path("new"), F_OK), 0);
	cli_assert_refused(cli_run("plan", "--model", "m", "--backend", "fp8-marlin", "-o", "-", NULL),
			   "-: a file's name is expected, and for a file of this name ./-");
	free(config);
}
END_TEST

/* What is written is what is printed; and what is there stays until all of the new file is. */
START_TEST(file)
{
	cli_text("old.json", "old");
	cli_assert_refused(cli_run("plan", "--model", "missing", "--backend", "mxfp4-marlin", "-o", "old.json", NULL),
			   "missing");
	ck_assert_str_eq(content("old.json"), "old");
	struct cli_result r =
		cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--json", "-o", "old.json", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert(strcmp(content("old.json"), r.out) == 0);
	json_decref(parsed(r.out));
	/* also of a plan that does not fit, which says so */
	r = cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "-o", "no.json", "--gpu-memory", "1GiB",
		    NULL);
	ck_assert_int_eq(r.status, 1);
	json_t *doc = parsed(content("no.json"));
	ck_assert(json_is_false(json_object_get(doc, "fits")));
	json_decref(doc);
	/* a place that cannot be written is told before the model is looked at */
	cli_assert_refused(cli_run("plan", "--model", "missing", "--backend", "mxfp4-marlin", "-o", "no/folder", NULL),
			   "no/folder: cannot be created");
	cli_assert_refused(
		cli_run("plan", "--model", "missing", "--backend", "mxfp4-marlin", "--emit-trace", ".", NULL),
		"not a regular file");
	char line[8192];
	snprintf(line, sizeof(line),
		 "ulimit -f 1; \"$CLEAVE\" plan --model %s --backend mxfp4-marlin --coverage -o old.json", model(K3));
	cli_text("old.json", "old");
	cli_assert_refused(cli_shell(line), "File too large");
	ck_assert_str_eq(content("old.json"), "old");
	ck_assert_int_eq(cli_shell("ls *.part*").status, 2);
}
END_TEST

/* The history of a strategy has the peak that the plan gives; one that is not possible is refused for what the plan says. */
START_TEST(emits_a_history)
{
	json_t *plan = document(
		       cli_run("plan", "--model", model("latent"), "--backend", "nvfp4-trtllm", "--json", NULL), 0),
	       *v;
	size_t i;
	json_array_foreach(json_object_get(plan, "strategies"), i, v)
	{
		const char *name = json_string_value(json_object_get(v, "name"));
		json_t *doc = document(cli_run("plan", "--model", model("latent"), "--backend", "nvfp4-trtllm",
					       "--json", "--emit-trace", "x.clv", "--strategy", name, NULL),
				       0);
		ck_assert_str_eq(json_string_value(json_object_get(doc, "strategy")), name);
		json_t *replay = document(cli_run("replay", "x.clv", "--policy", "cleave", "--json", NULL), 0);
		ck_assert_int_eq(inner(replay, "trace", "peak_live_bytes"), whole(v, "least_bytes"));
		json_decref(replay);
		json_decref(doc);
	}
	ck_assert_uint_ge(i, 2);
	json_array_foreach(json_object_get(plan, "impossible_strategies"), i, v)
		cli_assert_refused(cli_run("plan", "--model", model("latent"), "--backend", "nvfp4-trtllm",
					   "--strategy", json_string_value(json_object_get(v, "name")), NULL),
				   json_string_value(json_object_get(v, "why")));
	ck_assert_uint_ge(i, 1);
	json_decref(plan);
}
END_TEST

/* Ranks that hold the same are one; together they are all. */
START_TEST(all_ranks)
{
	/* 128 experts over 3 x 2 ranks of two stages of 18 layers: 22, 22, 21, 21, 21, 21 */
	json_t *doc = document(cli_run("plan", "--model", model("minimax-m2-fp8"), "--backend", "fp8-deepgemm", "--tp",
				       "3", "--dp", "5", "--pp", "3", "--ep", "--rank", "all", "--json", NULL),
			       0);
	check_keys(doc);
	const json_t *ranks = json_object_get(doc, "ranks");
	json_int_t count = 0, experts = 0;
	json_t *v, *span;
	size_t i, n;
	bool seen[45] = {false};
	json_array_foreach(ranks, i, v)
	{
		count += whole(v, "count");
		experts += whole(v, "count") * whole(v, "experts_local") * whole(v, "layers_local");
		ck_assert_int_le(whole(v, "weights_bytes"), whole(doc, "weights_bytes"));
		json_array_foreach(json_object_get(v, "spans"), n,
				   span) for (json_int_t r = json_integer_value(json_array_get(span, 0));
					      r <= json_integer_value(json_array_get(span, 1)); r++)
		{
			ck_assert(r >= 0 && r < 45 && !seen[r]);
			seen[r] = true;
		}
	}
	ck_assert_uint_eq(json_array_size(ranks), 4); /* 18 or 17 experts, 21 or 20 layers */
	ck_assert_int_eq(count, 45);
	ck_assert_int_eq(experts, 256 * 62);
	json_decref(doc);
	struct cli_result r = cli_run("plan", "--model", model("gpt-oss-120b-mxfp4"), "--backend", "mxfp4-trtllm",
				      "--tp", "8", "--rank", "all", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "\nranks  first  layers  experts"));
	ck_assert_ptr_nonnull(strstr(r.out, "\n    7      0      36      128"));
	ck_assert_ptr_nonnull(strstr(r.out, "\n    1      7      36      128"));
	/* one that does not fit is enough */
	doc = document(cli_run("plan", "--model", model("minimax-m2-fp8"), "--backend", "fp8-deepgemm", "--pp", "4",
			       "--rank", "all", "--gpu-memory", "1GiB", "--json", NULL),
		       1);
	ck_assert(json_is_false(json_object_get(doc, "fits")));
	json_decref(doc);
}
END_TEST

START_TEST(coverage)
{
	json_t *doc = document(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32",
				       "--coverage", "--json", NULL),
			       0);
	const json_t *cover = json_object_get(doc, "coverage");
	ck_assert(json_is_true(json_object_get(cover, "holds")));
	ck_assert_int_eq(whole(cover, "ranks"), 32);
	json_t *proof, *v;
	size_t i, n;
	json_array_foreach(json_object_get(cover, "proofs"), i, proof)
	{
		const json_t *buffers = json_object_get(proof, "buffers");
		/* 92 layers x 896 experts x 2 matrices of 3072 x 3584; a third more is padding */
		json_int_t elements = 92ll * 896 * 2 * 3072 * 3584;
		ck_assert_int_eq(whole(named(buffers, "w13_weight"), "elements"), elements);
		ck_assert_int_eq(whole(named(buffers, "w13_weight"), "tail_bytes"), elements / 2 / 3);
		json_array_foreach(buffers, n, v)
		{
			ck_assert_int_eq(whole(v, "written"), whole(v, "elements") * whole(v, "copies"));
			ck_assert_int_eq(whole(v, "buffer_bytes"), whole(v, "bytes") + whole(v, "tail_bytes"));
		}
	}
	ck_assert_uint_eq(i, 2); /* as loaded, and as converted */
	json_decref(doc);
	struct cli_result r =
		cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "32", "--coverage", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "\nProved: all 32 ranks together hold each element"));
	/* what is proved is of the plan's own buffers, also where a layout rounds up: gpt-oss for Triton, w2's 96 to 128 */
	doc = document(cli_run("plan", "--model", model("gpt-oss-120b-mxfp4"), "--backend", "mxfp4-triton", "--tp",
			       "16", "--coverage", "--json", NULL),
		       0);
	const json_t *own = json_object_get(
		named(json_object_get(json_array_get(json_object_get(json_object_get(doc, "coverage"), "proofs"), 1),
				      "buffers"),
		      "w2_weight"),
		"converted");
	ck_assert_int_eq(whole(own, "bytes"),
			 16 * 36 * whole(named(json_object_get(doc, "buffers"), "w2_weight"), "bytes"));
	ck_assert_int_eq(whole(own, "layout_bytes"), whole(own, "bytes") / 4);
	ck_assert_int_eq(whole(own, "valid_bytes"), 36ll * 128 * 2880 * 1440);
	ck_assert_int_eq(whole(own, "bytes"),
			 whole(own, "valid_bytes") + whole(own, "tail_bytes") + whole(own, "layout_bytes"));
	json_decref(doc);
}
END_TEST

/* One layer of this model is left out of the quantization: it stays as it was loaded. */
START_TEST(two_kinds_of_layers)
{
	json_t *doc = document(cli_run("plan", "--model", model("interleaved"), "--backend", "fp8-marlin", "--coverage",
				       "--json", NULL),
			       0);
	check_keys(doc);
	ck_assert_int_eq(whole(doc, "moe_layers"), 3);
	ck_assert_int_eq(whole(doc, "layers_local"), 2);
	ck_assert_int_eq(whole(doc, "kept_layers_local"), 1);
	ck_assert_int_gt(whole(doc, "kept_layer_bytes"), 0);
	ck_assert_int_eq(whole(doc, "weights_bytes"), 2 * whole(doc, "layer_bytes") + whole(doc, "kept_layer_bytes"));
	ck_assert_uint_eq(json_array_size(json_object_get(json_object_get(doc, "coverage"), "proofs")), 3);
	json_decref(doc);
	struct cli_result r = cli_run("plan", "--model", model("interleaved"), "--backend", "fp8-marlin", NULL);
	ck_assert_ptr_nonnull(
		strstr(r.out, "2 of the 2 with experts for this backend, and 1 other which stays as loaded\n"));
}
END_TEST

/* The warning counts what the figures count, which are of buffers that are there: not of layers that stay as they are, and with
 * what layouts add. */
START_TEST(padding_is_counted_once)
{
	static const struct {
		const char *model, *backend, *tp;
	} cases[] = {{"latent", "nvfp4-trtllm", "1"},
		     {"gpt-oss-120b-mxfp4", "mxfp4-triton", "16"},
		     {"kimi-k3-nvfp4", "nvfp4-cutlass", "16"},
		     {K3, "mxfp4-marlin", "32"}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		json_t *doc = document(cli_run("plan", "--model", model(cases[i].model), "--backend", cases[i].backend,
					       "--tp", cases[i].tp, "--json", NULL),
				       0),
		       *v;
		size_t n;
		char begin[128];
		bool warned = false;
		json_int_t padding = inner(doc, "padding", "bytes"), valid = inner(doc, "padding", "valid_bytes"),
			   all = 0;
		json_array_foreach(json_object_get(doc, "buffers"), n, v) all +=
			strcmp(json_string_value(json_object_get(v, "kind")), "index") ? whole(v, "bytes") : 0;
		ck_assert_int_eq(padding + valid, whole(doc, "layers_local") * all);
		snprintf(begin, sizeof(begin), "%lld of the %lld bytes of experts are padding", (long long)padding,
			 (long long)(padding + valid));
		json_array_foreach(json_object_get(doc, "warnings"), n, v) warned |=
			!strncmp(json_string_value(json_object_get(v, "text")), begin, strlen(begin));
		ck_assert_msg(warned == (10 * padding > valid), "%s: %s", cases[i].model, begin);
		json_decref(doc);
	}
}
END_TEST

/* The example of README.md, from the root of the tree, and what it shows (what is cut short there aside). */
START_TEST(readme)
{
	char path[4096], line[8192];
	size_t len;
	model_path("../../../README.md", path, sizeof(path));
	char *shown = file_text(path, &len);
	snprintf(line, sizeof(line),
		 "cd '%s/../..' && eval \"$(sed -n '/^build.cleave plan --model/,/^```/p' README.md | "
		 "sed 's/```//; s#^build/cleave#$CLEAVE#; s/ -o plan.json//')\"",
		 getenv("CLEAVE_TEST_DATA"));
	struct cli_result r = cli_shell(line);
	ck_assert_msg(r.status == 0, "%s%s", r.err, r.out);
	char *at = strstr(shown, "\nKimiK3For"), *end = at ? strstr(at, "\nNext: ") : NULL;
	ck_assert(at && end);
	unsigned checked = 0;
	for (char *next = at + 1; next < end; checked++) {
		char *row = next;
		next = strchr(row, '\n') + 1;
		next[-1] = '\0';
		char *cut = strstr(row, "…");
		if (cut)
			*cut = '\0';
		ck_assert_msg(strstr(r.out, row) != NULL, "README.md: '%s' is not in %s", row, r.out);
	}
	ck_assert_uint_gt(checked, 30);
	free(shown);
}
END_TEST

START_TEST(lists)
{
	json_t *doc = document(cli_run("plan", "--list", "--json", NULL), 0), *v;
	const json_t *list = json_object_get(doc, "backends");
	/* the names that users are promised */
	static const char *const names[] = {
		"nvfp4-trtllm",  "nvfp4-cutlass",  "nvfp4-cutedsl", "nvfp4-marlin", "mxfp4-marlin",   "mxfp4-trtllm",
		"mxfp4-cutlass", "mxfp4-deepgemm", "mxfp4-triton",  "fp8-deepgemm", "fp8-flashinfer", "fp8-marlin",
		"bf16-trtllm",   "bf16-cutlass",   "bf16-triton",   "gptq-marlin",  "awq-marlin"};
	struct cli_result r = cli_run("plan", "--list", NULL);
	ck_assert_int_eq(r.status, 0);
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++) {
		named(list, names[i]);
		ck_assert_ptr_nonnull(strstr(r.out, names[i]));
	}
	size_t i;
	json_array_foreach(list, i, v)
	{
		static const char *const keys[] = {"engine",      "source",        "quantization", "align",     "group",
						   "scale_dtype", "weight_layout", "scale_layout", "row_order", "pads"};
		for (size_t k = 0; k < CLV_ARRAY_LEN(keys); k++)
			ck_assert_msg(json_object_get(v, keys[k]) != NULL, "%s", keys[k]);
	}
	const json_t *trtllm = named(list, "nvfp4-trtllm");
	ck_assert_int_eq(inner(trtllm, "align", "intermediate_gated"), 64);
	ck_assert_int_eq(inner(trtllm, "align", "intermediate_not_gated"), 128);
	ck_assert_int_eq(inner(trtllm, "align", "hidden"), 256);
	json_decref(doc);
	cli_assert_refused(cli_run("plan", "--list", "--tp", "8", NULL), "--list goes with --json only");
	cli_assert_refused(cli_run("plan", "--list", "--kv-cache", "0", NULL), "--list goes with --json only");
	cli_assert_refused(cli_run("plan", "--list", "--model", "x", NULL), "--list goes with --json only");
}
END_TEST

START_TEST(refuses_usage)
{
	static const struct {
		const char *option, *value, *part;
	} cases[] = {
		{"--tp", "0", "out of range"},
		{"--tp", "x", "whole number"},
		{"--tp", "65537", "out of range"},
		{"--dp", "65536", "are more than 65536 ranks"},
		{"--pp", "94", "pp is 94, but there are 93 layers"},
		{"--tp", "7", "divide"},
		{"--rank", "2", "rank 2 is not among the 2 ranks"},
		{"--rank", "-1", "option --rank: '-1' is neither a rank (0 to 65535) nor `all`"},
		{"--rank", "65536", "neither a rank"},
		{"--rank", "99999999999999999999", "neither a rank"},
		{"--rank", "every", "neither a rank"},
		{"--rank", "1x", "neither a rank"},
		{"--padding", "me", "option --padding: 'me' is not known: there are backend and model"},
		{"--strategy", "best",
		 "strategy \"best\" is not known; known are lists, preallocated, ping-pong, in-place"},
		{"--gpu-memory", "0", "size of 0"},
		{"--kv-cache", "much", "no size"},
		{"--gpu-memory", "80GB", "no size; sizes are written like 123, 20MiB or 1.5GiB, in powers of 1024"},
		{"--other-weights", "16777216TiB", "is too large"},
		{"--backend", "nvfp4", "backend \"nvfp4\" is not known; known are nvfp4-trtllm, "},
		{"--backend", "bf16-triton", "the experts are MXFP4, and bf16-triton is for"},
		{"--backend", "mxfp4-rocm", "no rule for the buffers after the conversion"},
		{"--backend", "mxfp4-triton", "no rule"},
		{"--model", "nothing.json", "nothing.json"},
		{"--emit-trace", "", "not empty"},
		{"-o", "", "not empty"},
		{"--json=1", NULL, "takes no value"},
		{"--what", NULL, "--what"},
		{"more", NULL, "more"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++)
		cli_assert_refused(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--tp", "2",
					   cases[i].option, cases[i].value, NULL),
				   cases[i].part);
	cli_assert_refused(cli_run("plan", NULL), "--model is missing");
	cli_assert_refused(cli_run("plan", "--model", model(K3), NULL), "--backend is missing; `cleave plan --list`");
	cli_assert_refused(cli_run("plan", "--model", model(K3), "--backend", "mxfp4-marlin", "--rank", "all",
				   "--emit-trace", "x.clv", NULL),
			   "--emit-trace is the history of one rank");
	ck_assert_int_ne(access(cli_path("x.clv"), F_OK), 0);
	/* a rule of padding that the model has not */
	cli_assert_refused(cli_run("plan", "--model", model("qwen3-235b-a22b-bf16"), "--backend", "bf16-triton",
				   "--padding", "model", NULL),
			   "config.json");
}
END_TEST

/* What was looked for is in the message. */
START_TEST(refuses_models)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_hidden_layers\": 2}", "num_experts"},
		{"{\"model_type\": \"qwen3_moe\", \"num_experts\": 8}", "num_hidden_layers"},
		{"{", "config.json"},
		{"[]", "config.json"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		cli_text("config.json", cases[i].text);
		cli_assert_refused(cli_run("plan", "--model", ".", "--backend", "bf16-triton", NULL), cases[i].part);
		cli_assert_refused(
			cli_run("plan", "--model", "config.json", "--backend", "bf16-triton", "--json", NULL),
			"config.json");
	}
	cli_text(
		"config.json",
		"{\"model_type\": \"qwen3_moe\", \"num_experts\": 8, \"num_experts_per_tok\": 2, \"hidden_size\": 256, "
		"\"moe_intermediate_size\": 256, \"num_hidden_layers\": 2, \"decoder_sparse_step\": 1, "
		"\"mlp_only_layers\": [], \"quantization_config\": {\"quant_method\": \"guess\"}}");
	cli_assert_refused(cli_run("plan", "--model", ".", "--backend", "bf16-triton", NULL),
			   "\"guess\", which is not known");
	/* blocks that a rank's share would cut */
	cli_assert_refused(
		cli_run("plan", "--model", model("minimax-m2-fp8"), "--backend", "fp8-deepgemm", "--tp", "8", NULL),
		"would cut a block of 128");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {json,
				      fits_or_not,
				      text,
				      says_what_comes_next,
				      warns_of_weights_that_are_not_given,
				      warns_if_the_usual_strategy_does_not_fit,
				      warns_of_all_ranks,
				      leaves_the_models_files_alone,
				      file,
				      emits_a_history,
				      all_ranks,
				      coverage,
				      two_kinds_of_layers,
				      padding_is_counted_once,
				      readme,
				      lists,
				      refuses_usage,
				      refuses_models};
	return cli_suite("cli_plan", tests, CLV_ARRAY_LEN(tests));
}
