/* SPDX-License-Identifier: MIT
 *
 * The numbers below were chosen on recorded histories of training, serving and weight conversion (and the same with other
 * sizes): the least stranded memory at 1 % of the run spent in the driver, 2 % when memory is short.
 */
#include "purchase.h"

#include "reclaim.h"

/* The soft cap: so many thousandths above the highest use. */
#define SLACK_PERMILLE 64
#define SLACK_MIN (16 * CLV_MIB)

/* The usual unit: a share of what may be held, at most `frame` of the settings; for heaps that hold much, a share of it. */
#define UNIT_OF_CAP 4096
#define UNIT_OF_HELD 1024
#define UNIT_MAX (128 * CLV_MIB)

/* Stranded thousandths below which little, and not much, is stranded. */
#define STRANDED_LITTLE 3
#define STRANDED_SOME 10
/* A small heap is not counted as stranded for a few frames of the usual size. */
#define STRANDED_BASE (4 * CLV_GIB)

/* A request larger than so many units is bought for exactly. */
#define EXACT_UNITS 3

/* Pieces of a large request: at least four; one more for each thousandth stranded, fewer in a hurry. */
#define PIECES_MIN 4
#define PIECES_MAX 64
#define PIECES_MAX_HURRIED 48

/* Pieces are graded: half of what is left, then half of the rest, so that a block ends in small frames, where it meets its
 * neighbour, at the price of few. */
#define GRADED_MAX (32 * CLV_MIB)
#define GRADED_OF_CAP 768

/* The driver's share of the run: this much at the start, then thousandths of the time; twice that under pressure. */
#define TIME_AT_START_NS 3000000u
#define TIME_PERMILLE 8u

/* A purchase weighs this much in calls, and a quarter more than the bytes it brings. */
#define CALL_WEIGHT (16 * CLV_MIB)
#define CALL_WEIGHT_TIGHT (CLV_MIB)

static uint64_t floor_pow2(uint64_t v)
{
	return v ? (uint64_t)1 << clv_log2(v) : 0;
}

static bool tight(const struct clv_arena *a)
{
	return a->heap->settings.tight;
}

uint64_t clv_purchase_soft_cap(const struct clv_arena *a, uint64_t size, uint64_t cap)
{
	uint64_t peak = clv_max_u64(a->used_peak, a->used + size);
	return clv_min_u64(cap, peak + clv_max_u64(peak / 1000 * SLACK_PERMILLE, SLACK_MIN));
}

static uint64_t stranded_permille(const struct clv_arena *a)
{
	uint64_t base = clv_max_u64(a->used, clv_min_u64(clv_reclaim_cap(a), STRANDED_BASE));
	return base ? (a->pinned - a->used) * 1000 / base : 0;
}

/* True if the driver has had more than its share of the run. */
static bool hurried(const struct clv_arena *a)
{
	struct clv_call_counts counts;
	a->driver->counts(a->driver, &counts);
	uint64_t share = a->driver->now_ns(a->driver) / 1000 * TIME_PERMILLE;
	bool pressed = a->held + 64 * CLV_MIB > clv_reclaim_cap(a);
	return counts.ns > TIME_AT_START_NS + (pressed ? 2 * share : share);
}

static uint64_t unit(const struct clv_arena *a, uint64_t stranded, bool hurry)
{
	uint64_t u = clv_min_u64(a->heap->settings.frame_bytes, clv_reclaim_cap(a) / UNIT_OF_CAP);
	u = floor_pow2(clv_max_u64(u, a->held / UNIT_OF_HELD));
	if (stranded < STRANDED_LITTLE)
		u *= hurry ? 16 : 4;
	else if (stranded < STRANDED_SOME && hurry)
		u *= 2;
	return clv_max_u64(clv_min_u64(u, UNIT_MAX), a->granularity);
}

uint64_t clv_purchase_least(const struct clv_arena *a, const struct clv_request *rq)
{
	if (tight(a) || rq->exact)
		return 0;
	uint64_t u = unit(a, stranded_permille(a), hurried(a));
	return rq->size > EXACT_UNITS * u ? 0 : u;
}

uint64_t clv_purchase_piece(const struct clv_arena *a, const struct clv_request *rq, uint64_t rest)
{
	if (tight(a))
		return clv_min_u64(rest, a->granularity);
	uint64_t stranded = stranded_permille(a);
	bool hurry = hurried(a);
	uint64_t pieces = hurry ? clv_min_u64(PIECES_MIN + stranded * 16 / 10, PIECES_MAX_HURRIED)
				: clv_min_u64(PIECES_MIN + stranded, PIECES_MAX);
	uint64_t even = clv_max_u64(unit(a, stranded, hurry), clv_align_down(rq->size / pieces, a->granularity));
	uint64_t most = clv_align_down(clv_min_u64(GRADED_MAX, clv_reclaim_cap(a) / GRADED_OF_CAP), a->granularity);
	uint64_t graded = clv_min_u64(floor_pow2(rest / 2), most);
	return clv_min_u64(rest, clv_max_u64(even, graded));
}

uint64_t clv_purchase_weight(const struct clv_arena *a, uint64_t bytes)
{
	return tight(a) ? bytes + CALL_WEIGHT_TIGHT : bytes + bytes / 4 + CALL_WEIGHT;
}
