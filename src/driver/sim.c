/* SPDX-License-Identifier: MIT */
#include "sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_CAPACITY (139 * CLV_GIB)
#define DEFAULT_GRANULARITY (2 * CLV_MIB)

static bool host_may_fail(struct sim *sim)
{
	if (CLV_LIKELY(!sim->fail_host_in))
		return false;
	if (sim->fail_host_in == 1)
		return true;
	sim->fail_host_in--;
	return false;
}

void *clv_sim_host_alloc(struct sim *sim, size_t size)
{
	return host_may_fail(sim) ? NULL : calloc(1, size);
}

bool clv_sim_host_grow(struct sim *sim, void *array, uint32_t *capacity, size_t size)
{
	void **slot = array;
	uint32_t more = *capacity ? *capacity * 2 : 64;
	if (more <= *capacity || more == SIM_NONE || host_may_fail(sim))
		return false;
	void *grown = realloc(*slot, (size_t)more * size);
	if (!grown)
		return false;
	memset((char *)grown + (size_t)*capacity * size, 0, (size_t)(more - *capacity) * size);
	*slot = grown;
	*capacity = more;
	return true;
}

void clv_sim_clock_to(struct sim *sim, uint64_t ns)
{
	if (ns > sim->now)
		__atomic_store_n(&sim->now, ns, __ATOMIC_RELAXED);
}

void clv_sim_charge(struct sim *sim, uint64_t ns)
{
	sim->counts.ns += ns;
	uint64_t then;
	if (!sim->config.clock_free && !__builtin_add_overflow(sim->now, ns, &then))
		clv_sim_clock_to(sim, then);
}

struct sim *clv_sim_enter(struct clv_driver *driver, enum clv_call call)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	sim->counts.calls[call]++;
	return sim;
}

enum clv_result clv_sim_leave(struct sim *sim, enum clv_result result, uint64_t ns)
{
	if (ns)
		clv_sim_charge(sim, ns);
	clv_sim_settle(sim);
	pthread_mutex_unlock(&sim->lock);
	return result;
}

bool clv_sim_breaks_capture(struct sim *sim)
{
	sim->capture_invalid |= sim->capturing;
	return sim->capturing;
}

static uint64_t device_free(const struct sim *sim, int device)
{
	const struct sim_device *d = &sim->devices[device];
	return sim->config.capacity - d->used - d->foreign;
}

static enum clv_result sim_device_info(struct clv_driver *self, int device, struct clv_device_info *out)
{
	const struct sim *sim = sim_of(self);
	if (device < 0 || device >= self->devices || !out)
		return CLV_INVALID;
	*out = (struct clv_device_info){
		.total = sim->config.capacity, .granularity = sim->config.granularity, .vmm = true};
	return CLV_OK;
}

static enum clv_result sim_mem_get_info(struct clv_driver *self, int device, uint64_t *free_bytes, uint64_t *total)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_mem_get_info);
	if (device < 0 || device >= self->devices)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	if (free_bytes)
		*free_bytes = device_free(sim, device);
	if (total)
		*total = sim->config.capacity;
	return clv_sim_leave(sim, CLV_OK, clv_cost_ns(CLV_CALL_mem_get_info, 0, 1));
}

static uint64_t sim_now_ns(struct clv_driver *self)
{
	return __atomic_load_n(&sim_of(self)->now, __ATOMIC_RELAXED);
}

static void sim_pause(struct clv_driver *self, uint64_t ns)
{
	clv_sim_advance(self, ns);
}

static void sim_counts(struct clv_driver *self, struct clv_call_counts *out)
{
	struct sim *sim = sim_of(self);
	pthread_mutex_lock(&sim->lock);
	*out = sim->counts;
	pthread_mutex_unlock(&sim->lock);
}

static void sim_close(struct clv_driver *self)
{
	struct sim *sim = sim_of(self);
	clv_sim_stream_close(sim);
	clv_sim_memory_close(sim);
	clv_sim_backing_close(sim);
	pthread_cond_destroy(&sim->settled);
	pthread_mutex_destroy(&sim->lock);
	free(sim);
}

static const struct clv_driver table = {
	.name = "sim",
	.device_info = sim_device_info,
	.mem_get_info = sim_mem_get_info,
	.address_reserve = clv_sim_address_reserve,
	.address_free = clv_sim_address_free,
	.create = clv_sim_create,
	.release = clv_sim_release,
	.map = clv_sim_map,
	.unmap = clv_sim_unmap,
	.set_access = clv_sim_set_access,
	.mem_alloc = clv_sim_mem_alloc,
	.mem_free = clv_sim_mem_free,
	.event_create = clv_sim_event_create,
	.event_destroy = clv_sim_event_destroy,
	.event_record = clv_sim_event_record,
	.event_query = clv_sim_event_query,
	.event_synchronize = clv_sim_event_synchronize,
	.stream_wait_event = clv_sim_stream_wait_event,
	.stream_synchronize = clv_sim_stream_synchronize,
	.now_ns = sim_now_ns,
	.pause = sim_pause,
	.counts = sim_counts,
	.close = sim_close,
};

struct clv_driver *clv_sim_open(const struct clv_sim_config *config)
{
	struct clv_sim_config c = config ? *config : (struct clv_sim_config){0};
	c.devices = c.devices ? c.devices : 1;
	c.granularity = c.granularity ? c.granularity : DEFAULT_GRANULARITY;
	c.capacity = c.capacity ? c.capacity : DEFAULT_CAPACITY;
	if (c.devices < 0 || c.devices > SIM_MAX_DEVICES || !clv_is_pow2(c.granularity) || c.granularity < CLV_GRAIN ||
	    c.granularity > SIM_FIRST_ADDRESS)
		return NULL;
	c.capacity = clv_align_down(c.capacity, c.granularity);

	struct sim *sim = calloc(1, sizeof(*sim));
	if (!sim)
		return NULL;
	sim->driver = table;
	sim->driver.devices = c.devices;
	sim->config = c;
	sim->granularity_log2 = clv_log2(c.granularity);
	sim->cursor = SIM_FIRST_ADDRESS;
	sim->frame_free = sim->mapping_free = sim->event_free = SIM_NONE;
	sim->file = -1;
	if (pthread_mutex_init(&sim->lock, NULL)) {
		free(sim);
		return NULL;
	}
	if (pthread_cond_init(&sim->settled, NULL)) {
		pthread_mutex_destroy(&sim->lock);
		free(sim);
		return NULL;
	}
	if (!clv_sim_backing_open(sim)) {
		sim_close(&sim->driver);
		return NULL;
	}
	return &sim->driver;
}

void clv_sim_set_time(struct clv_driver *driver, uint64_t ns)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	clv_sim_clock_to(sim, ns);
	clv_sim_leave(sim, CLV_OK, 0);
}

void clv_sim_advance(struct clv_driver *driver, uint64_t ns)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	uint64_t then;
	clv_sim_clock_to(sim, __builtin_add_overflow(sim->now, ns, &then) ? UINT64_MAX : then);
	clv_sim_leave(sim, CLV_OK, 0);
}

uint64_t clv_sim_used(struct clv_driver *driver, int device)
{
	struct sim *sim = sim_of(driver);
	if (device < 0 || device >= driver->devices)
		return 0;
	pthread_mutex_lock(&sim->lock);
	uint64_t used = sim->devices[device].used;
	pthread_mutex_unlock(&sim->lock);
	return used;
}

uint64_t clv_sim_used_peak(struct clv_driver *driver, int device)
{
	struct sim *sim = sim_of(driver);
	if (device < 0 || device >= driver->devices)
		return 0;
	pthread_mutex_lock(&sim->lock);
	uint64_t peak = sim->devices[device].used_peak;
	pthread_mutex_unlock(&sim->lock);
	return peak;
}

void clv_sim_set_foreign(struct clv_driver *driver, int device, uint64_t bytes)
{
	struct sim *sim = sim_of(driver);
	if (device < 0 || device >= driver->devices)
		return;
	pthread_mutex_lock(&sim->lock);
	struct sim_device *d = &sim->devices[device];
	d->foreign = clv_min_u64(bytes, sim->config.capacity - d->used);
	pthread_mutex_unlock(&sim->lock);
}

bool clv_sim_set_capturing(struct clv_driver *driver, bool capturing)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	bool valid = !sim->capture_invalid;
	sim->capturing = capturing;
	if (!capturing)
		sim->capture_invalid = false;
	pthread_mutex_unlock(&sim->lock);
	return capturing || valid;
}

void clv_sim_fail_host_after(struct clv_driver *driver, uint64_t n)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	sim->fail_host_in = n;
	pthread_mutex_unlock(&sim->lock);
}

const char *clv_sim_leaks(struct clv_driver *driver)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	const char *kind = sim->handles_live        ? "handle"
			   : sim->mappings_live     ? "mapping"
			   : sim->reservations_live ? "reservation"
			   : sim->events_live       ? "event"
			   : sim->plain_live        ? "plain allocation"
						    : NULL;
	pthread_mutex_unlock(&sim->lock);
	return kind;
}
