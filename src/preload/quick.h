/* SPDX-License-Identifier: MIT
 *
 * quick: what launches look at first: the devices of executables seen lately, a cache line of them for each value of a hash.
 * Found without a lock; clv_quick_remember() and clv_quick_forget() are called under one of the caller's, which guards as well
 * what the table repeats.
 *
 * An entry is one word, so that whoever reads it has the devices of this key and of no other, also when the key was replaced
 * and has come back between two loads. It says nothing of other memory, so it is read without order: a thread that has been
 * told, by whatever orders memory, that what was known of a key is out of date cannot read a word from before that.
 */
#ifndef CLV_QUICK_H
#define CLV_QUICK_H

#include "../base/base.h"

#include <stdatomic.h>

#define CLV_QUICK_BITS 7
#define CLV_QUICK_WAYS 8u

/* The key above, a code below: the device, or that there is none. No key is 0, so no entry is. */
#define CLV_QUICK_CODE_BITS 7
#define CLV_QUICK_NONE 64u

struct clv_quick {
	struct clv_quick_line {
		_Alignas(64) _Atomic uint64_t way[CLV_QUICK_WAYS];
	} line[1 << CLV_QUICK_BITS];
	unsigned next; /* to be replaced, where there is no room */
};

/* False for NULL, and for what uses more bits than addresses have: those are never there. */
static inline bool clv_quick_fits(const void *key)
{
	return (uint64_t)(uintptr_t)key - 1 < ((uint64_t)1 << (64 - CLV_QUICK_CODE_BITS)) - 1;
}

static inline uint64_t clv_quick_word(const void *key, unsigned code)
{
	return (uint64_t)(uintptr_t)key << CLV_QUICK_CODE_BITS | code;
}

/* The code in a word, if it is of the key; else more than any code. */
static inline uint64_t clv_quick_code(uint64_t word, const void *key)
{
	return word ^ clv_quick_word(key, 0);
}

static inline unsigned clv_quick_index(const void *key)
{
	return (unsigned)((uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u >> (64 - CLV_QUICK_BITS));
}

/* False: it is not there. */
static inline bool clv_quick_find(struct clv_quick *q, const void *key, uint64_t *devices)
{
	struct clv_quick_line *line = &q->line[clv_quick_index(key)];
	if (CLV_UNLIKELY(!clv_quick_fits(key)))
		return false;
	for (unsigned i = 0; i < CLV_QUICK_WAYS; i++) {
		uint64_t code = clv_quick_code(atomic_load_explicit(&line->way[i], memory_order_relaxed), key);
		if (code > CLV_QUICK_NONE)
			continue;
		*devices = code < CLV_QUICK_NONE ? (uint64_t)1 << code : 0;
		return true;
	}
	return false;
}

static inline void clv_quick_forget(struct clv_quick *q, const void *key)
{
	struct clv_quick_line *line = &q->line[clv_quick_index(key)];
	if (!clv_quick_fits(key))
		return;
	for (unsigned i = 0; i < CLV_QUICK_WAYS; i++)
		if (clv_quick_code(atomic_load_explicit(&line->way[i], memory_order_relaxed), key) <= CLV_QUICK_NONE)
			atomic_store_explicit(&line->way[i], 0, memory_order_relaxed);
}

/* In place of another if the line is full. Sets of several devices are not kept. */
static inline void clv_quick_remember(struct clv_quick *q, const void *key, uint64_t devices)
{
	struct clv_quick_line *line = &q->line[clv_quick_index(key)];
	clv_quick_forget(q, key);
	if (!clv_quick_fits(key) || (devices && !clv_is_pow2(devices)))
		return;
	unsigned way = 0;
	while (way < CLV_QUICK_WAYS && atomic_load_explicit(&line->way[way], memory_order_relaxed))
		way++;
	if (way == CLV_QUICK_WAYS)
		way = q->next++ % CLV_QUICK_WAYS;
	unsigned code = devices ? clv_log2(devices) : CLV_QUICK_NONE;
	atomic_store_explicit(&line->way[way], clv_quick_word(key, code), memory_order_relaxed);
}

#endif
