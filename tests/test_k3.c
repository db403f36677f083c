/* SPDX-License-Identifier: MIT
 *
 * Weights of a mixture of experts at full size (896 experts, 66 layers) that are loaded and then converted layer by layer
 * on a device that has next to nothing more than what is live at the peak. Default growth. A program is ahead of the
 * device: what it has freed is complete at once, a few requests later or much later.
 */
#include "../src/driver/sim.h"
#include "check_main.h"

#include <inttypes.h>
#include <stdio.h>

#define EXPERTS 896u
#define HIDDEN 3584ull
#define INTER 384ull
#define KINDS 4u
#define LAYERS_MAX 66u
#define OTHER (25 * CLV_MIB)
#define STAGE (300 * CLV_MIB)
#define BETWEEN_NS 20000 /* requests follow each other in this time */
#define OTHERS (9 * CLV_GIB) /* what the program takes from the driver by itself */

enum mode { PREALLOC, REORDER, STACK };

/* Of one expert: packed weights and block scales of the first and the second product. */
static const uint64_t expert_bytes[KINDS] = {
	2 * INTER * HIDDEN / 2,
	2 * INTER *HIDDEN / 16,
	HIDDEN *INTER / 2,
	HIDDEN *INTER / 16,
};

struct block {
	cleave_ptr ptr;
	uint64_t bytes;
};

static struct clv_driver *sim;
static cleave_heap *heap; /* NULL: only what is live is counted */
static const cleave_stream stream = {7, 7};
static uint64_t live, live_peak;
static bool begins_anew; /* what the program has at first is gone, and given back, before it takes memory by itself and loads */

static struct block get(uint64_t bytes)
{
	struct block b = {0, clv_align_up(bytes, 512)};
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
		ck_abort_msg("%s", text);
	}
	return b;
}

static void give(struct block b)
{
	live -= b.bytes;
	if (heap)
		ck_assert_int_eq(cleave_free(heap, b.ptr, stream), 0);
}

/* Two experts of each kind are copied to the host, by an index. */
static void look(void)
{
	for (unsigned k = 0; k < KINDS; k++) {
		struct block index = get(16), rows = get(2 * expert_bytes[k]);
		give(index);
		give(rows);
	}
}

/* Halves of as many experts as fit into a scratch of at most `most` bytes. */
static void swap_halves(unsigned kind, uint64_t most)
{
	uint64_t step = most / expert_bytes[kind];
	for (uint64_t e = 0; e < EXPERTS; e += step)
		give(get(clv_min_u64(step, EXPERTS - e) * expert_bytes[kind] / 2));
}

static void stack_layer(struct block layer[KINDS])
{
	static struct block rows[KINDS][EXPERTS];
	for (unsigned e = 0; e < EXPERTS; e++)
		for (unsigned k = 0; k < KINDS; k++)
			rows[k][e] = get(expert_bytes[k]);
	for (unsigned k = 0; k < KINDS; k++) {
		struct block stacked = get(EXPERTS * expert_bytes[k]);
		give(layer[k]);
		layer[k] = stacked;
	}
	for (unsigned k = 0; k < KINDS; k++)
		for (unsigned e = 0; e < EXPERTS; e++)
			give(rows[k][EXPERTS - 1 - e]); /* as Python empties a list */
}

static void copy_layer(struct block layer[KINDS])
{
	struct block made[KINDS];
	for (unsigned k = 0; k < KINDS; k++)
		made[k] = get(EXPERTS * expert_bytes[k]);
	for (unsigned e = 0; e < EXPERTS; e++)
		for (unsigned k = 0; k < KINDS; k++)
			give(get(expert_bytes[k]));
	for (unsigned k = 0; k < KINDS; k++) {
		give(layer[k]);
		layer[k] = made[k];
	}
}

static void convert(enum mode mode, unsigned layers)
{
	static struct block weights[LAYERS_MAX][KINDS];
	live = 0;
	struct block first = get(4);
	if (begins_anew) {
		give(first);
		uint64_t released;
		if (heap) {
			ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, &released), 0);
			clv_sim_set_foreign(sim, 0, OTHERS);
		}
	}
	for (unsigned l = 0; l < layers; l++) {
		for (unsigned k = 0; k < KINDS; k++)
			weights[l][k] = get(EXPERTS * expert_bytes[k]);
		get(OTHER);
		struct block stage = {0};
		if (l == 0)
			stage = get(STAGE);
		look();
		if (l == 0)
			give(stage);
	}
	get(2 * INTER * 8);
	get(HIDDEN * 8);
	for (unsigned l = 0; l < layers; l++) {
		if (mode == REORDER) {
			swap_halves(0, 64 * CLV_MIB);
			swap_halves(1, 8 * CLV_MIB);
		}
		if (mode == STACK)
			stack_layer(weights[l]);
		else
			copy_layer(weights[l]);
	}
	for (unsigned l = 0; l < layers; l++)
		look();
}

/* What `cleave plan` reserves for destinations that are preallocated. */
static void reserve(unsigned layers, char *settings, size_t room)
{
	size_t used = 0;
	for (unsigned k = 0; k < KINDS; k++)
		used += (size_t)snprintf(settings + used, room - used, "reserve:%" PRIu64 "*1+after=%u+uses=%u,",
					 EXPERTS * expert_bytes[k], layers, layers);
	snprintf(settings + used, room - used, "reserve:%" PRIu64 "*2+uses=%u,reserve:%" PRIu64 "*1+uses=%u",
		 expert_bytes[1], layers * (EXPERTS + 1), expert_bytes[3], layers * (EXPERTS + 1));
}

/* Of a run: the most that it may cost. */
struct cost {
	uint64_t frames, ms;
};

static void run(enum mode mode, unsigned layers, uint64_t capacity, uint64_t lag_ns, const char *settings,
		struct cost most)
{
	sim = clv_sim_open(&(struct clv_sim_config){
		.capacity = capacity + (begins_anew ? OTHERS : 0), .clock_free = true, .event_lag_ns = lag_ns});
	ck_assert_ptr_nonnull(sim);
	ck_assert_int_eq(cleave_heap_open(&heap, sim, settings, NULL, 0), 0);
	convert(mode, layers);
	char why[512] = "";
	ck_assert_msg(cleave_heap_check(heap, why, sizeof(why)) == 0, "%s", why);
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	ck_assert_uint_eq(s.failures, 0);
	ck_assert_uint_eq(s.live_peak_bytes, live_peak);
	ck_assert_uint_le(s.frames_created, most.frames);
	struct clv_call_counts counts;
	sim->counts(sim, &counts);
	ck_assert_uint_le(counts.ns / 1000000, most.ms);
	cleave_heap_close(heap);
	heap = NULL;
	ck_assert_ptr_null(clv_sim_leaks(sim));
	sim->close(sim);
}

/* On devices with `least` and more bytes beside what is live at the peak, in whole frames. */
static void fits(enum mode mode, unsigned layers, uint64_t least, const char *settings, struct cost most)
{
	static const struct {
		uint64_t more, lag_us;
		bool anew;
	} devices[] = {
		{0, 600, true},
#ifndef __SANITIZE_ADDRESS__ /* the code is the same for all */
		{0, 100},
		{0, 0},
		{0, 0, true},
		{0, 20000},
		{16 * CLV_MIB, 1000},
#endif
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(devices); i++) {
		begins_anew = devices[i].anew;
		live_peak = 0;
		convert(mode, layers);
		uint64_t more = clv_max_u64(least, begins_anew ? 2 * CLV_MIB : 0) + devices[i].more;
		run(mode, layers, clv_align_up(live_peak, 2 * CLV_MIB) + more, devices[i].lag_us * 1000, settings, most);
	}
}

START_TEST(prealloc)
{
	fits(PREALLOC, 66, 2 * CLV_MIB, NULL, (struct cost){2200, 130});
}
END_TEST

START_TEST(reorder)
{
	fits(REORDER, 66, 2 * CLV_MIB, NULL, (struct cost){2400, 150});
}
END_TEST

START_TEST(stack)
{
	fits(STACK, 65, 0, NULL, (struct cost){4000, 260});
}
END_TEST

/* The plan is for another order: lists take what it holds for destinations, but for the first. */
START_TEST(stack_under_plan)
{
	char settings[512];
	reserve(65, settings, sizeof(settings));
	fits(STACK, 65, 2 * CLV_MIB, settings, (struct cost){4500, 300});
}
END_TEST

CHECK_MAIN("k3", prealloc, reorder, stack, stack_under_plan)
