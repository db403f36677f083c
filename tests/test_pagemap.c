/* SPDX-License-Identifier: MIT */
#include "../src/heap/pagemap.h"
#include "../src/host/meta.h"
#include "check_main.h"

#define LEAF ((uint64_t)1 << (CLV_PAGE_SHIFT + CLV_LEAF_BITS))
#define TOP ((uint64_t)1 << (CLV_PAGE_SHIFT + CLV_LEAF_BITS + CLV_ROOT_BITS))

static struct clv_pagemap map;
static uint64_t things[64];

static struct clv_frame *frame(uint64_t i)
{
	return (struct clv_frame *)(void *)&things[i];
}

static struct clv_chunk *chunk(uint64_t i)
{
	return (struct clv_chunk *)(void *)&things[i];
}

START_TEST(nothing_anywhere)
{
	ck_assert(clv_pagemap_init(&map));
	static const uint64_t addresses[] = {0, 1, CLV_PAGE, LEAF, TOP - 1, TOP, UINT64_MAX};
	for (unsigned i = 0; i < CLV_ARRAY_LEN(addresses); i++) {
		ck_assert_ptr_null(clv_pagemap_frame(&map, addresses[i]));
		ck_assert_ptr_null(clv_pagemap_chunk(&map, addresses[i]));
	}
	clv_pagemap_fini(&map);
	clv_pagemap_fini(&map);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}
END_TEST

START_TEST(ranges_across_leaves)
{
	ck_assert(clv_pagemap_init(&map));
	uint64_t at = 7 * LEAF - 3 * CLV_PAGE, size = LEAF + 10 * CLV_PAGE;
	ck_assert(clv_pagemap_reserve(&map, at, size));
	clv_pagemap_set_frame(&map, at, size, frame(1));
	ck_assert_ptr_null(clv_pagemap_frame(&map, at - 1));
	ck_assert_ptr_eq(clv_pagemap_frame(&map, at), frame(1));
	ck_assert_ptr_eq(clv_pagemap_frame(&map, 7 * LEAF - 1), frame(1));
	ck_assert_ptr_eq(clv_pagemap_frame(&map, 7 * LEAF), frame(1));
	ck_assert_ptr_eq(clv_pagemap_frame(&map, 8 * LEAF), frame(1));
	ck_assert_ptr_eq(clv_pagemap_frame(&map, at + size - 1), frame(1));
	ck_assert_ptr_null(clv_pagemap_frame(&map, at + size));
	ck_assert_ptr_null(clv_pagemap_chunk(&map, at)); /* apart from frames */
	clv_pagemap_set_chunk(&map, at, CLV_PAGE, chunk(2));
	ck_assert_ptr_eq(clv_pagemap_chunk(&map, at + CLV_PAGE - 1), chunk(2));
	ck_assert_ptr_null(clv_pagemap_chunk(&map, at + CLV_PAGE));
	clv_pagemap_set_frame(&map, at, size, NULL);
	ck_assert_ptr_null(clv_pagemap_frame(&map, 7 * LEAF));
	ck_assert_ptr_eq(clv_pagemap_chunk(&map, at), chunk(2));
	clv_pagemap_fini(&map);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}
END_TEST

START_TEST(the_end_of_addresses)
{
	ck_assert(clv_pagemap_init(&map));
	ck_assert(clv_pagemap_reserve(&map, TOP - CLV_PAGE, CLV_PAGE));
	clv_pagemap_set_frame(&map, TOP - CLV_PAGE, CLV_PAGE, frame(3));
	ck_assert_ptr_eq(clv_pagemap_frame(&map, TOP - 1), frame(3));
	ck_assert(!clv_pagemap_reserve(&map, TOP - CLV_PAGE, 2 * CLV_PAGE));
	ck_assert(!clv_pagemap_reserve(&map, TOP, CLV_PAGE));
	ck_assert(!clv_pagemap_reserve(&map, UINT64_MAX - CLV_PAGE + 1, 2 * CLV_PAGE)); /* wraps */
	clv_pagemap_fini(&map);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}
END_TEST

START_TEST(host_memory_is_out)
{
	clv_meta_fail_after(1);
	ck_assert(!clv_pagemap_init(&map));
	clv_meta_fail_after(0);
	ck_assert(clv_pagemap_init(&map));
	clv_meta_fail_after(2);
	ck_assert(!clv_pagemap_reserve(&map, LEAF / 2, 2 * LEAF)); /* three leaves */
	clv_meta_fail_after(0);
	ck_assert(clv_pagemap_reserve(&map, LEAF / 2, 2 * LEAF));
	clv_meta_fail_after(1);
	ck_assert(clv_pagemap_reserve(&map, LEAF / 2, 2 * LEAF)); /* there already */
	clv_meta_fail_after(0);
	clv_pagemap_fini(&map);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}
END_TEST

START_TEST(random_against_an_array)
{
	enum { PAGES = 3 * (1 << CLV_LEAF_BITS) };
	static const uint64_t base = 1000 * LEAF;
	static unsigned char frames[PAGES], chunks[PAGES], quarters[PAGES]; /* 4: the whole page */
	struct clv_rng rng = {5};
	ck_assert(clv_pagemap_init(&map));
	ck_assert(clv_pagemap_reserve(&map, base, PAGES * CLV_PAGE));
	for (unsigned step = 0; step < 4000; step++) {
		uint64_t first = clv_rng_below(&rng, PAGES), n = clv_rng_range(&rng, 1, clv_min_u64(64, PAGES - first));
		unsigned char what = (unsigned char)clv_rng_below(&rng, 64);
		clv_pagemap_set_frame(&map, base + first * CLV_PAGE, n * CLV_PAGE, what ? frame(what) : NULL);
		for (uint64_t i = first; i < first + n; i++)
			frames[i] = what;
		unsigned char quarter = (unsigned char)clv_rng_below(&rng, 5);
		bool whole = quarter == 4;
		clv_pagemap_set_chunk(&map, base + first * CLV_PAGE + (whole ? 0 : quarter * CLV_PAGE_QUARTER),
				      whole ? CLV_PAGE : CLV_PAGE_QUARTER, what ? chunk(what) : NULL);
		chunks[first] = what;
		quarters[first] = quarter;
		for (unsigned k = 0; k < 16; k++) {
			uint64_t i = clv_rng_below(&rng, PAGES), at = base + i * CLV_PAGE + clv_rng_below(&rng, CLV_PAGE);
			ck_assert_ptr_eq(clv_pagemap_frame(&map, at), frames[i] ? frame(frames[i]) : NULL);
			bool inside = quarters[i] == 4 || at % CLV_PAGE / CLV_PAGE_QUARTER == quarters[i];
			ck_assert_ptr_eq(clv_pagemap_chunk(&map, at), chunks[i] && inside ? chunk(chunks[i]) : NULL);
			ck_assert(clv_pagemap_page_has_chunk(&map, at) == (chunks[i] != 0));
		}
	}
	clv_pagemap_fini(&map);
}
END_TEST

CHECK_MAIN("pagemap", nothing_anywhere, ranges_across_leaves, the_end_of_addresses, host_memory_is_out, random_against_an_array)
