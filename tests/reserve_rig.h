/* SPDX-License-Identifier: MIT
 *
 * A heap on a simulated device and its reservations, for Check programs. Streams have the handle 0x100 + id.
 */
#ifndef CLV_RESERVE_RIG_H
#define CLV_RESERVE_RIG_H

#include "../src/driver/sim.h"
#include "check_main.h"

#include <cleave/plan.h>

static struct clv_driver *sim;
static cleave_heap *heap;

static inline cleave_stream stream(uint64_t id)
{
	return (cleave_stream){id, 0x100 + id};
}

static inline void open_with(const char *settings, struct clv_sim_config config)
{
	char why[256] = "";
	sim = clv_sim_open(&config);
	ck_assert_ptr_nonnull(sim);
	ck_assert_msg(cleave_heap_open(&heap, sim, settings, why, sizeof(why)) == 0, "%s", why);
}

static inline void open_one(uint64_t capacity)
{
	open_with(NULL, (struct clv_sim_config){.capacity = capacity, .manual = true});
}

static inline void check(void)
{
	char why[512] = "";
	ck_assert_msg(cleave_heap_check(heap, why, sizeof(why)) == 0, "%s", why);
}

static inline cleave_heap_stats books(void)
{
	cleave_heap_stats s;
	check();
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	ck_assert_uint_eq(s.held_bytes, s.live_bytes + s.rounding_bytes + s.free_bytes);
	ck_assert_uint_eq(s.held_bytes, clv_sim_used(sim, 0));
	return s;
}

static inline void close_all(void)
{
	check();
	cleave_heap_close(heap);
	ck_assert_ptr_null(clv_sim_leaks(sim));
	sim->close(sim);
}

static inline cleave_ptr get(uint64_t id, size_t size)
{
	cleave_ptr p = 0;
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(id), size, &p), 0);
	ck_assert_uint_ne(p, 0);
	return p;
}

static inline void give(cleave_ptr p, uint64_t id)
{
	ck_assert_int_eq(cleave_free(heap, p, stream(id)), 0);
}

static inline uint64_t reserve(cleave_reservation r)
{
	uint64_t id = 0;
	ck_assert_int_eq(cleave_reserve(heap, 0, &r, &id), 0);
	ck_assert_uint_ne(id, 0);
	return id;
}

static inline size_t count_of(void)
{
	size_t n;
	ck_assert_int_eq(cleave_reserve_stats(heap, 0, NULL, 0, &n), 0);
	return n;
}

static inline cleave_reservation_stats told(uint64_t id)
{
	static cleave_reservation_stats all[256];
	size_t n;
	ck_assert_int_eq(cleave_reserve_stats(heap, 0, all, CLV_ARRAY_LEN(all), &n), 0);
	for (size_t i = 0; i < n; i++)
		if (all[i].id == id)
			return all[i];
	ck_abort_msg("there is no reservation %d", (int)id);
}

#endif
