/* SPDX-License-Identifier: MIT
 *
 * The numbers below were chosen on recorded histories of training, serving and weight conversion (and the same with other
 * sizes): the least stranded memory at 1 % of the run spent in the driver, 2 % when memory is short.
 */
#include "purchase.h"

#include "passing.h"
#include "reclaim.h"

/* The soft cap: so many thousandths above the highest use. */
#define SLACK_PERMILLE 64
#define SLACK_MIN (16 * CLV_MIB)

/* When the driver has had so many times its share and a start-up time, far too much of the run, the slack is doubled, and
 * again at each doubling of that: where there is memory, to hold it costs less than to move it about. */
#define MUCH_SHARES 8
#define MUCH_AT_START_NS 200000000u
#define MUCH_DOUBLINGS 4
/* In a long run on a device with room the driver has far less: a server goes on for days, and what it moves about each time that
 * it meets other sizes is for nothing. */
#define LONG_RUN_NS 10000000000u
#define LONG_AT_START_NS 100000000u
#define LONG_PERMILLE 1u
#define ROOMY_OF_CAP 4

/* The usual unit: a share of what may be held, or of what is; at most `frame` of the settings, and so many times the
 * request, since one block may pin it for good in the end. */
#define UNIT_OF_CAP 4096
#define UNIT_OF_HELD 1024
#define UNIT_OF_REQUEST 8
/* And of what is not in use: the last frames on a full device are small ones. */
#define UNIT_OF_ROOM 64
#define PIECE_OF_ROOM 8

/* A heap that grows in a hurry while little is stranded buys coarser: fewer calls, and more at stake. So only up to these
 * many bytes at a time, in all. */
#define COARSE_TIMES 16
#define COARSE_MAX (64 * CLV_MIB)
#define COARSE_OF_REQUEST 16
#define COARSE_HELD_MAX (2 * CLV_GIB)

/* Stranded thousandths below which little, and not much, is stranded. */
#define STRANDED_LITTLE 3
#define STRANDED_SOME 10
/* Above this units and pieces are halved, above twice this quartered, and so on. */
#define STRANDED_MUCH 80
#define SHRINK_MAX 3
/* A small heap is not counted as stranded for a few frames of the usual size. */
#define STRANDED_BASE (4 * CLV_GIB)

/* A request larger than so many units is bought for exactly. */
#define EXACT_UNITS 3

/* On a large device what a block strands is beyond recall once it is nearly full, and the usual unit would strand much. So a
 * large request is bought for exactly, and an end inside a page has that page for itself: where two blocks meet, no more than
 * one page is at stake when one of them goes. A frame more a request. */
#define LARGE_UNIT (8 * CLV_MIB)
#define OWN_ENDS CLV_PASSING_LEAST
/* And frames shrink with the room, so many bytes of capacity a piece of it; a whole frame is cut if more is left over than this
 * share of the room. */
#define CAP_OF_PIECE (128 * CLV_MIB)
#define WASTE_OF_ROOM 256
/* It is nearly full when that is less than this: 8 GiB of room. */
#define LOW_WASTE (32 * CLV_MIB)

/* Pieces of a large request: at least four; one more for each thousandth stranded, fewer in a hurry. */
#define TAIL_PIECES 4
#define PIECES_MIN 4
#define PIECES_MAX 256
#define PIECES_MAX_HURRIED 48

/* Pieces are graded: half of what is left, then half of the rest, so that a block ends in small frames, where it meets its
 * neighbour, at the price of few. */
#define GRADED_MAX (32 * CLV_MIB)
#define GRADED_OF_CAP 768

/* Frames that may be folded are of two sizes, so that each finds another like it. */
#define APART_LARGE (32 * CLV_MIB)
#define APART_LARGE_FROM (4 * APART_LARGE)

/* The driver's share of the run: this much at the start, then thousandths of the time; twice that under pressure. */
#define TIME_AT_START_NS 2000000u
#define TIME_PERMILLE 6u

/* A purchase weighs this much in calls, and a quarter more than the bytes it brings. */
#define CALL_WEIGHT (16 * CLV_MIB)
#define CALL_WEIGHT_TIGHT (2 * CLV_MIB)

static uint64_t floor_pow2(uint64_t v)
{
	return v ? (uint64_t)1 << clv_log2(v) : 0;
}

static bool tight(const struct clv_arena *a)
{
	return a->heap->settings.tight;
}

/* One of which the usual unit is large. */
static bool large_device(const struct clv_arena *a, uint64_t cap)
{
	return cap >= UNIT_OF_CAP * LARGE_UNIT && !tight(a);
}

bool clv_purchase_is_large(const struct clv_arena *a)
{
	return large_device(a, clv_reclaim_cap(a));
}

bool clv_purchase_own_ends(const struct clv_arena *a, const struct clv_request *rq)
{
	return rq->size >= OWN_ENDS && clv_purchase_is_large(a);
}

static uint64_t stranded_permille(const struct clv_arena *a)
{
	uint64_t base = clv_max_u64(a->used, clv_min_u64(clv_reclaim_cap(a), STRANDED_BASE));
	return base ? (a->pinned - a->used) * 1000 / base : 0;
}

/* The driver's share of the run so far, and what it has had of it. */
static uint64_t share_ns(const struct clv_arena *a)
{
	return TIME_AT_START_NS + a->driver->now_ns(a->driver) / 1000 * TIME_PERMILLE;
}

static uint64_t spent_ns(const struct clv_arena *a)
{
	struct clv_call_counts counts;
	a->driver->counts(a->driver, &counts);
	return counts.ns;
}

/* True if the driver has had more than its share of the run. */
static bool hurried(const struct clv_arena *a)
{
	bool pressed = a->held + 64 * CLV_MIB > clv_reclaim_cap(a);
	return spent_ns(a) > (pressed ? 2 : 1) * share_ns(a);
}

/* Doublings by which the driver has had far too much of the run; 0 as a rule. */
static unsigned overspent(const struct clv_arena *a)
{
	if (tight(a))
		return 0;
	uint64_t spent = spent_ns(a), much = MUCH_AT_START_NS + share_ns(a) * MUCH_SHARES, run = a->driver->now_ns(a->driver);
	if (run > LONG_RUN_NS && a->held < clv_reclaim_cap(a) / ROOMY_OF_CAP)
		much = LONG_AT_START_NS + run / 1000 * LONG_PERMILLE;
	unsigned doublings = 0;
	while (doublings < MUCH_DOUBLINGS && spent > much << doublings)
		doublings++;
	return doublings;
}

uint64_t clv_purchase_soft_cap(const struct clv_arena *a, uint64_t size, uint64_t cap)
{
	uint64_t peak = clv_max_u64(a->used_peak, a->used + size);
	uint64_t slack = clv_max_u64(peak / 1000 * SLACK_PERMILLE, SLACK_MIN) << overspent(a);
	return clv_min_u64(cap, peak + slack);
}

/* Powers of two by which everything gets smaller when much is stranded. */
static unsigned shrink(uint64_t stranded)
{
	unsigned shift = 0;
	for (uint64_t much = STRANDED_MUCH; stranded > much && shift < SHRINK_MAX; much *= 2)
		shift++;
	return shift;
}

/* What may still be in use one day. */
static uint64_t room_left(const struct clv_arena *a)
{
	uint64_t cap = clv_reclaim_cap(a);
	return cap - clv_min_u64(cap, a->used);
}

/* In how many pieces the room is bought at least. */
static uint64_t room_pieces(const struct clv_arena *a, uint64_t least)
{
	return clv_purchase_is_large(a) ? clv_max_u64(least, clv_reclaim_cap(a) / CAP_OF_PIECE) : least;
}

static uint64_t unit(const struct clv_arena *a, uint64_t request, uint64_t stranded)
{
	uint64_t u = clv_max_u64(clv_reclaim_cap(a) / UNIT_OF_CAP, a->held / UNIT_OF_HELD) >> shrink(stranded);
	u = clv_min_u64(u, clv_min_u64(a->heap->settings.frame_bytes, request * UNIT_OF_REQUEST));
	u = clv_min_u64(u, room_left(a) / room_pieces(a, UNIT_OF_ROOM));
	return clv_max_u64(floor_pow2(u), a->granularity);
}

/* The unit when calls count for more. */
static uint64_t unit_now(const struct clv_arena *a, uint64_t request, uint64_t stranded, bool hurry)
{
	uint64_t u = unit(a, request, stranded);
	if (!hurry || stranded >= STRANDED_SOME || a->coarse >= COARSE_HELD_MAX)
		return u;
	uint64_t times = stranded < STRANDED_LITTLE ? COARSE_TIMES : 2;
	uint64_t most = clv_min_u64(clv_min_u64(u * times, COARSE_MAX), request * COARSE_OF_REQUEST);
	if (clv_purchase_is_large(a))
		most = clv_min_u64(most, room_left(a) / room_pieces(a, 1));
	return clv_max_u64(u, floor_pow2(most));
}

uint64_t clv_purchase_least(const struct clv_arena *a, const struct clv_request *rq)
{
	if (tight(a) || rq->exact || rq->slot->apart)
		return 0;
	if (clv_purchase_own_ends(a, rq))
		return 0;
	uint64_t u = unit_now(a, rq->size, stranded_permille(a), hurried(a));
	return rq->size > EXACT_UNITS * u ? 0 : u;
}

bool clv_purchase_is_coarse(const struct clv_arena *a, const struct clv_request *rq, uint64_t size)
{
	return !rq->slot->apart && size > rq->size && size > unit(a, rq->size, stranded_permille(a));
}

uint64_t clv_purchase_piece(const struct clv_arena *a, const struct clv_request *rq, uint64_t rest)
{
	if (tight(a))
		return clv_min_u64(rest, a->granularity);
	if (rq->slot->apart)
		return rest >= APART_LARGE_FROM ? APART_LARGE : a->granularity;
	uint64_t stranded = stranded_permille(a);
	bool hurry = hurried(a);
	uint64_t pieces = hurry ? clv_min_u64(PIECES_MIN + stranded * 16 / 10, PIECES_MAX_HURRIED)
				: clv_min_u64(PIECES_MIN + stranded, PIECES_MAX);
	uint64_t even =
		clv_max_u64(unit_now(a, rq->size, stranded, hurry), clv_align_down(rq->size / pieces, a->granularity));
	even = clv_min_u64(even,
			   clv_max_u64(clv_align_down(room_left(a) / PIECE_OF_ROOM, a->granularity), a->granularity));
	uint64_t most = clv_min_u64(GRADED_MAX, clv_reclaim_cap(a) / GRADED_OF_CAP) >> shrink(stranded);
	uint64_t graded = clv_min_u64(floor_pow2(rest / 2), clv_align_down(most, a->granularity));
	if (rest <= even)
		return clv_min_u64(rest, clv_max_u64(unit_now(a, rq->size, stranded, hurry),
						     clv_max_u64(floor_pow2(rest / 2),
								 clv_align_down(even / TAIL_PIECES, a->granularity))));
	return clv_min_u64(rest, clv_max_u64(even, graded));
}

uint64_t clv_purchase_weight(const struct clv_arena *a, uint64_t bytes)
{
	return tight(a) ? bytes + CALL_WEIGHT_TIGHT : bytes + bytes / 4 + CALL_WEIGHT;
}

/* Large blocks keep to frames of their own also where they lie in holes, if the device is nearly full or more is in use
 * than ever before: then they may well be there to stay, as weights that are loaded one after the other. A program that
 * comes and goes below its peak would pay for cuts again and again, and may never need what they save. */
struct clv_cutting clv_purchase_cutting(const struct clv_arena *a, const struct clv_request *rq)
{
	uint64_t cap = clv_reclaim_cap(a);
	if (!large_device(a, cap))
		return (struct clv_cutting){.most = UINT64_MAX};
	uint64_t most = (cap - clv_min_u64(cap, a->used + rq->size)) / WASTE_OF_ROOM;
	bool low = most < LOW_WASTE;
	if (rq->size >= OWN_ENDS && (low || a->used + rq->size > a->used_peak) && !clv_passing_has(a, rq->size))
		return (struct clv_cutting){.most = a->granularity, .own_ends = true, .low = low};
	return (struct clv_cutting){.most = clv_max_u64(most, a->granularity - 1), .low = low};
}

bool clv_purchase_is_low(const struct clv_arena *a, const struct clv_request *rq)
{
	return clv_purchase_cutting(a, rq).low;
}
