/* SPDX-License-Identifier: MIT
 *
 * room: what is free at one moment, for a request of a kind, as things are or with the blocks of a group taken away. Owns nothing.
 */
#ifndef CLV_REPORT_ROOM_H
#define CLV_REPORT_ROOM_H

#include "culprits.h"

/* What a request may use: PyTorch keeps streams, pools and small requests apart; Cleave does not. */
struct clv_room_for {
	bool apart;
	uint32_t stream, pool;
	bool small;
	uint64_t asked;    /* bytes of the hole that it needs */
	uint64_t hole_max; /* larger holes are not cut for it; UINT64_MAX: no limit */
};

struct clv_room {
	uint64_t usable;     /* free bytes that it may use */
	uint64_t largest;    /* hole of these */
	uint64_t grow;       /* bytes to map where PyTorch extends an expandable segment; `asked` if that is in no use */
	uint64_t foreign;    /* free bytes kept for other streams, pools and sizes */
	uint64_t returnable; /* bytes of frames without a used piece */
	bool fits;           /* a hole is large enough, and may be cut */
};

#define CLV_ROOM_ALL UINT32_MAX

/* `without`: the place in culprits->groups of the group that is taken away, or CLV_ROOM_ALL: none is. */
void clv_room_look(struct clv_room *room, const struct clv_state *s, const struct clv_culprits *culprits,
		   uint32_t without, const struct clv_room_for *want);

#endif
