/* SPDX-License-Identifier: MIT
 *
 * replay: puts the requests of one history to one policy and reports what happened; `fit` finds the smallest capacity.
 */
#ifndef CLV_REPLAY_H
#define CLV_REPLAY_H

#include "../policies/policy.h"

struct clv_replay_options {
	const char *policy;    /* "cleave", "cleave:growth:tight", "torch:max_split_size_mb:20", "torch:recorded", "direct" */
	uint64_t capacity;     /* 0: without limit */
	uint64_t event_lag_us;
	const uint32_t *empty_caches; /* events before which torch policies empty their cache, ascending */
	uint32_t empty_cache_count;
};

struct clv_replay_result {
	bool completed;
	uint64_t failed_at_event; /* index in the device's history, if not completed */
	char failure[1024];       /* why, for people */
	uint64_t skipped_ooms;
	struct clv_policy_stats stats;
	double wall_s;
	uint64_t requests; /* allocs and frees put to the policy */
};

/* false: the policy's name or settings are refused, or host memory is out. A request that fails is a result. */
bool clv_replay(const struct clv_trace *trace, const struct clv_history *history, const struct clv_replay_options *options,
		struct clv_replay_result *out, struct clv_error *err);

struct clv_fit_result {
	bool found;
	uint64_t fit_bytes;
	bool monotone;          /* the 16 grid steps above fit_bytes complete too */
	double modelled_driver_s; /* of the replay at fit_bytes */
	uint64_t runs;
};

/* Bisection on a grid of 2 MiB between peak live and the peak reserved without limit. options->capacity is not used. */
bool clv_fit(const struct clv_trace *trace, const struct clv_history *history, const struct clv_replay_options *options,
	     struct clv_fit_result *out, struct clv_error *err);

#endif
