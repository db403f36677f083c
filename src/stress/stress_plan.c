/* SPDX-License-Identifier: MIT
 *
 * Every phase draws its own sizes, its own pressure and its own disturbances, so that a long run meets combinations
 * that nobody wrote down.
 */
#include "stress_internal.h"

#include <string.h>

static bool chance(struct clv_rng *rng, uint32_t permille)
{
	return clv_rng_below(rng, 1000) < permille;
}

/* 2^(a uniform number): as many sizes from 1 to 2 KiB as from 1 to 2 MiB. lo > 0. */
static uint64_t log_uniform(struct clv_rng *rng, uint64_t lo, uint64_t hi)
{
	unsigned top = clv_log2(hi);
	uint64_t base = (uint64_t)1 << clv_rng_range(rng, clv_log2(lo), top);
	uint64_t v = base + clv_rng_below(rng, base);
	return clv_min_u64(clv_max_u64(v, lo), hi);
}

void clv_stress_plan_round(struct stress_plan *plan, const struct clv_stress_config *config, struct clv_rng *rng)
{
	static const char *const settings[] = {
		"", "", "growth:tight", "cache:off", "frame:2MiB", "frame:64MiB", "growth:tight,cache:off",
	};
	static const uint64_t lags[] = {0, 0, 5 * 1000, 200 * 1000};
	plan->devices = chance(rng, 250) && config->streams >= CLV_STRESS_DEVICES ? CLV_STRESS_DEVICES : 1;
	if (config->cuda && plan->devices > (unsigned)config->cuda->devices)
		plan->devices = (unsigned)config->cuda->devices;
	plan->manual = chance(rng, 300);
	plan->event_lag_ns = lags[clv_rng_below(rng, CLV_ARRAY_LEN(lags))];
	plan->settings = settings[clv_rng_below(rng, CLV_ARRAY_LEN(settings))];
	if (config->settings)
		plan->settings = config->settings;
	plan->close_live = chance(rng, 250);
}

static void draw_mix(struct stress_phase *p, struct clv_rng *rng)
{
	/* a phase of one kind, or of several */
	if (chance(rng, 300)) {
		p->mix[clv_rng_below(rng, MIX_HUGE)] = 1;
		p->mix_sum = 1;
		return;
	}
	for (int i = 0; i < MIX_COUNT; i++) {
		p->mix[i] = i == MIX_HUGE      ? (uint32_t)clv_rng_below(rng, 3)
			    : chance(rng, 500) ? (uint32_t)clv_rng_below(rng, 100)
					       : 0;
		p->mix_sum += p->mix[i];
	}
	if (!p->mix_sum)
		p->mix[MIX_SMALL] = p->mix_sum = 1;
}

static void draw_ops(struct stress_phase *p, struct clv_rng *rng)
{
	static const struct {
		uint32_t least, most;
	} weights[OP_COUNT] = {
		[OP_CHURN] = {5000, 9000}, [OP_USE] = {200, 2500}, [OP_HAND] = {0, 600}, [OP_TIME] = {50, 1500},
		[OP_LOOK] = {50, 300},     [OP_STATS] = {0, 40},   [OP_DRAIN] = {0, 8},  [OP_TRIM] = {0, 12},
		[OP_LIMIT] = {0, 60},      [OP_DESTROY] = {0, 40}, [OP_CHECK] = {0, 4},
	};
	for (int i = 0; i < OP_COUNT; i++) {
		p->op[i] = (uint32_t)clv_rng_range(rng, weights[i].least, weights[i].most);
		p->op_sum += p->op[i];
	}
}

/* Rare failures of everything, or frequent ones of a few calls. */
static void draw_faults(struct clv_fault_config *f, struct clv_rng *rng)
{
	static const uint32_t rates[] = {0, 100, 1000, 10000, 100000, 500000};
	f->seed = clv_rng_next(rng);
	uint32_t all = rates[clv_rng_below(rng, 4)];
	for (int i = 0; i < CLV_CALL_COUNT; i++)
		f->chance_per_million[i] = chance(rng, 200) ? rates[clv_rng_below(rng, CLV_ARRAY_LEN(rates))] : all;
}

void clv_stress_plan_phase(struct stress_phase *p, const struct clv_stress_config *config, struct clv_rng *rng)
{
	memset(p, 0, sizeof(*p));
	draw_mix(p, rng);
	draw_ops(p, rng);
	uint64_t capacity = config->capacity;
	p->size_max = log_uniform(rng, 4 * CLV_MIB, capacity / 3);
	p->pair[0] = clv_align_up(p->size_max / 100 * 53, CLV_GRAIN);
	p->pair[1] = clv_align_up(p->size_max / 100 * 27, CLV_GRAIN);
	/* half of the phases work near the edge or beyond */
	uint64_t percent = chance(rng, 500) ? clv_rng_range(rng, 85, 115) : clv_rng_range(rng, 10, 85);
	p->target_bytes = capacity / 100 * percent / config->threads;
	p->target_blocks = (uint32_t)log_uniform(rng, 16, 4096);
	p->any_permille = chance(rng, 500) ? 0 : (uint32_t)clv_rng_below(rng, 300);
	p->other_permille = chance(rng, 300) ? 0 : (uint32_t)clv_rng_below(rng, 500);
	p->unwritten_permille = (uint32_t)clv_rng_below(rng, 100);
	p->wait_permille = (uint32_t)clv_rng_below(rng, 200);
	p->work_ns = log_uniform(rng, 1, 1000 * 1000);
	p->order = (enum stress_order)clv_rng_below(rng, 3);
	if (config->faults)
		draw_faults(&p->faults, rng);
}

uint64_t clv_stress_draw_size(const struct stress_phase *p, const struct clv_stress_config *config, struct clv_rng *rng)
{
	uint64_t pick = clv_rng_below(rng, p->mix_sum), jitter = clv_rng_below(rng, 3) * CLV_GRAIN;
	int mix = 0;
	while (pick >= p->mix[mix])
		pick -= p->mix[mix++];
	switch ((enum stress_mix)mix) {
	case MIX_TINY:
		return clv_rng_range(rng, 1, 512);
	case MIX_SMALL:
		return log_uniform(rng, 1, 32 * CLV_KIB);
	case MIX_EDGE: /* about the sizes of slots, and where slabs end */
		return clv_rng_range(rng, 1, 80) * CLV_GRAIN - 1 + clv_rng_below(rng, 3);
	case MIX_MEDIUM:
		return log_uniform(rng, 32 * CLV_KIB + 1, 2 * CLV_MIB);
	case MIX_PAGES:
		return clv_rng_range(rng, 1, p->size_max / (2 * CLV_MIB)) * 2 * CLV_MIB - CLV_GRAIN + jitter;
	case MIX_PAIR:
		return p->pair[clv_rng_below(rng, 2)];
	case MIX_HUGE:
		return chance(rng, 50) ? UINT64_MAX - clv_rng_below(rng, CLV_GIB)
				       : clv_rng_range(rng, config->capacity / 2, config->capacity + 4 * CLV_MIB);
	case MIX_LARGE:
	case MIX_COUNT:
		break;
	}
	return clv_rng_range(rng, 2 * CLV_MIB, p->size_max);
}
