/* SPDX-License-Identifier: MIT
 *
 * bench_memory: two allocators that can be given the same requests: the heap over a simulated device, and the C
 * library's malloc. Each belongs to whoever opened it; the heap's requests may come from several threads.
 */
#ifndef CLV_BENCH_MEMORY_H
#define CLV_BENCH_MEMORY_H

#include "../base/base.h"

#include <cleave/heap.h>

struct clv_memory {
	const char *name;
	cleave_driver *driver;
	cleave_heap *heap; /* NULL: the C library */
	void *(*malloc)(size_t size);
	void (*free)(void *p);
	cleave_stream stream; /* that requests are made on; may be set anew in a copy */
};

bool clv_memory_heap(struct clv_memory *out);
bool clv_memory_libc(struct clv_memory *out); /* false: there is none that can be found */
void clv_memory_close(struct clv_memory *m);

static inline uint64_t clv_memory_alloc(const struct clv_memory *m, size_t size)
{
	cleave_ptr p = 0;
	if (!m->heap)
		return (uint64_t)(uintptr_t)m->malloc(size);
	return cleave_alloc(m->heap, 0, m->stream, size, &p) == 0 ? p : 0;
}

static inline void clv_memory_free(const struct clv_memory *m, uint64_t p)
{
	if (!m->heap)
		m->free((void *)(uintptr_t)p);
	else
		cleave_free(m->heap, p, m->stream);
}

#endif
