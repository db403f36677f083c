/* SPDX-License-Identifier: MIT
 *
 * cuda_abi: the types and constants of the CUDA Driver API that Cleave uses, so that no toolkit is needed to build. Names
 * and values are those of NVIDIA's cuda.h (CUDA 13.0; the ABI of each is fixed since it appeared); where a real cuda.h is
 * present, the test cuda_abi compares every constant, layout and prototype with it. Owns no state.
 *
 * The functions are listed in cuda_calls.h.
 */
#ifndef CLV_CUDA_ABI_H
#define CLV_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUevent_st *CUevent;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUuserObject_st *CUuserObject;
typedef void (*CUhostFn)(void *userData);

/* Passed through and never looked into. */
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
typedef struct CUgraphNodeParams_st CUgraphNodeParams;
typedef struct CUgraphExecUpdateResultInfo_st CUgraphExecUpdateResultInfo;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUlaunchConfig_st CUlaunchConfig;
typedef struct CUDA_ARRAY_DESCRIPTOR_st CUDA_ARRAY_DESCRIPTOR;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_st CUDA_ARRAY3D_DESCRIPTOR;
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st CUDA_GRAPH_INSTANTIATE_PARAMS;

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_IPC_HANDLE_SIZE 64

/* Every constant that is used: (type, name, value). Types are enumerations in cuda.h; here the constants of one type make
 * up an enumeration of that name. */
#define CLV_CUDA_RESULTS(X)                                                                                            \
	X(CUDA_SUCCESS, 0)                                                                                             \
	X(CUDA_ERROR_INVALID_VALUE, 1)                                                                                 \
	X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                                 \
	X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                                               \
	X(CUDA_ERROR_DEINITIALIZED, 4)                                                                                 \
	X(CUDA_ERROR_NO_DEVICE, 100)                                                                                   \
	X(CUDA_ERROR_INVALID_DEVICE, 101)                                                                              \
	X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                                             \
	X(CUDA_ERROR_MAP_FAILED, 205)                                                                                  \
	X(CUDA_ERROR_ALREADY_MAPPED, 208)                                                                              \
	X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                                 \
	X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705)                                                                     \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                                        \
	X(CUDA_ERROR_INVALID_HANDLE, 400)                                                                              \
	X(CUDA_ERROR_NOT_FOUND, 500)                                                                                   \
	X(CUDA_ERROR_NOT_READY, 600)                                                                                   \
	X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                               \
	X(CUDA_ERROR_NOT_PERMITTED, 800)                                                                               \
	X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                                               \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                                  \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                                  \
	X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902)                                                                        \
	X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903)                                                                    \
	X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)                                                                     \
	X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905)                                                                    \
	X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                                     \
	X(CUDA_ERROR_CAPTURED_EVENT, 907)                                                                              \
	X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                                                                 \
	X(CUDA_ERROR_UNKNOWN, 999)

#define CLV_CUDA_DEVICE_ATTRIBUTES(X)                                                                                  \
	X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                                                                  \
	X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                                \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                                        \
	X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                                            \
	X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                                                             \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 128)

#define CLV_CUDA_POOL_ATTRIBUTES(X)                                                                                    \
	X(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1) /* int */                                                \
	X(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 2)       /* int */                                                \
	X(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 3) /* int */                                              \
	X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4)    /* this and the rest: cuuint64_t */                                 \
	X(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 5)                                                                     \
	X(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 6)                                                                        \
	X(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 7)                                                                         \
	X(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 8)

#define CLV_CUDA_POINTER_ATTRIBUTES(X)                                                                                 \
	X(CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                                                             \
	X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                                         \
	X(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3)                                                                      \
	X(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)                                                                        \
	X(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 6)                                                                         \
	X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                                                           \
	X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                                          \
	X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                                      \
	X(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                                         \
	X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                                                                   \
	X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                                                         \
	X(CU_POINTER_ATTRIBUTE_MAPPED, 13)                                                                             \
	X(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                                               \
	X(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 15)                                                         \
	X(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 16)                                                                       \
	X(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)                                                                     \
	X(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 18)                                                                       \
	X(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, 19)                                                                  \
	X(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, 20)

#define CLV_CUDA_HANDLE_TYPES(X)                                                                                       \
	X(CU_MEM_HANDLE_TYPE_NONE, 0)                                                                                  \
	X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                                                 \
	X(CU_MEM_HANDLE_TYPE_FABRIC, 8)

#define CLV_CUDA_LOCATION_TYPES(X)                                                                                     \
	X(CU_MEM_LOCATION_TYPE_INVALID, 0)                                                                             \
	X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                                              \
	X(CU_MEM_LOCATION_TYPE_HOST, 2)                                                                                \
	X(CU_MEM_LOCATION_TYPE_HOST_NUMA, 3)                                                                           \
	X(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 4)

#define CLV_CUDA_ALLOCATION_TYPES(X)                                                                                   \
	X(CU_MEM_ALLOCATION_TYPE_INVALID, 0)                                                                           \
	X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)

#define CLV_CUDA_ACCESS_FLAGS(X)                                                                                       \
	X(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0)                                                                            \
	X(CU_MEM_ACCESS_FLAGS_PROT_READ, 1)                                                                            \
	X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)

#define CLV_CUDA_GRANULARITIES(X)                                                                                      \
	X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                                         \
	X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)

#define CLV_CUDA_CAPTURE_STATUSES(X)                                                                                   \
	X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                                            \
	X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                                                          \
	X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)

#define CLV_CUDA_CAPTURE_MODES(X)                                                                                      \
	X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                                                            \
	X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                                      \
	X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)

#define CLV_CUDA_PROC_RESULTS(X)                                                                                       \
	X(CU_GET_PROC_ADDRESS_SUCCESS, 0)                                                                              \
	X(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                                                                     \
	X(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)

#define CLV_CUDA_RANGE_HANDLE_TYPES(X) X(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)

/* Enumerations whose values are only passed on: (type). */
#define CLV_CUDA_PASSED_ENUMS(X)                                                                                       \
	X(CUjit_option)                                                                                                \
	X(CUlibraryOption)                                                                                             \
	X(CUgraphExecUpdateResult)

/* (type, its constants): from this list the enumerations are made, and the test's comparison. */
#define CLV_CUDA_ENUMS(X)                                                                                              \
	X(CUresult, CLV_CUDA_RESULTS)                                                                                  \
	X(CUdevice_attribute, CLV_CUDA_DEVICE_ATTRIBUTES)                                                              \
	X(CUmemPool_attribute, CLV_CUDA_POOL_ATTRIBUTES)                                                               \
	X(CUpointer_attribute, CLV_CUDA_POINTER_ATTRIBUTES)                                                            \
	X(CUmemAllocationHandleType, CLV_CUDA_HANDLE_TYPES)                                                            \
	X(CUmemLocationType, CLV_CUDA_LOCATION_TYPES)                                                                  \
	X(CUmemAllocationType, CLV_CUDA_ALLOCATION_TYPES)                                                              \
	X(CUmemAccess_flags, CLV_CUDA_ACCESS_FLAGS)                                                                    \
	X(CUmemAllocationGranularity_flags, CLV_CUDA_GRANULARITIES)                                                    \
	X(CUstreamCaptureStatus, CLV_CUDA_CAPTURE_STATUSES)                                                            \
	X(CUstreamCaptureMode, CLV_CUDA_CAPTURE_MODES)                                                                 \
	X(CUdriverProcAddressQueryResult, CLV_CUDA_PROC_RESULTS)                                                       \
	X(CUmemRangeHandleType, CLV_CUDA_RANGE_HANDLE_TYPES)

/* Flags, which are plain integers in the prototypes. */
#define CLV_CUDA_FLAGS(X)                                                                                              \
	X(CU_EVENT_DISABLE_TIMING, 2)                                                                                  \
	X(CU_STREAM_DEFAULT, 0)                                                                                        \
	X(CU_STREAM_NON_BLOCKING, 1)                                                                                   \
	X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                                 \
	X(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, 1)                                                                        \
	X(CU_GRAPH_USER_OBJECT_MOVE, 1)                                                                                \
	X(CU_GET_PROC_ADDRESS_DEFAULT, 0)                                                                              \
	X(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)                                                                        \
	X(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, 2)

#ifndef CLV_CUDA_ABI_LISTS_ONLY /* the test has these from cuda.h */

#define CLV_CUDA_CONSTANT(name, value) name = value,
#define CLV_CUDA_ENUM(type, constants) typedef enum { constants(CLV_CUDA_CONSTANT) } type;
CLV_CUDA_ENUMS(CLV_CUDA_ENUM)
enum { CLV_CUDA_FLAGS(CLV_CUDA_CONSTANT) };
#define CLV_CUDA_PASSED(type) typedef int type;
CLV_CUDA_PASSED_ENUMS(CLV_CUDA_PASSED)
#undef CLV_CUDA_PASSED
#undef CLV_CUDA_ENUM
#undef CLV_CUDA_CONSTANT

typedef struct CUmemLocation_st {
	CUmemLocationType type;
	int id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct CUmemPoolProps_st {
	CUmemAllocationType allocType;
	CUmemAllocationHandleType handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;

typedef struct CUipcMemHandle_st {
	char reserved[CU_IPC_HANDLE_SIZE];
} CUipcMemHandle;

#endif

#endif
