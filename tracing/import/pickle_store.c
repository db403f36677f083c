/* SPDX-License-Identifier: MIT */
#include "pickle_internal.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define KEEP_ITEMS 64 /* a reused object keeps room for so many */

static bool wrong_kind(struct clv_pickle *p, const char *what)
{
	return clv_pickle_error(p, p->op_at, "not a valid pickle: %s on something that is no %s that can still change",
				clv_pickle_op_name(p->in->data[p->op_at]), what);
}

/* Values */

bool clv_pk_box(struct clv_pickle *p, uint64_t word)
{
	if (p->box_count >= CLV_PK_RECORD_MAX)
		return clv_pickle_error(p, p->op_at, "more large numbers than this reader can hold");
	if (!clv_mem_reserve(&p->boxes, &p->box_cap, p->box_count + 1, sizeof(*p->boxes)))
		return clv_pickle_no_memory(p);
	p->boxes[p->box_count++] = word;
	return true;
}

bool clv_pk_push_int(struct clv_pickle *p, int64_t v)
{
	if (CLV_LIKELY(v >= -((int64_t)1 << 59) && v < (int64_t)1 << 59))
		return clv_pk_push(p, clv_pk_small(v));
	return clv_pk_box(p, (uint64_t)v) &&
	       clv_pk_push(p, clv_pk_make(v < 0 ? CLV_PK_BIGNEG : CLV_PK_BIG, p->box_count - 1));
}

bool clv_pickle_u64(const struct clv_pickle *p, clv_pk v, uint64_t *out)
{
	switch (clv_pk_tag(v)) {
	case CLV_PK_INT:
		*out = (uint64_t)clv_pk_int_of(v);
		return clv_pk_int_of(v) >= 0;
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
		*out = clv_pk_int_of(v);
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
	const struct clv_pk_string *s = &p->strings[clv_pk_payload(v)];
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
	const struct clv_pk_object *o = &p->objects[clv_pk_payload(v)];
	*items = o->items;
	*count = o->len;
	*offset = o->offset;
	return true;
}

/* The number of a string; equal strings have the same one. Texts stay in the input. */
bool clv_pk_intern(struct clv_pickle *p, const uint8_t *text, size_t len, clv_pk *out)
{
	if (len > UINT32_MAX) {
		*out = clv_pk_opaque(p);
		return true;
	}
	for (uint64_t key = XXH3_64bits(text, len);; key = clv_mix64(key + 1)) {
		struct clv_map_slot *slot = clv_map_slot(&p->string_index, key);
		if (!slot)
			return clv_pickle_no_memory(p);
		if (slot->value != CLV_MAP_NONE) {
			const struct clv_pk_string *s = &p->strings[slot->value];
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
		p->strings[p->string_count++] = (struct clv_pk_string){text, (uint32_t)len};
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
		int64_t i = clv_pk_int_of(v);
		if (!clv_pk_box(p, (uint64_t)i))
			return false;
		tag = i < 0 ? CLV_PK_BIGNEG : CLV_PK_BIG;
		payload = p->box_count - 1;
	} else if (tag == CLV_PK_OPAQUE) {
		payload = 0; /* only its kind is of use */
	}
	*out = ((uint32_t)tag + 1) << 27 | (uint32_t)payload;
	return true;
}

bool clv_pk_memo_put(struct clv_pickle *p, uint64_t index)
{
	if (p->depth == p->fence)
		return clv_pk_underflow(p);
	/* Writers number from 0 on, so an index cannot exceed the bytes read: a small file cannot ask for a large
	 * memo. */
	if (index > p->op_at || index >= NO_MEMO)
		return clv_pickle_error(p, p->op_at, "not a valid pickle: memo index %llu", (unsigned long long)index);
	if (!clv_mem_reserve(&p->memo, &p->memo_cap, index + 1, sizeof(*p->memo)))
		return clv_pickle_no_memory(p);
	while (p->memo_len <= index)
		p->memo[p->memo_len++] = 0;
	clv_pk top = p->stack[p->depth - 1];
	struct clv_pk_object *o = clv_pk_object_of(p, top);
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

/* Objects */

bool clv_pk_push_object(struct clv_pickle *p, enum clv_pk_tag tag)
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
		p->objects[id] = (struct clv_pk_object){.cap = 0};
	}
	struct clv_pk_object *o = &p->objects[id];
	o->offset = p->op_at;
	o->len = 0;
	o->memo = NO_MEMO;
	o->tag = (uint8_t)tag;
	o->shared = o->ends_in_run = false;
	return clv_pk_push(p, clv_pk_make(tag, id));
}

static bool object_add(struct clv_pickle *p, struct clv_pk_object *o, clv_pk v)
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

static bool list_add(struct clv_pickle *p, struct clv_pk_object *o, clv_pk v)
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
	struct clv_pk_object *o = clv_pk_object_of(p, old);
	uint32_t was, now;
	if (o->memo == NO_MEMO || !pack(p, old, &was) || p->memo[o->memo] != was)
		return;
	if (pack(p, v, &now)) /* neither is an int: cannot fail */
		p->memo[o->memo] = now;
}

static void reuse_object(struct clv_pickle *p, uint32_t id)
{
	struct clv_pk_object *o = &p->objects[id];
	if (o->cap > KEEP_ITEMS) {
		clv_mem_free(o->items);
		o->items = NULL;
		o->cap = 0;
	}
	o->len = 0;
	o->next = p->reuse;
	p->reuse = id;
}

/* Without recursion, since values may be nested deeply. */
void clv_pk_release(struct clv_pickle *p, clv_pk v)
{
	struct clv_pk_object *o = clv_pk_object_of(p, v);
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
			struct clv_pk_object *child = clv_pk_object_of(p, o->items[i]);
			if (child && !child->shared) {
				child->next = todo;
				todo = (uint32_t)clv_pk_payload(o->items[i]);
			}
		}
		reuse_object(p, id);
	}
}

void clv_pk_release_many(struct clv_pickle *p, const clv_pk *v, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (clv_pk_tag(v[i]) == CLV_PK_DICT || clv_pk_tag(v[i]) == CLV_PK_LIST)
			clv_pk_release(p, v[i]);
}

/* A record takes the place of an object; *slot is the only value that owns it, unless it is shared. */
static void become(struct clv_pickle *p, clv_pk *slot, clv_pk record)
{
	clv_pk old = *slot;
	struct clv_pk_object *o = clv_pk_object_of(p, old);
	*slot = record;
	if (o->shared)
		return;
	memo_replace(p, old, record);
	o->memo = NO_MEMO;
	clv_pk_release(p, old);
}

/* A shared object is gone through at each use, and a use takes two bytes of the file: without a bound a small file could
 * keep the reader busy for ever. Writers share at most lists of frames, for which this leaves room. */
#define READ_AGAIN 64 /* items a byte of the file */

static bool count_use(struct clv_pickle *p, const struct clv_pk_object *o)
{
	if (!o->shared)
		return true;
	p->read_again += o->len;
	return p->read_again / READ_AGAIN <= p->in->size ||
	       clv_pickle_error(p, p->op_at,
				"lists or dicts are used again so often that this is no memory snapshot; the one used "
				"here begins at offset %llu",
				(unsigned long long)o->offset);
}

/* A list that became the value of a key may turn into a record. */
static bool settle_list(struct clv_pickle *p, clv_pk *slot)
{
	const struct clv_pk_object *o = clv_pk_object_of(p, *slot);
	clv_pk record = *slot;
	if (o->len == 0)
		return true;
	if (!count_use(p, o))
		return false;
	if (!p->user.list(p->user.arg, p, o->items, o->len, &record))
		return false;
	if (record != *slot)
		become(p, slot, record);
	return true;
}

/* A dict that became an item of a list turns into a record, or is passed over. */
static bool settle_dict(struct clv_pickle *p, clv_pk *slot)
{
	const struct clv_pk_object *o = clv_pk_object_of(p, *slot);
	clv_pk record = clv_pk_make(CLV_PK_OPAQUE, o->offset);
	if (!count_use(p, o))
		return false;
	if (o->len && !p->user.dict(p->user.arg, p, o->items, o->len, o->offset, &record))
		return false;
	become(p, slot, record);
	return true;
}

bool clv_pk_append(struct clv_pickle *p, size_t list_at, size_t first, size_t count)
{
	if (clv_pk_tag(p->stack[list_at]) != CLV_PK_LIST) {
		clv_pk_release_many(p, &p->stack[first], count);
		return clv_pk_tag(p->stack[list_at]) == CLV_PK_OPAQUE || wrong_kind(p, "list");
	}
	for (size_t i = first; i < first + count; i++) {
		if (clv_pk_tag(p->stack[i]) == CLV_PK_DICT && !settle_dict(p, &p->stack[i]))
			return false;
		if (!list_add(p, clv_pk_object_of(p, p->stack[list_at]), p->stack[i]))
			return false;
	}
	return true;
}

bool clv_pk_set_items(struct clv_pickle *p, size_t dict_at, size_t first, size_t count, bool whole)
{
	if (count % 2)
		return clv_pk_underflow(p);
	clv_pk *items = &p->stack[first];
	if (clv_pk_tag(p->stack[dict_at]) != CLV_PK_DICT) {
		clv_pk_release_many(p, items, count);
		return clv_pk_tag(p->stack[dict_at]) == CLV_PK_OPAQUE || wrong_kind(p, "dict");
	}
	for (size_t i = 1; i < count; i += 2)
		if (clv_pk_tag(items[i]) == CLV_PK_LIST && !settle_list(p, &items[i]))
			return false;
	struct clv_pk_object *o = clv_pk_object_of(p, p->stack[dict_at]);
	if (whole && count && o->len == 0 && !o->shared) {
		clv_pk record = p->stack[dict_at];
		if (!p->user.dict(p->user.arg, p, items, count, o->offset, &record))
			return false;
		if (record != p->stack[dict_at]) {
			become(p, &p->stack[dict_at], record);
			clv_pk_release_many(p, items, count);
			return true;
		}
	}
	for (size_t i = 0; i < count; i++)
		if (!object_add(p, o, items[i]))
			return false;
	return true;
}
