/* SPDX-License-Identifier: MIT
 *
 * plain: cuMemAlloc. Libraries query, export and register what they get from it, so it is the driver's affair, tried again
 * after a trim; it is served from the heap under serve:all, and by default in a program that uses nothing else.
 *
 * A plain block belongs to a context and goes with it. `lock` guards the table of the blocks that were served; blocks that
 * were freed while a capture forbade to wait are in it until it is over.
 */
#include "pool.h"
#include "ipc.h"

#include "../host/meta.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
#define PITCH 512u /* as the driver's for every width on the GPUs seen */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct plain {
	CUdeviceptr ptr;
	CUcontext context;
} *blocks;
static _Atomic size_t count;
static size_t room;

static bool remember(CUdeviceptr ptr, CUcontext context)
{
	pthread_mutex_lock(&lock);
	if (count == room) {
		size_t more = room ? room * 2 : 256;
		struct plain *grown = clv_meta_realloc(blocks, more * sizeof(*blocks));
		if (!grown) {
			pthread_mutex_unlock(&lock);
			return false;
		}
		blocks = grown;
		room = more;
	}
	blocks[count++] = (struct plain){ptr, context};
	pthread_mutex_unlock(&lock);
	return true;
}

void clv_plain_forget(CUdeviceptr ptr)
{
	/* whoever frees a block has got it from the thread that it was remembered by */
	if (CLV_LIKELY(!atomic_load_explicit(&count, memory_order_relaxed)))
		return;
	pthread_mutex_lock(&lock);
	for (size_t i = count; i--;)
		if (blocks[i].ptr == ptr) {
			blocks[i] = blocks[--count];
			break;
		}
	pthread_mutex_unlock(&lock);
}

void clv_plain_context_gone(const struct clv_process *p, CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (size_t i = count; i--;)
		if (blocks[i].context == context) {
			clv_ipc_block_freed(blocks[i].ptr);
			cleave_free(p->heap, blocks[i].ptr, CLEAVE_STREAM_ANY);
			blocks[i] = blocks[--count];
		}
	pthread_mutex_unlock(&lock);
}

static bool served_here(const struct clv_process *p)
{
	return p->settings.serve == CLV_SERVE_ALL || (p->settings.serve == CLV_SERVE_AUTO && clv_plain_alone());
}

/* Blocks that others may register or export start where pages of the host, or of the device, do. */
static size_t align_for(size_t size)
{
	return size % (2 * CLV_MIB) == 0 ? 2 * CLV_MIB : size >= 64 * CLV_KIB ? 64 * CLV_KIB : CLV_GRAIN;
}

static bool serve(CUdeviceptr *out, size_t size, CUresult *result)
{
	const struct clv_process *p = clv_process();
	struct clv_cuda_stream s;
	/* Of the current context the driver names the device also when it is gone; its default stream it does not. */
	if (!p || !out || !size || !served_here(p) || clv_cuda_captures(p->driver) ||
	    clv_cuda_stream(p->driver, CU_STREAM_LEGACY, false, &s) != CUDA_SUCCESS || !clv_device_usable(p, s.device))
		return false;
	cleave_ptr ptr;
	int why = clv_heap_alloc(p->heap, s.device, CLEAVE_STREAM_ANY, size, align_for(size), &ptr);
	if (why == -ENOMEM) {
		clv_report_failure(p, s.device);
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return true;
	}
	if (why) {
		clv_device_refused(p, s.device, why);
		return false;
	}
	if (!remember(ptr, s.context)) {
		cleave_free(p->heap, ptr, CLEAVE_STREAM_ANY);
		return false;
	}
	*out = ptr;
	*result = CUDA_SUCCESS;
	return true;
}

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	CUresult r;
	if (serve(out, size, &r))
		return r;
	r = CLV_PASS(cuMemAlloc_v2, out, size);
	for (int step = 0; r == CUDA_ERROR_OUT_OF_MEMORY && clv_trim_for_retry(&step);)
		r = CLV_PASS(cuMemAlloc_v2, out, size);
	return r;
}

EXPORTED CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	size_t row, size;
	CUresult r;
	if (pitch && width && !__builtin_add_overflow(width, PITCH - 1, &row) &&
	    !__builtin_mul_overflow(row & ~(size_t)(PITCH - 1), height, &size) &&
	    (element == 4 || element == 8 || element == 16) && serve(out, size, &r)) {
		if (r == CUDA_SUCCESS)
			*pitch = row & ~(size_t)(PITCH - 1);
		return r;
	}
	r = CLV_PASS(cuMemAllocPitch_v2, out, pitch, width, height, element);
	for (int step = 0; r == CUDA_ERROR_OUT_OF_MEMORY && clv_trim_for_retry(&step);)
		r = CLV_PASS(cuMemAllocPitch_v2, out, pitch, width, height, element);
	return r;
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	const struct clv_process *p = ptr ? clv_process_if_open() : NULL;
	cleave_ptr start;
	int device;
	if (!p || cleave_block_info(p->heap, ptr, &start, NULL, &device) || start != ptr)
		return CLV_PASS(cuMemFree_v2, ptr);
	/* The driver's own waits until nothing on the device can use the block. */
	if (!p->settings.free_now) {
		enum clv_result r = clv_cuda_synchronize(p->driver, device, NULL);
		if (r == CLV_CAPTURING)
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	CUresult result;
	return clv_pool_free(p, ptr, NULL, &result) ? result : CUDA_ERROR_INVALID_VALUE;
}
