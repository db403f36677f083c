/* SPDX-License-Identifier: MIT
 *
 * What a request and a free cost in instructions does not grow with the number of holes: within 2x from 4,096 to
 * 65,536, for slabs, for blocks smaller than a frame and for larger ones. Nor do the steps behind a hit grow with what
 * they must not look at: holes and slots that wait for another stream, and full chunks of slabs.
 */
#include "check_main.h"
#include "step_count.h"

#include "../src/driver/sim.h"

#include <inttypes.h>
#include <stdio.h>

/* Builds that do more at each step than the heap itself. */
#if defined(CLV_CHECK_INVARIANTS) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#else
#define INSTRUMENTED 0
#endif

#define LEAST_HOLES 4096u
#define MOST_HOLES 65536u
#define BATCH 8u

static const cleave_stream stream = {1, 1}, other = {2, 2};
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

static int by_address(const void *a, const void *b)
{
	cleave_ptr x = *(const cleave_ptr *)a, y = *(const cleave_ptr *)b;
	return x < y ? -1 : x > y;
}

/* `2 * holes` live blocks in the order of addresses, over a device whose streams get on when they are told to. */
static void open_full(struct field *f, size_t size, unsigned holes)
{
	const struct clv_sim_config config = {.capacity = (uint64_t)1 << 46, .clock_free = true, .manual = true};
	*f = (struct field){.size = size, .holes = holes, .driver = clv_sim_open(&config)};
	ck_assert_ptr_nonnull(f->driver);
	ck_assert_int_eq(cleave_heap_open(&f->heap, f->driver, NULL, NULL, 0), 0);
	f->blocks = calloc(2 * (size_t)holes, sizeof(*f->blocks));
	ck_assert_ptr_nonnull(f->blocks);
	bool good = true;
	for (unsigned i = 0; i < 2 * holes; i++)
		good &= cleave_alloc(f->heap, 0, stream, size, &f->blocks[i]) == 0;
	ck_assert(good);
	qsort(f->blocks, 2 * (size_t)holes, sizeof(*f->blocks), by_address);
}

/* Every second block is freed on a stream. */
static bool free_half(struct field *f, cleave_stream on)
{
	bool good = true;
	for (unsigned i = 0; i < 2 * f->holes; i += 2) {
		good &= cleave_free(f->heap, f->blocks[i], on) == 0;
		f->blocks[i] = 0;
	}
	return good;
}

static void open_holes(struct field *f, size_t size, unsigned holes)
{
	open_full(f, size, holes);
	bool good = free_half(f, stream);
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
static int64_t cost(void (*open)(struct field *, size_t, unsigned), size_t size, unsigned holes, bool (*fn)(void *),
		    unsigned ops)
{
	struct field f;
	open(&f, size, holes);
	int64_t steps = step_count(fn, &f);
	ck_assert_int_ne(steps, STEP_FAILED);
	close_field(&f);
	return steps < 0 ? steps : steps / ops;
}

static void assert_flat(void (*open)(struct field *, size_t, unsigned), size_t size, const char *what,
			bool (*fn)(void *))
{
	if (INSTRUMENTED) {
		fprintf(stderr, "%s: skipped, this build has more to do at each step than the heap\n", what);
		return;
	}
	int64_t few = cost(open, size, LEAST_HOLES, fn, BATCH);
	if (few < 0) {
		fprintf(stderr, "%s: skipped, processes may not be traced here\n", what);
		return;
	}
	int64_t many = cost(open, size, MOST_HOLES, fn, BATCH);
	fprintf(stderr, "%zu bytes, %s: %" PRId64 " instructions at %u, %" PRId64 " at %u\n", size, what, few,
		LEAST_HOLES, many, MOST_HOLES);
	ck_assert_int_gt(few, 10); /* something was counted */
	ck_assert_int_le(many, 2 * few);
}

START_TEST(pairs_are_flat)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++)
		assert_flat(open_holes, sizes[i], "a pair among holes", batch);
}
END_TEST

START_TEST(joins_are_flat)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++)
		assert_flat(open_holes, sizes[i], "a free that joins two holes", joins);
}
END_TEST

/* Requests on another stream than the one whose work is not done; each is for more than there is. */
static bool grow_elsewhere(void *arg)
{
	struct field *f = arg;
	bool good = true;
	cleave_ptr p;
	for (unsigned i = 0; i < BATCH; i++)
		good &= cleave_alloc(f->heap, 0, other, 20 * CLV_MIB, &p) == 0;
	return good;
}

static void open_pending(struct field *f, size_t size, unsigned holes)
{
	open_full(f, size, holes);
	bool good = free_half(f, stream);
	for (unsigned i = 0; i < 4; i++) /* past what the heap holds freely above the highest use */
		good &= grow_elsewhere(f);
	ck_assert(good);
}

START_TEST(holes_that_wait_are_not_looked_at)
{
	assert_flat(open_pending, 64 * CLV_KIB, "a request beside holes that wait", grow_elsewhere);
}
END_TEST

/* More small blocks than there are slots: new slabs. */
static bool new_slabs(void *arg)
{
	struct field *f = arg;
	bool good = true;
	cleave_ptr p;
	for (unsigned i = 0; i < BATCH; i++)
		for (unsigned k = 0; k < 2; k++)
			good &= cleave_alloc(f->heap, 0, stream, f->size, &p) == 0;
	return good;
}

static void open_chunks(struct field *f, size_t size, unsigned holes)
{
	open_full(f, size, holes);
	bool good = new_slabs(f); /* the table of blocks has just been filled, and is doubled */
	ck_assert(good);
}

START_TEST(full_chunks_are_not_looked_at)
{
	assert_flat(open_chunks, 32 * CLV_KIB, "new slabs beside full chunks", new_slabs);
}
END_TEST

/* Slots that were freed on a stream whose work is not done. */
static void open_late(struct field *f, size_t size, unsigned holes)
{
	open_full(f, size, holes);
	bool good = free_half(f, other) && new_slabs(f);
	ck_assert(good);
}

START_TEST(slots_that_wait_are_not_looked_at)
{
	assert_flat(open_late, 32 * CLV_KIB, "new slabs beside slots that wait", new_slabs);
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
	int64_t steps = cost(open_holes, CLV_KIB, LEAST_HOLES, one_small_pair, 1);
	if (steps < 0) {
		fprintf(stderr, "a_small_pair_is_short: skipped, processes may not be traced here\n");
		return;
	}
	fprintf(stderr, "a small pair: %" PRId64 " instructions\n", steps);
#ifdef __OPTIMIZE__
	if (!INSTRUMENTED)
		ck_assert_int_le(steps, 600);
#endif
}
END_TEST

CHECK_MAIN("heap_flat", pairs_are_flat, joins_are_flat, holes_that_wait_are_not_looked_at,
	   full_chunks_are_not_looked_at, slots_that_wait_are_not_looked_at, a_small_pair_is_short)
