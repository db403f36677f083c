/* SPDX-License-Identifier: MIT
 *
 * Storage of blocks, the ordered sets over them, and undo. A set is a treap: a binary search tree whose nodes also form a
 * heap by a hash of their number, which keeps it balanced in expectation without any stored balance.
 */
#include "torch_internal.h"

#include "../memory.h"

#include <string.h>

/* ---- undo ---- */

struct clv_tkept {
	uint32_t kind, index;
};

static void *kept_place(struct clv_torch *m, enum clv_tkept_kind kind, uint32_t index, size_t *size)
{
	switch (kind) {
	case CLV_TKEPT_BLOCK:
		*size = sizeof(*m->blocks);
		return &m->blocks[index];
	case CLV_TKEPT_HALF:
		*size = sizeof(*m->halves);
		return &m->halves[index];
	case CLV_TKEPT_POOL:
		*size = sizeof(*m->pools);
		return &m->pools[index];
	case CLV_TKEPT_EXPANDABLE:
		break;
	}
	*size = sizeof(*m->expandables);
	return &m->expandables[index];
}

void clv_tkeep(struct clv_torch *m, enum clv_tkept_kind kind, uint32_t index)
{
	struct clv_tundo *u = &m->undo;
	struct clv_tkept kept = {kind, index};
	size_t size;
	void *place = kept_place(m, kind, index, &size);
	if (u->room - u->used < size + sizeof(kept)) {
		size_t room = u->room ? 2 * u->room : 64 * 1024;
		uint8_t *bytes = clv_mem_realloc(u->bytes, room, 1);
		if (!bytes) {
			m->broken = true;
			return;
		}
		u->bytes = bytes;
		u->room = room;
	}
	memcpy(u->bytes + u->used, place, size);
	memcpy(u->bytes + u->used + size, &kept, sizeof(kept));
	u->used += size + sizeof(kept);
}

void clv_torch_begin(struct clv_torch *m)
{
	m->undo.on = true;
	m->undo.used = 0;
	m->undo.epoch++;
	m->undo.now = m->now;
}

void clv_torch_commit(struct clv_torch *m)
{
	m->undo.on = false;
}

void clv_torch_rollback(struct clv_torch *m)
{
	struct clv_tundo *u = &m->undo;
	/* backwards: where something was kept twice, the older contents win */
	while (u->used) {
		struct clv_tkept kept;
		size_t size;
		u->used -= sizeof(kept);
		memcpy(&kept, u->bytes + u->used, sizeof(kept));
		void *place = kept_place(m, kept.kind, kept.index, &size);
		u->used -= size;
		memcpy(place, u->bytes + u->used, size);
	}
	m->now = u->now;
	u->on = false;
}

/* ---- storage ---- */

bool clv_tblocks_reserve(struct clv_torch *m, uint32_t n)
{
	/* nodes on the free list are not counted: cheap and never wrong */
	if (m->block_room >= (uint64_t)m->now.block_top + n)
		return true;
	uint64_t room = clv_max_u64(2 * (uint64_t)m->block_room, m->now.block_top + (uint64_t)n + 1024);
	void *memory = room < UINT32_MAX ? clv_mem_realloc(NULL, room + 1, sizeof(*m->blocks)) : NULL;
	if (!memory) {
		m->broken = true;
		return false;
	}
	struct clv_tblock *blocks = (void *)clv_align_up((uintptr_t)memory, CLV_TLINE);
	if (m->block_room)
		memcpy(blocks, m->blocks, m->block_room * sizeof(*blocks));
	/* an undo may put back `block_top`, so nodes above it must be readable */
	memset(blocks + m->block_room, 0, (room - m->block_room) * sizeof(*blocks));
	clv_mem_free(m->block_memory);
	m->block_memory = memory;
	m->blocks = blocks;
	m->block_room = (uint32_t)room;
	return true;
}

uint32_t clv_tblock_new(struct clv_torch *m)
{
	uint32_t i = m->now.free_block;
	struct clv_tblock *b;
	if (i) {
		b = clv_tw_block(m, i);
		m->now.free_block = b->next;
	} else {
		i = m->now.block_top++;
		b = clv_tw_block(m, i);
	}
	*b = (struct clv_tblock){.used = true, .mapped = true, .epoch = b->epoch};
	m->now.blocks_made++;
	if (m->settings.tie_break == CLV_TORCH_TIE_COUNTER)
		b->order = m->now.blocks_made;
	return i;
}

void clv_tblock_drop(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	b->used = false;
	b->next = m->now.free_block;
	m->now.free_block = i;
}

/* ---- ordered sets ---- */

static uint32_t weight(uint32_t i)
{
	i *= 0x9e3779b1u;
	i ^= i >> 15;
	i *= 0x85ebca77u;
	return i ^ (i >> 13);
}

static inline bool before(const struct clv_tblock *a, const struct clv_tblock *b, enum clv_torder order)
{
	if (order != CLV_TORDER_ADDRESS) {
		if (a->stream != b->stream)
			return a->stream < b->stream;
		if (order == CLV_TORDER_FREE) {
			if (a->size != b->size)
				return a->size < b->size;
			if (a->order != b->order)
				return a->order < b->order;
		}
	}
	return a->addr < b->addr;
}

static inline const struct clv_tlink *link_of(const struct clv_torch *m, const struct clv_tset *set, uint32_t i)
{
	return set->order == CLV_TORDER_ADDRESS ? &m->blocks[i].index : &m->blocks[i].set;
}

static inline struct clv_tlink *link_to(struct clv_torch *m, const struct clv_tset *set, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	return set->order == CLV_TORDER_ADDRESS ? &b->index : &b->set;
}

/* Puts `to` where `from` hangs below `up` (0: at the root). */
static void hang(struct clv_torch *m, struct clv_tset *set, uint32_t up, uint32_t from, uint32_t to)
{
	if (!up)
		set->root = to;
	else if (link_of(m, set, up)->left == from)
		link_to(m, set, up)->left = to;
	else
		link_to(m, set, up)->right = to;
	if (to)
		link_to(m, set, to)->up = up;
}

static void rotate_up(struct clv_torch *m, struct clv_tset *set, uint32_t i)
{
	uint32_t p = link_of(m, set, i)->up;
	uint32_t g = link_of(m, set, p)->up;
	struct clv_tlink *li = link_to(m, set, i), *lp = link_to(m, set, p);
	uint32_t moved;
	hang(m, set, g, p, i);
	if (lp->left == i) {
		moved = li->right;
		lp->left = moved;
		li->right = p;
	} else {
		moved = li->left;
		lp->right = moved;
		li->left = p;
	}
	if (moved)
		link_to(m, set, moved)->up = p;
	lp->up = i;
}

void clv_tset_insert(struct clv_torch *m, struct clv_tset *set, uint32_t i)
{
	const struct clv_tblock *b = &m->blocks[i];
	uint32_t at = set->root, up = 0;
	bool left = false;
	while (at) {
		up = at;
		left = before(b, &m->blocks[at], set->order);
		const struct clv_tlink *l = link_of(m, set, at);
		at = left ? l->left : l->right;
	}
	*link_to(m, set, i) = (struct clv_tlink){.up = up};
	if (!up)
		set->root = i;
	else if (left)
		link_to(m, set, up)->left = i;
	else
		link_to(m, set, up)->right = i;
	set->count++;
	uint32_t w = weight(i);
	while ((up = link_of(m, set, i)->up) && weight(up) < w)
		rotate_up(m, set, i);
}

void clv_tset_erase(struct clv_torch *m, struct clv_tset *set, uint32_t i)
{
	for (;;) {
		const struct clv_tlink *l = link_of(m, set, i);
		if (!l->left || !l->right)
			break;
		rotate_up(m, set, weight(l->left) > weight(l->right) ? l->left : l->right);
	}
	const struct clv_tlink *l = link_of(m, set, i);
	hang(m, set, l->up, i, l->left ? l->left : l->right);
	set->count--;
}

static uint32_t leftmost(const struct clv_torch *m, const struct clv_tset *set, uint32_t i)
{
	for (uint32_t l; i && (l = link_of(m, set, i)->left);)
		i = l;
	return i;
}

static uint32_t rightmost(const struct clv_torch *m, const struct clv_tset *set, uint32_t i)
{
	for (uint32_t r; i && (r = link_of(m, set, i)->right);)
		i = r;
	return i;
}

uint32_t clv_tset_first(const struct clv_torch *m, const struct clv_tset *set)
{
	return leftmost(m, set, set->root);
}

uint32_t clv_tset_last(const struct clv_torch *m, const struct clv_tset *set)
{
	return rightmost(m, set, set->root);
}

uint32_t clv_tset_next(const struct clv_torch *m, const struct clv_tset *set, uint32_t i)
{
	const struct clv_tlink *l = link_of(m, set, i);
	if (l->right)
		return leftmost(m, set, l->right);
	uint32_t up = l->up;
	while (up && link_of(m, set, up)->right == i) {
		i = up;
		up = link_of(m, set, i)->up;
	}
	return up;
}

uint32_t clv_tset_prev(const struct clv_torch *m, const struct clv_tset *set, uint32_t i)
{
	const struct clv_tlink *l = link_of(m, set, i);
	if (l->left)
		return rightmost(m, set, l->left);
	uint32_t up = l->up;
	while (up && link_of(m, set, up)->left == i) {
		i = up;
		up = link_of(m, set, i)->up;
	}
	return up;
}

uint32_t clv_tset_at_least(const struct clv_torch *m, const struct clv_tset *set, uint64_t stream, uint64_t size)
{
	uint32_t best = 0;
	for (uint32_t at = set->root; at;) {
		const struct clv_tblock *b = &m->blocks[at];
		bool fits = b->stream != stream ? b->stream > stream
						: (set->order == CLV_TORDER_UNMAPPED || b->size >= size);
		if (fits)
			best = at;
		at = fits ? b->set.left : b->set.right;
	}
	return best;
}

uint32_t clv_tset_at_or_below(const struct clv_torch *m, const struct clv_tset *set, uint64_t addr)
{
	uint32_t best = 0;
	for (uint32_t at = set->root; at;) {
		const struct clv_tblock *b = &m->blocks[at];
		bool below = b->addr <= addr;
		if (below)
			best = at;
		at = below ? b->index.right : b->index.left;
	}
	return best;
}
