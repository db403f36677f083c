/* SPDX-License-Identifier: MIT
 *
 * event_model: what a device has, kept from the events of a heap alone: frames and where they are mapped, what is held back,
 * live blocks, how often holes were cut and joined. An event that cannot be, after those before it, fails the test. For one
 * device; not thread-safe.
 */
#ifndef CLV_EVENT_MODEL_H
#define CLV_EVENT_MODEL_H

#include "../src/base/base.h"
#include "../src/heap/observer.h"

struct event_span {
	uint64_t addr, size;
	uint64_t what; /* of a mapping: its frame; of a block: the bytes that were asked for */
	uint64_t stream;
};

/* By address; none overlaps another. */
struct event_spans {
	struct event_span *at;
	size_t count, room;
	uint64_t bytes;
};

struct event_model {
	struct clv_observer observer; /* tells this model */
	struct event_spans homes;     /* where frames are mapped for use */
	struct event_spans others;    /* and where else */
	struct event_spans live;      /* blocks, with what they take */
	struct event_spans held_back; /* for reservations */
	struct event_frame {
		uint64_t size, home, mappings; /* size 0: it is none (any more) */
	} * frames;
	size_t frame_room;
	uint64_t held, live_bytes; /* live_bytes: requested, each rounded up to 512 B */
	uint64_t counts[CLV_EVENT_COUNT];
	uint64_t moved, device_waits, host_waits, yielded, last_failure;
};

void event_model_open(struct event_model *m);
void event_model_close(struct event_model *m);

/* The same as its observer is told. */
void event_model_tell(struct event_model *m, const struct clv_observed *what);

/* What its observer is told from here on does not count. */
void event_model_ignore(struct event_model *m);

/* Nothing is left. */
void event_model_empty(const struct event_model *m);

/* Against the statistics of the heap, and the list of its blocks. */
void event_model_compare(const struct event_model *m, cleave_heap *heap, int device);

#endif
