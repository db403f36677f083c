/* SPDX-License-Identifier: MIT
 *
 * pinned: a cache of pinned host memory, in chunks that the caller's source gives (pinned_chunks.h). Blocks below 4 KiB are
 * cut by a jemalloc arena of their own, larger ones are whole pages. Thread-safe: a mutex guards the blocks, and none is
 * held while a chunk is bought or given back. Not for a child of fork(), which cannot use its parent's pinned memory
 * either.
 *
 * Invariants: blocks do not overlap, and lie in one chunk each; a block that was freed with a ticket is part of no other
 * until the ticket has passed; whenever a call is over, either at most `limit` bytes of pages are free, or no chunk
 * is entirely free but one that another thread just bought.
 */
#ifndef CLV_PINNED_H
#define CLV_PINNED_H

#include "../base/base.h"
#include "../base/error.h"

struct clv_pinned_ops {
	/* Whole pages, aligned to a page; NULL: refused. Slow, and so called without a lock. */
	void *(*alloc)(void *ctx, size_t size);
	void (*free)(void *ctx, void *chunk, size_t size);
	/* Whether the device is done with what was freed with this ticket. After true it is not asked about again. Not
	 * called by two threads at once. */
	bool (*passed)(void *ctx, uint64_t ticket);
	void *ctx;
};

struct clv_pinned_stats {
	uint64_t held; /* bytes of all chunks */
	uint64_t live,
		waiting; /* bytes of blocks in use and of those that wait for their tickets, as large as they are */
	uint64_t free;   /* bytes of pages that hold no block: they stay cached */
	uint64_t live_blocks, waiting_blocks, chunks;
	uint64_t bought, refused, given_back; /* calls of the source */
};

struct clv_pinned;

/* `limit`: bytes that may stay pinned for requests to come. NULL, and why, without jemalloc or host memory. */
struct clv_pinned *clv_pinned_open(const struct clv_pinned_ops *ops, uint64_t limit, struct clv_error *err);

/* Gives everything back, blocks that are live or waiting too: the device must be done with them. Nobody may be inside. */
void clv_pinned_close(struct clv_pinned *p);

/* Aligned to `align`, a power of two; to 4 KiB from 4 KiB on, and to 64 bytes always. NULL: size 0, another alignment, or
 * the source refuses. */
void *clv_pinned_alloc(struct clv_pinned *p, size_t size, size_t align);

/* The block can be used again once the ticket has passed; 0: at once. False: this is no live block of ours. */
bool clv_pinned_free(struct clv_pinned *p, void *block, uint64_t ticket);

bool clv_pinned_owns(struct clv_pinned *p, const void *ptr); /* any address in our chunks; takes no lock */

/* Gives every chunk that is entirely free back, after asking about each ticket. Returns the bytes given back. */
uint64_t clv_pinned_trim(struct clv_pinned *p);

void clv_pinned_get_stats(struct clv_pinned *p, struct clv_pinned_stats *out);

#endif
