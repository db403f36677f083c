/* SPDX-License-Identifier: MIT
 *
 * output: a file that is written beside its place and appears there when it is complete. What was there before is
 * replaced, at the end of a symbolic link too; a device or a pipe never is. Until it is complete it has no name, so that
 * nothing stays of it when a signal ends the process; where the file system has no such files, it is named NAME.partPID.
 * Owned by the thread that writes.
 */
#ifndef CLV_OUTPUT_H
#define CLV_OUTPUT_H

#include "../src/base/base.h"
#include "../src/base/error.h"

struct clv_output {
	const char *path; /* as named by the user, for errors; borrowed */
	char *target;     /* where the file will be */
	char *temporary;  /* PATH_MAX bytes for its name until then */
	bool named;       /* it has that one */
	int fd;
	bool failed; /* the reason was told; everything after it does nothing */
};

/* false: nothing was made, and there is nothing to end. "-" is refused: elsewhere it means standard output, for which commands
 * have --json. */
bool clv_output_begin(struct clv_output *o, const char *path, struct clv_error *err);

void clv_output_write(struct clv_output *o, const void *data, size_t len, struct clv_error *err);

/* Puts the file in its place, or if `keep` is false or anything failed, leaves nothing behind. Returns whether the
 * file is there. */
bool clv_output_end(struct clv_output *o, bool keep, struct clv_error *err);

/* A name that cannot be written is better told before the work than after it. Nothing is made; a NULL path is good. */
bool clv_output_try(const char *path, struct clv_error *err);

/* Whether two names are of one file, or of one place where there is none yet. */
bool clv_output_same(const char *a, const char *b);

/* All of a file at once. */
bool clv_output_file(const char *path, const void *data, size_t len, struct clv_error *err);

#endif
