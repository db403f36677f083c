/* SPDX-License-Identifier: MIT */
#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct ledger {
	struct clv_driver base;
	struct clv_driver *inner;
	uint64_t capacity;        /* UINT64_MAX: what there is */
	_Atomic uint64_t time_ns; /* UINT64_MAX: the driver's own */
	pthread_mutex_t lock;
	uint64_t *used, *foreign; /* by device */
	struct frame {
		clv_handle handle;
		uint64_t size;
		int device;
		enum frame_state { MAKING, MADE, GOING } state;
	} * frames;
	size_t frame_count, frame_room;
	uint64_t reservations, events;
};

static struct ledger *ledger_of(struct clv_driver *driver)
{
	return CLV_CONTAINER_OF(driver, struct ledger, base);
}

static struct clv_driver *inner_of(struct clv_driver *driver)
{
	return ledger_of(driver)->inner;
}

static enum clv_result ledger_device_info(struct clv_driver *self, int device, struct clv_device_info *out)
{
	enum clv_result r =
		device < self->devices ? inner_of(self)->device_info(inner_of(self), device, out) : CLV_INVALID;
	if (r == CLV_OK)
		out->total = clv_min_u64(out->total, ledger_of(self)->capacity);
	return r;
}

/* With the lock held. */
static uint64_t left(const struct ledger *l, int device)
{
	uint64_t taken = l->used[device] + l->foreign[device];
	return taken < l->capacity ? l->capacity - taken : 0;
}

static enum clv_result ledger_mem_get_info(struct clv_driver *self, int device, uint64_t *free_bytes, uint64_t *total)
{
	struct ledger *l = ledger_of(self);
	if (device < 0 || device >= self->devices)
		return CLV_INVALID;
	uint64_t inner_free = 0, inner_total = 0;
	enum clv_result r = l->inner->mem_get_info(l->inner, device, &inner_free, &inner_total);
	pthread_mutex_lock(&l->lock);
	if (free_bytes)
		*free_bytes = clv_min_u64(inner_free, left(l, device));
	if (total)
		*total = clv_min_u64(inner_total, l->capacity);
	pthread_mutex_unlock(&l->lock);
	return r;
}

/* What is asked for is in use before the driver is asked, so that two threads do not both get the last of it. */
static bool take(struct ledger *l, uint64_t size, int device)
{
	bool ok = true;
	pthread_mutex_lock(&l->lock);
	if (l->frame_count == l->frame_room) {
		size_t room = l->frame_room ? 2 * l->frame_room : 256;
		struct frame *frames = realloc(l->frames, room * sizeof(*frames));
		ok = frames != NULL;
		l->frames = ok ? frames : l->frames;
		l->frame_room = ok ? room : l->frame_room;
	}
	ok = ok && size <= left(l, device);
	if (ok) {
		l->used[device] += size;
		l->frames[l->frame_count++] = (struct frame){0, size, device, MAKING};
	}
	pthread_mutex_unlock(&l->lock);
	return ok;
}

/* With the lock held. While a frame is being released the driver may give its handle to another. */
static struct frame *find(struct ledger *l, enum frame_state state, clv_handle handle, uint64_t size, int device)
{
	for (size_t i = l->frame_count; i--;) {
		struct frame *f = &l->frames[i];
		if (f->state == state && f->handle == handle &&
		    (state != MAKING || (f->size == size && f->device == device)))
			return f;
	}
	return NULL;
}

static void drop(struct ledger *l, struct frame *f)
{
	l->used[f->device] -= f->size;
	*f = l->frames[--l->frame_count];
}

static enum clv_result ledger_create(struct clv_driver *self, clv_handle *handle, uint64_t size, int device)
{
	struct ledger *l = ledger_of(self);
	if (device < 0 || device >= self->devices)
		return CLV_INVALID;
	if (!take(l, size, device))
		return CLV_OUT_OF_MEMORY;
	enum clv_result r = l->inner->create(l->inner, handle, size, device);
	pthread_mutex_lock(&l->lock);
	struct frame *f = find(l, MAKING, 0, size, device);
	if (r == CLV_OK) {
		f->handle = *handle;
		f->state = MADE;
	} else {
		drop(l, f);
	}
	pthread_mutex_unlock(&l->lock);
	return r;
}

static enum clv_result ledger_release(struct clv_driver *self, clv_handle handle)
{
	struct ledger *l = ledger_of(self);
	pthread_mutex_lock(&l->lock);
	struct frame *f = find(l, MADE, handle, 0, 0);
	if (f)
		f->state = GOING;
	pthread_mutex_unlock(&l->lock);
	enum clv_result r = l->inner->release(l->inner, handle);
	pthread_mutex_lock(&l->lock);
	f = find(l, GOING, handle, 0, 0);
	if (f && r == CLV_OK)
		drop(l, f);
	else if (f)
		f->state = MADE;
	pthread_mutex_unlock(&l->lock);
	return r;
}

static void tally(struct ledger *l, uint64_t *what, enum clv_result r, int change)
{
	pthread_mutex_lock(&l->lock);
	if (r == CLV_OK)
		*what += (uint64_t)change;
	pthread_mutex_unlock(&l->lock);
}

static enum clv_result ledger_address_reserve(struct clv_driver *self, uint64_t *addr, uint64_t size, uint64_t align)
{
	enum clv_result r = inner_of(self)->address_reserve(inner_of(self), addr, size, align);
	tally(ledger_of(self), &ledger_of(self)->reservations, r, 1);
	return r;
}

static enum clv_result ledger_address_free(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	enum clv_result r = inner_of(self)->address_free(inner_of(self), addr, size);
	tally(ledger_of(self), &ledger_of(self)->reservations, r, -1);
	return r;
}

static enum clv_result ledger_event_create(struct clv_driver *self, clv_event *event, int device)
{
	enum clv_result r = inner_of(self)->event_create(inner_of(self), event, device);
	tally(ledger_of(self), &ledger_of(self)->events, r, 1);
	return r;
}

static enum clv_result ledger_event_destroy(struct clv_driver *self, clv_event event)
{
	enum clv_result r = inner_of(self)->event_destroy(inner_of(self), event);
	tally(ledger_of(self), &ledger_of(self)->events, r, -1);
	return r;
}

/* The rest is passed on: (function, its parameters, what it is called with). */
#define PASSED(X)                                                                                                      \
	X(map, (struct clv_driver * self, uint64_t addr, uint64_t size, uint64_t offset, clv_handle handle),           \
	  (inner_of(self), addr, size, offset, handle))                                                                \
	X(unmap, (struct clv_driver * self, uint64_t addr, uint64_t size), (inner_of(self), addr, size))               \
	X(set_access, (struct clv_driver * self, uint64_t addr, uint64_t size, int device),                            \
	  (inner_of(self), addr, size, device))                                                                        \
	X(mem_alloc, (struct clv_driver * self, uint64_t * addr, uint64_t size, int device),                           \
	  (inner_of(self), addr, size, device))                                                                        \
	X(mem_free, (struct clv_driver * self, uint64_t addr), (inner_of(self), addr))                                 \
	X(event_record, (struct clv_driver * self, clv_event event, cleave_stream stream),                             \
	  (inner_of(self), event, stream))                                                                             \
	X(event_query, (struct clv_driver * self, clv_event event), (inner_of(self), event))                           \
	X(event_synchronize, (struct clv_driver * self, clv_event event), (inner_of(self), event))                     \
	X(stream_wait_event, (struct clv_driver * self, cleave_stream stream, clv_event event),                        \
	  (inner_of(self), stream, event))                                                                             \
	X(stream_synchronize, (struct clv_driver * self, cleave_stream stream), (inner_of(self), stream))

#define PASS(name, params, args)                                                                                       \
	static enum clv_result ledger_##name params                                                                    \
	{                                                                                                              \
		return inner_of(self)->name args;                                                                      \
	}
PASSED(PASS)

static uint64_t ledger_now_ns(struct clv_driver *self)
{
	uint64_t ns = atomic_load_explicit(&ledger_of(self)->time_ns, memory_order_relaxed);
	return ns == UINT64_MAX ? inner_of(self)->now_ns(inner_of(self)) : ns;
}

void clv_ledger_set_time(struct clv_driver *ledger, uint64_t ns)
{
	atomic_store_explicit(&ledger_of(ledger)->time_ns, ns, memory_order_relaxed);
}

static void ledger_pause(struct clv_driver *self, uint64_t ns)
{
	inner_of(self)->pause(inner_of(self), ns);
}

static void ledger_counts(struct clv_driver *self, struct clv_call_counts *out)
{
	inner_of(self)->counts(inner_of(self), out);
}

static void ledger_close(struct clv_driver *self)
{
	struct ledger *l = ledger_of(self);
	pthread_mutex_destroy(&l->lock);
	free(l->used);
	free(l->foreign);
	free(l->frames);
	free(l);
}

struct clv_driver *clv_ledger_open(struct clv_driver *inner, int devices, uint64_t capacity)
{
	struct ledger *l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->base = (struct clv_driver){.name = "ledger",
				      .devices = devices,
				      .device_info = ledger_device_info,
				      .mem_get_info = ledger_mem_get_info,
				      .address_reserve = ledger_address_reserve,
				      .address_free = ledger_address_free,
				      .create = ledger_create,
				      .release = ledger_release,
				      .event_create = ledger_event_create,
				      .event_destroy = ledger_event_destroy,
				      .now_ns = ledger_now_ns,
				      .pause = ledger_pause,
				      .counts = ledger_counts,
				      .close = ledger_close,
#define FIELD(name, params, args) .name = ledger_##name,
				      PASSED(FIELD)
#undef FIELD
	};
	l->inner = inner;
	l->capacity = capacity ? capacity : UINT64_MAX;
	atomic_init(&l->time_ns, UINT64_MAX);
	l->used = calloc((size_t)devices, sizeof(*l->used));
	l->foreign = calloc((size_t)devices, sizeof(*l->foreign));
	pthread_mutex_init(&l->lock, NULL);
	if (l->used && l->foreign)
		return &l->base;
	ledger_close(&l->base);
	return NULL;
}

uint64_t clv_ledger_used(struct clv_driver *ledger, int device)
{
	struct ledger *l = ledger_of(ledger);
	pthread_mutex_lock(&l->lock);
	uint64_t used = l->used[device];
	pthread_mutex_unlock(&l->lock);
	return used;
}

void clv_ledger_set_foreign(struct clv_driver *ledger, int device, uint64_t bytes)
{
	struct ledger *l = ledger_of(ledger);
	pthread_mutex_lock(&l->lock);
	l->foreign[device] = 0;
	l->foreign[device] = clv_min_u64(bytes, left(l, device));
	pthread_mutex_unlock(&l->lock);
}

const char *clv_ledger_leaks(struct clv_driver *ledger)
{
	struct ledger *l = ledger_of(ledger);
	pthread_mutex_lock(&l->lock);
	const char *what = l->frame_count ? "frame" : l->reservations ? "address range" : l->events ? "event" : NULL;
	pthread_mutex_unlock(&l->lock);
	return what;
}
