/* SPDX-License-Identifier: MIT
 *
 * The cuda driver over fakes: which streams it knows, events, other threads' default streams, and streams that are not
 * CUDA's.
 */
#include "../src/driver/cuda_internal.h"
#include "../src/host/meta.h"
#include "check_main.h"
#include "fake_cuda.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

static struct clv_driver *d;
static CUcontext zero, one;
static uint64_t meta_before;

static void start_with(const struct clv_cuda_config *config)
{
	struct clv_error err = {{0}};
	fake_reset();
	meta_before = clv_meta_bytes();
	d = clv_cuda_open(config, &err);
	ck_assert_msg(d != NULL, "%s", err.text);
	zero = fake_context(0, 0);
	one = fake_context(1, 1);
	fake_set_current(zero);
	fake_forget_calls();
}

static void start(void)
{
	start_with(&(struct clv_cuda_config){.api = &fake_api});
}

static void finish(void)
{
	ck_assert_str_eq(fake_wrong(), "");
	ck_assert_uint_eq(fake_depth(), 0);
	d->close(d);
	ck_assert_uint_eq(clv_meta_bytes(), meta_before);
}

static struct clv_cuda_stream known(CUstream handle, bool per_thread)
{
	struct clv_cuda_stream s;
	ck_assert_int_eq(clv_cuda_stream(d, handle, per_thread, &s), CUDA_SUCCESS);
	return s;
}

static clv_event new_event(void)
{
	clv_event e = 0;
	ck_assert_int_eq(d->event_create(d, &e, 0), CLV_OK);
	ck_assert_uint_ne(e, 0);
	return e;
}

/* ---- streams ---- */

START_TEST(streams_are_told_apart)
{
	start();
	CUstream h = fake_stream(0, 7, one);
	struct clv_cuda_stream s = known(h, false);
	ck_assert_uint_eq(s.stream.id, 7);
	ck_assert_uint_eq(s.stream.handle, (uintptr_t)h);
	ck_assert_int_eq(s.device, 1);
	ck_assert_ptr_eq(s.context, one);

	struct clv_cuda_stream legacy = known(NULL, false), own = known(NULL, true);
	ck_assert_uint_eq(legacy.stream.handle, (uintptr_t)CU_STREAM_LEGACY);
	ck_assert_uint_eq(own.stream.handle, (uintptr_t)CU_STREAM_PER_THREAD);
	ck_assert_uint_ne(legacy.stream.id, own.stream.id);
	ck_assert_int_eq(legacy.device, 0);
	ck_assert_ptr_eq(legacy.context, zero);
	/* by their names they are the same, whatever NULL means */
	ck_assert_uint_eq(known(CU_STREAM_LEGACY, true).stream.id, legacy.stream.id);
	ck_assert_uint_eq(known(CU_STREAM_PER_THREAD, false).stream.id, own.stream.id);
	/* in another context they are others */
	fake_set_current(one);
	ck_assert_uint_ne(known(NULL, false).stream.id, legacy.stream.id);
	ck_assert_ptr_eq(known(NULL, false).context, one);
	ck_assert_ptr_eq(known(NULL, true).context, one);
	/* the driver's own answer */
	struct clv_cuda_stream none;
	fake_set_current(NULL);
	ck_assert_int_eq(clv_cuda_stream(d, NULL, false, &none), CUDA_ERROR_INVALID_CONTEXT);
	fake.fail = "cuStreamGetId";
	fake.fail_with = CUDA_ERROR_DEINITIALIZED;
	fake.fail_count = 1;
	ck_assert_int_eq(clv_cuda_stream(d, h, false, &none), CUDA_ERROR_DEINITIALIZED);
	/* a stream of another device's context, which was not known */
	fake.fail = "cuStreamGetCtx";
	fake.fail_with = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	fake.fail_count = 1;
	ck_assert_int_eq(clv_cuda_stream(d, fake_stream(1, 8, zero), false, &none), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ck_assert(!clv_cuda_stream_known(d, 8, &none));
	finish();
}
END_TEST

START_TEST(asking_again_costs_one_call)
{
	start();
	CUstream handles[6];
	for (int i = 0; i < 6; i++)
		handles[i] = fake_stream(i, 70 + (unsigned)i, zero);
	for (int i = 0; i < 6; i++)
		known(handles[i], false);
	fake_forget_calls();
	for (int k = 0; k < 10; k++)
		ck_assert_uint_eq(known(handles[k % 6], false).stream.id, 70 + (unsigned)k % 6);
	ck_assert_uint_eq(fake_all_calls(), 10); /* cuStreamGetId */
	ck_assert_uint_eq(fake_calls("cuStreamGetId"), 10);
	/* a handle is used anew: another stream */
	handles[0]->id = 99;
	handles[0]->context = one;
	struct clv_cuda_stream s = known(handles[0], false);
	ck_assert_uint_eq(s.stream.id, 99);
	ck_assert_ptr_eq(s.context, one);
	finish();
}
END_TEST

static void note(void *arg, const struct clv_cuda_stream *s)
{
	uint64_t *sum = arg;
	sum[0]++;
	sum[1] += s->stream.id;
	struct clv_cuda_stream again;
	clv_cuda_stream_known(d, s->stream.id, &again); /* the mutex is free */
}

static void forget(void *arg, const struct clv_cuda_stream *s)
{
	clv_cuda_stream_forget(d, s->stream.id);
}

START_TEST(what_is_forgotten_is_asked_anew)
{
	start();
	struct clv_cuda_stream s;
	CUstream h = fake_stream(0, 7, zero);
	ck_assert(!clv_cuda_stream_known(d, 7, &s));
	known(h, false);
	ck_assert(clv_cuda_stream_known(d, 7, &s));
	ck_assert_ptr_eq(s.context, zero);
	clv_cuda_stream_forget(d, 7);
	clv_cuda_stream_forget(d, 7);
	clv_cuda_stream_forget(d, 1234);
	ck_assert(!clv_cuda_stream_known(d, 7, &s));
	clv_event e = new_event();
	ck_assert_int_eq(d->event_record(d, e, (cleave_stream){7, (uintptr_t)h}), CLV_INVALID);
	ck_assert_int_eq(d->stream_synchronize(d, (cleave_stream){7, (uintptr_t)h}), CLV_INVALID);
	ck_assert_int_eq(d->event_record(d, e, CLEAVE_STREAM_ANY), CLV_INVALID);
	ck_assert_int_eq(d->stream_synchronize(d, CLEAVE_STREAM_ANY), CLV_INVALID);
	fake_forget_calls();
	known(h, false);
	ck_assert_uint_eq(fake_calls("cuStreamGetCtx"), 1);
	ck_assert(clv_cuda_stream_known(d, 7, &s));
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	finish();
}
END_TEST

START_TEST(streams_are_listed_by_context)
{
	start();
	uint64_t sum[2] = {0};
	clv_cuda_streams_each(d, NULL, note, sum);
	ck_assert_uint_eq(sum[0], 0);
	struct CUstream_st many[50];
	for (unsigned i = 0; i < 50; i++) {
		many[i] = (struct CUstream_st){.id = i + 1, .context = i % 5 ? zero : one};
		known(&many[i], false);
	}
	clv_cuda_streams_each(d, NULL, note, sum);
	ck_assert_uint_eq(sum[0], 50);
	ck_assert_uint_eq(sum[1], 50 * 51 / 2);
	memset(sum, 0, sizeof(sum));
	clv_cuda_streams_each(d, one, note, sum);
	ck_assert_uint_eq(sum[0], 10);
	/* they stay until each is forgotten */
	clv_cuda_context_forget(d, one);
	clv_cuda_context_forget(d, one);
	memset(sum, 0, sizeof(sum));
	clv_cuda_streams_each(d, one, note, sum);
	ck_assert_uint_eq(sum[0], 10);
	clv_cuda_streams_each(d, one, forget, NULL);
	clv_cuda_streams_each(d, one, note, sum);
	ck_assert_uint_eq(sum[0], 10);
	clv_cuda_streams_each(d, NULL, note, sum);
	ck_assert_uint_eq(sum[0], 50);
	finish();
}
END_TEST

START_TEST(a_stream_that_cannot_be_noted_is_not_half_known)
{
	start();
	struct clv_cuda_stream s;
	CUstream h = fake_stream(0, 7, one);
	for (uint64_t n = 1; n <= 2; n++) { /* the context, the stream */
		clv_meta_fail_after(n);
		ck_assert_int_eq(clv_cuda_stream(d, h, false, &s), CUDA_ERROR_OUT_OF_MEMORY);
		clv_meta_fail_after(0);
		ck_assert(!clv_cuda_stream_known(d, 7, &s));
	}
	clv_meta_fail_after(1);
	clv_event e;
	ck_assert_int_eq(d->event_create(d, &e, 0), CLV_FAILED);
	clv_meta_fail_after(0);
	ck_assert_int_eq(known(h, false).device, 1);
	finish();
}
END_TEST

START_TEST(streams_that_nobody_told_of_are_adopted_if_asked_for)
{
	start_with(&(struct clv_cuda_config){.api = &fake_api, .adopt_streams = true});
	CUstream h = fake_stream(0, 7, one);
	clv_event e = new_event();
	ck_assert_int_eq(d->event_record(d, e, (cleave_stream){7, (uintptr_t)h}), CLV_OK);
	ck_assert_ptr_eq(fake.last_context, one);
	ck_assert_ptr_eq(fake.last_stream, h);
	/* the handle is another stream's by now: nothing is known of the one that is meant */
	h->id = 8;
	ck_assert_int_eq(d->event_record(d, e, (cleave_stream){9, (uintptr_t)h}), CLV_FAILED);
	ck_assert_int_eq(d->stream_synchronize(d, (cleave_stream){9, (uintptr_t)h}), CLV_FAILED);
	/* default streams, in the context that they are of */
	ck_assert_int_eq(d->event_record(d, e, (cleave_stream){zero->legacy_id, 0}), CLV_OK);
	ck_assert_ptr_eq(fake.last_stream, CU_STREAM_LEGACY);
	ck_assert_int_eq(d->event_record(d, e, (cleave_stream){one->legacy_id, 1}), CLV_FAILED);
	/* nobody tells of a capture */
	CUstream captured = fake_stream(1, 20, zero), new = fake_stream(2, 21, zero);
	const cleave_stream c = {20, (uintptr_t)captured};
	ck_assert_int_eq(d->event_record(d, e, c), CLV_OK);
	captured->status = new->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	ck_assert_int_eq(d->event_query(d, e), CLV_NOT_READY);
	ck_assert_int_eq(d->event_record(d, e, c), CLV_CAPTURING);
	ck_assert_int_eq(d->stream_synchronize(d, c), CLV_CAPTURING);
	ck_assert_int_eq(d->event_record(d, e, (cleave_stream){21, (uintptr_t) new}), CLV_CAPTURING);
	ck_assert_int_eq(fake_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	finish();
}
END_TEST

/* ---- events ---- */

START_TEST(an_event_is_made_where_it_is_recorded)
{
	start();
	struct clv_cuda_stream a = known(fake_stream(0, 1, zero), false), b = known(fake_stream(1, 2, one), false);
	clv_event e = new_event();
	ck_assert_int_eq(d->event_query(d, e), CLV_OK); /* nothing was recorded */
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_int_eq(d->stream_wait_event(d, a.stream, e), CLV_OK);
	ck_assert_uint_eq(fake_calls("cuEventCreate") + fake_calls("cuEventQuery") + fake_calls("cuStreamWaitEvent"),
			  0);

	fake_set_current(NULL); /* a thread without a context */
	ck_assert_int_eq(d->event_record(d, e, b.stream), CLV_OK);
	ck_assert_uint_eq(fake.event_count, 1);
	ck_assert_ptr_eq(fake.events[0].context, one);
	ck_assert_ptr_null(fake_current());
	ck_assert_int_eq(d->event_query(d, e), CLV_NOT_READY);
	fake_finish();
	ck_assert_int_eq(d->event_query(d, e), CLV_OK);
	ck_assert_int_eq(d->event_record(d, e, b.stream), CLV_OK);
	ck_assert_uint_eq(fake.event_count, 1);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_uint_eq(fake_calls("cuEventSynchronize"), 1);

	/* recorded in another context: made anew */
	ck_assert_int_eq(d->event_record(d, e, a.stream), CLV_OK);
	ck_assert_uint_eq(fake.event_count, 2);
	ck_assert(fake.events[0].destroyed);
	ck_assert_ptr_eq(fake.events[1].context, zero);
	/* a stream of any context may wait for it */
	ck_assert_int_eq(d->stream_wait_event(d, b.stream, e), CLV_OK);
	ck_assert_ptr_eq(fake.last_event, &fake.events[1]);
	ck_assert_uint_eq(fake.last_stream->id, 2);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	ck_assert(fake.events[1].destroyed);
	/* what makes no sense */
	ck_assert_int_eq(d->event_query(d, 0), CLV_INVALID);
	ck_assert_int_eq(d->event_record(d, 0, a.stream), CLV_INVALID);
	ck_assert_int_eq(d->event_synchronize(d, 0), CLV_INVALID);
	ck_assert_int_eq(d->event_destroy(d, 0), CLV_INVALID);
	ck_assert_int_eq(d->stream_wait_event(d, a.stream, 0), CLV_INVALID);
	finish();
}
END_TEST

START_TEST(a_record_that_fails_leaves_the_last_one)
{
	start();
	struct clv_cuda_stream a = known(fake_stream(0, 1, zero), false), b = known(fake_stream(1, 2, one), false);
	static const char *const calls[] = {"cuEventCreate", "cuEventRecord"};
	clv_event e = new_event();
	ck_assert_int_eq(d->event_record(d, e, a.stream), CLV_OK);
	for (size_t i = 0; i < CLV_ARRAY_LEN(calls); i++) {
		fake.fail = calls[i];
		fake.fail_with = CUDA_ERROR_LAUNCH_FAILED;
		fake.fail_count = 1;
		ck_assert_int_eq(d->event_record(d, e, b.stream), CLV_FAILED);
		ck_assert(!fake.events[0].destroyed);
		ck_assert_int_eq(d->event_query(d, e), CLV_NOT_READY);
	}
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	for (unsigned i = 0; i < fake.event_count; i++)
		ck_assert(fake.events[i].destroyed);
	finish();
}
END_TEST

START_TEST(what_was_recorded_in_a_context_that_is_gone_is_complete)
{
	start();
	struct clv_cuda_stream a = known(fake_stream(0, 1, zero), false), b = known(fake_stream(1, 2, one), false);
	clv_event e = new_event();
	ck_assert_int_eq(d->event_record(d, e, b.stream), CLV_OK);
	ck_assert_int_eq(d->event_query(d, e), CLV_NOT_READY);
	one->dead = true;
	clv_cuda_context_forget(d, one);
	fake_forget_calls();
	ck_assert_int_eq(d->event_query(d, e), CLV_OK);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_int_eq(d->stream_wait_event(d, a.stream, e), CLV_OK);
	ck_assert_int_eq(d->event_record(d, e, b.stream), CLV_GONE);
	ck_assert_int_eq(d->stream_synchronize(d, b.stream), CLV_GONE);
	clv_cuda_stream_forget(d, b.stream.id);
	ck_assert_int_eq(d->event_record(d, e, b.stream), CLV_INVALID);
	ck_assert_uint_eq(fake_all_calls(), 0);

	/* another context at the same address, as the driver makes them: the old events are not its own */
	one->dead = false;
	struct clv_cuda_stream again = known(fake_stream(2, 3, one), false);
	ck_assert_int_eq(d->event_query(d, e), CLV_OK);
	ck_assert_int_eq(d->event_record(d, e, again.stream), CLV_OK);
	ck_assert_uint_eq(fake.event_count, 2);
	ck_assert(!fake.events[0].destroyed);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	/* gone without our being told */
	clv_event late = new_event();
	ck_assert_int_eq(d->event_record(d, late, again.stream), CLV_OK);
	one->dead = true;
	ck_assert_int_eq(d->event_query(d, late), CLV_OK);
	ck_assert_int_eq(d->event_record(d, late, again.stream), CLV_GONE);
	ck_assert_int_eq(d->stream_synchronize(d, again.stream), CLV_GONE);
	ck_assert_int_eq(d->event_destroy(d, late), CLV_OK);
	finish();
}
END_TEST

/* ---- another thread's default stream ---- */

static struct clv_cuda_stream others;

static void *know_own(void *unused)
{
	fake_set_current(one);
	others = known(NULL, true);
	clv_event e = new_event();
	ck_assert_int_eq(d->event_record(d, e, others.stream), CLV_OK);
	ck_assert_ptr_eq(fake.last_stream, CU_STREAM_PER_THREAD);
	ck_assert_int_eq(d->stream_synchronize(d, others.stream), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	return NULL;
}

START_TEST(another_threads_default_stream_is_stood_for)
{
	start();
	pthread_t t;
	ck_assert_int_eq(pthread_create(&t, NULL, know_own, NULL), 0);
	pthread_join(t, NULL);
	struct clv_cuda_stream own = known(NULL, true);
	ck_assert_uint_ne(own.stream.id, others.stream.id);
	clv_event e = new_event();
	ck_assert_int_eq(d->event_record(d, e, others.stream), CLV_OK);
	ck_assert_ptr_eq(fake.last_stream, CU_STREAM_LEGACY);
	ck_assert_ptr_eq(fake.last_context, one);
	ck_assert_int_eq(d->stream_wait_event(d, others.stream, e), CLV_OK);
	ck_assert_ptr_eq(fake.last_stream, CU_STREAM_LEGACY);
	fake_forget_calls();
	unsigned events = fake.event_count;
	ck_assert_int_eq(d->stream_synchronize(d, others.stream), CLV_OK);
	ck_assert_uint_eq(fake_calls("cuStreamSynchronize"), 0);
	ck_assert_uint_eq(fake_calls("cuEventSynchronize"), 1);
	ck_assert_uint_eq(fake.event_count, events + 1);
	ck_assert(fake.events[events].destroyed);
	/* its own one is no such case */
	ck_assert_int_eq(d->event_record(d, e, own.stream), CLV_OK);
	ck_assert_ptr_eq(fake.last_stream, CU_STREAM_PER_THREAD);
	/* a capture of a blocking stream of its context forbids the legacy one, as its own would */
	CUstream blocking = fake_stream(0, 1, one), elsewhere = fake_stream(1, 2, zero);
	elsewhere->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	clv_cuda_captures_add(d, 1);
	ck_assert_int_eq(d->event_record(d, e, others.stream), CLV_OK);
	blocking->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	fake_forget_calls();
	ck_assert_int_eq(d->event_record(d, e, others.stream), CLV_CAPTURING);
	ck_assert_int_eq(d->stream_wait_event(d, others.stream, e), CLV_CAPTURING);
	ck_assert_int_eq(d->stream_synchronize(d, others.stream), CLV_CAPTURING);
	ck_assert_uint_eq(fake_calls("cuEventRecord") + fake_calls("cuStreamWaitEvent"), 0);
	ck_assert_int_eq(d->event_record(d, e, own.stream), CLV_OK);
	clv_cuda_captures_add(d, -1);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	finish();
}
END_TEST

/* ---- streams that are not CUDA's ---- */

static uint64_t now, gone;

static uint64_t mark(void *arg, uint64_t id)
{
	ck_assert_ptr_eq(arg, &now);
	ck_assert_uint_eq(id, CLV_CUDA_VIRTUAL | 3);
	return now;
}

static bool passed(void *arg, uint64_t id, uint64_t m)
{
	ck_assert_ptr_eq(arg, &now);
	ck_assert_uint_eq(id, CLV_CUDA_VIRTUAL | 3);
	return m <= gone;
}

START_TEST(virtual_streams_are_asked_of_their_owner)
{
	start();
	const cleave_stream v = {CLV_CUDA_VIRTUAL | 3, 0};
	struct clv_cuda_stream a = known(fake_stream(0, 1, zero), false);
	clv_event e = new_event(), real = new_event();
	ck_assert_int_eq(d->event_record(d, e, v), CLV_CAPTURING); /* nobody to ask */
	ck_assert_int_eq(d->stream_synchronize(d, v), CLV_CAPTURING);
	clv_cuda_set_virtual(d, &(struct clv_cuda_virtual){.mark = mark, .passed = passed, .arg = &now});
	ck_assert_int_eq(d->event_record(d, real, a.stream), CLV_OK);
	fake_forget_calls();
	now = 5;
	gone = 4;
	ck_assert_int_eq(d->event_record(d, e, v), CLV_OK);
	ck_assert_int_eq(d->event_query(d, e), CLV_NOT_READY);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_CAPTURING);
	ck_assert_int_eq(d->stream_wait_event(d, a.stream, e), CLV_CAPTURING);
	ck_assert_int_eq(d->stream_synchronize(d, v), CLV_CAPTURING);
	gone = 5;
	now = 6;
	ck_assert_int_eq(d->event_query(d, e), CLV_OK);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_int_eq(d->stream_wait_event(d, a.stream, e), CLV_OK);
	ck_assert_int_eq(d->stream_synchronize(d, v), CLV_CAPTURING);
	gone = 6;
	ck_assert_int_eq(d->stream_synchronize(d, v), CLV_OK);
	ck_assert_uint_eq(fake_all_calls(), 0);
	/* it cannot be made to wait, but need not for what is complete */
	ck_assert_int_eq(d->stream_wait_event(d, v, real), CLV_CAPTURING);
	fake_finish();
	ck_assert_int_eq(d->stream_wait_event(d, v, real), CLV_OK);
	ck_assert_uint_eq(fake_calls("cuStreamWaitEvent"), 0);
	/* the same event on a real stream again, and back */
	ck_assert_int_eq(d->event_record(d, e, a.stream), CLV_OK);
	ck_assert_int_eq(d->event_query(d, e), CLV_NOT_READY);
	ck_assert_int_eq(d->event_record(d, e, v), CLV_OK);
	ck_assert_int_eq(d->event_query(d, e), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, real), CLV_OK);
	for (unsigned i = 0; i < fake.event_count; i++)
		ck_assert(fake.events[i].destroyed);
	finish();
}
END_TEST

/* ---- threads ---- */

#define THREADS 4
#define ROUNDS 400

static void *use_streams(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	CUcontext own = &fake.contexts[2 + number];
	struct CUstream_st shared = {.id = 1, .context = zero};
	fake_set_current(number & 1 ? zero : NULL);
	clv_event e = 0;
	bool good = d->event_create(d, &e, 0) == CLV_OK;
	for (unsigned i = 0; i < ROUNDS && good; i++) {
		struct CUstream_st mine = {.id = 1000 * (number + 1) + i, .context = own};
		struct clv_cuda_stream s, t;
		good = clv_cuda_stream(d, &mine, false, &s) == CUDA_SUCCESS && s.context == own &&
		       clv_cuda_stream(d, &shared, false, &t) == CUDA_SUCCESS && t.context == zero &&
		       d->event_record(d, e, s.stream) == CLV_OK && d->event_query(d, e) == CLV_OK &&
		       d->stream_wait_event(d, t.stream, e) == CLV_OK;
		if (i % 7 == 0)
			clv_cuda_context_forget(d, own);
		clv_cuda_stream_forget(d, mine.id);
		good = good && !clv_cuda_stream_known(d, mine.id, NULL);
		if (i % 5 == number % 5) {
			clv_cuda_captures_add(d, 1);
			clv_cuda_synchronize(d, 0, NULL);
			clv_cuda_captures_add(d, -1);
		}
	}
	d->event_destroy(d, e);
	return good ? NULL : arg ? arg : (void *)1;
}

START_TEST(threads_come_and_go)
{
	start();
	fake.done = true;
	struct CUstream_st shared = {.id = 1, .context = zero};
	known(&shared, false);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		fake_context(2 + i, i % FAKE_DEVICES);
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, use_streams, (void *)i), 0);
	for (int i = 0; i < THREADS; i++) {
		void *failed;
		pthread_join(threads[i], &failed);
		ck_assert_ptr_null(failed);
	}
	finish();
}
END_TEST

/* Asked after its id a stream that captures would end the capture. */
START_TEST(a_stream_that_captures_is_known_by_its_name)
{
	start();
	CUstream met = fake_stream(0, 7, zero), new = fake_stream(1, 8, zero);
	ck_assert_uint_eq(known(met, false).stream.id, 7);
	met->status = new->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	clv_cuda_captures_add(d, 1);
	fake_forget_calls();
	ck_assert_uint_eq(known(met, false).stream.id, 7);
	uint64_t id = known(new, false).stream.id;
	ck_assert_uint_ne(id, 7);
	ck_assert_uint_ne(id, 8);
	ck_assert_uint_eq(known(new, false).stream.id, id);
	ck_assert_uint_eq(fake_calls("cuStreamGetId"), 0);

	met->status = new->status = CU_STREAM_CAPTURE_STATUS_NONE;
	ck_assert_uint_eq(known(new, false).stream.id, 8); /* while another captures, perhaps */
	clv_cuda_captures_add(d, -1);
	ck_assert_uint_eq(known(met, false).stream.id, 7);
	clv_cuda_stream_forget(d, 8);
	ck_assert(!clv_cuda_stream_known(d, id, NULL)); /* the name may be another stream's by now */
	ck_assert(clv_cuda_stream_known(d, 7, NULL));
	finish();
}
END_TEST

/* ---- a capture begins ---- */

/* Somebody sets the clock an hour ahead, and back. */
static _Atomic long ahead;
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
	int r = __real_clock_gettime(clock, out);
	if (clock == CLOCK_REALTIME)
		out->tv_sec += ahead;
	return r;
}

static _Atomic bool begun;

static void *begins_a_capture(void *locked)
{
	*(bool *)locked = clv_cuda_capture_lock(d);
	clv_cuda_capture_unlock(d, *(bool *)locked);
	begun = true;
	return NULL;
}

/* Threads that wait for the device are waited for, but not for long, whatever the time of day. */
START_TEST(a_capture_begins_at_last)
{
	start();
	pthread_rwlock_t *begins = &cuda_of(d)->begins;
	bool locked;
	for (int turn = 0; turn < 5; turn++) {
		pthread_t t;
		bool lets_go = turn == 3, free = turn == 4;
		ahead = turn == 1 ? 3600 : turn == 2 ? -3600 : 0;
		begun = false;
		if (!free)
			pthread_rwlock_rdlock(begins);
		uint64_t before = clv_clock_ns();
		ck_assert_int_eq(pthread_create(&t, NULL, begins_a_capture, &locked), 0);
		if (lets_go) {
			nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
			pthread_rwlock_unlock(begins);
		}
		while (!begun && clv_clock_ns() - before < 60000000000u)
			sched_yield();
		ck_assert_msg(begun, "turn %d: still waits after a minute", turn);
		pthread_join(t, NULL);
		if (!lets_go && !free) {
			ck_assert(!locked);
			ck_assert_uint_ge(clv_clock_ns() - before, 50000000);
			pthread_rwlock_unlock(begins);
		} else if (free) {
			ck_assert(locked);
		} else {
			ck_assert(locked || clv_clock_ns() - before >= 100000000); /* a slow machine */
		}
	}
	finish();
}
END_TEST

/* A capture may begin, in another thread, between the question whether one does and a wait, which would break it. */
START_TEST(a_wait_is_no_matter_for_captures)
{
	start();
	clv_event e = new_event();
	struct clv_cuda_stream s = known(NULL, false);
	ck_assert_int_eq(d->event_record(d, e, s.stream), CLV_OK);
	fake_finish();
	fake_forget_calls();
	ck_assert_int_eq(d->event_query(d, e), CLV_OK); /* those who ask see to that */
	ck_assert_uint_eq(fake_calls("cuThreadExchangeStreamCaptureMode"), 0);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_uint_eq(fake_calls("cuThreadExchangeStreamCaptureMode"), 2);
	ck_assert_int_eq(fake_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	finish();
}
END_TEST

static void *knows_own_capturing(void *id)
{
	fake_set_current(zero);
	fake_capture_own(true);
	*(uint64_t *)id = known(NULL, true).stream.id;
	return NULL;
}

/* The default streams of all threads have one name, in all contexts. */
START_TEST(what_captures_elsewhere_under_the_name_stays_known)
{
	start();
	struct clv_cuda_stream own = known(NULL, true), captures;
	uint64_t others_id, next_id;
	pthread_t t;
	clv_cuda_captures_add(d, 1);
	fake_capture_own(true);
	fake_set_current(one);
	captures = known(NULL, true);
	ck_assert_int_eq(pthread_create(&t, NULL, knows_own_capturing, &others_id), 0);
	pthread_join(t, NULL);
	clv_cuda_stream_forget(d, own.stream.id);
	ck_assert(clv_cuda_stream_known(d, captures.stream.id, NULL));
	ck_assert(clv_cuda_stream_known(d, others_id, NULL));
	ck_assert_uint_eq(known(NULL, true).stream.id, captures.stream.id);
	/* and what is of the thread and the context goes */
	fake_set_current(zero);
	uint64_t id = known(NULL, true).stream.id;
	fake_capture_own(false);
	next_id = known(NULL, true).stream.id;
	ck_assert_uint_eq(next_id, own.stream.id);
	clv_cuda_stream_forget(d, next_id);
	ck_assert(!clv_cuda_stream_known(d, id, NULL));
	clv_cuda_captures_add(d, -1);
	finish();
}
END_TEST

CHECK_MAIN("cuda_streams", a_stream_that_captures_is_known_by_its_name,
	   what_captures_elsewhere_under_the_name_stays_known, streams_are_told_apart, asking_again_costs_one_call,
	   what_is_forgotten_is_asked_anew, streams_are_listed_by_context,
	   a_stream_that_cannot_be_noted_is_not_half_known, streams_that_nobody_told_of_are_adopted_if_asked_for,
	   an_event_is_made_where_it_is_recorded, a_record_that_fails_leaves_the_last_one,
	   what_was_recorded_in_a_context_that_is_gone_is_complete, another_threads_default_stream_is_stood_for,
	   virtual_streams_are_asked_of_their_owner, threads_come_and_go, a_capture_begins_at_last,
	   a_wait_is_no_matter_for_captures)
