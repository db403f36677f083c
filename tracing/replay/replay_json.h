/* SPDX-License-Identifier: MIT
 *
 * replay_json: the JSON document of `cleave replay`; programs rely on its keys. Holds no state.
 */
#ifndef CLV_REPLAY_JSON_H
#define CLV_REPLAY_JSON_H

#include "../policies/torch_verify.h"
#include "fit.h"
#include "replay.h"

#include <stdio.h>

/* One policy's results. */
struct clv_replay_row {
	const char *policy;
	struct clv_replay_result result;
	bool fitted; /* a fit was asked for */
	struct clv_fit_result fit;
};

struct clv_replay_report {
	const struct clv_trace *trace;
	const struct clv_history *history;
	const struct clv_replay_row *rows;
	size_t row_count;
	const struct clv_verify_result *verify; /* NULL: not asked for */
};

/* reserved / live and fit / live; 0 where nothing was live. */
double clv_replay_over_live(const struct clv_history *history, uint64_t bytes);

/* The document on one stream, with a newline at the end. false: out of host memory, or the stream refused it. */
bool clv_replay_json_write(const struct clv_replay_report *report, FILE *out, struct clv_error *err);

/* Everything that a verification compares. */
bool clv_verify_matches(const struct clv_verify_result *v);

#endif
