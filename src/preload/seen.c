/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "seen.h"

#include "../../tracing/record/recording.h"
#include "../host/meta.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARDS 64u
#define BUCKETS_MIN 64u
#define PRIMARIES 64

_Atomic int clv_seen_how;

/* What the program has, by kind and key. */
static struct shard {
	pthread_mutex_t lock;
	struct entry {
		struct clv_seen_item item;
		struct entry *next;
	} * *buckets;
	size_t bucket_count, count; /* a power of two */
} shards[SHARDS] = {[0 ... SHARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static _Atomic int captures;
static _Atomic(CUcontext) primaries[PRIMARIES];
static _Atomic uint64_t failures;

/* ---- start ---- */

bool clv_seen_decide(void)
{
	const char *conf = getenv("CLEAVE_CONF");
	int undecided = CLV_SEEN_UNDECIDED;
	if (conf && (strstr(conf, "trace") || strstr(conf, "observe")))
		clv_process_open();
	else
		atomic_compare_exchange_strong(&clv_seen_how, &undecided, CLV_SEEN_NOT);
	return atomic_load(&clv_seen_how) > CLV_SEEN_NOT;
}

static void name_device(int ordinal, char *buf, size_t len)
{
	CUdevice device;
	if (CLV_PASS(cuDeviceGet, &device, ordinal) != CUDA_SUCCESS ||
	    CLV_PASS(cuDeviceGetName, buf, (int)len, device) != CUDA_SUCCESS)
		*buf = '\0';
}

static void tell_devices(void)
{
	int count = 0;
	CUdevice device;
	size_t total;
	if (CLV_PASS(cuDeviceGetCount, &count) != CUDA_SUCCESS)
		return;
	for (int d = 0; d < count; d++)
		if (CLV_PASS(cuDeviceGet, &device, d) == CUDA_SUCCESS &&
		    CLV_PASS(cuDeviceTotalMem_v2, &total, device) == CUDA_SUCCESS)
			clv_recording_device(d, total);
}

static void say(const char *sentence)
{
	clv_say("%s", sentence);
}

void clv_seen_open(const struct clv_settings *settings, bool heap)
{
	struct clv_error err = {""};
	char name[4096];
	const struct clv_recording_config config = {.settings = settings,
						    .path = settings->trace,
						    .keep_files = true,
						    .name_device = name_device,
						    .say = say};
	int how = CLV_SEEN_NOT;
	if (!settings->trace[0]) {
		if (settings->observe)
			clv_say("CLEAVE_CONF: observe without trace:FILE records nothing");
	} else if (!clv_recording_start(&config, name, sizeof(name), &err)) {
		clv_say("%s: nothing is recorded", err.text);
	} else {
		how = heap ? CLV_SEEN_BESIDE : CLV_SEEN_ALONE;
		if (!heap)
			tell_devices();
		clv_say("process %ld is recorded into %s", (long)getpid(), name);
	}
	atomic_store(&clv_seen_how, how);
}

/* A lock may be held by a thread that is not here. */
void clv_seen_in_child(void)
{
	atomic_store(&clv_seen_how, CLV_SEEN_NOT);
}

/* ---- the table ---- */

static uint64_t hash_of(enum clv_seen_kind kind, uint64_t key)
{
	/* memory is freed by any call that frees memory */
	return clv_mix64(key * CLV_SEEN_KINDS + (kind == CLV_SEEN_POOL ? CLV_SEEN_MEMORY : kind));
}

static bool same(const struct clv_seen_item *item, enum clv_seen_kind kind, uint64_t key)
{
	return item->key == key && (item->kind == kind || (item->kind <= CLV_SEEN_POOL && kind <= CLV_SEEN_POOL));
}

static bool grow(struct shard *s)
{
	size_t more = s->bucket_count ? s->bucket_count * 2 : BUCKETS_MIN;
	struct entry **grown = clv_meta_zalloc(more * sizeof(*grown));
	if (!grown)
		return s->buckets != NULL; /* longer chains are slower, not wrong */
	for (size_t i = 0; i < s->bucket_count; i++)
		for (struct entry *e = s->buckets[i], *next; e; e = next) {
			struct entry **bucket = &grown[hash_of(e->item.kind, e->item.key) / SHARDS & (more - 1)];
			next = e->next;
			e->next = *bucket;
			*bucket = e;
		}
	clv_meta_free(s->buckets);
	s->buckets = grown;
	s->bucket_count = more;
	return true;
}

/* False: no host memory. */
static bool put(const struct clv_seen_item *item)
{
	uint64_t hash = hash_of(item->kind, item->key);
	struct shard *s = &shards[hash % SHARDS];
	struct entry *e = clv_meta_alloc(sizeof(*e));
	pthread_mutex_lock(&s->lock);
	bool room = e && (s->count < s->bucket_count || grow(s));
	if (room) {
		struct entry **bucket = &s->buckets[hash / SHARDS & (s->bucket_count - 1)];
		*e = (struct entry){*item, *bucket};
		*bucket = e;
		s->count++;
	}
	pthread_mutex_unlock(&s->lock);
	if (!room)
		clv_meta_free(e);
	return room;
}

static struct clv_seen_item take(enum clv_seen_kind kind, uint64_t key)
{
	uint64_t hash = hash_of(kind, key);
	struct shard *s = &shards[hash % SHARDS];
	struct clv_seen_item item = {NULL};
	struct entry *e = NULL;
	pthread_mutex_lock(&s->lock);
	if (s->buckets) {
		struct entry **link = &s->buckets[hash / SHARDS & (s->bucket_count - 1)];
		while (*link && !same(&(*link)->item, kind, key))
			link = &(*link)->next;
		if ((e = *link)) {
			item = e->item;
			*link = e->next;
			s->count--;
		}
	}
	pthread_mutex_unlock(&s->lock);
	clv_meta_free(e);
	return item;
}

/* ---- telling ---- */

static void tell(enum clv_event event, const struct clv_seen_item *item, const char *name, uint64_t stream, uint64_t b)
{
	clv_record_event(&(struct clv_record_event){.event = event,
						    .device = item->device,
						    .stream = stream,
						    .addr = item->key,
						    .size = item->size,
						    .a = event == CLV_EVENT_ALLOC ? item->size : 0,
						    .b = b,
						    .text = item->is_request ? NULL : name});
}

static void tell_has(const struct clv_seen_item *item)
{
	tell(item->is_request ? CLV_EVENT_ALLOC : CLV_EVENT_DRIVER_ALLOC, item, item->name, item->stream, 0);
}

static void tell_gone(const struct clv_seen_item *item, const char *name, uint64_t stream)
{
	if (item->is_request)
		tell(CLV_EVENT_FREE, item, name, stream, item->stream);
	else
		tell(CLV_EVENT_DRIVER_FREE, item, name, stream, 0);
}

static int current_device(void)
{
	CUdevice device;
	return CLV_PASS(cuCtxGetDevice, &device) == CUDA_SUCCESS ? (int)device : 0;
}

static bool is_per_thread(CUstream stream, bool ptsz)
{
	return stream == CU_STREAM_PER_THREAD || (!stream && ptsz);
}

/* The stream by what the call says: nothing is asked of the driver, to which a question may be the end of a capture. */
static uint64_t stream_of(const struct clv_seen_call *call)
{
	static __thread __attribute__((tls_model("initial-exec"))) uint64_t own;
	if (!call->on_stream)
		return UINT64_MAX;
	if (!is_per_thread(call->stream, call->ptsz))
		return clv_recording_stream((cleave_stream){0, (uint64_t)(uintptr_t)call->stream});
	if (!own)
		own = clv_recording_stream((cleave_stream){(uint64_t)gettid(), 2});
	return own;
}

/* In a capture a request makes a node of the graph, and memory only when that is launched. */
static bool is_captured(const struct clv_seen_call *call)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	bool legacy = !is_per_thread(call->stream, call->ptsz) && (!call->stream || call->stream == CU_STREAM_LEGACY);
	if (!call->on_stream || legacy || !atomic_load_explicit(&captures, memory_order_relaxed))
		return false;
	return CLV_PASS_TWIN(call->ptsz, cuStreamIsCapturing, call->stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool is_memory(enum clv_seen_kind kind)
{
	return kind <= CLV_SEEN_POOL;
}

/* Under the relaxed mode, which forbids nothing in a capture. */
static uint64_t free_memory(uint64_t *total)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	size_t free = 0, all = 0;
	bool relaxed = CLV_PASS(cuThreadExchangeStreamCaptureMode, &mode) == CUDA_SUCCESS;
	if (relaxed && CLV_PASS(cuMemGetInfo_v2, &free, &all) != CUDA_SUCCESS)
		free = all = 0;
	if (relaxed)
		CLV_PASS(cuThreadExchangeStreamCaptureMode, &mode);
	*total = all;
	return free;
}

static void tell_failure(CUresult result, const struct clv_seen_call *call)
{
	char text[160];
	uint64_t total = 0, free = result == CUDA_ERROR_OUT_OF_MEMORY ? free_memory(&total) : 0;
	bool request = is_memory(call->kind) && atomic_load(&clv_seen_how) == CLV_SEEN_ALONE &&
		       result == CUDA_ERROR_OUT_OF_MEMORY;
	struct clv_record_event e = {.event = request ? CLV_EVENT_FAIL : CLV_EVENT_DRIVER_FAIL,
				     .device = call->kind == CLV_SEEN_HOST ? -1 : current_device(),
				     .stream = stream_of(call),
				     .addr = free,
				     .size = call->size,
				     .a = request ? ++failures : (uint64_t)result,
				     .text = request ? text : call->name};
	snprintf(text, sizeof(text), "call=%s device=%llu", call->name, (unsigned long long)total);
	clv_record_event(&e);
}

void clv_seen_got(CUresult result, const struct clv_seen_call *call)
{
	if (result != CUDA_SUCCESS) {
		tell_failure(result, call);
		return;
	}
	if (!call->key)
		return; /* of size 0 */
	CUcontext context = NULL;
	if (call->kind == CLV_SEEN_MEMORY || call->kind == CLV_SEEN_ARRAY || call->kind == CLV_SEEN_HOST)
		CLV_PASS(cuCtxGetCurrent, &context);
	struct clv_seen_item item = {.name = call->name,
				     .kind = call->kind,
				     .is_request = is_memory(call->kind) &&
						   atomic_load(&clv_seen_how) == CLV_SEEN_ALONE && !is_captured(call),
				     .device = call->kind == CLV_SEEN_HOST    ? -1
					       : call->kind == CLV_SEEN_FRAME ? call->device
									      : current_device(),
				     .key = call->key,
				     .size = call->size,
				     .stream = stream_of(call),
				     .context = context};
	if (put(&item))
		tell_has(&item);
	else
		CLV_SAY_ONCE("no host memory to remember by what the driver has given: some of it is not recorded");
}

struct clv_seen_item clv_seen_frees_now(const struct clv_seen_call *call)
{
	struct clv_seen_item item = take(call->kind, call->key);
	if (item.name)
		tell_gone(&item, call->name, stream_of(call));
	return item;
}

void clv_seen_kept(const struct clv_seen_item *item)
{
	if (put(item))
		tell_has(item);
}

void clv_seen_note(enum clv_event event, const char *name, uint64_t addr, uint64_t size, uint64_t handle)
{
	clv_record_event(&(struct clv_record_event){.event = event,
						    .device = current_device(),
						    .stream = UINT64_MAX,
						    .addr = addr,
						    .size = size,
						    .a = handle,
						    .text = name});
}

/* ---- contexts, captures ---- */

void clv_seen_context_goes(CUcontext context, const char *name)
{
	if (!context || !clv_seen())
		return;
	for (unsigned i = 0; i < SHARDS; i++) {
		struct entry *gone = NULL;
		pthread_mutex_lock(&shards[i].lock);
		for (size_t k = 0; k < shards[i].bucket_count; k++)
			for (struct entry **link = &shards[i].buckets[k], *e; (e = *link);) {
				if (e->item.context != context) {
					link = &e->next;
					continue;
				}
				*link = e->next;
				e->next = gone;
				gone = e;
				shards[i].count--;
			}
		pthread_mutex_unlock(&shards[i].lock);
		for (struct entry *e = gone, *next; e; e = next) {
			next = e->next;
			tell_gone(&e->item, name, UINT64_MAX);
			clv_meta_free(e);
		}
	}
}

void clv_seen_primary(CUdevice device, CUcontext context)
{
	if (device >= 0 && device < PRIMARIES)
		atomic_store_explicit(&primaries[device], context, memory_order_relaxed);
}

CUcontext clv_seen_primary_of(CUdevice device)
{
	return device >= 0 && device < PRIMARIES ? atomic_load_explicit(&primaries[device], memory_order_relaxed)
						 : NULL;
}

bool clv_seen_is_primary(CUcontext context)
{
	for (CUdevice d = 0; d < PRIMARIES; d++)
		if (clv_seen_primary_of(d) == context)
			return true;
	return false;
}

void clv_seen_captures(int change)
{
	atomic_fetch_add_explicit(&captures, change, memory_order_relaxed);
}
