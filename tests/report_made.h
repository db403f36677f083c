/* SPDX-License-Identifier: MIT
 *
 * report_made: a made-up trace with all that a recorder notes: phases, marks, reservations, lost events, stacks.
 */
#ifndef CLV_REPORT_MADE_H
#define CLV_REPORT_MADE_H

#include "../tracing/memory.h"
#include "../tracing/synth.h"

#include <string.h>

#define SLOT (2 * CLV_MIB)

static const char *const made_texts[] = {
	"load",
	"convert <b>layer</b> 1",
	"half-way",
	"w13_weight",
	"python server.py --model \"k3\"",
	"reserve:2MiB*4",
	"NVIDIA",
	"forward",
	"model.py",
	"scratch",
	"libnative.so",
	"",
};
enum made_text {
	MADE_LOAD,
	MADE_CONVERT,
	MADE_HALF_WAY,
	MADE_W13,
	MADE_COMMAND,
	MADE_CONF,
	MADE_DEVICE,
	MADE_FORWARD,
	MADE_MODEL,
	MADE_SCRATCH,
	MADE_LIBRARY,
	MADE_NOTHING,
};

/* At a part of the history in thousandths. */
static inline void made_note(struct clv_history *h, uint32_t part, uint16_t kind, uint32_t text, uint64_t addr,
			     uint64_t size, uint64_t a, uint64_t b)
{
	uint32_t event = (uint32_t)((uint64_t)h->event_count * part / 1000);
	h->notes[h->note_count++] = (struct clv_note){.time_us = h->events[event].time_us,
						      .event = event,
						      .kind = kind,
						      .text = text,
						      .stream = CLV_NO_STREAM,
						      .addr = addr,
						      .size = size,
						      .a = a,
						      .b = b};
}

static inline void made_notes(struct clv_history *h)
{
	uint64_t room = h->events[0].addr + ((uint64_t)1 << 40); /* where no block is */
	made_note(h, 0, CLV_EVENT_PROCESS, MADE_COMMAND, 4242, 1, 3, 1764547200000000000ull);
	made_note(h, 0, CLV_EVENT_SETTINGS, MADE_CONF, 0, 0, 0, 0);
	made_note(h, 0, CLV_EVENT_DEVICE, MADE_DEVICE, 0, 80 * CLV_GIB, 70 * CLV_GIB, 0);
	made_note(h, 0, CLV_EVENT_PHASE_BEGIN, MADE_LOAD, 0, 0, 0, 0);
	made_note(h, 2, CLV_EVENT_RESERVE, MADE_W13, 0, SLOT, 4, 1);
	for (uint64_t i = 0; i < 4; i++)
		made_note(h, 2, CLV_EVENT_RESERVE_HOLD, MADE_W13, room + i * SLOT, SLOT, SLOT, 0);
	made_note(h, 4, CLV_EVENT_RESERVE, MADE_SCRATCH, 0, CLV_MIB, 1, 0);
	made_note(h, 4, CLV_EVENT_RESERVE_HOLD, MADE_SCRATCH, room + 8 * SLOT, CLV_MIB, CLV_MIB, 0);
	made_note(h, 170, CLV_EVENT_PHASE_BEGIN, MADE_CONVERT, 0, 0, 0, 0);
	for (uint32_t i = 0; i < 3; i++)
		made_note(h, 340 + i, CLV_EVENT_RESERVE_SERVE, MADE_W13, room + i * SLOT, SLOT, SLOT, 0);
	made_note(h, 500, CLV_EVENT_MARK, MADE_HALF_WAY, 0, 0, 0, 0);
	made_note(h, 580, CLV_EVENT_RESERVE_YIELD, MADE_SCRATCH, room + 8 * SLOT, CLV_MIB, CLV_MIB, 1);
	made_note(h, 670, CLV_EVENT_PHASE_END, MADE_CONVERT, 0, 0, 0, 0);
	made_note(h, 750, CLV_EVENT_RESERVE_END, MADE_W13, 0, SLOT, 3, 2);
	made_note(h, 840, CLV_EVENT_DROPPED, CLV_NO_TEXT, 0, 77, 1, 0);
}

static inline bool made_decorate(struct clv_trace *t)
{
	struct clv_history *h = &t->histories[0];
	t->strings = clv_mem_zalloc(CLV_ARRAY_LEN(made_texts), sizeof(*t->strings));
	for (size_t i = 0; t->strings && i < CLV_ARRAY_LEN(made_texts); i++)
		t->strings[t->string_count++] = clv_mem_strndup(made_texts[i], strlen(made_texts[i]));
	clv_mem_free(t->stacks);
	t->stacks = clv_mem_zalloc(2, sizeof(*t->stacks));
	t->stack_frames = clv_mem_zalloc(2, sizeof(*t->stack_frames));
	h->notes = clv_mem_zalloc(64, sizeof(*h->notes));
	if (!t->strings || !t->stacks || !t->stack_frames || !h->notes)
		return false;
	t->stack_frames[0] = (struct clv_frame_record){.file = MADE_MODEL, .function = MADE_FORWARD, .line = 312};
	t->stack_frames[1] =
		(struct clv_frame_record){.file = MADE_LIBRARY, .function = MADE_NOTHING, .address = 0x1234};
	t->stack_frame_count = 2;
	t->stacks[1] = (struct clv_stack_record){0, 2};
	t->stack_count = 2;
	for (uint32_t i = 0; i < h->event_count; i++)
		h->events[i].stack = h->events[i].size > CLV_MIB ? 1 : CLV_NO_STACK;
	made_notes(h);
	return true;
}

/* NULL: out of host memory. */
static inline struct clv_trace *made_trace(uint32_t events)
{
	const struct clv_synth synth = {.events = events, .live = events / 20, .streams = 2, .seed = 20};
	struct clv_error err = {{0}};
	struct clv_trace *t = clv_synth_trace(&synth, &err);
	if (t && made_decorate(t))
		return t;
	clv_trace_free(t);
	return NULL;
}

#endif
