/* SPDX-License-Identifier: MIT
 *
 * graphs: memory allocated while a stream captures. It comes from the one heap, on *graph streams*: streams that do not
 * exist (CLV_STREAM_VIRTUAL), one for each device and each branch of a capture. Work on them is that of all launches of all
 * graphs, so what is freed in a capture is at once reusable by that branch and by later captures, and by nothing else
 * before every graph is gone that was there when it was freed. Different captures share the streams, since graphs that
 * have such memory never overlap (launch.c); branches of one capture do not, since these may.
 *
 * Which streams of a capture are ordered is taken from the streams: a program that changes the dependencies of a
 * capturing stream by hand (cuStreamUpdateCaptureDependencies) so that its later work does not follow its earlier work
 * must not rely on memory that it frees in between.
 *
 *   graphs.c    captures whose graphs live, blocks that belong to them, what becomes of those
 *   captures.c  captures begin and end
 *   launch.c    which graphs and executables have such memory; their launches
 *
 * A graph keeps its blocks' memory, not what is in them: as graphs that share a pool do under PyTorch, one that runs may
 * write where another, captured later, has left its results, if that memory was free when the other was captured.
 *
 * Locks, in this order: a launch lock of a device; the heap's; `lock` of graphs.c; that of the handles in launch.c. The
 * driver calls back about graphs that are gone from wherever it likes: that takes no lock.
 */
#ifndef CLV_GRAPHS_H
#define CLV_GRAPHS_H

#include "preload.h"

/* What the driver says of a stream; `status` is NONE if it says nothing. */
struct clv_capture_info {
	CUstreamCaptureStatus status;
	cuuint64_t id; /* of the capture, never used again */
	CUgraph graph;
};
struct clv_capture_info clv_capture_info(const struct clv_cuda_stream *s);

/* ---- handles (launch.c) ---- */

/* The graph has memory of these devices (a bit each) from now on, and so have the graphs that it is a part of. False: host
 * memory is out. */
bool clv_handle_mark(CUgraph graph, uint64_t devices);

/* The graph that the handle is a part of in the end, if it is the body of a conditional node; else itself. */
CUgraph clv_handle_root(CUgraph graph);

/* The handle stands for nothing any more. */
void clv_handle_forget(const void *handle);

/* Nothing can be put on the stream from here on, since it captures or ends: what was launched there last is told by an
 * event. */
void clv_launches_off(const struct clv_process *p, const struct clv_cuda_stream *s);

/* ---- captures (captures.c) ---- */

void clv_captures_stream_ends(const struct clv_process *p, const struct clv_cuda_stream *s);

#endif
