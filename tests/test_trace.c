/* SPDX-License-Identifier: MIT
 *
 * Linking, selection and streams, on histories that are written down here.
 */
#include "../tracing/link.h"
#include "../tracing/map.h"
#include "../tracing/memory.h"
#include "check_main.h"
#include "trace_check.h"

#include <string.h>

#define A CLV_ACTION_ALLOC
#define R CLV_ACTION_FREE_REQUESTED
#define C CLV_ACTION_FREE_COMPLETED

struct step {
	enum clv_action action;
	uint64_t addr, size;
};

struct fixture {
	struct clv_trace *trace;
	struct clv_history *h;
	struct clv_error err;
};

static struct fixture make(const struct step *steps, uint32_t count)
{
	struct fixture f = {.trace = clv_mem_zalloc(1, sizeof(*f.trace))};
	f.trace->file = clv_mem_strndup("t", 1);
	f.trace->torch.conf = clv_mem_strndup("", 0);
	f.trace->stacks = clv_mem_zalloc(1, sizeof(*f.trace->stacks));
	f.trace->stack_count = 1;
	f.trace->histories = clv_mem_zalloc(1, sizeof(*f.trace->histories));
	f.trace->history_count = 1;
	f.h = f.trace->histories;
	f.h->events = clv_mem_zalloc(count, sizeof(*f.h->events));
	f.h->event_count = count;
	ck_assert_uint_eq(clv_trace_stream(f.trace, 0), 0);
	for (uint32_t i = 0; i < count; i++)
		f.h->events[i] = (struct clv_event_record){.time_us = 1000 + i * 500000,
							   .addr = steps[i].addr,
							   .size = steps[i].size,
							   .action = (uint8_t)steps[i].action};
	return f;
}

#define MAKE(...)                                                                                                      \
	make((const struct step[]){__VA_ARGS__}, sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step))

static void link_ok(struct fixture *f)
{
	ck_assert_msg(clv_history_link(f->trace, f->h, &f->err), "%s", f->err.text);
	ck_assert_str_eq(f->err.text, "");
	const char *wrong = trace_wrong(f->trace);
	ck_assert_msg(!wrong, "%s", wrong);
}

/* One segment whose blocks are given by size; a negative size is an active block, a size above 2^40 a pending one. */
static void add_segment(struct fixture *f, uint64_t addr, uint16_t pool, const int64_t *sizes, uint32_t count)
{
	struct clv_history *h = f->h;
	h->has_state = true;
	h->segments = clv_mem_realloc(h->segments, h->segment_count + 1, sizeof(*h->segments));
	h->blocks = clv_mem_realloc(h->blocks, h->block_record_count + count, sizeof(*h->blocks));
	struct clv_segment_record s = {
		.addr = addr, .pool = pool, .first_block = h->block_record_count, .blocks = count};
	for (uint32_t i = 0; i < count; i++) {
		int64_t size = sizes[i];
		struct clv_block_record b = {.addr = addr + s.size, .state = CLV_BLOCK_INACTIVE};
		if (size < 0) {
			size = -size;
			b.state = CLV_BLOCK_ACTIVE;
		} else if (size > (int64_t)1 << 40) {
			size -= (int64_t)1 << 40;
			b.state = CLV_BLOCK_PENDING_FREE;
		}
		b.size = (uint64_t)size;
		b.requested = b.state == CLV_BLOCK_INACTIVE ? 0 : b.size - 1;
		s.size += b.size;
		h->blocks[h->block_record_count++] = b;
	}
	h->segments[h->segment_count++] = s;
}

START_TEST(names)
{
	ck_assert_str_eq(clv_action_name(CLV_ACTION_ALLOC), "alloc");
	ck_assert_str_eq(clv_action_name(CLV_ACTION_SEGMENT_UNMAP), "segment_unmap");
	ck_assert_str_eq(clv_action_name(CLV_ACTION_SNAPSHOT), "snapshot");
	ck_assert_str_eq(clv_action_name(CLV_ACTION_OTHER), "other");
	ck_assert_str_eq(clv_action_name((enum clv_action)77), "other");
	ck_assert_str_eq(clv_trace_format_name(CLV_FORMAT_TORCH), "torch");
	ck_assert_str_eq(clv_trace_format_name(CLV_FORMAT_CLV), "clv");
	ck_assert_str_eq(clv_trace_format_name(CLV_FORMAT_RMM), "rmm");
}
END_TEST

START_TEST(numbers_blocks_and_totals)
{
	struct fixture f =
		MAKE({A, 0x1000, 100}, {A, 0x2000, 512}, {R, 0x1000, 100}, {C, 0x1000, 100}, {A, 0x1000, 513},
		     {CLV_ACTION_OOM, 0x2000, 4096}, {R, 0x2000, 512}, {A, 0x3000, 1}, {C, 0x2000, 512});
	link_ok(&f);
	static const uint32_t blocks[] = {0, 1, 0, 0, 2, CLV_NO_BLOCK, 1, 3, 1};
	for (uint32_t i = 0; i < CLV_ARRAY_LEN(blocks); i++)
		ck_assert_uint_eq(f.h->events[i].block, blocks[i]);
	ck_assert_uint_eq(f.h->block_count, 4);
	ck_assert_uint_eq(f.h->alloc_count, 4);
	ck_assert_uint_eq(f.h->oom_count, 1);
	ck_assert_uint_eq(f.h->stream_count, 1);
	/* the block whose free is only requested counts until it is completed: 512 + 1024 + 512 */
	ck_assert_uint_eq(f.h->peak_live_bytes, 2048);
	ck_assert_uint_eq(f.h->unmatched_frees, 0);
	ck_assert_double_eq(f.h->duration_s, 4.0);
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(missing_beginning)
{
	/* 0x9000 and 0x5000 were there before; 0x9000 was pending already. 0x9000 again is an ordinary block. */
	struct fixture f = MAKE({C, 0x9000, 700}, {A, 0x9000, 512}, {R, 0x5000, 513}, {C, 0x5000, 513},
				{R, 0x9000, 512}, {C, 0x9000, 512});
	link_ok(&f);
	ck_assert_uint_eq(f.h->initial_count, 2);
	ck_assert_uint_eq(f.h->initial[0].addr, 0x5000);
	ck_assert_uint_eq(f.h->initial[0].size, 513);
	ck_assert_uint_eq(f.h->initial[1].addr, 0x9000);
	static const uint32_t blocks[] = {1, 2, 0, 0, 2, 2};
	for (uint32_t i = 0; i < CLV_ARRAY_LEN(blocks); i++)
		ck_assert_uint_eq(f.h->events[i].block, blocks[i]);
	ck_assert_uint_eq(f.h->peak_live_bytes, 2048); /* 1024 each at the start; 512 + 1024 later */
	ck_assert_uint_eq(f.h->unmatched_frees, 0);
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(live_at_the_end_without_an_allocation)
{
	struct fixture f = MAKE({A, 0x100000, 512}, {A, 0x100400, 512}, {R, 0x100400, 512}, {C, 0x100400, 512});
	const int64_t sizes[] = {-512, -512, 512, ((int64_t)1 << 40) + 1024, 512};
	add_segment(&f, 0x100000, 0, sizes, 5);
	link_ok(&f);
	/* the second block is active, the fourth pending, and nobody allocated them in the window */
	ck_assert_uint_eq(f.h->initial_count, 2);
	ck_assert_uint_eq(f.h->initial[0].addr, 0x100200);
	ck_assert_uint_eq(f.h->initial[0].size, 511);
	ck_assert_uint_eq(f.h->initial[1].addr, 0x100600);
	ck_assert_uint_eq(f.h->initial[1].size, 1023);
	ck_assert_uint_eq(f.h->events[0].block, 2);
	ck_assert_uint_eq(f.h->peak_live_bytes, 512 + 1024 + 1024);
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(state_alone)
{
	struct fixture f = make(NULL, 0);
	const int64_t sizes[] = {-512, 512};
	add_segment(&f, 0x100000, 0, sizes, 2);
	link_ok(&f);
	ck_assert_uint_eq(f.h->initial_count, 1);
	ck_assert_uint_eq(f.h->block_count, 1);
	ck_assert_uint_eq(f.h->peak_live_bytes, 512);
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(frees_that_nothing_explains)
{
	struct fixture f = MAKE({A, 0x1000, 8}, {R, 0x1000, 8}, {C, 0x1000, 8}, {C, 0x1000, 8}, {R, 0x1000, 8},
				{A, 0x1000, 8}, {R, 0x1000, 8}, {R, 0x1000, 8}, {C, 0x1000, 8});
	link_ok(&f);
	ck_assert_uint_eq(f.h->unmatched_frees, 3); /* twice after the end, and asked for twice */
	ck_assert_uint_eq(f.h->events[3].block, CLV_NO_BLOCK);
	ck_assert_uint_eq(f.h->events[4].block, CLV_NO_BLOCK);
	ck_assert_uint_eq(f.h->events[7].block, CLV_NO_BLOCK);
	ck_assert_uint_eq(f.h->events[8].block, 1);
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(completions_left_out)
{
	struct fixture f = MAKE({A, 0x1000, 8}, {R, 0x1000, 8}, {A, 0x1000, 8}, {A, 0x2000, 8}, {R, 0x2000, 8});
	for (int again = 0; again < 2; again++) { /* linking is repeatable */
		link_ok(&f);
		ck_assert_uint_eq(f.h->events[1].action, C);
		ck_assert_uint_eq(f.h->events[1].flags, CLV_EVENT_IMPLIED);
		ck_assert_uint_eq(f.h->events[4].action, C);
		ck_assert_uint_eq(f.h->unmatched_frees, 0);
		ck_assert_uint_eq(f.h->peak_live_bytes, 1024);
	}
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(one_completion_left_out)
{
	/* 0x1000 is allocated again, so its free was completed; 0x3000 is really pending at the end */
	struct fixture f = MAKE({A, 0x1000, 8}, {R, 0x1000, 8}, {A, 0x1000, 8}, {R, 0x1000, 8}, {C, 0x1000, 8},
				{A, 0x3000, 8}, {R, 0x3000, 8});
	for (int again = 0; again < 2; again++) {
		link_ok(&f);
		ck_assert_uint_eq(f.h->events[1].action, C);
		ck_assert_uint_eq(f.h->events[1].flags, CLV_EVENT_IMPLIED);
		ck_assert_uint_eq(f.h->events[3].action, R);
		ck_assert_uint_eq(f.h->events[6].action, R);
		ck_assert_uint_eq(f.h->unmatched_frees, 1);
		ck_assert_uint_eq(f.h->peak_live_bytes, 512);
	}
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(requests_left_out)
{
	struct fixture f = MAKE({A, 0x1000, 8}, {C, 0x1000, 8}, {A, 0x1000, 8}, {C, 0x1000, 8});
	link_ok(&f);
	ck_assert_uint_eq(f.h->events[1].block, 0);
	ck_assert_uint_eq(f.h->events[3].block, 1);
	ck_assert_uint_eq(f.h->unmatched_frees, 0);
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(requests_of_nothing)
{
	struct fixture f = MAKE({A, 0x1000, 0}, {A, 0x1000, 0}, {C, 0x1000, 0}, {A, 0x1000, 8}, {C, 0x1000, 8});
	link_ok(&f);
	ck_assert_uint_eq(f.h->block_count, 1);
	ck_assert_uint_eq(f.h->alloc_count, 1);
	ck_assert_uint_eq(f.h->events[0].block, CLV_NO_BLOCK);
	ck_assert_uint_eq(f.h->events[3].block, 0);
	ck_assert_uint_eq(f.h->unmatched_frees, 0);
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(allocated_while_live)
{
	struct fixture f = MAKE({A, 0x1000, 8}, {A, 0x2000, 8}, {A, 0x1000, 8});
	uint32_t event = 0;
	ck_assert(!clv_history_link_at(f.trace, f.h, &event, &f.err));
	ck_assert_uint_eq(event, 2);
	f.err.text[0] = '\0';
	ck_assert(!clv_history_link(f.trace, f.h, &f.err));
	ck_assert_str_eq(
		f.err.text,
		"t: device 0, event 2: 0x1000 is allocated, but event 0 allocated it and nothing freed it since");
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(sums_do_not_overflow)
{
	struct fixture f = MAKE({A, 0x1000, INT64_MAX}, {A, 0x2000, INT64_MAX}, {A, 0x3000, INT64_MAX}, {A, 0x4000, 8},
				{C, 0x4000, 8}, {C, 0x1000, INT64_MAX});
	link_ok(&f);
	ck_assert_uint_eq(f.h->peak_live_bytes, UINT64_MAX);
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(pools_of_events)
{
	/* the address 0x200000 is used before its last segment is allocated: then it belonged to something else */
	struct fixture f = MAKE({A, 0x200000, 8}, {C, 0x200000, 8}, {CLV_ACTION_SEGMENT_ALLOC, 0x200000, 0x200000},
				{A, 0x200000, 8}, {A, 0x3ffff8, 8}, {A, 0x400000, 8}, {A, 0x100000, 8},
				{CLV_ACTION_OOM, 0x200000, 8}, {A, 0x600000, 8});
	const int64_t whole[] = {0x200000};
	add_segment(&f, 0x200000, 1, whole, 1);
	add_segment(&f, 0x400000, 2, whole, 1);
	f.h->pools = clv_mem_zalloc(3, sizeof(*f.h->pools));
	f.h->pools[1].a = 1;
	f.h->pools[2].b = 1;
	f.h->pool_count = 3;
	link_ok(&f);
	static const uint16_t pools[] = {0, 0, 1, 1, 1, 2, 0, 0, 0};
	for (uint32_t i = 0; i < CLV_ARRAY_LEN(pools); i++)
		ck_assert_uint_eq(f.h->events[i].pool, pools[i]);
	clv_trace_free(f.trace);
}
END_TEST

/* Against a plain model: an array of all addresses. */
START_TEST(random_histories)
{
	enum { ADDRS = 24, EVENTS = 400 };
	struct clv_rng rng = {.state = 42};
	for (int round = 0; round < 200; round++) {
		static struct step steps[EVENTS];
		int state[ADDRS] = {0}; /* 0 never seen, 1 live, 2 pending, 3 free */
		uint32_t owner[ADDRS], expected[EVENTS], blocks = 0;
		uint64_t size[ADDRS], live = 0, peak = 0, odd = 0;
		for (int i = 0; i < EVENTS; i++) {
			uint32_t a = (uint32_t)clv_rng_below(&rng, ADDRS);
			enum clv_action action;
			expected[i] = CLV_NO_BLOCK;
			if (state[a] == 0 || state[a] == 3) {
				action = state[a] == 3 && clv_rng_below(&rng, 20) == 0 ? C : A;
				odd += action == C;
				if (action == A) {
					size[a] = clv_rng_range(&rng, 1, 5000);
					owner[a] = expected[i] = blocks++;
					state[a] = 1;
					live += clv_align_up(size[a], 512);
					peak = clv_max_u64(peak, live);
				}
			} else {
				action = state[a] == 1 && clv_rng_below(&rng, 3) ? R : C;
				expected[i] = owner[a];
				state[a] = action == R ? 2 : 3;
				live -= action == C ? clv_align_up(size[a], 512) : 0;
			}
			steps[i] = (struct step){action, 0x1000 + a * 0x10000ull, size[a]};
		}
		struct fixture f = make(steps, EVENTS);
		link_ok(&f);
		for (int i = 0; i < EVENTS; i++)
			ck_assert_uint_eq(f.h->events[i].block, expected[i]);
		ck_assert_uint_eq(f.h->peak_live_bytes, peak);
		ck_assert_uint_eq(f.h->unmatched_frees, odd);
		clv_trace_free(f.trace);
	}
}
END_TEST

START_TEST(out_of_memory_while_linking)
{
	uint64_t n = 1;
	for (;; n++) {
		struct fixture f = MAKE({C, 0x9000, 8}, {A, 0x1000, 8}, {R, 0x1000, 8}, {C, 0x1000, 8});
		clv_mem_fail_after(n);
		bool ok = clv_history_link(f.trace, f.h, &f.err);
		clv_mem_fail_after(0);
		if (ok)
			ck_assert_ptr_null(trace_wrong(f.trace));
		else
			ck_assert_str_eq(f.err.text, "t: out of host memory");
		clv_trace_free(f.trace);
		if (ok)
			break;
	}
	ck_assert_uint_gt(n, 4);
}
END_TEST

static const struct clv_history *choose(struct fixture *f, int device)
{
	f->err.text[0] = '\0';
	return clv_trace_select(f->trace, device, &f->err);
}

START_TEST(selects)
{
	struct fixture f = make(NULL, 0);
	ck_assert_ptr_null(choose(&f, -1));
	ck_assert_msg(strstr(f.err.text, "neither") != NULL, "%s", f.err.text);
	const int64_t sizes[] = {-512, 512};
	add_segment(&f, 0x100000, 0, sizes, 2);
	for (int device = -1; device < 2; device++) {
		ck_assert_ptr_null(choose(&f, device));
		ck_assert_msg(strstr(f.err.text, "`cleave report`") != NULL, "%s", f.err.text);
	}

	f.trace->histories = clv_mem_realloc(f.trace->histories, 3, sizeof(*f.trace->histories));
	f.trace->history_count = 3;
	for (int i = 1; i < 3; i++) {
		f.trace->histories[i] = (struct clv_history){.device = i * 2, .event_count = 1};
		f.trace->histories[i].events = clv_mem_zalloc(1, sizeof(struct clv_event_record));
	}
	ck_assert_ptr_eq(choose(&f, -1), &f.trace->histories[1]);
	ck_assert_ptr_eq(choose(&f, 2), &f.trace->histories[1]);
	ck_assert_ptr_eq(choose(&f, 4), &f.trace->histories[2]);
	ck_assert_ptr_null(choose(&f, 0));
	ck_assert_msg(strstr(f.err.text, "`cleave report`") && strstr(f.err.text, "2, 4"), "%s", f.err.text);
	ck_assert_ptr_null(choose(&f, 3));
	ck_assert_str_eq(f.err.text, "t: has no device 3 (devices with a history: 2, 4)");
	clv_trace_free(f.trace);
}
END_TEST

START_TEST(streams)
{
	struct clv_trace t = {.streams = clv_mem_zalloc(3, sizeof(uint64_t)), .stream_count = 3};
	t.streams[1] = 7;
	t.streams[2] = UINT64_MAX;
	ck_assert_uint_eq(clv_trace_stream(&t, 7), 1); /* those that were there before the first call are known */
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 5000; i++)
			ck_assert_uint_eq(clv_trace_stream(&t, 1000 + i * 16ull), 3 + i);
	ck_assert_uint_eq(clv_trace_stream(&t, UINT64_MAX), 2);
	ck_assert_uint_eq(clv_trace_stream(&t, 0), 0);
	ck_assert_uint_eq(t.stream_count, 5003);
	clv_map_free(t.stream_index);
	clv_mem_free(t.stream_index);
	clv_mem_free(t.streams);

	for (uint64_t n = 1; n < 5; n++) { /* a failure leaves no trace */
		struct clv_trace u = {0};
		clv_mem_fail_after(n);
		uint32_t got = clv_trace_stream(&u, 5);
		clv_mem_fail_after(0);
		ck_assert(got == 0 || got == UINT32_MAX);
		ck_assert_uint_eq(clv_trace_stream(&u, 5), 0);
		ck_assert_uint_eq(clv_trace_stream(&u, 6), 1);
		ck_assert_uint_eq(u.stream_count, 2);
		clv_map_free(u.stream_index);
		clv_mem_free(u.stream_index);
		clv_mem_free(u.streams);
	}
}
END_TEST

START_TEST(frees_nothing)
{
	clv_trace_free(NULL);
	struct clv_trace *t = clv_mem_zalloc(1, sizeof(*t));
	clv_trace_free(t);
}
END_TEST

START_TEST(memory)
{
	void *p = NULL;
	size_t cap = 0;
	ck_assert(clv_mem_reserve(&p, &cap, 5, 8));
	ck_assert_uint_ge(cap, 5);
	void *was = p;
	size_t was_cap = cap;
	ck_assert(!clv_mem_reserve(&p, &cap, SIZE_MAX / 2, 8));
	ck_assert(!clv_mem_reserve(&p, &cap, SIZE_MAX, 1));
	ck_assert(p == was && cap == was_cap);
	ck_assert_ptr_null(clv_mem_realloc(NULL, SIZE_MAX / 4, 8));
	clv_mem_free(p);
	clv_mem_fail_after(2);
	p = clv_mem_alloc(1);
	ck_assert_ptr_nonnull(p);
	ck_assert_ptr_null(clv_mem_alloc(1));
	ck_assert_ptr_null(clv_mem_zalloc(1, 1));
	ck_assert_ptr_null(clv_mem_strndup("x", 1));
	clv_mem_fail_after(0);
	clv_mem_free(p);
}
END_TEST

CHECK_MAIN("trace", names, numbers_blocks_and_totals, missing_beginning, live_at_the_end_without_an_allocation,
	   state_alone, frees_that_nothing_explains, completions_left_out, one_completion_left_out, requests_left_out,
	   requests_of_nothing, allocated_while_live, sums_do_not_overflow, pools_of_events, random_histories,
	   out_of_memory_while_linking, selects, streams, frees_nothing, memory)
