/* SPDX-License-Identifier: MIT
 *
 * streams: in whose order free memory is free. Guarded by the arena's lock.
 *
 * A stream becomes a slot of the arena at its first use. Each free on it counts up its `seq`. An event recorded after the
 * free number n tells, when it completes, that nothing on the stream still uses what was freed up to n. Events are
 * recorded when much has been freed since the last one, when the freeing stream is not the allocating one, and when
 * another stream is in need; so a program with one stream pays for few.
 *
 * Invariants: completed <= recorded_seq <= seq, of a slot that has ended recorded_seq == seq; the events of a ring have rising
 * seq; a hole of a slot is complete once completed >= hole.seq; lingers are ended in the order in which they began.
 */
#ifndef CLV_STREAMS_H
#define CLV_STREAMS_H

#include "arena.h"

#define CLV_POLL_PAUSE_NS (50 * 1000) /* between questions whether work is done, once a few at once were in vain */

bool clv_streams_init(struct clv_arena *a); /* makes slot 0, ANY */
void clv_streams_fini(struct clv_arena *a);

/* The slot of a stream, made if new; NULL if host memory is out. */
struct clv_slot *clv_slot_get(struct clv_arena *a, cleave_stream stream);
struct clv_slot *clv_slot_find(const struct clv_arena *a, uint64_t stream_id);

/* Makes the indexes that a slot with holes needs; false if host memory is out. */
bool clv_slot_ready(struct clv_slot *slot);

/* Counts a free of `bytes` on the slot and records an event if one is due. `now`: record at once. Returns its seq. */
uint64_t clv_slot_freed(struct clv_arena *a, struct clv_slot *slot, uint64_t bytes, bool now);

/* The second half of that, for a free whose seq was counted before: now its `bytes` are free for others, too. */
void clv_slot_due(struct clv_arena *a, struct clv_slot *slot, uint64_t seq, uint64_t bytes, bool now);

/* True if all work of the slot before its free number `seq` is known to be done. */
static inline bool clv_slot_passed(const struct clv_arena *a, uint32_t slot, uint64_t seq)
{
	return slot == CLV_SLOT_ANY || a->slots[slot]->completed >= seq;
}

/* Asks after the oldest events; true if `completed` rose. */
bool clv_slot_poll(struct clv_arena *a, struct clv_slot *slot);

/* Polls every slot and turns complete holes of others than `own` into ANY; true if any was. */
bool clv_streams_poll(struct clv_arena *a, const struct clv_slot *own);

/* Records an event that covers all frees of the slot so far. False if the driver refuses. */
bool clv_slot_record(struct clv_arena *a, struct clv_slot *slot);

/* Records an event on every stream that has been freed on since its last one, so that a poll tells. */
void clv_streams_record(struct clv_arena *a);

/* True if an event that was recorded on a stream, but for lasting ones, has not completed as far as is known. */
bool clv_streams_pending(const struct clv_arena *a);

/* Makes the stream of `own` wait (on the device) for all frees of another slot so far: what these freed can be used in the order of
 * `own`, and is complete when that has passed its present seq, which is a new one. False: they cannot, nothing changed. */
bool clv_slot_follow(struct clv_arena *a, struct clv_slot *own, struct clv_slot *slot);

/* Makes the stream of `own` wait (on the device) for the frees of all other streams, whose holes become its own. ANY and
 * lasting slots cannot wait on the device. True if any hole was gained. */
bool clv_streams_adopt(struct clv_arena *a, struct clv_slot *own);

/* The host waits until all frees up to now are complete. True if anything was waited for. */
bool clv_streams_wait(struct clv_arena *a, const struct clv_slot *own);

/* Asks whether the work before free number `seq` of the slot is done, by a new event if none tells; for `ns` at most the host
 * waits until it is, which counts in arena->waited_ns. True if `completed` rose. */
bool clv_slot_finish(struct clv_arena *a, struct clv_slot *slot, uint64_t seq, uint64_t ns);

/* Waits until all frees of the slot are complete, also those of slots of slabs. False if the driver cannot wait now. */
bool clv_slot_drain(struct clv_arena *a, struct clv_slot *slot);

/* The stream is about to be destroyed. Its last event tells when all of its frees are complete, also those of slots of slabs;
 * until it is dropped then, the slot is found no more, and nothing is freed on it. False: there can be no such event, and
 * nothing has changed but that all must be waited for. */
bool clv_slot_end(struct clv_arena *a, struct clv_slot *slot);

/* All holes of a slot become another's, from its next point on. */
void clv_slot_merge(struct clv_arena *a, struct clv_slot *from, struct clv_slot *into);

/* Gives back the indexes of a slot that has no holes and is not to be used again before it is made anew. */
void clv_slot_trim(struct clv_slot *slot);

/* A drained slot's holes become ANY's, and it can be used for another stream. Its slabs must be gone. */
void clv_slot_drop(struct clv_arena *a, struct clv_slot *slot);

void clv_slot_linger(struct clv_slot *slot, struct clv_extent *e, uint64_t seq); /* appends */
void clv_slot_unlinger(struct clv_slot *slot, struct clv_extent **link); /* takes what *link is away */

#endif
