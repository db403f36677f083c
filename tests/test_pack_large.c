/* SPDX-License-Identifier: MIT
 *
 * Packings of up to 100,000 buffers: valid, within a time limit, with memory in proportion; the command with them as well.
 * Here time counts, so nothing should run beside it.
 */
#include "cli_run.h"
#include "json_expect.h"
#include "pack_check.h"
#include "pack_maker.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const unsigned kinds[] = {0, PACK_PINWHEELS, PACK_ALIGNED, PACK_FIXED, PACK_GAPS, PACK_KINDS - 1};

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cleave_pack_result pack_checked(const struct pack_made *m, const cleave_pack_settings *settings)
{
	cleave_pack_result r;
	uint64_t *offsets = pack_room(m->count, sizeof(*offsets));
	ck_assert_int_eq(cleave_pack(m->buffers, m->count, settings, offsets, &r, NULL, 0), 0);
	const char *wrong = pack_wrong(m->buffers, m->count, settings->capacity, offsets, &r);
	ck_assert_msg(!wrong, "%s", wrong);
	ck_assert_uint_le(r.lower_bound, m->height);
	ck_assert_uint_ge(r.lower_bound, pack_load(m->buffers, m->count));
	ck_assert_uint_ge(r.height, m->height);
	free(offsets);
	return r;
}

START_TEST(valid)
{
	for (size_t count = 10000; count <= 100000; count += 45000)
		for (size_t k = 0; k < CLV_ARRAY_LEN(kinds); k++) {
			struct pack_made m = pack_make(count, kinds[k], k);
			cleave_pack_result r = pack_checked(&m, &(cleave_pack_settings){.effort = 200000000});
			printf("%zu buffers, kinds %2u: height %.4f of the bound, %" PRIu64 " steps, %.2f s\n", count,
			       kinds[k], (double)r.height / (double)r.lower_bound, r.steps, r.seconds);
			fflush(stdout);
			pack_made_free(&m);
		}
}
END_TEST

/* Within 10 %, and the time told is the time taken. */
START_TEST(time_limits_are_kept)
{
	for (size_t k = 0; k < CLV_ARRAY_LEN(kinds); k++)
		for (size_t count = 1000; count <= 100000; count *= 10) {
			struct pack_made m = pack_make(count, kinds[k], 7);
			uint64_t *offsets = pack_room(m.count, sizeof(*offsets));
			const cleave_pack_settings settings = {.time_limit_s = 1, .effort = INT64_MAX};
			cleave_pack_result r;
			double begin = now_s();
			ck_assert_int_eq(cleave_pack(m.buffers, m.count, &settings, offsets, &r, NULL, 0), 0);
			double took = now_s() - begin;
			printf("%zu buffers, kinds %2u, 1 s: %.3f s, height %.4f of the bound\n", count, kinds[k], took,
			       (double)r.height / (double)r.lower_bound);
			fflush(stdout);
			ck_assert_double_le(took, 1.1);
			ck_assert_double_le(r.seconds, took);
			ck_assert_double_ge(r.seconds, took - 0.05);
			const char *wrong = pack_wrong(m.buffers, m.count, 0, offsets, &r);
			ck_assert_msg(!wrong, "%s", wrong);
			free(offsets);
			pack_made_free(&m);
		}
}
END_TEST

static uint64_t peak_bytes(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)usage.ru_maxrss * 1024;
}

/* What packing adds to the most memory that a process of its own had. The set itself is made before, and smaller things
 * are lost in the noise of pages. */
static uint64_t packing_takes(size_t count, unsigned kind)
{
	int ends[2];
	uint64_t bytes = 0;
	ck_assert_int_eq(pipe(ends), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct pack_made m = pack_make(count, kind, 9);
		uint64_t *offsets = pack_room(m.count, sizeof(*offsets)), before;
		memset(offsets, 1, m.count * sizeof(*offsets));
		const cleave_pack_settings settings = {.effort = 50000000};
		cleave_pack_result r;
		before = peak_bytes();
		bool ok = cleave_pack(m.buffers, m.count, &settings, offsets, &r, NULL, 0) == 0;
		bytes = peak_bytes() - before;
		_exit(!ok || write(ends[1], &bytes, sizeof(bytes)) != sizeof(bytes));
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(read(ends[0], &bytes, sizeof(bytes)), sizeof(bytes));
	close(ends[0]);
	close(ends[1]);
	return bytes;
}

START_TEST(memory_in_proportion)
{
	for (size_t k = 0; k < CLV_ARRAY_LEN(kinds); k++) {
		uint64_t few = packing_takes(10000, kinds[k]), many = packing_takes(100000, kinds[k]);
		printf("kinds %2u: %" PRIu64 " B a buffer of 10,000, %" PRIu64 " of 100,000\n", kinds[k], few / 10000,
		       many / 100000);
		ck_assert_uint_lt(many, 15 * clv_max_u64(few, CLV_MIB));
		ck_assert_uint_lt(many / 100000, 4096);
	}
}
END_TEST

/* A user waits for reading and writing as well: the limit leaves room for them. */
START_TEST(the_command)
{
	struct pack_made m = pack_make(100000, 0, 3);
	size_t room = 64 * m.count + 64;
	char *text = pack_room(room, 1);
	size_t n = (size_t)snprintf(text, room, "size,id,upper,lower\n");
	for (size_t i = 0; i < m.count; i++)
		n += (size_t)snprintf(text + n, room - n, "%" PRIu64 ",buffer %zu,%" PRId64 ",%" PRId64 "\n",
				      m.buffers[i].size, i, m.buffers[i].upper, m.buffers[i].lower);
	cli_file("t.csv", text, n);
	double begin = now_s();
	struct cli_result r = cli_run("pack", "t.csv", "--time-limit", "1", "--json", "-o", "out.csv", NULL);
	double took = now_s() - begin;
	ck_assert_msg(r.status == 0, "%s", r.err);
	json_t *doc = json_loads(r.out, 0, NULL);
	ck_assert_ptr_nonnull(doc);
	ck_assert_int_eq(whole(doc, "buffers"), (json_int_t)m.count);
	printf("the command, 100,000 buffers, 1 s: %.3f s, %" PRIu64 " KiB\n", took, r.max_rss_bytes / 1024);
	ck_assert_double_le(took, 1.1);

	/* What it wrote, checked. */
	uint64_t *offsets = pack_room(m.count, sizeof(*offsets));
	FILE *f = fopen(cli_path("out.csv"), "r");
	char line[256];
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_str_eq(line, "size,id,upper,lower,offset\n");
	for (size_t i = 0; i < m.count; i++) {
		ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
		offsets[i] = strtoull(strrchr(line, ',') + 1, NULL, 10);
	}
	ck_assert_ptr_null(fgets(line, sizeof(line), f));
	fclose(f);
	cleave_pack_result said = {.lower_bound = (uint64_t)whole(doc, "lower_bound"),
				   .height = (uint64_t)whole(doc, "height"),
				   .optimal = json_is_true(json_object_get(doc, "optimal")),
				   .fits = 1};
	const char *wrong = pack_wrong(m.buffers, m.count, 0, offsets, &said);
	ck_assert_msg(!wrong, "%s", wrong);
	json_decref(doc);
	free(offsets);
	free(text);
	pack_made_free(&m);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {valid, time_limits_are_kept, memory_in_proportion, the_command};
	return cli_suite("pack_large", tests, CLV_ARRAY_LEN(tests));
}
