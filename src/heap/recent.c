/* SPDX-License-Identifier: MIT */
#include "recent.h"

#include "slab.h"
#include "space.h"
#include "streams.h"

/* Chosen on recorded histories: what is held at the peak is, to a thousandth, the same as if nothing were kept. */
#define SCORE_KEPT 32u /* a size is kept from this score on */
#define SCORE_MAX 64u
#define MANY 16u   /* a step does not free more of a size before it asks again */
#define SOON 64u   /* frees between a free and a request that came soon after it */
#define REST 1024u /* frees since a frame was bought or moved */

static struct clv_recent_size *entry_of(struct clv_recent *r, uint32_t slot, uint64_t size)
{
	return &r->sizes[clv_mix64(size ^ slot) % CLV_ARRAY_LEN(r->sizes)];
}

/* Out of the list by age, and live in the books again. */
static void unlist(struct clv_arena *a, struct clv_extent *e)
{
	struct clv_recent *r = &a->recent;
	*(e->live.newer ? &e->live.newer->live.older : &r->newest) = e->live.older;
	*(e->live.older ? &e->live.older->live.newer : &r->oldest) = e->live.newer;
	r->bytes -= e->size;
	r->count--;
	e->kept = false;
	a->used += e->size;
}

/* It was kept in vain. */
static void give_oldest(struct clv_arena *a)
{
	struct clv_extent *e = a->recent.oldest;
	struct clv_recent_size *entry = entry_of(&a->recent, e->slot, e->size);
	struct clv_extent **link = &entry->kept;
	while (*link != e)
		link = &(*link)->live.same_size;
	*link = e->live.same_size;
	entry->count--;
	entry->score /= 2;
	unlist(a, e);
	clv_slot_due(a, a->slots[e->slot], e->live.seq, e->size, false);
	clv_space_free(a, e, e->slot, e->live.seq);
}

static bool at_rest(struct clv_arena *a)
{
	struct clv_recent *r = &a->recent;
	uint64_t frames = a->created + a->moved;
	if (r->frames != frames) {
		r->frames = frames;
		r->frames_at = a->large_frees;
	}
	return a->large_frees - r->frames_at >= REST;
}

/* The entry of a size that is worth to be kept, or NULL; then it is noted that a block of that size was freed. */
static struct clv_recent_size *entry_to_keep(struct clv_arena *a, uint32_t slot, uint64_t size)
{
	struct clv_recent_size *entry = entry_of(&a->recent, slot, size);
	if (CLV_UNLIKELY(entry->size != size || entry->slot != slot)) {
		if (entry->kept)
			return NULL;
		if (entry->score) { /* the other size goes when it comes back less often than this one */
			entry->score--;
			return NULL;
		}
		*entry = (struct clv_recent_size){.size = size, .slot = slot};
	}
	if (entry->freed + entry->count == MANY) {
		entry->score = 0;
		entry->freed = 0;
		return NULL;
	}
	if (entry->score >= SCORE_KEPT)
		return entry;
	entry->freed++;
	entry->freed_at = a->large_frees;
	return NULL;
}

bool clv_recent_keep(struct clv_arena *a, struct clv_extent *e, struct clv_slot *slot)
{
	struct clv_recent *r = &a->recent;
	if (e->size <= CLV_SMALL_MAX || e->size > CLV_RECENT_LARGEST || e->slot != slot->index ||
	    slot->index == CLV_SLOT_ANY || slot->lasting || !a->heap->settings.cache || !at_rest(a))
		return false;
	struct clv_recent_size *entry = entry_to_keep(a, e->slot, e->size);
	if (!entry)
		return false;
	while (r->count == CLV_RECENT_COUNT || r->bytes + e->size > CLV_RECENT_BYTES)
		give_oldest(a);
	e->live.same_size = entry->kept;
	entry->kept = e;
	entry->count++;
	e->live.newer = NULL;
	e->live.older = r->newest;
	*(r->newest ? &r->newest->live.newer : &r->oldest) = e;
	r->newest = e;
	r->bytes += e->size;
	r->count++;
	e->kept = true;
	e->live.seq = ++slot->seq;
	a->used -= e->size;
	return true;
}

struct clv_extent *clv_recent_take(struct clv_arena *a, const struct clv_slot *slot, uint64_t size)
{
	struct clv_recent_size *entry = entry_of(&a->recent, slot->index, size);
	if (entry->size != size || entry->slot != slot->index)
		return NULL;
	struct clv_extent *e = entry->kept;
	bool soon = e || (entry->freed && a->large_frees - entry->freed_at <= SOON);
	entry->score = soon ? (uint16_t)clv_min_u64(entry->score + 1u, SCORE_MAX) : 0;
	if (!e) {
		entry->freed = soon ? (uint8_t)(entry->freed - 1) : 0;
		return NULL;
	}
	entry->kept = e->live.same_size;
	entry->count--;
	unlist(a, e);
	a->used_peak = clv_max_u64(a->used_peak, a->used);
	return e;
}

bool clv_recent_flush(struct clv_arena *a)
{
	bool any = a->recent.count != 0;
	while (a->recent.count)
		give_oldest(a);
	return any;
}

uint64_t clv_recent_pending(const struct clv_arena *a)
{
	uint64_t bytes = 0;
	for (const struct clv_extent *e = a->recent.oldest; e; e = e->live.newer)
		bytes += clv_slot_passed(a, e->slot, e->live.seq) ? 0 : e->size;
	return bytes;
}

const char *clv_recent_check(const struct clv_arena *a)
{
	const struct clv_recent *r = &a->recent;
	uint64_t bytes = 0, count = 0, in_entries = 0;
	const struct clv_extent *before = NULL;
	for (const struct clv_extent *e = r->oldest; e && count <= r->count; before = e, e = e->live.newer, count++) {
		const struct clv_slot *slot = e->slot < a->slot_count ? a->slots[e->slot] : NULL;
		if (e->kind != CLV_LIVE || !e->kept || e->chunk || e->live.older != before)
			return "recent: what is kept is no block, or out of its list";
		if (!slot || !slot->used || slot->lasting || e->slot == CLV_SLOT_ANY || e->live.seq > slot->seq)
			return "recent: a kept block is of no stream, or was freed after the last free";
		bytes += e->size;
	}
	for (size_t i = 0; i < CLV_ARRAY_LEN(r->sizes); i++)
		for (const struct clv_extent *e = r->sizes[i].kept; e && in_entries <= r->count;
		     e = e->live.same_size, in_entries++)
			if (!e->kept || e->size != r->sizes[i].size || e->slot != r->sizes[i].slot)
				return "recent: a block is kept among those of another size";
	if (r->newest != before || count != r->count || in_entries != r->count || bytes != r->bytes)
		return "recent: the kept blocks are not what is counted";
	return bytes > CLV_RECENT_BYTES || count > CLV_RECENT_COUNT ? "recent: more is kept than may be" : NULL;
}
