/* SPDX-License-Identifier: MIT */
#include "preload.h"

/* Until there is an arena for them, captures are the driver's affair. */
bool clv_graphs_alloc(const struct clv_process *p, const struct clv_cuda_stream *s, size_t size, CUdeviceptr *out, CUresult *result)
{
	(void)p, (void)s, (void)size, (void)out, (void)result;
	return false;
}

bool clv_graphs_free(const struct clv_process *p, const struct clv_cuda_stream *s, CUdeviceptr ptr, CUresult *result)
{
	(void)p, (void)s, (void)ptr, (void)result;
	return false;
}
