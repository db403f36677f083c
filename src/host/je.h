/* SPDX-License-Identifier: MIT
 *
 * je: jemalloc's functions, wherever this build has them from, and private arenas. Found once, by the first call of all;
 * after that nothing here changes, and no lock is needed.
 */
#ifndef CLV_JE_H
#define CLV_JE_H

#include "../base/base.h"

/* How jemalloc gets here is chosen when these files are compiled. */
#define CLV_JE_PAGES 0  /* not at all */
#define CLV_JE_DLOPEN 1 /* looked for at run time; where it cannot be loaded there is none */
#define CLV_JE_LINKED 2 /* linked */
#define CLV_JE_STATIC 3 /* a copy of our own, all of whose names begin with je_ (jemalloc_private.redefine) */

#ifndef CLV_JE_FLAVOUR
#define CLV_JE_FLAVOUR CLV_JE_LINKED
#endif

#if CLV_JE_FLAVOUR == CLV_JE_STATIC
#define JEMALLOC_NO_RENAME
#endif
#include <jemalloc/jemalloc.h>

struct clv_je {
	void *(*mallocx)(size_t size, int flags);
	void *(*rallocx)(void *p, size_t size, int flags);
	void (*dallocx)(void *p, int flags);
	size_t (*sallocx)(const void *p, int flags);
	int (*mallctl)(const char *name, void *old, size_t *old_len, void *new, size_t new_len);
};

/* NULL where jemalloc cannot be used. The first call may load jemalloc and must not race a fork(). */
const struct clv_je *clv_je(void);

/* A new arena, and the flags with which to allocate from it. No thread cache: a cache would have to be ended with each
 * thread of the host program. */
bool clv_je_arena(const struct clv_je *je, unsigned *arena, int *flags);

#endif
