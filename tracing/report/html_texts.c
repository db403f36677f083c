/* SPDX-License-Identifier: MIT */
#include "html_texts.h"

#include "../json_text.h"

#include <string.h>

#define TEXT_MAX 400u                    /* bytes of a name: those of C++ templates can have thousands */
#define TEXT_BYTES (3 * CLV_MIB)         /* of all names */
#define STACK_MAX 128u                   /* frames of a stack, from the innermost */
#define STACK_FRAMES ((uint64_t)1 << 19) /* of all stacks */

bool clv_html_texts_init(struct clv_html_texts *t)
{
	*t = (struct clv_html_texts){.text = json_array()};
	return t->text && json_array_append_new(t->text, json_string("")) == 0;
}

void clv_html_texts_free(struct clv_html_texts *t)
{
	clv_map_free(&t->strings);
	clv_map_free(&t->names);
	clv_map_free(&t->places);
	clv_map_free(&t->frames);
	clv_map_free(&t->stacks);
	clv_mem_free(t->frame_pack.data);
	clv_mem_free(t->stack_pack.data);
	json_decref(t->text);
	*t = (struct clv_html_texts){0};
}

json_t *clv_html_text(const char *bytes)
{
	static const char more[] = "\xe2\x80\xa6";
	size_t len = strlen(bytes);
	if (len <= TEXT_MAX)
		return clv_json_text(bytes);
	char cut[TEXT_MAX + sizeof(more)];
	len = TEXT_MAX;
	while (len > TEXT_MAX - 4 && (bytes[len] & 0xc0) == 0x80) /* not in the middle of a character */
		len--;
	memcpy(cut, bytes, len);
	memcpy(cut + len, more, sizeof(more));
	return clv_json_text(cut);
}

/* The number of `key`, which is `next` if it is new. 0 with `failed`: out of host memory. */
static uint32_t number(struct clv_html_texts *t, struct clv_map *map, uint64_t key, uint32_t next)
{
	struct clv_map_slot *slot = clv_map_slot(map, key);
	if (!slot) {
		t->frame_pack.failed = true;
		return 0;
	}
	if (slot->value == CLV_MAP_NONE)
		slot->value = next;
	return slot->value;
}

static uint32_t text_of(struct clv_html_texts *t, const struct clv_trace *trace, uint32_t trace_index, uint32_t string)
{
	if (string >= trace->string_count)
		return 0;
	uint32_t next = (uint32_t)json_array_size(t->text);
	bool full = t->text_bytes >= TEXT_BYTES;
	uint32_t n = number(t, &t->strings, (uint64_t)trace_index << 32 | string, full ? 0 : next);
	if (n != next || full)
		return n;
	json_t *text = clv_html_text(trace->strings[string]);
	t->text_bytes += text ? json_string_length(text) : 0;
	if (!text || json_array_append_new(t->text, text))
		t->frame_pack.failed = true;
	return n;
}

static uint32_t frame_of(struct clv_html_texts *t, const struct clv_trace *trace, uint32_t trace_index,
			 const struct clv_frame_record *f)
{
	uint32_t file = text_of(t, trace, trace_index, f->file), function = text_of(t, trace, trace_index, f->function);
	uint32_t name = number(t, &t->names, (uint64_t)file << 32 | function, t->name_count);
	t->name_count += name == t->name_count;
	uint32_t place = number(t, &t->places, f->line ? (uint64_t)f->line << 1 : f->address << 1 | 1, t->place_count);
	t->place_count += place == t->place_count;
	uint32_t frame = number(t, &t->frames, (uint64_t)name << 32 | place, t->frame_count);
	if (frame == t->frame_count) {
		t->frame_count++;
		clv_pack_number(&t->frame_pack, file);
		clv_pack_number(&t->frame_pack, function);
		clv_pack_number(&t->frame_pack, f->line);
		clv_pack_number(&t->frame_pack, f->address);
	}
	return frame;
}

uint32_t clv_html_stack(struct clv_html_texts *t, const struct clv_trace *trace, uint32_t trace_index, uint32_t stack,
			bool must)
{
	uint64_t key = (uint64_t)trace_index << 32 | stack;
	if (stack == CLV_NO_STACK || stack >= trace->stack_count || !trace->stacks[stack].count)
		return 0;
	uint32_t known = clv_map_get(&t->stacks, key);
	if (known != CLV_MAP_NONE)
		return known;
	const struct clv_stack_record *s = &trace->stacks[stack];
	uint32_t count = s->count < STACK_MAX ? s->count : STACK_MAX;
	if (!must && t->stack_frames + count > STACK_FRAMES)
		return 0;
	t->stack_frames += count;
	clv_pack_number(&t->stack_pack, count);
	for (uint32_t i = 0; i < count; i++)
		clv_pack_number(&t->stack_pack, frame_of(t, trace, trace_index, &trace->stack_frames[s->first + i]));
	return number(t, &t->stacks, key, ++t->stack_count);
}

json_t *clv_html_texts_json(struct clv_html_texts *t)
{
	json_t *frames = clv_pack_json(&t->frame_pack), *stacks = clv_pack_json(&t->stack_pack);
	if (frames && stacks)
		return json_pack("{s:O, s:o, s:o}", "text", t->text, "frames", frames, "stacks", stacks);
	json_decref(frames);
	json_decref(stacks);
	return NULL;
}
