/* SPDX-License-Identifier: MIT
 *
 * In whose order freed memory is free, seen through the public functions and the calls that reach the driver.
 */
#include "arena_rig.h"
#include "check_main.h"

#include <errno.h>

#define BIG (3 * CLV_MIB)

static uint64_t records(void)
{
	return driver_calls(CLV_CALL_event_record);
}

static struct clv_slot *slot(uint64_t id)
{
	return clv_slot_find(a, stream(id).id);
}

START_TEST(reusable_at_once_on_its_stream)
{
	rig_open_capacity(64 * CLV_MIB);
	cleave_ptr p = get(1, BIG);
	give(p, 1);
	ck_assert_uint_eq(records(), 0); /* one stream pays for nothing */
	ck_assert_uint_eq(get(1, BIG), p);
	ck_assert_uint_eq(driver_calls(CLV_CALL_event_query), 0);
	rig_shut();
}
END_TEST

START_TEST(not_on_another)
{
	rig_open_capacity(64 * CLV_MIB);
	cleave_ptr p = get(1, BIG);
	give(p, 1);
	cleave_ptr q = get(2, BIG);
	ck_assert(q >= p + BIG || q + BIG <= p);
	ck_assert_uint_ge(stats().pending_bytes, BIG);
	give(q, 2);
	rig_shut();
}
END_TEST

/* Elsewhere when the event is complete. */
START_TEST(elsewhere_when_complete)
{
	rig_open_capacity(8 * CLV_MIB);
	cleave_ptr p = get(1, 8 * CLV_MIB);
	give(p, 1); /* 8 MiB is enough for an event at once */
	ck_assert_uint_eq(records(), 1);
	clv_sim_complete(sim, stream(1));
	ck_assert_uint_eq(get(2, 8 * CLV_MIB), p);
	cleave_heap_stats s = stats();
	ck_assert_uint_eq(s.device_waits, 0);
	ck_assert_uint_eq(s.host_waits, 0);
	ck_assert_uint_eq(driver_calls(CLV_CALL_create), s.frames_created);
	ck_assert_uint_eq(s.held_bytes, 8 * CLV_MIB);
	rig_shut();
}
END_TEST

/* Nothing is complete: the stream is made to wait, not the host. */
START_TEST(elsewhere_by_a_wait_on_the_device)
{
	rig_open_capacity(8 * CLV_MIB);
	cleave_ptr p = get(1, 8 * CLV_MIB);
	give(p, 1);
	ck_assert_uint_eq(get(2, 8 * CLV_MIB), p);
	cleave_heap_stats s = stats();
	ck_assert_uint_eq(s.device_waits, 1);
	ck_assert_uint_eq(driver_calls(CLV_CALL_stream_wait_event), 1);
	ck_assert_uint_eq(s.host_waits, 0);
	ck_assert_uint_eq(driver_calls(CLV_CALL_event_synchronize) + driver_calls(CLV_CALL_stream_synchronize), 0);
	/* freed on stream 2, which comes after stream 1: complete only when both are */
	give(p, 2);
	ck_assert_uint_eq(get(3, 8 * CLV_MIB), p);
	ck_assert_uint_eq(stats().device_waits, 2);
	rig_shut();
}
END_TEST

/* ANY must have complete memory, and cannot wait on the device: the last step before failing. */
START_TEST(any_waits_on_the_host)
{
	rig_open_capacity(8 * CLV_MIB);
	cleave_ptr p = get(1, 8 * CLV_MIB);
	give(p, 1);
	ck_assert_uint_eq(get(0, 8 * CLV_MIB), p);
	cleave_heap_stats s = stats();
	ck_assert_uint_eq(s.device_waits, 0);
	ck_assert_uint_ge(s.host_waits, 1);
	give(p, 0);
	ck_assert_uint_eq(stats().pending_bytes, 0);
	ck_assert_uint_eq(get(1, 8 * CLV_MIB), p); /* at once */
	ck_assert_uint_eq(stats().host_waits, s.host_waits);
	rig_shut();
}
END_TEST

/* A block of stream 1 freed on stream 2: it is 2's. */
START_TEST(the_freeing_stream_counts)
{
	rig_open_capacity(64 * CLV_MIB);
	cleave_ptr p = get(1, BIG);
	give(p, 2);
	ck_assert_uint_eq(records(), 1); /* at the free, since the allocating stream will come for it */
	ck_assert_uint_ne(get(1, BIG), p);
	ck_assert_uint_eq(get(2, BIG), p);
	rig_shut();
}
END_TEST

/* No work uses the block, says a free on ANY; but what had the memory before it, in the stream's order, may not be done. */
START_TEST(a_free_on_any_keeps_older_work)
{
	rig_open_capacity(8 * CLV_MIB);
	cleave_ptr p = get(1, 8 * CLV_MIB);
	give(p, 1); /* pending */
	ck_assert_uint_eq(get(1, 8 * CLV_MIB), p);
	give(p, 0); /* never used */
	ck_assert_uint_eq(stats().pending_bytes, 8 * CLV_MIB);
	ck_assert_uint_eq(get(2, 8 * CLV_MIB), p);
	ck_assert_uint_eq(stats().device_waits, 1);
	give(p, 2);
	clv_sim_complete(sim, stream(2));
	ck_assert_uint_eq(get(2, 8 * CLV_MIB), p);
	ck_assert(clv_slot_poll(a, slot(2)));
	give(p, 0); /* complete all along */
	ck_assert_uint_eq(stats().pending_bytes, 0);
	rig_shut();
}
END_TEST

START_TEST(events_as_much_is_freed)
{
	rig_open_capacity(CLV_GIB);
	cleave_ptr p[64];
	for (int i = 0; i < 64; i++)
		p[i] = get(1, CLV_MIB);
	for (int i = 0; i < 64; i++)
		give(p[i], 1);
	ck_assert_uint_gt(records(), 0);
	ck_assert_uint_le(records(), 16); /* not one a free */
	ck_assert_uint_le(slot(1)->count, CLV_SLOT_EVENTS);
	rig_valid();
	rig_shut();
}
END_TEST

/* A full ring records its last event anew, so that every free is covered. */
START_TEST(more_events_than_places)
{
	rig_open_capacity(CLV_GIB);
	enum { BLOCKS = 3 * CLV_SLOT_EVENTS };
	cleave_ptr p[BLOCKS];
	for (int i = 0; i < BLOCKS; i++)
		p[i] = get(1, CLV_MIB);
	for (int i = 0; i < BLOCKS; i++) {
		give(p[i], 2);
		rig_valid();
	}
	struct clv_slot *two = slot(2);
	ck_assert_uint_eq(records(), BLOCKS);
	ck_assert_uint_eq(two->count, CLV_SLOT_EVENTS);
	ck_assert_uint_eq(two->seq, BLOCKS);
	ck_assert_uint_eq(two->recorded_seq, BLOCKS);
	clv_sim_complete(sim, stream(2));
	ck_assert(clv_slot_poll(a, two));
	ck_assert_uint_eq(two->completed, BLOCKS);
	ck_assert(clv_streams_poll(a, NULL));
	ck_assert_uint_eq(stats().pending_bytes, 0);
	ck_assert_uint_eq(two->holes->count, 0); /* all are ANY's */
	/* events are used again */
	uint64_t created = driver_calls(CLV_CALL_event_create);
	for (int i = 0; i < BLOCKS; i++)
		p[i] = get(1, CLV_MIB);
	for (int i = 0; i < BLOCKS; i++)
		give(p[i], 2);
	ck_assert_uint_eq(driver_calls(CLV_CALL_event_create), created);
	rig_shut();
}
END_TEST

START_TEST(polls_ask_in_order)
{
	rig_open_capacity(CLV_GIB);
	cleave_ptr p = get(1, BIG), q = get(1, BIG), spacer = get(1, BIG), r = get(1, BIG);
	give(p, 2);
	give(r, 2);
	clv_sim_complete(sim, stream(2));
	give(q, 2);
	struct clv_slot *two = slot(2);
	ck_assert(clv_slot_poll(a, two));
	ck_assert_uint_eq(two->completed, 2);
	ck_assert_uint_eq(two->count, 1);
	ck_assert(!clv_slot_poll(a, two));
	ck_assert(clv_streams_poll(a, NULL));
	rig_valid();
	/* p joined q and is as late as that; r is ANY's */
	ck_assert_uint_ge(stats().pending_bytes, 2 * BIG);
	uint64_t held = stats().held_bytes;
	get(3, BIG);
	ck_assert_uint_eq(stats().held_bytes, held);
	give(spacer, 1);
	rig_shut();
}
END_TEST

START_TEST(a_refused_event_is_only_late)
{
	rig_open_capacity(8 * CLV_MIB);
	cleave_ptr p = get(1, 8 * CLV_MIB);
	rig_refuse(CLV_CALL_event_create, CLV_FAILED);
	give(p, 2);
	ck_assert_uint_eq(records(), 0);
	clv_fault_set(fault, NULL);
	rig_valid();
	ck_assert_uint_eq(get(3, 8 * CLV_MIB), p); /* recorded when it is needed */
	ck_assert_uint_eq(records(), 1);
	/* refused again and again: the host waits for the stream itself */
	struct clv_fault_config c = {.result = CLV_FAILED, .fail_at = 1, .fail_after = true};
	c.eligible[CLV_CALL_event_record] = c.eligible[CLV_CALL_event_synchronize] = c.eligible[CLV_CALL_stream_wait_event] = true;
	clv_fault_set(fault, &c);
	give(p, 3);
	ck_assert_uint_eq(get(4, 8 * CLV_MIB), p);
	ck_assert_uint_ge(driver_calls(CLV_CALL_stream_synchronize), 1);
	rig_shut();
}
END_TEST

START_TEST(destroyed_streams_end_with_their_work)
{
	rig_open_capacity(64 * CLV_MIB);
	cleave_ptr p = get(1, BIG), small = get(1, 100), kept = get(1, BIG);
	uint32_t index = slot(1)->index;
	give(p, 1);
	give(small, 1);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0);
	rig_valid();
	ck_assert_ptr_null(slot(1)); /* known no more */
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(0)), -EINVAL);
	/* nobody waited, and what was freed on it is in use as long as its work goes on */
	ck_assert_uint_eq(stats().host_waits, 0);
	ck_assert_uint_ge(stats().pending_bytes, BIG);
	ck_assert(a->slots[index]->ended);
	cleave_ptr other = get(3, BIG);
	ck_assert_uint_ne(other, p);
	give(other, 3);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(3)), 0);
	rig_valid();
	clv_sim_complete(sim, stream(1));
	clv_sim_complete(sim, stream(3));
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(4)), 0);
	ck_assert_uint_eq(stats().pending_bytes, 0);
	rig_valid();
	/* its slot serves another stream, to which the old one's blocks are foreign */
	cleave_ptr q = get(2, BIG);
	ck_assert_uint_eq(slot(2)->index, index);
	ck_assert(q == p || q == other);
	uint64_t before = records();
	give(kept, 2);
	ck_assert_uint_eq(records(), before + 1);
	rig_valid();
	rig_shut();
}
END_TEST

/* Slots of slabs are freed without being counted: they come back only after the stream's work all the same. */
START_TEST(destroyed_with_small_blocks_only)
{
	rig_open_capacity(64 * CLV_MIB);
	cleave_ptr small = get(1, 100), kept = get(1, 100);
	give(small, 1);
	ck_assert_int_eq(clv_sim_launch(sim, stream(1), 1000, NULL, NULL), CLV_OK);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0);
	ck_assert_uint_eq(driver_calls(CLV_CALL_event_synchronize) + driver_calls(CLV_CALL_stream_synchronize), 0);
	ck_assert_uint_eq(a->slots_ended, 1);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(2)), 0);
	ck_assert_uint_eq(a->slots_ended, 1);
	clv_sim_complete(sim, stream(1));
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(2)), 0);
	ck_assert_uint_eq(a->slots_ended, 0);
	ck_assert_uint_eq(get(0, 100), small); /* ANY's now */
	give(kept, 0);
	rig_valid();
	rig_shut();
}
END_TEST

/* The driver records no event and cannot wait now (a capture is on): the state stays, and nothing is taken for complete. */
START_TEST(destroyed_while_waits_are_refused)
{
	rig_open_capacity(8 * CLV_MIB);
	cleave_ptr p = get(1, 8 * CLV_MIB);
	give(p, 1);
	struct clv_fault_config c = {.result = CLV_CAPTURING, .fail_at = 1, .fail_after = true};
	c.eligible[CLV_CALL_event_synchronize] = c.eligible[CLV_CALL_stream_synchronize] = c.eligible[CLV_CALL_event_record] = true;
	clv_fault_set(fault, &c);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), -EIO);
	ck_assert_uint_eq(stats().pending_bytes, 8 * CLV_MIB);
	cleave_ptr q;
	ck_assert_int_ne(cleave_alloc(heap, 0, stream(0), 8 * CLV_MIB, &q), 0);
	rig_valid();
	clv_sim_complete(sim, stream(1));
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(0), 8 * CLV_MIB, &q), 0);
	/* one that is gone with its context has no work */
	give(q, 2);
	c.result = CLV_GONE;
	clv_fault_set(fault, &c);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(2)), 0);
	ck_assert_uint_eq(stats().pending_bytes, 0);
	rig_shut();
}
END_TEST

START_TEST(handles_change_ids_do_not)
{
	rig_open_capacity(64 * CLV_MIB);
	cleave_ptr p = get(1, BIG);
	ck_assert_int_eq(cleave_free(heap, p, (cleave_stream){1, 0x999}), 0);
	ck_assert_uint_eq(slot(1)->stream.handle, 0x999);
	ck_assert_uint_eq(get(1, BIG), p);
	ck_assert_uint_eq(slot(1)->stream.handle, 0x101);
	rig_shut();
}
END_TEST

START_TEST(many_streams)
{
	rig_open_capacity(CLV_GIB);
	static cleave_ptr p[300];
	for (unsigned i = 0; i < 300; i++)
		p[i] = get(1 + i, 100 * CLV_KIB);
	ck_assert_uint_eq(a->slot_count, 301);
	for (unsigned i = 0; i < 300; i++)
		ck_assert_ptr_eq(a->slots[slot(1 + i)->index], slot(1 + i));
	for (unsigned i = 0; i < 300; i++)
		give(p[i], 1 + i);
	for (unsigned i = 0; i < 300; i++)
		ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1 + i)), 0);
	rig_valid();
	ck_assert_uint_eq(a->slots_ended, 300);
	for (unsigned i = 0; i < 300; i++)
		clv_sim_complete(sim, stream(1 + i));
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0);
	ck_assert_uint_eq(a->slots_ended, 0);
	ck_assert_uint_eq(stats().pending_bytes, 0);
	get(1000, 100 * CLV_KIB);
	ck_assert_uint_eq(a->slot_count, 301);
	rig_shut();
}
END_TEST

/* What a stream's frames linger for goes on when the stream is gone. */
START_TEST(lingers_of_destroyed_streams)
{
	rig_open_with(&(struct clv_sim_config){.capacity = 24 * CLV_MIB, .manual = true}, "growth:tight");
	cleave_ptr p[4];
	for (int i = 0; i < 4; i++)
		p[i] = get(1, 6 * CLV_MIB);
	give(p[0], 1);
	give(p[2], 1);
	cleave_ptr q = get(1, 12 * CLV_MIB); /* only by moves */
	ck_assert_uint_gt(stats().frames_moved, 0);
	ck_assert_ptr_nonnull(slot(1)->lingers);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0);
	rig_valid();
	unsigned lingering = 0;
	for (const struct clv_extent *e = a->ranges->first; e; e = e->next)
		lingering += e->kind == CLV_LINGER;
	ck_assert_uint_gt(lingering, 0); /* its work may still read there */
	clv_sim_complete(sim, stream(1));
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(2)), 0);
	rig_valid();
	for (const struct clv_extent *e = a->ranges->first; e; e = e->next)
		ck_assert_int_ne(e->kind, CLV_LINGER);
	give(q, 2);
	rig_shut();
}
END_TEST

/* Our own pending frames move to where they are needed and the rest is bought: nobody waits. */
START_TEST(moves_of_our_own_need_no_wait)
{
	rig_open_with(&(struct clv_sim_config){.capacity = 64 * CLV_MIB, .manual = true}, "growth:tight");
	cleave_ptr p[7];
	for (int i = 0; i < 7; i++)
		p[i] = get(1, 6 * CLV_MIB); /* 22 MiB are left */
	give(p[1], 1);
	give(p[3], 1);
	get(1, 34 * CLV_MIB); /* 12 of ours, 22 new */
	cleave_heap_stats s = stats();
	ck_assert_uint_eq(s.host_waits, 0);
	ck_assert_uint_eq(s.frames_released, 0);
	ck_assert_uint_eq(s.held_bytes, 64 * CLV_MIB);
	rig_valid();
	rig_shut();
}
END_TEST

/* A closing heap waits for the work before frees instead of unmapping under it. */
static bool seen;

static void look(void *arg)
{
	seen = clv_sim_bytes(sim, *(cleave_ptr *)arg, 8, NULL) != NULL;
}

START_TEST(closing_waits)
{
	for (unsigned small = 0; small < 2; small++) {
		rig_open_with(&(struct clv_sim_config){.capacity = 64 * CLV_MIB, .manual = true, .backing = true}, NULL);
		cleave_ptr p = get(1, small ? 1000 : BIG);
		seen = false;
		ck_assert_int_eq(clv_sim_launch(sim, stream(1), 1000, look, &p), CLV_OK);
		give(p, 1);
		rig_shut();
		ck_assert(seen);
	}
}
END_TEST

CHECK_MAIN("streams", reusable_at_once_on_its_stream, not_on_another, elsewhere_when_complete, elsewhere_by_a_wait_on_the_device,
	   any_waits_on_the_host, the_freeing_stream_counts, a_free_on_any_keeps_older_work, events_as_much_is_freed,
	   more_events_than_places, polls_ask_in_order, a_refused_event_is_only_late, destroyed_streams_end_with_their_work,
	   destroyed_with_small_blocks_only, destroyed_while_waits_are_refused, handles_change_ids_do_not, many_streams,
	   lingers_of_destroyed_streams, moves_of_our_own_need_no_wait, closing_waits)
