/* SPDX-License-Identifier: MIT */
#include "stack_code.h"

#include <string.h>

#define XXH_INLINE_ALL /* no symbol of it is exported or needed */
#include <xxhash.h>

/* Of a longer part of a table of lines, which only modules of many hundred lines have, both ends are looked at. */
#define LINES_WHOLE 1024u

/* ---- fields ---- */

static const char *pointer_at(const char *object, unsigned offset)
{
	const char *p;
	memcpy(&p, object + offset, sizeof(p));
	return p;
}

static int64_t signed_at(const char *object, unsigned offset)
{
	int64_t v;
	memcpy(&v, object + offset, sizeof(v));
	return v;
}

static int int_at(const char *object, unsigned offset)
{
	int v;
	memcpy(&v, object + offset, sizeof(v));
	return v;
}

int64_t clv_code_offset(const struct clv_python_layout *l, const char *frame, const char *code)
{
	switch (l->instruction) {
	case CLV_PYTHON_OFFSET_BYTES:
		return int_at(frame, l->frame_instruction);
	case CLV_PYTHON_OFFSET_UNITS:
		return (int64_t)int_at(frame, l->frame_instruction) * 2;
	default:
		return (int64_t)((uintptr_t)pointer_at(frame, l->frame_instruction) -
				 (uintptr_t)(code + l->code_bytecode));
	}
}

/* ---- lines ---- */

struct lines {
	const uint8_t *at, *end;
};

static struct lines lines_of(const struct clv_python_layout *l, const char *code)
{
	const char *bytes = pointer_at(code, l->code_lines);
	int64_t len = bytes ? signed_at(bytes, l->bytes_len) : 0;
	const uint8_t *data = (const uint8_t *)bytes + (bytes ? l->bytes_data : 0);
	return (struct lines){data, data + (len > 0 && len <= INT32_MAX ? len : 0)};
}

/* Pairs of: so many bytes further, so many lines further (signed). */
static int64_t from_lnotab(struct lines t, int64_t line, int64_t offset, const uint8_t **used)
{
	int64_t at = 0;
	for (; t.end - t.at >= 2; t.at += 2) {
		at += t.at[0];
		*used = t.at + 1;
		if (at > offset)
			break;
		*used = t.at + 2;
		line += (int8_t)t.at[1];
	}
	return line;
}

/* Pairs of: the length of a range of bytecode in bytes, and its line less that of the range before (signed; -128: it
 * has none). */
static int64_t from_linetable(struct lines t, int64_t line, int64_t offset, const uint8_t **used)
{
	int64_t end = 0;
	for (; t.end - t.at >= 2; t.at += 2) {
		int8_t step = (int8_t)t.at[1];
		end += t.at[0];
		*used = t.at + 2;
		if (step != -128)
			line += step;
		if (offset < end)
			return step == -128 ? 0 : line;
	}
	return 0;
}

/* 6 bits a byte, the lowest first; bit 6: another one follows. */
static uint64_t varint(struct lines *t)
{
	uint64_t v = 0;
	unsigned shift = 0;
	while (t->at < t->end) {
		uint8_t byte = *t->at++;
		if (shift < 63)
			v |= (uint64_t)(byte & 63) << shift;
		shift += 6;
		if (!(byte & 64))
			break;
	}
	return v;
}

static int64_t signed_varint(struct lines *t)
{
	uint64_t v = varint(t);
	return v & 1 ? -(int64_t)(v >> 1) : (int64_t)(v >> 1);
}

/* Entries that begin with a byte of bit 7 set: 4 bits of kind, 3 bits of the length of the range, less 1, in units of
 * 2 bytes. */
static int64_t from_locations(struct lines t, int64_t line, int64_t offset, const uint8_t **used)
{
	enum { ONE_LINE = 10, NO_COLUMNS = 13, LONG = 14, NONE = 15 };
	int64_t end = 0;
	while (t.at < t.end) {
		uint8_t head = *t.at++;
		unsigned kind = head >> 3 & 15;
		end += 2 * ((head & 7) + 1);
		if (kind == NO_COLUMNS || kind == LONG)
			line += signed_varint(&t);
		else if (kind >= ONE_LINE && kind < NO_COLUMNS)
			line += kind - ONE_LINE;
		while (t.at < t.end && !(*t.at & 128)) /* columns */
			t.at++;
		*used = t.at;
		if (offset < end)
			return kind == NONE ? 0 : line;
	}
	return 0;
}

uint32_t clv_code_line(const struct clv_python_layout *l, const char *code, int64_t offset, size_t *used)
{
	int64_t line = int_at(code, l->code_firstlineno);
	struct lines t = lines_of(l, code);
	const uint8_t *end = t.at;
	if (offset >= 0) {
		if (l->lines == CLV_PYTHON_LNOTAB)
			line = from_lnotab(t, line, offset, &end);
		else if (l->lines == CLV_PYTHON_LINETABLE)
			line = from_linetable(t, line, offset, &end);
		else
			line = from_locations(t, line, offset, &end);
	}
	*used = (size_t)(end - t.at);
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* ---- texts ---- */

struct text {
	const char *data;
	uint64_t len;  /* characters */
	unsigned kind; /* bytes a character: 1, 2, 4; 0: not readable */
	bool ascii;
};

static struct text text_of(const struct clv_python_layout *l, const char *code, enum clv_code_text which)
{
	struct text t = {0};
	const char *str = pointer_at(code, which == CLV_CODE_FILE ? l->code_filename : l->code_name);
	if (!str)
		return t;
	unsigned state = (unsigned)int_at(str, l->text_state);
	int64_t len = signed_at(str, l->text_len);
	unsigned kind = state >> 2 & 7;
	bool compact = state >> 5 & 1;
	if (!compact || len <= 0 || len > INT32_MAX || (kind != 1 && kind != 2 && kind != 4))
		return t;
	t.ascii = state >> 6 & 1;
	t.kind = kind;
	t.len = (uint64_t)len;
	t.data = str + (t.ascii ? l->ascii_data : l->text_data);
	return t;
}

static uint32_t char_at(const struct text *t, uint64_t i)
{
	uint16_t two;
	uint32_t four;
	switch (t->kind) {
	case 1:
		return (uint8_t)t->data[i];
	case 2:
		memcpy(&two, t->data + 2 * i, sizeof(two));
		return two;
	default:
		memcpy(&four, t->data + 4 * i, sizeof(four));
		return four;
	}
}

/* Of at most 4 bytes. */
static size_t to_utf8(uint32_t c, char *out)
{
	if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		c = 0xfffd;
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
	out[0] = (char)(lead[more] | c >> (6 * more));
	for (unsigned i = 1; i <= more; i++)
		out[i] = (char)(0x80 | (c >> (6 * (more - i)) & 63));
	return more + 1;
}

size_t clv_code_text(const struct clv_python_layout *l, const char *code, enum clv_code_text which, char *out,
		     size_t room)
{
	struct text t = text_of(l, code, which);
	size_t used = 0;
	for (uint64_t i = 0; t.kind && i < t.len; i++) {
		char bytes[4];
		size_t len = to_utf8(char_at(&t, i), bytes);
		if (len > room - used)
			break;
		memcpy(out + used, bytes, len);
		used += len;
	}
	return used;
}

/* ---- contents ---- */

/* CPython keeps the hash of a text once it was asked for, as it was of all names. */
static uint64_t mix_text(const struct clv_python_layout *l, const char *code, enum clv_code_text which, uint64_t seed)
{
	const char *str = pointer_at(code, which == CLV_CODE_FILE ? l->code_filename : l->code_name);
	int64_t known = str ? signed_at(str, l->text_hash) : 0;
	if (known != -1)
		return clv_mix64(seed + (uint64_t)known);
	struct text t = text_of(l, code, which);
	return t.kind ? XXH3_64bits_withSeed(t.data, t.len * t.kind, seed + t.kind) : seed;
}

uint64_t clv_code_contents(const struct clv_python_layout *l, const char *code, size_t used)
{
	struct lines t = lines_of(l, code);
	if (l->code_version && int_at(code, l->code_version))
		return 0;
	uint64_t hash = mix_text(l, code, CLV_CODE_FILE, 0);
	hash = mix_text(l, code, CLV_CODE_FUNCTION, hash);
	used = clv_min_u64(used, (uint64_t)(t.end - t.at));
	if (used > LINES_WHOLE) {
		hash = XXH3_64bits_withSeed(t.at, LINES_WHOLE / 2, hash);
		t.at += used - LINES_WHOLE / 2;
		used = LINES_WHOLE / 2;
	}
	hash = XXH3_64bits_withSeed(t.at, used, hash + used);
	return hash ? hash : 1;
}
