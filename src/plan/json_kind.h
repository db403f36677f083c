/* SPDX-License-Identifier: MIT
 *
 * json_kind: what a value is, for messages. Calls no function of jansson, so that it serves where that is not linked.
 */
#ifndef CLV_JSON_KIND_H
#define CLV_JSON_KIND_H

#include <jansson.h>

/* "a text", "a list", ... */
static inline const char *clv_json_kind(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "a list";
	case JSON_STRING:
		return "a text";
	case JSON_INTEGER:
		return "a whole number";
	case JSON_REAL:
		return "a number that is not whole";
	case JSON_TRUE:
	case JSON_FALSE:
		return "true or false";
	default:
		return "null";
	}
}

#endif
