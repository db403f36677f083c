/* SPDX-License-Identifier: MIT
 *
 * Orders of work without a foreseeable end, as that of graphs: what was freed in one is for nobody else, what was free for
 * everybody stays so, and all comes back in the end. The last test does at random what a program with graphs does, and
 * compares the physical memory under blocks with that which graphs may touch.
 */
#include "check_main.h"
#include "event_model.h"
#include "lasting_driver.h"

#include "../src/heap/heap_more.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGE (2 * CLV_MIB)

static struct lasting l;
static cleave_heap *heap;
static struct event_model events;

static void open_heap_over(const struct clv_sim_config *config, const char *settings)
{
	char why[256] = "";
	lasting_open(&l, config);
	ck_assert_msg(!cleave_heap_open(&heap, &l.base, settings, why, sizeof(why)), "%s", why);
	event_model_open(&events);
	clv_heap_observe(heap, &events.observer);
}

static void open_heap(uint64_t capacity, const char *settings)
{
	open_heap_over(&(struct clv_sim_config){.capacity = capacity, .manual = true}, settings);
}

static void check_heap(void)
{
	char why[256] = "";
	ck_assert_msg(!cleave_heap_check(heap, why, sizeof(why)), "%s", why);
	event_model_compare(&events, heap, 0); /* what it has told says the same */
}

static void shut_heap(void)
{
	check_heap();
	event_model_ignore(&events); /* live blocks go with the heap */
	cleave_heap_close(heap);
	event_model_close(&events);
	lasting_close(&l);
}

static cleave_stream graph(unsigned branch)
{
	return (cleave_stream){CLV_STREAM_VIRTUAL | branch, 0};
}

/* Of one capture alone; 0: what captures are folded onto. */
static cleave_stream apart(uint64_t number, unsigned branch)
{
	return (cleave_stream){CLV_STREAM_VIRTUAL | CLV_STREAM_APART | number << 22 | branch, 0};
}

static cleave_stream stream(uint64_t id)
{
	return (cleave_stream){id, 0x100 + id};
}

static cleave_ptr get(cleave_stream s, size_t size)
{
	cleave_ptr p;
	ck_assert_int_eq(cleave_alloc(heap, 0, s, size, &p), 0);
	return p;
}

static void give(cleave_stream s, cleave_ptr p)
{
	ck_assert_int_eq(cleave_free(heap, p, s), 0);
}

static cleave_heap_stats stats(void)
{
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	return s;
}

START_TEST(takes_no_more_than_it_needs)
{
	open_heap(64 * CLV_GIB, NULL);
	lasting_begin(&l);
	/* bought for it: much more than was asked for */
	cleave_ptr a = get(graph(0), 3 * CLV_MIB), b = get(graph(0), 5 * CLV_MIB);
	ck_assert_uint_gt(stats().held_bytes, 12 * CLV_MIB);
	give(graph(0), a);
	give(graph(0), b);
	ck_assert_uint_eq(stats().pending_bytes, 8 * CLV_MIB);
	/* cut from a large hole, beside what is pending */
	cleave_ptr p = get(stream(1), CLV_GIB);
	give(CLEAVE_STREAM_ANY, p);
	for (int i = 0; i < 20; i++) {
		a = get(graph(0), 20 * CLV_MIB);
		b = get(graph(0), 1000000);
		give(graph(0), a);
		give(graph(0), b);
		check_heap();
	}
	ck_assert_uint_le(stats().pending_bytes, 50 * CLV_MIB);
	shut_heap();
}
END_TEST

/* What others have freed, and no event tells so far, is complete as it turns out: for everybody, not for graphs alone. */
START_TEST(adopts_nothing)
{
	open_heap_over(&(struct clv_sim_config){.capacity = 64 * CLV_MIB}, NULL);
	lasting_begin(&l);
	cleave_ptr p[15];
	for (int i = 0; i < 15; i++)
		p[i] = get(stream(1 + (uint64_t)i), 4 * CLV_MIB - 512);
	for (int i = 0; i < 15; i++)
		give(stream(1 + (uint64_t)i), p[i]); /* too little for an event */
	cleave_ptr a = get(graph(0), 10 * CLV_MIB);
	give(graph(0), a);
	ck_assert_uint_eq(stats().device_waits, 0);
	ck_assert_uint_eq(stats().pending_bytes, 10 * CLV_MIB);
	a = get(stream(1), 50 * CLV_MIB);
	give(stream(1), a);
	shut_heap();
}
END_TEST

START_TEST(nobody_else_before_all_are_gone)
{
	open_heap(64 * CLV_MIB, NULL);
	uint64_t first = lasting_begin(&l);
	cleave_ptr a = get(graph(0), 40 * CLV_MIB), p;
	give(graph(0), a);
	uint64_t second = lasting_begin(&l);
	ck_assert_uint_eq(get(graph(0), 40 * CLV_MIB), a);
	ck_assert_int_eq(cleave_alloc(heap, 0, graph(1), 40 * CLV_MIB, &p), -ENOMEM);
	give(graph(0), a);
	l.alive[first] = false;
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 40 * CLV_MIB, &p), -ENOMEM);
	ck_assert_int_eq(cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 40 * CLV_MIB, &p), -ENOMEM);
	cleave_failure why;
	char text[1024];
	ck_assert_int_eq(cleave_heap_last_failure(heap, 0, &why), 0);
	ck_assert_uint_eq(why.graph_bytes, 40 * CLV_MIB);
	ck_assert_uint_ge(why.missing_bytes, 16 * CLV_MIB);
	cleave_failure_print(&why, text, sizeof(text));
	ck_assert_msg(strstr(text, "CUDA graphs that can still be launched have 40.0 MiB"), "%s", text);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, graph(0)), -EIO);
	check_heap();
	l.alive[second] = false;
	ck_assert_int_eq(cleave_alloc(heap, 0, stream(1), 40 * CLV_MIB, &p), 0);
	ck_assert_int_eq(cleave_stream_destroyed(heap, 0, graph(0)), 0);
	give(stream(1), p);
	shut_heap();
}
END_TEST

/* A block of one branch that is freed in another: it is the other's at once, and no more the first one's. */
START_TEST(the_freeing_branch_has_it)
{
	open_heap(64 * CLV_MIB, NULL);
	lasting_begin(&l);
	cleave_ptr a = get(graph(0), 40 * CLV_MIB), p, s = get(graph(0), 700);
	give(graph(1), a);
	give(graph(1), s);
	ck_assert_int_eq(cleave_alloc(heap, 0, graph(0), 40 * CLV_MIB, &p), -ENOMEM);
	ck_assert_uint_ne(get(graph(0), 700), s);
	ck_assert_uint_eq(get(graph(1), 40 * CLV_MIB), a);
	shut_heap();
}
END_TEST

static bool same_frame(uint64_t a, uint64_t b)
{
	const struct mapping *x = mapped_at(&l, a), *y = mapped_at(&l, b);
	ck_assert(x && y);
	return x->handle == y->handle;
}

START_TEST(folds_what_nobody_cares_for)
{
	open_heap(CLV_GIB, NULL);
	cleave_ptr first[3], second[3], kept[3];
	uint64_t number[3], held = 0;
	for (int i = 0; i < 3; i++) {
		number[i] = lasting_begin(&l);
		cleave_stream s[2] = {apart(number[i], 0), apart(number[i], 1)};
		first[i] = get(s[0], 8 * CLV_MIB);
		second[i] = get(s[1], 6 * CLV_MIB);
		kept[i] = get(s[0], 3 * CLV_MIB);
		cleave_ptr small = get(s[0], 900);
		give(s[0], first[i]);
		give(s[1], second[i]);
		give(s[0], small);
		ck_assert_uint_eq(get(s[0], 8 * CLV_MIB), first[i]);
		give(s[0], first[i]);
		clv_heap_fold(heap, 0, s, 2, apart(0, 0));
		check_heap();
		if (i == 0)
			held = clv_sim_used(l.sim, 0);
	}
	/* another device may touch it wherever it is mapped */
	struct clv_call_counts before, after;
	l.base.counts(&l.base, &before);
	ck_assert_int_eq(clv_heap_access(heap, 0), 0);
	l.base.counts(&l.base, &after);
	ck_assert_uint_eq(after.calls[CLV_CALL_set_access] - before.calls[CLV_CALL_set_access], l.mapping_count);
	/* but for what is kept, two frames each */
	ck_assert_uint_eq(clv_sim_used(l.sim, 0), held + 2 * 4 * CLV_MIB);
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < i; k++) {
			unsigned same = 0;
			for (uint64_t at = 0; at < 8 * CLV_MIB; at += PAGE)
				for (uint64_t to = 0; to < 14 * CLV_MIB; to += PAGE)
					same += same_frame(first[i] + at, to < 8 * CLV_MIB
										  ? first[k] + to
										  : second[k] + to - 8 * CLV_MIB);
			ck_assert_uint_ge(same, 3); /* one may be where a slab was */
			ck_assert(!same_frame(kept[i], kept[k]));
		}
		for (uint64_t at = 0; at < 8 * CLV_MIB; at += PAGE)
			for (uint64_t to = 0; to < 6 * CLV_MIB; to += PAGE)
				ck_assert(!same_frame(first[i] + at, second[i] + to));
	}
	/* two of three are gone: the third one's frames are not */
	for (int i = 0; i < 2; i++) {
		l.alive[number[i]] = false;
		for (unsigned k = 0; k < 2; k++)
			cleave_stream_destroyed(heap, 0, apart(number[i], k));
		clv_heap_unfold(heap, 0, apart(0, 0));
		check_heap();
		give(CLEAVE_STREAM_ANY, kept[i]);
		ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
		ck_assert_ptr_nonnull(mapped_at(&l, first[2]));
	}
	ck_assert_uint_eq(clv_sim_used(l.sim, 0), held);
	l.alive[number[2]] = false;
	for (unsigned k = 0; k < 2; k++)
		ck_assert_int_eq(cleave_stream_destroyed(heap, 0, apart(number[2], k)), 0);
	clv_heap_unfold(heap, 0, apart(0, 0));
	give(CLEAVE_STREAM_ANY, kept[2]);
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(clv_sim_used(l.sim, 0), 0);
	shut_heap();
}
END_TEST

/* ---- at random ---- */

#define BRANCHES 2u
#define STREAMS 3u
#define BLOCKS 48u
#define GRAPHS 12u
#define TOUCHED 64u

struct place { /* of a graph's: an address and what is mapped there */
	uint64_t addr, size;
	unsigned branch;
	bool freed, elsewhere; /* in another capture */
	bool apart;
	uint64_t pages[64];
	clv_handle handles[64];
	unsigned count;
};

static struct {
	struct clv_rng rng;
	uint64_t seed, step;
	struct block {
		cleave_ptr ptr; /* 0: none */
		size_t size;
		cleave_stream stream;
		struct graph *graph; /* that it was allocated in, while that lives */
		bool lasting, freed; /* freed by the program */
	} blocks[BLOCKS];
	struct graph {
		uint64_t number; /* 0: none */
		struct place touched[TOUCHED];
		unsigned count;
	} graphs[GRAPHS];
	struct graph *capture; /* that is under way */
	uint64_t served, shared, moved;
} m;

#define MUST(x, ...)                                                                                                   \
	do {                                                                                                           \
		if (!(x))                                                                                              \
			ck_abort_msg("seed %llu step %llu: " __VA_ARGS__, (unsigned long long)m.seed,                  \
				     (unsigned long long)m.step);                                                      \
	} while (0)

/* True if physical memory of the block is under the place. */
static bool meets(uint64_t addr, uint64_t size, const struct place *t)
{
	for (uint64_t at = addr; at < addr + size;) {
		const struct mapping *x = mapped_at(&l, at);
		MUST(x, "a block is not mapped");
		uint64_t upto = clv_min_u64(x->addr + x->size, addr + size);
		for (unsigned i = 0; i < t->count; i++) {
			if (t->handles[i] != x->handle)
				continue;
			/* both as offsets into the frame */
			const struct mapping *y = mapped_at(&l, t->pages[i]);
			uint64_t lo = clv_max_u64(t->pages[i], t->addr) - y->addr;
			uint64_t hi = clv_min_u64(y->addr + y->size, t->addr + t->size) - y->addr;
			if (at - x->addr < hi && lo < upto - x->addr)
				return true;
		}
		at = upto;
	}
	return false;
}

static void touch(struct graph *g, uint64_t addr, uint64_t size, unsigned branch)
{
	struct place *t = &g->touched[g->count++];
	*t = (struct place){.addr = addr, .size = size, .branch = branch};
	for (uint64_t at = addr; at < addr + size;) {
		const struct mapping *x = mapped_at(&l, at);
		MUST(x && t->count < 64, "a block is not mapped, or in too many frames");
		t->pages[t->count] = at;
		t->handles[t->count++] = x->handle;
		at = x->addr + x->size;
	}
}

/* Graphs can be launched at any time: what they touch is where it was. */
static void check_graphs(void)
{
	for (unsigned g = 0; g < GRAPHS; g++)
		for (unsigned i = 0; m.graphs[g].number && i < m.graphs[g].count; i++) {
			const struct place *t = &m.graphs[g].touched[i];
			for (unsigned k = 0; k < t->count; k++) {
				const struct mapping *x = mapped_at(&l, t->pages[k]);
				MUST(x && x->handle == t->handles[k], "memory of a graph was taken away or replaced");
			}
		}
}

static struct block *free_block(void)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		if (!m.blocks[i].ptr)
			return &m.blocks[i];
	return NULL;
}

static struct block *some_block(bool lasting)
{
	unsigned at = (unsigned)clv_rng_below(&m.rng, BLOCKS);
	for (unsigned i = 0; i < BLOCKS; i++) {
		struct block *b = &m.blocks[(at + i) % BLOCKS];
		if (b->ptr && b->lasting == lasting && !b->freed)
			return b;
	}
	return NULL;
}

static size_t some_size(void)
{
	switch (clv_rng_below(&m.rng, 3)) {
	case 0:
		return clv_rng_range(&m.rng, 1, 32 * CLV_KIB);
	case 1:
		return clv_rng_range(&m.rng, 32 * CLV_KIB, 3 * CLV_MIB);
	default:
		return clv_rng_range(&m.rng, 2, 12) * CLV_MIB + clv_rng_below(&m.rng, 2) * 512;
	}
}

static void allocate_plainly(void)
{
	struct block *b = free_block();
	cleave_stream s = stream(clv_rng_below(&m.rng, STREAMS) + 1);
	if (b && clv_rng_below(&m.rng, 8) == 0)
		s = CLEAVE_STREAM_ANY;
	size_t size = some_size();
	if (!b || cleave_alloc(heap, 0, s, size, &b->ptr))
		return;
	*b = (struct block){.ptr = b->ptr, .size = size, .stream = s};
	for (unsigned g = 0; g < GRAPHS; g++)
		for (unsigned i = 0; m.graphs[g].number && i < m.graphs[g].count; i++)
			MUST(!meets(b->ptr, size, &m.graphs[g].touched[i]), "memory of a graph was given away");
	m.served++;
}

static void allocate_in_capture(void)
{
	struct block *b = free_block();
	unsigned branch = (unsigned)clv_rng_below(&m.rng, BRANCHES);
	size_t size = some_size();
	cleave_stream s = clv_rng_below(&m.rng, 3) ? apart(m.capture->number, branch) : graph(branch);
	if (!b || m.capture->count == TOUCHED || cleave_alloc(heap, 0, s, size, &b->ptr))
		return;
	*b = (struct block){.ptr = b->ptr, .size = size, .stream = s, .graph = m.capture, .lasting = true};
	/* branches of one capture are not ordered */
	for (unsigned i = 0; i < m.capture->count; i++) {
		const struct place *t = &m.capture->touched[i];
		bool meet = meets(b->ptr, size, t);
		MUST(!meet || (t->freed && t->branch == branch), "branches share memory");
		m.shared += meet;
	}
	for (unsigned g = 0; g < GRAPHS; g++)
		for (unsigned i = 0; &m.graphs[g] != m.capture && m.graphs[g].number && i < m.graphs[g].count; i++) {
			const struct place *t = &m.graphs[g].touched[i];
			MUST(t->elsewhere || !meets(b->ptr, size, t), "graphs share what none of them gave away");
		}
	touch(m.capture, b->ptr, size, branch);
	m.capture->touched[m.capture->count - 1].apart = clv_stream_is_apart(s.id);
	m.served++;
}

static void free_in_capture(void)
{
	struct block *b = some_block(true);
	unsigned branch = (unsigned)clv_rng_below(&m.rng, BRANCHES);
	if (!b)
		return;
	for (unsigned i = 0; b->graph && i < b->graph->count; i++) {
		struct place *t = &b->graph->touched[i];
		if (t->addr != b->ptr || t->freed)
			continue;
		t->freed = true;
		t->elsewhere |= b->graph != m.capture;
		/* and so is what had been there before in the same graph */
		for (unsigned k = 0; k < b->graph->count && t->elsewhere; k++)
			b->graph->touched[k].elsewhere |= meets(t->addr, t->size, &b->graph->touched[k]);
		if (b->graph == m.capture)
			branch = t->branch; /* else order would come about that is not seen here */
		/* its memory may have been given away before, and then goes the same way again */
		t->elsewhere |= !clv_stream_is_apart(b->stream.id);
	}
	give(b->graph == m.capture ? apart(m.capture->number, branch) : graph(branch), b->ptr);
	b->ptr = 0;
}

static void free_plainly(void)
{
	struct block *b = some_block(clv_rng_below(&m.rng, 4) == 0);
	if (!b)
		return;
	if (b->lasting) {
		b->freed = true;
		if (b->graph)
			return; /* it waits for its graph */
		b->stream = CLEAVE_STREAM_ANY;
	} else if (b->stream.id != CLEAVE_STREAM_ANY.id && clv_rng_below(&m.rng, 3) == 0) {
		b->stream = stream(clv_rng_below(&m.rng, STREAMS) + 1);
	}
	give(b->stream, b->ptr);
	b->ptr = 0;
}

/* Its frames are folded, and from here on it may be launched. */
static void end_capture(void)
{
	struct graph *c = m.capture;
	cleave_stream s[BRANCHES];
	for (unsigned k = 0; k < BRANCHES; k++)
		s[k] = apart(c->number, k);
	clv_heap_fold(heap, 0, s, BRANCHES, apart(0, 0));
	for (unsigned i = 0; i < c->count; i++) {
		struct place t = c->touched[i];
		c->touched[i].count = 0;
		for (uint64_t at = t.addr; at < t.addr + t.size;) {
			const struct mapping *x = mapped_at(&l, at);
			MUST(x, "memory of a capture was taken away");
			c->touched[i].pages[c->touched[i].count] = at;
			c->touched[i].handles[c->touched[i].count++] = x->handle;
			at = x->addr + x->size;
		}
	}
	/* one frame is at one address in a graph */
	for (unsigned i = 0; i < c->count; i++)
		for (unsigned k = 0; k < i; k++)
			for (unsigned n = 0; n < c->touched[i].count * c->touched[k].count; n++) {
				unsigned x = n / c->touched[k].count, y = n % c->touched[k].count;
				const struct place *t = &c->touched[i], *u = &c->touched[k];
				MUST(!t->apart || !u->apart || t->handles[x] != u->handles[y] ||
					     mapped_at(&l, t->pages[x])->addr == mapped_at(&l, u->pages[y])->addr,
				     "a frame is at two addresses in one graph");
			}
	/* and what is left is nobody else's */
	for (unsigned n = 0; n < BLOCKS; n++) {
		const struct block *b = &m.blocks[n];
		for (unsigned g = 0; b->ptr && b->graph == c && g < GRAPHS; g++)
			for (unsigned i = 0; &m.graphs[g] != c && m.graphs[g].number && i < m.graphs[g].count; i++)
				MUST(m.graphs[g].touched[i].elsewhere ||
					     !meets(b->ptr, b->size, &m.graphs[g].touched[i]),
				     "another graph may write what a graph has left");
	}
	for (unsigned g = 0; g < GRAPHS; g++)
		for (unsigned i = 0; &m.graphs[g] != c && m.graphs[g].number && i < m.graphs[g].count; i++)
			for (unsigned k = 0; k < c->count; k++)
				m.shared += meets(c->touched[k].addr, c->touched[k].size, &m.graphs[g].touched[i]);
	m.capture = NULL;
}

static void begin_capture(void)
{
	for (unsigned g = 0; g < GRAPHS && !m.capture; g++)
		if (!m.graphs[g].number)
			m.capture = &m.graphs[g];
	if (m.capture)
		*m.capture = (struct graph){.number = lasting_begin(&l)};
}

static void destroy_graph(void)
{
	struct graph *g = &m.graphs[clv_rng_below(&m.rng, GRAPHS)];
	if (!g->number || g == m.capture)
		return;
	l.alive[g->number] = false;
	for (unsigned k = 0; k < BRANCHES; k++)
		ck_assert_int_eq(cleave_stream_destroyed(heap, 0, apart(g->number, k)), 0);
	clv_heap_unfold(heap, 0, apart(0, 0));
	g->number = 0;
	bool any = false;
	for (unsigned i = 0; i < GRAPHS; i++)
		any |= m.graphs[i].number != 0;
	for (unsigned i = 0; i < BLOCKS; i++) {
		struct block *b = &m.blocks[i];
		if (!b->ptr || b->graph != g)
			continue;
		b->graph = NULL;
		if (b->freed) {
			give(CLEAVE_STREAM_ANY, b->ptr);
			b->ptr = 0;
		}
	}
	for (unsigned k = 0; k < BRANCHES && !any; k++)
		ck_assert_int_eq(cleave_stream_destroyed(heap, 0, graph(k)), 0);
	if (!any)
		ck_assert_int_eq(cleave_stream_destroyed(heap, 0, apart(0, 0)), 0);
}

static void step(void)
{
	uint64_t r = clv_rng_below(&m.rng, 100);
	if (m.capture && r < 55) {
		if (r < 30)
			allocate_in_capture();
		else if (r < 50)
			free_in_capture();
		else
			end_capture();
	} else if (r < 30) {
		allocate_plainly();
	} else if (r < 70) {
		free_plainly();
	} else if (r < 80) {
		if (!m.capture)
			begin_capture();
	} else if (r < 86) {
		destroy_graph();
	} else if (r < 96) {
		clv_sim_complete(l.sim, stream(clv_rng_below(&m.rng, STREAMS) + 1));
	} else if (r < 97) {
		ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	} else if (r < 98) {
		cleave_stream_destroyed(heap, 0, stream(clv_rng_below(&m.rng, STREAMS) + 1));
	}
}

static void work_at_random(uint64_t seed, uint64_t steps, uint64_t capacity, const char *settings)
{
	memset(&m, 0, sizeof(m));
	m.rng.state = m.seed = seed;
	open_heap(capacity, settings);
	for (m.step = 0; m.step < steps && l.number < LASTING_MAX - 2; m.step++) {
		step();
		check_graphs();
		if (m.step % 16 == 0)
			check_heap();
	}
	if (m.capture)
		end_capture();
	for (bool any = true; any;) {
		any = false;
		destroy_graph();
		for (unsigned i = 0; i < GRAPHS; i++)
			any |= m.graphs[i].number != 0;
	}
	for (unsigned i = 0; i < BLOCKS; i++)
		if (m.blocks[i].ptr)
			give(CLEAVE_STREAM_ANY, m.blocks[i].ptr);
	m.moved += stats().frames_moved;
	ck_assert_int_eq(cleave_heap_trim(heap, 0, 0, NULL), 0);
	ck_assert_uint_eq(clv_sim_used(l.sim, 0), 0);
	shut_heap();
}

START_TEST(graphs_at_random)
{
	static const char *const settings[] = {NULL, "growth:tight", "cache:off", "frame:4MiB"};
	const char *more = getenv("CLEAVE_TEST_STEPS");
	uint64_t steps = more ? strtoull(more, NULL, 0) : 1500, shared = 0, served = 0, moved = 0;
	for (uint64_t seed = 0; seed < 16; seed++) {
		work_at_random(seed, steps, (64 + 64 * (seed / 4)) * CLV_MIB, settings[seed % 4]);
		shared += m.shared;
		served += m.served;
		moved += m.moved;
	}
	ck_assert_uint_gt(served, 1000); /* this is what it is about */
	ck_assert_uint_gt(shared, 1000);
	ck_assert_uint_gt(moved, 20);
}
END_TEST

CHECK_MAIN("lasting", takes_no_more_than_it_needs, adopts_nothing, nobody_else_before_all_are_gone,
	   the_freeing_branch_has_it, folds_what_nobody_cares_for, graphs_at_random)
