/* SPDX-License-Identifier: MIT
 *
 * plain: cuMemAlloc. Libraries query, export and register what they get from it, so it is the driver's affair, tried again
 * after a trim; it is served from the heap under serve:all, and by default in a program that uses nothing else.
 *
 * A plain block belongs to a context and goes with it. `lock` guards the table of the blocks that were served, by address. A block that
 * is freed while a stream somewhere captures, so that the device cannot be waited for, stays in it, and stays a block,
 * until a call waits for the device that would have done so in any case: the next free, or one that is short of memory.
 */
#include "pool.h"
#include "ipc.h"
#include "seen.h"

#include "../host/meta.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define PITCH 512u /* as the driver's for every width on the GPUs seen */

#define BUCKETS_MIN 256u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct plain {
	CUdeviceptr ptr;
	CUcontext context; /* NULL: not from cuMemAlloc, and here only since it waits */
	int device;
	uint64_t waits; /* freed by the program: a number that no other free has; else 0 */
	struct plain *next;
} * *buckets;
static size_t bucket_count; /* a power of two */
static _Atomic size_t count, waiting;
static uint64_t wait_number;

/* With the lock held, as all of these. */
static struct plain **bucket_of(CUdeviceptr ptr)
{
	return &buckets[clv_mix64(ptr) & (bucket_count - 1)];
}

static bool grow(void)
{
	size_t before = bucket_count, more = before ? before * 2 : BUCKETS_MIN;
	struct plain **old = buckets, **grown = clv_meta_zalloc(more * sizeof(struct plain *));
	if (!grown)
		return old != NULL; /* longer chains are slower, not wrong */
	buckets = grown;
	bucket_count = more;
	for (size_t i = 0; i < before; i++)
		for (struct plain *b = old[i], *next; b; b = next) {
			next = b->next;
			b->next = *bucket_of(b->ptr);
			*bucket_of(b->ptr) = b;
		}
	clv_meta_free(old);
	return true;
}

static struct plain *add(CUdeviceptr ptr, CUcontext context, int device)
{
	if (count >= bucket_count && !grow())
		return NULL;
	struct plain *b = clv_meta_alloc(sizeof(*b));
	if (!b)
		return NULL;
	*b = (struct plain){ptr, context, device, 0, *bucket_of(ptr)};
	*bucket_of(ptr) = b;
	count++;
	return b;
}

static struct plain *find(CUdeviceptr ptr)
{
	struct plain *b = buckets ? *bucket_of(ptr) : NULL;
	while (b && b->ptr != ptr)
		b = b->next;
	return b;
}

static void take_out(struct plain *b)
{
	struct plain **link = bucket_of(b->ptr);
	while (*link != b)
		link = &(*link)->next;
	*link = b->next;
	if (b->waits)
		atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
	count--;
	clv_meta_free(b);
}

/* Each block, which may be taken out meanwhile. */
#define FOR_EACH(b, next_)                                                                                             \
	for (size_t i_ = 0; i_ < bucket_count; i_++)                                                                   \
		for (struct plain *b = buckets[i_], *next_; b && (next_ = b->next, true); b = next_)

static bool remember(CUdeviceptr ptr, CUcontext context, int device)
{
	pthread_mutex_lock(&lock);
	bool done = add(ptr, context, device);
	pthread_mutex_unlock(&lock);
	return done;
}

bool clv_plain_forget(CUdeviceptr ptr)
{
	/* whoever frees a block has got it from the thread that it was remembered by */
	if (CLV_LIKELY(!atomic_load_explicit(&count, memory_order_relaxed)))
		return true;
	pthread_mutex_lock(&lock);
	struct plain *b = find(ptr);
	bool first = !b || !b->waits;
	if (b && first)
		take_out(b);
	pthread_mutex_unlock(&lock);
	return first;
}

/* False: it waits already, so that this is a second free; or there is no host memory to remember it by. */
static bool let_wait(CUdeviceptr ptr, int device)
{
	pthread_mutex_lock(&lock);
	struct plain *b = find(ptr);
	bool first = !b || !b->waits;
	if (!b)
		b = add(ptr, NULL, device);
	if (b && first) {
		b->waits = ++wait_number;
		atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&lock);
	return b && first;
}

#define SETTLED_AT_ONCE 64u

struct waits {
	CUdeviceptr ptr;
	uint64_t number;
};

/* Some of those of a device that wait. */
static unsigned some_waiting(int device, struct waits *some)
{
	unsigned n = 0;
	pthread_mutex_lock(&lock);
	FOR_EACH(b, next)
	if (n < SETTLED_AT_ONCE && b->waits && b->device == device)
		some[n++] = (struct waits){b->ptr, b->waits};
	pthread_mutex_unlock(&lock);
	return n;
}

/* False: another thread was faster; if it waits again, that is for other work. */
static bool stop_waiting(const struct waits *w)
{
	pthread_mutex_lock(&lock);
	struct plain *b = find(w->ptr);
	bool waits = b && b->waits == w->number;
	if (waits)
		take_out(b);
	pthread_mutex_unlock(&lock);
	return waits;
}

bool clv_plain_reclaim(const struct clv_process *p, int device)
{
	struct waits some[SETTLED_AT_ONCE];
	unsigned n = SETTLED_AT_ONCE;
	CUresult result;
	bool any = false;
	if (!atomic_load_explicit(&waiting, memory_order_relaxed))
		return false;
	while (n == SETTLED_AT_ONCE && (n = some_waiting(device, some)) &&
	       clv_cuda_synchronize(p->driver, device, NULL) == CLV_OK)
		for (unsigned i = 0; i < n; i++)
			if (stop_waiting(&some[i]))
				any |= clv_pool_free(p, some[i].ptr, NULL, &result);
	return any;
}

void clv_plain_context_gone(const struct clv_process *p, CUcontext context, bool waited)
{
	pthread_mutex_lock(&lock);
	FOR_EACH(b, next)
	{
		if (b->context != context)
			continue;
		clv_ipc_block_freed(b->ptr);
		if (!waited || b->waits) { /* for work of other contexts as well */
			b->context = NULL;
			if (!b->waits)
				atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
			b->waits = ++wait_number;
			continue;
		}
		cleave_free(p->heap, b->ptr, CLEAVE_STREAM_ANY);
		take_out(b);
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
	if (why == -ENOMEM && clv_reclaim(p, s.device))
		why = clv_heap_alloc(p->heap, s.device, CLEAVE_STREAM_ANY, size, align_for(size), &ptr);
	if (why == -ENOMEM) {
		clv_report_failure(p, s.device);
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return true;
	}
	if (why) {
		clv_device_refused(p, s.device, why);
		return false;
	}
	if (!remember(ptr, s.context, s.device)) {
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
	CLV_SEEN_GOT(r, .name = "cuMemAlloc", .kind = CLV_SEEN_MEMORY, .key = r == CUDA_SUCCESS ? *out : 0, .size = size);
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
	CLV_SEEN_GOT(r, .name = "cuMemAllocPitch", .kind = CLV_SEEN_MEMORY, .key = r == CUDA_SUCCESS ? *out : 0,
		     .size = (r == CUDA_SUCCESS ? *pitch : width) * height);
	return r;
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	const struct clv_process *p = ptr ? clv_process_if_open() : NULL;
	cleave_ptr start;
	int device;
	if (!p || cleave_block_info(p->heap, ptr, &start, NULL, &device) || start != ptr) {
		struct clv_seen_item item = CLV_SEEN_FREES(.name = "cuMemFree", .kind = CLV_SEEN_MEMORY, .key = ptr);
		return clv_seen_freed(&item, CLV_PASS(cuMemFree_v2, ptr));
	}
	CUresult result;
	/* The driver's own waits until nothing on the device can use the block. */
	if (!p->settings.free_now) {
		if (clv_cuda_synchronize(p->driver, device, NULL) == CLV_CAPTURING) {
			clv_ipc_block_freed(ptr);
			return let_wait(ptr, device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		}
		clv_plain_reclaim(p, device);
	}
	return clv_pool_free(p, ptr, NULL, &result) ? result : CUDA_ERROR_INVALID_VALUE;
}
