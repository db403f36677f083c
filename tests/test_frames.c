/* SPDX-License-Identifier: MIT */
#include "arena_rig.h"
#include "../src/host/meta.h"
#include "check_main.h"

#define PAGE CLV_PAGE

static uint64_t base;

static void open_frames(uint64_t pages)
{
	rig_open_capacity(pages * PAGE);
	ck_assert(clv_space_grow(a, CLV_GIB));
	base = a->ranges->addr;
	rig_records();
}

static struct clv_frame *buy(uint64_t page, uint64_t pages, uint32_t slot)
{
	ck_assert_int_eq(clv_frame_buy(a, NULL, base + page * PAGE, pages * PAGE, slot), CLV_OK);
	rig_valid();
	return clv_frame_at(a, base + page * PAGE);
}

static struct clv_extent *at(uint64_t page)
{
	return clv_space_locate(a, NULL, base + page * PAGE);
}

/* A block over the whole frame, freed in the order of a slot. */
static void use(struct clv_frame *f, uint32_t slot)
{
	struct clv_extent *live = clv_space_carve(a, f->hole, f->addr, f->size, f->hole->slot);
	live->live.requested = f->size;
	uint64_t seq = clv_slot_freed(a, a->slots[slot], f->size, true);
	clv_space_free(a, live, slot, seq);
	rig_valid();
}

static void held_is(uint64_t pages)
{
	ck_assert_uint_eq(a->held, pages * PAGE);
	ck_assert_uint_eq(clv_sim_used(sim, 0), pages * PAGE);
	rig_valid();
}

START_TEST(bought_until_the_device_is_full)
{
	open_frames(10);
	buy(0, 4, 0);
	buy(4, 4, 0);
	held_is(8);
	ck_assert_int_eq(clv_frame_buy(a, NULL, base + 8 * PAGE, 3 * PAGE, 0), CLV_OUT_OF_MEMORY);
	held_is(8);
	ck_assert_int_eq(at(8)->kind, CLV_GAP);
	buy(8, 2, 0);
	held_is(10);
	ck_assert_uint_eq(a->held_peak, 10 * PAGE);
	ck_assert_uint_eq(a->created, 3);
	rig_shut();
}
END_TEST

START_TEST(a_complete_frame_moves_at_once)
{
	open_frames(10);
	struct clv_frame *f = buy(0, 2, 0);
	ck_assert_int_eq(clv_frame_move(a, f, NULL, base + 20 * PAGE, 0), CLV_OK);
	held_is(2);
	ck_assert_int_eq(at(0)->kind, CLV_GAP);
	ck_assert_ptr_eq(clv_frame_at(a, base + 21 * PAGE), f);
	ck_assert_ptr_null(clv_frame_at(a, base));
	ck_assert_uint_eq(f->lingers, 0);
	ck_assert_uint_eq(a->moved, 1);
	ck_assert_uint_eq(driver_calls(CLV_CALL_create), 1); /* nothing was bought */
	rig_shut();
}
END_TEST

/* The bytes come with the frame, and the old address goes on showing them to the work that was under way. */
START_TEST(a_pending_frame_is_an_alias_for_a_while)
{
	rig_open_with(&(struct clv_sim_config){.capacity = 10 * PAGE, .manual = true, .backing = true}, NULL);
	ck_assert(clv_space_grow(a, CLV_GIB));
	base = a->ranges->addr;
	rig_records();
	uint32_t one = slot_of(1);
	struct clv_frame *f = buy(0, 2, one);
	use(f, one);
	uint64_t *old = (uint64_t *)(void *)clv_sim_bytes(sim, base + PAGE, 8, NULL);
	*old = 12345;
	ck_assert(!clv_frame_complete(a, f));
	ck_assert_int_eq(clv_frame_move(a, f, NULL, base + 20 * PAGE, one), CLV_OK);
	held_is(2);
	ck_assert_int_eq(at(0)->kind, CLV_LINGER);
	ck_assert_uint_eq(f->lingers, 1);
	ck_assert_uint_eq(*(uint64_t *)(void *)clv_sim_bytes(sim, base + 21 * PAGE, 8, NULL), 12345);
	ck_assert_uint_eq(*(uint64_t *)(void *)clv_sim_bytes(sim, base + PAGE, 8, NULL), 12345);
	/* nothing ends before the event */
	ck_assert_uint_eq(clv_frames_reap(a), 0);
	ck_assert_int_eq(at(0)->kind, CLV_LINGER);
	clv_sim_complete(sim, stream(1));
	ck_assert_uint_eq(clv_frames_reap(a), 0); /* not asked yet */
	ck_assert(clv_slot_poll(a, a->slots[one]));
	ck_assert(!clv_frame_complete(a, f)); /* two mappings: a release would not give it back */
	ck_assert_uint_eq(clv_frames_reap(a), 2 * PAGE);
	ck_assert(clv_frame_complete(a, f));
	ck_assert_int_eq(at(0)->kind, CLV_GAP);
	ck_assert_ptr_null(clv_sim_bytes(sim, base, 8, NULL));
	ck_assert_uint_eq(*(uint64_t *)(void *)clv_sim_bytes(sim, base + 21 * PAGE, 8, NULL), 12345);
	ck_assert_int_eq(clv_frame_release(a, f), CLV_OK);
	held_is(0);
	rig_shut();
}
END_TEST

START_TEST(lingers_end_in_any_order)
{
	open_frames(20);
	uint32_t one = slot_of(1);
	struct clv_frame *late = buy(0, 1, one), *early = buy(4, 1, one);
	use(early, one);
	clv_sim_complete(sim, stream(1)); /* up to here, unknown to the heap */
	use(late, one);
	ck_assert_int_eq(clv_frame_move(a, late, NULL, base + 20 * PAGE, one), CLV_OK);
	ck_assert_int_eq(clv_frame_move(a, early, NULL, base + 30 * PAGE, one), CLV_OK);
	clv_slot_poll(a, a->slots[one]);
	ck_assert_uint_eq(clv_frames_reap(a), PAGE); /* the second that began */
	ck_assert(clv_frame_complete(a, early));
	ck_assert_int_eq(at(0)->kind, CLV_LINGER);
	/* and again elsewhere: two old addresses of one frame */
	ck_assert_int_eq(clv_frame_move(a, late, NULL, base + 40 * PAGE, one), CLV_OK);
	ck_assert_uint_eq(late->lingers, 2);
	rig_valid();
	clv_sim_complete(sim, stream(1));
	clv_slot_poll(a, a->slots[one]);
	ck_assert_uint_eq(clv_frames_reap(a), 2 * PAGE);
	ck_assert_uint_eq(late->lingers, 0);
	held_is(2);
	rig_shut();
}
END_TEST

START_TEST(refusals_leave_things_as_they_were)
{
	open_frames(20);
	struct clv_frame *f = buy(0, 2, 0);
	rig_refuse(CLV_CALL_create, CLV_OK);
	ck_assert_int_eq(clv_frame_buy(a, NULL, base + 2 * PAGE, PAGE, 0), CLV_OUT_OF_MEMORY);
	held_is(2);
	rig_refuse(CLV_CALL_map, CLV_FAILED);
	ck_assert_int_eq(clv_frame_buy(a, NULL, base + 2 * PAGE, PAGE, 0), CLV_FAILED);
	held_is(2);
	rig_refuse(CLV_CALL_set_access, CLV_FAILED);
	ck_assert_int_eq(clv_frame_buy(a, NULL, base + 2 * PAGE, PAGE, 0), CLV_FAILED);
	held_is(2);
	rig_refuse(CLV_CALL_map, CLV_FAILED);
	ck_assert_int_eq(clv_frame_move(a, f, NULL, base + 9 * PAGE, 0), CLV_FAILED);
	rig_refuse(CLV_CALL_set_access, CLV_FAILED);
	ck_assert_int_eq(clv_frame_move(a, f, NULL, base + 9 * PAGE, 0), CLV_FAILED);
	held_is(2);
	ck_assert_uint_eq(f->addr, base);
	ck_assert_int_eq(at(9)->kind, CLV_GAP);
	rig_refuse(CLV_CALL_unmap, CLV_FAILED);
	ck_assert_int_eq(clv_frame_release(a, f), CLV_FAILED);
	held_is(2);
	ck_assert_ptr_eq(clv_frame_at(a, base), f);
	clv_fault_set(fault, NULL);
	buy(2, 1, 0); /* and all works again */
	ck_assert_int_eq(clv_frame_release(a, f), CLV_OK);
	held_is(1);
	rig_shut();
}
END_TEST

/* A mapping that was made, cannot be used and cannot be taken back: its addresses are closed until it can. */
START_TEST(stuck_mappings)
{
	open_frames(20);
	struct clv_frame *f = buy(0, 2, 0);
	struct clv_fault_config c = {.result = CLV_FAILED, .fail_at = 1, .fail_after = true};
	c.eligible[CLV_CALL_set_access] = c.eligible[CLV_CALL_unmap] = true;
	clv_fault_set(fault, &c);
	ck_assert_int_eq(clv_frame_buy(a, NULL, base + 2 * PAGE, 3 * PAGE, 0), CLV_FAILED);
	held_is(5); /* mapped, so the device does not have it back */
	ck_assert_int_eq(at(2)->kind, CLV_LINGER);
	ck_assert_uint_eq(a->loose_bytes, 3 * PAGE);
	ck_assert_int_eq(clv_frame_move(a, f, NULL, base + 9 * PAGE, 0), CLV_FAILED);
	ck_assert_int_eq(at(9)->kind, CLV_LINGER);
	ck_assert(!clv_frame_complete(a, f));
	clv_frames_reap(a);
	held_is(5);
	clv_fault_set(fault, NULL);
	ck_assert_uint_eq(clv_frames_reap(a), 5 * PAGE);
	held_is(2);
	ck_assert(clv_frame_complete(a, f));
	ck_assert_int_eq(at(2)->kind, CLV_GAP);
	ck_assert_uint_eq(a->loose_bytes, 0);
	rig_shut();
}
END_TEST

START_TEST(handles_that_are_not_taken_back)
{
	open_frames(20);
	struct clv_frame *f = buy(0, 2, 0);
	struct clv_fault_config c = {.result = CLV_FAILED, .fail_at = 1, .fail_after = true};
	c.eligible[CLV_CALL_release] = true;
	clv_fault_set(fault, &c);
	clv_meta_fail_after(1); /* nothing is needed to remember it */
	ck_assert_int_eq(clv_frame_release(a, f), CLV_FAILED);
	clv_meta_fail_after(0);
	held_is(2);
	ck_assert_uint_eq(a->loose_bytes, 2 * PAGE);
	ck_assert_uint_eq(a->released, 0);
	clv_frames_reap(a);
	held_is(2);
	clv_fault_set(fault, NULL);
	clv_frames_reap(a);
	held_is(0);
	rig_shut();
}
END_TEST

/* An old mapping that the driver does not take away at the move lingers, whatever the streams. */
START_TEST(an_old_mapping_stays)
{
	open_frames(20);
	struct clv_frame *f = buy(0, 2, 0);
	rig_refuse(CLV_CALL_unmap, CLV_FAILED);
	ck_assert_int_eq(clv_frame_move(a, f, NULL, base + 9 * PAGE, 0), CLV_OK);
	ck_assert_int_eq(at(0)->kind, CLV_LINGER);
	held_is(2);
	clv_fault_set(fault, NULL);
	clv_frames_reap(a);
	ck_assert_int_eq(at(0)->kind, CLV_GAP);
	rig_shut();
}
END_TEST

START_TEST(host_memory_is_out)
{
	open_frames(20);
	buy(0, 2, 0);
	while (a->extents.spare > 1)
		clv_pool_take(&a->extents); /* lost, but they belong to the pool */
	struct clv_frame *f = clv_frame_at(a, base);
	clv_meta_fail_after(1);
	a->host_out = false;
	ck_assert_int_eq(clv_frame_buy(a, NULL, base + 2 * PAGE, PAGE, 0), CLV_FAILED);
	ck_assert(a->host_out);
	ck_assert_int_eq(clv_frame_move(a, f, NULL, base + 9 * PAGE, 0), CLV_FAILED);
	ck_assert_int_eq(clv_frame_release(a, f), CLV_FAILED);
	clv_meta_fail_after(0);
	held_is(2);
	rig_shut();
}
END_TEST

/* Whatever number of records is left when a request comes, moves and cuts find theirs: each operation either reserves what it
 * needs or fails as a whole. */
START_TEST(no_record_is_missing)
{
	for (uint64_t spare = 0; spare < 24; spare++) {
		rig_open_with(&(struct clv_sim_config){.capacity = 64 * CLV_MIB, .manual = true}, "growth:tight");
		cleave_ptr p[12];
		for (int i = 0; i < 12; i++)
			p[i] = get(1, 5 * CLV_MIB - 512);
		for (int i = 0; i < 12; i += 2)
			give(p[i], 1);
		while (a->extents.spare > spare)
			clv_pool_take(&a->extents);
		cleave_ptr q = get(1, 14 * CLV_MIB); /* frames of all holes move to it */
		ck_assert_uint_gt(a->moved, 0);
		rig_valid();
		give(q, 1);
		rig_shut();
	}
}
END_TEST

CHECK_MAIN("frames", bought_until_the_device_is_full, a_complete_frame_moves_at_once, a_pending_frame_is_an_alias_for_a_while,
	   lingers_end_in_any_order, refusals_leave_things_as_they_were, stuck_mappings, handles_that_are_not_taken_back,
	   an_old_mapping_stays, host_memory_is_out, no_record_is_missing)
