/* SPDX-License-Identifier: MIT */
#include "../tracing/policies/torch_device.h"
#include "../tracing/policies/torch_force.h"
#include "check_main.h"

#include <string.h>

#define MIB(x) ((uint64_t)(x)*CLV_MIB)
#define BASE ((uint64_t)1 << 40)

struct fixture {
	struct clv_torch *m;
	struct clv_torch_device device;
	uint32_t lost[64], lost_count;
};

static const struct clv_torch_place large = {.stream = 7}, small = {.stream = 7, .small = true};

static void lose(void *ctx, uint32_t owner)
{
	struct fixture *f = ctx;
	f->lost[f->lost_count++ % CLV_ARRAY_LEN(f->lost)] = owner;
}

static void open_with(struct fixture *f, bool expandable)
{
	struct clv_torch_config config = {.limit = CLV_TORCH_UNLIMITED, .find = true};
	*f = (struct fixture){0};
	clv_torch_settings_default(&config.settings);
	config.settings.expandable = expandable;
	clv_torch_device_init(&f->device, 0);
	config.source = clv_torch_device_source(&f->device);
	f->m = clv_torch_open(&config);
	ck_assert_ptr_nonnull(f->m);
}

static void check(const struct fixture *f)
{
	char why[256];
	ck_assert_msg(clv_torch_check(f->m, why, sizeof(why)), "%s", why);
}

static uint32_t put(struct fixture *f, uint64_t addr, uint64_t size, uint32_t owner)
{
	struct clv_torch_request r = {.size = size, .stream = 7, .owner = owner};
	uint32_t block = clv_torch_put_block(f->m, addr, size, &r);
	check(f);
	return block;
}

START_TEST(puts_blocks_anywhere_in_a_segment)
{
	struct fixture f;
	struct clv_torch_lost lost = {lose, &f};
	open_with(&f, false);
	ck_assert(clv_torch_put_segment(f.m, &large, BASE, MIB(40), &lost));
	check(&f);
	uint32_t a = put(&f, BASE + MIB(10), MIB(5), 1);
	ck_assert_uint_ne(a, CLV_TORCH_NONE);
	ck_assert_uint_ne(put(&f, BASE, MIB(10), 2), CLV_TORCH_NONE);
	ck_assert_uint_ne(put(&f, BASE + MIB(35), MIB(5), 3), CLV_TORCH_NONE);
	/* there is something already, or not enough room, or nothing at all */
	ck_assert_uint_eq(put(&f, BASE + MIB(10), MIB(1), 4), CLV_TORCH_NONE);
	ck_assert_uint_eq(put(&f, BASE + MIB(30), MIB(6), 5), CLV_TORCH_NONE);
	ck_assert_uint_eq(put(&f, BASE + MIB(40), MIB(1), 6), CLV_TORCH_NONE);
	/* what was thought to be the tail of a block in use is not */
	ck_assert_uint_ne(put(&f, BASE + MIB(13), MIB(4), 7), CLV_TORCH_NONE);
	struct clv_torch_block_info b;
	clv_torch_block_get(f.m, a, &b);
	ck_assert_uint_eq(b.size, MIB(3));
	ck_assert(clv_torch_free(f.m, a));
	check(&f);
	ck_assert_uint_eq(f.lost_count, 0);
	/* a segment over it: everything in it is lost */
	ck_assert(clv_torch_put_segment(f.m, &small, BASE + MIB(38), MIB(2), &lost));
	check(&f);
	ck_assert_uint_eq(f.lost_count, 3);
	ck_assert_uint_eq(clv_torch_reserved(f.m), MIB(2));
	ck_assert(clv_torch_drop_segment(f.m, BASE + MIB(39), &lost));
	ck_assert(!clv_torch_drop_segment(f.m, BASE + MIB(39), &lost));
	ck_assert_uint_eq(clv_torch_reserved(f.m), 0);
	check(&f);
	clv_torch_close(f.m);
}
END_TEST

START_TEST(sizes_blocks_as_a_search_would)
{
	struct fixture f;
	struct clv_torch_lost lost = {lose, &f};
	struct clv_torch_request r = {.size = MIB(19)};
	open_with(&f, false);
	clv_torch_put_segment(f.m, &large, BASE, MIB(20), &lost);
	clv_torch_put_segment(f.m, &small, BASE + MIB(20), MIB(2), &lost);
	ck_assert_uint_eq(clv_torch_size_at(f.m, BASE, &r), MIB(20)); /* 1 MiB is not split off */
	r.size = MIB(19) - 512;
	ck_assert_uint_eq(clv_torch_size_at(f.m, BASE, &r), MIB(19) - 512);
	r.size = MIB(1) + 512;
	ck_assert_uint_eq(clv_torch_size_at(f.m, BASE + MIB(19), &r), MIB(1)); /* all that is there */
	r.size = 100;
	ck_assert_uint_eq(clv_torch_size_at(f.m, BASE + MIB(20), &r), 512);
	ck_assert_uint_eq(clv_torch_size_at(f.m, BASE + MIB(22), &r), 0);
	clv_torch_close(f.m);
}
END_TEST

START_TEST(maps_pages_anywhere_in_a_reservation)
{
	struct fixture f;
	struct clv_torch_lost lost = {lose, &f};
	open_with(&f, true);
	ck_assert(clv_torch_put_expandable(f.m, &large, BASE, MIB(200)));
	check(&f);
	ck_assert(clv_torch_put_mapped(f.m, &large, BASE + MIB(40), MIB(40)));
	check(&f);
	ck_assert(clv_torch_put_mapped(f.m, &large, BASE + MIB(80), MIB(20)));
	check(&f);
	ck_assert(!clv_torch_put_mapped(f.m, &large, BASE + MIB(60), MIB(20)));
	ck_assert(!clv_torch_put_mapped(f.m, &small, BASE, MIB(20))); /* of another pool */
	ck_assert(!clv_torch_put_mapped(f.m, &large, BASE + MIB(180), MIB(40)));
	ck_assert_uint_ne(put(&f, BASE + MIB(50), MIB(25), 1), CLV_TORCH_NONE);
	ck_assert(!clv_torch_put_unmapped(f.m, BASE + MIB(60), MIB(20)));
	ck_assert(clv_torch_put_unmapped(f.m, BASE + MIB(80), MIB(20)));
	check(&f);
	ck_assert_uint_eq(clv_torch_reserved(f.m), MIB(40));
	/* the model goes on from there: 10 MiB before the block, then 40 unmapped before those */
	struct clv_torch_request r = {.size = MIB(45), .stream = 7};
	uint32_t block;
	ck_assert_int_eq(clv_torch_malloc(f.m, &r, &block), CLV_TORCH_OK);
	ck_assert_uint_eq(clv_torch_block_addr(f.m, block), BASE);
	check(&f);
	ck_assert(clv_torch_drop_segment(f.m, BASE + MIB(199), &lost));
	ck_assert_uint_eq(f.lost_count, 2);
	check(&f);
	clv_torch_close(f.m);
}
END_TEST

/* Anything at all, at a few dozen addresses: the structures stay sound. */
START_TEST(survives_anything)
{
	for (uint64_t seed = 0; seed < 40; seed++) {
		struct fixture f;
		struct clv_rng rng = {seed};
		struct clv_torch_lost lost = {lose, &f};
		open_with(&f, seed % 2);
		if (seed % 2)
			clv_torch_put_expandable(f.m, &large, BASE + MIB(400), MIB(400));
		for (int i = 0; i < 400; i++) {
			uint64_t addr = BASE + MIB(clv_rng_below(&rng, 800)), size = MIB(clv_rng_range(&rng, 1, 30));
			uint64_t page = BASE + MIB(400) + MIB(20) * clv_rng_below(&rng, 20);
			uint32_t block = clv_torch_find(f.m, addr);
			struct clv_torch_block_info b;
			switch (clv_rng_below(&rng, 8)) {
			case 0:
				clv_torch_put_segment(f.m, &large, addr, size, &lost);
				break;
			case 1:
				clv_torch_put_mapped(f.m, &large, page, MIB(20) * clv_rng_range(&rng, 1, 3));
				break;
			case 2:
				clv_torch_put_unmapped(f.m, page, MIB(20) * clv_rng_range(&rng, 1, 3));
				break;
			case 3:
				if (clv_rng_below(&rng, 4) == 0)
					clv_torch_drop_segment(f.m, addr, &lost);
				break;
			case 4:
				clv_torch_block_get(f.m, block, &b);
				if (b.allocated)
					clv_torch_free(f.m, block);
				break;
			case 5: {
				struct clv_torch_request r = {.size = size, .stream = 7};
				ck_assert_int_ne(clv_torch_malloc(f.m, &r, &block), CLV_TORCH_NO_HOST_MEMORY);
				break;
			}
			default:
				put(&f, addr + 512 * clv_rng_below(&rng, 3), size, (uint32_t)i);
				break;
			}
			check(&f);
		}
		clv_torch_close(f.m);
	}
}
END_TEST

CHECK_MAIN("torch_force", puts_blocks_anywhere_in_a_segment, sizes_blocks_as_a_search_would,
	   maps_pages_anywhere_in_a_reservation, survives_anything)
