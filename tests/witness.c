/* SPDX-License-Identifier: MIT */
#include "witness.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS 256

/* A piece of a block in one frame. While the block is live it belongs to it; afterwards to the work of the stream that freed
 * it, up to `position`. */
struct use {
	uint64_t lo, hi; /* in the frame */
	uint64_t addr;   /* of lo, as the block knew it */
	uint64_t block;  /* where the block begins */
	bool live;
	unsigned stream;
	uint64_t position;
};

struct frame {
	clv_handle handle;
	uint64_t size;
	int device;
	bool released;
	unsigned mappings;
	struct use *uses;
	unsigned use_count, use_room;
};

struct mapping {
	uint64_t addr, size;
	bool access;
	struct frame *frame;
};

/* What is known when an event is complete: of each stream, how much. */
struct event {
	clv_event event;
	uint64_t covers[STREAMS];
	unsigned count;
};

struct stream {
	uint64_t id;
	uint64_t position; /* frees so far */
	uint64_t done;     /* seen to be complete */
	uint64_t *knows;   /* of each stream: what ours comes after */
};

struct witness {
	struct clv_driver driver; /* first: the table's self */
	struct clv_driver *inner;
	struct frame **frames;
	unsigned frame_count, frame_room;
	struct mapping *mappings; /* by address */
	unsigned mapping_count, mapping_room;
	struct event **events;
	unsigned event_count, event_room;
	struct stream streams[STREAMS];
	unsigned stream_count;
	uint64_t calls[CLV_CALL_COUNT];
	char wrong[512];
};

static struct witness *of(struct clv_driver *d)
{
	return (struct witness *)d;
}

static void CLV_PRINTF(2, 3) complain(struct witness *w, const char *fmt, ...)
{
	if (w->wrong[0])
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(w->wrong, sizeof(w->wrong), fmt, ap);
	va_end(ap);
}

static void *grown(void *array, unsigned count, unsigned *room, size_t size)
{
	if (count < *room)
		return array;
	*room = *room ? *room * 2 : 16;
	array = realloc(array, *room * size);
	if (!array)
		abort(); /* a test without host memory is over */
	return array;
}

/* ---- streams and events ---- */

static unsigned stream_of(struct witness *w, uint64_t id)
{
	for (unsigned i = 0; i < w->stream_count; i++)
		if (w->streams[i].id == id)
			return i;
	if (w->stream_count == STREAMS)
		abort();
	struct stream *s = &w->streams[w->stream_count];
	s->id = id;
	s->knows = calloc(STREAMS, sizeof(uint64_t));
	if (!s->knows)
		abort();
	return w->stream_count++;
}

static struct event *event_of(struct witness *w, clv_event event)
{
	for (unsigned i = 0; i < w->event_count; i++)
		if (w->events[i]->event == event)
			return w->events[i];
	return NULL;
}

static void snapshot(struct witness *w, struct event *e, unsigned stream)
{
	memcpy(e->covers, w->streams[stream].knows, sizeof(e->covers));
	e->covers[stream] = w->streams[stream].position;
	e->count = w->stream_count;
}

static void seen_complete(struct witness *w, const struct event *e)
{
	for (unsigned i = 0; e && i < e->count; i++)
		w->streams[i].done = clv_max_u64(w->streams[i].done, e->covers[i]);
}

static bool done(const struct witness *w, const struct use *u)
{
	return !u->live && w->streams[u->stream].done >= u->position;
}

/* Whether what comes next on a stream comes after the use; no stream: whether the use is complete. */
static bool ordered(const struct witness *w, const struct use *u, const struct stream *s)
{
	if (done(w, u))
		return true;
	return s && (s == &w->streams[u->stream] || s->knows[u->stream] >= u->position);
}

/* ---- memory ---- */

/* The first mapping that ends after addr. */
static unsigned mapping_at(const struct witness *w, uint64_t addr)
{
	unsigned lo = 0, hi = w->mapping_count;
	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;
		if (w->mappings[mid].addr + w->mappings[mid].size <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void drop_frame(struct witness *w, struct frame *f)
{
	if (!f->released || f->mappings)
		return;
	for (unsigned i = 0; i < w->frame_count; i++)
		if (w->frames[i] == f)
			w->frames[i] = w->frames[--w->frame_count];
	free(f->uses);
	free(f);
}

static struct frame *frame_of(const struct witness *w, clv_handle handle)
{
	for (unsigned i = 0; i < w->frame_count; i++)
		if (w->frames[i]->handle == handle && !w->frames[i]->released)
			return w->frames[i];
	return NULL;
}

static void forget_done(const struct witness *w, struct frame *f)
{
	for (unsigned i = 0; i < f->use_count;)
		if (done(w, &f->uses[i]))
			f->uses[i] = f->uses[--f->use_count];
		else
			i++;
}

void witness_given(struct witness *w, uint64_t addr, uint64_t size, cleave_stream stream)
{
	bool any = stream.id == CLEAVE_STREAM_ANY.id;
	const struct stream *s = any ? NULL : &w->streams[stream_of(w, stream.id)];
	uint64_t end = addr + clv_align_up(size, CLV_GRAIN);
	if (!addr || addr % CLV_GRAIN)
		complain(w, "the block at %#" PRIx64 " is not a multiple of 512", addr);
	for (uint64_t at = addr; at < end;) {
		unsigned i = mapping_at(w, at);
		const struct mapping *m = &w->mappings[i];
		if (i == w->mapping_count || m->addr > at || !m->access) {
			complain(w, "the block [%#" PRIx64 ", %#" PRIx64 ") is not mapped at %#" PRIx64, addr, end, at);
			return;
		}
		struct frame *f = m->frame;
		uint64_t lo = at - m->addr, hi = clv_min_u64(end, m->addr + m->size) - m->addr;
		forget_done(w, f);
		for (unsigned k = 0; k < f->use_count; k++) {
			const struct use *u = &f->uses[k];
			if (u->hi <= lo || u->lo >= hi)
				continue;
			if (u->live)
				complain(w, "the block [%#" PRIx64 ", %#" PRIx64 ") shares memory with the live block at %#" PRIx64,
					 addr, end, u->addr);
			else if (!ordered(w, u, s))
				complain(w,
					 "the block [%#" PRIx64 ", %#" PRIx64 ") of stream %" PRIu64 " shares memory with a block at %#" PRIx64
					 " that stream %" PRIu64 " may still use (free %" PRIu64 ")",
					 addr, end, stream.id, u->addr, w->streams[u->stream].id, u->position);
		}
		f->uses = grown(f->uses, f->use_count, &f->use_room, sizeof(struct use));
		f->uses[f->use_count++] = (struct use){.lo = lo, .hi = hi, .addr = at, .block = addr, .live = true};
		at = m->addr + m->size;
	}
}


void witness_freed(struct witness *w, uint64_t addr, uint64_t size, cleave_stream stream)
{
	bool any = stream.id == CLEAVE_STREAM_ANY.id;
	unsigned s = any ? 0 : stream_of(w, stream.id);
	uint64_t position = any ? 0 : ++w->streams[s].position;
	uint64_t end = addr + clv_align_up(size, CLV_GRAIN);
	for (unsigned i = mapping_at(w, addr); i < w->mapping_count && w->mappings[i].addr < end; i++) {
		struct frame *f = w->mappings[i].frame;
		for (unsigned k = 0; k < f->use_count; k++) {
			struct use *u = &f->uses[k];
			if (!u->live || u->block != addr)
				continue;
			u->live = false;
			u->stream = s;
			u->position = position; /* 0: complete */
		}
	}
}

bool witness_complete(const struct witness *w, uint64_t addr, uint64_t size)
{
	for (unsigned i = mapping_at(w, addr); i < w->mapping_count && w->mappings[i].addr < addr + size; i++) {
		const struct mapping *m = &w->mappings[i];
		for (unsigned k = 0; k < m->frame->use_count; k++) {
			const struct use *u = &m->frame->uses[k];
			uint64_t lo = m->addr + u->lo, hi = m->addr + u->hi;
			if (lo < addr + size && hi > addr && !u->live && !done(w, u))
				return false;
		}
	}
	return true;
}

void witness_order(struct witness *w, cleave_stream earlier, cleave_stream later)
{
	struct clv_driver *d = &w->driver;
	clv_event event;
	if (d->event_create(d, &event, 0) != CLV_OK || d->event_record(d, event, earlier) != CLV_OK ||
	    d->stream_wait_event(d, later, event) != CLV_OK || d->event_destroy(d, event) != CLV_OK)
		complain(w, "the test could not make a stream wait");
}

uint64_t witness_held(const struct witness *w, int device)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < w->frame_count; i++)
		if (w->frames[i]->device == device)
			bytes += w->frames[i]->size;
	return bytes;
}

uint64_t witness_pinned(const struct witness *w, int device)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < w->frame_count; i++) {
		const struct frame *f = w->frames[i];
		bool live = false;
		for (unsigned k = 0; k < f->use_count && !live; k++)
			live = f->uses[k].live;
		if (f->device == device && live)
			bytes += f->size;
	}
	return bytes;
}

uint64_t witness_calls(const struct witness *w, enum clv_call call)
{
	return w->calls[call];
}

const char *witness_wrong(const struct witness *w)
{
	return w->wrong[0] ? w->wrong : NULL;
}

/* ---- the table ---- */

static enum clv_result witness_mem_get_info(struct clv_driver *self, int device, uint64_t *free_bytes, uint64_t *total)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_mem_get_info]++;
	return w->inner->mem_get_info(w->inner, device, free_bytes, total);
}

static enum clv_result witness_address_reserve(struct clv_driver *self, uint64_t *addr, uint64_t size, uint64_t align)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_address_reserve]++;
	return w->inner->address_reserve(w->inner, addr, size, align);
}

static enum clv_result witness_address_free(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_address_free]++;
	return w->inner->address_free(w->inner, addr, size);
}

static enum clv_result witness_create(struct clv_driver *self, clv_handle *handle, uint64_t size, int device)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_create]++;
	enum clv_result r = w->inner->create(w->inner, handle, size, device);
	if (r != CLV_OK)
		return r;
	struct frame *f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	f->handle = *handle;
	f->size = size;
	f->device = device;
	w->frames = grown(w->frames, w->frame_count, &w->frame_room, sizeof(struct frame *));
	w->frames[w->frame_count++] = f;
	return r;
}

static enum clv_result witness_release(struct clv_driver *self, clv_handle handle)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_release]++;
	struct frame *f = frame_of(w, handle);
	enum clv_result r = w->inner->release(w->inner, handle);
	if (r == CLV_OK && f) {
		f->released = true;
		drop_frame(w, f);
	} else if (r == CLV_OK) {
		complain(w, "a handle was released that was never created");
	}
	return r;
}

static enum clv_result witness_map(struct clv_driver *self, uint64_t addr, uint64_t size, uint64_t offset, clv_handle handle)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_map]++;
	struct frame *f = frame_of(w, handle);
	enum clv_result r = w->inner->map(w->inner, addr, size, offset, handle);
	if (r != CLV_OK)
		return r;
	w->mappings = grown(w->mappings, w->mapping_count, &w->mapping_room, sizeof(struct mapping));
	unsigned i = mapping_at(w, addr);
	memmove(&w->mappings[i + 1], &w->mappings[i], (w->mapping_count - i) * sizeof(struct mapping));
	w->mappings[i] = (struct mapping){.addr = addr, .size = size, .frame = f};
	w->mapping_count++;
	f->mappings++;
	return r;
}

static enum clv_result witness_unmap(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_unmap]++;
	enum clv_result r = w->inner->unmap(w->inner, addr, size);
	if (r != CLV_OK)
		return r;
	unsigned first = mapping_at(w, addr), last = first;
	for (; last < w->mapping_count && w->mappings[last].addr < addr + size; last++) {
		struct frame *f = w->mappings[last].frame;
		for (unsigned k = 0; k < f->use_count; k++) {
			const struct use *u = &f->uses[k];
			if (u->addr < addr || u->addr >= addr + size)
				continue;
			if (u->live)
				complain(w, "the live block at %#" PRIx64 " was unmapped", u->block);
			else if (!done(w, u))
				complain(w, "%#" PRIx64 " was unmapped, which stream %" PRIu64 " may still use (free %" PRIu64 ")", u->addr,
					 w->streams[u->stream].id, u->position);
		}
		f->mappings--;
		drop_frame(w, f);
	}
	memmove(&w->mappings[first], &w->mappings[last], (w->mapping_count - last) * sizeof(struct mapping));
	w->mapping_count -= last - first;
	return r;
}

static enum clv_result witness_set_access(struct clv_driver *self, uint64_t addr, uint64_t size, int device)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_set_access]++;
	enum clv_result r = w->inner->set_access(w->inner, addr, size, device);
	for (unsigned i = mapping_at(w, addr); r == CLV_OK && i < w->mapping_count && w->mappings[i].addr < addr + size; i++) {
		w->mappings[i].access = true;
		if (w->mappings[i].frame->device != device)
			complain(w, "access to %#" PRIx64 " was given to another device", addr);
	}
	return r;
}

static enum clv_result witness_mem_alloc(struct clv_driver *self, uint64_t *addr, uint64_t size, int device)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_mem_alloc]++;
	return w->inner->mem_alloc(w->inner, addr, size, device);
}

static enum clv_result witness_mem_free(struct clv_driver *self, uint64_t addr)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_mem_free]++;
	return w->inner->mem_free(w->inner, addr);
}

static enum clv_result witness_event_create(struct clv_driver *self, clv_event *event, int device)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_event_create]++;
	enum clv_result r = w->inner->event_create(w->inner, event, device);
	if (r != CLV_OK)
		return r;
	struct event *e = calloc(1, sizeof(*e));
	if (!e)
		abort();
	e->event = *event;
	w->events = grown(w->events, w->event_count, &w->event_room, sizeof(struct event *));
	w->events[w->event_count++] = e;
	return r;
}

static enum clv_result witness_event_destroy(struct clv_driver *self, clv_event event)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_event_destroy]++;
	enum clv_result r = w->inner->event_destroy(w->inner, event);
	for (unsigned i = 0; r == CLV_OK && i < w->event_count; i++)
		if (w->events[i]->event == event) {
			free(w->events[i]);
			w->events[i] = w->events[--w->event_count];
			break;
		}
	return r;
}

static enum clv_result witness_event_record(struct clv_driver *self, clv_event event, cleave_stream stream)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_event_record]++;
	enum clv_result r = w->inner->event_record(w->inner, event, stream);
	struct event *e = event_of(w, event);
	if (r == CLV_OK && e)
		snapshot(w, e, stream_of(w, stream.id));
	return r;
}

static enum clv_result witness_event_query(struct clv_driver *self, clv_event event)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_event_query]++;
	enum clv_result r = w->inner->event_query(w->inner, event);
	if (r == CLV_OK)
		seen_complete(w, event_of(w, event));
	return r;
}

static enum clv_result witness_event_synchronize(struct clv_driver *self, clv_event event)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_event_synchronize]++;
	enum clv_result r = w->inner->event_synchronize(w->inner, event);
	if (r == CLV_OK)
		seen_complete(w, event_of(w, event));
	return r;
}

static enum clv_result witness_stream_wait_event(struct clv_driver *self, cleave_stream stream, clv_event event)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_stream_wait_event]++;
	enum clv_result r = w->inner->stream_wait_event(w->inner, stream, event);
	const struct event *e = event_of(w, event);
	uint64_t *knows = w->streams[stream_of(w, stream.id)].knows;
	for (unsigned i = 0; r == CLV_OK && e && i < e->count; i++)
		knows[i] = clv_max_u64(knows[i], e->covers[i]);
	return r;
}

static enum clv_result witness_stream_synchronize(struct clv_driver *self, cleave_stream stream)
{
	struct witness *w = of(self);
	w->calls[CLV_CALL_stream_synchronize]++;
	struct event now;
	snapshot(w, &now, stream_of(w, stream.id));
	enum clv_result r = w->inner->stream_synchronize(w->inner, stream);
	if (r == CLV_OK)
		seen_complete(w, &now);
	return r;
}

static enum clv_result witness_device_info(struct clv_driver *self, int device, struct clv_device_info *out)
{
	struct witness *w = of(self);
	return w->inner->device_info(w->inner, device, out);
}

static uint64_t witness_now_ns(struct clv_driver *self)
{
	struct witness *w = of(self);
	return w->inner->now_ns(w->inner);
}

static void witness_pause(struct clv_driver *self, uint64_t ns)
{
	struct witness *w = of(self);
	w->inner->pause(w->inner, ns);
}

static void witness_counts(struct clv_driver *self, struct clv_call_counts *out)
{
	struct witness *w = of(self);
	w->inner->counts(w->inner, out);
}

void witness_close(struct witness *w)
{
	for (unsigned i = 0; i < w->frame_count; i++) {
		free(w->frames[i]->uses);
		free(w->frames[i]);
	}
	for (unsigned i = 0; i < w->event_count; i++)
		free(w->events[i]);
	for (unsigned i = 0; i < w->stream_count; i++)
		free(w->streams[i].knows);
	free(w->frames);
	free(w->events);
	free(w->mappings);
	free(w);
}

static void witness_driver_close(struct clv_driver *self)
{
	witness_close(of(self));
}

static const struct clv_driver table = {
	.name = "witness",
	.device_info = witness_device_info,
	.now_ns = witness_now_ns,
	.pause = witness_pause,
	.counts = witness_counts,
	.close = witness_driver_close,
#define X(field, name) .field = witness_##field,
	CLV_DRIVER_CALLS(X)
#undef X
};

struct witness *witness_open(struct clv_driver *inner)
{
	struct witness *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->driver = table;
	w->driver.devices = inner->devices;
	w->inner = inner;
	return w;
}

struct clv_driver *witness_driver(struct witness *w)
{
	return &w->driver;
}
