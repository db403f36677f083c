/* SPDX-License-Identifier: MIT */
#include "address_map_internal.h"

#include "../map.h"

#include <stdlib.h>

#define EXTENTS_MAX 4096u
#define GAP_MIN (2 * CLV_MIB) /* smaller ones are drawn as they are */

struct range {
	uint64_t addr, end;
};

struct ranges {
	struct range *items;
	size_t count, cap;
	struct clv_map index; /* address to item */
};

/* The same addresses come again and again: one range is kept for each, as long as the longest. */
static bool add(struct ranges *r, const struct clv_address_item *item)
{
	uint64_t end;
	if (__builtin_add_overflow(item->addr, item->size, &end))
		end = UINT64_MAX;
	struct clv_map_slot *slot = clv_map_slot(&r->index, item->addr);
	if (!slot)
		return false;
	if (slot->value != CLV_MAP_NONE) {
		struct range *known = &r->items[slot->value];
		known->end = clv_max_u64(known->end, end);
		return true;
	}
	if (!clv_mem_reserve(&r->items, &r->cap, r->count + 1, sizeof(*r->items))) {
		slot->value = 0; /* never used: the caller gives up */
		return false;
	}
	slot->value = (uint32_t)r->count;
	r->items[r->count++] = (struct range){item->addr, end};
	return true;
}

static bool collect(struct ranges *r, const struct clv_address_source *sources, size_t count)
{
	struct clv_address_item item;
	for (size_t s = 0; s < count; s++)
		for (uint64_t i = 0; i < sources[s].count; i++)
			if (sources[s].get(&sources[s], i, &item) && !add(r, &item))
				return false;
	return true;
}

static int by_address(const void *a, const void *b)
{
	const struct range *x = a, *y = b;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int larger_first(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x > y ? -1 : x < y;
}

/* Joins ranges that touch or have less than `gap` between them; returns how many are left. */
static size_t join(struct range *r, size_t count, uint64_t gap)
{
	size_t kept = 0;
	for (size_t i = 0; i < count; i++)
		if (kept && (r[i].addr <= r[kept - 1].end || r[i].addr - r[kept - 1].end < gap))
			r[kept - 1].end = clv_max_u64(r[kept - 1].end, r[i].end);
		else
			r[kept++] = r[i];
	return kept;
}

/* The gap that the largest EXTENTS_MAX - 1 gaps have at least. False: out of host memory. */
static bool widest_gaps(const struct range *r, size_t count, uint64_t *gap)
{
	*gap = GAP_MIN;
	if (count <= EXTENTS_MAX)
		return true;
	uint64_t *gaps = clv_mem_alloc(count * sizeof(*gaps));
	if (!gaps)
		return false;
	for (size_t i = 1; i < count; i++)
		gaps[i - 1] = r[i].addr - r[i - 1].end;
	qsort(gaps, count - 1, sizeof(*gaps), larger_first);
	*gap = gaps[EXTENTS_MAX - 2] + 1; /* of equal ones, none is kept rather than too many */
	clv_mem_free(gaps);
	return true;
}

static bool lay_out(struct clv_address_map *map, const struct range *r, size_t count)
{
	uint64_t used = 0;
	for (size_t i = 0; i < count; i++)
		used += r[i].end - r[i].addr;
	/* Steps are seen, but take no more than a tenth of the picture. */
	uint64_t step = clv_min_u64(used / 400, count ? used / 10 / count : 0);
	map->extents = clv_mem_zalloc(count, sizeof(*map->extents));
	if (!map->extents)
		return false;
	uint64_t y = 0;
	for (size_t i = 0; i < count; i++) {
		if (i)
			y += clv_min_u64(step, r[i].addr - r[i - 1].end);
		map->extents[i] = (struct clv_address_extent){r[i].addr, r[i].end - r[i].addr, y};
		y += r[i].end - r[i].addr;
	}
	map->extent_count = (uint32_t)count;
	map->height = y;
	return true;
}

bool clv_address_find_extents(struct clv_address_map *map, const struct clv_address_source *sources, size_t count)
{
	struct ranges r = {0};
	bool ok = collect(&r, sources, count);
	if (ok) {
		if (r.count)
			qsort(r.items, r.count, sizeof(*r.items), by_address);
		uint64_t gap;
		r.count = join(r.items, r.count, GAP_MIN);
		ok = widest_gaps(r.items, r.count, &gap);
		if (ok && gap > GAP_MIN)
			r.count = join(r.items, r.count, gap);
		ok = ok && lay_out(map, r.items, r.count);
	}
	clv_map_free(&r.index);
	clv_mem_free(r.items);
	return ok;
}

uint64_t clv_address_place(const struct clv_address_map *map, uint64_t addr)
{
	uint32_t low = 0, high = map->extent_count;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (map->extents[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low)
		return 0;
	const struct clv_address_extent *e = &map->extents[low - 1];
	return e->y + clv_min_u64(addr - e->addr, e->size);
}
