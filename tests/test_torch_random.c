/* SPDX-License-Identifier: MIT
 *
 * Random work for the model of PyTorch's allocator: its invariants after each step, undo, and a host without memory.
 */
#include "../tracing/memory.h"
#include "check_main.h"
#include "torch_fixture.h"

static uint64_t random_size(struct clv_rng *rng)
{
	switch (clv_rng_below(rng, 8)) {
	case 0:
	case 1:
		return clv_rng_range(rng, 1, 4096);
	case 2:
		return clv_rng_range(rng, 1, MIB(1));
	case 3:
	case 4:
		return clv_rng_range(rng, MIB(1), MIB(10));
	case 5:
		return MIB(clv_rng_range(rng, 1, 40));
	case 6:
		return MIB(20) - clv_rng_below(rng, 1025);
	default:
		return clv_rng_range(rng, MIB(10), MIB(64));
	}
}

static void random_work(struct fixture *f, struct clv_rng *rng, uint32_t *live, uint32_t *count, uint32_t steps,
			bool checked)
{
	static const uint64_t streams[] = {S0, S1, 0x500};
	for (uint32_t i = 0; i < steps; i++) {
		uint64_t dice = clv_rng_below(rng, 100);
		if (dice < 50 && *count < 600) {
			struct clv_torch_request r = {.size = random_size(rng),
						      .stream = streams[clv_rng_below(rng, 3)]};
			uint32_t block;
			ck_assert_int_ne(clv_torch_malloc(f->m, &r, &block), CLV_TORCH_NO_HOST_MEMORY);
			if (block)
				live[(*count)++] = block;
		} else if (dice < 90 && *count) {
			uint32_t k = (uint32_t)clv_rng_below(rng, *count);
			if (clv_rng_below(rng, 4) == 0)
				clv_torch_record_stream(f->m, live[k], streams[clv_rng_below(rng, 3)]);
			clv_torch_free(f->m, live[k]);
			live[k] = live[--*count];
		} else if (dice < 99) {
			if (clv_torch_pending(f->m))
				clv_torch_free_completed(f->m, clv_torch_first_pending(f->m));
		} else {
			clv_torch_empty_cache(f->m);
		}
		f->log[0] = 0;
		if (checked)
			check(f);
	}
}

START_TEST(keeps_its_invariants)
{
	static const char *const confs[] = {"",
					    "max_split_size_mb:20",
					    "max_split_size_mb:40,max_non_split_rounding_mb:64",
					    "expandable_segments:True",
					    "expandable_segments:True,max_split_size_mb:32",
					    "garbage_collection_threshold:0.4",
					    "roundup_power2_divisions:[1:4,8:2,>:8]",
					    "large_segment_size_mb:12,expandable_segments:True",
					    "expandable_segments:True,garbage_collection_threshold:0.3",
					    "tie_break:counter",
					    "tie_break:segment"};
	for (size_t c = 0; c < CLV_ARRAY_LEN(confs); c++)
		for (uint64_t seed = 0; seed < 3; seed++) {
			struct fixture f;
			struct clv_rng rng = {100 * c + seed};
			uint32_t live[600], count = 0;
			/* a capacity, a limit, or neither */
			open_with(&f, confs[c], seed == 1 ? 500 : 0, seed == 2 ? 400 : 0);
			random_work(&f, &rng, live, &count, 1500, true);
			while (count)
				clv_torch_free(f.m, live[--count]);
			clv_torch_empty_cache(f.m);
			/* what is left are the slivers of pages and nothing else */
			ck_assert_uint_eq(clv_torch_reserved(f.m), 0);
			ck_assert_uint_eq(f.device.used, 0);
			ck_assert_int_eq(stats_of(&f).of[CLV_TORCH_ALL][CLV_TORCH_ACTIVE].current, 0);
			close_it(&f);
		}
}
END_TEST

/* Any allocation of host memory may fail: the model says so and can be closed. */
START_TEST(survives_without_host_memory)
{
	for (uint64_t n = 1; n < 60; n++) {
		struct fixture f = {0};
		struct clv_rng rng = {n};
		clv_torch_device_init(&f.device, MIB(500));
		struct clv_torch_config config = {
			.limit = CLV_TORCH_UNLIMITED, .find = true, .source = clv_torch_device_source(&f.device)};
		clv_torch_settings_default(&config.settings);
		config.settings.expandable = n % 2;
		clv_mem_fail_after(n);
		f.m = clv_torch_open(&config);
		bool broken = !f.m;
		for (int i = 0; f.m && i < 4000 && !broken; i++) {
			struct clv_torch_request r = {.size = clv_rng_range(&rng, 1, 9000), .stream = S0};
			uint32_t block;
			if (i % 1000 == 999)
				clv_torch_empty_cache(f.m);
			broken = clv_torch_malloc(f.m, &r, &block) == CLV_TORCH_NO_HOST_MEMORY || clv_torch_broken(f.m);
		}
		clv_mem_fail_after(0);
		ck_assert(broken || n > 3);
		clv_torch_close(f.m);
	}
}
END_TEST

/* ---- undo ---- */

static char *dump(const struct fixture *f)
{
	size_t room = 1 << 20, used = 0;
	char *text = malloc(room);
	struct clv_torch_stats s = stats_of(f);
	for (uint32_t i = clv_torch_find_next(f->m, 0); i; i = clv_torch_find_next(f->m, i)) {
		struct clv_torch_block_info b;
		clv_torch_block_get(f->m, i, &b);
		used += (size_t)snprintf(text + used, room - used, "%" PRIx64 " %" PRIu64 " %" PRIu64 " %u %d%d%d%d\n",
					 b.addr, b.size, b.requested, b.pool, b.allocated, b.pending, b.mapped,
					 b.expandable);
	}
	for (size_t k = 0; k < sizeof(s); k++)
		used += (size_t)snprintf(text + used, room - used, "%02x", ((const unsigned char *)&s)[k]);
	ck_assert_uint_lt(used, room - 1);
	return text;
}

START_TEST(undoes_everything)
{
	static const char *const confs[] = {"", "max_split_size_mb:20", "expandable_segments:True",
					    "garbage_collection_threshold:0.5", "tie_break:counter"};
	for (size_t c = 0; c < CLV_ARRAY_LEN(confs); c++) {
		struct fixture f;
		struct clv_rng rng = {c + 1};
		uint32_t live[600], count = 0;
		open_with(&f, confs[c], 700, 600);
		for (int round = 0; round < 40; round++) {
			random_work(&f, &rng, live, &count, 100, false);
			char *before = dump(&f);
			uint32_t then[600], n = count;
			struct clv_torch_device device = f.device;
			memcpy(then, live, sizeof(then));
			clv_torch_begin(f.m);
			random_work(&f, &rng, then, &n, 1 + (uint32_t)clv_rng_below(&rng, 60), false);
			if (round % 3 == 0)
				clv_torch_empty_cache(f.m);
			if (round % 2) {
				clv_torch_commit(f.m);
				memcpy(live, then, sizeof(live));
				count = n;
			} else {
				clv_torch_rollback(f.m);
				f.device = device;
				check(&f);
				char *after = dump(&f);
				ck_assert_str_eq(before, after);
				free(after);
			}
			free(before);
		}
		close_it(&f);
	}
}
END_TEST

CHECK_MAIN("torch_random", keeps_its_invariants, undoes_everything, survives_without_host_memory)
