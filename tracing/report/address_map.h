/* SPDX-License-Identifier: MIT
 *
 * address_map: who had which addresses when, small enough to be drawn. One `clv_address_map` is of one device's history. It is made
 * once, and belongs to who made it.
 *
 * Time is counted in events: what is there from event `born` until event `gone` covers [born, gone) of [0, width). Addresses where
 * nothing ever was are left out: they are pieced together from `extents`, one above the other, with a small step where a wide
 * gap was.
 *
 * A history can have millions of blocks. Those that a person can see or asks for are kept one by one: first what pins memory
 * at a moment of the report, then the largest areas (bytes times events). What is not kept is added up in a grid of tiles, as
 * the share of each tile that it covers; coarser tiles are averages of these.
 */
#ifndef CLV_ADDRESS_MAP_H
#define CLV_ADDRESS_MAP_H

#include "report.h"

/* (enumerator, name in the page) */
#define CLV_ADDRESS_LAYERS(X)                                                                                          \
	X(HELD, "held")                 /* frames, where they are mapped */                                            \
	X(RESERVATIONS, "reservations") /* memory that reservations hold back */                                       \
	X(BLOCKS, "blocks")

enum clv_address_layer_kind {
#define X(name, text) CLV_ADDRESS_##name,
	CLV_ADDRESS_LAYERS(X)
#undef X
		CLV_ADDRESS_LAYER_COUNT
};

struct clv_address_extent {
	uint64_t addr, size;
	uint64_t y; /* where `addr` is in the picture */
};

struct clv_address_rect {
	uint64_t y, size;
	uint32_t born, freed,
		gone; /* events, up to `width`; freed: from here on it waits for a stream. Of blocks only */
	uint32_t of;  /* which: index into the device's blocks or frames; of reservations: the name, as text */
};

struct clv_address_layer {
	struct clv_address_rect *rects; /* by `born`, then `y` */
	uint32_t count;
	uint64_t total; /* that there were */
	uint8_t *
		tiles; /* columns * rows, a column after the other: what is not in `rects` covers so many 255ths of the tile. NULL:
	                   everything is in `rects` */
};

struct clv_address_map {
	struct clv_address_extent *extents; /* by address */
	uint32_t extent_count;
	uint64_t height; /* of the picture, in bytes */
	uint32_t width;  /* in events; at least 1 */
	uint32_t columns, rows;
	struct clv_address_layer layers[CLV_ADDRESS_LAYER_COUNT];
};

struct clv_address_map_limits {
	uint32_t rects;         /* kept in a layer */
	uint32_t columns, rows; /* of tiles */
};

/* false: out of host memory; nothing is to be freed then. */
bool clv_address_map_make(const struct clv_report_device *d, const struct clv_address_map_limits *limits,
			  struct clv_address_map *out, struct clv_error *err);
void clv_address_map_free(struct clv_address_map *map);

#endif
