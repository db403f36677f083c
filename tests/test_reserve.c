/* SPDX-License-Identifier: MIT
 *
 * Reservations, one rule at a time; what random work does to them is in test_reserve_model.c.
 */
#include "../src/driver/fault.h"
#include "../src/driver/sim.h"
#include "../src/heap/failure.h"
#include "../src/heap/heap_more.h"
#include "../src/heap/reserve.h"
#include "../src/host/meta.h"
#include "check_main.h"
#include "reserve_rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PAGE (2 * CLV_MIB)
#define SLOT (5 * CLV_MIB + 3 * 512) /* shares pages with its neighbours */

static uint64_t calls(enum clv_call call)
{
	struct clv_call_counts c;
	sim->counts(sim, &c);
	return c.calls[call];
}

START_TEST(slots_are_held_back)
{
	open_one(64 * CLV_MIB);
	uint64_t id = reserve((cleave_reservation){.name = "w13_weight", .bytes = SLOT - 100, .count = 3});
	cleave_heap_stats s = books();
	ck_assert_uint_ge(s.held_bytes, 3 * SLOT); /* mapped at once */
	ck_assert_uint_eq(s.reservation_bytes, 3 * SLOT);
	ck_assert_uint_eq(s.free_bytes, s.held_bytes);
	ck_assert_uint_lt(s.stranded_bytes, PAGE); /* the end of the last page alone */
	ck_assert(s.live_bytes == 0 && s.live_blocks == 0 && s.pending_bytes == 0);
	ck_assert_uint_le(s.largest_hole_bytes, PAGE);
	cleave_reservation_stats r = told(id);
	ck_assert_str_eq(r.name, "w13_weight");
	ck_assert(r.bytes == SLOT - 100 && r.count == 3 && r.made == 3 && r.held == 3 && r.unused == 3 &&
		  r.refused == 0);

	/* what is of another size does not get them, and they cost no call of the driver */
	cleave_ptr other = get(1, SLOT - 1024);
	ck_assert_uint_gt(books().held_bytes, s.held_bytes);
	uint64_t created = calls(CLV_CALL_create);
	cleave_ptr p = get(1, SLOT - 100), q = get(2, SLOT);
	ck_assert_uint_eq(calls(CLV_CALL_create), created);
	s = books();
	ck_assert_uint_eq(s.reservation_bytes, SLOT);
	ck_assert_uint_eq(s.live_bytes, 3 * SLOT - 1024);
	ck_assert_uint_eq(s.live_blocks, 3);
	r = told(id);
	ck_assert(r.served == 2 && r.held == 1 && r.missed == 0 && r.unused == 1);
	size_t size;
	cleave_ptr start;
	ck_assert_int_eq(cleave_block_info(heap, p + 5, &start, &size, NULL), 0);
	ck_assert(start == p && size == SLOT - 100);

	/* freed, they are nobody's block, and held back again */
	give(p, 1);
	ck_assert_int_eq(cleave_block_info(heap, p, &start, &size, NULL), -EINVAL);
	ck_assert_int_eq(clv_heap_frames(heap, p, NULL, NULL, NULL, NULL), -EINVAL);
	ck_assert_int_eq(cleave_free(heap, p, stream(1)), -EINVAL);
	ck_assert_uint_eq(books().reservation_bytes, 2 * SLOT);
	ck_assert_uint_eq(get(1, SLOT), p); /* the last freed comes first */
	give(p, 1);
	give(q, 2);
	r = told(id);
	ck_assert(r.served == 3 && r.kept == 3 && r.held == 3 && r.unused == 1);
	give(other, 1);
	ck_assert_uint_eq(books().live_bytes, 0);
	close_all();
}
END_TEST

START_TEST(beyond_the_plan)
{
	open_one(64 * CLV_MIB);
	uint64_t id = reserve((cleave_reservation){.bytes = SLOT, .count = 1});
	cleave_ptr p = get(1, SLOT), q = get(1, SLOT), u = get(1, SLOT);
	cleave_reservation_stats r = told(id);
	ck_assert(r.served == 1 && r.missed == 2 && r.held == 0 && r.unused == 0);
	/* of what is freed one is held, no more */
	give(p, 1);
	give(q, 1);
	give(u, 1);
	r = told(id);
	ck_assert(r.held == 1 && r.kept == 1);
	ck_assert_uint_eq(books().reservation_bytes, SLOT);
	char text[512];
	ck_assert_int_gt(cleave_reservation_print(&r, text, sizeof(text)), 0);
	ck_assert_ptr_nonnull(strstr(text, "not as planned: 2 requests found none left"));
	close_all();
}
END_TEST

/* 92 equal layers are converted one after the other through one spare: each finds its room in what was freed before. */
START_TEST(through_one_spare)
{
	enum { LAYERS = 92 };
	open_one((LAYERS + 2) * 8 * CLV_MIB);
	uint64_t id =
		reserve((cleave_reservation){.bytes = 7 * CLV_MIB, .count = 1, .after_n = LAYERS, .uses = LAYERS});
	cleave_ptr source[LAYERS], free_now = 0;
	for (int i = 0; i < LAYERS; i++)
		source[i] = get(1, 7 * CLV_MIB);
	cleave_reservation_stats r = told(id);
	ck_assert(r.skipped == LAYERS && r.served == 0 && r.missed == 0 && r.held == 1);
	for (int i = 0; i < LAYERS; i++) {
		cleave_ptr made = get(1, 7 * CLV_MIB);
		ck_assert(!free_now || made == free_now);
		for (int k = i; k < LAYERS; k++)
			ck_assert_uint_ne(made, source[k]);
		give(free_now = source[i], 1);
	}
	r = told(id);
	ck_assert(r.served == LAYERS && r.missed == 0);
	/* the plan's count was reached: nothing is held any more */
	ck_assert_int_eq(r.ended, CLEAVE_RESERVATION_ENDED_BY_USES);
	ck_assert_uint_eq(r.held, 0);
	ck_assert_uint_eq(books().reservation_bytes, 0);
	char text[512];
	cleave_reservation_print(&r, text, sizeof(text));
	ck_assert_msg(!strstr(text, "not as planned"), "%s", text);
	close_all();
}
END_TEST

START_TEST(after_n_that_is_never_reached)
{
	open_one(64 * CLV_MIB);
	uint64_t id = reserve((cleave_reservation){.bytes = SLOT, .count = 2, .after_n = 3, .uses = 5});
	get(1, SLOT);
	get(1, SLOT);
	cleave_reservation_stats r = told(id);
	ck_assert(r.skipped == 2 && r.served == 0 && r.held == 2 && r.unused == 2);
	ck_assert_int_eq(cleave_reserve_end(heap, 0, id), 0);
	r = told(id);
	ck_assert_int_eq(r.ended, CLEAVE_RESERVATION_ENDED_BY_CALL);
	ck_assert(r.held == 0 && r.unused == 2);
	ck_assert_uint_ge(books().largest_hole_bytes, 2 * SLOT);
	char text[512];
	cleave_reservation_print(&r, text, sizeof(text));
	ck_assert_ptr_nonnull(
		strstr(text, "only 2 of the requests before it came; 5 uses were expected; 2 were never used"));
	ck_assert_int_eq(cleave_reserve_end(heap, 0, id), -ENOENT);
	ck_assert_int_eq(cleave_reserve_end(heap, 0, id + 1), -ENOENT);
	ck_assert_int_eq(cleave_reserve_end(heap, 0, 0), 0);
	close_all();
}
END_TEST

START_TEST(classes)
{
	open_one(128 * CLV_MIB);
	uint64_t large = reserve((cleave_reservation){.bytes = 12 * CLV_MIB, .count = 1, .by_class = 1});
	uint64_t small = reserve((cleave_reservation){.bytes = 8 * CLV_MIB, .count = 1, .by_class = 1});
	uint64_t exact = reserve((cleave_reservation){.bytes = 7 * CLV_MIB, .count = 1});
	cleave_ptr p = get(1, 7 * CLV_MIB), q = get(1, 7 * CLV_MIB), u = get(1, 7 * CLV_MIB);
	ck_assert(told(exact).served == 1 && told(small).served == 1 && told(large).served == 1);
	cleave_heap_stats s = books();
	ck_assert_uint_eq(s.live_bytes, 21 * CLV_MIB);
	ck_assert_uint_eq(s.rounding_bytes, 6 * CLV_MIB); /* whole slots */
	ck_assert_uint_eq(s.reservation_bytes, 0);
	give(p, 1);
	give(q, 1);
	give(u, 1);
	s = books();
	ck_assert(s.live_bytes == 0 && s.rounding_bytes == 0 && s.reservation_bytes == 27 * CLV_MIB);
	/* half and less, and more than all, is of no class here */
	p = get(1, 4 * CLV_MIB);
	q = get(1, 12 * CLV_MIB + 1);
	ck_assert_uint_eq(books().reservation_bytes, 27 * CLV_MIB);
	u = get(1, 4 * CLV_MIB + 1);
	ck_assert_uint_eq(told(small).served, 2);
	/* a smaller block of the class does not become a slot, one of its size does */
	cleave_ptr v = get(1, 5 * CLV_MIB), w = get(1, 8 * CLV_MIB);
	ck_assert_uint_eq(told(small).missed, 1);
	ck_assert_uint_eq(told(large).served, 2);
	give(v, 1);
	ck_assert_uint_eq(told(small).held, 0);
	give(w, 1); /* of the size of the large class's slot */
	ck_assert(told(small).held == 0 && told(large).held == 1);
	give(u, 1);
	ck_assert(told(small).held == 1);
	close_all();
}
END_TEST

START_TEST(of_one_stream)
{
	open_one(128 * CLV_MIB);
	uint64_t id = reserve((cleave_reservation){.bytes = SLOT, .count = 1, .one_stream = 1, .stream = stream(2)});
	cleave_ptr p = get(1, SLOT);
	cleave_reservation_stats r = told(id);
	ck_assert(r.served == 0 && r.missed == 0 && r.held == 1 && r.stream_id == 2);
	cleave_ptr q = get(2, SLOT);
	ck_assert_uint_eq(told(id).served, 1);
	give(p, 1);
	ck_assert_uint_eq(told(id).held, 0);
	give(q, 2);
	ck_assert_uint_eq(told(id).held, 1);
	close_all();
}
END_TEST

/* What another stream freed is taken by a wait on the device; by nothing if it is known to be done. */
START_TEST(across_streams)
{
	open_one(64 * CLV_MIB);
	uint64_t id = reserve((cleave_reservation){.bytes = SLOT, .count = 1});
	cleave_ptr p = get(1, SLOT);
	give(p, 1);
	ck_assert_uint_ge(books().pending_bytes, SLOT);
	uint64_t waits = books().device_waits;
	ck_assert_uint_eq(get(2, SLOT), p);
	ck_assert_uint_eq(books().device_waits, waits + 1);
	ck_assert_uint_eq(books().host_waits, 0);
	give(p, 2);
	/* memory of no stream's order cannot wait there: the request is served elsewhere */
	cleave_ptr q = 0;
	ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, SLOT, &q), 0);
	ck_assert_uint_ne(q, p);
	ck_assert_uint_eq(told(id).missed, 1);
	ck_assert_int_eq(cleave_free(heap, q, CLEAVE_STREAM_ANY), 0);
	clv_sim_complete(sim, stream(1));
	clv_sim_complete(sim, stream(2));
	ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, SLOT, &q), 0);
	ck_assert_uint_eq(q, p);
	ck_assert_int_eq(cleave_free(heap, q, CLEAVE_STREAM_ANY), 0);
	ck_assert_uint_eq(books().pending_bytes, 0);
	/* nor does a wait follow for what is complete */
	waits = books().device_waits;
	ck_assert_uint_eq(get(3, SLOT), p);
	ck_assert_uint_eq(books().device_waits, waits);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(2)), 0);
	give(p, 3);
	/* while a slot is of its order, and its work may go on */
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(3)), 0);
	ck_assert_uint_eq(get(4, SLOT), p);
	ck_assert_uint_eq(books().device_waits, waits + 1);
	give(p, 4);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(4)), 0);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(books().pending_bytes, 0);
	close_all();
}
END_TEST

/* Captures of graphs have memory of their own: its requests match nothing, and nothing of it is held back. */
START_TEST(not_for_captures)
{
	open_one(64 * CLV_MIB);
	uint64_t id = reserve((cleave_reservation){.bytes = SLOT, .count = 1});
	cleave_stream capture = {CLV_STREAM_VIRTUAL | 5, 5};
	cleave_ptr p = 0;
	ck_assert_int_eq(cleave_alloc(heap, 0, capture, SLOT, &p), 0);
	ck_assert(told(id).served == 0 && told(id).missed == 0);
	cleave_ptr q = get(1, SLOT);
	ck_assert_uint_eq(told(id).held, 0);
	ck_assert_int_eq(cleave_free(heap, p, capture), 0);
	ck_assert_uint_eq(told(id).held, 0);
	give(q, 1);
	ck_assert_uint_eq(told(id).held, 1);
	uint64_t none = 7;
	cleave_reservation r = {.bytes = SLOT, .count = 1, .one_stream = 1, .stream = capture};
	ck_assert_int_eq(cleave_reserve(heap, 0, &r, &none), -EINVAL);
	ck_assert_uint_eq(none, 7);
	close_all();
}
END_TEST

struct warned {
	unsigned count;
	char text[512];
};

static void on_warning(void *arg, const char *sentence)
{
	struct warned *w = arg;
	w->count++;
	snprintf(w->text, sizeof(w->text), "%s", sentence);
}

START_TEST(soft_yields_before_hard)
{
	open_one(64 * CLV_MIB);
	struct warned w = {0};
	ck_assert_int_eq(cleave_reserve_on_warning(heap, on_warning, &w), 0);
	uint64_t hard = reserve((cleave_reservation){.name = "h", .bytes = 8 * CLV_MIB, .count = 2, .hard = 1});
	uint64_t soft = reserve((cleave_reservation){.bytes = 8 * CLV_MIB + 512, .count = 2});
	uint64_t tiny = reserve((cleave_reservation){.bytes = 2 * CLV_MIB, .count = 2});
	/* what was freed, and is not known to be done, does as long as no wait of the host is needed */
	give(get(1, 26 * CLV_MIB), 1);
	get(1, 27 * CLV_MIB);
	ck_assert_uint_eq(books().reservation_bytes, 36 * CLV_MIB + 1024);
	/* the smallest one that is enough */
	cleave_ptr q = get(1, 4 * CLV_MIB);
	ck_assert(told(soft).yielded == 1 && told(tiny).yielded == 0 && told(hard).yielded == 0);
	ck_assert_uint_eq(books().host_waits, 0);
	/* or several */
	get(1, 14 * CLV_MIB);
	ck_assert(told(soft).yielded == 2 && told(tiny).yielded == 2 && told(hard).yielded == 0);
	ck_assert_uint_eq(w.count, 0);
	/* hard ones only when a request would fail */
	cleave_ptr p;
	uint64_t served = 0;
	while (!cleave_alloc(heap, 0, stream(1), 3 * CLV_MIB, &p))
		served++;
	ck_assert_uint_ge(served, 5);
	ck_assert_uint_eq(told(hard).yielded, 2);
	ck_assert_uint_eq(books().reservation_bytes, 0);
	ck_assert_uint_eq(w.count, 1);
	ck_assert_ptr_nonnull(strstr(w.text, "the hard reservation 'h' of 8.0 MiB gives slots up"));
	/* and the report of the failure tells of it */
	cleave_failure f;
	char text[2048];
	ck_assert_int_eq(cleave_heap_last_failure(heap, 0, &f), 0);
	ck_assert_uint_eq(f.yielded_bytes, 36 * CLV_MIB + 1024);
	cleave_failure_print(&f, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "Reservations have given up 36.0 MiB for other requests."));
	give(q, 1);
	close_all();
}
END_TEST

START_TEST(failures_tell_of_too_small_plans)
{
	open_one(64 * CLV_MIB);
	reserve((cleave_reservation){.bytes = 20 * CLV_MIB, .count = 1});
	cleave_ptr p;
	get(1, 20 * CLV_MIB);
	get(1, 20 * CLV_MIB);
	get(1, 20 * CLV_MIB);
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 20 * CLV_MIB, &p), -ENOMEM);
	cleave_failure f;
	char text[2048];
	ck_assert_int_eq(cleave_heap_last_failure(heap, 0, &f), 0);
	ck_assert(f.beyond_plan == 3 && f.beyond_plan_bytes == 20 * CLV_MIB);
	cleave_failure_print(&f, text, sizeof(text));
	ck_assert_ptr_nonnull(
		strstr(text, "3 requests, the largest of 20.0 MiB, found nothing left of what was reserved"));
	close_all();
}
END_TEST

START_TEST(trim_spares_hard_ones)
{
	open_one(128 * CLV_MIB);
	uint64_t hard = reserve((cleave_reservation){.bytes = 8 * CLV_MIB, .count = 2, .hard = 1});
	uint64_t soft = reserve((cleave_reservation){.bytes = 6 * CLV_MIB, .count = 3});
	cleave_ptr p = get(1, 6 * CLV_MIB), q = get(1, 20 * CLV_MIB);
	give(q, 1);
	uint64_t released;
	/* ordinary free memory first */
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 34 * CLV_MIB, &released), 0);
	ck_assert(told(soft).trimmed == 0 && told(hard).trimmed == 0);
	ck_assert_uint_eq(books().held_bytes, 34 * CLV_MIB);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, &released), 0);
	ck_assert_uint_eq(released, 12 * CLV_MIB);
	ck_assert(told(soft).trimmed == 2 && told(soft).held == 0);
	ck_assert(told(hard).trimmed == 0 && told(hard).held == 2);
	ck_assert_uint_eq(books().reservation_bytes, 16 * CLV_MIB);
	/* its phase goes on: what is freed is held */
	give(p, 1);
	ck_assert_uint_eq(told(soft).held, 1);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, CLV_MIB), 0);
	ck_assert_uint_eq(books().held_bytes, 16 * CLV_MIB);
	ck_assert_int_eq(cleave_reserve_end(heap, 0, 0), 0);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, &released), 0);
	ck_assert_uint_eq(books().held_bytes, 0);
	close_all();
}
END_TEST

START_TEST(what_cannot_be_had)
{
	open_one(32 * CLV_MIB);
	uint64_t before = clv_meta_bytes(), id = 7;
	get(1, 10 * CLV_MIB);
	cleave_reservation r = {.bytes = 8 * CLV_MIB, .count = 4, .hard = 1};
	ck_assert_int_eq(cleave_reserve(heap, 0, &r, &id), -ENOMEM);
	ck_assert_uint_eq(id, 7);
	ck_assert_uint_eq(count_of(), 0);
	ck_assert_uint_eq(books().reservation_bytes, 0);
	r.hard = 0;
	id = reserve(r);
	cleave_reservation_stats s = told(id);
	ck_assert(s.made == 2 && s.held == 2 && s.refused == -ENOMEM);
	char text[512];
	cleave_reservation_print(&s, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "not as planned: 2 could be had at first"));
	/* what is freed later makes up for it */
	r.hard = 1;
	r.count = 2;
	uint64_t hard = reserve(r); /* the soft one yields to it */
	ck_assert(told(hard).held == 2 && told(id).held == 0 && told(id).yielded == 2);
	/* but none that is hard does */
	ck_assert_int_eq(cleave_reserve(heap, 0, &r, NULL), -ENOMEM);
	ck_assert_uint_eq(told(hard).held, 2);
	ck_assert_uint_gt(clv_meta_bytes(), before);
	close_all();
}
END_TEST

START_TEST(senseless)
{
	open_one(32 * CLV_MIB);
	const cleave_reservation good = {.bytes = SLOT, .count = 1};
	cleave_reservation bad[8];
	for (size_t i = 0; i < CLV_ARRAY_LEN(bad); i++)
		bad[i] = good;
	bad[0].bytes = 0;
	bad[1].bytes = 32 * CLV_KIB;
	bad[2].bytes = UINT64_MAX;
	bad[3].count = 0;
	bad[4].count = UINT64_MAX;
	bad[5].idle_ms = UINT64_MAX;
	bad[6].reserved[3] = 1;
	bad[7].count = 1 << 20;
	bad[7].bytes = CLV_GIB;
	for (size_t i = 0; i < CLV_ARRAY_LEN(bad); i++)
		ck_assert_int_eq(cleave_reserve(heap, 0, &bad[i], NULL), -EINVAL);
	ck_assert_int_eq(cleave_reserve(NULL, 0, &good, NULL), -EINVAL);
	ck_assert_int_eq(cleave_reserve(heap, 0, NULL, NULL), -EINVAL);
	ck_assert_int_eq(cleave_reserve(heap, 1, &good, NULL), -EINVAL);
	ck_assert_int_eq(cleave_reserve(heap, -1, &good, NULL), -EINVAL);
	ck_assert_int_eq(cleave_reserve_end(NULL, 0, 0), -EINVAL);
	ck_assert_int_eq(cleave_reserve_end(heap, 1, 0), -EINVAL);
	size_t n;
	ck_assert_int_eq(cleave_reserve_stats(heap, 0, NULL, 1, &n), -EINVAL);
	ck_assert_int_eq(cleave_reserve_stats(heap, 0, NULL, 0, NULL), -EINVAL);
	ck_assert_int_eq(cleave_reserve_stats(heap, 7, NULL, 0, &n), -EINVAL);
	ck_assert_int_eq(cleave_reserve_on_warning(NULL, NULL, NULL), -EINVAL);
	ck_assert_uint_eq(count_of(), 0);
	ck_assert_int_eq(cleave_reserve(heap, 0, &good, NULL), 0);
	close_all();
}
END_TEST

START_TEST(idle_time)
{
	open_one(64 * CLV_MIB);
	uint64_t timed = reserve((cleave_reservation){.bytes = SLOT, .count = 1, .idle_ms = 100});
	uint64_t other = reserve((cleave_reservation){.bytes = 3 * CLV_MIB, .count = 1});
	for (int i = 0; i < 5; i++) {
		clv_sim_advance(sim, 90 * 1000000);
		give(get(1, SLOT), 1);
	}
	ck_assert_int_eq(told(timed).ended, CLEAVE_RESERVATION_LASTS);
	clv_sim_advance(sim, 110 * 1000000);
	give(get(1, SLOT), 1); /* comes too late */
	ck_assert_uint_eq(told(timed).served, 5);
	ck_assert_int_eq(told(timed).ended, CLEAVE_RESERVATION_ENDED_IDLE);
	ck_assert_int_eq(told(other).ended, CLEAVE_RESERVATION_LASTS);
	ck_assert_uint_eq(books().reservation_bytes, 3 * CLV_MIB);
	/* noticed by whoever buys, and by a trim */
	timed = reserve((cleave_reservation){.bytes = SLOT, .count = 1, .idle_ms = 100});
	clv_sim_advance(sim, 110 * 1000000);
	get(1, 20 * CLV_MIB);
	ck_assert_uint_eq(books().reservation_bytes, 3 * CLV_MIB);
	reserve((cleave_reservation){.bytes = SLOT, .count = 1, .hard = 1, .idle_ms = 100});
	clv_sim_advance(sim, 110 * 1000000);
	ck_assert_uint_eq(books().reservation_bytes, 3 * CLV_MIB + SLOT);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(books().reservation_bytes, 0);
	close_all();
}
END_TEST

/* Reservations come and go without end; the books do not grow with them. */
START_TEST(many_phases)
{
	open_one(64 * CLV_MIB);
	uint64_t first = reserve((cleave_reservation){.bytes = 3 * CLV_MIB, .count = 1}), last = first;
	for (int i = 0; i < 1000; i++) {
		uint64_t id = reserve((cleave_reservation){.bytes = SLOT, .count = 2});
		ck_assert_uint_gt(id, last);
		last = id;
		ck_assert_int_eq(cleave_reserve_end(heap, 0, id), 0);
		ck_assert_uint_le(count_of(), 66);
	}
	check();
	ck_assert_int_eq(told(first).ended, CLEAVE_RESERVATION_LASTS);
	ck_assert_int_eq(told(last).ended, CLEAVE_RESERVATION_ENDED_BY_CALL);
	ck_assert_int_eq(cleave_reserve_end(heap, 0, first + 1), -ENOENT);
	close_all();
}
END_TEST

START_TEST(several_of_a_size)
{
	open_one(64 * CLV_MIB);
	uint64_t one = reserve((cleave_reservation){.bytes = SLOT, .count = 1, .after_n = 1});
	uint64_t two = reserve((cleave_reservation){.bytes = SLOT, .count = 1, .uses = 1});
	get(1, SLOT);
	ck_assert(told(one).skipped == 1 && told(two).served == 1); /* and ended by that */
	ck_assert_int_eq(told(two).ended, CLEAVE_RESERVATION_ENDED_BY_USES);
	get(1, SLOT);
	get(1, SLOT);
	ck_assert(told(one).served == 1 && told(one).missed == 1 && told(two).served == 1 && told(two).missed == 0);
	close_all();
}
END_TEST

/* The plan's count is of requests, whoever serves them: what was given up meanwhile does not keep the phase open. */
START_TEST(uses_are_counted_served_or_not)
{
	open_one(64 * CLV_MIB);
	uint64_t id = reserve((cleave_reservation){.bytes = SLOT, .count = 1, .after_n = 1, .uses = 3});
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(told(id).ended, CLEAVE_RESERVATION_LASTS);
		get(1, SLOT);
	}
	cleave_reservation_stats r = told(id);
	ck_assert(r.ended == CLEAVE_RESERVATION_ENDED_BY_USES && r.served == 1 && r.missed == 2 && r.held == 0);
	char text[512];
	cleave_reservation_print(&r, text, sizeof(text));
	ck_assert_ptr_null(strstr(text, "uses were expected"));
	close_all();
}
END_TEST

/* ---- settings ---- */

START_TEST(settings_make_them_at_work)
{
	open_with("reserve:40KiB*2+name=a,reserve:6MiB+hard+class,reserve:9MiB+device=1",
		  (struct clv_sim_config){.capacity = CLV_GIB, .devices = 3});
	/* a process with little on the device holds nothing back */
	give(get(1, 700), 1);
	give(get(1, CLV_MIB - 1024), 1);
	give(get(1, 41 * CLV_KIB), 1);
	ck_assert_uint_eq(count_of(), 0);
	get(1, 40 * CLV_KIB);
	ck_assert_uint_eq(count_of(), 2);
	ck_assert(told(2).served == 1 && told(2).held == 1 && told(1).held == 1);
	ck_assert(told(1).hard && told(1).by_class); /* hard ones first */
	ck_assert_str_eq(told(2).name, "a");
	/* each device for itself */
	cleave_ptr p;
	size_t n;
	cleave_reservation_stats s[4];
	ck_assert_int_eq(cleave_alloc(heap, 1, stream(9), CLV_MIB, &p), 0);
	ck_assert_int_eq(cleave_reserve_stats(heap, 1, s, 4, &n), 0);
	ck_assert_uint_eq(n, 3);
	ck_assert(s[2].bytes == 9 * CLV_MIB && s[2].held == 1);
	ck_assert_int_eq(cleave_reserve_stats(heap, 2, s, 4, &n), 0);
	ck_assert_uint_eq(n, 0);
	check();
	cleave_heap_close(heap);
	ck_assert_ptr_null(clv_sim_leaks(sim));
	sim->close(sim);
}
END_TEST

START_TEST(settings_that_cannot_be_had)
{
	open_with("reserve:20MiB*4+hard+name=w,reserve:2MiB*99", (struct clv_sim_config){.capacity = 64 * CLV_MIB});
	struct warned w = {0};
	ck_assert_int_eq(cleave_reserve_on_warning(heap, on_warning, &w), 0);
	get(1, CLV_MIB); /* is served, though all is reserved */
	ck_assert_uint_eq(w.count, 1);
	ck_assert_ptr_nonnull(strstr(w.text, "the hard reservation 'w' of 20.0 MiB got 3 of 4 slots"));
	ck_assert(told(1).made == 3 && told(2).made < 3 && told(2).refused == -ENOMEM);
	close_all();
	/* nor is there host memory to remember them by */
	open_with("reserve:20MiB+hard", (struct clv_sim_config){.capacity = 64 * CLV_MIB});
	ck_assert_int_eq(cleave_reserve_on_warning(heap, on_warning, &w), 0);
	get(1, 64 * CLV_KIB);
	cleave_ptr p;
	clv_meta_fail_after(1);
	cleave_alloc(heap, 0, stream(1), 2 * CLV_MIB, &p);
	clv_meta_fail_after(0);
	ck_assert_uint_eq(w.count, 2);
	ck_assert_ptr_nonnull(strstr(w.text, "cannot be made: host memory is out"));
	close_all();
}
END_TEST

/* ---- what must not cost anything ---- */

START_TEST(other_sizes_pay_nothing)
{
	open_one(CLV_GIB);
	reserve((cleave_reservation){.bytes = 48 * CLV_KIB, .count = 1});
	reserve((cleave_reservation){.bytes = 6 * CLV_MIB, .count = 1, .by_class = 1});
	struct clv_arena *a = heap->arenas[0];
	ck_assert(clv_reserve_concerns(a, 48 * CLV_KIB));
	ck_assert(clv_reserve_concerns(a, 48 * CLV_KIB - 511));
	ck_assert(clv_reserve_concerns(a, 6 * CLV_MIB));
	ck_assert(clv_reserve_concerns(a, 3 * CLV_MIB + 1));
	static const uint64_t none[] = {1, 512, 31 * CLV_KIB, 65 * CLV_KIB, CLV_MIB, 8 * CLV_MIB, CLV_GIB};
	for (size_t i = 0; i < CLV_ARRAY_LEN(none); i++)
		ck_assert(!clv_reserve_concerns(a, none[i]));
	ck_assert_int_eq(cleave_reserve_end(heap, 0, 0), 0);
	ck_assert(!clv_reserve_concerns(a, 48 * CLV_KIB));
	ck_assert(!clv_reserve_concerns(a, 6 * CLV_MIB));
	close_all();
}
END_TEST

/* ---- threads ---- */

#define THREADS 4
#define ROUNDS 400

struct worker {
	uint64_t id;
	uint64_t served; /* requests of the reserved size */
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct clv_rng rng = {w->id};
	cleave_ptr mine[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		unsigned k = (unsigned)clv_rng_below(&rng, CLV_ARRAY_LEN(mine));
		if (mine[k] && cleave_free(heap, mine[k], stream(w->id)))
			return NULL;
		mine[k] = 0;
		bool reserved = clv_rng_below(&rng, 2);
		if (cleave_alloc(heap, 0, stream(w->id), reserved ? SLOT : clv_rng_range(&rng, 1, CLV_MIB), &mine[k]))
			return NULL;
		w->served += reserved;
		if (clv_rng_below(&rng, 40) == 0) {
			uint64_t id;
			if (cleave_reserve(heap, 0, &(cleave_reservation){.bytes = 2 * CLV_MIB, .count = 1}, &id) ||
			    cleave_reserve_end(heap, 0, id))
				return NULL;
		}
		if (clv_rng_below(&rng, 60) == 0)
			cleave_heap_trim(heap, 0, 0, NULL);
	}
	for (unsigned k = 0; k < CLV_ARRAY_LEN(mine); k++)
		if (mine[k] && cleave_free(heap, mine[k], stream(w->id)))
			return NULL;
	return w;
}

START_TEST(threads)
{
	open_with(NULL, (struct clv_sim_config){.capacity = CLV_GIB, .event_lag_ns = 20000});
	uint64_t id = reserve((cleave_reservation){.bytes = SLOT, .count = 6, .hard = 1});
	pthread_t t[THREADS];
	struct worker w[THREADS];
	uint64_t requests = 0;
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.id = i + 1};
		ck_assert_int_eq(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		void *good;
		pthread_join(t[i], &good);
		ck_assert_ptr_nonnull(good);
		requests += w[i].served;
	}
	cleave_reservation_stats s = told(id);
	ck_assert_uint_eq(s.served + s.missed, requests);
	ck_assert_uint_gt(s.served, 0);
	ck_assert_uint_eq(s.held, 6);
	ck_assert_uint_eq(books().live_bytes, 0);
	close_all();
}
END_TEST

/* On a device that is full: whoever makes a hard reservation waits for streams, and others use the heap meanwhile, take
 * its slots, and end it. */
static void *work_in_need(void *arg)
{
	struct worker *w = arg;
	struct clv_rng rng = {w->id};
	for (int i = 0; i < ROUNDS; i++) {
		cleave_ptr p = 0, q = 0;
		uint64_t id = 0;
		const cleave_reservation r = {.bytes = 6 * CLV_MIB, .count = 3, .hard = clv_rng_below(&rng, 4) != 0};
		int made = clv_rng_below(&rng, 3) ? -ENOMEM : cleave_reserve(heap, 0, &r, &id);
		if (made != 0 && made != -ENOMEM)
			return NULL;
		cleave_alloc(heap, 0, stream(w->id), 6 * CLV_MIB, &p);
		cleave_alloc(heap, 0, stream(w->id), clv_rng_range(&rng, CLV_MIB, 12 * CLV_MIB), &q);
		w->served += p != 0;
		if (cleave_free(heap, p, stream(w->id)) || cleave_free(heap, q, stream(w->id)))
			return NULL;
		int ended = id ? cleave_reserve_end(heap, 0, clv_rng_below(&rng, 4) ? id : 0) : 0;
		if (ended != 0 && ended != -ENOENT)
			return NULL;
	}
	return w;
}

START_TEST(threads_in_need)
{
	open_with(NULL, (struct clv_sim_config){.capacity = 48 * CLV_MIB, .event_lag_ns = 200000});
	pthread_t t[THREADS];
	struct worker w[THREADS];
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.id = i + 1};
		ck_assert_int_eq(pthread_create(&t[i], NULL, work_in_need, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		void *good;
		pthread_join(t[i], &good);
		ck_assert_ptr_nonnull(good);
		ck_assert_uint_gt(w[i].served, 0);
	}
	ck_assert_uint_gt(books().host_waits, 0);
	ck_assert_int_eq(cleave_reserve_end(heap, 0, 0), 0);
	ck_assert_uint_eq(books().reservation_bytes, 0);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(books().held_bytes, 0);
	close_all();
}
END_TEST

CHECK_MAIN("reserve", slots_are_held_back, beyond_the_plan, through_one_spare, after_n_that_is_never_reached, classes,
	   of_one_stream, across_streams, not_for_captures, soft_yields_before_hard, failures_tell_of_too_small_plans,
	   trim_spares_hard_ones, what_cannot_be_had, senseless, idle_time, many_phases, several_of_a_size,
	   uses_are_counted_served_or_not,
	   settings_make_them_at_work, settings_that_cannot_be_had, other_sizes_pay_nothing,
	   threads, threads_in_need)
