/* SPDX-License-Identifier: MIT
 *
 * Queues: each stream is one, and so is each default stream of a context and of a thread. A thread of its own takes
 * entries from it, in order; an entry is a piece of work, or a wait for a position of another queue. Events are positions.
 */
#include "fake.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct fc_queue *fc_queue_new(struct fc_context *context, bool non_blocking)
{
	struct fc_queue *q = fc_alloc(sizeof(*q));
	q->context = context;
	q->non_blocking = non_blocking;
	q->id = ++fc.last_id;
	q->refs = 1;
	pthread_cond_init(&q->wake, NULL);
	q->next = context->queues;
	if (q->next)
		q->next->prev = q;
	context->queues = q;
	return q;
}

void fc_queue_ref(struct fc_queue *q)
{
	if (q)
		q->refs++;
}

void fc_queue_unref(struct fc_queue *q)
{
	if (!q || --q->refs)
		return;
	pthread_cond_destroy(&q->wake);
	free(q);
}

static void unlink_queue(struct fc_queue *q)
{
	if (q->prev)
		q->prev->next = q->next;
	else
		q->context->queues = q->next;
	if (q->next)
		q->next->prev = q->prev;
	q->next = q->prev = NULL;
}

void fc_queue_close(struct fc_queue *q)
{
	q->closing = true;
	if (q->capture)
		fc_capture_break(q);
	if (fc_handle_get(FC_HANDLE_STREAM, q->handle) == q)
		fc_handle_free(FC_HANDLE_STREAM, q->handle);
	if (q->worker)
		pthread_cond_signal(&q->wake);
	else
		unlink_queue(q);
	if (q->context->legacy == q)
		q->context->legacy = NULL;
	fc_queue_unref(q);
}

bool fc_passed(const struct fc_queue *q, uint64_t position)
{
	return !q || q->completed >= position;
}

static void pause_us(unsigned us)
{
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
	while (nanosleep(&t, &t))
		;
}

/* Queues of which a worker waits for this one go on, and so do calls that wait. */
static void advanced(struct fc_queue *q)
{
	q->completed++;
	pthread_cond_broadcast(&fc.done);
	for (struct fc_context *c = fc.contexts; c; c = c->next)
		for (struct fc_queue *other = c->queues; other; other = other->next)
			if (other->blocked && other->head && other->head->wait == q)
				pthread_cond_signal(&other->wake);
}

static void *work(void *arg)
{
	struct fc_queue *q = arg;
	fc_self.callback = true; /* whatever runs here must not call the driver */
	pthread_mutex_lock(&fc.lock);
	for (;;) {
		struct fc_entry *e = q->head;
		if (!e) {
			if (q->closing)
				break;
			pthread_cond_wait(&q->wake, &fc.lock);
			continue;
		}
		if (e->wait) {
			q->blocked = true;
			while (!fc_passed(e->wait, e->wait_position))
				pthread_cond_wait(&q->wake, &fc.lock);
			q->blocked = false;
			fc_queue_unref(e->wait);
		} else {
			unsigned delay = e->op.kind == FC_OP_BODY ? 0 : fc.delay_us;
			pthread_mutex_unlock(&fc.lock);
			if (delay)
				pause_us(delay);
			fc_op_run(q->context, &e->op);
			pthread_mutex_lock(&fc.lock);
			fc_op_drop(&e->op);
		}
		q->head = e->next;
		if (!q->head)
			q->tail = NULL;
		free(e);
		advanced(q);
	}
	unlink_queue(q);
	fc_queue_unref(q);
	pthread_mutex_unlock(&fc.lock);
	return NULL;
}

void fc_thread_start(void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 1 << 20);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	if (pthread_create(&thread, &attr, run, arg))
		abort();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
}

static void append(struct fc_queue *q, struct fc_entry *e)
{
	if (q->tail)
		q->tail->next = e;
	else
		q->head = e;
	q->tail = e;
	q->submitted++;
	if (q->worker) {
		pthread_cond_signal(&q->wake);
		return;
	}
	q->worker = true;
	fc_queue_ref(q);
	fc_thread_start(work, q);
}

void fc_push_wait(struct fc_queue *q, struct fc_queue *on, uint64_t position)
{
	if (on == q || fc_passed(on, position))
		return;
	struct fc_entry *e = fc_alloc(sizeof(*e));
	e->wait = on;
	e->wait_position = position;
	fc_queue_ref(on);
	append(q, e);
}

/* What the legacy default stream orders: it waits for the blocking streams of its context, and they for it. */
void fc_order(struct fc_queue *q)
{
	struct fc_queue *legacy = q->context->legacy;
	if (q->non_blocking || !legacy)
		return;
	if (q != legacy) {
		fc_push_wait(q, legacy, legacy->submitted);
		return;
	}
	for (struct fc_queue *other = q->context->queues; other; other = other->next)
		if (!other->non_blocking)
			fc_push_wait(q, other, other->submitted);
}

void fc_push(struct fc_queue *q, const struct fc_op *op)
{
	fc_order(q);
	struct fc_entry *e = fc_alloc(sizeof(*e));
	e->op = *op;
	append(q, e);
}

CUresult fc_submit(struct fc_queue *q, struct fc_op *op)
{
	CUresult r = fc_implicit(q);
	if (r) {
		fc_op_drop(op);
		return r;
	}
	if (q->capture)
		return fc_capture_add(q, op);
	fc_push(q, op);
	return CUDA_SUCCESS;
}

/* Waits. Each gives up the lock. */

void fc_wait(struct fc_queue *q, uint64_t position)
{
	fc_queue_ref(q);
	while (!fc_passed(q, position))
		pthread_cond_wait(&fc.done, &fc.lock);
	fc_queue_unref(q);
}

struct goal {
	struct fc_queue *q;
	uint64_t position;
};

void fc_wait_context(struct fc_context *context)
{
	size_t count = 0;
	for (struct fc_queue *q = context->queues; q; q = q->next)
		count++;
	struct goal *goals = fc_alloc((count + 1) * sizeof(*goals));
	count = 0;
	for (struct fc_queue *q = context->queues; q; q = q->next) {
		fc_queue_ref(q);
		goals[count++] = (struct goal){q, q->submitted};
	}
	for (size_t i = 0; i < count; i++) {
		fc_wait(goals[i].q, goals[i].position);
		fc_queue_unref(goals[i].q);
	}
	free(goals);
}

void fc_wait_device(int device)
{
	for (struct fc_context *c = fc.contexts; c; c = c->next) /* newer ones stand before the one we began at */
		if (c->device == device)
			fc_wait_context(c);
}

/* Streams. */

CUresult fc_queue_of(CUstream handle, bool per_thread, struct fc_queue **out)
{
	struct fc_context *c = fc_current();
	*out = NULL;
	if (!handle)
		handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (!c && (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (handle == CU_STREAM_LEGACY) {
		*out = c->legacy;
	} else if (handle == CU_STREAM_PER_THREAD) {
		for (struct fc_queue *q = c->queues; q && !*out; q = q->next)
			if (q->thread == fc_self.id && !q->closing)
				*out = q;
		if (!*out) {
			*out = fc_queue_new(c, false);
			(*out)->thread = fc_self.id;
			(*out)->handle = CU_STREAM_PER_THREAD;
		}
	} else {
		*out = fc_handle_get(FC_HANDLE_STREAM, handle);
	}
	if (!*out)
		return CUDA_ERROR_INVALID_HANDLE;
	return (*out)->context->fault;
}

static CUresult stream_create(CUstream *out, unsigned flags, int priority)
{
	if (!out || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	struct fc_queue *q = fc_queue_new(fc_current(), flags & CU_STREAM_NON_BLOCKING);
	q->flags = flags;
	q->priority = priority;
	*out = q->handle = fc_handle_new(FC_HANDLE_STREAM, q);
	fc_note("%p id %llu", (void *)*out, (unsigned long long)q->id);
	return CUDA_SUCCESS;
}

FC_CALL(cuStreamCreate, FC_CONTEXT, (CUstream * phStream, unsigned int Flags), (phStream, Flags))
{
	return stream_create(phStream, Flags, 0);
}

FC_CALL(cuStreamCreateWithPriority, FC_CONTEXT, (CUstream * phStream, unsigned int flags, int priority),
	(phStream, flags, priority))
{
	return stream_create(phStream, flags, priority);
}

FC_CALL(cuStreamDestroy_v2, FC_INIT, (CUstream hStream), (hStream))
{
	struct fc_queue *q = fc_handle_get(FC_HANDLE_STREAM, hStream);
	if (!q)
		return CUDA_ERROR_INVALID_HANDLE;
	fc_queue_close(q);
	return CUDA_SUCCESS;
}

FC_STREAM_CALL(cuStreamSynchronize, FC_STREAM, (CUstream hStream), (hStream))
{
	struct fc_queue *q;
	CUresult r = fc_queue_of(hStream, per_thread, &q);
	r = r ? r : fc_unsafe_on(q);
	r = r ? r : fc_implicit(q);
	if (r)
		return r;
	fc_order(q); /* the legacy stream is done when what it waits for is */
	struct fc_context *c = q->context;
	fc_wait(q, q->submitted);
	fc_pools_settle(c->device);
	return c->fault;
}

FC_STREAM_CALL(cuStreamQuery, FC_STREAM, (CUstream hStream), (hStream))
{
	struct fc_queue *q;
	CUresult r = fc_queue_of(hStream, per_thread, &q);
	r = r ? r : fc_unsafe_on(q);
	r = r ? r : fc_implicit(q);
	if (r)
		return r;
	fc_order(q);
	return fc_passed(q, q->submitted) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

FC_STREAM_CALL(cuStreamGetId, FC_STREAM, (CUstream hStream, unsigned long long *streamId), (hStream, streamId))
{
	struct fc_queue *q;
	CUresult r = streamId ? fc_queue_of(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	if (!r && q->capture) /* on an H200 (driver 580) it ends the capture, whatever the mode */
		return fc_unsafe_on(q);
	r = r ? r : fc_implicit(q);
	if (!r)
		*streamId = q->id;
	return r;
}

static CUresult context_of(CUstream stream, bool per_thread, CUcontext *out)
{
	struct fc_queue *q;
	CUresult r = out ? fc_queue_of(stream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	r = r ? r : fc_implicit(q); /* as documented of this call */
	if (!r)
		*out = q->context->handle;
	return r;
}

FC_STREAM_CALL(cuStreamGetCtx, FC_STREAM, (CUstream hStream, CUcontext *pctx), (hStream, pctx))
{
	return context_of(hStream, per_thread, pctx);
}

FC_STREAM_CALL(cuStreamGetCtx_v2, FC_STREAM, (CUstream hStream, CUcontext *pctx, void **green), (hStream, pctx, green))
{
	if (green)
		*green = NULL;
	return context_of(hStream, per_thread, pctx);
}

FC_STREAM_CALL(cuStreamGetFlags, FC_STREAM, (CUstream hStream, unsigned int *flags), (hStream, flags))
{
	struct fc_queue *q;
	CUresult r = flags ? fc_queue_of(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*flags = q->flags;
	return r;
}

FC_STREAM_CALL(cuStreamGetPriority, FC_STREAM, (CUstream hStream, int *priority), (hStream, priority))
{
	struct fc_queue *q;
	CUresult r = priority ? fc_queue_of(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*priority = q->priority;
	return r;
}

FC_STREAM_CALL(cuLaunchHostFunc, FC_STREAM, (CUstream hStream, CUhostFn fn, void *userData), (hStream, fn, userData))
{
	struct fc_queue *q;
	CUresult r = fn ? fc_queue_of(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	struct fc_op op = {.kind = FC_OP_HOST, .fn = fn, .arg = userData};
	return r ? r : fc_submit(q, &op);
}

/* Events. */

struct event {
	struct fc_context *context;
	struct fc_queue *queue; /* NULL: never recorded */
	uint64_t position;
	uint64_t capture; /* its id, if recorded in one */
	struct fc_nodes after;
	unsigned flags;
};

static CUresult event_of(CUevent handle, struct event **out)
{
	*out = fc_handle_get(FC_HANDLE_EVENT, handle);
	if (!*out)
		return CUDA_ERROR_INVALID_HANDLE;
	return (*out)->context->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

FC_CALL(cuEventCreate, FC_CONTEXT, (CUevent * phEvent, unsigned int Flags), (phEvent, Flags))
{
	if (!phEvent || Flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	struct event *e = fc_alloc(sizeof(*e));
	e->context = fc_current();
	e->flags = Flags;
	*phEvent = fc_handle_new(FC_HANDLE_EVENT, e);
	return CUDA_SUCCESS;
}

static void event_forget(struct event *e)
{
	fc_queue_unref(e->queue);
	e->queue = NULL;
	e->capture = 0;
	fc_nodes_clear(&e->after);
}

FC_CALL(cuEventDestroy_v2, FC_INIT, (CUevent hEvent), (hEvent))
{
	struct event *e;
	CUresult r = event_of(hEvent, &e);
	if (!e)
		return r;
	event_forget(e);
	fc_handle_free(FC_HANDLE_EVENT, hEvent);
	free(e);
	return r;
}

FC_STREAM_CALL(cuEventRecord, FC_STREAM, (CUevent hEvent, CUstream hStream), (hEvent, hStream))
{
	struct fc_queue *q;
	struct event *e;
	CUresult r = event_of(hEvent, &e);
	r = r ? r : fc_queue_of(hStream, per_thread, &q);
	r = r ? r : fc_implicit(q);
	if (r)
		return r;
	if (q->context != e->context) /* as the real one: an event belongs to its context */
		return CUDA_ERROR_INVALID_HANDLE;
	struct fc_graph *graph;
	if (q->capture && (r = fc_capture_graph(q, &graph)))
		return r;
	event_forget(e);
	if (q->capture) {
		e->capture = fc_capture_id(q);
		fc_nodes_set(&e->after, &q->after);
		return CUDA_SUCCESS;
	}
	fc_order(q);
	fc_queue_ref(q);
	e->queue = q;
	e->position = q->submitted;
	return CUDA_SUCCESS;
}

FC_CALL(cuCtxRecordEvent, FC_INIT, (CUcontext hCtx, CUevent hEvent), (hCtx, hEvent))
{
	struct fc_context *c = fc_handle_get(FC_HANDLE_CONTEXT, hCtx);
	struct event *e;
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult r = event_of(hEvent, &e);
	if (r || e->context != c)
		return r ? r : CUDA_ERROR_INVALID_HANDLE;
	for (struct fc_queue *q = c->queues; q; q = q->next)
		if (q->capture) {
			fc_capture_break(q);
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	if (r)
		return r;
	if (!c->marks)
		c->marks = fc_queue_new(c, true);
	for (struct fc_queue *q = c->queues; q; q = q->next)
		fc_push_wait(c->marks, q, q->submitted);
	event_forget(e);
	fc_queue_ref(c->marks);
	e->queue = c->marks;
	e->position = c->marks->submitted;
	return CUDA_SUCCESS;
}

FC_CALL(cuEventQuery, FC_INIT, (CUevent hEvent), (hEvent))
{
	struct event *e;
	CUresult r = event_of(hEvent, &e);
	r = r ? r : e->capture ? fc_captured_event(e->capture) : fc_unsafe();
	if (r)
		return r;
	if (!fc_passed(e->queue, e->position))
		return CUDA_ERROR_NOT_READY;
	return e->context->fault;
}

FC_CALL(cuEventSynchronize, FC_INIT, (CUevent hEvent), (hEvent))
{
	struct event *e;
	CUresult r = event_of(hEvent, &e);
	r = r ? r : e->capture ? fc_captured_event(e->capture) : fc_unsafe();
	if (r)
		return r;
	struct fc_context *c = e->context;
	if (e->queue)
		fc_wait(e->queue, e->position);
	fc_pools_settle(c->device);
	return c->fault;
}

FC_STREAM_CALL(cuStreamWaitEvent, FC_STREAM, (CUstream hStream, CUevent hEvent, unsigned int Flags),
	       (hStream, hEvent, Flags))
{
	struct fc_queue *q;
	struct event *e;
	CUresult r = event_of(hEvent, &e);
	r = r ? r : fc_queue_of(hStream, per_thread, &q);
	r = r ? r : fc_implicit(q);
	if (r)
		return r;
	if (e->capture)
		return fc_capture_join(q, e->capture, &e->after);
	if (q->capture) {
		if (!e->queue)
			return CUDA_SUCCESS;
		fc_capture_break(q);
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	fc_order(q);
	if (e->queue)
		fc_push_wait(q, e->queue, e->position);
	return CUDA_SUCCESS;
}
