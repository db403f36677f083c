/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where the file goes: through a symbolic link to what it names; never in the place of a device or a pipe. */
static char *resolve(const char *path, struct clv_error *err)
{
	struct stat st;
	char *target = NULL;
	if (stat(path, &st) != 0) {
		if (errno == ENOENT)
			target = strdup(path);
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

bool clv_output_begin(struct clv_output *o, const char *path, struct clv_error *err)
{
	char temporary[PATH_MAX];
	*o = (struct clv_output){.path = path, .fd = -1};
	o->target = resolve(path, err);
	if (!o->target)
		return false;
	int n = snprintf(temporary, sizeof(temporary), "%s.part%ld", o->target, (long)getpid());
	if (n < 0 || (size_t)n >= sizeof(temporary))
		clv_error_set(err, "%s: the name is too long", path);
	else if (!(o->temporary = strdup(temporary)))
		clv_error_set(err, "%s: out of host memory", path);
	else if ((o->fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0)
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
	for (const char *from = data; len && !o->failed;) {
		ssize_t n = write(o->fd, from, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fail(o, "written", n < 0 ? strerror(errno) : "no progress", err);
			return;
		}
		from += n;
		len -= (size_t)n;
	}
}

bool clv_output_end(struct clv_output *o, bool keep, struct clv_error *err)
{
	if (close(o->fd) != 0 && keep && !o->failed)
		fail(o, "written", strerror(errno), err);
	keep &= !o->failed;
	if (keep && rename(o->temporary, o->target) != 0) {
		fail(o, "created", strerror(errno), err);
		keep = false;
	}
	if (!keep)
		unlink(o->temporary);
	free(o->temporary);
	free(o->target);
	return keep;
}
