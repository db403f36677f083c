/* SPDX-License-Identifier: MIT
 *
 * libcleave.so as a process meets it that opens it while it runs: it loads, exports the public API and nothing else,
 * needs libc alone, and works. CLEAVE_LIBRARY and CLEAVE_INCLUDE say where it and its headers are.
 */
#include <cleave/heap.h>
#include <cleave/plan.h>

#include "check_main.h"
#include "plan_sample.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NAMES = 256, NAME = 128 };

struct names {
	char name[MAX_NAMES][NAME];
	size_t count;
};

static const char *need_env(const char *name)
{
	const char *value = getenv(name);
	ck_assert_msg(value, "%s is not set", name);
	return value;
}

static void names_add(struct names *n, const char *from, size_t length)
{
	ck_assert_uint_lt(n->count, MAX_NAMES);
	ck_assert_uint_lt(length, NAME);
	memcpy(n->name[n->count], from, length);
	n->name[n->count++][length] = 0;
}

static bool names_have(const struct names *n, const char *name)
{
	for (size_t i = 0; i < n->count; i++)
		if (!strcmp(n->name[i], name))
			return true;
	return false;
}

/* The functions that a header declares with CLEAVE_API: the identifier before the first parenthesis. */
static void declared(const char *file, struct names *out)
{
	char path[4096], line[1024];
	snprintf(path, sizeof(path), "%s/%s", need_env("CLEAVE_INCLUDE"), file);
	FILE *f = fopen(path, "r");
	ck_assert_msg(f, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "CLEAVE_API ", 11))
			continue;
		const char *end = strchr(line, '(');
		ck_assert_msg(end, "%s: %s", path, line);
		const char *start = end;
		while (start > line && strchr("abcdefghijklmnopqrstuvwxyz0123456789_", start[-1]))
			start--;
		names_add(out, start, (size_t)(end - start));
	}
	fclose(f);
}

/* Second to last word of each line of `command` if it is `kind`: nm's type, with the name after it. */
static void exported(struct names *out)
{
	char command[4200], type, name[NAME], line[1024];
	snprintf(command, sizeof(command), "nm -D --defined-only '%s'", need_env("CLEAVE_LIBRARY"));
	FILE *f = popen(command, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		ck_assert_msg(sscanf(line, "%*x %c %127s", &type, name) == 2, "%s", line);
		names_add(out, name, strlen(name));
	}
	ck_assert_int_eq(pclose(f), 0);
}

START_TEST(exports_are_the_public_api)
{
	static struct names api, have;
	declared("heap.h", &api);
	ck_assert_uint_gt(api.count, 10);
	declared("plan.h", &api);
	declared("torch.h", &api);
	declared("trace.h", &api);
	exported(&have);
	for (size_t i = 0; i < api.count; i++)
		ck_assert_msg(names_have(&have, api.name[i]), "%s is declared, not exported", api.name[i]);
	for (size_t i = 0; i < have.count; i++)
		ck_assert_msg(names_have(&api, have.name[i]), "%s is exported, not declared", have.name[i]);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* whose runtime would be needed, and first */
START_TEST(needs_libc_alone)
{
	char command[4200], line[1024], name[NAME];
	snprintf(command, sizeof(command), "readelf -d '%s' | grep NEEDED", need_env("CLEAVE_LIBRARY"));
	FILE *f = popen(command, "r");
	ck_assert_ptr_nonnull(f);
	int needed = 0;
	while (fgets(line, sizeof(line), f)) {
		ck_assert_int_eq(sscanf(strchr(line, '['), "[%127[^]]", name), 1);
		ck_assert_msg(!strcmp(name, "libc.so.6") || !strncmp(name, "ld-linux", 8), "needs %s", name);
		needed++;
	}
	ck_assert_int_eq(pclose(f), 0);
	ck_assert_int_gt(needed, 0);
}
END_TEST

#define FIND(name) __typeof__(name) *p_##name = (__typeof__(name) *)dlsym(lib, #name)

START_TEST(works_when_opened_at_run_time)
{
	void *lib = dlopen(need_env("CLEAVE_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(lib, "%s", dlerror());
	FIND(cleave_driver_open);
	FIND(cleave_driver_close);
	FIND(cleave_heap_open);
	FIND(cleave_heap_close);
	FIND(cleave_alloc);
	FIND(cleave_free);
	FIND(cleave_heap_get_stats);
	FIND(cleave_plan_load);
	FIND(cleave_plan_close);
	ck_assert(p_cleave_driver_open && p_cleave_driver_close && p_cleave_heap_open && p_cleave_heap_close);
	ck_assert(p_cleave_alloc && p_cleave_free && p_cleave_heap_get_stats);
	cleave_driver *driver;
	cleave_heap *heap;
	char why[256];
	ck_assert_int_eq(p_cleave_driver_open(&driver, "sim:1GiB"), 0);
	ck_assert_msg(p_cleave_heap_open(&heap, driver, NULL, why, sizeof(why)) == 0, "%s", why);
	cleave_ptr p[100];
	cleave_stream s = {1, 1};
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(p_cleave_alloc(heap, 0, s, (size_t)1 << (i % 20), &p[i]), 0);
		ck_assert_uint_ne(p[i], 0);
	}
	cleave_heap_stats stats;
	ck_assert_int_eq(p_cleave_heap_get_stats(heap, 0, &stats), 0);
	ck_assert_uint_eq(stats.live_blocks, 100);
	ck_assert_uint_gt(stats.metadata_bytes, 0);
	printf("metadata in jemalloc: %d\n", (int)stats.metadata_in_jemalloc);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(p_cleave_free(heap, p[i], s), 0);
	p_cleave_heap_close(heap);
	p_cleave_driver_close(driver);
	/* what reads plans is opened with the first of them */
	cleave_plan *plan;
	char path[] = "/tmp/cleave-plan-XXXXXX";
	int fd = mkstemp(path);
	ck_assert_int_eq((int)write(fd, sample_plan, sizeof(sample_plan) - 1), (int)sizeof(sample_plan) - 1);
	close(fd);
	ck_assert(p_cleave_plan_load && p_cleave_plan_close);
	ck_assert_ptr_null(dlopen("libjansson.so.4", RTLD_NOW | RTLD_NOLOAD));
	ck_assert_msg(p_cleave_plan_load(&plan, path, why, sizeof(why)) == 0, "%s", why);
	unlink(path);
	p_cleave_plan_close(plan);
	ck_assert_int_eq(dlclose(lib), 0);
}
END_TEST
#endif

int main(void)
{
	TCase *tcase = check_main_case("libcleave");
	tcase_add_test(tcase, exports_are_the_public_api);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_test(tcase, needs_libc_alone);
	tcase_add_test(tcase, works_when_opened_at_run_time);
#endif
	return check_main_end("libcleave", tcase);
}
