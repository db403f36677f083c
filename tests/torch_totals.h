/* SPDX-License-Identifier: MIT
 *
 * torch_totals: what recorded snapshots hold, computed apart from Cleave, with Python's pickle and a dict of live
 * addresses. The two sums are those of torch_event_sum() and torch_block_sum().
 */
#ifndef CLV_TORCH_TOTALS_H
#define CLV_TORCH_TOTALS_H

#include "../tracing/trace.h"

#include <check.h>

static const struct torch_totals {
	const char *name;
	uint32_t events, segments, blocks, pools, initial, allocs, streams, ooms;
	uint64_t unmatched, peak_live, duration_us;
	bool probe;
	uint64_t event_sum, block_sum;
	const char *conf;
	int64_t max_split;
	double gc_threshold;
	bool expandable;
	uint64_t cap_mib;
	uint32_t stacks, frames, strings;
} torch_totals[] = {
	{"k3_reorder_split20", 35604, 2779, 2781, 1, 0, 10954, 1, 0, 0, 8403650560u, 816467, false,
	 12790625164413280223u, 1408140265899965247u, "max_split_size_mb:20", 20971520, 0, false, 0, 1, 0, 0},
	{"moe_prealloc", 10845, 1554, 1560, 1, 0, 3109, 1, 0, 0, 5456483328u, 333916, false,
	 1511462599976783750u, 13504642218032806384u, "max_split_size_mb:20", 20971520, 0, false, 0, 1, 0, 0},
	{"moe_stack", 14167, 268, 274, 1, 0, 4645, 1, 0, 0, 6510695424u, 184826, false,
	 15230536762416198211u, 5361994273267856172u, "max_split_size_mb:20", 20971520, 0, false, 0, 1, 0, 0},
	{"pools", 109, 13, 62, 3, 0, 66, 3, 0, 0, 151578624u, 239346, false,
	 2025404625417044819u, 818793638037636405u, "", -1, 0, false, 0, 1, 0, 0},
	{"serve", 135816, 48, 107, 1, 0, 45304, 1, 0, 0, 7630201856u, 7711237, false,
	 1129228629715116645u, 2026741703075146205u, "", -1, 0, false, 0, 1, 0, 0},
	{"stacks", 293, 16, 67, 3, 0, 128, 3, 0, 0, 189327360u, 334570, false,
	 5973885425637061481u, 955049643951052671u, "", -1, 0, false, 0, 7, 203, 101},
	{"train", 50834, 190, 396, 1, 0, 17036, 1, 0, 0, 11906919424u, 4242024, false,
	 14418465409906983372u, 8010866852126722870u, "", -1, 0, false, 0, 1, 0, 2}, /* the names of annotations */
	{"fuzz/capped", 19028, 11, 11, 1, 0, 6216, 1, 15, 0, 3864543744u, 742180, true,
	 3071083274807978769u, 27680449974754353u, "", -1, 0, false, 4000, 1, 0, 0},
	{"fuzz/edge", 7548, 51, 55, 1, 0, 2503, 1, 0, 0, 2949232640u, 66242, true,
	 8062257154644786664u, 649292655024000761u, "", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/edgesplit", 7584, 87, 92, 1, 0, 2503, 1, 0, 0, 2949232640u, 95967, true,
	 8563734567599490739u, 1800890145950251092u, "max_split_size_mb:40", 41943040, 0, false, 6000, 1, 0, 0},
	{"fuzz/expand", 18127, 7, 114, 1, 0, 6041, 2, 0, 0, 5277264896u, 295358, true,
	 719019440043480968u, 4265074534393049u, "expandable_segments:True", -1, 0, true, 0, 1, 0, 0},
	{"fuzz/expandcap", 14116, 36, 147, 1, 0, 4653, 1, 9, 0, 3975382016u, 536844, true,
	 256837010199278992u, 2875571245891383u, "expandable_segments:True", -1, 0, true, 4000, 1, 0, 0},
	{"fuzz/expandsplit", 9234, 2, 235, 1, 0, 3073, 1, 0, 0, 4858968064u, 197051, true,
	 168329296391912980u, 4587676718782290u, "expandable_segments:True,max_split_size_mb:128", 134217728, 0, true, 12000, 1, 0, 0},
	{"fuzz/expedge", 7558, 2, 11, 1, 0, 2503, 1, 0, 0, 2949232640u, 406279, true,
	 33015040869523709u, 8318211918755u, "expandable_segments:True", -1, 0, true, 5000, 1, 0, 0},
	{"fuzz/expgc", 7762, 21, 22, 1, 0, 2536, 1, 3, 0, 3970776576u, 371515, true,
	 80192158625482865u, 33440068219408u, "expandable_segments:True,garbage_collection_threshold:0.6", -1, 0.6, true, 4000, 1, 0, 0},
	{"fuzz/expsplitcap", 7861, 10, 108, 1, 0, 2562, 1, 2, 0, 3885141504u, 513011, true,
	 77735453231223135u, 1715389107749477u, "expandable_segments:True,max_split_size_mb:128", 134217728, 0, true, 4000, 1, 0, 0},
	{"fuzz/gc60", 13756, 57, 240, 1, 0, 4590, 1, 1, 0, 4774702080u, 202144, true,
	 5833287432610537960u, 4442439264896883870u, "garbage_collection_threshold:0.6", -1, 0.6, false, 5000, 1, 0, 0},
	{"fuzz/gcstreams", 9306, 84, 347, 1, 0, 3139, 2, 3, 0, 4924277760u, 766509, true,
	 7637449524729449985u, 6685757719142836080u, "garbage_collection_threshold:0.4", -1, 0.4, false, 5000, 1, 0, 0},
	{"fuzz/largeseg", 9147, 96, 258, 1, 0, 3073, 1, 0, 0, 4858968064u, 144560, true,
	 2969219091258912699u, 4855888264012633956u, "large_segment_size_mb:64", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/mempool", 6099, 66, 258, 2, 0, 2109, 1, 2, 0, 3699312128u, 199063, true,
	 14331421789821885023u, 4856825480834573184u, "", -1, 0, false, 4000, 1, 0, 0},
	{"fuzz/nonsplit", 9441, 128, 190, 1, 0, 3055, 1, 2, 0, 4690656768u, 197498, true,
	 9689947676633719073u, 3838540954292003301u, "max_non_split_rounding_mb:64,max_split_size_mb:40", 41943040, 0, false, 5000, 1, 0, 0},
	{"fuzz/pendcap", 9326, 27, 79, 1, 0, 3011, 3, 0, 0, 3396260864u, 2391374, true,
	 7972091770686314207u, 1332408344514803882u, "", -1, 0, false, 4000, 1, 0, 0},
	{"fuzz/pendexpand", 7705, 10, 58, 1, 0, 2503, 3, 0, 0, 3919889408u, 2327465, true,
	 434672767574243047u, 2909227352611823u, "expandable_segments:True", -1, 0, true, 4000, 1, 0, 0},
	{"fuzz/pendsplit", 7784, 31, 68, 1, 0, 2503, 3, 0, 0, 2328331264u, 2585011, true,
	 12029017634434644615u, 983926821411646664u, "max_split_size_mb:64", 67108864, 0, false, 4000, 1, 0, 0},
	{"fuzz/plain", 18128, 121, 491, 1, 0, 6163, 1, 0, 0, 6980689920u, 290961, true,
	 3653419482747344326u, 9982355661806969796u, "", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/realoom", 7797, 58, 139, 1, 0, 2607, 1, 6, 0, 3877266432u, 152751, true,
	 12010103914987884864u, 2372250428476995671u, "", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/realoomexp", 7701, 15, 344, 1, 0, 2656, 2, 3, 0, 3900836864u, 148312, true,
	 436878841729658468u, 17736173642222180u, "expandable_segments:True", -1, 0, true, 0, 1, 0, 0},
	{"fuzz/realoomsplit", 7887, 120, 336, 1, 0, 2672, 1, 5, 0, 3877266432u, 583609, true,
	 14569803565966452062u, 6437221451909654902u, "max_split_size_mb:40", 41943040, 0, false, 0, 1, 0, 0},
	{"fuzz/roundhuge", 3765, 16, 19, 1, 0, 1251, 1, 0, 0, 18967592960u, 79171, true,
	 3584510747555652540u, 79994247951118662u, "roundup_power2_divisions:[1:2,4:4,16:8,>:4]", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/roundtiny", 7519, 7, 7, 1, 0, 2500, 1, 0, 0, 82298368u, 96428, true,
	 6450552111969562287u, 11742999004277813u, "roundup_power2_divisions:[1:2,4:4,16:8,>:4]", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/roundup4", 13552, 109, 452, 1, 0, 4687, 1, 0, 0, 5622251520u, 628349, true,
	 2776361673196906596u, 8889853028485363715u, "roundup_power2_divisions:4", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/rounduplist", 9157, 100, 272, 1, 0, 3073, 1, 0, 0, 4858968064u, 83012, true,
	 4410632245118402327u, 5311898566777931219u, "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/seg12exp", 6256, 30, 185, 1, 0, 2093, 1, 3, 0, 3957698048u, 338956, true,
	 62923858550932428u, 2148653186177924u, "large_segment_size_mb:12,expandable_segments:True", -1, 0, true, 4000, 1, 0, 0},
	{"fuzz/seg12split", 7093, 124, 229, 1, 0, 2125, 1, 4, 0, 3975638528u, 891179, true,
	 16958913896672455003u, 4270051121183022592u, "large_segment_size_mb:12,max_split_size_mb:12", 12582912, 0, false, 4000, 1, 0, 0},
	{"fuzz/split20", 14791, 131, 288, 1, 0, 4749, 1, 15, 0, 3905432576u, 597249, true,
	 8287811398710434730u, 5863702843193195671u, "max_split_size_mb:20", 20971520, 0, false, 4000, 1, 0, 0},
	{"fuzz/split200", 13818, 88, 308, 1, 0, 4653, 1, 5, 0, 4690656768u, 245234, true,
	 8361674386055850824u, 6079235595718653891u, "max_split_size_mb:200", 209715200, 0, false, 5000, 1, 0, 0},
	{"fuzz/split64", 14456, 88, 152, 1, 0, 4645, 2, 11, 0, 3939512832u, 664363, true,
	 2121629517805665297u, 2643565182830143477u, "max_split_size_mb:64", 67108864, 0, false, 4000, 1, 0, 0},
	{"fuzz/streams", 18093, 123, 577, 1, 0, 6200, 3, 0, 0, 8267599872u, 282204, true,
	 3137169861648889648u, 11784388474084236575u, "", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/tiny", 7511, 7, 7, 1, 0, 2500, 1, 0, 0, 82298368u, 105298, true,
	 7235411525745233496u, 11814825764228787u, "", -1, 0, false, 0, 1, 0, 0},
	{"fuzz/toggle", 9170, 36, 116, 1, 0, 3057, 1, 2, 0, 3877266432u, 379279, true,
	 15276840610275704441u, 2083273042557206445u, "expandable_segments:True", -1, 0, true, 4000, 1, 0, 0},
};

/* Sums that move when any field of any event or block does. The event's time counts from the first event. */
static inline uint64_t torch_event_sum(const struct clv_trace *t, const struct clv_history *h)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		sum += (e->addr * 3 + e->size * 7 + (e->time_us - h->events[0].time_us) + t->streams[e->stream] * 11 +
			e->action) * (i % 97 + 1);
	}
	return sum;
}

static inline uint64_t torch_block_sum(const struct clv_history *h)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < h->block_record_count; i++) {
		const struct clv_block_record *b = &h->blocks[i];
		sum += (b->addr * 3 + b->size * 5 + b->requested * 7 + b->state) * (i % 97 + 1);
	}
	return sum;
}

static inline void torch_assert_totals(const struct clv_trace *t, const struct torch_totals *x, bool stacks)
{
	ck_assert_uint_eq(t->history_count, 1);
	const struct clv_history *h = &t->histories[0];
	ck_assert_uint_eq(h->event_count, x->events);
	ck_assert_uint_eq(h->segment_count, x->segments);
	ck_assert_uint_eq(h->block_record_count, x->blocks);
	ck_assert_uint_eq(h->pool_count, x->pools);
	ck_assert_uint_eq(h->initial_count, x->initial);
	ck_assert_uint_eq(h->block_count, x->initial + x->allocs);
	ck_assert_uint_eq(h->alloc_count, x->allocs);
	ck_assert_uint_eq(h->stream_count, x->streams);
	ck_assert_uint_eq(h->oom_count, x->ooms);
	ck_assert_uint_eq(h->unmatched_frees, x->unmatched);
	ck_assert_uint_eq(h->peak_live_bytes, x->peak_live);
	ck_assert_uint_eq((uint64_t)(h->duration_s * 1e6 + 0.5), x->duration_us);
	ck_assert_uint_eq(torch_event_sum(t, h), x->event_sum);
	ck_assert_uint_eq(torch_block_sum(h), x->block_sum);
	ck_assert(t->torch.present);
	ck_assert(t->torch.has_probe == x->probe);
	ck_assert_str_eq(t->torch.conf, x->conf);
	ck_assert_int_eq(t->torch.max_split_size, x->max_split);
	ck_assert_double_eq(t->torch.gc_threshold, x->gc_threshold);
	ck_assert(t->torch.expandable == x->expandable);
	ck_assert_uint_eq(t->torch.cap_mib, x->cap_mib);
	ck_assert_uint_eq(t->stack_count, stacks ? x->stacks : 1);
	ck_assert_uint_eq(t->stack_frame_count, stacks ? x->frames : 0);
	ck_assert_uint_eq(t->string_count, stacks ? x->strings : 0);
}

#endif
