/* SPDX-License-Identifier: MIT
 *
 * The map of addresses of reports made by hand: what is kept, what is added up, and where things are in the picture.
 */
#include "../tracing/memory.h"
#include "../tracing/report/address_map.h"
#include "check_main.h"

#include <math.h>
#include <string.h>

#define BASE ((uint64_t)1 << 40)
#define BLOCKS_MAX 20000

static struct clv_report_block blocks[BLOCKS_MAX];
static struct clv_report_frame frames[64];
static struct clv_note notes[16];
static struct clv_stack_record stacks[3] = {{0, 0}, {0, 1}, {1, 1}};
static struct clv_trace trace = {.file = (char *)"made by a test", .stacks = stacks, .stack_count = 3};
static struct clv_history history;
static struct clv_report_device device;

static void setup(uint32_t events)
{
	memset(blocks, 0, sizeof(blocks));
	history = (struct clv_history){.event_count = events, .notes = notes};
	device = (struct clv_report_device){.trace = &trace, .history = &history, .blocks = blocks, .frames = frames};
}

static void block(uint64_t addr, uint64_t size, uint32_t born, uint32_t gone, uint32_t stack)
{
	ck_assert_uint_lt(history.block_count, BLOCKS_MAX);
	blocks[history.block_count++] = (struct clv_report_block){
		.addr = addr, .size = size, .given = size, .born = born, .freed = gone, .gone = gone, .stack = stack};
}

static void frame(uint64_t addr, uint64_t size, uint32_t born, uint32_t gone)
{
	frames[device.frame_count++] =
		(struct clv_report_frame){.addr = addr, .size = size, .born = born, .gone = gone};
}

static void note(enum clv_event kind, uint64_t addr, uint64_t size, uint32_t event)
{
	notes[history.note_count++] =
		(struct clv_note){.kind = kind, .addr = addr, .size = size, .a = size, .event = event};
}

static struct clv_address_map make(uint32_t rects, uint32_t columns, uint32_t rows)
{
	struct clv_address_map map;
	struct clv_error err = {{0}};
	const struct clv_address_map_limits limits = {rects, columns, rows};
	ck_assert_msg(clv_address_map_make(&device, &limits, &map, &err), "%s", err.text);
	return map;
}

START_TEST(wide_gaps_are_left_out)
{
	setup(10);
	block(BASE, CLV_MIB, 0, 10, 0);
	block(BASE + 2 * CLV_MIB, CLV_MIB, 0, 10, 0); /* a MiB further: as it is */
	block(BASE + CLV_GIB, 4 * CLV_MIB, 0, 10, 0);
	struct clv_address_map map = make(100, 8, 8);
	ck_assert_uint_eq(map.extent_count, 2);
	ck_assert_uint_eq(map.extents[0].addr, BASE);
	ck_assert_uint_eq(map.extents[0].size, 3 * CLV_MIB);
	ck_assert_uint_eq(map.extents[0].y, 0);
	ck_assert_uint_eq(map.extents[1].addr, BASE + CLV_GIB);
	/* a step between them, that is seen and small */
	ck_assert_uint_gt(map.extents[1].y, 3 * CLV_MIB);
	ck_assert_uint_lt(map.extents[1].y, 3 * CLV_MIB + CLV_MIB);
	ck_assert_uint_eq(map.height, map.extents[1].y + 4 * CLV_MIB);
	const struct clv_address_layer *layer = &map.layers[CLV_ADDRESS_BLOCKS];
	ck_assert_uint_eq(layer->count, 3);
	ck_assert_ptr_null(layer->tiles);
	ck_assert_uint_eq(layer->rects[1].y, 2 * CLV_MIB);
	ck_assert_uint_eq(layer->rects[2].y, map.extents[1].y);
	clv_address_map_free(&map);
}
END_TEST

START_TEST(lifetimes_are_within_the_history)
{
	setup(10);
	block(BASE, 512, CLV_REPORT_BEFORE, CLV_REPORT_NEVER, 0);
	block(BASE + 512, 512, 3, 7, 0);
	blocks[1].freed = 5;
	block(BASE + 1024, 0, 3, 7, 0);   /* no byte */
	block(BASE + 1024, 512, 4, 4, 0); /* no event */
	block(BASE + 1536, 512, CLV_REPORT_BEFORE, 2, 0);
	blocks[4].freed = CLV_REPORT_BEFORE;
	struct clv_address_map map = make(100, 8, 8);
	const struct clv_address_layer *layer = &map.layers[CLV_ADDRESS_BLOCKS];
	ck_assert_uint_eq(layer->count, 3);
	ck_assert_uint_eq(layer->total, 3);
	ck_assert_uint_eq(layer->rects[0].born, 0);
	ck_assert_uint_eq(layer->rects[0].freed, 10);
	ck_assert_uint_eq(layer->rects[0].gone, 10);
	ck_assert_uint_eq(layer->rects[1].of, 4);
	ck_assert_uint_eq(layer->rects[1].freed, 0);
	ck_assert_uint_eq(layer->rects[1].gone, 2);
	ck_assert_uint_eq(layer->rects[2].born, 3);
	ck_assert_uint_eq(layer->rects[2].freed, 5);
	ck_assert_uint_eq(layer->rects[2].gone, 7);
	clv_address_map_free(&map);
}
END_TEST

START_TEST(frames_and_reservations_have_layers)
{
	setup(10);
	frame(BASE, 2 * CLV_MIB, CLV_REPORT_BEFORE, 6);
	frame(0, 2 * CLV_MIB, 2, 6); /* mapped nowhere */
	note(CLV_EVENT_RESERVE_HOLD, BASE, CLV_MIB, 1);
	note(CLV_EVENT_RESERVE_HOLD, BASE + CLV_MIB, CLV_MIB, 2);
	note(CLV_EVENT_RESERVE_SERVE, BASE, CLV_MIB, 4);
	note(CLV_EVENT_RESERVE_YIELD, BASE + CLV_MIB, CLV_MIB, 5);
	note(CLV_EVENT_RESERVE_HOLD, BASE, CLV_MIB, 8); /* to the end */
	struct clv_address_map map = make(100, 8, 8);
	const struct clv_address_layer *held = &map.layers[CLV_ADDRESS_HELD];
	ck_assert_uint_eq(held->count, 1);
	ck_assert_uint_eq(held->rects[0].size, 2 * CLV_MIB);
	ck_assert_uint_eq(held->rects[0].gone, 6);
	const struct clv_address_layer *layer = &map.layers[CLV_ADDRESS_RESERVATIONS];
	const uint32_t expected[3][2] = {{1, 4}, {2, 5}, {8, 10}};
	ck_assert_uint_eq(layer->count, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(layer->rects[i].born, expected[i][0]);
		ck_assert_uint_eq(layer->rects[i].gone, expected[i][1]);
	}
	clv_address_map_free(&map);
}
END_TEST

START_TEST(the_largest_and_those_that_pin_are_kept)
{
	setup(1000);
	struct clv_report_group group = {.stack = 2, .stream = CLV_NO_STREAM};
	struct clv_report_moment moment = {.event = 500, .groups = &group, .groups_kept = 1};
	device.moments = &moment;
	device.moment_count = 1;
	for (uint32_t i = 0; i < 100; i++) /* each a little larger than the one before */
		block(BASE + i * CLV_MIB, (i + 1) * 4096, 0, 1000, 1);
	block(BASE + 200 * CLV_MIB, 512, 499, 500, 2); /* tiny; there after 500 events, gone after 501 */
	block(BASE + 201 * CLV_MIB, 512, 500, 501, 2); /* born too late */
	block(BASE + 202 * CLV_MIB, 512, 499, 500, 1); /* of another stack */
	struct clv_address_map map = make(10, 8, 8);
	const struct clv_address_layer *layer = &map.layers[CLV_ADDRESS_BLOCKS];
	ck_assert_uint_eq(layer->count, 10);
	ck_assert_uint_eq(layer->total, 103);
	ck_assert_ptr_nonnull(layer->tiles);
	bool pin = false;
	for (uint32_t i = 0; i < layer->count; i++) {
		pin |= layer->rects[i].of == 100;
		ck_assert_msg(layer->rects[i].of == 100 || layer->rects[i].of >= 85, "block %u was kept",
			      layer->rects[i].of);
	}
	ck_assert(pin);
	clv_address_map_free(&map);
}
END_TEST

/* Share of a tile, by counting what each block covers of it. */
static double share(const struct clv_address_map *map, const bool *kept, uint32_t column, uint32_t row)
{
	double x0 = (double)column * map->width / map->columns, x1 = (double)(column + 1) * map->width / map->columns;
	double y0 = (double)row * (double)map->height / map->rows,
	       y1 = (double)(row + 1) * (double)map->height / map->rows, sum = 0;
	for (uint32_t i = 0; i < history.block_count; i++) {
		const struct clv_report_block *b = &blocks[i];
		double y = (double)(b->addr - BASE); /* one extent */
		double w = fmin(b->gone, x1) - fmax(b->born, x0), h = fmin(y + (double)b->size, y1) - fmax(y, y0);
		if (!kept[i] && w > 0 && h > 0)
			sum += w * h;
	}
	return sum / (x1 - x0) / (y1 - y0);
}

START_TEST(tiles_have_the_share_that_is_covered)
{
	struct clv_rng rng = {.state = 4711};
	setup(997);
	/* Side by side in lanes, so that no tile is covered twice. */
	for (uint64_t lane = 0; lane < 40; lane++)
		for (uint32_t at = 0; at < 990;) {
			uint32_t lives = (uint32_t)clv_rng_range(&rng, 1, clv_rng_below(&rng, 4) ? 6 : 400);
			lives = at + lives > 997 ? 997 - at : lives;
			block(BASE + lane * 100000, clv_rng_range(&rng, 1, 100000), at, at + lives, 1);
			at += lives + (uint32_t)clv_rng_below(&rng, 3);
		}
	struct clv_address_map map = make(100, 32, 16);
	const struct clv_address_layer *layer = &map.layers[CLV_ADDRESS_BLOCKS];
	static bool kept[BLOCKS_MAX];
	memset(kept, 0, sizeof(kept));
	for (uint32_t i = 0; i < layer->count; i++)
		kept[layer->rects[i].of] = true;
	ck_assert_uint_eq(map.extent_count, 1);
	bool some = false;
	for (uint32_t c = 0; c < map.columns; c++)
		for (uint32_t r = 0; r < map.rows; r++) {
			double expected = share(&map, kept, c, r) * 255, told = layer->tiles[c * map.rows + r];
			ck_assert_msg(fabs(told - expected) <= 1, "tile %u,%u: %f for %f", c, r, told, expected);
			some |= told > 20;
		}
	ck_assert(some);
	clv_address_map_free(&map);
}
END_TEST

START_TEST(many_stretches_become_few)
{
	setup(10);
	for (uint32_t i = 0; i < 10000; i++)
		block(BASE + i * 4 * CLV_MIB + (i / 100) * CLV_GIB, 512, 0, 10, 0);
	struct clv_address_map map = make(100000, 8, 8);
	ck_assert_uint_le(map.extent_count, 4096);
	ck_assert_uint_ge(map.extent_count, 100); /* the hundred wide gaps are still gaps */
	const struct clv_address_layer *layer = &map.layers[CLV_ADDRESS_BLOCKS];
	ck_assert_uint_eq(layer->count, 10000);
	for (uint32_t i = 1; i < layer->count; i++)
		ck_assert_uint_lt(layer->rects[i - 1].y, layer->rects[i].y);
	clv_address_map_free(&map);
}
END_TEST

START_TEST(absurd_addresses_do_no_harm)
{
	setup(UINT32_MAX - 5);
	block(0, 512, 0, 10, 0);
	block(UINT64_MAX - 511, UINT64_MAX, 0, CLV_REPORT_NEVER, 0);
	block(UINT64_MAX, 512, 0, CLV_REPORT_NEVER, 0);
	block(1, UINT64_MAX, 0, CLV_REPORT_NEVER, 0);
	block((uint64_t)1 << 63, (uint64_t)1 << 63, 7, CLV_REPORT_NEVER, 0);
	for (uint32_t kept = 0; kept < 5; kept++) {
		struct clv_address_map map = make(kept, 64, 64);
		ck_assert_uint_le(map.layers[CLV_ADDRESS_BLOCKS].count, kept);
		for (uint32_t i = 0; i < map.layers[CLV_ADDRESS_BLOCKS].count; i++) {
			const struct clv_address_rect *r = &map.layers[CLV_ADDRESS_BLOCKS].rects[i];
			ck_assert_uint_le(r->y, map.height);
			ck_assert_uint_le(r->size, map.height - r->y);
		}
		clv_address_map_free(&map);
	}
}
END_TEST

START_TEST(nothing_to_draw)
{
	setup(0);
	struct clv_address_map map = make(10, 8, 8);
	ck_assert_uint_eq(map.width, 1);
	ck_assert_uint_eq(map.height, 0);
	ck_assert_uint_eq(map.layers[CLV_ADDRESS_BLOCKS].count, 0);
	clv_address_map_free(&map);
}
END_TEST

START_TEST(every_allocation_can_fail)
{
	setup(100);
	frame(BASE, CLV_MIB, 0, 100);
	note(CLV_EVENT_RESERVE_HOLD, BASE, 512, 1);
	for (uint32_t i = 0; i < 5000; i++)
		block(BASE + i * 4 * CLV_MIB, 512, i % 50, 60, 1);
	const struct clv_address_map_limits limits = {10, 8, 8};
	struct clv_address_map map;
	uint64_t n = 0;
	bool made = false;
	while (!made) {
		struct clv_error err = {{0}};
		clv_mem_fail_after(++n);
		made = clv_address_map_make(&device, &limits, &map, &err);
		clv_mem_fail_after(0);
		ck_assert_int_eq(made, err.text[0] == '\0');
		ck_assert_uint_lt(n, 1000);
	}
	ck_assert_uint_gt(n, 10);
	clv_address_map_free(&map);
}
END_TEST

CHECK_MAIN("address_map", wide_gaps_are_left_out, lifetimes_are_within_the_history, frames_and_reservations_have_layers,
	   the_largest_and_those_that_pin_are_kept, tiles_have_the_share_that_is_covered, many_stretches_become_few,
	   absurd_addresses_do_no_harm, nothing_to_draw, every_allocation_can_fail)
