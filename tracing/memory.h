/* SPDX-License-Identifier: MIT
 *
 * memory: host memory of traces and importers. One narrow place, so that tests can make any allocation fail. Owns one
 * counter, which is per thread; needs no lock.
 */
#ifndef CLV_MEMORY_H
#define CLV_MEMORY_H

#include "../src/base/base.h"

void *clv_mem_alloc(size_t size); /* uninitialised; NULL when host memory is out */
void *clv_mem_zalloc(size_t count, size_t size);
void *clv_mem_realloc(void *p, size_t count, size_t size); /* count * size is checked for overflow */
char *clv_mem_strndup(const char *text, size_t len);
void clv_mem_free(void *p); /* NULL is allowed */

/* Makes room for `need` elements of `size` bytes in a growing array; *p and *cap are left alone on failure. */
bool clv_mem_reserve(void *p_to_array, size_t *cap, size_t need, size_t size);

/* Tests: the n-th allocation of this thread from now (1: the next) and every later one fails; 0: none does. */
void clv_mem_fail_after(uint64_t n);

#endif
