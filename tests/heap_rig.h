/* SPDX-License-Identifier: MIT
 *
 * heap_rig: a heap over witness, fault and sim with a model of it beside: which blocks are live, in whose order they were
 * allocated, what the books must say. Every operation goes to both and is compared; what does not agree fails the test with
 * the seed and the number of the step. CLEAVE_TEST_SEED, a small number, chooses other random work. For tests with one thread.
 */
#ifndef CLV_HEAP_RIG_H
#define CLV_HEAP_RIG_H

#include "../src/driver/fault.h"
#include "../src/driver/sim.h"
#include "witness.h"

#define RIG_STREAMS 6u /* [0] is ANY */
#define RIG_BLOCKS 4096u

struct rig_config {
	uint64_t seed;
	const char *settings;
	uint64_t capacity;
	unsigned streams;     /* besides ANY */
	bool backing;         /* blocks are written and read by asynchronous work */
	bool manual;          /* events complete when the rig says so, else by the clock */
	unsigned check_every; /* cleave_heap_check each so many steps; 0: never */
	bool faults_expected; /* requests may fail without a reason that the model knows */
};

struct rig_block {
	cleave_ptr addr;
	uint64_t size;
	cleave_stream stream;
	bool used; /* work of the stream was launched on it */
	uint64_t pattern;
};

struct rig {
	struct rig_config config;
	struct clv_rng rng;
	struct clv_driver *sim, *fault;
	struct witness *witness;
	cleave_heap *heap;
	cleave_stream streams[RIG_STREAMS];
	struct rig_block blocks[RIG_BLOCKS];
	unsigned count;
	uint64_t step, next_stream, next_pattern;
	uint64_t limit, headroom, foreign;
	uint64_t live, peak, allocs, frees, failures; /* what the statistics must say */
	bool well; /* no faults until this is unset */
	struct rig_work *work; /* backing: launched and not run */
	uint64_t checked_words; /* read back and found right */
};

void rig_open(struct rig *r, const struct rig_config *config);
void rig_close(struct rig *r); /* also tells what leaks */

/* Calls of the driver reach it, or meet the faults that are set. */
void rig_set_well(struct rig *r, bool well);

/* The answer of cleave_alloc; the block is the last one on 0. */
int rig_alloc(struct rig *r, unsigned stream, uint64_t size);
void rig_free(struct rig *r, unsigned block, unsigned stream);
void rig_free_all(struct rig *r);
void rig_complete(struct rig *r, unsigned stream); /* all work on a stream so far */
void rig_pass_time(struct rig *r, uint64_t ns);
void rig_destroy_stream(struct rig *r, unsigned stream); /* and a new one takes its place */
void rig_trim(struct rig *r, uint64_t keep);
void rig_set_limit(struct rig *r, uint64_t bytes);
void rig_set_headroom(struct rig *r, uint64_t bytes);
void rig_set_foreign(struct rig *r, uint64_t bytes);
void rig_bad_calls(struct rig *r); /* frees and questions that must be refused */
void rig_check(struct rig *r);     /* heap, witness, books */

/* One random operation; about `target` bytes are kept live. */
void rig_step(struct rig *r, uint64_t target);

/* What the model says the heap may hold at most, and the bytes of frames that hold live blocks. */
uint64_t rig_cap(const struct rig *r);
uint64_t rig_pinned(const struct rig *r);

#endif
