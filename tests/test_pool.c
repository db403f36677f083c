/* SPDX-License-Identifier: MIT */
#include "../src/heap/pool.h"
#include "../src/host/meta.h"
#include "check_main.h"

#include <string.h>

/* Check writes a line to a file at each of its assertions: too dear for the inner loops. */

#define RECORDS 2000

START_TEST(reserved_records_can_be_taken)
{
	for (size_t size = 1; size < 300; size += 37) {
		struct clv_pool pool;
		clv_pool_init(&pool, size);
		ck_assert_uint_ge(pool.size, size);
		static unsigned char *taken[RECORDS];
		ck_assert(clv_pool_reserve(&pool, RECORDS));
		for (unsigned i = 0; i < RECORDS; i++) {
			taken[i] = clv_pool_take(&pool);
			ck_assert_uint_eq((uintptr_t)taken[i] % 16, 0);
			for (size_t k = 0; k < size; k++)
				if (taken[i][k])
					ck_abort_msg("a record is not zeroed");
			memset(taken[i], (int)(i % 255 + 1), size);
		}
		for (unsigned i = 0; i < RECORDS; i++) { /* none overlaps another */
			for (size_t k = 0; k < size; k++)
				if (taken[i][k] != i % 255 + 1)
					ck_abort_msg("two records overlap");
			clv_pool_give(&pool, taken[i]);
		}
		ck_assert_uint_eq(pool.spare, pool.total);
		clv_pool_fini(&pool);
	}
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}
END_TEST

START_TEST(random_against_a_set)
{
	struct clv_pool pool;
	clv_pool_init(&pool, 40);
	struct clv_rng rng = {1};
	static uint64_t *taken[RECORDS];
	unsigned count = 0;
	for (unsigned step = 0; step < 20000; step++) {
		if (count < RECORDS && clv_rng_below(&rng, 2)) {
			uint64_t before = pool.total;
			ck_assert(clv_pool_reserve(&pool, 1));
			ck_assert(before == pool.total || count == before); /* grows only when all are out */
			taken[count] = clv_pool_take(&pool);
			for (unsigned i = 0; i < 5; i++)
				if (taken[count][i])
					ck_abort_msg("a record is not zeroed");
			taken[count][4] = taken[count][0] = (uintptr_t)taken[count];
			count++;
		} else if (count) {
			unsigned i = (unsigned)clv_rng_below(&rng, count);
			if (taken[i][0] != (uintptr_t)taken[i] || taken[i][4] != (uintptr_t)taken[i])
				ck_abort_msg("two records overlap");
			clv_pool_give(&pool, taken[i]);
			taken[i] = taken[--count];
		}
		if (pool.spare + count != pool.total)
			ck_abort_msg("%u records are out of %u, and %u are spare", count, (unsigned)pool.total, (unsigned)pool.spare);
	}
	clv_pool_fini(&pool);
	ck_assert_uint_eq(pool.total, 0);
	ck_assert(clv_pool_reserve(&pool, 1)); /* usable again */
	clv_pool_fini(&pool);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}
END_TEST

START_TEST(host_memory_is_out)
{
	struct clv_pool pool;
	clv_pool_init(&pool, 64);
	clv_meta_fail_after(1);
	ck_assert(!clv_pool_reserve(&pool, 1));
	clv_meta_fail_after(0);
	ck_assert(clv_pool_reserve(&pool, 1));
	uint64_t spare = pool.spare;
	clv_meta_fail_after(1);
	ck_assert(clv_pool_reserve(&pool, spare)); /* there already */
	ck_assert(!clv_pool_reserve(&pool, spare + 1));
	for (uint64_t i = 0; i < spare; i++)
		ck_assert_ptr_nonnull(clv_pool_take(&pool));
	clv_meta_fail_after(0);
	clv_pool_fini(&pool);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}
END_TEST

CHECK_MAIN("pool", reserved_records_can_be_taken, random_against_a_set, host_memory_is_out)
