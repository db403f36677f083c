/* SPDX-License-Identifier: MIT
 *
 * plan_text: a plan for people. Owns nothing.
 */
#ifndef CLV_PLAN_TEXT_H
#define CLV_PLAN_TEXT_H

#include "../plan/plan.h"

#include <stdio.h>

/* `written`: the file that the plan was written to, for the hint what to do next, or NULL. */
void clv_plan_text(const struct clv_plan *plan, const char *written, FILE *out);

#endif
