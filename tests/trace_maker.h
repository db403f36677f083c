/* SPDX-License-Identifier: MIT
 *
 * trace_maker: traces with everything in them that a trace can have, for tests of what writes and reads them.
 */
#ifndef CLV_TRACE_MAKER_H
#define CLV_TRACE_MAKER_H

#include "../tracing/memory.h"
#include "../tracing/trace.h"

#include <check.h>
#include <string.h>

/* A trace of two devices with everything in it, made from a seed. */
static inline struct clv_trace *random_trace(uint64_t seed, uint32_t events)
{
	struct clv_rng rng = {.state = seed};
	struct clv_error err = {{0}};
	struct clv_trace *t = clv_mem_zalloc(1, sizeof(*t));
	t->file = clv_mem_strndup("r", 1);
	t->torch = (struct clv_torch_recorded){.present = true,
					       .max_split_size = (int64_t)clv_rng_next(&rng),
					       .gc_threshold = 0.1 * (double)clv_rng_below(&rng, 10),
					       .expandable = seed & 1,
					       .has_probe = seed & 2};
	t->torch.conf = clv_mem_strndup("a:b,c:d", clv_rng_below(&rng, 7));
	for (size_t i = 0; i < 16; i++)
		t->torch.roundup[i] = (uint32_t)clv_rng_next(&rng) >> clv_rng_below(&rng, 32);
	if (t->torch.has_probe) {
		t->torch.cap_mib = clv_rng_below(&rng, 1000);
		t->torch.total_bytes = clv_rng_next(&rng);
		t->torch.retries = 3;
		t->torch.ooms = 4;
		t->torch.device_left_mib = 5;
	}
	for (int i = 0; i < 5; i++)
		clv_trace_stream(t, clv_rng_next(&rng) >> (i * 12));
	t->string_count = 4;
	t->strings = clv_mem_zalloc(4, sizeof(*t->strings));
	for (uint32_t i = 0; i < 4; i++)
		t->strings[i] = clv_mem_strndup("\xc3\xa4 long name", clv_rng_below(&rng, 12));
	t->stack_count = 1 + (uint32_t)clv_rng_below(&rng, 6);
	t->stacks = clv_mem_zalloc(t->stack_count, sizeof(*t->stacks));
	t->stack_frames = clv_mem_zalloc(32, sizeof(*t->stack_frames));
	for (uint32_t i = 1; i < t->stack_count; i++) {
		t->stacks[i].first = t->stack_frame_count;
		t->stacks[i].count = (uint32_t)clv_rng_below(&rng, 5);
		for (uint32_t k = 0; k < t->stacks[i].count; k++)
			t->stack_frames[t->stack_frame_count++] = (struct clv_frame_record){
				(uint32_t)clv_rng_below(&rng, 4), (uint32_t)clv_rng_below(&rng, 4),
				(uint32_t)clv_rng_next(&rng), (uint32_t)clv_rng_below(&rng, 4),
				seed & 1 ? clv_rng_next(&rng) : 0};
	}
	t->module_count = 3;
	t->modules = clv_mem_zalloc(3, sizeof(*t->modules));
	for (uint32_t i = 0; i < 3; i++) {
		t->modules[i] = (struct clv_module_record){.path = i, .build_id_len = (uint8_t)(i * 16)};
		memset(t->modules[i].build_id, (int)(i + seed), i * 16);
	}
	t->history_count = 2;
	t->histories = clv_mem_zalloc(2, sizeof(*t->histories));
	for (uint32_t d = 0; d < 2; d++) {
		struct clv_history *h = &t->histories[d];
		bool live[64] = {false};
		h->device = d ? 7 : (int)(seed % 3);
		h->event_count = d ? events / 3 : events;
		h->events = clv_mem_zalloc(h->event_count, sizeof(*h->events));
		for (uint32_t i = 0; i < h->event_count; i++) {
			struct clv_event_record *e = &h->events[i];
			uint32_t a = (uint32_t)clv_rng_below(&rng, 64);
			e->action = (uint8_t)clv_rng_below(&rng, CLV_ACTION_COUNT);
			if (e->action == CLV_ACTION_ALLOC && live[a])
				e->action = CLV_ACTION_FREE_COMPLETED;
			live[a] = e->action == CLV_ACTION_ALLOC || (live[a] && e->action != CLV_ACTION_FREE_COMPLETED);
			/* far apart, so that differences are large */
			e->addr = (a * 0x3f7a1200451ull) % ((uint64_t)1 << 62);
			e->time_us = clv_rng_below(&rng, 50) ? 1000 + i : clv_rng_next(&rng);
			e->size = clv_rng_range(&rng, 1, (uint64_t)1 << clv_rng_below(&rng, 61));
			e->stream = (uint32_t)clv_rng_below(&rng, t->stream_count);
			e->stack = (uint32_t)clv_rng_below(&rng, t->stack_count);
		}
		if (seed & 2) {
			h->threads = clv_mem_zalloc(h->event_count, sizeof(*h->threads));
			h->slack = clv_mem_zalloc(h->event_count, sizeof(*h->slack));
			for (uint32_t i = 0; i < h->event_count; i++) {
				h->threads[i] = (uint32_t)clv_rng_next(&rng);
				h->slack[i] = (uint32_t)clv_rng_below(&rng, 512);
			}
		}
		h->note_count = h->event_count ? (uint32_t)clv_rng_below(&rng, 200) : 0;
		h->notes = clv_mem_zalloc(h->note_count, sizeof(*h->notes));
		for (uint32_t i = 0, event = 0; i < h->note_count; i++) {
			event += (uint32_t)clv_rng_below(&rng, (h->event_count - event) / (h->note_count - i) + 1);
			h->notes[i] = (struct clv_note){
				.time_us = clv_rng_next(&rng),
				.addr = clv_rng_next(&rng) >> clv_rng_below(&rng, 64),
				.size = clv_rng_next(&rng) >> clv_rng_below(&rng, 64),
				.a = clv_rng_next(&rng) >> clv_rng_below(&rng, 64),
				.b = clv_rng_below(&rng, 2) ? UINT64_MAX : 0,
				.event = event,
				.stream = clv_rng_below(&rng, 3) ? (uint32_t)clv_rng_below(&rng, t->stream_count)
								 : CLV_NO_STREAM,
				.text = clv_rng_below(&rng, 3) ? (uint32_t)clv_rng_below(&rng, 4) : CLV_NO_TEXT,
				.stack = (uint32_t)clv_rng_below(&rng, t->stack_count),
				.thread = (uint32_t)clv_rng_next(&rng),
				/* those of later versions, too */
				.kind = (uint16_t)clv_rng_below(&rng, clv_rng_below(&rng, 9) ? CLV_EVENT_COUNT : 65536)};
		}
		h->has_state = d == 1 || (seed & 4);
		h->pool_count = 1 + (h->has_state ? (uint32_t)clv_rng_below(&rng, 3) : 0);
		h->pools = clv_mem_zalloc(h->pool_count, sizeof(*h->pools));
		for (uint32_t i = 1; i < h->pool_count; i++)
			h->pools[i] = (struct clv_pool_id){clv_rng_next(&rng), i};
		if (!h->has_state)
			continue;
		h->segment_count = 10;
		h->segments = clv_mem_zalloc(10, sizeof(*h->segments));
		h->blocks = clv_mem_zalloc(40, sizeof(*h->blocks));
		uint64_t at = 4096;
		for (uint32_t i = 0; i < 10; i++) {
			struct clv_segment_record *s = &h->segments[i];
			at += clv_rng_below(&rng, 3) << 40;
			*s = (struct clv_segment_record){.addr = at,
							 .stream = (uint32_t)clv_rng_below(&rng, t->stream_count),
							 .pool = (uint16_t)clv_rng_below(&rng, h->pool_count),
							 .small = clv_rng_below(&rng, 2),
							 .expandable = clv_rng_below(&rng, 2),
							 .stack = (uint32_t)clv_rng_below(&rng, t->stack_count),
							 .first_block = h->block_record_count,
							 .blocks = (uint32_t)clv_rng_below(&rng, 5)};
			for (uint32_t b = 0; b < s->blocks; b++) {
				struct clv_block_record *r = &h->blocks[h->block_record_count++];
				*r = (struct clv_block_record){.addr = at,
							       .size = clv_rng_below(&rng, 1 << 20) * 512,
							       .stack = (uint32_t)clv_rng_below(&rng, t->stack_count),
							       .state = (uint8_t)clv_rng_below(&rng, 3)};
				/* a free block keeps what was asked of a larger one */
				r->requested =
					clv_rng_below(&rng, r->state == CLV_BLOCK_INACTIVE ? 1 << 30 : r->size + 1);
				at += r->size;
				s->size += r->size;
			}
		}
	}
	for (uint32_t d = 0; d < 2; d++)
		ck_assert_msg(clv_history_link(t, &t->histories[d], &err), "%s", err.text);
	return t;
}

#endif
