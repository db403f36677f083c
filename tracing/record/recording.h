/* SPDX-License-Identifier: MIT
 *
 * recording: what the heaps of this process tell goes into the record, and the record is as settings ask for. Owns the observer
 * of all heaps. Thread-safe; one recording at a time.
 */
#ifndef CLV_RECORDING_H
#define CLV_RECORDING_H

#include "../../src/heap/settings.h"
#include "record.h"

#include <cleave/heap.h>

struct clv_recording_config {
	const struct clv_settings *settings;
	const char *path; /* as in clv_record_config */
	/* A file that is there is left alone, also if another process has just made it: the process's id comes into the name then. */
	bool keep_files;
	/* What a device is called, into `buf`. NULL: nobody knows. */
	void (*name_device)(int device, char *buf, size_t len);
	void (*say)(const char *sentence); /* as in clv_record_config */
};

/* From now on all heaps are recorded, those that are open with what they have. `name` (may be NULL; room bytes) gets the file's.
 * False with `err`: nothing is recorded. */
bool clv_recording_start(const struct clv_recording_config *config, char *name, size_t room, struct clv_error *err);

/* Ends it. False: there was none. */
bool clv_recording_stop(void);

/* A device that no heap tells of. */
void clv_recording_device(int device, uint64_t total);

/* How the record names a stream: 0 is the legacy default stream; others go by their handle, and where that is no name for one
 * stream alone, by their id. */
uint64_t clv_recording_stream(cleave_stream stream);

#endif
