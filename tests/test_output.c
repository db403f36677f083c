/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* O_TMPFILE */
#include "../tracing/output.h"
#include "check_main.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool no_tmpfile; /* as on a file system that has no files without a name */

/* Both are linked in place of the C library's: which of them is called depends on the size of its offsets. */
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

int __wrap_open64(const char *path, int flags, ...)
{
	mode_t mode = 0;
	if (flags & (O_CREAT | O_TMPFILE)) {
		va_list ap;
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if (no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return __wrap_open64(path, flags, mode);
}

static char folder[64];

static const char *in_folder(const char *name)
{
	static char paths[4][PATH_MAX];
	static unsigned next;
	char *path = paths[next++ % 4];
	snprintf(path, PATH_MAX, "%s/%s", folder, name);
	return path;
}

static void setup(void)
{
	snprintf(folder, sizeof(folder), "/tmp/clv_output.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(mkdir(in_folder("sub"), 0777), 0);
}

static void empty(const char *path)
{
	DIR *d = opendir(path);
	ck_assert_ptr_nonnull(d);
	for (struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	ck_assert_int_eq(rmdir(path), 0);
}

static void teardown(void)
{
	empty(in_folder("sub"));
	empty(folder);
}

/* Files and links in the test's folder and the one below. */
static int files(void)
{
	int n = 0;
	for (int i = 0; i < 2; i++) {
		DIR *d = opendir(i ? in_folder("sub") : folder);
		ck_assert_ptr_nonnull(d);
		for (struct dirent *e; (e = readdir(d));)
			n += e->d_name[0] != '.' && strcmp(e->d_name, "sub") != 0;
		closedir(d);
	}
	return n;
}

static void make(const char *name, const char *text)
{
	FILE *f = fopen(in_folder(name), "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static void holds(const char *name, const char *text)
{
	char buf[64];
	FILE *f = fopen(in_folder(name), "r");
	ck_assert_msg(f != NULL, "no %s", name);
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = '\0';
	fclose(f);
	ck_assert_str_eq(buf, text);
}

static void writes(const char *name, const char *text)
{
	struct clv_output o;
	struct clv_error err = {{0}};
	ck_assert_msg(clv_output_begin(&o, in_folder(name), &err), "%s", err.text);
	clv_output_write(&o, text, strlen(text), &err);
	ck_assert_msg(clv_output_end(&o, true, &err), "%s", err.text);
}

static void is_link(const char *name)
{
	struct stat st;
	ck_assert_int_eq(lstat(in_folder(name), &st), 0);
	ck_assert_msg(S_ISLNK(st.st_mode), "%s is no link any more", name);
}

START_TEST(appears_when_complete)
{
	struct clv_output o;
	struct clv_error err = {{0}};
	struct stat st;
	no_tmpfile = _i;
	mode_t mask = umask(027);
	make("old", "old");
	for (int keep = 0; keep < 2; keep++) {
		ck_assert_msg(clv_output_begin(&o, in_folder("old"), &err), "%s", err.text);
		clv_output_write(&o, "new", 3, &err);
		holds("old", "old");
		ck_assert_int_eq(clv_output_end(&o, keep, &err), keep);
		holds("old", keep ? "new" : "old");
		ck_assert_int_eq(files(), 1);
	}
	writes("fresh", "text");
	holds("fresh", "text");
	ck_assert_int_eq(files(), 2);
	ck_assert_int_eq(stat(in_folder("fresh"), &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0640);
	umask(mask);
	/* where none can be made */
	ck_assert(!clv_output_begin(&o, in_folder("no/file"), &err));
	ck_assert_msg(strstr(err.text, "no/file: cannot be created: No such file") != NULL, "%s", err.text);
	err.text[0] = '\0';
	ck_assert(!clv_output_begin(&o, in_folder("fresh/file"), &err));
	ck_assert_msg(strstr(err.text, "Not a directory") != NULL, "%s", err.text);
}
END_TEST

/* A process that is ended while it writes cannot tidy up. */
START_TEST(ended_by_a_signal)
{
	int probe = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600), ready[2];
	if (probe < 0)
		return; /* the file system cannot do it */
	close(probe);
	ck_assert_int_eq(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct clv_output o;
		struct clv_error err = {{0}};
		signal(SIGTERM, SIG_DFL);
		if (!clv_output_begin(&o, in_folder("out"), &err))
			_exit(1);
		clv_output_write(&o, "half", 4, &err);
		ck_assert_int_eq(write(ready[1], "", 1), 1);
		for (;;)
			pause();
	}
	char c;
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	int status;
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	ck_assert_int_eq(files(), 0);
}
END_TEST

/* What an earlier process of the same id left behind is in nobody's way. */
START_TEST(names_that_are_taken)
{
	char taken[64];
	no_tmpfile = _i;
	snprintf(taken, sizeof(taken), "out.part%ld", (long)getpid());
	make(taken, "left");
	make("out", "old");
	writes("out", "new");
	holds("out", "new");
	holds(taken, "left");
	ck_assert_int_eq(files(), 2);
}
END_TEST

/* Two at once in one process. */
START_TEST(two_at_once)
{
	struct clv_output a, b;
	struct clv_error err = {{0}};
	no_tmpfile = _i;
	ck_assert_msg(clv_output_begin(&a, in_folder("out"), &err), "%s", err.text);
	ck_assert_msg(clv_output_begin(&b, in_folder("out"), &err), "%s", err.text);
	clv_output_write(&a, "a", 1, &err);
	clv_output_write(&b, "b", 1, &err);
	ck_assert(clv_output_end(&a, true, &err));
	holds("out", "a");
	ck_assert(clv_output_end(&b, true, &err));
	holds("out", "b");
	ck_assert_int_eq(files(), 1);
}
END_TEST

/* The file appears where the last link points, whether there was one or not. */
START_TEST(links)
{
	no_tmpfile = _i;
	ck_assert_int_eq(symlink("real", in_folder("link")), 0);
	ck_assert_int_eq(symlink("../link", in_folder("sub/chain")), 0);
	ck_assert_int_eq(symlink(in_folder("sub/far"), in_folder("absolute")), 0);
	ck_assert_int_eq(symlink("round", in_folder("round")), 0);
	ck_assert_int_eq(symlink("no/where", in_folder("lost")), 0);
	for (int i = 0; i < 2; i++) { /* dangling, then not */
		writes("link", i ? "2" : "1");
		holds("real", i ? "2" : "1");
		is_link("link");
		writes("absolute", i ? "4" : "3");
		holds("sub/far", i ? "4" : "3");
		is_link("absolute");
	}
	ck_assert_int_eq(unlink(in_folder("real")), 0);
	writes("sub/chain", "5");
	holds("real", "5");
	is_link("sub/chain");
	is_link("link");
	struct clv_output o;
	struct clv_error err = {{0}};
	ck_assert(!clv_output_begin(&o, in_folder("round"), &err));
	ck_assert_msg(strstr(err.text, "symbolic links") != NULL, "%s", err.text);
	err.text[0] = '\0';
	ck_assert(!clv_output_begin(&o, in_folder("lost"), &err));
	ck_assert_msg(strstr(err.text, "lost: cannot be created: No such file") != NULL, "%s", err.text);
	ck_assert_int_eq(files(), 7);
}
END_TEST

/* Without a folder in it; as long as a name can be, where the one beside it must not be longer. */
START_TEST(names)
{
	char name[NAME_MAX + 2], here[PATH_MAX];
	struct clv_output o;
	struct clv_error err = {{0}};
	no_tmpfile = _i;
	memset(name, 'x', sizeof(name));
	name[NAME_MAX + 1] = '\0';
	ck_assert(!clv_output_begin(&o, in_folder(name), &err));
	ck_assert_msg(strstr(err.text, "name too long") != NULL, "%s", err.text);
	name[NAME_MAX] = '\0';
	make(name, "old");
	writes(name, "new");
	holds(name, "new");
	ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
	ck_assert_int_eq(chdir(folder), 0);
	err.text[0] = '\0';
	ck_assert_msg(clv_output_begin(&o, "plain", &err), "%s", err.text);
	ck_assert(clv_output_end(&o, true, &err));
	ck_assert_int_eq(chdir(here), 0);
	holds("plain", "");
	ck_assert_int_eq(files(), 2);
}
END_TEST

static bool same(const char *a, const char *b)
{
	char first[PATH_MAX];
	snprintf(first, sizeof(first), "%s", in_folder(a));
	bool is = clv_output_same(first, in_folder(b));
	ck_assert(clv_output_same(in_folder(b), first) == is);
	return is;
}

/* By whatever way a file is reached, and whether it is there. */
START_TEST(same_files)
{
	struct clv_output o;
	struct clv_error err = {{0}};
	make("there", "1");
	ck_assert_int_eq(symlink("there", in_folder("link")), 0);
	ck_assert_int_eq(symlink("../nothing", in_folder("sub/far")), 0);
	ck_assert(same("there", "there") && same("there", "sub/../there") && same("link", "./there"));
	ck_assert(same("nothing", "sub/../nothing") && same("sub/far", "nothing"));
	ck_assert(!same("there", "nothing") && !same("nothing", "sub/nothing") && !same("no/folder", "nothing"));
	ck_assert(!clv_output_begin(&o, "-", &err));
	ck_assert_str_eq(err.text, "-: a file's name is expected, and for a file of this name ./-");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		appears_when_complete, names_that_are_taken, two_at_once, links, names, same_files};
	TCase *tcase = check_main_case("output");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, ended_by_a_signal);
	for (size_t i = 0; i < CLV_ARRAY_LEN(tests); i++)
		tcase_add_loop_test(tcase, tests[i], 0, 2); /* with files without a name, and without them */
	return check_main_end("output", tcase);
}
