/* SPDX-License-Identifier: MIT */
#include "check_main.h"
#include "torch_fixture.h"

START_TEST(grows_and_shrinks_by_pages)
{
	struct fixture f;
	open_with(&f, "expandable_segments:True", 0, 0);
	uint32_t a = ask(&f, MIB(25)), b = ask(&f, MIB(25)), c = ask(&f, MIB(5));
	/* 25 needs two pages of 20 and leaves 15; 25 more need one page; 5 fit in what is left of 60 */
	ck_assert_str_eq(log_of(&f), "r20 m40 m20");
	ck_assert_uint_eq(addr_of(&f, b), addr_of(&f, a) + MIB(25));
	ck_assert_uint_eq(addr_of(&f, c), addr_of(&f, a) + MIB(50));
	ck_assert_int_eq(stats_of(&f).of[CLV_TORCH_ALL][CLV_TORCH_SEGMENT].current, 0);
	/* of [25, 50) only [40, 40) is whole pages: nothing; of [0, 50) the pages [0, 40) */
	give(&f, b);
	clv_torch_empty_cache(f.m);
	ck_assert_str_eq(log_of(&f), "");
	ck_assert_uint_eq(stats_of(&f).stranded_bytes, MIB(25 + 5)); /* and the 5 at the end */
	give(&f, a);
	ck_assert_uint_eq(stats_of(&f).stranded_bytes, MIB(10 + 5));
	clv_torch_empty_cache(f.m);
	ck_assert_str_eq(log_of(&f), "u40");
	ck_assert_uint_eq(reserved_mib(&f), 20);
	/* the lowest unmapped pages come first, and the free 10 MiB behind them count */
	uint32_t d = ask(&f, MIB(45));
	ck_assert_str_eq(log_of(&f), "m40");
	ck_assert_uint_eq(addr_of(&f, d), addr_of(&f, c) - MIB(50));
	give(&f, d), give(&f, c);
	clv_torch_empty_cache(f.m);
	ck_assert_str_eq(log_of(&f), "u60 x");
	ck_assert_uint_eq(reserved_mib(&f), 0);
	close_it(&f);
}
END_TEST

START_TEST(splits_expandable_blocks_at_512)
{
	struct fixture f;
	open_with(&f, "expandable_segments:True", 0, 0);
	uint32_t a = ask(&f, MIB(20) - 1024);
	ck_assert_uint_eq(size_of(&f, a), MIB(20) - 1024);
	uint32_t s = ask(&f, 1000), t = ask(&f, MIB(1));
	ck_assert_str_eq(log_of(&f), "r20 m20 r2 m2"); /* small pools have pages and addresses of their own */
	ck_assert_uint_eq(addr_of(&f, t), addr_of(&f, s) + 1024);
	give(&f, a), give(&f, s), give(&f, t);
	close_it(&f);
}
END_TEST

START_TEST(uses_the_segment_size_as_page)
{
	struct fixture f;
	open_with(&f, "expandable_segments:True,large_segment_size_mb:12", 0, 0);
	give(&f, ask(&f, MIB(25)));
	ck_assert_str_eq(log_of(&f), "r12 m36");
	close_it(&f);
}
END_TEST

START_TEST(stops_at_a_refused_mapping)
{
	struct fixture f;
	open_with(&f, "expandable_segments:True", 100, 0);
	uint32_t a = ask(&f, MIB(30)), b = ask(&f, MIB(30)), c = ask(&f, MIB(15));
	ck_assert_str_eq(log_of(&f), "r20 m40 m20 m20");
	give(&f, a);
	clv_torch_empty_cache(f.m);
	ck_assert_str_eq(log_of(&f), "u20");
	/* [0, 20) unmapped, [20, 30) free, then 30, 15 in use, 5 free: 35 at the end need 30 more, two pages. They do not fit
	 * beside the 60 that are held; nothing whole is free. */
	uint32_t d = ask(&f, MIB(15));
	ck_assert_str_eq(log_of(&f), "m20");
	give(&f, d);
	ck_assert_uint_eq(ask(&f, MIB(46)), CLV_TORCH_NONE);
	ck_assert_str_eq(log_of(&f), "!m60 u20 !m60");
	ck_assert_uint_eq(stats_of(&f).num_ooms, 1);
	give(&f, b), give(&f, c);
	close_it(&f);
}
END_TEST

/* Among free expandable blocks the one that can grow least is the best fit, not the smallest. */
START_TEST(prefers_what_can_grow_least)
{
	struct fixture f;
	open_with(&f, "expandable_segments:True", 0, 0);
	uint32_t a = ask(&f, MIB(24)), b = ask(&f, MIB(4)), c = ask(&f, MIB(7));
	ck_assert_str_eq(log_of(&f), "r20 m40"); /* 24, 4, 7, then 5 at the end of what is mapped */
	give(&f, a);
	uint32_t d = ask(&f, MIB(3));
	ck_assert_uint_eq(addr_of(&f, d), addr_of(&f, b) - MIB(24)); /* not the 5, which could grow */
	give(&f, b), give(&f, c), give(&f, d);
	close_it(&f);
}
END_TEST

/* A pool with an allocator of its own has native segments even then; and a request that falls back to a pool must not take
 * its expandable blocks. */
START_TEST(mixes_expandable_and_native_pools)
{
	struct fixture f;
	open_with(&f, "expandable_segments:True", 60, 0);
	struct clv_torch_pool_options own = {.custom_allocator = true}, marked = {.use_on_oom = true};
	uint32_t native = clv_torch_pool_create(f.m, &own), spare = clv_torch_pool_create(f.m, &marked);
	give(&f, get(&f, MIB(14), S0, native));
	ck_assert_str_eq(log_of(&f), "+14");
	give(&f, get(&f, MIB(30), S0, spare));
	ck_assert_str_eq(log_of(&f), "r20 m40");
	ck_assert_uint_eq(ask(&f, MIB(30)), CLV_TORCH_NONE);
	ck_assert_str_eq(log_of(&f), "r20 !m40 !m40");
	close_it(&f);
}
END_TEST

CHECK_MAIN("torch_expandable", grows_and_shrinks_by_pages, splits_expandable_blocks_at_512,
	   uses_the_segment_size_as_page, stops_at_a_refused_mapping, prefers_what_can_grow_least,
	   mixes_expandable_and_native_pools)
