/* SPDX-License-Identifier: MIT */
#include "planned.h"

#include "memory.h"

#include <stdio.h>
#include <string.h>

#define FIRST_ADDRESS ((uint64_t)1 << 45)
#define PLAN_FILE "plan" /* what frames say for their file */

/* A trace in the making. Every block has an address of its own: it is not said where an allocator put it. */
struct maker {
	struct clv_trace *t;
	struct clv_history *h;
	uint64_t events, blocks; /* counted first */
	uint64_t *addr;          /* of each block */
	uint32_t *stack;         /* of each block */
	uint64_t next_addr;
	const char *last_name, *last_role;
	uint32_t last_stack;
};

static bool count(void *arg, const struct clv_layers_event *e)
{
	struct maker *m = arg;
	m->events++;
	m->blocks += e->birth;
	return m->events <= CLV_PLANNED_EVENTS_MAX;
}

/* ---- stacks: one frame each, "TENSOR ROLE" ---- */

static uint32_t string(struct maker *m, const char *text)
{
	struct clv_trace *t = m->t;
	for (uint32_t i = 0; i < t->string_count; i++)
		if (!strcmp(t->strings[i], text))
			return i;
	char **grown = clv_mem_realloc(t->strings, t->string_count + 1, sizeof(*grown));
	if (!grown)
		return UINT32_MAX;
	t->strings = grown;
	t->strings[t->string_count] = clv_mem_strndup(text, strlen(text));
	return t->strings[t->string_count] ? t->string_count++ : UINT32_MAX;
}

static uint32_t new_stack(struct maker *m, uint32_t file, uint32_t function)
{
	struct clv_trace *t = m->t;
	struct clv_stack_record *stacks = clv_mem_realloc(t->stacks, t->stack_count + 1, sizeof(*stacks));
	if (!stacks)
		return UINT32_MAX;
	t->stacks = stacks;
	struct clv_frame_record *frames = clv_mem_realloc(t->stack_frames, t->stack_frame_count + 1, sizeof(*frames));
	if (!frames)
		return UINT32_MAX;
	t->stack_frames = frames;
	stacks[t->stack_count] = (struct clv_stack_record){t->stack_frame_count, 1};
	frames[t->stack_frame_count++] = (struct clv_frame_record){file, function, 0};
	return t->stack_count++;
}

static uint32_t stack_of(struct maker *m, const struct clv_layers_event *e)
{
	char text[128];
	if (e->name == m->last_name && e->role == m->last_role)
		return m->last_stack;
	snprintf(text, sizeof(text), "%s%s%s", e->name, *e->role ? " " : "", e->role);
	uint32_t file = string(m, PLAN_FILE), function = string(m, text);
	if (file == UINT32_MAX || function == UINT32_MAX)
		return UINT32_MAX;
	m->last_name = e->name;
	m->last_role = e->role;
	for (uint32_t i = 0; i < m->t->stack_frame_count; i++)
		if (m->t->stack_frames[i].function == function)
			return m->last_stack = i + 1; /* stacks have one frame each */
	return m->last_stack = new_stack(m, file, function);
}

/* ---- events ---- */

static bool add(void *arg, const struct clv_layers_event *e)
{
	struct maker *m = arg;
	struct clv_history *h = m->h;
	if (e->birth) {
		m->addr[e->block] = m->next_addr;
		m->next_addr += clv_align_up(e->bytes, CLV_GRAIN);
		m->stack[e->block] = stack_of(m, e);
		if (m->stack[e->block] == UINT32_MAX)
			return false;
	}
	h->events[h->event_count] = (struct clv_event_record){
		.time_us = h->event_count,
		.addr = m->addr[e->block],
		.size = e->bytes,
		.block = CLV_NO_BLOCK,
		.stack = m->stack[e->block],
		.action = e->birth ? CLV_ACTION_ALLOC : CLV_ACTION_FREE_COMPLETED,
	};
	h->event_count++;
	return true;
}

static struct clv_trace *empty_trace(uint64_t events)
{
	struct clv_trace *t = clv_mem_zalloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->format = CLV_FORMAT_CLV;
	t->torch.max_split_size = -1;
	t->file = clv_mem_strndup(PLAN_FILE, strlen(PLAN_FILE));
	t->torch.conf = clv_mem_strndup("", 0);
	t->stacks = clv_mem_zalloc(1, sizeof(*t->stacks));
	t->histories = clv_mem_zalloc(1, sizeof(*t->histories));
	bool ok = t->file && t->torch.conf && t->stacks && t->histories;
	if (ok) {
		t->stack_count = t->history_count = 1;
		t->histories->events = clv_mem_realloc(NULL, events, sizeof(*t->histories->events));
		ok = t->histories->events && clv_trace_stream(t, 0) == 0;
	}
	if (ok)
		return t;
	clv_trace_free(t);
	return NULL;
}

struct clv_trace *clv_planned_trace(const struct clv_layers *layers, struct clv_error *err)
{
	struct maker m = {.next_addr = FIRST_ADDRESS};
	bool ok = clv_layers_walk(layers, count, &m);
	if (ok && !m.events) {
		clv_error_set(err, "the plan asks for no memory: there is no history of it");
		return NULL;
	}
	if (m.events > CLV_PLANNED_EVENTS_MAX) {
		clv_error_set(err, "the history of the plan has more than %d events, which is the most that is written",
			      CLV_PLANNED_EVENTS_MAX);
		return NULL;
	}
	if (ok) {
		m.t = empty_trace(m.events);
		m.addr = clv_mem_realloc(NULL, m.blocks, sizeof(*m.addr));
		m.stack = clv_mem_realloc(NULL, m.blocks, sizeof(*m.stack));
		ok = m.t && m.addr && m.stack;
	}
	if (ok) {
		m.h = m.t->histories;
		ok = clv_layers_walk(layers, add, &m) && clv_history_link(m.t, m.h, err);
	}
	clv_mem_free(m.addr);
	clv_mem_free(m.stack);
	if (ok)
		return m.t;
	clv_error_set(err, "the history of the plan: out of host memory");
	clv_trace_free(m.t);
	return NULL;
}
