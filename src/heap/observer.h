/* SPDX-License-Identifier: MIT
 *
 * observer: who is told of what the heap does. A heap has at most one; without one each place costs a test of a pointer that is
 * in the cache.
 *
 * `tell` is called in the thread that asked, often with the arena's lock held: it must be quick, must not call the heap and
 * must not wait for anybody who may. What is told of one device comes in the order in which it happened, but for small blocks:
 * of these, two threads may tell at the same time, and by time alone an address is free before it is allocated anew.
 */
#ifndef CLV_OBSERVER_H
#define CLV_OBSERVER_H

#include "../base/base.h"
#include "../base/event.h"

#include <cleave/heap.h>

struct clv_observed {
	enum clv_event event;
	int device;
	cleave_stream stream;      /* concerned; CLEAVE_STREAM_ANY: none, or that one */
	cleave_stream other;       /* in place of `a` or `b`, where the list of events has a stream there */
	uint64_t addr, size, a, b; /* as the list of events says */
	const char *text;          /* NULL: none; good during the call */
};

struct clv_observer {
	void (*tell)(struct clv_observer *self, const struct clv_observed *what);
};

/* From now on, in the place of another; NULL: nobody. An observer stays what it is until the heap is closed, since who tells it
 * at this moment goes on. What there is already is told first, as if it came about now: the device, frames, what is held back,
 * live blocks. (Small blocks that other threads allocate or free at this very moment may be told twice, or of as freed alone.) */
void clv_heap_observe(struct cleave_heap *heap, struct clv_observer *observer);

/* The same for every heap of the process that is open, and for each that is opened from now on. */
void clv_heaps_observe(struct clv_observer *observer);

/* heap.c: between these the heap is one of them. */
void clv_observer_opened(struct cleave_heap *heap);
void clv_observer_closes(struct cleave_heap *heap);

#endif
