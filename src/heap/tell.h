/* SPDX-License-Identifier: MIT
 *
 * tell: how the heap's modules tell the observer (observer.h). Owns no state.
 *
 * Where the telling stands. With the arena's lock held nobody else sees anything between a change and its telling, so there it
 * stands where it reads best; only a change that others are told of as a part of it (holes that join) comes after. Without the
 * lock, on the fast path of small blocks: a free is told before the slot is pushed into the cache, from where another thread
 * may take it (clv_caches_flush), and an allocation once the slot was popped, before the caller knows its address.
 */
#ifndef CLV_TELL_H
#define CLV_TELL_H

#include "arena.h"
#include "observer.h"

#define CLV_APART __attribute__((noinline, cold))

static inline struct clv_observer *clv_observer_of(const struct clv_arena *a)
{
	return atomic_load_explicit(&a->observer, memory_order_acquire);
}

/* All that there is, with the arena's lock held. */
void clv_observer_tell_all(struct clv_arena *a);

/* CLV_TELL(arena, name of the event, stream, .addr = ..., ...) */
#define CLV_TELL(arena, what, on, ...)                                                                                 \
	do {                                                                                                           \
		struct clv_observer *o_ = clv_observer_of(arena);                                                      \
		if (CLV_UNLIKELY(o_ != NULL))                                                                          \
			o_->tell(o_, &(struct clv_observed){.event = CLV_EVENT_##what,                                 \
							    .device = (arena)->device,                                 \
							    .stream = on,                                              \
							    __VA_ARGS__});                                             \
	} while (0)

#endif
