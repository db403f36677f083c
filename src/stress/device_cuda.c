/* SPDX-License-Identifier: MIT
 *
 * Work on a GPU: a host function that takes the time, a copy between the block and pinned memory, and a host function that
 * compares what came and tells. Everything is in the order of one stream, and the host waits for nothing.
 */
#include "device.h"

#include "../driver/ledger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define COPIES 256                 /* at a time */
#define SLOWEST_NS 200000          /* host functions of all streams share a thread or few */
#define LEAST_LEFT (256 * CLV_MIB) /* beside the capacity, for the driver itself */
#define PATIENCE_S 60              /* for a copy to end */

/* Pinned memory, given out in the order in which it is asked for. */
struct staging {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint8_t *base;
	uint64_t size;
	struct range {
		uint64_t lo, hi;
	} used[COPIES]; /* by address */
	unsigned count;
	uint64_t next_ticket, serving;
};

struct cuda_device {
	struct clv_stress_device base;
	struct clv_cuda_program *program;
	cleave_stream *own; /* the host's, one a device */
	int devices;
	struct staging staging;
};

struct copy {
	struct cuda_device *device;
	struct clv_stress_work *work;
	uint8_t *bytes;
};

static struct cuda_device *device_of(struct clv_stress_device *self)
{
	return CLV_CONTAINER_OF(self, struct cuda_device, base);
}

/* ---- pinned memory ---- */

static uint8_t *place(struct staging *s, uint64_t size)
{
	uint64_t lo = 0;
	unsigned i = 0;
	if (s->count == COPIES)
		return NULL;
	for (; i < s->count && s->used[i].lo - lo < size; i++)
		lo = s->used[i].hi;
	if (i == s->count && s->size - lo < size)
		return NULL;
	for (unsigned k = s->count++; k > i; k--)
		s->used[k] = s->used[k - 1];
	s->used[i] = (struct range){lo, lo + size};
	return s->base + lo;
}

/* NULL: no copy ends any more. */
static uint8_t *staging_take(struct staging *s, uint64_t size)
{
	uint8_t *at = NULL;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	size = clv_align_up(size, CLV_GRAIN);
	pthread_mutex_lock(&s->lock);
	uint64_t ticket = s->next_ticket++;
	while (ticket != s->serving || !(at = place(s, size)))
		if (pthread_cond_timedwait(&s->changed, &s->lock, &until))
			break;
	s->serving = clv_max_u64(s->serving, ticket + 1);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return at;
}

static void staging_give(struct staging *s, const uint8_t *at)
{
	pthread_mutex_lock(&s->lock);
	unsigned i = 0;
	while (s->base + s->used[i].lo != at)
		i++;
	for (s->count--; i < s->count; i++)
		s->used[i] = s->used[i + 1];
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* ---- work ---- */

static void take_time(void *ns)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)(intptr_t)ns}, NULL);
}

static void end(struct copy *k, enum clv_pattern_verdict verdict, const struct clv_pattern_wrong *wrong)
{
	struct clv_stress_work *work = k->work;
	if (k->bytes)
		staging_give(&k->device->staging, k->bytes);
	free(k);
	work->happened(work, verdict, wrong);
}

static void has_happened(void *arg)
{
	struct copy *k = arg;
	const struct clv_stress_work *w = k->work;
	struct clv_pattern_wrong wrong = {0};
	enum clv_pattern_verdict verdict = CLV_PATTERN_GOOD;
	if (!w->write && !atomic_load_explicit(w->stop, memory_order_relaxed))
		verdict = clv_pattern_compare(k->bytes, w->addr, &w->stamp, w->full, &wrong);
	end(k, verdict, &wrong);
}

/* In the context of the stream. */
static CUresult put(struct copy *k, CUstream stream, uint64_t ns)
{
	const struct clv_cuda_api *api = k->device->program->api;
	const struct clv_stress_work *w = k->work;
	size_t size = (size_t)w->stamp.size;
	CUresult r = CUDA_SUCCESS;
	if (ns)
		r = api->cuLaunchHostFunc(stream, take_time, (void *)(intptr_t)clv_min_u64(ns, SLOWEST_NS));
	if (r == CUDA_SUCCESS && w->write) {
		clv_pattern_fill(k->bytes, w->addr, &w->stamp, true);
		r = api->cuMemcpyHtoDAsync_v2(w->addr, k->bytes, size, stream);
	} else if (r == CUDA_SUCCESS) {
		r = api->cuMemcpyDtoHAsync_v2(k->bytes, w->addr, size, stream);
	}
	return r == CUDA_SUCCESS ? api->cuLaunchHostFunc(stream, has_happened, k) : r;
}

static bool launch(struct clv_stress_device *self, cleave_stream stream, uint64_t ns, struct clv_stress_work *work)
{
	struct cuda_device *d = device_of(self);
	const struct clv_cuda_api *api = d->program->api;
	struct copy *k = malloc(sizeof(*k));
	CUcontext popped;
	if (!k)
		return false;
	*k = (struct copy){d, work, NULL};
	if (!atomic_load_explicit(work->stop, memory_order_relaxed))
		k->bytes = staging_take(&d->staging, work->stamp.size);
	CUresult r = CUDA_ERROR_UNKNOWN;
	if (k->bytes && api->cuCtxPushCurrent_v2(d->program->contexts[work->device]) == CUDA_SUCCESS) {
		r = put(k, (CUstream)(uintptr_t)stream.handle, ns);
		api->cuCtxPopCurrent_v2(&popped);
	}
	if (r != CUDA_SUCCESS)
		end(k, CLV_PATTERN_REFUSED, NULL);
	return true;
}

static void complete(struct clv_stress_device *self, cleave_stream stream)
{
	self->driver->stream_synchronize(self->driver, stream);
}

static bool touch(struct clv_stress_device *self, struct clv_stress_work *work)
{
	cleave_stream own = device_of(self)->own[work->device];
	bool taken = launch(self, own, 0, work);
	complete(self, own);
	return taken;
}

static void pass_time(struct clv_stress_device *self, uint64_t ns)
{
}

static bool new_stream(struct clv_stress_device *self, int device, uint32_t index, cleave_stream *out)
{
	return clv_cuda_program_stream(device_of(self)->program, device, out, NULL);
}

static void end_stream(struct clv_stress_device *self, cleave_stream stream)
{
	complete(self, stream);
	clv_cuda_program_stream_end(device_of(self)->program, stream);
}

/* ---- the rest ---- */

static uint64_t used(struct clv_stress_device *self, int device)
{
	return clv_ledger_used(self->driver, device);
}

static void set_foreign(struct clv_stress_device *self, int device, uint64_t bytes)
{
	clv_ledger_set_foreign(self->driver, device, bytes);
}

static const char *leaks(struct clv_stress_device *self)
{
	return clv_ledger_leaks(self->driver);
}

static void close_cuda(struct clv_stress_device *self)
{
	struct cuda_device *d = device_of(self);
	while (d->devices)
		end_stream(self, d->own[--d->devices]);
	if (d->staging.base)
		d->program->api->cuMemFreeHost(d->staging.base);
	if (self->driver)
		self->driver->close(self->driver);
	pthread_mutex_destroy(&d->staging.lock);
	pthread_cond_destroy(&d->staging.changed);
	free(d->own);
	free(d);
}

static bool start(struct cuda_device *d, const struct clv_stress_device_config *config, struct clv_error *err)
{
	struct clv_cuda_program *p = d->program;
	const struct clv_cuda_api *api = p->api;
	if (!api->cuMemHostAlloc || !api->cuMemFreeHost || !api->cuLaunchHostFunc || !api->cuMemcpyHtoDAsync_v2 ||
	    !api->cuMemcpyDtoHAsync_v2)
		return clv_error_set(err, "the driver has no functions for copies and host work");
	for (int i = 0; i < config->devices; i++) {
		uint64_t left = 0, total = 0;
		p->driver->mem_get_info(p->driver, i, &left, &total);
		if (left < config->capacity + LEAST_LEFT)
			return clv_error_set(err, "device %d has %llu MiB free, which is too little for this capacity",
					     i, (unsigned long long)(left / CLV_MIB));
	}
	d->base.driver = clv_ledger_open(p->driver, config->devices, config->capacity);
	d->own = calloc((size_t)config->devices, sizeof(*d->own));
	if (!d->base.driver || !d->own)
		return clv_error_set(err, "out of host memory");
	/* room for the largest block there can be, and then some */
	void *base = NULL;
	d->staging.size = clv_align_up(config->capacity, CLV_GRAIN) + 64 * CLV_MIB;
	CUresult r = api->cuMemHostAlloc(&base, (size_t)d->staging.size, CU_MEMHOSTALLOC_PORTABLE);
	if (r != CUDA_SUCCESS)
		return clv_error_set(err, "pinned memory for copies: %s", clv_cuda_program_text(p, r));
	d->staging.base = base;
	for (; d->devices < config->devices; d->devices++)
		if (!clv_cuda_program_stream(p, d->devices, &d->own[d->devices], err))
			return false;
	return true;
}

struct clv_stress_device *clv_stress_cuda_open(const struct clv_stress_device_config *config,
					       struct clv_cuda_program *program, struct clv_error *err)
{
	static const struct clv_stress_device_ops ops = {
		.new_stream = new_stream,
		.end_stream = end_stream,
		.launch = launch,
		.touch = touch,
		.complete = complete,
		.pass_time = pass_time,
		.used = used,
		.set_foreign = set_foreign,
		.leaks = leaks,
		.close = close_cuda,
	};
	struct cuda_device *d = calloc(1, sizeof(*d));
	if (!d) {
		clv_error_set(err, "out of host memory");
		return NULL;
	}
	d->base.ops = &ops;
	d->program = program;
	pthread_mutex_init(&d->staging.lock, NULL);
	pthread_cond_init(&d->staging.changed, NULL);
	if (start(d, config, err))
		return &d->base;
	close_cuda(&d->base);
	return NULL;
}
