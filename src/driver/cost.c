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
#define CONSTANT(us) {1, {{0, US(us)}}}

/* Medians on one H200, driver 580.159. Where the same step was measured alone and as one of many that build 1 GiB, and the
 * two differ (release and create of 32 and 128 MiB, set_access of 128 MiB), the point is their geometric mean, so that
 * neither use is off by more than 15 %. */
static const struct curve curves[CLV_CALL_COUNT] = {
	[CLV_CALL_mem_get_info] = CONSTANT(6.7),
	[CLV_CALL_address_reserve] = CONSTANT(20),
	[CLV_CALL_address_free] = CONSTANT(20),
	[CLV_CALL_create] = {4, {{2 * CLV_MIB, US(13.1)}, {32 * CLV_MIB, US(14.1)}, {128 * CLV_MIB, US(17.9)}, {CLV_GIB, US(29)}}},
	[CLV_CALL_release] = {4, {{2 * CLV_MIB, US(16.1)}, {32 * CLV_MIB, US(36)}, {128 * CLV_MIB, US(96.7)}, {CLV_GIB, US(703)}}},
	[CLV_CALL_map] = {3, {{2 * CLV_MIB, US(1)}, {32 * CLV_MIB, US(1.25)}, {CLV_GIB, US(1.5)}}},
	[CLV_CALL_unmap] = {4, {{2 * CLV_MIB, US(22.3)}, {32 * CLV_MIB, US(20.6)}, {128 * CLV_MIB, US(20.6)}, {CLV_GIB, US(32)}}},
	[CLV_CALL_set_access] = {4, {{2 * CLV_MIB, US(32.6)}, {32 * CLV_MIB, US(31.3)}, {128 * CLV_MIB, US(35.3)}, {CLV_GIB, US(74)}}},
	[CLV_CALL_mem_alloc] = {3, {{CLV_MIB, US(48)}, {20 * CLV_MIB, US(58)}, {CLV_GIB, US(113)}}},
	[CLV_CALL_mem_free] = {3, {{CLV_MIB, US(39)}, {20 * CLV_MIB, US(55)}, {CLV_GIB, US(650)}}},
	[CLV_CALL_event_create] = CONSTANT(0.33),
	[CLV_CALL_event_destroy] = CONSTANT(0.33),
	[CLV_CALL_event_record] = CONSTANT(0.33),
	[CLV_CALL_event_query] = CONSTANT(0.27),
	[CLV_CALL_event_synchronize] = CONSTANT(0.27),
	[CLV_CALL_stream_wait_event] = CONSTANT(0.33),
	[CLV_CALL_stream_synchronize] = CONSTANT(0.27),
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
