/* SPDX-License-Identifier: MIT
 *
 * pickle: a reader of Python pickles that builds no objects. It runs the opcodes of protocols 2 to 5 that make data,
 * and refuses every other one with its offset and name. A user turns each dict into a compact record as soon as it is
 * complete, so that a file of ten million dicts needs no tree of them. One reader is owned by one thread.
 *
 * What is read: numbers, booleans, None, strings, lists, dicts and pairs of integers. Bytes, sets and other tuples are
 * data too and are passed over; so is a dict inside a list that the user does not recognise. INT, LONG, PUT and GET
 * are read, since Python 2 wrote them in protocol 2; the other text forms belong to protocol 0 and are refused.
 */
#ifndef CLV_PICKLE_H
#define CLV_PICKLE_H

#include "../../src/base/error.h"
#include "import.h"

/* A value: the tag in the low 4 bits, then 60 bits that depend on it. */
typedef uint64_t clv_pk;

enum clv_pk_tag {
	CLV_PK_NONE, /* None */
	CLV_PK_BOOL,
	CLV_PK_INT,    /* signed, in the value itself */
	CLV_PK_BIG,    /* an int of 0 .. 2^64-1 that does not fit CLV_PK_INT */
	CLV_PK_BIGNEG, /* the same below 0, down to -2^63 */
	CLV_PK_FLOAT,
	CLV_PK_STR,
	CLV_PK_PAIR, /* a tuple of two ints */
	CLV_PK_DICT,
	CLV_PK_LIST,
	CLV_PK_OPAQUE, /* data that was passed over; the payload is its offset */
	/* Records of the user; the payload is the user's number. Of the last three kinds a list keeps runs. */
	CLV_PK_FRAME,
	CLV_PK_STACK,
	CLV_PK_SEGMENT,
	CLV_PK_BLOCK,
	CLV_PK_EVENT,
};

#define CLV_PK_RECORD_MAX ((1u << 27) - 1) /* highest number of a record that is no event */
#define CLV_PK_EVENT_MAX ((1u << 31) - 2)

static inline enum clv_pk_tag clv_pk_tag(clv_pk v)
{
	return (enum clv_pk_tag)(v & 15);
}

static inline uint64_t clv_pk_payload(clv_pk v)
{
	return v >> 4;
}

static inline clv_pk clv_pk_make(enum clv_pk_tag tag, uint64_t payload)
{
	return payload << 4 | (uint64_t)tag;
}

struct clv_pickle;

struct clv_pickle_user {
	/* A dict is complete: `count` keys and values in turn, in recorded order. Leaves *out alone, or sets it to the
	 * record that stands for the dict from now on. `offset` is where the dict begins. */
	bool (*dict)(void *user, struct clv_pickle *p, const clv_pk *items, size_t count, uint64_t offset, clv_pk *out);
	/* A list that is not empty became the value of a key: the same. `items` are for clv_pickle_next(). */
	bool (*list)(void *user, struct clv_pickle *p, const clv_pk *items, size_t count, clv_pk *out);
	/* Strings that get the numbers 0, 1, 2, ...: keys can be switched on. */
	const char *const *known;
	size_t known_count;
	void *arg;
};

struct clv_pickle *clv_pickle_open(const struct clv_input *in, const struct clv_pickle_user *user,
				   struct clv_error *err);
void clv_pickle_close(struct clv_pickle *p);

/* Runs the whole file; *root is the value it makes. */
bool clv_pickle_run(struct clv_pickle *p, clv_pk *root);

/* An error at an offset, or out of host memory; both return false. */
bool clv_pickle_error(struct clv_pickle *p, uint64_t offset, const char *fmt, ...) CLV_PRINTF(3, 4);
bool clv_pickle_no_memory(struct clv_pickle *p);
uint64_t clv_pickle_offset(const struct clv_pickle *p); /* of the opcode that runs */

/* Values. The functions return false if the value is of another kind or out of range. */
bool clv_pickle_u64(const struct clv_pickle *p, clv_pk v, uint64_t *out);
bool clv_pickle_i64(const struct clv_pickle *p, clv_pk v, int64_t *out);
bool clv_pickle_double(const struct clv_pickle *p, clv_pk v, double *out); /* also of ints */
bool clv_pickle_pair(const struct clv_pickle *p, clv_pk v, int64_t *a, int64_t *b);
bool clv_pickle_string(const struct clv_pickle *p, clv_pk v, const char **text, size_t *len);
uint32_t clv_pickle_string_count(const struct clv_pickle *p);

/* The items of a dict (keys and values in turn) or list. */
bool clv_pickle_items(const struct clv_pickle *p, clv_pk v, const clv_pk **items, size_t *count, uint64_t *offset);

/* Steps through the items of a list: *v is the next item, and *run the number of records it stands for (1 if it is
 * none). false at the end. Start with *at = 0. */
static inline bool clv_pickle_next(const clv_pk *items, size_t count, size_t *at, clv_pk *v, uint64_t *run)
{
	if (*at >= count)
		return false;
	*v = items[(*at)++];
	*run = clv_pk_tag(*v) >= CLV_PK_SEGMENT ? items[(*at)++] : 1;
	return true;
}

#endif
