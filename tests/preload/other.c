/* SPDX-License-Identifier: MIT
 *
 * Another library that is preloaded and replaces dlsym, as such libraries do: it passes everything on to the next one and
 * counts, and puts itself before cuMemAllocAsync. OTHER_LOG names a file that gets the counts at the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)
#define OLD "GLIBC_2.2.5"
#else
#define OLD "GLIBC_2.17"
#endif

typedef int alloc_fn(void *ptr, size_t size, void *stream);
typedef void *dlsym_fn(void *handle, const char *name);

static unsigned lookups, allocations;
static alloc_fn *next_alloc;

static dlsym_fn *next(void)
{
	static dlsym_fn *fn;
	if (!fn)
		*(void **)&fn = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!fn)
		*(void **)&fn = dlvsym(RTLD_NEXT, "dlsym", OLD);
	return fn;
}

int cuMemAllocAsync(void *ptr, size_t size, void *stream);
int cuMemAllocAsync(void *ptr, size_t size, void *stream)
{
	allocations++;
	if (!next_alloc)
		*(void **)&next_alloc = next()(RTLD_NEXT, "cuMemAllocAsync");
	return next_alloc ? next_alloc(ptr, size, stream) : 999;
}

/* Not strcmp(): a sanitizer's is no use while its runtime asks us where libc's is. */
static bool same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

void *dlsym(void *handle, const char *name)
{
	lookups++;
	void *found = next()(handle, name);
	if (found && same(name, "cuMemAllocAsync") && found != (void *)cuMemAllocAsync) {
		*(void **)&next_alloc = found;
		return (void *)cuMemAllocAsync;
	}
	return found;
}

__attribute__((destructor)) static void at_end(void)
{
	const char *path = getenv("OTHER_LOG");
	FILE *f = path ? fopen(path, "a") : NULL;
	if (!f)
		return;
	fprintf(f, "lookups %d allocations %u\n", lookups > 0, allocations);
	fclose(f);
}
