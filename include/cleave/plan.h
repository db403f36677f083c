/* SPDX-License-Identifier: MIT
 *
 * Plans: memory whose use is known in advance.
 *
 * Packing gives each of a set of buffers, whose births and deaths are known, an offset in one region, so that no two
 * buffers that are live at the same time share a byte and the region is as low as can be. (Dynamic storage allocation, NP-hard:
 * Garey and Johnson, "Computers and Intractability", SR2.) The least conceivable height is the largest total that is live
 * at one time; it can often be reached.
 *
 * Units: sizes, offsets and heights are in one unit of the caller's choice (bytes, mostly), times in another (events, steps, ...).
 * Errors: functions return 0 or a negative errno: -EINVAL (an argument makes no sense), -ENOSPC (host memory).
 * Thread-safety: no function keeps state between calls; any may be called from any thread.
 */
#ifndef CLEAVE_PLAN_H
#define CLEAVE_PLAN_H

#include <cleave/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The times t with lower <= t < upper. */
typedef struct cleave_pack_span {
	int64_t lower, upper;
} cleave_pack_span;

#define CLEAVE_PACK_ANYWHERE UINT64_MAX

typedef struct cleave_pack_buffer {
	int64_t lower, upper; /* live at lower <= t < upper; lower == upper: never, it collides with nothing */
	uint64_t size;        /* 0: it collides with nothing */
	uint64_t alignment;   /* its offset is a multiple of this, not only of powers of two; 0: any offset */
	uint64_t offset;      /* where it must lie (not bound by `alignment`), or CLEAVE_PACK_ANYWHERE */

	/* Spans within its life in which it holds no memory, though it has the same offset before and after: others may
	 * lie there meanwhile. In ascending order, none overlapping another, within [lower, upper). NULL if there are
	 * none. */
	const cleave_pack_span *gaps;
	size_t gap_count;
} cleave_pack_buffer;

typedef struct cleave_pack_settings {
	uint64_t capacity;   /* the search ends when a packing of at most this height is found; 0: as low as can be */
	uint64_t seed;       /* the same seed gives the same packing, if no time limit ends the search */
	uint64_t effort;     /* the search ends after about this many steps of some 10 ns; 0: a default (10^9) */
	double time_limit_s; /* the function ends about then with what it has; 0: no limit */
	uint64_t reserved[4];
} cleave_pack_settings;

typedef struct cleave_pack_result {
	uint64_t lower_bound; /* no packing is lower: the largest live total, or more where a search has shown more */
	uint64_t height;      /* the largest offset + size */
	uint64_t steps;       /* that the search took */
	double seconds;
	int optimal;          /* 1: height == lower_bound, which proves that no packing is lower */
	int fits;             /* 1: height <= capacity, or no capacity was given */
	int timed_out;        /* 1: the time limit ended the search: another run may find another packing */
	uint64_t reserved[4];
} cleave_pack_result;

/* Packs `count` buffers: offsets[i] gets the offset of buffers[i]; a buffer that never holds memory gets 0, or where it is
 * fixed, and does not count in the height. `settings` may be NULL for the defaults. Needs host memory in proportion to `count`
 * and the number of gaps. On -EINVAL `why` (may be NULL; why_len bytes) gets a sentence that says what is wrong, and begins
 * "buffer N" or "buffers N and M" where those are to blame: a death before its birth, gaps out of order or outside of the
 * life, fixed buffers that collide, sizes that with their alignments are 2^62 or more in total, too many buffers or gaps
 * (2^29). On any error offsets and *result are left alone. */
CLEAVE_API int cleave_pack(const cleave_pack_buffer *buffers, size_t count, const cleave_pack_settings *settings,
			   uint64_t *offsets, cleave_pack_result *result, char *why, size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
