/* SPDX-License-Identifier: MIT
 *
 * report_rig: histories made by hand, an event or a note at a time, for tests of the analysis. A trace belongs to its test.
 */
#ifndef CLV_REPORT_RIG_H
#define CLV_REPORT_RIG_H

#include "../tracing/memory.h"
#include "../tracing/report/report.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

struct rig {
	struct clv_trace *trace;
	struct clv_history *h;
	size_t event_cap, note_cap, stack_cap, frame_cap, string_cap;
	uint64_t now_us;
};

/* Every step is so much later than the one before. */
#define RIG_STEP_US 1000000u

#define RIG_BASE ((uint64_t)1 << 40) /* an address */

static inline struct rig rig_open(void)
{
	struct rig r = {.trace = clv_mem_zalloc(1, sizeof(*r.trace)), .now_us = 1000 * (uint64_t)RIG_STEP_US};
	ck_assert(r.trace != NULL);
	r.trace->file = clv_mem_strndup("rig", 3);
	r.trace->format = CLV_FORMAT_TORCH;
	r.trace->histories = clv_mem_zalloc(4, sizeof(*r.trace->histories));
	r.trace->history_count = 1;
	r.h = &r.trace->histories[0];
	ck_assert(clv_trace_stream(r.trace, 0) == 0);
	r.trace->stacks = clv_mem_zalloc(1, sizeof(*r.trace->stacks));
	r.trace->stack_count = r.stack_cap = 1;
	ck_assert(r.trace->file && r.trace->histories && r.trace->stacks);
	return r;
}

/* PyTorch's default settings, so that sizes given are known. */
static inline void rig_settings(struct rig *r, const char *conf)
{
	r->trace->torch.present = true;
	r->trace->torch.conf = clv_mem_strndup(conf, strlen(conf));
	r->trace->torch.max_split_size = -1;
	r->trace->torch.expandable = strstr(conf, "expandable_segments:True") != NULL;
}

static inline void rig_event(struct rig *r, enum clv_action action, uint64_t addr, uint64_t size, uint32_t stream,
			     uint32_t stack)
{
	ck_assert(clv_mem_reserve(&r->h->events, &r->event_cap, r->h->event_count + (size_t)1, sizeof(*r->h->events)));
	r->h->events[r->h->event_count++] = (struct clv_event_record){.time_us = r->now_us,
								      .addr = addr,
								      .size = size,
								      .stream = stream,
								      .block = CLV_NO_BLOCK,
								      .stack = stack,
								      .action = (uint8_t)action};
	r->now_us += RIG_STEP_US;
}

static inline void rig_alloc(struct rig *r, uint64_t addr, uint64_t size, uint32_t stack)
{
	rig_event(r, CLV_ACTION_ALLOC, addr, size, 0, stack);
}

static inline void rig_free(struct rig *r, uint64_t addr, uint64_t size)
{
	rig_event(r, CLV_ACTION_FREE_COMPLETED, addr, size, 0, CLV_NO_STACK);
}

static inline uint32_t rig_string(struct rig *r, const char *text)
{
	ck_assert(clv_mem_reserve(&r->trace->strings, &r->string_cap, r->trace->string_count + (size_t)1,
				  sizeof(*r->trace->strings)));
	r->trace->strings[r->trace->string_count] = clv_mem_strndup(text, strlen(text));
	return r->trace->string_count++;
}

/* Adds a frame to a stack, which is the last one, or with `stack` 0 a new one. Returns the stack. */
static inline uint32_t rig_stack(struct rig *r, uint32_t stack, const char *file, uint32_t line, const char *function)
{
	struct clv_trace *t = r->trace;
	if (!stack) {
		ck_assert(clv_mem_reserve(&t->stacks, &r->stack_cap, t->stack_count + (size_t)1, sizeof(*t->stacks)));
		t->stacks[t->stack_count++] = (struct clv_stack_record){t->stack_frame_count, 0};
	}
	ck_assert(clv_mem_reserve(&t->stack_frames, &r->frame_cap, t->stack_frame_count + (size_t)1,
				  sizeof(*t->stack_frames)));
	struct clv_frame_record f = {.file = rig_string(r, file), .function = rig_string(r, function), .line = line};
	t->stack_frames[t->stack_frame_count++] = f;
	t->stacks[t->stack_count - 1].count++;
	return t->stack_count - 1;
}

static inline void rig_note_full(struct rig *r, struct clv_note note)
{
	note.time_us = r->now_us;
	note.event = r->h->event_count;
	note.stream = CLV_NO_STREAM;
	ck_assert(clv_mem_reserve(&r->h->notes, &r->note_cap, r->h->note_count + (size_t)1, sizeof(*r->h->notes)));
	r->h->notes[r->h->note_count++] = note;
	r->now_us += RIG_STEP_US;
}

static inline void rig_note(struct rig *r, enum clv_event kind, uint64_t addr, uint64_t size, uint64_t a, uint64_t b)
{
	rig_note_full(r,
		      (struct clv_note){
			      .kind = (uint16_t)kind, .addr = addr, .size = size, .a = a, .b = b, .text = CLV_NO_TEXT});
}

static inline void rig_mark(struct rig *r, const char *text)
{
	rig_note_full(r, (struct clv_note){.kind = CLV_EVENT_MARK, .text = rig_string(r, text)});
}

static inline void rig_link(struct rig *r)
{
	struct clv_error err = {{0}};
	ck_assert_msg(clv_history_link(r->trace, r->h, &err), "%s", err.text);
}

/* The report of it alone. */
static inline struct clv_report *rig_report(struct rig *r, const struct clv_report_options *options)
{
	const struct clv_report_options none = {0};
	struct clv_error err = {{0}};
	static const struct clv_trace *trace; /* the report points at it */
	trace = r->trace;
	rig_link(r);
	struct clv_report *report = clv_report_make(&trace, 1, options ? options : &none, &err);
	ck_assert_msg(report != NULL, "%s", err.text);
	ck_assert_uint_eq(report->device_count, 1);
	return report;
}

static inline void rig_close(struct rig *r, struct clv_report *report)
{
	clv_report_free(report);
	clv_trace_free(r->trace);
}

static inline const struct clv_report_moment *rig_moment(const struct clv_report *report, enum clv_moment_kind kind)
{
	const struct clv_report_device *d = &report->devices[0];
	for (uint32_t i = 0; i < d->moment_count; i++)
		if (d->moments[i].kind == kind)
			return &d->moments[i];
	ck_abort_msg("no moment %s", clv_moment_name(kind));
	return NULL;
}

/* live, internal, reservation, stream, hard, soft */
static inline void rig_assert_sum(const struct clv_report_sum *s, const uint64_t (*bytes)[CLV_CAUSE_COUNT])
{
	uint64_t all = 0;
	for (int c = 0; c < CLV_CAUSE_COUNT; c++) {
		ck_assert_msg(s->of[c] == (*bytes)[c], "%s: %llu, not %llu", clv_cause_name((enum clv_cause)c),
			      (unsigned long long)s->of[c], (unsigned long long)(*bytes)[c]);
		all += s->of[c];
	}
	ck_assert_uint_eq(all, s->held);
}

#define RIG_ASSERT_SUM(sum, ...) rig_assert_sum((sum), &(const uint64_t[CLV_CAUSE_COUNT]){__VA_ARGS__})

static inline const struct clv_report_group *rig_group_of(const struct clv_report_moment *m, uint32_t stack)
{
	for (uint32_t g = 0; g < m->groups_kept; g++)
		if (m->groups[g].stack == stack)
			return &m->groups[g];
	ck_abort_msg("no group of stack %u", stack);
	return NULL;
}

static inline void rig_segment(struct rig *r, uint64_t addr, uint64_t size)
{
	rig_event(r, CLV_ACTION_SEGMENT_ALLOC, addr, size, 0, CLV_NO_STACK);
}

/* Three segments of 40 MiB: one pinned by A alone, one by A and B, one by B alone. */
static inline void rig_pinned_pattern(struct rig *r, uint32_t a, uint32_t b)
{
	for (uint64_t i = 0; i < 3; i++)
		rig_segment(r, RIG_BASE + i * 100 * CLV_MIB, 40 * CLV_MIB);
	rig_alloc(r, RIG_BASE, 4 * CLV_MIB, a);                  /* leaves 36 */
	rig_alloc(r, RIG_BASE + 100 * CLV_MIB, 10 * CLV_MIB, a); /* leaves 30, */
	rig_alloc(r, RIG_BASE + 110 * CLV_MIB, 6 * CLV_MIB, b);  /* and then 24 */
	rig_alloc(r, RIG_BASE + 200 * CLV_MIB, 32 * CLV_MIB, b); /* leaves 8 */
}

#endif
