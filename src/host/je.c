/* SPDX-License-Identifier: MIT */
#include "je.h"

#include <pthread.h>

#if CLV_JE_FLAVOUR == CLV_JE_DLOPEN
#include <dlfcn.h>
#endif

/* Written once, before `once` is done. */
static struct clv_je functions;
static bool found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Every function or none. */
static bool find(struct clv_je *je)
{
#if CLV_JE_FLAVOUR == CLV_JE_LINKED
	*je = (struct clv_je){mallocx, rallocx, dallocx, sallocx, mallctl};
	return true;
#elif CLV_JE_FLAVOUR == CLV_JE_STATIC
	*je = (struct clv_je){je_mallocx, je_rallocx, je_dallocx, je_sallocx, je_mallctl};
	return true;
#elif CLV_JE_FLAVOUR == CLV_JE_DLOPEN
	/* Debian's jemalloc wants static TLS, of which a running process may have too little left: then this fails,
	 * and that is all. RTLD_LOCAL, lest it answer for the host program's malloc; NODELETE, since threads may be
	 * inside at exit. */
	void *lib = dlopen("libjemalloc.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return false;
	*(void **)&je->mallocx = dlsym(lib, "mallocx");
	*(void **)&je->rallocx = dlsym(lib, "rallocx");
	*(void **)&je->dallocx = dlsym(lib, "dallocx");
	*(void **)&je->sallocx = dlsym(lib, "sallocx");
	*(void **)&je->mallctl = dlsym(lib, "mallctl");
	return je->mallocx && je->rallocx && je->dallocx && je->sallocx && je->mallctl;
#else
	(void)je;
	return false;
#endif
}

static void start(void)
{
	found = find(&functions);
}

const struct clv_je *clv_je(void)
{
	pthread_once(&once, start);
	return found ? &functions : NULL;
}

bool clv_je_arena(const struct clv_je *je, unsigned *arena, int *flags)
{
	size_t len = sizeof(*arena);
	if (je->mallctl("arenas.create", arena, &len, NULL, 0))
		return false;
	*flags = MALLOCX_ARENA(*arena) | MALLOCX_TCACHE_NONE;
	return true;
}
