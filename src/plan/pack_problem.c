/* SPDX-License-Identifier: MIT */
#include "pack_problem.h"
#include "pack_floor.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL_MAX ((uint64_t)1 << 62)

/* A birth or a death of a range. */
struct event {
	int64_t time;
	uint32_t range; /* its index, times two, plus 1 if it is a birth: deaths come first */
};

static int by_time(const void *va, const void *vb)
{
	const struct event *a = va, *b = vb;
	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	if ((a->range ^ b->range) & 1)
		return (int)(a->range & 1) - (int)(b->range & 1);
	return a->range < b->range ? -1 : a->range > b->range;
}

static int by_place(const void *va, const void *vb)
{
	const struct clv_pack_item *a = va, *b = vb;
	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	if (a->hi != b->hi)
		return a->hi < b->hi ? -1 : 1;
	return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t r = a % b;
		a = b;
		b = r;
	}
	return a;
}

static bool check_gaps(const cleave_pack_buffer *b, size_t index, struct clv_error *err)
{
	int64_t after = b->lower;
	if (b->gap_count && !b->gaps)
		return clv_error_set(err, "buffer %zu: gap_count is %zu but gaps is NULL", index, b->gap_count);
	for (size_t g = 0; g < b->gap_count; g++) {
		const cleave_pack_span *gap = &b->gaps[g];
		if (gap->lower >= gap->upper)
			return clv_error_set(err, "buffer %zu: gap %" PRId64 " to %" PRId64 " is empty", index, gap->lower,
					     gap->upper);
		if (gap->lower < after || gap->upper > b->upper)
			return clv_error_set(err, "buffer %zu: gap %" PRId64 " to %" PRId64
					     " overlaps the gap before it, or is outside of the life %" PRId64
					     " to %" PRId64,
					     index, gap->lower, gap->upper, b->lower, b->upper);
		after = gap->upper;
	}
	return true;
}

/* Also adds up what the problem will need. */
static bool check(const cleave_pack_buffer *buffers, size_t count, size_t *gaps, struct clv_error *err)
{
	uint64_t total = 0;
	*gaps = 0;
	for (size_t i = 0; i < count; i++) {
		const cleave_pack_buffer *b = &buffers[i];
		if (b->upper < b->lower)
			return clv_error_set(err, "buffer %zu dies at %" PRId64 ", before its birth at %" PRId64, i, b->upper,
					     b->lower);
		if (!check_gaps(b, i, err))
			return false;
		uint64_t align = b->alignment ? b->alignment : 1;
		/* each may be moved up by its alignment at most */
		if (b->size >= TOTAL_MAX || align >= TOTAL_MAX || (total += b->size + align - 1) >= TOTAL_MAX)
			return clv_error_set(err, "buffer %zu: all sizes, each with its alignment, are 2^62 or more", i);
		if (b->offset != CLEAVE_PACK_ANYWHERE && b->offset >= TOTAL_MAX)
			return clv_error_set(err, "buffer %zu: its offset is 2^62 or more", i);
		*gaps += b->gap_count;
	}
	if (count >= UINT32_MAX / 8 || *gaps >= UINT32_MAX / 8)
		return clv_error_set(err, "%zu buffers with %zu gaps: at most %" PRIu32 " of either can be packed", count,
				     *gaps, UINT32_MAX / 8 - 1);
	return true;
}

static void add_item(struct clv_pack_problem *p, const cleave_pack_buffer *b, uint32_t index, struct event *events)
{
	if (!b->size || b->lower == b->upper)
		return;
	struct clv_pack_item *item = &p->items[p->count];
	uint32_t first = p->range_total;
	int64_t from = b->lower;
	for (size_t g = 0; g <= b->gap_count; g++) {
		int64_t to = g < b->gap_count ? b->gaps[g].lower : b->upper;
		if (from < to) {
			uint32_t range = p->range_total++;
			events[2 * (size_t)range] = (struct event){from, 2 * range + 1};
			events[2 * (size_t)range + 1] = (struct event){to, 2 * range};
		}
		if (g < b->gap_count)
			from = b->gaps[g].upper;
	}
	if (p->range_total == first)
		return; /* all gap */
	*item = (struct clv_pack_item){
		.size = b->size,
		.align = b->alignment ? b->alignment : 1,
		.fixed = b->offset,
		.range = first,
		.range_count = p->range_total - first,
		.buffer = index,
		.life = (uint64_t)b->upper - (uint64_t)b->lower,
	};
	p->count++;
}

static void make_sections(struct clv_pack_problem *p, struct event *events)
{
	qsort(events, 2 * (size_t)p->range_total, sizeof(*events), by_time);
	bool born = false;
	for (size_t e = 0; e < 2 * (size_t)p->range_total; e++) {
		struct clv_pack_range *range = &p->ranges[events[e].range / 2];
		if (events[e].range & 1) {
			range->lo = p->sections;
			born = true;
			continue;
		}
		/* the set of the live is as large as it gets until the next birth */
		p->sections += born;
		born = false;
		range->hi = p->sections;
	}
	for (uint32_t i = 0; i < p->count; i++) {
		struct clv_pack_item *item = &p->items[i];
		struct clv_pack_range *r = p->ranges + item->range;
		uint32_t kept = 0;
		/* A gap in which no section falls is none. */
		for (uint32_t k = 1; k < item->range_count; k++) {
			if (r[k].lo == r[kept].hi)
				r[kept].hi = r[k].hi;
			else
				r[++kept] = r[k];
		}
		item->range_count = kept + 1;
		item->lo = r[0].lo;
		item->hi = r[kept].hi;
	}
	qsort(p->items, p->count, sizeof(*p->items), by_place);
}

/* Whether sizes alone decide where items can lie; if so, in which unit, perhaps after they were rounded up. */
static void find_unit(struct clv_pack_problem *p)
{
	uint64_t unit = 0;
	bool same = true, divides = true;
	p->plain = true;
	for (uint32_t i = 0; i < p->count; i++) {
		const struct clv_pack_item *item = &p->items[i];
		unit = gcd(unit, item->size);
		same = same && item->align == p->items[0].align;
		p->plain = p->plain && item->fixed == CLEAVE_PACK_ANYWHERE && item->range_count == 1;
	}
	for (uint32_t i = 0; i < p->count; i++)
		divides = divides && unit % p->items[i].align == 0;
	p->unit = p->grains = p->grain = 1;
	p->plain = p->plain && (divides || same);
	if (!p->plain || !p->count)
		return;
	if (!divides) {
		/* Offsets are multiples of what all are aligned to, so what follows an item up to the next is lost. */
		uint64_t align = p->items[0].align;
		unit = 0;
		for (uint32_t i = 0; i < p->count; i++) {
			uint64_t size = p->items[i].size;
			p->items[i].size = (size + align - 1) / align * align;
			p->items[i].padding = p->items[i].size - size;
			unit = gcd(unit, p->items[i].size);
		}
	}
	p->unit = unit;
	for (uint32_t i = 0; i < p->count; i++) {
		p->items[i].size /= unit;
		p->items[i].align = 1;
	}
	p->grains = divides ? 1 : unit;
	p->grain = unit / p->grains;
}

uint64_t clv_pack_load_in(const struct clv_pack_problem *p, uint32_t lo, uint32_t hi)
{
	uint64_t most = 0;
	for (lo += p->load_leaves, hi += p->load_leaves; lo < hi; lo /= 2, hi /= 2) {
		if (lo & 1)
			most = clv_max_u64(most, p->load_tree[lo++]);
		if (hi & 1)
			most = clv_max_u64(most, p->load_tree[--hi]);
	}
	return most;
}

struct padded {
	uint64_t padding;
	uint32_t item;
};

static int by_padding(const void *va, const void *vb)
{
	const struct padded *a = va, *b = vb;
	if (a->padding != b->padding)
		return a->padding < b->padding ? -1 : 1;
	return a->item < b->item ? -1 : a->item > b->item;
}

/* Where sizes were rounded up: the topmost item of a section saves its padding. */
static bool bound_padded(struct clv_pack_problem *p)
{
	struct clv_pack_floor most; /* of the padding, by section */
	struct padded *padded = malloc(((size_t)p->count + 1) * sizeof(*padded));
	if (!padded || !clv_pack_floor_make(&most, p->sections)) {
		free(padded);
		return false;
	}
	for (uint32_t i = 0; i < p->count; i++)
		padded[i] = (struct padded){p->items[i].padding, i};
	qsort(padded, p->count, sizeof(*padded), by_padding);
	for (uint32_t k = 0; k < p->count; k++) {
		const struct clv_pack_item *item = &p->items[padded[k].item];
		clv_pack_floor_assign(&most, item->lo, item->hi, padded[k].padding);
	}
	for (uint32_t s = 0; s < p->sections; s++)
		p->bound = clv_max_u64(p->bound, p->load[s] * p->grains - clv_pack_floor_max(&most, s, s + 1));
	clv_pack_floor_free(&most);
	free(padded);
	return true;
}

/* What follows from loads and from what is fixed. */
static bool find_bound(struct clv_pack_problem *p)
{
	p->bound = 0;
	if (p->grains > 1)
		return bound_padded(p);
	p->bound = p->load_max;
	for (uint32_t i = 0; i < p->count; i++)
		if (p->items[i].fixed != CLEAVE_PACK_ANYWHERE)
			p->bound = clv_max_u64(p->bound, p->items[i].fixed + p->items[i].size);
	return true;
}

static bool add_loads(struct clv_pack_problem *p)
{
	uint64_t load = 0;
	p->load_leaves = 1;
	while (p->load_leaves <= p->sections)
		p->load_leaves *= 2;
	p->load_tree = calloc((size_t)p->load_leaves * 2, sizeof(*p->load_tree));
	if (!p->load_tree)
		return false;
	p->load = p->load_tree + p->load_leaves;
	for (uint32_t i = 0; i < p->count; i++) {
		const struct clv_pack_item *item = &p->items[i];
		const struct clv_pack_range *r = clv_pack_ranges(p, item);
		for (uint32_t k = 0; k < item->range_count; k++) {
			p->load[r[k].lo] += item->size; /* differences, modulo 2^64 */
			p->load[r[k].hi] -= item->size;
		}
	}
	for (uint32_t s = 0; s < p->sections; s++) {
		load += p->load[s];
		p->load[s] = load;
	}
	p->load[p->sections] = 0;
	for (uint32_t i = p->load_leaves; --i;)
		p->load_tree[i] = clv_max_u64(p->load_tree[2 * i], p->load_tree[2 * i + 1]);
	p->load_max = p->load_tree[1];
	return true;
}

struct fixed {
	uint64_t offset;
	uint32_t item;
};

static int by_offset(const void *va, const void *vb)
{
	const struct fixed *a = va, *b = vb;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return a->item < b->item ? -1 : a->item > b->item;
}

bool clv_pack_items_share_section(const struct clv_pack_problem *p, const struct clv_pack_item *a,
				  const struct clv_pack_item *b)
{
	const struct clv_pack_range *r = clv_pack_ranges(p, a), *q = clv_pack_ranges(p, b);
	for (uint32_t i = 0, k = 0; i < a->range_count && k < b->range_count;) {
		if (r[i].lo < q[k].hi && q[k].lo < r[i].hi)
			return true;
		if (r[i].hi < q[k].hi)
			i++;
		else
			k++;
	}
	return false;
}

static bool say_collision(const struct clv_pack_problem *p, const struct fixed *fixed, uint32_t at, struct clv_error *err)
{
	const struct clv_pack_item *a = &p->items[fixed[at].item];
	for (uint32_t i = at; i--;) {
		const struct clv_pack_item *b = &p->items[fixed[i].item];
		if (b->fixed + b->size > a->fixed && clv_pack_items_share_section(p, a, b))
			return clv_error_set(err, "buffers %" PRIu32 " and %" PRIu32 " are live at one time and fixed at offsets %" PRIu64
					     " and %" PRIu64 ", where they overlap",
					     b->buffer, a->buffer, b->fixed, a->fixed);
	}
	return true;
}

/* From the lowest up, each must lie above all that is below. */
static bool check_fixed(struct clv_pack_problem *p, struct clv_error *err)
{
	struct clv_pack_floor floor;
	struct fixed *fixed = malloc(((size_t)p->count + 1) * sizeof(*fixed));
	p->fixed_items = malloc(((size_t)p->count + 1) * sizeof(*p->fixed_items));
	bool ok = fixed && p->fixed_items && clv_pack_floor_make(&floor, p->sections);
	if (!ok) {
		free(fixed);
		return false;
	}
	for (uint32_t i = 0; i < p->count; i++)
		if (p->items[i].fixed != CLEAVE_PACK_ANYWHERE)
			fixed[p->fixed_count++] = (struct fixed){p->items[i].fixed, i};
	qsort(fixed, p->fixed_count, sizeof(*fixed), by_offset);
	for (uint32_t i = 0; ok && i < p->fixed_count; i++) {
		const struct clv_pack_item *item = &p->items[fixed[i].item];
		const struct clv_pack_range *r = clv_pack_ranges(p, item);
		p->fixed_items[i] = fixed[i].item;
		for (uint32_t k = 0; ok && k < item->range_count; k++) {
			if (clv_pack_floor_max(&floor, r[k].lo, r[k].hi) > item->fixed)
				ok = say_collision(p, fixed, i, err);
			clv_pack_floor_assign(&floor, r[k].lo, r[k].hi, item->fixed + item->size);
		}
	}
	clv_pack_floor_free(&floor);
	free(fixed);
	return ok;
}

bool clv_pack_problem_make(struct clv_pack_problem *p, const cleave_pack_buffer *buffers, size_t count,
			   struct clv_error *err)
{
	size_t gaps;
	*p = (struct clv_pack_problem){0};
	if (!check(buffers, count, &gaps, err))
		return false;
	struct event *events = malloc(2 * (count + gaps + 1) * sizeof(*events));
	p->items = malloc((count + 1) * sizeof(*p->items));
	p->ranges = malloc((count + gaps + 1) * sizeof(*p->ranges));
	bool ok = events && p->items && p->ranges;
	if (ok) {
		for (size_t i = 0; i < count; i++)
			add_item(p, &buffers[i], (uint32_t)i, events);
		make_sections(p, events);
		find_unit(p);
		ok = add_loads(p) && find_bound(p) && check_fixed(p, err);
	}
	free(events);
	if (!ok)
		clv_pack_problem_free(p);
	return ok;
}

/* An item as a buffer again, in time by sections. Returns the room after its gaps. */
static cleave_pack_span *to_buffer(const struct clv_pack_problem *p, const struct clv_pack_item *item,
				   cleave_pack_buffer *buffer, cleave_pack_span *gaps)
{
	const struct clv_pack_range *r = clv_pack_ranges(p, item);
	*buffer = (cleave_pack_buffer){.lower = item->lo,
				       .upper = item->hi,
				       .size = item->size,
				       .alignment = item->align,
				       .offset = item->fixed,
				       .gaps = gaps,
				       .gap_count = item->range_count - 1};
	for (uint32_t k = 1; k < item->range_count; k++)
		*gaps++ = (cleave_pack_span){r[k - 1].hi, r[k].lo};
	return gaps;
}

bool clv_pack_problem_subset(struct clv_pack_problem *subset, const struct clv_pack_problem *p, const uint32_t *items,
			     uint32_t count)
{
	struct clv_error none = {0}; /* what comes from a problem makes sense */
	size_t ranges = 0;
	*subset = (struct clv_pack_problem){0};
	for (uint32_t i = 0; i < count; i++)
		ranges += p->items[items[i]].range_count;
	cleave_pack_buffer *buffers = malloc(((size_t)count + 1) * sizeof(*buffers));
	cleave_pack_span *gaps = malloc((ranges + 1) * sizeof(*gaps)), *gap = gaps;
	bool ok = buffers && gaps;
	for (uint32_t i = 0; ok && i < count; i++)
		gap = to_buffer(p, &p->items[items[i]], &buffers[i], gap);
	ok = ok && clv_pack_problem_make(subset, buffers, count, &none);
	for (uint32_t i = 0; ok && i < subset->count; i++) {
		struct clv_pack_item *item = &subset->items[i];
		item->buffer = items[item->buffer];
		item->life = p->items[item->buffer].life;
		item->padding += p->items[item->buffer].padding; /* one of them is 0 */
	}
	if (ok && p->grains > 1) {
		subset->grains = subset->unit * p->grains;
		subset->grain = 1;
		ok = find_bound(subset);
	}
	free(buffers);
	free(gaps);
	return ok;
}

void clv_pack_problem_free(struct clv_pack_problem *p)
{
	free(p->items);
	free(p->ranges);
	free(p->load_tree);
	free(p->fixed_items);
	*p = (struct clv_pack_problem){0};
}
