/* SPDX-License-Identifier: MIT
 *
 * fakecuda: what the test double of libcuda.so.1 tells and does beyond the Driver API. Look these up by dlsym, so that a
 * program runs on a real driver as well. Owns no state; every function may be called from any thread.
 *
 * The double is configured by the environment, read by the first call:
 *   FAKE_CUDA_MEMORY   bytes of a device, also as 1GiB, 64MiB (256MiB)
 *   FAKE_CUDA_DEVICES  how many, 0 to 8 (1)
 *   FAKE_CUDA_VMM      0: devices without virtual memory management
 *   FAKE_CUDA_VERSION  what cuDriverGetVersion says (13000); newer functions are not found by cuGetProcAddress
 *   FAKE_CUDA_QUEUE    a launch of a graph waits while the stream has so many pieces of work before it (0: never)
 *   FAKE_CUDA_DELAY_US each piece of work takes so long (0)
 *   FAKE_CUDA_FAIL     name:n[:code],... the n-th call of the exported function fails with code (2, out of memory);
 *                      n can be 2+: from the second on
 *   FAKE_CUDA_LOG      a file to which each call is appended: "pid tid name result [detail]"
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stdint.h>

/* Calls of the function of that exported name that came in, those refused included; -1: it has none of that name. */
typedef long fakecuda_calls_fn(const char *name);
/* The double's own function of that exported name, whatever stands before it in this process; NULL: none. */
typedef void *fakecuda_function_fn(const char *name);
/* Bytes that frames and plain allocations hold on a device, and the peak of it. */
typedef uint64_t fakecuda_used_fn(int device);
typedef uint64_t fakecuda_used_peak_fn(int device);
/* Takes memory away as another process would; 0 gives it back. */
typedef void fakecuda_foreign_fn(int device, uint64_t bytes);
/* Pieces of work that touched memory which was not there for their device (each also an error 700 of the context). */
typedef long fakecuda_faults_fn(void);
/* Sets FAKE_CUDA_DELAY_US and FAKE_CUDA_FAIL anew; counts of FAKE_CUDA_FAIL begin at zero. */
typedef void fakecuda_delay_fn(unsigned microseconds);
typedef void fakecuda_fail_fn(const char *list);
/* NULL, or what kind of thing has not been given back: "frame", "reservation", "plain", "host", "pool", "stream",
 * "event", "graph", "executable", "user object". */
typedef const char *fakecuda_leaks_fn(void);

fakecuda_calls_fn fakecuda_calls;
fakecuda_function_fn fakecuda_function;
fakecuda_used_fn fakecuda_used;
fakecuda_used_peak_fn fakecuda_used_peak;
fakecuda_foreign_fn fakecuda_foreign;
fakecuda_faults_fn fakecuda_faults;
fakecuda_delay_fn fakecuda_delay;
fakecuda_fail_fn fakecuda_fail;
fakecuda_leaks_fn fakecuda_leaks;

#endif
