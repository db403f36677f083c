/* SPDX-License-Identifier: MIT */
#include "shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void clv_shard_config_init(struct clv_shard_config *config)
{
	*config = (struct clv_shard_config){
		.tp = 1, .dp = 1, .pcp = 1, .pp = 1, .align_intermediate = 1, .align_hidden = 1, .zeroed = true};
}

static uint64_t round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

/* ---- sizes ---- */

static bool check_numbers(struct clv_shard *s, struct clv_error *err)
{
	const struct clv_shard_config *c = &s->config;
	const struct {
		const char *name;
		uint32_t value, max;
	} numbers[] = {{"tp", c->tp, CLV_SHARD_WORLD_MAX},
		       {"dp", c->dp, CLV_SHARD_WORLD_MAX},
		       {"pcp", c->pcp, CLV_SHARD_WORLD_MAX},
		       {"pp", c->pp, CLV_SHARD_WORLD_MAX},
		       {"the alignment of the intermediate size", c->align_intermediate, CLV_SHARD_ALIGN_MAX},
		       {"the alignment of the hidden size", c->align_hidden, CLV_SHARD_ALIGN_MAX}};
	uint64_t world = 1;
	for (size_t i = 0; i < CLV_ARRAY_LEN(numbers); i++) {
		if (numbers[i].value < 1 || numbers[i].value > numbers[i].max)
			return clv_error_set(err, "%s is %" PRIu32 ", which is not within 1 to %" PRIu32,
					     numbers[i].name, numbers[i].value, numbers[i].max);
		world *= i < 4 ? numbers[i].value : 1; /* at most 2^32 */
		if (world > CLV_SHARD_WORLD_MAX)
			return clv_error_set(err,
					     "tp %" PRIu32 " x dp %" PRIu32 " x pcp %" PRIu32 " x pp %" PRIu32
					     " are more than %d ranks",
					     c->tp, c->dp, c->pcp, c->pp, CLV_SHARD_WORLD_MAX);
	}
	s->world = (uint32_t)world;
	return true;
}

/* "tp 8 x dp 4": the factors that are not 1 */
static const char *ranks_text(const struct clv_shard_config *c, char *buf, size_t len)
{
	int n = snprintf(buf, len, "tp %" PRIu32, c->tp);
	if (c->dp > 1)
		n += snprintf(buf + n, len - (size_t)n, " x dp %" PRIu32, c->dp);
	if (c->pcp > 1)
		snprintf(buf + n, len - (size_t)n, " x pcp %" PRIu32, c->pcp);
	return buf;
}

static bool divide_experts(const struct clv_shard *s, struct clv_error *err)
{
	const struct clv_model *m = s->model;
	char ranks[64];
	if (s->config.placement == CLV_PLACEMENT_ROUND_ROBIN && (s->moe_ep == 1 || m->expert_groups == 1))
		return clv_error_set(
			err,
			"%s: experts are placed in turn only under expert parallelism and in models with groups of "
			"experts (n_group), of which this has %" PRIu32,
			m->path, m->expert_groups);
	if (s->moe_ep > m->experts)
		return clv_error_set(err,
				     "%s: %" PRIu32 " experts cannot be divided among %" PRIu32
				     " ranks (%s): some would have none",
				     m->path, m->experts, s->moe_ep, ranks_text(&s->config, ranks, sizeof(ranks)));
	if (m->split_by_groups && m->experts % s->moe_ep) /* its loader would leave the last ones out */
		return clv_error_set(
			err, "%s: %" PRIu32 " experts do not divide by %" PRIu32 " ranks (%s), which gpt-oss needs",
			m->path, m->experts, s->moe_ep, ranks_text(&s->config, ranks, sizeof(ranks)));
	return true;
}

/* By how many ranks it could be divided, without a cut through what shares a scale: the next below and above. */
static const char *other_ranks(const struct clv_shard *s, char *buf, size_t len)
{
	const struct clv_model_quant *q = &s->model->quant;
	uint32_t size = s->model->intermediate, below = s->moe_tp - 1, above = s->moe_tp + 1;
	bool anywhere = s->model->split_by_groups; /* where the ranks differ, and nothing is cut */
	uint32_t rows = anywhere ? 1 : (uint32_t)clv_max_u64(q->block_rows, 1),
		 cols = anywhere ? 1 : (uint32_t)clv_max_u64(clv_max_u64(q->block_cols, q->group), 1);
#define DIVIDES(ranks) (size % (ranks) == 0 && size / (ranks) % rows == 0 && size / (ranks) % cols == 0)
	while (below && !DIVIDES(below))
		below--;
	while (above <= size && !DIVIDES(above))
		above++;
#undef DIVIDES
	if (below && above <= size)
		snprintf(buf, len, "; it does by %" PRIu32 " and %" PRIu32, below, above);
	else if (below || above <= size)
		snprintf(buf, len, "; it does by %" PRIu32, below ? below : above);
	else
		buf[0] = '\0';
	return buf;
}

static bool divide_intermediate(struct clv_shard *s, struct clv_error *err)
{
	const struct clv_model *m = s->model;
	const struct clv_shard_config *c = &s->config;
	struct clv_shard_extent *n = &s->intermediate;
	char ranks[64];
	n->logical = m->intermediate;
	if (n->logical % s->moe_tp) {
		char instead[64];
		return clv_error_set(err,
				     "%s: the intermediate size of an expert, %" PRIu64 ", does not divide by %" PRIu32
				     " ranks (%s)%s",
				     m->path, n->logical, s->moe_tp, ranks_text(c, ranks, sizeof(ranks)),
				     other_ranks(s, instead, sizeof(instead)));
	}
	n->raw = n->logical / s->moe_tp;
	s->passed_intermediate = n->logical;
	if (c->padding == CLV_PADDING_MODEL) {
		if (!m->intermediate_floor)
			return clv_error_set(err,
					     "%s: %s pads nothing itself: that rule is Kimi-K3's, or of a file with "
					     "min_moe_intermediate_per_partition",
					     m->path, m->name);
		if (s->moe_tp > 1 && n->raw < m->intermediate_floor)
			s->passed_intermediate = (uint64_t)m->intermediate_floor * s->moe_tp;
	}
	n->padded = round_up(s->passed_intermediate / s->moe_tp, c->align_intermediate);
	return true;
}

/* ---- buffers ---- */

/* How many elements of `unit` weights an extent has. Exact by then for what is logical. */
static struct clv_shard_extent in_units(struct clv_shard_extent e, uint32_t unit)
{
	return (struct clv_shard_extent){e.logical / unit, round_up(e.raw, unit) / unit,
					 round_up(e.padded, unit) / unit};
}

static bool add(struct clv_shard *s, struct clv_shard_set *set, struct clv_shard_buffer b, struct clv_error *err)
{
	unsigned bits = clv_dtype_bits(b.dtype);
	bool weights = b.role == CLV_ROLE_W13 || b.role == CLV_ROLE_W2;
	struct clv_shard_extent *split = b.split == CLV_SHARD_ROWS ? &b.rows : &b.cols;
	b.copies = b.split == CLV_SHARD_WHOLE ? s->moe_tp : 1;
	if (b.split != CLV_SHARD_WHOLE) { /* the most that a rank reads */
		split->raw = clv_shard_slice(s, &b, 0).count;
		if (split->raw > split->padded)
			return clv_error_set(err,
					     "%s: %s: a rank reads %" PRIu64 " of %" PRIu64 ", more than the %" PRIu64
					     " that its buffer has: the backend must round up to groups of %" PRIu32,
					     s->model->path, b.name, split->raw, split->logical, split->padded,
					     s->model->quant.group);
	}
	if ((weights && (b.cols.padded * bits % 8 || b.cols.logical * bits % 8 || b.cols.raw * bits % 8)) ||
	    clv_shard_elements(&b) * bits % 8)
		return clv_error_set(err,
				     "%s: %s: a row of %" PRIu64 " of %" PRIu64
				     " values of %u bits is no whole number of bytes",
				     s->model->path, b.name, b.cols.raw, b.cols.logical, bits);
	b.expert_bytes = clv_shard_elements(&b) * bits / 8;
	set->expert_bytes += b.expert_bytes;
	set->buffers[set->count++] = b;
	return true;
}

/* Weights and, where one stands for so many rows and columns (0: for all columns, and then of w2 not divided), scales. */
static bool add_matrices(struct clv_shard *s, struct clv_shard_set *set, enum clv_shard_role w13, const char *w13_name,
			 const char *w2_name, enum clv_model_dtype dtype, uint32_t row_unit, uint32_t col_unit,
			 struct clv_error *err)
{
	static const struct clv_shard_extent one = {1, 1, 1};
	const struct clv_shard_extent n = s->intermediate, k = s->hidden;
	struct clv_shard_buffer a = {.role = w13,
				     .name = w13_name,
				     .dtype = dtype,
				     .parts = clv_model_w13_parts(s->model),
				     .rows = in_units(n, row_unit),
				     .cols = col_unit ? in_units(k, col_unit) : one,
				     .row_unit = row_unit,
				     .col_unit = col_unit,
				     .split = CLV_SHARD_ROWS};
	struct clv_shard_buffer b = {.role = w13 - CLV_ROLE_W13 + CLV_ROLE_W2,
				     .name = w2_name,
				     .dtype = dtype,
				     .parts = 1,
				     .rows = in_units(k, row_unit),
				     .cols = col_unit ? in_units(n, col_unit) : one,
				     .row_unit = row_unit,
				     .col_unit = col_unit,
				     .split = col_unit ? CLV_SHARD_COLS : CLV_SHARD_WHOLE};
	return add(s, set, a, err) && add(s, set, b, err);
}

/* Scales of `rows` x `cols` weights: whether they divide. */
static bool whole_groups(const struct clv_shard *s, uint32_t rows, uint32_t cols, struct clv_error *err)
{
	const struct clv_model *m = s->model;
	const struct {
		const char *what;
		uint64_t size;
	} sizes[] = {{"the hidden size of routed experts", s->hidden.logical},
		     {"the intermediate size", s->intermediate.logical},
		     {"a rank's share of the intermediate size", m->split_by_groups ? 0 : s->intermediate.raw}};
	char ranks[64], share[96] = "";
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++) {
		if (sizes[i].size % rows == 0 && sizes[i].size % cols == 0)
			continue;
		if (i == 2)
			snprintf(share, sizeof(share), " with %s", ranks_text(&s->config, ranks, sizeof(ranks)));
		return clv_error_set(err,
				     "%s: %s is %" PRIu64 "%s, which would cut a %s of %" PRIu32 " that shares a scale",
				     m->path, sizes[i].what, sizes[i].size, share, rows > 1 ? "block" : "group",
				     clv_max_u64(rows, cols) == rows ? rows : cols);
	}
	return true;
}

static bool add_quant(struct clv_shard *s, struct clv_shard_set *set, struct clv_error *err)
{
	const struct clv_model_quant *q = &s->model->quant;
	uint32_t rows = q->block_rows ? q->block_rows : 1, cols = q->block_cols ? q->block_cols : q->group;
	if (q->act_order && s->moe_tp > 1)
		return clv_error_set(
			err,
			"%s: weights in the order of activations (desc_act, actorder), divided by tensor parallelism: "
			"no rule is known here",
			s->model->path);
	if (!whole_groups(s, rows, cols ? cols : 1, err) ||
	    !add_matrices(s, set, CLV_ROLE_W13, "w13_weight", "w2_weight", q->weight_dtype, 1, 1, err))
		return false;
	if (q->format == CLV_FORMAT_PLAIN || q->format == CLV_FORMAT_FP8_TENSOR)
		return true;
	if (!add_matrices(s, set, CLV_ROLE_W13_SCALE, "w13_weight_scale", "w2_weight_scale", q->scale_dtype, rows, cols,
			  err))
		return false;
	return !q->zero_points || add_matrices(s, set, CLV_ROLE_W13_ZERO, "w13_weight_zero_point",
					       "w2_weight_zero_point", q->weight_dtype, rows, cols, err);
}

static bool add_sets(struct clv_shard *s, struct clv_error *err)
{
	const struct clv_model *m = s->model;
	for (uint32_t k = 0; k < CLV_SETS; k++) {
		struct clv_shard_set *set = &s->sets[k];
		set->layers = k == CLV_SET_PLAIN ? m->plain_layers : m->moe_layers - m->plain_layers;
		if (!set->layers)
			continue;
		if (k == CLV_SET_PLAIN && m->split_by_groups)
			return clv_error_set(err, "%s: gpt-oss with some layers not quantized: no rule is known here",
					     m->path);
		if (k == CLV_SET_QUANT
			    ? !add_quant(s, set, err)
			    : !add_matrices(s, set, CLV_ROLE_W13, "w13_weight", "w2_weight", m->dtype, 1, 1, err))
			return false;
		if (m->bias && !add_matrices(s, set, CLV_ROLE_W13_BIAS, "w13_bias", "w2_bias", m->dtype, 1, 0, err))
			return false;
	}
	return true;
}

bool clv_shard_make(struct clv_shard *s, const struct clv_model *model, const struct clv_shard_config *config,
		    struct clv_error *err)
{
	memset(s, 0, sizeof(*s));
	s->model = model;
	s->config = *config;
	if (!check_numbers(s, err))
		return false;
	uint32_t flat = s->world / config->pp;
	s->moe_ep = config->expert_parallel ? flat : 1;
	s->moe_tp = config->expert_parallel ? 1 : flat;
	if (config->pp > model->layers)
		return clv_error_set(err, "%s: pp is %" PRIu32 ", but there are %" PRIu32 " layers", model->path,
				     config->pp, model->layers);
	s->hidden = (struct clv_shard_extent){model->routed_hidden, model->routed_hidden,
					      round_up(model->routed_hidden, config->align_hidden)};
	return divide_experts(s, err) && divide_intermediate(s, err) && add_sets(s, err);
}

/* ---- ranks ---- */

struct clv_shard_span clv_shard_slice(const struct clv_shard *s, const struct clv_shard_buffer *b, uint32_t moe_tp_rank)
{
	if (b->split == CLV_SHARD_WHOLE)
		return (struct clv_shard_span){0, b->rows.logical};
	uint64_t size = b->split == CLV_SHARD_ROWS ? b->rows.logical : b->cols.logical, share = size / s->moe_tp;
	if (s->model->split_by_groups) { /* whole groups; the last ranks have less, or nothing */
		uint32_t unit = b->split == CLV_SHARD_ROWS ? b->row_unit : b->col_unit;
		uint64_t group = s->model->quant.group / unit;
		share = (size / group + s->moe_tp - 1) / s->moe_tp * group;
	}
	uint64_t first = clv_min_u64(size, share * moe_tp_rank);
	return (struct clv_shard_span){first, clv_min_u64(share, size - first)};
}

uint64_t clv_shard_valid(const struct clv_shard_buffer *b, struct clv_shard_span slice)
{
	return b->parts * slice.count * (b->split == CLV_SHARD_COLS ? b->rows.raw : b->cols.raw);
}

/* What does not divide goes one each to the stages before the last, from the last but one backwards. */
static void stage(uint32_t layers, uint32_t pp, uint32_t pp_rank, uint32_t *first, uint32_t *end)
{
	uint32_t share = layers / pp, rest = layers % pp, at = 0;
	for (uint32_t r = 0; r <= pp_rank; r++) {
		bool more = r + 1 < pp && r + 1 + rest >= pp;
		*first = at;
		at += share + more;
	}
	*end = at;
}

static void experts(const struct clv_shard *s, struct clv_shard_rank *r)
{
	uint32_t share = s->model->experts / s->moe_ep, rest = s->model->experts % s->moe_ep, ep = r->moe_ep_rank;
	r->expert_count = share + (ep < rest);
	r->expert_first = ep * share + (uint32_t)clv_min_u64(ep, rest);
	r->expert_step = 1;
	if (s->config.placement == CLV_PLACEMENT_ROUND_ROBIN) {
		r->expert_first = ep;
		r->expert_step = s->moe_ep;
	}
}

void clv_shard_rank(const struct clv_shard *s, uint32_t rank, struct clv_shard_rank *r)
{
	const struct clv_shard_config *c = &s->config;
	memset(r, 0, sizeof(*r));
	r->rank = rank;
	r->tp_rank = rank % c->tp;
	r->pcp_rank = rank / c->tp % c->pcp;
	r->pp_rank = rank / c->tp / c->pcp % c->pp;
	r->dp_rank = rank / c->tp / c->pcp / c->pp;
	uint32_t flat = (r->dp_rank * c->pcp + r->pcp_rank) * c->tp + r->tp_rank;
	r->moe_tp_rank = s->moe_tp > 1 ? flat : 0;
	r->moe_ep_rank = s->moe_ep > 1 ? flat : 0;
	stage(s->model->layers, c->pp, r->pp_rank, &r->layer_first, &r->layer_end);
	for (uint32_t l = r->layer_first; l < r->layer_end; l++)
		if (s->model->layer[l] & CLV_LAYER_EXPERTS)
			r->moe_layers[s->model->layer[l] & CLV_LAYER_PLAIN ? CLV_SET_PLAIN : CLV_SET_QUANT]++;
	experts(s, r);
	for (uint32_t k = 0; k < CLV_SETS; k++) {
		const struct clv_shard_set *set = &s->sets[k];
		uint64_t times = (uint64_t)r->moe_layers[k] * r->expert_count, bits = 0;
		for (uint32_t i = 0; i < set->count; i++)
			bits += clv_shard_valid(&set->buffers[i],
						clv_shard_slice(s, &set->buffers[i], r->moe_tp_rank)) *
				clv_dtype_bits(set->buffers[i].dtype);
		r->set_bytes[k] = times * set->expert_bytes;
		r->set_valid_bytes[k] = times * (bits / 8);
		r->bytes += r->set_bytes[k];
		r->valid_bytes += r->set_valid_bytes[k];
	}
	r->padding_bytes = r->bytes - r->valid_bytes;
}
