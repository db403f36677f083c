/* SPDX-License-Identifier: MIT
 *
 * ring: the buffers into which threads put raw events. Each is written by one thread and emptied by the recorder's writer,
 * without a lock between them. Owns all of them; their list is guarded by one lock, which is held for a few instructions, when a
 * thread's first event comes or the thread ends, and each time the writer looks for events. No host memory but pages is taken.
 *
 * A buffer belongs to a session: what a slow thread puts into that of an earlier one is never looked at.
 */
#ifndef CLV_RECORD_RING_H
#define CLV_RECORD_RING_H

#include "../../src/base/base.h"

#include <stdatomic.h>
#include <stddef.h>

#define CLV_RAW_TEXT_MAX 4032u

/* A text follows in slots of its own. */
struct clv_raw {
	uint64_t time; /* ticks; ns once the writer has taken it */
	uint64_t addr, size, a, b, stream;
	uint32_t stack;
	uint32_t text_len;
	uint16_t event;
	int32_t device;
};

union clv_slot {
	struct clv_raw raw;
	char text[64];
};
_Static_assert(sizeof(union clv_slot) == 64, "a cache line");

enum clv_ring_state { CLV_RING_OWNED, CLV_RING_LEFT, CLV_RING_UNUSED };

struct clv_ring {
	/* of the thread: one cache line, which is all that an event looks at beside its slot */
	_Atomic uint64_t head; /* slots written since the beginning */
	uint64_t tail_seen;    /* at least so many were read */
	uint64_t look_at;      /* head at which to look how full it is */
	uint64_t last_time;
	uint64_t requests; /* that could have had a stack */
	_Atomic uint64_t dropped;
	uint64_t slot_count; /* a power of two; never changes */
	uint32_t session;    /* changed under the lock */
	bool busy;           /* a signal handler must not put an event into the middle of another */

	/* of the writer */
	_Alignas(64) _Atomic uint64_t tail;
	uint64_t dropped_told;
	uint64_t taken_ns; /* time of the last event that was taken */

	/* changed under the lock */
	_Alignas(64) struct clv_ring *next;
	size_t bytes;
	uint32_t thread;
	_Atomic int state; /* enum clv_ring_state */
	_Alignas(64) union clv_slot slots[];
};

_Static_assert(offsetof(struct clv_ring, busy) < 64, "the thread's part is a cache line");

extern __thread struct clv_ring *clv_ring_mine __attribute__((tls_model("initial-exec")));

/* The calling thread's buffer in the session that is open, made if it has none. NULL: none is open, or host memory is out. */
struct clv_ring *clv_ring_attach(uint32_t session, uint64_t slot_count);

/* Which session threads may attach to; 0: none. `writer`: somebody may still look into buffers, so none goes away. */
void clv_rings_session(uint32_t session, bool writer);

/* The buffers of a session. False: no host memory to list them in. What is listed stays until clv_rings_tidy(). */
struct clv_ring_list {
	struct clv_ring **rings;
	size_t count, cap;
};
bool clv_rings_list(uint32_t session, struct clv_ring_list *list);

/* For the writer, when it holds no list: buffers of its session that their threads have left, and that are empty, can be used
 * again; so can those of earlier sessions. */
void clv_rings_tidy(uint32_t session);

/* Around fork(); the child has no buffers then. */
void clv_rings_lock(void);
void clv_rings_unlock(void);
void clv_rings_forget(void);

#endif
