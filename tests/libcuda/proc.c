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

/* The CUDA version in which a function came, if that was 10.1 or later; or, with no function of ours behind it, that of
 * a newer one which the real driver has and the double has not. */
static const struct {
	const char *name;
	int version;
	bool missing;
} since[] = {
	{"cuCtxCreate_v3", 11040, true},
	{"cuCtxGetDevice_v2", 13000, true},
	{"cuCtxRecordEvent", 12050, false},
	{"cuCtxSynchronize_v2", 13000, true},
	{"cuDeviceGetDefaultMemPool", 11020, false},
	{"cuDeviceGetMemPool", 11020, false},
	{"cuDeviceSetMemPool", 11020, false},
	{"cuDevicePrimaryCtxRelease_v2", 11000, false},
	{"cuDevicePrimaryCtxReset_v2", 11000, false},
	{"cuFuncLoad", 12040, false},
	{"cuGetProcAddress", 11030, false},
	{"cuGetProcAddress_v2", 12000, false},
	{"cuGraphAddNode", 12020, false},
	{"cuGraphAddNode_v2", 12030, false},
	{"cuGraphExecUpdate", 10020, false},
	{"cuGraphExecUpdate_v2", 12000, false},
	{"cuGraphInstantiate_v2", 11000, false},
	{"cuGraphInstantiateWithFlags", 11040, false},
	{"cuGraphInstantiateWithParams", 12000, false},
	{"cuGraphReleaseUserObject", 11030, false},
	{"cuGraphRetainUserObject", 11030, false},
	{"cuGraphUpload", 11010, false},
	{"cuIpcOpenMemHandle_v2", 11000, false},
	{"cuKernelGetFunction", 12000, false},
	{"cuLaunchKernelEx", 11060, false},
	{"cuLibraryGetKernel", 12000, false},
	{"cuLibraryGetModule", 12000, false},
	{"cuLibraryLoadData", 12000, false},
	{"cuLibraryLoadFromFile", 12000, false},
	{"cuMemAddressFree", 10020, false},
	{"cuMemAddressReserve", 10020, false},
	{"cuMemAllocAsync", 11020, false},
	{"cuMemAllocFromPoolAsync", 11020, false},
	{"cuMemCreate", 10020, false},
	{"cuMemExportToShareableHandle", 10020, false},
	{"cuMemFreeAsync", 11020, false},
	{"cuMemGetAllocationGranularity", 10020, false},
	{"cuMemGetDefaultMemPool", 13000, false},
	{"cuMemGetHandleForAddressRange", 11070, false},
	{"cuMemGetMemPool", 13000, false},
	{"cuMemImportFromShareableHandle", 10020, false},
	{"cuMemMap", 10020, false},
	{"cuMemPoolCreate", 11020, false},
	{"cuMemPoolDestroy", 11020, false},
	{"cuMemPoolGetAccess", 11020, false},
	{"cuMemPoolGetAttribute", 11020, false},
	{"cuMemPoolSetAccess", 11020, false},
	{"cuMemPoolSetAttribute", 11020, false},
	{"cuMemPoolTrimTo", 11020, false},
	{"cuMemRelease", 10020, false},
	{"cuMemRetainAllocationHandle", 11000, false},
	{"cuMemSetAccess", 10020, false},
	{"cuMemSetMemPool", 13000, false},
	{"cuMemUnmap", 10020, false},
	{"cuStreamBeginCaptureToGraph", 12030, false},
	{"cuStreamBeginCapture_v2", 10010, false},
	{"cuStreamGetCaptureInfo_v2", 11030, false},
	{"cuStreamGetCaptureInfo_v3", 12030, false},
	{"cuStreamGetCtx_v2", 12050, true},
	{"cuStreamGetId", 12000, false},
	{"cuThreadExchangeStreamCaptureMode", 10010, false},
	{"cuUserObjectCreate", 11030, false},
	{"cuUserObjectRelease", 11030, false},
	{"cuUserObjectRetain", 11030, false},
};
#define OLDEST 2000

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

static CUresult find(const char *symbol, void **pfn, int asked, cuuint64_t flags,
		     CUdriverProcAddressQueryResult *status)
{
	if (!symbol || !pfn || flags & ~(cuuint64_t)3 || flags == 3)
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = NULL;
	bool twin = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, known = false;
	int limit = asked < fc.version ? asked : fc.version, best = 0;
	for (int i = 0; i < FC_CALLS; i++) {
		const char *name = fc_functions[i].name;
		int number = version_of(name, symbol), version = number ? since_of(name) : 0;
		if (!number || version > fc.version)
			continue;
		known = true;
		if (version > limit || number < best)
			continue;
		best = number;
		/* a twin stands behind its function */
		bool has_twin = i + 1 < FC_CALLS && !strncmp(fc_functions[i + 1].name, name, strlen(name)) &&
				!strcmp(fc_functions[i + 1].name + strlen(name), "_ptsz");
		*pfn = fc_functions[i + (twin && has_twin)].address;
	}
	for (size_t i = 0; i < CLV_ARRAY_LEN(since); i++)
		if (since[i].missing && version_of(since[i].name, symbol) > best && since[i].version <= limit)
			*pfn = NULL;
	if (status)
		*status = *pfn    ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	fc_note("%s %d", symbol, asked);
	return CUDA_SUCCESS;
}

FC_CALL(cuGetProcAddress, FC_NOTHING, (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags),
	(symbol, pfn, cudaVersion, flags))
{
	return find(symbol, pfn, cudaVersion, flags, NULL);
}

FC_CALL(cuGetProcAddress_v2, FC_NOTHING,
	(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
	 CUdriverProcAddressQueryResult *symbolStatus),
	(symbol, pfn, cudaVersion, flags, symbolStatus))
{
	return find(symbol, pfn, cudaVersion, flags, symbolStatus);
}
