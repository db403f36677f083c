/* SPDX-License-Identifier: MIT
 *
 * record: writes what happens to memory into a .clv file while the program runs. Threads put events into buffers of their own,
 * without a lock and without a system call; one writer thread orders them, packs them and appends chunks. It never blocks the
 * program: what finds no room is dropped, counted and told of in the file. Killed at any byte, the file is good up to its
 * last whole chunk.
 *
 * One recorder a process. In the child of a fork it is closed, or goes on in a file of its own (config.fork_follow).
 * Everything may be called from any thread but where it says otherwise.
 */
#ifndef CLV_RECORD_H
#define CLV_RECORD_H

#include "../../src/base/base.h"
#include "../../src/base/error.h"
#include "../../src/base/event.h"

#include <string.h>

struct clv_record_config {
	const char *path;        /* a pattern (src/base/file_name.h): %p: process id, %r: rank */
	uint64_t buffer_bytes;   /* of each thread's buffer; 0: a default */
	uint64_t limit_bytes;    /* of a file; 0: none. Then a new one is begun (PATH.1, ...), with what is there at that moment */
	uint32_t keep;           /* files besides the one that is written; 0: at the limit it ends, and what is lost is counted */
	uint32_t flush_ms;       /* a chunk is written at least so often while there are events; 0: a default */
	uint32_t stack_every;    /* 1: stacks of every request, n: of every n-th, 0: none */
	uint64_t stack_above;    /* only of requests from so many bytes on */
	uint32_t stack_depth;    /* native frames; 0: a default of 16 */
	bool python;             /* Python frames as well */
	bool python_only;        /* no native frames */
	bool fork_follow;
	const char *settings;    /* told in the file; NULL: none */
	void (*say)(const char *sentence); /* for a person, at most once a cause; NULL: nobody is told */
};

/* What is recorded. Strings are copied. */
struct clv_record_event {
	enum clv_event event;
	int device;
	uint64_t stream; /* handle; UINT64_MAX: none */
	uint64_t addr, size, a, b;
	const char *text;
};

/* The length of a text of which at most `max` bytes are kept, and no half character of UTF-8. */
static inline size_t clv_record_text_len(const char *text, size_t max)
{
	size_t len = strnlen(text, max + 1);
	if (len <= max)
		return len;
	for (len = max; len > 0 && ((uint8_t)text[len] & 0xc0) == 0x80; len--)
		;
	return len;
}

/* Starts. False with `err`: the file cannot be made, or there is a recorder already; nothing is changed then. */
bool clv_record_open(const struct clv_record_config *config, struct clv_error *err);

/* What the hot path looks at: one load. */
bool clv_record_is_open(void);

/* Does nothing while nothing is recorded. */
void clv_record_event(const struct clv_record_event *event);

/* Waits until what was recorded before is in the file, for at most `timeout_ms`. False: it is not. */
bool clv_record_flush(uint32_t timeout_ms);

/* Ends with an END record. Events of other threads that come meanwhile are lost. */
void clv_record_close(void);

/* events: in the file; dropped: known to be missing from it. After clv_record_close() their sum is what was recorded. */
struct clv_record_stats {
	uint64_t events, dropped, bytes_written, files, stacks, threads;
	int disk_errno; /* the last one; 0: none */
};
void clv_record_get_stats(struct clv_record_stats *out);

#endif
