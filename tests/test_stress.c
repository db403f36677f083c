/* SPDX-License-Identifier: MIT
 *
 * The stress run: that the heap passes it, that it does what it says, and that it can fail.
 */
#include "../src/cli/cli.h"
#include "../src/cli/cmd_stress.h"
#include "../src/stress/pattern.h"
#include "../src/stress/stress.h"
#include "check_main.h"
#include "meddler.h"

#include <check.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB CLV_MIB

static struct clv_stress_config config_of(uint64_t seed, uint64_t ops)
{
	return (struct clv_stress_config){
		.ops = ops, .seed = seed, .threads = 1, .streams = 8, .capacity = 24 * MIB, .full = true};
}

static struct clv_stress_result run(struct clv_stress_config config)
{
	struct clv_stress_result r;
	struct clv_error err = {{0}};
	ck_assert_msg(clv_stress_run(&config, &r, &err), "%s", err.text);
	return r;
}

static struct clv_stress_result run_well(struct clv_stress_config config)
{
	struct clv_stress_result r = run(config);
	ck_assert_msg(r.passed, "seed %" PRIu64 ", operation %" PRIu64 " of thread %u: %s", r.seed, r.operation,
		      r.thread, r.wrong);
	ck_assert_uint_eq(r.ops, config.ops);
	return r;
}

/* ---- patterns ---- */

static struct clv_driver *sim;
static uint64_t base; /* of two frames, side by side */

static void map_frames(void)
{
	clv_handle handle;
	sim = clv_sim_open(&(struct clv_sim_config){.backing = true, .capacity = 64 * MIB});
	ck_assert_ptr_nonnull(sim);
	ck_assert_int_eq(sim->address_reserve(sim, &base, 64 * MIB, 2 * MIB), CLV_OK);
	for (uint64_t i = 0; i < 2; i++) {
		ck_assert_int_eq(sim->create(sim, &handle, 4 * MIB, 0), CLV_OK);
		ck_assert_int_eq(sim->map(sim, base + i * 4 * MIB, 4 * MIB, 0, handle), CLV_OK);
	}
	ck_assert_int_eq(sim->set_access(sim, base, 8 * MIB, 0), CLV_OK);
}

START_TEST(pattern_of_each_byte)
{
	map_frames();
	static const uint64_t sizes[] = {1,     7,     8,     9,      511,    512,         513,
					 32767, 32768, 32769, 131072, 200001, 2 * MIB + 1, 5 * MIB - 3};
	for (size_t i = 0; i < CLV_ARRAY_LEN(sizes); i++) {
		struct clv_stamp s = {.size = sizes[i], .block = 7, .stream = 3, .generation = 1};
		struct clv_pattern_wrong wrong;
		uint64_t at = base + 3 * MIB - 512; /* over the end of a frame */
		uint8_t *bytes = clv_sim_bytes(sim, at, s.size, NULL);
		ck_assert_int_eq(clv_pattern_check(sim, at, &s, true, &wrong), CLV_PATTERN_WRONG);
		ck_assert(clv_pattern_write(sim, at, &s, true));
		ck_assert_int_eq(clv_pattern_check(sim, at, &s, true, &wrong), CLV_PATTERN_GOOD);
		/* a full pattern passes as samples */
		ck_assert_int_eq(clv_pattern_check(sim, at, &s, false, &wrong), CLV_PATTERN_GOOD);
		uint64_t step = s.size / 97 + 1;
		for (uint64_t k = 0; k < s.size; k = k + step < s.size || k == s.size - 1 ? k + step : s.size - 1) {
			bytes[k] ^= 1;
			ck_assert_int_eq(clv_pattern_check(sim, at, &s, true, &wrong), CLV_PATTERN_WRONG);
			ck_assert_uint_eq(wrong.offset, k);
			ck_assert_uint_eq(wrong.found, bytes[k]);
			ck_assert_uint_eq(wrong.expected, bytes[k] ^ 1);
			bytes[k] ^= 1;
		}
		/* every part of the identity shows */
		struct clv_stamp others[] = {s, s, s};
		others[0].block++;
		others[1].stream++;
		others[2].generation++;
		for (size_t k = 0; k < CLV_ARRAY_LEN(others) && s.size >= 8; k++)
			ck_assert_int_eq(clv_pattern_check(sim, at, &others[k], true, &wrong), CLV_PATTERN_WRONG);
	}
	sim->close(sim);
}
END_TEST

START_TEST(pattern_tells_the_author)
{
	map_frames();
	struct clv_stamp mine = {.size = 100000, .block = 7, .stream = 3, .generation = 2};
	struct clv_stamp other = {.size = 5000, .block = 1234, .stream = 250, .generation = 255};
	struct clv_pattern_wrong wrong;
	char text[128];
	ck_assert_int_eq(clv_pattern_check(sim, base, &mine, true, &wrong), CLV_PATTERN_WRONG);
	ck_assert_ptr_nonnull(strstr(clv_pattern_author(base, &wrong, 5000, text, sizeof(text)), "fresh"));
	ck_assert(clv_pattern_write(sim, base, &mine, true));
	ck_assert(clv_pattern_write(sim, base + 10240, &other, true));
	ck_assert_int_eq(clv_pattern_check(sim, base, &mine, true, &wrong), CLV_PATTERN_WRONG);
	ck_assert_uint_eq(wrong.offset, 10240);
	clv_pattern_author(base, &wrong, 5000, text, sizeof(text));
	ck_assert_msg(strstr(text, "block 1234 on stream 250 (generation 255)") != NULL, "%s", text);
	/* no block has that number yet */
	clv_pattern_author(base, &wrong, 1233, text, sizeof(text));
	ck_assert_msg(strstr(text, "block") == NULL, "%s", text);
	/* what is not mapped to the end is not touched */
	mine.size = 8 * MIB + 1;
	ck_assert(!clv_pattern_write(sim, base, &mine, true));
	ck_assert_int_eq(clv_pattern_check(sim, base, &mine, true, &wrong), CLV_PATTERN_UNMAPPED);
	sim->close(sim);
}
END_TEST

/* Two blocks of any size of which neither lies within the other: who writes last, the other's samples show it. */
START_TEST(pattern_samples_show_overlaps)
{
	map_frames();
	struct clv_rng rng = {42};
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t first = clv_rng_range(&rng, 1, 4000) * 512, second = clv_rng_range(&rng, 1, 4000) * 512;
		uint64_t overlap = clv_rng_range(&rng, 1, clv_min_u64(first, second) / 512) * 512;
		uint64_t at = base + clv_rng_below(&rng, 1000) * 512;
		struct clv_stamp a = {.size = first - clv_rng_below(&rng, 504), .block = 1},
				 b = {.size = second, .block = 2};
		struct clv_pattern_wrong wrong;
		ck_assert(clv_pattern_write(sim, at, &a, false));
		ck_assert_int_eq(clv_pattern_check(sim, at, &a, false, &wrong), CLV_PATTERN_GOOD);
		ck_assert(clv_pattern_write(sim, at + first - overlap, &b, false));
		ck_assert_int_eq(clv_pattern_check(sim, at + first - overlap, &b, false, &wrong), CLV_PATTERN_GOOD);
		ck_assert_msg(clv_pattern_check(sim, at, &a, false, &wrong) == CLV_PATTERN_WRONG,
			      "%" PRIu64 " and %" PRIu64 " bytes overlap in %" PRIu64, a.size, b.size, overlap);
	}
	sim->close(sim);
}
END_TEST

/* ---- runs ---- */

START_TEST(short_runs_pass)
{
	for (uint64_t seed = 1; seed <= 6; seed++)
		run_well(config_of(seed, 1500));
}
END_TEST

START_TEST(with_faults)
{
	uint64_t faults = 0;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct clv_stress_config c = config_of(seed, 1500);
		c.faults = true;
		faults += run_well(c).faults;
	}
	ck_assert_uint_gt(faults, 50);
}
END_TEST

START_TEST(with_threads)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct clv_stress_config c = config_of(seed, 2000);
		c.threads = 4;
		c.faults = seed % 2;
		ck_assert_uint_gt(run_well(c).counts.handed_over, 0);
	}
}
END_TEST

/* What is not done cannot go wrong: all that a run counts must have happened, and often. */
START_TEST(everything_happens)
{
	struct clv_stress_counts sum = {0};
	struct clv_stress_config c = config_of(1, CLV_STRESS_ROUND + 1000);
	c.capacity = 48 * MIB;
	c.full = false;
	struct clv_stress_result r = run_well(c);
	ck_assert_uint_eq(r.rounds, 2);
	sum = r.counts;
#define X(field, text) ck_assert_msg(sum.field > 1, "%s: %" PRIu64, text, sum.field);
	CLV_STRESS_COUNTS(X)
#undef X
	ck_assert_uint_gt(sum.allocs, c.ops / 4);
	ck_assert_uint_gt(sum.checked, sum.frees / 2);
	ck_assert_uint_gt(r.bytes_checked, c.capacity * 10);
	ck_assert_uint_gt(r.live_peak, c.capacity * 9 / 10);
	ck_assert_uint_le(r.held_peak, c.capacity);
	ck_assert_uint_eq(r.faults, 0);
}
END_TEST

START_TEST(same_seed_same_run)
{
	struct clv_stress_config c = config_of(11, 1500);
	struct clv_stress_result a = run_well(c), b = run_well(c);
	ck_assert_uint_eq(a.digest, b.digest);
	ck_assert_mem_eq(&a.counts, &b.counts, sizeof(a.counts));
	c.faults = true;
	a = run_well(c);
	b = run_well(c);
	ck_assert_uint_eq(a.digest, b.digest);
	ck_assert_uint_eq(a.faults, b.faults);
	c = config_of(12, 1500);
	ck_assert_uint_ne(run_well(c).digest, a.digest);
	/* samples or every byte: the same is asked of the heap */
	a = run_well(c);
	c.full = false;
	b = run_well(c);
	ck_assert_uint_eq(a.digest, b.digest);
}
END_TEST

START_TEST(settings_are_the_heaps)
{
	struct clv_stress_config c = config_of(1, 1000);
	struct clv_stress_result r;
	struct clv_error err = {{0}};
	c.settings = "growth:tight,cache:off";
	run_well(c);
	c.settings = "growht:tight";
	ck_assert(!clv_stress_run(&c, &r, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "growht"));
}
END_TEST

/* ---- it can fail ---- */

static const struct wrongdoing {
	enum meddling what;
	unsigned after;
	const char *found; /* one of these parts is in what is said, separated by | */
} wrongdoings[] = {
	{MEDDLE_EVENTS, 0, "there is what was written for block|is not mapped when"},
	{MEDDLE_WAITS, 0, "there is what was written for block"},
	{MEDDLE_ALIAS, 3, "there is what was written for block"},
	{MEDDLE_UNMAP, 4, "is not mapped when"},
	{MEDDLE_ACCESS, 3, "is not mapped when"},
	{MEDDLE_RELEASE, 2, "held bytes|a trim says|over its limit|less than the headroom"},
	{MEDDLE_MISUSE, 5, "the heap called cuMemMap with arguments that the driver refuses"},
};

static bool says_one_of(const char *text, const char *parts)
{
	char copy[256], *save;
	snprintf(copy, sizeof(copy), "%s", parts);
	for (char *part = strtok_r(copy, "|", &save); part; part = strtok_r(NULL, "|", &save))
		if (strstr(text, part))
			return true;
	return false;
}

/* Not every round offers each wrongdoing a chance; four do for sure. Samples are enough to see it. */
START_TEST(wrong_drivers_are_found)
{
	const struct wrongdoing *w = &wrongdoings[_i];
	struct meddler m = {.what = w->what, .after = w->after};
	struct clv_stress_config c = config_of(7, 4 * CLV_STRESS_ROUND);
	c.full = false;
	c.capacity = 48 * MIB;
	c.wrap = meddler_open;
	c.wrap_arg = &m;
	struct clv_stress_result r = run(c);
	ck_assert_msg(!r.passed, "%u wrong things done in %u rounds, and none found", m.done, m.opened);
	ck_assert_uint_gt(m.done, 0);
	ck_assert_msg(says_one_of(r.wrong, w->found), "found something else: %s", r.wrong);
	/* again, by what is said: the same thing at the same place */
	ck_assert_uint_eq(r.seed, c.seed + r.rounds - 1);
	c.seed = r.seed;
	c.ops = r.round_ops;
	struct clv_stress_result again = run(c);
	ck_assert(!again.passed);
	ck_assert_uint_eq(again.rounds, 1);
	ck_assert_uint_eq(again.seed, r.seed);
	ck_assert_uint_eq(again.operation, r.operation);
	ck_assert_str_eq(again.wrong, r.wrong);
	if (r.operation > 2000)
		return; /* long, in full */
	/* with every byte no later */
	c.full = true;
	again = run(c);
	ck_assert(!again.passed);
	ck_assert_uint_eq(again.seed, r.seed);
	ck_assert_uint_le(again.operation, r.operation);
}
END_TEST

/* The same runs with a driver that does nothing wrong: it is the wrongdoing that is found. */
START_TEST(honest_meddler)
{
	struct meddler m = {MEDDLE_NOT};
	struct clv_stress_config c = config_of(1, 2000);
	c.wrap = meddler_open;
	c.wrap_arg = &m;
	struct clv_stress_result with = run_well(c);
	c.wrap = NULL;
	ck_assert_uint_eq(with.digest, run_well(c).digest);
	ck_assert_uint_eq(m.opened, 1);
	ck_assert_uint_eq(m.done, 0);
}
END_TEST

/* ---- the command ---- */

/* In place of the one in main.c. No test here is refused. */
int clv_cli_refuse(const char *name, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (%s)\n", name);
	return CLV_EXIT_USAGE;
}

/* Runs the command with a wrong driver and gets what it printed on stdout. */
static int command(char *line, struct meddler *m, char *out, size_t len)
{
	char *argv[32], *save;
	int argc = 0;
	for (char *word = strtok_r(line, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
		argv[argc++] = word;
	argv[argc] = NULL;
	FILE *file = tmpfile();
	ck_assert_ptr_nonnull(file);
	fflush(stdout);
	int old = dup(STDOUT_FILENO);
	ck_assert_int_ge(dup2(fileno(file), STDOUT_FILENO), 0);
	int status = clv_cmd_stress_with(argc, argv, meddler_open, m);
	fflush(stdout);
	ck_assert_int_ge(dup2(old, STDOUT_FILENO), 0);
	close(old);
	rewind(file);
	out[fread(out, 1, len - 1, file)] = '\0';
	fclose(file);
	return status;
}

START_TEST(command_tells_how_to_repeat)
{
	char line[512] = "stress --ops 200000 --seed 7 --capacity 48MiB", out[8192], again[8192], wrong[1024];
	struct meddler m = {.what = MEDDLE_EVENTS};
	ck_assert_int_eq(command(line, &m, out, sizeof(out)), CLV_EXIT_FAILED);
	uint64_t seed, op;
	ck_assert_msg(sscanf(out, "WRONG: seed %" SCNu64 ", operation %" SCNu64 ": block ", &seed, &op) == 2, "%s",
		      out);
	ck_assert_uint_gt(op, 0);
	const char *end = strchr(out, '\n'), *how = strstr(out, "cleave stress --seed");
	ck_assert(end && how && how > end);
	snprintf(wrong, sizeof(wrong), "%.*s", (int)(end - out), out);
	snprintf(line, sizeof(line), "%s", how + strlen("cleave "));
	ck_assert_int_eq(command(line, &m, again, sizeof(again)), CLV_EXIT_FAILED);
	ck_assert_msg(strncmp(again, wrong, strlen(wrong)) == 0, "%s\n%s", wrong, again);
}
END_TEST

int main(void)
{
	TCase *tcase = check_main_case("stress");
	tcase_add_test(tcase, pattern_of_each_byte);
	tcase_add_test(tcase, pattern_tells_the_author);
	tcase_add_test(tcase, pattern_samples_show_overlaps);
	tcase_add_test(tcase, short_runs_pass);
	tcase_add_test(tcase, with_faults);
	tcase_add_test(tcase, with_threads);
	tcase_add_test(tcase, everything_happens);
	tcase_add_test(tcase, same_seed_same_run);
	tcase_add_test(tcase, settings_are_the_heaps);
	tcase_add_loop_test(tcase, wrong_drivers_are_found, 0, CLV_ARRAY_LEN(wrongdoings));
	tcase_add_test(tcase, honest_meddler);
	tcase_add_test(tcase, command_tells_how_to_repeat);
	return check_main_end("stress", tcase);
}
