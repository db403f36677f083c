/* SPDX-License-Identifier: MIT */
#include "driver.h"

const char *clv_result_name(enum clv_result r)
{
	static const char *const names[] = {
		[CLV_OK] = "success",
		[CLV_NOT_READY] = "not ready",
		[CLV_OUT_OF_MEMORY] = "out of memory",
		[CLV_INVALID] = "invalid value",
		[CLV_NOT_SUPPORTED] = "not supported",
		[CLV_CAPTURING] = "not permitted while a stream is capturing",
		[CLV_GONE] = "the driver is shutting down",
		[CLV_FAILED] = "failed",
	};
	return (size_t)r < CLV_ARRAY_LEN(names) ? names[r] : "unknown result";
}

const char *clv_call_name(enum clv_call call)
{
	static const char *const names[] = {
#define X(field, name) [CLV_CALL_##field] = name,
		CLV_DRIVER_CALLS(X)
#undef X
	};
	return (size_t)call < CLV_ARRAY_LEN(names) ? names[call] : "unknown call";
}
