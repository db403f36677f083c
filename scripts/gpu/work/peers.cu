/* SPDX-License-Identifier: MIT
 *
 * peers: kernels on one device that read and write stream-ordered memory of another, after cudaDeviceEnablePeerAccess and
 * cudaMemPoolSetAccess, for blocks allocated before and after access was given; and copies between devices.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

static void must_succeed(cudaError_t result, const char *what, int line)
{
	if (result == cudaSuccess)
		return;
	fprintf(stderr, "peers.cu:%d: %s: %s\n", line, what, cudaGetErrorName(result));
	exit(1);
}

#define CALL(call) must_succeed(call, #call, __LINE__)

__global__ void write_pattern(uint32_t *words, size_t count, uint32_t ident)
{
	for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x)
		words[at] = (uint32_t)at * 2654435761u + ident;
}

/* Verifies and adds one to every word. */
__global__ void visit(uint32_t *words, size_t count, uint32_t ident, unsigned long long *wrong)
{
	for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x) {
		if (words[at] != (uint32_t)at * 2654435761u + ident)
			atomicAdd(wrong, 1);
		words[at]++;
	}
}

struct block {
	uint32_t *words;
	size_t count;
	uint32_t ident;
};

static cudaStream_t streams[2];
static unsigned long long *wrong[2];
static uint32_t ident;

static std::vector<block> make(int device, int number)
{
	std::vector<block> blocks;

	CALL(cudaSetDevice(device));
	for (int n = 0; n < number; n++) {
		block b = {NULL, 1 + (size_t)(n * 7919 % 1000) * (n % 5 == 0 ? 4000 : 11), ++ident};

		CALL(cudaMallocAsync(&b.words, b.count * 4, streams[device]));
		write_pattern<<<32, 128, 0, streams[device]>>>(b.words, b.count, b.ident);
		CALL(cudaGetLastError());
		blocks.push_back(b);
	}
	CALL(cudaStreamSynchronize(streams[device]));
	return blocks;
}

/* The other device visits each block, the owner verifies and frees it. */
static void exchange(int owner, std::vector<block> &blocks)
{
	int guest = 1 - owner;

	CALL(cudaSetDevice(guest));
	for (block &b : blocks) {
		visit<<<32, 128, 0, streams[guest]>>>(b.words, b.count, b.ident, wrong[guest]);
		CALL(cudaGetLastError());
	}
	CALL(cudaStreamSynchronize(streams[guest]));
	CALL(cudaSetDevice(owner));
	for (block &b : blocks) {
		visit<<<32, 128, 0, streams[owner]>>>(b.words, b.count, b.ident + 1, wrong[owner]);
		CALL(cudaFreeAsync(b.words, streams[owner]));
	}
	CALL(cudaStreamSynchronize(streams[owner]));
}

static void give_access(int owner)
{
	cudaMemAccessDesc description;
	cudaMemPool_t pool;

	memset(&description, 0, sizeof(description));
	description.location.type = cudaMemLocationTypeDevice;
	description.location.id = 1 - owner;
	description.flags = cudaMemAccessFlagsProtReadWrite;
	CALL(cudaDeviceGetDefaultMemPool(&pool, owner));
	CALL(cudaMemPoolSetAccess(pool, &description, 1));
}

int main()
{
	unsigned long long total = 0, count;
	int devices, can = 0;

	CALL(cudaGetDeviceCount(&devices));
	if (devices < 2) {
		fprintf(stderr, "peers: %d device\n", devices);
		return 1;
	}
	CALL(cudaDeviceCanAccessPeer(&can, 0, 1));
	for (int device = 0; device < 2; device++) {
		CALL(cudaSetDevice(device));
		CALL(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
		CALL(cudaMalloc(&wrong[device], sizeof(*wrong[device])));
		CALL(cudaMemset(wrong[device], 0, sizeof(*wrong[device])));
		if (can)
			CALL(cudaDeviceEnablePeerAccess(1 - device, 0));
		CALL(cudaDeviceSynchronize());
	}
	for (int round = 0; can && round < 6; round++) {
		for (int owner = 0; owner < 2; owner++) {
			/* In the first round the pool gives access only after the blocks were made. */
			std::vector<block> blocks = make(owner, 100);

			if (round == 0)
				give_access(owner);
			exchange(owner, blocks);
		}
	}
	for (int owner = 0; owner < 2; owner++) {
		std::vector<block> from = make(owner, 50);

		for (block &b : from) {
			uint32_t *copy;

			CALL(cudaSetDevice(1 - owner));
			CALL(cudaMallocAsync(&copy, b.count * 4, streams[1 - owner]));
			CALL(cudaMemcpyPeerAsync(copy, 1 - owner, b.words, owner, b.count * 4, streams[1 - owner]));
			visit<<<32, 128, 0, streams[1 - owner]>>>(copy, b.count, b.ident, wrong[1 - owner]);
			CALL(cudaFreeAsync(copy, streams[1 - owner]));
			CALL(cudaStreamSynchronize(streams[1 - owner]));
			CALL(cudaSetDevice(owner));
			CALL(cudaFreeAsync(b.words, streams[owner]));
		}
	}
	for (int device = 0; device < 2; device++) {
		CALL(cudaSetDevice(device));
		CALL(cudaDeviceSynchronize());
		CALL(cudaMemcpy(&count, wrong[device], sizeof(count), cudaMemcpyDeviceToHost));
		total += count;
	}
	printf("peer access: %d, wrong words: %llu\n", can, total);
	printf("RESULT {\"can_access\": %d, \"wrong\": %llu}\n", can, total);
	return total != 0;
}
