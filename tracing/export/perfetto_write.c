/* SPDX-License-Identifier: MIT
 *
 * Writes Chrome's JSON of traces ("Trace Event Format"), which ui.perfetto.dev and chrome://tracing show. A device is a
 * process in it:
 *
 *   counters   allocated and, where the trace says what was held, reserved, largest_free, stranded (gauges.h)
 *   blocks     an asynchronous slice from a block's allocation to its free's completion, in a track for each power of
 *              two of sizes
 *   failures   an instant each, with the state at that moment where it was recorded
 *   phases     and other notes: perfetto_notes.c
 *
 * Viewers hold all of a file in memory, so it is kept within bounds. Of a history of more than COUNTERS_MAX events and notes one
 * sample in so many is written: that of the most allocated bytes among them. Of more than BLOCKS_MAX blocks the
 * largest are written. What was left out stands in `otherData`. Times are those of the trace, in microseconds; one that
 * goes back is taken as the one before.
 */
#include "export.h"

#include "../json_text.h"
#include "../memory.h"
#include "gauges.h"
#include "perfetto_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COUNTERS_MAX 100000u
#define BLOCKS_MAX 100000u
#define FRAMES_MAX 8u /* the innermost ones of a stack */

bool clv_perfetto_no_memory(struct clv_perfetto *w)
{
	return clv_sink_fail(&w->sink, "out of host memory");
}

static int to_sink(const char *text, size_t len, void *sink)
{
	clv_sink_write(sink, text, len);
	return 0;
}

void clv_perfetto_text(struct clv_perfetto *w, const char *text)
{
	json_t *j = clv_json_text(text);
	if (!j || json_dump_callback(j, to_sink, &w->sink, JSON_ENCODE_ANY | JSON_COMPACT) != 0)
		clv_perfetto_no_memory(w);
	json_decref(j);
}

void clv_perfetto_begin(struct clv_perfetto *w, char kind, uint64_t time_us)
{
	w->time_us = clv_max_u64(w->time_us, clv_min_u64(time_us, INT64_MAX)); /* more no reader's integers hold */
	clv_sink_printf(&w->sink, "%s{\"ph\":\"%c\",\"pid\":%d,\"ts\":%" PRIu64, w->any ? ",\n" : "\n", kind, w->pid,
			w->time_us);
	w->any = true;
}

void clv_perfetto_stack(struct clv_perfetto *w, uint32_t stack)
{
	const struct clv_stack_record *s = &w->trace->stacks[stack];
	if (!s->count)
		return;
	clv_sink_text(&w->sink, ",\"stack\":[");
	for (uint32_t i = 0; i < s->count && i < FRAMES_MAX; i++) {
		const struct clv_frame_record *f = &w->trace->stack_frames[s->first + i];
		clv_sink_text(&w->sink, i ? ",{\"function\":" : "{\"function\":");
		clv_perfetto_text(w, w->trace->strings[f->function]);
		clv_sink_text(&w->sink, ",\"file\":");
		clv_perfetto_text(w, w->trace->strings[f->file]);
		clv_sink_printf(&w->sink, ",\"line\":%u}", f->line);
	}
	clv_sink_text(&w->sink, "]");
}

static void put_name(struct clv_perfetto *w)
{
	clv_perfetto_begin(w, 'M', 0);
	clv_sink_printf(&w->sink, ",\"name\":\"process_name\",\"args\":{\"name\":\"device %d\"}}", w->h->device);
}

static void put_counter(struct clv_perfetto *w, const char *name, uint64_t time_us, uint64_t before, uint64_t bytes)
{
	if (w->sampled && before == bytes)
		return;
	clv_perfetto_begin(w, 'C', time_us);
	clv_sink_printf(&w->sink, ",\"name\":\"%s\",\"args\":{\"bytes\":%" PRIu64 "}}", name,
			clv_min_u64(bytes, INT64_MAX));
}

void clv_perfetto_thread(struct clv_perfetto *w, uint32_t thread)
{
	if (thread)
		clv_sink_printf(&w->sink, ",\"thread\":%" PRIu32, thread);
}

static struct clv_perfetto_sample read_gauges(const struct clv_gauges *g, uint64_t time_us)
{
	return (struct clv_perfetto_sample){time_us, g->allocated, g->reserved, g->largest_free, g->stranded};
}

static void put_sample(struct clv_perfetto *w, const struct clv_gauges *g, struct clv_perfetto_sample s)
{
	put_counter(w, "allocated", s.time_us, w->written.allocated, s.allocated);
	if (g->has_frames) {
		put_counter(w, "reserved", s.time_us, w->written.reserved, s.reserved);
		put_counter(w, "largest_free", s.time_us, w->written.largest_free, s.largest_free);
		put_counter(w, "stranded", s.time_us, w->written.stranded, s.stranded);
	}
	w->written = s;
	w->sampled = true;
}

static void put_counters(struct clv_perfetto *w)
{
	const struct clv_history *h = w->h;
	struct clv_gauges g;
	struct clv_perfetto_sample best = {0};
	uint64_t steps = (uint64_t)h->event_count + h->note_count, time_us;
	w->stride = (uint32_t)(steps / COUNTERS_MAX + 1);
	w->sampled = false;
	w->time_us = 0;
	bool ok = clv_gauges_begin(&g, w->trace, h, NULL);
	if (ok && clv_state_next_time(&g.state, &time_us))
		put_sample(w, &g, read_gauges(&g, time_us));
	for (uint64_t i = 0; ok && clv_state_next_time(&g.state, &time_us) && !clv_sink_failed(&w->sink); i++) {
		ok = clv_gauges_step(&g);
		struct clv_perfetto_sample now = read_gauges(&g, time_us);
		if (i % w->stride == 0 || now.allocated > best.allocated)
			best = now;
		if ((i + 1) % w->stride == 0)
			put_sample(w, &g, best);
		if (i + 1 == steps)
			put_sample(w, &g, now);
	}
	clv_gauges_end(&g);
	if (!ok)
		clv_perfetto_no_memory(w);
}

static int largest_first(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x > y ? -1 : x < y;
}

/* Which blocks are written: all, or the largest ones, and of one size the first ones. */
static bool choose_blocks(struct clv_perfetto *w, const uint64_t *sizes, bool *chosen)
{
	const uint32_t count = w->h->block_count;
	uint32_t left = BLOCKS_MAX;
	uint64_t least = 0;
	if (count > BLOCKS_MAX) {
		uint64_t *sorted = clv_mem_realloc(NULL, count, sizeof(*sorted));
		if (!sorted)
			return clv_perfetto_no_memory(w);
		memcpy(sorted, sizes, count * sizeof(*sorted));
		qsort(sorted, count, sizeof(*sorted), largest_first);
		least = sorted[BLOCKS_MAX - 1];
		for (uint32_t i = 0; i < BLOCKS_MAX && sorted[i] > least; i++)
			left--;
		clv_mem_free(sorted);
	}
	for (uint32_t i = 0; i < count; i++) {
		chosen[i] = sizes[i] > least || (sizes[i] == least && left > 0);
		if (sizes[i] == least && left > 0)
			left--;
		w->blocks += chosen[i];
		w->blocks_left_out += !chosen[i];
	}
	return true;
}

/* "16 MiB to 32 MiB", in the letters of whole powers of two. */
static void put_class(struct clv_perfetto *w, uint64_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned low = size ? clv_log2(size) : 0, high = low + 1;
	clv_sink_printf(&w->sink, ",\"cat\":\"block\",\"name\":\"%u %s to %u %s\"", 1u << low % 10, units[low / 10],
			1u << high % 10, units[high / 10]);
}

static void put_block(struct clv_perfetto *w, char kind, uint64_t time_us, uint32_t block, uint64_t size)
{
	clv_perfetto_begin(w, kind, time_us);
	put_class(w, size);
	clv_sink_printf(&w->sink, ",\"id2\":{\"local\":\"0x%x\"}", block);
}

/* What is told of a block where it begins. */
struct block_args {
	uint64_t addr, size;
	uint64_t slack; /* bytes that it takes beyond; UINT64_MAX: not known */
	uint32_t stream, stack, thread;
};

static void begin_block(struct clv_perfetto *w, uint64_t time_us, uint32_t block, struct block_args a)
{
	put_block(w, 'b', time_us, block, a.size);
	clv_sink_printf(&w->sink, ",\"args\":{\"bytes\":%" PRIu64, a.size);
	if (a.slack != UINT64_MAX)
		clv_sink_printf(&w->sink, ",\"takes\":%" PRIu64, a.size + a.slack);
	clv_sink_printf(&w->sink, ",\"address\":\"0x%" PRIx64 "\",\"stream\":\"0x%" PRIx64 "\"", a.addr,
			w->trace->streams[a.stream]);
	clv_perfetto_thread(w, a.thread);
	clv_perfetto_stack(w, a.stack);
	clv_sink_text(&w->sink, "}}");
}

static uint32_t thread_of(const struct clv_history *h, uint32_t event)
{
	return h->threads ? h->threads[event] : 0;
}

/* The note of a failure, which is an event too; NULL: there is none. */
static const struct clv_note *failure_note(struct clv_perfetto *w, const struct clv_event_record *e)
{
	const struct clv_history *h = w->h;
	for (; w->fail_note < h->note_count && h->notes[w->fail_note].time_us <= e->time_us; w->fail_note++) {
		const struct clv_note *n = &h->notes[w->fail_note];
		if (n->kind == CLV_EVENT_FAIL && n->time_us == e->time_us && n->size == e->size)
			return &h->notes[w->fail_note++];
	}
	return NULL;
}

static void put_failure(struct clv_perfetto *w, uint32_t event)
{
	const struct clv_event_record *e = &w->h->events[event];
	const struct clv_note *n = failure_note(w, e);
	clv_perfetto_begin(w, 'i', e->time_us);
	clv_sink_printf(
		&w->sink,
		",\"s\":\"p\",\"tid\":0,\"cat\":\"failure\",\"name\":\"out of memory\",\"args\":{\"requested\":%" PRIu64
		",\"device_free\":%" PRIu64,
		e->size, clv_min_u64(e->addr, INT64_MAX));
	if (n) {
		clv_sink_printf(&w->sink, ",\"failure\":%" PRIu64 ",\"largest_hole\":%" PRIu64,
				clv_min_u64(n->a, INT64_MAX), clv_min_u64(n->b, INT64_MAX));
		clv_sink_text(&w->sink, ",\"state\":");
		clv_perfetto_text(w, n->text == CLV_NO_TEXT ? "" : w->trace->strings[n->text]);
	}
	clv_perfetto_thread(w, thread_of(w->h, event));
	clv_perfetto_stack(w, e->stack);
	clv_sink_text(&w->sink, "}}");
}

/* Blocks and failures in the order of the events. `sizes` has 0 for a block that has ended or was not chosen. */
static void put_blocks(struct clv_perfetto *w, uint64_t *sizes, const bool *chosen)
{
	const struct clv_history *h = w->h;
	w->time_us = 0;
	w->fail_note = 0;
	for (uint32_t i = 0; i < h->initial_count; i++) {
		const struct clv_initial_block *b = &h->initial[i];
		if (chosen[i])
			begin_block(w, h->event_count ? h->events[0].time_us : 0, i,
				    (struct block_args){.addr = b->addr,
							.size = b->size,
							.slack = UINT64_MAX,
							.stream = b->stream,
							.stack = CLV_NO_STACK});
	}
	for (uint32_t i = 0; i < h->event_count && !clv_sink_failed(&w->sink); i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->action == CLV_ACTION_OOM)
			put_failure(w, i);
		if (e->block == CLV_NO_BLOCK || !chosen[e->block])
			continue;
		if (e->action == CLV_ACTION_ALLOC)
			begin_block(w, e->time_us, e->block,
				    (struct block_args){.addr = e->addr,
							.size = e->size,
							.slack = h->slack ? h->slack[i] : UINT64_MAX,
							.stream = e->stream,
							.stack = e->stack,
							.thread = thread_of(h, i)});
		if (e->action == CLV_ACTION_FREE_COMPLETED && sizes[e->block]) {
			put_block(w, 'e', e->time_us, e->block, sizes[e->block]);
			clv_sink_text(&w->sink, "}");
			sizes[e->block] = 0;
		}
	}
	for (uint32_t i = 0; i < h->block_count && !clv_sink_failed(&w->sink); i++) {
		if (!chosen[i] || !sizes[i])
			continue;
		put_block(w, 'e', w->time_us, i, sizes[i]);
		clv_sink_text(&w->sink, ",\"args\":{\"live at the end\":true}}");
	}
}

static void put_lifetimes(struct clv_perfetto *w)
{
	const struct clv_history *h = w->h;
	uint64_t *sizes = clv_mem_zalloc(h->block_count, sizeof(*sizes));
	bool *chosen = clv_mem_zalloc(h->block_count, sizeof(*chosen));
	if (!sizes || !chosen) {
		clv_perfetto_no_memory(w);
	} else {
		for (uint32_t i = 0; i < h->initial_count; i++)
			sizes[i] = h->initial[i].size;
		for (uint32_t i = 0; i < h->event_count; i++)
			if (h->events[i].action == CLV_ACTION_ALLOC && h->events[i].block != CLV_NO_BLOCK)
				sizes[h->events[i].block] = h->events[i].size;
		if (choose_blocks(w, sizes, chosen))
			put_blocks(w, sizes, chosen);
	}
	clv_mem_free(sizes);
	clv_mem_free(chosen);
}

static void put_history(struct clv_perfetto *w)
{
	w->pid = w->h->device + 1;
	w->time_us = 0;
	put_name(w);
	put_counters(w);
	put_lifetimes(w);
	clv_perfetto_notes(w);
}

bool clv_export_perfetto(const struct clv_trace *trace, const char *path, struct clv_error *err)
{
	struct clv_perfetto w = {.trace = trace};
	uint32_t stride = 1;
	if (!clv_sink_begin(&w.sink, path, err))
		return false;
	clv_sink_text(&w.sink, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
	for (uint32_t i = 0; i < trace->history_count && !clv_sink_failed(&w.sink); i++) {
		w.h = &trace->histories[i];
		put_history(&w);
		stride = w.stride > stride ? w.stride : stride;
	}
	clv_sink_text(&w.sink, "\n],\"otherData\":{\"trace\":");
	clv_perfetto_text(&w, trace->file);
	clv_sink_printf(&w.sink,
			",\"blocks\":%" PRIu64 ",\"blocks_left_out\":%" PRIu64 ",\"instants_left_out\":%" PRIu64
			",\"events_per_sample\":%u}}\n",
			w.blocks, w.blocks_left_out, w.instants_left_out, stride);
	return clv_sink_end(&w.sink);
}
