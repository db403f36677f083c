/* SPDX-License-Identifier: MIT
 *
 * pack_time: how a limit on the time of `cleave pack` is shared out. Owns nothing.
 */
#ifndef CLV_PACK_TIME_H
#define CLV_PACK_TIME_H

#include "../base/base.h"

/* Seconds for the search, of a limit on the whole command after reading took `reading` of it. Writing is given as much as
 * reading took, of which it needs a quarter where the disk is quick, and the freeing of memory an eighth. The search gets a
 * quarter of the limit at least, even if reading alone has used it up: without one there is nothing to write. */
static inline double clv_pack_time_left(double limit, double reading, bool writes)
{
	double left = limit - reading - reading * (writes ? 1 : 0.125);
	return left > limit / 4 ? left : limit / 4;
}

#endif
