/* SPDX-License-Identifier: MIT
 *
 * cleave_pack() finds the same again: for a seed, in any thread, in other units.
 */
#include "check_main.h"
#include "pack_maker.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#define EFFORT 1000000

struct same {
	const struct pack_made *made;
	uint64_t seed, *offsets;
	pthread_t thread;
};

static void *pack_again(void *arg)
{
	struct same *s = arg;
	const cleave_pack_settings settings = {.effort = EFFORT, .seed = s->seed};
	cleave_pack_result r;
	s->offsets = pack_room(s->made->count, sizeof(*s->offsets));
	if (cleave_pack(s->made->buffers, s->made->count, &settings, s->offsets, &r, NULL, 0) != 0)
		s->offsets[0] = UINT64_MAX;
	return NULL;
}

START_TEST(the_same_seed_packs_the_same)
{
	struct same s[6];
	static const unsigned kinds[] = {0, PACK_PINWHEELS, PACK_KINDS - 1};
	for (size_t k = 0; k < CLV_ARRAY_LEN(kinds); k++) {
		struct pack_made m = pack_make(120, kinds[k], 3);
		size_t bytes = m.count * sizeof(uint64_t);
		for (size_t i = 0; i < CLV_ARRAY_LEN(s); i++) {
			s[i] = (struct same){.made = &m, .seed = i % 2 + 7};
			if (i < 4)
				ck_assert_int_eq(pthread_create(&s[i].thread, NULL, pack_again, &s[i]), 0);
			else
				pack_again(&s[i]);
		}
		for (size_t i = 0; i < 4; i++)
			pthread_join(s[i].thread, NULL);
		for (size_t i = 2; i < CLV_ARRAY_LEN(s); i++)
			ck_assert_msg(memcmp(s[i].offsets, s[i - 2].offsets, bytes) == 0, "kinds %u, seed %" PRIu64,
				      kinds[k], s[i].seed);
		for (size_t i = 0; i < CLV_ARRAY_LEN(s); i++)
			free(s[i].offsets);
		pack_made_free(&m);
	}
}
END_TEST

static cleave_pack_result packed(const struct pack_made *m, uint64_t **offsets)
{
	const cleave_pack_settings settings = {.effort = EFFORT};
	cleave_pack_result r;
	*offsets = pack_room(m->count, sizeof(**offsets));
	ck_assert_int_eq(cleave_pack(m->buffers, m->count, &settings, *offsets, &r, NULL, 0), 0);
	return r;
}

/* Only which are live together counts, and in what proportion sizes are. */
START_TEST(units_do_not_matter)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct pack_made m = pack_make(80, 0, seed);
		uint64_t *was, *is;
		cleave_pack_result before = packed(&m, &was);
		for (size_t i = 0; i < m.count; i++) {
			m.buffers[i].lower = m.buffers[i].lower * 1024 - 123456789;
			m.buffers[i].upper = m.buffers[i].upper * 1024 - 123456789;
		}
		cleave_pack_result after = packed(&m, &is);
		ck_assert_int_eq(memcmp(was, is, m.count * sizeof(*was)), 0);
		ck_assert_uint_eq(before.steps, after.steps);
		free(is);
		for (size_t i = 0; i < m.count; i++)
			m.buffers[i].size *= 3 << 20;
		after = packed(&m, &is);
		for (size_t i = 0; i < m.count; i++)
			ck_assert_uint_eq(is[i], was[i] * (3 << 20));
		ck_assert_uint_eq(after.height, before.height * (3 << 20));
		ck_assert_uint_eq(after.lower_bound, before.lower_bound * (3 << 20));
		free(is);
		free(was);
		pack_made_free(&m);
	}
}
END_TEST

CHECK_MAIN("pack_again", the_same_seed_packs_the_same, units_do_not_matter)
