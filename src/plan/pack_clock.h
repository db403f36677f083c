/* SPDX-License-Identifier: MIT
 *
 * pack_clock: how much longer a search may go on. Steps are counted, so that its end does not depend on the machine; the time
 * is looked at now and then, if there is a limit. One thread.
 */
#ifndef CLV_PACK_CLOCK_H
#define CLV_PACK_CLOCK_H

#include "../base/base.h"
#include "../base/clock.h"


struct clv_pack_clock {
	uint64_t steps, steps_end; /* taken, and at which the search ends */
	uint64_t steps_look;       /* at which the time is looked at again */
	double begin, end;         /* seconds of the monotonic clock; end 0: no limit */
	bool timed_out;
};

/* Between two looks at the time: some 100 us. */
#define CLV_PACK_STEPS_A_LOOK 10000

static inline double clv_pack_now(void)
{
	return 1e-9 * (double)clv_clock_ns();
}

static inline bool clv_pack_clock_over(const struct clv_pack_clock *c)
{
	return c->timed_out || c->steps >= c->steps_end;
}

/* The step count `steps` from now. */
static inline uint64_t clv_pack_clock_in(const struct clv_pack_clock *c, uint64_t steps)
{
	return steps < UINT64_MAX - c->steps ? c->steps + steps : UINT64_MAX;
}

/* Whether there is no more time for something that takes about so long. */
static inline bool clv_pack_clock_short(const struct clv_pack_clock *c, double seconds)
{
	return clv_pack_clock_over(c) || (c->end > 0 && clv_pack_now() + seconds >= c->end);
}

/* Looks at the time now, after something that took long; true if the search must end. */
static inline bool clv_pack_clock_look(struct clv_pack_clock *c)
{
	c->timed_out = c->timed_out || (c->end > 0 && clv_pack_now() >= c->end);
	return clv_pack_clock_over(c);
}

/* Counts `steps`; true if the search must end. */
static inline bool clv_pack_clock_step(struct clv_pack_clock *c, uint64_t steps)
{
	c->steps += steps;
	if (c->steps < c->steps_look)
		return clv_pack_clock_over(c);
	c->steps_look = c->steps + CLV_PACK_STEPS_A_LOOK;
	return clv_pack_clock_look(c);
}

#endif
