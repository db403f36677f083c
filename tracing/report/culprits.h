/* SPDX-License-Identifier: MIT
 *
 * culprits: who pins the stranded bytes of one moment, ranked as report.h defines it. Owns what it gathers of that moment.
 */
#ifndef CLV_REPORT_CULPRITS_H
#define CLV_REPORT_CULPRITS_H

#include "state.h"

/* A piece of a live block at the moment. */
struct clv_pin {
	uint32_t begin; /* its rank in the plane */
	uint32_t group;
};

/* A frame at the moment, by address. */
struct clv_pinned_frame {
	uint32_t frame;        /* index in the plane */
	uint32_t first, count; /* of `members`: the groups that pin it */
	uint32_t left;         /* of them, those that were not taken away yet, a reservation counting as one */
	uint32_t mix;          /* exclusive or of these groups' numbers */
	bool reserved;         /* a reservation holds memory in it back */
};

struct clv_culprits {
	struct clv_pin *pins;
	size_t pin_count, pin_cap;
	struct clv_pinned_frame *frames;
	size_t frame_count, frame_cap;
	uint32_t *members; /* groups, frame by frame */
	size_t member_count, member_cap;
	struct clv_report_group *groups; /* those kept come first, in their order */
	size_t group_count, group_cap;
	uint32_t *order; /* by number of a group, its place in `groups` */
};

/* Gathers and ranks `top` groups of the state as it is. `now_us` is the moment. False: out of host memory; free it in any case. */
bool clv_culprits_find(struct clv_culprits *c, const struct clv_state *s, uint32_t top, uint64_t begin_us,
		       uint64_t now_us);
void clv_culprits_free(struct clv_culprits *c);

#endif
