/* SPDX-License-Identifier: MIT */
#include "arena_rig.h"
#include "check_main.h"

#include <inttypes.h>

static unsigned windows_for(uint64_t id, uint64_t size, uint64_t align, struct clv_window *w)
{
	struct clv_request rq = {.size = size, .align = align, .slot = a->slots[slot_of(id)]};
	return clv_place(a, &rq, w);
}

/* Pages under the window that are in whole frames which it cuts. */
static uint64_t cut_pages(const struct clv_window *w, const struct clv_request *rq)
{
	uint64_t end = w->addr + rq->size, bytes = 0;
	struct clv_cutting how = clv_purchase_cutting(a, rq);
	for (uint64_t page = clv_align_down(w->addr, CLV_PAGE); page < end; page += CLV_PAGE) {
		const struct clv_frame *f = clv_frame_at(a, page);
		if (f && f->whole_slot != CLV_SLOT_NONE && clv_frame_complete(a, f) && clv_place_cuts(f, w->addr, end, how))
			bytes += CLV_PAGE;
	}
	return bytes;
}

/* What a window says of itself is so. */
static void check_window(const struct clv_window *w, uint64_t id, uint64_t size, uint64_t align)
{
	struct clv_request rq = {.size = size, .align = align, .slot = a->slots[slot_of(id)]};
	bool right = w->addr % align == 0;
	uint64_t missing = cut_pages(w, &rq);
	const struct clv_extent *e = clv_space_locate(a, w->anchor, w->addr);
	right &= !w->hole || (w->hole == e && w->addr + size <= e->addr + e->size);
	for (; e && e->addr < w->addr + size; e = e->next) {
		if (e->kind == CLV_GAP)
			missing += clv_min_u64(clv_align_up(w->addr + size, CLV_PAGE), e->addr + e->size) -
				   clv_max_u64(clv_align_down(w->addr, CLV_PAGE), e->addr);
		else
			right &= e->kind == CLV_HOLE && clv_hole_usable(e, a->slots[slot_of(id)]);
	}
	right &= e || missing || w->hole; /* inside the range */
	if (!right || missing != w->missing)
		ck_abort_msg("a window at %#" PRIx64 " for %" PRIu64 " bytes: missing %" PRIu64 ", not %" PRIu64, w->addr, size, missing,
			     w->missing);
}

START_TEST(the_first_of_all)
{
	rig_open_capacity(CLV_GIB);
	struct clv_window w[CLV_WINDOW_MAX];
	ck_assert_uint_eq(windows_for(1, 3 * CLV_MIB, 512, w), 1); /* untouched addresses */
	check_window(&w[0], 1, 3 * CLV_MIB, 512);
	ck_assert_uint_eq(w[0].missing, 4 * CLV_MIB);
	ck_assert_ptr_null(w[0].hole);
	ck_assert_ptr_null(w[0].anchor);
	rig_shut();
}
END_TEST

START_TEST(stranded_memory_first)
{
	rig_open_with(&(struct clv_sim_config){.capacity = CLV_GIB, .manual = true}, "growth:tight");
	struct clv_window w[CLV_WINDOW_MAX], hit;
	cleave_ptr p = get(1, 3 * CLV_MIB), large = get(1, 64 * CLV_MIB);
	give(large, 1); /* 32 whole frames; 1 MiB is stranded behind the first block */
	ck_assert_uint_gt(windows_for(1, CLV_MIB, 512, w), 0);
	check_window(&w[0], 1, CLV_MIB, 512);
	ck_assert_uint_eq(w[0].addr, p + 3 * CLV_MIB);
	ck_assert_uint_eq(w[0].missing, 0);
	struct clv_request rq = {.size = CLV_MIB, .align = 512, .slot = a->slots[slot_of(1)]};
	ck_assert(clv_place_hit(a, &rq, &hit));
	ck_assert_uint_eq(hit.addr, w[0].addr);
	/* on another stream it is no hole, until it is complete */
	ck_assert_uint_gt(windows_for(2, CLV_MIB, 512, w), 0);
	ck_assert_uint_gt(w[0].missing, 0);
	rig_shut();
}
END_TEST

#define LARGE_DEVICE (40 * CLV_GIB)

/* 36 GiB of a large device: every page of the rest counts. */
static void fill_nearly(void)
{
	for (int i = 0; i < 18; i++)
		get(1, 2 * CLV_GIB);
}

static void open_nearly_full(void)
{
	rig_open_capacity(LARGE_DEVICE);
	fill_nearly();
}

/* 600 MiB that work of stream 1 may still use, between blocks. */
static cleave_ptr free_between(void)
{
	cleave_ptr hole = get(1, 600 * CLV_MIB);
	get(1, 100 * CLV_MIB);
	give(hole, 1);
	return hole;
}

START_TEST(large_blocks_lie_beside_each_other)
{
	static const uint64_t sizes[] = {200 * CLV_MIB, 147 * CLV_MIB, 147 * CLV_MIB / 2, 25 * CLV_MIB, 1176 * CLV_MIB};
	rig_open_capacity(LARGE_DEVICE);
	cleave_ptr end = 0;
	for (size_t i = 0; i < 3 * CLV_ARRAY_LEN(sizes); i++) { /* whether the one before ends with its frame or not */
		uint64_t size = sizes[i % CLV_ARRAY_LEN(sizes)];
		cleave_ptr p = get(1, size);
		ck_assert(!end || p == end);
		end = p + size;
	}
	rig_shut();
}
END_TEST

START_TEST(holes_are_filled_from_the_left)
{
	open_nearly_full();
	cleave_ptr hole = get(1, 301 * CLV_MIB), right = get(1, 100 * CLV_MIB);
	ck_assert_uint_eq(right, hole + 301 * CLV_MIB);
	give(hole, 1);
	cleave_ptr left = get(1, 101 * CLV_MIB);
	ck_assert_uint_eq(left, hole);
	give(right, 1); /* one hole, though the frames between are of no use to others yet */
	ck_assert_uint_eq(get(1, 300 * CLV_MIB), hole + 101 * CLV_MIB);
	rig_shut();
}
END_TEST

START_TEST(small_blocks_leave_a_hole_between_large_ones)
{
	open_nearly_full();
	cleave_ptr hole = get(1, 101 * CLV_MIB), small[64];
	get(1, 100 * CLV_MIB);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(small); i++)
		small[i] = get(1, CLV_MIB);
	give(hole, 1);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(small); i++)
		give(small[i], 1);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(small); i++) {
		cleave_ptr p = get(1, CLV_MIB);
		ck_assert(p < hole || p >= hole + 101 * CLV_MIB);
	}
	ck_assert_uint_eq(get(1, 101 * CLV_MIB), hole);
	rig_shut();
}
END_TEST

/* Of a hole of everybody's a frame is cut, and what is left of it and of the hole is one hole again. */
START_TEST(a_hole_that_is_cut_stays_one)
{
	open_nearly_full();
	cleave_ptr hole = get(0, 601 * CLV_MIB);
	get(1, 100 * CLV_MIB);
	give(hole, 0);
	uint64_t holes = a->hole_count, released = a->released;
	cleave_ptr p = get(1, 101 * CLV_MIB);
	ck_assert(p >= hole && p < hole + 601 * CLV_MIB);
	ck_assert_uint_gt(a->released, released);
	ck_assert_uint_eq(a->hole_count, holes);
	p = get(1, 500 * CLV_MIB);
	ck_assert(p >= hole && p < hole + 601 * CLV_MIB);
	rig_shut();
}
END_TEST

/* Of frames that hold anything else the block has no more than the pages in which it ends. */
static bool keeps_to_itself(cleave_ptr p, uint64_t size)
{
	for (uint64_t page = clv_align_down(p, CLV_PAGE); page < p + size; page += CLV_PAGE) {
		const struct clv_frame *f = clv_frame_at(a, page);
		if (f->size > CLV_PAGE && (f->addr < p || clv_frame_end(f) > p + size))
			return false;
	}
	return true;
}

/* As weights are loaded: use grows, and what belongs together stays together. */
START_TEST(large_blocks_are_not_put_apart)
{
	rig_open_capacity(LARGE_DEVICE);
	get(1, 8 * CLV_GIB); /* so much that 300 MiB more may be held than is in use */
	cleave_ptr stage = get(1, 300 * CLV_MIB);
	get(1, CLV_GIB);
	give(stage, 1);
	clv_sim_complete(sim, stream(1));
	get(1, 2 * CLV_GIB);
	cleave_ptr end = 0;
	for (int i = 0; i < 8; i++) {
		cleave_ptr p = get(1, 147 * CLV_MIB + CLV_MIB / 2);
		ck_assert(p < stage || p >= stage + 300 * CLV_MIB);
		ck_assert(!end || p == end);
		end = p + 147 * CLV_MIB + CLV_MIB / 2;
	}
	ck_assert_uint_eq(get(1, 300 * CLV_MIB), stage); /* unless it fits */
	give(stage, 1);
	ck_assert_uint_eq(get(1, 50 * CLV_MIB), stage); /* and where use does not grow */
	rig_shut();
}
END_TEST

/* On a device that is nearly full, too, what was freed is filled again, and no large frame is shared. */
START_TEST(large_blocks_keep_to_their_frames)
{
	open_nearly_full();
	cleave_ptr before = free_between();
	clv_sim_complete(sim, stream(1));
	for (int i = 0; i < 4; i++) {
		uint64_t bytes = (100 + 20 * (uint64_t)i) * CLV_MIB + CLV_MIB / 2;
		cleave_ptr p = get(1, bytes);
		ck_assert_uint_eq(p, before);
		ck_assert(keeps_to_itself(p, bytes));
		before += bytes;
	}
	ck_assert_uint_eq(stats().host_waits, 0);
	rig_shut();
}
END_TEST

/* On a device that is nearly full a block waits for the frame that it would strand: a while. */
START_TEST(large_blocks_wait_for_their_frames)
{
	open_nearly_full();
	cleave_ptr hole = free_between();
	uint64_t before = fault->now_ns(fault), block = 147 * CLV_MIB + CLV_MIB / 2;
	cleave_ptr p = get(1, block); /* the work goes on for ever */
	ck_assert_uint_eq(p, hole);
	ck_assert(!keeps_to_itself(p, block));
	ck_assert_uint_eq(stats().host_waits, 1);
	uint64_t waited_ms = (fault->now_ns(fault) - before) / 1000000;
	ck_assert(waited_ms >= 100 && waited_ms < 105);
	give(p, 1);
	/* what comes and goes is not waited for */
	give(get(1, block), 1);
	ck_assert_uint_eq(stats().host_waits, 1);
	/* another size is, again and again, but not for long in all */
	for (uint64_t i = 1; i <= 60; i++)
		give(get(1, 64 * CLV_MIB + i * CLV_GRAIN), 1);
	ck_assert_uint_gt(stats().host_waits, 10);
	ck_assert_uint_lt(stats().host_waits, 40);
	uint64_t waits = stats().host_waits;
	clv_sim_advance(sim, (uint64_t)24 * 3600 * 1000000000); /* a day later they may wait again, for as long */
	for (uint64_t i = 1; i <= 60; i++)
		give(get(1, 65 * CLV_MIB + i * CLV_GRAIN), 1);
	ck_assert_uint_gt(stats().host_waits, waits + 10);
	ck_assert_uint_lt(stats().host_waits, waits + 40);
	rig_shut();
}
END_TEST

/* For the frame, not for what the stream was given to do since. */
START_TEST(later_work_is_not_waited_for)
{
	rig_open_with(&(struct clv_sim_config){.capacity = LARGE_DEVICE, .event_lag_ns = 1000000}, NULL);
	fill_nearly();
	cleave_ptr hole = free_between();
	ck_assert_int_eq(clv_sim_launch(sim, stream(1), 10000000000, NULL, NULL), CLV_OK);
	uint64_t before = fault->now_ns(fault);
	cleave_ptr p = get(1, 147 * CLV_MIB + CLV_MIB / 2);
	ck_assert_uint_eq(p, hole);
	ck_assert(keeps_to_itself(p, 147 * CLV_MIB + CLV_MIB / 2));
	ck_assert_uint_lt(fault->now_ns(fault) - before, 10000000);
	rig_shut();
}
END_TEST

START_TEST(work_that_ends_soon_is_waited_for)
{
	rig_open_with(&(struct clv_sim_config){.capacity = LARGE_DEVICE, .event_lag_ns = 3000000}, NULL);
	fill_nearly();
	cleave_ptr hole = free_between();
	cleave_ptr p = get(1, 147 * CLV_MIB + CLV_MIB / 2);
	ck_assert_uint_eq(p, hole);
	ck_assert(keeps_to_itself(p, 147 * CLV_MIB + CLV_MIB / 2));
	ck_assert_uint_eq(stats().host_waits, 1);
	rig_shut();
}
END_TEST

/* Others take memory and say nothing, perhaps the program itself: that the device is nearly full is noticed all the same. */
START_TEST(others_fill_the_device)
{
	rig_open_capacity(2 * LARGE_DEVICE);
	get(1, 2 * CLV_GIB);
	clv_sim_set_foreign(sim, 0, LARGE_DEVICE);
	struct clv_request rq = {.size = 100 * CLV_MIB, .align = 512, .slot = a->slots[slot_of(1)]};
	for (int i = 0; i < 17; i++)
		get(1, 2 * CLV_GIB);
	ck_assert(clv_purchase_is_low(a, &rq));
	ck_assert_uint_lt(clv_reclaim_cap(a), LARGE_DEVICE + 4 * CLV_GIB);
	ck_assert_uint_lt(driver_calls(CLV_CALL_mem_get_info), 100);
	rig_shut();
}
END_TEST

/* A driver that has no large piece left gives small ones. */
START_TEST(smaller_pieces_where_large_ones_are_refused)
{
	rig_open_capacity(CLV_GIB);
	rig_refuse(CLV_CALL_create, CLV_OUT_OF_MEMORY);
	cleave_ptr p = get(1, 900 * CLV_MIB);
	uint64_t most = 0;
	for (uint64_t at = p; at < p + 900 * CLV_MIB; at += CLV_PAGE)
		most = clv_max_u64(most, clv_frame_at(a, at)->size);
	ck_assert_uint_le(most, 900 * CLV_MIB / 8);
	ck_assert_uint_eq(stats().failures, 0);
	rig_shut();
}
END_TEST

/* In any state: windows are what they say, cheapest first, and the quick answer is the first of them. `full`: on a large
 * device of which most is taken. */
static void random_states(const char *settings, uint64_t seed, bool full)
{
	struct clv_rng rng = {seed};
	if (full)
		open_nearly_full();
	else
		rig_open_with(&(struct clv_sim_config){.capacity = 512 * CLV_MIB, .manual = true}, settings);
	static struct {
		cleave_ptr p;
		uint64_t id;
	} b[400];
	unsigned count = 0, hits = 0, quick = 0, same = 0;
	for (unsigned step = 0; step < 2500; step++) {
		uint64_t id = clv_rng_below(&rng, 4), size = clv_rng_range(&rng, 1, 64) << clv_rng_range(&rng, 9, 18);
		cleave_ptr p;
		if (count < 400 && clv_rng_below(&rng, 100) < 52 && cleave_alloc(heap, 0, stream(id), size + 40000, &p) == 0) {
			b[count].p = p;
			b[count++].id = id;
		} else if (count) {
			unsigned i = (unsigned)clv_rng_below(&rng, count);
			give(b[i].p, b[i].id);
			b[i] = b[--count];
		}
		if (clv_rng_below(&rng, 50) == 0)
			clv_sim_complete(sim, stream(1 + clv_rng_below(&rng, 3)));
		for (int k = 0; k < 2; k++) {
			uint64_t align = clv_rng_below(&rng, 6) ? 512 : CLV_PAGE;
			id = clv_rng_below(&rng, 4);
			size = align == CLV_PAGE ? CLV_PAGE : clv_align_up(clv_rng_range(&rng, 1, 64) << clv_rng_range(&rng, 9, 18), 512);
			struct clv_request rq = {.size = size, .align = align, .slot = a->slots[slot_of(id)]};
			struct clv_window w[CLV_WINDOW_MAX], hit;
			unsigned n = clv_place(a, &rq, w);
			if (!n)
				ck_abort_msg("step %u: no window for %" PRIu64, step, size);
			for (unsigned i = 0; i < n; i++) {
				check_window(&w[i], id, size, align);
				if (i && w[i].cost < w[i - 1].cost)
					ck_abort_msg("step %u: windows are not in order", step);
			}
			bool first = w[0].hole && w[0].hole->slot == rq.slot->index, found = clv_place_hit(a, &rq, &hit);
			hits += first;
			quick += found;
			same += found && hit.addr == w[0].addr;
			if (first && (!found || hit.addr != w[0].addr || hit.cost != w[0].cost))
				ck_abort_msg("step %u: %#" PRIx64 " is first for %" PRIu64 ", but the quick answer is %#" PRIx64, step, w[0].addr, size,
					     found ? hit.addr : 0);
			if (!found)
				continue;
			hit.anchor = NULL;
			check_window(&hit, id, size, align);
			if (!hit.hole || hit.hole->slot != rq.slot->index)
				ck_abort_msg("step %u: the quick answer for %" PRIu64 " is no hole of its slot", step, size);
		}
	}
	ck_assert_uint_gt(hits, 500);
	ck_assert_uint_gt(same * 10, quick * 9); /* rarely another hole would be a little cheaper */
	rig_shut();
}

START_TEST(in_any_state)
{
	for (uint64_t seed = 0; seed < 3; seed++) {
		random_states(NULL, seed, false);
		random_states("growth:tight", 10 + seed, false);
		random_states(NULL, 20 + seed, true);
	}
}
END_TEST

CHECK_MAIN("place", the_first_of_all, stranded_memory_first, large_blocks_lie_beside_each_other, holes_are_filled_from_the_left,
	   small_blocks_leave_a_hole_between_large_ones, a_hole_that_is_cut_stays_one, large_blocks_are_not_put_apart,
	   large_blocks_keep_to_their_frames, large_blocks_wait_for_their_frames, later_work_is_not_waited_for,
	   work_that_ends_soon_is_waited_for, others_fill_the_device,
	   smaller_pieces_where_large_ones_are_refused, in_any_state)
