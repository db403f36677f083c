/* SPDX-License-Identifier: MIT */
#include "../src/plan/coverage.h"
#include "check_main.h"
#include "models.h"

/* ---- a slow walk over elements, beside the proof ---- */

/* What an engine does, element by element, after moe-layouts 3.1, 3.3 and 3.4, written without looking at shard.c. */
struct walk {
	const struct clv_model *m;
	struct clv_shard_config c;
	uint64_t written, tail_bits, tails;
};

static uint32_t stage_of(const struct walk *w, uint32_t layer)
{
	uint32_t sizes[CLV_MODEL_LAYERS_MAX], at = 0;
	for (uint32_t i = 0; i < w->c.pp; i++)
		sizes[i] = w->m->layers / w->c.pp;
	for (uint32_t i = 2; i < w->m->layers % w->c.pp + 2; i++)
		sizes[w->c.pp - i]++;
	for (uint32_t i = 0; i < w->c.pp; i++) {
		at += sizes[i];
		if (layer < at)
			return i;
	}
	ck_abort();
}

/* Which of `ep` ranks has an expert, and the how manieth it is there. */
static uint32_t owner_of(const struct walk *w, uint32_t ep, uint32_t expert, uint32_t *local)
{
	uint32_t experts = w->m->experts, at = 0;
	if (w->c.placement == CLV_PLACEMENT_ROUND_ROBIN) {
		*local = expert / ep;
		return expert % ep;
	}
	for (uint32_t rank = 0;; rank++) {
		uint32_t n = experts / ep + (rank < experts % ep);
		if (expert < at + n) {
			*local = expert - at;
			return rank;
		}
		at += n;
	}
}

/* The first and the end of what a rank loads of `size` elements, each standing for `unit` weights. */
static void load_of(const struct walk *w, uint64_t size, uint32_t unit, uint32_t tp, uint32_t rank, uint64_t *first,
		    uint64_t *end)
{
	uint64_t per_rank = size / tp;
	if (!strcmp(w->m->type, "gpt_oss"))
		per_rank = (size * unit / 32 + tp - 1) / tp * 32 / unit;
	*first = per_rank * rank;
	*end = *first + per_rank;
	*first = *first < size ? *first : size;
	*end = *end < size ? *end : size;
}

/* Checks by `if`, since Check writes down each assertion that holds.
 * Loads one tensor of all layers of a kind and all experts into all ranks, and sees what became of it. */
static void walk_tensor(struct walk *w, const struct clv_shard *s, uint32_t k, const struct clv_shard_buffer *b)
{
	const struct clv_model *m = w->m;
	uint32_t flat = w->c.tp * w->c.dp * w->c.pcp, tp = w->c.expert_parallel ? 1 : flat, ep = flat / tp;
	uint64_t rows = b->rows.logical, cols = b->cols.logical, per_expert = b->parts * rows * cols;
	uint64_t padded = b->parts * b->rows.padded * b->cols.padded;
	uint8_t *held = malloc(m->experts * per_expert), *buffer = malloc((m->experts / ep + 1) * padded);
	for (uint32_t l = 0; l < m->layers; l++) {
		if (!(m->layer[l] & CLV_LAYER_EXPERTS) ||
		    (m->layer[l] & CLV_LAYER_PLAIN ? CLV_SET_PLAIN : CLV_SET_QUANT) != k)
			continue;
		memset(held, 0, m->experts * per_expert);
		for (uint32_t rank = 0; rank < w->c.tp * w->c.dp * w->c.pcp * w->c.pp; rank++) {
			uint32_t tp_rank = rank % w->c.tp, pcp_rank = rank / w->c.tp % w->c.pcp;
			uint32_t pp_rank = rank / w->c.tp / w->c.pcp % w->c.pp, local, experts = 0;
			uint32_t dp_rank = rank / w->c.tp / w->c.pcp / w->c.pp;
			uint32_t in_flat = dp_rank * w->c.pcp * w->c.tp + pcp_rank * w->c.tp + tp_rank;
			uint64_t row_first = 0, row_end = rows, col_first = 0, col_end = cols, zeros = 0;
			if (stage_of(w, l) != pp_rank)
				continue;
			if (b->split == CLV_SHARD_ROWS)
				load_of(w, rows, b->row_unit, tp, tp > 1 ? in_flat : 0, &row_first, &row_end);
			if (b->split == CLV_SHARD_COLS)
				load_of(w, cols, b->col_unit, tp, tp > 1 ? in_flat : 0, &col_first, &col_end);
			memset(buffer, 0, (m->experts / ep + 1) * padded);
			for (uint32_t e = 0; e < m->experts; e++) {
				if (owner_of(w, ep, e, &local) != (ep > 1 ? in_flat : 0))
					continue;
				experts++;
				for (uint32_t p = 0; p < b->parts; p++) {
					for (uint64_t i = row_first; i < row_end; i++) {
						for (uint64_t j = col_first; j < col_end; j++) {
							uint64_t to =
								local * padded +
								(p * b->rows.padded + i - row_first) * b->cols.padded +
								j - col_first;
							if (i - row_first >= b->rows.padded ||
							    j - col_first >= b->cols.padded || buffer[to])
								ck_abort_msg("%s: written twice, or outside", b->name);
							buffer[to] = 1;
							held[e * per_expert + (p * rows + i) * cols + j]++;
							w->written++;
						}
					}
				}
			}
			for (uint64_t i = 0; i < experts * padded; i++)
				zeros += !buffer[i];
			w->tail_bits += zeros * clv_dtype_bits(b->dtype);
			/* the rank's own figures say the same of this buffer */
			struct clv_shard_span slice = clv_shard_slice(s, b, tp > 1 ? in_flat : 0);
			ck_assert_uint_eq(experts * (clv_shard_elements(b) - clv_shard_valid(b, slice)), zeros);
		}
		for (uint64_t i = 0; i < m->experts * per_expert; i++)
			if (held[i] != b->copies)
				ck_abort_msg("%s: element %llu of layer %u is held %u times", b->name,
					     (unsigned long long)i, l, held[i]);
	}
	free(held);
	free(buffer);
}

static void walk_and_prove(const struct clv_model *m, const struct clv_shard_config *c, unsigned *done)
{
	struct clv_shard s;
	struct clv_coverage cover;
	struct clv_error err = {0};
	if (!clv_shard_make(&s, m, c, &err)) {
		ck_assert(err.text[0]);
		return;
	}
	ck_assert_msg(clv_coverage_prove(&s, &cover, &err), "%s", err.text);
	ck_assert_uint_eq(cover.ranks, s.world);
	uint32_t at = 0;
	for (uint32_t k = 0; k < CLV_SETS; k++) {
		for (uint32_t i = 0; i < s.sets[k].count; i++, at++) {
			const struct clv_coverage_figures *f = &cover.buffers[at];
			struct walk w = {.m = m, .c = *c};
			walk_tensor(&w, &s, k, &s.sets[k].buffers[i]);
			ck_assert_uint_eq(f->written, w.written);
			ck_assert_uint_eq(f->tail_bytes, w.tail_bits / 8);
			ck_assert_uint_eq(f->elements * f->copies, w.written);
			ck_assert((f->tails > 0) == (w.tail_bits > 0));
		}
	}
	ck_assert_uint_eq(at, cover.count);
	++*done;
}

START_TEST(agrees_with_a_walk_over_elements)
{
	static const struct {
		uint32_t tp, dp, pcp, pp;
		bool ep, in_turn;
	} shapes[] = {{1, 1, 1, 1, 0, 0}, {2, 1, 1, 1, 0, 0}, {4, 1, 1, 1, 0, 0}, {8, 1, 1, 1, 0, 0},
		      {2, 2, 1, 2, 0, 0}, {1, 2, 2, 1, 0, 0}, {2, 1, 1, 2, 1, 0}, {3, 1, 1, 1, 1, 0},
		      {2, 2, 1, 1, 1, 0}, {2, 2, 1, 2, 1, 1}, {3, 1, 1, 2, 0, 0}, {5, 1, 1, 1, 0, 0},
		      {6, 1, 1, 1, 0, 0}};
	static const uint32_t aligns[][2] = {{1, 1}, {64, 32}, {96, 100}};
	unsigned total = 0;
	for (size_t k = 0; k < CLV_ARRAY_LEN(small_models); k++) {
		struct clv_model m;
		unsigned done = 0;
		read_named(&m, small_models[k]);
		for (size_t i = 0; i < CLV_ARRAY_LEN(shapes); i++) {
			for (size_t a = 0; a < CLV_ARRAY_LEN(aligns); a++) {
				struct clv_shard_config c;
				clv_shard_config_init(&c);
				c.tp = shapes[i].tp;
				c.dp = shapes[i].dp;
				c.pcp = shapes[i].pcp;
				c.pp = shapes[i].pp;
				c.expert_parallel = shapes[i].ep;
				c.placement = shapes[i].in_turn ? CLV_PLACEMENT_ROUND_ROBIN : CLV_PLACEMENT_LINEAR;
				c.align_intermediate = aligns[a][0];
				c.align_hidden = aligns[a][1];
				c.padding = m.intermediate_floor && i % 2 ? CLV_PADDING_MODEL : CLV_PADDING_BACKEND;
				walk_and_prove(&m, &c, &done);
			}
		}
		ck_assert_msg(done >= 8, "%s: only %u shapes", small_models[k], done);
		total += done;
		clv_model_free(&m);
	}
	ck_assert_uint_ge(total, 100);
}
END_TEST

/* ---- the proof itself: what is wrong is found ---- */

static const struct clv_coverage_region tiles[] = {
	{0, 2, 0, 1, 3, 0, 5},  {0, 2, 0, 1, 3, 5, 5}, {0, 2, 3, 1, 1, 0, 10},
	{2, 3, 0, 2, 2, 0, 10}, {2, 3, 1, 2, 2, 0, 4}, {2, 3, 1, 2, 2, 4, 6},
};

static bool tiled(const struct clv_coverage_region *r, size_t n, uint32_t copies, struct clv_error *err)
{
	struct clv_coverage_region copy[32];
	memcpy(copy, r, n * sizeof(*r));
	memset(err, 0, sizeof(*err));
	return clv_coverage_tiles(copy, n, 3, 4, 10, copies, "t", err);
}

/* Counts, element by element, whether each is there `copies` times. */
static bool counted(const struct clv_coverage_region *r, size_t n, uint32_t copies)
{
	uint32_t held[3][4][10] = {0};
	for (size_t i = 0; i < n; i++)
		for (uint32_t l = r[i].layer_first; l < r[i].layer_end; l++)
			for (uint32_t e = 0; e < r[i].expert_count; e++)
				for (uint64_t x = r[i].first; x < r[i].first + r[i].count; x++) {
					uint32_t expert = r[i].expert_first + e * r[i].expert_step;
					if (l >= 3 || expert >= 4 || x >= 10)
						return false;
					held[l][expert][x]++;
				}
	for (uint32_t i = 0; i < 3 * 4 * 10; i++)
		if ((&held[0][0][0])[i] != copies)
			return false;
	return true;
}

START_TEST(finds_what_is_lost_or_doubled)
{
	enum { N = CLV_ARRAY_LEN(tiles) };
	struct clv_coverage_region r[2 * N + 1];
	struct clv_error err;
	ck_assert(tiled(tiles, N, 1, &err) && counted(tiles, N, 1));
	for (size_t i = 0; i < N; i++) { /* one too few, one too many */
		memcpy(r, tiles, sizeof(tiles));
		r[i].count = 0;
		ck_assert(!tiled(r, N, 1, &err));
		ck_assert(err.text[0]);
		memcpy(r, tiles, sizeof(tiles));
		r[N] = tiles[i];
		ck_assert(!tiled(r, N + 1, 1, &err));
		ck_assert(err.text[0]);
	}
	memcpy(r, tiles, sizeof(tiles));
	memcpy(r + N, tiles, sizeof(tiles));
	ck_assert(tiled(r, 2 * N, 2, &err) && !tiled(r, 2 * N, 1, &err) && !tiled(r, 2 * N, 3, &err));
	ck_assert(!tiled(r, 0, 1, &err));
	ck_assert_msg(strstr(err.text, "layers 0 to 2 are held by no rank"), "%s", err.text);
	unsigned good = 0;
	for (uint64_t seed = 1; seed <= 200000; seed++) { /* never proved without being true */
		struct clv_rng rng = {seed};
		memcpy(r, tiles, sizeof(tiles));
		for (uint64_t n = clv_rng_range(&rng, 1, 2); n; n--) {
			struct clv_coverage_region *x = &r[clv_rng_below(&rng, N)];
			int64_t by = clv_rng_below(&rng, 2) ? 1 : -1;
			switch (clv_rng_below(&rng, 7)) {
			case 0:
				x->layer_first += (uint32_t)(x->layer_first || by > 0 ? by : 0);
				break;
			case 1:
				x->layer_end += (uint32_t)by;
				break;
			case 2:
				x->expert_first += (uint32_t)(x->expert_first || by > 0 ? by : 0);
				break;
			case 3:
				x->expert_step += (uint32_t)(x->expert_step > 1 || by > 0 ? by : 0);
				break;
			case 4:
				x->expert_count += (uint32_t)by;
				break;
			case 5:
				x->first += (uint64_t)(x->first || by > 0 ? by : 0);
				break;
			default:
				x->count += (uint64_t)by;
			}
		}
		bool proved = tiled(r, N, 1, &err);
		if (proved && !counted(r, N, 1))
			ck_abort_msg("seed %llu", (unsigned long long)seed);
		good += proved;
	}
	ck_assert_uint_gt(good, 0);
}
END_TEST

static void fails(const struct clv_shard *s, const char *why)
{
	struct clv_coverage cover;
	struct clv_error err = {0};
	ck_assert_msg(!clv_coverage_prove(s, &cover, &err), "proved, instead of: %s", why);
	ck_assert_msg(strstr(err.text, why) != NULL, "%s\ninstead of: %s", err.text, why);
}

START_TEST(finds_a_shard_that_is_wrong)
{
	struct clv_model m;
	struct clv_shard s, t;
	struct clv_shard_config c;
	struct clv_error err = {0};
	read_named(&m, "latent"); /* 384 over 4 ranks: 96, in 128 */
	clv_shard_config_init(&c);
	c.tp = 4;
	c.align_intermediate = 128;
	ck_assert(clv_shard_make(&s, &m, &c, &err));
	t = s;
	t.config.zeroed = false;
	fails(&t, "w13_weight: rank 0 has padding, and nothing makes it zeros");
	t = s;
	t.moe_tp = 8; /* and only 4 ranks */
	fails(&t, "w13_weight: elements 192 to 383 are held by no rank");
	t = s;
	t.sets[0].buffers[3].cols.logical -= 4; /* scales that do not match the weights */
	fails(&t, "w2_weight_scale: rank 0 has the weights from 0 on, 96 of them, but here what belongs to 80");
	t = s;
	t.sets[0].buffers[1].cols.padded = 64;
	fails(&t, "w2_weight: rank 0 writes 128 x 96 into 128 x 64");
	t = s;
	t.sets[0].layers--;
	fails(&t, "elements are written");
	clv_model_free(&m);
}
END_TEST

START_TEST(gives_the_figures)
{
	struct clv_model m;
	struct clv_shard s;
	struct clv_shard_config c;
	struct clv_coverage cover;
	struct clv_error err = {0};
	read_named(&m, "interleaved"); /* 3 layers, one of them plain; 4 experts of 96 x 48; FP8 by channel */
	clv_shard_config_init(&c);
	c.tp = 2;
	c.align_intermediate = 64;
	ck_assert(clv_shard_make(&s, &m, &c, &err));
	ck_assert_msg(clv_coverage_prove(&s, &cover, &err), "%s", err.text);
	ck_assert_uint_eq(cover.ranks, 2);
	ck_assert_uint_eq(cover.count, 6);
	const struct clv_coverage_figures *w13 = &cover.buffers[0], *s2 = &cover.buffers[3], *plain = &cover.buffers[4];
	ck_assert_str_eq(w13->name, "w13_weight");
	ck_assert_uint_eq(w13->elements, 2 * 4 * 2 * 96 * 48);
	ck_assert_uint_eq(w13->written, w13->elements);
	ck_assert_uint_eq(w13->bytes, w13->elements);
	ck_assert_uint_eq(w13->buffer_bytes, 2 * 2 * 4 * 2 * 64 * 48);
	ck_assert_uint_eq(w13->tails, 2 * 2 * 4 * 2); /* ranks, layers, experts, parts */
	ck_assert_uint_eq(w13->tail_bytes, 2 * 2 * 4 * 2 * 16 * 48);
	ck_assert_uint_eq(s2->copies, 2);
	ck_assert_uint_eq(s2->elements, 2 * 4 * 48);
	ck_assert_uint_eq(s2->written, 2 * 2 * 4 * 48);
	ck_assert_uint_eq(s2->tails, 0);
	ck_assert_uint_eq(plain->set, CLV_SET_PLAIN);
	ck_assert_uint_eq(plain->bytes, 2 * plain->elements);
	uint64_t bytes = 0, ranks = 0, tails = 0;
	for (uint32_t i = 0; i < cover.count; i++)
		bytes += cover.buffers[i].bytes;
	for (uint32_t i = 0; i < 2; i++) {
		struct clv_shard_rank r;
		clv_shard_rank(&s, i, &r);
		ranks += r.bytes;
		tails += r.padding_bytes;
	}
	ck_assert_uint_eq(cover.sum.bytes, bytes);
	ck_assert_uint_eq(cover.sum.buffer_bytes, ranks);
	ck_assert_uint_eq(cover.sum.tail_bytes, tails);
	clv_model_free(&m);
}
END_TEST

/* Any sizes within the limits: refused with a reason, or proved. */
START_TEST(proves_or_refuses_any_sizes)
{
	unsigned proved = 0;
	struct clv_model m = {0};
	for (uint64_t seed = 1; seed <= 6000; seed++) {
		struct clv_rng rng = {seed};
		struct clv_shard s;
		struct clv_shard_config c;
		struct clv_shard_rank r;
		struct clv_coverage cover;
		struct clv_error err = {0};
		if (seed % 100 == 1) {
			clv_model_free(&m);
			read_named(&m, small_models[seed / 100 % CLV_ARRAY_LEN(small_models)]);
		}
		uint32_t unit = clv_rng_below(&rng, 4) ? 128 : 1;
		m.intermediate = unit * (uint32_t)clv_rng_range(&rng, 1, CLV_MODEL_INTERMEDIATE_MAX / unit);
		m.routed_hidden = unit * (uint32_t)clv_rng_range(&rng, 1, CLV_MODEL_HIDDEN_MAX / unit);
		m.experts = (uint32_t)clv_rng_range(&rng, 1, clv_rng_below(&rng, 2) ? 64 : CLV_MODEL_EXPERTS_MAX);
		clv_shard_config_init(&c);
		c.tp = 1u << clv_rng_below(&rng, 7);
		c.dp = (uint32_t)clv_rng_range(&rng, 1, 3);
		c.pcp = 1u << clv_rng_below(&rng, 2);
		c.pp = (uint32_t)clv_rng_range(&rng, 1, 4);
		c.expert_parallel = clv_rng_below(&rng, 2);
		c.placement = clv_rng_below(&rng, 4) ? CLV_PLACEMENT_LINEAR : CLV_PLACEMENT_ROUND_ROBIN;
		c.align_intermediate = (uint32_t)clv_rng_range(&rng, 1, 300);
		c.align_hidden = (uint32_t)clv_rng_range(&rng, 1, CLV_SHARD_ALIGN_MAX);
		if (!clv_shard_make(&s, &m, &c, &err)) {
			if (!err.text[0])
				ck_abort_msg("seed %llu: refused without a reason", (unsigned long long)seed);
			continue;
		}
		if (!clv_coverage_prove(&s, &cover, &err))
			ck_abort_msg("seed %llu: %s", (unsigned long long)seed, err.text);
		clv_shard_rank(&s, s.world - 1, &r);
		if (r.valid_bytes > r.bytes || r.bytes > cover.sum.buffer_bytes)
			ck_abort_msg("seed %llu", (unsigned long long)seed);
		proved++;
	}
	clv_model_free(&m);
	ck_assert_uint_gt(proved, 500);
}
END_TEST

CHECK_MAIN("coverage", proves_or_refuses_any_sizes, agrees_with_a_walk_over_elements, finds_what_is_lost_or_doubled,
	   finds_a_shard_that_is_wrong, gives_the_figures)
