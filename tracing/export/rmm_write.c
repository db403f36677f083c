/* SPDX-License-Identifier: MIT
 *
 * Writes logs of RMM. Such a log holds requests, frees and failures of one device, each with its thread, time of day,
 * address, size and stream; nothing else of a trace. The time of day is that of the recorded process, if its clock was
 * recorded, in UTC; else times are written as if they counted from midnight. RMM has no word for a free that waits for other streams: the row
 * of a free is written where it is complete. Blocks from before the window are allocated in rows of their own at the
 * top, as RMM's replay expects no free of what was never allocated; frees that nothing explains are left out.
 */
#include "export.h"
#include "sink.h"

#include <string.h>

#define DAY_US ((uint64_t)86400 * 1000000)

struct row {
	const char *action;
	uint64_t time_us, addr, size, stream;
	uint32_t thread;
};

static char *put_text(char *to, const char *text)
{
	size_t len = strlen(text);
	memcpy(to, text, len);
	return to + len;
}

static char *put_decimal(char *to, uint64_t v, unsigned least)
{
	char digits[20];
	unsigned n = 0;
	do {
		digits[n++] = (char)('0' + v % 10);
		v /= 10;
	} while (v || n < least);
	while (n)
		*to++ = digits[--n];
	return to;
}

static char *put_hex(char *to, uint64_t v)
{
	for (int shift = v ? (int)(clv_log2(v) / 4 * 4) : 0; shift >= 0; shift -= 4)
		*to++ = "0123456789abcdef"[v >> shift & 15];
	return to;
}

/* There may be millions of rows, and printf is ten times slower. */
static void put_row(struct clv_sink *s, const struct row *r)
{
	char *from = clv_sink_room(s, 160), *to = put_decimal(from, r->thread, 1);
	uint64_t us = r->time_us % DAY_US, seconds = us / 1000000;
	*to++ = ',';
	to = put_decimal(to, seconds / 3600, 2);
	*to++ = ':';
	to = put_decimal(to, seconds / 60 % 60, 2);
	*to++ = ':';
	to = put_decimal(to, seconds % 60, 2);
	*to++ = '.';
	to = put_decimal(to, us % 1000000, 6);
	*to++ = ',';
	to = put_text(to, r->action);
	to = r->addr ? put_hex(put_text(to, ",0x"), r->addr) : put_text(to, ",(nil)");
	*to++ = ',';
	to = put_decimal(to, r->size, 1);
	*to++ = ',';
	to = put_decimal(to, r->stream, 1);
	*to++ = '\n';
	s->len += (size_t)(to - from);
}

/* To be added to times of the trace: they are of a clock that began anywhere, and one note says what day it was then. */
static uint64_t clock_offset(const struct clv_trace *t)
{
	for (uint32_t d = 0; d < t->history_count; d++)
		for (uint32_t i = 0; i < t->histories[d].note_count; i++) {
			const struct clv_note *n = &t->histories[d].notes[i];
			if (n->kind == CLV_EVENT_PROCESS)
				return n->b / 1000 - n->time_us; /* may wrap, and comes back */
		}
	return 0;
}

static void write_rows(struct clv_sink *s, const struct clv_trace *t, const struct clv_history *h)
{
	const uint64_t offset = clock_offset(t);
	clv_sink_text(s, "Thread,Time,Action,Pointer,Size,Stream\n");
	for (uint32_t i = 0; i < h->initial_count; i++) {
		const struct clv_initial_block *b = &h->initial[i];
		if (b->addr == 0) {
			clv_sink_fail(s, "device %d: a block at address 0, which no RMM log can hold", h->device);
			return;
		}
		put_row(s, &(struct row){.action = "allocate",
					 .time_us = offset + (h->event_count ? h->events[0].time_us : 0),
					 .addr = b->addr,
					 .size = b->size,
					 .stream = t->streams[b->stream]});
	}
	for (uint32_t i = 0; i < h->event_count && !clv_sink_failed(s); i++) {
		const struct clv_event_record *e = &h->events[i];
		struct row r = {.time_us = offset + e->time_us,
				.addr = e->addr,
				.size = e->size,
				.stream = t->streams[e->stream],
				.thread = h->threads ? h->threads[i] : 0};
		switch (e->action) {
		case CLV_ACTION_ALLOC:
			r.action = "allocate";
			if (e->addr == 0 && e->size) {
				clv_sink_fail(
					s, "device %d, event %u: an allocation at address 0, which no RMM log can hold",
					h->device, i);
				return;
			}
			break;
		case CLV_ACTION_FREE_COMPLETED:
			if (e->block == CLV_NO_BLOCK)
				continue;
			r.action = "free";
			break;
		case CLV_ACTION_OOM:
			r.action = "allocate failure";
			r.addr = 0;
			break;
		default:
			continue;
		}
		put_row(s, &r);
	}
}

bool clv_export_rmm(const struct clv_trace *trace, const struct clv_history *history, const char *path,
		    struct clv_error *err)
{
	struct clv_sink s;
	if (!clv_sink_begin(&s, path, err))
		return false;
	write_rows(&s, trace, history);
	return clv_sink_end(&s);
}
