/* SPDX-License-Identifier: MIT
 *
 * gpu: what small programs of the Driver API share. They run on a real GPU and on the test double of libcuda.so.1, with
 * and without Cleave, and print what must not differ: no addresses, no times.
 *
 * How a program comes to its functions is its first argument: `linked` (with libcuda), `dlsym`, or `proc` (cuGetProcAddress,
 * as cudart does it), with `-ptds` after it for the functions of the per-thread default stream.
 */
#ifndef CLV_GPU_H
#define CLV_GPU_H

#include "../../src/base/base.h"
#include "../../src/driver/cuda_calls.h"

#include <stdio.h>
#include <stdlib.h>

extern struct clv_cuda_api cu; /* ptds: the plain names are the _ptsz twins */

/* Finds the functions, initialises CUDA, and makes the primary context of device 0 current. Ends the program with a
 * sentence if that cannot be done. */
void gpu_open(int argc, char **argv);
void gpu_find(int argc, char **argv); /* the first part alone */

/* Ends the program if a call does not give what it should. */
#define GPU_IS(result, call)                                                                                           \
	do {                                                                                                           \
		CUresult r_ = (call);                                                                                  \
		if (r_ != (result)) {                                                                                  \
			printf("%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)r_);                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)
#define GPU(call) GPU_IS(CUDA_SUCCESS, call)
#define GPU_TRUE(condition)                                                                                            \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                               \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* Work on a stream that fills a block, and work that looks at it: the byte must be in all of it. */
void gpu_fill(CUdeviceptr ptr, size_t size, uint8_t byte, CUstream stream);
void gpu_check(CUdeviceptr ptr, size_t size, uint8_t byte, CUstream stream); /* waits */

/* Random work with `count` blocks at most, on these streams, each block filled where it is allocated and checked where it
 * is freed; after it nothing is live. */
void gpu_work(uint64_t seed, unsigned rounds, unsigned count, size_t most, CUstream *streams, unsigned stream_count);

#endif
