/* SPDX-License-Identifier: MIT
 *
 * What a request and a free cost in instructions does not grow with the number of holes: within 2x from 4,096 to 65,536, for
 * slabs, for blocks smaller than a frame and for larger ones; and a small pair is no more than some hundred.
 */
#include "check_main.h"
#include "step_count.h"

#include "../src/driver/sim.h"

#include <inttypes.h>
#include <stdio.h>

#define LEAST_HOLES 4096u
#define MOST_HOLES 65536u
#define BATCH 16u

static const cleave_stream stream = {1, 1};
static const size_t sizes[] = {CLV_KIB, 64 * CLV_KIB, 3 * CLV_MIB};

/* Blocks of one size, every second of which was freed. */
struct field {
	struct clv_driver *driver;
	cleave_heap *heap;
	size_t size;
	unsigned holes;
	cleave_ptr *blocks; /* 2 * holes; 0: freed */
};

static bool batch(void *arg)
{
	struct field *f = arg;
	cleave_ptr blocks[BATCH];
	bool good = true;
	for (unsigned i = 0; i < BATCH; i++)
		good &= cleave_alloc(f->heap, 0, stream, f->size, &blocks[i]) == 0;
	for (unsigned i = 0; i < BATCH; i++)
		good &= cleave_free(f->heap, blocks[i], stream) == 0;
	return good;
}

/* Live blocks between two holes, which become one with what was between them. */
static bool joins(void *arg)
{
	struct field *f = arg;
	bool good = true;
	for (unsigned i = 0; i < BATCH; i++)
		good &= cleave_free(f->heap, f->blocks[(size_t)i * (f->holes / BATCH) * 2 + 1], stream) == 0;
	return good;
}

static void open_field(struct field *f, size_t size, unsigned holes)
{
	const struct clv_sim_config config = {.capacity = (uint64_t)1 << 46, .clock_free = true};
	*f = (struct field){.size = size, .holes = holes, .driver = clv_sim_open(&config)};
	ck_assert_ptr_nonnull(f->driver);
	ck_assert_int_eq(cleave_heap_open(&f->heap, f->driver, NULL, NULL, 0), 0);
	f->blocks = calloc(2 * (size_t)holes, sizeof(*f->blocks));
	ck_assert_ptr_nonnull(f->blocks);
	bool good = true;
	for (unsigned i = 0; i < 2 * holes; i++)
		good &= cleave_alloc(f->heap, 0, stream, size, &f->blocks[i]) == 0;
	for (unsigned i = 0; i < 2 * holes; i += 2) {
		good &= cleave_free(f->heap, f->blocks[i], stream) == 0;
		f->blocks[i] = 0;
	}
	good &= batch(f); /* whatever is made at the first use */
	ck_assert(good);
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(f->heap, 0, &s), 0);
	if (size > 32 * CLV_KIB)
		ck_assert_uint_ge(s.free_blocks, holes - 1); /* the first may have joined what lies before it */
	else
		ck_assert_uint_ge(s.free_bytes, (uint64_t)holes * size);
}

static void close_field(struct field *f)
{
	cleave_heap_close(f->heap);
	f->driver->close(f->driver);
	free(f->blocks);
}

/* Instructions of an operation, an average; below 0: they cannot be counted here. */
static int64_t cost(size_t size, unsigned holes, bool (*fn)(void *), unsigned ops)
{
	struct field f;
	open_field(&f, size, holes);
	int64_t steps = step_count(fn, &f);
	ck_assert_int_ne(steps, STEP_FAILED);
	close_field(&f);
	return steps < 0 ? steps : steps / ops;
}

static void assert_flat(size_t size, const char *what, bool (*fn)(void *), unsigned ops)
{
#ifdef CLV_CHECK_INVARIANTS
	fprintf(stderr, "%s: skipped, this build walks every structure after each operation\n", what);
	return;
#endif
	int64_t few = cost(size, LEAST_HOLES, fn, ops);
	if (few < 0) {
		fprintf(stderr, "%s: skipped, processes may not be traced here\n", what);
		return;
	}
	int64_t many = cost(size, MOST_HOLES, fn, ops);
	fprintf(stderr, "%zu bytes, %s: %" PRId64 " instructions at %u holes, %" PRId64 " at %u\n", size, what, few, LEAST_HOLES, many,
		MOST_HOLES);
	ck_assert_int_gt(few, 10); /* something was counted */
	ck_assert_int_le(many, 2 * few);
}

START_TEST(pairs_are_flat)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++)
		assert_flat(sizes[i], "a pair", batch, BATCH);
}
END_TEST

START_TEST(joins_are_flat)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++)
		assert_flat(sizes[i], "a free that joins two holes", joins, BATCH);
}
END_TEST

static bool one_small_pair(void *arg)
{
	struct field *f = arg;
	cleave_ptr p;
	return cleave_alloc(f->heap, 0, stream, f->size, &p) == 0 && cleave_free(f->heap, p, stream) == 0;
}

START_TEST(a_small_pair_is_short)
{
	int64_t steps = cost(CLV_KIB, LEAST_HOLES, one_small_pair, 1);
	if (steps < 0) {
		fprintf(stderr, "a_small_pair_is_short: skipped, processes may not be traced here\n");
		return;
	}
	fprintf(stderr, "a small pair: %" PRId64 " instructions\n", steps);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(CLV_CHECK_INVARIANTS)
	ck_assert_int_le(steps, 600);
#endif
}
END_TEST

CHECK_MAIN("heap_flat", pairs_are_flat, joins_are_flat, a_small_pair_is_short)
