/* SPDX-License-Identifier: MIT
 *
 * trace_check: what must hold of every trace that an importer returns, and of two traces that should be the same. A
 * test or a fuzzer gives the macro that is called when something does not hold.
 */
#ifndef CLV_TRACE_CHECK_H
#define CLV_TRACE_CHECK_H

#include "../tracing/trace.h"

#include <string.h>

/* The first thing that is wrong, or NULL. */
static inline const char *trace_history_wrong(const struct clv_trace *t, const struct clv_history *h)
{
#define WRONG_UNLESS(what)                                                                                             \
	do {                                                                                                           \
		if (!(what))                                                                                           \
			return #what;                                                                                  \
	} while (0)
	WRONG_UNLESS(h->pool_count >= 1 && h->pools[0].a == 0 && h->pools[0].b == 0);
	WRONG_UNLESS(h->initial_count <= h->block_count);
	WRONG_UNLESS(h->has_state || h->segment_count == 0);
	uint64_t allocs = 0, ooms = 0;
	uint32_t next = h->initial_count; /* blocks are numbered in the order of their allocation */
	for (uint32_t i = 0; i < h->initial_count; i++) {
		const struct clv_initial_block *b = &h->initial[i];
		WRONG_UNLESS(b->block == i && b->size > 0 && b->stream < t->stream_count && b->pool < h->pool_count);
		WRONG_UNLESS(i == 0 || b->addr > h->initial[i - 1].addr);
	}
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		bool is_free = e->action == CLV_ACTION_FREE_REQUESTED || e->action == CLV_ACTION_FREE_COMPLETED;
		WRONG_UNLESS(e->action < CLV_ACTION_COUNT && e->stream < t->stream_count && e->pool < h->pool_count);
		WRONG_UNLESS(e->stack == CLV_NO_STACK || e->stack < t->stack_count);
		WRONG_UNLESS(e->action >= CLV_ACTION_SNAPSHOT || e->size <= INT64_MAX);
		WRONG_UNLESS(!(e->flags & CLV_EVENT_IMPLIED) || e->action == CLV_ACTION_FREE_COMPLETED);
		if (e->action == CLV_ACTION_ALLOC && e->size) {
			WRONG_UNLESS(e->block == next);
			next++;
			allocs++;
		} else if (is_free) {
			WRONG_UNLESS(e->block == CLV_NO_BLOCK || e->block < next);
		} else {
			WRONG_UNLESS(e->block == CLV_NO_BLOCK);
		}
		ooms += e->action == CLV_ACTION_OOM;
	}
	WRONG_UNLESS(next == h->block_count && allocs == h->alloc_count && ooms == h->oom_count);
	WRONG_UNLESS(h->duration_s >= 0);
	for (uint32_t i = 0; i < h->note_count; i++) {
		const struct clv_note *n = &h->notes[i];
		WRONG_UNLESS(n->event <= h->event_count && (i == 0 || n->event >= h->notes[i - 1].event));
		WRONG_UNLESS(n->stream == CLV_NO_STREAM || n->stream < t->stream_count);
		WRONG_UNLESS(n->text == CLV_NO_TEXT || n->text < t->string_count);
		WRONG_UNLESS(n->stack == CLV_NO_STACK || n->stack < t->stack_count);
	}
	uint64_t end = 0, blocks = 0;
	for (uint32_t i = 0; i < h->segment_count; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		uint64_t at = s->addr;
		WRONG_UNLESS(s->addr >= end && s->first_block == blocks && s->stream < t->stream_count);
		WRONG_UNLESS(s->pool < h->pool_count && (s->stack == CLV_NO_STACK || s->stack < t->stack_count));
		WRONG_UNLESS(blocks + s->blocks <= h->block_record_count);
		for (uint32_t b = s->first_block; b < s->first_block + s->blocks; b++) {
			WRONG_UNLESS(h->blocks[b].addr == at && h->blocks[b].state <= CLV_BLOCK_PENDING_FREE);
			WRONG_UNLESS(h->blocks[b].stack == CLV_NO_STACK || h->blocks[b].stack < t->stack_count);
			at += h->blocks[b].size;
		}
		blocks += s->blocks;
		end = s->addr + s->size;
		WRONG_UNLESS(at == end);
	}
	WRONG_UNLESS(blocks == h->block_record_count);
	return NULL;
}

static inline const char *trace_wrong(const struct clv_trace *t)
{
	WRONG_UNLESS(t->file && t->torch.conf && t->stack_count >= 1 && t->stacks[0].count == 0);
	for (uint32_t i = 0; i < t->stack_count; i++)
		WRONG_UNLESS((uint64_t)t->stacks[i].first + t->stacks[i].count <= t->stack_frame_count);
	for (uint32_t i = 0; i < t->stack_frame_count; i++)
		WRONG_UNLESS(t->stack_frames[i].file < t->string_count &&
			     t->stack_frames[i].function < t->string_count &&
			     t->stack_frames[i].module <= t->module_count);
	for (uint32_t i = 0; i < t->module_count; i++)
		WRONG_UNLESS(t->modules[i].path < t->string_count && t->modules[i].build_id_len <= CLV_BUILD_ID_MAX);
	for (uint32_t i = 0; i < t->string_count; i++)
		WRONG_UNLESS(t->strings[i] && strlen(t->strings[i]) < SIZE_MAX);
	for (uint32_t i = 0; i < t->history_count; i++) {
		WRONG_UNLESS(i == 0 || t->histories[i].device > t->histories[i - 1].device);
		const char *wrong = trace_history_wrong(t, &t->histories[i]);
		if (wrong)
			return wrong;
	}
	return NULL;
}

static inline const char *trace_history_difference(const struct clv_history *a, const struct clv_history *b)
{
	WRONG_UNLESS(a->device == b->device && a->event_count == b->event_count);
	for (uint32_t i = 0; i < a->event_count; i++) {
		const struct clv_event_record *x = &a->events[i], *y = &b->events[i];
		WRONG_UNLESS(x->time_us == y->time_us && x->addr == y->addr && x->size == y->size &&
			     x->stream == y->stream);
		WRONG_UNLESS(x->block == y->block && x->stack == y->stack && x->pool == y->pool &&
			     x->action == y->action);
		WRONG_UNLESS(x->flags == y->flags);
		WRONG_UNLESS((a->threads ? a->threads[i] : 0) == (b->threads ? b->threads[i] : 0));
		WRONG_UNLESS((a->slack ? a->slack[i] : 0) == (b->slack ? b->slack[i] : 0));
	}
	WRONG_UNLESS(a->note_count == b->note_count);
	for (uint32_t i = 0; i < a->note_count; i++) {
		const struct clv_note *x = &a->notes[i], *y = &b->notes[i];
		WRONG_UNLESS(x->time_us == y->time_us && x->addr == y->addr && x->size == y->size && x->a == y->a);
		WRONG_UNLESS(x->b == y->b && x->event == y->event && x->stream == y->stream && x->text == y->text);
		WRONG_UNLESS(x->stack == y->stack && x->thread == y->thread && x->kind == y->kind);
	}
	WRONG_UNLESS(a->has_state == b->has_state && a->segment_count == b->segment_count);
	for (uint32_t i = 0; i < a->segment_count; i++) {
		const struct clv_segment_record *x = &a->segments[i], *y = &b->segments[i];
		WRONG_UNLESS(x->addr == y->addr && x->size == y->size && x->stream == y->stream && x->pool == y->pool);
		WRONG_UNLESS(x->small == y->small && x->expandable == y->expandable && x->stack == y->stack);
		WRONG_UNLESS(x->first_block == y->first_block && x->blocks == y->blocks);
	}
	WRONG_UNLESS(a->block_record_count == b->block_record_count);
	for (uint32_t i = 0; i < a->block_record_count; i++) {
		const struct clv_block_record *x = &a->blocks[i], *y = &b->blocks[i];
		WRONG_UNLESS(x->addr == y->addr && x->size == y->size && x->requested == y->requested);
		WRONG_UNLESS(x->stack == y->stack && x->state == y->state);
	}
	WRONG_UNLESS(a->pool_count == b->pool_count);
	for (uint32_t i = 0; i < a->pool_count; i++)
		WRONG_UNLESS(a->pools[i].a == b->pools[i].a && a->pools[i].b == b->pools[i].b);
	WRONG_UNLESS(a->initial_count == b->initial_count && a->block_count == b->block_count);
	for (uint32_t i = 0; i < a->initial_count; i++) {
		const struct clv_initial_block *x = &a->initial[i], *y = &b->initial[i];
		WRONG_UNLESS(x->addr == y->addr && x->size == y->size && x->stream == y->stream && x->pool == y->pool);
	}
	WRONG_UNLESS(a->alloc_count == b->alloc_count && a->stream_count == b->stream_count &&
		     a->oom_count == b->oom_count);
	WRONG_UNLESS(a->peak_live_bytes == b->peak_live_bytes && a->unmatched_frees == b->unmatched_frees);
	WRONG_UNLESS(a->duration_s == b->duration_s);
	return NULL;
}

/* All but the name of the file, its format and the note: the first difference, or NULL. */
static inline const char *trace_difference(const struct clv_trace *a, const struct clv_trace *b)
{
	const struct clv_torch_recorded *s = &a->torch, *t = &b->torch;
	WRONG_UNLESS(s->present == t->present && strcmp(s->conf, t->conf) == 0 &&
		     s->max_split_size == t->max_split_size);
	WRONG_UNLESS(s->gc_threshold == t->gc_threshold && s->expandable == t->expandable);
	WRONG_UNLESS(memcmp(s->roundup, t->roundup, sizeof(s->roundup)) == 0 && s->has_probe == t->has_probe);
	WRONG_UNLESS(s->cap_mib == t->cap_mib && s->total_bytes == t->total_bytes && s->retries == t->retries);
	WRONG_UNLESS(s->ooms == t->ooms && s->device_left_mib == t->device_left_mib);
	WRONG_UNLESS(a->stream_count == b->stream_count);
	for (uint32_t i = 0; i < a->stream_count; i++)
		WRONG_UNLESS(a->streams[i] == b->streams[i]);
	WRONG_UNLESS(a->string_count == b->string_count);
	for (uint32_t i = 0; i < a->string_count; i++)
		WRONG_UNLESS(strcmp(a->strings[i], b->strings[i]) == 0);
	WRONG_UNLESS(a->stack_count == b->stack_count && a->stack_frame_count == b->stack_frame_count);
	for (uint32_t i = 0; i < a->stack_count; i++)
		WRONG_UNLESS(a->stacks[i].first == b->stacks[i].first && a->stacks[i].count == b->stacks[i].count);
	for (uint32_t i = 0; i < a->stack_frame_count; i++) {
		const struct clv_frame_record *x = &a->stack_frames[i], *y = &b->stack_frames[i];
		WRONG_UNLESS(x->file == y->file && x->function == y->function && x->line == y->line);
		WRONG_UNLESS(x->module == y->module && x->address == y->address);
	}
	WRONG_UNLESS(a->module_count == b->module_count);
	for (uint32_t i = 0; i < a->module_count; i++) {
		const struct clv_module_record *x = &a->modules[i], *y = &b->modules[i];
		WRONG_UNLESS(x->path == y->path && x->build_id_len == y->build_id_len);
		WRONG_UNLESS(memcmp(x->build_id, y->build_id, x->build_id_len) == 0);
	}
	WRONG_UNLESS(a->history_count == b->history_count);
	for (uint32_t i = 0; i < a->history_count; i++) {
		const char *difference = trace_history_difference(&a->histories[i], &b->histories[i]);
		if (difference)
			return difference;
	}
	return NULL;
#undef WRONG_UNLESS
}

#endif
