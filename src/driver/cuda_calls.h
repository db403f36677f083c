/* SPDX-License-Identifier: MIT
 *
 * cuda_calls: the one list of the functions of libcuda.so.1 that Cleave calls or answers, by exported name, with their
 * parameters. From it are made the prototypes, the table of the driver's own functions (struct clv_cuda_api) and the ABI
 * test. Names without a version suffix that have a newer version are the oldest one of that name. Y is for functions that
 * have a twin for the per-thread default stream, whose name ends in _ptsz.
 */
#ifndef CLV_CUDA_CALLS_H
#define CLV_CUDA_CALLS_H

/* clang-format off */
#define CLV_CUDA_CALLS(X, Y) \
	/* start, devices, contexts */ \
	X(cuInit, (unsigned int Flags)) \
	X(cuDriverGetVersion, (int *driverVersion)) \
	X(cuGetErrorName, (CUresult error, const char **pStr)) \
	X(cuGetErrorString, (CUresult error, const char **pStr)) \
	X(cuDeviceGet, (CUdevice *device, int ordinal)) \
	X(cuDeviceGetCount, (int *count)) \
	X(cuDeviceGetName, (char *name, int len, CUdevice dev)) \
	X(cuDeviceGetAttribute, (int *pi, CUdevice_attribute attrib, CUdevice dev)) \
	X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice dev)) \
	X(cuDeviceCanAccessPeer, (int *canAccessPeer, CUdevice dev, CUdevice peerDev)) \
	X(cuDevicePrimaryCtxRetain, (CUcontext *pctx, CUdevice dev)) \
	X(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int *flags, int *active)) \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice dev)) \
	X(cuDevicePrimaryCtxReset_v2, (CUdevice dev)) \
	X(cuCtxCreate_v2, (CUcontext *pctx, unsigned int flags, CUdevice dev)) \
	X(cuCtxDestroy_v2, (CUcontext ctx)) \
	X(cuCtxGetCurrent, (CUcontext *pctx)) \
	X(cuCtxSetCurrent, (CUcontext ctx)) \
	X(cuCtxPushCurrent_v2, (CUcontext ctx)) \
	X(cuCtxPopCurrent_v2, (CUcontext *pctx)) \
	X(cuCtxGetDevice, (CUdevice *device)) \
	X(cuCtxSynchronize, (void)) \
	X(cuCtxRecordEvent, (CUcontext hCtx, CUevent hEvent)) \
	X(cuCtxEnablePeerAccess, (CUcontext peerContext, unsigned int Flags)) \
	X(cuCtxDisablePeerAccess, (CUcontext peerContext)) \
	X(cuGetProcAddress, (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)) \
	X(cuGetProcAddress_v2, \
	  (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, \
	   CUdriverProcAddressQueryResult *symbolStatus)) \
	/* stream-ordered memory and its pools */ \
	Y(cuMemAllocAsync, (CUdeviceptr *dptr, size_t bytesize, CUstream hStream)) \
	Y(cuMemAllocFromPoolAsync, (CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)) \
	Y(cuMemFreeAsync, (CUdeviceptr dptr, CUstream hStream)) \
	X(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool_out, CUdevice dev)) \
	X(cuDeviceGetMemPool, (CUmemoryPool *pool, CUdevice dev)) \
	X(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool)) \
	X(cuMemGetDefaultMemPool, (CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)) \
	X(cuMemGetMemPool, (CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)) \
	X(cuMemSetMemPool, (CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)) \
	X(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *poolProps)) \
	X(cuMemPoolDestroy, (CUmemoryPool pool)) \
	X(cuMemPoolTrimTo, (CUmemoryPool pool, size_t minBytesToKeep)) \
	X(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value)) \
	X(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value)) \
	X(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)) \
	X(cuMemPoolGetAccess, (CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)) \
	/* plain memory */ \
	X(cuMemAlloc_v2, (CUdeviceptr *dptr, size_t bytesize)) \
	X(cuMemAllocPitch_v2, \
	  (CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes)) \
	X(cuMemFree_v2, (CUdeviceptr dptr)) \
	X(cuMemAllocManaged, (CUdeviceptr *dptr, size_t bytesize, unsigned int flags)) \
	X(cuMemGetInfo_v2, (size_t *free, size_t *total)) \
	X(cuMemGetAddressRange_v2, (CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)) \
	X(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr)) \
	X(cuPointerGetAttributes, \
	  (unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)) \
	X(cuMemHostAlloc, (void **pp, size_t bytesize, unsigned int Flags)) \
	X(cuMemAllocHost_v2, (void **pp, size_t bytesize)) \
	X(cuMemFreeHost, (void *p)) \
	X(cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned int Flags)) \
	X(cuMemHostUnregister, (void *p)) \
	X(cuMemHostGetDevicePointer_v2, (CUdeviceptr *pdptr, void *p, unsigned int Flags)) \
	X(cuMemHostGetFlags, (unsigned int *pFlags, void *p)) \
	X(cuArrayCreate_v2, (CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)) \
	X(cuArray3DCreate_v2, (CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)) \
	X(cuMipmappedArrayCreate, \
	  (CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc, \
	   unsigned int numMipmapLevels)) \
	X(cuArrayDestroy, (CUarray hArray)) \
	X(cuMipmappedArrayDestroy, (CUmipmappedArray hMipmappedArray)) \
	/* between processes */ \
	X(cuIpcGetMemHandle, (CUipcMemHandle *pHandle, CUdeviceptr dptr)) \
	X(cuIpcOpenMemHandle_v2, (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)) \
	X(cuIpcOpenMemHandle, (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)) \
	X(cuIpcCloseMemHandle, (CUdeviceptr dptr)) \
	X(cuMemExportToShareableHandle, \
	  (void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType, \
	   unsigned long long flags)) \
	X(cuMemImportFromShareableHandle, \
	  (CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)) \
	X(cuMemGetHandleForAddressRange, \
	  (void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType, unsigned long long flags)) \
	/* frames */ \
	X(cuMemGetAllocationGranularity, \
	  (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)) \
	X(cuMemAddressReserve, \
	  (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)) \
	X(cuMemAddressFree, (CUdeviceptr ptr, size_t size)) \
	X(cuMemCreate, \
	  (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, \
	   unsigned long long flags)) \
	X(cuMemRelease, (CUmemGenericAllocationHandle handle)) \
	X(cuMemMap, \
	  (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, \
	   unsigned long long flags)) \
	X(cuMemUnmap, (CUdeviceptr ptr, size_t size)) \
	X(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)) \
	X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *addr)) \
	/* streams and events */ \
	X(cuStreamCreate, (CUstream *phStream, unsigned int Flags)) \
	X(cuStreamCreateWithPriority, (CUstream *phStream, unsigned int flags, int priority)) \
	X(cuStreamDestroy_v2, (CUstream hStream)) \
	Y(cuStreamSynchronize, (CUstream hStream)) \
	Y(cuStreamQuery, (CUstream hStream)) \
	Y(cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags)) \
	Y(cuStreamGetId, (CUstream hStream, unsigned long long *streamId)) \
	Y(cuStreamGetCtx, (CUstream hStream, CUcontext *pctx)) \
	X(cuEventCreate, (CUevent *phEvent, unsigned int Flags)) \
	X(cuEventDestroy_v2, (CUevent hEvent)) \
	Y(cuEventRecord, (CUevent hEvent, CUstream hStream)) \
	X(cuEventQuery, (CUevent hEvent)) \
	X(cuEventSynchronize, (CUevent hEvent)) \
	Y(cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData)) \
	/* captures and graphs */ \
	Y(cuStreamBeginCapture, (CUstream hStream)) \
	Y(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode)) \
	Y(cuStreamBeginCaptureToGraph, \
	  (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, \
	   size_t numDependencies, CUstreamCaptureMode mode)) \
	Y(cuStreamEndCapture, (CUstream hStream, CUgraph *phGraph)) \
	Y(cuStreamIsCapturing, (CUstream hStream, CUstreamCaptureStatus *captureStatus)) \
	Y(cuStreamGetCaptureInfo_v2, \
	  (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out, \
	   const CUgraphNode **dependencies_out, size_t *numDependencies_out)) \
	Y(cuStreamGetCaptureInfo_v3, \
	  (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out, \
	   const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)) \
	X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode)) \
	X(cuUserObjectCreate, \
	  (CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount, unsigned int flags)) \
	X(cuUserObjectRetain, (CUuserObject object, unsigned int count)) \
	X(cuUserObjectRelease, (CUuserObject object, unsigned int count)) \
	X(cuGraphReleaseUserObject, (CUgraph graph, CUuserObject object, unsigned int count)) \
	X(cuGraphRetainUserObject, (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)) \
	X(cuGraphCreate, (CUgraph *phGraph, unsigned int flags)) \
	X(cuGraphDestroy, (CUgraph hGraph)) \
	X(cuGraphClone, (CUgraph *phGraphClone, CUgraph originalGraph)) \
	X(cuGraphAddChildGraphNode, \
	  (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies, \
	   CUgraph childGraph)) \
	X(cuGraphAddNode, \
	  (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies, \
	   CUgraphNodeParams *nodeParams)) \
	X(cuGraphAddNode_v2, \
	  (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, \
	   const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)) \
	X(cuGraphInstantiate, \
	  (CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)) \
	X(cuGraphInstantiate_v2, \
	  (CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)) \
	X(cuGraphInstantiateWithFlags, (CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)) \
	Y(cuGraphInstantiateWithParams, \
	  (CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)) \
	X(cuGraphExecUpdate, \
	  (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out, \
	   CUgraphExecUpdateResult *updateResult_out)) \
	X(cuGraphExecUpdate_v2, (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)) \
	X(cuGraphExecDestroy, (CUgraphExec hGraphExec)) \
	Y(cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream)) \
	Y(cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream)) \
	X(cuDeviceGraphMemTrim, (CUdevice device)) \
	/* code */ \
	X(cuModuleLoad, (CUmodule *module, const char *fname)) \
	X(cuModuleLoadData, (CUmodule *module, const void *image)) \
	X(cuModuleLoadDataEx, \
	  (CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options, \
	   void **optionValues)) \
	X(cuModuleLoadFatBinary, (CUmodule *module, const void *fatCubin)) \
	X(cuModuleGetFunction, (CUfunction *hfunc, CUmodule hmod, const char *name)) \
	X(cuLibraryLoadData, \
	  (CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues, \
	   unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues, \
	   unsigned int numLibraryOptions)) \
	X(cuLibraryLoadFromFile, \
	  (CUlibrary *library, const char *fileName, CUjit_option *jitOptions, void **jitOptionsValues, \
	   unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues, \
	   unsigned int numLibraryOptions)) \
	X(cuLibraryGetModule, (CUmodule *pMod, CUlibrary library)) \
	X(cuLibraryGetKernel, (CUkernel *pKernel, CUlibrary library, const char *name)) \
	X(cuKernelGetFunction, (CUfunction *pFunc, CUkernel kernel)) \
	X(cuFuncLoad, (CUfunction function)) \
	Y(cuLaunchKernel, \
	  (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, \
	   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, \
	   CUstream hStream, void **kernelParams, void **extra)) \
	Y(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)) \
	Y(cuLaunchCooperativeKernel, \
	  (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, \
	   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, \
	   CUstream hStream, void **kernelParams)) \
	/* copies */ \
	X(cuMemsetD8_v2, (CUdeviceptr dstDevice, unsigned char uc, size_t N)) \
	Y(cuMemsetD8Async, (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)) \
	Y(cuMemsetD32Async, (CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)) \
	X(cuMemcpyDtoH_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)) \
	X(cuMemcpyHtoD_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)) \
	Y(cuMemcpyDtoHAsync_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)) \
	Y(cuMemcpyHtoDAsync_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)) \
	Y(cuMemcpyDtoDAsync_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream))
/* clang-format on */

#ifndef CLV_CUDA_ABI_LISTS_ONLY

#include "cuda_abi.h"

#define CLV_CUDA_DECLARE(name, params) CUresult name params;
#define CLV_CUDA_DECLARE_TWINS(name, params)                                                                           \
	CUresult name params;                                                                                          \
	CUresult name##_ptsz params;
CLV_CUDA_CALLS(CLV_CUDA_DECLARE, CLV_CUDA_DECLARE_TWINS)
#undef CLV_CUDA_DECLARE
#undef CLV_CUDA_DECLARE_TWINS

/* The functions of a real driver; NULL: this driver has none of that name. */
struct clv_cuda_api {
#define CLV_CUDA_MEMBER(name, params) CUresult(*name) params;
#define CLV_CUDA_MEMBER_TWINS(name, params)                                                                            \
	CUresult(*name) params;                                                                                        \
	CUresult(*name##_ptsz) params;
	CLV_CUDA_CALLS(CLV_CUDA_MEMBER, CLV_CUDA_MEMBER_TWINS)
#undef CLV_CUDA_MEMBER
#undef CLV_CUDA_MEMBER_TWINS
};

#endif

#endif
