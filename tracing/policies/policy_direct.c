/* SPDX-License-Identifier: MIT
 *
 * direct: each request is a frame of its own, made by the driver when it is asked for and given back when it is
 * freed. What a program pays that has no allocator at all: the least memory that frames of 2 MiB allow, and the most
 * driver calls.
 */
#include "../../src/base/size_text.h"
#include "../../src/driver/sim.h"
#include "policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define GRANULARITY (2 * CLV_MIB)
#define NO_SLOT UINT32_MAX

/* Addresses come in slots of a power of two, so that they can be used again without a search: one range of addresses is
 * reserved at a time, and a freed slot goes to the list of its size. Addresses are plenty. */
#define RANGE_BYTES ((uint64_t)1 << 40)
#define SLOT_CLASSES 64

struct slot {
	uint64_t addr;
	clv_handle handle; /* 0: no frame */
	uint32_t frames;   /* the frame's size in granules */
	uint32_t next;     /* in the list of free slots: the address outlives the block */
};

struct direct {
	struct clv_policy base;
	struct clv_driver *driver;
	uint64_t capacity;
	uint64_t range_next, range_end;
	uint64_t held, peak;
	struct {
		uint64_t size;
		enum clv_result result;
		enum clv_call call;
	} failure;
	uint32_t free_slots[SLOT_CLASSES];
	uint32_t count;
	struct slot slots[]; /* by block id */
};

static struct direct *self_of(struct clv_policy *policy)
{
	return CLV_CONTAINER_OF(policy, struct direct, base);
}

static bool refused(struct direct *d, enum clv_call call, enum clv_result result, uint64_t size)
{
	d->failure.call = call;
	d->failure.result = result;
	d->failure.size = size;
	return false;
}

static unsigned slot_class(uint32_t frames)
{
	return frames > 1 ? clv_log2(frames - 1) + 1 : 0;
}

static bool take_address(struct direct *d, uint32_t frames, uint64_t *addr)
{
	unsigned class = slot_class(frames);
	uint32_t slot = d->free_slots[class];
	if (slot != NO_SLOT) {
		d->free_slots[class] = d->slots[slot].next;
		*addr = d->slots[slot].addr;
		return true;
	}
	uint64_t bytes = GRANULARITY << class;
	if (d->range_end - d->range_next < bytes) {
		uint64_t range = clv_max_u64(bytes, RANGE_BYTES), base = 0;
		enum clv_result r = d->driver->address_reserve(d->driver, &base, range, GRANULARITY);
		if (r != CLV_OK)
			return refused(d, CLV_CALL_address_reserve, r, range);
		d->range_next = base;
		d->range_end = base + range;
	}
	*addr = d->range_next;
	d->range_next += bytes;
	return true;
}

static bool direct_alloc(struct clv_policy *policy, uint32_t block, uint64_t size, uint32_t stream, uint16_t pool)
{
	struct direct *d = self_of(policy);
	struct clv_driver *driver = d->driver;
	struct slot *slot = &d->slots[block];
	if (size == 0)
		return true;
	if (size > (uint64_t)UINT32_MAX * GRANULARITY)
		return refused(d, CLV_CALL_create, CLV_OUT_OF_MEMORY, size);
	uint64_t bytes = clv_align_up(size, GRANULARITY);
	clv_handle handle = 0;
	enum clv_result r = driver->create(driver, &handle, bytes, 0);
	if (r != CLV_OK)
		return refused(d, CLV_CALL_create, r, bytes);
	uint64_t addr = 0;
	uint32_t frames = (uint32_t)(bytes / GRANULARITY);
	if (!take_address(d, frames, &addr)) {
		driver->release(driver, handle);
		return false;
	}
	/* With a fresh handle and a fresh address these two fail only on a broken driver; the replay ends then, and
	 * closing the driver gives everything back. */
	r = driver->map(driver, addr, bytes, 0, handle);
	if (r != CLV_OK)
		return refused(d, CLV_CALL_map, r, bytes);
	r = driver->set_access(driver, addr, bytes, 0);
	if (r != CLV_OK)
		return refused(d, CLV_CALL_set_access, r, bytes);
	*slot = (struct slot){.addr = addr, .handle = handle, .frames = frames, .next = NO_SLOT};
	d->held += bytes;
	d->peak = clv_max_u64(d->peak, d->held);
	return true;
}

static void direct_free(struct clv_policy *policy, uint32_t block, uint32_t stream)
{
	struct direct *d = self_of(policy);
	struct slot *slot = &d->slots[block];
	if (!slot->handle)
		return; /* a request of size 0 */
	uint64_t bytes = slot->frames * GRANULARITY;
	d->driver->unmap(d->driver, slot->addr, bytes);
	d->driver->release(d->driver, slot->handle);
	slot->handle = 0;
	d->held -= bytes;
	unsigned class = slot_class(slot->frames);
	slot->next = d->free_slots[class];
	d->free_slots[class] = block;
}

static void direct_stats(struct clv_policy *policy, struct clv_policy_stats *out)
{
	struct direct *d = self_of(policy);
	/* Nothing is stranded: what a frame holds beyond its request is rounding, and no hole. */
	*out = (struct clv_policy_stats){.held_bytes = d->held, .peak_reserved_bytes = d->peak};
	d->driver->counts(d->driver, &out->driver);
}

static void direct_explain(struct clv_policy *policy, char *buf, size_t len)
{
	struct direct *d = self_of(policy);
	char size[32], held[32], capacity[32];
	clv_size_print(d->failure.size, size, sizeof(size));
	clv_size_print(d->held, held, sizeof(held));
	clv_size_print(d->capacity, capacity, sizeof(capacity));
	snprintf(buf, len, "%s of %s was refused (%s) with %s in frames%s%s", clv_call_name(d->failure.call), size,
		 clv_result_name(d->failure.result), held, d->capacity ? " on a device of " : "",
		 d->capacity ? capacity : "");
}

static void direct_close(struct clv_policy *policy)
{
	struct direct *d = self_of(policy);
	d->driver->close(d->driver);
	free(d);
}

static const struct clv_policy_ops direct_ops = {
	.alloc = direct_alloc,
	.free_completed = direct_free,
	.stats = direct_stats,
	.explain = direct_explain,
	.close = direct_close,
};

struct clv_policy *clv_policy_direct(const struct clv_policy_config *config, const char *settings,
				     struct clv_error *err)
{
	if (settings[0]) {
		clv_error_set(err, "the policy direct has no settings, '%.200s' makes no sense", settings);
		return NULL;
	}
	uint32_t count = config->history->block_count;
	struct direct *d = calloc(1, sizeof(*d) + count * sizeof(d->slots[0]));
	/* Without limit a capacity that no history reaches: sizes are 64-bit, and the simulated device counts in
	 * them too. */
	struct clv_sim_config sim = {.capacity = config->capacity ? config->capacity : (uint64_t)1 << 62,
				     .clock_free = true};
	if (d)
		d->driver = clv_sim_open(&sim);
	if (!d || !d->driver) {
		free(d);
		clv_error_set(err, "direct: out of host memory");
		return NULL;
	}
	d->base.ops = &direct_ops;
	d->capacity = config->capacity;
	d->count = count;
	for (size_t i = 0; i < SLOT_CLASSES; i++)
		d->free_slots[i] = NO_SLOT;
	return &d->base;
}
