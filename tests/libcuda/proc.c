/* SPDX-License-Identifier: MIT
 *
 * The list of what the double exports, and cuGetProcAddress over it: a name without its version suffix is answered with
 * the newest function of that name that is not newer than the version asked for, nor than the driver.
 */
#include "fake.h"

#include <string.h>

const struct fc_function fc_functions[FC_CALLS] = {
#define X(name, params) {#name, (void *)name},
#define Y(name, params) {#name, (void *)name}, {#name "_ptsz", (void *)name##_ptsz},
	FC_ALL_CALLS(X, Y)
#undef X
#undef Y
};

/* The CUDA version in which a function came, where that changes an answer. */
static const struct {
	const char *name;
	int version;
} since[] = {
	{"cuCtxCreate_v3", 11040},
	{"cuCtxCreate_v4", 12050},
	{"cuCtxGetDevice_v2", 13000},
	{"cuCtxSynchronize_v2", 13000},
	{"cuCtxRecordEvent", 12050},
	{"cuDeviceGetDefaultMemPool", 11020},
	{"cuDeviceGetMemPool", 11020},
	{"cuDeviceSetMemPool", 11020},
	{"cuDeviceGraphMemTrim", 11040},
	{"cuDevicePrimaryCtxRelease_v2", 11000},
	{"cuDevicePrimaryCtxReset_v2", 11000},
	{"cuFuncLoad", 12040},
	{"cuGetProcAddress", 11030},
	{"cuGetProcAddress_v2", 12000},
	{"cuGraphAddNode", 12020},
	{"cuGraphAddNode_v2", 12030},
	{"cuGraphExecUpdate", 10020},
	{"cuGraphExecUpdate_v2", 12000},
	{"cuGraphInstantiate", 10000},
	{"cuGraphInstantiate_v2", 11000},
	{"cuGraphInstantiateWithFlags", 11040},
	{"cuGraphInstantiateWithParams", 12000},
	{"cuGraphReleaseUserObject", 11030},
	{"cuGraphRetainUserObject", 11030},
	{"cuGraphUpload", 11010},
	{"cuIpcOpenMemHandle", 4010},
	{"cuIpcOpenMemHandle_v2", 11000},
	{"cuKernelGetFunction", 12000},
	{"cuLaunchKernelEx", 11060},
	{"cuLibraryGetKernel", 12000},
	{"cuLibraryGetModule", 12000},
	{"cuLibraryLoadData", 12000},
	{"cuLibraryLoadFromFile", 12000},
	{"cuMemAddressFree", 10020},
	{"cuMemAddressReserve", 10020},
	{"cuMemAllocAsync", 11020},
	{"cuMemAllocFromPoolAsync", 11020},
	{"cuMemCreate", 10020},
	{"cuMemExportToShareableHandle", 10020},
	{"cuMemFreeAsync", 11020},
	{"cuMemGetAllocationGranularity", 10020},
	{"cuMemGetDefaultMemPool", 13000},
	{"cuMemGetHandleForAddressRange", 11070},
	{"cuMemGetMemPool", 13000},
	{"cuMemImportFromShareableHandle", 10020},
	{"cuMemMap", 10020},
	{"cuMemPoolCreate", 11020},
	{"cuMemPoolDestroy", 11020},
	{"cuMemPoolGetAccess", 11020},
	{"cuMemPoolGetAttribute", 11020},
	{"cuMemPoolSetAccess", 11020},
	{"cuMemPoolSetAttribute", 11020},
	{"cuMemPoolTrimTo", 11020},
	{"cuMemRelease", 10020},
	{"cuMemRetainAllocationHandle", 11000},
	{"cuMemSetAccess", 10020},
	{"cuMemSetMemPool", 13000},
	{"cuMemUnmap", 10020},
	{"cuStreamBeginCaptureToGraph", 12030},
	{"cuStreamBeginCapture", 10000},
	{"cuStreamBeginCapture_v2", 10010},
	{"cuStreamGetCaptureInfo", 10010},
	{"cuStreamGetCaptureInfo_v2", 11030},
	{"cuStreamGetCaptureInfo_v3", 12030},
	{"cuStreamGetCtx", 9020},
	{"cuStreamGetCtx_v2", 12050},
	{"cuStreamGetId", 12000},
	{"cuThreadExchangeStreamCaptureMode", 10010},
	{"cuUserObjectCreate", 11030},
	{"cuUserObjectRelease", 11030},
	{"cuUserObjectRetain", 11030},
};
#define OLDEST 2000
#define TWINS_SINCE 7000

static int since_of(const char *name)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(since); i++)
		if (!strcmp(since[i].name, name))
			return since[i].version;
	return OLDEST;
}

/* Whether `name` is `symbol`, or that and a version suffix; its number, 1 without one. A symbol that has a suffix itself
 * is none that can be asked for. */
static int version_of(const char *name, const char *symbol)
{
	size_t n = strlen(symbol);
	if (strchr(symbol, '_'))
		return 0;
	if (strncmp(name, symbol, n))
		return 0;
	if (!name[n])
		return 1;
	return name[n] == '_' && name[n + 1] == 'v' && name[n + 2] >= '2' && name[n + 2] <= '9' && !name[n + 3]
		       ? name[n + 2] - '0'
		       : 0;
}

/* The function of that name for the per-thread default stream; NULL: it has none. */
static void *twin_of(const char *name)
{
	size_t n = strlen(name);
	for (int i = 0; i < FC_CALLS; i++) {
		const char *other = fc_functions[i].name;
		if (!strncmp(other, name, n) && (!strcmp(other + n, "_ptsz") || !strcmp(other + n, "_ptds")))
			return fc_functions[i].address;
	}
	return NULL;
}

static CUresult find(const char *symbol, void **pfn, int asked, cuuint64_t flags,
		     CUdriverProcAddressQueryResult *status)
{
	if (!symbol || !pfn || flags & ~(cuuint64_t)3 || flags == 3)
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = NULL;
	bool twins = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, known = false;
	int limit = asked < fc.version ? asked : fc.version, best = 0;
	for (int i = 0; i < FC_CALLS; i++) {
		const char *name = fc_functions[i].name;
		int number = version_of(name, symbol), version = number ? since_of(name) : 0;
		if (!number || version > fc.version)
			continue;
		known = true;
		void *twin = twins ? twin_of(name) : NULL;
		if (version > limit || (twin && TWINS_SINCE > limit) || number < best)
			continue;
		best = number;
		*pfn = twin ? twin : fc_functions[i].address;
	}
	*status = *pfn    ? CU_GET_PROC_ADDRESS_SUCCESS
		  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
			  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	fc_note("%s %d", symbol, asked);
	return CUDA_SUCCESS;
}

/* The older one has no status, so what is not found is an error. */
FC_CALL(cuGetProcAddress, FC_NOTHING, (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags),
	(symbol, pfn, cudaVersion, flags))
{
	CUdriverProcAddressQueryResult status;
	CUresult r = find(symbol, pfn, cudaVersion, flags, &status);
	return r || *pfn ? r : CUDA_ERROR_NOT_FOUND;
}

FC_CALL(cuGetProcAddress_v2, FC_NOTHING,
	(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
	 CUdriverProcAddressQueryResult *symbolStatus),
	(symbol, pfn, cudaVersion, flags, symbolStatus))
{
	CUdriverProcAddressQueryResult ignored;
	return find(symbol, pfn, cudaVersion, flags, symbolStatus ? symbolStatus : &ignored);
}
