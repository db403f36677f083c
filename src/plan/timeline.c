/* SPDX-License-Identifier: MIT */
#include "timeline.h"

#include <string.h>

void clv_timeline_config_init(struct clv_timeline_config *config)
{
	*config = (struct clv_timeline_config){.strategy = CLV_STRATEGY_PREALLOCATED};
}

const char *clv_timeline_phase_name(enum clv_timeline_phase phase)
{
	static const char *const names[] = {"load", "convert", "serve"};
	return names[phase];
}

static bool make_kind(struct clv_timeline *t, uint32_t set, struct clv_error *err)
{
	struct clv_timeline_kind *k = &t->kinds[set];
	const struct clv_timeline_config *c = &t->config;
	if (!(set == CLV_SET_PLAIN ? c->model->plain_layers : c->model->moe_layers - c->model->plain_layers))
		return true;
	if (!clv_backend_plan(&k->backend, c->backend, c->model, c->parallel, set, c->rank, err))
		return false;
	t->rank = k->backend.rank;
	k->layers = t->rank.moe_layers[set];
	k->converted = k->layers > 0;
	return true;
}

bool clv_timeline_make(struct clv_timeline *t, const struct clv_timeline_config *config, struct clv_error *err)
{
	memset(t, 0, sizeof(*t));
	t->config = *config;
	for (uint32_t set = 0; set < CLV_SETS; set++)
		if (!make_kind(t, set, err))
			return false;
	return true;
}

void clv_timeline_free(struct clv_timeline *t)
{
	for (uint32_t set = 0; set < CLV_SETS; set++)
		for (unsigned s = 0; s < CLV_STRATEGIES; s++)
			clv_conversion_plan_free(&t->kinds[set].plans[s]);
	memset(t, 0, sizeof(*t));
}

bool clv_timeline_walk(const struct clv_timeline *timeline, enum clv_strategy strategy, clv_timeline_visit *visit, void *arg)
{
	(void)timeline, (void)strategy, (void)visit, (void)arg;
	return true;
}
