/* SPDX-License-Identifier: MIT */
#include "torch_internal.h"

#include "../memory.h"

/* ---- sizes ---- */

static uint64_t round_to_division(uint64_t size, uint64_t divisions)
{
	if (clv_is_pow2(size))
		return size;
	uint64_t floor = (uint64_t)1 << clv_log2(size);
	uint64_t step = floor >> clv_log2(divisions);
	if (!step)
		return 2 * floor;
	return clv_align_up(size, step);
}

uint64_t clv_torch_round(const struct clv_torch_settings *s, uint64_t size)
{
	if (size < CLV_TORCH_MIN_BLOCK)
		return CLV_TORCH_MIN_BLOCK;
	unsigned log2 = clv_log2(size);
	unsigned class = log2 > 20 ? log2 - 20 : 0;
	if (class >= CLV_TORCH_ROUNDUP_CLASSES)
		class = CLV_TORCH_ROUNDUP_CLASSES - 1;
	uint64_t divisions = s->roundup[class];
	if (divisions > 1 && size > CLV_TORCH_MIN_BLOCK * divisions)
		return round_to_division(size, divisions);
	return clv_align_up(size, CLV_TORCH_MIN_BLOCK);
}

uint64_t clv_torch_segment_bytes(const struct clv_torch_settings *s, uint64_t rounded)
{
	return clv_torch_segment(rounded, s->large_segment_size);
}

/* ---- statistics ---- */

static void counter_add(struct clv_torch_counter *c, int64_t by)
{
	c->current += by;
	if (by >= 0) {
		c->allocated += (uint64_t)by;
		if (c->current > c->peak)
			c->peak = c->current;
	} else {
		c->freed += (uint64_t)-by;
	}
}

void clv_tstat_add(struct clv_torch *m, uint32_t half, enum clv_torch_stat s, int64_t by)
{
	counter_add(&m->now.stats.of[CLV_TORCH_ALL][s], by);
	counter_add(&m->now.stats.of[clv_thalf_small(half) ? CLV_TORCH_SMALL : CLV_TORCH_LARGE][s], by);
}

void clv_tpeaks(struct clv_torch *m)
{
	struct clv_torch_stats *s = &m->now.stats;
	if (s->stranded_bytes > s->stranded_peak_bytes)
		s->stranded_peak_bytes = s->stranded_bytes;
}

/* ---- blocks in sets ---- */

void clv_tindex_insert(struct clv_torch *m, uint32_t i)
{
	if (m->find)
		clv_tset_insert(m, &m->now.index, i);
}

void clv_tfree_insert(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	struct clv_thalf *h = clv_tw_half(m, b->half);
	b->gc_base = h->searches;
	b->in_set = true;
	clv_tset_insert(m, &h->blocks, i);
	m->now.stats.stranded_bytes += clv_tstranded(m, b);
}

void clv_tfree_erase(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	m->now.stats.stranded_bytes -= clv_tstranded(m, b);
	clv_tset_erase(m, &clv_tw_half(m, b->half)->blocks, i);
	b->in_set = false;
}

uint64_t clv_tmerge(struct clv_torch *m, uint32_t dst, uint32_t src)
{
	if (!src)
		return 0;
	const struct clv_tblock *s = &m->blocks[src];
	if (s->allocated || s->pending || s->mapped != m->blocks[dst].mapped)
		return 0;
	if (s->mapped)
		clv_tfree_erase(m, src);
	else
		clv_tset_erase(m, &clv_tw_half(m, s->half)->unmapped, src);
	if (m->find) /* the survivor takes over both ranges, so its place in the index stays right */
		clv_tset_erase(m, &m->now.index, src);
	struct clv_tblock *d = clv_tw_block(m, dst);
	if (d->prev == src) {
		d->addr = s->addr;
		d->prev = s->prev;
		if (d->prev)
			clv_tw_block(m, d->prev)->next = dst;
	} else {
		d->next = s->next;
		if (d->next)
			clv_tw_block(m, d->next)->prev = dst;
	}
	uint64_t gained = s->size;
	d->size += gained;
	clv_tblock_drop(m, src);
	return gained;
}

void clv_tnative_new(struct clv_torch *m, uint32_t half, uint64_t stream, uint64_t addr, uint64_t size, uint32_t *out)
{
	uint32_t i = clv_tblock_new(m);
	struct clv_tblock *b = clv_tw_block(m, i);
	b->addr = addr;
	b->size = size;
	b->stream = stream;
	b->half = half;
	m->now.segments_made++;
	if (m->settings.tie_break == CLV_TORCH_TIE_SEGMENT)
		b->order = m->now.segments_made;
	m->now.reserved += size;
	clv_tw_pool(m, half / 2)->segments++;
	clv_tstat_add(m, half, CLV_TORCH_SEGMENT, 1);
	clv_tstat_add(m, half, CLV_TORCH_RESERVED_BYTES, (int64_t)size);
	if (size >= m->settings.max_split_size)
		counter_add(&m->now.stats.oversize_segments, 1);
	m->now.stats.num_device_alloc++;
	clv_tindex_insert(m, i);
	*out = i;
}

void clv_tnative_gone(struct clv_torch *m, uint32_t half, uint64_t size)
{
	clv_tw_pool(m, half / 2)->segments--;
	clv_tstat_add(m, half, CLV_TORCH_SEGMENT, -1);
	if (size >= m->settings.max_split_size)
		counter_add(&m->now.stats.oversize_segments, -1);
	m->now.stats.num_device_free++;
}

/* ---- malloc ---- */

struct params {
	const struct clv_torch_request *request;
	uint64_t size, segment;
	uint32_t half;
	bool expandable;
	uint32_t block;
};

/* What an expandable block can grow to without new addresses. */
static uint64_t growable(const struct clv_torch *m, const struct clv_tblock *b)
{
	return b->size + (b->next && !m->blocks[b->next].mapped ? m->blocks[b->next].size : 0);
}

static bool same_stream(const struct clv_torch *m, uint32_t i, const struct params *p)
{
	return i && m->blocks[i].stream == p->request->stream;
}

/* Best fit in the pool, or 0: what PyTorch's get_free_block would take. Changes nothing. */
static uint32_t search(const struct clv_torch *m, const struct params *p)
{
	const struct clv_tset *set = &m->halves[p->half].blocks;
	uint32_t i = clv_tset_at_least(m, set, p->request->stream, p->size);
	if (!same_stream(m, i, p))
		return 0;
	if (m->blocks[i].expandable && p->expandable) {
		/* as long as the next larger one could grow to less, it is the better fit */
		for (uint32_t n = clv_tset_next(m, set, i); m->blocks[i].expandable && same_stream(m, n, p) &&
							    growable(m, &m->blocks[n]) < growable(m, &m->blocks[i]);
		     n = clv_tset_next(m, set, n))
			i = n;
	} else if (m->blocks[i].expandable) {
		do
			i = clv_tset_next(m, set, i);
		while (same_stream(m, i, p) && m->blocks[i].expandable);
		if (!same_stream(m, i, p))
			return 0;
	}
	uint64_t size = m->blocks[i].size, max_split = m->settings.max_split_size;
	/* both end the search: PyTorch looks at no other block */
	if (p->size < max_split && size >= max_split)
		return 0;
	if (p->size >= max_split && size >= p->size + m->settings.max_non_split_rounding)
		return 0;
	return i;
}

static bool get_free_block(struct clv_torch *m, struct params *p)
{
	if (m->gc)
		clv_tw_half(m, p->half)->searches++;
	p->block = search(m, p);
	if (p->block)
		clv_tfree_erase(m, p->block);
	return p->block != 0;
}

static bool alloc_block(struct clv_torch *m, struct params *p, bool retry)
{
	if (retry)
		m->now.stats.num_alloc_retries++;
	if (m->limit != CLV_TORCH_UNLIMITED && m->now.reserved + p->segment > m->limit)
		return false;
	if (p->expandable) {
		p->block = clv_texpandable_alloc(m, p->half, p->request->stream, p->size);
		if (p->block)
			clv_tw_pool(m, p->half / 2)->segments++;
		return p->block != 0;
	}
	if (!clv_tblocks_reserve(m, 2))
		return false;
	uint64_t addr = m->source.device_alloc(m->source.ctx, p->segment);
	if (!addr)
		return false;
	clv_tnative_new(m, p->half, p->request->stream, addr, p->segment, &p->block);
	return true;
}

/* A request of the default pools may take a cached block of a pool that is marked for it. */
static bool fall_back_to_pools(struct clv_torch *m, struct params *p)
{
	if (p->half >= 2 || !m->now.pools_on_oom)
		return false;
	for (uint32_t pool = 1; pool < m->pool_count; pool++) {
		if (!m->pools[pool].options.use_on_oom)
			continue;
		struct params q = *p;
		q.half = 2 * pool + (p->half & 1);
		q.expandable = false;
		if (get_free_block(m, &q)) {
			*p = q;
			return true;
		}
	}
	return false;
}

static bool should_split(const struct clv_torch *m, const struct params *p)
{
	uint64_t rest = m->blocks[p->block].size - p->size;
	if (m->pools[p->half / 2].options.no_split)
		return false;
	if (clv_thalf_small(p->half) || p->expandable)
		return rest >= CLV_TORCH_MIN_BLOCK;
	return p->size < m->settings.max_split_size && rest > CLV_TORCH_SMALL_SIZE;
}

void clv_tblock_allocated(struct clv_torch *m, uint32_t i, const struct clv_torch_request *request)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	b->allocated = true;
	b->requested = request->size;
	b->owner = request->owner;
	clv_tstat_add(m, b->half, CLV_TORCH_ALLOCATION, 1);
	clv_tstat_add(m, b->half, CLV_TORCH_ALLOCATED_BYTES, (int64_t)b->size);
	clv_tstat_add(m, b->half, CLV_TORCH_ACTIVE, 1);
	clv_tstat_add(m, b->half, CLV_TORCH_ACTIVE_BYTES, (int64_t)b->size);
	clv_tstat_add(m, b->half, CLV_TORCH_REQUESTED_BYTES, (int64_t)b->requested);
	if (b->size >= m->settings.max_split_size)
		counter_add(&m->now.stats.oversize_allocations, 1);
}

/* The block is in no set. If it is split the front becomes a new block, and the old one keeps the tail. */
static uint32_t take_block(struct clv_torch *m, const struct params *p)
{
	uint32_t i = p->block;
	struct clv_tblock *b = clv_tw_block(m, i);
	bool was_split = clv_tblock_split(b), native = !b->expandable;
	if (should_split(m, p)) {
		uint32_t tail = i;
		i = clv_tblock_new(m);
		struct clv_tblock *t = clv_tw_block(m, tail);
		b = clv_tw_block(m, i);
		b->addr = t->addr;
		b->size = p->size;
		b->stream = t->stream;
		b->half = t->half;
		b->expandable = t->expandable;
		if (m->settings.tie_break == CLV_TORCH_TIE_SEGMENT)
			b->order = t->order;
		b->prev = t->prev;
		b->next = tail;
		if (b->prev)
			clv_tw_block(m, b->prev)->next = i;
		t->prev = i;
		/* the index sees the tail move up and the front take its place: the order is the same at each step */
		t->addr += p->size;
		t->size -= p->size;
		clv_tindex_insert(m, i);
		clv_tfree_insert(m, tail);
		if (native && was_split) {
			clv_tstat_add(m, p->half, CLV_TORCH_INACTIVE_SPLIT_BYTES, -(int64_t)b->size);
		} else if (native) {
			clv_tstat_add(m, p->half, CLV_TORCH_INACTIVE_SPLIT_BYTES, (int64_t)t->size);
			clv_tstat_add(m, p->half, CLV_TORCH_INACTIVE_SPLIT, 1);
		}
	} else if (native && was_split) {
		clv_tstat_add(m, p->half, CLV_TORCH_INACTIVE_SPLIT_BYTES, -(int64_t)b->size);
		clv_tstat_add(m, p->half, CLV_TORCH_INACTIVE_SPLIT, -1);
	}
	clv_tblock_allocated(m, i, p->request);
	clv_tpeaks(m);
	return i;
}

static void params_init(const struct clv_torch *m, struct params *p, const struct clv_torch_request *request)
{
	p->request = request;
	p->size = clv_torch_round(&m->settings, request->size);
	p->segment = clv_torch_segment_bytes(&m->settings, p->size);
	p->half = 2 * request->pool + (p->size <= CLV_TORCH_SMALL_SIZE);
	p->expandable = m->settings.expandable && !m->pools[request->pool].options.custom_allocator;
	p->block = 0;
}

enum clv_torch_status clv_torch_malloc(struct clv_torch *m, const struct clv_torch_request *request, uint32_t *block)
{
	struct params p;
	*block = CLV_TORCH_NONE;
	if (!request->size)
		return CLV_TORCH_OK;
	if (request->size >= CLV_TORCH_MAX_REQUEST)
		return CLV_TORCH_OOM;
	if (!clv_tblocks_reserve(m, 2))
		return CLV_TORCH_NO_HOST_MEMORY;
	params_init(m, &p, request);
	bool found = get_free_block(m, &p);
	if (!found) {
		if (m->gc)
			clv_tcollect_garbage(m);
		found = alloc_block(m, &p, false) || fall_back_to_pools(m, &p) ||
			(clv_trelease_available(m, p.half, request->stream, p.size) && alloc_block(m, &p, false));
		if (!found && !request->capturing && !m->broken) {
			/* what the flush frees is not searched again: only a new segment can serve the request now */
			clv_trelease_cached(m, 0, false);
			found = alloc_block(m, &p, true);
		}
	}
	if (m->broken)
		return CLV_TORCH_NO_HOST_MEMORY;
	if (!found) {
		m->now.stats.num_ooms++;
		if (m->source.failed)
			m->source.failed(m->source.ctx);
		clv_tpeaks(m);
		return CLV_TORCH_OOM;
	}
	if (!clv_tblocks_reserve(m, 1))
		return CLV_TORCH_NO_HOST_MEMORY;
	*block = take_block(m, &p);
	return CLV_TORCH_OK;
}

uint32_t clv_torch_malloc_cached_at(struct clv_torch *m, const struct clv_torch_request *request, uint64_t addr)
{
	struct params p;
	if (!request->size || request->size >= CLV_TORCH_MAX_REQUEST || !clv_tblocks_reserve(m, 2))
		return CLV_TORCH_NONE;
	params_init(m, &p, request);
	p.block = search(m, &p);
	if (!p.block || m->blocks[p.block].addr != addr)
		return CLV_TORCH_NONE;
	if (m->gc)
		clv_tw_half(m, p.half)->searches++;
	clv_tfree_erase(m, p.block);
	return take_block(m, &p);
}

/* ---- free ---- */

void clv_torch_record_stream(struct clv_torch *m, uint32_t block, uint64_t stream)
{
	if (m->blocks[block].stream != stream)
		clv_tw_block(m, block)->other_streams = true;
}

/* Merges with free neighbours; the block itself survives, wherever they lie. */
static void free_block(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	uint32_t half = b->half;
	int64_t size = (int64_t)b->size, requested = (int64_t)b->requested;
	uint32_t neighbours[2] = {b->prev, b->next};
	int64_t pieces = 0, bytes = 0;
	for (int k = 0; k < 2; k++) {
		uint64_t gained = clv_tmerge(m, i, neighbours[k]);
		pieces -= gained != 0;
		bytes -= (int64_t)gained;
	}
	clv_tfree_insert(m, i);
	if (clv_tblock_split(b)) {
		pieces++;
		bytes += (int64_t)b->size;
	}
	if (!b->expandable) {
		if (pieces)
			clv_tstat_add(m, half, CLV_TORCH_INACTIVE_SPLIT, pieces);
		if (bytes)
			clv_tstat_add(m, half, CLV_TORCH_INACTIVE_SPLIT_BYTES, bytes);
	}
	clv_tstat_add(m, half, CLV_TORCH_ACTIVE, -1);
	clv_tstat_add(m, half, CLV_TORCH_ACTIVE_BYTES, -size);
	clv_tstat_add(m, half, CLV_TORCH_REQUESTED_BYTES, -requested);
}

static void give_up(struct clv_torch *m, struct clv_tblock *b)
{
	b->allocated = false;
	clv_tstat_add(m, b->half, CLV_TORCH_ALLOCATION, -1);
	clv_tstat_add(m, b->half, CLV_TORCH_ALLOCATED_BYTES, -(int64_t)b->size);
	if (b->size >= m->settings.max_split_size)
		counter_add(&m->now.stats.oversize_allocations, -1);
}

void clv_torch_free_requested(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	give_up(m, b);
	b->other_streams = false;
	b->pending = true;
	b->set = (struct clv_tlink){.left = m->now.pending_last};
	if (m->now.pending_last)
		clv_tw_block(m, m->now.pending_last)->set.right = i;
	else
		m->now.pending_first = i;
	m->now.pending_last = i;
	m->now.pending++;
}

void clv_torch_free_completed(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	uint32_t left = b->set.left, right = b->set.right;
	if (left)
		clv_tw_block(m, left)->set.right = right;
	else
		m->now.pending_first = right;
	if (right)
		clv_tw_block(m, right)->set.left = left;
	else
		m->now.pending_last = left;
	m->now.pending--;
	b->pending = false;
	free_block(m, i);
	clv_tpeaks(m);
}

bool clv_torch_free(struct clv_torch *m, uint32_t i)
{
	struct clv_tblock *b = clv_tw_block(m, i);
	if (b->other_streams) {
		clv_torch_free_requested(m, i);
		return false;
	}
	give_up(m, b);
	free_block(m, i);
	clv_tpeaks(m);
	return true;
}

uint64_t clv_torch_pending(const struct clv_torch *m)
{
	return m->now.pending;
}

uint32_t clv_torch_first_pending(const struct clv_torch *m)
{
	return m->now.pending_first;
}

void clv_torch_empty_cache(struct clv_torch *m)
{
	clv_trelease_cached(m, 0, false);
	clv_tpeaks(m);
}

void clv_torch_empty_pool(struct clv_torch *m, uint32_t pool)
{
	clv_trelease_cached(m, pool, false);
	clv_tpeaks(m);
}

/* ---- pools, life, queries ---- */

uint32_t clv_torch_pool_create(struct clv_torch *m, const struct clv_torch_pool_options *options)
{
	if (m->pool_count == m->pool_room) {
		uint32_t room = m->pool_room ? 2 * m->pool_room : 8;
		struct clv_tpool *pools = clv_mem_realloc(m->pools, room, sizeof(*pools));
		if (pools)
			m->pools = pools;
		struct clv_thalf *halves = clv_mem_realloc(m->halves, 2 * (size_t)room, sizeof(*halves));
		if (halves)
			m->halves = halves;
		uint32_t *released = clv_mem_realloc(m->released, room, sizeof(*released));
		if (released)
			m->released = released;
		if (!pools || !halves || !released) {
			m->broken = true;
			return 0;
		}
		m->pool_room = room;
	}
	uint32_t pool = m->pool_count++;
	m->pools[pool] = (struct clv_tpool){.options = options ? *options : (struct clv_torch_pool_options){false}};
	m->now.pools_on_oom += m->pools[pool].options.use_on_oom;
	for (int k = 0; k < 2; k++)
		m->halves[2 * pool + k] = (struct clv_thalf){
			.blocks.order = CLV_TORDER_FREE,
			.unmapped.order = CLV_TORDER_UNMAPPED,
		};
	return pool;
}

void clv_torch_pool_release(struct clv_torch *m, uint32_t pool)
{
	if (!pool || m->pools[pool].released)
		return;
	clv_tw_pool(m, pool)->released = true;
	m->released[m->now.releases++] = pool;
}

bool clv_torch_pool_released(const struct clv_torch *m, uint32_t pool)
{
	return m->pools[pool].released;
}

void clv_torch_pool_use_on_oom(struct clv_torch *m, uint32_t pool, bool on)
{
	struct clv_tpool *p = clv_tw_pool(m, pool);
	m->now.pools_on_oom += (uint32_t)on - (uint32_t)p->options.use_on_oom;
	p->options.use_on_oom = on;
}

struct clv_torch *clv_torch_open(const struct clv_torch_config *config)
{
	struct clv_torch *m = clv_mem_zalloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->settings = config->settings;
	m->source = config->source;
	m->limit = config->limit;
	m->device_total = config->device_total;
	m->find = config->find;
	m->gc = config->limit != CLV_TORCH_UNLIMITED && config->settings.gc_threshold > 0.0;
	m->now.block_top = 1;
	m->now.expandable_top = 1;
	m->now.index.order = CLV_TORDER_ADDRESS;
	clv_torch_pool_create(m, NULL);
	if (m->broken || !clv_tblocks_reserve(m, 64)) {
		clv_torch_close(m);
		return NULL;
	}
	return m;
}

void clv_torch_close(struct clv_torch *m)
{
	if (!m)
		return;
	clv_mem_free(m->block_memory);
	clv_mem_free(m->halves);
	clv_mem_free(m->pools);
	clv_mem_free(m->released);
	clv_mem_free(m->expandables);
	clv_mem_free(m->undo.bytes);
	clv_mem_free(m);
}

bool clv_torch_broken(const struct clv_torch *m)
{
	return m->broken;
}

void clv_torch_get_stats(const struct clv_torch *m, struct clv_torch_stats *out)
{
	*out = m->now.stats;
}

uint64_t clv_torch_reserved(const struct clv_torch *m)
{
	return m->now.reserved;
}

uint64_t clv_torch_unused_private(const struct clv_torch *m)
{
	uint64_t bytes = 0;
	for (uint32_t i = 1; i < m->now.block_top; i++) {
		const struct clv_tblock *b = &m->blocks[i];
		if (b->used && b->mapped && b->in_set && b->half >= 2 && !m->pools[b->half / 2].released)
			bytes += b->size;
	}
	return bytes;
}

uint64_t clv_torch_block_addr(const struct clv_torch *m, uint32_t block)
{
	return m->blocks[block].addr;
}

bool clv_torch_block_pending(const struct clv_torch *m, uint32_t block)
{
	return m->blocks[block].pending;
}

void clv_torch_block_get(const struct clv_torch *m, uint32_t block, struct clv_torch_block_info *out)
{
	const struct clv_tblock *b = &m->blocks[block];
	*out = (struct clv_torch_block_info){
		.addr = b->addr,
		.size = b->size,
		.requested = b->requested,
		.stream = b->stream,
		.pool = b->half / 2,
		.owner = b->owner,
		.small = clv_thalf_small(b->half),
		.allocated = b->allocated,
		.pending = b->pending,
		.mapped = b->mapped,
		.expandable = b->expandable != 0,
	};
}

uint32_t clv_torch_find(const struct clv_torch *m, uint64_t addr)
{
	uint32_t i = clv_tset_at_or_below(m, &m->now.index, addr);
	return i && addr - m->blocks[i].addr < m->blocks[i].size ? i : CLV_TORCH_NONE;
}

bool clv_torch_overlaps(const struct clv_torch *m, uint64_t addr, uint64_t size)
{
	uint32_t i = size ? clv_tset_at_or_below(m, &m->now.index, size - 1 > UINT64_MAX - addr ? UINT64_MAX : addr + size - 1) : 0;
	return i && (m->blocks[i].addr >= addr || addr - m->blocks[i].addr < m->blocks[i].size);
}

uint32_t clv_torch_find_next(const struct clv_torch *m, uint32_t block)
{
	return block ? clv_tset_next(m, &m->now.index, block) : clv_tset_first(m, &m->now.index);
}

uint32_t clv_torch_next(const struct clv_torch *m, uint32_t block)
{
	return m->blocks[block].next;
}

uint32_t clv_torch_prev(const struct clv_torch *m, uint32_t block)
{
	return m->blocks[block].prev;
}
