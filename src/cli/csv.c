/* SPDX-License-Identifier: MIT */
#include "csv.h"

#include <string.h>

static const char nul[] = "a NUL byte: this is no text, or it is UTF-16, which is not read";

void clv_csv_begin(struct clv_csv *c, const char *name, const void *data, size_t size)
{
	*c = (struct clv_csv){.name = name, .data = data, .size = size, .line = 1};
	if (size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0)
		c->pos = 3;
}

bool clv_csv_more(const struct clv_csv *c)
{
	return c->pos < c->size;
}

static bool scan_plain(struct clv_csv *c, struct clv_csv_field *f, struct clv_error *err)
{
	const char *data = c->data;
	size_t pos = c->pos;
	while (pos < c->size && data[pos] != ',' && data[pos] != '\n' && data[pos] != '\r') {
		if (!data[pos])
			return clv_error_at_line(err, c->name, c->line, "%s", nul);
		if (data[pos] == '"')
			return clv_error_at_line(err, c->name, c->line,
						 "a quote in a field that does not begin with one; expected the whole "
						 "field in quotes, and quotes in it doubled");
		pos++;
	}
	f->text = data + c->pos;
	f->len = pos - c->pos;
	c->pos = pos;
	return true;
}

static bool scan_quoted(struct clv_csv *c, struct clv_csv_field *f, struct clv_error *err)
{
	const char *data = c->data;
	size_t pos = c->pos + 1;
	for (;; pos++) {
		if (pos == c->size)
			return clv_error_at_line(err, c->name, f->line, "a quote opens here and is never closed");
		if (!data[pos])
			return clv_error_at_line(err, c->name, c->line, "%s", nul);
		c->line += data[pos] == '\n';
		if (data[pos] != '"')
			continue;
		if (pos + 1 == c->size || data[pos + 1] != '"')
			break;
		pos++;
	}
	f->text = data + c->pos + 1;
	f->len = pos - c->pos - 1;
	c->pos = pos + 1;
	return true;
}

bool clv_csv_next(struct clv_csv *c, struct clv_csv_field *f, struct clv_error *err)
{
	f->at = c->pos;
	f->line = c->line;
	bool quoted = c->pos < c->size && c->data[c->pos] == '"';
	if (!(quoted ? scan_quoted : scan_plain)(c, f, err))
		return false;
	f->end = c->pos;
	f->last = true;
	if (c->pos == c->size)
		return true;
	char after = c->data[c->pos++];
	if (after == '\r' && c->pos < c->size && c->data[c->pos] == '\n')
		after = c->data[c->pos++];
	if (after == '\r')
		return clv_error_at_line(
			err, c->name, c->line,
			"a carriage return without a line feed; expected lines that end in LF or CRLF");
	if (after != ',' && after != '\n')
		return clv_error_at_line(err, c->name, c->line,
					 "text after a closing quote; expected a comma or the end of the line");
	f->last = after == '\n';
	c->line += f->last;
	return true;
}
