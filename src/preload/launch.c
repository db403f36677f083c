/* SPDX-License-Identifier: MIT
 *
 * launch: graphs that have memory of graph streams must not overlap on a device, since they share frames. Which graphs and
 * executables have such memory is followed by handle from captures through copies, child nodes and updates; a launch of one
 * on another stream than the last waits for the last on the device. The common case, one stream, costs no call of the driver,
 * or, on a default stream, one that asks for the current context.
 *
 * Not followed: a graph that is taken out of a child node (cuGraphChildGraphNodeGetGraph) and used on its own, one that
 * replaces that of a child node in an executable (cuGraphExecChildGraphNodeSetParams), and launches made by device code.
 * Such graphs must not overlap with others by themselves.
 *
 * `handles_lock` guards the table of handles, the lock of a device what is known of the last launch there; it is held
 * during a launch, so that the order of launches is that of what is remembered.
 */
#include "graphs.h"
#include "quick.h"

#include "../host/meta.h"

#include <pthread.h>

#define HANDLES_MIN 256u

/* When streams take turns, so many launches are followed by an event at once: the next stream then waits for the launch
 * alone, and not for what came after it. */
#define EAGER_LAUNCHES 64u

/* ---- handles ---- */

/* A graph or an executable; what is not here has no memory of ours. */
struct handle {
	const void *key;
	uint64_t devices; /* whose memory it has */
	CUgraph parent;   /* of the body of a conditional node: the graph that the node is in */
};

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;
static size_t handle_room, handle_count; /* a power of two, at most half full */
static _Atomic bool any_handles;

static struct clv_quick quick; /* written under the lock */

/* Where a handle is or belongs. */
static struct handle *place_of(const void *key)
{
	size_t i = clv_mix64((uint64_t)(uintptr_t)key) & (handle_room - 1);
	while (handles[i].key && handles[i].key != key)
		i = (i + 1) & (handle_room - 1);
	return &handles[i];
}

static struct handle *find_handle(const void *key)
{
	struct handle *h = handles && key ? place_of(key) : NULL;
	return h && h->key ? h : NULL;
}

static bool room_for_handle(void)
{
	if (handle_count * 2 < handle_room)
		return true;
	size_t before = handle_room, room = before ? before * 2 : HANDLES_MIN;
	struct handle *old = handles, *grown = clv_meta_zalloc(room * sizeof(*grown));
	if (!grown)
		return handle_count + 1 < handle_room;
	handles = grown;
	handle_room = room;
	for (size_t i = 0; i < before; i++)
		if (old[i].key)
			*place_of(old[i].key) = old[i];
	clv_meta_free(old);
	return true;
}

static struct handle *make_handle(const void *key)
{
	struct handle *h = find_handle(key);
	if (h || !key || !room_for_handle())
		return h;
	h = place_of(key);
	*h = (struct handle){.key = key};
	handle_count++;
	atomic_store_explicit(&any_handles, true, memory_order_relaxed);
	return h;
}

static void drop_handle(const void *key)
{
	struct handle *h = find_handle(key);
	if (!h)
		return;
	clv_quick_forget(&quick, key);
	*h = (struct handle){NULL, 0, NULL};
	handle_count--;
	/* those behind it may have been pushed there by it */
	for (size_t i = (size_t)(h - handles + 1) & (handle_room - 1); handles[i].key;
	     i = (i + 1) & (handle_room - 1)) {
		struct handle moved = handles[i];
		handles[i] = (struct handle){NULL, 0, NULL};
		*place_of(moved.key) = moved;
	}
}

static bool mark(const void *key, uint64_t devices)
{
	for (const void *next; key; key = next) {
		struct handle *h = make_handle(key);
		if (!h)
			return false;
		clv_quick_forget(&quick, key);
		h->devices |= devices;
		next = h->parent;
	}
	return true;
}

bool clv_handle_mark(CUgraph graph, uint64_t devices)
{
	pthread_mutex_lock(&handles_lock);
	bool done = mark(graph, devices);
	pthread_mutex_unlock(&handles_lock);
	return done;
}

void clv_handle_begins(CUgraph graph)
{
	if (!atomic_load_explicit(&any_handles, memory_order_relaxed))
		return;
	pthread_mutex_lock(&handles_lock);
	drop_handle(graph);
	pthread_mutex_unlock(&handles_lock);
}

CUgraph clv_handle_root(CUgraph graph)
{
	pthread_mutex_lock(&handles_lock);
	for (struct handle *h = find_handle(graph); h && h->parent; h = find_handle(graph))
		graph = h->parent;
	pthread_mutex_unlock(&handles_lock);
	return graph;
}

static __attribute__((noinline)) uint64_t look_up(const void *handle)
{
	pthread_mutex_lock(&handles_lock);
	struct handle *h = find_handle(handle);
	uint64_t devices = h ? h->devices : 0;
	clv_quick_remember(&quick, handle, devices);
	pthread_mutex_unlock(&handles_lock);
	return devices;
}

static inline uint64_t devices_of(const void *handle)
{
	uint64_t devices = 0;
	if (!atomic_load_explicit(&any_handles, memory_order_relaxed) ||
	    CLV_LIKELY(clv_quick_find(&quick, handle, &devices)))
		return devices;
	return look_up(handle);
}

/* `to` has, from now on, what `from` has, and no more unless it is to keep what it had. If host memory is out it has not,
 * and its launches may overlap: there is nobody to tell. */
static void inherit(const void *to, const void *from, bool keep)
{
	if (!atomic_load_explicit(&any_handles, memory_order_relaxed))
		return;
	pthread_mutex_lock(&handles_lock);
	struct handle *h = find_handle(from);
	uint64_t devices = h ? h->devices : 0;
	if (!keep)
		drop_handle(to);
	if (devices && !mark(to, devices))
		CLV_SAY_ONCE("no host memory to follow graphs by: launches on several streams may disturb each other");
	pthread_mutex_unlock(&handles_lock);
}

/* ---- graphs and executables come and go ---- */

/* A call that may need memory of the device is made again after each trim that gave something back. */
#define RETRY(r, call)                                                                                                 \
	CUresult r = (call);                                                                                           \
	for (int step_ = 0; CLV_UNLIKELY(r == CUDA_ERROR_OUT_OF_MEMORY) && clv_trim_for_retry(&step_);)                \
		r = (call);

/* A graph becomes an executable, which is in *exec then. */
#define INSTANTIATE(call)                                                                                              \
	struct clv_objects out = clv_objects_out(graph);                                                               \
	RETRY(r, call)                                                                                                 \
	CUgraphExec made = r == CUDA_SUCCESS && exec ? *exec : NULL;                                                   \
	if (made)                                                                                                      \
		inherit(made, graph, false);                                                                           \
	clv_objects_back(graph, out, made);                                                                            \
	return r

EXPORTED CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad, char *log, size_t size)
{
	INSTANTIATE(CLV_PASS(cuGraphInstantiate, exec, graph, bad, log, size));
}

EXPORTED CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad, char *log, size_t size)
{
	INSTANTIATE(CLV_PASS(cuGraphInstantiate_v2, exec, graph, bad, log, size));
}

EXPORTED CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	INSTANTIATE(CLV_PASS(cuGraphInstantiateWithFlags, exec, graph, flags));
}

EXPORTED CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	INSTANTIATE(CLV_PASS(cuGraphInstantiateWithParams, exec, graph, params));
}

EXPORTED CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
						    CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	INSTANTIATE(CLV_PASS(cuGraphInstantiateWithParams_ptsz, exec, graph, params));
}

EXPORTED CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	CUresult r = CLV_PASS(cuGraphCreate, graph, flags);
	if (r == CUDA_SUCCESS && graph)
		clv_handle_begins(*graph);
	return r;
}

EXPORTED CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
	CUresult r = CLV_PASS(cuGraphClone, clone, graph);
	if (r == CUDA_SUCCESS && clone) {
		inherit(*clone, graph, false);
		clv_objects_copied(*clone, graph);
	}
	return r;
}

EXPORTED CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
					   CUgraph child)
{
	CUresult r = CLV_PASS(cuGraphAddChildGraphNode, node, graph, after, count, child);
	if (r == CUDA_SUCCESS)
		inherit(graph, child, true);
	return r;
}

/* The begin of CUgraphNodeParams: its type, and of two types what stands first. */
struct node_params {
	int type, reserved[3];
	union {
		CUgraph child;
		struct {
			uint64_t handle;
			int type;
			unsigned int size;
			CUgraph *bodies;
		} conditional;
	};
};
#define NODE_CHILD 4
#define NODE_CONDITIONAL 13

/* Bodies are captured into, or filled otherwise, after the node was made. */
static void add_bodies(CUgraph graph, CUgraph *bodies, unsigned int count)
{
	pthread_mutex_lock(&handles_lock);
	for (unsigned int i = 0; i < count; i++) {
		drop_handle(bodies[i]);
		struct handle *h = make_handle(bodies[i]);
		if (h)
			h->parent = graph;
	}
	pthread_mutex_unlock(&handles_lock);
}

static CUresult node_added(CUresult r, CUgraph graph, const CUgraphNodeParams *params)
{
	const struct node_params *n = (const void *)params;
	if (r != CUDA_SUCCESS || !n)
		return r;
	if (n->type == NODE_CHILD)
		inherit(graph, n->child, true);
	else if (n->type == NODE_CONDITIONAL && n->conditional.bodies && clv_process_if_open())
		add_bodies(graph, n->conditional.bodies, n->conditional.size);
	return r;
}

EXPORTED CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
				 CUgraphNodeParams *params)
{
	return node_added(CLV_PASS(cuGraphAddNode, node, graph, after, count, params), graph, params);
}

EXPORTED CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				    const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
	return node_added(CLV_PASS(cuGraphAddNode_v2, node, graph, after, edges, count, params), graph, params);
}

/* What the executable was goes when its launches are done. An update that fails may have changed a part. */
#define UPDATE(call)                                                                                                   \
	const struct clv_process *p = clv_process_if_open();                                                           \
	uint64_t before = devices_of(exec);                                                                            \
	struct clv_objects out = clv_objects_out(graph);                                                               \
	RETRY(r, call)                                                                                                 \
	if (r == CUDA_SUCCESS && p)                                                                                    \
		clv_objects_end(clv_objects_take(exec), before);                                                    \
	inherit(exec, graph, r != CUDA_SUCCESS);                                                                       \
	clv_objects_back(graph, out, exec);                                                                            \
	return r

EXPORTED CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *bad, CUgraphExecUpdateResult *result)
{
	UPDATE(CLV_PASS(cuGraphExecUpdate, exec, graph, bad, result));
}

EXPORTED CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	UPDATE(CLV_PASS(cuGraphExecUpdate_v2, exec, graph, info));
}

/* What is known of a handle goes before the driver's call, and comes back if the driver refuses, as it does of executables beside
 * a capture. */
static struct handle taken(const void *key)
{
	struct handle was = {NULL, 0, NULL};
	if (!atomic_load_explicit(&any_handles, memory_order_relaxed))
		return was;
	pthread_mutex_lock(&handles_lock);
	const struct handle *h = find_handle(key);
	if (h)
		was = *h;
	drop_handle(key);
	pthread_mutex_unlock(&handles_lock);
	return was;
}

static void put_back(const void *key, uint64_t devices, CUgraph parent)
{
	pthread_mutex_lock(&handles_lock);
	struct handle *h = make_handle(key);
	if (h) {
		clv_quick_forget(&quick, key);
		h->devices |= devices;
		h->parent = parent;
	}
	pthread_mutex_unlock(&handles_lock);
}

static CUresult destroyed(struct handle was, CUresult r)
{
	if (was.key && r == CUDA_SUCCESS)
		clv_graphs_ended();
	else if (was.key)
		put_back(was.key, was.devices, was.parent);
	return r;
}

struct clv_graph_ending clv_graph_ends(CUgraph graph)
{
	if (!graph)
		return (struct clv_graph_ending){0};
	struct clv_objects objects = clv_objects_take(graph);
	struct handle was = taken(graph);
	return (struct clv_graph_ending){graph, was.devices, was.parent, objects};
}

void clv_graph_ended(const struct clv_graph_ending *was, bool gone)
{
	if (gone)
		clv_objects_drop(was->objects);
	else
		clv_objects_keep(was->key, was->objects);
	if (!gone && (was->devices || was->parent))
		put_back(was->key, was->devices, was->parent);
}

EXPORTED CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	const struct clv_process *p = clv_process_if_open();
	struct clv_objects objects = clv_objects_take(exec);
	struct handle was = taken(exec);
	CUresult r = destroyed(was, CLV_PASS(cuGraphExecDestroy, exec));
	if (r == CUDA_SUCCESS && p)
		clv_objects_end(objects, was.devices);
	else
		clv_objects_keep(exec, objects);
	return r;
}

EXPORTED CUresult cuGraphDestroy(CUgraph graph)
{
	struct clv_objects objects = clv_objects_take(graph);
	struct handle was = taken(graph);
	CUresult r = destroyed(was, CLV_PASS(cuGraphDestroy, graph));
	if (r == CUDA_SUCCESS)
		clv_objects_drop(objects);
	else
		clv_objects_keep(graph, objects);
	return r;
}

/* ---- launches ---- */

/* What another launch on the same stream looks at comes first, and is one cache line. */
static struct last {
	_Alignas(64) pthread_mutex_t lock;
	/* The stream's, if a launch under this name has nothing to do but to be made: there was one before it, no event
	 * covers that or has to, and no stream captures. Else NULL. That of the default stream stands for that of the context. */
	CUstream name;
	CUcontext context;
	_Atomic uint64_t launches; /* written under the lock */
	bool any;       /* else nothing is known to run */
	bool recorded;  /* the event covers it */
	unsigned eager; /* so many launches more are followed by an event */
	struct clv_cuda_stream stream;
	clv_event event;
} lasts[CLV_GRAPH_DEVICES] = {[0 ... CLV_GRAPH_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static void count_launch(struct last *l)
{
	uint64_t n = atomic_load_explicit(&l->launches, memory_order_relaxed);
	atomic_store_explicit(&l->launches, n + 1, memory_order_relaxed);
}

uint64_t clv_graphs_launches(void)
{
	uint64_t sum = 0;
	for (int d = 0; d < CLV_GRAPH_DEVICES; d++)
		sum += atomic_load_explicit(&lasts[d].launches, memory_order_relaxed);
	return sum;
}

static void record_last(const struct clv_process *p, int device, struct last *l)
{
	struct clv_driver *d = p->driver;
	if (!l->any || l->recorded)
		return;
	l->name = NULL;
	enum clv_result r = CLV_FAILED;
	if (l->event || d->event_create(d, &l->event, device) == CLV_OK)
		r = d->event_record(d, l->event, l->stream.stream);
	if (r == CLV_OK) {
		l->recorded = true;
		return;
	}
	/* with its context all of its work is done; else wait here, for want of something better */
	if (r != CLV_GONE && d->stream_synchronize(d, l->stream.stream) != CLV_OK)
		CLV_SAY_ONCE(
			"the driver gives no event after a graph: launches on several streams may disturb each other");
	l->any = false;
}

static void wait_for_last(const struct clv_process *p, int device, struct last *l, const struct clv_cuda_stream *s)
{
	struct clv_driver *d = p->driver;
	if (CLV_LIKELY(!l->any || l->stream.stream.id == s->stream.id))
		return;
	record_last(p, device, l);
	l->eager = EAGER_LAUNCHES;
	if (l->any && d->stream_wait_event(d, s->stream, l->event) != CLV_OK)
		d->event_synchronize(d, l->event);
}

static void remember_last(const struct clv_process *p, int device, struct last *l, const struct clv_cuda_stream *s)
{
	CUstream handle = (CUstream)(uintptr_t)s->stream.handle;
	l->any = true;
	l->recorded = false;
	l->stream = *s;
	l->name = NULL;
	l->context = s->context;
	/* a thread's default stream is not to be named by others, nor is one that may join a capture */
	if (CLV_UNLIKELY(l->eager || handle == CU_STREAM_PER_THREAD || clv_cuda_captures(p->driver))) {
		l->eager -= l->eager != 0;
		record_last(p, device, l);
	} else {
		l->name = handle;
	}
}

enum clv_launches clv_launches_told(const struct clv_process *p, int device, clv_event event, bool wait)
{
	struct clv_driver *d = p->driver;
	struct last *l = &lasts[device];
	enum clv_launches told = CLV_LAUNCHES_UNKNOWN;
	if (wait)
		pthread_mutex_lock(&l->lock);
	else if (pthread_mutex_trylock(&l->lock))
		return CLV_LAUNCHES_UNKNOWN;
	enum clv_result r = l->any && event ? d->event_record(d, event, l->stream.stream) : CLV_FAILED;
	if (!l->any || r == CLV_GONE || r == CLV_INVALID) /* with its context or its stream, of whose end we have been told */
		told = CLV_LAUNCHES_NONE;
	else if (r == CLV_OK)
		told = CLV_LAUNCHES_TOLD;
	if (l->recorded && told != CLV_LAUNCHES_TOLD) /* the stream captures, or is gone */
		told = d->event_query(d, l->event) == CLV_OK ? CLV_LAUNCHES_NONE : CLV_LAUNCHES_UNKNOWN;
	pthread_mutex_unlock(&l->lock);
	return told;
}

void clv_launches_off(const struct clv_process *p, const struct clv_cuda_stream *s)
{
	if (!clv_graphs_launches())
		return;
	for (int d = 0; d < p->driver->devices && d < CLV_GRAPH_DEVICES; d++) {
		struct last *l = &lasts[d];
		pthread_mutex_lock(&l->lock);
		if (l->any && l->stream.stream.id == s->stream.id) {
			record_last(p, d, l);
			l->name = NULL; /* it may be another stream's soon */
		}
		pthread_mutex_unlock(&l->lock);
	}
}

/* Also before a first launch is known of, since it may be under way. */
void clv_launches_tell(const struct clv_process *p)
{
	for (int d = 0; d < p->driver->devices && d < CLV_GRAPH_DEVICES; d++) {
		pthread_mutex_lock(&lasts[d].lock);
		record_last(p, d, &lasts[d]);
		pthread_mutex_unlock(&lasts[d].lock);
	}
}

static CUresult pass_launch(CUgraphExec exec, CUstream stream, bool ptsz)
{
	return CLV_PASS_TWIN(ptsz, cuGraphLaunch, exec, stream);
}

/* In turn with all others on these devices. */
static CUresult launch_alone(const struct clv_process *p, uint64_t devices, const struct clv_cuda_stream *s,
			     CUgraphExec exec, CUstream stream, bool ptsz)
{
	for (int d = -1; (d = clv_next_device(devices, d + 1)) >= 0;) {
		pthread_mutex_lock(&lasts[d].lock);
		wait_for_last(p, d, &lasts[d], s);
	}
	CUresult r = pass_launch(exec, stream, ptsz);
	for (int d = -1; (d = clv_next_device(devices, d + 1)) >= 0;) {
		count_launch(&lasts[d]);
		if (r == CUDA_SUCCESS)
			remember_last(p, d, &lasts[d], s);
		pthread_mutex_unlock(&lasts[d].lock);
	}
	return r;
}

/* The common case, in which every 25 ns are 1 % of a launch: memory of one device, and the stream that was last there. What
 * lies elsewhere is asked for before the lock, for which processors wait. */
static inline bool launch_again(uint64_t devices, CUgraphExec exec, CUstream stream, bool ptsz, CUresult *r)
{
	const struct clv_cuda_api *real = clv_real();
	CUresult (*fn)(CUgraphExec exec, CUstream stream) = ptsz ? real->cuGraphLaunch_ptsz : real->cuGraphLaunch;
	CUstream name = stream ? stream : ptsz ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	CUcontext context = NULL;
	if (CLV_UNLIKELY(!clv_is_pow2(devices) || !fn) ||
	    (name == CU_STREAM_LEGACY && CLV_PASS(cuCtxGetCurrent, &context) != CUDA_SUCCESS))
		return false;
	struct last *l = &lasts[clv_log2(devices)];
	pthread_mutex_lock(&l->lock);
	bool again = l->name == name && (name != CU_STREAM_LEGACY || l->context == context);
	if (CLV_LIKELY(again)) {
		*r = fn(exec, stream);
		count_launch(l);
	}
	pthread_mutex_unlock(&l->lock);
	return again;
}

static __attribute__((noinline)) CUresult launch_other(const struct clv_process *p, uint64_t devices, CUgraphExec exec,
						       CUstream stream, bool ptsz)
{
	struct clv_cuda_stream s;
	if (clv_stream(p, stream, ptsz, &s) != CUDA_SUCCESS)
		return pass_launch(exec, stream, ptsz);
	clv_threads_settle(p);
	if (CLV_UNLIKELY(clv_cuda_captures(p->driver))) {
		struct clv_capture_info now = clv_capture_info(&s);
		if (now.status != CU_STREAM_CAPTURE_STATUS_NONE) { /* it becomes a child of what is captured */
			CUresult r = pass_launch(exec, stream, ptsz);
			if (r == CUDA_SUCCESS && now.graph) {
				clv_handle_mark(now.graph, devices);
				clv_objects_become_part(clv_handle_root(now.graph), exec);
			}
			return r;
		}
	}
	return launch_alone(p, devices, &s, exec, stream, ptsz);
}

static inline CUresult launch_once(CUgraphExec exec, CUstream stream, bool ptsz)
{
	const struct clv_process *p = clv_process_if_open();
	uint64_t devices = p ? devices_of(exec) : 0;
	CUresult answer;
	if (!devices)
		return pass_launch(exec, stream, ptsz);
	if (CLV_LIKELY(launch_again(devices, exec, stream, ptsz, &answer)))
		return answer;
	return launch_other(p, devices, exec, stream, ptsz);
}

/* A trim asks after launches, so it is made without their locks. */
static __attribute__((noinline)) CUresult launch_with_less(CUgraphExec exec, CUstream stream, bool ptsz)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	for (int step = 0; r == CUDA_ERROR_OUT_OF_MEMORY && clv_trim_for_retry(&step);)
		r = launch_once(exec, stream, ptsz);
	return r;
}

static inline CUresult launch(CUgraphExec exec, CUstream stream, bool ptsz)
{
	CUresult r = launch_once(exec, stream, ptsz);
	return CLV_LIKELY(r != CUDA_ERROR_OUT_OF_MEMORY) ? r : launch_with_less(exec, stream, ptsz);
}

EXPORTED CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	return launch(exec, stream, false);
}

EXPORTED CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return launch(exec, stream, true);
}
