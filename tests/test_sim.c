/* SPDX-License-Identifier: MIT
 *
 * The simulated device's memory: what it gives, what it refuses, what it charges.
 */
#include "../src/driver/cost.h"
#include "../src/driver/sim.h"
#include "check_main.h"

#define G (2 * CLV_MIB)

static struct clv_driver *open_sim(struct clv_sim_config config)
{
	struct clv_driver *d = clv_sim_open(&config);
	ck_assert_ptr_nonnull(d);
	return d;
}

static clv_handle create(struct clv_driver *d, uint64_t size)
{
	clv_handle h = 0;
	ck_assert_int_eq(d->create(d, &h, size, 0), CLV_OK);
	ck_assert_uint_ne(h, 0);
	return h;
}

static uint64_t reserve(struct clv_driver *d, uint64_t size)
{
	uint64_t addr = 0;
	ck_assert_int_eq(d->address_reserve(d, &addr, size, 0), CLV_OK);
	return addr;
}

static void close_clean(struct clv_driver *d)
{
	const char *leak = clv_sim_leaks(d);
	ck_assert_msg(!leak, "%s leaks", leak);
	ck_assert_uint_eq(clv_sim_used(d, 0), 0);
	d->close(d);
}

START_TEST(config_defaults_and_refusals)
{
	struct clv_driver *d = clv_sim_open(NULL);
	struct clv_device_info info;
	ck_assert_int_eq(d->device_info(d, 0, &info), CLV_OK);
	ck_assert_uint_eq(info.total, 139 * CLV_GIB);
	ck_assert_uint_eq(info.granularity, G);
	ck_assert(info.vmm);
	ck_assert_int_eq(d->devices, 1);
	ck_assert_int_eq(d->device_info(d, 1, &info), CLV_INVALID);
	ck_assert_int_eq(d->device_info(d, -1, &info), CLV_INVALID);
	ck_assert_int_eq(d->device_info(d, 0, NULL), CLV_INVALID);
	close_clean(d);

	d = open_sim((struct clv_sim_config){.capacity = 5 * CLV_MIB, .devices = 3});
	uint64_t free_bytes, total;
	ck_assert_int_eq(d->mem_get_info(d, 2, &free_bytes, &total), CLV_OK);
	ck_assert_uint_eq(total, 4 * CLV_MIB);
	ck_assert_uint_eq(free_bytes, 4 * CLV_MIB);
	ck_assert_int_eq(d->mem_get_info(d, 3, &free_bytes, &total), CLV_INVALID);
	ck_assert_int_eq(d->mem_get_info(d, 0, NULL, NULL), CLV_OK);
	close_clean(d);

	ck_assert_ptr_null(clv_sim_open(&(struct clv_sim_config){.devices = 65}));
	ck_assert_ptr_null(clv_sim_open(&(struct clv_sim_config){.devices = -1}));
	ck_assert_ptr_null(clv_sim_open(&(struct clv_sim_config){.granularity = 3 * CLV_MIB}));
	ck_assert_ptr_null(clv_sim_open(&(struct clv_sim_config){.granularity = 256}));
	ck_assert_ptr_null(clv_sim_open(&(struct clv_sim_config){.granularity = 512, .backing = true}));
}
END_TEST

START_TEST(reservations)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){0});
	uint64_t a, b, c;
	ck_assert_int_eq(d->address_reserve(d, &a, 4ull << 40, 0), CLV_OK);
	ck_assert_int_eq(d->address_reserve(d, &b, G, 64 * CLV_GIB), CLV_OK);
	ck_assert_int_eq(d->address_reserve(d, &c, 4 * CLV_GIB, G), CLV_OK);
	ck_assert_uint_eq(a % G, 0);
	ck_assert_uint_eq(b % (64 * CLV_GIB), 0);
	ck_assert_uint_eq(c % G, 0);
	/* no two of them touch */
	ck_assert(a + (4ull << 40) < b);
	ck_assert(b + G < c);

	uint64_t x = 77;
	ck_assert_int_eq(d->address_reserve(d, NULL, G, 0), CLV_INVALID);
	ck_assert_int_eq(d->address_reserve(d, &x, 0, 0), CLV_INVALID);
	ck_assert_int_eq(d->address_reserve(d, &x, G + 4096, 0), CLV_INVALID);
	ck_assert_int_eq(d->address_reserve(d, &x, G, 3 * G), CLV_INVALID);
	ck_assert_int_eq(d->address_reserve(d, &x, 1ull << 47, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(d->address_reserve(d, &x, -G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(d->address_reserve(d, &x, G, 1ull << 63), CLV_OUT_OF_MEMORY);
	ck_assert_uint_eq(x, 77);

	ck_assert_int_eq(d->address_free(d, a + G, 4ull << 40), CLV_INVALID);
	ck_assert_int_eq(d->address_free(d, a, G), CLV_INVALID);
	ck_assert_int_eq(d->address_free(d, 0, 0), CLV_INVALID);
	clv_handle h = create(d, G);
	ck_assert_int_eq(d->map(d, a + 8 * G, G, 0, h), CLV_OK);
	ck_assert_int_eq(d->address_free(d, a, 4ull << 40), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a + 8 * G, G), CLV_OK);
	ck_assert_int_eq(d->release(d, h), CLV_OK);
	ck_assert_str_eq(clv_sim_leaks(d), "reservation");
	ck_assert_int_eq(d->address_free(d, a, 4ull << 40), CLV_OK);
	ck_assert_int_eq(d->address_free(d, a, 4ull << 40), CLV_INVALID);
	ck_assert_int_eq(d->address_free(d, b, G), CLV_OK);
	ck_assert_int_eq(d->address_free(d, c, 4 * CLV_GIB), CLV_OK);
	close_clean(d);
}
END_TEST

/* Addresses are handed out upwards and come round: those of 4 TiB fill the 127 TiB after 31, and freed ones are used
 * again. */
START_TEST(addresses_come_round)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){0});
	uint64_t size = 4ull << 40, addr[64], n = 0;
	while (d->address_reserve(d, &addr[n], size, 0) == CLV_OK)
		ck_assert_uint_lt(++n, 64);
	ck_assert_uint_eq(n, 31);
	ck_assert_int_eq(d->address_free(d, addr[7], size), CLV_OK);
	uint64_t a;
	ck_assert_int_eq(d->address_reserve(d, &a, size, 0), CLV_OK);
	ck_assert_uint_eq(a, addr[7]);
	ck_assert_int_eq(d->address_reserve(d, &a, size, 0), CLV_OUT_OF_MEMORY);
	for (uint64_t i = 0; i < n; i++)
		ck_assert_int_eq(d->address_free(d, addr[i], size), CLV_OK);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(d->address_reserve(d, &a, size, 1ull << 40), CLV_OK);
		ck_assert_int_eq(d->address_free(d, a, size), CLV_OK);
	}
	close_clean(d);
}
END_TEST

/* An aligned range is not put right behind one that happens to end at such an address. */
START_TEST(aligned_ranges_keep_their_distance)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){0});
	uint64_t low, next, rest, aligned, most = 125ull << 40;
	ck_assert_int_eq(d->address_reserve(d, &low, G, CLV_GIB), CLV_OK);
	ck_assert_int_eq(d->address_reserve(d, &next, CLV_GIB - 2 * G, 0), CLV_OK);
	ck_assert_uint_eq(next + CLV_GIB - 2 * G, low + CLV_GIB);
	ck_assert_int_eq(d->address_reserve(d, &rest, most, 0), CLV_OK);
	ck_assert_int_eq(d->address_free(d, low, G), CLV_OK);
	uint64_t again;
	do /* until the search comes round to the lowest address */
		ck_assert_int_eq(d->address_reserve(d, &again, G, 0), CLV_OK);
	while (again > rest && d->address_free(d, again, G) == CLV_OK);
	ck_assert_int_eq(d->address_free(d, rest, most), CLV_OK);
	ck_assert_uint_eq(again, low);
	ck_assert_int_eq(d->address_reserve(d, &aligned, G, CLV_GIB), CLV_OK);
	ck_assert_uint_eq(aligned, low + 2 * CLV_GIB);
	d->close(d);
}
END_TEST

/* Large random ranges, so that the addresses come round many times: no two ever touch, and nothing is refused for which
 * there is obviously room. */
START_TEST(ranges_never_touch)
{
	enum { LIVE = 40 };
	struct clv_driver *d = open_sim((struct clv_sim_config){0});
	struct {
		uint64_t addr, size;
	} r[LIVE] = {0};
	struct clv_rng rng = {3};
	uint64_t tib = (uint64_t)1 << 40, failures = 0, touched = 0;
	for (int step = 0; step < 20000; step++) {
		uint64_t i = clv_rng_below(&rng, LIVE);
		if (r[i].size) {
			ck_assert_int_eq(d->address_free(d, r[i].addr, r[i].size), CLV_OK);
			r[i].size = 0;
			continue;
		}
		/* some exactly as large as what was freed, so that gaps are filled to the last granule */
		uint64_t size = clv_rng_below(&rng, 2) ? 4 * tib : G * clv_rng_range(&rng, 1, 4 * tib / G);
		uint64_t align = G << clv_rng_below(&rng, 3) * 10;
		if (d->address_reserve(d, &r[i].addr, size, align) != CLV_OK) {
			failures++;
			continue;
		}
		r[i].size = size;
		ck_assert_uint_eq(r[i].addr % align, 0);
		for (int k = 0; k < LIVE; k++)
			touched += r[k].size && (uint64_t)k != i && r[k].addr <= r[i].addr + size &&
				   r[i].addr <= r[k].addr + r[k].size;
	}
	ck_assert_uint_eq(touched, 0);
	ck_assert_uint_lt(failures, 20000 / 4);
	for (int i = 0; i < LIVE; i++)
		if (r[i].size)
			ck_assert_int_eq(d->address_free(d, r[i].addr, r[i].size), CLV_OK);
	close_clean(d);
}
END_TEST

START_TEST(capacity)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){.capacity = 10 * G, .devices = 2});
	clv_handle h[8], x = 77;
	ck_assert_int_eq(d->create(d, &x, 0, 0), CLV_INVALID);
	ck_assert_int_eq(d->create(d, &x, G / 2, 0), CLV_INVALID);
	ck_assert_int_eq(d->create(d, &x, G, 2), CLV_INVALID);
	ck_assert_int_eq(d->create(d, &x, G, -1), CLV_INVALID);
	ck_assert_int_eq(d->create(d, NULL, G, 0), CLV_INVALID);
	ck_assert_int_eq(d->create(d, &x, 11 * G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(d->create(d, &x, -G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_uint_eq(x, 77);

	for (int i = 0; i < 4; i++)
		h[i] = create(d, G);
	uint64_t p, free_bytes;
	ck_assert_int_eq(d->mem_alloc(d, &p, 3 * G - 1, 0), CLV_OK);
	ck_assert_uint_eq(clv_sim_used(d, 0), 7 * G);
	clv_sim_set_foreign(d, 0, 2 * G);
	ck_assert_int_eq(d->mem_get_info(d, 0, &free_bytes, NULL), CLV_OK);
	ck_assert_uint_eq(free_bytes, G);
	ck_assert_int_eq(d->create(d, &x, 2 * G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(d->mem_alloc(d, &free_bytes, 2 * G, 0), CLV_OUT_OF_MEMORY);
	h[4] = create(d, G);
	ck_assert_int_eq(d->create(d, &x, G, 0), CLV_OUT_OF_MEMORY);
	/* another process takes no more than there is */
	clv_sim_set_foreign(d, 0, UINT64_MAX);
	ck_assert_int_eq(d->mem_get_info(d, 0, &free_bytes, NULL), CLV_OK);
	ck_assert_uint_eq(free_bytes, 0);
	clv_sim_set_foreign(d, 0, 0);
	h[5] = create(d, 2 * G);
	ck_assert_uint_eq(clv_sim_used(d, 0), 10 * G);
	/* devices have memory of their own */
	ck_assert_uint_eq(clv_sim_used(d, 1), 0);
	ck_assert_int_eq(d->create(d, &h[6], 10 * G, 1), CLV_OK);
	ck_assert_int_eq(d->release(d, h[6]), CLV_OK);

	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(d->release(d, h[i]), CLV_OK);
	ck_assert_str_eq(clv_sim_leaks(d), "plain allocation");
	ck_assert_int_eq(d->mem_free(d, p), CLV_OK);
	ck_assert_uint_eq(clv_sim_used_peak(d, 0), 10 * G);
	ck_assert_uint_eq(clv_sim_used_peak(d, 1), 10 * G);
	ck_assert_uint_eq(clv_sim_used(d, 7), 0);
	close_clean(d);
}
END_TEST

START_TEST(map_takes_whole_handles_into_free_addresses)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){0});
	uint64_t a = reserve(d, 16 * G), b = reserve(d, 4 * G);
	clv_handle h1 = create(d, G), h4 = create(d, 4 * G);

	ck_assert_int_eq(d->map(d, a, G, 0, h4), CLV_NOT_SUPPORTED);
	ck_assert_int_eq(d->map(d, a, 8 * G, 0, h4), CLV_NOT_SUPPORTED);
	ck_assert_int_eq(d->map(d, a, 3 * G, G, h4), CLV_NOT_SUPPORTED);
	ck_assert_int_eq(d->map(d, a, 4 * G, G, h4), CLV_NOT_SUPPORTED);
	ck_assert_int_eq(d->map(d, a + 1, G, 0, h1), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a, G / 2, 0, h1), CLV_NOT_SUPPORTED);
	ck_assert_int_eq(d->map(d, a, 0, 0, h1), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a, G, 0, 0), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a, G, 0, 12345), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a, G, 0, UINT64_MAX), CLV_INVALID);
	ck_assert_int_eq(d->map(d, 0, G, 0, h1), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a - G, G, 0, h1), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a + 16 * G, G, 0, h1), CLV_INVALID);
	/* over the end of a reservation, into its neighbour or not */
	ck_assert_int_eq(d->map(d, a + 13 * G, 4 * G, 0, h4), CLV_INVALID);
	ck_assert_int_eq(d->map(d, b + G, 4 * G, 0, h4), CLV_INVALID);

	ck_assert_int_eq(d->map(d, a + 4 * G, 4 * G, 0, h4), CLV_OK);
	/* onto a mapping: its start, its middle, its end, all of it */
	ck_assert_int_eq(d->map(d, a + 4 * G, G, 0, h1), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a + 6 * G, G, 0, h1), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a + 7 * G, G, 0, h1), CLV_INVALID);
	clv_handle h6 = create(d, 6 * G);
	ck_assert_int_eq(d->map(d, a + 3 * G, 6 * G, 0, h6), CLV_INVALID);
	/* beside it is fine, and so is the same handle elsewhere */
	ck_assert_int_eq(d->map(d, a + 3 * G, G, 0, h1), CLV_OK);
	ck_assert_int_eq(d->map(d, a + 8 * G, G, 0, h1), CLV_OK);
	ck_assert_int_eq(d->map(d, b, 4 * G, 0, h4), CLV_OK);
	ck_assert_uint_eq(clv_sim_used(d, 0), 11 * G);

	ck_assert_int_eq(d->unmap(d, a + 3 * G, 6 * G), CLV_OK);
	ck_assert_int_eq(d->unmap(d, b, 4 * G), CLV_OK);
	ck_assert_int_eq(d->release(d, h1), CLV_OK);
	ck_assert_int_eq(d->release(d, h4), CLV_OK);
	ck_assert_int_eq(d->release(d, h6), CLV_OK);
	ck_assert_int_eq(d->address_free(d, a, 16 * G), CLV_OK);
	ck_assert_int_eq(d->address_free(d, b, 4 * G), CLV_OK);
	close_clean(d);
}
END_TEST

START_TEST(unmap_takes_whole_mappings)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){0});
	uint64_t a = reserve(d, 16 * G);
	clv_handle h[3] = {create(d, 4 * G), create(d, 4 * G), create(d, 2 * G)};
	ck_assert_int_eq(d->map(d, a, 4 * G, 0, h[0]), CLV_OK);
	ck_assert_int_eq(d->map(d, a + 4 * G, 4 * G, 0, h[1]), CLV_OK);
	ck_assert_int_eq(d->map(d, a + 10 * G, 2 * G, 0, h[2]), CLV_OK);

	ck_assert_int_eq(d->unmap(d, a, G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a + G, 3 * G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a, 6 * G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a + 2 * G, 4 * G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a, 12 * G), CLV_INVALID); /* a gap within */
	ck_assert_int_eq(d->unmap(d, a + 8 * G, 4 * G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a + 8 * G, G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a, 0), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a, 17 * G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a, -G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, 0, G), CLV_INVALID);

	ck_assert_int_eq(d->unmap(d, a, 8 * G), CLV_OK);
	ck_assert_int_eq(d->unmap(d, a, 8 * G), CLV_INVALID);
	ck_assert_int_eq(d->unmap(d, a + 10 * G, 2 * G), CLV_OK);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(d->release(d, h[i]), CLV_OK);
	ck_assert_int_eq(d->address_free(d, a, 16 * G), CLV_OK);
	close_clean(d);
}
END_TEST

START_TEST(memory_returns_with_the_last_reference)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){.capacity = 4 * G});
	uint64_t a = reserve(d, 16 * G);
	clv_handle h = create(d, 4 * G), x;
	ck_assert_int_eq(d->map(d, a, 4 * G, 0, h), CLV_OK);
	ck_assert_int_eq(d->map(d, a + 8 * G, 4 * G, 0, h), CLV_OK);
	ck_assert_int_eq(d->release(d, h), CLV_OK);
	ck_assert_int_eq(d->release(d, h), CLV_INVALID);
	ck_assert_int_eq(d->map(d, a + 4 * G, 4 * G, 0, h), CLV_INVALID);
	ck_assert_str_eq(clv_sim_leaks(d), "mapping");
	ck_assert_int_eq(d->create(d, &x, G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(d->unmap(d, a, 4 * G), CLV_OK);
	ck_assert_int_eq(d->create(d, &x, G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(d->set_access(d, a + 8 * G, 4 * G, 0), CLV_OK);
	ck_assert_int_eq(d->unmap(d, a + 8 * G, 4 * G), CLV_OK);
	ck_assert_uint_eq(clv_sim_used(d, 0), 0);
	x = create(d, 4 * G);
	/* the new handle took the old one's place, yet the old one stays dead */
	ck_assert_uint_ne(x, h);
	ck_assert_int_eq(d->release(d, h), CLV_INVALID);
	ck_assert_str_eq(clv_sim_leaks(d), "handle");
	ck_assert_int_eq(d->release(d, x), CLV_OK);
	ck_assert_int_eq(d->release(d, 0), CLV_INVALID);
	ck_assert_int_eq(d->address_free(d, a, 16 * G), CLV_OK);
	close_clean(d);
}
END_TEST

START_TEST(access_needs_a_mapped_range)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){.devices = 2});
	uint64_t a = reserve(d, 8 * G);
	clv_handle h = create(d, 2 * G), k = create(d, G);
	ck_assert_int_eq(d->map(d, a, 2 * G, 0, h), CLV_OK);
	ck_assert_int_eq(d->map(d, a + 3 * G, G, 0, k), CLV_OK);
	ck_assert_int_eq(d->set_access(d, a, 3 * G, 0), CLV_INVALID);
	ck_assert_int_eq(d->set_access(d, a, 4 * G, 0), CLV_INVALID);
	ck_assert_int_eq(d->set_access(d, a + 2 * G, G, 0), CLV_INVALID);
	ck_assert_int_eq(d->set_access(d, a, 2 * G, 2), CLV_INVALID);
	ck_assert_int_eq(d->set_access(d, a, 2 * G, -1), CLV_INVALID);
	ck_assert_int_eq(d->set_access(d, a, 0, 0), CLV_INVALID);
	ck_assert_int_eq(d->set_access(d, a + 1, G, 0), CLV_INVALID);
	ck_assert_int_eq(d->set_access(d, a, 2 * G, 0), CLV_OK);
	ck_assert_int_eq(d->set_access(d, a, 2 * G, 1), CLV_OK);
	ck_assert_int_eq(d->set_access(d, a + 3 * G, G, 0), CLV_OK);
	ck_assert_int_eq(d->unmap(d, a, 2 * G), CLV_OK);
	ck_assert_int_eq(d->unmap(d, a + 3 * G, G), CLV_OK);
	ck_assert_int_eq(d->release(d, h), CLV_OK);
	ck_assert_int_eq(d->release(d, k), CLV_OK);
	ck_assert_int_eq(d->address_free(d, a, 8 * G), CLV_OK);
	close_clean(d);
}
END_TEST

START_TEST(plain_allocations)
{
	struct clv_driver *d = open_sim((struct clv_sim_config){0});
	uint64_t p, q, x = 77;
	ck_assert_int_eq(d->mem_alloc(d, NULL, 1, 0), CLV_INVALID);
	ck_assert_int_eq(d->mem_alloc(d, &x, 0, 0), CLV_INVALID);
	ck_assert_int_eq(d->mem_alloc(d, &x, 1, 1), CLV_INVALID);
	ck_assert_int_eq(d->mem_alloc(d, &x, UINT64_MAX, 0), CLV_OUT_OF_MEMORY);
	ck_assert_uint_eq(x, 77);
	ck_assert_int_eq(d->mem_alloc(d, &p, 5, 0), CLV_OK);
	ck_assert_int_eq(d->mem_alloc(d, &q, 3 * CLV_GIB + 1, 0), CLV_OK);
	ck_assert_uint_eq(p % 512, 0);
	ck_assert_uint_eq(q % 512, 0);
	/* they are no reservations */
	clv_handle h = create(d, G);
	ck_assert_int_eq(d->map(d, q, G, 0, h), CLV_INVALID);
	ck_assert_int_eq(d->address_free(d, q, 3 * CLV_GIB + 1), CLV_INVALID);
	ck_assert_int_eq(d->release(d, h), CLV_OK);
	ck_assert_int_eq(d->mem_free(d, q + 512), CLV_INVALID);
	ck_assert_int_eq(d->mem_free(d, 12345), CLV_INVALID);
	ck_assert_int_eq(d->mem_free(d, q), CLV_OK);
	ck_assert_int_eq(d->mem_free(d, q), CLV_INVALID);
	ck_assert_int_eq(d->mem_free(d, p), CLV_OK);
	ck_assert_int_eq(d->mem_free(d, 0), CLV_OK); /* as on a GPU */
	uint64_t r = reserve(d, G);
	ck_assert_int_eq(d->mem_free(d, r), CLV_INVALID);
	ck_assert_int_eq(d->address_free(d, r, G), CLV_OK);
	close_clean(d);
}
END_TEST

/* What 64 allocations of one size took on an H200, and how far apart they stood. */
START_TEST(small_plain_allocations_share_pages)
{
	static const struct {
		uint64_t size, step, mib;
	} seen[] = {
		{1, 512, 2},	       {512, 512, 2},	     {1000, 1024, 2},	    {1536, 1536, 2},	      {5000, 5120, 2},
		{40000, 40448, 4},     {65536, 65536, 4},    {100000, 100352, 8},   {300000, 300032, 22},     {400000, 400384, 26},
		{700000, 700416, 64},  {1048576, 1048576, 64}, {1048577, 0, 128}, {3145728, 0, 256},	      {5242880, 0, 384},
	};
	struct clv_driver *d = open_sim((struct clv_sim_config){.devices = 2});
	uint64_t p[64], other;
	ck_assert_int_eq(d->mem_alloc(d, &other, 512, 1), CLV_OK);
	for (size_t i = 0; i < CLV_ARRAY_LEN(seen); i++) {
		for (int n = 0; n < 64; n++)
			ck_assert_int_eq(d->mem_alloc(d, &p[n], seen[i].size, 0), CLV_OK);
		ck_assert_uint_eq(clv_sim_used(d, 0), seen[i].mib * CLV_MIB);
		if (seen[i].step)
			ck_assert_uint_eq(p[1] - p[0], seen[i].step);
		ck_assert_int_eq(d->mem_free(d, p[1] + 256), CLV_INVALID);
		if (seen[i].step > 512)
			ck_assert_int_eq(d->mem_free(d, p[1] + 512), CLV_INVALID);
		for (int n = 0; n < 64; n++)
			ck_assert_int_eq(d->mem_free(d, p[n]), CLV_OK);
		ck_assert_int_eq(d->mem_free(d, p[5]), CLV_INVALID);
		ck_assert_uint_eq(clv_sim_used(d, 0), 0);
	}
	ck_assert_int_eq(d->mem_free(d, other), CLV_OK);

	/* the lowest hole that is large enough is taken, and only who opens or empties a page pays for one */
	struct clv_call_counts before, after;
	ck_assert_int_eq(d->mem_alloc(d, &p[0], 512, 0), CLV_OK);
	ck_assert_int_eq(d->mem_alloc(d, &p[1], 2048, 0), CLV_OK);
	ck_assert_int_eq(d->mem_alloc(d, &p[2], 8192, 0), CLV_OK);
	d->counts(d, &before);
	ck_assert_int_eq(d->mem_alloc(d, &p[3], 32768, 0), CLV_OK);
	ck_assert_int_eq(d->mem_free(d, p[1]), CLV_OK);
	d->counts(d, &after);
	ck_assert_uint_eq(after.ns - before.ns, 2000 + 2250);
	uint64_t q;
	ck_assert_int_eq(d->mem_alloc(d, &q, 4096, 0), CLV_OK);
	ck_assert_uint_eq(q, p[3] + 32768);
	ck_assert_int_eq(d->mem_free(d, p[2]), CLV_OK);
	ck_assert_int_eq(d->mem_alloc(d, &p[2], 10240, 0), CLV_OK);
	ck_assert_uint_eq(p[2], p[1]);
	ck_assert_int_eq(d->mem_free(d, q), CLV_OK);
	ck_assert_int_eq(d->mem_free(d, p[0]), CLV_OK);
	ck_assert_int_eq(d->mem_free(d, p[2]), CLV_OK);
	d->counts(d, &before);
	ck_assert_int_eq(d->mem_free(d, p[3]), CLV_OK);
	d->counts(d, &after);
	ck_assert_uint_eq(after.ns - before.ns, 39000);

	/* a full page that got a hole is used again */
	for (int n = 0; n < 33; n++)
		ck_assert_int_eq(d->mem_alloc(d, &p[n], 64 * CLV_KIB, 0), CLV_OK);
	ck_assert_int_eq(d->mem_free(d, p[7]), CLV_OK);
	for (int n = 33; n < 64; n++)
		ck_assert_int_eq(d->mem_alloc(d, &p[n], 64 * CLV_KIB, 0), CLV_OK);
	ck_assert_int_eq(d->mem_alloc(d, &q, 64 * CLV_KIB, 0), CLV_OK);
	ck_assert_uint_eq(q, p[7]);
	ck_assert_uint_eq(clv_sim_used(d, 0), 4 * CLV_MIB);
	for (int n = 0; n < 64; n++)
		ck_assert_int_eq(d->mem_free(d, p[n]), CLV_OK);
	close_clean(d);
}
END_TEST

START_TEST(calls_are_counted_and_charged)
{
	for (int clock_free = 0; clock_free < 2; clock_free++) {
		struct clv_driver *d = open_sim((struct clv_sim_config){.clock_free = clock_free});
		struct clv_call_counts c;
		uint64_t a = reserve(d, 64 * G), expected = clv_cost_ns(CLV_CALL_address_reserve, 64 * G, 1);
		clv_handle h[8];
		for (int i = 0; i < 8; i++) {
			uint64_t size = i ? G : 4 * G;
			h[i] = create(d, size);
			ck_assert_int_eq(d->map(d, a + (i ? (i + 3) * G : 0), size, 0, h[i]), CLV_OK);
			expected += clv_cost_ns(CLV_CALL_create, size, 1) + clv_cost_ns(CLV_CALL_map, size, 1);
		}
		d->counts(d, &c);
		ck_assert_uint_eq(c.ns, expected);
		/* one call over many handles costs what each of them would */
		ck_assert_int_eq(d->set_access(d, a, 11 * G, 0), CLV_OK);
		expected += clv_cost_ns(CLV_CALL_set_access, 4 * G, 1) + clv_cost_ns(CLV_CALL_set_access, 7 * G, 7);
		d->counts(d, &c);
		ck_assert_uint_eq(c.ns, expected);
		/* and far less where access is there already */
		ck_assert_int_eq(d->set_access(d, a, 11 * G, 0), CLV_OK);
		d->counts(d, &c);
		ck_assert_uint_eq(c.ns - expected, 8 * clv_cost_access_again_ns(1));
		expected = c.ns;
		/* what is refused for its arguments is counted, not charged */
		ck_assert_int_eq(d->unmap(d, a, G), CLV_INVALID);
		ck_assert_int_eq(d->unmap(d, a, 11 * G), CLV_OK);
		expected += clv_cost_ns(CLV_CALL_unmap, 4 * G, 1) + clv_cost_ns(CLV_CALL_unmap, 7 * G, 7);
		for (int i = 0; i < 8; i++) {
			ck_assert_int_eq(d->release(d, h[i]), CLV_OK);
			expected += clv_cost_ns(CLV_CALL_release, i ? G : 4 * G, 1);
		}
		uint64_t p;
		ck_assert_int_eq(d->mem_alloc(d, &p, 20 * CLV_MIB, 0), CLV_OK);
		ck_assert_int_eq(d->mem_free(d, p), CLV_OK);
		ck_assert_int_eq(d->mem_get_info(d, 0, NULL, NULL), CLV_OK);
		ck_assert_int_eq(d->address_free(d, a, 64 * G), CLV_OK);
		expected += 58000 + 55000 + 6700 + clv_cost_ns(CLV_CALL_address_free, 64 * G, 1);
		d->counts(d, &c);
		ck_assert_uint_eq(c.ns, expected);
		ck_assert_uint_eq(d->now_ns(d), clock_free ? 0 : expected);
		ck_assert_uint_eq(c.calls[CLV_CALL_create], 8);
		ck_assert_uint_eq(c.calls[CLV_CALL_map], 8);
		ck_assert_uint_eq(c.calls[CLV_CALL_set_access], 2);
		ck_assert_uint_eq(c.calls[CLV_CALL_unmap], 2);
		ck_assert_uint_eq(c.calls[CLV_CALL_release], 8);
		ck_assert_uint_eq(c.calls[CLV_CALL_mem_alloc], 1);
		ck_assert_uint_eq(c.calls[CLV_CALL_event_query], 0);

		clv_sim_set_time(d, expected + 1000);
		ck_assert_uint_eq(d->now_ns(d), expected + 1000);
		clv_sim_set_time(d, 5); /* never back */
		ck_assert_uint_eq(d->now_ns(d), expected + 1000);
		clv_sim_advance(d, 10);
		ck_assert_uint_eq(d->now_ns(d), expected + 1010);
		clv_sim_advance(d, UINT64_MAX);
		ck_assert_uint_eq(d->now_ns(d), UINT64_MAX);
		close_clean(d);
	}
}
END_TEST

/* Every host allocation of a small scenario fails in turn: an error each time, the books as before, and nothing
 * lost. */
START_TEST(host_memory_runs_out)
{
	uint64_t failures = 0;
	for (uint64_t n = 1;; n++) {
		struct clv_driver *d = open_sim((struct clv_sim_config){.capacity = 64 * G});
		clv_sim_fail_host_after(d, n);
		uint64_t a = 0, p = 0;
		clv_handle h = 0;
		clv_event e = 0;
		cleave_stream s = {1, 1};
		bool ok = d->address_reserve(d, &a, 4 * G, 0) == CLV_OK && d->create(d, &h, G, 0) == CLV_OK &&
			  d->map(d, a, G, 0, h) == CLV_OK && d->mem_alloc(d, &p, CLV_KIB, 0) == CLV_OK &&
			  d->event_create(d, &e, 0) == CLV_OK && d->event_record(d, e, s) == CLV_OK &&
			  clv_sim_launch(d, s, 5, (void (*)(void *))free, NULL) == CLV_OK;
		clv_sim_fail_host_after(d, 0);
		failures += !ok;
		if (h && a && d->unmap(d, a, G) != CLV_OK)
			ck_assert(!ok);
		ck_assert(!p || d->mem_free(d, p) == CLV_OK);
		ck_assert(!h || d->release(d, h) == CLV_OK);
		ck_assert(!a || d->address_free(d, a, 4 * G) == CLV_OK);
		ck_assert(!e || d->event_destroy(d, e) == CLV_OK);
		close_clean(d);
		if (ok)
			break;
	}
	/* range and table, frames, mappings, range and page, events, buckets and stream, work */
	ck_assert_uint_eq(failures, 10);
}
END_TEST

/* The simulation beside a plain model of it: random calls, most of them wrong, and each answer foretold. */
START_TEST(agrees_with_a_plain_model)
{
	enum { SLOTS = 48, FRAMES = 12 };
	struct clv_driver *d = open_sim((struct clv_sim_config){.capacity = 40 * G});
	uint64_t a = reserve(d, SLOTS * G);
	struct {
		clv_handle h;
		uint64_t size, mappings;
		bool live;
	} frame[FRAMES] = {0};
	int slot[SLOTS];     /* the frame there, or -1 */
	int start[SLOTS];    /* the slot where its mapping begins */
	for (int i = 0; i < SLOTS; i++)
		slot[i] = -1;
	uint64_t used = 0, done[4] = {0};
	struct clv_rng rng = {42};
	for (int step = 0; step < 200000; step++) {
		int f = (int)clv_rng_below(&rng, FRAMES), at = (int)clv_rng_below(&rng, SLOTS);
		int n = (int)clv_rng_range(&rng, 1, 8);
		switch (clv_rng_below(&rng, 4)) {
		case 0: {
			if (frame[f].live || frame[f].mappings)
				break;
			enum clv_result want = used + (uint64_t)n * G > 40 * G ? CLV_OUT_OF_MEMORY : CLV_OK;
			ck_assert_int_eq(d->create(d, &frame[f].h, (uint64_t)n * G, 0), want);
			if (want == CLV_OK) {
				frame[f].live = true;
				frame[f].size = (uint64_t)n;
				used += (uint64_t)n * G;
				done[0]++;
			}
			break;
		}
		case 1: {
			if (clv_rng_below(&rng, 4)) /* mostly the right size */
				n = (int)frame[f].size;
			bool fits = n && at + n <= SLOTS, empty = true;
			for (int i = at; fits && i < at + n; i++)
				empty &= slot[i] < 0;
			enum clv_result want = !frame[f].live || !n	      ? CLV_INVALID
					       : (uint64_t)n != frame[f].size ? CLV_NOT_SUPPORTED
					       : fits && empty		      ? CLV_OK
									      : CLV_INVALID;
			ck_assert_int_eq(d->map(d, a + (uint64_t)at * G, (uint64_t)n * G, 0, frame[f].h), want);
			if (want == CLV_OK) {
				for (int i = at; i < at + n; i++) {
					slot[i] = f;
					start[i] = at;
				}
				frame[f].mappings++;
				done[1]++;
			}
			break;
		}
		case 2: {
			if (slot[at] >= 0 && clv_rng_below(&rng, 4)) { /* mostly a right range, of one mapping or two */
				at = start[at];
				n = (int)frame[slot[at]].size;
				if (clv_rng_below(&rng, 2) && at + n < SLOTS && slot[at + n] >= 0)
					n += (int)frame[slot[at + n]].size;
			}
			bool whole = at + n <= SLOTS && slot[at] >= 0 && start[at] == at;
			for (int i = at; whole && i < at + n; i++)
				whole &= slot[i] >= 0;
			if (whole && at + n < SLOTS && slot[at + n] >= 0)
				whole &= start[at + n] == at + n;
			uint64_t addr = a + (uint64_t)at * G, size = (uint64_t)n * G;
			ck_assert_int_eq(d->set_access(d, addr, size, 0), whole ? CLV_OK : CLV_INVALID);
			ck_assert_int_eq(d->unmap(d, addr, size), whole ? CLV_OK : CLV_INVALID);
			for (int i = at; whole && i < at + n; i++) {
				if (start[i] == i) {
					int g = slot[i];
					if (!--frame[g].mappings && !frame[g].live)
						used -= frame[g].size * G;
				}
				slot[i] = -1;
			}
			done[2] += whole;
			break;
		}
		default:
			if (clv_rng_below(&rng, 3) == 0) {
				ck_assert_int_eq(d->release(d, frame[f].h), frame[f].live ? CLV_OK : CLV_INVALID);
				if (frame[f].live && !frame[f].mappings)
					used -= frame[f].size * G;
				done[3] += frame[f].live;
				frame[f].live = false;
			}
		}
		ck_assert_uint_eq(clv_sim_used(d, 0), used);
	}
	for (int i = 0; i < 4; i++) /* the right calls were not too rare to tell anything */
		ck_assert_uint_gt(done[i], 1000);
	d->close(d);
}
END_TEST

START_TEST(drivers_are_opened_by_name)
{
	cleave_driver *d = NULL;
	ck_assert_int_eq(cleave_driver_open(&d, "sim"), 0);
	struct clv_device_info info;
	ck_assert_int_eq(d->device_info(d, 0, &info), CLV_OK);
	ck_assert_uint_eq(info.total, 139 * CLV_GIB);
	cleave_driver_close(d);
	ck_assert_int_eq(cleave_driver_open(&d, "sim:1.5GiB"), 0);
	ck_assert_int_eq(d->device_info(d, 0, &info), CLV_OK);
	ck_assert_uint_eq(info.total, 3 * CLV_GIB / 2);
	uint64_t p;
	ck_assert_int_eq(d->mem_alloc(d, &p, 100, 0), CLV_OK);
	ck_assert_ptr_null(cleave_driver_host_address(d, p, 100));
	cleave_driver_close(d);
	ck_assert_int_eq(cleave_driver_open(&d, "sim-backed:8MiB"), 0);
	ck_assert_int_eq(d->device_info(d, 0, &info), CLV_OK);
	ck_assert_uint_eq(info.total, 8 * CLV_MIB);
	ck_assert_int_eq(d->mem_alloc(d, &p, 100, 0), CLV_OK);
	ck_assert_ptr_eq(cleave_driver_host_address(d, p, 100), clv_sim_bytes(d, p, 100, NULL));
	ck_assert_ptr_nonnull(cleave_driver_host_address(d, p, 100));
	ck_assert_ptr_null(cleave_driver_host_address(d, p, 0));
	ck_assert_ptr_null(cleave_driver_host_address(NULL, p, 100));
	ck_assert_int_eq(d->mem_free(d, p), CLV_OK);
	ck_assert_ptr_null(cleave_driver_host_address(d, p, 100));
	cleave_driver_close(d);
	ck_assert_int_eq(cleave_driver_open(&d, "sim-backed"), 0);
	cleave_driver_close(d);
	static const char *const wrong[] = {"", "si", "sim:", "sim:x", "sim:0", "sim:-1", "simulated", "cuda:1",
					   "sim-backed:", "sim-backed:0", "sim-backe", "sim-backed1GiB"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(wrong); i++) {
		d = (cleave_driver *)&d;
		ck_assert_msg(cleave_driver_open(&d, wrong[i]) < 0, "'%s'", wrong[i]);
		ck_assert_ptr_null(d);
	}
	ck_assert_int_lt(cleave_driver_open(&d, NULL), 0);
	ck_assert_int_lt(cleave_driver_open(NULL, "sim"), 0);
	cleave_driver_close(NULL);
}
END_TEST

CHECK_MAIN("sim", config_defaults_and_refusals, reservations, addresses_come_round,
	   aligned_ranges_keep_their_distance, ranges_never_touch, capacity,
	   map_takes_whole_handles_into_free_addresses, unmap_takes_whole_mappings,
	   memory_returns_with_the_last_reference, access_needs_a_mapped_range, plain_allocations,
	   small_plain_allocations_share_pages, calls_are_counted_and_charged, host_memory_runs_out,
	   agrees_with_a_plain_model, drivers_are_opened_by_name)
