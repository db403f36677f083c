/* SPDX-License-Identifier: MIT */
#include "coverage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- each element exactly once ---- */

#define COMPARE(a, b)                                                                                                  \
	do {                                                                                                           \
		if ((a) != (b))                                                                                        \
			return (a) < (b) ? -1 : 1;                                                                     \
	} while (0)

static int same_layers(const struct clv_coverage_region *a, const struct clv_coverage_region *b)
{
	COMPARE(a->layer_first, b->layer_first);
	COMPARE(a->layer_end, b->layer_end);
	return 0;
}

static int same_experts(const struct clv_coverage_region *a, const struct clv_coverage_region *b)
{
	COMPARE(a->expert_step, b->expert_step);
	COMPARE(a->expert_first, b->expert_first);
	COMPARE(a->expert_count, b->expert_count);
	return 0;
}

static int in_order(const void *va, const void *vb)
{
	const struct clv_coverage_region *a = va, *b = vb;
	int order = same_layers(a, b);
	if (!order)
		order = same_experts(a, b);
	if (order)
		return order;
	COMPARE(a->first, b->first);
	COMPARE(a->count, b->count);
	return 0;
}

static bool gap(const char *name, const char *what, uint64_t at, uint64_t next, struct clv_error *err)
{
	if (next < at)
		return clv_error_set(err, "%s: %s from %" PRIu64 " is held more often than it should be", name, what,
				     next);
	return clv_error_set(err, "%s: %s %" PRIu64 " to %" PRIu64 " are held by no rank", name, what, at, next - 1);
}

static bool tile_axis(const struct clv_coverage_region *r, size_t n, uint64_t length, uint32_t copies, const char *name,
		      struct clv_error *err)
{
	uint64_t at = 0;
	for (size_t i = 0; i < n; i += copies) {
		if (r[i].first != at)
			return gap(name, "elements", at, r[i].first, err);
		for (size_t k = i; k < i + copies; k++)
			if (k >= n || r[k].first != r[i].first || r[k].count != r[i].count)
				return clv_error_set(err,
						     "%s: what begins at %" PRIu64 " of the experts from %" PRIu32
						     " is held %zu times, not %" PRIu32,
						     name, r[i].first, r[i].expert_first, k - i, copies);
		at += r[i].count;
	}
	return at == length || gap(name, "elements", at, length, err);
}

static bool tile_experts(const struct clv_coverage_region *r, size_t n, uint32_t experts, uint64_t length,
			 uint32_t copies, const char *name, struct clv_error *err)
{
	uint32_t step = r[0].expert_step, at = 0;
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && !same_experts(&r[i], &r[end]); end++)
			;
		/* runs follow each other; with a step, the residues do, and each has all that it can */
		if (r[i].expert_step != step || !step)
			return clv_error_set(err, "%s: ranks divide the experts in different ways", name);
		if (r[i].expert_first != at)
			return gap(name, "experts", at, r[i].expert_first, err);
		if (step > 1 && (r[i].expert_first >= experts ||
				 r[i].expert_count != (experts - r[i].expert_first + step - 1) / step))
			return clv_error_set(err,
					     "%s: of every %" PRIu32 "th expert from %" PRIu32 ", %" PRIu32 " are held",
					     name, step, r[i].expert_first, r[i].expert_count);
		at += step > 1 ? 1 : r[i].expert_count;
		if (!tile_axis(r + i, end - i, length, copies, name, err))
			return false;
	}
	uint32_t all = step > 1 ? (uint32_t)clv_min_u64(step, experts) : experts;
	return at == all || gap(name, "experts", at, all, err);
}

bool clv_coverage_tiles(struct clv_coverage_region *r, size_t count, uint32_t layers, uint32_t experts, uint64_t length,
			uint32_t copies, const char *name, struct clv_error *err)
{
	size_t n = 0;
	uint32_t at = 0;
	for (size_t i = 0; i < count; i++) /* without the empty ones */
		if (r[i].layer_end > r[i].layer_first && r[i].expert_count && r[i].count)
			r[n++] = r[i];
	if (n)
		qsort(r, n, sizeof(*r), in_order);
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && !same_layers(&r[i], &r[end]); end++)
			;
		if (r[i].layer_first != at)
			return gap(name, "layers", at, r[i].layer_first, err);
		at = r[i].layer_end;
		if (!tile_experts(r + i, end - i, experts, length, copies, name, err))
			return false;
	}
	return at == layers || gap(name, "layers", at, layers, err);
}

/* ---- the valid region, and tails ---- */

struct interval {
	uint64_t first, end;
};

/* Whether intervals, in order, fill 0 to `length` without an overlap. */
static bool fills(const struct interval *v, size_t n, uint64_t length)
{
	uint64_t at = 0;
	for (size_t i = 0; i < n; i++) {
		if (v[i].first != at || v[i].end < at)
			return false;
		at = v[i].end;
	}
	return at == length;
}

/* One rank's buffer of one expert: what is written along the divided axis, and what is not. */
static bool prove_buffer(const struct clv_shard *s, const struct clv_shard_set *set, const struct clv_shard_buffer *b,
			 const struct clv_shard_rank *r, uint64_t *tails, struct clv_error *err)
{
	struct clv_shard_span slice = clv_shard_slice(s, b, r->moe_tp_rank);
	struct clv_shard_span weights =
		clv_shard_slice(s, &set->buffers[0], r->moe_tp_rank); /* of w13: rows of the matrix */
	struct interval rows[4], cols[2];
	bool by_cols = b->split == CLV_SHARD_COLS;
	uint64_t unit = by_cols ? b->col_unit : b->row_unit;
	uint64_t written_rows = by_cols ? b->rows.logical : slice.count,
		 written_cols = by_cols ? slice.count : b->cols.logical;
	size_t n = 0;
	if (b->split != CLV_SHARD_WHOLE && (slice.first * unit != weights.first || slice.count * unit != weights.count))
		return clv_error_set(
			err,
			"%s: rank %" PRIu32 " has the weights from %" PRIu64 " on, %" PRIu64 " of them, but here "
			"what belongs to %" PRIu64 ", from %" PRIu64 " on",
			b->name, r->rank, weights.first, weights.count, slice.count * unit, slice.first * unit);
	for (uint32_t p = 0; p < b->parts; p++) {
		uint64_t base = p * b->rows.padded;
		rows[n++] = (struct interval){base, base + written_rows};
		rows[n++] = (struct interval){base + written_rows, base + b->rows.padded};
	}
	cols[0] = (struct interval){0, written_cols};
	cols[1] = (struct interval){written_cols, b->cols.padded};
	if (!fills(rows, n, b->parts * b->rows.padded) || !fills(cols, 2, b->cols.padded))
		return clv_error_set(
			err, "%s: rank %" PRIu32 " writes %" PRIu64 " x %" PRIu64 " into %" PRIu64 " x %" PRIu64,
			b->name, r->rank, written_rows, written_cols, b->rows.padded, b->cols.padded);
	/* Tails: the rest of the rows of a part, over all columns; the rest of the columns, of the rows that are written. */
	bool row_tail = written_cols && written_rows < b->rows.padded,
	     col_tail = written_rows && written_cols < b->cols.padded;
	uint64_t tail = b->parts * (b->rows.padded - written_rows) * b->cols.padded +
			b->parts * written_rows * (b->cols.padded - written_cols);
	if (clv_shard_valid(b, slice) + tail != clv_shard_elements(b))
		return clv_error_set(err, "%s: rank %" PRIu32 ": valid region and tails are not the buffer", b->name,
				     r->rank);
	if (tail && !s->config.zeroed)
		return clv_error_set(err, "%s: rank %" PRIu32 " has padding, and nothing makes it zeros", b->name,
				     r->rank);
	*tails = tail ? b->parts * (uint64_t)(row_tail + col_tail + (!written_rows || !written_cols)) : 0;
	return true;
}

/* ---- all of them ---- */

static bool grow(uint64_t *sum, uint64_t times, uint64_t each)
{
	uint64_t product;
	return !__builtin_mul_overflow(times, each, &product) && !__builtin_add_overflow(*sum, product, sum);
}

static bool prove_one(const struct clv_shard *s, uint32_t k, const struct clv_shard_buffer *b,
		      struct clv_coverage_region *regions, struct clv_coverage_figures *f, struct clv_error *err)
{
	const struct clv_shard_set *set = &s->sets[k];
	uint64_t length = b->split == CLV_SHARD_COLS ? b->cols.logical : b->rows.logical,
		 bits = clv_dtype_bits(b->dtype);
	uint64_t valid_bits = 0;
	bool fits = true;
	*f = (struct clv_coverage_figures){.name = b->name, .set = k, .copies = b->copies};
	f->elements = (uint64_t)set->layers * s->model->experts * b->parts * b->rows.logical * b->cols.logical;
	for (uint32_t rank = 0; rank < s->world; rank++) {
		struct clv_shard_rank r;
		uint64_t tails = 0, times;
		clv_shard_rank(s, rank, &r);
		struct clv_shard_span slice = clv_shard_slice(s, b, r.moe_tp_rank);
		times = (uint64_t)r.moe_layers[k] * r.expert_count;
		regions[rank] = (struct clv_coverage_region){r.layer_first,  r.layer_end, r.expert_first, r.expert_step,
							     r.expert_count, slice.first, slice.count};
		if (!prove_buffer(s, set, b, &r, &tails, err))
			return false;
		fits = fits && grow(&f->written, times, clv_shard_valid(b, slice)) &&
		       grow(&f->buffer_bytes, times, b->expert_bytes) && grow(&f->tails, times, tails) &&
		       grow(&valid_bits, times * bits, clv_shard_valid(b, slice));
	}
	if (!fits)
		return clv_error_set(err, "%s: all ranks together hold more bytes than 64 bits can count", b->name);
	f->bytes = f->elements / 8 * bits + f->elements % 8 * bits / 8;
	f->tail_bytes = f->buffer_bytes - valid_bits / 8;
	if (!clv_coverage_tiles(regions, s->world, s->model->layers, s->model->experts, length, b->copies, b->name,
				err))
		return false;
	return f->written == f->elements * b->copies ||
	       clv_error_set(err, "%s: %" PRIu64 " elements are written, of %" PRIu64 " x %" PRIu32, b->name,
			     f->written, f->elements, b->copies);
}

bool clv_coverage_prove(const struct clv_shard *s, struct clv_coverage *out, struct clv_error *err)
{
	struct clv_coverage_region *regions = calloc(s->world, sizeof(*regions));
	bool good = regions || clv_error_set(err, "host memory is out");
	memset(out, 0, sizeof(*out));
	out->ranks = s->world;
	for (uint32_t k = 0; good && k < CLV_SETS; k++) {
		for (uint32_t i = 0; good && i < s->sets[k].count; i++) {
			struct clv_coverage_figures *f = &out->buffers[out->count++], *sum = &out->sum;
			good = prove_one(s, k, &s->sets[k].buffers[i], regions, f, err);
			if (good &&
			    !(grow(&sum->elements, 1, f->elements) && grow(&sum->bytes, 1, f->bytes) &&
			      grow(&sum->written, 1, f->written) && grow(&sum->buffer_bytes, 1, f->buffer_bytes) &&
			      grow(&sum->tails, 1, f->tails) && grow(&sum->tail_bytes, 1, f->tail_bytes)))
				good = clv_error_set(err, "all ranks together hold more bytes than 64 bits can count");
		}
	}
	free(regions);
	return good;
}
