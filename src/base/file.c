/* SPDX-License-Identifier: MIT */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool clv_file_read(const char *path, bool must, uint64_t max, const char *what, char **text, size_t *len,
		   struct clv_error *err)
{
	struct stat st;
	*text = NULL;
	*len = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return (!must && errno == ENOENT) ||
		       clv_error_set(err, "%s: cannot be opened: %s", path, strerror(errno));
	bool good = !fstat(fd, &st) && S_ISREG(st.st_mode);
	if (!good)
		clv_error_set(err, "%s: is no file", path);
	else if ((uint64_t)st.st_size > max)
		good = clv_error_set(err, "%s: has %" PRIu64 " bytes, more than %s can have", path,
				     (uint64_t)st.st_size, what);
	if (good && !(*text = malloc((size_t)st.st_size + 1)))
		good = clv_error_set(err, "%s: host memory is out", path);
	else if (good)
		(*text)[st.st_size] = 0;
	while (good && *len < (size_t)st.st_size) {
		ssize_t n = read(fd, *text + *len, (size_t)st.st_size - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			good = clv_error_set(err, "%s: cannot be read: %s", path,
					     n ? strerror(errno) : "it became shorter");
		else
			*len += (size_t)n;
	}
	close(fd);
	if (!good) {
		free(*text);
		*text = NULL;
	}
	return good;
}
