/* SPDX-License-Identifier: MIT
 *
 * How the model gives memory back: garbage collection, the oversized blocks that a request may trade in, and the flush.
 */
#include "torch_internal.h"

#include "../memory.h"

/* A free native block that is a whole segment. */
void clv_trelease_block(struct clv_torch *m, uint32_t i)
{
	const struct clv_tblock *b = &m->blocks[i];
	uint32_t half = b->half;
	uint64_t addr = b->addr, size = b->size;
	clv_tfree_erase(m, i);
	if (m->find)
		clv_tset_erase(m, &m->now.index, i);
	clv_tblock_drop(m, i);
	m->now.reserved -= size;
	clv_tstat_add(m, half, CLV_TORCH_RESERVED_BYTES, -(int64_t)size);
	clv_tnative_gone(m, half, size);
	m->source.device_free(m->source.ctx, addr, size);
}

/* Whole free segments of the large default pool that are older than the average, again and again until what is held above
 * the threshold is given back. Age is the number of searches of the pool since the block became free. */
void clv_tcollect_garbage(struct clv_torch *m)
{
	uint64_t threshold = (uint64_t)(m->settings.gc_threshold * (double)m->limit);
	if (m->now.reserved <= threshold)
		return;
	uint64_t target = m->now.reserved - threshold, reclaimed = 0, total_age = 0;
	const struct clv_thalf *large = &m->halves[0];
	int count = 0;
	for (uint32_t i = clv_tset_first(m, &large->blocks); i; i = clv_tset_next(m, &large->blocks, i)) {
		const struct clv_tblock *b = &m->blocks[i];
		if (clv_tblock_split(b))
			continue;
		total_age += (uint64_t)(large->searches - b->gc_base);
		count++;
	}
	for (bool freed = true; reclaimed < target && freed && count > 0;) {
		double age_threshold = (double)total_age / count;
		uint32_t next;
		freed = false;
		/* a pass does not stop at the target, so that collections stay rare */
		for (uint32_t i = clv_tset_first(m, &large->blocks); i; i = next) {
			const struct clv_tblock *b = &m->blocks[i];
			uint64_t age = (uint64_t)(large->searches - b->gc_base);
			next = clv_tset_next(m, &large->blocks, i);
			if (clv_tblock_split(b) || b->expandable || (double)age < age_threshold)
				continue;
			freed = true;
			reclaimed += b->size;
			total_age -= age;
			count--;
			clv_trelease_block(m, i);
		}
	}
}

/* With a limit on splitting: oversized free blocks of the request's stream go back, the one that fits best if there is one,
 * else the largest first until there is as much as the request needs. True if there is. */
bool clv_trelease_available(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t size)
{
	uint64_t max_split = m->settings.max_split_size;
	if (max_split == CLV_TORCH_UNLIMITED)
		return false;
	const struct clv_tset *set = &m->halves[half].blocks;
	uint64_t wanted = clv_max_u64(size, max_split), released = 0;
	uint32_t i = clv_tset_at_least(m, set, stream, wanted);
	if (i && m->blocks[i].stream == stream && !m->blocks[i].expandable) {
		clv_trelease_block(m, i);
		return true;
	}
	i = i ? clv_tset_prev(m, set, i) : clv_tset_last(m, set);
	while (i && released < wanted && m->blocks[i].size >= max_split && m->blocks[i].stream == stream) {
		uint32_t smaller = clv_tset_prev(m, set, i);
		if (!m->blocks[i].expandable) {
			released += m->blocks[i].size;
			clv_trelease_block(m, i);
		}
		i = smaller;
	}
	return released >= wanted;
}

/* Every free block that is a whole segment, in the order of the set; then the whole pages of expandable ones, in the order
 * that the set had. */
static void release_half(struct clv_torch *m, uint32_t half)
{
	const struct clv_tset *set = &m->halves[half].blocks;
	uint32_t *expandable = NULL, count = 0, next;
	for (uint32_t i = clv_tset_first(m, set); i; i = clv_tset_next(m, set, i))
		count += m->blocks[i].expandable != 0;
	if (count) {
		expandable = clv_mem_realloc(NULL, count, sizeof(*expandable));
		if (!expandable) {
			m->broken = true;
			return;
		}
	}
	count = 0;
	for (uint32_t i = clv_tset_first(m, set); i; i = next) {
		next = clv_tset_next(m, set, i);
		if (m->blocks[i].expandable)
			expandable[count++] = i;
		else if (!clv_tblock_split(&m->blocks[i]))
			clv_trelease_block(m, i);
	}
	/* unmapping changes the set, but none of these blocks disappears by it */
	for (uint32_t k = 0; k < count && !m->broken; k++)
		clv_texpandable_unmap(m, expandable[k]);
	clv_mem_free(expandable);
}

static void sync_pending(struct clv_torch *m)
{
	m->now.stats.num_sync_all_streams++;
	if (m->source.sync) {
		m->source.sync(m->source.sync_ctx);
		return;
	}
	while (m->now.pending_first)
		clv_torch_free_completed(m, m->now.pending_first);
}

/* The flush: `pool` 0 is the default one and then every private pool that nobody uses any more, else that pool alone. */
void clv_trelease_cached(struct clv_torch *m, uint32_t pool, bool capturing)
{
	if (!pool && !capturing) {
		sync_pending(m);
		release_half(m, 0);
		release_half(m, 1);
	}
	for (uint32_t k = 0; k < m->now.releases; k++) {
		uint32_t p = m->released[k];
		if (pool && pool != p)
			continue;
		release_half(m, 2 * p + 1);
		release_half(m, 2 * p);
	}
}
