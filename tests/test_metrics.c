/* SPDX-License-Identifier: MIT
 *
 * The file for Prometheus, read by a parser as strict as the text format 0.0.4 and its collector: names, labels, HELP and TYPE
 * before the samples of a family, which stand together, no series twice, counters that end in _total.
 */
#define _GNU_SOURCE
#include "../src/host/meta.h"
#include "../src/live/metrics.h"
#include "check_main.h"
#include "live_rig.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the parser ---- */

#define SERIES_MAX 512

struct metrics {
	struct series {
		char name[64], labels[192]; /* labels as written */
		char type[16];
		double value;
	} series[SERIES_MAX];
	unsigned count;
	char families[64][64];
	unsigned family_count;
};

static const char *take_name(const char *at, char *out, size_t room, bool colons)
{
	size_t n = 0;
	while ((at[n] >= 'a' && at[n] <= 'z') || (at[n] >= 'A' && at[n] <= 'Z') || at[n] == '_' ||
	       (colons && at[n] == ':') || (n && at[n] >= '0' && at[n] <= '9'))
		n++;
	ck_assert_msg(n && n < room, "no name: %.40s", at);
	memcpy(out, at, n);
	out[n] = '\0';
	return at + n;
}

/* {a="b",c="d"} with each name once. */
static const char *take_labels(const char *at, char *out, size_t room)
{
	const char *start = at;
	char names[8][32];
	unsigned count = 0;
	*out = '\0';
	if (*at != '{')
		return at;
	do {
		ck_assert_uint_lt(count, CLV_ARRAY_LEN(names));
		at = take_name(at + 1, names[count], sizeof(names[0]), false);
		for (unsigned i = 0; i < count; i++)
			ck_assert_str_ne(names[i], names[count]);
		ck_assert_msg(strncmp(names[count], "__", 2) && strcmp(names[count], "pid"), "%s", names[count]);
		count++;
		ck_assert_msg(!strncmp(at, "=\"", 2), "%.40s", at);
		for (at += 2; *at != '"'; at++) {
			ck_assert_msg(*at && *at != '\n', "a label's value has no end");
			if (*at == '\\')
				ck_assert_msg(strchr("\\\"n", *++at) != NULL, "\\%c", *at);
		}
		at++;
	} while (*at == ',');
	ck_assert_msg(*at == '}', "%.40s", at);
	at++;
	ck_assert_uint_lt((size_t)(at - start), room);
	memcpy(out, start, (size_t)(at - start));
	out[at - start] = '\0';
	return at;
}

static void parse(const char *text, struct metrics *m)
{
	char name[64], type[16] = "", family[64] = "", helped[64] = "";
	memset(m, 0, sizeof(*m));
	while (*text) {
		const char *end = strchr(text, '\n');
		ck_assert_msg(end != NULL, "the last line has no end");
		if (!strncmp(text, "# HELP ", 7)) {
			const char *help = take_name(text + 7, helped, sizeof(helped), true);
			ck_assert_msg(*help == ' ' && end - help > 5, "HELP of %s says nothing", helped);
			for (unsigned i = 0; i < m->family_count; i++)
				ck_assert_msg(strcmp(m->families[i], helped), "%s comes twice", helped);
			strcpy(m->families[m->family_count++], helped);
			ck_assert_uint_lt(m->family_count, CLV_ARRAY_LEN(m->families));
		} else if (!strncmp(text, "# TYPE ", 7)) {
			const char *is = take_name(text + 7, family, sizeof(family), true);
			ck_assert_str_eq(family, helped);
			ck_assert_msg(!strncmp(is, " gauge\n", 7) || !strncmp(is, " counter\n", 9), "%.40s", is);
			snprintf(type, sizeof(type), "%.*s", (int)(end - is - 1), is + 1);
			bool total = strlen(family) > 6 && !strcmp(family + strlen(family) - 6, "_total");
			ck_assert_msg(total == !strcmp(type, "counter"), "%s is a %s", family, type);
		} else {
			struct series *s = &m->series[m->count++];
			ck_assert_uint_lt(m->count, SERIES_MAX);
			const char *at = take_name(text, name, sizeof(name), true);
			ck_assert_msg(!strcmp(name, family), "%s stands under %s", name, family);
			at = take_labels(at, s->labels, sizeof(s->labels));
			char *after;
			ck_assert_msg(*at == ' ' && at[1] != ' ', "%.60s", text);
			s->value = strtod(at + 1, &after);
			ck_assert_msg(after == end && after > at + 1, "%.60s", text); /* a number, and no time */
			strcpy(s->name, name);
			strcpy(s->type, type);
			for (unsigned i = 0; i + 1 < m->count; i++)
				ck_assert_msg(strcmp(m->series[i].name, name) || strcmp(m->series[i].labels, s->labels),
					      "%s%s comes twice", name, s->labels);
		}
		text = end + 1;
	}
}

static double value_of(const struct metrics *m, const char *name, const char *labels)
{
	for (unsigned i = 0; i < m->count; i++)
		if (!strcmp(m->series[i].name, name) && !strcmp(m->series[i].labels, labels))
			return m->series[i].value;
	ck_abort_msg("there is no %s%s", name, labels);
	return 0;
}

/* ---- the text ---- */

static struct metrics printed(int64_t rank)
{
	struct clv_stat_view view;
	struct metrics m;
	size_t answer_len, len;
	void *answer = clv_gather(&live, CLV_STAT_ASK, &answer_len);
	ck_assert_ptr_nonnull(answer);
	ck_assert(clv_stat_view(answer, answer_len, &view, NULL));
	char *text = clv_metrics_print(&view, rank, &len);
	ck_assert_ptr_nonnull(text);
	ck_assert_uint_eq(strlen(text), len);
	parse(text, &m);
	clv_meta_free(text);
	clv_meta_free(answer);
	return m;
}

static void label_of_device(const struct metrics *m)
{
	for (unsigned i = 0; i < m->count; i++)
		ck_assert_msg(strcmp(m->series[i].name, "cleave_build_info")
				      ? !strncmp(m->series[i].labels, "{device=\"", 9)
				      : !strstr(m->series[i].labels, "device"),
			      "%s%s", m->series[i].name, m->series[i].labels);
}

START_TEST(numbers)
{
	live_open("growth:tight,frame:2MiB,reserve:3MiB*2+name=w13,reserve:5MiB+name=w13,reserve:7MiB");
	struct metrics m = printed(-1);
	label_of_device(&m);
	ck_assert_uint_gt(m.count, 10); /* calls of the driver, and which version it is */
	cleave_ptr small[3] = {live_alloc(700), live_alloc(4200), live_alloc(512)}, large = live_alloc(3 * CLV_MIB),
		   none;
	live_free(small[2]);
	ck_assert_int_eq(cleave_alloc(live.heap, 0, LIVE_STREAM, 500 * CLV_MIB, &none), -ENOMEM);
	ck_assert_int_eq(cleave_alloc(live.heap, 1, LIVE_STREAM, 100000, &none), 0);
	m = printed(-1);
	label_of_device(&m);
	ck_assert_double_eq(value_of(&m, "cleave_requested_bytes", "{device=\"0\"}"), 3 * CLV_MIB + 1024 + 4608);
	ck_assert_double_eq(value_of(&m, "cleave_allocated_bytes", "{device=\"0\"}"), 3 * CLV_MIB + 1024 + 5120);
	ck_assert_double_eq(value_of(&m, "cleave_requested_bytes", "{device=\"1\"}"), 100352);
	ck_assert_double_eq(value_of(&m, "cleave_allocations_total", "{device=\"0\",class=\"small\"}"), 3);
	ck_assert_double_eq(value_of(&m, "cleave_allocations_total", "{device=\"0\",class=\"large\"}"), 1);
	ck_assert_double_eq(value_of(&m, "cleave_allocations_total", "{device=\"1\",class=\"large\"}"), 1);
	ck_assert_double_eq(value_of(&m, "cleave_frees_total", "{device=\"0\"}"), 1);
	ck_assert_double_eq(value_of(&m, "cleave_oom_total", "{device=\"0\",cause=\"capacity\"}"), 1);
	ck_assert_double_eq(value_of(&m, "cleave_oom_total", "{device=\"0\",cause=\"driver\"}"), 0);
	ck_assert_double_eq(value_of(&m, "cleave_build_info", "{version=\"" CLV_VERSION "\"}"), 1);
	double sum = value_of(&m, "cleave_allocated_bytes", "{device=\"0\"}"),
	       held = value_of(&m, "cleave_reserved_bytes", "{device=\"0\"}");
	static const char *const causes[] = {"hard", "soft", "stream"};
	for (unsigned i = 0; i < CLV_ARRAY_LEN(causes); i++) {
		char labels[64];
		snprintf(labels, sizeof(labels), "{device=\"0\",cause=\"%s\"}", causes[i]);
		sum += value_of(&m, "cleave_stranded_bytes", labels);
	}
	sum += value_of(&m, "cleave_reservation_bytes", "{device=\"0\",class=\"w13\"}") +
	       value_of(&m, "cleave_reservation_bytes", "{device=\"0\",class=\"7340032\"}");
	ck_assert_double_eq(sum, held);
	ck_assert_double_eq_tol(value_of(&m, "cleave_fragmentation_ratio", "{device=\"0\",kind=\"external\"}"),
				value_of(&m, "cleave_stranded_bytes", "{device=\"0\",cause=\"hard\"}") / held, 1e-6);
	ck_assert_double_eq_tol(value_of(&m, "cleave_fragmentation_ratio", "{device=\"0\",kind=\"internal\"}"),
				512.0 / (3 * CLV_MIB + 1024 + 5120), 1e-6);
	ck_assert_double_gt(value_of(&m, "cleave_driver_calls_total", "{device=\"all\",call=\"cuMemCreate\"}"), 0);
	ck_assert_double_gt(value_of(&m, "cleave_driver_call_seconds_total", "{device=\"all\"}"), 0);
	live_free(large);
}
END_TEST

/* Two of one name are one series. */
START_TEST(reservations)
{
	live_open("reserve:3MiB*2+name=w13,reserve:5MiB+name=w13,reserve:7MiB,reserve:7MiB*2");
	live_alloc(CLV_MIB);
	struct metrics m = printed(-1);
	ck_assert_double_eq(value_of(&m, "cleave_reservation_bytes", "{device=\"0\",class=\"w13\"}"), 11 * CLV_MIB);
	ck_assert_double_eq(value_of(&m, "cleave_reservation_bytes", "{device=\"0\",class=\"7340032\"}"), 21 * CLV_MIB);
}
END_TEST

START_TEST(names_that_need_quotes)
{
	live_open("");
	uint64_t id;
	const cleave_reservation r = {.bytes = CLV_MIB, .count = 1, .name = "a\"b\\c\n1"};
	ck_assert_int_eq(cleave_reserve(live.heap, 0, &r, &id), 0);
	struct metrics m = printed(-1);
	ck_assert_double_eq(value_of(&m, "cleave_reservation_bytes", "{device=\"0\",class=\"a\\\"b\\\\c\\n1\"}"),
			    CLV_MIB);
}
END_TEST

START_TEST(ranks)
{
	live_open("");
	live_alloc(CLV_MIB);
	struct metrics m = printed(3);
	for (unsigned i = 0; i < m.count; i++)
		ck_assert_msg(strstr(m.series[i].labels, ",rank=\"3\"}"), "%s%s", m.series[i].name, m.series[i].labels);
	ck_assert_double_eq(value_of(&m, "cleave_requested_bytes", "{device=\"0\",rank=\"3\"}"), CLV_MIB);
}
END_TEST

/* ---- the file ---- */

static char folder[] = "/tmp/cleave-metrics-XXXXXX";

static char *contents(const char *path)
{
	static char text[64 << 10];
	FILE *f = fopen(path, "r");
	if (!f)
		return NULL;
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	return text;
}

static unsigned files_in_folder(void)
{
	unsigned n = 0;
	DIR *d = opendir(folder);
	for (struct dirent *e = readdir(d); e; e = readdir(d))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

START_TEST(a_file)
{
	char settings[128], path[128];
	setenv("RANK", "5", 1);
	snprintf(settings, sizeof(settings), "stat:off,metrics_interval:0.02,metrics:%s/m-%%p-%%r.prom", folder);
	snprintf(path, sizeof(path), "%s/m-%d-5.prom", folder, (int)getpid());
	live_open(settings);
	live_alloc(CLV_MIB);
	clv_stat_serve(&live);
	/* at every moment there is a whole file, once there is one; and it goes on */
	double allocs = 0;
	unsigned looks = 0, changes = 0;
	for (int i = 0; i < 100000 && changes < 5; i++) {
		struct metrics m;
		char *text = contents(path);
		if (!text) {
			ck_assert_uint_eq(looks, 0);
			usleep(1000);
			continue;
		}
		looks++;
		parse(text, &m);
		double now = value_of(&m, "cleave_allocations_total", "{device=\"0\",class=\"large\",rank=\"5\"}");
		ck_assert_double_ge(now, allocs);
		changes += now > allocs;
		allocs = now;
		live_free(live_alloc(CLV_MIB));
	}
	ck_assert_uint_eq(changes, 5);
	struct stat st;
	ck_assert_int_eq(stat(path, &st), 0);
	mode_t mask = umask(0);
	ck_assert_int_eq(st.st_mode & 0777, 0644 & ~mask); /* the collector is another user */
	ck_assert_uint_le(files_in_folder(), 2);           /* and one that is being written */
	ck_assert_uint_eq(live_said, 0);
}
END_TEST

/* Where it cannot be written that is said once, and it is tried again. */
START_TEST(a_file_that_cannot_be_written)
{
	char settings[128], path[128], sub[128];
	snprintf(settings, sizeof(settings), "metrics_interval:0.01,metrics:%s/sub/m.prom", folder);
	snprintf(path, sizeof(path), "%s/sub/m.prom", folder);
	snprintf(sub, sizeof(sub), "%s/sub", folder);
	live_open(settings);
	ck_assert(clv_metrics_open(&live));
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(clv_metrics_work(&live), 10);
		int wait = clv_metrics_work(&live); /* not due */
		ck_assert(wait >= 1 && wait <= 11);
		usleep(12000);
	}
	ck_assert_uint_eq(live_said, 1);
	ck_assert_int_eq(mkdir(sub, 0755), 0);
	ck_assert_int_eq(clv_metrics_work(&live), 10);
	ck_assert_ptr_nonnull(contents(path));
	ck_assert_uint_eq(live_said, 1);
	/* what is in the way of the temporary file is left alone, and nothing is written through it */
	char temporary[160], elsewhere[128];
	snprintf(temporary, sizeof(temporary), "%s.tmp", path);
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", folder);
	ck_assert_int_eq(symlink(elsewhere, temporary), 0);
	usleep(12000);
	clv_metrics_work(&live);
	ck_assert_uint_eq(live_said, 2);
	ck_assert_int_eq(access(elsewhere, F_OK), -1);
}
END_TEST

/* The folder goes when the processes of the tests have ended, whose threads write into it. */
int main(void)
{
	char line[128];
	const TTest *const tests[] = {numbers, reservations, names_that_need_quotes,
				      ranks,   a_file,       a_file_that_cannot_be_written};
	if (!mkdtemp(folder))
		return EXIT_FAILURE;
	int status = check_main_run("metrics", tests, CLV_ARRAY_LEN(tests));
	snprintf(line, sizeof(line), "rm -rf '%s'", folder);
	return system(line) ? EXIT_FAILURE : status;
}
