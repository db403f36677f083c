/* SPDX-License-Identifier: MIT
 *
 * packed: an oracle, which knows the whole history before its first request. All blocks are packed into one region, each at
 * the sizes and offsets that the heap could give (multiples of 512 B), live from the request to the completed free. What
 * it reserves is what is needed when nothing moves and nothing has to be guessed; it calls no driver.
 */
#include "../../src/base/size_text.h"
#include "../memory.h"
#include "policy.h"

#include <cleave/plan.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What no device has is not packed: the request is refused when its turn comes. Far from overflow in any sum of them. */
#define SIZE_MAX_BYTES ((uint64_t)1 << 46)

/* Steps of the search: some two seconds. */
#define EFFORT 200000000

struct packed {
	struct clv_policy base;
	const struct clv_history *history;
	uint64_t capacity;
	uint64_t *offsets; /* by block id; NULL: not packed yet */
	uint64_t top;      /* offset + size of the highest block so far */
	uint64_t least;    /* that no packing goes below */
	bool proved;       /* ours does not */
	char failure[1024];
};

static struct packed *self_of(struct clv_policy *policy)
{
	return CLV_CONTAINER_OF(policy, struct packed, base);
}

static uint64_t size_of(uint64_t requested)
{
	return requested <= SIZE_MAX_BYTES ? clv_align_up(requested, CLV_GRAIN) : 0;
}

/* Time is the index of the event, from 1: what was there before begins at 0, what is never freed ends after all. */
static void fill(const struct clv_history *h, cleave_pack_buffer *buffers)
{
	int64_t end = (int64_t)h->event_count + 1;
	for (uint32_t i = 0; i < h->block_count; i++)
		buffers[i] = (cleave_pack_buffer){.upper = end, .alignment = CLV_GRAIN, .offset = CLEAVE_PACK_ANYWHERE};
	for (uint32_t i = 0; i < h->initial_count; i++)
		buffers[h->initial[i].block].size = size_of(h->initial[i].size);
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->block == CLV_NO_BLOCK)
			continue;
		if (e->action == CLV_ACTION_ALLOC) {
			buffers[e->block].size = size_of(e->size);
			buffers[e->block].lower = (int64_t)i + 1;
		} else if (e->action == CLV_ACTION_FREE_COMPLETED) {
			buffers[e->block].upper = (int64_t)i + 1;
		}
	}
}

static bool pack(struct packed *p)
{
	const struct clv_history *h = p->history;
	cleave_pack_buffer *buffers = clv_mem_alloc(h->block_count * sizeof(*buffers));
	uint64_t *offsets = clv_mem_alloc(h->block_count * sizeof(*offsets));
	const cleave_pack_settings settings = {.capacity = p->capacity, .effort = EFFORT};
	cleave_pack_result result;
	char why[512] = "";
	int r = -ENOSPC;
	if (buffers && offsets) {
		fill(h, buffers);
		r = cleave_pack(buffers, h->block_count, &settings, offsets, &result, why, sizeof(why));
	}
	clv_mem_free(buffers);
	if (r == 0) {
		p->offsets = offsets;
		p->least = result.lower_bound;
		p->proved = result.optimal;
		return true;
	}
	clv_mem_free(offsets);
	snprintf(p->failure, sizeof(p->failure), "the history cannot be packed: %s",
		 why[0] ? why : "out of host memory");
	return false;
}

static bool refused(struct packed *p, uint64_t size, uint64_t top)
{
	char bytes[32], end[32], capacity[32];
	clv_size_print(size, bytes, sizeof(bytes));
	if (size > SIZE_MAX_BYTES)
		snprintf(p->failure, sizeof(p->failure), "no device has %s", bytes);
	else
		snprintf(p->failure, sizeof(p->failure), "in the best packing found, this %s would end at %s of %s",
			 bytes, clv_size_print(top, end, sizeof(end)),
			 clv_size_print(p->capacity, capacity, sizeof(capacity)));
	return false;
}

static bool packed_alloc(struct clv_policy *policy, uint32_t block, uint64_t size, uint32_t stream, uint16_t pool)
{
	struct packed *p = self_of(policy);
	if (size > SIZE_MAX_BYTES)
		return refused(p, size, 0);
	if (!p->offsets && !pack(p))
		return false;
	uint64_t top = size ? p->offsets[block] + size_of(size) : 0;
	if (p->capacity && top > p->capacity)
		return refused(p, size, top);
	p->top = clv_max_u64(p->top, top);
	return true;
}

static void packed_free(struct clv_policy *policy, uint32_t block, uint32_t stream)
{
}

static void packed_stats(struct clv_policy *policy, struct clv_policy_stats *out)
{
	struct packed *p = self_of(policy);
	*out = (struct clv_policy_stats){.held_bytes = p->top,
					 .peak_reserved_bytes = p->top,
					 .searched = p->offsets != NULL,
					 .proved = p->proved,
					 .least_bytes = p->least};
}

static void packed_explain(struct clv_policy *policy, char *buf, size_t len)
{
	snprintf(buf, len, "%s", self_of(policy)->failure);
}

static void packed_close(struct clv_policy *policy)
{
	struct packed *p = self_of(policy);
	clv_mem_free(p->offsets);
	clv_mem_free(p);
}

static const struct clv_policy_ops packed_ops = {
	.alloc = packed_alloc,
	.free_completed = packed_free,
	.stats = packed_stats,
	.explain = packed_explain,
	.close = packed_close,
};

struct clv_policy *clv_policy_packed(const struct clv_policy_config *config, const char *settings,
				     struct clv_error *err)
{
	if (settings[0]) {
		clv_error_set(err, "the policy packed has no settings, '%.200s' makes no sense", settings);
		return NULL;
	}
	struct packed *p = clv_mem_zalloc(1, sizeof(*p));
	if (!p) {
		clv_error_set(err, "packed: out of host memory");
		return NULL;
	}
	p->base.ops = &packed_ops;
	p->history = config->history;
	p->capacity = config->capacity;
	return &p->base;
}
