/* SPDX-License-Identifier: MIT
 *
 * pickle_internal: what the two halves of the pickle reader share: pickle.c is the machine that runs opcodes,
 * pickle_store.c keeps values, strings, the memo and containers. Owned by one reader.
 *
 * Containers. A dict or list under construction is an object; when the user turns it into a record, the object is
 * reused and the values that name it are rewritten. That is possible because, as long as it is not `shared`, an object
 * has exactly one owner (a stack slot or a container) and at most one memo slot. DUP, GET and a second PUT make it
 * shared; shared objects stay as they are until the end, and are turned into a new record each time they are used.
 */
#ifndef CLV_PICKLE_INTERNAL_H
#define CLV_PICKLE_INTERNAL_H

#include "../map.h"
#include "pickle.h"

#define NO_OBJECT UINT32_MAX
#define NO_MEMO UINT32_MAX

struct clv_pk_object {
	clv_pk *items;
	uint64_t offset;
	uint32_t len, cap;
	uint32_t memo; /* slot, or NO_MEMO */
	uint32_t next; /* in a list of objects to release or to reuse */
	uint8_t tag;   /* CLV_PK_DICT or CLV_PK_LIST */
	bool shared;
	bool ends_in_run; /* a list whose last two items are a record and the length of the run that begins there */
};

struct clv_pk_string {
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

	struct clv_pk_object *objects;
	size_t object_count, object_cap;
	uint32_t reuse;
	uint64_t *boxes; /* numbers that do not fit a value */
	size_t box_count, box_cap;
	struct clv_pk_string *strings;
	size_t string_count, string_cap;
	struct clv_map string_index; /* hash to string */
	clv_pk last_pair;
	uint64_t read_again; /* items of shared objects that were looked at each time such an object was used */
};

const char *clv_pickle_op_name(uint8_t op);
bool clv_pk_underflow(struct clv_pickle *p);
bool clv_pk_no_memo(struct clv_pickle *p, uint64_t index);

/* pickle_store.c; `false` after an error. */
bool clv_pk_box(struct clv_pickle *p, uint64_t word); /* a number that does not fit a value: boxes[box_count - 1] */
bool clv_pk_push_int(struct clv_pickle *p, int64_t v);
bool clv_pk_intern(struct clv_pickle *p, const uint8_t *text, size_t len, clv_pk *out);
bool clv_pk_memo_put(struct clv_pickle *p, uint64_t index); /* the value on top */
bool clv_pk_push_object(struct clv_pickle *p, enum clv_pk_tag tag);
/* Drops values and everything that only they own. */
void clv_pk_release(struct clv_pickle *p, clv_pk v);
void clv_pk_release_many(struct clv_pickle *p, const clv_pk *v, size_t count);
/* Moves `count` values of the stack, from `first` on, into the container at stack[list_at]. The caller lowers the
 * stack. */
bool clv_pk_append(struct clv_pickle *p, size_t list_at, size_t first, size_t count);
/* `whole`: nearly surely these are all the items that the dict will have. Then it need not be stored first. */
bool clv_pk_set_items(struct clv_pickle *p, size_t dict_at, size_t first, size_t count, bool whole);

static inline clv_pk clv_pk_small(int64_t v)
{
	return clv_pk_make(CLV_PK_INT, (uint64_t)v);
}

static inline int64_t clv_pk_int_of(clv_pk v)
{
	return (int64_t)v >> 4;
}

static inline clv_pk clv_pk_opaque(const struct clv_pickle *p)
{
	return clv_pk_make(CLV_PK_OPAQUE, p->op_at);
}

static inline bool clv_pk_push(struct clv_pickle *p, clv_pk v)
{
	if (CLV_UNLIKELY(p->depth == p->stack_cap) &&
	    !clv_mem_reserve(&p->stack, &p->stack_cap, p->depth + 1, sizeof(*p->stack)))
		return clv_pickle_no_memory(p);
	p->stack[p->depth++] = v;
	return true;
}

static inline clv_pk clv_pk_unpack(uint32_t m)
{
	if (m & 0x80000000u)
		return clv_pk_make(CLV_PK_EVENT, m & 0x7fffffffu);
	return clv_pk_make((enum clv_pk_tag)((m >> 27) - 1), m & CLV_PK_RECORD_MAX);
}

static inline struct clv_pk_object *clv_pk_object_of(struct clv_pickle *p, clv_pk v)
{
	enum clv_pk_tag tag = clv_pk_tag(v);
	return tag == CLV_PK_DICT || tag == CLV_PK_LIST ? &p->objects[clv_pk_payload(v)] : NULL;
}

static inline bool clv_pk_memo_get(struct clv_pickle *p, uint64_t index)
{
	if (index >= p->memo_len || p->memo[index] == 0)
		return clv_pk_no_memo(p, index);
	clv_pk v = clv_pk_unpack(p->memo[index]);
	struct clv_pk_object *o = clv_pk_object_of(p, v);
	if (o)
		o->shared = true;
	return clv_pk_push(p, v);
}

#endif
