/* SPDX-License-Identifier: MIT
 *
 * A workload is a program of allocations and frees; what it calls writes the events of a history. Sizes are those of
 * real models, or drawn; how much is live is a share of the capacity. Time goes on with each event, and by more where
 * a program would compute.
 */
#include "profile.h"

#include "../../tracing/memory.h"

#include <string.h>

#define MIB(x) ((uint64_t)((x) * (double)CLV_MIB))
#define EVENT_US 20 /* between two events of a program that does not wait */

struct live_block {
	uint64_t addr, size;
	uint32_t stream;
};

struct builder {
	struct clv_trace *trace;
	struct clv_history *history;
	size_t event_room;
	uint64_t capacity, now_us, next_addr, live;
	struct clv_rng rng;
	struct live_block *blocks; /* live; their order is the program's own */
	size_t count, room;
	bool failed; /* host memory is out: nothing more is written */
};

struct clv_profile {
	const char *name, *about;
	void (*build)(struct builder *b);
};

/* ---- what workloads are made of ---- */

static void event(struct builder *b, enum clv_action action, const struct live_block *block)
{
	struct clv_history *h = b->history;
	if (b->failed || !clv_mem_reserve(&h->events, &b->event_room, h->event_count + 1u, sizeof(*h->events))) {
		b->failed = true;
		return;
	}
	h->events[h->event_count++] = (struct clv_event_record){.time_us = b->now_us,
								.addr = block->addr,
								.size = block->size,
								.stream = block->stream,
								.action = (uint8_t)action};
	b->now_us += EVENT_US;
}

static uint64_t bytes_of(const struct live_block *block)
{
	return clv_align_up(block->size, CLV_GRAIN);
}

/* Returns the index of the block, at the end of b->blocks. */
static size_t get(struct builder *b, uint64_t size, uint32_t stream)
{
	if (b->failed || !clv_mem_reserve(&b->blocks, &b->room, b->count + 1, sizeof(*b->blocks))) {
		b->failed = true;
		return 0;
	}
	/* addresses only tell blocks apart, so none is used twice */
	struct live_block block = {.addr = b->next_addr, .size = size, .stream = stream};
	b->next_addr += bytes_of(&block);
	b->live += bytes_of(&block);
	b->blocks[b->count] = block;
	event(b, CLV_ACTION_ALLOC, &block);
	return b->count++;
}

/* The last block takes its place. */
static void put(struct builder *b, size_t index)
{
	if (b->failed)
		return;
	struct live_block block = b->blocks[index];
	b->live -= bytes_of(&block);
	b->blocks[index] = b->blocks[--b->count];
	event(b, CLV_ACTION_FREE_COMPLETED, &block);
}

static void put_any(struct builder *b)
{
	if (b->count)
		put(b, clv_rng_below(&b->rng, b->count));
}

/* A temporary: there for a while, nothing else happening. */
static void flash(struct builder *b, uint64_t size)
{
	size_t i = get(b, size, 0);
	b->now_us += 50;
	if (!b->failed)
		put(b, i);
}

static void compute(struct builder *b, uint64_t us)
{
	b->now_us += us;
}

/* As many sizes in each doubling, in whole MiB/4. */
static uint64_t draw(struct builder *b, uint64_t lo, uint64_t hi)
{
	uint64_t base = (uint64_t)1 << clv_rng_range(&b->rng, clv_log2(lo), clv_log2(hi));
	uint64_t v = base + clv_rng_below(&b->rng, base), grain = lo >= CLV_MIB ? CLV_MIB / 4 : CLV_GRAIN;
	return clv_align_up(clv_min_u64(clv_max_u64(v, lo), hi), grain);
}

static uint64_t percent(const struct builder *b, unsigned n)
{
	return b->capacity / 100 * n;
}

/* ---- the workloads ---- */

/* A full working set of tensors of 1 MiB to 1 GiB, one of which is replaced by another all the time. */
static void build_churn(struct builder *b)
{
	uint64_t target = percent(b, 75);
	for (unsigned i = 0; i < 60000 && !b->failed; i++) {
		uint64_t size = draw(b, CLV_MIB, CLV_GIB);
		while (b->live + size > target)
			put_any(b);
		get(b, size, 0);
	}
}

/* 530 and 270 MiB, the tensors of an MXFP4 layer: two of the small do not fit into the large. Their shares move back
 * and forth, so that each must live where the other was. */
static void build_pair(struct builder *b)
{
	uint64_t target = percent(b, 90);
	for (unsigned i = 0; i < 20000 && !b->failed; i++) {
		unsigned share = i / 1000 % 2 ? 80 : 20;
		uint64_t size = clv_rng_below(&b->rng, 100) < share ? 530 * CLV_MIB : 270 * CLV_MIB;
		while (b->live + size > target)
			put_any(b);
		get(b, size, 0);
	}
}

/* Weights stay; each of 61 layers has a key and a value cache that grows by a thirtieth at a time, being copied into a
 * new tensor, with temporaries of the forward pass in between. */
static void build_kv(struct builder *b)
{
	enum { LAYERS = 61 };
	uint64_t weights = percent(b, 55), layer = weights / LAYERS, target = percent(b, 92);
	size_t caches[2 * LAYERS], growing = 0;
	for (unsigned l = 0; l < LAYERS; l++) {
		for (unsigned k = 0; k < 2; k++) {
			caches[2 * l + k] = get(b, MIB(24), 0);
			get(b, layer / 8 * 3, 0);
			flash(b, layer / 16);
			get(b, layer / 8, 0);
		}
	}
	while (!b->failed) {
		size_t i = caches[growing];
		uint64_t size = clv_align_up(b->blocks[i].size + b->blocks[i].size / 30, 256 * CLV_KIB);
		if (b->live + size > target)
			break;
		flash(b, draw(b, MIB(4), MIB(96)));
		get(b, size, 0);
		compute(b, 200);
		put(b, i); /* the new one, being the last, takes its place */
		growing = (growing + 1) % (2 * LAYERS);
	}
}

/* A device full of NVFP4 experts, 112 a layer, is converted in place: for each expert the gathered weights and the
 * interleaved scales are temporaries, with only some 64 MiB of the device free. */
static void build_experts(struct builder *b)
{
	enum { EXPERTS = 112 };
	static const uint64_t expert[] = {11010048, 1376256, 5505024, 688128}; /* w13, its scales, w2, its scales */
	uint64_t layer = 0, room = MIB(64);
	for (size_t i = 0; i < CLV_ARRAY_LEN(expert); i++)
		layer += EXPERTS * expert[i];
	unsigned layers = 0;
	for (; b->live + layer + room <= b->capacity && !b->failed; layers++) {
		for (size_t i = 0; i < CLV_ARRAY_LEN(expert); i++) {
			get(b, EXPERTS * expert[i], 0);
			/* staging of the loader, while there is room for it */
			for (unsigned k = 0; k < 4 && b->live + layer + 3 * room <= b->capacity; k++)
				flash(b, draw(b, MIB(1), MIB(64)));
		}
		compute(b, 2000);
	}
	/* embeddings and the like fill the rest */
	while (b->live + room < b->capacity && !b->failed)
		get(b, clv_min_u64(MIB(294), clv_align_down(b->capacity - room - b->live, CLV_GRAIN)), 0);
	for (unsigned e = 0; e < layers * EXPERTS && !b->failed; e++) {
		flash(b, expert[0]);
		for (unsigned k = 0; k < 2; k++) {
			size_t gathered = get(b, expert[1 + 2 * k], 0);
			flash(b, expert[1 + 2 * k]);
			if (!b->failed)
				put(b, gathered);
			if (k == 0)
				flash(b, expert[2]);
		}
	}
}

/* 64 streams; each takes what it needs for a step, up to an eighth of the device, and gives most of it back before
 * another stream needs as much. */
static void build_streams(struct builder *b)
{
	enum { STREAMS = 64 };
	for (unsigned step = 0; step < 600 && !b->failed; step++) {
		uint32_t stream = (uint32_t)clv_rng_below(&b->rng, STREAMS);
		uint64_t before = b->live, want = percent(b, 2) + clv_rng_below(&b->rng, percent(b, 10));
		size_t first = b->count;
		while (b->live + MIB(256) < before + want && b->live + MIB(256) < percent(b, 85) && !b->failed)
			get(b, draw(b, 64 * CLV_KIB, MIB(256)), stream);
		compute(b, 1500);
		/* one in sixteen stays until room is needed */
		for (size_t i = b->count; i > first && !b->failed; i--)
			if (clv_rng_below(&b->rng, 16))
				put(b, i - 1);
		while (b->live > percent(b, 60) && !b->failed)
			put_any(b);
	}
}

/* Phases of one kind of size after another. Of each phase a fiftieth of the blocks stays for good where it is. */
static void build_phases(struct builder *b)
{
	static const struct {
		double lo, hi; /* MiB */
	} phases[] = {{2, 20}, {256, 2048}, {0.125, 2}, {20, 128}, {1024, 4096}, {4, 40}, {64, 512}, {0.5, 1024}};
	for (size_t p = 0; p < CLV_ARRAY_LEN(phases) && !b->failed; p++) {
		/* the many small ones of a phase are fewer bytes */
		uint64_t hi = MIB(phases[p].hi), lo = MIB(phases[p].lo), target = percent(b, hi < MIB(8) ? 30 : 85);
		size_t first = b->count;
		for (unsigned more = 4000; more && !b->failed;) {
			uint64_t size = draw(b, lo, hi);
			bool full = b->live + size > target;
			if (full && b->count > first) {
				put(b, first + clv_rng_below(&b->rng, b->count - first));
				more--;
			} else if (full) {
				break;
			} else {
				get(b, size, 0);
			}
		}
		compute(b, 5000);
		if (p + 1 == CLV_ARRAY_LEN(phases))
			break;
		for (size_t i = b->count; i > first && !b->failed; i--)
			if (clv_rng_below(&b->rng, 50) ||
			    b->blocks[i - 1].size > MIB(256)) /* or they would fill the device */
				put(b, i - 1);
	}
}

static const struct clv_profile profiles[] = {
	{"churn", "steady churn of tensors of 1 MiB to 1 GiB", build_churn},
	{"pair", "two sizes that do not fit each other, 530 and 270 MiB", build_pair},
	{"kv", "a slowly growing KV cache among weights", build_kv},
	{"experts", "one-expert temporaries on a full device", build_experts},
	{"streams", "64 streams that take turns", build_streams},
	{"phases", "phases that change sizes", build_phases},
};

const struct clv_profile *clv_profile_at(size_t index)
{
	return index < CLV_ARRAY_LEN(profiles) ? &profiles[index] : NULL;
}

const struct clv_profile *clv_profile_find(const char *name)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(profiles); i++)
		if (strcmp(profiles[i].name, name) == 0)
			return &profiles[i];
	return NULL;
}

const char *clv_profile_name(const struct clv_profile *profile)
{
	return profile->name;
}

const char *clv_profile_about(const struct clv_profile *profile)
{
	return profile->about;
}

/* Streams 0 to 63; the first is the default one. */
static bool begin(struct builder *b, const char *name)
{
	b->trace = clv_mem_zalloc(1, sizeof(*b->trace));
	if (!b->trace)
		return false;
	b->trace->file = clv_mem_strndup(name, strlen(name));
	b->trace->histories = b->history = clv_mem_zalloc(1, sizeof(*b->history));
	if (!b->trace->file || !b->history)
		return false;
	b->trace->history_count = 1;
	b->trace->format = CLV_FORMAT_CLV;
	for (uint64_t s = 0; s < 64; s++)
		if (clv_trace_stream(b->trace, s ? 0x7f0000000000 + s * 0x1000 : 0) == UINT32_MAX)
			return false;
	return true;
}

struct clv_trace *clv_profile_make(const struct clv_profile *profile, uint64_t seed, uint64_t capacity,
				   uint64_t *live_at_end, struct clv_error *err)
{
	struct builder b = {.capacity = capacity, .next_addr = CLV_GIB, .rng = {clv_mix64(seed)}};
	bool ok = begin(&b, profile->name);
	if (ok)
		profile->build(&b);
	ok = ok && !b.failed;
	if (!ok)
		clv_error_set(err, "profile %s: out of host memory", profile->name);
	ok = ok && clv_history_link(b.trace, b.history, err);
	*live_at_end = b.live;
	clv_mem_free(b.blocks);
	if (ok)
		return b.trace;
	clv_trace_free(b.trace);
	return NULL;
}
