/* SPDX-License-Identifier: MIT */
#include "dtype.h"

#include "../base/base.h"

#include <string.h>

/* By enum cleave_dtype. */
static const struct {
	const char *name;
	uint32_t bits;
} dtypes[] = {
	[CLEAVE_DTYPE_NONE] = {NULL, 0},
	[CLEAVE_DTYPE_UINT8] = {"uint8", 8},
	[CLEAVE_DTYPE_INT8] = {"int8", 8},
	[CLEAVE_DTYPE_INT16] = {"int16", 16},
	[CLEAVE_DTYPE_INT32] = {"int32", 32},
	[CLEAVE_DTYPE_INT64] = {"int64", 64},
	[CLEAVE_DTYPE_FLOAT16] = {"float16", 16},
	[CLEAVE_DTYPE_BFLOAT16] = {"bfloat16", 16},
	[CLEAVE_DTYPE_FLOAT32] = {"float32", 32},
	[CLEAVE_DTYPE_FLOAT64] = {"float64", 64},
	[CLEAVE_DTYPE_FLOAT8_E4M3FN] = {"float8_e4m3fn", 8},
	[CLEAVE_DTYPE_FLOAT8_E5M2] = {"float8_e5m2", 8},
	[CLEAVE_DTYPE_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 8},
};

enum cleave_dtype clv_dtype_find(const char *name)
{
	for (size_t i = 1; i < CLV_ARRAY_LEN(dtypes); i++)
		if (!strcmp(dtypes[i].name, name))
			return (enum cleave_dtype)i;
	return CLEAVE_DTYPE_NONE;
}

const char *cleave_dtype_name(enum cleave_dtype dtype)
{
	return (size_t)dtype < CLV_ARRAY_LEN(dtypes) ? dtypes[dtype].name : NULL;
}

uint32_t cleave_dtype_bits(enum cleave_dtype dtype)
{
	return (size_t)dtype < CLV_ARRAY_LEN(dtypes) ? dtypes[dtype].bits : 0;
}
