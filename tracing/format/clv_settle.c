/* SPDX-License-Identifier: MIT */
#include "clv_settle.h"

#include "../map.h"
#include "clv_format.h"

#include <stdlib.h>
#include <string.h>

bool clv_pieces_add(struct clv_history *h, struct clv_pieces *p, struct clv_history *from, const struct clv_pieces *of)
{
	if (!from->note_count)
		return true;
	size_t total = (size_t)h->note_count + from->note_count;
	if (total >= UINT32_MAX || !clv_mem_reserve(&h->notes, &p->note_cap, total, sizeof(*h->notes)))
		return false;
	memcpy(h->notes + h->note_count, from->notes, from->note_count * sizeof(*h->notes));
	h->note_count = (uint32_t)total;
	from->note_count = 0;
	p->unit = of->unit;
	p->notes_without_place |= of->notes_without_place;
	return true;
}

static bool no_memory(const char *file, struct clv_error *err)
{
	return clv_error_set(err, "%s: out of host memory", file);
}

/* ---- order ---- */

/* What is sorted: time first, then frees, then as it was read. */
struct key {
	uint64_t time;
	uint64_t rank_index;
};

static bool before(const struct key *a, const struct key *b)
{
	return a->time != b->time ? a->time < b->time : a->rank_index < b->rank_index;
}

static int by_key(const void *a, const void *b)
{
	return before(a, b) ? -1 : before(b, a);
}

static struct key event_key(const struct clv_history *h, uint32_t i)
{
	bool is_free = h->events[i].action == CLV_ACTION_FREE_COMPLETED;
	return (struct key){h->events[i].time_us, (uint64_t)!is_free << 32 | i};
}

static struct key note_key(const struct clv_history *h, uint32_t i)
{
	return (struct key){h->notes[i].time_us, i};
}

/* The indices 0 .. count-1 in the order of their keys, in *order; NULL there if that is how they lie already. Nearly sorted
 * input, as recordings are, costs little more than reading it: only what comes late is sorted, and merged in. */
static bool find_order(const struct clv_history *h, uint32_t count,
		       struct key (*key_of)(const struct clv_history *, uint32_t), uint32_t **order)
{
	struct key last = {0, 0};
	uint32_t late_count = 0;
	*order = NULL;
	for (uint32_t i = 0; i < count; i++) {
		struct key k = key_of(h, i);
		if (before(&k, &last))
			late_count++;
		else
			last = k;
	}
	if (!late_count)
		return true;
	struct key *late = clv_mem_realloc(NULL, late_count, sizeof(*late));
	uint32_t *out = clv_mem_realloc(NULL, count, sizeof(*out));
	if (!late || !out) {
		clv_mem_free(late);
		clv_mem_free(out);
		return false;
	}
	uint32_t n = 0, on_time = 0;
	last = (struct key){0, 0};
	for (uint32_t i = 0; i < count; i++) {
		struct key k = key_of(h, i);
		if (before(&k, &last)) {
			late[n++] = k;
		} else {
			last = k;
			out[on_time++] = i;
		}
	}
	qsort(late, late_count, sizeof(*late), by_key);
	/* from the end, so that both lie in one array */
	for (uint32_t at = count; late_count; at--) {
		struct key k = on_time ? key_of(h, out[on_time - 1]) : (struct key){0, 0};
		if (on_time && before(&late[late_count - 1], &k))
			out[at - 1] = out[--on_time];
		else
			out[at - 1] = (uint32_t)late[--late_count].rank_index;
	}
	clv_mem_free(late);
	*order = out;
	return true;
}

/* Moves the elements of an array into another order. */
static bool reorder(void *p_to_array, size_t size, const uint32_t *order, uint32_t count)
{
	uint8_t **array = p_to_array, *moved;
	if (!*array)
		return true;
	moved = clv_mem_realloc(NULL, count, size);
	if (!moved)
		return false;
	for (uint32_t i = 0; i < count; i++)
		memcpy(moved + i * size, *array + order[i] * size, size);
	clv_mem_free(*array);
	*array = moved;
	return true;
}

static bool sort_events(struct clv_history *h)
{
	uint32_t *order;
	if (!find_order(h, h->event_count, event_key, &order))
		return false;
	bool ok = !order || (reorder(&h->events, sizeof(*h->events), order, h->event_count) &&
			     reorder(&h->threads, sizeof(*h->threads), order, h->event_count) &&
			     reorder(&h->slack, sizeof(*h->slack), order, h->event_count));
	clv_mem_free(order);
	return ok;
}

static bool sort_notes(struct clv_history *h, struct clv_pieces *p)
{
	uint32_t *order;
	if (!find_order(h, h->note_count, note_key, &order))
		return false;
	bool ok = !order || reorder(&h->notes, sizeof(*h->notes), order, h->note_count);
	if (order && ok)
		p->note_cap = h->note_count;
	clv_mem_free(order);
	return ok;
}

/* ---- frees that are missing ---- */

/* The event that still holds the address at which event `i` allocates, or CLV_MAP_NONE; keeps the books. */
static bool holder(struct clv_map *live, const struct clv_history *h, uint32_t i, uint32_t *out)
{
	const struct clv_event_record *e = &h->events[i];
	*out = CLV_MAP_NONE;
	if (e->action != CLV_ACTION_FREE_COMPLETED && (e->action != CLV_ACTION_ALLOC || !e->size))
		return true;
	struct clv_map_slot *slot = clv_map_slot(live, e->addr);
	if (!slot)
		return false;
	uint32_t held = slot->value;
	slot->value = e->action == CLV_ACTION_ALLOC ? i : CLV_NO_BLOCK - 1; /* a free: nobody */
	if (e->action == CLV_ACTION_ALLOC && held != CLV_MAP_NONE && held != CLV_NO_BLOCK - 1)
		*out = held;
	return true;
}

static bool insert_lost(struct clv_history *h, uint32_t lost)
{
	uint64_t total = (uint64_t)h->event_count + lost;
	struct clv_history grown = {0};
	struct clv_map live = {0};
	if (total >= UINT32_MAX - 1)
		return false;
	grown.events = clv_mem_realloc(NULL, total, sizeof(*grown.events));
	grown.threads = h->threads ? clv_mem_realloc(NULL, total, sizeof(*grown.threads)) : NULL;
	grown.slack = h->slack ? clv_mem_realloc(NULL, total, sizeof(*grown.slack)) : NULL;
	bool ok = grown.events && (!h->threads || grown.threads) && (!h->slack || grown.slack);
	for (uint32_t i = 0, n = 0, held; i < h->event_count && ok; i++) {
		ok = holder(&live, h, i, &held);
		for (int k = held == CLV_MAP_NONE; k < 2 && ok; k++, n++) {
			uint32_t from = k ? i : held;
			grown.events[n] = h->events[from];
			if (grown.threads)
				grown.threads[n] = k ? h->threads[from] : 0;
			if (grown.slack)
				grown.slack[n] = k ? h->slack[from] : 0;
			if (k)
				continue;
			grown.events[n].action = CLV_ACTION_FREE_COMPLETED;
			grown.events[n].flags = CLV_EVENT_LOST;
			grown.events[n].stack = CLV_NO_STACK;
			grown.events[n].time_us = h->events[i].time_us;
		}
	}
	clv_map_free(&live);
	if (!ok) {
		clv_mem_free(grown.events);
		clv_mem_free(grown.threads);
		clv_mem_free(grown.slack);
		return false;
	}
	clv_mem_free(h->events);
	clv_mem_free(h->threads);
	clv_mem_free(h->slack);
	h->events = grown.events;
	h->threads = grown.threads;
	h->slack = grown.slack;
	h->event_count = (uint32_t)total;
	return true;
}

static bool end_lost_blocks(struct clv_history *h)
{
	struct clv_map live = {0};
	uint32_t lost = 0, held;
	bool ok = true;
	for (uint32_t i = 0; i < h->event_count && ok; i++) {
		ok = holder(&live, h, i, &held);
		lost += ok && held != CLV_MAP_NONE;
	}
	clv_map_free(&live);
	return ok && (!lost || insert_lost(h, lost));
}

/* ---- all of it ---- */

static void place_notes(struct clv_history *h)
{
	uint32_t event = 0;
	for (uint32_t i = 0; i < h->note_count; i++) {
		while (event < h->event_count && h->events[event].time_us <= h->notes[i].time_us)
			event++;
		h->notes[i].event = event;
	}
}

static bool notes_make_sense(const struct clv_history *h)
{
	for (uint32_t i = 0; i < h->note_count; i++)
		if (h->notes[i].event > h->event_count || (i && h->notes[i].event < h->notes[i - 1].event))
			return false;
	return true;
}

bool clv_pieces_settle(struct clv_history *h, struct clv_pieces *p, const char *file, struct clv_error *err)
{
	if (p->unit == 1 && (!sort_events(h) || !end_lost_blocks(h)))
		return no_memory(file, err);
	if (p->unit == 1 || p->notes_without_place) {
		if (!sort_notes(h, p))
			return no_memory(file, err);
		place_notes(h);
	} else if (!notes_make_sense(h)) {
		return clv_error_set(err, "%s: device %d: notes that do not fit the events", file, h->device);
	}
	for (uint32_t i = 0; p->unit == 1 && i < h->event_count; i++)
		h->events[i].time_us /= 1000;
	for (uint32_t i = 0; p->unit == 1 && i < h->note_count; i++)
		h->notes[i].time_us /= 1000;
	return true;
}
