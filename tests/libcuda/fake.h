/* SPDX-License-Identifier: MIT
 *
 * fake: what the files of the test double of libcuda.so.1 share. Memory is that of a simulated driver with real bytes;
 * streams are queues, each with a thread of its own that does the work. fc.lock guards everything here and is held by
 * every exported function while it runs (waits give it up); a program's callbacks are called without it. fc.memory is
 * taken after it: shared by work that touches bytes, exclusive by calls that take bytes away.
 *
 * Invariants: contexts are never freed, so pointers to them stay good; a queue lives as long as its handle, events,
 * entries or its thread refer to it; positions only grow; what an entry waits for was submitted before it.
 */
#ifndef FAKE_H
#define FAKE_H

#include "../../src/base/base.h"
#include "../../src/driver/sim.h"

#include <pthread.h>
#include <stdarg.h>

#pragma GCC visibility push(default)
#include "../../src/driver/cuda_calls.h"
#include "fakecuda.h"

/* Functions that programs call and Cleave knows nothing of. The twin of a function that waits ends in _ptds. */
#define FC_MORE_CALLS(X, Y)                                                                                            \
	X(cuCtxCreate_v3, (CUcontext * pctx, void *params, int count, unsigned int flags, CUdevice dev))               \
	X(cuCtxCreate_v4, (CUcontext * pctx, void *params, unsigned int flags, CUdevice dev))                          \
	X(cuCtxGetDevice_v2, (CUdevice * device, CUcontext ctx))                                                       \
	X(cuCtxSynchronize_v2, (CUcontext ctx))                                                                        \
	X(cuMemsetD8_v2_ptds, (CUdeviceptr dstDevice, unsigned char uc, size_t N))                                     \
	X(cuMemcpyDtoH_v2_ptds, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount))                              \
	X(cuMemcpyHtoD_v2_ptds, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount))                        \
	X(cuMemcpyDtoD_v2_ptds, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount))                      \
	Y(cuStreamGetCaptureInfo,                                                                                      \
	  (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out))                            \
	Y(cuStreamGetCtx_v2, (CUstream hStream, CUcontext *pctx, void **green))                                        \
	X(cuMemcpyDtoD_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount))                           \
	X(cuModuleUnload, (CUmodule hmod))                                                                             \
	X(cuLibraryUnload, (CUlibrary library))                                                                        \
	Y(cuStreamGetFlags, (CUstream hStream, unsigned int *flags))                                                   \
	Y(cuStreamGetPriority, (CUstream hStream, int *priority))
#define FC_DECLARE(name, params) CUresult name params;
#define FC_DECLARE_TWINS(name, params)                                                                                 \
	CUresult name params;                                                                                          \
	CUresult name##_ptsz params;
FC_MORE_CALLS(FC_DECLARE, FC_DECLARE_TWINS)
#undef FC_DECLARE
#undef FC_DECLARE_TWINS
#define FC_ALL_CALLS(X, Y) CLV_CUDA_CALLS(X, Y) FC_MORE_CALLS(X, Y)
#pragma GCC visibility pop

#define FC_MAX_DEVICES 8
#define FC_STACK 64

/* Results that only the double gives. */
#define FC_ILLEGAL_ADDRESS ((CUresult)700)
#define FC_HOST_MEMORY_ALREADY_REGISTERED ((CUresult)712)
#define FC_HOST_MEMORY_NOT_REGISTERED ((CUresult)713)
#define FC_ILLEGAL_STATE ((CUresult)401)
#define FC_GRAPH_EXEC_UPDATE_FAILURE ((CUresult)910)

/* ---- calls ---- */

enum fc_call {
#define FC_X(name, params) FC_##name,
#define FC_Y(name, params) FC_##name, FC_##name##_ptsz,
	FC_ALL_CALLS(FC_X, FC_Y)
#undef FC_X
#undef FC_Y
		FC_CALLS
};

struct fc_function {
	const char *name;
	void *address;
};
extern const struct fc_function fc_functions[FC_CALLS]; /* proc.c */

/* What a call needs before it does anything. */
enum fc_needs {
	FC_NOTHING,
	FC_INIT,    /* else 3 */
	FC_CONTEXT, /* a current context that lives, else 201, 709; or the context's lasting error */
	FC_STREAM,  /* the same if one is current; without one, a stream or memory says which context is meant */
};

/* Take the lock, count, log. Each exported function is defined through one of the macros below: the body follows it. */
CUresult fc_begin(enum fc_call call, enum fc_needs needs);
CUresult fc_end(enum fc_call call, CUresult result);
void fc_note(const char *format, ...) CLV_PRINTF(1, 2);                  /* detail for the log line of this call */
void fc_log(const char *what, const char *format, ...) CLV_PRINTF(2, 3); /* a line of its own */

#define FC_BARE(...) __VA_ARGS__
#define FC_CALL(name, needs, params, args)                                                                             \
	static CUresult do_##name params;                                                                              \
	CUresult name params                                                                                           \
	{                                                                                                              \
		CUresult r_ = fc_begin(FC_##name, needs);                                                              \
		return fc_end(FC_##name, r_ ? r_ : do_##name args);                                                    \
	}                                                                                                              \
	static CUresult do_##name params

/* With a twin; the body has `bool per_thread`: a NULL stream is the thread's default stream. */
#define FC_STREAM_CALL(name, needs, params, args)                                                                      \
	static CUresult do_##name(bool per_thread, FC_BARE params);                                                    \
	CUresult name params                                                                                           \
	{                                                                                                              \
		CUresult r_ = fc_begin(FC_##name, needs);                                                              \
		return fc_end(FC_##name, r_ ? r_ : do_##name(false, FC_BARE args));                                    \
	}                                                                                                              \
	CUresult name##_ptsz params                                                                                    \
	{                                                                                                              \
		CUresult r_ = fc_begin(FC_##name##_ptsz, needs);                                                       \
		return fc_end(FC_##name##_ptsz, r_ ? r_ : do_##name(true, FC_BARE args));                              \
	}                                                                                                              \
	static CUresult do_##name(bool per_thread, FC_BARE params)

CUresult fc_result(enum clv_result r);
void *fc_alloc(size_t size); /* zeroed; ends the program when host memory is out */

/* ---- handles: what programs see; a freed one is given out again next ---- */

enum fc_kind {
	FC_HANDLE_CONTEXT,
	FC_HANDLE_STREAM,
	FC_HANDLE_EVENT,
	FC_HANDLE_POOL,
	FC_HANDLE_GRAPH,
	FC_HANDLE_EXEC,
	FC_HANDLE_OBJECT,
	FC_HANDLE_CODE,
	FC_HANDLE_KINDS
};

void *fc_handle_new(enum fc_kind kind, void *object);
void fc_handle_set(enum fc_kind kind, void *handle, void *object); /* NULL: dead, and not given out again */
void *fc_handle_get(enum fc_kind kind, const void *handle); /* NULL: no live handle of that kind */
void fc_handle_free(enum fc_kind kind, void *handle);
uint32_t fc_handles_live(enum fc_kind kind);
uint32_t fc_handles_most(enum fc_kind kind);        /* nth counts from 0 to here */
void *fc_handle_nth(enum fc_kind kind, uint32_t n); /* NULL: none now */

/* ---- contexts and threads ---- */

struct fc_queue;
struct fc_pool;

struct fc_context {
	struct fc_context *next; /* of all that ever were */
	CUcontext handle;
	int device;
	bool primary, destroyed;
	unsigned retained; /* primary */
	unsigned flags;
	uint64_t peers; /* devices whose plain memory it can touch */
	CUresult fault; /* lasting error */
	struct fc_queue *legacy;
	struct fc_queue *marks; /* waits for the others, for cuCtxRecordEvent; NULL until it is called */
	struct fc_queue *queues; /* all of the context's, draining ones too */
};

struct fc_device {
	struct fc_context *primary;
	void *primary_handle; /* the same for every primary context of the device; NULL: there was none */
	struct fc_pool *default_pool, *pool; /* the current one */
	struct fc_pool *graph_pool;          /* memory of graphs, by node */
};

struct fc_thread {
	uint64_t id; /* 0: not seen yet */
	struct fc_context *stack[FC_STACK];
	unsigned depth;
	CUstreamCaptureMode mode;
	bool callback; /* runs a callback of the program, which must not call the driver */
	char note[128];
};
extern __thread struct fc_thread fc_self;

extern struct fake {
	pthread_mutex_t lock;
	pthread_rwlock_t memory;
	pthread_cond_t done; /* a position has advanced */
	bool initialized, forked;
	int devices, version;
	uint64_t capacity;
	bool vmm;
	unsigned delay_us;
	uint64_t queue_limit; /* 0: none */
	struct clv_driver *sim;
	struct fc_context *contexts;
	struct fc_device device[FC_MAX_DEVICES];
	uint64_t last_id; /* of streams, buffers, captures */
	long faults;
} fc;

struct fc_context *fc_current(void); /* NULL: none */
CUresult fc_init(void);              /* context.c, by cuInit */

/* ---- work ---- */

struct fc_block;

enum fc_op_kind { FC_OP_EMPTY, FC_OP_SET, FC_OP_COPY, FC_OP_HOST, FC_OP_KERNEL, FC_OP_ALLOC, FC_OP_FREE, FC_OP_BODY };

struct fc_op {
	enum fc_op_kind kind;
	uint64_t to, from; /* addresses of the device, or of the host */
	bool to_host, from_host;
	uint64_t bytes;
	uint32_t value;
	unsigned width; /* of value, bytes */
	void *staged;   /* what `from` held when it was submitted; freed after the work */
	CUhostFn fn;
	void *arg;
	uint64_t params[4];
	struct fc_block *block; /* alloc, free */
	struct fc_body *body;   /* a graph inside a graph, or one that is launched: one reference */
};

CUresult fc_op_check(const struct fc_context *context, const struct fc_op *op); /* before it is submitted */
void fc_op_run(struct fc_context *context, const struct fc_op *op);             /* without the lock */
void fc_op_drop(struct fc_op *op);                                              /* with the lock */

struct fc_entry {
	struct fc_entry *next;
	struct fc_queue *wait; /* an entry that waits for another queue, else work */
	uint64_t wait_position;
	struct fc_op op;
};

struct fc_nodes { /* a set of nodes, in no order */
	struct fc_node **node;
	size_t count;
};

struct fc_queue {
	struct fc_queue *next, *prev; /* of the context */
	struct fc_context *context;
	CUstream handle;     /* 1 and 2 for default streams */
	uint64_t id, thread; /* thread: of a per-thread default stream, else 0 */
	unsigned refs, flags;
	int priority;
	bool non_blocking, worker, closing, blocked;
	uint64_t submitted, completed;
	struct fc_entry *head, *tail;
	pthread_cond_t wake;
	struct fc_capture *capture;
	struct fc_nodes after; /* capturing: what the next node depends on */
};

struct fc_queue *fc_queue_new(struct fc_context *context, bool non_blocking);
void fc_thread_start(void *(*run)(void *), void *arg); /* one that no one joins, and that no signal reaches */
void fc_queue_close(struct fc_queue *q);               /* drains; the handle's reference goes */
void fc_queue_ref(struct fc_queue *q);
void fc_queue_unref(struct fc_queue *q);
CUresult fc_queue_of(CUstream handle, bool per_thread, struct fc_queue **out);

/* Submit to the queue, or add to the graph if it is captured. `op` is taken over, also on failure. */
CUresult fc_submit(struct fc_queue *q, struct fc_op *op);
/* The same past any capture. */
void fc_push(struct fc_queue *q, const struct fc_op *op);
void fc_order(struct fc_queue *q); /* what the legacy default stream orders: before anything is read off a position */
void fc_push_wait(struct fc_queue *q, struct fc_queue *on, uint64_t position);
bool fc_passed(const struct fc_queue *q, uint64_t position); /* NULL: true */
void fc_wait(struct fc_queue *q, uint64_t position);
void fc_wait_context(struct fc_context *context);
void fc_wait_device(int device);

/* ---- memory ---- */

enum fc_block_kind { FC_PLAIN, FC_POOL, FC_GRAPH, FC_HOST, FC_REGISTERED, FC_MANAGED, FC_IPC };

/* An allocation that is no mapping of frames: those are the simulated driver's own. */
struct fc_block {
	uint64_t addr, size;
	enum fc_block_kind kind;
	int device;
	struct fc_context *context; /* plain, host */
	uint64_t id;
	unsigned flags;
	int sync_memops;
	unsigned refs; /* of ipc: opens; of graph: nodes, and one while it is allocated */
	bool live;     /* graph: a launch has allocated it, and it has not been freed since */
	bool inside;   /* graph: its own graph frees it, and nobody else can */
	bool dead;     /* graph: freed, in one way or the other */
	bool used;     /* graph: there is an executable of its graph */
	struct fc_pool *pool;
	struct fc_chunk *chunk;
	struct fc_piece *piece;
	uint64_t mapped, mapped_size; /* ipc */
	clv_handle handle;
	char key[CU_IPC_HANDLE_SIZE];
};

struct fc_block *fc_block_at(uint64_t addr);   /* that contains it, or NULL */
void fc_block_add(struct fc_block *b);         /* addr and size are set */
void fc_block_remove(struct fc_block *b);      /* and frees */
struct fc_block *fc_block_each(size_t *i);     /* NULL after the last; i begins at 0 */
bool fc_is_host(uint64_t addr, uint64_t size); /* inside pinned or registered or managed memory */

/* The bytes behind [addr, addr + size) if work in the context may touch them, else NULL. */
uint8_t *fc_bytes(const struct fc_context *context, uint64_t addr, uint64_t size);
void fc_memory_lock(void); /* around what takes bytes away */
void fc_memory_unlock(void);

void fc_plain_free(struct fc_block *b);             /* plain.c */
CUresult fc_free_waiting(CUdeviceptr ptr);          /* plain.c: after all work of the device */
bool fc_frame_rdma(clv_handle handle);              /* vmm.c: made for direct access by other devices */
void fc_ipc_close(struct fc_block *b);              /* ipc.c; frees the block */
void fc_context_memory(struct fc_context *context); /* frees what dies with it */

/* ---- pools ---- */

struct fc_pool *fc_pool_new(int device);
CUresult fc_pool_alloc(struct fc_pool *pool, uint64_t size, struct fc_queue *q, enum fc_block_kind kind,
		       struct fc_block **out);
void fc_pool_free(struct fc_block *b, struct fc_queue *q); /* by the program; q NULL: nothing uses it any more */
void fc_pool_drop(struct fc_block *b, struct fc_queue *q); /* graph: one reference less */
void fc_pools_settle(int device); /* after a synchronize: to the release threshold; graphs keep all */
void fc_pool_trim(struct fc_pool *pool, uint64_t keep); /* releases what is free and complete, down to `keep` bytes */
bool fc_pool_has(uint64_t addr);                        /* in a chunk of any pool */
uint64_t fc_pool_chunk(const struct fc_block *b);       /* the size of the one that a block is in */
CUmemoryPool fc_pool_handle(const struct fc_pool *pool);

/* ---- captures and graphs ---- */

struct fc_node {
	struct fc_op op;
	struct fc_nodes after; /* what it depends on, each earlier in the body */
};

struct fc_graph;

struct fc_object_use {
	struct fc_object *object;
	unsigned count;
};

/* The nodes of a graph in the order of their creation, which honours their dependencies, and what they keep alive. A
 * graph has one of its own; an executable one that no one changes. */
struct fc_body {
	unsigned refs;
	struct fc_node **node;
	size_t count;
	struct fc_object_use *object;
	size_t objects;
};

struct fc_body *fc_body_new(void);
struct fc_body *fc_body_copy(const struct fc_body *from);
void fc_body_unref(struct fc_body *body);
struct fc_node *fc_body_add(struct fc_body *body, const struct fc_op *op, const struct fc_nodes *after);
void fc_body_run(struct fc_context *context, const struct fc_body *body); /* without the lock */
void fc_body_retain(struct fc_body *body, struct fc_object *object, unsigned count, bool move);
void fc_object_release(struct fc_object *object, unsigned count);

/* Memory nodes (nodes.c). */
CUresult fc_capture_free(struct fc_graph *graph, struct fc_block *b); /* whether the graph can free it */
bool fc_body_has_memory(const struct fc_body *body);
CUresult fc_memory_instantiate(struct fc_body *body, bool begins); /* false: the executable goes */
CUresult fc_memory_launch(struct fc_body *body, bool auto_free, struct fc_queue *q, bool now);

struct fc_graph {
	CUgraph handle;
	struct fc_body *body;
	bool capturing;
	struct fc_graph *owner;       /* of the body of a conditional node, which ends with it */
	struct fc_graph *bodies, *next; /* those that it owns */
};
struct fc_graph *fc_graph_new(void);
void fc_graph_free(struct fc_graph *graph);
/* Adds the nodes to *out; false, and *out empty: one is none of the graph's. */
bool fc_graph_nodes(const struct fc_graph *graph, const CUgraphNode *nodes, size_t count, struct fc_nodes *out);

void fc_nodes_set(struct fc_nodes *to, const struct fc_nodes *from);
void fc_nodes_add(struct fc_nodes *to, struct fc_node *node); /* if it is not there */
void fc_nodes_merge(struct fc_nodes *to, const struct fc_nodes *from);
void fc_nodes_clear(struct fc_nodes *nodes);

/* Each answers CUDA_SUCCESS if the call can go on. */
CUresult fc_unsafe(void);                  /* a call that a capture forbids: 900 */
CUresult fc_unsafe_on(struct fc_queue *q); /* the same, and for the queue itself, in any mode */
CUresult fc_unsafe_off(struct fc_queue *q); /* the same, unless the queue is captured */
CUresult fc_implicit(struct fc_queue *q);  /* work on the legacy stream while blocking ones are captured: 906 */
CUresult fc_capture_add(struct fc_queue *q, struct fc_op *op);        /* takes op over */
CUresult fc_capture_graph(struct fc_queue *q, struct fc_graph **out); /* the graph under capture, or 901 */
void fc_capture_break(struct fc_queue *q);                            /* the queue goes, or did what it must not */
uint64_t fc_capture_id(const struct fc_queue *q);
CUresult fc_captured_event(uint64_t id); /* 907, and breaks the capture; 1: that one is over, or was broken before */
CUresult fc_capture_join(struct fc_queue *q, uint64_t id, const struct fc_nodes *after);

/* Kernels that the double knows by name (code.c). */
CUresult fc_kernel(CUfunction f, void **params, struct fc_op *op);
void fc_kernel_run(struct fc_context *context, const struct fc_op *op);

#endif
