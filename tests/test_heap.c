/* SPDX-License-Identifier: MIT
 *
 * What include/cleave/heap.h promises.
 */
#include "../src/driver/fault.h"
#include "../src/driver/sim.h"
#include "check_main.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static struct clv_driver *sim;
static cleave_heap *heap;

static cleave_stream stream(uint64_t id)
{
	return id ? (cleave_stream){id, 0x100 + id} : CLEAVE_STREAM_ANY;
}

static void open_on(struct clv_driver *driver, const char *settings)
{
	char why[256] = "";
	int answer = cleave_heap_open(&heap, driver, settings, why, sizeof(why));
	ck_assert_msg(answer == 0, "%s", why);
}

static void open_heap(uint64_t capacity, const char *settings)
{
	sim = clv_sim_open(&(struct clv_sim_config){.capacity = capacity, .manual = true, .devices = 3});
	ck_assert_ptr_nonnull(sim);
	open_on(sim, settings);
}

static cleave_heap_stats stats_of(int device)
{
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, device, &s), 0);
	ck_assert_uint_eq(s.held_bytes, s.live_bytes + s.rounding_bytes + s.free_bytes);
	ck_assert_uint_eq(s.held_bytes, clv_sim_used(sim, device));
	return s;
}

static void check_heap(void)
{
	char why[512] = "";
	int answer = cleave_heap_check(heap, why, sizeof(why));
	ck_assert_msg(answer == 0, "%s", why);
}

static void close_heap(void)
{
	check_heap();
	cleave_heap_close(heap);
	const char *leak = clv_sim_leaks(sim);
	ck_assert_msg(!leak, "leaked: %s", leak);
	sim->close(sim);
}

static cleave_ptr get_on(int device, uint64_t id, size_t size)
{
	cleave_ptr p = 0;
	int answer = cleave_alloc(heap, device, stream(id), size, &p);
	ck_assert_msg(answer == 0 && p && p % 512 == 0, "a request of %zu bytes: %d", size, answer);
	return p;
}

static cleave_ptr get(uint64_t id, size_t size)
{
	return get_on(0, id, size);
}

static void give(cleave_ptr p, uint64_t id)
{
	ck_assert_int_eq(cleave_free(heap, p, stream(id)), 0);
}

static void refused(uint64_t id, size_t size, int with)
{
	cleave_ptr p = 1;
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(id), size, &p), with);
	ck_assert_uint_eq(p, 0);
	check_heap();
}

static cleave_failure last(void)
{
	cleave_failure f;
	ck_assert_int_eq(cleave_heap_last_failure(heap, 0, &f), 0);
	return f;
}

START_TEST(arguments_that_make_no_sense)
{
	open_heap(64 * CLV_MIB, NULL);
	cleave_ptr p = 1;
	cleave_heap *other;
	cleave_heap_stats s;
	cleave_failure f;
	uint64_t n;
	ck_assert_int_eq(cleave_heap_open(NULL, sim, NULL, NULL, 0), -EINVAL);
	ck_assert_int_eq(cleave_heap_open(&other, NULL, NULL, NULL, 0), -EINVAL);
	ck_assert_int_eq(cleave_alloc(NULL, 0, stream(1), 512, &p), -EINVAL);
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 512, NULL), -EINVAL);
	static const int devices[] = {-1, 3, 64, INT32_MAX, INT32_MIN};
	for (size_t i = 0; i < CLV_ARRAY_LEN(devices); i++) {
		p = 1;
		ck_assert_int_eq(cleave_alloc(heap, devices[i], stream(1), 512, &p), -EINVAL);
		ck_assert_uint_eq(p, 0);
		ck_assert_int_eq(cleave_heap_get_stats(heap, devices[i], &s), -EINVAL);
		ck_assert_int_eq(cleave_heap_last_failure(heap, devices[i], &f), -EINVAL);
		ck_assert_int_eq(cleave_heap_set_limit(heap, devices[i], 1), -EINVAL);
		ck_assert_int_eq(cleave_heap_set_headroom(heap, devices[i], 1), -EINVAL);
		ck_assert_int_eq(cleave_heap_trim(heap, devices[i], 0, &n), -EINVAL);
		ck_assert_int_eq(cleave_stream_destroyed(heap, devices[i], stream(1)), -EINVAL);
	}
	ck_assert_int_eq(cleave_free(NULL, 512, stream(1)), -EINVAL);
	ck_assert_int_eq(cleave_block_info(NULL, 512, NULL, NULL, NULL), -EINVAL);
	ck_assert_int_eq(cleave_stream_destroyed(NULL, 0, stream(1)), -EINVAL);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(0)), -EINVAL);
	ck_assert_int_eq(cleave_heap_set_limit(NULL, 0, 1), -EINVAL);
	ck_assert_int_eq(cleave_heap_set_headroom(NULL, 0, 1), -EINVAL);
	ck_assert_int_eq(cleave_heap_trim(NULL, 0, 0, NULL), -EINVAL);
	ck_assert_int_eq(cleave_heap_get_stats(NULL, 0, &s), -EINVAL);
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, NULL), -EINVAL);
	ck_assert_int_eq(cleave_heap_last_failure(NULL, 0, &f), -EINVAL);
	ck_assert_int_eq(cleave_heap_last_failure(heap, 0, NULL), -EINVAL);
	ck_assert_int_eq(cleave_heap_last_failure(heap, 0, &f), -ENOENT);
	ck_assert_int_eq(cleave_heap_check(NULL, NULL, 0), -EINVAL);
	cleave_heap_close(NULL);
	close_heap();
}
END_TEST

START_TEST(settings_that_make_no_sense)
{
	sim = clv_sim_open(NULL);
	char why[64] = "", little[5] = "";
	heap = (cleave_heap *)(void *)why;
	ck_assert_int_eq(cleave_heap_open(&heap, sim, "growth:slow", why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "slow"));
	ck_assert_ptr_null(heap);
	ck_assert_int_eq(cleave_heap_open(&heap, sim, "growth:slow", little, sizeof(little)), -EINVAL);
	ck_assert_uint_eq(strlen(little), sizeof(little) - 1); /* cut, and ended */
	ck_assert_int_eq(cleave_heap_open(&heap, sim, "what:1", NULL, 0), -EINVAL);
	open_on(sim, "");
	close_heap();
}
END_TEST

static enum clv_result no_vmm(struct clv_driver *self, int device, struct clv_device_info *out)
{
	*out = (struct clv_device_info){.total = CLV_GIB, .granularity = 2 * CLV_MIB, .vmm = device != 1};
	if (device == 2)
		out->granularity = 64 * CLV_MIB;
	return CLV_OK;
}

START_TEST(devices_that_cannot)
{
	sim = clv_sim_open(&(struct clv_sim_config){.devices = 3});
	sim->device_info = no_vmm;
	open_on(sim, NULL);
	cleave_ptr p = 1;
	ck_assert_int_eq(cleave_alloc(heap, 1, stream(1), 512, &p), -ENODEV);
	ck_assert_uint_eq(p, 0);
	ck_assert_int_eq(cleave_alloc(heap, 2, stream(1), 512, &p), -ENODEV);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 1, 5), -ENODEV);
	get(1, 512);
	close_heap();
}
END_TEST

START_TEST(nothing_asked_nothing_freed)
{
	open_heap(64 * CLV_MIB, NULL);
	cleave_ptr p = 1;
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 0, &p), 0);
	ck_assert_uint_eq(p, 0);
	ck_assert_int_eq(cleave_free(heap, 0, stream(1)), 0);
	cleave_heap_stats s = stats_of(0);
	ck_assert_uint_eq(s.allocs + s.frees + s.held_bytes, 0);
	close_heap();
}
END_TEST

START_TEST(wrong_pointers)
{
	open_heap(64 * CLV_MIB, NULL);
	cleave_ptr p = get(1, 3 * CLV_MIB), q = get(1, 40000);
	uint64_t wrong[] = {1, 512, p + 512, p + 1, p - 512, p + 3 * CLV_MIB, q + 512, p + CLV_GIB, UINT64_MAX, UINT64_MAX - 511,
			    (uint64_t)1 << 63};
	for (size_t i = 0; i < CLV_ARRAY_LEN(wrong); i++)
		ck_assert_msg(wrong[i] == q || cleave_free(heap, wrong[i], stream(1)) == -EINVAL, "%#" PRIx64, wrong[i]);
	give(p, 1);
	ck_assert_int_eq(cleave_free(heap, p, stream(1)), -EINVAL);
	ck_assert_int_eq(cleave_free(heap, p, stream(0)), -EINVAL);
	give(q, 0);
	ck_assert_int_eq(cleave_free(heap, q, stream(1)), -EINVAL);
	cleave_heap_stats s = stats_of(0);
	ck_assert_uint_eq(s.frees, 2);
	ck_assert_uint_eq(s.live_bytes, 0);
	close_heap();
}
END_TEST

START_TEST(blocks_by_pointer)
{
	open_heap(256 * CLV_MIB, NULL);
	cleave_ptr p[40], start;
	size_t size[40], found;
	for (int i = 0; i < 40; i++) {
		size[i] = (size_t)1 << (i / 2 + 5);
		size[i] += i % 2 ? 77 : 0;
		p[i] = get_on(i % 3, 1, size[i]);
	}
	for (int i = 0; i < 40; i++) {
		uint64_t end = p[i] + (size[i] + 511) / 512 * 512;
		uint64_t inside[] = {p[i], p[i] + 1, p[i] + size[i] / 2, p[i] + size[i] - 1, end - 1};
		for (size_t k = 0; k < CLV_ARRAY_LEN(inside); k++) {
			int device = -1;
			ck_assert_int_eq(cleave_block_info(heap, inside[k], &start, &found, &device), 0);
			ck_assert_uint_eq(start, p[i]);
			ck_assert_uint_eq(found, size[i]);
			ck_assert_int_eq(device, i % 3);
		}
		ck_assert_int_eq(cleave_block_info(heap, p[i], NULL, NULL, NULL), 0);
		if (cleave_block_info(heap, end, &start, NULL, NULL) == 0)
			ck_assert_uint_eq(start, end); /* the next block */
	}
	for (int i = 0; i < 40; i++) {
		give(p[i], 1);
		ck_assert_int_eq(cleave_block_info(heap, p[i], &start, &found, NULL), -EINVAL);
	}
	ck_assert_int_eq(cleave_block_info(heap, 0, NULL, NULL, NULL), -EINVAL);
	close_heap();
}
END_TEST

START_TEST(sizes_at_the_end_of_numbers)
{
	open_heap(64 * CLV_MIB, NULL);
	static const uint64_t sizes[] = {SIZE_MAX, SIZE_MAX - 511, SIZE_MAX - 4096, (uint64_t)1 << 63, ((uint64_t)1 << 63) + 1,
					 ((uint64_t)1 << 48) + 1, (uint64_t)1 << 48, (uint64_t)1 << 47, (uint64_t)1 << 41, 64 * CLV_MIB + 1};
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++) {
		refused(1, sizes[i], -ENOMEM);
		cleave_failure f = last();
		ck_assert_uint_eq(f.request_bytes, sizes[i]);
		ck_assert_uint_eq(f.number, i + 1);
		ck_assert_uint_gt(f.missing_bytes, 0);
		ck_assert_uint_le(f.missing_bytes, sizes[i]);
		char text[1024];
		ck_assert_int_gt(cleave_failure_print(&f, text, sizeof(text)), 0);
	}
	get(1, 64 * CLV_MIB);
	close_heap();
}
END_TEST

START_TEST(devices_are_apart)
{
	open_heap(32 * CLV_MIB, NULL);
	cleave_ptr p[3], q;
	for (int d = 0; d < 3; d++)
		p[d] = get_on(d, 1, 32 * CLV_MIB);
	for (int d = 0; d < 3; d++) {
		ck_assert_int_eq(cleave_alloc(heap, d, stream(1), 512, &q), -ENOMEM);
		cleave_heap_stats s = stats_of(d);
		ck_assert_uint_eq(s.live_bytes, 32 * CLV_MIB);
		ck_assert_uint_eq(s.failures, 1);
	}
	give(p[1], 1);
	ck_assert_uint_eq(stats_of(1).live_bytes, 0);
	ck_assert_uint_eq(stats_of(0).live_bytes, 32 * CLV_MIB);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 1, 8 * CLV_MIB), 0);
	ck_assert_uint_le(clv_sim_used(sim, 1), 8 * CLV_MIB);
	ck_assert_uint_eq(clv_sim_used(sim, 0), 32 * CLV_MIB);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 2, stream(1)), 0);
	give(p[0], 1);
	give(p[2], 0);
	close_heap();
}
END_TEST

START_TEST(statistics)
{
	open_heap(256 * CLV_MIB, NULL);
	cleave_heap_stats s = stats_of(0);
	ck_assert_uint_eq(s.frames + s.live_blocks + s.free_blocks + s.allocs + s.failures + s.held_peak_bytes, 0);
	ck_assert_uint_gt(s.metadata_bytes, 0);
	cleave_ptr p = get(1, 10 * CLV_MIB), q = get(1, 100), r = get(1, 4097);
	s = stats_of(0);
	ck_assert_uint_eq(s.live_bytes, 10 * CLV_MIB + 512 + 4608);
	ck_assert_uint_eq(s.rounding_bytes, 5120 - 4608);
	ck_assert_uint_eq(s.live_blocks, 3);
	ck_assert_uint_eq(s.allocs, 3);
	ck_assert_uint_eq(s.frames, s.frames_created - s.frames_released);
	ck_assert_uint_le(s.stranded_bytes, s.free_bytes);
	ck_assert_uint_eq(s.pending_bytes, 0);
	give(p, 1);
	give(q, 1);
	give(r, 1);
	s = stats_of(0);
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_eq(s.rounding_bytes, 0);
	ck_assert_uint_eq(s.live_peak_bytes, 10 * CLV_MIB + 512 + 4608);
	ck_assert_uint_eq(s.frees, 3);
	ck_assert_uint_ge(s.largest_hole_bytes, 10 * CLV_MIB);
	ck_assert_uint_ge(s.pending_bytes, 10 * CLV_MIB);
	uint64_t released = 0, held = s.held_bytes;
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, &released), 0);
	ck_assert_uint_eq(released, held);
	s = stats_of(0);
	ck_assert_uint_eq(s.held_bytes, 0);
	ck_assert_uint_eq(s.free_bytes, 0);
	ck_assert_uint_eq(s.frames, 0);
	ck_assert_uint_eq(s.free_blocks, 0);
	ck_assert_uint_eq(s.held_peak_bytes, held);
	close_heap();
}
END_TEST

START_TEST(limits)
{
	open_heap(256 * CLV_MIB, "limit:32MiB");
	ck_assert_uint_eq(stats_of(0).limit_bytes, 32 * CLV_MIB);
	cleave_ptr p = get(1, 20 * CLV_MIB);
	refused(1, 13 * CLV_MIB, -ENOMEM);
	cleave_failure f = last();
	ck_assert_uint_eq(f.limit_bytes, 32 * CLV_MIB);
	ck_assert_uint_eq(f.missing_bytes, CLV_MIB);
	ck_assert_uint_eq(f.live_bytes, 20 * CLV_MIB);
	ck_assert_uint_eq(f.device_free_bytes, 256 * CLV_MIB - f.held_bytes);
	cleave_ptr q = get(1, 12 * CLV_MIB);
	ck_assert_uint_eq(clv_sim_used(sim, 0), 32 * CLV_MIB);
	/* raised, and lowered under what is live: what is free goes back, no more comes */
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 64 * CLV_MIB), 0);
	cleave_ptr r = get(1, 32 * CLV_MIB);
	give(q, 1);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 10 * CLV_MIB), 0);
	ck_assert_uint_le(clv_sim_used(sim, 0), 52 * CLV_MIB + 16 * CLV_MIB);
	ck_assert_uint_ge(clv_sim_used(sim, 0), 52 * CLV_MIB);
	refused(1, 32 * CLV_MIB, -ENOMEM);
	give(p, 1);
	give(r, 1);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 10 * CLV_MIB), 0);
	ck_assert_uint_le(clv_sim_used(sim, 0), 10 * CLV_MIB);
	refused(1, 10 * CLV_MIB + 1, -ENOMEM);
	give(get(1, 10 * CLV_MIB), 1);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 0), 0);
	give(get(1, 200 * CLV_MIB), 1);
	close_heap();
}
END_TEST

/* Under a limit below what is held, a request that fits a hole is served: nothing is bought for it. */
START_TEST(a_hole_under_a_low_limit)
{
	open_heap(64 * CLV_MIB, NULL);
	cleave_ptr p[6];
	for (int i = 0; i < 6; i++)
		p[i] = get(1, 5 * CLV_MIB + 512);
	give(p[1], 1);
	give(p[3], 1);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 4 * CLV_MIB), 0); /* waits: what is left of the holes is complete */
	cleave_heap_stats before = stats_of(0);
	ck_assert_uint_gt(before.held_bytes, 4 * CLV_MIB);
	ck_assert_uint_gt(before.largest_hole_bytes, 100 * CLV_KIB);
	give(get(2, before.largest_hole_bytes), 2);
	cleave_heap_stats after = stats_of(0);
	ck_assert_uint_eq(after.held_bytes, before.held_bytes);
	ck_assert_uint_eq(after.host_waits, before.host_waits);
	ck_assert_uint_eq(after.frames_moved, before.frames_moved);
	close_heap();
}
END_TEST

START_TEST(headroom)
{
	open_heap(64 * CLV_MIB, NULL);
	ck_assert_int_eq(cleave_heap_set_headroom(heap, 0, 20 * CLV_MIB), 0);
	ck_assert_uint_eq(stats_of(0).headroom_bytes, 20 * CLV_MIB);
	cleave_ptr p = get(1, 44 * CLV_MIB);
	refused(1, 2 * CLV_MIB, -ENOMEM);
	ck_assert_uint_eq(last().limit_bytes, 44 * CLV_MIB);
	/* others take it: the heap neither grows nor shrinks for that */
	clv_sim_set_foreign(sim, 0, 15 * CLV_MIB);
	refused(1, 2 * CLV_MIB, -ENOMEM);
	ck_assert_uint_eq(last().device_free_bytes, 5 * CLV_MIB);
	ck_assert_uint_eq(last().limit_bytes, 44 * CLV_MIB);
	give(p, 1);
	p = get(1, 44 * CLV_MIB); /* what it holds it may use */
	clv_sim_set_foreign(sim, 0, 0);
	ck_assert_int_eq(cleave_heap_set_headroom(heap, 0, 17 * CLV_MIB), 0); /* not of pages */
	get(1, 2 * CLV_MIB);
	refused(1, 512 * CLV_KIB, -ENOMEM);
	ck_assert_int_eq(cleave_heap_set_headroom(heap, 0, 0), 0);
	get(1, 18 * CLV_MIB);
	refused(1, 1, -ENOMEM);
	close_heap();
}
END_TEST

/* Others take memory after the heap has asked what there is: the headroom is kept all the same. */
START_TEST(headroom_against_others)
{
	open_heap(64 * CLV_MIB, NULL);
	ck_assert_int_eq(cleave_heap_set_headroom(heap, 0, 20 * CLV_MIB), 0);
	get(1, 2 * CLV_MIB); /* it knows of 62 MiB now */
	clv_sim_set_foreign(sim, 0, 30 * CLV_MIB);
	refused(1, 14 * CLV_MIB, -ENOMEM);
	get(1, 12 * CLV_MIB);
	ck_assert_uint_le(clv_sim_used(sim, 0), 14 * CLV_MIB);
	close_heap();
}
END_TEST

/* Others have taken of the headroom already: the heap does not grow, but what it holds it may use, also by giving frames back
 * and buying others for them. */
START_TEST(headroom_that_is_gone)
{
	open_heap(512 * CLV_MIB, "growth:tight");
	cleave_ptr p[9];
	for (int i = 0; i < 9; i++)
		p[i] = get(1, 23 * CLV_MIB - 512);
	for (int i = 0; i < 9; i += 2)
		give(p[i], 1);
	uint64_t held = clv_sim_used(sim, 0);
	ck_assert_int_eq(cleave_heap_set_headroom(heap, 0, 200 * CLV_MIB), 0);
	clv_sim_set_foreign(sim, 0, 200 * CLV_MIB);
	clv_sim_complete(sim, stream(1));
	cleave_ptr q = get(2, 70 * CLV_MIB);
	ck_assert_uint_le(clv_sim_used(sim, 0), held);
	ck_assert_uint_gt(stats_of(0).frames_released, 0);
	give(q, 2);
	refused(2, 130 * CLV_MIB, -ENOMEM);
	close_heap();
}
END_TEST

/* Other users of the device take memory and give it back. */
START_TEST(others_on_the_device)
{
	open_heap(64 * CLV_MIB, NULL);
	cleave_ptr p = get(1, 10 * CLV_MIB), q;
	clv_sim_set_foreign(sim, 0, 64 * CLV_MIB); /* all that is left */
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 30 * CLV_MIB, &q), -ENOMEM);
	cleave_failure f = last();
	ck_assert_uint_eq(f.device_free_bytes, 0);
	char text[1024];
	cleave_failure_print(&f, text, sizeof(text));
	ck_assert_msg(strstr(text, "Others hold"), "%s", text);
	clv_sim_set_foreign(sim, 0, 0);
	q = get(1, 30 * CLV_MIB); /* asked anew */
	give(p, 1);
	give(q, 1);
	clv_sim_set_foreign(sim, 0, 30 * CLV_MIB);
	uint64_t most = 64 * CLV_MIB - clv_min_u64(30 * CLV_MIB, 64 * CLV_MIB - clv_sim_used(sim, 0));
	get(1, most); /* frees and holes together, at the edge */
	ck_assert_uint_eq(clv_sim_used(sim, 0), most);
	close_heap();
}
END_TEST

/* The driver tells of memory that it then does not give. */
static uint64_t lie;
static enum clv_result (*true_info)(struct clv_driver *, int, uint64_t *, uint64_t *);

static enum clv_result lying_info(struct clv_driver *self, int device, uint64_t *free_bytes, uint64_t *total)
{
	enum clv_result r = true_info(self, device, free_bytes, total);
	*free_bytes += lie;
	return r;
}

START_TEST(less_than_the_driver_said)
{
	for (int tight = 0; tight < 2; tight++) {
		sim = clv_sim_open(&(struct clv_sim_config){.capacity = 32 * CLV_MIB, .manual = true});
		true_info = sim->mem_get_info;
		sim->mem_get_info = lying_info;
		lie = 100 * CLV_MIB;
		open_on(sim, tight ? "growth:tight" : NULL);
		cleave_ptr p[8];
		for (int i = 0; i < 8; i++)
			p[i] = get(1, 4 * CLV_MIB);
		for (int i = 0; i < 8; i += 2)
			give(p[i], 1);
		get(1, 16 * CLV_MIB); /* of what is held, since nothing more comes */
		refused(1, 2 * CLV_MIB, -ENOMEM);
		ck_assert_uint_le(clv_sim_used(sim, 0), 32 * CLV_MIB);
		/* and of what another stream has freed */
		for (int i = 1; i < 8; i += 2)
			give(p[i], 2);
		get(3, 16 * CLV_MIB);
		close_heap();
	}
}
END_TEST

START_TEST(trims)
{
	open_heap(256 * CLV_MIB, "growth:tight");
	cleave_ptr p[10];
	for (int i = 0; i < 10; i++)
		p[i] = get(1, 10 * CLV_MIB);
	for (int i = 0; i < 10; i += 2)
		give(p[i], 1);
	uint64_t released = 1;
	ck_assert_int_eq(cleave_heap_trim(heap, 0, CLV_GIB, &released), 0);
	ck_assert_uint_eq(released, 0);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 80 * CLV_MIB, &released), 0);
	ck_assert_uint_eq(released, 20 * CLV_MIB); /* pending: it waits */
	ck_assert_uint_eq(clv_sim_used(sim, 0), 80 * CLV_MIB);
	ck_assert_uint_ge(stats_of(0).host_waits, 1);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(clv_sim_used(sim, 0), 50 * CLV_MIB);
	check_heap();
	for (int i = 1; i < 10; i += 2)
		ck_assert_int_eq(cleave_block_info(heap, p[i], NULL, NULL, NULL), 0);
	close_heap();
}
END_TEST

/* What a small block leaves in caches and late goes back as well. */
START_TEST(trims_of_small_blocks)
{
	open_heap(64 * CLV_MIB, NULL);
	cleave_ptr p[100];
	for (int i = 0; i < 100; i++)
		p[i] = get(1 + (uint64_t)i % 3, 1000);
	for (int i = 0; i < 100; i++)
		give(p[i], 1 + (uint64_t)i % 2);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(clv_sim_used(sim, 0), 0);
	close_heap();
}
END_TEST

START_TEST(reports)
{
	open_heap(64 * CLV_MIB, NULL);
	cleave_ptr p = get(1, 30 * CLV_MIB), q = get(1, 20 * CLV_MIB);
	give(q, 1);
	refused(7, 40 * CLV_MIB, -ENOMEM);
	cleave_failure f = last();
	ck_assert_uint_eq(f.number, 1);
	ck_assert_uint_eq(f.request_bytes, 40 * CLV_MIB);
	ck_assert_uint_eq(f.stream_id, 7);
	ck_assert_uint_eq(f.live_bytes, 30 * CLV_MIB);
	ck_assert_uint_eq(f.held_bytes, clv_sim_used(sim, 0));
	ck_assert_uint_eq(f.free_bytes, f.held_bytes - 30 * CLV_MIB);
	ck_assert_uint_le(f.largest_hole_bytes, f.free_bytes);
	ck_assert_uint_eq(f.device_free_bytes, 64 * CLV_MIB - f.held_bytes);
	ck_assert_uint_eq(f.device_total_bytes, 64 * CLV_MIB);
	ck_assert_uint_eq(f.limit_bytes, 64 * CLV_MIB);
	ck_assert_uint_ge(f.missing_bytes, 6 * CLV_MIB);
	ck_assert_uint_eq(f.pending_bytes, 0); /* it has waited */
	char text[1024], cut[20];
	int length = cleave_failure_print(&f, text, sizeof(text));
	ck_assert_int_eq(length, (int)strlen(text));
	ck_assert_msg(strstr(text, "40.0 MiB") && strstr(text, "30.0 MiB"), "%s", text);
	ck_assert_int_eq(cleave_failure_print(&f, cut, sizeof(cut)), length);
	ck_assert_uint_eq(strlen(cut), sizeof(cut) - 1);
	ck_assert_int_eq(memcmp(cut, text, sizeof(cut) - 1), 0);
	ck_assert_int_eq(cleave_failure_print(&f, NULL, 0), length);
	ck_assert_int_eq(cleave_failure_print(&f, NULL, 100), length);
	/* it stays until the next */
	give(p, 1);
	get(1, 40 * CLV_MIB);
	ck_assert_uint_eq(last().number, 1);
	refused(1, 40 * CLV_MIB, -ENOMEM);
	ck_assert_uint_eq(last().number, 2);
	ck_assert_uint_eq(stats_of(0).failures, 2);
	close_heap();
}
END_TEST

/* Every errno of the header. */
START_TEST(refusals_of_the_driver)
{
	sim = clv_sim_open(&(struct clv_sim_config){.capacity = 64 * CLV_MIB, .manual = true});
	struct clv_driver *fault = clv_fault_open(sim, NULL);
	open_on(fault, NULL);
	struct clv_fault_config c = {.result = CLV_FAILED, .fail_at = 1, .fail_after = true};
	c.eligible[CLV_CALL_create] = true;
	clv_fault_set(fault, &c);
	refused(1, 3 * CLV_MIB, -EIO);
	c.result = CLV_OUT_OF_MEMORY;
	clv_fault_set(fault, &c);
	refused(1, 3 * CLV_MIB, -ENOMEM);
	c.eligible[CLV_CALL_create] = false;
	c.eligible[CLV_CALL_address_reserve] = true;
	clv_fault_set(fault, NULL);
	cleave_ptr p = get(1, 3 * CLV_MIB);
	check_heap();
	give(p, 1);
	cleave_heap_close(heap);
	ck_assert_ptr_null(clv_sim_leaks(sim));
	fault->close(fault);
	sim->close(sim);
}
END_TEST

/* The only hole that fits stands among many of nearly its size, more than an index looks at from either end. */
START_TEST(the_last_hole_that_fits)
{
	open_heap(192 * CLV_MIB, NULL);
	enum { HOLES = 100 };
	cleave_ptr p[2 * HOLES];
	size_t size = 1024 * 1024 + 10 * 512; /* bins are 32 KiB wide there */
	for (int i = 0; i < 2 * HOLES; i++)
		p[i] = get(1, i % 2 ? 300 * 1024 : i == HOLES ? size + 5120 : size);
	uint64_t rest = 192 * CLV_MIB - clv_sim_used(sim, 0);
	cleave_ptr fill;
	if (rest)
		get(1, rest);
	while (cleave_alloc(heap, 0, stream(1), 16 * CLV_KIB + 20000, &fill) == 0)
		;
	for (int i = 0; i < 2 * HOLES; i += 2)
		give(p[i], 1);
	get(1, size + 2560);
	close_heap();
}
END_TEST

CHECK_MAIN("heap", arguments_that_make_no_sense, settings_that_make_no_sense, devices_that_cannot, nothing_asked_nothing_freed,
	   wrong_pointers, blocks_by_pointer, sizes_at_the_end_of_numbers, devices_are_apart, statistics, limits, a_hole_under_a_low_limit,
	   headroom, headroom_against_others, headroom_that_is_gone, others_on_the_device, less_than_the_driver_said, trims, trims_of_small_blocks, reports, refusals_of_the_driver,
	   the_last_hole_that_fits)
