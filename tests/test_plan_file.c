/* SPDX-License-Identifier: MIT
 *
 * Reading plans: what a good one says, what is wrong with a bad one, and that no text, however broken, does more than
 * be refused or read as something that agrees with itself. CLEAVE_TEST_SEED chooses other random changes.
 */
#include "../src/plan/plan_file.h"
#include "check_main.h"
#include "plan_sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct clv_plan_file f;
static struct clv_error err;

static bool parse(const char *text)
{
	err.text[0] = 0;
	return clv_plan_file_parse(&f, "p.json", text, strlen(text), CLV_PLAN_OWN_RANK, &err);
}

/* The sample with one piece of its text changed; in a buffer of this function's. */
static const char *with(const char *piece, const char *instead)
{
	static char text[sizeof(sample_plan) + 8192];
	const char *at = strstr(sample_plan, piece);
	ck_assert_msg(at, "the sample has no %s", piece);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - sample_plan), sample_plan, instead, at + strlen(piece));
	return text;
}

START_TEST(a_good_plan)
{
	ck_assert_msg(parse(sample_plan), "%s", err.text);
	ck_assert_str_eq(f.path, "p.json");
	ck_assert_str_eq(f.model, "SampleForCausalLM");
	ck_assert_str_eq(f.backend, "nvfp4-cutlass");
	ck_assert_str_eq(f.strategy, "ping-pong");
	ck_assert_uint_eq(f.rank, 2);
	ck_assert_uint_eq(f.moe_layers, 6);
	ck_assert_uint_eq(f.layers, SAMPLE_LAYERS);
	ck_assert_uint_eq(f.experts, SAMPLE_EXPERTS);
	ck_assert_uint_eq(f.layer_bytes, SAMPLE_LAYER_BYTES);
	ck_assert_uint_eq(f.weights_bytes, 3 * SAMPLE_LAYER_BYTES);
	ck_assert_uint_eq(f.buffer_count, SAMPLE_BUFFERS);
	static const struct {
		const char *name;
		enum cleave_dtype dtype;
		uint32_t dims;
		uint64_t shape[3], strides[3], bytes;
		uint32_t experts;
		bool zeroed;
	} expected[SAMPLE_BUFFERS] = {
		{"w13_weight", CLEAVE_DTYPE_UINT8, 3, {4, 96, 1024}, {98304, 1024, 1}, SAMPLE_W13, 4, false},
		{"w13_weight_scale", CLEAVE_DTYPE_FLOAT8_E4M3FN, 3, {4, 96, 128}, {12288, 128, 1}, SAMPLE_S13, 4, true},
		{"w2_weight", CLEAVE_DTYPE_BFLOAT16, 3, {4, 512, 96}, {49152, 96, 1}, SAMPLE_W2, 4, false},
		{"w2_weight_scale", CLEAVE_DTYPE_INT32, 3, {4, 97, 3}, {300, 1, 100}, SAMPLE_PACKED, 4, false},
		{"input_scale", CLEAVE_DTYPE_FLOAT32, 0, {0}, {0}, SAMPLE_SCALAR, 1, false},
	};
	for (size_t i = 0; i < SAMPLE_BUFFERS; i++) {
		const struct clv_plan_file_buffer *b = &f.buffers[i];
		ck_assert_str_eq(b->name, expected[i].name);
		ck_assert_int_eq(b->dtype, expected[i].dtype);
		ck_assert_uint_eq(b->dims, expected[i].dims);
		for (uint32_t k = 0; k < b->dims; k++) {
			ck_assert_uint_eq(b->shape[k], expected[i].shape[k]);
			ck_assert_uint_eq(b->strides[k], expected[i].strides[k]);
		}
		ck_assert_uint_eq(b->bytes, expected[i].bytes);
		ck_assert_uint_eq(b->experts, expected[i].experts);
		ck_assert_uint_eq(b->expert_bytes, expected[i].bytes / expected[i].experts);
		ck_assert_int_eq(b->zeroed, expected[i].zeroed);
	}
	ck_assert_uint_eq(f.reservation_count, 2);
	ck_assert_str_eq(f.reservations[0].name, "w13_weight");
	ck_assert_uint_eq(f.reservations[0].bytes, SAMPLE_W13);
	ck_assert_uint_eq(f.reservations[0].count, 1);
	ck_assert_uint_eq(f.reservations[0].after_n, 3);
	ck_assert_uint_eq(f.reservations[0].uses, 5);
	ck_assert_uint_eq(f.reservations[1].uses, 0);
	ck_assert(f.reservations[0].hard);
	ck_assert(!f.reservations[1].hard);
	clv_plan_file_free(&f);
}
END_TEST

START_TEST(what_may_be_absent)
{
	ck_assert_msg(
		parse("{\"moe_layers\": 7, \"experts_local\": 1, \"later_member\": [[{}]], \"rank\": null, \"buffers\": "
		      "[{\"name\": \"w\", \"shape\": [1], \"dtype\": \"int8\", \"bytes\": 1}]}"),
		"%s", err.text);
	ck_assert_uint_eq(f.layers, 7);
	ck_assert_uint_eq(f.rank, 0);
	ck_assert_uint_eq(f.reservation_count, 0);
	ck_assert_uint_eq(f.weights_bytes, 0);
	ck_assert_str_eq(f.strategy, "");
	clv_plan_file_free(&f);
	ck_assert_msg(parse(with("\"layers_local\": 3", "\"layers_local\": 0")), "%s",
		      err.text); /* a stage without experts */
	ck_assert_uint_eq(f.layers, 0);
	clv_plan_file_free(&f);
	/* a row is padded behind the last element, or not */
	ck_assert_msg(parse(with("\"bytes\": 4800", "\"bytes\": 4788")), "%s", err.text);
	ck_assert_uint_eq(f.buffers[3].experts, 1); /* the last expert would be shorter */
	clv_plan_file_free(&f);
	/* where the slowest dimension is not the experts, they are no runs */
	ck_assert_msg(parse(with("[300, 1, 100], \"dtype\": \"int32\", \"bytes\": 4800",
				 "[1, 12, 4], \"dtype\": \"int32\", \"bytes\": 4656")),
		      "%s", err.text);
	ck_assert_uint_eq(f.buffers[3].experts, 1);
	ck_assert_uint_eq(f.buffers[3].expert_bytes, 4656);
	clv_plan_file_free(&f);
}
END_TEST

START_TEST(what_is_wrong_is_named)
{
	static const struct {
		const char *piece, *instead, *says; /* after "p.json: " */
	} cases[] = {
		{"\"version\": 1", "\"version\": 2", "version is 2: this program reads plans of version 1"},
		{"\"version\": 1", "\"version\": \"1\"", "version is a text: a whole number from 0 to "},
		{"\"moe_layers\": 6", "\"moe_layers\": 2",
		 "layers_local is 3: a whole number from 0 to 2 was expected"},
		{"\"moe_layers\": 6, ", "", "moe_layers is missing: a whole number was expected"},
		{"\"moe_layers\": 6", "\"moe_layers\": 1e3",
		 "moe_layers is a number that is not whole: a whole number from 1 to 1024"},
		{"\"moe_layers\": 6", "\"moe_layers\": 99999", "moe_layers is 99999: a whole number from 1 to 1024"},
		{"\"moe_layers\": 6", "\"moe_layers\": -6", "moe_layers is -6: a whole number from 1 to 1024"},
		{"\"experts_local\": 4", "\"experts_local\": 0", "experts_local is 0: a whole number from 1 to 16384"},
		{"\"rank\": 2", "\"rank\": [0, 1]", "rank is a list: a whole number"},
		{"\"strategy\": \"ping-pong\"", "\"strategy\": 1", "strategy is a whole number: a text was expected"},
		{"[4, 96, 1024]", "[4, 96, 1023]",
		 "buffers[0].bytes is 393216: 4 x 96 x 1023 of uint8, 1 bytes each, take 392832"},
		{"\"bfloat16\"", "\"float32\"",
		 "buffers[2].bytes is 393216: 4 x 512 x 96 of float32, 4 bytes each, take 786432"},
		{"\"bfloat16\"", "\"fp4\"", "buffers[2].dtype is \"fp4\": a name of PyTorch's was expected"},
		{"\"dtype\": \"bfloat16\", ", "", "buffers[2].dtype is missing: a text was expected"},
		{"\"shape\": [4, 512, 96], ", "", "buffers[2].shape is missing: a list of whole numbers was expected"},
		{"[4, 512, 96]", "[4, 0, 96]", "buffers[2].shape[1] is 0: a whole number from 1 to "},
		{"[4, 512, 96]", "[4, 9999999999, 9999999999]", "buffers[2].shape has more than "},
		{"[4, 512, 96]", "[4, 9223372036854775807, 96]",
		 "buffers[2].shape[1] is 9223372036854775807: a whole number"},
		{"[4, 512, 96]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]",
		 "buffers[2].shape has 9 entries: at most 8 were expected"},
		{"[4, 512, 96]", "{}", "buffers[2].shape is an object: a list was expected"},
		{"\"bytes\": 4}", "\"bytes\": 5}",
		 "buffers[4].bytes is 5: one element of float32, 4 bytes each, take 4"},
		{"\"name\": \"w2_weight\"", "\"name\": \"w13_weight\"",
		 "buffers[2].name is \"w13_weight\", as that of another buffer"},
		{"\"name\": \"w2_weight\"", "\"name\": \"\"", "buffers[2].name has 0 bytes: 1 to 63 were expected"},
		{"\"name\": \"w2_weight\", ", "", "buffers[2].name is missing: a text was expected"},
		{"[300, 1, 100]", "[300, 1, 96]", "buffers[3].strides of 4 x 97 x 3 let elements share bytes"},
		{"[300, 1, 100]", "[299, 1, 100]",
		 "buffers[3].bytes is 4800: 4 x 97 x 3 of int32, 4 bytes each, take 4776"},
		{"[300, 1, 100]", "[300, 1]", "buffers[3].strides has 2 entries and shape 3"},
		{"[300, 1, 100]", "[281474976710656, 1, 100]",
		 "buffers[3].strides of 4 x 97 x 3 let elements share bytes, or"},
		{"\"zeroed\": true", "\"zeroed\": 1",
		 "buffers[1].zeroed is a whole number: true or false was expected"},
		{"\"count\": 1", "\"count\": 0", "reservations[0].count is 0: a whole number from 1 to 4294967295"},
		{"\"experts_local\": 4", "\"experts_local\": 5", "experts_local is 5, and no buffer's first dimension is"},
		{"\"after_n\": 3", "\"after_n\": -3", "reservations[0].after_n is -3"},
		{"\"uses\": 5", "\"uses\": 5.5", "reservations[0].uses is a number that is not whole"},
		{"\"hard\": false", "\"hard\": \"no\"", "reservations[1].hard is a text: true or false was expected"},
		{"[{\"name\": \"w13_weight\", \"bytes\": 393216,", "[7, {\"bytes\": 393216,",
		 "reservations[0] is a whole number: an object was expected"},
		{"\"buffers\":", "\"puffers\":",
		 "buffers is missing: the buffers of a layer were expected (is this a plan"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char expected[512];
		snprintf(expected, sizeof(expected), "p.json: %s", cases[i].says);
		ck_assert_msg(!parse(with(cases[i].piece, cases[i].instead)), "%s was read", cases[i].instead);
		ck_assert_msg(!strncmp(err.text, expected, strlen(expected)), "'%s', not '%s'", err.text, expected);
		ck_assert_ptr_null(f.buffers);
	}
	ck_assert(!parse("[]"));
	ck_assert_str_eq(err.text,
			 "p.json: this is a list: a plan of `cleave plan`, which is one object, was expected");
	ck_assert(!parse("{\"version\": 1,\n\"rank\": }"));
	ck_assert_msg(!strncmp(err.text, "p.json:2: this is no JSON: ", 27), "%s", err.text);
	ck_assert(!parse(""));
	ck_assert(!parse(with("\"rank\": 2", "\"rank\": 2, \"rank\": 3")));
	ck_assert_msg(strstr(err.text, "this is no JSON: duplicate object key"), "%s", err.text);
}
END_TEST

/* Two kinds of ranks: 0 and 4 to 7, with the sample's buffers, and 1 to 3, with one layer less and one buffer. */
START_TEST(plans_of_all_ranks)
{
	static char text[3 * sizeof(sample_plan)];
	size_t body = strlen(sample_plan) - 2; /* without the last brace */
	int n = snprintf(
		text, sizeof(text),
		"%.*s, \"ranks\": [{\"spans\": [[0, 0], [4, 7]], %s, {\"spans\": [[1, 3]], \"rank\": 1, \"experts_local\": 3, "
		"\"layers_local\": 2, \"buffers\": [{\"name\": \"w\", \"shape\": [3, 5], \"dtype\": \"int8\", \"bytes\": 15}]}]}",
		(int)body, sample_plan, strchr(sample_plan, '{') + 1);
	ck_assert_int_lt(n, (int)sizeof(text));
	static const struct {
		uint32_t rank, layers, experts;
		size_t buffers;
	} expected[] = {{CLV_PLAN_OWN_RANK, 3, 4, 5}, {0, 3, 4, 5}, {7, 3, 4, 5}, {1, 2, 3, 1}, {3, 2, 3, 1}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(expected); i++) {
		err.text[0] = 0;
		ck_assert_msg(clv_plan_file_parse(&f, "p.json", text, (size_t)n, expected[i].rank, &err), "%s",
			      err.text);
		ck_assert_uint_eq(f.rank, expected[i].rank == CLV_PLAN_OWN_RANK ? 2 : expected[i].rank);
		ck_assert_uint_eq(f.layers, expected[i].layers);
		ck_assert_uint_eq(f.experts, expected[i].experts);
		ck_assert_uint_eq(f.buffer_count, expected[i].buffers);
		clv_plan_file_free(&f);
	}
	ck_assert(!clv_plan_file_parse(&f, "p.json", text, (size_t)n, 8, &err));
	ck_assert_str_eq(err.text, "p.json: ranks has no rank 8");
	/* what is wrong there is named with its rank */
	*strstr(text, "15}") = '9';
	err.text[0] = 0;
	ck_assert(!clv_plan_file_parse(&f, "p.json", text, (size_t)n, 2, &err));
	ck_assert_str_eq(err.text, "p.json: ranks[1].buffers[0].bytes is 95: 3 x 5 of int8, 1 bytes each, take 15");
	memcpy(strstr(text, "1, 3]"), "1   ]", 5);
	err.text[0] = 0;
	ck_assert(!clv_plan_file_parse(&f, "p.json", text, (size_t)n, 2, &err));
	ck_assert_str_eq(err.text, "p.json: ranks[1].spans[0] is a list: a list of a first and a last rank was expected");
	err.text[0] = 0;
	ck_assert(!clv_plan_file_parse(&f, "p.json", sample_plan, sizeof(sample_plan) - 1, 5, &err));
	ck_assert_str_eq(err.text,
			 "p.json: rank is 2: a plan of rank 5 was expected, or of all (cleave plan --rank all)");
	err.text[0] = 0;
	ck_assert(clv_plan_file_parse(&f, "p.json", sample_plan, sizeof(sample_plan) - 1, 2, &err));
	clv_plan_file_free(&f);
}
END_TEST

/* One layer would do, but the layers together would not. */
START_TEST(sums_do_not_wrap)
{
	char text[16384];
	size_t at = (size_t)snprintf(text, sizeof(text), "{\"moe_layers\": 1024, \"experts_local\": 1, \"buffers\": [");
	for (int i = 0; i < CLV_PLAN_BUFFERS_MAX; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "%s{\"name\": \"w%d\", \"shape\": [1, %" PRIu64
				       "], \"dtype\": \"uint8\", \"bytes\": %" PRIu64 "}",
				       i ? ", " : "", i, CLV_PLAN_BYTES_MAX, CLV_PLAN_BYTES_MAX);
	snprintf(text + at, sizeof(text) - at, "]}");
	ck_assert(!parse(text));
	ck_assert_msg(strstr(err.text, "bytes in each of 1024 layers: less than 2^62"), "%s", err.text);
	/* and one buffer more */
	snprintf(text + at, sizeof(text) - at, ", {}]}");
	ck_assert(!parse(text));
	ck_assert_msg(strstr(err.text, "buffers has 65 entries: at most 64"), "%s", err.text);
}
END_TEST

START_TEST(files)
{
	char path[] = "/tmp/cleave-plan-XXXXXX", expected[256];
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq((int)write(fd, sample_plan, sizeof(sample_plan) - 1), (int)sizeof(sample_plan) - 1);
	err.text[0] = 0;
	ck_assert_msg(clv_plan_file_read(&f, path, &err), "%s", err.text);
	ck_assert_str_eq(f.path, path);
	ck_assert_uint_eq(f.buffer_count, SAMPLE_BUFFERS);
	clv_plan_file_free(&f);
	ck_assert_int_eq(ftruncate(fd, CLV_PLAN_FILE_MAX + 1), 0);
	ck_assert(!clv_plan_file_read(&f, path, &err));
	snprintf(expected, sizeof(expected), "%s: has 16777217 bytes, more than a plan can have", path);
	ck_assert_str_eq(err.text, expected);
	close(fd);
	unlink(path);
	err.text[0] = 0;
	ck_assert(!clv_plan_file_read(&f, path, &err));
	snprintf(expected, sizeof(expected), "%s: cannot be opened: No such file or directory", path);
	ck_assert_str_eq(err.text, expected);
	err.text[0] = 0;
	ck_assert(!clv_plan_file_read(&f, "/", &err));
	ck_assert_str_eq(err.text, "/: is no file");
}
END_TEST

/* What was read agrees with itself, so that whoever uses it need not look again. */
static void check_read(const char *text)
{
	uint64_t sum = 0;
	ck_assert_uint_ge(f.experts, 1);
	ck_assert_uint_le(f.layers, f.moe_layers);
	ck_assert_uint_ge(f.buffer_count, 1);
	for (size_t i = 0; i < f.buffer_count; i++) {
		const struct clv_plan_file_buffer *b = &f.buffers[i];
		uint64_t last = 0;
		ck_assert_uint_le(b->dims, CLEAVE_PLAN_DIMS);
		ck_assert_ptr_nonnull(memchr(b->name, 0, sizeof(b->name)));
		for (uint32_t k = 0; k < b->dims; k++)
			last += (b->shape[k] - 1) * b->strides[k];
		ck_assert_msg((last + 1) * (cleave_dtype_bits(b->dtype) / 8) <= b->bytes,
			      "reaches beyond its bytes: %s", text);
		ck_assert(b->experts == 1 || b->experts == f.experts);
		ck_assert_uint_eq(b->experts * b->expert_bytes, b->bytes);
		sum += b->bytes;
	}
	ck_assert_uint_eq(sum, f.layer_bytes);
	ck_assert_uint_le(f.layer_bytes, ((uint64_t)1 << 62) / (f.layers ? f.layers : 1));
	for (size_t i = 0; i < f.reservation_count; i++)
		ck_assert(f.reservations[i].bytes && f.reservations[i].bytes <= CLV_PLAN_BYTES_MAX &&
			  f.reservations[i].count);
}

static void mutate(struct clv_rng *rng, char *text, size_t *len, size_t room)
{
	static const char *const tokens[] = {"-1",
					     "0",
					     "9223372036854775807",
					     "9223372036854775808",
					     "1e400",
					     "null",
					     "{}",
					     "[]",
					     "\"\"",
					     "true",
					     "[[[[",
					     "}",
					     ",",
					     ":",
					     "\\u0000",
					     "4",
					     "281474976710656",
					     "float32"};
	size_t at = clv_rng_below(rng, *len);
	const char *token = tokens[clv_rng_below(rng, CLV_ARRAY_LEN(tokens))];
	size_t n = strlen(token), cut = clv_rng_below(rng, 6);
	cut = clv_min_u64(cut, *len - at);
	switch (clv_rng_below(rng, 6)) {
	case 0: /* a byte */
		text[at] = (char)clv_rng_below(rng, 256);
		break;
	case 1: /* a digit, so that much stays well formed */
		while (at + 1 < *len && (text[at] < '0' || text[at] > '9'))
			at++;
		text[at] = (char)('0' + clv_rng_below(rng, 10));
		break;
	case 2: /* the end is missing */
		*len = at + 1;
		break;
	case 3: /* a number becomes something else */
		while (at + 1 < *len && (text[at] < '0' || text[at] > '9'))
			at++;
		for (cut = 0; at + cut < *len && text[at + cut] >= '0' && text[at + cut] <= '9';)
			cut++;
		/* fall through */
	default:
		if (*len - cut + n > room)
			break;
		memmove(text + at + n, text + at + cut, *len - at - cut);
		memcpy(text + at, token, n);
		*len += n - cut;
	}
}

START_TEST(random_changes)
{
	const char *seed = getenv("CLEAVE_TEST_SEED");
	struct clv_rng rng = {seed ? strtoull(seed, NULL, 0) : 1};
	unsigned good = 0, rounds = 6000;
	static char text[2 * sizeof(sample_plan)];
	for (unsigned i = 0; i < rounds; i++) {
		size_t len = sizeof(sample_plan) - 1;
		memcpy(text, sample_plan, len);
		for (uint64_t n = clv_rng_range(&rng, 1, 4); n; n--)
			mutate(&rng, text, &len, sizeof(text) - 1);
		text[len] = 0;
		err.text[0] = 0;
		/* in memory of its own length, so that a sanitizer sees a look beyond it */
		char *exact = malloc(len ? len : 1);
		memcpy(exact, text, len);
		if (clv_plan_file_parse(&f, "p.json", exact, len, i % 3 ? CLV_PLAN_OWN_RANK : 2, &err)) {
			check_read(text);
			ck_assert_str_eq(err.text, "");
			clv_plan_file_free(&f);
			good++;
		} else {
			ck_assert_msg(!strncmp(err.text, "p.json:", 7) && err.text[7], "seed %s, change %u: '%s'",
				      seed ? seed : "1", i, err.text);
		}
		free(exact);
	}
	/* both happen often: else the changes are too small or too large to find anything */
	ck_assert_uint_gt(good, rounds / 100);
	ck_assert_uint_lt(good, rounds / 2);
}
END_TEST

START_TEST(dtypes)
{
	ck_assert_str_eq(cleave_dtype_name(CLEAVE_DTYPE_FLOAT8_E8M0FNU), "float8_e8m0fnu");
	ck_assert_uint_eq(cleave_dtype_bits(CLEAVE_DTYPE_BFLOAT16), 16);
	ck_assert_ptr_null(cleave_dtype_name(CLEAVE_DTYPE_NONE));
	ck_assert_ptr_null(cleave_dtype_name((enum cleave_dtype)1000));
	ck_assert_uint_eq(cleave_dtype_bits((enum cleave_dtype)1000), 0);
	for (int i = 1; cleave_dtype_name((enum cleave_dtype)i); i++)
		ck_assert_msg(cleave_dtype_bits((enum cleave_dtype)i) % 8 == 0 &&
				      cleave_dtype_bits((enum cleave_dtype)i),
			      "%d", i);
}
END_TEST

CHECK_MAIN("plan_file", a_good_plan, what_may_be_absent, what_is_wrong_is_named, plans_of_all_ranks, sums_do_not_wrap,
	   files, random_changes, dtypes)
