/* SPDX-License-Identifier: MIT
 *
 * What libcleave-preload.so tells the program that it is preloaded under: its heap is another than those of libcleave.so, and
 * is looked at through this table only. A program finds it by dlsym(RTLD_DEFAULT, "cleave_preload_table"), which is NULL
 * without Cleave; so it needs to be linked with nothing.
 *
 * Thread-safety: every function may be called from any thread.
 */
#ifndef CLEAVE_PRELOAD_H
#define CLEAVE_PRELOAD_H

#include <cleave/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one when a member changes its meaning; new members come at the end, which `size` tells of. */
#define CLEAVE_PRELOAD_VERSION 1

typedef struct cleave_preload {
	uint32_t version;
	uint32_t size;              /* of this structure, in the library */
	cleave_heap *(*heap)(void); /* the heap, for the functions below; NULL: none is open, or the process is passed through */
	int (*get_stats)(cleave_heap *heap, int device, cleave_heap_stats *out);
	int (*blocks)(cleave_heap *heap, int device, cleave_block *out, size_t room, size_t *count);
	int (*last_failure)(cleave_heap *heap, int device, cleave_failure *out);
	int (*failure_print)(const cleave_failure *failure, char *buf, size_t len);
} cleave_preload;

CLEAVE_API const cleave_preload *cleave_preload_table(void);

#ifdef __cplusplus
}
#endif

#endif
