/* SPDX-License-Identifier: MIT
 *
 * program: what the C programs here share. They reach the driver as many programs do, by dlopen and dlsym; the types and
 * the list of functions are Cleave's own, so that no toolkit is needed. Owns the table `cuda`; one thread sets it up.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_calls.h"

static struct clv_cuda_api cuda;

static __attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static inline void must_succeed(CUresult result, const char *what, const char *file, int line)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return;
	if (cuda.cuGetErrorName)
		cuda.cuGetErrorName(result, &name);
	fail("%s:%d: %s: error %d %s", file, line, what, result, name ? name : "");
}

/* CALL(cuMemFree_v2, address): calls it and ends the program if it fails. */
#define CALL(name, ...) must_succeed(cuda.name(__VA_ARGS__), #name, __FILE__, __LINE__)

static inline void load_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		fail("%s", dlerror());
#define LOAD(name, params) *(void **)&cuda.name = dlsym(library, #name);
#define LOAD_TWINS(name, params) LOAD(name, params) LOAD(name##_ptsz, params)
	CLV_CUDA_CALLS(LOAD, LOAD_TWINS)
#undef LOAD
#undef LOAD_TWINS
	if (!cuda.cuInit || !cuda.cuMemAllocAsync)
		fail("libcuda.so.1 lacks functions");
}

/* Is Cleave's library mapped into this process? */
static inline bool preloaded(void)
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

static inline uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* As many small sizes as large ones: 1 to `largest` bytes, by powers of two. */
static inline size_t random_size(uint64_t *state, size_t largest)
{
	size_t top = (size_t)1 << (next_random(state) % 64);

	while (top > largest)
		top = (size_t)1 << (next_random(state) % 64);
	top += next_random(state) % top;
	return top < largest ? top : largest;
}

/* The pattern `ident` of a block: every byte depends on its place. */
static inline unsigned char pattern_byte(uint64_t ident, size_t at)
{
	return (unsigned char)((at * 0x9e3779b97f4a7c15u + ident * 0xbf58476d1ce4e5b9u) >> 33);
}

static inline void pattern_fill(unsigned char *bytes, size_t size, uint64_t ident)
{
	for (size_t at = 0; at < size; at++)
		bytes[at] = pattern_byte(ident, at);
}

static inline bool pattern_holds(const unsigned char *bytes, size_t size, uint64_t ident)
{
	for (size_t at = 0; at < size; at++) {
		if (bytes[at] != pattern_byte(ident, at))
			return false;
	}
	return true;
}

#endif
