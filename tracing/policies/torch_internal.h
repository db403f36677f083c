/* SPDX-License-Identifier: MIT
 *
 * torch_internal: the structures of the model of PyTorch's allocator, shared by its own source files and by nothing else.
 *
 * Blocks, pools and expandable segments are known by index, never by address, so that arrays can grow, and so that a change
 * can be undone by writing old contents back: whoever changes one asks for it through clv_tw_*(), which keeps the old
 * contents while an undo may come. Index 0 is none. The pointers that these return are good until something is created;
 * each public call makes room for all the blocks it may create before it starts.
 */
#ifndef CLV_TORCH_INTERNAL_H
#define CLV_TORCH_INTERNAL_H

#include "../../src/base/torch_sizes.h"
#include "torch_allocator.h"

#define CLV_TORCH_MAX_REQUEST ((uint64_t)1 << 60)

struct clv_tlink {
	uint32_t left, right, up;
};

/* A node of a segment's chain of blocks; a member of one ordered set if it is free, of the list of pending frees if it
 * pends; and of the index by address if there is one. What a descent through a set looks at is in the first cache line: with
 * tens of thousands of blocks such descents are most of the time of a replay. */
#define CLV_TLINE 64
struct clv_tblock {
	uint64_t addr, size, stream;
	uint64_t order;       /* tie-break: 0, or the number of the block or of its segment */
	struct clv_tlink set; /* of `blocks` or `unmapped` of its pool; pending: left and right are the list */
	uint32_t prev, next;
	uint32_t half;       /* index of the struct clv_thalf it belongs to */
	uint32_t expandable; /* index of the expandable segment, 0 for a native one */
	bool used : 1, allocated : 1, pending : 1, mapped : 1, in_set : 1;
	bool other_streams : 1; /* recordStream was called */

	uint64_t requested;
	int64_t gc_base; /* the pool's count of searches when the block became free */
	struct clv_tlink index;
	uint32_t owner;
	uint32_t epoch; /* of the undo that has kept its contents */
} __attribute__((aligned(CLV_TLINE)));

/* The order of a set: free blocks by (stream, size, order, address), unmapped ones by (stream, address), all by address. */
enum clv_torder { CLV_TORDER_FREE, CLV_TORDER_UNMAPPED, CLV_TORDER_ADDRESS };

struct clv_tset {
	uint32_t root;
	uint32_t count;
	enum clv_torder order;
};

/* BlockPool: the small or the large half of a pool; that of pool p is 2p (large) or 2p + 1 (small). */
struct clv_thalf {
	struct clv_tset blocks, unmapped;
	int64_t searches; /* counted only where garbage collection is on */
};

struct clv_tpool {
	struct clv_torch_pool_options options;
	bool released;     /* nobody uses it any more */
	uint64_t segments; /* device allocations not given back */
};

struct clv_texpandable {
	uint64_t base, size, page;
	uint32_t next_free;
	bool used;
};

/* All that changes and is not in an array: undone by one copy. */
struct clv_tnow {
	struct clv_torch_stats stats;
	uint64_t reserved; /* total_allocated_memory */
	uint64_t blocks_made, segments_made;
	uint64_t pending;
	uint32_t pending_first, pending_last;
	uint32_t free_block; /* first of the unused nodes, linked by `next` */
	uint32_t block_top;  /* nodes from here on were never used */
	uint32_t free_expandable, expandable_top;
	uint32_t releases;     /* pools released so far */
	uint32_t pools_on_oom; /* pools marked use_on_oom */
	struct clv_tset index;
};

enum clv_tkept_kind { CLV_TKEPT_BLOCK, CLV_TKEPT_HALF, CLV_TKEPT_POOL, CLV_TKEPT_EXPANDABLE };

struct clv_tundo {
	bool on;
	uint32_t epoch;
	struct clv_tnow now;
	uint8_t *bytes; /* records: contents, then struct clv_tkept */
	size_t used, room;
};

struct clv_torch {
	struct clv_torch_settings settings;
	struct clv_torch_source source;
	uint64_t limit, device_total;
	bool find;
	bool gc; /* a limit and a threshold are set */
	bool broken;
	struct clv_tnow now;

	struct clv_tblock *blocks; /* aligned, within block_memory */
	void *block_memory;
	uint32_t block_room;
	struct clv_thalf *halves;
	struct clv_tpool *pools;
	uint32_t pool_count, pool_room;
	uint32_t *released; /* pools in the order of release; the first now.releases are valid */
	struct clv_texpandable *expandables;
	uint32_t expandable_room;
	struct clv_tundo undo;
};

/* torch_blocks.c */
void clv_tkeep(struct clv_torch *m, enum clv_tkept_kind kind, uint32_t index);
bool clv_tblocks_reserve(struct clv_torch *m, uint32_t n); /* room for n new blocks; false: broken */
uint32_t clv_tblock_new(struct clv_torch *m);              /* zeroed but for its number; room was reserved */
void clv_tblock_drop(struct clv_torch *m, uint32_t i);
void clv_tset_insert(struct clv_torch *m, struct clv_tset *set, uint32_t i);
void clv_tset_erase(struct clv_torch *m, struct clv_tset *set, uint32_t i);
uint32_t clv_tset_first(const struct clv_torch *m, const struct clv_tset *set);
uint32_t clv_tset_last(const struct clv_torch *m, const struct clv_tset *set);
uint32_t clv_tset_next(const struct clv_torch *m, const struct clv_tset *set, uint32_t i);
uint32_t clv_tset_prev(const struct clv_torch *m, const struct clv_tset *set, uint32_t i);
/* first block of at least (stream, size); first unmapped one of at least stream; last block at or below an address */
uint32_t clv_tset_at_least(const struct clv_torch *m, const struct clv_tset *set, uint64_t stream, uint64_t size);
uint32_t clv_tset_at_or_below(const struct clv_torch *m, const struct clv_tset *set, uint64_t addr);

static inline struct clv_tblock *clv_tw_block(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = &m->blocks[i];
	if (CLV_UNLIKELY(m->undo.on) && b->epoch != m->undo.epoch) {
		clv_tkeep(m, CLV_TKEPT_BLOCK, i);
		b->epoch = m->undo.epoch;
	}
	return b;
}

static inline struct clv_thalf *clv_tw_half(struct clv_torch *m, uint32_t i)
{
	if (CLV_UNLIKELY(m->undo.on))
		clv_tkeep(m, CLV_TKEPT_HALF, i);
	return &m->halves[i];
}

static inline struct clv_tpool *clv_tw_pool(struct clv_torch *m, uint32_t i)
{
	if (CLV_UNLIKELY(m->undo.on))
		clv_tkeep(m, CLV_TKEPT_POOL, i);
	return &m->pools[i];
}

static inline struct clv_texpandable *clv_tw_expandable(struct clv_torch *m, uint32_t i)
{
	if (CLV_UNLIKELY(m->undo.on))
		clv_tkeep(m, CLV_TKEPT_EXPANDABLE, i);
	return &m->expandables[i];
}

static inline bool clv_thalf_small(uint32_t half)
{
	return half & 1;
}

static inline bool clv_tblock_split(const struct clv_tblock *b)
{
	return b->prev || b->next;
}

/* torch_allocator.c */
void clv_tstat_add(struct clv_torch *m, uint32_t half, enum clv_torch_stat s, int64_t by);
void clv_tfree_insert(struct clv_torch *m, uint32_t i); /* into the set of free blocks, and of the index if new there */
void clv_tfree_erase(struct clv_torch *m, uint32_t i);
uint64_t clv_tmerge(struct clv_torch *m, uint32_t dst, uint32_t src); /* bytes gained by dst; src is gone if any */
void clv_tindex_insert(struct clv_torch *m, uint32_t i);
void clv_tnative_new(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t addr, uint64_t size, uint32_t *out);
void clv_tnative_gone(struct clv_torch *m, uint32_t half, uint64_t size); /* a segment, in the books but `reserved` */
void clv_tblock_allocated(struct clv_torch *m, uint32_t i, const struct clv_torch_request *request);
void clv_tpeaks(struct clv_torch *m);

/* torch_release.c */
void clv_trelease_block(struct clv_torch *m, uint32_t i);
void clv_tcollect_garbage(struct clv_torch *m);
bool clv_trelease_available(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t size);
void clv_trelease_cached(struct clv_torch *m, uint32_t pool, bool capturing);

/* torch_expandable.c */
uint32_t clv_texpandable_alloc(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t size);
uint32_t clv_texpandable_put(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t base, uint64_t size);
void clv_texpandable_drop(struct clv_torch *m, uint32_t expandable);
void clv_texpandable_unmap(struct clv_torch *m, uint32_t i); /* the free block i: whole pages go back */
uint64_t clv_tstranded(const struct clv_torch *m, const struct clv_tblock *b); /* of a free, mapped block */

#endif
