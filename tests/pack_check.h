/* SPDX-License-Identifier: MIT
 *
 * pack_check: whether a packing is what include/cleave/plan.h promises, told from that text and from nothing in src/plan.
 * A sweep over time with the intervals of memory that are taken: O(n log n) for n spans of life. One thread.
 */
#ifndef CLV_PACK_CHECK_H
#define CLV_PACK_CHECK_H

#include "../src/base/base.h"

#include <cleave/plan.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A buffer takes or leaves its memory. */
struct pack_event {
	int64_t time;
	uint32_t buffer;
	bool takes;
};

/* A treap of the buffers that hold memory, by offset. Those that are in it do not overlap. */
struct pack_node {
	uint32_t left, right; /* 0: none; a buffer's node is its index + 1 */
	uint64_t heap;
};

struct pack_sweep {
	const cleave_pack_buffer *buffers;
	const uint64_t *offsets;
	struct pack_node *nodes;
	uint32_t root;
	struct clv_rng rng;
};

static int pack_event_order(const void *va, const void *vb)
{
	const struct pack_event *a = va, *b = vb;
	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	if (a->takes != b->takes)
		return a->takes ? 1 : -1; /* what ends makes room for what begins at the same time */
	return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

/* *less: the nodes at offsets below `at`; *rest: the others. */
static inline void pack_split(struct pack_sweep *s, uint32_t node, uint64_t at, uint32_t *less, uint32_t *rest)
{
	while (node) {
		struct pack_node *n = &s->nodes[node];
		if (s->offsets[node - 1] < at) {
			*less = node;
			less = &n->right;
			node = n->right;
		} else {
			*rest = node;
			rest = &n->left;
			node = n->left;
		}
	}
	*less = *rest = 0;
}

static inline uint32_t pack_join(struct pack_sweep *s, uint32_t less, uint32_t rest)
{
	uint32_t root = 0, *to = &root;
	while (less && rest) {
		if (s->nodes[less].heap > s->nodes[rest].heap) {
			*to = less;
			to = &s->nodes[less].right;
			less = *to;
		} else {
			*to = rest;
			to = &s->nodes[rest].left;
			rest = *to;
		}
	}
	*to = less ? less : rest;
	return root;
}

/* The buffer whose memory overlaps that of `buffer`, which is then not taken; UINT32_MAX: none, and now it has it. */
static inline uint32_t pack_take(struct pack_sweep *s, uint32_t buffer)
{
	uint64_t from = s->offsets[buffer], to = from + s->buffers[buffer].size;
	uint32_t less = 0, rest = 0, other = UINT32_MAX, last, first;
	pack_split(s, s->root, from, &less, &rest);
	for (last = less; last && s->nodes[last].right;)
		last = s->nodes[last].right;
	for (first = rest; first && s->nodes[first].left;)
		first = s->nodes[first].left;
	if (last && s->offsets[last - 1] + s->buffers[last - 1].size > from)
		other = last - 1;
	else if (first && s->offsets[first - 1] < to)
		other = first - 1;
	if (other == UINT32_MAX) {
		s->nodes[buffer + 1] = (struct pack_node){.heap = clv_rng_next(&s->rng)};
		less = pack_join(s, less, buffer + 1);
	}
	s->root = pack_join(s, less, rest);
	return other;
}

static inline void pack_leave(struct pack_sweep *s, uint32_t buffer)
{
	uint32_t less = 0, mine = 0, rest = 0;
	pack_split(s, s->root, s->offsets[buffer], &less, &rest);
	pack_split(s, rest, s->offsets[buffer] + 1, &mine, &rest);
	s->root = pack_join(s, less, rest);
}

/* Whether there is a time at which the buffer holds memory. */
static inline bool pack_holds(const cleave_pack_buffer *b)
{
	uint64_t life = (uint64_t)b->upper - (uint64_t)b->lower;
	for (size_t g = 0; g < b->gap_count; g++)
		life -= (uint64_t)b->gaps[g].upper - (uint64_t)b->gaps[g].lower;
	return b->size && life;
}

/* Two for each span in which a buffer holds memory; returns their number, or SIZE_MAX if host memory is out. */
static inline size_t pack_events(const cleave_pack_buffer *buffers, size_t count, struct pack_event **out)
{
	size_t n = 0, room = 0;
	for (size_t i = 0; i < count; i++)
		room += 2 * (buffers[i].gap_count + 1);
	struct pack_event *events = *out = malloc((room + 1) * sizeof(*events));
	if (!events)
		return SIZE_MAX;
	for (size_t i = 0; i < count; i++) {
		const cleave_pack_buffer *b = &buffers[i];
		int64_t from = b->lower;
		for (size_t g = 0; b->size && g <= b->gap_count; g++) {
			int64_t to = g < b->gap_count ? b->gaps[g].lower : b->upper;
			if (from < to) {
				events[n++] = (struct pack_event){from, (uint32_t)i, true};
				events[n++] = (struct pack_event){to, (uint32_t)i, false};
			}
			if (g < b->gap_count)
				from = b->gaps[g].upper;
		}
	}
	qsort(events, n, sizeof(*events), pack_event_order);
	return n;
}

/* What a fixed set of buffers takes in itself: NULL if it fits together, else what is wrong. Good until the next call. */
static inline const char *pack_overlap(const cleave_pack_buffer *buffers, size_t count, const uint64_t *offsets)
{
	static _Thread_local char text[256];
	struct pack_event *events;
	size_t n = pack_events(buffers, count, &events);
	struct pack_sweep s = {.buffers = buffers, .offsets = offsets, .rng = {.state = 1}};
	s.nodes = calloc(count + 1, sizeof(*s.nodes));
	const char *wrong = n == SIZE_MAX || !s.nodes ? "out of host memory" : NULL;
	for (size_t e = 0; !wrong && e < n; e++) {
		uint32_t buffer = events[e].buffer, other;
		if (!events[e].takes) {
			pack_leave(&s, buffer);
		} else if ((other = pack_take(&s, buffer)) != UINT32_MAX) {
			snprintf(text, sizeof(text),
				 "at time %" PRId64 " buffers %" PRIu32 " at %" PRIu64 " + %" PRIu64 " and %" PRIu32
				 " at %" PRIu64 " + %" PRIu64 " overlap",
				 events[e].time, other, offsets[other], buffers[other].size, buffer, offsets[buffer],
				 buffers[buffer].size);
			wrong = text;
		}
	}
	free(events);
	free(s.nodes);
	return wrong;
}

/* The largest total that holds memory at one time. */
static inline uint64_t pack_load(const cleave_pack_buffer *buffers, size_t count)
{
	struct pack_event *events;
	size_t n = pack_events(buffers, count, &events);
	uint64_t load = 0, peak = 0;
	for (size_t e = 0; n != SIZE_MAX && e < n; e++) {
		uint64_t size = buffers[events[e].buffer].size;
		load = events[e].takes ? load + size : load - size;
		peak = clv_max_u64(peak, load);
	}
	free(events);
	return peak;
}

/* NULL if the packing and what is said of it hold, else what does not. Good until the next call. */
static inline const char *pack_wrong(const cleave_pack_buffer *buffers, size_t count, uint64_t capacity,
				     const uint64_t *offsets, const cleave_pack_result *r)
{
	static _Thread_local char text[256];
	uint64_t height = 0, top = 0; /* of those that hold memory at some time; of all */
	for (size_t i = 0; i < count; i++) {
		const cleave_pack_buffer *b = &buffers[i];
		bool fixed = b->offset != CLEAVE_PACK_ANYWHERE;
		uint64_t end;
		if (fixed && offsets[i] != b->offset)
			snprintf(text, sizeof(text), "buffer %zu lies at %" PRIu64 ", not at %" PRIu64, i, offsets[i],
				 b->offset);
		else if (!fixed && b->alignment && offsets[i] % b->alignment)
			snprintf(text, sizeof(text), "buffer %zu lies at %" PRIu64 ", no multiple of %" PRIu64, i,
				 offsets[i], b->alignment);
		else if (__builtin_add_overflow(offsets[i], b->size, &end))
			snprintf(text, sizeof(text), "buffer %zu at %" PRIu64 " has no end", i, offsets[i]);
		else {
			top = clv_max_u64(top, end);
			height = clv_max_u64(height, pack_holds(b) ? end : 0);
			continue;
		}
		return text;
	}
	if (r->height < height || r->height > clv_max_u64(top, height))
		snprintf(text, sizeof(text), "the height is %" PRIu64 ", not %" PRIu64, height, r->height);
	else if (r->lower_bound > r->height)
		snprintf(text, sizeof(text), "a bound of %" PRIu64 " is above the height, %" PRIu64, r->lower_bound, r->height);
	else if (!r->optimal != (r->height != r->lower_bound))
		snprintf(text, sizeof(text), "optimal is %d, the bound %" PRIu64 " and the height %" PRIu64, r->optimal,
			 r->lower_bound, r->height);
	else if (!r->fits != (capacity && r->height > capacity))
		snprintf(text, sizeof(text), "fits is %d, the capacity %" PRIu64 " and the height %" PRIu64, r->fits, capacity,
			 r->height);
	else
		return pack_overlap(buffers, count, offsets);
	return text;
}

#endif
