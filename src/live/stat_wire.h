/* SPDX-License-Identifier: MIT
 *
 * stat_wire: what goes between `cleave stat` and a process that has a heap. The socket is an abstract Unix one of packets
 * (SOCK_SEQPACKET) named after the process. The command sends a request and gets one reply, and with it, if all went well, the
 * descriptor of memory in which the answer lies: so an answer may be long, and the process waits for nobody who reads slowly.
 *
 * An answer is a clv_stat_process, and for each device that has been used a clv_stat_device with its lists behind it:
 * reservations (cleave_reservation_stats), then of a snapshot blocks (cleave_block) and frames (clv_heap_frame). Both
 * processes run on one machine, so numbers are as the machine has them. What changes in here changes CLV_STAT_VERSION; what
 * was forgotten, `layout` tells. Owns no state.
 */
#ifndef CLV_STAT_WIRE_H
#define CLV_STAT_WIRE_H

#include "../heap/breakdown.h"
#include "../heap/heap_more.h"

#define CLV_STAT_MAGIC 0x54415453454c43ull /* "CLESTAT" */
#define CLV_STAT_VERSION 1u
#define CLV_STAT_LIBRARY 32u /* characters of the library's version, with the 0 */
#define CLV_STAT_SETTINGS 4096u

enum clv_stat_op {
	CLV_STAT_ASK,      /* what there is to say */
	CLV_STAT_TRIM,     /* the same, after what can be given back without waiting was given back to the driver */
	CLV_STAT_SNAPSHOT, /* the same, with blocks and frames */
	CLV_STAT_OPS
};

/* These two are the first of a request and of a reply in every version. */
struct clv_stat_head {
	uint64_t magic;
	uint32_t version;
	uint32_t what; /* enum clv_stat_op, enum clv_stat_status */
};

struct clv_stat_request {
	struct clv_stat_head head;
};

enum clv_stat_status {
	CLV_STAT_GIVEN,
	CLV_STAT_OTHER_USER,  /* whoever asks is of another user */
	CLV_STAT_BAD_REQUEST, /* or one of another version */
	CLV_STAT_NO_MEMORY,   /* for the answer, or no descriptor of it; `why` may say more */
};

struct clv_stat_reply {
	struct clv_stat_head head;
	char library[CLV_STAT_LIBRARY];
	uint64_t bytes; /* of the answer */
	int32_t why;    /* errno */
	int32_t unused;
};

struct clv_stat_process {
	uint64_t magic;
	uint32_t version, layout;
	uint32_t op;
	int32_t pid;
	uint64_t now_ns, opened_ns; /* CLOCK_MONOTONIC; when the heap was opened */
	uint64_t released;          /* TRIM: bytes given back */
	char library[CLV_STAT_LIBRARY];
	char settings[CLV_STAT_SETTINGS]; /* that differ from the defaults; ends in "..." where it was cut off */
	struct clv_call_counts driver;
	uint32_t devices, used; /* that the driver has; of which so many follow */
};

struct clv_stat_device {
	int64_t device;
	struct clv_heap_state state;           /* of one moment; the lists of a snapshot are of one a little later */
	uint64_t reservations, blocks, frames; /* that follow */
};

#define CLV_STAT_LAYOUT                                                                                                \
	((uint32_t)(sizeof(struct clv_stat_process) + 31 * sizeof(struct clv_stat_device) +                            \
		    1021 * sizeof(cleave_reservation_stats) + 32749 * sizeof(cleave_block)))

_Static_assert(sizeof(struct clv_stat_process) % 8 == 0 && sizeof(struct clv_stat_device) % 8 == 0 &&
		       sizeof(cleave_reservation_stats) % 8 == 0 && sizeof(cleave_block) % 8 == 0,
	       "what stands one behind the other is aligned");

#endif
