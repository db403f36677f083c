/* SPDX-License-Identifier: MIT
 *
 * meta_pages: a small allocator over pages of its own, for books that must stay out of the host program's heap where
 * there is no jemalloc. One mutex guards it.
 */
#ifndef CLV_META_PAGES_H
#define CLV_META_PAGES_H

#include "../base/base.h"

void *clv_pages_alloc(size_t size); /* 16-byte aligned, size > 0; NULL when host memory is out */
void *clv_pages_zalloc(size_t size);
void *clv_pages_realloc(void *p, size_t size); /* p as given by alloc, size > 0; on NULL p is as it was */
void clv_pages_free(void *p);
size_t clv_pages_usable(void *p); /* bytes that p really has, at least what was asked for */

/* Bytes of address space mapped now, empty chunks that are kept included. */
uint64_t clv_pages_mapped(void);

#endif
