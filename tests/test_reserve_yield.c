/* SPDX-License-Identifier: MIT
 *
 * What reservations give up for others, and what they keep since giving it up would serve nobody.
 */
#include "../src/heap/arena.h"
#include "../src/heap/place.h"
#include "../src/heap/reclaim.h"
#include "reserve_rig.h"

#include <errno.h>

START_TEST(nothing_for_a_hopeless_request)
{
	cleave_ptr p;
	open_one(128 * CLV_MIB);
	uint64_t hard = reserve((cleave_reservation){.bytes = 16 * CLV_MIB, .count = 4, .hard = 1});
	uint64_t soft = reserve((cleave_reservation){.bytes = 16 * CLV_MIB - 512, .count = 2});
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 1000 * CLV_GIB, &p), -ENOMEM);
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 129 * CLV_MIB, &p), -ENOMEM);
	ck_assert(told(hard).held == 4 && told(soft).held == 2);
	/* with live memory beside it, less is hopeless */
	p = get(1, 30 * CLV_MIB);
	cleave_ptr q;
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 100 * CLV_MIB, &q), -ENOMEM);
	ck_assert(told(hard).held == 4 && told(soft).held == 2);
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 96 * CLV_MIB, &q), 0);
	ck_assert(told(hard).held == 0 && told(soft).held == 0);
	give(p, 1);
	give(q, 1);
	close_all();
}
END_TEST

START_TEST(nothing_for_a_hopeless_reservation)
{
	open_one(128 * CLV_MIB);
	uint64_t soft = reserve((cleave_reservation){.bytes = 16 * CLV_MIB, .count = 4});
	const cleave_reservation much = {.bytes = 15 * CLV_MIB, .count = 9, .hard = 1};
	ck_assert_int_eq(cleave_reserve(heap, 0, &much, NULL), -ENOMEM);
	ck_assert_uint_eq(told(soft).held, 4);
	ck_assert_uint_eq(books().reservation_bytes, 64 * CLV_MIB);
	close_all();
}
END_TEST

/* Slots that another stream has freed are had by a wait on the device: as few as will do, and no wait of the host. */
START_TEST(what_another_stream_has_freed)
{
	cleave_ptr p[6];
	open_one(128 * CLV_MIB);
	uint64_t soft = reserve((cleave_reservation){.bytes = 16 * CLV_MIB, .count = 6});
	for (int i = 0; i < 6; i++)
		p[i] = get(1, 16 * CLV_MIB);
	for (int i = 0; i < 6; i++)
		give(p[i], 1);
	get(3, 32 * CLV_MIB); /* the rest of the device */
	ck_assert_uint_eq(told(soft).held, 6);
	get(2, 40 * CLV_MIB);
	ck_assert_uint_eq(told(soft).yielded, 3);
	cleave_heap_stats s = books();
	ck_assert_uint_eq(s.host_waits, 0);
	ck_assert_uint_ge(s.device_waits, 1);
	close_all();
}
END_TEST

/* Given up for a block that needs the whole device, and there again once a block of its size is freed. */
static void in_vain(uint64_t id, uint64_t times)
{
	for (uint64_t i = 0; i < times; i++) {
		cleave_reservation_stats before = told(id);
		give(get(1, 128 * CLV_MIB), 1);
		give(get(1, 32 * CLV_MIB), 1);
		cleave_reservation_stats after = told(id);
		ck_assert_uint_eq(after.yielded, before.yielded + 1);
		ck_assert_uint_eq(after.held, i + 1 < times);
	}
}

/* What is given up again and again is for another program, and holds nothing any more; a hard one goes on. */
START_TEST(a_plan_for_another_program)
{
	open_one(128 * CLV_MIB);
	cleave_reservation r = {.bytes = 32 * CLV_MIB, .count = 1};
	uint64_t id = reserve(r);
	in_vain(id, 2);
	give(get(1, 32 * CLV_MIB), 1);
	ck_assert_uint_eq(told(id).held, 0);
	id = reserve(r);
	for (int i = 0; i < 4; i++)
		give(get(1, 32 * CLV_MIB), 1);
	ck_assert_uint_ge(told(id).served, 3); /* the first may not have found what was to be had without a wait */
	in_vain(id, 2 + 2 * told(id).served);
	r.hard = 1;
	id = reserve(r);
	for (int i = 0; i < 20; i++) {
		give(get(1, 128 * CLV_MIB), 1);
		give(get(1, 32 * CLV_MIB), 1);
		ck_assert_uint_eq(told(id).held, 1);
	}
	ck_assert_uint_eq(told(id).yielded, 20);
	close_all();
}
END_TEST

/* One request that takes many slots says no more than one that takes one. */
START_TEST(one_peak_is_no_other_plan)
{
	open_one(1024 * CLV_MIB);
	uint64_t id = reserve((cleave_reservation){.bytes = 64 * CLV_MIB, .count = 4});
	give(get(1, 900 * CLV_MIB), 1);
	ck_assert_uint_ge(told(id).yielded, 2);
	for (int round = 0; round < 10; round++) {
		cleave_ptr p[4];
		for (int i = 0; i < 4; i++)
			p[i] = get(1, 64 * CLV_MIB);
		for (int i = 0; i < 4; i++)
			give(p[i], 1);
		ck_assert_uint_eq(told(id).held, 4);
	}
	ck_assert_uint_ge(told(id).served, 36);
	close_all();
}
END_TEST

/* Time that passes while frames are bought is not idle time. */
START_TEST(idle_time_begins_when_all_are_made)
{
	open_with("reserve:40KiB*4+idle=20+name=a,reserve:1000MiB*100+name=b",
		  (struct clv_sim_config){.capacity = 256 * CLV_GIB});
	uint64_t id = reserve((cleave_reservation){.bytes = 1176 * CLV_MIB, .count = 92, .idle_ms = 10, .hard = 1});
	ck_assert(told(id).made == 92 && told(id).held == 92);
	ck_assert_int_eq(told(id).ended, CLEAVE_RESERVATION_LASTS);
	ck_assert_int_eq(cleave_reserve_end(heap, 0, id), 0);
	get(1, 2 * CLV_MIB);
	ck_assert(told(id + 1).ended == CLEAVE_RESERVATION_LASTS && told(id + 2).ended == CLEAVE_RESERVATION_LASTS);
	close_all();
}
END_TEST

START_TEST(an_end_of_all_is_also_of_what_is_not_made)
{
	open_with("reserve:16MiB*4", (struct clv_sim_config){.capacity = CLV_GIB});
	cleave_ptr p = get(1, 700); /* shows no work yet */
	ck_assert_int_eq(cleave_reserve_end(heap, 0, 0), 0);
	get(1, 2 * CLV_MIB);
	ck_assert_uint_eq(books().reservation_bytes, 0);
	ck_assert_uint_eq(count_of(), 0);
	give(p, 1);
	close_all();
}
END_TEST

CHECK_MAIN("reserve_yield", nothing_for_a_hopeless_request, nothing_for_a_hopeless_reservation, what_another_stream_has_freed,
	   a_plan_for_another_program, one_peak_is_no_other_plan, idle_time_begins_when_all_are_made, an_end_of_all_is_also_of_what_is_not_made)
