/* SPDX-License-Identifier: MIT */
#include "streams.h"

#include "../host/meta.h"
#include "space.h"
#include "tell.h"

#include <string.h>

/* An event costs 0.6 us to record and query: one is recorded when so much has been freed since the last, or this share of
 * what is held. */
#define EVENT_BYTES (4 * CLV_MIB)
#define EVENT_OF_HELD 256
#define EVENT_BYTES_LOW (64 * CLV_MIB)
#define EVENT_OF_ROOM 16

static unsigned hash_of(uint64_t id)
{
	return (unsigned)(clv_mix64(id) % CLV_ARRAY_LEN(((struct clv_arena *)0)->slot_hash));
}

static struct clv_slot *new_slot(struct clv_arena *a, cleave_stream stream)
{
	struct clv_slot *slot = NULL;
	for (uint32_t i = 1; a->slots_unused && i < a->slot_count && !slot; i++)
		if (!a->slots[i]->used)
			slot = a->slots[i];
	if (!slot) {
		if (a->slot_count == a->slot_room) {
			uint32_t room = a->slot_room ? a->slot_room * 2 : 8;
			struct clv_slot **slots = clv_meta_realloc(a->slots, room * sizeof(struct clv_slot *));
			if (!slots)
				return NULL;
			a->slots = slots;
			a->slot_room = room;
		}
		slot = clv_meta_zalloc(sizeof(*slot));
		if (!slot)
			return NULL;
		slot->index = a->slot_count;
		slot->linger_tail = &slot->lingers;
		slot->late_tail = &slot->late;
		a->slots[a->slot_count++] = slot;
		a->slots_unused++;
	}
	if (!clv_slot_ready(slot))
		return NULL;
	slot->stream = stream;
	slot->used = true;
	slot->lasting = clv_stream_is_virtual(stream.id);
	slot->apart = clv_stream_is_apart(stream.id);
	a->slots_unused--;
	unsigned h = hash_of(stream.id);
	struct clv_slot **link = &a->slot_hash[h];
	while (slot->apart && *link) /* there may be very many, seldom looked for */
		link = &(*link)->hash_next;
	slot->hash_next = *link;
	*link = slot;
	return slot;
}

bool clv_streams_init(struct clv_arena *a)
{
	return new_slot(a, CLEAVE_STREAM_ANY) != NULL;
}

void clv_streams_fini(struct clv_arena *a)
{
	for (uint32_t i = 0; i < a->slot_count; i++) {
		struct clv_slot *slot = a->slots[i];
		for (unsigned k = 0; k < slot->count; k++)
			a->driver->event_destroy(a->driver, slot->events[(slot->first + k) % CLV_SLOT_EVENTS].event);
		clv_meta_free(slot->holes);
		clv_meta_free(slot);
	}
	for (unsigned i = 0; i < a->spare_count; i++)
		a->driver->event_destroy(a->driver, a->spare_events[i]);
	clv_meta_free(a->spare_events);
	clv_meta_free(a->slots);
}

struct clv_slot *clv_slot_find(const struct clv_arena *a, uint64_t stream_id)
{
	struct clv_slot *slot = a->slot_hash[hash_of(stream_id)];
	while (slot && slot->stream.id != stream_id)
		slot = slot->hash_next;
	return slot;
}

struct clv_slot *clv_slot_get(struct clv_arena *a, cleave_stream stream)
{
	struct clv_slot *slot = clv_slot_find(a, stream.id);
	if (!slot)
		return new_slot(a, stream);
	slot->stream.handle = stream.handle;
	return clv_slot_ready(slot) ? slot : NULL;
}

bool clv_slot_ready(struct clv_slot *slot)
{
	if (slot->holes)
		return true;
	struct clv_binmap *maps = clv_meta_zalloc(3 * sizeof(*maps));
	if (!maps)
		return false;
	slot->holes = maps;
	slot->parts = maps + 1;
	slot->whole = maps + 2;
	return true;
}

static void unhash(struct clv_arena *a, struct clv_slot *slot)
{
	struct clv_slot **link = &a->slot_hash[hash_of(slot->stream.id)];
	while (*link != slot)
		link = &(*link)->hash_next;
	*link = slot->hash_next;
}

/* ---- events ---- */

static clv_event take_event(struct clv_arena *a)
{
	if (a->spare_count)
		return a->spare_events[--a->spare_count];
	clv_event event;
	return a->driver->event_create(a->driver, &event, a->device) == CLV_OK ? event : 0;
}

static void give_event(struct clv_arena *a, clv_event event)
{
	if (a->spare_count == a->spare_room) {
		unsigned room = a->spare_room ? a->spare_room * 2 : 64;
		clv_event *events = clv_meta_realloc(a->spare_events, room * sizeof(*events));
		if (!events) {
			a->driver->event_destroy(a->driver, event);
			return;
		}
		a->spare_events = events;
		a->spare_room = room;
	}
	a->spare_events[a->spare_count++] = event;
}

/* An event that covers all frees of the slot so far. When the ring is full its last event is recorded anew: it then covers
 * more and completes later. False if the driver refuses; nothing changes then. */
static bool record(struct clv_arena *a, struct clv_slot *slot)
{
	if (slot->recorded_seq == slot->seq)
		return true;
	bool full = slot->count == CLV_SLOT_EVENTS;
	unsigned last = (slot->first + slot->count - 1) % CLV_SLOT_EVENTS;
	clv_event event = full ? slot->events[last].event : take_event(a);
	if (!event)
		return false;
	if (a->driver->event_record(a->driver, event, slot->stream) != CLV_OK) {
		if (!full)
			give_event(a, event);
		return false;
	}
	if (!full) {
		last = (slot->first + slot->count) % CLV_SLOT_EVENTS;
		slot->count++;
	}
	slot->events[last].event = event;
	slot->events[last].seq = slot->seq;
	slot->recorded_seq = slot->seq;
	slot->unrecorded_bytes = 0;
	return true;
}

/* An event is due when so much has been freed; sooner when little is left to buy, since a frame is cut only when complete. */
static uint64_t event_bytes(const struct clv_arena *a)
{
	uint64_t low = clv_max_u64(EVENT_BYTES_LOW, a->room / EVENT_OF_ROOM);
	return clv_max_u64(EVENT_BYTES, clv_min_u64(a->held / EVENT_OF_HELD, low));
}

void clv_slot_due(struct clv_arena *a, struct clv_slot *slot, uint64_t seq, uint64_t bytes, bool now)
{
	if (seq <= slot->recorded_seq)
		return;
	slot->unrecorded_bytes += bytes;
	if (now || slot->unrecorded_bytes >= event_bytes(a))
		record(a, slot); /* a refusal only means that completion is learned later */
}

uint64_t clv_slot_freed(struct clv_arena *a, struct clv_slot *slot, uint64_t bytes, bool now)
{
	if (slot->index == CLV_SLOT_ANY)
		return 0;
	if (slot->ended) /* an empty chunk: freed before the end, or by others whose work is done */
		return slot->seq;
	uint64_t seq = ++slot->seq;
	clv_slot_due(a, slot, seq, bytes, now);
	return seq;
}

static void pop_event(struct clv_arena *a, struct clv_slot *slot)
{
	slot->completed = slot->events[slot->first].seq;
	give_event(a, slot->events[slot->first].event);
	slot->first = (slot->first + 1) % CLV_SLOT_EVENTS;
	slot->count--;
}

/* What the driver answered last. */
static enum clv_result ask(struct clv_arena *a, struct clv_slot *slot)
{
	enum clv_result r = CLV_OK;
	while (slot->count && r == CLV_OK) {
		a->polls++;
		r = a->driver->event_query(a->driver, slot->events[slot->first].event);
		if (r == CLV_OK)
			pop_event(a, slot);
	}
	return r;
}

bool clv_slot_poll(struct clv_arena *a, struct clv_slot *slot)
{
	uint64_t before = slot->completed;
	ask(a, slot);
	return slot->completed != before;
}

/* ---- holes change hands ---- */

/* Calls retag for the holes of `slot` up to `seq`; bins change while we walk, so start anew after each. */
static bool retag_all(struct clv_arena *a, struct clv_slot *slot, uint64_t upto, uint32_t to, uint64_t seq)
{
	bool any = false;
	for (unsigned bin = 0; bin < CLV_BIN_COUNT; bin++) {
		if (!slot->holes->words[bin / 64]) {
			bin |= 63;
			continue;
		}
		for (struct clv_bin_node *n = slot->holes->heads[bin], *next; n; n = next) {
			next = n->next;
			struct clv_extent *hole = n->owner;
			if (hole->hole.seq > upto)
				continue;
			/* joins only with holes of `to`: this slot's other holes, and `next`, stay where they are */
			clv_space_retag(a, hole, to, seq);
			any = true;
		}
	}
	return any;
}

bool clv_streams_poll(struct clv_arena *a, const struct clv_slot *own)
{
	bool any = false;
	for (uint32_t i = 1; i < a->slot_count; i++) {
		struct clv_slot *slot = a->slots[i];
		if (!slot->used || slot->apart)
			continue;
		bool rose = clv_slot_poll(a, slot);
		any |= rose;
		if (slot == own || (!slot->complete_hole && slot->completed == slot->swept))
			continue; /* however many holes there are, none has become complete */
		any |= retag_all(a, slot, slot->completed, CLV_SLOT_ANY, 0);
		slot->complete_hole = false;
		slot->swept = slot->completed;
	}
	return any;
}

bool clv_slot_record(struct clv_arena *a, struct clv_slot *slot)
{
	return record(a, slot);
}

void clv_streams_record(struct clv_arena *a)
{
	for (uint32_t i = 1; i < a->slot_count; i++)
		if (a->slots[i]->used && !a->slots[i]->apart && a->slots[i]->completed != a->slots[i]->seq)
			record(a, a->slots[i]);
}

bool clv_streams_pending(const struct clv_arena *a)
{
	for (uint32_t i = 1; i < a->slot_count; i++)
		if (a->slots[i]->count && !a->slots[i]->lasting)
			return true;
	return false;
}

bool clv_slot_follow(struct clv_arena *a, struct clv_slot *own, struct clv_slot *slot)
{
	if (own->index == CLV_SLOT_ANY || own->lasting || slot->apart || !record(a, slot))
		return false;
	if (slot->count) { /* the last event covers every free */
		clv_event last = slot->events[(slot->first + slot->count - 1) % CLV_SLOT_EVENTS].event;
		if (a->driver->stream_wait_event(a->driver, own->stream, last) != CLV_OK)
			return false;
		a->device_waits++;
		CLV_TELL(a, WAIT, own->stream, .size = a->asked, .other = slot->stream);
	}
	own->seq++;
	return true;
}

bool clv_streams_adopt(struct clv_arena *a, struct clv_slot *own)
{
	bool any = false;
	for (uint32_t i = 1; i < a->slot_count; i++) {
		struct clv_slot *slot = a->slots[i];
		/* what was the other's is ours from here on, and complete when we are */
		if (slot != own && slot->used && slot->holes && slot->holes->count && clv_slot_follow(a, own, slot))
			any |= retag_all(a, slot, UINT64_MAX, own->index, own->seq);
	}
	return any;
}

static void tell_wait(struct clv_arena *a, const struct clv_slot *slot)
{
	a->host_waits++;
	CLV_TELL(a, WAIT, CLEAVE_STREAM_ANY, .size = a->asked, .a = 1, .other = slot->stream);
}

/* The host waits for all frees of the slot. False if the driver cannot do that now, as while a stream captures. */
static bool wait_for(struct clv_arena *a, struct clv_slot *slot)
{
	clv_event last = 0;
	if (record(a, slot) && slot->count)
		last = slot->events[(slot->first + slot->count - 1) % CLV_SLOT_EVENTS].event;
	if (!slot->lasting) /* which is not waited for */
		tell_wait(a, slot);
	if (!last || a->driver->event_synchronize(a->driver, last) != CLV_OK) {
		if (slot->ended) /* nobody knows the stream any more */
			return false;
		enum clv_result r = a->driver->stream_synchronize(a->driver, slot->stream);
		/* a stream that does not exist has no work: it went with its context */
		if (r != CLV_OK && r != CLV_GONE && r != CLV_INVALID)
			return false;
	}
	while (slot->count)
		pop_event(a, slot);
	slot->completed = slot->recorded_seq = slot->seq;
	return true;
}

bool clv_slot_finish(struct clv_arena *a, struct clv_slot *slot, uint64_t seq, uint64_t ns)
{
	uint64_t before = slot->completed, begun = a->driver->now_ns(a->driver), waited = 0;
	if (slot->lasting || (slot->recorded_seq < seq && !record(a, slot)))
		ns = 0;
	clv_slot_poll(a, slot);
	if (ns && slot->completed < seq)
		tell_wait(a, slot);
	for (uint64_t paused = 0; slot->count && slot->completed < seq && waited < ns;) {
		a->driver->pause(a->driver, CLV_POLL_PAUSE_NS);
		paused += CLV_POLL_PAUSE_NS;
		waited = clv_max_u64(paused, a->driver->now_ns(a->driver) - begun); /* a pause may take longer than it should */
		enum clv_result r = ask(a, slot);
		if (r != CLV_OK && r != CLV_NOT_READY) /* as while a stream captures */
			break;
	}
	a->waited_ns += waited;
	return slot->completed != before;
}

bool clv_streams_wait(struct clv_arena *a, const struct clv_slot *own)
{
	bool any = false;
	for (uint32_t i = 1; i < a->slot_count; i++)
		if (a->slots[i]->used && !a->slots[i]->apart && a->slots[i]->completed != a->slots[i]->seq)
			any |= wait_for(a, a->slots[i]);
	return clv_streams_poll(a, own) || any;
}

bool clv_slot_drain(struct clv_arena *a, struct clv_slot *slot)
{
	slot->seq += !slot->ended; /* slots of its slabs are freed without being counted */
	return wait_for(a, slot);
}

bool clv_slot_end(struct clv_arena *a, struct clv_slot *slot)
{
	slot->seq++;
	if (slot->lasting || !record(a, slot))
		return false;
	unhash(a, slot);
	slot->ended = true;
	a->slots_ended++;
	return true;
}

void clv_slot_merge(struct clv_arena *a, struct clv_slot *from, struct clv_slot *into)
{
	if (from->holes && from->holes->count)
		retag_all(a, from, UINT64_MAX, into->index, ++into->seq);
}

void clv_slot_trim(struct clv_slot *slot)
{
	if (!slot || !slot->holes || slot->holes->count || slot->parts->count || slot->whole->count)
		return;
	clv_meta_free(slot->holes);
	slot->holes = slot->parts = slot->whole = NULL;
}

void clv_slot_drop(struct clv_arena *a, struct clv_slot *slot)
{
	if (slot->holes && slot->holes->count)
		retag_all(a, slot, UINT64_MAX, CLV_SLOT_ANY, 0);
	for (struct clv_frame *f = a->frames; f; f = f->next) {
		if (f->busy_slot == slot->index) {
			f->busy_slot = CLV_SLOT_ANY;
			f->busy_seq = 0;
		}
		for (struct clv_extent *e = f->starts; e; e = e->live.frame_next)
			if (e->slot == slot->index) { /* the index will stand for another stream */
				e->slot = CLV_SLOT_ANY;
				e->live.seq = 0;
			}
	}
	if (!slot->ended)
		unhash(a, slot);
	a->slots_ended -= slot->ended;
	slot->ended = false;
	struct clv_slot *any = a->slots[CLV_SLOT_ANY];
	while (slot->lingers) {
		struct clv_extent *e = slot->lingers;
		clv_slot_unlinger(slot, &slot->lingers);
		clv_slot_linger(any, e, 0);
	}
	slot->used = false;
	a->slots_unused++;
	slot->seq = slot->completed = slot->recorded_seq = slot->asked_seq = slot->unrecorded_bytes = slot->swept = 0;
}

/* ---- old addresses of moved frames ---- */

void clv_slot_linger(struct clv_slot *slot, struct clv_extent *e, uint64_t seq)
{
	e->slot = slot->index;
	e->linger.seq = seq;
	e->linger.next = NULL;
	*slot->linger_tail = e;
	slot->linger_tail = &e->linger.next;
}

void clv_slot_unlinger(struct clv_slot *slot, struct clv_extent **link)
{
	struct clv_extent *e = *link;
	if (slot->linger_tail == &e->linger.next)
		slot->linger_tail = link;
	*link = e->linger.next;
}
