/* SPDX-License-Identifier: MIT
 *
 * Containers. A dict or list under construction is an object; when the user turns it into a record, the object is reused
 * and the values that name it are rewritten. That is possible because, as long as it is not `shared`, an object has exactly
 * one owner (a stack slot or a container) and at most one memo slot. DUP, GET and a second PUT make it shared; shared
 * objects stay as they are until the end, and are turned into a new record each time they are used.
 */
#include "pickle.h"

#include "../map.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define NO_OBJECT UINT32_MAX
#define NO_MEMO UINT32_MAX
#define KEEP_ITEMS 64 /* a reused object keeps room for so many */

struct object {
	clv_pk *items;
	uint64_t offset;
	uint32_t len, cap;
	uint32_t memo; /* slot, or NO_MEMO */
	uint32_t next; /* in a list of objects to release or to reuse */
	uint8_t tag;   /* CLV_PK_DICT or CLV_PK_LIST */
	bool shared;
	bool ends_in_run; /* a list whose last two items are a record and the length of the run that begins there */
};

struct string {
	const uint8_t *text;
	uint32_t len;
};

struct clv_pickle {
	const struct clv_input *in;
	struct clv_pickle_user user;
	struct clv_error *err;
	size_t pos, op_at, released;

	clv_pk *stack;
	size_t depth, stack_cap, fence; /* values below the fence belong to an outer mark */
	size_t *marks;
	size_t mark_count, mark_cap;
	uint32_t *memo; /* packed values; 0: empty */
	size_t memo_len, memo_cap, memo_used;

	struct object *objects;
	size_t object_count, object_cap;
	uint32_t reuse;
	uint64_t *boxes; /* numbers that do not fit a value */
	size_t box_count, box_cap;
	struct string *strings;
	size_t string_count, string_cap;
	struct clv_map string_index; /* hash to string */
	clv_pk last_pair;
};

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

static bool underflow(struct clv_pickle *p)
{
	return clv_pickle_error(p, p->op_at, "not a valid pickle: %s finds too few values",
				ops[p->in->data[p->op_at]].name);
}

static bool wrong_kind(struct clv_pickle *p, const char *what)
{
	return clv_pickle_error(p, p->op_at, "not a valid pickle: %s on something that is no %s that can still change",
				ops[p->in->data[p->op_at]].name, what);
}

/* Values */

static bool box(struct clv_pickle *p, uint64_t word)
{
	if (p->box_count >= CLV_PK_RECORD_MAX)
		return clv_pickle_error(p, p->op_at, "more large numbers than this reader can hold");
	if (!clv_mem_reserve(&p->boxes, &p->box_cap, p->box_count + 1, sizeof(*p->boxes)))
		return clv_pickle_no_memory(p);
	p->boxes[p->box_count++] = word;
	return true;
}

static bool push(struct clv_pickle *p, clv_pk v)
{
	if (CLV_UNLIKELY(p->depth == p->stack_cap) &&
	    !clv_mem_reserve(&p->stack, &p->stack_cap, p->depth + 1, sizeof(*p->stack)))
		return clv_pickle_no_memory(p);
	p->stack[p->depth++] = v;
	return true;
}

static clv_pk small_int(int64_t v)
{
	return clv_pk_make(CLV_PK_INT, (uint64_t)v);
}

static bool push_int(struct clv_pickle *p, int64_t v)
{
	if (CLV_LIKELY(v >= -((int64_t)1 << 59) && v < (int64_t)1 << 59))
		return push(p, small_int(v));
	return box(p, (uint64_t)v) && push(p, clv_pk_make(v < 0 ? CLV_PK_BIGNEG : CLV_PK_BIG, p->box_count - 1));
}

static int64_t int_of(clv_pk v)
{
	return (int64_t)v >> 4;
}

static clv_pk opaque(const struct clv_pickle *p)
{
	return clv_pk_make(CLV_PK_OPAQUE, p->op_at);
}

bool clv_pickle_u64(const struct clv_pickle *p, clv_pk v, uint64_t *out)
{
	switch (clv_pk_tag(v)) {
	case CLV_PK_INT:
		*out = (uint64_t)int_of(v);
		return int_of(v) >= 0;
	case CLV_PK_BIG:
		*out = p->boxes[clv_pk_payload(v)];
		return true;
	default:
		return false;
	}
}

bool clv_pickle_i64(const struct clv_pickle *p, clv_pk v, int64_t *out)
{
	switch (clv_pk_tag(v)) {
	case CLV_PK_INT:
		*out = int_of(v);
		return true;
	case CLV_PK_BIG:
		*out = (int64_t)p->boxes[clv_pk_payload(v)];
		return *out >= 0;
	case CLV_PK_BIGNEG:
		*out = (int64_t)p->boxes[clv_pk_payload(v)];
		return true;
	default:
		return false;
	}
}

bool clv_pickle_double(const struct clv_pickle *p, clv_pk v, double *out)
{
	uint64_t u;
	int64_t i;
	if (clv_pk_tag(v) == CLV_PK_FLOAT) {
		memcpy(out, &p->boxes[clv_pk_payload(v)], sizeof(*out));
		return true;
	}
	if (clv_pickle_u64(p, v, &u)) {
		*out = (double)u;
		return true;
	}
	if (clv_pickle_i64(p, v, &i)) {
		*out = (double)i;
		return true;
	}
	return false;
}

bool clv_pickle_pair(const struct clv_pickle *p, clv_pk v, int64_t *a, int64_t *b)
{
	if (clv_pk_tag(v) == CLV_PK_PAIR) {
		*a = (int64_t)p->boxes[clv_pk_payload(v)];
		*b = (int64_t)p->boxes[clv_pk_payload(v) + 1];
		return true;
	}
	const clv_pk *items;
	size_t count;
	uint64_t offset; /* a list of two ints is as good */
	return clv_pk_tag(v) == CLV_PK_LIST && clv_pickle_items(p, v, &items, &count, &offset) && count == 2 &&
	       clv_pickle_i64(p, items[0], a) && clv_pickle_i64(p, items[1], b);
}

bool clv_pickle_string(const struct clv_pickle *p, clv_pk v, const char **text, size_t *len)
{
	if (clv_pk_tag(v) != CLV_PK_STR)
		return false;
	const struct string *s = &p->strings[clv_pk_payload(v)];
	*text = (const char *)s->text;
	*len = s->len;
	return true;
}

uint32_t clv_pickle_string_count(const struct clv_pickle *p)
{
	return (uint32_t)p->string_count;
}

bool clv_pickle_items(const struct clv_pickle *p, clv_pk v, const clv_pk **items, size_t *count, uint64_t *offset)
{
	if (clv_pk_tag(v) != CLV_PK_DICT && clv_pk_tag(v) != CLV_PK_LIST)
		return false;
	const struct object *o = &p->objects[clv_pk_payload(v)];
	*items = o->items;
	*count = o->len;
	*offset = o->offset;
	return true;
}

/* The number of a string; equal strings have the same one. Texts stay in the input. */
static bool intern(struct clv_pickle *p, const uint8_t *text, size_t len, clv_pk *out)
{
	if (len > UINT32_MAX) {
		*out = opaque(p);
		return true;
	}
	for (uint64_t key = XXH3_64bits(text, len);; key = clv_mix64(key + 1)) {
		struct clv_map_slot *slot = clv_map_slot(&p->string_index, key);
		if (!slot)
			return clv_pickle_no_memory(p);
		if (slot->value != CLV_MAP_NONE) {
			const struct string *s = &p->strings[slot->value];
			if (s->len != len || memcmp(s->text, text, len) != 0)
				continue; /* two strings with one hash: look elsewhere */
			*out = clv_pk_make(CLV_PK_STR, slot->value);
			return true;
		}
		slot->value = 0;
		if (p->string_count > CLV_PK_RECORD_MAX)
			return clv_pickle_error(p, p->op_at, "more different strings than this reader can hold");
		if (!clv_mem_reserve(&p->strings, &p->string_cap, p->string_count + 1, sizeof(*p->strings)))
			return clv_pickle_no_memory(p);
		slot->value = (uint32_t)p->string_count;
		p->strings[p->string_count++] = (struct string){text, (uint32_t)len};
		*out = clv_pk_make(CLV_PK_STR, slot->value);
		return true;
	}
}

/* The memo. A packed value has 31 bits for events, else 4 bits of tag (plus 1, so that none is 0) and 27 of payload. */

static bool pack(struct clv_pickle *p, clv_pk v, uint32_t *out)
{
	enum clv_pk_tag tag = clv_pk_tag(v);
	uint64_t payload = clv_pk_payload(v);
	if (tag == CLV_PK_EVENT) {
		*out = 0x80000000u | (uint32_t)payload;
		return true;
	}
	if (tag == CLV_PK_INT) {
		int64_t i = int_of(v);
		if (!box(p, (uint64_t)i))
			return false;
		tag = i < 0 ? CLV_PK_BIGNEG : CLV_PK_BIG;
		payload = p->box_count - 1;
	} else if (tag == CLV_PK_OPAQUE) {
		payload = 0; /* only its kind is of use */
	}
	*out = ((uint32_t)tag + 1) << 27 | (uint32_t)payload;
	return true;
}

static clv_pk unpack(uint32_t m)
{
	if (m & 0x80000000u)
		return clv_pk_make(CLV_PK_EVENT, m & 0x7fffffffu);
	return clv_pk_make((enum clv_pk_tag)((m >> 27) - 1), m & CLV_PK_RECORD_MAX);
}

static struct object *object_of(struct clv_pickle *p, clv_pk v)
{
	enum clv_pk_tag tag = clv_pk_tag(v);
	return tag == CLV_PK_DICT || tag == CLV_PK_LIST ? &p->objects[clv_pk_payload(v)] : NULL;
}

static bool memo_put(struct clv_pickle *p, uint64_t index)
{
	if (p->depth == p->fence)
		return underflow(p);
	/* Writers number from 0 on, so an index cannot exceed the bytes read: a small file cannot ask for a large memo. */
	if (index > p->op_at || index >= NO_MEMO)
		return clv_pickle_error(p, p->op_at, "not a valid pickle: memo index %llu", (unsigned long long)index);
	if (!clv_mem_reserve(&p->memo, &p->memo_cap, index + 1, sizeof(*p->memo)))
		return clv_pickle_no_memory(p);
	while (p->memo_len <= index)
		p->memo[p->memo_len++] = 0;
	clv_pk top = p->stack[p->depth - 1];
	struct object *o = object_of(p, top);
	if (o) {
		o->shared |= o->memo != NO_MEMO && o->memo != index;
		o->memo = (uint32_t)index;
	}
	uint32_t packed;
	if (!pack(p, top, &packed))
		return false;
	p->memo_used += p->memo[index] == 0;
	p->memo[index] = packed;
	return true;
}

static bool memo_get(struct clv_pickle *p, uint64_t index)
{
	if (index >= p->memo_len || p->memo[index] == 0)
		return clv_pickle_error(p, p->op_at, "not a valid pickle: nothing has memo index %llu",
					(unsigned long long)index);
	clv_pk v = unpack(p->memo[index]);
	struct object *o = object_of(p, v);
	if (o)
		o->shared = true;
	return push(p, v);
}

/* Objects */

static bool push_object(struct clv_pickle *p, enum clv_pk_tag tag)
{
	uint32_t id = p->reuse;
	if (id != NO_OBJECT) {
		p->reuse = p->objects[id].next;
	} else {
		if (p->object_count > CLV_PK_RECORD_MAX)
			return clv_pickle_error(p, p->op_at, "more lists and dicts than this reader can hold");
		if (!clv_mem_reserve(&p->objects, &p->object_cap, p->object_count + 1, sizeof(*p->objects)))
			return clv_pickle_no_memory(p);
		id = (uint32_t)p->object_count++;
		p->objects[id] = (struct object){.cap = 0};
	}
	struct object *o = &p->objects[id];
	o->offset = p->op_at;
	o->len = 0;
	o->memo = NO_MEMO;
	o->tag = (uint8_t)tag;
	o->shared = o->ends_in_run = false;
	return push(p, clv_pk_make(tag, id));
}

static bool object_add(struct clv_pickle *p, struct object *o, clv_pk v)
{
	if (CLV_UNLIKELY(o->len == o->cap)) {
		size_t cap = o->cap;
		if (o->len > UINT32_MAX / 2)
			return clv_pickle_error(p, o->offset, "a list or dict of more items than this reader can hold");
		if (!clv_mem_reserve(&o->items, &cap, (size_t)o->len + 1, sizeof(*o->items)))
			return clv_pickle_no_memory(p);
		o->cap = (uint32_t)cap;
	}
	o->items[o->len++] = v;
	return true;
}

static bool list_add(struct clv_pickle *p, struct object *o, clv_pk v)
{
	if (clv_pk_tag(v) < CLV_PK_SEGMENT) {
		o->ends_in_run = false;
		return object_add(p, o, v);
	}
	if (o->ends_in_run) {
		clv_pk first = o->items[o->len - 2];
		if (clv_pk_tag(first) == clv_pk_tag(v) &&
		    clv_pk_payload(first) + o->items[o->len - 1] == clv_pk_payload(v)) {
			o->items[o->len - 1]++;
			return true;
		}
	}
	o->ends_in_run = true;
	return object_add(p, o, v) && object_add(p, o, 1);
}

/* What the memo has for an object that goes away. */
static void memo_replace(struct clv_pickle *p, clv_pk old, clv_pk v)
{
	struct object *o = object_of(p, old);
	uint32_t was, now;
	if (o->memo == NO_MEMO || !pack(p, old, &was) || p->memo[o->memo] != was)
		return;
	if (pack(p, v, &now)) /* neither is an int: cannot fail */
		p->memo[o->memo] = now;
}

static void reuse_object(struct clv_pickle *p, uint32_t id)
{
	struct object *o = &p->objects[id];
	if (o->cap > KEEP_ITEMS) {
		clv_mem_free(o->items);
		o->items = NULL;
		o->cap = 0;
	}
	o->len = 0;
	o->next = p->reuse;
	p->reuse = id;
}

/* Drops a value and, without recursion, everything only it owns. */
static void release(struct clv_pickle *p, clv_pk v)
{
	struct object *o = object_of(p, v);
	if (!o || o->shared)
		return;
	uint32_t todo = (uint32_t)clv_pk_payload(v);
	o->next = NO_OBJECT;
	while (todo != NO_OBJECT) {
		uint32_t id = todo;
		o = &p->objects[id];
		todo = o->next;
		memo_replace(p, clv_pk_make((enum clv_pk_tag)o->tag, id), clv_pk_make(CLV_PK_OPAQUE, 0));
		for (uint32_t i = 0; i < o->len; i++) {
			if (clv_pk_tag(o->items[i]) >= CLV_PK_SEGMENT && o->tag == CLV_PK_LIST) {
				i++; /* the length of the run is no value */
				continue;
			}
			struct object *child = object_of(p, o->items[i]);
			if (child && !child->shared) {
				child->next = todo;
				todo = (uint32_t)clv_pk_payload(o->items[i]);
			}
		}
		reuse_object(p, id);
	}
}

static void release_many(struct clv_pickle *p, const clv_pk *v, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (clv_pk_tag(v[i]) == CLV_PK_DICT || clv_pk_tag(v[i]) == CLV_PK_LIST)
			release(p, v[i]);
}

/* A record takes the place of an object; *slot is the only value that owns it, unless it is shared. */
static void become(struct clv_pickle *p, clv_pk *slot, clv_pk record)
{
	clv_pk old = *slot;
	struct object *o = object_of(p, old);
	*slot = record;
	if (o->shared)
		return;
	memo_replace(p, old, record);
	o->memo = NO_MEMO;
	release(p, old);
}

/* A list that became the value of a key may turn into a record. */
static bool settle_list(struct clv_pickle *p, clv_pk *slot)
{
	const struct object *o = object_of(p, *slot);
	clv_pk record = *slot;
	if (o->len == 0)
		return true;
	if (!p->user.list(p->user.arg, p, o->items, o->len, &record))
		return false;
	if (record != *slot)
		become(p, slot, record);
	return true;
}

/* A dict that became an item of a list turns into a record, or is passed over. */
static bool settle_dict(struct clv_pickle *p, clv_pk *slot)
{
	const struct object *o = object_of(p, *slot);
	clv_pk record = clv_pk_make(CLV_PK_OPAQUE, o->offset);
	if (o->len && !p->user.dict(p->user.arg, p, o->items, o->len, o->offset, &record))
		return false;
	become(p, slot, record);
	return true;
}

static bool append(struct clv_pickle *p, size_t list_at, size_t first, size_t count)
{
	if (clv_pk_tag(p->stack[list_at]) != CLV_PK_LIST) {
		release_many(p, &p->stack[first], count);
		return clv_pk_tag(p->stack[list_at]) == CLV_PK_OPAQUE || wrong_kind(p, "list");
	}
	for (size_t i = first; i < first + count; i++) {
		if (clv_pk_tag(p->stack[i]) == CLV_PK_DICT && !settle_dict(p, &p->stack[i]))
			return false;
		if (!list_add(p, object_of(p, p->stack[list_at]), p->stack[i]))
			return false;
	}
	return true;
}

/* `whole`: nearly surely these are all the items that the dict will have. Then it need not be stored first. */
static bool set_items(struct clv_pickle *p, size_t dict_at, size_t first, size_t count, bool whole)
{
	if (count % 2)
		return underflow(p);
	clv_pk *items = &p->stack[first];
	if (clv_pk_tag(p->stack[dict_at]) != CLV_PK_DICT) {
		release_many(p, items, count);
		return clv_pk_tag(p->stack[dict_at]) == CLV_PK_OPAQUE || wrong_kind(p, "dict");
	}
	for (size_t i = 1; i < count; i += 2)
		if (clv_pk_tag(items[i]) == CLV_PK_LIST && !settle_list(p, &items[i]))
			return false;
	struct object *o = object_of(p, p->stack[dict_at]);
	if (whole && count && o->len == 0 && !o->shared) {
		clv_pk record = p->stack[dict_at];
		if (!p->user.dict(p->user.arg, p, items, count, o->offset, &record))
			return false;
		if (record != p->stack[dict_at]) {
			become(p, &p->stack[dict_at], record);
			release_many(p, items, count);
			return true;
		}
	}
	for (size_t i = 0; i < count; i++)
		if (!object_add(p, o, items[i]))
			return false;
	return true;
}

/* The machine */

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
		return underflow(p);
	release(p, p->stack[--p->depth]);
	return true;
}

static bool op_dup(struct clv_pickle *p)
{
	if (p->depth == p->fence)
		return underflow(p);
	struct object *o = object_of(p, p->stack[p->depth - 1]);
	if (o)
		o->shared = true;
	return push(p, p->stack[p->depth - 1]);
}

/* Makes a tuple of the top `count` values. */
static bool make_tuple(struct clv_pickle *p, size_t count)
{
	if (p->depth - p->fence < count)
		return underflow(p);
	clv_pk *v = &p->stack[p->depth - count];
	clv_pk tuple = opaque(p);
	int64_t a, b, was_a, was_b;
	if (count == 2 && clv_pickle_i64(p, v[0], &a) && clv_pickle_i64(p, v[1], &b)) {
		tuple = p->last_pair;
		if (!clv_pickle_pair(p, tuple, &was_a, &was_b) || was_a != a || was_b != b) {
			if (!box(p, (uint64_t)a) || !box(p, (uint64_t)b))
				return false;
			p->last_pair = tuple = clv_pk_make(CLV_PK_PAIR, p->box_count - 2);
		}
	}
	release_many(p, v, count);
	p->depth -= count;
	return push(p, tuple);
}

/* LIST, DICT: everything above the mark goes into a new object. */
static bool make_object(struct clv_pickle *p, enum clv_pk_tag tag)
{
	size_t first = 0;
	if (!pop_mark(p, &first))
		return false;
	size_t count = p->depth - first;
	if (!push_object(p, tag))
		return false;
	size_t at = p->depth - 1;
	if (!(tag == CLV_PK_LIST ? append(p, at, first, count) : set_items(p, at, first, count, true)))
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
			return underflow(p);
		if (op == 'e' && !append(p, first - 1, first, count))
			return false;
		if (op == 'u' && !set_items(p, first - 1, first, count, true))
			return false;
	}
	if (op == 0x90 || op == 0x91 || op == '1')
		release_many(p, &p->stack[first], count);
	p->depth = first;
	return op != 0x91 || push(p, opaque(p));
}

static bool op_set_one(struct clv_pickle *p, uint8_t op)
{
	size_t count = op == 'a' ? 1 : 2;
	if (p->depth - p->fence < count + 1)
		return underflow(p);
	size_t first = p->depth - count;
	if (!(op == 'a' ? append(p, first - 1, first, 1) : set_items(p, first - 1, first, 2, false)))
		return false;
	p->depth = first;
	return true;
}

/* `len` bytes of a little-endian integer in two's complement. */
static bool push_long(struct clv_pickle *p, const uint8_t *b, size_t len)
{
	if (len == 0)
		return push(p, small_int(0));
	uint8_t sign = b[len - 1] & 0x80 ? 0xff : 0;
	while (len > 1 && b[len - 1] == sign && (b[len - 2] & 0x80) == (sign & 0x80))
		len--; /* bytes that only repeat the sign */
	uint64_t v = sign ? UINT64_MAX : 0;
	for (size_t i = len < 8 ? len : 8; i-- > 0;)
		v = v << 8 | b[i];
	if (len <= 8)
		return push_int(p, (int64_t)v);
	if (len == 9 && b[8] == 0)
		return box(p, v) && push(p, clv_pk_make(CLV_PK_BIG, p->box_count - 1));
	return push(p, opaque(p)); /* no number of ours is that large */
}

/* The line of a text form, without its end. */
static bool text_line(struct clv_pickle *p, const uint8_t **text, size_t *len)
{
	const uint8_t *from = p->in->data + p->pos;
	const uint8_t *end = memchr(from, '\n', p->in->size - p->pos);
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
		return push(p, clv_pk_make(CLV_PK_BOOL, t[1] == '1'));
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
		return op == 'p' ? memo_put(p, index) : memo_get(p, index);
	}
	if (huge || v > UINT64_MAX || v < INT64_MIN)
		return push(p, opaque(p));
	if (v <= INT64_MAX)
		return push_int(p, (int64_t)v);
	return box(p, (uint64_t)v) && push(p, clv_pk_make(CLV_PK_BIG, p->box_count - 1));
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
		return push(p, opaque(p));
	clv_pk v;
	return intern(p, d + width, (size_t)len, &v) && push(p, v);
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
	return box(p, __builtin_bswap64(little(d, 8))) && push(p, clv_pk_make(CLV_PK_FLOAT, p->box_count - 1));
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
		return clv_pickle_error(p, p->op_at,
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
		return memo_get(p, d[0]);
	case 0x94: /* MEMOIZE */
		return memo_put(p, p->memo_used);
	case 'K': /* BININT1 */
		TAKE(1);
		return push(p, small_int(d[0]));
	case 'M': /* BININT2 */
		TAKE(2);
		return push(p, small_int((int64_t)little(d, 2)));
	case 'J': /* BININT */
		TAKE(4);
		return push(p, small_int((int32_t)little(d, 4)));
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
		return push_object(p, CLV_PK_DICT);
	case ']':
		return push_object(p, CLV_PK_LIST);
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
	case ')': /* EMPTY_TUPLE */
	case 0x8f: /* EMPTY_SET */
		return push(p, opaque(p));
	case 0x85: /* TUPLE1 */
	case 0x86:
	case 0x87:
		return make_tuple(p, op - 0x84u);
	case 'N':
		return push(p, clv_pk_make(CLV_PK_NONE, 0));
	case 0x88: /* NEWTRUE */
	case 0x89: /* NEWFALSE */
		return push(p, clv_pk_make(CLV_PK_BOOL, op == 0x88));
	case 'G': /* BINFLOAT */
		TAKE(8);
		return push_float(p, d);
	case 'q': /* BINPUT */
		TAKE(1);
		return memo_put(p, d[0]);
	case 'r': /* LONG_BINPUT */
		TAKE(4);
		return memo_put(p, little(d, 4));
	case 'j': /* LONG_BINGET */
		TAKE(4);
		return memo_get(p, little(d, 4));
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
				return underflow(p);
			*root = p->stack[p->depth - 1];
			return true;
		}
		if (!step(p, op))
			return false;
	}
	return clv_pickle_error(p, p->in->size, "the file ends before the opcode STOP: it was cut short");
}

struct clv_pickle *clv_pickle_open(const struct clv_input *in, const struct clv_pickle_user *user, struct clv_error *err)
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
		if (!intern(p, (const uint8_t *)user->known[i], strlen(user->known[i]), &v)) {
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
