/* SPDX-License-Identifier: MIT
 *
 * contexts: stream-ordered work in two contexts of one device, each with streams of its own and its default streams. One is
 * destroyed while work on freed blocks may still run; the other goes on. Prints what it found, the same with and without
 * Cleave.
 */
#include "program.h"

#define BLOCKS 64
#define ROUNDS 12
#define LARGEST ((size_t)4 << 20)
#define STREAMS 4

struct side {
	CUcontext context;
	CUstream streams[STREAMS];
	CUdeviceptr addresses[BLOCKS];
	size_t sizes[BLOCKS];
	uint64_t idents[BLOCKS];
	uint64_t state;
};

static unsigned char *host;
static uint64_t verified;

static CUstream some_stream(struct side *side)
{
	return side->streams[next_random(&side->state) % STREAMS];
}

static void allocate(struct side *side, int n)
{
	CUstream stream = some_stream(side);

	side->sizes[n] = random_size(&side->state, LARGEST);
	side->idents[n] = next_random(&side->state);
	CALL(cuMemAllocAsync, &side->addresses[n], side->sizes[n], stream);
	pattern_fill(host, side->sizes[n], side->idents[n]);
	CALL(cuMemcpyHtoDAsync_v2, side->addresses[n], host, side->sizes[n], stream);
	CALL(cuStreamSynchronize, stream);
}

static void verify(struct side *side, int n)
{
	CUstream stream = some_stream(side);

	memset(host, 0, side->sizes[n]);
	CALL(cuMemcpyDtoHAsync_v2, host, side->addresses[n], side->sizes[n], stream);
	CALL(cuStreamSynchronize, stream);
	if (!pattern_holds(host, side->sizes[n], side->idents[n]))
		fail("a block of %zu bytes has wrong contents", side->sizes[n]);
	verified++;
}

static void release(struct side *side, int n)
{
	CUstream stream = some_stream(side);

	/* Work after which the block is free; cuMemFreeAsync comes after it, cuMemFree takes blocks that are idle. */
	CALL(cuMemsetD8Async, side->addresses[n], 0, side->sizes[n], stream);
	if (next_random(&side->state) % 8 == 0) {
		CALL(cuStreamSynchronize, stream);
		CALL(cuMemFree_v2, side->addresses[n]);
	} else {
		CALL(cuMemFreeAsync, side->addresses[n], stream);
	}
	side->addresses[n] = 0;
}

static void open_side(struct side *side, CUdevice device)
{
	CALL(cuCtxCreate_v2, &side->context, 0, device);
	side->streams[0] = CU_STREAM_LEGACY;
	side->streams[1] = CU_STREAM_PER_THREAD;
	for (int n = 2; n < STREAMS; n++)
		CALL(cuStreamCreate, &side->streams[n], CU_STREAM_NON_BLOCKING);
}

static void work(struct side *side)
{
	CALL(cuCtxSetCurrent, side->context);
	for (int n = 0; n < BLOCKS; n++) {
		if (!side->addresses[n]) {
			allocate(side, n);
		} else if (next_random(&side->state) % 2) {
			verify(side, n);
			release(side, n);
		}
	}
	/* A stream that ends while blocks freed on it wait. */
	CALL(cuStreamDestroy_v2, side->streams[2]);
	CALL(cuStreamCreate, &side->streams[2], CU_STREAM_NON_BLOCKING);
}

static void empty(struct side *side)
{
	CALL(cuCtxSetCurrent, side->context);
	for (int n = 0; n < BLOCKS; n++) {
		if (side->addresses[n]) {
			verify(side, n);
			release(side, n);
		}
	}
}

int main(void)
{
	static struct side sides[2];
	CUdevice device;

	load_cuda();
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &device, 0);
	host = malloc(LARGEST);
	if (!host)
		fail("out of host memory");
	for (int n = 0; n < 2; n++) {
		sides[n].state = (uint64_t)n + 1;
		open_side(&sides[n], device);
	}
	for (int round = 0; round < ROUNDS; round++) {
		work(&sides[0]);
		work(&sides[1]);
	}
	empty(&sides[0]);
	CALL(cuCtxDestroy_v2, sides[0].context);
	for (int round = 0; round < ROUNDS; round++)
		work(&sides[1]);
	/* A context made after another one went, perhaps with the same handle. */
	open_side(&sides[0], device);
	for (int round = 0; round < ROUNDS; round++) {
		work(&sides[1]);
		work(&sides[0]);
	}
	for (int n = 0; n < 2; n++) {
		empty(&sides[n]);
		CALL(cuCtxSetCurrent, sides[n].context);
		CALL(cuCtxSynchronize);
		CALL(cuCtxDestroy_v2, sides[n].context);
	}
	printf("verified %" PRIu64 " blocks\n", verified);
	printf("RESULT {\"preloaded\": %s}\n", preloaded() ? "true" : "false");
	return 0;
}
