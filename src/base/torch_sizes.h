/* SPDX-License-Identifier: MIT
 *
 * torch_sizes: what PyTorch's native allocator takes from the driver for a request, as far as it does not depend on settings
 * (c10/cuda/CUDACachingAllocator). Owns no state.
 */
#ifndef CLV_TORCH_SIZES_H
#define CLV_TORCH_SIZES_H

#include "base.h"

#define CLV_TORCH_MIN_BLOCK 512u
#define CLV_TORCH_SMALL_SIZE CLV_MIB /* the largest request of the small pool */
#define CLV_TORCH_SMALL_SEGMENT (2 * CLV_MIB)
#define CLV_TORCH_LARGE_SEGMENT (20 * CLV_MIB)   /* large_segment_size_mb, if it is not set */
#define CLV_TORCH_MIN_LARGE_ALLOC (10 * CLV_MIB) /* from here a segment is as large as its request */
#define CLV_TORCH_ROUND_LARGE (2 * CLV_MIB)

/* `rounded`: the request, to whole blocks. */
static inline uint64_t clv_torch_segment(uint64_t rounded, uint64_t large_segment)
{
	if (rounded <= CLV_TORCH_SMALL_SIZE)
		return CLV_TORCH_SMALL_SEGMENT;
	if (rounded < CLV_TORCH_MIN_LARGE_ALLOC)
		return large_segment;
	return clv_align_up(rounded, CLV_TORCH_ROUND_LARGE);
}

#endif
