/* SPDX-License-Identifier: MIT
 *
 * Notes in Chrome's JSON (perfetto_write.c). Phases are slices on a track of their own, and where they overlap without one being
 * inside the other, on more tracks. The others are instants: marks, waits, trims, what happens to reservations, failures of the
 * driver, lost events. Of more than INSTANTS_MAX the first are written.
 */
#include "perfetto_internal.h"

#include "../memory.h"

#include <inttypes.h>
#include <string.h>

#define INSTANTS_MAX 100000u
#define LANES_MAX 64u

struct phase {
	uint64_t begin_us, end_us;
	uint32_t text, thread;
	uint32_t outer; /* of the same lane, or NONE */
	bool ended;
};

#define NONE UINT32_MAX

struct phases {
	struct phase *at; /* by beginning */
	size_t count, cap;
	uint32_t *open; /* those that have not ended */
	size_t open_count, open_cap;
	uint64_t now_us;
};

/* What the fields of a note are called in `args`; NULL: it says nothing there. */
struct words {
	const char *category, *addr, *size, *a, *b;
	bool b_is_stream;
};

static const struct words *words_of(uint16_t kind)
{
	static const struct words words[CLV_EVENT_COUNT] = {
		[CLV_EVENT_MARK] = {"mark"},
		[CLV_EVENT_WAIT] = {"wait", NULL, "requested", "host_waits", "waits_for", true},
		[CLV_EVENT_TRIM] = {"trim", NULL, "given_back", "keep"},
		[CLV_EVENT_RESERVE] = {"reservation", NULL, "slot", "slots", "hard"},
		[CLV_EVENT_RESERVE_HOLD] = {"reservation", "address", "bytes", "slot"},
		[CLV_EVENT_RESERVE_SERVE] = {"reservation", "address", "bytes", "slot"},
		[CLV_EVENT_RESERVE_YIELD] = {"reservation", "address", "bytes", "slot", "needed"},
		[CLV_EVENT_RESERVE_END] = {"reservation", NULL, "slot", "served", "missed"},
		[CLV_EVENT_DRIVER_FAIL] = {"driver", NULL, "requested", "error"},
		[CLV_EVENT_DROPPED] = {"recorder", NULL, "events", "cause"},
	};
	return kind < CLV_EVENT_COUNT && words[kind].category ? &words[kind] : NULL;
}

/* ---- phases ---- */

/* The phase of this name that began last, if there is one in the same thread; an end without a beginning is none. */
static void end_phase(struct phases *p, const struct clv_note *n)
{
	size_t found = p->open_count;
	for (size_t i = p->open_count; i-- > 0;) {
		const struct phase *phase = &p->at[p->open[i]];
		if (phase->text != n->text)
			continue;
		if (found == p->open_count)
			found = i;
		if (phase->thread != n->thread)
			continue;
		found = i;
		break;
	}
	if (found == p->open_count)
		return;
	p->at[p->open[found]].end_us = p->now_us;
	p->at[p->open[found]].ended = true;
	p->open_count--;
	memmove(&p->open[found], &p->open[found + 1], (p->open_count - found) * sizeof(*p->open));
}

static bool begin_phase(struct phases *p, const struct clv_note *n)
{
	if (p->count >= NONE || !clv_mem_reserve(&p->at, &p->cap, p->count + 1, sizeof(*p->at)) ||
	    !clv_mem_reserve(&p->open, &p->open_cap, p->open_count + 1, sizeof(*p->open)))
		return false;
	p->open[p->open_count++] = (uint32_t)p->count;
	p->at[p->count++] = (struct phase){.begin_us = p->now_us, .text = n->text, .thread = n->thread};
	return true;
}

static uint64_t last_time(const struct clv_history *h)
{
	uint64_t event = h->event_count ? h->events[h->event_count - 1].time_us : 0;
	return clv_min_u64(clv_max_u64(event, h->note_count ? h->notes[h->note_count - 1].time_us : 0), INT64_MAX);
}

static bool collect(struct phases *p, const struct clv_history *h)
{
	for (uint32_t i = 0; i < h->note_count; i++) {
		const struct clv_note *n = &h->notes[i];
		p->now_us = clv_max_u64(p->now_us, clv_min_u64(n->time_us, INT64_MAX));
		if (n->text == CLV_NO_TEXT)
			continue;
		if (n->kind == CLV_EVENT_PHASE_BEGIN && !begin_phase(p, n))
			return false;
		if (n->kind == CLV_EVENT_PHASE_END)
			end_phase(p, n);
	}
	p->now_us = clv_max_u64(p->now_us, last_time(h));
	for (size_t i = 0; i < p->open_count; i++)
		p->at[p->open[i]].end_us = p->now_us;
	return true;
}

/* The first lane in which a phase lies within what is open there. Viewers draw slices of a track one in the other. */
static unsigned lane_of(struct phases *p, uint32_t number, uint32_t *lanes, unsigned *count)
{
	struct phase *phase = &p->at[number];
	for (unsigned i = 0; i < LANES_MAX; i++) {
		if (i == *count)
			lanes[(*count)++] = NONE;
		while (lanes[i] != NONE && p->at[lanes[i]].end_us <= phase->begin_us)
			lanes[i] = p->at[lanes[i]].outer;
		bool last = i + 1 == LANES_MAX;
		if (lanes[i] != NONE && p->at[lanes[i]].end_us < phase->end_us) {
			if (!last)
				continue;
			phase->end_us = p->at[lanes[i]].end_us; /* as much of it as can be drawn */
		}
		phase->outer = lanes[i];
		lanes[i] = number;
		return i;
	}
	return 0; /* not reached: the last lane takes all */
}

static void name_track(struct clv_perfetto *w, unsigned tid, const char *name)
{
	clv_perfetto_begin(w, 'M', 0);
	clv_sink_printf(&w->sink, ",\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", tid, name);
}

static void put_phases(struct clv_perfetto *w)
{
	struct phases p = {NULL};
	uint32_t lanes[LANES_MAX];
	unsigned count = 0;
	if (!collect(&p, w->h))
		clv_perfetto_no_memory(w);
	w->time_us = 0;
	for (uint32_t i = 0; i < p.count && !clv_sink_failed(&w->sink); i++) {
		const unsigned before = count, lane = lane_of(&p, i, lanes, &count);
		for (unsigned k = before; k < count; k++)
			name_track(w, k + 1, "phases");
		clv_perfetto_begin(w, 'X', p.at[i].begin_us);
		clv_sink_printf(&w->sink, ",\"dur\":%" PRIu64 ",\"tid\":%u,\"cat\":\"phase\",\"name\":",
				p.at[i].end_us - p.at[i].begin_us, lane + 1);
		clv_perfetto_text(w, w->trace->strings[p.at[i].text]);
		clv_sink_printf(&w->sink, ",\"args\":{\"ended\":%s", p.at[i].ended ? "true" : "false");
		clv_perfetto_thread(w, p.at[i].thread);
		clv_sink_text(&w->sink, "}}");
	}
	clv_mem_free(p.at);
	clv_mem_free(p.open);
}

/* ---- instants ---- */

static void put_number(struct clv_perfetto *w, const char *name, uint64_t v)
{
	if (name)
		clv_sink_printf(&w->sink, ",\"%s\":%" PRIu64, name, clv_min_u64(v, INT64_MAX));
}

static void put_handle(struct clv_perfetto *w, const char *name, uint64_t v)
{
	clv_sink_printf(&w->sink, ",\"%s\":\"0x%" PRIx64 "\"", name, v);
}

/* A mark is called what the user said; the others by their kind, with the text, if there is one, in `args`. */
static void put_instant(struct clv_perfetto *w, const struct clv_note *n, const struct words *words)
{
	const char *kind = clv_event_name((enum clv_event)n->kind);
	const char *text = n->text == CLV_NO_TEXT ? "" : w->trace->strings[n->text];
	bool mark = n->kind == CLV_EVENT_MARK;
	clv_perfetto_begin(w, 'i', n->time_us);
	clv_sink_printf(&w->sink, ",\"s\":\"%c\",\"tid\":0,\"cat\":\"%s\",\"name\":", mark ? 'g' : 'p',
			words->category);
	clv_perfetto_text(w, mark ? text : kind);
	clv_sink_printf(&w->sink, ",\"args\":{\"kind\":\"%s\"", kind);
	if (*text && !mark) {
		clv_sink_text(&w->sink, ",\"text\":");
		clv_perfetto_text(w, text);
	}
	if (words->addr)
		put_handle(w, words->addr, n->addr);
	put_number(w, words->size, n->size);
	put_number(w, words->a, n->a);
	if (words->b_is_stream)
		put_handle(w, words->b, n->b);
	else
		put_number(w, words->b, n->b);
	if (n->stream != CLV_NO_STREAM)
		put_handle(w, "stream", w->trace->streams[n->stream]);
	clv_perfetto_thread(w, n->thread);
	clv_perfetto_stack(w, n->stack);
	clv_sink_text(&w->sink, "}}");
}

static void put_instants(struct clv_perfetto *w)
{
	uint32_t written = 0;
	w->time_us = 0;
	for (uint32_t i = 0; i < w->h->note_count && !clv_sink_failed(&w->sink); i++) {
		const struct clv_note *n = &w->h->notes[i];
		const struct words *words = words_of(n->kind);
		if (!words || (n->kind == CLV_EVENT_MARK && n->text == CLV_NO_TEXT))
			continue;
		if (written == INSTANTS_MAX) {
			w->instants_left_out++;
			continue;
		}
		put_instant(w, n, words);
		written++;
	}
}

void clv_perfetto_notes(struct clv_perfetto *w)
{
	name_track(w, 0, "events");
	put_phases(w);
	put_instants(w);
}
