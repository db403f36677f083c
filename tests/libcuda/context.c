/* SPDX-License-Identifier: MIT
 *
 * Devices, contexts and the stack of them that each thread has.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUresult fc_init(void)
{
	if (fc.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (fc.initialized)
		return CUDA_SUCCESS;
	if (!fc.devices)
		return CUDA_ERROR_NO_DEVICE;
	struct clv_sim_config config = {.devices = fc.devices, .capacity = fc.capacity, .backing = true};
	fc.sim = clv_sim_open(&config);
	if (!fc.sim)
		return CUDA_ERROR_UNKNOWN;
	for (int d = 0; d < fc.devices; d++) {
		fc.device[d].pool = fc.device[d].default_pool = fc_pool_new(d);
		fc.device[d].graph_pool = fc_pool_new(d);
	}
	fc.initialized = true;
	return CUDA_SUCCESS;
}

FC_CALL(cuInit, FC_NOTHING, (unsigned int Flags), (Flags))
{
	return Flags ? CUDA_ERROR_INVALID_VALUE : fc_init();
}

FC_CALL(cuDriverGetVersion, FC_NOTHING, (int *driverVersion), (driverVersion))
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = fc.version;
	return CUDA_SUCCESS;
}

static const struct {
	CUresult code;
	const char *name;
} errors[] = {
#define X(name, value) {name, #name},
	CLV_CUDA_RESULTS(X)
#undef X
		{FC_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
	{FC_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
	{FC_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
	{FC_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE"},
	{FC_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"},
};

static CUresult error_text(CUresult error, const char **text)
{
	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = NULL;
	for (size_t i = 0; i < CLV_ARRAY_LEN(errors); i++)
		if (errors[i].code == error) {
			*text = errors[i].name;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

FC_CALL(cuGetErrorName, FC_NOTHING, (CUresult error, const char **pStr), (error, pStr))
{
	return error_text(error, pStr);
}

FC_CALL(cuGetErrorString, FC_NOTHING, (CUresult error, const char **pStr), (error, pStr))
{
	return error_text(error, pStr);
}

/* Devices. */

static bool is_device(CUdevice device)
{
	return device >= 0 && device < fc.devices;
}

FC_CALL(cuDeviceGet, FC_INIT, (CUdevice * device, int ordinal), (device, ordinal))
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

FC_CALL(cuDeviceGetCount, FC_INIT, (int *count), (count))
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = fc.devices;
	return CUDA_SUCCESS;
}

FC_CALL(cuDeviceGetName, FC_INIT, (char *name, int len, CUdevice dev), (name, len, dev))
{
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)len, "Simulated device %d", dev);
	return CUDA_SUCCESS;
}

FC_CALL(cuDeviceGetAttribute, FC_INIT, (int *pi, CUdevice_attribute attrib, CUdevice dev), (pi, attrib, dev))
{
	if (!pi || attrib <= 0 || (int)attrib > 200)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	switch ((int)attrib) {
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case 124: /* DMA-BUF */
		*pi = fc.vmm;
		break;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
		*pi = 1;
		break;
	case 1: /* threads of a block */
		*pi = 1024;
		break;
	case 10: /* of a warp */
		*pi = 32;
		break;
	case 16: /* multiprocessors */
		*pi = 4;
		break;
	case 75: /* compute capability, major */
		*pi = 9;
		break;
	default:
		*pi = 0;
	}
	return CUDA_SUCCESS;
}

FC_CALL(cuDeviceTotalMem_v2, FC_INIT, (size_t * bytes, CUdevice dev), (bytes, dev))
{
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct clv_device_info info;
	CUresult r = fc_result(fc.sim->device_info(fc.sim, dev, &info));
	if (!r)
		*bytes = info.total;
	return r;
}

FC_CALL(cuDeviceCanAccessPeer, FC_INIT, (int *canAccessPeer, CUdevice dev, CUdevice peerDev),
	(canAccessPeer, dev, peerDev))
{
	if (!canAccessPeer)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev) || !is_device(peerDev))
		return CUDA_ERROR_INVALID_DEVICE;
	*canAccessPeer = dev != peerDev;
	return CUDA_SUCCESS;
}

/* Contexts. */

static struct fc_context *context_new(int device, bool primary, unsigned flags)
{
	struct fc_context *c = fc_alloc(sizeof(*c));
	c->device = device;
	c->primary = primary;
	c->flags = flags;
	if (primary && fc.device[device].primary_handle) {
		c->handle = fc.device[device].primary_handle;
		fc_handle_set(FC_HANDLE_CONTEXT, c->handle, c);
	} else {
		c->handle = fc_handle_new(FC_HANDLE_CONTEXT, c);
		if (primary)
			fc.device[device].primary_handle = c->handle;
	}
	c->next = fc.contexts;
	fc.contexts = c;
	c->legacy = fc_queue_new(c, false);
	c->legacy->handle = CU_STREAM_LEGACY;
	return c;
}

/* Everything that belongs to the context goes, after its work. */
static void context_end(struct fc_context *c)
{
	c->destroyed = true;
	for (struct fc_queue *q = c->queues; q; q = q->next)
		if (q->capture)
			fc_capture_break(q);
	fc_wait_context(c);
	for (struct fc_queue *q = c->queues, *next; q; q = next) {
		next = q->next;
		if (!q->closing)
			fc_queue_close(q);
	}
	fc_context_memory(c);
	/* threads that have it current go on naming it */
	if (c->primary)
		fc_handle_set(FC_HANDLE_CONTEXT, c->handle, NULL);
	else
		fc_handle_free(FC_HANDLE_CONTEXT, c->handle);
}

static struct fc_context *context_of(CUcontext handle)
{
	return fc_handle_get(FC_HANDLE_CONTEXT, handle);
}

FC_CALL(cuDevicePrimaryCtxRetain, FC_INIT, (CUcontext * pctx, CUdevice dev), (pctx, dev))
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct fc_device *d = &fc.device[dev];
	if (!d->primary)
		d->primary = context_new(dev, true, 0);
	d->primary->retained++;
	*pctx = d->primary->handle;
	return CUDA_SUCCESS;
}

FC_CALL(cuDevicePrimaryCtxGetState, FC_INIT, (CUdevice dev, unsigned int *flags, int *active), (dev, flags, active))
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	const struct fc_context *c = fc.device[dev].primary;
	if (flags)
		*flags = c ? c->flags : 0;
	if (active)
		*active = c != NULL;
	return CUDA_SUCCESS;
}

static void primary_end(int device)
{
	struct fc_context *c = fc.device[device].primary;
	fc.device[device].primary = NULL;
	context_end(c);
}

FC_CALL(cuDevicePrimaryCtxRelease_v2, FC_INIT, (CUdevice dev), (dev))
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct fc_context *c = fc.device[dev].primary;
	if (!c || !c->retained)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!--c->retained)
		primary_end(dev);
	return CUDA_SUCCESS;
}

FC_CALL(cuDevicePrimaryCtxReset_v2, FC_INIT, (CUdevice dev), (dev))
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (fc.device[dev].primary)
		primary_end(dev);
	return CUDA_SUCCESS;
}

static CUresult push(struct fc_context *c)
{
	if (fc_self.depth == FC_STACK)
		return CUDA_ERROR_INVALID_VALUE;
	fc_self.stack[fc_self.depth++] = c;
	return CUDA_SUCCESS;
}

static CUresult context_create(CUcontext *pctx, unsigned flags, CUdevice dev)
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	struct fc_context *c = context_new(dev, false, flags);
	CUresult r = push(c);
	*pctx = c->handle;
	return r;
}

FC_CALL(cuCtxCreate_v2, FC_INIT, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
{
	return context_create(pctx, flags, dev);
}

FC_CALL(cuCtxCreate_v3, FC_INIT, (CUcontext * pctx, void *params, int count, unsigned int flags, CUdevice dev),
	(pctx, params, count, flags, dev))
{
	return params || count ? CUDA_ERROR_NOT_SUPPORTED : context_create(pctx, flags, dev);
}

FC_CALL(cuCtxCreate_v4, FC_INIT, (CUcontext * pctx, void *params, unsigned int flags, CUdevice dev),
	(pctx, params, flags, dev))
{
	return params ? CUDA_ERROR_NOT_SUPPORTED : context_create(pctx, flags, dev);
}

FC_CALL(cuCtxDestroy_v2, FC_INIT, (CUcontext ctx), (ctx))
{
	struct fc_context *c = context_of(ctx);
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (c->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	context_end(c);
	if (fc_current() == c)
		fc_self.depth--;
	return CUDA_SUCCESS;
}

FC_CALL(cuCtxGetCurrent, FC_INIT, (CUcontext * pctx), (pctx))
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	const struct fc_context *c = fc_current();
	*pctx = c ? c->handle : NULL;
	return CUDA_SUCCESS;
}

FC_CALL(cuCtxSetCurrent, FC_INIT, (CUcontext ctx), (ctx))
{
	struct fc_context *c = ctx ? context_of(ctx) : NULL;
	if (ctx && !c)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (fc_self.depth)
		fc_self.depth--;
	return c ? push(c) : CUDA_SUCCESS;
}

FC_CALL(cuCtxPushCurrent_v2, FC_INIT, (CUcontext ctx), (ctx))
{
	struct fc_context *c = context_of(ctx);
	return c ? push(c) : CUDA_ERROR_INVALID_CONTEXT;
}

FC_CALL(cuCtxPopCurrent_v2, FC_INIT, (CUcontext * pctx), (pctx))
{
	const struct fc_context *c = fc_current();
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (pctx)
		*pctx = c->handle;
	fc_self.depth--;
	return CUDA_SUCCESS;
}

/* Also of a context that is destroyed. */
FC_CALL(cuCtxGetDevice, FC_INIT, (CUdevice * device), (device))
{
	const struct fc_context *c = fc_current();
	if (!device || !c)
		return device ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	*device = c->device;
	return CUDA_SUCCESS;
}

FC_CALL(cuCtxGetDevice_v2, FC_INIT, (CUdevice * device, CUcontext ctx), (device, ctx))
{
	const struct fc_context *c = ctx ? context_of(ctx) : fc_current();
	if (!device || !c)
		return device ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	*device = c->device;
	return CUDA_SUCCESS;
}

static CUresult synchronize(struct fc_context *c)
{
	CUresult r = fc_unsafe();
	for (struct fc_queue *q = c->queues; q && !r; q = q->next)
		if (q->capture)
			r = fc_unsafe_on(q);
	if (r)
		return r;
	fc_wait_context(c);
	fc_pools_settle(c->device);
	return c->fault;
}

FC_CALL(cuCtxSynchronize, FC_CONTEXT, (void), ())
{
	return synchronize(fc_current());
}

FC_CALL(cuCtxSynchronize_v2, FC_INIT, (CUcontext ctx), (ctx))
{
	struct fc_context *c = ctx ? context_of(ctx) : fc_current();
	return !c ? CUDA_ERROR_INVALID_CONTEXT : c->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : synchronize(c);
}

FC_CALL(cuCtxEnablePeerAccess, FC_CONTEXT, (CUcontext peerContext, unsigned int Flags), (peerContext, Flags))
{
	struct fc_context *c = fc_current(), *peer = context_of(peerContext);
	if (!peer || Flags)
		return peer ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	uint64_t bit = (uint64_t)1 << peer->device;
	if (peer->device == c->device)
		return CUDA_ERROR_INVALID_DEVICE;
	if (c->peers & bit)
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	c->peers |= bit;
	return CUDA_SUCCESS;
}

FC_CALL(cuCtxDisablePeerAccess, FC_CONTEXT, (CUcontext peerContext), (peerContext))
{
	struct fc_context *c = fc_current(), *peer = context_of(peerContext);
	if (!peer)
		return CUDA_ERROR_INVALID_CONTEXT;
	uint64_t bit = (uint64_t)1 << peer->device;
	if (!(c->peers & bit))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	c->peers &= ~bit;
	return CUDA_SUCCESS;
}

const char *fakecuda_leaks(void)
{
	pthread_mutex_lock(&fc.lock);
	const char *kind = NULL;
	static const struct {
		enum fc_kind kind;
		const char *name;
	} handles[] = {{FC_HANDLE_STREAM, "stream"},
		       {FC_HANDLE_EVENT, "event"},
		       {FC_HANDLE_GRAPH, "graph"},
		       {FC_HANDLE_EXEC, "executable"},
		       {FC_HANDLE_OBJECT, "user object"}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(handles) && !kind; i++)
		if (fc_handles_live(handles[i].kind))
			kind = handles[i].name;
	size_t i = 0;
	for (const struct fc_block *b; !kind && (b = fc_block_each(&i));)
		kind = b->kind == FC_POOL || b->kind == FC_GRAPH ? "pool" : b->kind == FC_PLAIN ? "plain" : "host";
	if (!kind && fc.sim)
		for (int d = 0; d < fc.devices; d++) {
			fc_pool_trim(fc.device[d].default_pool, 0);
			fc_pool_trim(fc.device[d].graph_pool, 0);
		}
	kind = kind || !fc.sim ? kind : clv_sim_leaks(fc.sim);
	if (kind && !strcmp(kind, "handle"))
		kind = "frame";
	pthread_mutex_unlock(&fc.lock);
	return kind;
}
