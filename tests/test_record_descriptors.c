/* SPDX-License-Identifier: MIT
 *
 * The recorder's file in a program that treats descriptors and folders as its own: closes all that it does not know, opens its
 * files under the same numbers, has no stdout, goes elsewhere.
 */
#include "../tracing/record/record_file.h"
#include "record_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FIRST 3
#define MOST 64
#define PRECIOUS "precious\n"

/* Check writes to a descriptor of its own wherever it asserts something, and here that is closed. */
#define NEED(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                      \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

/* What daemons do, and what they open next: files that take all the numbers. Returns how many. */
static unsigned take_all_numbers(int mine[MOST])
{
	unsigned n = 0;
	for (int fd = FIRST; fd < MOST; fd++)
		close(fd);
	for (; n < MOST - FIRST; n++) {
		char name[160];
		snprintf(name, sizeof(name), "%s/mine.%u", rig_folder, n);
		mine[n] = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		NEED(mine[n] >= 0);
		NEED(write(mine[n], PRECIOUS, strlen(PRECIOUS)) == (ssize_t)strlen(PRECIOUS));
	}
	return n;
}

/* Each is open, the file that it was, and holds what was written to it. */
static void check_untouched(const int *mine, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		char text[64];
		NEED(pread(mine[i], text, sizeof(text), 0) == (ssize_t)strlen(PRECIOUS));
		NEED(!memcmp(text, PRECIOUS, strlen(PRECIOUS)));
	}
}

static void start(const struct clv_record_config *config)
{
	struct clv_record_config c = *config;
	struct clv_error err = {{0}};
	if (!c.path)
		c.path = rig_path;
	NEED(clv_record_open(&c, &err));
}

static void put(unsigned first, unsigned count)
{
	for (unsigned i = first; i < first + count; i++)
		rig_event(CLV_EVENT_ALLOC, 0, 1, (i + 1) * 4096ull, 512);
}

/* In a child, since the numbers are also those of the test's own log. */
static void in_child(void (*body)(void))
{
	int status;
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		body();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "status %x", (unsigned)status);
}

static void numbers_are_taken(void)
{
	int mine[MOST];
	struct clv_record_stats stats;
	start(&(struct clv_record_config){.flush_ms = 1});
	put(0, 1000);
	NEED(clv_record_flush(10000));
	unsigned count = take_all_numbers(mine);
	put(1000, 1000);
	close(mine[0]); /* room for one */
	NEED(clv_record_flush(10000));
	put(2000, 1000);
	NEED(clv_record_flush(10000));
	check_untouched(mine + 1, count - 1);
	take_all_numbers(mine);
	clv_record_close();
	clv_record_get_stats(&stats);
	check_untouched(mine, count);
	NEED(stats.events == 3000);
	NEED(stats.dropped == 0);
}

START_TEST(a_program_that_closes_everything)
{
	rig_begin();
	in_child(numbers_are_taken);
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_ptr_null(t->note); /* it has its end */
	ck_assert_uint_eq(rig_events(t), 3000);
	clv_trace_free(t);
	rig_end();
}
END_TEST

static char said[512];

static void say(const char *sentence)
{
	snprintf(said, sizeof(said), "%s", sentence);
}

static void number_and_name_are_taken(void)
{
	int mine[MOST];
	struct clv_record_stats stats;
	start(&(struct clv_record_config){.flush_ms = 1, .say = say});
	put(0, 10);
	NEED(clv_record_flush(10000));
	unsigned count = take_all_numbers(mine);
	NEED(unlink(rig_path) == 0);
	int other = dup2(mine[0], MOST);
	snprintf(said, sizeof(said), "%s/mine.0", rig_folder);
	NEED(rename(said, rig_path) == 0);
	put(10, 10);
	clv_record_close();
	clv_record_get_stats(&stats);
	check_untouched(mine, count);
	check_untouched(&other, 1);
	NEED(strstr(said, rig_path));
	NEED(stats.events == 10);
	NEED(stats.dropped == 10); /* what there is no file for is counted */
}

START_TEST(another_file_has_the_name)
{
	rig_begin();
	in_child(number_and_name_are_taken);
	rig_end();
}
END_TEST

/* The child of a fork closes the record, not what has its number by then. */
static void forks(void)
{
	int mine[MOST], status;
	start(&(struct clv_record_config){.flush_ms = 60000});
	put(0, 10);
	NEED(clv_record_flush(10000));
	unsigned count = take_all_numbers(mine);
	pid_t child = fork();
	if (child == 0) {
		check_untouched(mine, count);
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child);
	NEED(status == 0);
}

START_TEST(a_child_of_such_a_program)
{
	rig_begin();
	in_child(forks);
	rig_end();
}
END_TEST

static void without_stdout(void)
{
	for (int fd = 0; fd < FIRST; fd++)
		close(fd);
	start(&(struct clv_record_config){.flush_ms = 1});
	for (int fd = 0; fd < FIRST; fd++)
		NEED(write(fd, "printed\n", 8) == -1);
	put(0, 10);
	clv_record_close();
}

START_TEST(a_program_without_stdout)
{
	rig_begin();
	in_child(without_stdout);
	struct clv_trace *t = rig_read(rig_path);
	ck_assert_uint_eq(rig_events(t), 10);
	clv_trace_free(t);
	rig_end();
}
END_TEST

/* A name without a folder is of the folder that the recording began in. */
static void goes_elsewhere(void)
{
	NEED(chdir(rig_folder) == 0);
	start(&(struct clv_record_config){.path = "r.clv", .limit_bytes = 1 << 16, .keep = 1, .flush_ms = 1});
	NEED(mkdir("elsewhere", 0700) == 0);
	NEED(chdir("elsewhere") == 0);
	int mine = open("r.clv", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	NEED(write(mine, PRECIOUS, strlen(PRECIOUS)) == (ssize_t)strlen(PRECIOUS));
	for (unsigned i = 0; i < 60000; i++)
		rig_event(i % 2 ? CLV_EVENT_FREE : CLV_EVENT_ALLOC, 0, 1, clv_mix64(i / 2) >> 16, 512);
	clv_record_close();
	struct clv_record_stats stats;
	clv_record_get_stats(&stats);
	NEED(stats.files > 2);
	check_untouched(&mine, 1);
	NEED(unlink("r.clv") == 0); /* nobody removed it */
	NEED(rmdir("../elsewhere") == 0);
}

START_TEST(a_program_that_changes_its_folder)
{
	rig_begin();
	in_child(goes_elsewhere);
	ck_assert_uint_eq(rig_files("r.clv."), 2);
	rig_end();
}
END_TEST

CHECK_MAIN("record_descriptors", a_program_that_closes_everything, another_file_has_the_name, a_child_of_such_a_program,
	   a_program_without_stdout, a_program_that_changes_its_folder)
