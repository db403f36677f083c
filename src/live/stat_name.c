/* SPDX-License-Identifier: MIT */
#include "stat_name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_FIELD 22 /* of /proc/PID/stat, as proc(5) counts them */

void clv_stat_name(char name[CLV_STAT_NAME], long pid, uint64_t start)
{
	snprintf(name, CLV_STAT_NAME, "cleave-stat-%ld-%" PRIu64, pid, start);
}

bool clv_stat_start_of(const char *who, uint64_t *start)
{
	char path[64], text[1024];
	snprintf(path, sizeof(path), "/proc/%s/stat", who);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	int why = errno;
	close(fd);
	errno = n < 0 ? why : EINVAL;
	if (n <= 0)
		return false;
	text[n] = '\0';
	/* the second field, a name in brackets, may hold anything */
	const char *at = strrchr(text, ')');
	for (int field = 2; at && field < START_FIELD; field++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	if (!at || *at < '0' || *at > '9')
		return false;
	*start = strtoull(at, NULL, 10);
	return true;
}
