/* SPDX-License-Identifier: MIT
 *
 * csv: reads a table in the form of RFC 4180, field by field, out of memory that the caller keeps. Holds no memory; one
 * thread.
 *
 * Lines may also end in LF alone, the last one need not end, and a byte order mark is skipped. Nothing is trimmed. What the
 * form does not allow is refused with the line it is in.
 */
#ifndef CLV_CSV_H
#define CLV_CSV_H

#include "../base/base.h"
#include "../base/error.h"

struct clv_csv {
	const char *name; /* of the file, for errors */
	const char *data;
	size_t size, pos; /* where the next field begins */
	uint64_t line;    /* from 1, of `pos` */
};

struct clv_csv_field {
	size_t at, end; /* its bytes in the file, quotes included */
	/* Without the quotes around it. Quotes in it are left doubled: texts are the same if their bytes are. */
	const char *text;
	size_t len;
	uint64_t line; /* where it begins */
	bool last;     /* of its record */
};

void clv_csv_begin(struct clv_csv *c, const char *name, const void *data, size_t size);

/* Whether another record begins. Asked between records only. */
bool clv_csv_more(const struct clv_csv *c);

/* The next field of the record; false with an error. */
bool clv_csv_next(struct clv_csv *c, struct clv_csv_field *f, struct clv_error *err);

#endif
