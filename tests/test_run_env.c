/* SPDX-License-Identifier: MIT */
#include "../src/cli/run_env.h"
#include "check_main.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIB "/opt/cleave/libcleave-preload.so"

/* Every result goes with the test's process. */
static void is(char *text, const char *expect)
{
	ck_assert_ptr_nonnull(text);
	ck_assert_str_eq(text, expect);
	free(text);
}

START_TEST(preload_list)
{
	is(clv_run_preload_merge(NULL, LIB), LIB);
	is(clv_run_preload_merge("", LIB), LIB);
	is(clv_run_preload_merge("a.so", LIB), LIB ":a.so");
	is(clv_run_preload_merge("a.so:b.so", LIB), LIB ":a.so:b.so");
	is(clv_run_preload_merge("a.so b.so", LIB), LIB ":a.so b.so");
	is(clv_run_preload_merge(" a.so", LIB), LIB " a.so");
	is(clv_run_preload_merge(":a.so:", LIB), LIB ":a.so:");
	/* one runtime ends a program in which it is not first */
	is(clv_run_preload_merge("libasan.so.8", LIB), "libasan.so.8:" LIB);
	is(clv_run_preload_merge("/usr/lib/libasan.so.8 a.so", LIB), "/usr/lib/libasan.so.8:" LIB " a.so");
	is(clv_run_preload_merge("/l/libclang_rt.asan-x86_64.so:a.so:b.so", LIB),
	   "/l/libclang_rt.asan-x86_64.so:" LIB ":a.so:b.so");
	is(clv_run_preload_merge(" :libasan.so:libasan.so.8: a.so", LIB), " :libasan.so:libasan.so.8:" LIB ": a.so");
	is(clv_run_preload_merge("a.so:libasan.so.8", LIB), LIB ":a.so:libasan.so.8");
	is(clv_run_preload_merge("/libasan/a.so", LIB), LIB ":/libasan/a.so");
	is(clv_run_preload_merge("mylibasan.so", LIB), LIB ":mylibasan.so");
}
END_TEST

START_TEST(preload_there)
{
	ck_assert(!clv_run_preloaded(NULL, LIB));
	ck_assert(!clv_run_preloaded("", LIB));
	ck_assert(!clv_run_preloaded(" : ", LIB));
	ck_assert(!clv_run_preloaded("a.so:/x/libcleave-preload.so.old b.so", LIB));
	ck_assert(!clv_run_preloaded("/x/libcleave-preload.so/b.so", LIB));
	ck_assert(clv_run_preloaded(LIB, LIB));
	ck_assert(clv_run_preloaded("a.so:" LIB, LIB));
	ck_assert(clv_run_preloaded("a.so " LIB " b.so", LIB));
	ck_assert(clv_run_preloaded("libcleave-preload.so", LIB));
	ck_assert(clv_run_preloaded("a.so:/elsewhere/libcleave-preload.so", LIB));
	/* by another name */
	char dir[] = "/tmp/cleave-run-env-XXXXXX", path[64], other[64], list[256];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/one.so", dir);
	snprintf(other, sizeof(other), "%s/two.so", dir);
	FILE *f = fopen(path, "w");
	ck_assert(f && !fclose(f));
	ck_assert_int_eq(symlink(path, other), 0);
	snprintf(list, sizeof(list), "a.so:%s", other);
	ck_assert(clv_run_preloaded(list, path));
	unlink(other);
	ck_assert(!clv_run_preloaded(list, path));
	unlink(path);
	rmdir(dir);
}
END_TEST

START_TEST(conf)
{
	is(clv_run_conf_merge(NULL, NULL), "");
	is(clv_run_conf_merge("a:b", NULL), "a:b");
	is(clv_run_conf_merge("a:b", ""), "a:b");
	is(clv_run_conf_merge(NULL, "c:d"), "c:d");
	is(clv_run_conf_merge("", "c:d"), "c:d");
	is(clv_run_conf_merge("a:b", "c:d,e:f"), "a:b,c:d,e:f");
}
END_TEST

START_TEST(torch_backend)
{
	static const struct {
		const char *settings, *backend; /* NULL: none chosen */
	} cases[] = {
		{"", NULL},
		{",", NULL},
		{"max_split_size_mb:20", NULL},
		{"backend:native", "native"},
		{"backend:cudaMallocAsync", "cudaMallocAsync"},
		{"max_split_size_mb:20,backend:native", "native"},
		{" max_split_size_mb : 20 ,\tbackend : native ", "native"},
		{"backend", ""},
		{"backend:", ""},
		{"backends:native", NULL},
		{"x_backend:native", NULL},
		{"x:backend", NULL},
		{"x:backend,backend:native", "native"},
		{"roundup_power2_divisions:[256:1,512:2,>:8],backend:native", "native"},
		{"roundup_power2_divisions:[256:1,backend:native]", NULL},
		{"roundup_power2_divisions:[256:1,backend:native", NULL},
		{"roundup_power2_divisions:[[1:2],backend:native],max_split_size_mb:20", NULL},
		{"x:1],backend:native", "native"},
		{"Backend:native", NULL},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char value[32] = "?";
		bool chosen = clv_run_torch_backend(cases[i].settings, value, sizeof(value));
		ck_assert_msg(chosen == (cases[i].backend != NULL), "'%s'", cases[i].settings);
		ck_assert_msg(!chosen || !strcmp(value, cases[i].backend), "'%s': %s", cases[i].settings, value);
	}
	ck_assert(!clv_run_torch_backend(NULL, NULL, 0));
	char shorter[4];
	ck_assert(clv_run_torch_backend("backend:native", shorter, sizeof(shorter)));
	ck_assert_str_eq(shorter, "nat");
}
END_TEST

START_TEST(torch_merge)
{
	is(clv_run_torch_merge(NULL), "backend:cudaMallocAsync");
	is(clv_run_torch_merge(""), "backend:cudaMallocAsync");
	is(clv_run_torch_merge("  "), "backend:cudaMallocAsync");
	is(clv_run_torch_merge("max_split_size_mb:20"), "backend:cudaMallocAsync,max_split_size_mb:20");
	is(clv_run_torch_merge(" a:[1:2,3:4], b:c"), "backend:cudaMallocAsync, a:[1:2,3:4], b:c");
}
END_TEST

START_TEST(torch_ignored)
{
	is(clv_run_torch_ignored(NULL), "");
	is(clv_run_torch_ignored(""), "");
	is(clv_run_torch_ignored(" , "), "");
	is(clv_run_torch_ignored("backend:native"), "");
	is(clv_run_torch_ignored("pinned_use_cuda_host_register:True,pinned_num_register_threads:8"), "");
	is(clv_run_torch_ignored("max_split_size_mb:20"), "max_split_size_mb");
	is(clv_run_torch_ignored("roundup_power2_divisions:[256:1,512:2,>:8], expandable_segments : True,"
				 "pinned_x:1,garbage_collection_threshold:0.8"),
	   "roundup_power2_divisions, expandable_segments, garbage_collection_threshold");
}
END_TEST

/* Whatever the bytes, the parser comes to an end and the merged text chooses our backend. */
START_TEST(torch_random)
{
	static const char *const parts[] = {"backend", "native", ":", ",", "[", "]", " ", "x", "20"};
	struct clv_rng rng = {5};
	unsigned chosen = 0;
	for (unsigned i = 0; i < 20000; i++) {
		char settings[128] = "", value[32];
		for (uint64_t n = clv_rng_below(&rng, 9); n; n--)
			strcat(settings, parts[clv_rng_below(&rng, CLV_ARRAY_LEN(parts))]);
		chosen += clv_run_torch_backend(settings, value, sizeof(value));
		free(clv_run_torch_ignored(settings));
		char *merged = clv_run_torch_merge(settings);
		ck_assert(clv_run_torch_backend(merged, value, sizeof(value)));
		ck_assert_str_eq(value, CLV_RUN_TORCH_BACKEND);
		free(merged);
	}
	ck_assert_uint_gt(chosen, 100);
}
END_TEST

CHECK_MAIN("run_env", preload_list, preload_there, conf, torch_backend, torch_merge, torch_ignored, torch_random)
