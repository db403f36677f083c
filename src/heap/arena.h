/* SPDX-License-Identifier: MIT
 *
 * arena: what the heap knows of one device. Everything in it is guarded by `lock`, but for what is marked atomic. The
 * modules of the heap each own a part of it:
 *
 *   space     addresses: extents that tile the reserved ranges, the indexes of holes
 *   frames    physical memory: created, mapped, moved, released
 *   streams   in whose order free memory is free; events, waits
 *   place     which addresses a request gets
 *   purchase  how much is bought at a time, in what pieces
 *   reclaim   how the frames under them are bought or taken from elsewhere; the ladder before failing
 *   slab      requests of up to 32 KiB
 *   cache     slots that a thread keeps for itself
 *   recent    large blocks that were just freed, kept for the next request of their size
 *   reserve   blocks held back for requests that a plan knows of
 *   counts    what programs have, counted where it is cheap
 *   breakdown where every held byte is
 *
 * Words: an *extent* is a run of addresses of one kind: LIVE (a block in use), HOLE (free and mapped), GAP (free, nothing
 * mapped) or LINGER (a frame was moved away from here, and work of a stream may still read the old address). A *frame* is
 * one physical allocation. It is *pinned* while a live extent touches it and *whole* while one hole covers it entirely;
 * only whole frames are moved or released. A hole is free in the order of one *slot* (a stream as the arena knows it);
 * slot 0 is ANY: complete, free for everybody.
 */
#ifndef CLV_ARENA_H
#define CLV_ARENA_H

#include "binmap.h"
#include "counts.h"
#include "pagemap.h"
#include "pool.h"
#include "settings.h"
#include "../driver/driver.h"

#include <pthread.h>
#include <stdatomic.h>

#define CLV_SLOT_ANY 0u
#define CLV_SLOT_NONE UINT32_MAX

enum clv_extent_kind { CLV_GAP, CLV_HOLE, CLV_LIVE, CLV_LINGER };

struct clv_extent {
	uint64_t addr, size;
	struct clv_extent *prev, *next; /* by address, within one reserved range */
	uint8_t kind;
	bool chunk;    /* LIVE: holds slabs */
	bool kept;     /* LIVE: freed, and kept for the next request of its size */
	uint32_t slot; /* HOLE: free in whose order; LIVE: allocated on; LINGER: whose work may still read it */
	union {
		struct {
			/* in the slot's indexes: the whole size; the parts at the left and right end that lie in frames
			 * which the hole does not cover (stranded memory, to be used first) */
			struct clv_bin_node total, left, right;
			uint64_t seq; /* free since this point of the slot's order */
		} hole;
		struct {
			struct clv_bin_node node; /* in arena->gaps */
		} gap;
		struct {
			uint64_t requested;
			uint64_t seq; /* work before this point of the slot's order may still use the memory */
			struct clv_extent *hash_next;            /* in arena->blocks */
			struct clv_extent *frame_next, **frame_link; /* in frame->starts */
			struct clv_extent *same_size, *older, *newer; /* in arena->recent, if kept */
			/* No block of the program: held back for it, and the next one that is. Else NULL. */
			struct clv_reservation *held_for;
			struct clv_extent *held_next;
			uint64_t born; /* arena->large_allocs when it was served */
		} live;
		struct {
			uint64_t seq;
			struct clv_frame *frame;
			struct clv_extent *next; /* in slot->lingers */
		} linger;
	};
};

struct clv_frame {
	uint64_t addr, size;
	uint64_t number; /* of those of the arena, from 1; never reused */
	clv_handle handle;
	uint64_t live;          /* bytes of it in live extents */
	uint32_t whole_slot;    /* slot of the hole that covers it, or CLV_SLOT_NONE */
	struct clv_extent *hole; /* that hole, while there is one */
	uint32_t busy_slot;     /* complete once this slot has passed busy_seq */
	uint64_t busy_seq;
	uint32_t lingers; /* other mappings of it: until they are gone the driver would not have its memory back */
	bool coarse; /* counts in arena->coarse */
	bool mixed; /* other slots had frees here that were not complete; never of a whole frame */
	bool occupied; /* set anew by each walk of breakdown */
	struct clv_bin_node whole; /* in the slot's index of whole frames */
	struct clv_extent *starts; /* live extents that begin here */
	struct clv_frame *prev, *next; /* all frames of the arena */
};

/* Large sizes that come and go; what falls on the same entry takes the other's place. */
struct clv_passing {
	uint64_t sizes[64];
};

/* Blocks that are kept: by slot and size, the last freed first, and in a list by age. Time is counted in frees of the arena. */
struct clv_recent {
	struct clv_recent_size {
		uint64_t size;
		uint32_t slot;
		uint16_t score; /* requests in a row that came soon after a free of this size */
		uint8_t freed;  /* and not asked for since, nor kept */
		uint8_t count;  /* of those that are kept */
		uint64_t freed_at;
		struct clv_extent *kept;
	} sizes[1024];
	struct clv_extent *oldest, *newest;
	uint64_t bytes;
	uint32_t count;
	uint64_t frames, frames_at; /* how many had been bought or moved when last looked at; since when it is so many */
};

#define CLV_SLOT_EVENTS 32u

/* A stream. Its order is counted in frees: `seq` is the number of the last free on it, `completed` the last one whose
 * preceding work is known to be done. */
struct clv_slot {
	cleave_stream stream;
	uint32_t index;
	bool used;
	bool ended; /* its stream is gone, and work of it may go on: all that was freed on it is covered by an event */
	bool lasting; /* its work has no foreseeable end: memory that is free for everybody is not to fall into its order */
	/* Lasting, and in frames of its own: it uses nothing that is free for everybody, and is asked after only when its stream
	 * ends. */
	bool apart;
	uint64_t seq, completed;
	struct clv_slot_event {
		clv_event event;
		uint64_t seq;
	} events[CLV_SLOT_EVENTS]; /* a ring, oldest at `first` */
	unsigned first, count;
	uint64_t recorded_seq;   /* the last seq that an event covers */
	uint64_t asked_seq;      /* recorded_seq when a request last asked after the events */
	uint64_t unrecorded_bytes; /* freed since */
	struct clv_binmap *holes, *parts, *whole; /* NULL until the first hole */
	/* All holes that are complete were handed over when `completed` was `swept`, unless one came since. */
	uint64_t swept;
	bool complete_hole;
	struct clv_extent *lingers, **linger_tail;
	struct clv_late *late, **late_tail; /* slots of slabs of other streams that were freed on this one */
	struct clv_slot *hash_next;
	struct clv_slabs *slabs;
};

struct clv_range {
	uint64_t addr, size;
	struct clv_extent *first;
	struct clv_range *next;
};

struct clv_arena {
	/* read by threads that do not take the lock, and written seldom: apart from what the lock's owner writes all the time */
	struct cleave_heap *heap;
	struct clv_driver *driver;
	int device;
	_Atomic(struct clv_observer *) observer; /* NULL: nobody is told */
	uint64_t granularity;
	struct clv_pagemap pages;
	_Atomic uint64_t epoch;    /* changes when threads must forget the slots they know */
	_Atomic int64_t live_peak; /* of all counts together */
	_Atomic uint64_t reserve_sizes; /* bit n: requests from 2^n bytes on, below 2^(n+1), concern reservations */
	char apart[64];

	pthread_mutex_t lock;
	struct clv_pool extents, frame_pool;
	struct clv_range *ranges;
	struct clv_binmap gaps;
	uint64_t spacing; /* room left before fresh placements, for growth */

	struct clv_extent **blocks; /* hash of live extents by address */
	uint64_t block_mask, block_count;

	struct clv_frame *frames;
	struct clv_frame *loose; /* held, but without an address: the driver would not take them back */
	struct clv_pool late_pool;
	struct clv_recent recent;
	struct clv_passing passing;

	struct clv_slot **slots; /* [0] is ANY */
	uint32_t slot_count, slot_room;
	uint32_t slots_unused; /* of slot_count: their streams are gone */
	uint32_t slots_ended;  /* of slot_count: the same, but their work may go on */
	struct clv_slot *slot_hash[64];
	clv_event *spare_events;
	unsigned spare_count, spare_room;

	/* books */
	uint64_t held, held_peak, loose_bytes;
	uint64_t used, used_peak;     /* bytes of live extents that are not kept (chunks count whole) */
	uint64_t pinned;              /* bytes of pinned frames */
	uint64_t coarse;              /* bytes of frames bought larger than is usual for their request */
	uint64_t limit, headroom;     /* as set; 0: none */
	uint64_t device_total;
	uint64_t room;                /* what the driver could still give when last asked */
	uint64_t room_asked_at;       /* bytes held then */
	uint64_t waited_ns, waited_at; /* by large blocks, for frames that they could cut; less what has been made good since */
	bool host_out; /* host memory was refused: since the request began */
	uint64_t asked; /* bytes that the request asks for which has the lock; else 0 */
	uint64_t last_frame; /* the number of the last one */

	/* requests */
	struct clv_counts counts; /* `live`: of large blocks, and what threads handed in; the rest: of threads that have ended */
	uint64_t large_allocs, large_frees;

	uint64_t failures_refused; /* of `failures`: there was room, and the driver refused */
	uint64_t failures, splits, merges, created, released, moved, device_waits, host_waits, polls;
	uint64_t frame_count, hole_count, live_count, chunk_count, chunks_made;
	uint64_t slabs_taken; /* bytes of slots out of the slabs: live, in a cache of a thread, or late */

	struct clv_reserves *reserves; /* NULL before the first */
	bool reserves_due;             /* those of the settings are still to be made */
	uint64_t reserve_bytes, reserve_slots; /* held back now */

	cleave_failure failure;
	uint64_t failed_ns; /* when, of CLOCK_MONOTONIC */
	char failure_broken[512]; /* builds that check invariants: the first that did not hold */
};

struct cleave_heap {
	struct clv_driver *driver;
	struct clv_settings settings;
	uint64_t id; /* never reused: threads know their caches by it */
	int devices;
	_Atomic(struct clv_arena *) *arenas; /* made at the first use of a device */
	pthread_mutex_t lock;      /* guards the making of arenas, and `caches` */
	struct clv_cache *caches;
	struct clv_observer *observer; /* of arenas that are made; guarded by `lock` */
	struct cleave_heap *next_open; /* observer.c */
	/* told of what reservations should not have to do; guarded by `lock` */
	void (*warn)(void *arg, const char *sentence);
	void *warn_arg;
};

/* The arena of a device, made at its first use; NULL with *why (heap.c). */
struct clv_arena *clv_heap_arena(struct cleave_heap *heap, int device, int *why);

/* The arena of a device that was used; NULL: it never was, so there is nothing to tell, or there is no such device. */
static inline struct clv_arena *clv_heap_used_arena(struct cleave_heap *heap, int device)
{
	return device >= 0 && device < heap->devices
		       ? atomic_load_explicit(&heap->arenas[device], memory_order_acquire)
		       : NULL;
}

/* One walk over all structures of an arena against its books; false with a sentence in err (check.c). */
bool clv_arena_check(struct clv_arena *a, struct clv_error *err);

#endif
