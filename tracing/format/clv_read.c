/* SPDX-License-Identifier: MIT
 *
 * Reads .clv files; the format is described in clv_write.c. Whatever a checksum vouches for is still checked before it
 * is used: a file may be made to mislead.
 */
#include "clv.h"

#include "../import/import.h"
#include "../map.h"
#include "clv_decode.h"
#include "clv_settle.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

#define MAX_FIELDS 16u /* fields with a higher number are not known */

/* A device as far as it was read. */
struct part {
	struct clv_history h;
	size_t event_cap, segment_cap, block_cap;
	size_t thread_cap, slack_cap;
	struct clv_pieces pieces;
	uint64_t segments_due, blocks_due; /* announced by STATE and not read yet */
	uint64_t blocks_named;             /* sum of the blocks of the segments read */
};

struct reader {
	const struct clv_input *in;
	struct clv_error *err;
	struct clv_trace *trace;
	size_t chunk_at; /* offset of the chunk that is read, for errors */
	bool ended;      /* END was read */
	struct part *parts;
	size_t part_count, part_cap;
	struct clv_map part_index; /* device to part: a file may have many, and a record for each by turns */
	struct part loose;         /* notes of no device */
	size_t stream_cap, string_cap, stack_cap, frame_cap, module_cap;
	struct clv_span fields[MAX_FIELDS]; /* of the record that is read; at == NULL: absent */
	uint64_t *addresses;                /* by number, in an EVENTS record */
	struct seen {
		uint64_t size, stream, stack;
	} * seen;
	size_t addresses_cap, seen_cap;
	uint8_t *raw;
	size_t raw_cap;
	ZSTD_DCtx *zstd;
};

static bool no_memory(struct reader *r)
{
	return clv_error_set(r->err, "%s: out of host memory", r->in->name);
}

static bool damaged(struct reader *r, const char *what)
{
	return clv_error_at(r->err, r->in->name, r->chunk_at, "damaged chunk: %s", what);
}

/* A field that is one number; absent: `absent`. */
static bool field_number(struct reader *r, unsigned id, uint64_t absent, uint64_t *out)
{
	struct clv_span s = r->fields[id];
	*out = absent;
	return !s.at || clv_get_number(&s, out);
}

static bool split_fields(struct reader *r, struct clv_span body)
{
	memset(r->fields, 0, sizeof(r->fields));
	while (body.at < body.end) {
		uint64_t id, len;
		if (!clv_get_number(&body, &id) || !clv_get_number(&body, &len) || len > (size_t)(body.end - body.at))
			return damaged(r, "a field is longer than its record");
		if (id < MAX_FIELDS)
			r->fields[id] = (struct clv_span){body.at, body.at + len};
		body.at += len;
	}
	return true;
}

/* The part of the device that the record is about, made if new. */
static struct part *part_of(struct reader *r)
{
	uint64_t device;
	if (!field_number(r, CLV_ANY_DEVICE, 0, &device) || device > CLV_DEVICE_MAX) {
		damaged(r, "a device number that cannot be");
		return NULL;
	}
	uint32_t known = clv_map_get(&r->part_index, device);
	if (known != CLV_MAP_NONE)
		return &r->parts[known];
	struct clv_map_slot *slot = clv_mem_reserve(&r->parts, &r->part_cap, r->part_count + 1, sizeof(*r->parts))
					    ? clv_map_slot(&r->part_index, device)
					    : NULL;
	if (!slot) {
		no_memory(r);
		return NULL;
	}
	slot->value = (uint32_t)r->part_count;
	r->parts[r->part_count] = (struct part){.h = {.device = (int)device}};
	return &r->parts[r->part_count++];
}

static bool read_settings(struct reader *r)
{
	struct clv_torch_recorded *t = &r->trace->torch;
	struct clv_span conf = r->fields[CLV_SETTINGS_CONF], split = r->fields[CLV_SETTINGS_MAX_SPLIT];
	struct clv_span roundup = r->fields[CLV_SETTINGS_ROUNDUP], probe = r->fields[CLV_SETTINGS_PROBE];
	uint64_t v;
	clv_mem_free(t->conf);
	*t = (struct clv_torch_recorded){.max_split_size = -1};
	if (conf.at && !(t->conf = clv_mem_strndup((const char *)conf.at, clv_span_len(conf))))
		return no_memory(r);
	if (split.at) {
		if (!clv_get_signed(&split, &v))
			return damaged(r, "settings");
		t->max_split_size = (int64_t)v;
	}
	if (clv_span_len(r->fields[CLV_SETTINGS_GC]) == 8) {
		uint64_t bits = clv_get_le(r->fields[CLV_SETTINGS_GC].at, 8);
		memcpy(&t->gc_threshold, &bits, sizeof(bits));
		if (!isfinite(t->gc_threshold))
			return damaged(r, "settings");
	}
	t->expandable = r->fields[CLV_SETTINGS_EXPANDABLE].at != NULL;
	t->present = r->fields[CLV_SETTINGS_PRESENT].at != NULL;
	for (size_t i = 0; roundup.at && i < CLV_ARRAY_LEN(t->roundup); i++) {
		if (!clv_get_number(&roundup, &v) || v > UINT32_MAX)
			return damaged(r, "settings");
		t->roundup[i] = (uint32_t)v;
	}
	t->has_probe = probe.at != NULL;
	if (t->has_probe && !(clv_get_number(&probe, &t->cap_mib) && clv_get_number(&probe, &t->total_bytes) &&
			      clv_get_number(&probe, &t->retries) && clv_get_number(&probe, &t->ooms) &&
			      clv_get_number(&probe, &t->device_left_mib)))
		return damaged(r, "settings");
	return true;
}

static bool read_streams(struct reader *r)
{
	struct clv_trace *t = r->trace;
	struct clv_span s = r->fields[CLV_STREAMS_HANDLES];
	uint64_t handle;
	while (s.at < s.end) {
		if (!clv_get_number(&s, &handle) || t->stream_count == UINT32_MAX - 1)
			return damaged(r, "streams");
		if (!clv_mem_reserve(&t->streams, &r->stream_cap, t->stream_count + 1u, sizeof(*t->streams)))
			return no_memory(r);
		t->streams[t->stream_count++] = handle;
		t->stream_room = (uint32_t)clv_min_u64(r->stream_cap, UINT32_MAX);
	}
	return true;
}

static bool read_strings(struct reader *r)
{
	struct clv_trace *t = r->trace;
	struct clv_span lengths = r->fields[CLV_STRINGS_LENGTHS], text = r->fields[CLV_STRINGS_TEXT];
	uint64_t len;
	while (lengths.at < lengths.end) {
		if (!clv_get_number(&lengths, &len) || len > clv_span_len(text) || t->string_count == UINT32_MAX - 1)
			return damaged(r, "strings");
		if (!clv_mem_reserve(&t->strings, &r->string_cap, t->string_count + 1u, sizeof(*t->strings)))
			return no_memory(r);
		char *copy = clv_mem_strndup(text.at ? (const char *)text.at : "", (size_t)len);
		if (!copy)
			return no_memory(r);
		t->strings[t->string_count++] = copy;
		if (len)
			text.at += len;
	}
	return true;
}

static bool read_modules(struct reader *r)
{
	struct clv_trace *t = r->trace;
	struct clv_span paths = r->fields[CLV_MODULES_PATHS], lengths = r->fields[CLV_MODULES_ID_LENGTHS];
	struct clv_span ids = r->fields[CLV_MODULES_IDS];
	uint64_t path, len;
	while (paths.at < paths.end) {
		if (!clv_get_number(&paths, &path) || !clv_get_optional(&lengths, &len) || path >= t->string_count ||
		    len > CLV_BUILD_ID_MAX || len > clv_span_len(ids) || t->module_count == UINT32_MAX - 1)
			return damaged(r, "modules");
		if (!clv_mem_reserve(&t->modules, &r->module_cap, t->module_count + 1u, sizeof(*t->modules)))
			return no_memory(r);
		struct clv_module_record *m = &t->modules[t->module_count++];
		*m = (struct clv_module_record){.path = (uint32_t)path, .build_id_len = (uint8_t)len};
		if (len) {
			memcpy(m->build_id, ids.at, (size_t)len);
			ids.at += len;
		}
	}
	return true;
}

static bool begin_stacks(struct reader *r)
{
	struct clv_trace *t = r->trace;
	if (t->stack_count)
		return true;
	if (!clv_mem_reserve(&t->stacks, &r->stack_cap, 1, sizeof(*t->stacks)))
		return no_memory(r);
	t->stacks[0] = (struct clv_stack_record){0, 0};
	t->stack_count = 1;
	return true;
}

static bool read_stacks(struct reader *r)
{
	struct clv_trace *t = r->trace;
	struct clv_span counts = r->fields[CLV_STACKS_COUNTS], files = r->fields[CLV_STACKS_FILES];
	struct clv_span functions = r->fields[CLV_STACKS_FUNCTIONS], lines = r->fields[CLV_STACKS_LINES];
	struct clv_span modules = r->fields[CLV_STACKS_MODULES], addresses = r->fields[CLV_STACKS_ADDRESSES];
	uint64_t count, file, function, module, difference = 0, address = 0, step;
	uint32_t line = 0;
	while (counts.at < counts.end) {
		if (!clv_get_number(&counts, &count) || count > clv_span_len(files) ||
		    t->stack_count == UINT32_MAX - 1 || count >= UINT32_MAX - t->stack_frame_count)
			return damaged(r, "stacks");
		if (!clv_mem_reserve(&t->stacks, &r->stack_cap, t->stack_count + 1u, sizeof(*t->stacks)) ||
		    !clv_mem_reserve(&t->stack_frames, &r->frame_cap, t->stack_frame_count + (size_t)count,
				     sizeof(*t->stack_frames)))
			return no_memory(r);
		t->stacks[t->stack_count++] = (struct clv_stack_record){t->stack_frame_count, (uint32_t)count};
		for (uint64_t i = 0; i < count; i++) {
			if (!clv_get_number(&files, &file) || !clv_get_number(&functions, &function) ||
			    (lines.at && !clv_get_signed(&lines, &difference)) || file >= t->string_count ||
			    function >= t->string_count || !clv_get_optional(&modules, &module) ||
			    !clv_get_optional(&addresses, &step) || module > t->module_count)
				return damaged(r, "stacks");
			line += (uint32_t)difference;
			address += clv_unzigzag(step);
			t->stack_frames[t->stack_frame_count++] = (struct clv_frame_record){
				(uint32_t)file, (uint32_t)function, line, (uint32_t)module, address};
		}
	}
	return true;
}

/* The address of the next event of an EVENTS record, and its number. */
static bool next_address(struct reader *r, struct clv_span *refs, struct clv_span *fresh, size_t *known,
			 uint64_t *last_new, uint64_t *number)
{
	uint64_t v, difference;
	if (!clv_get_number(refs, &v))
		return damaged(r, "addresses of events");
	if (v) {
		*number += clv_unzigzag(v - 1);
		return *number < *known || damaged(r, "addresses of events");
	}
	if (!clv_get_signed(fresh, &difference))
		return damaged(r, "addresses of events");
	if (!clv_mem_reserve(&r->addresses, &r->addresses_cap, *known + 1, sizeof(*r->addresses)) ||
	    !clv_mem_reserve(&r->seen, &r->seen_cap, *known + 1, sizeof(*r->seen)))
		return no_memory(r);
	*last_new += difference;
	r->addresses[*known] = *last_new;
	r->seen[*known] = (struct seen){0, 0, 0};
	*number = (*known)++;
	return true;
}

static bool event_makes_sense(const struct reader *r, const struct clv_event_record *e, const struct seen *s)
{
	if (s->stream >= r->trace->stream_count || (s->stack != CLV_NO_STACK && s->stack >= r->trace->stack_count))
		return false;
	if (e->action < CLV_ACTION_OOM)
		return e->size <= INT64_MAX && e->addr <= INT64_MAX && e->addr + e->size <= INT64_MAX;
	return e->action != CLV_ACTION_OOM || e->size <= INT64_MAX;
}

/* The unit of a record's times. A device has one: times of several could not be told apart. */
static bool read_unit(struct reader *r, struct part *part)
{
	uint64_t unit;
	if (!field_number(r, CLV_ANY_UNIT, CLV_UNIT_DEFAULT, &unit) || (unit != 1 && unit != CLV_UNIT_DEFAULT))
		return damaged(r, "times in a unit that is not known");
	if (part->pieces.unit && part->pieces.unit != unit)
		return damaged(r, "times of a device in two units");
	part->pieces.unit = (uint32_t)unit;
	return true;
}

/* Room for `count` more numbers beside the events, one each, if `column` has any or some were read before: then those of
 * events without any are 0. */
static bool reserve_beside(uint32_t **numbers, size_t *cap, const struct clv_history *h, size_t count,
			   struct clv_span column)
{
	if (!*numbers && !column.at)
		return true;
	bool begun = *numbers != NULL;
	if (!clv_mem_reserve(numbers, cap, h->event_count + count, sizeof(**numbers)))
		return false;
	if (!begun && h->event_count)
		memset(*numbers, 0, h->event_count * sizeof(**numbers));
	return true;
}

static bool read_events(struct reader *r)
{
	struct part *part = part_of(r);
	if (!part)
		return false;
	struct clv_history *h = &part->h;
	struct clv_span actions = r->fields[CLV_EVENTS_ACTIONS], times = r->fields[CLV_EVENTS_TIMES];
	struct clv_span refs = r->fields[CLV_EVENTS_ADDRESSES], fresh = r->fields[CLV_EVENTS_NEW_ADDRESSES];
	struct clv_span sizes = r->fields[CLV_EVENTS_SIZES], streams = r->fields[CLV_EVENTS_STREAMS];
	struct clv_span stacks = r->fields[CLV_EVENTS_STACKS], flags = r->fields[CLV_EVENTS_FLAGS];
	struct clv_span threads = r->fields[CLV_EVENTS_THREADS], slack = r->fields[CLV_EVENTS_SLACK];
	size_t count = clv_span_len(actions), known = 0;
	uint64_t time = 0, last_new = 0, number = 0, thread = 0, d;
	if (count > UINT32_MAX - 1 - h->event_count)
		return damaged(r, "more events than can be counted");
	if (count && !read_unit(r, part))
		return false;
	if (!clv_mem_reserve(&h->events, &part->event_cap, h->event_count + count, sizeof(*h->events)) ||
	    !reserve_beside(&h->threads, &part->thread_cap, h, count, threads) ||
	    !reserve_beside(&h->slack, &part->slack_cap, h, count, slack))
		return no_memory(r);
	for (size_t i = 0; i < count; i++) {
		struct clv_event_record *e = &h->events[h->event_count];
		*e = (struct clv_event_record){.block = CLV_NO_BLOCK};
		e->action = actions.at[i] < CLV_ACTION_OTHER ? actions.at[i] : (uint8_t)CLV_ACTION_OTHER;
		if (!next_address(r, &refs, &fresh, &known, &last_new, &number))
			return false;
		struct seen *s = &r->seen[number];
		e->addr = r->addresses[number];
		if (!clv_get_signed(&times, &d))
			return damaged(r, "times of events");
		e->time_us = time += d;
		if (!clv_get_signed(&sizes, &d))
			return damaged(r, "sizes of events");
		e->size = s->size += d;
		if (!clv_get_optional(&streams, &d))
			return damaged(r, "streams of events");
		s->stream += clv_unzigzag(d);
		if (!clv_get_optional(&stacks, &d))
			return damaged(r, "stacks of events");
		s->stack += clv_unzigzag(d);
		if (!clv_get_optional_byte(&flags, &e->flags) || !event_makes_sense(r, e, s))
			return damaged(r, "an event that cannot be");
		if (!clv_get_optional(&threads, &d))
			return damaged(r, "threads of events");
		thread += clv_unzigzag(d);
		if (h->threads)
			h->threads[h->event_count] = (uint32_t)thread;
		if (!clv_get_optional(&slack, &d) || d > UINT32_MAX)
			return damaged(r, "slack of events");
		if (h->slack)
			h->slack[h->event_count] = (uint32_t)d;
		e->stream = (uint32_t)s->stream;
		e->stack = (uint32_t)s->stack;
		h->event_count++;
	}
	return true;
}

/* The difference to the last note of that kind, of a column that may be absent. */
static bool get_step(struct clv_span *s, uint64_t *value)
{
	uint64_t d;
	if (!clv_get_optional(s, &d))
		return false;
	*value += clv_unzigzag(d);
	return true;
}

static bool read_notes(struct reader *r)
{
	const struct clv_trace *t = r->trace;
	struct part *part = r->fields[CLV_ANY_DEVICE].at ? part_of(r) : &r->loose;
	struct clv_note_seen seen[CLV_NOTE_KINDS] = {{0}};
	struct clv_span kinds = r->fields[CLV_NOTES_KINDS], times = r->fields[CLV_NOTES_TIMES];
	struct clv_span addresses = r->fields[CLV_NOTES_ADDRESSES], sizes = r->fields[CLV_NOTES_SIZES];
	struct clv_span as = r->fields[CLV_NOTES_A], bs = r->fields[CLV_NOTES_B];
	struct clv_span streams = r->fields[CLV_NOTES_STREAMS], texts = r->fields[CLV_NOTES_TEXTS];
	struct clv_span stacks = r->fields[CLV_NOTES_STACKS], threads = r->fields[CLV_NOTES_THREADS];
	struct clv_span events = r->fields[CLV_NOTES_EVENTS];
	uint64_t kind, time = 0, thread = 0, event = 0, stream, text, stack;
	if (!part)
		return false;
	struct clv_history *h = &part->h;
	if (kinds.at < kinds.end) {
		if (!read_unit(r, part))
			return false;
		part->pieces.notes_without_place |= !events.at;
	}
	while (kinds.at < kinds.end) {
		if (!clv_get_number(&kinds, &kind) || kind > UINT16_MAX || h->note_count == UINT32_MAX - 1)
			return damaged(r, "kinds of notes");
		struct clv_note_seen *s = &seen[clv_note_slot(kind)];
		if (!get_step(&times, &time) || !get_step(&addresses, &s->addr) || !get_step(&sizes, &s->size) ||
		    !get_step(&as, &s->a) || !get_step(&bs, &s->b) || !get_step(&threads, &thread) ||
		    !get_step(&events, &event) || !clv_get_optional(&streams, &stream) ||
		    !clv_get_optional(&texts, &text) || !clv_get_optional(&stacks, &stack))
			return damaged(r, "notes");
		if (stream > t->stream_count || text > t->string_count || event > UINT32_MAX - 1 ||
		    (stack != CLV_NO_STACK && stack >= t->stack_count))
			return damaged(r, "a note that cannot be");
		if (!clv_mem_reserve(&h->notes, &part->pieces.note_cap, h->note_count + 1u, sizeof(*h->notes)))
			return no_memory(r);
		h->notes[h->note_count++] = (struct clv_note){.time_us = time,
							      .addr = s->addr,
							      .size = s->size,
							      .a = s->a,
							      .b = s->b,
							      .event = (uint32_t)event,
							      .stream = stream ? (uint32_t)stream - 1 : CLV_NO_STREAM,
							      .text = text ? (uint32_t)text - 1 : CLV_NO_TEXT,
							      .stack = (uint32_t)stack,
							      .thread = (uint32_t)thread,
							      .kind = (uint16_t)kind};
	}
	return true;
}

static bool read_state(struct reader *r)
{
	struct part *part = part_of(r);
	struct clv_span pools = r->fields[CLV_STATE_POOLS];
	struct clv_pool_id id;
	size_t pool_cap = 0;
	if (!part)
		return false;
	struct clv_history *h = &part->h;
	clv_mem_free(h->pools);
	h->pools = NULL;
	h->pool_count = h->segment_count = h->block_record_count = 0;
	part->blocks_named = 0;
	h->has_state = true;
	if (!field_number(r, CLV_STATE_SEGMENTS, 0, &part->segments_due) ||
	    !field_number(r, CLV_STATE_BLOCKS, 0, &part->blocks_due) || part->segments_due >= UINT32_MAX ||
	    part->blocks_due >= UINT32_MAX)
		return damaged(r, "state");
	while (pools.at < pools.end) {
		if (!clv_get_number(&pools, &id.a) || !clv_get_number(&pools, &id.b) || h->pool_count > UINT16_MAX)
			return damaged(r, "pools");
		if (!clv_mem_reserve(&h->pools, &pool_cap, h->pool_count + 1u, sizeof(*h->pools)))
			return no_memory(r);
		h->pools[h->pool_count++] = id;
	}
	if (h->pool_count && (h->pools[0].a || h->pools[0].b))
		return damaged(r, "pools");
	return true;
}

static bool read_segments(struct reader *r)
{
	struct part *part = part_of(r);
	if (!part)
		return false;
	struct clv_history *h = &part->h;
	struct clv_span gaps = r->fields[CLV_SEGMENTS_GAPS], sizes = r->fields[CLV_SEGMENTS_SIZES];
	struct clv_span streams = r->fields[CLV_SEGMENTS_STREAMS], pools = r->fields[CLV_SEGMENTS_POOLS];
	struct clv_span flags = r->fields[CLV_SEGMENTS_FLAGS], stacks = r->fields[CLV_SEGMENTS_STACKS];
	struct clv_span blocks = r->fields[CLV_SEGMENTS_BLOCKS];
	while (gaps.at < gaps.end) {
		uint64_t end = 0, gap, stream, pool, stack, count;
		struct clv_segment_record s = {0};
		uint8_t flag;
		if (h->segment_count)
			end = h->segments[h->segment_count - 1].addr + h->segments[h->segment_count - 1].size;
		if (part->segments_due == 0 || !clv_get_number(&gaps, &gap) || !clv_get_number(&sizes, &s.size) ||
		    !clv_get_optional(&streams, &stream) || !clv_get_optional(&pools, &pool) ||
		    !clv_get_optional_byte(&flags, &flag) || !clv_get_optional(&stacks, &stack) ||
		    !clv_get_number(&blocks, &count))
			return damaged(r, "segments");
		uint32_t pool_count = h->pool_count ? h->pool_count : 1;
		if (gap > INT64_MAX || s.size > INT64_MAX || end + gap > INT64_MAX || end + gap + s.size > INT64_MAX ||
		    stream >= r->trace->stream_count || pool >= pool_count ||
		    (stack != CLV_NO_STACK && stack >= r->trace->stack_count) || count > UINT32_MAX ||
		    part->blocks_named + count > UINT32_MAX - 1)
			return damaged(r, "a segment that cannot be");
		s.addr = end + gap;
		s.stream = (uint32_t)stream;
		s.pool = (uint16_t)pool;
		s.small = flag & 1;
		s.expandable = (flag & 2) != 0;
		s.stack = (uint32_t)stack;
		s.first_block = (uint32_t)part->blocks_named;
		s.blocks = (uint32_t)count;
		if (!clv_mem_reserve(&h->segments, &part->segment_cap, h->segment_count + 1u, sizeof(*h->segments)))
			return no_memory(r);
		part->blocks_named += count;
		part->segments_due--;
		h->segments[h->segment_count++] = s;
	}
	return true;
}

static bool read_blocks(struct reader *r)
{
	struct part *part = part_of(r);
	if (!part)
		return false;
	struct clv_history *h = &part->h;
	struct clv_span sizes = r->fields[CLV_BLOCKS_SIZES], requested = r->fields[CLV_BLOCKS_REQUESTED];
	struct clv_span states = r->fields[CLV_BLOCKS_STATES], stacks = r->fields[CLV_BLOCKS_STACKS];
	while (sizes.at < sizes.end) {
		struct clv_block_record b = {0};
		uint64_t less, stack;
		if (part->blocks_due == 0 || !clv_get_number(&sizes, &b.size) || !clv_get_optional(&requested, &less) ||
		    !clv_get_optional_byte(&states, &b.state) || !clv_get_optional(&stacks, &stack))
			return damaged(r, "blocks");
		b.requested = b.size - clv_unzigzag(less);
		if (b.size > INT64_MAX || b.requested > INT64_MAX || b.state > CLV_BLOCK_PENDING_FREE ||
		    (b.state != CLV_BLOCK_INACTIVE && b.requested > b.size) ||
		    (stack != CLV_NO_STACK && stack >= r->trace->stack_count))
			return damaged(r, "a block that cannot be");
		b.stack = (uint32_t)stack;
		if (!clv_mem_reserve(&h->blocks, &part->block_cap, h->block_record_count + 1u, sizeof(*h->blocks)))
			return no_memory(r);
		part->blocks_due--;
		h->blocks[h->block_record_count++] = b;
	}
	return true;
}

static bool read_record(struct reader *r, uint64_t kind, struct clv_span body)
{
	if (!split_fields(r, body))
		return false;
	switch (kind) {
	case CLV_REC_SETTINGS:
		return read_settings(r);
	case CLV_REC_STREAMS:
		return read_streams(r);
	case CLV_REC_STRINGS:
		return read_strings(r);
	case CLV_REC_STACKS:
		return read_stacks(r);
	case CLV_REC_HISTORY:
		return part_of(r) != NULL;
	case CLV_REC_EVENTS:
		return read_events(r);
	case CLV_REC_STATE:
		return read_state(r);
	case CLV_REC_SEGMENTS:
		return read_segments(r);
	case CLV_REC_BLOCKS:
		return read_blocks(r);
	case CLV_REC_NOTES:
		return read_notes(r);
	case CLV_REC_MODULES:
		return read_modules(r);
	case CLV_REC_END:
		r->ended = true;
		return true;
	default:
		return true; /* of a later version */
	}
}

static bool read_records(struct reader *r, size_t raw)
{
	struct clv_span s = {r->raw, r->raw + raw};
	while (s.at < s.end) {
		uint64_t kind, len;
		if (!clv_get_number(&s, &kind) || !clv_get_number(&s, &len) || len > (size_t)(s.end - s.at))
			return damaged(r, "a record is longer than its chunk");
		if (!read_record(r, kind, (struct clv_span){s.at, s.at + len}))
			return false;
		s.at += len;
	}
	return true;
}

/* Reads the chunk at *offset and moves on. *more is false at the end, and where the file was cut. */
static bool read_chunk(struct reader *r, size_t *offset, bool *more)
{
	const uint8_t *header = r->in->data + *offset;
	size_t left = r->in->size - *offset;
	r->chunk_at = *offset;
	*more = false;
	if (left < CLV_CHUNK_HEADER)
		return true;
	if (clv_get_le(header, 4) != CLV_CHUNK_MAGIC || clv_get_le(header + 24, 8) != XXH64(header, 24, 0))
		return damaged(r, "its header does not match its checksum");
	size_t stored = clv_get_le(header + 4, 4), raw = clv_get_le(header + 8, 4);
	if (raw > CLV_CHUNK_RAW_MAX)
		return damaged(r, "it would unpack to more than 64 MiB");
	if (stored > left - CLV_CHUNK_HEADER)
		return true;
	const uint8_t *payload = header + CLV_CHUNK_HEADER;
	if (clv_get_le(header + 16, 8) != XXH64(payload, stored, 0))
		return damaged(r, "its content does not match its checksum");
	if (!clv_mem_reserve(&r->raw, &r->raw_cap, raw, 1))
		return no_memory(r);
	size_t got = ZSTD_decompressDCtx(r->zstd, r->raw, raw, payload, stored);
	if (ZSTD_isError(got) || got != raw)
		return damaged(r, "it cannot be unpacked");
	*offset += CLV_CHUNK_HEADER + stored;
	*more = true;
	return read_records(r, raw);
}

static bool read_header(struct reader *r)
{
	const uint8_t *d = r->in->data;
	if (r->in->size < CLV_FILE_HEADER)
		return clv_error_at(r->err, r->in->name, 0, "a .clv file that was cut short in its header");
	if (memcmp(d, CLV_FILE_MAGIC, 8) != 0)
		return clv_error_at(r->err, r->in->name, 0, "a damaged .clv file (was it transferred as text?)");
	if (clv_get_le(d + 16, 8) != XXH64(d, 16, 0))
		return clv_error_at(r->err, r->in->name, 8, "a .clv file with a damaged header");
	uint64_t version = clv_get_le(d + 8, 4);
	if (version < 1 || version > CLV_FILE_VERSION)
		return clv_error_at(r->err, r->in->name, 8, ".clv version %llu; this program reads up to version %u",
				    (unsigned long long)version, CLV_FILE_VERSION);
	return true;
}

/* Gives the blocks of a whole state their addresses. A state that is not whole is dropped if the file was cut. */
static bool settle_state(struct reader *r, struct part *part)
{
	struct clv_history *h = &part->h;
	if (!h->has_state)
		return h->segment_count == 0 || damaged(r, "segments without a state");
	if (part->segments_due || part->blocks_due || part->blocks_named != h->block_record_count) {
		if (r->ended)
			return clv_error_at(r->err, r->in->name, r->chunk_at,
					    "device %d: segments or blocks are missing", h->device);
		h->segment_count = h->block_record_count = h->pool_count = 0;
		clv_mem_free(h->pools);
		h->pools = NULL;
		h->has_state = false;
		return true;
	}
	for (uint32_t i = 0; i < h->segment_count; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		uint64_t at = s->addr, end = s->addr + s->size;
		for (uint32_t b = s->first_block; b < s->first_block + s->blocks; b++) {
			h->blocks[b].addr = at;
			if (h->blocks[b].size > end - at)
				return damaged(r, "blocks that do not fit their segment");
			at += h->blocks[b].size;
		}
		if (at != end)
			return damaged(r, "blocks that do not fill their segment");
	}
	return true;
}

static bool note_truncation(struct reader *r, size_t offset)
{
	char text[160];
	if (r->ended)
		return true;
	int n = snprintf(text, sizeof(text),
			 "the file was cut short: read up to offset %zu of %zu, its last whole chunk", offset,
			 r->in->size);
	r->trace->note = clv_mem_strndup(text, n > 0 ? (size_t)n : 0);
	return r->trace->note || no_memory(r);
}

static int by_device(const void *a, const void *b)
{
	const struct clv_history *x = a, *y = b;
	return x->device < y->device ? -1 : x->device > y->device;
}

/* Notes of no device go to the first device there is. */
static bool place_loose_notes(struct reader *r)
{
	if (!r->loose.h.note_count)
		return true;
	if (!r->part_count) {
		memset(r->fields, 0, sizeof(r->fields)); /* without a field it is device 0 */
		if (!part_of(r))
			return false;
	}
	struct part *first = &r->parts[0];
	for (size_t i = 1; i < r->part_count; i++)
		if (r->parts[i].h.device < first->h.device)
			first = &r->parts[i];
	if (first->pieces.unit && first->pieces.unit != r->loose.pieces.unit)
		return damaged(r, "notes in another unit than the events");
	return clv_pieces_add(&first->h, &first->pieces, &r->loose.h, &r->loose.pieces) || no_memory(r);
}

static bool settle(struct reader *r)
{
	struct clv_trace *t = r->trace;
	if (!place_loose_notes(r))
		return false;
	for (size_t i = 0; i < r->part_count; i++) {
		struct part *p = &r->parts[i];
		if (!settle_state(r, p))
			return false;
		if (!clv_pieces_settle(&p->h, &p->pieces, r->in->name, r->err))
			return false;
	}
	t->histories = clv_mem_zalloc(r->part_count, sizeof(*t->histories));
	if (!t->histories)
		return no_memory(r);
	for (size_t i = 0; i < r->part_count; i++) {
		t->histories[t->history_count++] = r->parts[i].h;
		r->parts[i].h = (struct clv_history){0};
	}
	if (t->history_count > 1)
		qsort(t->histories, t->history_count, sizeof(*t->histories), by_device);
	if (!t->torch.conf && !(t->torch.conf = clv_mem_strndup("", 0)))
		return no_memory(r);
	for (uint32_t i = 0; i < t->history_count; i++)
		if (!clv_history_link(t, &t->histories[i], r->err))
			return false;
	return true;
}

static bool read_file(struct reader *r)
{
	size_t offset = CLV_FILE_HEADER, released = 0;
	bool more = true;
	if (!read_header(r) || !begin_stacks(r))
		return false;
	while (more) {
		if (!read_chunk(r, &offset, &more))
			return false;
		clv_input_release(r->in, offset, &released);
	}
	if (offset == CLV_FILE_HEADER)
		return clv_error_at(r->err, r->in->name, offset, "a .clv file that was cut short in its first chunk");
	if (r->ended && offset != r->in->size)
		return clv_error_at(r->err, r->in->name, offset, "bytes after the end of the trace");
	return note_truncation(r, offset);
}

static void reader_clear(struct reader *r)
{
	clv_mem_free(r->loose.h.notes);
	for (size_t i = 0; i < r->part_count; i++) {
		struct clv_history *h = &r->parts[i].h;
		clv_mem_free(h->events);
		clv_mem_free(h->threads);
		clv_mem_free(h->slack);
		clv_mem_free(h->notes);
		clv_mem_free(h->segments);
		clv_mem_free(h->blocks);
		clv_mem_free(h->pools);
	}
	clv_mem_free(r->parts);
	clv_map_free(&r->part_index);
	clv_mem_free(r->addresses);
	clv_mem_free(r->seen);
	clv_mem_free(r->raw);
	ZSTD_freeDCtx(r->zstd);
}

struct clv_trace *clv_import_clv(const struct clv_input *in, struct clv_error *err)
{
	struct reader r = {.in = in, .err = err, .zstd = ZSTD_createDCtx()};
	r.trace = clv_mem_zalloc(1, sizeof(*r.trace));
	bool ok = r.trace && r.zstd;
	if (ok) {
		r.trace->format = CLV_FORMAT_CLV;
		r.trace->torch.max_split_size = -1;
		r.trace->file = clv_mem_strndup(in->name, strlen(in->name));
		ok = r.trace->file != NULL;
	}
	if (!ok)
		no_memory(&r);
	ok = ok && read_file(&r);
	struct clv_trace *trace = r.trace;
	ok = ok && settle(&r);
	reader_clear(&r);
	if (ok)
		return trace;
	clv_trace_free(trace);
	return NULL;
}
