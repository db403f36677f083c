/* SPDX-License-Identifier: MIT
 *
 * cleave_pack() as include/cleave/plan.h describes it: on sets whose best packing is known by their making, on small
 * ones beside all orders, and where it must refuse. Nothing here depends on time.
 */
#include "check_main.h"
#include "pack_check.h"
#include "pack_maker.h"

#include <errno.h>

#define OPTIMAL_UP_TO 30   /* buffers of a rectangle that was cut straight through: the best packing must be found */
#define EFFORT_MANY 300000 /* for each of a thousand sets that need not be solved */
#define EFFORT_SMALL 30000000
#define EFFORT_LARGE 20000000

/* The linker brings every allocation of the library here. */
static _Thread_local uint64_t allocations, fail_at; /* fail_at 0: none fails */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool fails(void)
{
	return ++allocations == fail_at;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

/* Packs, and checks all that a packing promises. *offsets belongs to the caller. */
static cleave_pack_result packed(const cleave_pack_buffer *buffers, size_t count, const cleave_pack_settings *settings,
				 uint64_t **offsets, const char *what)
{
	cleave_pack_result r;
	char why[256] = "";
	*offsets = pack_room(count, sizeof(**offsets));
	int ret = cleave_pack(buffers, count, settings, *offsets, &r, why, sizeof(why));
	ck_assert_msg(ret == 0, "%s: %d: %s", what, ret, why);
	const char *wrong = pack_wrong(buffers, count, settings ? settings->capacity : 0, *offsets, &r);
	ck_assert_msg(!wrong, "%s: %s", what, wrong);
	ck_assert_msg(r.lower_bound >= pack_load(buffers, count),
		      "%s: a bound of %" PRIu64 ", and %" PRIu64 " are live", what, r.lower_bound,
		      pack_load(buffers, count));
	ck_assert_msg(!r.timed_out || settings->time_limit_s > 0, "%s: out of time, without a limit", what);
	return r;
}

static cleave_pack_result packed_made(const struct pack_made *m, const cleave_pack_settings *settings, const char *what)
{
	uint64_t *offsets;
	cleave_pack_result r = packed(m->buffers, m->count, settings, &offsets, what);
	ck_assert_msg(r.lower_bound <= m->height && m->height <= r.height,
		      "%s: bound %" PRIu64 ", known %" PRIu64 ", height %" PRIu64, what, r.lower_bound, m->height,
		      r.height);
	free(offsets);
	return r;
}

static const char *name_of(size_t count, unsigned kinds, uint64_t seed)
{
	static char name[64];
	snprintf(name, sizeof(name), "count %zu, kinds %u, seed %" PRIu64, count, kinds, seed);
	return name;
}

/* The checker and the maker, before anything is believed of them. */
START_TEST(known_packings_are_valid)
{
	for (unsigned kinds = 0; kinds < PACK_KINDS; kinds++)
		for (size_t count = 1; count < 400; count = count * 2 + 1) {
			struct pack_made m = pack_make(count, kinds, count);
			cleave_pack_result r = {.lower_bound = m.height, .height = m.height, .optimal = 1, .fits = 1};
			const char *wrong = pack_wrong(m.buffers, m.count, 0, m.offsets, &r);
			ck_assert_msg(!wrong, "%s: %s", name_of(count, kinds, count), wrong);
			ck_assert_uint_eq(pack_load(m.buffers, m.count), m.height);
			pack_made_free(&m);
		}
}
END_TEST

START_TEST(the_checker_sees_what_is_wrong)
{
	static const cleave_pack_span gap = {4, 6};
	cleave_pack_buffer b[] = {
		{.lower = 0, .upper = 10, .size = 4, .offset = CLEAVE_PACK_ANYWHERE, .gaps = &gap, .gap_count = 1},
		{.lower = 4, .upper = 6, .size = 3, .alignment = 2, .offset = CLEAVE_PACK_ANYWHERE},
		{.lower = 6, .upper = 10, .size = 1, .offset = 4}};
	uint64_t at[] = {0, 0, 4};
	cleave_pack_result good = {.lower_bound = 5, .height = 5, .optimal = 1, .fits = 1}, r = good;
	ck_assert_ptr_null(pack_wrong(b, 3, 0, at, &r));
	ck_assert_ptr_null(pack_wrong(b, 3, 5, at, &r));
	ck_assert_ptr_nonnull(pack_wrong(b, 3, 4, at, &r));
	r.height = 6;
	ck_assert_ptr_nonnull(pack_wrong(b, 3, 0, at, &r));
	r.height = 4;
	ck_assert_ptr_nonnull(pack_wrong(b, 3, 0, at, &r));
	r = good;
	r.lower_bound = 6;
	ck_assert_ptr_nonnull(pack_wrong(b, 3, 0, at, &r));
	r.lower_bound = 4;
	ck_assert_ptr_nonnull(pack_wrong(b, 3, 0, at, &r));
	r = good;
	r.optimal = 0;
	ck_assert_ptr_nonnull(pack_wrong(b, 3, 0, at, &r));
	at[1] = 1; /* not aligned */
	ck_assert_ptr_nonnull(strstr(pack_wrong(b, 3, 0, at, &good), "multiple"));
	at[1] = 2;
	ck_assert_ptr_null(pack_wrong(b, 3, 0, at, &good));
	b[1].upper = 7; /* no longer in the gap */
	ck_assert_ptr_nonnull(strstr(pack_wrong(b, 3, 0, at, &good), "overlap"));
	b[1].upper = 6;
	b[1].lower = 3;
	ck_assert_ptr_nonnull(strstr(pack_wrong(b, 3, 0, at, &good), "overlap"));
	b[1].lower = 4;
	b[2].offset = 3; /* which it is not at */
	ck_assert_ptr_nonnull(pack_wrong(b, 3, 0, at, &good));
}
END_TEST

START_TEST(known_optima)
{
	const cleave_pack_settings settings = {.effort = EFFORT_MANY};
	for (unsigned kinds = 0; kinds < PACK_KINDS; kinds++)
		for (size_t count = 1; count <= 60; count += 1 + count / 3)
			for (uint64_t seed = 1; seed <= 3; seed++) {
				struct pack_made m = pack_make(count, kinds, seed);
				packed_made(&m, &settings, name_of(count, kinds, seed));
				pack_made_free(&m);
			}
}
END_TEST

START_TEST(small_ones_are_solved)
{
	const cleave_pack_settings settings = {.effort = EFFORT_SMALL};
	for (size_t count = 1; count <= OPTIMAL_UP_TO; count++)
		for (uint64_t seed = 1; seed <= 4; seed++) {
			struct pack_made m = pack_make(count, 0, seed);
			cleave_pack_result r = packed_made(&m, &settings, name_of(count, 0, seed));
			ck_assert_msg(r.optimal, "%s: height %" PRIu64 ", not %" PRIu64, name_of(count, 0, seed),
				      r.height, m.height);
			pack_made_free(&m);
		}
}
END_TEST

/* One layer of Kimi-K3's experts is converted for NVFP4, as serving engines do it: each expert's weights and scales are
 * reordered into tensors of their own, which a stack then copies into one; sources go last. The sizes are those of 8 ranks by
 * expert and by tensor. It needs no more than is live, found in less than 50 ms. */
struct conversion {
	cleave_pack_buffer b[8192];
	size_t count;
	int64_t now;
};

static size_t born(struct conversion *c, uint64_t size)
{
	ck_assert_uint_lt(c->count, CLV_ARRAY_LEN(c->b));
	c->b[c->count] = (cleave_pack_buffer){
		.lower = c->now++, .size = clv_align_up(size, 512), .alignment = 512, .offset = CLEAVE_PACK_ANYWHERE};
	return c->count++;
}

static void died(struct conversion *c, size_t i)
{
	c->b[i].upper = c->now++;
}

static void convert_layer(struct conversion *c, size_t experts, const uint64_t size[4])
{
	size_t sources[4], lists[4][896], stacks[4];
	for (size_t k = 0; k < 4; k++)
		sources[k] = born(c, experts * size[k]);
	died(c, born(c, 64 * CLV_MIB)); /* scratch of a reordering */
	for (size_t e = 0; e < experts; e++)
		for (size_t k = 0; k < 4; k++) {
			/* a scale is gathered, then interleaved */
			size_t gathered = k % 2 ? born(c, size[k]) : SIZE_MAX;
			lists[k][e] = born(c, size[k]);
			if (gathered != SIZE_MAX)
				died(c, gathered);
		}
	for (size_t k = 0; k < 4; k++) {
		stacks[k] = born(c, experts * size[k]);
		for (size_t e = 0; e < experts; e++)
			died(c, lists[k][e]);
	}
	for (size_t k = 0; k < 4; k++)
		died(c, sources[k]);
	for (size_t k = 0; k < 4; k++)
		died(c, stacks[k]);
}

START_TEST(a_layers_conversion)
{
	static const struct {
		size_t experts;
		uint64_t size[4]; /* w13, its scale, w2, its scale */
	} ranks[] = {{112, {11010048, 1376256, 5505024, 688128}}, {896, {1376256, 172032, 688128, 86016}}};
	for (size_t r = 0; r < CLV_ARRAY_LEN(ranks); r++) {
		static struct conversion c;
		c.count = 0;
		c.now = 0;
		convert_layer(&c, ranks[r].experts, ranks[r].size);
		uint64_t *offsets;
		const cleave_pack_settings settings = {.effort = 5000000}; /* 50 ms */
		cleave_pack_result p = packed(c.b, c.count, &settings, &offsets, "a layer");
		uint64_t w13 = ranks[r].experts * ranks[r].size[0], all = 0;
		for (size_t k = 0; k < 4; k++)
			all += ranks[r].experts * ranks[r].size[k];
		ck_assert_uint_eq(p.height, 2 * all + w13); /* sources, lists, the first stack */
		ck_assert(p.optimal);
		free(offsets);
	}
}
END_TEST

/* Far more than can be solved: valid, and not far from the bound. */
START_TEST(large_ones)
{
	const cleave_pack_settings settings = {.effort = EFFORT_LARGE};
	static const unsigned kinds[] = {0, PACK_PINWHEELS, PACK_ALIGNED, PACK_FIXED, PACK_GAPS, PACK_KINDS - 1};
	for (size_t k = 0; k < CLV_ARRAY_LEN(kinds); k++) {
		struct pack_made m = pack_make(3000, kinds[k], 1);
		cleave_pack_result r = packed_made(&m, &settings, name_of(3000, kinds[k], 1));
		double over = (double)r.height / (double)r.lower_bound;
		printf("3000 buffers, kinds %2u: height %.4f of the bound\n", kinds[k], over);
		ck_assert_double_lt(over, 2);
		pack_made_free(&m);
	}
}
END_TEST

/* Beside all orders. Take a best packing and move buffers down, one at a time, to any lower place that is free, until none can be
 * moved: it ends, since the sum of the offsets falls. Put the buffers one by one, the fixed ones first and the others in the order
 * of the offsets they then have, each at the lowest place free of those before it. That is where it was: a lower place x
 * would be free of those that come later, too, as they lie at or above its old end, and so above x + size. So some order
 * of putting each as low as possible is a best packing, with alignments, gaps and fixed offsets as well. */
#define BRUTE_MAX 7

struct brute {
	const cleave_pack_buffer *b;
	size_t count;
	bool together[BRUTE_MAX][BRUTE_MAX], put[BRUTE_MAX];
	uint64_t at[BRUTE_MAX], best;
};

static bool holds_at(const cleave_pack_buffer *b, int64_t t)
{
	bool in = t >= b->lower && t < b->upper && b->size;
	for (size_t g = 0; g < b->gap_count; g++)
		in &= t < b->gaps[g].lower || t >= b->gaps[g].upper;
	return in;
}

static bool free_at(const struct brute *s, size_t i, uint64_t at)
{
	for (size_t j = 0; j < s->count; j++)
		if (s->put[j] && s->together[i][j] && at < s->at[j] + s->b[j].size && s->at[j] < at + s->b[i].size)
			return false;
	return true;
}

static void try_all(struct brute *s, uint64_t height)
{
	bool left = false;
	if (height >= s->best)
		return;
	for (size_t i = 0; i < s->count; i++) {
		if (s->put[i])
			continue;
		left = true;
		uint64_t step = clv_max_u64(s->b[i].alignment, 1), at = 0;
		while (!free_at(s, i, at)) /* small numbers: no cleverness that could be wrong */
			at += step;
		s->put[i] = true;
		s->at[i] = at;
		try_all(s, clv_max_u64(height, at + s->b[i].size));
		s->put[i] = false;
	}
	if (!left)
		s->best = height;
}

static uint64_t brute_optimum(const cleave_pack_buffer *b, size_t count, int64_t times)
{
	struct brute s = {.b = b, .count = count, .best = UINT64_MAX};
	uint64_t height = 0;
	for (size_t i = 0; i < count; i++) {
		bool never = true;
		for (int64_t t = 0; t < times; t++) {
			never &= !holds_at(&b[i], t);
			for (size_t j = 0; j < count; j++)
				s.together[i][j] |= holds_at(&b[i], t) && holds_at(&b[j], t);
		}
		s.put[i] = never || b[i].offset != CLEAVE_PACK_ANYWHERE;
		if (s.put[i] && !never) {
			s.at[i] = b[i].offset;
			height = clv_max_u64(height, s.at[i] + b[i].size);
		}
	}
	try_all(&s, height);
	return s.best;
}

#define BRUTE_TIMES 9

static size_t random_small(struct clv_rng *rng, unsigned kinds, cleave_pack_buffer *b, cleave_pack_span *gaps)
{
	size_t count = clv_rng_range(rng, 1, BRUTE_MAX);
	uint64_t at[BRUTE_MAX], all_aligned = clv_rng_below(rng, 2) ? clv_rng_range(rng, 2, 4) : 0;
	for (size_t i = 0; i < count; i++) {
		int64_t lower = (int64_t)clv_rng_below(rng, BRUTE_TIMES - 1);
		b[i] = (cleave_pack_buffer){.lower = lower,
					    .upper = (int64_t)clv_rng_range(rng, (uint64_t)lower + 1, BRUTE_TIMES),
					    .size = clv_rng_range(rng, 1, 9),
					    .offset = CLEAVE_PACK_ANYWHERE};
		if (kinds & PACK_EMPTY && clv_rng_below(rng, 6) == 0)
			*(clv_rng_below(rng, 2) ? (uint64_t *)&b[i].upper : &b[i].size) = 0;
		if (b[i].upper < lower)
			b[i].upper = lower;
		if (kinds & PACK_ALIGNED)
			b[i].alignment = all_aligned ? all_aligned : clv_rng_below(rng, 6);
		int64_t life = b[i].upper - lower;
		if ((kinds & PACK_GAPS) && life > 0 && clv_rng_below(rng, 2)) {
			gaps[i].lower = lower + (int64_t)clv_rng_below(rng, (uint64_t)life);
			gaps[i].upper = (int64_t)clv_rng_range(rng, (uint64_t)gaps[i].lower + 1, (uint64_t)b[i].upper);
			b[i].gaps = &gaps[i];
			b[i].gap_count = 1;
		}
		/* fixed where it does not collide with those before it */
		if ((kinds & PACK_FIXED) && clv_rng_below(rng, 3) == 0) {
			cleave_pack_buffer fixed[BRUTE_MAX];
			size_t n = 0;
			b[i].offset = clv_rng_below(rng, 14);
			for (size_t j = 0; j <= i; j++)
				if (b[j].offset != CLEAVE_PACK_ANYWHERE) {
					at[n] = b[j].offset;
					fixed[n++] = b[j];
				}
			if (pack_overlap(fixed, n, at))
				b[i].offset = CLEAVE_PACK_ANYWHERE;
		}
	}
	return count;
}

START_TEST(small_ones_beside_all_orders)
{
	const cleave_pack_settings settings = {.effort = EFFORT_MANY / 3};
	struct clv_rng rng = {.state = 5};
	for (unsigned round = 0; round < 200; round++)
		for (unsigned kinds = 0; kinds < PACK_KINDS; kinds += 2) {
			cleave_pack_buffer b[BRUTE_MAX];
			cleave_pack_span gaps[BRUTE_MAX];
			uint64_t seed = rng.state, *offsets;
			size_t count = random_small(&rng, kinds, b, gaps);
			uint64_t best = brute_optimum(b, count, BRUTE_TIMES);
			const char *what = name_of(count, kinds, seed);
			cleave_pack_result r = packed(b, count, &settings, &offsets, what);
			ck_assert_msg(r.lower_bound <= best && best <= r.height,
				      "%s: bound %" PRIu64 ", best %" PRIu64 ", height %" PRIu64, what, r.lower_bound,
				      best, r.height);
			/* so few that each order can be tried */
			ck_assert_msg(r.height == best && r.optimal, "%s: height %" PRIu64 "%s, best %" PRIu64, what,
				      r.height, r.optimal ? "" : ", not proved", best);
			free(offsets);
		}
}
END_TEST

/* Offsets at random, looked at pair by pair and time by time. */
START_TEST(the_checker_beside_a_plain_one)
{
	struct clv_rng rng = {.state = 6};
	unsigned wrong = 0, rounds = 20000;
	for (unsigned round = 0; round < rounds; round++) {
		cleave_pack_buffer b[BRUTE_MAX];
		cleave_pack_span gaps[BRUTE_MAX];
		uint64_t at[BRUTE_MAX];
		size_t count = random_small(&rng, PACK_GAPS | PACK_EMPTY, b, gaps);
		bool overlap = false;
		for (size_t i = 0; i < count; i++) {
			at[i] = clv_rng_below(&rng, 30);
			for (size_t j = 0; j < i; j++)
				for (int64_t t = 0; t < BRUTE_TIMES; t++)
					overlap |= holds_at(&b[i], t) && holds_at(&b[j], t) &&
						   at[i] < at[j] + b[j].size && at[j] < at[i] + b[i].size;
		}
		const char *said = pack_overlap(b, count, at);
		ck_assert_msg(overlap == (said != NULL), "round %u: %s", round, said ? said : "an overlap is not seen");
		wrong += overlap;
	}
	ck_assert_uint_gt(wrong, rounds / 10);
	ck_assert_uint_lt(wrong, rounds - rounds / 10);
}
END_TEST

START_TEST(limits_end_the_search)
{
	struct pack_made m = pack_make(2000, PACK_PINWHEELS, 1);
	uint64_t effort, total = 0;
	for (effort = 1; effort <= 10000000; effort *= 100) {
		cleave_pack_result r = packed_made(&m, &(cleave_pack_settings){.effort = effort}, "effort");
		/* beyond it there is what a first packing takes */
		ck_assert_uint_le(r.steps, 2 * effort + 1000 * m.count);
	}
	/* a time limit that is over at once still leaves a packing */
	cleave_pack_settings now = {.time_limit_s = 1e-9, .effort = INT64_MAX};
	packed_made(&m, &now, "no time");
	/* and the largest effort does not overflow */
	now.effort = UINT64_MAX;
	packed_made(&m, &now, "no time, all effort");
	for (size_t i = 0; i < m.count; i++)
		total += m.buffers[i].size;
	cleave_pack_settings enough = {.capacity = total};
	cleave_pack_result r = packed_made(&m, &enough, "capacity");
	ck_assert_int_eq(r.fits, 1);
	ck_assert_uint_le(r.steps, 1000 * m.count + 1000000);
	cleave_pack_settings little = {.capacity = m.height - 1, .effort = 100000};
	ck_assert_int_eq(packed_made(&m, &little, "too little").fits, 0);
	pack_made_free(&m);
	/* no packing is that low: the search can end at once */
	m = pack_make(10, 0, 1);
	little = (cleave_pack_settings){.capacity = m.height};
	ck_assert_int_eq(packed_made(&m, &little, "just enough").fits, 1);
	pack_made_free(&m);
}
END_TEST

START_TEST(next_to_nothing)
{
	cleave_pack_result r;
	uint64_t at[3] = {1, 2, 3};
	ck_assert_int_eq(cleave_pack(NULL, 0, NULL, NULL, &r, NULL, 0), 0);
	ck_assert_uint_eq(r.height, 0);
	ck_assert_uint_eq(r.lower_bound, 0);
	ck_assert_int_eq(r.optimal, 1);
	ck_assert_int_eq(r.fits, 1);
	cleave_pack_buffer b[3] = {{.lower = 5, .upper = 5, .size = 100, .offset = CLEAVE_PACK_ANYWHERE},
				   {.lower = 0, .upper = 9, .size = 0, .alignment = 7, .offset = CLEAVE_PACK_ANYWHERE},
				   {.lower = INT64_MIN, .upper = INT64_MAX, .size = 3, .offset = CLEAVE_PACK_ANYWHERE}};
	ck_assert_int_eq(cleave_pack(b, 3, NULL, at, &r, NULL, 0), 0);
	ck_assert_ptr_null(pack_wrong(b, 3, 0, at, &r));
	ck_assert_uint_eq(r.lower_bound, 3);
	ck_assert_int_eq(r.optimal, 1);
	ck_assert_uint_eq(at[2], 0);
	/* a life that is all gap */
	const cleave_pack_span all = {INT64_MIN, INT64_MAX};
	b[2].gaps = &all;
	b[2].gap_count = 1;
	ck_assert_int_eq(cleave_pack(b, 3, NULL, at, &r, NULL, 0), 0);
	ck_assert_ptr_null(pack_wrong(b, 3, 0, at, &r));
	ck_assert_uint_eq(r.lower_bound, 0);
}
END_TEST

START_TEST(extreme_numbers)
{
	const cleave_pack_span gaps[] = {{INT64_MIN + 1, -5}, {-5, 0}, {7, INT64_MAX}};
	cleave_pack_buffer b[] = {
		{.lower = INT64_MIN, .upper = INT64_MAX, .size = (uint64_t)1 << 60, .offset = CLEAVE_PACK_ANYWHERE},
		{.lower = INT64_MIN, .upper = INT64_MIN + 1, .size = (uint64_t)1 << 61, .offset = CLEAVE_PACK_ANYWHERE},
		{.lower = INT64_MAX - 1, .upper = INT64_MAX, .size = 1, .offset = CLEAVE_PACK_ANYWHERE},
		{.lower = INT64_MIN,
		 .upper = INT64_MAX,
		 .size = 1,
		 .gaps = gaps,
		 .gap_count = 3,
		 .offset = CLEAVE_PACK_ANYWHERE},
	};
	uint64_t *offsets;
	cleave_pack_result r = packed(b, 4, NULL, &offsets, "extreme");
	ck_assert_uint_eq(r.height, ((uint64_t)3 << 60) + 1);
	free(offsets);
}
END_TEST

static void refused(const cleave_pack_buffer *b, size_t count, const char *which)
{
	uint64_t at[4] = {11, 12, 13, 14}, was[4] = {11, 12, 13, 14};
	cleave_pack_result r, before;
	char why[256] = "", little[8];
	memset(&r, 0x5a, sizeof(r));
	before = r;
	ck_assert_int_eq(cleave_pack(b, count, NULL, at, &r, why, sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, which) != NULL, "'%s' does not say '%s'", why, which);
	ck_assert_int_eq(memcmp(at, was, sizeof(at)), 0);
	ck_assert_int_eq(memcmp(&r, &before, sizeof(r)), 0);
	ck_assert_int_eq(cleave_pack(b, count, NULL, at, &r, NULL, 0), -EINVAL);
	ck_assert_int_eq(cleave_pack(b, count, NULL, at, &r, little, sizeof(little)), -EINVAL);
	ck_assert_uint_eq(strlen(little), sizeof(little) - 1);
}

START_TEST(refuses)
{
	const cleave_pack_buffer good = {.upper = 10, .size = 4, .offset = CLEAVE_PACK_ANYWHERE};
	cleave_pack_buffer b[4] = {good, good, good, good};
	b[2].lower = 11;
	refused(b, 4, "buffer 2");
	static const cleave_pack_span gaps[][2] = {
		{{-1, 2}, {3, 4}}, /* begins before the life */
		{{1, 2}, {9, 11}}, /* ends after it */
		{{1, 3}, {2, 4}},  /* overlap */
		{{5, 6}, {1, 2}},  /* out of order */
		{{1, 2}, {4, 4}},  /* empty */
		{{1, 2}, {4, 3}},  /* backwards */
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(gaps); i++) {
		b[2] = good;
		b[2].gaps = gaps[i];
		b[2].gap_count = 2;
		refused(b, 4, "buffer 2");
	}
	b[2] = good;
	b[1].size = b[2].size = (uint64_t)1 << 61;
	refused(b, 4, "buffer 2");
	b[1].size = 4;
	b[2].size = UINT64_MAX;
	refused(b, 4, "buffer 2");
	b[2] = good;
	b[2].alignment = (uint64_t)1 << 63;
	refused(b, 4, "buffer 2");
	b[2].alignment = 1;
	b[2].offset = UINT64_MAX - 1;
	refused(b, 4, "buffer 2");
	b[1].offset = 8;
	b[2].offset = 11;
	refused(b, 4, "buffers 1 and 2");
	b[1].offset = 11;
	b[2].offset = 8;
	refused(b, 4, "buffers 2 and 1");
	/* not at the same time, they may */
	uint64_t at[4];
	cleave_pack_result r;
	b[1].upper = b[2].lower = 5;
	ck_assert_int_eq(cleave_pack(b, 4, NULL, at, &r, NULL, 0), 0);
	ck_assert_uint_eq(at[1], 11);
	ck_assert_uint_eq(at[2], 8);
}
END_TEST

/* Each allocation fails once: an error and nothing touched, or a packing all the same. */
START_TEST(host_memory_runs_out)
{
	static const unsigned kinds[] = {0, PACK_KINDS - 1};
	for (size_t k = 0; k < CLV_ARRAY_LEN(kinds); k++) {
		struct pack_made m = pack_make(40, kinds[k], 2);
		const cleave_pack_settings settings = {.effort = 100000};
		uint64_t *at = pack_room(m.count, sizeof(*at));
		unsigned failed = 0;
		for (uint64_t n = 1;; n++) {
			cleave_pack_result r = {.height = 77};
			char why[64] = "";
			memset(at, 0x11, m.count * sizeof(*at));
			allocations = 0;
			fail_at = n;
			int ret = cleave_pack(m.buffers, m.count, &settings, at, &r, why, sizeof(why));
			fail_at = 0;
			bool reached = allocations >= n;
			ck_assert_msg(ret == 0 || ret == -ENOSPC, "allocation %" PRIu64 ": %d", n, ret);
			if (ret == 0) {
				const char *wrong = pack_wrong(m.buffers, m.count, 0, at, &r);
				ck_assert_msg(!wrong, "allocation %" PRIu64 ": %s", n, wrong);
			} else {
				ck_assert_uint_eq(r.height, 77);
				ck_assert_uint_eq(at[m.count - 1], 0x1111111111111111);
				failed++;
			}
			if (!reached)
				break;
		}
		ck_assert_uint_gt(failed, 0);
		free(at);
		pack_made_free(&m);
	}
}
END_TEST

CHECK_MAIN("pack", known_packings_are_valid, the_checker_sees_what_is_wrong, known_optima, small_ones_are_solved,
	   a_layers_conversion, large_ones, the_checker_beside_a_plain_one, small_ones_beside_all_orders, limits_end_the_search,
	   next_to_nothing, extreme_numbers, refuses, host_memory_runs_out)
