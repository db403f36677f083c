/* SPDX-License-Identifier: MIT
 *
 * map: 64-bit keys to 32-bit values, open addressing, never shrinking. Owned by one thread.
 */
#ifndef CLV_MAP_H
#define CLV_MAP_H

#include "memory.h"

#define CLV_MAP_NONE UINT32_MAX /* no value; cannot be stored */

struct clv_map {
	struct clv_map_slot {
		uint64_t key;
		uint32_t value; /* CLV_MAP_NONE: empty */
	} * slots;
	size_t mask, used; /* mask is 0 when there are no slots */
};

static inline void clv_map_free(struct clv_map *m)
{
	clv_mem_free(m->slots);
	*m = (struct clv_map){0};
}

/* Empties the map and keeps its room. */
static inline void clv_map_clear(struct clv_map *m)
{
	for (size_t i = 0; m->slots && i <= m->mask; i++)
		m->slots[i].value = CLV_MAP_NONE;
	m->used = 0;
}

/* Where `key` is or would go. The map has slots, at least one of them empty. */
static inline struct clv_map_slot *clv_map_probe(const struct clv_map *m, uint64_t key)
{
	for (size_t i = clv_mix64(key) & m->mask;; i = (i + 1) & m->mask)
		if (m->slots[i].value == CLV_MAP_NONE || m->slots[i].key == key)
			return &m->slots[i];
}

static inline uint32_t clv_map_get(const struct clv_map *m, uint64_t key)
{
	return m->slots ? clv_map_probe(m, key)->value : CLV_MAP_NONE;
}

static inline bool clv_map_rehash(struct clv_map *m, size_t slots)
{
	struct clv_map grown = {clv_mem_realloc(NULL, slots, sizeof(*grown.slots)), slots - 1, m->used};
	if (!grown.slots)
		return false;
	for (size_t i = 0; i < slots; i++)
		grown.slots[i].value = CLV_MAP_NONE;
	for (size_t i = 0; m->slots && i <= m->mask; i++)
		if (m->slots[i].value != CLV_MAP_NONE)
			*clv_map_probe(&grown, m->slots[i].key) = m->slots[i];
	clv_mem_free(m->slots);
	*m = grown;
	return true;
}

/* The slot of `key`; a new one has the value CLV_MAP_NONE and must be given a value before the next call. NULL: out of
 * host memory. Valid until the next call. */
static inline struct clv_map_slot *clv_map_slot(struct clv_map *m, uint64_t key)
{
	if (!m->slots || (m->used + 1) * 3 > (m->mask + 1) * 2)
		if (!clv_map_rehash(m, m->slots ? (m->mask + 1) * 2 : 64))
			return NULL;
	struct clv_map_slot *slot = clv_map_probe(m, key);
	if (slot->value == CLV_MAP_NONE) {
		slot->key = key;
		m->used++;
	}
	return slot;
}

#endif
