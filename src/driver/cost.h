/* SPDX-License-Identifier: MIT
 *
 * cost: the one table of what driver calls cost, measured on an H200; used by `sim` and by the baselines of `cleave replay`.
 */
#ifndef CLV_COST_H
#define CLV_COST_H

#include "driver.h"

/* Nanoseconds of one call over `bytes` in `handles` handles (set_access, unmap: of the whole range; elsewhere 1). Between
 * measured sizes by linear interpolation, beyond them by the last slope. */
uint64_t clv_cost_ns(enum clv_call call, uint64_t bytes, uint64_t handles);

#endif
