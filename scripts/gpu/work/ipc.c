/* SPDX-License-Identifier: MIT
 *
 * ipc KIND ROUNDS: memory shared between two processes by cuIpcGetMemHandle, cuIpcOpenMemHandle and cuIpcCloseMemHandle.
 * KIND: async (blocks of cuMemAllocAsync), plain (of cuMemAlloc), both.
 *
 * The two take turns as lender and borrower. The lender fills many blocks, each with a pattern of its own, and sends the
 * handles; the borrower verifies every byte, writes another pattern, and closes; the lender verifies that, frees some blocks
 * and keeps others for later rounds, so that blocks lie at all kinds of offsets in their frames.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

#define BLOCKS 48
#define LARGEST ((size_t)24 << 20)
#define PLAIN_SMALLEST ((size_t)2 << 20) /* smaller ones share what the driver exports */

struct offer {
	CUipcMemHandle handle;
	uint64_t size;
	uint64_t ident;
};

struct block {
	CUdeviceptr address;
	size_t size;
	bool async;
};

static CUcontext context;
static CUstream stream;
static unsigned char *host;
static int peer;
static const char *who;
static bool use_async, use_plain;
static uint64_t async_blocks; /* that this process has allocated */

static void send_all(const void *data, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = write(peer, (const char *)data + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail("%s: the other process is gone", who);
		done += (size_t)n;
	}
}

static void receive_all(void *data, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = read(peer, (char *)data + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail("%s: the other process is gone", who);
		done += (size_t)n;
	}
}

static void write_pattern(CUdeviceptr address, size_t size, uint64_t ident)
{
	pattern_fill(host, size, ident);
	CALL(cuMemcpyHtoDAsync_v2, address, host, size, stream);
	CALL(cuStreamSynchronize, stream);
}

static bool has_pattern(CUdeviceptr address, size_t size, uint64_t ident)
{
	memset(host, 0, size);
	CALL(cuMemcpyDtoHAsync_v2, host, address, size, stream);
	CALL(cuStreamSynchronize, stream);
	return pattern_holds(host, size, ident);
}

static struct block allocate(uint64_t *state)
{
	struct block block = {0};

	block.async = use_async && (!use_plain || next_random(state) % 4 != 0);
	block.size = random_size(state, LARGEST);
	if (block.async) {
		CALL(cuMemAllocAsync, &block.address, block.size, stream);
		async_blocks++;
	} else {
		block.size = block.size < PLAIN_SMALLEST ? PLAIN_SMALLEST + block.size : block.size;
		CALL(cuMemAlloc_v2, &block.address, block.size);
	}
	return block;
}

static void release(struct block *block, uint64_t *state)
{
	/* cuMemFree takes blocks of either kind. */
	if (block->async && next_random(state) % 4 != 0)
		CALL(cuMemFreeAsync, block->address, stream);
	else
		CALL(cuMemFree_v2, block->address);
	block->address = 0;
}

static void lend(struct block *blocks, uint64_t round, uint64_t *state)
{
	struct offer offers[BLOCKS];
	uint64_t answer;

	for (int n = 0; n < BLOCKS; n++) {
		CUdeviceptr start;
		size_t size;

		if (!blocks[n].address)
			blocks[n] = allocate(state);
		offers[n].size = blocks[n].size;
		offers[n].ident = round << 32 | (uint64_t)n << 1;
		write_pattern(blocks[n].address, blocks[n].size, offers[n].ident);
		CALL(cuMemGetAddressRange_v2, &start, &size, blocks[n].address + blocks[n].size / 2);
		if (start != blocks[n].address || size < blocks[n].size)
			fail("%s: a block of %zu bytes is said to have %zu and to start %lld bytes off", who, blocks[n].size, size,
			     (long long)(start - blocks[n].address));
		CALL(cuIpcGetMemHandle, &offers[n].handle, blocks[n].address);
	}
	send_all(offers, sizeof(offers));
	receive_all(&answer, sizeof(answer));
	if (answer != round)
		fail("%s: unexpected answer", who);
	for (int n = 0; n < BLOCKS; n++) {
		if (!has_pattern(blocks[n].address, blocks[n].size, offers[n].ident | 1))
			fail("%s: round %" PRIu64 ", block %d of %zu bytes (%s): not what the other process wrote", who, round, n,
			     blocks[n].size, blocks[n].async ? "async" : "plain");
		if (next_random(state) % 3 != 0)
			release(&blocks[n], state);
	}
	CALL(cuStreamSynchronize, stream);
}

static void borrow(uint64_t round)
{
	struct offer offers[BLOCKS];
	CUdeviceptr addresses[BLOCKS];

	receive_all(offers, sizeof(offers));
	for (int n = 0; n < BLOCKS; n++)
		CALL(cuIpcOpenMemHandle_v2, &addresses[n], offers[n].handle, 1);
	for (int n = 0; n < BLOCKS; n++) {
		if (!has_pattern(addresses[n], offers[n].size, offers[n].ident))
			fail("%s: round %" PRIu64 ", block %d of %" PRIu64 " bytes: not what the other process wrote", who, round, n,
			     offers[n].size);
	}
	for (int n = 0; n < BLOCKS; n++) {
		CUdeviceptr again = 0;

		if (n % 8 == 0) { /* opening once more gives the same address, and is closed once more */
			CALL(cuIpcOpenMemHandle_v2, &again, offers[n].handle, 1);
			if (again != addresses[n])
				fail("%s: opened twice, block %d has two addresses", who, n);
			CALL(cuIpcCloseMemHandle, again);
		}
		write_pattern(addresses[n], offers[n].size, offers[n].ident | 1);
		CALL(cuIpcCloseMemHandle, addresses[n]);
	}
	CALL(cuCtxSynchronize);
	send_all(&round, sizeof(round));
}

int main(int argc, char **argv)
{
	struct block blocks[BLOCKS] = {{0}};
	uint64_t rounds, state;
	int ends[2], status = 0;
	pid_t child;
	CUdevice device;

	if (argc != 3)
		fail("usage: ipc async|plain|both ROUNDS");
	use_async = strcmp(argv[1], "plain") != 0;
	use_plain = strcmp(argv[1], "async") != 0;
	rounds = strtoull(argv[2], NULL, 10);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		fail("socketpair: %s", strerror(errno));
	child = fork(); /* before CUDA starts in either */
	if (child < 0)
		fail("fork: %s", strerror(errno));
	peer = ends[child == 0];
	close(ends[child != 0]);
	who = child ? "parent" : "child";
	state = child ? 1 : 2;

	load_cuda();
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &device, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, device);
	CALL(cuCtxSetCurrent, context);
	CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	host = malloc(LARGEST + PLAIN_SMALLEST);
	if (!host)
		fail("out of host memory");

	for (uint64_t round = 0; round < rounds; round++) {
		if ((round % 2 == 0) == (child != 0))
			lend(blocks, round, &state);
		else
			borrow(round);
	}
	for (int n = 0; n < BLOCKS; n++) {
		if (blocks[n].address)
			release(&blocks[n], &state);
	}
	CALL(cuStreamSynchronize, stream);
	CALL(cuStreamDestroy_v2, stream);
	CALL(cuDevicePrimaryCtxRelease_v2, device);
	if (child == 0)
		return 0;
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail("the child failed");
	printf("RESULT {\"rounds\": %" PRIu64 ", \"blocks\": %" PRIu64 ", \"async\": %" PRIu64 ", \"preloaded\": %s}\n", rounds,
	       rounds * BLOCKS, async_blocks, preloaded() ? "true" : "false");
	return 0;
}
