/* SPDX-License-Identifier: MIT
 *
 * timeline_needs: what follows from a timeline's strategies: transients, reservations and warnings. Part of timeline.h's
 * making; owns nothing, no lock.
 */
#ifndef CLV_TIMELINE_NEEDS_H
#define CLV_TIMELINE_NEEDS_H

#include "timeline.h"

/* Fills the three lists of a timeline whose strategies are planned. False: host memory is out. */
bool clv_timeline_needs(struct clv_timeline *timeline);

#endif
