/* SPDX-License-Identifier: MIT
 *
 * The shelf beside a plain list: the lowest hole of an item is the lowest of all places at the ground or on something that
 * collide with nothing.
 */
#include "../src/plan/pack_shelf.h"
#include "check_main.h"
#include "pack_maker.h"

#include <inttypes.h>

static bool collides(const struct clv_pack_problem *p, uint32_t i, uint64_t at, const uint64_t *offset)
{
	for (uint32_t k = 0; k < p->count; k++)
		if (offset[k] != UINT64_MAX && at < offset[k] + p->items[k].size && offset[k] < at + p->items[i].size &&
		    clv_pack_items_share_section(p, &p->items[i], &p->items[k]))
			return true;
	return false;
}

static uint64_t plain_lowest(const struct clv_pack_problem *p, uint32_t i, const uint64_t *offset)
{
	uint64_t align = p->items[i].align, best = UINT64_MAX;
	if (!collides(p, i, 0, offset))
		return 0;
	for (uint32_t k = 0; k < p->count; k++) {
		if (offset[k] == UINT64_MAX)
			continue;
		uint64_t at = (offset[k] + p->items[k].size + align - 1) / align * align;
		if (at < best && !collides(p, i, at, offset))
			best = at;
	}
	return best;
}

/* Items at random heights, whatever is there; then a look at each that is not placed. */
static void compare(size_t count, unsigned kinds, uint64_t seed, uint32_t levels_at_least)
{
	struct pack_made m = pack_make(count, kinds, seed);
	struct clv_pack_problem p;
	struct clv_error err = {""};
	struct clv_pack_shelf s;
	struct clv_rng rng = {.state = seed};
	ck_assert_msg(clv_pack_problem_make(&p, m.buffers, m.count, &err), "%s", err.text);
	uint64_t *offset = pack_room(p.count, sizeof(*offset)), work = 0;
	ck_assert(clv_pack_shelf_make(&s, &p));
	ck_assert_uint_ge(s.levels, levels_at_least);
	for (int round = 0; round < 2; round++) {
		clv_pack_shelf_clear(&s);
		for (uint32_t i = 0; i < p.count; i++) {
			offset[i] = UINT64_MAX;
			if (clv_rng_below(&rng, 4) == 0)
				continue;
			offset[i] = clv_rng_below(&rng, 2) ? clv_pack_shelf_lowest(&s, i, &work)
							   : clv_rng_below(&rng, 2 * p.load_max);
			clv_pack_shelf_add(&s, i, offset[i]);
		}
		for (uint32_t looks = 0; looks < 60; looks++) {
			uint32_t i = (uint32_t)clv_rng_below(&rng, p.count);
			uint64_t was = offset[i], expected;
			if (was != UINT64_MAX)
				continue;
			expected = plain_lowest(&p, i, offset);
			ck_assert_msg(clv_pack_shelf_lowest(&s, i, &work) == expected,
				      "count %zu, kinds %u, seed %" PRIu64 ", item %" PRIu32, count, kinds, seed, i);
		}
	}
	clv_pack_shelf_free(&s);
	clv_pack_problem_free(&p);
	free(offset);
	pack_made_free(&m);
}

START_TEST(lowest_holes)
{
	for (uint64_t seed = 1; seed <= 12; seed++)
		for (unsigned kinds = 0; kinds < PACK_KINDS; kinds += 5)
			compare(1 + seed * 20, kinds, seed, 1);
	compare(1500, PACK_PINWHEELS, 1, 2);
	compare(1500, PACK_ALIGNED | PACK_GAPS, 2, 2);
	compare(6000, PACK_PINWHEELS, 3, 3);
	compare(6000, PACK_KINDS - 1, 4, 2);
}
END_TEST

CHECK_MAIN("pack_shelf", lowest_holes)
