/* SPDX-License-Identifier: MIT */
#include "clv_encode.h"

#include "../trace.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

bool clv_buf_reserve(struct clv_encoder *e, struct clv_buf *b, size_t more)
{
	if (e->failed)
		return false;
	if (b->cap - b->len >= more)
		return true;
	size_t cap = b->cap ? b->cap * 2 : 256;
	while (cap - b->len < more)
		cap *= 2;
	uint8_t *grown = e->memory->resize(b->data, cap);
	if (!grown) {
		e->failed = true;
		return false;
	}
	b->data = grown;
	b->cap = cap;
	return true;
}

void clv_buf_put(struct clv_encoder *e, struct clv_buf *b, const void *data, size_t len)
{
	if (len == 0 || !clv_buf_reserve(e, b, len))
		return;
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

void clv_buf_byte(struct clv_encoder *e, struct clv_buf *b, uint8_t v)
{
	if (clv_buf_reserve(e, b, 1))
		b->data[b->len++] = v;
}

void clv_buf_number(struct clv_encoder *e, struct clv_buf *b, uint64_t v)
{
	if (!clv_buf_reserve(e, b, 10))
		return;
	uint8_t *at = b->data + b->len;
	for (; v >= 128; v >>= 7)
		*at++ = (uint8_t)v | 128;
	*at++ = (uint8_t)v;
	b->len = (size_t)(at - b->data);
}

void clv_buf_signed(struct clv_encoder *e, struct clv_buf *b, uint64_t difference)
{
	clv_buf_number(e, b, clv_zigzag(difference));
}

void clv_buf_free(struct clv_encoder *e, struct clv_buf *b)
{
	e->memory->release(b->data);
	*b = (struct clv_buf){0};
}

void clv_encoder_clear(struct clv_encoder *e)
{
	clv_buf_free(e, &e->chunk);
	clv_buf_free(e, &e->record);
	clv_buf_free(e, &e->scratch);
}

void clv_encode_field(struct clv_encoder *e, uint64_t id, const void *data, size_t len)
{
	clv_buf_number(e, &e->record, id);
	clv_buf_number(e, &e->record, len);
	clv_buf_put(e, &e->record, data, len);
}

void clv_encode_number(struct clv_encoder *e, uint64_t id, uint64_t v)
{
	e->scratch.len = 0;
	clv_buf_number(e, &e->scratch, v);
	clv_encode_field(e, id, e->scratch.data, e->scratch.len);
}

void clv_encode_column(struct clv_encoder *e, uint64_t id, struct clv_buf *column)
{
	clv_encode_field(e, id, column->data, column->len);
	column->len = 0;
}

/* A column of which all entries are as if it were not there. */
static void encode_unless(struct clv_encoder *e, bool dull, uint64_t id, struct clv_buf *column)
{
	if (!dull)
		clv_encode_column(e, id, column);
	column->len = 0;
}

void clv_encode_end(struct clv_encoder *e, enum clv_record_kind kind)
{
	if (e->flush && e->chunk.len && e->chunk.len + e->record.len > e->chunk_target)
		e->flush(e);
	clv_buf_number(e, &e->chunk, kind);
	clv_buf_number(e, &e->chunk, e->record.len);
	clv_buf_put(e, &e->chunk, e->record.data, e->record.len);
	e->record.len = 0;
}

void clv_encode_file_header(uint8_t header[CLV_FILE_HEADER])
{
	memcpy(header, CLV_FILE_MAGIC, 8);
	clv_put_le(header + 8, CLV_FILE_VERSION, 4);
	clv_put_le(header + 12, 0, 4);
	clv_put_le(header + 16, XXH64(header, 16, 0), 8);
}

void clv_encode_chunk_header(uint8_t header[CLV_CHUNK_HEADER], const void *payload, size_t stored, size_t raw)
{
	clv_put_le(header, CLV_CHUNK_MAGIC, 4);
	clv_put_le(header + 4, stored, 4);
	clv_put_le(header + 8, raw, 4);
	clv_put_le(header + 12, 0, 4);
	clv_put_le(header + 16, XXH64(payload, stored, 0), 8);
	clv_put_le(header + 24, XXH64(header, 24, 0), 8);
}

static void free_all(struct clv_encoder *e, struct clv_buf *const *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		clv_buf_free(e, all[i]);
}

/* ---- strings, modules, stacks ---- */

void clv_encode_string(struct clv_encoder *e, struct clv_encode_strings *s, const char *text, size_t len)
{
	clv_buf_number(e, &s->lengths, len);
	clv_buf_put(e, &s->text, text, len);
}

void clv_encode_strings_end(struct clv_encoder *e, struct clv_encode_strings *s)
{
	if (s->lengths.len == 0)
		return;
	clv_encode_column(e, CLV_STRINGS_LENGTHS, &s->lengths);
	clv_encode_column(e, CLV_STRINGS_TEXT, &s->text);
	clv_encode_end(e, CLV_REC_STRINGS);
}

void clv_encode_strings_free(struct clv_encoder *e, struct clv_encode_strings *s)
{
	struct clv_buf *const all[] = {&s->lengths, &s->text};
	free_all(e, all, CLV_ARRAY_LEN(all));
}

void clv_encode_module(struct clv_encoder *e, struct clv_encode_modules *m, uint32_t path, const void *build_id,
		       size_t build_id_len)
{
	clv_buf_number(e, &m->paths, path);
	clv_buf_number(e, &m->id_lengths, build_id_len);
	clv_buf_put(e, &m->ids, build_id, build_id_len);
}

void clv_encode_modules_end(struct clv_encoder *e, struct clv_encode_modules *m)
{
	if (m->paths.len == 0)
		return;
	clv_encode_column(e, CLV_MODULES_PATHS, &m->paths);
	clv_encode_column(e, CLV_MODULES_ID_LENGTHS, &m->id_lengths);
	clv_encode_column(e, CLV_MODULES_IDS, &m->ids);
	clv_encode_end(e, CLV_REC_MODULES);
}

void clv_encode_modules_free(struct clv_encoder *e, struct clv_encode_modules *m)
{
	struct clv_buf *const all[] = {&m->paths, &m->id_lengths, &m->ids};
	free_all(e, all, CLV_ARRAY_LEN(all));
}

void clv_encode_stack(struct clv_encoder *e, struct clv_encode_stacks *s, uint32_t frames)
{
	clv_buf_number(e, &s->counts, frames);
}

void clv_encode_frame(struct clv_encoder *e, struct clv_encode_stacks *s, uint32_t file, uint32_t function,
		      uint32_t line, uint32_t module, uint64_t address)
{
	clv_buf_number(e, &s->files, file);
	clv_buf_number(e, &s->functions, function);
	clv_buf_signed(e, &s->lines, (uint64_t)line - s->line);
	clv_buf_number(e, &s->modules, module);
	clv_buf_signed(e, &s->addresses, address - s->address);
	s->line = line;
	s->address = address;
	s->any_native |= address != 0 || module != 0;
}

void clv_encode_stacks_end(struct clv_encoder *e, struct clv_encode_stacks *s)
{
	if (s->counts.len == 0)
		return;
	clv_encode_column(e, CLV_STACKS_COUNTS, &s->counts);
	clv_encode_column(e, CLV_STACKS_FILES, &s->files);
	clv_encode_column(e, CLV_STACKS_FUNCTIONS, &s->functions);
	clv_encode_column(e, CLV_STACKS_LINES, &s->lines);
	encode_unless(e, !s->any_native, CLV_STACKS_MODULES, &s->modules);
	encode_unless(e, !s->any_native, CLV_STACKS_ADDRESSES, &s->addresses);
	clv_encode_end(e, CLV_REC_STACKS);
	s->line = 0;
	s->address = 0;
	s->any_native = false;
}

void clv_encode_stacks_free(struct clv_encoder *e, struct clv_encode_stacks *s)
{
	struct clv_buf *const all[] = {&s->counts, &s->files, &s->functions, &s->lines, &s->modules, &s->addresses};
	free_all(e, all, CLV_ARRAY_LEN(all));
}

/* ---- events ---- */

static struct clv_encode_slot *probe(const struct clv_encode_events *s, uint64_t addr)
{
	for (size_t i = clv_mix64(addr) & (s->slot_count - 1);; i = (i + 1) & (s->slot_count - 1))
		if (s->slots[i].epoch != s->epoch || s->slots[i].addr == addr)
			return &s->slots[i];
}

/* Makes the table twice as large. */
static bool grow_table(struct clv_encoder *e, struct clv_encode_events *s)
{
	struct clv_encode_events grown = *s;
	grown.slot_count = s->slot_count ? s->slot_count * 2 : 256;
	grown.slots = e->memory->resize(NULL, grown.slot_count * sizeof(*grown.slots));
	if (!grown.slots) {
		e->failed = true;
		return false;
	}
	memset(grown.slots, 0, grown.slot_count * sizeof(*grown.slots));
	grown.epoch = 1;
	for (size_t i = 0; i < s->slot_count; i++)
		if (s->slots[i].epoch == s->epoch) {
			struct clv_encode_slot *slot = probe(&grown, s->slots[i].addr);
			*slot = s->slots[i];
			slot->epoch = 1;
		}
	e->memory->release(s->slots);
	*s = grown;
	return true;
}

/* The number of an address in this record, and whether it is new. */
static bool number_address(struct clv_encoder *e, struct clv_encode_events *s, uint64_t addr, uint32_t *number,
			   bool *is_new)
{
	if (e->failed)
		return false;
	if ((size_t)(s->address_count + 1) * 3 > s->slot_count * 2 && !grow_table(e, s))
		return false;
	struct clv_encode_slot *slot = probe(s, addr);
	*is_new = slot->epoch != s->epoch;
	if (*is_new) {
		if (s->address_count == s->seen_cap) {
			size_t cap = s->seen_cap ? s->seen_cap * 2 : 256;
			struct clv_encode_seen *seen = e->memory->resize(s->seen, cap * sizeof(*seen));
			if (!seen) {
				e->failed = true;
				return false;
			}
			s->seen = seen;
			s->seen_cap = cap;
		}
		*slot = (struct clv_encode_slot){addr, s->address_count, s->epoch};
		s->seen[s->address_count++] = (struct clv_encode_seen){0, 0, 0};
	}
	*number = slot->number;
	return true;
}

void clv_encode_event(struct clv_encoder *e, struct clv_encode_events *s, const struct clv_encode_event *event)
{
	uint32_t number;
	bool is_new;
	if (!number_address(e, s, event->addr, &number, &is_new))
		return;
	struct clv_encode_seen *seen = &s->seen[number];
	clv_buf_byte(e, &s->actions, event->action < CLV_ACTION_OTHER ? event->action : CLV_ACTION_BYTE_OTHER);
	clv_buf_signed(e, &s->times, event->time - s->time);
	if (is_new) {
		clv_buf_number(e, &s->references, 0);
		clv_buf_signed(e, &s->fresh, event->addr - s->last_new);
		s->last_new = event->addr;
	} else {
		clv_buf_number(e, &s->references, clv_zigzag((uint64_t)number - s->number) + 1);
	}
	clv_buf_signed(e, &s->sizes, event->size - seen->size);
	clv_buf_signed(e, &s->streams, (uint64_t)event->stream - seen->stream);
	clv_buf_signed(e, &s->stacks, (uint64_t)event->stack - seen->stack);
	clv_buf_byte(e, &s->flags, event->flags);
	clv_buf_signed(e, &s->threads, (uint64_t)event->thread - s->thread);
	clv_buf_number(e, &s->slack, event->slack);
	s->any_stack |= event->stack != CLV_NO_STACK;
	s->any_flag |= event->flags != 0;
	s->any_thread |= event->thread != 0;
	s->any_slack |= event->slack != 0;
	s->time = event->time;
	s->number = number;
	s->thread = event->thread;
	*seen = (struct clv_encode_seen){event->size, event->stream, event->stack};
}

void clv_encode_events_end(struct clv_encoder *e, struct clv_encode_events *s, uint64_t device, uint32_t unit)
{
	if (s->actions.len) {
		clv_encode_number(e, CLV_ANY_DEVICE, device);
		clv_encode_column(e, CLV_EVENTS_ACTIONS, &s->actions);
		clv_encode_column(e, CLV_EVENTS_TIMES, &s->times);
		clv_encode_column(e, CLV_EVENTS_ADDRESSES, &s->references);
		clv_encode_column(e, CLV_EVENTS_NEW_ADDRESSES, &s->fresh);
		clv_encode_column(e, CLV_EVENTS_SIZES, &s->sizes);
		clv_encode_column(e, CLV_EVENTS_STREAMS, &s->streams);
		encode_unless(e, !s->any_stack, CLV_EVENTS_STACKS, &s->stacks);
		encode_unless(e, !s->any_flag, CLV_EVENTS_FLAGS, &s->flags);
		if (unit != CLV_UNIT_DEFAULT)
			clv_encode_number(e, CLV_ANY_UNIT, unit);
		encode_unless(e, !s->any_thread, CLV_EVENTS_THREADS, &s->threads);
		encode_unless(e, !s->any_slack, CLV_EVENTS_SLACK, &s->slack);
		clv_encode_end(e, CLV_REC_EVENTS);
	}
	s->any_stack = s->any_flag = s->any_thread = s->any_slack = false;
	s->time = s->last_new = 0;
	s->number = s->thread = s->address_count = 0;
	if (++s->epoch == 0) {
		if (s->slots)
			memset(s->slots, 0, s->slot_count * sizeof(*s->slots));
		s->epoch = 1;
	}
}

void clv_encode_events_free(struct clv_encoder *e, struct clv_encode_events *s)
{
	struct clv_buf *const all[] = {&s->actions, &s->times,  &s->references, &s->fresh,   &s->sizes,
				       &s->streams, &s->stacks, &s->flags,      &s->threads, &s->slack};
	free_all(e, all, CLV_ARRAY_LEN(all));
	e->memory->release(s->slots);
	e->memory->release(s->seen);
	*s = (struct clv_encode_events){0};
}

/* ---- notes ---- */

void clv_encode_note(struct clv_encoder *e, struct clv_encode_notes *s, const struct clv_encode_note *n)
{
	struct clv_note_seen *seen = &s->seen[clv_note_slot(n->kind)];
	clv_buf_number(e, &s->kinds, n->kind);
	clv_buf_signed(e, &s->times, n->time - s->time);
	clv_buf_signed(e, &s->addresses, n->addr - seen->addr);
	clv_buf_signed(e, &s->sizes, n->size - seen->size);
	clv_buf_signed(e, &s->as, n->a - seen->a);
	clv_buf_signed(e, &s->bs, n->b - seen->b);
	clv_buf_signed(e, &s->events, n->event - s->event);
	clv_buf_number(e, &s->streams, n->stream);
	clv_buf_number(e, &s->texts, n->text);
	clv_buf_number(e, &s->stacks, n->stack);
	clv_buf_signed(e, &s->threads, (uint64_t)n->thread - s->thread);
	s->any_event |= n->event != UINT64_MAX;
	s->any_stream |= n->stream != 0;
	s->any_text |= n->text != 0;
	s->any_stack |= n->stack != 0;
	s->any_thread |= n->thread != 0;
	s->time = n->time;
	s->event = n->event;
	s->thread = n->thread;
	*seen = (struct clv_note_seen){n->addr, n->size, n->a, n->b};
}

void clv_encode_notes_end(struct clv_encoder *e, struct clv_encode_notes *s, int64_t device, uint32_t unit)
{
	if (s->kinds.len) {
		if (device >= 0)
			clv_encode_number(e, CLV_ANY_DEVICE, (uint64_t)device);
		clv_encode_column(e, CLV_NOTES_KINDS, &s->kinds);
		clv_encode_column(e, CLV_NOTES_TIMES, &s->times);
		clv_encode_column(e, CLV_NOTES_ADDRESSES, &s->addresses);
		clv_encode_column(e, CLV_NOTES_SIZES, &s->sizes);
		clv_encode_column(e, CLV_NOTES_A, &s->as);
		clv_encode_column(e, CLV_NOTES_B, &s->bs);
		encode_unless(e, !s->any_stream, CLV_NOTES_STREAMS, &s->streams);
		encode_unless(e, !s->any_text, CLV_NOTES_TEXTS, &s->texts);
		if (unit != CLV_UNIT_DEFAULT)
			clv_encode_number(e, CLV_ANY_UNIT, unit);
		encode_unless(e, !s->any_thread, CLV_NOTES_THREADS, &s->threads);
		encode_unless(e, !s->any_stack, CLV_NOTES_STACKS, &s->stacks);
		encode_unless(e, !s->any_event, CLV_NOTES_EVENTS, &s->events);
		clv_encode_end(e, CLV_REC_NOTES);
	}
	s->any_event = s->any_stream = s->any_text = s->any_stack = s->any_thread = false;
	s->time = s->event = 0;
	s->thread = 0;
	memset(s->seen, 0, sizeof(s->seen));
}

void clv_encode_notes_free(struct clv_encoder *e, struct clv_encode_notes *s)
{
	struct clv_buf *const all[] = {&s->kinds,  &s->times,   &s->addresses, &s->sizes,  &s->as,     &s->bs,
				       &s->events, &s->streams, &s->texts,     &s->stacks, &s->threads};
	free_all(e, all, CLV_ARRAY_LEN(all));
	*s = (struct clv_encode_notes){0};
}
