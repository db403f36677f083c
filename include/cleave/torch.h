/* SPDX-License-Identifier: MIT
 *
 * What PyTorch's pluggable allocator calls: torch.cuda.memory.CUDAPluggableAllocator(libcleave.so, "cleave_torch_alloc",
 * "cleave_torch_free"). Under a torch.cuda.MemPool PyTorch's own allocator takes its segments from here. scripts/cleave_torch.py
 * does that, and more.
 *
 * There is one heap in a process for it, over the `cuda` driver; it is opened by whatever asks for it first, with the
 * settings in CLEAVE_CONF (what is wrong there is warned about on stderr, once, and ignored), and never closed. Plans can be bound
 * to it, so that their buffers and PyTorch's tensors share its memory. A stream is a cudaStream_t, which is a CUstream.
 *
 * Errors: functions that return an int give 0 or a negative errno: -ENODEV (no driver, device, or usable version), -ENOSPC
 * (host memory), -EINVAL.
 * Thread-safety: every function may be called from any thread.
 */
#ifndef CLEAVE_TORCH_H
#define CLEAVE_TORCH_H

#include <cleave/plan.h>

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The heap; not the caller's to close. On an error *out is NULL and `why` (may be NULL; why_len bytes) gets a sentence. */
CLEAVE_API int cleave_torch_heap(cleave_heap **out, char *why, size_t why_len);

/* A stream of the device as the heap knows it. `stream` may be NULL, for the legacy default stream; the device's primary context
 * is used if no context of the device is current in the thread. */
CLEAVE_API int cleave_torch_stream(int device, void *stream, cleave_stream *out);

/* NULL: size is 0 or less, or there is no memory; cleave_heap_last_failure() explains. */
CLEAVE_API void *cleave_torch_alloc(ssize_t size, int device, void *stream);

/* In the order of `stream`. If that is gone, all work of the device is waited for. NULL is allowed; what is no block of the heap
 * is told of on stderr, and left alone. */
CLEAVE_API void cleave_torch_free(void *ptr, ssize_t size, int device, void *stream);

/* Memory for cleave_plan_bind_memory() from the device's current pool, by cuMemAllocAsync: in a process under `cleave run` that is
 * Cleave's heap, which PyTorch's backend cudaMallocAsync uses as well. A block is freed in the order of its stream. Errors as
 * those of cleave_torch_heap. */
CLEAVE_API int cleave_torch_pool(cleave_plan_memory *out, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
