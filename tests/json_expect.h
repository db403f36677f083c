/* SPDX-License-Identifier: MIT
 *
 * json_expect: members of a JSON object that must be there, of the kind that is asked for.
 */
#ifndef CLV_JSON_EXPECT_H
#define CLV_JSON_EXPECT_H

#include <check.h>
#include <jansson.h>

static inline json_int_t whole(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);
	ck_assert_msg(json_is_integer(v), "%s is no whole number", key);
	return json_integer_value(v);
}

static inline double real(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);
	ck_assert_msg(json_is_real(v), "%s is no real number", key);
	return json_real_value(v);
}

#endif
