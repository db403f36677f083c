/* SPDX-License-Identifier: MIT
 *
 * retry: the driver's other allocations. One that is out of memory is made again after each trim that gave something
 * back; nothing else changes. Owns no state.
 */
#include "preload.h"

/* A call that was out of memory is made again after each trim that gave something back. */
#define RETRIED(name, params, args)                                                                                    \
	EXPORTED CUresult name params                                                                                  \
	{                                                                                                              \
		const struct clv_cuda_api *real = clv_real();                                                          \
		if (!real->name)                                                                                       \
			return CUDA_ERROR_NOT_INITIALIZED;                                                             \
		CUresult r = real->name args;                                                                          \
		for (int step = 0; CLV_UNLIKELY(r == CUDA_ERROR_OUT_OF_MEMORY) && clv_trim_for_retry(&step);)          \
			r = real->name args;                                                                           \
		return r;                                                                                              \
	}
#define RETRIED_TWINS(name, params, args) RETRIED(name, params, args) RETRIED(name##_ptsz, params, args)
CLV_HOOKS_RETRIED(RETRIED, RETRIED_TWINS)
