/* SPDX-License-Identifier: MIT */
#include "cost.h"

struct point {
	uint64_t bytes; /* of one handle or allocation */
	uint64_t ns;
};

/* Points ascend by bytes; a curve of one point is a constant. */
struct curve {
	unsigned count;
	struct point points[4];
};

#define US(x) ((uint64_t)((x) * 1000 + 0.5))
#define AT(mib, us) {(uint64_t)(mib) * CLV_MIB, US(us)}
#define CONSTANT(us) {1, {AT(0, us)}}

/* Medians on one H200, driver 580.159 (another such machine did the same in up to 1.7 times less, in like
 * proportions). An alias of a frame costs what its first mapping does, and so does a frame that moves. Where the
 * same step was measured alone and as one of many that build 1 GiB, and the two differ (release and create of 32 and
 * 128 MiB, set_access of 128 MiB), the point is their geometric mean, so that neither use is off by more than 15 %. */
static const struct curve curves[CLV_CALL_COUNT] = {
	[CLV_CALL_mem_get_info] = CONSTANT(6.7),
	[CLV_CALL_address_reserve] = {3, {AT(2, 0.82), AT(1 << 20, 2.52), AT(4 << 20, 20)}},
	[CLV_CALL_address_free] = {2, {AT(2, 0.69), AT(1 << 20, 3.55)}},
	[CLV_CALL_create] = {4, {AT(2, 13.1), AT(32, 14.1), AT(128, 17.9), AT(1024, 29)}},
	[CLV_CALL_release] = {4, {AT(2, 16.1), AT(32, 36), AT(128, 96.7), AT(1024, 703)}},
	[CLV_CALL_map] = {3, {AT(2, 1), AT(32, 1.25), AT(1024, 1.5)}},
	[CLV_CALL_unmap] = {4, {AT(2, 22.3), AT(32, 20.6), AT(128, 20.6), AT(1024, 32)}},
	[CLV_CALL_set_access] = {4, {AT(2, 32.6), AT(32, 31.3), AT(128, 35.3), AT(1024, 74)}},
	[CLV_CALL_mem_alloc] = {3, {AT(1, 48), AT(20, 58), AT(1024, 113)}},
	[CLV_CALL_mem_free] = {3, {AT(1, 39), AT(20, 55), AT(1024, 650)}},
	[CLV_CALL_event_create] = CONSTANT(0.24),
	[CLV_CALL_event_destroy] = CONSTANT(0.15),
	[CLV_CALL_event_record] = CONSTANT(0.33),
	[CLV_CALL_event_query] = CONSTANT(0.27),
	[CLV_CALL_event_synchronize] = CONSTANT(0.33), /* of a complete event */
	[CLV_CALL_stream_wait_event] = CONSTANT(0.22),
	[CLV_CALL_stream_synchronize] = CONSTANT(0.39), /* of an idle stream */
};

/* Integers throughout, so that a replay gives the same nanoseconds on every machine. */
static uint64_t curve_at(const struct curve *c, uint64_t bytes)
{
	const struct point *p = c->points;
	if (c->count == 1 || bytes <= p->bytes)
		return p->ns;
	const struct point *last = p + c->count - 1;
	while (p + 1 < last && bytes > p[1].bytes)
		p++;
	__int128 rise = (__int128)p[1].ns - (__int128)p[0].ns;
	__int128 run = (__int128)(p[1].bytes - p[0].bytes);
	__int128 ns = (__int128)p[0].ns + rise * (__int128)(bytes - p[0].bytes) / run;
	return ns < 0 ? 0 : (uint64_t)ns;
}

uint64_t clv_cost_ns(enum clv_call call, uint64_t bytes, uint64_t handles)
{
	if ((unsigned)call >= CLV_CALL_COUNT)
		return 0;
	if (handles <= 1)
		return curve_at(&curves[call], bytes);
	return curve_at(&curves[call], bytes / handles) * handles;
}

uint64_t clv_cost_access_again_ns(uint64_t handles)
{
	return 8500 * handles / 32;
}

uint64_t clv_cost_out_of_memory_ns(enum clv_call call)
{
	return call == CLV_CALL_create ? US(99) : call == CLV_CALL_mem_alloc ? US(185) : clv_cost_ns(call, 0, 1);
}

uint64_t clv_cost_small_ns(enum clv_call call)
{
	return call == CLV_CALL_mem_alloc ? US(2) : call == CLV_CALL_mem_free ? US(2.25) : clv_cost_ns(call, 0, 1);
}
