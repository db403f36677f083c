/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* wait4 */
#include "check_main.h"
#include "cli_run.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX 32
#define NOT_STARTED 99 /* an exit status that nothing here has */

static char cli_dir[64]; /* of the running test */

/* What commands printed, in a list, so that a test need not free it. */
static struct printed {
	struct printed *next;
	char text[];
} * printed;

static const char *cleave(void)
{
	const char *path = getenv("CLEAVE_BIN");
	ck_assert_msg(path != NULL, "CLEAVE_BIN does not name the command to test");
	return path;
}

static void cli_setup(void)
{
	strcpy(cli_dir, "/tmp/cleave-cli-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(cli_dir));
}

static void cli_teardown(void)
{
	char line[256];
	snprintf(line, sizeof(line), "chmod -R u+rwx %s; rm -rf %s", cli_dir, cli_dir);
	ck_assert_int_eq(system(line), 0);
	while (printed) {
		struct printed *next = printed->next;
		free(printed);
		printed = next;
	}
}

static void path_of(const char *name, char *path, size_t len)
{
	snprintf(path, len, "%s/%s", cli_dir, name);
}

static char *read_back(const char *name, size_t *size)
{
	char path[128];
	path_of(name, path, sizeof(path));
	FILE *f = fopen(path, "rb");
	ck_assert_ptr_nonnull(f);
	fseek(f, 0, SEEK_END);
	long len = ftell(f);
	rewind(f);
	struct printed *p = calloc(1, sizeof(*p) + (size_t)len + 1);
	ck_assert_ptr_nonnull(p);
	p->next = printed;
	printed = p;
	ck_assert_uint_eq(fread(p->text, 1, (size_t)len, f), (size_t)len);
	fclose(f);
	*size = (size_t)len;
	return p->text;
}

static void redirect(const char *name, int fd)
{
	char path[128];
	path_of(name, path, sizeof(path));
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (file < 0 || dup2(file, fd) < 0)
		_exit(NOT_STARTED);
	close(file);
}

static struct cli_result run(const char *program, char *const argv[])
{
	static const char out_name[] = ".stdout", err_name[] = ".stderr"; /* out of the way of the test's own files */
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		redirect(out_name, STDOUT_FILENO);
		redirect(err_name, STDERR_FILENO);
		if (chdir(cli_dir) == 0)
			execv(program, argv);
		_exit(NOT_STARTED);
	}
	int wait_status;
	struct rusage usage;
	ck_assert_int_eq(wait4(pid, &wait_status, 0, &usage), pid);
	struct cli_result r;
	size_t err_len;
	r.status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1000 + WTERMSIG(wait_status);
	ck_assert_int_ne(r.status, NOT_STARTED);
	r.max_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
	r.out = read_back(out_name, &r.out_len);
	r.err = read_back(err_name, &err_len);
	return r;
}

struct cli_result cli_run(const char *first, ...)
{
	char *argv[ARGS_MAX] = {(char *)"cleave"};
	int argc = 1;
	va_list ap;
	va_start(ap, first);
	for (const char *a = first; a; a = va_arg(ap, const char *)) {
		ck_assert_int_lt(argc, ARGS_MAX - 1);
		argv[argc++] = (char *)a;
	}
	va_end(ap);
	return run(cleave(), argv);
}

struct cli_result cli_shell(const char *line)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)line, NULL};
	ck_assert_int_eq(setenv("CLEAVE", cleave(), 1), 0);
	return run("/bin/sh", argv);
}

const char *cli_path(const char *name)
{
	static char path[128];
	path_of(name, path, sizeof(path));
	return path;
}

const char *cli_file(const char *name, const void *data, size_t size)
{
	char path[128];
	path_of(name, path, sizeof(path));
	FILE *f = fopen(path, "wb");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(data, 1, size, f), size);
	ck_assert_int_eq(fclose(f), 0);
	return name;
}

const char *cli_text(const char *name, const char *text)
{
	return cli_file(name, text, strlen(text));
}

void cli_assert_refused(struct cli_result r, const char *part)
{
	ck_assert_msg(r.status == 2, "status %d, not 2: %s%s", r.status, r.out, r.err);
	ck_assert_str_eq(r.out, "");
	ck_assert_msg(strstr(r.err, part) != NULL, "'%s' does not say '%s'", r.err, part);
	const char *newline = strchr(r.err, '\n');
	ck_assert_msg(newline && newline[1] == '\0', "not one line: %s", r.err);
	ck_assert_msg(strncmp(r.err, "cleave", 6) == 0, "who speaks? %s", r.err);
}

int cli_suite(const char *name, const TTest *const *tests, size_t count)
{
	TCase *tcase = check_main_case(name);
	tcase_add_checked_fixture(tcase, cli_setup, cli_teardown);
	for (size_t i = 0; i < count; i++)
		tcase_add_test(tcase, tests[i]);
	return check_main_end(name, tcase);
}
