/* SPDX-License-Identifier: MIT
 *
 * cleave_heap_blocks(): after any work, what is listed is the live blocks and what is free between them, once each.
 */
#include "check_main.h"
#include "../src/heap/heap_more.h"
#include "heap_rig.h"

#include <errno.h>
#include <stdlib.h>

static cleave_block list[1 << 16];

static size_t listed(cleave_heap *heap)
{
	size_t count, again;
	ck_assert_int_eq(cleave_heap_blocks(heap, 0, list, CLV_ARRAY_LEN(list), &count), 0);
	ck_assert_uint_le(count, CLV_ARRAY_LEN(list));
	ck_assert_int_eq(cleave_heap_blocks(heap, 0, NULL, 0, &again), 0);
	ck_assert_uint_eq(again, count);
	return count;
}

static const cleave_block *find(size_t count, cleave_ptr addr)
{
	size_t low = 0;
	while (count) {
		size_t half = count / 2;
		if (list[low + half].address <= addr) {
			low += half;
			count -= half;
			if (half == 0)
				break;
		} else {
			count = half;
		}
	}
	return list[low].address == addr ? &list[low] : NULL;
}

static void compare(const struct rig *r)
{
	size_t count = listed(r->heap);
	uint64_t mapped = 0, live = 0, pending = 0;
	cleave_heap_stats stats;
	for (size_t i = 0; i < count; i++) {
		const cleave_block *b = &list[i], *before = i ? b - 1 : NULL;
		ck_assert(b->bytes && b->bytes % CLV_GRAIN == 0 && b->address % CLV_GRAIN == 0);
		ck_assert(!before || before->address + before->bytes <= b->address);
		ck_assert(b->state == CLEAVE_BLOCK_LIVE || b->state == CLEAVE_BLOCK_PENDING ||
			  b->state == CLEAVE_BLOCK_FREE);
		ck_assert_int_eq(b->state == CLEAVE_BLOCK_LIVE, b->requested != 0);
		ck_assert_uint_le(b->requested, b->bytes);
		ck_assert_msg(!before || b->state == CLEAVE_BLOCK_LIVE || before->state != b->state ||
				      before->stream_id != b->stream_id ||
				      before->address + before->bytes != b->address,
			      "two free blocks that are one");
		mapped += b->bytes;
		live += b->state == CLEAVE_BLOCK_LIVE;
		pending += b->state == CLEAVE_BLOCK_PENDING ? b->bytes : 0;
	}
	ck_assert_uint_eq(live, r->count);
	for (unsigned i = 0; i < r->count; i++) {
		const cleave_block *b = find(count, r->blocks[i].addr);
		ck_assert_msg(b != NULL, "step %u: a live block is not listed", (unsigned)r->step);
		ck_assert_uint_eq(b->requested, r->blocks[i].size);
	}
	ck_assert_int_eq(cleave_heap_get_stats(r->heap, 0, &stats), 0);
	ck_assert_uint_le(mapped, stats.held_bytes);
	ck_assert_uint_ge(mapped, stats.live_bytes);
	/* the frames under them, at the same moment */
	static struct clv_heap_frame frames[1 << 12];
	struct clv_heap_picture picture = {.frames = frames, .frame_room = CLV_ARRAY_LEN(frames)};
	ck_assert_int_eq(clv_heap_picture(r->heap, 0, &picture), 0);
	ck_assert_uint_eq(picture.block_count, count);
	ck_assert_uint_eq(picture.frame_count, stats.frames);
	uint64_t bytes = 0;
	for (size_t i = 0, k = 0; i < picture.frame_count; i++) {
		ck_assert(!i || frames[i - 1].addr + frames[i - 1].bytes <= frames[i].addr);
		bytes += frames[i].bytes;
		while (k < count && list[k].address + list[k].bytes <= frames[i].addr)
			k++;
		ck_assert(k < count && list[k].address <= frames[i].addr);
	}
	ck_assert_uint_eq(bytes, mapped);
	picture = (struct clv_heap_picture){.frames = frames, .frame_room = 1};
	frames[1].bytes = 0;
	ck_assert_int_eq(clv_heap_picture(r->heap, 0, &picture), 0);
	ck_assert_uint_eq(picture.frame_count, stats.frames);
	ck_assert_uint_eq(frames[1].bytes, 0);
	ck_assert_uint_le(pending, stats.pending_bytes);
}

START_TEST(random_work)
{
	struct rig r;
	rig_open(&r, &(struct rig_config){.seed = 11, .capacity = 256 * CLV_MIB, .streams = 4});
	for (int i = 0; i < 6000; i++) {
		rig_step(&r, 96 * CLV_MIB);
		if (i % 37 == 0)
			compare(&r);
	}
	compare(&r);
	rig_free_all(&r);
	compare(&r);
	rig_close(&r);
}
END_TEST

START_TEST(pending_and_free)
{
	struct rig r;
	rig_open(&r, &(struct rig_config){.seed = 1, .capacity = 64 * CLV_MIB, .streams = 2, .manual = true});
	ck_assert_int_eq(rig_alloc(&r, 1, 4 * CLV_MIB), 0);
	cleave_ptr addr = r.blocks[0].addr;
	const cleave_block *b = find(listed(r.heap), addr);
	ck_assert(b && b->state == CLEAVE_BLOCK_LIVE && b->requested == 4 * CLV_MIB);
	ck_assert_uint_eq(b->stream_id, r.streams[1].id);
	rig_free(&r, 0, 1);
	b = find(listed(r.heap), addr);
	ck_assert(b && b->state == CLEAVE_BLOCK_PENDING);
	ck_assert_uint_eq(b->stream_id, r.streams[1].id);
	rig_complete(&r, 1);
	rig_trim(&r, 64 * CLV_MIB); /* asks after events */
	rig_close(&r);
}
END_TEST

/* A block that the heap keeps for the next request of its size is free to the program. */
START_TEST(kept_for_the_next_request)
{
	struct rig r;
	cleave_heap_stats stats;
	rig_open(&r, &(struct rig_config){.seed = 1, .capacity = 64 * CLV_MIB, .streams = 1});
	for (int i = 0; i < 3000; i++) {
		ck_assert_int_eq(rig_alloc(&r, 1, CLV_MIB), 0);
		rig_free(&r, 0, 1);
	}
	ck_assert_int_eq(cleave_heap_get_stats(r.heap, 0, &stats), 0);
	ck_assert_uint_eq(stats.cached_bytes, CLV_MIB); /* else this shows nothing */
	compare(&r);
	rig_close(&r);
}
END_TEST

START_TEST(little_room_and_wrong_arguments)
{
	struct rig r;
	size_t count = 77;
	rig_open(&r, &(struct rig_config){.seed = 1, .capacity = 64 * CLV_MIB, .streams = 1});
	ck_assert_int_eq(cleave_heap_blocks(r.heap, 0, list, 4, &count), 0); /* a device that was never used */
	ck_assert_uint_eq(count, 0);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(rig_alloc(&r, 1, 100000), 0);
	list[2].address = 12345;
	ck_assert_int_eq(cleave_heap_blocks(r.heap, 0, list, 2, &count), 0);
	ck_assert_uint_ge(count, 6);
	ck_assert_uint_eq(list[2].address, 12345);
	ck_assert_int_eq(cleave_heap_blocks(NULL, 0, list, 2, &count), -EINVAL);
	ck_assert_int_eq(cleave_heap_blocks(r.heap, 0, NULL, 2, &count), -EINVAL);
	ck_assert_int_eq(cleave_heap_blocks(r.heap, 0, list, 2, NULL), -EINVAL);
	ck_assert_int_eq(cleave_heap_blocks(r.heap, -1, list, 2, &count), -EINVAL);
	ck_assert_int_eq(cleave_heap_blocks(r.heap, 9, list, 2, &count), -EINVAL);
	rig_free_all(&r);
	rig_close(&r);
}
END_TEST

CHECK_MAIN("heap_blocks", random_work, pending_and_free, kept_for_the_next_request, little_room_and_wrong_arguments)
