/* SPDX-License-Identifier: MIT
 *
 * pickle_json: pickles of what is written down as JSON, in the styles of the writers that exist. What JSON lacks:
 * {"$tuple": [...]} is a tuple, "$int:N" an integer of up to 2^64-1, {"$ref": "key"} the value that was written last
 * for that key (the same object, fetched from the memo).
 */
#ifndef CLV_PICKLE_JSON_H
#define CLV_PICKLE_JSON_H

#include "../src/base/base.h"

#ifndef PICKLE_JSON_DEMAND /* what must hold, in a program that is no Check test */
#include <check.h>
#define PICKLE_JSON_DEMAND(holds, ...) ck_assert_msg(holds, __VA_ARGS__)
#endif
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum pickle_style {
	PICKLE_PYTHON, /* pickle.dump(), protocol 4: everything memoized, batches of 1000 */
	PICKLE_CPP,    /* PyTorch's JIT pickler, protocol 2: only strings memoized, no batches */
	PICKLE_SINGLE, /* SETITEM and APPEND one by one */
	PICKLE_MARKED, /* DICT and LIST with their items before them */
	PICKLE_STYLES
};

struct pickle_writer {
	enum pickle_style style;
	uint8_t *data;
	size_t size, cap;
	json_t *memo; /* string to index */
	json_t *keys; /* key to the index of its last value */
	uint32_t next;
};

static inline void pj_bytes(struct pickle_writer *w, const void *bytes, size_t n)
{
	if (w->size + n > w->cap) {
		w->cap = (w->size + n) * 2;
		w->data = realloc(w->data, w->cap);
		PICKLE_JSON_DEMAND(w->data != NULL, "out of memory");
	}
	memcpy(w->data + w->size, bytes, n);
	w->size += n;
}

static inline void pj_op(struct pickle_writer *w, int op)
{
	uint8_t byte = (uint8_t)op;
	pj_bytes(w, &byte, 1);
}

static inline void pj_int(struct pickle_writer *w, int64_t v)
{
	if (v >= 0 && v < 256) {
		pj_op(w, 'K');
		pj_bytes(w, &v, 1);
	} else if (v >= 0 && v < 65536) {
		pj_op(w, 'M');
		pj_bytes(w, &v, 2);
	} else if (v >= INT32_MIN && v <= INT32_MAX) {
		pj_op(w, 'J');
		pj_bytes(w, &v, 4);
	} else {
		uint8_t n = 8;
		if (w->style != PICKLE_CPP) /* as short as it goes */
			while (n > 5 && (v >> (8 * (n - 1) - 1) == 0 || v >> (8 * (n - 1) - 1) == -1))
				n--;
		pj_op(w, 0x8a);
		pj_bytes(w, &n, 1);
		pj_bytes(w, &v, n);
	}
}

static inline uint32_t pj_put(struct pickle_writer *w)
{
	uint32_t index = w->next++;
	if (w->style == PICKLE_PYTHON) {
		pj_op(w, 0x94);
	} else if (index < 256) {
		pj_op(w, 'q');
		pj_bytes(w, &index, 1);
	} else {
		pj_op(w, 'r');
		pj_bytes(w, &index, 4);
	}
	return index;
}

static inline void pj_get(struct pickle_writer *w, uint32_t index)
{
	pj_op(w, index < 256 ? 'h' : 'j');
	pj_bytes(w, &index, index < 256 ? 1 : 4);
}

static inline void pj_string(struct pickle_writer *w, const char *text)
{
	json_t *known = json_object_get(w->memo, text);
	size_t len = strlen(text);
	if (strncmp(text, "$int:", 5) == 0) {
		uint64_t v = strtoull(text + 5, NULL, 10);
		pj_bytes(w, "\x8a\x09", 2);
		pj_bytes(w, &v, 8);
		pj_op(w, 0);
		return;
	}
	if (known) {
		pj_get(w, (uint32_t)json_integer_value(known));
		return;
	}
	if (len < 256 && w->style == PICKLE_PYTHON) {
		pj_op(w, 0x8c);
		pj_bytes(w, &len, 1);
	} else {
		pj_op(w, 'X');
		pj_bytes(w, &len, 4);
	}
	pj_bytes(w, text, len);
	json_object_set_new(w->memo, text, json_integer(pj_put(w)));
}

static inline void pj_value(struct pickle_writer *w, const json_t *v, const char *key);

static inline void pj_tuple(struct pickle_writer *w, const json_t *items)
{
	size_t n = json_array_size(items);
	if (n > 3)
		pj_op(w, '(');
	for (size_t i = 0; i < n; i++)
		pj_value(w, json_array_get(items, i), NULL);
	pj_op(w, n == 0 ? ')' : n <= 3 ? 0x84 + (int)n : 't');
	if (w->style == PICKLE_PYTHON)
		pj_put(w);
}

/* A dict's items are pairs of a key and a value. */
static inline void pj_container(struct pickle_writer *w, const json_t *v, const char *key)
{
	bool dict = json_is_object(v);
	size_t n = dict ? json_object_size(v) : json_array_size(v), batch = w->style == PICKLE_PYTHON ? 1000 : n, i = 0;
	void *iter = dict ? json_object_iter((json_t *)(uintptr_t)v) : NULL;
	bool marked = w->style == PICKLE_MARKED, single = w->style == PICKLE_SINGLE;
	if (marked)
		pj_op(w, '(');
	else
		pj_op(w, dict ? '}' : ']');
	if (w->style == PICKLE_PYTHON || key) {
		uint32_t index = marked ? 0 : pj_put(w);
		if (key && !marked)
			json_object_set_new(w->keys, key, json_integer(index));
	}
	while (i < n) {
		size_t in_batch = n - i < batch ? n - i : batch;
		if (!marked && !single && (in_batch > 1 || w->style == PICKLE_CPP))
			pj_op(w, '(');
		for (size_t k = 0; k < in_batch; k++, i++) {
			if (dict) {
				pj_string(w, json_object_iter_key(iter));
				pj_value(w, json_object_iter_value(iter), json_object_iter_key(iter));
				iter = json_object_iter_next((json_t *)(uintptr_t)v, iter);
			} else {
				pj_value(w, json_array_get(v, i), NULL);
			}
			if (single)
				pj_op(w, dict ? 's' : 'a');
		}
		if (!marked && !single && (in_batch > 1 || w->style == PICKLE_CPP))
			pj_op(w, dict ? 'u' : 'e');
		else if (!marked && !single)
			pj_op(w, dict ? 's' : 'a');
	}
	if (marked) {
		pj_op(w, dict ? 'd' : 'l');
		if (key)
			json_object_set_new(w->keys, key, json_integer(pj_put(w)));
	}
}

static inline void pj_value(struct pickle_writer *w, const json_t *v, const char *key)
{
	const json_t *special;
	double d;
	uint64_t bits;
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		if ((special = json_object_get(v, "$tuple"))) {
			pj_tuple(w, special);
		} else if ((special = json_object_get(v, "$ref"))) {
			json_t *index = json_object_get(w->keys, json_string_value(special));
			PICKLE_JSON_DEMAND(index != NULL, "no value of %s yet", json_string_value(special));
			pj_get(w, (uint32_t)json_integer_value(index));
		} else {
			pj_container(w, v, key);
		}
		break;
	case JSON_ARRAY:
		pj_container(w, v, key);
		break;
	case JSON_STRING:
		pj_string(w, json_string_value(v));
		break;
	case JSON_INTEGER:
		pj_int(w, json_integer_value(v));
		break;
	case JSON_REAL:
		d = json_real_value(v);
		memcpy(&bits, &d, sizeof(bits));
		bits = __builtin_bswap64(bits);
		pj_op(w, 'G');
		pj_bytes(w, &bits, 8);
		break;
	case JSON_TRUE:
		pj_op(w, 0x88);
		break;
	case JSON_FALSE:
		pj_op(w, 0x89);
		break;
	case JSON_NULL:
		pj_op(w, 'N');
		break;
	}
}

/* The pickle of a JSON text, in which ' stands for ". The caller frees data. */
static inline struct pickle_writer pickle_of(const char *text, enum pickle_style style)
{
	struct pickle_writer w = {.style = style, .memo = json_object(), .keys = json_object()};
	char *json = strdup(text);
	for (char *c = json; *c; c++)
		if (*c == '\'')
			*c = '"';
	json_error_t error;
	json_t *v = json_loads(json, JSON_DECODE_ANY, &error);
	PICKLE_JSON_DEMAND(v != NULL, "line %d, column %d: %s in %s", error.line, error.column, error.text, json);
	pj_op(&w, 0x80);
	pj_op(&w, style == PICKLE_PYTHON ? 4 : 2);
	size_t frame = w.size;
	if (style == PICKLE_PYTHON)
		pj_bytes(&w, "\x95\0\0\0\0\0\0\0\0", 9);
	pj_value(&w, v, NULL);
	pj_op(&w, '.');
	if (style == PICKLE_PYTHON) {
		uint64_t len = w.size - frame - 9;
		memcpy(w.data + frame + 1, &len, 8);
	}
	json_decref(v);
	json_decref(w.memo);
	json_decref(w.keys);
	free(json);
	return w;
}

#endif
