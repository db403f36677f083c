/* SPDX-License-Identifier: MIT
 *
 * export_same: whether a trace that was exported and imported again says the same, as far as the format holds it.
 * Numbers of streams, stacks and strings may differ, what they stand for may not.
 */
#ifndef CLV_EXPORT_SAME_H
#define CLV_EXPORT_SAME_H

#include "../tracing/trace.h"

#include <string.h>

#define SAME_UNLESS(what)                                                                                              \
	do {                                                                                                           \
		if (!(what))                                                                                           \
			return #what;                                                                                  \
	} while (0)

static inline const char *same_stack(const struct clv_trace *a, uint32_t x, const struct clv_trace *b, uint32_t y)
{
	const struct clv_stack_record *s = &a->stacks[x], *t = &b->stacks[y];
	SAME_UNLESS(s->count == t->count);
	for (uint32_t i = 0; i < s->count; i++) {
		const struct clv_frame_record *f = &a->stack_frames[s->first + i], *g = &b->stack_frames[t->first + i];
		SAME_UNLESS(f->line == g->line);
		SAME_UNLESS(strcmp(a->strings[f->file], b->strings[g->file]) == 0);
		SAME_UNLESS(strcmp(a->strings[f->function], b->strings[g->function]) == 0);
	}
	return NULL;
}

/* Addresses and sizes of what is no request are bounded when they are written. */
static inline uint64_t same_bounded(uint64_t v)
{
	return clv_min_u64(v, INT64_MAX);
}

static inline const char *same_state(const struct clv_trace *a, const struct clv_history *g, const struct clv_trace *b,
				     const struct clv_history *h, bool with_stacks)
{
	SAME_UNLESS(g->has_state == h->has_state && g->segment_count == h->segment_count);
	SAME_UNLESS(g->block_record_count == h->block_record_count);
	for (uint32_t i = 0; i < g->segment_count; i++) {
		const struct clv_segment_record *x = &g->segments[i], *y = &h->segments[i];
		SAME_UNLESS(x->addr == y->addr && x->size == y->size && a->streams[x->stream] == b->streams[y->stream]);
		SAME_UNLESS(x->small == y->small && x->expandable == y->expandable && x->blocks == y->blocks);
		SAME_UNLESS(g->pools[x->pool].a == h->pools[y->pool].a && g->pools[x->pool].b == h->pools[y->pool].b);
		const char *stack = with_stacks ? same_stack(a, x->stack, b, y->stack) : NULL;
		if (stack)
			return stack;
	}
	for (uint32_t i = 0; i < g->block_record_count; i++) {
		const struct clv_block_record *x = &g->blocks[i], *y = &h->blocks[i];
		SAME_UNLESS(x->addr == y->addr && x->size == y->size && x->requested == y->requested &&
			    x->state == y->state);
		const char *stack = with_stacks ? same_stack(a, x->stack, b, y->stack) : NULL;
		if (stack)
			return stack;
	}
	return NULL;
}

static inline const char *same_events(const struct clv_trace *a, const struct clv_history *g, const struct clv_trace *b,
				      const struct clv_history *h, bool with_stacks)
{
	SAME_UNLESS(g->device == h->device && g->event_count == h->event_count);
	for (uint32_t i = 0; i < g->event_count; i++) {
		const struct clv_event_record *x = &g->events[i], *y = &h->events[i];
		SAME_UNLESS(x->action == y->action && x->time_us == y->time_us && x->block == y->block);
		SAME_UNLESS(same_bounded(x->addr) == y->addr && same_bounded(x->size) == y->size);
		SAME_UNLESS(a->streams[x->stream] == b->streams[y->stream]);
		SAME_UNLESS((x->flags & CLV_EVENT_IMPLIED) == y->flags);
		SAME_UNLESS(g->pools[x->pool].a == h->pools[y->pool].a && g->pools[x->pool].b == h->pools[y->pool].b);
		const char *stack = with_stacks ? same_stack(a, x->stack, b, y->stack) : NULL;
		if (stack)
			return stack;
	}
	SAME_UNLESS(g->initial_count == h->initial_count && g->block_count == h->block_count);
	SAME_UNLESS(g->alloc_count == h->alloc_count && g->oom_count == h->oom_count);
	SAME_UNLESS(g->peak_live_bytes == h->peak_live_bytes && g->unmatched_frees == h->unmatched_frees);
	SAME_UNLESS(g->duration_s == h->duration_s);
	return NULL;
}

static inline const char *same_settings(const struct clv_torch_recorded *s, const struct clv_torch_recorded *t)
{
	SAME_UNLESS(s->present == t->present && s->has_probe == t->has_probe);
	if (s->present) {
		SAME_UNLESS(strcmp(s->conf, t->conf) == 0 && s->max_split_size == t->max_split_size);
		SAME_UNLESS(s->gc_threshold == t->gc_threshold && s->expandable == t->expandable);
		SAME_UNLESS(memcmp(s->roundup, t->roundup, sizeof(s->roundup)) == 0);
	}
	if (s->has_probe) {
		SAME_UNLESS(s->cap_mib == t->cap_mib && s->total_bytes == t->total_bytes && s->retries == t->retries);
		SAME_UNLESS(s->ooms == t->ooms && s->device_left_mib == t->device_left_mib);
	}
	return NULL;
}

/* b is a, written as a PyTorch snapshot and read again: the first difference, or NULL. `with_texts`: all texts are
 * UTF-8 and short. */
static inline const char *same_by_torch(const struct clv_trace *a, const struct clv_trace *b, bool with_texts)
{
	uint32_t j = 0;
	const char *why = same_settings(&a->torch, &b->torch);
	for (uint32_t i = 0; !why && i < a->history_count; i++) {
		const struct clv_history *h = &a->histories[i];
		if (h->event_count == 0 && h->segment_count == 0)
			continue; /* a snapshot has nothing to say of such a device */
		SAME_UNLESS(j < b->history_count);
		why = same_events(a, h, b, &b->histories[j], with_texts);
		why = why ? why : same_state(a, h, b, &b->histories[j], with_texts);
		j++;
	}
	SAME_UNLESS(why || j == b->history_count);
	return why;
}

/* h is g, written as an RMM log and read again. */
static inline const char *same_by_rmm(const struct clv_trace *a, const struct clv_history *g, const struct clv_trace *b,
				      const struct clv_history *h)
{
	uint32_t j = g->initial_count; /* these are allocated at the top */
	SAME_UNLESS(h->initial_count == 0 && h->event_count >= j);
	for (uint32_t i = 0; i < g->event_count; i++) {
		const struct clv_event_record *x = &g->events[i];
		bool held = x->action == CLV_ACTION_ALLOC || x->action == CLV_ACTION_OOM ||
			    (x->action == CLV_ACTION_FREE_COMPLETED && x->block != CLV_NO_BLOCK);
		if (!held)
			continue;
		SAME_UNLESS(j < h->event_count);
		const struct clv_event_record *y = &h->events[j++];
		SAME_UNLESS(x->action == y->action && x->size == y->size &&
			    a->streams[x->stream] == b->streams[y->stream]);
		SAME_UNLESS(x->action == CLV_ACTION_OOM || (x->addr == y->addr && x->block == y->block));
	}
	SAME_UNLESS(j == h->event_count && g->block_count == h->block_count && g->oom_count == h->oom_count);
	/* a completion that had to be inferred is written where the free was asked for */
	SAME_UNLESS(g->unmatched_frees || g->peak_live_bytes == h->peak_live_bytes);
	return NULL;
}

#endif
