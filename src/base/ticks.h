/* SPDX-License-Identifier: MIT
 *
 * ticks: a clock that is cheap to read, for times that are made nanoseconds later: the processor's time stamp counter where the
 * kernel keeps its own time by it, half the price of clock_gettime(); elsewhere CLOCK_MONOTONIC. Ticks of all threads of the
 * process are of one order.
 *
 * Two readings of both clocks span a scale; what lies between them is off by no more than these were (some 50 ns).
 */
#ifndef CLV_TICKS_H
#define CLV_TICKS_H

#include "base.h"
#include "clock.h"

extern bool clv_ticks_are_counter; /* set by clv_ticks_init() alone */

/* Finds out which it is, the first time. Before the first tick, by one thread. */
void clv_ticks_init(void);

static inline uint64_t clv_ticks_now(void)
{
#ifdef __x86_64__
	if (CLV_LIKELY(clv_ticks_are_counter)) {
		unsigned processor; /* not read before what stands before it is done, as a lock is taken */
		return __builtin_ia32_rdtscp(&processor);
	}
#endif
	return clv_clock_ns();
}

struct clv_ticks_reading {
	uint64_t ticks, ns;
};

struct clv_ticks_scale {
	struct clv_ticks_reading from, to;
};

struct clv_ticks_reading clv_ticks_read(void);

/* Begins where it ended, and ends now. The first time `to` is a reading of before all that will be asked. False: the counter was
 * set back meanwhile, and the scale begins anew. */
bool clv_ticks_extend(struct clv_ticks_scale *scale);

/* Nanoseconds of CLOCK_MONOTONIC; more ticks never are fewer of them. Best between the readings. */
uint64_t clv_ticks_ns(const struct clv_ticks_scale *scale, uint64_t ticks);

#endif
