/* SPDX-License-Identifier: MIT
 *
 * The model's invariants, walked in full: for tests.
 */
#include "torch_internal.h"

#include "../memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct walk {
	const struct clv_torch *m;
	char *why;
	size_t why_len;
	int64_t of[CLV_TORCH_STAT_KINDS][CLV_TORCH_STATS];
	uint64_t reserved, stranded, pending, used;
	uint64_t *in_half; /* blocks that say that they are in a set, two a half: free, unmapped */
};

CLV_PRINTF(2, 3) static bool wrong(struct walk *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(w->why, w->why_len, fmt, ap);
	va_end(ap);
	return false;
}

static void add(struct walk *w, uint32_t half, enum clv_torch_stat s, int64_t by)
{
	w->of[CLV_TORCH_ALL][s] += by;
	w->of[clv_thalf_small(half) ? CLV_TORCH_SMALL : CLV_TORCH_LARGE][s] += by;
}

static bool check_block(struct walk *w, uint32_t i)
{
	const struct clv_torch *m = w->m;
	const struct clv_tblock *b = &m->blocks[i];
	bool is_free = !b->allocated && !b->pending;
	if (!b->size || b->size % CLV_TORCH_MIN_BLOCK)
		return wrong(w, "block %u has %" PRIu64 " bytes", i, b->size);
	if (b->allocated && b->pending)
		return wrong(w, "block %u is allocated and pending", i);
	if (b->in_set != is_free)
		return wrong(w, "block %u is %s but %s", i, is_free ? "free" : "in use",
			     b->in_set ? "in a set" : "in none");
	if (!b->mapped && (!b->expandable || !is_free))
		return wrong(w, "block %u is unmapped but in use or native", i);
	if (is_free)
		w->in_half[2 * b->half + !b->mapped]++;
	if (!is_free) {
		add(w, b->half, CLV_TORCH_ACTIVE, 1);
		add(w, b->half, CLV_TORCH_ACTIVE_BYTES, (int64_t)b->size);
		add(w, b->half, CLV_TORCH_REQUESTED_BYTES, (int64_t)b->requested);
	}
	if (b->allocated) {
		add(w, b->half, CLV_TORCH_ALLOCATION, 1);
		add(w, b->half, CLV_TORCH_ALLOCATED_BYTES, (int64_t)b->size);
	}
	if (b->mapped) {
		w->reserved += b->size;
		add(w, b->half, CLV_TORCH_RESERVED_BYTES, (int64_t)b->size);
	}
	if (is_free && b->mapped) {
		w->stranded += clv_tstranded(m, b);
		if (!b->expandable && clv_tblock_split(b)) {
			add(w, b->half, CLV_TORCH_INACTIVE_SPLIT, 1);
			add(w, b->half, CLV_TORCH_INACTIVE_SPLIT_BYTES, (int64_t)b->size);
		}
	}
	w->pending += b->pending;
	return true;
}

/* The chain that starts at i tiles its segment, and no two neighbours should be one block. */
static bool check_chain(struct walk *w, uint32_t i)
{
	const struct clv_torch *m = w->m;
	const struct clv_tblock *first = &m->blocks[i];
	uint64_t end = first->addr;
	for (uint32_t prev = 0; i; prev = i, i = m->blocks[i].next) {
		const struct clv_tblock *b = &m->blocks[i];
		if (!b->used || b->prev != prev || b->addr != end)
			return wrong(w, "block %u at %#" PRIx64 " does not follow block %u, which ends at %#" PRIx64, i,
				     b->addr, prev, end);
		if (b->half != first->half || b->stream != first->stream || b->expandable != first->expandable)
			return wrong(w, "block %u is of another pool, stream or kind than its segment", i);
		const struct clv_tblock *p = &m->blocks[prev];
		if (prev && b->in_set && p->in_set && b->mapped == p->mapped)
			return wrong(w, "blocks %u and %u are free neighbours", prev, i);
		end += b->size;
	}
	if (!first->expandable) {
		add(w, first->half, CLV_TORCH_SEGMENT, 1);
		return true;
	}
	const struct clv_texpandable *e = &m->expandables[first->expandable];
	if (!e->used || e->base != first->addr || e->base + e->size != end)
		return wrong(w, "blocks from %#" PRIx64 " to %#" PRIx64 " do not tile their expandable segment",
			     first->addr, end);
	return true;
}

static bool check_set(struct walk *w, const struct clv_tset *set, uint64_t expected, const char *name, uint32_t half)
{
	const struct clv_torch *m = w->m;
	uint64_t n = 0;
	uint32_t last = 0;
	for (uint32_t i = clv_tset_first(m, set); i; last = i, i = clv_tset_next(m, set, i)) {
		const struct clv_tblock *b = &m->blocks[i], *a = &m->blocks[last];
		if (!b->used || (set->order != CLV_TORDER_ADDRESS && (b->half != half || !b->in_set)))
			return wrong(w, "block %u does not belong into set %s of half %u", i, name, half);
		if (++n > expected)
			break;
		bool ordered = !last || set->order == CLV_TORDER_ADDRESS ? !last || a->addr < b->addr
			       : a->stream != b->stream                  ? a->stream < b->stream
			       : set->order == CLV_TORDER_UNMAPPED       ? a->addr < b->addr
			       : a->size != b->size                      ? a->size < b->size
			       : a->order != b->order                    ? a->order < b->order
									 : a->addr < b->addr;
		if (!ordered)
			return wrong(w, "set %s of half %u is out of order at block %u", name, half, i);
		if (clv_tset_prev(m, set, i) != last)
			return wrong(w, "set %s of half %u cannot be walked back at block %u", name, half, i);
	}
	if (n != expected || set->count != expected)
		return wrong(w, "set %s of half %u has %" PRIu64 " blocks, counts %u and should have %" PRIu64, name,
			     half, n, set->count, expected);
	return true;
}

static bool check_sums(struct walk *w)
{
	const struct clv_torch *m = w->m;
	static const char *const names[CLV_TORCH_STATS] = {
		"allocation",      "segment",        "active",       "inactive_split",
		"allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes",
		"requested_bytes"};
	for (int k = 0; k < CLV_TORCH_STAT_KINDS; k++)
		for (int s = 0; s < CLV_TORCH_STATS; s++) {
			const struct clv_torch_counter *c = &m->now.stats.of[k][s];
			if (c->current != w->of[k][s])
				return wrong(w, "%s (kind %d) is %" PRId64 ", the blocks say %" PRId64, names[s], k,
					     c->current, w->of[k][s]);
			if (c->current < 0 || c->peak < c->current || (int64_t)(c->allocated - c->freed) != c->current)
				return wrong(w, "%s (kind %d) does not balance", names[s], k);
		}
	if (m->now.reserved != w->reserved)
		return wrong(w, "reserved is %" PRIu64 ", the blocks say %" PRIu64, m->now.reserved, w->reserved);
	if (m->now.stats.stranded_bytes != w->stranded)
		return wrong(w, "stranded is %" PRIu64 ", the blocks say %" PRIu64, m->now.stats.stranded_bytes,
			     w->stranded);
	uint64_t listed = 0;
	for (uint32_t i = m->now.pending_first; i && listed <= w->pending; i = m->blocks[i].set.right)
		listed++;
	if (m->now.pending != w->pending || listed != w->pending)
		return wrong(w, "%" PRIu64 " frees pend, %" PRIu64 " are listed, %" PRIu64 " counted", w->pending,
			     listed, m->now.pending);
	return true;
}

bool clv_torch_check(const struct clv_torch *m, char *why, size_t why_len)
{
	struct walk w = {.m = m, .why = why, .why_len = why_len};
	w.in_half = clv_mem_zalloc(4 * (size_t)m->pool_count, sizeof(*w.in_half));
	if (!w.in_half)
		return wrong(&w, "out of host memory");
	bool ok = true;
	for (uint32_t i = 1; ok && i < m->now.block_top; i++) {
		if (!m->blocks[i].used)
			continue;
		w.used++;
		ok = check_block(&w, i) && (m->blocks[i].prev || check_chain(&w, i));
	}
	for (uint32_t h = 0; ok && h < 2 * m->pool_count; h++)
		ok = check_set(&w, &m->halves[h].blocks, w.in_half[2 * h], "blocks", h) &&
		     check_set(&w, &m->halves[h].unmapped, w.in_half[2 * h + 1], "unmapped", h);
	if (ok && m->find)
		ok = check_set(&w, &m->now.index, w.used, "addresses", 0);
	clv_mem_free(w.in_half);
	return ok && check_sums(&w);
}
