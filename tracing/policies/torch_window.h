/* SPDX-License-Identifier: MIT
 *
 * torch_window: what PyTorch's allocator held before the first event of a history. A history that was recorded from the
 * start gives nothing; one whose beginning is lost (a full ring buffer, a late start) is walked against its final state.
 * Owned by the caller.
 */
#ifndef CLV_TORCH_WINDOW_H
#define CLV_TORCH_WINDOW_H

#include "torch_settings.h"

/* A native segment, or pages that are mapped in a row. */
struct clv_window_range {
	uint64_t addr, size, stream;
	uint32_t pool; /* index in the history's pools */
	bool small, expandable;
};

struct clv_window_block {
	uint64_t addr, size, requested, stream;
	uint32_t block; /* dense id */
	bool pending;   /* its free was requested before the window */
};

/* The addresses of an expandable segment that had mapped pages: from the lowest address ever mapped in it. */
struct clv_window_reserved {
	uint64_t base, stream;
	uint32_t pool;
	bool small;
};

struct clv_torch_window {
	struct clv_window_range *ranges; /* sorted by address */
	uint32_t range_count;
	struct clv_window_block *blocks; /* sorted by address */
	uint32_t block_count;
	struct clv_window_reserved *reserved;
	uint32_t reserved_count;
	/* The size of a block that was there before and is freed in the window can be uncertain by the tail that PyTorch does
	 * not split off. From this event on no such block is left. */
	uint64_t exact_from;
};

/* False: out of host memory. */
bool clv_torch_window_init(struct clv_torch_window *w, const struct clv_trace *trace, const struct clv_history *history,
			   const struct clv_torch_settings *settings, uint64_t device_total, struct clv_error *err);
void clv_torch_window_free(struct clv_torch_window *w);

/* By pool of the history, whether its segments come from an allocator of its own: under expandable segments they are native
 * all the same. Recorded without expandable segments no pool shows it. NULL: out of host memory. Free with clv_mem_free. */
bool *clv_torch_custom_pools(const struct clv_history *history, bool expandable);

#endif
