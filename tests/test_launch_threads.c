/* SPDX-License-Identifier: MIT
 *
 * Launches of graphs by threads that end, on their default streams: what is known of these is counted. launch.c and threads.c
 * over the cuda driver and fakes; what else they call does nothing here.
 */
#include "../src/host/meta.h"
#include "../src/preload/graphs.h"
#include "check_main.h"
#include "fake_cuda.h"

#include <pthread.h>

#define AT_MOST 24u /* streams of threads that have ended, and the bytes for each */
#define EACH 512u

static struct clv_cuda_api api;
static struct clv_process process;
static CUcontext context;
static _Atomic unsigned launches;

/* ---- what stands around ---- */

_Atomic(const struct clv_cuda_api *) clv_real_found;
_Atomic(const struct clv_process *) clv_process_opened;
_Atomic bool clv_graphs_news;

const struct clv_cuda_api *clv_real_find(void)
{
	return &api;
}

const struct clv_process *clv_process_open(void)
{
	return NULL;
}

void clv_say(const char *fmt, ...)
{
	ck_abort_msg("%s", fmt);
}

bool clv_trim_for_retry(int *step)
{
	return *step < 0;
}

struct clv_capture_info clv_capture_info(const struct clv_cuda_stream *s)
{
	(void)s;
	return (struct clv_capture_info){.status = CU_STREAM_CAPTURE_STATUS_NONE};
}

void clv_graphs_stream_ends(const struct clv_process *p, const struct clv_cuda_stream *s)
{
	clv_launches_off(p, s);
}

void clv_graphs_ended(void)
{
}

struct clv_objects clv_objects_take(const void *handle)
{
	(void)handle;
	return (struct clv_objects){NULL};
}

struct clv_objects clv_objects_out(CUgraph graph)
{
	return clv_objects_take(graph);
}

void clv_objects_copied(CUgraph copy, CUgraph graph)
{
	(void)copy, (void)graph;
}

void clv_objects_keep(const void *handle, struct clv_objects objects)
{
	(void)handle, (void)objects;
}

void clv_objects_drop(struct clv_objects objects)
{
	(void)objects;
}

void clv_objects_end(struct clv_objects objects, uint64_t devices)
{
	(void)objects, (void)devices;
}

void clv_objects_back(CUgraph graph, struct clv_objects objects, CUgraphExec exec)
{
	(void)graph, (void)objects, (void)exec;
}

void clv_objects_become_part(CUgraph graph, CUgraphExec exec)
{
	(void)graph, (void)exec;
}

static CUresult fake_launch(CUgraphExec exec, CUstream stream)
{
	(void)exec, (void)stream;
	launches++;
	return CUDA_SUCCESS;
}

/* ---- */

static void start(void)
{
	struct clv_error err = {{0}};
	fake_reset();
	fake.done = true;
	api = fake_api;
	api.cuGraphLaunch = api.cuGraphLaunch_ptsz = fake_launch;
	clv_settings_parse(&process.settings, NULL, &err);
	process.driver = clv_cuda_open(&(struct clv_cuda_config){.api = &fake_api}, &err);
	ck_assert_msg(process.driver != NULL, "%s", err.text);
	ck_assert_int_eq(clv_heap_open(&process.heap, process.driver, &process.settings), 0);
	context = fake_context(0, 0);
	fake_set_current(context);
	clv_process_opened = &process;
}

static void finish(void)
{
	ck_assert_str_eq(fake_wrong(), "");
	cleave_heap_close(process.heap);
	process.driver->close(process.driver);
}

static void count_one(void *arg, const struct clv_cuda_stream *s)
{
	(void)s;
	++*(unsigned *)arg;
}

static unsigned streams_known(void)
{
	unsigned count = 0;
	clv_cuda_streams_each(process.driver, NULL, count_one, &count);
	return count;
}

/* An executable with memory of ours; its name is all that counts. */
static CUgraphExec make_exec(uintptr_t name)
{
	ck_assert(clv_handle_mark((CUgraph)name, 1));
	return (CUgraphExec)name;
}

static void *launches_alone(void *exec)
{
	fake_set_current(context);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(cuGraphLaunch_ptsz(exec, NULL), CUDA_SUCCESS);
		ck_assert_int_eq(cuGraphLaunch(exec, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	}
	return NULL;
}

static void run_threads(unsigned count, unsigned at_once, CUgraphExec exec)
{
	pthread_t t[8];
	for (unsigned done = 0; done < count; done += at_once) {
		for (unsigned i = 0; i < at_once; i++)
			ck_assert_int_eq(pthread_create(&t[i], NULL, launches_alone, exec), 0);
		for (unsigned i = 0; i < at_once; i++)
			pthread_join(t[i], NULL);
	}
}

START_TEST(threads_that_only_launch_leave_nothing)
{
	start();
	CUgraphExec exec = make_exec(0x7f0012345670);
	for (unsigned at_once = 1; at_once <= 8; at_once *= 8) {
		run_threads(64, at_once, exec);
		ck_assert_uint_le(streams_known(), AT_MOST);
		size_t before = clv_meta_bytes();
		run_threads(400, at_once, exec);
		ck_assert_uint_le(streams_known(), AT_MOST);
		ck_assert_uint_le(clv_meta_bytes(), before + AT_MOST * EACH);
	}
	ck_assert_uint_eq(launches, 2 * 464 * 6);
	finish();
}
END_TEST

/* Its own stream stays known to a thread that lives, whoever else ends. */
START_TEST(a_thread_that_lives_keeps_its_stream)
{
	start();
	CUgraphExec exec = make_exec(0x7f0012345670);
	struct clv_cuda_stream own, again;
	ck_assert_int_eq(clv_stream(&process, NULL, true, &own), CUDA_SUCCESS);
	launches_alone(exec);
	run_threads(64, 1, exec);
	ck_assert(clv_cuda_stream_known(process.driver, own.stream.id, &again));
	launches_alone(exec);
	ck_assert_int_eq(clv_stream(&process, NULL, true, &again), CUDA_SUCCESS);
	ck_assert_uint_eq(own.stream.id, again.stream.id);
	finish();
}
END_TEST

CHECK_MAIN("launch_threads", threads_that_only_launch_leave_nothing, a_thread_that_lives_keeps_its_stream)
