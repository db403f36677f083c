/* SPDX-License-Identifier: MIT
 *
 * backend_steps: what the conversion of a layer goes through on its way from sources to destinations, by backend; for the
 * table of backends and for timelines. Owns nothing, no lock.
 *
 * Rules are from vLLM's functions that a row's `source` names, if none is named here. E, N, K and S are backend.h's.
 */
#ifndef CLV_BACKEND_STEPS_H
#define CLV_BACKEND_STEPS_H

#include "backend.h"
#include "conversion.h"

/* A layer's conversion in the making. The tensors have their names and sizes, and nothing on the way. */
struct clv_backend_steps {
	const struct clv_backend_layer *layer;
	struct clv_conversion *conversion;
	struct clv_conversion_tensor *tensor[CLV_BUFFER_KINDS][2]; /* of w13, of w2; NULL: there is none, or it stays */
};

clv_backend_way clv_steps_straight;      /* each expert's result is written where it will stay */
clv_backend_way clv_steps_nvfp4_trtllm;  /* rows change places, scales are gathered and interleaved */
clv_backend_way clv_steps_nvfp4_cutlass; /* rows change places if need be, scales are padded and permuted as a whole */
clv_backend_way clv_steps_fp4_marlin;    /* experts are transposed and repacked, scales upcast as a whole */
clv_backend_way clv_steps_mxfp4_trtllm;  /* gate and up are stacked anew */
clv_backend_way clv_steps_mxfp4_hopper;  /* bits are packed through eight tensors as large as the result */
clv_backend_way clv_steps_fp8_requant;   /* to scales of powers of two, through float32 */
clv_backend_way clv_steps_fp8_trtllm;    /* halves of w13 are swapped as a whole, two copies of an expert on the way */

struct clv_backend_conversion {
	bool stays[CLV_BACKEND_BUFFERS]; /* of the layer's sources, which do; all scalars are among them */
	/* Of the others, in the order of sources; tensor_count 0: there are none. The names are the layer's. */
	struct clv_conversion conversion;
	bool known; /* what is on the way; false: no figures are, and nothing is there in the conversion */
};

void clv_backend_convert(const struct clv_backend_layer *layer, struct clv_backend_conversion *out);

#endif
