/* SPDX-License-Identifier: MIT */
#include "record_file.h"

#include "../../src/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic clv_record_pwrite write_instead;

void clv_record_file_use(clv_record_pwrite function)
{
	atomic_store(&write_instead, function);
}

static void name_file(const struct clv_record_file *f, uint32_t number, char *out, size_t room)
{
	if (number)
		snprintf(out, room, "%s.%u", f->path, number);
	else
		snprintf(out, room, "%s", f->path);
}

/* 0, with the file locked and its identity in `st`, or a negative errno. */
static int check(int fd, struct stat *st)
{
	if (fstat(fd, st))
		return -errno;
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	/* where the file system knows no locks, nothing is found out */
	return flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK ? -EBUSY : 0;
}

/* Not blocking: a pipe would be waited for. */
static int open_name(const char *name, int create)
{
	return clv_fd_off_std(open(name, O_WRONLY | create | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
}

int clv_record_file_open(struct clv_record_file *f, uint32_t number)
{
	struct stat st;
	clv_record_file_close(f);
	name_file(f, number, f->name, sizeof(f->name));
	int fd = open_name(f->name, O_CREAT);
	if (fd < 0)
		return -errno;
	int status = check(fd, &st);
	if (!status && ftruncate(fd, 0))
		status = -errno;
	if (status) {
		close(fd);
		return status;
	}
	f->number = number;
	f->size = 0;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	atomic_store(&f->fd, fd);
	return 0;
}

static bool is_ours(const struct clv_record_file *f, int fd)
{
	struct stat st;
	return fd >= 0 && !fstat(fd, &st) && st.st_dev == f->dev && st.st_ino == f->ino;
}

/* A descriptor of the file as it is, if the program has taken the one that there was. */
static int descriptor(struct clv_record_file *f)
{
	struct stat st;
	int fd = atomic_load(&f->fd);
	if (is_ours(f, fd))
		return fd;
	atomic_store(&f->fd, -1); /* the number is the program's */
	fd = open_name(f->name, 0);
	if (fd < 0)
		return -errno;
	int status = check(fd, &st);
	if (!status && (st.st_dev != f->dev || st.st_ino != f->ino))
		status = -ENOENT; /* another has the name now */
	if (status) {
		close(fd);
		return status;
	}
	atomic_store(&f->fd, fd);
	return fd;
}

int clv_record_file_append(struct clv_record_file *f, const void *data, size_t len)
{
	clv_record_pwrite function = atomic_load(&write_instead);
	const uint8_t *from = data;
	int fd = descriptor(f);
	if (fd < 0)
		return fd;
	for (size_t done = 0; done < len;) {
		errno = 0;
		uint64_t at = f->size + done;
		long n = function ? function(fd, from + done, len - done, at)
				  : pwrite(fd, from + done, len - done, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int status = n < 0 && errno ? -errno : -EIO;
			if (done && ftruncate(fd, (off_t)f->size))
				return status; /* the next attempt overwrites what is there */
			return status;
		}
		done += (size_t)n;
	}
	f->size += len;
	return 0;
}

void clv_record_file_close(struct clv_record_file *f)
{
	int fd = atomic_exchange(&f->fd, -1); /* first, lest a child of fork() close what has the number next */
	if (is_ours(f, fd))
		close(fd);
}

void clv_record_file_remove(struct clv_record_file *f, uint32_t number)
{
	char name[sizeof(f->name)];
	name_file(f, number, name, sizeof(name));
	unlink(name);
}
