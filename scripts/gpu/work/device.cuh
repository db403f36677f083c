/* SPDX-License-Identifier: MIT
 *
 * device: what the programs of the CUDA runtime here share. Owns no state.
 */
#ifndef DEVICE_CUH
#define DEVICE_CUH

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

static inline void must_succeed(cudaError_t result, const char *what, const char *file, int line)
{
	if (result == cudaSuccess)
		return;
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, cudaGetErrorName(result));
	exit(1);
}

#define CALL(call) must_succeed(call, #call, __FILE__, __LINE__)

/* The pattern `ident` of a block: every word depends on its place. */
static inline __host__ __device__ uint32_t pattern_word(uint32_t ident, size_t at)
{
	return (uint32_t)at * 2654435761u + ident;
}

static __global__ void write_pattern(uint32_t *words, size_t count, uint32_t ident)
{
	for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count;
	     at += (size_t)gridDim.x * blockDim.x)
		words[at] = pattern_word(ident, at);
}

/* Is Cleave's library mapped into this process? */
static inline bool preloaded()
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096];
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = strstr(line, "libcleave-preload") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

#endif
