/* SPDX-License-Identifier: MIT
 *
 * torch_force: puts the model of PyTorch's allocator into a given state: at the start of a history whose beginning is lost,
 * and after a mismatch. Nothing here asks or tells the source. The model needs its index by address (config.find).
 */
#ifndef CLV_TORCH_FORCE_H
#define CLV_TORCH_FORCE_H

#include "torch_allocator.h"

struct clv_torch_place {
	uint64_t stream;
	uint32_t pool;
	bool small;
};

/* Who is told of the owner of each block in use that goes with its segment. */
struct clv_torch_lost {
	void (*fn)(void *ctx, uint32_t owner);
	void *ctx;
};

/* A native segment, all free. What the model had at these addresses is dropped first. */
bool clv_torch_put_segment(struct clv_torch *m, const struct clv_torch_place *place, uint64_t addr, uint64_t size,
			   const struct clv_torch_lost *lost);

/* The addresses of an expandable segment, nothing mapped. False where the model already has something. */
bool clv_torch_put_expandable(struct clv_torch *m, const struct clv_torch_place *place, uint64_t base, uint64_t size);

/* Maps or unmaps whole pages of it. Answers false, and changes nothing, if they are not unmapped (free) there. */
bool clv_torch_put_mapped(struct clv_torch *m, const struct clv_torch_place *place, uint64_t addr, uint64_t size);
bool clv_torch_put_unmapped(struct clv_torch *m, uint64_t addr, uint64_t size);

/* An allocated block of exactly `size` bytes. If the model believes that the address is the tail of a block in use, that one
 * is shortened. CLV_TORCH_NONE: something else is there. */
uint32_t clv_torch_put_block(struct clv_torch *m, uint64_t addr, uint64_t size,
			     const struct clv_torch_request *request);

/* The size that PyTorch would give a request at this address, at the front of what is free there; 0: nothing is. */
uint64_t clv_torch_size_at(const struct clv_torch *m, uint64_t addr, const struct clv_torch_request *request);

/* The segment that contains the address goes, whatever is in it. */
bool clv_torch_drop_segment(struct clv_torch *m, uint64_t addr, const struct clv_torch_lost *lost);

#endif
