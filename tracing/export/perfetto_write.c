/* SPDX-License-Identifier: MIT
 *
 * Writes Chrome's JSON of traces ("Trace Event Format"), which ui.perfetto.dev and chrome://tracing show. A device is a
 * process in it:
 *
 *   counters   allocated and, where the trace has segments, reserved, largest_free, stranded (gauges.h)
 *   blocks     an asynchronous slice from a block's allocation to its free's completion, in a track for each power of
 *              two of sizes
 *   phases     an asynchronous slice each, by name
 *   instants   failed requests, and the user's marks
 *
 * Viewers hold all of a file in memory, so it is kept within bounds. Of a history of more than COUNTERS_MAX events one
 * sample in so many events is written: that of the most allocated bytes among them. Of more than BLOCKS_MAX blocks the
 * largest are written. What was left out stands in `otherData`. Times are those of the trace, in microseconds; one that
 * goes back is taken as the one before.
 */
#include "export.h"

#include "../json_text.h"
#include "../memory.h"
#include "gauges.h"
#include "sink.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COUNTERS_MAX 100000u
#define BLOCKS_MAX 100000u
#define FRAMES_MAX 8u /* the innermost ones of a stack */

struct sample {
	uint64_t time_us, allocated, reserved, largest_free, stranded;
};

struct writer {
	struct clv_sink sink;
	const struct clv_trace *trace;
	const struct clv_history *h;
	int pid;
	bool any;              /* an event was written */
	uint64_t time_us;      /* of the last event of the pass */
	struct sample written; /* the last sample */
	bool sampled;
	uint32_t stride;
	uint64_t blocks, blocks_left_out;
	uint32_t next_phase;
};

static bool no_memory(struct writer *w)
{
	return clv_sink_fail(&w->sink, "out of host memory");
}

static int to_sink(const char *text, size_t len, void *sink)
{
	clv_sink_write(sink, text, len);
	return 0;
}

static void put_json_text(struct writer *w, const char *text)
{
	json_t *j = clv_json_text(text);
	if (!j || json_dump_callback(j, to_sink, &w->sink, JSON_ENCODE_ANY | JSON_COMPACT) != 0)
		no_memory(w);
	json_decref(j);
}

/* Begins an event: its kind, process, time, and what follows up to the closing brace is the caller's. */
static void begin(struct writer *w, char kind, uint64_t time_us)
{
	w->time_us = clv_max_u64(w->time_us, clv_min_u64(time_us, INT64_MAX)); /* more no reader's integers hold */
	clv_sink_printf(&w->sink, "%s{\"ph\":\"%c\",\"pid\":%d,\"ts\":%" PRIu64, w->any ? ",\n" : "\n", kind, w->pid,
			w->time_us);
	w->any = true;
}

static void put_stack(struct writer *w, uint32_t stack)
{
	const struct clv_stack_record *s = &w->trace->stacks[stack];
	if (!s->count)
		return;
	clv_sink_text(&w->sink, ",\"stack\":[");
	for (uint32_t i = 0; i < s->count && i < FRAMES_MAX; i++) {
		const struct clv_frame_record *f = &w->trace->stack_frames[s->first + i];
		clv_sink_text(&w->sink, i ? ",{\"function\":" : "{\"function\":");
		put_json_text(w, w->trace->strings[f->function]);
		clv_sink_text(&w->sink, ",\"file\":");
		put_json_text(w, w->trace->strings[f->file]);
		clv_sink_printf(&w->sink, ",\"line\":%u}", f->line);
	}
	clv_sink_text(&w->sink, "]");
}

static void put_name(struct writer *w)
{
	begin(w, 'M', 0);
	clv_sink_printf(&w->sink, ",\"name\":\"process_name\",\"args\":{\"name\":\"device %d\"}}", w->h->device);
}

static void put_counter(struct writer *w, const char *name, uint64_t time_us, uint64_t before, uint64_t bytes)
{
	if (w->sampled && before == bytes)
		return;
	begin(w, 'C', time_us);
	clv_sink_printf(&w->sink, ",\"name\":\"%s\",\"args\":{\"bytes\":%" PRIu64 "}}", name,
			clv_min_u64(bytes, INT64_MAX));
}

static struct sample read_gauges(const struct clv_gauges *g, uint64_t time_us)
{
	return (struct sample){time_us, g->allocated, g->reserved, g->largest_free, g->stranded};
}

static void put_sample(struct writer *w, const struct clv_gauges *g, struct sample s)
{
	put_counter(w, "allocated", s.time_us, w->written.allocated, s.allocated);
	if (g->has_segments) {
		put_counter(w, "reserved", s.time_us, w->written.reserved, s.reserved);
		put_counter(w, "largest_free", s.time_us, w->written.largest_free, s.largest_free);
		put_counter(w, "stranded", s.time_us, w->written.stranded, s.stranded);
	}
	w->written = s;
	w->sampled = true;
}

static void put_counters(struct writer *w)
{
	const struct clv_history *h = w->h;
	struct clv_gauges g;
	struct sample best = {0};
	w->stride = h->event_count / COUNTERS_MAX + 1;
	w->sampled = false;
	w->time_us = 0;
	bool ok = clv_gauges_begin(&g, h);
	if (ok && h->event_count)
		put_sample(w, &g, read_gauges(&g, h->events[0].time_us));
	for (uint32_t i = 0; ok && i < h->event_count && !clv_sink_failed(&w->sink); i++) {
		ok = clv_gauges_step(&g, i);
		struct sample now = read_gauges(&g, h->events[i].time_us);
		if (i % w->stride == 0 || now.allocated > best.allocated)
			best = now;
		if ((i + 1) % w->stride == 0)
			put_sample(w, &g, best);
		if (i + 1 == h->event_count)
			put_sample(w, &g, now);
	}
	clv_gauges_end(&g);
	if (!ok)
		no_memory(w);
}

static int largest_first(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x > y ? -1 : x < y;
}

/* Which blocks are written: all, or the largest ones, and of one size the first ones. */
static bool choose_blocks(struct writer *w, const uint64_t *sizes, bool *chosen)
{
	const uint32_t count = w->h->block_count;
	uint32_t left = BLOCKS_MAX;
	uint64_t least = 0;
	if (count > BLOCKS_MAX) {
		uint64_t *sorted = clv_mem_realloc(NULL, count, sizeof(*sorted));
		if (!sorted)
			return no_memory(w);
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
static void put_class(struct writer *w, uint64_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned low = size ? clv_log2(size) : 0, high = low + 1;
	clv_sink_printf(&w->sink, ",\"cat\":\"block\",\"name\":\"%u %s to %u %s\"", 1u << low % 10, units[low / 10],
			1u << high % 10, units[high / 10]);
}

static void put_block(struct writer *w, char kind, uint64_t time_us, uint32_t block, uint64_t size)
{
	begin(w, kind, time_us);
	put_class(w, size);
	clv_sink_printf(&w->sink, ",\"id2\":{\"local\":\"0x%x\"}", block);
}

static void begin_block(struct writer *w, uint64_t time_us, uint32_t block, uint64_t addr, uint64_t size,
			uint32_t stream, uint32_t stack)
{
	put_block(w, 'b', time_us, block, size);
	clv_sink_printf(&w->sink,
			",\"args\":{\"bytes\":%" PRIu64 ",\"address\":\"0x%" PRIx64 "\",\"stream\":\"0x%" PRIx64 "\"",
			size, addr, w->trace->streams[stream]);
	put_stack(w, stack);
	clv_sink_text(&w->sink, "}}");
}

static void put_failure(struct writer *w, const struct clv_event_record *e)
{
	begin(w, 'i', e->time_us);
	clv_sink_printf(
		&w->sink,
		",\"s\":\"p\",\"tid\":0,\"cat\":\"failure\",\"name\":\"out of memory\",\"args\":{\"requested\":%" PRIu64
		",\"device_free\":%" PRIu64,
		e->size, clv_min_u64(e->addr, INT64_MAX));
	put_stack(w, e->stack);
	clv_sink_text(&w->sink, "}}");
}

/* Blocks and failures in the order of the events. `sizes` has 0 for a block that has ended or was not chosen. */
static void put_blocks(struct writer *w, uint64_t *sizes, const bool *chosen)
{
	const struct clv_history *h = w->h;
	w->time_us = 0;
	for (uint32_t i = 0; i < h->initial_count; i++) {
		const struct clv_initial_block *b = &h->initial[i];
		if (chosen[i])
			begin_block(w, h->event_count ? h->events[0].time_us : 0, i, b->addr, b->size, b->stream,
				    CLV_NO_STACK);
	}
	for (uint32_t i = 0; i < h->event_count && !clv_sink_failed(&w->sink); i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->action == CLV_ACTION_OOM)
			put_failure(w, e);
		if (e->block == CLV_NO_BLOCK || !chosen[e->block])
			continue;
		if (e->action == CLV_ACTION_ALLOC)
			begin_block(w, e->time_us, e->block, e->addr, e->size, e->stream, e->stack);
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

static void put_lifetimes(struct writer *w)
{
	const struct clv_history *h = w->h;
	uint64_t *sizes = clv_mem_zalloc(h->block_count, sizeof(*sizes));
	bool *chosen = clv_mem_zalloc(h->block_count, sizeof(*chosen));
	if (!sizes || !chosen) {
		no_memory(w);
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

/* Phases that have begun and not ended. */
struct open_phase {
	uint32_t text, id;
};

static void put_phase(struct writer *w, char kind, uint64_t time_us, struct open_phase p)
{
	begin(w, kind, time_us);
	clv_sink_printf(&w->sink, ",\"cat\":\"phase\",\"id2\":{\"local\":\"0x%x\"},\"name\":", p.id);
	put_json_text(w, w->trace->strings[p.text]);
	clv_sink_text(&w->sink, "}");
}

static void put_mark(struct writer *w, const struct clv_note *n)
{
	begin(w, 'i', n->time_us);
	clv_sink_text(&w->sink, ",\"s\":\"g\",\"tid\":0,\"cat\":\"mark\",\"name\":");
	put_json_text(w, w->trace->strings[n->text]);
	clv_sink_text(&w->sink, "}");
}

/* Ends the phase of this name that began last; an end without a beginning is none. */
static void end_phase(struct writer *w, struct open_phase *open, size_t *count, const struct clv_note *n)
{
	for (size_t i = *count; i-- > 0;) {
		if (open[i].text != n->text)
			continue;
		put_phase(w, 'e', n->time_us, open[i]);
		(*count)--;
		memmove(&open[i], &open[i + 1], (*count - i) * sizeof(*open));
		return;
	}
}

static void put_notes(struct writer *w)
{
	const struct clv_history *h = w->h;
	struct open_phase *open = NULL;
	size_t count = 0, cap = 0;
	w->time_us = 0;
	for (uint32_t i = 0; i < h->note_count && !clv_sink_failed(&w->sink); i++) {
		const struct clv_note *n = &h->notes[i];
		if (n->text == CLV_NO_TEXT)
			continue;
		if (n->kind == CLV_EVENT_MARK)
			put_mark(w, n);
		if (n->kind == CLV_EVENT_PHASE_END)
			end_phase(w, open, &count, n);
		if (n->kind != CLV_EVENT_PHASE_BEGIN)
			continue;
		if (!clv_mem_reserve(&open, &cap, count + 1, sizeof(*open))) {
			no_memory(w);
			break;
		}
		open[count] = (struct open_phase){n->text, w->next_phase++};
		put_phase(w, 'b', n->time_us, open[count++]);
	}
	uint64_t end = h->event_count ? h->events[h->event_count - 1].time_us : 0;
	while (count && !clv_sink_failed(&w->sink))
		put_phase(w, 'e', end, open[--count]);
	clv_mem_free(open);
}

static void put_history(struct writer *w)
{
	w->pid = w->h->device + 1;
	w->time_us = 0;
	put_name(w);
	put_counters(w);
	put_lifetimes(w);
	put_notes(w);
}

bool clv_export_perfetto(const struct clv_trace *trace, const char *path, struct clv_error *err)
{
	struct writer w = {.trace = trace};
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
	put_json_text(&w, trace->file);
	clv_sink_printf(&w.sink, ",\"blocks\":%" PRIu64 ",\"blocks_left_out\":%" PRIu64 ",\"events_per_sample\":%u}}\n",
			w.blocks, w.blocks_left_out, stride);
	return clv_sink_end(&w.sink);
}
