/* SPDX-License-Identifier: MIT
 *
 * driver_facts LIBRARY: asks a driver about what documentation leaves open, and prints a line for each answer. Run on a
 * real libcuda.so.1 and on the test double, it shows where the double is wrong. Each group of questions has a process of
 * its own, since some end a driver's state or the process.
 */
#define _GNU_SOURCE
#include "../src/driver/cuda_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static void *lib;
static struct clv_cuda_api cu;
static CUcontext primary;

#define SAY(text, call) printf("  %s: %d\n", text, (int)(call))

static void start(void)
{
#define X(name, params) *(void **)&cu.name = dlsym(lib, #name);
#define Y(name, params) X(name, params) X(name##_ptsz, params)
	CLV_CUDA_CALLS(X, Y)
#undef X
#undef Y
	if (cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&primary, 0) || cu.cuCtxSetCurrent(primary)) {
		printf("  cannot start\n");
		exit(1);
	}
}

static CUstream stream(unsigned flags)
{
	CUstream s = NULL;
	cu.cuStreamCreate(&s, flags);
	return s;
}

static CUevent event(void)
{
	CUevent e = NULL;
	cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
	return e;
}

static int status_of(CUstream s)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r = cu.cuStreamIsCapturing(s, &status);
	return r ? -(int)r : (int)status;
}

/* Which exported function an address is. */
static const char *name_of(void *p)
{
	if (!p)
		return "-";
#define X(name, params)                                                                                                \
	if (p == dlsym(lib, #name))                                                                                    \
		return #name;
#define Y(name, params) X(name, params) X(name##_ptsz, params)
	CLV_CUDA_CALLS(X, Y)
#undef X
#undef Y
	return "another";
}

static void proc(void)
{
	static const char *const names[] = {
		"cuMemAlloc",
		"cuMemAlloc_v2",
		"cuMemAllocAsync",
		"cuMemAllocAsync_ptsz",
		"cuNothing",
		"cuGetProcAddress",
		"cuGraphInstantiate",
		"cuGraphExecUpdate",
		"cuGraphAddNode",
		"cuStreamGetCaptureInfo",
		"cuStreamGetCtx",
		"cuCtxCreate",
		"cuCtxSynchronize",
		"cuCtxGetDevice",
		"cuStreamBeginCapture",
		"cuIpcOpenMemHandle",
		"cuDevicePrimaryCtxRelease",
		"cuMemGetDefaultMemPool",
		"cuLaunchKernelEx",
		"cuMemcpyHtoD",
		"cuMemcpyDtoHAsync",
		"cuStreamGetId",
		"cuMemGetMemPool",
		"cuEventRecord",
	};
	static const int versions[] = {3020, 11000, 11020, 11030, 11040, 12000, 12030, 12050, 13000};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++)
			for (int flag = 0; flag <= 2; flag += 2) {
				void *p = (void *)1;
				CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
				CUresult r =
					cu.cuGetProcAddress_v2(names[i], &p, versions[v], (cuuint64_t)flag, &status);
				printf("  %s %d flag %d: %d %s status %d\n", names[i], versions[v], flag, (int)r,
				       r ? "?" : name_of(p), (int)status);
			}
	void *p = (void *)1;
	SAY("v1 of nothing", cu.cuGetProcAddress("cuNothing", &p, 12000, 0));
	SAY("v1 too old", cu.cuGetProcAddress("cuMemAllocAsync", &p, 11000, 0));
	SAY("without status, nothing", cu.cuGetProcAddress_v2("cuNothing", &p, 12000, 0, NULL));
}

static void no_context(void)
{
	CUdeviceptr p, plain, at;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUevent e = event();
	size_t f, t;
	unsigned type;
	unsigned long long id;
	CUmemoryPool pool;
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	cu.cuMemAllocAsync(&p, MIB, s);
	cu.cuMemAlloc_v2(&plain, MIB);
	cu.cuEventRecord(e, s);
	cu.cuCtxSetCurrent(NULL);
	SAY("cuMemGetInfo", cu.cuMemGetInfo_v2(&f, &t));
	SAY("cuPointerGetAttribute", cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain));
	SAY("cuMemGetAddressRange", cu.cuMemGetAddressRange_v2(&at, &f, plain));
	SAY("cuStreamGetId", cu.cuStreamGetId(s, &id));
	SAY("cuStreamGetId legacy", cu.cuStreamGetId(NULL, &id));
	SAY("cuStreamQuery", cu.cuStreamQuery(s));
	SAY("cuStreamSynchronize", cu.cuStreamSynchronize(s));
	SAY("cuEventQuery", cu.cuEventQuery(e));
	SAY("cuEventSynchronize", cu.cuEventSynchronize(e));
	SAY("cuEventRecord", cu.cuEventRecord(e, s));
	SAY("cuStreamWaitEvent", cu.cuStreamWaitEvent(s, e, 0));
	SAY("cuMemsetD8Async", cu.cuMemsetD8Async(p, 0, 1, s));
	SAY("cuMemAllocAsync", cu.cuMemAllocAsync(&at, MIB, s));
	SAY("cuMemFreeAsync", cu.cuMemFreeAsync(p, s));
	SAY("cuMemFree", cu.cuMemFree_v2(plain));
	SAY("cuMemAddressReserve", cu.cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
	SAY("cuMemCreate", cu.cuMemCreate(&h, 2 * MIB, &prop, 0));
	SAY("cuDeviceGetDefaultMemPool", cu.cuDeviceGetDefaultMemPool(&pool, 0));
	SAY("cuMemPoolTrimTo", cu.cuMemPoolTrimTo(pool, 0));
	SAY("cuEventDestroy", cu.cuEventDestroy_v2(e));
	SAY("cuStreamDestroy", cu.cuStreamDestroy_v2(s));
}

static void plain(void)
{
	CUdeviceptr p, base;
	size_t size = 0;
	void *host;
	SAY("cuMemAlloc 0", cu.cuMemAlloc_v2(&p, 0));
	SAY("cuMemAlloc 100", cu.cuMemAlloc_v2(&p, 100));
	SAY("range of 100", cu.cuMemGetAddressRange_v2(&base, &size, p + 99));
	printf("  its size: %zu\n", size);
	SAY("range at 100", cu.cuMemGetAddressRange_v2(&base, &size, p + 100));
	SAY("free inside", cu.cuMemFree_v2(p + 1));
	SAY("free on a stream", cu.cuMemFreeAsync(p, NULL));
	cu.cuMemAlloc_v2(&p, MIB);
	SAY("free", cu.cuMemFree_v2(p));
	SAY("free again", cu.cuMemFree_v2(p));
	SAY("free NULL", cu.cuMemFree_v2(0));
	SAY("free NULL on a stream", cu.cuMemFreeAsync(0, NULL));
	SAY("range of what is freed", cu.cuMemGetAddressRange_v2(&base, &size, p));
	SAY("memset of what is freed", cu.cuMemsetD8_v2(p, 0, 1));
	SAY("host", cu.cuMemHostAlloc(&host, 100, 0));
	SAY("free host", cu.cuMemFreeHost(host));
	SAY("free host again", cu.cuMemFreeHost(host));
	SAY("free host NULL", cu.cuMemFreeHost(NULL));
	host = aligned_alloc(4096, 8192);
	SAY("register", cu.cuMemHostRegister_v2(host, 8192, 0));
	SAY("register again", cu.cuMemHostRegister_v2(host, 8192, 0));
	SAY("free host of registered", cu.cuMemFreeHost(host));
	SAY("destroy primary", cu.cuCtxDestroy_v2(primary));
}

static void attributes_of(const char *what, CUdeviceptr p)
{
	for (int a = 1; a <= 20; a++) {
		if (a == 5) /* a structure */
			continue;
		unsigned char data[32] = {0};
		CUresult r = cu.cuPointerGetAttribute(data, (CUpointer_attribute)a, p);
		unsigned long long number;
		memcpy(&number, data, sizeof(number));
		/* addresses and handles differ from run to run: only whether there is one */
		if (a == 1 || a == 3 || a == 4 || a == 7 || a == 11 || a == 17 || a == 19 || a == 20)
			number = number != 0;
		printf("  %s attribute %d: %d %lld\n", what, a, (int)r, r ? 0 : (long long)number);
	}
}

static void attributes(void)
{
	CUdeviceptr p, at;
	void *host;
	CUmemGenericAllocationHandle h, again;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc desc = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr base;
	size_t size = 0;
	cu.cuMemAlloc_v2(&p, 100);
	attributes_of("plain", p);
	SAY("retain plain", cu.cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)p));
	cu.cuMemAllocAsync(&p, 100, NULL);
	cu.cuCtxSynchronize();
	attributes_of("pool", p);
	SAY("retain pool", cu.cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)p));
	SAY("range of pool memory", cu.cuMemGetAddressRange_v2(&base, &size, p + 99));
	printf("  its size: %zu, begins there: %d\n", size, base == p);
	cu.cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0);
	cu.cuMemCreate(&h, 2 * MIB, &prop, 0);
	cu.cuMemMap(at, 2 * MIB, 0, h, 0);
	attributes_of("mapped, no access", at);
	cu.cuMemSetAccess(at, 2 * MIB, &desc, 1);
	attributes_of("mapped", at);
	attributes_of("reserved", at + 2 * MIB);
	SAY("retain", cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
	printf("  the same handle: %d\n", h == again);
	SAY("release", cu.cuMemRelease(h));
	SAY("release the other", cu.cuMemRelease(again));
	SAY("retain again", cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
	cu.cuMemHostAlloc(&host, 100, 0);
	attributes_of("host", (CUdeviceptr)(uintptr_t)host);
	attributes_of("nothing", (CUdeviceptr)(uintptr_t)&host);
}

static void pools(void)
{
	CUdeviceptr p;
	CUmemoryPool def, pool;
	cuuint64_t v = 0, one = 1;
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc none = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
	SAY("allocate 0", cu.cuMemAllocAsync(&p, 0, NULL));
	SAY("allocate 100", cu.cuMemAllocAsync(&p, 100, NULL));
	cu.cuDeviceGetDefaultMemPool(&def, 0);
	cu.cuMemPoolGetAttribute(def, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v);
	printf("  used for 100: %llu\n", (unsigned long long)v);
	SAY("set used high 1", cu.cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
	SAY("set used current", cu.cuMemPoolSetAttribute(def, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &one));
	SAY("attribute 99", cu.cuMemPoolGetAttribute(def, (CUmemPool_attribute)99, &v));
	SAY("owner without access", cu.cuMemPoolSetAccess(def, &none, 1));
	SAY("destroy default", cu.cuMemPoolDestroy(def));
	SAY("create", cu.cuMemPoolCreate(&pool, &props));
	SAY("set", cu.cuDeviceSetMemPool(0, pool));
	SAY("free with cuMemFree", cu.cuMemFree_v2(p));
	cu.cuMemAllocAsync(&p, 100, NULL);
	SAY("destroy current, with memory", cu.cuMemPoolDestroy(pool));
	cu.cuDeviceGetMemPool(&pool, 0);
	printf("  default is current: %d\n", pool == def);
	SAY("free after it", cu.cuMemFreeAsync(p, NULL));
	cu.cuMemAllocAsync(&p, MIB, NULL);
	cu.cuCtxSynchronize();
	SAY("reset primary", cu.cuDevicePrimaryCtxReset_v2(0));
	cu.cuMemPoolGetAttribute(def, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v);
	printf("  used after a reset: %llu\n", (unsigned long long)v);
	SAY("with the dead context", cu.cuMemAllocAsync(&p, MIB, NULL));
	SAY("retain", cu.cuDevicePrimaryCtxRetain(&primary, 0));
	SAY("current", cu.cuCtxSetCurrent(primary));
	SAY("allocate", cu.cuMemAllocAsync(&p, MIB, NULL));
}

static void *in_thread(void *arg)
{
	CUgraph g;
	cu.cuCtxSetCurrent(primary);
	return (void *)(intptr_t)cu.cuStreamEndCapture(arg, &g);
}

static void captures(void)
{
	CUdeviceptr p, q;
	CUgraph g = NULL;
	CUstream s = stream(CU_STREAM_NON_BLOCKING), t = stream(CU_STREAM_NON_BLOCKING), b = stream(0);
	CUevent e = event(), fork = event(), other = event();
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	pthread_t thread;
	void *result;
	cu.cuMemAllocAsync(&p, MIB, s);
	cu.cuStreamSynchronize(s);
	SAY("end without begin", cu.cuStreamEndCapture(s, &g));
	SAY("begin on legacy", cu.cuStreamBeginCapture_v2(NULL, relaxed));
	SAY("begin", cu.cuStreamBeginCapture_v2(s, relaxed));
	SAY("begin again", cu.cuStreamBeginCapture_v2(s, relaxed));
	SAY("status", status_of(s));
	SAY("free uncaptured memory", cu.cuMemFreeAsync(p, s));
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));

	cu.cuStreamBeginCapture_v2(s, relaxed);
	SAY("allocate", cu.cuMemAllocAsync(&q, MIB, s));
	SAY("free", cu.cuMemFreeAsync(q, s));
	SAY("free again", cu.cuMemFreeAsync(q, s));
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));

	cu.cuStreamBeginCapture_v2(s, relaxed);
	SAY("synchronize it, relaxed", cu.cuStreamSynchronize(s));
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));
	cu.cuStreamBeginCapture_v2(s, relaxed);
	SAY("query it, relaxed", cu.cuStreamQuery(s));
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));
	cu.cuStreamBeginCapture_v2(s, relaxed);
	SAY("synchronize the context, relaxed", cu.cuCtxSynchronize());
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));

	unsigned long long id;
	cu.cuStreamBeginCapture_v2(s, relaxed);
	SAY("its id, relaxed", cu.cuStreamGetId(s, &id));
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));

	cu.cuEventRecord(other, t);
	cu.cuStreamBeginCapture_v2(s, relaxed);
	SAY("wait for an event from outside", cu.cuStreamWaitEvent(s, other, 0));
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));

	cu.cuStreamBeginCapture_v2(s, relaxed);
	cu.cuEventRecord(fork, s);
	SAY("query a captured event", cu.cuEventQuery(fork));
	SAY("synchronize a captured event", cu.cuEventSynchronize(fork));
	SAY("status", status_of(s));
	SAY("join", cu.cuStreamWaitEvent(t, fork, 0));
	SAY("end on the other", cu.cuStreamEndCapture(t, &g));
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));
	SAY("status of the other", status_of(t));

	cu.cuStreamBeginCapture_v2(s, relaxed);
	cu.cuEventRecord(fork, s);
	cu.cuStreamWaitEvent(t, fork, 0);
	SAY("end with a stream that joined and did nothing", cu.cuStreamEndCapture(s, &g));
	SAY("query the event afterwards", cu.cuEventQuery(fork));
	SAY("wait for it afterwards", cu.cuStreamWaitEvent(t, fork, 0));

	cu.cuStreamBeginCapture_v2(s, relaxed);
	cu.cuEventRecord(fork, s);
	cu.cuStreamWaitEvent(t, fork, 0);
	cu.cuMemsetD8Async(p, 0, 1, t);
	SAY("end with unjoined work", cu.cuStreamEndCapture(s, &g));
	SAY("status of the other", status_of(t));

	cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	pthread_create(&thread, NULL, in_thread, s);
	pthread_join(thread, &result);
	SAY("end in another thread", (intptr_t)result);
	SAY("status", status_of(s));
	SAY("end", cu.cuStreamEndCapture(s, &g));

	cu.cuStreamBeginCapture_v2(b, relaxed);
	SAY("legacy work beside a blocking stream's", cu.cuMemsetD8Async(p, 0, 1, NULL));
	SAY("status", status_of(b));
	SAY("end", cu.cuStreamEndCapture(b, &g));
	cu.cuStreamBeginCapture_v2(b, relaxed);
	SAY("is legacy captured", status_of(NULL));
	SAY("status", status_of(b));
	SAY("legacy event", cu.cuEventRecord(e, NULL));
	SAY("end", cu.cuStreamEndCapture(b, &g));
	cu.cuStreamBeginCapture_v2(b, relaxed);
	SAY("id of the legacy stream", cu.cuStreamGetId(NULL, &id));
	SAY("status", status_of(b));
	SAY("end", cu.cuStreamEndCapture(b, &g));
	cu.cuStreamBeginCapture_v2(b, relaxed);
	SAY("destroy a stream that is captured", cu.cuStreamDestroy_v2(b));
}

static void unsafe(void)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING), t = stream(CU_STREAM_NON_BLOCKING), made;
	CUevent e = event(), fresh;
	CUgraph g = NULL, empty;
	CUgraphExec x = NULL;
	CUdeviceptr p, q = 0, at;
	CUmemoryPool pool;
	void *host;
	size_t f, total;
	unsigned type;
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	cu.cuMemAlloc_v2(&p, MIB);
	cu.cuDeviceGetDefaultMemPool(&pool, 0);
	cu.cuGraphCreate(&empty, 0);
	cu.cuEventRecord(e, t);
#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL);                                          \
		SAY(#call, call);                                                                                      \
		SAY("  status", status_of(s));                                                                         \
		SAY("  end", cu.cuStreamEndCapture(s, &g));                                                            \
	} while (0)
	unsigned long long id;
	CUcontext owner;
	CUstreamCaptureStatus capturing;
	TRY(cu.cuStreamGetId(s, &id));
	TRY(cu.cuStreamGetId(t, &id));
	TRY(cu.cuStreamGetId(NULL, &id));
	TRY(cu.cuStreamGetCtx(s, &owner));
	TRY(cu.cuStreamGetCtx(t, &owner));
	TRY(cu.cuStreamGetCaptureInfo_v2(s, &capturing, NULL, NULL, NULL, NULL));
	TRY(cu.cuMemGetInfo_v2(&f, &total));
	TRY(cu.cuStreamCreate(&made, 1));
	TRY(cu.cuStreamDestroy_v2(made));
	TRY(cu.cuEventCreate(&fresh, 2));
	TRY(cu.cuEventDestroy_v2(fresh));
	TRY(cu.cuEventRecord(e, t));
	TRY(cu.cuEventQuery(e));
	TRY(cu.cuEventSynchronize(e));
	TRY(cu.cuStreamWaitEvent(t, e, 0));
	TRY(cu.cuStreamQuery(t));
	TRY(cu.cuStreamSynchronize(t));
	TRY(cu.cuCtxSynchronize());
	TRY(cu.cuMemAlloc_v2(&q, MIB));
	TRY(cu.cuMemFree_v2(p));
	TRY(cu.cuMemHostAlloc(&host, 100, 0));
	TRY(cu.cuMemAllocAsync(&q, MIB, t));
	TRY(cu.cuMemFreeAsync(q, t));
	TRY(cu.cuMemPoolTrimTo(pool, 0));
	TRY(cu.cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
	TRY(cu.cuMemCreate(&h, 2 * MIB, &prop, 0));
	TRY(cu.cuMemMap(at, 2 * MIB, 0, h, 0));
	TRY(cu.cuMemUnmap(at, 2 * MIB));
	TRY(cu.cuMemRelease(h));
	TRY(cu.cuMemAddressFree(at, 2 * MIB));
	TRY(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	TRY(cu.cuGraphInstantiateWithFlags(&x, empty, 0));
	TRY(cu.cuGraphLaunch(x, t));
	TRY(cu.cuGraphExecDestroy(x));
	TRY(cu.cuGraphDestroy(empty));
	TRY(cu.cuMemcpyDtoH_v2(&type, p, 4));
	TRY(cu.cuMemsetD8_v2(p, 0, 4));
	TRY(cu.cuMemsetD8Async(p, 0, 4, t));
}

static void contexts(void)
{
	CUcontext a, got = NULL;
	CUevent e, ours = event();
	CUdevice d;
	CUdeviceptr p;
	SAY("create", cu.cuCtxCreate_v2(&a, 0, 0));
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	e = event();
	cu.cuMemAlloc_v2(&p, MIB);
	SAY("record an event of another context", cu.cuEventRecord(ours, s));
	SAY("record", cu.cuEventRecord(e, s));
	SAY("primary", cu.cuCtxSetCurrent(primary));
	SAY("work on another context's stream", cu.cuMemsetD8Async(p, 0, 1, s));
	SAY("free another context's memory", cu.cuMemFree_v2(p));
	SAY("destroy what is not current", cu.cuCtxDestroy_v2(a));
	SAY("query an event of a destroyed context", cu.cuEventQuery(e));
	SAY("destroy an event of a destroyed context", cu.cuEventDestroy_v2(e));
	SAY("release", cu.cuDevicePrimaryCtxRelease_v2(0));
	SAY("current", cu.cuCtxGetCurrent(&got));
	printf("  still there: %d\n", got == primary);
	SAY("device", cu.cuCtxGetDevice(&d));
	SAY("allocate", cu.cuMemAlloc_v2(&p, MIB));
	SAY("release again", cu.cuDevicePrimaryCtxRelease_v2(0));
	SAY("retain", cu.cuDevicePrimaryCtxRetain(&got, 0));
	printf("  the same: %d\n", got == primary);
	SAY("allocate, made current before", cu.cuMemAlloc_v2(&p, MIB));
}

static void after_fork(void)
{
	CUdeviceptr p;
	int n;
	pid_t pid;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		SAY("init in the child", cu.cuInit(0));
		SAY("allocate in the child", cu.cuMemAlloc_v2(&p, MIB));
		SAY("count in the child", cu.cuDeviceGetCount(&n));
		SAY("version in the child", cu.cuDriverGetVersion(&n));
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	SAY("allocate in the parent", cu.cuMemAlloc_v2(&p, MIB));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*ask)(void);
	} groups[] = {{"proc", proc},      {"no context", no_context}, {"plain", plain},   {"attributes", attributes},
		      {"pools", pools},    {"captures", captures},     {"unsafe", unsafe}, {"contexts", contexts},
		      {"fork", after_fork}};
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		int status;
		printf("%s\n", groups[i].name);
		fflush(stdout);
		pid_t pid = fork();
		if (!pid) {
			setvbuf(stdout, NULL, _IOLBF, 0);
			lib = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
			if (!lib) {
				fprintf(stderr, "%s\n", dlerror());
				_exit(77);
			}
			start();
			groups[i].ask();
			fflush(stdout);
			_exit(0);
		}
		waitpid(pid, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			return 77;
		if (WIFSIGNALED(status))
			printf("  died: %s\n", strsignal(WTERMSIG(status)));
		else if (WEXITSTATUS(status))
			printf("  gave up\n");
	}
	return 0;
}
