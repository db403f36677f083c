/* SPDX-License-Identifier: MIT */
#include "symbolise.h"

#include "../map.h"
#include "symbols.h"

#include <stdio.h>
#include <string.h>

#define INLINED_MAX 16u

/* Recorded addresses are offsets in files. Each file gets a range of its own here. */
#define RANGE_SHIFT 40
#define RANGE ((uint64_t)1 << RANGE_SHIFT)
#define MODULES_MAX (1u << 20)

struct resolver {
	struct clv_trace *trace;
	struct clv_symbols *symbols;
	struct clv_map texts; /* hash of a text to its string: those made here */
	struct clv_map known; /* place to the first of its frames in `found` */
	char **strings;       /* the trace's, and more */
	size_t string_count, string_cap;
	struct clv_frame_record *found; /* of each place, ended by one with a module above all */
	size_t found_count, found_cap;
	struct clv_frame_record *frames; /* of all stacks, anew */
	size_t frame_count, frame_cap;
	struct clv_stack_record *stacks;
};

#define END_OF_PLACE UINT32_MAX

static uint64_t hash_text(const char *text)
{
	uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
	for (; *text; text++)
		h = (h ^ (uint8_t)*text) * 0x100000001b3ull;
	return clv_mix64(h);
}

/* The number of a string, added if it is new. CLV_MAP_NONE: out of host memory. */
static uint32_t string_of(struct resolver *r, const char *text)
{
	for (uint64_t key = hash_text(text);; key++) {
		struct clv_map_slot *slot = clv_map_slot(&r->texts, key);
		if (!slot)
			return CLV_MAP_NONE;
		if (slot->value != CLV_MAP_NONE && strcmp(r->strings[slot->value], text) == 0)
			return slot->value;
		if (slot->value != CLV_MAP_NONE)
			continue; /* another text with that hash */
		slot->value = 0;
		char *copy = clv_mem_strndup(text, strlen(text));
		if (!copy || r->string_count >= CLV_MAP_NONE - 1 ||
		    !clv_mem_reserve(&r->strings, &r->string_cap, r->string_count + 1, sizeof(*r->strings))) {
			clv_mem_free(copy);
			return CLV_MAP_NONE;
		}
		slot->value = (uint32_t)r->string_count;
		r->strings[r->string_count++] = copy;
		return slot->value;
	}
}

static bool add_found(struct resolver *r, struct clv_frame_record frame)
{
	if (r->found_count >= CLV_MAP_NONE - 1 ||
	    !clv_mem_reserve(&r->found, &r->found_cap, r->found_count + 1, sizeof(*r->found)))
		return false;
	r->found[r->found_count++] = frame;
	return true;
}

/* Where the frames of a place begin in `found`. */
static bool resolve(struct resolver *r, const struct clv_frame_record *f, uint32_t *first)
{
	struct clv_symbol symbols[INLINED_MAX];
	uint64_t place = (uint64_t)f->module << RANGE_SHIFT | (f->address & (RANGE - 1));
	struct clv_map_slot *slot = clv_map_slot(&r->known, place);
	if (!slot)
		return false;
	if (slot->value != CLV_MAP_NONE) {
		*first = slot->value;
		return true;
	}
	slot->value = *first = (uint32_t)r->found_count;
	/* a return address: the call is before it */
	bool findable = f->module && f->address && f->address < RANGE;
	size_t count = findable ? clv_symbols_find(r->symbols, place - 1, symbols, INLINED_MAX) : 0;
	const char *path = r->trace->strings[f->module ? r->trace->modules[f->module - 1].path : f->file];
	for (size_t i = 0; i < count; i++) {
		struct clv_frame_record frame = {.line = symbols[i].line, .module = f->module, .address = f->address};
		char offset[32];
		snprintf(offset, sizeof(offset), "+0x%llx", (unsigned long long)f->address);
		frame.function = string_of(r, symbols[i].function ? symbols[i].function : offset);
		frame.file = string_of(r, symbols[i].file ? symbols[i].file : path);
		if (frame.function == CLV_MAP_NONE || frame.file == CLV_MAP_NONE || !add_found(r, frame))
			return false;
	}
	if (!count) {
		struct clv_frame_record frame = {.module = f->module, .address = f->address};
		char offset[32];
		snprintf(offset, sizeof(offset), "%s0x%llx", f->module ? "+" : "", (unsigned long long)f->address);
		frame.function = string_of(r, offset);
		frame.file = string_of(r, path);
		if (frame.function == CLV_MAP_NONE || frame.file == CLV_MAP_NONE || !add_found(r, frame))
			return false;
	}
	return add_found(r, (struct clv_frame_record){.module = END_OF_PLACE});
}

static bool put_frame(struct resolver *r, const struct clv_frame_record *f)
{
	if (r->frame_count >= UINT32_MAX - 1 ||
	    !clv_mem_reserve(&r->frames, &r->frame_cap, r->frame_count + 1, sizeof(*r->frames)))
		return false;
	r->frames[r->frame_count++] = *f;
	return true;
}

/* As a recorder leaves it. */
static bool is_raw(const struct clv_trace *t, const struct clv_frame_record *f)
{
	return f->address && !t->strings[f->function][0];
}

static bool resolve_stack(struct resolver *r, const struct clv_stack_record *s, struct clv_stack_record *out)
{
	out->first = (uint32_t)r->frame_count;
	for (uint32_t i = s->first; i < s->first + s->count; i++) {
		const struct clv_frame_record *f = &r->trace->stack_frames[i];
		uint32_t at;
		if (!is_raw(r->trace, f)) {
			if (!put_frame(r, f))
				return false;
			continue;
		}
		if (!resolve(r, f, &at))
			return false;
		for (; r->found[at].module != END_OF_PLACE; at++)
			if (!put_frame(r, &r->found[at]))
				return false;
	}
	out->count = (uint32_t)r->frame_count - out->first;
	return true;
}

static bool add_modules(struct resolver *r)
{
	const struct clv_trace *t = r->trace;
	for (uint32_t i = 0; i < t->module_count && i < MODULES_MAX; i++) {
		const struct clv_module_record *m = &t->modules[i];
		uint64_t begin = ((uint64_t)i + 1) << RANGE_SHIFT;
		const struct clv_symbols_module module = {.path = t->strings[m->path],
							  .begin = begin,
							  .end = begin + RANGE,
							  .bias = begin,
							  .build_id = m->build_id,
							  .build_id_len = m->build_id_len};
		if (!clv_symbols_add(r->symbols, &module))
			return false;
	}
	return true;
}

static bool resolve_all(struct resolver *r, const char *debug_folders)
{
	struct clv_trace *t = r->trace;
	r->symbols = clv_symbols_open(debug_folders);
	r->stacks = clv_mem_zalloc(t->stack_count, sizeof(*r->stacks));
	if (!r->symbols || !r->stacks || !add_modules(r) ||
	    !clv_mem_reserve(&r->strings, &r->string_cap, t->string_count, sizeof(*r->strings)))
		return false;
	if (t->string_count)
		memcpy(r->strings, t->strings, t->string_count * sizeof(*r->strings));
	r->string_count = t->string_count;
	for (uint32_t i = 0; i < t->stack_count; i++)
		if (!resolve_stack(r, &t->stacks[i], &r->stacks[i]))
			return false;
	return true;
}

bool clv_trace_symbolise(struct clv_trace *trace, const char *debug_folders, struct clv_error *err)
{
	struct resolver r = {.trace = trace};
	bool any = false;
	for (uint32_t i = 0; i < trace->stack_frame_count && !any; i++)
		any = is_raw(trace, &trace->stack_frames[i]);
	if (!any)
		return true;
	bool ok = resolve_all(&r, debug_folders);
	clv_symbols_close(r.symbols);
	clv_map_free(&r.texts);
	clv_map_free(&r.known);
	clv_mem_free(r.found);
	if (!ok) {
		for (size_t i = trace->string_count; i < r.string_count; i++)
			clv_mem_free(r.strings[i]);
		clv_mem_free(r.strings);
		clv_mem_free(r.frames);
		clv_mem_free(r.stacks);
		return clv_error_set(err, "%s: out of host memory", trace->file);
	}
	clv_mem_free(trace->strings);
	clv_mem_free(trace->stack_frames);
	clv_mem_free(trace->stacks);
	trace->strings = r.strings;
	trace->string_count = (uint32_t)r.string_count;
	trace->stack_frames = r.frames;
	trace->stack_frame_count = (uint32_t)r.frame_count;
	trace->stacks = r.stacks;
	return true;
}
