/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

const char *clv_plan_owner_name(enum clv_plan_owner owner)
{
	static const char *const names[] = {"nobody", "backend", "model"};
	return names[owner];
}

/* ---- which kind of layers ---- */

/* Those that are quantized, unless there are none. */
static uint32_t set_of(const struct clv_model *m)
{
	return m->plain_layers == m->moe_layers ? CLV_SET_PLAIN : CLV_SET_QUANT;
}

/* The layers that a quantization leaves out, as they are loaded: nothing is padded by a backend. */
static bool kept_shard(const struct clv_plan *p, struct clv_shard *s, struct clv_error *err)
{
	struct clv_shard_config c = *p->config.timeline.parallel;
	c.align_intermediate = c.align_hidden = 1;
	c.zeroed = c.padding == CLV_PADDING_MODEL;
	return clv_shard_make(s, p->config.timeline.model, &c, err);
}

static bool any_kept(const struct clv_plan *p)
{
	const struct clv_model *m = p->config.timeline.model;
	return p->set == CLV_SET_QUANT && m->plain_layers;
}

/* ---- one rank ---- */

static void add_up(struct clv_plan_rank *r)
{
	for (uint32_t i = 0; i < r->layer.destination_count; i++) {
		const struct clv_backend_buffer *b = &r->layer.destinations[i];
		if (b->kind == CLV_BUFFER_WEIGHT || b->kind == CLV_BUFFER_SCALE)
			r->layer_bytes += b->bytes;
		else
			r->other_bytes += b->bytes;
	}
	for (uint32_t i = 0; i < r->layer.source_count; i++)
		if (r->layer.sources[i].kind == CLV_BUFFER_SCALAR)
			r->scalar_bytes += r->layer.sources[i].bytes;
}

static void measure_padding(const struct clv_plan *p, struct clv_plan_rank *r)
{
	const struct clv_shard *s = &r->layer.destination_shard;
	struct clv_plan_padding *pad = &r->padding;
	uint64_t layers = r->layer.rank.moe_layers[p->set];
	pad->valid_bytes = layers * r->layer.valid_bytes;
	pad->padding_bytes = layers * r->layer.padding_bytes;
	pad->layout_bytes = layers * r->layer.layout_bytes;
	pad->passed = s->passed_intermediate;
	if (s->config.padding == CLV_PADDING_MODEL)
		pad->owner = CLV_OWNER_MODEL;
	else
		pad->owner = r->layer.backend->pads == CLV_PADS_NOBODY ? CLV_OWNER_NOBODY : CLV_OWNER_BACKEND;
}

static uint64_t weights_of(const struct clv_plan *p, const struct clv_plan_rank *r)
{
	return r->layer.rank.moe_layers[p->set] * r->layer_bytes + clv_plan_kept_layers(p, r) * r->kept_layer_bytes;
}

/* What it would be if the other of model and backend padded, where there is a rule for that. */
static void measure_other(const struct clv_plan *p, struct clv_plan_rank *r)
{
	const struct clv_timeline_config *c = &p->config.timeline;
	struct clv_shard_config parallel = *c->parallel;
	struct clv_plan_rank other = {.kept_layer_bytes = r->kept_layer_bytes};
	parallel.padding = parallel.padding == CLV_PADDING_MODEL ? CLV_PADDING_BACKEND : CLV_PADDING_MODEL;
	if (!clv_backend_plan(&other.layer, c->backend, c->model, &parallel, p->set, r->rank, NULL))
		return;
	add_up(&other);
	r->padding.other_padded = other.layer.destination_shard.intermediate.padded;
	r->padding.other_weights_bytes = weights_of(p, &other);
}

static bool make_rank(struct clv_plan *p, struct clv_plan_rank *r, struct clv_error *err)
{
	struct clv_timeline_config c = p->config.timeline;
	c.rank = r->rank;
	if (!clv_backend_plan(&r->layer, c.backend, c.model, c.parallel, p->set, r->rank, err))
		return false;
	if (any_kept(p)) {
		struct clv_shard kept;
		if (!kept_shard(p, &kept, err))
			return false;
		r->kept_layer_bytes = kept.sets[CLV_SET_PLAIN].expert_bytes * r->layer.rank.expert_count;
	}
	add_up(r);
	r->weights_bytes = weights_of(p, r);
	measure_padding(p, r);
	measure_other(p, r);
	return clv_timeline_make(&r->timeline, &c, err);
}

/* ---- which ranks ---- */

static bool alike(const struct clv_shard_rank *a, const struct clv_shard_rank *b)
{
	return a->moe_layers[CLV_SET_QUANT] == b->moe_layers[CLV_SET_QUANT] &&
	       a->moe_layers[CLV_SET_PLAIN] == b->moe_layers[CLV_SET_PLAIN] && a->expert_count == b->expert_count &&
	       a->valid_bytes == b->valid_bytes;
}

/* Ranks have as many layers as their stage and as many experts as the rest leaves: few are different. */
static bool find_ranks(struct clv_plan *p, const struct clv_shard *s, struct clv_error *err)
{
	uint32_t rank = p->config.timeline.rank;
	bool all = rank == CLV_PLAN_ALL_RANKS;
	struct clv_shard_rank *found = malloc((all ? p->world : 1) * sizeof(*found));
	if (all)
		p->like = malloc(p->world * sizeof(*p->like));
	bool ok = found && (!all || p->like);
	for (uint32_t i = 0; ok && i < (all ? p->world : 1); i++) {
		struct clv_shard_rank r;
		uint32_t k = 0;
		clv_shard_rank(s, all ? i : rank, &r);
		while (k < p->rank_count && !alike(&found[k], &r))
			k++;
		if (k == p->rank_count)
			found[p->rank_count++] = r;
		if (all)
			p->like[i] = k;
	}
	p->ranks = ok ? calloc(p->rank_count, sizeof(*p->ranks)) : NULL;
	for (uint32_t k = 0; p->ranks && k < p->rank_count; k++)
		p->ranks[k].rank = found[k].rank;
	for (uint32_t i = 0; p->ranks && i < (all ? p->world : 1); i++)
		p->ranks[all ? p->like[i] : 0].count++;
	free(found);
	return p->ranks || clv_error_set(err, "out of host memory");
}

/* ---- which strategy ---- */

/* The most that any rank needs under a strategy; UINT64_MAX: it is not for all of them. */
static uint64_t peak_of(const struct clv_plan *p, unsigned strategy)
{
	uint64_t peak = 0;
	for (uint32_t k = 0; k < p->rank_count; k++) {
		const struct clv_timeline_strategy *s = &p->ranks[k].timeline.strategies[strategy];
		if (!s->legal)
			return UINT64_MAX;
		peak = clv_max_u64(peak, s->peak.peak_bytes);
	}
	return peak;
}

/* The one with the least peak; what engines do if no other needs less. */
static bool choose(struct clv_plan *p, struct clv_error *err)
{
	unsigned best = CLV_STRATEGY_PREALLOCATED;
	for (unsigned s = 0; s < CLV_STRATEGIES; s++)
		if (peak_of(p, s) < peak_of(p, best))
			best = s;
	if (best == CLV_STRATEGY_PREALLOCATED)
		return true;
	p->config.timeline.strategy = (enum clv_strategy)best;
	for (uint32_t k = 0; k < p->rank_count; k++)
		if (!clv_timeline_choose(&p->ranks[k].timeline, (enum clv_strategy)best))
			return clv_error_set(err, "out of host memory");
	return true;
}

/* ---- the proof ---- */

static bool disprove(struct clv_plan *p, const char *name, const char *why)
{
	return clv_error_set(&p->disproved, "%s: %s", name, why);
}

/* The plan's buffer for a buffer of the shard. */
static const struct clv_backend_buffer *converted_buffer(const struct clv_backend_layer *l,
							 const struct clv_shard_buffer *of)
{
	static const enum clv_backend_kind kinds[] = {CLV_BUFFER_WEIGHT, CLV_BUFFER_SCALE, CLV_BUFFER_ZERO,
						      CLV_BUFFER_BIAS};
	for (uint32_t i = 0; i < l->destination_count; i++)
		if (l->destinations[i].w2 == (of->role >= CLV_ROLE_W2) &&
		    l->destinations[i].kind == kinds[of->role % CLV_ROLE_W2])
			return &l->destinations[i];
	return NULL;
}

static bool add_buffer(struct clv_plan *p, const struct clv_shard_buffer *of, const struct clv_backend_layer *l,
		       struct clv_plan_sum *sum)
{
	const struct clv_backend_buffer *b = converted_buffer(l, of);
	uint64_t layers = l->rank.moe_layers[l->set];
	if (!b)
		return disprove(p, of->name, "it is not among the buffers after the conversion");
	if (b->layout_bytes && !b->zeroed)
		return disprove(p, b->name, "the layout rounds up, and nothing makes that zeros");
	if (b->bytes - b->layout_bytes < b->valid_bytes)
		return disprove(p, b->name, "what the checkpoint fills does not go into it");
	sum->bytes += layers * b->bytes;
	sum->valid_bytes += layers * b->valid_bytes;
	sum->layout_bytes += layers * b->layout_bytes;
	sum->tail_bytes += layers * (b->bytes - b->layout_bytes - b->valid_bytes);
	return true;
}

/* The buffers of the plan beside those of the shard. A layout may hold an element in more bytes, but then all of them. */
static bool prove_layouts(struct clv_plan *p, const struct clv_shard *s, struct clv_plan_proof *proof)
{
	const struct clv_timeline_config *c = &p->config.timeline;
	const struct clv_coverage *cover = &proof->coverage;
	for (uint32_t rank = 0; rank < p->world; rank++) {
		struct clv_backend_layer l;
		if (!clv_backend_plan(&l, c->backend, c->model, c->parallel, proof->set, rank, &p->disproved))
			return false;
		for (uint32_t i = 0, of = 0; i < cover->count; i++)
			if (cover->buffers[i].set == proof->set &&
			    !add_buffer(p, &s->sets[proof->set].buffers[of++], &l, &proof->sums[i]))
				return false;
	}
	for (uint32_t i = 0; i < cover->count; i++) {
		const struct clv_coverage_figures *f = &cover->buffers[i];
		const struct clv_plan_sum *sum = &proof->sums[i];
		if (f->set == proof->set &&
		    (unsigned __int128)sum->valid_bytes * f->tail_bytes !=
			    (unsigned __int128)sum->tail_bytes * (f->buffer_bytes - f->tail_bytes))
			return disprove(p, f->name,
					"valid bytes and tails after the conversion are not as the shard has them");
	}
	return true;
}

static void prove(struct clv_plan *p, const struct clv_shard *s, uint32_t set, bool converted)
{
	struct clv_plan_proof *proof = &p->proofs[p->proof_count++];
	proof->set = set;
	proof->converted = converted;
	if (p->disproved.text[0])
		return;
	if ((!clv_coverage_prove(s, &proof->coverage, &p->disproved) || (converted && !prove_layouts(p, s, proof))) &&
	    !p->disproved.text[0])
		clv_error_set(&p->disproved, "out of host memory");
}

static bool prove_all(struct clv_plan *p, struct clv_error *err)
{
	const struct clv_backend_layer *l = &p->ranks[0].layer;
	struct clv_shard kept;
	prove(p, &l->source_shard, p->set, false);
	prove(p, &l->destination_shard, p->set, true);
	if (!any_kept(p))
		return true;
	if (!kept_shard(p, &kept, err))
		return false;
	prove(p, &kept, CLV_SET_PLAIN, false);
	return true;
}

bool clv_plan_make(struct clv_plan *p, const struct clv_plan_config *config, struct clv_error *err)
{
	memset(p, 0, sizeof(*p));
	p->config = *config;
	struct clv_timeline_config *c = &p->config.timeline;
	c->strategy_assumed = !p->config.strategy_given;
	if (c->strategy_assumed)
		c->strategy = CLV_STRATEGY_PREALLOCATED;
	p->set = set_of(c->model);
	struct clv_backend_layer probe;
	uint32_t rank = c->rank == CLV_PLAN_ALL_RANKS ? 0 : c->rank;
	bool ok = clv_backend_plan(&probe, c->backend, c->model, c->parallel, p->set, rank, err);
	p->world = ok ? probe.source_shard.world : 0;
	ok = ok && find_ranks(p, &probe.source_shard, err);
	for (uint32_t k = 0; ok && k < p->rank_count; k++)
		ok = make_rank(p, &p->ranks[k], err);
	ok = ok && (p->config.strategy_given || choose(p, err)) && (!p->config.coverage || prove_all(p, err));
	if (!ok) {
		clv_plan_free(p);
		return false;
	}
	p->fits = true;
	for (uint32_t k = 0; k < p->rank_count; k++) {
		const struct clv_timeline *t = &p->ranks[k].timeline, *worst = &clv_plan_worst(p)->timeline;
		enum clv_strategy s = c->strategy;
		if (t->strategies[s].peak.peak_bytes > worst->strategies[s].peak.peak_bytes)
			p->worst = k;
		p->fits &= t->fits;
	}
	return true;
}

void clv_plan_free(struct clv_plan *p)
{
	for (uint32_t k = 0; p->ranks && k < p->rank_count; k++)
		clv_timeline_free(&p->ranks[k].timeline);
	free(p->ranks);
	free(p->like);
	memset(p, 0, sizeof(*p));
}
