/* SPDX-License-Identifier: MIT
 *
 * plan_json: a plan as one JSON document, which `cleave run --plan` and the library load. Owns nothing.
 *
 * Keys that a reader does not know are to be skipped; `version` changes when one that is there changes its meaning. Sizes are
 * whole bytes. What stands at the top is of the rank that needs the most; with all ranks, `ranks` has each that differs.
 */
#ifndef CLV_PLAN_JSON_H
#define CLV_PLAN_JSON_H

#include "../plan/plan.h"

#include <jansson.h>

#define CLV_PLAN_JSON_VERSION 1

/* NULL if host memory is out. */
json_t *clv_plan_json(const struct clv_plan *plan);

#endif
