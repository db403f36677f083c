/* SPDX-License-Identifier: MIT
 *
 * arena_rig: the arena of a heap over fault over sim (in manual mode: events complete when the test says so), for tests of
 * the heap's own modules. One thread, so that nobody takes the arena's lock.
 */
#ifndef CLV_ARENA_RIG_H
#define CLV_ARENA_RIG_H

#include "../src/driver/fault.h"
#include "../src/driver/sim.h"
#include "../src/heap/frames.h"
#include "../src/heap/place.h"
#include "../src/heap/purchase.h"
#include "../src/heap/reclaim.h"
#include "../src/heap/slab.h"
#include "../src/heap/space.h"
#include "../src/heap/streams.h"

#include <check.h>

static struct clv_driver *sim, *fault;
static cleave_heap *heap;
static struct clv_arena *a;

static inline cleave_stream stream(uint64_t id)
{
	return id ? (cleave_stream){id, 0x100 + id} : CLEAVE_STREAM_ANY;
}

static inline void rig_open_with(const struct clv_sim_config *config, const char *settings)
{
	sim = clv_sim_open(config);
	ck_assert_ptr_nonnull(sim);
	fault = clv_fault_open(sim, NULL);
	ck_assert_ptr_nonnull(fault);
	char why[256] = "";
	int answer = cleave_heap_open(&heap, fault, settings, why, sizeof(why));
	ck_assert_msg(answer == 0, "%s", why);
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	a = heap->arenas[0];
}

static inline void rig_open_capacity(uint64_t capacity)
{
	rig_open_with(&(struct clv_sim_config){.capacity = capacity, .manual = true}, NULL);
}

static inline void rig_valid(void)
{
	struct clv_error err = {""};
	bool valid = clv_arena_check(a, &err);
	ck_assert_msg(valid, "%s", err.text);
}

static inline void rig_shut(void)
{
	rig_valid();
	clv_fault_set(fault, NULL);
	cleave_heap_close(heap);
	const char *leak = clv_sim_leaks(sim);
	ck_assert_msg(!leak, "leaked: %s", leak);
	fault->close(fault);
	sim->close(sim);
}

/* The index of the slot of a stream; 0 is ANY. */
static inline uint32_t slot_of(uint64_t id)
{
	struct clv_slot *slot = clv_slot_get(a, stream(id));
	ck_assert_ptr_nonnull(slot);
	return slot->index;
}

/* Room for what a test does next with extents. */
static inline void rig_records(void)
{
	ck_assert(clv_pool_reserve(&a->extents, 64));
	ck_assert(clv_space_reserve_block(a));
}

static inline uint64_t driver_calls(enum clv_call call)
{
	struct clv_call_counts counts;
	sim->counts(sim, &counts);
	return counts.calls[call];
}

/* The next `call` is refused. */
static inline void rig_refuse(enum clv_call call, enum clv_result result)
{
	struct clv_fault_config c = {.fail_at = 1, .result = result};
	c.eligible[call] = true;
	clv_fault_set(fault, &c);
}

static inline cleave_ptr get(uint64_t id, size_t size)
{
	cleave_ptr p = 0;
	int answer = cleave_alloc(heap, 0, stream(id), size, &p);
	ck_assert_msg(answer == 0 && p, "a request of %zu bytes: %d", size, answer);
	return p;
}

static inline void give(cleave_ptr p, uint64_t id)
{
	ck_assert_int_eq(cleave_free(heap, p, stream(id)), 0);
}

static inline cleave_heap_stats stats(void)
{
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	return s;
}

#endif
