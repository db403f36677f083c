/* SPDX-License-Identifier: MIT
 *
 * The case that reservations are for: Kimi-K3's experts (92 layers, NVFP4) are loaded and then converted layer by layer on
 * a device that has room for the layers, one more and what the conversion needs beside it. Sources and destinations are equally
 * large, so only their number tells them apart.
 */
#include "../src/driver/sim.h"
#include "check_main.h"

#include <cleave/plan.h>

#include <string.h>

#define LAYERS 92u
#define KINDS 4u
#define OTHER (25 * CLV_MIB)
#define BETWEEN_NS 20000 /* requests follow each other in this time */

/* Of one expert: packed weights and block scales of the first product, then of the second. */
enum kind { W13, S13, W2, S2 };

/* How experts are divided: 112 whole ones a rank (EP8), or an eighth of each of 896 (TP8). */
static const struct sharding {
	const char *name;
	unsigned experts;
	uint64_t bytes[KINDS];
} shardings[] = {
	{"EP8", 112, {11010048, 1376256, 5505024, 688128}},
	{"TP8", 896, {1376256, 172032, 688128, 86016}},
};

#ifdef __SANITIZE_ADDRESS__ /* the code is the same for both */
#define SHARDINGS 1
#else
#define SHARDINGS CLV_ARRAY_LEN(shardings)
#endif

enum mode {
	PREALLOC,  /* the four destinations first, then expert by expert into them */
	PING_PONG, /* one destination at a time; its source goes at once */
	LISTS,     /* a block for each expert, which are then stacked */
};

struct block {
	cleave_ptr ptr;
	uint64_t bytes;
};

static const struct sharding *shard;
static struct clv_driver *sim;
static cleave_heap *heap; /* NULL: only what is live is counted */
static const cleave_stream stream = {7, 7};
static uint64_t refused; /* calls of the driver */

/* Bytes live: all, and those that are neither layers nor in what is reserved. */
static uint64_t live, live_peak, scratch, scratch_peak;

static enum clv_result (*real_create)(struct clv_driver *self, clv_handle *out, uint64_t size, int device);

static enum clv_result counted_create(struct clv_driver *self, clv_handle *out, uint64_t size, int device)
{
	enum clv_result r = real_create(self, out, size, device);
	refused += r != CLV_OK;
	return r;
}

static struct block get_planned(uint64_t bytes)
{
	struct block b = {0, clv_align_up(bytes, CLV_GRAIN)};
	live += b.bytes;
	live_peak = clv_max_u64(live_peak, live);
	if (!heap)
		return b;
	clv_sim_advance(sim, BETWEEN_NS);
	if (cleave_alloc(heap, 0, stream, bytes, &b.ptr)) {
		cleave_failure f;
		char text[1024] = "";
		if (!cleave_heap_last_failure(heap, 0, &f))
			cleave_failure_print(&f, text, sizeof(text));
		ck_abort_msg("%s: %s", shard->name, text);
	}
	return b;
}

static void give_planned(struct block b)
{
	live -= b.bytes;
	if (heap)
		ck_assert_int_eq(cleave_free(heap, b.ptr, stream), 0);
}

static struct block get(uint64_t bytes)
{
	scratch += clv_align_up(bytes, CLV_GRAIN);
	scratch_peak = clv_max_u64(scratch_peak, scratch);
	return get_planned(bytes);
}

static void give(struct block b)
{
	scratch -= b.bytes;
	give_planned(b);
}

static uint64_t layer_bytes(unsigned kind)
{
	return shard->experts * shard->bytes[kind];
}

/* ---- what is reserved ---- */

/* Of each kind a place for a layer. With lists only the largest kind has one, since the others find theirs where its list was;
 * their lists lie apart, so that what the largest one leaves is in one piece. */
static bool list_is_reserved(enum mode mode, unsigned kind)
{
	return mode == LISTS && kind != W13;
}

static bool is_scale(unsigned kind)
{
	return kind == S13 || kind == S2;
}

/* The reservations of a plan; returns their bytes. */
static uint64_t plan(enum mode mode, bool hard, cleave_reservation r[KINDS])
{
	static const char *const names[KINDS] = {"w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"};
	uint64_t bytes = 0;
	for (unsigned k = 0; k < KINDS; k++) {
		/* one that is gathered is there beside those that are interleaved */
		if (list_is_reserved(mode, k))
			r[k] = (cleave_reservation){.bytes = shard->bytes[k],
						    .count = shard->experts + is_scale(k),
						    .uses = (uint64_t)LAYERS * shard->experts * (is_scale(k) ? 2 : 1)};
		else
			r[k] = (cleave_reservation){
				.bytes = layer_bytes(k), .count = 1, .after_n = LAYERS, .uses = LAYERS};
		r[k].name = names[k];
		r[k].hard = hard;
		bytes += r[k].bytes * r[k].count;
	}
	return bytes;
}

/* ---- the work ---- */

/* The halves of w13 change places, in steps of at most 64 MiB of weights; the scratch is rebound before the old one goes. */
static void reorder(void)
{
	uint64_t rows = shard->bytes[W13] / (2 * 3584 / 2); /* of one half; a row is 3584 numbers of 4 bits */
	uint64_t weight_row = layer_bytes(W13) / (2 * rows), scale_row = layer_bytes(S13) / (2 * rows);
	uint64_t step = clv_min_u64(rows, 64 * CLV_MIB / weight_row);
	struct block last = {0};
	for (uint64_t at = 0; at < rows; at += step) {
		uint64_t n = clv_min_u64(step, rows - at);
		struct block weight = get(n * weight_row);
		if (last.bytes)
			give(last);
		last = get(n * scale_row);
		give(weight);
	}
	give(last);
}

/* Each expert is gathered; its scales are then interleaved, which makes a block of the same size. */
static void into_places(unsigned kind)
{
	for (unsigned e = 0; e < shard->experts; e++) {
		struct block gathered = get(shard->bytes[kind]);
		if (is_scale(kind))
			give(get(shard->bytes[kind]));
		give(gathered);
	}
}

static void prealloc(struct block layer[KINDS])
{
	struct block made[KINDS];
	for (unsigned k = 0; k < KINDS; k++)
		made[k] = get_planned(layer_bytes(k));
	for (unsigned k = 0; k < KINDS; k++)
		into_places(k);
	for (unsigned k = 0; k < KINDS; k++) {
		give_planned(layer[k]);
		layer[k] = made[k];
	}
}

static void ping_pong(struct block layer[KINDS])
{
	for (unsigned k = 0; k < KINDS; k++) {
		struct block made = get_planned(layer_bytes(k));
		into_places(k);
		give_planned(layer[k]);
		layer[k] = made;
	}
}

static struct block listed(unsigned kind)
{
	if (kind == W13)
		return get(shard->bytes[kind]);
	struct block gathered = get_planned(shard->bytes[kind]);
	if (!is_scale(kind))
		return gathered;
	struct block out = get_planned(shard->bytes[kind]);
	give_planned(gathered);
	return out;
}

static void lists(struct block layer[KINDS])
{
	static struct block rows[KINDS][896];
	struct block made[KINDS];
	for (unsigned e = 0; e < shard->experts; e++)
		for (unsigned k = 0; k < KINDS; k++)
			rows[k][e] = listed(k);
	for (unsigned k = 0; k < KINDS; k++) {
		made[k] = k == W13 ? get_planned(layer_bytes(k)) : get(layer_bytes(k));
		for (unsigned e = 0; e < shard->experts; e++)
			k == W13 ? give(rows[k][e]) : give_planned(rows[k][e]);
	}
	for (unsigned k = 0; k < KINDS; k++) {
		scratch -= k == W13 ? 0 : made[k].bytes; /* it is part of a layer now */
		give_planned(layer[k]);
		layer[k] = made[k];
	}
}

static void load_and_convert(enum mode mode)
{
	static void (*const convert[])(struct block layer[KINDS]) = {prealloc, ping_pong, lists};
	static struct block layers[LAYERS][KINDS];
	live = scratch = 0;
	for (unsigned l = 0; l < LAYERS; l++) {
		for (unsigned k = 0; k < KINDS; k++)
			layers[l][k] = get_planned(layer_bytes(k));
		get_planned(OTHER);
	}
	for (unsigned l = 0; l < LAYERS; l++) {
		reorder();
		convert[mode](layers[l]);
	}
}

static void went_as_planned(enum mode mode)
{
	cleave_reservation_stats s[KINDS];
	size_t n;
	ck_assert_int_eq(cleave_reserve_stats(heap, 0, s, KINDS, &n), 0);
	ck_assert_uint_eq(n, KINDS);
	for (size_t i = 0; i < n; i++) {
		char text[512];
		cleave_reservation_print(&s[i], text, sizeof(text));
		ck_assert_msg(!strstr(text, "not as planned"), "%s, mode %d: %s", shard->name, mode, text);
		ck_assert_int_eq(s[i].ended, CLEAVE_RESERVATION_ENDED_BY_USES);
		ck_assert_uint_eq(s[i].skipped, s[i].after_n);
		ck_assert(s[i].missed == 0 && s[i].yielded == 0);
	}
}

/* On a device with `more` bytes beside the layers, what is reserved, and the scratch that is live at once. */
static void fits(const struct sharding *sharding, enum mode mode, uint64_t more, bool hard)
{
	cleave_reservation r[KINDS];
	shard = sharding;
	live_peak = scratch_peak = 0;
	load_and_convert(mode);
	uint64_t need = plan(mode, hard, r) + scratch_peak + LAYERS * OTHER, peak = live_peak;
	for (unsigned k = 0; k < KINDS; k++)
		need += LAYERS * layer_bytes(k);
	sim = clv_sim_open(
		&(struct clv_sim_config){.capacity = clv_align_up(need, 2 * CLV_MIB) + more, .clock_free = true});
	ck_assert_ptr_nonnull(sim);
	refused = 0;
	real_create = sim->create;
	sim->create = counted_create;
	ck_assert_int_eq(cleave_heap_open(&heap, sim, NULL, NULL, 0), 0);
	for (unsigned k = 0; k < KINDS; k++)
		ck_assert_int_eq(cleave_reserve(heap, 0, &r[k], NULL), 0);
	load_and_convert(mode);
	char why[512] = "";
	ck_assert_msg(cleave_heap_check(heap, why, sizeof(why)) == 0, "%s", why);
	went_as_planned(mode);
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	ck_assert_uint_eq(s.failures, 0);
	ck_assert_uint_eq(refused, 0);
	ck_assert_uint_eq(s.live_peak_bytes, peak);
	ck_assert_uint_eq(s.reservation_bytes, 0);
	cleave_heap_close(heap);
	heap = NULL;
	ck_assert_ptr_null(clv_sim_leaks(sim));
	sim->close(sim);
}

START_TEST(preallocated)
{
	for (size_t i = 0; i < SHARDINGS; i++)
		for (unsigned hard = 0; hard < 2; hard++)
			fits(&shardings[i], PREALLOC, 2 * CLV_MIB, hard);
}
END_TEST

START_TEST(ping_ponged)
{
	for (size_t i = 0; i < SHARDINGS; i++)
		for (unsigned hard = 0; hard < 2; hard++)
			fits(&shardings[i], PING_PONG, 2 * CLV_MIB, hard);
}
END_TEST

/* Experts of w13 are in no reservation, and lie together in what is left. */
START_TEST(stacked)
{
	for (size_t i = 0; i < SHARDINGS; i++)
		fits(&shardings[i], LISTS, 2 * CLV_MIB, i);
}
END_TEST

CHECK_MAIN("reserve_k3", preallocated, ping_ponged, stacked)
