/* SPDX-License-Identifier: MIT */
#include "address_map_internal.h"

#include "../map.h"

#include <string.h>

/* Memory that a reservation holds, from when it is held until it is served or given up. */
struct hold {
	uint64_t addr, size;
	uint32_t born, gone;
	uint32_t text;
};

struct holds {
	struct hold *items;
	size_t count, cap;
	struct clv_map open; /* address to item */
};

/* The blocks of a device, and who of them pins memory at a moment that is told. */
struct pins {
	const struct clv_report_device *d;
	uint8_t *stacks; /* by stack: it is the stack of a group that is told */
};

/* What covers no byte or no event is nothing to draw. */
static bool fill(struct clv_address_item *out, uint64_t addr, uint64_t size, uint32_t born, uint32_t freed,
		 uint32_t gone, uint32_t width)
{
	out->addr = addr;
	out->size = size;
	out->born = born == CLV_REPORT_BEFORE ? 0 : born;
	out->gone = gone == CLV_REPORT_BEFORE ? 0 : gone < width ? gone : width;
	out->freed = freed == CLV_REPORT_BEFORE ? 0 : freed < out->gone ? freed : out->gone;
	out->wanted = false;
	return size > 0 && out->born < out->gone;
}

static uint32_t width_of(const struct clv_report_device *d)
{
	return d->history->event_count ? d->history->event_count : 1;
}

static bool get_frame(const struct clv_address_source *s, uint64_t i, struct clv_address_item *out)
{
	const struct clv_report_device *d = s->of;
	const struct clv_report_frame *f = &d->frames[i];
	out->of = (uint32_t)i;
	return fill(out, f->addr, f->size, f->born, f->gone, f->gone, width_of(d)) && f->addr;
}

static bool get_hold(const struct clv_address_source *s, uint64_t i, struct clv_address_item *out)
{
	const struct holds *h = s->of;
	const struct hold *it = &h->items[i];
	out->of = it->text;
	return fill(out, it->addr, it->size, it->born, it->gone, it->gone, UINT32_MAX);
}

static bool in_group(const struct clv_report_group *g, const struct clv_report_block *b)
{
	return g->stack == b->stack && (!g->size || g->size == b->size) &&
	       (g->stream == CLV_NO_STREAM || g->stream == b->stream);
}

/* Only blocks of a stack that a group has are compared with the moments. Those without a stack are told by size and stream, of
 * which there are few. */
static bool is_pin(const struct pins *p, const struct clv_report_block *b, const struct clv_address_item *item)
{
	if (!p->stacks[b->stack])
		return false;
	for (uint32_t m = 0; m < p->d->moment_count; m++) {
		const struct clv_report_moment *at = &p->d->moments[m];
		if ((b->born != CLV_REPORT_BEFORE && b->born >= at->event) || at->event > item->gone)
			continue;
		for (uint32_t g = 0; g < at->groups_kept; g++)
			if (in_group(&at->groups[g], b))
				return true;
	}
	return false;
}

static bool get_block(const struct clv_address_source *s, uint64_t i, struct clv_address_item *out)
{
	const struct pins *p = s->of;
	const struct clv_report_block *b = &p->d->blocks[i];
	out->of = (uint32_t)i;
	if (!fill(out, b->addr, clv_max_u64(b->given, b->size), b->born, b->freed, b->gone, width_of(p->d)))
		return false;
	out->wanted = is_pin(p, b, out);
	return true;
}

static bool begin_hold(struct holds *h, const struct clv_note *n)
{
	struct clv_map_slot *slot = clv_map_slot(&h->open, n->addr);
	if (!slot)
		return false;
	slot->value = (uint32_t)h->count;
	if (!clv_mem_reserve(&h->items, &h->cap, h->count + 1, sizeof(*h->items)))
		return false;
	h->items[h->count++] = (struct hold){n->addr, n->size, n->event, UINT32_MAX, n->text};
	return true;
}

static bool find_holds(const struct clv_report_device *d, struct holds *h)
{
	for (uint32_t i = 0; i < d->history->note_count; i++) {
		const struct clv_note *n = &d->history->notes[i];
		if (n->kind == CLV_EVENT_RESERVE_HOLD) {
			if (!begin_hold(h, n))
				return false;
		} else if (n->kind == CLV_EVENT_RESERVE_SERVE || n->kind == CLV_EVENT_RESERVE_YIELD) {
			uint32_t at = clv_map_get(&h->open, n->addr);
			if (at != CLV_MAP_NONE && h->items[at].gone == UINT32_MAX)
				h->items[at].gone = n->event;
		}
	}
	for (size_t i = 0; i < h->count; i++)
		h->items[i].gone = (uint32_t)clv_min_u64(h->items[i].gone, width_of(d));
	return true;
}

static bool find_pins(struct pins *p)
{
	p->stacks = clv_mem_zalloc((size_t)p->d->trace->stack_count + 1, 1);
	if (!p->stacks)
		return false;
	for (uint32_t m = 0; m < p->d->moment_count; m++)
		for (uint32_t g = 0; g < p->d->moments[m].groups_kept; g++)
			p->stacks[p->d->moments[m].groups[g].stack] = 1;
	return true;
}

static bool make(struct clv_address_map *map, const struct clv_address_map_limits *limits,
		 const struct clv_address_source *sources)
{
	if (!clv_address_find_extents(map, sources, CLV_ADDRESS_LAYER_COUNT))
		return false;
	for (int i = 0; i < CLV_ADDRESS_LAYER_COUNT; i++)
		if (!clv_address_fill_layer(map, &sources[i], limits->rects, &map->layers[i]))
			return false;
	return true;
}

bool clv_address_map_make(const struct clv_report_device *d, const struct clv_address_map_limits *limits,
			  struct clv_address_map *out, struct clv_error *err)
{
	struct holds holds = {0};
	struct pins pinned = {.d = d};
	*out = (struct clv_address_map){.width = width_of(d), .columns = limits->columns, .rows = limits->rows};
	bool ok = find_holds(d, &holds) && find_pins(&pinned);
	const struct clv_address_source sources[CLV_ADDRESS_LAYER_COUNT] = {
		[CLV_ADDRESS_HELD] = {d, d->frame_count, get_frame},
		[CLV_ADDRESS_RESERVATIONS] = {&holds, holds.count, get_hold},
		[CLV_ADDRESS_BLOCKS] = {&pinned, d->history->block_count, get_block},
	};
	ok = ok && make(out, limits, sources);
	clv_map_free(&holds.open);
	clv_mem_free(holds.items);
	clv_mem_free(pinned.stacks);
	if (!ok) {
		clv_address_map_free(out);
		return clv_error_set(err, "%s: out of host memory", d->trace->file);
	}
	return true;
}

void clv_address_map_free(struct clv_address_map *map)
{
	clv_mem_free(map->extents);
	for (int i = 0; i < CLV_ADDRESS_LAYER_COUNT; i++) {
		clv_mem_free(map->layers[i].rects);
		clv_mem_free(map->layers[i].tiles);
	}
	*map = (struct clv_address_map){0};
}
