/* SPDX-License-Identifier: MIT
 *
 * Shapes of public bug reports against PyTorch's allocator, with the numbers given there: the model must be as bad.
 */
#include "../tracing/policies/torch_device.h"
#include "check_main.h"

#define MIB(x) ((uint64_t)((x)*1048576.0))
#define STREAM 0u
#define OTHER_STREAM 0x1000u

struct torch {
	struct clv_torch *m;
	struct clv_torch_device device;
};

static void open_torch(struct torch *t, const char *conf, uint64_t capacity)
{
	struct clv_torch_config config = {.limit = CLV_TORCH_UNLIMITED};
	struct clv_error err = {""};
	ck_assert_msg(clv_torch_settings_parse(&config.settings, conf, &err), "%s", err.text);
	clv_torch_device_init(&t->device, capacity);
	config.source = clv_torch_device_source(&t->device);
	t->m = clv_torch_open(&config);
	ck_assert_ptr_nonnull(t->m);
}

static uint32_t ask_pool(struct torch *t, double mib, uint32_t pool)
{
	struct clv_torch_request r = {.size = MIB(mib), .stream = STREAM, .pool = pool, .capturing = pool != 0};
	uint32_t block;
	ck_assert_int_ne(clv_torch_malloc(t->m, &r, &block), CLV_TORCH_NO_HOST_MEMORY);
	return block;
}

static uint32_t ask(struct torch *t, double mib)
{
	return ask_pool(t, mib, 0);
}

static void give(struct torch *t, uint32_t block)
{
	ck_assert_uint_ne(block, CLV_TORCH_NONE);
	ck_assert(clv_torch_free(t->m, block));
}

static double mib(uint64_t bytes)
{
	return (double)bytes / 1048576.0;
}

static double reserved(const struct torch *t)
{
	return mib(clv_torch_reserved(t->m));
}

static double live(const struct torch *t)
{
	struct clv_torch_stats s;
	clv_torch_get_stats(t->m, &s);
	return mib((uint64_t)s.of[CLV_TORCH_ALL][CLV_TORCH_ALLOCATED_BYTES].current);
}

static double stranded(const struct torch *t)
{
	struct clv_torch_stats s;
	clv_torch_get_stats(t->m, &s);
	return mib(s.stranded_bytes);
}

static void close_torch(struct torch *t)
{
	char why[256];
	ck_assert_msg(clv_torch_check(t->m, why, sizeof(why)), "%s", why);
	clv_torch_close(t->m);
}

/* Temporaries of 91 and 45.5 MiB with 2 MiB kept a round: each round takes fresh pages, since what the last one freed is one
 * block of more than max_split_size. */
START_TEST(expandable_segments_with_max_split)
{
	struct torch t;
	open_torch(&t, "expandable_segments:True,max_split_size_mb:128", 0);
	ask(&t, 64);
	for (int round = 1; round <= 101; round++) {
		uint32_t a = ask(&t, 91), b = ask(&t, 45.5);
		ask(&t, 2);
		give(&t, a), give(&t, b);
		if (round == 1) {
			ck_assert_double_eq(reserved(&t), 220);
			ck_assert_double_eq(live(&t), 66);
		}
	}
	ck_assert_double_eq(reserved(&t), 14060);
	ck_assert_double_eq(live(&t), 266);
	close_torch(&t);

	/* without max_split_size the temporaries are served again and again by the same pages */
	open_torch(&t, "expandable_segments:True", 0);
	ask(&t, 64);
	for (int round = 1; round <= 101; round++) {
		uint32_t a = ask(&t, 91), b = ask(&t, 45.5);
		ask(&t, 2);
		give(&t, a), give(&t, b);
	}
	ck_assert_double_le(reserved(&t), 420);
	close_torch(&t);
}
END_TEST

/* What 530 leaves serves 270, and the next 530 finds no room. */
START_TEST(two_sizes_that_do_not_fit_each_other)
{
	struct torch t;
	open_torch(&t, "", 0);
	for (int round = 1; round <= 36; round++) {
		uint32_t a = ask(&t, 530);
		give(&t, a);
		ask(&t, 270);
		ck_assert_double_eq(stranded(&t), round * 260);
	}
	ck_assert_double_eq(reserved(&t), 19080);
	ck_assert_double_eq(live(&t), 9720);
	close_torch(&t);
}
END_TEST

START_TEST(segments_do_not_join)
{
	struct torch t;
	uint32_t blocks[8];
	open_torch(&t, "", 0);
	for (int i = 0; i < 8; i++)
		blocks[i] = ask(&t, 16);
	for (int i = 0; i < 8; i++)
		give(&t, blocks[i]);
	for (int i = 0; i < 4; i++)
		ask(&t, 32);
	ck_assert_double_eq(reserved(&t), 256);
	ck_assert_double_eq(live(&t), 128);
	close_torch(&t);
}
END_TEST

/* The flush completes the pending frees, but what they free is not searched again before the failure. */
START_TEST(oom_although_the_flush_made_room)
{
	struct torch t;
	open_torch(&t, "", MIB(100));
	give(&t, ask(&t, 90));
	uint32_t pending = ask(&t, 60);
	ask(&t, 30);
	ck_assert_double_eq(reserved(&t), 90); /* in one segment */
	clv_torch_record_stream(t.m, pending, OTHER_STREAM);
	ck_assert(!clv_torch_free(t.m, pending));
	ck_assert_uint_eq(ask(&t, 60), CLV_TORCH_NONE);
	ck_assert_uint_ne(ask(&t, 60), CLV_TORCH_NONE);
	close_torch(&t);
}
END_TEST

START_TEST(memory_of_a_live_pool_is_stuck)
{
	struct torch t;
	for (uint32_t in_pool = 0; in_pool < 2; in_pool++) {
		open_torch(&t, "", MIB(100 * 1024));
		uint32_t pool = clv_torch_pool_create(t.m, NULL);
		ck_assert_uint_eq(pool, 1);
		give(&t, ask_pool(&t, 60 * 1024, in_pool));
		ck_assert_int_eq(ask_pool(&t, 70 * 1024, in_pool) == CLV_TORCH_NONE, in_pool == 1);
		/* nor can the default pool have it */
		ck_assert_int_eq(ask(&t, 70 * 1024) == CLV_TORCH_NONE, 1);
		close_torch(&t);
	}
}
END_TEST

/* The temporary's segment, free, is one block of max_split_size, which serves no smaller request: a new segment each time. */
START_TEST(max_split_at_the_size_of_a_segment)
{
	struct torch t;
	struct clv_rng rng = {7};
	open_torch(&t, "max_split_size_mb:20", 0);
	for (int i = 1; i <= 100; i++) {
		give(&t, ask(&t, 1.001 + (double)clv_rng_below(&rng, 8900) / 1000));
		ck_assert_double_eq(reserved(&t), 20 * i);
	}
	close_torch(&t);
	open_torch(&t, "max_split_size_mb:64", 0);
	for (int i = 1; i <= 100; i++) {
		give(&t, ask(&t, 63));
		ck_assert_double_eq(reserved(&t), 64 * i);
	}
	close_torch(&t);
	/* one MiB more, and one segment serves all */
	open_torch(&t, "max_split_size_mb:21", 0);
	for (int i = 1; i <= 100; i++)
		give(&t, ask(&t, 9));
	ck_assert_double_eq(reserved(&t), 20);
	close_torch(&t);
}
END_TEST

/* 66 layers of 147 and 73.5 MiB beside 25 MiB ones, on a device with 8 MiB more than they need. */
static bool load_layers(const char *conf, double slack_mib, double *need_mib)
{
	struct torch t;
	bool fits = true;
	*need_mib = 66 * (147 + 73.5 + 25);
	open_torch(&t, conf, MIB(*need_mib + slack_mib));
	for (int i = 0; i < 66 && fits; i++)
		fits = ask(&t, 147) && ask(&t, 73.5) && ask(&t, 25);
	close_torch(&t);
	return fits;
}

START_TEST(rounding_to_two_mib_does_not_fit)
{
	double need;
	ck_assert(!load_layers("", 8, &need));
	ck_assert(!load_layers("max_split_size_mb:20", 8, &need));
	ck_assert(!load_layers("", 66 * 2.5 - 2, &need)); /* 148 + 74 + 26 a layer */
	ck_assert(load_layers("", 66 * 2.5, &need));
	ck_assert(load_layers("expandable_segments:True", 20, &need)); /* only the last page is cut */
}
END_TEST

CHECK_MAIN("torch_bugs", expandable_segments_with_max_split, two_sizes_that_do_not_fit_each_other, segments_do_not_join,
	   oom_although_the_flush_made_room, memory_of_a_live_pool_is_stuck, max_split_at_the_size_of_a_segment,
	   rounding_to_two_mib_does_not_fit)
