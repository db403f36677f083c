/* SPDX-License-Identifier: MIT
 *
 * Writes PyTorch memory snapshots: pickles of the keys that torch.cuda.memory._snapshot() returns, so that
 * pytorch.org/memory_viz and torch.cuda._memory_viz read them. What a trace does not know is either left out or made
 * up, and then marked (the strings are listed in torch_snapshot.h), since viewers rewind the history from its final
 * state and stop at what contradicts it:
 *
 *   - a history without a final state gets one (torch_state.h);
 *   - frames that a recording's notes tell of become segment_map and segment_unmap at that moment, what the driver gave
 *     segment_alloc and segment_free; they are of stream 0, since Cleave's frames serve every stream;
 *   - a free_completed without its free_requested, as in logs of RMM, gets one, and so does the other way round a free
 *     whose completion was left out of the recording.
 *
 * User marks and phases become external_annotations; the rest of the notes, threads, and actions' names that this version does
 * not know are not held by the format. The settings that say nothing about placement are left out.
 */
#include "export.h"

#include "../import/torch_snapshot.h"
#include "pickle_write.h"
#include "torch_state.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct writer {
	struct clv_pickle_writer p;
	const struct clv_trace *trace;
	uint32_t keys[CLV_S_COUNT]; /* numbers in the memo, here and below; CLV_PW_NO_MEMO: not written yet */
	uint32_t *strings, *stacks;
	uint32_t *frames;               /* by the first place of an equal frame in the trace */
	struct clv_map frame_index;     /* hash of a frame to its first place */
	struct clv_torch_state *states; /* of each history: made up, or empty */
	uint8_t *pending;               /* of each block of the history that is written: its free was requested */
};

static bool no_memory(struct writer *w)
{
	return clv_sink_fail(&w->p.sink, "out of host memory");
}

static void put_string(struct writer *w, enum clv_snapshot_string s)
{
	clv_pw_known_text(&w->p, clv_snapshot_strings[s], &w->keys[s]);
}

static void put_trace_string(struct writer *w, uint32_t s)
{
	clv_pw_known_text(&w->p, w->trace->strings[s], &w->strings[s]);
}

static void put_uint(struct writer *w, enum clv_snapshot_string key, uint64_t v)
{
	put_string(w, key);
	clv_pw_uint(&w->p, v);
}

/* Addresses and sizes: below 2^63, as every device's are, also where nothing has checked it. */
static void put_size(struct writer *w, enum clv_snapshot_string key, uint64_t v)
{
	put_uint(w, key, clv_min_u64(v, INT64_MAX));
}

static void put_text(struct writer *w, enum clv_snapshot_string key, enum clv_snapshot_string value)
{
	put_string(w, key);
	put_string(w, value);
}

/* Handles are seen as signed integers, since readers know 8 bytes. */
static void put_stream(struct writer *w, uint32_t stream)
{
	put_string(w, CLV_S_STREAM);
	clv_pw_int(&w->p, stream == CLV_NO_STREAM ? 0 : (int64_t)w->trace->streams[stream]);
}

/* The first place in the trace of a frame like number f; UINT32_MAX: out of host memory. */
static uint32_t first_like(struct writer *w, uint32_t f)
{
	const struct clv_frame_record *frames = w->trace->stack_frames;
	for (uint64_t key = XXH3_64bits(&frames[f], sizeof(frames[f]));; key = clv_mix64(key + 1)) {
		struct clv_map_slot *slot = clv_map_slot(&w->frame_index, key);
		if (!slot)
			return UINT32_MAX;
		if (slot->value == CLV_MAP_NONE)
			slot->value = f;
		else if (memcmp(&frames[slot->value], &frames[f], sizeof(frames[f])) != 0)
			continue;
		return slot->value;
	}
}

static void put_frame(struct writer *w, uint32_t f)
{
	uint32_t first = first_like(w, f);
	if (first == UINT32_MAX) {
		no_memory(w);
		return;
	}
	if (w->frames[first] != CLV_PW_NO_MEMO) {
		clv_pw_get(&w->p, w->frames[first]);
		return;
	}
	const struct clv_frame_record *r = &w->trace->stack_frames[f];
	clv_pw_dict_begin(&w->p);
	put_string(w, CLV_S_NAME);
	put_trace_string(w, r->function);
	put_string(w, CLV_S_FILENAME);
	put_trace_string(w, r->file);
	put_uint(w, CLV_S_LINE, r->line);
	clv_pw_dict_end(&w->p);
	w->frames[first] = clv_pw_memoize(&w->p);
}

static void put_stack(struct writer *w, uint32_t stack)
{
	const struct clv_stack_record *r = &w->trace->stacks[stack];
	struct clv_pickle_list list;
	put_string(w, CLV_S_FRAMES);
	if (r->count && w->stacks[stack] != CLV_PW_NO_MEMO) {
		clv_pw_get(&w->p, w->stacks[stack]);
		return;
	}
	clv_pw_list_begin(&w->p, &list);
	for (uint32_t i = 0; i < r->count && !clv_sink_failed(&w->p.sink); i++) {
		clv_pw_list_item(&w->p, &list);
		put_frame(w, r->first + i);
	}
	clv_pw_list_end(&w->p, &list);
	if (r->count)
		w->stacks[stack] = clv_pw_memoize(&w->p);
}

static void put_block(struct writer *w, const struct clv_block_record *b)
{
	static const enum clv_snapshot_string states[] = {
		[CLV_BLOCK_INACTIVE] = CLV_S_INACTIVE,
		[CLV_BLOCK_ACTIVE] = CLV_S_ACTIVE_ALLOCATED,
		[CLV_BLOCK_PENDING_FREE] = CLV_S_ACTIVE_PENDING_FREE,
	};
	clv_pw_dict_begin(&w->p);
	put_size(w, CLV_S_ADDRESS, b->addr);
	put_size(w, CLV_S_SIZE, b->size);
	put_size(w, CLV_S_REQUESTED_SIZE, b->requested);
	put_text(w, CLV_S_STATE, states[b->state]);
	put_stack(w, b->stack);
	clv_pw_dict_end(&w->p);
}

static void put_segment(struct writer *w, int device, const struct clv_segment_record *s,
			const struct clv_block_record *blocks, const struct clv_pool_id *pool)
{
	struct clv_pickle_list list;
	uint64_t allocated = 0, active = 0, requested = 0;
	for (uint32_t i = 0; i < s->blocks; i++) {
		const struct clv_block_record *b = &blocks[s->first_block + i];
		allocated += b->state == CLV_BLOCK_ACTIVE ? b->size : 0;
		active += b->state != CLV_BLOCK_INACTIVE ? b->size : 0;
		requested += b->state != CLV_BLOCK_INACTIVE ? b->requested : 0;
	}
	clv_pw_dict_begin(&w->p);
	put_uint(w, CLV_S_DEVICE, (uint64_t)device);
	put_size(w, CLV_S_ADDRESS, s->addr);
	put_size(w, CLV_S_TOTAL_SIZE, s->size);
	put_size(w, CLV_S_ALLOCATED_SIZE, allocated);
	put_size(w, CLV_S_ACTIVE_SIZE, active);
	put_size(w, CLV_S_REQUESTED_SIZE, requested);
	put_stream(w, s->stream);
	put_text(w, CLV_S_SEGMENT_TYPE, s->small ? CLV_S_SMALL : CLV_S_LARGE);
	put_string(w, CLV_S_SEGMENT_POOL_ID);
	clv_pw_int(&w->p, (int64_t)pool->a);
	clv_pw_int(&w->p, (int64_t)pool->b);
	clv_pw_pair(&w->p);
	put_string(w, CLV_S_IS_EXPANDABLE);
	clv_pw_bool(&w->p, s->expandable);
	put_string(w, CLV_S_BLOCKS);
	clv_pw_list_begin(&w->p, &list);
	for (uint32_t i = 0; i < s->blocks && !clv_sink_failed(&w->p.sink); i++) {
		clv_pw_list_item(&w->p, &list);
		put_block(w, &blocks[s->first_block + i]);
	}
	clv_pw_list_end(&w->p, &list);
	put_stack(w, s->stack); /* behind the blocks, as PyTorch adds frames when all is gathered */
	clv_pw_dict_end(&w->p);
}

static void put_made_state(struct writer *w, const struct clv_history *h, const struct clv_torch_state *state,
			   struct clv_pickle_list *list)
{
	static const struct clv_pool_id no_pool = {0, 0};
	for (uint32_t i = 0; i < state->segment_count && !clv_sink_failed(&w->p.sink); i++) {
		clv_pw_list_item(&w->p, list);
		put_segment(w, h->device, &state->segments[i], state->blocks, &no_pool);
	}
}

static void put_segments(struct writer *w)
{
	struct clv_pickle_list list;
	put_string(w, CLV_S_SEGMENTS);
	clv_pw_list_begin(&w->p, &list);
	for (uint32_t d = 0; d < w->trace->history_count; d++) {
		const struct clv_history *h = &w->trace->histories[d];
		if (!h->has_state) {
			if (!clv_torch_state_make(&w->states[d], w->trace, h))
				no_memory(w);
			put_made_state(w, h, &w->states[d], &list);
			continue;
		}
		for (uint32_t i = 0; i < h->segment_count && !clv_sink_failed(&w->p.sink); i++) {
			clv_pw_list_item(&w->p, &list);
			put_segment(w, h->device, &h->segments[i], h->blocks, &h->pools[h->segments[i].pool]);
		}
	}
	clv_pw_list_end(&w->p, &list);
}

static void put_event(struct writer *w, struct clv_pickle_list *list, const struct clv_event_record *e, uint8_t action,
		      bool made_up)
{
	clv_pw_list_item(&w->p, list);
	clv_pw_dict_begin(&w->p);
	put_string(w, CLV_S_ACTION);
	if (action < CLV_ACTION_OTHER)
		put_string(w, (enum clv_snapshot_string)(CLV_S_ACTION_ALLOC + action));
	else
		put_string(w, CLV_S_OTHER);
	put_size(w, action == CLV_ACTION_OOM ? CLV_S_DEVICE_FREE : CLV_S_ADDR, e->addr);
	put_size(w, CLV_S_SIZE, e->size);
	put_stream(w, e->stream);
	put_uint(w, CLV_S_TIME_US, e->time_us);
	if (e->stack != CLV_NO_STACK)
		put_stack(w, e->stack);
	if (made_up) {
		put_string(w, CLV_S_MADE_UP);
		clv_pw_bool(&w->p, true);
	}
	clv_pw_dict_end(&w->p);
}

/* A frame that came or went, in the words of PyTorch's segments. */
static void put_mapping(struct writer *w, struct clv_pickle_list *list, const struct clv_torch_mapping *k)
{
	enum clv_action action = k->expandable ? k->there ? CLV_ACTION_SEGMENT_MAP : CLV_ACTION_SEGMENT_UNMAP
				 : k->there    ? CLV_ACTION_SEGMENT_ALLOC
					       : CLV_ACTION_SEGMENT_FREE;
	const struct clv_event_record e = {
		.time_us = k->time_us, .addr = k->addr, .size = k->size, .stream = k->stream, .stack = k->stack};
	put_event(w, list, &e, (uint8_t)action, true);
}

static void put_recorded(struct writer *w, struct clv_pickle_list *list, const struct clv_event_record *e)
{
	bool known = e->block != CLV_NO_BLOCK;
	if (e->action == CLV_ACTION_FREE_COMPLETED && e->flags & CLV_EVENT_IMPLIED) {
		put_event(w, list, e, CLV_ACTION_FREE_REQUESTED, false);
		put_event(w, list, e, CLV_ACTION_FREE_COMPLETED, true);
		return;
	}
	if (e->action == CLV_ACTION_FREE_COMPLETED && known && !w->pending[e->block])
		put_event(w, list, e, CLV_ACTION_FREE_REQUESTED, true);
	if (e->action == CLV_ACTION_FREE_REQUESTED && known)
		w->pending[e->block] = 1;
	put_event(w, list, e, e->action, false);
}

static void put_events(struct writer *w, const struct clv_history *h, const struct clv_torch_state *state)
{
	struct clv_pickle_list list;
	size_t next = 0;
	clv_pw_list_begin(&w->p, &list);
	w->pending = clv_mem_zalloc(h->block_count + 1u, sizeof(*w->pending));
	if (!w->pending)
		no_memory(w);
	for (uint32_t i = 0; i <= h->event_count && !clv_sink_failed(&w->p.sink); i++) {
		for (; next < state->mapping_count && (i == h->event_count || state->mappings[next].before <= i);
		     next++)
			put_mapping(w, &list, &state->mappings[next]);
		if (i < h->event_count)
			put_recorded(w, &list, &h->events[i]);
	}
	clv_mem_free(w->pending);
	clv_pw_list_end(&w->p, &list);
}

/* A list a device; PyTorch has one for each that there is. */
static void put_traces(struct writer *w)
{
	struct clv_pickle_list list, none;
	int next = 0;
	put_string(w, CLV_S_DEVICE_TRACES);
	clv_pw_list_begin(&w->p, &list);
	for (uint32_t d = 0; d < w->trace->history_count; d++) {
		const struct clv_history *h = &w->trace->histories[d];
		for (; next < h->device; next++) {
			clv_pw_list_item(&w->p, &list);
			clv_pw_list_begin(&w->p, &none);
			clv_pw_list_end(&w->p, &none);
		}
		clv_pw_list_item(&w->p, &list);
		put_events(w, h, &w->states[d]);
		next++;
	}
	clv_pw_list_end(&w->p, &list);
}

static void put_settings(struct writer *w)
{
	const struct clv_torch_recorded *t = &w->trace->torch;
	if (!t->present)
		return;
	put_string(w, CLV_S_ALLOCATOR_SETTINGS);
	clv_pw_dict_begin(&w->p);
	put_string(w, CLV_S_CONF);
	clv_pw_text(&w->p, t->conf);
	put_string(w, CLV_S_MAX_SPLIT_SIZE);
	clv_pw_int(&w->p, t->max_split_size);
	put_string(w, CLV_S_GC_THRESHOLD);
	clv_pw_double(&w->p, t->gc_threshold);
	put_string(w, CLV_S_EXPANDABLE_SEGMENTS);
	clv_pw_bool(&w->p, t->expandable);
	put_string(w, CLV_S_ROUNDUP);
	clv_pw_dict_begin(&w->p);
	for (size_t i = 0; i < CLV_ARRAY_LEN(t->roundup); i++) {
		char mib[16];
		snprintf(mib, sizeof(mib), "%u", 1u << i);
		clv_pw_text(&w->p, mib);
		clv_pw_uint(&w->p, t->roundup[i]);
	}
	clv_pw_dict_end(&w->p);
	clv_pw_dict_end(&w->p);
}

static void put_annotation(struct writer *w, struct clv_pickle_list *list, const struct clv_history *h,
			   const struct clv_note *n, enum clv_snapshot_string stage)
{
	clv_pw_list_item(&w->p, list);
	clv_pw_dict_begin(&w->p);
	put_text(w, CLV_S_STAGE, stage);
	put_string(w, CLV_S_NAME);
	put_trace_string(w, n->text);
	put_uint(w, CLV_S_DEVICE, (uint64_t)h->device);
	put_uint(w, CLV_S_TIME_US, n->time_us);
	clv_pw_dict_end(&w->p);
}

/* A mark is an annotation that ends where it begins. */
static void put_annotations(struct writer *w)
{
	struct clv_pickle_list list;
	put_string(w, CLV_S_EXTERNAL_ANNOTATIONS);
	clv_pw_list_begin(&w->p, &list);
	for (uint32_t d = 0; d < w->trace->history_count; d++) {
		const struct clv_history *h = &w->trace->histories[d];
		for (uint32_t i = 0; i < h->note_count && !clv_sink_failed(&w->p.sink); i++) {
			const struct clv_note *n = &h->notes[i];
			if (n->text == CLV_NO_TEXT)
				continue;
			if (n->kind == CLV_EVENT_PHASE_BEGIN || n->kind == CLV_EVENT_MARK)
				put_annotation(w, &list, h, n, CLV_S_START);
			if (n->kind == CLV_EVENT_PHASE_END || n->kind == CLV_EVENT_MARK)
				put_annotation(w, &list, h, n, CLV_S_END);
		}
	}
	clv_pw_list_end(&w->p, &list);
}

static void put_probe(struct writer *w)
{
	const struct clv_torch_recorded *t = &w->trace->torch;
	if (!t->has_probe)
		return;
	put_string(w, CLV_S_PROBE);
	clv_pw_dict_begin(&w->p);
	put_uint(w, CLV_S_CAP_MIB, t->cap_mib);
	put_uint(w, CLV_S_TOTAL, t->total_bytes);
	put_uint(w, CLV_S_RETRIES, t->retries);
	put_uint(w, CLV_S_OOMS, t->ooms);
	put_uint(w, CLV_S_DEVICE_LEFT_MIB, t->device_left_mib);
	clv_pw_dict_end(&w->p);
}

static void put_made_up(struct writer *w)
{
	struct clv_pickle_list list;
	bool any = false;
	for (uint32_t d = 0; d < w->trace->history_count; d++)
		any |= !w->trace->histories[d].has_state;
	if (!any)
		return;
	put_string(w, CLV_S_MADE_UP_STATE);
	clv_pw_list_begin(&w->p, &list);
	for (uint32_t d = 0; d < w->trace->history_count; d++) {
		if (w->trace->histories[d].has_state)
			continue;
		clv_pw_list_item(&w->p, &list);
		clv_pw_uint(&w->p, (uint64_t)w->trace->histories[d].device);
	}
	clv_pw_list_end(&w->p, &list);
}

static void put_snapshot(struct writer *w)
{
	clv_pw_dict_begin(&w->p);
	put_segments(w);
	put_traces(w);
	put_settings(w);
	put_annotations(w);
	put_probe(w);
	put_made_up(w);
	clv_pw_dict_end(&w->p);
}

/* `count` numbers, none given yet. */
static uint32_t *no_numbers(size_t count)
{
	uint32_t *numbers = clv_mem_realloc(NULL, count, sizeof(*numbers));
	for (size_t i = 0; numbers && i < count; i++)
		numbers[i] = CLV_PW_NO_MEMO;
	return numbers;
}

bool clv_export_torch(const struct clv_trace *trace, const char *path, struct clv_error *err)
{
	struct writer w = {.trace = trace};
	for (size_t i = 0; i < CLV_ARRAY_LEN(w.keys); i++)
		w.keys[i] = CLV_PW_NO_MEMO;
	if (!clv_pw_begin(&w.p, path, err))
		return false;
	w.strings = no_numbers(trace->string_count);
	w.stacks = no_numbers(trace->stack_count);
	w.frames = no_numbers(trace->stack_frame_count);
	w.states = clv_mem_zalloc(trace->history_count + 1u, sizeof(*w.states));
	if (w.strings && w.stacks && w.frames && w.states)
		put_snapshot(&w);
	else
		no_memory(&w);
	for (uint32_t d = 0; w.states && d < trace->history_count; d++)
		clv_torch_state_free(&w.states[d]);
	clv_mem_free(w.states);
	clv_mem_free(w.strings);
	clv_mem_free(w.stacks);
	clv_mem_free(w.frames);
	clv_map_free(&w.frame_index);
	return clv_pw_end(&w.p);
}
