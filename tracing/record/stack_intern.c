/* SPDX-License-Identifier: MIT
 *
 * An entry enters the table of hashes by one compare-and-swap, which decides who was first. Then it is given its
 * number: by whoever meets it without one, so that nobody waits for a thread that was interrupted in between. The next
 * place of `by_id` is claimed for it by compare-and-swap. That it is claimed only once follows from an order: the
 * number is written before `count` passes it, and is looked at after `count` was read. A thread that finds place n free
 * for an entry without number has therefore read a count of n, and were the entry at a place before n its number would
 * have been seen.
 */
#include "stack_intern.h"

#include "../../src/host/meta.h"

#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 10)

struct clv_intern_entry {
	uint64_t hash;
	_Atomic uint32_t id; /* 0: not yet */
	uint32_t len;
	char bytes[]; /* and a 0 */
};

struct clv_intern_chunk {
	struct clv_intern_chunk *older;
	size_t size;
	_Atomic size_t used; /* more than size: it is full */
	_Alignas(16) char bytes[];
};

bool clv_intern_open(struct clv_intern *t, uint32_t max)
{
	/* at most half full */
	uint64_t slots = (uint64_t)2 << (clv_log2(clv_max_u64(max, 2) - 1) + 1);
	*t = (struct clv_intern){.max = max, .slot_mask = slots - 1};
	t->slots = clv_meta_zalloc(slots * sizeof(*t->slots));
	t->by_id = clv_meta_zalloc(max * sizeof(*t->by_id));
	if (t->slots && t->by_id)
		return true;
	clv_intern_close(t);
	return false;
}

void clv_intern_close(struct clv_intern *t)
{
	struct clv_intern_chunk *c = atomic_load_explicit(&t->chunk, memory_order_acquire);
	while (c) {
		struct clv_intern_chunk *older = c->older;
		clv_meta_free(c);
		c = older;
	}
	clv_meta_free(t->slots);
	clv_meta_free(t->by_id);
	*t = (struct clv_intern){0};
}

/* What a thread took and then had no use for, since another was quicker, stays unused. */
static void *take(struct clv_intern *t, size_t size)
{
	size = clv_align_up(size, 16);
	for (;;) {
		struct clv_intern_chunk *c = atomic_load_explicit(&t->chunk, memory_order_acquire);
		if (c) {
			size_t at = atomic_fetch_add_explicit(&c->used, size, memory_order_relaxed);
			if (at <= c->size && size <= c->size - at)
				return c->bytes + at;
		}
		size_t room = clv_max_u64(size, CHUNK_BYTES);
		struct clv_intern_chunk *fresh = clv_meta_alloc(sizeof(*fresh) + room);
		if (!fresh)
			return NULL;
		fresh->older = c;
		fresh->size = room;
		atomic_init(&fresh->used, size);
		if (atomic_compare_exchange_strong_explicit(&t->chunk, &c, fresh, memory_order_acq_rel,
							    memory_order_acquire))
			return fresh->bytes;
		clv_meta_free(fresh);
	}
}

/* 0: all numbers are given out. */
static uint32_t number(struct clv_intern *t, struct clv_intern_entry *e)
{
	for (;;) {
		uint32_t n = atomic_load_explicit(&t->count, memory_order_acquire);
		uint32_t id = atomic_load_explicit(&e->id, memory_order_acquire);
		if (id && id <= n)
			return id;
		if (n == t->max)
			return 0;
		struct clv_intern_entry *at = NULL;
		if (!atomic_compare_exchange_strong_explicit(&t->by_id[n], &at, e, memory_order_acq_rel,
							     memory_order_acquire))
			atomic_store_explicit(&at->id, n + 1, memory_order_release);
		else
			atomic_store_explicit(&e->id, n + 1, memory_order_release);
		atomic_compare_exchange_strong_explicit(&t->count, &n, n + 1, memory_order_acq_rel,
							memory_order_relaxed);
	}
}

static bool same(const struct clv_intern_entry *e, uint64_t hash, const void *bytes, size_t len)
{
	return e->hash == hash && e->len == len && memcmp(e->bytes, bytes, len) == 0;
}

uint32_t clv_intern(struct clv_intern *t, uint64_t hash, const void *bytes, size_t len)
{
	struct clv_intern_entry *mine = NULL;
	if (!t->slots || len > UINT32_MAX)
		return 0;
	for (uint64_t i = hash, probes = 0; probes <= t->slot_mask; i++, probes++) {
		_Atomic(struct clv_intern_entry *) *slot = &t->slots[i & t->slot_mask];
		struct clv_intern_entry *e = atomic_load_explicit(slot, memory_order_acquire);
		if (!e) {
			/* no more are let in than there are numbers, but for as many as there are threads */
			if (!mine && clv_intern_count(t) < t->max &&
			    (mine = take(t, sizeof(*mine) + len + 1)) != NULL) {
				mine->hash = hash;
				mine->len = (uint32_t)len;
				atomic_init(&mine->id, 0);
				memcpy(mine->bytes, bytes, len);
				mine->bytes[len] = '\0';
			}
			if (!mine)
				return 0;
			if (atomic_compare_exchange_strong_explicit(slot, &e, mine, memory_order_acq_rel,
								    memory_order_acquire))
				return number(t, mine);
		}
		if (same(e, hash, bytes, len))
			return number(t, e);
	}
	return 0;
}

const void *clv_intern_get(const struct clv_intern *t, uint32_t id, size_t *len)
{
	if (id == 0 || id > clv_intern_count(t))
		return NULL;
	const struct clv_intern_entry *e = atomic_load_explicit(&t->by_id[id - 1], memory_order_acquire);
	if (len)
		*len = e->len;
	return e->bytes;
}
