/* SPDX-License-Identifier: MIT
 *
 * record_file: the file that a recorder appends whole chunks to. What was written of a chunk that does not fit is taken back,
 * so that the file is always good up to its end. Owned by one thread at a time; a child of fork() only closes it.
 *
 * The program may close all descriptors that it does not know, and get the number for a file of its own; so before something
 * is written, or closed, it is looked whose the number is. If it is the program's, the record is opened again.
 */
#ifndef CLV_RECORD_FILE_H
#define CLV_RECORD_FILE_H

#include "../../src/base/base.h"
#include "../../src/base/error.h"

#include <stdatomic.h>
#include <sys/types.h>

#define CLV_RECORD_PATH_MAX 4096u

struct clv_record_file {
	char path[CLV_RECORD_PATH_MAX]; /* of the first file */
	char name[CLV_RECORD_PATH_MAX + 24];
	uint32_t number; /* of the file that is open: 0: `path`, n: `path`.n */
	_Atomic int fd;  /* -1: none */
	dev_t dev;       /* what it was opened for */
	ino_t ino;
	uint64_t size;   /* whole chunks of this file */
};

/* Opens file `number` anew; what had the name before is gone. 0 or a negative errno: -EINVAL: it is no regular file; -EBUSY: a
 * recorder of another process writes it. */
int clv_record_file_open(struct clv_record_file *f, uint32_t number);

/* Appends all of it or nothing. 0 or a negative errno. */
int clv_record_file_append(struct clv_record_file *f, const void *data, size_t len);

void clv_record_file_close(struct clv_record_file *f);

/* Removes file `number`. */
void clv_record_file_remove(struct clv_record_file *f, uint32_t number);

/* Tests: what is called in place of pwrite(2); NULL: that. */
typedef long (*clv_record_pwrite)(int fd, const void *data, size_t len, uint64_t offset);
void clv_record_file_use(clv_record_pwrite function);

#endif
