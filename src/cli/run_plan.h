/* SPDX-License-Identifier: MIT
 *
 * run_plan: what a plan of `cleave plan` reserves, as settings of the library. Owns no state.
 */
#ifndef CLV_RUN_PLAN_H
#define CLV_RUN_PLAN_H

#include "../base/base.h"
#include "../base/error.h"

struct clv_run_plan {
	char *settings; /* "reserve:...,reserve:...", from malloc; "" if nothing is reserved */
	unsigned count; /* of reservations in it */
	unsigned small; /* that are not: of sizes that come from slabs */
	uint64_t bytes; /* of all slots */
};

/* False with the reason, which names the file and the member. */
bool clv_run_plan_read(struct clv_run_plan *p, const char *path, struct clv_error *err);

#endif
