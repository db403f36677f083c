/* SPDX-License-Identifier: MIT */
#include "../src/driver/ledger.h"
#include "../src/driver/sim.h"
#include "check_main.h"

#include <pthread.h>

#define G (2 * CLV_MIB)

static struct clv_driver *sim, *l;

static void start(void)
{
	sim = clv_sim_open(&(struct clv_sim_config){.devices = 3, .capacity = 64 * G});
	l = clv_ledger_open(sim, 2, 8 * G);
	ck_assert(sim && l);
}

static void finish(void)
{
	ck_assert_ptr_null(clv_ledger_leaks(l));
	l->close(l);
	ck_assert_ptr_null(clv_sim_leaks(sim));
	sim->close(sim);
}

static uint64_t left(int device)
{
	uint64_t bytes = 0, total = 0;
	ck_assert_int_eq(l->mem_get_info(l, device, &bytes, &total), CLV_OK);
	ck_assert_uint_eq(total, 8 * G);
	return bytes;
}

START_TEST(it_gives_so_much_and_no_more)
{
	clv_handle a, b, c;
	struct clv_device_info info;
	start();
	ck_assert_int_eq(l->devices, 2);
	ck_assert_int_eq(l->device_info(l, 1, &info), CLV_OK);
	ck_assert_uint_eq(info.total, 8 * G);
	ck_assert_int_eq(l->device_info(l, 2, &info), CLV_INVALID);
	ck_assert_int_eq(l->create(l, &a, 5 * G, 0), CLV_OK);
	ck_assert_int_eq(l->create(l, &b, 4 * G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(l->create(l, &b, 4 * G, 1), CLV_OK);
	ck_assert_int_eq(l->create(l, &c, G, 2), CLV_INVALID);
	ck_assert_uint_eq(left(0), 3 * G);
	ck_assert_uint_eq(left(1), 4 * G);
	ck_assert_uint_eq(clv_ledger_used(l, 0), 5 * G);
	ck_assert_str_eq(clv_ledger_leaks(l), "frame");
	clv_ledger_set_foreign(l, 0, 2 * G);
	ck_assert_uint_eq(left(0), G);
	clv_ledger_set_foreign(l, 0, 100 * G); /* what is free */
	ck_assert_uint_eq(left(0), 0);
	ck_assert_int_eq(l->create(l, &c, G, 0), CLV_OUT_OF_MEMORY);
	clv_ledger_set_foreign(l, 0, 0);
	ck_assert_int_eq(l->create(l, &c, 3 * G, 0), CLV_OK);
	/* what the driver refuses is not in use */
	ck_assert_int_eq(l->create(l, &c, G / 2, 1), CLV_INVALID);
	ck_assert_uint_eq(left(1), 4 * G);
	ck_assert_int_ne(l->release(l, 12345), CLV_OK);
	ck_assert_int_eq(l->release(l, a), CLV_OK);
	ck_assert_uint_eq(left(0), 5 * G);
	ck_assert_int_eq(l->release(l, b), CLV_OK);
	ck_assert_int_eq(l->release(l, c), CLV_OK);
	ck_assert_uint_eq(left(0) + left(1), 16 * G);
	struct clv_call_counts counts;
	l->counts(l, &counts);
	ck_assert_uint_eq(counts.calls[CLV_CALL_mem_get_info], 8);
	ck_assert_uint_eq(counts.calls[CLV_CALL_release], 4);
	finish();
}
END_TEST

START_TEST(without_a_capacity_it_gives_what_there_is)
{
	uint64_t bytes = 0, total = 0;
	clv_handle h;
	sim = clv_sim_open(&(struct clv_sim_config){.capacity = 4 * G});
	l = clv_ledger_open(sim, 1, 0);
	ck_assert(sim && l);
	ck_assert_int_eq(l->create(l, &h, 3 * G, 0), CLV_OK);
	ck_assert_int_eq(l->mem_get_info(l, 0, &bytes, &total), CLV_OK);
	ck_assert_uint_eq(bytes, G);
	ck_assert_uint_eq(total, 4 * G);
	ck_assert_int_eq(l->release(l, h), CLV_OK);
	/* the driver's time, or one's own */
	clv_sim_set_time(sim, 5000);
	ck_assert_uint_ge(l->now_ns(l), 5000);
	clv_ledger_set_time(l, 77);
	ck_assert_uint_eq(l->now_ns(l), 77);
	finish();
}
END_TEST

START_TEST(what_is_left_over_is_named)
{
	uint64_t addr;
	clv_event e;
	clv_handle h;
	start();
	ck_assert_int_eq(l->address_reserve(l, &addr, 4 * G, G), CLV_OK);
	ck_assert_str_eq(clv_ledger_leaks(l), "address range");
	ck_assert_int_eq(l->create(l, &h, G, 0), CLV_OK);
	ck_assert_int_eq(l->map(l, addr, G, 0, h), CLV_OK);
	ck_assert_int_eq(l->set_access(l, addr, G, 0), CLV_OK);
	ck_assert_int_eq(l->unmap(l, addr, G), CLV_OK);
	ck_assert_int_eq(l->release(l, h), CLV_OK);
	ck_assert_int_eq(l->address_free(l, addr, 4 * G), CLV_OK);
	ck_assert_int_eq(l->event_create(l, &e, 1), CLV_OK);
	ck_assert_str_eq(clv_ledger_leaks(l), "event");
	ck_assert_int_eq(l->event_record(l, e, (cleave_stream){1, 1}), CLV_OK);
	ck_assert_int_eq(l->stream_wait_event(l, (cleave_stream){2, 2}, e), CLV_OK);
	ck_assert_int_eq(l->event_synchronize(l, e), CLV_OK);
	ck_assert_int_eq(l->event_query(l, e), CLV_OK);
	ck_assert_int_eq(l->stream_synchronize(l, (cleave_stream){2, 2}), CLV_OK);
	ck_assert_int_eq(l->event_destroy(l, e), CLV_OK);
	finish();
}
END_TEST

static void *churn(void *arg)
{
	clv_handle h[4];
	for (int i = 0; i < 500; i++) {
		int n = 0;
		while (n < 4 && l->create(l, &h[n], G * (uint64_t)(1 + (i + n) % 3), 0) == CLV_OK)
			n++;
		if (clv_ledger_used(l, 0) > 8 * G)
			return arg;
		while (n)
			if (l->release(l, h[--n]) != CLV_OK)
				return arg;
	}
	return NULL;
}

START_TEST(threads_share_it)
{
	pthread_t threads[3];
	start();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, &threads), 0);
	for (int i = 0; i < 3; i++) {
		void *failed;
		pthread_join(threads[i], &failed);
		ck_assert_ptr_null(failed);
	}
	ck_assert_uint_eq(clv_ledger_used(l, 0), 0);
	finish();
}
END_TEST

CHECK_MAIN("ledger", it_gives_so_much_and_no_more, without_a_capacity_it_gives_what_there_is,
	   what_is_left_over_is_named, threads_share_it)
