/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* pthread_rwlock_clockwrlock */
#include "cuda_internal.h"

#include "../host/meta.h"

#include <fcntl.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

/* What cuMemCreate has refused on a device. */
#define REFUSED_RDMA 1u
#define REFUSED_EXPORT 2u
#define REFUSED_BOTH (REFUSED_RDMA | REFUSED_EXPORT)

enum clv_result clv_cuda_result(CUresult r)
{
	switch ((int)r) { /* a driver may have answers that no enumeration of ours lists */
	case CUDA_SUCCESS:
		return CLV_OK;
	case CUDA_ERROR_NOT_READY:
		return CLV_NOT_READY;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return CLV_OUT_OF_MEMORY;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_HANDLE:
		return CLV_INVALID;
	case CUDA_ERROR_NOT_SUPPORTED:
	case CUDA_ERROR_NOT_PERMITTED:
		return CLV_NOT_SUPPORTED;
	case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
	case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
	case CUDA_ERROR_STREAM_CAPTURE_MERGE:
	case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
	case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
	case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
	case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
	case CUDA_ERROR_CAPTURED_EVENT:
	case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
		return CLV_CAPTURING;
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
		return CLV_GONE;
	default:
		return CLV_FAILED;
	}
}

static bool is_device(const struct clv_driver *driver, int device)
{
	return device >= 0 && device < driver->devices;
}

int clv_cuda_device_index(const struct cuda *c, CUdevice device)
{
	for (int d = 0; d < c->base.devices; d++)
		if (c->devices[d].device == device)
			return d;
	return -1;
}

/* A call that needs no context. */
#define CALL(c, call, made)                                                                                            \
	({                                                                                                             \
		struct cuda_scope scope_ = {0};                                                                        \
		clv_cuda_relax(c, &scope_);                                                                            \
		CUresult made_ = CUDA_TIMED(c, call, made);                                                            \
		clv_cuda_leave(c, &scope_);                                                                            \
		clv_cuda_result(made_);                                                                                \
	})

/* ---- devices ---- */

static enum clv_result cuda_device_info(struct clv_driver *self, int device, struct clv_device_info *out)
{
	if (!is_device(self, device))
		return CLV_INVALID;
	*out = cuda_of(self)->devices[device].info;
	return CLV_OK;
}

static enum clv_result cuda_mem_get_info(struct clv_driver *self, int device, uint64_t *free, uint64_t *total)
{
	struct cuda *c = cuda_of(self);
	if (!is_device(self, device))
		return CLV_INVALID;
	struct cuda_scope scope = {0};
	enum clv_result result = clv_cuda_enter_device(c, device, &scope);
	if (result != CLV_OK)
		return result;
	size_t free_bytes = 0, total_bytes = 0;
	CUresult r = CUDA_TIMED(c, CLV_CALL_mem_get_info, c->api->cuMemGetInfo_v2(&free_bytes, &total_bytes));
	clv_cuda_leave(c, &scope);
	*free = free_bytes;
	*total = total_bytes;
	return clv_cuda_result(r);
}

/* ---- frames ---- */

static enum clv_result cuda_address_reserve(struct clv_driver *self, uint64_t *addr, uint64_t size, uint64_t align)
{
	struct cuda *c = cuda_of(self);
	CUdeviceptr ptr = 0;
	enum clv_result r =
		CALL(c, CLV_CALL_address_reserve, c->api->cuMemAddressReserve(&ptr, (size_t)size, (size_t)align, 0, 0));
	*addr = ptr;
	return r;
}

static enum clv_result cuda_address_free(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	struct cuda *c = cuda_of(self);
	return CALL(c, CLV_CALL_address_free, c->api->cuMemAddressFree(addr, (size_t)size));
}

static CUmemAllocationProp properties(const struct cuda_device *d, unsigned refused)
{
	CUmemAllocationProp p = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->device},
	};
	if (d->exportable && !(refused & REFUSED_EXPORT))
		p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	p.allocFlags.gpuDirectRDMACapable = d->rdma && !(refused & REFUSED_RDMA);
	return p;
}

static bool is_refusal(CUresult r)
{
	return r == CUDA_ERROR_NOT_SUPPORTED || r == CUDA_ERROR_NOT_PERMITTED || r == CUDA_ERROR_INVALID_VALUE;
}

static CUresult create(struct cuda *c, clv_handle *handle, uint64_t size, const struct cuda_device *d, unsigned refused)
{
	CUmemAllocationProp p = properties(d, refused);
	CUmemGenericAllocationHandle h = 0;
	CUresult r = CUDA_TIMED(c, CLV_CALL_create, c->api->cuMemCreate(&h, (size_t)size, &p, 0));
	*handle = h;
	return r;
}

/* A device may refuse what its attributes promise, as where a container hides something. Until a first frame is made, a
 * refusal is tried again with less, and what was accepted is what all later frames get. */
static enum clv_result cuda_create(struct clv_driver *self, clv_handle *handle, uint64_t size, int device)
{
	static const unsigned less[] = {REFUSED_RDMA, REFUSED_EXPORT, REFUSED_BOTH};
	struct cuda *c = cuda_of(self);
	if (!is_device(self, device))
		return CLV_INVALID;
	struct cuda_device *d = &c->devices[device];
	struct cuda_scope scope = {0};
	clv_cuda_relax(c, &scope);
	CUresult r = create(c, handle, size, d, atomic_load_explicit(&d->refused, memory_order_relaxed));
	if (CLV_UNLIKELY(!atomic_load_explicit(&d->settled, memory_order_relaxed))) {
		unsigned wanted = (d->rdma ? REFUSED_RDMA : 0) | (d->exportable ? REFUSED_EXPORT : 0);
		CUresult first = r;
		for (size_t i = 0; i < CLV_ARRAY_LEN(less) && is_refusal(r); i++) {
			if ((less[i] & wanted) != less[i])
				continue;
			r = create(c, handle, size, d, less[i]);
			if (r == CUDA_SUCCESS)
				atomic_store_explicit(&d->refused, less[i], memory_order_relaxed);
		}
		if (r == CUDA_SUCCESS)
			atomic_store_explicit(&d->settled, true, memory_order_relaxed);
		else if (is_refusal(r))
			r = first;
	}
	clv_cuda_leave(c, &scope);
	return clv_cuda_result(r);
}

static enum clv_result cuda_release(struct clv_driver *self, clv_handle handle)
{
	struct cuda *c = cuda_of(self);
	return CALL(c, CLV_CALL_release, c->api->cuMemRelease(handle));
}

static enum clv_result cuda_map(struct clv_driver *self, uint64_t addr, uint64_t size, uint64_t offset,
				clv_handle handle)
{
	struct cuda *c = cuda_of(self);
	return CALL(c, CLV_CALL_map, c->api->cuMemMap(addr, (size_t)size, (size_t)offset, handle, 0));
}

static enum clv_result cuda_unmap(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	struct cuda *c = cuda_of(self);
	return CALL(c, CLV_CALL_unmap, c->api->cuMemUnmap(addr, (size_t)size));
}

static enum clv_result cuda_set_access(struct clv_driver *self, uint64_t addr, uint64_t size, int device)
{
	struct cuda *c = cuda_of(self);
	if (!is_device(self, device))
		return CLV_INVALID;
	CUmemAccessDesc access[CUDA_DEVICES];
	size_t n = 0;
	uint64_t readers = atomic_load_explicit(&c->devices[device].readers, memory_order_relaxed) | (uint64_t)1
													     << device;
	for (int d = 0; d < self->devices; d++)
		if (readers >> d & 1)
			access[n++] = (CUmemAccessDesc){
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->devices[d].device},
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
			};
	return CALL(c, CLV_CALL_set_access, c->api->cuMemSetAccess(addr, (size_t)size, access, n));
}

bool clv_cuda_peer(struct clv_driver *cuda, int owner, int reader)
{
	if (!is_device(cuda, owner) || !is_device(cuda, reader) || owner == reader)
		return false;
	uint64_t bit = (uint64_t)1 << reader;
	return !(atomic_fetch_or(&cuda_of(cuda)->devices[owner].readers, bit) & bit);
}

bool clv_cuda_is_peer(const struct clv_driver *cuda, int owner, int reader)
{
	return is_device(cuda, owner) && is_device(cuda, reader) &&
	       atomic_load(&cuda_of(cuda)->devices[owner].readers) >> reader & 1;
}

int clv_cuda_export(struct clv_driver *cuda, clv_handle handle, CUresult *why)
{
	struct cuda *c = cuda_of(cuda);
	int fd = -1;
	if (!c->api->cuMemExportToShareableHandle) {
		*why = CUDA_ERROR_NOT_SUPPORTED;
		return -1;
	}
	struct cuda_scope scope = {0};
	clv_cuda_relax(c, &scope);
	*why = c->api->cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	clv_cuda_leave(c, &scope);
	if (*why != CUDA_SUCCESS)
		return -1;
	fcntl(fd, F_SETFD, FD_CLOEXEC); /* a child that the program starts must not keep the memory */
	return fd;
}

enum clv_result clv_cuda_import(struct clv_driver *cuda, int fd, clv_handle *out)
{
	struct cuda *c = cuda_of(cuda);
	if (!c->api->cuMemImportFromShareableHandle)
		return CLV_NOT_SUPPORTED;
	CUmemGenericAllocationHandle h = 0;
	struct cuda_scope scope = {0};
	clv_cuda_relax(c, &scope);
	CUresult r = c->api->cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
							    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	clv_cuda_leave(c, &scope);
	*out = h;
	return clv_cuda_result(r);
}

/* ---- plain allocations ---- */

static enum clv_result cuda_mem_alloc(struct clv_driver *self, uint64_t *addr, uint64_t size, int device)
{
	struct cuda *c = cuda_of(self);
	if (!is_device(self, device))
		return CLV_INVALID;
	struct cuda_scope scope = {0};
	enum clv_result result = clv_cuda_enter_device(c, device, &scope);
	if (result != CLV_OK)
		return result;
	CUdeviceptr ptr = 0;
	CUresult r = CUDA_TIMED(c, CLV_CALL_mem_alloc, c->api->cuMemAlloc_v2(&ptr, (size_t)size));
	clv_cuda_leave(c, &scope);
	*addr = ptr;
	return clv_cuda_result(r);
}

static enum clv_result cuda_mem_free(struct clv_driver *self, uint64_t addr)
{
	struct cuda *c = cuda_of(self);
	struct cuda_scope scope = {0};
	enum clv_result result = clv_cuda_enter_any(c, &scope); /* addresses say themselves which device's they are */
	if (result != CLV_OK)
		return result;
	CUresult r = CUDA_TIMED(c, CLV_CALL_mem_free, c->api->cuMemFree_v2(addr));
	clv_cuda_leave(c, &scope);
	return clv_cuda_result(r);
}

/* ---- the driver ---- */

void clv_cuda_captures_add(struct clv_driver *cuda, int change)
{
	atomic_fetch_add(&cuda_of(cuda)->captures, (unsigned)change);
}

unsigned clv_cuda_captures(const struct clv_driver *cuda)
{
	return atomic_load_explicit(&cuda_of(cuda)->captures, memory_order_relaxed);
}

/* Threads hold it while they wait for the device, which may have to wait for what this thread does next. By the time that this
 * one has waited, they are inside of calls that asked long ago whether anything captures. */
#define CAPTURE_WAIT_NS (100 * 1000 * 1000)

/* By a clock that nobody sets. */
static bool write_lock_within(pthread_rwlock_t *lock, uint64_t ns)
{
	struct timespec until = clv_clock_timespec(clv_clock_ns() + ns);
	if (pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &until))
		return false;
#ifdef __SANITIZE_THREAD__
	/* of this call, unlike the unlock, the sanitizer knows nothing */
	__tsan_mutex_pre_lock(lock, __tsan_mutex_try_lock);
	__tsan_mutex_post_lock(lock, __tsan_mutex_try_lock, 0);
#endif
	return true;
}

bool clv_cuda_capture_lock(struct clv_driver *cuda)
{
	pthread_rwlock_t *begins = &cuda_of(cuda)->begins;
	return !pthread_rwlock_trywrlock(begins) || write_lock_within(begins, CAPTURE_WAIT_NS);
}

void clv_cuda_capture_unlock(struct clv_driver *cuda, bool locked)
{
	if (locked)
		pthread_rwlock_unlock(&cuda_of(cuda)->begins);
}

void clv_cuda_set_virtual(struct clv_driver *cuda, const struct clv_cuda_virtual *ops)
{
	cuda_of(cuda)->virtual = *ops;
}

static uint64_t cuda_now_ns(struct clv_driver *self)
{
	return clv_clock_ns() - cuda_of(self)->opened_ns;
}

static void cuda_pause(struct clv_driver *self, uint64_t ns)
{
	(void)self;
	struct timespec t = clv_clock_timespec(ns);
	nanosleep(&t, NULL);
}

static void cuda_counts(struct clv_driver *self, struct clv_call_counts *out)
{
	struct cuda *c = cuda_of(self);
	for (int i = 0; i < CLV_CALL_COUNT; i++)
		out->calls[i] = atomic_load_explicit(&c->calls[i], memory_order_relaxed);
	out->ns = atomic_load_explicit(&c->ns, memory_order_relaxed);
}

static void cuda_close(struct clv_driver *self)
{
	struct cuda *c = cuda_of(self);
	pthread_mutex_lock(&c->lock);
	clv_cuda_streams_drop(c);
	pthread_mutex_unlock(&c->lock);
	for (struct cuda_context *x = atomic_load(&c->contexts), *next; x; x = next) {
		next = x->next;
		clv_meta_free(x);
	}
	pthread_mutex_destroy(&c->lock);
	pthread_rwlock_destroy(&c->begins);
	clv_meta_free(c->devices);
	clv_meta_free(c->own_api);
	clv_meta_free(c);
}

const struct clv_cuda_api *clv_cuda_api_of(const struct clv_driver *cuda)
{
	return cuda && cuda->close == cuda_close ? cuda_of(cuda)->api : NULL;
}

static bool has(const struct cuda *c, CUdevice device, CUdevice_attribute attribute)
{
	int value = 0;
	return c->api->cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value;
}

static bool learn_device(struct cuda *c, int ordinal, bool exportable, struct clv_error *err)
{
	struct cuda_device *d = &c->devices[ordinal];
	size_t total = 0, granularity = 0;
	CUresult r = c->api->cuDeviceGet(&d->device, ordinal);
	if (r == CUDA_SUCCESS)
		r = c->api->cuDeviceTotalMem_v2(&total, d->device);
	if (r != CUDA_SUCCESS)
		return clv_error_set(err, "device %d cannot be asked about: error %d of the driver", ordinal, (int)r);
	d->info.total = total;
	d->info.granularity = 2 * CLV_MIB;
	d->info.vmm = has(c, d->device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	if (!d->info.vmm)
		return true;
	d->rdma = has(c, d->device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	d->exportable =
		exportable && has(c, d->device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	CUmemAllocationProp p = properties(d, 0);
	r = c->api->cuMemGetAllocationGranularity(&granularity, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (r != CUDA_SUCCESS) {
		p = properties(d, REFUSED_BOTH);
		r = c->api->cuMemGetAllocationGranularity(&granularity, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	}
	if (r == CUDA_SUCCESS && clv_is_pow2(granularity))
		d->info.granularity = granularity;
	else
		d->info.vmm = false;
	return true;
}

static bool check_version(const struct clv_cuda_api *api, bool any, struct clv_error *err)
{
	int version = 0;
	CUresult r = api->cuDriverGetVersion(&version);
	if (r != CUDA_SUCCESS)
		return clv_error_set(err, "the driver does not say its version: error %d", (int)r);
	if (any || (version >= CLV_CUDA_OLDEST && version <= CLV_CUDA_NEWEST))
		return true;
	return clv_error_set(err, "the driver is of CUDA %d.%d; tested are those of CUDA %d.%d to %d", version / 1000,
			     version % 1000 / 10, CLV_CUDA_OLDEST / 1000, CLV_CUDA_OLDEST % 1000 / 10,
			     CLV_CUDA_NEWEST / 1000);
}

static bool start(struct cuda *c, const struct clv_cuda_config *config, struct clv_error *err)
{
	c->api = config->api;
	if (!c->api) {
		c->own_api = clv_meta_zalloc(sizeof(*c->own_api));
		if (!c->own_api)
			return clv_error_set(err, "out of host memory");
		if (!clv_cuda_library_load(c->own_api, err))
			return false;
		c->api = c->own_api;
	}
	if (!check_version(c->api, config->any_version, err))
		return false;
	int count = 0;
	CUresult r = c->api->cuDeviceGetCount(&count);
	if (r == CUDA_ERROR_NOT_INITIALIZED)
		return clv_error_set(err, "the program has not initialised CUDA");
	if (r == CUDA_ERROR_NO_DEVICE || (r == CUDA_SUCCESS && count <= 0))
		return clv_error_set(err, "the driver finds no device");
	if (r != CUDA_SUCCESS)
		return clv_error_set(err, "the driver does not say what devices there are: error %d", (int)r);
	c->base.devices = count < CUDA_DEVICES ? count : CUDA_DEVICES;
	c->devices = clv_meta_zalloc((size_t)c->base.devices * sizeof(*c->devices));
	if (!c->devices)
		return clv_error_set(err, "out of host memory");
	for (int d = 0; d < c->base.devices; d++)
		if (!learn_device(c, d, !config->not_exportable, err))
			return false;
	return true;
}

struct clv_driver *clv_cuda_open(const struct clv_cuda_config *config, struct clv_error *err)
{
	static const struct clv_driver table = {
		.name = "cuda",
		.device_info = cuda_device_info,
		.mem_get_info = cuda_mem_get_info,
		.address_reserve = cuda_address_reserve,
		.address_free = cuda_address_free,
		.create = cuda_create,
		.release = cuda_release,
		.map = cuda_map,
		.unmap = cuda_unmap,
		.set_access = cuda_set_access,
		.mem_alloc = cuda_mem_alloc,
		.mem_free = cuda_mem_free,
		.event_create = clv_cuda_event_create,
		.event_destroy = clv_cuda_event_destroy,
		.event_record = clv_cuda_event_record,
		.event_query = clv_cuda_event_query,
		.event_synchronize = clv_cuda_event_synchronize,
		.stream_wait_event = clv_cuda_stream_wait_event,
		.stream_synchronize = clv_cuda_stream_synchronize,
		.now_ns = cuda_now_ns,
		.pause = cuda_pause,
		.counts = cuda_counts,
		.close = cuda_close,
	};
	struct cuda *c = clv_meta_zalloc(sizeof(*c));
	if (!c) {
		clv_error_set(err, "out of host memory");
		return NULL;
	}
	c->base = table;
	c->adopt_streams = config->adopt_streams;
	/* who does not tell of streams does not tell of captures either: as if there were one always */
	atomic_init(&c->captures, config->adopt_streams ? 1 : 0);
	c->opened_ns = clv_clock_ns();
	pthread_mutex_init(&c->lock, NULL);
	pthread_rwlock_init(&c->begins, NULL);
	clv_cuda_new_epoch(c);
	if (start(c, config, err))
		return &c->base;
	cuda_close(&c->base);
	return NULL;
}
