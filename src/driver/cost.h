/* SPDX-License-Identifier: MIT
 *
 * cost: the one table of what driver calls cost, measured on an H200; used by `sim` and by the baselines of `cleave
 * replay`.
 */
#ifndef CLV_COST_H
#define CLV_COST_H

#include "driver.h"

/* Nanoseconds of one call over `bytes` in `handles` handles (set_access, unmap: of the whole range; elsewhere 1, or
 * the sum of so many equal calls). Between measured sizes by linear interpolation, above them by the last slope,
 * below them the smallest. The driver charges by handle, so that many handles cost what each of them would alone. */
uint64_t clv_cost_ns(enum clv_call call, uint64_t bytes, uint64_t handles);

/* set_access over handles that have that access already, which is far cheaper. */
uint64_t clv_cost_access_again_ns(uint64_t handles);

/* create or mem_alloc that finds the device full. */
uint64_t clv_cost_out_of_memory_ns(enum clv_call call);

/* mem_alloc or mem_free of at most 1 MiB out of a page of the device that holds others too; the one that opens or
 * empties a page costs what clv_cost_ns says. */
uint64_t clv_cost_small_ns(enum clv_call call);

#endif
