/* SPDX-License-Identifier: MIT */
#include "plan_file.h"

#include "../base/file.h"
#include "dtype.h"
#include "jansson_api.h"
#include "json_kind.h"
#include "model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 65536u
#define TOTAL_MAX ((uint64_t)1 << 62) /* of all buffers of all layers */

struct reader {
	const struct clv_jansson *j;
	const char *file;
	struct clv_error *err;
	const json_t *object; /* that members are read from */
	char where[96];       /* it, with the dot or "", for messages */
	const json_t *base;   /* the object that lists are in: the document, or one of its ranks */
	char base_where[32];
};

static bool wrong(struct reader *r, const char *fmt, ...) CLV_PRINTF(2, 3);
static bool wrong(struct reader *r, const char *fmt, ...)
{
	char text[512];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return clv_error_set(r->err, "%s: %s%s", r->file, r->where, text);
}

static bool missing(struct reader *r, const char *name, const char *expected)
{
	return wrong(r, "%s is missing: %s was expected", name, expected);
}

static bool unlike(struct reader *r, const char *name, const json_t *value, const char *expected)
{
	return wrong(r, "%s is %s: %s was expected", name, clv_json_kind(value), expected);
}

/* A member that is there and not null. */
static const json_t *member(const struct reader *r, const char *name)
{
	const json_t *v = r->j->json_object_get(r->object, name);
	return v && !json_is_null(v) ? v : NULL;
}

static bool whole_value(struct reader *r, const char *name, const json_t *v, uint64_t min, uint64_t max, uint64_t *out)
{
	char expected[96];
	snprintf(expected, sizeof(expected), "a whole number from %" PRIu64 " to %" PRIu64, min, max);
	if (!json_is_integer(v))
		return unlike(r, name, v, expected);
	int64_t n = r->j->json_integer_value(v);
	if (n < 0 || (uint64_t)n < min || (uint64_t)n > max)
		return wrong(r, "%s is %" PRId64 ": %s was expected", name, n, expected);
	*out = (uint64_t)n;
	return true;
}

/* Absent: `fallback`, or an error if that is not within the limits. */
static bool whole(struct reader *r, const char *name, uint64_t min, uint64_t max, uint64_t fallback, uint64_t *out)
{
	const json_t *v = member(r, name);
	*out = fallback;
	if (!v)
		return (fallback >= min && fallback <= max) || missing(r, name, "a whole number");
	return whole_value(r, name, v, min, max, out);
}

static bool whole32(struct reader *r, const char *name, uint64_t min, uint64_t max, uint64_t fallback, uint32_t *out)
{
	uint64_t v;
	if (!whole(r, name, min, max, fallback, &v))
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool flag(struct reader *r, const char *name, bool *out)
{
	const json_t *v = member(r, name);
	*out = v && json_is_true(v);
	return !v || json_is_boolean(v) || unlike(r, name, v, "true or false");
}

static bool name_of(struct reader *r, char out[CLV_PLAN_NAME])
{
	const json_t *v = member(r, "name");
	if (!v)
		return missing(r, "name", "a text");
	if (!json_is_string(v))
		return unlike(r, "name", v, "a text");
	size_t len = r->j->json_string_length(v);
	if (!len || len >= CLV_PLAN_NAME)
		return wrong(r, "name has %zu bytes: 1 to %d were expected", len, CLV_PLAN_NAME - 1);
	memcpy(out, r->j->json_string_value(v), len + 1);
	return true;
}

/* Only told to people: absent it is "", and one that is too long is cut off. */
static bool remark(struct reader *r, const char *name, char out[CLV_PLAN_NAME])
{
	const json_t *v = member(r, name);
	out[0] = 0;
	if (v && !json_is_string(v))
		return unlike(r, name, v, "a text");
	if (v)
		snprintf(out, CLV_PLAN_NAME, "%s", r->j->json_string_value(v));
	return true;
}

/* *list is NULL if the member is absent. */
static bool list_of(struct reader *r, const char *name, size_t max, const json_t **list, size_t *count)
{
	*list = member(r, name);
	*count = 0;
	if (!*list)
		return true;
	if (!json_is_array(*list))
		return unlike(r, name, *list, "a list");
	*count = r->j->json_array_size(*list);
	return *count <= max || wrong(r, "%s has %zu entries: at most %zu were expected", name, *count, max);
}

/* Members are read from the base again. */
static void leave(struct reader *r)
{
	r->object = r->base;
	snprintf(r->where, sizeof(r->where), "%s", r->base_where);
}

/* Members are read from the i-th entry of a list of the base from here on. */
static bool enter(struct reader *r, const char *list_name, const json_t *list, size_t i)
{
	const json_t *v = r->j->json_array_get(list, i);
	leave(r);
	if (!json_is_object(v)) {
		char name[64];
		snprintf(name, sizeof(name), "%s[%zu]", list_name, i);
		return unlike(r, name, v, "an object");
	}
	snprintf(r->where, sizeof(r->where), "%s%s[%zu].", r->base_where, list_name, i);
	r->object = v;
	return true;
}

static bool numbers(struct reader *r, const char *list_name, const json_t *list, size_t count, uint64_t min,
		    uint64_t *out)
{
	for (size_t i = 0; i < count; i++) {
		char name[96];
		snprintf(name, sizeof(name), "%s[%zu]", list_name, i);
		if (!whole_value(r, name, r->j->json_array_get(list, i), min, CLV_PLAN_BYTES_MAX, &out[i]))
			return false;
	}
	return true;
}

/* The bytes from the first to the last element. False: two elements share bytes, or there are more than can be. */
static bool extent(const struct clv_plan_file_buffer *b, uint64_t *bytes)
{
	bool counted[CLEAVE_PLAN_DIMS] = {false};
	uint64_t span = 1; /* of the dimensions counted so far, which are those of smaller strides, in elements */
	for (uint32_t n = 0; n < b->dims; n++) {
		uint32_t least = CLEAVE_PLAN_DIMS;
		for (uint32_t i = 0; i < b->dims;
		     i++) /* of equal strides, which only sizes of 1 can have, the size last */
			if (!counted[i] && (least == CLEAVE_PLAN_DIMS || b->strides[i] < b->strides[least] ||
					    (b->strides[i] == b->strides[least] && b->shape[i] < b->shape[least])))
				least = i;
		counted[least] = true;
		if (b->shape[least] == 1)
			continue;
		uint64_t more;
		if (b->strides[least] < span || __builtin_mul_overflow(b->shape[least] - 1, b->strides[least], &more) ||
		    __builtin_add_overflow(span, more, &span) || span > CLV_PLAN_BYTES_MAX)
			return false;
	}
	*bytes = span * (cleave_dtype_bits(b->dtype) / 8);
	return true;
}

/* "896 x 768 x 1792" */
static const char *shape_text(const struct clv_plan_file_buffer *b, char *buf, size_t len)
{
	int at = 0;
	buf[0] = 0;
	for (uint32_t i = 0; i < b->dims && at >= 0 && (size_t)at < len; i++)
		at += snprintf(buf + at, len - (size_t)at, "%s%" PRIu64, i ? " x " : "", b->shape[i]);
	return b->dims ? buf : "one element";
}

static bool read_shape(struct reader *r, struct clv_plan_file_buffer *b)
{
	const json_t *shape, *strides;
	size_t dims, stride_count;
	if (!list_of(r, "shape", CLEAVE_PLAN_DIMS, &shape, &dims) ||
	    !list_of(r, "strides", CLEAVE_PLAN_DIMS, &strides, &stride_count))
		return false;
	if (!shape)
		return missing(r, "shape", "a list of whole numbers");
	b->dims = (uint32_t)dims;
	if (!numbers(r, "shape", shape, dims, 1, b->shape))
		return false;
	uint64_t elements = 1;
	for (uint32_t i = b->dims; i-- > 0;) {
		b->strides[i] = elements;
		if (__builtin_mul_overflow(elements, b->shape[i], &elements) || elements > CLV_PLAN_BYTES_MAX)
			return wrong(r, "shape has more than %" PRIu64 " elements", CLV_PLAN_BYTES_MAX);
	}
	if (!strides)
		return true;
	if (stride_count != dims)
		return wrong(r, "strides has %zu entries and shape %zu: as many were expected", stride_count, dims);
	return numbers(r, "strides", strides, dims, 1, b->strides);
}

static bool read_dtype(struct reader *r, struct clv_plan_file_buffer *b)
{
	const json_t *v = member(r, "dtype");
	if (!v)
		return missing(r, "dtype", "a text");
	if (!json_is_string(v))
		return unlike(r, "dtype", v, "a text");
	b->dtype = clv_dtype_find(r->j->json_string_value(v));
	return b->dtype != CLEAVE_DTYPE_NONE ||
	       wrong(r,
		     "dtype is \"%.64s\": a name of PyTorch's was expected, such as uint8, bfloat16 or float8_e4m3fn",
		     r->j->json_string_value(v));
}

static bool read_buffer(struct reader *r, const struct clv_plan_file *f, struct clv_plan_file_buffer *b)
{
	uint64_t least;
	char buf[256];
	if (!name_of(r, b->name) || !read_shape(r, b) || !read_dtype(r, b) || !flag(r, "zeroed", &b->zeroed) ||
	    !flag(r, "same", &b->same) || !whole(r, "bytes", 1, CLV_PLAN_BYTES_MAX, 0, &b->bytes))
		return false;
	for (const struct clv_plan_file_buffer *other = f->buffers; other < b; other++)
		if (!strcmp(other->name, b->name))
			return wrong(r, "name is \"%s\", as that of another buffer: each was expected once", b->name);
	uint32_t element = cleave_dtype_bits(b->dtype) / 8;
	const char *text = shape_text(b, buf, sizeof(buf));
	if (!extent(b, &least))
		return wrong(r, "strides of %s let elements share bytes, or reach beyond %" PRIu64 " of them", text,
			     CLV_PLAN_BYTES_MAX);
	/* rows may be padded behind the last element as well, but by less than the slowest stride */
	uint64_t most = element;
	for (uint32_t i = 0; i < b->dims; i++) {
		uint64_t reach;
		if (!__builtin_mul_overflow(b->strides[i] * element, b->shape[i], &reach))
			most = clv_max_u64(most, reach);
	}
	if (b->bytes < least || b->bytes > clv_max_u64(least, most))
		return wrong(r, "bytes is %" PRIu64 ": %s of %s, %u bytes each, take %" PRIu64, b->bytes, text,
			     cleave_dtype_name(b->dtype), element, least);
	bool by_expert = b->dims && b->shape[0] == f->experts && b->strides[0] * element * f->experts == b->bytes;
	b->experts = by_expert ? f->experts : 1;
	b->expert_bytes = b->bytes / b->experts;
	return true;
}

static bool read_buffers(struct reader *r, struct clv_plan_file *f)
{
	const json_t *list;
	if (!list_of(r, "buffers", CLV_PLAN_BUFFERS_MAX, &list, &f->buffer_count))
		return false;
	if (!f->buffer_count)
		return wrong(r,
			     "buffers is %s: the buffers of a layer were expected (is this a plan of `cleave plan`?)",
			     list ? "empty" : "missing");
	f->buffers = calloc(f->buffer_count, sizeof(*f->buffers));
	if (!f->buffers)
		return clv_error_set(r->err, "%s: host memory is out", r->file);
	uint32_t runs = 0; /* the most into which a buffer is divided */
	for (size_t i = 0; i < f->buffer_count; i++) {
		if (!enter(r, "buffers", list, i) || !read_buffer(r, f, &f->buffers[i]))
			return false;
		f->layer_bytes += f->buffers[i].bytes;
		runs = f->buffers[i].experts > runs ? f->buffers[i].experts : runs;
	}
	leave(r);
	if (runs != f->experts)
		return wrong(r, "experts_local is %u, and no buffer's first dimension is: that of the weights was expected", f->experts);
	return f->layer_bytes < TOTAL_MAX / clv_max_u64(f->layers, 1) ||
	       wrong(r, "buffers take %" PRIu64 " bytes in each of %u layers: less than 2^62 in all were expected",
		     f->layer_bytes, f->layers);
}

static bool read_reservation(struct reader *r, struct clv_plan_file_reservation *v)
{
	return name_of(r, v->name) && whole(r, "bytes", 1, CLV_PLAN_BYTES_MAX, 0, &v->bytes) &&
	       whole(r, "count", 1, UINT32_MAX, 0, &v->count) && whole(r, "after_n", 0, INT64_MAX, 0, &v->after_n) &&
	       whole(r, "uses", 0, INT64_MAX, 0, &v->uses) && flag(r, "hard", &v->hard);
}

static bool read_reservations(struct reader *r, struct clv_plan_file *f)
{
	const json_t *list;
	if (!list_of(r, "reservations", CLV_PLAN_RESERVATIONS_MAX, &list, &f->reservation_count))
		return false;
	f->reservations = calloc(f->reservation_count + 1, sizeof(*f->reservations));
	if (!f->reservations)
		return clv_error_set(r->err, "%s: host memory is out", r->file);
	for (size_t i = 0; i < f->reservation_count; i++)
		if (!enter(r, "reservations", list, i) || !read_reservation(r, &f->reservations[i]))
			return false;
	leave(r);
	return true;
}

/* Is the rank among those that the entered object speaks of? False with an error set if that cannot be read. */
static bool speaks_of(struct reader *r, uint32_t rank)
{
	const json_t *spans;
	size_t count;
	if (!list_of(r, "spans", RANKS_MAX, &spans, &count))
		return false;
	for (size_t i = 0; i < count; i++) {
		const json_t *span = r->j->json_array_get(spans, i);
		char name[64];
		uint64_t ends[2];
		snprintf(name, sizeof(name), "spans[%zu]", i);
		if (!json_is_array(span) || r->j->json_array_size(span) != 2)
			return unlike(r, name, span, "a list of a first and a last rank");
		if (!numbers(r, name, span, 2, 0, ends))
			return false;
		if (rank >= ends[0] && rank <= ends[1])
			return true;
	}
	return false;
}

/* The base becomes the object of the rank. */
static bool choose(struct reader *r, uint32_t rank, struct clv_plan_file *f)
{
	const json_t *list;
	size_t count;
	if (!list_of(r, "ranks", RANKS_MAX, &list, &count) || !whole32(r, "rank", 0, UINT32_MAX - 1, 0, &f->rank))
		return false;
	if (rank == CLV_PLAN_OWN_RANK || (!list && rank == f->rank))
		return true;
	if (!list)
		return wrong(r, "rank is %u: a plan of rank %u was expected, or of all (cleave plan --rank all)",
			     f->rank, rank);
	for (size_t i = 0; i < count; i++) {
		if (!enter(r, "ranks", list, i))
			return false;
		if (speaks_of(r, rank)) {
			r->base = r->object;
			snprintf(r->base_where, sizeof(r->base_where), "ranks[%zu].", i);
			f->rank = rank;
			return true;
		}
		if (r->err && r->err->text[0])
			return false;
	}
	leave(r);
	return wrong(r, "ranks has no rank %u", rank);
}

static bool read_plan(struct reader *r, const json_t *root, uint32_t rank, struct clv_plan_file *f)
{
	uint64_t version;
	r->base = root;
	leave(r);
	if (!whole(r, "version", 0, INT64_MAX, CLV_PLAN_VERSION, &version))
		return false;
	if (version != CLV_PLAN_VERSION)
		return wrong(r, "version is %" PRIu64 ": this program reads plans of version %d", version,
			     CLV_PLAN_VERSION);
	return remark(r, "model", f->model) && remark(r, "backend", f->backend) && remark(r, "strategy", f->strategy) &&
	       whole32(r, "moe_layers", 1, CLV_MODEL_LAYERS_MAX, 0, &f->moe_layers) && choose(r, rank, f) &&
	       whole32(r, "layers_local", 0, f->moe_layers, f->moe_layers, &f->layers) &&
	       whole32(r, "experts_local", 1, CLV_MODEL_EXPERTS_MAX, 0, &f->experts) &&
	       whole(r, "weights_bytes", 0, TOTAL_MAX, 0, &f->weights_bytes) && read_buffers(r, f) &&
	       read_reservations(r, f);
}

bool clv_plan_file_parse(struct clv_plan_file *f, const char *path, const char *text, size_t len, uint32_t rank,
			 struct clv_error *err)
{
	memset(f, 0, sizeof(*f));
	struct reader r = {.j = clv_jansson(err), .file = path, .err = err};
	json_error_t why;
	if (!r.j)
		return false;
	json_t *root = r.j->json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!root)
		return clv_error_at_line(err, path, why.line > 0 ? (uint64_t)why.line : 1, "this is no JSON: %s",
					 why.text);
	f->path = strdup(path);
	bool good = false;
	if (!f->path)
		clv_error_set(err, "%s: host memory is out", path);
	else if (!json_is_object(root))
		unlike(&r, "this", root, "a plan of `cleave plan`, which is one object,");
	else
		good = read_plan(&r, root, rank, f);
	r.j->json_delete(root);
	if (!good)
		clv_plan_file_free(f);
	return good;
}

bool clv_plan_file_read_rank(struct clv_plan_file *f, const char *path, uint32_t rank, struct clv_error *err)
{
	char *text;
	size_t len;
	memset(f, 0, sizeof(*f));
	if (!clv_file_read(path, true, CLV_PLAN_FILE_MAX, "a plan", &text, &len, err))
		return false;
	bool good = clv_plan_file_parse(f, path, text, len, rank, err);
	free(text);
	return good;
}

void clv_plan_file_free(struct clv_plan_file *f)
{
	free(f->buffers);
	free(f->reservations);
	free(f->path);
	memset(f, 0, sizeof(*f));
}
