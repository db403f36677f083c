/* SPDX-License-Identifier: MIT
 *
 * objects: the user objects by which the driver tells that a graph is gone, kept out of executables. The driver takes hold
 * of an executable's user objects anew at each launch, which costs 1 us of 5 (H200, driver 580). So a graph lends them to
 * nobody while it is instantiated; for the executable a reference is held here, from then until it is destroyed and its
 * launches are done.
 *
 * `lock` guards the table of who has which, and the list of references that are about to end. The driver is called
 * without it, since it may call back.
 */
#include "graphs.h"

#include "../host/meta.h"

#include <pthread.h>

#define BUCKETS 256u

/* A graph has an object from the driver, an executable from us. */
struct owned {
	const void *handle;
	CUuserObject object;
	struct owned *next;
};

/* A reference of an executable that is destroyed, until its launches on a device are done. */
struct ending {
	CUuserObject object;
	int device;
	clv_event event;
	bool recorded; /* the event comes after them */
	struct ending *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct owned *buckets[BUCKETS];
static struct ending *endings;
static _Atomic bool any_objects;

static struct owned **bucket_of(const void *handle)
{
	return &buckets[clv_mix64((uint64_t)(uintptr_t)handle) % BUCKETS];
}

static bool add(const void *handle, CUuserObject object)
{
	struct owned *o = clv_meta_zalloc(sizeof(*o));
	if (!o)
		return false;
	pthread_mutex_lock(&lock);
	*o = (struct owned){handle, object, *bucket_of(handle)};
	*bucket_of(handle) = o;
	pthread_mutex_unlock(&lock);
	atomic_store_explicit(&any_objects, true, memory_order_relaxed);
	return true;
}

/* All of one handle, out of the table. */
static struct owned *take(const void *handle)
{
	struct owned *taken = NULL;
	if (!atomic_load_explicit(&any_objects, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&lock);
	for (struct owned **link = bucket_of(handle), *o; (o = *link);) {
		if (o->handle != handle) {
			link = &o->next;
			continue;
		}
		*link = o->next;
		o->next = taken;
		taken = o;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

static bool possible(void)
{
	const struct clv_cuda_api *real = clv_real();
	return real->cuUserObjectRetain && real->cuUserObjectRelease && real->cuGraphReleaseUserObject;
}

void clv_objects_given(CUgraph graph, CUuserObject object)
{
	if (possible())
		add(graph, object); /* else executables have it, and are slower to launch */
}

void clv_objects_copied(CUgraph copy, CUgraph graph)
{
	struct owned *from = take(graph);
	for (struct owned *o = from, *next; o; o = next) {
		next = o->next;
		add(copy, o->object);
		add(graph, o->object);
		clv_meta_free(o);
	}
}

struct clv_objects clv_objects_take(const void *handle)
{
	return (struct clv_objects){take(handle)};
}

void clv_objects_keep(const void *handle, struct clv_objects objects)
{
	for (struct owned *o = objects.first, *next; o; o = next) {
		next = o->next;
		pthread_mutex_lock(&lock);
		o->next = *bucket_of(handle);
		*bucket_of(handle) = o;
		pthread_mutex_unlock(&lock);
	}
}

void clv_objects_drop(struct clv_objects objects)
{
	for (struct owned *o = objects.first, *next; o; o = next) {
		next = o->next;
		clv_meta_free(o);
	}
}

/* ---- while a graph becomes an executable ---- */

struct clv_objects clv_objects_out(CUgraph graph)
{
	const struct clv_cuda_api *real = clv_real();
	struct owned *out = NULL;
	for (struct owned *o = take(graph), *next; o; o = next) {
		next = o->next;
		if (real->cuUserObjectRetain(o->object, 1) != CUDA_SUCCESS) {
			clv_meta_free(o);
			continue;
		}
		if (real->cuGraphReleaseUserObject(graph, o->object, 1) != CUDA_SUCCESS) { /* it has it no more */
			real->cuUserObjectRelease(o->object, 1);
			clv_meta_free(o);
			continue;
		}
		o->next = out;
		out = o;
	}
	return (struct clv_objects){out};
}

void clv_objects_back(CUgraph graph, struct clv_objects objects, CUgraphExec exec)
{
	const struct clv_cuda_api *real = clv_real();
	for (struct owned *o = objects.first, *next; o; o = next) {
		next = o->next;
		/* Without host memory the reference is held for good, and so is the memory. */
		if (exec && real->cuUserObjectRetain(o->object, 1) == CUDA_SUCCESS && !add(exec, o->object))
			CLV_SAY_ONCE("no host memory to follow graphs by: some memory of theirs is not given back");
		if (real->cuGraphRetainUserObject(graph, o->object, 1, CU_GRAPH_USER_OBJECT_MOVE) != CUDA_SUCCESS) {
			CLV_SAY_ONCE("the driver does not tell when a graph is gone: its memory is not given back");
			clv_meta_free(o); /* as above */
			continue;
		}
		pthread_mutex_lock(&lock);
		o->next = *bucket_of(graph);
		*bucket_of(graph) = o;
		pthread_mutex_unlock(&lock);
	}
}

void clv_objects_become_part(CUgraph graph, CUgraphExec exec)
{
	struct clv_objects objects = clv_objects_take(exec);
	for (struct owned *o = objects.first; o; o = o->next)
		if (clv_real()->cuGraphRetainUserObject(graph, o->object, 1, 0) == CUDA_SUCCESS)
			add(graph, o->object);
	clv_objects_keep(exec, objects);
}

/* ---- executables end ---- */

static void end_after_launches(CUuserObject object, int device)
{
	struct ending *e = clv_meta_zalloc(sizeof(*e));
	if (!e)
		return; /* as above */
	*e = (struct ending){.object = object, .device = device};
	pthread_mutex_lock(&lock);
	e->next = endings;
	endings = e;
	pthread_mutex_unlock(&lock);
	atomic_store_explicit(&clv_graphs_news, true, memory_order_relaxed);
}

void clv_objects_end(struct clv_objects objects, uint64_t devices)
{
	const struct clv_cuda_api *real = clv_real();
	for (struct owned *o = objects.first, *next; o; o = next) {
		next = o->next;
		bool first = true; /* the one reference is for one device; each further one has its own */
		for (int d = 0; d < 64; d++)
			if ((devices >> d & 1) && (first || real->cuUserObjectRetain(o->object, 1) == CUDA_SUCCESS)) {
				end_after_launches(o->object, d);
				first = false;
			}
		if (first)
			real->cuUserObjectRelease(o->object, 1);
		clv_meta_free(o);
	}
}

/* Are the launches of before the executable's end done? */
static bool is_done(const struct clv_process *p, struct ending *e, bool wait)
{
	struct clv_driver *d = p->driver;
	if (!e->event && d->event_create(d, &e->event, e->device) != CLV_OK)
		e->event = 0;
	if (!e->recorded) {
		enum clv_launches told = clv_launches_told(p, e->device, e->event, wait);
		if (told == CLV_LAUNCHES_NONE)
			return true;
		e->recorded = told == CLV_LAUNCHES_TOLD;
	}
	return e->recorded && (wait ? d->event_synchronize(d, e->event) : d->event_query(d, e->event)) == CLV_OK;
}

bool clv_objects_settle(const struct clv_process *p, bool wait)
{
	struct ending *list, *left = NULL;
	bool any = false;
	pthread_mutex_lock(&lock);
	list = endings;
	endings = NULL;
	pthread_mutex_unlock(&lock);
	for (struct ending *e = list, *next; e; e = next) {
		next = e->next;
		if (!is_done(p, e, wait)) {
			e->next = left;
			left = e;
			continue;
		}
		if (e->event)
			p->driver->event_destroy(p->driver, e->event);
		clv_real()->cuUserObjectRelease(e->object, 1);
		clv_meta_free(e);
		any = true;
	}
	if (!left)
		return any;
	struct ending *last = left;
	while (last->next)
		last = last->next;
	pthread_mutex_lock(&lock);
	last->next = endings;
	endings = left;
	pthread_mutex_unlock(&lock);
	atomic_store_explicit(&clv_graphs_news, true, memory_order_relaxed);
	return any;
}
