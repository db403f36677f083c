/* SPDX-License-Identifier: MIT
 *
 * captures: which streams capture because the program said so. `lock` guards the list.
 */
#include "graphs.h"
#include "seen.h"

#include "../host/meta.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct under_way {
	uint64_t stream_id; /* on which it began */
	uint64_t id;        /* as the driver says */
	CUgraph graph;      /* of which nothing is left if the capture fails; NULL: one that was there before */
	struct under_way *next;
} * under_way;

static void begun(const struct clv_cuda_stream *s, bool own_graph)
{
	struct clv_capture_info now = clv_capture_info(s);
	if (own_graph)
		clv_handle_begins(now.graph);
	struct under_way *u = clv_meta_zalloc(sizeof(*u));
	if (!u)
		return; /* the capture then never seems to end, which costs time, no more */
	*u = (struct under_way){.stream_id = s->stream.id, .id = now.id, .graph = own_graph ? now.graph : NULL};
	pthread_mutex_lock(&lock);
	u->next = under_way;
	under_way = u;
	pthread_mutex_unlock(&lock);
}

/* The graph that comes of the capture which began on this stream; NULL: none does. */
static CUgraph graph_of(uint64_t stream_id)
{
	pthread_mutex_lock(&lock);
	const struct under_way *u = under_way;
	while (u && u->stream_id != stream_id)
		u = u->next;
	CUgraph graph = u ? u->graph : NULL;
	pthread_mutex_unlock(&lock);
	return graph;
}

static bool is_under_way(uint64_t stream_id)
{
	pthread_mutex_lock(&lock);
	const struct under_way *u = under_way;
	while (u && u->stream_id != stream_id)
		u = u->next;
	pthread_mutex_unlock(&lock);
	return u;
}

/* The capture on this stream is over, if there was one; `failed`: its graph is gone, and was forgotten before the driver could
 * give its handle to another. */
static void over(const struct clv_process *p, uint64_t stream_id, bool failed)
{
	pthread_mutex_lock(&lock);
	struct under_way **link = &under_way, *u;
	while (*link && (*link)->stream_id != stream_id)
		link = &(*link)->next;
	u = *link;
	if (u)
		*link = u->next;
	pthread_mutex_unlock(&lock);
	if (!u)
		return;
	if (!failed)
		clv_graphs_captured(p, u->id);
	else
		clv_graphs_ended();
	clv_meta_free(u);
	clv_cuda_captures_add(p->driver, -1);
}

void clv_captures_stream_ends(const struct clv_process *p, const struct clv_cuda_stream *s)
{
	if (CLV_LIKELY(!clv_cuda_captures(p->driver)))
		return;
	struct clv_graph_ending graph = clv_graph_ends(graph_of(s->stream.id));
	clv_graph_ended(&graph, true);
	over(p, s->stream.id, true);
}

void clv_captures_abandon(const struct clv_process *p, const struct clv_cuda_stream *s)
{
	CUgraph graph = NULL;
	if (!is_under_way(s->stream.id))
		return;
	clv_captures_stream_ends(p, s);
	/* from another thread than it began in it fails, and ends the capture all the same */
	if (CLV_PASS(cuStreamEndCapture, (CUstream)(uintptr_t)s->stream.handle, &graph) == CUDA_SUCCESS && graph)
		CLV_PASS(cuGraphDestroy, graph);
}

/* A call that begins a capture, if `p` is not NULL. */
struct beginning {
	const struct clv_process *p;
	struct clv_cuda_stream s;
	bool locked;
};

/* What was freed on the stream so far, and launched on any that may join the capture, is told by events, as long as they can be
 * recorded. From before that on others know that a stream captures. */
static struct beginning about_to_begin(CUstream stream, bool ptsz)
{
	struct beginning b = {.p = clv_process()};
	if (!b.p || clv_stream(b.p, stream, ptsz, &b.s) != CUDA_SUCCESS)
		return (struct beginning){NULL};
	clv_cuda_captures_add(b.p->driver, 1);
	if (clv_device_usable(b.p, b.s.device))
		clv_heap_stream_mark(b.p->heap, b.s.device, b.s.stream);
	clv_launches_tell(b.p);
	b.locked = clv_cuda_capture_lock(b.p->driver);
	return b;
}

static CUresult began(const struct beginning *b, bool own_graph, CUresult r)
{
	if (!b->p) {
		clv_seen_captures(r == CUDA_SUCCESS);
		return r;
	}
	clv_cuda_capture_unlock(b->p->driver, b->locked);
	if (r == CUDA_SUCCESS)
		begun(&b->s, own_graph);
	else
		clv_cuda_captures_add(b->p->driver, -1);
	return r;
}

static CUresult begin(CUstream stream, bool ptsz)
{
	struct beginning b = about_to_begin(stream, ptsz);
	return began(&b, true, CLV_PASS_TWIN(ptsz, cuStreamBeginCapture, stream));
}

static CUresult begin_v2(CUstream stream, CUstreamCaptureMode mode, bool ptsz)
{
	struct beginning b = about_to_begin(stream, ptsz);
	return began(&b, true, CLV_PASS_TWIN(ptsz, cuStreamBeginCapture_v2, stream, mode));
}

static CUresult begin_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
			       size_t count, CUstreamCaptureMode mode, bool ptsz)
{
	struct beginning b = about_to_begin(stream, ptsz);
	return began(&b, false,
		     CLV_PASS_TWIN(ptsz, cuStreamBeginCaptureToGraph, stream, graph, after, edges, count, mode));
}

static CUresult end(CUstream stream, CUgraph *graph, bool ptsz)
{
	const struct clv_process *p = clv_process_if_open();
	struct clv_cuda_stream s;
	bool known = p && clv_cuda_captures(p->driver) && clv_stream(p, stream, ptsz, &s) == CUDA_SUCCESS;
	struct clv_graph_ending was = clv_graph_ends(known ? graph_of(s.stream.id) : NULL);
	CUresult r = CLV_PASS_TWIN(ptsz, cuStreamEndCapture, stream, graph);
	/* not every call that fails ends the capture; one from the wrong thread does */
	bool ended = known && (r == CUDA_SUCCESS || clv_capture_info(&s).status == CU_STREAM_CAPTURE_STATUS_NONE);
	clv_graph_ended(&was, ended && r != CUDA_SUCCESS);
	if (ended)
		over(p, s.stream.id, r != CUDA_SUCCESS);
	if (!p)
		clv_seen_captures(-(r == CUDA_SUCCESS || r == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
	return r;
}

TWINS(cuStreamBeginCapture, (CUstream stream), begin, stream)
TWINS(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), begin_v2, stream, mode)
TWINS(cuStreamBeginCaptureToGraph,
      (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
       CUstreamCaptureMode mode),
      begin_to_graph, stream, graph, after, edges, count, mode)
TWINS(cuStreamEndCapture, (CUstream stream, CUgraph *graph), end, stream, graph)
