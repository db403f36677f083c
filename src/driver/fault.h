/* SPDX-License-Identifier: MIT
 *
 * fault: wraps another driver and makes chosen calls fail before they reach it.
 */
#ifndef CLV_FAULT_H
#define CLV_FAULT_H

#include "driver.h"

struct clv_fault_config {
	uint64_t seed;
	uint32_t chance_per_million[CLV_CALL_COUNT]; /* of each call; 0: never */
	uint64_t fail_at;                            /* the n-th eligible call (from 1) fails, counted over all calls; 0: none */
	bool fail_after;                             /* with fail_at: every eligible call from it on fails */
	bool eligible[CLV_CALL_COUNT];               /* which calls fail_at counts; all false: all calls that can fail */
	enum clv_result result;                      /* what a failing call answers; CLV_OK: OUT_OF_MEMORY where the real call
	                                                can run out of memory, else FAILED */
};

/* Does not own `inner`: closing the wrapper leaves it open. With `config` NULL nothing fails. NULL: host memory is out. */
struct clv_driver *clv_fault_open(struct clv_driver *inner, const struct clv_fault_config *config);

void clv_fault_set(struct clv_driver *fault, const struct clv_fault_config *config); /* restarts the count */
void clv_fault_pause(struct clv_driver *fault, bool paused); /* calls go through, and are not counted */
uint64_t clv_fault_seen(struct clv_driver *fault);     /* eligible calls so far */
uint64_t clv_fault_injected(struct clv_driver *fault); /* failures made so far */

/* The first call since open, whether paused or not, that the inner driver itself answered with INVALID or NOT_SUPPORTED: a
 * mistake of whoever called. NULL: none was. */
const char *clv_fault_refused(struct clv_driver *fault);

#endif
