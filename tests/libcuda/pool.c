/* SPDX-License-Identifier: MIT
 *
 * Memory pools. A pool holds chunks, each a frame mapped at a range of its own and cut into pieces. A piece that was
 * freed on a stream is reused there at once, elsewhere when the stream has passed the free, or after a wait for it.
 */
#include "fake.h"

#include <stdlib.h>

struct fc_piece {
	struct fc_piece *next, *prev; /* in the order of addresses */
	uint64_t offset, size;
	bool free;
	struct fc_queue *queue; /* free: who may still use it; NULL: no one */
	uint64_t position;
};

struct fc_chunk {
	struct fc_chunk *next;
	uint64_t addr, size;
	clv_handle handle;
	struct fc_piece *first;
};

struct fc_pool {
	CUmemoryPool handle;
	int device;
	bool destroyed;
	struct fc_chunk *chunks;
	uint64_t access; /* bit d */
	uint64_t used, used_high, reserved, reserved_high, threshold, limit;
	int reuse[3];
};

struct fc_pool *fc_pool_new(int device)
{
	struct fc_pool *p = fc_alloc(sizeof(*p));
	p->device = device;
	p->access = (uint64_t)1 << device;
	p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
	p->handle = fc_handle_new(FC_HANDLE_POOL, p);
	return p;
}

CUmemoryPool fc_pool_handle(const struct fc_pool *pool)
{
	return pool->handle;
}

static void piece_release(struct fc_piece *p)
{
	fc_queue_unref(p->queue);
	p->queue = NULL;
}

/* What streams have passed is no one's, and such neighbours become one. */
static void settle(struct fc_chunk *c)
{
	for (struct fc_piece *p = c->first; p; p = p->next) {
		if (!p->free)
			continue;
		if (p->queue && fc_passed(p->queue, p->position))
			piece_release(p);
		struct fc_piece *before = p->prev;
		if (!p->queue && before && before->free && !before->queue) {
			before->size += p->size;
			before->next = p->next;
			if (p->next)
				p->next->prev = before;
			free(p);
			p = before;
		}
	}
}

static void chunk_free(struct fc_pool *pool, struct fc_chunk **at)
{
	struct fc_chunk *c = *at;
	*at = c->next;
	pool->reserved -= c->size;
	fc_memory_lock();
	fc.sim->unmap(fc.sim, c->addr, c->size);
	fc.sim->release(fc.sim, c->handle);
	fc.sim->address_free(fc.sim, c->addr, c->size);
	fc_memory_unlock();
	free(c->first);
	free(c);
}

void fc_pool_trim(struct fc_pool *pool, uint64_t keep)
{
	for (struct fc_chunk **at = &pool->chunks; *at;) {
		settle(*at);
		const struct fc_piece *p = (*at)->first;
		if (p->free && !p->next && !p->queue && pool->reserved - (*at)->size >= keep)
			chunk_free(pool, at);
		else
			at = &(*at)->next;
	}
}

/* A destroyed pool goes when nothing is left in it. */
static bool reap(struct fc_pool *pool)
{
	if (!pool->destroyed)
		return false;
	fc_pool_trim(pool, 0);
	if (pool->chunks)
		return false;
	return true;
}

static struct fc_pool *dying[64]; /* destroyed, and something is left in them */

static void reap_all(void)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(dying); i++)
		if (dying[i] && reap(dying[i])) {
			free(dying[i]);
			dying[i] = NULL;
		}
}

void fc_pools_settle(int device)
{
	reap_all();
	for (uint32_t i = 0; i < fc_handles_most(FC_HANDLE_POOL); i++) {
		struct fc_pool *p = fc_handle_nth(FC_HANDLE_POOL, i);
		if (p && p->device == device && p != fc.device[device].graph_pool)
			fc_pool_trim(p, p->threshold);
	}
}

static bool has(const struct fc_pool *p, uint64_t addr)
{
	const struct fc_chunk *c = p ? p->chunks : NULL;
	while (c && addr - c->addr >= c->size)
		c = c->next;
	return c;
}

bool fc_pool_has(uint64_t addr)
{
	for (uint32_t i = 0; i < fc_handles_most(FC_HANDLE_POOL); i++)
		if (has(fc_handle_nth(FC_HANDLE_POOL, i), addr))
			return true;
	for (size_t i = 0; i < CLV_ARRAY_LEN(dying); i++)
		if (has(dying[i], addr))
			return true;
	return false;
}

uint64_t fc_pool_chunk(const struct fc_block *b)
{
	return b->chunk->size;
}

static struct fc_chunk *chunk_new(struct fc_pool *pool, uint64_t size, uint64_t unit, CUresult *r)
{
	struct fc_chunk *c = fc_alloc(sizeof(*c));
	c->size = clv_align_up(size, unit);
	*r = CUDA_ERROR_OUT_OF_MEMORY;
	if (pool->limit && pool->reserved + c->size > pool->limit)
		goto no_frame;
	*r = fc_result(fc.sim->create(fc.sim, &c->handle, c->size, pool->device));
	if (*r)
		goto no_frame;
	*r = fc_result(fc.sim->address_reserve(fc.sim, &c->addr, c->size, 0));
	if (*r)
		goto no_range;
	*r = fc_result(fc.sim->map(fc.sim, c->addr, c->size, 0, c->handle));
	for (int d = 0; d < fc.devices && !*r; d++)
		if (pool->access >> d & 1)
			*r = fc_result(fc.sim->set_access(fc.sim, c->addr, c->size, d));
	if (*r)
		abort(); /* the simulated driver has no reason to */
	c->first = fc_alloc(sizeof(*c->first));
	c->first->size = c->size;
	c->first->free = true;
	c->next = pool->chunks;
	pool->chunks = c;
	pool->reserved += c->size;
	pool->reserved_high = clv_max_u64(pool->reserved_high, pool->reserved);
	return c;
no_range:
	fc.sim->release(fc.sim, c->handle);
no_frame:
	free(c);
	return NULL;
}

/* A free piece of at least `size` bytes that is ready for the queue, or, if `later`, any. */
static struct fc_piece *find(struct fc_pool *pool, uint64_t size, struct fc_queue *q, bool later,
			     struct fc_chunk **chunk)
{
	for (struct fc_chunk *c = pool->chunks; c; c = c->next) {
		settle(c);
		for (struct fc_piece *p = c->first; p; p = p->next)
			if (p->free && p->size >= size && (later || !p->queue || p->queue == q)) {
				*chunk = c;
				return p;
			}
	}
	return NULL;
}

/* A piece of a pool of the device that was freed on a stream which has not come to it. */
static const struct fc_piece *pending(int device)
{
	for (uint32_t i = 0; i < fc_handles_most(FC_HANDLE_POOL); i++) {
		const struct fc_pool *pool = fc_handle_nth(FC_HANDLE_POOL, i);
		for (struct fc_chunk *c = pool && pool->device == device ? pool->chunks : NULL; c; c = c->next) {
			settle(c);
			for (const struct fc_piece *p = c->first; p; p = p->next)
				if (p->queue)
					return p;
		}
	}
	return NULL;
}

/* Waits for what is freed, but not yet, on the device; all that pools cache goes back then. */
static void wait_frees(int device)
{
	for (const struct fc_piece *p; (p = pending(device));)
		fc_wait(p->queue, p->position);
	for (uint32_t i = 0; i < fc_handles_most(FC_HANDLE_POOL); i++) {
		struct fc_pool *pool = fc_handle_nth(FC_HANDLE_POOL, i);
		if (pool && pool->device == device)
			fc_pool_trim(pool, 0);
	}
}

static struct fc_piece *take(struct fc_pool *pool, uint64_t size, struct fc_queue *q, struct fc_chunk **chunk,
			     CUresult *r)
{
	bool order = q && !q->capture;
	for (int turn = 0; turn < 3; turn++) {
		struct fc_piece *p = find(pool, size, q, false, chunk);
		if (!p && order)
			p = find(pool, size, q, true, chunk);
		if (p)
			return p;
		*chunk = chunk_new(pool, size, 32 * CLV_MIB, r);
		if (!*chunk && *r == CUDA_ERROR_OUT_OF_MEMORY)
			*chunk = chunk_new(pool, size, 2 * CLV_MIB, r);
		if (*chunk)
			return (*chunk)->first;
		if (*r != CUDA_ERROR_OUT_OF_MEMORY)
			return NULL;
		if (turn == 0) {
			fc_pool_trim(pool, 0);
			fc_pool_trim(fc.device[pool->device].default_pool, 0);
			fc_pool_trim(fc.device[pool->device].graph_pool, 0);
		} else if (turn == 1 && order) {
			wait_frees(pool->device);
		}
	}
	return NULL;
}

CUresult fc_pool_alloc(struct fc_pool *pool, uint64_t size, struct fc_queue *q, enum fc_block_kind kind,
		       struct fc_block **out)
{
	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > fc.capacity)
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t bytes = clv_align_up(size, CLV_GRAIN);
	struct fc_chunk *c;
	CUresult r;
	struct fc_piece *p = take(pool, bytes, q, &c, &r);
	if (!p)
		return r;
	if (p->queue && p->queue != q)
		fc_push_wait(q, p->queue, p->position);
	if (p->size > bytes) {
		struct fc_piece *rest = fc_alloc(sizeof(*rest));
		*rest = (struct fc_piece){.next = p->next,
					  .prev = p,
					  .offset = p->offset + bytes,
					  .size = p->size - bytes,
					  .free = true,
					  .queue = p->queue,
					  .position = p->position};
		if (rest->queue)
			fc_queue_ref(rest->queue);
		if (p->next)
			p->next->prev = rest;
		p->next = rest;
		p->size = bytes;
	}
	piece_release(p);
	p->free = false;
	pool->used += size; /* as it was asked for */
	pool->used_high = clv_max_u64(pool->used_high, pool->used);
	struct fc_block *b = fc_alloc(sizeof(*b));
	*b = (struct fc_block){.addr = c->addr + p->offset,
			       .size = size,
			       .kind = kind,
			       .device = pool->device,
			       .pool = pool,
			       .chunk = c,
			       .piece = p};
	fc_block_add(b);
	*out = b;
	return CUDA_SUCCESS;
}

static void give(struct fc_block *b, struct fc_queue *q)
{
	struct fc_piece *p = b->piece;
	p->free = true;
	if (q) {
		fc_queue_ref(q);
		p->queue = q;
		p->position = q->submitted;
	}
	if (q || b->kind == FC_GRAPH) /* what cuMemFree frees stays in the count, as with the real one */
		b->pool->used -= b->size;
	fc_block_remove(b);
	reap_all();
}

void fc_pool_drop(struct fc_block *b, struct fc_queue *q)
{
	if (!--b->refs)
		give(b, q);
}

void fc_pool_free(struct fc_block *b, struct fc_queue *q)
{
	if (b->kind == FC_POOL) {
		give(b, q);
		return;
	}
	b->dead = true;
	b->live = false;
	fc_pool_drop(b, q);
}

/* Calls. */

static CUresult alloc_on(CUdeviceptr *dptr, size_t size, struct fc_pool *pool, struct fc_queue *q)
{
	if (!dptr)
		return CUDA_ERROR_INVALID_VALUE;
	struct fc_block *b;
	struct fc_graph *graph;
	CUresult r = fc_implicit(q);
	r = r ? r : fc_unsafe_off(q);
	if (!r && q->capture)
		r = fc_capture_graph(q, &graph);
	if (r)
		return r;
	if (!size) { /* nothing, as with the real one */
		*dptr = 0;
		return CUDA_SUCCESS;
	}
	if (!q->capture) {
		fc_order(q);
		r = fc_pool_alloc(pool, size, q, FC_POOL, &b);
	} else {
		/* a node of the graph, whose memory has its place for as long as the graph or the program has it */
		r = fc_pool_alloc(fc.device[pool->device].graph_pool, size, NULL, FC_GRAPH, &b);
		if (!r) {
			b->refs = 1; /* until the graph has it */
			*dptr = b->addr;
			struct fc_op op = {.kind = FC_OP_ALLOC, .block = b};
			r = fc_capture_add(q, &op);
			fc_pool_drop(b, NULL);
			fc_note("%llx %zu", *dptr, size);
			return r;
		}
	}
	if (r)
		return r;
	*dptr = b->addr;
	fc_note("%llx %zu", *dptr, size);
	return CUDA_SUCCESS;
}

FC_STREAM_CALL(cuMemAllocAsync, FC_STREAM, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
	       (dptr, bytesize, hStream))
{
	struct fc_queue *q;
	fc_note("- %zu", bytesize);
	CUresult r = fc_queue_of(hStream, per_thread, &q);
	return r ? r : alloc_on(dptr, bytesize, fc.device[q->context->device].pool, q);
}

FC_STREAM_CALL(cuMemAllocFromPoolAsync, FC_STREAM,
	       (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
	       (dptr, bytesize, pool, hStream))
{
	struct fc_queue *q;
	struct fc_pool *p = fc_handle_get(FC_HANDLE_POOL, pool);
	CUresult r = p ? fc_queue_of(hStream, per_thread, &q) : CUDA_ERROR_INVALID_VALUE;
	return r ? r : alloc_on(dptr, bytesize, p, q);
}

FC_STREAM_CALL(cuMemFreeAsync, FC_STREAM, (CUdeviceptr dptr, CUstream hStream), (dptr, hStream))
{
	struct fc_queue *q;
	fc_note("%llx", dptr);
	CUresult r = fc_queue_of(hStream, per_thread, &q);
	r = r ? r : fc_implicit(q);
	r = r ? r : fc_unsafe_off(q);
	if (r || !dptr)
		return r;
	struct fc_block *b = fc_block_at(dptr);
	if (b && b->addr == dptr && b->kind == FC_PLAIN && !q->capture)
		return fc_free_waiting(dptr);
	if (!b || b->addr != dptr || (b->kind != FC_POOL && b->kind != FC_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	if (!q->capture) {
		if (b->kind == FC_GRAPH && !b->live) /* no launch has allocated it */
			return CUDA_ERROR_INVALID_VALUE;
		fc_order(q);
		fc_pool_free(b, q);
		return CUDA_SUCCESS;
	}
	struct fc_graph *graph;
	r = fc_capture_graph(q, &graph);
	r = r ? r : fc_capture_free(graph, b);
	if (r)
		return r;
	struct fc_op op = {.kind = FC_OP_FREE, .block = b};
	return fc_capture_add(q, &op);
}

static bool location_is_device(const CUmemLocation *location)
{
	return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
	       location->id < fc.devices;
}

static CUresult pool_of_device(CUmemoryPool *out, int device, bool current)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= fc.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = (current ? fc.device[device].pool : fc.device[device].default_pool)->handle;
	return CUDA_SUCCESS;
}

static CUresult set_pool(int device, CUmemoryPool pool)
{
	struct fc_pool *p = fc_handle_get(FC_HANDLE_POOL, pool);
	if (device < 0 || device >= fc.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!p || p->device != device)
		return CUDA_ERROR_INVALID_VALUE;
	fc.device[device].pool = p;
	return CUDA_SUCCESS;
}

FC_CALL(cuDeviceGetDefaultMemPool, FC_INIT, (CUmemoryPool * pool_out, CUdevice dev), (pool_out, dev))
{
	return pool_of_device(pool_out, dev, false);
}

FC_CALL(cuDeviceGetMemPool, FC_INIT, (CUmemoryPool * pool, CUdevice dev), (pool, dev))
{
	return pool_of_device(pool, dev, true);
}

FC_CALL(cuDeviceSetMemPool, FC_INIT, (CUdevice dev, CUmemoryPool pool), (dev, pool))
{
	return set_pool(dev, pool);
}

FC_CALL(cuMemGetDefaultMemPool, FC_INIT, (CUmemoryPool * pool_out, CUmemLocation *location, CUmemAllocationType type),
	(pool_out, location, type))
{
	if (!location_is_device(location) || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	return pool_of_device(pool_out, location->id, false);
}

FC_CALL(cuMemGetMemPool, FC_INIT, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
	(pool, location, type))
{
	if (!location_is_device(location) || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	return pool_of_device(pool, location->id, true);
}

FC_CALL(cuMemSetMemPool, FC_INIT, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),
	(location, type, pool))
{
	if (!location_is_device(location) || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	return set_pool(location->id, pool);
}

FC_CALL(cuMemPoolCreate, FC_INIT, (CUmemoryPool * pool, const CUmemPoolProps *poolProps), (pool, poolProps))
{
	if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!location_is_device(&poolProps->location))
		return CUDA_ERROR_INVALID_DEVICE;
	struct fc_pool *p = fc_pool_new(poolProps->location.id);
	p->limit = poolProps->maxSize;
	*pool = p->handle;
	return CUDA_SUCCESS;
}

FC_CALL(cuMemPoolDestroy, FC_INIT, (CUmemoryPool pool), (pool))
{
	struct fc_pool *p = fc_handle_get(FC_HANDLE_POOL, pool);
	if (!p || p == fc.device[p->device].default_pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (fc.device[p->device].pool == p)
		fc.device[p->device].pool = fc.device[p->device].default_pool;
	fc_handle_free(FC_HANDLE_POOL, pool);
	p->destroyed = true;
	reap_all();
	size_t i = 0;
	while (i < CLV_ARRAY_LEN(dying) && dying[i])
		i++;
	if (i == CLV_ARRAY_LEN(dying))
		abort();
	dying[i] = p;
	reap_all();
	return CUDA_SUCCESS;
}

FC_CALL(cuMemPoolTrimTo, FC_INIT, (CUmemoryPool pool, size_t minBytesToKeep), (pool, minBytesToKeep))
{
	struct fc_pool *p = fc_handle_get(FC_HANDLE_POOL, pool);
	CUresult r = p ? fc_unsafe() : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		fc_pool_trim(p, minBytesToKeep);
	return r;
}

FC_CALL(cuMemPoolSetAttribute, FC_INIT, (CUmemoryPool pool, CUmemPool_attribute attr, void *value), (pool, attr, value))
{
	struct fc_pool *p = fc_handle_get(FC_HANDLE_POOL, pool);
	if (!p || !value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		p->reuse[attr - 1] = *(int *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		p->threshold = *(cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(cuuint64_t *)value)
			return CUDA_ERROR_INVALID_VALUE;
		if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
			p->used_high = p->used;
		else
			p->reserved_high = p->reserved;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

FC_CALL(cuMemPoolGetAttribute, FC_INIT, (CUmemoryPool pool, CUmemPool_attribute attr, void *value), (pool, attr, value))
{
	const struct fc_pool *p = fc_handle_get(FC_HANDLE_POOL, pool);
	CUresult r = p && value ? fc_unsafe() : CUDA_ERROR_INVALID_VALUE;
	if (r)
		return r;
	cuuint64_t *wide = value;
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = p->reuse[attr - 1];
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*wide = p->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*wide = p->reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*wide = p->reserved_high;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*wide = p->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*wide = p->used_high;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

FC_CALL(cuMemPoolSetAccess, FC_INIT, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count), (pool, map, count))
{
	struct fc_pool *p = fc_handle_get(FC_HANDLE_POOL, pool);
	if (!p || !map)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (!location_is_device(&map[i].location))
			return CUDA_ERROR_INVALID_DEVICE;
		/* the owner has access always */
		if (map[i].location.id == p->device && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	fc_memory_lock();
	for (size_t i = 0; i < count; i++) {
		int d = map[i].location.id;
		for (struct fc_chunk *c = p->chunks; c; c = c->next)
			if (map[i].flags)
				fc.sim->set_access(fc.sim, c->addr, c->size, d);
			else
				clv_sim_clear_access(fc.sim, c->addr, c->size, d);
		p->access = map[i].flags ? p->access | (uint64_t)1 << d : p->access & ~((uint64_t)1 << d);
	}
	fc_memory_unlock();
	return CUDA_SUCCESS;
}

FC_CALL(cuMemPoolGetAccess, FC_INIT, (CUmemAccess_flags * flags, CUmemoryPool memPool, CUmemLocation *location),
	(flags, memPool, location))
{
	const struct fc_pool *p = fc_handle_get(FC_HANDLE_POOL, memPool);
	if (!p || !flags || !location_is_device(location))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = p->access >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}
