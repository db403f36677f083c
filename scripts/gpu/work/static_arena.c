/* SPDX-License-Identifier: MIT
 *
 * static_arena: what a program would do that knows its needs: one piece of device memory for all of its tensors, cut by best
 * fit at 512 bytes, for PyTorch's CUDAPluggableAllocator. It takes the memory at the first request of 1 MiB or more; what comes
 * before has 2 MiB of its own. One stream: what is freed is at once used again. ARENA_BYTES: its size, or none for all that is
 * needed (its addresses are mapped as they are reached). Owns the arena; PyTorch's lock guards it.
 */
#include <errno.h>
#include <sys/types.h>

#include "program.h"

#define GRAIN ((size_t)512)
#define FRAME ((size_t)2 << 20)
#define ADDRESSES ((size_t)512 << 30)
#define PIECES 65536

/* Pieces of a region in the order of addresses; live or free. */
static struct region {
	CUdeviceptr base;
	size_t limit, mapped, top, count;
	struct piece {
		size_t at, size;
		bool live;
	} pieces[PIECES];
} first, arena;

static size_t round_up(size_t size, size_t to)
{
	return (size + to - 1) / to * to;
}

/* Memory up to `end` of the region; false if the device has no more. */
static bool map_up_to(struct region *r, size_t end, int device)
{
	if (end > r->limit)
		return false;
	end = round_up(end, FRAME);
	if (end <= r->mapped)
		return true;
	CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	CUmemAccessDesc who = {.location = what.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle frame;
	size_t size = end - r->mapped;

	if (!r->base)
		CALL(cuMemAddressReserve, &r->base, ADDRESSES, FRAME, 0, 0);
	if (cuda.cuMemCreate(&frame, size, &what, 0) != CUDA_SUCCESS)
		return false;
	CALL(cuMemMap, r->base + r->mapped, size, 0, frame, 0);
	CALL(cuMemSetAccess, r->base + r->mapped, size, &who, 1);
	r->mapped = end;
	return true;
}

static void insert(struct region *r, size_t i, struct piece piece)
{
	if (r->count == PIECES)
		fail("static_arena: more than %d pieces", PIECES);
	memmove(&r->pieces[i + 1], &r->pieces[i], (r->count - i) * sizeof(piece));
	r->pieces[i] = piece;
	r->count++;
}

static void *take(struct region *r, size_t size, int device)
{
	size_t best = r->count;

	for (size_t i = 0; i < r->count; i++)
		if (!r->pieces[i].live && r->pieces[i].size >= size &&
		    (best == r->count || r->pieces[i].size < r->pieces[best].size))
			best = i;
	if (best == r->count) { /* at the end, with the hole that may be there */
		bool hole = best && !r->pieces[best - 1].live;
		size_t at = hole ? r->pieces[best - 1].at : best ? r->pieces[best - 1].at + r->pieces[best - 1].size : 0;

		if (!map_up_to(r, at + size, device))
			return NULL;
		if (hole)
			r->pieces[--best].size = size;
		else
			insert(r, best, (struct piece){at, size, false});
		r->top = at + size > r->top ? at + size : r->top;
	}
	struct piece *p = &r->pieces[best];

	if (p->size > size)
		insert(r, best + 1, (struct piece){p->at + size, p->size - size, false});
	p = &r->pieces[best];
	p->size = size;
	p->live = true;
	return (void *)(uintptr_t)(r->base + p->at);
}

static void merge(struct region *r, size_t i)
{
	if (i + 1 >= r->count || r->pieces[i].live || r->pieces[i + 1].live)
		return;
	r->pieces[i].size += r->pieces[i + 1].size;
	memmove(&r->pieces[i + 1], &r->pieces[i + 2], (r->count - i - 2) * sizeof(r->pieces[0]));
	r->count--;
}

static bool give(struct region *r, CUdeviceptr address)
{
	for (size_t i = 0; r->base && i < r->count; i++)
		if (r->base + r->pieces[i].at == address && r->pieces[i].live) {
			r->pieces[i].live = false;
			merge(r, i);
			if (i)
				merge(r, i - 1);
			return true;
		}
	return false;
}

__attribute__((visibility("default"))) void *arena_alloc(ssize_t size, int device, void *stream)
{
	(void)stream;
	if (size <= 0)
		return NULL;
	if (!first.limit) {
		const char *bytes = getenv("ARENA_BYTES");

		load_cuda();
		first.limit = FRAME;
		arena.limit = bytes ? strtoull(bytes, NULL, 10) : ADDRESSES;
	}
	size_t bytes = round_up((size_t)size, GRAIN);
	void *early = !arena.mapped && bytes < (1 << 20) ? take(&first, bytes, device) : NULL;

	if (early)
		return early;
	if (!arena.mapped && arena.limit < ADDRESSES && !map_up_to(&arena, arena.limit, device))
		return NULL;
	return take(&arena, bytes, device);
}

__attribute__((visibility("default"))) void arena_free(void *address, ssize_t size, int device, void *stream)
{
	(void)size, (void)device, (void)stream;
	if (address && !give(&arena, (CUdeviceptr)(uintptr_t)address) && !give(&first, (CUdeviceptr)(uintptr_t)address))
		fail("static_arena: %p is not live", address);
}

/* The most that it had to reach. */
__attribute__((visibility("default"))) size_t arena_top(void)
{
	return arena.top;
}
