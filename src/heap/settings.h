/* SPDX-License-Identifier: MIT
 *
 * settings: the one table of what CLEAVE_CONF and the text after `cleave:` may say. Read-only once parsed.
 */
#ifndef CLV_SETTINGS_H
#define CLV_SETTINGS_H

#include "../base/base.h"
#include "../base/error.h"

struct clv_settings {
	bool tight;              /* growth:tight */
	uint64_t limit;          /* 0: none */
	uint64_t headroom;
	uint64_t frame_bytes;    /* usual size of a frame for small requests */
	bool cache;              /* threads keep small blocks */
};

/* (key, kind of value, default text, explanation): the table from which parser, help and defaults are made. */
#define CLV_SETTINGS(X)                                                                                                \
	X(growth, CHOICE, "normal",                                                                                    \
	  "normal: few calls of the driver; tight: the smallest frames, the least stranded memory, many calls")        \
	X(limit, SIZE, "0", "most bytes held on each device; 0: what the device gives")                                \
	X(headroom, SIZE, "0", "bytes of each device left to others when the heap grows")                              \
	X(frame, SIZE, "16MiB", "size of a frame bought for small requests; a power of two, at least 2MiB")            \
	X(cache, BOOL, "on", "on: threads keep freed small blocks for themselves; off: they do not")

/* Starts from the defaults. false with the reason: an unknown key or a bad value. */
bool clv_settings_parse(struct clv_settings *s, const char *text, struct clv_error *err);

/* The table as text, for `cleave help settings`. */
struct clv_setting {
	const char *key;
	const char *kind;    /* "CHOICE", "SIZE" or "BOOL" */
	const char *initial; /* the default */
	const char *help;
};
const struct clv_setting *clv_settings_table(size_t *count);

#endif
