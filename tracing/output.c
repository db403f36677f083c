/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* O_TMPFILE */
#include "output.h"

#include "../src/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as in the kernel */
#define NAMES_MAX 1000
#define BASE_MAX 200 /* of a name beside a long one, which is not to be longer than any can be */

/* The length of the folder's part of a path, its last slash included. */
static int folder_length(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? (int)(slash + 1 - path) : 0;
}

/* What the link names, as seen from where we are. */
static char *read_link(const char *link)
{
	char to[PATH_MAX], joined[PATH_MAX];
	ssize_t len = readlink(link, to, sizeof(to));
	if (len < 0)
		return NULL;
	int folder = to[0] != '/' ? folder_length(link) : 0;
	int n = snprintf(joined, sizeof(joined), "%.*s%.*s", folder, link, (int)len, to);
	if (n < 0 || (size_t)n >= sizeof(joined)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return strdup(joined);
}

/* The last name of a chain of links at whose end there is nothing yet. */
static char *resolve_dangling(const char *path)
{
	struct stat st;
	char *at = strdup(path);
	for (int links = 0; at && lstat(at, &st) == 0 && S_ISLNK(st.st_mode); links++) {
		char *next = NULL;
		if (links < LINKS_MAX)
			next = read_link(at);
		else
			errno = ELOOP;
		int why = errno;
		free(at);
		errno = why;
		at = next;
	}
	return at;
}

/* Where the file goes: through a symbolic link to what it names; never in the place of a device or a pipe. */
static char *resolve(const char *path, struct clv_error *err)
{
	struct stat st;
	char *target = NULL;
	if (!strcmp(path, "-")) {
		clv_error_set(err, "-: a file's name is expected, and for a file of this name ./-");
		return NULL;
	}
	if (stat(path, &st) != 0) {
		if (errno == ENOENT)
			target = resolve_dangling(path);
	} else if (S_ISREG(st.st_mode)) {
		target = realpath(path, NULL);
	} else {
		clv_error_set(err, "%s: exists and is not a regular file", path);
		return NULL;
	}
	if (!target)
		clv_error_set(err, "%s: %s", path, errno == ENOMEM ? "out of host memory" : strerror(errno));
	return target;
}

static void fd_path(int fd, char *buf, size_t len)
{
	snprintf(buf, len, "/proc/self/fd/%d", fd);
}

/* A file that has no name goes with its process, however that ends. -1: not here, or there is no way to name it later. */
static int open_nameless(const char *target)
{
	char folder[PATH_MAX], link[32];
	int n = folder_length(target);
	if ((size_t)n >= sizeof(folder))
		return -1;
	snprintf(folder, sizeof(folder), "%.*s", n, target);
	int fd = open(n ? folder : ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
	if (fd < 0)
		return -1;
	fd_path(fd, link, sizeof(link));
	if (access(link, F_OK) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Gives the open file a name beside the target, or if there is none makes one under such a name. A name that is taken may
 * be that of a process that was ended: another one is found. */
static bool take_name(struct clv_output *o)
{
	char name[PATH_MAX], link[32];
	int folder = folder_length(o->target);
	for (int i = 0; i < NAMES_MAX; i++) {
		int n = snprintf(name, sizeof(name), "%.*s%.*s.part%ld", folder, o->target, BASE_MAX,
				 o->target + folder, (long)getpid());
		if (n > 0 && (size_t)n < sizeof(name) && i)
			n += snprintf(name + n, sizeof(name) - (size_t)n, ".%d", i);
		if (n < 0 || (size_t)n >= sizeof(name)) {
			errno = ENAMETOOLONG;
			return false;
		}
		bool taken;
		if (o->fd >= 0) {
			fd_path(o->fd, link, sizeof(link));
			taken = linkat(AT_FDCWD, link, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
		} else {
			o->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
			taken = o->fd >= 0;
		}
		if (taken) {
			strcpy(o->temporary, name);
			o->named = true;
		}
		if (taken || errno != EEXIST)
			return taken;
	}
	return false;
}

bool clv_output_begin(struct clv_output *o, const char *path, struct clv_error *err)
{
	*o = (struct clv_output){.path = path, .fd = -1};
	o->target = resolve(path, err);
	if (!o->target)
		return false;
	/* Here, since what cannot be is not to be told at the end. */
	o->temporary = malloc(PATH_MAX);
	if (strlen(o->target) > PATH_MAX - 32)
		clv_error_set(err, "%s: the name is too long", path);
	else if (!o->temporary)
		clv_error_set(err, "%s: out of host memory", path);
	else if ((o->fd = open_nameless(o->target)) < 0 && !take_name(o))
		clv_error_set(err, "%s: cannot be created: %s", path, strerror(errno));
	if (o->fd >= 0)
		return true;
	free(o->temporary);
	free(o->target);
	return false;
}

static void fail(struct clv_output *o, const char *what, const char *why, struct clv_error *err)
{
	o->failed = true;
	clv_error_set(err, "%s: cannot be %s: %s", o->path, what, why);
}

void clv_output_write(struct clv_output *o, const void *data, size_t len, struct clv_error *err)
{
	if (!o->failed && !clv_fd_write(o->fd, data, len))
		fail(o, "written", errno ? strerror(errno) : "no progress", err);
}

bool clv_output_end(struct clv_output *o, bool keep, struct clv_error *err)
{
	keep &= !o->failed;
	if (keep && !o->named && !take_name(o))
		fail(o, "created", strerror(errno), err);
	if (close(o->fd) != 0 && keep && !o->failed)
		fail(o, "written", strerror(errno), err);
	keep &= !o->failed;
	if (keep && rename(o->temporary, o->target) != 0) {
		fail(o, "created", strerror(errno), err);
		keep = false;
	}
	if (!keep && o->named)
		unlink(o->temporary);
	free(o->temporary);
	free(o->target);
	return keep;
}

bool clv_output_try(const char *path, struct clv_error *err)
{
	struct clv_output out;
	if (!path)
		return true;
	if (!clv_output_begin(&out, path, err))
		return false;
	clv_output_end(&out, false, err);
	return true;
}

/* An absolute path without links; the last part need not be there. */
static bool find_place(const char *path, char place[PATH_MAX])
{
	char folder[PATH_MAX], real[PATH_MAX];
	if (realpath(path, place))
		return true;
	char *target = resolve_dangling(path);
	int n = target ? folder_length(target) : 0;
	bool ok = target && n < PATH_MAX;
	if (ok) {
		snprintf(folder, sizeof(folder), "%.*s", n, target);
		ok = realpath(n ? folder : ".", real) != NULL;
	}
	n = ok ? snprintf(place, PATH_MAX, "%s/%s", real, target + n) : PATH_MAX;
	free(target);
	return n > 0 && n < PATH_MAX;
}

bool clv_output_same(const char *a, const char *b)
{
	char places[2][PATH_MAX];
	return find_place(a, places[0]) && find_place(b, places[1]) && !strcmp(places[0], places[1]);
}

bool clv_output_file(const char *path, const void *data, size_t len, struct clv_error *err)
{
	struct clv_output out;
	if (!clv_output_begin(&out, path, err))
		return false;
	clv_output_write(&out, data, len, err);
	return clv_output_end(&out, true, err);
}
