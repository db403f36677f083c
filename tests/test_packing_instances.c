/* SPDX-License-Identifier: MIT
 *
 * Published sets of lifetimes, which others are measured by. Those named NAME.CAPACITY.csv must fit that capacity; the
 * others come close to their bound. Limits are steps, so that no machine is too slow. Skipped without them.
 */
#include "../src/cli/pack_csv.h"
#include "check_main.h"
#include "pack_check.h"

#include <dirent.h>

#define EFFORT_FIT 1000000000 /* some ten seconds */

static const struct {
	const char *name;
	double over; /* height / lower bound, at most */
	uint64_t effort;
} close_ones[] = {
	{"resnet50.csv", 1.002, 100000000},
	{"G_1.csv", 1.002, 100000000},
	{"pangu_2.6B.csv", 1.005, 200000000},
};

static char folder[4096];

static cleave_pack_result pack_file(const char *name, cleave_pack_settings settings)
{
	char path[sizeof(folder) + 256], why[256] = "";
	struct clv_input in;
	struct clv_pack_csv t;
	struct clv_error err = {{0}};
	cleave_pack_result r;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	ck_assert_msg(clv_input_open(&in, path, &err) && clv_pack_csv_read(&t, &in, &err), "%s", err.text);
	uint64_t *offsets = calloc(t.count + 1, sizeof(*offsets));
	ck_assert_ptr_nonnull(offsets);
	int ret = cleave_pack(t.buffers, t.count, &settings, offsets, &r, why, sizeof(why));
	ck_assert_msg(ret == 0, "%s: %d: %s", name, ret, why);
	const char *wrong = pack_wrong(t.buffers, t.count, settings.capacity, offsets, &r);
	ck_assert_msg(!wrong, "%s: %s", name, wrong);
	ck_assert_msg(r.lower_bound >= pack_load(t.buffers, t.count), "%s: the bound is too low", name);
	printf("%s: %zu buffers, height %.6f of the bound%s, %" PRIu64 " steps, %.2f s\n", name, t.count,
	       (double)r.height / (double)r.lower_bound, r.optimal ? ", optimal" : "", r.steps, r.seconds);
	fflush(stdout);
	free(offsets);
	clv_pack_csv_free(&t);
	clv_input_close(&in);
	return r;
}

/* The number in NAME.CAPACITY.csv, or 0. */
static uint64_t capacity_of(const char *name)
{
	const char *dot = strchr(name, '.');
	int end = 0;
	uint64_t capacity = 0;
	if (dot && sscanf(dot, ".%" SCNu64 ".csv%n", &capacity, &end) == 1 && end && !dot[end])
		return capacity;
	return 0;
}

START_TEST(fit_their_capacity)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, NULL, alphasort), found = 0, missed = 0;
	for (int i = 0; i < n; i++) {
		uint64_t capacity = capacity_of(entries[i]->d_name);
		if (capacity) {
			found++;
			cleave_pack_settings settings = {.capacity = capacity, .effort = EFFORT_FIT};
			missed += !pack_file(entries[i]->d_name, settings).fits;
		}
		free(entries[i]);
	}
	free(entries);
	ck_assert_int_gt(found, 0);
	ck_assert_msg(!missed, "%d of %d do not fit", missed, found);
}
END_TEST

START_TEST(come_close_to_their_bound)
{
	int missed = 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(close_ones); i++) {
		cleave_pack_result r =
			pack_file(close_ones[i].name, (cleave_pack_settings){.effort = close_ones[i].effort});
		missed += (double)r.height > close_ones[i].over * (double)r.lower_bound;
	}
	ck_assert_msg(!missed, "%d are too high", missed);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {fit_their_capacity, come_close_to_their_bound};
	const char *shared = getenv("CLEAVE_SHARED");
	struct dirent **entries;
	snprintf(folder, sizeof(folder), "%s/packing", shared ? shared : "");
	int n = shared ? scandir(folder, &entries, NULL, NULL) : -1;
	if (n < 0) {
		printf("skipped: no instances: CLEAVE_SHARED names no folder with packing\n");
		return 77;
	}
	while (n)
		free(entries[--n]);
	free(entries);
	return check_main_run("packing_instances", tests, CLV_ARRAY_LEN(tests));
}
