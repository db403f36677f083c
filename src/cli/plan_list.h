/* SPDX-License-Identifier: MIT
 *
 * plan_list: the backends that `cleave plan` knows, as a table for people and as JSON. Owns nothing.
 */
#ifndef CLV_PLAN_LIST_H
#define CLV_PLAN_LIST_H

#include <jansson.h>
#include <stdio.h>

void clv_plan_list_text(FILE *out);

/* NULL if host memory is out. */
json_t *clv_plan_list_json(void);

#endif
