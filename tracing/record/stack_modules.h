/* SPDX-License-Identifier: MIT
 *
 * stack_modules: which files have code in this process, and where. Owns the table of modules seen so far, those that
 * are gone included.
 *
 * Thread-safety: clv_modules_look() by one thread at a time; the table's readers from any thread.
 */
#ifndef CLV_STACK_MODULES_H
#define CLV_STACK_MODULES_H

#include "stack.h"
#include "stack_intern.h"

bool clv_modules_open(void); /* false: no host memory */

/* Adds what is new, if any module has come or gone since the last look. True if so. */
bool clv_modules_look(void);

bool clv_module_get(uint32_t id, struct clv_stack_module *out);
uint32_t clv_module_count(void);

#endif
