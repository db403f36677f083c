/* SPDX-License-Identifier: MIT
 *
 * import: reads a trace file of any known format, told by content.
 */
#ifndef CLV_IMPORT_H
#define CLV_IMPORT_H

#include "../trace.h"

/* Returns a linked trace, or NULL with an error that names file, offset and reason. Never crashes on bad input; reads the
 * file once; memory in proportion to the events. */
struct clv_trace *clv_trace_import(const char *path, struct clv_error *err);

/* The formats, for callers that know: `data` is the whole file (mapped), `name` is for errors. */
struct clv_trace *clv_import_torch(const char *name, const uint8_t *data, size_t size, struct clv_error *err);
struct clv_trace *clv_import_rmm(const char *name, const uint8_t *data, size_t size, struct clv_error *err);
struct clv_trace *clv_import_clv(const char *name, const uint8_t *data, size_t size, struct clv_error *err);

#endif
