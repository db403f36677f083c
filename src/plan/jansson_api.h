/* SPDX-License-Identifier: MIT
 *
 * jansson_api: the functions of jansson that reading needs, from libjansson.so.4, which is opened when they are first asked
 * for: libcleave.so must need libc alone when it is loaded, and Debian's libjansson.a cannot go into a shared library. Owns
 * the opened library, which is never closed; `once` guards the opening.
 */
#ifndef CLV_JANSSON_API_H
#define CLV_JANSSON_API_H

#include "../base/error.h"

#include <jansson.h>

#define CLV_JANSSON_CALLS(X)                                                                                           \
	X(json_loadb)                                                                                                  \
	X(json_delete)                                                                                                 \
	X(json_object_get)                                                                                             \
	X(json_array_size)                                                                                             \
	X(json_array_get)                                                                                              \
	X(json_string_value)                                                                                           \
	X(json_string_length)                                                                                          \
	X(json_integer_value)

struct clv_jansson {
#define X(name) __typeof__(name) *name;
	CLV_JANSSON_CALLS(X)
#undef X
};

/* NULL with `err`: the library is not there, or lacks a function. A document that json_loadb() made has one owner, who ends
 * it with json_delete(): json_decref() of the header would need the library when ours is loaded. */
const struct clv_jansson *clv_jansson(struct clv_error *err);

#endif
