/* SPDX-License-Identifier: MIT
 *
 * The table that launches look at first, beside models of it: by one thread, and by threads that look up while others
 * replace, change and forget.
 */
#include "../src/preload/quick.h"
#include "check_main.h"

#include <pthread.h>

#define KEYS 64u

static struct clv_quick table;
static const void *key[KEYS];

/* More than these lines have room for: as addresses are, and some that are as long as may be. */
static void choose_keys(struct clv_rng *rng, unsigned lines)
{
	for (unsigned i = 0; i < KEYS;) {
		unsigned bits = i % 8 ? 47 : 57;
		key[i] = (const void *)(uintptr_t)((clv_rng_next(rng) >> (64 - bits)) | (i % 8 ? 0 : (uint64_t)1 << 56));
		i += clv_quick_index(key[i]) < lines;
	}
}

static const void *pointer(uint64_t value)
{
	return (const void *)(uintptr_t)value;
}

START_TEST(nothing_is_there_at_first)
{
	uint64_t devices;
	for (uint64_t k = 0; k < 1000; k++)
		ck_assert(!clv_quick_find(&table, pointer(k), &devices));
	ck_assert(!clv_quick_find(&table, pointer(UINT64_MAX), &devices));
}
END_TEST

START_TEST(each_device_and_none)
{
	uint64_t devices = 0;
	for (unsigned d = 0; d < 64; d++) {
		clv_quick_remember(&table, pointer(0x7f0012345670), (uint64_t)1 << d);
		ck_assert(clv_quick_find(&table, pointer(0x7f0012345670), &devices));
		ck_assert_uint_eq(devices, (uint64_t)1 << d);
	}
	clv_quick_remember(&table, pointer(0x7f0012345670), 0);
	ck_assert(clv_quick_find(&table, pointer(0x7f0012345670), &devices));
	ck_assert_uint_eq(devices, 0);
	for (uint64_t near = 1; near < 256; near++)
		ck_assert(!clv_quick_find(&table, pointer(0x7f0012345670 ^ near), &devices));
	clv_quick_remember(&table, pointer(0x7f0012345670), 6); /* two devices: not kept, and nor is what was */
	ck_assert(!clv_quick_find(&table, pointer(0x7f0012345670), &devices));
}
END_TEST

/* Their upper bits would be lost: they must not be taken for those without these. */
START_TEST(keys_that_do_not_fit)
{
	const uint64_t low = 0x7f0012345670;
	uint64_t devices;
	clv_quick_remember(&table, NULL, 1);
	ck_assert(!clv_quick_find(&table, NULL, &devices));
	clv_quick_forget(&table, NULL);
	for (unsigned bit = 0; bit < 64; bit++) {
		const void *k = pointer(bit < 57 ? (uint64_t)1 << bit : low | (uint64_t)1 << bit);
		clv_quick_remember(&table, pointer(low), 1);
		clv_quick_remember(&table, k, 2);
		ck_assert_int_eq(clv_quick_find(&table, k, &devices), bit < 57);
		clv_quick_forget(&table, k);
		ck_assert(!clv_quick_find(&table, k, &devices));
		ck_assert(clv_quick_find(&table, pointer(low), &devices));
		ck_assert_uint_eq(devices, 1);
	}
}
END_TEST

START_TEST(beside_a_model)
{
	struct clv_rng rng = {20261130};
	uint64_t model[KEYS], devices;
	bool known[KEYS] = {false};
	unsigned found = 0;
	choose_keys(&rng, 2);
	for (unsigned step = 0; step < 200000; step++) {
		unsigned k = (unsigned)clv_rng_below(&rng, KEYS), what = (unsigned)clv_rng_below(&rng, 8);
		if (!what) {
			clv_quick_forget(&table, key[k]);
			known[k] = false;
		} else if (what < 4) {
			uint64_t d = clv_rng_below(&rng, 66);
			model[k] = d < 64 ? (uint64_t)1 << d : d == 64 ? 0 : 5;
			clv_quick_remember(&table, key[k], model[k]);
			known[k] = d < 65;
			ck_assert_int_eq(clv_quick_find(&table, key[k], &devices), known[k]);
		}
		if (clv_quick_find(&table, key[k], &devices)) {
			ck_assert_msg(known[k] && devices == model[k], "step %u: key %u", step, k);
			found++;
		}
	}
	ck_assert_uint_gt(found, 80000);
	/* a line holds as many as it has ways, the last that came among them */
	unsigned kept = 0;
	for (unsigned k = 0; k < KEYS; k++)
		clv_quick_remember(&table, key[k], 1);
	for (unsigned k = 0; k < KEYS; k++)
		kept += clv_quick_find(&table, key[k], &devices);
	ck_assert_uint_eq(kept, 2 * CLV_QUICK_WAYS);
	ck_assert(clv_quick_find(&table, key[KEYS - 1], &devices));
}
END_TEST

/* ---- threads ---- */

#define READERS 3
#define WRITERS 2
#define FINDS 20000u /* of each reader, at least */
#define VALUES 65u   /* devices, and none */

/* What a key has is that of its version. The version is guarded by the lock, as what the table repeats is, and told to readers
 * as programs tell each other of handles. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t version[KEYS];
static _Atomic unsigned reading; /* readers that have not found enough */
static unsigned used;            /* keys */

static uint64_t devices_of(unsigned k, uint64_t v)
{
	uint64_t value = (k * 37 + v) % VALUES;
	return value < 64 ? (uint64_t)1 << value : 0;
}

/* As a launch does that has not found it, and now and then as an update does. */
static void *writes(void *arg)
{
	struct clv_rng rng = {(uintptr_t)arg};
	for (unsigned i = 0; i < 100000 || reading; i++) {
		unsigned k = (unsigned)clv_rng_below(&rng, used);
		pthread_mutex_lock(&lock);
		uint64_t v = atomic_load_explicit(&version[k], memory_order_relaxed);
		if (clv_rng_below(&rng, 64)) {
			clv_quick_remember(&table, key[k], devices_of(k, v));
		} else {
			clv_quick_forget(&table, key[k]);
			atomic_store_explicit(&version[k], v + 1, memory_order_release);
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

/* Two keys take turns in one way, since the others are full. */
static void *takes_turns(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 1000000 || reading; i++) {
		pthread_mutex_lock(&lock);
		for (unsigned k = 0; k < 2; k++) {
			clv_quick_forget(&table, key[1 - k]);
			clv_quick_remember(&table, key[k], devices_of(k, 0));
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void *reads(void *arg)
{
	struct clv_rng rng = {(uintptr_t)arg};
	unsigned found = 0;
	while (reading) {
		unsigned k = (unsigned)clv_rng_below(&rng, used);
		uint64_t before = atomic_load_explicit(&version[k], memory_order_acquire), devices = 0;
		if (!clv_quick_find(&table, key[k], &devices))
			continue;
		reading -= ++found == FINDS;
		if (devices == devices_of(k, before))
			continue;
		/* it may have changed meanwhile; what is read before the lock is not from after it */
		pthread_mutex_lock(&lock);
		uint64_t after = atomic_load_explicit(&version[k], memory_order_relaxed), v = before;
		pthread_mutex_unlock(&lock);
		while (v < after && devices != devices_of(k, v))
			v++;
		ck_assert_msg(devices == devices_of(k, v), "key %u has %llx in versions %llu to %llu", k,
			      (unsigned long long)devices, (unsigned long long)before, (unsigned long long)after);
	}
	return NULL;
}

static void read_beside(unsigned writers, void *(*write)(void *), unsigned keys)
{
	pthread_t thread[READERS + WRITERS];
	reading = READERS;
	used = keys;
	for (uintptr_t i = 0; i < READERS + writers; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, i < READERS ? reads : write, (void *)(i + 100)), 0);
	for (unsigned i = 0; i < READERS + writers; i++)
		pthread_join(thread[i], NULL);
}

START_TEST(found_while_others_write)
{
	struct clv_rng rng = {19};
	choose_keys(&rng, 2);
	read_beside(WRITERS, writes, KEYS);
}
END_TEST

START_TEST(found_while_it_comes_and_goes)
{
	struct clv_rng rng = {20};
	choose_keys(&rng, 1);
	for (unsigned i = 1; i < CLV_QUICK_WAYS; i++)
		clv_quick_remember(&table, key[1 + i], 1);
	read_beside(1, takes_turns, 2);
}
END_TEST

CHECK_MAIN("quick", nothing_is_there_at_first, each_device_and_none, keys_that_do_not_fit, beside_a_model,
	   found_while_others_write, found_while_it_comes_and_goes)
