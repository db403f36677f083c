/* SPDX-License-Identifier: MIT */
#include "../src/heap/binmap.h"
#include "check_main.h"

#include <inttypes.h>
#include <string.h>

#define NODES 600

static struct clv_binmap map;
static struct clv_bin_node nodes[NODES];

static void clear(void)
{
	memset(&map, 0, sizeof(map));
	memset(nodes, 0, sizeof(nodes));
}

static void valid(void)
{
	const char *broken = clv_binmap_check(&map);
	ck_assert_msg(!broken, "%s", broken);
}

START_TEST(empty_has_nothing)
{
	clear();
	ck_assert_ptr_null(clv_bin_ceil(&map, 1));
	ck_assert_ptr_null(clv_bin_ceil(&map, UINT64_MAX));
	ck_assert_ptr_null(clv_bin_floor(&map, 1));
	ck_assert_ptr_null(clv_bin_floor(&map, UINT64_MAX));
	clv_bin_remove(&map, &nodes[0]); /* in no index: left alone */
	valid();
	ck_assert_uint_eq(map.count, 0);
}
END_TEST

START_TEST(exact_up_to_64_grains)
{
	clear();
	for (unsigned i = 1; i < CLV_BIN_LINEAR; i++)
		clv_bin_insert(&map, &nodes[i], i * CLV_GRAIN, &nodes[i]);
	valid();
	for (unsigned i = 1; i < CLV_BIN_LINEAR; i++) {
		ck_assert_ptr_eq(clv_bin_ceil(&map, i * CLV_GRAIN), &nodes[i]);
		ck_assert_ptr_eq(clv_bin_floor(&map, i * CLV_GRAIN), &nodes[i]);
		clv_bin_remove(&map, &nodes[i]);
		ck_assert_ptr_eq(clv_bin_ceil(&map, i * CLV_GRAIN), i + 1 < CLV_BIN_LINEAR ? &nodes[i + 1] : NULL);
		ck_assert_ptr_eq(clv_bin_floor(&map, i * CLV_GRAIN), i > 1 ? &nodes[i - 1] : NULL);
		clv_bin_insert(&map, &nodes[i], i * CLV_GRAIN, NULL);
	}
	valid();
}
END_TEST

START_TEST(largest_sizes)
{
	static const uint64_t sizes[] = {CLV_GRAIN, CLV_GIB, (uint64_t)1 << 48, (uint64_t)1 << 51, (uint64_t)1 << 52, (uint64_t)1 << 62};
	clear();
	for (unsigned i = 0; i < CLV_ARRAY_LEN(sizes); i++)
		clv_bin_insert(&map, &nodes[i], sizes[i], &nodes[i]);
	valid();
	ck_assert_uint_eq(map.count, CLV_ARRAY_LEN(sizes));
	ck_assert_uint_ge(clv_bin_floor(&map, UINT64_MAX)->size, (uint64_t)1 << 51);
	ck_assert_uint_ge(clv_bin_ceil(&map, (uint64_t)1 << 51)->size, (uint64_t)1 << 51);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(sizes); i++)
		clv_bin_remove(&map, &nodes[i]);
	valid();
	ck_assert_uint_eq(map.bytes, 0);
}
END_TEST

/* Sizes of one bin differ by at most 1/32. */
static bool near(uint64_t small, uint64_t large)
{
	return large <= small + small / 32 + CLV_GRAIN;
}

/* Against the plain array of nodes. */
static void compare(uint64_t size)
{
	uint64_t best = UINT64_MAX, most = 0;
	for (unsigned i = 0; i < NODES; i++) {
		if (!clv_bin_indexed(&nodes[i]))
			continue;
		if (nodes[i].size >= size)
			best = clv_min_u64(best, nodes[i].size);
		if (nodes[i].size <= size)
			most = clv_max_u64(most, nodes[i].size);
	}
	const struct clv_bin_node *up = clv_bin_ceil(&map, size), *down = clv_bin_floor(&map, size);
	const struct clv_bin_node *any = clv_bin_search(&map, size);
	ck_assert_msg(!any == (best == UINT64_MAX), "search %" PRIu64 " misses %" PRIu64, size, best);
	ck_assert(!any || (any->size >= size && clv_bin_indexed(any)));
	ck_assert_msg(up || best == UINT64_MAX || near(size, best), "ceil %" PRIu64 " misses %" PRIu64, size, best);
	if (up) {
		ck_assert(clv_bin_indexed(up));
		ck_assert_uint_ge(up->size, size);
		ck_assert_msg(near(best, up->size) || near(size, best), "ceil %" PRIu64 " is %" PRIu64 ", not %" PRIu64, size, up->size, best);
	}
	ck_assert_msg(down || most == 0 || near(most, size), "floor %" PRIu64 " misses %" PRIu64, size, most);
	if (down) {
		ck_assert(clv_bin_indexed(down));
		ck_assert_uint_le(down->size, size);
		ck_assert_msg(near(down->size, most) || near(most, size), "floor %" PRIu64 " is %" PRIu64 ", not %" PRIu64, size, down->size, most);
	}
	/* walks: each node fits, none comes twice, bins in order */
	unsigned walked = 0;
	uint64_t last = 0;
	for (const struct clv_bin_node *n = up; n; n = clv_bin_up(&map, n, size)) {
		if (n->size < size || !(n->size >= last || near(n->size, last)) || ++walked > NODES)
			ck_abort_msg("the walk up from %" PRIu64 " comes to %" PRIu64, size, n->size);
		last = n->size;
	}
	walked = 0;
	last = UINT64_MAX;
	for (const struct clv_bin_node *n = down; n; n = clv_bin_down(&map, n, size)) {
		if (n->size > size || !(n->size <= last || near(last, n->size)) || ++walked > NODES)
			ck_abort_msg("the walk down from %" PRIu64 " comes to %" PRIu64, size, n->size);
		last = n->size;
	}
}

START_TEST(random_against_a_list)
{
	for (uint64_t seed = 0; seed < 6; seed++) {
		struct clv_rng rng = {seed};
		clear();
		uint64_t count = 0, bytes = 0;
		for (unsigned step = 0; step < 3000; step++) {
			struct clv_bin_node *n = &nodes[clv_rng_below(&rng, NODES)];
			/* sizes close together, so that bins have many nodes, and far apart */
			uint64_t size = seed % 2 ? clv_rng_range(&rng, 1, 3000) * CLV_GRAIN
						 : clv_rng_range(&rng, 1, 63) << clv_rng_range(&rng, 9, 40);
			if (clv_bin_indexed(n)) {
				count--;
				bytes -= n->size;
				clv_bin_remove(&map, n);
			} else if (clv_rng_below(&rng, 4) || count < 10) {
				clv_bin_insert(&map, n, size, n);
				count++;
				bytes += size;
			}
			ck_assert_uint_eq(map.count, count);
			ck_assert_uint_eq(map.bytes, bytes);
			if (step % 16 == 0) {
				compare(size);
				compare(n->size ? n->size : 1);
				valid();
			}
		}
	}
}
END_TEST

/* clv_binmap_check is what other tests rely on: it must tell. */
START_TEST(check_tells)
{
	clear();
	clv_bin_insert(&map, &nodes[0], CLV_MIB, &nodes[0]);
	clv_bin_insert(&map, &nodes[1], CLV_MIB, &nodes[1]);
	valid();
	nodes[0].size = 2 * CLV_MIB;
	ck_assert_ptr_nonnull(clv_binmap_check(&map));
	nodes[0].size = CLV_MIB;
	map.count++;
	ck_assert_ptr_nonnull(clv_binmap_check(&map));
	map.count--;
	map.summary ^= 1u << 7;
	ck_assert_ptr_nonnull(clv_binmap_check(&map));
	map.summary ^= 1u << 7;
	map.words[3] ^= 1;
	ck_assert_ptr_nonnull(clv_binmap_check(&map));
	map.words[3] ^= 1;
	struct clv_bin_node **link = nodes[0].link;
	nodes[0].link = nodes[1].link;
	ck_assert_ptr_nonnull(clv_binmap_check(&map));
	nodes[0].link = link;
	valid();
}
END_TEST

CHECK_MAIN("binmap", empty_has_nothing, exact_up_to_64_grains, largest_sizes, random_against_a_list, check_tells)
