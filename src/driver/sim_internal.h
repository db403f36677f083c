/* SPDX-License-Identifier: MIT
 *
 * sim_internal: the parts of a simulated driver, shared by sim.c (table, clock, books), sim_memory.c (address ranges,
 * frames, mappings), sim_plain.c (plain allocations), sim_backing.c (host memory behind them) and sim_stream.c (work
 * and events). One mutex, sim->lock, guards all of it; functions below are called with it held unless they say
 * otherwise.
 */
#ifndef CLV_SIM_INTERNAL_H
#define CLV_SIM_INTERNAL_H

#include "cost.h"
#include "sim.h"

#include <pthread.h>

#define SIM_MAX_DEVICES 64 /* access rights of a mapping are one bit a device */
#define SIM_NONE UINT32_MAX
#define SIM_FIRST_ADDRESS ((uint64_t)1 << 40) /* so that no small number is mistaken for a device address */

/* A physical allocation. It lives until it is released and no mapping is left. */
struct sim_frame {
	uint64_t size;
	uint64_t file_offset; /* where its bytes are, with backing */
	int file;             /* a file of its own, else -1: they are in sim->file */
	uint64_t *untouched;  /* with backing: pieces that have no bytes yet; NULL: all have */
	uint32_t generation;  /* tells a stale handle from the slot's present one */
	uint32_t mappings;
	uint32_t next_free;
	uint8_t device;
	bool live;     /* the slot is in use */
	bool released; /* the handle is dead, mappings keep the memory */
	bool imported; /* another's memory: not counted here */
};

struct sim_mapping {
	uint64_t addr, size;
	uint64_t access; /* bit d: device d may touch it; 0 in a fresh mapping */
	uint32_t frame;
	uint32_t next_free;
};

struct sim_page;

/* A reservation, a plain allocation or a page of small ones: a node of the treap of all ranges, ordered by address.
 * Ranges never touch. */
struct sim_range {
	struct sim_range *left, *right;
	uint64_t priority;
	uint64_t addr, size;
	uint32_t *granule; /* reservation: index + 1 of the mapping over each granule, 0 if unmapped */
	size_t granule_bytes; /* of the array above */
	uint32_t mappings;
	uint8_t *host; /* with backing: where the range's bytes are, at the same offsets */
	uint64_t file_offset; /* with backing, plain: where in sim->file they are */
	uint64_t *untouched;  /* the same: pieces that have no bytes yet; NULL: all have */
	struct sim_page *page; /* not NULL: small plain allocations share the range */
	int device;
	bool plain;
};

struct sim_event {
	uint64_t complete_ns; /* by the clock */
	uint64_t seq;         /* of the record among everything submitted */
	uint64_t position;    /* manual: complete when so many entries of `stream` are */
	struct sim_stream *stream; /* NULL: never recorded, thus complete */
	uint32_t generation, next_free;
	bool live;
};

/* Manual mode: what was appended to a stream and is not complete. */
struct sim_entry {
	void (*fn)(void *); /* work with something to run; else NULL */
	void *arg;
	struct sim_stream *wait_stream; /* not NULL: goes on when wait_position of its entries are complete */
	uint64_t wait_position;
};

struct sim_stream {
	struct sim_stream *next;  /* in its hash bucket */
	struct sim_stream *older; /* all streams, the newest first; never changes */
	uint64_t id;
	uint64_t end_ns;               /* of everything appended so far */
	uint64_t submitted, completed; /* manual: entries; ring holds those in between */
	struct sim_entry *ring;
	uint32_t ring_head, ring_capacity; /* capacity is a power of two */
};

/* Clock mode: work with something to run, in a binary heap by (end, seq). Whatever depends on a piece of work ends no
 * earlier and was submitted later, so this order honours every stream and every wait. */
struct sim_work {
	uint64_t end_ns, seq;
	void (*fn)(void *);
	void *arg;
};

struct sim_device {
	uint64_t used, used_peak, foreign;
	struct sim_page *pages;
};

struct sim {
	struct clv_driver driver; /* first: the table's self */
	pthread_mutex_t lock;
	pthread_cond_t settled; /* a piece of work has been run, or the token below is free */

	struct clv_sim_config config;
	struct sim_device devices[SIM_MAX_DEVICES];
	struct clv_call_counts counts;
	uint64_t now; /* written under the lock, read without it */

	/* memory */
	struct sim_range *ranges;
	struct sim_range *last; /* the range found last; heaps ask again and again about few */
	uint64_t cursor;        /* where the search for unused addresses goes on */
	unsigned granularity_log2;
	struct sim_frame *frames;
	struct sim_mapping *mappings;
	uint32_t frame_capacity, frame_free, mapping_capacity, mapping_free;
	uint64_t handles_live, mappings_live, reservations_live, plain_live;
	int file; /* memfd with the bytes of plain allocations and most frames; -1: no backing */
	uint64_t file_end;

	/* streams */
	struct sim_stream **buckets;
	uint32_t bucket_count, stream_count;
	struct sim_stream *last_stream, *newest_stream;
	struct sim_event *events;
	uint32_t event_capacity, event_free;
	uint64_t events_live;
	struct sim_work *work;
	uint32_t work_count, work_capacity;
	uint64_t seq, device_end_ns;

	/* The token of the one thread that runs callbacks, which it does without the lock. */
	bool draining;
	pthread_t drainer;
	bool running; /* clock mode: the work below has started and not returned */
	uint64_t running_end_ns, running_seq;

	bool capturing, capture_invalid;

	uint64_t fail_host_in; /* tests: counts down; at 1 this and every later host allocation fails */
};

static inline struct sim *sim_of(struct clv_driver *driver)
{
	return (struct sim *)driver;
}

/* Host memory. Grows an array of `*capacity` elements of `size` bytes to twice as many (at least 64). */
void *clv_sim_host_alloc(struct sim *sim, size_t size); /* zeroed */
bool clv_sim_host_grow(struct sim *sim, void *array, uint32_t *capacity, size_t size);

/* Every entry of the table: enter counts the call, leave charges it, runs what has become due and unlocks. */
struct sim *clv_sim_enter(struct clv_driver *driver, enum clv_call call);
enum clv_result clv_sim_leave(struct sim *sim, enum clv_result result, uint64_t ns);
void clv_sim_charge(struct sim *sim, uint64_t ns);
bool clv_sim_breaks_capture(struct sim *sim); /* true: a capture is on, and this call was one too many for it */
void clv_sim_clock_to(struct sim *sim, uint64_t ns); /* never back */

/* sim_memory.c */
enum clv_result clv_sim_address_reserve(struct clv_driver *self, uint64_t *addr, uint64_t size, uint64_t align);
enum clv_result clv_sim_address_free(struct clv_driver *self, uint64_t addr, uint64_t size);
enum clv_result clv_sim_create(struct clv_driver *self, clv_handle *handle, uint64_t size, int device);
enum clv_result clv_sim_release(struct clv_driver *self, clv_handle handle);
enum clv_result clv_sim_map(struct clv_driver *self, uint64_t addr, uint64_t size, uint64_t offset, clv_handle handle);
enum clv_result clv_sim_unmap(struct clv_driver *self, uint64_t addr, uint64_t size);
enum clv_result clv_sim_set_access(struct clv_driver *self, uint64_t addr, uint64_t size, int device);
void clv_sim_memory_close(struct sim *sim);

bool clv_sim_device_take(struct sim *sim, int device, uint64_t bytes); /* false: the device is full */
struct sim_range *clv_sim_range_at(struct sim *sim, uint64_t addr);    /* the one that contains the address, or NULL */
struct sim_range *clv_sim_range_new(struct sim *sim, uint64_t size, uint64_t align, int device); /* not linked yet */
void clv_sim_range_link(struct sim *sim, struct sim_range *r);
void clv_sim_range_free(struct sim *sim, struct sim_range *r, bool linked);

/* sim_plain.c */
enum clv_result clv_sim_mem_alloc(struct clv_driver *self, uint64_t *addr, uint64_t size, int device);
enum clv_result clv_sim_mem_free(struct clv_driver *self, uint64_t addr);
/* Where the plain allocation begins that contains `addr`, in *start, and its bytes; 0 if none does. */
uint64_t clv_sim_plain_around(const struct sim *sim, const struct sim_range *r, uint64_t addr, uint64_t *start);
/* Bytes from `addr` to the end of the plain allocation there; 0 if none is. */
uint64_t clv_sim_plain_bytes(const struct sim *sim, const struct sim_range *r, uint64_t addr);

/* sim_backing.c; each answers false, and changes nothing, if the host refuses. Without backing all of them do
 * nothing. */
bool clv_sim_backing_open(struct sim *sim);
void clv_sim_backing_close(struct sim *sim);
bool clv_sim_backing_create(struct sim *sim, struct sim_frame *frame); /* bytes are garbage, as on a GPU */
bool clv_sim_backing_own_file(struct sim *sim, struct sim_frame *frame); /* before the above */
void clv_sim_backing_destroy(struct sim *sim, struct sim_frame *frame);
bool clv_sim_backing_reserve(struct sim *sim, struct sim_range *range); /* addresses that fault */
void clv_sim_backing_unreserve(struct sim *sim, struct sim_range *range);
bool clv_sim_backing_map(struct sim *sim, struct sim_range *range, uint64_t addr, const struct sim_frame *frame);
bool clv_sim_backing_unmap(struct sim *sim, struct sim_range *range, uint64_t addr, uint64_t size);
bool clv_sim_backing_access(struct sim *sim, struct sim_range *range, uint64_t addr, uint64_t size, bool access);
bool clv_sim_backing_plain(struct sim *sim, struct sim_range *range);
/* Garbage is written when these bytes are asked for first: before anyone is told where they are. */
bool clv_sim_backing_touch_frame(struct sim *sim, struct sim_frame *frame, uint64_t offset, uint64_t size);
bool clv_sim_backing_touch_plain(struct sim *sim, struct sim_range *range, uint64_t offset, uint64_t size);

/* sim_stream.c */
enum clv_result clv_sim_event_create(struct clv_driver *self, clv_event *event, int device);
enum clv_result clv_sim_event_destroy(struct clv_driver *self, clv_event event);
enum clv_result clv_sim_event_record(struct clv_driver *self, clv_event event, cleave_stream stream);
enum clv_result clv_sim_event_query(struct clv_driver *self, clv_event event);
enum clv_result clv_sim_event_synchronize(struct clv_driver *self, clv_event event);
enum clv_result clv_sim_stream_wait_event(struct clv_driver *self, cleave_stream stream, clv_event event);
enum clv_result clv_sim_stream_synchronize(struct clv_driver *self, cleave_stream stream);
void clv_sim_stream_close(struct sim *sim);

/* Runs what is due by the clock, dropping the lock around each callback. Does nothing if a thread is at it already. */
void clv_sim_settle(struct sim *sim);

/* Waits for everything on every stream. false: called from a callback, where waiting would never end. */
bool clv_sim_wait_device(struct sim *sim);

#endif
