/* SPDX-License-Identifier: MIT */
#include "arena_rig.h"
#include "check_main.h"

#include <string.h>

#define PAGE CLV_PAGE

static uint64_t base;

static void open_space(void)
{
	rig_open_capacity(CLV_GIB);
	ck_assert(clv_space_grow(a, CLV_GIB));
	base = a->ranges->addr;
	rig_records();
}

static struct clv_extent *at(uint64_t addr)
{
	return clv_space_locate(a, NULL, addr);
}

static struct clv_frame *buy(uint64_t page, uint64_t pages, uint32_t slot)
{
	ck_assert_int_eq(clv_frame_buy(a, NULL, base + page * PAGE, pages * PAGE, slot), CLV_OK);
	rig_valid();
	return clv_frame_at(a, base + page * PAGE);
}

static struct clv_extent *carve(uint64_t addr, uint64_t size)
{
	struct clv_extent *hole = at(addr), *live;
	ck_assert_int_eq(hole->kind, CLV_HOLE);
	live = clv_space_carve(a, hole, addr, size, hole->slot);
	live->live.requested = size;
	ck_assert_uint_eq(live->addr, addr);
	ck_assert_uint_eq(live->size, size);
	ck_assert_int_eq(live->kind, CLV_LIVE);
	rig_valid();
	return live;
}

static struct clv_extent *release(struct clv_extent *live, uint32_t slot, uint64_t seq)
{
	struct clv_extent *hole = clv_space_free(a, live, slot, seq);
	rig_valid();
	return hole;
}

static void is(const struct clv_extent *e, enum clv_extent_kind kind, uint64_t addr, uint64_t size)
{
	ck_assert_int_eq(e->kind, kind);
	ck_assert_uint_eq(e->addr, addr);
	ck_assert_uint_eq(e->size, size);
}

START_TEST(a_range_is_one_gap)
{
	rig_open_capacity(CLV_GIB);
	ck_assert_ptr_null(a->ranges);
	ck_assert(clv_space_grow(a, 3));
	is(a->ranges->first, CLV_GAP, a->ranges->addr, a->ranges->size);
	ck_assert_uint_ge(a->ranges->size, PAGE);
	ck_assert(clv_space_grow(a, 9 * ((uint64_t)1 << 40)));
	ck_assert_uint_ge(a->ranges->size, 9 * ((uint64_t)1 << 40));
	rig_valid();
	/* a driver that has few addresses: less is asked for, down to what is needed */
	struct clv_fault_config c = {.fail_at = 1};
	c.eligible[CLV_CALL_address_reserve] = true;
	clv_fault_set(fault, &c);
	ck_assert(clv_space_grow(a, PAGE));
	ck_assert_uint_gt(clv_fault_seen(fault), 1);
	c.fail_after = true;
	clv_fault_set(fault, &c);
	ck_assert(!clv_space_grow(a, 5 * PAGE));
	ck_assert(!clv_space_grow(a, (uint64_t)1 << 45));
	rig_shut();
}
END_TEST

START_TEST(holes_of_one_slot_join)
{
	open_space();
	buy(0, 4, 0);
	struct clv_extent *p = carve(base, PAGE), *q = carve(base + PAGE, PAGE), *r = carve(base + 2 * PAGE, 2 * PAGE);
	ck_assert_uint_eq(a->hole_count, 0);
	is(release(p, 0, 0), CLV_HOLE, base, PAGE);
	is(release(r, 0, 0), CLV_HOLE, base + 2 * PAGE, 2 * PAGE);
	is(release(q, 0, 0), CLV_HOLE, base, 4 * PAGE); /* both sides */
	ck_assert_uint_eq(a->merges, 2);
	rig_shut();
}
END_TEST

START_TEST(holes_of_several_slots_do_not)
{
	open_space();
	uint32_t one = slot_of(1), two = slot_of(2);
	buy(0, 3, 0);
	struct clv_extent *p = carve(base, PAGE), *q = carve(base + PAGE, PAGE), *r = carve(base + 2 * PAGE, PAGE);
	a->slots[one]->seq = 7;
	a->slots[two]->seq = 5;
	release(p, one, 3);
	release(q, two, 5);
	release(r, one, 7);
	ck_assert_uint_eq(a->hole_count, 3);
	struct clv_frame *f = clv_frame_at(a, base);
	ck_assert_uint_eq(f->whole_slot, CLV_SLOT_NONE); /* free, but not in one order */
	ck_assert_uint_eq(f->live, 0);
	ck_assert_uint_eq(a->pinned, 0);
	/* the middle one comes to slot one: one hole, as late as the latest, and whole */
	struct clv_extent *all = clv_space_retag(a, at(base + PAGE), one, 0);
	rig_valid();
	is(all, CLV_HOLE, base, 3 * PAGE);
	ck_assert_uint_eq(all->hole.seq, 7);
	ck_assert_uint_eq(f->whole_slot, one);
	ck_assert(!clv_frame_complete(a, f));
	a->slots[one]->completed = a->slots[one]->recorded_seq = 7;
	ck_assert(clv_frame_complete(a, f));
	rig_shut();
}
END_TEST

/* The frame had frees of two streams. The one that came last is complete first; then the frame becomes whole in the order
 * of the other, which is not. */
START_TEST(a_whole_frame_waits_for_all_its_frees)
{
	open_space();
	uint32_t one = slot_of(1), two = slot_of(2);
	struct clv_frame *f = buy(0, 2, 0);
	struct clv_extent *p = carve(base, PAGE), *q = carve(base + PAGE, PAGE);
	a->slots[one]->seq = 5;
	a->slots[two]->seq = 9;
	release(p, one, 5);
	release(q, two, 9);
	a->slots[two]->completed = a->slots[two]->recorded_seq = 9;
	clv_space_retag(a, at(base + PAGE), CLV_SLOT_ANY, 0);
	rig_valid();
	ck_assert_uint_eq(f->whole_slot, CLV_SLOT_NONE);
	clv_space_retag(a, at(base + PAGE), one, 0); /* as a request of stream 1 does that takes both */
	rig_valid();
	ck_assert_uint_eq(f->whole_slot, one);
	ck_assert(!clv_frame_complete(a, f));
	a->slots[one]->completed = a->slots[one]->recorded_seq = 5;
	ck_assert(clv_frame_complete(a, f));
	rig_shut();
}
END_TEST

START_TEST(parts_are_what_lies_in_pinned_frames)
{
	open_space();
	buy(0, 4, 0);
	buy(4, 4, 0);
	buy(8, 4, 0);
	struct clv_slot *any = a->slots[0];
	ck_assert_uint_eq(any->parts->count, 0);
	ck_assert_uint_eq(any->whole->count, 3);
	struct clv_extent *p = carve(base + 2 * PAGE, 7 * PAGE); /* leaves two pages of the first and three of the last frame */
	ck_assert_uint_eq(any->whole->count, 0);
	ck_assert_uint_eq(any->parts->count, 2);
	ck_assert_uint_eq(any->parts->bytes, 5 * PAGE);
	ck_assert_uint_eq(a->pinned, 12 * PAGE);
	ck_assert_uint_eq(a->used, 7 * PAGE);
	struct clv_extent *q = carve(base + 10 * PAGE, 512); /* in the middle of a part: two of one frame */
	ck_assert_uint_eq(any->parts->count, 3);
	release(p, 0, 0); /* a hole of two whole frames and the part before the block */
	ck_assert_uint_eq(any->whole->count, 2);
	ck_assert_uint_eq(any->parts->count, 2);
	ck_assert_uint_eq(at(base)->hole.right.size, 2 * PAGE);
	ck_assert(!clv_bin_indexed(&at(base)->hole.left));
	release(q, 0, 0);
	ck_assert_uint_eq(any->parts->count, 0);
	ck_assert_uint_eq(any->whole->count, 3);
	uint64_t whole = 0;
	for (uint32_t i = 0; i < a->slot_count; i++)
		whole += a->slots[i]->whole ? a->slots[i]->whole->bytes : 0;
	ck_assert_uint_eq(whole, a->held);
	rig_shut();
}
END_TEST

START_TEST(frames_leave_holes)
{
	open_space();
	struct clv_frame *f[4];
	for (unsigned i = 0; i < 4; i++)
		f[i] = buy(i, 1, 0);
	is(at(base), CLV_HOLE, base, 4 * PAGE);
	struct clv_extent *gap = clv_space_remove_frame(a, f[1], CLV_GAP); /* the test keeps the frame's mapping */
	is(gap, CLV_GAP, base + PAGE, PAGE);
	is(at(base), CLV_HOLE, base, PAGE);
	is(at(base + 2 * PAGE), CLV_HOLE, base + 2 * PAGE, 2 * PAGE);
	ck_assert_ptr_eq(f[0]->hole, at(base));
	ck_assert_ptr_eq(f[3]->hole, at(base + 3 * PAGE));
	clv_space_add_frame(a, gap, f[1], 0);
	rig_valid();
	is(at(base), CLV_HOLE, base, 4 * PAGE);
	struct clv_extent *linger = clv_space_remove_frame(a, f[3], CLV_LINGER);
	is(linger, CLV_LINGER, base + 3 * PAGE, PAGE);
	clv_space_end_linger(a, linger); /* joins the gap behind it */
	ck_assert_uint_eq(at(base + 3 * PAGE)->addr, base + 3 * PAGE);
	ck_assert_uint_gt(at(base + 3 * PAGE)->size, PAGE);
	clv_space_add_frame(a, at(base + 3 * PAGE), f[3], 0);
	rig_shut();
}
END_TEST

START_TEST(blocks_by_address)
{
	open_space();
	enum { BLOCKS = 2000 };
	static struct clv_extent *live[BLOCKS];
	buy(0, 64, 0);
	ck_assert(clv_pool_reserve(&a->extents, 2 * BLOCKS));
	for (unsigned i = 0; i < BLOCKS; i++) {
		uint64_t addr = base + i * 40 * CLV_KIB;
		ck_assert(clv_space_reserve_block(a)); /* grows more than once */
		live[i] = clv_space_carve(a, at(addr), addr, 20 * CLV_KIB, 0);
		live[i]->live.requested = 20 * CLV_KIB;
	}
	rig_valid();
	for (unsigned i = 0; i < BLOCKS; i++) {
		uint64_t addr = live[i]->addr;
		ck_assert_ptr_eq(clv_space_lookup(a, addr), live[i]);
		ck_assert_ptr_null(clv_space_lookup(a, addr + 512));
		ck_assert_ptr_eq(clv_space_containing(a, addr), live[i]);
		ck_assert_ptr_eq(clv_space_containing(a, addr + 20 * CLV_KIB - 1), live[i]);
		ck_assert_ptr_null(clv_space_containing(a, addr + 20 * CLV_KIB));
		ck_assert_ptr_eq(clv_space_locate(a, live[i - i % 7], addr + 1), live[i]);
	}
	/* a block over many frames, and addresses around it */
	for (unsigned i = 0; i < 20; i++)
		buy(100 + i, 1, 0);
	struct clv_extent *large = carve(base + 101 * PAGE + 512, 17 * PAGE);
	ck_assert_ptr_eq(clv_space_containing(a, base + 110 * PAGE), large);
	ck_assert_ptr_eq(clv_space_containing(a, large->addr + large->size - 1), large);
	ck_assert_ptr_null(clv_space_containing(a, large->addr - 1));
	ck_assert_ptr_null(clv_space_containing(a, large->addr + large->size));
	ck_assert_ptr_null(clv_space_containing(a, base + 119 * PAGE));
	ck_assert_ptr_null(clv_space_containing(a, base + 500 * PAGE));
	ck_assert_ptr_null(clv_space_containing(a, 0));
	ck_assert_ptr_null(clv_space_containing(a, UINT64_MAX));
	rig_shut();
}
END_TEST

/* ---- beside an array of what each 512 B is ---- */

#define PAGES 12u
#define GRAINS ((unsigned)(PAGES * PAGE / (64 * CLV_KIB))) /* coarse grains of 64 KiB are enough */
#define COARSE (64 * CLV_KIB)
enum { M_GAP = 0, M_HOLE = 1000, M_LIVE = 2000 }; /* + slot; + number of the block */

static unsigned model[GRAINS];

/* Check writes a line to a file at each of its assertions: too dear for so many. */
static void expect(bool right, unsigned grain)
{
	if (!right)
		ck_abort_msg("grain %u is not as in the model", grain);
}

static void compare(void)
{
	rig_valid();
	const struct clv_extent *e = NULL;
	for (unsigned i = 0; i < GRAINS; i++) {
		uint64_t addr = base + i * COARSE;
		if (e && addr < e->addr + e->size && model[i] == model[i - 1])
			continue;
		e = at(addr);
		unsigned is = model[i], hi = i + 1;
		while (hi < GRAINS && model[hi] == is)
			hi++;
		if (is == M_GAP) {
			expect(e->kind == CLV_GAP, i);
		} else if (is < M_LIVE) { /* as long as its slot's run */
			expect(e->kind == CLV_HOLE && e->slot == is - M_HOLE && e->addr == addr && e->size == (hi - i) * COARSE, i);
		} else {
			expect(e->kind == CLV_LIVE && e->live.requested == is && e->addr == addr && e->size == (hi - i) * COARSE, i);
		}
	}
}

START_TEST(random_against_an_array)
{
	for (uint64_t seed = 0; seed < 4; seed++) {
		struct clv_rng rng = {seed};
		open_space();
		memset(model, 0, sizeof(model));
		for (unsigned id = 1; id <= 3; id++)
			a->slots[slot_of(id)]->seq = 1000000;
		unsigned number = M_LIVE;
		for (unsigned step = 0; step < 1500; step++) {
			rig_records();
			unsigned i = (unsigned)clv_rng_below(&rng, GRAINS), is = model[i];
			struct clv_extent *e = at(base + i * COARSE);
			struct clv_frame *f = clv_frame_at(a, base + i * COARSE);
			if (is == M_GAP) { /* a frame of one to four pages in it */
				uint64_t page = i * COARSE / PAGE, pages = clv_rng_range(&rng, 1, 4), k = 0;
				while (k < pages && page + k < PAGES && model[(page + k) * (PAGE / COARSE)] == M_GAP)
					k++;
				uint32_t slot = (uint32_t)clv_rng_below(&rng, 4);
				buy(page, k, slot);
				for (uint64_t g = page * (PAGE / COARSE); g < (page + k) * (PAGE / COARSE); g++)
					model[g] = M_HOLE + slot;
			} else if (is >= M_LIVE) {
				uint32_t slot = (uint32_t)clv_rng_below(&rng, 4);
				for (unsigned g = 0; g < GRAINS; g++)
					if (model[g] == is)
						model[g] = M_HOLE + slot;
				clv_space_free(a, e, slot, slot ? step + 1 : 0);
			} else if (clv_rng_below(&rng, 4) == 0 && f->whole_slot != CLV_SLOT_NONE && clv_frame_complete(a, f)) {
				for (uint64_t g = (f->addr - base) / COARSE; g < (f->addr + f->size - base) / COARSE; g++)
					model[g] = M_GAP;
				ck_assert_int_eq(clv_frame_release(a, f), CLV_OK);
			} else if (clv_rng_below(&rng, 5) == 0) {
				uint32_t slot = (uint32_t)clv_rng_below(&rng, 4);
				if (slot != e->slot) {
					for (uint64_t g = (e->addr - base) / COARSE; g < (e->addr + e->size - base) / COARSE; g++)
						model[g] = M_HOLE + slot;
					clv_space_retag(a, e, slot, slot ? step + 1 : 0);
				}
			} else {
				uint64_t end = (e->addr + e->size - base) / COARSE, n = clv_rng_range(&rng, 1, clv_min_u64(end - i, 40));
				struct clv_extent *live = clv_space_carve(a, e, base + i * COARSE, n * COARSE, e->slot);
				live->live.requested = ++number;
				for (uint64_t g = i; g < i + n; g++)
					model[g] = number;
			}
			compare();
		}
		rig_shut();
	}
}
END_TEST

CHECK_MAIN("space", a_range_is_one_gap, holes_of_one_slot_join, holes_of_several_slots_do_not, a_whole_frame_waits_for_all_its_frees,
	   parts_are_what_lies_in_pinned_frames, frames_leave_holes, blocks_by_address, random_against_an_array)
