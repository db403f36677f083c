/* SPDX-License-Identifier: MIT
 *
 * Random histories beside a model that is as plain as the definitions in report.h: lists of frames and pieces, counted from
 * scratch after every event; groups taken away and everything counted again.
 */
#include "../tracing/report/culprits.h"
#include "../tracing/report/room.h"
#include "../tracing/report/state.h"
#include "check_main.h"
#include "report_rig.h"

#define M CLV_MIB
#define BASE ((uint64_t)1 << 40)
#define RUNS 60
#define EVENTS 300
#define MOST 512
#define STACKS 4u

struct frame {
	uint64_t addr, size;
	bool page; /* of an expandable segment */
};

struct piece {
	uint64_t addr, end, live_end;
	uint32_t block, stack;
	bool pending;
};

struct model {
	struct frame frames[MOST];
	struct piece pieces[MOST];
	size_t frame_count, piece_count;
};

/* ---- the model ---- */

static uint64_t part(uint64_t b1, uint64_t e1, uint64_t b2, uint64_t e2)
{
	uint64_t b = b1 > b2 ? b1 : b2, e = e1 < e2 ? e1 : e2;
	return b < e ? e - b : 0;
}

static uint64_t used_in(const struct model *m, const struct frame *f)
{
	uint64_t used = 0;
	for (size_t i = 0; i < m->piece_count; i++)
		used += part(m->pieces[i].addr, m->pieces[i].end, f->addr, f->addr + f->size);
	return used;
}

/* By live blocks whose stack is not among those taken away (a bit each). */
static bool is_occupied(const struct model *m, const struct frame *f, unsigned away)
{
	for (size_t i = 0; i < m->piece_count; i++)
		if (!m->pieces[i].pending && !(away >> m->pieces[i].stack & 1) &&
		    part(m->pieces[i].addr, m->pieces[i].end, f->addr, f->addr + f->size))
			return true;
	return false;
}

/* What is free today and would still be stranded. */
static uint64_t stranded(const struct model *m, unsigned away)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < m->frame_count; i++)
		if (is_occupied(m, &m->frames[i], away))
			bytes += m->frames[i].size - used_in(m, &m->frames[i]);
	return bytes;
}

static void sum_of(const struct model *m, struct clv_report_sum *s)
{
	uint64_t in_frames = 0;
	*s = (struct clv_report_sum){0};
	for (size_t i = 0; i < m->frame_count; i++) {
		uint64_t used = used_in(m, &m->frames[i]);
		in_frames += used;
		s->held += m->frames[i].size;
		s->of[is_occupied(m, &m->frames[i], 0) ? CLV_CAUSE_HARD : CLV_CAUSE_SOFT] += m->frames[i].size - used;
	}
	for (size_t i = 0; i < m->piece_count; i++) {
		const struct piece *p = &m->pieces[i];
		uint64_t live = p->pending ? 0 : part(p->addr, p->end, 0, p->live_end);
		s->held += p->end - p->addr;
		s->of[CLV_CAUSE_LIVE] += live;
		s->of[p->pending ? CLV_CAUSE_STREAM : CLV_CAUSE_INTERNAL] += p->end - p->addr - live;
	}
	s->held -= in_frames;
}

/* Whether a byte is mapped and free, with some groups away. */
static bool is_free(const struct model *m, uint64_t addr, unsigned away)
{
	bool mapped = false;
	for (size_t i = 0; i < m->frame_count; i++)
		mapped |= addr - m->frames[i].addr < m->frames[i].size;
	for (size_t i = 0; i < m->piece_count; i++)
		if (addr - m->pieces[i].addr < m->pieces[i].end - m->pieces[i].addr &&
		    (m->pieces[i].pending || !(away >> m->pieces[i].stack & 1)))
			return false;
	return mapped;
}

/* The first border behind an address: the end of a segment, or a piece that begins, some groups being away. */
static uint64_t room_without(const struct model *m, uint64_t addr, unsigned away)
{
	uint64_t end = UINT64_MAX;
	for (size_t i = 0; i < m->frame_count; i++) {
		const struct frame *f = &m->frames[i];
		uint64_t stop = f->addr + f->size;
		bool goes_on = false;
		for (size_t k = 0; k < m->frame_count; k++)
			goes_on |= f->page && m->frames[k].page && m->frames[k].addr == stop;
		if (!goes_on && stop > addr && stop < end)
			end = stop;
	}
	for (size_t i = 0; i < m->piece_count; i++)
		if (m->pieces[i].addr > addr && m->pieces[i].addr < end &&
		    (m->pieces[i].pending || !(away >> m->pieces[i].stack & 1)))
			end = m->pieces[i].addr;
	return end - addr;
}

static uint64_t room_at(const struct model *m, uint64_t addr)
{
	return room_without(m, addr, 0);
}

/* The largest hole, found by looking at each border. */
static uint64_t largest_hole(const struct model *m, unsigned away)
{
	uint64_t largest = 0;
	for (size_t i = 0; i < m->frame_count + m->piece_count; i++) {
		uint64_t at = i < m->frame_count ? m->frames[i].addr : m->pieces[i - m->frame_count].end;
		if (is_free(m, at, away))
			largest = clv_max_u64(largest, room_without(m, at, away));
	}
	return largest;
}

/* As PyTorch gives it, by default: the whole of what is free, or the size rounded up if much is left. */
static uint64_t given(const struct model *m, uint64_t addr, uint64_t size)
{
	const struct frame *in = NULL;
	uint64_t rounded = clv_align_up(size, 512), room = room_at(m, addr);
	for (size_t i = 0; i < m->frame_count; i++)
		if (addr - m->frames[i].addr < m->frames[i].size)
			in = &m->frames[i];
	ck_assert(in && room >= rounded);
	uint64_t least = in->size == 2 * M ? 512 : M + 1;
	return room - rounded >= least ? rounded : room;
}

static void apply(struct model *m, const struct clv_history *h, uint32_t i)
{
	const struct clv_event_record *e = &h->events[i];
	size_t at = 0;
	while (at < m->piece_count && m->pieces[at].block != e->block)
		at++;
	switch (e->action) {
	case CLV_ACTION_SEGMENT_ALLOC:
		m->frames[m->frame_count++] = (struct frame){e->addr, e->size, false};
		break;
	case CLV_ACTION_SEGMENT_MAP:
		for (uint64_t page = 0; page < e->size / (20 * M); page++)
			m->frames[m->frame_count++] = (struct frame){e->addr + page * 20 * M, 20 * M, true};
		break;
	case CLV_ACTION_SEGMENT_FREE:
	case CLV_ACTION_SEGMENT_UNMAP:
		for (size_t k = m->frame_count; k-- > 0;)
			if (m->frames[k].addr - e->addr < e->size)
				m->frames[k] = m->frames[--m->frame_count];
		break;
	case CLV_ACTION_ALLOC:
		m->pieces[m->piece_count] = (struct piece){
			.addr = e->addr,
			.end = e->addr + given(m, e->addr, e->size),
			.live_end = e->addr + clv_align_up(e->size, 512),
			.block = e->block,
			.stack = e->stack,
		};
		m->piece_count++;
		break;
	case CLV_ACTION_FREE_REQUESTED:
		ck_assert(at < m->piece_count);
		if (i + 1 == h->event_count || h->events[i + 1].block != e->block)
			m->pieces[at].pending = true;
		else
			m->pieces[at] = m->pieces[--m->piece_count];
		break;
	case CLV_ACTION_FREE_COMPLETED:
		if (at < m->piece_count)
			m->pieces[at] = m->pieces[--m->piece_count];
		break;
	default:
		break;
	}
}

/* ---- histories ---- */

/* Where the next segment goes, and what it is. */
static void grow(struct rig *r, struct clv_rng *rng, struct model *m, uint64_t *next)
{
	static const uint64_t sizes[] = {2 * M, 20 * M, 12 * M, 34 * M};
	bool pages = clv_rng_below(rng, 4) == 0;
	uint64_t size = pages ? 20 * M * clv_rng_range(rng, 1, 3) : sizes[clv_rng_below(rng, CLV_ARRAY_LEN(sizes))];
	rig_event(r, pages ? CLV_ACTION_SEGMENT_MAP : CLV_ACTION_SEGMENT_ALLOC, *next, size, 0, 0);
	apply(m, r->h, r->h->event_count - 1);
	*next +=
		size + (clv_rng_below(rng, 2) ? 0 : 8 * M); /* segments may lie side by side and are two all the same */
}

/* The front of something free, chosen at random; 0: nothing is. */
static uint64_t place(struct clv_rng *rng, const struct model *m, uint64_t *room)
{
	uint64_t starts[2 * MOST];
	size_t n = 0;
	for (size_t i = 0; i < m->frame_count; i++)
		starts[n++] = m->frames[i].addr;
	for (size_t i = 0; i < m->piece_count; i++)
		starts[n++] = m->pieces[i].end;
	if (!n)
		return 0;
	uint64_t addr = starts[clv_rng_below(rng, n)];
	if (!is_free(m, addr, 0))
		return 0;
	*room = room_at(m, addr);
	return addr;
}

static void random_history(struct rig *r, struct clv_rng *rng)
{
	struct model m = {0};
	uint64_t next = BASE, room;
	struct {
		uint64_t addr, size;
		uint32_t stack;
		bool asked;
	} live[MOST];
	size_t count = 0;
	uint32_t id = 0; /* as linking will number blocks */
	while (r->h->event_count < EVENTS) {
		uint64_t dice = clv_rng_below(rng, 16);
		uint64_t addr = dice < 8 ? place(rng, &m, &room) : 0;
		if (m.frame_count < 12 && dice == 15) {
			grow(r, rng, &m, &next);
		} else if (addr) {
			uint64_t size = clv_rng_range(rng, 1, clv_rng_below(rng, 3) ? clv_min_u64(room, 3 * M) : room);
			rig_alloc(r, addr, size, 1 + (uint32_t)clv_rng_below(rng, STACKS));
			r->h->events[r->h->event_count - 1].block = id++;
			apply(&m, r->h, r->h->event_count - 1);
			live[count].addr = addr;
			live[count].size = size;
			live[count].stack = id - 1;
			live[count++].asked = false;
		} else if (dice >= 8 && dice < 14 && count) {
			size_t k = clv_rng_below(rng, count);
			bool asked = live[k].asked, both = clv_rng_below(rng, 2);
			if (!asked)
				rig_event(r, CLV_ACTION_FREE_REQUESTED, live[k].addr, live[k].size, 0, 0);
			if (asked || both)
				rig_event(r, CLV_ACTION_FREE_COMPLETED, live[k].addr, live[k].size, 0, 0);
			for (uint32_t i = r->h->event_count - (!asked && both ? 2 : 1); i < r->h->event_count; i++) {
				r->h->events[i].block = live[k].stack;
				apply(&m, r->h, i);
			}
			if (asked || both)
				live[k] = live[--count];
			else
				live[k].asked = true;
		} else if (dice == 14 && m.frame_count) {
			const struct frame *f = &m.frames[clv_rng_below(rng, m.frame_count)];
			if (!used_in(&m, f)) {
				rig_event(r, f->page ? CLV_ACTION_SEGMENT_UNMAP : CLV_ACTION_SEGMENT_FREE, f->addr,
					  f->size, 0, 0);
				apply(&m, r->h, r->h->event_count - 1);
			}
		}
	}
	for (uint32_t s = 0; s < STACKS; s++)
		rig_stack(r, 0, "file.py", s + 1, "f");
	rig_link(r);
}

/* ---- comparisons ---- */

static void compare_sums(const struct clv_report_sum *a, const struct clv_report_sum *b, uint64_t seed, uint32_t event)
{
	char why[256] = "";
	uint64_t all = 0;
	for (int c = 0; c < CLV_CAUSE_COUNT; c++) {
		all += a->of[c];
		if (a->of[c] != b->of[c])
			snprintf(why, sizeof(why), "%s", clv_cause_name((enum clv_cause)c));
	}
	ck_assert_msg(!why[0] && a->held == b->held && all == a->held, "seed %llu, event %u: %s",
		      (unsigned long long)seed, event, why);
}

static void compare_groups(const struct clv_state *s, const struct model *m, uint64_t seed)
{
	struct clv_culprits c;
	ck_assert(clv_culprits_find(&c, s, 100, 0, 0));
	uint64_t now = stranded(m, 0), so_far = 0;
	unsigned away = 0;
	for (size_t g = 0; g < c.group_count; g++) {
		const struct clv_report_group *group = &c.groups[g];
		ck_assert_msg(group->stranded_bytes == now - stranded(m, 1u << group->stack), "seed %llu",
			      (unsigned long long)seed);
		for (size_t k = g + 1; k < c.group_count; k++) /* none of those behind it would free more now */
			ck_assert_msg(group->marginal_bytes >=
					      stranded(m, away) - stranded(m, away | 1u << c.groups[k].stack),
				      "seed %llu", (unsigned long long)seed);
		away |= 1u << group->stack;
		so_far += group->marginal_bytes;
		ck_assert_msg(so_far == now - stranded(m, away), "seed %llu", (unsigned long long)seed);
	}
	ck_assert_uint_eq(so_far, now); /* nothing else pins anything here */

	/* the room that is there without each group */
	const struct clv_room_for any = {.asked = 3 * M, .hole_max = UINT64_MAX};
	for (uint32_t g = 0; g <= c.group_count; g++) {
		unsigned gone = g < c.group_count ? 1u << c.groups[g].stack : 0;
		struct clv_room room;
		uint64_t usable = 0, returnable = 0;
		clv_room_look(&room, s, &c, g < c.group_count ? g : CLV_ROOM_ALL, &any);
		for (size_t i = 0; i < m->frame_count; i++) {
			uint64_t used = 0;
			for (size_t k = 0; k < m->piece_count; k++)
				if (m->pieces[k].pending || !(gone >> m->pieces[k].stack & 1))
					used += part(m->pieces[k].addr, m->pieces[k].end, m->frames[i].addr,
						     m->frames[i].addr + m->frames[i].size);
			usable += m->frames[i].size - used;
			returnable += used ? 0 : m->frames[i].size;
		}
		ck_assert_msg(room.usable == usable && room.returnable == returnable, "seed %llu",
			      (unsigned long long)seed);
		ck_assert_msg(room.largest == largest_hole(m, gone), "seed %llu", (unsigned long long)seed);
		ck_assert_msg(room.fits == (room.largest >= any.asked), "seed %llu", (unsigned long long)seed);
	}
	clv_culprits_free(&c);
}

START_TEST(as_the_definitions_say)
{
	const char *given_seed = getenv("CLEAVE_SEED");
	uint64_t first = given_seed ? strtoull(given_seed, NULL, 10) : 1;
	for (uint64_t seed = first; seed < first + (given_seed ? 1 : RUNS); seed++) {
		struct rig r = rig_open();
		struct clv_rng rng = {seed};
		struct clv_error err = {{0}};
		struct clv_state s;
		random_history(&r, &rng);
		ck_assert_msg(clv_state_open(&s, r.trace, r.h, &err), "%s", err.text);
		for (int pass = 0; pass < 2; pass++) { /* the second time as the first */
			struct model m = {0};
			for (uint32_t i = 0; i < r.h->event_count; i++) {
				struct clv_report_sum sum;
				char why[256] = "";
				ck_assert(clv_state_step(&s));
				apply(&m, r.h, i);
				sum_of(&m, &sum);
				compare_sums(&s.plane.sum, &sum, seed, i);
				ck_assert_msg(clv_plane_check(&s.plane, why, sizeof(why)), "seed %llu, event %u: %s",
					      (unsigned long long)seed, i, why);
				if (i % 16 == 0)
					compare_groups(&s, &m, seed);
			}
			ck_assert(!clv_state_step(&s));
			clv_state_rewind(&s);
		}
		clv_state_close(&s);
		clv_trace_free(r.trace);
	}
}
END_TEST

START_TEST(holes_at_moments)
{
	for (uint64_t seed = 1000; seed < 1000 + RUNS; seed++) {
		struct rig r = rig_open();
		struct clv_rng rng = {seed};
		random_history(&r, &rng);
		uint32_t at = (uint32_t)clv_rng_range(&rng, 1, EVENTS);
		struct clv_report *report =
			rig_report(&r, &(struct clv_report_options){.at_event_set = true, .at_event = at});
		const struct clv_report_moment *chosen = rig_moment(report, CLV_MOMENT_CHOSEN);
		struct model m = {0};
		struct clv_report_sum sum;
		for (uint32_t i = 0; i < at; i++)
			apply(&m, r.h, i);
		sum_of(&m, &sum);
		compare_sums(&chosen->sum, &sum, seed, at);
		ck_assert_uint_eq(chosen->largest_hole, largest_hole(&m, 0));
		uint64_t holes = 0;
		for (uint32_t i = 0; i < chosen->holes_kept; i++) {
			const struct clv_report_hole *h = &chosen->holes[i];
			ck_assert(is_free(&m, h->addr, 0) && room_at(&m, h->addr) == h->size);
			ck_assert(i == 0 || h->size <= chosen->holes[i - 1].size);
			holes += h->stranded;
		}
		if (chosen->holes_kept == chosen->hole_count)
			ck_assert_uint_eq(holes, sum.of[CLV_CAUSE_HARD]);
		rig_close(&r, report);
	}
}
END_TEST

/* Members come and go; neighbours are those that a plain list has. */
START_TEST(rank_sets)
{
	static const uint32_t bounds[] = {1, 63, 64, 65, 4096, 5000, 300000};
	struct clv_rng rng = {7};
	for (size_t b = 0; b < CLV_ARRAY_LEN(bounds); b++) {
		struct clv_rankset set;
		bool *plain = calloc(bounds[b] + 1, sizeof(*plain));
		ck_assert(plain && clv_rankset_init(&set, bounds[b]));
		for (int i = 0; i < 2000; i++) {
			uint32_t at = (uint32_t)clv_rng_below(&rng, bounds[b]), next = at, prev = at;
			plain[at] = clv_rng_below(&rng, 3) != 0;
			(plain[at] ? clv_rankset_add : clv_rankset_remove)(&set, at);
			at = next = prev = (uint32_t)clv_rng_below(&rng, bounds[b] + 1);
			while (next < bounds[b] && !plain[next])
				next++;
			while (prev > 0 && !plain[prev])
				prev--;
			ck_assert_uint_eq(clv_rankset_next(&set, at), next < bounds[b] ? next : CLV_RANK_NONE);
			ck_assert_uint_eq(clv_rankset_prev(&set, at), plain[prev] ? prev : CLV_RANK_NONE);
			ck_assert(clv_rankset_has(&set, at) == plain[at]);
		}
		clv_rankset_free(&set);
		free(plain);
	}
}
END_TEST

CHECK_MAIN("report_random", as_the_definitions_say, holes_at_moments, rank_sets)
