/* SPDX-License-Identifier: MIT
 *
 * stress: random work on the heap over a simulated device whose memory is real, or over GPUs, every block's contents
 * checked. A run owns all that it makes; runs do not share anything.
 *
 * A run is cut into rounds of CLV_STRESS_ROUND operations. A round has a device and a heap of its own and everything
 * in it follows from its seed, which is the run's plus the round's number: round r of seed s is round 0 of seed s + r,
 * so that what goes wrong late is repeated at once. With one thread, on a simulated device, a round is the same each time;
 * else the order in which threads come, or work is done, is the system's.
 */
#ifndef CLV_STRESS_H
#define CLV_STRESS_H

#include "../base/error.h"
#include "../driver/cuda_program.h"

#define CLV_STRESS_ROUND 50000u
#define CLV_STRESS_THREADS 64u
#define CLV_STRESS_STREAMS 1024u
#define CLV_STRESS_DEVICES 2u /* at most so many are worked on */

struct clv_stress_config {
	uint64_t ops;
	uint64_t seed;
	unsigned threads;     /* 1 to CLV_STRESS_THREADS */
	unsigned streams;     /* 1 to CLV_STRESS_STREAMS, at a time */
	uint64_t capacity;    /* of each device; at least 16 MiB */
	bool faults;          /* calls of the driver fail by chance */
	bool full;            /* every byte is checked, else samples (pattern.h) */
	const char *settings; /* of the heap; NULL: drawn anew for each round */
	struct clv_cuda_program *cuda; /* on these GPUs, borrowed; NULL: on a simulated device */

	/* Tests put a driver of their own between the heap and the device, to see that what it does wrong is found.
	 * It wraps `inner`, which it does not own, and is closed before it. NULL: none. */
	struct clv_driver *(*wrap)(struct clv_driver *inner, void *arg);
	void *wrap_arg;

	/* Called between phases, with no thread at work. May be NULL. */
	void (*progress)(void *arg, uint64_t round_seed, uint64_t done, uint64_t total);
	void *progress_arg;
};

#define CLV_STRESS_COUNTS(X)                                                                                           \
	X(allocs, "requests served")                                                                                   \
	X(frees, "blocks freed")                                                                                       \
	X(failures, "requests refused")                                                                                \
	X(small, "requests of up to 32 KiB")                                                                           \
	X(any, "requests or frees of no stream (ANY)")                                                                 \
	X(cross_frees, "blocks freed on another stream than they were allocated on")                                   \
	X(crossings, "times one stream was made to wait for another by the program")                                   \
	X(handed_over, "blocks handed to another thread")                                                              \
	X(written, "contents written")                                                                                 \
	X(checked, "contents checked")                                                                                 \
	X(streams_destroyed, "streams destroyed")                                                                      \
	X(trims, "trims")                                                                                              \
	X(limits, "changes of limit, headroom or foreign use")                                                         \
	X(promises, "requests that had to succeed and did")                                                            \
	X(refusals, "wrong calls of the heap, refused as they should be")                                              \
	X(books, "times the books were balanced")

struct clv_stress_result {
	bool passed;
	/* the first wrong thing, if not passed */
	uint64_t seed;      /* of its round */
	uint64_t operation; /* in its round and thread, from 1; 0: between operations */
	unsigned thread;
	char wrong[512];

	uint64_t round_ops; /* of the round that went wrong: what to ask for to repeat it */
	uint64_t rounds, ops;
	uint64_t faults;                       /* injected */
	uint64_t live_peak, held_peak;         /* bytes, over all rounds */
	uint64_t bytes_written, bytes_checked; /* blocks in full size */
	uint64_t digest;                       /* of everything that the heap answered: equal runs have equal ones */
	double wall_s;
	struct clv_stress_counts {
#define X(field, text) uint64_t field;
		CLV_STRESS_COUNTS(X)
#undef X
	} counts;
};

/* false: the run could not be made: settings that are refused, or host memory or threads that are not to be had.
 * Something wrong with the heap is a result. */
bool clv_stress_run(const struct clv_stress_config *config, struct clv_stress_result *out, struct clv_error *err);

#endif
