/* SPDX-License-Identifier: MIT */
#include "../src/host/meta.h"
#include "arena_rig.h"
#include "check_main.h"

#include <errno.h>
#include <stdlib.h>

static void open_slabs(void)
{
	rig_open_with(&(struct clv_sim_config){.capacity = 64 * CLV_MIB, .manual = true}, "cache:off");
}

START_TEST(classes_agree)
{
	unsigned last = 0;
	for (uint64_t size = 1; size <= CLV_SMALL_MAX; size++) {
		unsigned cls = clv_class_of(size);
		uint64_t given = clv_class_size(cls);
		bool right = cls < CLV_CLASS_COUNT && given >= size && given % CLV_GRAIN == 0 && (cls == 0 || clv_class_size(cls - 1) < size) &&
			     (cls == last || cls == last + 1);
		/* what is lost beyond the grain is at most a quarter; up to 4 KiB nothing */
		right &= given - clv_align_up(size, CLV_GRAIN) <= (size <= 4096 ? 0 : size / 4);
		if (!right)
			ck_abort_msg("size %u: class %u of %u bytes", (unsigned)size, cls, (unsigned)given);
		last = cls;
	}
	ck_assert_uint_eq(last, CLV_CLASS_COUNT - 1);
	ck_assert_uint_eq(clv_class_size(last), CLV_SMALL_MAX);
}
END_TEST

/* Of every address in a chunk: the slot that begins there, or none. */
START_TEST(slots_by_address)
{
	open_slabs();
	for (unsigned cls = 0; cls < CLV_CLASS_COUNT; cls++) {
		uint64_t size = clv_class_size(cls);
		cleave_ptr p = get(1, size);
		unsigned number;
		struct clv_slab *s = clv_slab_find(a, p, &number);
		ck_assert_ptr_nonnull(s);
		ck_assert_uint_eq(s->slot_size, size);
		ck_assert_uint_ge(s->slots, 8);
		ck_assert_uint_le(s->slots, CLV_SLAB_SLOTS);
		uint64_t end = s->addr + ((uint64_t)s->units << CLV_UNIT_SHIFT);
		for (uint64_t at = s->addr; at < end; at += 256) {
			uint64_t offset = at - s->addr;
			bool start = offset % size == 0 && offset / size < s->slots;
			const struct clv_slab *found = clv_slab_find(a, at, &number);
			if (found != (start ? s : NULL) || (start && number != offset / size))
				ck_abort_msg("class %u, offset %u: %s, number %u", cls, (unsigned)offset, found ? "found" : "none", number);
		}
		give(p, 1);
	}
	unsigned number;
	ck_assert_ptr_null(clv_slab_find(a, 0, &number));
	ck_assert_ptr_null(clv_slab_find(a, UINT64_MAX, &number));
	rig_shut();
}
END_TEST

struct block {
	cleave_ptr p;
	uint64_t size;
};

static int by_address(const void *x, const void *y)
{
	const struct block *b = x, *c = y;
	return (b->p > c->p) - (b->p < c->p);
}

START_TEST(slots_do_not_overlap)
{
	open_slabs();
	enum { BLOCKS = 2000 };
	static struct block b[BLOCKS];
	struct clv_rng rng = {9};
	uint64_t live = 0;
	for (unsigned i = 0; i < BLOCKS; i++) {
		b[i].size = clv_rng_below(&rng, 3) ? clv_rng_range(&rng, 1, 4096) : clv_rng_range(&rng, 1, CLV_SMALL_MAX);
		b[i].p = get(1, b[i].size);
		live += clv_align_up(b[i].size, CLV_GRAIN);
	}
	qsort(b, BLOCKS, sizeof(b[0]), by_address);
	for (unsigned i = 0; i < BLOCKS; i++)
		if (b[i].p % CLV_GRAIN || (i && b[i - 1].p + b[i - 1].size > b[i].p))
			ck_abort_msg("block %u of %u bytes overlaps another", i, (unsigned)b[i].size);
	rig_valid();
	cleave_heap_stats s = stats();
	ck_assert_uint_eq(s.live_bytes, live);
	ck_assert_uint_eq(s.live_blocks, BLOCKS);
	ck_assert_uint_le(s.rounding_bytes, live / 4);
	ck_assert_uint_eq(s.cached_bytes, 0);
	for (unsigned i = 0; i < BLOCKS; i++)
		give(b[i].p, 1);
	s = stats();
	ck_assert_uint_eq(s.live_bytes, 0);
	ck_assert_uint_eq(s.rounding_bytes, 0);
	ck_assert_uint_eq(a->slabs_taken, 0);
	ck_assert_uint_le(a->chunk_count, 1); /* one is kept */
	rig_shut();
}
END_TEST

START_TEST(wrong_frees)
{
	open_slabs();
	cleave_ptr p = get(1, 1000), q = get(1, 1000);
	ck_assert_int_eq(cleave_free(heap, p + 512, stream(1)), -EINVAL);
	ck_assert_int_eq(cleave_free(heap, p + 1, stream(1)), -EINVAL);
	give(p, 1);
	ck_assert_int_eq(cleave_free(heap, p, stream(1)), -EINVAL); /* twice */
	ck_assert_int_eq(cleave_free(heap, p, stream(0)), -EINVAL);
	ck_assert_int_eq(cleave_free(heap, clv_align_down(p, CLV_PAGE), stream(1)), clv_align_down(p, CLV_PAGE) == q ? 0 : -EINVAL);
	ck_assert_int_eq(cleave_free(heap, clv_align_down(p, CLV_PAGE) + CLV_MIB, stream(1)), -EINVAL); /* a unit of no slab */
	rig_valid();
	/* and the same with caches */
	rig_shut();
	rig_open_capacity(64 * CLV_MIB);
	p = get(1, 1000);
	give(p, 1);
	ck_assert_int_eq(cleave_free(heap, p, stream(1)), -EINVAL);
	ck_assert_uint_eq(get(1, 1000), p);
	ck_assert_uint_ne(get(1, 1000), p);
	rig_shut();
}
END_TEST

START_TEST(blocks_around_an_address)
{
	open_slabs();
	cleave_ptr p = get(1, 700), start;
	size_t size;
	int device;
	ck_assert_int_eq(cleave_block_info(heap, p, &start, &size, &device), 0);
	ck_assert_uint_eq(start, p);
	ck_assert_uint_eq(size, 700);
	ck_assert_int_eq(cleave_block_info(heap, p + 1023, &start, NULL, NULL), 0);
	ck_assert_uint_eq(start, p);
	ck_assert_int_eq(cleave_block_info(heap, p + 1024, &start, NULL, NULL), -EINVAL);
	cleave_ptr q = get(1, 9 * 512 + 1); /* a slot of 10 grains */
	ck_assert_int_eq(cleave_block_info(heap, q + 10 * 512 - 1, &start, &size, NULL), 0);
	ck_assert_uint_eq(size, 9 * 512 + 1);
	give(q, 1);
	q = get(1, 8 * 512 + 1); /* 9 grains in a slot of 10: the last is nobody's */
	ck_assert_int_eq(cleave_block_info(heap, q + 9 * 512 - 1, NULL, NULL, NULL), 0);
	ck_assert_int_eq(cleave_block_info(heap, q + 9 * 512, NULL, NULL, NULL), -EINVAL);
	ck_assert_uint_eq(stats().rounding_bytes, 512);
	give(p, 1);
	ck_assert_int_eq(cleave_block_info(heap, p, &start, &size, &device), -EINVAL);
	rig_shut();
}
END_TEST

/* Freed on another stream: back in its slab when that stream is done, and not before. */
START_TEST(late_frees)
{
	open_slabs();
	cleave_ptr p = get(1, 1000);
	give(p, 2);
	ck_assert_uint_eq(driver_calls(CLV_CALL_event_record), 1);
	ck_assert_uint_ne(get(1, 1000), p); /* nor is it 2's */
	ck_assert_uint_ne(get(2, 1000), p);
	ck_assert(!clv_slabs_reap(a));
	ck_assert_int_eq(cleave_free(heap, p, stream(1)), -EINVAL);
	clv_sim_complete(sim, stream(2));
	ck_assert(clv_slabs_reap(a));
	ck_assert(!clv_slabs_reap(a));
	ck_assert_uint_eq(get(1, 1000), p);
	rig_valid();
	/* freed on ANY it is complete */
	give(p, 0);
	ck_assert_uint_eq(get(1, 1000), p);
	rig_shut();
}
END_TEST

/* However many are late, each stream is asked once at a time. */
START_TEST(many_late_frees)
{
	open_slabs();
	static cleave_ptr p[2000];
	for (unsigned i = 0; i < 2000; i++)
		p[i] = get(1, 512);
	for (unsigned i = 0; i < 2000; i++)
		give(p[i], 2 + i % 3);
	uint64_t before = driver_calls(CLV_CALL_event_query);
	ck_assert(!clv_slabs_reap(a));
	ck_assert_uint_le(driver_calls(CLV_CALL_event_query) - before, 4);
	for (uint64_t id = 2; id < 5; id++)
		clv_sim_complete(sim, stream(id));
	ck_assert(clv_slabs_reap(a));
	for (uint32_t i = 0; i < a->slot_count; i++)
		ck_assert_ptr_null(a->slots[i]->late);
	ck_assert_uint_eq(a->slabs_taken, 0);
	rig_shut();
}
END_TEST

START_TEST(late_frees_of_gone_streams)
{
	open_slabs();
	cleave_ptr p = get(1, 1000), q = get(1, 1000), r = get(1, 1000);
	give(p, 2);
	give(q, 3);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(2)), 0);
	ck_assert_uint_eq(a->slabs_taken, 3072);
	clv_sim_complete(sim, stream(2));
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(1)), 0); /* p is back */
	rig_valid();
	ck_assert_uint_eq(a->slabs_taken, 2048);
	clv_sim_complete(sim, stream(1));
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, stream(4)), 0); /* the chunk's own is gone: now it is ANY's */
	rig_valid();
	give(r, 3);
	ck_assert_uint_eq(a->slabs_taken, 2048);
	clv_sim_complete(sim, stream(3));
	ck_assert(clv_slabs_reap(a));
	rig_valid();
	ck_assert_uint_eq(a->slabs_taken, 0);
	get(0, 1000);
	ck_assert_uint_eq(a->chunk_count, 1);
	rig_shut();
}
END_TEST

START_TEST(chunks_are_used_again)
{
	open_slabs();
	static cleave_ptr p[300];
	for (unsigned round = 0; round < 2; round++)
		for (unsigned cls = 0; cls < CLV_CLASS_COUNT; cls++) {
			uint64_t size = clv_class_size(cls);
			unsigned n = (unsigned)(3 * CLV_MIB / size);
			n = n > 300 ? 300 : n;
			for (unsigned i = 0; i < n; i++)
				p[i] = get(1, size);
			for (unsigned i = 0; i < n; i++)
				give(p[(i * 7) % n * (n % 7 != 0) + i * (n % 7 == 0)], 1);
			rig_valid();
			ck_assert_uint_eq(a->chunk_count, 1);
		}
	ck_assert_uint_le(stats().held_peak_bytes, 12 * CLV_MIB);
	ck_assert(clv_slabs_shrink(a));
	ck_assert_uint_eq(a->chunk_count, 0);
	ck_assert(!clv_slabs_shrink(a));
	rig_valid();
	rig_shut();
}
END_TEST

/* One live slot keeps a chunk; different classes share one. */
START_TEST(classes_share_chunks)
{
	open_slabs();
	cleave_ptr p[CLV_CLASS_COUNT];
	for (unsigned cls = 0; cls < CLV_CLASS_COUNT; cls++)
		p[cls] = get(1, clv_class_size(cls));
	ck_assert_uint_le(a->chunk_count, 2);
	uint64_t chunks = a->chunk_count;
	cleave_ptr other = get(2, 512); /* of another stream: a chunk of its own */
	ck_assert_uint_eq(a->chunk_count, chunks + 1);
	for (unsigned cls = 0; cls < CLV_CLASS_COUNT; cls++)
		give(p[cls], 1);
	ck_assert(clv_slabs_shrink(a));
	ck_assert_uint_eq(a->chunk_count, 1);
	give(other, 2);
	rig_shut();
}
END_TEST

#define LARGE_DEVICE (40 * CLV_GIB)

/* On a large device the first chunk of a stream is short and lies beside other blocks; the next one is a page. */
START_TEST(short_chunks)
{
	enum { STREAMS = 9 };
	rig_open_with(&(struct clv_sim_config){.capacity = LARGE_DEVICE, .manual = true}, "cache:off");
	uint64_t bytes = 24 * CLV_MIB + 3 * CLV_MIB / 4;
	cleave_ptr large = get(1, bytes), p[STREAMS + 1];
	for (uint64_t id = 1; id <= STREAMS; id++)
		p[id] = get(id, 700);
	ck_assert_uint_eq(a->chunk_count, STREAMS);
	ck_assert_uint_eq(clv_align_down(p[1], CLV_PAGE), clv_align_down(large + bytes, CLV_PAGE));
	for (uint64_t id = 1; id <= STREAMS; id++) {
		for (uint64_t other = 1; other < id; other++)
			ck_assert_uint_ne(clv_align_down(p[id], CLV_PAGE), clv_align_down(p[other], CLV_PAGE));
		ck_assert_uint_lt(clv_pagemap_chunk(&a->pages, p[id])->extent->size, CLV_PAGE);
	}
	rig_valid();
	/* what no short chunk has room for */
	cleave_ptr more[64];
	for (size_t i = 0; i < CLV_ARRAY_LEN(more); i++)
		more[i] = get(1, CLV_SMALL_MAX);
	ck_assert_uint_eq(a->chunk_count, STREAMS + 1);
	ck_assert_uint_eq(clv_pagemap_chunk(&a->pages, more[63])->extent->size, CLV_PAGE);
	rig_valid();
	cleave_ptr start;
	size_t size;
	ck_assert_int_eq(cleave_block_info(heap, p[3] + 100, &start, &size, NULL), 0);
	ck_assert(start == p[3] && size == 700);
	for (size_t i = 0; i < CLV_ARRAY_LEN(more); i++)
		give(more[i], 1);
	for (uint64_t id = 1; id <= STREAMS; id++)
		give(p[id], id);
	give(large, 1);
	clv_slabs_shrink(a);
	ck_assert_uint_eq(a->chunk_count, 0);
	ck_assert_uint_eq(stats().live_bytes, 0);
	rig_shut();
}
END_TEST

/* What is told of blocks tiles what is held, short chunks too. */
static void check_blocks(void)
{
	static cleave_block b[1024];
	size_t n = 0;
	uint64_t sum = 0;
	ck_assert_int_eq(cleave_heap_blocks(heap, 0, b, CLV_ARRAY_LEN(b), &n), 0);
	for (size_t i = 0; i < n; i++) {
		ck_assert(!i || b[i].address >= b[i - 1].address + b[i - 1].bytes);
		sum += b[i].bytes;
	}
	ck_assert_uint_eq(sum, stats().held_bytes);
}

START_TEST(short_chunks_are_told_of)
{
	rig_open_capacity(LARGE_DEVICE);
	cleave_ptr large = get(1, 24 * CLV_MIB + 3 * CLV_MIB / 4), p = get(1, 4096);
	check_blocks();
	cleave_ptr q = get(1, 3 * CLV_MIB), o = get(2, 512);
	check_blocks();
	give(p, 1);
	give(q, 1);
	give(o, 2);
	check_blocks();
	give(large, 1);
	check_blocks();
	rig_shut();
}
END_TEST

/* No chunk can be had: a small request takes a hole beside other blocks. */
START_TEST(small_beside_large)
{
	rig_open_capacity(8 * CLV_MIB);
	cleave_ptr large = get(1, 8 * CLV_MIB - 4096);
	cleave_ptr p = get(1, 700), q = get(1, 3072), r;
	ck_assert_uint_eq(a->chunk_count, 0);
	ck_assert_uint_eq(stats().live_bytes, stats().held_bytes);
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 1, &r), -ENOMEM);
	ck_assert_uint_eq(stats().failures, 1);
	cleave_ptr start;
	size_t size;
	ck_assert_int_eq(cleave_block_info(heap, p + 1023, &start, &size, NULL), 0);
	ck_assert_uint_eq(start, p);
	ck_assert_uint_eq(size, 700);
	give(p, 1);
	ck_assert_int_eq(cleave_free(heap, p, stream(1)), -EINVAL);
	give(q, 1);
	give(large, 1);
	ck_assert_uint_eq(stats().live_bytes, 0);
	ck_assert_uint_eq(stats().live_blocks, 0);
	rig_shut();
}
END_TEST

START_TEST(host_memory_is_out)
{
	for (uint64_t k = 1; k < 8; k++) {
		open_slabs();
		clv_meta_fail_after(k);
		cleave_ptr p;
		int answer = cleave_alloc(heap, 0, stream(1), 1000, &p);
		ck_assert(answer == 0 || answer == -ENOSPC);
		rig_valid();
		clv_meta_fail_after(0);
		if (answer)
			p = get(1, 1000);
		/* a late free that cannot be remembered: the host waits instead */
		clv_meta_fail_after(1);
		give(p, 2);
		clv_meta_fail_after(0);
		ck_assert_uint_ge(stats().host_waits, 1);
		ck_assert_uint_eq(get(1, 1000), p);
		/* nor can it wait: the block stays live, and can be freed later */
		struct clv_fault_config c = {.result = CLV_CAPTURING, .fail_at = 1, .fail_after = true};
		c.eligible[CLV_CALL_stream_synchronize] = true;
		clv_fault_set(fault, &c);
		clv_meta_fail_after(1);
		uint64_t frees = stats().frees;
		ck_assert_int_eq(cleave_free(heap, p, stream(3)), -EIO);
		clv_meta_fail_after(0);
		rig_valid();
		ck_assert_uint_eq(stats().frees, frees);
		ck_assert_uint_eq(stats().live_bytes, 1024);
		ck_assert_int_eq(cleave_block_info(heap, p, NULL, NULL, NULL), 0);
		clv_fault_set(fault, NULL);
		give(p, 3);
		ck_assert_uint_eq(stats().live_bytes, 0);
		rig_shut();
	}
}
END_TEST

CHECK_MAIN("slab", classes_agree, slots_by_address, slots_do_not_overlap, wrong_frees, blocks_around_an_address, late_frees, many_late_frees,
	   late_frees_of_gone_streams, chunks_are_used_again, classes_share_chunks, short_chunks, short_chunks_are_told_of, small_beside_large, host_memory_is_out)
