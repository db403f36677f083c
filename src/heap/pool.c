/* SPDX-License-Identifier: MIT */
#include "pool.h"

#include "../host/meta.h"

#include <string.h>

#define PIECE_RECORDS 256u

struct piece {
	struct piece *next;
	uint64_t pad; /* keeps records 16-byte aligned */
};

void clv_pool_init(struct clv_pool *p, size_t record_size)
{
	memset(p, 0, sizeof(*p));
	p->size = clv_align_up(record_size, 16);
}

void clv_pool_fini(struct clv_pool *p)
{
	for (struct piece *piece = p->pieces; piece;) {
		struct piece *next = piece->next;
		clv_meta_free(piece);
		piece = next;
	}
	clv_pool_init(p, p->size);
}

bool clv_pool_reserve(struct clv_pool *p, uint64_t n)
{
	while (p->spare < n) {
		struct piece *piece = clv_meta_alloc(sizeof(*piece) + PIECE_RECORDS * p->size);
		if (!piece)
			return false;
		piece->next = p->pieces;
		p->pieces = piece;
		char *records = (char *)(piece + 1);
		for (unsigned i = 0; i < PIECE_RECORDS; i++)
			clv_pool_give(p, records + i * p->size);
		p->total += PIECE_RECORDS;
	}
	return true;
}

void *clv_pool_take(struct clv_pool *p)
{
	void *record = p->free_list;
	memcpy(&p->free_list, record, sizeof(void *));
	p->spare--;
	memset(record, 0, p->size);
	return record;
}

void clv_pool_give(struct clv_pool *p, void *record)
{
	memcpy(record, &p->free_list, sizeof(void *));
	p->free_list = record;
	p->spare++;
}
