/* SPDX-License-Identifier: MIT */
#include "../src/driver/sim.h"
#include "../src/heap/failure.h"
#include "../src/heap/heap_more.h"
#include "check_main.h"

#include <cleave/plan.h>

#include <errno.h>

static struct clv_driver *sim;
static cleave_heap *heap;

static const cleave_stream stream = {7, 7};

static void open_heap(uint64_t capacity)
{
	const struct clv_sim_config config = {.devices = 2, .capacity = capacity, .manual = true};
	char why[256] = "";
	sim = clv_sim_open(&config);
	ck_assert(sim);
	ck_assert_msg(!cleave_heap_open(&heap, sim, NULL, why, sizeof(why)), "%s", why);
}

static void close_heap(void)
{
	char why[512] = "";
	ck_assert_msg(!cleave_heap_check(heap, why, sizeof(why)), "%s", why);
	cleave_heap_close(heap);
	ck_assert_ptr_null(clv_sim_leaks(sim));
	cleave_driver_close(sim);
}

static cleave_ptr taken(size_t size, size_t align)
{
	cleave_ptr ptr;
	ck_assert_int_eq(clv_heap_alloc(heap, 0, stream, size, align, &ptr), 0);
	ck_assert_uint_ne(ptr, 0);
	ck_assert_uint_eq(ptr % align, 0);
	return ptr;
}

static struct clv_heap_usage usage(int device)
{
	struct clv_heap_usage u;
	clv_heap_usage(heap, device, &u);
	return u;
}

START_TEST(addresses_are_aligned_as_asked)
{
	open_heap(CLV_GIB);
	struct clv_rng rng = {1};
	cleave_ptr blocks[200];
	for (int i = 0; i < 200; i++) /* between others, that push it off */
		blocks[i] = taken(clv_rng_range(&rng, 1, 3 * CLV_MIB), (size_t)512 << clv_rng_below(&rng, 13));
	struct clv_heap_usage before = usage(0);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(cleave_free(heap, blocks[i], stream), 0);
	ck_assert_uint_ge(before.held, before.live);
	ck_assert_uint_eq(usage(0).live, 0);
	close_heap();
}
END_TEST

START_TEST(usage_is_that_of_the_statistics)
{
	open_heap(CLV_GIB);
	ck_assert_uint_eq(usage(1).held_peak, 0); /* never used */
	ck_assert_uint_eq(usage(-1).held, 0);
	ck_assert_uint_eq(usage(9).held, 0);
	cleave_ptr small = taken(700, 512), large = taken(5 * CLV_MIB + 1, 512);
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	struct clv_heap_usage u = usage(0);
	ck_assert_uint_eq(u.live, 1024 + 5 * CLV_MIB + 512);
	ck_assert_uint_eq(u.live, s.live_bytes);
	ck_assert_uint_eq(u.live_peak, s.live_peak_bytes);
	ck_assert_uint_eq(u.held, s.held_bytes);
	ck_assert_uint_eq(u.held_peak, s.held_peak_bytes);

	cleave_free(heap, large, stream);
	ck_assert_uint_eq(usage(0).live, 1024);
	ck_assert_uint_eq(usage(0).live_peak, u.live);
	clv_heap_reset_peaks(heap, 0, false, true);
	ck_assert_uint_eq(usage(0).live_peak, 1024);
	ck_assert_uint_eq(usage(0).held_peak, u.held_peak);
	cleave_free(heap, small, stream);
	cleave_heap_trim(heap, 0, 0, NULL);
	ck_assert_uint_eq(usage(0).held, 0);
	clv_heap_reset_peaks(heap, 0, true, false);
	ck_assert_uint_eq(usage(0).held_peak, 0);
	close_heap();
}
END_TEST

/* Frames as they are visited must be in order, without gaps, and cover the block. */
struct cover {
	uint64_t first, next;
	unsigned frames;
};

static void cover(void *arg, clv_handle handle, uint64_t addr, uint64_t bytes)
{
	struct cover *c = arg;
	ck_assert_uint_ne(handle, 0);
	if (c->frames++)
		ck_assert_uint_eq(addr, c->next);
	else
		c->first = addr;
	c->next = addr + bytes;
}

START_TEST(frames_cover_their_block)
{
	open_heap(CLV_GIB);
	const size_t sizes[] = {1, 600, 40000, 3 * CLV_MIB, 147 * CLV_MIB, 100 * CLV_MIB + 12345};
	for (unsigned i = 0; i < CLV_ARRAY_LEN(sizes); i++) {
		cleave_ptr ptr = taken(sizes[i], 512), start;
		size_t size;
		struct cover c = {0};
		ck_assert_int_eq(clv_heap_frames(heap, ptr + sizes[i] / 2, &start, &size, cover, &c), 0);
		ck_assert_uint_eq(start, ptr);
		ck_assert_uint_eq(size, sizes[i]);
		ck_assert_uint_le(c.first, ptr);
		ck_assert_uint_ge(c.next, ptr + sizes[i]);
	}
	cleave_ptr gone = taken(9 * CLV_MIB, 512);
	cleave_free(heap, gone, stream);
	struct cover none = {0};
	ck_assert_int_eq(clv_heap_frames(heap, gone, NULL, NULL, cover, &none), -EINVAL);
	ck_assert_int_eq(clv_heap_frames(heap, 12345, NULL, NULL, cover, &none), -EINVAL);
	ck_assert_uint_eq(none.frames, 0);
	close_heap();
}
END_TEST

START_TEST(access_is_given_to_every_frame)
{
	open_heap(CLV_GIB);
	ck_assert_int_eq(clv_heap_access(heap, 1), 0); /* nothing there */
	for (int i = 0; i < 9; i++)
		taken(30 * CLV_MIB, 512);
	cleave_heap_stats s;
	struct clv_call_counts before, after;
	cleave_heap_get_stats(heap, 0, &s);
	sim->counts(sim, &before);
	ck_assert_int_eq(clv_heap_access(heap, 0), 0);
	sim->counts(sim, &after);
	ck_assert_uint_gt(s.frames, 1);
	ck_assert_uint_eq(after.calls[CLV_CALL_set_access] - before.calls[CLV_CALL_set_access], s.frames);
	close_heap();
}
END_TEST

START_TEST(a_trim_that_does_not_wait_leaves_what_is_pending)
{
	open_heap(CLV_GIB);
	cleave_ptr ptr = taken(64 * CLV_MIB, 512), other = taken(64 * CLV_MIB, 512);
	uint64_t held = usage(0).held, released;
	clv_sim_launch(sim, stream, 0, NULL, NULL);
	cleave_free(heap, ptr, stream);
	ck_assert_int_eq(clv_heap_trim(heap, 0, 0, false, &released), 0);
	ck_assert_uint_eq(released, 0);
	ck_assert_uint_eq(usage(0).held, held);
	clv_sim_complete(sim, stream);
	ck_assert_int_eq(clv_heap_trim(heap, 0, 0, false, &released), 0);
	ck_assert_uint_gt(released, 0);
	ck_assert_uint_eq(usage(0).held, held - released);
	clv_sim_launch(sim, stream, 0, NULL, NULL);
	cleave_free(heap, other, stream);
	ck_assert_int_eq(clv_heap_trim(heap, 0, 0, true, &released), 0);
	ck_assert_uint_eq(usage(0).held, 0);
	ck_assert_int_eq(clv_heap_trim(heap, 1, 0, true, &released), -EINVAL); /* never used */
	close_heap();
}
END_TEST

/* Slots that are held back are not stranded, and what a replay asks for all the time says what the statistics say. */
START_TEST(stranded_without_what_is_reserved)
{
	const cleave_reservation reservation = {.bytes = 8 * CLV_MIB, .count = 2};
	cleave_heap_stats s;
	cleave_ptr p;
	open_heap(64 * CLV_MIB);
	ck_assert_int_eq(cleave_reserve(heap, 0, &reservation, NULL), 0);
	ck_assert_uint_eq(clv_heap_stranded(heap, 0), 0);
	ck_assert_int_eq(cleave_alloc(heap, 0, stream, 8 * CLV_MIB, &p), 0);
	ck_assert_uint_eq(clv_heap_stranded(heap, 0), 0);
	ck_assert_int_eq(cleave_free(heap, p, stream), 0);
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	ck_assert_uint_eq(clv_heap_stranded(heap, 0), s.stranded_bytes);
	close_heap();
}
END_TEST

CHECK_MAIN("heap_more", addresses_are_aligned_as_asked, usage_is_that_of_the_statistics, frames_cover_their_block,
	   access_is_given_to_every_frame, a_trim_that_does_not_wait_leaves_what_is_pending,
	   stranded_without_what_is_reserved)
