/* SPDX-License-Identifier: MIT
 *
 * cuda_abi_layouts: the types that the prototypes of cuda_calls.h are made of and the members of structures, for the test
 * which compares ours (cuda_abi_ours.c) with those of a real cuda.h (test_cuda_abi.c).
 */
#ifndef CLV_CUDA_ABI_LAYOUTS_H
#define CLV_CUDA_ABI_LAYOUTS_H

#include <stddef.h>

struct abi_size {
	const char *name;
	size_t size, align_or_offset;
};

/* Numbers, enumerations and handles: passed in a register, so that the size is all there is to them; the signs of numbers are compared
 * apart, and those of enumerations are the compiler's choice and mean nothing between libraries. */
#define ABI_SCALARS(X)                                                                                                 \
	X(CUdevice)                                                                                                    \
	X(CUdeviceptr)                                                                                                 \
	X(CUmemGenericAllocationHandle)                                                                                \
	X(cuuint64_t)                                                                                                  \
	X(CUresult)                                                                                                    \
	X(CUdevice_attribute)                                                                                          \
	X(CUmemPool_attribute)                                                                                         \
	X(CUpointer_attribute)                                                                                         \
	X(CUmemAllocationHandleType)                                                                                   \
	X(CUmemLocationType)                                                                                           \
	X(CUmemAllocationType)                                                                                         \
	X(CUmemAccess_flags)                                                                                           \
	X(CUmemAllocationGranularity_flags)                                                                            \
	X(CUstreamCaptureStatus)                                                                                       \
	X(CUstreamCaptureMode)                                                                                         \
	X(CUdriverProcAddressQueryResult)                                                                              \
	X(CUmemRangeHandleType)                                                                                        \
	X(CUjit_option)                                                                                                \
	X(CUlibraryOption)                                                                                             \
	X(CUgraphExecUpdateResult)

#define ABI_HANDLES(X)                                                                                                 \
	X(CUcontext)                                                                                                   \
	X(CUmodule)                                                                                                    \
	X(CUfunction)                                                                                                  \
	X(CUlibrary)                                                                                                   \
	X(CUkernel)                                                                                                    \
	X(CUarray)                                                                                                     \
	X(CUmipmappedArray)                                                                                            \
	X(CUevent)                                                                                                     \
	X(CUstream)                                                                                                    \
	X(CUgraph)                                                                                                     \
	X(CUgraphNode)                                                                                                 \
	X(CUgraphExec)                                                                                                 \
	X(CUmemoryPool)                                                                                                \
	X(CUuserObject)                                                                                                \
	X(CUhostFn)

#define ABI_STRUCTS(X)                                                                                                 \
	X(CUmemLocation)                                                                                               \
	X(CUmemAllocationProp)                                                                                         \
	X(CUmemAccessDesc)                                                                                             \
	X(CUmemPoolProps)                                                                                              \
	X(CUipcMemHandle)

#define ABI_MEMBERS(X)                                                                                                 \
	X(CUmemLocation, type)                                                                                         \
	X(CUmemLocation, id)                                                                                           \
	X(CUmemAllocationProp, type)                                                                                   \
	X(CUmemAllocationProp, requestedHandleTypes)                                                                   \
	X(CUmemAllocationProp, location)                                                                               \
	X(CUmemAllocationProp, win32HandleMetaData)                                                                    \
	X(CUmemAllocationProp, allocFlags)                                                                             \
	X(CUmemAllocationProp, allocFlags.compressionType)                                                             \
	X(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)                                                        \
	X(CUmemAllocationProp, allocFlags.usage)                                                                       \
	X(CUmemAllocationProp, allocFlags.reserved)                                                                    \
	X(CUmemAccessDesc, location)                                                                                   \
	X(CUmemAccessDesc, flags)                                                                                      \
	X(CUmemPoolProps, allocType)                                                                                   \
	X(CUmemPoolProps, handleTypes)                                                                                 \
	X(CUmemPoolProps, location)                                                                                    \
	X(CUmemPoolProps, win32SecurityAttributes)                                                                     \
	X(CUmemPoolProps, maxSize)                                                                                     \
	X(CUmemPoolProps, usage)                                                                                       \
	X(CUmemPoolProps, reserved)                                                                                    \
	X(CUipcMemHandle, reserved)

#define ABI_SCALAR(type) {#type, sizeof(type), 0},
#define ABI_STRUCT(type) {#type, sizeof(type), _Alignof(type)},
#define ABI_MEMBER(type, member) {#type "." #member, sizeof(((type *)0)->member), offsetof(type, member)},
#define ABI_TABLE                                                                                                      \
	{                                                                                                              \
		ABI_SCALARS(ABI_SCALAR) ABI_HANDLES(ABI_SCALAR) ABI_STRUCTS(ABI_STRUCT) ABI_MEMBERS(ABI_MEMBER)        \
	}

extern const struct abi_size abi_ours[];
extern const size_t abi_ours_count;

#endif
