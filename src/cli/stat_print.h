/* SPDX-License-Identifier: MIT
 *
 * stat_print: an answer of a process as people and programs read it. Owns nothing.
 */
#ifndef CLV_STAT_PRINT_H
#define CLV_STAT_PRINT_H

#include "../live/gather.h"

#include <jansson.h>
#include <stdio.h>

/* What happened between two answers, a second. */
struct clv_stat_rates {
	double seconds, driver_calls;
	struct {
		double allocs, frees;
	} devices[CLV_STAT_DEVICES]; /* as in the later view */
};

/* False: they are not two of the same heap, or not one after the other. */
bool clv_stat_rates(const struct clv_stat_view *before, const struct clv_stat_view *after, struct clv_stat_rates *out);

/* `rates` may be NULL: nothing is known. */
void clv_stat_text(const struct clv_stat_view *view, const struct clv_stat_rates *rates, FILE *out);

/* NULL: out of host memory. */
json_t *clv_stat_json(const struct clv_stat_view *view, const struct clv_stat_rates *rates);

#endif
