/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "gpu.h"

#include <dlfcn.h>
#include <string.h>

struct clv_cuda_api cu;

static bool ptds;
static CUresult (*proc)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* "cuMemAlloc" of "cuMemAlloc_v2", with the version of CUDA that this function came with: so that of two versions each is
 * found. */
static void *by_proc(const char *name)
{
	char base[64];
	snprintf(base, sizeof(base), "%s", name);
	char *end = strstr(base, "_v");
	int version = end && end[2] > '2' ? 13000 : 12000;
	if (end && end[2] == '2' && (strstr(name, "CaptureInfo") || strstr(name, "BeginCapture")))
		version = 12000;
	if (!end && strstr(name, "GetProcAddress"))
		version = 11030;
	if (!strcmp(name, "cuCtxCreate_v2")) /* which had a third before 12 */
		version = 11000;
	if (end)
		*end = '\0';
	void *found = NULL;
	CUdriverProcAddressQueryResult status;
	cuuint64_t flags = ptds ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
	return proc(base, &found, version, flags, &status) == CUDA_SUCCESS ? found : NULL;
}

static void find_linked(void)
{
#define FIND(name, params) cu.name = ptds ? NULL : name;
#define FIND_TWINS(name, params) cu.name = ptds ? name##_ptsz : name;
	CLV_CUDA_CALLS(FIND, FIND_TWINS)
#undef FIND
#undef FIND_TWINS
#define FIND(name, params) cu.name = name;
#define FIND_TWINS(name, params)
	CLV_CUDA_CALLS(FIND, FIND_TWINS)
#undef FIND
#undef FIND_TWINS
}

static void find_dlsym(void *lib)
{
#define FIND(name, params) *(void **)&cu.name = dlsym(lib, #name);
#define FIND_TWINS(name, params) *(void **)&cu.name = dlsym(lib, ptds ? #name "_ptsz" : #name);
	CLV_CUDA_CALLS(FIND, FIND_TWINS)
#undef FIND
#undef FIND_TWINS
}

static void find_proc(void)
{
#define FIND(name, params) *(void **)&cu.name = by_proc(#name);
	CLV_CUDA_CALLS(FIND, FIND)
#undef FIND
}

void gpu_find(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "linked";
	ptds = strstr(how, "-ptds") != NULL;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strncmp(how, "linked", 6)) {
		find_linked();
		return;
	}
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		printf("%s\n", dlerror());
		exit(1);
	}
	if (!strncmp(how, "dlsym", 5)) {
		find_dlsym(lib);
		return;
	}
	*(void **)&proc = dlsym(lib, "cuGetProcAddress_v2");
	GPU_TRUE(proc != NULL);
	*(void **)&proc = by_proc("cuGetProcAddress_v2"); /* as cudart: through itself once more */
	GPU_TRUE(proc != NULL);
	find_proc();
}

void gpu_open(int argc, char **argv)
{
	CUcontext context;
	gpu_find(argc, argv);
	GPU(cu.cuInit(0));
	GPU(cu.cuDevicePrimaryCtxRetain(&context, 0));
	GPU(cu.cuCtxSetCurrent(context));
}

void gpu_fill(CUdeviceptr ptr, size_t size, uint8_t byte, CUstream stream)
{
	GPU(cu.cuMemsetD8Async(ptr, byte, size, stream));
}

void gpu_check(CUdeviceptr ptr, size_t size, uint8_t byte, CUstream stream)
{
	uint8_t *host = malloc(size);
	GPU_TRUE(host != NULL);
	GPU(cu.cuMemcpyDtoHAsync_v2(host, ptr, size, stream));
	GPU(cu.cuStreamSynchronize(stream));
	for (size_t i = 0; i < size; i++)
		if (host[i] != byte) {
			printf("byte %zu of %zu is %u and not %u\n", i, size, host[i], byte);
			exit(1);
		}
	free(host);
}

struct block {
	CUdeviceptr ptr;
	size_t size;
	uint8_t byte;
	unsigned stream;
};

void gpu_work(uint64_t seed, unsigned rounds, unsigned count, size_t most, CUstream *streams, unsigned stream_count)
{
	struct clv_rng rng = {seed};
	struct block *blocks = calloc(count, sizeof(*blocks));
	unsigned live = 0;
	CUevent event;
	GPU_TRUE(blocks != NULL);
	GPU(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (unsigned round = 0; round < rounds || live; round++) {
		bool more = round < rounds && live < count && (live == 0 || clv_rng_below(&rng, 100) < 55);
		unsigned s = (unsigned)clv_rng_below(&rng, stream_count);
		if (more) {
			struct block *b = &blocks[live];
			b->size = (size_t)clv_rng_range(&rng, 1, (uint64_t)1 << clv_rng_range(&rng, 4, clv_log2(most)));
			b->byte = (uint8_t)clv_rng_range(&rng, 1, 255);
			b->stream = s;
			CUresult r = cu.cuMemAllocAsync(&b->ptr, b->size, streams[s]);
			if (r == CUDA_ERROR_OUT_OF_MEMORY)
				continue; /* the program goes on with less */
			GPU(r);
			gpu_fill(b->ptr, b->size, b->byte, streams[s]);
			live++;
			continue;
		}
		if (!live)
			continue;
		unsigned i = (unsigned)clv_rng_below(&rng, live);
		struct block b = blocks[i];
		blocks[i] = blocks[--live];
		if (b.stream != s) {
			GPU(cu.cuEventRecord(event, streams[b.stream]));
			GPU(cu.cuStreamWaitEvent(streams[s], event, 0));
		}
		if (clv_rng_below(&rng, 4) == 0)
			gpu_check(b.ptr, b.size, b.byte, streams[s]);
		else /* the last work on the block must not touch whoever gets the memory next */
			gpu_fill(b.ptr, b.size, 0, streams[s]);
		GPU(cu.cuMemFreeAsync(b.ptr, streams[s]));
	}
	GPU(cu.cuEventDestroy_v2(event));
	free(blocks);
}
