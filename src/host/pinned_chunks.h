/* SPDX-License-Identifier: MIT
 *
 * pinned_chunks: whole pages out of chunks of pinned memory, and the chunks themselves. One mutex guards it; it is never
 * held while the provider or an allocator is called, so that it may be taken from inside jemalloc.
 *
 * Invariants: chunks do not overlap; a run of pages lies in one chunk; pages in use + free pages = pages held.
 */
#ifndef CLV_PINNED_CHUNKS_H
#define CLV_PINNED_CHUNKS_H

#include "../base/base.h"

#define CLV_PINNED_PAGE ((size_t)4096)

/* Where chunks come from. Called without a lock of ours held, by any thread. */
struct clv_chunk_source {
	void *(*alloc)(void *ctx, size_t size); /* whole pages, aligned to one; NULL: refused */
	void (*free)(void *ctx, void *chunk, size_t size);
	void *ctx;
};

struct clv_chunks_stats {
	uint64_t held, free; /* bytes: of all chunks, of their free pages */
	uint64_t chunks, bought, refused, given_back;
};

struct clv_chunks;

struct clv_chunks *clv_chunks_open(const struct clv_chunk_source *source); /* NULL: host memory is out */
void clv_chunks_close(struct clv_chunks *c); /* gives every chunk back, whatever is in use */

/* `size` in whole pages, `align` a power of two of at least a page. NULL: no chunk that is held has room. */
void *clv_chunks_take(struct clv_chunks *c, size_t size, size_t align);
void clv_chunks_put(struct clv_chunks *c, void *run, size_t size); /* all or a part of what was taken */

/* Buys a chunk in which such a run fits; more than that, in proportion to what is held, as long as free bytes stay within
 * `limit`. The chunk is kept, even if it is free, until it is settled. NULL: refused. */
struct clv_chunk *clv_chunks_grow(struct clv_chunks *c, size_t size, size_t align, uint64_t limit);
void clv_chunks_settle(struct clv_chunks *c, struct clv_chunk *chunk);

/* Gives chunks that are entirely free back while more than `keep` bytes are free. Returns the bytes given back. */
uint64_t clv_chunks_release(struct clv_chunks *c, uint64_t keep);

bool clv_chunks_own(struct clv_chunks *c, const void *p); /* takes no lock */
void clv_chunks_get_stats(struct clv_chunks *c, struct clv_chunks_stats *out);

#endif
