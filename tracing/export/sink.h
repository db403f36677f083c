/* SPDX-License-Identifier: MIT
 *
 * sink: an output file that is written in small pieces. It collects them, so that an event of a few bytes costs no call
 * of the system. Owned by the exporter that writes.
 */
#ifndef CLV_SINK_H
#define CLV_SINK_H

#include "../output.h"

struct clv_sink {
	struct clv_output out;
	struct clv_error *err;
	char *data;
	size_t len;
};

#define CLV_SINK_ROOM ((size_t)256 << 10)

/* false: nothing was made, and there is nothing to end. */
bool clv_sink_begin(struct clv_sink *s, const char *path, struct clv_error *err);

/* Places for `len` bytes (at most CLV_SINK_ROOM) that lie together; the caller writes them and adds to `len` what it
 * wrote. */
char *clv_sink_room(struct clv_sink *s, size_t len);

void clv_sink_write(struct clv_sink *s, const void *data, size_t len);
void clv_sink_text(struct clv_sink *s, const char *text);
void clv_sink_printf(struct clv_sink *s, const char *fmt, ...) CLV_PRINTF(2, 3); /* at most 4 KiB */

/* What went wrong by itself, besides writing; everything after it does nothing. */
bool clv_sink_fail(struct clv_sink *s, const char *fmt, ...) CLV_PRINTF(2, 3);

static inline bool clv_sink_failed(const struct clv_sink *s)
{
	return s->out.failed;
}

/* Puts the file in its place, unless anything failed. Returns whether it is there. */
bool clv_sink_end(struct clv_sink *s);

#endif
