/* SPDX-License-Identifier: MIT */
#include "free_runs.h"

#include "../memory.h"

#include <stdlib.h>

#define MIXED 255u

/* What lies under it. */
struct clv_run_node {
	uint64_t size, used;
	uint64_t prefix, suffix, longest; /* of free runs: at its beginning, at its end, anywhere */
	uint8_t state;                    /* enum clv_run_state of all of it, or MIXED */
	bool walled; /* a place for a wall is in it. If not, and it is not MIXED, what is below may be out of date */
};

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* Each address once; a place for a wall if one of its cuts was. */
static void sort_cuts(struct clv_free_runs *r)
{
	size_t kept = 0;
	if (r->count > 1)
		qsort(r->cuts, r->count, sizeof(*r->cuts), by_value);
	for (size_t i = 0; i < r->count; i++) {
		if (kept && r->cuts[kept - 1] >> 1 == r->cuts[i] >> 1)
			kept--;
		r->cuts[kept++] = r->cuts[i];
	}
	r->count = kept;
}

bool clv_free_runs_cut(struct clv_free_runs *r, uint64_t addr, bool wall)
{
	if (r->count == r->cap) {
		sort_cuts(r); /* addresses come again and again: mostly no more room is needed */
		if (r->count >= r->cap / 2 &&
		    !clv_mem_reserve(&r->cuts, &r->cap, r->count * 2 + 1024, sizeof(*r->cuts)))
			return false;
	}
	r->cuts[r->count++] = addr << 1 | wall;
	return true;
}

static void fill(struct clv_run_node *n, uint8_t state)
{
	n->state = state;
	n->used = state == CLV_RUN_USED ? n->size : 0;
	n->prefix = n->suffix = n->longest = state == CLV_RUN_FREE ? n->size : 0;
}

static void join(struct clv_run_node *n, const struct clv_run_node *left, const struct clv_run_node *right)
{
	n->size = left->size + right->size;
	n->used = left->used + right->used;
	n->walled = left->walled || right->walled;
	n->state = left->state == right->state ? left->state : MIXED;
	/* a wall is a leaf without size: that is absent if it is up, and free if not */
	n->prefix = left->state == CLV_RUN_FREE ? left->size + right->prefix : left->prefix;
	n->suffix = right->state == CLV_RUN_FREE ? right->size + left->suffix : right->suffix;
	n->longest = clv_max_u64(clv_max_u64(left->longest, right->longest), left->suffix + right->prefix);
}

bool clv_free_runs_build(struct clv_free_runs *r)
{
	size_t elements = 0;
	sort_cuts(r);
	r->place = clv_mem_realloc(NULL, r->count + 1, sizeof(*r->place));
	if (!r->place)
		return false;
	for (size_t i = 0; i < r->count; i++) {
		elements += r->cuts[i] & 1; /* a leaf of its own, without size */
		r->place[i] = (uint32_t)elements++;
	}
	for (r->leaves = 1; r->leaves < elements; r->leaves *= 2)
		;
	r->nodes = clv_mem_zalloc(2 * r->leaves, sizeof(*r->nodes));
	if (!r->nodes)
		return false;
	for (size_t i = 0; i < r->count; i++) {
		struct clv_run_node *leaf = &r->nodes[r->leaves + r->place[i]];
		if (i + 1 < r->count)
			leaf->size = (r->cuts[i + 1] >> 1) - (r->cuts[i] >> 1);
		if (r->cuts[i] & 1) {
			leaf[-1].walled = true;
			leaf[-1].state = CLV_RUN_FREE;
		}
	}
	for (size_t i = r->leaves - 1; i > 0; i--)
		join(&r->nodes[i], &r->nodes[2 * i], &r->nodes[2 * i + 1]);
	return true;
}

static size_t leaf_at(const struct clv_free_runs *r, uint64_t addr)
{
	size_t lo = 0, hi = r->count;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (r->cuts[mid] >> 1 < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return r->place[lo];
}

/* Brings what is below a node of one state up to date. */
static void push(struct clv_free_runs *r, size_t n)
{
	if (r->nodes[n].state == MIXED || r->nodes[n].walled)
		return;
	fill(&r->nodes[2 * n], r->nodes[n].state);
	fill(&r->nodes[2 * n + 1], r->nodes[n].state);
}

/* Leaves [from, to) of those under node n, which are [first, first + count). Walls stay what they are. */
static void set(struct clv_free_runs *r, size_t n, size_t first, size_t count, size_t from, size_t to,
		enum clv_run_state state)
{
	struct clv_run_node *node = &r->nodes[n];
	if (from >= first + count || to <= first)
		return;
	if (from <= first && to >= first + count && !node->walled) {
		fill(node, (uint8_t)state);
		return;
	}
	if (count == 1)
		return;
	push(r, n);
	set(r, 2 * n, first, count / 2, from, to, state);
	set(r, 2 * n + 1, first + count / 2, count / 2, from, to, state);
	join(node, &r->nodes[2 * n], &r->nodes[2 * n + 1]);
}

void clv_free_runs_set(struct clv_free_runs *r, uint64_t addr, uint64_t end, enum clv_run_state state)
{
	if (addr < end)
		set(r, 1, 0, r->leaves, leaf_at(r, addr), leaf_at(r, end), state);
}

void clv_free_runs_wall(struct clv_free_runs *r, uint64_t addr, bool up)
{
	size_t n = r->leaves + leaf_at(r, addr) - 1;
	r->nodes[n].state = up ? CLV_RUN_ABSENT : CLV_RUN_FREE;
	while (n /= 2)
		join(&r->nodes[n], &r->nodes[2 * n], &r->nodes[2 * n + 1]);
}

uint64_t clv_free_runs_longest(const struct clv_free_runs *r)
{
	return r->nodes[1].longest;
}

static uint64_t used(struct clv_free_runs *r, size_t n, size_t first, size_t count, size_t from, size_t to)
{
	if (from >= first + count || to <= first || !r->nodes[n].used)
		return 0;
	if (from <= first && to >= first + count)
		return r->nodes[n].used;
	push(r, n);
	return used(r, 2 * n, first, count / 2, from, to) + used(r, 2 * n + 1, first + count / 2, count / 2, from, to);
}

uint64_t clv_free_runs_used(struct clv_free_runs *r, uint64_t addr, uint64_t end)
{
	return addr < end ? used(r, 1, 0, r->leaves, leaf_at(r, addr), leaf_at(r, end)) : 0;
}

void clv_free_runs_free(struct clv_free_runs *r)
{
	clv_mem_free(r->cuts);
	clv_mem_free(r->place);
	clv_mem_free(r->nodes);
	*r = (struct clv_free_runs){0};
}
