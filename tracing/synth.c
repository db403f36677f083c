/* SPDX-License-Identifier: MIT */
#include "synth.h"

#include "memory.h"

#include <string.h>

#define FIRST_ADDRESS ((uint64_t)1 << 45)
#define SPACING (64 * CLV_MIB) /* between addresses: more than any size */
#define SIZES 64u
#define STEP_US 3
#define LATE 16u /* completions that wait for another stream */

struct block {
	uint64_t size;
	uint32_t address, stream;
};

struct late {
	struct block block;
	uint32_t due; /* event */
};

struct maker {
	struct clv_synth want;
	struct clv_rng rng;
	struct clv_history *h;
	uint64_t sizes[SIZES], time_us;
	struct block *live;
	uint32_t live_count, target;
	uint32_t *unused; /* addresses, a ring: the one that was freed longest ago comes next */
	uint32_t unused_first, unused_count;
	struct late late[LATE];
	uint32_t late_count;
};

/* A size as tensors have them: each doubling is as likely as the next, up to 32 MiB. */
static uint64_t some_size(struct clv_rng *rng)
{
	unsigned log2 = (unsigned)clv_rng_range(rng, 9, 24);
	return clv_rng_range(rng, (uint64_t)1 << log2, (uint64_t)2 << log2);
}

static void add(struct maker *m, enum clv_action action, const struct block *b, uint32_t stream)
{
	if (m->h->event_count == m->want.events)
		return;
	m->time_us += clv_rng_below(&m->rng, 2 * STEP_US + 1);
	m->h->events[m->h->event_count++] = (struct clv_event_record){
		.time_us = m->time_us,
		.addr = FIRST_ADDRESS + b->address * SPACING,
		.size = b->size,
		.stream = stream,
		.block = CLV_NO_BLOCK,
		.action = (uint8_t)action,
	};
}

static void complete(struct maker *m, const struct block *b, uint32_t stream)
{
	add(m, CLV_ACTION_FREE_COMPLETED, b, stream);
	m->unused[(m->unused_first + m->unused_count++) % m->want.addresses] = b->address;
}

static void complete_late(struct maker *m)
{
	for (uint32_t i = 0; i < m->late_count;) {
		if (m->late[i].due > m->h->event_count && m->late_count < LATE) {
			i++;
			continue;
		}
		complete(m, &m->late[i].block, m->late[i].block.stream);
		m->late[i] = m->late[--m->late_count];
	}
}

static void make_one(struct maker *m)
{
	struct block b = {
		.size = m->sizes[clv_rng_below(&m->rng, SIZES)],
		.address = m->unused[m->unused_first],
		.stream = (uint32_t)clv_rng_below(&m->rng, m->want.streams),
	};
	if (clv_rng_below(&m->rng, 16) == 0)
		b.size = some_size(&m->rng);
	m->unused_first = (m->unused_first + 1) % m->want.addresses;
	m->unused_count--;
	m->live[m->live_count++] = b;
	add(m, CLV_ACTION_ALLOC, &b, b.stream);
}

static void free_one(struct maker *m)
{
	/* mostly the youngest; else any */
	uint32_t i = m->live_count - 1;
	if (clv_rng_below(&m->rng, 4) == 0)
		i = (uint32_t)clv_rng_below(&m->rng, m->live_count);
	struct block b = m->live[i];
	m->live[i] = m->live[--m->live_count];
	bool late = m->want.streams > 1 && clv_rng_below(&m->rng, 8) == 0;
	add(m, CLV_ACTION_FREE_REQUESTED, &b, b.stream);
	if (late && m->late_count < LATE) {
		b.stream = (b.stream + 1) % m->want.streams;
		m->late[m->late_count++] = (struct late){b, m->h->event_count + 8};
	} else {
		complete(m, &b, b.stream);
	}
}

static void make_events(struct maker *m)
{
	for (unsigned i = 0; i < SIZES; i++)
		m->sizes[i] = some_size(&m->rng);
	m->target = m->want.live;
	while (m->h->event_count < m->want.events) {
		if (m->late_count)
			complete_late(m);
		/* a layer is over: the next one needs more or less */
		if (clv_rng_below(&m->rng, 64) == 0)
			m->target = (uint32_t)clv_rng_range(&m->rng, m->want.live * 3ull / 4, m->want.live);
		bool grow = m->live_count < m->target ? clv_rng_below(&m->rng, 8) < 7 : clv_rng_below(&m->rng, 8) == 0;
		if (m->live_count == 0 || (grow && m->unused_count && m->live_count < m->want.live))
			make_one(m);
		else
			free_one(m);
	}
}

static bool settle_wants(struct clv_synth *s, struct clv_error *err)
{
	s->live = s->live ? s->live : (uint32_t)clv_min_u64(2000, s->events / 4);
	s->streams = s->streams ? s->streams : 1;
	s->addresses = s->addresses ? s->addresses : s->live + LATE + 1;
	if (s->events < 4 || s->events == UINT32_MAX || s->live < 1 || s->live > s->events / 4)
		return clv_error_set(
			err,
			"a synthetic history has at least 4 events, and no more live blocks than a quarter of them");
	if (s->addresses <= s->live + LATE || s->addresses > s->events + s->live + LATE + 1u)
		return clv_error_set(err, "a synthetic history of %u live blocks needs more addresses, or fewer",
				     s->live);
	return true;
}

static struct clv_trace *empty_trace(const struct clv_synth *s)
{
	struct clv_trace *t = clv_mem_zalloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->format = CLV_FORMAT_CLV;
	t->torch.max_split_size = -1;
	t->file = clv_mem_strndup("synthetic", strlen("synthetic"));
	t->torch.conf = clv_mem_strndup("", 0);
	t->stacks = clv_mem_zalloc(1, sizeof(*t->stacks));
	t->histories = clv_mem_zalloc(1, sizeof(*t->histories));
	bool ok = t->file && t->torch.conf && t->stacks && t->histories;
	if (ok) {
		t->stack_count = t->history_count = 1;
		t->histories->events = clv_mem_realloc(NULL, s->events, sizeof(*t->histories->events));
		ok = t->histories->events != NULL;
	}
	for (uint32_t i = 0; ok && i < s->streams; i++)
		ok = clv_trace_stream(t, i * 32ull) == i;
	if (ok)
		return t;
	clv_trace_free(t);
	return NULL;
}

struct clv_trace *clv_synth_trace(const struct clv_synth *synth, struct clv_error *err)
{
	struct maker m = {.want = *synth, .rng = {synth->seed}};
	if (!settle_wants(&m.want, err))
		return NULL;
	struct clv_trace *t = empty_trace(&m.want);
	m.live = clv_mem_realloc(NULL, m.want.live, sizeof(*m.live));
	m.unused = clv_mem_realloc(NULL, m.want.addresses, sizeof(*m.unused));
	bool ok = t && m.live && m.unused;
	if (ok) {
		m.h = t->histories;
		for (uint32_t i = 0; i < m.want.addresses; i++)
			m.unused[i] = i;
		m.unused_count = m.want.addresses;
		make_events(&m);
		ok = clv_history_link(t, m.h, err);
	} else {
		clv_error_set(err, "synthetic history: out of host memory");
	}
	clv_mem_free(m.live);
	clv_mem_free(m.unused);
	if (ok)
		return t;
	clv_trace_free(t);
	return NULL;
}
