/* SPDX-License-Identifier: MIT
 *
 * The heap of this process for PyTorch. `lock` guards the opening; once `heap` is set it stays, and is read without it.
 */
#include <cleave/torch.h>

#include "../driver/cuda.h"
#include "../heap/heap_more.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct clv_driver *driver; /* set before `heap` */
static _Atomic(cleave_heap *) heap;

static void warn_setting(void *arg, const char *sentence)
{
	(void)arg;
	fprintf(stderr, "cleave: CLEAVE_CONF: %s; ignored\n", sentence);
}

/* With the lock held. */
static int open_now(struct clv_error *err)
{
	struct clv_settings settings;
	clv_settings_parse_lenient(&settings, getenv("CLEAVE_CONF"), warn_setting, NULL);
	struct clv_cuda_config config = {
		.not_exportable = !settings.ipc, .any_version = settings.any_driver, .adopt_streams = true};
	driver = clv_cuda_open(&config, err);
	if (!driver)
		return -ENODEV;
	cleave_heap *opened;
	int why = clv_heap_open(&opened, driver, &settings);
	if (why) {
		clv_error_set(err, "no host memory for the heap");
		driver->close(driver);
		driver = NULL;
		return why;
	}
	atomic_store_explicit(&heap, opened, memory_order_release);
	return 0;
}

int cleave_torch_heap(cleave_heap **out, char *why, size_t why_len)
{
	struct clv_error err = {""};
	int result = 0;
	if (!out)
		return -EINVAL;
	*out = atomic_load_explicit(&heap, memory_order_acquire);
	if (*out)
		return 0;
	pthread_mutex_lock(&lock);
	if (!atomic_load_explicit(&heap, memory_order_relaxed))
		result = open_now(&err);
	*out = atomic_load_explicit(&heap, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
	if (result && why)
		snprintf(why, why_len, "%s", err.text);
	return result;
}

/* Makes the device's primary context current for a call, if the program has made it. */
static CUresult enter_primary(int device, CUdevice *dev)
{
	const struct clv_cuda_api *cu = clv_cuda_api_of(driver);
	CUcontext primary;
	unsigned flags;
	int active = 0;
	CUresult r = cu->cuDeviceGet(dev, device);
	if (r == CUDA_SUCCESS)
		r = cu->cuDevicePrimaryCtxGetState(*dev, &flags, &active);
	if (r == CUDA_SUCCESS)
		r = active ? cu->cuDevicePrimaryCtxRetain(&primary, *dev) : CUDA_ERROR_INVALID_CONTEXT;
	if (r != CUDA_SUCCESS)
		return r;
	r = cu->cuCtxPushCurrent_v2(primary);
	if (r != CUDA_SUCCESS)
		cu->cuDevicePrimaryCtxRelease_v2(*dev);
	return r;
}

static void leave_primary(CUdevice dev)
{
	const struct clv_cuda_api *cu = clv_cuda_api_of(driver);
	CUcontext popped;
	cu->cuCtxPopCurrent_v2(&popped);
	cu->cuDevicePrimaryCtxRelease_v2(dev);
}

static CUresult ask_in_primary(int device, CUstream stream, struct clv_cuda_stream *out)
{
	CUdevice dev;
	CUresult r = enter_primary(device, &dev);
	if (r != CUDA_SUCCESS)
		return r;
	r = clv_cuda_stream(driver, stream, false, out);
	leave_primary(dev);
	return r;
}

int cleave_torch_stream(int device, void *stream, cleave_stream *out)
{
	cleave_heap *h;
	struct clv_cuda_stream s;
	int why = out ? cleave_torch_heap(&h, NULL, 0) : -EINVAL;
	if (why)
		return why;
	if (device < 0 || device >= driver->devices)
		return -EINVAL;
	CUresult r = clv_cuda_stream(driver, stream, false, &s);
	if (r != CUDA_SUCCESS || s.device != device)
		r = ask_in_primary(device, stream, &s);
	if (r != CUDA_SUCCESS || s.device != device)
		return r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOSPC : -EINVAL;
	*out = s.stream;
	return 0;
}

void *cleave_torch_alloc(ssize_t size, int device, void *stream)
{
	cleave_stream s;
	cleave_ptr ptr = 0;
	if (size <= 0 || cleave_torch_stream(device, stream, &s))
		return NULL;
	int why = cleave_alloc(atomic_load_explicit(&heap, memory_order_acquire), device, s, (size_t)size, &ptr);
	return why ? NULL : (void *)(uintptr_t)ptr; /* NOLINT: PyTorch holds device addresses in pointers */
}

/* All work of the program's on the device. Not clv_cuda_synchronize(): nobody tells this driver of captures, so it never
 * waits for a whole context. */
static bool wait_for_device(int device)
{
	const struct clv_cuda_api *cu = clv_cuda_api_of(driver);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdevice dev;
	if (device < 0 || device >= driver->devices || enter_primary(device, &dev) != CUDA_SUCCESS)
		return false;
	bool exchanged = cu->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
	CUresult r = cu->cuCtxSynchronize();
	if (exchanged)
		cu->cuThreadExchangeStreamCaptureMode(&mode);
	leave_primary(dev);
	return r == CUDA_SUCCESS;
}

void cleave_torch_free(void *ptr, ssize_t size, int device, void *stream)
{
	(void)size;
	cleave_stream s;
	cleave_heap *h = atomic_load_explicit(&heap, memory_order_acquire);
	if (!ptr)
		return;
	const char *wrong = NULL;
	if (!h || cleave_block_info(h, (uintptr_t)ptr, NULL, NULL, NULL)) {
		wrong = "it is in no live block";
	} else if (cleave_torch_stream(device, stream, &s)) {
		s = CLEAVE_STREAM_ANY;
		if (!wait_for_device(device))
			wrong = "its stream is gone, and the driver cannot wait for the device";
	}
	int why = wrong ? 0 : cleave_free(h, (uintptr_t)ptr, s);
	if (why)
		wrong = why == -EINVAL ? "it is not the start of a live block"
				       : "the driver cannot wait for its stream";
	if (wrong)
		fprintf(stderr, "cleave: the memory at %p is not freed: %s\n", ptr, wrong);
}

/* ---- the driver's pool ---- */

static int errno_of(CUresult r)
{
	return r == CUDA_SUCCESS               ? 0
	       : r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM
	       : r == CUDA_ERROR_INVALID_VALUE ? -EINVAL
					       : -EIO;
}

static int pool_alloc(void *arg, int device, cleave_stream stream, size_t size, cleave_ptr *out)
{
	const struct clv_cuda_api *cu = arg;
	CUdevice dev;
	CUdeviceptr ptr = 0;
	CUresult r = enter_primary(device, &dev); /* its legacy default stream is of the context */
	if (r != CUDA_SUCCESS)
		return errno_of(r);
	r = cu->cuMemAllocAsync(&ptr, size, (CUstream)(uintptr_t)stream.handle);
	leave_primary(dev);
	*out = ptr;
	return errno_of(r);
}

static int pool_free(void *arg, cleave_ptr ptr, cleave_stream stream)
{
	const struct clv_cuda_api *cu = arg;
	int device = 0;
	CUdevice dev;
	CUresult r = cu->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr);
	if (r == CUDA_SUCCESS)
		r = enter_primary(device, &dev);
	if (r != CUDA_SUCCESS)
		return errno_of(r);
	r = cu->cuMemFreeAsync(ptr, (CUstream)(uintptr_t)stream.handle);
	leave_primary(dev);
	return errno_of(r);
}

int cleave_torch_pool(cleave_plan_memory *out, char *why, size_t why_len)
{
	cleave_heap *h;
	if (!out)
		return -EINVAL;
	*out = (cleave_plan_memory){0};
	int result = cleave_torch_heap(&h, why, why_len); /* for the driver */
	if (result)
		return result;
	const struct clv_cuda_api *cu = clv_cuda_api_of(driver);
	if (!cu->cuMemAllocAsync || !cu->cuMemFreeAsync || !cu->cuPointerGetAttribute) {
		if (why)
			snprintf(why, why_len, "the driver has no cuMemAllocAsync: it is too old");
		return -ENODEV;
	}
	*out = (cleave_plan_memory){pool_alloc, pool_free, (void *)cu};
	return 0;
}
