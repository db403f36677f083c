/* SPDX-License-Identifier: MIT */
#include "bench_memory.h"

#include "../driver/sim.h"

#include <dlfcn.h>

bool clv_memory_heap(struct clv_memory *out)
{
	/* as large as it takes, and a clock that driver calls do not move */
	const struct clv_sim_config sim = {.capacity = (uint64_t)1 << 46, .clock_free = true};
	*out = (struct clv_memory){.name = "cleave", .stream = {1, 1}};
	out->driver = clv_sim_open(&sim);
	if (out->driver && cleave_heap_open(&out->heap, out->driver, NULL, NULL, 0) == 0)
		return true;
	clv_memory_close(out);
	return false;
}

bool clv_memory_libc(struct clv_memory *out)
{
	*out = (struct clv_memory){.name = "malloc"};
	/* The command is linked with jemalloc, whose malloc stands before the C library's. */
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	if (!libc)
		return false;
	*(void **)&out->malloc = dlsym(libc, "malloc");
	*(void **)&out->free = dlsym(libc, "free");
	dlclose(libc);
	return out->malloc && out->free;
}

void clv_memory_close(struct clv_memory *m)
{
	cleave_heap_close(m->heap);
	if (m->driver)
		m->driver->close(m->driver);
	m->heap = NULL;
	m->driver = NULL;
}
