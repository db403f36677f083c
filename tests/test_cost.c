/* SPDX-License-Identifier: MIT
 *
 * The cost table beside what was measured: each row within 15 %.
 */
#include "../src/driver/cost.h"
#include "check_main.h"

#define KIND(x) CLV_CALL_##x

static void within(double got_us, double low_us, double high_us, const char *what, size_t row)
{
	ck_assert_msg(got_us >= 0.85 * low_us && got_us <= 1.15 * high_us,
		      "%s, row %zu: %.3f us, measured %.3f to %.3f", what, row, got_us, low_us, high_us);
}

/* One call over one handle or allocation. */
START_TEST(single_calls)
{
	static const struct {
		enum clv_call call;
		uint64_t mib;
		double us;
	} rows[] = {
		{KIND(address_reserve), 4 << 20, 20}, {KIND(address_reserve), 1 << 20, 2.52},
		{KIND(address_reserve), 2, 0.82},
		{KIND(address_free), 1 << 20, 3.55}, {KIND(address_free), 2, 0.69},
		{KIND(create), 2, 13}, {KIND(create), 32, 13}, {KIND(create), 128, 16}, {KIND(create), 1024, 29},
		{KIND(set_access), 2, 33}, {KIND(set_access), 128, 31}, {KIND(set_access), 1024, 74},
		{KIND(unmap), 2, 22}, {KIND(unmap), 128, 20}, {KIND(unmap), 1024, 32},
		{KIND(release), 2, 16}, {KIND(release), 32, 32}, {KIND(release), 128, 87}, {KIND(release), 1024, 703},
		{KIND(mem_alloc), 1, 48}, {KIND(mem_alloc), 20, 58}, {KIND(mem_alloc), 1024, 113},
		{KIND(mem_free), 1, 39}, {KIND(mem_free), 20, 55}, {KIND(mem_free), 1024, 650},
		{KIND(event_record), 0, 0.33},
		{KIND(event_query), 0, 0.27},
		{KIND(mem_get_info), 0, 6.7},
		{KIND(event_create), 0, 0.24},
		{KIND(event_destroy), 0, 0.15},
		{KIND(event_synchronize), 0, 0.33},
		{KIND(stream_wait_event), 0, 0.22},
		{KIND(stream_synchronize), 0, 0.39},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(rows); i++)
		within((double)clv_cost_ns(rows[i].call, rows[i].mib * CLV_MIB, 1) / 1e3, rows[i].us, rows[i].us,
		       clv_call_name(rows[i].call), i);
	for (uint64_t mib = 2; mib <= 1024; mib *= 2) /* "any size" */
		within((double)clv_cost_ns(KIND(map), mib * CLV_MIB, 1) / 1e3, 1, 2, "cuMemMap", mib);
	within((double)clv_cost_out_of_memory_ns(KIND(create)) / 1e3, 92.4, 105.7, "cuMemCreate, full", 0);
	within((double)clv_cost_out_of_memory_ns(KIND(mem_alloc)) / 1e3, 180.7, 189.7, "cuMemAlloc, full", 0);
	within((double)clv_cost_small_ns(KIND(mem_alloc)) / 1e3, 1.98, 2.02, "cuMemAlloc, small", 0);
	within((double)clv_cost_small_ns(KIND(mem_free)) / 1e3, 2.24, 2.32, "cuMemFree, small", 0);
}
END_TEST

/* 1 GiB made of many handles; half a unit of the last digit that was noted is allowed on both sides. */
START_TEST(many_handles)
{
	static const struct {
		uint64_t handles, mib;
		double create, map, access, unmap, release; /* ms */
		double digit;
	} rows[] = {{512, 2, 6.8, 0.5, 16.5, 11.6, 8.3, 0.05},
		    {32, 32, 0.49, 0.04, 1.0, 0.66, 1.3, 0.005},
		    {8, 128, 0.16, 0.01, 0.32, 0.17, 0.86, 0.005}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(rows); i++) {
		const struct {
			enum clv_call call;
			double ms;
			bool one_call;
		} steps[] = {{KIND(create), rows[i].create, false},
			     {KIND(map), rows[i].map, false},
			     {KIND(set_access), rows[i].access, true},
			     {KIND(unmap), rows[i].unmap, true},
			     {KIND(release), rows[i].release, false}};
		for (size_t k = 0; k < CLV_ARRAY_LEN(steps); k++) {
			uint64_t bytes = rows[i].mib * CLV_MIB, n = rows[i].handles;
			uint64_t ns = steps[k].one_call ? clv_cost_ns(steps[k].call, n * bytes, n)
							: n * clv_cost_ns(steps[k].call, bytes, 1);
			double low = (steps[k].ms - rows[i].digit) * 1e3, high = (steps[k].ms + rows[i].digit) * 1e3;
			within((double)ns / 1e3, low, high, clv_call_name(steps[k].call), i);
		}
	}
	within((double)clv_cost_access_again_ns(32) / 1e3, 8.5, 8.5, "cuMemSetAccess again", 0);
}
END_TEST

START_TEST(shape)
{
	for (int call = 0; call < CLV_CALL_COUNT; call++) {
		ck_assert_uint_gt(clv_cost_ns(call, 0, 1), 0); /* no call is free, and each has an entry */
		ck_assert_uint_eq(clv_cost_ns(call, 64 * CLV_MIB, 0), clv_cost_ns(call, 64 * CLV_MIB, 1));
		ck_assert_uint_eq(clv_cost_ns(call, 64 * CLV_MIB, 16), 16 * clv_cost_ns(call, 4 * CLV_MIB, 1));
		(void)clv_cost_ns(call, UINT64_MAX, 1); /* no overflow that a sanitizer would see */
	}
	/* a straight line between measured sizes, and on beyond the last */
	uint64_t low = clv_cost_ns(KIND(release), 128 * CLV_MIB, 1);
	uint64_t high = clv_cost_ns(KIND(release), 1024 * CLV_MIB, 1);
	ck_assert_uint_eq(clv_cost_ns(KIND(release), 576 * CLV_MIB, 1), (low + high) / 2);
	ck_assert_uint_eq(clv_cost_ns(KIND(release), 1920 * CLV_MIB, 1), high + (high - low));
	ck_assert_uint_eq(clv_cost_ns(KIND(mem_alloc), 512, 1), clv_cost_ns(KIND(mem_alloc), CLV_MIB, 1));
	ck_assert_uint_eq(clv_cost_ns(CLV_CALL_COUNT, 1, 1), 0);
}
END_TEST

CHECK_MAIN("cost", single_calls, many_handles, shape)
