/* SPDX-License-Identifier: MIT
 *
 * import: reads a trace file of any known format, told by content.
 */
#ifndef CLV_IMPORT_H
#define CLV_IMPORT_H

#include "../trace.h"

/* Returns a linked trace, or NULL with an error that names file, offset and reason. Never crashes on bad input; reads
 * the file once; memory in proportion to the events. */
struct clv_trace *clv_trace_import(const char *path, struct clv_error *err);

/* A whole file in memory. */
struct clv_input {
	const char *name; /* for errors */
	const uint8_t *data;
	size_t size;
	bool mapped; /* `data` is a private read-only mapping of a file: pages that were read may be given back */
};

/* Reads or maps a regular file; `path` is borrowed. false: nothing is open. */
bool clv_input_open(struct clv_input *in, const char *path, struct clv_error *err);
void clv_input_close(struct clv_input *in);

/* The formats, for callers that know. */
struct clv_trace *clv_import_torch(const struct clv_input *in, struct clv_error *err);
struct clv_trace *clv_import_rmm(const struct clv_input *in, struct clv_error *err);
struct clv_trace *clv_import_clv(const struct clv_input *in, struct clv_error *err);

/* Told by content, as clv_trace_import() does. */
struct clv_trace *clv_import_memory(const struct clv_input *in, struct clv_error *err);

/* Gives back the pages before `offset` that were not given back yet, if the input is mapped; *released is the
 * caller's. */
void clv_input_release(const struct clv_input *in, size_t offset, size_t *released);

#endif
