/* SPDX-License-Identifier: MIT
 *
 * thread: threads of ours inside of a host program. Owns nothing.
 */
#ifndef CLV_THREAD_H
#define CLV_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Starts a thread that hears no signals, since they are the program's, with a stack of so many bytes. `out` NULL: nobody will wait
 * for it. 0 or an errno. */
int clv_thread_start(pthread_t *out, size_t stack, void *(*run)(void *arg), void *arg);

#endif
