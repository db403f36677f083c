/* SPDX-License-Identifier: MIT
 *
 * meta: host memory for our own books, apart from the host program's heap: a private jemalloc arena, or plain pages
 * where jemalloc cannot be loaded. Thread-safe, and usable in a child of fork(); only the first call of all, which may
 * load jemalloc, must not race a fork().
 */
#ifndef CLV_META_H
#define CLV_META_H

#include "../base/base.h"

void *clv_meta_alloc(size_t size);  /* uninitialised, 16-byte aligned; NULL when host memory is out */
void *clv_meta_zalloc(size_t size); /* zeroed */
void *clv_meta_realloc(void *p, size_t size);
void clv_meta_free(void *p); /* NULL is allowed */

uint64_t clv_meta_bytes(void); /* in use now, each allocation as large as it really is */
bool clv_meta_uses_jemalloc(void);

/* Tests: the n-th allocation from now (1: the next) and every later one fails; 0: none does. */
void clv_meta_fail_after(uint64_t n);

#endif
