/* SPDX-License-Identifier: MIT
 *
 * runtime [brief|wild]: a program of the CUDA runtime: cudaMalloc, cudaMallocAsync, streams, events, pools, captured graphs
 * and errors. Prints what it found, without addresses or times, so that the output with and without Cleave must be the same.
 *
 * brief: fewer rounds and no request that must fail, for a memory checker. wild: as brief, then one write to an address that
 * nothing has mapped, which the checker must find.
 */
#include <vector>

#include "device.cuh"

__global__ void check_pattern(const uint32_t *words, size_t count, uint32_t ident, unsigned long long *wrong)
{
	for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count;
	     at += (size_t)gridDim.x * blockDim.x) {
		if (words[at] != pattern_word(ident, at))
			atomicAdd(wrong, 1);
	}
}

__global__ void add(const uint32_t *a, const uint32_t *b, uint32_t *sum, size_t count)
{
	for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count;
	     at += (size_t)gridDim.x * blockDim.x)
		sum[at] = a[at] + b[at];
}

__global__ void wait_cycles(long long cycles)
{
	for (long long begin = clock64(); clock64() - begin < cycles;)
		;
}

static uint64_t random_state = 1;

static uint32_t random_number()
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33);
}

struct block {
	uint32_t *words;
	size_t count;
	uint32_t ident;
	int stream;
	bool async;
};

static const int stream_count = 4; /* the last is the default stream */
static cudaStream_t streams[stream_count];
static unsigned long long *wrong; /* on the device: words that a check found wrong */
static long long verified;

static void verify(const block &b, int stream)
{
	check_pattern<<<32, 128, 0, streams[stream]>>>(b.words, b.count, b.ident, wrong);
	CALL(cudaGetLastError());
	verified++;
}

static block make(size_t largest, cudaMemPool_t pool)
{
	block b;

	b.count = 1 + random_number() % (1u << (2 + random_number() % 20));
	if (b.count > largest)
		b.count = largest;
	b.ident = random_number();
	b.stream = (int)(random_number() % stream_count);
	b.async = random_number() % 4 != 0;
	if (!b.async)
		CALL(cudaMalloc(&b.words, b.count * 4));
	else if (pool && random_number() % 2)
		CALL(cudaMallocFromPoolAsync(&b.words, b.count * 4, pool, streams[b.stream]));
	else
		CALL(cudaMallocAsync(&b.words, b.count * 4, streams[b.stream]));
	write_pattern<<<32, 128, 0, streams[b.stream]>>>(b.words, b.count, b.ident);
	CALL(cudaGetLastError());
	return b;
}

static void release(block &b)
{
	cudaEvent_t event;

	if (!b.async || random_number() % 8 == 0) {
		verify(b, b.stream);
		if (b.async)
			CALL(cudaStreamSynchronize(
				streams[b.stream])); /* cudaFree waits only for what cudaMalloc gave */
		CALL(cudaFree(b.words));
		return;
	}
	int other = (int)(random_number() % stream_count);
	if (other != b.stream) {
		CALL(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
		CALL(cudaEventRecord(event, streams[b.stream]));
		CALL(cudaStreamWaitEvent(streams[other], event, 0));
		CALL(cudaEventDestroy(event));
	}
	if (random_number() % 4 == 0)
		wait_cycles<<<1, 1, 0, streams[other]>>>(200000);
	verify(b, other);
	CALL(cudaFreeAsync(b.words, streams[other]));
}

static unsigned long long wrong_words()
{
	unsigned long long count;

	CALL(cudaDeviceSynchronize());
	CALL(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDeviceToHost));
	return count;
}

static void random_work(int rounds, cudaMemPool_t pool)
{
	std::vector<block> blocks;

	for (int n = 0; n < rounds; n++) {
		if (blocks.size() < 40 || (blocks.size() < 200 && random_number() % 2)) {
			blocks.push_back(make(1 << 20, pool));
		} else {
			size_t at = random_number() % blocks.size();

			release(blocks[at]);
			blocks[at] = blocks.back();
			blocks.pop_back();
		}
	}
	for (block &b : blocks)
		release(b);
	printf("random work: %lld blocks verified, %llu wrong words\n", verified, wrong_words());
}

static void pools()
{
	cudaMemPool_t default_pool, current;
	uint64_t threshold = 64 << 20, before, used, reserved, high;
	void *block;
	int on = 1, value = 0;

	CALL(cudaDeviceGetDefaultMemPool(&default_pool, 0));
	CALL(cudaDeviceGetMemPool(&current, 0));
	printf("pools: the default one is current: %d\n", default_pool == current);
	CALL(cudaMemPoolSetAttribute(default_pool, cudaMemPoolAttrReleaseThreshold, &threshold));
	threshold = 0;
	CALL(cudaMemPoolGetAttribute(default_pool, cudaMemPoolAttrReleaseThreshold, &threshold));
	CALL(cudaMemPoolSetAttribute(default_pool, cudaMemPoolReuseAllowOpportunistic, &on));
	CALL(cudaMemPoolGetAttribute(default_pool, cudaMemPoolReuseAllowOpportunistic, &value));
	printf("pools: threshold %llu, opportunistic %d\n", (unsigned long long)threshold, value);
	CALL(cudaDeviceSynchronize());
	CALL(cudaMemPoolTrimTo(default_pool, 0));
	CALL(cudaMemPoolGetAttribute(default_pool, cudaMemPoolAttrUsedMemCurrent, &before)); /* the driver alone: not 0 */
	CALL(cudaMallocAsync(&block, 10000, streams[0]));
	CALL(cudaMemPoolGetAttribute(default_pool, cudaMemPoolAttrUsedMemCurrent, &used));
	CALL(cudaMemPoolGetAttribute(default_pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
	CALL(cudaMemPoolGetAttribute(default_pool, cudaMemPoolAttrUsedMemHigh, &high));
	/* the driver alone says less reserved than used */
	printf("pools: used covers what was asked for: %d, high that: %d, some is reserved: %d\n",
	       used - before >= 10000 && used - before <= 2 << 20, high >= used, reserved > 0);
	CALL(cudaFreeAsync(block, streams[0]));
	CALL(cudaStreamSynchronize(streams[0]));
	high = 0;
	CALL(cudaMemPoolSetAttribute(default_pool, cudaMemPoolAttrUsedMemHigh, &high));
	CALL(cudaMemPoolGetAttribute(default_pool, cudaMemPoolAttrUsedMemHigh, &high));
	printf("pools: high after it was reset is what is used: %d\n", high == before);
}

static cudaMemPool_t own_pool()
{
	cudaMemPoolProps properties;
	cudaMemPool_t pool;

	memset(&properties, 0, sizeof(properties));
	properties.allocType = cudaMemAllocationTypePinned;
	properties.location.type = cudaMemLocationTypeDevice;
	properties.location.id = 0;
	CALL(cudaMemPoolCreate(&pool, &properties));
	return pool;
}

static void current_pool_follows()
{
	cudaMemPool_t default_pool, mine = own_pool(), current;
	uint64_t used = 0;
	void *block;

	CALL(cudaDeviceGetDefaultMemPool(&default_pool, 0));
	CALL(cudaDeviceSetMemPool(0, mine));
	CALL(cudaDeviceGetMemPool(&current, 0));
	CALL(cudaMallocAsync(&block, 3 << 20, streams[1]));
	CALL(cudaMemPoolGetAttribute(mine, cudaMemPoolAttrUsedMemCurrent, &used));
	printf("own pool: current %d, serves cudaMallocAsync: %d\n", current == mine, used >= 3 << 20);
	CALL(cudaDeviceSetMemPool(0, default_pool));
	CALL(cudaFreeAsync(block, streams[1]));
	CALL(cudaDeviceSynchronize());
	CALL(cudaMemPoolDestroy(mine));
}

static void attributes()
{
	cudaPointerAttributes found;
	size_t free_bytes, total;
	char *block, *plain;

	CALL(cudaMallocAsync(&block, 5000, streams[2]));
	CALL(cudaMalloc(&plain, 5000));
	CALL(cudaStreamSynchronize(streams[2]));
	CALL(cudaPointerGetAttributes(&found, block + 700));
	printf("attributes: type %d, device %d, same address: %d\n", found.type, found.device,
	       found.devicePointer == block + 700);
	CALL(cudaPointerGetAttributes(&found, plain + 700));
	printf("attributes: type %d, device %d, same address: %d\n", found.type, found.device,
	       found.devicePointer == plain + 700);
	CALL(cudaFreeAsync(block, streams[2]));
	CALL(cudaFree(plain));
	CALL(cudaMemGetInfo(&free_bytes, &total));
	printf("memory: free is below total: %d\n", free_bytes > 0 && free_bytes < total);
}

static void errors()
{
	size_t free_bytes, total;
	void *block = NULL;
	cudaError_t result;

	CALL(cudaMemGetInfo(&free_bytes, &total));
	result = cudaMallocAsync(&block, total + ((size_t)1 << 30), streams[0]);
	printf("errors: too large for the device: %s", cudaGetErrorName(result));
	printf(", last %s", cudaGetErrorName(cudaGetLastError()));
	printf(", then %s\n", cudaGetErrorName(cudaGetLastError()));
	result = cudaMalloc(&block, total + ((size_t)1 << 30));
	printf("errors: too large for the device: %s", cudaGetErrorName(result));
	printf(", last %s\n", cudaGetErrorName(cudaGetLastError()));
	printf("errors: free nothing: %s %s\n", cudaGetErrorName(cudaFree(NULL)),
	       cudaGetErrorName(cudaFreeAsync(NULL, streams[0])));
	cudaGetLastError();
	result = cudaMallocAsync(&block, 0, streams[0]);
	printf("errors: nothing: %s\n", cudaGetErrorName(result));
	cudaGetLastError();
}

static void graphs()
{
	const size_t count = 300000;
	std::vector<uint32_t> got(count);
	unsigned long long bad = 0;
	cudaStream_t stream = streams[1];
	cudaGraphExec_t executable[3];
	uint32_t *given, *result;

	CALL(cudaMalloc(&given, count * 4));
	CALL(cudaMalloc(&result, count * 4));
	for (cudaGraphExec_t &e : executable) {
		uint32_t *a, *b;
		cudaGraph_t graph;

		CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
		CALL(cudaMallocAsync(&a, count * 4, stream));
		add<<<64, 128, 0, stream>>>(given, given, a, count);
		CALL(cudaMallocAsync(&b, count * 4, stream));
		add<<<64, 128, 0, stream>>>(a, given, b, count);
		CALL(cudaFreeAsync(a, stream));
		add<<<64, 128, 0, stream>>>(b, given, result, count);
		CALL(cudaFreeAsync(b, stream));
		CALL(cudaStreamEndCapture(stream, &graph));
		CALL(cudaGraphInstantiate(&e, graph, 0));
		CALL(cudaGraphDestroy(graph));
	}
	for (int n = 0; n < 30; n++) {
		/* What the graph took for itself must not be what live blocks are made of. */
		block bystander = make(count, NULL);

		write_pattern<<<32, 128, 0, stream>>>(given, count, (uint32_t)n);
		CALL(cudaGraphLaunch(executable[n % 3], stream));
		CALL(cudaMemcpyAsync(got.data(), result, count * 4, cudaMemcpyDeviceToHost, stream));
		CALL(cudaStreamSynchronize(stream));
		for (size_t at = 0; at < count; at++)
			bad += got[at] != 4 * pattern_word((uint32_t)n, at);
		release(bystander);
	}
	for (cudaGraphExec_t &e : executable)
		CALL(cudaGraphExecDestroy(e));
	CALL(cudaFree(given));
	CALL(cudaFree(result));
	printf("graphs: %llu wrong words, %llu in bystanders\n", bad, wrong_words());
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	bool brief = strcmp(mode, "") != 0;
	unsigned long long bad;
	cudaMemPool_t pool;

	for (int n = 0; n < stream_count - 1; n++)
		CALL(cudaStreamCreateWithFlags(&streams[n], cudaStreamNonBlocking));
	CALL(cudaMalloc(&wrong, sizeof(*wrong)));
	CALL(cudaMemset(wrong, 0, sizeof(*wrong)));
	CALL(cudaDeviceSynchronize());
	pool = own_pool();
	random_work(brief ? 600 : 20000, pool);
	CALL(cudaDeviceSynchronize());
	CALL(cudaMemPoolDestroy(pool));
	pools();
	current_pool_follows();
	attributes();
	graphs();
	if (!brief)
		errors();
	/* Streams end while blocks that were freed on them may still be in use. */
	for (int n = 0; n < stream_count - 1; n++) {
		void *block;

		CALL(cudaMallocAsync(&block, 1 << 22, streams[n]));
		wait_cycles<<<1, 1, 0, streams[n]>>>(1000000);
		CALL(cudaMemsetAsync(block, 1, 1 << 22, streams[n]));
		CALL(cudaFreeAsync(block, streams[n]));
		CALL(cudaStreamDestroy(streams[n]));
		CALL(cudaStreamCreateWithFlags(&streams[n], cudaStreamNonBlocking));
	}
	random_work(brief ? 300 : 5000, NULL);
	if (strcmp(mode, "wild") == 0) {
		write_pattern<<<1, 1>>>((uint32_t *)0x10, 1, 1);
		cudaDeviceSynchronize();
	}
	bad = strcmp(mode, "wild") == 0 ? 0 : wrong_words();
	printf("RESULT {\"wrong\": %llu, \"preloaded\": %s}\n", bad, preloaded() ? "true" : "false");
	return bad != 0;
}
