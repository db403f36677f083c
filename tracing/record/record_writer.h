/* SPDX-License-Identifier: MIT
 *
 * record_writer: empties the threads' buffers, orders what was in them by time, and appends it to the file in chunks. Its state
 * is that of one thread at a time: of the one that opens, then of the writer's own.
 *
 * A pass takes what happened before it began and leaves what came later. What a thread did before another, which saw it,
 * is in the same pass or an earlier one; so a file that ends after any chunk makes sense. A thread that was interrupted between
 * taking the time and writing it down comes late: chunks can overlap in time, and readers sort.
 */
#ifndef CLV_RECORD_WRITER_H
#define CLV_RECORD_WRITER_H

#include "../../src/base/ticks.h"
#include "record.h"
#include "record_file.h"
#include "record_live.h"
#include "record_pack.h"
#include "record_tables.h"
#include "ring.h"

/* What `a` of DROPPED says. */
enum clv_drop_cause { CLV_DROP_MEMORY, CLV_DROP_DISK, CLV_DROP_LIMIT, CLV_DROP_CAUSES };

/* What other threads may read of the writer, and write to it. */
struct clv_record_shared {
	_Atomic uint32_t sleeping; /* futex: 1 while the writer waits, 0 wakes it */
	_Atomic uint32_t stop;
	_Atomic uint64_t stop_by;            /* ns: by when it gives up on the disk */
	_Atomic uint32_t flush_asked;        /* counts up */
	_Atomic uint32_t flush_done;         /* futex: the last one that is in the file */
	_Atomic uint64_t homeless;           /* events for which there was no buffer */
	_Atomic uint64_t events, dropped, bytes, files, stacks, threads;
	_Atomic int disk_errno;
};

/* Children of fork() write their ids here, which the parent's writer reads: the parent's handlers are not told them. */
#define CLV_FORKS 64u
struct clv_record_forks {
	_Atomic uint64_t begun; /* forks so far; the n-th has place n % CLV_FORKS */
	struct {
		_Atomic uint64_t time;
		_Atomic uint32_t pid; /* 0: the child has not run yet */
	} places[CLV_FORKS];
};

struct clv_writer {
	struct clv_record_config config; /* strings are the writer's own */
	uint32_t session;
	bool begins_late; /* clv_writer_begin() is for its thread to call */
	uint64_t begun;   /* ns: since when is recorded */
	struct clv_ticks_scale scale; /* of events' times; reaches up to the last pass */
	struct clv_record_shared *shared;
	struct clv_record_forks *forks; /* NULL: there are none */
	struct clv_record_file file;

	struct clv_encoder encoder;
	struct clv_packer packer;
	struct clv_record_tables tables;
	struct clv_live live;     /* where other files can follow */
	uint64_t newest, floor;   /* time of the last event that was taken; events of before are late, and come then */
	struct clv_writer_device *devices;
	uint32_t device_count, device_cap;
	struct clv_encode_notes loose; /* notes of no device */
	struct clv_ring_list rings;
	struct clv_cursor *cursors;
	size_t cursor_cap;

	/* of the chunk in the making: what is in it, and how much of that threads put into their buffers; bytes, about; since when,
	 * in ns */
	uint64_t chunk_events, chunk_taken, chunk_cost, chunk_begun;
	uint64_t chunk_drops[CLV_DROP_CAUSES]; /* told of in it */
	uint64_t cost_max;
	struct clv_buf packed; /* chunks that are not in the file yet */
	uint64_t packed_taken; /* events of threads in them */
	uint64_t forks_told;
	uint64_t drops[CLV_DROP_CAUSES], drops_told[CLV_DROP_CAUSES];
	enum { CLV_ROTATE_NOT, CLV_ROTATE_NEXT } rotation; /* NEXT: the file has its end; the next is to be opened */
	uint32_t next_number, first_kept; /* of the file after this one; of the oldest that is there */
	bool stalled;        /* the disk takes nothing */
	bool limit_reached;  /* nothing more goes into the file but its end */
	bool said[8];
	uint64_t polled;     /* ns: when modules were looked for */
};

/* Makes the file, with a first chunk that tells of the process. False with `err`. */
bool clv_writer_begin(struct clv_writer *w, struct clv_error *err);

/* The writer's thread, until shared->stop. */
void clv_writer_run(struct clv_writer *w);

void clv_writer_free(struct clv_writer *w); /* and all that it has */

/* Wakes the writer if it sleeps. */
void clv_writer_wake(struct clv_record_shared *shared);

#endif
