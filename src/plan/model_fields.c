/* SPDX-License-Identifier: MIT */
#include "model_fields.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "a, b or c" */
static const char *names_text(const struct clv_field *field, char *buf, size_t len)
{
	size_t at = 0;
	buf[0] = 0;
	for (size_t i = 0; i < CLV_FIELD_NAMES_MAX && field->names[i] && at < len; i++) {
		bool last = i + 1 == CLV_FIELD_NAMES_MAX || !field->names[i + 1];
		int n = snprintf(buf + at, len - at, "%s%s", !i ? "" : last ? " or " : ", ", field->names[i]);
		at += n > 0 ? (size_t)n : 0;
	}
	return buf;
}

json_t *clv_field_find(const struct clv_fields *f, const struct clv_field *field, const char **name)
{
	for (size_t i = 0; i < CLV_FIELD_NAMES_MAX && field->names[i]; i++) {
		json_t *v = json_object_get(f->object, field->names[i]);
		if (!v || json_is_null(v))
			continue;
		*name = field->names[i];
		return v;
	}
	return NULL;
}

static bool whole(const struct clv_fields *f, const struct clv_field *field, const char *name, const json_t *v,
		  uint32_t *value)
{
	if (!json_is_integer(v))
		return clv_error_set(f->err, "%s: %s%s, %s, must be a whole number, and is %s", f->file, f->where, name,
				     field->what, clv_json_kind(v));
	json_int_t n = json_integer_value(v);
	if (n < (json_int_t)field->min || n > (json_int_t)field->max)
		return clv_error_set(f->err,
				     "%s: %s%s, %s, is %" JSON_INTEGER_FORMAT ", which is not within %" PRIu32
				     " to %" PRIu32,
				     f->file, f->where, name, field->what, n, field->min, field->max);
	*value = (uint32_t)n;
	return true;
}

bool clv_field_optional(const struct clv_fields *f, const struct clv_field *field, uint32_t *value, bool *there,
			const char **name)
{
	const char *first = NULL;
	uint32_t got = 0;
	for (size_t i = 0; i < CLV_FIELD_NAMES_MAX && field->names[i]; i++) {
		const json_t *v = json_object_get(f->object, field->names[i]);
		uint32_t n = 0;
		if (!v || json_is_null(v))
			continue;
		if (!whole(f, field, field->names[i], v, &n))
			return false;
		if (first && n != got)
			return clv_error_set(f->err, "%s: %s is %" PRIu32 " in %s%s and %" PRIu32 " in %s%s", f->file,
					     field->what, got, f->where, first, n, f->where, field->names[i]);
		first = first ? first : field->names[i];
		got = n;
	}
	*there = first != NULL;
	if (first) {
		*value = got;
		if (name)
			*name = first;
	}
	return true;
}

bool clv_field_required(const struct clv_fields *f, const struct clv_field *field, uint32_t *value, const char **name)
{
	bool there;
	char names[256];
	if (!clv_field_optional(f, field, value, &there, name))
		return false;
	return there || clv_error_set(f->err, "%s: %s is missing: looked for %s%s", f->file, field->what, f->where,
				      names_text(field, names, sizeof(names)));
}

bool clv_field_text(const struct clv_fields *f, const char *name, char *buf, size_t len)
{
	const json_t *v = json_object_get(f->object, name);
	buf[0] = 0;
	if (!v || json_is_null(v))
		return true;
	if (!json_is_string(v))
		return clv_error_set(f->err, "%s: %s%s is %s, not a text", f->file, f->where, name, clv_json_kind(v));
	if (json_string_length(v) >= len || strlen(json_string_value(v)) != json_string_length(v))
		return clv_error_set(f->err, "%s: %s%s is a text of %zu characters, of which at most %zu make sense",
				     f->file, f->where, name, json_string_length(v), len - 1);
	memcpy(buf, json_string_value(v), json_string_length(v) + 1);
	for (const char *c = buf; *c; c++) /* they are printed */
		if ((unsigned char)*c < ' ' || *c == 127)
			return clv_error_set(f->err, "%s: %s%s has a control character", f->file, f->where, name);
	return true;
}

bool clv_field_flag(const struct clv_fields *f, const char *name, bool fallback, bool *value)
{
	const json_t *v = json_object_get(f->object, name);
	*value = fallback;
	if (!v || json_is_null(v))
		return true;
	if (!json_is_boolean(v))
		return clv_error_set(f->err, "%s: %s%s is %s, not true or false", f->file, f->where, name,
				     clv_json_kind(v));
	*value = json_is_true(v);
	return true;
}

bool clv_model_note(struct clv_model *m, struct clv_error *err, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	char **notes = realloc(m->notes, (m->note_count + 1) * sizeof(*notes));
	if (!notes)
		return clv_error_set(err, "%s: host memory is out", m->path);
	m->notes = notes;
	notes[m->note_count] = strdup(text);
	if (!notes[m->note_count])
		return clv_error_set(err, "%s: host memory is out", m->path);
	m->note_count++;
	return true;
}
