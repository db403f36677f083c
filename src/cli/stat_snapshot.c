/* SPDX-License-Identifier: MIT */
#include "stat_snapshot.h"

#include "../../tracing/memory.h"

#include <stdio.h>
#include <string.h>

/* Streams whose shares of a segment are told apart; of further ones the first in the segment. */
#define SHARES 8

struct maker {
	struct clv_trace *trace;
	struct clv_history *h;
	const struct clv_stat_part *part;
	struct clv_error *err;
	uint64_t block; /* the next of the part's, of which `taken` bytes are told already */
	uint64_t taken;
	size_t block_room, segment_room;
	struct share {
		uint64_t stream, bytes;
	} shares[SHARES];
	unsigned share_count;
};

static bool out_of_memory(struct maker *m)
{
	return clv_error_set(m->err, "out of host memory");
}

static bool end_segment(struct maker *m)
{
	struct clv_segment_record *s = &m->h->segments[m->h->segment_count - 1];
	const struct share *most = m->shares;
	for (unsigned i = 1; i < m->share_count; i++)
		if (m->shares[i].bytes > most->bytes)
			most = &m->shares[i];
	s->blocks = m->h->block_record_count - s->first_block;
	s->stream = clv_trace_stream(m->trace, most->stream);
	m->share_count = 0;
	return s->stream != UINT32_MAX || out_of_memory(m);
}

static bool begin_segment(struct maker *m, uint64_t addr)
{
	if (!clv_mem_reserve(&m->h->segments, &m->segment_room, m->h->segment_count + 1u, sizeof(*m->h->segments)))
		return out_of_memory(m);
	m->h->segments[m->h->segment_count++] = (struct clv_segment_record){
		.addr = addr, .stream = 0, .expandable = false, .first_block = m->h->block_record_count};
	return true;
}

static void share(struct maker *m, uint64_t stream, uint64_t bytes)
{
	unsigned i = 0;
	while (i < m->share_count && m->shares[i].stream != stream)
		i++;
	if (i == SHARES)
		return;
	if (i == m->share_count)
		m->shares[m->share_count++] = (struct share){stream, 0};
	m->shares[i].bytes += bytes;
}

static bool add_block(struct maker *m, const cleave_block *b, uint64_t addr, uint64_t bytes)
{
	static const uint8_t states[] = {[CLEAVE_BLOCK_LIVE] = CLV_BLOCK_ACTIVE,
					 [CLEAVE_BLOCK_PENDING] = CLV_BLOCK_PENDING_FREE,
					 [CLEAVE_BLOCK_FREE] = CLV_BLOCK_INACTIVE};
	if (m->h->block_record_count == UINT32_MAX ||
	    !clv_mem_reserve(&m->h->blocks, &m->block_room, m->h->block_record_count + 1u, sizeof(*m->h->blocks)))
		return out_of_memory(m);
	m->h->blocks[m->h->block_record_count++] = (struct clv_block_record){.addr = addr,
									     .size = bytes,
									     .requested = b->requested,
									     .stack = CLV_NO_STACK,
									     .state = states[b->state]};
	m->h->segments[m->h->segment_count - 1].size += bytes;
	share(m, b->stream_id, bytes);
	return true;
}

static bool makes_sense(const cleave_block *b, uint64_t at)
{
	return b->address <= at && b->bytes && b->address + b->bytes > at && b->state >= CLEAVE_BLOCK_LIVE &&
	       b->state <= CLEAVE_BLOCK_FREE && b->requested <= b->bytes;
}

/* One frame; `open`: the segment goes on from the frame before, and after it, since a live block lies across. */
static bool add_frame(struct maker *m, const struct clv_heap_frame *f, bool *open)
{
	uint64_t at = f->addr, end = f->addr + f->bytes;
	if (!*open && !begin_segment(m, at))
		return false;
	while (at < end) {
		const cleave_block *b = m->block < m->part->device->blocks ? &m->part->blocks[m->block] : NULL;
		if (!b || !makes_sense(b, at) || b->address + m->taken != at)
			return clv_error_set(m->err, "the process's blocks do not fill its frames");
		uint64_t left = b->bytes - m->taken, here = clv_min_u64(left, end - at);
		bool live = b->state == CLEAVE_BLOCK_LIVE;
		/* a live block is told once, whole; of a free one each frame has its piece */
		if (live ? !m->taken && !add_block(m, b, at, b->bytes) : !add_block(m, b, at, here))
			return false;
		at += here;
		m->taken = here == left ? 0 : m->taken + here;
		m->block += here == left;
		*open = live && here < left;
	}
	return *open || end_segment(m);
}

static bool add_device(struct maker *m, const struct clv_stat_part *part)
{
	struct clv_history *h = m->h;
	bool open = false;
	m->part = part;
	h->device = (int)part->device->device;
	h->has_state = true;
	h->pools = clv_mem_zalloc(1, sizeof(*h->pools)); /* the default alone */
	if (!h->pools)
		return out_of_memory(m);
	h->pool_count = 1;
	for (uint64_t i = 0; i < part->device->frames; i++)
		if (!add_frame(m, &part->frames[i], &open))
			return false;
	if (open || m->block != part->device->blocks)
		return clv_error_set(m->err, "the process's frames do not hold its blocks");
	return clv_history_link(m->trace, h, m->err);
}

struct clv_trace *clv_stat_trace(const struct clv_stat_view *view, struct clv_error *err)
{
	struct clv_trace *t = clv_mem_zalloc(1, sizeof(*t));
	char file[64];
	if (!t) {
		clv_error_set(err, "out of host memory");
		return NULL;
	}
	snprintf(file, sizeof(file), "process %d", (int)view->process->pid);
	t->format = CLV_FORMAT_CLV;
	t->torch.max_split_size = -1;
	t->file = clv_mem_strndup(file, strlen(file));
	t->torch.conf = clv_mem_strndup("", 0);
	t->stacks = clv_mem_zalloc(1, sizeof(*t->stacks));
	t->histories = clv_mem_zalloc(view->used ? view->used : 1, sizeof(*t->histories));
	bool good = t->file && t->torch.conf && t->stacks && t->histories;
	if (!good)
		clv_error_set(err, "out of host memory");
	else
		t->stack_count = 1;
	for (unsigned i = 0; good && i < view->used; i++) {
		struct maker m = {.trace = t, .h = &t->histories[t->history_count++], .err = err};
		good = add_device(&m, &view->parts[i]);
	}
	if (good)
		return t;
	clv_trace_free(t);
	return NULL;
}
