/* SPDX-License-Identifier: MIT */
#include "meddler.h"

#include <stdlib.h>

#define MAPS 256

struct meddle {
	struct clv_driver driver; /* first: the table's self */
	struct clv_driver *inner;
	struct meddler *m;
	unsigned seen;                   /* calls that offered themselves */
	uint64_t unmap_addr, unmap_size; /* MEDDLE_UNMAP: what will go */
	struct {
		clv_handle handle;
		uint64_t size;
	} maps[MAPS]; /* MEDDLE_ALIAS: what is mapped now, as far as there is room */
	unsigned map_count;
};

static struct meddle *meddle_of(struct clv_driver *driver)
{
	return (struct meddle *)driver;
}

/* Whether this call, which offers itself, is the one. */
static bool now(struct meddle *d, enum meddling what)
{
	if (d->m->what != what || ++d->seen != d->m->after)
		return false;
	d->m->done++;
	return true;
}

#define PASS(call, parameters, arguments)                                                                              \
	static enum clv_result meddle_##call parameters                                                                \
	{                                                                                                              \
		struct clv_driver *inner = meddle_of(self)->inner;                                                     \
		return inner->call arguments;                                                                          \
	}

PASS(device_info, (struct clv_driver * self, int device, struct clv_device_info *out), (inner, device, out))
PASS(mem_get_info, (struct clv_driver * self, int device, uint64_t *free_bytes, uint64_t *total),
     (inner, device, free_bytes, total))
PASS(address_reserve, (struct clv_driver * self, uint64_t *addr, uint64_t size, uint64_t align),
     (inner, addr, size, align))
PASS(address_free, (struct clv_driver * self, uint64_t addr, uint64_t size), (inner, addr, size))
PASS(create, (struct clv_driver * self, clv_handle *handle, uint64_t size, int device), (inner, handle, size, device))
PASS(unmap, (struct clv_driver * self, uint64_t addr, uint64_t size), (inner, addr, size))
PASS(mem_alloc, (struct clv_driver * self, uint64_t *addr, uint64_t size, int device), (inner, addr, size, device))
PASS(mem_free, (struct clv_driver * self, uint64_t addr), (inner, addr))
PASS(event_create, (struct clv_driver * self, clv_event *event, int device), (inner, event, device))
PASS(event_destroy, (struct clv_driver * self, clv_event event), (inner, event))
PASS(stream_synchronize, (struct clv_driver * self, cleave_stream stream), (inner, stream))

static enum clv_result meddle_release(struct clv_driver *self, clv_handle handle)
{
	struct meddle *d = meddle_of(self);
	for (unsigned i = 0; i < d->map_count; i++)
		if (d->maps[i].handle == handle)
			d->maps[i--] = d->maps[--d->map_count];
	return now(d, MEDDLE_RELEASE) ? CLV_OK : d->inner->release(d->inner, handle);
}

static enum clv_result meddle_map(struct clv_driver *self, uint64_t addr, uint64_t size, uint64_t offset,
				  clv_handle handle)
{
	struct meddle *d = meddle_of(self);
	clv_handle other = 0;
	for (unsigned i = 0; i < d->map_count; i++)
		if (d->maps[i].size == size && d->maps[i].handle != handle)
			other = d->maps[i].handle;
	if (other && now(d, MEDDLE_ALIAS))
		handle = other;
	else if (d->map_count < MAPS) {
		d->maps[d->map_count].handle = handle;
		d->maps[d->map_count++].size = size;
	}
	if (d->m->what == MEDDLE_UNMAP && ++d->seen == d->m->after) {
		d->unmap_addr = addr;
		d->unmap_size = size;
	}
	if (now(d, MEDDLE_MISUSE))
		d->inner->map(d->inner, addr, size, 512, handle);
	return d->inner->map(d->inner, addr, size, offset, handle);
}

static enum clv_result meddle_set_access(struct clv_driver *self, uint64_t addr, uint64_t size, int device)
{
	struct meddle *d = meddle_of(self);
	return now(d, MEDDLE_ACCESS) ? CLV_OK : d->inner->set_access(d->inner, addr, size, device);
}

static enum clv_result meddle_event_record(struct clv_driver *self, clv_event event, cleave_stream stream)
{
	struct meddle *d = meddle_of(self);
	if (d->unmap_size) {
		d->m->done++;
		d->inner->unmap(d->inner, d->unmap_addr, d->unmap_size);
		d->unmap_size = 0;
	}
	return d->inner->event_record(d->inner, event, stream);
}

static enum clv_result meddle_event_query(struct clv_driver *self, clv_event event)
{
	struct meddle *d = meddle_of(self);
	enum clv_result r = d->inner->event_query(d->inner, event);
	if (d->m->what != MEDDLE_EVENTS || r != CLV_NOT_READY)
		return r;
	d->m->done++;
	return CLV_OK;
}

static enum clv_result meddle_event_synchronize(struct clv_driver *self, clv_event event)
{
	struct meddle *d = meddle_of(self);
	if (d->m->what != MEDDLE_EVENTS)
		return d->inner->event_synchronize(d->inner, event);
	d->m->done++;
	return CLV_OK;
}

static enum clv_result meddle_stream_wait_event(struct clv_driver *self, cleave_stream stream, clv_event event)
{
	struct meddle *d = meddle_of(self);
	if (d->m->what != MEDDLE_WAITS)
		return d->inner->stream_wait_event(d->inner, stream, event);
	d->m->done++;
	return CLV_OK;
}

static uint64_t meddle_now_ns(struct clv_driver *self)
{
	struct clv_driver *inner = meddle_of(self)->inner;
	return inner->now_ns(inner);
}

static void meddle_pause(struct clv_driver *self, uint64_t ns)
{
	struct clv_driver *inner = meddle_of(self)->inner;
	inner->pause(inner, ns);
}

static void meddle_counts(struct clv_driver *self, struct clv_call_counts *out)
{
	struct clv_driver *inner = meddle_of(self)->inner;
	inner->counts(inner, out);
}

static void meddle_close(struct clv_driver *self)
{
	free(self);
}

struct clv_driver *meddler_open(struct clv_driver *inner, void *arg)
{
	static const struct clv_driver table = {.name = "meddler",
						.device_info = meddle_device_info,
						.now_ns = meddle_now_ns,
						.pause = meddle_pause,
						.counts = meddle_counts,
						.close = meddle_close,
#define X(field, name) .field = meddle_##field,
						CLV_DRIVER_CALLS(X)
#undef X
	};
	struct meddle *d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->driver = table;
	d->driver.devices = inner->devices;
	d->inner = inner;
	d->m = arg;
	d->m->opened++;
	return &d->driver;
}
