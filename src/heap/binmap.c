/* SPDX-License-Identifier: MIT */
#include "binmap.h"

#define SCAN_LIMIT 8

static unsigned bin_of(uint64_t size)
{
	uint64_t grains = size / CLV_GRAIN + (size % CLV_GRAIN != 0);
	if (grains < CLV_BIN_LINEAR)
		return (unsigned)grains;
	unsigned log2 = clv_log2(grains);
	if (log2 > CLV_BIN_MAX_LOG2)
		return CLV_BIN_COUNT - 1;
	return CLV_BIN_LINEAR + (log2 - 6) * CLV_BIN_SPLIT + (unsigned)(grains >> (log2 - 5)) % CLV_BIN_SPLIT;
}

void clv_bin_insert(struct clv_binmap *m, struct clv_bin_node *n, uint64_t size, void *owner)
{
	unsigned bin = bin_of(size);
	n->size = size;
	n->owner = owner;
	n->next = m->heads[bin];
	n->link = &m->heads[bin];
	if (n->next)
		n->next->link = &n->next;
	m->heads[bin] = n;
	m->words[bin / 64] |= 1ull << (bin % 64);
	m->summary |= 1u << (bin / 64);
	m->count++;
	m->bytes += size;
}

void clv_bin_remove(struct clv_binmap *m, struct clv_bin_node *n)
{
	if (!n->link)
		return;
	*n->link = n->next;
	if (n->next)
		n->next->link = n->link;
	n->link = NULL;
	m->count--;
	m->bytes -= n->size;
	unsigned bin = bin_of(n->size);
	if (!m->heads[bin]) {
		m->words[bin / 64] &= ~(1ull << (bin % 64));
		if (!m->words[bin / 64])
			m->summary &= ~(1u << (bin / 64));
	}
}

/* First non-empty bin at or above `bin`, or CLV_BIN_COUNT. */
static unsigned bin_above(const struct clv_binmap *m, unsigned bin)
{
	if (bin >= CLV_BIN_COUNT)
		return CLV_BIN_COUNT;
	unsigned w = bin / 64;
	uint64_t word = m->words[w] >> (bin % 64);
	if (word)
		return bin + (unsigned)__builtin_ctzll(word);
	uint32_t rest = w + 1 < 32 ? m->summary >> (w + 1) << (w + 1) : 0;
	if (!rest)
		return CLV_BIN_COUNT;
	w = (unsigned)__builtin_ctz(rest);
	return w * 64 + (unsigned)__builtin_ctzll(m->words[w]);
}

/* Last non-empty bin at or below `bin`, or CLV_BIN_COUNT. */
static unsigned bin_below(const struct clv_binmap *m, unsigned bin)
{
	unsigned w = bin / 64;
	uint64_t word = m->words[w] << (63 - bin % 64);
	if (word)
		return bin - (unsigned)__builtin_clzll(word);
	uint32_t rest = m->summary & ((1u << w) - 1);
	if (!rest)
		return CLV_BIN_COUNT;
	w = 31u - (unsigned)__builtin_clz(rest);
	return w * 64 + 63u - (unsigned)__builtin_clzll(m->words[w]);
}

/* The smallest node of at least `size` among the first few of a list. */
static struct clv_bin_node *fitting(struct clv_bin_node *n, uint64_t size)
{
	struct clv_bin_node *best = NULL;
	for (int i = 0; n && i < SCAN_LIMIT; i++, n = n->next) {
		if (n->size == size)
			return n;
		if (n->size > size && (!best || n->size < best->size))
			best = n;
	}
	return best;
}

struct clv_bin_node *clv_bin_ceil(const struct clv_binmap *m, uint64_t size)
{
	unsigned bin = bin_of(size);
	struct clv_bin_node *n = fitting(m->heads[bin], size);
	if (n)
		return n;
	bin = bin_above(m, bin + 1);
	return bin == CLV_BIN_COUNT ? NULL : m->heads[bin];
}

struct clv_bin_node *clv_bin_search(const struct clv_binmap *m, uint64_t size)
{
	unsigned bin = bin_of(size);
	for (struct clv_bin_node *n = m->heads[bin]; n; n = n->next)
		if (n->size >= size)
			return n;
	bin = bin_above(m, bin + 1);
	return bin == CLV_BIN_COUNT ? NULL : m->heads[bin];
}

struct clv_bin_node *clv_bin_up(const struct clv_binmap *m, const struct clv_bin_node *n, uint64_t size)
{
	struct clv_bin_node *next = n->next;
	for (int i = 0; next && i < SCAN_LIMIT; i++, next = next->next)
		if (next->size >= size)
			return next;
	unsigned bin = bin_above(m, bin_of(n->size) + 1);
	return bin == CLV_BIN_COUNT ? NULL : m->heads[bin];
}

struct clv_bin_node *clv_bin_floor(const struct clv_binmap *m, uint64_t size)
{
	unsigned bin = bin_of(size);
	struct clv_bin_node *n = m->heads[bin];
	for (int i = 0; n && i < SCAN_LIMIT; i++, n = n->next)
		if (n->size <= size)
			return n;
	if (bin == 0)
		return NULL;
	bin = bin_below(m, bin - 1);
	return bin == CLV_BIN_COUNT ? NULL : m->heads[bin];
}

struct clv_bin_node *clv_bin_down(const struct clv_binmap *m, const struct clv_bin_node *n, uint64_t size)
{
	struct clv_bin_node *next = n->next;
	for (int i = 0; next && i < SCAN_LIMIT; i++, next = next->next)
		if (next->size <= size)
			return next;
	unsigned bin = bin_of(n->size);
	if (bin == 0)
		return NULL;
	bin = bin_below(m, bin - 1);
	return bin == CLV_BIN_COUNT ? NULL : m->heads[bin];
}

const char *clv_binmap_check(const struct clv_binmap *m)
{
	uint64_t count = 0, bytes = 0;
	for (unsigned bin = 0; bin < CLV_BIN_COUNT; bin++) {
		if (!m->heads[bin] != !(m->words[bin / 64] >> (bin % 64) & 1))
			return "binmap: the bit of a bin does not tell whether it is empty";
		struct clv_bin_node *const *link = &m->heads[bin];
		for (const struct clv_bin_node *n = *link; n; link = (struct clv_bin_node *const *)&n->next, n = n->next) {
			if (n->link != link)
				return "binmap: a node does not know what points at it";
			if (bin_of(n->size) != bin)
				return "binmap: a node is in the bin of another size";
			count++;
			bytes += n->size;
		}
	}
	for (unsigned w = 0; w < CLV_BIN_WORDS; w++)
		if (!m->words[w] != !(m->summary >> w & 1))
			return "binmap: the summary does not tell which words are empty";
	if (count != m->count || bytes != m->bytes)
		return "binmap: count or bytes are not those of the nodes";
	return NULL;
}
