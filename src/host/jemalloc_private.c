/* SPDX-License-Identifier: MIT
 *
 * What the copy of jemalloc inside the preload library has instead of a few functions of libc and others, and its
 * settings: jemalloc_private.redefine says why. It also has no constructor any more, and starts with the first call: a
 * program that never uses Cleave pays nothing for it.
 */
#include "je.h"

#include <errno.h>
#include <sys/types.h>

/* Only arenas of our own, without thread caches, are used; and the heap behind brk belongs to libc. */
extern const char *je_malloc_conf;
const char *je_malloc_conf = "narenas:1,tcache:false,dss:disabled";

char *clv_jemalloc_getenv(const char *name);
char *clv_jemalloc_getenv(const char *name)
{
	return NULL;
}

ssize_t clv_jemalloc_readlink(const char *path, char *out, size_t size);
ssize_t clv_jemalloc_readlink(const char *path, char *out, size_t size)
{
	errno = ENOENT;
	return -1;
}

/* Then libc's own pthread_create is taken. */
void *clv_jemalloc_dlsym(void *handle, const char *name);
void *clv_jemalloc_dlsym(void *handle, const char *name)
{
	return NULL;
}

/* The profiler prepares a table with these even while it is off; nobody reads it. */
double clv_jemalloc_exp(double x);
double clv_jemalloc_exp(double x)
{
	return 0;
}

double clv_jemalloc_log(double x);
double clv_jemalloc_log(double x)
{
	return 0;
}

double clv_jemalloc_round(double x);
double clv_jemalloc_round(double x)
{
	return 0;
}

/* The end of the stack, for a profile that nobody takes. */
int clv_jemalloc_backtrace(void *callback, void *arg);
int clv_jemalloc_backtrace(void *callback, void *arg)
{
	return 5; /* _URC_END_OF_STACK */
}

uintptr_t clv_jemalloc_frame_ip(void *context);
uintptr_t clv_jemalloc_frame_ip(void *context)
{
	return 0;
}
