/* SPDX-License-Identifier: MIT */
#include "cuda_internal.h"

#include <dlfcn.h>

/* What the driver table is made of. Whatever else a hook needs it asks for itself. */
#define REQUIRED(X)                                                                                                    \
	X(cuInit)                                                                                                      \
	X(cuDriverGetVersion)                                                                                          \
	X(cuDeviceGet)                                                                                                 \
	X(cuDeviceGetCount)                                                                                            \
	X(cuDeviceGetAttribute)                                                                                        \
	X(cuDeviceTotalMem_v2)                                                                                         \
	X(cuDevicePrimaryCtxRetain)                                                                                    \
	X(cuDevicePrimaryCtxGetState)                                                                                  \
	X(cuDevicePrimaryCtxRelease_v2)                                                                                \
	X(cuCtxGetCurrent)                                                                                             \
	X(cuCtxPushCurrent_v2)                                                                                         \
	X(cuCtxPopCurrent_v2)                                                                                          \
	X(cuCtxGetDevice)                                                                                              \
	X(cuCtxSynchronize)                                                                                            \
	X(cuMemAlloc_v2)                                                                                               \
	X(cuMemFree_v2)                                                                                                \
	X(cuMemGetInfo_v2)                                                                                             \
	X(cuMemGetAllocationGranularity)                                                                               \
	X(cuMemAddressReserve)                                                                                         \
	X(cuMemAddressFree)                                                                                            \
	X(cuMemCreate)                                                                                                 \
	X(cuMemRelease)                                                                                                \
	X(cuMemMap)                                                                                                    \
	X(cuMemUnmap)                                                                                                  \
	X(cuMemSetAccess)                                                                                              \
	X(cuStreamSynchronize)                                                                                         \
	X(cuStreamWaitEvent)                                                                                           \
	X(cuStreamGetId)                                                                                               \
	X(cuStreamGetCtx)                                                                                              \
	X(cuStreamIsCapturing)                                                                                         \
	X(cuEventCreate)                                                                                               \
	X(cuEventDestroy_v2)                                                                                           \
	X(cuEventRecord)                                                                                               \
	X(cuEventQuery)                                                                                                \
	X(cuEventSynchronize)                                                                                          \
	X(cuThreadExchangeStreamCaptureMode)

bool clv_cuda_api_load(struct clv_cuda_api *api, void *(*resolve)(void *arg, const char *name), void *arg,
		       struct clv_error *err)
{
	/* ISO C knows no conversion from an object pointer to a function pointer; POSIX's dlsym is used in this way. */
#define LOAD(name, params) *(void **)&api->name = resolve(arg, #name);
#define LOAD_TWINS(name, params) LOAD(name, params) LOAD(name##_ptsz, params)
	CLV_CUDA_CALLS(LOAD, LOAD_TWINS)
#undef LOAD
#undef LOAD_TWINS
#define CHECK(name)                                                                                                    \
	if (!api->name)                                                                                                \
		return clv_error_set(err, "the driver has no %s: it is too old, or not NVIDIA's", #name);
	REQUIRED(CHECK)
#undef CHECK
	return true;
}

static void *resolve_in(void *library, const char *name)
{
	return dlsym(library, name);
}

bool clv_cuda_library_load(struct clv_cuda_api *api, struct clv_error *err)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *why = dlerror();
		return clv_error_set(err, "no libcuda.so.1, the driver of NVIDIA's GPUs: %s", why ? why : "not found");
	}
	if (!clv_cuda_api_load(api, resolve_in, library, err))
		return false;
	CUresult r = api->cuInit(0);
	if (r == CUDA_ERROR_NO_DEVICE)
		return clv_error_set(err, "libcuda.so.1 finds no device");
	if (r != CUDA_SUCCESS) {
		const char *text = NULL;
		if (!api->cuGetErrorString || api->cuGetErrorString(r, &text) != CUDA_SUCCESS || !text)
			text = "unknown error";
		return clv_error_set(err, "libcuda.so.1 cannot be initialised: %s (error %d)", text, (int)r);
	}
	return true;
}
