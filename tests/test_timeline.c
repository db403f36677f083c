/* SPDX-License-Identifier: MIT
 *
 * Timelines of a rank: Kimi-K3 in NVFP4 for TRT-LLM at TP8 and EP8 against what was worked out by hand, and its histories
 * against what PyTorch's allocator makes of them; other backends, kinds of layers and settings in the small.
 */
#include "../src/heap/reserve_text.h"
#include "../src/plan/timeline.h"
#include "../tracing/format/clv.h"
#include "../tracing/import/import.h"
#include "../tracing/memory.h"
#include "../tracing/planned.h"
#include "../tracing/replay/replay.h"
#include "check_main.h"
#include "models.h"
#include "trace_check.h"

#include <inttypes.h>
#include <unistd.h>

#define TRTLLM "nvfp4-trtllm"
#define K3 "kimi-k3-nvfp4"
#define LAYERS 92ull
#define GB300 287428640768ull /* bytes that the driver gives on a GPU with 288 GB */

/* Of an expert and a rank, in bytes: w13, its scale, w2, its scale; a chunk of reordered rows, 64 MiB at most, of weights and
 * of scales, and the last one; scalars of a layer, each to whole 512. */
struct rank {
	bool ep;
	uint64_t experts, size[4], chunk[2], last[2], chunks, scalars;
};

static const struct rank ranks[] = {
	{false, 896, {1376256, 172032, 688128, 86016}, {65830912, 8228864}, {24084480, 3010560}, 10, 21504},
	{true, 112, {11010048, 1376256, 5505024, 688128}, {67035136, 8379392}, {13246464, 1655808}, 10, 12288}};

struct planned {
	struct clv_model model;
	struct clv_shard_config parallel;
	struct clv_timeline_config config;
	struct clv_timeline t;
};

static void prepare(struct planned *p, const char *backend, uint32_t tp, bool ep)
{
	struct clv_error err = {""};
	clv_shard_config_init(&p->parallel);
	p->parallel.tp = tp;
	p->parallel.expert_parallel = ep;
	clv_timeline_config_init(&p->config);
	p->config.model = &p->model;
	p->config.parallel = &p->parallel;
	p->config.backend = clv_backend_find(backend, &err);
	ck_assert_msg(p->config.backend != NULL, "%s", err.text);
}

static void prepare_k3(struct planned *p, uint32_t tp, bool ep)
{
	read_named(&p->model, K3);
	prepare(p, TRTLLM, tp, ep);
}

static void make(struct planned *p)
{
	struct clv_error err = {""};
	ck_assert_msg(clv_timeline_make(&p->t, &p->config, &err), "%s", err.text);
}

static void make_again(struct planned *p)
{
	clv_timeline_free(&p->t);
	make(p);
}

static void done(struct planned *p)
{
	clv_timeline_free(&p->t);
	clv_model_free(&p->model);
}

static const struct clv_timeline_warning *warning(const struct clv_timeline *t, const char *code, unsigned n)
{
	for (uint32_t i = 0; i < t->warning_count; i++)
		if (!strcmp(t->warnings[i].code, code) && n-- == 0)
			return &t->warnings[i];
	return NULL;
}

static void must_warn(const struct clv_timeline *t, const char *code, unsigned n, const char *part)
{
	const struct clv_timeline_warning *w = warning(t, code, n);
	ck_assert_msg(w && strstr(w->text, part), "%s %u: '%s' has no '%s'", code, n, w ? w->text : "(none)", part);
}

/* ---- Kimi-K3 by hand ---- */

static uint64_t layer_bytes(const struct rank *r)
{
	return r->experts * (r->size[0] + r->size[1] + r->size[2] + r->size[3]);
}

START_TEST(peaks_of_k3)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(ranks); i++) {
		const struct rank *r = &ranks[i];
		static struct planned p;
		prepare_k3(&p, 8, r->ep);
		p.config.rank = 7;
		make(&p);
		uint64_t layer = layer_bytes(r), loaded = LAYERS * (layer + r->scalars),
			 chunk = r->chunk[0] + r->chunk[1];
		/* moe-layouts 2.3: "s13 + s2 scratch + one interleave output" */
		uint64_t scales = r->size[1] + r->size[3] + r->size[1];
		ck_assert_uint_eq(layer, 1984 * CLV_MIB + CLV_MIB / 2);
		const uint64_t want[CLV_STRATEGIES] = {[CLV_STRATEGY_LISTS] = loaded + layer + r->experts * r->size[0],
						       [CLV_STRATEGY_PREALLOCATED] = loaded + layer + scales,
						       [CLV_STRATEGY_PING_PONG] = loaded + layer + chunk,
						       [CLV_STRATEGY_IN_PLACE] = loaded + chunk};
		for (enum clv_strategy s = 0; s < CLV_STRATEGIES; s++) {
			const struct clv_timeline_strategy *got = &p.t.strategies[s];
			ck_assert_msg(got->legal && got->peak.peak_bytes == want[s] &&
					      got->peak.least_bytes == want[s] && got->peak.final_bytes == loaded &&
					      got->peak.phase == CLV_PHASE_CONVERT && got->peak.layer == 0,
				      "%s: %" PRIu64 ", not %" PRIu64, clv_strategy_name(s), got->peak.peak_bytes,
				      want[s]);
		}
		ck_assert_uint_eq(p.t.strategies[0].peak.base_bytes, LAYERS * r->scalars);
		ck_assert(p.t.transients_known && p.t.fits && !p.t.headroom_bytes);
		ck_assert_uint_eq(p.t.layer_count, LAYERS);
		ck_assert_uint_eq(p.t.layers[0], 1);
		done(&p);
	}
}
END_TEST

static const struct clv_timeline_transient *transient(const struct clv_timeline *t, const char *name, uint64_t bytes)
{
	for (uint32_t i = 0; i < t->transient_count; i++)
		if (!strcmp(t->transients[i].name, name) && t->transients[i].bytes == bytes)
			return &t->transients[i];
	ck_abort_msg("no %s of %" PRIu64 " bytes", name, bytes);
}

/* moe-layouts 1.5 and 4.1: what an expert's tensors take of the driver; 20 MiB for more than 1 and less than 10. */
START_TEST(transients_of_k3)
{
	static const uint64_t segments[2][4] = {{20, 2, 2, 2}, {12, 20, 20, 2}};
	static const char *const names[] = {"w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"};
	const unsigned all = (1u << CLV_STRATEGIES) - 1, own = 1u << CLV_STRATEGY_LISTS | 1u << CLV_STRATEGY_IN_PLACE;
	for (size_t i = 0; i < CLV_ARRAY_LEN(ranks); i++) {
		const struct rank *r = &ranks[i];
		const struct clv_timeline_transient *a;
		static struct planned p;
		prepare_k3(&p, 8, r->ep);
		make(&p);
		ck_assert_uint_eq(p.t.transient_count, 10);
		for (int k = 0; k < 4; k++) {
			char name[64];
			snprintf(name, sizeof(name), "%s converted", names[k]);
			a = transient(&p.t, name, r->size[k]);
			ck_assert_uint_eq(a->segment_bytes, segments[i][k] * CLV_MIB);
			ck_assert_uint_eq(a->requests, r->experts); /* in lists; in place one for all */
			ck_assert_uint_eq(a->strategies, k % 2 ? all : own);
			if (k % 2) {
				snprintf(name, sizeof(name), "%s gathered", names[k]);
				ck_assert_uint_eq(transient(&p.t, name, r->size[k])->requests, r->experts);
			}
		}
		a = transient(&p.t, "w13_weight reordered", r->chunk[0]);
		ck_assert_uint_eq(a->segment_bytes, 64 * CLV_MIB);
		ck_assert_uint_eq(a->requests, r->chunks - 1);
		a = transient(&p.t, "w13_weight_scale reordered", r->chunk[1]);
		ck_assert_uint_eq(a->segment_bytes, 20 * CLV_MIB);
		ck_assert_uint_eq(a->requests, r->chunks - 1);
		ck_assert_uint_eq(transient(&p.t, "w13_weight reordered", r->last[0])->requests, 1);
		ck_assert_uint_eq(transient(&p.t, "w13_weight_scale reordered", r->last[1])->requests, 1);
		done(&p);
	}
}
END_TEST

struct want {
	const char *name;
	uint64_t bytes, count, after_n;
	bool hard;
};

static void must_reserve(const struct clv_timeline *t, const struct want *want, uint32_t count)
{
	ck_assert_uint_eq(t->reservation_count, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct clv_timeline_reservation *r = &t->reservations[i];
		ck_assert_msg(
			!strcmp(r->name, want[i].name) && r->bytes == want[i].bytes && r->count == want[i].count &&
				r->after_n == want[i].after_n && r->hard == want[i].hard,
			"%u: %s %" PRIu64 " x %" PRIu64 " after %" PRIu64, i, r->name, r->bytes, r->count, r->after_n);
	}
}

/* Sources and destinations are equally large: the first 92 requests of a size are sources. */
START_TEST(reservations_of_k3)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(ranks); i++) {
		const struct rank *r = &ranks[i];
		const uint64_t *size = r->size, e = r->experts;
		static struct planned p;
		prepare_k3(&p, 8, r->ep);
		make(&p);
		const struct want chunk[2] = {{"w13_weight reordered", r->chunk[0], 1, 0, false},
					      {"w13_weight_scale reordered", r->chunk[1], 1, 0, false}};
		const struct want spare[4] = {{"w13_weight", e * size[0], 1, LAYERS, true},
					      {"w13_weight_scale", e * size[1], 1, LAYERS, true},
					      {"w2_weight", e * size[2], 1, LAYERS, true},
					      {"w2_weight_scale", e * size[3], 1, LAYERS, true}};
		/* chunks come before them, and take of their room */
		struct want soft[4];
		for (int k = 0; k < 4; k++) {
			soft[k] = spare[k];
			soft[k].hard = false;
		}
		const struct want prealloc[] = {soft[0],
						soft[1],
						soft[2],
						soft[3],
						{"w13_weight_scale gathered", size[1], 2, 0, false},
						{"w2_weight_scale gathered", size[3], 1, 0, false}};
		must_reserve(&p.t, prealloc, CLV_ARRAY_LEN(prealloc));
		p.config.strategy = CLV_STRATEGY_PING_PONG;
		make_again(&p);
		const struct want ping_pong[] = {spare[0], spare[1], spare[2], spare[3], chunk[0], chunk[1]};
		must_reserve(&p.t, ping_pong, CLV_ARRAY_LEN(ping_pong));
		p.config.strategy = CLV_STRATEGY_IN_PLACE;
		make_again(&p);
		must_reserve(&p.t, chunk, 2);
		p.config.strategy = CLV_STRATEGY_LISTS;
		make_again(&p);
		const struct want lists[] = {soft[0],
					     {"w13_weight_scale gathered", size[1], e + 1, 0, false},
					     {"w2_weight converted", size[2], e, 0, false},
					     {"w2_weight_scale gathered", size[3], e + 1, 0, false}};
		must_reserve(&p.t, lists, CLV_ARRAY_LEN(lists));
		/* a request of the size of a destination that is not the experts' */
		p.config.strategy = CLV_STRATEGY_PREALLOCATED;
		p.config.other_weights = e * size[0] - 511;
		make_again(&p);
		ck_assert_uint_eq(p.t.reservations[0].after_n, LAYERS + 1);
		ck_assert_uint_eq(p.t.reservations[1].after_n, LAYERS);
		done(&p);
	}
}
END_TEST

static uint64_t to_512(uint64_t bytes)
{
	return (bytes + 511) / 512 * 512;
}

/* What is loaded and what is held together, which is what a program under the plan holds when it begins to convert. */
static void must_stay_below_peak(const struct clv_timeline *t, const char *model)
{
	enum clv_strategy s = t->config.strategy;
	uint64_t sum = to_512(t->config.other_weights);
	for (uint32_t set = 0; set < CLV_SETS; set++)
		for (uint32_t i = 0; i < t->kinds[set].load_count; i++)
			sum += t->kinds[set].layers * to_512(t->kinds[set].loads[i].bytes);
	for (uint32_t i = 0; i < t->reservation_count; i++) {
		const struct clv_timeline_reservation *r = &t->reservations[i];
		bool destination = !strchr(r->name, ' ');
		sum += r->count * r->bytes;
		ck_assert_msg(r->count && r->bytes % 512 == 0 && (!r->hard || destination), "%s, %s: %s", model,
			      t->config.backend->name, r->name);
	}
	ck_assert_msg(sum <= t->strategies[s].peak.peak_bytes, "%s, %s, %s: %" PRIu64 " are more than %" PRIu64, model,
		      t->config.backend->name, clv_strategy_name(s), sum, t->strategies[s].peak.peak_bytes);
}

static unsigned check_model(const char *name)
{
	static const struct {
		uint32_t tp;
		bool ep;
	} ways[] = {{1, false}, {2, false}, {8, false}, {8, true}, {32, false}};
	static struct planned p;
	unsigned checked = 0;
	read_named(&p.model, name);
	for (size_t b = 0; clv_backend_at(b); b++)
		for (size_t i = 0; i < CLV_ARRAY_LEN(ways); i++)
			for (unsigned s = 0; s < CLV_STRATEGIES; s++) {
				struct clv_error err = {""};
				prepare(&p, clv_backend_at(b)->name, ways[i].tp, ways[i].ep);
				p.config.strategy = (enum clv_strategy)s;
				p.config.other_weights = 12345678;
				p.config.kv_cache = s % 2 ? 1ull << 40 : 0;
				if (!clv_timeline_make(&p.t, &p.config, &err))
					continue;
				must_stay_below_peak(&p.t, name);
				clv_timeline_free(&p.t);
				checked++;
			}
	clv_model_free(&p.model);
	return checked;
}

START_TEST(what_fits_can_be_held)
{
	unsigned checked = 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(small_models); i++)
		checked += check_model(small_models[i]);
	for (size_t i = 0; i < CLV_ARRAY_LEN(published_models); i++)
		checked += check_model(published_models[i]);
	ck_assert_uint_gt(checked, 500);
}
END_TEST

START_TEST(warnings_of_k3)
{
	static struct planned p;
	prepare_k3(&p, 8, false);
	make(&p);
	must_warn(&p.t, "max-split-size", 0, "under max_split_size_mb:20 ");
	must_warn(&p.t, "max-split-size", 0,
		  "for w13_weight_scale reordered (8228864 bytes), w13_weight_scale reordered (3010560 bytes) "
		  "(requests of a layer: 10); set 21 instead");
	must_warn(&p.t, "max-split-size", 1, "under max_split_size_mb:24 ");
	must_warn(&p.t, "max-split-size", 2, "under max_split_size_mb:64 ");
	must_warn(&p.t, "max-split-size", 2,
		  "w13_weight reordered (65830912 bytes) (requests of a layer: 9); set 65 instead");
	must_warn(&p.t, "sleep-mode", 0, "reserved bytes");
	ck_assert_uint_eq(p.t.warning_count, 4);

	const struct clv_timeline_strategy *s = p.t.strategies;
	uint64_t in_place = s[CLV_STRATEGY_IN_PLACE].peak.peak_bytes,
		 prealloc = s[CLV_STRATEGY_PREALLOCATED].peak.peak_bytes;
	p.config.gpu_memory = prealloc - 1;
	make_again(&p);
	ck_assert(!p.t.fits && p.t.headroom_bytes == -1);
	ck_assert(s[CLV_STRATEGY_IN_PLACE].fits && !s[CLV_STRATEGY_LISTS].fits && !s[CLV_STRATEGY_PING_PONG].fits);
	ck_assert_int_eq(s[CLV_STRATEGY_IN_PLACE].headroom_bytes, (int64_t)(prealloc - 1 - in_place));
	must_warn(&p.t, "other-strategy", 0,
		  "preallocated needs 193526022144 bytes and does not fit into 193526022143; in-place (");
	p.config.gpu_memory = prealloc;
	make_again(&p);
	ck_assert(p.t.fits && !p.t.headroom_bytes && !warning(&p.t, "other-strategy", 0));
	p.config.gpu_memory = in_place - 1;
	make_again(&p);
	ck_assert(!p.t.fits && !warning(&p.t, "other-strategy", 0)); /* none does */

	/* KV cache and workspace come when the conversion is over, and share its room. */
	p.config.gpu_memory = prealloc;
	p.config.kv_cache = prealloc - s[0].peak.final_bytes - CLV_MIB;
	p.config.workspace = CLV_MIB;
	make_again(&p);
	ck_assert(p.t.fits && s[CLV_STRATEGY_PREALLOCATED].peak.phase == CLV_PHASE_CONVERT);
	p.config.workspace++;
	make_again(&p);
	ck_assert(!p.t.fits && s[CLV_STRATEGY_PREALLOCATED].peak.phase == CLV_PHASE_SERVE);
	ck_assert_int_eq(p.t.headroom_bytes, -512);
	done(&p);
}
END_TEST

/* ---- replayed ---- */

static struct clv_trace *history_of(struct planned *p, enum clv_strategy strategy, struct clv_layers_peak *peak)
{
	struct clv_error err = {""};
	make(p);
	struct clv_layers l = clv_timeline_layers(&p->t, strategy);
	struct clv_trace *trace = clv_planned_trace(&l, &err);
	ck_assert_msg(trace != NULL, "%s", err.text);
	clv_layers_peak(&l, peak);
	ck_assert_uint_eq(trace->histories->peak_live_bytes, peak->least_bytes);
	done(p);
	return trace;
}

static struct clv_replay_result replay(const struct clv_trace *trace, const char *policy, uint64_t capacity)
{
	struct clv_replay_result result;
	struct clv_error err = {""};
	const struct clv_replay_options options = {.policy = policy, .capacity = capacity, .event_lag_us = 1000};
	ck_assert_msg(clv_replay(trace, trace->histories, &options, &result, &err), "%s", err.text);
	return result;
}

static bool completes(const struct clv_trace *trace, const char *policy, uint64_t capacity)
{
	return replay(trace, policy, capacity).completed;
}

static struct clv_policy_stats replayed(const struct clv_trace *trace, const char *policy, uint64_t capacity)
{
	struct clv_replay_result result = replay(trace, policy, capacity);
	ck_assert_msg(result.completed, "%s: event %" PRIu64 ": %s", policy, result.failed_at_event, result.failure);
	return result.stats;
}

/* moe-layouts 1.5: the most that PyTorch reserves without a limit, in tenths of a GiB, for NVFP4 and TRT-LLM; 0: the table
 * does not have it. And at the size of a GB300 the calls of cudaMalloc that fail on the way, a rank. */
static const struct {
	const char *model;
	uint32_t tp;
	bool ep;
	enum clv_strategy strategy;
	uint64_t split20, split21, unlimited, failures;
} reserved[] = {{K3, 8, false, CLV_STRATEGY_LISTS, 3070, 0, 1824, 2015},
		{K3, 8, false, CLV_STRATEGY_PREALLOCATED, 1984, 1805, 1805, 0},
		{K3, 8, false, CLV_STRATEGY_IN_PLACE, 1983, 0, 1785, 0},
		{K3, 8, true, CLV_STRATEGY_LISTS, 3785, 1827, 1826, 5671},
		{K3, 8, true, CLV_STRATEGY_PREALLOCATED, 1807, 0, 1805, 0},
		{"deepseek-v3-fp8", 8, true, CLV_STRATEGY_LISTS, 461, 0, 445, 0},
		{"deepseek-v3-fp8", 8, true, CLV_STRATEGY_PREALLOCATED, 493, 0, 436, 0},
		{"deepseek-v3-fp8", 8, true, CLV_STRATEGY_IN_PLACE, 441, 0, 429, 0},
		{"qwen3-235b-a22b-bf16", 4, true, CLV_STRATEGY_LISTS, 596, 0, 304, 0},
		{"qwen3-235b-a22b-bf16", 4, true, CLV_STRATEGY_PREALLOCATED, 302, 0, 301, 0},
		{"qwen3-235b-a22b-bf16", 4, true, CLV_STRATEGY_IN_PLACE, 354, 0, 298, 0}};

static void must_peak_at(const struct clv_trace *trace, const char *policy, uint64_t tenths)
{
	if (!tenths)
		return;
	uint64_t hundredths = replayed(trace, policy, 0).peak_reserved_bytes * 100 / CLV_GIB;
	ck_assert_msg(hundredths + 6 >= tenths * 10 && hundredths <= tenths * 10 + 6,
		      "%s: %" PRIu64 " hundredths of a GiB, not %" PRIu64 " tenths", policy, hundredths, tenths);
}

static void check_reserved(size_t i)
{
	static struct planned p;
	struct clv_layers_peak peak;
	read_named(&p.model, reserved[i].model);
	p.model.quant = (struct clv_model_quant){.format = CLV_FORMAT_NVFP4,
						 .weight_dtype = CLV_DTYPE_F4_E2M1,
						 .scale_dtype = CLV_DTYPE_F8_E4M3,
						 .group = 16};
	prepare(&p, TRTLLM, reserved[i].tp, reserved[i].ep);
	struct clv_trace *trace = history_of(&p, reserved[i].strategy, &peak);
	must_peak_at(trace, "torch:max_split_size_mb:20", reserved[i].split20);
	must_peak_at(trace, "torch:max_split_size_mb:21", reserved[i].split21);
	must_peak_at(trace, "torch", reserved[i].unlimited);
	if (reserved[i].failures) {
		/* what a failure frees are dead segments, which nothing would have used: the calls that succeed are the same */
		uint64_t all = replayed(trace, "torch:max_split_size_mb:20", 0).driver.calls[CLV_CALL_mem_alloc],
			 capped = replayed(trace, "torch:max_split_size_mb:20", GB300).driver.calls[CLV_CALL_mem_alloc];
		ck_assert_uint_eq(capped - all, reserved[i].failures);
	}
	clv_trace_free(trace);
}

START_TEST(torch_reserves_as_is_known)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(reserved); i++)
		check_reserved(i);
}
END_TEST

#define FRAME (2 * CLV_MIB)

/* The heap with what the plan reserves. */
static void under_plan(char *policy, size_t room, const struct clv_timeline *t)
{
	size_t used = (size_t)snprintf(policy, room, "cleave:");
	for (uint32_t i = 0; i < t->reservation_count; i++) {
		const struct clv_timeline_reservation *r = &t->reservations[i];
		const struct clv_reserve_text text = {.bytes = r->bytes, .count = r->count, .after_n = r->after_n, .uses = r->uses,
						      .hard = r->hard, .device = CLV_RESERVE_EACH_DEVICE};
		used += (size_t)snprintf(policy + used, room - used, "%sreserve:", i ? "," : "");
		used += (size_t)clv_reserve_print(&text, policy + used, room - used);
		ck_assert_uint_lt(used, room);
	}
}

static uint64_t requests_in(const struct clv_trace *trace, uint64_t size)
{
	const struct clv_history *h = trace->histories;
	uint64_t n = 0;
	for (uint32_t i = 0; i < h->event_count; i++)
		n += h->events[i].action == CLV_ACTION_ALLOC && to_512(h->events[i].size) == size;
	return n;
}

/* The whole of Kimi-K3, at what is live in the end, one layer, and a chunk of rows; two frames more where all of that is
 * live at once. Lists, which need the tensor that is stacked first, too, at what is live at their peak, and two frames more. */
START_TEST(cleave_under_plans_of_k3)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(ranks); i++)
		for (enum clv_strategy s = 0; s < CLV_STRATEGIES; s++) {
			const struct rank *r = &ranks[i];
			static struct planned p;
			struct clv_layers_peak peak;
			char policy[1024];
			prepare_k3(&p, 8, r->ep);
			p.config.strategy = s;
			make(&p);
			under_plan(policy, sizeof(policy), &p.t);
			static struct planned again;
			prepare_k3(&again, 8, r->ep);
			struct clv_trace *trace = history_of(&again, s, &peak);
			for (uint32_t k = 0; k < p.t.reservation_count; k++)
				ck_assert_uint_eq(p.t.reservations[k].after_n + p.t.reservations[k].uses,
						  requests_in(trace, p.t.reservations[k].bytes));
			done(&p);
			uint64_t scratch = r->chunk[0] + r->chunk[1], room = peak.final_bytes + layer_bytes(r) + scratch;
			if (s == CLV_STRATEGY_LISTS)
				room = clv_align_up(peak.peak_bytes, FRAME) + 2 * FRAME;
			else if (s != CLV_STRATEGY_PREALLOCATED)
				room += 2 * FRAME;
			ck_assert_uint_eq(replayed(trace, policy, room).oom_retries, 0);
			if (s == CLV_STRATEGY_LISTS) /* the plan is not for nothing */
				ck_assert(!completes(trace, "cleave", room));
			if (s == CLV_STRATEGY_PREALLOCATED) { /* what is live at the peak is enough, also without it */
				ck_assert(completes(trace, policy, peak.peak_bytes + 2 * FRAME));
				ck_assert(completes(trace, "cleave", peak.peak_bytes + 2 * FRAME));
			}
			clv_trace_free(trace);
		}
}
END_TEST

START_TEST(histories_are_traces)
{
	char path[] = "/tmp/cleave-timeline-XXXXXX.clv";
	struct clv_error err = {""};
	static struct planned p;
	ck_assert_int_ge(close(mkstemps(path, 4)), 0);
	read_named(&p.model, "latent");
	prepare(&p, TRTLLM, 1, false);
	p.config.other_weights = 12345;
	p.config.kv_cache = 3 * CLV_MIB;
	make(&p);
	struct clv_layers l = clv_timeline_layers(&p.t, CLV_STRATEGY_LISTS);
	struct clv_trace *trace = clv_planned_trace(&l, &err);
	ck_assert_msg(trace && clv_trace_write(trace, path, &err), "%s", err.text);
	struct clv_trace *read = clv_trace_import(path, &err);
	ck_assert_msg(read != NULL, "%s", err.text);
	const struct clv_history *h = read->histories;
	ck_assert_pstr_eq(trace_history_wrong(trace, trace->histories), NULL);
	ck_assert_pstr_eq(trace_history_wrong(read, h), NULL);
	ck_assert_uint_eq(h->event_count, trace->histories->event_count);
	ck_assert_uint_eq(h->peak_live_bytes, p.t.strategies[CLV_STRATEGY_LISTS].peak.least_bytes);
	const char *first = read->strings[read->stack_frames[read->stacks[h->events[0].stack].first].function],
		   *last = read->strings[read->stack_frames[read->stacks[h->events[h->event_count - 1].stack].first]
						 .function],
		   *second = read->strings[read->stack_frames[read->stacks[h->events[1].stack].first].function];
	ck_assert_str_eq(first, "other weights");
	ck_assert_str_eq(second, "w13_weight source");
	ck_assert_str_eq(last, "KV cache");
	ck_assert_uint_eq(h->events[0].size, 12345);
	clv_trace_free(trace);
	clv_trace_free(read);
	unlink(path);
	for (uint64_t n = 1;; n++) { /* each allocation fails in turn */
		struct clv_error out = {""};
		clv_mem_fail_after(n);
		trace = clv_planned_trace(&l, &out);
		clv_mem_fail_after(0);
		if (trace) {
			ck_assert_uint_gt(n, 10);
			break;
		}
		ck_assert_ptr_nonnull(strstr(out.text, "out of host memory"));
	}
	clv_trace_free(trace);
	l.count = 0;
	l.other_weights = l.kv_cache = 0;
	ck_assert_ptr_null(clv_planned_trace(&l, &err));
	ck_assert_str_eq(err.text, "the plan asks for no memory: there is no history of it");
	/* 3,000 layers of 1,024 experts, of each an expert's tensors by themselves */
	static uint8_t kinds[3000];
	l = clv_timeline_layers(&p.t, CLV_STRATEGY_LISTS);
	struct clv_conversion many = p.t.kinds[CLV_SET_QUANT].way.conversion;
	struct clv_conversion_plan plan;
	many.experts = 1024;
	err.text[0] = '\0';
	ck_assert(clv_conversion_plan(&many, CLV_STRATEGY_LISTS, &plan, &err));
	l.kinds[CLV_SET_QUANT].conversion = &many;
	l.kinds[CLV_SET_QUANT].plan = &plan;
	l.kind = kinds;
	l.count = CLV_ARRAY_LEN(kinds);
	ck_assert_ptr_null(clv_planned_trace(&l, &err));
	ck_assert_str_eq(err.text,
			 "the history of the plan has more than 20000000 events, which is the most that is written");
	clv_conversion_plan_free(&plan);
	done(&p);
}
END_TEST

/* ---- others ---- */

/* Three layers with experts, of 7 experts; the second is left out of the quantization. N 384, K 128, which goes to 256. */
START_TEST(layers_that_stay)
{
	static struct planned p;
	read_named(&p.model, "latent");
	prepare(&p, TRTLLM, 1, false);
	make(&p);
	const struct clv_timeline_kind *quant = &p.t.kinds[CLV_SET_QUANT], *plain = &p.t.kinds[CLV_SET_PLAIN];
	ck_assert_uint_eq(p.t.layer_count, 3);
	ck_assert(p.t.layer_kinds[0] == CLV_SET_QUANT && p.t.layer_kinds[1] == CLV_SET_PLAIN);
	ck_assert(quant->planned && quant->layers == 2 && !plain->planned && plain->layers == 1);
	const uint64_t expert = 3 * 384 * 128, source = 7 * (expert / 2 + expert / 16), dest = 2 * source,
		       scalars = 4 * 512;
	const struct clv_layers_peak *peak = &p.t.strategies[CLV_STRATEGY_PREALLOCATED].peak;
	ck_assert_uint_eq(peak->base_bytes, 7 * expert * 2 + 2 * scalars);
	ck_assert_uint_eq(peak->final_bytes, peak->base_bytes + 2 * dest);
	/* in the last layer, besides one converted: its sources, copies that are padded, destinations, w13's scale twice, w2's */
	ck_assert_uint_eq(peak->peak_bytes,
			  peak->base_bytes + dest + source + dest + dest + 2 * (2 * 384 * 256 / 16) + 384 * 256 / 16);
	ck_assert_uint_eq(peak->layer, 2);
	ck_assert(!p.t.strategies[CLV_STRATEGY_IN_PLACE].legal && !p.t.strategies[CLV_STRATEGY_PING_PONG].legal);
	ck_assert_ptr_nonnull(strstr(p.t.strategies[CLV_STRATEGY_IN_PLACE].why, "w13_weight: in place an expert's"));
	must_warn(&p.t, "plain-layers", 0, "out (1) are counted as they were loaded, without a conversion: " TRTLLM);
	must_warn(&p.t, "padding", 0, "1161216 of the 2322432 bytes of experts are padding: ");
	must_warn(&p.t, "padding", 0, "the hidden size, 128, to 256");
	/* a destination, and a copy that is padded, which is there before: so it is soft */
	ck_assert_str_eq(p.t.reservations[0].name, "w13_weight");
	ck_assert_uint_eq(p.t.reservations[0].count, 1 + 1);
	ck_assert(!p.t.reservations[0].hard);
	p.config.strategy = CLV_STRATEGY_IN_PLACE;
	struct clv_error err = {""};
	struct clv_timeline t;
	ck_assert(!clv_timeline_make(&t, &p.config, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "in-place is not possible with " TRTLLM ": w13_weight: in place"));
	done(&p);
}
END_TEST

START_TEST(stages_of_a_pipeline)
{
	static struct planned p;
	prepare_k3(&p, 8, true);
	p.parallel.pp = 2;
	uint32_t layers = 0;
	for (p.config.rank = 0; p.config.rank < 16; p.config.rank += 8) {
		make(&p);
		ck_assert_uint_eq(p.t.reservations[2].after_n, p.t.layer_count);
		layers += p.t.layer_count;
		clv_timeline_free(&p.t);
	}
	ck_assert_uint_eq(layers, LAYERS);
	struct clv_error err = {""};
	ck_assert(!clv_timeline_make(&p.t, &p.config, &err));
	ck_assert_str_eq(err.text, "rank 16 is not among the 16 ranks");
	done(&p);
}
END_TEST

START_TEST(says_what_is_not_known)
{
	static struct planned p;
	struct clv_error err = {""};
	prepare_k3(&p, 8, false);
	p.config.backend = clv_backend_find("nvfp4-cutedsl", &err);
	make(&p);
	ck_assert(!p.t.transients_known);
	must_warn(&p.t, "transients-unknown", 0, "nvfp4-cutedsl");
	p.config.kv_cache = UINT64_MAX / 2;
	clv_timeline_free(&p.t);
	ck_assert(!clv_timeline_make(&p.t, &p.config, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "have 1152921504606846976 bytes each at most"));
	done(&p);
}
END_TEST

static uint64_t largest(const struct clv_timeline *t, const char *name)
{
	uint64_t most = 0;
	for (uint32_t i = 0; i < t->transient_count; i++)
		if (!strcmp(t->transients[i].name, name))
			most = clv_max_u64(most, t->transients[i].bytes);
	return most;
}

static const struct clv_backend_buffer *source(const struct clv_timeline *t, const char *name)
{
	const struct clv_backend_layer *l = &t->kinds[CLV_SET_QUANT].backend;
	for (uint32_t i = 0; i < l->source_count; i++)
		if (!strcmp(l->sources[i].name, name))
			return &l->sources[i];
	ck_abort_msg("no source %s", name);
}

/* moe-layouts 2.3: Marlin's copies of an expert and of all scales, in 16 bits, and for NVFP4 in 32 and a mask. */
START_TEST(marlin_goes_by_copies)
{
	static struct planned p;
	struct clv_error err = {""};
	prepare_k3(&p, 8, false);
	p.config.backend = clv_backend_find("nvfp4-marlin", &err);
	make(&p);
	uint64_t expert = source(&p.t, "w13_weight")->bytes / 896, scales = source(&p.t, "w13_weight_scale")->bytes;
	ck_assert(p.t.transients_known);
	ck_assert_uint_eq(largest(&p.t, "w13_weight gathered"), expert);
	ck_assert_uint_eq(largest(&p.t, "w13_weight converted"), expert);
	ck_assert_uint_eq(largest(&p.t, "w13_weight_scale whole"), 4 * scales);
	const struct clv_timeline_strategy *s = &p.t.strategies[CLV_STRATEGY_PREALLOCATED];
	ck_assert_uint_eq(s->peak.peak_bytes, s->peak.final_bytes + layer_bytes(&ranks[0]) + 7 * scales);
	ck_assert_uint_eq(largest(&p.t, "w13_weight reordered"), 0); /* rows stay where they are */
	done(&p);
}
END_TEST

START_TEST(cutlass_swizzles_scales_whole)
{
	static const char *const names[] = {"nvfp4-cutlass", "nvfp4-vllm-cutlass"};
	for (int i = 0; i < 2; i++) {
		static struct planned p;
		struct clv_error err = {""};
		prepare_k3(&p, 8, false);
		p.config.backend = clv_backend_find(names[i], &err);
		make(&p);
		ck_assert_uint_eq(largest(&p.t, "w13_weight_scale whole"), source(&p.t, "w13_weight_scale")->bytes);
		/* only where up comes before gate do rows change places */
		ck_assert_uint_eq(largest(&p.t, "w13_weight reordered"), i ? 0 : ranks[0].chunk[0]);
		done(&p);
	}
}
END_TEST

/* What a timeline packs, and how many steps the packer takes for it (some 10 ns each). */
static void packing_work(const struct clv_timeline *t, uint64_t *buffers, uint64_t *steps)
{
	*buffers = *steps = 0;
	for (int kind = 0; kind < CLV_SETS; kind++) {
		for (int strategy = 0; strategy < CLV_STRATEGIES; strategy++) {
			const struct clv_conversion_plan *plan = &t->kinds[kind].plans[strategy];
			*buffers += plan->count;
			*steps += plan->packed.steps;
		}
	}
}

/* It answers at once: one layer is packed, however many there are, with little search. */
START_TEST(packs_one_layer)
{
	static struct planned p;
	for (size_t i = 0; i < 2; i++) {
		uint64_t buffers, steps, few_buffers, few_steps;
		prepare_k3(&p, 8, ranks[i].ep);
		make(&p);
		ck_assert_uint_eq(p.t.layer_count, LAYERS);
		packing_work(&p.t, &buffers, &steps);
		p.model.layers = 1 + 2; /* the first is dense */
		make_again(&p);
		ck_assert_uint_eq(p.t.layer_count, 2);
		packing_work(&p.t, &few_buffers, &few_steps);
		ck_assert_uint_gt(buffers, ranks[i].experts);
		ck_assert_uint_eq(buffers, few_buffers);
		ck_assert_uint_eq(steps, few_steps);
		ck_assert_uint_le(steps, 2000000);
		printf("%s: %" PRIu64 " buffers, %" PRIu64 " steps\n", ranks[i].ep ? "EP8" : "TP8", buffers, steps);
		done(&p);
	}
}
END_TEST

CHECK_MAIN("timeline", peaks_of_k3, transients_of_k3, reservations_of_k3, what_fits_can_be_held, warnings_of_k3,
	   torch_reserves_as_is_known, cleave_under_plans_of_k3, histories_are_traces, layers_that_stay,
	   stages_of_a_pipeline, says_what_is_not_known, marlin_goes_by_copies, cutlass_swizzles_scales_whole,
	   packs_one_layer)
