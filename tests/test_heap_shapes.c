/* SPDX-License-Identifier: MIT
 *
 * Shapes of requests that are known from public bug reports of caching allocators, where they reserve a multiple of what is
 * live or fail on a device that has room. Sizes are in KiB where half a MiB matters.
 */
#include "../src/driver/sim.h"
#include "check_main.h"

#include <inttypes.h>

static struct clv_driver *sim;
static cleave_heap *heap;
static uint64_t live_peak, roomy_extra;
static bool roomy;
static const char *settings;

static cleave_stream stream(uint64_t id)
{
	return (cleave_stream){id, 0x100 + id};
}

/* Twice: on a device that has what is live at the peak and 1 % + 4 MiB (or `capacity_kib`, where the report names one), and on
 * one that has plenty, where the heap may hold the little more that spares it calls of the driver. */
static void open_heap(uint64_t peak_kib, uint64_t capacity_kib)
{
	uint64_t peak = peak_kib * CLV_KIB, capacity = capacity_kib * CLV_KIB;
	if (!capacity)
		capacity = peak + peak / 100 + 4 * CLV_MIB;
	roomy_extra = peak * 7 / 100 + 16 * CLV_MIB;
	sim = clv_sim_open(&(struct clv_sim_config){.capacity = roomy ? 200 * CLV_GIB : capacity, .event_lag_ns = 1000000});
	ck_assert_ptr_nonnull(sim);
	ck_assert_int_eq(cleave_heap_open(&heap, sim, settings, NULL, 0), 0);
	live_peak = 0;
}

static void note_peak(void)
{
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	live_peak = clv_max_u64(live_peak, s.live_bytes);
	ck_assert_uint_eq(s.live_peak_bytes, live_peak);
}

static void close_heap(uint64_t peak_kib)
{
	char why[512] = "";
	int answer = cleave_heap_check(heap, why, sizeof(why));
	ck_assert_msg(answer == 0, "%s", why);
	ck_assert_uint_eq(live_peak, peak_kib * CLV_KIB);
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	ck_assert_msg(!roomy || s.held_peak_bytes <= live_peak + roomy_extra, "held %.1f MiB for %.1f live, %.1f stranded at the end",
		      (double)s.held_peak_bytes / CLV_MIB, (double)live_peak / CLV_MIB, (double)s.stranded_bytes / CLV_MIB);
	cleave_heap_close(heap);
	ck_assert_ptr_null(clv_sim_leaks(sim));
	sim->close(sim);
}

static cleave_ptr get_on(uint64_t id, uint64_t kib)
{
	cleave_ptr p;
	int answer = cleave_alloc(heap, 0, stream(id), kib * CLV_KIB, &p);
	if (answer) {
		cleave_failure f;
		char text[1024] = "";
		if (cleave_heap_last_failure(heap, 0, &f) == 0)
			cleave_failure_print(&f, text, sizeof(text));
		ck_abort_msg("%d: %s", answer, text);
	}
	clv_sim_advance(sim, 100000);
	note_peak();
	return p;
}

static cleave_ptr get(uint64_t kib)
{
	return get_on(1, kib);
}

static void give(cleave_ptr p)
{
	ck_assert_int_eq(cleave_free(heap, p, stream(1)), 0);
	note_peak();
}

/* expandable_segments with max_split_size_mb:128: 14,060 MiB reserved for 266. */
static void kept_pieces_between_temporaries(void)
{
	uint64_t peak = (64 << 10) + 101 * (2 << 10) + (91 << 10) + (91 << 9);
	open_heap(peak, 0);
	get(64 << 10);
	for (int round = 0; round < 101; round++) {
		cleave_ptr large = get(91 << 10), half = get(91 << 9);
		get(2 << 10);
		give(large);
		give(half);
	}
	close_heap(peak);
}

/* Two sizes that do not fit each other: 19,080 MiB reserved for 9,720, with 260 stranded by each piece. */
static void sizes_that_do_not_fit_each_other(void)
{
	uint64_t peak = (35 * 270 + 530) << 10;
	open_heap(peak, 0);
	for (int round = 0; round < 36; round++) {
		give(get(530 << 10));
		get(270 << 10);
	}
	close_heap(peak);
}

/* Small pieces that are free do not make a large one: 256 MiB reserved for 128. */
static void small_ones_make_a_large_one(void)
{
	uint64_t peak = 128 << 10;
	open_heap(peak, 0);
	cleave_ptr p[8];
	for (int i = 0; i < 8; i++)
		p[i] = get(16 << 10);
	for (int i = 0; i < 8; i++)
		give(p[i]);
	for (int i = 0; i < 4; i++)
		get(32 << 10);
	close_heap(peak);
}

/* 30 MiB are live and 60 are free but pending on another stream, in one segment of 90: asking for 60 fails, and the very
 * next attempt succeeds. */
static void pending_memory_of_another_stream(void)
{
	if (roomy)
		return; /* while the device gives more, no stream is made to wait */
	open_heap(90 << 10, 100 << 10);
	cleave_ptr pending = get(60 << 10);
	get(30 << 10);
	ck_assert_int_eq(cleave_free(heap, pending, stream(2)), 0); /* as a recorded tensor: on another stream */
	get(60 << 10);
	close_heap(90 << 10);
}

/* A pool of its own keeps 60 GiB that are free, and 70 GiB do not fit beside them. */
static void what_a_pool_has_freed(void)
{
	uint64_t peak = 70 << 20;
	for (uint64_t id = 1; id < (roomy ? 2 : 3); id++) { /* freed on our own stream, and on another */
		open_heap(peak, 0);
		cleave_ptr p[60];
		for (int i = 0; i < 60; i++)
			p[i] = get(1 << 20);
		for (int i = 0; i < 60; i++)
			give(p[i]);
		get_on(id, 70 << 20);
		close_heap(peak);
	}
}

/* max_split_size_mb equal to the segment of a temporary: each takes a fresh segment. 20 MiB for one of 1 to 10; 64 for 64. */
static void as_large_as_the_largest_split(void)
{
	uint64_t peak = (330 << 10) + (64 << 10) + 39 * 512;
	open_heap(peak, 0);
	for (int i = 0; i < 60; i++) {
		give(get((uint64_t)(1 + i % 10) << 10));
		get((uint64_t)(1 + i % 10) << 10);
	}
	for (int round = 0; round < 40; round++) {
		give(get(64 << 10));
		get(512);
	}
	close_heap(peak);
}

/* The same with many at once, in another order each time. */
static void another_order_each_time(void)
{
	uint64_t peak = 220 << 10;
	if (!roomy && !settings)
		return; /* 2 MiB frames are for that */
	open_heap(peak, 0);
	cleave_ptr p[40];
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 40; i++)
			p[i] = get((uint64_t)(1 + (i + round) % 10) << 10);
		for (int i = 0; i < 40; i++)
			give(p[i]);
		give(get(64 << 10));
	}
	close_heap(peak);
}

/* Buffers of 147 and 73.5 MiB on a device with 8 MiB more than they need: rounded to 2 MiB each they do not fit. */
static void buffers_that_are_not_of_pages(void)
{
	uint64_t peak = 66 * ((147 << 10) + (147 << 9) + (25 << 10));
	for (int order = 0; order < 3; order++) {
		open_heap(peak, peak + (8 << 10));
		if (order == 0) {
			for (int i = 0; i < 66; i++) {
				get(147 << 10);
				get(147 << 9);
				get(25 << 10);
			}
		} else if (order == 1) {
			static const uint64_t kib[] = {25 << 10, 147 << 9, 147 << 10};
			for (int k = 0; k < 3; k++)
				for (int i = 0; i < 66; i++)
					get(kib[k]);
		} else { /* the small ones come first, go and come again */
			cleave_ptr p[66];
			for (int i = 0; i < 66; i++) {
				p[i] = get(25 << 10);
				get(147 << 9);
			}
			for (int i = 0; i < 66; i++)
				give(p[i]);
			for (int i = 0; i < 66; i++)
				get(147 << 10);
			for (int i = 0; i < 66; i++)
				get(25 << 10);
		}
		close_heap(peak);
	}
}

static void (*const shapes[])(void) = {
	kept_pieces_between_temporaries,
	sizes_that_do_not_fit_each_other,
	small_ones_make_a_large_one,
	pending_memory_of_another_stream,
	what_a_pool_has_freed,
	as_large_as_the_largest_split,
	another_order_each_time,
	buffers_that_are_not_of_pages,
};

static void all_shapes(bool with_room, const char *with)
{
	roomy = with_room;
	settings = with;
	for (size_t i = 0; i < CLV_ARRAY_LEN(shapes); i++)
		shapes[i]();
}

START_TEST(fit)
{
	all_shapes(false, NULL);
}
END_TEST

START_TEST(fit_in_small_frames)
{
	all_shapes(false, "growth:tight");
}
END_TEST

START_TEST(hold_little_more)
{
	all_shapes(true, NULL);
}
END_TEST

CHECK_MAIN("heap_shapes", fit, fit_in_small_frames, hold_little_more)
