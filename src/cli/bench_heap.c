/* SPDX-License-Identifier: MIT
 *
 * What requests and frees cost in the heap, beside the C library's malloc and free of the same sizes in the same order.
 * The device is simulated, so what is measured is the work of the heap on the host; the driver's own time is not in it.
 *
 *   hit/SIZE            a block is allocated and freed, again and again
 *   holes/SIZE/N        64 blocks are allocated and freed where N holes of that size stand apart between live blocks
 *   coalesce/SIZE/alone a block is freed between two live ones
 *   coalesce/SIZE/joins a block is freed between two holes, which become one with it
 *   coalesce/SIZE/cut   a block is cut from a hole of three times its size
 *   mixed/N             N live blocks of 512 B to 8 MiB, any of which is freed before one of another size is allocated
 */
#include "bench.h"
#include "bench_memory.h"

#include <stdlib.h>
#include <string.h>

static const struct size {
	const char *name;
	size_t bytes;
} sizes[] = {{"512B", 512}, {"1KiB", CLV_KIB}, {"64KiB", 64 * CLV_KIB}, {"3MiB", 3 * CLV_MIB}, {"64MiB", 64 * CLV_MIB}};

enum { SIZE_512B, SIZE_1KIB, SIZE_64KIB, SIZE_3MIB, SIZE_64MIB };

static struct clv_bench_case case_of(double (*run)(void *), void *arg, uint64_t ops)
{
	return (struct clv_bench_case){.unit = CLV_BENCH_NS_PER_OP, .clock = "cpu", .run = run, .arg = arg, .ops = ops};
}

/* Opens the heap, and the C library's malloc if there is one: *count is how many of the two there are. */
static bool open_both(struct clv_bench *b, struct clv_memory memory[2], size_t *count)
{
	*count = 0;
	if (!clv_memory_heap(&memory[0]))
		return clv_bench_fail(b, "the heap cannot be opened");
	*count = 1 + clv_memory_libc(&memory[1]);
	return true;
}

static void close_both(struct clv_memory memory[2], size_t count)
{
	for (size_t i = 0; i < count; i++)
		clv_memory_close(&memory[i]);
}

/* ---- hit ---- */

#define HIT_PAIRS 20000u

struct hit {
	struct clv_memory *memory;
	size_t size;
};

static double run_hit(void *arg)
{
	const struct hit *h = arg;
	double begin = clv_bench_cpu_ns();
	for (unsigned i = 0; i < HIT_PAIRS; i++) {
		uint64_t p = clv_memory_alloc(h->memory, h->size);
		if (!p)
			return -1;
		clv_memory_free(h->memory, p);
	}
	return clv_bench_cpu_ns() - begin;
}

static bool bench_hit(struct clv_bench *b, const struct size *size)
{
	char name[CLV_BENCH_NAME];
	clv_bench_set_name(name, "hit/%s", size->name);
	if (!clv_bench_wants(b, name))
		return true;
	struct clv_memory memory[2];
	struct clv_bench_case cases[2], *run[2];
	struct hit hits[2];
	size_t count;
	bool ok = open_both(b, memory, &count);
	for (size_t i = 0; i < count; i++) {
		hits[i] = (struct hit){&memory[i], size->bytes};
		cases[i] = case_of(run_hit, &hits[i], HIT_PAIRS);
		clv_bench_set_name(cases[i].name, "%s", i ? memory[i].name : name);
		run[i] = &cases[i];
	}
	ok = ok && clv_bench_measure(b, run, count) && clv_bench_report(b, run[0], count > 1 ? run[1] : NULL, NULL);
	close_both(memory, count);
	return ok;
}

/* ---- holes ---- */

#define BATCH 64u
#define BATCHES 200u

static const unsigned hole_counts[] = {4096, 16384, 65536};

struct holes {
	struct clv_memory memory;
	size_t size;
	uint64_t *blocks; /* `2 * count`, every second of which was freed */
	unsigned count;
};

static bool make_holes(struct holes *h)
{
	h->blocks = calloc(2 * (size_t)h->count, sizeof(*h->blocks));
	for (unsigned i = 0; h->blocks && i < 2 * h->count; i++)
		if (!(h->blocks[i] = clv_memory_alloc(&h->memory, h->size)))
			return false;
	for (unsigned i = 0; h->blocks && i < 2 * h->count; i += 2) {
		clv_memory_free(&h->memory, h->blocks[i]);
		h->blocks[i] = 0;
	}
	return h->blocks != NULL;
}

static void end_holes(struct holes *h)
{
	for (unsigned i = 0; h->blocks && i < 2 * h->count; i++)
		if (h->blocks[i])
			clv_memory_free(&h->memory, h->blocks[i]);
	free(h->blocks);
	clv_memory_close(&h->memory);
}

static double run_holes(void *arg)
{
	struct holes *h = arg;
	uint64_t batch[BATCH];
	double begin = clv_bench_cpu_ns();
	for (unsigned k = 0; k < BATCHES; k++) {
		for (unsigned i = 0; i < BATCH; i++)
			if (!(batch[i] = clv_memory_alloc(&h->memory, h->size)))
				return -1;
		for (unsigned i = 0; i < BATCH; i++)
			clv_memory_free(&h->memory, batch[i]);
	}
	return clv_bench_cpu_ns() - begin;
}

/* One size at all numbers of holes, in the same turns, so that they can be compared; and malloc at the smallest. */
static bool bench_holes(struct clv_bench *b, const struct size *size)
{
	enum { KINDS = CLV_ARRAY_LEN(hole_counts), ALL };
	struct holes holes[ALL] = {0};
	struct clv_bench_case cases[ALL], *run[ALL];
	bool wanted[ALL] = {false}, any = false, ok = true;
	size_t count = 0, opened = 0;
	for (int k = 0; k < KINDS; k++) {
		clv_bench_set_name(cases[k].name, "holes/%s/%u", size->name, hole_counts[k]);
		wanted[k] = clv_bench_wants(b, cases[k].name);
		any |= wanted[k];
	}
	if (!any)
		return true;
	wanted[0] = true; /* what the others are compared with */
	wanted[KINDS] = clv_memory_libc(&holes[KINDS].memory);
	for (int k = 0; k < ALL && ok; k++, opened++) {
		char name[CLV_BENCH_NAME];
		clv_bench_set_name(name, "%s", k < KINDS ? cases[k].name : holes[k].memory.name);
		cases[k] = case_of(run_holes, &holes[k], BATCH * BATCHES);
		memcpy(cases[k].name, name, sizeof(name));
		holes[k].size = size->bytes;
		holes[k].count = k < KINDS ? hole_counts[k] : hole_counts[0];
		if (!wanted[k])
			continue;
		ok = (k == KINDS || clv_memory_heap(&holes[k].memory)) && make_holes(&holes[k]);
		run[count++] = &cases[k];
	}
	if (!ok)
		clv_bench_fail(b, "%s: the holes cannot be made", cases[0].name);
	ok = ok && clv_bench_measure(b, run, count);
	for (int k = 0; k < KINDS && ok; k++)
		if (wanted[k])
			ok = clv_bench_report(b, &cases[k], wanted[KINDS] ? &cases[KINDS] : NULL, &cases[0]);
	for (size_t k = 0; k < opened; k++)
		end_holes(&holes[k]);
	return ok;
}

/* ---- coalesce ---- */

#define QUADS 2048u

enum { ALONE, JOINS, CUT, STEPS };
static const char *const step_names[STEPS] = {"alone", "joins", "cut"};

/* Blocks in the order of their addresses. Of each four the last stays live; the first and the third are freed, then the
 * second between them, and three are allocated again. */
struct quads {
	struct clv_memory memory;
	size_t size;
	uint64_t *blocks;
	double ns[STEPS]; /* of the last round */
};

static int by_address(const void *x, const void *y)
{
	uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
	return a < b ? -1 : a > b;
}

static bool make_quads(struct quads *q)
{
	q->blocks = calloc(4 * QUADS, sizeof(*q->blocks));
	for (unsigned i = 0; q->blocks && i < 4 * QUADS; i++)
		if (!(q->blocks[i] = clv_memory_alloc(&q->memory, q->size)))
			return false;
	return q->blocks != NULL;
}

static void end_quads(struct quads *q)
{
	for (unsigned i = 0; q->blocks && i < 4 * QUADS; i++)
		if (q->blocks[i])
			clv_memory_free(&q->memory, q->blocks[i]);
	free(q->blocks);
	clv_memory_close(&q->memory);
}

static bool round_of_quads(struct quads *q)
{
	qsort(q->blocks, 4 * QUADS, sizeof(*q->blocks), by_address);
	double at[STEPS + 1];
	at[0] = clv_bench_cpu_ns();
	for (unsigned i = 0; i < 4 * QUADS; i += 4) {
		clv_memory_free(&q->memory, q->blocks[i]);
		clv_memory_free(&q->memory, q->blocks[i + 2]);
	}
	at[1] = clv_bench_cpu_ns();
	for (unsigned i = 0; i < 4 * QUADS; i += 4)
		clv_memory_free(&q->memory, q->blocks[i + 1]);
	at[2] = clv_bench_cpu_ns();
	bool ok = true;
	for (unsigned i = 0; i < 4 * QUADS; i++)
		if (i % 4 != 3)
			ok &= (q->blocks[i] = clv_memory_alloc(&q->memory, q->size)) != 0;
	at[3] = clv_bench_cpu_ns();
	for (int s = 0; s < STEPS; s++)
		q->ns[s] = at[s + 1] - at[s];
	return ok;
}

/* The three steps of a round are measured together; they are asked for in this order. */
static double run_alone(void *arg)
{
	struct quads *q = arg;
	return round_of_quads(q) ? q->ns[ALONE] : -1;
}

static double run_joins(void *arg)
{
	return ((struct quads *)arg)->ns[JOINS];
}

static double run_cut(void *arg)
{
	return ((struct quads *)arg)->ns[CUT];
}

static bool bench_coalesce(struct clv_bench *b, const struct size *size)
{
	static double (*const runs[STEPS])(void *) = {run_alone, run_joins, run_cut};
	static const uint64_t ops[STEPS] = {2 * QUADS, QUADS, 3 * QUADS};
	bool wanted[STEPS], any = false;
	char names[STEPS][CLV_BENCH_NAME];
	for (int s = 0; s < STEPS; s++) {
		clv_bench_set_name(names[s], "coalesce/%s/%s", size->name, step_names[s]);
		wanted[s] = clv_bench_wants(b, names[s]);
		any |= wanted[s];
	}
	if (!any)
		return true;
	struct clv_memory memory[2];
	struct quads quads[2] = {0};
	struct clv_bench_case cases[2][STEPS], *run[2 * STEPS];
	size_t count, total = 0;
	bool ok = open_both(b, memory, &count);
	for (size_t i = 0; i < count; i++) {
		quads[i].memory = memory[i];
		quads[i].size = size->bytes;
		if (ok && !make_quads(&quads[i]))
			ok = clv_bench_fail(b, "%s: the blocks cannot be made", names[0]);
		for (int s = 0; s < STEPS; s++) {
			cases[i][s] = case_of(runs[s], &quads[i], ops[s]);
			clv_bench_set_name(cases[i][s].name, "%s", i ? memory[i].name : names[s]);
			run[total++] = &cases[i][s];
		}
	}
	ok = ok && clv_bench_measure(b, run, total);
	for (int s = 0; s < STEPS && ok; s++)
		if (wanted[s])
			ok = clv_bench_report(b, &cases[0][s], count > 1 ? &cases[1][s] : NULL, NULL);
	for (size_t i = 0; i < count; i++)
		end_quads(&quads[i]);
	return ok;
}

/* ---- mixed ---- */

#define MIXED_LIVE 2000u
#define MIXED_PAIRS 10000u

struct mixed {
	struct clv_memory *memory;
	struct clv_rng rng;
	uint64_t blocks[MIXED_LIVE];
};

/* Each doubling is as likely as the next. */
static size_t mixed_size(struct clv_rng *rng)
{
	unsigned log2 = (unsigned)clv_rng_range(rng, 9, 22);
	return (size_t)clv_rng_range(rng, (uint64_t)1 << log2, (uint64_t)2 << log2);
}

static double run_mixed(void *arg)
{
	struct mixed *m = arg;
	double begin = clv_bench_cpu_ns();
	for (unsigned i = 0; i < MIXED_PAIRS; i++) {
		uint64_t *block = &m->blocks[clv_rng_below(&m->rng, MIXED_LIVE)];
		if (*block)
			clv_memory_free(m->memory, *block);
		*block = clv_memory_alloc(m->memory, mixed_size(&m->rng));
		if (!*block)
			return -1;
	}
	return clv_bench_cpu_ns() - begin;
}

static bool bench_mixed(struct clv_bench *b)
{
	char name[CLV_BENCH_NAME];
	clv_bench_set_name(name, "mixed/%u", MIXED_LIVE);
	if (!clv_bench_wants(b, name))
		return true;
	struct clv_memory memory[2];
	struct clv_bench_case cases[2], *run[2];
	size_t count;
	struct mixed *mixed = calloc(2, sizeof(*mixed));
	bool ok = mixed ? open_both(b, memory, &count) : clv_bench_fail(b, "out of host memory");
	if (!mixed)
		return false;
	for (size_t i = 0; i < count; i++) {
		mixed[i].memory = &memory[i];
		mixed[i].rng.state = 1; /* both get the same requests */
		cases[i] = case_of(run_mixed, &mixed[i], 2 * MIXED_PAIRS);
		clv_bench_set_name(cases[i].name, "%s", i ? memory[i].name : name);
		run[i] = &cases[i];
		for (unsigned k = 0; k < MIXED_LIVE && ok; k++)
			ok = (mixed[i].blocks[k] = clv_memory_alloc(&memory[i], mixed_size(&mixed[i].rng))) != 0;
	}
	ok = ok && clv_bench_measure(b, run, count) && clv_bench_report(b, run[0], count > 1 ? run[1] : NULL, NULL);
	for (size_t i = 0; i < count; i++)
		for (unsigned k = 0; k < MIXED_LIVE; k++)
			if (mixed[i].blocks[k])
				clv_memory_free(&memory[i], mixed[i].blocks[k]);
	close_both(memory, count);
	free(mixed);
	return ok;
}

bool clv_bench_heap(struct clv_bench *b)
{
	static const int hole_sizes[] = {SIZE_1KIB, SIZE_64KIB, SIZE_3MIB}, coalesce_sizes[] = {SIZE_64KIB, SIZE_3MIB};
	bool ok = true;
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes) && ok; i++)
		ok = bench_hit(b, &sizes[i]);
	for (size_t i = 0; i < CLV_ARRAY_LEN(hole_sizes) && ok; i++)
		ok = bench_holes(b, &sizes[hole_sizes[i]]);
	for (size_t i = 0; i < CLV_ARRAY_LEN(coalesce_sizes) && ok; i++)
		ok = bench_coalesce(b, &sizes[coalesce_sizes[i]]);
	return ok && bench_mixed(b);
}
