/* SPDX-License-Identifier: MIT
 *
 * Both sides of IPC between two processes: this one imports, another exports (ipc_world.h). test_ipc_hostile.c has those
 * that do not keep to the rules.
 */
#define _GNU_SOURCE
#include "check_main.h"
#include "ipc_world.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define G IPC_GRANULARITY

static CUipcMemHandle handle_of(const struct ipc_exporter *x, unsigned i)
{
	struct ipc_answer a = ipc_tell(x, (struct ipc_order){.op = IPC_HANDLE, .i = i});
	ck_assert_int_eq(a.result, CUDA_SUCCESS);
	return a.handle;
}

static CUipcMemHandle made(const struct ipc_exporter *x, unsigned i, unsigned frames, uint64_t offset, uint64_t size)
{
	ipc_tell(x, (struct ipc_order){.op = IPC_MAKE,
				       .i = i,
				       .frames = frames,
				       .bytes = G,
				       .offset = offset,
				       .size = size,
				       .seed = i});
	return handle_of(x, i);
}

static void ck_clean(unsigned descriptors)
{
	ck_assert_uint_eq(world.ranges, 0);
	ck_assert_uint_eq(world.handles, 0);
	ck_assert_uint_eq(world.mapped, 0);
	ck_assert_uint_eq(ipc_descriptors(), descriptors);
}

static void ck_said(const char *what)
{
	ck_assert_msg(strstr(world.said, what), "\"%s\" does not say \"%s\"", world.said, what);
}

/* Blocks of random shapes: each side sees what the other writes, and closing gives everything back. */
START_TEST(contents)
{
	struct ipc_exporter x = ipc_start();
	struct clv_rng rng = {1};
	CUdeviceptr at[24];
	uint64_t sizes[24];
	const unsigned descriptors = ipc_descriptors();
	unsigned theirs = 0;
	for (unsigned i = 0; i < 24; i++) {
		unsigned frames = (unsigned)clv_rng_range(&rng, 1, 1 + i);
		uint64_t offset = clv_rng_below(&rng, G / CLV_GRAIN) * CLV_GRAIN;
		uint64_t least = frames == 1 ? 8 : (frames - 1) * G - offset + 8;
		sizes[i] = clv_rng_range(&rng, least, frames * G - offset) & ~7ull;
		CUipcMemHandle h = made(&x, i, frames, offset, sizes[i]);
		if (!i) /* the server is up */
			theirs = ipc_at_rest(&x);
		else
			theirs += frames;
		ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at[i], h, 1), CUDA_SUCCESS);
		ck_assert(ipc_filled(at[i], sizes[i], i));
		ipc_fill(at[i], sizes[i], 100 + i);
	}
	for (unsigned i = 0; i < 24; i++) {
		CUdeviceptr start = 0;
		size_t size = 0;
		ck_assert_int_eq(ipc_tell(&x, (struct ipc_order){.op = IPC_FILLED, .i = i, .seed = 100 + i}).value, 1);
		ipc_tell(&x, (struct ipc_order){.op = IPC_FILL, .i = i, .seed = 200 + i});
		ck_assert(ipc_filled(at[i], sizes[i], 200 + i));
		ck_assert(clv_ipc_opened(at[i] + sizes[i] - 1, &start, &size));
		ck_assert_uint_eq(start, at[i]);
		ck_assert_uint_eq(size, sizes[i]);
		ck_assert(!clv_ipc_opened(at[i] - 1, &start, &size) || start != at[i]);
	}
	for (unsigned i = 0; i < 24; i++) {
		unsigned waits = world.synchronized;
		ck_assert_int_eq(cuIpcCloseMemHandle(at[i]), CUDA_SUCCESS);
		ck_assert_uint_gt(world.synchronized, waits);
		ck_assert(!clv_ipc_opened(at[i], NULL, NULL));
	}
	ck_clean(descriptors);
	ipc_calm(&x, theirs);
	ck_assert_uint_eq(world.says, 0);
	ipc_kill(&x);
}
END_TEST

/* A handle is of the block, whichever address was asked about, and opening gives its start. */
START_TEST(interior)
{
	struct ipc_exporter x = ipc_start();
	CUdeviceptr at;
	CUipcMemHandle h = made(&x, 3, 2, 1024, G);
	struct ipc_answer inside = ipc_tell(&x, (struct ipc_order){.op = IPC_HANDLE, .i = 3, .offset = G - 1});
	ck_assert_int_eq(inside.result, CUDA_SUCCESS);
	ck_assert_mem_eq(&inside.handle, &h, sizeof(h));
	ck_assert_int_eq(ipc_tell(&x, (struct ipc_order){.op = IPC_HANDLE, .i = 3, .offset = G}).result,
			 IPC_DRIVERS_GET);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, inside.handle, 0), CUDA_SUCCESS);
	ck_assert(ipc_filled(at, G, 3));
	ck_assert_int_eq(cuIpcCloseMemHandle(at + 8), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
	ck_assert_int_eq(cuIpcCloseMemHandle(at), IPC_DRIVERS_CLOSE);
	ipc_kill(&x);
}
END_TEST

START_TEST(counted)
{
	struct ipc_exporter x = ipc_start();
	CUdeviceptr first, again, other;
	CUipcMemHandle h = made(&x, 0, 5, 512, 4 * G);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&first, h, 1), CUDA_SUCCESS);
	uint64_t mapped = world.mapped;
	ck_assert_int_eq(cuIpcOpenMemHandle(&again, h, 1), CUDA_SUCCESS);
	ck_assert_uint_eq(first, again);
	ck_assert_uint_eq(world.mapped, mapped);
	/* another context has an address of its own */
	world.context = (CUcontext)0x200;
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&other, h, 1), CUDA_SUCCESS);
	ck_assert_uint_ne(first, other);
	ck_assert(ipc_filled(other, 4 * G, 0));
	ck_assert_int_eq(cuIpcCloseMemHandle(other), CUDA_SUCCESS);
	ck_assert_int_eq(cuIpcCloseMemHandle(other), IPC_DRIVERS_CLOSE);
	/* the count outlives the exporting process */
	ipc_kill(&x);
	ck_assert_int_eq(cuIpcCloseMemHandle(first), CUDA_SUCCESS);
	ck_assert(ipc_filled(first, 4 * G, 0));
	ck_assert_int_eq(cuIpcCloseMemHandle(first), CUDA_SUCCESS);
	ck_assert_int_eq(cuIpcCloseMemHandle(first), IPC_DRIVERS_CLOSE);
	ck_assert_uint_eq(world.ranges, 0);
}
END_TEST

/* More frames than fit in one message, and more than either process has descriptors for. */
START_TEST(many_frames)
{
	struct ipc_exporter x = ipc_start();
	CUdeviceptr at;
	const unsigned frames = 333;
	CUipcMemHandle h = made(&x, 0, frames, 4096, (frames - 1) * G);
	const unsigned theirs = ipc_at_rest(&x);
	for (unsigned few = 0; few < 2; few++) {
		unsigned descriptors = ipc_descriptors();
		if (few) {
			ipc_calm(&x, theirs);
			ipc_tell(&x, (struct ipc_order){.op = IPC_LEAVE, .size = 5});
			ipc_leave(4);
		}
		ck_assert_msg(!cuIpcOpenMemHandle_v2(&at, h, 1), "%u: %s", few, world.said);
		ck_assert(ipc_filled(at, (frames - 1) * G, 0));
		ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
		ck_clean(descriptors);
	}
	/* one for the socket, and none for a frame */
	ipc_leave(1);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("this process has no file descriptor left");
	ipc_leave(0);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("no socket");
	ipc_leave(50);
	/* the exporter has one for the connection, and none for a frame */
	ipc_calm(&x, theirs);
	ipc_tell(&x, (struct ipc_order){.op = IPC_LEAVE, .size = 1});
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("could not get a file descriptor");
	/* not even for the connection: it waits its turn */
	ipc_calm(&x, theirs);
	ipc_tell(&x, (struct ipc_order){.op = IPC_LEAVE, .size = 0});
	clv_ipc_patience_ms = 150;
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("does not answer");
	ck_assert_uint_eq(world.ranges, 0);
	ipc_kill(&x);
}
END_TEST

/* A handle dies with its block, also if another block comes to the same address; an open mapping does not. */
START_TEST(freed)
{
	struct ipc_exporter x = ipc_start();
	CUdeviceptr at, never;
	CUipcMemHandle h = made(&x, 0, 3, 512, 2 * G);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_SUCCESS);
	ipc_tell(&x, (struct ipc_order){.op = IPC_FREE});
	ck_assert(ipc_filled(at, 2 * G, 0));
	world.context = (CUcontext)0x200; /* in which it is not open */
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&never, h, 1), CUDA_ERROR_INVALID_VALUE);
	ck_said("was freed");
	CUipcMemHandle h2 = made(&x, 0, 3, 512, 2 * G); /* the exporter's mmap gives the same address */
	ck_assert(memcmp(&h, &h2, sizeof(h)));
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&never, h, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&never, h2, 1), CUDA_SUCCESS);
	ck_assert_int_eq(cuIpcCloseMemHandle(never), CUDA_SUCCESS);
	ipc_tell(&x, (struct ipc_order){.op = IPC_END});
	ck_assert(ipc_filled(at, 2 * G, 0));
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&never, h2, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("has ended");
	ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
	ck_assert_uint_eq(world.mapped, 0);
}
END_TEST

START_TEST(silent)
{
	struct ipc_exporter x = ipc_start();
	CUdeviceptr at;
	CUipcMemHandle h = made(&x, 0, 1, 0, G);
	unsigned descriptors = ipc_descriptors();
	clv_ipc_patience_ms = 100;
	kill(x.pid, SIGSTOP);
	waitpid(x.pid, NULL, WUNTRACED);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("does not answer");
	ck_clean(descriptors);
	kill(x.pid, SIGCONT);
	clv_ipc_patience_ms = 10000;
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_SUCCESS);
	ipc_kill(&x);
}
END_TEST

/* What is not ours goes to the driver; what is ours and cannot be is refused, with the reason. */
START_TEST(refused)
{
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle h = made(&x, 0, 1, 0, G), bad = {{1, 2, 3}}, own;
	struct clv_ipc_handle ours;
	CUdeviceptr at, here = ipc_make(0, 1, G, 0, G, 7);
	ck_assert_int_eq(cuIpcGetMemHandle(&own, here + G), IPC_DRIVERS_GET);
	ck_assert_int_eq(cuIpcGetMemHandle(NULL, here), IPC_DRIVERS_GET);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, bad, 1), IPC_DRIVERS_OPEN);
	ck_assert_int_eq(cuIpcOpenMemHandle(&at, bad, 1), IPC_DRIVERS_OPEN);
	ck_assert_int_eq(cuIpcCloseMemHandle(here), IPC_DRIVERS_CLOSE);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(NULL, h, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 2), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(world.says, 0);

	ck_assert_int_eq(cuIpcGetMemHandle(&own, here), CUDA_SUCCESS);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, own, 1), CUDA_ERROR_INVALID_CONTEXT);
	ck_said("this process");
	for (unsigned i = 8; i < sizeof(bad); i++) {
		bad = h;
		bad.reserved[i] ^= 1;
		ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, bad, 1), CUDA_ERROR_INVALID_VALUE);
	}
	ck_said("damaged");
	memcpy(&ours, &h, sizeof(ours));
	world.says = 0;
	ours.version++;
	ours.check = clv_ipc_check(&ours);
	memcpy(&bad, &ours, sizeof(bad));
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, bad, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(world.says, 0); /* enough was said */
	world.context = NULL;
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_uint_eq(world.ranges, 0);
	ipc_kill(&x);
}
END_TEST

START_TEST(switched_off)
{
	CUipcMemHandle h;
	CUdeviceptr at, here = ipc_make(0, 1, G, 0, G, 7);
	ipc_world_serve(true, false);
	ck_assert_int_eq(cuIpcGetMemHandle(&h, here), CUDA_ERROR_INVALID_VALUE);
	ck_said("ipc:off");
	ipc_world_serve(true, true);
	struct ipc_exporter x = ipc_start();
	h = made(&x, 0, 1, 0, G);
	ipc_world_serve(true, false);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_INVALID_VALUE);
	ck_said("ipc:off in this one");
	/* a process that is passed through */
	ipc_world_serve(false, false);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), IPC_DRIVERS_OPEN);
	ck_said("is off in this one");
	ck_assert_int_eq(cuIpcGetMemHandle(&h, here), IPC_DRIVERS_GET);
	ck_assert_int_eq(cuIpcCloseMemHandle(here), IPC_DRIVERS_CLOSE);
	ipc_kill(&x);
}
END_TEST

START_TEST(not_exportable)
{
	struct ipc_exporter x = ipc_start();
	CUdeviceptr at;
	ipc_tell(&x, (struct ipc_order){.op = IPC_MAKE, .frames = 20, .bytes = G, .size = 20 * G});
	ipc_tell(&x, (struct ipc_order){.op = IPC_FAIL_EXPORT, .size = 1});
	struct ipc_answer a = ipc_tell(&x, (struct ipc_order){.op = IPC_HANDLE});
	ck_assert_int_eq(a.result, CUDA_ERROR_INVALID_VALUE);
	ck_assert(strstr(a.said, "no descriptor"));
	/* one that fails later is asked for again, and then the reason is given */
	CUipcMemHandle h = handle_of(&x, 0);
	ipc_tell(&x, (struct ipc_order){.op = IPC_FAIL_EXPORT, .size = 6});
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_SUCCESS);
	ck_assert(ipc_filled(at, 20 * G, 0));
	ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
	ipc_tell(&x, (struct ipc_order){.op = IPC_FAIL_EXPORT, .size = 1});
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("error 801");
	ipc_kill(&x);
}
END_TEST

/* Whichever call of the driver fails, nothing stays behind, and the next attempt succeeds. */
START_TEST(driver_fails)
{
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle h = made(&x, 0, 4, 512, 3 * G);
	CUdeviceptr at;
	unsigned descriptors = ipc_descriptors();
	for (int k = 1; k <= 10; k++) { /* reserve, import and map of each frame, access */
		for (unsigned oom = 0; oom < 2; oom++) {
			world.fail_at = k;
			world.failure = oom ? CLV_OUT_OF_MEMORY : CLV_FAILED;
			ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1),
					 oom ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_MAP_FAILED);
			ck_clean(descriptors);
		}
	}
	world.fail_at = 0;
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_SUCCESS);
	ck_assert(ipc_filled(at, 3 * G, 0));
	world.captures = true;
	ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	world.captures = false;
	ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
	ck_clean(descriptors);
	ipc_kill(&x);
}
END_TEST

/* Memory of another device than the one that opens it: access is for the opener and for the owner's peers. */
START_TEST(peers)
{
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle h = made(&x, 0, 2, 0, 2 * G);
	CUdeviceptr at;
	world.owner = 1;
	world.no_access = true;
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("device 0 cannot reach the memory of device 1");
	ck_assert_uint_eq(world.mapped, 0);
	world.no_access = false;
	world.foreign_accesses = 0;
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_SUCCESS);
	ck_assert(ipc_filled(at, 2 * G, 0));
	ck_assert_uint_eq(world.foreign_accesses, 1);
	world.peers = true;
	clv_ipc_access(clv_process(), 0);
	ck_assert_uint_eq(world.foreign_accesses, 1);
	clv_ipc_access(clv_process(), 1);
	ck_assert_uint_eq(world.foreign_accesses, 3);
	ck_assert_uint_eq(world.accesses, 0);
	/* the owner opens it, too */
	world.device = 1;
	world.context = (CUcontext)0x200;
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_SUCCESS);
	ck_assert_uint_eq(world.accesses, 1);
	clv_ipc_access(clv_process(), 1);
	ck_assert_uint_eq(world.accesses, 2);
	ck_assert_uint_eq(world.foreign_accesses, 5);
	ipc_kill(&x);
}
END_TEST

START_TEST(context_gone)
{
	struct ipc_exporter x = ipc_start();
	CUdeviceptr at[6];
	for (unsigned i = 0; i < 6; i++) {
		CUipcMemHandle h = made(&x, i, 2, 0, 2 * G);
		world.context = (CUcontext)(uintptr_t)(0x100 + 0x100 * (i % 2));
		ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at[i], h, 1), CUDA_SUCCESS);
		ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at[i], h, 1), CUDA_SUCCESS);
	}
	clv_ipc_context_gone(clv_process(), (CUcontext)0x200);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_int_eq(clv_ipc_opened(at[i], NULL, NULL), i % 2 == 0);
	ck_assert_uint_eq(world.ranges, 3);
	clv_ipc_context_gone(clv_process(), (CUcontext)0x100);
	ck_assert_uint_eq(world.ranges, 0);
	ck_assert_uint_eq(world.mapped, 0);
	ipc_kill(&x);
}
END_TEST

/* A child that the exporting process leaves behind does not answer, nor does it keep the socket. */
START_TEST(forked)
{
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle h = made(&x, 0, 1, 0, G);
	CUdeviceptr at;
	pid_t child = (pid_t)ipc_tell(&x, (struct ipc_order){.op = IPC_FORK}).value;
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_SUCCESS);
	ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
	ipc_kill(&x);
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_ERROR_MAP_FAILED);
	ck_said("has ended");
	kill(child, SIGKILL);
}
END_TEST

/* A program that closes descriptors it does not know takes the socket with it: new handles are of a new one. */
START_TEST(socket_closed)
{
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle h = made(&x, 0, 1, 0, G), h2 = h;
	CUdeviceptr at;
	ipc_tell(&x, (struct ipc_order){.op = IPC_CLOSE_ALL});
	for (unsigned i = 0; i < 1000 && !memcmp(&h, &h2, sizeof(h)); i++) {
		ck_assert_int_ne(cuIpcOpenMemHandle_v2(&at, h, 1), CUDA_SUCCESS); /* wakes the thread */
		h2 = handle_of(&x, 0);
	}
	ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, h2, 1), CUDA_SUCCESS);
	ck_assert(ipc_filled(at, G, 0));
	ipc_kill(&x);
}
END_TEST

struct opener {
	CUipcMemHandle handles[8];
	uint64_t seed;
};

static void *open_and_close(void *arg)
{
	struct opener *o = arg;
	struct clv_rng rng = {o->seed};
	for (unsigned n = 0; n < 40; n++) {
		unsigned i = (unsigned)clv_rng_below(&rng, 8);
		CUdeviceptr at = 0;
		if (cuIpcOpenMemHandle_v2(&at, o->handles[i], 1) != CUDA_SUCCESS || !ipc_filled(at, G, i) ||
		    !clv_ipc_opened(at + 1, NULL, NULL) || cuIpcCloseMemHandle(at) != CUDA_SUCCESS)
			return "failed";
	}
	return NULL;
}

/* Threads open and close the same blocks while threads of the exporter export and free others. */
START_TEST(threads)
{
	struct ipc_exporter x = ipc_start();
	struct opener o[3];
	pthread_t t[3];
	for (unsigned i = 0; i < 8; i++)
		o[0].handles[i] = made(&x, i, 3, 512 * i, 2 * G);
	ipc_tell(&x, (struct ipc_order){.op = IPC_CHURN});
	for (unsigned i = 0; i < 3; i++) {
		memcpy(o[i].handles, o[0].handles, sizeof(o[i].handles));
		o[i].seed = i;
		ck_assert(!pthread_create(&t[i], NULL, open_and_close, &o[i]));
	}
	for (unsigned i = 0; i < 3; i++) {
		void *failed;
		pthread_join(t[i], &failed);
		ck_assert_ptr_null(failed);
	}
	ipc_tell(&x, (struct ipc_order){.op = IPC_CALM});
	ck_assert_uint_eq(world.ranges, 0);
	ipc_kill(&x);
}
END_TEST

/* A block that is freed while it is opened is there whole, or refused. */
START_TEST(freed_meanwhile)
{
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle none = {{0}};
	CUdeviceptr at;
	ipc_tell(&x, (struct ipc_order){.op = IPC_CHURN});
	for (unsigned n = 0; n < 300; n++) {
		struct ipc_answer a = ipc_tell(&x, (struct ipc_order){.op = IPC_CHURNED});
		if (!memcmp(&a.handle, &none, sizeof(none)))
			continue;
		CUresult r = cuIpcOpenMemHandle_v2(&at, a.handle, 1);
		ck_assert_msg(r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_VALUE, "%s", world.said);
		if (r != CUDA_SUCCESS)
			continue;
		ck_assert(ipc_filled(at, G, 77));
		ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
	}
	ipc_tell(&x, (struct ipc_order){.op = IPC_CALM});
	ck_assert_uint_eq(world.ranges, 0);
	ipc_kill(&x);
}
END_TEST

CHECK_MAIN("ipc", contents, interior, counted, many_frames, freed, silent, refused, switched_off, not_exportable,
	   driver_fails, peers, context_gone, forked, socket_closed, threads, freed_meanwhile)
