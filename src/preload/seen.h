/* SPDX-License-Identifier: MIT
 *
 * seen: what the program asks of the driver, and gets from it, goes into the record. Owns whether that is so, the table of what
 * the program has from the driver, and the calls that say so in the hooks.
 *
 * With `observe` (or where Cleave cannot serve) a request for memory of a device is a request like any other in the record
 * (ALLOC, FREE, FAIL). Beside a heap it is the driver's (DRIVER_ALLOC, ...), as are page-locked memory, frames of the program's
 * own, arrays, and memory of graphs, always.
 *
 * A free is told before the driver gets it, since it may give the memory to another thread at once; refused, the memory is told
 * of as there again. Memory whose allocation was not seen is not told of.
 */
#ifndef CLV_SEEN_H
#define CLV_SEEN_H

#include "preload.h"

#include "../base/event.h"

enum clv_seen_mode {
	CLV_SEEN_UNDECIDED, /* CUDA is not up, or the process has asked for no memory */
	CLV_SEEN_NOT,
	CLV_SEEN_BESIDE, /* a heap is recorded */
	CLV_SEEN_ALONE,
};
extern _Atomic int clv_seen_how;

/* True if something is to be told. Decides if nobody has; one load from then on. */
bool clv_seen_decide(void);
static inline bool clv_seen(void)
{
	int how = atomic_load_explicit(&clv_seen_how, memory_order_relaxed);
	return how != CLV_SEEN_NOT && (how != CLV_SEEN_UNDECIDED || clv_seen_decide());
}

enum clv_seen_kind {
	CLV_SEEN_MEMORY, /* of a device, by its address */
	CLV_SEEN_POOL,   /* the same; it does not go with a context */
	CLV_SEEN_HOST,   /* by its address */
	CLV_SEEN_FRAME,  /* by its handle */
	CLV_SEEN_ARRAY,  /* by its handle */
	CLV_SEEN_KINDS,
};

/* Of a call. */
struct clv_seen_call {
	const char *name; /* stays */
	enum clv_seen_kind kind;
	uint64_t key;  /* address or handle */
	uint64_t size; /* 0: not known */
	CUstream stream;
	bool ptsz, on_stream; /* `stream` is said, of the functions of the per-thread default stream if `ptsz` */
	int device;           /* of a FRAME */
};

/* The driver has answered a request. Give what is known of it: CLV_SEEN_GOT(result, .name = ..., ...). */
void clv_seen_got(CUresult result, const struct clv_seen_call *call);
#define CLV_SEEN_GOT(result, ...)                                                                                      \
	do {                                                                                                           \
		if (CLV_UNLIKELY(clv_seen()))                                                                          \
			clv_seen_got(result, &(struct clv_seen_call){__VA_ARGS__});                                    \
	} while (0)

/* What a free is about. */
struct clv_seen_item {
	const char *name; /* NULL: nothing that is told of */
	enum clv_seen_kind kind;
	bool is_request; /* ALLOC and FREE */
	int device;
	uint64_t key, size, stream;
	CUcontext context; /* with which it goes; NULL: with none */
};

/* Before and after the driver is asked to free: `made` tells whether it did. */
struct clv_seen_item clv_seen_frees_now(const struct clv_seen_call *call);
void clv_seen_kept(const struct clv_seen_item *item);
#define CLV_SEEN_FREES(...)                                                                                            \
	(CLV_UNLIKELY(clv_seen()) ? clv_seen_frees_now(&(struct clv_seen_call){__VA_ARGS__})                           \
				  : (struct clv_seen_item){NULL})
static inline CUresult clv_seen_freed(const struct clv_seen_item *item, CUresult result)
{
	if (CLV_UNLIKELY(item->name && result != CUDA_SUCCESS))
		clv_seen_kept(item);
	return result;
}

/* Frames are mapped, addresses reserved, or no more. */
void clv_seen_note(enum clv_event event, const char *name, uint64_t addr, uint64_t size, uint64_t handle);
#define CLV_SEEN_NOTE(result, ...)                                                                                     \
	do {                                                                                                           \
		if (CLV_UNLIKELY(clv_seen()) && (result) == CUDA_SUCCESS)                                              \
			clv_seen_note(__VA_ARGS__);                                                                    \
	} while (0)

/* The context is about to go, or has gone, with what was allocated in it; `name` of the call. */
void clv_seen_context_goes(CUcontext context, const char *name);

/* The primary context of a device, as the program has been told; NULL: it has not. */
void clv_seen_primary(CUdevice device, CUcontext context);
CUcontext clv_seen_primary_of(CUdevice device);
bool clv_seen_is_primary(CUcontext context);

/* A capture has begun (+1) or ended (-1). */
void clv_seen_captures(int change);

/* ---- state.c ---- */

/* Starts to record, if the settings say so; `heap`: one is about to be used. */
void clv_seen_open(const struct clv_settings *settings, bool heap);
void clv_seen_in_child(void);

#endif
