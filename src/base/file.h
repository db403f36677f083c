/* SPDX-License-Identifier: MIT
 *
 * file: whole files, as small ones are read. Owns nothing.
 */
#ifndef CLV_FILE_H
#define CLV_FILE_H

#include "error.h"

/* The whole of a regular file, with a 0 behind it; to be freed with free(). False with `err`, which names the file: it
 * cannot be read, is no file (a pipe or a device is not waited for), or has more than `max` bytes, which is more than
 * `what` ("a configuration") can have. Unless it `must` exist, one that does not leaves *text NULL. */
bool clv_file_read(const char *path, bool must, uint64_t max, const char *what, char **text, size_t *len,
		   struct clv_error *err);

#endif
