/* SPDX-License-Identifier: MIT */
#include "../tracing/policies/torch_settings.h"
#include "check_main.h"

#include <string.h>

/* What torch 2.11.0 said to each text: the settings that its snapshot then reports, or its error. `aborts`: the process
 * died while loading. `unreported`: accepted, but it left no snapshot. */
static const struct {
	const char *conf;
	int64_t max_split;
	double gc;
	bool expandable, unreported, aborts;
	uint64_t roundup[CLV_TORCH_ROUNDUP_CLASSES];
	const char *error;
} cases[] = {
	{"", .max_split = -1},
	{"max_split_size_mb:20", .max_split = 20971520},
	{"max_split_size_mb:19", .error = "ValueError: CachingAllocator option max_split_size_mb too small, must be >= 20"},
	{"max_split_size_mb:21", .max_split = 22020096},
	{"max_split_size_mb:20abc", .max_split = 20971520},
	{"max_split_size_mb:abc", .error = "RuntimeError: stoull"},
	{"max_split_size_mb:-1", .max_split = -1048576},
	{"max_split_size_mb", .aborts = true},
	{"max_split_size_mb:", .aborts = true},
	{"max_split_size_mb:20,", .max_split = 20971520},
	{"max_split_size_mb:99999999999999999999", .error = "RuntimeError: stoull"},
	{"max_split_size_mb = 40", .aborts = true},
	{" max_split_size_mb : 40 ", .max_split = 41943040},
	{"roundup_power2_divisions:4", .max_split = -1, .roundup = {[0 ... 15] = 4}},
	{"roundup_power2_divisions:3", .error = "ValueError: For roundups, the divisions has to be power of 2 "},
	{"roundup_power2_divisions:0", .error = "ValueError: For roundups, the divisions has to be power of 2 "},
	{"roundup_power2_divisions:1", .max_split = -1, .roundup = {[0 ... 15] = 1}},
	{"roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", .max_split = -1, .roundup = {[0 ... 8] = 1, [9] = 2, [10] = 4, [11 ... 15] = 8}},
	{"roundup_power2_divisions:[64:8,>:2", .aborts = true},
	{"roundup_power2_divisions:[3:8]", .error = "ValueError: For roundups, the intervals have to be power of 2 "},
	{"roundup_power2_divisions:[256:3]", .error = "ValueError: For roundups, the divisions has to be power of 2 or 0 to disable roundup "},
	{"roundup_power2_divisions:[]", .max_split = -1},
	{"roundup_power2_divisions:[>:4]", .max_split = -1, .roundup = {[1 ... 15] = 4}},
	{"roundup_power2_divisions:[1:2,4:4,16:8,>:4]", .max_split = -1, .roundup = {[0] = 2, [2] = 4, [4] = 8, [5 ... 15] = 4}},
	{"garbage_collection_threshold:0.6", .max_split = -1, .gc = 0.6},
	{"garbage_collection_threshold:0", .error = "ValueError: garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
	{"garbage_collection_threshold:1", .error = "ValueError: garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
	{"garbage_collection_threshold:1.5", .error = "ValueError: garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
	{"garbage_collection_threshold:x", .error = "RuntimeError: stod"},
	{"expandable_segments:True", .max_split = -1, .expandable = true},
	{"expandable_segments:true", .error = "ValueError: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'"},
	{"expandable_segments:1", .error = "ValueError: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got '1'"},
	{"expandable_segments:False", .max_split = -1},
	{"unknown_key:1", .error = "ValueError: Unrecognized key 'unknown_key' in CUDA allocator config."},
	{"large_segment_size_mb:10", .error = "ValueError: CachingAllocator option large_segment_size_mb must be > 10 MB"},
	{"large_segment_size_mb:11", .max_split = -1},
	{"large_segment_size_mb:12,max_split_size_mb:12", .max_split = 12582912},
	{"large_segment_size_mb:64,max_split_size_mb:40", .error = "ValueError: CachingAllocator option max_split_size_mb too small, must be >= 64"},
	{"max_split_size_mb:40,large_segment_size_mb:64", .error = "ValueError: CachingAllocator option max_split_size_mb too small, must be >= 64"},
	{"max_non_split_rounding_mb:19", .error = "ValueError: CachingAllocator option max_non_split_rounding_mb too small, must be >= 20"},
	{"max_non_split_rounding_mb:20", .max_split = -1},
	{"max_non_split_rounding_mb:64", .max_split = -1},
	{"per_process_memory_fraction:0.5", .max_split = -1},
	{"per_process_memory_fraction:1.5", .error = "ValueError: per_process_memory_fraction is invalid, set it in [0.0, 1.0]"},
	{"per_process_memory_fraction:0", .unreported = true},
	{"backend:native", .max_split = -1},
	{"backend:foo", .error = "ValueError: Unknown allocator backend, options are native and cudaMallocAsync"},
	{"backend:cudaMallocAsync,max_split_size_mb:20", .unreported = true},
	{"pinned_num_register_threads:3", .error = "ValueError: Number of register threads has to be power of 2, got 3"},
	{"pinned_num_register_threads:4", .max_split = -1},
	{"pinned_use_background_threads:True", .max_split = -1},
	{"release_lock_on_cudamalloc:True", .max_split = -1},
	{"throw_on_cudamalloc_oom:True", .error = "ValueError: Unrecognized key 'throw_on_cudamalloc_oom' in CUDA allocator config."},
	{"graph_capture_record_stream_reuse:True", .max_split = -1},
	{"max_split_size_mb:40;expandable_segments:True", .aborts = true},
	{"max_split_size_mb:40,max_split_size_mb:60", .max_split = 62914560},
	{":", .aborts = true},
	{"a", .aborts = true},
	{"[", .aborts = true},
	{"max_split_size_mb:40 garbage_collection_threshold:0.5", .aborts = true},
};

START_TEST(accepts_and_refuses_as_torch_does)
{
	ck_assert_uint_eq(CLV_ARRAY_LEN(cases), 60);
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_torch_settings s;
		struct clv_error err = {""};
		bool ok = clv_torch_settings_parse(&s, cases[i].conf, &err);
		if (cases[i].error || cases[i].aborts) {
			ck_assert_msg(!ok, "'%s' accepted", cases[i].conf);
			if (cases[i].error)
				ck_assert_str_eq(err.text, cases[i].error);
			else
				ck_assert_msg(strncmp(err.text, "PyTorch would abort while loading", 33) == 0, "'%s': %s",
					      cases[i].conf, err.text);
			continue;
		}
		ck_assert_msg(ok, "'%s' refused: %s", cases[i].conf, err.text);
		ck_assert_str_eq(err.text, "");
		if (cases[i].unreported)
			continue;
		ck_assert_msg((int64_t)s.max_split_size == cases[i].max_split, "'%s': max_split_size %lld", cases[i].conf,
			      (long long)s.max_split_size);
		ck_assert_msg(s.gc_threshold == cases[i].gc, "'%s': gc %g", cases[i].conf, s.gc_threshold);
		ck_assert_msg(s.expandable == cases[i].expandable, "'%s'", cases[i].conf);
		for (int k = 0; k < CLV_TORCH_ROUNDUP_CLASSES; k++)
			ck_assert_msg(s.roundup[k] == cases[i].roundup[k], "'%s': roundup[%d] is %llu", cases[i].conf, k,
				      (unsigned long long)s.roundup[k]);
	}
}
END_TEST

static struct clv_torch_settings parsed(const char *text)
{
	struct clv_torch_settings s;
	struct clv_error err = {""};
	ck_assert_msg(clv_torch_settings_parse(&s, text, &err), "'%s': %s", text, err.text);
	return s;
}

/* what a snapshot does not show */
START_TEST(keeps_what_no_snapshot_reports)
{
	struct clv_torch_settings s = parsed("");
	ck_assert_uint_eq(s.large_segment_size, 20 * CLV_MIB);
	ck_assert_uint_eq(s.max_non_split_rounding, 20 * CLV_MIB);
	ck_assert(s.memory_fraction == 1.0);
	ck_assert(!s.cuda_malloc_async);
	s = parsed("max_non_split_rounding_mb:64,large_segment_size_mb:12");
	ck_assert_uint_eq(s.large_segment_size, 12 * CLV_MIB);
	ck_assert_uint_eq(s.max_non_split_rounding, 64 * CLV_MIB);
	s = parsed("large_segment_size_mb:64");
	ck_assert_uint_eq(s.max_non_split_rounding, 64 * CLV_MIB);
	s = parsed("per_process_memory_fraction:0.25");
	ck_assert(s.memory_fraction == 0.25);
	ck_assert(parsed("backend:cudaMallocAsync,max_split_size_mb:20").cuda_malloc_async);
	ck_assert(!parsed("backend:native").cuda_malloc_async);
}
END_TEST

/* keys of pinned memory change nothing here, but a wrong value is refused all the same */
START_TEST(knows_the_keys_that_do_not_matter)
{
	static const char *const good[] = {"pinned_use_cuda_host_register:True", "pinned_reserve_segment_size_mb:64",
					   "release_lock_on_hipmalloc:False", "pinned_num_register_threads:128",
					   "roundup_power2_divisions:[64:4,],expandable_segments:False"};
	static const char *const bad[][2] = {
		{"pinned_reserve_segment_size_mb:0", "ValueError: Pinned reserve segment size has to be greater than 0"},
		{"pinned_num_register_threads:256",
		 "ValueError: Number of register threads should be less than or equal to 128, got 256"},
		{"graph_capture_record_stream_reuse:yes",
		 "ValueError: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'yes'"},
		/* the keys of all accelerators come first, and the segment size before them, wherever they stand */
		{"unknown_key:1,max_split_size_mb:19",
		 "ValueError: CachingAllocator option max_split_size_mb too small, must be >= 20"},
		{"max_split_size_mb:19,large_segment_size_mb:5",
		 "ValueError: CachingAllocator option large_segment_size_mb must be > 10 MB"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(good); i++)
		parsed(good[i]);
	for (size_t i = 0; i < CLV_ARRAY_LEN(bad); i++) {
		struct clv_torch_settings s;
		struct clv_error err = {""};
		ck_assert_msg(!clv_torch_settings_parse(&s, bad[i][0], &err), "'%s' accepted", bad[i][0]);
		ck_assert_str_eq(err.text, bad[i][1]);
	}
}
END_TEST

START_TEST(takes_its_own_key_out)
{
	static const char *const texts[] = {"tie_break:segment", "tie_break:segment,max_split_size_mb:40",
					    "max_split_size_mb:40,tie_break:segment",
					    "max_split_size_mb:40, tie_break : segment ,expandable_segments:True"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(texts); i++) {
		struct clv_torch_settings s = parsed(texts[i]);
		ck_assert_int_eq(s.tie_break, CLV_TORCH_TIE_SEGMENT);
		ck_assert(i == 0 || s.max_split_size == 40 * CLV_MIB);
	}
	ck_assert_int_eq(parsed("").tie_break, CLV_TORCH_TIE_ADDRESS);
	ck_assert_int_eq(parsed("tie_break:counter").tie_break, CLV_TORCH_TIE_COUNTER);
	struct clv_torch_settings s = {.max_split_size = 7};
	struct clv_error err = {""};
	ck_assert(!clv_torch_settings_parse(&s, "tie_break:size", &err));
	ck_assert_str_eq(err.text, "tie_break is address, counter or segment, not 'size'");
	ck_assert_uint_eq(s.max_split_size, 7); /* untouched */
	/* PyTorch counts tokens in its messages: ours are not among them */
	err.text[0] = 0;
	ck_assert(!clv_torch_settings_parse(&s, "tie_break:counter,expandable_segments:true", &err));
	ck_assert_str_eq(err.text, "ValueError: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'");
}
END_TEST

START_TEST(reads_what_a_snapshot_recorded)
{
	char conf[] = "large_segment_size_mb:64,max_split_size_mb:80", newer[] = "throw_on_cudamalloc_oom:True";
	char async[] = "backend:cudaMallocAsync";
	struct clv_torch_recorded r = {.present = true, .conf = conf, .max_split_size = 80 << 20};
	struct clv_torch_settings s;
	struct clv_error err = {""};
	ck_assert(clv_torch_settings_recorded(&s, &r, &err));
	ck_assert_uint_eq(s.large_segment_size, 64 * CLV_MIB);
	ck_assert_uint_eq(s.max_split_size, 80 * CLV_MIB);
	/* a scope that put "unlimited" back leaves it a little smaller; expandable segments were on before the text was set */
	r.max_split_size = -1048576;
	r.expandable = true;
	r.roundup[3] = 8;
	ck_assert(clv_torch_settings_recorded(&s, &r, &err));
	ck_assert_uint_eq(s.max_split_size, UINT64_MAX - CLV_MIB + 1);
	ck_assert(s.expandable);
	ck_assert_uint_eq(s.roundup[3], 8);
	/* a text that 2.11 does not know */
	r.conf = newer;
	ck_assert(clv_torch_settings_recorded(&s, &r, &err));
	ck_assert_uint_eq(s.large_segment_size, 20 * CLV_MIB);
	ck_assert(s.expandable);
	r.conf = async;
	ck_assert(!clv_torch_settings_recorded(&s, &r, &err));
	r.present = false;
	err.text[0] = 0;
	ck_assert(!clv_torch_settings_recorded(&s, &r, &err));
	ck_assert(err.text[0]);
}
END_TEST

START_TEST(computes_limits_with_their_lost_byte)
{
	struct clv_torch_recorded r = {.has_probe = true, .cap_mib = 0, .total_bytes = 150109880320};
	ck_assert_uint_eq(clv_torch_recorded_limit(&r), CLV_TORCH_UNLIMITED);
	uint64_t lost = 0;
	for (r.cap_mib = 1; r.cap_mib < 20000; r.cap_mib++) {
		uint64_t limit = clv_torch_recorded_limit(&r), exact = r.cap_mib << 20;
		ck_assert_msg(limit == exact || limit == exact - 1, "%llu MiB: %llu", (unsigned long long)r.cap_mib,
			      (unsigned long long)limit);
		lost += exact - limit;
	}
	ck_assert_uint_gt(lost, 0);
	ck_assert_uint_eq(clv_torch_fraction_limit(1.0, 1 << 30), CLV_TORCH_UNLIMITED);
	ck_assert_uint_eq(clv_torch_fraction_limit(0.0, 1 << 30), 0);
}
END_TEST

CHECK_MAIN("torch_settings", accepts_and_refuses_as_torch_does, keeps_what_no_snapshot_reports,
	   knows_the_keys_that_do_not_matter, takes_its_own_key_out, reads_what_a_snapshot_recorded,
	   computes_limits_with_their_lost_byte)
