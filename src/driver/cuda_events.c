/* SPDX-License-Identifier: MIT
 *
 * A default stream of another thread, which no handle names here, is stood for by the legacy default stream of its context:
 * what is recorded there comes after all work of the context's blocking streams, which per-thread default streams are, and
 * what waits there is waited for by their later work.
 */
#include "cuda_internal.h"

#include "../host/meta.h"

/* One event is used by one thread at a time. */
struct cuda_event {
	CUevent event;                   /* NULL: not made yet */
	struct cuda_context_ref context; /* it was made in */
	enum { NOTHING_RECORDED, ON_STREAM, ON_VIRTUAL } recorded;
	uint64_t virtual, mark; /* if recorded on a virtual stream */
};

/* A stream as it can be named in this thread. */
struct target {
	struct cuda_stream stream;
	CUstream handle;
	bool stands_for_another; /* the legacy default stream, for a per-thread one */
};

static struct cuda_event *event_of(clv_event event)
{
	return (struct cuda_event *)(uintptr_t)event;
}

static enum clv_result find_target(struct cuda *c, cleave_stream stream, struct target *t)
{
	enum clv_result r = clv_cuda_stream_find(c, stream, &t->stream);
	if (r != CLV_OK)
		return r;
	t->handle = (CUstream)(uintptr_t)t->stream.public.stream.handle;
	t->stands_for_another = t->stream.thread != CUDA_SHARED_STREAM && t->stream.thread != clv_cuda_thread();
	if (t->stands_for_another)
		t->handle = CU_STREAM_LEGACY;
	return CLV_OK;
}

/* Whether nothing may be put on the stream, or asked of it, since it captures. In its context. */
static bool captures(struct cuda *c, const struct target *t)
{
	if (CLV_LIKELY(!atomic_load_explicit(&c->captures, memory_order_relaxed)))
		return false;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	/* of the legacy stream: an error, if any blocking stream of the context captures */
	return c->api->cuStreamIsCapturing(t->handle, &status) != CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool passed(struct cuda *c, const struct cuda_event *e)
{
	return c->virtual.passed && c->virtual.passed(c->virtual.arg, e->virtual, e->mark);
}

enum clv_result clv_cuda_event_create(struct clv_driver *self, clv_event *event, int device)
{
	if (!event || device < 0 || device >= self->devices)
		return CLV_INVALID;
	struct cuda_event *e = clv_meta_zalloc(sizeof(*e));
	*event = (clv_event)(uintptr_t)e;
	return e ? CLV_OK : CLV_FAILED;
}

/* What was recorded last still happens. */
static void unmake(struct cuda *c, struct cuda_event *e)
{
	struct cuda_scope scope = {0};
	if (e->event && clv_cuda_enter(c, e->context, &scope)) {
		CUDA_TIMED(c, CLV_CALL_event_destroy, c->api->cuEventDestroy_v2(e->event));
		clv_cuda_leave(c, &scope);
	}
	e->event = NULL;
}

enum clv_result clv_cuda_event_destroy(struct clv_driver *self, clv_event event)
{
	if (!event)
		return CLV_INVALID;
	unmake(cuda_of(self), event_of(event));
	clv_meta_free(event_of(event));
	return CLV_OK;
}

static bool same_context(struct cuda_context_ref a, struct cuda_context_ref b)
{
	return a.context == b.context && a.generation == b.generation;
}

/* In the context of the stream. On failure what was recorded before is still what the event stands for.
 *
 * A stream joins a capture when it waits for an event of that, and nobody calls us about it. An event recorded after that
 * belongs to the capture, and whatever waits for it joins as well: so beside captures it is recorded in a new one, and counts
 * only if the stream captures no more than before. */
static CUresult record(struct cuda *c, struct cuda_event *e, const struct target *t)
{
	bool beside = atomic_load_explicit(&c->captures, memory_order_relaxed);
	bool fits = e->event && same_context(e->context, t->stream.context) && !beside;
	CUevent event = fits ? e->event : NULL, made = NULL;
	CUresult r = CUDA_SUCCESS;
	if (!event)
		r = CUDA_TIMED(c, CLV_CALL_event_create, c->api->cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
	if (r != CUDA_SUCCESS)
		return r;
	r = CUDA_TIMED(c, CLV_CALL_event_record, c->api->cuEventRecord(event ? event : made, t->handle));
	if (r == CUDA_SUCCESS && beside && captures(c, t))
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (r == CUDA_SUCCESS) {
		if (made)
			unmake(c, e);
		*e = (struct cuda_event){
			.event = event ? event : made, .context = t->stream.context, .recorded = ON_STREAM};
	} else if (made) {
		CUDA_TIMED(c, CLV_CALL_event_destroy, c->api->cuEventDestroy_v2(made));
	}
	return r;
}

enum clv_result clv_cuda_event_record(struct clv_driver *self, clv_event event, cleave_stream stream)
{
	struct cuda *c = cuda_of(self);
	struct cuda_event *e = event_of(event);
	struct target t;
	if (!e)
		return CLV_INVALID;
	if (clv_cuda_is_virtual(stream.id)) {
		if (!c->virtual.mark)
			return CLV_CAPTURING;
		e->virtual = stream.id;
		e->mark = c->virtual.mark(c->virtual.arg, stream.id);
		e->recorded = ON_VIRTUAL;
		return CLV_OK;
	}
	enum clv_result result = find_target(c, stream, &t);
	if (result != CLV_OK)
		return result;
	struct cuda_scope scope = {0};
	if (!clv_cuda_enter(c, t.stream.context, &scope))
		return CLV_GONE;
	pthread_rwlock_rdlock(&c->begins);
	result = captures(c, &t) ? CLV_CAPTURING : clv_cuda_result(record(c, e, &t));
	pthread_rwlock_unlock(&c->begins);
	clv_cuda_leave(c, &scope);
	return result;
}

/* Asks or waits. What was recorded in a context that is gone is complete. */
static enum clv_result ask(struct cuda *c, const struct cuda_event *e, bool wait)
{
	if (e->recorded == NOTHING_RECORDED)
		return CLV_OK;
	if (e->recorded == ON_VIRTUAL)
		return passed(c, e) ? CLV_OK : wait ? CLV_CAPTURING : CLV_NOT_READY;
	struct cuda_scope scope = {0};
	if (!clv_cuda_enter(c, e->context, &scope))
		return CLV_OK;
	if (wait) /* with no lock that a capture which begins has to take */
		clv_cuda_relax_always(c, &scope);
	CUresult r = wait ? CUDA_TIMED(c, CLV_CALL_event_synchronize, c->api->cuEventSynchronize(e->event))
			  : CUDA_TIMED(c, CLV_CALL_event_query, c->api->cuEventQuery(e->event));
	clv_cuda_leave(c, &scope);
	enum clv_result result = clv_cuda_result(r);
	return result == CLV_GONE ? CLV_OK : result;
}

enum clv_result clv_cuda_event_query(struct clv_driver *self, clv_event event)
{
	return event ? ask(cuda_of(self), event_of(event), false) : CLV_INVALID;
}

enum clv_result clv_cuda_event_synchronize(struct clv_driver *self, clv_event event)
{
	return event ? ask(cuda_of(self), event_of(event), true) : CLV_INVALID;
}

enum clv_result clv_cuda_stream_wait_event(struct clv_driver *self, cleave_stream stream, clv_event event)
{
	struct cuda *c = cuda_of(self);
	struct cuda_event *e = event_of(event);
	struct target t;
	if (!e || stream.id == CLEAVE_STREAM_ANY.id)
		return CLV_INVALID;
	/* Of what the driver does not order only the outcome can be asked. */
	if (clv_cuda_is_virtual(stream.id) || e->recorded == ON_VIRTUAL) {
		enum clv_result r = ask(c, e, false);
		return r == CLV_NOT_READY ? CLV_CAPTURING : r;
	}
	enum clv_result result = find_target(c, stream, &t);
	if (result != CLV_OK || e->recorded == NOTHING_RECORDED)
		return result;
	struct cuda_scope of_stream = {0}, of_event = {0};
	if (!clv_cuda_enter(c, e->context, &of_event))
		return CLV_OK;
	if (!clv_cuda_enter(c, t.stream.context, &of_stream))
		result = CLV_GONE;
	else if (captures(c, &t))
		result = CLV_CAPTURING;
	else
		result = clv_cuda_result(
			CUDA_TIMED(c, CLV_CALL_stream_wait_event, c->api->cuStreamWaitEvent(t.handle, e->event, 0)));
	clv_cuda_leave(c, &of_stream);
	clv_cuda_leave(c, &of_event);
	return result;
}

/* Whether the legacy stream's own end includes that of the streams it is ordered with is not said anywhere; an event on it
 * does. And to wait for a stream that has joined a capture meanwhile ends the capture; to wait for an event does not. */
static CUresult wait_for_all(struct cuda *c, const struct target *t)
{
	struct cuda_event e = {0};
	CUresult r = record(c, &e, t);
	if (r == CUDA_SUCCESS)
		r = CUDA_TIMED(c, CLV_CALL_event_synchronize, c->api->cuEventSynchronize(e.event));
	unmake(c, &e);
	return r;
}

enum clv_result clv_cuda_stream_synchronize(struct clv_driver *self, cleave_stream stream)
{
	struct cuda *c = cuda_of(self);
	struct target t;
	if (clv_cuda_is_virtual(stream.id)) {
		struct cuda_event now = {.virtual = stream.id};
		if (!c->virtual.mark)
			return CLV_CAPTURING;
		now.mark = c->virtual.mark(c->virtual.arg, stream.id);
		return passed(c, &now) ? CLV_OK : CLV_CAPTURING;
	}
	enum clv_result result = find_target(c, stream, &t);
	if (result != CLV_OK)
		return result;
	struct cuda_scope scope = {0};
	if (!clv_cuda_enter(c, t.stream.context, &scope))
		return CLV_GONE;
	pthread_rwlock_rdlock(&c->begins);
	if (captures(c, &t))
		result = CLV_CAPTURING;
	else if (t.stands_for_another || atomic_load_explicit(&c->captures, memory_order_relaxed))
		result = clv_cuda_result(wait_for_all(c, &t));
	else
		result = clv_cuda_result(
			CUDA_TIMED(c, CLV_CALL_stream_synchronize, c->api->cuStreamSynchronize(t.handle)));
	pthread_rwlock_unlock(&c->begins);
	clv_cuda_leave(c, &scope);
	return result;
}
