/* SPDX-License-Identifier: MIT
 *
 * cuda_program: CUDA as a program uses it, for commands and tests that have no program beside them: opens the cuda driver,
 * keeps the primary context of each device, makes streams. Owns what it makes. One thread opens and closes it; streams may
 * be made and ended by any.
 */
#ifndef CLV_CUDA_PROGRAM_H
#define CLV_CUDA_PROGRAM_H

#include "cuda.h"

struct clv_cuda_program {
	struct clv_driver *driver;
	const struct clv_cuda_api *api;
	CUcontext *contexts; /* by device */
	int devices;         /* of which the context is kept */
};

/* With `devices` of the driver's devices, or all there are if they are fewer; the context of the first becomes current in the
 * calling thread. `api` NULL: that of libcuda.so.1. false with the reason. */
bool clv_cuda_program_open(struct clv_cuda_program *p, const struct clv_cuda_api *api, int devices,
			   struct clv_error *err);
void clv_cuda_program_close(struct clv_cuda_program *p);

/* A stream that waits for no default stream, and that the driver knows. false with the reason. */
bool clv_cuda_program_stream(struct clv_cuda_program *p, int device, cleave_stream *out, struct clv_error *err);
/* With all work on it done. */
void clv_cuda_program_stream_end(struct clv_cuda_program *p, cleave_stream stream);

/* What the driver says of its answer. */
const char *clv_cuda_program_text(const struct clv_cuda_program *p, CUresult r);

#endif
