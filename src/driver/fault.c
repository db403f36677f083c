/* SPDX-License-Identifier: MIT
 *
 * One mutex guards the configuration and the counts; the inner driver is called without it.
 */
#include "fault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct fault {
	struct clv_driver driver; /* first: the table's self */
	struct clv_driver *inner;
	pthread_mutex_t lock;
	struct clv_fault_config config;
	struct clv_rng rng;
	bool chosen; /* config.eligible names some */
	bool paused;
	uint64_t seen, injected;
	_Atomic(const char *) refused;
};

static struct fault *fault_of(struct clv_driver *driver)
{
	return (struct fault *)driver;
}

static enum clv_result failure_of(enum clv_call call)
{
	switch (call) {
	case CLV_CALL_create:
	case CLV_CALL_mem_alloc:
	case CLV_CALL_address_reserve:
	case CLV_CALL_map:
	case CLV_CALL_set_access:
		return CLV_OUT_OF_MEMORY;
	default:
		return CLV_FAILED;
	}
}

/* What the call is to answer instead of reaching the inner driver; CLV_OK: let it through. */
static enum clv_result inject(struct fault *f, enum clv_call call)
{
	pthread_mutex_lock(&f->lock);
	bool fail = false;
	if (!f->paused) {
		bool eligible = !f->chosen || f->config.eligible[call];
		f->seen += eligible;
		if (eligible && f->config.fail_at)
			fail = f->config.fail_after ? f->seen >= f->config.fail_at : f->seen == f->config.fail_at;
		/* drawn even if the call fails anyway, so that the sequence does not depend on fail_at */
		if (f->config.chance_per_million[call])
			fail |= clv_rng_below(&f->rng, 1000000) < f->config.chance_per_million[call];
		f->injected += fail;
	}
	enum clv_result result = !fail ? CLV_OK : f->config.result != CLV_OK ? f->config.result : failure_of(call);
	pthread_mutex_unlock(&f->lock);
	return result;
}

static enum clv_result answer(struct fault *f, enum clv_call call, enum clv_result result)
{
	const char *none = NULL;
	if (CLV_UNLIKELY(result == CLV_INVALID || result == CLV_NOT_SUPPORTED))
		atomic_compare_exchange_strong(&f->refused, &none, clv_call_name(call));
	return result;
}

static void configure(struct fault *f, const struct clv_fault_config *config)
{
	f->config = config ? *config : (struct clv_fault_config){0};
	f->rng.state = f->config.seed;
	f->seen = f->injected = 0;
	f->chosen = false;
	for (int i = 0; i < CLV_CALL_COUNT; i++)
		f->chosen |= f->config.eligible[i];
}

/* PASS(call, (parameters after self), (arguments after the inner driver)) */
#define PASS(call, parameters, arguments)                                                                              \
	static enum clv_result fault_##call parameters                                                                 \
	{                                                                                                              \
		struct fault *f = fault_of(self);                                                                      \
		struct clv_driver *inner = f->inner;                                                                   \
		enum clv_result r = inject(f, CLV_CALL_##call);                                                        \
		return r != CLV_OK ? r : answer(f, CLV_CALL_##call, inner->call arguments);                            \
	}

PASS(mem_get_info, (struct clv_driver *self, int device, uint64_t *free_bytes, uint64_t *total),
     (inner, device, free_bytes, total))
PASS(address_reserve, (struct clv_driver *self, uint64_t *addr, uint64_t size, uint64_t align),
     (inner, addr, size, align))
PASS(address_free, (struct clv_driver *self, uint64_t addr, uint64_t size), (inner, addr, size))
PASS(create, (struct clv_driver *self, clv_handle *handle, uint64_t size, int device), (inner, handle, size, device))
PASS(release, (struct clv_driver *self, clv_handle handle), (inner, handle))
PASS(map, (struct clv_driver *self, uint64_t addr, uint64_t size, uint64_t offset, clv_handle handle),
     (inner, addr, size, offset, handle))
PASS(unmap, (struct clv_driver *self, uint64_t addr, uint64_t size), (inner, addr, size))
PASS(set_access, (struct clv_driver *self, uint64_t addr, uint64_t size, int device), (inner, addr, size, device))
PASS(mem_alloc, (struct clv_driver *self, uint64_t *addr, uint64_t size, int device), (inner, addr, size, device))
PASS(mem_free, (struct clv_driver *self, uint64_t addr), (inner, addr))
PASS(event_create, (struct clv_driver *self, clv_event *event, int device), (inner, event, device))
PASS(event_destroy, (struct clv_driver *self, clv_event event), (inner, event))
PASS(event_record, (struct clv_driver *self, clv_event event, cleave_stream stream), (inner, event, stream))
PASS(event_query, (struct clv_driver *self, clv_event event), (inner, event))
PASS(event_synchronize, (struct clv_driver *self, clv_event event), (inner, event))
PASS(stream_wait_event, (struct clv_driver *self, cleave_stream stream, clv_event event), (inner, stream, event))
PASS(stream_synchronize, (struct clv_driver *self, cleave_stream stream), (inner, stream))

static enum clv_result fault_device_info(struct clv_driver *self, int device, struct clv_device_info *out)
{
	struct clv_driver *inner = fault_of(self)->inner;
	return inner->device_info(inner, device, out);
}

static uint64_t fault_now_ns(struct clv_driver *self)
{
	struct clv_driver *inner = fault_of(self)->inner;
	return inner->now_ns(inner);
}

static void fault_pause(struct clv_driver *self, uint64_t ns)
{
	struct clv_driver *inner = fault_of(self)->inner;
	inner->pause(inner, ns);
}

static void fault_counts(struct clv_driver *self, struct clv_call_counts *out)
{
	struct clv_driver *inner = fault_of(self)->inner;
	inner->counts(inner, out);
}

static void fault_close(struct clv_driver *self)
{
	struct fault *f = fault_of(self);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static const struct clv_driver table = {
	.name = "fault",
	.device_info = fault_device_info,
	.now_ns = fault_now_ns,
	.pause = fault_pause,
	.counts = fault_counts,
	.close = fault_close,
#define X(field, name) .field = fault_##field,
	CLV_DRIVER_CALLS(X)
#undef X
};

struct clv_driver *clv_fault_open(struct clv_driver *inner, const struct clv_fault_config *config)
{
	struct fault *f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	if (pthread_mutex_init(&f->lock, NULL)) {
		free(f);
		return NULL;
	}
	f->driver = table;
	f->driver.devices = inner->devices;
	f->inner = inner;
	configure(f, config);
	return &f->driver;
}

void clv_fault_set(struct clv_driver *fault, const struct clv_fault_config *config)
{
	struct fault *f = fault_of(fault);
	pthread_mutex_lock(&f->lock);
	configure(f, config);
	pthread_mutex_unlock(&f->lock);
}

void clv_fault_pause(struct clv_driver *fault, bool paused)
{
	struct fault *f = fault_of(fault);
	pthread_mutex_lock(&f->lock);
	f->paused = paused;
	pthread_mutex_unlock(&f->lock);
}

uint64_t clv_fault_seen(struct clv_driver *fault)
{
	struct fault *f = fault_of(fault);
	pthread_mutex_lock(&f->lock);
	uint64_t seen = f->seen;
	pthread_mutex_unlock(&f->lock);
	return seen;
}

uint64_t clv_fault_injected(struct clv_driver *fault)
{
	struct fault *f = fault_of(fault);
	pthread_mutex_lock(&f->lock);
	uint64_t injected = f->injected;
	pthread_mutex_unlock(&f->lock);
	return injected;
}

const char *clv_fault_refused(struct clv_driver *fault)
{
	return atomic_load(&fault_of(fault)->refused);
}
