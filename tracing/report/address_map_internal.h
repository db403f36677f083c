/* SPDX-License-Identifier: MIT
 *
 * address_map_internal: what the parts of address_map share. Owns nothing.
 */
#ifndef CLV_ADDRESS_MAP_INTERNAL_H
#define CLV_ADDRESS_MAP_INTERNAL_H

#include "address_map.h"

/* One thing that covers addresses for some time, before its place in the picture is known. */
struct clv_address_item {
	uint64_t addr, size;
	uint32_t born, freed, gone;
	uint32_t of;
	bool wanted; /* to be kept before those that are only large */
};

/* The things of a layer by number, so that millions of blocks are not copied. */
struct clv_address_source {
	const void *of;
	uint64_t count;
	/* false: this one covers nothing */
	bool (*get)(const struct clv_address_source *s, uint64_t i, struct clv_address_item *out);
};

/* Sets extents, extent_count and height. */
bool clv_address_find_extents(struct clv_address_map *map, const struct clv_address_source *sources, size_t count);

/* Where an address is in the picture; of one that is in no extent, the end of the one below. */
uint64_t clv_address_place(const struct clv_address_map *map, uint64_t addr);

/* Fills one layer: which are kept, and the tiles of the rest. */
bool clv_address_fill_layer(const struct clv_address_map *map, const struct clv_address_source *source, uint32_t limit,
			    struct clv_address_layer *layer);

#endif
