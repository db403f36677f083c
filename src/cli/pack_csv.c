/* SPDX-License-Identifier: MIT */
#include "pack_csv.h"

#include "csv.h"

#include "../../tracing/map.h"
#include "../../tracing/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* (enumerator, name, whether the table must have it) */
#define COLUMNS(X)                                                                                                     \
	X(ID, "id", true)                                                                                              \
	X(LOWER, "lower", true)                                                                                        \
	X(UPPER, "upper", true)                                                                                        \
	X(SIZE, "size", true)                                                                                          \
	X(ALIGNMENT, "alignment", false)                                                                               \
	X(OFFSET, "offset", false)                                                                                     \
	X(GAPS, "gaps", false)

enum column {
#define X(name, text, needed) COL_##name,
	COLUMNS(X)
#undef X
		COL_COUNT
};

static const struct {
	const char *name;
	bool needed;
} columns[] = {
#define X(name, text, needed) {text, needed},
	COLUMNS(X)
#undef X
};

struct reader {
	struct clv_pack_csv *t;
	struct clv_csv csv;
	struct clv_error *err;
	size_t width;   /* columns of the table */
	uint8_t *roles; /* by place: enum column, or COL_COUNT */
	size_t role_room, buffer_room, row_room, gap_room, gap_count;
	struct clv_map ids;                     /* hash of an id to its row */
	struct clv_csv_field fields[COL_COUNT]; /* of the row that is read */
};

#define SHOWN 48
typedef char shown[SHOWN];

/* What a file says, fit for a message. */
static const char *show(const char *text, size_t len, shown buf)
{
	size_t n = clv_min_u64(len, SHOWN - 1);
	for (size_t i = 0; i < n; i++)
		buf[i] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
	buf[n] = '\0';
	if (n < len)
		memcpy(buf + SHOWN - 4, "...", 4);
	return buf;
}

static bool no_memory(struct reader *r)
{
	return clv_error_set(r->err, "%s: out of host memory", r->csv.name);
}

static bool is(const struct clv_csv_field *f, const char *name)
{
	return f->len == strlen(name) && memcmp(f->text, name, f->len) == 0;
}

static bool refuse_header(struct reader *r, size_t begin, const char *missing)
{
	const struct clv_pack_csv *t = r->t;
	shown line;
	return clv_error_at_line(r->err, r->csv.name, 1,
				 "there is no column '%s' in '%s'; expected names in lower case and commas between "
				 "them, such as id,lower,upper,size",
				 missing, show((const char *)t->in->data + begin, t->header_end - begin, line));
}

static bool read_header(struct reader *r)
{
	size_t begin = r->csv.pos;
	struct clv_csv_field f = {.last = false};
	bool there[COL_COUNT] = {false};
	if (!clv_csv_more(&r->csv))
		return clv_error_at_line(r->err, r->csv.name, 1,
					 "the file is empty; expected a first line such as id,lower,upper,size");
	while (!f.last) {
		if (!clv_csv_next(&r->csv, &f, r->err))
			return false;
		if (!clv_mem_reserve(&r->roles, &r->role_room, r->width + 1, 1))
			return no_memory(r);
		uint8_t role = 0;
		while (role < COL_COUNT && !is(&f, columns[role].name))
			role++;
		if (role < COL_COUNT && there[role])
			return clv_error_at_line(r->err, r->csv.name, f.line,
						 "the column '%s' is there twice; expected it once",
						 columns[role].name);
		if (role < COL_COUNT)
			there[role] = true;
		r->roles[r->width++] = role;
	}
	r->t->header_end = f.end;
	r->t->has_offsets = there[COL_OFFSET];
	for (int c = 0; c < COL_COUNT; c++)
		if (columns[c].needed && !there[c])
			return refuse_header(r, begin, columns[c].name);
	return true;
}

/* Of a size, an alignment and an offset: as cleave_pack() has it of their sum. */
#define AMOUNT_MAX (((uint64_t)1 << 62) - 1)

enum parsed { A_NUMBER, NO_NUMBER, NEGATIVE, TOO_LARGE, TOO_SMALL };

/* Takes a sign and digits off the front. */
static enum parsed take_number(const char **p, const char *end, bool *negative, uint64_t *out)
{
	bool digits = false, large = false;
	*out = 0;
	*negative = *p < end && **p == '-';
	*p += *negative;
	for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
		digits = true;
		large |= __builtin_mul_overflow(*out, (uint64_t)10, out) ||
			 __builtin_add_overflow(*out, (uint64_t)(**p - '0'), out);
	}
	return !digits ? NO_NUMBER : large ? TOO_LARGE : A_NUMBER;
}

static enum parsed take_time(const char **p, const char *end, int64_t *out)
{
	uint64_t size;
	bool negative;
	enum parsed parsed = take_number(p, end, &negative, &size);
	if (parsed == TOO_LARGE || (parsed == A_NUMBER && size > (uint64_t)INT64_MAX + negative))
		return negative ? TOO_SMALL : TOO_LARGE;
	*out = (int64_t)(negative ? 0 - size : size);
	return parsed;
}

static bool refuse_number(struct reader *r, enum column c, enum parsed parsed)
{
	static const char *const what[] = {[NO_NUMBER] = "is no whole number",
					   [NEGATIVE] = "is negative",
					   [TOO_LARGE] = "is too large",
					   [TOO_SMALL] = "is too small"};
	const struct clv_csv_field *f = &r->fields[c];
	shown text;
	bool time = c == COL_LOWER || c == COL_UPPER;
	return clv_error_at_line(r->err, r->csv.name, f->line, "%s: '%s' %s; expected %s to %" PRIu64, columns[c].name,
				 show(f->text, f->len, text), what[parsed], time ? "-9223372036854775808" : "0",
				 time ? (uint64_t)INT64_MAX : AMOUNT_MAX);
}

static bool read_time(struct reader *r, enum column c, int64_t *out)
{
	const char *p = r->fields[c].text, *end = p + r->fields[c].len;
	enum parsed parsed = take_time(&p, end, out);
	if (p < end)
		parsed = NO_NUMBER;
	return parsed == A_NUMBER || refuse_number(r, c, parsed);
}

/* *out stays as it is where an optional field is empty. */
static bool read_amount(struct reader *r, enum column c, uint64_t *out)
{
	const char *p = r->fields[c].text, *end = p + r->fields[c].len;
	bool negative;
	if (p == end && !columns[c].needed)
		return true;
	enum parsed parsed = take_number(&p, end, &negative, out);
	if (p < end)
		parsed = NO_NUMBER;
	else if (negative && (parsed == TOO_LARGE || (parsed == A_NUMBER && *out)))
		parsed = NEGATIVE;
	else if (parsed == A_NUMBER && *out > AMOUNT_MAX)
		parsed = TOO_LARGE;
	return parsed == A_NUMBER || refuse_number(r, c, parsed);
}

static bool refuse_gap(struct reader *r, const char *why)
{
	const struct clv_csv_field *f = &r->fields[COL_GAPS];
	shown text;
	return clv_error_at_line(r->err, r->csv.name, f->line,
				 "gaps: '%s' %s; expected spans of time such as 3-5 8-9, which may be negative",
				 show(f->text, f->len, text), why);
}

static bool read_gaps(struct reader *r, cleave_pack_buffer *b)
{
	const struct clv_csv_field *f = &r->fields[COL_GAPS];
	const char *p = f->text, *end = p + f->len;
	for (;;) {
		while (p < end && *p == ' ')
			p++;
		if (p == end)
			return true;
		cleave_pack_span gap;
		enum parsed first = take_time(&p, end, &gap.lower), second = NO_NUMBER;
		if (first != NO_NUMBER && p < end && *p == '-') {
			p++;
			second = take_time(&p, end, &gap.upper);
		}
		if (second == NO_NUMBER || (p < end && *p != ' '))
			return refuse_gap(r, "is no list of spans");
		if (first == TOO_SMALL || second == TOO_SMALL)
			return refuse_gap(r, "has a time that is too small");
		if (first == TOO_LARGE || second == TOO_LARGE)
			return refuse_gap(r, "has a time that is too large");
		if (!clv_mem_reserve(&r->t->gaps, &r->gap_room, r->gap_count + 1, sizeof(gap)))
			return no_memory(r);
		r->t->gaps[r->gap_count++] = gap;
		b->gap_count++;
	}
}

static bool add_id(struct reader *r, uint32_t row)
{
	const struct clv_csv_field *f = &r->fields[COL_ID];
	shown text;
	if (!f->len)
		return clv_error_at_line(r->err, r->csv.name, f->line, "id: is empty; expected a name");
	for (uint64_t key = XXH3_64bits(f->text, f->len);; key = clv_mix64(key + 1)) {
		struct clv_map_slot *slot = clv_map_slot(&r->ids, key);
		if (!slot)
			return no_memory(r);
		if (slot->value == CLV_MAP_NONE) {
			slot->value = row;
			return true;
		}
		const struct clv_pack_row *other = &r->t->rows[slot->value];
		if (other->id_len == f->len && memcmp(other->id, f->text, f->len) == 0)
			return clv_error_at_line(r->err, r->csv.name, f->line,
						 "id: '%s' is that of line %" PRIu64 " already; expected each once",
						 show(f->text, f->len, text), other->line);
	}
}

static bool split_row(struct reader *r, struct clv_csv_field *f)
{
	uint64_t line = r->csv.line;
	size_t count = 0;
	for (int c = 0; c < COL_COUNT; c++)
		r->fields[c] = (struct clv_csv_field){.line = line}; /* as if empty */
	do {
		if (!clv_csv_next(&r->csv, f, r->err))
			return false;
		if (count < r->width && r->roles[count] < COL_COUNT)
			r->fields[r->roles[count]] = *f;
		count++;
	} while (!f->last);
	if (count == 1 && f->at == f->end)
		return clv_error_at_line(r->err, r->csv.name, line, "an empty line; expected a buffer");
	if (count != r->width)
		return clv_error_at_line(r->err, r->csv.name, line, "%zu field%s; expected %zu, as in the first line",
					 count, count == 1 ? "" : "s", r->width);
	return true;
}

static bool read_row(struct reader *r)
{
	struct clv_pack_csv *t = r->t;
	struct clv_csv_field last;
	if (!clv_mem_reserve(&t->buffers, &r->buffer_room, t->count + 1, sizeof(*t->buffers)) ||
	    !clv_mem_reserve(&t->rows, &r->row_room, t->count + 1, sizeof(*t->rows)))
		return no_memory(r);
	struct clv_pack_row *row = &t->rows[t->count];
	cleave_pack_buffer *b = &t->buffers[t->count];
	*b = (cleave_pack_buffer){.offset = CLEAVE_PACK_ANYWHERE};
	*row = (struct clv_pack_row){.line = r->csv.line};
	if (!split_row(r, &last))
		return false;
	if (t->count >= CLV_MAP_NONE)
		return clv_error_at_line(r->err, r->csv.name, row->line, "expected fewer buffers");
	if (!add_id(r, (uint32_t)t->count) || !read_time(r, COL_LOWER, &b->lower) ||
	    !read_time(r, COL_UPPER, &b->upper) || !read_amount(r, COL_SIZE, &b->size) ||
	    !read_amount(r, COL_ALIGNMENT, &b->alignment) || !read_amount(r, COL_OFFSET, &b->offset) ||
	    !read_gaps(r, b))
		return false;
	const struct clv_csv_field *offset = t->has_offsets ? &r->fields[COL_OFFSET] : NULL;
	row->id = r->fields[COL_ID].text;
	row->id_len = r->fields[COL_ID].len;
	row->cut = offset && !offset->len ? offset->at : last.end;
	row->cut_end = offset && !offset->len ? offset->end : last.end;
	t->count++;
	return true;
}

bool clv_pack_csv_read(struct clv_pack_csv *t, const struct clv_input *in, struct clv_error *err)
{
	struct reader r = {.t = t, .err = err};
	*t = (struct clv_pack_csv){.in = in};
	clv_csv_begin(&r.csv, in->name, in->data, in->size);
	bool ok = read_header(&r);
	while (ok && clv_csv_more(&r.csv))
		ok = read_row(&r);
	size_t gap = 0;
	for (size_t i = 0; ok && i < t->count; gap += t->buffers[i++].gap_count)
		t->buffers[i].gaps = t->buffers[i].gap_count ? t->gaps + gap : NULL;
	clv_map_free(&r.ids);
	clv_mem_free(r.roles);
	if (!ok)
		clv_pack_csv_free(t);
	return ok;
}

void clv_pack_csv_free(struct clv_pack_csv *t)
{
	clv_mem_free(t->buffers);
	clv_mem_free(t->rows);
	clv_mem_free(t->gaps);
	*t = (struct clv_pack_csv){0};
}

bool clv_pack_csv_refuse(const struct clv_pack_csv *t, const char *why, struct clv_error *err)
{
	size_t one, two;
	int rest = 0;
	shown first, second;
	if (sscanf(why, "buffers %zu and %zu%n", &one, &two, &rest) == 2 && rest && one < t->count && two < t->count) {
		const struct clv_pack_row *a = &t->rows[one], *b = &t->rows[two];
		return clv_error_at_line(err, t->in->name, b->line, "'%s' (line %" PRIu64 ") and '%s'%s",
					 show(a->id, a->id_len, first), a->line, show(b->id, b->id_len, second),
					 why + rest);
	}
	if (sscanf(why, "buffer %zu%n", &one, &rest) == 1 && rest && one < t->count)
		return clv_error_at_line(err, t->in->name, t->rows[one].line, "'%s'%s",
					 show(t->rows[one].id, t->rows[one].id_len, first), why + rest);
	return clv_error_at_line(err, t->in->name, 1, "%s", why);
}

struct writer {
	struct clv_output out;
	struct clv_error *err;
	size_t used;
	char buf[1 << 16];
};

static void flush(struct writer *w)
{
	clv_output_write(&w->out, w->buf, w->used, w->err);
	w->used = 0;
}

static void put(struct writer *w, const void *data, size_t len)
{
	if (len > sizeof(w->buf) - w->used)
		flush(w);
	if (len > sizeof(w->buf)) {
		clv_output_write(&w->out, data, len, w->err);
	} else {
		memcpy(w->buf + w->used, data, len);
		w->used += len;
	}
}

static void put_text(struct writer *w, const char *text)
{
	put(w, text, strlen(text));
}

/* Every byte once, in order; `data` up to pos is written. */
static void write_table(struct writer *w, const struct clv_pack_csv *t, const uint64_t *offsets)
{
	const uint8_t *data = t->in->data;
	size_t pos = t->has_offsets ? 0 : t->header_end;
	put(w, data, pos);
	if (!t->has_offsets)
		put_text(w, ",offset");
	for (size_t i = 0; i < t->count; i++) {
		const struct clv_pack_row *row = &t->rows[i];
		if (t->has_offsets && t->buffers[i].offset != CLEAVE_PACK_ANYWHERE)
			continue; /* it stays where it was told to be */
		char number[24];
		snprintf(number, sizeof(number), "%s%" PRIu64, t->has_offsets ? "" : ",", offsets[i]);
		put(w, data + pos, row->cut - pos);
		put_text(w, number);
		pos = row->cut_end;
	}
	put(w, data + pos, t->in->size - pos);
	flush(w);
}

bool clv_pack_csv_write(const struct clv_pack_csv *t, const uint64_t *offsets, const char *path, struct clv_error *err)
{
	struct writer *w = clv_mem_alloc(sizeof(*w));
	bool ok = false;
	if (!w)
		return clv_error_set(err, "%s: out of host memory", path);
	w->err = err;
	w->used = 0;
	if (clv_output_begin(&w->out, path, err)) {
		write_table(w, t, offsets);
		ok = clv_output_end(&w->out, true, err);
	}
	clv_mem_free(w);
	return ok;
}
