/* SPDX-License-Identifier: MIT
 *
 * torch_allocator: the exact model of one device of PyTorch 2.11's native caching allocator: rounding, block pools, best
 * fit, splits and merges, deferred frees, expandable segments and the whole order of fallbacks before an OOM. It decides;
 * device memory itself comes from a `clv_torch_source`, so the same model runs in step with a recording or against a
 * simulated capacity. A model is owned by one thread at a time.
 *
 * Words are PyTorch's: a *segment* is one device allocation (or, expandable, a range of addresses of which whole pages are
 * mapped); a *block* a piece of a segment, allocated, pending (freed, but another stream may still use it) or free; a
 * *pool* is pair of sets of free blocks, small (requests up to 1 MiB) and large; pool 0 is the default one, others are
 * private to a CUDA graph or a MemPool.
 */
#ifndef CLV_TORCH_ALLOCATOR_H
#define CLV_TORCH_ALLOCATOR_H

#include "torch_settings.h"

/* Where device memory comes from. The model calls the functions in PyTorch's order, in the middle of its own calls; they
 * must not call the model back, except that `sync` may call clv_torch_free_completed(). */
struct clv_torch_source {
	void *ctx;
	/* A segment: its address, or 0 if the driver refuses. */
	uint64_t (*device_alloc)(void *ctx, uint64_t size);
	void (*device_free)(void *ctx, uint64_t addr, uint64_t size);
	/* The addresses of an expandable segment; 0: refused. */
	uint64_t (*reserve)(void *ctx, uint64_t size, uint64_t page, uint64_t stream);
	void (*unreserve)(void *ctx, uint64_t addr, uint64_t size);
	/* Maps or unmaps whole pages. False: refused. */
	bool (*map)(void *ctx, uint64_t addr, uint64_t size, uint64_t page);
	void (*unmap)(void *ctx, uint64_t addr, uint64_t size, uint64_t page);
	/* Every outstanding event is waited for: the owner completes the pending frees. NULL: the model completes them itself,
	 * in the order in which they were requested. */
	void (*sync)(void *sync_ctx);
	void *sync_ctx;
	/* A request failed: PyTorch asks the device what is free. May be NULL. */
	void (*failed)(void *ctx);
};

struct clv_torch_config {
	struct clv_torch_settings settings;
	struct clv_torch_source source;
	uint64_t limit;        /* bytes, what set_per_process_memory_fraction allows; CLV_TORCH_UNLIMITED: none */
	uint64_t device_total; /* sizes the address range of expandable segments; 0: so large that it never matters */
	bool find;             /* clv_torch_find() is wanted: keeps an index of blocks by address */
};

struct clv_torch_request {
	uint64_t size;   /* in bytes, as the program asks */
	uint64_t stream; /* raw handle */
	uint32_t pool;   /* that the request is diverted to; 0: none */
	uint32_t owner;  /* kept with the block, for the caller */
	/* A diversion to any pool, or a capture, is underway on the device. Up to PyTorch 2.12 nothing cached is flushed then. */
	bool capturing;
};

enum clv_torch_status {
	CLV_TORCH_OK,
	CLV_TORCH_OOM,
	CLV_TORCH_NO_HOST_MEMORY, /* the model ran out of host memory for its books: it can only be closed */
};

#define CLV_TORCH_NONE 0u /* no block */

enum clv_torch_stat {
	CLV_TORCH_ALLOCATION,
	CLV_TORCH_SEGMENT,
	CLV_TORCH_ACTIVE,
	CLV_TORCH_INACTIVE_SPLIT,
	CLV_TORCH_ALLOCATED_BYTES,
	CLV_TORCH_RESERVED_BYTES,
	CLV_TORCH_ACTIVE_BYTES,
	CLV_TORCH_INACTIVE_SPLIT_BYTES,
	CLV_TORCH_REQUESTED_BYTES,
	CLV_TORCH_STATS
};

enum clv_torch_stat_kind { CLV_TORCH_ALL, CLV_TORCH_LARGE, CLV_TORCH_SMALL, CLV_TORCH_STAT_KINDS };

struct clv_torch_counter {
	int64_t current, peak;
	uint64_t allocated, freed; /* summed over time */
};

/* torch.cuda.memory_stats(), plus what is stranded. */
struct clv_torch_stats {
	struct clv_torch_counter of[CLV_TORCH_STAT_KINDS][CLV_TORCH_STATS];
	struct clv_torch_counter oversize_allocations, oversize_segments;
	uint64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
	/* Free bytes that no flush can give back, since a block in use shares the segment (or the expandable page) with them. */
	uint64_t stranded_bytes, stranded_peak_bytes;
};

struct clv_torch_block_info {
	uint64_t addr, size, requested, stream;
	uint32_t pool, owner;
	bool small, allocated, pending, mapped, expandable;
};

struct clv_torch;

/* NULL: out of host memory. */
struct clv_torch *clv_torch_open(const struct clv_torch_config *config);
void clv_torch_close(struct clv_torch *m);        /* NULL is allowed; nothing is given back to the source */
bool clv_torch_broken(const struct clv_torch *m); /* host memory ran out in some call */

/* A private pool; answers its number, 0 if host memory is out. `custom_allocator`: segments come from the pool's own
 * allocator, so they are never expandable. */
struct clv_torch_pool_options {
	bool custom_allocator, use_on_oom, no_split;
};
uint32_t clv_torch_pool_create(struct clv_torch *m, const struct clv_torch_pool_options *options);
/* The last user of a pool is gone: from now on its unused memory can be flushed, in the order of these calls. */
void clv_torch_pool_release(struct clv_torch *m, uint32_t pool);
bool clv_torch_pool_released(const struct clv_torch *m, uint32_t pool);
void clv_torch_pool_use_on_oom(struct clv_torch *m, uint32_t pool, bool on);

/* Size 0 gives no block and CLV_TORCH_OK, as PyTorch does. *block stays valid until the block is free. */
enum clv_torch_status clv_torch_malloc(struct clv_torch *m, const struct clv_torch_request *request, uint32_t *block);

/* Serves the request if the block that PyTorch takes from its cache starts at `addr`. Otherwise nothing changes and the
 * answer is CLV_TORCH_NONE. */
uint32_t clv_torch_malloc_cached_at(struct clv_torch *m, const struct clv_torch_request *request, uint64_t addr);

/* Work of another stream uses the block: its free will wait for that stream. */
void clv_torch_record_stream(struct clv_torch *m, uint32_t block, uint64_t stream);

/* The program gives the block up. True: complete, the block is gone. False: it pends until clv_torch_free_completed(). */
bool clv_torch_free(struct clv_torch *m, uint32_t block);
/* The same, and the block pends whatever streams were recorded. */
void clv_torch_free_requested(struct clv_torch *m, uint32_t block);
void clv_torch_free_completed(struct clv_torch *m, uint32_t block);
uint64_t clv_torch_pending(const struct clv_torch *m);       /* number of frees that pend */
uint32_t clv_torch_first_pending(const struct clv_torch *m); /* the one requested first, or CLV_TORCH_NONE */

/* torch.cuda.empty_cache(), or what the end of a MemPool does to its own memory only. */
void clv_torch_empty_cache(struct clv_torch *m);
void clv_torch_empty_pool(struct clv_torch *m, uint32_t pool);

uint64_t clv_torch_round(const struct clv_torch_settings *s, uint64_t size);
uint64_t clv_torch_segment_bytes(const struct clv_torch_settings *s, uint64_t rounded);
/* Of the addresses of an expandable segment; a device_total of 0 is taken to be very large. */
uint64_t clv_torch_reservation_bytes(const struct clv_torch_settings *s, uint64_t device_total, bool small);

void clv_torch_get_stats(const struct clv_torch *m, struct clv_torch_stats *out);
uint64_t clv_torch_reserved(const struct clv_torch *m);
uint64_t
clv_torch_unused_private(const struct clv_torch *m); /* free bytes of pools that are in use; walks the blocks */
uint64_t clv_torch_block_addr(const struct clv_torch *m, uint32_t block);
bool clv_torch_block_pending(const struct clv_torch *m, uint32_t block);
void clv_torch_block_get(const struct clv_torch *m, uint32_t block, struct clv_torch_block_info *out);
/* The block that contains an address (config.find), or CLV_TORCH_NONE. */
uint32_t clv_torch_find(const struct clv_torch *m, uint64_t addr);
/* Whether any block lies in a range of addresses (config.find). */
bool clv_torch_overlaps(const struct clv_torch *m, uint64_t addr, uint64_t size);
/* The block after another one by address, in whatever segment; of CLV_TORCH_NONE: the first (config.find). */
uint32_t clv_torch_find_next(const struct clv_torch *m, uint32_t block);
/* The neighbour within its segment, or CLV_TORCH_NONE. */
uint32_t clv_torch_next(const struct clv_torch *m, uint32_t block);
uint32_t clv_torch_prev(const struct clv_torch *m, uint32_t block);

/* Undo: what happens between begin and rollback leaves no trace in the model (what the source was told is for the caller to
 * undo). It costs in proportion to what was changed. */
void clv_torch_begin(struct clv_torch *m);
void clv_torch_commit(struct clv_torch *m);
void clv_torch_rollback(struct clv_torch *m);

/* Walks every structure and compares it with the books. False with a sentence in `why`. */
bool clv_torch_check(const struct clv_torch *m, char *why, size_t why_len);

#endif
