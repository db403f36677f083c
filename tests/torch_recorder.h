/* SPDX-License-Identifier: MIT
 *
 * torch_recorder: writes the history that PyTorch would record while a test drives the model of its allocator. Owned by the
 * test.
 */
#ifndef CLV_TORCH_RECORDER_H
#define CLV_TORCH_RECORDER_H

#include "../tracing/policies/torch_device.h"

#define RECORDER_STREAMS 8

struct recorder {
	struct clv_torch *m;
	struct clv_torch_device device;
	struct clv_torch_source inner;
	struct clv_event_record *events;
	uint32_t count, room;
	struct clv_torch_settings settings;
	uint32_t stream;   /* of the request underway */
	uint32_t emptied;  /* empty_cache calls that released something */
	uint32_t deferred; /* frees that had to wait */
	uint32_t retries, ooms;
};

void recorder_open(struct recorder *r, const struct clv_torch_settings *settings, uint64_t limit, uint64_t capacity);
void recorder_close(struct recorder *r);

uint32_t recorder_pool(struct recorder *r, const struct clv_torch_pool_options *options);

uint64_t recorder_stream(uint32_t stream); /* the handle of stream 0 .. RECORDER_STREAMS - 1; they do not ascend */

/* The block, or CLV_TORCH_NONE after an OOM. Before it, the oldest `ready` pending frees complete, unless a pool is used. */
uint32_t recorder_malloc(struct recorder *r, uint64_t size, uint32_t stream, uint32_t pool, uint32_t ready);
void recorder_free(struct recorder *r, uint32_t block);
void recorder_empty_cache(struct recorder *r);
void recorder_empty_pool(struct recorder *r, uint32_t pool);

/* A linked trace with the events from `from` on and the state now. Settings are recorded as `conf`; `total` above 0 adds a
 * probe with a limit of `cap_mib`. Free with clv_trace_free. */
struct clv_trace *recorder_trace(const struct recorder *r, uint32_t from, const char *conf, uint64_t cap_mib,
				 uint64_t total);

#endif
