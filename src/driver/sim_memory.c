/* SPDX-License-Identifier: MIT
 *
 * The rules are those that driver.h states and that a GPU was seen to keep. Driver 580 is laxer in places, and nothing
 * may count on that: unmap and set_access also take a range with a gap inside, unmap one where nothing is mapped, map
 * one that begins in a reservation and ends behind it, and a handle that was released while a mapping keeps it. (With a
 * handle of which nothing is left it crashes.) All of these are refused here.
 */
#define _GNU_SOURCE
#include "sim_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Addresses on x86-64 GPUs share the 47 bits of user space. They are handed out upwards and begin again at the
 * bottom only when the top is reached: an address that was given back stays dead for long, and a stale use of it is
 * noticed. */
#define LAST_ADDRESS ((uint64_t)1 << 47)

/* Tables from here on are mapped, so that only the part that is used takes memory. */
#define LARGE_TABLE (64 * CLV_KIB)

/* The treap of ranges. */

static struct sim_range *treap_find(const struct sim *sim, uint64_t addr)
{
	struct sim_range *n = sim->ranges;
	while (n) {
		if (addr < n->addr)
			n = n->left;
		else if (addr - n->addr >= n->size)
			n = n->right;
		else
			return n;
	}
	return NULL;
}

/* The lowest range that ends above `addr`. */
static struct sim_range *treap_above(const struct sim *sim, uint64_t addr)
{
	struct sim_range *n = sim->ranges, *best = NULL;
	while (n) {
		if (n->addr + n->size > addr) {
			best = n;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

static void treap_insert(struct sim *sim, struct sim_range *range)
{
	struct sim_range **at = &sim->ranges;
	range->priority = clv_mix64(range->addr);
	while (*at && (*at)->priority >= range->priority)
		at = range->addr < (*at)->addr ? &(*at)->left : &(*at)->right;
	/* The subtree here is split at the new address into the new node's two sides. */
	struct sim_range *rest = *at, **below = &range->left, **above = &range->right;
	while (rest) {
		if (rest->addr < range->addr) {
			*below = rest;
			below = &rest->right;
			rest = rest->right;
		} else {
			*above = rest;
			above = &rest->left;
			rest = rest->left;
		}
	}
	*below = *above = NULL;
	*at = range;
}

static void treap_remove(struct sim *sim, struct sim_range *range)
{
	struct sim_range **at = &sim->ranges;
	while (*at != range)
		at = range->addr < (*at)->addr ? &(*at)->left : &(*at)->right;
	struct sim_range *a = range->left, *b = range->right;
	while (a && b) {
		if (a->priority >= b->priority) {
			*at = a;
			at = &a->right;
			a = a->right;
		} else {
			*at = b;
			at = &b->left;
			b = b->left;
		}
	}
	*at = a ? a : b;
	if (sim->last == range)
		sim->last = NULL;
}

struct sim_range *clv_sim_range_at(struct sim *sim, uint64_t addr)
{
	struct sim_range *r = sim->last;
	if (r && addr - r->addr < r->size)
		return r;
	r = treap_find(sim, addr);
	if (r)
		sim->last = r;
	return r;
}

/* The reservation that contains all of [addr, addr + size), which is a whole number of granules, at least one. */
static struct sim_range *reservation_of(struct sim *sim, uint64_t addr, uint64_t size)
{
	uint64_t mask = sim->config.granularity - 1;
	if (!size || (addr & mask) || (size & mask))
		return NULL;
	struct sim_range *r = clv_sim_range_at(sim, addr);
	return r && !r->plain && size <= r->size - (addr - r->addr) ? r : NULL;
}

/* Next fit: goes up from the cursor, and once around. A gap of one granule stays behind every range. 0: no room. */
static uint64_t find_addresses(const struct sim *sim, uint64_t size, uint64_t align)
{
	uint64_t gap = sim->config.granularity;
	if (size > LAST_ADDRESS - gap || align > LAST_ADDRESS)
		return 0;
	for (int turn = 0; turn < 2; turn++) {
		uint64_t at = clv_align_up(turn ? SIM_FIRST_ADDRESS : sim->cursor, align);
		while (at <= LAST_ADDRESS - gap - size) {
			/* one granule below `at` must be free as well */
			const struct sim_range *next = treap_above(sim, at - gap);
			if (!next || next->addr >= at + size + gap)
				return at;
			at = clv_align_up(next->addr + next->size + gap, align);
		}
	}
	return 0;
}

struct sim_range *clv_sim_range_new(struct sim *sim, uint64_t size, uint64_t align, int device)
{
	uint64_t addr = find_addresses(sim, size, align);
	if (!addr)
		return NULL;
	struct sim_range *r = clv_sim_host_alloc(sim, sizeof(*r));
	if (!r)
		return NULL;
	r->addr = addr;
	r->size = size;
	r->device = device;
	return r;
}

void clv_sim_range_link(struct sim *sim, struct sim_range *r)
{
	sim->cursor = r->addr + r->size + sim->config.granularity;
	treap_insert(sim, r);
}

static bool table_new(struct sim *sim, struct sim_range *r)
{
	r->granule_bytes = (size_t)(r->size >> sim->granularity_log2) * sizeof(*r->granule);
	if (r->granule_bytes < LARGE_TABLE) {
		r->granule = clv_sim_host_alloc(sim, r->granule_bytes);
		return r->granule;
	}
	void *p = mmap(NULL, r->granule_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);
	if (p == MAP_FAILED)
		return false;
	r->granule = p;
	return true;
}

void clv_sim_range_free(struct sim *sim, struct sim_range *r, bool linked)
{
	if (linked)
		treap_remove(sim, r);
	clv_sim_backing_unreserve(sim, r);
	if (r->granule_bytes < LARGE_TABLE)
		free(r->granule);
	else if (r->granule)
		munmap(r->granule, r->granule_bytes);
	free(r->page);
	free(r);
}

enum clv_result clv_sim_address_reserve(struct clv_driver *self, uint64_t *addr, uint64_t size, uint64_t align)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_address_reserve);
	uint64_t granularity = sim->config.granularity;
	if (!addr || !size || (size & (granularity - 1)) || (align & (align - 1)))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	align = clv_max_u64(align, granularity);
	uint64_t ns = clv_cost_ns(CLV_CALL_address_reserve, size, 1);
	struct sim_range *r = clv_sim_range_new(sim, size, align, 0);
	if (!r)
		return clv_sim_leave(sim, CLV_OUT_OF_MEMORY, ns);
	if (!table_new(sim, r) || !clv_sim_backing_reserve(sim, r)) {
		clv_sim_range_free(sim, r, false);
		return clv_sim_leave(sim, CLV_OUT_OF_MEMORY, ns);
	}
	clv_sim_range_link(sim, r);
	sim->reservations_live++;
	*addr = r->addr;
	return clv_sim_leave(sim, CLV_OK, ns);
}

enum clv_result clv_sim_address_free(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_address_free);
	struct sim_range *r = clv_sim_range_at(sim, addr);
	if (!r || r->plain || r->addr != addr || r->size != size || r->mappings)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	clv_sim_range_free(sim, r, true);
	sim->reservations_live--;
	return clv_sim_leave(sim, CLV_OK, clv_cost_ns(CLV_CALL_address_free, size, 1));
}

/* Frames. */

bool clv_sim_device_take(struct sim *sim, int device, uint64_t bytes)
{
	struct sim_device *d = &sim->devices[device];
	if (bytes > sim->config.capacity - d->used - d->foreign)
		return false;
	d->used += bytes;
	d->used_peak = clv_max_u64(d->used_peak, d->used);
	return true;
}

/* A handle is its slot's index + 1 below the slot's generation, so that 0 is none and a dead handle is not taken for
 * the next one in its slot. */
static clv_handle handle_of(const struct sim *sim, uint32_t index)
{
	return (uint64_t)sim->frames[index].generation << 32 | (index + 1);
}

static struct sim_frame *frame_of(const struct sim *sim, clv_handle handle)
{
	uint32_t index = (uint32_t)handle - 1;
	if (index >= sim->frame_capacity)
		return NULL;
	struct sim_frame *f = &sim->frames[index];
	return f->live && !f->released && f->generation == handle >> 32 ? f : NULL;
}

static void frame_drop(struct sim *sim, struct sim_frame *f)
{
	clv_sim_backing_destroy(sim, f);
	if (!f->imported)
		sim->devices[f->device].used -= f->size;
	f->live = false;
	f->generation++;
	f->next_free = sim->frame_free;
	sim->frame_free = (uint32_t)(f - sim->frames);
}

/* A frame that is not live yet: frame_keep makes it so. NULL: out of host memory. */
static struct sim_frame *frame_new(struct sim *sim, uint64_t size, int device)
{
	if (sim->frame_free == SIM_NONE) {
		uint32_t old = sim->frame_capacity;
		if (!clv_sim_host_grow(sim, &sim->frames, &sim->frame_capacity, sizeof(*sim->frames)))
			return NULL;
		for (uint32_t i = sim->frame_capacity; i-- > old;) {
			sim->frames[i].next_free = sim->frame_free;
			sim->frame_free = i;
		}
	}
	struct sim_frame *f = &sim->frames[sim->frame_free];
	f->size = size;
	f->device = (uint8_t)device;
	f->mappings = 0;
	f->file = -1;
	f->untouched = NULL;
	f->released = f->imported = false;
	return f;
}

static clv_handle frame_keep(struct sim *sim, struct sim_frame *f)
{
	f->live = true;
	sim->frame_free = f->next_free;
	sim->handles_live++;
	return handle_of(sim, (uint32_t)(f - sim->frames));
}

static bool is_frame(const struct sim *sim, uint64_t size, int device)
{
	return size && !(size & (sim->config.granularity - 1)) && device >= 0 && device < sim->driver.devices;
}

static enum clv_result create(struct clv_driver *self, clv_handle *handle, uint64_t size, int device, bool own_file)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_create);
	if (!handle || !is_frame(sim, size, device))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	uint64_t ns = clv_cost_ns(CLV_CALL_create, size, 1);
	if (!clv_sim_device_take(sim, device, size))
		return clv_sim_leave(sim, CLV_OUT_OF_MEMORY, clv_cost_out_of_memory_ns(CLV_CALL_create));
	struct sim_frame *f = frame_new(sim, size, device);
	if (!f || (own_file && !clv_sim_backing_own_file(sim, f)) || !clv_sim_backing_create(sim, f)) {
		if (f && f->file >= 0) /* which frees what else it has */
			clv_sim_backing_destroy(sim, f);
		sim->devices[device].used -= size;
		return clv_sim_leave(sim, CLV_FAILED, 0);
	}
	*handle = frame_keep(sim, f);
	return clv_sim_leave(sim, CLV_OK, ns);
}

enum clv_result clv_sim_create(struct clv_driver *self, clv_handle *handle, uint64_t size, int device)
{
	return create(self, handle, size, device, false);
}

enum clv_result clv_sim_create_exportable(struct clv_driver *self, clv_handle *handle, uint64_t size, int device)
{
	return create(self, handle, size, device, true);
}

int clv_sim_export(struct clv_driver *self, clv_handle handle)
{
	struct sim *sim = sim_of(self);
	pthread_mutex_lock(&sim->lock);
	struct sim_frame *f = frame_of(sim, handle);
	bool there = f && f->file >= 0 && clv_sim_backing_touch_frame(sim, f, 0, f->size);
	int fd = there ? fcntl(f->file, F_DUPFD_CLOEXEC, 0) : -1;
	pthread_mutex_unlock(&sim->lock);
	return fd;
}

enum clv_result clv_sim_import(struct clv_driver *self, clv_handle *handle, int fd, uint64_t offset, uint64_t size,
			       int device)
{
	struct sim *sim = sim_of(self);
	struct stat st;
	if (sim->file < 0 || !handle || !is_frame(sim, size, device) || offset & (sim->config.granularity - 1) ||
	    fstat(fd, &st) || (uint64_t)st.st_size < size || (uint64_t)st.st_size - size < offset)
		return CLV_INVALID;
	int file = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (file < 0)
		return CLV_FAILED;
	pthread_mutex_lock(&sim->lock);
	struct sim_frame *f = frame_new(sim, size, device);
	if (f) {
		f->file = file;
		f->file_offset = offset;
		f->imported = true;
		*handle = frame_keep(sim, f);
	}
	pthread_mutex_unlock(&sim->lock);
	if (!f)
		close(file);
	return f ? CLV_OK : CLV_FAILED;
}

enum clv_result clv_sim_release(struct clv_driver *self, clv_handle handle)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_release);
	struct sim_frame *f = frame_of(sim, handle);
	if (!f)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	uint64_t ns = clv_cost_ns(CLV_CALL_release, f->size, 1);
	f->released = true;
	sim->handles_live--;
	if (!f->mappings)
		frame_drop(sim, f);
	return clv_sim_leave(sim, CLV_OK, ns);
}

/* Mappings. */

static uint32_t mapping_new(struct sim *sim)
{
	if (sim->mapping_free == SIM_NONE) {
		uint32_t old = sim->mapping_capacity;
		if (!clv_sim_host_grow(sim, &sim->mappings, &sim->mapping_capacity, sizeof(*sim->mappings)))
			return SIM_NONE;
		for (uint32_t i = sim->mapping_capacity; i-- > old;) {
			sim->mappings[i].next_free = sim->mapping_free;
			sim->mapping_free = i;
		}
	}
	uint32_t index = sim->mapping_free;
	sim->mapping_free = sim->mappings[index].next_free;
	return index;
}

static void mapping_free(struct sim *sim, uint32_t index)
{
	sim->mappings[index].next_free = sim->mapping_free;
	sim->mapping_free = index;
}

static uint32_t *granules_at(const struct sim *sim, const struct sim_range *r, uint64_t addr)
{
	return r->granule + ((addr - r->addr) >> sim->granularity_log2);
}

enum clv_result clv_sim_map(struct clv_driver *self, uint64_t addr, uint64_t size, uint64_t offset, clv_handle handle)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_map);
	struct sim_frame *f = frame_of(sim, handle);
	if (!f || !size)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	if (offset || size != f->size)
		return clv_sim_leave(sim, CLV_NOT_SUPPORTED, 0);
	struct sim_range *r = reservation_of(sim, addr, size);
	if (!r)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	uint32_t *granule = granules_at(sim, r, addr);
	uint64_t count = size >> sim->granularity_log2;
	for (uint64_t i = 0; i < count; i++)
		if (granule[i])
			return clv_sim_leave(sim, CLV_INVALID, 0);
	uint32_t index = mapping_new(sim);
	if (index == SIM_NONE)
		return clv_sim_leave(sim, CLV_FAILED, 0);
	if (!clv_sim_backing_map(sim, r, addr, f)) {
		mapping_free(sim, index);
		return clv_sim_leave(sim, CLV_FAILED, 0);
	}
	sim->mappings[index] = (struct sim_mapping){.addr = addr, .size = size, .frame = (uint32_t)(f - sim->frames)};
	for (uint64_t i = 0; i < count; i++)
		granule[i] = index + 1;
	f->mappings++;
	r->mappings++;
	sim->mappings_live++;
	return clv_sim_leave(sim, CLV_OK, clv_cost_ns(CLV_CALL_map, size, 1));
}

/* Whether [addr, addr + size) of a reservation is made of whole mappings without gaps. */
static bool whole_mappings(const struct sim *sim, const struct sim_range *r, uint64_t addr, uint64_t size)
{
	for (uint64_t done = 0; done < size;) {
		uint32_t index = *granules_at(sim, r, addr + done);
		if (!index)
			return false;
		const struct sim_mapping *m = &sim->mappings[index - 1];
		if (m->addr != addr + done || m->size > size - done)
			return false;
		done += m->size;
	}
	return true;
}

enum clv_result clv_sim_unmap(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_unmap);
	struct sim_range *r = reservation_of(sim, addr, size);
	if (!r || !whole_mappings(sim, r, addr, size))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	if (!clv_sim_backing_unmap(sim, r, addr, size))
		return clv_sim_leave(sim, CLV_FAILED, 0);
	uint64_t ns = 0;
	for (uint64_t done = 0; done < size;) {
		uint32_t *granule = granules_at(sim, r, addr + done);
		uint32_t index = *granule - 1;
		struct sim_mapping *m = &sim->mappings[index];
		struct sim_frame *f = &sim->frames[m->frame];
		ns += clv_cost_ns(CLV_CALL_unmap, m->size, 1);
		memset(granule, 0, (size_t)(m->size >> sim->granularity_log2) * sizeof(*granule));
		done += m->size;
		mapping_free(sim, index);
		r->mappings--;
		sim->mappings_live--;
		if (!--f->mappings && f->released)
			frame_drop(sim, f);
	}
	return clv_sim_leave(sim, CLV_OK, ns);
}

static enum clv_result change_access(struct clv_driver *self, uint64_t addr, uint64_t size, int device, bool access)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_set_access);
	struct sim_range *r = reservation_of(sim, addr, size);
	if (!r || device < 0 || device >= self->devices || !whole_mappings(sim, r, addr, size))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	uint64_t ns = 0, bit = (uint64_t)1 << device;
	if (access && !clv_sim_backing_access(sim, r, addr, size, true))
		return clv_sim_leave(sim, CLV_FAILED, 0);
	for (uint64_t done = 0; done < size;) {
		struct sim_mapping *m = &sim->mappings[*granules_at(sim, r, addr + done) - 1];
		bool had = m->access & bit;
		ns += had == access ? clv_cost_access_again_ns(1) : clv_cost_ns(CLV_CALL_set_access, m->size, 1);
		m->access = access ? m->access | bit : m->access & ~bit;
		if (!m->access && !clv_sim_backing_access(sim, r, m->addr, m->size, false))
			return clv_sim_leave(sim, CLV_FAILED, ns);
		done += m->size;
	}
	return clv_sim_leave(sim, CLV_OK, ns);
}

enum clv_result clv_sim_set_access(struct clv_driver *self, uint64_t addr, uint64_t size, int device)
{
	return change_access(self, addr, size, device, true);
}

enum clv_result clv_sim_clear_access(struct clv_driver *self, uint64_t addr, uint64_t size, int device)
{
	return change_access(self, addr, size, device, false);
}

/* How many of the `size` bytes at `addr` can be touched. */
static uint64_t accessible(const struct sim *sim, const struct sim_range *r, uint64_t addr, uint64_t size)
{
	size = clv_min_u64(size, r->size - (addr - r->addr));
	if (r->plain)
		return clv_min_u64(size, clv_sim_plain_bytes(sim, r, addr));
	uint64_t done = 0;
	while (done < size) {
		uint32_t index = *granules_at(sim, r, addr + done);
		if (!index || !sim->mappings[index - 1].access)
			break;
		const struct sim_mapping *m = &sim->mappings[index - 1];
		done = m->addr + m->size - addr;
	}
	return clv_min_u64(done, size);
}

static bool touch(struct sim *sim, struct sim_range *r, uint64_t addr, uint64_t size)
{
	if (r->plain)
		return clv_sim_backing_touch_plain(sim, r, addr - r->addr, size);
	for (uint64_t end = addr + size; addr < end;) {
		const struct sim_mapping *m = &sim->mappings[*granules_at(sim, r, addr) - 1];
		uint64_t offset = addr - m->addr, n = clv_min_u64(end - addr, m->size - offset);
		if (!clv_sim_backing_touch_frame(sim, &sim->frames[m->frame], offset, n))
			return false;
		addr += n;
	}
	return true;
}

uint8_t *clv_sim_bytes(struct clv_driver *driver, uint64_t addr, uint64_t size, uint64_t *contiguous)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	struct sim_range *r = clv_sim_range_at(sim, addr);
	uint64_t bytes = r && r->host ? accessible(sim, r, addr, size) : 0;
	uint8_t *host = bytes && bytes == size && touch(sim, r, addr, size) ? r->host + (addr - r->addr) : NULL;
	pthread_mutex_unlock(&sim->lock);
	if (contiguous)
		*contiguous = bytes;
	return host;
}

bool clv_sim_find(struct clv_driver *driver, uint64_t addr, struct clv_sim_place *out)
{
	struct sim *sim = sim_of(driver);
	*out = (struct clv_sim_place){.file = -1};
	pthread_mutex_lock(&sim->lock);
	struct sim_range *r = clv_sim_range_at(sim, addr);
	if (r && r->plain) {
		out->device = r->device;
		out->size = clv_sim_plain_around(sim, r, addr, &out->addr);
		out->file = clv_sim_backing_touch_plain(sim, r, 0, r->size) ? sim->file : -1;
		out->file_offset = r->file_offset;
	} else if (r) {
		uint32_t index = *granules_at(sim, r, addr);
		const struct sim_mapping *m = index ? &sim->mappings[index - 1] : NULL;
		if (m) {
			const struct sim_frame *f = &sim->frames[m->frame];
			out->addr = m->addr;
			out->size = m->size;
			out->access = m->access;
			out->handle = f->released ? 0 : handle_of(sim, m->frame);
			out->device = f->device;
		}
	}
	if (r) {
		out->plain = r->plain;
		out->range = r->addr;
		out->range_size = r->size;
	}
	pthread_mutex_unlock(&sim->lock);
	return r;
}

void clv_sim_memory_close(struct sim *sim)
{
	while (sim->ranges)
		clv_sim_range_free(sim, sim->ranges, true);
	for (uint32_t i = 0; i < sim->frame_capacity; i++)
		if (sim->frames[i].live)
			clv_sim_backing_destroy(sim, &sim->frames[i]);
	free(sim->frames);
	free(sim->mappings);
}
