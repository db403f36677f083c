/* SPDX-License-Identifier: MIT
 *
 * A library to be preloaded that holds nothing but host memory as the preload library has it. What it exports, and
 * nothing else, is what tests/preload_program.c looks for.
 */
#include "../src/host/je.h"
#include "../src/host/meta.h"
#include "../src/host/pinned.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int preload_host_has_jemalloc(void);
EXPORT int preload_host_option(const char *name);
EXPORT int preload_host_work(unsigned seed, int steps);
EXPORT void *preload_host_keep(size_t size);
EXPORT void preload_host_end(void *p);
EXPORT int preload_host_pins(void);

int preload_host_has_jemalloc(void)
{
	return clv_meta_uses_jemalloc();
}

/* An option of jemalloc's that is a bool or an unsigned; -1: there is none. */
int preload_host_option(const char *name)
{
	const struct clv_je *je = clv_je();
	unsigned value = 0;
	size_t size = sizeof(value);
	if (!je)
		return -1;
	if (je->mallctl(name, &value, &size, NULL, 0)) {
		bool flag;
		size = sizeof(flag);
		if (je->mallctl(name, &flag, &size, NULL, 0))
			return -1;
		value = flag;
	}
	return (int)value;
}

/* Allocations that come and go; how many lost their contents. */
int preload_host_work(unsigned seed, int steps)
{
	struct own {
		uint8_t *p;
		size_t size;
		uint8_t fill;
	} own[64] = {0};
	struct clv_rng rng = {seed};
	int wrong = 0;
	for (int step = 0; step < steps + 64; step++) {
		struct own *o = &own[step < steps ? clv_rng_below(&rng, 64) : (unsigned)(step - steps)];
		if (o->p) {
			for (size_t i = 0; i < o->size; i++)
				wrong += o->p[i] != o->fill;
			clv_meta_free(o->p);
			o->p = NULL;
		} else if (step < steps) {
			o->size = 1 + clv_rng_below(&rng, (uint64_t)1 << clv_rng_range(&rng, 3, 16));
			o->fill = (uint8_t)clv_rng_next(&rng);
			o->p = clv_meta_alloc(o->size);
			wrong += !o->p;
			if (o->p)
				memset(o->p, o->fill, o->size);
		}
	}
	return wrong;
}

void *preload_host_keep(size_t size)
{
	return clv_meta_alloc(size);
}

void preload_host_end(void *p)
{
	clv_meta_free(p);
}

static char chunk[1 << 16] __attribute__((aligned(4096)));

static void *one_chunk(void *ctx, size_t size)
{
	return size <= sizeof(chunk) ? chunk : NULL;
}

static void no_free(void *ctx, void *at, size_t size)
{
}

static bool passed(void *ctx, uint64_t ticket)
{
	return true;
}

/* Whether a small pinned block comes out of the chunk that was given. */
int preload_host_pins(void)
{
	struct clv_pinned_ops ops = {one_chunk, no_free, passed, NULL};
	struct clv_pinned *p = clv_pinned_open(&ops, sizeof(chunk), NULL);
	if (!p)
		return 0;
	char *block = clv_pinned_alloc(p, 100, 64);
	int good = block >= chunk && block < chunk + sizeof(chunk);
	clv_pinned_close(p);
	return good;
}
