/* SPDX-License-Identifier: MIT
 *
 * clock: the time that only goes on. Owns nothing.
 */
#ifndef CLV_CLOCK_H
#define CLV_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline uint64_t clv_clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
