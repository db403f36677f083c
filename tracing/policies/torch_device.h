/* SPDX-License-Identifier: MIT
 *
 * torch_device: device memory for the model of PyTorch's allocator where no recording says what the driver did: a capacity,
 * addresses that are handed out downwards, and what the calls would have cost. Owned by one policy.
 */
#ifndef CLV_TORCH_DEVICE_H
#define CLV_TORCH_DEVICE_H

#include "../../src/driver/driver.h"
#include "torch_allocator.h"

struct clv_torch_device {
	uint64_t capacity; /* bytes; 0: without limit */
	uint64_t used;
	uint64_t lowest; /* addresses from here up were handed out */
	struct clv_call_counts counts;
};

void clv_torch_device_init(struct clv_torch_device *device, uint64_t capacity);
struct clv_torch_source clv_torch_device_source(struct clv_torch_device *device);

/* The calls of the driver, and their cost, of one segment: made, given back; or mapped and unmapped in pages. */
void clv_torch_count_alloc(struct clv_call_counts *counts, uint64_t size);
void clv_torch_count_free(struct clv_call_counts *counts, uint64_t size);
void clv_torch_count_map(struct clv_call_counts *counts, uint64_t size, uint64_t page);
void clv_torch_count_unmap(struct clv_call_counts *counts, uint64_t size, uint64_t page);

#endif
