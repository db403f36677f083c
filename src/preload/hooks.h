/* SPDX-License-Identifier: MIT
 *
 * hooks: the one list of the driver functions that Cleave answers in their place. Each is a function of this library with
 * the driver's name, exported; from the list are made the table by which lookups are answered, the table of the driver's
 * own addresses, and the test that compares list, table and exported symbols. The prototypes are those of cuda_calls.h.
 *
 * X is for a single function, Y for one with a twin for the per-thread default stream (_ptsz). Those of CLV_HOOKS_RETRIED
 * only retry after a trim when the driver is out of memory, and are generated from (name, parameters, arguments).
 */
#ifndef CLV_HOOKS_H
#define CLV_HOOKS_H

#include "../driver/cuda_calls.h"

#define CLV_HOOKS_WRITTEN(X, Y)                                                                                        \
	/* lookup.c */                                                                                                 \
	X(cuGetProcAddress)                                                                                            \
	X(cuGetProcAddress_v2)                                                                                         \
	/* pool.c */                                                                                                   \
	Y(cuMemAllocAsync)                                                                                             \
	Y(cuMemAllocFromPoolAsync)                                                                                     \
	Y(cuMemFreeAsync)                                                                                              \
	X(cuDeviceGetDefaultMemPool)                                                                                   \
	X(cuDeviceSetMemPool)                                                                                          \
	X(cuMemGetDefaultMemPool)                                                                                      \
	X(cuMemSetMemPool)                                                                                             \
	X(cuMemPoolCreate)                                                                                             \
	X(cuMemPoolDestroy)                                                                                            \
	X(cuMemPoolTrimTo)                                                                                             \
	X(cuMemPoolSetAttribute)                                                                                       \
	X(cuMemPoolGetAttribute)                                                                                       \
	X(cuMemPoolSetAccess)                                                                                          \
	/* plain.c */                                                                                                  \
	X(cuMemAlloc_v2)                                                                                               \
	X(cuMemAllocPitch_v2)                                                                                          \
	X(cuMemFree_v2)                                                                                                \
	/* pinned.c */                                                                                                 \
	X(cuMemHostAlloc)                                                                                              \
	X(cuMemAllocHost_v2)                                                                                           \
	X(cuMemFreeHost)                                                                                               \
	/* answers.c */                                                                                                \
	X(cuMemGetInfo_v2)                                                                                             \
	X(cuMemGetAddressRange_v2)                                                                                     \
	X(cuPointerGetAttribute)                                                                                       \
	X(cuPointerGetAttributes)                                                                                      \
	X(cuMemRetainAllocationHandle)                                                                                 \
	/* captures.c */                                                                                               \
	Y(cuStreamBeginCapture)                                                                                        \
	Y(cuStreamBeginCapture_v2)                                                                                     \
	Y(cuStreamBeginCaptureToGraph)                                                                                 \
	Y(cuStreamEndCapture)                                                                                          \
	/* launch.c */                                                                                                 \
	X(cuGraphCreate)                                                                                               \
	X(cuGraphInstantiate)                                                                                          \
	X(cuGraphInstantiate_v2)                                                                                       \
	X(cuGraphInstantiateWithFlags)                                                                                 \
	Y(cuGraphInstantiateWithParams)                                                                                \
	X(cuGraphClone)                                                                                                \
	X(cuGraphAddChildGraphNode)                                                                                    \
	X(cuGraphAddNode)                                                                                              \
	X(cuGraphAddNode_v2)                                                                                           \
	X(cuGraphExecUpdate)                                                                                           \
	X(cuGraphExecUpdate_v2)                                                                                        \
	X(cuGraphExecDestroy)                                                                                          \
	X(cuGraphDestroy)                                                                                              \
	Y(cuGraphLaunch)                                                                                               \
	/* others.c */                                                                                                 \
	X(cuMemAllocManaged)                                                                                           \
	X(cuMemHostRegister_v2)                                                                                        \
	X(cuMemHostUnregister)                                                                                         \
	X(cuArrayCreate_v2)                                                                                            \
	X(cuArray3DCreate_v2)                                                                                          \
	X(cuMipmappedArrayCreate)                                                                                      \
	X(cuArrayDestroy)                                                                                              \
	X(cuMipmappedArrayDestroy)                                                                                     \
	X(cuMemCreate)                                                                                                 \
	X(cuMemRelease)                                                                                                \
	X(cuMemMap)                                                                                                    \
	X(cuMemUnmap)                                                                                                  \
	X(cuMemAddressReserve)                                                                                         \
	X(cuMemAddressFree)                                                                                            \
	/* watch.c */                                                                                                  \
	X(cuStreamDestroy_v2)                                                                                          \
	X(cuCtxDestroy_v2)                                                                                             \
	X(cuDevicePrimaryCtxRetain)                                                                                    \
	X(cuDevicePrimaryCtxRelease_v2)                                                                                \
	X(cuDevicePrimaryCtxReset_v2)                                                                                  \
	X(cuCtxEnablePeerAccess)                                                                                       \
	/* ipc_serve.c, ipc_open.c */                                                                                  \
	X(cuIpcGetMemHandle)                                                                                           \
	X(cuIpcOpenMemHandle)                                                                                          \
	X(cuIpcOpenMemHandle_v2)                                                                                       \
	X(cuIpcCloseMemHandle)

#define CLV_HOOKS_RETRIED(X, Y)                                                                                        \
	X(cuModuleLoad, (CUmodule * m, const char *file), (m, file))                                                   \
	X(cuModuleLoadData, (CUmodule * m, const void *image), (m, image))                                             \
	X(cuModuleLoadDataEx, (CUmodule * m, const void *image, unsigned int n, CUjit_option *o, void **v),            \
	  (m, image, n, o, v))                                                                                         \
	X(cuModuleLoadFatBinary, (CUmodule * m, const void *image), (m, image))                                        \
	X(cuModuleGetFunction, (CUfunction * f, CUmodule m, const char *name), (f, m, name))                           \
	X(cuLibraryLoadData,                                                                                           \
	  (CUlibrary * l, const void *code, CUjit_option *o, void **v, unsigned int n, CUlibraryOption *lo, void **lv, \
	   unsigned int ln),                                                                                           \
	  (l, code, o, v, n, lo, lv, ln))                                                                              \
	X(cuLibraryLoadFromFile,                                                                                       \
	  (CUlibrary * l, const char *file, CUjit_option *o, void **v, unsigned int n, CUlibraryOption *lo, void **lv, \
	   unsigned int ln),                                                                                           \
	  (l, file, o, v, n, lo, lv, ln))                                                                              \
	X(cuLibraryGetModule, (CUmodule * m, CUlibrary l), (m, l))                                                     \
	X(cuLibraryGetKernel, (CUkernel * k, CUlibrary l, const char *name), (k, l, name))                             \
	X(cuKernelGetFunction, (CUfunction * f, CUkernel k), (f, k))                                                   \
	X(cuFuncLoad, (CUfunction f), (f))                                                                             \
	X(cuStreamCreate, (CUstream * s, unsigned int flags), (s, flags))                                              \
	X(cuStreamCreateWithPriority, (CUstream * s, unsigned int flags, int priority), (s, flags, priority))          \
	Y(cuGraphUpload, (CUgraphExec g, CUstream s), (g, s))                                                          \
	Y(cuLaunchKernel,                                                                                              \
	  (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,          \
	   unsigned int bz, unsigned int shared, CUstream s, void **params, void **extra),                             \
	  (f, gx, gy, gz, bx, by, bz, shared, s, params, extra))                                                       \
	Y(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **params, void **extra),                 \
	  (config, f, params, extra))                                                                                  \
	Y(cuLaunchCooperativeKernel,                                                                                   \
	  (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,          \
	   unsigned int bz, unsigned int shared, CUstream s, void **params),                                           \
	  (f, gx, gy, gz, bx, by, bz, shared, s, params))

/* Every hook by its exported name: X(name). */
#define CLV_HOOKS_FIRST_(name, ...) CLV_HOOK_NAME_(name)
#define CLV_HOOKS_FIRST_TWINS_(name, ...) CLV_HOOK_NAME_(name) CLV_HOOK_NAME_(name##_ptsz)
/* The user defines CLV_HOOK_NAME_(name) and expands CLV_HOOKS. */
#define CLV_HOOKS                                                                                                      \
	CLV_HOOKS_WRITTEN(CLV_HOOKS_FIRST_, CLV_HOOKS_FIRST_TWINS_)                                                    \
	CLV_HOOKS_RETRIED(CLV_HOOKS_FIRST_, CLV_HOOKS_FIRST_TWINS_)

/* Before the definition of each hook. */
#define EXPORTED __attribute__((visibility("default")))

/* A hook and its twin, of one function that is told which of the two it is for: true, the per-thread one. */
#define TWINS(name, params, fn, ...)                                                                                   \
	EXPORTED CUresult name params                                                                                  \
	{                                                                                                              \
		return fn(__VA_ARGS__, false);                                                                         \
	}                                                                                                              \
	EXPORTED CUresult name##_ptsz params                                                                           \
	{                                                                                                              \
		return fn(__VA_ARGS__, true);                                                                          \
	}

#endif
