/* SPDX-License-Identifier: MIT
 *
 * pinned: page-locked host memory under pinned:on, from a cache for each context (host/pinned.h), since the driver frees
 * such memory with the context that it was allocated in. `lock` guards the list of caches: it is shared by whoever uses one
 * and exclusive to whoever adds or ends one; `tickets` of a cache, the list of its tickets.
 *
 * The driver's cuMemFreeHost waits for all work. Here a ticket stands for that work: an event, for each context that may
 * use the memory, of all that the context was given until then. The block is used again when they have passed. Where an
 * event cannot do that (drivers before CUDA 12.5), the free waits as the driver's does. While anything is captured neither
 * can be done, and the ticket gets its events later.
 */
#include "seen.h"

#include "../host/meta.h"
#include "../host/pinned.h"

#include <pthread.h>
#include <stdatomic.h>

#define SMALL_ALIGN 512u /* of blocks below a page */
#define CONTEXTS_MAX 8u

struct ticket {
	struct ticket *next, *prev; /* of its cache */
	bool marked;
	unsigned count; /* events that have not passed */
	struct mark {
		CUcontext context;
		CUevent event;
	} marks[CONTEXTS_MAX];
};

struct cache {
	struct cache *next;
	CUcontext context;
	bool gone; /* the driver has freed the chunks */
	struct clv_pinned *pinned;
	pthread_mutex_t tickets;
	struct ticket *first;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static _Atomic(struct cache *) caches;

static bool enter(CUcontext context)
{
	return CLV_PASS(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
}

static void leave(void)
{
	CUcontext popped;
	CLV_PASS(cuCtxPopCurrent_v2, &popped);
}

static bool capturing(void)
{
	const struct clv_process *p = clv_process_if_open();
	return p && clv_cuda_captures(p->driver);
}

/* ---- tickets ---- */

struct contexts {
	CUcontext context[CONTEXTS_MAX];
	unsigned count;
	bool more;
};

static void add_context(struct contexts *all, CUcontext context)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->context[i] == context)
			return;
	if (all->count < CONTEXTS_MAX)
		all->context[all->count++] = context;
	else
		all->more = true;
}

static void add_context_of(void *arg, const struct clv_cuda_stream *s)
{
	add_context(arg, s->context);
}

/* The cache's context, the current one, and those of which streams are known. */
static void find_contexts(struct cache *c, struct contexts *all)
{
	const struct clv_process *p = clv_process_if_open();
	CUcontext current;
	*all = (struct contexts){.count = 0};
	add_context(all, c->context);
	if (CLV_PASS(cuCtxGetCurrent, &current) == CUDA_SUCCESS && current)
		add_context(all, current);
	if (p)
		clv_cuda_streams_each(p->driver, NULL, add_context_of, all);
}

/* False: an event cannot stand for the work of the context. */
static bool mark_context(struct ticket *t, CUcontext context)
{
	CUevent event;
	if (!clv_real()->cuCtxRecordEvent || !enter(context))
		return false;
	bool made = CLV_PASS(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
	bool marked = made && CLV_PASS(cuCtxRecordEvent, context, event) == CUDA_SUCCESS;
	if (marked)
		t->marks[t->count++] = (struct mark){context, event};
	else if (made)
		CLV_PASS(cuEventDestroy_v2, event);
	leave();
	return marked;
}

/* False: there is a capture. A context that has failed does no work any more. */
static bool wait_for_context(CUcontext context)
{
	if (!enter(context))
		return true;
	CUresult r = CLV_PASS(cuCtxSynchronize);
	leave();
	return r != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void drop_marks(struct ticket *t)
{
	while (t->count) {
		const struct mark *m = &t->marks[--t->count];
		if (enter(m->context)) {
			CLV_PASS(cuEventDestroy_v2, m->event);
			leave();
		}
	}
}

/* Stands for all work submitted until now, or has waited for it. False: not while something is captured. */
static bool ticket_mark(struct cache *c, struct ticket *t)
{
	struct contexts all;
	if (capturing())
		return false;
	find_contexts(c, &all);
	t->marked = !all.more;
	for (unsigned i = 0; i < all.count && t->marked; i++)
		t->marked = mark_context(t, all.context[i]) || wait_for_context(all.context[i]);
	if (!t->marked)
		drop_marks(t);
	return t->marked;
}

static bool ticket_passed(struct ticket *t)
{
	while (t->count) {
		const struct mark *m = &t->marks[t->count - 1];
		if (enter(m->context)) {
			CUresult r = CLV_PASS(cuEventQuery, m->event);
			if (r != CUDA_ERROR_NOT_READY) /* what failed is over as well */
				CLV_PASS(cuEventDestroy_v2, m->event);
			leave();
			if (r == CUDA_ERROR_NOT_READY)
				return false;
		}
		t->count--;
	}
	return true;
}

static struct ticket *ticket_new(struct cache *c)
{
	struct ticket *t = clv_meta_zalloc(sizeof(*t));
	if (!t)
		return NULL;
	ticket_mark(c, t);
	pthread_mutex_lock(&c->tickets);
	t->next = c->first;
	if (t->next)
		t->next->prev = t;
	c->first = t;
	pthread_mutex_unlock(&c->tickets);
	return t;
}

static void ticket_end(struct cache *c, struct ticket *t)
{
	pthread_mutex_lock(&c->tickets);
	if (t->next)
		t->next->prev = t->prev;
	if (t->prev)
		t->prev->next = t->next;
	else
		c->first = t->next;
	pthread_mutex_unlock(&c->tickets);
	drop_marks(t);
	clv_meta_free(t);
}

/* ---- what a cache asks for ---- */

static void *chunk_alloc(void *ctx, size_t size)
{
	void *chunk;
	unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
	return CLV_PASS(cuMemHostAlloc, &chunk, size, flags) == CUDA_SUCCESS ? chunk : NULL;
}

static void chunk_free(void *ctx, void *chunk, size_t size)
{
	struct cache *c = ctx;
	if (!c->gone && enter(c->context)) {
		CLV_PASS(cuMemFreeHost, chunk);
		leave();
	}
}

static bool passed(void *ctx, uint64_t ticket)
{
	struct cache *c = ctx;
	struct ticket *t = (struct ticket *)(uintptr_t)ticket;
	if (capturing() || (!t->marked && !ticket_mark(c, t)) || !ticket_passed(t))
		return false;
	ticket_end(c, t);
	return true;
}

/* ---- caches ---- */

static struct cache *cache_new(const struct clv_process *p, CUcontext context)
{
	struct clv_error err = {""};
	struct cache *c = clv_meta_zalloc(sizeof(*c));
	struct clv_pinned_ops ops = {chunk_alloc, chunk_free, passed, c};
	if (!c)
		return NULL;
	c->context = context;
	pthread_mutex_init(&c->tickets, NULL);
	c->pinned = clv_pinned_open(&ops, p->settings.pinned_limit, &err);
	if (c->pinned)
		return c;
	CLV_SAY_ONCE("pinned:on: %s; page-locked memory is left to the driver", err.text);
	pthread_mutex_destroy(&c->tickets);
	clv_meta_free(c);
	return NULL;
}

/* With the lock held. */
static struct cache *find_cache(CUcontext context)
{
	struct cache *c = caches;
	while (c && c->context != context)
		c = c->next;
	return c;
}

static struct cache *find_owner(const void *ptr)
{
	struct cache *c = caches;
	while (c && !clv_pinned_owns(c->pinned, ptr))
		c = c->next;
	return c;
}

/* The cache of a context, made if need be, with the lock shared; NULL, and no lock: there is none. */
static struct cache *use_cache(const struct clv_process *p, CUcontext context)
{
	for (int tries = 0; tries < 2; tries++) {
		pthread_rwlock_rdlock(&lock);
		struct cache *c = find_cache(context);
		if (c)
			return c;
		pthread_rwlock_unlock(&lock);
		pthread_rwlock_wrlock(&lock);
		c = find_cache(context) ? NULL : cache_new(p, context);
		if (c) {
			c->next = caches;
			caches = c;
		}
		pthread_rwlock_unlock(&lock);
	}
	return NULL;
}

static void drop_marks_of(struct ticket *t, CUcontext context, bool alive)
{
	for (unsigned i = 0; i < t->count;) {
		struct mark m = t->marks[i];
		if (m.context != context) {
			i++;
			continue;
		}
		if (alive && enter(context)) {
			CLV_PASS(cuEventDestroy_v2, m.event);
			leave();
		}
		t->marks[i] = t->marks[--t->count];
	}
}

void clv_host_context_gone(CUcontext context, bool alive)
{
	if (!caches)
		return;
	pthread_rwlock_wrlock(&lock);
	struct cache *ended = NULL, *before = NULL;
	for (struct cache *c = caches; c; c = c->next) {
		for (struct ticket *t = c->first; t; t = t->next)
			drop_marks_of(t, context, alive);
		if (c->context == context)
			ended = c;
		else if (!ended)
			before = c;
	}
	if (ended && before)
		before->next = ended->next;
	else if (ended)
		caches = ended->next;
	pthread_rwlock_unlock(&lock);
	if (!ended)
		return;
	ended->gone = !alive;
	while (ended->first)
		ticket_end(ended, ended->first);
	clv_pinned_close(ended->pinned);
	pthread_mutex_destroy(&ended->tickets);
	clv_meta_free(ended);
}

/* ---- hooks ---- */

/* False: the driver is to be asked. */
static bool serve(void **out, size_t size)
{
	const struct clv_process *p = clv_process();
	CUcontext context;
	if (!p || !p->settings.pinned || !out || capturing() || CLV_PASS(cuCtxGetCurrent, &context) != CUDA_SUCCESS ||
	    !context)
		return false;
	struct cache *c = use_cache(p, context);
	if (!c)
		return false;
	void *block = clv_pinned_alloc(c->pinned, size, SMALL_ALIGN);
	pthread_rwlock_unlock(&lock);
	if (block)
		*out = block;
	return block != NULL;
}

/* What all caches keep, for an allocation that the driver refused. */
static bool trim_caches(void)
{
	uint64_t bytes = 0;
	if (!caches || capturing())
		return false;
	pthread_rwlock_rdlock(&lock);
	for (struct cache *c = caches; c; c = c->next)
		bytes += clv_pinned_trim(c->pinned);
	pthread_rwlock_unlock(&lock);
	return bytes > 0;
}

static bool retry(CUresult r, int *step)
{
	return CLV_UNLIKELY(r == CUDA_ERROR_OUT_OF_MEMORY) && (trim_caches() || clv_trim_for_retry(step));
}

EXPORTED CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
	/* write-combined memory is of another kind */
	if (!(flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)) && serve(out, size))
		return CUDA_SUCCESS;
	CUresult r = CLV_PASS(cuMemHostAlloc, out, size, flags);
	for (int step = 0; retry(r, &step);)
		r = CLV_PASS(cuMemHostAlloc, out, size, flags);
	CLV_SEEN_GOT(r, .name = "cuMemHostAlloc", .kind = CLV_SEEN_HOST, .key = r == CUDA_SUCCESS ? (uintptr_t)*out : 0,
		     .size = size);
	return r;
}

EXPORTED CUresult cuMemAllocHost_v2(void **out, size_t size)
{
	if (serve(out, size))
		return CUDA_SUCCESS;
	CUresult r = CLV_PASS(cuMemAllocHost_v2, out, size);
	for (int step = 0; retry(r, &step);)
		r = CLV_PASS(cuMemAllocHost_v2, out, size);
	CLV_SEEN_GOT(r, .name = "cuMemAllocHost", .kind = CLV_SEEN_HOST, .key = r == CUDA_SUCCESS ? (uintptr_t)*out : 0,
		     .size = size);
	return r;
}

/* Without memory for a ticket the free waits. */
static CUresult free_block(struct cache *c, void *ptr)
{
	struct ticket *t = ticket_new(c);
	struct ticket waited = {.count = 0};
	if (!t) {
		if (!ticket_mark(c, &waited))
			return CUDA_ERROR_OUT_OF_MEMORY;
		for (unsigned i = 0; i < waited.count; i++)
			CLV_PASS(cuEventSynchronize, waited.marks[i].event);
		drop_marks(&waited);
	}
	if (clv_pinned_free(c->pinned, ptr, (uintptr_t)t))
		return CUDA_SUCCESS;
	if (t)
		ticket_end(c, t);
	return CUDA_ERROR_INVALID_VALUE;
}

EXPORTED CUresult cuMemFreeHost(void *ptr)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	struct cache *c = NULL;
	if (ptr && caches && clv_process_if_open()) {
		pthread_rwlock_rdlock(&lock);
		c = find_owner(ptr);
		if (c)
			r = free_block(c, ptr);
		pthread_rwlock_unlock(&lock);
	}
	if (c)
		return r;
	struct clv_seen_item item = CLV_SEEN_FREES(.name = "cuMemFreeHost", .kind = CLV_SEEN_HOST, .key = (uintptr_t)ptr);
	return clv_seen_freed(&item, CLV_PASS(cuMemFreeHost, ptr));
}
