/* SPDX-License-Identifier: MIT
 *
 * The policy `cleave`: no model, but the heap itself, over a simulated device or a real one. On the simulated one blocks
 * freed on one stream are complete for others when the event lag of recorded time has passed.
 */
#include "policy.h"

#include "../../src/driver/ledger.h"
#include "../../src/driver/sim.h"
#include "../../src/heap/failure.h"

#include <stdlib.h>
#include <string.h>

/* More than any device has: without a limit. */
#define UNLIMITED ((uint64_t)1 << 46)

struct cleave_policy {
	struct clv_policy base;
	struct clv_driver *driver;     /* the heap's: simulated, or a ledger of another device */
	struct clv_call_counts before; /* what was asked of it before we came */
	cleave_heap *heap;
	const uint64_t *recorded_streams;
	const cleave_stream *streams; /* of the other device */
	cleave_ptr *blocks;           /* by block id */
	uint64_t stranded_peak;
};

static struct cleave_policy *self_of(struct clv_policy *p)
{
	return CLV_CONTAINER_OF(p, struct cleave_policy, base);
}

static cleave_stream stream_of(const struct cleave_policy *p, uint32_t stream)
{
	return p->streams ? p->streams[stream]
			  : (cleave_stream){p->recorded_streams[stream], p->recorded_streams[stream]};
}

static void note_stranded(struct cleave_policy *p)
{
	p->stranded_peak = clv_max_u64(p->stranded_peak, clv_heap_stranded(p->heap, 0));
}

static bool policy_alloc(struct clv_policy *base, uint32_t block, uint64_t size, uint32_t stream, uint16_t pool)
{
	struct cleave_policy *p = self_of(base);
	if (cleave_alloc(p->heap, 0, stream_of(p, stream), size, &p->blocks[block]) != 0)
		return false;
	note_stranded(p);
	return true;
}

static void policy_free(struct clv_policy *base, uint32_t block, uint32_t stream)
{
	struct cleave_policy *p = self_of(base);
	cleave_free(p->heap, p->blocks[block], stream_of(p, stream));
	p->blocks[block] = 0;
	note_stranded(p);
}

static void policy_set_time(struct clv_policy *base, uint64_t us)
{
	struct cleave_policy *p = self_of(base);
	(p->streams ? clv_ledger_set_time : clv_sim_set_time)(p->driver, us * 1000);
}

static void policy_stats(struct clv_policy *base, struct clv_policy_stats *out)
{
	struct cleave_policy *p = self_of(base);
	cleave_heap_stats s;
	memset(out, 0, sizeof(*out));
	if (cleave_heap_get_stats(p->heap, 0, &s) != 0)
		return;
	out->held_bytes = s.held_bytes;
	out->peak_reserved_bytes = s.held_peak_bytes;
	out->stranded_peak_bytes = p->stranded_peak;
	out->waits = s.device_waits + s.host_waits;
	p->driver->counts(p->driver, &out->driver);
	out->driver.ns -= p->before.ns;
	for (int i = 0; i < CLV_CALL_COUNT; i++)
		out->driver.calls[i] -= p->before.calls[i];
}

static void policy_explain(struct clv_policy *base, char *buf, size_t len)
{
	cleave_failure f;
	if (cleave_heap_last_failure(self_of(base)->heap, 0, &f) == 0)
		cleave_failure_print(&f, buf, len);
	else if (len)
		buf[0] = '\0';
}

static void policy_close(struct clv_policy *base)
{
	struct cleave_policy *p = self_of(base);
	cleave_heap_close(p->heap);
	if (p->driver)
		p->driver->close(p->driver);
	free(p->blocks);
	free(p);
}

struct clv_policy *clv_policy_cleave(const struct clv_policy_config *config, const char *settings,
				     struct clv_error *err)
{
	static const struct clv_policy_ops ops = {
		.alloc = policy_alloc,
		.free_completed = policy_free,
		.set_time = policy_set_time,
		.stats = policy_stats,
		.explain = policy_explain,
		.close = policy_close,
	};
	struct cleave_policy *p = calloc(1, sizeof(*p));
	if (!p) {
		clv_error_set(err, "out of host memory");
		return NULL;
	}
	p->base.ops = &ops;
	p->recorded_streams = config->trace->streams;
	if (config->device) {
		/* a replay takes less time than what was recorded: the heap is told the recorded time here as well */
		p->driver = clv_ledger_open(config->device->driver, 1, config->capacity);
		p->streams = config->device->streams;
		if (p->driver) {
			p->driver->counts(p->driver, &p->before);
			clv_ledger_set_time(p->driver, 0);
		}
	} else {
		struct clv_sim_config sim = {
			.capacity = config->capacity ? config->capacity : UNLIMITED,
			.clock_free = true,
			.event_lag_ns = config->event_lag_us * 1000,
		};
		p->driver = clv_sim_open(&sim);
	}
	p->blocks = calloc(clv_max_u64(config->history->block_count, 1), sizeof(*p->blocks));
	char why[512] = "out of host memory";
	if (p->driver && p->blocks && cleave_heap_open(&p->heap, p->driver, settings, why, sizeof(why)) == 0)
		return &p->base;
	clv_error_set(err, "cleave: %s", why);
	policy_close(&p->base);
	return NULL;
}
