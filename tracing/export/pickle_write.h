/* SPDX-License-Identifier: MIT
 *
 * pickle_write: a pickle of protocol 4, written from its first byte to its last: no tree of what it holds is ever in
 * memory. Every opcode is one that PyTorch's snapshots have, so that what reads those (pytorch.org/memory_viz knows
 * few) reads ours. Owned by one exporter.
 */
#ifndef CLV_PICKLE_WRITE_H
#define CLV_PICKLE_WRITE_H

#include "sink.h"

#define CLV_PW_NO_MEMO UINT32_MAX

struct clv_pickle_writer {
	struct clv_sink sink;
	uint32_t memo; /* numbers given so far */
	size_t frame;  /* where the frame begins that is being written, in the sink */
	bool framed;   /* there is one */
};

/* A list in the making: items go out in groups, since memory_viz passes a group as arguments of one call. */
struct clv_pickle_list {
	uint32_t group; /* items of the group that is open */
};

bool clv_pw_begin(struct clv_pickle_writer *w, const char *path, struct clv_error *err);
bool clv_pw_end(struct clv_pickle_writer *w); /* as clv_sink_end() */

void clv_pw_dict_begin(struct clv_pickle_writer *w); /* then key and value by turns, at most 1000 pairs */
void clv_pw_dict_end(struct clv_pickle_writer *w);

void clv_pw_list_begin(struct clv_pickle_writer *w, struct clv_pickle_list *list);
void clv_pw_list_item(struct clv_pickle_writer *w, struct clv_pickle_list *list); /* before each item */
void clv_pw_list_end(struct clv_pickle_writer *w, struct clv_pickle_list *list);

void clv_pw_int(struct clv_pickle_writer *w, int64_t v);
void clv_pw_uint(struct clv_pickle_writer *w, uint64_t v);
void clv_pw_bool(struct clv_pickle_writer *w, bool v);
void clv_pw_double(struct clv_pickle_writer *w, double v);
void clv_pw_pair(struct clv_pickle_writer *w); /* a tuple of the last two values */

/* A text as it is. It must be UTF-8: what is not becomes U+FFFD. */
void clv_pw_text(struct clv_pickle_writer *w, const char *text);

/* A text that comes again: *memo, at first CLV_PW_NO_MEMO, is its number once it was written. */
void clv_pw_known_text(struct clv_pickle_writer *w, const char *text, uint32_t *memo);

/* The value that was completed last (a list, a dict, a text) gets a number, under which it is written again as the
 * same object. */
uint32_t clv_pw_memoize(struct clv_pickle_writer *w);
void clv_pw_get(struct clv_pickle_writer *w, uint32_t memo);

#endif
