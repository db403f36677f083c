/* SPDX-License-Identifier: MIT
 *
 * run_env: how the variables of a program that runs under Cleave are merged with what is there. Owns no state; results
 * come from malloc, and NULL is out of memory unless said otherwise.
 */
#ifndef CLV_RUN_ENV_H
#define CLV_RUN_ENV_H

#include "../base/base.h"

/* Whether the list of LD_PRELOAD (NULL: none) names this library, by whatever path. */
bool clv_run_preloaded(const char *list, const char *library);

/* The list with the library in it: first, so that a request of the program reaches Cleave before other libraries that hook
 * the driver, and they see, as the driver would, what Cleave asks for. Only runtimes of AddressSanitizer stay before it,
 * since they end a program in which they are not first. */
char *clv_run_preload_merge(const char *list, const char *library);

/* Two texts of "key:value,...", of which the later counts where they differ. Either may be NULL or empty. */
char *clv_run_conf_merge(const char *before, const char *after);

/* The variables with PyTorch's allocator settings. Versions differ in which of them they read, and in which one wins if
 * several are set; so one that is set says something, and the first is the one that every version reads. */
#define CLV_RUN_TORCH_VARIABLES 3
extern const char *const clv_run_torch_variables[CLV_RUN_TORCH_VARIABLES];

#define CLV_RUN_TORCH_BACKEND "cudaMallocAsync"

/* The backend which settings of PyTorch choose; false if none. What does not fit is cut off. */
bool clv_run_torch_backend(const char *settings, char *value, size_t len);

/* The settings with our backend. */
char *clv_run_torch_merge(const char *settings);

/* The keys, with ", " between, which that backend ignores; "" if none. */
char *clv_run_torch_ignored(const char *settings);

#endif
