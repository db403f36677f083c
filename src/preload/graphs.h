/* SPDX-License-Identifier: MIT
 *
 * graphs: memory allocated while a stream captures. It comes from the one heap, on *graph streams*: streams that do not
 * exist (CLV_STREAM_VIRTUAL), whose work is that of launches.
 *
 * Most of what a capture asks for it frees again. That comes from streams of the capture, one for each branch, since the
 * branches of a graph may overlap: it is reusable at once in the branch that freed it, and by nobody else. When the capture
 * ends well the frames that then hold nothing are folded onto frames that all graphs of the device share: their contents
 * are needed within one launch alone, and launches of graphs with such memory never overlap (launch.c). What is still
 * live, its results, shares memory with no other graph. To keep the two kinds in frames of their own, each request is
 * guessed to be of the kind that the same request was in an earlier capture that did the same so far.
 *
 * What one capture left and another frees belongs to streams of the device, one for each branch: reusable in captures,
 * for what outlives them, as in pools that graphs share under PyTorch; and by nobody else before all graphs are gone that
 * were there when it was freed. Results of graphs that do so are safe if graphs are launched in the order of their captures.
 *
 * A block that outlives its capture comes back when the program has freed it, and the graph, copies of it and their
 * executables are gone. A launch allocates it anew, after which it may be freed again.
 *
 * Which streams of a capture are ordered is taken from the streams: a program that changes the dependencies of a
 * capturing stream by hand (cuStreamUpdateCaptureDependencies) so that its later work does not follow its earlier work
 * must not rely on memory that it frees in between.
 *
 *   graphs.c    captures whose graphs live, blocks that belong to them, what becomes of those
 *   captures.c  captures begin and end
 *   objects.c   what tells that graphs are gone
 *   launch.c    which graphs and executables have such memory; their launches
 *   quick.h     the same of executables that were launched lately, without a lock
 *
 * Locks, in this order: a launch lock of a device; the heap's; `lock` of graphs.c; that of the handles in launch.c. The
 * driver calls back about graphs that are gone from wherever it likes: that takes no lock.
 */
#ifndef CLV_GRAPHS_H
#define CLV_GRAPHS_H

#include "preload.h"

#define CLV_GRAPH_DEVICES 64 /* a bit each */

/* The first device of the set from `from` on; -1: none. */
static inline int clv_next_device(uint64_t devices, int from)
{
	uint64_t rest = from < CLV_GRAPH_DEVICES ? devices >> from : 0;
	return rest ? from + __builtin_ctzll(rest) : -1;
}

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

/* The graph is new: what is known under its handle was of another. That may have ended without a call about it, as the body of
 * a conditional node does. */
void clv_handle_begins(CUgraph graph);

/* The graph that the handle is a part of in the end, if it is the body of a conditional node; else itself. */
CUgraph clv_handle_root(CUgraph graph);

/* A graph or an executable has been destroyed: the driver may tell about it soon. */
void clv_graphs_ended(void);

/* Nothing can be put on the stream from here on, since it ends: what was launched there last is told by an event. */
void clv_launches_off(const struct clv_process *p, const struct clv_cuda_stream *s);

/* A capture begins, and any stream may join it later: the same for what was launched last, wherever that was. */
void clv_launches_tell(const struct clv_process *p);

/* What is known of launches on a device up to now: none is under way; an event, recorded now, comes after them; neither,
 * ask again later, as when a call that launches is being made, which lasts while the queue of its stream is full: `wait` waits for
 * that. */
enum clv_launches { CLV_LAUNCHES_NONE, CLV_LAUNCHES_TOLD, CLV_LAUNCHES_UNKNOWN };
enum clv_launches clv_launches_told(const struct clv_process *p, int device, clv_event event, bool wait);

/* ---- user objects (objects.c) ---- */

struct clv_objects {
	struct owned *first;
};

/* The graph has been given an object that tells when it is gone; a copy of the graph has what it has. */
void clv_objects_given(CUgraph graph, CUuserObject object);
void clv_objects_copied(CUgraph copy, CUgraph graph);

/* A graph or an executable is about to be destroyed, or to become another one; and its objects after all stay with it, or go
 * with it: those of a graph at once, those of an executable, which has memory of these devices, when its launches are done. */
struct clv_objects clv_objects_take(const void *handle);
void clv_objects_keep(const void *handle, struct clv_objects objects);
void clv_objects_drop(struct clv_objects objects);
void clv_objects_end(struct clv_objects objects, uint64_t devices);

/* Takes the objects out of a graph, that is about to be instantiated, and puts them back. What has become of it, if anything
 * has (else NULL), counts as having them. */
struct clv_objects clv_objects_out(CUgraph graph);
void clv_objects_back(CUgraph graph, struct clv_objects objects, CUgraphExec exec);

/* A launch of the executable was captured: the graph has what it has. */
void clv_objects_become_part(CUgraph graph, CUgraphExec exec);

/* Ends references whose launches are done; `wait`: waits for these. True if any did. */
bool clv_objects_settle(const struct clv_process *p, bool wait);

/* What is known of a graph that a call may end goes before the call, since another thread may get the same handle as soon as it
 * is free, and comes back after it if the graph is still there. NULL: no graph. */
struct clv_graph_ending {
	const void *key;
	uint64_t devices;
	CUgraph parent;
	struct clv_objects objects;
};
struct clv_graph_ending clv_graph_ends(CUgraph graph);
void clv_graph_ended(const struct clv_graph_ending *was, bool gone);

/* ---- captures ---- */

/* The capture of this id has ended well, and nothing of it has run: its memory is folded (graphs.c). */
void clv_graphs_captured(const struct clv_process *p, uint64_t id);

void clv_captures_stream_ends(const struct clv_process *p, const struct clv_cuda_stream *s);

#endif
