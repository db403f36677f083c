/* SPDX-License-Identifier: MIT
 *
 * moments: what there is to say of one moment: sums, holes, culprits, and of a failure why. Owns nothing between calls.
 */
#ifndef CLV_REPORT_MOMENTS_H
#define CLV_REPORT_MOMENTS_H

#include "state.h"
#include "timeline.h"

/* Looks at the state at each stop in turn, in a second pass, and fills in the device's moments. False with an error: out of host
 * memory. */
bool clv_moments_look(struct clv_report_device *d, struct clv_state *s, const struct clv_timeline *t,
		      const struct clv_report_options *options, struct clv_error *err);

#endif
