/* SPDX-License-Identifier: MIT
 *
 * model_fields: strict access to the members of a configuration in JSON. Owns nothing; for model.c and model_quant.c.
 *
 * A field has one or more names, by family of models; two that are there must agree. null counts as absent, since Hugging
 * Face writes it for that. What is found is whole, not negative and within limits, or the error says which member of which
 * file is wrong, what was looked for, and why it matters.
 */
#ifndef CLV_MODEL_FIELDS_H
#define CLV_MODEL_FIELDS_H

#include "json_kind.h"
#include "model.h"

struct clv_fields {
	const char *file;
	const char *where; /* "" or "text_config.", before a member's name in messages */
	json_t *object;
	struct clv_error *err;
};

#define CLV_FIELD_NAMES_MAX 5

struct clv_field {
	const char *what;                       /* "the number of experts" */
	const char *names[CLV_FIELD_NAMES_MAX]; /* up to the first NULL */
	uint32_t min, max;
};

/* The first of the names that is there and not null, else NULL; *name is set then. */
json_t *clv_field_find(const struct clv_fields *f, const struct clv_field *field, const char **name);

/* A whole number. *there says whether it was found; without, *value is left alone. False with an error only if something
 * is there that is wrong. `name`: under which it was found; may be NULL. */
bool clv_field_optional(const struct clv_fields *f, const struct clv_field *field, uint32_t *value, bool *there,
			const char **name);

/* The same, and not to be there is an error, too. */
bool clv_field_required(const struct clv_fields *f, const struct clv_field *field, uint32_t *value, const char **name);

/* A text that fits the buffer; absent: "". */
bool clv_field_text(const struct clv_fields *f, const char *name, char *buf, size_t len);

/* true or false; absent: `fallback`. */
bool clv_field_flag(const struct clv_fields *f, const char *name, bool fallback, bool *value);

/* A sentence for m->notes. False: host memory is out, as `err` then says. */
bool clv_model_note(struct clv_model *m, struct clv_error *err, const char *fmt, ...) CLV_PRINTF(3, 4);

#endif
