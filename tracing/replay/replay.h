/* SPDX-License-Identifier: MIT
 *
 * replay: puts the requests of one history to one policy and reports what happened; `fit` finds the smallest capacity.
 * Holds no state between calls and takes no lock: a policy belongs to the thread that replays.
 */
#ifndef CLV_REPLAY_H
#define CLV_REPLAY_H

#include "../policies/policy.h"

/* Where a long replay is; of a fit, which run. */
struct clv_replay_progress {
	const char *policy;
	uint64_t done, total; /* events of this run */
	uint64_t capacity;    /* of this run; 0: without limit */
	uint64_t run;         /* 0: a replay; from 1: the n-th run of a fit */
};

struct clv_replay_result {
	bool completed;
	uint64_t failed_at_event; /* index in the device's history, if not completed; an initial block that fails: 0 */
	char failure[1024];       /* why, for people */
	uint64_t skipped_ooms;
	struct clv_policy_stats stats;
	double wall_s;     /* of the requests and frees; opening and closing the policy are left out */
	uint64_t events;   /* events of the history gone through, the failing one included */
	uint64_t requests; /* allocs and frees put to the policy, those of initial blocks included */
};

struct clv_replay_options {
	const char
		*policy; /* "cleave", "cleave:growth:tight", "torch:max_split_size_mb:20", "torch:recorded", ... */
	uint64_t capacity; /* 0: without limit */
	uint64_t event_lag_us;
	const uint32_t *empty_caches; /* events before which torch policies empty their cache, ascending */
	uint32_t empty_cache_count;
	const struct clv_policy_device *device; /* NULL: a simulated one */

	void (*progress)(void *arg, const struct clv_replay_progress *p); /* may be NULL */
	void *progress_arg;

	/* How to open the policy by name; NULL: clv_policy_open. */
	struct clv_policy *(*open)(const struct clv_policy_config *config, const char *name, struct clv_error *err);
};

/* false: the policy's name or settings are refused, or host memory is out. A request that fails is a result. */
bool clv_replay(const struct clv_trace *trace, const struct clv_history *history,
		const struct clv_replay_options *options, struct clv_replay_result *out, struct clv_error *err);

/* The monotonic clock that wall_s is measured by. */
double clv_replay_seconds(void);

#endif
