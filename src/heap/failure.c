/* SPDX-License-Identifier: MIT */
#include "failure.h"

#include "../base/clock.h"
#include "../base/size_text.h"
#include "../base/text.h"
#include "../host/meta.h"
#include "cache.h"
#include "frames.h"
#include "recent.h"
#include "reclaim.h"
#include "reserve.h"
#include "space.h"
#include "tell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t largest_hole(const struct clv_arena *a)
{
	uint64_t most = 0;
	for (uint32_t i = 0; i < a->slot_count; i++) {
		const struct clv_binmap *m = a->slots[i]->holes;
		for (const struct clv_bin_node *n = m ? clv_bin_floor(m, UINT64_MAX) : NULL; n; n = n->next)
			most = clv_max_u64(most, n->size);
	}
	return most;
}

/* Free bytes that work of a stream may still use; `lasting`: of those without a foreseeable end. */
static uint64_t pending(const struct clv_arena *a, bool lasting)
{
	uint64_t bytes = lasting ? 0 : clv_recent_pending(a);
	for (uint32_t i = 1; i < a->slot_count; i++) {
		const struct clv_slot *slot = a->slots[i];
		if (!slot->holes || slot->completed == slot->seq || (lasting && !slot->lasting))
			continue;
		for (unsigned bin = 0; bin < CLV_BIN_COUNT; bin++)
			for (const struct clv_bin_node *n = slot->holes->heads[bin]; n; n = n->next)
				if (((const struct clv_extent *)n->owner)->hole.seq > slot->completed)
					bytes += n->size;
	}
	return lasting ? bytes : bytes + clv_reserve_pending(a);
}

/* Free bytes in pinned frames: holes there, and what is not live in chunks of slabs; but not what is held back on purpose. */
static uint64_t stranded(const struct clv_arena *a, uint64_t taken)
{
	return a->pinned - clv_min_u64(a->pinned, taken + a->reserve_bytes);
}

uint64_t clv_heap_stranded(struct cleave_heap *heap, int device)
{
	struct clv_arena *a = clv_heap_used_arena(heap, device);
	if (!a)
		return 0;
	const struct clv_counts *own = clv_cache_counts(a);
	int64_t taken = clv_count(&a->counts.live) + clv_count(&a->counts.rounding);
	if (own)
		taken += clv_count(&own->live) + clv_count(&own->rounding);
	return stranded(a, taken > 0 ? (uint64_t)taken : 0);
}

void clv_stats_fill(struct clv_arena *a, cleave_heap_stats *out)
{
	const struct clv_counts_sum sum = clv_caches_sum(a);
	memset(out, 0, sizeof(*out));
	out->held_bytes = a->held;
	out->held_peak_bytes = a->held_peak;
	out->live_bytes = sum.live;
	out->live_peak_bytes = clv_max_u64(sum.live, (uint64_t)clv_count(&a->live_peak));
	out->rounding_bytes = sum.rounding;
	out->free_bytes = a->held - clv_min_u64(a->held, out->live_bytes + out->rounding_bytes);
	out->stranded_bytes = stranded(a, sum.live + sum.rounding);
	out->pending_bytes = pending(a, false);
	out->cached_bytes = clv_caches_bytes(a) + a->recent.bytes;
	out->largest_hole_bytes = largest_hole(a);
	out->frames = a->frame_count;
	out->live_blocks = a->live_count - a->chunk_count - a->recent.count - a->reserve_slots + sum.small_allocs -
			   sum.small_frees;
	out->free_blocks = a->hole_count;
	out->allocs = a->large_allocs + sum.small_allocs;
	out->frees = a->large_frees + sum.small_frees;
	out->failures = a->failures;
	out->splits = a->splits;
	out->merges = a->merges;
	out->frames_created = a->created;
	out->frames_released = a->released;
	out->frames_moved = a->moved;
	out->device_waits = a->device_waits;
	out->host_waits = a->host_waits;
	out->event_polls = a->polls;
	out->limit_bytes = a->limit;
	out->headroom_bytes = a->headroom;
	out->metadata_bytes = clv_meta_bytes();
	out->metadata_in_jemalloc = clv_meta_uses_jemalloc();
	out->reservation_bytes = a->reserve_bytes;
}

/* What the event has no place for is in its text. */
static void tell(struct clv_arena *a, const cleave_failure *f, cleave_stream stream)
{
	char text[256];
	snprintf(text, sizeof(text),
		 "live=%" PRIu64 " held=%" PRIu64 " free=%" PRIu64 " stranded=%" PRIu64 " pending=%" PRIu64
		 " graphs=%" PRIu64 " limit=%" PRIu64 " device=%" PRIu64 " missing=%" PRIu64,
		 f->live_bytes, f->held_bytes, f->free_bytes, f->stranded_bytes, f->pending_bytes, f->graph_bytes,
		 f->limit_bytes, f->device_total_bytes, f->missing_bytes);
	CLV_TELL(a, FAIL, stream, .addr = f->device_free_bytes, .size = f->request_bytes, .a = f->number,
		 .b = f->largest_hole_bytes, .text = text);
}

void clv_failure_note(struct clv_arena *a, uint64_t size, cleave_stream stream)
{
	const struct clv_counts_sum sum = clv_caches_sum(a);
	cleave_failure *f = &a->failure;
	uint64_t device_free = 0, device_total = a->device_total;
	a->driver->mem_get_info(a->driver, a->device, &device_free, &device_total);
	a->failed_ns = clv_clock_ns();
	a->failures++;
	memset(f, 0, sizeof(*f));
	f->number = a->failures;
	f->request_bytes = size;
	f->stream_id = stream.id;
	f->live_bytes = sum.live;
	f->held_bytes = a->held;
	f->free_bytes = a->held - clv_min_u64(a->held, sum.live + sum.rounding);
	f->largest_hole_bytes = largest_hole(a);
	f->stranded_bytes = stranded(a, sum.live + sum.rounding);
	f->pending_bytes = pending(a, false);
	f->graph_bytes = pending(a, true);
	f->limit_bytes = clv_reclaim_cap(a);
	f->device_free_bytes = device_free;
	f->device_total_bytes = device_total;
	if (a->reserves) {
		f->yielded_bytes = a->reserves->yielded_bytes;
		f->beyond_plan = a->reserves->missed;
		f->beyond_plan_bytes = a->reserves->missed_bytes_most;
	}
	/* the request, against what may be held beside the pinned frames, and those of graphs; it is bought in whole pages */
	uint64_t taken = a->pinned;
	for (uint32_t i = 1; i < a->slot_count; i++)
		taken +=
			a->slots[i]->used && a->slots[i]->lasting && a->slots[i]->whole ? a->slots[i]->whole->bytes : 0;
	uint64_t room = f->limit_bytes - clv_min_u64(f->limit_bytes, taken);
	if (size > room)
		f->missing_bytes = size - room;
	else if (size > clv_align_down(room, a->granularity))
		f->missing_bytes = clv_align_up(size, a->granularity) - room;
	a->failures_refused += !f->missing_bytes;
	if (clv_observer_of(a))
		tell(a, f, stream);
}

void clv_failure_broken(struct clv_arena *a, const char *sentence)
{
	if (!a->failure_broken[0])
		snprintf(a->failure_broken, sizeof(a->failure_broken), "%s", sentence);
}

/* ---- for people ---- */

int cleave_failure_print(const cleave_failure *f, char *buf, size_t len)
{
	struct clv_text t = {buf, buf ? len : 0, 0};
	char a[32], b[32], c[32], d[32];
	clv_text_say(&t, "Cleave could not serve a request of %s (failure %" PRIu64 "). ",
		     clv_size_print(f->request_bytes, a, sizeof(a)), f->number);
	clv_text_say(&t, "Live blocks hold %s; Cleave holds %s of the device and may hold %s. ",
		     clv_size_print(f->live_bytes, a, sizeof(a)), clv_size_print(f->held_bytes, b, sizeof(b)),
		     clv_size_print(f->limit_bytes, c, sizeof(c)));
	clv_text_say(
		&t,
		"Of the %s that are free, the largest hole is %s, %s are stranded beside live blocks and %s wait for streams. ",
		clv_size_print(f->free_bytes, a, sizeof(a)), clv_size_print(f->largest_hole_bytes, b, sizeof(b)),
		clv_size_print(f->stranded_bytes, c, sizeof(c)), clv_size_print(f->pending_bytes, d, sizeof(d)));
	if (f->graph_bytes)
		clv_text_say(&t, "CUDA graphs that can still be launched have %s of that. ",
			     clv_size_print(f->graph_bytes, a, sizeof(a)));
	if (f->yielded_bytes)
		clv_text_say(&t, "Reservations have given up %s for other requests. ",
			     clv_size_print(f->yielded_bytes, a, sizeof(a)));
	if (f->beyond_plan)
		clv_text_say(&t,
			     "%" PRIu64
			     " requests, the largest of %s, found nothing left of what was reserved for their size: "
			     "the plan expected fewer. ",
			     f->beyond_plan, clv_size_print(f->beyond_plan_bytes, a, sizeof(a)));
	uint64_t others =
		f->device_total_bytes - clv_min_u64(f->device_total_bytes, f->held_bytes + f->device_free_bytes);
	if (others)
		clv_text_say(&t, "Others hold %s of the device's %s. ", clv_size_print(others, a, sizeof(a)),
			     clv_size_print(f->device_total_bytes, b, sizeof(b)));
	if (f->missing_bytes)
		clv_text_say(&t, "At least %s more would be needed: free some blocks, or let less be live at once.",
			     clv_size_print(f->missing_bytes, a, sizeof(a)));
	else
		clv_text_say(&t, "Enough is free, but the driver refused to map it together.");
	return (int)t.at;
}
