/* SPDX-License-Identifier: MIT */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct fake fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	const char *name;
	unsigned calls;
} called[64];
static char wrong[256];
static unsigned long long next_thread_id = 5000;

static __thread CUcontext stack[16];
static __thread unsigned depth;
static __thread CUstreamCaptureMode mode;
static __thread unsigned long long per_thread_id;
static __thread bool own_captures;

void fake_reset(void)
{
	pthread_mutex_lock(&lock);
	memset(&fake, 0, sizeof(fake));
	memset(called, 0, sizeof(called));
	wrong[0] = '\0';
	fake.version = 13000;
	fake.devices = FAKE_DEVICES;
	fake.granularity = 2 << 20;
	fake.attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 1;
	fake.attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = 1;
	fake.attributes[CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED] = 1;
	for (int d = 0; d < FAKE_DEVICES; d++)
		fake.primary[d] = (struct CUctx_st){.device = d, .legacy_id = 9000u + (unsigned)d};
	pthread_mutex_unlock(&lock);
	depth = 0;
	stack[0] = NULL;
	mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
}

unsigned fake_calls(const char *name)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(called) && called[i].name; i++)
		if (strcmp(called[i].name, name) == 0)
			return called[i].calls;
	return 0;
}

unsigned fake_all_calls(void)
{
	unsigned n = 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(called); i++)
		n += called[i].calls;
	return n;
}

void fake_forget_calls(void)
{
	memset(called, 0, sizeof(called));
}

const char *fake_wrong(void)
{
	return wrong;
}

void fake_set_current(CUcontext context)
{
	stack[depth] = context;
}

CUcontext fake_current(void)
{
	return stack[depth];
}

unsigned fake_depth(void)
{
	return depth;
}

void fake_capture_own(bool captures)
{
	own_captures = captures;
}

CUstreamCaptureMode fake_mode(void)
{
	return mode;
}

CUcontext fake_context(int index, int device)
{
	fake.contexts[index] = (struct CUctx_st){.device = device, .legacy_id = 1000u + (unsigned)index};
	return &fake.contexts[index];
}

CUstream fake_stream(int index, unsigned long long id, CUcontext context)
{
	fake.streams[index] = (struct CUstream_st){.id = id, .context = context};
	return &fake.streams[index];
}

void fake_finish(void)
{
	for (unsigned i = 0; i < fake.event_count; i++)
		fake.events[i].pending = false;
}

/* With the lock held. */
static void is_wrong(const char *name, const char *what)
{
	if (!wrong[0])
		snprintf(wrong, sizeof(wrong), "%s: %s", name, what);
}

/* A stream of the context, or any stream at all (NULL). */
static bool capturing(CUcontext context, bool blocking_ones)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(fake.streams); i++)
		if (fake.streams[i].status != CU_STREAM_CAPTURE_STATUS_NONE &&
		    !(blocking_ones && fake.streams[i].non_blocking) &&
		    (!context || fake.streams[i].context == context))
			return true;
	return false;
}

/* Notes a call and takes the lock: what it answers at once, or CUDA_SUCCESS. */
static CUresult enter(const char *name)
{
	pthread_mutex_lock(&lock);
	size_t i = 0;
	while (called[i].name && strcmp(called[i].name, name) != 0)
		i++;
	called[i].name = name;
	called[i].calls++;
	if (fake.fail && strcmp(fake.fail, name) == 0 && fake.fail_count) {
		fake.fail_count -= fake.fail_count > 0;
		return fake.fail_with;
	}
	return CUDA_SUCCESS;
}

static CUresult leave(CUresult r)
{
	pthread_mutex_unlock(&lock);
	return r;
}

#define ENTER()                                                                                                        \
	CUresult entered = enter(__func__ + sizeof("fake_") - 1);                                                      \
	if (entered != CUDA_SUCCESS)                                                                                   \
	return leave(entered)
#define NAME (__func__ + sizeof("fake_") - 1)

static CUresult needs_context(const char *name)
{
	CUcontext current = stack[depth];
	fake.last_context = current;
	if (!current)
		is_wrong(name, "no context is current");
	else if (current->dead)
		is_wrong(name, "the context is destroyed");
	return current && !current->dead ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Calls that a capture of any thread forbids unless this one is relaxed. */
static CUresult unsafe(const char *name)
{
	if (!capturing(NULL, false) || mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	is_wrong(name, "while a stream captures");
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* A stream that work is put on or that is waited for. */
static CUresult use_stream(const char *name, CUstream stream)
{
	fake.last_stream = stream;
	if (!stream) {
		is_wrong(name, "a NULL stream");
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
		CUresult r = needs_context(name);
		if (r == CUDA_SUCCESS && stream == CU_STREAM_LEGACY && capturing(stack[depth], true)) {
			is_wrong(name, "on the legacy stream while a stream captures");
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
		return r;
	}
	if (stream->dead || stream->context->dead) {
		is_wrong(name, "a stream that is destroyed");
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (stream->status != CU_STREAM_CAPTURE_STATUS_NONE) {
		is_wrong(name, "on a stream that captures");
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return needs_context(name);
}

static CUresult use_event(const char *name, CUevent event)
{
	fake.last_event = event;
	if (event->destroyed || event->context->dead) {
		is_wrong(name, "an event that is destroyed");
		return CUDA_ERROR_INVALID_HANDLE;
	}
	return needs_context(name);
}

/* ---- the functions ---- */

static CUresult fake_cuInit(unsigned flags)
{
	ENTER();
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuDriverGetVersion(int *version)
{
	ENTER();
	*version = fake.version;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuDeviceGetCount(int *count)
{
	ENTER();
	*count = fake.devices;
	return leave(fake.no_init ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS);
}

static CUresult fake_cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER();
	*device = FAKE_FIRST_DEVICE + ordinal;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	ENTER();
	*value = fake.attributes[attribute];
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER();
	*bytes = (size_t)(device - FAKE_FIRST_DEVICE + 1) << 30;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER();
	int d = device - FAKE_FIRST_DEVICE;
	if (!fake.primary_active[d])
		is_wrong(NAME, "creates a context");
	fake.retained[d]++;
	*context = &fake.primary[d];
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	ENTER();
	fake.retained[device - FAKE_FIRST_DEVICE]--;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	ENTER();
	*active = fake.primary_active[device - FAKE_FIRST_DEVICE];
	*flags = 0;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuCtxGetCurrent(CUcontext *context)
{
	ENTER();
	*context = stack[depth];
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuCtxPushCurrent_v2(CUcontext context)
{
	ENTER();
	if (context->dead)
		return leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	stack[++depth] = context;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuCtxPopCurrent_v2(CUcontext *context)
{
	ENTER();
	*context = stack[depth--];
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuCtxGetDevice(CUdevice *device)
{
	ENTER();
	if (!stack[depth])
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	*device = FAKE_FIRST_DEVICE + stack[depth]->device;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuCtxSynchronize(void)
{
	ENTER();
	CUresult r = needs_context(NAME);
	if (r == CUDA_SUCCESS && capturing(stack[depth], false)) {
		is_wrong(NAME, "while a stream of the context captures");
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return leave(r);
}

static CUresult fake_cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	ENTER();
	CUresult r = needs_context(NAME);
	r = r == CUDA_SUCCESS ? unsafe(NAME) : r;
	*ptr = 0x7000;
	return leave(r);
}

static CUresult fake_cuMemFree_v2(CUdeviceptr ptr)
{
	ENTER();
	fake.last_addr = ptr;
	CUresult r = needs_context(NAME);
	return leave(r == CUDA_SUCCESS ? unsafe(NAME) : r);
}

static CUresult fake_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	ENTER();
	CUresult r = needs_context(NAME);
	if (r == CUDA_SUCCESS) {
		*free = (size_t)(stack[depth]->device + 1) << 20;
		*total = *free << 10;
	}
	return leave(r);
}

static CUresult fake_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
						   CUmemAllocationGranularity_flags option)
{
	ENTER();
	*granularity = fake.granularity;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
					 unsigned long long flags)
{
	ENTER();
	*ptr = 0x200000000ull + alignment;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	ENTER();
	fake.last_addr = ptr;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
				 unsigned long long flags)
{
	ENTER();
	fake.prop = *prop;
	if (size % (2 << 20))
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (fake.refuse_rdma && prop->allocFlags.gpuDirectRDMACapable)
		return leave(CUDA_ERROR_NOT_SUPPORTED);
	if (fake.refuse_export && prop->requestedHandleTypes)
		return leave(CUDA_ERROR_NOT_PERMITTED);
	*handle = 0x77;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	ENTER();
	fake.last_addr = handle;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			      unsigned long long flags)
{
	ENTER();
	fake.last_addr = ptr;
	return leave(offset ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS);
}

static CUresult fake_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	ENTER();
	fake.last_addr = ptr;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	ENTER();
	fake.last_addr = ptr;
	fake.access_count = count;
	memcpy(fake.access, desc, count * sizeof(*desc));
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
						  CUmemAllocationHandleType type, unsigned long long flags)
{
	ENTER();
	fake.last_addr = handle;
	*(int *)out = fake.exported_fd = dup(STDERR_FILENO);
	return leave(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult fake_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os,
						    CUmemAllocationHandleType type)
{
	ENTER();
	*handle = 1000 + (uintptr_t)os;
	return leave(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult fake_cuStreamSynchronize(CUstream stream)
{
	ENTER();
	CUresult r = use_stream(NAME, stream);
	return leave(r == CUDA_SUCCESS ? unsafe(NAME) : r);
}

static CUresult fake_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	ENTER();
	CUresult r = use_event(NAME, event);
	return leave(r == CUDA_SUCCESS ? use_stream(NAME, stream) : r);
}

static CUresult fake_cuStreamGetId(CUstream stream, unsigned long long *id)
{
	ENTER();
	if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
		if (!stack[depth])
			return leave(CUDA_ERROR_INVALID_CONTEXT);
		if (!per_thread_id)
			per_thread_id = next_thread_id += 100;
		*id = stream == CU_STREAM_LEGACY ? stack[depth]->legacy_id
						 : per_thread_id + stack[depth]->legacy_id % 100;
		return leave(CUDA_SUCCESS);
	}
	if (!stream || stream->dead) {
		is_wrong(NAME, "no stream");
		return leave(CUDA_ERROR_INVALID_HANDLE);
	}
	if (stream->status != CU_STREAM_CAPTURE_STATUS_NONE) {
		is_wrong(NAME, "the stream captures");
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	*id = stream->id;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	ENTER();
	if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
		is_wrong(NAME, "a default stream, which answers an error while another captures");
		return leave(CUDA_ERROR_INVALID_HANDLE);
	}
	*context = stream->context;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	ENTER();
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (stream == CU_STREAM_LEGACY)
		return leave(capturing(stack[depth], true) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS);
	*status = stream != CU_STREAM_PER_THREAD ? stream->status
		  : own_captures		 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
						 : CU_STREAM_CAPTURE_STATUS_NONE;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuEventCreate(CUevent *event, unsigned flags)
{
	ENTER();
	CUresult r = needs_context(NAME);
	if (flags != CU_EVENT_DISABLE_TIMING)
		is_wrong(NAME, "with timing");
	*event = &fake.events[fake.event_count++ % CLV_ARRAY_LEN(fake.events)];
	**event = (struct CUevent_st){.context = stack[depth]};
	return leave(r);
}

static CUresult fake_cuEventDestroy_v2(CUevent event)
{
	ENTER();
	CUresult r = use_event(NAME, event);
	event->destroyed = true;
	return leave(r);
}

static CUresult fake_cuEventRecord(CUevent event, CUstream stream)
{
	ENTER();
	CUresult r = use_event(NAME, event);
	r = r == CUDA_SUCCESS ? use_stream(NAME, stream) : r;
	if (r != CUDA_SUCCESS)
		return leave(r);
	CUcontext of = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ? stack[depth] : stream->context;
	if (of != event->context) {
		is_wrong(NAME, "an event of another context");
		return leave(CUDA_ERROR_INVALID_HANDLE);
	}
	event->stream = stream;
	event->pending = !fake.done;
	return leave(CUDA_SUCCESS);
}

static CUresult fake_cuEventQuery(CUevent event)
{
	ENTER();
	CUresult r = use_event(NAME, event);
	r = r == CUDA_SUCCESS ? unsafe(NAME) : r;
	return leave(r == CUDA_SUCCESS && event->pending ? CUDA_ERROR_NOT_READY : r);
}

static CUresult fake_cuEventSynchronize(CUevent event)
{
	ENTER();
	CUresult r = use_event(NAME, event);
	r = r == CUDA_SUCCESS ? unsafe(NAME) : r;
	if (r == CUDA_SUCCESS)
		event->pending = false;
	return leave(r);
}

static CUresult fake_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *m)
{
	ENTER();
	CUstreamCaptureMode old = mode;
	mode = *m;
	*m = old;
	return leave(CUDA_SUCCESS);
}

const struct clv_cuda_api fake_api = {
#define F(name) .name = fake_##name
	F(cuInit),
	F(cuDriverGetVersion),
	F(cuDeviceGetCount),
	F(cuDeviceGet),
	F(cuDeviceGetAttribute),
	F(cuDeviceTotalMem_v2),
	F(cuDevicePrimaryCtxRetain),
	F(cuDevicePrimaryCtxRelease_v2),
	F(cuDevicePrimaryCtxGetState),
	F(cuCtxGetCurrent),
	F(cuCtxPushCurrent_v2),
	F(cuCtxPopCurrent_v2),
	F(cuCtxGetDevice),
	F(cuCtxSynchronize),
	F(cuMemAlloc_v2),
	F(cuMemFree_v2),
	F(cuMemGetInfo_v2),
	F(cuMemGetAllocationGranularity),
	F(cuMemAddressReserve),
	F(cuMemAddressFree),
	F(cuMemCreate),
	F(cuMemRelease),
	F(cuMemMap),
	F(cuMemUnmap),
	F(cuMemSetAccess),
	F(cuMemExportToShareableHandle),
	F(cuMemImportFromShareableHandle),
	F(cuStreamSynchronize),
	F(cuStreamWaitEvent),
	F(cuStreamGetId),
	F(cuStreamGetCtx),
	F(cuStreamIsCapturing),
	F(cuEventCreate),
	F(cuEventDestroy_v2),
	F(cuEventRecord),
	F(cuEventQuery),
	F(cuEventSynchronize),
	F(cuThreadExchangeStreamCaptureMode),
#undef F
};
