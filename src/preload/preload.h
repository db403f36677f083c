/* SPDX-License-Identifier: MIT
 *
 * preload: what the hooks share: the driver's own functions, the state of this process, its heap. Modules:
 *
 *   lookup    dlsym and cuGetProcAddress, answered with hooks by address
 *   state     settings, the heap, fork, what is passed through and why
 *   pool      stream-ordered memory of the default pool
 *   plain     cuMemAlloc and cuMemFree
 *   threads   default streams that end with their threads
 *   pinned    page-locked host memory
 *   answers   what the driver would say of our memory if it knew
 *   watch     streams, contexts and peers that come and go
 *   retry     the driver's other calls that may allocate, tried again after a trim
 *   others    memory of other kinds, which the driver gives
 *   seen      what the driver is asked for and gives, for the record
 *   graphs    memory allocated while a stream captures
 *   ipc       our memory in other processes
 *   report    what is said on stderr
 *   table     what the program is told of its heap
 *
 * A hook passes its call on whenever there is no heap (state), so that without a GPU, under CLEAVE_CONF=off, in the child
 * of a fork and with a driver we do not know everything is as without this library. Nothing here aborts, prints to
 * stdout, exits, or uses the host program's malloc.
 *
 * Thread-safety: every function may be called from any thread; each module guards what it owns.
 */
#ifndef CLV_PRELOAD_H
#define CLV_PRELOAD_H

#include "hooks.h"

#include "../driver/cuda.h"
#include "../heap/heap_more.h"

#include <stdatomic.h>

/* ---- lookup ---- */

/* The functions of the libcuda.so.1 that is loaded; all NULL if none is. One load when it has been found. */
extern _Atomic(const struct clv_cuda_api *) clv_real_found;
const struct clv_cuda_api *clv_real_find(void);
static inline const struct clv_cuda_api *clv_real(void)
{
	const struct clv_cuda_api *found = atomic_load_explicit(&clv_real_found, memory_order_acquire);
	return CLV_LIKELY(found != NULL) ? found : clv_real_find();
}
/* It has all that Cleave cannot do without; if not, that has been said. */
bool clv_real_is_complete(void);

/* Calls the driver's own function; without one, as a program without a driver would be answered. */
#define CLV_PASS(name, ...) (clv_real()->name ? clv_real()->name(__VA_ARGS__) : CUDA_ERROR_NOT_INITIALIZED)
/* The same for a function with a twin. */
#define CLV_PASS_TWIN(ptsz, name, ...) ((ptsz) ? CLV_PASS(name##_ptsz, __VA_ARGS__) : CLV_PASS(name, __VA_ARGS__))

/* The hook that stands for an address of the driver; NULL: none. */
void *clv_hook_of(const void *real);

/* ---- state ---- */

struct clv_process {
	struct clv_settings settings;
	struct clv_driver *driver; /* cuda */
	struct cleave_heap *heap;
};

/* The heap of this process and what belongs to it, if it is open. NULL: pass everything through. One load. */
extern _Atomic(const struct clv_process *) clv_process_opened;
static inline const struct clv_process *clv_process_if_open(void)
{
	return atomic_load_explicit(&clv_process_opened, memory_order_acquire);
}
/* The same; opens it if this is the first call that finds CUDA initialised. */
const struct clv_process *clv_process_open(void);
static inline const struct clv_process *clv_process(void)
{
	const struct clv_process *p = clv_process_if_open();
	return CLV_LIKELY(p != NULL) ? p : clv_process_open();
}

/* False: this device is passed through (it cannot map memory, for one), which has been said once. */
bool clv_device_usable(const struct clv_process *p, int device);
void clv_device_refused(const struct clv_process *p, int device, int why); /* after -ENODEV from the heap */

/* The program has used pools or frames, not cuMemAlloc alone. */
void clv_saw_more_than_plain(void);
bool clv_plain_alone(void);

/* An allocation of the driver's own ran out of memory: gives back to the driver what is free, and at last also what becomes
 * free when the work under way is done. Call it again with *step as it left it, after each further failure. False: nothing
 * more can be done. */
bool clv_trim_for_retry(int *step);

/* A request for memory of the device has failed: gives the heap back what becomes free when work under way is done. True if
 * another try may find some. */
bool clv_reclaim(const struct clv_process *p, int device);

/* ---- report ---- */

/* One line or more on stderr, with "cleave: " before it. */
void clv_say(const char *fmt, ...) CLV_PRINTF(1, 2);
#define CLV_SAY_ONCE(...)                                                                                              \
	do {                                                                                                           \
		static _Atomic bool said_;                                                                             \
		if (!atomic_exchange(&said_, true))                                                                    \
			clv_say(__VA_ARGS__);                                                                          \
	} while (0)

/* The heap's report on its last failure on the device, unless there have been too many lately. */
void clv_report_failure(const struct clv_process *p, int device);
void clv_report_stats(const struct clv_process *p);

/* ---- plain ---- */

/* Blocks of the device whose free had to wait go back. Waits for the device if there are any, unless a stream captures. True if
 * any was given back. */
bool clv_plain_reclaim(const struct clv_process *p, int device);

/* Before a block is freed, by whatever call; nothing if it is none of these. False: it has been freed, and waits. */
bool clv_plain_forget(CUdeviceptr ptr);
/* Its blocks are freed with it; if its work was not waited for, once all is. */
void clv_plain_context_gone(const struct clv_process *p, CUcontext context, bool waited);

/* ---- threads ---- */

/* clv_cuda_stream() for the stream of a call. The default stream of a thread ends with it, so that is noted. */
void clv_threads_note(const struct clv_cuda_stream *s);
static inline CUresult clv_stream(const struct clv_process *p, CUstream handle, bool ptsz, struct clv_cuda_stream *out)
{
	CUresult r = clv_cuda_stream(p->driver, handle, ptsz, out);
	if (r == CUDA_SUCCESS && out->stream.handle == (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD)
		clv_threads_note(out);
	return r;
}

/* Drops what is known of streams of threads that have ended. One load if there are few. */
void clv_threads_settle(const struct clv_process *p);

/* ---- pinned ---- */

/* The blocks of a context end with it. `alive`: the driver still knows it. */
void clv_host_context_gone(CUcontext context, bool alive);

/* ---- graphs ---- */

enum clv_graphs_take {
	CLV_GRAPHS_NOT,     /* no capture has to do with it: the caller goes on */
	CLV_GRAPHS_SERVED,  /* *result is the answer */
	CLV_GRAPHS_DRIVERS, /* the driver is to answer */
};

/* A request on a stream, which may capture. */
enum clv_graphs_take clv_graphs_alloc(const struct clv_process *p, const struct clv_cuda_stream *s, size_t size, CUdeviceptr *out,
				      CUresult *result);

/* A free, on a stream or (NULL) at once, of a block that belongs to a graph, or on a stream that captures. False: neither;
 * the caller goes on. */
bool clv_graphs_free(const struct clv_process *p, const struct clv_cuda_stream *s, CUdeviceptr ptr, CUresult *result);

/* Gives the heap back what belonged to graphs that are gone, if the driver has told of any. Called wherever memory is asked
 * for, freed or trimmed. */
extern _Atomic bool clv_graphs_news;
void clv_graphs_settle_now(const struct clv_process *p);
static inline void clv_graphs_settle(const struct clv_process *p)
{
	if (CLV_UNLIKELY(atomic_load_explicit(&clv_graphs_news, memory_order_relaxed)))
		clv_graphs_settle_now(p);
}

/* The same, waiting for work on blocks that the program has freed; and the driver gives the device back what it keeps for
 * graphs with memory nodes. True if anything may have been given back since the caller saw that memory is short, be it by
 * another thread. */
bool clv_graphs_reclaim(const struct clv_process *p);

/* The stream is about to be destroyed, or is gone with its context. */
void clv_graphs_stream_ends(const struct clv_process *p, const struct clv_cuda_stream *s);

/* The stream is about to go with its context: if a capture began on it, that ends here. */
void clv_captures_abandon(const struct clv_process *p, const struct clv_cuda_stream *s);

/* How many launches there have been of graphs with memory of ours. */
uint64_t clv_graphs_launches(void);

void clv_graphs_open(struct clv_driver *cuda);

#endif
