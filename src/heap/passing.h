/* SPDX-License-Identifier: MIT
 *
 * passing: the sizes of large blocks that come and go, as a scratch does, or activations: what such a block shares with others
 * is soon whole again, so neither a cut nor a wait is spent on its place. A size is known by the last block of it that was
 * freed; one that nobody has freed may be there to stay. Guarded by the arena's lock.
 */
#ifndef CLV_PASSING_H
#define CLV_PASSING_H

#include "arena.h"

#define CLV_PASSING_LEAST (16 * CLV_MIB) /* smaller sizes are not told apart */

void clv_passing_note(struct clv_arena *a, const struct clv_extent *block);

/* A block is freed that the program had. */
static inline void clv_passing_freed(struct clv_arena *a, const struct clv_extent *block)
{
	if (CLV_UNLIKELY(block->size >= CLV_PASSING_LEAST))
		clv_passing_note(a, block);
}

bool clv_passing_has(const struct clv_arena *a, uint64_t size);

#endif
