/* SPDX-License-Identifier: MIT
 *
 * fd: descriptors that we open in a program, and whole writes. Owns nothing.
 */
#ifndef CLV_FD_H
#define CLV_FD_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* The same file under a number that is none of stdin, stdout and stderr: where the program has closed these, what it prints
 * would go into ours. -1 with errno if there is none, or if `fd` is negative. */
static inline int clv_fd_off_std(int fd)
{
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	int other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
	close(fd);
	errno = error;
	return other;
}

/* All of it, however many writes that takes. False with errno; 0: the file takes nothing, and no reason is given. */
static inline bool clv_fd_write(int fd, const void *data, size_t len)
{
	for (const char *from = data; len;) {
		ssize_t n = write(fd, from, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = 0;
		if (n <= 0)
			return false;
		from += n;
		len -= (size_t)n;
	}
	return true;
}

#endif
