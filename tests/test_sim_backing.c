/* SPDX-License-Identifier: MIT
 *
 * Real memory behind the simulated device: aliases share bytes, contents outlive mappings, and what is not mapped
 * cannot be touched.
 */
#include "../src/driver/sim.h"
#include "check_main.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define G (2 * CLV_MIB)

static struct clv_driver *d;
static uint64_t a;

static void setup_sim(void)
{
	d = clv_sim_open(&(struct clv_sim_config){.capacity = 32 * G, .backing = true, .devices = 2});
	ck_assert_ptr_nonnull(d);
	ck_assert_int_eq(d->address_reserve(d, &a, 64 * G, 0), CLV_OK);
}

static clv_handle create(uint64_t size)
{
	clv_handle h;
	ck_assert_int_eq(d->create(d, &h, size, 0), CLV_OK);
	return h;
}

static void map(uint64_t addr, uint64_t size, clv_handle h)
{
	ck_assert_int_eq(d->map(d, addr, size, 0, h), CLV_OK);
	ck_assert_int_eq(d->set_access(d, addr, size, 0), CLV_OK);
}

static uint8_t *bytes(uint64_t addr, uint64_t size)
{
	return clv_sim_bytes(d, addr, size, NULL);
}

START_TEST(aliases_share_bytes)
{
	setup_sim();
	clv_handle h = create(2 * G);
	map(a, 2 * G, h);
	map(a + 8 * G, 2 * G, h);
	uint64_t *x = (uint64_t *)bytes(a, 2 * G), *y = (uint64_t *)bytes(a + 8 * G, 2 * G);
	ck_assert_ptr_nonnull(x);
	ck_assert_ptr_nonnull(y);
	ck_assert_ptr_ne(x, y);
	for (uint64_t i = 0; i < 2 * G / 8; i++)
		x[i] = clv_mix64(i);
	ck_assert_int_eq(memcmp(x, y, 2 * G), 0);
	y[12345] = 7;
	ck_assert_uint_eq(x[12345], 7);
	/* the old mapping goes, the contents stay; a third comes and shows them */
	ck_assert_int_eq(d->unmap(d, a, 2 * G), CLV_OK);
	ck_assert_ptr_null(bytes(a, 1));
	map(a + 4 * G, 2 * G, h);
	uint64_t *z = (uint64_t *)bytes(a + 4 * G, 2 * G);
	for (uint64_t i = 0; i < 2 * G / 8; i++)
		ck_assert_uint_eq(z[i], i == 12345 ? 7 : clv_mix64(i));
	d->close(d);
}
END_TEST

START_TEST(contents_outlive_mappings_and_handle)
{
	setup_sim();
	clv_handle h = create(G);
	map(a, G, h);
	memset(bytes(a, G), 0x3c, G);
	ck_assert_int_eq(d->unmap(d, a, G), CLV_OK);
	map(a + G, G, h);
	ck_assert_int_eq(d->release(d, h), CLV_OK); /* the mapping keeps it */
	for (uint64_t i = 0; i < G; i += 4096)
		ck_assert_uint_eq(*bytes(a + G + i, 1), 0x3c);
	ck_assert_int_eq(d->unmap(d, a + G, G), CLV_OK);
	ck_assert_ptr_null(bytes(a + G, 1));
	d->close(d);
}
END_TEST

START_TEST(fresh_memory_is_garbage)
{
	setup_sim();
	for (int round = 0; round < 40; round++) { /* more than the capacity in all: memory goes back and comes anew */
		clv_handle h = create(4 * G);
		map(a, 4 * G, h);
		uint8_t *p = bytes(a, 4 * G);
		uint64_t zeros = 0, ours = 0;
		for (uint64_t i = 0; i < 4 * G; i += 61) {
			zeros += p[i] == 0;
			ours += p[i] == 0x11;
		}
		ck_assert_uint_eq(zeros, 0);
		ck_assert_uint_eq(ours, 0);
		memset(p, 0x11, 4 * G);
		ck_assert_int_eq(d->unmap(d, a, 4 * G), CLV_OK);
		ck_assert_int_eq(d->release(d, h), CLV_OK);
	}
	uint64_t q;
	ck_assert_int_eq(d->mem_alloc(d, &q, 3 * CLV_MIB, 0), CLV_OK);
	ck_assert_uint_ne(*bytes(q, 3 * CLV_MIB), 0);
	d->close(d);
}
END_TEST

START_TEST(access_by_address)
{
	setup_sim();
	clv_handle h = create(2 * G), k = create(G);
	uint64_t n = 77;
	ck_assert_ptr_null(clv_sim_bytes(d, a, G, &n));
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(d->map(d, a, 2 * G, 0, h), CLV_OK);
	ck_assert_ptr_null(clv_sim_bytes(d, a, G, &n)); /* mapped, not yet accessible */
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(d->set_access(d, a, 2 * G, 1), CLV_OK); /* another device may be the one that has access */
	ck_assert_ptr_nonnull(clv_sim_bytes(d, a, G, &n));
	ck_assert_uint_eq(n, G);
	map(a + 2 * G, G, k);
	/* across frames, from the middle */
	uint8_t *p = clv_sim_bytes(d, a + G + 512, 2 * G - 512, &n);
	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(n, 2 * G - 512);
	memset(p, 0x42, 2 * G - 512);
	ck_assert_uint_eq(*bytes(a + 2 * G, 1), 0x42);
	ck_assert_uint_eq(*bytes(a + 3 * G - 1, 1), 0x42);
	ck_assert_uint_ne(*bytes(a + G + 511, 1), 0x42);
	/* over the end of what is mapped, of the reservation, of everything */
	ck_assert_ptr_null(clv_sim_bytes(d, a + 2 * G, G + 1, &n));
	ck_assert_uint_eq(n, G);
	ck_assert_ptr_null(clv_sim_bytes(d, a + 2 * G, UINT64_MAX, &n));
	ck_assert_uint_eq(n, G);
	ck_assert_ptr_null(clv_sim_bytes(d, a + 63 * G, 4 * G, &n));
	ck_assert_ptr_null(clv_sim_bytes(d, 0, 1, &n));
	ck_assert_ptr_null(clv_sim_bytes(d, UINT64_MAX, 2, NULL));
	ck_assert_ptr_null(clv_sim_bytes(d, a, 0, NULL));

	uint64_t q, r;
	ck_assert_int_eq(d->mem_alloc(d, &q, 1024, 0), CLV_OK);
	ck_assert_int_eq(d->mem_alloc(d, &r, 5 * CLV_MIB, 0), CLV_OK);
	memset(bytes(q, 1024), 1, 1024);
	memset(bytes(r, 5 * CLV_MIB), 2, 5 * CLV_MIB);
	ck_assert_ptr_null(clv_sim_bytes(d, q + 1000, 25, &n)); /* others' bytes in the same page are not ours */
	ck_assert_uint_eq(n, 24);
	ck_assert_uint_eq(*bytes(q + 1023, 1), 1);
	ck_assert_int_eq(d->mem_free(d, q), CLV_OK);
	ck_assert_ptr_null(bytes(q, 1));
	ck_assert_int_eq(d->mem_free(d, r), CLV_OK);
	ck_assert_ptr_null(bytes(r, 1));
	d->close(d);

	d = clv_sim_open(NULL); /* without backing there are no bytes */
	ck_assert_int_eq(d->mem_alloc(d, &q, 1024, 0), CLV_OK);
	ck_assert_ptr_null(clv_sim_bytes(d, q, 1, &n));
	ck_assert_uint_eq(n, 0);
	d->close(d);
}
END_TEST

/* A pointer that is kept while the frame goes faults, as a kernel's would. */
static void touch_after(enum clv_result (*what)(clv_handle h), bool access)
{
	setup_sim();
	clv_handle h = create(G);
	ck_assert_int_eq(d->map(d, a, G, 0, h), CLV_OK);
	ck_assert_int_eq(d->set_access(d, a, G, 0), CLV_OK);
	volatile uint8_t *p = bytes(a, G);
	p[100] = 1;
	ck_assert_int_eq(what(h), CLV_OK);
	if (access)
		ck_assert_uint_eq(p[100], 1);
	else
		p[100] = 2;
}

static enum clv_result release_it(clv_handle h)
{
	return d->release(d, h);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* those end the program in a way of their own */
static enum clv_result unmap_it(clv_handle h)
{
	return d->unmap(d, a, G);
}

static enum clv_result remap_without_access(clv_handle h)
{
	enum clv_result r = d->unmap(d, a, G);
	return r == CLV_OK ? d->map(d, a, G, 0, h) : r;
}

START_TEST(touching_what_is_unmapped_faults)
{
	touch_after(unmap_it, false);
}
END_TEST

START_TEST(touching_without_access_faults)
{
	touch_after(remap_without_access, false);
}
END_TEST
#endif

START_TEST(touching_a_released_but_mapped_frame_is_fine)
{
	touch_after(release_it, true);
}
END_TEST

/* Random frames at random addresses, each word holding which frame it belongs to and where in it. */
START_TEST(patterns_survive_random_moves)
{
	enum { FRAMES = 10, SLOTS = 64 };
	setup_sim();
	struct {
		clv_handle h;
		uint64_t size, at[2];
		int mappings;
	} frame[FRAMES];
	bool taken[SLOTS] = {0};
	struct clv_rng rng = {7};
	for (int f = 0; f < FRAMES; f++) {
		frame[f].size = clv_rng_range(&rng, 1, 3);
		frame[f].h = create(frame[f].size * G);
		frame[f].mappings = 0;
	}
	uint64_t checked = 0;
	bool written[FRAMES] = {0};
	for (int step = 0; step < 2000; step++) {
		int f = (int)clv_rng_below(&rng, FRAMES);
		uint64_t n = frame[f].size, at = clv_rng_below(&rng, SLOTS);
		if (frame[f].mappings < 2) {
			bool room = at + n <= SLOTS;
			for (uint64_t i = at; room && i < at + n; i++)
				room = !taken[i];
			if (!room)
				continue;
			map(a + at * G, n * G, frame[f].h);
			for (uint64_t i = at; i < at + n; i++)
				taken[i] = true;
			frame[f].at[frame[f].mappings++] = at;
			uint64_t *p = (uint64_t *)bytes(a + at * G, n * G);
			for (uint64_t i = 0; i < n * G / 8; i += 509) {
				if (written[f])
					checked += p[i] == ((uint64_t)f << 32 | i);
				p[i] = (uint64_t)f << 32 | i;
			}
			if (written[f])
				checked -= (n * G / 8 + 508) / 509;
			ck_assert_uint_eq(checked, 0);
			written[f] = true;
		} else {
			int which = (int)clv_rng_below(&rng, 2);
			at = frame[f].at[which];
			ck_assert_int_eq(d->unmap(d, a + at * G, n * G), CLV_OK);
			for (uint64_t i = at; i < at + n; i++)
				taken[i] = false;
			frame[f].at[which] = frame[f].at[1];
			frame[f].mappings--;
		}
	}
	for (int f = 0; f < FRAMES; f++)
		ck_assert(written[f]);
	d->close(d);
}
END_TEST

int main(void)
{
	TCase *tcase = check_main_case("sim_backing");
	tcase_add_test(tcase, aliases_share_bytes);
	tcase_add_test(tcase, contents_outlive_mappings_and_handle);
	tcase_add_test(tcase, fresh_memory_is_garbage);
	tcase_add_test(tcase, access_by_address);
	tcase_add_test(tcase, touching_a_released_but_mapped_frame_is_fine);
	tcase_add_test(tcase, patterns_survive_random_moves);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_test_raise_signal(tcase, touching_what_is_unmapped_faults, SIGSEGV);
	tcase_add_test_raise_signal(tcase, touching_without_access_faults, SIGSEGV);
#endif
	return check_main_end("sim_backing", tcase);
}
