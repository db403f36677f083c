/* SPDX-License-Identifier: MIT
 *
 * export: traces written for other programs. Each writer streams: besides the trace it needs memory for what it has
 * numbered, not for what it has written. A file appears when it is complete (tracing/output.h). Owns nothing between
 * calls.
 *
 * false: it could not be written, or the format cannot hold the trace; nothing is left behind.
 */
#ifndef CLV_EXPORT_H
#define CLV_EXPORT_H

#include "../trace.h"

/* A snapshot as torch.cuda.memory._dump_snapshot() writes it. What PyTorch's viewers need and the trace lacks is
 * made up and marked, so that our importer leaves it out again: see torch_write.c. */
bool clv_export_torch(const struct clv_trace *trace, const char *path, struct clv_error *err);

/* Chrome's JSON of traces, which Perfetto and chrome://tracing show: see perfetto_write.c. */
bool clv_export_perfetto(const struct clv_trace *trace, const char *path, struct clv_error *err);

/* A log of RMM's logging_resource_adaptor, of one device: see rmm_write.c. */
bool clv_export_rmm(const struct clv_trace *trace, const struct clv_history *history, const char *path,
		    struct clv_error *err);

#endif
