/* SPDX-License-Identifier: MIT
 *
 * cuda_internal: what the files of the cuda driver share. cuda.c: the table, devices, memory. cuda_context.c: which
 * contexts are known, and calls made in one of them. cuda_streams.c: which streams are known. cuda_events.c: events, and
 * waiting. cuda_load.c: libcuda.so.1.
 *
 * `lock` guards the lists of contexts and streams; no call of libcuda is made under it. What is _Atomic has no lock, the
 * rest does not change after open.
 */
#ifndef CLV_CUDA_INTERNAL_H
#define CLV_CUDA_INTERNAL_H

#include "cuda.h"

#include "../base/clock.h"

#include <pthread.h>
#include <stdatomic.h>

/* A context stays in the list when it is gone, since events name it; the next one that comes takes its place. */
struct cuda_context {
	CUcontext handle;
	int device;
	/* Odd: alive. Every coming and going adds one: whoever remembers the number knows whether it is still the same. */
	_Atomic uint64_t generation;
	_Atomic unsigned users; /* calls being made in it; it does not go before they are done */
	struct cuda_context *next;
};

struct cuda_context_ref {
	struct cuda_context *context; /* NULL: none */
	uint64_t generation;
};

/* Ids of streams that could not be asked after theirs. */
#define CUDA_UNASKED ((uint64_t)1 << 62)

#define CUDA_SHARED_STREAM 0 /* no thread's number */

struct cuda_stream {
	struct clv_cuda_stream public;
	struct cuda_context_ref context;
	uint64_t thread; /* whose per-thread default stream it is, else CUDA_SHARED_STREAM */
	uint64_t serial; /* grows along the list from its end */
	struct cuda_stream *hash_next, *newer, *older;
};

struct cuda_device {
	CUdevice device;
	struct clv_device_info info;
	/* How frames are made: the properties that the device says it can give, until it refuses them (cuda_create). */
	bool rdma, exportable;
	_Atomic unsigned refused; /* CUDA_REFUSED_... */
	_Atomic bool settled;     /* a frame was made */
	_Atomic uint64_t readers; /* devices, one bit each, that can touch its memory; without its own */
};

#define CUDA_DEVICES 64 /* one bit each */
#define CUDA_STREAM_BUCKETS 256

struct cuda {
	struct clv_driver base;
	const struct clv_cuda_api *api;
	struct clv_cuda_api *own_api; /* what is behind `api` if it was loaded here */
	bool adopt_streams;
	uint64_t opened_ns;
	struct cuda_device *devices;
	struct clv_cuda_virtual virtual; /* set before it is used */

	_Atomic unsigned captures;
	/* Held while a capture begins, and shared from asking whether a stream captures to a call that ends a capture. */
	pthread_rwlock_t begins;
	/* Changes with each stream that is forgotten, and is never that of another driver: what threads remember of streams
	 * under another number is not looked at. */
	_Atomic uint64_t epoch;
	_Atomic uint64_t calls[CLV_CALL_COUNT], ns;

	pthread_mutex_t lock;
	_Atomic(struct cuda_context *) contexts; /* grows at the front only, and can be walked without the lock */
	struct cuda_stream *streams;             /* the newest */
	uint64_t stream_serial, unasked; /* numbers that were given */
	struct cuda_stream *buckets[CUDA_STREAM_BUCKETS];
};

static inline struct cuda *cuda_of(const struct clv_driver *driver)
{
	return CLV_CONTAINER_OF(driver, struct cuda, base);
}

static inline void clv_cuda_count(struct cuda *c, enum clv_call call, uint64_t since)
{
	atomic_fetch_add_explicit(&c->calls[call], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->ns, clv_clock_ns() - since, memory_order_relaxed);
}

/* The value of `made`, a call of libcuda, which is counted as `call` with the time that it took. */
#define CUDA_TIMED(c, call, made)                                                                                      \
	({                                                                                                             \
		uint64_t since_ = clv_clock_ns();                                                                      \
		CUresult result_ = (made);                                                                             \
		clv_cuda_count(c, call, since_);                                                                       \
		result_;                                                                                               \
	})

enum clv_result clv_cuda_result(CUresult r);

static inline bool clv_cuda_is_virtual(uint64_t id)
{
	return (id & CLV_CUDA_VIRTUAL) && id != UINT64_MAX;
}

static inline bool clv_cuda_is_default(CUstream handle)
{
	return handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

/* -1: not a device of this driver. */
int clv_cuda_device_index(const struct cuda *c, CUdevice device);

/* ---- cuda_context.c ---- */

/* What is to be undone after calls made in a context: zero it, enter, call, leave. */
struct cuda_scope {
	struct cuda_context *used;
	bool pushed, exchanged, retained;
	CUdevice primary;           /* if retained */
	CUstreamCaptureMode before; /* if exchanged */
};

/* Makes calls possible that a capture forbids in this thread; nothing while no stream captures. */
void clv_cuda_relax(struct cuda *c, struct cuda_scope *s);
/* The same, also of a capture that begins only now. */
void clv_cuda_relax_always(struct cuda *c, struct cuda_scope *s);

/* In a context that is known. False: it is gone. */
bool clv_cuda_enter(struct cuda *c, struct cuda_context_ref context, struct cuda_scope *s);
/* In some context of the device. */
enum clv_result clv_cuda_enter_device(struct cuda *c, int device, struct cuda_scope *s);
/* In any context at all. */
enum clv_result clv_cuda_enter_any(struct cuda *c, struct cuda_scope *s);
void clv_cuda_leave(struct cuda *c, struct cuda_scope *s);

bool clv_cuda_alive(struct cuda_context_ref context);

/* With the lock held. The context of this handle, NULL if it is not known; with `device` >= 0 it is made known then, and
 * NULL means that host memory is out. */
struct cuda_context *clv_cuda_context_get(struct cuda *c, CUcontext handle, int device);

/* ---- cuda_streams.c ---- */

/* A copy of what is registered; if the driver was opened so, the stream is registered now. CLV_INVALID: the stream is gone.
 * CLV_FAILED: nothing can be found out about it here. */
enum clv_result clv_cuda_stream_find(struct cuda *c, cleave_stream stream, struct cuda_stream *out);

/* The calling thread's number. */
uint64_t clv_cuda_thread(void);

void clv_cuda_streams_drop(struct cuda *c); /* all of them; with the lock held */
void clv_cuda_new_epoch(struct cuda *c);

/* ---- cuda_events.c: functions of the table ---- */

enum clv_result clv_cuda_event_create(struct clv_driver *self, clv_event *event, int device);
enum clv_result clv_cuda_event_destroy(struct clv_driver *self, clv_event event);
enum clv_result clv_cuda_event_record(struct clv_driver *self, clv_event event, cleave_stream stream);
enum clv_result clv_cuda_event_query(struct clv_driver *self, clv_event event);
enum clv_result clv_cuda_event_synchronize(struct clv_driver *self, clv_event event);
enum clv_result clv_cuda_stream_wait_event(struct clv_driver *self, cleave_stream stream, clv_event event);
enum clv_result clv_cuda_stream_synchronize(struct clv_driver *self, cleave_stream stream);

/* ---- cuda_load.c ---- */

/* Opens libcuda.so.1 and initialises it. It is never closed, since it has threads and handlers of its own. */
bool clv_cuda_library_load(struct clv_cuda_api *api, struct clv_error *err);

#endif
