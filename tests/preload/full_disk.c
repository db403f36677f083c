/* SPDX-License-Identifier: MIT
 *
 * A disk that is full after FULL_DISK_BYTES: a library that is preloaded beside ours, and whose pwrite answers so.
 */
#undef _FILE_OFFSET_BITS /* pwrite and pwrite64 are two names */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

ssize_t pwrite(int fd, const void *data, size_t len, off_t offset)
{
	const char *room = getenv("FULL_DISK_BYTES");
	if (room && (uint64_t)offset + len > strtoull(room, NULL, 10)) {
		errno = ENOSPC;
		return -1;
	}
	return (ssize_t)syscall(SYS_pwrite64, fd, data, len, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t len, off_t offset)
{
	return pwrite(fd, data, len, offset);
}
