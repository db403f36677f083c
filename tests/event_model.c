/* SPDX-License-Identifier: MIT */
#include "event_model.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Check writes a line to a file at each of its assertions: too dear for so many. */
#define MUST(condition, fmt, ...)                                                                                      \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			ck_abort_msg(fmt, ##__VA_ARGS__);                                                              \
	} while (0)

/* ---- spans ---- */

/* The first one that ends after addr. */
static size_t after(const struct event_spans *s, uint64_t addr)
{
	size_t low = 0, high = s->count;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (s->at[mid].addr + s->at[mid].size <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool overlaps(const struct event_spans *s, uint64_t addr, uint64_t size)
{
	size_t i = after(s, addr);
	return i < s->count && s->at[i].addr < addr + size;
}

static bool covers(const struct event_spans *s, uint64_t addr, uint64_t size)
{
	uint64_t end = addr + size;
	for (size_t i = after(s, addr); addr < end; i++) {
		if (i == s->count || s->at[i].addr > addr)
			return false;
		addr = s->at[i].addr + s->at[i].size;
	}
	return true;
}

static void add(struct event_spans *s, struct event_span span, const char *what)
{
	MUST(span.size && !overlaps(s, span.addr, span.size), "%s at %#" PRIx64 ", where one is already", what,
	     span.addr);
	if (s->count == s->room) {
		s->room = s->room ? s->room * 2 : 256;
		s->at = realloc(s->at, s->room * sizeof(s->at[0]));
		MUST(s->at, "host memory");
	}
	size_t i = after(s, span.addr);
	memmove(&s->at[i + 1], &s->at[i], (s->count - i) * sizeof(s->at[0]));
	s->at[i] = span;
	s->count++;
	s->bytes += span.size;
}

static struct event_span take(struct event_spans *s, uint64_t addr, const char *what)
{
	size_t i = after(s, addr);
	MUST(i < s->count && s->at[i].addr == addr, "%s at %#" PRIx64 ", where none is", what, addr);
	struct event_span span = s->at[i];
	s->count--;
	memmove(&s->at[i], &s->at[i + 1], (s->count - i) * sizeof(s->at[0]));
	s->bytes -= span.size;
	return span;
}

/* ---- events ---- */

static bool is_free(const struct event_model *m, uint64_t addr, uint64_t size)
{
	return covers(&m->homes, addr, size) && !overlaps(&m->live, addr, size) && !overlaps(&m->held_back, addr, size);
}

static struct event_frame *frame_of(struct event_model *m, const struct clv_observed *w)
{
	MUST(w->a < m->frame_room && m->frames[w->a].size == w->size,
	     "%s of frame %" PRIu64 ", which is none of %" PRIu64 " bytes", clv_event_name(w->event), w->a, w->size);
	return &m->frames[w->a];
}

static void frame_create(struct event_model *m, const struct clv_observed *w)
{
	MUST(w->a && w->size, "a frame without number or size");
	while (w->a >= m->frame_room) {
		size_t room = m->frame_room ? m->frame_room * 2 : 256;
		m->frames = realloc(m->frames, room * sizeof(m->frames[0]));
		MUST(m->frames, "host memory");
		memset(m->frames + m->frame_room, 0, (room - m->frame_room) * sizeof(m->frames[0]));
		m->frame_room = room;
	}
	MUST(!m->frames[w->a].size, "frame %" PRIu64 " is created twice", w->a);
	m->frames[w->a] = (struct event_frame){.size = w->size, .home = w->addr, .mappings = w->addr != 0};
	m->held += w->size;
	if (w->addr)
		add(&m->homes, (struct event_span){w->addr, w->size, w->a, 0}, "a frame");
}

static void frame_map(struct event_model *m, const struct clv_observed *w)
{
	struct event_frame *f = frame_of(m, w);
	MUST(!overlaps(&m->homes, w->addr, w->size), "frame %" PRIu64 " is mapped over another", w->a);
	f->mappings++;
	if (!w->b) {
		add(&m->others, (struct event_span){w->addr, w->size, w->a, 0}, "a mapping");
		return;
	}
	MUST(f->home == w->b, "frame %" PRIu64 " leaves an address at which it is not", w->a);
	MUST(is_free(m, f->home, w->size), "frame %" PRIu64 " leaves while it is in use", w->a);
	struct event_span old = take(&m->homes, f->home, "a frame that moves");
	add(&m->others, old, "a mapping that stays");
	f->home = w->addr;
	add(&m->homes, (struct event_span){w->addr, w->size, w->a, 0}, "a frame");
	m->moved++;
}

static void frame_unmap(struct event_model *m, const struct clv_observed *w)
{
	struct event_frame *f = frame_of(m, w);
	bool home = f->home == w->addr;
	MUST(!home || is_free(m, w->addr, w->size), "frame %" PRIu64 " is unmapped while it is in use", w->a);
	struct event_span span = take(home ? &m->homes : &m->others, w->addr, "a mapping that ends");
	MUST(span.what == w->a && span.size == w->size && f->mappings,
	     "the mapping at %#" PRIx64 " is of frame %" PRIu64, w->addr, span.what);
	f->mappings--;
	if (home)
		f->home = 0;
}

static void frame_release(struct event_model *m, const struct clv_observed *w)
{
	struct event_frame *f = frame_of(m, w);
	MUST(!f->mappings, "frame %" PRIu64 " is released while it is mapped", w->a);
	f->size = 0;
	m->held -= w->size;
}

static void alloc(struct event_model *m, const struct clv_observed *w)
{
	MUST(w->size && w->size <= w->a && w->addr % CLV_GRAIN == 0, "a block of %" PRIu64 " bytes that takes %" PRIu64,
	     w->size, w->a);
	MUST(is_free(m, w->addr, w->a), "a block at %#" PRIx64 " that is not free memory", w->addr);
	add(&m->live, (struct event_span){w->addr, w->a, w->size, w->stream.id}, "a block");
	m->live_bytes += clv_align_up(w->size, CLV_GRAIN);
}

static void free_block(struct event_model *m, const struct clv_observed *w)
{
	struct event_span b = take(&m->live, w->addr, "a free");
	MUST(b.what == w->size, "a free of %" PRIu64 " bytes of a block of %" PRIu64, w->size, b.what);
	/* or of a stream that is gone */
	MUST(b.stream == w->other.id || w->other.id == CLEAVE_STREAM_ANY.id,
	     "a block of stream %" PRIu64 ", not %" PRIu64, b.stream, w->other.id);
	m->live_bytes -= clv_align_up(w->size, CLV_GRAIN);
}

static void request_failed(struct event_model *m, const struct clv_observed *w)
{
	uint64_t live, held;
	MUST(w->a == m->last_failure + 1, "failure %" PRIu64 " after %" PRIu64, w->a, m->last_failure);
	MUST(w->text && sscanf(w->text, "live=%" SCNu64 " held=%" SCNu64, &live, &held) == 2,
	     "a failure without its state");
	MUST(live == m->live_bytes && held == m->held,
	     "a failure at live %" PRIu64 " and held %" PRIu64 ", not %" PRIu64 " and %" PRIu64, live, held,
	     m->live_bytes, m->held);
	m->last_failure = w->a;
}

void event_model_tell(struct event_model *m, const struct clv_observed *w)
{
	MUST(w->event < CLV_EVENT_COUNT, "an event of number %d", (int)w->event);
	m->counts[w->event]++;
	switch (w->event) {
	case CLV_EVENT_ALLOC:
		alloc(m, w);
		break;
	case CLV_EVENT_FREE:
		free_block(m, w);
		break;
	case CLV_EVENT_FAIL:
		request_failed(m, w);
		break;
	case CLV_EVENT_FRAME_CREATE:
		frame_create(m, w);
		break;
	case CLV_EVENT_FRAME_MAP:
		frame_map(m, w);
		break;
	case CLV_EVENT_FRAME_UNMAP:
		frame_unmap(m, w);
		break;
	case CLV_EVENT_FRAME_RELEASE:
		frame_release(m, w);
		break;
	case CLV_EVENT_CUT:
		MUST(w->a <= w->addr && w->addr + w->size <= w->a + w->b && w->size < w->b,
		     "a cut that is no part of its hole");
		MUST(is_free(m, w->a, w->b), "a cut of %#" PRIx64 ", which is no hole", w->a);
		break;
	case CLV_EVENT_MERGE:
		MUST(w->addr < w->a && w->a < w->addr + w->size, "a merge without two parts");
		MUST(is_free(m, w->addr, w->size), "a merge to %#" PRIx64 ", which is no hole", w->addr);
		break;
	case CLV_EVENT_READY:
		MUST(is_free(m, w->addr, w->size), "ready is %#" PRIx64 ", which is no hole", w->addr);
		break;
	case CLV_EVENT_RESERVE_HOLD:
		MUST(is_free(m, w->addr, w->size), "held back is %#" PRIx64 ", which is not free", w->addr);
		add(&m->held_back, (struct event_span){w->addr, w->size, w->a, 0}, "a slot");
		break;
	case CLV_EVENT_RESERVE_SERVE:
	case CLV_EVENT_RESERVE_YIELD:
		MUST(take(&m->held_back, w->addr, "a slot that is given").size == w->size, "a slot of another size");
		m->yielded += w->event == CLV_EVENT_RESERVE_YIELD && w->b;
		break;
	case CLV_EVENT_WAIT:
		m->device_waits += !w->a;
		m->host_waits += w->a;
		break;
	default:
		break;
	}
}

static void told(struct clv_observer *self, const struct clv_observed *what)
{
	event_model_tell(CLV_CONTAINER_OF(self, struct event_model, observer), what);
}

void event_model_open(struct event_model *m)
{
	*m = (struct event_model){.observer = {told}};
}

static void ignored(struct clv_observer *self, const struct clv_observed *what)
{
}

void event_model_ignore(struct event_model *m)
{
	m->observer.tell = ignored;
}

void event_model_close(struct event_model *m)
{
	free(m->homes.at);
	free(m->others.at);
	free(m->live.at);
	free(m->held_back.at);
	free(m->frames);
}

void event_model_empty(const struct event_model *m)
{
	MUST(!m->held && !m->homes.count && !m->others.count, "%" PRIu64 " bytes of frames are left", m->held);
}

/* ---- against the heap ---- */

static void compare_blocks(const struct event_model *m, cleave_heap *heap, int device)
{
	size_t count = 0, live = 0;
	uint64_t bytes = 0;
	MUST(cleave_heap_blocks(heap, device, NULL, 0, &count) == 0, "no list of blocks");
	cleave_block *list = calloc(count + 1, sizeof(*list));
	MUST(list && cleave_heap_blocks(heap, device, list, count, &count) == 0, "no list of blocks");
	for (size_t i = 0; i < count; i++) {
		const cleave_block *b = &list[i];
		bytes += b->bytes;
		MUST(covers(&m->homes, b->address, b->bytes), "the block at %#" PRIx64 " is in no frame", b->address);
		if (b->state != CLEAVE_BLOCK_LIVE) {
			MUST(!overlaps(&m->live, b->address, b->bytes), "the hole at %#" PRIx64 " is live", b->address);
			continue;
		}
		live++;
		size_t k = after(&m->live, b->address);
		MUST(k < m->live.count && m->live.at[k].addr == b->address && m->live.at[k].size == b->bytes &&
			     m->live.at[k].what == b->requested,
		     "the block at %#" PRIx64 " of %" PRIu64 " bytes is not live by the events", b->address,
		     b->requested);
	}
	free(list);
	MUST(live == m->live.count, "%zu live blocks, by the events %zu", live, m->live.count);
	MUST(bytes == m->homes.bytes, "blocks and holes tile %" PRIu64 " bytes, frames have %" PRIu64, bytes,
	     m->homes.bytes);
}

#define SAME(of_heap, of_events)                                                                                       \
	MUST((of_heap) == (of_events), #of_heap " %" PRIu64 ", by the events %" PRIu64, (uint64_t)(of_heap),           \
	     (uint64_t)(of_events))

void event_model_compare(const struct event_model *m, cleave_heap *heap, int device)
{
	cleave_heap_stats s;
	MUST(cleave_heap_get_stats(heap, device, &s) == 0, "no statistics");
	SAME(s.held_bytes, m->held);
	SAME(s.live_bytes, m->live_bytes);
	SAME(s.live_blocks, m->live.count);
	SAME(s.reservation_bytes, m->held_back.bytes);
	SAME(s.allocs, m->counts[CLV_EVENT_ALLOC]);
	SAME(s.frees, m->counts[CLV_EVENT_FREE]);
	SAME(s.failures, m->last_failure);
	SAME(s.splits, m->counts[CLV_EVENT_CUT]);
	SAME(s.merges, m->counts[CLV_EVENT_MERGE]);
	SAME(s.frames_moved, m->moved);
	SAME(s.device_waits, m->device_waits);
	SAME(s.host_waits, m->host_waits);
	compare_blocks(m, heap, device);
}
