/* SPDX-License-Identifier: MIT */
#include "pickle_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Opcodes, for messages and to tell what is refused. */
enum op_class { OP_UNKNOWN, OP_DATA, OP_OBJECT, OP_TEXT };

static const struct {
	const char *name;
	enum op_class class;
} ops[256] = {
	['('] = {"MARK", OP_DATA},
	['.'] = {"STOP", OP_DATA},
	['0'] = {"POP", OP_DATA},
	['1'] = {"POP_MARK", OP_DATA},
	['2'] = {"DUP", OP_DATA},
	['F'] = {"FLOAT", OP_TEXT},
	['I'] = {"INT", OP_DATA},
	['J'] = {"BININT", OP_DATA},
	['K'] = {"BININT1", OP_DATA},
	['L'] = {"LONG", OP_DATA},
	['M'] = {"BININT2", OP_DATA},
	['N'] = {"NONE", OP_DATA},
	['P'] = {"PERSID", OP_OBJECT},
	['Q'] = {"BINPERSID", OP_OBJECT},
	['R'] = {"REDUCE", OP_OBJECT},
	['S'] = {"STRING", OP_TEXT},
	['T'] = {"BINSTRING", OP_DATA},
	['U'] = {"SHORT_BINSTRING", OP_DATA},
	['V'] = {"UNICODE", OP_TEXT},
	['X'] = {"BINUNICODE", OP_DATA},
	['a'] = {"APPEND", OP_DATA},
	['b'] = {"BUILD", OP_OBJECT},
	['c'] = {"GLOBAL", OP_OBJECT},
	['d'] = {"DICT", OP_DATA},
	['}'] = {"EMPTY_DICT", OP_DATA},
	['e'] = {"APPENDS", OP_DATA},
	['g'] = {"GET", OP_DATA},
	['h'] = {"BINGET", OP_DATA},
	['i'] = {"INST", OP_OBJECT},
	['j'] = {"LONG_BINGET", OP_DATA},
	['l'] = {"LIST", OP_DATA},
	[']'] = {"EMPTY_LIST", OP_DATA},
	['o'] = {"OBJ", OP_OBJECT},
	['p'] = {"PUT", OP_DATA},
	['q'] = {"BINPUT", OP_DATA},
	['r'] = {"LONG_BINPUT", OP_DATA},
	['s'] = {"SETITEM", OP_DATA},
	['t'] = {"TUPLE", OP_DATA},
	[')'] = {"EMPTY_TUPLE", OP_DATA},
	['u'] = {"SETITEMS", OP_DATA},
	['B'] = {"BINBYTES", OP_DATA},
	['C'] = {"SHORT_BINBYTES", OP_DATA},
	['G'] = {"BINFLOAT", OP_DATA},
	[0x80] = {"PROTO", OP_DATA},
	[0x81] = {"NEWOBJ", OP_OBJECT},
	[0x82] = {"EXT1", OP_OBJECT},
	[0x83] = {"EXT2", OP_OBJECT},
	[0x84] = {"EXT4", OP_OBJECT},
	[0x85] = {"TUPLE1", OP_DATA},
	[0x86] = {"TUPLE2", OP_DATA},
	[0x87] = {"TUPLE3", OP_DATA},
	[0x88] = {"NEWTRUE", OP_DATA},
	[0x89] = {"NEWFALSE", OP_DATA},
	[0x8a] = {"LONG1", OP_DATA},
	[0x8b] = {"LONG4", OP_DATA},
	[0x8c] = {"SHORT_BINUNICODE", OP_DATA},
	[0x8d] = {"BINUNICODE8", OP_DATA},
	[0x8e] = {"BINBYTES8", OP_DATA},
	[0x8f] = {"EMPTY_SET", OP_DATA},
	[0x90] = {"ADDITEMS", OP_DATA},
	[0x91] = {"FROZENSET", OP_DATA},
	[0x92] = {"NEWOBJ_EX", OP_OBJECT},
	[0x93] = {"STACK_GLOBAL", OP_OBJECT},
	[0x94] = {"MEMOIZE", OP_DATA},
	[0x95] = {"FRAME", OP_DATA},
	[0x96] = {"BYTEARRAY8", OP_DATA},
	[0x97] = {"NEXT_BUFFER", OP_OBJECT},
	[0x98] = {"READONLY_BUFFER", OP_OBJECT},
};

const char *clv_pickle_op_name(uint8_t op)
{
	return ops[op].name;
}

bool clv_pickle_error(struct clv_pickle *p, uint64_t offset, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return clv_error_at(p->err, p->in->name, offset, "%s", text);
}

bool clv_pickle_no_memory(struct clv_pickle *p)
{
	return clv_error_set(p->err, "%s: out of host memory", p->in->name);
}

uint64_t clv_pickle_offset(const struct clv_pickle *p)
{
	return p->op_at;
}

static bool truncated(struct clv_pickle *p)
{
	return clv_pickle_error(p, p->op_at, "the file ends inside the opcode %s", ops[p->in->data[p->op_at]].name);
}

bool clv_pk_underflow(struct clv_pickle *p)
{
	return clv_pickle_error(p, p->op_at, "not a valid pickle: %s finds too few values",
				ops[p->in->data[p->op_at]].name);
}

bool clv_pk_no_memo(struct clv_pickle *p, uint64_t index)
{
	return clv_pickle_error(p, p->op_at, "not a valid pickle: nothing has memo index %llu",
				(unsigned long long)index);
}

static bool pop_mark(struct clv_pickle *p, size_t *first)
{
	if (p->mark_count == 0)
		return clv_pickle_error(p, p->op_at, "not a valid pickle: %s without a MARK",
					ops[p->in->data[p->op_at]].name);
	*first = p->marks[--p->mark_count];
	p->fence = p->mark_count ? p->marks[p->mark_count - 1] : 0;
	return true;
}

static bool op_mark(struct clv_pickle *p)
{
	if (!clv_mem_reserve(&p->marks, &p->mark_cap, p->mark_count + 1, sizeof(*p->marks)))
		return clv_pickle_no_memory(p);
	p->marks[p->mark_count++] = p->fence = p->depth;
	return true;
}

static bool op_pop(struct clv_pickle *p)
{
	size_t first;
	if (p->mark_count && p->depth == p->fence)
		return pop_mark(p, &first);
	if (p->depth == 0)
		return clv_pk_underflow(p);
	clv_pk_release(p, p->stack[--p->depth]);
	return true;
}

static bool op_dup(struct clv_pickle *p)
{
	if (p->depth == p->fence)
		return clv_pk_underflow(p);
	struct clv_pk_object *o = clv_pk_object_of(p, p->stack[p->depth - 1]);
	if (o)
		o->shared = true;
	return clv_pk_push(p, p->stack[p->depth - 1]);
}

/* Makes a tuple of the top `count` values. */
static bool make_tuple(struct clv_pickle *p, size_t count)
{
	if (p->depth - p->fence < count)
		return clv_pk_underflow(p);
	clv_pk *v = &p->stack[p->depth - count];
	clv_pk tuple = clv_pk_opaque(p);
	int64_t a, b, was_a, was_b;
	if (count == 2 && clv_pickle_i64(p, v[0], &a) && clv_pickle_i64(p, v[1], &b)) {
		tuple = p->last_pair;
		if (!clv_pickle_pair(p, tuple, &was_a, &was_b) || was_a != a || was_b != b) {
			if (!clv_pk_box(p, (uint64_t)a) || !clv_pk_box(p, (uint64_t)b))
				return false;
			p->last_pair = tuple = clv_pk_make(CLV_PK_PAIR, p->box_count - 2);
		}
	}
	clv_pk_release_many(p, v, count);
	p->depth -= count;
	return clv_pk_push(p, tuple);
}

/* LIST, DICT: everything above the mark goes into a new object. */
static bool make_object(struct clv_pickle *p, enum clv_pk_tag tag)
{
	size_t first = 0;
	if (!pop_mark(p, &first))
		return false;
	size_t count = p->depth - first;
	if (!clv_pk_push_object(p, tag))
		return false;
	size_t at = p->depth - 1;
	if (!(tag == CLV_PK_LIST ? clv_pk_append(p, at, first, count) : clv_pk_set_items(p, at, first, count, true)))
		return false;
	p->stack[first] = p->stack[at];
	p->depth = first + 1;
	return true;
}

/* APPENDS, SETITEMS, ADDITEMS, TUPLE, FROZENSET, POP_MARK */
static bool op_to_mark(struct clv_pickle *p, uint8_t op)
{
	size_t first = 0;
	if (!pop_mark(p, &first))
		return false;
	size_t count = p->depth - first;
	if (op == 't')
		return make_tuple(p, count);
	if (op == 'e' || op == 'u' || op == 0x90) {
		if (first == p->fence)
			return clv_pk_underflow(p);
		if (op == 'e' && !clv_pk_append(p, first - 1, first, count))
			return false;
		if (op == 'u' && !clv_pk_set_items(p, first - 1, first, count, true))
			return false;
	}
	if (op == 0x90 || op == 0x91 || op == '1')
		clv_pk_release_many(p, &p->stack[first], count);
	p->depth = first;
	return op != 0x91 || clv_pk_push(p, clv_pk_opaque(p));
}

static bool op_set_one(struct clv_pickle *p, uint8_t op)
{
	size_t count = op == 'a' ? 1 : 2;
	if (p->depth - p->fence < count + 1)
		return clv_pk_underflow(p);
	size_t first = p->depth - count;
	if (!(op == 'a' ? clv_pk_append(p, first - 1, first, 1) : clv_pk_set_items(p, first - 1, first, 2, false)))
		return false;
	p->depth = first;
	return true;
}

/* `len` bytes of a little-endian integer in two's complement. */
static bool push_long(struct clv_pickle *p, const uint8_t *b, size_t len)
{
	if (len == 0)
		return clv_pk_push(p, clv_pk_small(0));
	uint8_t sign = b[len - 1] & 0x80 ? 0xff : 0;
	while (len > 1 && b[len - 1] == sign && (b[len - 2] & 0x80) == (sign & 0x80))
		len--; /* bytes that only repeat the sign */
	uint64_t v = sign ? UINT64_MAX : 0;
	for (size_t i = len < 8 ? len : 8; i-- > 0;)
		v = v << 8 | b[i];
	if (len <= 8)
		return clv_pk_push_int(p, (int64_t)v);
	if (len == 9 && b[8] == 0)
		return clv_pk_box(p, v) && clv_pk_push(p, clv_pk_make(CLV_PK_BIG, p->box_count - 1));
	return clv_pk_push(p, clv_pk_opaque(p)); /* no number of ours is that large */
}

#define MAX_LINE 65536 /* no number of ours takes as many digits */

/* The line of a text form, without its end. */
static bool text_line(struct clv_pickle *p, const uint8_t **text, size_t *len)
{
	const uint8_t *from = p->in->data + p->pos;
	size_t left = p->in->size - p->pos;
	const uint8_t *end = memchr(from, '\n', clv_min_u64(left, MAX_LINE));
	if (!end && left >= MAX_LINE)
		return clv_pickle_error(p, p->op_at, "not a valid pickle: %s is no number",
					ops[p->in->data[p->op_at]].name);
	if (!end)
		return truncated(p);
	*text = from;
	*len = (size_t)(end - from);
	p->pos += *len + 1;
	return true;
}

static bool op_text_number(struct clv_pickle *p, uint8_t op)
{
	const uint8_t *t = NULL;
	size_t len = 0;
	if (!text_line(p, &t, &len))
		return false;
	if (op == 'I' && len == 2 && t[0] == '0' && (t[1] == '0' || t[1] == '1'))
		return clv_pk_push(p, clv_pk_make(CLV_PK_BOOL, t[1] == '1'));
	if (op == 'L' && len && t[len - 1] == 'L')
		len--;
	bool negative = len && t[0] == '-';
	size_t i = negative;
	__int128 v = 0;
	bool huge = false;
	for (; i < len && t[i] >= '0' && t[i] <= '9'; i++) {
		huge |= v > ((__int128)1 << 64);
		if (!huge)
			v = v * 10 + (t[i] - '0');
	}
	if (i != len || len == (size_t)negative)
		return clv_pickle_error(p, p->op_at, "not a valid pickle: %s is no number", ops[op].name);
	v = negative ? -v : v;
	if (op == 'p' || op == 'g') {
		uint64_t index = huge || v < 0 || v > UINT32_MAX ? UINT64_MAX : (uint64_t)v;
		return op == 'p' ? clv_pk_memo_put(p, index) : clv_pk_memo_get(p, index);
	}
	if (huge || v > UINT64_MAX || v < INT64_MIN)
		return clv_pk_push(p, clv_pk_opaque(p));
	if (v <= INT64_MAX)
		return clv_pk_push_int(p, (int64_t)v);
	return clv_pk_box(p, (uint64_t)v) && clv_pk_push(p, clv_pk_make(CLV_PK_BIG, p->box_count - 1));
}

/* `width` bytes of length, then so many of text or bytes. */
static bool op_counted(struct clv_pickle *p, size_t width, char kind)
{
	const uint8_t *d = p->in->data + p->pos;
	size_t left = p->in->size - p->pos;
	if (left < width)
		return truncated(p);
	uint64_t len = 0;
	for (size_t i = width; i-- > 0;)
		len = len << 8 | d[i];
	bool is_signed = width == 4 && (kind == 'i' || kind == 'x');
	if (is_signed && len > INT32_MAX)
		return clv_pickle_error(p, p->op_at, "not a valid pickle: %s of a negative length",
					ops[p->in->data[p->op_at]].name);
	if (len > left - width)
		return truncated(p);
	p->pos += width + (size_t)len;
	if (kind == 'i')
		return push_long(p, d + width, (size_t)len);
	if (kind == 'b')
		return clv_pk_push(p, clv_pk_opaque(p));
	clv_pk v;
	return clv_pk_intern(p, d + width, (size_t)len, &v) && clv_pk_push(p, v);
}

static uint64_t little(const uint8_t *d, size_t width)
{
	uint64_t v = 0;
	for (size_t i = width; i-- > 0;)
		v = v << 8 | d[i];
	return v;
}

static bool push_float(struct clv_pickle *p, const uint8_t *d)
{
	return clv_pk_box(p, __builtin_bswap64(little(d, 8))) &&
	       clv_pk_push(p, clv_pk_make(CLV_PK_FLOAT, p->box_count - 1));
}

static bool op_proto(struct clv_pickle *p, uint8_t version)
{
	if (version >= 2 && version <= 5)
		return true;
	return clv_pickle_error(p, p->op_at, "a pickle of protocol %u; protocols 2 to 5 are read", version);
}

static bool refuse(struct clv_pickle *p, uint8_t op)
{
	switch (ops[op].class) {
	case OP_OBJECT:
		return clv_pickle_error(
			p, p->op_at,
			"the opcode %s builds objects or runs code; a memory snapshot holds only data, so it is "
			"refused",
			ops[op].name);
	case OP_TEXT:
		return clv_pickle_error(p, p->op_at, "the opcode %s belongs to protocol 0; protocols 2 to 5 are read",
					ops[op].name);
	default:
		return clv_pickle_error(p, p->op_at, "not a valid pickle: unknown opcode 0x%02x", op);
	}
}

/* Runs one opcode other than STOP. `left` bytes follow it. */
static bool step(struct clv_pickle *p, uint8_t op)
{
	const uint8_t *d = p->in->data + p->pos;
	size_t left = p->in->size - p->pos;
	switch (op) {
#define TAKE(n)                                                                                                        \
	do {                                                                                                           \
		if (CLV_UNLIKELY(left < (n)))                                                                          \
			return truncated(p);                                                                           \
		p->pos += (n);                                                                                         \
	} while (0)
	case 'h': /* BINGET */
		TAKE(1);
		return clv_pk_memo_get(p, d[0]);
	case 0x94: /* MEMOIZE */
		return clv_pk_memo_put(p, p->memo_used);
	case 'K': /* BININT1 */
		TAKE(1);
		return clv_pk_push(p, clv_pk_small(d[0]));
	case 'M': /* BININT2 */
		TAKE(2);
		return clv_pk_push(p, clv_pk_small((int64_t)little(d, 2)));
	case 'J': /* BININT */
		TAKE(4);
		return clv_pk_push(p, clv_pk_small((int32_t)little(d, 4)));
	case 0x8a: /* LONG1 */
		return op_counted(p, 1, 'i');
	case 0x8b: /* LONG4 */
		return op_counted(p, 4, 'i');
	case 0x8c: /* SHORT_BINUNICODE */
	case 'U':  /* SHORT_BINSTRING */
		return op_counted(p, 1, 's');
	case 'X': /* BINUNICODE */
		return op_counted(p, 4, 's');
	case 'T': /* BINSTRING, of a signed length */
		return op_counted(p, 4, 'x');
	case 0x8d: /* BINUNICODE8 */
		return op_counted(p, 8, 's');
	case 'C': /* SHORT_BINBYTES */
		return op_counted(p, 1, 'b');
	case 'B': /* BINBYTES */
		return op_counted(p, 4, 'b');
	case 0x8e: /* BINBYTES8 */
	case 0x96: /* BYTEARRAY8 */
		return op_counted(p, 8, 'b');
	case '}':
		return clv_pk_push_object(p, CLV_PK_DICT);
	case ']':
		return clv_pk_push_object(p, CLV_PK_LIST);
	case '(':
		return op_mark(p);
	case 'u': /* SETITEMS */
	case 'e': /* APPENDS */
		clv_input_release(p->in, p->op_at, &p->released);
		return op_to_mark(p, op);
	case 't':  /* TUPLE */
	case '1':  /* POP_MARK */
	case 0x90: /* ADDITEMS */
	case 0x91: /* FROZENSET */
		return op_to_mark(p, op);
	case 'a': /* APPEND */
	case 's': /* SETITEM */
		return op_set_one(p, op);
	case 'l':
		return make_object(p, CLV_PK_LIST);
	case 'd':
		return make_object(p, CLV_PK_DICT);
	case ')':  /* EMPTY_TUPLE */
	case 0x8f: /* EMPTY_SET */
		return clv_pk_push(p, clv_pk_opaque(p));
	case 0x85: /* TUPLE1 */
	case 0x86:
	case 0x87:
		return make_tuple(p, op - 0x84u);
	case 'N':
		return clv_pk_push(p, clv_pk_make(CLV_PK_NONE, 0));
	case 0x88: /* NEWTRUE */
	case 0x89: /* NEWFALSE */
		return clv_pk_push(p, clv_pk_make(CLV_PK_BOOL, op == 0x88));
	case 'G': /* BINFLOAT */
		TAKE(8);
		return push_float(p, d);
	case 'q': /* BINPUT */
		TAKE(1);
		return clv_pk_memo_put(p, d[0]);
	case 'r': /* LONG_BINPUT */
		TAKE(4);
		return clv_pk_memo_put(p, little(d, 4));
	case 'j': /* LONG_BINGET */
		TAKE(4);
		return clv_pk_memo_get(p, little(d, 4));
	case '0':
		return op_pop(p);
	case '2':
		return op_dup(p);
	case 0x80: /* PROTO */
		TAKE(1);
		return op_proto(p, d[0]);
	case 0x95: /* FRAME */
		TAKE(8);
		return little(d, 8) <= left - 8 || truncated(p);
	case 'I':
	case 'L':
	case 'p':
	case 'g':
		return op_text_number(p, op);
	default:
		return refuse(p, op);
#undef TAKE
	}
}

bool clv_pickle_run(struct clv_pickle *p, clv_pk *root)
{
	while (p->pos < p->in->size) {
		p->op_at = p->pos;
		uint8_t op = p->in->data[p->pos++];
		if (op == '.') {
			if (p->depth == p->fence)
				return clv_pk_underflow(p);
			*root = p->stack[p->depth - 1];
			return true;
		}
		if (!step(p, op))
			return false;
	}
	return clv_pickle_error(p, p->in->size, "the file ends before the opcode STOP: it was cut short");
}

struct clv_pickle *clv_pickle_open(const struct clv_input *in, const struct clv_pickle_user *user,
				   struct clv_error *err)
{
	struct clv_pickle *p = clv_mem_zalloc(1, sizeof(*p));
	if (!p) {
		clv_error_set(err, "%s: out of host memory", in->name);
		return NULL;
	}
	p->in = in;
	p->user = *user;
	p->err = err;
	p->reuse = NO_OBJECT;
	p->last_pair = clv_pk_make(CLV_PK_NONE, 0);
	for (size_t i = 0; i < user->known_count; i++) {
		clv_pk v;
		if (!clv_pk_intern(p, (const uint8_t *)user->known[i], strlen(user->known[i]), &v)) {
			clv_pickle_close(p);
			return NULL;
		}
	}
	return p;
}

void clv_pickle_close(struct clv_pickle *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->object_count; i++)
		clv_mem_free(p->objects[i].items);
	clv_mem_free(p->objects);
	clv_mem_free(p->stack);
	clv_mem_free(p->marks);
	clv_mem_free(p->memo);
	clv_mem_free(p->boxes);
	clv_mem_free(p->strings);
	clv_map_free(&p->string_index);
	clv_mem_free(p);
}
