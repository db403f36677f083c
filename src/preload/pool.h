/* SPDX-License-Identifier: MIT
 *
 * pool: stream-ordered memory. The default pool of each device is served from the heap while it is the device's current
 * one; every other pool is the driver's. The driver keeps what is set of the default pool (attributes, access), and its
 * statistics are ours and the driver's together.
 *
 * State: which pools are default and current, per device; atomic, asked of the driver at first use and followed from then.
 */
#ifndef CLV_POOL_HOOKS_H
#define CLV_POOL_HOOKS_H

#include "preload.h"

/* The device whose default pool this is; -1: none. */
int clv_pool_device(const struct clv_process *p, CUmemoryPool pool);

/* Is the default pool the device's current one? */
bool clv_pool_is_current(int device);

/* A block of ours, by whatever call it is freed, in the order of a stream (NULL: of none). False: it is not ours. */
bool clv_pool_free(const struct clv_process *p, CUdeviceptr ptr, const struct clv_cuda_stream *s, CUresult *result);

#endif
