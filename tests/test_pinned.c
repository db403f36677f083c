/* SPDX-License-Identifier: MIT
 *
 * Pinned memory over a source that counts and refuses, with blocks full of patterns that are looked at again when they
 * are freed and, later, when their tickets pass.
 */
#include "../src/host/je.h"
#include "../src/host/meta.h"
#include "../src/host/pinned.h"
#include "chunk_provider.h"
#include "check_main.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { TICKETS = 4096 };

struct held {
	uint8_t *at;
	size_t size;
	uint64_t fill;
};

/* Tickets are numbers from 1 on; those up to `passed_to` have passed, and single ones before. */
struct rig {
	struct provider v;
	struct clv_pinned *p;
	struct held waiting[TICKETS];
	bool asked[TICKETS], passed[TICKETS]; /* answered true; has passed */
	uint64_t last, wrong, questions;
	pthread_mutex_t lock;
};

/* In words: a sanitizer looks at each access. */
static void fill(const struct held *h)
{
	struct clv_rng rng = {h->fill};
	size_t i = 0;
	uint64_t word = clv_rng_next(&rng);
	for (; h->size - i >= sizeof(word); i += sizeof(word), word = clv_rng_next(&rng))
		memcpy(h->at + i, &word, sizeof(word));
	memcpy(h->at + i, &word, h->size - i);
}

static uint64_t changed(const struct held *h)
{
	struct clv_rng rng = {h->fill};
	size_t i = 0;
	uint64_t wrong = 0, have, word = clv_rng_next(&rng);
	for (; h->size - i >= sizeof(word); i += sizeof(word), word = clv_rng_next(&rng)) {
		memcpy(&have, h->at + i, sizeof(have));
		wrong += have != word;
	}
	return wrong + (memcmp(h->at + i, &word, h->size - i) != 0);
}

static bool passed(void *ctx, uint64_t ticket)
{
	struct rig *r = CLV_CONTAINER_OF(ctx, struct rig, v);
	pthread_mutex_lock(&r->lock);
	r->questions++;
	bool yes = r->passed[ticket];
	r->wrong += r->asked[ticket]; /* after true it is not asked about again */
	r->asked[ticket] = yes;
	struct held h = r->waiting[ticket];
	pthread_mutex_unlock(&r->lock);
	if (yes && changed(&h))
		__atomic_fetch_add(&r->wrong, 1, __ATOMIC_RELAXED); /* somebody has used it already */
	return yes;
}

static struct rig *rig_open(uint64_t limit)
{
	static struct rig rig;
	memset(&rig, 0, sizeof(rig));
	provider_init(&rig.v);
	pthread_mutex_init(&rig.lock, NULL);
	struct clv_pinned_ops ops = {provider_alloc, provider_free, passed, &rig.v};
	struct clv_error err = {""};
	rig.p = clv_pinned_open(&ops, limit, &err);
	ck_assert_msg(rig.p, "%s", err.text);
	return &rig;
}

static void rig_close(struct rig *r)
{
	clv_pinned_close(r->p);
	ck_assert_uint_eq(r->wrong, 0);
	provider_end(&r->v);
	ck_assert_uint_eq(clv_meta_bytes(), 0);
}

static struct clv_pinned_stats stats_of(struct rig *r)
{
	struct clv_pinned_stats s;
	clv_pinned_get_stats(r->p, &s);
	return s;
}

static uint64_t free_with_ticket(struct rig *r, struct held *h)
{
	pthread_mutex_lock(&r->lock);
	uint64_t ticket = ++r->last;
	ck_assert_uint_lt(ticket, TICKETS);
	r->waiting[ticket] = *h;
	pthread_mutex_unlock(&r->lock);
	if (!clv_pinned_free(r->p, h->at, ticket))
		__atomic_fetch_add(&r->wrong, 1, __ATOMIC_RELAXED);
	h->at = NULL;
	return ticket;
}

static void pass(struct rig *r, uint64_t ticket)
{
	pthread_mutex_lock(&r->lock);
	r->passed[ticket] = true;
	pthread_mutex_unlock(&r->lock);
}

/* Between calls: what is free is within the limit, or part of chunks that are also in use. */
static void check_books(struct rig *r, uint64_t limit)
{
	struct clv_pinned_stats s = stats_of(r);
	ck_assert_uint_eq(s.held, r->v.bytes);
	ck_assert_uint_eq(s.chunks, r->v.count);
	ck_assert_uint_le(s.live + s.waiting, s.held - s.free);
	ck_assert_uint_eq(s.bought - s.given_back, s.chunks);
	if (!s.live_blocks && !s.waiting_blocks)
		ck_assert_uint_le(s.held, limit);
}

START_TEST(needs_jemalloc)
{
	struct clv_pinned_ops ops = {provider_alloc, provider_free, passed, NULL};
	struct clv_error err = {""};
	struct clv_pinned *p = clv_pinned_open(&ops, 0, &err);
	ck_assert_int_eq(p != NULL, clv_meta_uses_jemalloc());
	if (p)
		clv_pinned_close(p);
	else
		ck_assert_ptr_nonnull(strstr(err.text, "jemalloc"));
}
END_TEST

START_TEST(sizes_and_alignments)
{
	struct rig *r = rig_open(CLV_MIB);
	for (size_t size = 1; size <= (size_t)40 << 20; size += size / 5 + 1)
		for (size_t align = 1; align <= (size_t)1 << 22; align *= 8) {
			struct held h = {clv_pinned_alloc(r->p, size, align), size, size + align};
			ck_assert_ptr_nonnull(h.at);
			ck_assert_uint_eq((uintptr_t)h.at % align, 0);
			ck_assert_uint_eq((uintptr_t)h.at % (size < 4096 ? 64 : 4096), 0);
			ck_assert(clv_pinned_owns(r->p, h.at));
			ck_assert(clv_pinned_owns(r->p, h.at + size - 1));
			if (size < 1 << 20) {
				fill(&h);
				ck_assert_uint_eq(changed(&h), 0);
			}
			/* little is lost to rounding: size classes below 4 KiB, whole pages above */
			ck_assert_uint_ge(stats_of(r).live, size);
			ck_assert_uint_le(stats_of(r).live,
					  size < 4096 && align <= 64 ? size + size / 4 + 63 : size + 4095);
			ck_assert(clv_pinned_free(r->p, h.at, 0));
			check_books(r, CLV_MIB);
		}
	ck_assert_ptr_null(clv_pinned_alloc(r->p, 0, 64));
	ck_assert_ptr_null(clv_pinned_alloc(r->p, 100, 0));
	ck_assert_ptr_null(clv_pinned_alloc(r->p, 100, 48));
	static const size_t absurd[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 62};
	r->v.largest = CLV_GIB;
	for (size_t i = 0; i < CLV_ARRAY_LEN(absurd); i++) {
		ck_assert_ptr_null(clv_pinned_alloc(r->p, absurd[i], 64));
		ck_assert_ptr_null(clv_pinned_alloc(r->p, 64, absurd[i]));
	}
	ck_assert_ptr_null(clv_pinned_alloc(r->p, 4096, (size_t)1 << 61));
	rig_close(r);
}
END_TEST

START_TEST(frees_of_others_are_refused)
{
	struct rig *r = rig_open(CLV_MIB);
	static char other[4096];
	char *a = clv_pinned_alloc(r->p, 10000, 64), *b = clv_pinned_alloc(r->p, 1 << 20, 64);
	ck_assert(!clv_pinned_owns(r->p, other));
	ck_assert(!clv_pinned_owns(r->p, NULL));
	ck_assert(!clv_pinned_free(r->p, NULL, 0));
	ck_assert(!clv_pinned_free(r->p, other, 0));
	ck_assert(!clv_pinned_free(r->p, a + 64, 0));
	ck_assert(!clv_pinned_free(r->p, b + 4096, 1));
	ck_assert(clv_pinned_free(r->p, b, 0));
	ck_assert(!clv_pinned_free(r->p, b, 0)); /* nor a second time */
	struct held h = {(uint8_t *)a, 10000, 5};
	fill(&h);
	uint64_t t = free_with_ticket(r, &h);
	ck_assert(!clv_pinned_free(r->p, a, 0));
	ck_assert_uint_eq(stats_of(r).waiting_blocks, 1);
	ck_assert_uint_eq(stats_of(r).live, 0);
	pass(r, t);
	rig_close(r);
}
END_TEST

/* A block that waits is given to nobody, and to the next who asks once its ticket has passed. */
START_TEST(tickets)
{
	static const size_t sizes[] = {100, 5000, 200000, 3 << 20};
	for (size_t k = 0; k < CLV_ARRAY_LEN(sizes); k++) {
		struct rig *r = rig_open(64 * CLV_MIB);
		struct held h = {clv_pinned_alloc(r->p, sizes[k], 64), sizes[k], k};
		uint8_t *at = h.at;
		fill(&h);
		uint64_t t = free_with_ticket(r, &h);
		ck_assert_uint_ge(stats_of(r).waiting, sizes[k]);
		for (int i = 0; i < 100; i++) {
			uint8_t *q = clv_pinned_alloc(r->p, sizes[k], 64);
			ck_assert(q + sizes[k] <= at || at + sizes[k] <= q);
			memset(q, 0xee, sizes[k]);
			ck_assert(clv_pinned_free(r->p, q, 0));
		}
		ck_assert_uint_eq(stats_of(r).waiting_blocks, 1);
		pass(r, t);
		uint8_t *q = NULL;
		for (int i = 0; i < 1000 && q != at; i++) /* small ones fill a slab first */
			q = clv_pinned_alloc(r->p, sizes[k], 64);
		ck_assert_ptr_eq(q, at);
		ck_assert_uint_eq(stats_of(r).waiting_blocks, 0);
		ck_assert_uint_eq(stats_of(r).waiting, 0);
		rig_close(r);
	}
}
END_TEST

/* One that never passes does not hold up the others, nor is everyone asked again and again. */
START_TEST(tickets_out_of_order)
{
	enum { COUNT = 500 };
	struct rig *r = rig_open(UINT64_MAX);
	uint64_t ticket[COUNT];
	for (int i = 0; i < COUNT; i++) {
		struct held h = {clv_pinned_alloc(r->p, 8192, 64), 8192, (uint64_t)i};
		fill(&h);
		ticket[i] = free_with_ticket(r, &h);
	}
	ck_assert_uint_eq(stats_of(r).waiting_blocks, COUNT);
	ck_assert_uint_le(r->questions, 2 * COUNT * 16);
	r->questions = 0;
	for (int i = 10; i < COUNT; i++)
		pass(r, ticket[i]);
	clv_pinned_free(r->p, clv_pinned_alloc(r->p, 1, 1), 0);
	ck_assert_uint_eq(stats_of(r).waiting_blocks, 10);
	for (int i = 0; i < 10; i++)
		pass(r, ticket[i]);
	uint64_t held = stats_of(r).held;
	ck_assert_uint_eq(clv_pinned_trim(r->p), held);
	rig_close(r);
}
END_TEST

START_TEST(limit_and_trim)
{
	static const uint64_t limits[] = {0, 3 << 20, 100 << 20};
	for (size_t k = 0; k < CLV_ARRAY_LEN(limits); k++) {
		enum { COUNT = 400 };
		struct rig *r = rig_open(limits[k]);
		void *p[COUNT];
		struct clv_rng rng = {k};
		for (int i = 0; i < COUNT; i++) {
			p[i] = clv_pinned_alloc(r->p, (size_t)1 << clv_rng_range(&rng, 4, 20), 64);
			ck_assert_ptr_nonnull(p[i]);
			/* a chunk for jemalloc's larger pages on Arm keeps what its alignment left over */
			ck_assert(stats_of(r).free <= limits[k] || clv_pinned_trim(r->p) == 0);
		}
		for (int i = 0; i < COUNT; i++) {
			ck_assert(clv_pinned_free(r->p, p[i * 7 % COUNT], 0));
			check_books(r, limits[k]);
		}
		if (limits[k] > CLV_MIB)
			ck_assert_uint_gt(stats_of(r).held, 0);
		uint64_t held = stats_of(r).held;
		ck_assert_uint_eq(clv_pinned_trim(r->p), held);
		ck_assert_uint_eq(r->v.bytes, 0);
		rig_close(r);
	}
}
END_TEST

/* Few calls of the source: they double what is held, about. */
START_TEST(growth_is_geometric)
{
	struct rig *r = rig_open(UINT64_MAX);
	for (int i = 0; i < 20000; i++)
		ck_assert_ptr_nonnull(clv_pinned_alloc(r->p, 16384, 64));
	ck_assert_uint_ge(stats_of(r).held, 20000 * 16384);
	ck_assert_uint_le(stats_of(r).held, 20000 * 16384 + (64 << 20));
	ck_assert_uint_le(r->v.calls, 30);
	rig_close(r);
}
END_TEST

/* The k-th call of the source is refused, or it and every later one: the same work, as far as it goes, and right books. */
static uint64_t faulty_work(uint64_t fail_at, uint64_t fail_from)
{
	enum { COUNT = 60 };
	const uint64_t limit = 256 * CLV_KIB;
	struct rig *r = rig_open(limit);
	struct held h[COUNT] = {0};
	struct clv_rng rng = {77};
	r->v.fail_at = fail_at;
	r->v.fail_from = fail_from;
	uint64_t failed = 0;
	for (int step = 0; step < 300; step++) {
		struct held *b = &h[clv_rng_below(&rng, COUNT)];
		if (b->at) {
			ck_assert_uint_eq(changed(b), 0);
			if (step % 3)
				pass(r, free_with_ticket(r, b));
			else
				ck_assert(clv_pinned_free(r->p, b->at, 0));
			b->at = NULL;
		} else {
			b->size = 1 + clv_rng_below(&rng, (uint64_t)1 << clv_rng_range(&rng, 4, 21));
			b->fill = clv_rng_next(&rng);
			b->at = clv_pinned_alloc(r->p, b->size, 64);
			if (b->at)
				fill(b);
			failed += !b->at;
		}
		check_books(r, limit);
	}
	/* one refusal is got over by giving back, or by asking for less */
	ck_assert(fail_from || failed <= 1);
	ck_assert(fail_from != 1 || failed > 0);
	uint64_t calls = r->v.calls;
	rig_close(r);
	return calls;
}

START_TEST(refusals)
{
	uint64_t calls = faulty_work(0, 0);
	ck_assert_uint_gt(calls, 10);
	for (uint64_t k = 1; k <= calls + 3; k++) {
		faulty_work(k, 0);
		faulty_work(0, k);
	}
}
END_TEST

/* Our own books find no memory: a request fails, and nothing is lost. */
START_TEST(books_without_memory)
{
	for (uint64_t n = 1; n < 40; n++) {
		struct rig *r = rig_open(CLV_MIB);
		void *p[20];
		clv_meta_fail_after(n);
		for (size_t i = 0; i < CLV_ARRAY_LEN(p); i++)
			p[i] = clv_pinned_alloc(r->p, i % 2 ? 100 : 300000, 64);
		for (size_t i = 0; i < CLV_ARRAY_LEN(p); i++)
			ck_assert_int_eq(clv_pinned_free(r->p, p[i], 0), p[i] != NULL);
		clv_meta_fail_after(0);
		check_books(r, CLV_MIB);
		rig_close(r);
	}
	struct clv_pinned_ops ops = {provider_alloc, provider_free, passed, NULL};
	for (uint64_t n = 1; n <= 4; n++) {
		struct clv_error err = {""};
		clv_meta_fail_after(n);
		ck_assert_ptr_null(clv_pinned_open(&ops, 0, &err));
		ck_assert_str_ne(err.text, "");
		clv_meta_fail_after(0);
		ck_assert_uint_eq(clv_meta_bytes(), 0);
	}
}
END_TEST

/* What is live or waiting at the end goes back too. */
START_TEST(close_with_blocks)
{
	struct rig *r = rig_open(CLV_MIB);
	for (size_t i = 0; i < 100; i++) {
		struct held h = {clv_pinned_alloc(r->p, 10 + i * i * 30, 64), 10 + i * i * 30, i};
		fill(&h);
		if (i % 3 == 0)
			free_with_ticket(r, &h);
	}
	ck_assert_uint_eq(stats_of(r).waiting_blocks, 34);
	ck_assert_uint_eq(stats_of(r).live_blocks, 66);
	rig_close(r);
}
END_TEST

/* Threads that hand blocks over to each other, while another lets tickets pass, trims, and looks. */
enum { SLOTS = 64, WORKERS = 4 };

static struct held slot[SLOTS];
static pthread_mutex_t slot_lock = PTHREAD_MUTEX_INITIALIZER;
static int working; /* atomic */

struct worker {
	struct rig *r;
	uint64_t seed, wrong;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct clv_rng rng = {w->seed};
	for (int step = 0; step < 3000; step++) {
		struct held mine = {NULL, 1 + clv_rng_below(&rng, (uint64_t)1 << clv_rng_range(&rng, 4, 19)), 0};
		mine.fill = clv_rng_next(&rng);
		mine.at = clv_pinned_alloc(w->r->p, mine.size, 64);
		if (mine.at)
			fill(&mine);
		w->wrong += !mine.at || !clv_pinned_owns(w->r->p, mine.at + mine.size - 1);
		pthread_mutex_lock(&slot_lock);
		struct held *s = &slot[clv_rng_below(&rng, SLOTS)], theirs = *s;
		*s = mine;
		pthread_mutex_unlock(&slot_lock);
		if (!theirs.at)
			continue;
		w->wrong += changed(&theirs);
		if (step % 4 == 0)
			free_with_ticket(w->r, &theirs);
		else
			w->wrong += !clv_pinned_free(w->r->p, theirs.at, 0);
	}
	__atomic_fetch_sub(&working, 1, __ATOMIC_RELEASE);
	return NULL;
}

START_TEST(threads)
{
	struct rig *r = rig_open(4 * CLV_MIB);
	struct worker w[WORKERS];
	pthread_t thread[WORKERS];
	working = WORKERS;
	for (int i = 0; i < WORKERS; i++) {
		w[i] = (struct worker){r, (uint64_t)i, 0};
		ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &w[i]), 0);
	}
	uint64_t next = 1;
	while (__atomic_load_n(&working, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&r->lock);
		for (; next <= r->last; next++)
			r->passed[next] = true;
		pthread_mutex_unlock(&r->lock);
		clv_pinned_trim(r->p);
		sched_yield();
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(thread[i], NULL);
		ck_assert_uint_eq(w[i].wrong, 0);
	}
	for (; next <= r->last; next++)
		r->passed[next] = true;
	for (int i = 0; i < SLOTS; i++)
		if (slot[i].at) {
			ck_assert_uint_eq(changed(&slot[i]), 0);
			ck_assert(clv_pinned_free(r->p, slot[i].at, 0));
		}
	clv_pinned_trim(r->p);
	ck_assert_uint_eq(stats_of(r).held, 0);
	rig_close(r);
}
END_TEST

/* Two of them do not meet: jemalloc gives the place of an arena that was closed to the next. */
START_TEST(many)
{
	static struct rig a;
	for (int round = 0; round < 5; round++) {
		struct rig *b = rig_open(0);
		memset(&a, 0, sizeof(a));
		provider_init(&a.v);
		pthread_mutex_init(&a.lock, NULL);
		struct clv_pinned_ops ops = {provider_alloc, provider_free, passed, &a.v};
		a.p = clv_pinned_open(&ops, 0, NULL);
		char *x = clv_pinned_alloc(a.p, 1000, 64), *y = clv_pinned_alloc(b->p, 1000, 64);
		ck_assert(clv_pinned_owns(a.p, x) && !clv_pinned_owns(a.p, y));
		ck_assert(clv_pinned_owns(b->p, y) && !clv_pinned_owns(b->p, x));
		ck_assert(!clv_pinned_free(a.p, y, 0));
		ck_assert(clv_pinned_free(a.p, x, 0));
		clv_pinned_close(a.p);
		provider_end(&a.v);
		ck_assert(clv_pinned_owns(b->p, y));
		rig_close(b);
	}
}
END_TEST

int main(void)
{
	const TTest *const without[] = {needs_jemalloc};
	const TTest *const with[] = {needs_jemalloc,
				     sizes_and_alignments,
				     frees_of_others_are_refused,
				     tickets,
				     tickets_out_of_order,
				     limit_and_trim,
				     growth_is_geometric,
				     refusals,
				     books_without_memory,
				     close_with_blocks,
				     threads,
				     many};
	if (clv_meta_uses_jemalloc())
		return check_main_run("pinned", with, CLV_ARRAY_LEN(with));
	int failed = check_main_run("pinned", without, CLV_ARRAY_LEN(without));
	printf("jemalloc cannot be used in this build: nothing else to try\n");
	return failed ? failed : 77;
}
