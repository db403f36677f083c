/* SPDX-License-Identifier: MIT
 *
 * dtype: the types of elements that buffers of a plan can have. Owns one constant table.
 */
#ifndef CLV_DTYPE_H
#define CLV_DTYPE_H

#include <cleave/plan.h>

/* By the name that PyTorch has for it; CLEAVE_DTYPE_NONE: there is no such type. */
enum cleave_dtype clv_dtype_find(const char *name);

#endif
