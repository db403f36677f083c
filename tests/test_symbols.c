/* SPDX-License-Identifier: MIT
 *
 * Addresses of this very program, as the recorder sees them, and what is found out about them afterwards.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NOLOAD */
#endif
#include "../tracing/symbols/symbols.h"
#include "../tracing/record/stack.h"
#include "check_main.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct clv_symbols *symbols;

static void open_stacks(void)
{
	struct clv_stack_config config = {.native_max = 16};
	struct clv_stack_stats stats;
	ck_assert(clv_stack_open(&config));
	clv_stack_stats(&stats);
	ck_assert(stats.native);
}

/* All modules, as they are or with another path and build-id for this program. */
static void add_modules(const char *path, const uint8_t *build_id)
{
	struct clv_stack_module m;
	for (uint32_t id = 1; clv_stack_module(id, &m); id++) {
		bool own = (uintptr_t)add_modules >= m.begin && (uintptr_t)add_modules < m.end;
		struct clv_symbols_module s = {.path = own && path ? path : m.path,
					       .begin = m.begin,
					       .end = m.end,
					       .bias = m.bias,
					       .build_id = own && build_id ? build_id : m.build_id,
					       .build_id_len = m.build_id_len};
		ck_assert(clv_symbols_add(symbols, &s));
	}
}

static volatile unsigned kept;

static inline __attribute__((always_inline)) void innermost_inlined(struct clv_stack *out)
{
	clv_stack_capture(out, 0); /* INNERMOST */
	kept++;
}

static __attribute__((noinline, noclone)) void around(struct clv_stack *out)
{
	innermost_inlined(out); /* AROUND */
	kept++;
}

/* The line of this file that has the word in a comment. */
static uint32_t line_of(const char *word)
{
	char text[512], wanted[64];
	uint32_t line = 0, found = 0;
	snprintf(wanted, sizeof(wanted), "/* %s */", word);
	FILE *f = fopen(CLEAVE_THIS_FILE, "r");
	ck_assert_ptr_nonnull(f);
	while (!found && fgets(text, sizeof(text), f)) {
		line++;
		if (strstr(text, wanted))
			found = line;
	}
	fclose(f);
	return found;
}

static bool ends_with(const char *text, const char *end)
{
	size_t len = text ? strlen(text) : 0;
	return len >= strlen(end) && strcmp(text + len - strlen(end), end) == 0;
}

/* What is known of the function `around`, whose call of clv_stack_capture() is inlined. */
static void expect_found(const struct clv_stack *stack)
{
	struct clv_symbol s[8];
	ck_assert_uint_ge(clv_symbols_find(symbols, stack->native[0] - 1, s, 8), 2);
	ck_assert_str_eq(s[0].function, "innermost_inlined");
	ck_assert(s[0].inlined);
	ck_assert(ends_with(s[0].file, "tests/test_symbols.c"));
	ck_assert_uint_eq(s[0].line, line_of("INNERMOST"));
	ck_assert_str_eq(s[1].function, "around");
	ck_assert(!s[1].inlined);
	ck_assert(ends_with(s[1].file, "tests/test_symbols.c"));
	ck_assert_uint_eq(s[1].line, line_of("AROUND"));
	/* no more than there is room for */
	ck_assert_uint_eq(clv_symbols_find(symbols, stack->native[0] - 1, s, 1), 1);
}

START_TEST(functions_files_and_lines)
{
	struct clv_stack stack;
	open_stacks();
	around(&stack);
	symbols = clv_symbols_open(NULL);
	add_modules(NULL, NULL);
	expect_found(&stack);
	clv_symbols_close(symbols);
}
END_TEST

START_TEST(modules_and_offsets)
{
	uint64_t offset;
	struct clv_symbol s;
	Dl_info info;
	open_stacks();
	symbols = clv_symbols_open(NULL);
	add_modules(NULL, NULL);
	const void *function = dlsym(RTLD_DEFAULT, "getpid");
	ck_assert(dladdr(function, &info));
	ck_assert_str_eq(clv_symbols_module_of(symbols, (uintptr_t)function, &offset), info.dli_fname);
	ck_assert_uint_eq(offset, (uintptr_t)function - (uintptr_t)info.dli_fbase);
	ck_assert_ptr_null(clv_symbols_module_of(symbols, 42, &offset));
	ck_assert_uint_eq(clv_symbols_find(symbols, 42, &s, 1), 0);
	clv_symbols_close(symbols);
}
END_TEST

START_TEST(a_later_module_hides_an_earlier_one)
{
	uint64_t offset;
	symbols = clv_symbols_open(NULL);
	const struct clv_symbols_module modules[] = {{.path = "/a", .begin = 0x1000, .end = 0x3000, .bias = 0x1000},
						     {.path = "/b", .begin = 0x2000, .end = 0x4000, .bias = 0x800}};
	ck_assert(clv_symbols_add(symbols, &modules[0]) && clv_symbols_add(symbols, &modules[1]));
	ck_assert_str_eq(clv_symbols_module_of(symbols, 0x1fff, &offset), "/a");
	ck_assert_uint_eq(offset, 0xfff);
	ck_assert_str_eq(clv_symbols_module_of(symbols, 0x2000, &offset), "/b");
	ck_assert_uint_eq(offset, 0x1800);
	ck_assert_ptr_null(clv_symbols_module_of(symbols, 0x4000, &offset));
	clv_symbols_close(symbols);
}
END_TEST

START_TEST(a_function_of_a_library_by_its_symbol)
{
	struct clv_symbol s[2];
	void *lib = dlopen("libstdc++.so.6", RTLD_NOW);
	ck_assert_ptr_nonnull(lib);
	open_stacks();
	symbols = clv_symbols_open(NULL);
	add_modules(NULL, NULL);
	uint64_t address = (uintptr_t)dlsym(lib, "_ZSt9terminatev");
	ck_assert_uint_ge(clv_symbols_find(symbols, address, s, 2), 1);
	ck_assert_str_eq(s[0].function, "std::terminate()");
	clv_symbols_close(symbols);
	dlclose(lib);
}
END_TEST

/* The file at that path is another one now, or gone: its symbols would be wrong. */
START_TEST(another_build_is_not_asked)
{
	struct clv_stack stack;
	struct clv_symbol s[8];
	uint64_t offset;
	open_stacks();
	around(&stack);
	const uint8_t other[CLV_SYMBOLS_BUILD_ID_MAX] = {1, 2, 3};
	const char *const paths[] = {NULL, "/nowhere", "/proc/self/maps", "/dev/null"};
	for (unsigned i = 0; i < CLV_ARRAY_LEN(paths); i++) {
		symbols = clv_symbols_open("/nowhere::relative");
		add_modules(paths[i], i == 0 ? other : NULL);
		ck_assert_uint_eq(clv_symbols_find(symbols, stack.native[0] - 1, s, 8), 0);
		ck_assert_ptr_nonnull(clv_symbols_module_of(symbols, stack.native[0] - 1, &offset));
		clv_symbols_close(symbols);
	}
}
END_TEST

static bool shell(const char *fmt, const char *a, const char *b, const char *c)
{
	char command[16384];
	snprintf(command, sizeof(command), fmt, a, b, c);
	return system(command) == 0;
}

/* The debug information in a folder by build-id: with a file that has none itself, and with none at all. */
START_TEST(debug_files_are_found_by_build_id)
{
	struct clv_stack stack;
	struct clv_stack_module own = {0}, m;
	char folder[] = "/tmp/cleave-symbols-XXXXXX", stripped[128], debug[256], sub[128], self[4096];
	open_stacks();
	around(&stack);
	for (uint32_t id = 1; clv_stack_module(id, &m); id++)
		if (stack.native[0] >= m.begin && stack.native[0] < m.end)
			own = m;
	ck_assert_uint_gt(own.build_id_len, 4);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(self, sizeof(self), "%s", own.path);
	snprintf(stripped, sizeof(stripped), "%s/stripped", folder);
	snprintf(sub, sizeof(sub), "%s/.build-id/%02x", folder, own.build_id[0]);
	int at = snprintf(debug, sizeof(debug), "%s/", sub);
	for (uint32_t i = 1; i < own.build_id_len; i++)
		at += snprintf(debug + at, sizeof(debug) - (size_t)at, "%02x", own.build_id[i]);
	snprintf(debug + at, sizeof(debug) - (size_t)at, ".debug");
	ck_assert(shell("mkdir -p '%s'", sub, "", ""));
	ck_assert(shell("objcopy --strip-all '%s' '%s'", self, stripped, ""));
	ck_assert(shell("objcopy --only-keep-debug '%s' '%s'", self, debug, ""));
	const char *const paths[] = {stripped, "/nowhere"};
	for (unsigned i = 0; i < CLV_ARRAY_LEN(paths); i++) {
		symbols = clv_symbols_open(folder);
		add_modules(paths[i], NULL);
		expect_found(&stack);
		clv_symbols_close(symbols);
	}
	/* without the folder there is nothing in a stripped file */
	struct clv_symbol s;
	symbols = clv_symbols_open(NULL);
	add_modules(stripped, NULL);
	ck_assert(clv_symbols_find(symbols, stack.native[0] - 1, &s, 1) == 0 || strcmp(s.function, "around") != 0);
	clv_symbols_close(symbols);
	ck_assert(shell("rm -r '%s'", folder, "", ""));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {functions_files_and_lines,           modules_and_offsets,
				      a_later_module_hides_an_earlier_one, a_function_of_a_library_by_its_symbol,
				      another_build_is_not_asked,          debug_files_are_found_by_build_id};
	if (!clv_symbols_have_libdw()) {
		fprintf(stderr, "built without libdw\n");
		return 77;
	}
	return check_main_run("symbols", tests, CLV_ARRAY_LEN(tests));
}
