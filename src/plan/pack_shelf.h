/* SPDX-License-Identifier: MIT
 *
 * pack_shelf: items that are placed, by height, for whoever looks for the lowest hole in a span of time. Owns its arrays, all
 * allocated when it is made, in proportion to the items; one thread.
 *
 * Time is cut into blocks of equal width, and that at several levels, each eight times as fine as the one before; the first
 * is one block. A block lists all that lies in it, by height, in chunks that are split when they are full. A look goes to the
 * finest level at which its span meets no more than three blocks, and walks up their lists in step. Levels stop where there
 * would be more blocks than items fill, or where items lie in more blocks than four on average.
 */
#ifndef CLV_PACK_SHELF_H
#define CLV_PACK_SHELF_H

#include "pack_problem.h"

struct clv_pack_laid {
	uint64_t from, to; /* heights */
	uint32_t lo, hi;   /* sections: the hull */
	uint32_t item;
};

struct clv_pack_chunk;
struct clv_pack_block;

struct clv_pack_shelf {
	const struct clv_pack_problem *problem;
	uint32_t levels;
	struct clv_pack_level {
		uint32_t width;  /* sections of a block */
		uint32_t blocks; /* how many */
		uint32_t first;  /* in shelf->blocks */
	} level[8];
	struct clv_pack_block *blocks;
	uint32_t block_count;
	struct clv_pack_chunk *chunks;
	uint32_t chunk_count, chunk_max;
	uint32_t *slots; /* of the blocks: chunks in order */
};

bool clv_pack_shelf_make(struct clv_pack_shelf *s, const struct clv_pack_problem *problem);
void clv_pack_shelf_free(struct clv_pack_shelf *s);
void clv_pack_shelf_clear(struct clv_pack_shelf *s);

/* An item at a height; each once. */
void clv_pack_shelf_add(struct clv_pack_shelf *s, uint32_t item, uint64_t at);

/* The lowest place for an item beside those that are there. Adds to *work what it looked at. */
uint64_t clv_pack_shelf_lowest(const struct clv_pack_shelf *s, uint32_t item, uint64_t *work);

#endif
