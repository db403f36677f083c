/* SPDX-License-Identifier: MIT
 *
 * pack_csv: buffers to be packed, as a table: reads it for cleave_pack(), and writes it again with the offsets. Owns what it
 * read but for the file's bytes, which stay with the caller and must stay there. One thread.
 *
 * Columns, told by their names in the first line, in any order: `id` (any text; each once), `lower`, `upper` (times),
 * `size`; if there: `alignment`, `offset` (where the buffer must lie) and `gaps` ("3-5 8-9": spans of its life in which it
 * holds no memory), each of which may be empty. Other columns are kept and mean nothing.
 */
#ifndef CLV_PACK_CSV_H
#define CLV_PACK_CSV_H

#include "../../tracing/import/import.h"

#include <cleave/plan.h>

struct clv_pack_row {
	const char *id;
	size_t id_len;
	uint64_t line;
	size_t cut, cut_end; /* the bytes whose place the offset takes; none where one was given */
};

struct clv_pack_csv {
	const struct clv_input *in;
	cleave_pack_buffer *buffers;
	struct clv_pack_row *rows; /* one for each buffer */
	size_t count;
	cleave_pack_span *gaps; /* of all buffers */
	size_t header_end;      /* of the first line, without its end */
	bool has_offsets;       /* there is such a column */
};

/* false: `err` says "FILE:LINE: ...", or that host memory is out; nothing is left to be freed. */
bool clv_pack_csv_read(struct clv_pack_csv *t, const struct clv_input *in, struct clv_error *err);
void clv_pack_csv_free(struct clv_pack_csv *t);

/* Tells cleave_pack()'s sentence on a buffer of the table with the buffer's line and id. Returns false. */
bool clv_pack_csv_refuse(const struct clv_pack_csv *t, const char *why, struct clv_error *err);

/* Every byte as it was, and the offsets in their column: the one that there is, or a new last one. */
bool clv_pack_csv_write(const struct clv_pack_csv *t, const uint64_t *offsets, const char *path, struct clv_error *err);

#endif
