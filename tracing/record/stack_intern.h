/* SPDX-License-Identifier: MIT
 *
 * stack_intern: a table that gives equal byte strings the same number, from 1 on without a gap. Owns copies of them;
 * nothing is taken out again. Bounded in entries.
 *
 * Thread-safety: lock-free but for host memory, of which a chunk is taken for every few hundred entries; opening and
 * closing are the owner's.
 */
#ifndef CLV_STACK_INTERN_H
#define CLV_STACK_INTERN_H

#include "../../src/base/base.h"

#include <stdatomic.h>

struct clv_intern_entry;
struct clv_intern_chunk;

struct clv_intern {
	_Atomic(struct clv_intern_entry *) *slots; /* by hash */
	_Atomic(struct clv_intern_entry *) *by_id; /* [id - 1] */
	uint64_t slot_mask;
	uint32_t max;
	_Atomic uint32_t count;
	_Atomic(struct clv_intern_chunk *) chunk; /* that is filled now; the others behind it */
};

bool clv_intern_open(struct clv_intern *t, uint32_t max); /* false: no host memory */
void clv_intern_close(struct clv_intern *t);

/* 0: the table is full, or host memory is out. `hash` is of the bytes, by whatever function the caller always uses. */
uint32_t clv_intern(struct clv_intern *t, uint64_t hash, const void *bytes, size_t len);

/* Every id that another thread can have been given is at most this. */
static inline uint32_t clv_intern_count(const struct clv_intern *t)
{
	return atomic_load_explicit(&t->count, memory_order_acquire);
}

/* The copy, 8-byte aligned and with a 0 behind it; NULL: no such id. */
const void *clv_intern_get(const struct clv_intern *t, uint32_t id, size_t *len);

#endif
