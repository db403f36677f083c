/* SPDX-License-Identifier: MIT */
#include "timeline.h"
#include "timeline_needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((uint64_t)1 << 60)

void clv_timeline_config_init(struct clv_timeline_config *config)
{
	*config = (struct clv_timeline_config){.strategy = CLV_STRATEGY_PREALLOCATED};
}

/* ---- what is loaded ---- */

static uint32_t layers_of(const struct clv_model *m, uint32_t set)
{
	return set == CLV_SET_PLAIN ? m->plain_layers : m->moe_layers - m->plain_layers;
}

/* Layers that the quantization leaves out and the backend is not for: the loader's buffers, which nobody pads. */
static bool load_plain(struct clv_timeline *t, struct clv_timeline_kind *k, uint32_t set, struct clv_error *err)
{
	struct clv_shard_config parallel = *t->config.parallel;
	struct clv_shard shard;
	parallel.align_intermediate = parallel.align_hidden = 1;
	if (!clv_shard_make(&shard, t->config.model, &parallel, err))
		return false;
	if (t->config.rank >= shard.world)
		return clv_error_set(err, "rank %u is not among the %u ranks", t->config.rank, shard.world);
	clv_shard_rank(&shard, t->config.rank, &t->rank);
	for (uint32_t i = 0; i < shard.sets[set].count; i++) {
		const struct clv_shard_buffer *b = &shard.sets[set].buffers[i];
		if (t->rank.expert_count)
			k->loads[k->load_count++] =
				(struct clv_layers_load){b->name, t->rank.expert_count * b->expert_bytes, true};
	}
	return true;
}

static bool load_planned(struct clv_timeline *t, struct clv_timeline_kind *k, uint32_t set, struct clv_error *err)
{
	const struct clv_timeline_config *c = &t->config;
	if (!clv_backend_plan(&k->backend, c->backend, c->model, c->parallel, set, c->rank, err))
		return false;
	t->rank = k->backend.rank;
	k->planned = true;
	clv_backend_convert(&k->backend, &k->way);
	for (uint32_t i = 0; i < k->backend.source_count; i++) {
		const struct clv_backend_buffer *b = &k->backend.sources[i];
		if (b->bytes)
			k->loads[k->load_count++] = (struct clv_layers_load){b->name, b->bytes, k->way.stays[i]};
	}
	return true;
}

static bool load_kind(struct clv_timeline *t, uint32_t set, struct clv_error *err)
{
	struct clv_timeline_kind *k = &t->kinds[set];
	bool ours = set == CLV_SET_QUANT || t->config.backend->formats >> CLV_FORMAT_PLAIN & 1;
	if (!layers_of(t->config.model, set))
		return true;
	if (ours ? !load_planned(t, k, set, err) : !load_plain(t, k, set, err))
		return false;
	k->layers = t->rank.moe_layers[set];
	return true;
}

static bool list_layers(struct clv_timeline *t)
{
	const struct clv_model *m = t->config.model;
	t->layers = malloc((m->layers + 1) * sizeof(*t->layers));
	t->layer_kinds = malloc((m->layers + 1) * sizeof(*t->layer_kinds));
	if (!t->layers || !t->layer_kinds)
		return false;
	for (uint32_t i = t->rank.layer_first; i < t->rank.layer_end; i++) {
		if (!(m->layer[i] & CLV_LAYER_EXPERTS))
			continue;
		t->layers[t->layer_count] = i;
		t->layer_kinds[t->layer_count++] = m->layer[i] & CLV_LAYER_PLAIN ? CLV_SET_PLAIN : CLV_SET_QUANT;
	}
	return true;
}

/* ---- strategies ---- */

static bool converts(const struct clv_timeline_kind *k)
{
	return k->layers && k->planned && k->way.conversion.tensor_count;
}

static bool is_legal(const struct clv_timeline *t, enum clv_strategy strategy, struct clv_error *err)
{
	unsigned kinds = 0;
	for (uint32_t set = 0; set < CLV_SETS; set++) {
		if (!converts(&t->kinds[set]))
			continue;
		kinds++;
		if (!clv_conversion_legal(&t->kinds[set].way.conversion, strategy, err))
			return false;
	}
	return strategy != CLV_STRATEGY_PING_PONG || kinds < 2 ||
	       clv_error_set(err, "layers of two kinds are converted, and the sources of one do not fit the other");
}

static bool plan_strategy(struct clv_timeline *t, enum clv_strategy strategy, struct clv_error *err)
{
	struct clv_timeline_strategy *s = &t->strategies[strategy];
	struct clv_error why = {""};
	s->legal = is_legal(t, strategy, &why);
	if (!s->legal) {
		snprintf(s->why, sizeof(s->why), "%.255s", why.text);
		return strategy != t->config.strategy ||
		       clv_error_set(err, "%s: %s is not possible with %s: %s", t->config.model->path,
				     clv_strategy_name(strategy), t->config.backend->name, why.text);
	}
	for (uint32_t set = 0; set < CLV_SETS; set++) {
		struct clv_timeline_kind *k = &t->kinds[set];
		if (converts(k) && !clv_conversion_plan(&k->way.conversion, strategy, &k->plans[strategy], err))
			return false;
	}
	struct clv_layers l = clv_timeline_layers(t, strategy);
	uint64_t memory = t->config.gpu_memory;
	clv_layers_peak(&l, &s->peak);
	s->fits = !memory || s->peak.peak_bytes <= memory;
	s->headroom_bytes = memory ? (int64_t)(memory - s->peak.peak_bytes) : 0;
	return true;
}

struct clv_layers clv_timeline_layers(const struct clv_timeline *t, enum clv_strategy strategy)
{
	const struct clv_timeline_config *c = &t->config;
	struct clv_layers l = {.strategy = strategy,
			       .kind = t->layer_kinds,
			       .count = t->layer_count,
			       .other_weights = c->other_weights,
			       .kv_cache = c->kv_cache,
			       .workspace = c->workspace};
	for (uint32_t set = 0; set < CLV_SETS; set++) {
		const struct clv_timeline_kind *k = &t->kinds[set];
		l.kinds[set] = (struct clv_layers_kind){.loads = k->loads, .load_count = k->load_count};
		if (!converts(k))
			continue;
		l.kinds[set].conversion = &k->way.conversion;
		l.kinds[set].plan = &k->plans[strategy];
	}
	return l;
}

static void free_needs(struct clv_timeline *t)
{
	free(t->transients);
	free(t->reservations);
	free(t->warnings);
	t->transients = NULL;
	t->reservations = NULL;
	t->warnings = NULL;
	t->transient_count = t->reservation_count = t->warning_count = 0;
}

bool clv_timeline_choose(struct clv_timeline *t, enum clv_strategy strategy)
{
	free_needs(t);
	t->config.strategy = strategy;
	t->fits = t->strategies[strategy].fits;
	t->headroom_bytes = t->strategies[strategy].headroom_bytes;
	return clv_timeline_needs(t);
}

static bool make(struct clv_timeline *t, struct clv_error *err)
{
	for (uint32_t set = 0; set < CLV_SETS; set++)
		if (!load_kind(t, set, err))
			return false;
	if (!list_layers(t))
		return false;
	t->transients_known = true;
	for (uint32_t set = 0; set < CLV_SETS; set++)
		t->transients_known &= !converts(&t->kinds[set]) || t->kinds[set].way.known;
	for (unsigned s = 0; s < CLV_STRATEGIES; s++)
		if (!plan_strategy(t, (enum clv_strategy)s, err))
			return false;
	return clv_timeline_choose(t, t->config.strategy);
}

bool clv_timeline_make(struct clv_timeline *t, const struct clv_timeline_config *config, struct clv_error *err)
{
	memset(t, 0, sizeof(*t));
	t->config = *config;
	if (clv_max_u64(clv_max_u64(config->other_weights, config->kv_cache),
			clv_max_u64(config->workspace, config->gpu_memory)) > BYTES_MAX)
		return clv_error_set(
			err, "other weights, KV cache, workspace and GPU memory have %" PRIu64 " bytes each at most",
			BYTES_MAX);
	if (make(t, err))
		return true;
	clv_timeline_free(t);
	return false;
}

void clv_timeline_free(struct clv_timeline *t)
{
	for (uint32_t set = 0; set < CLV_SETS; set++)
		for (unsigned s = 0; s < CLV_STRATEGIES; s++)
			clv_conversion_plan_free(&t->kinds[set].plans[s]);
	free(t->layers);
	free(t->layer_kinds);
	free_needs(t);
	memset(t, 0, sizeof(*t));
}
