/* SPDX-License-Identifier: MIT */
#include "segments.h"

#include "../memory.h"

#include <string.h>

void clv_segments_free(struct clv_segments *s)
{
	clv_mem_free(s->at);
	*s = (struct clv_segments){0};
}

/* The first segment that begins above addr. */
static size_t first_above(const struct clv_segments *s, uint64_t addr)
{
	size_t lo = 0, hi = s->count;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (s->at[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct clv_segment_range *clv_segments_find(const struct clv_segments *s, uint64_t addr)
{
	size_t i = first_above(s, addr);
	return i && addr < s->at[i - 1].end ? &s->at[i - 1] : NULL;
}

static bool insert(struct clv_segments *s, size_t i, struct clv_segment_range r)
{
	if (!clv_mem_reserve(&s->at, &s->cap, s->count + 1, sizeof(*s->at)))
		return false;
	memmove(&s->at[i + 1], &s->at[i], (s->count - i) * sizeof(*s->at));
	s->at[i] = r;
	s->count++;
	return true;
}

static void drop(struct clv_segments *s, size_t i)
{
	s->count--;
	memmove(&s->at[i], &s->at[i + 1], (s->count - i) * sizeof(*s->at));
}

static bool belong_together(const struct clv_segment_range *a, const struct clv_segment_range *b)
{
	return a->end == b->addr && a->expandable && b->expandable && a->stream == b->stream;
}

/* A segment that overlaps none, before number i. */
static bool add_at(struct clv_segments *s, size_t i, struct clv_segment_range r)
{
	if (i && belong_together(&s->at[i - 1], &r)) {
		s->at[i - 1].end = r.end;
		if (i < s->count && belong_together(&s->at[i - 1], &s->at[i])) {
			s->at[i - 1].end = s->at[i].end;
			drop(s, i);
		}
		return true;
	}
	if (i < s->count && belong_together(&r, &s->at[i])) {
		s->at[i].addr = r.addr;
		return true;
	}
	return insert(s, i, r);
}

bool clv_segments_add(struct clv_segments *s, struct clv_segment_range r)
{
	while (r.addr < r.end) {
		size_t i = first_above(s, r.addr);
		if (i && s->at[i - 1].end > r.addr) {
			r.addr = s->at[i - 1].end;
			continue;
		}
		struct clv_segment_range part = r;
		if (i < s->count)
			part.end = clv_min_u64(r.end, s->at[i].addr);
		if (!add_at(s, i, part))
			return false;
		r.addr = part.end;
	}
	return true;
}

bool clv_segments_cut(struct clv_segments *s, uint64_t addr, uint64_t end)
{
	size_t i = first_above(s, addr);
	if (i && s->at[i - 1].end > addr)
		i--;
	while (i < s->count && s->at[i].addr < end) {
		struct clv_segment_range rest = s->at[i];
		if (rest.addr >= addr && rest.end <= end) {
			drop(s, i);
			continue;
		}
		if (rest.addr < addr) {
			s->at[i++].end = addr;
			rest.addr = end;
			if (rest.end > end && !insert(s, i, rest))
				return false;
		} else {
			s->at[i].addr = end;
		}
		i++;
	}
	return true;
}

bool clv_segments_step(struct clv_segments *s, const struct clv_event_record *e)
{
	if (e->action < CLV_ACTION_SEGMENT_ALLOC || e->action > CLV_ACTION_SEGMENT_UNMAP)
		return true;
	if (e->action == CLV_ACTION_SEGMENT_FREE || e->action == CLV_ACTION_SEGMENT_UNMAP)
		return clv_segments_cut(s, e->addr, e->addr + e->size);
	bool expandable = e->action == CLV_ACTION_SEGMENT_MAP;
	return clv_segments_add(s, (struct clv_segment_range){e->addr, e->addr + e->size, e->stream, expandable});
}
