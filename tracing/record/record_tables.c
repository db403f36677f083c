/* SPDX-License-Identifier: MIT */
#include "record_tables.h"

#include "stack.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define STRINGS_KNOWN_MAX ((size_t)1 << 20) /* texts without end, as of marks that count, are not all remembered */

static struct clv_number_slot *probe(const struct clv_number_map *m, uint64_t key)
{
	for (size_t i = clv_mix64(key) & (m->count - 1);; i = (i + 1) & (m->count - 1))
		if (m->slots[i].number == CLV_NO_NUMBER || m->slots[i].key == key)
			return &m->slots[i];
}

static void map_clear(struct clv_number_map *m)
{
	for (size_t i = 0; i < m->count; i++)
		m->slots[i].number = CLV_NO_NUMBER;
	m->used = 0;
}

/* The slot of `key`; a new one has CLV_NO_NUMBER, and must get a number. NULL: no host memory. */
static struct clv_number_slot *map_slot(struct clv_encoder *e, struct clv_number_map *m, uint64_t key)
{
	if (e->failed)
		return NULL;
	if ((m->used + 1) * 3 > m->count * 2) {
		struct clv_number_map grown = {.count = m->count ? m->count * 2 : 64};
		grown.slots = e->memory->resize(NULL, grown.count * sizeof(*grown.slots));
		if (!grown.slots) {
			e->failed = true;
			return NULL;
		}
		map_clear(&grown);
		grown.used = m->used;
		for (size_t i = 0; i < m->count; i++)
			if (m->slots[i].number != CLV_NO_NUMBER)
				*probe(&grown, m->slots[i].key) = m->slots[i];
		e->memory->release(m->slots);
		*m = grown;
	}
	struct clv_number_slot *slot = probe(m, key);
	if (slot->number == CLV_NO_NUMBER) {
		slot->key = key;
		m->used++;
	}
	return slot;
}

/* Nothing is known that was not written. */
static void forget(struct clv_encoder *e, struct clv_record_tables *t)
{
	map_clear(&t->stream_numbers);
	map_clear(&t->string_numbers);
	map_clear(&t->stack_numbers);
	map_clear(&t->module_numbers);
	clv_buf_free(e, &t->new_streams);
	clv_encode_strings_free(e, &t->new_strings);
	clv_encode_modules_free(e, &t->new_modules);
	clv_encode_stacks_free(e, &t->new_stacks);
	t->new_stacks = (struct clv_encode_stacks){0};
	t->counts = t->written;
	t->cost = 0;
	if (!t->counts.strings)
		clv_tables_string(e, t, "", 0); /* string 0: what functions of native frames are called */
}

void clv_tables_begin(struct clv_encoder *e, struct clv_record_tables *t)
{
	t->written = (struct clv_table_counts){.stacks = 1};
	forget(e, t);
}

void clv_tables_kept(struct clv_record_tables *t)
{
	t->written = t->counts;
}

void clv_tables_lost(struct clv_encoder *e, struct clv_record_tables *t)
{
	forget(e, t);
}

void clv_tables_free(struct clv_encoder *e, struct clv_record_tables *t)
{
	struct clv_number_map *const maps[] = {&t->stream_numbers, &t->string_numbers, &t->stack_numbers,
					       &t->module_numbers, &t->address_modules};
	forget(e, t);
	clv_encode_strings_free(e, &t->new_strings);
	for (size_t i = 0; i < CLV_ARRAY_LEN(maps); i++)
		e->memory->release(maps[i]->slots);
	*t = (struct clv_record_tables){0};
}

uint32_t clv_tables_stream(struct clv_encoder *e, struct clv_record_tables *t, uint64_t handle)
{
	struct clv_number_slot *slot = map_slot(e, &t->stream_numbers, handle);
	if (!slot)
		return 0;
	if (slot->number == CLV_NO_NUMBER) {
		slot->number = t->counts.streams++;
		clv_buf_number(e, &t->new_streams, handle);
		t->cost += 10;
	}
	return slot->number;
}

static uint32_t add_string(struct clv_encoder *e, struct clv_record_tables *t, const char *text, size_t len)
{
	clv_encode_string(e, &t->new_strings, text, len);
	t->cost += len + 2;
	return t->counts.strings++;
}

uint32_t clv_tables_string(struct clv_encoder *e, struct clv_record_tables *t, const char *text, size_t len)
{
	/* Two texts with one hash of 64 bits do not occur in a file. */
	uint64_t hash = XXH3_64bits(text, len);
	if (t->string_numbers.used >= STRINGS_KNOWN_MAX) {
		struct clv_number_slot *known = probe(&t->string_numbers, hash);
		return known->number != CLV_NO_NUMBER ? known->number : add_string(e, t, text, len);
	}
	struct clv_number_slot *slot = map_slot(e, &t->string_numbers, hash);
	if (!slot)
		return 0;
	if (slot->number == CLV_NO_NUMBER)
		slot->number = add_string(e, t, text, len);
	return slot->number;
}

/* The number of a module in the file, plus 1. */
static uint32_t module_number(struct clv_encoder *e, struct clv_record_tables *t, uint32_t id,
			      const struct clv_stack_module *m)
{
	struct clv_number_slot *slot = map_slot(e, &t->module_numbers, id);
	if (!slot)
		return 0;
	if (slot->number == CLV_NO_NUMBER) {
		slot->number = t->counts.modules++;
		uint32_t path = clv_tables_string(e, t, m->path, strlen(m->path));
		clv_encode_module(e, &t->new_modules, path, m->build_id, m->build_id_len);
		t->cost += m->build_id_len + 8;
	}
	return slot->number + 1;
}

/* The id of the module that an address returns into; 0: none. */
static uint32_t module_of(struct clv_encoder *e, struct clv_record_tables *t, uint64_t address)
{
	struct clv_stack_module m;
	uint32_t count = clv_stack_module_count();
	if (count != t->modules_known) {
		map_clear(&t->address_modules);
		t->modules_known = count;
	}
	struct clv_number_slot *slot = map_slot(e, &t->address_modules, address);
	if (!slot)
		return 0;
	if (slot->number != CLV_NO_NUMBER)
		return slot->number;
	slot->number = 0;
	/* the call is before its return address, which can be the first of the next range; the youngest of several */
	for (uint32_t id = count; id > 0 && !slot->number; id--)
		if (clv_stack_module(id, &m) && address - 1 >= m.begin && address - 1 < m.end)
			slot->number = id;
	return slot->number;
}

static void put_native(struct clv_encoder *e, struct clv_record_tables *t, uint64_t address)
{
	struct clv_stack_module m;
	uint32_t id = module_of(e, t, address), module = 0, path = 0;
	if (!id && !t->looked_anew) {
		t->looked_anew = true;
		clv_stack_poll(); /* it can have been loaded since */
		id = module_of(e, t, address);
	}
	if (id && clv_stack_module(id, &m)) {
		module = module_number(e, t, id, &m);
		path = clv_tables_string(e, t, m.path, strlen(m.path));
		address -= m.bias;
	}
	clv_encode_frame(e, &t->new_stacks, path, 0, 0, module, address);
}

static void put_python(struct clv_encoder *e, struct clv_record_tables *t, uint32_t id)
{
	struct clv_stack_frame frame = {0};
	size_t len = 0;
	const char *text;
	uint32_t file = 0, function = 0;
	if (clv_stack_frame(id, &frame)) {
		if ((text = clv_stack_string(frame.file, &len)))
			file = clv_tables_string(e, t, text, len);
		if ((text = clv_stack_string(frame.function, &len)))
			function = clv_tables_string(e, t, text, len);
	}
	clv_encode_frame(e, &t->new_stacks, file, function, frame.line, 0, 0);
}

uint32_t clv_tables_stack(struct clv_encoder *e, struct clv_record_tables *t, uint32_t id)
{
	struct clv_stack stack;
	if (id == 0)
		return 0;
	struct clv_number_slot *slot = map_slot(e, &t->stack_numbers, id);
	if (!slot)
		return 0;
	if (slot->number != CLV_NO_NUMBER)
		return slot->number;
	slot->number = 0;
	if (!clv_stack_get(id, &stack))
		return 0;
	slot->number = t->counts.stacks++;
	uint32_t number = slot->number;
	clv_encode_stack(e, &t->new_stacks, (uint32_t)stack.native_count + stack.python_count);
	for (uint32_t i = 0; i < stack.native_count; i++)
		put_native(e, t, stack.native[i]);
	for (uint32_t i = 0; i < stack.python_count; i++)
		put_python(e, t, stack.python[i]);
	t->cost += ((uint64_t)stack.native_count + stack.python_count) * 12 + 2;
	return number;
}

void clv_tables_end(struct clv_encoder *e, struct clv_record_tables *t)
{
	if (t->new_streams.len) {
		clv_encode_column(e, CLV_STREAMS_HANDLES, &t->new_streams);
		clv_encode_end(e, CLV_REC_STREAMS);
	}
	clv_encode_strings_end(e, &t->new_strings);
	clv_encode_modules_end(e, &t->new_modules);
	clv_encode_stacks_end(e, &t->new_stacks);
	t->cost = 0;
}
