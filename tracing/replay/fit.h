/* SPDX-License-Identifier: MIT
 *
 * fit: the smallest capacity of the device with which a policy completes a history. Holds no state between calls.
 */
#ifndef CLV_FIT_H
#define CLV_FIT_H

#include "replay.h"

#define CLV_FIT_GRID (2 * CLV_MIB)
#define CLV_FIT_STEPS_ABOVE 16 /* grid steps above the fit that are tried as well */

struct clv_fit_result {
	bool found; /* false: the history does not complete even without limit */
	uint64_t fit_bytes;
	bool monotone;            /* the 16 grid steps above fit_bytes complete too */
	double modelled_driver_s; /* of the replay at fit_bytes */
	uint64_t runs;
};

/* Bisection on a grid of 2 MiB between peak live and the peak reserved without limit. options->capacity is not used.
 * `unlimited` is the result of the replay without limit where the caller has it, else NULL. false as clv_replay. */
bool clv_fit(const struct clv_trace *trace, const struct clv_history *history, const struct clv_replay_options *options,
	     const struct clv_replay_result *unlimited, struct clv_fit_result *out, struct clv_error *err);

#endif
