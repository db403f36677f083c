/* SPDX-License-Identifier: MIT
 *
 * Plain allocations as the driver makes them: above half a granule each has granules of its own; smaller ones share a
 * page of one granule, first fit at 512 B, and the page goes back when it is empty.
 */
#include "sim_internal.h"

struct sim_page {
	struct sim_page *next, *prev; /* of the device's pages, the newest first */
	struct sim_range *range;
	uint32_t grains, used;
	uint32_t largest; /* no free run is longer, in grains */
	/* grain i belongs to the block that begins at owner[i] - 1; 0 is free. length[i] counts where a block
	 * begins. */
	uint32_t *owner, *length;
	uint32_t arrays[];
};

static void page_unlink(struct sim *sim, struct sim_page *page)
{
	if (page->prev)
		page->prev->next = page->next;
	else
		sim->devices[page->range->device].pages = page->next;
	if (page->next)
		page->next->prev = page->prev;
}

static bool page_take(struct sim_page *page, uint32_t count, uint32_t *start)
{
	uint32_t largest = 0;
	for (uint32_t i = 0; i < page->grains;) {
		if (page->owner[i]) {
			i += page->length[i];
			continue;
		}
		uint32_t run = 1;
		while (run < count && i + run < page->grains && !page->owner[i + run])
			run++;
		if (run == count) {
			*start = i;
			page->length[i] = count;
			page->used += count;
			for (uint32_t k = i; k < i + count; k++)
				page->owner[k] = i + 1;
			return true;
		}
		largest = run > largest ? run : largest;
		i += run;
	}
	page->largest = largest; /* runs were counted up to `count` - 1 at least, and none has `count` */
	return false;
}

static struct sim_range *range_new(struct sim *sim, uint64_t bytes, int device)
{
	struct sim_range *r = clv_sim_range_new(sim, bytes, sim->config.granularity, device);
	if (!r)
		return NULL;
	r->plain = true;
	if (!clv_sim_backing_plain(sim, r)) {
		clv_sim_range_free(sim, r, false);
		return NULL;
	}
	return r;
}

static struct sim_page *page_new(struct sim *sim, int device)
{
	uint64_t bytes = sim->config.granularity;
	uint32_t grains = (uint32_t)(bytes / CLV_GRAIN);
	struct sim_range *r = range_new(sim, bytes, device);
	if (!r)
		return NULL;
	struct sim_page *page = clv_sim_host_alloc(sim, sizeof(*page) + 2 * (size_t)grains * sizeof(uint32_t));
	if (!page) {
		clv_sim_range_free(sim, r, false);
		return NULL;
	}
	r->page = page;
	page->range = r;
	page->grains = page->largest = grains;
	page->owner = page->arrays;
	page->length = page->arrays + grains;
	struct sim_page **head = &sim->devices[device].pages;
	page->next = *head;
	if (*head)
		(*head)->prev = page;
	*head = page;
	clv_sim_range_link(sim, r);
	return page;
}

static enum clv_result small_alloc(struct sim *sim, uint64_t *addr, uint64_t size, int device, uint64_t *ns)
{
	uint32_t count = (uint32_t)((size + CLV_GRAIN - 1) / CLV_GRAIN), start;
	struct sim_page *page = sim->devices[device].pages;
	*ns = clv_cost_small_ns(CLV_CALL_mem_alloc);
	while (page && (page->largest < count || !page_take(page, count, &start)))
		page = page->next;
	if (!page) {
		if (!clv_sim_device_take(sim, device, sim->config.granularity)) {
			*ns = clv_cost_out_of_memory_ns(CLV_CALL_mem_alloc);
			return CLV_OUT_OF_MEMORY;
		}
		page = page_new(sim, device);
		if (!page) {
			sim->devices[device].used -= sim->config.granularity;
			*ns = 0;
			return CLV_FAILED;
		}
		page_take(page, count, &start);
		*ns = clv_cost_ns(CLV_CALL_mem_alloc, size, 1);
	}
	*addr = page->range->addr + start * CLV_GRAIN;
	return CLV_OK;
}

static enum clv_result large_alloc(struct sim *sim, uint64_t *addr, uint64_t size, int device, uint64_t *ns)
{
	*ns = clv_cost_out_of_memory_ns(CLV_CALL_mem_alloc);
	if (size > sim->config.capacity)
		return CLV_OUT_OF_MEMORY;
	uint64_t bytes = clv_align_up(size, sim->config.granularity);
	if (!clv_sim_device_take(sim, device, bytes))
		return CLV_OUT_OF_MEMORY;
	struct sim_range *r = range_new(sim, bytes, device);
	if (!r) {
		sim->devices[device].used -= bytes;
		*ns = 0;
		return CLV_FAILED;
	}
	clv_sim_range_link(sim, r);
	*addr = r->addr;
	*ns = clv_cost_ns(CLV_CALL_mem_alloc, size, 1);
	return CLV_OK;
}

enum clv_result clv_sim_mem_alloc(struct clv_driver *self, uint64_t *addr, uint64_t size, int device)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_mem_alloc);
	if (!addr || !size || device < 0 || device >= self->devices)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	if (clv_sim_breaks_capture(sim))
		return clv_sim_leave(sim, CLV_CAPTURING, 0);
	uint64_t ns;
	enum clv_result r = size <= sim->config.granularity / 2 ? small_alloc(sim, addr, size, device, &ns)
								: large_alloc(sim, addr, size, device, &ns);
	sim->plain_live += r == CLV_OK;
	return clv_sim_leave(sim, r, ns);
}

/* The range in which a plain allocation begins at `addr`. */
static struct sim_range *plain_at(struct sim *sim, uint64_t addr)
{
	struct sim_range *r = clv_sim_range_at(sim, addr);
	if (!r || !r->plain)
		return NULL;
	uint64_t offset = addr - r->addr;
	if (!r->page)
		return offset ? NULL : r;
	return offset % CLV_GRAIN == 0 && r->page->owner[offset / CLV_GRAIN] == offset / CLV_GRAIN + 1 ? r : NULL;
}

static uint64_t small_free(struct sim *sim, struct sim_range *r, uint64_t addr)
{
	struct sim_page *page = r->page;
	uint32_t start = (uint32_t)((addr - r->addr) / CLV_GRAIN), count = page->length[start];
	for (uint32_t k = start; k < start + count; k++)
		page->owner[k] = 0;
	page->largest = page->grains; /* found out by the next search */
	page->used -= count;
	if (page->used)
		return clv_cost_small_ns(CLV_CALL_mem_free);
	page_unlink(sim, page);
	sim->devices[r->device].used -= r->size;
	clv_sim_range_free(sim, r, true);
	return clv_cost_ns(CLV_CALL_mem_free, count * CLV_GRAIN, 1);
}

enum clv_result clv_sim_mem_free(struct clv_driver *self, uint64_t addr)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_mem_free);
	if (!addr) /* as measured: no error, and no wait */
		return clv_sim_leave(sim, CLV_OK, 0);
	/* Waiting drops the lock, hence the second look. */
	if (!plain_at(sim, addr) || !clv_sim_wait_device(sim))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	struct sim_range *r = plain_at(sim, addr);
	if (!r)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	uint64_t ns;
	if (r->page) {
		ns = small_free(sim, r, addr);
	} else {
		ns = clv_cost_ns(CLV_CALL_mem_free, r->size, 1);
		sim->devices[r->device].used -= r->size;
		clv_sim_range_free(sim, r, true);
	}
	sim->plain_live--;
	return clv_sim_leave(sim, CLV_OK, ns);
}

uint64_t clv_sim_plain_around(const struct sim *sim, const struct sim_range *r, uint64_t addr, uint64_t *start)
{
	*start = r->addr;
	if (!r->page)
		return r->size;
	uint32_t owner = r->page->owner[(addr - r->addr) / CLV_GRAIN];
	if (!owner)
		return 0;
	*start = r->addr + (owner - 1) * CLV_GRAIN;
	return r->page->length[owner - 1] * CLV_GRAIN;
}

uint64_t clv_sim_plain_bytes(const struct sim *sim, const struct sim_range *r, uint64_t addr)
{
	uint64_t start, size = clv_sim_plain_around(sim, r, addr, &start);
	return size ? start + size - addr : 0;
}
