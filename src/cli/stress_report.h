/* SPDX-License-Identifier: MIT
 *
 * stress_report: what `cleave stress` shows of a run and of profiles, for people and as JSON. Holds no state.
 */
#ifndef CLV_STRESS_REPORT_H
#define CLV_STRESS_REPORT_H

#include "../stress/profile.h"
#include "../stress/stress.h"

#include <stdio.h>

void clv_stress_text(const struct clv_stress_config *config, const struct clv_stress_result *result, FILE *out);
bool clv_stress_json(const struct clv_stress_config *config, const struct clv_stress_result *result, FILE *out);

/* One profile, and the same requests put to each policy. */
struct clv_profile_report {
	const struct clv_profile *profile;
	struct clv_trace *trace;
	uint64_t live_at_end;
	struct clv_profile_row {
		const char *policy;
		struct clv_replay_result result;
	} * rows;
	size_t row_count;
};

void clv_profile_text(const struct clv_profile_report *report, FILE *out);

/* All of them as one document; false: it could not be made or written. */
bool clv_profile_json(const struct clv_profile_report *reports, size_t count, uint64_t seed, uint64_t capacity,
		      FILE *out);

#endif
