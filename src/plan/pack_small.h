/* SPDX-License-Identifier: MIT
 *
 * pack_small: all packings of a few items that are worth a look, for problems of any kind. Owns nothing; one thread.
 *
 * In some best packing no item can be moved down to any lower place that is free (move one while there is one: the sum of the
 * offsets falls). Put the fixed items first and the others in the order of their offsets there: each comes to lie at the lowest
 * place that those before it leave, since a place below would also be free of those that come later, which lie no lower
 * than itself. So it is enough to put items in orders that place them at offsets that never fall.
 */
#ifndef CLV_PACK_SMALL_H
#define CLV_PACK_SMALL_H

#include "pack_clock.h"
#include "pack_problem.h"

#define CLV_PACK_SMALL 24 /* items at most */

/* Looks for a packing lower than `height`, the lowest one. True: offset[item] has it if there is one (the result is lower
 * than `height`), and it is the best; false: the clock or the steps ran out, and it is the best found. Returns the height
 * found, or `height`, in *found. */
bool clv_pack_small_run(const struct clv_pack_problem *p, uint64_t height, uint64_t steps, struct clv_pack_clock *clock,
			uint64_t *offset, uint64_t *found);

#endif
