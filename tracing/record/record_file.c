/* SPDX-License-Identifier: MIT */
#include "record_file.h"

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

int clv_record_file_open(struct clv_record_file *f, uint32_t number)
{
	struct stat st;
	clv_record_file_close(f);
	name_file(f, number, f->name, sizeof(f->name));
	/* not blocking: a pipe would be waited for */
	int fd = open(f->name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
	if (fd < 0)
		return -errno;
	int status = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
	/* where the file system knows no locks, nothing is found out */
	if (!status && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		status = -EBUSY;
	if (!status && ftruncate(fd, 0))
		status = -errno;
	if (status) {
		close(fd);
		return status;
	}
	f->number = number;
	f->size = 0;
	atomic_store(&f->fd, fd);
	return 0;
}

int clv_record_file_append(struct clv_record_file *f, const void *data, size_t len)
{
	clv_record_pwrite function = atomic_load(&write_instead);
	const uint8_t *from = data;
	int fd = atomic_load(&f->fd);
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
	if (fd >= 0)
		close(fd);
}

void clv_record_file_remove(struct clv_record_file *f, uint32_t number)
{
	char name[sizeof(f->name)];
	name_file(f, number, name, sizeof(name));
	unlink(name);
}
