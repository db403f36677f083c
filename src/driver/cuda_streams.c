/* SPDX-License-Identifier: MIT */
#include "cuda_internal.h"

#include "../host/meta.h"

/* What a thread has asked for lately. Initial-exec, and so small that it finds room in a process that has started already. */
#define REMEMBERED_BITS 2

static __thread __attribute__((tls_model("initial-exec"))) struct {
	uint64_t number; /* of this thread; 0: none yet */
	struct remembered {
		uint64_t epoch;
		struct clv_cuda_stream stream;
	} remembered[1 << REMEMBERED_BITS], legacy;
} mine;

static _Atomic uint64_t last_thread, last_epoch;

uint64_t clv_cuda_thread(void)
{
	if (!mine.number)
		mine.number = atomic_fetch_add_explicit(&last_thread, 1, memory_order_relaxed) + 1;
	return mine.number;
}

void clv_cuda_new_epoch(struct cuda *c)
{
	atomic_store_explicit(&c->epoch, atomic_fetch_add_explicit(&last_epoch, 1, memory_order_relaxed) + 1,
			      memory_order_release);
}

/* ---- the list; with the lock held ---- */

static struct cuda_stream **bucket_of(struct cuda *c, uint64_t id)
{
	return &c->buckets[clv_mix64(id) % CUDA_STREAM_BUCKETS];
}

static struct cuda_stream *find(struct cuda *c, uint64_t id)
{
	struct cuda_stream *s = *bucket_of(c, id);
	while (s && s->public.stream.id != id)
		s = s->hash_next;
	return s;
}

static void drop(struct cuda *c, struct cuda_stream *s)
{
	struct cuda_stream **link = bucket_of(c, s->public.stream.id);
	while (*link != s)
		link = &(*link)->hash_next;
	*link = s->hash_next;
	*(s->newer ? &s->newer->older : &c->streams) = s->older;
	if (s->older)
		s->older->newer = s->newer;
	clv_meta_free(s);
}

static struct cuda_stream *add(struct cuda *c, const struct clv_cuda_stream *public)
{
	struct cuda_context *context = clv_cuda_context_get(c, public->context, public->device);
	struct cuda_stream *s = context ? clv_meta_zalloc(sizeof(*s)) : NULL;
	if (!s)
		return NULL;
	s->public = *public;
	s->context = (struct cuda_context_ref){context, atomic_load(&context->generation)};
	bool of_thread = public->stream.handle == (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD;
	s->thread = of_thread ? clv_cuda_thread() : CUDA_SHARED_STREAM;
	s->serial = ++c->stream_serial;
	s->older = c->streams;
	if (s->older)
		s->older->newer = s;
	c->streams = s;
	struct cuda_stream **bucket = bucket_of(c, public->stream.id);
	s->hash_next = *bucket;
	*bucket = s;
	return s;
}

void clv_cuda_streams_drop(struct cuda *c)
{
	while (c->streams)
		drop(c, c->streams);
	clv_cuda_new_epoch(c);
}

/* ---- asking the driver ---- */

/* The context of a stream, as a default stream's that of the thread. */
static CUresult ask_context(struct cuda *c, CUstream handle, CUcontext *context)
{
	*context = NULL;
	CUresult r = clv_cuda_is_default(handle) ? c->api->cuCtxGetCurrent(context)
						 : c->api->cuStreamGetCtx(handle, context);
	return r == CUDA_SUCCESS && !*context ? CUDA_ERROR_INVALID_CONTEXT : r;
}

static CUresult ask_device(struct cuda *c, CUcontext context, int *device)
{
	CUcontext current = NULL, popped;
	CUdevice dev = -1;
	c->api->cuCtxGetCurrent(&current);
	CUresult r = current == context ? CUDA_SUCCESS : c->api->cuCtxPushCurrent_v2(context);
	if (r != CUDA_SUCCESS)
		return r;
	r = c->api->cuCtxGetDevice(&dev);
	if (current != context)
		c->api->cuCtxPopCurrent_v2(&popped);
	*device = clv_cuda_device_index(c, dev);
	return r == CUDA_SUCCESS && *device < 0 ? CUDA_ERROR_INVALID_DEVICE : r;
}

/* Registers the stream, which has this id and is not registered yet. */
static CUresult meet(struct cuda *c, CUstream handle, uint64_t id, struct cuda_stream *out)
{
	struct clv_cuda_stream new = {.stream = {id, (uint64_t)(uintptr_t)handle}};
	CUresult r = ask_context(c, handle, &new.context);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&c->lock);
	struct cuda_context *known = clv_cuda_context_get(c, new.context, -1);
	new.device = known ? known->device : -1;
	pthread_mutex_unlock(&c->lock);
	if (!known) {
		r = ask_device(c, new.context, &new.device);
		if (r != CUDA_SUCCESS)
			return r;
	}
	pthread_mutex_lock(&c->lock);
	struct cuda_stream *s = find(c, id); /* another thread may have met it meanwhile */
	if (!s)
		s = add(c, &new);
	if (s)
		*out = *s;
	pthread_mutex_unlock(&c->lock);
	return s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult stream_of(struct cuda *c, CUstream handle, uint64_t id, struct cuda_stream *out)
{
	pthread_mutex_lock(&c->lock);
	struct cuda_stream *s = find(c, id);
	if (s)
		*out = *s;
	pthread_mutex_unlock(&c->lock);
	return s ? CUDA_SUCCESS : meet(c, handle, id, out);
}

/* May the driver not be asked after the id of the stream, since it captures or, the legacy stream, since a blocking stream
 * does? Of the latter it says by an error that it cannot tell, and breaks the capture if it is asked. */
static bool captures(struct cuda *c, CUstream handle)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r = c->api->cuStreamIsCapturing(handle, &status);
	return r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* With the lock held: the stream of this name, as the thread means it; the newest, since names are used again. */
static struct cuda_stream *find_named(struct cuda *c, CUstream handle, CUcontext context)
{
	uint64_t thread = handle == CU_STREAM_PER_THREAD ? clv_cuda_thread() : CUDA_SHARED_STREAM;
	for (struct cuda_stream *s = c->streams; s; s = s->older)
		if (s->public.stream.handle == (uint64_t)(uintptr_t)handle && s->public.context == context &&
		    s->thread == thread)
			return s;
	return NULL;
}

/* To ask a stream that captures after its id ends the capture. It is known by its name, which is its own as long as it
 * lives; one that was never met before gets an id of ours, which only tells it from others. */
static CUresult capturing_stream(struct cuda *c, CUstream handle, struct clv_cuda_stream *out)
{
	CUcontext context;
	CUresult r = ask_context(c, handle, &context);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&c->lock);
	struct cuda_stream *s = find_named(c, handle, context);
	uint64_t id = s ? s->public.stream.id : CUDA_UNASKED | ++c->unasked;
	if (s)
		*out = s->public;
	pthread_mutex_unlock(&c->lock);
	if (s)
		return CUDA_SUCCESS;
	struct cuda_stream met;
	r = meet(c, handle, id, &met);
	if (r == CUDA_SUCCESS)
		*out = met.public;
	return r;
}

CUresult clv_cuda_stream(struct clv_driver *cuda, CUstream handle, bool per_thread, struct clv_cuda_stream *out)
{
	struct cuda *c = cuda_of(cuda);
	unsigned long long id;
	if (!handle)
		handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (CLV_UNLIKELY(atomic_load_explicit(&c->captures, memory_order_relaxed)) && captures(c, handle))
		return capturing_stream(c, handle, out);
	/* before the list is looked at: what is forgotten from now on is not remembered as if it were known */
	uint64_t epoch = atomic_load_explicit(&c->epoch, memory_order_acquire);
	/* The legacy stream is that of the current context, which costs a third of what its id does. */
	CUcontext context = NULL;
	if (handle == CU_STREAM_LEGACY && c->api->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
	    CLV_LIKELY(mine.legacy.epoch == epoch && mine.legacy.stream.context == context)) {
		*out = mine.legacy.stream;
		return CUDA_SUCCESS;
	}
	CUresult r = c->api->cuStreamGetId(handle, &id);
	if (CLV_UNLIKELY(r != CUDA_SUCCESS))
		return r;
	struct remembered *known = &mine.remembered[clv_mix64(id) >> (64 - REMEMBERED_BITS)];
	if (CLV_LIKELY(known->epoch == epoch && known->stream.stream.id == id)) {
		*out = known->stream;
	} else {
		struct cuda_stream s;
		r = stream_of(c, handle, id, &s);
		if (r != CUDA_SUCCESS)
			return r;
		*out = s.public;
		*known = (struct remembered){epoch, s.public};
	}
	if (context && out->context == context)
		mine.legacy = (struct remembered){epoch, *out};
	return CUDA_SUCCESS;
}

enum clv_result clv_cuda_stream_find(struct cuda *c, cleave_stream stream, struct cuda_stream *out)
{
	if (stream.id == CLEAVE_STREAM_ANY.id)
		return CLV_INVALID;
	pthread_mutex_lock(&c->lock);
	struct cuda_stream *s = find(c, stream.id);
	if (s)
		*out = *s;
	pthread_mutex_unlock(&c->lock);
	if (s)
		return CLV_OK;
	if (!c->adopt_streams)
		return CLV_INVALID;
	/* The caller knows the stream and has not told us. Which one a default stream's handle means depends on the context
	 * and the thread: it may be another one than is asked about. */
	CUstream handle = stream.handle ? (CUstream)(uintptr_t)stream.handle : CU_STREAM_LEGACY;
	unsigned long long id = 0;
	if (atomic_load_explicit(&c->captures, memory_order_relaxed) && captures(c, handle))
		return CLV_CAPTURING;
	if (c->api->cuStreamGetId(handle, &id) != CUDA_SUCCESS || id != stream.id)
		return CLV_FAILED;
	return meet(c, handle, id, out) == CUDA_SUCCESS ? CLV_OK : CLV_FAILED;
}

/* ---- what others ask ---- */

bool clv_cuda_stream_known(struct clv_driver *cuda, uint64_t id, struct clv_cuda_stream *out)
{
	struct cuda *c = cuda_of(cuda);
	pthread_mutex_lock(&c->lock);
	struct cuda_stream *s = find(c, id);
	if (s && out)
		*out = s->public;
	pthread_mutex_unlock(&c->lock);
	return s != NULL;
}

void clv_cuda_stream_forget(struct clv_driver *cuda, uint64_t id)
{
	struct cuda *c = cuda_of(cuda);
	pthread_mutex_lock(&c->lock);
	struct cuda_stream *s = find(c, id);
	if (s) {
		struct cuda_stream was = *s;
		drop(c, s);
		/* what was met under the same name while it captured */
		for (struct cuda_stream *x = c->unasked ? c->streams : NULL, *older; x; x = older) {
			older = x->older;
			if ((x->public.stream.id & CUDA_UNASKED) &&
			    x->public.stream.handle == was.public.stream.handle &&
			    x->public.context == was.public.context && x->thread == was.thread)
				drop(c, x);
		}
		clv_cuda_new_epoch(c);
	}
	pthread_mutex_unlock(&c->lock);
}

void clv_cuda_streams_each(struct clv_driver *cuda, CUcontext context,
			   void (*visit)(void *arg, const struct clv_cuda_stream *stream), void *arg)
{
	struct cuda *c = cuda_of(cuda);
	struct clv_cuda_stream some[16];
	uint64_t before = UINT64_MAX; /* from the newest to the oldest, so many at a time */
	size_t n;
	do {
		n = 0;
		pthread_mutex_lock(&c->lock);
		for (struct cuda_stream *s = c->streams; s && n < CLV_ARRAY_LEN(some); s = s->older) {
			if (s->serial >= before || (context && s->public.context != context))
				continue;
			some[n++] = s->public;
			before = s->serial;
		}
		pthread_mutex_unlock(&c->lock);
		for (size_t i = 0; i < n; i++)
			visit(arg, &some[i]);
	} while (n);
}
