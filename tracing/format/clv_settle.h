/* SPDX-License-Identifier: MIT
 *
 * clv_settle: makes a history of what a recorder wrote in pieces. Threads that were interrupted between an event and its
 * record come late, so chunks overlap in time; what found no room was dropped, so that a free can be missing; and blocks that were
 * there when recording began are told of while threads go on, so that one can be allocated twice. Owned by the thread that reads.
 */
#ifndef CLV_SETTLE_H
#define CLV_SETTLE_H

#include "../trace.h"

/* What is known of a history while it is read. Until it is settled, its times are in `unit`. */
struct clv_pieces {
	uint32_t unit;            /* ns; 0: nothing with a time was read */
	bool notes_without_place; /* some notes do not say which event follows them */
	size_t note_cap;
};

/* Moves the notes of another history. False: out of host memory. */
bool clv_pieces_add(struct clv_history *h, struct clv_pieces *p, struct clv_history *from, const struct clv_pieces *of);

/* What was recorded with a unit of 1 ns is put in the order of time, a free before what else happened in the same ns, and its
 * times are in us then. A block at whose address another is allocated ends there (CLV_EVENT_LOST). Notes that do not say their
 * place get it by time. */
bool clv_pieces_settle(struct clv_history *h, struct clv_pieces *p, const char *file, struct clv_error *err);

#endif
