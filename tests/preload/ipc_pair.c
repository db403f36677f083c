/* SPDX-License-Identifier: MIT
 *
 * ipc_pair plain|async|frames|refused [DEVICE]: memory of one process in another, by a program that knows the Driver API
 * and nothing of Cleave. One process exports, another imports (on device 0, or DEVICE), and each verifies what the other
 * wrote. Exits 0 if all is right, and prints how many blocks went over, and on the double of the driver whether as frames.
 *
 * plain    cuMemAlloc
 * async    cuMemAllocAsync, which a driver cannot share; the exporter frees some blocks early and ends first
 * frames   the same, one block in as many frames as there are
 * refused  cuMemAllocAsync; every export is refused
 */
#define _GNU_SOURCE
#include "../../src/base/base.h"
#include "../../src/driver/cuda_calls.h"
#include "../libcuda/fakecuda.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 40
#define BUSY 110 /* blocks that leave their frames to the one of `frames` */

static struct clv_cuda_api cu;
static void *lib;
static const char *side;

static void check(bool good, const char *what, long number)
{
	if (good)
		return;
	fprintf(stderr, "%s: %s (%ld)\n", side, what, number);
	exit(1);
}

#define CU(name, ...)                                                                                                  \
	do {                                                                                                           \
		CUresult r_ = cu.name(__VA_ARGS__);                                                                    \
		check(r_ == CUDA_SUCCESS, #name, (long)r_);                                                            \
	} while (0)

static void start(int device)
{
	CUcontext context;
	lib = dlopen("libcuda.so.1", RTLD_NOW);
	check(lib, "libcuda.so.1", 0);
#define X(name, params) *(void **)&cu.name = dlsym(lib, #name);
#define Y(name, params) X(name, params)
	CLV_CUDA_CALLS(X, Y)
#undef X
#undef Y
	CU(cuInit, 0);
	CU(cuDevicePrimaryCtxRetain, &context, device);
	CU(cuCtxSetCurrent, context);
}

static CUdeviceptr alloc(bool plain, size_t size)
{
	CUdeviceptr p;
	if (plain)
		CU(cuMemAlloc_v2, &p, size);
	else
		CU(cuMemAllocAsync, &p, size, NULL);
	return p;
}

static void release(bool plain, CUdeviceptr p)
{
	if (plain)
		CU(cuMemFree_v2, p);
	else
		CU(cuMemFreeAsync, p, NULL);
}

static uint64_t *host;
static size_t host_size;

static uint64_t *room_for(size_t size)
{
	if (size > host_size) {
		host = realloc(host, size);
		host_size = size;
	}
	check(host, "host memory", 0);
	return host;
}

static void put(CUdeviceptr p, size_t size, uint64_t seed)
{
	uint64_t *words = room_for(size);
	for (size_t i = 0; i < size / 8; i++)
		words[i] = clv_mix64(seed * 1000003 + i);
	CU(cuMemcpyHtoD_v2, p, words, size);
}

static void verify(CUdeviceptr p, size_t size, uint64_t seed)
{
	uint64_t *words = room_for(size);
	CU(cuMemcpyDtoH_v2, words, p, size);
	for (size_t i = 0; i < size / 8; i++)
		check(words[i] == clv_mix64(seed * 1000003 + i), "a wrong word", (long)i);
}

struct shared {
	CUipcMemHandle handle;
	uint64_t size, inside; /* an address in it */
};

static void say(int fd, const void *data, size_t size)
{
	check(write(fd, data, size) == (ssize_t)size, "write", 0);
}

static void hear(int fd, void *data, size_t size)
{
	check(read(fd, data, size) == (ssize_t)size, "the other side ended", 0);
}

static void say_go(int fd)
{
	say(fd, "", 1);
}

static void hear_go(int fd)
{
	char byte;
	hear(fd, &byte, 1);
}

/* ---- the exporter ---- */

static size_t random_size(struct clv_rng *rng)
{
	return (size_t)((512ull << clv_rng_below(rng, 15)) + clv_rng_below(rng, 4096)) & ~(size_t)7;
}

static CUdeviceptr in_many_frames(size_t *size)
{
	CUdeviceptr busy[BUSY];
	for (unsigned i = 0; i < BUSY; i++)
		busy[i] = alloc(false, 2 * CLV_MIB - 512);
	for (unsigned i = 0; i < BUSY; i++)
		release(false, busy[i]);
	CU(cuCtxSynchronize);
	*size = (BUSY - 10) * 2 * CLV_MIB;
	return alloc(false, *size);
}

static void refused(void)
{
	CUipcMemHandle handle;
	start(0);
	for (unsigned i = 0; i < 3; i++) {
		int capable = 1;
		CUdeviceptr p = alloc(false, 1 << 20);
		check(cu.cuIpcGetMemHandle(&handle, p) == CUDA_ERROR_INVALID_VALUE, "not refused", i);
		CU(cuPointerGetAttribute, &capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p);
		check(!capable, "said to be capable", i);
		release(false, p);
	}
}

/* A child that outlives the exporter; it must not keep what belongs to that. */
static pid_t leave_behind(int in, int out)
{
	pid_t pid = fork();
	check(pid >= 0, "fork", 0);
	if (pid)
		return pid;
	close(in);
	close(out);
	alarm(60); /* if nobody ends it */
	for (;;)
		pause();
}

static void exporter(bool plain, bool frames, unsigned blocks, int in, int out)
{
	struct clv_rng rng = {plain ? 1 : 2};
	CUdeviceptr ptrs[BLOCKS];
	struct shared shared[BLOCKS];
	start(0);
	for (unsigned i = 0; i < blocks; i++) {
		struct shared *s = &shared[i];
		CUipcMemHandle again;
		int capable = 0;
		s->size = random_size(&rng);
		if (frames)
			ptrs[i] = in_many_frames(&s->size);
		else
			ptrs[i] = alloc(plain, s->size);
		s->inside = clv_rng_below(&rng, s->size);
		put(ptrs[i], s->size, i);
		CU(cuIpcGetMemHandle, &s->handle, ptrs[i] + s->inside);
		CU(cuIpcGetMemHandle, &again, ptrs[i]);
		check(!memcmp(&again, &s->handle, sizeof(again)), "two handles of a block", i);
		CU(cuPointerGetAttribute, &capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptrs[i]);
		check(capable, "said not to be capable", i);
	}
	CU(cuCtxSynchronize);
	for (unsigned i = 0; i < blocks; i++)
		say(out, &shared[i], sizeof(shared[i]));
	hear_go(in);
	for (unsigned i = 0; i < blocks; i++)
		verify(ptrs[i], shared[i].size, 1000 + i);
	for (unsigned i = 1; i < blocks && !plain; i += 2)
		release(plain, ptrs[i]);
	pid_t left = plain ? 0 : leave_behind(in, out);
	say(out, &left, sizeof(left));
	hear_go(in);
	for (unsigned i = 0; i < blocks && plain; i++)
		release(plain, ptrs[i]);
}

/* ---- the importer ---- */

static void open_one(const struct shared *s, CUdeviceptr *at, unsigned i)
{
	CUdeviceptr again = 0, base = 0, start = 0;
	size_t size = 0, range = 0;
	CU(cuIpcOpenMemHandle_v2, at, s->handle, 1);
	CU(cuIpcOpenMemHandle_v2, &again, s->handle, 1);
	check(again == *at, "two addresses of a handle", i);
	CU(cuMemGetAddressRange_v2, &base, &size, *at + s->inside);
	check(base == *at && size >= s->size, "its address range", i);
	CU(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, *at + s->inside);
	CU(cuPointerGetAttribute, &range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, *at + s->inside);
	check(start == *at && range >= s->size, "its range", i);
	verify(*at, s->size, i);
	put(*at, s->size, 1000 + i);
}

static void importer(bool plain, bool frames, unsigned blocks, int device, int in, int out)
{
	CUdeviceptr at[BLOCKS];
	struct shared shared[BLOCKS];
	pid_t left;
	char byte;
	start(device);
	for (unsigned i = 0; i < blocks; i++)
		hear(in, &shared[i], sizeof(shared[i]));
	for (unsigned i = 0; i < blocks; i++)
		open_one(&shared[i], &at[i], i);
	CU(cuCtxSynchronize);
	say_go(out);
	hear(in, &left, sizeof(left));
	for (unsigned i = 0; i < blocks; i += 2)
		verify(at[i], shared[i].size, 1000 + i);
	for (unsigned i = 0; i < blocks && plain; i++) { /* before the exporter frees them */
		CU(cuIpcCloseMemHandle, at[i]);
		CU(cuIpcCloseMemHandle, at[i]);
	}
	say_go(out);
	check(read(in, &byte, 1) == 0, "the exporter has not ended", 0);
	for (unsigned i = 0; i < blocks && !plain; i++) {
		CUdeviceptr never;
		CU(cuIpcCloseMemHandle, at[i]);
		if (i % 2 == 0)
			verify(at[i], shared[i].size, 1000 + i);
		CU(cuIpcCloseMemHandle, at[i]);
		check(cu.cuIpcOpenMemHandle_v2(&never, shared[i].handle, 1), "opened from a process that ended", i);
	}
	if (left)
		kill(left, SIGKILL);
	for (unsigned i = 0; i < blocks; i++)
		check(cu.cuIpcCloseMemHandle(at[i]), "closed too often", i);
	fakecuda_leaks_fn *leaks = (fakecuda_leaks_fn *)dlsym(lib, "fakecuda_leaks");
	const char *leak = leaks ? leaks() : NULL;
	check(!leak, leak ? leak : "", 0);
	fakecuda_calls_fn *calls = (fakecuda_calls_fn *)dlsym(lib, "fakecuda_calls");
	long imported = calls ? calls("cuMemImportFromShareableHandle") : -1;
	if (calls)
		check(!frames || imported > 80, "few frames", imported);
	printf("%s", imported < 0 ? "" : imported ? "frames of " : "no frames, ");
}

int main(int argc, char **argv)
{
	const char *mode = argc == 2 || argc == 3 ? argv[1] : "";
	int device = argc == 3 ? atoi(argv[2]) : 0;
	bool plain = !strcmp(mode, "plain"), frames = !strcmp(mode, "frames");
	unsigned blocks = frames ? 1 : BLOCKS;
	int forth[2], back[2], status;
	side = "exporter";
	if (!strcmp(mode, "refused")) {
		refused();
		return 0;
	}
	if (!plain && !frames && strcmp(mode, "async"))
		return 2;
	check(!pipe(forth) && !pipe(back), "pipe", 0);
	pid_t pid = fork();
	check(pid >= 0, "fork", 0);
	if (!pid) {
		side = "importer";
		close(forth[1]);
		close(back[0]);
		importer(plain, frames, blocks, device, forth[0], back[1]);
		return 0;
	}
	close(forth[0]);
	close(back[1]);
	/* in a process of its own, which can end first */
	pid_t other = fork();
	check(other >= 0, "fork", 0);
	if (!other) {
		exporter(plain, frames, blocks, back[0], forth[1]);
		return 0;
	}
	close(forth[1]);
	close(back[0]);
	check(waitpid(other, &status, 0) == other && !status, "status of the exporter", status);
	check(waitpid(pid, &status, 0) == pid && !status, "status of the importer", status);
	printf("%u blocks\n", blocks);
	return 0;
}
