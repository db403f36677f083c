/* SPDX-License-Identifier: MIT
 *
 * backend_layouts: in what shapes backends hold a matrix or its scales; for the table of backends. Owns nothing, no lock.
 *
 * R x C is a matrix of the rank's experts E, padded (w13: S x N, K; w2: K, N), r x c its scales as loaded. ru(x, a) rounds
 * up. Where a layout rounds up, what is not of the matrix is zeros.
 */
#ifndef CLV_BACKEND_LAYOUTS_H
#define CLV_BACKEND_LAYOUTS_H

#include "backend.h"

/* Weights */
clv_backend_layout clv_layout_rows;        /* (E, R, C): as loaded, perhaps with its rows in another order */
clv_backend_layout clv_layout_flipped;     /* the same; w2, and a w13 without a gate, stay where they are */
clv_backend_layout clv_layout_marlin;      /* int32 (E, C/16, R x bits/2) */
clv_backend_layout clv_layout_block_major; /* u8 (E, C in bytes/128, R, 128) */
clv_backend_layout clv_layout_hopper;      /* u8 (E, ru(C/2, 64), R) */

/* Scales */
clv_backend_layout clv_layout_scale_rows;        /* (E, r, c): as loaded */
clv_backend_layout clv_layout_rows_e4m3;         /* the same, called e4m3 */
clv_backend_layout clv_layout_rows_128x4;        /* (E, r, c), in tiles of 128 x 4, which it has whole */
clv_backend_layout clv_layout_swizzled_128x4;    /* (E, ru(r, 128), ru(c, 4)) in such tiles */
clv_backend_layout clv_layout_sm90_interleaved;  /* (E, c/4, r x 4) */
clv_backend_layout clv_layout_marlin_scales;     /* (E, c, r) */
clv_backend_layout clv_layout_marlin_fp8_scales; /* the model's dtype (E, groups, R); groups: 1, or blocks of a row */
clv_backend_layout clv_layout_ue8m0_packed;      /* int32 (E, r, ceil(c/4)), rows adjacent, columns ru(r, 4) apart */
clv_backend_layout clv_layout_ue8m0_of_blocks;   /* the same of R rows, each with the scales of its block */
clv_backend_layout clv_layout_hopper_scales;     /* u8 (E, ru(c, 4) x 32, ru(r, 256)/32) */

/* Sets shape, strides (contiguous), bytes; unused dimensions are 0. */
void clv_layout_set(struct clv_backend_buffer *out, struct clv_backend_dtype dtype, uint64_t a, uint64_t b, uint64_t c,
		    uint64_t d);
struct clv_backend_dtype clv_layout_dtype(enum clv_model_dtype dtype);

/* For people; of NULL "-". */
const char *clv_layout_name(clv_backend_layout *layout);

#endif
