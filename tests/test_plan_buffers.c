/* SPDX-License-Identifier: MIT
 *
 * The explicit API of plans over a simulated device with real memory: buffers are made layer by layer, filled expert by
 * expert, checked byte by byte, and given back.
 */
#include <cleave/plan.h>

#include "../src/base/base.h"
#include "../src/driver/sim.h"
#include "check_main.h"
#include "plan_sample.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static cleave_driver *driver;
static cleave_heap *heap;
static cleave_plan *plan;
static const cleave_stream stream = {7, 7};
static const char *const names[SAMPLE_BUFFERS] = {"w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale",
						  "input_scale"};

static cleave_plan *load(void)
{
	char path[] = "/tmp/cleave-plan-XXXXXX", why[512] = "";
	cleave_plan *out;
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq((int)write(fd, sample_plan, sizeof(sample_plan) - 1), (int)sizeof(sample_plan) - 1);
	close(fd);
	ck_assert_msg(cleave_plan_load(&out, path, why, sizeof(why)) == 0, "%s", why);
	unlink(path);
	return out;
}

static void open_all(const char *device, const char *settings)
{
	char why[256] = "";
	ck_assert_int_eq(cleave_driver_open(&driver, device), 0);
	ck_assert_msg(cleave_heap_open(&heap, driver, settings, why, sizeof(why)) == 0, "%s", why);
	plan = load();
}

static void close_all(void)
{
	char why[256] = "";
	cleave_plan_close(plan);
	ck_assert_msg(cleave_heap_check(heap, why, sizeof(why)) == 0, "%s", why);
	cleave_heap_stats stats;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &stats), 0);
	ck_assert_uint_eq(stats.live_blocks, 0);
	cleave_heap_close(heap);
	ck_assert_ptr_null(clv_sim_leaks(driver));
	cleave_driver_close(driver);
}

static uint64_t live(void)
{
	cleave_heap_stats stats;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &stats), 0);
	return stats.live_blocks;
}

static uint64_t word_of(unsigned layer, unsigned buffer, unsigned expert, uint64_t i)
{
	return clv_mix64(((uint64_t)layer << 60 | (uint64_t)buffer << 56 | (uint64_t)expert << 40) + i);
}

static void fill(unsigned layer, unsigned buffer, unsigned expert)
{
	cleave_ptr at;
	uint64_t bytes;
	ck_assert_int_eq(cleave_plan_fill_expert(plan, layer, names[buffer], expert, &at, &bytes), 0);
	uint8_t *p = cleave_driver_host_address(driver, at, bytes);
	ck_assert_ptr_nonnull(p);
	for (uint64_t i = 0; i < bytes; i += 4) {
		uint32_t word = (uint32_t)word_of(layer, buffer, expert, i);
		memcpy(p + i, &word, 4);
	}
}

static void check(unsigned layer, unsigned buffer)
{
	cleave_plan_buffer b;
	ck_assert_int_eq(cleave_plan_get_buffer(plan, layer, names[buffer], &b), 0);
	const uint8_t *p = cleave_driver_host_address(driver, b.address, b.bytes);
	ck_assert_ptr_nonnull(p);
	for (unsigned e = 0; e < b.experts; e++)
		for (uint64_t i = 0; i < b.expert_bytes; i += 4) {
			uint32_t word;
			memcpy(&word, p + e * b.expert_bytes + i, 4);
			if (word != (uint32_t)word_of(layer, buffer, e, i))
				ck_abort_msg("layer %u, %s, expert %u, byte %u", layer, names[buffer], e, (unsigned)i);
		}
}

static void fill_layer(unsigned layer)
{
	for (unsigned e = 0; e < SAMPLE_EXPERTS; e++)
		for (unsigned b = 0; b < SAMPLE_BUFFERS; b++)
			if (b != 4 || !e)
				fill(layer, b, e);
}

START_TEST(what_the_plan_says)
{
	plan = load();
	cleave_plan_info info;
	ck_assert_int_eq(cleave_plan_get_info(plan, &info), 0);
	ck_assert_str_eq(info.backend, "nvfp4-cutlass");
	ck_assert_uint_eq(info.layers, SAMPLE_LAYERS);
	ck_assert_uint_eq(info.moe_layers, 6);
	ck_assert_uint_eq(info.experts, SAMPLE_EXPERTS);
	ck_assert_uint_eq(info.buffers, SAMPLE_BUFFERS);
	ck_assert_uint_eq(info.layer_bytes, SAMPLE_LAYER_BYTES);
	uint64_t sum = 0;
	for (uint32_t i = 0; i < info.buffers; i++) {
		cleave_plan_buffer b;
		ck_assert_int_eq(cleave_plan_describe(plan, i, &b), 0);
		ck_assert_str_eq(b.name, names[i]);
		ck_assert_uint_eq(b.address, 0);
		ck_assert_uint_eq(b.zeroed, i == 1);
		sum += b.bytes;
	}
	ck_assert_uint_eq(sum, SAMPLE_LAYER_BYTES);
	cleave_plan_buffer b;
	ck_assert_int_eq(cleave_plan_describe(plan, info.buffers, &b), -ENOENT);
	cleave_plan_close(plan);
	cleave_plan_close(NULL);
}
END_TEST

START_TEST(a_wrong_file)
{
	char why[512] = "";
	plan = (cleave_plan *)&why;
	ck_assert_int_eq(cleave_plan_load(&plan, "/nonexistent/plan.json", why, sizeof(why)), -EINVAL);
	ck_assert_ptr_null(plan);
	ck_assert_str_eq(why, "/nonexistent/plan.json: cannot be opened: No such file or directory");
	ck_assert_int_eq(cleave_plan_load(&plan, "/nonexistent/plan.json", NULL, 0), -EINVAL);
	ck_assert_int_eq(cleave_plan_load(&plan, NULL, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(cleave_plan_load(NULL, "x", why, sizeof(why)), -EINVAL);
	plan = (cleave_plan *)&why;
	ck_assert_int_eq(cleave_plan_load_rank(&plan, "x", UINT32_MAX, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_null(plan);
	ck_assert_int_eq(cleave_plan_load_rank(&plan, "/nonexistent/plan.json", 3, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_null(plan);
}
END_TEST

START_TEST(filled_expert_by_expert)
{
	open_all("sim-backed:64MiB", NULL);
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, 0), 0);
	ck_assert_uint_eq(live(), 0);
	for (unsigned l = 0; l < SAMPLE_LAYERS; l++) {
		fill_layer(l);
		ck_assert_int_eq(cleave_plan_layer_done(plan, l, NULL, 0), 0);
		ck_assert_uint_eq(live(), (l + 1) * SAMPLE_BUFFERS);
	}
	for (unsigned l = 0; l < SAMPLE_LAYERS; l++)
		for (unsigned b = 0; b < SAMPLE_BUFFERS; b++)
			check(l, b);
	/* what is one buffer's is no other's */
	for (unsigned l = 0; l < SAMPLE_LAYERS; l++)
		for (unsigned b = 0; b < SAMPLE_BUFFERS; b++) {
			cleave_plan_buffer x;
			cleave_ptr start;
			size_t size;
			ck_assert_int_eq(cleave_plan_get_buffer(plan, l, names[b], &x), 0);
			ck_assert_uint_eq(x.address % 512, 0);
			ck_assert_int_eq(cleave_block_info(heap, x.address, &start, &size, NULL), 0);
			ck_assert_uint_eq(start, x.address);
			ck_assert_uint_eq(size, x.bytes);
		}
	close_all();
}
END_TEST

START_TEST(books_of_what_is_filled)
{
	char why[512];
	uint32_t experts[SAMPLE_EXPERTS];
	cleave_ptr first, again;
	uint64_t bytes;
	open_all("sim:64MiB", NULL);
	ck_assert_int_eq(cleave_plan_missing(plan, 0, "w2_weight", NULL, 0), SAMPLE_EXPERTS); /* bound or not */
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, 0), 0);
	ck_assert_int_eq(cleave_plan_layer_done(plan, 1, why, sizeof(why)), -ENODATA);
	ck_assert_str_eq(
		why,
		"layer 1 is not filled: w13_weight lacks 4 of 4 (0, 1, 2, ...); w13_weight_scale lacks 4 of 4 "
		"(0, 1, 2, ...); w2_weight lacks 4 of 4 (0, 1, 2, ...); w2_weight_scale lacks 4 of 4 (0, 1, 2, ...); "
		"input_scale lacks 1 of 1");
	ck_assert_uint_eq(live(), 0); /* to ask takes no memory */
	for (uint32_t e = 0; e < SAMPLE_EXPERTS; e++)
		for (unsigned b = 0; b < 4; b++)
			if (b != 2 || e % 2)
				ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, names[b], e, &first, NULL), 0);
	ck_assert_int_eq(cleave_plan_layer_done(plan, 1, why, sizeof(why)), -ENODATA);
	ck_assert_str_eq(why, "layer 1 is not filled: w2_weight lacks 2 of 4 (0, 2); input_scale lacks 1 of 1");
	ck_assert_int_eq(cleave_plan_layer_done(plan, 1, why, 20), -ENODATA);
	ck_assert_str_eq(why, "layer 1 is not fill");
	ck_assert_int_eq(cleave_plan_missing(plan, 1, "w2_weight", experts, SAMPLE_EXPERTS), 2);
	ck_assert(experts[0] == 0 && experts[1] == 2);
	ck_assert_int_eq(cleave_plan_missing(plan, 1, "w2_weight", experts + 3, 1), 2);
	ck_assert_uint_eq(experts[3], 0);
	ck_assert_int_eq(cleave_plan_missing(plan, 0, "w2_weight", NULL, 0), SAMPLE_EXPERTS); /* of another layer */

	/* twice is told, and is where it was */
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, "w2_weight", 2, &first, &bytes), 0);
	ck_assert_uint_eq(bytes, SAMPLE_W2 / SAMPLE_EXPERTS);
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, "w2_weight", 2, &again, &bytes), -EEXIST);
	ck_assert_uint_eq(again, first);
	ck_assert_int_eq(cleave_plan_missing(plan, 1, "w2_weight", NULL, 0), 1);
	ck_assert_int_eq(cleave_plan_unfill_expert(plan, 1, "w2_weight", 2), 0);
	ck_assert_int_eq(cleave_plan_unfill_expert(plan, 1, "w2_weight", 2), -ENOENT);
	ck_assert_int_eq(cleave_plan_missing(plan, 1, "w2_weight", NULL, 0), 2);
	ck_assert_int_eq(cleave_plan_unfill_expert(plan, 0, "w2_weight", 2), -ENOENT); /* of a layer without memory */
	for (uint32_t e = 0; e < SAMPLE_EXPERTS; e += 2)
		ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, "w2_weight", e, &first, NULL), 0);
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, "input_scale", 0, &first, &bytes), 0);
	ck_assert_uint_eq(bytes, SAMPLE_SCALAR);
	ck_assert_int_eq(cleave_plan_layer_done(plan, 1, why, sizeof(why)), 0);

	/* a layer that is given back is empty again */
	ck_assert_int_eq(cleave_plan_release_layer(plan, 1, stream), 0);
	ck_assert_uint_eq(live(), 0);
	ck_assert_int_eq(cleave_plan_release_layer(plan, 1, stream), -EINVAL);
	ck_assert_int_eq(cleave_plan_missing(plan, 1, "w2_weight", NULL, 0), SAMPLE_EXPERTS);
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, "w2_weight", 2, &again, NULL), 0);
	close_all();
}
END_TEST

START_TEST(calls_that_make_no_sense)
{
	cleave_plan_buffer b;
	cleave_ptr p;
	open_all("sim:64MiB", NULL);
	ck_assert_int_eq(cleave_plan_take_layer(plan, 0), -ENXIO); /* not bound */
	ck_assert_int_eq(cleave_plan_get_buffer(plan, 0, "w2_weight", &b), -ENXIO);
	ck_assert_int_eq(cleave_plan_bind(plan, NULL, 0, stream, 0), -EINVAL);
	ck_assert_int_eq(cleave_plan_bind(plan, heap, -1, stream, 0), -EINVAL);
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, SAMPLE_LAYERS + 1), -EINVAL);
	ck_assert_int_lt(cleave_plan_bind(plan, heap, 1, stream, 1), 0); /* there is no such device */
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, CLEAVE_PLAN_ALL), 0);
	ck_assert_uint_eq(live(), SAMPLE_LAYERS * SAMPLE_BUFFERS);
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, 0), -EALREADY);
	ck_assert_int_eq(cleave_plan_take_layer(plan, SAMPLE_LAYERS), -EINVAL);
	ck_assert_int_eq(cleave_plan_get_buffer(plan, SAMPLE_LAYERS, "w2_weight", &b), -EINVAL);
	ck_assert_int_eq(cleave_plan_get_buffer(plan, 0, "w2", &b), -ENOENT);
	ck_assert_int_eq(cleave_plan_get_buffer(plan, 0, NULL, &b), -EINVAL);
	p = 1;
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 0, "w2_weight", SAMPLE_EXPERTS, &p, NULL), -EINVAL);
	ck_assert_uint_eq(p, 0);
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 0, "input_scale", 1, &p, NULL), -EINVAL);
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 0, "w2", 0, &p, NULL), -ENOENT);
	ck_assert_int_eq(cleave_plan_unfill_expert(plan, 0, "w2_weight", SAMPLE_EXPERTS), -EINVAL);
	ck_assert_int_eq(cleave_plan_missing(plan, 0, "w2", NULL, 0), -ENOENT);
	ck_assert_int_eq(cleave_plan_missing(plan, SAMPLE_LAYERS, "w2_weight", NULL, 0), -EINVAL);
	ck_assert_int_eq(cleave_plan_missing(plan, 0, "w2_weight", NULL, 1), -EINVAL);
	ck_assert_int_eq(cleave_plan_layer_done(plan, SAMPLE_LAYERS, NULL, 0), -EINVAL);
	ck_assert_int_eq(cleave_plan_take_layer(NULL, 0), -EINVAL);
	ck_assert_uint_eq(live(), SAMPLE_LAYERS * SAMPLE_BUFFERS);
	close_all();
}
END_TEST

/* All buffers of a layer or none, and a reason; and what could not be had can be had later. */
START_TEST(out_of_memory)
{
	open_all("sim:4MiB", NULL);
	cleave_ptr other;
	ck_assert_int_eq(cleave_alloc(heap, 0, stream, 3 * CLV_MIB, &other), 0);
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, 2), -ENOMEM);
	ck_assert_uint_eq(live(), 1);
	cleave_failure failure;
	ck_assert_int_eq(cleave_heap_last_failure(heap, 0, &failure), 0);
	ck_assert_uint_eq(failure.request_bytes, SAMPLE_W13);
	/* it is not bound: then, with less ahead, it can be */
	ck_assert_int_eq(cleave_plan_take_layer(plan, 0), -ENXIO);
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, 1), 0);
	ck_assert_uint_eq(live(), 1 + SAMPLE_BUFFERS);
	cleave_ptr p;
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, "w13_weight", 0, &p, NULL), -ENOMEM);
	ck_assert_uint_eq(p, 0);
	ck_assert_int_eq(cleave_plan_missing(plan, 1, "w13_weight", NULL, 0), SAMPLE_EXPERTS);
	ck_assert_uint_eq(live(), 1 + SAMPLE_BUFFERS);
	ck_assert_int_eq(cleave_free(heap, other, stream), 0);
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, "w13_weight", 0, &p, NULL), 0);
	close_all();
}
END_TEST

/* A conversion as K3's: the sources of every layer are there first, as large as the destinations, on a device that has
 * room for one layer more; with that layer taken ahead, nothing fails. */
START_TEST(room_for_one_layer_more)
{
	enum { W13 = 384 * 1024, S13 = 48 * 1024 };
	open_all("sim-backed:6MiB", NULL);
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, 1), 0);
	cleave_ptr sources[SAMPLE_LAYERS][SAMPLE_BUFFERS], fillers[64];
	for (unsigned l = 0; l < SAMPLE_LAYERS; l++)
		for (unsigned b = 0; b < SAMPLE_BUFFERS; b++) {
			cleave_plan_buffer like;
			ck_assert_int_eq(cleave_plan_describe(plan, b, &like), 0);
			ck_assert_int_eq(cleave_alloc(heap, 0, stream, like.bytes, &sources[l][b]), 0);
		}
	unsigned filler = 0; /* everything that is left: only what the sources give is there for layers 1 and 2 */
	for (size_t size = CLV_MIB; size > 32 * CLV_KIB; size /= 2)
		while (filler < CLV_ARRAY_LEN(fillers) && cleave_alloc(heap, 0, stream, size, &fillers[filler]) == 0)
			filler++;
	ck_assert_uint_lt(filler, CLV_ARRAY_LEN(fillers));
	cleave_ptr p;
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 1, "w13_weight", 0, &p, NULL),
			 -ENOMEM); /* not before its turn */
	for (unsigned l = 0; l < SAMPLE_LAYERS; l++) {
		fill_layer(l);
		ck_assert_int_eq(cleave_plan_layer_done(plan, l, NULL, 0), 0);
		for (unsigned b = 0; b < SAMPLE_BUFFERS; b++)
			ck_assert_int_eq(cleave_free(heap, sources[l][b], stream), 0);
	}
	for (unsigned l = 0; l < SAMPLE_LAYERS; l++)
		for (unsigned b = 0; b < SAMPLE_BUFFERS; b++)
			check(l, b);
	while (filler)
		ck_assert_int_eq(cleave_free(heap, fillers[--filler], stream), 0);
	close_all();
}
END_TEST

/* ---- memory from elsewhere ---- */

struct counted {
	int allocs, frees, fail_alloc, fail_free; /* which one fails, from 1 */
	cleave_stream freed_on;
};

static int counted_alloc(void *arg, int device, cleave_stream s, size_t size, cleave_ptr *out)
{
	struct counted *c = arg;
	ck_assert_int_eq(device, 3);
	ck_assert_uint_eq(s.id, stream.id);
	if (++c->allocs == c->fail_alloc)
		return -EIO;
	*out = (cleave_ptr)c->allocs << 20;
	return size ? 0 : -EINVAL;
}

static int counted_free(void *arg, cleave_ptr ptr, cleave_stream s)
{
	struct counted *c = arg;
	c->freed_on = s;
	ck_assert_uint_ne(ptr, 0);
	return ++c->frees == c->fail_free ? -EIO : 0;
}

START_TEST(memory_from_elsewhere)
{
	struct counted c = {0};
	const cleave_plan_memory memory = {counted_alloc, counted_free, &c}, half = {counted_alloc, NULL, &c};
	plan = load();
	ck_assert_int_eq(cleave_plan_bind_memory(plan, &half, 3, stream, 0), -EINVAL);
	ck_assert_int_eq(cleave_plan_bind_memory(plan, NULL, 3, stream, 0), -EINVAL);
	c.fail_alloc = SAMPLE_BUFFERS + 2;
	ck_assert_int_eq(cleave_plan_bind_memory(plan, &memory, 3, stream, 2), -EIO);
	ck_assert_int_eq(c.frees, SAMPLE_BUFFERS + 1);
	c = (struct counted){0};
	ck_assert_int_eq(cleave_plan_bind_memory(plan, &memory, 3, stream, 1), 0);
	ck_assert_int_eq(c.allocs, SAMPLE_BUFFERS);
	ck_assert_int_eq(cleave_plan_take_layer(plan, 0), 0);
	ck_assert_int_eq(c.allocs, SAMPLE_BUFFERS);
	cleave_ptr p;
	ck_assert_int_eq(cleave_plan_fill_expert(plan, 0, "w13_weight", 1, &p, NULL), 0);
	ck_assert_uint_eq(p, (1 << 20) + SAMPLE_W13 / SAMPLE_EXPERTS);
	/* one that cannot be freed stays, the others do not; what was filled is forgotten all the same */
	c.fail_free = 2;
	ck_assert_int_eq(cleave_plan_release_layer(plan, 0, (cleave_stream){9, 9}), -EIO);
	ck_assert_uint_eq(c.freed_on.id, 9);
	ck_assert_int_eq(c.frees, SAMPLE_BUFFERS);
	ck_assert_int_eq(cleave_plan_missing(plan, 0, "w13_weight", NULL, 0), SAMPLE_EXPERTS);
	ck_assert_int_eq(cleave_plan_release_layer(plan, 0, stream), 0);
	ck_assert_int_eq(c.frees, SAMPLE_BUFFERS + 1);
	cleave_plan_close(plan);
	ck_assert_int_eq(c.frees, SAMPLE_BUFFERS + 1);
}
END_TEST

/* ---- threads ---- */

#define LOADERS 4

static void *load_some(void *arg)
{
	unsigned *mine = arg;
	for (unsigned l = 0; l < SAMPLE_LAYERS; l++)
		for (unsigned e = 0; e < SAMPLE_EXPERTS; e++)
			for (unsigned b = 0; b < SAMPLE_BUFFERS - 1; b++) {
				cleave_ptr p;
				int why = cleave_plan_fill_expert(plan, l, names[b], e, &p, NULL);
				ck_assert(p && (why == 0 || why == -EEXIST));
				*mine += why == 0;
			}
	return NULL;
}

/* Each expert is one thread's, however many want it; a layer's memory is taken once. */
START_TEST(loaders_side_by_side)
{
	pthread_t threads[LOADERS];
	unsigned filled[LOADERS] = {0}, sum = 0;
	open_all("sim:64MiB", NULL);
	ck_assert_int_eq(cleave_plan_bind(plan, heap, 0, stream, 0), 0);
	for (int i = 0; i < LOADERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, load_some, &filled[i]), 0);
	for (int i = 0; i < LOADERS; i++) {
		pthread_join(threads[i], NULL);
		sum += filled[i];
	}
	ck_assert_uint_eq(sum, SAMPLE_LAYERS * SAMPLE_EXPERTS * (SAMPLE_BUFFERS - 1));
	ck_assert_uint_eq(live(), SAMPLE_LAYERS * SAMPLE_BUFFERS);
	close_all();
}
END_TEST

CHECK_MAIN("plan_buffers", what_the_plan_says, a_wrong_file, filled_expert_by_expert, books_of_what_is_filled,
	   calls_that_make_no_sense, out_of_memory, room_for_one_layer_more, memory_from_elsewhere,
	   loaders_side_by_side)
