/* SPDX-License-Identifier: MIT
 *
 * The cuda driver on whatever libcuda.so.1 is found: what it takes for granted of a real one. Skipped where there is no
 * GPU. scripts/gpu/cuda_driver runs it on one.
 */
#include "../src/driver/cuda_program.h"
#include "check_main.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define G (2 * CLV_MIB)

static struct clv_cuda_program p;
static struct clv_driver *d;
static const struct clv_cuda_api *cu;

static void start(void)
{
	struct clv_error err = {{0}};
	ck_assert_msg(clv_cuda_program_open(&p, NULL, 2, &err), "%s", err.text);
	d = p.driver;
	cu = p.api;
}

static void finish(void)
{
	clv_cuda_program_close(&p);
}

static cleave_stream new_stream(int device)
{
	cleave_stream s = {0, 0};
	struct clv_error err = {{0}};
	ck_assert_msg(clv_cuda_program_stream(&p, device, &s, &err), "%s", err.text);
	return s;
}

static CUstream handle_of(cleave_stream s)
{
	return (CUstream)(uintptr_t)s.handle;
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
	return e;
}

/* Holds a stream until let go. */
static void gate(void *arg)
{
	while (!atomic_load((_Atomic bool *)arg))
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void set(void *arg)
{
	atomic_store((_Atomic bool *)arg, true);
}

static CUcontext second_context(void)
{
	CUcontext c = NULL, popped;
	ck_assert_ptr_nonnull((void *)(uintptr_t)cu->cuCtxCreate_v2);
	ck_assert_int_eq(cu->cuCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cu->cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
	ck_assert_ptr_eq(c, popped);
	return c;
}

/* ---- streams ---- */

static void *own_id(void *out)
{
	CUcontext popped;
	ck_assert_int_eq(cu->cuCtxPushCurrent_v2(p.contexts[0]), CUDA_SUCCESS);
	*(uint64_t *)out = known(NULL, true).stream.id;
	ck_assert_int_eq(cu->cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
	return NULL;
}

START_TEST(ids_are_of_one_stream_only)
{
	uint64_t ids[8], others = 0;
	CUcontext second, popped;
	pthread_t t;
	start();
	ids[0] = known(NULL, false).stream.id;
	ids[1] = known(NULL, true).stream.id;
	ck_assert_uint_eq(known(CU_STREAM_LEGACY, true).stream.id, ids[0]);
	ck_assert_uint_eq(known(CU_STREAM_PER_THREAD, false).stream.id, ids[1]);
	ck_assert_int_eq(pthread_create(&t, NULL, own_id, &others), 0);
	pthread_join(t, NULL);
	ids[2] = others;
	second = second_context();
	ck_assert_int_eq(cu->cuCtxPushCurrent_v2(second), CUDA_SUCCESS);
	struct clv_cuda_stream in_second = known(NULL, false);
	ck_assert_ptr_eq(in_second.context, second);
	ids[3] = in_second.stream.id;
	ids[4] = known(NULL, true).stream.id;
	ck_assert_int_eq(cu->cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
	cleave_stream a = new_stream(0);
	ids[5] = a.id;
	clv_cuda_program_stream_end(&p, a);
	cleave_stream b = new_stream(0); /* perhaps by the same handle */
	ids[6] = b.id;
	ids[7] = CLEAVE_STREAM_ANY.id;
	for (int i = 0; i < 8; i++)
		for (int k = 0; k < i; k++)
			ck_assert_msg(ids[i] != ids[k], "%d and %d are both %llu", i, k, (unsigned long long)ids[i]);
	for (int i = 0; i < 7; i++)
		ck_assert(!(ids[i] & CLV_CUDA_VIRTUAL));
	/* in a context of this thread the id is still the same */
	ck_assert_uint_eq(known(NULL, false).stream.id, ids[0]);
	clv_cuda_context_forget(d, second);
	ck_assert_int_eq(cu->cuCtxDestroy_v2(second), CUDA_SUCCESS);
	clv_cuda_program_stream_end(&p, b);
	finish();
}
END_TEST

/* ---- a thread without a context ---- */

static cleave_stream first, other;

/* `captured`: a stream captures, so that a context cannot be waited for. */
static void *use_all(char *failed, bool captured)
{
	uint64_t addr = 0, plain = 0, free_bytes = 0, total = 0;
	clv_handle h = 0;
	CUcontext current = NULL;
	clv_event e = 0;
#define OK(call)                                                                                                       \
	do {                                                                                                           \
		enum clv_result r_ = (call);                                                                           \
		if (r_ != CLV_OK) {                                                                                    \
			snprintf(failed, 200, "%s: %s", #call, clv_result_name(r_));                                   \
			return NULL;                                                                                   \
		}                                                                                                      \
	} while (0)
	OK(d->mem_get_info(d, 0, &free_bytes, &total));
	OK(d->address_reserve(d, &addr, 4 * G, G));
	OK(d->create(d, &h, G, 0));
	OK(d->map(d, addr, G, 0, h));
	OK(d->set_access(d, addr, G, 0));
	OK(d->unmap(d, addr, G));
	OK(d->release(d, h));
	OK(d->address_free(d, addr, 4 * G));
	OK(d->mem_alloc(d, &plain, 4096, 0));
	OK(d->mem_free(d, plain));
	OK(d->event_create(d, &e, 0));
	OK(d->event_record(d, e, first));
	OK(d->stream_wait_event(d, other, e));
	OK(d->event_synchronize(d, e));
	OK(d->event_query(d, e));
	OK(d->stream_synchronize(d, other));
	OK(d->event_destroy(d, e));
	if (!captured)
		OK(clv_cuda_synchronize(d, 0, NULL));
	cu->cuCtxGetCurrent(&current);
	if (current || free_bytes > total || !free_bytes)
		strcpy(failed, "a context was left current, or what is free makes no sense");
	return NULL;
}

static void *without_context(void *failed)
{
	return use_all(failed, false);
}

static void *beside_a_capture(void *failed)
{
	return use_all(failed, true);
}

static void in_thread(void *(*run)(void *))
{
	char failed[200] = "";
	pthread_t t;
	ck_assert_int_eq(pthread_create(&t, NULL, run, failed), 0);
	pthread_join(t, NULL);
	ck_assert_str_eq(failed, "");
}

START_TEST(threads_need_no_context)
{
	start();
	first = new_stream(0);
	other = new_stream(0);
	in_thread(without_context);
	clv_cuda_program_stream_end(&p, first);
	clv_cuda_program_stream_end(&p, other);
	finish();
}
END_TEST

/* ---- order ---- */

START_TEST(events_follow_the_streams)
{
	_Atomic bool open = false, after = false;
	start();
	cleave_stream a = new_stream(0), b = new_stream(0);
	clv_event e = new_event(), f = new_event();
	ck_assert_int_eq(cu->cuLaunchHostFunc(handle_of(a), gate, &open), CUDA_SUCCESS);
	ck_assert_int_eq(d->event_record(d, e, a), CLV_OK);
	ck_assert_int_eq(d->stream_wait_event(d, b, e), CLV_OK);
	ck_assert_int_eq(d->event_record(d, f, b), CLV_OK);
	ck_assert_int_eq(d->event_query(d, e), CLV_NOT_READY);
	ck_assert_int_eq(d->event_query(d, f), CLV_NOT_READY);
	atomic_store(&open, true);
	ck_assert_int_eq(d->event_synchronize(d, f), CLV_OK);
	ck_assert_int_eq(d->event_query(d, e), CLV_OK);
	ck_assert_int_eq(cu->cuLaunchHostFunc(handle_of(b), set, &after), CUDA_SUCCESS);
	ck_assert_int_eq(d->stream_synchronize(d, b), CLV_OK);
	ck_assert(after);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, f), CLV_OK);
	clv_cuda_program_stream_end(&p, a);
	clv_cuda_program_stream_end(&p, b);
	finish();
}
END_TEST

static _Atomic bool let_go, was_done;
static pthread_barrier_t meet;
static struct clv_cuda_stream threads_own;

/* Work on the thread's default stream; then the thread stays until the other has looked. */
static void *work_on_own(void *failed)
{
	CUcontext popped;
	if (cu->cuCtxPushCurrent_v2(p.contexts[0]) != CUDA_SUCCESS ||
	    clv_cuda_stream(d, NULL, true, &threads_own) != CUDA_SUCCESS ||
	    cu->cuLaunchHostFunc(CU_STREAM_PER_THREAD, gate, &let_go) != CUDA_SUCCESS ||
	    cu->cuLaunchHostFunc(CU_STREAM_PER_THREAD, set, &was_done) != CUDA_SUCCESS)
		strcpy(failed, "work on the thread's default stream");
	pthread_barrier_wait(&meet);
	pthread_barrier_wait(&meet);
	cu->cuCtxPopCurrent_v2(&popped);
	return NULL;
}

START_TEST(another_threads_default_stream_is_waited_for)
{
	char failed[200] = "";
	pthread_t t;
	start();
	let_go = was_done = false;
	ck_assert_int_eq(pthread_barrier_init(&meet, NULL, 2), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, work_on_own, failed), 0);
	pthread_barrier_wait(&meet);
	ck_assert_str_eq(failed, "");
	clv_event e = new_event();
	ck_assert_int_eq(d->event_record(d, e, threads_own.stream), CLV_OK);
	ck_assert_int_eq(d->event_query(d, e), CLV_NOT_READY);
	ck_assert(!was_done);
	atomic_store(&let_go, true);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert(was_done);
	ck_assert_int_eq(d->stream_synchronize(d, threads_own.stream), CLV_OK);
	pthread_barrier_wait(&meet);
	pthread_join(t, NULL);
	/* the thread is gone, and what is left of its stream can still be asked for */
	ck_assert_int_eq(d->event_record(d, e, threads_own.stream), CLV_OK);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	pthread_barrier_destroy(&meet);
	finish();
}
END_TEST

START_TEST(events_of_a_context_that_is_gone_are_complete)
{
	CUcontext second, popped;
	CUstream s = NULL;
	start();
	second = second_context();
	ck_assert_int_eq(cu->cuCtxPushCurrent_v2(second), CUDA_SUCCESS);
	ck_assert_int_eq(cu->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(cu->cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
	struct clv_cuda_stream there = known(s, false);
	ck_assert_ptr_eq(there.context, second);
	ck_assert_int_eq(there.device, 0);
	cleave_stream here = new_stream(0);
	clv_event e = new_event();
	ck_assert_int_eq(d->event_record(d, e, there.stream), CLV_OK);
	ck_assert_int_eq(d->stream_wait_event(d, here, e), CLV_OK);
	/* recorded here it is made anew, and there again */
	ck_assert_int_eq(d->event_record(d, e, here), CLV_OK);
	ck_assert_int_eq(d->event_record(d, e, there.stream), CLV_OK);
	clv_cuda_context_forget(d, second);
	ck_assert_int_eq(cu->cuCtxDestroy_v2(second), CUDA_SUCCESS);
	ck_assert_int_eq(d->event_query(d, e), CLV_OK);
	ck_assert_int_eq(d->event_synchronize(d, e), CLV_OK);
	ck_assert_int_eq(d->event_record(d, e, there.stream), CLV_GONE);
	ck_assert_int_eq(d->event_record(d, e, here), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	clv_cuda_program_stream_end(&p, here);
	finish();
}
END_TEST

/* ---- captures ---- */

START_TEST(a_capture_stays_valid)
{
	CUgraph graph = NULL;
	start();
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};
	first = new_stream(0);
	other = new_stream(0);
	cleave_stream captured = new_stream(0);
	CUstream blocking = NULL;
	ck_assert_int_eq(cu->cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
	const cleave_stream streams[] = {captured, known(blocking, false).stream};
	struct clv_cuda_stream legacy = known(NULL, false);
	clv_event before = new_event(), e = new_event();
	for (size_t i = 0; i < CLV_ARRAY_LEN(modes) * 2; i++) {
		cleave_stream s = streams[i % 2];
		ck_assert_int_eq(d->event_record(d, before, first), CLV_OK);
		clv_cuda_captures_add(d, 1);
		ck_assert_int_eq(cu->cuStreamBeginCapture_v2(handle_of(s), modes[i / 2]), CUDA_SUCCESS);
		ck_assert_int_eq(d->event_record(d, e, s), CLV_CAPTURING);
		ck_assert_int_eq(d->stream_wait_event(d, s, before), CLV_CAPTURING);
		ck_assert_int_eq(d->stream_synchronize(d, s), CLV_CAPTURING);
		if (i % 2) { /* a blocking stream concerns the legacy one */
			ck_assert_int_eq(d->event_record(d, e, legacy.stream), CLV_CAPTURING);
			ck_assert_int_eq(d->stream_synchronize(d, legacy.stream), CLV_CAPTURING);
		} else {
			ck_assert_int_eq(d->event_record(d, e, legacy.stream), CLV_OK);
		}
		/* streams are met as ever, those that must not be asked without a call that would end the capture */
		if (i % 2 == 0)
			clv_cuda_stream_forget(d, legacy.stream.id);
		ck_assert_uint_eq(known(NULL, false).stream.id, legacy.stream.id);
		ck_assert_uint_eq(known(handle_of(s), false).stream.id, s.id);
		ck_assert_uint_ne(known(NULL, true).stream.id, legacy.stream.id);
		ck_assert_int_eq(clv_cuda_synchronize(d, 0, NULL), CLV_CAPTURING);
		ck_assert_int_eq(d->event_synchronize(d, before), CLV_OK);
		ck_assert_int_eq(d->event_query(d, before), CLV_OK);
		uint64_t addr = 0, plain = 0, free_bytes, total;
		clv_handle h = 0;
		ck_assert_int_eq(d->mem_get_info(d, 0, &free_bytes, &total), CLV_OK);
		ck_assert_int_eq(d->address_reserve(d, &addr, 4 * G, G), CLV_OK);
		ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OK);
		ck_assert_int_eq(d->map(d, addr, G, 0, h), CLV_OK);
		ck_assert_int_eq(d->set_access(d, addr, G, 0), CLV_OK);
		ck_assert_int_eq(d->unmap(d, addr, G), CLV_OK);
		ck_assert_int_eq(d->release(d, h), CLV_OK);
		ck_assert_int_eq(d->address_free(d, addr, 4 * G), CLV_OK);
		ck_assert_int_eq(d->mem_alloc(d, &plain, 4096, 0), CLV_OK);
		ck_assert_int_eq(d->mem_free(d, plain), CLV_OK);
		ck_assert_int_eq(d->event_record(d, e, first), CLV_OK);
		ck_assert_int_eq(d->stream_wait_event(d, other, e), CLV_OK);
		ck_assert_int_eq(d->stream_synchronize(d, other), CLV_OK);
		CUresult r = cu->cuStreamEndCapture(handle_of(s), &graph);
		clv_cuda_captures_add(d, -1);
		ck_assert_msg(r == CUDA_SUCCESS, "the capture is broken: error %d, mode %d", (int)r, (int)modes[i / 2]);
		ck_assert_int_eq(cu->cuGraphDestroy(graph), CUDA_SUCCESS);
		ck_assert_int_eq(d->event_record(d, e, s), CLV_OK);
	}
	/* in another thread, which a global capture concerns as well */
	cleave_stream s = captured;
	clv_cuda_captures_add(d, 1);
	ck_assert_int_eq(cu->cuStreamBeginCapture_v2(handle_of(s), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	in_thread(beside_a_capture);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, before), CLV_OK);
	ck_assert_int_eq(cu->cuStreamEndCapture(handle_of(s), &graph), CUDA_SUCCESS);
	clv_cuda_captures_add(d, -1);
	ck_assert_int_eq(cu->cuGraphDestroy(graph), CUDA_SUCCESS);
	ck_assert_int_eq(d->stream_synchronize(d, captured), CLV_OK);
	clv_cuda_program_stream_end(&p, first);
	clv_cuda_program_stream_end(&p, other);
	clv_cuda_program_stream_end(&p, captured);
	clv_cuda_program_stream_end(&p, known(blocking, false).stream);
	finish();
}
END_TEST

/* ---- frames ---- */

static void copy_at(cleave_stream s, uint64_t addr, uint64_t *word, bool write)
{
	CUcontext popped;
	ck_assert_int_eq(cu->cuCtxPushCurrent_v2(p.contexts[0]), CUDA_SUCCESS);
	ck_assert_int_eq(write ? cu->cuMemcpyHtoDAsync_v2(addr, word, 8, handle_of(s))
			       : cu->cuMemcpyDtoHAsync_v2(word, addr, 8, handle_of(s)),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cu->cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
	ck_assert_int_eq(d->stream_synchronize(d, s), CLV_OK);
}

START_TEST(frames_are_exported_and_imported)
{
	uint64_t addr = 0, word = 0x0123456789abcdefull, found = 0;
	clv_handle mine = 0, theirs = 0;
	CUresult why;
	start();
	cleave_stream s = new_stream(0);
	ck_assert_int_eq(d->address_reserve(d, &addr, 8 * G, G), CLV_OK);
	ck_assert_int_eq(d->create(d, &mine, 2 * G, 0), CLV_OK);
	ck_assert_int_eq(d->map(d, addr, 2 * G, 0, mine), CLV_OK);
	ck_assert_int_eq(d->set_access(d, addr, 2 * G, 0), CLV_OK);
	copy_at(s, addr + G + 64, &word, true);
	int fd = clv_cuda_export(d, mine, &why);
	ck_assert_msg(fd >= 0, "error %d", (int)why);
	ck_assert_int_eq(clv_cuda_import(d, fd, &theirs), CLV_OK);
	close(fd);
	ck_assert_int_eq(d->map(d, addr + 4 * G, 2 * G, 0, theirs), CLV_OK);
	ck_assert_int_eq(d->set_access(d, addr + 4 * G, 2 * G, 0), CLV_OK);
	copy_at(s, addr + 5 * G + 64, &found, false);
	ck_assert_uint_eq(found, word);
	/* what the driver refuses is told apart */
	ck_assert_int_eq(d->map(d, addr, 2 * G, 0, mine), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, addr, 2 * G), CLV_OK);
	ck_assert_int_eq(d->map(d, addr, G, G, mine), CLV_NOT_SUPPORTED);
	ck_assert_int_eq(d->unmap(d, addr + 4 * G, 2 * G), CLV_OK);
	ck_assert_int_eq(d->release(d, theirs), CLV_OK);
	ck_assert_int_eq(d->release(d, mine), CLV_OK);
	ck_assert_int_eq(d->create(d, &mine, (uint64_t)1 << 45, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(d->address_free(d, addr, 8 * G), CLV_OK);
	clv_cuda_program_stream_end(&p, s);
	finish();
}
END_TEST

START_TEST(a_peer_reads)
{
	uint64_t addr = 0, word = 0xfeedfacecafebeefull, found = 0;
	clv_handle h = 0;
	CUdevice devices[2];
	CUcontext popped;
	int can = 0;
	start();
	if (d->devices >= 2) {
		ck_assert_int_eq(cu->cuDeviceGet(&devices[0], 0), CUDA_SUCCESS);
		ck_assert_int_eq(cu->cuDeviceGet(&devices[1], 1), CUDA_SUCCESS);
		ck_assert_int_eq(cu->cuDeviceCanAccessPeer(&can, devices[1], devices[0]), CUDA_SUCCESS);
	}
	if (can) {
		cleave_stream s = new_stream(0);
		ck_assert(clv_cuda_peer(d, 0, 1));
		ck_assert_int_eq(d->address_reserve(d, &addr, G, G), CLV_OK);
		ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OK);
		ck_assert_int_eq(d->map(d, addr, G, 0, h), CLV_OK);
		ck_assert_int_eq(d->set_access(d, addr, G, 0), CLV_OK);
		copy_at(s, addr, &word, true);
		ck_assert_int_eq(cu->cuCtxPushCurrent_v2(p.contexts[1]), CUDA_SUCCESS);
		ck_assert_int_eq(cu->cuMemcpyDtoH_v2(&found, addr, 8), CUDA_SUCCESS);
		ck_assert_int_eq(cu->cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
		ck_assert_uint_eq(found, word);
		ck_assert_int_eq(d->unmap(d, addr, G), CLV_OK);
		ck_assert_int_eq(d->release(d, h), CLV_OK);
		ck_assert_int_eq(d->address_free(d, addr, G), CLV_OK);
		clv_cuda_program_stream_end(&p, s);
	}
	finish();
}
END_TEST

/* ---- the public API ---- */

START_TEST(the_heap_on_streams_that_nobody_told_of)
{
	cleave_driver *driver = NULL;
	cleave_heap *heap = NULL;
	cleave_ptr x = 0, y = 0, z = 0;
	cleave_heap_stats stats;
	_Atomic bool open = false;
	CUstream handles[2];
	cleave_stream s[3];
	unsigned long long id = 0;
	start();
	ck_assert_int_eq(cleave_driver_open(&driver, "cuda"), 0);
	ck_assert_int_eq(cleave_heap_open(&heap, driver, NULL, NULL, 0), 0);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 64 * CLV_MIB), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(cu->cuStreamCreate(&handles[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
		ck_assert_int_eq(cu->cuStreamGetId(handles[i], &id), CUDA_SUCCESS);
		s[i] = (cleave_stream){id, (uintptr_t)handles[i]};
	}
	ck_assert_int_eq(cu->cuStreamGetId(CU_STREAM_LEGACY, &id), CUDA_SUCCESS);
	s[2] = (cleave_stream){id, 0};
	/* there is room for one block: it passes from stream to stream, in their order and without a wait of the host */
	ck_assert_int_eq(cleave_alloc(heap, 0, s[0], 60 * CLV_MIB, &x), 0);
	ck_assert_int_eq(cu->cuLaunchHostFunc(handles[0], gate, &open), CUDA_SUCCESS);
	ck_assert_int_eq(cleave_free(heap, x, s[0]), 0);
	ck_assert_int_eq(cleave_alloc(heap, 0, s[1], 60 * CLV_MIB, &y), 0);
	ck_assert(!open);
	ck_assert_int_eq(cu->cuStreamQuery(handles[1]), CUDA_ERROR_NOT_READY);
	atomic_store(&open, true);
	ck_assert_int_eq(cleave_free(heap, y, s[1]), 0);
	ck_assert_int_eq(cleave_alloc(heap, 0, s[2], 60 * CLV_MIB, &z), 0);
	ck_assert_int_eq(cleave_free(heap, z, s[2]), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(cleave_stream_destroyed(heap, 0, s[i]), 0);
		ck_assert_int_eq(cu->cuStreamDestroy_v2(handles[i]), CUDA_SUCCESS);
	}
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &stats), 0);
	ck_assert_uint_eq(stats.host_waits, 0);
	ck_assert_uint_eq(stats.live_bytes, 0);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_int_eq(cleave_heap_check(heap, NULL, 0), 0);
	cleave_heap_close(heap);
	cleave_driver_close(driver);
	finish();
}
END_TEST

/* A stream is destroyed whose work goes on: what was freed on it is neither waited for nor given to others. */
START_TEST(a_destroyed_stream_is_not_waited_for)
{
	_Atomic bool open = false;
	cleave_heap *heap = NULL;
	cleave_ptr x, y;
	cleave_heap_stats stats;
	start();
	cleave_stream s = new_stream(0), gone = new_stream(0);
	ck_assert_int_eq(cleave_heap_open(&heap, d, NULL, NULL, 0), 0);
	ck_assert_int_eq(cleave_heap_set_limit(heap, 0, 64 * CLV_MIB), 0);
	ck_assert_int_eq(cleave_alloc(heap, 0, gone, 40 * CLV_MIB, &x), 0);
	ck_assert_int_eq(cu->cuLaunchHostFunc(handle_of(gone), gate, &open), CUDA_SUCCESS);
	ck_assert_int_eq(cleave_free(heap, x, gone), 0);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, gone), 0);
	clv_cuda_program_stream_end(&p, gone);
	ck_assert_int_eq(cleave_alloc(heap, 0, s, 20 * CLV_MIB, &y), 0);
	/* elsewhere, or behind what the stream still does */
	bool apart = y + 20 * CLV_MIB <= x || x + 40 * CLV_MIB <= y;
	ck_assert(apart || cu->cuStreamQuery(handle_of(s)) == CUDA_ERROR_NOT_READY);
	ck_assert(!open);
	ck_assert_int_eq(cleave_free(heap, y, s), 0);
	/* in the order of another stream it can be used */
	ck_assert_int_eq(cleave_alloc(heap, 0, s, 60 * CLV_MIB, &y), 0);
	ck_assert_int_eq(cu->cuStreamQuery(handle_of(s)), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &stats), 0);
	ck_assert_uint_eq(stats.host_waits, 0);
	ck_assert(!open);
	atomic_store(&open, true);
	ck_assert_int_eq(cleave_free(heap, y, s), 0);
	ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 60 * CLV_MIB, &y), 0);
	ck_assert_int_eq(cleave_free(heap, y, CLEAVE_STREAM_ANY), 0);
	ck_assert_int_eq(cleave_heap_check(heap, NULL, 0), 0);
	cleave_heap_close(heap);
	clv_cuda_program_stream_end(&p, s);
	finish();
}
END_TEST

/* ---- what it costs ---- */

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

START_TEST(times)
{
	enum { N = 100000 };
	start();
	cleave_stream s = new_stream(0);
	struct clv_cuda_stream out;
	clv_event e = new_event();
	uint64_t t0 = now();
	for (int i = 0; i < N; i++)
		clv_cuda_stream(d, handle_of(s), false, &out);
	uint64_t t1 = now();
	for (int i = 0; i < N; i++)
		clv_cuda_stream(d, NULL, false, &out);
	uint64_t t2 = now();
	for (int i = 0; i < N / 10; i++)
		d->event_record(d, e, s);
	uint64_t t3 = now();
	for (int i = 0; i < N / 10; i++)
		d->event_query(d, e);
	uint64_t t4 = now();
	printf("ns: clv_cuda_stream %.0f, of the default stream %.0f, event_record %.0f, event_query %.0f\n",
	       (double)(t1 - t0) / N, (double)(t2 - t1) / N, (double)(t3 - t2) * 10 / N, (double)(t4 - t3) * 10 / N);
	fflush(stdout);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	clv_cuda_program_stream_end(&p, s);
	finish();
}
END_TEST

int main(void)
{
	const TTest *const all[] = {
		ids_are_of_one_stream_only,
		threads_need_no_context,
		events_follow_the_streams,
		another_threads_default_stream_is_waited_for,
		events_of_a_context_that_is_gone_are_complete,
		a_capture_stays_valid,
		frames_are_exported_and_imported,
		a_peer_reads,
		the_heap_on_streams_that_nobody_told_of,
		a_destroyed_stream_is_not_waited_for,
		times,
	};
	/* looked at in a process of its own: what has initialised CUDA cannot be forked by Check */
	pid_t child = fork();
	if (child == 0) {
		struct clv_error err = {{0}};
		bool there = clv_cuda_program_open(&p, NULL, 1, &err);
		if (!there)
			puts(err.text);
		clv_cuda_program_close(&p);
		fflush(stdout);
		_exit(there ? 0 : 77);
	}
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
		return WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : 1;
	return check_main_run("cuda_real", all, sizeof(all) / sizeof(all[0]));
}
