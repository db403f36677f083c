/* SPDX-License-Identifier: MIT */
#include "cuda_internal.h"

#include "../host/meta.h"

void clv_cuda_relax_always(struct cuda *c, struct cuda_scope *s)
{
	if (s->exchanged)
		return;
	s->before = CU_STREAM_CAPTURE_MODE_RELAXED;
	s->exchanged = c->api->cuThreadExchangeStreamCaptureMode(&s->before) == CUDA_SUCCESS;
}

void clv_cuda_relax(struct cuda *c, struct cuda_scope *s)
{
	if (CLV_UNLIKELY(atomic_load_explicit(&c->captures, memory_order_relaxed)))
		clv_cuda_relax_always(c, s);
}

/* The context cannot go from here until release_context(). False: it is gone. */
static bool hold(struct cuda_context_ref ref)
{
	struct cuda_context *x = ref.context;
	if (!x)
		return false;
	/* Either whoever ends the context sees our number, or we see that it has ended: both are sequentially consistent. */
	atomic_fetch_add(&x->users, 1);
	if (atomic_load(&x->generation) == ref.generation)
		return true;
	atomic_fetch_sub(&x->users, 1);
	return false;
}

static bool make_current(struct cuda *c, CUcontext handle, struct cuda_scope *s)
{
	CUcontext current = NULL;
	if (c->api->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == handle)
		return true;
	s->pushed = c->api->cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS;
	return s->pushed;
}

bool clv_cuda_enter(struct cuda *c, struct cuda_context_ref ref, struct cuda_scope *s)
{
	if (!hold(ref))
		return false;
	s->used = ref.context;
	if (make_current(c, ref.context->handle, s)) {
		clv_cuda_relax(c, s);
		return true;
	}
	clv_cuda_leave(c, s);
	return false;
}

void clv_cuda_leave(struct cuda *c, struct cuda_scope *s)
{
	CUcontext popped;
	if (s->exchanged)
		c->api->cuThreadExchangeStreamCaptureMode(&s->before);
	if (s->pushed)
		c->api->cuCtxPopCurrent_v2(&popped);
	if (s->retained)
		c->api->cuDevicePrimaryCtxRelease_v2(s->primary);
	if (s->used)
		atomic_fetch_sub(&s->used->users, 1);
	*s = (struct cuda_scope){0};
}

/* If the context is alive and on the device (-1: on any). */
static bool enter_fitting(struct cuda *c, struct cuda_context *x, int device, struct cuda_scope *s)
{
	struct cuda_context_ref ref = {x, atomic_load(&x->generation)};
	if (!(ref.generation & 1) || !hold(ref)) /* its device can be read only while it is held */
		return false;
	bool entered = (device < 0 || x->device == device) && clv_cuda_enter(c, ref, s);
	atomic_fetch_sub(&x->users, 1);
	return entered;
}

static bool enter_known(struct cuda *c, int device, struct cuda_scope *s)
{
	for (struct cuda_context *x = atomic_load(&c->contexts); x; x = x->next)
		if (enter_fitting(c, x, device, s))
			return true;
	return false;
}

/* The primary context, if the program has made it. It is held only for the call, so that the program's own release still
 * ends it. */
static bool enter_primary(struct cuda *c, int device, struct cuda_scope *s)
{
	CUdevice dev = c->devices[device].device;
	CUcontext primary;
	unsigned flags;
	int active = 0;
	if (c->api->cuDevicePrimaryCtxGetState(dev, &flags, &active) != CUDA_SUCCESS || !active ||
	    c->api->cuDevicePrimaryCtxRetain(&primary, dev) != CUDA_SUCCESS)
		return false;
	s->retained = true;
	s->primary = dev;
	if (make_current(c, primary, s))
		return true;
	clv_cuda_leave(c, s);
	return false;
}

enum clv_result clv_cuda_enter_device(struct cuda *c, int device, struct cuda_scope *s)
{
	CUdevice current;
	CUresult r = c->api->cuCtxGetDevice(&current);
	if (r == CUDA_ERROR_DEINITIALIZED)
		return CLV_GONE;
	if ((r != CUDA_SUCCESS || current != c->devices[device].device) && !enter_known(c, device, s) &&
	    !enter_primary(c, device, s))
		return CLV_FAILED;
	clv_cuda_relax(c, s);
	return CLV_OK;
}

enum clv_result clv_cuda_enter_any(struct cuda *c, struct cuda_scope *s)
{
	CUcontext current = NULL;
	CUresult r = c->api->cuCtxGetCurrent(&current);
	if (r == CUDA_ERROR_DEINITIALIZED)
		return CLV_GONE;
	bool in = (r == CUDA_SUCCESS && current) || enter_known(c, -1, s);
	for (int d = 0; d < c->base.devices && !in; d++)
		in = enter_primary(c, d, s);
	if (!in)
		return CLV_FAILED;
	clv_cuda_relax(c, s);
	return CLV_OK;
}

bool clv_cuda_alive(struct cuda_context_ref ref)
{
	return ref.context && atomic_load(&ref.context->generation) == ref.generation;
}

static bool is_alive(const struct cuda_context *x)
{
	return atomic_load_explicit(&x->generation, memory_order_relaxed) & 1;
}

struct cuda_context *clv_cuda_context_get(struct cuda *c, CUcontext handle, int device)
{
	struct cuda_context *first = atomic_load(&c->contexts), *unused = NULL;
	for (struct cuda_context *x = first; x; x = x->next) {
		if (is_alive(x) && x->handle == handle)
			return x;
		if (!is_alive(x) && !atomic_load(&x->users))
			unused = x;
	}
	if (device < 0)
		return NULL;
	struct cuda_context *x = unused ? unused : clv_meta_zalloc(sizeof(*x));
	if (!x)
		return NULL;
	x->handle = handle;
	x->device = device;
	atomic_fetch_add(&x->generation, 1);
	if (x != unused) {
		x->next = first;
		atomic_store(&c->contexts, x);
	}
	return x;
}

void clv_cuda_context_forget(struct clv_driver *cuda, CUcontext context)
{
	struct cuda *c = cuda_of(cuda);
	pthread_mutex_lock(&c->lock);
	struct cuda_context *x = clv_cuda_context_get(c, context, -1);
	if (x)
		atomic_fetch_add(&x->generation, 1);
	pthread_mutex_unlock(&c->lock);
	/* Calls that are being made in it in other threads: the longest waits for the device. */
	while (x && atomic_load(&x->users))
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static CUresult synchronize(struct cuda *c, struct cuda_scope *s)
{
	clv_cuda_relax_always(c, s); /* whether or not there is a capture now: one may begin before the call */
	CUresult r = c->api->cuCtxSynchronize();
	clv_cuda_leave(c, s);
	return r;
}

static enum clv_result synchronize_one(struct cuda *c, CUcontext context)
{
	struct cuda_scope s = {0};
	pthread_mutex_lock(&c->lock);
	struct cuda_context *x = clv_cuda_context_get(c, context, -1);
	struct cuda_context_ref ref = {x, x ? atomic_load(&x->generation) : 0};
	pthread_mutex_unlock(&c->lock);
	if (x ? !clv_cuda_enter(c, ref, &s) : !make_current(c, context, &s))
		return CLV_GONE;
	return clv_cuda_result(synchronize(c, &s));
}

static enum clv_result synchronize_any(struct cuda *c, int device, CUcontext context)
{
	/* a context cannot be waited for while one of its streams captures, and which do is not known */
	if (atomic_load_explicit(&c->captures, memory_order_relaxed))
		return CLV_CAPTURING;
	struct cuda_scope s = {0};
	if (context)
		return synchronize_one(c, context);
	enum clv_result result = CLV_OK;
	bool any = false;
	for (struct cuda_context *x = atomic_load(&c->contexts); x; x = x->next) {
		if (!enter_fitting(c, x, device, &s))
			continue;
		any = true;
		enum clv_result r = clv_cuda_result(synchronize(c, &s));
		result = result == CLV_OK ? r : result;
	}
	if (any)
		return result;
	enum clv_result entered = clv_cuda_enter_device(c, device, &s);
	return entered == CLV_OK ? clv_cuda_result(synchronize(c, &s)) : entered;
}

enum clv_result clv_cuda_synchronize(struct clv_driver *cuda, int device, CUcontext context)
{
	struct cuda *c = cuda_of(cuda);
	if (!context && (device < 0 || device >= cuda->devices))
		return CLV_INVALID;
	pthread_rwlock_rdlock(&c->begins);
	enum clv_result result = synchronize_any(c, device, context);
	pthread_rwlock_unlock(&c->begins);
	return result;
}

static void visit_synchronize(void *cuda, const struct clv_cuda_stream *s)
{
	clv_cuda_stream_synchronize(cuda, s->stream);
}

enum clv_result clv_cuda_context_finish(struct clv_driver *cuda, CUcontext context)
{
	/* without `begins`: captures of other contexts go on */
	enum clv_result result = synchronize_one(cuda_of(cuda), context);
	if (result == CLV_CAPTURING)
		clv_cuda_streams_each(cuda, context, visit_synchronize, cuda);
	return result;
}
