/* SPDX-License-Identifier: MIT
 *
 * pack_maker: sets of buffers whose best packing is known, since they were made by cutting up a rectangle of time and
 * memory: it is full at any time, so its height is the least. The same seed makes the same set. One thread.
 */
#ifndef CLV_PACK_MAKER_H
#define CLV_PACK_MAKER_H

#include "../src/base/base.h"

#include <cleave/plan.h>

#include <stdio.h>
#include <stdlib.h>

/* What a set has beside sizes and lives; any together. */
#define PACK_PINWHEELS 1u /* also cut so that no straight cut goes through */
#define PACK_ALIGNED 2u   /* alignments that the known packing has */
#define PACK_FIXED 4u     /* some offsets are given */
#define PACK_GAPS 8u      /* lives with gaps, in which others lie */
#define PACK_EMPTY 16u    /* also buffers without size or life; not counted in the number asked for */
#define PACK_KINDS 32u

struct pack_made {
	cleave_pack_buffer *buffers;
	uint64_t *offsets; /* a best packing */
	cleave_pack_span *gaps;
	size_t count;
	uint64_t height; /* of it */
};

struct pack_piece {
	int64_t t0, t1, gap0, gap1; /* gap0 == gap1: none */
	uint64_t m0, m1;
};

static inline void *pack_room(size_t count, size_t size)
{
	void *p = calloc(count + 1, size);
	if (!p) {
		fprintf(stderr, "out of host memory\n");
		exit(1);
	}
	return p;
}

/* Cuts piece i in two, or does nothing; returns how many pieces are new, at p[n]. */
static inline size_t pack_cut(struct pack_piece *p, size_t i, size_t n, struct clv_rng *rng)
{
	uint64_t life = (uint64_t)(p[i].t1 - p[i].t0), size = p[i].m1 - p[i].m0;
	bool by_time = clv_rng_below(rng, 2);
	if (p[i].gap0 < p[i].gap1 || (by_time ? life : size) < 2)
		return 0;
	p[n] = p[i];
	if (by_time)
		p[i].t1 = p[n].t0 = p[i].t0 + (int64_t)clv_rng_range(rng, 1, life - 1);
	else
		p[i].m1 = p[n].m0 = p[i].m0 + clv_rng_range(rng, 1, size - 1);
	return 1;
}

/* Four around a fifth. */
static inline size_t pack_cut_pinwheel(struct pack_piece *p, size_t i, size_t n, struct clv_rng *rng)
{
	struct pack_piece a = p[i];
	uint64_t life = (uint64_t)(a.t1 - a.t0), size = a.m1 - a.m0;
	if (a.gap0 < a.gap1 || life < 3 || size < 3)
		return 0;
	int64_t t0 = a.t0 + (int64_t)clv_rng_range(rng, 1, life - 2);
	int64_t t1 = t0 + (int64_t)clv_rng_range(rng, 1, (uint64_t)(a.t1 - t0) - 1);
	uint64_t m0 = a.m0 + clv_rng_range(rng, 1, size - 2), m1 = m0 + clv_rng_range(rng, 1, a.m1 - m0 - 1);
	p[i] = (struct pack_piece){.t0 = a.t0, .t1 = t1, .m0 = a.m0, .m1 = m0};
	p[n] = (struct pack_piece){.t0 = t1, .t1 = a.t1, .m0 = a.m0, .m1 = m1};
	p[n + 1] = (struct pack_piece){.t0 = t0, .t1 = a.t1, .m0 = m1, .m1 = a.m1};
	p[n + 2] = (struct pack_piece){.t0 = a.t0, .t1 = t0, .m0 = m0, .m1 = a.m1};
	p[n + 3] = (struct pack_piece){.t0 = t0, .t1 = t1, .m0 = m0, .m1 = m1};
	return 4;
}

/* A span of its life goes to another. */
static inline size_t pack_cut_gap(struct pack_piece *p, size_t i, size_t n, struct clv_rng *rng)
{
	uint64_t life = (uint64_t)(p[i].t1 - p[i].t0);
	if (p[i].gap0 < p[i].gap1 || life < 3)
		return 0;
	p[i].gap0 = p[i].t0 + (int64_t)clv_rng_range(rng, 1, life - 2);
	p[i].gap1 = p[i].gap0 + (int64_t)clv_rng_range(rng, 1, (uint64_t)(p[i].t1 - p[i].gap0) - 1);
	p[n] = (struct pack_piece){.t0 = p[i].gap0, .t1 = p[i].gap1, .m0 = p[i].m0, .m1 = p[i].m1};
	return 1;
}

/* A number that divides `offset`, not only powers of two. */
static inline uint64_t pack_divisor(uint64_t offset, struct clv_rng *rng)
{
	uint64_t d = clv_rng_range(rng, 1, 12) << clv_rng_below(rng, 6);
	while (offset % d)
		d = d % 2 ? d - 1 : d / 2;
	return d;
}

static inline cleave_pack_buffer pack_empty(struct clv_rng *rng, const struct pack_piece *whole)
{
	int64_t at = whole->t0 + (int64_t)clv_rng_below(rng, (uint64_t)(whole->t1 - whole->t0));
	bool no_size = clv_rng_below(rng, 2);
	return (cleave_pack_buffer){.lower = at,
				    .upper = no_size ? whole->t1 : at,
				    .size = no_size ? 0 : clv_rng_below(rng, whole->m1),
				    .offset = CLEAVE_PACK_ANYWHERE};
}

static inline struct pack_made pack_make(size_t count, unsigned kinds, uint64_t seed)
{
	struct clv_rng rng = {.state = clv_mix64(seed + count) ^ kinds};
	size_t empty = kinds & PACK_EMPTY ? count / 8 + 1 : 0, n = 1;
	struct pack_piece *p = pack_room(count + 8, sizeof(*p));
	p[0] = (struct pack_piece){.t0 = -(int64_t)clv_rng_below(&rng, 1000), .m1 = 64 + clv_rng_below(&rng, 64 * count)};
	p[0].t1 = p[0].t0 + 8 + (int64_t)clv_rng_below(&rng, 16 * count);
	struct pack_piece whole = p[0];
	/* Pieces that are too small to be cut are met now and then; there are always larger ones among so few. */
	for (size_t tries = 0; n < count && tries < 100 * count; tries++) {
		size_t i = clv_rng_below(&rng, n), kind = clv_rng_below(&rng, 8);
		if (kind < 3 && (kinds & PACK_PINWHEELS) && n + 4 <= count)
			n += pack_cut_pinwheel(p, i, n, &rng);
		else if (kind == 3 && (kinds & PACK_GAPS))
			n += pack_cut_gap(p, i, n, &rng);
		else
			n += pack_cut(p, i, n, &rng);
	}
	struct pack_made made = {.count = n + empty, .height = whole.m1};
	made.buffers = pack_room(made.count, sizeof(*made.buffers));
	made.offsets = pack_room(made.count, sizeof(*made.offsets));
	made.gaps = pack_room(n, sizeof(*made.gaps));
	for (size_t i = 0; i < n; i++) {
		cleave_pack_buffer *b = &made.buffers[i];
		*b = (cleave_pack_buffer){.lower = p[i].t0,
					  .upper = p[i].t1,
					  .size = p[i].m1 - p[i].m0,
					  .offset = CLEAVE_PACK_ANYWHERE};
		made.offsets[i] = p[i].m0;
		if (kinds & PACK_ALIGNED)
			b->alignment = pack_divisor(p[i].m0, &rng);
		if ((kinds & PACK_FIXED) && clv_rng_below(&rng, 5) == 0)
			b->offset = p[i].m0;
		if (p[i].gap0 < p[i].gap1) {
			made.gaps[i] = (cleave_pack_span){p[i].gap0, p[i].gap1};
			b->gaps = &made.gaps[i];
			b->gap_count = 1;
		}
	}
	for (size_t i = n; i < made.count; i++)
		made.buffers[i] = pack_empty(&rng, &whole);
	for (size_t i = made.count - 1; i > 0; i--) { /* in no order */
		size_t j = clv_rng_below(&rng, i + 1);
		cleave_pack_buffer b = made.buffers[i];
		uint64_t offset = made.offsets[i];
		made.buffers[i] = made.buffers[j];
		made.buffers[j] = b;
		made.offsets[i] = made.offsets[j];
		made.offsets[j] = offset;
	}
	free(p);
	return made;
}

static inline void pack_made_free(struct pack_made *made)
{
	free(made->buffers);
	free(made->offsets);
	free(made->gaps);
}

/* `count` buffers (two more at most), one live set of the same total at all times: now and then two die and one as large as
 * both is born, or one dies and two are. Those two must lie side by side, so that often no packing is as low as the total.
 * In *offsets and height of the result nothing is known. */
static inline struct pack_made pack_make_merging(size_t count, uint64_t seed)
{
	struct pack_made m = {.buffers = pack_room(count + 6, sizeof(*m.buffers))};
	size_t *live = pack_room(count + 6, sizeof(*live)), lives = 0;
	struct clv_rng rng = {.state = seed};
	int64_t now = 0;
	while (m.count < 4) {
		live[lives++] = m.count;
		m.buffers[m.count++] = (cleave_pack_buffer){.size = clv_rng_range(&rng, 2, 4), .offset = CLEAVE_PACK_ANYWHERE};
	}
	while (m.count < count) {
		size_t a = clv_rng_below(&rng, lives), b = clv_rng_below(&rng, lives);
		cleave_pack_buffer *first = &m.buffers[live[a]], *second = &m.buffers[live[b]];
		now++;
		if (a != b && lives > 2 && clv_rng_below(&rng, 2)) {
			first->upper = second->upper = now;
			live[a] = m.count;
			live[b] = live[--lives];
			m.buffers[m.count++] = (cleave_pack_buffer){
				.lower = now, .size = first->size + second->size, .offset = CLEAVE_PACK_ANYWHERE};
		} else if (first->size > 1) {
			uint64_t part = clv_rng_range(&rng, 1, first->size - 1);
			first->upper = now;
			live[a] = m.count;
			live[lives++] = m.count + 1;
			m.buffers[m.count++] =
				(cleave_pack_buffer){.lower = now, .size = part, .offset = CLEAVE_PACK_ANYWHERE};
			m.buffers[m.count++] = (cleave_pack_buffer){
				.lower = now, .size = first->size - part, .offset = CLEAVE_PACK_ANYWHERE};
		}
	}
	while (lives)
		m.buffers[live[--lives]].upper = now + 1;
	free(live);
	return m;
}

#endif
