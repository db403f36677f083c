/* SPDX-License-Identifier: MIT
 *
 * heap_history: what a heap tells its observer, made into the history that a recording of it would be. For one device and one
 * thread.
 */
#ifndef CLV_HEAP_HISTORY_H
#define CLV_HEAP_HISTORY_H

#include "../src/heap/observer.h"
#include "../tracing/memory.h"
#include "../tracing/trace.h"
#include "heap_rig.h"

#include <cleave/plan.h>

#include <check.h>
#include <string.h>

struct heap_history {
	struct clv_observer observer;
	struct clv_trace *trace;
	struct clv_history *h;
	size_t event_cap, slack_cap, note_cap;
	uint64_t now_us;
	bool deaf;
};

static inline uint32_t heap_history_stream(struct heap_history *t, cleave_stream s)
{
	if (memcmp(&s, &CLEAVE_STREAM_ANY, sizeof(s)) == 0)
		return clv_trace_stream(t->trace, UINT64_MAX);
	return clv_trace_stream(t->trace, s.id);
}

static inline void heap_history_event(struct heap_history *t, const struct clv_observed *w, enum clv_action action)
{
	struct clv_history *h = t->h;
	ck_assert(clv_mem_reserve(&h->events, &t->event_cap, h->event_count + (size_t)1, sizeof(*h->events)) &&
		  clv_mem_reserve(&h->slack, &t->slack_cap, h->event_count + (size_t)1, sizeof(*h->slack)));
	h->slack[h->event_count] = action == CLV_ACTION_ALLOC ? (uint32_t)(w->a - w->size) : 0;
	h->events[h->event_count++] = (struct clv_event_record){
		.time_us = t->now_us,
		.addr = w->addr,
		.size = w->size,
		.stream = heap_history_stream(t, w->stream),
		.action = (uint8_t)action,
	};
}

static inline void heap_history_note(struct heap_history *t, const struct clv_observed *w)
{
	struct clv_history *h = t->h;
	ck_assert(clv_mem_reserve(&h->notes, &t->note_cap, h->note_count + (size_t)1, sizeof(*h->notes)));
	h->notes[h->note_count++] = (struct clv_note){.time_us = t->now_us,
						      .addr = w->addr,
						      .size = w->size,
						      .a = w->a,
						      .b = w->b,
						      .event = h->event_count,
						      .stream = CLV_NO_STREAM,
						      .text = CLV_NO_TEXT,
						      .kind = (uint16_t)w->event};
}

static inline void heap_history_tell(struct clv_observer *self, const struct clv_observed *w)
{
	struct heap_history *t = CLV_CONTAINER_OF(self, struct heap_history, observer);
	if (t->deaf)
		return;
	t->now_us++;
	if (w->event == CLV_EVENT_ALLOC || w->event == CLV_EVENT_FREE) {
		heap_history_event(t, w, w->event == CLV_EVENT_ALLOC ? CLV_ACTION_ALLOC : CLV_ACTION_FREE_COMPLETED);
		return;
	}
	if (w->event == CLV_EVENT_FAIL)
		heap_history_event(t, w, CLV_ACTION_OOM);
	heap_history_note(t, w);
}

static inline void heap_history_open(struct heap_history *t)
{
	*t = (struct heap_history){.observer = {heap_history_tell}};
	t->trace = clv_mem_zalloc(1, sizeof(*t->trace));
	t->trace->format = CLV_FORMAT_CLV;
	t->trace->file = clv_mem_strndup("heap", 4);
	t->trace->stacks = clv_mem_zalloc(1, sizeof(*t->trace->stacks));
	t->trace->stack_count = 1;
	t->trace->histories = clv_mem_zalloc(1, sizeof(*t->trace->histories));
	t->trace->history_count = 1;
	t->h = t->trace->histories;
}

/* What was told is complete. */
static inline void heap_history_link(struct heap_history *t)
{
	struct clv_error err = {{0}};
	t->deaf = true;
	ck_assert_msg(clv_history_link(t->trace, t->h, &err), "%s", err.text);
}

/* ---- the work that is told ---- */

#define HEAP_HISTORY_STEPS 3000
#define HEAP_HISTORY_QUIET 100 /* after so many steps all work is done, and the heap has reason to look */

static inline bool heap_history_reserves(const char *settings)
{
	return settings && strstr(settings, "reserve");
}

/* A heap for the steps; reservations in the settings are of 3 and 5 MiB. */
static inline void heap_history_begin(struct rig *r, struct clv_observer *observer, uint64_t seed, const char *settings,
				      bool manual)
{
	rig_open(r, &(struct rig_config){.seed = seed,
					 .settings = settings,
					 .capacity = 192 * CLV_MIB,
					 .streams = 4,
					 .manual = manual,
					 .faults_expected = heap_history_reserves(settings)});
	clv_heap_observe(r->heap, observer);
}

/* Step i, from 0 on, at random. True after those that leave nothing pending. */
static inline bool heap_history_step(struct rig *r, int i)
{
	bool quiet = i % HEAP_HISTORY_QUIET == HEAP_HISTORY_QUIET - 1;
	if (heap_history_reserves(r->config.settings) && i % 7 == 0 && r->count < 300)
		rig_alloc(r, 1 + (unsigned)i % 3, i % 2 ? 3 * CLV_MIB : 5 * CLV_MIB);
	rig_step(r, 96 * CLV_MIB);
	for (unsigned k = 1; quiet && k <= r->config.streams; k++)
		rig_complete(r, k);
	if (quiet)
		rig_trim(r, 0);
	return quiet;
}

static inline void heap_history_end(struct rig *r)
{
	rig_free_all(r);
	cleave_reserve_end(r->heap, 0, 0);
	rig_close(r);
}

#endif
