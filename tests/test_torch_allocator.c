/* SPDX-License-Identifier: MIT */
#include "check_main.h"
#include "torch_fixture.h"

/* ---- sizes ---- */

START_TEST(rounds_as_torch_does)
{
	static const struct {
		const char *conf;
		uint64_t size, rounded;
	} cases[] = {
		{"", 1, 512},
		{"", 511, 512},
		{"", 512, 512},
		{"", 513, 1024},
		{"", 1048577, 1049088},
		{"", 10485759, 10485760},
		/* between two powers of two in four steps */
		{"roundup_power2_divisions:4", 1200, 1536},
		{"roundup_power2_divisions:4", 2048, 2048},
		{"roundup_power2_divisions:4", 2049, 2560},
		{"roundup_power2_divisions:4", 2560, 2560},
		{"roundup_power2_divisions:4", 2561, 3072},
		{"roundup_power2_divisions:4", MIB(9) + CLV_MIB / 2, MIB(10)},
		{"roundup_power2_divisions:4", MIB(33), MIB(40)},
		{"roundup_power2_divisions:4", MIB(63), MIB(64)},
		{"roundup_power2_divisions:4", MIB(64), MIB(64)},
		/* one division is none; what is at most 512 B a division is too small for it */
		{"roundup_power2_divisions:1", MIB(33) + 1, MIB(33) + 512},
		{"roundup_power2_divisions:8", 4096, 4096},
		{"roundup_power2_divisions:8", 4097, 4608},
		{"roundup_power2_divisions:8", 3000, 3072},
		/* a list: the first key holds below, too */
		{"roundup_power2_divisions:[4:2,16:8,>:1]", 3000, 3072},
		{"roundup_power2_divisions:[4:2,16:8,>:1]", 5000, 6144},
		{"roundup_power2_divisions:[4:2,16:8,>:1]", MIB(5), MIB(6)},
		{"roundup_power2_divisions:[4:2,16:8,>:1]", MIB(9) + 1, MIB(9) + 512},
		{"roundup_power2_divisions:[4:2,16:8,>:1]", MIB(17) + 1, MIB(18)},
		{"roundup_power2_divisions:[4:2,16:8,>:1]", MIB(33) + 1, MIB(33) + 512},
		/* more divisions than bits: the next power of two */
		{"roundup_power2_divisions:1099511627776", MIB(3), MIB(3)},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_torch_settings s;
		ck_assert(clv_torch_settings_parse(&s, cases[i].conf, NULL));
		uint64_t got = clv_torch_round(&s, cases[i].size);
		ck_assert_msg(got == cases[i].rounded, "%s: %" PRIu64 " gives %" PRIu64 ", not %" PRIu64, cases[i].conf,
			      cases[i].size, got, cases[i].rounded);
		ck_assert_uint_eq(clv_torch_round(&s, got), got);
	}
}
END_TEST

START_TEST(sizes_segments_as_torch_does)
{
	struct clv_torch_settings s;
	clv_torch_settings_default(&s);
	ck_assert_uint_eq(clv_torch_segment_bytes(&s, 512), MIB(2));
	ck_assert_uint_eq(clv_torch_segment_bytes(&s, MIB(1)), MIB(2));
	ck_assert_uint_eq(clv_torch_segment_bytes(&s, MIB(1) + 512), MIB(20));
	ck_assert_uint_eq(clv_torch_segment_bytes(&s, MIB(10) - 512), MIB(20));
	ck_assert_uint_eq(clv_torch_segment_bytes(&s, MIB(10)), MIB(10));
	ck_assert_uint_eq(clv_torch_segment_bytes(&s, MIB(10) + 512), MIB(12));
	s.large_segment_size = MIB(12);
	ck_assert_uint_eq(clv_torch_segment_bytes(&s, MIB(2)), MIB(12));
}
END_TEST

START_TEST(answers_odd_requests)
{
	struct fixture f;
	struct clv_torch_request r = {.size = 0};
	uint32_t block = 7;
	open_with(&f, "", 0, 0);
	ck_assert_int_eq(clv_torch_malloc(f.m, &r, &block), CLV_TORCH_OK);
	ck_assert_uint_eq(block, CLV_TORCH_NONE);
	r.size = (uint64_t)1 << 60;
	ck_assert_int_eq(clv_torch_malloc(f.m, &r, &block), CLV_TORCH_OOM);
	ck_assert_str_eq(log_of(&f), "");
	ck_assert_uint_eq(stats_of(&f).num_ooms, 0); /* refused before the allocator proper */
	close_it(&f);
}
END_TEST

/* ---- fit and splits ---- */

START_TEST(splits_small_blocks_at_512_and_large_ones_above_a_mib)
{
	struct fixture f;
	open_with(&f, "", 0, 0);
	uint32_t a = ask(&f, MIB(1) - 512);
	uint32_t b = ask(&f, MIB(1)), c = ask(&f, 512);
	ck_assert_str_eq(log_of(&f), "+2");
	ck_assert_uint_eq(addr_of(&f, b), addr_of(&f, a) + MIB(1) - 512);
	ck_assert_uint_eq(addr_of(&f, c), addr_of(&f, b) + MIB(1));
	/* 11 MiB - 512 take a segment of 12: the rest of 1 MiB + 512 is split off, that of 1 MiB is not */
	uint32_t d = ask(&f, MIB(11) - 512), e = ask(&f, MIB(11));
	ck_assert_str_eq(log_of(&f), "+12 +12");
	ck_assert_uint_eq(size_of(&f, d), MIB(11) - 512);
	ck_assert_uint_eq(size_of(&f, e), MIB(12));
	ck_assert_int_eq(stats_of(&f).of[CLV_TORCH_LARGE][CLV_TORCH_INACTIVE_SPLIT_BYTES].current, MIB(1) + 512);
	ck_assert_uint_eq(stats_of(&f).stranded_bytes, MIB(1) + 512);
	close_it(&f);
}
END_TEST

START_TEST(takes_the_best_fit_and_of_equals_the_lowest)
{
	struct fixture f;
	open_with(&f, "", 0, 0);
	/* addresses go down: a is the highest */
	uint32_t a = ask(&f, MIB(30)), b = ask(&f, MIB(14)), c = ask(&f, MIB(14)), d = ask(&f, MIB(16));
	uint64_t at[4] = {addr_of(&f, a), addr_of(&f, b), addr_of(&f, c), addr_of(&f, d)};
	ck_assert_uint_gt(at[1], at[2]);
	give(&f, a), give(&f, b), give(&f, c), give(&f, d);
	log_of(&f);
	ck_assert_uint_eq(addr_of(&f, ask(&f, MIB(13))), at[2]);
	ck_assert_uint_eq(addr_of(&f, ask(&f, MIB(13))), at[1]);
	ck_assert_uint_eq(addr_of(&f, ask(&f, MIB(13))), at[3]);
	ck_assert_uint_eq(addr_of(&f, ask(&f, MIB(13))), at[0]);
	ck_assert_uint_eq(addr_of(&f, ask(&f, MIB(17))), at[0] + MIB(13)); /* what is left of 30 */
	ck_assert_str_eq(log_of(&f), "");
	close_it(&f);
}
END_TEST

/* The same work under the three rules for equal blocks. */
START_TEST(breaks_ties_as_asked)
{
	static const char *const confs[] = {"", "tie_break:counter", "tie_break:segment"};
	for (int k = 0; k < 3; k++) {
		struct fixture f;
		open_with(&f, confs[k], 0, 0);
		/* Two segments of 20: x the older one, at the higher address. In x, two blocks of 4 MiB are freed so that the
		 * later made one lies lower: the tail of a split is the older block. */
		uint32_t x1 = ask(&f, MIB(4)), x2 = ask(&f, MIB(4)), x3 = ask(&f, MIB(4)), x4 = ask(&f, MIB(8));
		uint32_t y1 = ask(&f, MIB(4)), y2 = ask(&f, MIB(8));
		ck_assert_str_eq(log_of(&f), "+20 +20");
		ck_assert_uint_lt(addr_of(&f, y1), addr_of(&f, x1));
		uint64_t lowest = addr_of(&f, y1), oldest = addr_of(&f, x1);
		give(&f, x1), give(&f, x3), give(&f, y1);
		uint64_t got = addr_of(&f, ask(&f, MIB(4)));
		ck_assert_uint_eq(got, k == 0 ? lowest : oldest);
		(void)x2, (void)x4, (void)y2;
		close_it(&f);
	}
}
END_TEST

START_TEST(keeps_streams_and_pools_apart)
{
	struct fixture f;
	open_with(&f, "", 0, 0);
	uint32_t pool = clv_torch_pool_create(f.m, NULL);
	give(&f, ask(&f, MIB(30)));
	log_of(&f);
	uint32_t b = get(&f, MIB(30), S1, 0), c = get(&f, MIB(30), S0, pool);
	ck_assert_str_eq(log_of(&f), "+30 +30");
	give(&f, b), give(&f, c);
	uint32_t d = get(&f, MIB(30), S0, pool);
	ck_assert_str_eq(log_of(&f), "");
	give(&f, d);
	close_it(&f);
}
END_TEST

START_TEST(merges_with_both_neighbours)
{
	struct fixture f;
	open_with(&f, "", 0, 0);
	uint32_t a = ask(&f, MIB(5)), b = ask(&f, MIB(5)), c = ask(&f, MIB(5)), d = ask(&f, MIB(5));
	uint64_t start = addr_of(&f, a);
	give(&f, a), give(&f, c);
	ck_assert_int_eq(stats_of(&f).of[CLV_TORCH_ALL][CLV_TORCH_INACTIVE_SPLIT].current, 2);
	give(&f, b);
	ck_assert_int_eq(stats_of(&f).of[CLV_TORCH_ALL][CLV_TORCH_INACTIVE_SPLIT].current, 1);
	uint32_t e = ask(&f, MIB(15));
	ck_assert_uint_eq(addr_of(&f, e), start);
	give(&f, e), give(&f, d);
	ck_assert_int_eq(stats_of(&f).of[CLV_TORCH_ALL][CLV_TORCH_INACTIVE_SPLIT].current, 0);
	ck_assert_uint_eq(stats_of(&f).stranded_bytes, 0);
	ck_assert_uint_eq(stats_of(&f).stranded_peak_bytes, MIB(15)); /* a, b and c free beside d */
	close_it(&f);
}
END_TEST

START_TEST(limits_splits)
{
	struct fixture f;
	open_with(&f, "max_split_size_mb:40", 0, 0);
	give(&f, ask(&f, MIB(40)));
	ck_assert_str_eq(log_of(&f), "+40");
	/* an oversized block serves nothing smaller than the limit, and nothing much smaller than itself */
	uint32_t a = ask(&f, MIB(38));
	ck_assert_str_eq(log_of(&f), "+38");
	uint32_t b = ask(&f, MIB(40));
	ck_assert_str_eq(log_of(&f), "");
	give(&f, b);
	give(&f, ask(&f, MIB(62)));
	ck_assert_str_eq(log_of(&f), "+62");
	uint32_t c = ask(&f, MIB(42)), d = ask(&f, MIB(42) + 1);
	/* 62 is 20 more than 42, which is as much as max_non_split_rounding: too much */
	ck_assert_str_eq(log_of(&f), "+42");
	ck_assert_uint_eq(size_of(&f, d), MIB(62)); /* whole, never split */
	ck_assert_int_eq(stats_of(&f).oversize_segments.current, 3);
	ck_assert_int_eq(stats_of(&f).oversize_allocations.current, 2);
	give(&f, a), give(&f, c), give(&f, d);
	close_it(&f);
}
END_TEST

/* A search ends at the best fit even if that may not be used and a larger one may. */
START_TEST(looks_at_one_block_only)
{
	struct fixture f;
	open_with(&f, "max_split_size_mb:100,max_non_split_rounding_mb:40", 0, 0);
	uint32_t a = ask(&f, MIB(99)), b = ask(&f, MIB(100));
	give(&f, a), give(&f, b);
	log_of(&f);
	give(&f, ask(&f, MIB(99) + 512)); /* only the oversized one is large enough */
	ck_assert_str_eq(log_of(&f), "+100");
	close_it(&f);
}
END_TEST

/* ---- the order of fallbacks ---- */

START_TEST(flushes_before_it_fails)
{
	struct fixture f;
	open_with(&f, "", 100, 0);
	/* cached: 2 small, 20 and 30 large; 20 and 2 MiB are partly in use */
	uint32_t small = ask(&f, 1000), used_small = ask(&f, 1000);
	uint32_t part = ask(&f, MIB(5)), rest = ask(&f, MIB(5));
	uint32_t a = ask(&f, MIB(30)), b = ask(&f, MIB(12)), c = ask(&f, MIB(1) - 512), d = ask(&f, MIB(1) - 512);
	ck_assert_str_eq(log_of(&f), "+2 +20 +30 +12 +2");
	give(&f, small), give(&f, part), give(&f, a), give(&f, b), give(&f, c), give(&f, d);
	/* in the order of the sets: large by size, then small; what is partly in use stays */
	uint32_t e = ask(&f, MIB(78));
	ck_assert_str_eq(log_of(&f), "!+78 -12 -30 -2 +78");
	ck_assert_uint_eq(stats_of(&f).num_alloc_retries, 1);
	ck_assert_uint_eq(stats_of(&f).num_sync_all_streams, 1);
	ck_assert_uint_eq(ask(&f, MIB(16)), CLV_TORCH_NONE);
	ck_assert_str_eq(log_of(&f), "!+16 !+16");
	ck_assert_uint_eq(stats_of(&f).num_alloc_retries, 2);
	ck_assert_uint_eq(stats_of(&f).num_ooms, 1);
	give(&f, e), give(&f, rest), give(&f, used_small);
	clv_torch_empty_cache(f.m);
	ck_assert_str_eq(log_of(&f), "-20 -78 -2");
	ck_assert_uint_eq(reserved_mib(&f), 0);
	close_it(&f);
}
END_TEST

START_TEST(keeps_to_the_limit_without_asking)
{
	struct fixture f;
	open_with(&f, "", 0, 50);
	uint32_t a = ask(&f, MIB(30));
	ck_assert_str_eq(log_of(&f), "+30");
	ck_assert_uint_eq(ask(&f, MIB(22)), CLV_TORCH_NONE);
	ck_assert_str_eq(log_of(&f), "");
	uint32_t b = ask(&f, MIB(20)); /* 30 + 20 is the limit itself */
	ck_assert_str_eq(log_of(&f), "+20");
	give(&f, a);
	uint32_t c = ask(&f, MIB(31) - 512);
	ck_assert_uint_eq(c, CLV_TORCH_NONE); /* needs 32, of 50 - 20 */
	ck_assert_str_eq(log_of(&f), "-30");
	give(&f, b);
	close_it(&f);
}
END_TEST

START_TEST(trades_in_oversized_blocks_first)
{
	struct fixture f;
	open_with(&f, "max_split_size_mb:20", 100, 0);
	uint32_t b[5];
	static const unsigned sizes[5] = {12, 20, 24, 28, 14};
	for (int i = 0; i < 5; i++)
		b[i] = ask(&f, MIB(sizes[i]));
	for (int i = 0; i < 5; i++)
		give(&f, b[i]);
	ck_assert_str_eq(log_of(&f), "+12 +20 +24 +28 +14");
	/* 48 exceeds what may be rounded up; one block as large as that: none. So the largest first until there is as much,
	 * and the smaller ones stay. */
	b[0] = ask(&f, MIB(48));
	ck_assert_str_eq(log_of(&f), "!+48 -28 -24 +48");
	ck_assert_uint_eq(stats_of(&f).num_alloc_retries, 0);
	/* one that is large enough goes alone: the smallest of them */
	b[1] = ask(&f, MIB(16));
	ck_assert_str_eq(log_of(&f), "!+16 -20 +16");
	/* not enough of them: they are gone all the same, then everything is flushed */
	give(&f, b[0]);
	b[2] = ask(&f, MIB(70));
	ck_assert_str_eq(log_of(&f), "!+70 -48 -12 -14 +70");
	ck_assert_uint_eq(stats_of(&f).num_alloc_retries, 1);
	give(&f, b[1]), give(&f, b[2]);
	close_it(&f);
}
END_TEST

START_TEST(flushes_only_the_blocks_of_the_stream_when_it_trades_in)
{
	struct fixture f;
	open_with(&f, "max_split_size_mb:20", 64, 0);
	uint32_t a = get(&f, MIB(30), S1, 0), b = ask(&f, MIB(20));
	give(&f, a), give(&f, b);
	log_of(&f);
	/* a block of another stream stands at the place of the search, and those before it are looked at */
	uint32_t c = ask(&f, MIB(22));
	ck_assert_str_eq(log_of(&f), "!+22 -20 -30 +22"); /* 20 alone were not enough: then the flush */
	give(&f, c);
	close_it(&f);
}
END_TEST

/* Free segments of 10, 12 and 14 MiB that the next search finds 3, 1 and 1 searches old, above a threshold of 50. */
static void open_aged(struct fixture *f)
{
	open_with(f, "garbage_collection_threshold:0.5", 0, 100);
	uint32_t a = ask(f, MIB(10)), b = ask(f, MIB(12)), c = ask(f, MIB(14));
	give(f, a), give(f, c);
	give(f, ask(f, MIB(13)));
	give(f, ask(f, MIB(13)));
	give(f, b);
	ck_assert_str_eq(log_of(f), "+10 +12 +14");
}

START_TEST(collects_what_is_older_than_the_mean)
{
	struct fixture f;
	open_aged(&f);
	ask(&f, MIB(16));
	ck_assert_str_eq(log_of(&f), "+16"); /* 36 were held: nothing to collect */
	/* 52 are held, 2 too many; ages 4, 2, 2: one is above the mean of 8/3, and it is enough */
	ask(&f, MIB(18));
	ck_assert_str_eq(log_of(&f), "-10 +18");
	/* 60 are held, 10 too many; ages 3, 3: both are at the mean, and a pass does not stop half way */
	ask(&f, MIB(30));
	ck_assert_str_eq(log_of(&f), "-12 -14 +30");
	ck_assert_uint_eq(stats_of(&f).num_alloc_retries, 0);
	close_it(&f);

	/* 66 are held, 16 too many: the 10 of the first pass are not enough, so there is a second with a mean of 2 */
	open_aged(&f);
	ask(&f, MIB(30));
	ck_assert_str_eq(log_of(&f), "+30");
	ask(&f, MIB(18));
	ck_assert_str_eq(log_of(&f), "-10 -12 -14 +18");
	close_it(&f);

	/* without a limit there is no threshold */
	open_with(&f, "garbage_collection_threshold:0.1", 0, 0);
	give(&f, ask(&f, MIB(10)));
	give(&f, ask(&f, MIB(12)));
	ck_assert_str_eq(log_of(&f), "+10 +12");
	close_it(&f);
}
END_TEST

START_TEST(leaves_pools_alone_while_they_live)
{
	struct fixture f;
	open_with(&f, "", 100, 0);
	uint32_t pool = clv_torch_pool_create(f.m, NULL);
	give(&f, get(&f, MIB(40), S0, pool));
	give(&f, get(&f, 1000, S0, pool));
	give(&f, ask(&f, MIB(40)));
	ck_assert_str_eq(log_of(&f), "+40 +2 +40");
	/* a request to the pool flushes nothing, one to the default pool nothing of the pool */
	ck_assert_uint_eq(get(&f, MIB(50), S0, pool), CLV_TORCH_NONE);
	ck_assert_str_eq(log_of(&f), "!+50");
	ck_assert_uint_eq(ask(&f, MIB(60)), CLV_TORCH_NONE);
	ck_assert_str_eq(log_of(&f), "!+60 -40 !+60");
	clv_torch_empty_cache(f.m);
	ck_assert_str_eq(log_of(&f), "");
	ck_assert_uint_eq(clv_torch_unused_private(f.m), MIB(42));
	/* its last user goes: small segments first */
	clv_torch_pool_release(f.m, pool);
	ck_assert_uint_eq(ask(&f, MIB(98)) != CLV_TORCH_NONE, 1);
	ck_assert_str_eq(log_of(&f), "!+98 -2 -40 +98");
	close_it(&f);
}
END_TEST

START_TEST(empties_one_pool)
{
	struct fixture f;
	open_with(&f, "", 0, 0);
	uint32_t p = clv_torch_pool_create(f.m, NULL), q = clv_torch_pool_create(f.m, NULL);
	give(&f, get(&f, MIB(40), S0, p));
	give(&f, get(&f, MIB(44), S0, q));
	give(&f, ask(&f, MIB(48)));
	log_of(&f);
	clv_torch_pool_release(f.m, q);
	clv_torch_pool_release(f.m, p);
	clv_torch_empty_pool(f.m, p);
	ck_assert_str_eq(log_of(&f), "-40");
	clv_torch_empty_cache(f.m);
	ck_assert_str_eq(log_of(&f), "-48 -44");
	close_it(&f);
}
END_TEST

START_TEST(falls_back_to_marked_pools)
{
	struct fixture f;
	open_with(&f, "", 100, 0);
	struct clv_torch_pool_options marked = {.use_on_oom = true};
	uint32_t plain = clv_torch_pool_create(f.m, NULL), spare = clv_torch_pool_create(f.m, &marked);
	give(&f, get(&f, MIB(30), S0, plain));
	uint32_t inside = get(&f, MIB(40), S0, spare);
	uint64_t at = addr_of(&f, inside);
	give(&f, inside);
	give(&f, ask(&f, MIB(20)));
	log_of(&f);
	/* before anything is flushed */
	uint32_t a = ask(&f, MIB(38));
	ck_assert_str_eq(log_of(&f), "!+38");
	ck_assert_uint_eq(addr_of(&f, a), at);
	struct clv_torch_block_info info;
	clv_torch_block_get(f.m, a, &info);
	ck_assert_uint_eq(info.pool, spare);
	/* not for requests to other pools */
	give(&f, a);
	ck_assert_uint_eq(get(&f, MIB(38), S0, plain), CLV_TORCH_NONE);
	close_it(&f);
}
END_TEST

START_TEST(never_splits_in_a_pool_that_forbids_it)
{
	struct fixture f;
	open_with(&f, "", 0, 0);
	struct clv_torch_pool_options whole = {.no_split = true};
	uint32_t pool = clv_torch_pool_create(f.m, &whole);
	ck_assert_uint_eq(size_of(&f, get(&f, MIB(3), S0, pool)), MIB(20));
	ck_assert_uint_eq(size_of(&f, get(&f, 512, S0, pool)), MIB(2));
	close_it(&f);
}
END_TEST

/* ---- deferred frees ---- */

START_TEST(lets_frees_pend)
{
	struct fixture f;
	open_with(&f, "", 0, 0);
	uint32_t a = ask(&f, MIB(5)), b = ask(&f, MIB(5)), c = ask(&f, MIB(10));
	clv_torch_record_stream(f.m, a, S0); /* its own stream: nothing to wait for */
	ck_assert(clv_torch_free(f.m, a));
	clv_torch_record_stream(f.m, b, S1);
	ck_assert(!clv_torch_free(f.m, b));
	check(&f);
	ck_assert_uint_eq(clv_torch_pending(f.m), 1);
	/* it is neither merged nor used */
	ck_assert_int_eq(stats_of(&f).of[CLV_TORCH_ALL][CLV_TORCH_ALLOCATED_BYTES].current, MIB(10));
	ck_assert_int_eq(stats_of(&f).of[CLV_TORCH_ALL][CLV_TORCH_ACTIVE_BYTES].current, MIB(15));
	log_of(&f);
	uint32_t d = ask(&f, MIB(9));
	ck_assert_str_eq(log_of(&f), "+20");
	clv_torch_free_completed(f.m, b);
	check(&f);
	uint32_t e = ask(&f, MIB(10));
	ck_assert_str_eq(log_of(&f), "");
	give(&f, c), give(&f, d), give(&f, e);
	close_it(&f);
}
END_TEST

START_TEST(completes_pending_frees_in_a_flush)
{
	struct fixture f;
	open_with(&f, "", 100, 0);
	uint32_t a = ask(&f, MIB(40)), b = ask(&f, MIB(60));
	clv_torch_record_stream(f.m, a, S1), clv_torch_record_stream(f.m, b, S1);
	ck_assert(!clv_torch_free(f.m, b) && !clv_torch_free(f.m, a));
	log_of(&f);
	ck_assert_uint_ne(ask(&f, MIB(80)), CLV_TORCH_NONE);
	ck_assert_str_eq(log_of(&f), "!+80 -40 -60 +80");
	ck_assert_uint_eq(clv_torch_pending(f.m), 0);
	close_it(&f);
}
END_TEST

CHECK_MAIN("torch_allocator", rounds_as_torch_does, sizes_segments_as_torch_does, answers_odd_requests,
	   splits_small_blocks_at_512_and_large_ones_above_a_mib, takes_the_best_fit_and_of_equals_the_lowest,
	   breaks_ties_as_asked, keeps_streams_and_pools_apart, merges_with_both_neighbours, limits_splits,
	   looks_at_one_block_only, flushes_before_it_fails, keeps_to_the_limit_without_asking,
	   trades_in_oversized_blocks_first, flushes_only_the_blocks_of_the_stream_when_it_trades_in,
	   collects_what_is_older_than_the_mean, leaves_pools_alone_while_they_live, empties_one_pool,
	   falls_back_to_marked_pools, never_splits_in_a_pool_that_forbids_it, lets_frees_pend,
	   completes_pending_frees_in_a_flush)
