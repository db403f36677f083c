/* SPDX-License-Identifier: MIT */
#include "pack_shelf.h"

#include <stdlib.h>
#include <string.h>

enum {
	CHUNK = 32,          /* items */
	FINER = 8,           /* blocks of the next level in one of this */
	ITEMS_A_BLOCK = 64,  /* at least, on average */
	BLOCKS_AN_ITEM = 4,  /* at most, on average */
	BLOCKS_A_LOOK = 3,
};

struct clv_pack_chunk {
	uint32_t count;
	struct clv_pack_laid laid[CHUNK];
};

struct clv_pack_block {
	uint32_t slots; /* its first in shelf->slots */
	uint32_t count; /* chunks, none empty but the only one */
	uint32_t items; /* that will lie in it when all are placed */
};

static uint32_t block_of(const struct clv_pack_level *l, uint32_t section)
{
	return l->first + section / l->width;
}

/* Blocks that items will lie in, at a width. */
static uint64_t count_places(const struct clv_pack_problem *p, uint32_t width)
{
	uint64_t places = 0;
	for (uint32_t i = 0; i < p->count; i++)
		places += (p->items[i].hi - 1) / width - p->items[i].lo / width + 1;
	return places;
}

static void choose_levels(struct clv_pack_shelf *s)
{
	const struct clv_pack_problem *p = s->problem;
	uint32_t wanted = 1;
	while (s->levels < CLV_ARRAY_LEN(s->level)) {
		uint32_t width = p->sections / wanted + 1;
		if (wanted > 1 && ((uint64_t)wanted * ITEMS_A_BLOCK > p->count || wanted > p->sections ||
				   count_places(p, width) > BLOCKS_AN_ITEM * (uint64_t)p->count))
			return;
		struct clv_pack_level *l = &s->level[s->levels++];
		*l = (struct clv_pack_level){width, p->sections / width + 1, s->block_count};
		s->block_count += l->blocks;
		wanted *= FINER;
	}
}

/* Chunks that a block can need: all but one are at least half full. */
static uint32_t chunks_of(const struct clv_pack_block *b)
{
	return b->items / (CHUNK / 2) + 2;
}

static void count_items(struct clv_pack_shelf *s)
{
	const struct clv_pack_problem *p = s->problem;
	for (uint32_t k = 0; k < s->levels; k++)
		for (uint32_t i = 0; i < p->count; i++)
			for (uint32_t b = block_of(&s->level[k], p->items[i].lo);
			     b <= block_of(&s->level[k], p->items[i].hi - 1); b++)
				s->blocks[b].items++;
	for (uint32_t b = 0; b < s->block_count; b++) {
		s->blocks[b].slots = s->chunk_max;
		s->chunk_max += chunks_of(&s->blocks[b]);
	}
}

bool clv_pack_shelf_make(struct clv_pack_shelf *s, const struct clv_pack_problem *problem)
{
	*s = (struct clv_pack_shelf){.problem = problem};
	choose_levels(s);
	s->blocks = calloc((size_t)s->block_count + 1, sizeof(*s->blocks));
	if (!s->blocks)
		return false;
	count_items(s);
	s->chunks = malloc((size_t)s->chunk_max * sizeof(*s->chunks));
	s->slots = malloc((size_t)s->chunk_max * sizeof(*s->slots));
	if (!s->chunks || !s->slots) {
		clv_pack_shelf_free(s);
		return false;
	}
	clv_pack_shelf_clear(s);
	return true;
}

void clv_pack_shelf_free(struct clv_pack_shelf *s)
{
	free(s->blocks);
	free(s->chunks);
	free(s->slots);
	*s = (struct clv_pack_shelf){0};
}

void clv_pack_shelf_clear(struct clv_pack_shelf *s)
{
	s->chunk_count = 0;
	for (uint32_t b = 0; b < s->block_count; b++) {
		s->blocks[b].count = 1;
		s->slots[s->blocks[b].slots] = s->chunk_count;
		s->chunks[s->chunk_count++].count = 0;
	}
}

static struct clv_pack_chunk *chunk_at(const struct clv_pack_shelf *s, const struct clv_pack_block *b, uint32_t slot)
{
	return &s->chunks[s->slots[b->slots + slot]];
}

/* The last chunk whose first item begins no higher than `from`, or the first one. */
static uint32_t find_chunk(const struct clv_pack_shelf *s, const struct clv_pack_block *b, uint64_t from)
{
	uint32_t begin = 0, end = b->count;
	while (end - begin > 1) {
		uint32_t mid = begin + (end - begin) / 2;
		if (chunk_at(s, b, mid)->laid[0].from <= from)
			begin = mid;
		else
			end = mid;
	}
	return begin;
}

/* Moves the upper half of a chunk to a new one behind it. */
static void split_chunk(struct clv_pack_shelf *s, struct clv_pack_block *b, uint32_t slot)
{
	struct clv_pack_chunk *full = chunk_at(s, b, slot), *upper = &s->chunks[s->chunk_count];
	uint32_t *slots = s->slots + b->slots;
	upper->count = full->count / 2;
	full->count -= upper->count;
	memcpy(upper->laid, full->laid + full->count, upper->count * sizeof(*upper->laid));
	memmove(slots + slot + 2, slots + slot + 1, (b->count - slot - 1) * sizeof(*slots));
	slots[slot + 1] = s->chunk_count++;
	b->count++;
}

static void add_to_block(struct clv_pack_shelf *s, struct clv_pack_block *b, const struct clv_pack_laid *laid)
{
	uint32_t slot = find_chunk(s, b, laid->from);
	if (chunk_at(s, b, slot)->count == CHUNK) {
		split_chunk(s, b, slot);
		slot += chunk_at(s, b, slot + 1)->laid[0].from <= laid->from;
	}
	struct clv_pack_chunk *c = chunk_at(s, b, slot);
	uint32_t at = c->count++;
	for (; at && c->laid[at - 1].from > laid->from; at--)
		c->laid[at] = c->laid[at - 1];
	c->laid[at] = *laid;
}

void clv_pack_shelf_add(struct clv_pack_shelf *s, uint32_t i, uint64_t at)
{
	const struct clv_pack_item *item = &s->problem->items[i];
	const struct clv_pack_laid laid = {at, at + item->size, item->lo, item->hi, i};
	for (uint32_t k = 0; k < s->levels; k++)
		for (uint32_t b = block_of(&s->level[k], item->lo); b <= block_of(&s->level[k], item->hi - 1); b++)
			add_to_block(s, &s->blocks[b], &laid);
}

/* Where a walk up a block is. */
struct walk {
	const struct clv_pack_block *block;
	uint32_t slot, at;
	const struct clv_pack_laid *laid; /* NULL: at the end */
};

static void walk_on(const struct clv_pack_shelf *s, struct walk *w)
{
	const struct clv_pack_chunk *c = chunk_at(s, w->block, w->slot);
	if (w->at == c->count && w->slot + 1 < w->block->count) {
		w->at = 0;
		c = chunk_at(s, w->block, ++w->slot);
	}
	w->laid = w->at < c->count ? &c->laid[w->at++] : NULL;
}

static uint32_t start_walks(const struct clv_pack_shelf *s, const struct clv_pack_item *item, struct walk *walks)
{
	uint32_t count = 0, k = s->levels - 1;
	while (block_of(&s->level[k], item->hi - 1) - block_of(&s->level[k], item->lo) >= BLOCKS_A_LOOK)
		k--; /* ends at the first level, of one block */
	for (uint32_t b = block_of(&s->level[k], item->lo); b <= block_of(&s->level[k], item->hi - 1); b++) {
		walks[count] = (struct walk){.block = &s->blocks[b]};
		walk_on(s, &walks[count]);
		count += walks[count].laid != NULL;
	}
	return count;
}

static bool in_the_way(const struct clv_pack_problem *p, const struct clv_pack_item *item, const struct clv_pack_laid *l)
{
	const struct clv_pack_item *other = &p->items[l->item];
	if (l->hi <= item->lo || item->hi <= l->lo)
		return false;
	return (item->range_count == 1 && other->range_count == 1) || clv_pack_items_share_section(p, item, other);
}

uint64_t clv_pack_shelf_lowest(const struct clv_pack_shelf *s, uint32_t i, uint64_t *work)
{
	const struct clv_pack_item *item = &s->problem->items[i];
	struct walk walks[BLOCKS_A_LOOK];
	uint32_t count = start_walks(s, item, walks);
	uint64_t at = 0;
	while (count) {
		struct walk *lowest = &walks[0];
		for (uint32_t k = 1; k < count; k++)
			if (walks[k].laid->from < lowest->laid->from)
				lowest = &walks[k];
		const struct clv_pack_laid *l = lowest->laid;
		++*work;
		if (l->to > at && in_the_way(s->problem, item, l)) {
			if (l->from >= at + item->size)
				break;
			at = clv_pack_align(item, l->to);
		}
		walk_on(s, lowest);
		if (!lowest->laid)
			*lowest = walks[--count];
	}
	return at;
}
