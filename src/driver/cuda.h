/* SPDX-License-Identifier: MIT
 *
 * cuda: the driver table over libcuda.so.1, which is opened at run time. It creates no context and no stream: what it
 * does happens in contexts of the program. Each call that a capture forbids is made under the relaxed capture mode, or
 * answered with CLV_CAPTURING and not made.
 *
 * What it knows of the program: its streams (id -> handle, context, device, and the thread of a per-thread default
 * stream), which it has been told of by clv_cuda_stream(); which devices have access to each other's memory; how many
 * captures are under way. An event belongs to the context of the stream that it is recorded on: clv_event stands for one
 * that is made, or made anew, in that context; one event is used by one thread at a time.
 *
 * Thread-safety: every function may be called from any thread. One mutex guards the registries; no call of libcuda is
 * made under it.
 */
#ifndef CLV_CUDA_H
#define CLV_CUDA_H

#include "../base/error.h"
#include "cuda_calls.h"
#include "driver.h"

/* Fills `api` by asking `resolve` for every exported name. false with the reason: a function that Cleave cannot do without
 * is missing. */
bool clv_cuda_api_load(struct clv_cuda_api *api, void *(*resolve)(void *arg, const char *name), void *arg,
		       struct clv_error *err);

/* The oldest and the newest driver (cuDriverGetVersion) that this was tested with; others are passed through. */
#define CLV_CUDA_OLDEST 12000
#define CLV_CUDA_NEWEST 13999 /* of the same major version as what was tested */

struct clv_cuda_config {
	const struct clv_cuda_api *api; /* borrowed; NULL: libcuda.so.1 is opened here, and cuInit called */
	bool not_exportable; /* frames cannot be handed to other processes; else they can where the device can */
	bool any_version;    /* also drivers that were not tested */
	/* Nobody tells of streams and captures: a stream is asked about when it is first used (else it counts as gone), and
	 * before each use whether it captures. */
	bool adopt_streams;
};

/* NULL with the reason: no libcuda, no device, a driver too old or not tested. A device without virtual memory management
 * has device_info.vmm == false, and the heap refuses it. Close with driver->close. */
struct clv_driver *clv_cuda_open(const struct clv_cuda_config *config, struct clv_error *err);

/* The functions behind a cuda driver; NULL for another driver. */
const struct clv_cuda_api *clv_cuda_api_of(const struct clv_driver *cuda);

/* ---- streams ---- */

struct clv_cuda_stream {
	cleave_stream stream; /* .id as cuStreamGetId says; .handle the CUstream, legacy and per-thread ones by their names */
	int device;
	CUcontext context;
};

/* What a CUstream of the calling thread is: NULL means the legacy default stream, or, if `per_thread`, that of the thread.
 * Registers it. The answer of the driver if it does not know the stream, or no context is current;
 * CUDA_ERROR_OUT_OF_MEMORY if host memory is out. Costs 30 ns when the thread has asked before. */
CUresult clv_cuda_stream(struct clv_driver *cuda, CUstream handle, bool per_thread, struct clv_cuda_stream *out);

/* Looks up what was registered; false: not, or forgotten. */
bool clv_cuda_stream_known(struct clv_driver *cuda, uint64_t id, struct clv_cuda_stream *out);

/* The stream is gone, or about to go: nothing is asked of it any more. Events recorded on it stay. */
void clv_cuda_stream_forget(struct clv_driver *cuda, uint64_t id);

/* Calls `visit` for every registered stream of a context (NULL: of all), without the mutex. */
void clv_cuda_streams_each(struct clv_driver *cuda, CUcontext context,
			   void (*visit)(void *arg, const struct clv_cuda_stream *stream), void *arg);

/* The context is gone with its streams and events, or about to go: what was recorded in it counts as complete, and calls on
 * its streams answer CLV_GONE without reaching the driver. Returns when no other thread makes a call in it any more. The
 * streams stay registered until each is forgotten. */
void clv_cuda_context_forget(struct clv_driver *cuda, CUcontext context);

/* Waits for all work of a context, or (NULL) of every known context of a device. CLV_CAPTURING if that cannot be done now. */
enum clv_result clv_cuda_synchronize(struct clv_driver *cuda, int device, CUcontext context);

/* The same for a context that is about to be destroyed, also beside captures: of its own streams none may capture any more.
 * CLV_CAPTURING: one does, and only its other registered streams were waited for. */
enum clv_result clv_cuda_context_finish(struct clv_driver *cuda, CUcontext context);

/* ---- streams that are not CUDA's ---- */

/* An order of work that the driver cannot be asked about, as that of graphs which share memory: its stream's id has this
 * bit. An event recorded on it is a mark, asked of `ops`; waiting for it is refused as long as it has not passed, on the
 * device as well. UINT64_MAX is CLEAVE_STREAM_ANY and not one of them. */
#define CLV_CUDA_VIRTUAL CLV_STREAM_VIRTUAL

struct clv_cuda_virtual {
	uint64_t (*mark)(void *arg, uint64_t id);              /* of now */
	bool (*passed)(void *arg, uint64_t id, uint64_t mark); /* all work from before the mark is gone */
	void *arg;
};
void clv_cuda_set_virtual(struct clv_driver *cuda, const struct clv_cuda_virtual *ops);

/* ---- captures ---- */

/* A capture has begun (+1) or ended (-1). */
void clv_cuda_captures_add(struct clv_driver *cuda, int change);
unsigned clv_cuda_captures(const struct clv_driver *cuda); /* one relaxed load */

/* Around the call that begins one: no other thread then waits for, or records on, what has just begun to capture. False: other
 * threads have been waiting for so long that they are left alone. */
bool clv_cuda_capture_lock(struct clv_driver *cuda);
void clv_cuda_capture_unlock(struct clv_driver *cuda, bool locked); /* as it was answered */

/* ---- access ---- */

/* From now on device `reader` can touch the memory of device `owner` in every mapping made or given access. True if that
 * is new: then the caller gives what is mapped access again (clv_heap_access). */
bool clv_cuda_peer(struct clv_driver *cuda, int owner, int reader);
bool clv_cuda_is_peer(const struct clv_driver *cuda, int owner, int reader);

/* ---- handles ---- */

/* A file descriptor for a frame, to be closed by the caller; -1 with the driver's answer in *why. */
int clv_cuda_export(struct clv_driver *cuda, clv_handle handle, CUresult *why);
/* Takes another process's frame in: release, map, set_access as for any other. `fd` stays the caller's. */
enum clv_result clv_cuda_import(struct clv_driver *cuda, int fd, clv_handle *out);

#endif
