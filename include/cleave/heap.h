/* SPDX-License-Identifier: MIT
 *
 * Cleave's heap: stream-ordered allocation of device memory.
 *
 * Words: a *frame* is one physical allocation of the device (a multiple of 2 MiB, mapped whole or not at all). A *block* is
 * a piece of addresses, live or free; a free mapped block is a *hole*. *held* are the bytes of all frames; *live* the bytes
 * requested and not freed, each request rounded up to 512 B; *stranded* the free bytes in frames that also hold a live
 * block. A heap fails a request only when the frames that hold live bytes, and the request, exceed the device or the limit.
 *
 * Units: bytes. Addresses are device addresses (CUdeviceptr) and are not touched from the host.
 * Errors: functions return 0 or a negative errno: -EINVAL (an argument makes no sense), -ENOMEM (device memory),
 * -ENOSPC (host memory for our own books), -EIO (the driver refused otherwise), -ENODEV.
 * Thread-safety: every function may be called from any thread, except cleave_heap_close, which nothing may race.
 */
#ifndef CLEAVE_HEAP_H
#define CLEAVE_HEAP_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CLEAVE_API __attribute__((visibility("default")))
#else
#define CLEAVE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cleave_heap cleave_heap;
typedef struct clv_driver cleave_driver; /* what the heap reaches device memory through */
typedef uint64_t cleave_ptr;             /* a device address; 0 is none */

/* A stream is known by (context, id); ids are never reused, handles may be (cuStreamGetId). `handle` is what the driver is
 * called with. */
typedef struct cleave_stream {
	uint64_t id;
	uint64_t handle;
} cleave_stream;

/* Memory that belongs to no stream's order: allocated with it a block is complete when given, freed with it the caller
 * promises that no work on any stream still uses the block. */
#ifdef __cplusplus
#define CLEAVE_STREAM_ANY (cleave_stream{UINT64_MAX, 0})
#else
#define CLEAVE_STREAM_ANY ((cleave_stream){UINT64_MAX, 0})
#endif

/* Opens a driver by name: "cuda" (libcuda.so.1), "sim" or "sim:SIZE" (a simulated device of that capacity), "sim-backed" or
 * "sim-backed:SIZE" (the same with host memory behind what is allocated, as much as is written to). Returns -EINVAL for another
 * name, -ENODEV if there is no libcuda.so.1, no device, or a version that was not tested. Close with cleave_driver_close()
 * after every heap on it.
 *
 * "cuda" makes no context: the program has one on each device that it uses before it calls the heap, and keeps it until
 * the heap is closed. `handle` of a stream is its CUstream (0 or 1: the legacy default stream, 2: the thread's own), `id`
 * what cuStreamGetId says of it. A default stream is used in the thread, and while the context is current, that it is
 * of. */
CLEAVE_API int cleave_driver_open(cleave_driver **out, const char *name);
CLEAVE_API void cleave_driver_close(cleave_driver *driver);

/* Where the host finds `size` bytes at a device address, for programs that try themselves out without a GPU: the bytes of
 * a live block of a "sim-backed" driver, until the block is freed. NULL: the driver is another one, or not all of the bytes are
 * allocated. */
CLEAVE_API void *cleave_driver_host_address(cleave_driver *driver, cleave_ptr ptr, size_t size);

/* Opens a heap over `driver` (borrowed). `settings` is "key:value,..." (NULL or "" for the defaults; `cleave
 * help settings` lists the keys: those of the heap). An unknown key, one of programs under Cleave only, or a bad value is
 * refused with -EINVAL, and the sentence that says why is written to `why` (may be NULL), which has `why_len` bytes. */
CLEAVE_API int cleave_heap_open(cleave_heap **out, cleave_driver *driver, const char *settings, char *why, size_t why_len);

/* Waits for the work before frees and gives every frame back, live blocks included. */
CLEAVE_API void cleave_heap_close(cleave_heap *heap);

/* `size` bytes on a device, usable in the order of `stream`. The address is a multiple of 512. Size 0 gives address 0.
 * On -ENOMEM *out is 0 and cleave_heap_last_failure() explains. */
CLEAVE_API int cleave_alloc(cleave_heap *heap, int device, cleave_stream stream, size_t size, cleave_ptr *out);

/* Frees a block in the order of `stream`: at once reusable there, elsewhere when the work before the free is done. On another
 * stream than the block was allocated on, the free must come after the allocation in the order of streams, as all use of the
 * block must. Address 0 is allowed. -EINVAL: not the start of a live block of this heap. -EIO: host memory is out, and the
 * driver could not wait for the stream instead; the block stays live. */
CLEAVE_API int cleave_free(cleave_heap *heap, cleave_ptr ptr, cleave_stream stream);

/* The block that contains `ptr`: its start and its requested size. -EINVAL if no live block does. */
CLEAVE_API int cleave_block_info(cleave_heap *heap, cleave_ptr ptr, cleave_ptr *start, size_t *size, int *device);

/* The stream is about to be destroyed: what was freed on it is there for others once the work before is done, which an event
 * tells; where the driver gives no event the host waits. Its id must not come again. -EIO: neither can be done now; what was
 * freed on it stays in its order. */
CLEAVE_API int cleave_stream_destroyed(cleave_heap *heap, int device, cleave_stream stream);

/* The most the heap may hold on a device; 0: what the device gives. Held bytes above a new limit are given back as far as
 * they are free. */
CLEAVE_API int cleave_heap_set_limit(cleave_heap *heap, int device, uint64_t bytes);

/* Bytes of the device that the heap leaves for others when it grows. */
CLEAVE_API int cleave_heap_set_headroom(cleave_heap *heap, int device, uint64_t bytes);

/* Gives free frames back to the driver until at most `keep` bytes are held. Waits for pending work if needed. `released`
 * (may be NULL) gets the bytes given back. What hard reservations (plan.h) hold stays. */
CLEAVE_API int cleave_heap_trim(cleave_heap *heap, int device, uint64_t keep, uint64_t *released);

/* Books of one device. held = live + rounding + free, where free = hole bytes + frames kept unmapped + what is kept for
 * the next requests or held back by reservations. */
typedef struct cleave_heap_stats {
	uint64_t held_bytes, held_peak_bytes;           /* of frames */
	uint64_t live_bytes, live_peak_bytes;           /* requested, each rounded up to 512 B */
	uint64_t rounding_bytes;                        /* given beyond live_bytes (slots of slabs, of reserved classes) */
	uint64_t free_bytes;                            /* held and in no live block */
	uint64_t stranded_bytes;                        /* free, in frames that hold a live block or reserved memory */
	uint64_t pending_bytes;                         /* free, but work of a stream may still use it */
	uint64_t cached_bytes;                          /* free, kept for the next request of their size */
	uint64_t largest_hole_bytes;                    /* the largest free mapped run */
	uint64_t frames, live_blocks, free_blocks;      /* numbers */
	uint64_t allocs, frees, failures;               /* calls since open */
	uint64_t splits, merges;                        /* of blocks */
	uint64_t frames_created, frames_released, frames_moved;
	uint64_t device_waits, host_waits, event_polls; /* a stream made to wait; the host made to wait; queries */
	uint64_t limit_bytes, headroom_bytes;           /* 0: none */
	uint64_t metadata_bytes;                        /* host memory of our books */
	uint64_t metadata_in_jemalloc;                  /* 1: a private jemalloc arena holds them; 0: plain pages */
	uint64_t reservation_bytes;                     /* free, held back by reservations (plan.h) */
	uint64_t reserved[7];
} cleave_heap_stats;

/* Exact as long as no other thread allocates or frees meanwhile; but live_peak_bytes may miss 64 KiB for each further thread
 * that allocates small blocks. Walks over the holes and over the caches of threads. */
CLEAVE_API int cleave_heap_get_stats(cleave_heap *heap, int device, cleave_heap_stats *out);

/* Why the last request on a device failed, and what was there at that moment. */
typedef struct cleave_failure {
	uint64_t number; /* of this failure on the device, from 1; 0: none yet */
	uint64_t request_bytes;
	uint64_t stream_id;
	uint64_t live_bytes, held_bytes, free_bytes, largest_hole_bytes, stranded_bytes, pending_bytes;
	uint64_t limit_bytes;       /* what the heap may hold: set limit or what the device gave; 0: unknown */
	uint64_t device_free_bytes; /* as the driver says, after the failure */
	uint64_t device_total_bytes;
	uint64_t missing_bytes;     /* at least so many bytes more would have been needed */
	uint64_t graph_bytes;       /* of pending_bytes: what CUDA graphs may use that can still be launched */
	/* Of reservations (plan.h), on the device so far, as it differed from the plan: */
	uint64_t yielded_bytes;     /* held back, and given up for other requests */
	uint64_t beyond_plan;       /* requests that found nothing left of what was reserved for their size */
	uint64_t beyond_plan_bytes; /* of the largest of them */
	uint64_t reserved[4];
} cleave_failure;

/* -ENOENT: no request has failed on that device. */
CLEAVE_API int cleave_heap_last_failure(cleave_heap *heap, int device, cleave_failure *out);

/* A paragraph for people: what was asked, what was free, why it did not fit, who holds the rest, what to do. Returns the
 * length as snprintf does. */
CLEAVE_API int cleave_failure_print(const cleave_failure *failure, char *buf, size_t len);

/* What is at a run of mapped addresses of a heap. */
#define CLEAVE_BLOCK_LIVE 1
#define CLEAVE_BLOCK_PENDING 2 /* free, but work of its stream may still use it */
#define CLEAVE_BLOCK_FREE 3

typedef struct cleave_block {
	cleave_ptr address;
	uint64_t bytes;     /* that it takes */
	uint64_t requested; /* of them, what was asked for; 0 if it is not live */
	uint64_t stream_id; /* allocated on, or free in the order of; of CLEAVE_STREAM_ANY: UINT64_MAX */
	uint32_t state;
	uint32_t reserved;
} cleave_block;

/* All that a heap has mapped on a device, by address: blocks, live and free, without gaps wherever memory is mapped without
 * them. The first `room` are written to `out` (may be NULL if room is 0), and *count says how many there are. A snapshot under
 * the device's lock, exact but for blocks of up to 32 KiB that other threads allocate or free meanwhile. Costs a walk
 * over all blocks. */
CLEAVE_API int cleave_heap_blocks(cleave_heap *heap, int device, cleave_block *out, size_t room, size_t *count);

/* Walks every structure and compares it with the books; for tests and debugging. 0, or -EINVAL with a sentence in `why`. */
CLEAVE_API int cleave_heap_check(cleave_heap *heap, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
