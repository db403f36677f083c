/* SPDX-License-Identifier: MIT
 *
 * Random work on a heap with reservations, beside a naive model of them; and the same while the driver or the host's memory
 * refuse. CLEAVE_TEST_STEPS says how many operations a case has.
 */
#include "../src/heap/arena.h"
#include "../src/heap/reclaim.h"
#include "../src/heap/reserve.h"
#include "../src/host/meta.h"
#include "check_main.h"
#include "heap_rig.h"

#include <cleave/plan.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RESERVATIONS 64u
#define SEEN_MAX (RESERVATIONS + 64u)

/* What the header promises of one, kept as simply as can be. `last` is a time between which and `latest` a request matched. */
struct modelled {
	uint64_t id, size, count, after_n, uses, matched, idle_ns, stream_id;
	bool one_stream, by_class, hard, lasts;
	uint64_t made, held, skipped, served, missed, kept, yielded, trimmed, unused;
	uint64_t given_up; /* requests for which it yielded: which these were is the heap's to know */
	uint64_t last, latest;
};

static struct rig r;
static struct modelled model[RESERVATIONS]; /* in the order of making; those that have ended go */
static unsigned reservations;
static struct given { /* what a block has, which is more than was asked for in a class */
	cleave_ptr addr;
	uint64_t size;
} given[RIG_BLOCKS];
static unsigned givens;
static uint64_t beyond, yields, idle_ends, uses_ends; /* over all work: what was reached */

#define ASSERT(condition, fmt, ...)                                                                                    \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			ck_abort_msg("seed %" PRIu64 ", step %" PRIu64 ": " fmt, r.config.seed, r.step,                \
				     ##__VA_ARGS__);                                                                   \
	} while (0)

static uint64_t now(void)
{
	return r.sim->now_ns(r.sim);
}

/* ---- what the heap says, against the model ---- */

static const cleave_reservation_stats *find(const cleave_reservation_stats *all, size_t n, uint64_t id)
{
	for (size_t i = 0; i < n; i++)
		if (all[i].id == id)
			return &all[i];
	return NULL;
}

static uint64_t held_of(bool hard)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < reservations; i++)
		n += model[i].hard == hard ? model[i].held : 0;
	return n;
}

/* Bytes of slots of classes that live blocks were given beyond what they asked for. */
static uint64_t class_rounding(void)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < r.count; i++)
		for (unsigned k = 0; k < givens; k++)
			if (given[k].addr == r.blocks[i].addr)
				bytes += given[k].size - clv_align_up(r.blocks[i].size, CLV_GRAIN);
	return bytes;
}

static uint64_t given_up_by(uint64_t id)
{
	const struct clv_reservation *one = r.heap->arenas[0]->reserves->first;
	while (one->stats.id != id)
		one = one->next;
	return one->given_up;
}

/* Slots that were given up are the heap's to choose; all else must be as the model has it. */
static void compare(void)
{
	static cleave_reservation_stats all[SEEN_MAX];
	size_t n;
	uint64_t bytes = 0, hard_yielded = 0, before = now();
	ASSERT(cleave_reserve_stats(r.heap, 0, all, SEEN_MAX, &n) == 0, "no statistics");
	for (unsigned i = 0; i < reservations; i++) {
		struct modelled *m = &model[i];
		const cleave_reservation_stats *s = find(all, n, m->id);
		ASSERT(s, "reservation %" PRIu64 " is not told of", m->id);
		uint64_t gone = s->yielded - m->yielded + s->trimmed - m->trimmed;
		hard_yielded += m->hard ? s->yielded - m->yielded : 0;
		ASSERT(!m->hard || s->trimmed == 0, "a hard reservation was trimmed");
		ASSERT(gone <= m->held, "%" PRIu64 " slots given up of %" PRIu64, gone, m->held);
		uint64_t given_up = given_up_by(m->id), slots = s->yielded - m->yielded;
		ASSERT(given_up >= m->given_up && given_up - m->given_up <= slots && (!s->yielded || given_up),
		       "%" PRIu64 " slots were given up for %" PRIu64 " requests", slots, given_up - m->given_up);
		m->given_up = given_up;
		yields += gone;
		m->held -= gone;
		m->yielded = s->yielded;
		m->trimmed = s->trimmed;
		if (m->lasts)
			m->unused = clv_min_u64(m->unused, m->held);
		if (s->ended == CLEAVE_RESERVATION_ENDED_IDLE) {
			ASSERT(m->idle_ns && now() - m->last > m->idle_ns, "idle too early");
			idle_ends += m->lasts;
			m->lasts = false;
			m->held = 0;
		} else {
			ASSERT(!m->lasts || !m->idle_ns || before - m->latest <= m->idle_ns, "idle, and lasts");
		}
		ASSERT((s->ended == CLEAVE_RESERVATION_LASTS) == m->lasts, "reservation %" PRIu64 ": ended %d", m->id,
		       s->ended);
		ASSERT(s->made == m->made && s->skipped == m->skipped && s->served == m->served &&
			       s->missed == m->missed && s->kept == m->kept,
		       "reservation %" PRIu64 ": made %" PRIu64 ", skipped %" PRIu64 ", served %" PRIu64
		       ", missed %" PRIu64 ", kept %" PRIu64 ", not %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
		       ", %" PRIu64,
		       m->id, s->made, s->skipped, s->served, s->missed, s->kept, m->made, m->skipped, m->served,
		       m->missed, m->kept);
		ASSERT(s->held == m->held, "reservation %" PRIu64 " holds %" PRIu64 ", not %" PRIu64, m->id, s->held,
		       m->held);
		ASSERT(s->unused == m->unused, "%" PRIu64 " were never used, not %" PRIu64, s->unused, m->unused);
		bytes += m->held * m->size;
	}
	ASSERT(!hard_yielded || !held_of(false), "a hard one yielded while a soft one held");
	cleave_heap_stats s;
	ASSERT(cleave_heap_get_stats(r.heap, 0, &s) == 0, "no statistics");
	ASSERT(s.reservation_bytes == bytes, "%" PRIu64 " bytes held back, not %" PRIu64, s.reservation_bytes, bytes);
	uint64_t rounding = class_rounding();
	ASSERT(s.rounding_bytes >= rounding, "rounding %" PRIu64 ", of classes alone %" PRIu64, s.rounding_bytes,
	       rounding);
	unsigned kept = 0;
	for (unsigned i = 0; i < reservations; i++)
		if (model[i].lasts)
			model[kept++] = model[i];
	reservations = kept;
}

/* ---- the model ---- */

static bool takes(const struct modelled *m, uint64_t size, cleave_stream stream)
{
	if (!m->lasts || (m->one_stream && m->stream_id != stream.id))
		return false;
	return m->by_class ? size <= m->size && size > m->size / 2 && size > 32 * CLV_KIB : size == m->size;
}

/* Of a freed block, which is in order for every stream if it was freed on none. */
static bool may_keep(const struct modelled *m, uint64_t size, cleave_stream stream)
{
	if (stream.id == CLEAVE_STREAM_ANY.id && m->one_stream)
		stream.id = m->stream_id;
	bool misplanned = !m->hard && m->given_up >= 2 + 2 * m->served;
	return m->size == size && m->held < m->count && !misplanned && takes(m, size, stream);
}

/* Exact ones first, then classes from the smallest on; of equals the one that was made first. */
static struct modelled *next_of(bool (*fits)(const struct modelled *, uint64_t, cleave_stream),
				const struct modelled *after, uint64_t size, cleave_stream stream)
{
	struct modelled *best = NULL;
	for (unsigned i = 0; i < reservations; i++) {
		struct modelled *m = &model[i];
		if (!fits(m, size, stream))
			continue;
#define KEY(x) ((x)->by_class ? (x)->size : 0)
		if (after && (KEY(m) < KEY(after) || (KEY(m) == KEY(after) && m <= after)))
			continue;
		if (!best || KEY(m) < KEY(best))
			best = m;
#undef KEY
	}
	return best;
}

static uint64_t served_now(uint64_t id)
{
	static cleave_reservation_stats all[SEEN_MAX];
	size_t n;
	ASSERT(cleave_reserve_stats(r.heap, 0, all, SEEN_MAX, &n) == 0, "no statistics");
	const cleave_reservation_stats *s = find(all, n, id);
	return s ? s->served : 0;
}

/* Returns what the block has. `before`: the time before the request. */
static uint64_t model_request(cleave_stream stream, uint64_t size, uint64_t before)
{
	struct modelled *missed = NULL, *by = NULL;
	for (struct modelled *m = next_of(takes, NULL, size, stream); m; m = next_of(takes, m, size, stream)) {
		m->last = before;
		m->latest = now();
		if (m->skipped < m->after_n) {
			m->skipped++;
			continue;
		}
		uses_ends += ++m->matched == m->uses;
		if (by)
			continue;
		/* a block that is complete when given cannot be one that some stream may still use: the heap knows */
		bool knows = stream.id == CLEAVE_STREAM_ANY.id;
		if (m->held && (!knows || served_now(m->id) > m->served)) {
			by = m;
			m->served++;
			m->held--;
			m->unused = clv_min_u64(m->unused, m->held);
		} else if (!missed) {
			missed = m;
		}
	}
	for (struct modelled *m = next_of(takes, NULL, size, stream), *next; m; m = next) {
		next = next_of(takes, m, size, stream);
		if (m->uses && m->matched == m->uses) {
			m->lasts = false;
			m->held = 0;
		}
	}
	if (by)
		return by->size;
	if (missed)
		missed->missed++;
	beyond += missed != NULL;
	return size;
}

static void ask(unsigned stream, uint64_t size)
{
	uint64_t before = now(), rounded = clv_align_up(size, CLV_GRAIN);
	r.config.faults_expected = class_rounding() != 0; /* the rig takes that for free */
	int answer = rig_alloc(&r, stream, size);
	r.config.faults_expected = false;
	ASSERT(!answer || answer == -ENOMEM, "answer %d", answer);
	uint64_t has = model_request(r.streams[stream], rounded, before);
	if (!answer)
		given[givens++] = (struct given){r.blocks[r.count - 1].addr, has};
	compare();
	ASSERT(!answer || !(held_of(false) + held_of(true)) || !clv_reclaim_may_fit(r.heap->arenas[0], rounded),
	       "a request failed while memory was held back");
}

static void give(unsigned block, unsigned stream)
{
	struct rig_block b = r.blocks[block];
	unsigned k = 0;
	while (given[k].addr != b.addr)
		k++;
	uint64_t size = given[k].size;
	given[k] = given[--givens];
	rig_free(&r, block, stream);
	struct modelled *m = next_of(may_keep, NULL, size, r.streams[stream]);
	if (m) {
		m->held++;
		m->kept++;
	}
	compare();
}

/* ---- operations ---- */

static const uint64_t menu[] = {40 * CLV_KIB, 700 * CLV_KIB, 3 * CLV_MIB + 512, 4 * CLV_MIB, 7 * CLV_MIB - 1024};

static uint64_t pick_size(void)
{
	struct clv_rng *g = &r.rng;
	uint64_t dice = clv_rng_below(g, 10);
	if (dice < 6) /* what is asked for is seldom a multiple of the grain */
		return menu[clv_rng_below(g, CLV_ARRAY_LEN(menu))] - clv_rng_below(g, 2) * clv_rng_below(g, CLV_GRAIN);
	return dice < 8 ? clv_rng_range(g, 1, CLV_MIB) : clv_rng_range(g, CLV_MIB, r.config.capacity / 6);
}

static unsigned pick_stream(void)
{
	return clv_rng_below(&r.rng, 10) ? 1 + (unsigned)clv_rng_below(&r.rng, r.config.streams) : 0;
}

static unsigned own_stream(unsigned block)
{
	for (unsigned i = 0; i <= r.config.streams; i++)
		if (r.streams[i].id == r.blocks[block].stream.id)
			return i;
	return 0;
}

static void make(void)
{
	struct clv_rng *g = &r.rng;
	uint64_t id = 0, before = now();
	bool one_stream = clv_rng_below(g, 5) == 0;
	cleave_reservation asked = {
		.name = "any",
		.bytes = menu[clv_rng_below(g, CLV_ARRAY_LEN(menu))],
		.count = clv_rng_range(g, 1, 4),
		.after_n = clv_rng_below(g, 2) * clv_rng_below(g, 6),
		.uses = clv_rng_below(g, 3) ? 0 : clv_rng_range(g, 1, 10),
		.idle_ms = clv_rng_below(g, 4) ? 0 : 10,
		.one_stream = one_stream,
		.stream = r.streams[1 + clv_rng_below(g, r.config.streams)],
		.by_class = clv_rng_below(g, 3) == 0,
		.hard = clv_rng_below(g, 2),
	};
	int answer = cleave_reserve(r.heap, 0, &asked, &id);
	if (answer) {
		ASSERT(asked.hard && answer == -ENOMEM, "cleave_reserve: %d", answer);
		compare();
		return;
	}
	static cleave_reservation_stats all[SEEN_MAX];
	size_t n;
	ASSERT(cleave_reserve_stats(r.heap, 0, all, SEEN_MAX, &n) == 0, "no statistics");
	const cleave_reservation_stats *s = find(all, n, id);
	ASSERT(s && s->made <= asked.count && (s->made == asked.count || (!asked.hard && s->refused == -ENOMEM)),
	       "a reservation got less than it could say why");
	model[reservations++] = (struct modelled){
		.id = id,
		.size = clv_align_up(asked.bytes, CLV_GRAIN),
		.count = asked.count,
		.after_n = asked.after_n,
		.uses = asked.uses,
		.idle_ns = asked.idle_ms * 1000000,
		.one_stream = one_stream,
		.stream_id = asked.stream.id,
		.by_class = asked.by_class,
		.hard = asked.hard,
		.lasts = true,
		.made = s->made,
		.held = s->made,
		.unused = s->made,
		.last = before,
		.latest = now(),
	};
	compare();
}

static void end_one(void)
{
	if (!reservations)
		return;
	bool all = clv_rng_below(&r.rng, 10) == 0;
	struct modelled *m = &model[clv_rng_below(&r.rng, reservations)];
	ASSERT(cleave_reserve_end(r.heap, 0, all ? 0 : m->id) == 0, "the end was refused");
	for (unsigned i = 0; i < reservations; i++)
		if (all || &model[i] == m) {
			model[i].lasts = false;
			model[i].held = 0;
		}
	compare();
}

/* What hard reservations hold stays, which the rig does not know of. */
static void shrink(void (*how)(struct rig *, uint64_t), uint64_t bytes)
{
	r.config.faults_expected = held_of(true) || class_rounding();
	how(&r, bytes);
	r.config.faults_expected = false;
	compare();
}

static void step(uint64_t target)
{
	struct clv_rng *g = &r.rng;
	uint64_t dice = clv_rng_below(g, 1000);
	if (dice < 20) {
		rig_complete(&r, pick_stream());
	} else if (dice < 40) {
		rig_pass_time(&r, clv_rng_below(g, 8000000));
	} else if (dice < 45) {
		rig_destroy_stream(&r, 1 + (unsigned)clv_rng_below(g, r.config.streams));
	} else if (dice < 50) {
		shrink(rig_trim, clv_rng_below(g, 2) ? 0 : clv_rng_below(g, r.config.capacity));
	} else if (dice < 55) {
		shrink(rig_set_limit, clv_rng_below(g, 2) ? 0 : clv_rng_below(g, r.config.capacity) + 1);
	} else if (dice < 60) {
		rig_set_foreign(&r, clv_rng_below(g, 2) ? 0 : clv_rng_below(g, r.config.capacity / 2));
	} else if (dice < 80) {
		rig_bad_calls(&r);
	} else if (dice < 110 && reservations < RESERVATIONS) {
		make();
	} else if (dice < 125) {
		end_one();
	} else if (r.count < RIG_BLOCKS && (r.live < target || !r.count) && (!r.count || clv_rng_below(g, 4))) {
		ask(pick_stream(), pick_size());
	} else {
		unsigned i = (unsigned)clv_rng_below(g, r.count), own = own_stream(i);
		/* blocks of a stream are not freed on none: in whose order they are then, only the heap knows */
		give(i, own && clv_rng_below(g, 5) == 0 ? 1 + (unsigned)clv_rng_below(g, r.config.streams) : own);
	}
	compare(); /* also where time alone has passed */
}

static uint64_t steps_of(uint64_t steps)
{
	const char *other = getenv("CLEAVE_TEST_STEPS");
	return other ? strtoull(other, NULL, 0) : steps;
}

static void finish(void)
{
	ASSERT(cleave_reserve_end(r.heap, 0, 0) == 0, "the end was refused");
	reservations = givens = 0;
	rig_free_all(&r);
	rig_set_foreign(&r, 0);
	rig_trim(&r, 0);
	ck_assert_uint_eq(clv_sim_used(r.sim, 0), 0);
	rig_close(&r);
}

START_TEST(beside_a_model)
{
	static const uint64_t capacities[] = {64 * CLV_MIB, 100 * CLV_MIB, 256 * CLV_MIB, 700 * CLV_MIB};
	uint64_t failures = 0;
	for (unsigned i = 0; i < 12; i++) {
		rig_open(&r, &(struct rig_config){.seed = 500 + i,
						  .settings = i % 4 == 3 ? "growth:tight" : NULL,
						  .capacity = capacities[i % 4],
						  .streams = 1 + i % 5,
						  .manual = i % 3 != 2,
						  .check_every = 1});
		uint64_t target = 0, steps = steps_of(1500);
		while (r.step < steps) {
			if (r.step % 200 == 0)
				target = clv_rng_range(&r.rng, r.config.capacity / 8,
						       r.config.capacity + r.config.capacity / 8);
			step(target);
		}
		failures += r.failures;
		finish();
	}
	/* the edges were reached */
	ck_assert(failures && beyond && yields && idle_ends && uses_ends);
}
END_TEST

/* Each block is written and read by asynchronous work. */
START_TEST(bytes_survive)
{
	for (unsigned i = 0; i < 4; i++) {
		rig_open(&r, &(struct rig_config){.seed = 600 + i,
						  .capacity = 64 * CLV_MIB,
						  .streams = 2 + i,
						  .backing = true,
						  .manual = i % 2,
						  .check_every = 25});
		uint64_t steps = steps_of(500);
		while (r.step < steps)
			step(48 * CLV_MIB);
		ck_assert_uint_gt(r.checked_words, 0);
		finish();
	}
}
END_TEST

/* ---- the driver or the host's memory refuse ---- */

static void plain_step(void)
{
	struct clv_rng *g = &r.rng;
	static const cleave_reservation kinds[] = {
		{.bytes = 4 * CLV_MIB, .count = 3},
		{.bytes = 4 * CLV_MIB, .count = 2, .hard = 1, .after_n = 2},
		{.bytes = 3 * CLV_MIB + 512, .count = 2, .by_class = 1, .uses = 5},
	};
	uint64_t dice = clv_rng_below(g, 100);
	uint64_t id;
	if (dice < 10) {
		int answer = cleave_reserve(r.heap, 0, &kinds[clv_rng_below(g, CLV_ARRAY_LEN(kinds))], &id);
		ASSERT(answer == 0 || answer == -ENOMEM || answer == -EIO || answer == -ENOSPC, "cleave_reserve: %d",
		       answer);
	} else if (dice < 15) {
		cleave_reserve_end(r.heap, 0, 0);
	} else if (dice < 20) {
		rig_trim(&r, 0);
	} else if (dice < 60 || !r.count) {
		rig_alloc(&r, pick_stream(), pick_size());
	} else {
		unsigned i = (unsigned)clv_rng_below(g, r.count);
		rig_free(&r, i, own_stream(i));
	}
}

static void open_to_faults(uint64_t seed)
{
	rig_open(&r, &(struct rig_config){.seed = seed,
					  .capacity = 64 * CLV_MIB,
					  .streams = 2,
					  .manual = true,
					  .check_every = 1,
					  .faults_expected = true});
}

static void close_after_faults(void)
{
	rig_set_well(&r, true);
	clv_meta_fail_after(0);
	r.config.faults_expected = false;
	finish();
}

static void fixed_scenario(void)
{
	uint64_t soft, hard;
	const cleave_reservation one = {.bytes = 5 * CLV_MIB + 512, .count = 3};
	const cleave_reservation two = {.bytes = 7 * CLV_MIB, .count = 2, .hard = 1, .by_class = 1};
	int made = cleave_reserve(r.heap, 0, &one, &soft), in_full = cleave_reserve(r.heap, 0, &two, &hard);
	ASSERT(made == 0 || made == -ENOSPC, "%d", made); /* whatever the driver says, a soft one takes what it can */
	rig_check(&r);
	rig_alloc(&r, 1, one.bytes);
	rig_alloc(&r, 2, 6 * CLV_MIB);
	rig_alloc(&r, 1, 12 * CLV_MIB);
	while (r.count)
		rig_free(&r, r.count - 1, own_stream(r.count - 1));
	rig_alloc(&r, 2, one.bytes);    /* of stream 1 so far: a wait */
	rig_alloc(&r, 1, 40 * CLV_MIB); /* all yield */
	if (r.count)
		rig_free(&r, 0, own_stream(0));
	rig_trim(&r, 0);
	if (!made)
		ASSERT(cleave_reserve_end(r.heap, 0, soft) == 0, "the end was refused");
	if (!in_full)
		ASSERT(cleave_reserve_end(r.heap, 0, hard) == 0, "the end was refused");
}

START_TEST(each_call_fails)
{
	for (unsigned how = 0; how < 3; how++) {
		uint64_t k = 1, injected;
		do {
			open_to_faults(k);
			clv_fault_set(r.fault, &(struct clv_fault_config){.fail_at = k,
									  .fail_after = how == 1,
									  .result = how == 2 ? CLV_CAPTURING : CLV_OK});
			fixed_scenario();
			injected = clv_fault_injected(r.fault);
			close_after_faults();
			k++;
		} while (injected && k < 1000);
		ck_assert_uint_gt(k, 30); /* calls were made, and the last run met none that fails */
		ck_assert_uint_lt(k, 1000);
	}
}
END_TEST

START_TEST(each_host_allocation_fails)
{
	uint64_t before = clv_meta_bytes();
	for (uint64_t k = 1; k < 40; k++) {
		open_to_faults(k);
		clv_meta_fail_after(k);
		fixed_scenario();
		close_after_faults();
		ck_assert_uint_eq(clv_meta_bytes(), before);
	}
}
END_TEST

START_TEST(faults_by_chance)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		open_to_faults(700 + seed);
		struct clv_fault_config c = {.seed = seed};
		for (int call = 0; call < CLV_CALL_COUNT; call++)
			c.chance_per_million[call] = seed % 4 == 0 ? 300000 : 30000;
		if (seed % 2) /* an event that nobody can remember and nobody takes back is lost */
			c.chance_per_million[CLV_CALL_event_destroy] = 0;
		clv_fault_set(r.fault, &c);
		uint64_t steps = steps_of(400);
		while (r.step < steps) {
			if (seed % 2)
				clv_meta_fail_after(clv_rng_below(&r.rng, 3));
			plain_step();
		}
		ck_assert_uint_gt(clv_fault_injected(r.fault), 0);
		close_after_faults();
	}
}
END_TEST

CHECK_MAIN("reserve_model", beside_a_model, bytes_survive, each_call_fails, each_host_allocation_fails,
	   faults_by_chance)
