/* SPDX-License-Identifier: MIT
 *
 * The simulated device's streams: when events complete, and in which order work runs.
 */
#include "../src/driver/sim.h"
#include "check_main.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define US 1000ull

static struct clv_driver *d;
static const cleave_stream A = {1, 100}, B = {2, 200}, C = {3, 300};

/* What ran, in order. */
static char ran[4096];
static size_t ran_count;

static void note(void *arg)
{
	ran[ran_count++] = *(const char *)arg;
	ran[ran_count] = 0;
}

static void open_sim(struct clv_sim_config config)
{
	d = clv_sim_open(&config);
	ck_assert_ptr_nonnull(d);
	ran_count = 0;
	ran[0] = 0;
}

static void launch(cleave_stream s, uint64_t ns, const char *name)
{
	ck_assert_int_eq(clv_sim_launch(d, s, ns, name ? note : NULL, (void *)name), CLV_OK);
}

static clv_event recorded(cleave_stream s)
{
	clv_event e;
	ck_assert_int_eq(d->event_create(d, &e, 0), CLV_OK);
	ck_assert_int_eq(d->event_record(d, e, s), CLV_OK);
	return e;
}

static void wait_for(cleave_stream s, clv_event e)
{
	ck_assert_int_eq(d->stream_wait_event(d, s, e), CLV_OK);
}

static bool complete(clv_event e)
{
	enum clv_result r = d->event_query(d, e);
	ck_assert(r == CLV_OK || r == CLV_NOT_READY);
	return r == CLV_OK;
}

START_TEST(bad_arguments)
{
	for (int manual = 0; manual < 2; manual++) {
		open_sim((struct clv_sim_config){.manual = manual});
		clv_event e, never = 0;
		ck_assert_int_eq(d->event_create(d, NULL, 0), CLV_INVALID);
		ck_assert_int_eq(d->event_create(d, &e, 1), CLV_INVALID);
		ck_assert_int_eq(d->event_create(d, &e, 0), CLV_OK);
		static const clv_event wrong[] = {0, 2, 64, 65, UINT64_MAX, 1ull << 32 | 1};
		for (size_t i = 0; i < CLV_ARRAY_LEN(wrong); i++) {
			ck_assert_int_eq(d->event_query(d, wrong[i]), CLV_INVALID);
			ck_assert_int_eq(d->event_record(d, wrong[i], A), CLV_INVALID);
			ck_assert_int_eq(d->event_synchronize(d, wrong[i]), CLV_INVALID);
			ck_assert_int_eq(d->event_destroy(d, wrong[i]), CLV_INVALID);
			ck_assert_int_eq(d->stream_wait_event(d, A, wrong[i]), CLV_INVALID);
		}
		ck_assert_int_eq(d->event_record(d, e, CLEAVE_STREAM_ANY), CLV_INVALID);
		ck_assert_int_eq(d->stream_wait_event(d, CLEAVE_STREAM_ANY, e), CLV_INVALID);
		ck_assert_int_eq(d->stream_synchronize(d, CLEAVE_STREAM_ANY), CLV_INVALID);
		ck_assert_int_eq(clv_sim_launch(d, CLEAVE_STREAM_ANY, 1, NULL, NULL), CLV_INVALID);
		clv_sim_complete(d, CLEAVE_STREAM_ANY);
		clv_sim_complete(d, C); /* never seen before */
		ck_assert_int_eq(d->stream_synchronize(d, B), CLV_OK);

		/* what was never recorded is complete, and nobody waits for it */
		ck_assert(complete(e));
		ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
		wait_for(A, e);
		ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
		ck_assert_int_eq(d->event_query(d, e), CLV_INVALID);
		ck_assert_int_eq(d->event_destroy(d, e), CLV_INVALID);
		/* the next one in its place is another */
		ck_assert_int_eq(d->event_create(d, &never, 0), CLV_OK);
		ck_assert_uint_ne(never, e);
		ck_assert_int_eq(d->event_query(d, e), CLV_INVALID);
		ck_assert_str_eq(clv_sim_leaks(d), "event");
		/* and has no part in what the former one stood for */
		launch(A, 1000000 * US, NULL);
		ck_assert_int_eq(d->event_record(d, never, A), CLV_OK);
		ck_assert(!complete(never));
		ck_assert_int_eq(d->event_destroy(d, never), CLV_OK);
		ck_assert_int_eq(d->event_create(d, &never, 0), CLV_OK);
		ck_assert(complete(never));
		ck_assert_int_eq(d->event_destroy(d, never), CLV_OK);
		ck_assert_ptr_null(clv_sim_leaks(d));
		d->close(d);
	}
}
END_TEST

START_TEST(events_complete_by_the_clock)
{
	open_sim((struct clv_sim_config){.clock_free = true});
	clv_event idle = recorded(A);
	ck_assert(complete(idle));
	launch(A, 10 * US, "a");
	clv_event first = recorded(A);
	launch(A, 10 * US, "b");
	clv_event second = recorded(A);
	clv_event other = recorded(B);
	ck_assert(complete(other));
	ck_assert(!complete(first));
	clv_sim_set_time(d, 10 * US - 1);
	ck_assert(!complete(first));
	ck_assert_str_eq(ran, "");
	clv_sim_set_time(d, 10 * US);
	ck_assert(complete(first));
	ck_assert(!complete(second));
	ck_assert_str_eq(ran, "a");
	clv_sim_advance(d, 10 * US);
	ck_assert(complete(second));
	ck_assert_str_eq(ran, "ab");

	/* recorded again, it stands for what is before it now */
	launch(A, 5 * US, "c");
	ck_assert_int_eq(d->event_record(d, first, A), CLV_OK);
	ck_assert(!complete(first));
	clv_sim_advance(d, 5 * US);
	ck_assert(complete(first));
	/* on an idle stream work begins now, not at the end of the last */
	clv_sim_advance(d, 100 * US);
	launch(A, 5 * US, "d");
	ck_assert_int_eq(d->event_record(d, first, A), CLV_OK);
	clv_sim_advance(d, 5 * US - 1);
	ck_assert(!complete(first));
	clv_sim_advance(d, 1);
	ck_assert(complete(first));
	ck_assert_str_eq(ran, "abcd");
	d->close(d);
}
END_TEST

START_TEST(events_lag)
{
	open_sim((struct clv_sim_config){.clock_free = true, .event_lag_ns = 1000 * US});
	clv_event e = recorded(A);
	clv_sim_set_time(d, 400 * US);
	clv_event f = recorded(A);
	launch(B, 2000 * US, NULL);
	clv_event g = recorded(B); /* the work before it takes longer than the lag */
	clv_sim_set_time(d, 1000 * US - 1);
	ck_assert(!complete(e));
	clv_sim_set_time(d, 1000 * US);
	ck_assert(complete(e));
	ck_assert(!complete(f));
	clv_sim_set_time(d, 1400 * US);
	ck_assert(complete(f));
	clv_sim_set_time(d, 2400 * US - 1);
	ck_assert(!complete(g));
	clv_sim_set_time(d, 2400 * US);
	ck_assert(complete(g));
	/* a synchronize waits the lag out */
	ck_assert_int_eq(d->event_record(d, e, A), CLV_OK);
	ck_assert(!complete(e));
	ck_assert_int_eq(d->stream_synchronize(d, A), CLV_OK);
	ck_assert_uint_eq(d->now_ns(d), 3400 * US);
	ck_assert(complete(e));
	ck_assert_int_eq(d->event_record(d, e, A), CLV_OK);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_uint_eq(d->now_ns(d), 4400 * US);
	d->close(d);
}
END_TEST

START_TEST(waiting_moves_the_clock)
{
	open_sim((struct clv_sim_config){0});
	launch(A, 50000 * US, "a");
	launch(B, 20000 * US, "b");
	uint64_t start = d->now_ns(d);
	ck_assert_uint_eq(start, 0); /* launching is the program's own affair */
	clv_event e = recorded(B);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_uint_eq(d->now_ns(d), 20000 * US);
	ck_assert_str_eq(ran, "b");
	struct clv_call_counts c;
	d->counts(d, &c);
	ck_assert_uint_lt(c.ns, 10 * US); /* waiting is no cost of the call */
	ck_assert_int_eq(d->stream_synchronize(d, B), CLV_OK);
	ck_assert_uint_lt(d->now_ns(d), 20010 * US);
	ck_assert_int_eq(d->stream_synchronize(d, A), CLV_OK);
	ck_assert_uint_eq(d->now_ns(d), 50000 * US);
	ck_assert_str_eq(ran, "ba");
	/* the time that calls take goes by, too */
	launch(A, 6 * US, "c");
	e = recorded(A);
	ck_assert(!complete(e));
	ck_assert_int_eq(d->mem_get_info(d, 0, NULL, NULL), CLV_OK);
	ck_assert_str_eq(ran, "bac");
	ck_assert(complete(e));
	d->close(d);
}
END_TEST

START_TEST(mem_free_waits_for_the_device)
{
	for (int manual = 0; manual < 2; manual++) {
		open_sim((struct clv_sim_config){.manual = manual});
		uint64_t p;
		ck_assert_int_eq(d->mem_alloc(d, &p, 1 << 20, 0), CLV_OK);
		launch(A, 202000 * US, "a");
		launch(B, 100 * US, "b");
		clv_event e = recorded(A);
		ck_assert_int_eq(d->mem_free(d, 12345), CLV_INVALID); /* at once */
		ck_assert_int_lt(d->now_ns(d), 1000 * US);
		ck_assert_int_eq(d->mem_free(d, p), CLV_OK);
		ck_assert_int_ge(d->now_ns(d), 202000 * US);
		ck_assert(complete(e));
		ck_assert_uint_eq(ran_count, 2);
		d->close(d);
	}
}
END_TEST

/* Memory that returns through unmap and release does not wait, as measured. */
START_TEST(vmm_does_not_wait)
{
	open_sim((struct clv_sim_config){0});
	launch(A, 202000 * US, "a");
	uint64_t a, size = 2 << 20;
	clv_handle h;
	ck_assert_int_eq(d->address_reserve(d, &a, size, 0), CLV_OK);
	ck_assert_int_eq(d->create(d, &h, size, 0), CLV_OK);
	ck_assert_int_eq(d->map(d, a, size, 0, h), CLV_OK);
	ck_assert_int_eq(d->set_access(d, a, size, 0), CLV_OK);
	ck_assert_int_eq(d->unmap(d, a, size), CLV_OK);
	ck_assert_int_eq(d->release(d, h), CLV_OK);
	ck_assert_int_eq(d->address_free(d, a, size), CLV_OK);
	ck_assert_uint_lt(d->now_ns(d), 200 * US);
	ck_assert_str_eq(ran, "");
	d->close(d);
}
END_TEST

START_TEST(streams_wait_for_events)
{
	open_sim((struct clv_sim_config){.clock_free = true});
	launch(A, 100 * US, "a");
	clv_event e = recorded(A);
	launch(B, 10 * US, "b");
	wait_for(B, e);
	launch(B, 10 * US, "c");
	clv_event f = recorded(B);
	wait_for(C, f);
	launch(C, 0, "d");
	/* a wait holds the record it saw: neither a new record nor the end of the event changes it */
	ck_assert_int_eq(d->event_record(d, e, C), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, f), CLV_OK);
	clv_sim_set_time(d, 50 * US);
	ck_assert_str_eq(ran, "b");
	clv_sim_set_time(d, 109 * US);
	ck_assert_str_eq(ran, "ba");
	ck_assert(!complete(e));
	clv_sim_set_time(d, 110 * US);
	ck_assert_str_eq(ran, "bacd");
	ck_assert(complete(e));
	d->close(d);
}
END_TEST

START_TEST(equal_times_keep_their_order)
{
	open_sim((struct clv_sim_config){.clock_free = true});
	static const char names[] = "abcdefghijklmnopqrstuvwxyz";
	for (int i = 0; i < 26; i++) {
		cleave_stream s = {(uint64_t)i % 5, 0};
		launch(s, 0, &names[i]);
		wait_for((cleave_stream){(uint64_t)(i + 1) % 5, 0}, recorded(s));
	}
	clv_sim_set_time(d, 1);
	ck_assert_str_eq(ran, names);
	d->close(d);
}
END_TEST

START_TEST(manual_mode_completes_when_told)
{
	open_sim((struct clv_sim_config){.manual = true});
	clv_event idle = recorded(A);
	ck_assert(!complete(idle)); /* also with nothing before it: the test decides */
	launch(A, 10, "a");
	clv_event e = recorded(A);
	launch(A, 10, "b");
	clv_sim_advance(d, 1000000 * US);
	ck_assert(!complete(idle));
	ck_assert(!complete(e));
	ck_assert_str_eq(ran, "");
	/* up to the event, no further */
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_str_eq(ran, "a");
	ck_assert(complete(idle));
	ck_assert(complete(e));
	clv_sim_complete(d, A);
	ck_assert_str_eq(ran, "ab");
	launch(A, 10, "c");
	ck_assert_int_eq(d->stream_synchronize(d, A), CLV_OK);
	ck_assert_str_eq(ran, "abc");
	d->close(d);
}
END_TEST

START_TEST(manual_mode_completes_what_is_waited_for)
{
	open_sim((struct clv_sim_config){.manual = true});
	launch(A, 0, "a");
	clv_event e = recorded(A);
	launch(A, 0, "b");
	wait_for(B, e);
	launch(B, 0, "c");
	clv_event f = recorded(B);
	launch(B, 0, "d");
	wait_for(C, f);
	launch(C, 0, "e");
	clv_event g = recorded(C);
	ck_assert(!complete(g));
	clv_sim_complete(d, C);
	ck_assert_str_eq(ran, "ace");
	ck_assert(complete(e));
	ck_assert(complete(g));
	clv_sim_complete(d, B);
	clv_sim_complete(d, A);
	ck_assert_str_eq(ran, "acedb");
	/* a wait for what is complete is none */
	wait_for(B, e);
	launch(B, 0, "f");
	clv_sim_complete(d, B);
	ck_assert_str_eq(ran, "acedbf");
	d->close(d);
}
END_TEST

/* Random work on random streams with random waits. Each piece notes when it ran; what it depends on ran before. */
struct piece {
	uint32_t stream, index;
	uint32_t after[16]; /* of each stream: so many pieces must have run */
	bool run;
};

static struct piece *pieces;
static uint32_t run_on[16];
static uint32_t out_of_order;

static void run_piece(void *arg)
{
	struct piece *p = arg;
	out_of_order += p->run || run_on[p->stream] != p->index;
	for (int i = 0; i < 16; i++)
		out_of_order += run_on[i] < p->after[i];
	run_on[p->stream]++;
	p->run = true;
}

static void random_work(bool manual, uint64_t seed)
{
	enum { STREAMS = 16, PIECES = 3000, EVENTS = 64 };
	struct clv_rng rng = {seed};
	struct {
		clv_event e;
		uint32_t after[STREAMS];
		bool set;
	} events[EVENTS] = {0};
	uint32_t launched[STREAMS] = {0}, needs[STREAMS][STREAMS] = {0};
	pieces = calloc(PIECES, sizeof(*pieces));
	memset(run_on, 0, sizeof(run_on));
	out_of_order = 0;
	open_sim((struct clv_sim_config){
		.manual = manual, .event_lag_ns = clv_rng_below(&rng, 2) * 100, .clock_free = true});
	for (int n = 0; n < PIECES;) {
		uint32_t s = (uint32_t)clv_rng_below(&rng, STREAMS), k = (uint32_t)clv_rng_below(&rng, EVENTS);
		cleave_stream stream = {s, 0};
		switch (clv_rng_below(&rng, 8)) {
		default: {
			struct piece *p = &pieces[n++];
			p->stream = s;
			p->index = launched[s]++;
			memcpy(p->after, needs[s], sizeof(needs[s]));
			ck_assert_int_eq(clv_sim_launch(d, stream, clv_rng_below(&rng, 50), run_piece, p), CLV_OK);
			break;
		}
		case 0:
			if (!events[k].set)
				ck_assert_int_eq(d->event_create(d, &events[k].e, 0), CLV_OK);
			ck_assert_int_eq(d->event_record(d, events[k].e, stream), CLV_OK);
			memcpy(events[k].after, needs[s], sizeof(needs[s]));
			events[k].after[s] = launched[s];
			events[k].set = true;
			break;
		case 1:
			if (!events[k].set)
				break;
			wait_for(stream, events[k].e);
			for (int i = 0; i < STREAMS; i++)
				if (needs[s][i] < events[k].after[i])
					needs[s][i] = events[k].after[i];
			break;
		case 2:
			if (manual && clv_rng_below(&rng, 8) == 0)
				clv_sim_complete(d, stream);
			else if (!manual)
				clv_sim_advance(d, clv_rng_below(&rng, 20));
			break;
		case 3:
			/* an event that is complete has everything before it behind it */
			if (events[k].set && complete(events[k].e))
				for (int i = 0; i < STREAMS; i++)
					ck_assert_uint_ge(run_on[i], events[k].after[i]);
		}
	}
	for (uint32_t s = 0; s < STREAMS; s++) {
		ck_assert_int_eq(d->stream_synchronize(d, (cleave_stream){s, 0}), CLV_OK);
		ck_assert_uint_eq(run_on[s], launched[s]);
	}
	ck_assert_uint_eq(out_of_order, 0);
	d->close(d);
	free(pieces);
}

START_TEST(random_work_by_the_clock)
{
	for (uint64_t seed = 1; seed <= 20; seed++)
		random_work(false, seed);
}
END_TEST

START_TEST(random_work_manually)
{
	for (uint64_t seed = 1; seed <= 20; seed++)
		random_work(true, seed);
}
END_TEST

/* A callback may use the driver, but not wait. */
static enum clv_result inside[5];
static clv_event inside_event;

static void use_the_driver(void *arg)
{
	uint64_t p;
	inside[0] = d->mem_get_info(d, 0, NULL, NULL);
	inside[1] = d->stream_synchronize(d, A);
	inside[2] = d->event_synchronize(d, inside_event);
	inside[3] = d->mem_alloc(d, &p, 512, 0);
	inside[4] = d->mem_free(d, p);
	clv_sim_advance(d, 5 * US);
	clv_sim_complete(d, A);
	launch(A, 0, "z");
}

START_TEST(callbacks_use_the_driver)
{
	for (int manual = 0; manual < 2; manual++) {
		open_sim((struct clv_sim_config){.manual = manual});
		inside_event = recorded(B);
		ck_assert_int_eq(clv_sim_launch(d, A, 10, use_the_driver, NULL), CLV_OK);
		ck_assert_int_eq(d->stream_synchronize(d, A), CLV_OK);
		ck_assert_int_eq(inside[0], CLV_OK);
		ck_assert_int_eq(inside[1], CLV_INVALID);
		ck_assert_int_eq(inside[2], CLV_INVALID);
		ck_assert_int_eq(inside[3], CLV_OK);
		ck_assert_int_eq(inside[4], CLV_INVALID);
		ck_assert_int_eq(d->stream_synchronize(d, A), CLV_OK);
		ck_assert_str_eq(ran, "z");
		launch(A, 1000 * US, "never"); /* dropped by close */
		d->close(d);
		ck_assert_str_eq(ran, "z");
	}
}
END_TEST

/* As measured with a stream under capture: what may be called, and what must not. */
START_TEST(capture)
{
	open_sim((struct clv_sim_config){0});
	clv_event e = recorded(A);
	clv_handle h;
	uint64_t a, p, size = 2 << 20;
	ck_assert(clv_sim_set_capturing(d, true));
	ck_assert_int_eq(d->address_reserve(d, &a, size, 0), CLV_OK);
	ck_assert_int_eq(d->create(d, &h, size, 0), CLV_OK);
	ck_assert_int_eq(d->map(d, a, size, 0, h), CLV_OK);
	ck_assert_int_eq(d->set_access(d, a, size, 0), CLV_OK);
	ck_assert_int_eq(d->event_record(d, e, B), CLV_OK);
	ck_assert_int_eq(d->mem_get_info(d, 0, NULL, NULL), CLV_OK);
	ck_assert(clv_sim_set_capturing(d, false));
	for (int i = 0; i < 4; i++) {
		ck_assert(clv_sim_set_capturing(d, true));
		enum clv_result r = i == 0   ? d->event_query(d, e)
				    : i == 1 ? d->event_synchronize(d, e)
				    : i == 2 ? d->stream_synchronize(d, A)
					     : d->mem_alloc(d, &p, 512, 0);
		ck_assert_int_eq(r, CLV_CAPTURING);
		ck_assert(!clv_sim_set_capturing(d, false)); /* the program's capture is lost */
	}
	ck_assert_int_eq(d->event_query(d, e), CLV_OK);
	ck_assert(clv_sim_set_capturing(d, false));
	d->close(d);
}
END_TEST

/* An event is not complete while what is before it still runs, on whatever thread. */
static bool slow_started, slow_may_end; /* atomic */

static void run_slowly(void *arg)
{
	__atomic_store_n(&slow_started, true, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&slow_may_end, __ATOMIC_SEQ_CST))
		sched_yield();
	note("s");
}

static void *advance(void *arg)
{
	clv_sim_advance(d, 10 * US);
	if (*(bool *)arg)
		clv_sim_complete(d, A);
	return NULL;
}

static void *let_it_end(void *arg)
{
	for (int i = 0; i < 100; i++)
		sched_yield();
	__atomic_store_n(&slow_may_end, true, __ATOMIC_SEQ_CST);
	return NULL;
}

START_TEST(events_wait_for_running_callbacks)
{
	for (int manual = 0; manual < 2; manual++) {
		bool is_manual = manual;
		pthread_t runner, helper;
		slow_started = slow_may_end = false;
		open_sim((struct clv_sim_config){.manual = manual, .clock_free = true});
		clv_event before = recorded(A);
		ck_assert_int_eq(clv_sim_launch(d, A, 10 * US, run_slowly, NULL), CLV_OK);
		clv_event after = recorded(A);
		ck_assert_int_eq(pthread_create(&runner, NULL, advance, &is_manual), 0);
		while (!__atomic_load_n(&slow_started, __ATOMIC_SEQ_CST))
			sched_yield();
		ck_assert(complete(before));
		ck_assert(!complete(after));
		ck_assert_str_eq(ran, "");
		/* others go on meanwhile; who waits for it waits until it has returned */
		ck_assert_int_eq(d->mem_get_info(d, 0, NULL, NULL), CLV_OK);
		ck_assert_int_eq(pthread_create(&helper, NULL, let_it_end, NULL), 0);
		ck_assert_int_eq(d->event_synchronize(d, after), CLV_OK);
		ck_assert_str_eq(ran, "s");
		ck_assert(complete(after));
		pthread_join(runner, NULL);
		pthread_join(helper, NULL);
		d->close(d);
	}
}
END_TEST

/* Threads that launch, wait and map at once; each finds its own work done when its own stream is synchronized. */
struct worker {
	pthread_t thread;
	uint64_t id;
	uint32_t done, wrong;
	clv_event shared;
};

static void count_done(void *arg)
{
	struct worker *w = arg;
	w->done++;
}

static void *work_thread(void *arg)
{
	struct worker *w = arg;
	cleave_stream s = {w->id, 0};
	uint64_t a, size = 2 << 20;
	clv_event e;
	w->wrong += d->event_create(d, &e, 0) != CLV_OK;
	w->wrong += d->address_reserve(d, &a, 4 * size, 0) != CLV_OK;
	for (uint32_t i = 0; i < 500; i++) {
		clv_handle h;
		w->wrong += clv_sim_launch(d, s, 100, count_done, w) != CLV_OK;
		w->wrong += d->event_record(d, e, s) != CLV_OK;
		w->wrong += d->event_record(d, w->shared, s) != CLV_OK;
		w->wrong += d->stream_wait_event(d, s, w->shared) != CLV_OK;
		w->wrong += d->create(d, &h, size, 0) != CLV_OK;
		w->wrong += d->map(d, a + i % 4 * size, size, 0, h) != CLV_OK;
		w->wrong += d->set_access(d, a + i % 4 * size, size, 0) != CLV_OK;
		enum clv_result q = d->event_query(d, e);
		if (q == CLV_OK)
			w->wrong += w->done != i + 1;
		else
			w->wrong += q != CLV_NOT_READY;
		w->wrong += (i & 1 ? d->event_synchronize(d, e) : d->stream_synchronize(d, s)) != CLV_OK;
		w->wrong += w->done != i + 1;
		w->wrong += d->unmap(d, a + i % 4 * size, size) != CLV_OK;
		w->wrong += d->release(d, h) != CLV_OK;
		if (i % 50 == 0) {
			uint64_t p;
			w->wrong += d->mem_alloc(d, &p, 512 + i, 0) != CLV_OK || d->mem_free(d, p) != CLV_OK;
		}
	}
	w->wrong += d->address_free(d, a, 4 * size) != CLV_OK;
	w->wrong += d->event_destroy(d, e) != CLV_OK;
	return NULL;
}

START_TEST(threads)
{
	for (int manual = 0; manual < 2; manual++) {
		struct worker workers[6] = {0};
		open_sim((struct clv_sim_config){.manual = manual});
		clv_event shared;
		ck_assert_int_eq(d->event_create(d, &shared, 0), CLV_OK);
		for (uint64_t i = 0; i < CLV_ARRAY_LEN(workers); i++) {
			workers[i].id = i;
			workers[i].shared = shared;
			ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work_thread, &workers[i]), 0);
		}
		for (size_t i = 0; i < CLV_ARRAY_LEN(workers); i++) {
			pthread_join(workers[i].thread, NULL);
			ck_assert_uint_eq(workers[i].wrong, 0);
			ck_assert_uint_eq(workers[i].done, 500);
		}
		ck_assert_int_eq(d->event_destroy(d, shared), CLV_OK);
		ck_assert_ptr_null(clv_sim_leaks(d));
		ck_assert_uint_eq(clv_sim_used(d, 0), 0);
		d->close(d);
	}
}
END_TEST

CHECK_MAIN("sim_streams", bad_arguments, events_complete_by_the_clock, events_lag, waiting_moves_the_clock,
	   mem_free_waits_for_the_device, vmm_does_not_wait, streams_wait_for_events, equal_times_keep_their_order,
	   manual_mode_completes_when_told, manual_mode_completes_what_is_waited_for, random_work_by_the_clock,
	   random_work_manually, callbacks_use_the_driver, capture, events_wait_for_running_callbacks, threads)
