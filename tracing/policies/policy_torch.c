/* SPDX-License-Identifier: MIT
 *
 * policy_torch: PyTorch's native caching allocator as a policy of `cleave replay`: the model of torch_allocator over a
 * simulated device, under any settings and capacity. Owned by one replay.
 */
#include "../memory.h"
#include "policy.h"
#include "torch_device.h"
#include "torch_explain.h"
#include "torch_window.h"

#include <string.h>

struct torch {
	struct clv_policy base;
	const struct clv_trace *trace;
	struct clv_torch_settings settings;
	struct clv_torch *m;
	struct clv_torch_device device;
	uint64_t limit;
	uint64_t waits;
	uint32_t *block_of; /* the model's block by dense id; CLV_TORCH_NONE: none */
	struct clv_torch_request failed;
};

static struct torch *self_of(struct clv_policy *policy)
{
	return CLV_CONTAINER_OF(policy, struct torch, base);
}

/* The flush waits for all streams, so every free that was requested by then is complete. */
static void sync_pending(void *ctx)
{
	struct torch *t = ctx;
	uint32_t i;
	t->waits += clv_torch_pending(t->m) != 0;
	while ((i = clv_torch_first_pending(t->m)) != CLV_TORCH_NONE) {
		struct clv_torch_block_info info;
		clv_torch_block_get(t->m, i, &info);
		clv_torch_free_completed(t->m, i);
		t->block_of[info.owner] = CLV_TORCH_NONE;
	}
}

static bool torch_alloc(struct clv_policy *policy, uint32_t block, uint64_t size, uint32_t stream, uint16_t pool)
{
	struct torch *t = self_of(policy);
	struct clv_torch_request request = {
		.size = size,
		.stream = t->trace->streams[stream],
		.pool = pool,
		.owner = block,
		.capturing = pool != 0, /* a request reaches a private pool only while it is diverted there */
	};
	if (clv_torch_malloc(t->m, &request, &t->block_of[block]) == CLV_TORCH_OK)
		return true;
	t->failed = request;
	return false;
}

static void torch_free_requested(struct clv_policy *policy, uint32_t block, uint32_t stream)
{
	struct torch *t = self_of(policy);
	if (t->block_of[block])
		clv_torch_free_requested(t->m, t->block_of[block]);
}

static void torch_free_completed(struct clv_policy *policy, uint32_t block, uint32_t stream)
{
	struct torch *t = self_of(policy);
	uint32_t i = t->block_of[block];
	if (!i)
		return; /* a flush has completed it before */
	t->block_of[block] = CLV_TORCH_NONE;
	if (clv_torch_block_pending(t->m, i))
		clv_torch_free_completed(t->m, i);
	else
		clv_torch_free(t->m, i);
}

/* What failed when it was recorded. Should it succeed here, the program goes on without it all the same. */
static void torch_recorded_oom(struct clv_policy *policy, const struct clv_event_record *e)
{
	struct torch *t = self_of(policy);
	struct clv_torch_request request = {.size = e->size, .stream = t->trace->streams[e->stream]};
	uint32_t block;
	if (clv_torch_malloc(t->m, &request, &block) == CLV_TORCH_OK && block)
		clv_torch_free(t->m, block);
}

static void torch_empty_cache(struct clv_policy *policy)
{
	clv_torch_empty_cache(self_of(policy)->m);
}

static void torch_stats(struct clv_policy *policy, struct clv_policy_stats *out)
{
	struct torch *t = self_of(policy);
	struct clv_torch_stats s;
	clv_torch_get_stats(t->m, &s);
	*out = (struct clv_policy_stats){
		.held_bytes = clv_torch_reserved(t->m),
		.peak_reserved_bytes = (uint64_t)s.of[CLV_TORCH_ALL][CLV_TORCH_RESERVED_BYTES].peak,
		.stranded_peak_bytes = s.stranded_peak_bytes,
		.oom_retries = s.num_alloc_retries,
		.waits = t->waits,
		.driver = t->device.counts,
	};
}

static void torch_explain(struct clv_policy *policy, char *buf, size_t len)
{
	struct torch *t = self_of(policy);
	clv_torch_explain(t->m, &t->settings, &t->failed, t->limit, t->device.capacity, buf, len);
}

static void torch_close(struct clv_policy *policy)
{
	struct torch *t = self_of(policy);
	clv_torch_close(t->m);
	clv_mem_free(t->block_of);
	clv_mem_free(t);
}

static const struct clv_policy_ops torch_ops = {
	.alloc = torch_alloc,
	.free_requested = torch_free_requested,
	.free_completed = torch_free_completed,
	.empty_cache = torch_empty_cache,
	.stats = torch_stats,
	.explain = torch_explain,
	.close = torch_close,
};

static const struct clv_policy_ops recorded_ops = {
	.alloc = torch_alloc,
	.free_requested = torch_free_requested,
	.free_completed = torch_free_completed,
	.recorded_oom = torch_recorded_oom,
	.empty_cache = torch_empty_cache,
	.stats = torch_stats,
	.explain = torch_explain,
	.close = torch_close,
};

/* The limit of the settings themselves, as far as the size of the device is known. */
static bool settings_limit(const struct clv_policy_config *config, struct torch *t, struct clv_error *err)
{
	const struct clv_torch_recorded *r = &config->trace->torch;
	uint64_t total = config->capacity ? config->capacity : r->has_probe ? r->total_bytes : 0;
	t->limit = CLV_TORCH_UNLIMITED;
	if (t->settings.memory_fraction >= 1.0)
		return true;
	if (!total)
		return clv_error_set(
			err, "per_process_memory_fraction is a part of the device's memory, and the file does not "
			     "say how large that was: give --capacity");
	t->limit = clv_torch_fraction_limit(t->settings.memory_fraction, total);
	return true;
}

static bool read_settings(const struct clv_policy_config *config, const char *settings, struct torch *t,
			  struct clv_error *err)
{
	bool recorded = strcmp(settings, "recorded") == 0;
	t->base.ops = recorded ? &recorded_ops : &torch_ops;
	if (!(recorded ? clv_torch_settings_recorded(&t->settings, &config->trace->torch, err)
		       : clv_torch_settings_parse(&t->settings, settings, err)))
		return false;
	if (t->settings.cuda_malloc_async)
		return clv_error_set(
			err, "backend:cudaMallocAsync is another allocator (the driver's memory pools); torch:... "
			     "models PyTorch's native one");
	if (!settings_limit(config, t, err))
		return false;
	if (recorded)
		t->limit = clv_min_u64(t->limit, clv_torch_recorded_limit(&config->trace->torch));
	return true;
}

static bool make_pools(const struct clv_history *h, struct torch *t)
{
	bool *custom = clv_torch_custom_pools(h, t->trace->torch.expandable), ok = custom != NULL;
	for (uint32_t p = 1; ok && p < h->pool_count; p++)
		ok = clv_torch_pool_create(t->m, &(struct clv_torch_pool_options){.custom_allocator = custom[p]}) == p;
	clv_mem_free(custom);
	return ok;
}

struct clv_policy *clv_policy_torch(const struct clv_policy_config *config, const char *settings, struct clv_error *err)
{
	const struct clv_torch_recorded *r = &config->trace->torch;
	struct torch *t = clv_mem_zalloc(1, sizeof(*t));
	if (!t) {
		clv_error_set(err, "torch: out of host memory");
		return NULL;
	}
	t->trace = config->trace;
	if (!read_settings(config, settings, t, err)) {
		clv_mem_free(t);
		return NULL;
	}
	clv_torch_device_init(&t->device, config->capacity);
	struct clv_torch_config model = {
		.settings = t->settings,
		.source = clv_torch_device_source(&t->device),
		.limit = t->limit,
		.device_total = clv_max_u64(config->capacity, r->has_probe ? r->total_bytes : 0),
	};
	model.source.sync = sync_pending;
	model.source.sync_ctx = t;
	if (!config->capacity)
		model.device_total = 0; /* without limit, so no reservation of addresses may be one */
	t->m = clv_torch_open(&model);
	t->block_of = clv_mem_zalloc((size_t)config->history->block_count + 1, sizeof(*t->block_of));
	if (!t->m || !t->block_of || !make_pools(config->history, t)) {
		torch_close(&t->base);
		clv_error_set(err, "torch: out of host memory");
		return NULL;
	}
	return &t->base;
}
