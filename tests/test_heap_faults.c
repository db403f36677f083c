/* SPDX-License-Identifier: MIT
 *
 * Every driver call and every host allocation that the heap makes fails once, or from one point on for a while: nothing may
 * leak, no half state may stay, and once the failures are over the same request must succeed.
 */
#include "../src/host/meta.h"
#include "check_main.h"
#include "heap_rig.h"

#include <errno.h>
#include <inttypes.h>

static struct rig r;

/* After a failure that was made: with the driver well again the request is served, or refused for a true reason. */
static void retry(unsigned stream, uint64_t size)
{
	rig_set_well(&r, true);
	clv_meta_fail_after(0);
	r.config.faults_expected = false;
	rig_alloc(&r, stream, size);
	rig_check(&r);
	r.config.faults_expected = true;
	rig_set_well(&r, false);
}

static void ask(unsigned stream, uint64_t size)
{
	if (rig_alloc(&r, stream, size)) {
		rig_check(&r);
		retry(stream, size);
	}
}

static void free_first(unsigned stream)
{
	if (r.count)
		rig_free(&r, 0, stream);
}

/* Growth, holes of several streams, moves, waits on the device and the host, slabs, caches, a destroyed stream, trims. */
static void scenario_all(void)
{
	ask(1, 12 * CLV_MIB);
	ask(1, 700);
	ask(2, 700);
	ask(2, 5 * CLV_MIB + 512);
	ask(1, 3 * CLV_MIB);
	free_first(1); /* 12 MiB of stream 1 */
	ask(2, 20 * CLV_MIB); /* waits for it, or moves frames */
	ask(0, 40 * CLV_KIB);
	ask(1, 33 * CLV_MIB); /* does not fit: the whole ladder */
	free_first(2);
	free_first(0);
	rig_destroy_stream(&r, 2);
	ask(2, 9 * CLV_MIB);
	rig_trim(&r, 16 * CLV_MIB);
	ask(1, 17 * CLV_MIB);
	free_first(1);
	rig_set_limit(&r, 20 * CLV_MIB);
	ask(2, 4 * CLV_MIB);
	rig_set_limit(&r, 0);
	while (r.count)
		free_first(1 + r.count % 2);
	ask(1, 48 * CLV_MIB);
	rig_trim(&r, 0);
}

/* The device is full and everything is pending: the memory can only be found by moves and waits. */
static void scenario_full(void)
{
	for (int i = 0; i < 10; i++)
		ask(1 + i % 2, 6 * CLV_MIB + 512);
	for (int i = 0; i < 5; i++)
		rig_free(&r, (unsigned)i, 1 + (i & 1));
	ask(1, 14 * CLV_MIB);
	ask(2, 9 * CLV_MIB);
	rig_complete(&r, 1);
	ask(0, 8 * CLV_MIB);
	free_first(0);
	ask(1, 20 * CLV_KIB);
	ask(2, 5 * CLV_MIB);
}

static void (*const scenarios[])(void) = {scenario_all, scenario_full};

static void open_rig(uint64_t seed, const char *settings)
{
	rig_open(&r, &(struct rig_config){.seed = seed, .settings = settings, .capacity = 64 * CLV_MIB, .streams = 2, .manual = true,
					  .check_every = 1, .faults_expected = true});
}

static void close_rig(void)
{
	rig_set_well(&r, true);
	clv_meta_fail_after(0);
	r.config.faults_expected = false;
	rig_free_all(&r);
	rig_trim(&r, 0); /* also what the driver would not take back before */
	ck_assert_uint_eq(clv_sim_used(r.sim, 0), 0);
	rig_close(&r);
}

static const char *const all_settings[] = {NULL, "growth:tight"};

/* Of four: two scenarios under two settings each. */
static void sweep_calls(size_t first, size_t last, bool after, enum clv_result result)
{
	for (size_t s = first; s <= last; s++) {
		uint64_t k = 1, injected;
		do {
			open_rig(k, all_settings[s % 2]);
			clv_fault_set(r.fault, &(struct clv_fault_config){.fail_at = k, .fail_after = after, .result = result});
			scenarios[s / 2]();
			injected = clv_fault_injected(r.fault);
			close_rig();
			k++;
		} while (injected && k < 1000);
		ck_assert_uint_gt(k, 40); /* calls were made, and the last run met none that fails */
		ck_assert_uint_lt(k, 1000);
	}
}

START_TEST(each_call_fails_once)
{
	sweep_calls(0, 3, false, CLV_OK);
}
END_TEST

START_TEST(each_call_fails_otherwise)
{
	sweep_calls(1, 2, false, CLV_CAPTURING);
}
END_TEST

/* The request that failed is repeated with the driver well; afterwards calls fail again. */
START_TEST(all_calls_fail_from_one_on)
{
	sweep_calls(0, 3, true, CLV_OK);
}
END_TEST

/* One kind of call never works. */
START_TEST(a_kind_of_call_fails)
{
	for (int call = 0; call < CLV_CALL_COUNT; call++)
		for (size_t s = 0; s < 2 * CLV_ARRAY_LEN(scenarios); s++) {
			open_rig((uint64_t)call, all_settings[s % 2]);
			struct clv_fault_config c = {.seed = 1};
			c.chance_per_million[call] = 1000000;
			clv_fault_set(r.fault, &c);
			scenarios[s / 2]();
			close_rig();
		}
}
END_TEST

START_TEST(calls_fail_by_chance)
{
	for (uint64_t seed = 0; seed < 24; seed++) {
		rig_open(&r, &(struct rig_config){.seed = 300 + seed, .settings = all_settings[seed % 2], .capacity = 96 * CLV_MIB,
						  .streams = 1 + (unsigned)seed % 5, .manual = seed % 3 != 0, .check_every = 3,
						  .backing = seed % 6 == 5, .faults_expected = true});
		struct clv_fault_config c = {.seed = seed};
		for (int call = 0; call < CLV_CALL_COUNT; call++)
			c.chance_per_million[call] = seed % 4 == 0 ? 300000 : 30000;
		clv_fault_set(r.fault, &c);
		uint64_t steps = r.config.backing ? 150 : 500;
		while (r.step < steps)
			rig_step(&r, 48 * CLV_MIB + r.step % 100 * CLV_MIB);
		ck_assert_uint_gt(clv_fault_injected(r.fault), 0);
		close_rig();
	}
}
END_TEST

START_TEST(each_host_allocation_fails)
{
	uint64_t before = clv_meta_bytes();
	for (size_t s = 0; s < 2 * CLV_ARRAY_LEN(scenarios); s++)
		for (uint64_t k = 1; k < 60; k++) {
			open_rig(k, all_settings[s % 2]);
			clv_meta_fail_after(k);
			scenarios[s / 2]();
			close_rig();
			ck_assert_uint_eq(clv_meta_bytes(), before);
		}
}
END_TEST

/* Host memory comes and goes while the heap works. */
START_TEST(host_memory_fails_by_chance)
{
	for (uint64_t seed = 0; seed < 12; seed++) {
		rig_open(&r, &(struct rig_config){.seed = 400 + seed, .settings = all_settings[seed % 2], .capacity = 96 * CLV_MIB,
						  .streams = 1 + (unsigned)seed % 5, .manual = seed % 3 != 0, .check_every = 3,
						  .faults_expected = true});
		while (r.step < 600) {
			clv_meta_fail_after(clv_rng_below(&r.rng, 3));
			rig_step(&r, 48 * CLV_MIB + r.step % 100 * CLV_MIB);
		}
		close_rig();
	}
}
END_TEST

START_TEST(opening_fails)
{
	uint64_t before = clv_meta_bytes();
	struct clv_driver *sim = clv_sim_open(&(struct clv_sim_config){.capacity = 64 * CLV_MIB});
	bool opened = false;
	for (uint64_t k = 1; !opened; k++) {
		ck_assert_uint_lt(k, 40);
		cleave_heap *heap = NULL;
		cleave_ptr p;
		clv_meta_fail_after(k);
		int answer = cleave_heap_open(&heap, sim, NULL, NULL, 0);
		ck_assert(answer == 0 || answer == -ENOSPC);
		if (answer == 0) {
			answer = cleave_alloc(heap, 0, (cleave_stream){1, 1}, 4096, &p);
			opened = answer == 0;
			ck_assert_msg(answer == 0 || answer == -ENOSPC, "allocation %" PRIu64 " failed: %d", k, answer);
			ck_assert_int_eq(cleave_heap_check(heap, NULL, 0), 0);
			clv_meta_fail_after(0);
			if (!opened)
				ck_assert_int_eq(cleave_alloc(heap, 0, (cleave_stream){1, 1}, 4096, &p), 0);
			cleave_heap_close(heap);
		}
		clv_meta_fail_after(0);
		ck_assert_ptr_null(clv_sim_leaks(sim));
		ck_assert_uint_eq(clv_meta_bytes(), before);
	}
	sim->close(sim);
}
END_TEST

CHECK_MAIN("heap_faults", each_call_fails_once, each_call_fails_otherwise, all_calls_fail_from_one_on, a_kind_of_call_fails,
	   calls_fail_by_chance, each_host_allocation_fails, host_memory_fails_by_chance, opening_fails)
