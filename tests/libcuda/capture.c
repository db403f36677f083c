/* SPDX-License-Identifier: MIT
 *
 * Captures: while a stream is captured, what is submitted to it becomes nodes of a graph, after those that the stream has
 * come past. An event carries such a set of nodes to another stream, which joins the capture by waiting for it.
 */
#include "fake.h"

#include <stdlib.h>

struct fc_capture {
	struct fc_capture *next;
	uint64_t id;
	CUstreamCaptureMode mode;
	uint64_t thread;
	struct fc_queue *origin;
	struct fc_graph *graph;
	bool given;   /* the graph was there before */
	bool invalid; /* nothing goes in any more, and there will be no graph */
	size_t first; /* of the graph's nodes, those from here on are captured */
};

static struct fc_capture *captures;

static struct fc_capture *capture_by_id(uint64_t id)
{
	struct fc_capture *c = captures;
	while (c && c->id != id)
		c = c->next;
	return c;
}

uint64_t fc_capture_id(const struct fc_queue *q)
{
	return q->capture->id;
}

CUresult fc_captured_event(uint64_t id)
{
	struct fc_capture *c = capture_by_id(id);
	if (!c || c->invalid)
		return CUDA_ERROR_INVALID_VALUE;
	c->invalid = true;
	return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult fc_unsafe(void)
{
	if (fc_self.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	CUresult r = CUDA_SUCCESS;
	for (struct fc_capture *c = captures; c; c = c->next) {
		bool own = c->thread == fc_self.id && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool others = fc_self.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
		if (own || others) {
			c->invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return r;
}

CUresult fc_unsafe_on(struct fc_queue *q)
{
	CUresult r = fc_unsafe();
	if (!q->capture)
		return r;
	q->capture->invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult fc_unsafe_off(struct fc_queue *q)
{
	return q->capture ? CUDA_SUCCESS : fc_unsafe();
}

/* A blocking stream of the context that is captured. */
static struct fc_queue *blocking_captured(const struct fc_context *c)
{
	struct fc_queue *q = c->queues;
	while (q && !(q->capture && !q->non_blocking))
		q = q->next;
	return q;
}

CUresult fc_implicit(struct fc_queue *q)
{
	if (q != q->context->legacy)
		return CUDA_SUCCESS;
	CUresult r = CUDA_SUCCESS;
	for (struct fc_queue *other = q->context->queues; other; other = other->next)
		if (other->capture && !other->non_blocking) {
			other->capture->invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return r;
}

CUresult fc_capture_graph(struct fc_queue *q, struct fc_graph **out)
{
	if (q->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*out = q->capture->graph;
	return CUDA_SUCCESS;
}

CUresult fc_capture_add(struct fc_queue *q, struct fc_op *op)
{
	struct fc_graph *graph;
	CUresult r = fc_capture_graph(q, &graph);
	if (r) {
		fc_op_drop(op);
		return r;
	}
	struct fc_node *node = fc_body_add(graph->body, op, &q->after);
	fc_nodes_clear(&q->after);
	fc_nodes_add(&q->after, node);
	return CUDA_SUCCESS;
}

/* The stream goes its own ways again. */
static void leave(struct fc_queue *q)
{
	q->capture = NULL;
	fc_nodes_clear(&q->after);
}

static void capture_free(struct fc_capture *c)
{
	for (struct fc_context *context = fc.contexts; context; context = context->next)
		for (struct fc_queue *q = context->queues; q; q = q->next)
			if (q->capture == c)
				leave(q);
	struct fc_capture **at = &captures;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c);
}

static void graph_drop(struct fc_capture *c)
{
	c->graph->capturing = false;
	if (!c->given)
		fc_graph_free(c->graph);
}

void fc_capture_break(struct fc_queue *q)
{
	struct fc_capture *c = q->capture;
	c->invalid = true;
	if (!q->closing && !q->context->destroyed)
		return;
	if (c->origin != q) {
		leave(q);
		return;
	}
	/* no one can end it any more */
	graph_drop(c);
	capture_free(c);
}

CUresult fc_capture_join(struct fc_queue *q, uint64_t id, const struct fc_nodes *after)
{
	struct fc_capture *c = capture_by_id(id);
	if (!c || c->invalid)
		return CUDA_ERROR_INVALID_VALUE;
	if (q->capture && q->capture != c) {
		q->capture->invalid = c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (q == q->context->legacy) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	q->capture = c;
	fc_nodes_merge(&q->after, after);
	return CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, bool per_thread, CUstreamCaptureMode mode, struct fc_graph *graph,
		      const struct fc_nodes *after)
{
	struct fc_queue *q;
	CUresult r = fc_queue_of(stream, per_thread, &q);
	if (r)
		return r;
	if ((int)mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (q == q->context->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (q->capture)
		return FC_ILLEGAL_STATE;
	struct fc_capture *c = fc_alloc(sizeof(*c));
	c->id = ++fc.last_id;
	c->mode = mode;
	c->thread = fc_self.id;
	c->origin = q;
	c->given = graph;
	c->graph = graph ? graph : fc_graph_new();
	c->graph->capturing = true;
	c->first = c->graph->body->count;
	c->next = captures;
	captures = c;
	q->capture = c;
	fc_nodes_set(&q->after, after);
	return CUDA_SUCCESS;
}

FC_STREAM_CALL(cuStreamBeginCapture, FC_STREAM, (CUstream hStream), (hStream))
{
	return begin(hStream, per_thread, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL);
}

FC_STREAM_CALL(cuStreamBeginCapture_v2, FC_STREAM, (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode))
{
	return begin(hStream, per_thread, mode, NULL, NULL);
}

FC_STREAM_CALL(cuStreamBeginCaptureToGraph, FC_STREAM,
	       (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
		const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
	       (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))
{
	struct fc_graph *g = fc_handle_get(FC_HANDLE_GRAPH, hGraph);
	if (!g || g->capturing || dependencyData)
		return CUDA_ERROR_INVALID_VALUE;
	struct fc_nodes after = {0};
	if (!fc_graph_nodes(g, dependencies, numDependencies, &after))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = begin(hStream, per_thread, mode, g, &after);
	fc_nodes_clear(&after);
	return r;
}

/* Whether all that was captured comes before what the origin has come past. */
static bool joined(const struct fc_capture *c)
{
	const struct fc_body *body = c->graph->body;
	bool *seen = fc_alloc(body->count + 1), all = true;
	struct fc_nodes ends = {0};
	fc_nodes_set(&ends, &c->origin->after);
	/* later nodes first: what they depend on stands before them */
	for (size_t i = body->count; i-- > c->first && all;) {
		struct fc_node *n = body->node[i];
		for (size_t k = 0; k < ends.count && !seen[i]; k++)
			seen[i] = ends.node[k] == n;
		all = seen[i];
		fc_nodes_merge(&ends, &n->after);
	}
	fc_nodes_clear(&ends);
	free(seen);
	return all;
}

FC_STREAM_CALL(cuStreamEndCapture, FC_STREAM, (CUstream hStream, CUgraph *phGraph), (hStream, phGraph))
{
	struct fc_queue *q;
	CUresult r = phGraph ? fc_queue_of(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	if (r)
		return r;
	struct fc_capture *c = q->capture;
	*phGraph = NULL;
	if (!c)
		return FC_ILLEGAL_STATE;
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != fc_self.id) {
		/* which ends it nevertheless */
		graph_drop(c);
		capture_free(c);
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	}
	if (c->origin != q) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (c->invalid)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!joined(c))
		r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	if (r) {
		graph_drop(c);
	} else {
		c->graph->capturing = false;
		*phGraph = c->graph->handle;
	}
	capture_free(c);
	return r;
}

static CUstreamCaptureStatus status_of(const struct fc_queue *q)
{
	return !q->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
	       : q->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* The queries do not break a capture. */
static CUresult queue_asked(CUstream stream, bool per_thread, struct fc_queue **q)
{
	CUresult r = fc_queue_of(stream, per_thread, q);
	if (!r && *q == (*q)->context->legacy && blocking_captured((*q)->context))
		r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return r;
}

FC_STREAM_CALL(cuStreamIsCapturing, FC_STREAM, (CUstream hStream, CUstreamCaptureStatus *captureStatus),
	       (hStream, captureStatus))
{
	struct fc_queue *q;
	CUresult r = captureStatus ? queue_asked(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*captureStatus = status_of(q);
	return r;
}

static CUresult info(CUstream stream, bool per_thread, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		     const CUgraphNode **nodes, size_t *count)
{
	struct fc_queue *q;
	CUresult r = status ? queue_asked(stream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	if (r)
		return r;
	*status = status_of(q);
	if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	if (id)
		*id = q->capture->id;
	if (graph)
		*graph = q->capture->graph->handle;
	if (nodes)
		*nodes = (const CUgraphNode *)(void *)q->after.node;
	if (count)
		*count = q->after.count;
	return CUDA_SUCCESS;
}

FC_STREAM_CALL(cuStreamGetCaptureInfo, FC_STREAM,
	       (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out),
	       (hStream, captureStatus_out, id_out))
{
	return info(hStream, per_thread, captureStatus_out, id_out, NULL, NULL, NULL);
}

FC_STREAM_CALL(cuStreamGetCaptureInfo_v2, FC_STREAM,
	       (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
		const CUgraphNode **dependencies_out, size_t *numDependencies_out),
	       (hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out))
{
	return info(hStream, per_thread, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
}

FC_STREAM_CALL(cuStreamGetCaptureInfo_v3, FC_STREAM,
	       (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
		const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
		size_t *numDependencies_out),
	       (hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out))
{
	if (edgeData_out)
		*edgeData_out = NULL;
	return info(hStream, per_thread, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
}

FC_CALL(cuThreadExchangeStreamCaptureMode, FC_NOTHING, (CUstreamCaptureMode * mode), (mode))
{
	if (!mode || (int)*mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode before = fc_self.mode;
	fc_self.mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
