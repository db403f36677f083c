/* SPDX-License-Identifier: MIT
 *
 * Graphs that a program makes, edits, instantiates and launches. The nodes of a launch run one after another, in the
 * order in which they were made, on the thread of the stream; launches of one executable do not overlap.
 */
#include "fake.h"

#include <stdlib.h>

struct exec {
	CUgraphExec handle;
	struct fc_body *body;
	bool auto_free;        /* what a launch allocated the next one frees */
	struct fc_queue *last; /* where it was launched last */
	uint64_t position;
};

static struct fc_graph *graph_of(CUgraph handle)
{
	return fc_handle_get(FC_HANDLE_GRAPH, handle);
}

static struct exec *exec_of(CUgraphExec handle)
{
	return fc_handle_get(FC_HANDLE_EXEC, handle);
}

struct fc_graph *fc_graph_new(void)
{
	struct fc_graph *g = fc_alloc(sizeof(*g));
	g->body = fc_body_new();
	g->handle = fc_handle_new(FC_HANDLE_GRAPH, g);
	return g;
}

void fc_graph_free(struct fc_graph *graph)
{
	for (struct fc_graph *b = graph->bodies, *next; b; b = next) {
		next = b->next;
		fc_graph_free(b);
	}
	fc_handle_free(FC_HANDLE_GRAPH, graph->handle);
	fc_body_unref(graph->body);
	free(graph);
}

bool fc_graph_nodes(const struct fc_graph *graph, const CUgraphNode *nodes, size_t count, struct fc_nodes *out)
{
	for (size_t i = 0; i < count; i++) {
		struct fc_node *n = nodes ? (struct fc_node *)(void *)nodes[i] : NULL;
		size_t at = 0;
		while (at < graph->body->count && graph->body->node[at] != n)
			at++;
		if (at == graph->body->count) {
			fc_nodes_clear(out);
			return false;
		}
		fc_nodes_add(out, n);
	}
	return true;
}

FC_CALL(cuGraphCreate, FC_INIT, (CUgraph * phGraph, unsigned int flags), (phGraph, flags))
{
	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = fc_graph_new()->handle;
	return CUDA_SUCCESS;
}

FC_CALL(cuGraphDestroy, FC_INIT, (CUgraph hGraph), (hGraph))
{
	struct fc_graph *g = graph_of(hGraph);
	if (!g || g->capturing || g->owner)
		return CUDA_ERROR_INVALID_VALUE;
	fc_graph_free(g);
	return CUDA_SUCCESS;
}

FC_CALL(cuGraphClone, FC_INIT, (CUgraph * phGraphClone, CUgraph originalGraph), (phGraphClone, originalGraph))
{
	const struct fc_graph *from = graph_of(originalGraph);
	if (!phGraphClone || !from)
		return CUDA_ERROR_INVALID_VALUE;
	if (fc_body_has_memory(from->body))
		return CUDA_ERROR_NOT_SUPPORTED;
	struct fc_graph *g = fc_graph_new();
	fc_body_unref(g->body);
	g->body = fc_body_copy(from->body);
	*phGraphClone = g->handle;
	return CUDA_SUCCESS;
}

/* Takes op over. */
static CUresult add_node(CUgraphNode *out, struct fc_graph *g, const CUgraphNode *dependencies, size_t count,
			 struct fc_op *op)
{
	struct fc_nodes after = {0};
	if (!out || !fc_graph_nodes(g, dependencies, count, &after)) {
		fc_op_drop(op);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*out = (CUgraphNode)(void *)fc_body_add(g->body, op, &after);
	fc_nodes_clear(&after);
	return CUDA_SUCCESS;
}

FC_CALL(cuGraphAddChildGraphNode, FC_INIT,
	(CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
	 CUgraph childGraph),
	(phGraphNode, hGraph, dependencies, numDependencies, childGraph))
{
	struct fc_graph *g = graph_of(hGraph), *child = graph_of(childGraph);
	if (!g || !child || g == child)
		return CUDA_ERROR_INVALID_VALUE;
	if (fc_body_has_memory(child->body))
		return CUDA_ERROR_NOT_SUPPORTED;
	struct fc_op op = {.kind = FC_OP_BODY, .body = fc_body_copy(child->body)};
	return add_node(phGraphNode, g, dependencies, numDependencies, &op);
}

/* The layout of CUgraphNodeParams, in part. */
struct node_params {
	int type;
	int reserved[3];
	union {
		struct {
			CUhostFn fn;
			void *arg;
		} host;
		struct {
			CUdeviceptr dst;
			size_t pitch;
			unsigned value, element_size;
			size_t width, height;
		} set;
		struct {
			CUgraph graph;
		} child;
		struct {
			CUmemPoolProps props;
			const CUmemAccessDesc *access;
			size_t access_count, bytes;
			CUdeviceptr dptr;
		} alloc;
		struct {
			CUdeviceptr dptr;
		} free;
		struct {
			uint64_t handle;
			int type;
			unsigned size;
			CUgraph *bodies;
		} conditional;
	} u;
};
enum { NODE_SET = 2, NODE_HOST = 3, NODE_GRAPH = 4, NODE_EMPTY = 5, NODE_ALLOC = 10, NODE_FREE = 11, NODE_CONDITIONAL = 13 };

/* The body of a conditional node that is always run, once. It can be changed as long as there is no executable. */
static struct fc_graph *body_of(struct fc_graph *owner)
{
	struct fc_graph *b = fc_graph_new();
	b->owner = owner;
	b->next = owner->bodies;
	owner->bodies = b;
	return b;
}

static CUresult add_any(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
			CUgraphNodeParams *params)
{
	struct fc_graph *g = graph_of(graph), *child;
	struct node_params *p = (struct node_params *)(void *)params;
	struct fc_op op = {.kind = FC_OP_EMPTY};
	struct fc_block *b = NULL;
	CUresult r;
	if (!g || !p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case NODE_EMPTY:
		break;
	case NODE_HOST:
		op = (struct fc_op){.kind = FC_OP_HOST, .fn = p->u.host.fn, .arg = p->u.host.arg};
		if (!op.fn)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case NODE_SET:
		op = (struct fc_op){
			.kind = FC_OP_SET, .to = p->u.set.dst, .value = p->u.set.value, .width = p->u.set.element_size};
		op.bytes = p->u.set.width * op.width;
		if ((op.width != 1 && op.width != 4) || p->u.set.height != 1)
			return CUDA_ERROR_NOT_SUPPORTED;
		break;
	case NODE_GRAPH:
		child = graph_of(p->u.child.graph);
		if (!child || child == g)
			return CUDA_ERROR_INVALID_VALUE;
		if (fc_body_has_memory(child->body))
			return CUDA_ERROR_NOT_SUPPORTED;
		op = (struct fc_op){.kind = FC_OP_BODY, .body = fc_body_copy(child->body)};
		break;
	case NODE_ALLOC:
		if (p->u.alloc.props.location.type != CU_MEM_LOCATION_TYPE_DEVICE || p->u.alloc.props.location.id < 0 ||
		    p->u.alloc.props.location.id >= fc.devices)
			return CUDA_ERROR_INVALID_VALUE;
		r = fc_pool_alloc(fc.device[p->u.alloc.props.location.id].graph_pool, p->u.alloc.bytes, NULL, FC_GRAPH,
				  &b);
		if (r)
			return r;
		b->refs = 1;
		op = (struct fc_op){.kind = FC_OP_ALLOC, .block = b};
		p->u.alloc.dptr = b->addr;
		break;
	case NODE_FREE:
		b = fc_block_at(p->u.free.dptr);
		if (!b || b->addr != p->u.free.dptr)
			return CUDA_ERROR_INVALID_VALUE;
		r = fc_capture_free(g, b);
		if (r)
			return r;
		op = (struct fc_op){.kind = FC_OP_FREE, .block = b};
		break;
	case NODE_CONDITIONAL:
		if (p->u.conditional.size != 1)
			return CUDA_ERROR_NOT_SUPPORTED;
		child = body_of(g);
		child->body->refs++;
		op = (struct fc_op){.kind = FC_OP_BODY, .body = child->body};
		p->u.conditional.bodies = &child->handle;
		break;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	r = add_node(out, g, dependencies, count, &op);
	if (op.kind == FC_OP_ALLOC)
		fc_pool_drop(b, NULL);
	return r;
}

FC_CALL(cuGraphAddNode, FC_INIT,
	(CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
	 CUgraphNodeParams *nodeParams),
	(phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
{
	return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

FC_CALL(cuGraphAddNode_v2, FC_INIT,
	(CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	 const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams),
	(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams))
{
	if (dependencyData)
		return CUDA_ERROR_NOT_SUPPORTED;
	return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

/* Executables. */

static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	const struct fc_graph *g = graph_of(graph);
	if (!out || !g || g->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = fc_unsafe();
	r = r ? r : fc_memory_instantiate(g->body, true);
	if (r)
		return r;
	struct exec *x = fc_alloc(sizeof(*x));
	x->auto_free = flags & 1;
	x->body = fc_body_copy(g->body);
	*out = x->handle = fc_handle_new(FC_HANDLE_EXEC, x);
	return CUDA_SUCCESS;
}

FC_CALL(cuGraphInstantiate, FC_CONTEXT,
	(CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize),
	(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
{
	return instantiate(phGraphExec, hGraph, 0);
}

FC_CALL(cuGraphInstantiate_v2, FC_CONTEXT,
	(CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize),
	(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
{
	return instantiate(phGraphExec, hGraph, 0);
}

FC_CALL(cuGraphInstantiateWithFlags, FC_CONTEXT, (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
	(phGraphExec, hGraph, flags))
{
	return flags > 15 ? CUDA_ERROR_INVALID_VALUE : instantiate(phGraphExec, hGraph, flags);
}

/* The layout of CUDA_GRAPH_INSTANTIATE_PARAMS. */
struct instantiate_params {
	cuuint64_t flags;
	CUstream upload;
	CUgraphNode error_node;
	int result;
};

FC_STREAM_CALL(cuGraphInstantiateWithParams, FC_CONTEXT,
	       (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	       (phGraphExec, hGraph, instantiateParams))
{
	struct instantiate_params *p = (struct instantiate_params *)(void *)instantiateParams;
	if (!p || p->flags > 15)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = instantiate(phGraphExec, hGraph, p->flags);
	p->error_node = NULL;
	p->result = r ? 1 : 0;
	(void)per_thread;
	return r;
}

static bool same_shape(const struct fc_body *a, const struct fc_body *b)
{
	bool same = a->count == b->count;
	for (size_t i = 0; i < a->count && same; i++) {
		const struct fc_op *x = &a->node[i]->op, *y = &b->node[i]->op;
		same = x->kind == y->kind && x->kind != FC_OP_ALLOC &&
		       a->node[i]->after.count == b->node[i]->after.count &&
		       (x->kind != FC_OP_BODY || same_shape(x->body, y->body));
	}
	return same;
}

static CUresult update(CUgraphExec exec, CUgraph graph)
{
	struct exec *x = exec_of(exec);
	const struct fc_graph *g = graph_of(graph);
	if (!x || !g || g->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	if (!same_shape(x->body, g->body))
		return FC_GRAPH_EXEC_UPDATE_FAILURE;
	fc_body_unref(x->body); /* launches under way keep the one that they have */
	x->body = fc_body_copy(g->body);
	return CUDA_SUCCESS;
}

enum { UPDATE_SUCCESS = 0, UPDATE_ERROR = 1, UPDATE_TOPOLOGY_CHANGED = 2 };

FC_CALL(cuGraphExecUpdate, FC_INIT,
	(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
	 CUgraphExecUpdateResult *updateResult_out),
	(hGraphExec, hGraph, hErrorNode_out, updateResult_out))
{
	CUresult r = update(hGraphExec, hGraph);
	if (hErrorNode_out)
		*hErrorNode_out = NULL;
	if (updateResult_out)
		*updateResult_out = !r                                  ? UPDATE_SUCCESS
				    : r == FC_GRAPH_EXEC_UPDATE_FAILURE ? UPDATE_TOPOLOGY_CHANGED
									: UPDATE_ERROR;
	return r;
}

/* The layout of CUgraphExecUpdateResultInfo. */
struct update_info {
	int result;
	CUgraphNode error_node, error_from;
};

FC_CALL(cuGraphExecUpdate_v2, FC_INIT,
	(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo),
	(hGraphExec, hGraph, resultInfo))
{
	struct update_info *info = (struct update_info *)(void *)resultInfo;
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = update(hGraphExec, hGraph);
	*info = (struct update_info){.result = !r                                  ? UPDATE_SUCCESS
					       : r == FC_GRAPH_EXEC_UPDATE_FAILURE ? UPDATE_TOPOLOGY_CHANGED
										   : UPDATE_ERROR};
	return r;
}

FC_CALL(cuGraphExecDestroy, FC_INIT, (CUgraphExec hGraphExec), (hGraphExec))
{
	CUresult r = fc_unsafe();
	if (r)
		return r;
	struct exec *x = exec_of(hGraphExec);
	if (!x)
		return CUDA_ERROR_INVALID_VALUE;
	fc_handle_free(FC_HANDLE_EXEC, hGraphExec);
	fc_memory_instantiate(x->body, false);
	fc_body_unref(x->body);
	fc_queue_unref(x->last);
	free(x);
	return CUDA_SUCCESS;
}

FC_STREAM_CALL(cuGraphUpload, FC_STREAM, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream))
{
	struct fc_queue *q;
	CUresult r = exec_of(hGraphExec) ? fc_queue_of(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	return r ? r : fc_implicit(q);
}

FC_STREAM_CALL(cuGraphLaunch, FC_STREAM, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream))
{
	struct fc_queue *q;
	struct exec *x = exec_of(hGraphExec);
	CUresult r = x ? fc_queue_of(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	r = r ? r : fc_implicit(q);
	if (r)
		return r;
	if (q->capture && fc_body_has_memory(x->body))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!q->capture)
		r = fc_memory_launch(x->body, x->auto_free, q, false);
	if (r)
		return r;
	struct fc_op op = {.kind = FC_OP_BODY, .body = x->body};
	x->body->refs++;
	if (q->capture)
		return fc_capture_add(q, &op);
	if (fc.queue_limit && q->submitted - q->completed >= fc.queue_limit)
		fc_wait(q, q->submitted - fc.queue_limit + 1);
	if (x->last)
		fc_push_wait(q, x->last, x->position);
	fc_push(q, &op);
	fc_queue_ref(q);
	fc_queue_unref(x->last);
	x->last = q;
	x->position = q->submitted;
	return fc_memory_launch(x->body, x->auto_free, q, true);
}
