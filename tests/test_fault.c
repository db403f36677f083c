/* SPDX-License-Identifier: MIT */
#include "../src/driver/fault.h"
#include "../src/driver/sim.h"
#include "check_main.h"

#include <string.h>

#define G (2 * CLV_MIB)
#define CALLS 17

static struct clv_driver *sim, *fault;

static void setup_drivers(const struct clv_fault_config *config)
{
	sim = clv_sim_open(&(struct clv_sim_config){.devices = 2});
	ck_assert_ptr_nonnull(sim);
	fault = clv_fault_open(sim, config);
	ck_assert_ptr_nonnull(fault);
}

static void teardown_drivers(void)
{
	fault->close(fault);
	ck_assert_ptr_null(clv_sim_leaks(sim)); /* still open: the wrapper does not own it */
	sim->close(sim);
}

/* Every call of the table once, in an order that makes sense; results in the order of enum clv_call. What failed is
 * undone through the inner driver. */
static void every_call(struct clv_driver *d, enum clv_result r[CALLS])
{
	uint64_t a = 0, p = 0, free_bytes, total;
	clv_handle h = 0;
	clv_event e = 0;
	cleave_stream s = {1, 1};
	r[CLV_CALL_mem_get_info] = d->mem_get_info(d, 1, &free_bytes, &total);
	if ((r[CLV_CALL_address_reserve] = d->address_reserve(d, &a, 4 * G, 0)) != CLV_OK)
		ck_assert_int_eq(sim->address_reserve(sim, &a, 4 * G, 0), CLV_OK);
	if ((r[CLV_CALL_create] = d->create(d, &h, G, 1)) != CLV_OK)
		ck_assert_int_eq(sim->create(sim, &h, G, 1), CLV_OK);
	if ((r[CLV_CALL_map] = d->map(d, a + G, G, 0, h)) != CLV_OK)
		ck_assert_int_eq(sim->map(sim, a + G, G, 0, h), CLV_OK);
	r[CLV_CALL_set_access] = d->set_access(d, a + G, G, 1);
	if ((r[CLV_CALL_unmap] = d->unmap(d, a + G, G)) != CLV_OK)
		ck_assert_int_eq(sim->unmap(sim, a + G, G), CLV_OK);
	if ((r[CLV_CALL_release] = d->release(d, h)) != CLV_OK)
		ck_assert_int_eq(sim->release(sim, h), CLV_OK);
	if ((r[CLV_CALL_address_free] = d->address_free(d, a, 4 * G)) != CLV_OK)
		ck_assert_int_eq(sim->address_free(sim, a, 4 * G), CLV_OK);
	if ((r[CLV_CALL_mem_alloc] = d->mem_alloc(d, &p, 512, 1)) != CLV_OK)
		ck_assert_int_eq(sim->mem_alloc(sim, &p, 512, 1), CLV_OK);
	if ((r[CLV_CALL_mem_free] = d->mem_free(d, p)) != CLV_OK)
		ck_assert_int_eq(sim->mem_free(sim, p), CLV_OK);
	if ((r[CLV_CALL_event_create] = d->event_create(d, &e, 1)) != CLV_OK)
		ck_assert_int_eq(sim->event_create(sim, &e, 1), CLV_OK);
	r[CLV_CALL_event_record] = d->event_record(d, e, s);
	r[CLV_CALL_event_query] = d->event_query(d, e);
	r[CLV_CALL_event_synchronize] = d->event_synchronize(d, e);
	r[CLV_CALL_stream_wait_event] = d->stream_wait_event(d, s, e);
	r[CLV_CALL_stream_synchronize] = d->stream_synchronize(d, s);
	if ((r[CLV_CALL_event_destroy] = d->event_destroy(d, e)) != CLV_OK)
		ck_assert_int_eq(sim->event_destroy(sim, e), CLV_OK);
}

_Static_assert(CLV_CALL_COUNT == CALLS, "every_call makes each call");

START_TEST(passes_through)
{
	for (int i = 0; i < 2; i++) {
		setup_drivers(i ? &(struct clv_fault_config){0} : NULL);
		ck_assert_str_eq(fault->name, "fault");
		ck_assert_int_eq(fault->devices, 2);
		enum clv_result r[CALLS];
		every_call(fault, r);
		struct clv_call_counts inner, outer;
		for (int call = 0; call < CALLS; call++)
			ck_assert_msg(r[call] == CLV_OK, "%s", clv_call_name(call));
		sim->counts(sim, &inner);
		fault->counts(fault, &outer);
		ck_assert_int_eq(memcmp(&inner, &outer, sizeof(inner)), 0);
		for (int call = 0; call < CALLS; call++)
			ck_assert_uint_eq(inner.calls[call], 1);
		ck_assert_uint_eq(fault->now_ns(fault), sim->now_ns(sim));
		ck_assert_uint_gt(fault->now_ns(fault), 0);
		struct clv_device_info info;
		ck_assert_int_eq(fault->device_info(fault, 1, &info), CLV_OK);
		ck_assert_uint_eq(info.total, 139 * CLV_GIB);
		ck_assert_int_eq(fault->device_info(fault, 2, &info), CLV_INVALID);
		ck_assert_uint_eq(clv_fault_seen(fault), CALLS);
		ck_assert_uint_eq(clv_fault_injected(fault), 0);
		teardown_drivers();
	}
}
END_TEST

START_TEST(sweep)
{
	static const bool runs_out[CALLS] = {[CLV_CALL_create] = true,
					     [CLV_CALL_mem_alloc] = true,
					     [CLV_CALL_address_reserve] = true,
					     [CLV_CALL_map] = true,
					     [CLV_CALL_set_access] = true};
	uint32_t failed[CALLS] = {0};
	enum clv_result r[CALLS];
	for (uint64_t n = 1; n <= CALLS; n++) {
		setup_drivers(&(struct clv_fault_config){.fail_at = n});
		every_call(fault, r);
		int failures = 0;
		for (int call = 0; call < CALLS; call++) {
			if (r[call] == CLV_OK)
				continue;
			ck_assert_int_eq(r[call], runs_out[call] ? CLV_OUT_OF_MEMORY : CLV_FAILED);
			failures++;
			failed[call]++;
		}
		ck_assert_int_eq(failures, 1);
		ck_assert_uint_eq(clv_fault_injected(fault), 1);
		ck_assert_uint_eq(clv_fault_seen(fault), CALLS);
		every_call(fault, r); /* only once */
		ck_assert_uint_eq(clv_fault_injected(fault), 1);
		teardown_drivers();
	}
	for (int call = 0; call < CALLS; call++) /* each had its turn */
		ck_assert_uint_eq(failed[call], 1);

	setup_drivers(&(struct clv_fault_config){.fail_at = 5, .fail_after = true, .result = CLV_GONE});
	every_call(fault, r);
	ck_assert_uint_eq(clv_fault_injected(fault), CALLS - 4);
	ck_assert_int_eq(r[CLV_CALL_event_query], CLV_GONE);
	/* a new configuration counts anew */
	clv_fault_set(fault, &(struct clv_fault_config){.fail_at = 1});
	ck_assert_uint_eq(clv_fault_seen(fault), 0);
	ck_assert_int_eq(fault->mem_get_info(fault, 0, NULL, NULL), CLV_FAILED);
	ck_assert_int_eq(fault->mem_get_info(fault, 0, NULL, NULL), CLV_OK);
	clv_fault_set(fault, NULL);
	ck_assert_int_eq(fault->mem_get_info(fault, 0, NULL, NULL), CLV_OK);
	teardown_drivers();
}
END_TEST

START_TEST(only_eligible_calls_count)
{
	setup_drivers(&(struct clv_fault_config){.fail_at = 2,
						 .eligible = {[CLV_CALL_create] = true, [CLV_CALL_map] = true}});
	enum clv_result r[CALLS];
	every_call(fault, r);
	ck_assert_uint_eq(clv_fault_seen(fault), 2);
	for (int call = 0; call < CALLS; call++)
		ck_assert_int_eq(r[call], call == CLV_CALL_map ? CLV_OUT_OF_MEMORY : CLV_OK);
	teardown_drivers();
}
END_TEST

/* A failed call never reaches the device. */
START_TEST(fails_before_the_device)
{
	setup_drivers(&(struct clv_fault_config){.fail_at = 1, .fail_after = true});
	clv_handle h = 77;
	ck_assert_int_eq(fault->create(fault, &h, G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_uint_eq(h, 77);
	ck_assert_uint_eq(clv_sim_used_peak(sim, 0), 0);
	struct clv_call_counts c;
	fault->counts(fault, &c);
	ck_assert_uint_eq(c.calls[CLV_CALL_create], 0);
	teardown_drivers();
}
END_TEST

START_TEST(pause)
{
	setup_drivers(&(struct clv_fault_config){.fail_at = 1, .fail_after = true});
	enum clv_result r[CALLS];
	clv_fault_pause(fault, true);
	every_call(fault, r);
	ck_assert_uint_eq(clv_fault_seen(fault), 0);
	ck_assert_uint_eq(clv_fault_injected(fault), 0);
	clv_fault_pause(fault, false);
	every_call(fault, r);
	ck_assert_uint_eq(clv_fault_injected(fault), CALLS);
	teardown_drivers();
}
END_TEST

/* 5 % of 20,000: within six standard deviations; the same seed gives the same failures. */
START_TEST(chance)
{
	enum { TRIES = 20000 };
	static bool first[TRIES];
	uint64_t different = 0;
	for (int round = 0; round < 3; round++) {
		struct clv_fault_config config = {.seed = round == 2 ? 9 : 8};
		config.chance_per_million[CLV_CALL_event_query] = 50000;
		setup_drivers(&config);
		clv_event e;
		ck_assert_int_eq(fault->event_create(fault, &e, 0), CLV_OK);
		uint64_t failures = 0;
		for (int i = 0; i < TRIES; i++) {
			bool failed = fault->event_query(fault, e) == CLV_FAILED;
			failures += failed;
			if (round == 0)
				first[i] = failed;
			else if (round == 1)
				ck_assert_int_eq(first[i], failed);
			else
				different += first[i] != failed;
		}
		ck_assert_uint_eq(clv_fault_injected(fault), failures);
		ck_assert_uint_ge(failures, 1000 - 185);
		ck_assert_uint_le(failures, 1000 + 185);
		ck_assert_int_eq(fault->event_destroy(fault, e), CLV_OK);
		teardown_drivers();
	}
	ck_assert_uint_gt(different, 1000);
}
END_TEST

CHECK_MAIN("fault", passes_through, sweep, only_eligible_calls_count, fails_before_the_device, pause, chance)
