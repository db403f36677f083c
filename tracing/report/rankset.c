/* SPDX-License-Identifier: MIT */
#include "rankset.h"

#include "../memory.h"

#include <string.h>

bool clv_rankset_init(struct clv_rankset *s, uint32_t bound)
{
	uint64_t words[CLV_ARRAY_LEN(s->level)], all = 0, n = (uint64_t)bound + 1; /* the bound can be asked for */
	*s = (struct clv_rankset){NULL};
	do {
		n = (n + 63) / 64;
		words[s->levels++] = n;
		all += n;
	} while (n > 1);
	s->words = clv_mem_zalloc(all, sizeof(*s->words));
	if (!s->words)
		return false;
	s->count = all;
	uint64_t *at = s->words;
	for (unsigned l = 0; l < s->levels; l++) {
		s->level[l] = at;
		at += words[l];
	}
	return true;
}

void clv_rankset_clear(struct clv_rankset *s)
{
	memset(s->words, 0, s->count * sizeof(*s->words));
}

void clv_rankset_free(struct clv_rankset *s)
{
	clv_mem_free(s->words);
	*s = (struct clv_rankset){NULL};
}

void clv_rankset_add(struct clv_rankset *s, uint32_t rank)
{
	for (unsigned l = 0; l < s->levels; l++, rank /= 64) {
		uint64_t *word = &s->level[l][rank / 64], before = *word;
		*word = before | (uint64_t)1 << rank % 64;
		if (before)
			return; /* the levels above know of this word */
	}
}

void clv_rankset_remove(struct clv_rankset *s, uint32_t rank)
{
	for (unsigned l = 0; l < s->levels; l++, rank /= 64) {
		uint64_t *word = &s->level[l][rank / 64];
		*word &= ~((uint64_t)1 << rank % 64);
		if (*word)
			return;
	}
}

/* The first (last) member below the bit `rank` of level `l`. */
static uint32_t descend(const struct clv_rankset *s, unsigned l, uint32_t rank, bool first)
{
	while (l-- > 0) {
		uint64_t word = s->level[l][rank];
		rank = rank * 64 + (uint32_t)(first ? __builtin_ctzll(word) : 63 - __builtin_clzll(word));
	}
	return rank;
}

uint32_t clv_rankset_next(const struct clv_rankset *s, uint32_t rank)
{
	/* above the lowest level the word itself has been looked at, so the search begins behind it */
	uint64_t mask = ~(uint64_t)0 << rank % 64;
	for (unsigned l = 0; l < s->levels; l++) {
		uint64_t word = s->level[l][rank / 64] & mask;
		if (word)
			return descend(s, l, rank / 64 * 64 + (uint32_t)__builtin_ctzll(word), true);
		rank /= 64;
		mask = rank % 64 == 63 ? 0 : ~(uint64_t)0 << (rank % 64 + 1);
	}
	return CLV_RANK_NONE;
}

uint32_t clv_rankset_prev(const struct clv_rankset *s, uint32_t rank)
{
	uint64_t mask = ~(uint64_t)0 >> (63 - rank % 64);
	for (unsigned l = 0; l < s->levels; l++) {
		uint64_t word = s->level[l][rank / 64] & mask;
		if (word)
			return descend(s, l, rank / 64 * 64 + 63 - (uint32_t)__builtin_clzll(word), false);
		rank /= 64;
		mask = ((uint64_t)1 << rank % 64) - 1;
	}
	return CLV_RANK_NONE;
}
