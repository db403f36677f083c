/* SPDX-License-Identifier: MIT
 *
 * watch: streams, contexts and peers that come and go. Owns how often the program has
 * retained the primary contexts.
 */
#include "ipc.h"
#include "seen.h"

#define PRIMARIES 64

/* What was freed on the stream is drained while the driver still knows it. */
static void stream_ends(const struct clv_process *p, const struct clv_cuda_stream *s)
{
	clv_graphs_stream_ends(p, s);
	for (int d = 0; d < p->driver->devices; d++) { /* memory of others may have been freed on it */
		struct clv_heap_usage usage;
		clv_heap_usage(p->heap, d, &usage);
		if (usage.held)
			cleave_stream_destroyed(p->heap, d, s->stream);
	}
	clv_cuda_stream_forget(p->driver, s->stream.id);
}

EXPORTED CUresult cuStreamDestroy_v2(CUstream stream)
{
	const struct clv_process *p = clv_process_if_open();
	struct clv_cuda_stream s;
	/* the default streams cannot be destroyed */
	if (p && stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD &&
	    clv_cuda_stream(p->driver, stream, false, &s) == CUDA_SUCCESS)
		stream_ends(p, &s);
	return CLV_PASS(cuStreamDestroy_v2, stream);
}

static void visit_end(void *arg, const struct clv_cuda_stream *s)
{
	stream_ends(arg, s);
}

static void visit_capture(void *arg, const struct clv_cuda_stream *s)
{
	clv_captures_abandon(arg, s);
}

/* Waits for all work in the context, which is about to be destroyed. What is captured in it comes to nothing in any case, and
 * would keep it from being waited for. False: a capture from elsewhere has come to one of its streams. */
static bool finish(const struct clv_process *p, CUcontext context)
{
	if (CLV_UNLIKELY(clv_cuda_captures(p->driver)))
		clv_cuda_streams_each(p->driver, context, visit_capture, (void *)p);
	return clv_cuda_context_finish(p->driver, context) != CLV_CAPTURING;
}

/* All work in the context is done (if `waited`), and it goes: its streams and events are not asked any more. */
static void context_goes(const struct clv_process *p, CUcontext context, bool alive, bool waited)
{
	clv_host_context_gone(context, alive);
	clv_cuda_context_forget(p->driver, context);
	clv_cuda_streams_each(p->driver, context, visit_end, (void *)p);
	clv_plain_context_gone(p, context, waited);
	clv_ipc_context_gone(p, context);
}

static bool is_active(CUdevice device)
{
	unsigned int flags;
	int active = 0;
	return CLV_PASS(cuDevicePrimaryCtxGetState, device, &flags, &active) == CUDA_SUCCESS && active;
}

/* The primary context of a device, which is active; NULL: it is not. */
static CUcontext primary_of(CUdevice device)
{
	CUcontext context;
	if (!is_active(device) || CLV_PASS(cuDevicePrimaryCtxRetain, &context, device) != CUDA_SUCCESS)
		return NULL;
	CLV_PASS(cuDevicePrimaryCtxRelease_v2, device);
	return context;
}

/* Such a context the driver does not destroy. */
static bool is_primary(const struct clv_process *p, CUcontext context)
{
	for (int d = 0; d < p->driver->devices; d++)
		if (primary_of(d) == context)
			return true;
	return false;
}

EXPORTED CUresult cuCtxDestroy_v2(CUcontext context)
{
	const struct clv_process *p = context ? clv_process_if_open() : NULL;
	if (p && !is_primary(p, context)) { /* while the driver still knows it */
		bool waited = finish(p, context);
		context_goes(p, context, true, waited);
	}
	if (!clv_seen_is_primary(context)) /* which the driver does not destroy so */
		clv_seen_context_goes(context, "cuCtxDestroy");
	return CLV_PASS(cuCtxDestroy_v2, context);
}

/* How often the program holds the primary context of a device, as far as it was seen; fewer only means a wait too many. */
static _Atomic long retained[PRIMARIES];

static void retained_set(CUdevice device, long count)
{
	if (device >= 0 && device < PRIMARIES)
		atomic_store(&retained[device], count);
}

/* Returns how often it was before. */
static long retained_add(CUdevice device, long change)
{
	return device >= 0 && device < PRIMARIES ? atomic_fetch_add(&retained[device], change) : 0;
}

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult r = CLV_PASS(cuDevicePrimaryCtxRetain, context, device);
	if (r == CUDA_SUCCESS) {
		retained_add(device, 1);
		clv_seen_primary(device, *context);
	}
	return r;
}

EXPORTED CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	const struct clv_process *p = clv_process_if_open();
	CUcontext context = p ? primary_of(device) : NULL;
	if (context) {
		bool waited = finish(p, context);
		context_goes(p, context, true, waited);
	}
	retained_set(device, 0);
	clv_seen_context_goes(clv_seen_primary_of(device), "cuDevicePrimaryCtxReset");
	return CLV_PASS(cuDevicePrimaryCtxReset_v2, device);
}

/* Only the last release ends the context, and which one that is shows afterwards. One that may be it waits for the work. */
EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	const struct clv_process *p = clv_process_if_open();
	CUcontext context = p ? primary_of(device) : NULL;
	bool others = retained_add(device, -1) > 1;
	if (context && !others)
		clv_cuda_synchronize(p->driver, -1, context);
	CUresult r = CLV_PASS(cuDevicePrimaryCtxRelease_v2, device);
	if (r == CUDA_SUCCESS && clv_seen() && !is_active(device))
		clv_seen_context_goes(clv_seen_primary_of(device), "cuDevicePrimaryCtxRelease");
	if (r != CUDA_SUCCESS) {
		retained_add(device, 1);
	} else if ((context || others) && !is_active(device)) {
		retained_set(device, 0);
		if (context)
			context_goes(p, context, false, !others);
	}
	return r;
}

EXPORTED CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUresult r = CLV_PASS(cuCtxEnablePeerAccess, peer, flags);
	const struct clv_process *p = r == CUDA_SUCCESS ? clv_process() : NULL;
	CUdevice reader, owner;
	CUcontext top;
	if (!p || CLV_PASS(cuCtxGetDevice, &reader) != CUDA_SUCCESS ||
	    CLV_PASS(cuCtxPushCurrent_v2, peer) != CUDA_SUCCESS)
		return r;
	CUresult known = CLV_PASS(cuCtxGetDevice, &owner);
	CLV_PASS(cuCtxPopCurrent_v2, &top);
	if (known == CUDA_SUCCESS && clv_device_usable(p, owner) && clv_cuda_peer(p->driver, owner, reader)) {
		clv_heap_access(p->heap, owner);
		clv_ipc_access(p, owner);
	}
	return r;
}
