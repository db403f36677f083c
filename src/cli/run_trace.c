/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "run_trace.h"

#include "cli.h"

#include "../../tracing/format/clv_format.h"
#include "../base/file_name.h"
#include "../heap/settings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRACES_MAX 1024

/* ---- before ---- */

/* As CLEAVE_CONF can hold it, and from whatever folder a process is in. */
static bool make_absolute(const char *file, char out[PATH_MAX], struct clv_error *err)
{
	char folder[PATH_MAX] = "";
	if (*file != '/' && !getcwd(folder, sizeof(folder)))
		return clv_error_set(err, "the working directory has no path: %s", strerror(errno));
	if (*file != '/' && strchr(folder, '%'))
		return clv_error_set(
			err, "the folder %s has a percent sign in its name; give the whole path, with %%%% for it",
			folder);
	int n = snprintf(out, PATH_MAX, "%s%s%s", folder, *folder ? "/" : "", file);
	if (n >= PATH_MAX || n >= (int)CLV_SETTING_FILE)
		return clv_error_set(err, "%s: the whole path has more than %u characters", file, CLV_SETTING_FILE - 1);
	if (strchr(out, ','))
		return clv_error_set(err, "%s: a comma in the path would end the setting", out);
	return clv_file_name_check(out, err);
}

bool clv_run_trace_prepare(struct clv_run_trace *t, struct clv_error *err)
{
	char beside[PATH_MAX];
	const char *file = t->file;
	t->pattern[0] = t->settings[0] = '\0';
	clock_gettime(CLOCK_REALTIME, &t->begun);
	if (!file && t->report) { /* r.html is of r.clv */
		const char *base = strrchr(t->report, '/'), *dot = strrchr(base ? base : t->report, '.');
		int stem = (int)(dot ? (size_t)(dot - t->report) : strlen(t->report));
		if (snprintf(beside, sizeof(beside), "%.*s.clv", stem, t->report) >= (int)sizeof(beside))
			return clv_error_set(err, "%s: the name is too long", t->report);
		file = beside;
	}
	if (t->observe && !file)
		return clv_error_set(err, "nothing says where to record; expected --trace FILE as well");
	if (!file)
		return true;
	if (!make_absolute(file, t->pattern, err))
		return false;
	snprintf(t->settings, sizeof(t->settings), "%strace:%s", t->observe ? "observe," : "", t->pattern);
	return true;
}

bool clv_run_trace_make_way(const struct clv_run_trace *t, struct clv_error *err)
{
	const char *path = t->pattern;
	char magic[sizeof(CLV_FILE_MAGIC) - 1];
	struct stat st;
	if (!*path || strchr(path, '%')) /* nothing is recorded, or into files of other names each time */
		return true;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno == ENOENT || clv_error_set(err, "%s: %s", path, strerror(errno));
	bool regular = !fstat(fd, &st) && S_ISREG(st.st_mode);
	ssize_t n = regular ? read(fd, magic, sizeof(magic)) : -1;
	close(fd);
	if (!regular || (n && (n != sizeof(magic) || memcmp(magic, CLV_FILE_MAGIC, sizeof(magic)))))
		return clv_error_set(err, "%s is there already, and is no trace", path);
	return !unlink(path) || clv_error_set(err, "%s: %s", path, strerror(errno));
}

/* ---- after ---- */

/* True if the name can have come of the pattern. */
static bool matches(const char *pattern, const char *name)
{
	for (; *pattern; pattern++) {
		if (*pattern == '%' && pattern[1] != '%') {
			size_t digits = strspn(name, "0123456789");
			if (!digits)
				return false;
			name += digits;
			pattern++;
			continue;
		}
		pattern += *pattern == '%';
		if (*name++ != *pattern)
			return false;
	}
	return !*name;
}

static int by_time(const void *a, const void *b)
{
	struct stat sa, sb;
	if (stat(*(char *const *)a, &sa) || stat(*(char *const *)b, &sb))
		return 0;
	if (sa.st_mtim.tv_sec != sb.st_mtim.tv_sec)
		return sa.st_mtim.tv_sec < sb.st_mtim.tv_sec ? -1 : 1;
	return (sa.st_mtim.tv_nsec > sb.st_mtim.tv_nsec) - (sa.st_mtim.tv_nsec < sb.st_mtim.tv_nsec);
}

/* The files that this run has made, from malloc; by the time at which they were last written. */
static size_t find_traces(const struct clv_run_trace *t, char *traces[TRACES_MAX])
{
	char folder[PATH_MAX], first[PATH_MAX], second[PATH_MAX];
	size_t count = 0;
	snprintf(folder, sizeof(folder), "%s", t->pattern);
	char *base = strrchr(folder, '/');
	snprintf(first, sizeof(first), "%s", base + 1);
	*base = '\0';
	if (!clv_file_name_second(first, second, sizeof(second)))
		second[0] = '\0';
	DIR *dir = opendir(*folder ? folder : "/");
	for (struct dirent *e; dir && (e = readdir(dir)) && count < TRACES_MAX;) {
		struct stat st;
		char *path = NULL;
		if (!matches(first, e->d_name) && !matches(second, e->d_name))
			continue;
		/* the clock of files may be a tick behind */
		if (asprintf(&path, "%s/%s", folder, e->d_name) >= 0 && !stat(path, &st) && S_ISREG(st.st_mode) &&
		    st.st_mtim.tv_sec + 1 > t->begun.tv_sec)
			traces[count++] = path;
		else
			free(path);
	}
	if (dir)
		closedir(dir);
	qsort(traces, count, sizeof(traces[0]), by_time);
	return count;
}

static void report(const struct clv_run_trace *t)
{
	char *traces[TRACES_MAX], *argv[TRACES_MAX + 4], command[] = "report", option[] = "-o";
	size_t count = find_traces(t, traces);
	int argc = 0;
	if (!count) {
		fprintf(stderr,
			"cleave run: there is nothing to report: no process has used the device under Cleave\n");
		return;
	}
	argv[argc++] = command;
	for (size_t i = 0; i < count; i++)
		argv[argc++] = traces[i];
	argv[argc++] = option;
	argv[argc++] = (char *)(uintptr_t)t->report;
	argv[argc] = NULL;
	int status = CLV_EXIT_USAGE, out = dup(STDOUT_FILENO);
	fflush(stdout);
	if (out >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) { /* stdout is the program's */
		status = clv_cmd_report(argc, argv);
		fflush(stdout);
		dup2(out, STDOUT_FILENO);
		if (status == CLV_EXIT_DONE)
			fprintf(stderr, "cleave run: the report is %s\n", t->report);
		else
			fprintf(stderr, "cleave run: there is no report; what was recorded is in %s\n", traces[0]);
	}
	if (out >= 0)
		close(out);
	for (size_t i = 0; i < count; i++)
		free(traces[i]);
}

static volatile sig_atomic_t child;

static void hand_on(int number)
{
	int error = errno;
	if (child > 0)
		kill(child, number);
	errno = error;
}

/* The terminal sends these to the program itself, which decides what becomes of them. */
static const int not_ours[] = {SIGINT, SIGQUIT};
static const int handed_on[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

static void end_by(int number)
{
	struct rlimit none = {0, 0};
	sigset_t one;
	setrlimit(RLIMIT_CORE, &none); /* the program has left one, if any */
	signal(number, SIG_DFL);
	sigemptyset(&one);
	sigaddset(&one, number);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	raise(number);
}

int clv_run_trace_watch(const struct clv_run_trace *t, int (*execute)(void *arg), void *arg)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, hand = {.sa_handler = hand_on, .sa_flags = SA_RESTART};
	struct sigaction before_ours[CLV_ARRAY_LEN(not_ours)], before_handed[CLV_ARRAY_LEN(handed_on)];
	sigset_t all, before;
	int status;
	fflush(stdout);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before); /* until the child is known, and has its own back */
	pid_t pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		_exit(execute(arg));
	}
	if (pid < 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		return clv_cli_refuse("run", "no process can be made: %s", strerror(errno));
	}
	child = pid;
	for (size_t i = 0; i < CLV_ARRAY_LEN(not_ours); i++)
		sigaction(not_ours[i], &ignore, &before_ours[i]);
	for (size_t i = 0; i < CLV_ARRAY_LEN(handed_on); i++) {
		sigaction(handed_on[i], NULL, &before_handed[i]);
		if (before_handed[i].sa_handler != SIG_IGN)
			sigaction(handed_on[i], &hand, NULL);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	child = 0;
	for (size_t i = 0; i < CLV_ARRAY_LEN(not_ours); i++)
		sigaction(not_ours[i], &before_ours[i], NULL);
	for (size_t i = 0; i < CLV_ARRAY_LEN(handed_on); i++)
		sigaction(handed_on[i], &before_handed[i], NULL);
	report(t);
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	fflush(stderr);
	end_by(WTERMSIG(status));
	return 128 + WTERMSIG(status);
}
