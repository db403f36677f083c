/* SPDX-License-Identifier: MIT
 *
 * Pages that were mapped before the window: those whose first event unmaps them, or that have none and are mapped at the end.
 */
#include "../memory.h"
#include "torch_allocator.h"
#include "torch_window_internal.h"

#include <stdlib.h>

struct pages {
	uint64_t *edge;                 /* sorted; piece i is [edge[i], edge[i + 1]) */
	uint32_t *next;                 /* first piece from here on that no event has touched */
	struct clv_window_range *piece; /* size 0: not mapped at the start */
	uint32_t count;
};

static uint32_t piece_at(const struct pages *p, uint64_t addr)
{
	uint32_t lo = 0, hi = p->count;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (p->edge[mid] < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static uint32_t untouched(struct pages *p, uint32_t i)
{
	uint32_t root = i;
	while (p->next[root] != root)
		root = p->next[root];
	while (p->next[i] != root) {
		uint32_t n = p->next[i];
		p->next[i] = root;
		i = n;
	}
	return root;
}

static void touch(struct pages *p, uint64_t addr, uint64_t size, const struct clv_window_range *as)
{
	uint32_t end = piece_at(p, addr + size);
	for (uint32_t i = untouched(p, piece_at(p, addr)); i < end; i = untouched(p, i)) {
		if (as) {
			p->piece[i] = *as;
			p->piece[i].addr = p->edge[i];
			p->piece[i].size = p->edge[i + 1] - p->edge[i];
		}
		p->next[i] = i + 1;
	}
}

static bool is_mapping(const struct clv_event_record *e)
{
	return (e->action == CLV_ACTION_SEGMENT_MAP || e->action == CLV_ACTION_SEGMENT_UNMAP) && e->size &&
	       e->addr <= UINT64_MAX - e->size;
}

static bool pages_init(struct pages *p, const struct clv_history *h)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < h->event_count; i++)
		n += is_mapping(&h->events[i]);
	for (uint32_t i = 0; i < h->segment_count; i++)
		n += h->segments[i].expandable;
	if (!n)
		return true;
	p->edge = clv_mem_realloc(NULL, 2 * n, sizeof(*p->edge));
	if (!p->edge)
		return false;
	uint64_t k = 0;
	for (uint32_t i = 0; i < h->event_count; i++)
		if (is_mapping(&h->events[i])) {
			p->edge[k++] = h->events[i].addr;
			p->edge[k++] = h->events[i].addr + h->events[i].size;
		}
	for (uint32_t i = 0; i < h->segment_count; i++)
		if (h->segments[i].expandable) {
			p->edge[k++] = h->segments[i].addr;
			p->edge[k++] = h->segments[i].addr + h->segments[i].size;
		}
	qsort(p->edge, k, sizeof(*p->edge), clv_window_by_addr);
	uint64_t unique = 0;
	for (uint64_t i = 0; i < k; i++)
		if (!i || p->edge[i] != p->edge[i - 1])
			p->edge[unique++] = p->edge[i];
	p->count = (uint32_t)unique - 1;
	p->next = clv_mem_realloc(NULL, unique, sizeof(*p->next));
	p->piece = clv_mem_zalloc(unique, sizeof(*p->piece));
	if (!p->next || !p->piece)
		return false;
	for (uint32_t i = 0; i < unique; i++)
		p->next[i] = i;
	return true;
}

static void pages_free(struct pages *p)
{
	clv_mem_free(p->edge);
	clv_mem_free(p->next);
	clv_mem_free(p->piece);
}

/* ---- which pool pages are of ---- */

/* For each mapping whether it is of the small pool: the request that it was made for tells. */
static uint8_t *small_mappings(const struct clv_window_builder *b)
{
	const struct clv_history *h = b->h;
	uint8_t *small = clv_mem_zalloc(h->event_count, 1);
	bool next = false;
	for (uint32_t i = h->event_count; small && i-- > 0;) {
		const struct clv_event_record *e = &h->events[i];
		if (e->action == CLV_ACTION_ALLOC || e->action == CLV_ACTION_OOM)
			next = clv_torch_round(b->settings, e->size) <= CLV_MIB;
		small[i] = next;
	}
	return small;
}

/* First segment of the final state that begins above an address. */
static uint32_t segment_above(const struct clv_history *h, uint64_t addr)
{
	uint32_t lo = 0, hi = h->segment_count;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (h->segments[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* A block that was in the pages at the start. */
static const struct clv_initial_block *block_inside(const struct clv_history *h, uint64_t addr, uint64_t size)
{
	const struct clv_initial_block *first = clv_history_initial_from(h, addr);
	return first && first->addr - addr < size ? first : NULL;
}

/* The pool of pages that were there at the start and are unmapped in the window: that of a segment at the end that meets
 * them, or told by a block in them; small pages are no multiple of large ones, unless by chance; else that of the nearest
 * segment at the end. */
static struct clv_window_range pages_kind(const struct clv_window_builder *b, const struct clv_event_record *e)
{
	const struct clv_history *h = b->h;
	struct clv_window_range r = {.stream = b->trace->streams[e->stream], .pool = e->pool, .expandable = true};
	const struct clv_segment_record *nearest = NULL;
	uint64_t away = UINT64_MAX;
	uint32_t above = segment_above(h, e->addr);
	for (uint32_t i = above ? above - 1 : 0; i < h->segment_count && i <= above; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		uint64_t gap = s->addr > e->addr ? s->addr - e->addr : e->addr - s->addr;
		if (!s->expandable || s->stream != e->stream || gap >= away)
			continue;
		away = gap;
		nearest = s;
	}
	bool meets = nearest && nearest->addr <= e->addr + e->size && e->addr <= nearest->addr + nearest->size;
	const struct clv_initial_block *inside = block_inside(h, e->addr, e->size);
	if (meets) {
		r.small = nearest->small;
		r.pool = nearest->pool;
	} else if (inside) {
		r.small = clv_torch_round(b->settings, inside->size) <= CLV_MIB;
	} else if (e->size % b->settings->large_segment_size) {
		r.small = true;
	} else if (nearest && away < b->reservation / 2) {
		r.small = nearest->small;
		r.pool = nearest->pool;
	}
	return r;
}

/* ---- the reservations ---- */

struct reserved {
	struct clv_window_reserved r;
	uint64_t mapped; /* bytes now; with the last of them the reservation goes */
	bool initial;
};

struct all_reserved {
	struct reserved *v;
	size_t count, room;
};

static struct reserved *reserved_of(struct all_reserved *all, uint64_t stream, uint32_t pool, bool small)
{
	for (size_t k = 0; k < all->count; k++) {
		struct reserved *v = &all->v[k];
		if (v->mapped && v->r.stream == stream && v->r.pool == pool && v->r.small == small)
			return v;
	}
	return NULL;
}

/* While a pool of a stream has one with something mapped in it, it reserves no other: so a mapping belongs to that, wherever
 * it lies. */
static bool add_mapped(struct all_reserved *all, const struct clv_window_range *r, bool initial)
{
	struct reserved *v = reserved_of(all, r->stream, r->pool, r->small);
	if (!v) {
		for (size_t k = 0; k < all->count && !v; k++)
			if (!all->v[k].mapped && !all->v[k].initial)
				v = &all->v[k]; /* of no more use */
		if (!v) {
			if (!clv_mem_reserve(&all->v, &all->room, all->count + 1, sizeof(*all->v)))
				return false;
			v = &all->v[all->count++];
		}
		*v = (struct reserved){{r->addr, r->stream, r->pool, r->small}, 0, initial};
	}
	v->r.base = clv_min_u64(v->r.base, r->addr);
	v->mapped += r->size;
	return true;
}

static void take_mapped(struct all_reserved *all, uint64_t stream, uint64_t addr, uint64_t size)
{
	struct reserved *below = NULL;
	for (size_t k = 0; k < all->count; k++) {
		struct reserved *v = &all->v[k];
		if (v->mapped && v->r.stream == stream && v->r.base <= addr && (!below || v->r.base > below->r.base))
			below = v;
	}
	if (below)
		below->mapped -= clv_min_u64(below->mapped, size);
}

/* Follows the reservations through the window: pages below the first known one that are mapped later tell where it begins. */
static bool find_reserved(struct clv_window_builder *b, const uint8_t *small)
{
	struct clv_torch_window *w = b->w;
	struct all_reserved all = {NULL};
	bool ok = true;
	for (uint32_t i = 0; ok && i < w->range_count; i++)
		ok = add_mapped(&all, &w->ranges[i], true);
	for (uint32_t i = 0; ok && w->range_count && i < b->h->event_count; i++) {
		const struct clv_event_record *e = &b->h->events[i];
		uint64_t stream = b->trace->streams[e->stream];
		struct clv_window_range r = {
			.addr = e->addr, .size = e->size, .stream = stream, .pool = e->pool, .small = small[i]};
		if (e->action == CLV_ACTION_SEGMENT_MAP)
			ok = add_mapped(&all, &r, false);
		else if (e->action == CLV_ACTION_SEGMENT_UNMAP)
			take_mapped(&all, stream, e->addr, e->size);
	}
	w->reserved = ok ? clv_mem_realloc(NULL, all.count, sizeof(*w->reserved)) : NULL;
	ok = w->reserved != NULL;
	for (size_t k = 0; ok && k < all.count; k++)
		if (all.v[k].initial)
			w->reserved[w->reserved_count++] = all.v[k].r;
	clv_mem_free(all.v);
	return ok;
}

bool clv_window_expandable(struct clv_window_builder *b)
{
	const struct clv_history *h = b->h;
	struct pages p = {NULL};
	bool ok = pages_init(&p, h);
	for (uint32_t i = 0; ok && p.count && i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		if (!is_mapping(e))
			continue;
		bool unmaps = e->action == CLV_ACTION_SEGMENT_UNMAP;
		struct clv_window_range r = unmaps ? pages_kind(b, e) : (struct clv_window_range){0};
		touch(&p, e->addr, e->size, unmaps ? &r : NULL);
	}
	for (uint32_t i = 0; ok && p.count && i < h->segment_count; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		struct clv_window_range r = {
			.stream = b->trace->streams[s->stream], .pool = s->pool, .small = s->small, .expandable = true};
		if (s->expandable)
			touch(&p, s->addr, s->size, &r);
	}
	for (uint32_t i = 0; ok && i < p.count; i++) {
		const struct clv_window_range *r = &p.piece[i];
		struct clv_window_range *last = b->w->range_count ? &b->w->ranges[b->w->range_count - 1] : NULL;
		if (!r->size)
			continue;
		if (last && last->addr + last->size == r->addr && last->stream == r->stream && last->pool == r->pool &&
		    last->small == r->small)
			last->size += r->size;
		else
			ok = clv_window_add_range(b, r);
	}
	pages_free(&p);
	if (!ok || !b->w->range_count)
		return ok;
	uint8_t *small = small_mappings(b);
	ok = small && find_reserved(b, small);
	clv_mem_free(small);
	return ok;
}
