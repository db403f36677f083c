/* SPDX-License-Identifier: MIT */
#include "slab.h"

#include "../host/meta.h"
#include "purchase.h"
#include "reclaim.h"
#include "space.h"
#include "streams.h"

#include <errno.h>
#include <string.h>

struct clv_late {
	uint64_t addr, seq;
	struct clv_late *next;
};

uint32_t clv_class_size(unsigned cls)
{
	if (cls < 8)
		return (cls + 1) * 512u;
	return (5 + (cls - 8) % 4) << (10 + (cls - 8) / 4);
}

/* At least eight slots, in a power of two of units. */
static unsigned slab_units(uint32_t slot_size)
{
	unsigned units = 1;
	while (((uint64_t)units << CLV_UNIT_SHIFT) < 8ull * slot_size)
		units *= 2;
	return units;
}

static void link_partial(struct clv_arena *a, struct clv_slab *s)
{
	struct clv_slab **head = &a->slots[s->chunk->slot]->slabs->partial[s->cls];
	s->next = *head;
	s->link = head;
	if (s->next)
		s->next->link = &s->next;
	*head = s;
}

static void unlink_partial(struct clv_slab *s)
{
	if (!s->link)
		return;
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	s->link = NULL;
}

/* ---- chunks ---- */

#define ALL_UNITS UINT32_MAX

static struct clv_chunk **list_of(struct clv_slabs *slabs, const struct clv_chunk *c)
{
	return c->used_units == ALL_UNITS ? &slabs->full : &slabs->chunks;
}

static void link_chunk(struct clv_slabs *slabs, struct clv_chunk *c)
{
	struct clv_chunk **link = list_of(slabs, c), *prev = NULL;
	while (*link && (*link)->serial > c->serial && c->used_units != ALL_UNITS) {
		prev = *link;
		link = &prev->next;
	}
	c->prev = prev;
	c->next = *link;
	if (c->next)
		c->next->prev = c;
	*link = c;
}

static void unlink_chunk(struct clv_slabs *slabs, struct clv_chunk *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		*list_of(slabs, c) = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

/* Full chunks stand apart, so that however many there are, one with units left is found at once. */
static void set_units(struct clv_slabs *slabs, struct clv_chunk *c, uint32_t used)
{
	bool moves = (c->used_units == ALL_UNITS) != (used == ALL_UNITS);
	if (moves)
		unlink_chunk(slabs, c);
	c->used_units = used;
	if (moves)
		link_chunk(slabs, c);
}

static uint32_t units_mask(unsigned units)
{
	return (uint32_t)(((uint64_t)1 << units) - 1);
}

/* The memory of a slot's next chunk. A short one may come to lie in a page that has a chunk. */
static struct clv_extent *alloc_chunk(struct clv_arena *a, struct clv_slot *slot, int *why)
{
	struct clv_request rq = {
		.size = CLV_PAGE_QUARTER, .align = CLV_PAGE_QUARTER, .slot = slot, .exact = true, .no_wait = true};
	if (!slot->slabs->chunks && !slot->slabs->full && clv_purchase_is_large(a)) {
		struct clv_extent *e = clv_reclaim_alloc(a, &rq, why);
		if (!e || !clv_pagemap_page_has_chunk(&a->pages, e->addr))
			return e;
		clv_space_free(a, e, slot->index, e->live.seq);
	}
	rq.size = rq.align = CLV_PAGE;
	return clv_reclaim_alloc(a, &rq, why);
}

static struct clv_chunk *new_chunk(struct clv_arena *a, struct clv_slot *slot, int *why)
{
	struct clv_chunk *c = clv_meta_zalloc(sizeof(*c));
	if (!c) {
		*why = -ENOSPC;
		return NULL;
	}
	c->extent = alloc_chunk(a, slot, why);
	if (!c->extent) {
		clv_meta_free(c);
		return NULL;
	}
	c->extent->chunk = true;
	c->slot = slot->index;
	uint32_t units = units_mask((unsigned)(c->extent->size >> CLV_UNIT_SHIFT));
	c->no_units = c->used_units = ~(units << ((c->extent->addr - clv_chunk_page(c)) >> CLV_UNIT_SHIFT));
	c->serial = a->chunks_made++;
	link_chunk(slot->slabs, c);
	a->chunk_count++;
	clv_pagemap_set_chunk(&a->pages, c->extent->addr, c->extent->size, c);
	return c;
}

static void free_chunk(struct clv_arena *a, struct clv_chunk *c)
{
	struct clv_slot *slot = a->slots[c->slot];
	clv_pagemap_set_chunk(&a->pages, c->extent->addr, c->extent->size, NULL);
	unlink_chunk(slot->slabs, c);
	a->chunk_count--;
	uint64_t seq = clv_slot_freed(a, slot, c->extent->size, false);
	c->extent->chunk = false;
	clv_space_free(a, c->extent, slot->index, seq);
	clv_meta_free(c);
}

/* A free, aligned run of units, as a mask of their bits; 0: none. */
static uint32_t find_units(const struct clv_chunk *c, unsigned units, unsigned *first)
{
	uint32_t mask = units_mask(units);
	for (unsigned i = 0; i < CLV_UNITS; i += units)
		if (!(c->used_units & mask << i)) {
			*first = i;
			return mask << i;
		}
	return 0;
}

static struct clv_slab *new_slab(struct clv_arena *a, struct clv_slot *slot, unsigned cls, int *why)
{
	uint32_t size = clv_class_size(cls);
	unsigned units = slab_units(size), first = 0;
	struct clv_slab *s = clv_meta_zalloc(sizeof(*s));
	if (!s) {
		*why = -ENOSPC;
		return NULL;
	}
	struct clv_chunk *c = slot->slabs->chunks;
	uint32_t mask = 0;
	while (c && !(mask = find_units(c, units, &first)))
		c = c->next;
	if (!c) {
		c = new_chunk(a, slot, why);
		if (!c) {
			clv_meta_free(s);
			return NULL;
		}
		mask = find_units(c, units, &first);
	}
	set_units(slot->slabs, c, c->used_units | mask);
	s->chunk = c;
	s->addr = clv_chunk_page(c) + ((uint64_t)first << CLV_UNIT_SHIFT);
	s->slot_size = size;
	s->inverse = (((uint64_t)1 << 32) + size / CLV_GRAIN - 1) / (size / CLV_GRAIN);
	s->slots = (uint16_t)(((uint64_t)units << CLV_UNIT_SHIFT) / size);
	s->cls = (uint8_t)cls;
	s->first_unit = (uint8_t)first;
	s->units = (uint8_t)units;
	for (unsigned i = 0; i < s->slots; i++)
		s->free_bits[i / 64] |= 1ull << (i % 64);
	for (unsigned i = 0; i < units; i++)
		atomic_store_explicit(&c->units[first + i], s, memory_order_release);
	link_partial(a, s);
	return s;
}

static void free_slab(struct clv_arena *a, struct clv_slab *s)
{
	struct clv_chunk *c = s->chunk;
	struct clv_slabs *slabs = a->slots[c->slot]->slabs;
	uint32_t used = c->used_units;
	unlink_partial(s);
	for (unsigned i = 0; i < s->units; i++) {
		atomic_store_explicit(&c->units[s->first_unit + i], NULL, memory_order_release);
		used &= ~(1u << (s->first_unit + i));
	}
	set_units(slabs, c, used);
	clv_meta_free(s);
	/* the last chunk is kept, empty as it is, against coming and going at the edge */
	if (used == c->no_units && (c->prev || c->next || slabs->full) && clv_slot_ready(a->slots[c->slot]))
		free_chunk(a, c);
}

/* ---- slots ---- */

unsigned clv_slab_take(struct clv_arena *a, struct clv_slot *slot, unsigned cls, unsigned n, struct clv_piece *out, int *why)
{
	if (!slot->slabs && !(slot->slabs = clv_meta_zalloc(sizeof(*slot->slabs)))) {
		*why = -ENOSPC;
		return 0;
	}
	unsigned got = 0;
	while (got < n) {
		struct clv_slab *s = slot->slabs->partial[cls];
		/* a new slab only for the first: the rest is a convenience */
		if (!s && (got || !(s = new_slab(a, slot, cls, why))))
			break;
		for (unsigned w = 0; w < CLV_ARRAY_LEN(s->free_bits) && got < n; w++)
			while (s->free_bits[w] && got < n) {
				unsigned number = w * 64 + (unsigned)__builtin_ctzll(s->free_bits[w]);
				s->free_bits[w] &= s->free_bits[w] - 1;
				out[got++] = (struct clv_piece){s->addr + (uint64_t)number * s->slot_size, s, number};
				a->slabs_taken += s->slot_size;
				s->taken++;
			}
		if (s->taken == s->slots)
			unlink_partial(s);
	}
	return got;
}

void clv_slab_give(struct clv_arena *a, uint64_t addr)
{
	unsigned number;
	struct clv_slab *s = clv_slab_find(a, addr, &number);
	if (s->taken == s->slots)
		link_partial(a, s);
	s->free_bits[number / 64] |= 1ull << (number % 64);
	s->taken--;
	a->slabs_taken -= s->slot_size;
	if (!s->taken)
		free_slab(a, s);
}

bool clv_slab_give_late(struct clv_arena *a, uint64_t addr, struct clv_slot *freed_on)
{
	if (!clv_pool_reserve(&a->late_pool, 1))
		return false;
	uint64_t seq = clv_slot_freed(a, freed_on, 0, true);
	struct clv_late *l = clv_pool_take(&a->late_pool);
	l->addr = addr;
	l->seq = seq;
	*freed_on->late_tail = l;
	freed_on->late_tail = &l->next;
	return true;
}

void clv_slabs_pending(const struct clv_arena *a,
		       void (*visit)(void *arg, uint64_t addr, uint64_t bytes, const struct clv_arena *a), void *arg)
{
	for (uint32_t i = 0; i < a->slot_count; i++)
		for (const struct clv_late *l = a->slots[i]->late; l; l = l->next) {
			unsigned number;
			if (!clv_slot_passed(a, i, l->seq))
				visit(arg, l->addr, clv_slab_find(a, l->addr, &number)->slot_size, a);
		}
}

bool clv_slabs_reap(struct clv_arena *a)
{
	bool any = false;
	for (uint32_t i = 0; i < a->slot_count; i++) {
		struct clv_slot *slot = a->slots[i];
		struct clv_late *l = slot->late;
		if (l && !clv_slot_passed(a, i, l->seq))
			clv_slot_poll(a, slot);
		for (; l && clv_slot_passed(a, i, l->seq); l = slot->late) {
			slot->late = l->next;
			if (!slot->late)
				slot->late_tail = &slot->late;
			clv_slab_give(a, l->addr);
			clv_pool_give(&a->late_pool, l);
			any = true;
		}
	}
	return any;
}

bool clv_slabs_shrink(struct clv_arena *a)
{
	bool any = false;
	for (uint32_t i = 0; i < a->slot_count; i++) {
		struct clv_slabs *slabs = a->slots[i]->slabs;
		for (struct clv_chunk *c = slabs ? slabs->chunks : NULL, *next; c; c = next) {
			next = c->next;
			if (c->used_units == c->no_units && clv_slot_ready(a->slots[i])) {
				free_chunk(a, c);
				any = true;
			}
		}
	}
	return any;
}

static void orphan_chunks(struct clv_arena *a, struct clv_chunk *c)
{
	for (struct clv_slabs *any = a->slots[CLV_SLOT_ANY]->slabs; c;) {
		struct clv_chunk *next = c->next;
		c->slot = CLV_SLOT_ANY;
		link_chunk(any, c);
		for (unsigned u = 0; u < CLV_UNITS; u++) {
			struct clv_slab *s = c->units[u];
			if (s && s->first_unit == u && s->link) {
				unlink_partial(s);
				link_partial(a, s);
			}
		}
		c = next;
	}
}

void clv_slabs_orphan(struct clv_arena *a, struct clv_slot *slot)
{
	struct clv_slot *any = a->slots[CLV_SLOT_ANY];
	if (slot->late) {
		for (struct clv_late *l = slot->late; l; l = l->next)
			l->seq = 0;
		*any->late_tail = slot->late;
		any->late_tail = slot->late_tail;
		slot->late = NULL;
		slot->late_tail = &slot->late;
	}
	struct clv_slabs *from = slot->slabs;
	if (!from)
		return;
	if (!any->slabs) {
		any->slabs = from;
		slot->slabs = NULL;
		for (struct clv_chunk *c = from->chunks; c; c = c->next)
			c->slot = CLV_SLOT_ANY;
		for (struct clv_chunk *c = from->full; c; c = c->next)
			c->slot = CLV_SLOT_ANY;
		return;
	}
	orphan_chunks(a, from->chunks);
	orphan_chunks(a, from->full);
	from->chunks = from->full = NULL;
}

void clv_slabs_init(struct clv_arena *a)
{
	clv_pool_init(&a->late_pool, sizeof(struct clv_late));
}

void clv_slab_block_at(const struct clv_arena *a, uint64_t addr, uint64_t *start, uint64_t *requested)
{
	struct clv_chunk *chunk = clv_pagemap_chunk(&a->pages, addr);
	struct clv_slab *s = chunk ? chunk->units[addr >> CLV_UNIT_SHIFT & (CLV_UNITS - 1)] : NULL;
	*start = 0;
	if (!s)
		return;
	unsigned number = (unsigned)((addr - s->addr) / s->slot_size);
	uint64_t bytes = number < s->slots ? atomic_load_explicit(&s->requested[number], memory_order_relaxed) : 0;
	if (bytes) {
		*start = s->addr + (uint64_t)number * s->slot_size;
		*requested = bytes;
	}
}

static void drop_chunks(struct clv_chunk *c)
{
	while (c) {
		struct clv_chunk *next = c->next;
		for (unsigned u = 0; u < CLV_UNITS; u++) {
			struct clv_slab *s = c->units[u];
			if (s && s->first_unit == u)
				clv_meta_free(s);
		}
		clv_meta_free(c);
		c = next;
	}
}

void clv_slabs_fini(struct clv_arena *a)
{
	for (uint32_t i = 0; i < a->slot_count; i++) {
		struct clv_slabs *slabs = a->slots[i]->slabs;
		if (!slabs)
			continue;
		drop_chunks(slabs->chunks);
		drop_chunks(slabs->full);
		clv_meta_free(slabs);
	}
	clv_pool_fini(&a->late_pool);
}

static bool is_taken(const struct clv_arena *a, uint64_t addr)
{
	unsigned number;
	const struct clv_slab *s = clv_slab_find(a, addr, &number);
	return s && !(s->free_bits[number / 64] >> (number % 64) & 1) && !atomic_load(&s->requested[number]);
}

static const char *check_slab(const struct clv_slab *s, uint64_t *taken)
{
	unsigned free_slots = 0;
	for (unsigned k = 0; k < s->slots; k++) {
		bool is_free = s->free_bits[k / 64] >> (k % 64) & 1;
		free_slots += is_free;
		if (is_free && atomic_load_explicit(&s->requested[k], memory_order_relaxed))
			return "slab: a slot is free and live";
	}
	if (free_slots + s->taken != s->slots || !s->taken)
		return "slab: free and taken slots do not add up, or an empty slab is kept";
	if (!s->link != !free_slots)
		return "slab: a slab with free slots is not in its partial list";
	*taken += (uint64_t)s->taken * s->slot_size;
	return NULL;
}

static const char *check_chunks(const struct clv_arena *a, uint32_t slot, const struct clv_chunk *c, bool full, uint64_t *taken)
{
	for (uint64_t newer = UINT64_MAX; c; newer = c->serial, c = c->next) {
		if (c->slot != slot || !c->extent->chunk || c->extent->kind != CLV_LIVE)
			return "slab: a chunk is not a live extent of its slot";
		if (clv_pagemap_chunk(&a->pages, c->extent->addr) != c)
			return "slab: the pagemap does not know a chunk";
		if (full != (c->used_units == ALL_UNITS) || (!full && c->serial >= newer))
			return "slab: a chunk is in the wrong list, or out of order";
		for (unsigned u = 0; u < CLV_UNITS; u++) {
			const struct clv_slab *s = c->units[u];
			if (!s != !((c->used_units & ~c->no_units) >> u & 1))
				return "slab: a unit is used by no slab, or free under one";
			const char *broken = s && s->first_unit == u ? check_slab(s, taken) : NULL;
			if (broken)
				return broken;
		}
	}
	return NULL;
}

const char *clv_slabs_check(const struct clv_arena *a, uint64_t *taken)
{
	*taken = 0;
	for (uint32_t i = 0; i < a->slot_count; i++) {
		const struct clv_slabs *slabs = a->slots[i]->slabs;
		const char *broken = slabs ? check_chunks(a, i, slabs->chunks, false, taken) : NULL;
		if (slabs && !broken)
			broken = check_chunks(a, i, slabs->full, true, taken);
		if (broken)
			return broken;
		uint64_t seq = 0;
		for (const struct clv_late *l = a->slots[i]->late; l; seq = l->seq, l = l->next)
			if (l->seq < seq || !is_taken(a, l->addr))
				return "slab: late slots are out of order, or free in their slab";
	}
	return NULL;
}
