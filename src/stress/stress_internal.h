/* SPDX-License-Identifier: MIT
 *
 * stress_internal: one round of a stress run, shared by stress.c (rounds, phases, the books), stress_plan.c (what a
 * phase does), stress_streams.c (work on streams, and the order between them) and stress_ops.c (the operations).
 *
 * What threads share: the streams (each has a lock: taken for reading while something is put on the stream, for
 * writing by who destroys it, and that one only if it is to be had at once, so that nobody waits in a circle), the
 * exchange (atomic), the first wrong thing and the limits (a mutex each). Blocks and workers belong to one thread at a
 * time. Callbacks of the device take no lock of ours but `wrong_lock`.
 */
#ifndef CLV_STRESS_INTERNAL_H
#define CLV_STRESS_INTERNAL_H

#include "../driver/fault.h"
#include "device.h"
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

#define STRESS_USES 4u
#define STRESS_EXCHANGE 16u
#define STRESS_PHASE 5000u /* operations, of all threads together */

struct stress_stream {
	pthread_rwlock_t lock;
	cleave_stream stream;
	uint32_t life; /* counts up when it is destroyed and made anew */
	int device;
};

#define STRESS_NO_STREAM UINT32_MAX

/* A stream on which something was done with a block. If its life has ended since, that is complete. */
struct stress_use {
	uint32_t stream, life;
};

struct stress_block {
	cleave_ptr addr;
	uint64_t size;
	uint64_t made; /* in which operation */
	uint32_t id;
	int device;
	bool written; /* its contents are those of `stamp` */
	struct clv_stamp stamp;
	uint32_t home;                       /* the stream it was allocated on; STRESS_NO_STREAM: none (ANY) */
	struct stress_use writer;            /* who wrote it last; STRESS_NO_STREAM: the host */
	struct stress_use uses[STRESS_USES]; /* what must be done before it is free, and is not ordered among itself */
	unsigned use_count;
};

enum stress_mix { MIX_TINY, MIX_SMALL, MIX_EDGE, MIX_MEDIUM, MIX_PAGES, MIX_PAIR, MIX_LARGE, MIX_HUGE, MIX_COUNT };

#define STRESS_OPS(X)                                                                                                  \
	X(CHURN) /* allocates or frees */                                                                              \
	X(USE)   /* reads or writes a block on a stream */                                                             \
	X(HAND)  /* gives a block to another thread */                                                                 \
	X(TIME)  /* work completes */                                                                                  \
	X(LOOK)  /* asks the heap about a block, makes wrong calls */                                                  \
	X(STATS) /* asks for statistics */                                                                             \
	X(DRAIN) /* frees many */                                                                                      \
	X(TRIM)                                                                                                        \
	X(LIMIT)   /* limit, headroom, or what others hold */                                                          \
	X(DESTROY) /* a stream */                                                                                      \
	X(CHECK)   /* walks the heap */

enum stress_op {
#define X(name) OP_##name,
	STRESS_OPS(X)
#undef X
		OP_COUNT
};

/* What is drawn for a round. */
struct stress_plan {
	unsigned devices;
	bool manual; /* work completes when told to, else by the clock */
	uint64_t event_lag_ns;
	const char *settings;
	bool close_live; /* the heap is closed with blocks in it */
};

/* What is drawn for a phase. Read-only while threads run. */
struct stress_phase {
	uint32_t mix[MIX_COUNT], mix_sum; /* weights */
	uint32_t op[OP_COUNT], op_sum;
	uint64_t target_bytes; /* live bytes of a thread on a device that allocation and freeing move about */
	uint32_t target_blocks;
	uint64_t size_max;
	uint64_t pair[2]; /* two sizes that do not fit each other */
	uint32_t any_permille, other_permille, unwritten_permille, wait_permille;
	uint64_t work_ns;                                                     /* the longest piece of work */
	enum stress_order { ORDER_RANDOM, ORDER_OLDEST, ORDER_NEWEST } order; /* which block is freed next */
	struct clv_fault_config faults;
};

struct stress_round;

struct stress_worker {
	struct stress_round *round;
	unsigned number;
	uint64_t op;  /* in this round, from 1 */
	uint64_t ops; /* to do in this phase */
	struct clv_rng rng;
	clv_event event; /* the program's own, recorded again and again */
	struct stress_block **blocks;
	size_t block_count, block_room;
	uint64_t live[CLV_STRESS_DEVICES]; /* bytes, each block rounded up to 512 B */
	uint32_t relief;               /* so many frees are to come, since a request failed */
	uint64_t digest;
	struct clv_stress_counts counts;
};

struct stress_round {
	const struct clv_stress_config *config;
	uint64_t seed;
	struct stress_plan plan;
	struct stress_phase phase;

	struct clv_stress_device *device;
	struct clv_driver *driver, *fault, *wrap; /* the device's; the heap's is the wrap, if there is one, else the fault */
	cleave_heap *heap;
	struct stress_stream *streams;
	unsigned stream_count, streams_ready; /* locks made */
	_Atomic uint32_t next_block;
	_Atomic(struct stress_block *) exchange[STRESS_EXCHANGE];
	struct stress_worker *workers;

	pthread_mutex_t limit_lock; /* guards limit and headroom, and the setting of both */
	uint64_t limit[CLV_STRESS_DEVICES], headroom[CLV_STRESS_DEVICES];

	/* One thread, one device: how often the heap had asked what is free when that last changed behind its back,
	 * and how often we have asked ourselves. */
	uint64_t asked_before, own_asks;

	_Atomic bool stop; /* something is wrong, or host memory is out */
	_Atomic bool no_memory;
	pthread_mutex_t wrong_lock; /* guards `out` while threads run */
	struct clv_stress_result *out;
	_Atomic uint64_t written, checked, bytes_written, bytes_checked;
};

static inline bool stress_alone(const struct stress_round *r)
{
	return r->config->threads == 1;
}

static inline cleave_stream stress_stream_of(const struct stress_round *r, uint32_t stream)
{
	return r->streams[stream].stream;
}

/* Notes the first wrong thing and stops the round. `op` 0: between operations. Always false. */
bool clv_stress_wrong(struct stress_round *r, unsigned thread, uint64_t op, const char *fmt, ...) CLV_PRINTF(4, 5);

/* stress_plan.c */
void clv_stress_plan_round(struct stress_plan *plan, const struct clv_stress_config *config, struct clv_rng *rng);
void clv_stress_plan_phase(struct stress_phase *phase, const struct clv_stress_config *config, struct clv_rng *rng);
uint64_t clv_stress_draw_size(const struct stress_phase *phase, const struct clv_stress_config *config,
			      struct clv_rng *rng);

/* stress_streams.c. A stream is locked for reading from clv_stress_enter to clv_stress_leave. */
bool clv_stress_streams_open(struct stress_round *r);
void clv_stress_streams_close(struct stress_round *r);
uint32_t clv_stress_pick_stream(struct stress_worker *w, int device);
struct stress_use clv_stress_enter(struct stress_round *r, uint32_t stream);
void clv_stress_leave(struct stress_round *r, struct stress_use use);
/* Everything put on the streams so far completes. */
void clv_stress_settle(struct stress_round *r);
/* Orders `to`, which is entered, behind all that was put on `from` so far; by the host's waiting for it if `wait`. */
void clv_stress_order(struct stress_worker *w, struct stress_use from, struct stress_use to, bool wait);
/* The host waits until what was done with the block is complete. */
void clv_stress_await(struct stress_worker *w, const struct stress_block *b);
/* Work that writes or checks the block, on a stream that is entered; false: host memory is out. */
bool clv_stress_launch(struct stress_worker *w, const struct stress_block *b, struct stress_use on, bool write);
/* The same by the host, now. */
void clv_stress_touch(struct stress_worker *w, const struct stress_block *b, bool write);
/* Ends a stream's life if no other thread is at it. */
void clv_stress_destroy_stream(struct stress_worker *w, uint32_t stream);

/* stress_ops.c */
void clv_stress_step(struct stress_worker *w); /* one operation */
void clv_stress_free_block(struct stress_worker *w, size_t index);
void clv_stress_lift_limit(struct stress_worker *w, int device);
/* With all that is free given back and no call failing, a request of all that can still be held succeeds. */
bool clv_stress_keep_promise(struct stress_worker *w, int device);

#endif
