/* SPDX-License-Identifier: MIT */
#include "pickle_write.h"

#include "../utf8.h"

#include <string.h>

#define FRAME_TARGET ((size_t)64 << 10) /* as CPython's */
#define FRAME_HEADER 9u
#define GROUP 1000u     /* as CPython's */
#define TEXT_MAX 65535u /* bytes that are written of a text, as our reader keeps no more */

enum {
	OP_PROTO = 0x80,
	OP_FRAME = 0x95,
	OP_MARK = '(',
	OP_STOP = '.',
	OP_EMPTY_DICT = '}',
	OP_SETITEMS = 'u',
	OP_EMPTY_LIST = ']',
	OP_APPENDS = 'e',
	OP_BININT = 'J',
	OP_BININT1 = 'K',
	OP_BININT2 = 'M',
	OP_LONG1 = 0x8a,
	OP_NEWTRUE = 0x88,
	OP_NEWFALSE = 0x89,
	OP_BINFLOAT = 'G',
	OP_TUPLE2 = 0x86,
	OP_SHORT_BINUNICODE = 0x8c,
	OP_BINUNICODE = 'X',
	OP_MEMOIZE = 0x94,
	OP_BINGET = 'h',
	OP_LONG_BINGET = 'j',
};

static void put_le(char *to, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++, v >>= 8)
		to[i] = (char)(v & 255);
}

static void frame_end(struct clv_pickle_writer *w)
{
	if (w->framed)
		put_le(w->sink.data + w->frame + 1, w->sink.len - w->frame - FRAME_HEADER, 8);
	w->framed = false;
}

/* Room for one opcode with its argument, in a frame: no opcode lies in two. */
static char *room(struct clv_pickle_writer *w, size_t len)
{
	if (w->framed && w->sink.len + len - w->frame > FRAME_TARGET)
		frame_end(w);
	if (!w->framed) {
		char *header = clv_sink_room(&w->sink, FRAME_TARGET + FRAME_HEADER);
		header[0] = (char)OP_FRAME;
		w->frame = w->sink.len;
		w->sink.len += FRAME_HEADER;
		w->framed = true;
	}
	return w->sink.data + w->sink.len;
}

static void op(struct clv_pickle_writer *w, int code)
{
	room(w, 1)[0] = (char)code;
	w->sink.len++;
}

static void op_number(struct clv_pickle_writer *w, int code, uint64_t v, unsigned bytes)
{
	char *to = room(w, 1u + bytes);
	to[0] = (char)code;
	put_le(to + 1, v, bytes);
	w->sink.len += 1u + bytes;
}

bool clv_pw_begin(struct clv_pickle_writer *w, const char *path, struct clv_error *err)
{
	static const char proto[] = {(char)OP_PROTO, 4};
	*w = (struct clv_pickle_writer){.memo = 0};
	if (!clv_sink_begin(&w->sink, path, err))
		return false;
	clv_sink_write(&w->sink, proto, sizeof(proto));
	return true;
}

bool clv_pw_end(struct clv_pickle_writer *w)
{
	op(w, OP_STOP);
	frame_end(w);
	return clv_sink_end(&w->sink);
}

void clv_pw_dict_begin(struct clv_pickle_writer *w)
{
	op(w, OP_EMPTY_DICT);
	op(w, OP_MARK);
}

void clv_pw_dict_end(struct clv_pickle_writer *w)
{
	op(w, OP_SETITEMS);
}

void clv_pw_list_begin(struct clv_pickle_writer *w, struct clv_pickle_list *list)
{
	list->group = 0;
	op(w, OP_EMPTY_LIST);
}

void clv_pw_list_item(struct clv_pickle_writer *w, struct clv_pickle_list *list)
{
	if (list->group == GROUP) {
		op(w, OP_APPENDS);
		list->group = 0;
	}
	if (list->group++ == 0)
		op(w, OP_MARK);
}

void clv_pw_list_end(struct clv_pickle_writer *w, struct clv_pickle_list *list)
{
	if (list->group)
		op(w, OP_APPENDS);
}

/* As many bytes as the number needs; the top bit is its sign. */
static void put_long(struct clv_pickle_writer *w, uint64_t low, bool negative)
{
	unsigned bytes = 9;
	uint64_t fill = negative ? UINT64_MAX : 0;
	while (bytes > 1) {
		unsigned shift = 8 * (bytes - 1) - 1; /* of what would be the top bit with a byte less */
		uint64_t rest = shift < 64 ? (low >> shift) ^ (fill >> shift) : 0;
		if (rest)
			break;
		bytes--;
	}
	char *to = room(w, 2u + bytes);
	to[0] = (char)OP_LONG1;
	to[1] = (char)bytes;
	put_le(to + 2, low, bytes < 8 ? bytes : 8);
	if (bytes == 9)
		to[10] = (char)(fill & 255);
	w->sink.len += 2u + bytes;
}

void clv_pw_int(struct clv_pickle_writer *w, int64_t v)
{
	if (v >= 0 && v < 256)
		op_number(w, OP_BININT1, (uint64_t)v, 1);
	else if (v >= 0 && v < 65536)
		op_number(w, OP_BININT2, (uint64_t)v, 2);
	else if (v >= INT32_MIN && v <= INT32_MAX)
		op_number(w, OP_BININT, (uint64_t)v, 4);
	else
		put_long(w, (uint64_t)v, v < 0);
}

void clv_pw_uint(struct clv_pickle_writer *w, uint64_t v)
{
	if (v <= INT64_MAX)
		clv_pw_int(w, (int64_t)v);
	else
		put_long(w, v, false);
}

void clv_pw_bool(struct clv_pickle_writer *w, bool v)
{
	op(w, v ? OP_NEWTRUE : OP_NEWFALSE);
}

void clv_pw_double(struct clv_pickle_writer *w, double v)
{
	uint64_t bits;
	memcpy(&bits, &v, sizeof(bits));
	op_number(w, OP_BINFLOAT, __builtin_bswap64(bits), 8);
}

void clv_pw_pair(struct clv_pickle_writer *w)
{
	op(w, OP_TUPLE2);
}

void clv_pw_text(struct clv_pickle_writer *w, const char *text)
{
	size_t given = strnlen(text, TEXT_MAX), len = clv_utf8_clean(text, given, NULL);
	bool is_short = len < 256;
	char *to;
	if (len < FRAME_TARGET / 2) {
		to = room(w, 5 + len);
	} else { /* what is large stands outside of frames */
		frame_end(w);
		to = clv_sink_room(&w->sink, 5 + len);
	}
	to[0] = (char)(is_short ? OP_SHORT_BINUNICODE : OP_BINUNICODE);
	put_le(to + 1, len, is_short ? 1 : 4);
	clv_utf8_clean(text, given, to + (is_short ? 2 : 5));
	w->sink.len += (is_short ? 2 : 5) + len;
}

uint32_t clv_pw_memoize(struct clv_pickle_writer *w)
{
	op(w, OP_MEMOIZE);
	return w->memo++;
}

void clv_pw_get(struct clv_pickle_writer *w, uint32_t memo)
{
	if (memo < 256)
		op_number(w, OP_BINGET, memo, 1);
	else
		op_number(w, OP_LONG_BINGET, memo, 4);
}

void clv_pw_known_text(struct clv_pickle_writer *w, const char *text, uint32_t *memo)
{
	if (*memo != CLV_PW_NO_MEMO) {
		clv_pw_get(w, *memo);
		return;
	}
	clv_pw_text(w, text);
	*memo = clv_pw_memoize(w);
}
